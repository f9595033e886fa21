"""ReliefF of label sets: against its plain twin, planted interactions, samples, chunks and containers."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask import ReliefF
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import current_resources
from mlfs_dask.selectors.relieff import scale_rows
from mlfs_dask.storage.readers.base import LabelSpec
from tests.reference import relieff as twin


def problem(n=70, d=6, q=3, seed=0):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < 0.4).astype(np.int8)
    X = rng.normal(size=(n, d)).round(1)  # with distances that tie
    X[:, :q] += 2 * Y
    X[:, 4] = rng.random(n) < 0.3
    return np.where(rng.random((n, d)) < 0.6, X, 0.0), Y


@pytest.mark.parametrize("n_neighbors", [1, 4])
@pytest.mark.parametrize("min_rows", [1, 6])
def test_equals_the_plain_twin(n_neighbors, min_rows):
    X, Y = problem()
    expected = twin.relieff(X, Y, n_neighbors=n_neighbors, min_rows=min_rows)
    for container in (X, sp.csr_array(X)):
        found = ReliefF(3, n_neighbors=n_neighbors, min_rows=min_rows).fit(container, Y)
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-12)
    kept, classes = twin.prune(Y, min_rows)
    extra = found.report_.extra
    assert (extra["pruned_rows"], extra["classes"]) == (len(Y) - len(kept), len(set(classes)))


def test_categories_differ_or_do_not(tmp_path):
    X, Y = problem()
    X[:, 5] = np.random.default_rng(1).integers(0, 4, len(X))
    columns = [*(f"@attribute f{i} numeric" for i in range(5)), "@attribute f5 {a,b,c,d}"]
    columns += [f"@attribute y{i} {{0,1}}" for i in range(3)]
    rows = [",".join([*map(str, x[:5]), "abcd"[int(x[5])], *map(str, y)]) for x, y in zip(X, Y, strict=True)]
    (tmp_path / "data.arff").write_text("\n".join(["@relation r", *columns, "@data", *rows]))
    expected = twin.relieff(X, Y, n_neighbors=3, min_rows=2, nominal=[5])
    mlfs.convert(tmp_path / "data.arff", tmp_path / "data.zarr", labels=LabelSpec(columns=("y0", "y1", "y2")))
    dataset = mlfs.open_dataset(tmp_path / "data.zarr")
    found = ReliefF(3, n_neighbors=3, min_rows=2).fit(dataset)
    assert found.scores_ == pytest.approx(expected, rel=1e-5, abs=1e-6)  # values are stored as float32
    features = dataset.rows.features
    spread = features.maximum - features.minimum
    dense, feature_of = scale_rows(X, features, spread)
    sparse, _ = scale_rows(sp.csr_array(X), features, spread)
    assert np.ptp(sparse.toarray() - dense, axis=0) == pytest.approx(0)  # rows are as far from one another
    assert feature_of.tolist() == [0, 1, 2, 3, 4, 5, 5, 5, 5]


def test_features_are_found_that_matter_together_alone():
    """A label that is the exclusive or of two features says nothing of either."""
    rng = np.random.default_rng(0)
    X = (rng.random((300, 8)) < 0.5).astype(float)
    Y = (X[:, [2]] != X[:, [5]]).astype(np.int8)
    assert set(ReliefF(2, n_neighbors=5).fit(X, Y).ranking_[:2]) == {2, 5}


def test_neither_chunks_nor_containers_matter():
    X, Y = problem(n=600)
    parameters = {"n_sampled": 300, "random_state": 3}
    expected = ReliefF(3, **parameters).fit(X, Y)
    assert expected.report_.extra["sampled_rows"] == 300
    lazy, lazy_Y = da.from_array(X, chunks=((340, 1, 259), (2, 4))), da.from_array(Y, chunks=((340, 1, 259), -1))
    for container, labels in (
        (sp.csr_array(X), Y),
        (lazy, lazy_Y),
        (lazy.map_blocks(sp.csr_array), lazy_Y),
    ):
        found = ReliefF(3, **parameters).fit(container, labels)
        assert found.scores_ == pytest.approx(expected.scores_, rel=1e-9, abs=1e-12)
    assert not np.allclose(ReliefF(3, n_sampled=300, random_state=4).fit(X, Y).scores_, expected.scores_)
    assert expected.report_.passes == 1


def test_memory_does_not_depend_on_the_number_of_rows():
    X, Y = problem(n=600)
    small, large = (
        ReliefF(3, n_sampled=300).plan(ArrayRows(X[:n], as_labels(Y[:n])), current_resources()).arrays
        for n in (300, 600)
    )
    assert small == large


def test_differences_that_cancel_tie_in_every_container():
    """More neighbours than a class has rows: what one class adds the other takes away."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = np.where(rng.random((40, 30)) < 0.1, rng.normal(size=(40, 30)), 0.0)
        y = np.repeat([0, 1], 20)
        dense, sparse = (ReliefF(3, n_neighbors=50).fit(container, y) for container in (X, sp.csr_array(X)))
        assert dense.ranking_.tolist() == sparse.ranking_.tolist()
