"""Blockwise steps: the objective never rises, constants are enough, rows of B keep norm 1, the printed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.blockwise import (
    Factors,
    Problem,
    label_step,
    solve_blockwise,
    solve_fixed,
    unit_rows,
)
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace


class Dense:
    """Products with a matrix at hand, counted."""

    def __init__(self, Z):
        self.Z = Z
        self.calls = []

    def normal(self, W):
        self.calls.append("normal")
        return self.Z.T @ (self.Z @ W)

    def forward(self, W):
        self.calls.append("forward")
        return self.Z @ W

    def backward(self, V):
        self.calls.append("backward")
        return self.Z.T @ V


def problem(seed, *, n=40, d=8, q=4, alpha=1.0, beta=1.0, most=2, hub=False):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < 0.4).astype(float)
    Z = rng.normal(size=(n, d)) @ np.diag(rng.uniform(0.1, 3, d))
    S = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.1), 1)
    if hub:
        S[0, 1:] = 1.0  # a row that all others have for a neighbour
    S = sp.csr_array(S + S.T)
    start = Factors(np.ones((d, most)), np.zeros((d, most)), rng.random((n, most)), unit_rows(rng.random((most, q))))
    return Problem(sp.csr_array(Y), Laplacian(S), Dense(Z), alpha, beta), start


def value(task, at):
    """Eq. 8, entry by entry."""
    Z, Y = task.products.Z, task.Y.toarray()
    L = np.diag(task.laplacian.degrees) - task.laplacian.graph.toarray()
    return (
        ((Z @ (at.G * at.H) - at.V) ** 2).sum()
        + task.alpha * ((Y - at.V @ at.B) ** 2).sum()
        + task.beta * np.trace(at.V.T @ L @ at.V)
    )


def rho(task):
    return float(np.linalg.eigvalsh(task.products.Z.T @ task.products.Z)[-1])


def solve(task, start, **given):
    options = {"rho": rho(task), "weight_steps": 3, "label_steps": 3, "tol": 0.0, "max_iter": 30, **given}
    trace = LoopTrace()
    solve_blockwise(task, start, trace, save=ignore, **options)
    return start, trace


def solve_printed(task, start, **options):
    trace = LoopTrace()
    solve_fixed(task, start, trace, save=ignore, **options)
    return start, trace


def ignore(at, trace):
    """In place of a checkpoint."""


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    beta=st.sampled_from([0.0, 1e-2, 1.0, 1e3]),
    most=st.integers(1, 5),
    steps=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    hub=st.booleans(),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_the_objective_never_rises(seed, alpha, beta, most, steps, hub, scale):
    task, start = problem(seed, alpha=alpha, beta=beta, most=most, hub=hub)
    task.products.Z *= scale
    first = value(task, start)
    found, trace = solve(task, start, weight_steps=steps[0], label_steps=steps[1])
    values = np.array([first, *trace.objective])
    assert (np.diff(values) <= 1e-12 * first).all()
    assert values[-1] < first
    assert trace.objective[-1] == pytest.approx(value(task, found), rel=1e-9, abs=1e-9 * first)
    assert (found.V >= 0).all()
    assert (found.B >= 0).all()
    assert np.linalg.norm(found.B, axis=1) == pytest.approx(1)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), hub=st.booleans(), beta=st.sampled_from([0.0, 1.0, 50.0]))
def test_every_single_step_of_the_labels_lowers_it(seed, hub, beta):
    task, at = problem(seed, beta=beta, hub=hub)
    at.H[:] = np.random.default_rng(seed).normal(size=at.H.shape)
    before = value(task, at)
    for _ in range(5):
        label_step(task, at, task.products.Z @ at.W)
        after = value(task, at)
        assert after <= before * (1 + 1e-12)
        before = after


def test_it_goes_on_from_any_iteration():
    task, start = problem(3)
    whole, expected = solve(task, start, max_iter=9)
    states = []

    def keep(at, trace):
        states.append((replace(at), LoopTrace(**trace.facts())))

    task, start = problem(3)
    steps = {"rho": rho(task), "weight_steps": 3, "label_steps": 3, "tol": 0.0}
    solve_blockwise(task, start, LoopTrace(), **steps, max_iter=4, save=keep)
    at, trace = states[-1]
    solve_blockwise(task, at, trace, **steps, max_iter=9, save=ignore)
    assert np.array_equal(at.W, whole.W)
    assert trace.objective == expected.objective


def test_the_size_of_the_balanced_start_does_not_matter():
    results = []
    for size in (1e-5, 1.0, 300.0):
        task, start = problem(1)
        start.G *= size
        found, trace = solve(task, start)
        results.append((found.W, trace.objective))
    for W, objective in results[1:]:
        assert pytest.approx(results[0][0], rel=1e-9) == W
        assert objective == pytest.approx(results[0][1], rel=1e-12)


def test_equal_features_keep_equal_weights_and_a_feature_of_zeros_none():
    task, start = problem(2)
    task.products.Z[:, 3] = task.products.Z[:, 5]
    task.products.Z[:, 6] = 0.0
    found, _ = solve(task, start)
    assert found.W[3] == pytest.approx(found.W[5], rel=1e-9)
    assert not found.W[6].any()


def test_without_labels_and_graph_it_ends_at_least_squares():
    task, start = problem(4, alpha=0.0, beta=0.0, n=60, d=3)
    task.products.Z = np.linalg.qr(task.products.Z)[0]
    V = start.V.copy()
    at, _ = solve(task, start, weight_steps=2000, label_steps=1, max_iter=1)
    # V was moved after the weights had settled on it.
    assert pytest.approx(np.linalg.lstsq(task.products.Z, V)[0], abs=1e-6) == at.W


def test_products_of_an_iteration():
    task, start = problem(0)
    solve(task, start, weight_steps=2, label_steps=7, max_iter=3)
    first = ["normal", "backward", *["normal"] * 3, "forward"]  # G has nothing to move by while H is 0
    other = ["backward", *["normal"] * 4, "forward"]
    assert task.products.calls == first + 2 * other


def test_the_loop_ends_by_relative_change():
    task, start = problem(0)
    _, trace = solve(task, start, tol=1e-3, max_iter=1000)
    assert trace.converged
    change = -np.diff(trace.objective) / trace.objective[:-1]
    assert change[-1] <= 1e-3
    assert (change[:-1] > 1e-3).all()
    task, start = problem(0)
    _, trace = solve(task, start, tol=1e-3, max_iter=2)
    assert not trace.converged
    assert len(trace.objective) == len(trace.values["residual"]) == len(trace.values["step"]) == 2


def test_every_iteration_is_reported():
    task, start = problem(0)
    events = []
    with runtime.progress_to(events.append):
        _, trace = solve(task, start, max_iter=4)
    steps = [event for event in events if event["kind"] == "step"]
    assert [event["number"] for event in steps] == [1, 2, 3, 4]
    assert [event["objective"] for event in steps] == trace.objective
    assert [event["residual"] for event in steps] == trace.values["residual"]
    assert [event["step"] for event in steps] == trace.values["step"]
    assert trace.values["step"][0] == 1.0  # from W = 0


def test_rows_come_to_the_nearest_place_of_norm_one():
    rng = np.random.default_rng(0)
    for _ in range(200):
        row = rng.normal(size=3) - 0.5
        found = unit_rows(row[np.newaxis])[0]
        others = np.abs(rng.normal(size=(500, 3)))
        others[:250, 0] = 0.0
        others /= np.linalg.norm(others, axis=1, keepdims=True)
        assert np.linalg.norm(found) == pytest.approx(1)
        assert (found >= 0).all()
        assert np.linalg.norm(found - row) <= np.linalg.norm(others - row, axis=1).min() + 1e-12


def test_the_printed_form_runs_to_its_end_with_one_step():
    task, start = problem(0)
    rng = np.random.default_rng(0)
    G, H, V, B = (rng.uniform(-1e-5, 1e-5, a.shape) for a in (start.G, start.H, start.V, start.B))
    at, trace = solve_printed(task, Factors(G, H, V.copy(), B), eta=1e-3, tol=1e-5, max_iter=12)
    assert len(trace.objective) == 12
    assert np.ptp(trace.objective) < 1e-6 * trace.objective[0]  # nothing moves
    assert trace.converged  # and Eq. 15 would have stopped it at once
    assert (at.V >= 0).all()
    # The first step, as Eqs. 9 to 11 have it.
    task, _ = problem(0)
    one, _ = solve_printed(task, Factors(G, H, V.copy(), B), eta=0.01, tol=1e-5, max_iter=1)
    Z, Y = task.products.Z, task.Y.toarray()
    L = np.diag(task.laplacian.degrees) - task.laplacian.graph.toarray()
    G1 = G - 0.01 * H * (2 * Z.T @ (Z @ (G * H) - V))
    H1 = H - 0.01 * G1 * (2 * Z.T @ (Z @ (G1 * H) - V))
    V1 = np.maximum(V - 0.01 * 2 * (V - Z @ (G1 * H1) + (V @ B - Y) @ B.T + L @ V), 0)
    B1 = np.maximum(B - 0.01 * 2 * V1.T @ (V1 @ B - Y), 0)
    for found, expected in ((one.G, G1), (one.H, H1), (one.V, V1), (one.B, B1)):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_a_step_too_large_is_refused_in_words():
    task, start = problem(0)
    with pytest.raises(
        MlfsError, match=r"mFSIR diverged in iteration \d+: .* is not finite\n  cure: choose a smaller eta"
    ):
        solve_printed(task, start, eta=10.0, tol=0.0, max_iter=100)
