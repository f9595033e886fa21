"""Mutual and interaction information of pairs of features, with the labels.

A partner s is another feature. The counts N(f, s) give the mutual information I(f; s), and N(f, s, l) the interaction
information I(f; s; l) = I(f; s) - I(f; s | l) = I(f; l) - I(f; l | s) (McGill 1954). It is positive if partner and
label share information on f, and negative if they are more informative together. Criteria that choose one feature after
another are sums of the two (Brown et al. 2012).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.entropy import count_log_count, entropy_of_counts, rounding_error
from mlfs_dask.typing import Array

#: Counts of pairs converted to entropies at once, unless a single partner has more: they stay in the second-level
#: cache.
COUNTS_AT_ONCE = 2**15


class PairCounts(NamedTuple):
    """Counts of the K codes of w features, alone and with a code of a partner, a label, or both; and of the partners.

    Attributes
    ----------
    alone : int64 array, shape (K, w)
        float64 for weighted rows, like the other arrays.
    codes : int64 array, shape (K, m, w)
    labels : int64 array, shape (K, q, w)
    both : int64 array, shape (K, m, q, w)
    partner : int64 array, shape (m,)
        Rows with each code of a partner except its reference code, partner by partner.
    positives : int64 array, shape (q,)
        Rows with each label.
    partner_both : int64 array, shape (m, q)
        Rows with the code of the partner and the label.
    """

    alone: NDArray[Any]
    codes: NDArray[Any]
    labels: NDArray[Any]
    both: NDArray[Any]
    partner: NDArray[Any]
    positives: NDArray[Any]
    partner_both: NDArray[Any]


def face_splitting_product(A: sp.csr_array, B: sp.csr_array) -> sp.csr_array:
    """Return the products of all pairs of entries of the same rows of A and B, which are indicators.

    Parameters
    ----------
    A, B : csr_array, shapes (rows, a) and (rows, b)
        Stored entries count as 1.

    Returns
    -------
    csr_array of int8, shape (rows, a b)
        Column i b + j is the product of column i of A and column j of B.

    Examples
    --------
    >>> A, B = (sp.csr_array(np.array(rows, dtype=np.int8)) for rows in ([[1, 0], [1, 1]], [[1, 1, 0], [0, 0, 1]]))
    >>> face_splitting_product(A, B).toarray().tolist()
    [[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1]]
    """
    of_A, of_B = np.diff(A.indptr), np.diff(B.indptr)
    entries = np.repeat(of_B, of_A)  # of the product, for every entry of A
    start = np.cumsum(entries) - entries
    step = np.arange(int(entries.sum())) - np.repeat(start, entries)
    partner = B.indices[np.repeat(np.repeat(B.indptr[:-1], of_A), entries) + step]
    columns = np.repeat(A.indices.astype(np.int64), entries) * B.shape[1] + partner
    ptr = np.concatenate(([0], np.cumsum(of_A.astype(np.int64) * of_B)))
    shape = A.shape[0], A.shape[1] * B.shape[1]
    return sp.csr_array((np.ones(len(columns), np.int8), columns.astype(np.int32), ptr.astype(np.int32)), shape=shape)


def row_runs(entries: NDArray[np.integer[Any]], max_entries: int) -> Iterator[slice]:
    """Yield runs of rows with at most `max_entries` entries in total, unless a single row has more.

    >>> list(row_runs(np.array([2, 2, 0, 5, 1]), 4))
    [slice(0, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    until = np.cumsum(entries, dtype=np.int64)
    start = 0
    while start < len(until):
        before = until[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(until, before + max_entries, side="right")))
        yield slice(start, stop)
        start = stop


def pair_terms(
    counts: PairCounts,
    ptr: NDArray[np.int64],
    n: int | float,
    logs: Array | None = None,
) -> tuple[Array, Array]:
    """Return I(f; s), and the sum of I(f; s; l) over labels, for all partners; and the entropy of the features.

    Parameters
    ----------
    counts : PairCounts
        Of w features.
    ptr : int64 array, shape (c + 1,)
        Codes ptr[i]..ptr[i + 1]-1 belong to partner i.
    n : int or float
        Number of rows, or the sum of their weights.
    logs : float64 array, shape (n + 1,), optional
        `count_log_count` of all counts of rows: use the compiled kernel, which gives the same bits.

    Returns
    -------
    terms : float64 array, shape (2, c, w), or (1, c, w) without labels
        Terms within the rounding error of their entropies are zero.
    entropy : float64 array, shape (w,)
    """
    q = len(counts.positives)
    error = rounding_error(n)
    K, w = counts.alone.shape
    terms = np.zeros((2 if q else 1, len(ptr) - 1, w))
    H_f = entropy_of_counts(counts.alone, n)
    H_l = entropy_of_counts(np.stack([counts.positives, n - counts.positives]), n)[:, np.newaxis]
    H_fl = _entropy_with_labels(counts.alone[:, np.newaxis], counts.labels, n)  # (q, w)
    counts_per_code = K * (q + 1) * w if logs is None else max(K * w, q)
    for batch in _partner_batches(np.diff(ptr), counts_per_code):
        codes = ptr[batch] + np.arange(ptr[batch[0] + 1] - ptr[batch[0]])[:, np.newaxis]  # (K_s - 1, partners)
        N_s = _with_reference(counts.partner[codes], n)  # (K_s, partners)
        H_s, H_sl = entropy_of_counts(N_s, n), None
        if q:
            N_sl = _with_reference(counts.partner_both[codes], counts.positives)  # (K_s, partners, q)
            H_sl = _entropy_with_labels(N_s[..., np.newaxis], N_sl, n)
        if logs is not None:
            from mlfs_dask.blocks.pairs_compiled import add_interactions, set_information

            sizes = float(n), float(np.log(n))
            set_information(terms[0], batch, ptr, counts.alone, counts.codes, logs, *sizes, H_f, H_s, error)
            if H_sl is not None:
                entropies = terms[0, batch], H_l[:, 0], H_fl, H_sl, error
                add_interactions(terms[1], batch, ptr, *counts[:4], logs, *sizes, *entropies)
            continue
        N_fs = _with_reference(counts.codes[:, codes], counts.alone[:, np.newaxis], axis=1)  # (K, K_s, partners, w)
        shared = H_f + H_s[:, np.newaxis] - entropy_of_counts(N_fs, n, axes=2)
        shared[shared <= error] = 0.0
        terms[0, batch] = shared
        if H_sl is not None:
            N_fsl = _with_reference(counts.both[:, codes], counts.labels[:, np.newaxis], axis=1)
            H_fsl = _entropy_with_labels(N_fs[:, :, :, np.newaxis], N_fsl, n, axes=2)
            of_label = shared[:, np.newaxis] + H_l - H_fl - H_sl[..., np.newaxis] + H_fsl
            of_label[np.abs(of_label) <= error] = 0.0
            # Sequential sums, unlike `sum` for a single feature: equal bits for any w.
            terms[1, batch] = np.cumsum(of_label, axis=1, out=of_label)[:, -1]
    return terms, H_f


def _partner_batches(n_codes: NDArray[np.int64], counts: int) -> Iterator[NDArray[np.intp]]:
    """Yield batches of partners with equally many codes, of about `COUNTS_AT_ONCE` counts, `counts` for each code.

    >>> [batch.tolist() for batch in _partner_batches(np.array([1, 2, 1, 1]), COUNTS_AT_ONCE // 4)]
    [[0, 2], [3], [1]]
    """
    for count in np.unique(n_codes):
        same = np.flatnonzero(n_codes == count)
        step = max(1, COUNTS_AT_ONCE // (counts * (int(count) + 1)))
        for low in range(0, len(same), step):
            yield same[low : low + step]


def _with_reference(counts: NDArray[Any], total: Any, axis: int = 0) -> NDArray[Any]:
    """Prepend the counts of a partner's reference code, which follow from the total."""
    reference = np.expand_dims(total - counts.sum(axis=axis), axis)
    return np.concatenate([reference, counts], axis=axis)


def _entropy_with_labels(states: NDArray[Any], with_label: NDArray[Any], n: int | float, axes: int = 1) -> Array:
    """Return the joint entropy of states and each label, from counts of states, (S, 1, ...), and of both, (S, q, ...).

    States of two variables use two axes.
    """
    entropy: Array = np.log(n) - _sum_with_labels(states, with_label, axes) / n
    return entropy


def _sum_with_labels(states: NDArray[Any], with_label: NDArray[Any], axes: int) -> Array:
    if axes == 0:
        logs = count_log_count(with_label)
        logs += count_log_count(states - with_label)
        return logs
    total = np.zeros(with_label.shape[axes:])
    for alone, both in zip(states, with_label, strict=True):
        total += _sum_with_labels(alone, both, axes - 1)
    return total
