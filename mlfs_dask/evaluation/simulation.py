"""Labels as they might have been given: positives that were not entered, rows that nobody labelled.

Only training labels are changed. A positive that is dropped becomes 0: were it marked as unknown, the mark would give
it away. A row without labels becomes unknown (−1) throughout, or 0 throughout, where a method is to take 0 for unknown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp


def simulate(
    Y: sp.csr_array, *, missing_labels: float = 0.0, labelled_rows: float = 1.0, random: np.random.Generator
) -> tuple[sp.csr_array, NDArray[np.bool_]]:
    """Drop a share of the positive labels, and all labels of a share of the rows.

    Parameters
    ----------
    Y : csr_array of int8, shape (n, q)
    missing_labels : float
        Share of the positives of labelled rows that is dropped, in [0, 1).
    labelled_rows : float
        Share of the rows that keep labels, in (0, 1]; one row at least.
    random : numpy Generator

    Returns
    -------
    csr_array of int8, shape (n, q)
        Labels after the simulation; rows without labels are empty.
    bool array, shape (n,)
        Which rows are labelled.

    Examples
    --------
    >>> Y = sp.csr_array(np.eye(4, dtype=np.int8))
    >>> Y, labelled = simulate(Y, missing_labels=0.5, labelled_rows=0.5, random=np.random.default_rng(0))
    >>> int(labelled.sum()), int(Y.sum())
    (2, 1)
    """
    n = Y.shape[0]
    labelled = np.ones(n, bool)
    if labelled_rows < 1:
        labelled[:] = False
        labelled[random.choice(n, max(1, round(labelled_rows * n)), replace=False)] = True
    of_labelled = np.repeat(labelled, np.diff(Y.indptr))
    if missing_labels:
        positives = np.flatnonzero(of_labelled & (Y.data == 1))
        of_labelled[random.choice(positives, round(missing_labels * len(positives)), replace=False)] = False
    if of_labelled.all():
        return Y, labelled
    indptr = np.concatenate([[0], np.cumsum(of_labelled)])[Y.indptr].astype(Y.indptr.dtype)
    result = sp.csr_array((Y.data[of_labelled], Y.indices[of_labelled], indptr), shape=Y.shape)
    result.has_canonical_format = True
    return result, labelled


def as_unknown(Y: sp.csr_array, labelled: NDArray[np.bool_]) -> sp.csr_array:
    """Return Y with every entry of the rows that are not labelled set to −1.

    >>> as_unknown(sp.csr_array(np.array([[1, 0], [0, 0]], np.int8)), np.array([True, False])).toarray()
    array([[ 1,  0],
           [-1, -1]], dtype=int8)
    """
    if labelled.all():
        return Y
    q = Y.shape[1]
    lengths = np.where(labelled, np.diff(Y.indptr), q)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    hidden = np.repeat(~labelled, lengths)
    data = np.full(indptr[-1], -1, np.int8)
    indices = np.empty(indptr[-1], np.int32)
    indices[hidden] = np.tile(np.arange(q, dtype=np.int32), int((~labelled).sum()))
    of_labelled = np.repeat(labelled, np.diff(Y.indptr))
    data[~hidden], indices[~hidden] = Y.data[of_labelled], Y.indices[of_labelled]
    result = sp.csr_array((data, indices, indptr), shape=Y.shape)
    result.has_canonical_format = True
    return result
