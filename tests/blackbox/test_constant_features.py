"""Features without variation come after all that vary, by index, in every method, and change nothing of the others."""

from __future__ import annotations

import json
import re

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask_cli.main import mlfs
from tests.blackbox.golden_rankings import methods, selector_class

DESCRIBED = methods()

#: Where the constant columns lie, before, between and after the others.
CONSTANT = [0, 4, 7]
VARYING = [1, 2, 3, 5, 6, 8]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*did not converge"),
    pytest.mark.filterwarnings("ignore:Covariance of"),
]


def problem(n=150):
    """Noisy copies of three labels, noise, and columns of 0, of 1, and of 0.1."""
    rng = np.random.default_rng(0)
    Y = (rng.random((n, 3)) < 0.4).astype(np.int8)
    X = np.zeros((n, 9))
    X[:, 1:4] = Y ^ (rng.random((n, 3)) < 0.1)
    X[:, [5, 6, 8]] = rng.random((n, 3))
    X[:, 4], X[:, 7] = 1, 0.1
    return X, Y


def selector(method, k=4):
    return selector_class(method)(k)


def test_constant_features_change_nothing_where_the_penalty_is_not_convex():
    X, Y = problem()
    of_all, of_varying = (selector("smlfs").set_params(p=0.5).fit(x, Y).scores_ for x in (X, X[:, VARYING]))
    assert of_all[VARYING] == pytest.approx(of_varying, rel=1e-12)


@pytest.mark.parametrize("container", ["dense", "sparse", "chunks"])
@pytest.mark.parametrize("method", DESCRIBED)
def test_constant_features_come_last_and_change_no_other_score(method, container):
    X, Y = problem()
    make = {"dense": np.asarray, "sparse": sp.csr_array, "chunks": lambda X: da.from_array(X, chunks=(70, 4))}
    found = selector(method).fit(make[container](X), Y)
    assert found.ranking_[-3:].tolist() == CONSTANT
    assert found.scores_[CONSTANT].max() <= found.scores_[VARYING].min()
    assert found.report_.extra["constant_features"] == 3
    without = selector(method).fit(make[container](X[:, VARYING]), Y)
    if method == "access-mfs":
        return  # its first weights are drawn for every column
    assert [VARYING[f] for f in without.ranking_] == found.ranking_[:6].tolist()
    if method == "auto":
        return  # its scores are ranks among all features where methods tie
    largest = np.abs(without.scores_).max()
    np.testing.assert_allclose(found.scores_[VARYING], without.scores_, rtol=0, atol=1e-6 * largest)


@pytest.mark.parametrize("method", DESCRIBED)
def test_a_run_that_keeps_constant_features_says_how_many(method):
    X, Y = problem(60)
    message = "2 of the 8 features kept do not vary: only 6 of 9 do. Keep at most so many"
    with pytest.warns(UserWarning, match=re.escape(message)):
        found = selector(method, k=8).fit(X, Y)
    assert message in found.report_.warnings
    assert found.ranking_[-3:].tolist() == CONSTANT


@pytest.mark.parametrize("method", [name for name in DESCRIBED if "--resamples" in DESCRIBED[name]["options"]])
def test_neither_weights_nor_resamples_nor_auto_bring_them_up(method):
    X, Y = problem()
    weights = np.ones(len(X))
    weights[100:] = 0
    X[100:, CONSTANT] = np.random.default_rng(1).random((50, 3))  # they vary over rows that do not count
    found = selector_class(method)("auto", resamples=20).fit(X, Y, weights)
    assert found.ranking_[-3:].tolist() == CONSTANT
    assert not found.support_[CONSTANT].any()
    assert found.rank_intervals_[CONSTANT].tolist() == [[7, 7], [8, 8], [9, 9]]


@pytest.mark.parametrize("method", ["chi2", "mico", "mrmr", "elc", "relieff", "auto"])
def test_of_chosen_rows_what_varies_over_these_counts(method, tmp_path):
    X, Y = problem()
    X[100:, CONSTANT] = 5
    np.savez(tmp_path / "x.npz", X=X, Y=Y)
    store, run = tmp_path / "x.zarr", tmp_path / "run"
    mlfs_dask.convert(tmp_path / "x.npz", store)
    command = ["select", method, str(store), "--rows", "0:100", "-k", "8", "-o", str(run)]
    done = CliRunner().invoke(mlfs, command)
    assert done.exit_code == 0, done.output
    assert "2 of the 8 features kept do not vary" in done.output
    lines = (run / "ranking.csv").read_text().splitlines()
    assert [int(line.split(",")[1]) for line in lines[-3:]] == CONSTANT
    record = json.loads((run / "run.json").read_text())
    assert record["extra"]["constant_features"] == 3
    assert any("do not vary" in warning for warning in record["warnings"])


def test_a_feature_of_one_code_that_varies_comes_before_constant_ones():
    X, Y = problem()
    X[:, 5] = 0
    X[7, 5], X[9, 5] = 1, 1000  # two codes of equal width between 0 and 1000: all but one row in one
    X[9, 5] = 0
    for method in ("mico", "qpmlfs", "mrmr", "chi2"):
        found = selector_class(method)(4, bins=2, binning="equal-width").fit(X, Y)
        assert found.ranking_[-3:].tolist() == CONSTANT


@pytest.mark.parametrize("missing", ["mean", "median", "code"])
def test_a_feature_with_one_value_and_missing_ones(missing):
    """Filled in it is constant; where missing values have a code of their own it is not."""
    X, Y = problem()
    X[Y[:, 0] == 1, 7] = np.nan
    found = selector_class("mico")(4, missing=missing).fit(X, Y)
    assert found.report_.extra["constant_features"] == (2 if missing == "code" else 3)
    assert (found.ranking_[0] == 7) == (missing == "code")
