"""Label propagation through anchors in closed form: sums of one pass, from which labels of all rows follow.

F = A S F + (I − A) Y₀ with S = ZΛ⁻¹Z', Z holding the rows' weights of anchors and Λ = diag(Z'1). Y₀ has the labels of a
labelled row, divided by their sum, and A is 0 for it; for other rows Y₀ is 0 and A is α. The values U = Λ⁻¹Z'F of the
anchors are all that has to be solved for: (Λ − αZ'Z) U = Z'Y₀, with Z'Z of the unlabelled rows, and then f_i is Y₀ in
labelled rows and αU'z_i in the others. X'F is linear in U too. D. Zhou, O. Bousquet, T. N. Lal, J. Weston,
B. Schölkopf, "Learning with local and global consistency", NIPS 16 (2004) 321-328.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import Anchors, propagate_to_anchors
from mlfs_dask.blocks.linear import (
    backward_block,
    gram_block,
    group_scratch_bytes,
    grouped_block,
    leaves_cache,
    symmetrise,
)
from mlfs_dask.engine.statistic import State
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.gram import gram_scratch
from mlfs_dask.statistics.labelled import labelled_rows
from mlfs_dask.statistics.products import drop_rounding
from mlfs_dask.statistics.row_loop import RowGroups
from mlfs_dask.typing import Array, Matrix


class PropagationSums(NamedTuple):
    """Sums over labelled rows and over the others, Z holding their weights of anchors.

    Attributes
    ----------
    ZX : float64 array, shape (2, m, d)
        Z'(X − centre) of the labelled rows and of the others.
    masses : float64 array, shape (2, m)
        Z'1 of the same.
    ZZ : float64 array, shape (m, m)
        Z'Z of the rows that are not labelled.
    ZY : float64 array, shape (m, q)
        Z'Y₀.
    XY : float64 array, shape (d, q)
        (X − centre)'Y₀.
    Y : float64 array, shape (q,)
        Y₀'1.
    """

    ZX: Array
    masses: Array
    ZZ: Array
    ZY: Array
    XY: Array
    Y: Array

    def anchor_labels(self, alpha: float) -> Array:
        """Return αU, shape (m, q); 0 for anchors of no row."""
        U = propagate_to_anchors(self.masses.sum(axis=0), alpha * self.ZZ, self.ZY, unreached=0.0)
        return alpha * np.maximum(U, 0.0)  # none is negative, but for rounding

    def of_all_rows(self) -> AnchorTotals:
        """Return Z'X and Z'1 of the rows together."""
        m, q = self.ZY.shape
        return AnchorTotals(self.ZX.sum(axis=0), self.masses.sum(axis=0), np.empty((0, 0)), np.empty((m, q)))

    def label_sums(self, anchor_labels: Array, factor: Array) -> tuple[Array, Array]:
        """Return X'F of standardised X, shape (d, q), and N = F'1, for the labels αU of the anchors; Z'X is
        standardised.
        """
        XF = factor[:, np.newaxis] * self.XY + self.ZX[1].T @ anchor_labels
        N = self.Y + self.masses[1] @ anchor_labels
        return drop_rounding(XF, np.sqrt(self.masses.sum() * N)), N


def label_shares(Y: sp.csr_array) -> Array:
    """Return labels of labelled rows, divided by their sum, shape (rows, q); 0 in the other rows.

    >>> label_shares(sp.csr_array(np.array([[1, 1], [1, -1], [0, 0]], np.int8))).tolist()
    [[0.5, 0.5], [0.0, 0.0], [0.0, 0.0]]
    """
    shares: Array = ((Y.toarray() > 0) & labelled_rows(Y)[:, np.newaxis]).astype(np.float64)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    return shares


@dataclass(frozen=True)
class PropagatedLabels(RowGroups):
    """Statistic: `PropagationSums`.

    Parameters
    ----------
    anchors : Anchors
    n_labels : int
    """

    anchors: Anchors
    n_labels: int

    @property
    def compiled(self) -> bool | None:  # type: ignore[override]
        return leaves_cache(self.anchors.centres.shape[1] * self.n_labels) or None

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        (m, d), q = self.anchors.centres.shape, self.n_labels
        return (2, m, d), (2, m), (m, m), (m, q), (d, q), (q,)

    def scratch_bytes(self, profile: Profile) -> int:
        (m, d), q = self.anchors.centres.shape, self.n_labels
        # Products with a block are matrices of their own before they are added.
        own: int = 8 * m * (2 * m + q) + 8 * d * q + self.anchors.scratch_bytes(profile)
        return group_scratch_bytes(profile, 2 * q + 2) + own

    def sums_of(self, state: State) -> PropagationSums:
        return PropagationSums(*state)

    def add_rows(self, sums: PropagationSums, X: Matrix, Y: sp.csr_array) -> None:
        m = self.anchors.count
        Z, labelled, shares = self.anchors.weigh(X), labelled_rows(Y), label_shares(Y)
        others = Z[~labelled]
        sums.ZZ[...] += (others.T @ others).toarray()
        sums.ZY[...] += Z.T @ shares
        backward_block(X, shares, self.anchors.centre, sums.XY)
        sums.Y[...] += shares.sum(axis=0)
        # The anchors of rows that are not labelled count as others.
        columns = Z.indices + np.repeat(m * ~labelled, np.diff(Z.indptr))
        Z = sp.csr_array((Z.data, columns, Z.indptr), shape=(Z.shape[0], 2 * m))
        grouped_block(X, Z, self.anchors.centre, sums.ZX.reshape(2 * m, -1))
        sums.masses[...] += np.asarray(Z.sum(axis=0)).reshape(2, m)


@dataclass(frozen=True)
class PropagatedGram(RowGroups):
    """Statistic: (X − centre)'S(X − centre), shape (d, d), S holding the sums F1 of the propagated labels of the rows.

    Parameters
    ----------
    anchors : Anchors
    weights : float64 array, shape (m,)
        αU1.
    """

    anchors: Anchors
    weights: Array

    compiled = None

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.anchors.centres.shape[1],) * 2,)

    def scratch_bytes(self, profile: Profile) -> int:
        d = self.anchors.centres.shape[1]
        own = self.anchors.scratch_bytes(profile) + group_scratch_bytes(profile, 4)
        # Rows without a weight are left out of a copy.
        rows = min(gates.GROUP_ROWS, profile.block_rows)
        return gram_scratch(profile, d) + -(-profile.block_bytes * rows // max(profile.block_rows, 1)) + own

    def add_rows(self, state: State, X: Matrix, Y: sp.csr_array) -> None:
        weights = np.where(labelled_rows(Y), np.diff(Y.indptr) > 0, self.anchors.weigh(X) @ self.weights)
        gram_block(X, weights, self.anchors.centre, state[0])

    def finalize(self, state: State) -> Array:
        G: Array = state[0].copy()
        symmetrise(G)
        return G
