"""Label-specific features of groups of rows: sums over the rows of each group, and over their latent labels.

A row belongs to its nearest centre g, whose rows have the mean labels m_g and the cosines R_g of labels. With
C_g = (1 − λ)I + λR_g and a_i = cos(y_i, m_g), the latent labels z of a row minimise
‖x_iV + b − z‖² + αa_i‖z − m_g‖² + ‖zC_g − y_i‖²: in the eigenvectors of C_g, with eigenvalues σ, they are
(x_iV + b + αa_im_g + y_iC_g) / (1 + αa_i + σ²). Nothing of a row is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.linear import group_scratch_bytes
from mlfs_dask.engine.statistic import State
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.products import drop_rounding
from mlfs_dask.statistics.row_loop import RowGroups, RowLoop
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Matrix


@dataclass(frozen=True)
class GroupedPairs(RowGroups):
    """Statistic: rows of every group, shape (g,), sums of Y over them, (g, q), and Y'Y, (g, q, q); Y as numbers.

    Parameters
    ----------
    centres : Anchors
        Of one neighbour.
    n_labels : int
    """

    centres: Anchors
    n_labels: int

    compiled = None

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        g, q = self.centres.count, self.n_labels
        return (g,), (g, q), (g, q, q)

    def scratch_bytes(self, profile: Profile) -> int:
        stored = 40 * profile.labels_of_row
        points = self.centres.scratch_bytes(profile) + self.kept_bytes(profile)
        return points + group_scratch_bytes(profile, 2) + stored * profile.block_rows + 24 * self.n_labels**2

    def zero(self) -> State:
        rows, *sums = self.shapes
        return np.zeros(rows, np.int64), *map(np.zeros, sums)

    @property
    def fixed_anchors(self) -> Anchors:
        return self.centres

    def add_rows(self, state: State, X: Matrix, Y: sp.csr_array, Z: sp.csr_array) -> None:
        rows, sums, pairs = state
        groups = Z.indices
        rows += np.bincount(groups, minlength=len(rows))
        numbers = Y.astype(np.float64)
        for g in np.unique(groups):
            own = numbers[groups == g]
            sums[g] += own.sum(axis=0)
            pairs[g] += (own.T @ own).toarray()


class GroupedSums(NamedTuple):
    """Sums over all rows, Z holding their latent labels.

    Attributes
    ----------
    XZ : float64 array, shape (d, q)
        X'Z of centred and scaled X.
    Z : float64 array, shape (q,)
        Z'1.
    loss : float64 array, shape (1,)
        Σ ‖x_iV + b − z_i‖² + αa_i‖z_i − m_g‖² + ‖z_iC_g − y_i‖².
    """

    XZ: Array
    Z: Array
    loss: Array


@dataclass(frozen=True)
class GroupedRows(RowLoop):
    """Statistic: `GroupedSums`.

    Parameters
    ----------
    scaling : Scaling
    centres : Anchors
        Of one neighbour; g of them.
    W : float64 array, shape (d, q)
        V, of scaled features.
    b : float64 array, shape (q,)
    means : float64 array, shape (g, q)
        m_g.
    values, vectors : float64 array, shapes (g, q) and (g, q, q)
        Eigenvalues and eigenvectors of C_g.
    alpha : float
    """

    scaling: Scaling
    centres: Anchors
    W: Array
    b: Array
    means: Array
    values: Array
    vectors: Array
    alpha: float

    Sums = GroupedSums
    scaled = ("XZ",)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.W.shape, self.b.shape, (1,)

    def scratch_bytes(self, profile: Profile) -> int:
        d, q = self.W.shape
        points = self.centres.scratch_bytes(profile) + self.kept_bytes(profile)
        return int(points + group_scratch_bytes(profile, 12 * q + 4) + 16 * d * q)

    @property
    def fixed_anchors(self) -> Anchors:
        return self.centres

    def add_rows(self, sums: GroupedSums, X: Matrix, Y: sp.csr_array, Z: sp.csr_array) -> None:
        numbers, groups = Y.toarray().astype(np.float64), Z.indices
        predictions, Z = self.predict(X), np.empty(numbers.shape)
        for g in np.unique(groups):
            rows = groups == g
            Z[rows], loss = self._latent(int(g), predictions[rows], numbers[rows])
            sums.loss[...] += loss
        self.backward(X, Z, sums.XZ)
        sums.Z[...] += Z.sum(axis=0)

    def _latent(self, g: int, predictions: Array, Y: Array) -> tuple[Array, float]:
        """Return latent labels of some rows of a group, shape (rows, q), and their loss."""
        m, values, E = self.means[g], self.values[g], self.vectors[g]
        sizes = np.sqrt(np.einsum("ij,ij->i", Y, Y) * (m @ m))
        weights = self.alpha * np.divide(Y @ m, sizes, out=np.zeros_like(sizes), where=sizes > 0)[:, np.newaxis]
        YE = Y @ E
        ZE = ((predictions + weights * m) @ E + values * YE) / (1.0 + weights + values**2)
        Z = ZE @ E.T
        loss = np.square(predictions - Z).sum() + (weights * np.square(Z - m)).sum()
        return Z, float(loss + np.square(values * ZE - YE).sum())

    def finalize(self, state: State) -> GroupedSums:
        sums: GroupedSums = super().finalize(state)
        return sums._replace(XZ=drop_rounding(sums.XZ, np.abs(sums.Z)))
