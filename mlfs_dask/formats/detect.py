"""Detection of formats by suffix or content; one reader for the files that a user named."""

from __future__ import annotations

import functools
import importlib
import logging
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mlfs_dask import formats
from mlfs_dask.errors import DataError, UsageError, number_of
from mlfs_dask.files import compressed_io
from mlfs_dask.files.compressed_io import format_suffix
from mlfs_dask.files.object_store import ZARR_ROOTS, expand
from mlfs_dask.readers.base import BATCH_BYTES, DEFAULT_SPEC, FileSpec, Format, NoRowsError, Reader
from mlfs_dask.readers.concat import concatenate
from mlfs_dask.readers.obs import Array, ObsColumns, joined
from mlfs_dask.redaction import redact

logger = logging.getLogger(__name__)

#: Suffixes of tables of labels beside the data.
_TABLES = (".csv", ".tsv", ".tab", ".txt")
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
_SNIFF_BYTES = 4096


@functools.cache
def known_formats() -> dict[str, Format]:
    """Return all formats by name, in the order in which they are asked."""
    names = [f"{formats.__name__}.{module.name}" for module in pkgutil.iter_modules(formats.__path__)]
    found = [known for name in names for known in getattr(importlib.import_module(name), "FORMATS", ())]
    return {known.name: known for known in sorted(found, key=lambda known: known.order)}


def open_source(sources: Sequence[str], spec: FileSpec = DEFAULT_SPEC) -> Reader:
    """Open what the user named as one reader.

    Parameters
    ----------
    sources : sequence of str
        Files or URLs of one format, read one after the other; or a pair X, Y (.npz, .npy, .mtx, .zarr); or a folder of
        Parquet files; a `*` in a URL, or in a path that does not exist as it stands, is expanded.
    spec : FileSpec
        Where it has no format, the suffix tells, and the first line where the suffix does not (.txt, .dat, .data,
        none).

    Returns
    -------
    Reader

    Raises
    ------
    UsageError
        An unknown format, files of several formats, labels that nothing tells.
    DataError
        A file that is missing, unreadable, empty or invalid; files that do not agree.
    """
    return open_resolved(sources, *resolve_sources(sources, spec), spec)


def open_resolved(sources: Sequence[str], paths: Sequence[str], known: Format, spec: FileSpec) -> Reader:
    """Return the reader of files that `resolve_sources` has found, of one format; errors as of `open_source`."""
    spec = replace(spec, keys={key.lower(): value for key, value in spec.keys.items()})
    _check_options(paths[0], known, spec)
    if spec.transpose:
        from mlfs_dask.readers.transposed import open_transposed

        return concatenate([open_transposed(path, spec, known.open) for path in paths])
    if known.is_matrix is not None and (pair := _as_pair(paths, known, spec)):
        return known.open(pair, spec)
    # The folder that the user named, if any; names of folders in it may be columns.
    named = len(sources) == 1 and Path(sources[0]).is_dir()
    spec = replace(spec, folder=str(Path(sources[0])) if named else "")
    readers, empty = [], None
    for path in paths:
        try:
            readers.append(known.open(path, _with_names(path, known, spec)))
        except NoRowsError as error:
            empty = error
            if len(paths) > 1:
                logger.warning("%s: it has no rows and is left out", redact(path))
    if empty is not None and not readers:
        raise empty
    return concatenate(readers)


def is_named_as_file(path: str | Path) -> bool:
    """Return True for the suffix of a format of files."""
    suffix = format_suffix(str(path).rstrip("/"))
    return any(suffix in known.suffixes for known in known_formats().values() if known.name != "zarr")


def is_data_folder(path: str | Path) -> bool:
    """Return True if a format recognises a local folder, such as a folder of Cell Ranger."""
    return any(known.folder(str(path)) for known in known_formats().values())


def resolve_sources(sources: Sequence[str], spec: FileSpec = DEFAULT_SPEC) -> tuple[list[str], Format]:
    """Return files that the user named, and their format; parameters and errors are those of `open_source`."""
    if not sources:
        raise UsageError("no files were given\n  cure: name at least one file to read")
    format = spec.format
    if format is not None and format not in known_formats():
        raise UsageError(f"unknown format {format!r}\n  cure: --format is one of {', '.join(sorted(known_formats()))}")
    paths = [path for source in sources for path in _expanded(str(source), spec)]
    formats = [format or _format_of(path, spec) for path in paths]
    if set(formats) == {"npz", "npy"}:  # of a pair one may be sparse
        formats = ["npz"] * len(paths)
    for path, found in zip(paths, formats, strict=True):
        if found != formats[0]:
            raise UsageError(
                f"{paths[0]} is {formats[0]} and {path} is {found}; only files of one format can be read together"
                "\n  cure: convert them one by one, or say --format if a name is misleading"
            )
    name = formats[0]
    if len(paths) > 1 and len(set(paths)) < len(paths):
        twice = next(path for number, path in enumerate(paths) if path in paths[:number])
        raise UsageError(f"{twice} is given twice\n  cure: name each file once")
    return paths, known_formats()[name]


def _check_options(path: str, known: Format, spec: FileSpec) -> None:
    """Refuse options that the format would ignore."""
    keys = known.keys
    if keys is not None and spec.transpose:
        keys = (*keys, "names")
    for key in spec.keys:
        if keys is not None and key not in keys:
            raise UsageError(
                f"{path}: {known.name} has no key {key!r}\n  cure: "
                + (f"its keys are {', '.join(keys)}" if keys else "leave --key out")
            )
    if spec.transpose and not known.is_table:
        tables = ", ".join(sorted(each.name for each in known_formats().values() if each.is_table))
        raise UsageError(
            f"{path}: {known.name} is no table\n  cure: --transpose goes with {tables}; leave it out otherwise"
        )
    if spec.obs and not known.is_table and known.obs is None:
        raise UsageError(
            f"{path}: {known.name} has no columns of rows, which --obs and --targets would keep"
            "\n  cure: leave the option out, or give the data as CSV, Parquet or AnnData"
        )
    if spec.labels.classes and known.has_label_array and not _has_table(known, spec):
        raise UsageError(
            f"{path}: labels are a matrix here, not columns of classes\n  cure: leave --label-classes and "
            "--label-separator out"
        )
    if spec.labels.key is not None and not known.is_table:
        raise UsageError(
            f"{path}: {known.name} has no column of keys\n  cure: leave --label-key out; the rows of a table "
            "beside .mtx are in the order of the matrix"
        )
    if known.has_label_array and spec.labels.names_columns and not _has_table(known, spec):
        raise UsageError(
            f"{path}: labels are an array of their own here, which --label-file, --label-columns and --n-labels say "
            "nothing of\n  cure: leave them out; --key y=NAME names the array, and one in a file of its own is a "
            "second source (mlfs convert X.npz Y.npy STORE)"
        )


def _has_table(known: Format, spec: FileSpec) -> bool:
    """Return True if a table holds the labels of a single matrix."""
    return known.takes_label_table and format_suffix(spec.labels.xml or "") in _TABLES


def _with_names(path: str, known: Format, spec: FileSpec) -> FileSpec:
    """Return the specification, with the labels that an XML file names as columns of a table."""
    labels = spec.labels
    if not known.is_table or labels.xml is None:
        return spec
    if format_suffix(labels.xml) in _TABLES:
        if labels.key is None:
            raise UsageError(
                f"{path}: no option says which row of {labels.xml} has the labels of a row"
                "\n  cure: --label-key NAME, the column whose values are in the first column of that table"
            )
        return spec
    from mlfs_dask.readers.mulan_xml import read_mulan_labels

    names = read_mulan_labels(labels.xml, spec.storage_options)
    return replace(spec, labels=replace(labels, xml=None, columns=names))


def _as_pair(paths: Sequence[str], known: Format, spec: FileSpec) -> tuple[str, ...] | None:
    """Return X and Y, if each of the files holds one matrix alone."""
    assert known.is_matrix is not None
    alone = [known.is_matrix(path, spec) for path in paths]
    if all(alone) and len(paths) == 2 - _has_table(known, spec):
        return tuple(paths)
    if any(alone):
        raise UsageError(
            f"{paths[alone.index(True)]} holds one matrix, and {number_of(len(paths), 'file')} came"
            "\n  cure: give the pair X Y, or files that hold both X and Y"
        )
    return None


def _format_of(path: str, spec: FileSpec) -> str:
    """Return the name of a file's format, by suffix, folder or content."""
    suffix = format_suffix(path.rstrip("/"))
    formats = known_formats().values()
    candidates = [known for known in formats if suffix in known.suffixes]
    found = candidates[-1] if candidates else None
    if len(candidates) > 1:  # a dialect, and the format that its name says
        found = _format_by_content(path, spec, candidates) or found
    elif found is None and _is_zarr_folder(path):
        return _kind_of_group(path, spec)
    elif found is None:
        found = next((known for known in formats if known.folder(path)), None)
    if found is None and suffix in (".txt", ".dat", ".data", ""):
        found = _format_by_content(path, spec, formats)
    elif found is None:
        compressed_io.open_source(path, spec.storage_options)  # a missing file is that before anything else
        if suffix in _ARCHIVES:
            raise UsageError(
                f"{path} is an archive, which may hold several files\n  cure: unpack it, and name the files in it"
            )
    if found is None:
        names = "; ".join(f"{known.name} ({known.title})" for _, known in sorted(known_formats().items()))
        raise UsageError(
            f"{path}: the format is unclear from its name and its first line\n  cure: --format with one of {names}"
        )
    return _kind_of_group(path, spec) if found.is_container else found.name


def _format_by_content(path: str, spec: FileSpec, formats: Iterable[Format]) -> Format | None:
    """Return the first of some formats that recognises the beginning of a file."""
    source = compressed_io.open_source(path, spec.storage_options)
    first = source.read_range(0, _SNIFF_BYTES)
    if not first.strip():
        raise DataError("the file is empty", file=path, cure="give a file with data in it")
    lines = first.decode("utf-8", errors="replace").removeprefix("\ufeff").splitlines()
    content = [line for line in lines if line.strip() and not line.lstrip().startswith(("%", "#"))]
    return next((known for known in formats if known.head(first, content)), None)


def _is_zarr_folder(path: str) -> bool:
    folder = Path(path)
    return any((folder / name).is_file() for name in ZARR_ROOTS)


def _kind_of_group(path: str, spec: FileSpec) -> str:
    """Return the format of a Zarr folder or an HDF5 file, by what is in it."""
    from mlfs_dask.readers.encoded import open_root

    with open_root(path, spec) as root:
        return next(known.name for known in known_formats().values() if known.group(root))


def _expanded(source: str, spec: FileSpec) -> list[str]:
    """Return the files that a source stands for: itself, a pattern's, or a folder's Parquet files."""
    url = "://" in source or "::" in source
    if "*" in source and (url or not Path(source).exists()):
        found = expand(source, spec.storage_options)
        if not found:
            raise DataError("no file matches", file=source, cure="check the pattern")
        return found
    folder = Path(source)
    if url or not folder.is_dir() or _is_zarr_folder(source) or is_data_folder(source):
        return [source]
    tables = sorted(
        str(file)
        for file in folder.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    )
    if tables:
        return tables
    raise DataError(
        "it is a folder, but neither Zarr nor one of Parquet files",
        file=source,
        cure="name the files in it",
    )


def obs_names(path: str, spec: FileSpec) -> tuple[str, ...]:
    """Return the names of the columns of rows of a file: those of `obs`, or of a table the columns that are left
    out.
    """
    _, known = resolve_sources([path], spec)
    if known.obs is None:
        return (*spec.drop, *spec.obs)
    return tuple(dict.fromkeys((*known.obs[0](path, spec), *spec.obs)))


def read_obs(paths: Sequence[str], spec: FileSpec) -> ObsColumns:
    """Return the columns `spec.obs` of the rows of files; they are read when blocks are asked for.

    Parameters
    ----------
    paths : sequence of str
    spec : FileSpec

    Raises
    ------
    DataError
        A column is not there.
    UsageError
        The format has no columns of rows.
    """
    files, known = resolve_sources(paths, spec)
    names = spec.obs
    if known.obs is not None:
        return joined([known.obs[1](file, names, spec) for file in files], paths=files)
    reader = open_source(list(paths), replace(spec, only_obs=True))
    order = [list(reader.header.feature_names or ()).index(name) for name in names]
    codes = reader.header.categories

    def blocks() -> Iterator[Array]:
        for part in reader.parts(1 << 62):
            for batch in reader.read(part, batch_bytes=BATCH_BYTES):
                yield np.asarray(batch.X, dtype=np.float64)[:, order]

    categories = {name: codes[column] for name, column in zip(names, order, strict=True) if column in codes}
    return ObsColumns(names, categories, blocks)
