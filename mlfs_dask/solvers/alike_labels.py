"""Labels of which the same is known, as one column: by the equations they stay alike, by rounding they would not.

Labels without a known positive are the usual case. A direction in which labels differ by rounding alone is one that
W is asked to have at full length (W'RW = I), and the difference then grows from iteration to iteration. With
E = (1/√m_j where label i is one of the m_j labels of group j), E'E = I, and F = F E E' wherever labels of a group are
alike: F E has a column a group, and norms, distances of rows and inner products are those of F.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, graph_rows, row_blocks

Array = NDArray[np.float64]


@dataclass(frozen=True)
class AlikeLabels:
    """Groups of labels.

    Parameters
    ----------
    group : int array, shape (q,)
        Group of every label; groups are numbered by their first labels.

    Examples
    --------
    >>> alike = AlikeLabels(np.array([0, 1, 0]))
    >>> folded = alike.fold(np.array([[2.0, 1.0, 2.0]]))
    >>> (folded**2).sum().round(12)
    np.float64(9.0)
    >>> alike.unfold(folded).round(12)
    array([[2., 1., 2.]])
    """

    group: NDArray[np.intp]

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.group.max()) + 1

    @property
    def distinct(self) -> bool:
        """Whether every label is a group of its own, so that nothing is to be done."""
        return self.count == len(self.group)

    @property
    def first(self) -> NDArray[np.intp]:
        """The first label of every group."""
        return np.unique(self.group, return_index=True)[1]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Labels of every group."""
        return np.bincount(self.group)

    @property
    def basis(self) -> sp.csr_array:
        """E, shape (q, groups)."""
        q = len(self.group)
        return sp.csr_array((1.0 / np.sqrt(self.sizes[self.group]), (np.arange(q), self.group)), shape=(q, self.count))

    def fold(self, A: Array) -> Array:
        """A E; A has a column a label."""
        return A if self.distinct else np.asarray(A @ self.basis)

    def fold_labels(
        self, Y: sp.csr_array, known: NDArray[np.bool_], space: RowSpace = IN_MEMORY
    ) -> tuple[sp.csr_array, NDArray[np.bool_]]:
        """Y E, and which entries of it are known; both of labels that are alike in every group."""
        if self.distinct:
            return Y, known
        folded = sp.csr_array(Y[:, self.first] @ sp.diags_array(np.sqrt(self.sizes)))
        if known.shape[1] == 1:
            return folded, known
        kept = space.empty(len(known), self.count, np.bool_)
        for part in row_blocks(*known.shape):
            kept[part] = known[part][:, self.first]
        space.release(known)
        return folded, kept

    def fold_both(self, A: Array) -> Array:
        """E'A E of a matrix of labels by labels."""
        return A if self.distinct else np.asarray(self.basis.T @ (A @ self.basis))

    def unfold_both(self, A: Array) -> Array:
        """E A E' of a matrix of groups by groups; equal for labels of a group to the last bit."""
        if self.distinct:
            return A
        scale = 1.0 / np.sqrt(self.sizes)
        return (A * scale * scale[:, np.newaxis])[self.group][:, self.group]

    def unfold(self, A: Array, space: RowSpace = IN_MEMORY) -> Array:
        """A E' of an array of n rows."""
        if self.distinct:
            return A
        scale = 1.0 / np.sqrt(self.sizes)
        whole = space.empty(len(A), len(self.group))
        for part in row_blocks(*whole.shape):
            whole[part] = (A[part] * scale)[:, self.group]
        return whole


def alike_labels(Y: sp.csr_array, known: NDArray[np.bool_]) -> AlikeLabels:
    """Labels whose known entries are the same ones with the same values.

    Parameters
    ----------
    Y : csr_array, shape (n, q)
        1 for known positives and nothing else.
    known : bool array, shape (n, 1) or (n, q)
        By rows, or by entries.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    >>> alike_labels(Y, np.ones((2, 1), bool)).group
    array([0, 1, 0])
    >>> alike_labels(Y, np.array([[True, True, True], [False, True, True]])).group
    array([0, 1, 2])
    """
    n, q = Y.shape
    # A label's sum of one draw of 64 bits for every row: two that differ have the same one once in 2⁶⁴ times.
    rng = np.random.default_rng(0)
    sums = np.zeros((2, q), dtype=np.uint64)
    for part in row_blocks(n, q):
        rows = graph_rows(Y, part)
        draws = rng.integers(0, 2**64, size=rows.shape[0], dtype=np.uint64)
        np.add.at(sums[0], rows.indices, np.repeat(draws, np.diff(rows.indptr)))
        if known.shape[1] > 1:
            sums[1] += (known[part] * draws[:, np.newaxis]).sum(axis=0, dtype=np.uint64)
    _, first, group = np.unique(sums, axis=1, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return AlikeLabels(rank[np.asarray(group).ravel()])
