"""Sums of midranks of features, for rank tests of pairs.

A rank-sum test is a test of the difference of mean midranks: with midranks r of a feature among the n rows where a
label is known, the sum of r − (n + 1)/2 over the n₁ rows with the label is U − n₁ n₂/2. Its variance, n₁ n₂/(n (n − 1))
Σ (r − (n + 1)/2)², allows for ties (E. L. Lehmann, "Nonparametrics", 1975, section 1.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.products import positives_block
from mlfs_dask.engine.readings import ReadingRecord
from mlfs_dask.rows.contract import Profile, RowSource, unknown_labels
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.moments import central_sums
from mlfs_dask.statistics.rows_in_memory import read_rows
from mlfs_dask.typing import Array, Matrix, numbers


class RankSums(NamedTuple):
    """Sums of midranks less their mean, over the rows where each label is known.

    Attributes
    ----------
    products : float64 array, shape (q, d)
        Over the rows with each label.
    m2, skewness, kurtosis : float64 array, shape (1, d), or (q, d) if labels may be unknown
        Sum of squares, skewness and excess kurtosis of the midranks.
    """

    products: Array
    m2: Array
    skewness: Array
    kurtosis: Array


def rank_passes(profile: Profile) -> int:
    """Return the number of passes, each of which gathers the values of as many features as `gates.RANK_BYTES` hold."""
    return max(1, min(profile.d, -(-_gathered_bytes(profile) // gates.RANK_BYTES)))


def rank_sums_size(profile: Profile, unknown: int) -> int:
    """Return the size of `RankSums`, with some labels that may be unknown, in numbers of 8 bytes."""
    return profile.q * profile.d * (4 if unknown else 1) + 3 * profile.d


def rank_workspace(profile: Profile) -> int:
    """Return the memory of `rank_sums` on the driver besides its result, in numbers of 8 bytes."""
    gathered = _gathered_bytes(profile) // rank_passes(profile)
    return 10 * max(profile.n, gates.VALUES_AT_ONCE) + numbers(gathered) + 3 * profile.label_nonzeros


def _gathered_bytes(profile: Profile) -> int:
    """Return the bytes of all values in memory; sparse blocks are held beside the matrix that is made of them."""
    if profile.sparse:
        return 2 * (profile.itemsize + 4) * profile.nonzeros
    return int(profile.float_dtype.itemsize * profile.n * profile.d)


def rank_sums(source: RowSource, resources: Resources, label: str) -> tuple[RankSums, list[ReadingRecord]]:
    """Return the `RankSums` of all features, by `rank_passes` passes, and the records of the passes.

    Parameters
    ----------
    source : RowSource
    resources : Resources
    label : str
        Name of the passes.

    Raises
    ------
    DoesNotFitError
    """
    profile, unknown, records = source.profile, unknown_labels(source), list[ReadingRecord]()
    products = np.empty((profile.q, profile.d))
    shapes = np.full((3, profile.q if len(unknown) else 1, profile.d), np.nan)
    passes = rank_passes(profile)
    for number in range(passes):
        # Features in steps of `passes`: a vocabulary sorted by frequency is cut into parts of equal size.
        tile = np.arange(number, profile.d, passes)
        X, Y, record = read_rows(RowView(source, features=tile) if passes > 1 else source, resources, label=label)
        records.append(record)
        P = positives_block(Y).astype(np.float64)
        P.eliminate_zeros()
        known = [np.flatnonzero(Y[:, [each]].toarray()[:, 0] >= 0) for each in unknown]
        for columns, values in _parts(X):
            features = tile[columns]
            products[:, features], shapes[:, :, features] = _sums(values, P)
            for each, rows in zip(unknown, known, strict=True):
                own, shape = _sums(values[rows], P[rows][:, [each]])
                products[each, features], shapes[:, each, features] = own[0], shape[:, 0]
    return RankSums(products, *shapes), records


def _parts(X: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """Yield features that are ranked at once, and their values."""
    n, d = X.shape
    step = max(1, gates.VALUES_AT_ONCE // max(n if isinstance(X, np.ndarray) else X.nnz // max(d, 1), 1))
    columns: Any = X if isinstance(X, np.ndarray) else X.tocsc()
    for start in range(0, d, step):
        part = slice(start, min(start + step, d))
        yield part, columns[:, part]


def _sums(X: Any, P: sp.csr_array) -> tuple[Array, Array]:
    """Return sums of midranks less their mean over the rows with labels, (p, w), and their shapes, (3, 1, w)."""
    n = X.shape[0]
    if n == 0:
        return np.zeros((P.shape[1], X.shape[1])), np.zeros((3, 1, X.shape[1]))
    from scipy.stats import rankdata  # half a second, which selections without these tests need not wait

    R: Any = rankdata(X, axis=0) - (n + 1) / 2 if isinstance(X, np.ndarray) else _ranks_beside_zero(X)
    sums = np.stack([np.asarray((R**power).sum(axis=0)) for power in range(1, 5)])
    products: Any = P.T @ R
    products = products.toarray() if sp.issparse(products) else products
    products -= np.outer(P.sum(axis=0), sums[0] / n)
    second, third, fourth = central_sums(sums, np.full(1, float(n)))
    with np.errstate(divide="ignore", invalid="ignore"):
        shapes = second, third / second**1.5 * np.sqrt(n), fourth / second**2 * n - 3
    return products, np.stack(shapes)[:, np.newaxis]


def _ranks_beside_zero(X: sp.csc_array) -> sp.csc_array:
    """Return midranks of the values of sparse X less the midrank of 0, which all absent values share."""
    from scipy.stats import rankdata

    X = X.copy()
    X.eliminate_zeros()
    ranks = np.empty(X.nnz)
    for start, stop in zip(X.indptr[:-1].tolist(), X.indptr[1:].tolist(), strict=True):
        values = X.data[start:stop]
        zeros, below = X.shape[0] - len(values), np.count_nonzero(values < 0)
        ranks[start:stop] = rankdata(values) + np.where(values > 0, zeros, 0) - (below + (zeros + 1) / 2)
    return sp.csc_array((ranks, X.indices, X.indptr), shape=X.shape)
