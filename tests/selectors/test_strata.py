"""Scores within strata of the rows, against loops over these; and columns of a store by which they are named."""

from __future__ import annotations

import json

import anndata
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selection.fit import OpenedRows, attach_columns
from mlfs_dask.selection.question import ask
from mlfs_dask.selectors import METHODS
from mlfs_dask.selectors.costs import Names
from mlfs_dask.storage.append import append
from mlfs_dask.storage.convert import convert
from mlfs_dask_cli.main import mlfs as mlfs_command
from tests.problems import quiet

#: Rows of a store are numbered.
ROW_NUMBERS = pytest.mark.filterwarnings("ignore:Transforming to str index")


def problem(seed=0, n=240, d=6, q=3):
    """0/1 features and labels that go with the batch; 0..q-1 carry a label each, others the batch."""
    rng = np.random.default_rng(seed)
    batch = rng.integers(0, 3, n)
    Y = (rng.random((n, q)) < 0.2 + 0.25 * batch[:, np.newaxis]).astype(np.int8)
    X = (rng.random((n, d)) < 0.1 + 0.4 * batch[:, np.newaxis]).astype(float)
    carried = rng.random((n, q)) < 0.35
    X[:, :q] = np.where(carried, Y, rng.random((n, q)) < 0.5)
    X[:, -1] = 1.0
    return X, Y, np.array(["a", "b", "c"])[batch]


@pytest.mark.parametrize("strata", [np.arange(240.0) % 3, np.array([f"s{i % 3}" for i in range(240)], object)])
def test_a_row_without_a_stratum_is_refused(strata):
    X, Y, _ = problem()
    strata[7] = np.nan
    with pytest.raises(DataError, match=r"'strata' is missing.* in row 7 "):
        mlfs.BRCC(2).fit(X, Y, strata=strata)


def tables(x, y, strata):
    """2 × 2 tables of a code and a label, a stratum each."""
    for s in np.unique(strata):
        own = strata == s
        yield np.array([[np.sum((x[own] == i) & (y[own] == j)) for j in (0, 1)] for i in (0, 1)], float)


def cochran_mantel_haenszel(x, y, strata):
    difference = variance = 0.0
    for table in tables(x, y, strata):
        n, rows, columns = table.sum(), table.sum(axis=1), table.sum(axis=0)
        difference += table[1, 1] - rows[1] * columns[1] / n
        variance += rows.prod() * columns.prod() / (n * n * (n - 1))
    return difference**2 / variance if variance else 0.0


def common_odds_ratio(x, y, strata, s=0.5):
    if x.min() == x.max():
        return 0.0
    agree = differ = 0.0
    for t in tables(x, y, strata):
        agree += (t[0, 0] + s) * (t[1, 1] + s) / t.sum()
        differ += (t[0, 1] + s) * (t[1, 0] + s) / t.sum()
    return abs(np.log(agree / differ))


def conditional_information(x, y, strata):
    total = 0.0
    for t in tables(x, y, strata):
        p = t / t.sum()
        expected = np.outer(p.sum(axis=1), p.sum(axis=0))
        total += t.sum() / len(x) * np.sum(p[p > 0] * np.log(p[p > 0] / expected[p > 0]))
    return total


TWINS = {"chi2": cochran_mantel_haenszel, "br-or": common_odds_ratio, "label-entropy": conditional_information}


@pytest.mark.parametrize("name", TWINS)
def test_counts_in_strata_are_those_of_a_loop_over_them(name):
    X, Y, batch = problem()
    params = {"n_promising_labels": 1.0} if name == "label-entropy" else {}
    expected = [sum(TWINS[name](x, y, batch) for y in Y.T) for x in X.T]
    for container in (X, sp.csr_array(X)):
        estimator = get_estimator(name)(n_features_to_select=3, **params)
        fitted = estimator.fit(container, Y, strata=batch)
        np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-9, atol=1e-12)
        assert fitted.report_.passes == 1
        assert set(fitted.ranking_[:3]) == {0, 1, 2}


def test_codes_of_several_values_are_associated_in_general():
    X, Y, batch = problem(seed=1)
    three = (X[:, :1] + np.random.default_rng(0).integers(0, 2, (len(X), 1))).clip(max=2)
    found = mlfs.Chi2(n_features_to_select=1, bins=3, binning="equal-width").fit(three, Y[:, :1], strata=batch)
    difference, covariance = np.zeros(2), np.zeros((2, 2))
    for s in np.unique(batch):
        x, y = three[batch == s, 0], Y[batch == s, 0]
        n, p, m = len(x), y.sum(), np.array([np.sum(x == 1), np.sum(x == 2)])
        difference += [np.sum(y[x == 1]) - m[0] * p / n, np.sum(y[x == 2]) - m[1] * p / n]
        covariance += p * (n - p) / (n * n * (n - 1)) * (n * np.diag(m) - np.outer(m, m))
    assert found.scores_[0] == pytest.approx(difference @ np.linalg.solve(covariance, difference))


def test_strata_of_methods_of_moments_are_covariates():
    X, Y, batch = problem(seed=2)
    pooled = mlfs.BRCC(n_features_to_select=3).fit(X, Y, strata=batch)
    adjusted = mlfs.BRCC(n_features_to_select=3).fit(X, Y, covariates=batch)
    np.testing.assert_array_equal(pooled.scores_, adjusted.scores_)
    numbered = mlfs.BRCC(n_features_to_select=3).fit(X, Y, strata=np.searchsorted(["a", "b", "c"], batch) + 7)
    np.testing.assert_allclose(numbered.scores_, pooled.scores_, rtol=1e-9)


@pytest.mark.parametrize("name", ["chi2", "mrmr", "llsf"])
def test_mean_ranks_over_strata(name):
    X, Y, batch = problem(seed=3)
    X = X + 0.01 * np.random.default_rng(1).normal(size=X.shape)
    fitted = quiet(_Strata(get_estimator(name)(n_features_to_select=3, strata_by="rank"), batch), X, Y)
    places = []
    for s in "abc":
        alone = quiet(get_estimator(name)(n_features_to_select=3), X[batch == s], Y[batch == s])
        places.append(np.argsort(alone.ranking_) + 1)
    np.testing.assert_allclose(fitted.scores_, -np.mean(places, axis=0))
    assert fitted.report_.extra["strata"] == {s: int(np.sum(batch == s)) for s in "abc"}
    assert fitted.report_.passes == fitted.report_.plan["passes"]


class _Strata:
    def __init__(self, estimator, strata):
        self.estimator, self.strata = estimator, strata

    def fit(self, X, Y):
        return self.estimator.fit(X, Y, strata=self.strata)


def test_what_cannot_be_pooled_is_refused_with_the_cure():
    X, Y, batch = problem()
    for name in METHODS:
        question, rows = attach_columns(ask(name, 3), OpenedRows(as_rows(X, Y)), strata=batch)
        if question.method.takes_strata or question.method.takes_covariates:
            continue
        with pytest.raises(UsageError, match=f"{name} cannot pool its scores over strata\n  cure: choose .*rank"):
            question.require_accepted(rows.source, Names())
    with pytest.raises(UsageError, match="in strata all labels are counted"):
        mlfs.LabelEntropy(n_features_to_select=3).fit(X, Y, strata=batch)
    with pytest.raises(UsageError, match="the column of strata 'batch' is not there; the rows have no columns"):
        mlfs.Chi2(n_features_to_select=3, strata="batch").fit(X, Y)
    with pytest.raises(UsageError, match="cannot be 'auto' with ranks in strata"):
        mlfs.Chi2(n_features_to_select="auto", strata_by="rank").fit(X, Y, strata=batch)
    with pytest.raises(UsageError, match="init is the start of one fit, and strata that are ranked apart"):
        mlfs.MIFS(3, variant="published", strata_by="rank").fit(X, Y, strata=batch, init={"W": np.ones((1, 1))})
    with pytest.raises(UsageError, match="cure: give categories as strata, or take a method"):
        mlfs.Chi2(n_features_to_select=3).fit(X, Y, covariates=batch)
    unknown = Y.copy()
    unknown[5, 0] = -1
    with pytest.raises(DataError, match="unknown='refuse' was given"):
        mlfs.Chi2(n_features_to_select=3, unknown="refuse").fit(X, unknown, strata=batch)
    negative = mlfs.Chi2(n_features_to_select=3, unknown="negative").fit(X, unknown, strata=batch)
    np.testing.assert_array_equal(negative.scores_, mlfs.Chi2(3).fit(X, np.maximum(unknown, 0), strata=batch).scores_)


@pytest.mark.filterwarnings("ignore:label .* is known in no row")
@pytest.mark.parametrize(("name", "bins"), [("chi2", 3), ("br-or", 2), ("enm", 3), ("gmm", 2), ("label-entropy", 3)])
def test_labels_count_in_strata_over_the_rows_where_they_are_known(name, bins):
    X, Y, batch = problem(seed=5)
    if bins == 3:
        X[:, :3] += np.random.default_rng(0).integers(0, 2, (len(X), 3))
    Y = np.where(np.random.default_rng(1).random(Y.shape) < [0.3, 0.6, 0.0], np.int8(-1), Y)
    one_stratum = np.where(batch == "b", Y[:, 2], np.int8(-1))
    Y = np.column_stack([Y, one_stratum, np.full(len(Y), np.int8(-1))])
    given = {"bins": bins, "binning": "equal-width"}
    given |= {"n_promising_labels": 1.0} if name == "label-entropy" else {}
    estimator = get_estimator(name)(n_features_to_select=3, **given)
    for label in range(4):
        known = Y[:, label] >= 0
        expected = quiet(_Strata(estimator, batch[known]), X[known], Y[known, label]).scores_
        for rows in ((X, Y), (sp.csr_array(X), sp.csr_array(Y)), (da.from_array(X, chunks=(50, 4)), da.from_array(Y))):
            found = quiet(_Strata(estimator, batch), rows[0], rows[1][:, [label]])
            np.testing.assert_allclose(found.scores_, expected, rtol=1e-9, atol=1e-12)
    assert found.report_.passes == 3  # ranges, which find unknown entries; ranges again, and counts
    assert 0 < quiet(_Strata(estimator, batch), X, Y).scores_.max() < np.inf


def test_shuffles_stay_within_strata():
    X, Y, batch = problem(seed=8, n=2000)
    Y[::7, 0] = -1
    without = mlfs.Chi2(n_features_to_select="auto").fit(X, Y)
    assert without.support_.tolist() == [True] * 5 + [False]  # the batch is in all of them
    for rows in (X, sp.csr_array(X)):
        within = mlfs.Chi2(n_features_to_select="auto").fit(rows, Y, strata=batch)
        assert within.support_.tolist() == [True] * 3 + [False] * 3
        assert within.report_.passes == 2


def test_null_data_in_strata_is_discovered_at_most_at_the_rate():
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        batch = rng.integers(0, 3, 200)
        Y = (rng.random((200, 2)) < 0.2 + 0.25 * batch[:, np.newaxis]).astype(np.int8)
        X = (rng.random((200, 12)) < 0.1 + 0.4 * batch[:, np.newaxis]).astype(float)
        try:
            mlfs.Chi2(n_features_to_select="auto", fdr=0.2).fit(X, Y, strata=batch)
        except DataError:
            continue
        found += 1
    assert found <= 40 * (0.2 + 3 * np.sqrt(0.16 / 40))


# ---------------------------------------------------------------------- columns of a store


@pytest.fixture
def table():
    X, Y, batch = problem(seed=4)
    frame = pd.DataFrame(X, columns=list("stuvwx")).assign(
        age=np.round(40 + 10 * np.random.default_rng(5).normal(size=len(X))), batch=batch
    )
    return frame.assign(**{f"y{i}": y for i, y in enumerate(Y.T)})


LABELS = LabelSpec(columns=("y0", "y1", "y2"))


@ROW_NUMBERS
@pytest.mark.parametrize("kind", ["csv", "parquet", "h5ad"])
def test_convert_keeps_columns_of_rows(table, tmp_path, kind):
    source, store = tmp_path / f"t.{kind}", tmp_path / "t.zarr"
    if kind == "csv":
        table.to_csv(source, index=False)
    elif kind == "parquet":
        table.to_parquet(source)
    else:
        obs = table[["age", "batch", "y0", "y1", "y2"]].set_axis([f"r{i}" for i in range(len(table))])
        obs["batch"] = obs["batch"].astype("category")
        anndata.AnnData(X=table[list("stuvwx")].to_numpy(), obs=obs).write_h5ad(source)
    convert(source, store, labels=LABELS, obs=("batch", "age"))
    dataset = mlfs.open_dataset(store)
    assert dataset.shape == (240, 6)
    kept = anndata.read_zarr(store).obs
    assert kept.columns.tolist() == ["batch", "age"]
    np.testing.assert_array_equal(kept["batch"].astype(str), table["batch"])
    np.testing.assert_array_equal(kept["age"], table["age"])

    X, Y, C = table[list("stuvwx")].to_numpy(), table[["y0", "y1", "y2"]].to_numpy(), table[["age", "batch"]]
    named = mlfs.BRCC(n_features_to_select=3, covariates="age,batch").fit(dataset)
    given = mlfs.BRCC(n_features_to_select=3).fit(X, Y, covariates=C)
    np.testing.assert_allclose(named.scores_, given.scores_, rtol=1e-9)
    named = mlfs.Chi2(n_features_to_select=3, strata="batch").fit(dataset)
    np.testing.assert_allclose(named.scores_, mlfs.Chi2(n_features_to_select=3).fit(X, Y, strata=C["batch"]).scores_)
    part = mlfs.BRCC(n_features_to_select=3, covariates=["age"], strata="batch").fit(dataset.subset(rows="100:200"))
    given = mlfs.BRCC(n_features_to_select=3).fit(X[100:200], Y[100:200], covariates=C[100:200])
    np.testing.assert_allclose(part.scores_, given.scores_, rtol=1e-9)


@ROW_NUMBERS
def test_append_keeps_them_too(table, tmp_path):
    first, second, store = tmp_path / "1.csv", tmp_path / "2.csv", tmp_path / "t.zarr"
    table[:150].to_csv(first, index=False)
    table[150:].replace({"batch": {"a": "0 new"}}).to_csv(second, index=False)
    convert(first, store, labels=LABELS, obs=("age", "batch"))
    append(store, second, labels=LABELS)
    kept = anndata.read_zarr(store).obs
    assert kept["batch"].cat.categories.tolist() == ["a", "b", "c", "0 new"]
    np.testing.assert_array_equal(kept["batch"][150:].astype(str), table["batch"][150:].replace("a", "0 new"))
    np.testing.assert_array_equal(kept["age"], table["age"])
    table[150:].drop(columns="age").to_csv(second, index=False)
    with pytest.raises(DataError, match="the column of rows, 'age' is none of"):
        append(store, second, labels=LABELS)


def test_a_feature_may_be_a_covariate(table, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    convert(tmp_path / "t.csv", tmp_path / "t.zarr", labels=LABELS, drop=("batch",))
    dataset = mlfs.open_dataset(tmp_path / "t.zarr")
    assert dataset.feature_names.tolist() == [*"stuvwx", "age"]
    named = mlfs.AnovaF(n_features_to_select=3, covariates="feature:age,feature:0").fit(dataset)
    X, Y = table[[*"stuvwx", "age"]].to_numpy(), table[["y0", "y1", "y2"]].to_numpy()
    given = mlfs.AnovaF(n_features_to_select=3).fit(X, Y, covariates=X[:, [0, 6]])
    np.testing.assert_allclose(named.scores_, given.scores_, rtol=1e-9)
    assert set(named.ranking_[-3:]) == {0, 5, 6}  # the covariates, and the constant
    with pytest.raises(UsageError, match=r"covariate 'age' is not there.*\n.*write feature:age for the feature"):
        mlfs.AnovaF(n_features_to_select=3, covariates="age").fit(dataset)


def test_columns_of_anndata_are_named(table):
    obs = table[["age", "batch"]].set_axis([f"r{i}" for i in range(len(table))])
    data = anndata.AnnData(X=table[list("stuvwx")].to_numpy(), obs=obs)
    data.obsm["labels"] = table[["y0", "y1", "y2"]].to_numpy()
    named = mlfs.BRCC(n_features_to_select=3, covariates=["age"], strata="batch").fit(data)
    given = mlfs.BRCC(n_features_to_select=3).fit(data.X, data.obsm["labels"], covariates=table[["age", "batch"]])
    np.testing.assert_allclose(named.scores_, given.scores_, rtol=1e-9)


def test_columns_that_formats_do_not_have_are_refused(tmp_path):
    (tmp_path / "t.svm").write_text("1 1:1\n")
    with pytest.raises(UsageError, match="svmlight has no columns of rows, which --obs and --targets would keep"):
        convert(tmp_path / "t.svm", tmp_path / "t.zarr", obs=("age",))


def test_commands_name_them(table, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    store, runs = tmp_path / "t.zarr", tmp_path / "runs"

    def mlfs_run(*words):
        result = CliRunner().invoke(mlfs_command, [*map(str, words), "--json"])
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    mlfs_run("convert", tmp_path / "t.csv", store, "--label-columns", "y0,y1,y2", "--obs", "age,batch")
    given = ("--covariates", "age", "--strata", "batch", "-k", 3)
    projected = mlfs_run("plan", "br-cc", store, *given, "--quick")
    run = mlfs_run("select", "br-cc", store, *given, "-o", runs / "adjusted")
    assert (run["passes"], projected["passes"]) == (1, 1)
    assert run["params"]["covariates"] == "age"
    expected = mlfs.BRCC(n_features_to_select=3, covariates="age", strata="batch").fit(mlfs.open_dataset(store))
    ranked = pd.read_csv(runs / "adjusted" / "ranking.csv")
    np.testing.assert_allclose(ranked.set_index("feature_index").sort_index()["score"], expected.scores_)
    assert mlfs_run("plan", "mrmr", store, "-k", 3, "--strata", "batch", "--strata-by", "rank")["passes"] % 3 == 0
    mlfs_run("evaluate", store, "br-cc:covariates=age,strata=batch", "-o", tmp_path / "eval", "--folds", 2)
    mlfs_run("transform", store, runs / "adjusted", tmp_path / "chosen.zarr")
    chosen = mlfs.open_dataset(tmp_path / "chosen.zarr")
    assert chosen.shape == (240, 3)
    assert list(chosen.obs) == ["age", "batch"]
    np.testing.assert_array_equal(chosen.obs["age"].between(0, 240), table["age"])
    result = CliRunner().invoke(
        mlfs_command, ["select", "br-cc", str(store), "-k", "3", "-o", "x", "--covariates", "sex"]
    )
    assert result.exit_code == 2
    assert "the covariate 'sex' is not there; there are age, batch" in result.stderr
