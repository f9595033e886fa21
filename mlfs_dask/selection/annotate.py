"""Columns in `var` of an AnnData file with the outcome of a selection."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.files.object_store import is_url, local_path
from mlfs_dask.files.publish import appearing, explained, locked
from mlfs_dask.readers.encoded import columns_of, index_of, is_dataframe
from mlfs_dask.selection.runs import Run, read_run
from mlfs_dask.selection.transform import count_selected
from mlfs_dask.storage.anndata_encoding import DENSE
from mlfs_dask.storage.h5ad import add_vector, set_columns, written_hdf5

COLUMNS = ("mask", "score", "rank")
#: Bytes of the three columns for each feature.
_FEATURE_BYTES = 1 + 8 + 8


@dataclass(frozen=True)
class Annotation:
    """Result of writing the columns.

    Attributes
    ----------
    path : str
    columns : list of str
        Columns of `var`: mask of the chosen features, score, rank from 1.
    k, d : int
        Number of chosen features, and of features ranked by the run.
    not_ranked : int
        Number of features of the file that the run does not rank; not chosen, without score and rank.
    """

    path: str
    columns: list[str]
    k: int
    d: int
    not_ranked: int


def annotate(
    path: str, run: str, *, name: str | None = None, k: int | float | None = None, force: bool = False
) -> Annotation:
    """Write mask, score and rank of every feature into `var` of an AnnData file.

    An .h5ad file is copied, and the complete copy replaces it: its other contents stay as they are, and a failure
    leaves the file unchanged. In a .zarr folder the columns are added, and listed in the attributes of `var` last.

    Parameters
    ----------
    path : str
        Local .h5ad file or .zarr folder; its `var` index contains the features of the run.
    run : str
        Run folder.
    name : str, optional
        Prefix of the columns NAME_mask, NAME_score and NAME_rank; default: the run's method.
    k : int or float, optional
        Number or fraction of the best features in the mask; default: the number that the run chose.
    force : bool
        Replace existing columns of the same names.

    Returns
    -------
    Annotation

    Raises
    ------
    DataError
        If the file is no AnnData, or lacks features of the run.
    UsageError
        If the columns exist without `force`, or the path is a URL or a store of this package.
    MlfsError
        If the file cannot be written.
    """
    record = read_run(run)
    if is_url(path):
        raise UsageError(f"{path}: only local files are annotated\n  cure: fetch it, annotate it and put it back")
    location = local_path(path)
    if not location.exists():
        raise DataError("there is no such file", file=path, cure="check the path")
    chosen = count_selected(record, k)
    names = [f"{name or record.record.get('method', 'mlfs')}_{column}" for column in COLUMNS]
    new_bytes = len(record.ranking) * _FEATURE_BYTES
    taken = f"{path}: another process annotates it, or a file beside it\n  cure: run the same command again afterwards"
    with (
        locked(location.resolve() if location.is_dir() else location.resolve().parent, taken),
        _edited_zarr(location, new_bytes) if location.is_dir() else _edited_h5ad(location, new_bytes) as root,
    ):
        var = _var(root, path)
        if var.attrs.get("_index") in names:
            raise UsageError(
                f"{path}: the index of var, which names the features, is called {var.attrs['_index']!r}"
                "\n  cure: --name gives another name"
            )
        old = [column for column in names if column in var]
        if old and not force:
            raise UsageError(
                f"{path}: var has a column {old[0]!r} already\n  cure: --force replaces it, --name gives another name"
            )
        table = _table(record, chosen, index_of(var, file=path), path)
        _write_columns(var, names, table)
    return Annotation(path, names, chosen, len(record.ranking), len(table) - len(record.ranking))


def _table(run: Run, k: int, index: Sequence[str] | None, path: str) -> pd.DataFrame:
    """Return mask, score and rank of the features in the order of `var`; NaN for unranked features."""
    features = pd.Index(index if index is not None else [])
    missing = pd.Index(run.feature_names).difference(features, sort=False)
    if len(missing):
        raise DataError(
            f"{len(missing):,} of the {len(run.feature_names):,} features that the run ranks are not in var",
            file=path,
            value=missing[0],
            cure="annotate the file that the run's store was converted from",
        )
    if not features.is_unique:
        raise DataError(
            "var names a feature twice",
            file=path,
            value=features[features.duplicated()][0],
            cure="make the names unique, for example with var_names_make_unique of anndata",
        )
    rank = np.arange(1, len(run.ranking) + 1)
    table = pd.DataFrame({"score": run.scores, "rank": rank}, index=run.feature_names).reindex(features)
    table.insert(0, "mask", table["rank"] <= k)
    return table


@contextlib.contextmanager
def _edited_h5ad(path: Path, new_bytes: int) -> Iterator[Any]:
    """Open a copy of the file, which replaces it after a successful block; the block adds `new_bytes`."""
    import h5py

    with appearing(path, projected=lambda: path.stat().st_size + new_bytes) as copy:
        shutil.copy2(path, copy)
        try:
            h5py.File(copy, "r").close()
        except OSError as error:
            if error.errno is not None:  # from the system; HDF5's own errors have no number
                raise
            raise DataError(
                f"it is no HDF5 file, or damaged: {error}", file=str(path), cure="check the path"
            ) from error
        with written_hdf5(copy, "r+") as (root, _):
            yield root


@contextlib.contextmanager
def _edited_zarr(path: Path, new_bytes: int) -> Iterator[Any]:
    """Open a Zarr group; consolidate its metadata again after a successful block, if they were consolidated."""
    import zarr

    try:
        root = zarr.open_group(path, mode="r+", use_consolidated=False)
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise DataError(f"there is no Zarr group: {error}", file=str(path), cure="check the path") from error
    if "mlfs" in root.attrs:
        raise UsageError(f"{path} is a store, which never changes\n  cure: annotate the file that it was made from")
    consolidated = zarr.open_group(path, mode="r").metadata.consolidated_metadata is not None
    with explained(path, lambda: new_bytes):
        yield root
        if consolidated:
            with warnings.catch_warnings():
                # The metadata were consolidated before, so the warning about other libraries says nothing new.
                warnings.simplefilter("ignore")
                zarr.consolidate_metadata(str(path))


def _var(root: Any, path: str) -> Any:
    if "var" in root and is_dataframe(root["var"]):
        return root["var"]
    raise DataError(
        "it has no data frame var as AnnData writes it",
        file=path,
        cure="give an AnnData file; read and write an old one with anndata first",
    )


def _write_columns(var: Any, names: Sequence[str], table: pd.DataFrame) -> None:
    """Write columns, and list them in the attributes of `var` afterwards."""
    import h5py

    order = [*(column for column in columns_of(var) if column not in names), *names]
    for name, column in zip(names, table, strict=True):
        if name in var:
            del var[name]
        values = table[column].to_numpy()
        if isinstance(var, h5py.Group):
            add_vector(var, name, values)
        else:
            var.create_array(name, data=values, attributes=DENSE)
    if isinstance(var, h5py.Group):
        set_columns(var, order)
    else:
        var.attrs["column-order"] = order
