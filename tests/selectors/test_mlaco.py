"""MLACO: the authors' program, what the order of columns and linear functions of features do, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import MLACO
from mlfs_dask.errors import DoesNotFitError
from tests.conftest import published
from tests.problems import labelled_problem, real_data


@pytest.mark.parametrize(("key", "parameters"), [("raw", {}), ("first_version", {"n_ants": 50, "tour_length": 1 / 6})])
def test_the_published_form_has_the_pheromone_of_the_authors_on_emotions(key, parameters):
    X, Y = real_data("emotions")
    found = MLACO(14, variant="published", random_state=1, **parameters).fit(X, Y)
    expected = published("mlaco")[key]
    assert found.scores_ == pytest.approx(expected, abs=1e-11)
    assert found.ranking_.tolist() == np.argsort(-expected, kind="stable").tolist()


def test_linear_functions_of_a_feature_are_one_feature_to_the_ants():
    X, Y = labelled_problem(0)
    X = X[:, :8]  # the last is constant
    alone = MLACO(3).fit(X, Y).scores_
    assert len(set(alone)) == 8
    found = MLACO(3).fit(np.column_stack([2.5 - X[:, 1], X, X[:, 3] * 3 + 1, X[:, 0]]), Y).scores_
    assert found[[0, *range(1, 9), 9, 10]].tolist() == [alone[1], *alone, alone[3], alone[0]]


def test_a_correlation_of_next_to_nothing_attracts_no_more_than_one_of_nothing():
    X, Y = labelled_problem(1)
    X = X[:, :8]
    X = X - X.mean(axis=0)
    X[:, 5] -= X[:, 6] * (X[:, 6] @ X[:, 5]) / (X[:, 6] @ X[:, 6])
    near = X.copy()
    near[:, 5] += 1e-9 * X[:, 6]
    order = np.argsort(-np.abs(np.corrcoef(X, Y, rowvar=False)[:8, 8:]).max(axis=1))
    X, near = X[:, order], near[:, order]  # to both forms alike, but for the floor
    (exact, of_near), (expected, other) = (
        [MLACO(1, variant=variant).fit(rows, Y).scores_ for rows in (X, near)] for variant in ("corrected", "published")
    )
    assert exact == pytest.approx(expected, abs=1e-9)
    assert of_near == pytest.approx(expected, abs=1e-6)
    assert other != pytest.approx(expected, abs=1e-3)


def test_more_features_than_the_cap_are_refused():
    X, Y = labelled_problem(0)
    with pytest.raises(DoesNotFitError, match="X'X of 9 features, which MLACO forms for at most 8"):
        MLACO(3, gram_cap=8).fit(X, Y)
