"""Metrics of multi-label classification: scikit-learn's values where it has them, from a block of rows at a time.

A row is judged by the order of its labels' scores, or by the labels that were predicted. What is left out, and how ties
count, is the same for all metrics of a kind:

- Entries that are unknown (−1) are not judged: a row is judged by the order of its known labels, a label by the rows
  where it is known.
- Ranking loss, one-error and average precision are means over the rows that have a label and lack a label: in any other
  row every order is right. Coverage is the mean over the rows that have a label, precision at k over those of them with
  k known labels or more.
- Ties count against the classifier in ranking loss, coverage and average precision (scikit-learn); one-error and
  precision at k take the labels of lower index first.
- F1 of a label that is neither present nor predicted is 0; a label that is known in no row is left out. Macro AUC is
  the mean over labels that have both classes.
- A metric that has nothing to be computed from is undefined: NaN.

All that depends on order within a row comes from one sort of its labels, where scikit-learn goes through the rows in
Python for each metric and holds several arrays of the scores' shape (200 000 rows of 100 labels: 40 s and 1 GB).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.label_order import order_labels
from mlfs_dask.errors import UsageError, closest

#: Entries (rows times labels) that are looked at together.
_BLOCK_ENTRIES = 2**19


@dataclass(frozen=True)
class Predictions:
    """Labels and scores from which metrics are computed.

    Attributes
    ----------
    truth : array or csr_array, shape (m, q)
        0, 1, and −1 for unknown.
    scores : float array, shape (m, q)
        Higher for labels that apply more likely; from ½ on a label is predicted.
    """

    truth: NDArray[np.integer] | sp.csr_array
    scores: NDArray[np.floating]

    def blocks(self) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.floating]]]:
        """Yield masks of present and of known labels, and the scores, block by block of rows."""
        m, q = self.scores.shape
        step = max(1, _BLOCK_ENTRIES // max(q, 1))
        for low in range(0, m, step):
            truth = self.truth[low : low + step]
            truth = truth if isinstance(truth, np.ndarray) else truth.toarray()
            yield truth > 0, truth >= 0, self.scores[low : low + step]

    @cached_property
    def order(self) -> OrderSums:
        """Sums over the order of labels within rows."""
        sums = OrderSums.zero(self.scores.shape[1])
        for truth, known, scores in self.blocks():
            sums.add(truth, known, scores)
        return sums

    @cached_property
    def counts(self) -> Counts:
        """Counts of the predicted labels."""
        counts = Counts(0, 0, *np.zeros((4, self.scores.shape[1]), np.int64))
        for truth, known, scores in self.blocks():
            counts.add(truth, known, scores >= 0.5)
        return counts


@dataclass
class OrderSums:
    """Sums over rows that have a label.

    Attributes
    ----------
    rows, ordered : int
        Rows that have a label; those of them that are known to lack one, too.
    ranking_loss, precision : float
    one_error : int
        Over the ordered rows.
    coverage : int
    hits, long : int64 array, shape (q,)
        Over the rows with so many known labels, of those of the first ranks the ones that apply, equal scores by index;
        and these rows.
    """

    rows: int
    ordered: int
    ranking_loss: float
    precision: float
    one_error: int
    coverage: int
    hits: NDArray[np.int64]
    long: NDArray[np.int64]

    @classmethod
    def zero(cls, q: int) -> OrderSums:
        """Return the sums of no rows."""
        return cls(0, 0, 0.0, 0.0, 0, 0, *np.zeros((2, q), np.int64))

    def add(self, truth: NDArray[np.bool_], known: NDArray[np.bool_], scores: NDArray[np.floating]) -> None:
        """Add the rows of a block."""
        some = truth.any(axis=1)
        if not some.all():
            truth, known, scores = truth[some], known[some], scores[some]
        if not len(truth):
            return
        n_known = known.sum(axis=1)
        if not known.all():
            scores = np.where(known, scores, -np.inf)  # behind all others
        order = order_labels(truth, scores)
        positives, above = order.positives, order.rank + 1
        ordered = positives < n_known
        wrong = np.add.reduceat(above - order.positives_above, order.starts)[ordered]
        pairs = (positives * (n_known - positives))[ordered]
        self.rows += len(truth)
        self.ordered += int(ordered.sum())
        self.ranking_loss += float((wrong / pairs).sum())
        self.precision += float(order.precision[ordered].sum())
        self.one_error += int((~order.truth[ordered, 0]).sum())
        self.coverage += int(order.rank[order.starts + positives - 1].sum())
        long = np.arange(truth.shape[1]) < n_known[:, np.newaxis]
        self.hits += (np.cumsum(order.truth, axis=1) * long).sum(axis=0)
        self.long += long.sum(axis=0)


@dataclass
class Counts:
    """Counts of rows, and of entries by label.

    Attributes
    ----------
    rows, exact : int
        Rows with a known label; those whose labels are all predicted, and no others that are known.
    both, present, predicted, known : int64 array, shape (q,)
        Known entries that are present and predicted, present, predicted; and all of them.
    """

    rows: int
    exact: int
    both: NDArray[np.int64]
    present: NDArray[np.int64]
    predicted: NDArray[np.int64]
    known: NDArray[np.int64]

    def add(self, truth: NDArray[np.bool_], known: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> None:
        """Add the rows of a block."""
        predicted = predicted & known
        some = known.any(axis=1)
        self.rows += int(some.sum())
        self.exact += int(((truth == predicted).all(axis=1) & some).sum())
        self.known += known.sum(axis=0)
        self.both += (truth & predicted).sum(axis=0)
        self.present += truth.sum(axis=0)
        self.predicted += predicted.sum(axis=0)


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes
    ----------
    name, title : str
    better : {"higher", "lower"}
    compute : callable
        From `Predictions` to float; NaN where undefined.
    """

    name: str
    title: str
    better: str
    compute: Callable[[Predictions], float]


def _hamming_loss(predictions: Predictions) -> float:
    counts = predictions.counts
    wrong = int((counts.present + counts.predicted - 2 * counts.both).sum())
    return wrong / int(counts.known.sum()) if counts.rows else np.nan


def _subset_accuracy(predictions: Predictions) -> float:
    counts = predictions.counts
    return counts.exact / counts.rows if counts.rows else np.nan


def _over_ordered(total: Callable[[OrderSums], float]) -> Callable[[Predictions], float]:
    def compute(predictions: Predictions) -> float:
        order = predictions.order
        return total(order) / order.ordered if order.ordered else np.nan

    return compute


def _coverage(predictions: Predictions) -> float:
    # Steps down the ranking, where scikit-learn counts the labels on the way.
    return predictions.order.coverage / predictions.order.rows if predictions.order.rows else np.nan


def _precision_at(k: int) -> Callable[[Predictions], float]:
    def compute(predictions: Predictions) -> float:
        order = predictions.order
        return int(order.hits[k - 1]) / (k * int(order.long[k - 1])) if order.long[k - 1 : k].any() else np.nan

    return compute


def _macro_f1(predictions: Predictions) -> float:
    counts = predictions.counts
    f1 = 2 * counts.both / np.maximum(counts.present + counts.predicted, 1)
    return float(np.mean(f1[counts.known > 0])) if counts.rows else np.nan


def _micro_f1(predictions: Predictions) -> float:
    counts = predictions.counts
    f1 = 2 * int(counts.both.sum()) / max(int((counts.present + counts.predicted).sum()), 1)
    return f1 if counts.rows else np.nan


def _macro_auc(predictions: Predictions) -> float:
    counts = predictions.counts
    truth = sp.csc_array(predictions.truth)
    areas = []
    for label in np.flatnonzero((counts.present > 0) & (counts.present < counts.known)):
        own = slice(truth.indptr[label], truth.indptr[label + 1])
        entries = np.zeros(len(predictions.scores), np.int8)
        entries[truth.indices[own]] = np.sign(truth.data[own])
        scores = predictions.scores[:, label]
        areas.append(_share_above(np.sort(scores[entries > 0]), [scores[entries == 0]]))
    return float(np.mean(areas)) if areas else np.nan


def _micro_auc(predictions: Predictions) -> float:
    positives, known = int(predictions.counts.present.sum()), int(predictions.counts.known.sum())
    if positives in (0, known):
        return np.nan
    # Of both kinds of entries the rarer is sorted; the other is looked up in it.
    rarer = 2 * positives <= known
    rare = np.concatenate([scores[known & (truth == rarer)] for truth, known, scores in predictions.blocks()])
    rare.sort()
    share = _share_above(rare, (scores[known & (truth != rarer)] for truth, known, scores in predictions.blocks()))
    return share if rarer else 1 - share


def _share_above(scores: NDArray[np.floating], others: Iterable[NDArray[np.floating]]) -> float:
    """Return the share of the pairs of a score and another in which the first is higher, equal ones counted half.

    >>> _share_above(np.array([0.2, 0.6]), [np.array([0.6, 0.1]), np.array([0.7])])
    0.4166666666666667
    """
    twice, pairs = 0, 0
    for block in others:
        block.sort()
        below_or_equal = np.searchsorted(scores, block, "right").sum() + np.searchsorted(scores, block, "left").sum()
        twice += 2 * len(scores) * len(block) - int(below_or_equal)
        pairs += len(scores) * len(block)
    return twice / (2 * pairs)


def _mean_over_targets(
    of_target: Callable[[NDArray[np.floating], NDArray[np.floating]], float],
) -> Callable[[Predictions], float]:
    """Return a metric of numeric targets: the mean over those that vary, each over the rows where it is known."""

    def compute(predictions: Predictions) -> float:
        values = []
        for truth, scores in zip(np.asarray(predictions.truth).T, predictions.scores.T, strict=True):
            known = ~np.isnan(truth)
            if known.any() and np.ptp(truth[known]) > 0:
                values.append(of_target(truth[known], scores[known]))
        return float(np.mean(values)) if values else np.nan

    return compute


def _r2(truth: NDArray[np.floating], scores: NDArray[np.floating]) -> float:
    return float(1 - np.square(truth - scores).sum() / np.square(truth - truth.mean()).sum())


def _rank_correlation(truth: NDArray[np.floating], scores: NDArray[np.floating]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(truth, scores).statistic) if np.ptp(scores) > 0 else 0.0


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("hamming_loss", "Hamming loss", "lower", _hamming_loss),
        Metric("ranking_loss", "Ranking loss", "lower", _over_ordered(lambda order: order.ranking_loss)),
        Metric("one_error", "One-error", "lower", _over_ordered(lambda order: order.one_error)),
        Metric("coverage", "Coverage", "lower", _coverage),
        Metric("average_precision", "Average precision", "higher", _over_ordered(lambda order: order.precision)),
        Metric("macro_f1", "Macro F1", "higher", _macro_f1),
        Metric("micro_f1", "Micro F1", "higher", _micro_f1),
        Metric("macro_auc", "Macro AUC", "higher", _macro_auc),
        Metric("micro_auc", "Micro AUC", "higher", _micro_auc),
        Metric("subset_accuracy", "Subset accuracy", "higher", _subset_accuracy),
    )
}

#: What is computed by default.
DEFAULT_METRICS = (*METRICS, "precision_at_1", "precision_at_3", "precision_at_5")

#: Metrics of numeric targets.
TARGET_METRICS = {
    "r2": Metric("r2", "R²", "higher", _mean_over_targets(_r2)),
    "spearman": Metric("spearman", "Rank correlation", "higher", _mean_over_targets(_rank_correlation)),
}
METRICS |= TARGET_METRICS


def metrics_bytes(entries: int, positives: int) -> int:
    """Return bytes that computing all metrics takes at most beside scores and truth, for so many entries.

    Arrays of a block, the truth by label (with a copy of its values by older versions of SciPy), and the scores of the
    positive or of the negative entries, the fewer.
    """
    return 12 * 8 * min(entries, _BLOCK_ENTRIES) + 7 * positives + 16 * min(positives, entries - positives)


def get_metric(name: str) -> Metric:
    """Return the metric of a name; `precision_at_K` exists for every K.

    Raises
    ------
    UsageError
        There is none; the message names the closest ones.
    """
    if name in METRICS:
        return METRICS[name]
    precision = re.fullmatch(r"precision_at_([1-9]\d*)", name)
    if precision:
        return Metric(name, f"Precision at {precision[1]}", "higher", _precision_at(int(precision[1])))
    raise UsageError(f"there is no metric {name!r}. {closest(name, [*METRICS, 'precision_at_1'])}")


def compute_metrics(predictions: Predictions, names: Sequence[str] = DEFAULT_METRICS) -> Mapping[str, float]:
    """Return the value of every metric; NaN where it is undefined.

    Examples
    --------
    >>> truth = np.array([[1, 0, 0], [0, 1, 1]], np.int8)
    >>> scores = np.array([[0.9, 0.2, 0.6], [0.7, 0.8, 0.1]])
    >>> predictions = Predictions(truth, scores)
    >>> values = compute_metrics(predictions, ("hamming_loss", "one_error", "coverage", "precision_at_1"))
    >>> {name: round(value, 4) for name, value in values.items()}
    {'hamming_loss': 0.5, 'one_error': 0.0, 'coverage': 1.0, 'precision_at_1': 1.0}
    """
    return {name: get_metric(name).compute(predictions) for name in names}
