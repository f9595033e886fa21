"""Association of features and labels from contingency tables, within strata and with pairs of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.entropy import count_log_count, entropy_of_counts, information, rounding_error
from mlfs_dask.blocks.pair_scores import Counts, StratifiedCounts, quotient
from mlfs_dask.typing import Array


def pair_interaction(
    counts: Counts, n_labels: int, chosen: Sequence[int], unknown: NDArray[np.int64] | None = None
) -> Array:
    """Return Σ_l M(f; l) minus the interaction information with pairs of chosen labels (Lee & Kim 2015).

    Parameters
    ----------
    counts : Counts
        Counts of the labels, of the rows with unknown labels (`blocks.unknown`), and of all pairs of chosen columns
        (`with_label_pairs`): labels, then rows with unknown labels.
    n_labels : int
    chosen : sequence of int
        Ascending.
    unknown : int64 array, shape (u,), optional
        Labels with unknown entries, ascending. Each term uses the rows in which its labels are known.

    Returns
    -------
    float64 array, shape (w,)
    """
    if unknown is not None and len(unknown):
        return _known_interaction(counts, n_labels, np.array(chosen, dtype=np.int64), unknown)
    joint, n = counts.joint, counts.n
    labels = Counts(joint[:, :n_labels], counts.marginal, counts.positives[:n_labels], n)
    score = np.zeros(counts.width)
    for shared in information(labels):
        score += shared
    if len(chosen) < 2:
        return score
    # Indices in `chosen` of both labels of every pair, in the order of itertools.combinations.
    first, second = np.triu_indices(len(chosen), 1)
    of_chosen = np.array(chosen, dtype=np.int64)
    between = _pair_information(labels.positives[of_chosen, 0], first, second, counts.positives[n_labels:, 0], n)
    # n H(f, l) without the term n log n, which cancels between the entropies.
    marginal = counts.marginal[:, 0]
    of_feature = count_log_count(marginal).sum(axis=0)
    with_label = np.stack([_states(joint[:, label], marginal) for label in chosen])
    step = max(1, gates.SCORE_BYTES // (8 * marginal.size))
    for start in range(0, len(first), step):
        tile = slice(start, start + step)
        i, j = first[tile], second[tile]
        one, other = joint[:, of_chosen[i]], joint[:, of_chosen[j]]
        both = joint[:, n_labels + start : n_labels + start + len(i)]
        cells = _states(both, one) + _states(other - both, counts.marginal - one)
        given_feature = (of_feature + cells - with_label[i] - with_label[j]) / n
        given_feature -= between[tile, np.newaxis]
        # Sequential sums, unlike `sum` for a single feature: equal bits for any tiling.
        given_feature[0] += score
        score = np.cumsum(given_feature, axis=0, out=given_feature)[-1]
    return score


def _known_interaction(counts: Counts, n_labels: int, chosen: NDArray[np.int64], unknown: NDArray[np.int64]) -> Array:
    """Compute `pair_interaction` with unknown labels."""
    marks = np.full(n_labels, -1)
    marks[unknown] = n_labels + np.arange(len(unknown))
    score = np.zeros(counts.width)
    for shared in information(counts.known(marks)):
        score += shared
    # Indices of the paired columns, and of their pairs.
    marked = marks[chosen] >= 0
    place_of_mark = np.where(marked, len(chosen) + np.cumsum(marked) - 1, -1)
    m, before = len(chosen) + int(marked.sum()), n_labels + len(unknown)

    def pair_of(one: NDArray[np.intp], other: NDArray[np.intp]) -> NDArray[np.intp]:
        low, high = np.minimum(one, other), np.maximum(one, other)
        return np.where(low < 0, -1, before + low * (2 * m - low - 1) // 2 + high - low - 1)

    first, second = np.triu_indices(len(chosen), 1)
    step = max(1, gates.SCORE_BYTES // (8 * counts.marginal.size))
    for start in range(0, len(first), step):
        i, j = first[start : start + step], second[start : start + step]
        of_i, of_j = place_of_mark[i], place_of_mark[j]
        columns = {
            "rows": [(marks[chosen[i]], -1), (marks[chosen[j]], -1), (pair_of(of_i, of_j), 1)],
            "one": [(chosen[i], 1), (pair_of(i, of_j), -1)],
            "other": [(chosen[j], 1), (pair_of(j, of_i), -1)],
            "both": [(pair_of(i, j), 1)],
        }
        # Counts by code, pair and feature, and totals by pair, over the rows in which both labels are known.
        terms: dict[str, tuple[Array, Array]] = {}
        for name, parts in columns.items():
            joint, total = np.zeros((len(counts.joint), len(i), counts.width)), np.zeros((len(i), 1))
            if name == "rows":
                joint += counts.marginal
                total += counts.n
            for column, sign in parts:
                present = np.flatnonzero(column >= 0)
                joint[:, present] += sign * counts.joint[:, column[present]]
                total[present] += sign * counts.positives[column[present]]
            terms[name] = joint, total
        (rows, n), (one, n_one), (other, n_other), (both, n_both) = terms.values()
        n = np.maximum(n, 1.0)
        cells = _states(both, one) + _states(other - both, rows - one)
        given_feature = (count_log_count(rows).sum(axis=0) + cells - _states(one, rows) - _states(other, rows)) / n
        table = np.stack([n_both, n_other - n_both, n_one - n_both, n - n_one - n_other + n_both])
        of_labels = [entropy_of_counts(np.stack([positives, n - positives]), n) for positives in (n_one, n_other)]
        between = of_labels[0] + of_labels[1] - entropy_of_counts(table, n)
        between[between <= rounding_error(n)] = 0.0
        for term in given_feature - between:
            score += term
    return score


def with_label_pairs(Y: sp.csr_array, chosen: tuple[int, ...]) -> sp.csr_array:
    """Append a label for every pair of chosen labels to Y, positive in the rows with both.

    Parameters
    ----------
    Y : csr_array of int8, shape (rows, q)
    chosen : tuple of int
        Pairs follow the order of `itertools.combinations`.

    Returns
    -------
    csr_array of int8, shape (rows, q + pairs)

    Examples
    --------
    >>> with_label_pairs(sp.csr_array(np.array([[1, 0, 1], [1, 1, 1]], dtype=np.int8)), (0, 1, 2)).toarray()
    array([[1, 0, 1, 0, 1, 0],
           [1, 1, 1, 1, 1, 1]], dtype=int8)
    """
    m = len(chosen)
    if m < 2:
        return Y
    has = sp.csr_array(Y[:, list(chosen)] > 0)
    has.sort_indices()
    # Each label of a row forms a pair with every later label of the row.
    ends = np.repeat(has.indptr[1:], np.diff(has.indptr)).astype(np.int64)
    at = np.arange(has.nnz)
    later = ends - at - 1
    first = np.repeat(at, later)
    second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later)
    one, other = has.indices[first].astype(np.int64), has.indices[second]
    columns = one * (2 * m - one - 1) // 2 + other - one - 1
    indptr = np.concatenate(([0], np.cumsum(later)))[has.indptr]
    pairs = sp.csr_array((np.ones(len(first), np.int8), columns, indptr), shape=(Y.shape[0], m * (m - 1) // 2))
    return sp.csr_array(sp.hstack([Y, pairs], format="csr"))


def _states(having: NDArray[Any], rows: NDArray[Any]) -> Array:
    """Return the sum over codes of c log c for the rows with a label and for those without."""
    result: Array = (count_log_count(having) + count_log_count(rows - having)).sum(axis=0)
    return result


def _pair_information(
    positives: NDArray[Any], first: NDArray[np.intp], second: NDArray[np.intp], both: NDArray[Any], n: int | float
) -> Array:
    """Return M(l; l') for pairs of labels, shape (p,), from positives, indices of the pairs, and joint counts."""
    one, other = positives[first], positives[second]
    joint = np.stack([both, other - both, one - both, n - one - other + both])
    entropy = entropy_of_counts(np.stack([positives, n - positives]), n)
    shared: Array = entropy[first] + entropy[second] - entropy_of_counts(joint, n)
    shared[shared <= rounding_error(n)] = 0.0
    return shared


def general_association(counts: StratifiedCounts) -> Array:
    """Return the Cochran-Mantel-Haenszel statistic of general association, (p, w), with (codes - 1) degrees of freedom.

    In a stratum, given its margins, the joint counts of code and label follow a hypergeometric law. Differences of
    observed and expected counts, and their covariances, are added over strata.
    """
    n_codes, p, width = counts.strata[0].joint.shape
    # The first code follows from the others; codes beyond those of a feature have no rows.
    difference, spreads = np.zeros((n_codes - 1, p, width)), []
    rows_of = [np.maximum(n, 1.0) for *_, n in counts.strata]  # a label may be unknown in a whole stratum
    for (joint, marginal, positives, _), n in zip(counts.strata, rows_of, strict=True):
        difference += joint[1:] - marginal[1:] * (positives / n)
        spreads.append(positives * (n - positives) / (n * n * np.maximum(n - 1, 1)))
    if n_codes == 2:
        variance = np.zeros((p, width))
        for spread, n, (_, marginal, *_) in zip(spreads, rows_of, counts.strata, strict=True):
            variance += spread * (marginal[1] * (n - marginal[1]))
        return quotient(difference[0] ** 2, variance)
    statistics = np.zeros((p, width))
    for f in range(width):
        covariance = np.zeros((p, n_codes - 1, n_codes - 1))
        for spread, n, (_, marginal, *_) in zip(spreads, rows_of, counts.strata, strict=True):
            rows = marginal[1:, :, f].T.astype(np.float64)[:, :, np.newaxis]  # (1 or p, codes - 1, 1)
            within = np.reshape(n, (-1, 1, 1)) * rows * np.eye(n_codes - 1) - rows * rows.transpose(0, 2, 1)
            covariance += spread[:, :, np.newaxis] * within
        delta = difference[:, :, f].T
        statistics[:, f] = np.einsum("pi,pij,pj->p", delta, np.linalg.pinv(covariance, hermitian=True), delta)
    return statistics
