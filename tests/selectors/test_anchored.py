"""The selectors with anchors: containers, cuts, threads, workers, hard data, readings, memory, checkpoints."""

from __future__ import annotations

import json
import re

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.cluster.connect import connect
from mlfs_dask.engine.checkpoints import Folder, keep_checkpoints
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.rows.contract import Profile
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import costs, iterative
from mlfs_dask.selectors.costs import Reading
from mlfs_dask.selectors.iterative import EXACT_ROWS
from tests.selectors import test_access_mfs_anchors as access
from tests.selectors import test_mfsir_anchors as mfsir
from tests.selectors import test_smfs_anchors as smfs
from tests.selectors.anchored import NEAR, hide, larger, problem, quiet
from tests.storage.stores import make_store

MODULES = {"mfsir": mfsir, "access-mfs": access, "smfs": smfs}

#: Method, what is unknown, parameters; four iterations have to do, since a Dask array costs a graph a reading.
FORMS = {
    "mfsir": ("mfsir", "nothing", {"tol": 0.0, "max_iter": 4}),
    "mfsir without X'X": ("mfsir", "nothing", {"tol": 0.0, "max_iter": 4, "gram_cap": 0}),
    "access-mfs of rows": ("access-mfs", "rows", {"max_iter": 4}),
    "access-mfs of entries": ("access-mfs", "rows and entries", {"max_iter": 4}),
    "access-mfs of zeros": ("access-mfs", "nothing", {"max_iter": 4, "unknown_labels": "zeros"}),
    "smfs of rows": ("smfs", "rows", {"tol": 0.0, "max_iter": 4}),
    "smfs of entries": ("smfs", "rows and entries", {"tol": 0.0, "max_iter": 4}),
    "smfs of zeros": ("smfs", "nothing", {"tol": 0.0, "max_iter": 4, "unknown_labels": "zeros"}),
}

forms = pytest.mark.parametrize("form", FORMS)
methods = pytest.mark.parametrize("method", MODULES)


def case(form, seed=0, n=80, dtype=np.float64):
    """Module, rows, and parameters."""
    method, by, parameters = FORMS[form]
    X, Y = problem(seed, n)
    X = X.astype(dtype)
    return MODULES[method], X, hide(Y, by), parameters


# ---------------------------------------------------------------- containers and cuts


@pytest.mark.parametrize("share", [0.1, 0.7])
@pytest.mark.parametrize("method", ["mfsir", "access-mfs", "smfs", "laplacian"])
def test_dense_and_sparse_rows_of_the_same_values_have_the_same_anchors(method, share):
    """Of 0/1 features many rows lie equally far from two anchors."""
    rng = np.random.default_rng(1)
    X = (rng.random((600, 30)) < share).astype(float)
    Y = hide((X @ rng.normal(size=(30, 5)) > 0.5).astype(np.int8), "nothing" if method == "mfsir" else "rows")
    dense, sparse = (quiet(get_estimator(method)(5, graph="anchors"), rows, Y) for rows in (X, sp.csr_array(X)))
    assert dense.scores_ == pytest.approx(sparse.scores_, rel=1e-9, abs=1e-10 * sparse.scores_.max())


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of several partitions, by whether X is sparse and by what is unknown."""
    folder = tmp_path_factory.mktemp("stores")

    def store(by, *, sparse):
        path = folder / f"{by} {sparse}.zarr"
        if not path.exists():
            X, Y = problem()
            storage = "sparse" if sparse else "dense"
            make_store(path, X, hide(Y, by), names=False, partition_bytes=1500, storage=storage, dtype="float64")
        return mlfs_dask.open_dataset(path)

    return store


@pytest.fixture(scope="module")
def workers(two_workers):
    with connect(scheduler_file=two_workers, min_workers=2) as client:
        yield client


@pytest.mark.cluster
@forms
def test_two_workers_give_what_the_twin_gives(form, workers, stores):
    assert len(workers.scheduler_info()["workers"]) == 2
    module, X, Y, parameters = case(form)
    wanted = module.expected(X, Y, **parameters)
    module.check(quiet(module.anchored(**parameters), stores(FORMS[form][1], sparse=False)), wanted)
    if form in ("mfsir", "access-mfs of entries", "smfs of entries"):
        lazy = da.from_array(X, chunks=(23, 5)), da.from_array(Y, chunks=(31, -1))
        module.check(quiet(module.anchored(**parameters), *lazy), wanted)


@pytest.mark.cluster
@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("method", MODULES)
def test_workers_have_no_part_in_the_exact_graph(method, stores):
    selector = get_estimator(method)(2, graph="exact", max_iter=1)
    report = quiet(selector, stores("nothing", sparse=False)).report_
    assert report.peak_worker_bytes == 0 < report.peak_driver_bytes


# ---------------------------------------------------------------- hard data


def nine_rows(X, Y):
    return X[:9], Y[:9]


def one_label(X, Y):
    return X, Y[:, :1]


def one_feature(X, Y):
    return X[:, :1], Y


def constant_features(X, Y):
    X = X.copy()
    X[:, [2, 5]] = 0.1
    return X, Y


def never_positive(X, Y):
    Y = Y.copy()
    Y[:, 1] = np.minimum(Y[:, 1], 0)
    return X, Y


def equal_labels(X, Y):
    return X, Y[:, [0, 1, 0, 2, 1, 0]]


def far_from_zero(X, Y):
    X = X.copy()
    X[:, 3] += 1e8
    return X, Y


def rather_far_from_zero(X, Y):
    X = X.copy()
    X[:, 3] += 1e4
    return X, Y


def few_different_rows(X, Y):
    return X[np.arange(len(X)) % 12], Y


def rows_of_zeros(X, Y):
    X = X.copy()
    X[20:60] = 0.0
    return X, Y


HARD = (
    nine_rows,
    one_label,
    one_feature,
    constant_features,
    never_positive,
    equal_labels,
    far_from_zero,
    rather_far_from_zero,
    few_different_rows,
    rows_of_zeros,
)


@pytest.mark.parametrize(
    ("change", "sparse"),
    [*((change, False) for change in HARD), *((change, True) for change in (far_from_zero, rather_far_from_zero))],
)
@forms
def test_hard_data_gives_what_the_twin_gives(form, change, sparse):
    module, X, Y, parameters = case(form)
    X, Y = change(X, Y)
    source = ArrayRows(as_matrix(sp.csr_array(X) if sparse else X), as_labels(Y), block_bytes=1000)
    if change is far_from_zero and sparse:
        with pytest.raises(DataError, match="standard deviations from zero, too far") as caught:
            quiet(module.anchored(**parameters), source)
        assert caught.value.column == 3
        return
    found = quiet(module.anchored(**parameters), source)
    near = NEAR
    if change is far_from_zero or (change is rather_far_from_zero and sparse):
        near = {"rel": 1e-6, "abs": 1e-6}  # 8 digits are left beside a mean of 1e8, and beside the square of 1e4
    module.check(found, module.expected(X, Y, sparse=sparse, **parameters), near)
    json.dumps(found.report_.to_dict(), allow_nan=False)
    if change is constant_features:
        assert found.scores_[[2, 5, 8]].tolist() == [0.0, 0.0, 0.0]


# ---------------------------------------------------------------- readings


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize(
    ("form", "more"), [("mfsir", 2), ("access-mfs of entries", 1), ("smfs of entries", 3), ("smfs of zeros", 3)]
)
def test_an_iteration_is_one_reading(form, more, partitions):
    module, X, Y, parameters = case(form)
    source = ArrayRows(as_matrix(X), as_labels(Y), block_bytes=X.nbytes // partitions)
    read = []
    real = source.stream
    source.stream = lambda first, last: read.append((first, last)) or real(first, last)
    with runtime.process_limits(threads=1):
        report = quiet(module.anchored(**parameters), source).report_
    assert report.iterations == 4
    assert report.passes == 4 + more
    assert len(read) == 4 + more
    assert set(read) == {(0, partitions)}
    planned = module.anchored(**parameters).plan(source, Resources(1, 1, 2**33, 2**33))
    assert planned.passes == 4 + more


def test_where_labelled_rows_are_known_whole_smfs_reads_three_times():
    module, X, Y, parameters = case("smfs of rows")
    report = quiet(module.anchored(**parameters), X, Y).report_
    assert (report.iterations, report.passes) == (4, 3)
    module, X, Y, parameters = case("mfsir")
    assert quiet(module.anchored(**parameters, beta=0.0), X, Y).report_.passes == 6


@pytest.mark.parametrize(
    ("form", "each", "parameters"),
    [
        ("mfsir", 1, {"gram_cap": 0}),
        ("access-mfs of entries", 1, {"gram_cap": 0}),
        ("smfs of entries", 2, {"gram_cap": 5}),  # X'SX of features that join the set
        ("smfs of entries", 7, {"gram_cap": 0}),  # conjugate gradients on all features
    ],
)
def test_readings_without_the_gram_matrix_are_within_the_plan(form, each, parameters):
    module, X, Y, given = case(form)
    source = ArrayRows(as_matrix(X), as_labels(Y), block_bytes=3000)
    passes = []
    for count in (3, 6, 7):
        selector = module.anchored(**given | parameters | {"max_iter": count})
        report = quiet(selector, source).report_
        assert report.iterations == count
        assert report.passes <= selector.plan(source, Resources(1, 1, 2**33, 2**33)).passes
        passes.append(report.passes)
    assert passes[1] - passes[0] <= 3 * each
    assert 1 <= passes[2] - passes[1] <= each


# ---------------------------------------------------------------- memory


def profile_of(*, sparse):
    """200 features, 20 labels, a million rows in partitions of 16 MB, or of 1.6 MB where X is sparse."""
    stored = 10 if sparse else 200
    return Profile(
        n=10**6,
        d=200,
        q=20,
        sparse=sparse,
        dtype=np.dtype(np.float32),
        nonzeros=stored * 10**6,
        label_nonzeros=3 * 10**6,
        partitions=50,
        block_rows=20_000,
        block_bytes=20_000 * (stored * (8 if sparse else 4)),
        buffer_bytes=20_000 * (stored * (8 if sparse else 4)),
        read_bytes=stored * (8 if sparse else 4) * 10**6,
    )


def planned(method, n, resources, *, sparse=False, **parameters):
    """What the statistics hold, what the driver holds, and the peaks of driver and worker."""
    profile = larger(profile_of(sparse=sparse), n)
    selector = get_estimator(method)(20, graph="anchors", **parameters)
    cost, plan = selector.make_method().cost(profile, resources), selector.plan(profile, resources)
    sizes = [
        (type(s).__name__, s.state_bytes, s.parameter_bytes, s.result_bytes, s.scratch_bytes(profile))
        for step in cost.steps
        if isinstance(step, Reading)
        for s in step.statistics
    ]
    return sizes, cost.most_held, plan.peak_driver_bytes, plan.peak_worker_bytes


@pytest.mark.parametrize("client", [None, object()])
@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("sparse", [False, True])
@methods
def test_memory_does_not_depend_on_the_number_of_rows(method, sparse, gram_cap, client, monkeypatch):
    monkeypatch.setattr(runtime, "driver_bytes", lambda: 200 * 2**20)
    resources = Resources(2, 1, 2**30, 2**40, client)
    # Masses summed over 100 trees need 64 bits from 43 million rows on.
    for rows in ((10**5, 10**7), (10**8, 10**9)) if method == "smfs" else ((10**5, 10**7, 10**9),):
        few, *others = (planned(method, n, resources, sparse=sparse, gram_cap=gram_cap) for n in rows)
        for many in others:
            assert many[1] == few[1]
            assert [size[:4] for size in many[0]] == [size[:4] for size in few[0]]
    # Fewer rows do without compiled kernels, and have fewer states to merge at a time. On a cluster more rows are read
    # in more tasks, and merged in more rounds, until there are 4096 tasks.
    for rows in ((10**7, 4 * 10**7), (10**8, 10**9)) if method == "smfs" else ((10**7, 10**9),):
        few, many = (planned(method, n, resources, sparse=sparse, gram_cap=gram_cap) for n in rows)
        assert many[:3] == few[:3]
        assert few[3] <= many[3] <= (1.0 if client is None else 1.25) * few[3]
    few, many = (planned(method, n, resources, sparse=sparse, gram_cap=gram_cap) for n in (10**10, 10**11))
    assert few == many


@methods
def test_a_thousand_million_rows_fit_a_small_driver(method, monkeypatch):
    monkeypatch.setattr(runtime, "driver_bytes", lambda: 200 * 2**20)
    resources = Resources(2, 1, 2**30, 2**40, object())
    *_, driver, _ = planned(method, 10**9, resources)
    cost = (
        get_estimator(method)(20, graph="anchors")
        .make_method()
        .cost(larger(profile_of(sparse=False), 10**9), resources)
    )
    # SMFS: tables of 100 trees, 256 leaves and 300 landmarks, of which the way to the workers takes 4 copies.
    tables = 8 * cost.sizes.get("masses", 0)
    assert driver - 5 * tables <= 600 * 2**20
    assert driver <= 800 * 2**20


@pytest.mark.parametrize("form", ["mfsir", "mfsir without X'X", "access-mfs of entries", "smfs of entries"])
def test_states_and_parameters_are_of_the_size_that_is_told(form, monkeypatch):
    sizes = []
    module, X, Y, parameters = case(form)

    def spy(source, statistics, *rest, **options):
        inner = [getattr(each, "statistic", each) for each in statistics]  # of labels at their shares
        sizes.extend((s, sum(array.nbytes for array in s.zero())) for s in inner if hasattr(s, "scaling"))
        return run_reading(source, statistics, *rest, **options)

    monkeypatch.setattr(costs, "run_reading", spy)
    quiet(module.anchored(**parameters), X, Y)
    kinds = {type(statistic).__name__ for statistic, _ in sizes}
    assert kinds & {"LatentRows", "PredictedRows", "RecoveredRows"}
    for statistic, size in sizes:
        assert statistic.state_bytes == size, type(statistic)


# ---------------------------------------------------------------- checkpoints


def stop_at(number):
    def sink(event):
        if event["kind"] == "step" and event["number"] == number:
            raise KeyboardInterrupt

    return sink


def resumed(module, parameters, dataset, folder, *, stop, k=3):
    """A fit that went on after `stop` - 1 iterations, with another k and another number of threads."""
    with (
        keep_checkpoints(folder, every=0),
        runtime.process_limits(threads=1),
        runtime.progress_to(stop_at(stop)),
        pytest.raises(KeyboardInterrupt),
    ):
        quiet(module.anchored(**parameters), dataset)
    events = []
    selector = module.anchored(**parameters)
    selector.n_features_to_select = k
    with keep_checkpoints(folder, every=0, resume=True), runtime.progress_to(events.append):
        found = quiet(selector, dataset)
    assert next(event["number"] for event in events if event["kind"] == "step") == stop
    return found


RESUMED = {
    **{name: form for name, form in FORMS.items() if "zeros" not in name},
    "access-mfs without X'X": ("access-mfs", "rows and entries", {"max_iter": 6, "gram_cap": 0}),
    "smfs without X'X": ("smfs", "rows and entries", {"tol": 0.0, "max_iter": 6, "gram_cap": 5}),
    "smfs by products": ("smfs", "rows and entries", {"tol": 0.0, "max_iter": 6, "gram_cap": 0, "beta": 0.01}),
}


@pytest.mark.parametrize("form", RESUMED)
def test_an_interrupted_fit_goes_on_with_another_k_and_other_threads(form, stores, tmp_path):
    method, by, parameters = RESUMED[form]
    module, dataset = MODULES[method], stores(by, sparse=False)
    expected = quiet(module.anchored(**parameters), dataset)
    with runtime.process_limits(threads=2):
        found = resumed(module, parameters, dataset, Folder(str(tmp_path / "states")), stop=3, k=5)
    assert found.ranking_.tolist() == expected.ranking_.tolist()
    assert found.scores_ == pytest.approx(expected.scores_, rel=1e-9)
    assert found.report_.objective == pytest.approx(expected.report_.objective, rel=1e-9)
    assert found.support_.sum() == 5
    assert expected.report_.passes <= found.report_.passes <= expected.report_.passes + 4


@pytest.mark.cluster
@pytest.mark.parametrize("form", ["mfsir", "access-mfs of entries", "smfs of entries"])
def test_an_interrupted_fit_goes_on_with_workers(form, workers, stores, tmp_path):
    method, by, parameters = FORMS[form]
    module, dataset = MODULES[method], stores(by, sparse=False)
    found = resumed(module, parameters, dataset, Folder(str(tmp_path / "states")), stop=3)
    _, X, Y, _ = case(form)
    module.check(found, module.expected(X, Y, **parameters))


@pytest.mark.parametrize("form", RESUMED)
def test_a_checkpoint_holds_nothing_of_the_rows(form, stores, tmp_path):
    method, by, parameters = RESUMED[form]
    module, dataset = MODULES[method], stores(by, sparse=False)
    folder = Folder(str(tmp_path))
    with keep_checkpoints(folder, every=0), runtime.progress_to(stop_at(4)), pytest.raises(KeyboardInterrupt):
        quiet(module.anchored(**parameters), dataset)
    (path,) = tmp_path.glob("*.npz")
    with np.load(path) as file:
        arrays = {name: file[name].shape for name in file.files if name.startswith("array/")}
    assert arrays
    for name, shape in arrays.items():
        assert 80 not in shape, name


# ---------------------------------------------------------------- which form


@methods
def test_auto_takes_anchors_beyond_20_000_rows(method):
    assert EXACT_ROWS == 20_000
    resources = Resources(1, 1, 2**33, 2**40)
    for n, exact in ((20_000, True), (20_001, False)):
        plan = get_estimator(method)(5).plan(larger(profile_of(sparse=False), n), resources)
        exactly = [note for note in plan.notes if "exact graph" in note]
        assert bool(exactly) is exact
        others = [note for note in plan.notes if note not in exactly]
        assert any("anchors" in note or "landmarks" in note for note in others) is not exact


@methods
def test_auto_fits_with_anchors_beyond_its_rows(method, monkeypatch):
    module = MODULES[method]
    X, Y = problem()
    parameters = {"max_iter": 3, "tol": 0.0}
    exact = quiet(module.anchored(**parameters).set_params(graph="auto"), X, Y)
    assert exact.report_.extra["graph"]["kind"] == "exact"
    monkeypatch.setattr(iterative, "EXACT_ROWS", 79)
    found = quiet(module.anchored(**parameters).set_params(graph="auto"), X, Y)
    assert found.report_.extra["graph"]["kind"] == "anchors"
    module.check(found, module.expected(X, Y, **parameters))


@methods
def test_an_exact_graph_beyond_memory_is_refused(method):
    resources = Resources(1, 1, 2**33, 2**30)
    selector = get_estimator(method)(5, graph="exact")
    with pytest.raises(DoesNotFitError, match=r"cure: take graph='anchors', which holds nothing that grows with"):
        selector.plan(larger(profile_of(sparse=False), 10**7), resources)
    assert get_estimator(method)(5, graph="anchors").plan(larger(profile_of(sparse=False), 10**7), resources).passes > 2


def test_what_the_driver_of_a_cluster_compiles_is_in_its_plan():
    """access-mfs predicts labels of the sample there, mfsir searches it where it is sparse and large."""
    resources = Resources(2, 1, 2**30, 2**33, client=object())
    dense, sparse = (larger(profile_of(sparse=sparse), 10**6) for sparse in (False, True))
    for method, profile, compiled in (("access-mfs", dense, True), ("mfsir", dense, False), ("mfsir", sparse, True)):
        assert get_estimator(method)(5, graph="anchors").make_method().cost(profile, resources).compiled == compiled
    assert not get_estimator("access-mfs")(5, graph="anchors", theta=0.0).make_method().cost(dense, resources).compiled


@pytest.mark.parametrize(
    ("method", "published"),
    [("mfsir", {"step": "fixed"}), ("access-mfs", {"variant": "published_code"}), ("smfs", {"consistency": "none"})],
)
def test_the_cure_of_a_published_form_is_no_form_that_it_does_not_have(method, published):
    (name, value), selector = *published.items(), get_estimator(method)(5, **published)
    resources = Resources(1, 1, 2**33, 2**33)
    assert "anchors" not in selector.plan(profile_of(sparse=False), resources).notes[0]
    with pytest.raises(DoesNotFitError, match=f"cure: leave out {name}='{value}', which has the exact graph alone"):
        selector.plan(larger(profile_of(sparse=False), 10**7), resources)


@pytest.mark.parametrize(
    ("method", "parameters", "message"),
    [
        (
            "mfsir",
            {"step": "fixed"},
            "step='fixed' is a published form, which has the exact graph: give",
        ),
        (
            "access-mfs",
            {"variant": "published_code"},
            "variant='published_code' is a published form, which has the exact graph: give",
        ),
        ("smfs", {"consistency": "none"}, "consistency='none' is a published form, which has the exact graph: give"),
    ],
)
def test_published_forms_have_no_anchors(method, parameters, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        get_estimator(method)(2, graph="anchors", **parameters).fit(*problem())
    profile = larger(profile_of(sparse=False), 30_000)
    plan = get_estimator(method)(2, **parameters).plan(profile, Resources(1, 1, 2**33, 2**40))
    assert any("exact graph" in note for note in plan.notes)
