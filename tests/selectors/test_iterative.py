"""What the iterative selectors share."""

from __future__ import annotations

import itertools
import re
import warnings
import weakref

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selection.runs import loop_state
from mlfs_dask.selectors import METHODS
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.statistics.sample import RowSample
from tests.problems import semi_supervised_problem
from tests.selectors.anchored import hide, quiet

HERE = Resources(1, 1, 2**33, 2**33)

X = np.random.default_rng(0).normal(size=(30, 4))
Y = (X[:, :2] > 0).astype(int)


def test_one_iteration_is_one_in_words():
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 1 iteration\b.*Increase max_iter") as told:
        get_estimator("elc")(2, max_iter=1).fit(X, Y)
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("method", "neighbours"), [("mfsir", "n_neighbors"), ("smfs", "n_neighbors"), ("access-mfs", "k_s")]
)
def test_no_room_is_planned_for_more_neighbours_than_there_are_rows(method, neighbours):
    rows = as_rows(X, Y)
    driver = {
        k: get_estimator(method)(2, graph="exact", **{neighbours: k}).plan(rows, HERE).peak_driver_bytes
        for k in (29, 10**9)
    }
    assert driver[10**9] == driver[29]


@pytest.mark.parametrize(("method", "copies"), [("mfsir", 2), ("smfs", 0), ("access-mfs", 0)])
def test_the_sample_of_rows_is_planned_and_freed_before_the_loop(method, copies, monkeypatch):
    samples, readings = [], []
    finalize, run = RowSample.finalize, Readings.run

    def watched(self, state):
        sample = finalize(self, state)
        samples.append((self.result_bytes, sample.X.size * 8, weakref.ref(sample.X)))
        return sample

    def look(self, name, *statistics, **options):
        if name == "rows":
            readings.append([held() is None for _, _, held in samples])
        return run(self, name, *statistics, **options)

    monkeypatch.setattr(RowSample, "finalize", watched)
    monkeypatch.setattr(Readings, "run", look)
    with warnings.catch_warnings(action="ignore"):
        selector = get_estimator(method)(2, graph="anchors", max_iter=3, tol=0.0).fit(
            X, Y if method == "mfsir" else with_unknown(Y, "entries")
        )
    assert readings
    assert all(freed == [True] for freed in readings)
    ((stored, as_float64, _),) = samples
    sizes = selector.make_question().method_cost(as_rows(X, Y), HERE).sizes
    assert 8 * sizes["sample"] >= stored + copies * as_float64


def with_unknown(Y, coding):
    return Y if coding == "known" else hide(Y, coding)


def fit_and_told(method, Y, **params):
    """A fitted selector, and what it has told of labels without a positive row."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        selector = get_estimator(method)(2, max_iter=3, **params).fit(X, Y)
    texts = [str(warning.message) for warning in found]
    assert selector.report_.warnings == texts
    return selector, [text for text in texts if "positive row" in text]


@pytest.mark.parametrize(
    ("method", "title", "coding"),
    [
        ("mfsir", "mFSIR", "known"),
        *itertools.product(["smfs"], ["SMFS"], ["known", "rows", "entries"]),
        ("access-mfs", "Access-MFS", "entries"),
    ],
)
def test_labels_without_a_positive_row_are_named(method, title, coding):
    some = with_unknown(np.column_stack([Y[:, 0], 0 * Y[:, 0], Y[:, 1], 0 * Y[:, 0]]), coding)
    _, (told,) = fit_and_told(method, some)
    which = "2 of 4 labels have no known positive row (columns 1 and 3 of Y, counted from 0). "
    assert told.startswith(f"{title}: {which}")
    _, (told,) = fit_and_told(method, pd.DataFrame(some[:, :3], columns=["sea", "sky", "sun"]))
    assert told.startswith(f"{title}: 1 of 3 labels has no known positive row ('sky'). ")
    assert "eave it out of Y" in told
    assert fit_and_told(method, some[:, ::2])[1] == []  # nothing to tell of the others
    hidden = np.column_stack([Y, np.full(len(Y), -1)])  # told once, not as any label that is known in no row, too
    selector, told = fit_and_told(method, hidden)
    assert [text for text in selector.report_.warnings if "in no row" in text] == []
    assert len(told) == 1


def test_of_many_labels_without_a_positive_row_the_first_are_named():
    many = np.column_stack([Y, np.zeros((len(Y), 7), dtype=int)])
    _, (told,) = fit_and_told("smfs", many)
    assert "7 of 9 labels have no known positive row (columns 2, 3, 4, 5, 6 and 2 more of Y, counted from 0)" in told


@pytest.mark.parametrize("method", ["mfsir", "smfs", "access-mfs"])
def test_where_no_label_has_a_positive_row_one_warning_says_so(method):
    known = {} if method == "mfsir" else {"unknown_labels": "coded"}
    selector, told = fit_and_told(method, 0 * Y, **known)
    assert told == []
    assert ["cannot rank the features" in text for text in selector.report_.warnings] == [True]


def test_what_is_told_of_labels_without_a_positive_row_is_so():
    some = np.column_stack([Y[:, 0], 0 * Y[:, 0], Y[:, 1]])
    # mfsir: they are nothing but a number of labels.
    selector, (told,) = fit_and_told("mfsir", some, n_latent=2)
    assert told.endswith("(column 1 of Y, counted from 0). Such a label has no effect on the scores.")
    np.testing.assert_allclose(selector.scores_, fit_and_told("mfsir", Y, n_latent=2)[0].scores_, rtol=1e-12)
    _, (told,) = fit_and_told("mfsir", some)
    assert "counts in n_latent" in told
    assert fit_and_told("mfsir", some, step="fixed")[1] == [told]
    # access-mfs: without the graph of labels they have no part in anything.
    for coding in ("rows", "entries"):
        selector, (told,) = fit_and_told("access-mfs", with_unknown(some, coding), mu=0.0)
        assert told.endswith("means nothing, and it has no part in the scores.")
        assert np.abs(selector.labels_[:, 1]).max() < 1e-12
        assert selector.report_.extra["rank"][-1] == 2
        selector, (told,) = fit_and_told("access-mfs", with_unknown(some, coding))
        assert "through the graph of labels it adds noise to the scores" in told
        assert selector.report_.extra["rank"][-1] == 3


@pytest.mark.parametrize("method", ["smfs", "access-mfs"])
def test_labels_of_new_rows_need_none_of_their_own(method):
    some = with_unknown(Y, "entries")
    selector = get_estimator(method)(2, graph="anchors").fit(pd.DataFrame(X, columns=list("abcd")), some)
    new = np.random.default_rng(2).normal(size=(9, 4))
    table = pd.DataFrame(new, columns=list("abcd"))
    for rows in (new, table, sp.csr_array(new), da.from_array(new, chunks=(4, -1)), dd.from_pandas(table, 2)):
        found = selector.recover_labels(rows)
        assert found == pytest.approx(selector.recover_labels(new, sp.csr_array(-np.ones((9, 2), np.int8))), abs=1e-9)
    assert found.shape == (9, 2)
    assert np.std(found) > 0
    assert selector.get_feature_names_out().tolist() == np.array(list("abcd"))[selector.support_].tolist()


def test_unknown_labels_of_new_rows_in_a_dask_array_are_made_block_by_block():
    selector = get_estimator("smfs")(2, graph="anchors").fit(X, with_unknown(Y, "entries"))
    # Labels of all rows would take 20 GB; a million blocks would take Dask two minutes.
    source = selector._rows_like_fitted(da.ones((10**10, 4), chunks=(10**6, -1), dtype=np.int8), None)
    block = next(source.stream(3, 4))
    assert (block.Y.data == -1).all()
    assert block.Y.shape == (10**6, 2)
    assert block.Y.nnz == 2 * 10**6


def test_labels_of_an_earlier_fit_are_gone():
    selector = get_estimator("smfs")(2, graph="exact", n_trees=5).fit(X, Y)
    assert selector.labels_.shape == Y.shape
    assert not hasattr(selector.set_params(graph="anchors").fit(X, Y), "labels_")


@pytest.mark.parametrize("graph", ["anchors", "exact"])
def test_labels_are_recovered_of_rows_like_those_that_were_fitted(graph):
    selector = get_estimator("smfs")(2, graph=graph, n_trees=5)
    with pytest.raises(NotFittedError):
        selector.recover_labels(X, Y)
    selector.fit(pd.DataFrame(X, columns=list("abcd")), Y)
    with pytest.raises(DataError, match="X has 3 features and Y 2 labels; smfs was fitted with 4 and 2"):
        selector.recover_labels(X[:, :3], Y)
    with pytest.raises(DataError, match="X has 4 features and Y 1 label; smfs was fitted with 4 and 2"):
        selector.recover_labels(X, Y[:, :1])
    with pytest.raises(DataError, match="feature names should match"):
        selector.recover_labels(pd.DataFrame(X, columns=list("dcba")), Y)
    assert selector.n_features_in_ == 4
    assert selector.recover_labels(X, Y).shape == Y.shape


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_labels_of_rows_that_are_no_numbers_are_not_invented(container, bad):
    selector = get_estimator("smfs")(2, graph="anchors", missing="mean", max_iter=2, tol=1.0).fit(container(X), Y)
    rows = X.copy()
    rows[17, 2] = bad
    with pytest.raises(
        DataError, match=r"X contains NaN or infinity in rows 0 to 29, counted from 0(.|\n)*fill missing"
    ):
        selector.recover_labels(container(rows), Y)


@pytest.mark.parametrize("method", ["smfs", "access-mfs"])
def test_an_exact_graph_has_labels_of_its_own_rows_alone(method):
    selector = get_estimator(method)(2, graph="exact", max_iter=2, tol=1.0).fit(X, Y)
    for same in (X, sp.csr_array(X), da.from_array(X, chunks=(7, -1))):
        assert selector.recover_labels(same, Y).tolist() == selector.labels_.tolist()
    with pytest.raises(DataError, match="the 30 rows that were fitted, and these are others\n  cure: fit with graph"):
        selector.recover_labels(np.random.default_rng(1).normal(size=X.shape), Y)


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_a_labelled_row_is_one_of_which_anything_is_known(graph):
    some = np.where(np.arange(30)[:, np.newaxis] < 12, Y, -1)
    some[:3] = 0
    for method in ("smfs", "access-mfs"):
        found = get_estimator(method)(2, graph=graph, max_iter=2, tol=1.0).fit(X, some).report_.extra
        assert found["labelled_rows"] == 12
    found = get_estimator("smfs")(2, graph=graph, tol=1.0, unknown_labels="zeros").fit(X, some).report_.extra
    assert found["labelled_rows"] == (some == 1).any(axis=1).sum()
    assert found["unknown_entries"] == (some != 1).sum()


@pytest.mark.parametrize("graph", ["exact", "anchors"])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_constant_feature_is_last_also_where_features_are_as_they_are(graph, container):
    constant = np.column_stack([np.full(30, 5.0), X])
    found = get_estimator("smfs")(2, graph=graph, standardise=False).fit(container(constant), Y)
    assert found.scores_[0] == 0.0
    assert found.report_.extra["constant_features"] == 1
    assert found.scores_[1:].all()


def penalties():
    """Methods whose penalty can leave all weights at 0, with the parameters of its weight."""
    for name in METHODS:
        of_method = get_estimator(name).plain.parameters
        found = [
            each.name for each in of_method if re.search("^Weight of .*least weight at which .*(= 0|is 0)", each.help)
        ]
        if found:
            yield pytest.param(name, found, id=name)


@pytest.mark.parametrize(("method", "names"), list(penalties()))
def test_a_penalty_that_leaves_no_weight_is_named_with_the_least_that_does(method, names):
    selector = get_estimator(method)(3, **dict.fromkeys(names, 1.5 if method != "smfs" else 1e4))
    with pytest.warns(UserWarning, match="the penalty leaves all weights at 0") as told:
        selector.fit(X, Y)
    assert not selector.scores_.any()
    assert selector.report_.converged
    facts = selector.report_.extra
    for name in names:
        times = facts[name] / facts[f"critical_{name}"]
        assert times == pytest.approx(1.5) or method == "smfs"
        assert f"{name} has the weight {facts[name]:.4g}, which is {times:.4g} times" in str(told[0].message)
    assert str(told[0].message).endswith(f"Give a smaller {' and '.join(names)}. All features get the same score.")
    absolute = {} if method == "smfs" else {"absolute": True}
    weights = {name: 0.7 * facts[f"critical_{name}"] for name in names}
    assert quiet(selector.set_params(**absolute, **weights), X, Y).scores_.any()


def test_smfs_without_consistency_says_that_p_has_gone_to_0():
    X, Y = semi_supervised_problem(1)
    told = "has gone to P = 0: beta has the weight .*, and P = 0 from .* on.* Leave out consistency='none'"
    with pytest.warns(UserWarning, match=told):
        assert get_estimator("smfs")(3, consistency="none").fit(X, Y).scores_.any()


@pytest.mark.parametrize(
    ("method", "params", "state"),
    [
        ("mfsir", {"graph": "exact"}, "stopped early, by design,"),
        ("mfsir", {"graph": "anchors"}, "stopped early, by design,"),
        ("mfsir", {"max_iter": 2}, "did not converge"),
        ("access-mfs", {"variant": "published_code"}, "stopped early, by design,"),
        ("smfs", {}, "converged"),
    ],
)
def test_a_stop_by_design_is_not_told_as_convergence(method, params, state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = get_estimator(method)(2, **params).fit(X, Y).report_
    early = state.startswith("stopped")
    assert loop_state(report.to_dict()) == state
    assert report.converged is (None if early else state == "converged")
    assert report.extra.get("stopped_early", False) == early
