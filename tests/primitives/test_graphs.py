"""Approximate Euclidean graphs: recall, true distances, chunking, containers, workers, plans; which is made."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import caching, row_arrays, runtime
from mlfs_dask.blocks.neighbours import recall
from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.primitives import graphs, near_points, neighbours
from mlfs_dask.primitives.graphs import (
    plan_row_graph,
    point_graph,
    points_kind,
    principal_components,
    row_graph,
    rows_kind,
)
from mlfs_dask.primitives.linear import Scaling
from mlfs_dask.primitives.neighbours import knn_graph, knn_of_points, plan_knn, recall_warnings
from mlfs_dask.primitives.plan import split_evenly
from mlfs_dask.primitives.rows import ArrayRows, as_rows
from mlfs_dask.row_arrays import RowSpace, fill
from mlfs_dask.runtime import Resources

HERE = Resources(1, 1, 2**33, 2**33)


def latent(n=5000, d=40, factors=6, seed=0):
    """Rows of a few hidden factors, and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, d)) + 0.2 * rng.normal(size=(n, d))
    return X.astype(np.float32)


def rows_of(X, *, block_bytes=10**5):
    return ArrayRows(as_matrix(X), as_labels(np.ones((X.shape[0], 1), dtype=np.int8)), block_bytes=block_bytes)


def approximate(source, k=10, resources=HERE, **options):
    return row_graph(source, k, resources, kind="approximate", **options)


def test_most_neighbours_are_found_and_the_recall_is_what_is_told():
    X = latent()
    found = approximate(rows_of(X))
    exact, _ = knn_graph(rows_of(X), 10, HERE)
    share = recall(found.neighbours.distances, exact.distances)
    assert share >= 0.93
    assert found.facts["kind"] == "approximate"
    assert found.facts["sample"] == 500
    assert found.facts["recall"] == pytest.approx(share, abs=0.02)
    assert found.facts["compared"] < 5000
    assert found.facts["dimensions"] < 40


def test_distances_are_true_ones_and_no_row_is_its_own_neighbour():
    X = latent(n=3000).astype(np.float64)
    scaling = Scaling(X.mean(axis=0), 1 / X.std(axis=0))
    found = approximate(rows_of(X), scaling=scaling).neighbours
    Z = (X - scaling.centre) * scaling.factor
    true = ((Z[:, np.newaxis] - Z[found.indices]) ** 2).sum(axis=2)
    assert found.distances == pytest.approx(true, rel=1e-9)
    assert (np.diff(found.distances, axis=1) >= 0).all()
    assert (found.indices != np.arange(3000)[:, np.newaxis]).all()
    assert all(len(set(row)) == 10 for row in found.indices.tolist())


def test_the_graph_is_the_exact_one_where_all_rows_are_candidates():
    X = latent(n=20, d=5)
    X[7] = X[3]
    found = approximate(rows_of(X, block_bytes=100), k=4)
    exact, _ = knn_graph(rows_of(X), 4, HERE)
    assert found.neighbours.indices.tolist() == exact.indices.tolist()
    assert found.neighbours.distances == pytest.approx(exact.distances, rel=1e-12)
    assert found.facts["recall"] == 1.0


def test_chunks_threads_and_groups_change_nothing(monkeypatch):
    X = latent(n=4000)
    first = approximate(rows_of(X))
    monkeypatch.setattr("mlfs_dask.primitives.neighbours.FEWEST_ROWS", 500)
    again = approximate(rows_of(X, block_bytes=33_000), resources=replace(HERE, threads_per_worker=3))
    lazy = as_rows(da.from_array(X, chunks=((1500, 10, 2490), (11, 29))), np.ones((4000, 1), dtype=np.int8))
    for other in (again, approximate(lazy)):
        assert other.neighbours.indices.tolist() == first.neighbours.indices.tolist()
        assert other.facts == first.facts
    assert len(again.records) == 5  # sample, components, three groups
    seeded = approximate(rows_of(X), seed=1)
    assert seeded.neighbours.indices.tolist() != first.neighbours.indices.tolist()


def test_sparse_rows_are_searched_without_a_dense_copy():
    rng = np.random.default_rng(0)
    texts = rng.random((150, 600)) < 0.05
    X = texts[rng.integers(150, size=900)] ^ (rng.random((900, 600)) < 0.002)
    X = sp.csr_array(X.astype(np.float32))
    found = approximate(rows_of(X), k=5)
    exact, _ = knn_graph(rows_of(X), 5, HERE)
    share = recall(found.neighbours.distances, exact.distances)
    assert found.facts["recall"] == pytest.approx(share, abs=0.03)
    assert share >= 0.9


def test_worker_processes_give_the_same(tmp_path):
    distributed = pytest.importorskip("distributed")
    from mlfs_dask import open_dataset
    from mlfs_dask.storage.convert import convert_reader
    from tests.storage.memory_reader import make_reader

    X = latent(n=3000, d=10)
    reader = make_reader(X, np.ones((3000, 1), dtype=np.int8))
    convert_reader(lambda: reader, tmp_path / "s.zarr", workers=1)
    rows = open_dataset(tmp_path / "s.zarr").rows
    here = approximate(rows)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=2**31
        ) as cluster,
        distributed.Client(cluster),
    ):
        resources = runtime.current_resources()
        there = approximate(rows, resources=resources)
        planned = plan_row_graph(rows, 10, resources, kind="approximate")
    assert there.neighbours.indices.tolist() == here.neighbours.indices.tolist()
    assert there.facts == here.facts
    assert len(there.records) == planned.readings
    assert sum(r.bytes_read for r in there.records) == planned.readings * rows.profile.read_bytes


def test_points_in_memory_are_found_the_same_by_any_number_of_threads():
    Z = latent(n=5000, d=12).astype(np.float64) + 1e4
    one = point_graph(Z, 6, kind="approximate", seed=3)
    two = point_graph(Z, 6, kind="approximate", seed=3, threads=2)
    assert (one.neighbours.indices == two.neighbours.indices).all()
    assert (one.neighbours.distances == two.neighbours.distances).all()
    exact = knn_of_points(Z, 6)
    share = recall(one.neighbours.distances, exact.distances)
    assert share >= 0.93
    assert one.facts["recall"] == pytest.approx(share, abs=0.04)
    assert point_graph(Z[:1], 6, kind="approximate").neighbours.indices.shape == (1, 0)


def test_more_lists_are_compared_where_neighbours_are_hard_to_find(monkeypatch):
    monkeypatch.setattr(near_points, "ROUNDS", 0)
    rng = np.random.default_rng(0)
    easy = near_points.near_points(rng.normal(size=(6000, 3)).astype(np.float32), 5, seed=0)
    hard = near_points.near_points(rng.normal(size=(6000, 60)).astype(np.float32), 5, seed=0)
    assert easy.compared == near_points.FIRST_COMPARED
    assert hard.compared > easy.compared


def test_equal_points_are_neighbours_of_one_another():
    Z = np.repeat(np.random.default_rng(0).normal(size=(30, 4)), 100, axis=0)
    found = point_graph(Z, 5, kind="approximate")
    assert (found.neighbours.distances == 0).all()
    assert (found.neighbours.indices != np.arange(3000)[:, np.newaxis]).all()
    assert found.facts["recall"] == 1.0


def test_auto_is_exact_for_little_work_alone():
    small = replace(rows_of(latent(n=50)).profile, n=50_000, d=500, nonzeros=50_000 * 500)
    large = replace(small, n=200_000, nonzeros=200_000 * 500)
    assert [rows_kind("auto", p) for p in (small, large)] == ["exact", "approximate"]
    assert rows_kind("exact", large) == "exact"
    texts = replace(small, n=100_000, d=50_000, nonzeros=75 * 100_000, sparse=True)
    more = replace(texts, n=800_000, nonzeros=75 * 800_000)
    # Rows that all have the same features cost more than dense ones.
    alike = replace(texts, d=75 * 12)
    assert [rows_kind("auto", p) for p in (texts, more, alike)] == ["exact", "approximate", "approximate"]
    assert rows_kind("auto", replace(texts, d=5 * 10**6, n=800_000, nonzeros=75 * 800_000)) == "exact"
    assert [points_kind("auto", n, 40) for n in (50_000, 60_000)] == ["exact", "approximate"]
    assert row_graph(rows_of(latent(n=50)), 3, HERE).facts == {"kind": "exact"}
    assert point_graph(latent(n=50), 3).facts == {"kind": "exact"}


def test_the_plan_counts_readings_and_the_driver_and_refuses():
    profile = replace(
        rows_of(latent(n=50)).profile, n=2 * 10**6, d=200, nonzeros=4 * 10**8, partitions=40, block_rows=10**4,
        block_bytes=8 * 10**6, buffer_bytes=7 * 10**7, read_bytes=16 * 10**8,
    )  # fmt: skip
    cluster = replace(HERE, client=object(), workers=2, memory_limit=2**31)
    plan, exact = plan_row_graph(profile, 5, cluster), plan_row_graph(profile, 5, cluster, kind="exact")
    assert plan.kind == "approximate"
    assert plan.readings == 2 + len(plan.passes[-1].runs)
    assert max(p.peak_worker_bytes for p in plan.passes) < 0.8 * 2**31
    # All rows in 128 dimensions, and 24 candidates of each in two places; in memory hardly more than what travels.
    assert 2 * 10**6 * (4 * 128 + 2 * 9 * 24) < max(phase.row_bytes for phase in plan.phases) < 2.5 * 10**9
    assert max(phase.held for phase in plan.phases) < 5 * 10**8
    assert [phase.row_bytes for phase in exact.phases] == [16 * 5 * 2 * 10**6]
    wide = replace(profile, d=10**6, sparse=True, n=10**5, nonzeros=10**7)
    assert (
        plan_row_graph(wide, 5, replace(cluster, memory_limit=2**34), kind="approximate").phases[0].held
        > 4 * 8 * 128 * 10**6
    )
    assert plan.note.startswith("approximate neighbour graph")
    assert exact.readings < plan.readings
    assert exact.note == f"exact neighbour graph, {exact.readings} readings, about 10,000 s of search"
    with pytest.raises(DoesNotFitError, match="on a worker"):
        plan_row_graph(profile, 5, replace(cluster, memory_limit=2**28))


def test_components_keep_what_varies():
    X = latent(n=500, d=12, factors=2).astype(np.float64)
    for sample in (X, sp.csr_array(X)):
        components, offset = principal_components(sample, np.random.default_rng(0))
        assert components.shape[1] < 12
        assert components.T @ components == pytest.approx(np.eye(components.shape[1]), abs=1e-9)
        lost = np.linalg.norm(X - X @ components @ components.T) ** 2 / np.linalg.norm(X) ** 2
        assert lost < 1.01 * (1 - graphs.EXPLAINED)
        assert offset == pytest.approx((X @ components).mean(axis=0))
    none, _ = principal_components(np.ones((5, 3)), np.random.default_rng(0))
    assert none.shape == (3, 1)


def test_a_low_recall_is_told():
    assert recall_warnings({"kind": "exact"}) == []
    assert recall_warnings({"kind": "approximate", "recall": 0.95, "sample": 500}) == []
    (warning,) = recall_warnings({"kind": "approximate", "recall": 0.6, "sample": 500})
    assert "holds 60% of the true neighbours of 500 sampled rows" in str(warning)


def same(one, other):
    assert (one.neighbours.indices == other.neighbours.indices).all()
    assert (one.neighbours.distances == other.neighbours.distances).all()
    assert one.facts == other.facts


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A space of files."""
    monkeypatch.setattr(row_arrays, "_file_system", lambda folder: "ext4")
    monkeypatch.setattr(row_arrays, "BLOCK_BYTES", 50_000)
    return RowSpace(tmp_path)


@pytest.mark.parametrize("kind", ["exact", "approximate"])
def test_graphs_in_files_are_the_same(files, kind):
    X = latent(n=3000)
    here = row_graph(rows_of(X), 10, HERE, kind=kind)
    there = row_graph(rows_of(X), 10, HERE, kind=kind, space=files)
    same(here, there)
    assert all(row_arrays.is_mapped(array) for array in there.neighbours)
    Z = X[:, :6].astype(np.float64)
    moved = fill(files.empty(3000, 6), Z)
    same(point_graph(Z, 7, kind=kind), point_graph(moved, 7, kind=kind, space=files))


@pytest.mark.parametrize("kind", ["exact", "approximate"])
def test_a_graph_from_the_cache_is_the_same_and_mapped(files, tmp_path, kind):
    rows = rows_of(latent(n=800))
    rows.digest = "of these rows"
    with caching.cache(tmp_path / "cache"):
        made = row_graph(rows, 4, HERE, kind=kind, space=files)
        again = row_graph(rows, 4, HERE, kind=kind)
    same(made, again)
    assert (bool(made.records), again.records) == (True, [])
    assert all(row_arrays.is_mapped(array) for array in again.neighbours)
    row_arrays.give_back()
    same(made, again)


def test_rows_are_searched_a_few_groups_at_a_time(monkeypatch):
    X = latent(n=3000)
    monkeypatch.setattr("mlfs_dask.primitives.neighbours.FEWEST_ROWS", 100)
    expected = row_graph(rows_of(X), 5, HERE)
    waves = []
    search = neighbours._search_wave
    monkeypatch.setattr(neighbours, "_search_wave", lambda *a: waves.append(len(a[2])) or search(*a))
    monkeypatch.setattr(neighbours, "IN_FLIGHT_BYTES", 16 * 5 * 700)
    plan = plan_knn(rows_of(X).profile, 5, HERE)
    cut = replace(plan, runs=split_evenly(3000, 10))
    found, records = neighbours.search_groups(rows_of(X), neighbours.Search(5, None), cut, HERE)
    assert waves == [2, 2, 2, 2, 2]
    assert len(records) == 10
    assert found.indices.tolist() == expected.neighbours.indices.tolist()
