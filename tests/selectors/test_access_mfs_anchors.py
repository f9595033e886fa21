"""Access-MFS with anchors: against its plain twin in every container and cut, and the exact form with its graph."""

from __future__ import annotations

import pytest

from mlfs_dask.blocks.anchors import place_anchors
from mlfs_dask.selectors.access_mfs import AccessMFS
from tests.reference import access_mfs_anchors as twin
from tests.selectors.anchored import NEAR, hide, problem, quiet

#: Parameters of the selector that the twin does not take.
OURS = ("n_anchors", "random_state", "standardise")

#: The minus of a row's weights and the roots of W magnify rounding some tenfold in every iteration.
ITERATIONS = 6


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


def check(found, wanted, near=NEAR):
    scores, _, objective, _ = wanted
    assert found.report_.objective == pytest.approx(objective, rel=near["rel"], abs=near["abs"] * objective[0])
    assert found.scores_ == pytest.approx(scores, rel=near["rel"], abs=near["abs"] * scores.max(initial=1e-300))


PARAMETERS = {
    "defaults": {},
    "no graph of rows": {"theta": 0.0},
    "no graph of labels": {"mu": 0.0},
    "no graphs": {"theta": 0.0, "mu": 0.0},
    "large theta and mu": {"theta": 20.0, "mu": 20.0},
    "no sparsity": {"lambda_": 0.0},
    "large lambda": {"lambda_": 100.0},
    "nearest anchor": {"anchor_neighbors": 1},
    "more neighbours than anchors": {"anchor_neighbors": 50},
    "few anchors": {"n_anchors": 9},
    "nearest label": {"k_p": 1},
    "D to its end": {"inner_iterations": 20},
    "not scaled": {"standardise": False},
    "zeros": {"missing": "zeros"},
    "seed": {"random_state": 7},
}


@pytest.mark.parametrize("by", ["nothing", "rows", "entries", "rows and entries"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_equals_the_plain_twin(name, by):
    X, Y = problem(3)
    Y = hide(Y, by)
    check(quiet(anchored(**PARAMETERS[name]), X, Y), expected(X, Y, **PARAMETERS[name]))
