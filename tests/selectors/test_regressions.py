"""Regressions: programs of their authors, minima, what penalties and graphs do, and rows whose labels are unknown."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize
from scipy import sparse as sp
from sklearn.linear_model import Lasso

from mlfs_dask import (
    CMFS,
    CSFS,
    FSCLA,
    FSSRDM,
    GLFS,
    LEDA,
    LFFS,
    LLSF,
    LSMR,
    MDFS,
    MIFS,
    MLMLFS,
    RFS,
    SCFS,
    SFAM,
    SFSBLL,
    SFSS,
    SMDRIC,
    SMILE,
    SMLFS,
    UAFSBH,
)
from mlfs_dask.blocks.label_sets import LabelSets, frequent_label_sets, label_set_keys
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DoesNotFitError, MlfsError, UsageError
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.runtime import Resources, driver_bytes
from mlfs_dask.selectors import get_method
from mlfs_dask.selectors.uafs_bh import spectral_values
from mlfs_dask.solvers import proximal
from mlfs_dask.statistics.binary_rows import share_threshold
from mlfs_dask.statistics.filled_labels import fill_labels
from mlfs_dask.statistics.label_statistics import neighbour_laplacian
from mlfs_dask.statistics.moments import FeatureMoments
from tests.conftest import published
from tests.exact.fits import Moments
from tests.problems import real_data
from tests.reference import regressions
from tests.reference.graph_regressions import mdfs_steps, neighbour_graph, sfs_bll_program, sfs_bll_steps, uafs_bh_steps
from tests.reference.twins import centres_of, twin
from tests.selectors.anchored import hide, larger, problem, quiet

# ---------------------------------------------------------------- what all share

#: Parameters that are relative to the least at which W = 0.
STRENGTHS = {CSFS: ["alpha"], GLFS: ["beta", "gamma"], LLSF: ["beta"], MLMLFS: ["lambda_"], SMDRIC: ["alpha", "beta"]}

#: Of the first objective, by how much an iteration may raise it: where anchors follow their rows, the squares of the
#: weights are not in the objective; and that of SFS-BLL may rise by what moves its thresholds.
RISES = {CMFS: 1e-6, SCFS: 0.02, SFAM: 0.02, SFSBLL: 1e-3}

LOOPS = pytest.mark.parametrize("method", [FSCLA, SCFS, SFAM, SFSBLL])


@pytest.mark.parametrize("by", ["nothing", "rows and entries"])
@pytest.mark.parametrize(
    "method",
    [
        CMFS,
        CSFS,
        FSCLA,
        FSSRDM,
        GLFS,
        LLSF,
        LFFS,
        LSMR,
        MDFS,
        MIFS,
        MLMLFS,
        RFS,
        SCFS,
        SFAM,
        SFSBLL,
        SFSS,
        SMDRIC,
        SMLFS,
    ],
)
def test_the_objective_never_rises_and_the_loop_ends(method, by):
    for seed in range(2):
        X, Y = problem(seed, n=60, d=12, q=3)
        for value in (0.01, 0.1, 0.6):
            found = quiet(method(3, **dict.fromkeys(STRENGTHS.get(method, ["gamma"]), value)), X, hide(Y, by))
            objective = np.array(found.report_.objective)
            assert np.diff(objective).max(initial=0.0) <= RISES.get(method, 1e-9) * np.abs(objective).max()
            assert found.report_.converged or method is RFS or by != "nothing"
            assert found.n_iter_ == len(objective)


@pytest.mark.parametrize(
    ("method", "parameters"), [(RFS, {}), (RFS, {"gamma": 0.01, "tol": 1e-7}), (CMFS, {"n_latent": 2, "beta": 5.0})]
)
def test_the_loop_ends_where_that_of_the_plain_twin_does(method, parameters):
    X, Y = problem()
    found = quiet(method(3, **parameters), X, Y)
    scores, objective, *_ = twin(method.plain.method)(X, Y, **parameters)
    assert found.report_.objective == pytest.approx(objective, rel=1e-9)
    assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-8)
    assert found.report_.passes == 2 + len(objective)


@pytest.mark.parametrize("method", [LLSF, FSSRDM, LSMR, MIFS])
def test_a_loop_that_max_iter_ends_says_so(method):
    with pytest.warns(UserWarning, match="did not converge in 2 iterations. Increase max_iter, or tol"):
        method(3, max_iter=2).fit(*problem(6))


@pytest.mark.parametrize(
    ("method", "by"),
    [
        (GLFS, "nothing"),
        (RFS, "nothing"),
        (SMDRIC, "nothing"),
        *((each, by) for each in (LEDA, SMLFS) for by in ("nothing", "rows")),
    ],
)
def test_labels_that_all_rows_have_tell_nothing(method, by):
    X, Y = problem(8, q=3)
    with pytest.warns(UserWarning, match="cannot rank the features: "):
        found = method(3).fit(X, as_labels(hide(np.ones_like(Y), by)))
    assert found.scores_.tolist() == [0.0] * X.shape[1]


# ---------------------------------------------------------------- rows whose labels are unknown


def among_unlabelled(X, hidden):
    """Whether rows are labelled, X with the others in another order, and X with noise in their place."""
    labelled = (hidden >= 0).all(axis=1)
    other = np.where(labelled[:, np.newaxis], X, X[~labelled][::-1][np.cumsum(~labelled) - 1])
    return labelled, other, np.where(labelled[:, np.newaxis], X, np.random.default_rng(0).normal(size=X.shape))


@pytest.mark.parametrize(
    ("method", "by", "alpha"), [(LSMR, "rows", 0.5), (MLMLFS, "rows", 0.5), (SMILE, "rows and entries", 1.0)]
)
def test_unlabelled_rows_are_seen_in_the_graph_alone(method, by, alpha):
    X, Y = problem(7)
    hidden = hide(Y, by)
    labelled, other, _ = among_unlabelled(X, hidden)
    without = quiet(method(3, alpha=0.0), X, hidden)
    assert without.report_.extra.get("labelled_rows", labelled.sum()) == labelled.sum()
    assert quiet(method(3, alpha=0.0), other, hidden).scores_ == pytest.approx(without.scores_, rel=1e-8)
    some = quiet(method(3, alpha=alpha), X, hidden).scores_
    assert np.abs(some - without.scores_).max() > 0.01 * without.scores_.max()


@pytest.mark.parametrize("method", [CSFS, FSCLA, SCFS, SFAM, SFSBLL])
def test_rows_without_labels_count(method):
    X, Y = problem(7)
    hidden = hide(Y, "rows")
    labelled, _, noise = among_unlabelled(X, hidden)
    together = quiet(method(3), X, hidden).scores_
    for rows in ((noise, hidden), (X[labelled], Y[labelled])):
        assert np.abs(quiet(method(3), *rows).scores_ - together).max() > 1e-3 * together.max()


def test_fssrdm_learns_from_the_rows_whose_labels_are_known():
    X, Y = problem(4)
    hidden = hide(Y, "rows and entries")
    labelled = (hidden >= 0).all(axis=1)
    found, alone = quiet(FSSRDM(3), X, hidden), quiet(FSSRDM(3), X[labelled], Y[labelled])
    assert found.scores_.tolist() == pytest.approx(alone.scores_.tolist(), rel=1e-8)
    assert found.report_.extra["labelled_rows"] == labelled.sum() > 0


@pytest.mark.parametrize("by", ["rows", "rows and entries"])
@pytest.mark.parametrize(
    ("method", "forms"),
    [
        (LEDA, ({"propagation": 0.99}, {"propagation": 0.3})),
        (SMDRIC, ({"propagation": 0.99}, {"propagation": 0.3})),
        (SFSS, ({"mu": 0.2, "tol": 1e-9, "max_iter": 999},)),
    ],
)
def test_labels_are_propagated_as_in_the_twin(method, forms, by):
    X, Y = problem(3)
    X, hidden = X[:, :-1], hide(Y, by)
    labelled = (hidden >= 0).all(axis=1)
    for given in forms:
        found = quiet(method(3, **given), X, hidden)
        assert found.scores_ == pytest.approx(twin(method.plain.method)(X, hidden, **given), rel=1e-6, abs=1e-8)
    alone = quiet(method(3, **given), X[labelled], hidden[labelled])
    assert np.abs(found.scores_ - alone.scores_).max() > 0.01 * alone.scores_.max()


@LOOPS
@pytest.mark.parametrize("unknown", ["rows", "entries", "rows and entries"])
def test_where_labels_are_unknown_scores_are_those_of_the_plain_twin(method, unknown):
    X, Y = problem(3, n=50)
    hidden = hide(Y, unknown)
    expected = twin(method().plain.method)(X, hidden, tol=0.0, max_iter=4)
    assert quiet(method(3, tol=0.0, max_iter=4), X, hidden).scores_ == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_smlfs_sees_unlabelled_rows_in_the_graph_of_the_features_alone():
    X, Y = problem(9)
    hidden = hide(Y, "rows and entries")
    others = np.flatnonzero((hidden < 0).any(axis=1))
    other = X.copy()
    for f in range(X.shape[1]):  # the same mean and variance, and other distances of features
        other[others, f] = np.roll(X[others, f], f)
    without = [quiet(SMLFS(3, alpha=0.0), rows, hidden).scores_ for rows in (X, other)]
    assert without[0] == pytest.approx(without[1], rel=1e-8)
    found = [quiet(SMLFS(3, alpha=1.0), rows, hidden).scores_ for rows in (X, other)]
    assert np.abs(found[0] - found[1]).max() > 0.01 * found[0].max()


# ---------------------------------------------------------------- programs of the authors


@pytest.mark.parametrize(
    ("key", "alpha", "beta"), [("unit_rows", -5, -3), ("standardised", -5, -3), ("unit_rows_strong", 10, 5)]
)
def test_published_llsf_has_the_weights_of_the_authors_on_emotions(key, alpha, beta):
    X, Y = real_data("emotions")
    if key == "standardised":
        X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    else:
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    found = quiet(LLSF(10, variant="published", alpha=2.0**alpha, beta=2.0**beta, max_iter=100), X, Y)
    assert found.scores_ == pytest.approx(np.linalg.norm(published("llsf")[key], axis=1), rel=1e-10)
    if key == "unit_rows":
        assert found.ranking_.tolist() == published("llsf")["ranking"].tolist()


def test_published_mifs_takes_the_steps_of_the_program_on_emotions():
    X, Y = real_data("emotions")
    oracle = published("mifs")
    method = MIFS(variant="published", gamma=1.0, n_latent=2, tol=1e-3, max_iter=500).make_question().method
    found = method._fit_exactly(X, as_labels(Y), Moments(X), {name: oracle[f"{name}0"] for name in "WVB"})
    assert found.scores == pytest.approx(np.linalg.norm(oracle["W"], axis=1), rel=1e-10)
    assert found.trace.objective == pytest.approx(oracle["objective"], rel=1e-10)
    assert found.trace.converged


def test_published_mifs_holds_all_rows_and_refuses_what_does_not_fit():
    X, Y = problem(11)
    selector = MIFS(3, variant="published")
    assert quiet(selector, X, Y).report_.extra["graph"] == {"kind": "exact"}
    with pytest.raises(DoesNotFitError, match=r"mifs in the driver process(.|\n)*cure: leave out variant='published'"):
        selector.plan(larger(as_rows(X, Y).profile, 10**8), Resources(1, 1, 2**31, 2**31))
    with pytest.raises(MlfsError, match=r"MIFS as published diverged (.|\n)*cure: take variant='corrected'"):
        quiet(selector.set_params(step=1.0), X, Y)


def test_published_mlmlfs_is_the_program_on_emotions():
    X, Y = real_data("emotions")
    oracle = published("mlmlfs")
    unknown = np.unpackbits(oracle["unknown"], axis=0, count=len(Y)).astype(bool)
    method = MLMLFS(variant="published", alpha=1e-4, lambda_=1.0, tol=0.0, max_iter=20).make_question().method
    labels = as_labels(np.where(unknown, np.int8(-1), Y))
    found = method._fit_exactly(X, labels, Moments(X), {"W": oracle["W0"], "b": oracle["b0"]})
    assert found.scores == pytest.approx(np.linalg.norm(oracle["W"], axis=1), rel=1e-10)
    assert found.trace.objective == pytest.approx(oracle["objective"], rel=1e-12)


def test_mlmlfs_reaches_an_objective_below_that_of_the_authors_on_emotions():
    """With the graph left out: theirs is another one."""
    X, Y = real_data("emotions")
    oracle, n = published("mlmlfs"), len(X)
    unknown = np.unpackbits(oracle["unknown"], axis=0, count=n).astype(bool)
    hidden, c = np.where(unknown, np.int8(-1), Y), np.sqrt((n - 1) / n)
    found = quiet(MLMLFS(14, alpha=0.0, lambda_=1.0 / c, absolute=True, tol=1e-9, max_iter=400), X, hidden)
    Z = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    P = Z @ oracle["W"] + oracle["b"]
    residual = np.where(unknown, P - np.clip(P, -1, 1), P - (2.0 * Y - 1.0))[~unknown.all(axis=1)]
    theirs = np.sqrt((residual**2).sum(axis=1) + 0.05**2).sum() + np.linalg.norm(oracle["W"], axis=1).sum()
    assert theirs > found.report_.objective[-1] > 0.99 * theirs
    best = np.argsort(-np.linalg.norm(oracle["W"], axis=1))[:14]
    assert len(set(best) & set(found.ranking_[:14])) >= 12


def test_csfs_reaches_an_objective_below_that_of_the_authors_on_emotions():
    """Their loop ends at a change of 1e-3; W is of features standardised with n − 1, and the penalty counts twice."""
    X, Y = real_data("emotions")
    oracle, n = published("csfs"), len(X)
    hidden = np.where(np.arange(n)[:, np.newaxis] < oracle["n_labelled"], Y, -1).astype(np.int8)
    c = np.sqrt((n - 1) / n)
    found = quiet(CSFS(14, alpha=2.0 / c, absolute=True, tol=1e-9, max_iter=400), X, hidden)
    Z = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    P = Z @ oracle["W"] + oracle["b"]
    residual = np.where(hidden < 0, P - np.clip(P, 0, 1), P - hidden)
    theirs = (residual**2).sum() + 2.0 * np.linalg.norm(oracle["W"], axis=1).sum()
    assert theirs > found.report_.objective[-1] > 0.98 * theirs
    best = np.argsort(-np.linalg.norm(oracle["W"], axis=1))[:14]
    assert len(set(best) & set(found.ranking_[:14])) >= 13


def test_smile_fills_labels_in_as_the_program_on_emotions():
    oracle = published("smile")
    _, Y = real_data("emotions")
    labelled = Y[: oracle["n_labelled"]].astype(float)
    N = labelled.T @ labelled
    C = (N + 0.5) / (np.diag(N)[:, np.newaxis] + 1.0)
    assert pytest.approx(oracle["label_correlation"], rel=1e-12) == C
    assert fill_labels(labelled, C)[:50] == pytest.approx(oracle["filled"], rel=1e-12)


def test_labels_and_projection_of_smdr_ic_are_those_of_its_authors_on_emotions():
    X, Y = real_data("emotions")
    X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    oracle, n = published("smdr_ic"), len(X)
    known = np.where(np.arange(n)[:, np.newaxis] < oracle["n_labelled"], Y, -1).astype(float)
    graph = np.zeros((n, n))
    np.put_along_axis(graph, oracle["neighbors"].astype(int), 0.1, axis=1)
    F = regressions.propagated(known, graph, 0.99)
    others = slice(int(oracle["n_labelled"]), None)
    F[others] = F[others] @ regressions.cosines(Y[: oracle["n_labelled"]].astype(float))
    assert F[others][::7] == pytest.approx(oracle["F"], rel=1e-12)
    P = get_method("smdr-ic")()._projection(X.T @ X, X.T @ F)
    signs = np.sign((P * oracle["P"][:, ::-1]).sum(axis=0))
    assert signs * P == pytest.approx(oracle["P"][:, ::-1], abs=1e-12)


def test_published_glfs_takes_the_steps_of_the_program_on_emotions(monkeypatch):
    X, Y = real_data("emotions")
    oracle = published("glfs")
    groups, label_groups = oracle["groups"], oracle["label_groups"].astype(float)
    weights = {"beta": 1.0, "gamma": 10.0, "tol": 0.001}
    start = {name: oracle[f"{name}0"] for name in "WM"}
    scores, *_, objective = regressions.published_glfs(X, Y, groups, label_groups, start=tuple(start.values()))
    assert scores**2 == pytest.approx(oracle["scores"], rel=1e-9)
    assert objective == pytest.approx(oracle["objective"], rel=1e-12)
    fit = get_method("glfs")._fit_program
    monkeypatch.setattr(get_method("glfs"), "_fit_program", lambda *given: fit(*given[:4], groups, label_groups, start))
    found = quiet(GLFS(14, variant="published", **weights), X, Y)
    assert found.scores_**2 == pytest.approx(oracle["scores"], rel=1e-9)
    assert found.report_.objective == pytest.approx(oracle["objective"], rel=1e-12)
    assert found.ranking_.tolist() == oracle["ranking"].tolist()


@pytest.mark.parametrize(("gamma", "suffix"), [(1.0, ""), (10.0, "_alpha10")])
def test_published_rfs_has_the_results_of_the_toolbox_on_emotions(gamma, suffix):
    oracle = published("rfs")
    found = RFS(10, variant="published", gamma=gamma, tol=1e-5, max_iter=100).fit(*real_data("emotions"))
    assert found.scores_ == pytest.approx(np.linalg.norm(oracle[f"W{suffix}"], axis=1), rel=1e-9)
    assert found.ranking_.tolist() == oracle[f"ranking{suffix}"].tolist()


def test_the_plain_form_of_mdfs_has_the_weights_of_the_authors_on_emotions():
    """With their graphs of rows and labels; `test_matrix` compares with that form given a graph of anchors."""
    X, Y = real_data("emotions")
    oracle = published("mdfs")
    X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    L, L_0 = (np.diag(S.sum(axis=0)) - S for S in (neighbour_graph(X, 5), neighbour_graph(Y.T.astype(float), 5)))
    steps = {"alpha": 1.0, "beta": 1.0, "gamma": 100.0, "tol": 1e-3, "max_iter": 20}
    W, first, last, objective = mdfs_steps(X, Y, L, L_0, oracle["W0"], **steps)
    assert objective == pytest.approx(oracle["objective"], rel=1e-12)
    assert first[::20] == pytest.approx(oracle["F_first"], rel=1e-10)
    assert last[::20] == pytest.approx(oracle["F_last"], rel=1e-10)
    assert pytest.approx(oracle["W"], rel=1e-9, abs=1e-14) == W
    assert np.argsort(-np.linalg.norm(W, axis=1), kind="stable").tolist() == oracle["ranking"].tolist()


def test_published_sfs_bll_has_the_scores_of_the_authors_on_emotions_and_says_where_it_collapses():
    X, Y = real_data("emotions")
    oracle = published("sfs_bll")
    rows, q = oracle["shape"]
    hidden = as_labels(np.where(np.arange(rows)[:, np.newaxis] < oracle["n_labelled"], Y, -1).astype(np.int8))
    moments = FeatureMoments(rows, X.mean(axis=0), X.var(axis=0) * rows)
    codes = np.unpackbits(oracle["codes"], count=rows * q).reshape(rows, q)
    method = get_method("sfs-bll")(variant="published", kappa=100.0, gamma=0.1, tol=0.0, max_iter=20)
    found = method._fit_exactly(X, hidden, moments, {"B": codes})
    assert found.scores == pytest.approx(oracle["scores"], rel=1e-9)
    assert np.argsort(-found.scores, kind="stable").tolist() == oracle["ranking"].tolist()
    assert found.extra["ones_of_unlabelled"] == pytest.approx(oracle["ones_unlabelled"])
    ones = np.unpackbits(oracle["one_codes"], count=rows * q).reshape(rows, q)
    method = get_method("sfs-bll")(variant="published", kappa=1.0, beta=1.0, gamma=1.0, tol=0.0, max_iter=20)
    with pytest.raises(MlfsError, match=r"diverged in iteration 1[78]: (.|\n)*cure: take variant='corrected'"):
        method._fit_exactly(X, hidden, moments, {"B": ones})


@pytest.mark.parametrize("seed", [1, 2])
def test_a_published_run_is_repeated_from_its_own_start(seed):
    X, Y = problem(seed, n=60, d=12, q=3)
    hidden = hide(Y, "rows")
    codes = (np.random.default_rng(seed).random(Y.shape) > 0.5).astype(float)
    given = {"kappa": 100.0, "beta": 0.01, "gamma": 0.1, "rho": 1.0, "n_neighbors": 10, "max_iter": 5}
    expected, _ = sfs_bll_program(X, hidden, **given, codes=codes)
    selector = SFSBLL(3, variant="published", tol=0.0, **given)
    found = quiet(selector, X, hidden, init={"B": codes})
    assert found.scores_ == pytest.approx(expected, rel=1e-8)
    assert found.scores_ != pytest.approx(quiet(selector, X, hidden).scores_, rel=1e-4)


@pytest.mark.parametrize(
    ("method", "shapes"),
    [
        (MIFS, {"W": (6, 1), "V": (40, 1), "B": (1, 3)}),
        (GLFS, {"W": (6, 3), "M": (6, 3)}),
        (MLMLFS, {"W": (6, 3), "b": (3,)}),
        (SFSBLL, {"B": (40, 3)}),
    ],
)
def test_a_start_is_that_of_the_seed_or_refused_by_shape(method, shapes):
    X, Y = problem(1, n=40, d=6, q=3)
    draw = np.random.default_rng(0)
    init = {name: draw.random(shape) for name, shape in shapes.items()}
    if method is SFSBLL:
        init = {"B": np.random.default_rng(0).standard_normal(shapes["B"]) > 0}
    selector = method(2, variant="published", max_iter=3)
    drawn = quiet(selector, X, Y).scores_.copy()
    assert quiet(selector, X, Y, init=init).scores_.tolist() == drawn.tolist()
    name = next(iter(shapes))
    with pytest.raises(UsageError, match=rf"init of .* has the arrays {name} \({shapes[name][0]}, "):
        quiet(selector, X, Y, init=init | {name: init[name][1:]})
    with pytest.raises(UsageError, match="cure: give variant='published'"):
        method(2).fit(X, Y, init=init)
    with pytest.raises(UsageError, match=r"rfs as it is does not(.|\n)*cure: leave it out"):
        RFS(2).fit(X, Y, init=init)


# ---------------------------------------------------------------- minima


def test_llsf_is_at_the_minimum():
    """Every slope of the smooth part is β against the sign of a weight, and at most β where the weight is 0."""
    X, Y = problem(2)
    found = quiet(LLSF(3, beta=0.2, alpha=0.0, tol=1e-9), X, Y)
    std = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(std > 0, std, 1.0)
    weight = 0.2 * np.abs(Z.T @ (Y - Y.mean(axis=0))).max()
    expected = Lasso(weight / len(X), tol=1e-12, max_iter=10**6).fit(Z, Y.astype(float)).coef_
    assert found.scores_ == pytest.approx(np.linalg.norm(expected, axis=0), rel=1e-5, abs=1e-8)


def test_split_weights_are_at_the_minimum():
    """The slope is within both penalties, and its product with W is what the penalties of W₁ and W₂ come to."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(40, 9)), rng.normal(size=(40, 4))
    G, B, R = X.T @ X, X.T @ T, np.diag([0.0, 1.0, 2.0, 3.0])
    entries, rows = 0.3 * np.abs(B).max(), 0.4 * np.linalg.norm(B, axis=1).max()
    W1, W2 = proximal.solve(G, B, R, entries=entries, rows=rows, split=True, tol=1e-12, max_iter=10**4).W
    slope = B - G @ (W1 + W2) - (W1 + W2) @ R
    assert np.abs(slope).max() <= entries * (1 + 1e-8)
    assert np.linalg.norm(slope, axis=1).max() <= rows * (1 + 1e-8)
    penalties = entries * np.abs(W1).sum() + rows * np.linalg.norm(W2, axis=1).sum()
    assert np.vdot(slope, W1 + W2) == pytest.approx(penalties, rel=1e-9)
    assert min(np.count_nonzero(W1), np.count_nonzero(W2)) > 0


def test_smlfs_of_one_label_is_at_the_minimum_of_a_sparse_logistic_regression():
    X, Y = problem(4, q=1)
    found = quiet(SMLFS(3, alpha=0.0, gamma=0.2, tol=1e-13, max_iter=400), X, Y)
    Z = (X[:, :-1] - X[:, :-1].mean(axis=0)) / X[:, :-1].std(axis=0)
    y, d = Y[:, 0].astype(float), Z.shape[1]
    gamma = 0.2 * np.abs(Z.T @ (y - y.mean())).max()

    def loss(v):
        a = Z @ (v[:d] - v[d : 2 * d]) + v[-1]
        slope = Z.T @ (1.0 / (1.0 + np.exp(-a)) - y)
        value = (np.logaddexp(0.0, a) - y * a).sum() + gamma * v[: 2 * d].sum()
        return value, np.r_[slope + gamma, gamma - slope, (1.0 / (1.0 + np.exp(-a)) - y).sum()]

    bounds = [(0.0, None)] * 2 * d + [(None, None)]
    least = optimize.minimize(loss, np.zeros(2 * d + 1), jac=True, bounds=bounds, tol=1e-13)
    assert found.report_.objective[-1] == pytest.approx(least.fun, rel=1e-9)
    assert found.scores_[:-1] == pytest.approx(np.abs(least.x[:d] - least.x[d : 2 * d]), abs=1e-4)


def test_glfs_of_one_group_without_cosines_is_a_sparse_regression():
    """z is then midway between prediction and label; and M is 0 where its penalty is large."""
    X, Y = problem(6)
    alone = {"alpha": 0.0, "lambda_": 0.0, "absolute": True, "n_groups": 1}
    found = quiet(GLFS(3, **alone, beta=8.0, gamma=1e6, tol=1e-12, max_iter=300), X, Y)
    assert found.scores_ == pytest.approx(quiet(LLSF(3, alpha=0.0, beta=8.0, absolute=True), X, Y).scores_, abs=2e-4)
    found = quiet(GLFS(3, **alone, beta=1e6, gamma=8.0, n_label_groups=1, tol=1e-12, max_iter=300), X, Y)
    expected = quiet(LSMR(3, alpha=0.0, mu=0.0, gamma=16.0, absolute=True), X, Y).scores_
    assert found.scores_ == pytest.approx(expected, abs=2e-4)
    assert found.scores_.max() > 0.1


# ---------------------------------------------------------------- what a penalty, a graph, a parameter does


def test_dependence_raises_the_weights_of_features_that_go_with_the_labels():
    X, Y = problem(3)
    without, with_it = (quiet(FSSRDM(4, beta=beta), X, Y) for beta in (0.0, 0.8))
    assert with_it.scores_[:4].sum() > 1.5 * without.scores_[:4].sum()
    assert with_it.report_.extra["largest_beta"] > 0


@pytest.mark.parametrize("given", [{"lambda_": 0.3}, {"gamma": 0.3}])
def test_a_power_below_one_leaves_fewer_features(given):
    X, Y = problem(12, n=120, d=20)
    method = MLMLFS if "lambda_" in given else SMLFS
    found = [quiet(method(3, p=p, **given, tol=1e-8, max_iter=200), X, hide(Y, "rows and entries")) for p in (1.0, 0.4)]
    of_one, of_less = ((each.scores_ > 1e-3 * each.scores_.max()).sum() for each in found)
    assert of_less < of_one
    objective = np.array(found[1].report_.objective)
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()


def test_features_that_go_with_one_another_share_less_weight():
    """The second feature is nearly the first; a third tells the label less."""
    rng = np.random.default_rng(0)
    Y = (rng.random((400, 2)) < 0.5).astype(np.int8)
    X = rng.normal(size=(400, 6))
    X[:, 0] += 2.0 * Y[:, 0]
    X[:, 1] = X[:, 0] + 0.3 * rng.normal(size=400)
    X[:, 2] += 0.7 * Y[:, 0]
    without, found = (quiet(LFFS(2, n_latent=2, delta=delta, gamma=0.02), X, Y).scores_ for delta in (0.0, 5.0))
    assert found[2] / found[:2].sum() > 1.3 * without[2] / without[:2].sum()


def test_labels_that_meet_often_have_like_parts_in_latent_ones():
    X, Y = problem(14)
    few, all_of_them = ([quiet(LFFS(3, n_latent=k, mu=mu), X, Y).scores_ for mu in (0.0, 1.0)] for k in (2, 4))
    assert np.abs(few[0] - few[1]).max() > 0.01 * few[0].max()
    assert all_of_them[0] == pytest.approx(all_of_them[1], rel=1e-2, abs=1e-3)


def test_mifs_finds_features_of_the_labels_by_fewer_latent_ones():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=200)
    Y = np.stack([factor > 0, factor > 0.3, factor > -0.3], axis=1).astype(np.int8)
    X = rng.normal(size=(200, 12))
    X[:, 7] = factor
    assert quiet(MIFS(1, n_latent=1), X, Y).ranking_[0] == 7


def test_few_rows_with_other_labels_change_less_than_with_squares():
    """Of 200 rows, 20 have the labels of the other class: the planted feature stays the best."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    Y = (X[:, :1] > 0).astype(int)
    X[:20, 1] += 40.0 * (Y[:20, 0] - 0.5)
    Y[:20] = 1 - Y[:20]
    assert quiet(RFS(1), X, Y).ranking_[0] == 0


def test_more_features_than_their_products_fit_are_refused():
    wide = as_rows(sp.random_array((40, 30_000), density=1e-3, format="csr", rng=0), np.eye(40, 2, dtype=int))
    with pytest.raises(DoesNotFitError, match="cure: "):
        RFS(2).plan(wide, Resources(1, 1, 2**31, 2**31))


def test_a_feature_and_its_opposite_in_other_units_score_alike():
    X, Y = problem(2)
    other = X.copy()
    other[:, 1] = 40.0 - 3.0 * X[:, 1]
    other[:, 4] += 100.0
    assert quiet(CMFS(3), other, Y).scores_ == pytest.approx(quiet(CMFS(3), X, Y).scores_, rel=1e-7, abs=1e-9)


def test_the_graph_joins_rows_of_one_label_set():
    X, Y = problem(3)
    none, some, more = (
        quiet(CMFS(3, **given), X, Y)
        for given in ({"beta": 0.0}, {"beta": 20.0, "n_label_sets": 1}, {"beta": 20.0, "n_label_sets": 16})
    )
    assert some.report_.extra["label_sets"] == 1 < more.report_.extra["label_sets"]
    for found in (some, more):
        assert np.abs(found.scores_ - none.scores_).max() > 1e-4 * none.scores_.max()
    assert np.abs(more.scores_ - some.scores_).max() > 1e-4 * none.scores_.max()


def test_label_sets_are_told_apart_and_counted():
    Y = sp.csr_array(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 1]], np.int8))
    keys = label_set_keys(Y)
    assert [keys.tolist().index(key) for key in keys] == [0, 1, 0, 3, 1, 1, 6]
    assert frequent_label_sets(Y, 5).tolist() == sorted([keys[0], keys[1]])
    assert frequent_label_sets(Y, 1).tolist() == [keys[1]]
    Z = LabelSets(frequent_label_sets(Y, 5)).members(Y)
    assert Z.sum(axis=1).tolist() == [1, 1, 1, 0, 1, 1, 0]
    assert (Z @ Z.T).toarray()[0].tolist() == [1, 0, 1, 0, 0, 0, 0]
    assert LabelSets(np.empty(0, np.uint64)).members(Y).shape == (7, 0)


def test_nothing_has_as_many_numbers_as_there_are_pairs_of_features():
    wide = as_rows(sp.random_array((40, 50_000), density=1e-3, format="csr", rng=0), np.eye(40, 5, dtype=int))
    plan = CMFS(2).plan(larger(wide.profile, 100_000), Resources(1, 1, 2**32, 2**32))
    assert plan.peak_driver_bytes - driver_bytes() < 2**30


def test_labels_of_a_graph_that_are_equally_near_share_an_edge():
    """However the labels are ordered: here labels 1 and 2 have the same rows, as 3 and 4 have."""
    rng = np.random.default_rng(0)
    Y = (rng.random((40, 5)) < 0.4).astype(float)
    Y[:, 2], Y[:, 4] = Y[:, 1], Y[:, 3]
    for k in (1, 2, 3, 9):
        found, order = neighbour_laplacian(Y.T @ Y, k), [3, 0, 4, 2, 1]
        assert neighbour_laplacian(Y[:, order].T @ Y[:, order], k) == pytest.approx(found[np.ix_(order, order)])
        assert np.trace(found) == pytest.approx(5)
        assert found.sum(axis=1) == pytest.approx(0, abs=1e-12)


def test_labels_of_sfs_bll_have_the_share_of_the_known_ones():
    """With thresholds that make the objective least fewer unknown labels are 1."""
    X, Y = problem(2, n=200)
    hidden = hide(Y, "rows")
    unknown = (hidden < 0).all(axis=1)
    shares = {}
    for threshold in ("prior", "half"):
        _, _, F = sfs_bll_steps(X, hidden, centres_of(X), threshold=threshold)
        shares[threshold] = F[unknown].mean(axis=0)
    assert shares["prior"] == pytest.approx(Y[~unknown].mean(axis=0), abs=1 / unknown.sum())
    assert shares["half"].mean() < 0.8 * shares["prior"].mean()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_threshold_lies_between_margins_and_never_between_equal_ones(share):
    margins = np.array([0.3, 0.1 + 0.2, 5.0, -1.0, 0.1, 0.3, 2.0, -4.0])
    ones = margins >= share_threshold(margins, share)
    assert abs(ones.sum() - share * 8) <= 1
    assert len(set(ones[[0, 1, 5]].tolist())) == 1
    assert share_threshold(margins[:0], share) == 0


def test_bits_of_uafs_bh_are_balanced_and_the_objective_falls_to_features_of_clusters():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, 200)
    X = rng.normal(size=(200, 10))
    X[:, 3], X[:, 7] = 4.0 * (group % 2) + 0.3 * X[:, 3], 4.0 * (group // 2) + 0.3 * X[:, 7]
    none = np.full((200, 2), -1, np.int8)
    for given in ({}, {"mu": 0.1, "n_bits": 3}, {"gamma": 0.5}):
        found = quiet(UAFSBH(2, **given, tol=1e-7), X, none)
        objective = np.array(found.report_.objective)
        assert np.diff(objective).max() <= 1e-9 * objective[0]
        assert sorted(found.ranking_[:2].tolist()) == [3, 7]
    _, _, F = uafs_bh_steps(X, centres_of(X), tol=1e-7)
    assert F.mean(axis=0) == pytest.approx(0.5)
    assert quiet(UAFSBH(2, gamma=3.0, tol=1e-7), X, none).scores_.max() < 0.01 * found.scores_.max()


def test_uafs_bh_looks_at_no_labels():
    X, Y = problem(4)
    found, other = quiet(UAFSBH(3), X, Y), quiet(UAFSBH(3), X, hide(1 - Y, "entries"))
    assert found.scores_.tobytes() == other.scores_.tobytes()


def test_first_bits_of_a_graph_in_parts_do_not_hang_on_rounding():
    """Parts of a graph have one eigenvalue: without more, any rotation of their eigenvectors would do."""
    rng = np.random.default_rng(0)
    Z = np.kron(np.eye(4), rng.dirichlet(np.ones(3), 50))
    ZZ, centres = Z.T @ Z, rng.normal(size=(12, 5))
    noise = 1e-13 * rng.normal(size=ZZ.shape)
    first, second = (spectral_values(Z.sum(axis=0), each, centres)[:, :6] for each in (ZZ, ZZ + noise + noise.T))
    assert np.abs(np.sum(first * second * Z.sum(axis=0)[:, np.newaxis], axis=0)) == pytest.approx(1.0, abs=1e-8)
