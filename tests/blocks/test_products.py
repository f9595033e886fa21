"""Y'X and Y'Y of one block, plain and compiled, against dense products."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import products_compiled
from mlfs_dask.blocks.products import (
    label_pairs_block,
    label_products_block,
    label_sums_block,
    positives_block,
)
from mlfs_dask.blocks.sparse import as_labels


def block(seed=0, rows=50, d=7, q=4, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(rows, d)) * 10 * (rng.random((rows, d)) < 0.5)).astype(dtype)
    Y = np.where(rng.random((rows, q)) < 0.3, 1, np.where(rng.random((rows, q)) < 0.1, -1, 0))
    Y[:, -1] = 0  # never occurs
    return X, Y


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_products_count_positives_only(wrap):
    X, Y = block()
    P = positives_block(as_labels(Y))
    shift = np.arange(7.0)
    expected = (Y == 1).T.astype(float) @ (X - shift)
    assert label_products_block(wrap(X), P, shift) == pytest.approx(expected)
    assert label_sums_block(P).tolist() == (Y == 1).sum(axis=0).tolist()


def test_positives_of_labels_without_unknown_entries_are_no_copy():
    Y = as_labels(np.eye(3, dtype=np.int8))
    assert positives_block(Y) is Y


def test_pairs_do_not_overflow():
    Y = as_labels(np.ones((1000, 2), dtype=np.int8))
    assert label_pairs_block(Y).tolist() == [[1000, 1000], [1000, 1000]]


@pytest.mark.parametrize("rows", [0, 1, 3, 127, 128, 129, 300])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_compiled_dense_kernel(rows, dtype, monkeypatch):
    X, Y = block(rows=rows, d=70, dtype=dtype)
    Y = as_labels(Y)
    count, mean, m2, shift = np.zeros(70, np.int64), np.zeros(70), np.zeros(70), np.full(70, 2.0)
    products = np.zeros((4, 70))
    for part in (slice(0, rows // 3), slice(rows // 3, rows)):  # two calls: the running mean is the centre
        P = Y[part]
        products_compiled.add_dense(
            X[part], P.indptr.astype(np.int64), P.indices, P.data, count, mean, m2, shift, products
        )
    wide = X.astype(np.float64)
    assert count.tolist() == [rows] * 70
    if rows:
        assert mean + 2 == pytest.approx(wide.mean(axis=0), abs=1e-12)
        assert m2 == pytest.approx(wide.var(axis=0) * rows, rel=1e-12, abs=1e-9)
    assert products == pytest.approx((Y.toarray() == 1).T.astype(float) @ (wide - 2), rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_compiled_sparse_kernel(index):
    X, Y = block(rows=60)
    S, Y = sp.csr_array(X), as_labels(Y)
    by_label = Y.tocsc()
    count, mean, m2, products = np.zeros(7, np.int64), np.zeros(7), np.zeros(7), np.zeros((4, 7))
    products_compiled.add_sparse(
        S.data, S.indices.astype(index), S.indptr.astype(np.int64),
        by_label.indptr.astype(np.int64), by_label.indices, by_label.data, count, mean, m2, products,
    )  # fmt: skip
    assert count.tolist() == (X != 0).sum(axis=0).tolist()
    for f in range(7):
        stored = X[X[:, f] != 0, f]
        assert mean[f] == pytest.approx(stored.mean())
        assert m2[f] == pytest.approx(stored.var() * len(stored))
    assert products == pytest.approx((Y.toarray() == 1).T.astype(float) @ X)


def test_compiled_pairs():
    _, Y = block()
    P = as_labels(Y)
    positives, unknown, pairs = np.zeros(4, np.int64), np.zeros(4, np.int64), np.zeros((4, 4), np.int64)
    products_compiled.add_pairs(P.indptr.astype(np.int64), P.indices, P.data, positives, unknown, pairs)
    positive = (Y == 1).astype(int)
    assert pairs.tolist() == (positive.T @ positive).tolist()
    assert positives.tolist() == positive.sum(axis=0).tolist()
    assert unknown.tolist() == (Y == -1).sum(axis=0).tolist()
