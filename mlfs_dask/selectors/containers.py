"""What `fit` and `transform` take beside arrays and tables in memory: stores, AnnData, and data frames of Dask."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.errors import DataError

#: Where the labels of an AnnData object are looked for, as in a store.
ANNDATA_LABELS = "labels"


class Container(NamedTuple):
    """X, y and the names that they bring.

    Attributes
    ----------
    X : array-like, Dask array, Dataset or RowSource
    y : array-like, Dask array or None
        None: X brings its labels itself.
    feature_names, label_names : sequence of str, or None
        None where there are none, or where X or y is a table, whose names are read from it.
    """

    X: Any
    y: Any = None
    feature_names: Any = None
    label_names: Any = None


def open_container(X: Any, y: Any = None) -> Container:
    """X and y in one of the forms that rows are read from.

    Parameters
    ----------
    X : path or URL of a store, Dataset, AnnData, dask DataFrame, or anything else
    y : array-like, dask DataFrame or Series, or None
        Of AnnData also the name of a column of `obs`; by default `obsm["labels"]`.

    Raises
    ------
    DataError
        There is no such store or column, or AnnData holds its X in a file.
    """
    if isinstance(X, str | os.PathLike):
        from mlfs_dask.storage.dataset import open_dataset  # the one place where a selector opens a store

        X = open_dataset(os.fspath(X))
    if is_dataset(X) and y is None:
        return Container(X, None, X.feature_names, X.label_names)
    label_names = None
    if is_anndata(X) and (y is None or isinstance(y, str)):
        y, label_names = _anndata_labels(X, y)
    if is_dask_frame(y):
        label_names = y.columns if y.ndim == 2 else None
        numeric = y.ndim == 2 and all(dtype.kind in "biuf" for dtype in y.dtypes)
        y = y.to_dask_array(lengths=True) if numeric else y.compute()
    elif label_names is None:
        label_names = getattr(y, "columns", _store_names(y))
    matrix, feature_names = open_matrix(X, lengths=True)
    return Container(matrix, y, feature_names, label_names)


def open_matrix(X: Any, *, lengths: bool = False) -> tuple[Any, Any]:
    """X as an array or a table in memory, and the names of its columns where it is neither but has some.

    Parameters
    ----------
    X
        As in `open_container`.
    lengths : bool
        Whether the rows of the partitions of a data frame of Dask are counted, which reads them.
    """
    if isinstance(X, str | os.PathLike) or is_dataset(X):
        dataset = open_container(X).X
        return dataset.X, dataset.feature_names
    if is_anndata(X):
        return _anndata_matrix(X), X.var_names
    if is_dask_frame(X) and X.ndim == 2:
        return X.to_dask_array(lengths=lengths or None), X.columns
    return X, _store_names(X)


def is_dask_array(array: Any) -> bool:
    """Whether `array` is a Dask array, without importing Dask."""
    return hasattr(array, "__dask_graph__") and hasattr(array, "to_delayed") and hasattr(array, "numblocks")


def is_dask_frame(table: Any) -> bool:
    """Whether `table` is a DataFrame or a Series of Dask."""
    return hasattr(table, "__dask_graph__") and hasattr(table, "to_dask_array")


def is_dataset(X: Any) -> bool:
    """Whether X is an opened store, which carries its labels and names."""
    return hasattr(X, "rows") and hasattr(X, "feature_names")


def is_anndata(X: Any) -> bool:
    """Whether X is an AnnData object."""
    return hasattr(X, "obsm") and hasattr(X, "var_names")


def _store_names(array: Any) -> Any:
    """Names of the columns of an untouched array of a store (`Dataset.X`, `Dataset.Y`)."""
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


def _anndata_labels(adata: Any, column: str | None) -> tuple[Any, Any]:
    """The labels of an AnnData object, and their names where these are known."""
    if column is not None:
        if column not in adata.obs:
            raise DataError(
                f"obs of this AnnData object has no column {column!r}",
                cure=f"name one of {', '.join(map(repr, adata.obs.columns))}, or give the labels themselves",
            )
        return adata.obs[column].to_numpy(), None
    if ANNDATA_LABELS not in adata.obsm:
        raise DataError(
            f"this AnnData object has no labels in obsm[{ANNDATA_LABELS!r}]",
            cure="fit(adata, 'COLUMN') with a column of obs, fit(adata, adata.obs[[...]]), or give Y",
        )
    labels = adata.obsm[ANNDATA_LABELS]
    names = getattr(labels, "columns", adata.uns.get("mlfs", {}).get("label_names"))
    return labels, names
