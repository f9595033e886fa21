"""Regressions on labels that a graph of the rows makes alike: a program of authors, graphs of labels."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import FSCLA, GLFS, MIFS, MLMLFS, RFS, SCFS, SFAM, SFSBLL, UAFSBH
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.exact import sfs_bll as exact_form
from mlfs_dask.selectors import get_method
from mlfs_dask.selectors.uafs_bh import spectral_values
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.binary_rows import share_threshold
from mlfs_dask.statistics.label_statistics import neighbour_laplacian
from mlfs_dask.statistics.moments import FeatureMoments
from tests.conftest import published
from tests.problems import real_data
from tests.reference.graph_regressions import (
    mdfs_steps,
    neighbour_graph,
    sfs_bll_program,
    sfs_bll_steps,
    uafs_bh_steps,
)
from tests.reference.twins import centres_of, twin
from tests.selectors.anchored import hide, problem, quiet

LOOPS = pytest.mark.parametrize("method", [FSCLA, SCFS, SFAM, SFSBLL])


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


@LOOPS
@pytest.mark.parametrize("unknown", ["rows", "entries", "rows and entries"])
def test_where_labels_are_unknown_scores_are_those_of_the_plain_twin(method, unknown):
    X, Y = problem(3, n=50)
    hidden = hide(Y, unknown)
    expected = twin(method().plain.method)(X, hidden, tol=0.0, max_iter=4)
    assert quiet(method(3, tol=0.0, max_iter=4), X, hidden).scores_ == pytest.approx(expected, rel=1e-8, abs=1e-12)


@LOOPS
@pytest.mark.parametrize("unknown", ["nothing", "rows and entries"])
def test_the_objective_falls_and_rises_by_what_neighbours_change_alone(method, unknown):
    """Where anchors follow their rows, the squares of the weights are not in the objective, and it may rise.

    That of SFS-BLL may rise by what moves its thresholds, which it does not here.
    """
    X, Y = problem(1, n=60, d=12, q=3)
    for given in ({"gamma": 0.1}, {"gamma": 0.01}, {"alpha": 0.1, "kappa": 5.0}):
        objective = np.array(quiet(method(3, **given, tol=1e-7), X, hide(Y, unknown)).report_.objective)
        assert np.diff(objective).max() <= (1e-9 if method in (FSCLA, SFSBLL) else 0.02) * objective[0]
        assert objective[-1] < 0.99 * objective[0]


@LOOPS
def test_rows_without_labels_count_in_the_graph(method):
    X, Y = problem(7)
    hidden = hide(Y, "rows")
    labelled = (hidden >= 0).all(axis=1)
    together = quiet(method(3), X, hidden).scores_
    noise = np.where(labelled[:, np.newaxis], X, np.random.default_rng(0).normal(size=X.shape))
    assert np.abs(quiet(method(3), noise, hidden).scores_ - together).max() > 0.01 * together.max()
    with pytest.raises(DataError, match="are known in no row\n  cure: give labels 1 and 0"):
        method(3).fit(X, np.full_like(Y, -1))


@LOOPS
def test_more_features_than_the_gram_cap_are_refused_with_the_cure(method):
    X, Y = problem(5)
    with pytest.raises(
        DoesNotFitError, match=r"X'X of 9 features, .* at most 8 \(gram_cap\)(.|\n)*cure: raise gram_cap"
    ):
        method(3, gram_cap=8).fit(X, Y)


def test_published_sfs_bll_has_the_scores_of_the_authors_on_emotions_and_says_where_it_collapses():
    X, Y = real_data("emotions")
    oracle = published("sfs_bll")
    rows, q = oracle["shape"]
    hidden = as_labels(np.where(np.arange(rows)[:, np.newaxis] < oracle["n_labelled"], Y, -1).astype(np.int8))
    moments = FeatureMoments(rows, X.mean(axis=0), X.var(axis=0) * rows)
    codes = np.unpackbits(oracle["codes"], count=rows * q).reshape(rows, q)
    method = get_method("sfs-bll")(variant="published", kappa=100.0, gamma=0.1, tol=0.0, max_iter=20)
    found = exact_form.fit(method, X, hidden, moments, {"B": codes})
    assert found.scores == pytest.approx(oracle["scores"], rel=1e-9)
    assert np.argsort(-found.scores, kind="stable").tolist() == oracle["ranking"].tolist()
    assert found.extra["ones_of_unlabelled"] == pytest.approx(oracle["ones_unlabelled"])
    ones = np.unpackbits(oracle["one_codes"], count=rows * q).reshape(rows, q)
    method = get_method("sfs-bll")(variant="published", kappa=1.0, beta=1.0, gamma=1.0, tol=0.0, max_iter=20)
    with pytest.raises(MlfsError, match=r"diverged in iteration 1[78]: (.|\n)*cure: take variant='corrected'"):
        exact_form.fit(method, X, hidden, moments, {"B": ones})


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
    first, second = (
        spectral_values(AnchorTotals(np.empty((12, 0)), Z.sum(axis=0), each, np.empty((12, 0))), centres)[:, :6]
        for each in (ZZ, ZZ + noise + noise.T)
    )
    assert np.abs(np.sum(first * second * Z.sum(axis=0)[:, np.newaxis], axis=0)) == pytest.approx(1.0, abs=1e-8)
