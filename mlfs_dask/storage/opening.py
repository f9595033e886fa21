"""From a path or a record to a data set: a store, a file whose rows are read where they lie, or a part of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.storage.dataset import Dataset, Store, expressions, open_store
from mlfs_dask.storage.object_store import FILE_SUFFIXES, is_store, is_url
from mlfs_dask.storage.readers.base import LabelSpec
from mlfs_dask.storage.subset_spec import origin_of


def open_dataset(
    path: str | Path,
    *,
    labels: LabelSpec | None = None,
    format: str | None = None,
    keys: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open a store, or a file whose rows can be read where they lie.

    Parameters
    ----------
    path : path or URL
        A store, an .h5ad file, AnnData or X and Y in Zarr, a Parquet or Feather file, a folder of Parquet files.
    labels, format, keys, drop
        Of files, with the meaning that they have in `convert`: labels, the format where the name does not tell it, the
        arrays of a file that holds several, features to leave out.
    storage_options : mapping, optional
        Of obstore (s3:, gs:, az:, https:) or of the file system of fsspec.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        There is nothing, or it is damaged; a label is no label.
    UsageError
        Such options for a store; a file by columns, or one that nothing says the labels of.

    Notes
    -----
    The labels of a file are read when it is opened.
    """
    store = _store_at(path, storage_options) if format is None else None
    if store is not None:
        asked = {"labels": None if labels == LabelSpec() else labels, "keys": keys, "drop": drop}
        given = [name for name, value in asked.items() if value]
        if given:
            raise UsageError(
                f"{path} is a store, which knows its labels and features: {', '.join(given)} are of files"
                "\n  cure: leave them out"
            )
        return store
    from mlfs_dask.storage.file_dataset import open_file  # which stores do not need

    return open_file(
        str(path), labels=labels, format=format, keys=keys, drop=tuple(drop), storage_options=storage_options
    )


def _store_at(path: str | Path, storage_options: Mapping[str, Any] | None) -> Store | None:
    """The store at a place; None where there is a file, or a folder of files."""
    named_as_file = PurePosixPath(str(path).rstrip("/")).suffix.lower() in FILE_SUFFIXES
    if not is_url(path) or named_as_file:
        return open_store(path, storage_options=storage_options) if is_store(path, storage_options) else None
    try:
        return open_store(path, storage_options=storage_options)
    except DataError:  # only now, because it reads the root of the store again
        if is_store(path, storage_options):
            raise
        return None


def reopen(store: Mapping[str, Any]) -> Dataset:
    """The store that `run.json` tells of, or the part of it.

    Parameters
    ----------
    store : mapping
        Its `store`: path, digest, of a file `reading`, and of a part `subset`.

    Raises
    ------
    DataError
        The store is another one now, or the part cannot be chosen again.
    """
    subset = store.get("subset")
    dataset = open_dataset(store["path"], **reading_of(store))
    if dataset.digest != origin_of(store["digest"], subset):
        raise DataError(f"{store['path']} is no longer the store that the run was made on.")
    dataset = _part_of(dataset, subset)
    if dataset.digest != store["digest"]:
        raise DataError(
            "which part of the store the run was made on is not known: it was chosen in Python, or a file that names "
            "it has changed."
        )
    return dataset


def reading_of(store: Mapping[str, Any]) -> dict[str, Any]:
    """How a file was opened that `run.json` tells of: arguments of `open_dataset`; none for a store."""
    reading = dict(store.get("reading") or {})
    if "labels" in reading:
        labels: Any = {
            name: tuple(each) if isinstance(each, list) else each for name, each in reading["labels"].items()
        }
        reading["labels"] = LabelSpec(**labels)
    return reading


def _part_of(dataset: Dataset, subset: Mapping[str, Any] | None) -> Dataset:
    """The part of a whole store that a record tells of; it may be a part of a part."""
    if not subset:
        return dataset
    of = subset["of"]
    whole = _part_of(dataset, of if isinstance(of, Mapping) else None)
    return whole.subset(**expressions(subset))
