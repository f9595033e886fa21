"""scikit-learn's own estimator checks, for every selector; no failure is expected."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS

#: Methods of one module read in the same way; every one of them is filled in by `test_missing`.
ONE_OF_EACH_MODULE = sorted({place.partition(":")[0]: name for name, place in METHODS.items()}.values())

#: Settings that make a method quick.
QUICK = {"auto": {"candidates": "br-cc,enm"}}


@pytest.mark.filterwarnings("ignore:.* cannot rank the features:UserWarning")
@parametrize_with_checks([get_estimator(name)(**QUICK.get(name, {})) for name in sorted(METHODS)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:.* cannot rank the features:UserWarning")
@parametrize_with_checks([get_estimator(name)(missing="mean", **QUICK.get(name, {})) for name in ONE_OF_EACH_MODULE])
def test_scikit_learn_checks_where_missing_features_are_filled_in(estimator, check):
    check(estimator)


@parametrize_with_checks([get_estimator("elc")(variant="screen"), get_estimator("elc")(variant="published")])
@pytest.mark.filterwarnings("ignore:.* cannot rank the features:UserWarning")
def test_scikit_learn_checks_of_other_variants(estimator, check):
    check(estimator)
