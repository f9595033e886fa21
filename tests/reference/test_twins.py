"""The twins against their papers' objectives, written as sums over pairs and entries, and differentiated numerically.

A twin that shares a slip with the selector it is to check says nothing: here each of its steps has to be what the
printed objective asks for, whoever derived the step.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.reference import access_mfs, mfsir, smfs


def test_twins_share_nothing_with_what_they_judge():
    """`auto` fits other methods, which have twins of their own."""
    shared = set()
    for file in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            shared |= {(file.name, module) for module in modules if module.startswith("mlfs_dask")}
    assert shared == {("auto.py", "mlfs_dask.selection.estimator")}


def slope(value, at, *, step=1e-6):
    """Central differences of `value` at an array."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        there, here = at.copy(), at.copy()
        there[place] += step
        here[place] -= step
        found[place] = (value(there) - value(here)) / (2 * step)
    return found


def squared(A):
    return sum(float(a) ** 2 for a in np.ravel(A))


def graph_cost(S, V):
    """½ Σ_ij s_ij ‖v_i − v_j‖²."""
    n = len(V)
    return 0.5 * sum(S[i, j] * squared(V[i] - V[j]) for i in range(n) for j in range(n))


def drawn(seed=0, n=9, d=4, q=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (rng.random((n, q)) < 0.5).astype(int)
    Y[0], Y[1] = 1, 0
    return X, Y


# ---------------------------------------------------------------- mFSIR


def eq_8_of_mfsir(Z, Y, S, G, H, V, B, alpha, beta):
    return squared(Z @ (G * H) - V) + alpha * squared(Y - V @ B) + beta * graph_cost(S, V)


def test_affinities_are_those_of_eq_6():
    X, _ = drawn()
    S = mfsir.affinity(X, p=2)
    squares = np.array([[squared(a - b) for b in X] for a in X])
    width = 2 * X.var(axis=0).sum()  # the mean over all pairs
    for i in range(9):
        for j in range(9):
            near = [j in np.argsort(squares[i] + 1e9 * (np.arange(9) == i))[:2] for i, j in ((i, j), (j, i))]
            expected = np.exp(-squares[i, j] / width) if i != j and any(near) else 0.0
            assert S[i, j] == pytest.approx(expected, abs=1e-12)


def test_printed_steps_of_mfsir_follow_the_slope_of_eq_8():
    X, Y = drawn()
    Z, S, eta, parameters = mfsir.standardise(X), None, 1e-3, (0.7, 1.3)
    S = mfsir.affinity(Z, 2)
    shapes = ((4, 2), (4, 2), (9, 2), (2, 3))
    at = [
        np.random.default_rng(seed).uniform(-0.5, 0.5, size=shape)
        for seed, shape in zip(np.random.SeedSequence(5).spawn(4), shapes, strict=True)
    ]
    options = {"n_latent": 2, "n_neighbors": 2, "step": "fixed", "eta": eta, "omega": 0.5, "random_state": 5}
    _, values, found = mfsir.mfsir(X, Y, alpha=0.7, beta=1.3, max_iter=1, **options)
    for i in range(4):  # one after the other, each with the others as they are by then

        def value(moved, i=i):
            return eq_8_of_mfsir(Z, Y, S, *at[:i], moved, *at[i + 1 :], *parameters)

        new = at[i] - eta * slope(value, at[i])
        at[i] = np.maximum(new, 0) if i > 1 else new  # Eq. 11
        assert found[i] == pytest.approx(at[i], abs=1e-8)
    assert values[-1] == pytest.approx(eq_8_of_mfsir(Z, Y, S, *found, *parameters))


def test_blockwise_steps_of_mfsir_follow_the_slope_of_eq_8_by_constants_of_their_own():
    X, Y = drawn(1)
    Z = mfsir.standardise(X)
    S = mfsir.affinity(Z, 2)
    V, B = mfsir.factorise(Y, 2)
    alpha, beta = 0.7, 1.3
    _, values, found = mfsir.mfsir(
        X, Y, alpha=alpha, beta=beta, n_latent=2, n_neighbors=2, weight_steps=1, label_steps=1, max_iter=1
    )
    G, H = np.ones((4, 2)), np.zeros((4, 2))
    rho = np.linalg.eigvalsh(Z.T @ Z)[-1]  # the whole space is one block of the search for it
    H = H - slope(lambda H: eq_8_of_mfsir(Z, Y, S, G, H, V, B, alpha, beta), H) / (2 * rho)
    assert found[0].tolist() == G.tolist()
    assert found[1] == pytest.approx(H, abs=1e-8)
    own = 2 * (1 + alpha * np.linalg.norm(B @ B.T, 2) + 2 * beta * S.sum(axis=1))
    V = np.maximum(V - slope(lambda V: eq_8_of_mfsir(Z, Y, S, G, H, V, B, alpha, beta), V) / own[:, np.newaxis], 0)
    assert found[2] == pytest.approx(V, abs=1e-8)
    move = slope(lambda B: eq_8_of_mfsir(Z, Y, S, G, H, V, B, alpha, beta), B)
    B = mfsir.on_sphere(B - move / (2 * alpha * np.linalg.norm(V.T @ V, 2)))
    assert found[3] == pytest.approx(B, abs=1e-7)
    assert values[-1] == pytest.approx(eq_8_of_mfsir(Z, Y, S, *found, alpha, beta))


# ---------------------------------------------------------------- SMFS


def eq_6_of_smfs(Z, s, W, P, Y, alpha, beta):
    fit = sum(s[i] * squared(Z[i] @ P - Y[i]) for i in range(len(Y)))
    structure = sum(squared(Y[i] - sum(W[i, j] * Y[j] for j in range(len(Y)))) for i in range(len(Y)))
    return fit + alpha * structure + beta * sum(np.sqrt(squared(p)) for p in P)


@pytest.mark.parametrize("state", ["zeros", "rows", "entries"])
def test_smfs_ends_where_eq_6_is_least(state):
    X, Y = drawn(2, n=12)
    if state == "rows":
        Y[6:] = -1
    elif state == "entries":
        Y[np.random.default_rng(0).random(Y.shape) < 0.4] = -1
    xi = np.random.default_rng(3).random((12, 12))
    W = smfs.neighbour_weights(xi + xi.T, 3)
    for i in range(12):  # Eq. 3
        near = np.argsort((xi + xi.T)[i] + 1e9 * (np.arange(12) == i))[:3]
        expected = np.exp(-(xi + xi.T)[i, near]) / np.exp(-(xi + xi.T)[i, near]).sum()
        assert W[i, near] == pytest.approx(expected)
        assert W[i].sum() == pytest.approx(1)
    alpha, beta = 0.4, 0.05
    _, P, F, objective = smfs.smfs(X, Y, W, alpha=alpha, beta=beta, iterations=400)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    times = [(Y[:, j] == 1).sum() for j in range(3)]
    s = [sum(1 / times[j] for j in range(3) if y[j] == 1) for y in Y]  # Eq. 7
    assert objective[-1] == pytest.approx(eq_6_of_smfs(Z, s, W, P, F, alpha, beta), rel=1e-5)
    assert objective[-1] <= objective[0]
    assert (np.linalg.norm(P, axis=1) > 1e-3).all()  # where Eq. 6 has a slope
    assert slope(lambda P: eq_6_of_smfs(Z, s, W, P, F, alpha, beta), P) == pytest.approx(0, abs=1e-4)
    known = Y >= 0 if state != "zeros" else Y == 1
    assert F[known].tolist() == np.where(Y == 1, 1.0, -1.0)[known].tolist()
    down = slope(lambda F: eq_6_of_smfs(Z, s, W, P, F, alpha, beta), F)
    # Solved without its bounds and brought within them: the least where no entry of a label met a bound.
    met = [(np.abs(F[~known[:, j], j]) == 1).any() for j in range(3)]
    assert not all(met)
    for j in np.flatnonzero(np.logical_not(met)):
        assert down[~known[:, j], j] == pytest.approx(0, abs=1e-4)


# ---------------------------------------------------------------- Access-MFS


def eq_8_of_access_mfs(X, Y, U, W, F, S, P, lambda_, theta, mu):
    """Without the two squared norms of the graphs; U holds the known entries."""
    fitted, labels = X @ W, F - F.mean(axis=0)
    value = squared(fitted - fitted.mean(axis=0) - labels) + squared(U * (F - Y))
    value += lambda_ * sum(np.sqrt(squared(w)) for w in W)
    return value + theta * (graph_cost(S, F) + graph_cost(S, fitted)) + mu * graph_cost(P, F.T)


def test_weights_of_near_rows_minimise_eq_18():
    M = access_mfs.half_squared_distances(drawn(4)[0])
    for i in range(9):
        for j in range(9):
            assert M[i, j] == pytest.approx(squared(drawn(4)[0][i] - drawn(4)[0][j]) / 2)
    S, penalty = access_mfs.simplex_rows(M, 3)
    expected = 0.0
    for i in range(9):
        others = [j for j in range(9) if j != i]
        near = sorted(M[i, others])
        alpha = (3 * near[3] - sum(near[:3])) / 2  # below Eq. 20
        found = minimize(
            lambda s, m=M[i, others], alpha=alpha: s @ m + alpha * s @ s,
            np.full(8, 1 / 8),
            bounds=[(0, None)] * 8,
            constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
            options={"ftol": 1e-14},
        )
        assert S[i, others] == pytest.approx(found.x, abs=1e-5)
        assert (S[i] > 0).sum() == 3
        assert S[i].sum() == pytest.approx(1)
        expected += alpha * squared(S[i])
    assert penalty == pytest.approx(expected)
    L = access_mfs.laplacian(S)
    F = drawn(5)[0]
    assert np.trace(F.T @ L @ F) == pytest.approx(graph_cost(S, F))


@pytest.mark.parametrize("theta", [0.0, 0.8])
def test_projections_are_the_best_that_are_uncorrelated(theta):
    X, Y = drawn(6, n=14)
    X = access_mfs.standardise(X)
    S, _ = access_mfs.simplex_rows(access_mfs.half_squared_distances(X), 3)
    D, F = np.array([0.3, 1.0, 2.0, 0.7]), Y + 0.1 * drawn(7, n=14)[0][:, :3]
    W = access_mfs.update_W(X, F, access_mfs.laplacian(S), D, 0.5, theta)
    # R as Eq. 11 collects it: a quadratic in every column of W.
    R = np.zeros((4, 4))
    for a in range(4):
        for b in range(4):
            R[a, b] = X[:, a] @ X[:, b] + 0.5 * D[a] * (a == b)
            R[a, b] += theta * sum(
                0.5 * S[i, j] * (X[i, a] - X[j, a]) * (X[i, b] - X[j, b]) for i in range(14) for j in range(14)
            )
    assert pytest.approx(np.eye(3), abs=1e-9) == W.T @ R @ W
    best = np.trace(W.T @ X.T @ (F - F.mean(axis=0)))
    rng = np.random.default_rng(0)
    lower = np.linalg.cholesky(R)
    for _ in range(300):  # others that are uncorrelated, near and far
        A = lower.T @ W + rng.choice([1e-3, 0.1, 3.0]) * rng.normal(size=(4, 3))
        other = np.linalg.solve(lower.T, np.linalg.qr(A)[0] * np.sign(np.diag(np.linalg.qr(A)[1])))
        assert other.T @ R @ other == pytest.approx(np.eye(3), abs=1e-9)
        assert np.trace(other.T @ X.T @ (F - F.mean(axis=0))) <= best + 1e-9


@pytest.mark.parametrize("unknown", ["rows", "entries"])
def test_predicted_labels_are_where_eq_8_has_no_slope(unknown):
    X, Y = drawn(8, n=10)
    X = access_mfs.standardise(X)
    U = np.random.default_rng(1).random((10, 1 if unknown == "rows" else 3)) < 0.5
    U = np.broadcast_to(U, Y.shape).astype(float)
    S, _ = access_mfs.simplex_rows(access_mfs.half_squared_distances(X), 2)
    P, _ = access_mfs.simplex_rows(access_mfs.half_squared_distances(Y.T), 1)
    W = np.random.default_rng(2).normal(size=(4, 3))
    L_s, L_p = access_mfs.laplacian(S), access_mfs.laplacian(P)
    F = access_mfs.update_F(X, W, Y, U, L_s, L_p, 0.8, 0.6)
    assert slope(lambda F: eq_8_of_access_mfs(X, Y, U, W, F, S, P, 1.0, 0.8, 0.6), F) == pytest.approx(0, abs=1e-6)


def test_the_first_turn_of_access_mfs_is_that_of_algorithm_2():
    X, Y = drawn(9, n=12)
    Y[np.random.default_rng(0).random(12) < 0.5] = -1
    parameters = {"lambda_": 0.4, "theta": 0.8, "mu": 0.6}
    scores, F, objective, _ = access_mfs.access_mfs(X, Y, k_s=3, k_p=1, max_iter=1, **parameters)
    Z, U, known = access_mfs.standardise(X), (Y >= 0).astype(float), (Y == 1).astype(float)

    def graphs(W, F):
        distances = [
            access_mfs.half_squared_distances(np.hstack([F, Z @ W])),
            access_mfs.half_squared_distances(F.T),
        ]
        return [access_mfs.simplex_rows(M, k)[0] for M, k in zip(distances, (3, 1), strict=True)]

    W = np.random.default_rng(0).standard_normal((4, 3)) / 2
    S, P = graphs(W, known)
    W = access_mfs.update_W(Z, known, access_mfs.laplacian(S), np.ones(4), 0.4, 0.8)
    assert scores == pytest.approx(np.linalg.norm(W, axis=1))
    expected = access_mfs.update_F(Z, W, known, U, *map(access_mfs.laplacian, (S, P)), 0.8, 0.6)
    assert pytest.approx(expected) == F
    value = eq_8_of_access_mfs(Z, known, U, W, F, *graphs(W, F), *parameters.values())
    assert objective == [pytest.approx(value, rel=1e-6)]
