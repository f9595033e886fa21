"""Access-MFS with anchors: against its plain twin in every container and cut, and the exact form with its graph."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp
from scipy.spatial.distance import pdist

from mlfs_dask import AccessMFS
from mlfs_dask.blocks.anchors import place_anchors
from mlfs_dask.selectors import access_mfs
from tests.reference import access_mfs as exact_twin
from tests.reference import access_mfs_anchors as twin
from tests.reference.anchors import means_of_rows, spread
from tests.selectors.anchored import check, hide, problem, quiet

#: Parameters of the selector that the twin does not take.
OURS = ("n_anchors", "random_state", "standardise")

#: Enough for the first anchors to meet; the twin takes its time.
ITERATIONS = 10


def anchored(**parameters):
    return AccessMFS(1, graph="anchors", **{"max_iter": ITERATIONS, "tol": 0.0} | parameters)


def expected(X, Y, *, sparse=False, **parameters):
    """The twin's scores, labels, objective and variables, with the anchors that the selector would place."""
    n, seed = len(X), parameters.get("random_state", 0)
    m = min(n, max(8, min(parameters.get("n_anchors", 300), n // 4)))
    given = {name: value for name, value in parameters.items() if name not in OURS}
    return twin.access_mfs(
        X,
        Y,
        lambda points: place_anchors(points, m, seed),
        scale=parameters.get("standardise", True),
        **{"max_iter": ITERATIONS, "tol": 0.0} | given,
    )


PARAMETERS = {
    "defaults": {},
    "no graph of rows": {"theta": 0.0},
    "no graph of labels": {"mu": 0.0},
    "no graphs": {"theta": 0.0, "mu": 0.0},
    "large theta and mu": {"theta": 20.0, "mu": 20.0},
    "very large mu": {"mu": 100.0},
    "no sparsity": {"lambda_": 0.0},
    "large lambda": {"lambda_": 100.0},
    "nearest anchor": {"anchor_neighbors": 1},
    "more neighbours than anchors": {"anchor_neighbors": 50},
    "few anchors": {"n_anchors": 9},
    "nearest label": {"k_p": 1},
    "D to its end": {"inner_iterations": 20},
    "not scaled": {"standardise": False},
    "zeros": {"unknown_labels": "zeros"},
    "seed": {"random_state": 7},
}


@pytest.mark.parametrize("by", ["nothing", "rows", "entries", "rows and entries"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_equals_the_plain_twin(name, by):
    X, Y = problem(3)
    Y = hide(Y, by)
    check(quiet(anchored(**PARAMETERS[name]), X, Y), expected(X, Y, **PARAMETERS[name]))


# ---------------------------------------------------------------- the whole loop


@pytest.mark.parametrize("by", ["rows", "entries", "rows and entries"])
def test_the_objective_falls_but_for_a_little_and_settles(by):
    """Weights are chosen anew in every iteration for exactly as many neighbours, which Eq. 8 does not ask for."""
    for seed in range(3):
        X, Y = problem(seed, n=300)
        report = AccessMFS(3, graph="anchors").fit(X, hide(Y, by)).report_
        objective = np.array(report.objective)
        assert report.converged
        assert objective[-1] < objective[0]
        assert (np.diff(objective) <= 0.01 * objective[:-1]).all()


@pytest.mark.parametrize("theta", [0.0, 1.0])
@pytest.mark.parametrize("known", [1, 2])
def test_of_every_row_few_labels_may_be_known(known, theta):
    X, Y = problem(5, n=400, d=12, q=5)
    some = np.argsort(np.random.default_rng(0).random(Y.shape), axis=1) < known
    hidden = np.where(some, Y, np.int8(-1))
    check(quiet(anchored(theta=theta), X, hidden), expected(X, hidden, theta=theta))
    assert AccessMFS(3, graph="anchors", theta=theta).fit(X, hidden).report_.converged


# ---------------------------------------------------------------- the exact form, its graph being ZΛ⁻¹Z'


@pytest.mark.parametrize("by", ["rows", "entries"])
@pytest.mark.parametrize(("theta", "mu"), [(1.0, 1.0), (5.0, 0.1)])
def test_anchors_are_the_exact_form_with_their_graph(by, theta, mu):
    """At the best U and T the smoothness is the same, and rows, b and U at rest are the exact F for W and S."""
    X, Y = problem(1)
    Y = hide(Y, by)
    _, _, _, (W, b, U, _, Z) = expected(X, Y, max_iter=4)
    X = exact_twin.standardise(X)
    known, positive = Y >= 0, (Y == 1).astype(float)
    used = Z.sum(axis=0) > 0
    Z, U = Z[:, used], U[used]
    L_s = np.eye(len(X)) - Z @ np.diag(1 / Z.sum(axis=0)) @ Z.T
    assert L_s.sum(axis=1) == pytest.approx(np.zeros(len(X)), abs=1e-12)
    for V in (X @ W, positive):
        assert spread(Z, V, means_of_rows(Z, V)) == pytest.approx(np.trace(V.T @ L_s @ V), rel=1e-10)

    coupling = twin.label_graph(positive, 5, mu)
    exact = exact_twin.update_F(X, W, positive, known.astype(float), L_s, coupling / mu, theta, mu)
    for _ in range(3000):
        F = np.array(
            [
                np.linalg.solve(
                    (1 + theta) * np.eye(4) + np.diag(known[i]) + coupling,
                    X[i] @ W + b + positive[i] + theta * Z[i] @ U,
                )
                for i in range(len(X))
            ]
        )
        before, b, U = b, F.mean(axis=0), means_of_rows(Z, F)
        if np.abs(b - before).max() < 1e-14:
            break
    assert pytest.approx(exact, abs=1e-9) == F


@pytest.mark.parametrize(("kind", "seed"), [("0/1", 1), ("0/1", 3), ("numeric", 2)])
def test_partitions_do_not_matter_however_many_iterations(kind, seed):
    """Many anchors draw together, so that there are many whose distances single precision cannot tell apart."""
    rng = np.random.default_rng(seed)
    n, d, q = 3000, 40, 6
    X = (rng.random((n, d)) < rng.uniform(0.05, 0.4, d)).astype(float) if kind == "0/1" else rng.normal(size=(n, d))
    Z = X @ (rng.normal(size=(d, q)) * (rng.random((d, 1)) < 0.4))
    Y = np.where(rng.random((n, 1)) < 0.3, np.quantile(Z, 0.7, axis=0) < Z, np.int8(-1))
    found = AccessMFS(5, graph="anchors").fit(X, Y)
    assert found.n_iter_ > 20
    parted = AccessMFS(5, graph="anchors").fit(da.from_array(X, chunks=(700, -1)), Y)
    assert parted.report_.objective == pytest.approx(found.report_.objective, rel=1e-10)
    assert parted.scores_ == pytest.approx(found.scores_, rel=1e-9, abs=1e-10 * found.scores_.max())


def test_anchors_that_meet_stay_together(monkeypatch):
    """Rounding between them would double with every iteration, and differ between cuts of the rows."""
    predictions = []

    class Spy(access_mfs.PredictedRows):
        def __init__(self, scaling, prediction):
            super().__init__(scaling, prediction)
            predictions.append(prediction)

    monkeypatch.setattr(access_mfs, "PredictedRows", Spy)
    X, Y = problem(n=300, d=20, q=5)
    quiet(anchored(max_iter=14, n_anchors=60, anchor_neighbors=3), sp.csr_array(X), hide(Y, "rows and entries"))
    anchors = np.concatenate([predictions[-1].U, predictions[-1].T], axis=1)
    distances = pdist(anchors) / np.abs(anchors).max()
    assert (distances == 0).any()
    assert distances[distances > 0].min() > 1e-8
