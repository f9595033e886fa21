"""Tests of all label-feature pairs: which are associated, with direction and significance.

Pairs are tested in tiles of features, and again while the table is written. So memory only holds the sums, the best
features of each label, and the distribution of the p-values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.pair_tests import EFFECTS, INFORMATION, TESTS, PairTests
from mlfs_dask.errors import DataError, number_of, parameter
from mlfs_dask.selection.conditional_tests import ConditionalTests
from mlfs_dask.selection.logistic_tests import logistic_scores
from mlfs_dask.selection.question import Question
from mlfs_dask.selectors.contract import UnknownLabelsFound
from mlfs_dask.selectors.costs import Names, Readings
from mlfs_dask.selectors.pairs import (
    CLUSTERS,
    PAIR_TESTS,
    RANKS,
    SORTED_PAIRS,
    Control,
    CountTests,
    PairQuestion,
    SumTests,
    pair_statistics,
    tile_features,
)
from mlfs_dask.selectors.scores import SHOWN
from mlfs_dask.statistics.clusters import cluster_scores
from mlfs_dask.statistics.ranks import rank_sums
from mlfs_dask.typing import Array

#: Bits of a float64 outside of its bin number, which has nine bits of the mantissa.
_BIN_SHIFT = 43

#: Hypotheses of marginal tests, and of tests given the other features.
HYPOTHESES = (
    "marginal: the feature is associated with the label",
    "given the other features: the feature helps to predict the label linearly once all others are known",
)


class Adjusted:
    """Adjustment of p-values for multiple testing, as a step function of the p-value.

    Parameters
    ----------
    values : float64 array, shape (m,)
        P-values in ascending order, or upper ends of bins.
    counts : int64 array, shape (m,), optional
        Number of p-values in each bin.
    control : {"bh", "by", "holm", "partial", "knockoffs"}
        "partial" is the same as "bh"; "knockoffs" leaves the values unchanged.

    References
    ----------
    Y. Benjamini, Y. Hochberg, Journal of the Royal Statistical Society B 57 (1995) 289-300. Y. Benjamini,
    D. Yekutieli, "The control of the false discovery rate in multiple testing under dependency", Annals of Statistics
    29 (2001) 1165-1188, doi:10.1214/aos/1013699998. S. Holm, "A simple sequentially rejective multiple test
    procedure", Scandinavian Journal of Statistics 6 (1979) 65-70.

    Examples
    --------
    >>> Adjusted(np.array([0.01, 0.04, 0.5])).at(np.array([0.04, 0.5, np.nan]))
    array([0.06, 0.5 ,  nan])
    """

    def __init__(self, values: Array, counts: NDArray[np.int64] | None = None, *, control: Control = "bh") -> None:
        up_to = np.arange(1, len(values) + 1) if counts is None else np.cumsum(counts)
        m = int(up_to[-1]) if len(up_to) else 0
        if control == "knockoffs":
            adjusted = values
        elif control == "holm":
            smaller = up_to - (1 if counts is None else counts)
            adjusted = np.maximum.accumulate(values * (m - smaller))
        else:
            factor = np.sum(1 / np.arange(1, m + 1)) if control == "by" and m <= SORTED_PAIRS else 1.0
            if control == "by" and m > SORTED_PAIRS:
                factor = np.log(m) + np.euler_gamma + 1 / (2 * m)  # expansion of Σ 1/i; the next term is 1/12 m²
            adjusted = np.minimum.accumulate((values * (m * factor) / up_to)[::-1])[::-1]
        self.m = m
        self._values, self._adjusted = values, np.minimum(adjusted, 1.0)

    def at(self, p: Array) -> Array:
        """Return the adjusted values of given p-values; NaN for NaN."""
        return np.append(self._adjusted, np.nan)[np.searchsorted(self._values, p)]

    def threshold(self, level: float) -> float:
        """Return the largest p-value that is significant at a level; −1 if there is none."""
        count = int(np.searchsorted(self._adjusted, level, side="right"))
        return float(self._values[count - 1]) if count else -1.0


def simes(p: Array, least: int = 1) -> Array:
    """Return p-values, shape (w,), for an association with at least `least` labels, from those of all labels, (q, w).

    NaN is ignored; the result is 1 if fewer than `least` p-values are left.

    References
    ----------
    R. J. Simes, "An improved Bonferroni procedure for multiple tests of significance", Biometrika 73 (1986) 751-754,
    doi:10.1093/biomet/73.3.751. Y. Benjamini, R. Heller, "Screening for partial conjunction hypotheses", Biometrics 64
    (2008) 1215-1222, doi:10.1111/j.1541-0420.2007.00984.x, equation 5, for more labels than one.

    Examples
    --------
    >>> p = np.array([[0.01, np.nan], [0.015, np.nan], [np.nan, np.nan]])
    >>> simes(p), simes(p, 2)
    (array([0.015, 1.   ]), array([0.015, 1.   ]))
    """
    ascending = np.sort(p, axis=0)[least - 1 :]  # NaN last
    count = np.count_nonzero(~np.isnan(p), axis=0) - (least - 1)
    ascending = ascending * (count / np.arange(1, 1 + len(ascending))[:, np.newaxis])
    combined: Array = np.fmin(np.fmin.reduce(ascending, axis=0, initial=np.nan), 1.0)
    return combined


class Pairs:
    """Tests of all label-feature pairs, with summaries by feature and by label.

    Parameters
    ----------
    tests : SumTests, CountTests or ConditionalTests
    question : PairQuestion
    feature_names, label_names : sequence of str, or None
        Without names, features are called x0, x1, ... as in scikit-learn, and labels y0, y1, ...
    features : int64 array, shape (d,), optional
        Numbers of the tested features in the data; default all.

    Attributes
    ----------
    significant : int64 array, shape (d,)
        Number of labels with a significant association with each feature.
    best_label : int64 array, shape (d,)
        Label most significantly associated with each feature; −1 without any test.
    best_rank : int64 array, shape (d,)
        Best rank, from 0, of each feature within a label; very large outside of the `question.best`.
    best_order : float64 array, shape (d,)
        `PairTests.order` of each feature with its best label.
    any_label, min_labels : float64 array, shape (d,)
        P-values of each feature for an association with any label, and with `question.min_labels` labels (`simes`).
    summary : dict
        Plain data for run.json.
    warnings : list of Warning
        Warnings to be issued by `fit`.
    """

    adjusted: Adjusted

    def __init__(
        self,
        tests: SumTests | CountTests | ConditionalTests,
        question: PairQuestion,
        feature_names: Any,
        label_names: Any,
        *,
        features: NDArray[np.int64] | None = None,
    ) -> None:
        self.tests, self.question, self.features = tests, question, features
        self.warnings: list[Warning] = []
        self._names = feature_names, label_names
        q, d = tests.shape
        self._step = tile_features(q, d)
        self.any_label, self.best_label, self.best_order = np.ones(d), np.full(d, -1), np.full(d, np.inf)
        self.min_labels, any_label = np.ones(d), getattr(tests, "any_label", None)
        if any_label is not None:
            self.any_label = any_label
        best = min(question.best, d)
        self._best = np.full((q, best), -1)
        order_of_best = np.full((q, best), np.inf)
        p_values = np.empty(q * d if q * d <= SORTED_PAIRS else 0)
        counts = np.zeros(0 if len(p_values) or not q * d else _bins(np.ones(1))[0] + 1, dtype=np.int64)
        filled = 0
        for tile, tested in self._tiles():
            p = tested.p_value
            valid = p[~np.isnan(p)]
            if len(counts):
                counts += np.bincount(_bins(valid), minlength=len(counts))
            else:
                p_values[filled : filled + len(valid)] = valid
                filled += len(valid)
            if any_label is None:
                self.any_label[tile] = simes(p)
            if question.min_labels:
                self.min_labels[tile] = simes(p, question.min_labels)
            order = tested.order
            first = order.argmin(axis=0)
            self.best_order[tile] = order[first, np.arange(len(first))]
            self.best_label[tile] = np.where(np.isinf(self.best_order[tile]), -1, first)
            if best:
                _keep_best(self._best, order_of_best, order, tile.start)
        if len(counts):
            bins = np.flatnonzero(counts)
            upper_ends = ((bins.astype(np.int64) + 1 << _BIN_SHIFT) - 1).view(np.float64)
            self.adjusted = Adjusted(upper_ends, counts[bins], control=question.control)
        else:
            p_values = p_values[:filled]
            p_values.sort()
            self.adjusted = Adjusted(p_values, control=question.control)
        self.threshold = self.adjusted.threshold(question.level)
        self.best_rank = np.full(d, np.iinfo(np.int64).max)
        for rank in range(best - 1, -1, -1):
            features_of_rank = self._best[:, rank]
            self.best_rank[features_of_rank[features_of_rank >= 0]] = rank
        self.significant = np.zeros(d, dtype=np.int64)
        labels, corrected = np.zeros(q, dtype=bool), 0
        for tile, tested in self._tiles():
            significant = tested.p_value <= self.threshold
            self.significant[tile] = significant.sum(axis=0)
            labels |= significant.any(axis=1)
            corrected += int(np.count_nonzero(significant & tested.corrected))
        self.summary = {
            "hypothesis": HYPOTHESES[question.given_others],
            "control": question.control,
            "fdr": question.level,
            "tested": self.adjusted.m,
            "significant": int(self.significant.sum()),
            "corrected": corrected,
            "features": int(np.count_nonzero(self.significant)),
            "labels": int(np.count_nonzero(labels)),
        }
        if question.control == "knockoffs":
            self.summary["seed"] = question.seed

    def _tiles(self) -> Iterator[tuple[slice, PairTests]]:
        d = self.tests.shape[1]
        for start in range(0, d, self._step):
            features = slice(start, min(start + self._step, d))
            yield features, self._directed(self.tests.tile(features))

    def _directed(self, tested: PairTests) -> PairTests:
        """Return tests in which pairs of another sign than the one asked for have p-value 1 and are last.

        Two-sided p-values of the pairs of one sign, and 1 for the others, bound one-sided p-values from above. Effects
        without a sign, as of categories, have no direction.
        """
        if self.question.direction == "both":
            return tested
        signed = tested.statistic if self.question.direction == "up" else -tested.statistic
        other = (signed <= 0) | ((tested.kind == INFORMATION) & ~np.isnan(signed))
        p, order = np.where(other, 1.0, tested.p_value), np.where(other, np.inf, tested.order)
        return tested._replace(p_value=p, order=order)

    def discovered(self, level: float) -> tuple[NDArray[np.bool_], Array]:
        """Return a mask of the features associated with any label at a level over features, and adjusted p-values."""
        return self._discovered(self.any_label, level)

    def discovered_for_labels(self, level: float) -> NDArray[np.bool_]:
        """Return a mask of the features associated with `question.min_labels` labels, at a level over features."""
        return self._discovered(self.min_labels, level)[0]

    def _discovered(self, p: Array, level: float) -> tuple[NDArray[np.bool_], Array]:
        adjusted = Adjusted(np.sort(p), control=self.question.control).at(p)
        return adjusted <= level, adjusted

    # ------------------------------------------------------------------ the table

    @property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Number of significant labels of each feature, and the name of its best label, each of shape (d,)."""
        names = self._label_names
        best = np.array([names[label] if label >= 0 else "" for label in self.best_label.tolist()], dtype=object)
        return self.significant, best

    @property
    def _label_names(self) -> list[str]:
        return _named(self._names[1], "y", range(self.tests.shape[0]))

    def batches(self) -> Iterator[Any]:
        """Yield the table in Arrow record batches: label by label for "best", else in the order of the features."""

        q, d = self.tests.shape
        numbers = np.arange(d) if self.features is None else self.features
        names = [
            _string_column(_named(self._names[0], "x", numbers)),
            *map(_string_column, (self._label_names, EFFECTS, TESTS)),
        ]
        if self.question.rows == "best":
            step = max(1, gates.TEST_PAIRS // max(1, self._best.shape[1]))
            for start in range(0, q, step):
                labels, rank = np.nonzero(self._best[start : start + step] >= 0)
                labels += start
                features = self._best[labels, rank]
                yield self._batch(names, labels, features, self.tests.at(labels, features), ...)
            return
        for tile, tested in self._tiles():
            everything = self.question.rows == "all"
            p = tested.p_value  # pairs of the other direction have order infinity and a p-value
            rows = np.isnan(p) | (tested.order < np.inf) if everything else p <= self.threshold
            features, labels = np.nonzero(rows.T)
            yield self._batch(names, labels, features + tile.start, tested, (labels, features))

    def _batch(
        self, names: list[Any], labels: NDArray[np.intp], features: NDArray[np.intp], tested: PairTests, selection: Any
    ) -> Any:
        import pyarrow as pa

        def chosen(values: NDArray[Any]) -> NDArray[Any]:
            of_rows: NDArray[Any] = np.broadcast_to(values, tested.p_value.shape)[selection]
            return of_rows

        p = chosen(tested.p_value)
        knockoffs = np.nan if self.question.control == "knockoffs" else 1.0  # without p-values
        groups = self.tests.groups(labels, features)
        low, high = tested.interval
        columns = {
            "feature_index": _column(features if self.features is None else self.features[features]),
            "feature": names[0].take(_column(features)),
            "label_index": _column(labels),
            "label": names[1].take(_column(labels)),
            "n": _column(chosen(tested.n)),
            "positives": _column(chosen(tested.positives)),
            "effect": _column(chosen(tested.effect)),
            "effect_kind": names[2].take(_column(chosen(tested.kind))),
            "statistic": _column(chosen(tested.statistic)),
            "p_value": _column(knockoffs * p),
            "q_value": _column(self.adjusted.at(p)),
            "log10_p": _column(np.where(np.isnan(p), np.nan, knockoffs * chosen(tested.order))),
            "test": names[3].take(_column(chosen(tested.test))),
            "corrected": _column(chosen(tested.corrected)),
            "standard_error": _column(chosen(tested.error)),
            "effect_low": _column(chosen(low)),
            "effect_high": _column(chosen(high)),
            "mean_in": _column(groups[0]),
            "mean_out": _column(groups[1]),
            "nonzero_in": _column(groups[2]),
            "nonzero_out": _column(groups[3]),
            "log2_fold_change": _column(self._fold_change(groups[0], groups[1])),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _fold_change(self, mean_in: Array, mean_out: Array) -> Array:
        """Return log2 of the ratio of two means, each with the pseudocount; NaN unless both are positive then."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self.question.log_base is not None:
                scale = np.log(self.question.log_base)
                mean_in, mean_out = np.expm1(mean_in * scale), np.expm1(mean_out * scale)
            both = [np.maximum(mean + self.question.pseudocount, 0.0) for mean in (mean_in, mean_out)]
            change: Array = np.log2(both[0]) - np.log2(both[1])
        return np.where(np.isfinite(change), change, np.nan)

    def table(self) -> Any:
        """Return the table as a `pyarrow.Table`."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches())

    def write(self, file: str) -> None:
        """Write the table to a Parquet file, or to a CSV file if the name ends in .csv, batch by batch."""
        from pyarrow import csv, parquet

        batches = self.batches()
        first = next(batches)
        with (csv.CSVWriter if file.endswith(".csv") else parquet.ParquetWriter)(file, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                if len(batch):
                    writer.write_batch(batch)


def _named(names: Any, letter: str, numbers: Any) -> list[str]:
    return [f"{letter}{i}" for i in numbers] if names is None else [str(name) for name in names]


def _column(values: NDArray[Any]) -> Any:
    """Return an Arrow column of numbers, NaN as null, or of booleans. `pyarrow.array` would import pandas, which takes
    most of 1 s.
    """
    import pyarrow as pa

    if values.dtype == bool:
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])
    kind = np.float64 if values.dtype.kind == "f" else np.int64
    values = np.ascontiguousarray(values, dtype=kind)
    valid = ~np.isnan(values)
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(kind), len(values), [None if valid.all() else _bits(valid), pa.py_buffer(values)]
    )


def _bits(mask: NDArray[np.bool_]) -> Any:
    """Return a mask as an Arrow buffer, a bit an entry."""
    import pyarrow as pa

    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def _string_column(texts: Sequence[str]) -> Any:
    """Return an Arrow column of strings."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers).cast(pa.string())


def _bins(p: Array) -> NDArray[np.int64]:
    return np.ascontiguousarray(p, dtype=np.float64).view(np.int64) >> _BIN_SHIFT


def _keep_best(best: NDArray[np.intp], order_of_best: Array, order: Array, start: int) -> None:
    """Merge a tile into the best features of every label, in place; ties by lower index."""
    label = np.flatnonzero((order < order_of_best[:, -1:]).any(axis=1))
    if not len(label):
        return
    candidates = np.concatenate([order_of_best[label], order[label]], axis=1)
    numbers = np.concatenate(
        [best[label], np.broadcast_to(np.arange(start, start + order.shape[1]), (len(label), order.shape[1]))], axis=1
    )
    smallest = np.argsort(candidates, axis=1, kind="stable")[:, : best.shape[1]]
    order_of_best[label] = np.take_along_axis(candidates, smallest, axis=1)
    numbers = np.take_along_axis(numbers, smallest, axis=1)
    best[label] = np.where(np.isinf(order_of_best[label]), -1, numbers)


def run_tests(question: PairQuestion, readings: Readings, features: NDArray[np.int64] | None) -> Pairs:
    """Return the tests of all pairs, from a pass of the method or, without one, from a pass of their own.

    Parameters
    ----------
    question : PairQuestion
    readings : Readings
    features : int64 array, or None
        Features to read, by their numbers in the data; None: all.

    Raises
    ------
    UnknownLabelsFound, DoesNotFitError, ClusterLostError
    """
    source, names = readings.source, (readings.names.features, readings.names.labels)
    if readings.pair_tests is not None:
        return Pairs(readings.pair_tests, question, *names, features=features)
    if readings.attached_results is None:
        readings.attached = pair_statistics(source, question)
        readings.run(PAIR_TESTS)
    results, readings.attached_results = readings.attached_results, None
    assert results is not None
    unknown = results[0].unknown
    if unknown.any() and source.unknown_labels is None:
        raise UnknownLabelsFound(np.flatnonzero(unknown))
    gram = [results.pop(1)] if question.given_others else []
    tests = SumTests(source, results, question.test)
    if question.clusters:
        (tests.clusters,) = readings.run(CLUSTERS, cluster_scores(source, tests.unadjusted, tests.adjustment))
    if question.test == "rank":
        ranks, records = rank_sums(source, readings.resources, RANKS)
        readings.records += records
        tests.add_ranks(ranks)
    if question.test == "logistic" and tests.adjustment is not None:
        shares = tests.unadjusted.terms.positives[:, 0] / np.maximum(tests.sums.n[:, 0], 1)
        tests.logistic = logistic_scores(readings, tests.adjustment.whole, shares, tests.unadjusted.mean)
    counts = question.rows is not None and (tests.like_counts or (tests.whole and question.log_base is not None))
    warnings: list[Warning] = [UserWarning(_counts_text(question))] if counts else []
    if not gram:
        pairs = Pairs(tests, question, *names, features=features)
    else:
        given_others = ConditionalTests(tests, gram[0], question, readings.names)
        pairs = Pairs(given_others, question, *names, features=features)
        if len(given_others.untested):
            warnings.append(UserWarning(_untested_text(given_others, readings.names)))
    pairs.warnings = warnings
    return pairs


def _counts_text(question: PairQuestion) -> str:
    if question.log_base is not None:
        wrong = f"all values are whole numbers, and {parameter('log_base')} takes them for logarithms"
    else:
        wrong = "values look like counts that are not normalised: differences of rows in their totals enter the tests"
    return (
        f"{wrong}. Divide each row by its total and take log(1 + x), as sc.pp.normalize_total and sc.pp.log1p do, then "
        f"give {parameter('log_base', 'e')}; or leave {parameter('log_base')} out for values of another kind"
    )


def _untested_text(tests: ConditionalTests, names: Names) -> str:
    count = len(tests.untested)
    shown = [str(i) if names.labels is None else repr(str(names.labels[i])) for i in tests.untested[:SHOWN]]
    more = [f"{count - len(shown):,} more"] if count > len(shown) else []
    where_known = ""
    if np.isin(tests.untested, tests.unknown).any():
        where_known = ", or others determine a feature where they are known"
    return (
        f"{count:,} of {number_of(tests.shape[0], 'label')} {'is' if count == 1 else 'are'} not tested given the other "
        f"features ({tests.reason}{where_known}): {', '.join([*shown, *more])}. Marginal tests take them: "
        f"{parameter('control', 'bh')}"
    )


def select_by_pairs(question: Question, pairs: Pairs, discovered: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return a mask of the features that `per_label`, `min_labels` and "auto" select, shape (d,); None without them.

    Raises
    ------
    DataError
        If no feature is selected.
    """
    selected, needs = discovered, []
    if question.control is not None and question.is_auto:
        needs.append(f"is associated with any label at the rate {question.fdr:g}")
    if question.per_label is not None:
        needs.append("can be tested with any label")
        selected = (pairs.best_rank < question.per_label) & (True if selected is None else selected)
    if question.min_labels is not None:
        needs.append(
            f"is associated with {number_of(question.min_labels, 'label')} or more at the rate {question.fdr:g}"
        )
        selected = pairs.discovered_for_labels(question.fdr) & (True if selected is None else selected)
    if selected is None or selected.any():
        return selected
    raise DataError(
        f"no feature {' and '.join(needs)} ({pairs.summary['significant']:,} of {pairs.summary['tested']:,} pairs are "
        f"significant at {question.fdr:g})",
        cure=f"keep a given number of features ({parameter('n_features_to_select')}), ask for fewer labels "
        f"({parameter('min_labels')}), raise the rate ({parameter('fdr')}), or take data with more rows",
    )
