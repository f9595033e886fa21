"""Every method: its twin; containers, cuts, stores, parts, weights, cache; what is planned, damaged, unknown, missing.

Rankings of all methods and options, from other partitions, with weights, with two workers: `tests/blackbox`; copies of
features, their order, and constant ones, too.
"""

from __future__ import annotations

import inspect
import json
import shutil
import warnings

import dask.array as da
import numpy as np
import pytest
import sparse
from scipy import sparse as sp
from sklearn.exceptions import ConvergenceWarning

import mlfs_dask
from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine.checkpoints import Folder, keep_checkpoints
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS, get_method
from tests.reference.twins import twin
from tests.selectors.anchored import WITHOUT_GRAM
from tests.storage.damage import flip
from tests.storage.stores import make_store

N, D, Q = 60, 9, 3

LOOPS = [name for name in METHODS if get_method(name).keeps_checkpoints]
ANCHORED = [name for name in METHODS if hasattr(get_method(name), "graph")]
REFUSING = [
    name
    for name in METHODS
    if name not in WITHOUT_GRAM and "gram_cap" in {each.name for each in get_method(name).parameters}
]
SHORT = {"tol": 0.0, "max_iter": 3}

#: Parameters besides the defaults; those of a method with anchors, and without the matrix X'X, follow.
OTHERS = {
    "br-or": [{"smoothing": 1.0, "bins": 3}],
    "chi2": [{"bins": 4}],
    "ela-chi": [{"bins": 20}],
    "cmfs": [{"n_latent": 2, "beta": 3.0}, {"gamma": 20.0, "absolute": True}],
    "csfs": [{"alpha": 2.0, "absolute": True}],
    "elc": [{"variant": "screen"}, {"variant": "published"}, {"similarity": "exponential"}, {"lambda_": 0.3}],
    "enm": [{"bins": 3}],
    "fscla": [{"beta": 2.0, "n_shared": 1}, {"absolute": True, "gamma": 2.0, "kappa": 5.0}],
    "fimf": [{"n_interacting_labels": 2}, {"bins": 20}],
    "label-entropy": [
        {"n_promising_labels": 1.0, "bins": 4},
        {"n_promising_labels": 0},
        {"n_promising_labels": 1, "order": "ascending"},
    ],
    "laplacian": [{"n_neighbors": 3, "lambda_": 6.0}],
    "fssrdm": [{"beta": 0.0}, {"gamma": 0.01}],
    "glfs": [
        {"beta": 2.0, "gamma": 5.0, "absolute": True, "n_label_groups": 2, "n_groups": 3},
        {"alpha": 1.0, "lambda_": 0.9, "gamma": 0.5},
        {"variant": "published", "beta": 1.0, "gamma": 10.0},
    ],
    "leda": [{"ridge": 0.01}],
    "lassonet": [{"hierarchy": 2.0, "lambda_start": 5.0, "batch_size": 16}],
    "lffs": [{"n_latent": 2, "mu": 0.1, "delta": 2.0}, {"gamma": 5.0, "absolute": True}],
    "llsf": [{"alpha": 1.0, "correlation": "laplacian"}, {"variant": "published", "alpha": 0.03, "max_iter": 50}],
    "lsmr": [{"alpha": 0.5, "mu": 1.0}],
    "mdfs": [{"alpha": 3.0, "beta": 2.0, "label_neighbors": 2}, {"absolute": True, "gamma": 5.0}],
    "mamfs": [{"n_population": 5, "n_judged": 40, "bins": 3, "binning": "equal-width"}],
    "mlaco": [{"variant": "published", "n_ants": 4, "decay": 0.3}],
    "mifs": [{"n_latent": 3, "beta": 2.0}, {"variant": "published", "gamma": 1.0, "step": 1e-3, "max_iter": 30}],
    "mlmlfs": [{"p": 0.5, "alpha": 0.3}, {"lambda_": 3.0, "absolute": True}, {"variant": "published", "lambda_": 1.0}],
    "mddm": [{"constraint": "subspace"}, {"constraint": "subspace", "mu": 0.9, "n_components": 2}],
    "mrmr": [{"criterion": "miq", "bins": 3}],
    "qpmlfs": [{"alpha": 0.5}],
    "sfss": [{"mu": 0.2, "gamma": 3.0, "absolute": True}],
    "smdr-ic": [{"lambda_": 0.1, "alpha": 0.1, "beta": 0.5}, {"alpha": 2.0, "beta": 5.0, "absolute": True}],
    "smfs": [{"structure": "distance"}, {"structure": "reconstruction"}],
    "smlfs": [{"alpha": 0.5, "beta": 0.0, "p": 0.5}, {"gamma": 3.0, "absolute": True, "n_neighbors": 2}],
    "scfs": [{"alpha": 0.3, "kappa": 5.0}],
    "sfam": [{"theta": 4.0, "n_neighbors": 2}],
    "sfs-bll": [{"threshold": "half", "alpha": 1.0, "kappa": 3.0}, {"variant": "published", "kappa": 100.0}],
    "smile": [{"alpha": 2.0, "ridge": 0.01, "smoothing": 1.0}],
    "uafs-bh": [{"n_bits": 3, "mu": 4.0}],
    "relieff": [{"n_neighbors": 2, "min_rows": 1}],
    "rfs": [{"gamma": 4.0, "absolute": True}, {"variant": "published"}],
}
FURTHER = {
    **{name: [{"n_landmarks": 4}] for name in ("grro", "mico", "qpmlfs")},
    **{name: [{"gram_cap": 0}] for name in WITHOUT_GRAM},
    "spfs": [{"n_candidates": 5}],
}


def settings_of(name):
    """Parameters with which a method is quick."""
    given = dict(SHORT) if name in LOOPS else {}
    given |= {"n_trees": 10, "n_neighbors": 5} if name == "smfs" else {}
    given |= {"n_promising_labels": 1.0} if name == "label-entropy" else {}
    given |= {"n_judged": 60} if name == "mamfs" else {}
    given |= {"n_hidden": 5, "max_iter": 100, "path_multiplier": 1.3, "batch_size": 64} if name == "lassonet" else {}
    return given | ({"candidates": "br-cc,enm"} if name == "auto" else {})


def forms(*tables, without=()):
    """A case a method and its parameters."""
    cases = [(name, {}) for name in METHODS if name not in without]
    cases += [(name, parameters) for table in tables for name, each in table.items() for parameters in each]
    return pytest.mark.parametrize(("name", "parameters"), cases, ids=[" ".join([n, *map(str, p)]) for n, p in cases])


WITH_ANCHORS = {name: [{"graph": "anchors", "n_anchors": 12}] for name in ANCHORED}
every_method = pytest.mark.parametrize("name", METHODS)


def make(name, k=4, **parameters):
    return get_estimator(name)(k, **settings_of(name) | parameters)


def fit(selector, *rows, **given):
    """Fitted, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return selector.fit(*rows, **given)


def problem(seed=0):
    """Features that carry a label each, a 0/1, a sparse, and a constant one; values are those of float32."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((N, Q)) < [0.3, 0.5, 0.4]).astype(np.int8)
    X = np.round(rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.7), 3)
    X[:, :Q] += 1.5 * Y
    X[:, 4] = rng.random(N) < 0.4
    X[:, 6] = np.where(rng.random(N) < 0.8, 0, X[:, 6])
    X[:, 8] = 4.0
    return X.astype(np.float32).astype(float), Y


def check(found, expected):
    """The same bits where counts decide, and as near as sums in another order come."""
    if found.plain.scores_from_counts and found.plain.method not in ("auto", "mico", "qpmlfs", "grro"):
        assert found.scores_.tobytes() == expected.scores_.tobytes()
    largest = np.abs(expected.scores_).max()
    np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-8, atol=1e-9 * largest)
    assert found.support_.tolist() == expected.support_.tolist()


# ---------------------------------------------------------------- the twin


def check_with_twin(name, k, X, Y, **parameters):
    """Fitted, the scores being those of the twin."""
    given = {key: value for key, value in settings_of(name).items() if name not in LOOPS or key not in SHORT}
    given |= parameters
    selector = make(name, k, **given)
    if "steps_per_pass" in selector.get_params():
        selector.set_params(steps_per_pass=1)  # as twins make them
    simplex = name in ("mico", "qpmlfs")
    if simplex:
        selector.set_params(tol=1e-13)
    if name in LOOPS:
        given |= {"iterations" if name == "smfs" else "max_iter": SHORT["max_iter"]}
        given |= {} if name == "smfs" else {"tol": 0.0}
    function = twin(name)
    if "n_features_to_select" in inspect.signature(function).parameters:
        given["n_features_to_select"] = k
    with np.errstate(divide="ignore", invalid="ignore"):  # few rows
        scores = function(X, Y, **given)
    scores = scores[0] if isinstance(scores, tuple) else scores
    fitted = fit(selector, X, Y)
    found = np.maximum(fitted.scores_, 0) if simplex else fitted.scores_  # others are ranked by what weight would cost
    near = {"rel": 1e-6, "abs": 1e-6} if name in LOOPS else {"rel": 1e-8, "abs": 1e-4 if simplex else 1e-9}
    assert found == pytest.approx(scores, **near)
    return fitted


@forms(OTHERS, without=("auto",))  # `test_auto`
def test_scores_are_those_of_the_plain_twin(name, parameters):
    X, Y = problem()
    check_with_twin(name, 4, X[:, :8], Y, **parameters)  # the constant one: tests/blackbox/test_constant_features.py


# ---------------------------------------------------------------- where rows come from


def gcxs(block):
    return sparse.GCXS.from_numpy(block, compressed_axes=(0,))


CONTAINERS = {
    "csr": lambda X, Y: (sp.csr_array(X), sp.csr_array(Y)),
    "csc": lambda X, Y: (sp.csc_matrix(X), Y.astype(bool)),
    "coo": lambda X, Y: (sp.coo_array(X), Y.astype(float)),
    "columns": lambda X, Y: (np.asfortranarray(X), Y.tolist()),
    "float32": lambda X, Y: (X.astype(np.float32), Y),
    "table": lambda X, Y: (pytest.importorskip("pandas").DataFrame(X), Y),
    "blocks": lambda X, Y: (ArrayRows(X, as_labels(Y), block_bytes=500), None),
    "blocks of csr": lambda X, Y: (ArrayRows(sp.csr_array(X), as_labels(Y), block_bytes=300), None),
    "dask": lambda X, Y: (da.from_array(X, chunks=((25, 1, 0, 34), (4, 5))), da.from_array(Y, chunks=((40, 20), -1))),
    "dask of gcxs": lambda X, Y: (da.from_array(X, chunks=(17, -1)).map_blocks(gcxs), Y),
    "dask of csr": lambda X, Y: (da.from_array(X, chunks=(25, 4)).map_blocks(sp.csr_array), Y),
}

#: Where a fit takes longer, or the method is there a second time.
FEW = ("csr", "blocks of csr", "dask", "dask of gcxs")


@forms(OTHERS, FURTHER, WITH_ANCHORS)
def test_scores_depend_on_neither_containers_nor_chunks_nor_groups(name, parameters, request):
    X, Y = problem()
    usual = fit(make(name, **parameters), X, Y).scores_
    request.getfixturevalue("small_gates")
    expected = fit(make(name, **parameters), X, Y)
    np.testing.assert_allclose(expected.scores_, usual, rtol=1e-8, atol=1e-9 * np.abs(usual).max())
    for put in FEW if parameters or name in (*LOOPS, "auto") else CONTAINERS:
        found = fit(make(name, **parameters), *CONTAINERS[put](X, Y))
        check(found, expected)
        assert found.report_.passes <= found.report_.plan["passes"]
        if name not in (*LOOPS, "auto", "smfs", "pmu", "mdmr"):
            assert found.report_.passes == found.report_.plan["passes"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of the rows of `problem`, of some partitions: dense, sparse, and one to which two thirds were appended."""
    folder = tmp_path_factory.mktemp("stores")
    X, Y = problem()
    for storage in ("dense", "sparse"):
        make_store(folder / f"{storage}.zarr", X, Y, storage=storage, partition_bytes=700, names=False)
    make_store(folder / "appended.zarr", X[:20], Y[:20], storage="dense", partition_bytes=700, names=False)
    np.savez(folder / "rest.npz", X=X[20:], Y=Y[20:])
    mlfs_dask.append(folder / "appended.zarr", folder / "rest.npz")
    return folder


@pytest.fixture(scope="module")
def datasets(stores):
    return {path.stem: mlfs_dask.open_dataset(path) for path in sorted(stores.glob("*.zarr"))}


@forms(WITH_ANCHORS)
def test_scores_of_stores_and_of_their_parts_are_those_of_the_arrays(name, parameters, datasets):
    X, Y = problem()
    expected = fit(make(name, **parameters), X, Y)
    for dataset in datasets.values():
        with runtime.process_limits(threads=2):
            found = fit(make(name, **parameters), dataset)
        check(found, expected)
        assert found.report_.passes <= found.report_.plan["passes"]
        assert found.report_.bytes_read <= found.report_.plan["bytes_read"]
    part = datasets["dense"].subset(rows="3:", features="0:8", labels="0:2")
    assert part.shape == (N - 3, 8)
    expected = fit(make(name, **parameters), X[3:, :8], Y[3:, :2])
    check(fit(make(name, **parameters), part), expected)
    check(fit(make(name, **parameters), part.X, part.Y), expected)


@pytest.mark.parametrize("name", [name for name in LOOPS if name not in ANCHORED])  # others: engine/test_checkpoints.py
def test_an_interrupted_loop_goes_on_to_the_same_bits(name, datasets, tmp_path):
    dataset, folder = datasets["dense"], Folder(str(tmp_path / "states"))

    def interrupt(event):
        if event["kind"] == "step" and event["number"] == 3:
            raise KeyboardInterrupt

    with runtime.process_limits(threads=1):
        expected = fit(make(name, max_iter=5), dataset)
        with keep_checkpoints(folder, every=0), runtime.progress_to(interrupt), pytest.raises(KeyboardInterrupt):
            fit(make(name, max_iter=5), dataset)
        events = []
        with keep_checkpoints(folder, every=0, resume=True), runtime.progress_to(events.append):
            found = fit(make(name, max_iter=5), dataset)
    assert next(event["number"] for event in events if event["kind"] == "step") == 3
    assert found.scores_.tobytes() == expected.scores_.tobytes()
    assert found.report_.objective == expected.report_.objective


@every_method
def test_of_a_damaged_store_there_are_no_scores(name, stores, tmp_path):
    store = tmp_path / "damaged.zarr"
    shutil.copytree(stores / "dense.zarr", store)
    flip(store, "X")
    with pytest.raises(DataError, match="X: the store is damaged"):
        fit(make(name), mlfs_dask.open_dataset(store))


#: Methods whose scores are averages over the rows: the unit of weights has no part in them.
AVERAGES = ("elc", "label-entropy", "enm", "gmm")


@every_method
def test_rows_are_weighted_by_being_repeated_or_not_at_all(name, request):
    X, Y = problem()
    weights = np.random.default_rng(1).integers(0, 4, N)
    selector = make(name)
    if "sample_weight" not in inspect.signature(selector.fit).parameters:
        with pytest.raises(TypeError, match="sample_weight"):
            selector.fit(X, Y, sample_weight=weights)
        return
    expected = fit(make(name), np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0)).scores_
    for put in ("columns", "blocks of csr", "dask of gcxs"):
        found = fit(make(name), *CONTAINERS[put](X, Y), sample_weight=weights)
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert found.report_.n == N
        request.getfixturevalue("small_gates")
    if name in AVERAGES:
        found = fit(make(name), X, Y, sample_weight=0.37 * weights)
        assert found.scores_ == pytest.approx(expected, rel=1e-6, abs=1e-9)


# ---------------------------------------------------------------- hard data


@every_method
def test_missing_features_are_filled_in_or_refused_and_infinite_ones_refused(name):
    X, Y = problem()
    X[np.random.default_rng(2).random(X.shape) < 0.2] = np.nan
    X[:, 0] = np.nan_to_num(X[:, 0])
    for how, fill, puts in (
        ("mean", np.nanmean, ("columns", "dask of csr")),
        ("median", np.nanmedian, ("csr", "dask")),
    ):
        expected = fit(make(name), np.where(np.isnan(X), fill(X, axis=0), X), Y).scores_
        for put in puts:
            found = fit(make(name, missing=how), *CONTAINERS[put](X, Y)).scores_
            assert found == pytest.approx(expected, rel=1e-8, abs=1e-9 * abs(expected).max())
    with pytest.raises(DataError, match=r"column 1 \(counted from 0\): X contains NaN") as caught:
        fit(make(name), X, Y)
    assert "choose missing=" in str(caught.value)
    X[7, 5] = np.inf
    with pytest.raises(DataError, match=r"column 5 .*infinity") as caught:
        fit(make(name, missing=how), X, Y)
    assert "NaN or" not in str(caught.value)
    assert "missing=" not in str(caught.value)
    for tags, allowed in ((get_estimator(name)(), False), (make(name, missing=how), True)):
        assert tags.__sklearn_tags__().input_tags.allow_nan is allowed


@forms(WITH_ANCHORS)
def test_where_nothing_can_be_told_one_warning_says_why(name, parameters):
    X, Y = problem()
    for constant in (np.full((N, 3), 0.1), sp.csr_array((N, 3))):
        with pytest.warns(UserWarning, match=r"cannot rank the features: .* constant.* All|only 0 of 3 do") as told:
            found = make(name, 1, **parameters).fit(constant, Y)
        assert [str(each.message) for each in told] == found.report_.warnings
        assert len(set(found.scores_.tolist())) == 1
        assert found.ranking_.tolist() == [0, 1, 2]
    for labels in (np.zeros_like(Y), np.ones_like(Y)):
        if name == "smfs" and not labels.any():
            with pytest.raises(DataError, match="no row of Y has a positive label\n  cure: "):
                fit(make(name, **parameters), X, labels)
            continue
        found = fit(make(name, **parameters), X, labels)
        assert np.isfinite(found.scores_).all()
        json.dumps(found.report_.to_dict(), allow_nan=False)


@forms(
    FURTHER,
    {name: WITH_ANCHORS[name] for name in LOOPS if name in ANCHORED},
    without=("laplacian", "uafs-bh"),  # labels have no part in them
)
def test_features_that_follow_the_labels_are_found(name, parameters):
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(300, 15)), (rng.random((300, 4)) < 0.4).astype(np.int8)
    planted = [2, 5, 9, 13]
    X[:, planted] += 4 * Y + Y.sum(axis=1, keepdims=True)
    selector = make(name, **parameters | ({"max_iter": 30} if name in LOOPS else {}))
    assert sorted(fit(selector, X, Y).ranking_[:4].tolist()) == planted
    if not parameters:
        Y[np.random.default_rng(1).random(300) < 0.5] = -1  # nothing is known of half of the rows
        for rows in ((X, Y), (sp.csr_array(X), sp.csr_array(Y)), (da.from_array(X, (170, 4)), da.from_array(Y))):
            assert sorted(fit(selector, *rows).ranking_[:4].tolist()) == planted


@forms(without=("auto",))
def test_few_rows_labels_and_features_do(name, parameters):
    X, Y = problem()
    X = X[:, :8]
    few = [(X[:9], Y[:9]), (X[:, :1], Y), (X, Y[:, :1])]
    no_twin = {"mlaco": 1, "smlfs": 1, "mfs-f": 2}  # 0/0
    for i, rows in enumerate(few):
        fitted = fit(make(name, 1), *rows) if no_twin.get(name) == i else check_with_twin(name, 1, *rows)
        json.dumps(fitted.report_.to_dict(), allow_nan=False)
    assert len(set(fit(make(name, 1), X[:1], Y[:1]).scores_.tolist())) == 1


# ---------------------------------------------------------------- parameters, records, loops


@every_method
def test_what_a_parameter_cannot_be_is_refused_by_name(name):
    X, Y = problem()
    for parameter in get_method(name).parameters:
        if str in parameter.types and not parameter.choices:
            continue
        wrong = "none of these" if parameter.choices or bool in parameter.types else -3
        if parameter.name == "n_promising_labels":
            wrong = -1
        with pytest.raises(UsageError, match=f"^{parameter.name} must be ") as caught:
            make(name, **{parameter.name: wrong}).fit(X, Y)
        assert f"got {wrong!r}" in str(caught.value)


@pytest.mark.parametrize("name", REFUSING)
def test_more_features_than_the_gram_cap_are_refused_with_the_cure(name):
    selector = make(name, gram_cap=8, **{"constraint": "subspace"} if name == "mddm" else {})
    said = r"X'X of 9 features, .* at most 8( \(gram_cap\))?(.|\n)*cure: "
    with pytest.raises(DoesNotFitError, match=said):
        fit(selector, *problem())
    with pytest.raises(DoesNotFitError, match=said):
        selector.plan(as_rows(*problem()), current_resources())


@every_method
def test_auto_keeps_what_shuffled_labels_allow_or_is_refused_with_a_cure(name):
    X, Y = problem()
    X = X[:, [0, 1, 2, 5]]
    X[:, :Q] += 4 * Y
    selector = make(name, "auto")
    if selector.plain.resamples_rows:
        found = fit(selector.set_params(resamples=5, random_state=0), X, Y)
        assert found.report_.k == np.count_nonzero(found.q_values_ <= 0.1) == found.support_.sum() >= 1
        assert found.report_.passes == found.report_.plan["passes"]
        low, high = found.rank_intervals_.T
        assert (low >= 1).all()
        assert (low <= high).all()
        assert found.selection_frequency_.sum() == pytest.approx(found.report_.k)
        plain = fit(make(name, found.report_.k), X, Y)
        assert plain.scores_.tobytes() == found.scores_.tobytes()
        assert not hasattr(plain, "q_values_")
        return
    with pytest.raises(UsageError, match="'auto'") as error:
        selector.fit(X, Y)
    assert f"mlfs evaluate STORE {name} --choose-k" in str(error.value)


def told_to_the_end(events):
    """Labels of readings and stages, each of which is counted to its end before the next begins."""
    labels, left, open_label = [], None, None
    for event in events:
        if (kind := event["kind"]) in ("pass", "stage"):
            assert open_label is None, f"{event['label']} begins within {open_label}"
            open_label, left = event["label"], event["partitions" if kind == "pass" else "parts"]
            labels.append(open_label)
        elif kind in ("partitions", "parts") and left is not None:
            left -= event["done"]
        elif kind in ("pass-done", "stage-done"):
            assert (event["label"], left or 0) == (open_label, 0)
            open_label = None
    assert open_label is None
    return labels


@pytest.mark.parametrize(
    ("name", "graph"),
    [*((name, {}) for name in LOOPS), *((name, {"graph": "anchors"}) for name in LOOPS if name in ANCHORED)],
)
def test_every_iteration_is_told_and_recorded(name, graph, datasets):
    events, stop = [], {"stop": "objective"} if name == "access-mfs" else {}  # its ranking settles at once
    with (
        runtime.progress_to(events.append),
        runtime.process_limits(threads=2),
        pytest.warns(ConvergenceWarning, match=r"did not converge in 3 .*max_iter") as told,
    ):
        report = make(name, **graph, **stop).fit(datasets["dense"]).report_
    assert {each.filename for each in told} == {__file__}
    steps = [event for event in events if event["kind"] == "step"]
    assert [event["number"] for event in steps] == [1, 2, 3]
    assert [event["objective"] for event in steps] == report.objective
    assert (report.iterations, report.converged) == (3, False)
    assert len(told_to_the_end(events)) >= report.passes
    assert graph or name in ANCHORED or report.passes == sum(event["kind"] == "pass" for event in events)
    json.dumps(report.to_dict(), allow_nan=False)


def test_a_loop_that_reports_no_steps_has_no_iterations_to_show():
    events = []
    with runtime.progress_to(events.append):
        make("qpmlfs").fit(*problem())
    assert [event["max_iterations"] for event in events if event["kind"] == "fit"] == [None]
