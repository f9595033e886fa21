"""RFS: its twin, the authors' iteration on a real set, and what its penalty and its loss do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import RFS
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.runtime import Resources
from tests.conftest import published
from tests.problems import real_data
from tests.reference import rfs as twin
from tests.selectors.anchored import problem, quiet


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"gamma": 0.5}, {"gamma": 0.01, "tol": 1e-7}, {"variant": "published", "gamma": 1.0}, {"max_iter": 1}],
    ids=str,
)
def test_equals_the_plain_twin(parameters, container):
    for seed in range(3):
        X, Y = problem(seed)
        found = quiet(RFS(3, **parameters), container(X), Y)
        scores, objective, converged = twin.rfs(X, Y, **parameters)
        assert found.report_.objective == pytest.approx(objective, rel=1e-9)
        assert found.scores_ == pytest.approx(scores, rel=1e-7, abs=1e-9)
        assert found.report_.converged is converged
        assert found.report_.passes == 2 + len(objective)


@pytest.mark.parametrize(("gamma", "suffix"), [(1.0, ""), (10.0, "_alpha10")])
def test_published_form_has_the_results_of_the_toolbox_on_emotions(gamma, suffix):
    oracle = published("rfs")
    found = RFS(10, variant="published", gamma=gamma, tol=1e-5, max_iter=100).fit(*real_data("emotions"))
    assert found.scores_ == pytest.approx(np.linalg.norm(oracle[f"W{suffix}"], axis=1), rel=1e-9)
    assert found.ranking_.tolist() == oracle[f"ranking{suffix}"].tolist()


def test_the_objective_never_rises():
    for seed in range(6):
        X, Y = problem(seed, n=60, d=12, q=3)
        for gamma in (0.01, 0.1, 0.6):
            objective = np.array(quiet(RFS(3, gamma=gamma, tol=0.0, max_iter=30), X, Y).report_.objective)
            assert (np.diff(objective) <= 1e-9 * objective[0]).all()


def test_few_rows_with_other_labels_change_less_than_with_squares():
    """Of 200 rows, 20 have the labels of the other class: the planted feature stays the best."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    Y = (X[:, :1] > 0).astype(int)
    X[:20, 1] += 40.0 * (Y[:20, 0] - 0.5)
    Y[:20] = 1 - Y[:20]
    assert quiet(RFS(1), X, Y).ranking_[0] == 0


@pytest.mark.parametrize("label", [0, 1])
def test_of_labels_that_all_rows_have_nothing_is_left_of_rounding(label):
    X, Y = problem()
    with pytest.warns(UserWarning, match="RFS cannot rank the features: every feature is constant, or no label"):
        assert not RFS(2).fit(X, np.full_like(Y, label)).scores_.any()


def test_more_features_than_their_products_fit_are_refused():
    wide = as_rows(sp.random_array((40, 30_000), density=1e-3, format="csr", rng=0), np.eye(40, 2, dtype=int))
    with pytest.raises(DoesNotFitError, match="cure: "):
        RFS(2).plan(wide, Resources(1, 1, 2**31, 2**31))
