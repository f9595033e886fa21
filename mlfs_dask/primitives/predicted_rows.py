"""One iteration of Access-MFS over the rows: every row's predicted labels from the small variables, added to sums.

Given W, b, L_p and anchors [u_a, t_a], the predicted labels of a row follow in turn with its weights of anchors:
z_i from the distances ½(‖f − u_a‖² + ‖x_iW − t_a‖²), and f (( 1 + θ)I + K_i + μL_p) = x_iW + b + K_i y_i + θU'z_i,
K_i marking the known labels of the row. The turns begin with the f of θ = 0, so that a row need not be remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors, weigh_scratch_bytes
from mlfs_dask.blocks.linear import DenseTile, row_tiles, tile_rows, tile_scratch_bytes
from mlfs_dask.primitives.passes import State, Statistic
from mlfs_dask.primitives.scaling import Scaling
from mlfs_dask.solvers.duplicate_labels import DuplicateLabels
from mlfs_dask.typing import Block, Profile

Array = NDArray[np.float64]

#: Turns of a row's weights and its predicted labels.
TURNS = 3


class PredictedSums(NamedTuple):
    """Sums over all rows, F holding their predicted labels and Z their weights of anchors.

    Attributes
    ----------
    XF : float64 array, shape (d, q)
    ZX : float64 array, shape (m, d)
    ZF : float64 array, shape (m, q)
    masses : float64 array, shape (m,)
        λ = Z'1.
    FF : float64 array, shape (q, q)
    total : float64 array, shape (q,)
        1'F.
    terms : float64 array, shape (3,)
        ‖X W − F‖², ‖K∘(F − Y)‖² and ‖X W‖².
    """

    XF: Array
    ZX: Array
    ZF: Array
    masses: Array
    FF: Array
    total: Array
    terms: Array


@dataclass(frozen=True)
class RowPrediction:
    """The small variables from which the labels of a row are predicted.

    Attributes
    ----------
    W : float64 array, shape (d, q)
        For standardised rows.
    mean : float64 array, shape (q,)
        b, the mean of F.
    U, T : float64 array, shape (m, q)
        Values of the anchors: of F, and of X W. m may be 0.
    coupling : float64 array, shape (q, q)
        μL_p.
    theta : float
    neighbors : int
        Nearest anchors that a row belongs to.
    duplicates : DuplicateLabels
        q counts its groups.
    unlabelled_without_positive : bool
        Whether nothing is known of rows without a positive label.
    """

    W: Array
    mean: Array
    U: Array
    T: Array
    coupling: Array
    theta: float
    neighbors: int
    duplicates: DuplicateLabels
    unlabelled_without_positive: bool = False

    def labels(self, Y: sp.csr_array) -> tuple[Array, NDArray[np.bool_]]:
        """Known positives with the lengths of their groups, and which labels are known, both of shape (rows, q)."""
        dense = Y[:, self.duplicates.first].toarray() if not self.duplicates.distinct else Y.toarray()
        known = dense >= 0
        if self.unlabelled_without_positive:
            positive = np.zeros(Y.shape[0], dtype=bool)
            positive[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))[Y.data > 0]] = True
            known &= positive[:, np.newaxis]
        return np.maximum(dense, 0) * np.sqrt(self.duplicates.sizes), known

    def predict(self, XW: Array, Y: Array, known: NDArray[np.bool_]) -> tuple[Array, sp.csr_array | None]:
        """F of some rows, shape (rows, q), and Z, shape (rows, m), or None without anchors.

        Parameters
        ----------
        XW : float64 array, shape (rows, q)
        Y : float64 array, shape (rows, q)
        known : bool array, shape (rows, q)
        """
        target = XW + self.mean
        target += known * Y
        F = self._solve(None, target, known, 1.0)
        if not len(self.U):
            return F, None
        ones = np.ones(2 * F.shape[1])
        anchors = Anchors(np.concatenate([self.U, self.T], axis=1), 0.0 * ones, ones, self.neighbors)
        Z = None
        for _ in range(TURNS):
            Z = anchors.weigh(DenseTile(slice(0, len(F)), np.concatenate([F, XW], axis=1)))
            F = self._solve(F, target + Z @ (self.theta * self.U), known, 1.0 + self.theta)
        return F, Z

    def _solve(self, start: Array | None, right: Array, known: NDArray[np.bool_], level: float) -> Array:
        """F of F(level·I + K + coupling) = right: for rows of which all or nothing is known by two inverses."""
        from mlfs_dask.blocks.predicted_rows_compiled import solve_rows

        q = len(self.coupling)
        count = known.sum(axis=1)
        F = np.empty_like(right)
        for rows, diagonal in ((count == 0, level), (count == q, level + 1.0)):
            if rows.all():
                return right @ np.linalg.inv(self.coupling + diagonal * np.eye(q))
            if rows.any():
                F[rows] = right[rows] @ np.linalg.inv(self.coupling + diagonal * np.eye(q))
        partly = np.flatnonzero((count > 0) & (count < q))
        if len(partly):
            F[partly] = right[partly] / (level + 1.0) if start is None else start[partly]
            solved = F[partly]
            solve_rows(solved, right[partly], known[partly], self.coupling, level)
            F[partly] = solved
        return F


@dataclass(frozen=True)
class PredictedRows(Statistic):
    """Statistic: `PredictedSums`.

    Parameters
    ----------
    scaling : Scaling
    prediction : RowPrediction
    """

    scaling: Scaling
    prediction: RowPrediction

    compiled = True

    @property
    def _sizes(self) -> tuple[int, int, int]:
        d, q = self.prediction.W.shape
        return d, q, len(self.prediction.U)

    @property
    def state_bytes(self) -> int:
        d, q, m = self._sizes
        return 8 * (d * q + m * (d + q + 1) + q * (q + 1) + 3)

    @property
    def result_bytes(self) -> int:
        return self.state_bytes

    @property
    def parameter_bytes(self) -> int:
        d, q, m = self._sizes
        return 8 * (d * q + 2 * d + 2 * m * q + q * q)

    def scratch_bytes(self, profile: Profile) -> int:
        d, q, m = self._sizes
        rows = profile.block_rows if profile.sparse else tile_rows(d)
        points = 8 * rows * 2 * q + (weigh_scratch_bytes(profile, rows, m, self.prediction.neighbors) + 4 * rows * m)
        grouped = 12 * min(m * d, profile.block_values * self.prediction.neighbors) if profile.sparse else 8 * m * d
        return tile_scratch_bytes(profile, 6 * q) + points + grouped + 16 * d * q

    def zero(self) -> State:
        d, q, m = self._sizes
        return tuple(np.zeros(shape) for shape in ((d, q), (m, d), (m, q), (m,), (q, q), (q,), (3,)))

    def add(self, state: State, block: Block) -> None:
        sums, prediction = PredictedSums(*state), self.prediction
        W = self.scaling.scale_rows(prediction.W)
        for tile in row_tiles(block.X, self.scaling.centre):
            Y, known = prediction.labels(block.Y[tile.part])
            XW = tile.forward(W)
            F, Z = prediction.predict(XW, Y, known)
            tile.add_backward(F, sums.XF)
            if Z is not None:
                tile.add_grouped(Z, sums.ZX)
                sums.ZF[...] += Z.T @ F
                sums.masses[...] += np.asarray(Z.sum(axis=0)).ravel()
            sums.FF[...] += F.T @ F
            sums.total[...] += F.sum(axis=0)
            missed = known * (F - Y)
            sums.terms[...] += [np.square(XW - F).sum(), np.square(missed).sum(), np.square(XW).sum()]

    def finalize(self, state: State) -> PredictedSums:
        sums, factor = PredictedSums(*state), self.scaling.factor
        return sums._replace(XF=self.scaling.scale_rows(sums.XF), ZX=sums.ZX * factor)
