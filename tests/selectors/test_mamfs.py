"""MAMFS: the authors' information terms, what is counted and held out, the sample, and the best subset."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import MAMFS, LabelEntropy
from mlfs_dask.blocks.pair_scores import Counts
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.runtime import current_resources
from mlfs_dask.selectors.mamfs import CodedRows, held_out, judge_by_naive_bayes
from mlfs_dask.statistics.codes import equal_width_book
from mlfs_dask.statistics.sample import SampledRows
from tests.conftest import published
from tests.problems import labelled_problem, real_data


@pytest.mark.filterwarnings("ignore:codes of equal width")
def test_information_of_features_is_that_of_the_authors_on_emotions():
    X, Y = real_data("emotions")
    given = published("mamfs")
    found = LabelEntropy(5, n_promising_labels=1.0, bins=3, binning="equal-width").fit(X, Y).scores_
    assert found / np.log(2) == pytest.approx(given["relevance"], abs=1e-9)
    book = equal_width_book(as_rows(X, Y).features, 3)
    rows = CodedRows.of_sample(SampledRows(X, as_labels(Y)), np.arange(72), book)
    for f, expected in zip(given["features"].tolist(), given["redundancy"], strict=True):
        known = ~np.isnan(expected)
        known[f] = False
        assert known.sum() == 71
        assert rows.redundancy(f)[known] / np.log(2) == pytest.approx(expected[known], abs=1e-9)


def test_naive_bayes_learns_from_the_rows_that_are_not_held_out():
    """Counts of all rows less those held out; judged as by a classifier that has never seen these."""
    X, Y = labelled_problem(0, n=60)
    X = np.digitize(X, [-0.5, 0.7]).astype(float)
    book = equal_width_book(as_rows(X, Y).features, 3)
    rows = CodedRows.of_sample(SampledRows(X, as_labels(Y)), np.arange(9), book)
    judged = held_out(np.arange(60), 0)
    assert len(judged) == 12
    every = rows.count(np.column_stack([np.ones(60), Y]), np.array([60, *Y.sum(axis=0)], float))
    learnt = np.setdiff1d(np.arange(60), judged)
    part = rows.take(learnt)
    of_part = part.count(np.column_stack([np.ones(48), Y[learnt]]), np.array([48, *Y[learnt].sum(axis=0)]))
    counts = Counts(every[:, 1:], every[:, :1], Y.sum(axis=0)[:, np.newaxis], 60)
    judge = judge_by_naive_bayes(rows.take(judged), counts, np.count_nonzero(every[:, 0], axis=0))
    for features in ([0], [1, 4], [0, 1, 2, 3]):
        wrong = 0
        for i in judged:
            for label in range(4):
                has, n = Y[learnt, label].sum(), 48
                odds = np.log((has + 1) / (n - has + 1))
                for f in features:
                    code = int(np.searchsorted(book.edges[book.edge_ptr[f] : book.edge_ptr[f + 1]], X[i, f]))
                    both, alone = of_part[code, 1 + label, f], of_part[code, 0, f]
                    odds += np.log((both + 1) / (has + book.n_codes[f]))
                    odds -= np.log((alone - both + 1) / (n - has + book.n_codes[f]))
                wrong += (odds > 0) != Y[i, label]
        assert judge(np.array(features)) == wrong / (12 * 4)


def problem(n=700):
    rng = np.random.default_rng(0)
    Y = (rng.random((n, 3)) < 0.4).astype(np.int8)
    X = np.where(rng.random((n, 8)) < 0.5, rng.normal(size=(n, 8)).round(2), 0.0)
    X[:, :3] += 2 * Y
    return X, Y


def test_neither_chunks_nor_containers_matter_where_rows_are_sampled():
    X, Y = problem()
    parameters = {"n_sampled": 300, "n_judged": 60, "random_state": 3}
    expected = MAMFS(3, **parameters).fit(X, Y)
    extra = expected.report_.extra
    assert (extra["sampled_rows"], extra["held_out_rows"], extra["judged_subsets"]) == (300, 60, 62)
    lazy, lazy_Y = da.from_array(X, chunks=((340, 1, 359), (3, 5))), da.from_array(Y, chunks=((340, 1, 359), -1))
    for rows, labels in ((sp.csr_array(X), Y), (lazy, lazy_Y), (lazy.map_blocks(sp.csr_array), lazy_Y)):
        found = MAMFS(3, **parameters).fit(rows, labels)
        assert found.scores_.tobytes() == expected.scores_.tobytes()
        assert found.report_.extra == extra
    other = MAMFS(3, **{**parameters, "random_state": 4}).fit(X, Y)
    assert other.report_.extra != extra


def test_the_best_subset_comes_first_and_has_no_more_than_k_features():
    X, Y = problem()
    for k in (1, 3, 8):
        found = MAMFS(k).fit(X, Y)
        subset = found.report_.extra["subset"]
        assert 1 <= len(subset) <= k
        assert sorted(found.ranking_[: len(subset)].tolist()) == subset
        assert found.scores_[subset].min() >= 2.0 > np.delete(found.scores_, subset).max(initial=0.0)
    assert set(MAMFS(3).fit(X, Y).ranking_[:3].tolist()) == {0, 1, 2}


def test_the_plan_says_what_is_judged_and_does_not_grow_with_the_rows():
    X, Y = problem()
    selector = MAMFS(3, n_sampled=300)
    small, large = (selector.plan(ArrayRows(X[:n], as_labels(Y[:n])), current_resources()) for n in (400, 700))
    assert small.arrays | {"edges": 0} == large.arrays | {"edges": 0}
    assert large.notes[0] == "judges 300 subsets on 60 rows out of a sample of 300"
