"""One iteration of mFSIR in one reading: sums over the latent labels of all rows, which are not kept.

Given W, B and anchor values U, the latent labels v_i of a row minimise
‖x_iW − v‖² + α‖y_i − vB‖² + γ Σ_a z_ia ‖v − u_a‖² over v >= 0, that is v'Qv − 2r_i'v with Q = (1 + γ)I + αBB' and
r_i = W'x_i + αBy_i + γU'z_i. The next W, B and U follow from a few small sums over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors, weigh_scratch_bytes
from mlfs_dask.blocks.linear import backward_block, forward_block, group_scratch_bytes, row_groups
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Matrix

Array = NDArray[np.float64]

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
        ‖X W − V‖².
    """

    XV: Array
    XXW: Array
    VV: Array
    VY: Array
    ZV: Array
    masses: Array
    fit: Array


@dataclass(frozen=True)
class LatentRows(Statistic):
    """Statistic: `LatentSums`.

    Parameters
    ----------
    scaling : Scaling
    anchors : Anchors or None
        None: without anchors, γ = 0.
    W : float64 array, shape (d, l)
    B : float64 array, shape (l, q)
    U : float64 array, shape (m, l)
    alpha, gamma : float
    start : float64 array, shape (q, l), or None
        V = max(Y start, 0) in place of the minimum: for the first sums.
    with_normal : bool
        Whether X'X W is summed.
    """

    scaling: Scaling
    anchors: Anchors | None
    W: Array
    B: Array
    U: Array
    alpha: float
    gamma: float
    start: Array | None = None
    with_normal: bool = False

    compiled = True

    @property
    def _width(self) -> int:
        return int((self.W if self.start is None else self.start).shape[1])

    @property
    def _m(self) -> int:
        return 0 if self.anchors is None else self.anchors.count

    @property
    def state_bytes(self) -> int:
        d, width, q = len(self.scaling.centre), self._width, self.B.shape[1]
        return 8 * int(d * width * (1 + self.with_normal) + width * (width + q) + self._m * (width + 1) + 1)

    @property
    def parameter_bytes(self) -> int:
        total = sum(a.nbytes for a in (self.W, self.B, self.U, self.scaling.centre, self.scaling.factor))
        total += 0 if self.start is None else self.start.nbytes
        return total + (0 if self.anchors is None else self.anchors.nbytes)

    def scratch_bytes(self, profile: Profile) -> int:
        d = profile.d
        weigh = 0 if self.anchors is None else weigh_scratch_bytes(profile, d, self._m, self.anchors.neighbors)
        product = 16 * d * self._width * (1 + self.with_normal)
        return group_scratch_bytes(profile, 5 * self._width) + weigh + product

    def zero(self) -> State:
        d, width, q = len(self.scaling.centre), self._width, self.B.shape[1]
        normal = (d, width) if self.with_normal else (0, 0)
        shapes = ((d, width), normal, (width, width), (width, q), (self._m, width), (self._m,), (1,))
        return tuple(np.zeros(shape) for shape in shapes)

    def add(self, state: State, block: Block) -> None:
        sums = LatentSums(*state)
        W = self.scaling.scale_rows(self.W)
        Q = latent_system(self.B, self.alpha, self.gamma)
        inverse: Array = np.linalg.inv(Q).astype(np.float64, copy=False)
        for part in row_groups(block.X.shape[0]):
            self._add_rows(sums, block.X[part], block.Y[part], W, Q, inverse)

    def _add_rows(self, sums: LatentSums, X: Matrix, Y: sp.csr_array, W: Array, Q: Array, inverse: Array) -> None:
        centre = self.scaling.centre
        Z = None if self.anchors is None else self.anchors.weigh(X)
        XW = np.empty((X.shape[0], W.shape[1]))
        forward_block(X, W, centre, XW)
        V = self._solve(XW, Y, Z, Q, inverse) if self.start is None else np.maximum(Y @ self.start, 0.0)
        if self.with_normal:
            product = np.zeros((len(centre), V.shape[1] + XW.shape[1]))
            backward_block(X, np.concatenate([V, XW], axis=1), centre, product)
            sums.XV[...] += product[:, : V.shape[1]]
            sums.XXW[...] += product[:, V.shape[1] :]
        else:
            backward_block(X, V, centre, sums.XV)
        sums.VV[...] += V.T @ V
        sums.VY[...] += (Y.T @ V).T
        if Z is not None:
            sums.ZV[...] += Z.T @ V
            sums.masses[...] += np.asarray(Z.sum(axis=0)).ravel()
        if self.start is None:
            XW -= V
            sums.fit[0] += np.vdot(XW, XW)

    def _solve(self, XW: Array, Y: sp.csr_array, Z: sp.csr_array | None, Q: Array, inverse: Array) -> Array:
        from mlfs_dask.blocks.latent_rows_compiled import sweep_nonnegative

        right: Array = XW + Y @ (self.alpha * self.B.T)
        if Z is not None:
            right += Z @ (self.gamma * self.U)
        V: Array = right @ inverse  # the unconstrained minimum; eigenvalues of Q are at least 1
        np.maximum(V, 0.0, out=V)
        sweep_nonnegative(V, right, Q, SWEEPS)
        return V

    def finalize(self, state: State) -> LatentSums:
        sums = LatentSums(*state)
        return sums._replace(
            XV=self.scaling.scale_rows(sums.XV),
            XXW=self.scaling.scale_rows(sums.XXW) if self.with_normal else sums.XXW,
        )


def latent_system(B: Array, alpha: float, gamma: float) -> Array:
    """Q = (1 + γ)I + αBB', shape (l, l).

    >>> latent_system(np.array([[3.0, 4.0]]), 2.0, 0.5)
    array([[51.5]])
    """
    Q: Array = alpha * (B @ B.T) + (1.0 + gamma) * np.eye(len(B))
    return Q
