"""Containers for `fit` and `transform`: arrays, tables, stores, AnnData, Dask data frames, xarray arrays."""

from __future__ import annotations

import numbers
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.errors import DataError, UsageError, closest, number_of

#: Key in `obsm` of the labels of an AnnData object, as in a store.
ANNDATA_LABELS = "labels"


class Container(NamedTuple):
    """X, y and their names.

    Attributes
    ----------
    X : array-like, Dask array, Dataset or RowSource
    y : array-like, Dask array or None
        None: X includes its labels. Labels given with a RowSource replace the source's labels.
    feature_names, label_names : sequence of str, or None
        None if there are no names, or if X or y is a table with column names.
    """

    X: Any
    y: Any = None
    feature_names: Any = None
    label_names: Any = None


def open_container(X: Any, y: Any = None, *, numeric: bool = False) -> Container:
    """Return X and y in a form that `rows.sources` reads.

    Parameters
    ----------
    X : path or URL, Dataset, AnnData, LazyFrame of polars, dataset of Arrow, dask DataFrame, or anything else
    y : array-like, dask DataFrame or Series, or None
        For a file or a table also names of columns, or the name of one; for AnnData names of columns of `obs`, by
        default `obsm["labels"]`.
    numeric : bool
        True if y holds numeric targets.

    Raises
    ------
    DataError
        If a store, file or column does not exist, or for a view of AnnData with X in a file.
    """
    names_of_labels = [*y] if isinstance(y, list | tuple) and y and all(isinstance(name, str) for name in y) else None
    if isinstance(X, str | os.PathLike):
        from mlfs_dask.readers.base import LabelSpec
        from mlfs_dask.storage.opening import open_dataset  # deferred: most fits open no store

        columns = (y,) if isinstance(y, str) else names_of_labels
        if numeric:
            X = open_dataset(os.fspath(X), targets=columns or ())
        else:
            X = open_dataset(os.fspath(X), labels=None if columns is None else LabelSpec(columns=tuple(columns)))
        y = y if columns is None else None
    scan_noun = _scan_noun(X)
    if scan_noun:
        from mlfs_dask.storage.file_dataset import open_scan  # deferred, as above

        rows = open_scan(X, names_of_labels, what=scan_noun)
        if names_of_labels is not None:
            return Container(rows, None, rows.feature_names, names_of_labels)
        return Container(rows, y, rows.feature_names, table_columns(y))
    if is_dataset(X) and y is None:
        return Container(X, None, X.feature_names, X.label_names)
    label_names = None
    names_of_labels = [y] if isinstance(y, str) else names_of_labels
    if is_anndata(X) and (y is None or names_of_labels is not None):
        y, label_names = _anndata_labels(X, names_of_labels)
    elif names_of_labels is not None and (present := {*names_of_labels} & {*(table_columns(X) or ())}):
        if (absent := [name for name in names_of_labels if name not in present]) and len(names_of_labels) != len(X):
            raise DataError(
                "X has no column of this name",
                value=absent[0],
                cure=closest(absent[0], map(str, table_columns(X) or ())),
            )
        if not absent:
            X, y = _without_columns(X, names_of_labels), X[names_of_labels]
    y, names = _open_table(y, "Y")
    label_names = names if label_names is None else label_names
    if is_dask_frame(y):
        label_names = y.columns if y.ndim == 2 else None
        numeric = y.ndim == 2 and all(dtype.kind in "biuf" for dtype in y.dtypes)
        y = y.to_dask_array(lengths=True) if numeric else y.compute()
    elif label_names is None:
        label_names = table_columns(y) or _store_names(y)
    if is_anndata(X) and X.isbacked and not X.is_view:
        from mlfs_dask.storage.file_dataset import open_backed  # deferred, as above

        return Container(open_backed(X), y, X.var_names, label_names)
    matrix, feature_names = open_matrix(X, lengths=True)
    _require_same_rows(X, y)
    return Container(matrix, y, feature_names, label_names)


def open_matrix(X: Any, *, lengths: bool = False) -> tuple[Any, Any]:
    """Return X as an array or a table in memory, and the column names of containers that lose them.

    Parameters
    ----------
    X
        As in `open_container`.
    lengths : bool
        True to count the rows of the partitions of a Dask data frame, which reads them.
    """
    if isinstance(X, str | os.PathLike) or is_dataset(X):
        dataset = open_container(X).X
        return dataset.X, dataset.feature_names
    if is_anndata(X):
        return _anndata_matrix(X), X.var_names
    if is_dask_frame(X) and X.ndim == 2:
        return X.to_dask_array(lengths=lengths or None), X.columns
    X, names = _open_table(X, "X")
    return X, _store_names(X) if names is None else names


def is_dask_array(array: Any) -> bool:
    """Return True if `array` is a Dask array, without importing Dask."""
    return hasattr(array, "__dask_graph__") and hasattr(array, "to_delayed") and hasattr(array, "numblocks")


def is_dask_frame(table: Any) -> bool:
    """Return True if `table` is a DataFrame or a Series of Dask."""
    return hasattr(table, "__dask_graph__") and hasattr(table, "to_dask_array")


def is_dataset(X: Any) -> bool:
    """Return True if X is an open store, with labels and names."""
    return hasattr(X, "rows") and hasattr(X, "feature_names")


def _scan_noun(X: Any) -> str:
    """Return a noun for a table that is read in batches; "" for other containers."""
    library = type(X).__module__.partition(".")[0]
    if library == "polars" and hasattr(X, "collect_batches"):
        return "the LazyFrame"
    return "the dataset of Arrow" if library == "pyarrow" and hasattr(X, "get_fragments") else ""


def is_anndata(X: Any) -> bool:
    """Return True if X is an AnnData object."""
    return hasattr(X, "obsm") and hasattr(X, "var_names")


def feature_column(X: Any) -> Callable[[str], list[Any]] | None:
    """Return a function from a name to a column of `var` for AnnData; None for other containers."""

    def column(name: str) -> list[Any]:
        if name not in X.var:
            raise UsageError(f"var has no column {name!r}. {closest(name, X.var.columns)}")
        return list(X.var[name])

    return column if is_anndata(X) else None


def _open_table(table: Any, what: str) -> tuple[Any, Any]:
    """Return X or Y as an array or a table that NumPy reads, and the column names of containers that lose them.

    Raises
    ------
    DataError
        If its rows must be read or computed first, or two columns have the same name.
    """
    library = type(table).__module__.partition(".")[0]
    if isinstance(table, np.ma.MaskedArray):
        numeric = table.dtype.kind in "biuf"
        values: Any = table.astype(np.float64 if numeric else object)
        return values.filled(np.nan if numeric else None), None
    if library == "xarray" and hasattr(table, "coords") and not hasattr(table, "data_vars"):
        column = table.dims[-1] if table.ndim == 2 else None
        return table.data, table.coords[column].to_numpy() if column in table.coords else None
    of_arrow = library == "pyarrow" and hasattr(table, "to_pandas") and hasattr(table, "num_columns")
    # Other table libraries export an Arrow stream: DuckDB, ibis, DataFusion, nanoarrow ...
    if of_arrow or (library not in ("pandas", "polars", "pyarrow") and hasattr(table, "__arrow_c_stream__")):
        import pyarrow as pa

        table = pa.table(table)
        if what == "Y":
            table = table.to_pandas()
    problem, cure = _unreadable_table(table, library, what)
    if problem:
        raise DataError(f"{what} is {problem}, and a table or an array with its rows was expected", cure=cure)
    _require_unique_names(table, what)
    if library == "pandas" and what == "X" and "object" in map(str, getattr(table, "dtypes", ())):
        table = table.where(table.notna(), np.nan)  # NumPy cannot convert pandas.NA in object columns
    return table, None


def _unreadable_table(table: Any, library: str, what: str) -> tuple[str, str]:
    """Name an object whose rows are not in memory, and the cure; both empty for a readable table."""
    or_convert = "; of more rows than memory holds, `mlfs convert` the files to a store"
    if library == "polars" and hasattr(table, "collect"):
        return "a LazyFrame of polars", f"{what}.collect(){or_convert}"
    if library == "pyarrow" and hasattr(table, "read_all"):
        return "a reader of Arrow record batches", f"{what}.read_all(){or_convert}"
    if library == "pyarrow" and hasattr(table, "to_table"):
        return "a dataset of Arrow, whose rows lie in files", f"{what}.to_table(){or_convert}"
    if library == "xarray" and hasattr(table, "data_vars"):
        return "a Dataset of xarray", f"{what}.to_dataarray('column').transpose(..., 'column')"
    if isinstance(table, dict) and not sp.issparse(table):  # SciPy's dok_matrix is a dict
        return "a dict", f"pandas.DataFrame({what})"
    if isinstance(table, Iterator):
        return "an iterator", f"list({what}), or write the rows to a file and `mlfs convert` it"
    if isinstance(table, np.ndarray) and table.dtype.names:
        return "a structured array", f"pandas.DataFrame({what})"
    if what == "X" and (table is None or isinstance(table, bool | numbers.Number)):
        return repr(table), "give an array of shape (rows, features)"
    if what == "X" and getattr(table, "ndim", 2) == 1 and hasattr(table, "to_frame"):
        return "a Series, one column", "X.to_frame() where it is one feature"
    if library == "pandas" and hasattr(table, "groups"):
        return "a grouping of rows", "give the data frame itself"
    return "", ""


def table_columns(table: Any) -> list[Any] | None:
    """Return the column names of a table of pandas, polars or Arrow; None for other objects."""
    names = getattr(table, "column_names", None)  # Arrow, where `columns` are the values
    if names is None:
        names = getattr(table, "columns", None)
    return None if names is None or callable(names) else list(names)


def _require_unique_names(table: Any, what: str) -> None:
    names = table_columns(table)
    if names is None or len(set(map(str, names))) == len(names):
        return
    counts = Counter(map(str, names))
    twice = [name for name, count in counts.items() if count > 1]
    raise DataError(
        f"{counts[twice[0]]} columns of {what} have this name"
        + (f", and so it is with {number_of(len(twice) - 1, 'further name')}" if len(twice) > 1 else ""),
        column=twice[0],
        cure=f"name the columns apart, or, if they are the same, {what}.loc[:, ~{what}.columns.duplicated()]",
    )


def _require_same_rows(X: Any, y: Any) -> None:
    """Refuse pandas tables with the same rows in another order, which could be joined by name or by position."""
    rows: Any = getattr(X, "index", None)
    label_rows: Any = getattr(y, "index", None)
    if not all(hasattr(index, "is_unique") for index in (rows, label_rows)) or len(rows) != len(label_rows):
        return
    if rows.equals(label_rows) or not rows.is_unique or not label_rows.is_unique:
        return
    if len(rows.difference(label_rows, sort=False)):
        return
    row = next(i for i, (a, b) in enumerate(zip(rows, label_rows, strict=True)) if a != b)
    raise DataError(
        f"X and Y have the same rows in another order: row {row} (counted from 0) is {rows[row]} in X and "
        f"{label_rows[row]} in Y",
        cure="Y.loc[X.index] where rows belong together by name, Y.to_numpy() where they do by position",
    )


def non_numeric_error(X: Any) -> DataError | None:
    """Return the error for the first column with non-numeric values, if any.

    Parameters
    ----------
    X : table, or array of shape (n, d)
    """
    names = table_columns(X)
    if names is None and not (isinstance(X, np.ndarray) and X.ndim == 2):
        return None
    for f in range(len(names) if names is not None else X.shape[1]):
        column = _column(X, f) if names is not None else X[:, f]
        values = np.asarray(column)
        if values.dtype.kind in "biuf":
            continue
        name = f if names is None else str(names[f])
        if values.dtype.kind in "mM":
            span = "dates" if values.dtype.kind == "M" else "spans of time"
            return DataError(
                f"features must be numbers, and this one holds {span}",
                column=name,
                value=str(values[0]),
                cure="make a number of it that means something, for example days since a date, or leave it out",
            )
        if values.dtype.kind == "c":
            return DataError(
                "Complex data not supported: features must be real numbers", column=name, cure="give real numbers"
            )
        for value in values.tolist():
            try:
                float(value if not is_absent(value) else 0)
            except (TypeError, ValueError) as error:
                if names is None and isinstance(error, TypeError):
                    return None  # scikit-learn has a message of its own
                kind = "text" if isinstance(value, str | bytes) else f"objects of type {type(value).__name__}"
                return DataError(
                    f"features must be numbers, and this one holds {kind}",
                    column=name,
                    value=value if isinstance(value, str) else repr(value)[:80],
                    cure="leave it out, or make numbers of it: pandas.get_dummies or "
                    "sklearn.preprocessing.OneHotEncoder for classes, pandas.to_numeric(column, errors='coerce') for "
                    "numbers with other marks among them",
                )
    return None


def is_absent(value: Any) -> bool:
    """Return True for a missing value: None, NaN, or pandas' NA or NaT."""
    is_nan = isinstance(value, float | np.floating) and value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType") or is_nan


def _column(table: Any, f: int) -> Any:
    """Return a column of a table by its position."""
    if hasattr(table, "iloc"):
        return table.iloc[:, f]
    return table.column(f) if hasattr(table, "column") else table[:, f]


def _store_names(array: Any) -> Any:
    """Return the column names of an unmodified array of a store (`Dataset.X`, `Dataset.Y`)."""
    if not is_dask_array(array):
        return None
    return getattr(array.dask.layers.get(array.name), "column_names", None)


def _anndata_matrix(adata: Any) -> Any:
    X = adata.X
    if isinstance(X, np.ndarray) or sp.issparse(X) or is_dask_array(X):
        return X
    if X is None:
        raise DataError("this AnnData object has no X", cure="set adata.X, for example to one of adata.layers")
    raise DataError(
        "this AnnData object holds X in a file",
        cure="fit(adata.to_memory()), anndata.experimental.read_lazy, or mlfs_dask.convert the file to a store",
    )


def _without_columns(table: Any, names: list[str]) -> Any:
    """Return a pandas, polars or Dask table without some columns."""
    return table.drop(columns=names) if hasattr(table, "iloc") or is_dask_frame(table) else table.drop(names)


def _anndata_labels(adata: Any, columns: list[str] | None) -> tuple[Any, Any]:
    """Return the labels of an AnnData object, from columns of `obs` or from `obsm`, and their names if known."""
    if columns is not None:
        for column in columns:
            if column not in adata.obs:
                raise DataError(
                    f"obs of this AnnData object has no column {column!r}",
                    cure=f"name one of {', '.join(map(repr, adata.obs.columns))}, or give the labels themselves",
                )
        return adata.obs[columns], None
    if ANNDATA_LABELS not in adata.obsm:
        raise DataError(
            f"this AnnData object has no labels in obsm[{ANNDATA_LABELS!r}]",
            cure="fit(adata, 'COLUMN') with a column of obs, fit(adata, adata.obs[[...]]), or give Y",
        )
    labels = adata.obsm[ANNDATA_LABELS]
    names = getattr(labels, "columns", adata.uns.get("mlfs", {}).get("label_names"))
    return labels, names
