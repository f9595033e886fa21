"""Exact Access-MFS: against its plain twin, known figures, the authors' program, limit cases, checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.exact import access_mfs
from tests.conftest import data_folder
from tests.exact.fits import fit_access
from tests.problems import real_data
from tests.problems import semi_supervised_problem as problem
from tests.reference import access_mfs as twin


def assert_equals_twin(X, Y, *, gram_cap=4096, solver_tol=1e-7, max_iter=8, container=np.asarray, **parameters):
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


@pytest.mark.parametrize(("gram_cap", "container"), [(0, sp.csr_array), (4096, np.asarray)])
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
    parameters |= {"max_iter": 8}
    expected = {name: value for name, value in parameters.items() if name != "solver_tol"}
    found = fit_access(X, Y, gram_cap=gram_cap, **parameters)
    scores, _, objective, _ = twin.access_mfs(X, Y, **expected)
    assert found.trace.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores == pytest.approx(scores, abs=1e-6 * scores.max())


def test_the_seed_draws_the_first_graph_only():
    X, Y = problem(1)
    zero, one, none = (fit_access(X, Y, random_state=seed, max_iter=5) for seed in (0, 1, None))
    assert one.scores == pytest.approx(twin.access_mfs(X, Y, seed=1, max_iter=5)[0], abs=1e-7)
    assert one.trace.objective[0] != zero.trace.objective[0]
    assert none.scores.tolist() == zero.scores.tolist()


def test_the_known_objective_of_real_data(emotions):
    # Known to all these digits from dense algebra: λ = θ = μ = 1, k_s = k_p = 5, standardised, 30 % of rows labelled.
    found = fit_access(*emotions, inner_iterations=7)
    assert found.trace.objective[-1] == pytest.approx(128.122690, abs=1e-6)
    found = fit_access(*thinned(*real_data("yeast")), inner_iterations=7)
    assert found.trace.objective[-1] == pytest.approx(1147.09937, abs=1e-5)
    assert found.trace.converged
    assert np.diff(found.trace.objective).max() < 1e-3 * found.trace.objective[-1]


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
@pytest.mark.parametrize("value", [0, 1, -1])
def test_a_label_known_to_be_nothing_else(value, gram_cap):
    X, Y = problem(2)
    Y[Y[:, 1] >= 0, 1] = value
    found = assert_equals_twin(X, Y, gram_cap=gram_cap)
    # No positive: a column of zeros, without a direction of its own at first.
    assert found.trace.values["rank"][0] == (4 if value == 1 else 3)


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_duplicate_labels_stay_equal(gram_cap):
    """Of labels 4..11, and of two thirds of the rows, no positive is known."""
    X, Y = problem(n=90, d=30, q=4, unknown="none")
    Y = np.hstack([Y, np.zeros((len(Y), 8), np.int8)])
    Y[np.random.default_rng(0).random(len(Y)) < 0.66] = -1
    found = assert_equals_twin(X, Y, gram_cap=gram_cap)
    assert found.labels[:, 4:].tolist() == np.repeat(found.labels[:, 4:5], 8, axis=1).tolist()
    assert found.extra["distinct_labels"] == max(found.trace.values["rank"]) == 5
    order = np.random.default_rng(0).permutation(12)
    without = {"max_iter": 20, "gram_cap": gram_cap, "theta": 0.0}  # and without the first graph
    turned, plain = (fit_access(X, y, **without) for y in (Y[:, order], Y))
    assert turned.scores == pytest.approx(plain.scores, rel=1e-6, abs=1e-8)
    assert turned.labels == pytest.approx(plain.labels[:, order], abs=1e-7)


@pytest.mark.parametrize("far", [1e6, 1e8])
def test_a_column_far_from_zero_gets_its_score(far):
    X, Y = problem(1)
    X = np.round(X * 2**10) / 2**10  # exact after the shift
    near = fit_access(X, Y, max_iter=5).scores
    X[:, :4] += far
    assert fit_access(X, Y, max_iter=5).scores == pytest.approx(near, abs=1e-6)


# ---------------------------------------------------------------- what is recorded, told and refused


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
    workspace = access_mfs.workspace(sparse=True, gram=False, graph=True)
    assert "d d" not in workspace
    assert "n d" not in workspace
    assert "d d" in access_mfs.workspace(sparse=True, gram=True, graph=True)


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
