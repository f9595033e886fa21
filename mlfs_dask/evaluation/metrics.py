"""Metrics of multi-label classification, scikit-learn's where it has them.

A row is judged by the order of its labels' scores, or by the labels that were predicted. What is left out, and how ties
count, is the same for all metrics of a kind:

- Ranking loss, one-error and average precision are means over the rows that have a label and lack a label: in any other
  row every order is right. Coverage and precision at k are means over the rows that have a label.
- Ties count against the classifier in ranking loss, coverage and average precision (scikit-learn); one-error and
  precision at k take the labels of lower index first.
- F1 of a label that is neither present nor predicted is 0. Macro AUC is the mean over labels that have both classes.
- A metric that has nothing to be computed from is undefined: NaN.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import UsageError


@dataclass(frozen=True)
class Judged:
    """What metrics are computed from.

    Attributes
    ----------
    truth : int8 array, shape (m, q)
        0 and 1.
    scores : float array, shape (m, q)
        Higher for labels that apply more likely.
    predicted : int8 array, shape (m, q)
        0 and 1.
    """

    truth: NDArray[np.int8]
    scores: NDArray[np.floating]
    predicted: NDArray[np.int8]
    _kept: dict[str, tuple[NDArray[np.int8], NDArray[np.floating]]] = field(default_factory=dict, repr=False)

    def with_a_label(self) -> tuple[NDArray[np.int8], NDArray[np.floating]]:
        """Truth and scores of the rows that have a label."""
        return self._rows("some", np.asarray(self.truth.any(axis=1)))

    def with_an_order(self) -> tuple[NDArray[np.int8], NDArray[np.floating]]:
        """Truth and scores of the rows that have a label and lack a label."""
        return self._rows("order", np.asarray(self.truth.any(axis=1) & ~self.truth.all(axis=1)))

    def _rows(self, name: str, rows: NDArray[np.bool_]) -> tuple[NDArray[np.int8], NDArray[np.floating]]:
        if name not in self._kept:
            whole = bool(rows.all())
            self._kept[name] = (self.truth, self.scores) if whole else (self.truth[rows], self.scores[rows])
        return self._kept[name]


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes
    ----------
    name, title : str
    better : {"higher", "lower"}
    compute : callable
        From `Judged` to float; NaN where undefined.
    """

    name: str
    title: str
    better: str
    compute: Callable[[Judged], float]


def _hamming_loss(judged: Judged) -> float:
    from sklearn.metrics import hamming_loss

    return float(hamming_loss(judged.truth, judged.predicted))


def _subset_accuracy(judged: Judged) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(judged.truth, judged.predicted))


def _ranking_loss(judged: Judged) -> float:
    from sklearn.metrics import label_ranking_loss

    truth, scores = judged.with_an_order()
    return float(label_ranking_loss(truth, scores)) if len(truth) else np.nan


def _average_precision(judged: Judged) -> float:
    from sklearn.metrics import label_ranking_average_precision_score

    truth, scores = judged.with_an_order()
    return float(label_ranking_average_precision_score(truth, scores)) if len(truth) else np.nan


def _coverage(judged: Judged) -> float:
    from sklearn.metrics import coverage_error

    truth, scores = judged.with_a_label()
    if not len(truth):
        return np.nan
    # Steps down the ranking, where scikit-learn counts the labels on the way; it does not take a single label.
    return float(coverage_error(truth, scores)) - 1 if truth.shape[1] > 1 else 0.0


def _one_error(judged: Judged) -> float:
    truth, scores = judged.with_an_order()
    if not len(truth):
        return np.nan
    return float(1 - truth[np.arange(len(truth)), scores.argmax(axis=1)].mean())


def _precision_at(k: int) -> Callable[[Judged], float]:
    def compute(judged: Judged) -> float:
        truth, scores = judged.with_a_label()
        if not len(truth) or k > truth.shape[1]:
            return np.nan
        first = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return float(np.take_along_axis(truth, first, axis=1).mean())

    return compute


def _f1(average: str) -> Callable[[Judged], float]:
    def compute(judged: Judged) -> float:
        from sklearn.metrics import f1_score

        # One column would be taken for two classes, and their F1 averaged.
        kind = average if judged.truth.shape[1] > 1 else "binary"
        return float(f1_score(judged.truth, judged.predicted, average=kind, zero_division=0))

    return compute


def _auc(average: str) -> Callable[[Judged], float]:
    def compute(judged: Judged) -> float:
        from sklearn.metrics import roc_auc_score

        both = judged.truth.any(axis=0) & ~judged.truth.all(axis=0)
        if average == "macro":
            if not both.any():
                return np.nan
            return float(roc_auc_score(judged.truth[:, both], judged.scores[:, both], average="macro"))
        truth = judged.truth.ravel()
        return float(roc_auc_score(truth, judged.scores.ravel())) if 0 < truth.sum() < len(truth) else np.nan

    return compute


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("hamming_loss", "Hamming loss", "lower", _hamming_loss),
        Metric("ranking_loss", "Ranking loss", "lower", _ranking_loss),
        Metric("one_error", "One-error", "lower", _one_error),
        Metric("coverage", "Coverage", "lower", _coverage),
        Metric("average_precision", "Average precision", "higher", _average_precision),
        Metric("macro_f1", "Macro F1", "higher", _f1("macro")),
        Metric("micro_f1", "Micro F1", "higher", _f1("micro")),
        Metric("macro_auc", "Macro AUC", "higher", _auc("macro")),
        Metric("micro_auc", "Micro AUC", "higher", _auc("micro")),
        Metric("subset_accuracy", "Subset accuracy", "higher", _subset_accuracy),
    )
}

#: What is computed unless told otherwise.
DEFAULT_METRICS = (*METRICS, "precision_at_1", "precision_at_3", "precision_at_5")


def get_metric(name: str) -> Metric:
    """The metric of a name; `precision_at_K` exists for every K.

    Raises
    ------
    UsageError
        There is none; the closest names are told.
    """
    if name in METRICS:
        return METRICS[name]
    precision = re.fullmatch(r"precision_at_([1-9]\d*)", name)
    if precision:
        return Metric(name, f"Precision at {precision[1]}", "higher", _precision_at(int(precision[1])))
    known = [*METRICS, "precision_at_1"]
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
    raise UsageError(f"there is no metric {name!r}. Did you mean {' or '.join(close)}?")


def compute_metrics(judged: Judged, names: Sequence[str] = DEFAULT_METRICS) -> Mapping[str, float]:
    """The value of every metric; NaN where it is undefined.

    Examples
    --------
    >>> truth = np.array([[1, 0, 0], [0, 1, 1]], np.int8)
    >>> scores = np.array([[0.9, 0.2, 0.6], [0.7, 0.8, 0.1]])
    >>> judged = Judged(truth, scores, (scores >= 0.5).astype(np.int8))
    >>> values = compute_metrics(judged, ("hamming_loss", "one_error", "coverage", "precision_at_1"))
    >>> {name: round(value, 4) for name, value in values.items()}
    {'hamming_loss': 0.5, 'one_error': 0.0, 'coverage': 1.0, 'precision_at_1': 1.0}
    """
    return {name: get_metric(name).compute(judged) for name in names}
