"""The outcome of a selection in `var`, `varm` and `uns` of AnnData, in memory or in a file."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlfs_dask._version import __version__
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.files.object_store import is_url, local_path
from mlfs_dask.files.publish import appearing, explained, locked
from mlfs_dask.formats.anndata import feature_names
from mlfs_dask.readers.base import FileSpec
from mlfs_dask.readers.encoded import columns_of, index_of, is_dataframe
from mlfs_dask.readers.label_columns import numbered_apart, repeated_name
from mlfs_dask.selection.runs import Run, as_run
from mlfs_dask.selection.transform import count_selected
from mlfs_dask.storage.anndata_encoding import DENSE, DICT, STRINGS
from mlfs_dask.storage.h5ad import DATAFRAME, set_columns, written_hdf5

COLUMNS = ("mask", "score", "rank")
#: Columns that scanpy's functions look for, with its meaning: ranks from 0, NaN outside of the choice.
SCANPY_COLUMNS = ("highly_variable", "highly_variable_rank")
#: Largest number of labels of the tables in `varm`; the pairs of more labels stay in `pairs.parquet`.
MAX_LABELS = 1000

#: Bytes of mask, score and rank of a feature, and of the header of an array or a group in HDF5.
_FEATURE_BYTES, _HEADER_BYTES = 1 + 8 + 8, 2048


@dataclass(frozen=True)
class Annotation:
    """Result of writing the annotation.

    Attributes
    ----------
    path : str
        Empty for AnnData in memory.
    columns : list of str
        Columns of `var`: mask of the chosen features, score, rank from 1, and those of labels.
    k, d : int
        Number of chosen features, and of features ranked by the run.
    not_ranked : int
        Number of features of the file that the run does not rank; not chosen, without score and rank.
    tables : list of str
        Tables of `varm`: effects and q-values of the tested pairs, a column for each label.
    """

    path: str
    columns: list[str]
    k: int
    d: int
    not_ranked: int
    tables: list[str] = field(default_factory=list)


def annotate(
    data: Any,
    run: Any,
    *,
    name: str | None = None,
    k: int | float | None = None,
    keys: Mapping[str, str] | None = None,
    highly_variable: bool = False,
    force: bool = False,
) -> Annotation:
    """Write the outcome of a selection into AnnData: columns of `var`, pairs into `varm`, parameters into `uns`.

    Columns of `var` are NAME_mask, NAME_score and NAME_rank; if pairs were tested, also NAME_significant_labels and
    NAME_best_label. A run with a table of pairs gives `varm["NAME_effect"]` and `varm["NAME_q_value"]`, data frames
    with a column for each label (NaN: not in the table). `uns["NAME"]` has the method, k and the parameters.

    An .h5ad file is copied, and the complete copy replaces it: its other contents stay as they are, and a failure
    leaves the file unchanged. In a .zarr folder the columns are added, and listed in the attributes of `var` last.

    Parameters
    ----------
    data : AnnData or str
        AnnData in memory, or a local .h5ad file or .zarr folder. Its features include those of the run.
    run : str or Selector
        Run folder, or a fitted selector. A selector that was fitted on an array without names fits data with as many
        features.
    name : str, optional
        NAME; default ``mlfs_METHOD`` with underscores, as in ``mlfs_br_cc``.
    k : int or float, optional
        Number or fraction of the best features in the mask; default: the number that the run chose.
    keys : mapping, optional
        ``{"names": COLUMN}`` finds features by a column of `var`, or by names numbered apart (``"unique"``), as
        `convert` does with the same keys; default: the keys with which the run read its file, else the index.
    highly_variable : bool
        Write `highly_variable` and `highly_variable_rank` too, which functions of scanpy look for.
    force : bool
        Replace existing entries of the same names.

    Returns
    -------
    Annotation

    Raises
    ------
    DataError
        If the file is no AnnData, or lacks features of the run.
    UsageError
        If an entry exists without `force`, or the path is a URL or a store of this package.
    MlfsError
        If the file cannot be written.
    """
    record = as_run(run)
    chosen = count_selected(record, k)
    name = name or re.sub(r"\W", "_", f"mlfs_{record.record.get('method', 'run')}")
    if "/" in name:
        raise UsageError(f"names in AnnData must not contain a slash; got {name!r}\n  cure: --name gives another name")
    spec = FileSpec(keys=dict(keys or (record.store.get("reading") or {}).get("keys") or {}))

    def entries(index: Sequence[str], names: Sequence[str], where: str) -> dict[str, Any]:
        without_names = hasattr(run, "n_features_in_") and not hasattr(run, "feature_names_in_")
        if without_names and len(names) == len(record.ranking):
            names = [f"x{number}" for number in range(len(names))]
        return _entries(record, chosen, name, index, names, where, highly_variable=highly_variable)

    if hasattr(data, "var_names"):
        index, key = data.var_names.astype(str).tolist(), spec.keys.get("names")
        names = numbered_apart(index) if key == "unique" else index if key is None else data.var[key].astype(str)
        written = entries(index, list(names), "adata")
        _refuse_existing(
            written, lambda place, entry: entry in getattr(data, place), data.var.index.name, "adata", force
        )
        for place, value in written.items():
            kind, _, entry = place.partition("/")
            getattr(data, kind)[entry] = _frame(value) if kind == "varm" else value
        return _annotation("", written, chosen, record, len(index))
    path = str(data)
    if is_url(path):
        raise UsageError(f"{path}: only local files are annotated\n  cure: download it, annotate it and upload it")
    location = local_path(path)
    if not location.exists():
        raise DataError("there is no such file", file=path, cure="check the path")
    written, least = {}, len(record.ranking) * _FEATURE_BYTES
    taken = f"{path}: another process annotates it, or a file beside it\n  cure: run the same command again afterwards"
    with (
        locked(location.resolve() if location.is_dir() else location.resolve().parent, taken),
        (_edited_zarr if location.is_dir() else _edited_h5ad)(location, lambda: max(least, _bytes_of(written))) as root,
    ):
        var = _var(root, path)
        index = list(index_of(var, file=path) or ())
        written |= entries(index, feature_names(root, spec, path) or (), path)
        _refuse_existing(written, lambda place, entry: f"{place}/{entry}" in root, var.attrs.get("_index"), path, force)
        for place, value in written.items():
            kind, _, entry = place.partition("/")
            if kind not in root:  # of a file of an earlier anndata
                root.create_group(kind).attrs.update(DICT)
            _write(root[kind], entry, value)
        columns = _columns(written)
        _set_columns(var, [*(column for column in columns_of(var) if column not in columns), *columns])
    return _annotation(path, written, chosen, record, len(index))


def _columns(written: Iterable[str], kind: str = "var") -> list[str]:
    return [place.partition("/")[2] for place in written if place.startswith(f"{kind}/")]


def _annotation(path: str, written: Mapping[str, Any], k: int, run: Run, d: int) -> Annotation:
    ranked = len(run.ranking)
    return Annotation(path, _columns(written), k, ranked, d - ranked, _columns(written, "varm"))


def _refuse_existing(
    written: Iterable[str], exists: Callable[[str, str], bool], index: Any, where: str, force: bool
) -> None:
    """Refuse entries that exist already, and a column with the name of the index."""
    for place in written:
        kind, _, entry = place.partition("/")
        if place == f"var/{index}":
            raise UsageError(
                f"{where}: the index of var, which names the features, is called {index!r}"
                "\n  cure: --name gives another name"
            )
        if exists(kind, entry) and not force:
            raise UsageError(
                f"{where}: {kind} has an entry {entry!r} already"
                "\n  cure: --force replaces it, --name gives another name"
            )


def _entries(
    run: Run, k: int, name: str, index: Sequence[str], names: Sequence[str], where: str, *, highly_variable: bool
) -> dict[str, Any]:
    """Return what is written by its place in AnnData, as in ``var/mlfs_elc_rank``; `names` are of its features.

    A data frame of `varm` is a mapping of its index, ``_index``, and its columns, as AnnData stores them.
    """
    twice = repeated_name(names)
    if twice is not None:
        raise DataError(
            "var names a feature twice",
            file=where,
            value=twice,
            cure="make the names unique, for example with var_names_make_unique of anndata, or --key names=unique",
        )
    place_of = {feature: place for place, feature in enumerate(names)}
    missing = [feature for feature in run.feature_names if feature not in place_of]
    if missing:
        raise DataError(
            f"{len(missing):,} of the {len(run.feature_names):,} features that the run ranks are not in var",
            file=where,
            value=missing[0],
            cure="annotate the file that the run's store was converted from; --key names=COLUMN takes another column "
            "of var as names, as convert does",
        )
    d, ranks = len(names), np.arange(1, len(run.ranking) + 1)
    places = np.array([place_of[feature] for feature in run.feature_names], np.int64)

    def column(values: Any, unranked: Any) -> Any:
        values = np.asarray(values)
        dtype = values.dtype if len(values) == d else np.result_type(values, np.asarray(unranked))
        in_order = np.empty(d, dtype)
        if len(values) < d:
            in_order[:] = unranked
        in_order[places] = values
        return in_order

    written: dict[str, Any] = {
        f"var/{name}_mask": column(ranks <= k, False),
        f"var/{name}_score": column(run.scores, np.nan),
        f"var/{name}_rank": column(ranks, np.nan),
    }
    for which, values in run.of_labels.items():
        text = which == "best_label"
        written[f"var/{name}_{which}"] = column(np.array(values, object if text else int), "" if text else 0)
    if highly_variable:
        mask, rank = SCANPY_COLUMNS
        written[f"var/{mask}"] = column(ranks <= k, False)
        written[f"var/{rank}"] = column(np.where(ranks <= k, ranks - 1.0, np.nan), np.nan)
    table = run.pairs()
    if table is not None and len(table):
        labels, first, number = np.unique(table["label_index"].to_numpy(), return_index=True, return_inverse=True)
        if len(labels) <= MAX_LABELS:
            place_of_number = np.empty(len(places), np.int64)
            place_of_number[run.ranking] = places
            of_labels = [text.replace("/", "_") for text in table["label"].take(first).to_pylist()]
            if repeated_name(of_labels) is not None:
                of_labels = list(numbered_apart(of_labels))
            for which in ("effect", "q_value"):
                pairs = np.full((d, len(labels)), np.nan)
                pairs[place_of_number[table["feature_index"].to_numpy()], number] = table[which].to_numpy()
                written[f"varm/{name}_{which}"] = {"_index": np.array(index, object)} | dict(
                    zip(of_labels, pairs.T, strict=True)
                )
    record = run.record
    written[f"uns/{name}"] = {
        **{entry: record[entry] for entry in ("method", "n", "d", "q") if entry in record},
        "k": k,
        "mlfs_dask": __version__,
        "params": {
            parameter: value if isinstance(value, bool | int | float | str) else json.dumps(value)
            for parameter, value in record.get("params", {}).items()
            if value is not None
        },
    }
    return written


def _frame(table: Mapping[str, Any]) -> Any:
    """Return an entry of `varm`, an index and columns, as a `pandas.DataFrame`."""
    import pandas as pd

    return pd.DataFrame(table).set_index("_index").rename_axis(None)


def _bytes_of(value: Any) -> int:
    """Return the bytes that entries take in a file, with those of their headers."""
    if isinstance(value, Mapping):
        return _HEADER_BYTES + sum(map(_bytes_of, value.values()))
    return _HEADER_BYTES + int(np.asarray(value).nbytes)


@contextlib.contextmanager
def _edited_h5ad(path: Path, new_bytes: Callable[[], int]) -> Iterator[Any]:
    """Open a copy of the file, which replaces it after a successful block; the block adds `new_bytes()`."""
    import h5py

    with appearing(path, projected=lambda: path.stat().st_size + new_bytes()) as copy:
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
def _edited_zarr(path: Path, new_bytes: Callable[[], int]) -> Iterator[Any]:
    """Open a Zarr group; consolidate its metadata again after a successful block, if they were consolidated."""
    import zarr

    try:
        root = zarr.open_group(path, mode="r+", use_consolidated=False)
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise DataError(f"there is no Zarr group: {error}", file=str(path), cure="check the path") from error
    if "mlfs" in root.attrs:
        raise UsageError(f"{path} is a store, which never changes\n  cure: annotate the file that it was made from")
    consolidated = zarr.open_group(path, mode="r").metadata.consolidated_metadata is not None
    with explained(path, new_bytes):
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
        cure="give an AnnData file; write an old file anew with anndata first",
    )


def _write(parent: Any, name: str, value: Any) -> None:
    """Write an entry into a group of HDF5 or Zarr, in AnnData's encoding."""
    if name in parent:
        del parent[name]
    if isinstance(value, Mapping):
        group, is_frame = parent.create_group(name), "_index" in value
        group.attrs.update({**DATAFRAME, "_index": "_index"} if is_frame else DICT)
        for each, content in value.items():
            _write(group, each, content)
        if is_frame:
            _set_columns(group, [each for each in value if each != "_index"])
        return
    values = np.asarray(value)
    text = values.dtype.kind in "OU"
    encoding = STRINGS if text else DENSE
    if not values.ndim:
        encoding = {**encoding, "encoding-type": "string" if text else "numeric-scalar"}
    if _is_hdf5(parent):
        import h5py

        node = parent.create_dataset(
            name, data=values.astype(object) if text else values, dtype=h5py.string_dtype() if text else None
        )
    else:
        node = parent.create_array(name, shape=values.shape, dtype=str if text else values.dtype)
        node[...] = values.astype(object) if text else values
    node.attrs.update(encoding)


def _set_columns(frame: Any, names: Sequence[str]) -> None:
    """List the columns of a data frame in its attributes."""
    if _is_hdf5(frame):
        set_columns(frame, names)
    else:
        frame.attrs["column-order"] = list(names)


def _is_hdf5(group: Any) -> bool:
    return type(group).__module__.startswith("h5py")
