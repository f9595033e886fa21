"""Rows that belong together: tests of pairs, shuffles, resamples and folds that take whole clusters."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from scipy import stats

import mlfs_dask as mlfs
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.rows.contract import Block
from mlfs_dask.rows.covariates import ArrayColumn
from mlfs_dask.rows.joined import JoinedRows
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.rows.view import RowView
from mlfs_dask.selection.fit import fit
from mlfs_dask.selection.question import ask
from mlfs_dask.statistics.resampling import Resampling


def problem(seed=0, donors=12, n=240, d=5):
    """Rows of donors in any order; feature 0 goes with label 2, and labels 0 and 1 are of the donor."""
    rng = np.random.default_rng(seed)
    donor = rng.permutation(np.arange(n) % donors)
    X = rng.normal(size=(n, d)) + rng.normal(size=(donors, d))[donor]
    X[rng.random((n, d)) < 0.3] = 0
    of_donor = rng.permutation(np.arange(donors) % 2 == 0)[:, np.newaxis] ^ (np.arange(donors)[:, np.newaxis] < [3, 0])
    Y = np.column_stack([of_donor[donor], X[:, 0] + rng.normal(size=n) > 0.5]).astype(np.int8)
    return X, Y, donor


def pairs_of(X, Y, donor, **options):
    fitted = mlfs.BRCC(n_features_to_select=3, pairs="all").fit(X, Y, clusters=donor, **options)
    return {(row["feature_index"], row["label_index"]): row for row in fitted.pairs_.to_dict("records")}


def score_statistic(x, y, design, donor):
    """Statistic of the robust score test of generalised estimating equations."""
    full = sm.GEE(x, np.column_stack([design, y]), groups=donor)
    return full.compare_score_test(sm.GEE(x, design, groups=donor).fit())["statistic"]


@pytest.mark.parametrize("adjusted", ["", "covariates", "strata"])
def test_pairs_are_those_of_the_score_test_of_estimating_equations(adjusted):
    X, Y, donor = problem()
    Y[np.random.default_rng(1).random(len(Y)) < 0.2, 2] = -1
    column = np.random.default_rng(2).integers(0, 3, len(Y))
    options = {} if not adjusted else {adjusted: column.astype(float) if adjusted == "covariates" else column}
    design = np.ones((len(Y), 1))
    if adjusted == "covariates":
        design = np.column_stack([design, column])
    elif adjusted == "strata":
        design = np.column_stack([design, column == 1, column == 2])
    table = pairs_of(X, Y, donor, **options)
    for f, label in [(0, 0), (1, 1), (0, 2), (3, 2)]:
        known = Y[:, label] >= 0
        expected = score_statistic(X[known, f], Y[known, label], design[known].astype(float), donor[known])
        t = table[f, label]["statistic"]
        assert 12 * t**2 / (11 + t**2) == pytest.approx(expected, rel=1e-6)
        assert table[f, label]["test"] == "t of clusters"
        full = np.column_stack([design, Y[:, label]])[known].astype(float)
        linear = sm.OLS(X[known, f], full).fit(
            cov_type="cluster", cov_kwds={"groups": donor[known], "use_correction": False}
        )
        assert table[f, label]["effect"] == pytest.approx(linear.params[-1])
        assert table[f, label]["standard_error"] == pytest.approx(linear.bse[-1] * np.sqrt(12 / 11))


def test_numeric_targets_are_tested_by_clusters_too():
    X, _, donor = problem(seed=7)
    dose = 3 * X[:, [0]] + np.random.default_rng(8).normal(size=(len(X), 1)) * 5 + donor[:, np.newaxis]
    dose[::9] = np.nan
    donor[1:3] = 97, 98  # two of a row each
    known = ~np.isnan(dose[:, 0])
    fitted = mlfs.BRCC(n_features_to_select=3, pairs="all", target_type="continuous").fit(X, dose, clusters=donor)
    for row in fitted.pairs_.to_dict("records"):
        expected = score_statistic(
            X[known, row["feature_index"]], dose[known, 0], np.ones((known.sum(), 1)), donor[known]
        )
        assert 14 * row["statistic"] ** 2 / (13 + row["statistic"] ** 2) == pytest.approx(expected, rel=1e-6)
        design = sm.add_constant(X[known, row["feature_index"]])
        clusters = {"groups": donor[known], "use_correction": False}
        linear = sm.OLS(dose[known, 0], design).fit(cov_type="cluster", cov_kwds=clusters)
        assert row["effect"] == pytest.approx(linear.params[1])
        assert row["standard_error"] == pytest.approx(linear.bse[1] * np.sqrt(14 / 13))


def twin(X, Y, donor, weights):
    """Statistics of all pairs, of known labels, by definition."""
    w = weights / weights.sum()
    x, y = X - w @ X, Y - w @ Y
    scores = np.stack([(weights * own) @ (x[:, np.newaxis] * y[:, :, np.newaxis]).reshape(len(X), -1)
                       for own in (donor == number for number in np.unique(donor))])  # fmt: skip
    G = len(scores)
    squares = scores.sum(axis=0) ** 2 / (scores**2).sum(axis=0)
    return (np.sign(scores.sum(axis=0)) * np.sqrt(squares * (G - 1) / (G - squares))).reshape(Y.shape[1], -1)


@settings(max_examples=25)
@given(
    cuts=st.lists(st.integers(1, 59), max_size=3, unique=True).map(sorted),
    donors=st.sampled_from([3, 20, 60]),
    csr=st.booleans(),
    in_order=st.booleans(),
    weighted=st.booleans(),
)
def test_partitions_containers_and_order_change_nothing(cuts, donors, csr, in_order, weighted):
    X, Y, donor = problem(seed=3, donors=donors, n=60)
    if in_order:
        donor = np.sort(donor)
    weights = np.where(weighted, 1.0 + np.arange(60) % 3, 1.0)
    edges = [0, *cuts, 60]
    pieces = [as_rows(sp.csr_array(X[a:b]) if csr else X[a:b], Y[a:b]) for a, b in itertools.pairwise(edges)]
    source = pieces[0] if len(pieces) == 1 else JoinedRows(pieces)
    question = ask("br-cc", 3, pairs="all")
    fitted = fit(question, source, weights if weighted else None, clusters=donor)
    table = (
        fitted.pairs.table().to_pandas().pivot_table(index="label_index", columns="feature_index", values="statistic")
    )
    np.testing.assert_allclose(table, twin(X, Y, donor, weights), rtol=1e-8)


def test_a_label_of_the_donor_goes_with_noise_without_clusters_only():
    rng = np.random.default_rng(4)
    donor = np.repeat(np.arange(20), 100)
    X = rng.normal(size=(2000, 1000)) + 0.33 * rng.normal(size=(20, 1000))[donor]
    Y = (np.arange(20) % 2)[donor][:, np.newaxis]
    shares = {}
    for clusters in (None, donor):
        fitted = mlfs.BRCC(n_features_to_select=5, pairs="all").fit(X, Y, clusters=clusters)
        shares[clusters is None] = (fitted.pairs_["p_value"].to_numpy() < 0.05).mean()
    assert shares[True] > 0.4
    assert shares[False] < 0.08
    shuffled = mlfs.BRCC(n_features_to_select="auto", random_state=0)
    assert shuffled.fit(X, Y).report_.k > 100
    with pytest.raises(DataError, match="no feature is associated with the labels more than by chance"):
        shuffled.fit(X, Y, clusters=donor)


def test_a_feature_of_the_label_is_found_by_shuffled_clusters():
    X, Y, donor = problem(seed=5, donors=40, n=400, d=30)
    X[:, 7] += 3 * Y[:, 0]
    fitted = mlfs.BRCC(n_features_to_select="auto", random_state=0).fit(X, Y[:, :2], clusters=donor)
    assert fitted.ranking_[0] == 7
    assert fitted.report_.k < 6


def test_halves_and_shuffles_take_whole_clusters():
    X, Y, donor = problem(seed=6)
    block = Block(0, X, sp.csr_array(Y), clusters=donor)
    half, other = (Resampling(resamples=2, seed=1).replicate(block, i).clusters for i in (1, 2))
    assert set(half) | set(other) == set(donor)
    assert not set(half) & set(other)


@pytest.mark.parametrize(
    ("method", "options", "error", "text"),
    [
        ("br-cc", {"control": "partial"}, UsageError, "given the other features"),
        ("chi2", {"pairs": "all", "strata": np.arange(240) % 2}, UsageError, "a method of means and products"),
        ("br-cc", {"n_features_to_select": "auto", "strata": np.arange(240) % 2}, UsageError, "not both"),
        ("br-cc", {"pairs": "all", "clusters": np.full(240, np.nan)}, DataError, "missing, or infinite, in row 0"),
        ("br-cc", {"pairs": "all", "clusters": np.zeros((240, 2))}, DataError, "clusters are one column"),
    ],
)
def test_what_cannot_be_combined_is_refused(method, options, error, text):
    X, Y, donor = problem()
    columns = {"clusters": donor} | {name: options.pop(name) for name in ("strata", "clusters") if name in options}
    question = ask(method, options.pop("n_features_to_select", 2), **options)
    with pytest.raises(error, match=text):
        fit(question, as_rows(X, Y), **columns)


@pytest.mark.parametrize("by", ["mean", "sum"])
@pytest.mark.parametrize("csr", [False, True])
def test_aggregated_rows_are_those_of_a_table_grouped_by_cluster(by, csr):
    X, Y, donor = problem()
    Y, sex = Y[:, :2], donor % 3 % 2
    Y[donor == 4, 1] = -1
    Y[np.flatnonzero(donor == 5)[:3], 0] = -1
    frame = pd.DataFrame(X).groupby(donor).agg(by)
    labels = pd.DataFrame(np.where(Y < 0, np.nan, Y)).groupby(donor).max().fillna(-1).astype(int).to_numpy()
    options = {"n_features_to_select": 2, "pairs": "all"}
    expected = mlfs.BRCC(**options).fit(frame.to_numpy(), labels, strata=np.arange(12) % 3 % 2)
    data = sp.csr_array(X) if csr else X
    fitted = mlfs.BRCC(aggregate=by, **options).fit(data, Y, clusters=donor, strata=sex)
    np.testing.assert_allclose(fitted.scores_, expected.scores_)
    pd.testing.assert_frame_equal(fitted.pairs_, expected.pairs_)
    assert fitted.report_.n == 240
    assert fitted.report_.extra["aggregated"] == {"clusters": 12, "rows": 240, "by": by}
    assert fitted.report_.passes == fitted.report_.plan["passes"] == 2


def test_a_label_or_column_that_varies_within_a_cluster_is_refused_by_name():
    X, Y, donor = problem()
    selector = mlfs.BRCC(n_features_to_select=2, aggregate="mean")
    with pytest.raises(DataError, match=r"label 2 varies within the cluster '0'"):
        selector.fit(X, Y, clusters=donor)
    with pytest.raises(DataError, match=r"'covariates' varies within the cluster of row \d+ \(counted from 0\)"):
        selector.fit(X, Y[:, :2], clusters=donor, covariates=np.arange(240.0))
    with pytest.raises(UsageError, match="aggregate changes nothing without clusters"):
        selector.fit(X, Y)


def test_a_column_that_nearly_determines_labels_is_named():
    X, Y, donor = problem(donors=20)
    Y = np.column_stack([Y[:, 0], np.random.default_rng(1).integers(0, 2, 240)])
    columns = {"age": ArrayColumn("age", np.random.default_rng(2).normal(size=240))}
    columns["kind"] = ArrayColumn("kind", Y[:, 0].astype(np.int32), ["no", "yes"])  # the label itself
    columns["donor"] = ArrayColumn("donor", donor.astype(np.int32), [f"d{i}" for i in range(20)])
    source = RowView(JoinedRows([as_rows(X[:100], Y[:100]), as_rows(X[100:], Y[100:])]), columns=columns)
    text = "column 'donor' of the rows nearly determines label 0; if rows with one of its values belong together"
    with pytest.warns(UserWarning, match=text):
        fit(ask("br-cc", 2, pairs="all"), source)
    for options in ({"clusters": "donor", "pairs": "all"}, {"strata": "donor", "pairs": "all"}, {}):
        fit(ask("br-cc", 2, **options), source)  # warnings are errors


def test_pairs_within_donors_are_those_of_the_paired_t_test():
    rng = np.random.default_rng(9)
    donor, Y = np.repeat(np.arange(30), 2), np.tile([0, 1], 30)[:, np.newaxis]
    X = rng.normal(size=(60, 3)) + 2 * rng.normal(size=(30, 3))[donor] + Y / 2
    paired = stats.ttest_rel(X[1::2], X[::2])
    for options in ({"covariates": donor.astype(str)}, {"strata": donor, "clusters": donor}):
        table = mlfs.BRCC(n_features_to_select=1, pairs="all").fit(X, Y, **options).pairs_
        np.testing.assert_allclose(table["statistic"], paired.statistic)
        np.testing.assert_allclose(table["p_value"], paired.pvalue)
        np.testing.assert_allclose(table["effect_low"], paired.confidence_interval().low)


def test_auto_judges_rows_of_other_clusters():
    """A feature that tells the donor tells the labels of the donor's other rows, and of no other donor."""
    rng = np.random.default_rng(10)
    donor = np.repeat(np.arange(40), 15)
    Y = (rng.random((40, 3)) < 0.5)[donor]
    X = rng.normal(size=(40, 12))[donor] + 0.01 * rng.normal(size=(600, 12))
    precision = []
    for clusters in (None, donor):
        selector = mlfs.AutoSelector(n_features_to_select=4, candidates="br-cc,fisher", random_state=0, budget=1e9)
        extra = selector.fit(X, Y, clusters=clusters).report_.extra
        precision.append(max(row["average_precision"] for row in extra["judged"]))
    assert precision[0] > 0.95
    assert precision[1] < 0.85
