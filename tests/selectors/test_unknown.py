"""Unknown labels, of every method: what `unknown` makes of them, in every container."""

from __future__ import annotations

import inspect
import itertools

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp
from sklearn.metrics import mutual_info_score

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError
from mlfs_dask.rows.contract import Block
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.anchored_regression import AnchoredRegression
from mlfs_dask.selectors.counting import CountingSelector
from mlfs_dask.selectors.global_information import label_information
from mlfs_dask.selectors.products import ProductFilter
from mlfs_dask.solvers.hierarchical_network import Network
from mlfs_dask.statistics.label_statistics import label_pairs
from tests.reference.twins import twin
from tests.selection.test_pairs import grid, table_of
from tests.selectors.test_matrix import LOOPS, SHORT, every_method, fit, make, problem, settings_of


def partly_unknown(Y, share=0.2, seed=0):
    """Y of which some entries are unknown in all labels but the last."""
    unknown = np.random.default_rng(seed).random(Y.shape) < share
    unknown[:, -1] = False
    return np.where(unknown, np.int8(-1), Y)


def containers(X, Y):
    """Rows as arrays, sparse, and as Dask arrays, whose labels are not counted before a reading."""
    yield X, Y
    yield sp.csr_array(X), sp.csr_array(Y)
    yield da.from_array(X, chunks=(17, 4)), da.from_array(Y, chunks=(17, 2))


@every_method
def test_unknown_labels_that_are_negative_are_0_and_refused_ones_an_error(name):
    X, Y = problem()
    unknown = partly_unknown(Y)
    expected = fit(make(name), X, np.maximum(unknown, 0)).scores_
    for rows in containers(X, unknown):
        assert fit(make(name, unknown="negative"), *rows).scores_ == pytest.approx(expected, rel=1e-9, abs=1e-12)
        with pytest.raises(DataError, match=r"unknown='refuse' was given.* column 0 of Y|in column .*counted from 0"):
            fit(make(name, unknown="refuse"), *rows)
    assert (fit(make(name, unknown="refuse"), X, Y).scores_ == fit(make(name), X, Y).scores_).all()


#: Methods that put unknown entries at the mean of their label's known ones, and weigh features against one another or
#: labels against labels.
AT_MEAN = {
    **{name: [{}] for name in ("elc", "lffs", "llsf", "mddm", "mdfs", "spfs")},
    "cmfs": [{}],
    "glfs": [{}, {"variant": "published", "beta": 1.0, "gamma": 10.0}],
    "mfsir": [{}],
    "mifs": [{}, {"variant": "published", "gamma": 1.0, "step": 1e-3, "max_iter": 30}],
    "rfs": [{}, {"variant": "published"}],
}

#: Methods in whose scores features are compared with one another, over all rows.
WEIGHS_ROWS = (*AT_MEAN, "mlaco", "grro", "mico", "qpmlfs", "mamfs")

#: Features that are chosen: of a criterion in which pairs of features count with labels alone; of others the first has
#: none before it.
N_CHOSEN = {"d2f": 4, "jmi": 4, "pmu": 4}

KNOWN = [name for name in METHODS if get_method(name).known_entries]


def counted(seed=0):
    """0/1 features, whose codes are the same for any rows, with a label that is known of few rows, and one of none."""
    X, Y = problem(seed)
    Y = partly_unknown(np.column_stack([Y, Y[:, 0], Y]), 0.3, seed)
    Y[5:, 3], Y[:, 4] = -1, -1
    return np.column_stack([X[:, :4] > 1, X[:, 4:7] != 0, X[:, 4], np.ones(len(X))]).astype(float), Y


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in WEIGHS_ROWS])
def test_a_label_counts_over_the_rows_where_it_is_known(name):
    X, Y = counted()
    for rows in (X, 1e3 + 7 * problem()[0]) if issubclass(get_method(name), ProductFilter) else (X,):
        for label in range(Y.shape[1]):
            known = Y[:, label] >= 0
            if len(set(Y[known, label])) < 2:
                continue
            # A feature that varies in other rows alone is chosen like one that tells nothing.
            vary = (np.ptp(rows[known], axis=0) > 0).sum() == (np.ptp(rows, axis=0) > 0).sum()
            k = N_CHOSEN.get(name, 1) if vary else 1
            expected = fit(make(name, k), rows[known], Y[known, label]).scores_
            for containing in containers(rows, Y[:, [label]]):
                found = fit(make(name, k), *containing).scores_
                assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * abs(expected).max())


@every_method
def test_unknown_labels_in_any_container(name):
    X, Y = counted() if name in KNOWN else problem()
    if name not in KNOWN:
        Y = np.where(np.random.default_rng(1).random((len(Y), 1)) < 0.5, np.int8(-1), Y)
    expected = fit(make(name), X, Y)
    assert np.ptp(expected.scores_) > 0
    for rows in containers(X, Y):
        found = fit(make(name), *rows)
        assert found.scores_ == pytest.approx(expected.scores_, rel=1e-9, abs=1e-11)
    if name in KNOWN:
        # Labels of a Dask array are found to be unknown by a reading, after which the fit begins again.
        found_by = 2 if issubclass(get_method(name), (CountingSelector, AnchoredRegression)) else 1
        assert found.report_.passes == expected.report_.passes + found_by
    if hasattr(found, "graph"):
        anchored = [fit(make(name, graph="anchors", n_anchors=12), *rows) for rows in containers(X, Y)]
        for found in anchored:
            assert found.scores_ == pytest.approx(anchored[0].scores_, rel=1e-8, abs=1e-10)
            assert found.report_.passes <= 1 + anchored[0].report_.plan["passes"]


@pytest.mark.parametrize(("name", "parameters"), [(name, each) for name in AT_MEAN for each in AT_MEAN[name]])
def test_unknown_entries_at_the_mean_of_the_label(name, parameters):
    X, Y = problem()
    unknown = partly_unknown(Y, 0.3)
    mean = np.array([y[y >= 0].mean() for y in unknown.T])
    parameters = (SHORT if name in LOOPS else {}) | parameters
    takes_k = {"n_features_to_select": 4} if "n_features_to_select" in inspect.signature(twin(name)).parameters else {}
    X = X if name in ("elc", "llsf", "mddm", "spfs") else X[:, :8]  # a constant one: tests/blackbox
    expected = twin(name)(X, np.where(unknown < 0, mean, unknown), **takes_k, **parameters)
    expected = expected[0] if isinstance(expected, tuple) else expected
    for rows in containers(X, unknown):
        found = fit(make(name, **parameters), *rows).scores_
        compared = np.isfinite(expected)
        assert found[compared] == pytest.approx(expected[compared], rel=1e-6, abs=1e-9)


def test_pairs_of_labels_over_the_rows_where_both_are_known():
    _, Y = counted()
    n, q = Y.shape
    statistic = label_pairs(ArrayRows(np.zeros((n, 1)), as_labels(Y)))
    state = statistic.zero()
    for rows in (slice(0, 23), slice(23, n)):
        statistic.add(state, Block(rows.start, np.zeros((len(Y[rows]), 1)), as_labels(Y[rows])))
    tables = statistic.finalize(state)
    distances, information = tables.cosine_distances(), label_information(tables)
    for i in range(q):
        for j in range(q):
            one, other = Y[(Y[:, i] >= 0) & (Y[:, j] >= 0)][:, [i, j]].T
            lengths = np.sqrt(one.sum() * other.sum())
            assert distances[i, j] == pytest.approx(1 - (one * other).sum() / lengths if lengths else 0.0)
            assert information[i, j] == pytest.approx(mutual_info_score(one, other) / np.log(2) if len(one) else 0.0)


@pytest.mark.parametrize("name", ["anova-f", "chi2", "elc", "d2f", "mico"])
def test_weights_of_rows_with_unknown_labels_are_repetitions(name):
    X, Y = counted()
    weights = np.random.default_rng(3).integers(0, 4, len(X))
    expected = fit(make(name), np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0)).scores_
    for rows in containers(X, Y):
        found = fit(make(name), *rows, sample_weight=weights).scores_
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("name", ["fimf", "pmu"])
def test_pairs_of_labels_and_a_feature_over_the_rows_where_both_are_known(name):
    X, Y = counted()
    expected = np.zeros(X.shape[1])
    for f, x in enumerate(X.T):
        for a, b in itertools.combinations_with_replacement(range(Y.shape[1]), 2):
            known = (Y[:, a] >= 0) & (Y[:, b] >= 0)
            feature, one, other = x[known], Y[known, a], Y[known, b]
            if a == b:
                expected[f] += mutual_info_score(feature, one) if len(one) else 0.0
                continue
            for value in np.unique(feature):
                rows = feature == value
                expected[f] += rows.mean() * mutual_info_score(one[rows], other[rows])
            expected[f] -= mutual_info_score(one, other) if len(one) else 0.0
    for rows in containers(X, Y):
        assert fit(make(name, k=1), *rows).scores_[:-1] == pytest.approx(expected[:-1], abs=1e-12)


@pytest.mark.parametrize("name", ["br-cc", "br-cc skewed", "chi2", "ela-chi", "csfs"])
def test_pairs_are_tested_over_the_rows_where_the_label_is_known(name):
    X, Y = counted()
    if name.endswith("skewed"):  # p-values are corrected by the skewness over the rows of the label
        name, X = "br-cc", 50 + np.exp(problem()[0]) * np.where(Y[:, :1] < 0, 3.0, 1.0)
    parameters = settings_of(name) | {"method": name}
    of_one = {"method": "chi2"} if name == "ela-chi" else parameters  # which tells a label from others
    for rows in containers(X, Y[:, :4]):
        _, table = table_of(*rows, **parameters)
        for label in range(4):
            known = Y[:, label] >= 0
            _, alone = table_of(X[known], Y[known][:, [label]], **of_one)
            for column in ("n", "positives", "effect", "statistic", "p_value"):
                expected = grid(alone, column, 1)[0].astype(float)
                assert grid(table, column, 4)[label].astype(float) == pytest.approx(expected, rel=1e-8, nan_ok=True)


def test_rows_whose_label_set_is_not_known_are_no_neighbours():
    X, Y = problem()
    unknown = np.random.default_rng(0).random(len(X)) < 0.3
    some = Y.copy()
    some[unknown, np.random.default_rng(1).integers(0, 3, unknown.sum())] = -1
    X[-2:] = X.min(axis=0), X.max(axis=0)  # differences are relative to the range
    unknown[-2:], some[-2:] = False, Y[-2:]
    expected = fit(make("relieff"), X[~unknown], Y[~unknown])
    for rows in containers(X, some):
        np.testing.assert_allclose(fit(make("relieff"), *rows).scores_, expected.scores_, atol=1e-12)


def test_unknown_entries_have_no_part_in_the_loss_of_a_network():
    X, Y = problem()
    unknown = partly_unknown(Y, 0.3)
    network = Network(9, 3, 5, np.random.default_rng(0))
    given = np.where(unknown < 0, np.nan, unknown)
    loss, gradients = network.loss(X, given), network.gradients(X, given)
    for part, gradient in zip(network.parameters, gradients, strict=True):
        part.flat[0] += 1e-6
        up = network.loss(X, given)
        part.flat[0] -= 2e-6
        assert gradient.flat[0] == pytest.approx((up - network.loss(X, given)) / 2e-6, abs=1e-6)
        part.flat[0] += 1e-6
    predicted = network._forward(X)[0].copy()
    assert loss == pytest.approx(np.mean((predicted - unknown)[unknown >= 0] ** 2))
    scores = [fit(make("lassonet"), *rows).scores_ for rows in containers(X, unknown)]
    assert scores[0].any()
    assert (scores[0] == scores[1]).all()
    assert (scores[0] == scores[2]).all()


def test_naive_bayes_learns_each_label_where_it_is_known_and_is_judged_there():
    X, Y = problem()
    unknown = partly_unknown(Y, 0.4)
    expected = twin("mamfs")(X[:, :8], unknown, 4)
    for rows in containers(X[:, :8], unknown):
        assert fit(make("mamfs", n_judged=300), *rows).scores_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_labels_that_are_known_in_no_row_are_refused_by_all_methods_in_one_way(name):
    X, Y = problem()
    Y = np.full_like(Y, -1)
    said = r"^labels \(columns 0, 1.* of Y, counted from 0\) are known in no row\n"
    for rows in containers(X, Y):
        if get_method(name).supervision == "unsupervised":
            fit(make(name), *rows)
            continue
        if isinstance(rows[0], da.Array) and name in ("fssrdm", "leda", "lsmr", "sfss", "smdr-ic", "smile"):
            said = "no row has all its labels known"  # a reading of labelled rows tells that first
        with pytest.raises(DataError, match=said):
            fit(make(name), *rows)
