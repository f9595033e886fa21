"""SMFS with anchors: against its plain twin in every container and cut, and descent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask import SMFS
from mlfs_dask.blocks.anchors import place_anchors
from mlfs_dask.blocks.forest import float32_scaling, forest_columns, forest_seeds, to_float32
from tests.reference import smfs_anchors as twin
from tests.reference.anchors import row_weights
from tests.reference.elc import standardise
from tests.reference.smfs import grow_trees
from tests.selectors.anchored import NEAR, check, hide, problem, quiet

#: Parameters of the selector that the twin does not take.
OURS = ("n_anchors", "random_state", "standardise", "gram_cap", "inner_iterations")
SMALL = {"n_trees": 20, "max_samples": 32, "n_anchors": 15}


def anchored(**parameters):
    return SMFS(1, graph="anchors", **SMALL | parameters)


def masses(X, *, sparse=False, n_anchors=15, random_state=0):
    """Of all rows with the landmarks that the selector draws, by its forest; n is at most 256."""
    n = len(X)
    X = sp.csr_array(X) if sparse else X
    rng, grow = forest_seeds(random_state)
    prepared = to_float32(X, *float32_scaling(X))
    prepared = prepared[:, forest_columns(prepared)]
    trees = grow_trees(prepared, SMALL["n_trees"], SMALL["max_samples"], grow)
    m = min(n, max(8, min(n_anchors, n // 4)))
    landmarks = np.sort(rng.choice(n, size=m, replace=False))
    return twin.landmark_masses(trees, prepared, landmarks)


def distances(X, structure, *, anchor_neighbors=5):
    """Z of all rows with the anchors that the selector places; n is at most 80."""
    points = standardise(X)
    combined = structure == "reconstruction"
    return row_weights(points, place_anchors(points, 15, 0), anchor_neighbors, combined)


def expected(X, Y, *, sparse=False, **parameters):
    """The twin's scores, objective and variables, with the forest and the landmarks of the selector."""
    given = {name: value for name, value in parameters.items() if name not in OURS}
    placed = {name: parameters[name] for name in ("n_anchors", "random_state") if name in parameters}
    structure = given.pop("structure", "density")
    return twin.smfs(
        X,
        Y,
        *((masses(X, sparse=sparse, **placed),) if structure == "density" else (None, distances(X, structure))),
        scale=parameters.get("standardise", True),
        inner=parameters.get("inner_iterations"),
        **given,
    )


PARAMETERS = {
    "defaults": {},
    "ten iterations": {"tol": 0.0, "max_iter": 10},
    "own alpha and beta": {"alpha": 0.3, "beta": 0.5, "inner_iterations": 1},
    "no graph": {"alpha": 0.0},
    "large alpha": {"alpha": 100.0},
    "not sparse": {"beta": 0.0},
    "nearest landmark": {"anchor_neighbors": 1},
    "more neighbours than landmarks": {"anchor_neighbors": 50},
    "few landmarks": {"n_anchors": 8},
    "zeros": {"unknown_labels": "zeros"},
    "not scaled": {"standardise": False},
    "seed": {"random_state": 7},
    "distance": {"structure": "distance"},
    "reconstruction": {"structure": "reconstruction"},
}


@pytest.mark.parametrize("by", ["nothing", "rows", "entries", "rows and entries"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_equals_the_plain_twin(name, by):
    X, Y = problem(3)
    Y = hide(Y, by)
    check(quiet(anchored(**PARAMETERS[name]), X, Y), expected(X, Y, **PARAMETERS[name]))


# ---------------------------------------------------------------- descent


@settings(max_examples=20)
@given(st.data())
def test_the_objective_never_rises(data):
    X, Y = problem(data.draw(st.integers(0, 10**6)), n=data.draw(st.integers(8, 90)), q=data.draw(st.integers(1, 5)))
    by = data.draw(st.sampled_from(["nothing", "rows", "entries", "rows and entries"]))
    Y = hide(Y, by)
    Y[0, 0] = 1
    X *= data.draw(st.sampled_from([1e-6, 1.0, 1e6]))
    parameters = {
        "alpha": data.draw(st.sampled_from([None, 0.0, 1e-2, 10.0])),
        "structure": data.draw(st.sampled_from(["density", "distance", "reconstruction"])),
        "beta": data.draw(st.sampled_from([None, 1e-3, 1.0])),
        "unknown_labels": data.draw(st.sampled_from(["auto", "zeros"])),
        "anchor_neighbors": data.draw(st.integers(1, 6)),
        "gram_cap": data.draw(st.sampled_from([0, 4096])),  # a working set that is too small may raise it
    }
    found = quiet(anchored(tol=0.0, max_iter=10, **parameters), X, Y)
    objective = np.array(found.report_.objective)
    assert len(objective) >= 2  # it ends where nothing changes
    assert (np.diff(objective) <= 1e-9 * objective[:-1] + 1e-12 * Y.size).all()
    assert np.isfinite(found.scores_).all()


# ---------------------------------------------------------------- the exact form


@pytest.mark.parametrize("by", ["nothing", "rows"])
def test_both_graphs_choose_the_same_where_labelled_rows_are_known_in_all_labels(by):
    """The structure has no part in P then, nor in when the loop stops, whatever its weight."""
    X, Y = problem(4)
    Y = hide(Y, by)
    Y[0] = [1, 0, 0, 0]
    exact = quiet(SMFS(1, graph="exact", unknown_labels="coded", inner_iterations=1), X, Y)
    for alpha in (0.0, None, 100.0):
        found = quiet(anchored(alpha=alpha, unknown_labels="coded", inner_iterations=1), X, Y)
        assert found.report_.iterations == exact.report_.iterations
        assert found.scores_ == pytest.approx(exact.scores_, **NEAR)
