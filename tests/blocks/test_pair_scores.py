"""Statistics of labels and features: for any tiles, and with marginals of each label."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.pair_scores import Counts, Sums, score_pairs
from mlfs_dask.selectors import get_method

COUNTS = ["chi2", "br-or", "label-entropy", "enm", "gmm"]
SUMS = ["br-cc", "anova-f"]


def filter_of(name):
    return get_method(name)()


def tables(codes=3, p=4, w=5, n=200, seed=0):
    """Counts of random codes and labels; label 2 never occurs, and label 3 always does."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, codes, (n, w))
    Y = rng.random((n, p)) < 0.3
    Y[:, 2], Y[:, 3] = False, True
    has = np.stack([code == c for c in range(codes)])
    joint = np.einsum("cif,ip->cpf", has.astype(np.int64), Y.astype(np.int64))
    return Counts(joint, has.sum(axis=1)[:, np.newaxis], Y.sum(axis=0)[:, np.newaxis], n)


def sums_of(p=6, w=7, n=50):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(n, w)), (rng.random((n, p)) < 0.4).astype(float)
    X[:, 2] = 1.0
    X -= X.mean(axis=0)
    return Sums(Y.T @ X, (X**2).sum(axis=0)[np.newaxis], Y.sum(axis=0)[:, np.newaxis], n)


@pytest.mark.parametrize("name", COUNTS)
def test_features_of_one_code_and_labels_of_one_value_add_nothing(name):
    score = filter_of(name).score_counts
    assert score(tables(codes=1)).tolist() == [0.0] * 5
    counts = tables()
    assert np.array_equal(score(counts), score(counts.tile(np.arange(2), slice(None))))


@pytest.mark.parametrize("name", [*COUNTS, *SUMS])
def test_tiles_of_labels_and_features_give_the_same_bits(name, monkeypatch):
    terms = sums_of() if name in SUMS else tables(p=11, w=7)
    method = filter_of(name)
    whole = score_pairs(method.pair, terms, method.over)
    seen = []
    monkeypatch.setattr(gates, "SCORE_FEATURES", 3)
    monkeypatch.setattr(gates, "SCORE_BYTES", 2 * 3 * 8)
    tiled = score_pairs(lambda tile: seen.append(tile) or method.pair(tile), terms, method.over)
    assert np.array_equal(tiled, whole)
    assert len(seen) == 3 * -(-np.count_nonzero(terms.varying) // 2)


@pytest.mark.parametrize("name", [*COUNTS, *SUMS])
def test_formulas_take_marginals_and_rows_of_each_label(name):
    """A label's statistics follow from the rows whose label is known, and these differ between labels."""
    make = (lambda n, seed: sums_of(n=n)) if name in SUMS else (lambda n, seed: tables(n=n, seed=seed))
    one, other = (make(n, seed).tile(np.arange(2), slice(None)) for n, seed in ((200, 0), (90, 1)))
    rows = 1 if name in SUMS else 2  # of the axis of labels of products or joint, counted from 0
    joined = type(one)(
        np.concatenate([one[0], other[0]], axis=rows - 1),
        np.concatenate([np.repeat(each[1], 2, axis=rows - 1) for each in (one, other)], axis=rows - 1),
        np.concatenate([one.positives, other.positives]),
        np.array([[200], [200], [90], [90]]),
    )
    pair = filter_of(name).pair
    assert pair(joined) == pytest.approx(np.concatenate([pair(one), pair(other)]), rel=1e-12)
