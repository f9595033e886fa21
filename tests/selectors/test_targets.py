"""Numeric targets: scores of the twins on standardised targets, tests of slopes, quantile codes, refusals."""

from __future__ import annotations

import inspect
import warnings

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp
from scipy import stats

import mlfs_dask as mlfs
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS, get_method
from tests.reference.twins import twin
from tests.selectors.test_matrix import SHORT, settings_of

N, D = 80, 7


def problem(*, sparse=False, unknown=False, seed=0):
    """Features, and a large, a small and a 0/1 target with NaN for unknown."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(N, D)), 3) * (rng.random((N, D)) < (0.5 if sparse else 1))
    large = 1e6 + 1000 * X[:, 0] + 500 * rng.normal(size=N)
    Y = np.column_stack([large, 1e-3 * (X[:, 1] - X[:, 2] + rng.normal(size=N)), X[:, 3] + rng.normal(size=N) > 0])
    if unknown:
        Y[rng.random(N) < 0.2, 0] = Y[rng.random(N) < 0.1, 2] = np.nan
    return (sp.csr_array(X) if sparse else X), Y


def dense(X):
    return X.toarray() if sp.issparse(X) else X


every_form = pytest.mark.parametrize(("sparse", "unknown"), [(0, 0), (0, 1), (1, 0), (1, 1)])


@every_form
def test_slopes_and_scores_are_those_of_simple_regressions(sparse, unknown):
    X, Y = problem(sparse=sparse, unknown=unknown)
    fitted = mlfs.BRCC(2, pairs="all", target_type="continuous").fit(X, Y)
    f_scores = mlfs.AnovaF(2, target_type="continuous").fit(X, Y).scores_
    scores = np.zeros((2, D))
    for pair in fitted.pairs_.to_dict("records"):
        known = ~np.isnan(Y[:, pair["label_index"]])
        x, y = dense(X)[known, pair["feature_index"]], Y[known, pair["label_index"]]
        expected = stats.linregress(x, y)
        assert (pair["effect_kind"], pair["n"]) == ("slope", known.sum())
        assert np.isnan(pair["positives"])
        assert pair["effect"] == pytest.approx(expected.slope, rel=1e-9)
        assert pair["statistic"] == pytest.approx(expected.slope / expected.stderr, rel=1e-9)
        assert pair["p_value"] == pytest.approx(expected.pvalue, rel=1e-7)
        assert pair["standard_error"] == pytest.approx(expected.stderr, rel=1e-9)
        half = stats.t.ppf(0.975, known.sum() - 2) * expected.stderr
        assert pair["effect_high"] == pytest.approx(expected.slope + half, rel=1e-7)
        scores[:, pair["feature_index"]] += abs(expected.rvalue), (expected.slope / expected.stderr) ** 2
    assert fitted.scores_ == pytest.approx(scores[0], rel=1e-10)
    assert f_scores == pytest.approx(scores[1], rel=1e-9)
    assert fitted.report_.passes == fitted.report_.plan["passes"] == 2


def test_covariates_and_strata_adjust_slopes_as_in_a_linear_model():
    X, Y = problem()
    rng = np.random.default_rng(5)
    C, batch = rng.normal(size=(N, 2)), rng.integers(0, 3, N)
    model = mlfs.BRCC(2, pairs="all", target_type="continuous").fit(X, Y, covariates=C, strata=batch)
    for pair in model.pairs_.to_dict("records"):
        x, y = X[:, pair["feature_index"]], Y[:, pair["label_index"]]
        A = np.column_stack([x, np.ones(N), C, batch == 1, batch == 2])
        b, (rss,), *_ = np.linalg.lstsq(A, y, rcond=None)
        t = b[0] / np.sqrt(rss / (N - 6) * np.linalg.inv(A.T @ A)[0, 0])
        assert pair["effect"] == pytest.approx(b[0], rel=1e-7)
        assert pair["p_value"] == pytest.approx(2 * stats.t.sf(abs(t), N - 6), rel=1e-6)


def test_numbers_without_the_switch_and_methods_of_labels_are_refused_with_the_cure():
    X, Y = problem()
    with pytest.raises(DataError, match="target_type='continuous'"):
        mlfs.BRCC(2).fit(X, Y)
    with pytest.raises(UsageError, match=r"chi2 needs 0/1 labels(.|\n)*target_bins"):
        mlfs.Chi2(2, target_type="continuous").fit(X, Y)
    with pytest.raises(UsageError, match="Y holds labels"):
        mlfs.Chi2(2, target_bins=3).fit(X, Y > 0)


@every_form
def test_quantile_codes_are_labels_above_the_cuts(sparse, unknown):
    X, Y = problem(sparse=sparse, unknown=unknown)
    cuts = [*np.nanquantile(Y[:, :2], [0.25, 0.5, 0.75], axis=0).T, [0.0]]
    codes = [np.where(np.isnan(y), -1, y > cut) for y, of_target in zip(Y.T, cuts, strict=True) for cut in of_target]
    codes = np.column_stack(codes)
    for method in (mlfs.Chi2, mlfs.ENM, mlfs.AMI, mlfs.BRCC, mlfs.SPFS):
        of_codes = method(2, pairs="best:1").fit(X, sp.csr_array(codes))
        fitted = method(2, pairs="best:1", target_type="continuous", target_bins=4).fit(X, Y)
        assert fitted.scores_ == pytest.approx(of_codes.scores_, rel=1e-12)
        names = fitted.pairs_["label"].tolist()
        assert [name.split(">")[0] for name in names] == ["y0"] * 3 + ["y1"] * 3 + ["y2"]
        np.testing.assert_array_equal(fitted.pairs_["p_value"], of_codes.pairs_["p_value"])


#: Methods that take numbers, with parameters besides the defaults.
TAKES_NUMBERS = [name for name in METHODS if get_method(name).takes_numbers]
FORMS = [(name, {}) for name in TAKES_NUMBERS if name not in ("br-cc", "anova-f", "mlaco")] + [
    *(("elc", each) for each in ({"variant": "screen"}, {"similarity": "exponential"})),
    *(("mddm", each) for each in ({"constraint": "subspace"}, {"n_components": 2, "standardise": False})),
    *(("llsf", each) for each in ({"alpha": 1.0}, {"variant": "published", "max_iter": 50})),
    ("rfs", {"variant": "published"}),
    ("mifs", {"variant": "published", "gamma": 1.0, "step": 1e-3, "max_iter": 30}),
]


@every_form
@pytest.mark.parametrize(("name", "parameters"), FORMS, ids=[" ".join([n, *map(str, p)]) for n, p in FORMS])
def test_scores_of_numbers_are_those_of_the_plain_twin(name, parameters, sparse, unknown):
    X, Y = problem(sparse=sparse, unknown=unknown)
    given = settings_of(name) | parameters
    given = {key: value for key, value in given.items() if name == "rfs" or key not in SHORT}
    method = get_estimator(name)(3, target_type="continuous", **given)
    Z = (Y - np.nanmean(Y, axis=0)) / np.nanstd(Y, axis=0)
    if get_method(name).unknown_entry.startswith("makes its row unlabelled"):
        Z[np.isnan(Z).any(axis=1)] = -1.0
    function = twin(name)
    if "n_features_to_select" in inspect.signature(function).parameters:
        given["n_features_to_select"] = 3
    expected = function(dense(X), np.nan_to_num(Z), **given)
    expected = expected[0] if isinstance(expected, tuple) else expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert method.fit(X, Y).scores_ == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("sparse", [0, 1])
def test_ants_go_by_correlations_over_the_known_rows_of_each_target(sparse):
    X, Y = problem(sparse=sparse)
    fitted = mlfs.MLACO(3, target_type="continuous", random_state=0).fit(X, Y)
    assert fitted.scores_ == pytest.approx(twin("mlaco")(dense(X), (Y - Y.mean(axis=0)) / Y.std(axis=0)), rel=1e-6)


@pytest.mark.parametrize("method", [mlfs.BRCC, mlfs.GMLC, mlfs.RFS, mlfs.MIFS, mlfs.SFSS, mlfs.LaplacianScore])
def test_blocks_of_dask_arrays_give_the_same_scores(method):
    X, Y = problem(unknown=True)
    whole = method(2, target_type="continuous").fit(X, Y)
    chunked = da.from_array(X, chunks=(17, 5)), da.from_array(Y, chunks=(20, 2))
    of_blocks = method(2, target_type="continuous").fit(*chunked)
    assert of_blocks.scores_ == pytest.approx(whole.scores_, rel=1e-6)


def test_a_row_of_weight_2_counts_twice():
    X, Y = problem(unknown=True)
    weights = np.arange(N) % 3
    weighted = mlfs.GMLC(2, target_type="continuous").fit(X, Y, sample_weight=weights)
    repeated = mlfs.GMLC(2, target_type="continuous").fit(np.repeat(X, weights, 0), np.repeat(Y, weights, 0))
    assert weighted.scores_ == pytest.approx(repeated.scores_, rel=1e-9)


def test_shuffles_and_strata_ranked_apart():
    X, Y = problem(unknown=True)
    fitted = mlfs.BRCC("auto", target_type="continuous", fdr=0.05, resamples=4).fit(X, Y)
    assert {0, 1, 2} == set(fitted.ranking_[: fitted.report_.k].tolist())
    strata = np.arange(N) % 2
    ranked = mlfs.GMLC(2, target_type="continuous", strata_by="rank").fit(X, Y, strata=strata)
    apart = [mlfs.GMLC(2, target_type="continuous").fit(X[strata == s], Y[strata == s]).ranking_ for s in (0, 1)]
    assert ranked.scores_ == pytest.approx(-np.mean([np.argsort(ranking) + 1 for ranking in apart], axis=0))
