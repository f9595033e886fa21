"""mFSIR with anchors: against its plain twin in every container and cut, descent, and the exact form with its graph."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import place_anchors
from mlfs_dask.blocks.heat_kernel import mean_degree
from mlfs_dask.selectors.mfsir import MFSIR
from tests.reference import mfsir_anchors as twin
from tests.reference.elc import standardise
from tests.selectors.anchored import NEAR, problem, quiet

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
        if sparse:  # k-means has rows that are not centred, and sees fewer of their digits
            factor = points.any(axis=0) / np.maximum(X.std(axis=0), 1e-12)
            centres = place_anchors(sp.csr_array(X * factor), m, seed) - X.mean(axis=0) * factor
        width = parameters.get("lambda_", np.sqrt(2.0 * points.any(axis=0).sum()))
        gamma = beta * mean_degree(points, parameters.get("n_neighbors", 5), width**2)
    bound = parameters.get("gram_cap", 4096) < d
    given = {name: value for name, value in parameters.items() if name not in OURS}
    return twin.mfsir(X, Y, centres, gamma, **{"weight_steps": 1 if bound else 5, "bound": bound, **given})


def check(found, wanted, near=NEAR):
    scores, objective, _ = wanted
    assert found.report_.objective == pytest.approx(objective, rel=near["rel"], abs=near["abs"] * objective[0])
    assert found.scores_ == pytest.approx(scores, rel=near["rel"], abs=near["abs"] * scores.max(initial=1e-300))


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
