"""ReliefF, LassoNet and MAMFS, which learn from a sample of the rows: chunks, plans, and what each of them does."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask import MAMFS, LabelEntropy, LassoNet, ReliefF, runtime
from mlfs_dask.blocks.codes import equal_width_book
from mlfs_dask.blocks.pair_scores import Counts
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.selectors.mamfs import CodedRows, held_out, judge_by_naive_bayes
from mlfs_dask.selectors.relieff import scale_rows
from mlfs_dask.statistics.sample import SampledRows
from tests.conftest import published
from tests.problems import labelled_problem, real_data
from tests.reference import relieff as twin

QUICK = {"n_hidden": 4, "max_iter": 20, "path_multiplier": 1.3}

SAMPLED = (
    ReliefF(3, n_sampled=300),
    LassoNet(3, n_sampled=300, batch_size=64, **QUICK),
    MAMFS(3, n_sampled=300, n_judged=60),
)


def problem(n=600, d=6, q=3):
    rng = np.random.default_rng(0)
    Y = (rng.random((n, q)) < 0.4).astype(np.int8)
    X = rng.normal(size=(n, d)).round(1)  # with distances that tie
    X[:, :q] += 2 * Y
    X[:, 4] = rng.random(n) < 0.3
    return np.where(rng.random((n, d)) < 0.6, X, 0.0), Y


@pytest.mark.parametrize("selector", SAMPLED, ids=lambda each: each.plain.method)
def test_neither_chunks_nor_containers_matter_where_rows_are_sampled(selector):
    X, Y = problem()
    expected = selector.set_params(random_state=3).fit(X, Y)
    scores, extra, objective = expected.scores_, expected.report_.extra, expected.report_.objective
    assert extra["sampled_rows"] == 300
    assert expected.report_.passes == 1
    lazy, lazy_Y = da.from_array(X, chunks=((340, 1, 259), (2, 4))), da.from_array(Y, chunks=((340, 1, 259), -1))
    for rows, labels in ((sp.csr_array(X), Y), (lazy, lazy_Y), (lazy.map_blocks(sp.csr_array), lazy_Y)):
        found = selector.fit(rows, labels)
        assert found.scores_ == pytest.approx(scores, rel=1e-9, abs=1e-12)
        assert (found.report_.extra, found.report_.objective) == (extra, objective)
    other = selector.set_params(random_state=4).fit(X, Y)
    assert not np.allclose(other.scores_, scores) or other.report_.extra != extra


@pytest.mark.parametrize(
    ("selector", "note"),
    [
        (ReliefF(3, n_sampled=300), ""),
        (MAMFS(3, n_sampled=300), "judges 300 subsets on 60 rows out of a sample of 300"),
        (
            LassoNet(2, n_sampled=300, batch_size=100),
            "learns from 300 of 600 rows: up to 1,000 epochs, and 100 for each ",
        ),
    ],
    ids=lambda each: "" if isinstance(each, str) else each.plain.method,
)
def test_the_plan_says_what_is_learnt_from_and_does_not_grow_with_the_rows(selector, note):
    X, Y = problem()
    small, large = (selector.plan(ArrayRows(X[:n], as_labels(Y[:n])), current_resources()) for n in (400, 600))
    assert small.arrays | {"edges": 0} == large.arrays | {"edges": 0}
    assert " ".join(large.notes).startswith(note)


# ---------------------------------------------------------------- ReliefF


@pytest.mark.parametrize(("n_neighbors", "min_rows"), [(1, 6), (4, 1), (4, 6)])
def test_relieff_equals_the_plain_twin(n_neighbors, min_rows):
    X, Y = problem(n=70)
    expected = twin.relieff(X, Y, n_neighbors=n_neighbors, min_rows=min_rows)
    for container in (X, sp.csr_array(X)):
        found = ReliefF(3, n_neighbors=n_neighbors, min_rows=min_rows).fit(container, Y)
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-12)
    kept, classes = twin.prune(Y, min_rows)
    extra = found.report_.extra
    assert (extra["pruned_rows"], extra["classes"]) == (len(Y) - len(kept), len(set(classes)))


def test_categories_differ_or_do_not(tmp_path):
    X, Y = problem(n=70)
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


def test_differences_that_cancel_tie_in_every_container():
    """More neighbours than a class has rows: what one class adds the other takes away."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = np.where(rng.random((40, 30)) < 0.1, rng.normal(size=(40, 30)), 0.0)
        y = np.repeat([0, 1], 20)
        dense, sparse = (ReliefF(3, n_neighbors=50).fit(container, y) for container in (X, sp.csr_array(X)))
        assert dense.ranking_.tolist() == sparse.ranking_.tolist()


# ---------------------------------------------------------------- LassoNet


def test_more_features_than_it_takes_are_refused():
    X, Y = problem()
    with pytest.raises(DoesNotFitError, match="a network of 6 features, which LassoNet trains for at most 5") as error:
        LassoNet(2, max_features=5).fit(X, Y)
    assert "choose some of the features with a filter before" in str(error.value)


def test_training_can_be_interrupted():
    X, Y = problem()
    for label in ("training a network", "removing features"):
        stages = []

        def interrupt(event, label=label, stages=stages):
            if event["kind"] == "stage":
                stages.append(event["label"])
            if event["kind"] == "parts" and stages[-1] == label:
                raise KeyboardInterrupt

        with runtime.progress_to(interrupt), pytest.raises(KeyboardInterrupt):
            LassoNet(2, **QUICK).fit(X, Y)
        assert stages[-1] == label


# ---------------------------------------------------------------- MAMFS


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


def test_the_best_subset_comes_first_and_has_no_more_than_k_features():
    X, Y = problem()
    for k in (1, 3, 6):
        found = MAMFS(k).fit(X, Y)
        subset = found.report_.extra["subset"]
        assert 1 <= len(subset) <= k
        assert sorted(found.ranking_[: len(subset)].tolist()) == subset
        assert found.scores_[subset].min() >= 2.0 > np.delete(found.scores_, subset).max(initial=0.0)
    X[:, :3] += 2 * Y
    assert set(MAMFS(3).fit(X, Y).ranking_[:3].tolist()) == {0, 1, 2}
