"""mFSIR, SMFS and Access-MFS with anchors: their plain twins, the exact forms, hard data, readings, memory, workers."""

from __future__ import annotations

import json
import tracemalloc

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask import MFSIR, SMFS, AccessMFS, runtime
from mlfs_dask.blocks.anchors import place_anchors
from mlfs_dask.blocks.forest import float32_scaling, forest_columns, forest_seeds, to_float32
from mlfs_dask.blocks.heat_kernel import mean_degree
from mlfs_dask.blocks.latent_rows_compiled import sweep_nonnegative
from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.cluster.connect import connect
from mlfs_dask.engine.checkpoints import Folder, keep_checkpoints
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.rows.contract import Profile
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import in_memory
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.costs import Reading
from mlfs_dask.statistics.sample import SampledRows
from mlfs_dask.statistics.scaling import Scaling
from tests.reference import access_mfs as exact_access_mfs
from tests.reference import access_mfs_anchors, mfsir_anchors, smfs_anchors
from tests.reference import mfsir as exact_mfsir
from tests.reference.anchors import means_of_rows, row_weights, spread
from tests.reference.elc import standardise
from tests.reference.smfs import grow_trees
from tests.selectors.anchored import hide, larger, problem, quiet
from tests.storage.stores import make_store

METHODS = ("mfsir", "access-mfs", "smfs")
HERE = Resources(1, 1, 2**33, 2**33)

#: With which a twin does not take long; of Access-MFS enough for the first anchors to meet.
QUICK = {
    "mfsir": {"steps_per_pass": 1},
    "access-mfs": {"max_iter": 10, "tol": 0.0, "steps_per_pass": 1, "stop": "objective"},
    "smfs": {"n_trees": 20, "max_samples": 32, "n_anchors": 15, "steps_per_pass": 1},
}

methods = pytest.mark.parametrize("method", METHODS)


def anchored(method, k=1, **parameters):
    return get_estimator(method)(k, **{"graph": "anchors"} | QUICK[method] | parameters)


# ---------------------------------------------------------------- the plain twins


def without(parameters, *names):
    return {name: value for name, value in parameters.items() if name not in names}


def expected_of_mfsir(X, Y, *, sparse, **parameters):
    points = standardise(X)
    n, d = points.shape
    beta, seed = parameters.get("beta", 1.0), parameters.get("random_state", 0)
    centres, gamma = np.zeros((1, d)), 0.0
    if beta:
        m = min(n, max(8, min(parameters.get("n_anchors", 300), n // 4)))
        centres = place_anchors(points, m, seed)
        if 2 * np.count_nonzero(X) < X.size:  # k-means has rows that are not centred, and sees fewer of their digits
            factor = points.any(axis=0) / np.maximum(X.std(axis=0), 1e-12)
            centres = place_anchors(sp.csr_array(X * factor), m, seed) - X.mean(axis=0) * factor
        width = parameters.get("lambda_", np.sqrt(2.0 * points.any(axis=0).sum()))
        gamma = beta * mean_degree(points, parameters.get("n_neighbors", 5), width**2)
    bound = parameters.get("gram_cap", 4096) < d
    ours = ("beta", "n_neighbors", "lambda_", "n_anchors", "gram_cap", "random_state", "steps_per_pass")
    given = {"weight_steps": 1 if bound else 5, "bound": bound} | without(parameters, *ours)
    return mfsir_anchors.mfsir(X, Y, centres, gamma, **given)


def expected_of_access_mfs(X, Y, *, sparse, **parameters):
    n, seed = len(X), parameters.get("random_state", 0)
    m = min(n, max(8, min(parameters.get("n_anchors", 300), n // 4)))
    return access_mfs_anchors.access_mfs(
        X,
        Y,
        lambda points: place_anchors(points, m, seed),
        scale=parameters.get("standardise", True),
        **without(parameters, "n_anchors", "random_state", "standardise", "steps_per_pass", "stop"),
    )


def masses(X, *, n_trees, max_samples, n_anchors, random_state=0):
    """Of all rows with the landmarks that the selector draws, by its forest; n is at most 256."""
    rng, grow = forest_seeds(random_state)
    prepared = to_float32(X, *float32_scaling(X))
    prepared = prepared[:, forest_columns(prepared)]
    trees = grow_trees(prepared, n_trees, max_samples, grow)
    n = X.shape[0]
    landmarks = np.sort(rng.choice(n, size=min(n, max(8, min(n_anchors, n // 4))), replace=False))
    return smfs_anchors.landmark_masses(trees, prepared, landmarks)


def expected_of_smfs(X, Y, *, sparse, **parameters):
    structure, forest = parameters.get("structure", "density"), ("n_trees", "max_samples", "n_anchors", "random_state")
    if structure == "density":
        drawn = {name: parameters[name] for name in forest if name in parameters}
        graph = (masses(sp.csr_array(X) if sparse else X, **drawn),)
    else:
        points = standardise(X)
        graph = (None, row_weights(points, place_anchors(points, 15, 0), 5, structure == "reconstruction"))
    scale, inner = parameters.get("standardise", True), parameters.get("inner_iterations")
    ours = without(parameters, *forest, "structure", "gram_cap", "standardise", "inner_iterations", "steps_per_pass")
    return smfs_anchors.smfs(X, Y, *graph, scale=scale, inner=inner, **ours)


def expected(method, X, Y, *, sparse=False, **parameters):
    """The twin's scores and others, next to last the objective, then the variables, with the selector's anchors."""
    twins = {"mfsir": expected_of_mfsir, "access-mfs": expected_of_access_mfs, "smfs": expected_of_smfs}
    return twins[method](X, Y, sparse=sparse, **QUICK[method] | parameters)


def check(found, wanted, rel=1e-9, abs=1e-10):
    scores, *_, objective, _ = wanted
    assert found.report_.objective == pytest.approx(objective, rel=rel, abs=abs * objective[0])
    assert found.scores_ == pytest.approx(scores, rel=rel, abs=abs * scores.max(initial=1e-300))


TWINS = {
    "mfsir": {
        "many iterations": {"tol": 0.0, "max_iter": 40},
        "one step": {"weight_steps": 1, "label_steps": 1, "max_iter": 12},
        "no graph": {"beta": 0},
        "small beta": {"beta": 1e-3},
        "large beta": {"beta": 30.0},
        "no labels": {"alpha": 0, "max_iter": 15},
        "large alpha": {"alpha": 100.0},
        "one latent label": {"n_latent": 1},
        "all latent labels": {"n_latent": 4},
        "nearest anchor": {"anchor_neighbors": 1},
        "more neighbours than anchors": {"anchor_neighbors": 50},
        "few anchors": {"n_anchors": 9},
        "kernel": {"n_neighbors": 2, "lambda_": 2.0},
        "no gram": {"gram_cap": 0},
        "no gram, more steps": {"gram_cap": 8, "weight_steps": 3},
        "seed": {"random_state": 7},
    },
    "access-mfs": {
        "no graph of rows": {"theta": 0.0},
        "no graph of labels": {"mu": 0.0},
        "no graphs": {"theta": 0.0, "mu": 0.0},
        "large theta and mu": {"theta": 20.0, "mu": 20.0},
        "very large mu": {"mu": 100.0},
        "no sparsity": {"lambda_": 0.0},
        "large lambda": {"lambda_": 100.0},
        "nearest anchor": {"anchor_neighbors": 1},
        "more neighbours than anchors": {"anchor_neighbors": 50},
        "few anchors": {"n_anchors": 9},
        "nearest label": {"k_p": 1},
        "D to its end": {"inner_iterations": 20},
        "not scaled": {"standardise": False},
        "seed": {"random_state": 7},
    },
    "smfs": {
        "ten iterations": {"tol": 0.0, "max_iter": 10},
        "own alpha and beta": {"alpha": 0.3, "beta": 0.5, "inner_iterations": 1},
        "no graph": {"alpha": 0.0},
        "large alpha": {"alpha": 100.0},
        "not sparse": {"beta": 0.0},
        "nearest landmark": {"anchor_neighbors": 1},
        "more neighbours than landmarks": {"anchor_neighbors": 50},
        "few landmarks": {"n_anchors": 8},
        "not scaled": {"standardise": False},
        "seed": {"random_state": 7},
        "distance": {"structure": "distance"},
        "reconstruction": {"structure": "reconstruction"},
    },
}
SOME = ("rows", "entries", "rows and entries")
CASES = [
    *(
        (method, name, "nothing" if method == "mfsir" else "rows and entries")
        for method in METHODS
        for name in TWINS[method]
    ),
    ("mfsir", "defaults", "nothing"),
    *((method, name, by) for method in METHODS[1:] for name in ("defaults", "zeros") for by in ("nothing", *SOME)),
]


@pytest.mark.parametrize(("method", "name", "by"), CASES)
def test_equals_the_plain_twin(method, name, by):
    X, Y = problem(3)
    Y = hide(Y, by)
    parameters = {"defaults": {}, "zeros": {"unknown_labels": "zeros"}, **TWINS[method]}[name]
    found = quiet(anchored(method, **parameters), X, Y)
    check(found, expected(method, X, Y, **parameters))
    assert found.report_.extra["gram"] is ("gram_cap" not in parameters)


#: Method, what is unknown, parameters.
FORMS = {
    "mfsir": ("mfsir", "nothing", {"tol": 0.0}),
    "mfsir without X'X": ("mfsir", "nothing", {"tol": 0.0, "gram_cap": 0}),
    "access-mfs of rows": ("access-mfs", "rows", {}),
    "access-mfs of entries": ("access-mfs", "rows and entries", {}),
    "smfs of rows": ("smfs", "rows", {"tol": 0.0}),
    "smfs of entries": ("smfs", "rows and entries", {"tol": 0.0}),
    "smfs of zeros": ("smfs", "nothing", {"tol": 0.0, "unknown_labels": "zeros"}),
}
forms = pytest.mark.parametrize("form", FORMS)


def moved(X, columns, by):
    X = X.copy()
    X[:, columns] += by
    return X


def filled(A, places, value):
    A = A.copy()
    A[places] = value
    return A


HARD = {
    "nine rows": lambda X, Y: (X[:9], Y[:9]),
    "one label": lambda X, Y: (X, Y[:, :1]),
    "one feature": lambda X, Y: (X[:, :1], Y),
    "constant features": lambda X, Y: (filled(X, np.s_[:, [2, 5]], 0.1), Y),
    "never positive": lambda X, Y: (X, np.minimum(Y, [1, 0, 1, 1])),
    "equal labels": lambda X, Y: (X, Y[:, [0, 1, 0, 2, 1, 0]]),
    "far from zero": lambda X, Y: (moved(X, 3, 1e8), Y),
    "rather far from zero": lambda X, Y: (moved(X, 3, 1e4), Y),
    "few different rows": lambda X, Y: (X[np.arange(len(X)) % 12], Y),
    "rows of zeros": lambda X, Y: (filled(X, np.s_[20:60], 0.0), Y),
}
FAR = ("far from zero", "rather far from zero")


@pytest.mark.parametrize(("change", "sparse"), [*((change, False) for change in HARD), *((each, True) for each in FAR)])
@forms
def test_hard_data_gives_what_the_twin_gives(form, change, sparse):
    method, by, parameters = FORMS[form]
    X, Y = problem()
    X, Y = HARD[change](X, hide(Y, by))
    parameters = parameters | {"max_iter": 4}
    selector = anchored(method, **parameters)
    source = ArrayRows(as_matrix(sp.csr_array(X) if sparse else X), as_labels(Y), block_bytes=1000)
    if change == "far from zero" and sparse:
        with pytest.raises(DataError, match="standard deviations from zero, too far") as caught:
            quiet(selector, source)
        assert caught.value.column == 3
        return
    found = quiet(selector, source)
    # 8 digits are left beside a mean of 1e8, and beside the square of 1e4.
    near = (1e-6, 1e-6) if change == "far from zero" or (change in FAR and sparse) else ()
    check(found, expected(method, X, Y, sparse=sparse, **parameters), *near)
    json.dumps(found.report_.to_dict(), allow_nan=False)
    if change == "constant features":
        assert found.scores_[[2, 5, 8]].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("theta", [0.0, 1.0])
def test_of_every_row_one_label_may_be_known(theta):
    X, Y = problem(5, n=150, d=12, q=5)
    known = np.argsort(np.random.default_rng(0).random(Y.shape), axis=1) == 0
    hidden = np.where(known, Y, np.int8(-1))
    check(quiet(anchored("access-mfs", theta=theta), X, hidden), expected("access-mfs", X, hidden, theta=theta))
    assert AccessMFS(3, graph="anchors", theta=theta).fit(X, hidden).report_.converged


@pytest.mark.parametrize("share", [0.1, 0.7])
@pytest.mark.parametrize("method", [*METHODS, "laplacian"])
def test_rows_that_lie_equally_far_do_not_make_scores_depend_on_container_or_partitions(method, share):
    """Of 0/1 features many rows lie equally far from two anchors."""
    rng = np.random.default_rng(1)
    X = (rng.random((600, 30)) < share).astype(float)
    Y = hide((X @ rng.normal(size=(30, 5)) > 0.5).astype(np.int8), "nothing" if method == "mfsir" else "rows")
    expected, *others = (
        quiet(get_estimator(method)(5, graph="anchors"), rows, Y).scores_
        for rows in (X, sp.csr_array(X), da.from_array(X, chunks=(170, 30)))
    )
    for scores in others:
        assert scores == pytest.approx(expected, rel=1e-9, abs=1e-10 * expected.max())


def test_partitions_do_not_matter_however_many_iterations():
    """Many anchors draw together, so that there are many whose distances single precision cannot tell apart."""
    rng = np.random.default_rng(3)
    n, d, q = 3000, 40, 6
    X = (rng.random((n, d)) < rng.uniform(0.05, 0.4, d)).astype(float)
    Z = X @ (rng.normal(size=(d, q)) * (rng.random((d, 1)) < 0.4))
    Y = np.where(rng.random((n, 1)) < 0.3, np.quantile(Z, 0.7, axis=0) < Z, np.int8(-1))
    plain = {"graph": "anchors", "steps_per_pass": 1, "stop": "objective"}
    found = AccessMFS(5, **plain).fit(X, Y)
    assert found.n_iter_ > 20
    parted = AccessMFS(5, **plain).fit(da.from_array(X, chunks=(700, -1)), Y)
    assert parted.report_.objective == pytest.approx(found.report_.objective, rel=1e-10)
    assert parted.scores_ == pytest.approx(found.scores_, rel=1e-9, abs=1e-10 * found.scores_.max())


# ---------------------------------------------------------------- descent


@settings(max_examples=40)
@given(st.data())
def test_the_objective_never_rises(data):
    method = data.draw(st.sampled_from(["mfsir", "smfs"]))
    X, Y = problem(data.draw(st.integers(0, 10**6)), n=data.draw(st.integers(8, 90)), q=data.draw(st.integers(1, 6)))
    X *= data.draw(st.sampled_from([1e-6, 1.0, 1e6]))
    choices = {"gram_cap": st.sampled_from([0, 4096]), "anchor_neighbors": st.integers(1, 6)}
    if method == "mfsir":
        weight = st.sampled_from([0, 1e-2, 1, 1e3])
        choices |= {"alpha": weight, "beta": weight, "n_neighbors": st.integers(1, 9)}
        choices |= dict.fromkeys(["weight_steps", "label_steps"], st.integers(1, 4))
        choices["n_latent"] = st.integers(1, Y.shape[1])
    else:
        Y = hide(Y, data.draw(st.sampled_from(["nothing", *SOME])))
        Y[0, 0] = 1
        choices |= {"alpha": st.sampled_from([None, 0.0, 1e-2, 10.0]), "beta": st.sampled_from([None, 1e-3, 1.0])}
        choices["structure"] = st.sampled_from(["density", "distance", "reconstruction"])
        choices["unknown_labels"] = st.sampled_from(["auto", "zeros"])
    found = quiet(anchored(method, tol=0.0, max_iter=15, **data.draw(st.fixed_dictionaries(choices))), X, Y)
    objective = np.array(found.report_.objective)
    assert len(objective) >= 2
    assert (np.diff(objective) <= 1e-9 * objective[:-1] + 1e-12 * Y.size).all()
    assert np.isfinite(found.scores_).all()


@pytest.mark.parametrize("by", SOME)
def test_the_objective_of_access_mfs_falls_but_for_a_little_and_settles(by):
    """Weights are chosen anew in every iteration for exactly as many neighbours, which Eq. 8 does not ask for."""
    for seed in range(3):
        X, Y = problem(seed, n=300)
        report = AccessMFS(3, graph="anchors").fit(X, hide(Y, by)).report_
        objective = np.array(report.objective)
        assert report.converged
        assert objective[-1] < objective[0]
        assert (np.diff(objective) <= 0.01 * objective[:-1]).all()


# ---------------------------------------------------------------- the exact forms, their graph being ZΛ⁻¹Z'


@pytest.mark.parametrize(("alpha", "gamma"), [(1.0, 5.0), (0.1, 0.3), (30.0, 50.0)])
def test_anchors_of_mfsir_are_the_exact_form_with_their_graph(alpha, gamma):
    """At the best U the objectives are equal, and rows and U in turns end at the exact minimiser over V."""
    X, Y = problem(1)
    _, _, (W, _, B, _, Z) = expected("mfsir", X, Y, max_iter=6, tol=0.0)
    X, Y = standardise(X), Y.astype(float)
    S = Z @ np.diag(1 / Z.sum(axis=0)) @ Z.T
    assert S.sum(axis=1) == pytest.approx(np.ones(len(X)))
    L = np.eye(len(X)) - S
    V = np.abs(np.random.default_rng(0).normal(size=(len(X), len(B))))
    exact = exact_mfsir.objective(X, Y, L, W, np.ones_like(W), V, B, alpha, gamma)
    assert mfsir_anchors.objective(Z, X, Y, W, V, B, means_of_rows(Z, V), alpha, gamma) == pytest.approx(
        exact, rel=1e-12
    )

    # Exactly: non-negative least squares in all of V, vec(V)'(I ⊗ (I + αBB') + γ L ⊗ I) vec(V) − 2 r'vec(V).
    Q = np.eye(len(B)) + alpha * B @ B.T
    system = np.kron(np.eye(len(X)), Q) + gamma * np.kron(L, np.eye(len(B)))
    r = (X @ W + alpha * Y @ B.T).ravel()
    root = np.linalg.cholesky(system).T
    best = optimize.nnls(root, np.linalg.solve(root.T, r), maxiter=10_000)[0].reshape(V.shape)
    U = means_of_rows(Z, V)
    for _ in range(3000):
        right = X @ W + alpha * Y @ B.T + gamma * Z @ U
        V = right @ np.linalg.inv(Q + gamma * np.eye(len(B)))
        np.maximum(V, 0.0, out=V)
        sweep_nonnegative(V, right, Q + gamma * np.eye(len(B)), 50)
        U, before = means_of_rows(Z, V), U
        if np.abs(U - before).max() < 1e-13:
            break
    assert pytest.approx(best, abs=1e-8) == V


@pytest.mark.parametrize("by", ["rows", "entries"])
@pytest.mark.parametrize(("theta", "mu"), [(1.0, 1.0), (5.0, 0.1)])
def test_anchors_of_access_mfs_are_the_exact_form_with_their_graph(by, theta, mu):
    """At the best U and T the smoothness is the same, and rows, b and U at rest are the exact F for W and S."""
    X, Y = problem(1)
    Y = hide(Y, by)
    _, _, _, (W, b, U, _, Z) = expected("access-mfs", X, Y, max_iter=4)
    X = exact_access_mfs.standardise(X)
    known, positive = Y >= 0, (Y == 1).astype(float)
    used = Z.sum(axis=0) > 0
    Z, U = Z[:, used], U[used]
    L_s = np.eye(len(X)) - Z @ np.diag(1 / Z.sum(axis=0)) @ Z.T
    assert L_s.sum(axis=1) == pytest.approx(np.zeros(len(X)), abs=1e-12)
    for V in (X @ W, positive):
        assert spread(Z, V, means_of_rows(Z, V)) == pytest.approx(np.trace(V.T @ L_s @ V), rel=1e-10)

    coupling = access_mfs_anchors.label_graph(positive, 5, mu)
    exact = exact_access_mfs.update_F(X, W, positive, known.astype(float), L_s, coupling / mu, theta, mu)
    systems = [(1 + theta) * np.eye(4) + np.diag(row) + coupling for row in known]
    for _ in range(3000):
        right = X @ W + b + positive + theta * Z @ U
        F = np.array([np.linalg.solve(system, row) for system, row in zip(systems, right, strict=True)])
        before, b, U = b, F.mean(axis=0), means_of_rows(Z, F)
        if np.abs(b - before).max() < 1e-14:
            break
    assert pytest.approx(exact, abs=1e-9) == F


@pytest.mark.parametrize("by", ["nothing", "rows"])
def test_both_graphs_of_smfs_choose_the_same_where_labelled_rows_are_known_in_all_labels(by):
    """The structure has no part in P then, nor in when the loop stops, whatever its weight."""
    X, Y = problem(4)
    Y = hide(Y, by)
    Y[0] = [1, 0, 0, 0]
    exact = quiet(SMFS(1, graph="exact", unknown_labels="coded", inner_iterations=1), X, Y)
    for alpha in (0.0, None, 100.0):
        found = quiet(anchored("smfs", alpha=alpha, unknown_labels="coded", inner_iterations=1), X, Y)
        assert found.report_.iterations == exact.report_.iterations
        assert found.scores_ == pytest.approx(exact.scores_, rel=1e-9, abs=1e-10)


# ---------------------------------------------------------------- readings


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize(
    ("form", "more"), [("mfsir", 2), ("access-mfs of entries", 1), ("smfs of entries", 3), ("smfs of zeros", 3)]
)
def test_an_iteration_is_one_reading(form, more, partitions):
    method, by, parameters = FORMS[form]
    X, Y = problem()
    source = ArrayRows(as_matrix(X), as_labels(hide(Y, by)), block_bytes=X.nbytes // partitions)
    read = []
    real = source.stream
    source.stream = lambda first, last: read.append((first, last)) or real(first, last)
    selector = anchored(method, **parameters | {"max_iter": 4})
    with runtime.process_limits(threads=1):
        report = quiet(selector, source).report_
    assert report.iterations == 4
    assert report.passes == len(read) == selector.plan(source, HERE).passes == 4 + more
    assert set(read) == {(0, partitions)}


def test_where_labelled_rows_are_known_whole_smfs_reads_three_times():
    X, Y = problem()
    report = quiet(anchored("smfs", tol=0.0, max_iter=4), X, hide(Y, "rows")).report_
    assert (report.iterations, report.passes) == (4, 3)


@pytest.mark.parametrize(
    ("form", "each", "cap"),
    [
        ("mfsir", 1, 0),
        ("access-mfs of entries", 1, 0),
        ("smfs of entries", 2, 5),  # X'SX of features that join the set
        ("smfs of entries", 7, 0),  # conjugate gradients on all features
    ],
)
def test_readings_without_the_gram_matrix_are_within_the_plan(form, each, cap):
    method, by, parameters = FORMS[form]
    X, Y = problem()
    source = ArrayRows(as_matrix(X), as_labels(hide(Y, by)), block_bytes=3000)
    passes = []
    for count in (3, 6, 7):
        selector = anchored(method, **parameters | {"gram_cap": cap, "max_iter": count})
        report = quiet(selector, source).report_
        assert report.iterations == count
        assert report.passes <= selector.plan(source, HERE).passes
        passes.append(report.passes)
    assert passes[1] - passes[0] <= 3 * each
    assert 1 <= passes[2] - passes[1] <= each


@pytest.mark.parametrize("graph", ["exact", "anchors"])
@pytest.mark.parametrize(("gram_cap", "typical"), [(4096, (2, 23)), (4, (4, 45))])
def test_what_is_typical_of_smfs_depends_on_the_gram_cap(graph, gram_cap, typical):
    X, Y = problem()
    events = []
    with runtime.progress_to(events.append):
        report = SMFS(3, graph=graph, gram_cap=gram_cap, n_trees=12).fit(X, hide(Y, "rows and entries")).report_
    (begun,) = [event for event in events if event["kind"] == "fit"]
    assert begun["typical_iterations"] == typical
    if graph == "anchors":
        few, many = report.plan["typical_passes"]
        assert few <= report.passes <= many
        assert f"{typical[0]} to {typical[1]} iterations" in report.plan["notes"][0]


# ---------------------------------------------------------------- memory


def profile_of(n, *, sparse=False):
    """200 features, 20 labels, a million rows in partitions of 16 MB, or of 1.6 MB where X is sparse."""
    stored = 10 if sparse else 200
    row_bytes = stored * (8 if sparse else 4)
    million = Profile(
        n=10**6,
        d=200,
        q=20,
        sparse=sparse,
        dtype=np.dtype(np.float32),
        nonzeros=stored * 10**6,
        label_nonzeros=3 * 10**6,
        partitions=50,
        block_rows=20_000,
        block_bytes=20_000 * row_bytes,
        buffer_bytes=20_000 * row_bytes,
        read_bytes=row_bytes * 10**6,
    )
    return larger(million, n)


@pytest.mark.parametrize("client", [None, object()], ids=["here", "cluster"])
@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("sparse", [False, True])
@methods
def test_memory_does_not_depend_on_the_number_of_rows(method, sparse, gram_cap, client, monkeypatch):
    monkeypatch.setattr(runtime, "driver_bytes", lambda: 200 * 2**20)
    resources = Resources(2, 1, 2**30, 2**40, client)

    def planned(n):
        """What the statistics hold, what the driver holds, and the peaks of driver and worker."""
        profile, selector = profile_of(n, sparse=sparse), get_estimator(method)(20, graph="anchors", gram_cap=gram_cap)
        cost, plan = selector.make_question().method_cost(profile, resources), selector.plan(profile, resources)
        held = [s for step in cost.steps if isinstance(step, Reading) for s in step.statistics]
        sizes = [(type(s).__name__, s.state_bytes, s.parameter_bytes, s.result_bytes) for s in held]
        scratch = [s.scratch_bytes(profile) for s in held]
        return (sizes, cost.most_held), (scratch, plan.peak_driver_bytes), plan.peak_worker_bytes

    # Masses summed over 100 trees need 64 bits from 43 million rows on; fewer rows do without compiled kernels.
    few, more, many, most = (planned(n) for n in (10**5, 10**7, 10**8 if method == "smfs" else 10**9, 10**9))
    assert few[0] == more[0]
    assert many[0] == most[0] == planned(10**10)[0]
    if method != "smfs":
        assert more[0] == many[0]
    # On a cluster more rows are read in more tasks, and merged in more rounds, until there are 4096 tasks.
    before = many if method == "smfs" else more
    assert before[1] == most[1]
    assert before[2] <= most[2] <= (1.0 if client is None else 1.25) * before[2]
    assert planned(10**10) == planned(10**11)


@methods
def test_a_thousand_million_rows_fit_a_small_driver(method, monkeypatch):
    monkeypatch.setattr(runtime, "driver_bytes", lambda: 200 * 2**20)
    resources, selector = Resources(2, 1, 2**30, 2**40, object()), get_estimator(method)(20, graph="anchors")
    driver = selector.plan(profile_of(10**9), resources).peak_driver_bytes
    cost = selector.make_question().method_cost(profile_of(10**9), resources)
    # SMFS: tables of 100 trees, 256 leaves and 300 landmarks, of which the way to the workers takes 4 copies.
    assert driver - 5 * 8 * cost.sizes.get("masses", 0) <= 600 * 2**20
    assert driver <= 800 * 2**20


def test_placing_anchors_holds_what_was_planned():
    n, d = 3000, 400
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    selector, scaling = MFSIR(2, graph="anchors"), Scaling(np.zeros(d), np.ones(d))
    planned = selector.plan(as_rows(X, X[:, :2] > 0), HERE).arrays
    place, labels = selector.make_question().method._place_anchors, sp.csr_array((n, 2))
    profile = as_rows(X, X[:, :2] > 0).profile
    place(SampledRows(X[:300], labels[:300]), AnchorGraph(profile, 50, 5, 0), scaling)  # libraries are loaded
    tracemalloc.start()
    place(SampledRows(X.copy(), labels), AnchorGraph(profile, selector.n_anchors, 5, 0), scaling)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = planned["sample"] + 5 / 6 * planned["6 d m"]  # k-means, and the anchors; Z'X comes later
    assert 0.8 * held < peak < 1.05 * held


@methods
def test_above_the_gram_cap_nothing_has_a_byte_for_each_pair_of_features(method):
    n, d, q = 200, 5_000, 3
    rng = np.random.default_rng(0)
    X = sp.random_array((n, d), density=0.01, rng=rng, format="csr")
    Y = (rng.random((n, q)) < 0.3).astype(int)
    Y = Y if method == "mfsir" else hide(Y, "rows")
    selector = get_estimator(method)(10, gram_cap=500, max_iter=4, **({"n_trees": 20} if method == "smfs" else {}))
    quiet(get_estimator(method)(1, max_iter=1), X[:, :20], Y)  # loads what has to be loaded
    tracemalloc.start()
    quiet(selector, X, Y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert selector.report_.extra["gram"] is False
    assert peak < d * d


def test_what_the_driver_of_a_cluster_compiles_is_in_its_plan():
    """access-mfs predicts labels of the sample there, mfsir searches it where it is sparse and large."""
    resources = Resources(2, 1, 2**30, 2**33, client=object())
    dense, sparse = (profile_of(10**6, sparse=sparse) for sparse in (False, True))
    for method, profile, parameters, compiled in (
        ("access-mfs", dense, {}, True),
        ("access-mfs", dense, {"theta": 0.0}, False),
        ("mfsir", dense, {}, False),
        ("mfsir", sparse, {}, True),
    ):
        selector = get_estimator(method)(5, graph="anchors", **parameters)
        assert selector.make_question().method_cost(profile, resources).compiled == compiled


# ---------------------------------------------------------------- workers


@pytest.fixture(scope="module")
def workers(two_workers):
    with connect(scheduler_file=two_workers, min_workers=2) as client:
        yield client


def dataset_of(by, folder):
    X, Y = problem()
    path = folder / "data.zarr"
    make_store(path, X, hide(Y, by), names=False, partition_bytes=1500, storage="dense", dtype="float64")
    return mlfs_dask.open_dataset(path)


@pytest.mark.cluster
@pytest.mark.parametrize("form", ["mfsir", "access-mfs of entries", "smfs of entries"])
def test_an_interrupted_fit_goes_on_with_workers_to_what_the_twin_gives(form, workers, tmp_path):
    method, by, parameters = FORMS[form]
    dataset, folder, parameters = (
        dataset_of(by, tmp_path),
        Folder(str(tmp_path / "states")),
        parameters | {"max_iter": 4},
    )

    def stop(event):
        if event["kind"] == "step" and event["number"] == 3:
            raise KeyboardInterrupt

    with keep_checkpoints(folder, every=0), runtime.progress_to(stop), pytest.raises(KeyboardInterrupt):
        quiet(anchored(method, **parameters), dataset)
    events = []
    with keep_checkpoints(folder, every=0, resume=True), runtime.progress_to(events.append):
        found = quiet(anchored(method, 5, **parameters), dataset)
    assert next(event["number"] for event in events if event["kind"] == "step") == 3
    X, Y = problem()
    check(found, expected(method, X, hide(Y, by), **parameters))


@pytest.mark.cluster
@pytest.mark.usefixtures("workers")
@methods
def test_workers_have_no_part_in_the_exact_graph(method, tmp_path):
    report = quiet(get_estimator(method)(2, graph="exact", max_iter=1), dataset_of("nothing", tmp_path)).report_
    assert report.peak_worker_bytes == 0 < report.peak_driver_bytes


# ---------------------------------------------------------------- which form


@pytest.mark.parametrize("method", [*METHODS, "laplacian"])
def test_auto_takes_anchors_beyond_20_000_rows(method, monkeypatch):
    for n, exact in ((20_000, True), (20_001, False)):
        notes = get_estimator(method)(5).plan(profile_of(n), Resources(1, 1, 2**33, 2**40)).notes
        assert any("exact graph" in note for note in notes) is exact
        assert any("anchors" in note or "landmarks" in note for note in notes if "exact graph" not in note) is not exact
    monkeypatch.setattr(in_memory, "EXACT_ROWS", 79)
    X, Y = problem()
    given = {} if method == "laplacian" else {"max_iter": 3, "tol": 0.0}
    found, exact = (quiet(get_estimator(method)(1, graph=graph, **given), X, Y) for graph in ("auto", "exact"))
    assert found.report_.extra["graph"]["kind"] == "anchors"
    assert exact.report_.extra["graph"]["kind"] == "exact"
    anchors = quiet(get_estimator(method)(1, graph="anchors", **given), X, Y)
    assert found.scores_.tolist() == anchors.scores_.tolist()


@pytest.mark.parametrize("method", [*METHODS, "laplacian"])
def test_an_exact_graph_beyond_memory_is_refused(method):
    profile, resources = profile_of(10**7), Resources(1, 1, 2**33, 2**33)
    with pytest.raises(DoesNotFitError, match=r"cure: take graph='anchors', which holds nothing that grows with"):
        get_estimator(method)(5, graph="exact").plan(profile, resources)
    assert get_estimator(method)(5, graph="anchors").plan(profile, resources).passes >= 2


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [("mfsir", "step", "fixed"), ("access-mfs", "variant", "published_code"), ("smfs", "consistency", "none")],
)
def test_published_forms_have_the_exact_graph_alone(method, name, value):
    message = f"{name}='{value}' is a published form, which has the exact graph: give"
    with pytest.raises(UsageError, match=message):
        get_estimator(method)(2, graph="anchors", **{name: value}).fit(*problem())
    selector = get_estimator(method)(2, **{name: value})
    assert "exact graph" in selector.plan(profile_of(30_000), Resources(1, 1, 2**33, 2**40)).notes[0]
    assert "anchors" not in selector.plan(profile_of(10**4), HERE).notes[0]
    with pytest.raises(DoesNotFitError, match=f"cure: leave out {name}='{value}', which has the exact graph alone"):
        selector.plan(profile_of(10**7), HERE)


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize("graph", ["exact", "anchors"])
@pytest.mark.parametrize("method", METHODS[1:])
def test_zeros_may_stand_for_unknown_rows(method, graph):
    X, Y = problem(3)
    Y[(Y == 0).all(axis=1), 0] = 1
    if method == "smfs":  # which then knows positive labels alone
        selector, rows = anchored(method, graph=graph, unknown_labels="zeros"), np.where(Y == 0, -1, Y)
    else:
        selector, rows = anchored(method, graph=graph), hide(Y, "rows")
    coded = quiet(selector, X, rows).scores_.tolist()
    for labels in (np.maximum(rows, 0), rows):
        assert quiet(selector.set_params(unknown_labels="zeros"), X, labels).scores_.tolist() == coded


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_labels_without_a_positive_one_are_told(graph):
    X, Y = problem()
    with pytest.warns(UserWarning, match="SMFS cannot rank the features: no row has a known positive label"):
        assert not anchored("smfs", graph=graph).fit(X, np.where(Y == 1, -1, 0)).scores_.any()
    for method in ("smfs", "access-mfs"):
        with pytest.raises(DataError, match=r"no row of Y has a positive label\n  cure: give labels 1 and 0"):
            anchored(method, graph=graph, unknown_labels="zeros").fit(X, np.zeros_like(Y))


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_the_seed_settles_the_forest(graph):
    X, Y = problem()
    one, again, other, first, zero = (
        anchored("smfs", graph=graph, random_state=seed).fit(X, Y).scores_.tolist() for seed in (1, 1, 2, None, 0)
    )
    assert one == again != other
    assert first == zero
