"""Pairs of labels and features given the other features: partial t-tests and knockoffs, by names and commands."""

import json
import warnings

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from scipy import sparse as sp

from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask_cli.main import mlfs as command
from tests.problems import quiet
from tests.reference.pairs import partial_tests
from tests.selection.test_pairs import grid, table_of
from tests.storage.stores import make_store


def problem(seed=0, n=600, d=16, shares=(0.06, 0.2, 0.5)):
    """Words, rare ones too, and numbers, some of them skewed, that hang together; a feature or two of each label."""
    rng = np.random.default_rng(seed)
    topic = rng.normal(size=(n, 1))
    words = (topic + 1.5 * rng.normal(size=(n, d // 2)) > np.linspace(0.5, 3, d // 2)).astype(float)
    numbers = np.hstack([topic + rng.normal(size=(n, d // 4)), rng.lognormal(sigma=1.2, size=(n, d - d // 2 - d // 4))])
    X = np.hstack([words, numbers])
    eta = np.column_stack([X[:, 0], 1.5 * X[:, 1] - X[:, d // 2], X[:, d // 2 + 1]])
    noisy = eta + 0.8 * rng.logistic(size=eta.shape)
    thresholds = [np.quantile(own, 1 - share) for own, share in zip(noisy.T, shares, strict=True)]
    return X, (noisy > thresholds).astype(np.int8)


def test_partial_tests_are_those_of_least_squares_with_the_larger_of_two_p_values():
    X, Y = problem()
    selector, table = table_of(X, Y, control="partial")
    for column, expected in zip(["effect", "statistic", "p_value"], partial_tests(X, Y), strict=True):
        np.testing.assert_allclose(grid(table, column, 3), expected, rtol=1e-6, atol=1e-12)
    assert set(table["effect_kind"]) == {"partial slope"}
    assert selector.report_.passes == 1
    assert selector.report_.extra["pairs"]["hypothesis"].startswith("given the other features")


@pytest.mark.parametrize("control", ["partial", "knockoffs"])
@pytest.mark.parametrize("method", ["br-cc", "label-entropy", "rfs", "laplacian"])
def test_the_same_with_any_method_and_container(method, control):
    X, Y = problem()
    seed = {} if method == "rfs" else {"random_state": 0}
    _, expected = table_of(X, Y, control=control, random_state=0)
    for given_X in (X, sp.csr_array(X), da.from_array(X, chunks=(101, 5))):
        _, table = table_of(given_X, Y, method, control=control, **seed)
        for column in ("statistic", "q_value"):
            np.testing.assert_allclose(grid(table, column, 3), grid(expected, column, 3), rtol=1e-6)


def test_covariates_are_further_features_that_are_not_tested():
    X, Y = problem()
    C = np.random.default_rng(1).normal(size=(len(X), 2)) + X[:, :2]
    adjusted = get_estimator("br-cc")(3, pairs="all", control="partial").fit(X, Y, covariates=C)
    _, whole = table_of(np.column_stack([X, C]), Y, control="partial")
    for column in ("effect", "statistic"):
        expected = grid(whole, column, 3)[:, : X.shape[1]]
        np.testing.assert_allclose(grid(adjusted.pairs_, column, 3), expected, rtol=1e-7, atol=1e-10)


def partly_known(seed=0):
    """0/1 features, with labels known of all rows, of most, of a part in which one feature is constant, and of few."""
    X, Y = problem(seed)
    X = (np.quantile(X, 0.7, axis=0) < X).astype(float)
    unknown = np.random.default_rng(seed).random(Y.shape) < [0.3, 0.0, 0.4]
    unknown[:, 2] |= X[:, 4] > 0
    few = np.where(np.arange(len(Y)) < 30, Y[:, 1], np.int8(-1))
    return X, np.column_stack([np.where(unknown, np.int8(-1), Y), few])


@pytest.mark.parametrize("adjusted", [False, True])
def test_labels_are_tested_given_the_others_over_the_rows_where_they_are_known(adjusted):
    X, Y = partly_known()
    C = np.random.default_rng(1).normal(size=(len(X), 2)) + X[:, :2]
    rows = {
        "dense": (X, Y),
        "shifted": (1e3 + 7 * X.astype(np.float32), Y),
        "csr": (sp.csr_array(X), sp.csr_array(Y)),
        "dask": (da.from_array(X, chunks=(101, 5)), da.from_array(Y, chunks=(200, 2))),
    }

    def alone(features, label):
        known = Y[:, label] >= 0
        covariates = {"covariates": C[known]} if adjusted else {}
        selector = get_estimator("br-cc")(3, pairs="all", control="partial")
        return selector.fit(features[known], Y[known, label], **covariates).pairs_

    for name, (features, labels) in rows.items():
        expected = [alone(features if name == "shifted" else X, label) for label in range(3)]
        selector = get_estimator("br-cc")(3, pairs="all", control="partial")
        with pytest.warns(UserWarning, match=r"1 of 4 labels is not .*determine a feature where they are known\): 3"):
            selector.fit(features, labels, **({"covariates": C} if adjusted else {}))
        table = selector.pairs_
        for column in ("n", "positives", "effect", "statistic", "p_value"):
            found = grid(table, column, 4).astype(float)
            assert np.isnan(found[3]).all() or column in ("n", "positives")
            for label in range(3):
                of_label = grid(expected[label], column, 1)[0].astype(float)
                np.testing.assert_allclose(found[label], of_label, rtol=1e-5, atol=1e-9)
        assert selector.report_.passes == (2 if name == "dask" else 1)


def test_auto_keeps_what_helps_given_the_others_and_leaves_what_only_goes_with_it():
    rng = np.random.default_rng(1)
    cause = rng.normal(size=2000)
    X = np.column_stack([cause, cause + rng.normal(size=2000), rng.normal(size=(2000, 14))])
    Y = (cause + rng.normal(size=2000) > 0).astype(np.int8)[:, np.newaxis]
    kept = {
        control: quiet(get_estimator("br-cc")("auto", control=control, fdr=0.05), X, Y).support_.nonzero()[0].tolist()
        for control in ("bh", "partial")
    }
    assert kept["bh"][:2] == [0, 1]
    assert kept["partial"] == [0]


def rejecting(runs=60, **how):
    """Share of sets of rare words and labels that have nothing to do with them in which any pair is significant."""
    found = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        X = (rng.random((1000, 40)) < 0.004).astype(float)
        Y = (rng.random((1000, 3)) < 0.03).astype(np.int8)
        with warnings.catch_warnings(action="ignore"):  # a label may have too few rows
            found += get_estimator("br-cc")(3, fdr=0.2, **how).fit(X, Y).report_.extra["pairs"]["significant"] > 0
    return found / runs


@pytest.mark.parametrize("control", ["partial", "knockoffs"])
def test_null_data_has_no_more_significant_pairs_than_the_rate(control):
    assert rejecting(control=control, random_state=0) <= 0.2 + 3 * 0.052


def test_what_is_unsafe_is_refused_with_the_reason():
    X, Y = problem()
    with pytest.raises(DataError, match=r"20 rows are too few to test each of 1\d features given the others: it takes"):
        table_of(X[:20], Y[:20], control="partial")
    with pytest.raises(DataError, match=r"determined by others .*first of all 3, 16\n") as refused:
        table_of(np.column_stack([X, X[:, 3]]), Y, control="partial")
    assert "leave some of the features out (exclude)" in refused.value.cure
    near = X[:300, 3] + 0.04 * X[:300].std() * np.random.default_rng(0).normal(size=300)
    for asked in ({"control": "partial"}, {"control": "knockoffs", "n_features_to_select": "auto"}):
        with pytest.raises(DataError, match=r"no label can be .* 250 rows that have it.* determine features 3, 16\n"):
            table_of(np.column_stack([X[:300], near]), Y[:300], fdr=0.2, **asked)
    with pytest.raises(DataError, match=r"no list of 16 features can be certified by knockoffs at the rate 0\.05"):
        table_of(X, Y, control="knockoffs", fdr=0.05)
    unknown = Y.copy()
    unknown[5, 1] = -1
    with pytest.raises(DataError, match=r"labels are unknown .* of 1 label each has its own") as refused:
        table_of(X, unknown, control="knockoffs", fdr=0.2)
    assert "cure: choose control='partial'" in str(refused.value)
    with pytest.raises(DoesNotFitError, match="tests given the others form for at most 4,096"):
        table_of(sp.csr_array((9000, 5000)), np.ones((9000, 1), np.int8), control="partial")


def test_labels_of_too_few_rows_are_left_out_and_named():
    X, Y = problem()
    rare = np.zeros((len(Y), 1), np.int8)
    rare[:19] = 1
    with pytest.warns(UserWarning, match="1 of 4 labels is not tested given the other features"):
        selector = get_estimator("br-cc")(3, pairs="all", control="partial").fit(X, np.hstack([Y, rare]))
    table = selector.pairs_
    assert table.loc[table["label_index"] == 3, "p_value"].isna().all()
    assert table.loc[table["label_index"] < 3, "p_value"].notna().all()
    assert len(selector.report_.warnings) == 1
    rare[19] = 1
    assert table_of(X, np.hstack([Y, rare]), control="partial")[1]["p_value"].notna().all()


def test_a_constant_feature_is_not_tested_and_changes_nothing():
    X, Y = problem()
    _, expected = table_of(X, Y, control="partial")
    _, table = table_of(np.column_stack([np.ones(len(X)), X]), Y, control="partial")
    assert np.isnan(grid(table, "p_value", 3)[:, 0]).all()
    np.testing.assert_allclose(grid(table, "p_value", 3)[:, 1:], grid(expected, "p_value", 3), rtol=1e-9)


def test_the_command_writes_them(tmp_path):
    X, Y = problem(n=1500)
    store = make_store(tmp_path / "s.zarr", X, Y)
    arguments = [store, "-k", "3", "--control", "knockoffs", "--pairs", "best:2", "--seed", "3"]
    for run in ("a", "b"):
        done = CliRunner().invoke(
            command, ["select", "br-cc", *map(str, arguments), "-o", str(tmp_path / run), "--json"]
        )
        assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["extra"]["pairs"]
    assert found["seed"] == 3
    assert set(parquet.read_table(tmp_path / "a" / "pairs.parquet").to_pandas()["q_value"]) > {1.0}
    assert (tmp_path / "a" / "pairs.parquet").read_bytes() == (tmp_path / "b" / "pairs.parquet").read_bytes()
    page = tmp_path / "page.html"
    assert CliRunner().invoke(command, ["report", str(tmp_path / "a"), "-o", str(page)]).exit_code == 0
    assert "once all others are known" in page.read_text()
    planned = CliRunner().invoke(command, ["plan", "br-cc", str(store), "--control", "partial", "--json"])
    assert "2 d d" in json.loads(planned.stdout)["arrays"]


def test_the_surest_pairs_of_knockoffs_are_those_that_differ_most_from_theirs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 40))
    strong = np.arange(40)[-8:]
    Y = (X[:, strong] @ np.linspace(0.3, 1.0, 8) + rng.normal(size=2000) > 0).astype(np.int8)[:, np.newaxis]
    _, table = table_of(X, Y, control="knockoffs", pairs="best:4", fdr=0.2)
    assert set(table["feature_index"]) == set(strong[-4:])
    assert table["q_value"].nunique() == 1  # by which they would tie
    assert table["log10_p"].isna().all()
    assert set(table["test"]) == {"knockoffs"}
    chosen, _ = table_of(X, Y, control="knockoffs", per_label=4, fdr=0.2, n_features_to_select=None)
    assert set(np.flatnonzero(chosen.support_)) == set(strong[-4:])
    with pytest.raises(UsageError, match="knockoffs give no p-values, of which min_labels is made"):
        table_of(X, Y, control="knockoffs", min_labels=1, fdr=0.2)
