"""Scores that are adjusted for covariates, against dense data whose X and Y are residuals of a regression on these."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from scipy import stats

import mlfs_dask as mlfs
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.rows.joined import JoinedRows
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selection.fit import OpenedRows, attach_columns, fit
from mlfs_dask.selection.question import ask
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.costs import Asked, Names
from mlfs_dask.statistics.products import AdjustedMoments
from tests.problems import quiet

ADJUSTED = [name for name in METHODS if get_method(name).takes_covariates]
REFUSING = [name for name in METHODS if not get_method(name).takes_covariates]


def problem(seed=0, n=150, d=9, q=4):
    """Rows of three batches; feature 5 is the batch's number, feature 6 goes with it, feature d-1 is constant."""
    rng = np.random.default_rng(seed)
    batch, age = rng.integers(0, 3, n), 1950 + np.round(30 * rng.random(n))
    Y = (rng.random((n, q)) < 0.2 + 0.2 * batch[:, np.newaxis]).astype(np.int8)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    X[:, :q] += Y
    X[:, 5], X[:, 6], X[:, -1] = batch, batch + 0.3 * rng.normal(size=n), 4.0
    C = pd.DataFrame({"batch": pd.Categorical.from_codes(batch, ["a", "b", "c"]), "age": age})
    return X, Y, C


def design(C):
    """[1, C] with the batch as indicators."""
    batch = np.asarray(C["batch"].cat.codes)
    return np.column_stack([np.ones(len(C)), batch == 1, batch == 2, C["age"]])


def residuals(M, C, weights=None):
    root = np.ones((len(M), 1)) if weights is None else np.sqrt(weights)[:, np.newaxis]
    A, M = design(C), np.asarray(M, float)
    return M - A @ np.linalg.lstsq(A * root, M * root, rcond=None)[0]


def twin_scores(method, X, Y, C, weights=None):
    """Scores of a method from sums of residuals, to which the means are added."""
    w = np.ones(len(X)) if weights is None else weights
    n = w.sum()
    x, y = w @ X / n, w @ Y / n
    XR, YR = residuals(X, C, weights), residuals(Y, C, weights)
    XR[:, np.linalg.norm(XR, axis=0) < 1e-6 * np.linalg.norm(X, axis=0)] = 0.0
    m2, label_m2 = w @ XR**2, w @ YR**2
    results = {
        "sums": AdjustedMoments(
            n, x, m2, YR.T @ (w[:, np.newaxis] * XR), w @ Y, np.zeros(Y.shape[1]),
            YR.T @ (w[:, np.newaxis] * YR) + n * np.outer(y, y), residual_m2=label_m2,
            adjustment=SimpleNamespace(rank=3),
        ),
        "gram": XR.T @ (w[:, np.newaxis] * XR),
    }  # fmt: skip
    source = as_rows(X, Y > 0)
    results = {name: results[name] for name in method.reads(source) if name != "keys"}
    readings = SimpleNamespace(source=source, names=Names(), asked=Asked(3))
    results = method.prepare(readings, results)
    scores = method.scores(k=3, **results)
    scores = getattr(scores, "scores", scores)
    return np.where(m2 > 0, scores, np.minimum(scores, scores[m2 > 0].min()))


@pytest.mark.parametrize("name", ADJUSTED)
def test_scores_are_those_of_residuals_in_every_container(name):
    X, Y, C = problem()
    expected = twin_scores(get_method(name)(), X, Y, C)
    estimator = get_estimator(name)
    dense = da.from_array(X, chunks=((40, 1, 109), (4, 5)))
    containers = [X, sp.csr_array(X), dense, dense.map_blocks(lambda block: sparse.GCXS.from_numpy(block))]
    for container in containers:
        fitted = quiet(_Fit(estimator, C), container, Y)
        np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-6, atol=1e-7)
        assert fitted.report_.passes == 1
    plain = quiet(estimator(n_features_to_select=3), X, Y).scores_
    assert not np.allclose(plain, expected)


class _Fit:
    """An estimator that is fitted with covariates."""

    def __init__(self, estimator, C, **params):
        self.estimator, self.C = estimator(n_features_to_select=3, **params), C

    def fit(self, X, Y, **more):
        return self.estimator.fit(X, Y, covariates=self.C, **more)


@pytest.mark.parametrize("name", [name for name in ADJUSTED if get_method(name).takes_weights])
def test_weighted_rows_have_weighted_residuals(name):
    X, Y, C = problem(seed=1)
    weights = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    twice = np.repeat(np.arange(len(X)), weights.astype(int))
    repeated = quiet(_Fit(get_estimator(name), C.iloc[twice]), X[twice], Y[twice]).scores_
    estimator = get_estimator(name)(n_features_to_select=3)
    fitted = estimator.fit(X, Y, sample_weight=weights, covariates=C)
    np.testing.assert_allclose(fitted.scores_, repeated, rtol=1e-6, atol=1e-7)


def test_filters_are_partial_correlations_and_nested_f_tests():
    X, Y, C = problem(seed=2)
    n, A = len(X), design(C)
    XR, YR = residuals(X, C), residuals(Y, C)
    varies = np.linalg.norm(XR, axis=0) > 1e-6 * np.linalg.norm(X, axis=0)
    XR[:, ~varies] = np.nan
    partial = np.nan_to_num(XR.T @ YR / np.outer(np.linalg.norm(XR, axis=0), np.linalg.norm(YR, axis=0)))
    found = mlfs.BRCC(n_features_to_select=3).fit(X, Y, covariates=C)
    np.testing.assert_allclose(found.scores_, np.abs(partial).sum(axis=1), rtol=1e-9, atol=1e-12)
    # F of the label beside the covariates, in a regression of the feature.
    F = np.zeros(X.shape[1])
    for y in Y.T:
        B = np.column_stack([A, y])
        full = ((X - B @ np.linalg.lstsq(B, X, rcond=None)[0]) ** 2).sum(axis=0)
        null = ((X - A @ np.linalg.lstsq(A, X, rcond=None)[0]) ** 2).sum(axis=0)
        F[varies] += ((null - full) / (full / (n - B.shape[1])))[varies]
    np.testing.assert_allclose(mlfs.AnovaF(n_features_to_select=3).fit(X, Y, covariates=C).scores_, F, rtol=1e-9)


def test_a_batch_effect_wins_without_covariates_and_loses_with_them():
    X, Y, C = problem(seed=3, n=400)
    without = mlfs.BRCC(n_features_to_select=2).fit(X, Y)
    assert set(without.ranking_[:2]) == {5, 6}
    adjusted = mlfs.BRCC(n_features_to_select=4).fit(X, Y, covariates=C["batch"])
    assert set(adjusted.ranking_[:4]) == {0, 1, 2, 3}
    assert set(adjusted.ranking_[-2:]) == {5, 8}  # the batch itself, and the constant
    assert adjusted.report_.extra["constant_features"] == 2


def test_collinear_covariates_count_once():
    X, Y, C = problem(seed=4)
    more = C.assign(months=12 * C["age"] + 3, again=C["batch"].astype(str), nothing=1.0)
    once = mlfs.AnovaF(n_features_to_select=3).fit(X, Y, covariates=C)
    several = mlfs.AnovaF(n_features_to_select=3).fit(X, Y, covariates=more)
    np.testing.assert_allclose(several.scores_, once.scores_, rtol=1e-7)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 149), st.integers(1, 149), st.booleans())
def test_partitions_change_nothing(first, second, csr):
    X, Y, C = problem(seed=5)
    X[:, 0] += 1e6  # digits that only sums about a value near the mean keep
    X = sp.csr_array(X[:, 1:]) if csr else X
    cuts = sorted({0, first, second, 150})
    pieces = [as_rows(X[a:b], Y[a:b]) for a, b in itertools.pairwise(cuts)]
    whole = mlfs.BRCC(n_features_to_select=3).fit(X, Y, covariates=C).scores_
    parts = fit(ask("br-cc", 3), JoinedRows(pieces), covariates=C).scores
    np.testing.assert_allclose(parts, whole, rtol=1e-10, atol=1e-13)


def test_other_methods_refuse_covariates():
    X, Y, C = problem()
    for name in REFUSING:
        method, rows = attach_columns(ask(name, 3), OpenedRows(as_rows(X, Y)), covariates=C)
        with pytest.raises(UsageError, match=f"{name} cannot be adjusted for covariates"):
            method.require_accepted(rows.source, Names())


def test_a_missing_covariate_is_refused_with_its_row():
    X, Y, C = problem()
    C.loc[17, "age"] = np.nan
    with pytest.raises(DataError, match=r"'age' is missing, or infinite, in row 17 .*\n.*fill it in"):
        mlfs.BRCC(n_features_to_select=3).fit(X, Y, covariates=C)
    C = C.assign(age=1.0, batch=C["batch"].where(C.index != 3))
    with pytest.raises(DataError, match="'batch' is missing, or infinite, in row 3"):
        mlfs.BRCC(n_features_to_select=3).fit(X, Y, covariates=C)
    with pytest.raises(DataError, match=r"shape \(150, c\), a row for every row of X; got \(4,\)"):
        mlfs.BRCC(n_features_to_select=3).fit(X, Y, covariates=np.ones(4))


def partly_known(seed=0):
    """Rows with labels that are known of some alone: one of few rows, one of none, one of a single batch."""
    X, Y, C = problem(seed)
    Y = np.where(np.random.default_rng(seed).random(Y.shape) < [0.3, 0.6, 0.0, 0.1], np.int8(-1), Y)
    one_batch = np.where(C["batch"] == "b", Y[:, 2], np.int8(-1))
    return X, np.column_stack([Y, one_batch, np.full(len(Y), np.int8(-1))]), C


@pytest.mark.filterwarnings("ignore:label .* is known in no row")
@pytest.mark.parametrize("name", ["anova-f", "br-cc", "gmlc"])
def test_a_label_is_adjusted_over_the_rows_where_it_is_known(name):
    X, Y, C = partly_known()
    X[:, 0] = 1e3 + 7 * X[:, 0]
    dense = da.from_array(X, chunks=((40, 1, 109), (4, 5)))
    labels = da.from_array(Y, chunks=(50, -1))
    for rows in ((X, Y), (sp.csr_array(X), Y), (dense, labels), (X.astype(np.float32)[:, 1:], Y)):
        tested = quiet(_Fit(get_estimator(name), C, pairs="all"), *rows)
        table = tested.pairs_.pivot(index="label_index", columns="feature_index")
        total = 0.0
        for label in range(5):
            known = Y[:, label] >= 0
            given = X[:, X.shape[1] - tested.n_features_in_ :]
            alone = quiet(_Fit(get_estimator(name), C[known], pairs="all"), given[known], Y[known, label])
            total = total + alone.scores_
            expected = alone.pairs_
            for column in ("n", "effect", "statistic"):
                np.testing.assert_allclose(
                    table[column].loc[label].astype(float), expected[column].astype(float), rtol=1e-4, atol=1e-6
                )
            one = quiet(_Fit(get_estimator(name), C), rows[0], rows[1][:, [label]])
            np.testing.assert_allclose(one.scores_, alone.scores_, rtol=1e-5, atol=1e-7)
        if name != "gmlc":
            np.testing.assert_allclose(tested.scores_, total, rtol=1e-5, atol=1e-7)
        assert tested.report_.passes == (2 if isinstance(rows[1], da.Array) else 1)


@pytest.mark.parametrize("name", ["elc", "mddm", "spfs"])
def test_unknown_entries_at_the_mean_are_adjusted(name):
    X, Y, C = partly_known()
    Y = Y[:, :5]
    mean = np.array([y[y >= 0].mean() for y in Y.T])
    filled = np.where(Y < 0, mean, Y)
    expected = twin_scores(get_method(name)(), X, filled, C)
    for rows in (X, sp.csr_array(X)):
        found = quiet(_Fit(get_estimator(name), C), rows, Y)
        if name == "mlaco":  # ants go by chance where features are worth little
            assert sorted(found.ranking_[:3]) == sorted(np.argsort(-expected)[:3])
        else:
            np.testing.assert_allclose(found.scores_, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:label .* is known in no row")
def test_rows_of_labels_that_are_partly_unknown_are_weighted_and_cut_anywhere():
    X, Y, C = partly_known(seed=1)
    weights = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    twice = np.repeat(np.arange(len(X)), weights.astype(int))
    repeated = quiet(_Fit(mlfs.BRCC, C.iloc[twice]), X[twice], Y[twice]).scores_
    fitted = mlfs.BRCC(n_features_to_select=3).fit(X, Y, sample_weight=weights, covariates=C)
    np.testing.assert_allclose(fitted.scores_, repeated, rtol=1e-6, atol=1e-7)
    whole = mlfs.BRCC(n_features_to_select=3).fit(X, Y, covariates=C).scores_
    for cuts in ((0, 1, 77, 150), (0, 149, 150)):
        pieces = [as_rows(X[a:b], Y[a:b]) for a, b in itertools.pairwise(cuts)]
        parts = fit(ask("br-cc", 3), JoinedRows(pieces), covariates=C).scores
        np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-12)


def test_shuffles_and_resamples_are_adjusted_too():
    X, Y, C = problem(seed=6, n=300)
    fitted = mlfs.BRCC(n_features_to_select="auto", resamples=5).fit(X, Y, covariates=C)
    assert set(np.flatnonzero(fitted.support_)) == {0, 1, 2, 3}
    assert fitted.report_.passes == 2  # one over the labels alone
    assert fitted.selection_frequency_[:4].min() >= 0.8


def test_the_plan_holds_the_products_of_covariates():
    X, Y, _ = problem()
    X = np.repeat(X, 30, axis=1)
    C = np.random.default_rng(0).normal(size=(len(X), 20))
    method = ask("br-cc", 3)
    source = ArrayRows(X, sp.csr_array(Y))
    plain = method.plan(source, current_resources())
    method, named = attach_columns(method, OpenedRows(source), covariates=C)
    adjusted = method.plan(named.source, current_resources())
    products = 8 * 20 * X.shape[1]
    assert adjusted.peak_worker_bytes >= plain.peak_worker_bytes + products
    assert adjusted.passes == plain.passes == 1
    assert adjusted.arrays["covariates of rows"] == C.nbytes


def test_tests_of_pairs_are_those_of_a_regression_with_the_covariates():
    X, Y, C = problem(seed=8)
    fitted = mlfs.BRCC(n_features_to_select=3, pairs="all").fit(X, Y, covariates=C)
    table = {(row["feature_index"], row["label_index"]): row for row in fitted.pairs_.to_dict("records")}
    A, n = design(C), len(X)
    for f, label in [(0, 0), (1, 3), (6, 2)]:
        B = np.column_stack([A, Y[:, label]])
        beta, *_ = np.linalg.lstsq(B, X[:, f], rcond=None)
        left = X[:, f] - B @ beta
        error = np.sqrt(left @ left / (n - B.shape[1]) * np.linalg.inv(B.T @ B)[-1, -1])
        assert table[f, label]["effect"] == pytest.approx(beta[-1])
        assert table[f, label]["statistic"] == pytest.approx(beta[-1] / error)
        p = 2 * stats.t.sf(abs(beta[-1] / error), n - B.shape[1])
        assert table[f, label]["p_value"] == pytest.approx(p, rel=0.2)  # a skewed law's is larger
    assert np.isnan(table[5, 0]["statistic"])  # the batch itself
    assert fitted.report_.passes == 1
