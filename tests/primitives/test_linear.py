"""Products of rows with driver-held matrices: any cut and container, centred and scaled, one pass each."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from unittest import mock

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks import linear as blocks
from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.primitives import passes, row_passes
from mlfs_dask.primitives.gram import gram, gram_of_columns
from mlfs_dask.primitives.linear import (
    Scaling,
    backward,
    forward,
    forward_backward,
    forward_normal,
    normal_product,
    plan_linear,
    standard_scaling,
)
from mlfs_dask.primitives.moments import Moments
from mlfs_dask.primitives.passes import run_pass
from mlfs_dask.primitives.rows import ArrayRows, as_rows
from mlfs_dask.runtime import Resources

HERE = Resources(1, 1, 2**33, 2**33)
THREADS = replace(HERE, threads_per_worker=3)


def problem(seed=0, n=50, d=7, c=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)).astype(dtype)
    return X, rng.normal(size=(d, c)), rng.normal(size=(n, c)), rng.random(n) * (rng.random(n) < 0.7)


def rows_of(X, *, block_bytes=300):
    return ArrayRows(as_matrix(X), as_labels(np.ones((X.shape[0], 1), dtype=np.int8)), block_bytes=block_bytes)


def sources(X):
    labels = np.ones((len(X), 1), dtype=np.int8)
    lazy = da.from_array(X, chunks=(13, 4))
    yield "one block", rows_of(X, block_bytes=2**30)
    yield "blocks", rows_of(X)
    yield "rows one by one", rows_of(X, block_bytes=1)
    yield "sparse", rows_of(sp.csr_array(X))
    yield "dask", as_rows(lazy, da.from_array(labels, chunks=(20, -1)))
    yield "dask of sparse", as_rows(lazy.map_blocks(sp.csr_array), da.from_array(labels, chunks=(20, -1)))


def check_all(source, X, W, R, s, resources, scaling):
    Z = X.astype(np.float64)
    if scaling is not None:
        Z = (Z - scaling.centre) * scaling.factor
    near = {"rel": 1e-10, "abs": 1e-10}
    found, record = forward(source, W, resources, scaling=scaling)
    assert found == pytest.approx(Z @ W, **near)
    assert record.tasks >= 1
    assert backward(source, R, resources, scaling=scaling)[0] == pytest.approx(Z.T @ R, **near)
    assert backward(source, R, resources, scaling=scaling, weights=s)[0] == pytest.approx(
        Z.T @ (s[:, None] * R), **near
    )
    both = forward_normal(source, W, resources, scaling=scaling)
    assert both.forward == pytest.approx(Z @ W, **near)
    assert both.backward == pytest.approx(Z.T @ (Z @ W), **near)
    assert both.record.tasks == record.tasks  # one reading
    for weights in (None, s):
        S = np.ones(len(X)) if weights is None else weights
        both = forward_backward(source, W, R, resources, scaling=scaling, weights=weights)
        assert both.forward == pytest.approx(Z @ W, **near)
        assert both.backward == pytest.approx(Z.T @ (S[:, None] * (Z @ W - R)), **near)
        once = normal_product(source, W, resources, scaling=scaling, weights=weights)[0]
        assert once == pytest.approx(Z.T @ (S[:, None] * (Z @ W)), **near)
        G = gram(source, resources, R=R, weights=weights, scaling=scaling)
        assert G.gram == pytest.approx(Z.T @ (S[:, None] * Z), **near)
        assert (G.gram == G.gram.T).all()
        assert G.products == pytest.approx(Z.T @ (S[:, None] * R), **near)
        assert gram(source, resources, weights=weights, scaling=scaling).products.shape == (X.shape[1], 0)
        both = forward_normal(source, W, resources, scaling=scaling, weights=weights)
        assert both.forward == pytest.approx(Z @ W, **near)
        assert both.backward == pytest.approx(Z.T @ (S[:, None] * (Z @ W)), **near)
        some = np.array([1, 2, X.shape[1] - 1])
        part, record = gram_of_columns(source, some, resources, weights=weights, scaling=scaling)
        assert part == pytest.approx(Z[:, some].T @ (S[:, None] * Z[:, some]), **near)
        assert (part == part.T).all()
        assert record.tasks >= 1


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_every_container_gives_the_products_of_the_whole(scaled, dtype):
    X, W, R, s = problem(dtype=dtype) if dtype != np.int16 else problem()
    X = (10 * X).astype(dtype)
    scaling = None
    if scaled:
        scaling = Scaling(np.linspace(-2, 2, X.shape[1]), np.r_[0.0, np.geomspace(0.1, 10, X.shape[1] - 1)])
    for _, source in sources(X):
        for resources in (HERE, THREADS):
            check_all(source, X, W, R, s, resources, scaling)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_chunking_gives_the_same_products(data):
    n = data.draw(st.integers(1, 30))
    X, W, R, s = problem(data.draw(st.integers(0, 99)), n=n)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=4))), n]
    lazy = da.from_array(X, chunks=(tuple(np.diff(cuts).tolist()), (3, 4)))
    if data.draw(st.booleans()):
        lazy = lazy.map_blocks(sp.csr_array)
    source = as_rows(lazy, np.ones((n, 1), dtype=np.int8))
    check_all(source, X, W, R, s, HERE, Scaling(np.full(7, 0.5), np.full(7, 2.0)))


def test_workers_give_the_same_products_and_ship_only_their_rows():
    distributed = pytest.importorskip("distributed")
    X, W, R, s = problem(n=400)
    lazy = da.from_array(X, chunks=(90, -1))
    source = as_rows(lazy, np.ones((400, 1), dtype=np.int8))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=2**31
        ) as cluster,
        distributed.Client(cluster),
    ):
        check_all(source, X, W, R, s, runtime.current_resources(), Scaling(np.ones(7), np.full(7, 2.0)))


def test_a_column_far_from_zero_keeps_its_digits():
    X, W, R, _ = problem(n=300)
    source = rows_of(X + 1e8)
    (moments,), _ = run_pass(source, [Moments(7)], HERE)
    Z = X + 1e8 - 1e8  # what float64 has kept of X
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    scaling = standard_scaling(moments)
    assert gram(source, HERE, R=R, scaling=scaling).gram == pytest.approx(Z.T @ Z, abs=1e-5)
    assert np.diag(gram(source, HERE, scaling=scaling).gram) == pytest.approx(np.full(7, 300), rel=1e-9)
    assert backward(source, R, HERE, scaling=scaling)[0] == pytest.approx(Z.T @ R, abs=1e-5)
    assert forward(source, W, HERE, scaling=scaling)[0] == pytest.approx(Z @ W, abs=1e-6)


@given(st.data())
@settings(deadline=None)
def test_a_laplacian_between_two_times_x(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, d = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 12))
    X = rng.integers(-3, 4, size=(n, d)).astype(data.draw(st.sampled_from([np.float64, np.float32, np.int8])))
    S = sp.random_array((n, n), density=0.2, rng=rng, format="csr")
    S = sp.csr_array(S + S.T)
    degrees = np.asarray(S.sum(axis=1)).ravel()
    expected = X.astype(float).T @ (np.diag(degrees) - S.toarray()) @ X.astype(float)
    before = X.copy()
    with mock.patch.object(blocks, "LAPLACIAN_VALUES", data.draw(st.integers(1, 400))):
        for container in (np.asarray, sp.csr_array, np.asfortranarray):
            assert blocks.laplacian_gram(container(X), S, degrees) == pytest.approx(expected, abs=1e-12 * 9 * n * n)
    assert (before == X).all()


def test_weights_of_zero_hide_rows_that_are_not_numbers():
    X, W, _, s = problem()
    X[s == 0] = np.nan
    s = np.where(s == 0, 0.0, 1.0)
    clean = np.where(np.isnan(X), 0.0, X)
    for container in (X, sp.csr_array(X)):
        assert gram(rows_of(container), HERE, weights=s).gram == pytest.approx(clean.T @ clean)
        assert normal_product(rows_of(container), W, HERE, weights=s)[0] == pytest.approx(clean.T @ clean @ W)


def test_one_pass_each_and_rows_of_a_small_pass_are_planned(monkeypatch):
    X, W, R, _ = problem()
    source = rows_of(X)
    streamed = []
    original = ArrayRows.stream
    monkeypatch.setattr(
        ArrayRows, "stream", lambda self, first, last: streamed.append((first, last)) or original(self, first, last)
    )
    forward_backward(source, W, R, HERE)
    assert sorted(streamed)[0][0] == 0
    assert sum(last - first for first, last in streamed) == source.profile.partitions


def test_rows_that_do_not_fit_a_worker_are_refused():
    from mlfs_dask.errors import DoesNotFitError
    from mlfs_dask.primitives.linear import _Linear
    from mlfs_dask.primitives.row_passes import plan_rows

    profile = replace(rows_of(problem()[0]).profile, n=10**8, partitions=8)
    statistic = _Linear(7, 20, W=np.zeros((7, 20)), centre=None, backward=False)
    cluster = replace(HERE, client=object(), workers=2, memory_limit=2**30)
    with pytest.raises(DoesNotFitError, match="one pass on a worker"):
        plan_rows(profile, statistic, cluster)
    plan = plan_rows(replace(profile, n=10**6), statistic, cluster)
    assert plan.peak_worker_bytes > cluster.process_bytes + 10**6 // 2 * 160
    # In partitions of a size that fits they are taken a wave at a time.
    plan = plan_rows(replace(profile, partitions=1000), statistic, cluster)
    assert plan.peak_worker_bytes < cluster.process_bytes + row_passes.IN_FLIGHT_BYTES
    rows = max(last - first for first, last in plan.runs) * 10**5
    assert (rows - 10**5) * 160 <= row_passes.IN_FLIGHT_BYTES / cluster.slots


@pytest.mark.parametrize("wave", [1, 8 * 3 * 20, 2**30])
def test_rows_travel_in_waves(wave, monkeypatch):
    """Never more of them at a time than a wave has, and results do not depend on it."""
    from distributed import Client, LocalCluster

    X, W, R, s = problem()
    monkeypatch.setattr(row_passes, "IN_FLIGHT_BYTES", wave)
    source = SlowRows(as_matrix(X), as_labels(np.ones((50, 1), dtype=np.int8)), block_bytes=150)
    sent, send = [], passes.send
    monkeypatch.setattr(passes, "send", lambda data, resources: sent.append(data) or send(data, resources))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        there = Resources(2, 1, 2**33, 2**33, client)
        out = np.empty((50, 3))
        check_all(source, X, W, R, s, there, None)
        assert forward(source, W, there, out=out)[0] is out
        assert out == pytest.approx(X @ W)
        sent.clear()
        backward(source, R, there)
    sizes = [[sum(a.nbytes for a in arrays) for arrays in data] for data in sent]
    assert sum(map(sum, sizes)) == R.nbytes
    assert all(sum(pieces) <= wave or len(pieces) == 1 for pieces in sizes)
    assert (len(sent) == 1) == (wave == 2**30)


def test_a_wave_is_gone_before_the_next_arrives(monkeypatch):
    from distributed import Client, LocalCluster

    X, _, R, _ = problem()
    monkeypatch.setattr(row_passes, "IN_FLIGHT_BYTES", R.nbytes // 3)
    source = SlowRows(as_matrix(X), as_labels(np.ones((50, 1), dtype=np.int8)), block_bytes=150)
    sent, send = [], passes.send

    def rows_there():
        values = [value for worker in cluster.workers.values() for value in dict(worker.data).values()]
        return sum(isinstance(value, list) and isinstance(value[0], np.ndarray) for value in values if value)

    def watched(data, resources):
        until = time.monotonic() + 60
        while rows_there() and time.monotonic() < until:  # workers hear of it a little later
            time.sleep(0.01)
        assert rows_there() == 0
        futures = send(data, resources)
        sent.append(rows_there())
        return futures

    monkeypatch.setattr(passes, "send", watched)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        backward(source, R, Resources(2, 1, 2**33, 2**33, client))
    assert len(sent) > 2
    assert all(sent)  # which are seen


def test_a_product_is_planned_before_its_matrices_exist():
    source = rows_of(problem()[0])
    one = plan_linear(source, 3, HERE, forward=True)
    other = plan_linear(source, 3, HERE, backward=True)
    both = plan_linear(source, 3, HERE, forward=True, backward=True)
    W, R = np.zeros((7, 3)), np.zeros((50, 3))
    assert one.tasks == forward(source, W, HERE)[1].tasks
    assert other.tasks == backward(source, R, HERE)[1].tasks
    assert both.tasks == forward_backward(source, W, R, HERE).record.tasks
    assert max(one.peak_worker_bytes, other.peak_worker_bytes) < both.peak_worker_bytes
    long = replace(source.profile, n=10**6, partitions=1000)  # in blocks as small as before
    there = replace(HERE, client=object())
    for direction in ({"forward": True}, {"backward": True}):
        few, many = (plan_linear(long, c, there, **direction).peak_worker_bytes for c in (3, 300))
        # The rows of a wave, of which both workers have a share.
        assert many - few >= (row_passes.IN_FLIGHT_BYTES - 10**6 * 3 * 8) / there.workers


class SlowRows(ArrayRows):
    """Rows in memory that travel to the workers, as a store's do, and take their time."""

    in_memory = False

    def stream(self, first, last):
        for block in super().stream(first, last):
            time.sleep(0.01)
            yield block


@pytest.mark.cluster
def test_rows_are_sent_again_when_a_worker_dies_with_them():
    from mlfs_dask.cluster import connect

    X, W, R, s = problem(n=500)
    source = SlowRows(X, as_labels(np.ones((500, 1), dtype=np.int8)), block_bytes=200)
    with connect(workers=2, memory_limit=800 * 2**20) as client:
        resources = runtime.current_resources()
        victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Timer(0.6, os.kill, (victim, signal.SIGKILL))
        killer.start()
        found = forward_backward(source, W, R, resources, weights=s)
        killer.join()
        assert victim not in client.run(os.getpid).values()
    assert found.forward == pytest.approx(X @ W)
    assert found.backward == pytest.approx(X.T @ (s[:, None] * (X @ W - R)))


def test_rows_are_not_sent_for_ever(monkeypatch):
    from types import SimpleNamespace

    from mlfs_dask.errors import ClusterLostError

    waited = []
    client = SimpleNamespace(wait_for_workers=lambda count, timeout: waited.append((count, timeout)))
    resources = replace(HERE, client=client)
    attempts = []

    def fail():
        attempts.append(1)
        raise passes.DataLostError("gone")

    with pytest.raises(ClusterLostError, match="gone"):
        passes.send_again(fail, resources)
    assert len(attempts) == 4
    assert waited == [(1, 60.0)] * 3
    assert passes.send_again(lambda: 7, resources) == 7

    def nobody(count, timeout):
        raise TimeoutError

    client.wait_for_workers = nobody
    attempts.clear()
    with pytest.raises(ClusterLostError, match="gone"):
        passes.send_again(fail, resources)
    assert len(attempts) == 1


@pytest.mark.parametrize(("status", "kind"), [("running", "DataLostError"), ("closed", "ClusterLostError")])
def test_a_worker_lost_while_sending_is_told_from_a_lost_cluster(status, kind):
    from types import SimpleNamespace

    def scatter(*args, **kwargs):
        raise TimeoutError("no workers found")

    client = SimpleNamespace(scatter=scatter, status=status)
    with pytest.raises(Exception, match=r"lost while data was sent to it: no workers found\n  cure: start") as error:
        passes.send([1], replace(HERE, client=client))
    assert type(error.value).__name__ == kind
