"""mFSIR with anchors: against its plain twin in every container and cut, descent, and the exact form with its graph."""

from __future__ import annotations

import tracemalloc

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy import sparse as sp

from mlfs_dask import MFSIR
from mlfs_dask.blocks.anchors import place_anchors
from mlfs_dask.blocks.heat_kernel import mean_degree
from mlfs_dask.blocks.latent_rows_compiled import sweep_nonnegative
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.sample import SampledRows
from mlfs_dask.statistics.scaling import Scaling
from tests.reference import mfsir as exact_twin
from tests.reference import mfsir_anchors as twin
from tests.reference.anchors import means_of_rows
from tests.reference.elc import standardise
from tests.selectors.anchored import check, problem, quiet

#: Parameters of the selector that the twin does not take.
OURS = ("beta", "n_neighbors", "lambda_", "n_anchors", "gram_cap", "random_state")


def anchored(**parameters):
    return MFSIR(1, graph="anchors", **parameters)


def expected(X, Y, *, sparse=False, **parameters):
    """The twin's scores, objective and variables, with the anchors of the selector."""
    points = standardise(X)
    n, d = points.shape
    beta, seed = parameters.get("beta", 1.0), parameters.get("random_state", 0)
    centres, gamma = np.zeros((1, d)), 0.0
    if beta:
        m = min(n, max(8, min(parameters.get("n_anchors", 300), n // 4)))
        centres = place_anchors(points, m, seed)
        if 2 * np.count_nonzero(X) < X.size:  # k-means has rows that are not centred, and sees fewer of their digits
            factor = points.any(axis=0) / np.maximum(X.std(axis=0), 1e-12)
            centres = place_anchors(sp.csr_array(X * factor), m, seed) - X.mean(axis=0) * factor
        width = parameters.get("lambda_", np.sqrt(2.0 * points.any(axis=0).sum()))
        gamma = beta * mean_degree(points, parameters.get("n_neighbors", 5), width**2)
    bound = parameters.get("gram_cap", 4096) < d
    given = {name: value for name, value in parameters.items() if name not in OURS}
    return twin.mfsir(X, Y, centres, gamma, **{"weight_steps": 1 if bound else 5, "bound": bound, **given})


PARAMETERS = {
    "defaults": {},
    "many iterations": {"tol": 0.0, "max_iter": 40},
    "one step": {"weight_steps": 1, "label_steps": 1, "max_iter": 12},
    "no graph": {"beta": 0},
    "small beta": {"beta": 1e-3},
    "large beta": {"beta": 30.0},
    "no labels": {"alpha": 0, "max_iter": 15},
    "large alpha": {"alpha": 100.0},
    "one latent label": {"n_latent": 1},
    "all latent labels": {"n_latent": 4},
    "nearest anchor": {"anchor_neighbors": 1},
    "more neighbours than anchors": {"anchor_neighbors": 50},
    "few anchors": {"n_anchors": 9},
    "kernel": {"n_neighbors": 2, "lambda_": 2.0},
    "no gram": {"gram_cap": 0},
    "no gram, more steps": {"gram_cap": 8, "weight_steps": 3},
    "seed": {"random_state": 7},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_equals_the_plain_twin(name):
    for seed in range(2):
        X, Y = problem(seed)
        found = quiet(anchored(**PARAMETERS[name]), X, Y)
        check(found, expected(X, Y, **PARAMETERS[name]))
        assert found.report_.extra["gram"] is ("gram_cap" not in PARAMETERS[name])


# ---------------------------------------------------------------- descent


@settings(max_examples=40)
@given(st.data())
def test_the_objective_never_rises(data):
    X, Y = problem(data.draw(st.integers(0, 10**6)), n=data.draw(st.integers(2, 90)), q=data.draw(st.integers(1, 6)))
    X *= data.draw(st.sampled_from([1e-6, 1.0, 1e6]))
    parameters = {
        "alpha": data.draw(st.sampled_from([0, 1e-2, 1, 1e3])),
        "beta": data.draw(st.sampled_from([0, 1e-2, 1, 1e3])),
        "n_neighbors": data.draw(st.integers(1, 9)),
        "anchor_neighbors": data.draw(st.integers(1, 5)),
        "weight_steps": data.draw(st.integers(1, 4)),
        "label_steps": data.draw(st.integers(1, 4)),
        "n_latent": data.draw(st.integers(1, Y.shape[1])),
        "gram_cap": data.draw(st.sampled_from([0, 4096])),
    }
    found = quiet(anchored(tol=0.0, max_iter=25, **parameters), X, Y)
    objective = np.array(found.report_.objective)
    assert len(objective) >= 2
    assert (np.diff(objective) <= 1e-9 * objective[:-1] + 1e-12 * Y.sum()).all()
    assert np.isfinite(found.scores_).all()


# ---------------------------------------------------------------- the exact form, its graph being ZΛ⁻¹Z'


@pytest.mark.parametrize(("alpha", "gamma"), [(1.0, 5.0), (0.1, 0.3), (30.0, 50.0)])
def test_anchors_are_the_exact_form_with_their_graph(alpha, gamma):
    """At the best U the objectives are equal, and rows and U in turns end at the exact minimiser over V."""
    X, Y = problem(1)
    _, _, (W, _, B, _, Z) = expected(X, Y, max_iter=6, tol=0.0)
    X, Y = standardise(X), Y.astype(float)
    S = Z @ np.diag(1 / Z.sum(axis=0)) @ Z.T
    assert S.sum(axis=1) == pytest.approx(np.ones(len(X)))
    L = np.eye(len(X)) - S
    V = np.abs(np.random.default_rng(0).normal(size=(len(X), len(B))))
    exact = exact_twin.objective(X, Y, L, W, np.ones_like(W), V, B, alpha, gamma)
    assert twin.objective(Z, X, Y, W, V, B, means_of_rows(Z, V), alpha, gamma) == pytest.approx(exact, rel=1e-12)

    # Exactly: non-negative least squares in all of V, vec(V)'(I ⊗ (I + αBB') + γ L ⊗ I) vec(V) − 2 r'vec(V).
    Q = np.eye(len(B)) + alpha * B @ B.T
    system = np.kron(np.eye(len(X)), Q) + gamma * np.kron(L, np.eye(len(B)))
    r = (X @ W + alpha * Y @ B.T).ravel()
    root = np.linalg.cholesky(system).T
    best = optimize.nnls(root, np.linalg.solve(root.T, r), maxiter=10_000)[0].reshape(V.shape)
    U = means_of_rows(Z, V)
    for _ in range(3000):
        right = X @ W + alpha * Y @ B.T + gamma * Z @ U
        V = right @ np.linalg.inv(Q + gamma * np.eye(len(B)))
        np.maximum(V, 0.0, out=V)
        sweep_nonnegative(V, right, Q + gamma * np.eye(len(B)), 50)
        U, before = means_of_rows(Z, V), U
        if np.abs(U - before).max() < 1e-13:
            break
    assert pytest.approx(best, abs=1e-8) == V


def test_placing_anchors_holds_what_was_planned():
    n, d = 3000, 400
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    selector, scaling = MFSIR(2, graph="anchors"), Scaling(np.zeros(d), np.ones(d))
    planned = selector.plan(as_rows(X, X[:, :2] > 0), Resources(1, 1, 2**33, 2**33)).arrays
    selector.make_method()._place_anchors(
        SampledRows(X[:300], sp.csr_array((300, 2))), 50, scaling
    )  # libraries are loaded
    tracemalloc.start()
    try:
        selector.make_method()._place_anchors(SampledRows(X.copy(), sp.csr_array((n, 2))), selector.n_anchors, scaling)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    held = planned["sample"] + planned["5 d m"]  # k-means, and the anchors
    assert 0.8 * held < peak < 1.05 * held


def test_rows_that_lie_equally_far_do_not_make_scores_depend_on_partitions():
    rng = np.random.default_rng(5)
    X = (rng.random((300, 30)) < 0.1).astype(float)
    Y = ((X @ rng.normal(size=(30, 4)) + rng.normal(size=(300, 4))) > 0.5).astype(int)
    fits = [MFSIR(5, graph="anchors").fit(da.from_array(X, chunks=(rows, 30)), Y) for rows in (300, 100, 13)]
    for fit in fits[1:]:
        assert fit.scores_ == pytest.approx(fits[0].scores_, rel=1e-9)
