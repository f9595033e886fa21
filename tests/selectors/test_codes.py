"""Codes of features: by hand, from any container, from what stores keep; and what codes of equal width lose."""

from __future__ import annotations

from fractions import Fraction

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask.blocks import codes
from mlfs_dask.blocks.codes import code_book, widest_book
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.rows.sources import ArrayRows, measure_features
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask_cli.main import mlfs as command
from tests.reference.label_entropy import edges

COLUMNS = {
    "constant": [3.0] * 10,
    "constant 0": [0.0] * 10,
    "two values": [1.0] * 6 + [4] * 4,
    "two values, most at the larger": [1.0] * 4 + [4] * 6,
    "half of it 0": [0.0] * 5 + [1, 2, 3, 4, 60],
    "mostly 0": [0.0] * 6 + [1, 2, 3, 60],
    "skewed counts": [0.0] * 3 + [1] * 4 + [2, 3, 60],
    "below 0": [-4.0] * 3 + [0] * 6 + [-1],
    "both sides of 0": [-4.0] * 2 + [0] * 6 + [1, 2],
    "0/1": [0.0] * 2 + [1] * 8,
    "most at the maximum, nearly all": [0.0] + [9] * 9,
    "numbers": [*range(10)],
}


@pytest.mark.parametrize("bins", [2, 3, 5])
@pytest.mark.parametrize("binning", ["auto", "quantile", "equal-width"])
def test_codes_by_hand_of_dense_and_sparse_columns(binning, bins):
    X = np.array(list(COLUMNS.values()), dtype=float).T
    books = [
        code_book(measure_features(X), bins, binning, sample=X),
        code_book(measure_features(X), bins, binning, sample=sp.csr_array(X)),
    ]
    if binning == "auto":
        rows = ArrayRows(X, as_labels(np.ones((10, 1))))
        books.append(code_book(rows.features, bins, table=rows.quantiles))
    widest, of_one_sign = (widest_book(measure_features(each), bins, binning) for each in (X, X[:, -1:]))
    assert of_one_sign.n_codes.tolist() == [bins]
    for book in books:
        assert (book.n_codes <= widest.n_codes).all()
        for f, (name, column) in enumerate(COLUMNS.items()):
            cut = [edges(np.array(column, float), bins, binning), book.edges[book.edge_ptr[f] : book.edge_ptr[f + 1]]]
            mine, theirs = (np.searchsorted(each, column).tolist() for each in cut)
            assert (
                np.unique(mine, return_inverse=True)[1].tolist() == np.unique(theirs, return_inverse=True)[1].tolist()
            ), name


def test_two_codes_of_each_feature_that_varies():
    X = np.array(list(COLUMNS.values()), dtype=float).T
    sizes = [np.unique(np.searchsorted(edges(column, 2, "auto"), column)).size for column in X.T]
    book = code_book(measure_features(X), 2, sample=X)
    assert sizes == [1, 1, 2, 2, 2, 2, 2, 2, 3, 2, 2, 2]
    assert book.n_codes.tolist() == sizes


def test_the_most_codes_are_a_byte():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((4000, 2)) < 0.55, 0, rng.normal(size=(4000, 2)))
    X[0] = np.nan
    assert code_book(measure_features(X), 256, sample=X).n_codes.max() == 256
    found = get_estimator("enm")(1, bins=256, missing="code").fit(X, (X[:, :1] > 1).astype(int))
    assert found.ranking_[0] == 0


def skewed_counts(n=600):
    """Counts of which one row has very many; the first tells of the label whether it is there at all."""
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.3
    X = rng.poisson(0.7, (n, 8)) * (rng.random((n, 8)) < 0.35)
    X[:, 0] = np.where(rng.random(n) < 0.8, y, rng.random(n) < 0.3) * rng.integers(1, 4, n)
    X[rng.permutation(n)[:8], range(8)] = 60
    X[:, 1] = np.where(np.arange(n) < n // 100, 60, X[:, 1] % 60)  # one code has 99 % of the rows exactly
    X = np.column_stack([X, np.arange(n) == 0])  # 0/1: its codes are its values
    return X.astype(float), np.stack([y, ~y], axis=1).astype(np.int8)


def test_equal_width_loses_what_the_default_finds_and_says_so(tmp_path):
    X, Y = skewed_counts()
    assert get_estimator("chi2")(1).fit(X, Y).ranking_[0] == 0
    with pytest.warns(UserWarning, match="one has 99 % of the rows or more in 8 of 9 features"):
        lost = get_estimator("chi2")(1, binning="equal-width").fit(X, Y)
    assert lost.ranking_[0] != 0
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    mlfs.convert(tmp_path / "data.npz", tmp_path / "data.zarr")
    for method in ("chi2", "qpmlfs", "jmi"):
        words = [method, str(tmp_path / "data.zarr"), "-k", "1", "--binning", "equal-width"]
        told = CliRunner().invoke(command, ["plan", *words])
        assert told.exit_code == 0
        assert "8 of 9 features" in told.output
        run = CliRunner().invoke(command, ["select", *words, "-o", str(tmp_path / method)])
        assert "8 of 9 features" in run.stderr
        assert "99 %" not in CliRunner().invoke(command, ["plan", *words[:-2]]).output


def ways(X, Y, folder):
    """The same rows from everywhere, and how many readings two codes take."""
    folder.mkdir()
    np.savez(folder / "data.npz", X=X, Y=Y)
    np.savez(folder / "first.npz", X=X[:60], Y=Y[:60])
    np.savez(folder / "rest.npz", X=X[60:], Y=Y[60:])
    for storage in ("dense", "sparse"):
        for size in (512, 2**20):
            store = folder / f"{storage}.{size}.zarr"
            mlfs.convert(folder / "data.npz", store, storage=storage, partition_bytes=size)
            yield mlfs.open_dataset(store), None, 1
        store = folder / f"{storage}.appended.zarr"
        mlfs.convert(folder / "first.npz", store, storage=storage)
        mlfs.append(store, folder / "rest.npz")
        yield mlfs.open_dataset(store), None, 2
    yield X, Y, 1
    yield sp.csr_array(X), Y, 1
    yield X.astype(np.float32), Y, 1
    yield da.from_array(X, chunks=(50, 4)), da.from_array(Y, chunks=(80, -1)), 2
    yield ArrayRows(X, as_labels(Y), block_bytes=300), None, 1


def test_codes_depend_on_neither_partitions_nor_containers(tmp_path, monkeypatch):
    """Quantiles are those of rows that are drawn by their numbers: a store has kept them, others are sampled."""
    monkeypatch.setattr(codes, "QUANTILE_ROWS", 40)
    monkeypatch.setattr("mlfs_dask.blocks.row_draws.FEWEST_ROWS", 20)
    rng = np.random.default_rng(3)
    Y = (rng.random((150, 3)) < 0.4).astype(np.int8)
    X = np.round(np.exp(rng.normal(size=(150, 7)) + Y[:, [0, 1, 2, 0, 1, 2, 0]]), 2)
    X[:, 3] *= rng.random(150) < 0.3
    X[:, 4] -= 2
    X[:, 5] = rng.random(150) < 0.8
    X = X.astype(np.float32).astype(float)
    for parameters in ({}, {"bins": 3}, {"bins": 3, "binning": "quantile"}, {"bins": 9}):
        expected = None
        for data, labels, readings in ways(X, Y, tmp_path / f"{len(parameters)}{parameters.get('bins')}"):
            found = get_estimator("enm")(2, **parameters).fit(data, labels)
            expected = found.scores_.tobytes() if expected is None else expected
            assert found.scores_.tobytes() == expected
            if not parameters:
                assert (found.report_.passes, found.report_.plan["passes"]) == (readings, readings)


def test_features_of_zero_and_one_keep_their_codes_when_gaps_are_filled():
    """In every container; the mean of the values present is neither 0 nor 1."""
    rng = np.random.default_rng(5)
    X = (rng.random((90, 3)) < [0.7, 0.4, 0.6]) * np.array([1.0, 1, 0.5])
    X[:8, :2] = np.nan
    X[9, 2] = 1
    X = np.tile(X, 22)  # more than are looked at together
    Y = (rng.random((90, 2)) < 0.5).astype(np.int8)
    dask = da.from_array(X, chunks=(40, 2)), da.from_array(Y, chunks=(40, -1))
    for parameters in ({}, {"bins": 5}, {"binning": "quantile"}):
        expected = get_estimator("chi2")(2, missing="mean", **parameters).fit(X, Y).scores_
        for data, labels in ((sp.csr_array(X), Y), dask):
            found = get_estimator("chi2")(2, missing="mean", **parameters).fit(data, labels).scores_
            assert found.tolist() == expected.tolist()


@settings(max_examples=15)
@given(st.integers(0, 1000), st.sampled_from([2, 3, 8]))
def test_filled_values_are_values(seed, bins):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((40, 4)) < 0.5, 0, rng.integers(-2, 6, (40, 4)) * 1.0)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[0] = 1
    Y = (rng.random((40, 2)) < 0.5).astype(np.int8)
    Y[:2] = [[0, 1], [1, 0]]
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    expected = get_estimator("enm")(2, bins=bins).fit(filled, Y).scores_
    for data in (X, sp.csr_array(X)):
        assert get_estimator("enm")(2, bins=bins, missing="mean").fit(data, Y).scores_ == pytest.approx(
            expected, abs=1e-12
        )


@pytest.mark.parametrize("weight", [0.1, 0.37, 1 / 3, 0.7])
def test_the_unit_of_weights_changes_no_quantile(weight):
    for n in (6, 7, 10, 12):
        X, shares = np.arange(float(n))[:, np.newaxis], [Fraction(j, n) for j in range(1, n)]
        found = codes.quantiles_of(X, shares, np.full(n, weight))
        assert found.tolist() == codes.quantiles_of(X, shares).tolist()
