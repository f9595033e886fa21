"""Rows that have the same labels, known by keys of their label sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.row_draws import mix_bits, row_bits


def label_set_keys(Y: sp.csr_array) -> NDArray[np.uint64]:
    """A key of the labels of every row, shape (rows,): equal for equal label sets, and by 64 bits different for others.

    Entries between 0 and 1, which stand for unknown ones, are told from both.

    >>> keys = label_set_keys(sp.csr_array(np.array([[1, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0]], np.int8)))
    >>> bool(keys[0] == keys[1]), len(np.unique(keys))
    (True, 3)
    """
    bits = row_bits(0, Y.shape[1])[Y.indices]
    if Y.dtype.kind == "f":
        bits = np.where(Y.data < 1, np.where(Y.data > 0, mix_bits(bits), np.uint64(0)), bits)
    else:
        bits = np.where(Y.data > 0, bits, np.uint64(0))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(bits, dtype=np.uint64)])  # modulo 2**64
    keys: NDArray[np.uint64] = sums[Y.indptr[1:]] - sums[Y.indptr[:-1]]
    return keys


def frequent_label_sets(Y: sp.csr_array, most: int) -> NDArray[np.uint64]:
    """Keys of the label sets that two rows have at least, of the most frequent ones, rising; `most` of them at most.

    >>> frequent_label_sets(sp.csr_array(np.array([[1, 0], [1, 0], [0, 1]], np.int8)), 5).shape
    (1,)
    """
    keys, counts = np.unique(label_set_keys(Y), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return np.sort(keys[order[counts[order] > 1]])


class LabelSets:
    """Groups of rows that have the same labels.

    Parameters
    ----------
    keys : uint64 array, shape (m,)
        Of the label sets, rising.
    """

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self.keys = keys

    @property
    def count(self) -> int:
        """m."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes that a process holds."""
        return 8 * self.count

    def members(self, Y: sp.csr_array) -> sp.csr_array:
        """1 for the group of each row, shape (rows, m); a row of another label set has none.

        Parameters
        ----------
        Y : csr_array, shape (rows, q)
        """
        keys, m = label_set_keys(Y), self.count
        places = np.searchsorted(self.keys, keys)
        found = self.keys[np.minimum(places, m - 1)] == keys if m else np.zeros(len(keys), bool)
        indptr = np.concatenate([[0], np.cumsum(found)])
        return sp.csr_array((np.ones(indptr[-1]), places[found], indptr), shape=(len(keys), m))
