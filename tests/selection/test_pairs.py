"""Pairs of labels and features: their tests against SciPy's, what is adjusted, kept and written, and what it costs."""

import csv
import json
import warnings

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scipy import integrate, stats
from scipy import sparse as sp

from mlfs_dask.blocks.pair_tests import log_heavy_tail
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.selection import pairs as selection_pairs
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from mlfs_dask_cli.main import mlfs as command
from tests.problems import quiet
from tests.reference.pairs import pair_tests, shuffled_within
from tests.storage.stores import make_store


def problem(seed=0, n=120, q=4):
    """0/1 features from rare to nearly always, Gaussian and log-normal ones, and a constant; labels as well."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < np.linspace(0.03, 0.5, q)).astype(np.int8)
    Y[0], Y[1] = 0, 1
    words = (rng.random((n, 6)) < [0.02, 0.1, 0.3, 0.5, 0.9, 0.98]).astype(float)
    numbers = np.hstack([rng.normal(size=(n, 2)), rng.lognormal(sigma=1.5, size=(n, 2)), np.ones((n, 1))])
    words[:, 2] = np.where(rng.random(n) < 0.7, Y[:, 2], words[:, 2])
    numbers[:, 1] -= Y[:, 3]
    words[0], words[1] = 0, 1
    return np.hstack([words, numbers]), Y


def table_of(X, Y, method="br-cc", **parameters):
    selector = quiet(get_estimator(method)(**{"n_features_to_select": 3, "pairs": "all", **parameters}), X, Y)
    return selector, selector.pairs_


def grid(table, column, q):
    return table.sort_values(["label_index", "feature_index"])[column].to_numpy().reshape(q, -1)


@pytest.mark.parametrize("seed", [0, 1])
def test_pairs_are_tested_as_by_scipy(seed):
    X, Y = problem(seed)
    _, table = table_of(X, Y)
    for column, expected in zip(["effect", "statistic", "p_value"], pair_tests(X, Y), strict=True):
        np.testing.assert_allclose(grid(table, column, Y.shape[1]), expected, rtol=1e-8, atol=1e-12)
    assert (grid(table, "positives", 4) == Y.sum(axis=0)[:, np.newaxis]).all()
    assert (table["n"] == len(X)).all()
    zero_one = table["effect_kind"] == "log odds ratio"
    assert sorted(table.loc[zero_one, "feature_index"].unique()) == [0, 1, 2, 3, 4, 5, 10]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 120), st.sampled_from(["dense", "sparse", "dask"]), st.sets(st.integers(0, 3), min_size=1))
def test_the_numbers_of_a_label_depend_neither_on_other_labels_nor_on_containers(rows, container, chosen):
    X, Y = problem()
    _, whole = table_of(X, Y)
    labels = sorted(chosen)
    given_X = {"dense": X, "sparse": sp.csr_array(X), "dask": da.from_array(X, chunks=(rows, 5))}[container]
    _, part = table_of(given_X, Y[:, labels])
    for column in ("n", "positives", "effect", "statistic", "p_value"):
        expected = grid(whole, column, 4)[labels].astype(float)
        np.testing.assert_allclose(grid(part, column, len(labels)).astype(float), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sorted_pairs", [2**24, 0])
@pytest.mark.parametrize("control", ["bh", "by", "holm"])
def test_p_values_are_adjusted_over_all_pairs(control, sorted_pairs, monkeypatch):
    monkeypatch.setattr(selection_pairs, "SORTED_PAIRS", sorted_pairs)
    monkeypatch.setattr(selection_pairs, "tile_features", lambda q, d: 3)
    X, Y = problem()
    _, table = table_of(X, Y, control=control)
    p = table["p_value"].dropna().to_numpy()
    if control == "holm":
        order = np.argsort(p)
        expected = np.empty(len(p))
        expected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    else:
        expected = stats.false_discovery_control(p, method=control)
    q = table["q_value"].dropna().to_numpy()
    np.testing.assert_allclose(q, expected, rtol=1e-12 if sorted_pairs else 1 / 256)
    assert (q >= expected * (1 - 1e-12)).all()  # bins err to the safe side
    selector, significant = table_of(X, Y, control=control, pairs="significant")
    assert selector.report_.extra["pairs"]["significant"] == len(significant) == (q <= 0.1).sum() > 0
    kept = table[table["q_value"] <= 0.1].reset_index(drop=True)
    assert kept.equals(significant)


def test_the_best_of_every_label_are_the_head_of_its_list(monkeypatch):
    monkeypatch.setattr(selection_pairs, "tile_features", lambda q, d: 2)
    X, Y = problem()
    _, table = table_of(X, Y)
    _, best = table_of(X, Y, pairs="best:3")
    rising = table.dropna(subset=["p_value"]).sort_values(["label_index", "log10_p", "feature_index"])
    expected = rising.groupby("label_index").head(3).reset_index(drop=True)
    assert best.equals(expected)


def test_a_feature_that_cannot_be_tested_has_no_best_label(tmp_path):
    X, Y = problem()
    X[:, 0] = 3.0
    store, run = make_store(tmp_path / "store", X, Y), tmp_path / "run"
    result = CliRunner().invoke(command, ["select", "br-cc", str(store), "-k3", "--pairs", "all", "-o", str(run)])
    assert result.exit_code == 0, result.output
    rows = csv.DictReader((run / "ranking.csv").read_text().splitlines())
    labels = {row["feature_index"]: row["best_label"] for row in rows}
    assert labels.pop("10") == ""  # constant in `problem`
    assert labels.pop("0") == ""
    assert all(labels.values())


def test_per_label_and_min_labels_choose_by_the_pairs():
    X, Y = problem()
    _, table = table_of(X, Y)
    rising = table.dropna(subset=["p_value"]).sort_values(["label_index", "p_value"])
    place = rising.groupby("label_index").cumcount()
    union = rising.assign(place=place)[place < 2].sort_values(["place", "p_value"])["feature_index"].unique()
    chosen, _ = table_of(X, Y, per_label=2, n_features_to_select=None)
    assert chosen.ranking_[: chosen.report_.k].tolist() == union.tolist()
    assert set(np.flatnonzero(chosen.support_)) == set(union)
    assert table_of(X, Y, per_label=2, n_features_to_select=2)[0].ranking_[:2].tolist() == union[:2].tolist()
    X[:, 3] = Y[:, 2] | Y[:, 3]  # goes with two labels
    p = np.sort(grid(table_of(X, Y)[1], "p_value", 4)[:, :-1], axis=0)
    for least in (1, 2):  # Benjamini and Heller's p-values of partial conjunctions, adjusted over features
        factors = (5 - least) / np.arange(1, 6 - least)
        several_p = np.append((p[least - 1 :] * factors[:, np.newaxis]).min(axis=0), 1.0)
        expected = stats.false_discovery_control(several_p) <= 0.1
        several, _ = table_of(X, Y, min_labels=least, n_features_to_select=None)
        assert several.support_.tolist() == expected.tolist()
        assert expected.any()
    everything, _ = table_of(X, Y, per_label=99, n_features_to_select=None)
    assert everything.support_.sum() == X.shape[1] - 1  # a constant has no place
    with pytest.raises(
        DataError, match=r"(?s)no feature is associated with 4 labels or more at the rate 0.1 .*\(min_labels\)"
    ):
        table_of(X, Y, min_labels=4)


@pytest.mark.parametrize("method", ["br-cc", "rfs"])
def test_auto_with_control_keeps_what_goes_with_any_label(method):
    X, Y = problem()
    _, table = table_of(X, Y)
    p = np.sort(grid(table, "p_value", 4)[:, :-1], axis=0)
    any_label = np.append((p * 4 / np.arange(1, 5)[:, np.newaxis]).min(axis=0), 1.0)
    expected = stats.false_discovery_control(any_label)
    selector, _ = table_of(X, Y, method, n_features_to_select="auto", control="bh")
    np.testing.assert_allclose(selector.q_values_, expected, rtol=1e-9)
    assert set(np.flatnonzero(selector.support_)) == set(np.flatnonzero(expected <= 0.1))
    assert selector.report_.k == (expected <= 0.1).sum()
    if method == "br-cc":
        assert selector.report_.passes == 1
    more = int((expected <= 0.1).sum()) + 1  # a count is kept, whatever is found
    counted, _ = table_of(X, Y, method, n_features_to_select=more, control="bh")
    assert counted.report_.k == counted.support_.sum() == more
    with pytest.raises(DataError, match="no feature is associated with any label at the rate 1e-30"):
        table_of(X, Y, method, n_features_to_select="auto", control="holm", fdr=1e-30)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_tells_pairs_and_ranks_as_without(method):
    X, Y = problem(n=60)
    short = {name: value for name, value in {"max_iter": 2, "tol": 0.0}.items() if hasattr(METHODS[method], name)}
    parameters = {"n_features_to_select": 3, **short}
    alone = quiet(get_estimator(method)(**parameters), X, Y)
    selector, table = table_of(X, Y, method, **parameters)
    np.testing.assert_array_equal(selector.scores_, alone.scores_)
    np.testing.assert_array_equal(selector.ranking_, alone.ranking_)
    assert (table["n"] == len(X)).all()
    effect, statistic, p = pair_tests(X, Y)
    if not table["effect_kind"].str.startswith("information").any():
        for column, expected in zip(["effect", "statistic", "p_value"], (effect, statistic, p), strict=True):
            np.testing.assert_allclose(grid(table, column, Y.shape[1]), expected, rtol=1e-8, atol=1e-12)
    resources = current_resources()
    source = ArrayRows(X, sp.csr_array(Y))
    further = selector.plan(source, resources).passes - alone.plan(source, resources).passes
    assert selector.report_.passes == alone.report_.passes + further
    assert further in (0, 1)


def test_a_weight_of_two_is_the_row_twice():
    X, Y = problem()
    weights = np.random.default_rng(0).integers(0, 3, len(X))
    weighted = get_estimator("br-cc")(3, pairs="all").fit(X, Y, sample_weight=weights).pairs_
    _, repeated = table_of(np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0))
    np.testing.assert_allclose(weighted["statistic"], repeated["statistic"], rtol=1e-9)


def test_the_command_writes_pairs_and_columns_of_the_ranking(tmp_path):
    X, Y = problem()
    store = make_store(tmp_path / "store", X, Y)
    run = tmp_path / "run"
    options = ["--pairs", "significant", "--per-label", "2", "--json"]
    result = CliRunner().invoke(command, ["select", "br-cc,rfs", str(store), *options, "-o", str(run)])
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)["runs"][0]
    table = parquet.read_table(run / "br-cc" / "pairs.parquet").to_pandas()
    assert told["extra"]["pairs"]["significant"] == len(table) > 0
    assert told["passes"] <= 1
    header, *rows = (run / "br-cc" / "ranking.csv").read_text().splitlines()
    assert header == "rank,feature_index,feature_name,score,significant_labels,best_label"
    counts = table.groupby("feature_index").size()
    assert all(int(row.split(",")[4]) == counts.get(int(row.split(",")[1]), 0) for row in rows)
    to_memory = ["select", "br-cc", str(store), "--pairs", "best:1", "-k2", "-o", "memory://pairs-run"]
    assert CliRunner().invoke(command, to_memory).exit_code == 0
    refused = CliRunner().invoke(command, ["select", "br-cc", str(store), "--pairs", "best", "-k2", "-o", "x"])
    assert refused.exit_code == 2
    assert "--pairs must be 'best:N', 'significant' or 'all'; got 'best'" in refused.stderr


def test_what_cannot_be_asked_is_refused():
    X, Y = problem()
    with pytest.raises(UsageError, match="pairs must be 'best:N', 'significant' or 'all'; got 'best:0'"):
        table_of(X, Y, pairs="best:0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(UsageError, match="there are no labels to test features with"):
            get_estimator("laplacian")(3, pairs="all").fit(X)


def codes_problem():
    rng = np.random.default_rng(5)
    n = 600
    X = rng.integers(0, 3, (n, 6)).astype(float)
    X[:, 5] = np.where(rng.random(n) < 0.01, 2.0, X[:, 5] == 2)  # a rare code
    Y = (rng.random((n, 3)) < [0.4, 0.2, 0.02]).astype(np.int8)
    X[:, 0] = np.where(Y[:, 0] & (rng.random(n) < 0.6), 0, X[:, 0])
    X[:, 1] = np.where(Y[:, 1] & (rng.random(n) < 0.6), 1, X[:, 1])
    return X, Y


@pytest.mark.parametrize("method", ["chi2", "label-entropy", "mrmr"])
def test_methods_of_counts_test_the_information_of_codes(method):
    X, Y = codes_problem()
    parameters = {"bins": 3, "binning": "equal-width"}
    selector, table = table_of(X, Y, method, **parameters)
    alone = quiet(get_estimator(method)(3, **parameters), X, Y)
    assert selector.report_.passes == alone.report_.passes
    assert set(table["effect_kind"]) == {"information, trend"}
    assert set(table["test"]) == {"Pearson" if method == "chi2" else "G"}
    kinds = ArrayRows(np.minimum(X, [2, 2, 1, 2, 2, 2]), as_labels(Y), n_categories=np.array([3, 3, 2, 0, 0, 0]))
    of_kinds = quiet(get_estimator(method)(3, pairs="all", **parameters), kinds, None).pairs_
    assert (grid(of_kinds, "effect_kind", 3) == [["information"] * 2 + ["information, trend"] * 4] * 3).all()
    effect, statistic, p = (grid(table, name, 3) for name in ("effect", "statistic", "p_value"))
    for label in range(3):
        for feature in range(6):
            counts = np.array([np.bincount(X[Y[:, label] == y, feature].astype(int), minlength=3) for y in (0, 1)])
            g, of_g, _, expected = stats.chi2_contingency(counts, correction=False, lambda_="log-likelihood")
            np.testing.assert_allclose(abs(effect[label, feature]), g / 1200)
            if method == "chi2":
                g, of_g, *_ = stats.chi2_contingency(counts, correction=False)
            np.testing.assert_allclose(abs(statistic[label, feature]), g)
            trend = np.corrcoef(X[:, feature], Y[:, label])[0, 1]
            assert np.sign(statistic[label, feature]) == np.sign(trend)
            if expected.min() >= 1 / 0.09:
                np.testing.assert_allclose(p[label, feature], of_g, rtol=1e-9)
                continue
            single = pair_tests((X[:, [feature]] == [0, 1, 2]).astype(float), Y[:, [label]])[2]
            np.testing.assert_allclose(p[label, feature], min(3 * single.min(), 1), rtol=1e-8)


def stratified():
    """Numbers with spikes, rare and frequent 0/1 features, and labels, whose shares and spreads differ by stratum."""
    rng = np.random.default_rng(2)
    n = 700
    batch = np.minimum(rng.integers(0, 3, n), rng.integers(0, 30, n))
    X = np.where(rng.random((n, 6)) < 0.05, rng.normal(size=(n, 6)) * 10.0 ** np.arange(-1, 2)[batch, np.newaxis], 0)
    X[:, :3] = rng.random((n, 3)) < np.outer(10.0 ** -np.arange(3)[batch], [0.1, 0.5, 0.9])
    X[:, 5] += 40 + 3 * batch
    Y = (rng.random((n, 3)) < np.outer([0.5, 0.3, 0.1], [0.05, 0.3, 1.0])[batch]).astype(np.int8)
    X[:, 4] += 3 * Y[:, 1]
    Y[rng.random(n) < 0.2 + 0.3 * X[:, 1], 2] = -1
    return X, Y, np.array(["a", "b", "c"])[batch]


@pytest.mark.parametrize("put", ["dense", "sparse", "dask", "known"])
def test_pairs_in_strata_are_those_of_shuffles_within_them(put):
    X, Y, batch = stratified()
    if put == "known":
        Y = np.abs(Y)
    rows = {"sparse": (sp.csr_array(X), sp.csr_array(Y)), "dask": (da.from_array(X, chunks=(90, 4)), Y)}
    selector = get_estimator("br-cc")(3, pairs="all")
    table = selector.fit(*rows.get(put, (X, Y)), strata=batch).pairs_
    z, p = (grid(table, name, 3) for name in ("statistic", "p_value"))
    for feature in range(6):
        for found, expected in zip((z, p), shuffled_within(X[:, feature], Y, batch), strict=True):
            np.testing.assert_allclose(found[:, feature], expected, rtol=1e-7)
    tests = table.groupby("feature_index")["test"].unique().map(list).tolist()
    assert tests == [["CMH"]] * 3 + [["z within strata"]] * 3
    assert (np.sign(table["effect"]) == np.sign(table["statistic"])).all()
    best = get_estimator("br-cc")(3, pairs="best:2").fit(*rows.get(put, (X, Y)), strata=batch).pairs_
    rising = table.sort_values(["label_index", "log10_p"]).groupby("label_index").head(2).reset_index(drop=True)
    assert best.drop(columns="q_value").equals(rising.drop(columns="q_value"))
    weighted = get_estimator("br-cc")(3, pairs="all").fit(X, Y, np.full(len(X), 1), strata=batch).pairs_
    np.testing.assert_allclose(grid(weighted, "p_value", 3), p, rtol=1e-7)


def test_methods_of_counts_test_pairs_in_strata_by_cochran_mantel_and_haenszel():
    X, Y, batch = stratified()
    X[:, 3:] = np.digitize(X[:, 3:], [-1, 1, 44])
    table = get_estimator("chi2")(3, pairs="all", bins=2).fit(X[:, :3], Y, strata=batch).pairs_
    z, p, n = (grid(table, name, 3) for name in ("statistic", "p_value", "n"))
    corrected = grid(table, "corrected", 3)
    for feature in range(3):
        expected, of_z = shuffled_within(X[:, feature], Y, batch)
        np.testing.assert_allclose(z[:, feature], np.sign(expected) * expected**2, rtol=1e-9)
        of_chi2 = np.where(corrected[:, feature], of_z, stats.chi2.sf(expected**2, 1))
        np.testing.assert_allclose(p[:, feature], of_chi2, rtol=1e-7)
    assert corrected.any()
    assert not corrected.all()
    assert n.tolist() == np.repeat((Y >= 0).sum(axis=0), 3).reshape(3, 3).tolist()
    assert set(table["test"]) == {"CMH"}
    with pytest.raises(UsageError, match="chi2 counts in strata, of which nothing is tested given the other features"):
        get_estimator("chi2")(3, control="partial").fit(X, Y, strata=batch)


def test_the_tail_of_a_heavy_law_is_that_of_its_draws():
    rng = np.random.default_rng(0)
    for skewness, kurtosis in [(0.0, 1.0), (0.6, 2.0), (-0.6, 5.0), (1.0, 30.0)]:
        scale = np.sqrt(kurtosis / 6)
        right, left = ((1 + sign * skewness / (2 * scale)) / scale**2 / 2 for sign in (1, -1))
        drawn = scale * (rng.gamma(right, size=10**6) - rng.gamma(left, size=10**6) - right + left)
        assert [stats.skew(drawn), stats.kurtosis(drawn)] == pytest.approx([skewness, kurtosis], abs=0.1 * kurtosis)
        for score in (1.5, 3.0, 4.0):
            tail = np.exp(log_heavy_tail(np.array([score]), np.array([skewness]), np.array([kurtosis])))[0]
            assert 0.7 * tail < (drawn >= score).mean() < 1.1 * tail, (skewness, kurtosis, score)


def test_the_surest_pairs_are_told_apart_where_p_values_are_too_small_for_numbers():
    rng = np.random.default_rng(0)
    Y = (rng.random((20_000, 2)) < 0.5).astype(np.int8)
    X = Y[:, [0]] * np.array([1.0, 2.0, 4.0, 3.0]) + rng.normal(size=(20_000, 4))
    _, table = table_of(X, Y, pairs="best:2")
    own = table[table["label_index"] == 0]
    assert own["feature_index"].tolist() == [2, 3]
    assert own["p_value"].tolist() == [0, 0]
    for t, log10_p in zip(own["statistic"], own["log10_p"], strict=True):
        law = stats.t(19_998)
        relative, _ = integrate.quad(lambda x, t=t, law=law: np.exp(law.logpdf(x) - law.logpdf(t)), t, t + 2)
        assert log10_p == pytest.approx((law.logpdf(t) + np.log(2 * relative)) / np.log(10), rel=1e-9)
    X, Y = codes_problem()
    for method in ("chi2", "label-entropy"):
        _, table = table_of(np.tile(X, (100, 1)), np.tile(Y, (100, 1)), method, bins=3, binning="equal-width")
        pair = table.sort_values("log10_p").iloc[0]
        assert pair["p_value"] == 0
        assert pair["log10_p"] == pytest.approx((-abs(pair["statistic"]) / 2) / np.log(10), rel=1e-9)  # of two degrees


def test_effect_and_statistic_have_one_sign():
    X, Y = np.zeros((1000, 1)), np.zeros((1000, 1), np.int8)
    X[:2], Y[2:9] = 1, 1
    _, table = table_of(X, Y, n_features_to_select=1)
    assert table["statistic"][0] < 0
    assert table["effect"][0] == pytest.approx((0 - 0.014) / stats.hypergeom(1000, 2, 7).var())  # Peto's


def test_features_of_few_labels_are_not_taken_for_those_of_several():
    """Three features that go with all labels make a hundred chance pairs significant in a list over all pairs."""
    false, true = 0, 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        Y = (rng.random((500, 20)) < 0.3).astype(np.int8)
        X = rng.normal(size=(500, 100))
        X[:, :3] += Y.sum(axis=1, keepdims=True)
        chosen = np.flatnonzero(quiet(get_estimator("br-cc")(None, min_labels=1), X, Y).support_)
        false, true = false + (chosen >= 3).sum(), true + (chosen < 3).sum()
    assert true == 30
    assert false <= 10  # at a rate of 0.1 some 3; of the features that are significant for some label there are 40


@pytest.mark.parametrize(
    ("method", "strata"),
    [
        *((method, None) for method in ("br-cc", "chi2", "label-entropy", "br-or", "ela-chi", "rfs")),
        *((method, np.arange(120) % 3) for method in ("br-cc", "chi2", "label-entropy", "br-or")),
    ],
)
def test_labels_of_which_nothing_is_to_be_learnt_are_told_and_not_tested(method, strata):
    X, Y = problem()
    Y = np.column_stack([Y, np.zeros(120), np.full(120, -1)]).astype(np.int8)
    further = {"rfs": {"max_iter": 2}, "label-entropy": {"n_promising_labels": 1.0}}.get(method, {})
    selector = get_estimator(method)(3, pairs="all", **further)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("always", UserWarning)
        table = selector.fit(X, Y, strata=strata).pairs_
    never = "label (column 5 of Y, counted from 0) is known in no row, and has no part in the scores"
    assert never in [str(warning.message) for warning in told]
    assert grid(table, "n", 6)[:, 0].tolist() == [120] * 5 + [0]
    for column in ("effect", "statistic", "p_value", "q_value", "log10_p"):
        assert np.isnan(grid(table, column, 6)[4:]).all()
        assert not np.isnan(grid(table, column, 6)[:4, :-1]).any()
    assert not grid(table, "corrected", 6)[4:].any()


def test_covariates_that_leave_no_degree_of_freedom_are_told():
    X, Y = problem(n=20)
    for parameters in ({}, {"pairs": "all"}, {"control": "bh", "n_features_to_select": "auto"}):
        selector = get_estimator("br-cc")(**{"n_features_to_select": 2} | parameters)
        with pytest.raises(DataError, match="covariates and strata take 19 degrees of freedom, and 20 rows leave none"):
            selector.fit(X, Y, covariates=np.random.default_rng(0).normal(size=(20, 25)))
