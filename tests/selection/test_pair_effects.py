"""Columns of the table of pairs: errors, intervals, means, shares of nonzero values, fold changes."""

import json
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from click.testing import CliRunner
from pyarrow import parquet
from scipy import sparse as sp
from scipy import special, stats

from mlfs_dask.errors import UsageError
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask_cli.main import mlfs as command
from tests.problems import quiet
from tests.storage.stores import make_store


def expression(seed=0, n=150, q=3, unknown=False):
    """Logarithms of counts, mostly 0, a 0/1 feature, one that is never 0, and labels, some of them unknown."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < [0.5, 0.2, 0.1]).astype(np.int8)
    X = np.log1p(rng.poisson(rng.gamma(1, 1, 8), (n, 8)) * rng.uniform(0.5, 2, (n, 1)))
    X[:, 1] += Y[:, 0] * X[:, 1]
    X[:, 6], X[:, 7] = rng.random(n) < 0.2 + 0.3 * Y[:, 1], rng.normal(30, 1, n)
    if unknown:
        Y[rng.random(n) < 0.3, 1] = -1
    return X, Y


def table_of(X, Y, method="br-cc", weights=None, **parameters):
    asked = {"n_features_to_select": 2, "pairs": "all", **parameters}
    fit = {name: asked.pop(name) for name in ("covariates", "strata", "clusters") if name in asked}
    selector = get_estimator(method)(**asked)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        selector.fit(X, Y, **fit, **({} if weights is None else {"sample_weight": weights}))
    return selector.pairs_.set_index(["label_index", "feature_index"])


def test_errors_and_intervals_are_those_of_scipy_and_statsmodels():
    X, Y = expression()
    table = table_of(X, Y)
    for (label, feature), pair in table.iterrows():
        x, y = X[:, feature], Y[:, label]
        if pair["effect_kind"] == "difference of means":
            expected = stats.ttest_ind(x[y == 1], x[y == 0]).confidence_interval(0.95)
            error = (x[y == 1].mean() - x[y == 0].mean()) / pair["statistic"]
        else:
            counts = [[np.sum((x == a) & (y == b)) for b in (1, 0)] for a in (1, 0)]
            odds = sm.stats.Table2x2(np.array(counts) + 0.5)
            expected, error = odds.log_oddsratio_confint(0.05), odds.log_oddsratio_se
        np.testing.assert_allclose(pair[["effect_low", "effect_high"]].astype(float), expected, rtol=1e-9)
        np.testing.assert_allclose(pair["standard_error"], error, rtol=1e-9)
    assert set(table["effect_kind"]) == {"difference of means", "log odds ratio"}


def test_adjusted_effects_have_the_errors_of_a_linear_model():
    X, Y = expression()
    C = np.random.default_rng(1).normal(size=(len(X), 2)) + Y[:, :1]
    table = table_of(X, Y, covariates=C)
    given_others = table_of(X, Y, control="partial")
    for label in range(3):
        for feature in range(8):
            fitted = sm.OLS(X[:, feature], sm.add_constant(np.column_stack([Y[:, label], C]))).fit()
            pair = table.loc[(label, feature)]
            expected = [fitted.params[1], fitted.bse[1], *fitted.conf_int()[1]]
            columns = ["effect", "standard_error", "effect_low", "effect_high"]
            np.testing.assert_allclose(pair[columns].astype(float), expected, rtol=1e-9)
        if label == 2:  # too few rows with the label
            continue
        fitted = sm.OLS(Y[:, label], sm.add_constant(X)).fit()
        pair = given_others.loc[label]
        skewed = pair["corrected"].to_numpy()
        np.testing.assert_allclose(pair["effect"], fitted.params[1:], rtol=1e-7)
        np.testing.assert_allclose(pair["standard_error"][~skewed], fitted.bse[1:][~skewed], rtol=1e-7)
        np.testing.assert_allclose(pair["effect_high"][~skewed], fitted.conf_int()[1:, 1][~skewed], rtol=1e-7)
    strata = table_of(X, Y, strata=np.arange(len(X)) % 3)
    np.testing.assert_allclose(strata["effect"] / strata["standard_error"], strata["statistic"], rtol=1e-9)


@pytest.mark.parametrize("put", ["dense", "sparse", "dask", "never zero", "0/1"])
@pytest.mark.parametrize("rows", ["all", "unknown", "weighted", "covariates"])
def test_means_and_shares_are_those_of_the_rows_with_and_without_the_label(put, rows):
    X, Y = expression(unknown=rows in ("unknown", "covariates"))
    if put == "never zero":
        X = X + 1.0
    if put == "0/1":
        X = (X > 1).astype(float)
    weights = np.random.default_rng(2).integers(0, 3, len(X)) if rows == "weighted" else None
    further = {"covariates": np.arange(len(X)) % 7.0} if rows == "covariates" else {}
    given_X = {"sparse": sp.csr_array, "dask": lambda X: da.from_array(X, chunks=(40, 5))}.get(put, np.array)(X)
    table = table_of(given_X, Y, weights=weights, **further)
    counted = np.ones(len(X)) if weights is None else weights
    for (label, feature), pair in table.iterrows():
        for name, value in (("in", 1), ("out", 0)):
            group = Y[:, label] == value
            values, of_group = X[group, feature], counted[group]
            assert pair[f"mean_{name}"] == pytest.approx(np.average(values, weights=of_group), rel=1e-9)
            assert pair[f"nonzero_{name}"] == pytest.approx(np.average(values != 0, weights=of_group), rel=1e-12)


def test_a_store_whose_features_are_never_0_has_no_further_statistic(tmp_path):
    from mlfs_dask.rows.sources import as_rows
    from mlfs_dask.selectors.pairs import PairQuestion, pair_statistics
    from mlfs_dask.storage.opening import open_dataset

    X, Y = expression()
    kinds = {}
    for name, values in (("zeros", X), ("never", X + 1.0), ("two", (X > 1).astype(float))):
        rows = open_dataset(str(make_store(tmp_path / name, values, Y))).rows
        kinds[name] = [statistic.kind for statistic in pair_statistics(rows, PairQuestion("all", 0, "bh", 0.1))]
        table = table_of(rows, None)
        np.testing.assert_allclose(
            table["nonzero_in"].loc[0], (values[Y[:, 0] == 1] != 0).mean(axis=0), rtol=1e-12, err_msg=name
        )
    assert ["nonzeros" in of for of in kinds.values()] == [True, False, False]
    unasked = pair_statistics(as_rows(X, Y), PairQuestion(None, 0, "bh", 0.1))
    assert "nonzeros" not in [statistic.kind for statistic in unasked]


@pytest.mark.parametrize("base", [None, "e", 2])
def test_fold_changes_are_defined_as_in_scanpy(base):
    """rank_genes_groups: log2((expm1(mean in · ln base) + 1e-9) / (expm1(mean out · ln base) + 1e-9))."""
    X, Y = expression()
    X[:, 5] -= 1.0  # scaled values have no fold change
    table = table_of(X, Y, log_base=base, pseudocount=1e-9)
    for (label, feature), pair in table.iterrows():
        means = np.array([X[Y[:, label] == value, feature].mean() for value in (1, 0)])
        if base is not None:
            means = np.expm1(means * np.log(np.e if base == "e" else base))
        if (means + 1e-9 > 0).all():
            assert pair["log2_fold_change"] == pytest.approx(np.log2(np.divide(*(means + 1e-9))), rel=1e-9)
        else:
            assert np.isnan(pair["log2_fold_change"])
    assert table["log2_fold_change"].isna().any()
    assert table_of(X, Y, pseudocount=1.0)["log2_fold_change"].abs().max() < table["log2_fold_change"].abs().max()


def test_counts_that_are_not_normalised_are_told():
    rng = np.random.default_rng(0)
    counts, Y = rng.poisson(rng.gamma(0.3, 1, (200, 30))), (rng.random((200, 2)) < 0.3).astype(np.int8)
    for X, asked, text in (
        (sp.csr_array(counts), {}, "values look like counts that are not normalised"),
        (rng.integers(0, 9, (200, 5)), {"log_base": "e"}, r"all values are whole numbers, and .*log_base.* logarithms"),
    ):
        with pytest.warns(UserWarning, match=text):
            get_estimator("br-cc")(2, pairs="best:1", **asked).fit(X, Y)
    normal = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))
    genotypes = rng.binomial(2, rng.uniform(0.01, 0.5, 30), (200, 30))
    for X, asked in ((normal, {"log_base": "e"}), (genotypes, {}), (counts > 0, {})):
        get_estimator("br-cc")(2, pairs="best:1", **asked).fit(X, Y)  # warnings are errors
    get_estimator("br-cc")(2, per_label=1).fit(counts, Y)


def test_parameters_of_the_table_are_checked_and_every_column_is_documented():
    X, Y = expression()
    with pytest.raises(UsageError, match="log_base must be 'e' or a number above 1; got 1"):
        table_of(X, Y, log_base=1)
    with pytest.raises(UsageError, match="pseudocount changes nothing without pairs"):
        table_of(X, Y, pairs=None, pseudocount=1.0)
    page = (Path(__file__).parents[2] / "docs" / "howto" / "pairs.md").read_text()
    table = quiet(get_estimator("chi2")(2, pairs="all"), X, Y).pairs_
    assert [column for column in table if f"`{column}`" not in page] == []
    assert table[["standard_error", "mean_in", "nonzero_out", "log2_fold_change"]].isna().all(axis=None)


@pytest.mark.parametrize("method", ["br-cc", "chi2"])
def test_one_direction_leaves_the_pairs_of_the_other_out_of_all_lists(method):
    X, Y = expression()
    X[:, 2] -= 2.0 * Y[:, 0]
    both = table_of(X, Y, method)
    for direction, sign in (("up", 1), ("down", -1)):
        own = both[np.sign(both["statistic"]) == sign]
        p = both["p_value"].where(np.sign(both["statistic"]) == sign, 1.0)
        q = stats.false_discovery_control(p)[np.sign(both["statistic"]) == sign]
        table = table_of(X, Y, method, direction=direction)
        np.testing.assert_allclose(table["p_value"], own["p_value"])
        np.testing.assert_allclose(table["q_value"], q)
        significant = table_of(X, Y, method, direction=direction, pairs="significant")
        assert significant.index.tolist() == own.index[q <= 0.1].tolist()
        assert len(significant) or (method, direction) == ("chi2", "up")
        best = own.sort_values("log10_p", kind="stable").groupby(level="label_index").head(2)
        listed = table_of(X, Y, method, direction=direction, pairs="best:2")
        assert set(listed.index) == set(best.index)
        asked = {"per_label": 1, "direction": direction}
        chosen = quiet(get_estimator(method)(None, **asked), X, Y)
        first = own.sort_values("log10_p", kind="stable").groupby(level="label_index").head(1)
        assert set(np.flatnonzero(chosen.support_)) == set(first.index.get_level_values("feature_index"))
    with pytest.raises(UsageError, match="direction changes nothing without pairs or per_label or min_labels or"):
        get_estimator(method)(2, direction="up").fit(X, Y)


def test_the_table_is_written_as_csv_and_reported(tmp_path):
    X, Y = expression(n=60)
    store, run = make_store(tmp_path / "store", X, Y), tmp_path / "run"
    asked = ["select", "br-cc", str(store), "-k2", "--pairs", "all", "-o", str(run), "--force"]
    assert CliRunner().invoke(command, asked).exit_code == 0
    expected = parquet.read_table(run / "pairs.parquet").to_pandas()
    assert CliRunner().invoke(command, [*asked, "--pairs-format", "csv"]).exit_code == 0
    assert not (run / "pairs.parquet").exists()
    pd.testing.assert_frame_equal(pd.read_csv(run / "pairs.csv", dtype={"feature": str, "label": str}), expected)
    assert CliRunner().invoke(command, ["report", str(run), "-o", str(tmp_path / "x.html")]).exit_code == 0
    assert "surest pairs" in (tmp_path / "x.html").read_text()


def test_weights_are_a_column_of_frequencies_or_of_a_survey(tmp_path):
    X, Y = expression(n=90, unknown=True)
    weights = np.random.default_rng(3).integers(0, 4, len(X))
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(8)]).assign(**{f"y{i}": Y[:, i] for i in range(3)})
    frame.assign(w=weights / 2, name="a").to_csv(tmp_path / "t.csv", index=False)
    store, run = str(tmp_path / "t.zarr"), str(tmp_path / "run")
    kept = ["convert", str(tmp_path / "t.csv"), store, "--label-columns", "y0,y1,y2", "--obs", "w,name"]
    assert CliRunner().invoke(command, kept).exit_code == 0

    def weighted(*asked, method="br-cc", column="w"):
        asked = ["select", method, store, "-k2", "--pairs", "all", "--weights", column, "-o", run, "--force", *asked]
        result = CliRunner().invoke(command, asked)
        assert result.exit_code == 0, result.output
        table = parquet.read_table(f"{run}/pairs.parquet").to_pandas()
        return table.set_index(["label_index", "feature_index"]).sort_index()

    halves = table_of(X, Y, weights=weights / 2).sort_index()
    assert weighted().equals(halves)
    repeated = table_of(np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0)).sort_index()
    np.testing.assert_allclose(halves["n"], repeated["n"] / 2)
    survey = weighted("--weight-kind", "survey")
    for (label, feature), pair in survey.iterrows():
        rows = (Y[:, label] >= 0) & (weights > 0)
        model = sm.WLS(X[rows, feature], sm.add_constant(Y[rows, label]), weights=weights[rows]).fit(cov_type="HC0")
        assert pair["effect"] == pytest.approx(model.params[1], rel=1e-9)
        error = model.bse[1] * np.sqrt(rows.sum() / (rows.sum() - 1))
        assert pair["standard_error"] == pytest.approx(error, rel=1e-9)
    with_many = table_of(X, Y, weights=weights * 100, weight_kind="survey").sort_index()
    np.testing.assert_allclose(with_many["p_value"], survey["p_value"])
    assert with_many["n"].loc[0].to_numpy() == pytest.approx(np.count_nonzero(weights))
    for asked, text in (
        (["rfs", "--weights", "w"], "rfs takes no weights of rows"),
        (["br-cc", "--weights", "name"], "the column of weights 'name' holds categories"),
        (["br-cc", "--weights", "v"], "the column of weights 'v' is not there; there are w, name"),
        (["br-cc", "--weight-kind", "survey"], "--weight-kind changes nothing without --weights"),
        (["br-cc", "--weights", "w", "--weight-kind", "survey", "--control", "partial"], "weights of surveys are not"),
    ):
        refused = CliRunner().invoke(command, ["select", asked[0], store, "-k2", "-o", run, "--force", *asked[1:]])
        assert refused.exit_code == 2
        assert text in refused.stderr


def ranked(x, y):
    """U by the label's rows, and p, of known entries, as SciPy has them; without p where a label is constant."""
    inside, outside = x[y == 1], x[y == 0]
    tested = stats.mannwhitneyu(inside, outside, method="asymptotic", use_continuity=False)
    return tested.statistic, tested.pvalue, len(inside) * len(outside)


@pytest.mark.parametrize("gates", ["as they are", "small"])
@pytest.mark.parametrize("put", ["dense", "sparse", "dask", "unknown"])
def test_rank_tests_are_those_of_scipy(put, gates, request):
    if gates == "small":
        request.getfixturevalue("small_gates")
    X, Y = expression(unknown=put == "unknown")
    X[:, 4] = np.where(X[:, 4] > 0, 1, -1) * X[:, 3] ** 3  # negative and positive, with many zeros
    X = np.column_stack([X, np.full(len(X), 2.0)])
    given_X = {"sparse": sp.csr_array, "dask": lambda X: da.from_array(X, chunks=(40, 5))}.get(put, np.array)(X)
    table = table_of(given_X, Y, pair_test="rank")
    compared = 0
    for (label, feature), pair in table.iterrows():
        U, p, most = ranked(X[:, feature], Y[:, label])
        if feature == 8:  # constant
            assert np.isnan(pair["p_value"])
            continue
        assert pair["effect"] == pytest.approx(2 * U / most - 1, abs=1e-12)
        assert 2 * stats.norm.sf(abs(pair["statistic"])) == pytest.approx(p, rel=1e-9)
        if not pair["corrected"]:
            assert pair["p_value"] == pytest.approx(p, rel=1e-9)
            compared += 1
        low, high = pair[["effect_low", "effect_high"]]
        assert low < pair["effect"] < high
    assert compared > 15
    assert set(table["test"]) == {"rank sum"}
    with_counts = table_of(given_X, Y, "chi2", pair_test="rank")
    np.testing.assert_array_equal(with_counts["p_value"], table["p_value"])


@pytest.mark.parametrize("adjusted", ["", "covariates", "strata", "sparse"])
@pytest.mark.parametrize("rows", ["all", "unknown", "weighted"])
def test_logistic_score_tests_are_those_of_statsmodels(rows, adjusted):
    X, Y = expression(unknown=rows == "unknown")
    weights = np.random.default_rng(4).integers(0, 3, len(X)) if rows == "weighted" else None
    column = np.random.default_rng(5).integers(0, 3, len(X)).astype(float)
    data, options, design = X, {}, np.ones((len(X), 1))
    if adjusted in ("covariates", "sparse"):
        options, design = {"covariates": column}, np.column_stack([design, column])
        data = sp.csr_array(X) if adjusted == "sparse" else X
    elif adjusted:
        options, design = {"strata": column}, np.column_stack([design, column == 1, column == 2])
    table = table_of(data, Y, pair_test="logistic", weights=weights, **options)
    counted = np.ones(len(X), int) if weights is None else weights
    for (label, feature), pair in table.iterrows():
        known = np.repeat(np.arange(len(X)), counted * (Y[:, label] >= 0))
        x, y = X[known, feature], Y[known, label]
        null = sm.GLM(y, design[known].astype(float), family=sm.families.Binomial()).fit(tol=1e-13)
        chi2, p, _ = null.model.score_test(null.params, exog_extra=x[:, np.newaxis])
        assert pair["statistic"] ** 2 == pytest.approx(float(np.squeeze(chi2)), rel=1e-6)
        assert adjusted or np.sign(pair["statistic"]) == np.sign(x[y == 1].mean() - x[y == 0].mean())
        assert pair["p_value"] >= float(np.squeeze(p)) * (1 - 1e-6)  # the larger of it and the saddlepoint's
        assert pair["effect"] / pair["standard_error"] == pytest.approx(pair["statistic"], rel=1e-9)
    assert set(table["effect_kind"]) == {"log odds per unit"}


def test_logistic_score_tests_hold_where_spread_and_share_follow_a_covariate():
    rng = np.random.default_rng(6)
    age = rng.normal(size=3000)
    X = rng.lognormal(sigma=1.2, size=(3000, 200)) * np.exp(age / 2)[:, np.newaxis]
    Y = (rng.random((3000, 3)) < special.expit(special.logit([0.02, 0.05, 0.1]) + age[:, np.newaxis])).astype(np.int8)
    found = {}
    for test in ("t", "logistic"):
        p = table_of(X, Y, pair_test=test, covariates=age)["p_value"]
        found[test] = (p < 0.05).mean(), (p < 0.001).mean()
    assert found["t"][0] > 0.09
    assert found["logistic"][0] < 0.06
    assert found["logistic"][1] < 0.004


def test_plans_of_logistic_models_hold(tmp_path):
    """Passes are at most those of the plan, and models are fitted without reading X."""
    X, Y = expression()
    frame = pd.DataFrame(X).assign(a=Y[:, 0], b=Y[:, 1], age=np.arange(150) % 7)
    frame.to_csv(tmp_path / "t.csv", index=False)
    store = str(tmp_path / "t.zarr")
    words = ["convert", str(tmp_path / "t.csv"), store, "--label-columns", "a,b", "--obs", "age"]
    assert CliRunner().invoke(command, words).exit_code == 0
    asked = ["br-cc", store, "-k2", "--pairs", "all", "--pair-test", "logistic", "--covariates", "age", "--json"]
    plan, run = (
        CliRunner().invoke(command, each) for each in (["plan", *asked], ["select", *asked, "-o", store + ".run"])
    )
    assert plan.exit_code == run.exit_code == 0, plan.output + run.output
    planned, record = json.loads(plan.stdout), json.loads(run.stdout)
    low, high = planned["typical_passes"]
    assert low <= record["passes"] <= high
    assert record["bytes_read"] < 5 * 150 * 8 * 8


def test_plans_count_the_passes_of_ranks_and_tests_refuse_what_they_have_not(tmp_path, monkeypatch):
    from mlfs_dask.blocks import gates

    X, Y = expression()
    store = str(make_store(tmp_path / "store", X, Y))
    monkeypatch.setattr(gates, "RANK_BYTES", 3000)
    asked = ["br-cc", store, "-k2", "--pairs", "best:1", "--pair-test", "rank", "--json"]
    commands = ["plan", *asked], ["select", *asked, "-o", str(tmp_path / "run")]
    plan, run = (CliRunner().invoke(command, each) for each in commands)
    assert plan.exit_code == run.exit_code == 0, plan.output + run.output
    passes = 1 + -(-8 * 150 * 8 // 3000)
    assert passes == json.loads(plan.stdout)["passes"] == json.loads(run.stdout)["passes"]
    for refused, text in (
        ({"control": "partial"}, r"pair_test='rank' has no tests given the other features \(control='partial'\)"),
        ({"strata": Y[:, 0]}, "has no tests within strata"),
        ({"clusters": np.arange(150) % 9}, "has no tests of clusters of rows"),
        ({"weights": np.arange(150.0)}, "has no tests of weighted rows"),
        ({"covariates": X[:, :1]}, "has no tests adjusted for covariates"),
    ):
        with pytest.raises(UsageError, match=text):
            table_of(X, Y, pair_test="rank", **refused)
    with pytest.raises(UsageError, match="pair_test changes nothing without pairs"):
        table_of(X, Y, pairs=None, pair_test="rank")
