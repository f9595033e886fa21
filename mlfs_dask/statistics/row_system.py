"""One iteration of a regression with a graph of anchors in one pass: sums over the labels of all rows, not kept.

Given W, b and values U of the anchors, the labels f of a row minimise
‖x_iW + b − f‖² + Σ_l κ_il (f_l − y_il)² + Σ_a g_ia ‖f − u_a‖², κ_il being κ where y_il is known and else 0:
f = (x_iW + b + κ_i∘y_i + Σ_a g_ia u_a) / (1 + κ_i + Σ_a g_ia), label by label. The row's weights of anchors are those
of its nearest ones by the features, g_ia = c z_ia; or of the nearest ones by the features and f, in turn with f
(`eta`); or, where distances count and not their squares (`smoothing`), g_ia = c z_ia / (2√(‖f − u_a‖² + e²)), in
turn with f, too. The turns start from the f without a graph, so that nothing of a row is kept from one iteration to the
next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import Anchors, squares_of, weigh_scores, weights_to_csr
from mlfs_dask.blocks.linear import (
    forward_block,
    group_scratch_bytes,
    grouped_block,
    row_groups,
    tile_rows,
)
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.row_loop import RowLoop
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Matrix

#: Alternations of a row's weights of adaptive anchors and its labels, as of Access-MFS; and of those that follow from
#: distances, which come to rest: a row then has its least objective wherever the turns start.
TURNS, REWEIGHTINGS = 3, 12


class SystemSums(NamedTuple):
    """Sums over all rows, F holding their labels, G their weights of anchors, and H = [1, G].

    Settled rows are those of which all labels are known or none: their f is affine in b and U with one slope for all
    labels, a_i = 1/(1 + κ_i + Σ_a g_ia), the diagonal of A; of the others a_i is 0.

    Attributes
    ----------
    XF : float64 array, shape (d, q)
    HF : float64 array, shape (m + 1, q)
    HX : float64 array, shape (m + 1, d)
        Empty where the anchors stay in their places.
    masses : float64 array, shape (m + 1,)
        H'1, the number of rows first.
    AHX : float64 array, shape (m + 1, d)
        H'AX.
    AHH : float64 array, shape (m + 1, m + 1)
        H'AH.
    terms : float64 array, shape (3,)
        ‖XW + b − F‖², Σ κ_il (f_il − y_il)², and Σ_ia g_ia ‖f_i − u_a‖² or, where distances count,
        c Σ_ia z_ia √(‖f_i − u_a‖² + e²).
    """

    XF: Array
    HF: Array
    HX: Array
    masses: Array
    AHX: Array
    AHH: Array
    terms: Array


@dataclass(frozen=True)
class RowSystem(RowLoop):
    """Statistic: `SystemSums`.

    Parameters
    ----------
    anchors : Anchors
        With the scaling of the features.
    W : float64 array, shape (d, q)
        Of scaled features.
    b : float64 array, shape (q,)
    U : float64 array, shape (m, q)
    kappa, weight : float
        κ and c.
    smoothing : float, optional
        e, where distances count and not their squares.
    eta : float, optional
        η, where anchors follow their rows and are η‖x − c_a‖² + ‖f − u_a‖² + θ‖(x − c_a)W‖² far from them.
    theta : float
        θ.
    """

    anchors: Anchors
    W: Array
    b: Array
    U: Array
    kappa: float
    weight: float
    smoothing: float | None = None
    eta: float | None = None
    theta: float = 0.0

    Sums = SystemSums
    scaled = ("XF", "HX", "AHX")

    @property
    def scaling(self) -> Scaling:  # type: ignore[override]
        assert self.anchors.centre is not None
        return Scaling(self.anchors.centre, self.anchors.factor)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        (d, q), m = self.W.shape, self.anchors.count
        moving = 0 if self.eta is None else m + 1
        return (d, q), (m + 1, q), (moving, d), (m + 1,), (m + 1, d), (m + 1, m + 1), (3,)

    def scratch_bytes(self, profile: Profile) -> int:
        (d, q), m, s = self.W.shape, self.anchors.count, self.anchors.neighbors
        rows = min(gates.GROUP_ROWS, profile.block_rows)
        # Products with a block are matrices of their own before they are added, scaled W and centres others.
        own = 16 * d * q + 28 * m * m
        weigh = self.anchors.scratch_bytes(profile) + self.kept_bytes(profile)
        if self.eta is not None:
            weigh = max(weigh, 16 * tile_rows(2 * m) * m + 16 * m * d)
        return int(group_scratch_bytes(profile, 10 * q) + 60 * rows * (s + 1) + weigh + own)

    @property
    def fixed_anchors(self) -> Anchors | None:
        return self.anchors if self.eta is None else None

    def add_rows(self, sums: SystemSums, X: Matrix, Y: sp.csr_array, Z: sp.csr_array | None = None) -> None:
        centre, entries, P = self.scaling.centre, Y.toarray(), self.forward(X)
        known, positive = entries >= 0, (entries > 0).astype(np.float64)
        F, G, graph = self._solve(X, P, positive, self.kappa * known, Z)
        P += self.b
        H = sp.csr_array(sp.hstack([np.ones((len(F), 1)), G], format="csr"))
        settled = known.all(axis=1) | ~known.any(axis=1)
        level = self.kappa * known[:, 0] + np.asarray(H.sum(axis=1)).ravel()
        AH = sp.csr_array(sp.diags_array(settled / level) @ H)
        self.backward(X, F, sums.XF)
        sums.HF[...] += H.T @ F
        if self.eta is not None:
            grouped_block(X, H, centre, sums.HX)
        sums.masses[...] += np.asarray(H.sum(axis=0)).ravel()
        grouped_block(X, AH, centre, sums.AHX)
        sums.AHH[...] += (H.T @ AH).toarray()
        missed = self.kappa * known * np.square(F - positive)
        sums.terms[...] += [np.square(P - F).sum(), missed.sum(), graph]

    @cached_property
    def _distance_terms(self) -> tuple[Array, Array, Array]:
        """Matrices by which rows and predictions have a part in squared distances, and the part of the anchors."""
        assert self.eta is not None
        C = self.anchors.centres
        predicted = C @ self.W
        squares = self.eta * squares_of(C) + squares_of(self.U) + self.theta * squares_of(predicted)
        return self.scaling.scale_rows(-2.0 * self.eta * C.T), squares, -2.0 * self.theta * predicted.T

    def _solve(
        self, X: Matrix, XW: Array, Y: Array, kappa: Array, Z: sp.csr_array | None
    ) -> tuple[Array, sp.csr_array, float]:
        """Return F of some rows, G, and the objective of the graph."""
        right = XW + self.b
        right += kappa * Y
        level = 1.0 + kappa
        if Z is not None:
            if self.smoothing is None:
                F = (right + self.weight * (Z @ self.U)) / (level + self.weight)
                G = self.weight * Z
                return F, G, _spread(G, F, self.U)
            F = right / level
            for _ in range(REWEIGHTINGS):
                G = self._reweighted(Z, F)
                F = (right + G @ self.U) / (level + np.asarray(G.sum(axis=1))[:, np.newaxis])
            lengths = np.sqrt(_distances(Z, F, self.U) + self.smoothing**2)
            return F, G, self.weight * float(Z.data @ lengths)
        (rows, m), s = (len(Y), self.anchors.count), self.anchors.neighbors
        indices, weights, F = np.zeros((rows, s), np.int32), np.ones((rows, s)), right / level
        columns, squares, predicted = self._distance_terms
        for part in row_groups(rows, tile_rows(2 * m)):  # so that distances stay in the second-level cache
            D, moved = np.empty((2, part.stop - part.start, m))
            forward_block(X[part], columns, self.scaling.centre, D)
            D += squares
            if self.theta > 0:
                D += XW[part] @ predicted
            for _ in range(TURNS):
                if m > 1:
                    np.matmul(F[part], -2.0 * self.U.T, out=moved)
                    moved += D
                    weigh_scores(moved, indices[part], weights[part])
                near = weights_to_csr(indices[part], weights[part], m) @ self.U
                F[part] = (right[part] + self.weight * near) / (level[part] + self.weight)
        G = self.weight * weights_to_csr(indices, weights, m)
        return F, G, _spread(G, F, self.U)

    def _reweighted(self, Z: sp.csr_array, F: Array) -> sp.csr_array:
        """Return weights by distances in place of their squares."""
        assert self.smoothing is not None
        lengths = np.sqrt(_distances(Z, F, self.U) + self.smoothing**2)
        return sp.csr_array((0.5 * self.weight * Z.data / lengths, Z.indices, Z.indptr), shape=Z.shape)


def _distances(Z: sp.csr_array, F: Array, U: Array) -> Array:
    """Return ‖f_i − u_a‖² of every entry of Z, which has as many in each row."""
    s = len(Z.data) // max(len(F), 1)
    near = Z.indices.reshape(len(F), s)
    squares = np.empty(near.shape)
    for j in range(s):
        apart = F - U[near[:, j]]
        squares[:, j] = np.einsum("ij,ij->i", apart, apart)
    return squares.ravel()


def _spread(G: sp.csr_array, F: Array, U: Array) -> float:
    """Return Σ_ia g_ia ‖f_i − u_a‖²."""
    return float(G.data @ _distances(G, F, U))


def settle_rows(system: RowSystem, sums: SystemSums) -> tuple[Array, Array, Array]:
    """Return b and U of least objective together with the labels that follow from them, and X'F of these labels.

    W and the rows' weights of anchors stay, and so do labels of rows that are known in part. With V = [b; U] the labels
    move by A H δV, so that (H'1)∘V = H'F, of which V is best, is m + 1 equations:
    (diag(H'1) − H'AH) δV = H'F − (H'1)∘V.

    Returns
    -------
    b : float64 array, shape (q,)
    U : float64 array, shape (m, q)
    XF : float64 array, shape (d, q)
    """
    V = np.concatenate([system.b[np.newaxis], system.U])
    used = sums.masses > 0  # an anchor of no row stays
    root = 1.0 / np.sqrt(sums.masses[used])[:, np.newaxis]
    # Scaled to a diagonal near 1, whatever the masses are.
    scaled = np.eye(len(root)) - sums.AHH[np.ix_(used, used)] * root * root.T
    moved = np.zeros_like(V)
    moved[used] = root * np.linalg.solve(scaled, root * (sums.HF - sums.masses[:, np.newaxis] * V)[used])
    V += moved
    return V[0], V[1:], sums.XF + sums.AHX.T @ moved
