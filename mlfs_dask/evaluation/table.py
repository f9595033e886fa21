"""The data of an evaluation: its labels in this process, its rows for selectors, its columns for classifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine.readings import ReadingRecord, read_views
from mlfs_dask.errors import DataError, DoesNotFitError, parameter
from mlfs_dask.evaluation.column_file import new_column_file
from mlfs_dask.evaluation.column_subset import ColumnSubset
from mlfs_dask.redaction import redact
from mlfs_dask.rows.contract import RowSource, stack_labels
from mlfs_dask.rows.covariates import ArrayColumn
from mlfs_dask.rows.joined import JoinedRows
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.labels import label_matrix
from mlfs_dask.statistics.counts import code_statistics, measured_view
from mlfs_dask.statistics.rows_in_memory import read_rows
from mlfs_dask.typing import Matrix

#: Fraction of this process's limit that data held in memory may fill, its copies counted.
_HELD_FRACTION = 0.5

#: Values of a feature that a message names.
_SHOWN = 5

#: Sparse columns are made dense above this density, where products of dense matrices take no longer
#: (`benchmarks/judging.py density`).
_DENSE_ABOVE = 0.1


@dataclass(eq=False, kw_only=True)
class Table:
    """Rows, labels and names of the data.

    Parameters
    ----------
    source : RowSource
        One that streams: a store's, or of arrays in memory.
    Y : csr_array of int8, shape (n, q)
    name : str
    path, digest : str or None
        Of the store.
    test : Table, optional
        The last rows, which are the only test rows.
    names : mapping, optional
        Names of features ("feature") and labels ("label"), where there are any.
    subset : mapping, optional
        What was chosen of the store (`Dataset.subset_record`).
    may_share_rows : callable, optional
        Whether what a finished run was made from has some of the rows (`Dataset.may_share_rows`).
    """

    source: RowSource
    Y: Any
    name: str
    path: str | None = None
    digest: str | None = None
    test: Table | None = None
    names: Mapping[str, Any] = field(default_factory=lambda: {"feature": None, "label": None})
    categories: Mapping[int, Sequence[str]] = field(default_factory=dict)
    subset: Mapping[str, Any] | None = None
    may_share_rows: Callable[[Mapping[str, Any]], bool] = lambda record: True

    def __post_init__(self) -> None:
        source = self._as_given = self.source
        self.n, self.d, self.q = source.profile.n, source.profile.d, source.profile.q
        self._X: Matrix | None = source.matrix if isinstance(source, ArrayRows) else None
        self._read: tuple[bytes, Matrix] | None = None
        self._ahead: tuple[NDArray[np.int64], Matrix] | None = None

    @cached_property
    def unknown_labels(self) -> NDArray[np.int64]:
        """Labels of each row that are unknown, shape (n,)."""
        if self.numeric:
            return np.asarray(np.isnan(self.Y).sum(axis=1))
        return np.bincount(np.repeat(np.arange(self.n), np.diff(self.Y.indptr))[self.Y.data < 0], minlength=self.n)

    @property
    def numeric(self) -> bool:
        """True if Y holds numeric targets."""
        return isinstance(self.Y, np.ndarray)

    @property
    def fold_of(self) -> NDArray[np.int64] | None:
        """The split that the data brings: 0 for its test rows, −1 for the others; None without test rows."""
        if self.test is None:
            return None
        fold_of = np.full(self.n, -1, np.int64)
        fold_of[self.n - self.test.n :] = 0
        return fold_of

    @property
    def held(self) -> bool:
        """True if X is in memory of this process."""
        return self._X is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of X in memory."""
        profile = self.source.profile
        return profile.nonzeros * (profile.itemsize + (4 if profile.sparse else 0)) + (
            8 * profile.n if profile.sparse else 0
        )

    @property
    def part_bytes(self) -> int:
        """Bytes of the row numbers and labels of a split, those that classifiers learn from included."""
        return 40 * self.n + 4 * int(self.Y.nbytes if self.numeric else 5 * self.Y.nnz + 4 * self.n)

    def hold_if_it_fits(self, resources: Resources, other_bytes: int) -> bool:
        """Read X into this process if it, a training part's copy, and what else is needed fill half of the memory.

        Returns
        -------
        bool
            Whether it was read now.
        """
        needed = runtime.driver_bytes() + 2 * self.held_bytes + other_bytes
        if self.held or needed > _HELD_FRACTION * resources.driver_limit:
            return False
        pieces = [block.X.copy() for block in self.source.stream(0, len(self.source.row_offsets) - 1)]
        X = sp.csr_array(sp.vstack(pieces, format="csr")) if self.source.profile.sparse else np.concatenate(pieces)
        features = self.source.features
        self._X = X
        self.source = ArrayRows(X, self.Y, n_categories=features.n_categories)
        return True

    def parts(
        self, wanted: Sequence[tuple[NDArray[np.int64], Any]], resources: Resources
    ) -> tuple[list[RowSource], list[ReadingRecord]]:
        """Return rows with labels for selectors, and the passes that it took to know their ranges.

        Raises
        ------
        DoesNotFitError
            Ranges and quantiles of all of them do not fit.
        """
        if self._X is None:
            # Ranges and quantiles that a store keeps have seen the rows that are judged; kinds of features hold.
            views = [RowView(self.source, rows, Y=Y) for rows, Y in wanted]
            read = [(view, code_statistics(view.profile)) for view in views]
            results, records = read_views(read, resources, label="training rows")
            return [measured_view(view, *found) for view, found in zip(views, results, strict=True)], records
        n_categories, parts = self.source.features.n_categories, list[RowSource]()
        for rows, Y in wanted:
            part: RowSource = ArrayRows(self._X[rows], Y, n_categories=n_categories)
            if self._columns:
                columns = {name: column.cut(rows) for name, column in self._columns.items()}
                part = RowView(part, columns=columns, feature_names=self._as_given.feature_names)
            parts.append(part)
        return parts, []

    @cached_property
    def _columns(self) -> dict[str, ArrayColumn]:
        """Columns of the rows, in memory as X is."""
        source = self._as_given
        return {
            name: ArrayColumn(name, column.read(source.all_rows), column.categories)
            for name, column in source.columns.items()
        }

    def columns(
        self,
        columns: NDArray[np.int64],
        resources: Resources,
        folder: Path | None = None,
        missing: str = "error",
    ) -> Matrix:
        """Return the columns of all rows in the order given: by one pass, unless they were the last ones read.

        Parameters
        ----------
        columns : int64 array, shape (k,)
        resources : Resources
        folder : Path, optional
            For a file that holds them, where memory is short.
        missing : str
            "error": missing values are refused. Any other: they are let through.

        Returns
        -------
        ndarray or csr_array, shape (n, k)

        Raises
        ------
        DataError
            A value is missing or infinite.
        """
        mark = columns.tobytes()
        if self._read is None or self._read[0] != mark:
            self._read = None
            if self._ahead is not None and np.isin(columns, self._ahead[0]).all():
                X: Matrix = self._ahead[1].take(np.searchsorted(self._ahead[0], columns), axis=1)
            else:
                X = self._take(columns, resources, folder, missing)
            self._read = mark, X
        return self._read[1]

    def read_ahead(self, columns: NDArray[np.int64], resources: Resources, missing: str) -> None:
        """Hold some columns, rising, of which `columns` gives those that are asked for without a pass."""
        self._read = self._ahead = None
        self._ahead = columns, self._take(columns, resources, None, missing)

    def _take(self, columns: NDArray[np.int64], resources: Resources, folder: Path | None, missing: str) -> Matrix:
        if self._X is None:
            dtype = self.source.profile.float_dtype
            shape = self.n, len(columns)
            X = np.empty(shape, dtype) if folder is None else new_column_file(folder, *shape, dtype)
            read_rows(self.source, resources, columns=columns, out=X, label="chosen columns")
        elif sp.issparse(self._X):
            X = sp.csr_array(self._X[:, columns])
            if folder is None and X.nnz > _DENSE_ABOVE * X.shape[0] * X.shape[1]:
                X = X.toarray()
        else:
            X = self._X[:, columns]
        for _, block in ColumnSubset(X).blocks():
            values = block.data if sp.issparse(block) else block
            if np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all():
                continue
            dense = block.toarray() if sp.issparse(block) else block
            refused, what = ~np.isfinite(dense).all(axis=0), "missing or infinite values"
            if missing != "error":
                refused, what = np.isinf(dense).any(axis=0), "infinite values"
            if refused.any():
                column, names = int(columns[refused.argmax()]), self.names["feature"]
                raise DataError(
                    f"feature {column if names is None else repr(str(names[column]))} has {what}",
                    cure=f"fill missing values in ({parameter('missing', 'mean')}), replace infinite ones before "
                    "conversion, or leave the feature out (mlfs convert --drop)",
                )
        return X


def open_table(data: Any, labels: Any = None, *, name: str | None = None, test: Any = None) -> Table:
    """Return the data as a `Table`.

    Parameters
    ----------
    data : Dataset, path or URL of a store, or array-like
    labels : array-like, optional
    name : str, optional
    test : like data, or (X, Y), optional
        The only test rows; they come after those of `data`.
    """
    from mlfs_dask.storage.dataset import Dataset
    from mlfs_dask.storage.opening import open_dataset

    if isinstance(data, str | Path):
        data = open_dataset(data)
    if isinstance(data, Dataset):
        Y = _all_labels(data)
        names = {"feature": data.feature_names, "label": data.label_names}
        table = Table(
            source=data.rows,
            Y=Y,
            name=name or dataset_name(data.path),
            names=names,
            categories=data.categories,
            path=data.path,
            digest=data.digest,
            subset=data.subset_record,
            may_share_rows=data.may_share_rows,
        )
    else:
        if labels is None:
            raise DataError("no labels were given: data is an array", cure="evaluate(X, candidates, labels=Y)")
        source = as_rows(_in_memory(data), label_matrix(_in_memory(labels)))
        table = Table(source=source, Y=as_labels(label_matrix(_in_memory(labels))), name=name or "data")
    if test is None:
        return table
    other = open_table(*test) if isinstance(test, tuple) else open_table(test)
    return _joined(table, other)


def _in_memory(array: Any) -> Any:
    """Return a Dask array's values; anything else as it is."""
    return array.compute() if hasattr(array, "__dask_graph__") else array


def _all_labels(dataset: Any) -> Any:
    """Return all labels of a store, read without its X."""
    profile = dataset.rows.profile
    labels = 9 * profile.label_nonzeros + 8 * profile.n
    limit = current_resources().driver_limit
    if runtime.driver_bytes() + labels > limit:
        raise DoesNotFitError(
            "the labels of all rows",
            projected=runtime.driver_bytes() + labels,
            available=limit,
            cure="run on a machine with more memory",
        )
    return dataset.rows.all_labels() if profile.numeric else as_labels(dataset.rows.all_labels())


def _joined(table: Table, other: Table) -> Table:
    """Return the rows of one table, and after them those of another, which are the test rows."""
    for kind in ("feature", "label"):
        ours, theirs = table.names[kind], other.names[kind]
        if ours is None or theirs is None or np.array_equal(ours, theirs):
            continue
        sides = (("test rows", theirs, set(ours)), ("rows to learn from", ours, set(theirs)))
        found = (
            f"{str(name)!r} is in the {rows} alone" for rows, mine, its in sides for name in mine if name not in its
        )
        alone = next(found, "")
        at = int(np.argmax(np.asarray(ours[: len(theirs)]) != np.asarray(theirs[: len(ours)])))
        raise DataError(
            f"{kind} {alone}"
            if alone
            else f"{kind} {at} is {str(ours[at])!r} in the rows to learn from and {str(theirs[at])!r} in the test rows",
            cure="convert both files with the same options",
        )
    if (table.d, table.q) != (other.d, other.q):
        raise DataError(
            f"the rows to learn from have {table.d:,} features and {table.q:,} labels, the test rows {other.d:,} and "
            f"{other.q:,}",
            cure="convert both files with the same options",
        )
    if table.numeric != other.numeric:
        raise DataError(
            "the test rows have labels and the rows to learn from numeric targets, or the other way round",
            cure="convert both files with the same options",
        )
    for feature in sorted(table.categories.keys() | other.categories.keys()):
        ours, theirs = (list(each.categories.get(feature, ())) for each in (table, other))
        if ours != theirs:
            name = feature if table.names["feature"] is None else repr(str(table.names["feature"][feature]))
            unseen = [value for value in theirs if value not in ours]
            what = f"has the value {unseen[0]!r} in test rows alone" if ours and unseen else "has other values there"
            raise DataError(
                f"codes of the rows to learn from and of the test rows differ: feature {name} {what} "
                f"({_listed(ours)}; {_listed(theirs)})",
                cure="append the test rows to a copy of the store (`mlfs append`), which joins values by name, and say "
                f"which rows are which ({parameter('fold_of')})",
            )
    return Table(
        source=JoinedRows((table.source, other.source)),
        Y=stack_labels([table.Y, other.Y], table.q, numeric=table.numeric),
        name=table.name,
        path=table.path,
        digest=table.digest,
        test=other,
        names=table.names,
        subset=table.subset,
    )


def _listed(values: Sequence[str]) -> str:
    """Return the values of a feature, the first of many."""
    if not values:
        return "numbers"
    return ", ".join([*map(repr, values[:_SHOWN]), *(["..."] if len(values) > _SHOWN else [])])


def dataset_name(path: str) -> str:
    """Return the name of a data set from the place of its store.

    >>> dataset_name("s3://bucket/sets/enron.zarr/")
    'enron'
    """
    name = PurePosixPath(redact(path).rstrip("/")).name
    return name[: -len(".zarr")] if name.endswith(".zarr") else name
