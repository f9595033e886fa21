"""Groups of rows with equal label sets, identified by keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.row_draws import mix_bits, row_bits


def label_set_keys(Y: sp.csr_array) -> NDArray[np.uint64]:
    """Return a 64-bit key of the label set of every row, shape (rows,), equal for equal label sets.

    Fractional entries, which stand for unknown labels, differ from 0 and 1.

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
    """Return the ascending keys of the most frequent label sets of at least two rows, at most `most` of them.

    >>> frequent_label_sets(sp.csr_array(np.array([[1, 0], [1, 0], [0, 1]], np.int8)), 5).shape
    (1,)
    """
    keys, counts = np.unique(label_set_keys(Y), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return np.sort(keys[order[counts[order] > 1]])


class LabelSets:
    """Groups of rows with equal label sets.

    Parameters
    ----------
    keys : uint64 array, shape (m,)
        Keys of the label sets, ascending.
    """

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self.keys = keys

    @property
    def count(self) -> int:
        """Number of groups, m."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys in a process."""
        return 8 * self.count

    def members(self, Y: sp.csr_array) -> sp.csr_array:
        """Return indicators of the group of each row, shape (rows, m); no entry for other label sets.

        Parameters
        ----------
        Y : csr_array, shape (rows, q)
        """
        keys, m = label_set_keys(Y), self.count
        places = np.searchsorted(self.keys, keys)
        has_group = self.keys[np.minimum(places, m - 1)] == keys if m else np.zeros(len(keys), bool)
        indptr = np.concatenate([[0], np.cumsum(has_group)])
        return sp.csr_array((np.ones(indptr[-1]), places[has_group], indptr), shape=(len(keys), m))
