"""One iteration of mFSIR or CMFS in one pass: sums over the latent labels of all rows, which are not kept.

Given W, B and anchor values U, the latent labels v_i of a row minimise
‖x_iW − v‖² + α‖y_i − vB‖² + γ Σ_a z_ia ‖v − u_a‖² over v >= 0, that is v'Qv − 2r_i'v with Q = (1 + γ)I + αBB' and
r_i = W'x_i + αBy_i + γU'z_i. Where they are factors of X too, ‖x_i − vW'‖² takes the place of the first term, and W'W
that of I. The next W, B and U follow from a few small sums over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.factorisation import factors_from_pairs
from mlfs_dask.blocks.label_sets import LabelSets
from mlfs_dask.blocks.linear import group_scratch_bytes, grouped_block
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.row_loop import RowLoop
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Matrix

#: Sweeps of coordinate descent over a row's latent labels, from the unconstrained minimum clipped at 0.
SWEEPS = 4


class LatentSums(NamedTuple):
    """Sums over all rows, V holding their latent labels and Z their weights of anchors.

    Attributes
    ----------
    XV : float64 array, shape (d, l)
    XXW : float64 array, shape (d, l), or (0, 0)
        X'X W, where it is asked for.
    VV : float64 array, shape (l, l)
    VY : float64 array, shape (l, q)
    ZV : float64 array, shape (m, l)
    masses : float64 array, shape (m,)
        λ = Z'1.
    fit : float64 array, shape (1,)
        ‖X W − V‖²; of factors of X Σ_i Σ_a z_ia ‖v_i − u_a‖², with one anchor a row.
    V : float64 array, shape (l,)
        1'V.
    active : float64 array, shape (l, l)
        Rows in which two latent labels are positive.
    XY, ZX, ZY, ZZ : float64 array, shapes (d, q), (m, d), (m, q) and (m, m), or (0, 0)
        Moments, where they are asked for.
    """

    XV: Array
    XXW: Array
    VV: Array
    VY: Array
    ZV: Array
    masses: Array
    fit: Array
    V: Array
    active: Array
    XY: Array
    ZX: Array
    ZY: Array
    ZZ: Array


@dataclass(frozen=True)
class LatentRows(RowLoop):
    """Statistic: `LatentSums`.

    Parameters
    ----------
    scaling : Scaling
    anchors : Anchors, LabelSets or None
        None: without anchors, γ = 0. A row without an anchor has no term of them.
    W : float64 array, shape (d, l)
    B : float64 array, shape (l, q)
    U : float64 array, shape (m, l)
    alpha, gamma : float
    start : float64 array, shape (q, l), or None
        V = max(Y start, 0) in place of the minimum: for the first sums.
    with_normal : bool
        Whether X'X W is summed.
    factors : bool
        Whether latent labels are factors of X.
    moments : bool
        Whether moments of X, Y and Z are summed, too.
    """

    scaling: Scaling
    anchors: Anchors | LabelSets | None
    W: Array
    B: Array
    U: Array
    alpha: float
    gamma: float
    start: Array | None = None
    with_normal: bool = False
    factors: bool = False
    moments: bool = False

    Sums = LatentSums
    scaled = ("XV", "XXW", "XY", "ZX")

    @property
    def _width(self) -> int:
        return int((self.W if self.start is None else self.start).shape[1])

    @property
    def _m(self) -> int:
        return 0 if self.anchors is None else self.anchors.count

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        d, width, q, m = len(self.scaling.centre), self._width, self.B.shape[1], self._m
        normal = (d, width) if self.with_normal else (0, 0)
        moments = ((d, q), (m, d), (m, q), (m, m)) if self.moments else ((0, 0),) * 4
        return (
            (d, width),
            normal,
            (width, width),
            (width, q),
            (m, width),
            (m,),
            (1,),
            (width,),
            (width, width),
            *moments,
        )

    def scratch_bytes(self, profile: Profile) -> int:
        weigh = 0
        if isinstance(self.anchors, Anchors):
            weigh = self.anchors.scratch_bytes(profile) + self.kept_bytes(profile)
        elif self.anchors is not None:
            rows = min(gates.GROUP_ROWS, profile.block_rows)
            weigh = (48 + 24 * profile.labels_of_row) * rows  # keys and groups of rows
        product = 16 * profile.d * self._width * (1 + self.with_normal)
        if self.moments:
            q, rows = self.B.shape[1], min(gates.GROUP_ROWS, profile.block_rows)
            product += 8 * (rows * q + 2 * profile.d * q)
        return group_scratch_bytes(profile, 7 * self._width) + weigh + product

    @cached_property
    def _systems(self) -> list[tuple[Array, Array]]:
        """Q and its inverse of rows with an anchor, and of rows without; factors of X may be 0."""
        first = self.W.T @ self.W if self.factors else np.eye(len(self.B))
        systems = [latent_system(first, self.B, self.alpha, gamma) for gamma in (self.gamma, 0.0)]
        invert: Callable[[Array], Any] = partial(np.linalg.pinv, hermitian=True) if self.factors else np.linalg.inv
        return [(Q, invert(Q)) for Q in systems]

    @property
    def fixed_anchors(self) -> Anchors | None:
        return self.anchors if isinstance(self.anchors, Anchors) else None

    def add_rows(self, sums: LatentSums, X: Matrix, Y: sp.csr_array, Z: sp.csr_array | None = None) -> None:
        if isinstance(self.anchors, LabelSets):
            Z = self.anchors.members(Y)
        XW = self.forward(X)
        V = self._solve(XW, Y, Z) if self.start is None else np.maximum(Y @ self.start, 0.0)
        if self.with_normal:
            self.backward(X, XW, sums.XXW)
        self.backward(X, V, sums.XV)
        sums.V[...] += V.sum(axis=0)
        sums.VV[...] += V.T @ V
        sums.VY[...] += (Y.T @ V).T
        positive = (V > 0).astype(np.float64)
        sums.active[...] += positive.T @ positive
        if self.moments:
            self.backward(X, Y.toarray().astype(np.float64), sums.XY)
            if Z is not None:
                grouped_block(X, Z, self.scaling.centre, sums.ZX)
                sums.ZY[...] += (Z.T @ Y).toarray()
                sums.ZZ[...] += Z.T @ Z
        if Z is not None:
            sums.ZV[...] += Z.T @ V
            sums.masses[...] += np.asarray(Z.sum(axis=0)).ravel()
        if self.start is not None:
            return
        if not self.factors:
            XW -= V
            sums.fit[0] += np.vdot(XW, XW)
        elif Z is not None:
            apart = (V - Z @ self.U)[np.diff(Z.indptr) > 0]
            sums.fit[0] += np.vdot(apart, apart)

    def _solve(self, XW: Array, Y: sp.csr_array, Z: sp.csr_array | None) -> Array:
        right: Array = XW + Y @ (self.alpha * self.B.T)
        anchored = np.ones(len(right), dtype=bool)
        if Z is not None:
            right += Z @ (self.gamma * self.U)
            anchored = np.diff(Z.indptr) > 0
        V = np.empty_like(right)
        for rows, (Q, inverse) in zip((anchored, ~anchored), self._systems, strict=True):
            if rows.any():
                of_rows = right[rows]
                found: Array = of_rows @ inverse  # the unconstrained minimum
                np.maximum(found, 0.0, out=found)
                if gates.compiles_rows(len(right)):
                    from mlfs_dask.blocks.latent_rows_compiled import sweep_nonnegative

                    sweep_nonnegative(found, of_rows, Q, SWEEPS)
                else:
                    for j in list(range(len(Q))) * SWEEPS:
                        found[:, j] -= (found @ Q[j] - of_rows[:, j]) / Q[j, j]
                        np.maximum(found[:, j], 0.0, out=found[:, j])
                V[rows] = found
        return V


def latent_system(first: Array, B: Array, alpha: float, gamma: float) -> Array:
    """Return Q = first + γI + αBB', shape (l, l).

    >>> latent_system(np.eye(1), np.array([[3.0, 4.0]]), 2.0, 0.5)
    array([[51.5]])
    """
    return alpha * (B @ B.T) + (first + gamma * np.eye(len(B)))


def first_factors(pairs: Array, most: int, read: Callable[[Array], LatentSums]) -> tuple[Array, LatentSums]:
    """Return B of a non-negative factorisation Y ≈ VB, and the sums for its V.

    Parameters
    ----------
    pairs : float64 array, shape (q, q)
        Y'Y.
    most : int
        Latent labels.
    read : callable
        ``read(start)`` makes the pass of `LatentRows` with that start.
    """
    found: list[tuple[LatentSums, Array]] = []

    def part_sizes(T: Array) -> Array:
        # The sign of each column of T follows from sums over the rows: this pass sums for both signs.
        sums = read(np.concatenate([T, -T], axis=1))
        found.append((sums, T))
        return np.diag(sums.VV).reshape(2, T.shape[1])

    T, B = factors_from_pairs(pairs, part_sizes, most)
    if not found:  # no label occurs
        part_sizes(T)
    sums, directions = found[0]
    # The sums for V = max(Y T, 0) from those for max(Y [E, −E], 0): a column of T is one of E times a number.
    size = np.einsum("ij,ij->j", T, directions)
    chosen = np.where(size < 0, size.size, 0) + np.arange(size.size)
    size = np.abs(size)
    return B, sums._replace(
        XV=sums.XV[:, chosen] * size,
        VV=sums.VV[np.ix_(chosen, chosen)] * np.outer(size, size),
        VY=sums.VY[chosen] * size[:, np.newaxis],
        ZV=sums.ZV[:, chosen] * size,
        V=sums.V[chosen] * size,
    )
