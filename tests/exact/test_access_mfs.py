"""Exact Access-MFS: against its plain twin, known figures, the authors' program, limit cases, checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.errors import DataError
from mlfs_dask.exact import access_mfs
from tests.conftest import data_folder
from tests.exact.fits import fit_access, interrupted_and_resumed
from tests.problems import real_data
from tests.problems import semi_supervised_problem as problem
from tests.reference import access_mfs as twin


def assert_equals_twin(X, Y, *, gram_cap=4096, solver_tol=1e-7, max_iter=25, container=np.asarray, **parameters):
    """Objective after every iteration to 1e-8, scores and predicted labels to 1e-6."""
    parameters["max_iter"] = max_iter
    found = fit_access(container(X), Y, gram_cap=gram_cap, solver_tol=solver_tol, **parameters)
    expected, F, objective, penalty = twin.access_mfs(X, Y, **parameters)
    assert found.trace.objective == pytest.approx(objective, rel=1e-8)
    assert found.trace.values["graph_penalty"] == pytest.approx(penalty, rel=1e-5, abs=1e-9)
    assert found.scores == pytest.approx(expected, abs=1e-6 * expected.max())
    assert found.labels == pytest.approx(F, abs=1e-6)
    assert max(found.trace.values["solver_residual"]) <= access_mfs.WEIGHT_TOL * solver_tol
    return found


def thinned(X, Y):
    """30 % of rows labelled: those with rng(0).random(n) < 0.3."""
    Y = Y.copy()
    Y[np.random.default_rng(0).random(len(Y)) >= 0.3] = -1
    return X, Y


@pytest.fixture(scope="module")
def emotions():
    return thinned(*real_data("emotions"))


# ---------------------------------------------------------------- the plain twin


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("unknown", ["rows", "entries", "none"])
def test_equals_the_plain_twin(unknown, gram_cap, container):
    found = assert_equals_twin(*problem(unknown=unknown), gram_cap=gram_cap, container=container)
    assert found.extra["gram"] is (gram_cap > 0)


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize(
    "parameters",
    [
        {"lambda_": 10.0, "theta": 0.1, "mu": 0.01},
        {"lambda_": 0.01, "theta": 3.0, "mu": 5.0},
        {"k_s": 2, "k_p": 1},
        {"k_s": 15, "k_p": 2},
        {"inner_iterations": 4},
        {"tol": 1e-3},
        {"tol": 1e-9, "solver_tol": 1e-10},
    ],
    ids=str,
)
def test_parameters_reach_the_loop(parameters, gram_cap):
    X, Y = problem(5)
    expected = {name: value for name, value in parameters.items() if name != "solver_tol"}
    found = fit_access(X, Y, gram_cap=gram_cap, **parameters)
    scores, _, objective, _ = twin.access_mfs(X, Y, **expected)
    assert found.trace.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores == pytest.approx(scores, abs=1e-6 * scores.max())


def test_the_seed_draws_the_first_graph_only():
    X, Y = problem(1)
    zero, one, none = (fit_access(X, Y, random_state=seed) for seed in (0, 1, None))
    assert zero.scores == pytest.approx(twin.access_mfs(X, Y, seed=0)[0], abs=1e-7)
    assert one.scores == pytest.approx(twin.access_mfs(X, Y, seed=1)[0], abs=1e-7)
    assert one.trace.objective[0] != zero.trace.objective[0]
    assert none.scores.tolist() == zero.scores.tolist()


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize(("n", "d"), [(120, 60), (60, 90)])
def test_many_features(n, d, gram_cap):
    assert_equals_twin(*problem(3, n=n, d=d, q=3), gram_cap=gram_cap, max_iter=12)


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_equals_the_plain_twin_on_real_data(emotions, gram_cap):
    assert_equals_twin(*emotions, gram_cap=gram_cap, max_iter=4)


def test_the_known_objective_of_real_data(emotions):
    # Known to all these digits from dense algebra: λ = θ = μ = 1, k_s = k_p = 5, standardised, 30 % of rows labelled.
    found = fit_access(*emotions, inner_iterations=7)
    assert found.trace.objective[-1] == pytest.approx(128.122690, abs=1e-6)
    found = fit_access(*thinned(*real_data("yeast")), inner_iterations=7)
    assert found.trace.objective[-1] == pytest.approx(1147.09937, abs=1e-5)
    assert found.trace.converged
    assert np.diff(found.trace.objective).max() < 1e-3 * found.trace.objective[-1]


def test_order_of_rows_does_not_matter():
    X, Y = problem(2)
    order = np.random.default_rng(0).permutation(len(X))
    found, turned = (fit_access(x, y, max_iter=15) for x, y in ((X, Y), (X[order], Y[order])))
    assert turned.scores == pytest.approx(found.scores, abs=1e-6)
    assert turned.labels == pytest.approx(found.labels[order], abs=1e-6)


def test_scale_matters_only_without_standardising_and_place_never():
    X, Y = problem(2)
    moved = X * np.geomspace(1e-3, 1e3, X.shape[1]) + np.geomspace(1, 1e4, X.shape[1])
    found = fit_access(X, Y, max_iter=10).scores
    assert fit_access(moved, Y, max_iter=10).scores == pytest.approx(found, abs=1e-6)
    plain = {"standardise": False, "max_iter": 10}
    assert fit_access(twin.standardise(X) + 3.0, Y, **plain).scores == pytest.approx(found, abs=1e-6)
    assert fit_access(2 * twin.standardise(X), Y, **plain).scores != pytest.approx(found, abs=0.01)


def test_planted_features_are_found():
    rng = np.random.default_rng(3)
    Y = (rng.random((300, 5)) < 0.3).astype(np.int8)
    X = rng.normal(size=(300, 40))
    planted = [7, 19, 23, 32, 35]
    X[:, planted] += 2.5 * Y
    truth = Y.copy()
    Y[rng.random(300) < 0.7] = -1
    for gram_cap in (0, 4096):
        found = fit_access(X, Y, gram_cap=gram_cap)
        assert sorted(np.argsort(-found.scores)[:5].tolist()) == planted
        unknown = Y[:, 0] < 0
        assert np.corrcoef(found.labels[unknown].ravel(), truth[unknown].ravel())[0, 1] > 0.5


@pytest.mark.parametrize("run", range(4))
@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_published_code_gives_what_the_authors_program_gives(monkeypatch, run, gram_cap):
    X, Y = real_data("emotions")
    path = data_folder().parent / "oracles/AccessMFS/emotions.npz"
    if not path.exists():
        pytest.skip(f"published results not found: {path}")
    oracle = np.load(path)
    given = json.loads(str(oracle["meta"]))["parameters"][run]
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    Y[oracle["index_u"]] = 0
    monkeypatch.setattr(access_mfs, "first_weights", lambda d, q, seed, *, published: oracle[f"run{run}_W0"])
    found = fit_access(
        X,
        Y,
        variant="published_code",
        standardise=False,
        lambda_=given["lambda"],
        theta=given["theta"],
        mu=given["mu"],
        k_s=int(given["k_s"]),
        k_p=int(given["k_f"]),
        gram_cap=gram_cap,
        solver_tol=1e-9,
    )
    assert found.trace.iterations == oracle[f"run{run}_it"]
    assert found.trace.objective == pytest.approx(oracle[f"run{run}_obj"], abs=1e-8)
    assert found.labels == pytest.approx(oracle[f"run{run}_F"], abs=1e-6)
    assert found.scores**2 == pytest.approx(oracle[f"run{run}_score"], abs=1e-8)
    assert np.argsort(-found.scores, kind="stable").tolist() == oracle[f"run{run}_ranking"].tolist()


# ---------------------------------------------------------------- limit cases


def row_norms_of(W):
    return np.sqrt((W**2).sum(axis=1))


def test_without_graphs_it_is_plain_uncorrelated_regression():
    X, Y = problem(4, unknown="none")
    found = assert_equals_twin(X, Y, theta=0.0, mu=0.0, tol=0.0, max_iter=30)
    # The fixed point that the loop has come to: W of the labels, and F of W.
    Z = twin.standardise(X)
    D = 1 / (2 * np.sqrt(found.scores**2 + 1e-8))
    for _ in range(200):
        W = twin.update_W(Z, found.labels, np.zeros((len(Z), len(Z))), D, 1.0, 0.0)
        D = 1 / (2 * np.sqrt((W**2).sum(axis=1) + 1e-8))
    assert row_norms_of(W) == pytest.approx(found.scores, abs=1e-6)
    H = np.eye(len(Z)) - 1 / len(Z)
    assert found.labels == pytest.approx(np.linalg.solve(H + np.eye(len(Z)), Z @ W + Y), abs=1e-6)
    assert found.trace.values["graph_penalty"] == [0.0] * found.trace.iterations
    assert found.extra["graph"] is None


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_without_graphs_and_penalty_it_is_known_in_closed_form(gram_cap):
    X, Y = problem(4, unknown="none")
    X = X[:, :8]  # R = X'X is regular without a ridge where no feature is constant
    found = fit_access(X, Y, theta=0.0, mu=0.0, lambda_=0.0, tol=0.0, max_iter=60, gram_cap=gram_cap)
    Z, F = twin.standardise(X), found.labels
    M = Z.T @ F
    V = np.linalg.solve(Z.T @ Z, M)
    W = V @ twin.inverse_root(M.T @ V)
    assert found.scores == pytest.approx(row_norms_of(W), rel=1e-6)
    half = np.linalg.inv(2 * np.eye(70) - 1 / 70)  # (H + I)⁻¹
    assert pytest.approx(half @ (Z @ W + Y), abs=1e-6) == F


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("name", ["lambda_", "theta", "mu"])
def test_small_weights_tend_to_their_absence(name, gram_cap):
    X, Y = problem(6, n=90)
    fixed = {"max_iter": 6, "gram_cap": gram_cap, "solver_tol": 1e-9}
    without, *near = (fit_access(X[:, :8], Y, **{name: value}, **fixed) for value in (0.0, 1e-2, 1e-4, 1e-6))
    for part in ("scores", "labels"):
        distances = [np.abs(getattr(found, part) - getattr(without, part)).max() for found in near]
        assert distances[0] > distances[1] > distances[2]
        assert distances[2] < 1e-4


@pytest.mark.parametrize("parameters", [{"theta": 0.0}, {"mu": 0.0}, {"lambda_": 0.0}], ids=str)
def test_one_part_left_out(parameters):
    X, Y = problem(6)
    # Without the penalty nothing keeps R regular where a feature is constant, and the twin needs it regular.
    assert_equals_twin(X[:, :8] if "lambda_" in parameters else X, Y, **parameters)


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_without_penalty_features_may_repeat_or_be_constant(gram_cap):
    X, Y = problem(6)
    without = {
        "lambda_": 0.0,
        "theta": 0.0,
        "max_iter": 8,
    }  # no first graph, whose draws depend on d
    found = fit_access(np.hstack([X, X[:, :2]]), Y, gram_cap=gram_cap, **without)
    plain = fit_access(X[:, :8], Y, **without)
    assert found.trace.objective == pytest.approx(plain.trace.objective, rel=1e-7)
    assert found.labels == pytest.approx(plain.labels, abs=1e-6)
    assert found.scores[8] == 0
    assert found.scores[2:8] == pytest.approx(plain.scores[2:], abs=1e-6)


def test_one_row_labelled():
    X, Y = problem(1, unknown="none")
    Y[1:] = -1
    Y[0] = [1, 0, 1, 0]
    found = assert_equals_twin(X, Y, solver_tol=1e-9)
    assert found.extra["labelled_rows"] == 1
    assert found.trace.values["rank"][0] == 1


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("value", [0, 1, -1])
def test_a_label_known_to_be_nothing_else(value, gram_cap):
    X, Y = problem(2)
    Y[Y[:, 1] >= 0, 1] = value
    found = assert_equals_twin(X, Y, gram_cap=gram_cap)
    # No positive: a column of zeros, without a direction of its own at first.
    assert found.trace.values["rank"][0] == (4 if value == 1 else 3)


def test_equal_and_complementary_labels():
    X, Y = problem(3)
    assert_equals_twin(X, np.hstack([Y, Y[:, :2]]))
    other = np.where(Y[:, :1] < 0, -1, 1 - Y[:, :1]).astype(np.int8)
    assert_equals_twin(X, np.hstack([Y[:, :1], other]))


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_duplicate_labels_stay_equal(gram_cap):
    """Of labels 4..11, and of two thirds of the rows, no positive is known."""
    X, Y = problem(n=90, d=30, q=4, unknown="none")
    Y = np.hstack([Y, np.zeros((len(Y), 8), np.int8)])
    Y[np.random.default_rng(0).random(len(Y)) < 0.66] = -1
    found = assert_equals_twin(X, Y, gram_cap=gram_cap, max_iter=20)
    assert found.labels[:, 4:].tolist() == np.repeat(found.labels[:, 4:5], 8, axis=1).tolist()
    assert found.extra["distinct_labels"] == max(found.trace.values["rank"]) == 5
    order = np.random.default_rng(0).permutation(12)
    without = {"max_iter": 20, "gram_cap": gram_cap, "theta": 0.0}  # and without the first graph
    turned, plain = (fit_access(X, y, **without) for y in (Y[:, order], Y))
    assert turned.scores == pytest.approx(plain.scores, rel=1e-6, abs=1e-8)
    assert turned.labels == pytest.approx(plain.labels[:, order], abs=1e-7)


@pytest.mark.parametrize("q", [1, 2, 3])
def test_few_labels(q):
    assert assert_equals_twin(*problem(3, q=q)).scores.argmax() < q


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_duplicate_rows_and_features(gram_cap):
    X, Y = problem(2)
    rows = assert_equals_twin(np.vstack([X[:30]] * 8), np.vstack([Y[:30]] * 8), gram_cap=gram_cap)
    assert np.ptp(rows.labels.reshape(8, 30, 4), axis=0).max() < 1e-6
    features = assert_equals_twin(np.hstack([X, X[:, :3]]), Y, gram_cap=gram_cap)
    assert features.scores[9:] == pytest.approx(features.scores[:3], rel=1e-5)


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_constant_features_have_no_score(container, gram_cap):
    X, Y = problem()
    X[:, 2] = 0.1
    found = fit_access(container(X), Y, lambda_=0.5, gram_cap=gram_cap)
    assert found.scores[[2, 8]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("case", ["constant", "no positive", "all positive", "one row"])
def test_nothing_to_tell_features_apart_by(case, gram_cap):
    X, Y = problem(unknown="none")
    if case == "constant":
        X = np.full_like(X, 0.1)
    elif case == "one row":
        X, Y = X[:1], Y[:1]
    else:
        Y = np.full_like(Y, case == "all positive")
    found = fit_access(X, Y, gram_cap=gram_cap)
    assert found.scores.tolist() == [0.0] * 9
    assert found.trace.converged
    assert found.labels.shape == Y.shape


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_rows(n):
    X, Y = problem(unknown="none")
    Y[:2] = [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert_equals_twin(X[:n], Y[:n], max_iter=8)


@pytest.mark.parametrize("far", [1e6, 1e8])
def test_a_column_far_from_zero_gets_its_score(far):
    X, Y = problem(1)
    X = np.round(X * 2**10) / 2**10  # exact after the shift
    near = fit_access(X, Y, max_iter=5).scores
    X[:, :4] += far
    assert fit_access(X, Y, max_iter=5).scores == pytest.approx(near, abs=1e-6)


def test_zeros_may_stand_for_unknown_rows():
    X, Y = problem(3)
    Y[(Y == 0).all(axis=1), 0] = 1
    zeros = np.maximum(Y, 0)
    coded = fit_access(X, Y).scores.tolist()
    assert fit_access(X, zeros, unknown_labels="zeros").scores.tolist() == coded
    assert fit_access(X, Y, unknown_labels="zeros").scores.tolist() == coded
    assert fit_access(X, zeros).extra["labelled_rows"] == 70


# ---------------------------------------------------------------- what is recorded, told and refused


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("unknown", ["rows", "entries"])
def test_an_interrupted_loop_goes_on_to_the_same_bits(unknown, gram_cap, tmp_path):
    X, Y = problem(unknown=unknown)
    given = {"tol": 0.0, "max_iter": 9, "gram_cap": gram_cap}
    expected = fit_access(X, Y, **given)
    found = interrupted_and_resumed(lambda: fit_access(X, Y, **given), tmp_path, 4)
    assert found.scores.tolist() == expected.scores.tolist()
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.trace == expected.trace


def test_every_iteration_is_in_the_trace_and_in_the_progress():
    events = []
    with runtime.progress_to(events.append):
        found = fit_access(*problem())
    steps = [event for event in events if event["kind"] == "step"]
    trace = found.trace
    assert [event["number"] for event in steps] == list(range(1, trace.iterations + 1))
    assert [event["objective"] for event in steps] == trace.objective
    assert [event["step"] for event in steps] == trace.values["step"]
    assert set(trace.values) == {"graph_penalty", "step", "solver_steps", "solver_residual", "label_steps", "rank"}
    for values in trace.values.values():
        assert len(values) == trace.iterations
    assert trace.change <= 1e-6
    json.dumps([found.extra, trace.facts()], allow_nan=False)


def test_above_the_cap_it_goes_on_while_the_equation_of_W_is_unsolved(monkeypatch):
    X, Y = problem(3, n=120, d=60, q=3)
    assert fit_access(X, Y, tol=10.0).trace.iterations == 2
    monkeypatch.setattr(access_mfs, "WEIGHT_STEPS", 5)
    trace = fit_access(X, Y, gram_cap=0, tol=10.0, max_iter=100).trace
    assert trace.converged
    assert trace.iterations > 3
    assert min(trace.values["solver_residual"][1:-1]) > 1e-3 >= trace.values["solver_residual"][-1]


def test_labels_of_which_nothing_is_known_are_refused():
    X, Y = problem()
    with pytest.raises(DataError, match=r"no row of Y has a known label\n.*give labels 1 and 0 for some rows"):
        fit_access(X, np.full_like(Y, -1))
    with pytest.raises(DataError, match="no row of Y has a known label that is positive"):
        fit_access(X, np.zeros_like(Y), unknown_labels="zeros")


def test_above_the_cap_nothing_has_d_times_d_numbers():
    shapes = [array.shape for array in access_mfs.held_arrays(sparse=True, gram=False, graph=True)]
    assert "d d" not in shapes
    assert "n d" not in shapes
    assert "d d" in [array.shape for array in access_mfs.held_arrays(sparse=True, gram=True, graph=True)]


def test_small_data_waits_for_nothing_to_load(emotions, tmp_path):
    """First fit of a process: nothing is compiled, no scheduler starts, and neither Dask nor Zarr is needed."""
    X, Y = emotions
    np.savez(tmp_path / "emotions.npz", X=X, Y=Y)
    code = (
        "import sys, numpy as np\n"
        "from tests.exact.fits import fit_access\n"
        f"data = np.load({str(tmp_path / 'emotions.npz')!r})\n"
        "fit_access(data['X'], data['Y'])\n"
        "print(*sorted({'numba', 'dask', 'distributed', 'zarr'} & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert run.stdout == "\n"
