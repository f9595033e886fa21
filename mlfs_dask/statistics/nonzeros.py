"""Numbers of nonzero values of features, in the rows of each label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.products import positives_block, weighted_block
from mlfs_dask.blocks.unknown import no_labels, with_unknown_columns
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.typing import Array


@dataclass(frozen=True)
class NonzeroCounts(Statistic):
    """Statistic: rows in which features are not 0, float64, shape (1 + q + u, d); of weighted rows their weights.

    The first row counts all rows, the next q the rows with each label, the last u the rows where a label is unknown.

    Parameters
    ----------
    n_features, n_labels : int
    unknown : int64 array, shape (u,), optional
        Labels that may have unknown entries, ascending.
    """

    n_features: int
    n_labels: int
    unknown: NDArray[np.int64] = field(default_factory=no_labels)

    kind = "nonzeros"
    state_names = ("counts",)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"unknown": self.unknown} if len(self.unknown) else {}

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((1 + self.n_labels + len(self.unknown), self.n_features),)

    def scratch_bytes(self, profile: Profile) -> int:
        q = self.n_labels + len(self.unknown)
        labels = 60 * min(profile.label_nonzeros, profile.block_rows * max(q, 1)) + 16 * profile.block_rows
        if profile.sparse:  # marks of the stored values as bincount takes them, and products, sparse and dense
            return labels + 32 * profile.block_values + (28 * q + 16) * self.n_features
        return labels + 9 * profile.block_rows * self.n_features + (8 * q + 16) * self.n_features

    def add(self, state: State, block: Block) -> None:
        (counts,), X, Y = state, block.X, block.Y
        marks = with_unknown_columns(Y, self.unknown)
        marks = sp.csr_array(positives_block(marks))
        # In float32 whole numbers of rows of a block are exact, and weights are not.
        kind = np.float32 if block.weights is None else np.float64
        by_label = weighted_block(marks, block.weights).astype(kind).T.tocsr()
        ones = np.ones(X.shape[0], kind) if block.weights is None else block.weights
        if isinstance(X, np.ndarray):
            nonzero = (X != 0).astype(kind)
            counts[0] += ones @ nonzero
            counts[1:] += by_label @ nonzero
            return
        values = (X.data != 0).astype(kind)
        nonzero = sp.csr_array((values, X.indices, X.indptr), shape=X.shape)
        counts[0] += np.bincount(X.indices, weights=values * np.repeat(ones, np.diff(X.indptr)), minlength=X.shape[1])
        counts[1:] += (by_label @ nonzero).toarray()

    def finalize(self, state: State) -> Array:
        counts: Array = state[0].copy()
        return counts
