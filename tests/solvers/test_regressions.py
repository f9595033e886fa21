"""W and P without X'X: to what solving with it comes, and what the sketch inverts."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks.factorisation import factors_from_pairs
from mlfs_dask.solvers.row_sparse_regression import RowSparseRegression
from mlfs_dask.solvers.uncorrelated import NystromSketch, Smoothing, SubspaceRegression, solve_gram
from tests.reference.anchors import row_weights


def rows(seed=0, n=200, d=30, q=3, m=12):
    """X with a spectrum that falls, M, the ridge, and the smoothing of anchors."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.geomspace(3, 0.1, d) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    X -= X.mean(axis=0)
    Z = row_weights(X, X[:m], 3)
    Z = np.c_[Z, np.zeros(n)]  # the last anchor has no rows
    return X, X.T @ rng.normal(size=(n, q)), rng.uniform(0.5, 2, d), Smoothing(2.0, Z.T @ X, Z.sum(axis=0))


def sketch_of(G, r, seed=1):
    Omega = np.random.default_rng(seed).normal(size=(len(G), r))
    return NystromSketch(Omega, G @ Omega, float(np.trace(G)))


def regression_matrix(X, ridge, smoothing):
    Z_mean = smoothing.ZX[:-1] / smoothing.masses[:-1, np.newaxis]
    G = X.T @ X
    return (1 + smoothing.theta) * G + np.diag(ridge) - smoothing.theta * smoothing.ZX[:-1].T @ Z_mean


@pytest.mark.parametrize("r", [1, 5, 30])
def test_in_a_moving_space_w_comes_to_that_of_the_gram_matrix_when_all_rests(r):
    X, M, ridge, smoothing = rows()
    G = X.T @ X
    wanted = solve_gram(regression_matrix(X, ridge, smoothing), M).W
    regression = SubspaceRegression(sketch_of(G, r))
    regression.direction = M
    errors, residuals = [], []
    for _ in range(200):
        found = regression.solve(M, ridge, smoothing, G @ regression.direction)
        errors.append(np.linalg.norm(found.W - wanted) / np.linalg.norm(wanted))
        residuals.append(found.residual)
        assert regression.basis.shape[1] <= 6
        assert regression.images == pytest.approx(G @ regression.basis, rel=1e-8, abs=1e-8)
    assert errors[-1] <= 1e-7
    assert residuals[-1] <= 1e-7
    assert residuals[0] > 1e-3 or r == 30
    # What is saved is all that it needs to go on.
    again = SubspaceRegression(sketch_of(G, r))
    again.restore(regression.state())
    image = G @ regression.direction
    one, other = (each.solve(M, ridge, smoothing, image).W for each in (regression, again))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_sketch_of_all_directions_inverts_exactly(scale):
    X, M, ridge, _ = rows()
    G = X.T @ X
    found = sketch_of(G, 30).precondition(M, ridge, scale)
    # What the sketch knows of less than the mean of the rest counts as this mean.
    inverse = np.linalg.inv(scale * G + np.diag(ridge))
    assert found == pytest.approx(inverse @ M, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("r", [1, 4, 10])
def test_a_sketch_of_few_directions_is_the_inverse_of_what_it_knows(r):
    X, M, ridge, _ = rows()
    sketch = sketch_of(X.T @ X, r)
    known = sketch.rest * np.eye(30) + sketch.vectors @ np.diag(sketch.excess) @ sketch.vectors.T
    found = sketch.precondition(M, ridge, 3.0)
    assert found == pytest.approx(np.linalg.solve(3.0 * known + np.diag(ridge), M), rel=1e-9, abs=1e-12)
    # The large eigenvalues are those of X'X, nearly.
    largest = np.linalg.eigvalsh(X.T @ X)[-1]
    assert sketch.rest + sketch.excess.max(initial=0.0) <= largest * (1 + 1e-9)
    if r == 10:
        assert sketch.rest + sketch.excess.max() >= 0.9 * largest


def test_a_sketch_of_more_directions_than_the_rank():
    """X of rank 20 with 55 features, some of them copies: rounding makes Ω'X'XΩ indefinite."""
    failed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        B = rng.normal(size=(300, 20)) @ rng.normal(size=(20, 55))
        G = np.zeros((400, 400))
        G[:55, :55] = B.T @ B
        Omega = np.zeros((400, 55))
        Omega[:55] = rng.normal(size=(55, 55))
        sketch = NystromSketch(Omega, G @ Omega, float(np.trace(G)))
        assert len(sketch.excess) <= 55
        assert np.sort(sketch.rest + sketch.excess)[-20:] == pytest.approx(np.linalg.eigvalsh(G)[-20:], rel=1e-6)
        residual, ridge = rng.normal(size=(400, 3)), rng.uniform(0.5, 2, 400)
        expected = np.linalg.solve(G + np.diag(ridge), residual)
        assert sketch.precondition(residual, ridge, 1.0) == pytest.approx(expected, abs=1e-6)
        try:
            np.linalg.cholesky(Omega.T @ G @ Omega)
        except np.linalg.LinAlgError:
            failed += 1
    assert failed


@pytest.mark.parametrize("how", ["set", "products"])
def test_row_sparse_regression_without_the_gram_matrix_comes_to_the_same_end(how):
    X, B, _, _ = rows()
    G = X.T @ X
    beta = 0.3 * 2 * np.linalg.norm(B, axis=1).max()
    exact = RowSparseRegression(B, beta=beta, gram=G)
    loose = RowSparseRegression(
        B,
        beta=beta,
        diagonal=np.diag(G),
        normal=lambda P: G @ P,
        gram_of=lambda columns: G[np.ix_(columns, columns)],
        max_features=30 if how == "set" else 0,
    )

    def value(P):
        return np.vdot(P, G @ P) - 2 * np.vdot(P, B) + beta * np.linalg.norm(P, axis=1).sum()

    for _ in range(500):
        exact.update(B)
        loose.update(B)
        loose.GP = G @ loose.P if loose.needs_product else None
        loose.tighten(1e-12, 1e-12)
    loose.finish(B)
    assert exact.needs_product is False
    assert loose.needs_product is (how == "set")
    assert value(loose.P) == pytest.approx(value(exact.P), rel=1e-6)
    top = np.argsort(-np.linalg.norm(exact.P, axis=1))[:5]
    assert loose.P[top] == pytest.approx(exact.P[top], rel=1e-2, abs=1e-3 * np.abs(exact.P).max())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_part_of_the_larger_size_has_its_sign(sign):
    """Of two labels of which one excludes the other the second pair is (1, −1) or (−1, 1): the larger part decides."""
    Y = np.array([[1.0, 0.0]] * 5 + [[0.0, 1.0]] * 2 + [[1.0, 1.0]])
    if sign < 0:
        Y = Y[:, ::-1]
    asked = []

    def part_sizes(T):
        asked.append(T)
        return np.stack([(np.maximum(s * (Y @ T), 0.0) ** 2).sum(axis=0) for s in (1, -1)])

    T, B = factors_from_pairs(Y.T @ Y, part_sizes, 2)
    assert len(asked) == 1
    assert B.min() >= 0
    assert np.linalg.norm(B, axis=1) == pytest.approx(np.ones(2))
    # The label of five rows alone has the first pair, and that of two the second.
    V = np.maximum(Y @ T, 0.0)
    u, t = Y @ asked[0][:, 1], asked[0][:, 1]
    sizes = [np.linalg.norm(np.maximum(s * u, 0)) * np.linalg.norm(np.maximum(s * t, 0)) for s in (1, -1)]
    larger = (1.0, -1.0)[int(np.argmax(sizes))]
    assert B[1] == pytest.approx(np.maximum(larger * t, 0) / np.linalg.norm(np.maximum(larger * t, 0)))
    assert np.linalg.norm(V[:, 1]) * 1.0 == pytest.approx(max(sizes), rel=1e-9)


def test_where_no_label_occurs_nothing_is_read():
    T, B = factors_from_pairs(np.zeros((3, 3)), lambda T: pytest.fail("read"), 2)
    assert T.tolist() == [[0.0]] * 3
    assert B.tolist() == [[1.0, 0.0, 0.0]]
