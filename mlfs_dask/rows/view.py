"""Views of a source without a copy: rows, features and labels, row weights, filled missing values, strata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.missing import fill_block
from mlfs_dask.blocks.sparse import count_labels
from mlfs_dask.errors import DataError, parameter
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.rows.contract import Block, FeatureInfo, Profile, RowSource
from mlfs_dask.rows.covariates import (
    ArrayColumn,
    Covariates,
    RowColumn,
    RowSpan,
    labels_in_strata,
    stratified_labels,
)
from mlfs_dask.rows.row_mask import RowMask, Rows, compose_rows, offsets_of, row_numbers, row_numbers_between
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.rows.targets import TargetForm, labels_as_numbers
from mlfs_dask.typing import Array, RowArray

Columns: TypeAlias = NDArray[np.int64] | None

#: Treatment of entries -1 of Y: unknown, an error, or negative.
UnknownLabels: TypeAlias = Literal["use", "refuse", "negative"]


class RowView(RowSource):
    """View of a source, applied to each block by the task that reads it. A view of a view refers to the source itself.

    Parameters
    ----------
    source : RowSource
        Source that can be streamed.
    rows : int64 array, shape (m,), RowMask or range, optional
        Rows of the view, ascending; default all.
    features, labels : int64 array, optional
        Columns of X and Y in the view, ascending; default all.
    Y : csr_array of int8, or float64 array, shape (m, q), optional
        Labels or numeric targets of the view's rows, instead of the source's labels.
    weights : float64 array, shape (m,), optional
        Weights of the view's rows, positive, with exact sums (`weighted_rows`).
    fill : float64 array, shape (d,), optional
        Replacements of missing values.
    unknown : {"use", "refuse", "negative"}
        Unknown labels (-1) stay, raise `DataError`, or become 0.
    known : FeatureInfo, optional
        Facts about the view's features before filling. Default: the facts of the source that hold for the view; for a
        selection of rows, only the kinds of features.
    label_counts : int64 array, shape (3, q), optional
    quantiles : float64 array, shape (d, s), optional
        Quantiles of the view, if measured.
    unknown_labels : int64 array, optional
        Labels of the view that may have unknown entries, if a pass has found them.
    covariates : Covariates, optional
        Covariates of the view's rows and features.
    strata : RowColumn, optional
        Strata of the rows: labels are split by stratum (`stratified_labels`).
    targets : TargetForm, optional
        Form of numeric targets in the view.
    clusters : RowColumn, optional
        Clusters of the rows, as categories.
    target_columns : tuple of RowColumn
        Numeric columns of the source's rows that are targets: Y has its labels, as numbers, and after them these.
    columns : mapping of str to RowColumn, optional
        Further columns of the view's rows, if the source has none.
    feature_names : sequence of str, optional
        Feature names of the view, if the source has none.

    Notes
    -----
    Partitions without selected rows are not read. A view is pickled for workers with its changes, but without the facts
    about features and labels. The digest does not depend on covariates or clusters.
    """

    def __init__(
        self,
        source: RowSource,
        rows: NDArray[np.int64] | Rows | None = None,
        *,
        features: Columns = None,
        labels: Columns = None,
        Y: Any = None,
        weights: Array | None = None,
        fill: Array | None = None,
        unknown: UnknownLabels = "use",
        known: FeatureInfo | None = None,
        label_counts: NDArray[np.int64] | None = None,
        quantiles: Array | None = None,
        unknown_labels: NDArray[np.int64] | None = None,
        covariates: Covariates | None = None,
        strata: RowColumn | None = None,
        clusters: RowColumn | None = None,
        columns: Mapping[str, RowColumn] | None = None,
        feature_names: Sequence[str] | None = None,
        targets: TargetForm | None = None,
        target_columns: tuple[RowColumn, ...] = (),
    ) -> None:
        selected: Rows | None = RowMask(rows, source.profile.n) if isinstance(rows, np.ndarray) else rows
        if isinstance(source, RowView):
            inner, numbers = source, slice(None) if selected is None else row_numbers(selected)
            of_features, of_labels = _all_or(features), _all_or(labels)

            def inherit(own: Any, of_inner: Any, cut: Callable[[Any], Any]) -> Any:
                return own if own is not None or of_inner is None else cut(of_inner)

            if selected is None and weights is None:
                label_counts = inherit(label_counts, inner._label_counts, lambda counts: counts[:, of_labels])
                quantiles = inherit(quantiles, inner._quantiles, lambda table: table[of_features])
            known = inherit(known, inner._feature_info, lambda info: _info_of_view(info, selected, features, weights))
            Y = inherit(Y, inner._Y, lambda Y: Y[numbers][:, of_labels])
            weights = inherit(weights, inner.weights, lambda weights: weights[numbers])
            covariates = inherit(covariates, inner.covariates, lambda covariates: covariates.cut(numbers, features))
            strata = inherit(strata, inner.strata, lambda column: column.cut(numbers))
            clusters = inherit(clusters, inner.clusters, lambda column: column.cut(numbers))
            columns = inherit(columns, inner._columns, lambda own: {name: own[name].cut(numbers) for name in own})
            feature_names = inherit(feature_names, inner._feature_names, lambda names: _names_of(names, features))
            fill = fill if inner._fill is None else inner._fill[of_features]
            if Y is None:
                unknown_labels = inherit(unknown_labels, inner._unknown_labels, lambda own: _positions_of(own, labels))
            targets = inner.targets if targets is None else targets
            target_columns = target_columns or inner._target_columns
            unknown = inner._unknown if unknown == "use" else unknown
            source = inner._source
            selected = compose_rows(inner._rows, selected, source.profile.n)
            features, labels = _compose_columns(inner._features, features), _compose_columns(inner._labels, labels)
        self.residence, self.place = source.residence, source.place
        self._source: RowSource = source
        self._rows: Rows | None = selected
        self._features: Columns = features
        self._labels: Columns = labels
        self._Y: Any = Y
        self.targets = targets
        self._target_columns: tuple[RowColumn, ...] = target_columns
        self.weights = weights
        self._fill: Array | None = fill
        self._unknown: UnknownLabels = unknown
        self._feature_info: FeatureInfo | None = known
        self._label_counts: NDArray[np.int64] | None = label_counts
        self._quantiles: Array | None = quantiles
        self._unknown_labels: NDArray[np.int64] | None = unknown_labels
        self.covariates = covariates
        self.strata = strata
        self.clusters = clusters
        self._columns: Mapping[str, RowColumn] | None = columns
        self._feature_names: Sequence[str] | None = feature_names

    def __getstate__(self) -> dict[str, Any]:
        driver_only = dict.fromkeys(("_feature_info", "_label_counts", "_quantiles", "_columns", "_feature_names"))
        computed = ("_delayed", "cluster_sizes", "features", "label_counts")
        return {name: value for name, value in (vars(self) | driver_only).items() if name not in computed}

    @cached_property
    def profile(self) -> Profile:
        whole, rows, weights = self._source.profile, self._rows, self.weights
        n = whole.n if rows is None else len(rows)
        d = whole.d if self._features is None else len(self._features)
        q = whole.q + len(self._target_columns) if self._labels is None else len(self._labels)
        q = q if self._Y is None else self._Y.shape[1]
        n_share, d_share, q_share = n / max(whole.n, 1), d / max(whole.d, 1), q / max(whole.q, 1)
        numeric = whole.numeric or bool(self._target_columns) if self._Y is None else isinstance(self._Y, np.ndarray)
        label_nonzeros = n * q if numeric else int(whole.label_nonzeros * n_share * q_share)
        if self._Y is not None and not numeric:
            label_nonzeros = int(self._Y.nnz)
        # Selecting rows or columns copies a block, and filling copies it again.
        copies = (rows is not None or self._features is not None) + (self._fill is not None)
        copied = copies * whole.block_bytes + 16 * whole.block_rows * (weights is not None)
        if self._unknown != "use":
            copied += (8 + 14 * label_nonzeros // max(n, 1)) * whole.block_rows
        if self.targets is not None:
            numeric, q = self.targets.cuts is None, len(self.targets.columns)
            label_nonzeros = n * q
            copied += 16 * q * whole.block_rows
        arrays = list(whole.arrays)
        if self._target_columns:
            copied += 24 * q * whole.block_rows
            arrays.append(RowArray("targets of rows", sum(column.nbytes for column in self._target_columns)))
        if self.strata is not None:
            assert self.strata.categories is not None
            n_strata = len(self.strata.categories)
            q, label_nonzeros = n_strata * (1 + q), label_nonzeros + n
            copied += (48 + 34 * label_nonzeros // max(n, 1)) * whole.block_rows
        width = 0 if self.covariates is None else self.covariates.width
        copied += 24 * whole.block_rows * width
        copied += 16 * whole.block_rows * (self.clusters is not None)
        n_read = int(np.diff(self._source.row_offsets)[np.diff(self.row_offsets) > 0].sum())
        if isinstance(rows, RowMask):
            arrays.append(RowArray("chosen rows", rows.bits.nbytes))
        if self._Y is not None:
            parts = [self._Y] if isinstance(self._Y, np.ndarray) else [self._Y.data, self._Y.indices, self._Y.indptr]
            label_bytes = sum(part.nbytes for part in parts)
            arrays.append(RowArray("labels of chosen rows", label_bytes))
        own = {"weights": weights, "covariates": self.covariates, "strata": self.strata, "clusters": self.clusters}
        arrays += [RowArray(f"{name} of rows", each.nbytes) for name, each in own.items() if each is not None]
        return replace(
            whole,
            n=n,
            d=d,
            q=q,
            nonzeros=int(whole.nonzeros * n_share * d_share) if whole.sparse else n * d,
            label_nonzeros=label_nonzeros,
            buffer_bytes=whole.buffer_bytes + copied,
            read_bytes=whole.read_bytes * n_read // max(whole.n, 1),
            weight=None if weights is None else float(weights.sum()),
            covariates=width,
            numeric=numeric,
            arrays=tuple(arrays),
        )

    @property
    def base(self) -> RowSource:
        """The source itself, of whose blocks this is a view."""
        return self._source

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        offsets = self._source.row_offsets
        return offsets if self._rows is None else offsets_of(self._rows, offsets)

    @property
    def _unfilled_features(self) -> FeatureInfo:
        """Facts about the features before missing values are filled."""
        if self._feature_info is not None:
            return self._feature_info
        return _info_of_view(self._source.features, self._rows, self._features, self.weights)

    @cached_property
    def features(self) -> FeatureInfo:
        known, fill = self._unfilled_features, self._fill
        if fill is None or (known.n_missing is not None and not known.n_missing.any()):
            return known
        if known.minimum is None or known.maximum is None:
            return FeatureInfo(n_categories=known.n_categories)
        # Fill values (means, medians) lie between minimum and maximum, which are NaN for a feature without values.
        low, high = (np.where(np.isnan(bound), fill, bound) for bound in (known.minimum, known.maximum))
        share, none, n = known.zero_share, np.zeros(len(low), np.int64), self.profile.n
        if share is not None:
            filled = none if known.n_missing is None else known.n_missing
            share = (np.rint(share * (n - filled)) + filled * (fill == 0)) / n
        return replace(known, minimum=low, maximum=high, n_missing=none, zero_share=share)

    @property
    def quantiles(self) -> Array | None:
        if self._fill is not None:
            missing = self._unfilled_features.n_missing
            if missing is None or missing.any():
                return None
        if self._quantiles is None and self._rows is None and self.weights is None:
            whole = self._source.quantiles
            return None if whole is None else whole[_all_or(self._features)]
        return self._quantiles

    @cached_property
    def label_counts(self) -> NDArray[np.int64] | None:
        return self._counts if self.strata is None and self.targets is None else None

    @property
    def _counts(self) -> NDArray[np.int64] | None:
        """Label counts without the split by strata."""
        counts = self._label_counts
        if counts is None and self._Y is not None:
            counts = count_labels(self._Y, self.weights)
        elif self._target_columns:
            return counts
        elif counts is None and self._rows is None and self.weights is None and self._source.label_counts is not None:
            counts = self._source.label_counts[:, _all_or(self._labels)]
        if counts is None or self._unknown != "negative":
            return counts
        return np.stack([np.zeros_like(counts[0]), counts[0] + counts[1], counts[2]])

    @property
    def unknown_labels(self) -> NDArray[np.int64] | None:
        labels = self._unknown_labels
        if labels is None and self._counts is not None:
            labels = np.flatnonzero(self._counts[0])
        elif labels is None and not self._target_columns:
            of_source = self._source.unknown_labels  # a subset of rows adds no label
            labels = None if of_source is None else _positions_of(of_source, self._labels)
        if self.targets is not None and labels is not None:
            labels = np.flatnonzero(np.isin(self.targets.columns, labels))
        if self.strata is None or labels is None:
            return labels
        return labels_in_strata(labels, len(self.strata.categories or ()))

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        return self._source.columns if self._columns is None else self._columns

    @property
    def all_rows(self) -> RowSpan:
        inside: NDArray[np.int64] | slice = slice(None) if self._rows is None else row_numbers(self._rows)
        return RowSpan(0, self._source.profile.n, inside, 0)

    @property
    def feature_names(self) -> Sequence[str] | None:
        if self._feature_names is not None:
            return self._feature_names
        names = self._source.feature_names
        return None if names is None else _names_of(names, self._features)

    @cached_property
    def digest(self) -> str | None:
        whole, rows, Y = self._source.digest, self._rows, self._Y
        if whole is None:
            return None
        values = {
            "weights": self.weights,
            "fill": self._fill,
            "unknown": None if self._unknown == "use" else self._unknown,
            "strata": None if self.strata is None else self.strata.identity,
            "targets": None if self.targets is None else list(vars(self.targets).values()),
            "target_columns": [column.identity for column in self._target_columns] or None,
        }
        # Digests of subsets of stores are in run records: an unchanged property adds nothing to them.
        changes = {name: value for name, value in values.items() if value is not None}
        if not changes and all(each is None for each in (rows, self._features, self._labels, Y)):
            return whole
        identity = {
            "source": whole,
            "rows": rows.bits if isinstance(rows, RowMask) else rows and [rows.start, rows.stop, rows.step],
            "columns": [self._features, self._labels],
            "labels": Y if Y is None or isinstance(Y, np.ndarray) else [Y.indptr, Y.indices, Y.data],
        }
        return digest_of(identity | changes)

    def require_visible(self) -> None:
        self._source.require_visible()

    def labels_only(self) -> RowSource:
        if self._Y is not None:
            labels: RowSource = ArrayRows(sp.csr_array((self.profile.n, 0)), self._Y)
            clusters = self.clusters
            if clusters is not None:  # the rows of this view are those of a source here
                clusters = ArrayColumn(clusters.name, clusters.codes(self.all_rows), clusters.categories)
            return RowView(labels, weights=self.weights, unknown=self._unknown, clusters=clusters, targets=self.targets)
        labels = self._source.labels_only()
        features = self._features if labels is self._source else None
        view = RowView(
            labels,
            self._rows,
            features=features,
            labels=self._labels,
            weights=self.weights,
            target_columns=self._target_columns,
        )
        return RowView(view, unknown=self._unknown, strata=self.strata, clusters=self.clusters, targets=self.targets)

    def labels_and_covariates(self) -> RowSource:
        if self.covariates is None or self.covariates.features or self._Y is not None:
            return self
        return RowView(self.labels_only(), covariates=self.covariates)

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Yield the blocks of partitions first..last-1 in row order."""
        nonempty = np.diff(self.row_offsets[first : last + 1]) > 0
        edges = np.flatnonzero(np.diff(np.concatenate([[0], nonempty, [0]])))
        for start, stop in edges.reshape(-1, 2):  # runs of partitions with selected rows
            row = int(self.row_offsets[first + int(start)])
            for block in self._source.stream(first + int(start), first + int(stop)):
                part = self._view_block(block, row)
                if part.X.shape[0]:
                    yield part
                row += part.X.shape[0]

    def part_of(self, block: Block) -> Block:
        """Return the view of any block of `base`; it may have no rows."""
        row = block.start
        if self._rows is not None:
            offsets = self._source.row_offsets
            partition = int(np.searchsorted(offsets, block.start, side="right")) - 1
            before = row_numbers_between(self._rows, int(offsets[partition]), block.start)
            row = int(self.row_offsets[partition]) + len(before)
        return self._view_block(block, row)

    def _view_block(self, block: Block, row: int) -> Block:
        """Return the view of a block of the source; `row` is the view's number of its first row."""
        start, X, Y, *_ = block
        stop = start + X.shape[0]
        inside: NDArray[np.int64] | slice = slice(None)
        if self._rows is not None:
            numbers = row_numbers_between(self._rows, start, stop) - start
            if len(numbers) < X.shape[0]:
                inside = numbers
                X, Y = X[inside], Y[inside]
        rows, span = slice(row, row + X.shape[0]), RowSpan(start, stop, inside, row)
        if self._Y is not None:
            Y = self._Y[rows]
        else:
            if self._target_columns:
                Y = np.column_stack([labels_as_numbers(Y), *(column.read(span) for column in self._target_columns)])
            Y = Y if self._labels is None else Y[:, self._labels]
        if self._unknown != "use" and not isinstance(Y, np.ndarray) and (Y.data < 0).any():
            Y = self._without_unknown(Y, row)
        if self.targets is not None:
            Y = self.targets.apply(Y)
        if self.strata is not None:
            assert self.strata.categories is not None
            Y = stratified_labels(Y, self.strata.codes(span), len(self.strata.categories))
        if self._features is not None:
            X = X[:, self._features] if sp.issparse(X) else X.take(self._features, axis=1)
        if self._fill is not None:
            X = fill_block(X, self._fill)
        weights = None if self.weights is None else self.weights[rows]
        covariates = None if self.covariates is None else self.covariates.of_rows(span, X)
        clusters = None if self.clusters is None else self.clusters.codes(span)
        return Block(row, X, Y, weights, covariates, clusters)

    def as_read(self) -> RowView:
        """Return the view with numeric targets as they are."""
        view = copy(self)
        view.targets = None
        view.__dict__.pop("profile", None)
        return view

    def _without_unknown(self, Y: sp.csr_array, row: int) -> sp.csr_array:
        """Return labels with entries -1 replaced by 0; `row` is the number of the first row.

        Raises
        ------
        DataError
            If `unknown` is "refuse" and an entry is -1.
        """
        if self._unknown == "refuse":
            entry = int(np.flatnonzero(Y.data < 0)[0])
            row += int(np.searchsorted(Y.indptr, entry, side="right")) - 1
            raise DataError(
                f"{parameter('unknown', 'refuse')} was given, and row {row} of Y has an unknown label (-1) in column "
                f"{int(Y.indices[entry])} (counted from 0)",
                cure=f"drop those rows or labels, or choose {parameter('unknown', 'negative')} if -1 means negative",
            )
        certain = sp.csr_array((np.maximum(Y.data, 0), Y.indices, Y.indptr), shape=Y.shape, copy=True)
        certain.eliminate_zeros()
        return certain

    def delayed_partition(self, partition: int) -> Any:
        from dask.delayed import delayed

        return delayed(_view_of, pure=False)(self._delayed, self._source.delayed_partition(partition))

    @cached_property
    def _delayed(self) -> Any:
        """Delayed view without its source; every task receives a partition of the source."""
        from dask.delayed import delayed

        return delayed(_view_of(self, None), pure=False, traverse=False)


def _view_of(view: RowView, source: Any) -> RowView:
    """Return the view on another source with the same rows."""
    view = copy(view)
    view._source = source
    return view


def _info_of_view(info: FeatureInfo, rows: Rows | None, columns: Columns, weights: Any) -> FeatureInfo:
    """Return the facts of `info` that hold for the given rows, columns and weights."""
    if rows is not None:
        info = FeatureInfo(n_categories=info.n_categories)
    if weights is not None:
        info = replace(info, zero_share=None)
    return FeatureInfo(**{name: None if a is None else a[_all_or(columns)] for name, a in vars(info).items()})


def _all_or(columns: Columns) -> Any:
    """Return an index of the columns; of all for None."""
    return slice(None) if columns is None else columns


def _names_of(names: Sequence[str], columns: Columns) -> Sequence[str]:
    """Return the names of the columns; all for None."""
    return names if columns is None else [names[column] for column in columns]


def _positions_of(columns: NDArray[np.int64], selection: Columns) -> NDArray[np.int64]:
    """Return the positions within `selection` of its entries that are in `columns`; `columns` itself for None."""
    return columns if selection is None else np.flatnonzero(np.isin(selection, columns))


def _compose_columns(columns: Columns, selection: Columns) -> Columns:
    """Compose two selections of columns: return `selection` within `columns`; None for all."""
    if columns is None or selection is None:
        return selection if columns is None else columns
    return columns[selection]
