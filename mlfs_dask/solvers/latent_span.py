"""Regression on latent labels that are linear in the data: no row is needed, only their joint sums.

Minimises ‖XW + 1b' − V‖² + α‖Y − VB‖² + c tr V'(I − ZΛ⁻¹Z')V + Σ_j σ_j ‖v_j‖² + tr BRB' + γ Σ‖w_f‖ with BB' = I, where
V may be tied to YB' in some rows. Given W and B, the best latent labels of a row are a mean of its prediction, its
labels and the values of its anchors, V = p(XW + 1b') + yYB' + zZU. Both U = Λ⁻¹Z'V and b, the mean of V, solve a linear
system (Woodbury, in m + 1 unknowns), so that V'V, X'V and Y'V follow from the sums of [X Y Z]'[X Y Z]. Rows of Z sum to
1, so that 1 = Z1 needs no sums of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.proximal import Solution
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.typing import Array

#: Most steps of B for given latent labels, of which each is an SVD of a k × q matrix.
ROTATIONS = 20


class Tied(NamedTuple):
    """Sums over rows whose latent labels are YB'. X is centred over all rows, Y over these."""

    XY: Array
    YY: Array
    graph: AnchorTotals


class Latent(NamedTuple):
    """Sums of latent labels over all rows.

    Attributes
    ----------
    XV : float64 array, shape (d, k)
    YV : float64 array, shape (q, k)
        Over rows that are not tied.
    squares : float64 array, shape (k,)
        Diagonal of V'V.
    spread : float
        ‖V − 1b'‖².
    roughness : float
        tr V'(I − ZΛ⁻¹Z')V.
    """

    XV: Array
    YV: Array
    squares: Array
    spread: float
    roughness: float


@dataclass(frozen=True)
class Span:
    """Sums of the centred columns of X (d), Y (q) and of the anchor weights Z (m) over rows that are not tied.

    Attributes
    ----------
    XX : float64 array, shape (d, d)
    XY : float64 array, shape (d, q)
    YY : float64 array, shape (q, q)
    graph : AnchorTotals
    alpha, smooth : float
        `smooth` is c.
    coupling : float64 array, shape (k,), or float
        σ.
    correlation : float64 array, shape (q, q), or None
        R, symmetric; None: 0.
    tied : Tied or None
        Sums over the other rows, if there are any.
    """

    XX: Array
    XY: Array
    YY: Array
    graph: AnchorTotals
    alpha: float
    smooth: float
    coupling: Array | float = 0.0
    correlation: Array | None = None
    tied: Tied | None = None

    @property
    def masses(self) -> Array:
        """Λ of all rows, shape (m,)."""
        return self.graph.masses if self.tied is None else self.graph.masses + self.tied.graph.masses

    @cached_property
    def modes(self) -> tuple[Array, Array]:
        """T, shape (m, m), and ν, shape (m, 1): T Z'Z T' = diag(ν) and T Λ T' = I, but for anchors of no row."""
        masses = self.masses
        root = np.sqrt(np.divide(1.0, masses, out=np.zeros_like(masses), where=masses > 0))
        values, vectors = np.linalg.eigh(self.graph.ZZ * root * root[:, np.newaxis])
        return vectors.T * root, values[:, np.newaxis]

    def latent(self, W: Array, B: Array) -> Latent:
        """Return sums of the best V."""
        (ZX, masses, ZZ, ZY), (T, nu), tied = self.graph, self.modes, self.tied
        p = 1.0 / (1.0 + self.alpha + self.smooth + self.coupling)
        A, C, z = p * W, p * self.alpha * B.T, p * self.smooth
        right = ZX @ A + ZY @ C
        of_tied = 0.0 if tied is None else tied.graph.ZY @ B.T
        # (Λ − zZ'Z)U − pΛ_u1b' = right, in modes; and n b' = 1'V. Without tied rows b is 0, for X and Y are centred.
        U, b = T @ (right + of_tied) / (1.0 - z * nu), 0.0
        if tied is not None:
            n, mass = float(masses.sum()), (T @ masses)[:, np.newaxis]
            of_b = p * mass / (1.0 - z * nu)
            rest = float(self.masses.sum()) - p * n - z * (mass * of_b).sum(axis=0)
            b = ((right + of_tied).sum(axis=0) + z * (mass * U).sum(axis=0)) / rest
            U += of_b * b
        U = T.T @ U
        D = z * U + p * b
        XV = self.XX @ A + self.XY @ C + ZX.T @ D
        YV = self.XY.T @ A + self.YY @ C + ZY.T @ D
        ZV = ZX @ A + ZY @ C + ZZ @ D
        squares: Array = np.einsum("ij,ij->j", A, XV) + np.einsum("ij,ij->j", C, YV) + np.einsum("ij,ij->j", D, ZV)
        if tied is not None:
            XV += tied.XY @ B.T
            ZV += of_tied
            squares += np.einsum("ij,ij->j", B.T, tied.YY @ B.T)
        size = float(squares.sum())
        spread = size - float(self.masses.sum() * np.square(b).sum())
        return Latent(XV, YV, squares, spread, size - float(np.vdot(ZV, U)))

    def rest(self, latent: Latent, B: Array) -> float:
        """Return terms of the objective without W."""
        told = float(np.trace(self.YY)) - 2.0 * float(np.vdot(B, latent.YV.T)) + float(latent.squares.sum())
        coupled = float((self.coupling * latent.squares).sum())
        coupled += 0.0 if self.correlation is None else float(np.vdot(B, B @ self.correlation))
        return latent.spread + self.alpha * told + self.smooth * latent.roughness + coupled

    def rotated(self, latent: Latent, B: Array) -> Array:
        """Return B for given V: the rotation that brings VB nearest to Y, or, with R, steps that lower the objective.

        tr BRB' is touched from above by a linear function of B, less a constant, so that each of them is a rotation.
        """
        nearest = self.alpha * latent.YV.T
        if self.correlation is None:
            return _rotation(nearest)
        values = np.linalg.eigvalsh(self.correlation)
        pull = values[-1] * np.eye(len(values)) - self.correlation
        for _ in range(ROTATIONS):
            B, before = _rotation(nearest + B @ pull), B
            if np.linalg.norm(B - before) <= row_sparse.MOVED * np.linalg.norm(B):
                break
        return B


def _rotation(M: Array) -> Array:
    """Return the matrix with orthonormal rows that goes most with M."""
    P, _, Q = np.linalg.svd(M, full_matrices=False)
    return np.asarray(P @ Q)


def solve(
    span: Span,
    G: Array,
    B: Array,
    *,
    rotates: bool = False,
    weigh: Callable[[float], float],
    tol: float,
    max_iter: int,
) -> Solution:
    """Return W of least objective by blocks. No step raises the objective.

    Parameters
    ----------
    span : Span
    G : float64 array, shape (d, d)
        X'X of all rows, or its sum with another quadratic form of W.
    B : float64 array, shape (k, q)
        The first one.
    rotates : bool
        Whether B is a variable.
    weigh : callable
        γ, given the least at which the first W is 0.
    tol : float
        Relative change of the objective at which the loop ends.
    max_iter : int
    """
    W, epsilon, weight = np.zeros((len(G), len(B))), 0.0, 0.0
    objective: list[float] = []
    for _ in range(max_iter):
        latent = span.latent(W, B)
        if rotates:
            B = span.rotated(latent, B)
        XV = latent.XV
        weight = weight or weigh(row_sparse.critical_weight(XV))
        if weight == 0.0:
            return Solution(W, objective, True)
        W, epsilon = row_sparse.reweight(G, XV, weight, W, epsilon)
        value = float(np.vdot(W, G @ W - 2.0 * XV)) + span.rest(latent, B)
        objective.append(value + weight * row_sparse.penalty(W, epsilon))
        if len(objective) > 1 and objective[-2] - objective[-1] <= tol * objective[-2]:
            return Solution(W, objective, True)
    return Solution(W, objective, False)
