"""Z'X, Z'1, Z'Z and Z'Y of an anchor graph in one pass, from which X'SX = (Z'X)'Λ⁻¹Z'X follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.linear import group_scratch_bytes, grouped_block
from mlfs_dask.blocks.products import positives_block
from mlfs_dask.blocks.unknown import no_labels, with_unknown_columns
from mlfs_dask.engine.statistic import State
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.row_loop import RowGroups
from mlfs_dask.typing import Array, Matrix


class AnchorTotals(NamedTuple):
    """Sums over all rows, Z holding their weights of anchors.

    Attributes
    ----------
    ZX : float64 array, shape (m, d)
        Z'(X − centre).
    masses : float64 array, shape (m,)
        λ = Z'1.
    ZZ : float64 array, shape (m, m)
        Z'Z; empty where no labels are summed.
    ZY : float64 array, shape (m, q)
        Z'Y of positive entries, and of unknown ones at the share of the known rows that have the label.
    """

    ZX: Array
    masses: Array
    ZZ: Array
    ZY: Array

    @property
    def inverse_masses(self) -> Array:
        """The diagonal of Λ⁻¹, shape (m,); 0 for anchors of no row."""
        return np.divide(1.0, self.masses, out=np.zeros_like(self.masses), where=self.masses > 0)


@dataclass(frozen=True)
class AnchorSums(RowGroups):
    """Statistic: `AnchorTotals`.

    Parameters
    ----------
    anchors : Anchors
    n_labels : int
        q, where Z'Z and Z'Y are summed too.
    unknown : int64 array, shape (u,), optional
        Labels that may have unknown entries, rising.
    """

    anchors: Anchors
    n_labels: int = 0
    unknown: NDArray[np.int64] = field(default_factory=no_labels)

    compiled = None

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        (m, d), q = self.anchors.centres.shape, self.n_labels + len(self.unknown)
        return (m, d), (m,), (m, m) if q else (0, 0), (m, q)

    def scratch_bytes(self, profile: Profile) -> int:
        m = self.anchors.count
        # Products with a block are matrices of their own before they are added.
        labels = 16 * m * (m + self.n_labels + len(self.unknown)) if self.n_labels else 0
        labels += (12 + 18 * (len(self.unknown) > 0)) * profile.labels_of_row * profile.block_rows
        own: int = labels + self.anchors.scratch_bytes(profile)
        return group_scratch_bytes(profile, 1) + own

    def sums_of(self, state: State) -> AnchorTotals:
        return AnchorTotals(*state)

    def add_rows(self, sums: AnchorTotals, X: Matrix, Y: sp.csr_array) -> None:
        Z = self.anchors.weigh(X)
        grouped_block(X, Z, self.anchors.centre, sums.ZX)
        sums.masses[...] += np.asarray(Z.sum(axis=0)).ravel()
        if self.n_labels:
            sums.ZZ[...] += (Z.T @ Z).toarray()
            labels = with_unknown_columns(Y, self.unknown) if len(self.unknown) else positives_block(Y)
            ZY = Z.T @ labels
            sums.ZY[...] += ZY.toarray() if sp.issparse(ZY) else ZY

    def finalize(self, state: State) -> AnchorTotals:
        sums, q = AnchorTotals(*state), self.n_labels
        if not len(self.unknown):
            return sums
        # Rows of Z sum to 1.
        ZY, of_unknown = sums.ZY[:, :q].copy(), sums.ZY[:, q:]
        known = sums.masses.sum() - of_unknown.sum(axis=0)
        positives = ZY[:, self.unknown].sum(axis=0)
        ZY[:, self.unknown] += of_unknown * np.divide(positives, known, out=np.zeros_like(known), where=known > 0.5)
        return sums._replace(ZY=ZY)
