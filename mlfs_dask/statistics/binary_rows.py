"""One iteration of a regression on labels 0 and 1 of all rows, which a graph of anchors makes alike, in one pass.

Given W, b and values U of the anchors, the labels f of a row minimise
s √(‖x_iW + b − f‖² + e²) + κ Σ_known (f_l − y_l)² + c Σ_a z_a ‖f − u_a‖² + Σ_unknown τ_l f_l over {0, 1}. With the
weight ω = s/(2√…) of the row its labels do not interact: f_l is 1 where ω (2 x_iW + 2b − 1)_l + κ_l (2y − 1)_l +
c (2ZU − 1)_l is at least τ_l, or 0 of a known label. Weights and labels are made in turn, from ω = 1. With τ = 0 that
is the least objective; other τ are what a label's share of ones is held at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.linear import group_scratch_bytes
from mlfs_dask.blocks.rounding import SAME
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.reweighted_rows import ReweightedRows, WeightedSums
from mlfs_dask.statistics.row_system import TURNS
from mlfs_dask.statistics.sample import SampledRows
from mlfs_dask.typing import Array, Matrix


class BinarySums(NamedTuple):
    """Sums over all rows, F holding their labels, Z their weights of anchors.

    Attributes
    ----------
    XX, XY, X, Y, total, loss : float64 array
        `WeightedSums` with F in the place of Y, of the losses s √(‖r_i‖² + e²).
    ZF : float64 array, shape (m, q)
    masses : float64 array, shape (m,)
        Z'1.
    terms : float64 array, shape (2,)
        κ Σ_known (f_il − y_il)² and c Σ_ia z_ia ‖f_i − u_a‖².
    """

    XX: Array
    XY: Array
    X: Array
    Y: Array
    total: Array
    loss: Array
    ZF: Array
    masses: Array
    terms: Array

    @property
    def rows(self) -> WeightedSums:
        """Sums of the regression on F."""
        return WeightedSums(*self[:-3])


@dataclass(frozen=True, kw_only=True)
class BinaryRows(ReweightedRows):
    """Statistic: `BinarySums`.

    Parameters
    ----------
    anchors : Anchors
        With the scaling of the features.
    U : float64 array, shape (m, q)
    kappa, weight, scale : float
        κ, c and s.
    thresholds : float64 array, shape (3, q)
        τ of every turn.
    unsupervised : bool
        Whether F has nothing to do with Y, and q counts its bits.
    """

    anchors: Anchors
    U: Array
    kappa: float
    weight: float
    scale: float
    thresholds: Array
    unsupervised: bool = False

    weighs_anchors = True
    Sums = BinarySums  # type: ignore[assignment]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        m, q = self.U.shape
        return *super().shapes, (m, q), (m,), (2,)

    def scratch_bytes(self, profile: Profile) -> int:
        own = group_scratch_bytes(profile, 8 * len(self.b)) + self.anchors.scratch_bytes(profile)
        own += self.kept_bytes(profile)
        return super().scratch_bytes(profile) + own

    def _known(self, Y: sp.csr_array) -> tuple[NDArray[np.bool_], Array]:
        """Return a mask of the known labels of some rows, and 1 for positive labels, both of shape (rows, q)."""
        shape = Y.shape[0], len(self.b)
        entries = np.full(shape, -1, np.int8) if self.unsupervised else Y.toarray()
        return entries >= 0, (entries > 0).astype(np.float64)

    @property
    def fixed_anchors(self) -> Anchors:
        return self.anchors

    def add_rows(self, sums: BinarySums, X: Matrix, Y: sp.csr_array, Z: Any = None) -> None:
        known, positive = self._known(Y)
        F, weights, loss, _ = self._decide(known, positive, self.predict(X), Z)
        sums.ZF[...] += Z.T @ F
        sums.masses[...] += np.asarray(Z.sum(axis=0)).ravel()
        spread = F.sum() + (Z @ np.square(self.U).sum(axis=1)).sum() - 2.0 * np.vdot(F, Z @ self.U)
        sums.terms[...] += [self.kappa * np.square(F - positive)[known].sum(), self.weight * spread]
        self.add_weighted(sums.rows, X, F, weights, loss)

    def _decide(
        self, known: NDArray[np.bool_], Y: Array, predictions: Array, Z: sp.csr_array, shares: Array | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Return F of some rows, their weights and losses, and τ of every turn; where shares are given, τ is found."""
        settled = self.weight * (2.0 * (Z @ self.U) - 1.0)
        settled += self.kappa * known * (2.0 * Y - 1.0)
        weights, thresholds = np.ones(len(Y)), self.thresholds.copy()
        for turn in range(TURNS):
            margins = weights[:, np.newaxis] * (2.0 * predictions - 1.0) + settled
            if shares is not None:
                thresholds[turn] = [
                    share_threshold(margins[~known[:, label], label], share) for label, share in enumerate(shares)
                ]
            F = (margins >= np.where(known, 0.0, thresholds[turn])).astype(np.float64)
            weights, loss = self._weigh(predictions - F)
        return F, weights, loss, thresholds

    def thresholds_of(self, sample: SampledRows, shares: Array) -> Array:
        """Return τ at which the labels have such shares of the unknown entries of a sample, shape (3, q)."""
        known, Y = self._known(sample.Y)
        return self._decide(known, Y, self.predict(sample.X), self.anchors.weigh(sample.X), shares)[-1]

    def _weigh(self, residual: Array) -> tuple[Array, Array]:
        weights, loss = super()._weigh(residual)
        return self.scale * weights, self.scale * loss


def share_threshold(margins: Array, share: float) -> float:
    """Return a threshold between two margins that leaves the given share of them above; 0 without margins.

    >>> share_threshold(np.array([3.0, 1.0, 1.0, 0.5]), 0.25), share_threshold(np.array([3.0, 1.0]), 0.0)
    (2.0, 4.0)
    """
    if not len(margins):
        return 0.0
    falling = np.sort(margins)[::-1]
    edges = np.concatenate([[falling[0] + 1.0], 0.5 * (falling[1:] + falling[:-1]), [falling[-1] - 1.0]])
    apart = np.concatenate([[True], falling[:-1] - falling[1:] > SAME * np.abs(falling).max(), [True]])
    counts = np.flatnonzero(apart)
    return float(edges[counts[np.argmin(np.abs(counts - share * len(margins)))]])
