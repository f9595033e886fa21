"""The outcome of a selection as columns of `var` of the AnnData that it was made from."""

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
from mlfs_dask.selection.runs import Run, read_run
from mlfs_dask.selection.transform import count_chosen
from mlfs_dask.storage.anndata_encoding import DENSE
from mlfs_dask.storage.h5ad import add_vector, set_columns, written_hdf5
from mlfs_dask.storage.object_store import is_url, local_path
from mlfs_dask.storage.publish import appearing, explained, locked
from mlfs_dask.storage.readers.encoded import columns_of, index_of, is_dataframe

COLUMNS = ("mask", "score", "rank")
#: Of the three columns.
_FEATURE_BYTES = 1 + 8 + 8


@dataclass(frozen=True)
class Annotation:
    """What was written.

    Attributes
    ----------
    path : str
    columns : list of str
        Of `var`: whether a feature is chosen, its score, its rank from 1.
    k, d : int
        Features chosen, and features that the run ranks.
    not_ranked : int
        Features of the file that the run does not know; they are not chosen, and have no score and no rank.
    """

    path: str
    columns: list[str]
    k: int
    d: int
    not_ranked: int


def annotate(
    path: str, run: str, *, name: str | None = None, k: int | float | None = None, force: bool = False
) -> Annotation:
    """Write mask, score and rank of every feature into `var` of AnnData on disk.

    An .h5ad file is copied, and replaced by the copy once that is complete: everything else in it stays as it is, and a
    failure leaves it untouched. In a .zarr folder the columns are added, and named in `var` last.

    Parameters
    ----------
    path : str
        A local .h5ad file or .zarr folder; its `var` index holds the features of the run.
    run : str
        A run folder.
    name : str, optional
        The columns are NAME_mask, NAME_score, NAME_rank; by default the run's method.
    k : int or float, optional
        The best k of the ranking are in the mask, a count or a fraction; by default as many as the run chose.
    force : bool
        Replace such columns.

    Returns
    -------
    Annotation

    Raises
    ------
    DataError
        If the file is no AnnData, or does not have the features of the run.
    UsageError
        If the columns exist and `force` is not given, or the path is a URL or a store of ours.
    MlfsError
        If it cannot be written.
    """
    record = read_run(run)
    if is_url(path):
        raise UsageError(f"{path}: only local files are annotated\n  cure: fetch it, annotate it and put it back")
    place = local_path(path)
    if not place.exists():
        raise DataError("there is no such file", file=path, cure="check the path")
    chosen = count_chosen(record, k)
    names = [f"{name or record.record.get('method', 'mlfs')}_{column}" for column in COLUMNS]
    added = len(record.ranking) * _FEATURE_BYTES
    taken = f"{path}: another process annotates it, or a file beside it\n  cure: run the same command again afterwards"
    with (
        locked(place.resolve() if place.is_dir() else place.resolve().parent, taken),
        _edited_zarr(place, added) if place.is_dir() else _edited_h5ad(place, added) as root,
    ):
        var = _var(root, path)
        if var.attrs.get("_index") in names:
            raise UsageError(
                f"{path}: the index of var, which names the features, is called {var.attrs['_index']!r}"
                "\n  cure: --name gives another name"
            )
        there = [column for column in names if column in var]
        if there and not force:
            raise UsageError(
                f"{path}: var has a column {there[0]!r} already\n  cure: --force replaces it, --name gives another name"
            )
        table = _table(record, chosen, index_of(var, file=path), path)
        _put(var, names, table)
    return Annotation(path, names, chosen, len(record.ranking), len(table) - len(record.ranking))


def _table(run: Run, k: int, index: Sequence[str] | None, path: str) -> pd.DataFrame:
    """Mask, score and rank of the features in the order of `var`; those that the run does not rank have NaN."""
    features = pd.Index(index if index is not None else [])
    unknown = pd.Index(run.feature_names).difference(features, sort=False)
    if len(unknown):
        raise DataError(
            f"{len(unknown):,} of the {len(run.feature_names):,} features that the run ranks are not in var",
            file=path,
            value=unknown[0],
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
def _edited_h5ad(place: Path, added: int) -> Iterator[Any]:
    """A copy of the file, which replaces it when the block ends well; `added` bytes are written to it."""
    import h5py

    with appearing(place, projected=lambda: place.stat().st_size + added) as copy:
        shutil.copy2(place, copy)
        try:
            h5py.File(copy, "r").close()
        except OSError as error:
            if error.errno is not None:  # the system refuses to open it; HDF5's own errors have no number
                raise
            raise DataError(
                f"it is no HDF5 file, or damaged: {error}", file=str(place), cure="check the path"
            ) from error
        with written_hdf5(copy, "r+") as (root, _):
            yield root


@contextlib.contextmanager
def _edited_zarr(place: Path, added: int) -> Iterator[Any]:
    """A Zarr group; where its metadata are consolidated, they are so again when the block ends well."""
    import zarr

    try:
        root = zarr.open_group(place, mode="r+", use_consolidated=False)
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise DataError(f"there is no Zarr group: {error}", file=str(place), cure="check the path") from error
    if "mlfs" in root.attrs:
        raise UsageError(f"{place} is a store, which never changes\n  cure: annotate the file that it was made from")
    consolidated = zarr.open_group(place, mode="r").metadata.consolidated_metadata is not None
    with explained(place, lambda: added):
        yield root
        if consolidated:
            with warnings.catch_warnings():
                # They were there before: that not every library reads them says nothing new.
                warnings.simplefilter("ignore")
                zarr.consolidate_metadata(str(place))


def _var(root: Any, path: str) -> Any:
    if "var" in root and is_dataframe(root["var"]):
        return root["var"]
    raise DataError(
        "it has no data frame var as AnnData writes it",
        file=path,
        cure="give an AnnData file; read and write an old one with anndata first",
    )


def _put(var: Any, names: Sequence[str], table: pd.DataFrame) -> None:
    """Write columns, and then say that they are there."""
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
