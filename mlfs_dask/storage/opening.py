"""Opening of data sets from a path or a record: a store, a file read without conversion, or a part of one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.files.object_store import ROOT_KEY, X_KEYS, ZARR_ROOTS, attributes_of, is_url, local_path, open_objects
from mlfs_dask.files.result_folders import kind_of
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.storage.dataset import Dataset, Store, expressions, open_store
from mlfs_dask.storage.subset_spec import origin_of


def open_dataset(
    path: str | Path,
    *,
    labels: LabelSpec | None = None,
    format: str | None = None,
    keys: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    targets: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open a store, or a file that can be read without conversion.

    Parameters
    ----------
    path : path or URL
        A store, an .h5ad file, AnnData or X and Y in Zarr or HDF5, .npz, .mat of version 7.3, Parquet, Feather, or a
        folder of Parquet files.
    labels, format, keys, drop
        Of files, with the meaning that they have in `convert`: labels, the format where the name does not tell it, the
        arrays of a file that holds several, features to leave out.
    targets : sequence of str
        Columns of the rows of a table, or of the `obs` of AnnData, that are numeric targets. They are kept in memory.
    storage_options : mapping, optional
        Options of obstore (s3:, gs:, az:, https:) or of the file system of fsspec.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        The path does not exist or is damaged, or a label has an invalid value.
    UsageError
        Options of files were given for a store, the file is stored by columns, or its labels are not named.

    Notes
    -----
    The labels of a file are read when it is opened.
    """
    spec = FileSpec.of(
        labels=labels, format=format, keys=keys, drop=drop, targets=targets, storage_options=storage_options
    )
    return open_specified(path, spec)


def open_specified(path: str | Path, spec: FileSpec) -> Dataset:
    """Return `open_dataset` of what a `FileSpec` says; errors are the same."""
    store = _store_at(path, spec.storage_options) if spec.format is None else None
    if store is None:
        from mlfs_dask.storage.file_dataset import open_file  # which stores do not need

        return open_file(str(path), spec)
    if spec.record:
        raise UsageError(
            f"{path} is a store, which defines its labels and features: {', '.join(spec.record)} are of files"
            "\n  cure: leave them out"
        )
    return store


def _store_at(path: str | Path, storage_options: Mapping[str, Any] | None) -> Store | None:
    """Return the store at a place; None where there is a file, or a folder of files."""
    from mlfs_dask.formats.detect import is_named_as_file

    if not is_url(path) or is_named_as_file(path):
        return open_store(path, storage_options=storage_options) if is_store(path, storage_options) else None
    try:
        return open_store(path, storage_options=storage_options)
    except DataError:  # only now, because it reads the root of the store again
        if is_store(path, storage_options):
            raise
        return None


def is_store(path: str | Path, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return True if a path is to be opened as a store: neither a file nor a folder of files.

    What is absent or damaged is opened as a store, whose errors say so.
    """
    place = None if is_url(path) else local_path(path)
    # False where it may not be read
    if place is None or not any(os.path.isfile(place / root) for root in ZARR_ROOTS):  # noqa: PTH113
        from mlfs_dask.formats.detect import is_data_folder, is_named_as_file  # which local stores do not need

        if place is not None and place.is_dir():
            tables = next(place.rglob("*.parquet"), None) is not None or is_data_folder(place)
            return not tables or kind_of(lambda record: (place / record).is_file()) is not None
        if place is not None or is_named_as_file(path):
            return place is not None and not place.exists() and not is_named_as_file(path)
    objects = open_objects(path, storage_options)
    try:
        document = parse_json(objects.read(ROOT_KEY))
    except FileNotFoundError:
        return not any(objects.exists(root) for root in ZARR_ROOTS)
    except (OSError, ValueError):
        return True
    if not isinstance(document, dict) or "mlfs" in attributes_of(document):
        return True
    return document.get("node_type") != "array" and not any(
        objects.exists(f"{key}/{ROOT_KEY}") for key in (*X_KEYS, "mod")
    )


def reopen(store: Mapping[str, Any]) -> Dataset:
    """Return the store that `run.json` tells of, or the part of it.

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
            "the part of the store that the run used is not known: it was chosen in Python, or a file that "
            "names it has changed."
        )
    return dataset


def reading_of(store: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `open_dataset` that run.json records for a file; none for a store."""
    reading = dict(store.get("reading") or {})
    if "labels" in reading:
        labels: Any = {
            name: tuple(each) if isinstance(each, list) else each for name, each in reading["labels"].items()
        }
        reading["labels"] = LabelSpec(**labels)
    return reading


def _part_of(dataset: Dataset, subset: Mapping[str, Any] | None) -> Dataset:
    """Return the part of a whole store that a record tells of; it may be a part of a part."""
    if not subset:
        return dataset
    of = subset["of"]
    whole = _part_of(dataset, of if isinstance(of, Mapping) else None)
    return whole.subset(**expressions(subset))
