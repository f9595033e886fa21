"""Groups of labels with equal known entries; predictions within a group are equal up to rounding, which would grow.

Labels without a known positive are the usual case. The constraint W'RW = I gives full length even to a direction in
which labels differ only by rounding, and the difference then grows with every iteration. With E = (1/√m_j if label i is
one of the m_j labels of group j), E'E = I, and F = F E E' if labels within groups are equal: F E has a column per group
and the same norms, row distances and inner products as F.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.typing import Array


@dataclass(frozen=True)
class DuplicateLabels:
    """Partition of the labels into groups.

    Parameters
    ----------
    group : int array, shape (q,)
        Group of every label; groups are numbered in the order of their first labels.

    Examples
    --------
    >>> duplicates = DuplicateLabels(np.array([0, 1, 0]))
    >>> collapsed = duplicates.collapse(np.array([[2.0, 1.0, 2.0]]))
    >>> (collapsed**2).sum().round(12)
    np.float64(9.0)
    >>> duplicates.expand(collapsed).round(12)
    array([[2., 1., 2.]])
    """

    group: NDArray[np.intp]

    @property
    def count(self) -> int:
        """Number of groups."""
        return int(self.group.max()) + 1

    @property
    def distinct(self) -> bool:
        """True if every group has one label, so that nothing changes."""
        return self.count == len(self.group)

    @property
    def first(self) -> NDArray[np.intp]:
        """First label of every group."""
        return np.unique(self.group, return_index=True)[1]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Number of labels of every group."""
        return np.bincount(self.group)

    @property
    def basis(self) -> sp.csr_array:
        """E, shape (q, groups)."""
        q = len(self.group)
        return sp.csr_array((1.0 / np.sqrt(self.sizes[self.group]), (np.arange(q), self.group)), shape=(q, self.count))

    def collapse(self, A: Array) -> Array:
        """Return A E; A has a column per label."""
        return A if self.distinct else np.asarray(A @ self.basis)

    def collapse_labels(self, Y: sp.csr_array, known: NDArray[np.bool_]) -> tuple[sp.csr_array, NDArray[np.bool_]]:
        """Return Y E, and its known entries, for labels that are equal within groups."""
        if self.distinct:
            return Y, known
        collapsed = sp.csr_array(Y[:, self.first] @ sp.diags_array(np.sqrt(self.sizes)))
        return collapsed, known if known.shape[1] == 1 else known[:, self.first]

    def collapse_both(self, A: Array) -> Array:
        """Return E'A E for a matrix of labels by labels."""
        return A if self.distinct else np.asarray(self.basis.T @ (A @ self.basis))

    def expand_both(self, A: Array) -> Array:
        """Return E A E' for a matrix of groups by groups, with equal bits within a group."""
        if self.distinct:
            return A
        scale = 1.0 / np.sqrt(self.sizes)
        return (A * scale * scale[:, np.newaxis])[self.group][:, self.group]

    def expand(self, A: Array) -> Array:
        """Return A E'; A has a column per group."""
        return A if self.distinct else (A / np.sqrt(self.sizes))[:, self.group]


def duplicate_labels(Y: sp.csr_array, known: NDArray[np.bool_]) -> DuplicateLabels:
    """Group the labels whose known entries are at the same rows and have the same values.

    Parameters
    ----------
    Y : csr_array, shape (n, q)
        1 for known positives, no other entries.
    known : bool array, shape (n, 1) or (n, q)
        Known rows, or known entries.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    >>> duplicate_labels(Y, np.ones((2, 1), bool)).group
    array([0, 1, 0])
    >>> duplicate_labels(Y, np.array([[True, True, True], [False, True, True]])).group
    array([0, 1, 2])
    """
    n, q = Y.shape
    # A label's sum of 64-bit draws, one per row: different labels collide with probability 2⁻⁶⁴.
    draws = np.random.default_rng(0).integers(0, 2**64, size=n, dtype=np.uint64)
    sums = np.zeros((2, q), dtype=np.uint64)
    np.add.at(sums[0], Y.indices, np.repeat(draws, np.diff(Y.indptr)))
    if known.shape[1] > 1:
        for label in range(q):
            sums[1, label] = draws[known[:, label]].sum(dtype=np.uint64)
    return group_columns(sums)


def group_columns(signatures: NDArray[np.uint64]) -> DuplicateLabels:
    """Group the labels with equal signatures, such as sums over rows of hashes of their entries.

    Parameters
    ----------
    signatures : uint64 array, shape (m, q)

    Examples
    --------
    >>> group_columns(np.array([[7, 5, 7]], dtype=np.uint64)).group
    array([0, 1, 0])
    """
    _, first, group = np.unique(signatures, axis=1, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return DuplicateLabels(rank[np.asarray(group).ravel()])
