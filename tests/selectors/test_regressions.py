"""Regressions on sums of one reading: programs of authors, what penalties do, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import CSFS, FSSRDM, GLFS, LEDA, LFFS, LLSF, LSMR, MDFS, MIFS, MLMLFS, SFSS, SMDRIC, SMILE, SMLFS
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError, DoesNotFitError, MlfsError
from mlfs_dask.exact import glfs, mifs, mlmlfs
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors import get_method
from mlfs_dask.solvers import proximal
from mlfs_dask.statistics.filled_labels import fill_labels
from tests.conftest import published
from tests.exact.fits import Moments
from tests.problems import real_data
from tests.reference import regressions
from tests.reference.twins import twin
from tests.selectors.anchored import hide, larger, problem, quiet

#: Each with the parameters that are relative to the least at which W = 0.
SPARSE = pytest.mark.parametrize(
    ("method", "strengths"),
    [
        (CSFS, ["alpha"]),
        (GLFS, ["beta", "gamma"]),
        (LLSF, ["beta"]),
        (FSSRDM, ["gamma"]),
        (LFFS, ["gamma"]),
        (LSMR, ["gamma"]),
        (MDFS, ["gamma"]),
        (MIFS, ["gamma"]),
        (MLMLFS, ["lambda_"]),
        (SFSS, ["gamma"]),
        (SMDRIC, ["alpha", "beta"]),
        (SMLFS, ["gamma"]),
    ],
)


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


@SPARSE
def test_the_objective_never_rises_and_the_loop_ends(method, strengths):
    for seed in range(4):
        X, Y = problem(seed, n=60, d=12, q=3)
        for value in (0.01, 0.1, 0.6):
            found = quiet(method(3, **dict.fromkeys(strengths, value)), X, Y)
            objective = np.array(found.report_.objective)
            assert (np.diff(objective) <= 1e-9 * np.abs(objective).max()).all()
            assert found.report_.converged
            assert found.n_iter_ == len(found.report_.objective)


def test_llsf_is_at_the_minimum():
    """Every slope of the smooth part is β against the sign of a weight, and at most β where the weight is 0."""
    X, Y = problem(2)
    found = quiet(LLSF(3, beta=0.2, alpha=0.0, tol=1e-9), X, Y)
    from sklearn.linear_model import Lasso

    std = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(std > 0, std, 1.0)
    weight = 0.2 * np.abs(Z.T @ (Y - Y.mean(axis=0))).max()
    expected = Lasso(weight / len(X), tol=1e-12, max_iter=10**6).fit(Z, Y.astype(float)).coef_
    assert found.scores_ == pytest.approx(np.linalg.norm(expected, axis=0), rel=1e-5, abs=1e-8)


def test_dependence_raises_the_weights_of_features_that_go_with_the_labels():
    X, Y = problem(3)
    without, with_it = (quiet(FSSRDM(4, beta=beta), X, Y) for beta in (0.0, 0.8))
    assert with_it.scores_[:4].sum() > 1.5 * without.scores_[:4].sum()
    assert with_it.report_.extra["largest_beta"] > 0


def test_fssrdm_learns_from_the_rows_whose_labels_are_known():
    X, Y = problem(4)
    hidden = hide(Y, "rows and entries")
    labelled = (hidden >= 0).all(axis=1)
    found, alone = quiet(FSSRDM(3), X, hidden), quiet(FSSRDM(3), X[labelled], Y[labelled])
    assert found.scores_.tolist() == pytest.approx(alone.scores_.tolist(), rel=1e-8)
    assert found.report_.extra["labelled_rows"] == labelled.sum() > 0
    with pytest.raises(DataError, match="are known in no row\n  cure: give labels 1 and 0"):
        FSSRDM(3).fit(X, np.full_like(Y, -1))


@SPARSE
def test_more_features_than_the_gram_cap_are_refused_with_the_cure(method, strengths):
    X, Y = problem(5)
    source = as_rows(X, Y)
    with pytest.raises(
        DoesNotFitError, match=r"X'X of 9 features, .* at most 8 \(gram_cap\)(.|\n)*cure: raise gram_cap"
    ):
        method(3, gram_cap=8).fit(X, Y)
    with pytest.raises(DoesNotFitError):
        method(3, gram_cap=8).plan(source, Resources(1, 1, 2**33, 2**33))


def test_a_loop_that_max_iter_ends_says_so():
    X, Y = problem(6)
    for method in (each(3, max_iter=2) for each in (LLSF, FSSRDM, LSMR, MIFS)):
        with pytest.warns(UserWarning, match="did not converge in 2 iterations. Increase max_iter, or tol"):
            method.fit(X, Y)


def test_lsmr_sees_unlabelled_rows_in_the_graph_alone():
    X, Y = problem(7)
    hidden = hide(Y, "rows")
    labelled = (hidden >= 0).all(axis=1)
    other = np.where(labelled[:, np.newaxis], X, X[~labelled][::-1][np.cumsum(~labelled) - 1])
    without = quiet(LSMR(3, alpha=0.0), X, hidden).scores_
    assert quiet(LSMR(3, alpha=0.0), other, hidden).scores_ == pytest.approx(without, rel=1e-8)
    some = quiet(LSMR(3, alpha=0.5), X, hidden).scores_
    assert np.abs(some - without).max() > 0.01 * without.max()
    with pytest.raises(DataError, match="are known in no row"):
        LSMR(3).fit(X, np.full_like(Y, -1))


@pytest.mark.parametrize("by", ["nothing", "rows", "rows and entries"])
def test_labels_of_sfss_spread_over_the_graph(by):
    X, Y = problem(10)
    hidden = hide(Y, by)
    found = quiet(SFSS(3, mu=0.2, tol=1e-9, max_iter=999), X, hidden)
    assert found.scores_ == pytest.approx(twin("sfss")(X, hidden, mu=0.2, tol=1e-9, max_iter=999), rel=1e-6, abs=1e-8)
    labelled = (hidden >= 0).all(axis=1)
    assert found.report_.extra["labelled_rows"] == labelled.sum() > 0
    alone = quiet(SFSS(3, mu=0.2), X[labelled], Y[labelled]).scores_
    assert by == "nothing" or np.abs(found.scores_ - alone).max() > 0.01 * alone.max()
    with pytest.raises(DataError, match="are known in no row"):
        SFSS(3).fit(X, np.full_like(Y, -1))


def test_published_mifs_takes_the_steps_of_the_program_on_emotions():
    X, Y = real_data("emotions")
    oracle = published("mifs")
    method = MIFS(variant="published", gamma=1.0, n_latent=2, tol=1e-3, max_iter=500).make_method()
    found = mifs.fit(method, X, as_labels(Y), Moments(X), {name: oracle[f"{name}0"] for name in "WVB"})
    assert found.scores == pytest.approx(np.linalg.norm(oracle["W"], axis=1), rel=1e-10)
    assert found.trace.objective == pytest.approx(oracle["objective"], rel=1e-10)
    assert found.trace.converged


def test_published_mifs_holds_all_rows_and_refuses_what_does_not_fit():
    X, Y = problem(11)
    selector = MIFS(3, variant="published")
    assert quiet(selector, X, Y).report_.extra["graph"] == {"kind": "exact"}
    with pytest.raises(
        DoesNotFitError, match=r"exact graph of mifs in this process(.|\n)*cure: leave out variant='published'"
    ):
        selector.plan(larger(as_rows(X, Y).profile, 10**8), Resources(1, 1, 2**31, 2**31))
    with pytest.raises(MlfsError, match=r"MIFS as published diverged (.|\n)*cure: take variant='corrected'"):
        quiet(selector.set_params(step=1.0), X, Y)


def test_published_mlmlfs_is_the_program_on_emotions():
    X, Y = real_data("emotions")
    oracle = published("mlmlfs")
    unknown = np.unpackbits(oracle["unknown"], axis=0, count=len(Y)).astype(bool)
    method = MLMLFS(variant="published", alpha=1e-4, lambda_=1.0, tol=0.0, max_iter=20).make_method()
    labels = as_labels(np.where(unknown, np.int8(-1), Y))
    found = mlmlfs.fit(method, X, labels, Moments(X), {"W": oracle["W0"], "b": oracle["b0"]})
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


def test_a_power_below_one_leaves_fewer_features():
    X, Y = problem(12, n=120, d=20)
    hidden = hide(Y, "rows and entries")
    found = [quiet(MLMLFS(3, p=p, lambda_=0.3, tol=1e-8, max_iter=200), X, hidden) for p in (1.0, 0.4)]
    of_one, of_less = ((each.scores_ > 1e-3 * each.scores_.max()).sum() for each in found)
    assert of_less < of_one
    objective = np.array(found[1].report_.objective)
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    found = [quiet(SMLFS(3, p=p, gamma=0.3, tol=1e-8, max_iter=200), X, hidden) for p in (1.0, 0.4)]
    assert np.count_nonzero(found[1].scores_) < np.count_nonzero(found[0].scores_)
    objective = np.array(found[1].report_.objective)
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()


def test_mlmlfs_sees_rows_of_which_nothing_is_known_in_the_graph_alone():
    X, Y = problem(13)
    hidden = hide(Y, "rows")
    labelled = (hidden >= 0).all(axis=1)
    other = np.where(labelled[:, np.newaxis], X, X[~labelled][::-1][np.cumsum(~labelled) - 1])
    without = quiet(MLMLFS(3, alpha=0.0), X, hidden).scores_
    assert quiet(MLMLFS(3, alpha=0.0), other, hidden).scores_ == pytest.approx(without, rel=1e-8)
    assert np.abs(quiet(MLMLFS(3, alpha=0.5), X, hidden).scores_ - without).max() > 0.01 * without.max()
    with pytest.raises(DataError, match="are known in no row"):
        MLMLFS(3).fit(X, np.full_like(Y, -1))


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


def test_unknown_labels_of_csfs_count_where_predictions_leave_the_interval():
    X, Y = problem(8)
    hidden = hide(Y, "rows")
    labelled = (hidden >= 0).all(axis=1)
    together, alone = quiet(CSFS(3), X, hidden), quiet(CSFS(3), X[labelled], Y[labelled])
    assert np.abs(together.scores_ - alone.scores_).max() > 1e-3 * alone.scores_.max()
    with pytest.raises(DataError, match="are known in no row"):
        CSFS(3).fit(X, np.full_like(Y, -1))


def test_smile_fills_labels_in_as_the_program_on_emotions():
    oracle = published("smile")
    _, Y = real_data("emotions")
    labelled = Y[: oracle["n_labelled"]].astype(float)
    N = labelled.T @ labelled
    C = (N + 0.5) / (np.diag(N)[:, np.newaxis] + 1.0)
    assert pytest.approx(oracle["label_correlation"], rel=1e-12) == C
    assert fill_labels(labelled, C)[:50] == pytest.approx(oracle["filled"], rel=1e-12)


def test_smile_sees_unlabelled_rows_in_the_graph_alone():
    X, Y = problem(9)
    hidden = hide(Y, "rows and entries")
    labelled = (hidden >= 0).all(axis=1)
    other = np.where(labelled[:, np.newaxis], X, X[~labelled][::-1][np.cumsum(~labelled) - 1])
    without = quiet(SMILE(3, alpha=0.0), X, hidden)
    assert quiet(SMILE(3, alpha=0.0), other, hidden).scores_ == pytest.approx(without.scores_, rel=1e-8)
    assert without.report_.extra["labelled_rows"] == labelled.sum()
    assert np.abs(quiet(SMILE(3), X, hidden).scores_ - without.scores_).max() > 0.01 * without.scores_.max()
    with pytest.raises(DataError, match="are known in no row"):
        SMILE(3).fit(X, np.full_like(Y, -1))


@pytest.mark.parametrize("by", ["rows", "rows and entries"])
@pytest.mark.parametrize("method", [LEDA, SMDRIC])
def test_labels_are_propagated_as_in_the_twin(method, by):
    X, Y = problem(3)
    X, hidden = X[:, :-1], hide(Y, by)
    reference = twin(method().plain.method)
    for propagation in (0.99, 0.3):
        found = quiet(method(3, propagation=propagation), X, hidden)
        assert found.scores_ == pytest.approx(reference(X, hidden, propagation=propagation), rel=2e-9)
    alone = quiet(method(3), X[(hidden >= 0).all(axis=1)], hidden[(hidden >= 0).all(axis=1)])
    assert np.abs(found.scores_ - alone.scores_).max() > 0.01 * alone.scores_.max()
    with pytest.raises(DataError, match="are known in no row"):
        method(3).fit(X, np.full_like(Y, -1))


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
    P = get_method("smdr-ic")(6)._projection(X.T @ X, X.T @ F)
    signs = np.sign((P * oracle["P"][:, ::-1]).sum(axis=0))
    assert signs * P == pytest.approx(oracle["P"][:, ::-1], abs=1e-12)


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
    from scipy import optimize

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
    with pytest.raises(DataError, match="are known in no row"):
        SMLFS(3).fit(X, np.full_like(Y, -1))


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


@pytest.mark.parametrize(
    # In SMDR-IC rows far from labelled ones have less of every label.
    ("method", "by"),
    [(GLFS, "nothing"), (SMDRIC, "nothing"), *((each, by) for each in (LEDA, SMLFS) for by in ("nothing", "rows"))],
)
def test_labels_that_all_rows_have_tell_nothing(method, by):
    X, Y = problem(8, q=3)
    with pytest.warns(UserWarning, match="cannot rank the features: "):
        found = method(3).fit(X, as_labels(hide(np.ones_like(Y), by)))
    assert found.scores_.tolist() == [0.0] * X.shape[1]


def test_published_glfs_takes_the_steps_of_the_program_on_emotions(monkeypatch):
    X, Y = real_data("emotions")
    oracle = published("glfs")
    groups, label_groups = oracle["groups"], oracle["label_groups"].astype(float)
    weights = {"beta": 1.0, "gamma": 10.0, "tol": 0.001}
    start = {name: oracle[f"{name}0"] for name in "WM"}
    scores, *_, objective = regressions.published_glfs(X, Y, groups, label_groups, start=tuple(start.values()))
    assert scores**2 == pytest.approx(oracle["scores"], rel=1e-9)
    assert objective == pytest.approx(oracle["objective"], rel=1e-12)
    fit = glfs.fit
    monkeypatch.setattr(
        glfs, "fit", lambda method, X, Y, moments, *_: fit(method, X, Y, moments, groups, label_groups, start)
    )
    found = quiet(GLFS(14, variant="published", **weights), X, Y)
    assert found.scores_**2 == pytest.approx(oracle["scores"], rel=1e-9)
    assert found.report_.objective == pytest.approx(oracle["objective"], rel=1e-12)
    assert found.ranking_.tolist() == oracle["ranking"].tolist()
