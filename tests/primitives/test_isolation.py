"""Isolation graphs of whole matrices: any chunking, container, worker; scikit-learn's forest; plans kept."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask import row_arrays, runtime
from mlfs_dask.blocks import forest
from mlfs_dask.blocks.forest import grow_forest
from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.primitives import isolation
from mlfs_dask.primitives.isolation import isolation_graph, plan_isolation
from mlfs_dask.primitives.rows import ArrayRows, as_rows
from mlfs_dask.runtime import Resources
from tests.reference.smfs import isolation_masses

HERE = Resources(1, 1, 2**33, 2**33)


def problem(seed=0, n=60, d=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X[n // 2] = X[0]
    X[:, 1] = 3.0
    return X


def rows_of(X, *, block_bytes=300):
    return ArrayRows(as_matrix(X), as_labels(np.ones((X.shape[0], 1), dtype=np.int8)), block_bytes=block_bytes)


def graph(source, resources=HERE, **options):
    return isolation_graph(source, 6, resources, **{"n_trees": 10, "seed": 3} | options)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_chunking_and_container_gives_the_same_graph(data):
    n = data.draw(st.integers(2, 60))
    X = problem(data.draw(st.integers(0, 99)), n=n)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=4))), n]
    expected = graph(rows_of(X, block_bytes=2**30))
    lazy = da.from_array(X, chunks=(tuple(np.diff(cuts).tolist()), (2, 3)))
    labels = np.ones((n, 1), dtype=np.int8)
    for source in (
        as_rows(lazy, labels),
        as_rows(lazy.map_blocks(sp.csr_array), labels),
        rows_of(X, block_bytes=1),
        rows_of(sp.csr_array(X)),
    ):
        found = graph(source)
        assert found.neighbours.indices.tolist() == expected.neighbours.indices.tolist()
        assert found.neighbours.distances.tolist() == expected.neighbours.distances.tolist()
    assert expected.neighbours.indices.shape == (n, min(6, n - 1))


def test_it_is_the_mass_of_the_smallest_common_node_in_every_tree():
    X = problem(n=300)
    source = rows_of(X)
    found = graph(source, max_samples=64)
    _, grow = np.random.SeedSequence(3).spawn(2)
    grown = grow_forest(X, n_trees=10, max_samples=64, seed=int(grow.generate_state(1)[0]))
    xi = isolation_masses(grown.trees, ((X - grown.shift) * grown.scale).astype(np.float32))
    np.fill_diagonal(xi, np.inf)
    order = np.argsort(np.round(xi, 12), axis=1, kind="stable")[:, :6]
    assert found.neighbours.indices.tolist() == order.tolist()
    assert found.neighbours.distances == pytest.approx(np.take_along_axis(xi, order, axis=1), rel=1e-12)
    assert found.sample_rows == 300


def test_a_column_far_from_zero_is_told_apart():
    X = np.random.default_rng(0).normal(size=(300, 1))
    near = graph(rows_of(X), n_trees=30)
    far = graph(rows_of(X + 1e9), n_trees=30)
    agree = [len({*a} & {*b}) / 6 for a, b in zip(near.neighbours.indices, far.neighbours.indices, strict=True)]
    assert np.mean(agree) > 0.7


def test_large_and_tiny_values_fit_single_precision():
    X = problem(n=100)
    expected = graph(rows_of(X)).neighbours.indices
    assert graph(rows_of(X * 2.0**200)).neighbours.indices.tolist() == expected.tolist()
    assert graph(rows_of(sp.csr_array(X * 2.0**-300))).neighbours.indices.tolist() == expected.tolist()


def test_more_leaves_than_a_byte_counts():
    X = np.random.default_rng(0).normal(size=(4000, 3))
    found = graph(rows_of(X), max_samples=4000)
    assert (found.neighbours.distances > 0).all()


def test_the_compiled_search_and_threads_give_the_same(monkeypatch):
    X = problem(n=200)
    expected = graph(rows_of(X)).neighbours
    monkeypatch.setattr(isolation, "COMPILED_WORK", 0)
    for threads in (1, 3):
        found = graph(rows_of(X), replace(HERE, threads_per_worker=threads)).neighbours
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.distances.tolist() == expected.distances.tolist()


def test_workers_give_the_same(monkeypatch):
    distributed = pytest.importorskip("distributed")
    X = problem(n=200)
    expected = graph(rows_of(X)).neighbours
    monkeypatch.setattr(isolation, "COMPILED_WORK", 0)
    source = as_rows(da.from_array(X, chunks=(60, -1)), np.ones((200, 1), dtype=np.int8))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=2**31
        ) as cluster,
        distributed.Client(cluster),
    ):
        found = graph(source, runtime.current_resources())
    assert found.neighbours.indices.tolist() == expected.indices.tolist()
    assert found.neighbours.distances.tolist() == expected.distances.tolist()
    assert len(found.records) == 2


def test_a_sample_of_rows_is_drawn_by_their_index(monkeypatch):
    monkeypatch.setattr(forest, "SAMPLE_BYTES", 20 * 80)
    X = problem(n=400)
    first = graph(rows_of(X), max_samples=50)
    assert first.sample_rows == 80
    again = graph(rows_of(X, block_bytes=7000), max_samples=50)
    assert first.neighbours.indices.tolist() == again.neighbours.indices.tolist()
    other = graph(rows_of(X), max_samples=50, seed=4)
    assert first.neighbours.indices.tolist() != other.neighbours.indices.tolist()


def test_one_row_has_no_neighbours():
    found = graph(rows_of(np.ones((1, 5))))
    assert found.neighbours.indices.shape == (1, 0)


def test_the_plan_counts_codes_and_refuses_what_does_not_fit():
    profile = replace(rows_of(problem()).profile, n=10**6, partitions=10)
    plan = plan_isolation(profile, 15, HERE)
    assert 2 * 10**8 < max(phase.row_bytes for phase in plan.phases) < 10**9
    assert max(phase.held for phase in plan.phases) < 3 * 10**8
    cluster = replace(HERE, client=object(), workers=2, memory_limit=2**30)
    there = plan_isolation(profile, 15, cluster)
    # Workers load scikit-learn's trees; this process has them.
    assert there.leaves.peak_worker_bytes - plan.leaves.peak_worker_bytes > runtime.TREES_BYTES - 10**8
    assert there.search_bytes > cluster.process_bytes + runtime.TREES_BYTES + 10**8
    loaded = plan_isolation(profile, 15, replace(cluster, trees_bytes=0, compiled_bytes=0))
    assert there.leaves.peak_worker_bytes - loaded.leaves.peak_worker_bytes == runtime.TREES_BYTES
    assert there.search_bytes - loaded.search_bytes == runtime.TREES_BYTES + runtime.COMPILED_BYTES
    few = plan_isolation(replace(profile, n=1000), 15, cluster)
    assert few.search_bytes == cluster.process_bytes + runtime.TREES_BYTES
    with pytest.raises(DoesNotFitError, match="the search by isolation mass on a worker"):
        plan_isolation(replace(profile, n=10**7), 15, replace(HERE, client=object(), workers=2, memory_limit=2**30))


def approximate(X, k=10, resources=HERE, **options):
    return isolation_graph(rows_of(X, **options), k, resources, seed=2, kind="approximate")


def latent(n=4000):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, 4)) @ rng.normal(size=(4, 12)) + 0.1 * rng.normal(size=(n, 12))


def test_an_approximate_search_finds_most_and_tells_how_many():
    X = latent()
    found = approximate(X)
    exact = isolation_graph(rows_of(X), 10, HERE, seed=2)
    share = float((found.neighbours.distances <= exact.neighbours.distances[:, -1:]).mean())
    assert share >= 0.95
    assert found.facts["kind"] == "approximate"
    assert found.facts["recall"] == pytest.approx(share, abs=0.03)
    assert found.facts["sample"] == 200
    assert exact.facts == {"kind": "exact"}
    assert len(found.records) == len(exact.records)
    # A mass is that of the pair, whoever found it.
    both = (found.neighbours.indices[:, :, None] == exact.neighbours.indices[:, None, :]).nonzero()
    assert len(both[0]) > 20_000
    masses = found.neighbours.distances[both[0], both[1]]
    assert (masses == exact.neighbours.distances[both[0], both[2]]).all()
    assert (found.neighbours.indices != np.arange(4000)[:, None]).all()
    assert all(len(set(row)) == 10 for row in found.neighbours.indices.tolist())


def test_an_approximate_search_depends_on_no_chunks_or_threads():
    X = latent(n=3000)
    first = approximate(X)
    again = approximate(X, resources=replace(HERE, threads_per_worker=3), block_bytes=9000)
    assert first.neighbours.indices.tolist() == again.neighbours.indices.tolist()
    assert first.facts == again.facts


def test_all_candidates_give_the_exact_graph():
    X = problem(n=50)
    found = approximate(X, k=5)
    exact = isolation_graph(rows_of(X), 5, HERE, seed=2)
    assert found.neighbours.indices.tolist() == exact.neighbours.indices.tolist()
    assert found.neighbours.distances.tolist() == exact.neighbours.distances.tolist()
    assert found.facts["recall"] == 1.0


def test_auto_is_approximate_beyond_fifty_thousand_rows():
    assert [isolation.mass_kind("auto", n, 100) for n in (50_000, 50_001)] == ["exact", "approximate"]
    assert isolation.mass_kind("exact", 10**7, 100) == "exact"
    profile = replace(rows_of(problem()).profile, n=2 * 10**6, partitions=10)
    cluster = replace(HERE, client=object(), workers=2, memory_limit=2**31)
    exact = plan_isolation(profile, 15, cluster, kind="exact")
    auto = plan_isolation(profile, 15, cluster, kind="auto")
    assert (exact.kind, auto.kind) == ("exact", "approximate")
    # The workers search no more; the driver holds points, twice, and candidates instead.
    assert auto.search_bytes < exact.search_bytes
    assert plan_isolation(profile, 15, replace(cluster, memory_limit=2**30), kind="auto").kind == "approximate"
    exact, auto = (max(phase.row_bytes for phase in plan.phases) for plan in (exact, auto))
    assert auto > exact + 4 * 48 * 2 * 10**6


@pytest.mark.parametrize("kind", ["exact", "approximate"])
def test_a_graph_in_files_is_the_same(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(row_arrays, "_file_system", lambda folder: "ext4")
    monkeypatch.setattr(row_arrays, "BLOCK_BYTES", 30_000)
    X = latent(n=2000)
    here = isolation_graph(rows_of(X), 10, HERE, seed=2, kind=kind)
    there = isolation_graph(rows_of(X), 10, HERE, seed=2, kind=kind, space=row_arrays.RowSpace(tmp_path))
    assert row_arrays.is_mapped(there.neighbours.distances)
    assert there.neighbours.indices.tolist() == here.neighbours.indices.tolist()
    assert there.neighbours.distances.tolist() == here.neighbours.distances.tolist()
    assert there.facts == here.facts
