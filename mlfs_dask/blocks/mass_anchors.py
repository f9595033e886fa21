"""Anchors by isolation mass: a row is linked to the landmark rows with which it shares the smallest tree nodes.

The mass of two rows, the mean over trees of the share of rows in their smallest common node, is one look-up per tree
for a row and all landmarks at once (`isolation`). The weights of the nearest landmarks are those of `anchors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import nearest_weights, weights_to_csr
from mlfs_dask.blocks.forest import Forest
from mlfs_dask.blocks.isolation import TreeShape, mass_table
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.typing import Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import Profile


class MassAnchors:
    """Landmark rows of a forest, prepared for weighing rows.

    Parameters
    ----------
    forest : Forest
    tables : uint32 or uint64 array, shape (trees, leaves, m)
        From `landmark_tables`.
    neighbors : int
        Number of landmarks per row, s; at most m − 1 are used.
    """

    def __init__(self, forest: Forest, tables: NDArray[Any], neighbors: int) -> None:
        self.forest = forest
        self.tables = tables
        self.neighbors = min(neighbors, max(tables.shape[2] - 1, 1))

    @property
    def count(self) -> int:
        """Number of landmarks, m."""
        return int(self.tables.shape[2])

    @cached_property
    def digest(self) -> str:
        """Digest of what weights depend on beside the rows."""
        forest = self.forest
        arrays = (forest.feature, forest.threshold, forest.child, forest.leaf, forest.shift, forest.scale, self.tables)
        return digest_of({"masses": [*arrays, self.neighbors]})

    @property
    def nbytes(self) -> int:
        """Bytes of the landmarks in a process."""
        return int(self.tables.nbytes) + self.forest.nbytes

    def scratch_bytes(self, profile: Profile) -> int:
        """Return the bytes that `weigh` allocates for a group of rows."""
        totals = gates.MASS_ROWS * self.count * self.tables.dtype.itemsize
        return int(self.forest.leaf_scratch_bytes(profile) + 36 * gates.GROUP_ROWS * self.neighbors + totals)

    def weigh(self, X: Matrix) -> sp.csr_array:
        """Return Z of a group of rows, shape (rows, m), with s entries per row.

        Parameters
        ----------
        X : ndarray or csr_array, shape (rows, d)
        """
        codes = self.forest.leaf_numbers(X)
        rows, s = len(codes), self.neighbors
        indices, weights = np.zeros((rows, s), np.int32), np.ones((rows, s))
        if self.count > 1:
            totals = np.empty((min(gates.MASS_ROWS, rows), self.count), self.tables.dtype)
            for low in range(0, rows, gates.MASS_ROWS):
                part = slice(low, min(low + gates.MASS_ROWS, rows))
                height = part.stop - low
                if gates.compiles_rows(rows):
                    from mlfs_dask.blocks.mass_anchors_compiled import weigh_masses

                    weigh_masses(codes[part], self.tables, totals[:height], indices[part], weights[part])
                    continue
                totals[:height] = 0
                for table, leaves in zip(self.tables, codes[part].T, strict=True):
                    totals[:height] += table[leaves]
                nearest_weights(totals[:height].astype(np.float64), 0.0, indices[part], weights[part])
        return weights_to_csr(indices, weights, self.count)


def landmark_tables(
    shapes: Sequence[TreeShape], leaf_counts: NDArray[np.int64], landmarks: NDArray[Any], n: int
) -> NDArray[Any]:
    """Return the masses of every leaf with every landmark, counted over all rows.

    Parameters
    ----------
    shapes : sequence of TreeShape
    leaf_counts : int64 array, shape (trees, leaves)
        Number of rows in each leaf.
    landmarks : int array, shape (m, trees)
        Leaf numbers of the landmarks.
    n : int
        Total number of rows, which determines the dtype: sums over trees must fit.

    Returns
    -------
    uint32 or uint64 array, shape (trees, leaves, m)

    Examples
    --------
    >>> from mlfs_dask.blocks.isolation import tree_shape
    >>> shape = tree_shape(np.array([1, -1, 3, -1, -1]), np.array([2, -1, 4, -1, -1]))
    >>> landmark_tables([shape], np.array([[5, 2, 1]]), np.array([[0], [2]]), 8)
    array([[[5, 8],
            [8, 3],
            [8, 1]]], dtype=uint32)
    """
    trees, leaves = leaf_counts.shape
    tables = np.empty((trees, leaves, len(landmarks)), landmark_dtype(trees, n))
    pairs = np.zeros((leaves, leaves), np.int64)
    for t, shape in enumerate(shapes):
        mass_table(shape, leaf_counts[t, : shape.n_leaves], pairs)
        tables[t] = pairs[:, landmarks[:, t]]
    return tables


def landmark_dtype(trees: int, n: int) -> Any:
    """Return the dtype for masses with a landmark, summed over the trees."""
    return np.uint32 if trees * n < 2**32 else np.uint64
