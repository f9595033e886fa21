"""Row steps and the sums of the methods with anchors: small systems against plain solvers, joint solutions at rest."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from mlfs_dask.blocks.duplicate_labels import DuplicateLabels
from mlfs_dask.blocks.isolation import tree_shape
from mlfs_dask.blocks.latent_rows_compiled import sweep_nonnegative
from mlfs_dask.blocks.mass_anchors import MassAnchors, landmark_dtype, landmark_tables
from mlfs_dask.statistics.latent_rows import SWEEPS, LatentRows, latent_system
from mlfs_dask.statistics.predicted_rows import PredictedSums, RowPrediction, settle_anchors
from mlfs_dask.statistics.recovered_rows import RecoveredSums, settle_anchor_values
from mlfs_dask.statistics.scaling import Scaling
from tests.reference.anchors import means_of_rows, row_weights, simplex

# ---------------------------------------------------------------- latent labels


def latent_problem(rng, rows, width):
    B = np.abs(rng.normal(size=(width, width + 2)))
    Q = latent_system(
        B / np.linalg.norm(B, axis=1, keepdims=True), rng.choice([0.1, 1.0, 30.0]), rng.choice([0.0, 5.0])
    )
    return Q, rng.normal(size=(rows, width)) * 3


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_sweeps_end_at_non_negative_least_squares(seed, width):
    rng = np.random.default_rng(seed)
    Q, right = latent_problem(rng, 6, width)
    V = np.maximum(right @ np.linalg.inv(Q), 0.0)
    sweep_nonnegative(V, right, Q, 20_000)
    root = np.linalg.cholesky(Q).T
    for v, r in zip(V, right, strict=True):
        assert v == pytest.approx(optimize.nnls(root, np.linalg.solve(root.T, r))[0], abs=1e-7)


def test_a_sweep_by_hand():
    # 2a² + 2ab + b² − 2(3a + b) over a, b >= 0 from (0, 1): a = (3 − 1)/2 = 1, and b = 1 − 1 = 0; then a = 3/2, b = 0.
    V, right, Q = np.array([[0.0, 1.0]]), np.array([[3.0, 1.0]]), np.array([[2.0, 1.0], [1.0, 1.0]])
    sweep_nonnegative(V, right, Q, 1)
    assert V.tolist() == [[1.0, 0.0]]
    sweep_nonnegative(V, right, Q, 1)
    assert V.tolist() == [[1.5, 0.0]]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_no_sweep_raises_the_objective_of_a_row(seed, width):
    rng = np.random.default_rng(seed)
    Q, right = latent_problem(rng, 6, width)
    V = np.abs(rng.normal(size=right.shape))
    value = np.einsum("ij,jk,ik->i", V, Q, V) - 2 * (right * V).sum(axis=1)
    for _ in range(SWEEPS):
        sweep_nonnegative(V, right, Q, 1)
        assert V.min() >= 0
        new = np.einsum("ij,jk,ik->i", V, Q, V) - 2 * (right * V).sum(axis=1)
        assert (new <= value + 1e-12 * np.abs(value)).all()
        value = new


def test_the_labels_by_which_sums_start_are_parameters():
    scaling = Scaling(np.zeros(3), np.ones(3))
    statistic = LatentRows(
        scaling, None, np.empty((3, 0)), np.empty((0, 500)), np.empty((0, 0)), 0.0, 0.0, start=np.ones((500, 40))
    )
    assert statistic.parameter_bytes >= len(pickle.dumps(statistic)) - 4096


# ---------------------------------------------------------------- predicted labels


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 8),
    st.sampled_from([1.0, 2.0, 21.0]),
    st.sampled_from([0.0, 0.1, 5.0, 1e3, 1e6]),
)
def test_rows_known_in_part_are_solved_for(seed, q, level, mu):
    rng = np.random.default_rng(seed)
    S = rng.random((q, q)) * (rng.random((q, q)) < 0.7) / q
    S = S + S.T
    coupling = mu * (np.diag(S.sum(axis=1)) - S)
    right, known = rng.normal(size=(9, q)), rng.random((9, q)) < np.linspace(0, 1, 9)[:, np.newaxis]
    prediction = replace(prediction_of(rng, q, 0, 0.0), coupling=coupling)
    F = prediction._solve(right, known, level)
    for i in range(9):
        system = level * np.eye(q) + np.diag(known[i]) + coupling
        assert F[i] == pytest.approx(np.linalg.solve(system, right[i]), rel=1e-8, abs=1e-10)


def prediction_of(rng, q, m, theta):
    S = rng.random((q, q))
    coupling = np.diag((S + S.T).sum(axis=1)) - S - S.T
    return RowPrediction(
        np.zeros((2, q)),
        rng.random(q),
        rng.random((m, q)),
        rng.random((m, q)),
        coupling,
        theta,
        3,
        DuplicateLabels(np.arange(q)),
    )


@pytest.mark.parametrize("m", [0, 1, 6])
@pytest.mark.parametrize("theta", [0.5, 4.0])
def test_mean_and_values_of_anchors_are_at_rest_with_the_rows(theta, m):
    rng = np.random.default_rng(m)
    n, q = 50, 3
    prediction = prediction_of(rng, q, m, theta)
    known = np.repeat(rng.random((n, 1)) < 0.4, q, axis=1)
    target, Z = rng.normal(size=(n, q)), np.zeros((n, m))
    if m:
        # The last anchor has no rows.
        Z[:, : max(m - 1, 1)] = row_weights(rng.normal(size=(n, 2)), rng.normal(size=(max(m - 1, 1), 2)), 2)
    level = 1 + theta if m else 1.0

    def rows(b, U):
        return np.array(
            [
                np.linalg.solve(
                    level * np.eye(q) + np.diag(known[i]) + prediction.coupling, target[i] + b + theta * Z[i] @ U
                )
                for i in range(n)
            ]
        )

    F = rows(prediction.mean, prediction.U)
    mostly = known[:, 0]
    groups = [Z[~mostly], Z[mostly]]
    sums = PredictedSums(
        np.zeros((2, q)),
        np.zeros((m, 2)),
        Z.T @ F,
        np.stack([some.T @ some for some in groups]),
        np.stack([some.sum(axis=0) for some in groups]),
        np.array([len(some) for some in groups], float),
        np.array([0.0, q * mostly.sum()]),
        F.T @ F,
        F.sum(axis=0),
        np.zeros(3),
    )
    b, U = settle_anchors(prediction, sums)
    # Iterating the plain updates ends there.
    plain_b, plain_U = prediction.mean, prediction.U
    for _ in range(5000):
        F = rows(plain_b, plain_U)
        before, plain_b = plain_b, F.mean(axis=0)
        plain_U = means_of_rows(Z, F, plain_U)
        if np.abs(plain_b - before).max() < 1e-15:
            break
    assert b == pytest.approx(plain_b, abs=1e-10)
    assert pytest.approx(plain_U, abs=1e-10) == U
    if m > 1:
        assert U[-1].tolist() == pytest.approx(prediction.U[-1].tolist(), abs=1e-14)


# ---------------------------------------------------------------- recovered labels


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 3))
def test_values_of_anchors_are_at_rest_with_rows_of_which_nothing_is_known(seed, m, s):
    rng = np.random.default_rng(seed)
    n, q = 40, 2
    Z = row_weights(rng.normal(size=(n, 2)), rng.normal(size=(m, 2)), s)
    # Two anchors that are joined to nobody: one with rows of which nothing is known, one without rows.
    Z = np.block([[Z, np.zeros((n, 2))], [np.zeros((3, m)), np.tile([1.0, 0.0], (3, 1))]])
    told = np.r_[rng.random(n) < 0.3, [False] * 3]
    told[0] = True
    Y = np.where(told[:, np.newaxis], rng.choice([-1.0, 1.0], (n + 3, q)), 0.0)
    sums = RecoveredSums(
        np.zeros((1, q)),
        Z[told].T @ Y[told],
        Z[~told].T @ Z[~told],
        Z.sum(axis=0),
        np.zeros(3),
    )
    U = settle_anchor_values(sums)
    plain = np.full((m + 2, q), -1.0)
    for _ in range(20_000):
        before, plain = plain, means_of_rows(Z, np.where(told[:, np.newaxis], Y, Z @ plain), plain)
        if np.abs(plain - before).max() < 1e-14:
            break
    assert pytest.approx(plain, abs=1e-8) == U
    assert U[-2:].tolist() == [[-1.0] * q] * 2
    assert np.abs(U).max() <= 1.0


# ---------------------------------------------------------------- landmarks by isolation mass


class Leaves:
    """A forest that gives the leaf numbers it is told."""

    def __init__(self, codes):
        self.codes = np.asarray(codes, np.uint8)

    nbytes = 100

    def leaf_numbers(self, X, *, compiled):
        return self.codes[np.asarray(X)[:, 0].astype(int)]


def test_masses_with_landmarks_by_hand():
    # Leaves 0 | (1, 2) with 5, 2 and 1 rows; and 0, 1 with 3 and 5.
    shapes = [
        tree_shape(np.array([1, -1, 3, -1, -1]), np.array([2, -1, 4, -1, -1])),
        tree_shape(np.array([1, -1, -1]), np.array([2, -1, -1])),
    ]
    counts = np.array([[5, 2, 1], [3, 5, 0]])
    landmarks = np.array([[0, 0], [2, 1]])
    tables = landmark_tables(shapes, counts, landmarks, 8)
    assert tables[0].tolist() == [[5, 8], [8, 3], [8, 1]]
    assert tables[1, :2].tolist() == [[3, 8], [8, 5]]
    anchors = MassAnchors(Leaves([[0, 0], [1, 1], [2, 1], [0, 1]]), tables, 1)
    # Totals (8, 16), (16, 8), (16, 6) and (13, 13).
    Z = anchors.weigh(np.arange(4.0)[:, np.newaxis]).toarray()
    assert Z.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]
    assert anchors.count == 2
    assert anchors.nbytes == tables.nbytes + 100


def test_masses_of_many_rows_need_64_bits():
    assert landmark_dtype(100, 42_949_672) == np.uint32
    assert landmark_dtype(100, 42_949_673) == np.uint64


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 11))
def test_the_landmarks_of_least_mass_are_weighed(seed, m, s):
    rng = np.random.default_rng(seed)
    tables = rng.integers(1, 9, (5, 4, m)).astype(np.uint32)
    codes = rng.integers(0, 4, (700, 5))
    Z = MassAnchors(Leaves(codes), tables, s).weigh(np.arange(700.0)[:, np.newaxis]).toarray()
    totals = np.array([[tables[np.arange(5), code, a].sum() for a in range(m)] for code in codes[:60]], float)
    assert Z[:60] == pytest.approx(np.array([simplex(row, s) for row in totals]), abs=1e-12)
    assert Z.sum(axis=1) == pytest.approx(np.ones(700))
