"""Exact SMFS: against its plain twin, the ways to regress, limit cases, the published form, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.forest import float32_scaling, forest_columns, forest_seeds
from mlfs_dask.errors import DataError
from mlfs_dask.exact import smfs
from mlfs_dask.exact.graphs import least_mass_rows
from mlfs_dask.exact.smfs import density_structure
from mlfs_dask.solvers import row_sparse_regression
from tests.exact.fits import fit_smfs
from tests.problems import problem_with_equal_rows as problem
from tests.problems import real_data
from tests.reference import smfs as twin

SMALL = {"n_neighbors": 5, "n_trees": 12, "max_samples": 32}


def hidden(Y, seed=0, *, rows=0.5, entries=0.3):
    """−1 for half of the rows, and for some entries of the others."""
    rng = np.random.default_rng([seed, 7])  # not the stream that Y was drawn from
    Y = np.where(rng.random(Y.shape) < entries, -1, Y)
    Y[rng.random(len(Y)) < rows] = -1
    Y[0] = 1
    return Y.astype(np.int8)


STATES = {
    "zeros": lambda Y: Y,
    "rows": lambda Y: hidden(Y, entries=0.0),
    "entries": hidden,
}


def graph(X, *, seed=0, n_neighbors=5, n_trees=12, max_samples=32):
    found = least_mass_rows(X, n_neighbors, n_trees=n_trees, max_samples=max_samples, seed=seed)
    return density_structure(found.neighbours).toarray()


def check(found, expected, *, objective=1e-8, scores=1e-6):
    norms, _, F, values = expected
    values = values[: found.trace.iterations]  # the twin goes on where nothing moves any more
    assert found.trace.objective == pytest.approx(values, rel=objective)
    assert found.scores == pytest.approx(norms, rel=scores, abs=1e-9 * norms.max())
    assert found.labels == pytest.approx(F, abs=1e-6)


def weights_of_rows(Y):
    times = (Y == 1).sum(axis=0)
    return np.array([sum(1 / times[j] for j in range(Y.shape[1]) if row[j] == 1) for row in Y])


@pytest.fixture(scope="module")
def emotions():
    return real_data("emotions")


def test_the_density_structure_is_that_of_the_twin():
    X, _ = problem()
    prepared = (X * float32_scaling(X)[1]).astype(np.float32)
    prepared = prepared[:, forest_columns(prepared)]
    xi = twin.isolation_masses(twin.grow_trees(prepared, 12, 32, forest_seeds(0)[1]), prepared)
    W = graph(X)
    assert pytest.approx(twin.neighbour_weights(xi, 5), abs=1e-12) == W
    assert W.sum(axis=1) == pytest.approx(np.ones(len(X)))


@pytest.mark.parametrize(
    ("state", "container"), [("zeros", sp.csr_array), ("rows", np.asarray), ("entries", sp.csr_array)]
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 1.0, "beta": 1.0, "inner_iterations": 1},
        {"consistency": "none", "max_iter": 4},
        {"standardise": False},
    ],
    ids=str,
)
def test_it_equals_the_plain_twin(state, options, container):
    X, Y = problem()
    Y = STATES[state](Y)
    found = fit_smfs(container(X), Y, **{"tol": 0.0, "max_iter": 8} | SMALL | options)
    expected = twin.smfs(
        X,
        Y,
        graph(X),
        inner=options.get("inner_iterations"),
        iterations=options.get("max_iter", 8),
        **{name: value for name, value in options.items() if name not in ("inner_iterations", "max_iter")},
    )
    check(found, expected)


@pytest.mark.parametrize("state", STATES)
def test_above_the_gram_cap_it_comes_to_the_same_end(state, monkeypatch):
    X, Y = problem(n=60)
    Y = STATES[state](Y)
    options = SMALL | {"tol": 1e-13, "max_iter": 3000, "beta": 0.2}
    with_gram = fit_smfs(X, Y, **options)
    without = fit_smfs(X, Y, gram_cap=0, **options)
    assert with_gram.extra["gram"]
    assert not without.extra["gram"]
    assert without.trace.objective[-1] == pytest.approx(with_gram.trace.objective[-1], rel=1e-8)
    assert without.scores == pytest.approx(with_gram.scores, abs=1e-4 * with_gram.scores.max())
    # Solved as exactly, every step is the same.
    monkeypatch.setattr(row_sparse_regression, "FEATURE_TOL", 1e-13)
    monkeypatch.setattr(row_sparse_regression, "FEATURE_STEPS", 100)
    options |= {"max_iter": 8, "inner_iterations": 3}
    with_gram, without = fit_smfs(X, Y, **options), fit_smfs(X, Y, gram_cap=0, **options)
    assert without.trace.objective == pytest.approx(with_gram.trace.objective, rel=1e-9)
    assert without.scores == pytest.approx(with_gram.scores, rel=1e-6)


@pytest.mark.parametrize(("cap", "state"), [(2, "rows"), (5, "zeros"), (8, "entries")])
def test_solved_for_some_features_at_a_time_it_comes_to_the_same_end(cap, state):
    X, Y = problem(n=60, d=12)
    Y = STATES[state](Y)
    options = SMALL | {"tol": 1e-10, "max_iter": 1000}
    with_gram = fit_smfs(X, Y, **options)
    found = fit_smfs(X, Y, gram_cap=cap, **options)
    assert not found.extra["gram"]
    # The set leaves another trail to ε, which is 10⁻⁶ of the first P.
    assert found.trace.objective[-1] == pytest.approx(with_gram.trace.objective[-1], rel=1e-6)
    assert found.scores == pytest.approx(with_gram.scores, abs=1e-4 * with_gram.scores.max())
    near = fit_smfs(X, Y, gram_cap=cap, **SMALL)
    assert near.trace.converged
    assert near.trace.objective[-1] == pytest.approx(with_gram.trace.objective[-1], rel=5e-3)


def test_known_labels_stay():
    X, Y = problem()
    known = fit_smfs(X, Y, unknown_labels="coded", tol=0.0, max_iter=6, **SMALL)
    assert known.extra["unknown_entries"] == 0
    assert known.labels.tolist() == np.where(Y == 1, 1.0, -1.0).tolist()
    labels = hidden(Y)
    found = fit_smfs(X, labels, **SMALL)
    assert found.labels[labels != -1].tolist() == np.where(Y == 1, 1.0, -1.0)[labels != -1].tolist()


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("gram_cap", [0, 100])
def test_all_rows_labelled(gram_cap):
    X, Y = problem()
    found = fit_smfs(X, Y, unknown_labels="coded", gram_cap=gram_cap, beta=0.3, tol=1e-13, max_iter=2000, **SMALL)
    assert found.extra["labelled_rows"] == len(X)  # rows without a positive label are labelled, too
    assert found.extra["unknown_entries"] == found.extra["recovered_positives"] == 0
    # Nothing is left but a regression with a row-sparse penalty, at whose optimum ∇‖XP − F‖²_S is −β pⁱ/‖pⁱ‖.
    s = weights_of_rows(Y)
    Z = (X - X.mean(axis=0))[:, :-1] / X.std(axis=0)[:-1]
    F = np.where(Y == 1, 1.0, -1.0)
    P = twin.smfs(X, Y, graph(X), unknown_labels="coded", beta=0.3, iterations=2000)[1]
    assert found.scores == pytest.approx(np.linalg.norm(P, axis=1), abs=1e-4 * found.scores.max())
    P = P[:-1]
    slope = 2 * Z.T @ (s[:, np.newaxis] * (Z @ P - F))
    norms = np.linalg.norm(P, axis=1, keepdims=True)
    strong = norms[:, 0] > 1e-3
    assert strong.any()
    assert slope[strong] == pytest.approx((-0.3 * P / norms)[strong], abs=1e-4)
    assert np.linalg.norm(slope[~strong], axis=1).max(initial=0) <= 0.3


def test_the_published_form_forgets_its_labels(emotions):
    published = {"consistency": "none", "alpha": 1.0, "beta": 1.0, "inner_iterations": 1}
    objective = fit_smfs(*emotions, tol=0.0, max_iter=16, **published).trace.objective
    assert objective[0] > 10
    assert objective[-1] < 0.1


def test_observed_labels_keep_the_objective_up_and_it_converges(emotions):
    X, Y = emotions
    for labels in (Y, hidden(Y, rows=0.7), hidden(Y, rows=0.7, entries=0.0)):
        trace = fit_smfs(X, labels).trace
        assert trace.converged
        assert trace.objective[-1] > 0.05 * trace.objective[0]
        assert trace.objective[-1] == pytest.approx(min(trace.objective), rel=1e-2)


# ---------------------------------------------------------------- what is recorded, told and refused


def test_the_seed_settles_the_forest():
    X, Y = problem()
    one, again, other, none = (fit_smfs(X, Y, random_state=s, **SMALL).scores.tolist() for s in (0, 0, 2, None))
    assert one == again == none != other


def test_labels_of_which_nothing_is_known_are_refused():
    X, Y = problem()
    with pytest.raises(DataError, match=r"no row of Y has a positive label\n  cure: give labels 1 and 0"):
        fit_smfs(X, np.zeros_like(Y), **SMALL)
    with pytest.raises(DataError, match="no label of any row is known"):
        fit_smfs(X, np.full_like(Y, -1), **SMALL)


def test_above_the_cap_nothing_has_d_times_d_numbers():
    assert "d d" not in smfs.workspace(sparse=False, gram=False)
    assert "d d" in smfs.workspace(sparse=False, gram=True)
