"""Exact neighbour search over whole matrices: any chunking, container, scaling, workers; plans kept."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.primitives import neighbours
from mlfs_dask.primitives.linear import Scaling
from mlfs_dask.primitives.neighbours import Neighbours, knn_graph, knn_of_points, plan_knn
from mlfs_dask.primitives.rows import ArrayRows, as_rows
from mlfs_dask.runtime import Resources

HERE = Resources(1, 1, 2**33, 2**33)


def problem(seed=0, n=50, d=5):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6), 1)
    X[n // 2] = X[0]
    return X


def brute(X, k):
    D = ((X[:, None] - X) ** 2).sum(axis=2)
    np.fill_diagonal(D, np.inf)
    order = np.argsort(np.round(D, 9), axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


def rows_of(X, *, block_bytes=300):
    return ArrayRows(as_matrix(X), as_labels(np.ones((X.shape[0], 1), dtype=np.int8)), block_bytes=block_bytes)


def check(found, X, k):
    order, distances = brute(X, k)
    assert found.indices.tolist() == order.tolist()
    assert found.distances == pytest.approx(distances, rel=1e-9, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_chunking_gives_the_same_graph(data):
    n = data.draw(st.integers(2, 40))
    X = problem(data.draw(st.integers(0, 99)), n=n)
    k = data.draw(st.integers(1, 8))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=4))), n]
    lazy = da.from_array(X, chunks=(tuple(np.diff(cuts).tolist()), (2, 3)))
    if data.draw(st.booleans()):
        lazy = lazy.map_blocks(sp.csr_array)
    found, records = knn_graph(as_rows(lazy, np.ones((n, 1), dtype=np.int8)), k, HERE)
    check(found, X, min(k, n - 1))
    assert len(records) >= 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_every_container_and_number_of_threads_gives_the_same_graph(dtype, monkeypatch):
    monkeypatch.setattr(neighbours, "FEWEST_ROWS", 10)
    X = (10 * problem(n=200)).astype(dtype)
    wide = X.astype(float)
    scaling = Scaling(np.full(5, 2.0), np.array([1.0, 0.5, 0.0, 2.0, 1.0]))
    for container in (X, sp.csr_array(X)):
        for threads in (1, 3):
            for scale in (None, scaling):
                resources = replace(HERE, threads_per_worker=threads)
                found, records = knn_graph(rows_of(container), 4, resources, scaling=scale)
                check(found, wide if scale is None else (wide - 2) * scaling.factor, 4)
                assert len(records) == threads


def test_worker_processes_search_stores(tmp_path):
    distributed = pytest.importorskip("distributed")
    from mlfs_dask import open_dataset
    from mlfs_dask.storage.convert import convert_reader
    from tests.storage.memory_reader import make_reader

    X = problem(n=300)
    reader = make_reader(X, np.ones((300, 1), dtype=np.int8))
    convert_reader(lambda: reader, tmp_path / "s.zarr", workers=1)
    rows = open_dataset(tmp_path / "s.zarr").rows
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=2**31
        ) as cluster,
        distributed.Client(cluster),
    ):
        found, records = knn_graph(rows, 4, runtime.current_resources())
    check(found, X, 4)
    assert sum(r.bytes_read for r in records) == len(records) * rows.profile.read_bytes


def test_points_are_searched_by_any_number_of_threads_with_the_same_bits():
    Z = np.random.default_rng(0).normal(size=(1500, 6))
    one, two = knn_of_points(Z, 7), knn_of_points(Z, 7, threads=2)
    assert (one.indices == two.indices).all()
    assert (one.distances == two.distances).all()
    check(one, Z, 7)


def test_rows_far_from_zero_keep_their_order():
    X = np.random.default_rng(0).normal(size=(100, 3))
    order, _ = brute(X, 5)
    moved = X + 1e7
    assert knn_graph(rows_of(moved), 5, HERE)[0].indices.tolist() == order.tolist()
    assert knn_of_points(moved, 5).indices.tolist() == order.tolist()


def test_one_row_has_no_neighbours_and_few_rows_have_few():
    assert knn_of_points(np.zeros((1, 3)), 5).indices.shape == (1, 0)
    found, records = knn_graph(rows_of(np.zeros((1, 3))), 5, HERE)
    assert found.indices.shape == (1, 0)
    assert records == []
    assert knn_of_points(np.zeros((3, 2)), 5).indices.tolist() == [[1, 2], [0, 2], [0, 1]]


def test_a_graph_keeps_zeros_and_orders_columns():
    graph = Neighbours(np.array([[2, 1], [0, 2], [0, 1]]), np.array([[0.0, 1], [0, 2], [0, 3]])).to_csr()
    assert graph.nnz == 6
    assert graph.toarray().tolist() == [[0, 1, 0], [0, 0, 2], [0, 3, 0]]
    assert graph.indices.tolist() == [1, 2, 0, 2, 0, 1]
    assert Neighbours(np.empty((2, 0), int), np.empty((2, 0))).to_csr().nnz == 0


def test_groups_shrink_to_fit_and_what_does_not_fit_is_refused():
    profile = replace(rows_of(problem()).profile, n=10**6, d=500, partitions=100, block_rows=1000, buffer_bytes=10**7)
    roomy = plan_knn(profile, 10, replace(HERE, client=object(), workers=2, memory_limit=2**32))
    tight = plan_knn(profile, 10, replace(HERE, client=object(), workers=2, memory_limit=2**29))
    assert len(roomy.runs) < len(tight.runs)
    assert tight.peak_worker_bytes <= 0.8 * 2**29
    assert tight.bytes_read == len(tight.runs) * profile.read_bytes
    assert tight.runs[-1][1] == 10**6
    with pytest.raises(DoesNotFitError, match="the neighbour search on a worker"):
        plan_knn(profile, 10, replace(HERE, memory_limit=2**27))


def test_a_task_leaves_what_it_was_given():
    # Dask may run a task again with the same inputs.
    X = problem()
    source = as_rows(da.from_array(X, chunks=(20, -1)), np.ones((50, 1), dtype=np.int8))
    first, second = (source.delayed_blocks(i).compute(scheduler="sync") for i in range(2))
    search = neighbours.Search(3, None)
    nearest = neighbours._begin_pair(search, first, 0, 20, None)
    once = neighbours._add_pair(search, nearest, second)
    assert (nearest.indices == -1).all()
    assert neighbours._add_pair(search, nearest, second).indices.tolist() == once.indices.tolist()
