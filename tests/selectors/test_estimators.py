"""The contract of selectors: containers, counts, names, ranking, transform, record, scikit-learn's tools."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import sparse
from scipy import sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import mlfs_dask
from mlfs_dask import ELC, SMFS, LabelEntropy, runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError, spell_parameters_as
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from mlfs_dask.selectors.scores import count_kept, rank

N, D, Q = 60, 8, 3
NAMES = [f"feature {f}" for f in range(D)]


def problem(seed=0):
    rng = np.random.default_rng(seed)
    Y = (rng.random((N, Q)) < 0.4).astype(np.int8)
    X = np.where(rng.random((N, D)) < 0.6, rng.normal(size=(N, D)), 0.0)
    X[:, 2:5] += 2 * Y
    return X, Y


def to_gcxs(block):
    return sparse.GCXS.from_scipy_sparse(sp.csr_matrix(block))


CONTAINERS = {
    "numpy": lambda X: X,
    "fortran": np.asfortranarray,
    "list": lambda X: X.tolist(),
    "csr_array": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_array,
    "pandas": lambda X: pytest.importorskip("pandas").DataFrame(X, columns=NAMES),
    "dask": lambda X: da.from_array(X, chunks=(17, -1)),
    "dask, columns cut": lambda X: da.from_array(X, chunks=(25, 3)),
    "dask of csr": lambda X: da.from_array(X, chunks=(17, -1)).map_blocks(sp.csr_array),
    "dask of csr, columns cut": lambda X: da.from_array(X, chunks=(17, 3)).map_blocks(sp.csr_array),
    "dask of GCXS": lambda X: da.from_array(X, chunks=(17, -1)).map_blocks(to_gcxs),
    "dask of COO": lambda X: da.from_array(X, chunks=(17, -1)).map_blocks(sparse.COO),
}


def dense(result):
    """Whatever transform returned, as an ndarray."""
    if hasattr(result, "compute"):
        # Dask cannot put sparse blocks together in general: take them one by one.
        blocks = [result.blocks[i].compute() for i in range(result.numblocks[0])]
        return np.vstack([dense(b) for b in blocks])
    for method in ("toarray", "todense", "to_numpy"):
        if hasattr(result, method):
            return np.asarray(getattr(result, method)())
    return np.asarray(result)


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_gives_the_same_scores_and_columns(name):
    """As `test_matrix` has it for every method and some containers; and the columns."""
    X, Y = problem()
    expected, container = ELC(3).fit(X, Y), CONTAINERS[name]
    for y in (Y, sp.csr_array(Y), da.from_array(Y, chunks=(23, -1)), Y.astype(bool), Y.astype(float).tolist()):
        found = ELC(3).fit(container(X), y)
        assert found.scores_ == pytest.approx(expected.scores_, rel=1e-9, abs=1e-10)
        assert found.support_.tolist() == expected.support_.tolist()
    assert dense(found.transform(container(X))) == pytest.approx(X[:, expected.support_])


def test_transform_is_lazy_and_keeps_the_kind_of_blocks():
    X, Y = problem()
    selector = ELC(3).fit(X, Y)

    def refuse(block):
        raise AssertionError("computed")

    lazy = da.from_array(X, chunks=(17, -1)).map_blocks(refuse, dtype=float, meta=np.empty((0, 0)))
    result = selector.transform(lazy)
    assert isinstance(result, da.Array)
    assert result.chunks == ((17, 17, 17, 9), (3,))
    for kind, wrap in ((sparse.GCXS, to_gcxs), (sp.csr_array, sp.csr_array)):
        result = selector.transform(da.from_array(X, chunks=(17, -1)).map_blocks(wrap))
        assert isinstance(result._meta, kind)
        assert isinstance(result.blocks[0].compute(), kind)
        assert result.shape == (N, 3)
        assert result.dtype == np.float64
    assert sp.issparse(selector.transform(sp.csr_array(X)))


def test_names_of_a_table_are_checked_and_given():
    pd = pytest.importorskip("pandas")
    X, Y = problem()
    frame = pd.DataFrame(X, columns=NAMES)
    selector = ELC(2).set_output(transform="pandas").fit(frame, pd.DataFrame(Y, columns=list("abc")))
    result = selector.transform(frame)
    assert result.columns.tolist() == selector.get_feature_names_out().tolist()
    assert result.columns.tolist() == [NAMES[f] for f in np.flatnonzero(selector.support_)]
    with pytest.raises(ValueError, match="feature names should match"):
        selector.transform(frame[NAMES[::-1]])
    with pytest.raises(UsageError, match="X is a Dask array"):
        selector.transform(da.from_array(X, chunks=(20, -1)))


def test_other_numbers_of_features_are_refused():
    X, Y = problem()
    selector = ELC(2).fit(X, Y)
    for wrong in (X[:, :5], da.from_array(X[:, :5], chunks=(20, -1))):
        with pytest.raises(ValueError, match="X has 5 features, but ELC is expecting 8 features as input"):
            selector.transform(wrong)
    with pytest.raises(NotFittedError):
        ELC(2).transform(X)
    with pytest.raises(NotFittedError):
        ELC(2).transform(da.from_array(X, chunks=(20, -1)))


def test_ranking_is_by_score_then_index():
    assert rank(np.array([1.0, 3.0, 1.0, 3.0, 2.0])).tolist() == [1, 3, 4, 0, 2]
    X, Y = problem()
    selector = ELC(3).fit(X, Y)
    assert sorted(selector.ranking_.tolist()) == list(range(D))
    assert (np.diff(selector.scores_[selector.ranking_]) <= 0).all()
    assert np.flatnonzero(selector.support_).tolist() == sorted(selector.ranking_[:3].tolist())


@pytest.mark.parametrize(
    ("value", "d", "kept"),
    [(None, 8, 4), (None, 1, 1), (1, 8, 1), (8, 8, 8), (0.5, 8, 4), (1.0, 8, 8), (0.01, 8, 1), (np.int64(2), 8, 2)],
)
def test_how_many_are_kept(value, d, kept):
    assert count_kept(value, d) == kept


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (9, "n_features_to_select must be between 1 and the number of features, 8; got 9. Give a smaller count"),
        (0, "n_features_to_select must be at least 1; got 0. Give a count, a fraction"),
        (-3, "must be at least 1; got -3"),
        (0.0, "must be a count, a fraction in .0, 1., or None for half of the features; got 0.0"),
        (1.5, "must be a count, a fraction in .0, 1., or None"),
        (True, "got True"),
        ("10", "got '10'"),
    ],
)
def test_impossible_counts_are_refused_before_anything_is_read(value, message):
    class Untouched(ArrayRows):
        def stream(self, first, last):
            raise AssertionError("read")

    X, Y = problem()
    with pytest.raises(UsageError, match=message):
        ELC(value).fit(Untouched(X, as_labels(Y)))


def test_none_is_offered_where_python_is_written():
    for value in (0, 1.5):
        with spell_parameters_as("option"), pytest.raises(UsageError, match=r"^-k must be ") as error:
            count_kept(value, 8)
        assert "None" not in str(error.value)


def test_labels_are_needed_and_must_fit():
    X, Y = problem()
    with pytest.raises(DataError, match="requires y to be passed, but the target y is None"):
        ELC(2).fit(X)
    with pytest.raises(DataError, match="X has 60 rows and Y has 59"):
        ELC(2).fit(X, Y[:-1])
    with pytest.raises(DataError, match="Expected 2D array, got 1D Dask array"):
        ELC(2).fit(da.zeros(5, chunks=2), Y)
    for cube in (np.zeros((N, 2, 3)), da.zeros((N, 2, 3))):
        with pytest.raises(DataError, match=rf"X must be two-dimensional, \(rows, features\); got shape \({N}, 2, 3\)"):
            ELC(2).fit(cube, Y)
    with pytest.raises(DataError, match=r"X has shape .60, 8. and Y 0 columns"):
        ELC(2).fit(X, np.zeros((N, 0)))


def test_classes_are_one_label_each():
    X, _ = problem()
    classes = np.array(["cat", "dog", "owl"])[np.arange(N) % 3]
    one = ELC(2).fit(X, classes)
    assert one.report_.q == 3
    assert one.scores_.tolist() == ELC(2).fit(X, classes[:, np.newaxis] == ["cat", "dog", "owl"]).scores_.tolist()
    assert one.scores_.tolist() == ELC(2).fit(X, da.from_array(np.arange(N) % 3, chunks=7)).scores_.tolist()


def test_works_in_a_pipeline_and_is_cloned_and_pickled():
    X, Y = problem()
    pipeline = make_pipeline(MaxAbsScaler(), ELC(3), MultiOutputClassifier(KNeighborsClassifier(3)))
    assert pipeline.fit(X, Y).predict(X).shape == (N, Q)
    selector = ELC(3, lambda_=0.2).fit(X, Y)
    assert clone(selector).get_params() == selector.get_params()
    assert not hasattr(clone(selector), "scores_")
    again = pickle.loads(pickle.dumps(selector))
    assert again.scores_.tolist() == selector.scores_.tolist()
    assert again.report_ == selector.report_


def test_the_record_has_what_the_contract_names():
    X, Y = problem()
    record = json.loads(json.dumps(LabelEntropy(0.5).fit(X, Y).report_.to_dict()))
    named = (
        "method params store n d q k seed passes tasks bytes_read wall_seconds plan peak_worker_bytes "
        "peak_driver_bytes iterations converged objective versions warnings"
    )
    assert set(named.split()) <= set(record)
    assert (record["method"], record["n"], record["d"], record["q"], record["k"]) == ("label-entropy", N, D, Q, 4)
    assert record["params"]["bins"] == 2  # defaults too
    assert record["store"] is None
    assert record["warnings"] == []
    assert record["passes"] == record["plan"]["passes"] == 1
    assert record["wall_seconds"] > 0
    assert record["peak_driver_bytes"] > 2**20
    assert {"python", "mlfs-dask", "numpy", "dask"} <= set(record["versions"])


def test_a_driver_too_small_is_refused_before_anything_is_read():
    class Untouched(ArrayRows):
        def stream(self, first, last):
            raise AssertionError("read")

    X, Y = problem()
    wide = Untouched(X, as_labels(Y))
    wide.profile = replace(wide.profile, d=10**7, q=100)
    with runtime.process_limits(memory_limit=2**30), pytest.raises(DoesNotFitError) as caught:
        ELC(2).fit(wide)
    assert caught.value.projected > caught.value.available
    assert "cure:" in str(caught.value)


def test_methods_are_found_by_name():
    for name in METHODS:
        selector = get_estimator(name)
        assert selector.plain.method == name
        for fact in ("title", "paper", "doi", "supervision", "passes", "memory"):
            assert isinstance(getattr(selector.plain, fact), str)
    with pytest.raises(UsageError, match=r"there is no method 'label-entrpy'. Did you mean label-entropy"):
        get_estimator("label-entrpy")
    with pytest.raises(UsageError, match="`mlfs methods` lists all"):
        get_estimator("xyz")


def test_the_package_names_what_users_need():
    assert {"ELC", "convert", "open_dataset", "Dataset"} <= set(dir(mlfs_dask))
    with pytest.raises(AttributeError, match="module 'mlfs_dask' has no attribute 'MFSIRR'"):
        mlfs_dask.MFSIRR  # noqa: B018


def test_unknown_labels_are_refused_by_name():
    pd = pytest.importorskip("pandas")
    X, Y = np.eye(4), np.array([[1, 0], [0, -1], [1, -1], [0, 1]])
    with pytest.raises(
        DataError, match=r"2 unknown entries \(-1\) in 1 of its labels, first in column 1 of Y \(counted"
    ):
        ELC(unknown="refuse").fit(X, Y)
    with pytest.raises(DataError, match=r"first in label 'sea', column 1 of Y \(counted from 0\)"):
        ELC(unknown="refuse").fit(X, pd.DataFrame(Y, columns=["sky", "sea"]))


def test_columns_without_names_are_counted_alike_in_x_and_y():
    X, Y = np.eye(4), np.array([[1, 0], [0, 1], [1, 1], [0, 1]])
    with pytest.raises(DataError, match=r"column 2 \(counted from 0\): X contains NaN") as caught:
        ELC().fit(np.where(X[2] > 0, np.nan, X), Y)
    assert caught.value.column == 2
    with pytest.raises(DataError, match=r"column 1 holds 5 \(row 2; counted from 0\)"):
        ELC().fit(X, np.where(np.arange(8).reshape(4, 2) == 5, 5, Y))


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_generators_of_random_numbers_give_a_seed_that_is_recorded(make):
    X, Y = problem()
    selector = SMFS(3, n_trees=10, max_iter=2, tol=0.9, random_state=make(0))
    first, second = clone(selector).fit(X, Y), selector.fit(X, Y)
    assert first.scores_.tolist() == second.scores_.tolist()
    seed = second.report_.seed
    assert isinstance(seed, int)
    assert second.report_.params["random_state"] == seed
    assert second.scores_.tolist() == clone(selector).set_params(random_state=seed).fit(X, Y).scores_.tolist()
    assert selector.fit(X, Y).report_.seed != seed  # the generator goes on, as scikit-learn's do
    before = clone(selector)
    selector.plan(ArrayRows(X, as_labels(Y)), current_resources())
    assert selector.fit(X, Y).report_.seed == before.fit(X, Y).report_.seed


def test_in_process_peaks_count_what_the_driver_holds_between_readings():
    code = """
import numpy as np
from mlfs_dask import runtime
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.selection.estimator import estimator_of
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.selectors.contract import Method, method
from mlfs_dask.selectors.costs import Cost, Reading

@method("driver", "driver", paper="", doi="")
class Driver(Method):
    passes, memory = "2", "driver: 64 MiB"
    def cost(self, source, resources, asked):
        return Cost([Reading("one", (Moments(2),)), "8388608", Reading("two", (Moments(2),))])
    def score(self, readings):
        readings.run("one", Moments(2))
        readings.varies = np.ones(2, bool)
        np.ones(2**23)
        readings.run("two", Moments(2))
        return Scores(np.zeros(2))

X, Y = np.eye(4, 2), np.eye(4, 2, dtype=np.int8)
estimator_of(Driver)().fit(X, Y)
for threads in (1, 2):
    with runtime.process_limits(threads=threads):
        before = runtime.current_rss()
        report = estimator_of(Driver)().fit(X, Y).report_
    print(report.peak_worker_bytes == report.peak_driver_bytes, report.peak_driver_bytes - before > 0.9 * 2**26)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4


# ---------------------------------------------------------------- scikit-learn's own checks; no failure is expected

#: Settings that make a method quick. All estimators are one class: all checks are made for one method of each kind, and
#: what belongs to the interface is checked for every method.
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
@parametrize_with_checks(estimators(["chi2", "elc"], missing="mean"))
def test_scikit_learn_checks_where_missing_features_are_filled_in(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:.* cannot rank the features:UserWarning")
@parametrize_with_checks(
    [*estimators(sorted(METHODS.keys() - set(ONE_OF_EACH_KIND))), get_estimator("elc")(variant="published")],
    legacy=False,
)
def test_scikit_learn_checks_of_the_interface(estimator, check):
    check(estimator)
