"""scikit-learn's own estimator checks; no failure is expected.

All estimators are one class with the constructors of their methods, so that all checks are made for one method of each
kind, and what belongs to the interface is checked for every method.
"""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS

#: Settings that make a method quick.
QUICK = {
    "auto": {"candidates": "br-cc,enm"},
    "lassonet": {"n_hidden": 5, "max_iter": 20},
    "smfs": {"n_trees": 10},
}

#: Counts, products and a loop on the driver, a loop over the rows, recovered labels, no labels, and one of the greedy
#: methods, which choose features together.
ONE_OF_EACH_KIND = ["chi2", "elc", "rfs", "smfs", "laplacian", "jmi", "auto"]


def estimators(names, **parameters):
    return [get_estimator(name)(**parameters, **QUICK.get(name, {})) for name in names]


@pytest.mark.filterwarnings("ignore:.* cannot rank the features:UserWarning")
@parametrize_with_checks(estimators(ONE_OF_EACH_KIND))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:.* cannot rank the features:UserWarning")
@parametrize_with_checks(estimators(["chi2", "elc", "rfs"], missing="mean"))
def test_scikit_learn_checks_where_missing_features_are_filled_in(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:.* cannot rank the features:UserWarning")
@parametrize_with_checks(
    [*estimators(sorted(METHODS.keys() - set(ONE_OF_EACH_KIND))), get_estimator("elc")(variant="published")],
    legacy=False,
)
def test_scikit_learn_checks_of_the_interface(estimator, check):
    check(estimator)
