"""From what the user named to one reader: format by suffix or content, pairs, several files as one."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from mlfs_dask.errors import DataError, UsageError, number_of
from mlfs_dask.files.redaction import redact
from mlfs_dask.storage.object_store import ZARR_ROOTS, expand
from mlfs_dask.storage.readers import compressed_io
from mlfs_dask.storage.readers.base import FileSpec, NoRowsError, Reader
from mlfs_dask.storage.readers.compressed_io import format_suffix
from mlfs_dask.storage.readers.concat import concatenate

logger = logging.getLogger(__name__)

_HERE = "mlfs_dask.storage.readers"


@dataclass(frozen=True)
class Format:
    """A format: its name in `--format`, suffixes, the function that opens it, and the keys it understands.

    `keys` None: the function checks them itself.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    opener: str
    keys: tuple[str, ...] | None = None


_NAMES = ("names", "label_names")
_ARRAYS = ("x", "y", *_NAMES)
FORMATS = {
    known.name: known
    for known in (
        Format("arff", "Mulan or Meka ARFF, dense or sparse", (".arff",), "arff:open_arff"),
        Format("svmlight", "svmlight (libsvm) text", (".svm", ".svmlight", ".libsvm"), "svmlight:open_svmlight"),
        Format("xmlc", "XMLC text: header `n d q`, or `n d` and labels apart", (".xmlc",), "xmlc:open_xmlc"),
        Format("csv", "CSV with a header row", (".csv", ".raw", ".traw"), "csv:open_csv", ("categorical", "header")),
        Format("tsv", "the same with tabs", (".tsv", ".tab"), "csv:open_tsv", ("categorical", "header")),
        Format("parquet", "Parquet", (".parquet", ".pq"), "parquet:open_parquet", ("categorical",)),
        Format(
            "feather", "Feather, Arrow IPC", (".feather", ".arrow", ".ipc"), "parquet:open_parquet", ("categorical",)
        ),
        Format("npz", "NumPy .npz, dense, or sparse by SciPy", (".npz",), "npz:open_npz", _ARRAYS),
        Format("npy", "NumPy .npy, a pair X.npy Y.npy", (".npy",), "npz:open_npz", _NAMES),
        Format("mtx", "MatrixMarket, a pair X.mtx Y.mtx", (".mtx",), "mtx:open_mtx", _NAMES),
        Format("mat", "MATLAB .mat, version 5 or 7.3", (".mat",), "mat:open_mat", (*_ARRAYS, "orientation")),
        Format(
            "h5ad",
            "AnnData .h5ad, MuData .h5mu",
            (".h5ad", ".h5mu"),
            "anndata:open_anndata",
            _ARRAYS,
        ),
        Format(
            "hdf5",
            "HDF5 or netCDF 4 X and Y",
            (".h5", ".hdf5", ".hdf", ".nc", ".nc4"),
            "array_pair:open_array_pair",
            _ARRAYS,
        ),
        Format("10x", "10x Genomics .h5, or a folder of matrix.mtx", (), "tenx:open_tenx", ("labels", "feature_types")),
        Format("anndata", "AnnData .zarr", (), "anndata:open_anndata", _ARRAYS),
        Format("zarr", "Zarr X and Y, in a group or a pair", (".zarr",), "array_pair:open_array_pair", _ARRAYS),
    )
}
#: Formats whose rows cannot be read by themselves, and pairs of files: a store is made of them first.
TO_CONVERT = ("arff", "svmlight", "xmlc", "csv", "tsv", "npy", "mtx")
# One of these is X or Y alone when two of them are given.
_PAIRED = ("npz", "npy", "mtx", "zarr")
_BY_COLUMNS = ("csv", "tsv", "parquet", "feather")
# Labels are an array of their own here, which no label option can name.
_LABELS_APART = ("npz", "npy", "mtx", "mat", "zarr", "hdf5")
#: Suffixes of tables of labels beside the data.
_TABLES = (".csv", ".tsv", ".tab", ".txt")
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
_SNIFF_BYTES = 4096
_DEFAULTS = FileSpec()


def open_source(sources: Sequence[str], options: FileSpec = _DEFAULTS) -> Reader:
    """Open what the user named as one reader.

    Parameters
    ----------
    sources : sequence of str
        Files or URLs of one format, read one after the other; or a pair X, Y (.npz, .npy, .mtx, .zarr); or a folder of
        Parquet files; a `*` in a URL, or in a path that does not exist as it stands, is expanded.
    options : FileSpec
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
    return open_resolved(sources, *resolve_sources(sources, options), options)


def open_resolved(sources: Sequence[str], paths: Sequence[str], name: str, options: FileSpec) -> Reader:
    """The reader of files that `resolve_sources` has found, of one format; errors as of `open_source`."""
    options = replace(options, keys={key.lower(): value for key, value in options.keys.items()})
    _check_options(paths[0], FORMATS[name], options)
    if options.transpose:
        from mlfs_dask.storage.readers.transposed import open_transposed

        return concatenate([open_transposed(path, options, _opener(name)) for path in paths])
    if name in _PAIRED and (pair := _as_pair(paths, name, options)):
        return _call(name, pair, options)
    options = replace(options, folder=_common_folder(sources))
    readers, empty = [], None
    for path in paths:
        try:
            readers.append(_call(name, path, _with_labels(path, name, options)))
        except NoRowsError as error:
            empty = error
            if len(paths) > 1:
                logger.warning("%s: it has no rows, and is left out", redact(path))
    if empty is not None and not readers:
        raise empty
    return concatenate(readers)


def _common_folder(sources: Sequence[str]) -> str:
    """The folder that was named, if it was one; names of folders in it may be columns."""
    return str(Path(sources[0])) if len(sources) == 1 and Path(sources[0]).is_dir() else ""


def is_named_as_file(path: str | Path) -> bool:
    """Whether the suffix is that of a format whose data are a file."""
    suffix = format_suffix(str(path).rstrip("/"))
    return any(suffix in known.suffixes for known in FORMATS.values() if known.name != "zarr")


def resolve_sources(sources: Sequence[str], options: FileSpec = _DEFAULTS) -> tuple[list[str], str]:
    """Files that the user named, and their format; parameters and errors are those of `open_source`."""
    if not sources:
        raise UsageError("no files were given\n  cure: name at least one file to read")
    format = options.format
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format {format!r}\n  cure: --format is one of {', '.join(FORMATS)}")
    paths = [path for source in sources for path in _expanded(str(source), options)]
    formats = [format or _format_of(path, options) for path in paths]
    if set(formats) == {"npz", "npy"}:  # of a pair one may be sparse
        formats = ["npz"] * len(paths)
    for path, found in zip(paths, formats, strict=True):
        if found != formats[0]:
            raise UsageError(
                f"{paths[0]} is {formats[0]} and {path} is {found}; files of one format can be read together"
                "\n  cure: convert them one by one, or say --format if a name is misleading"
            )
    name = formats[0]
    if len(paths) > 1 and len(set(paths)) < len(paths):
        twice = next(path for number, path in enumerate(paths) if path in paths[:number])
        raise UsageError(f"{twice} is given twice\n  cure: name each file once")
    return paths, name


def _check_options(path: str, known: Format, options: FileSpec) -> None:
    """Refuse options that the format would ignore."""
    keys = known.keys
    if keys is not None and options.transpose:
        keys = (*keys, "names")
    for key in options.keys:
        if keys is not None and key not in keys:
            raise UsageError(
                f"{path}: {known.name} has no key {key!r}\n  cure: "
                + (f"its keys are {', '.join(keys)}" if keys else "leave --key out")
            )
    if options.transpose and known.name not in _BY_COLUMNS:
        raise UsageError(
            f"{path}: {known.name} is no table\n  cure: --transpose goes with {', '.join(_BY_COLUMNS)}; leave it out "
            "otherwise"
        )
    if options.obs and known.name not in (*_BY_COLUMNS, "h5ad", "anndata"):
        raise UsageError(
            f"{path}: {known.name} has no columns of rows, which --obs would keep"
            "\n  cure: leave --obs out, or give the data as CSV, Parquet or AnnData"
        )
    if options.labels.classes and known.name in _LABELS_APART and not _has_table(known.name, options):
        raise UsageError(
            f"{path}: labels are a matrix here, and no columns of classes\n  cure: leave --label-classes and "
            "--label-separator out"
        )
    if options.labels.key is not None and known.name not in _BY_COLUMNS:
        raise UsageError(
            f"{path}: {known.name} has no column of keys\n  cure: leave --label-key out; a table beside .mtx has its "
            "rows in the order of the matrix"
        )
    if known.name in _LABELS_APART and options.labels.names_columns and not _has_table(known.name, options):
        raise UsageError(
            f"{path}: labels are an array of their own here, which --label-file, --label-columns and --n-labels say "
            "nothing of\n  cure: leave them out; --key y=NAME names the array, and one in a file of its own is a "
            "second source (mlfs convert X.npz Y.npy STORE)"
        )


def _has_table(name: str, options: FileSpec) -> bool:
    """Whether labels stand in a table beside a single matrix."""
    return name == "mtx" and format_suffix(options.labels.xml or "") in _TABLES


def _call(name: str, source: str | tuple[str, ...], options: FileSpec) -> Reader:
    reader: Reader = _opener(name)(source, options)
    return reader


def _opener(name: str) -> Callable[..., Any]:
    module, _, function = FORMATS[name].opener.partition(":")
    opener: Callable[..., Any] = getattr(importlib.import_module(f"{_HERE}.{module}"), function)
    return opener


def _with_labels(path: str, name: str, options: FileSpec) -> FileSpec:
    """The options, with labels from an XML file: of the same stem, or, for tables, as column names."""
    labels = options.labels
    if name == "arff" and not labels.names_columns:
        xml = _xml_beside(path, options)
        if xml is not None:
            logger.info("%s: labels are those named in %s", redact(path), redact(xml))
            return replace(options, labels=replace(labels, xml=xml))
    if name in _BY_COLUMNS and labels.xml is not None and format_suffix(labels.xml) in _TABLES:
        if labels.key is None:
            raise UsageError(
                f"{path}: nothing tells which row of {labels.xml} has the labels of a row"
                "\n  cure: --label-key NAME, the column whose values stand in the first column of that table"
            )
        return options
    if name in _BY_COLUMNS and labels.xml is not None:
        from mlfs_dask.storage.readers.mulan_xml import read_mulan_labels

        names = read_mulan_labels(labels.xml, options.storage_options)
        return replace(options, labels=replace(labels, xml=None, columns=names))
    return options


def _xml_beside(path: str, options: FileSpec) -> str | None:
    folder = path[: len(path) - len(PurePosixPath(path).name)]
    stem = PurePosixPath(path).name
    while PurePosixPath(stem).suffix.lower() in (".gz", ".xz", ".bz2", ".zst", ".arff"):
        stem = PurePosixPath(stem).stem
    xml = f"{folder}{stem}.xml"
    return xml if compressed_io.exists(xml, options.storage_options) else None


def _as_pair(paths: Sequence[str], name: str, options: FileSpec) -> tuple[str, ...] | None:
    """X and Y, if each of the files holds one matrix alone."""
    alone = [_holds_one(path, name, options) for path in paths]
    if all(alone) and len(paths) == 2 - _has_table(name, options):
        return tuple(paths)
    if any(alone):
        raise UsageError(
            f"{paths[alone.index(True)]} holds one matrix, and {number_of(len(paths), 'file')} came"
            "\n  cure: give the pair X Y, or files that hold both X and Y"
        )
    return None


def _holds_one(path: str, name: str, options: FileSpec) -> bool:
    if name in ("npy", "mtx"):
        return True
    if name == "npz":
        from mlfs_dask.storage.readers.npz import matrices_in

        return len(matrices_in(path, options)) == 1
    from mlfs_dask.storage.readers.array_pair import is_matrix
    from mlfs_dask.storage.readers.zarr_nodes import open_node

    return is_matrix(open_node(path, options))


def _format_of(path: str, options: FileSpec) -> str:
    suffix = format_suffix(path.rstrip("/"))
    by_suffix = next((known.name for known in FORMATS.values() if suffix in known.suffixes), None)
    if by_suffix in ("zarr", "hdf5") or (by_suffix is None and _is_zarr_folder(path)):
        return _kind_of_group(path, options)
    if by_suffix is not None:
        return by_suffix
    if is_tenx_folder(path):
        return "10x"
    if suffix in (".txt", ".dat", ".data", ""):
        found = _format_by_content(path, options)
        if found is not None:
            return found
    else:
        compressed_io.open_source(path, options.storage_options)  # a missing file is that before anything else
        if suffix in _ARCHIVES:
            raise UsageError(
                f"{path} is an archive, which may hold several files\n  cure: unpack it, and name the files in it"
            )
    known = "; ".join(f"{known.name} ({known.title})" for known in FORMATS.values())
    raise UsageError(
        f"{path}: neither its name nor its first line tells the format\n  cure: --format with one of {known}"
    )


def _format_by_content(path: str, options: FileSpec) -> str | None:
    source = compressed_io.open_source(path, options.storage_options)
    first = source.read_range(0, _SNIFF_BYTES)
    if not first.strip():
        raise DataError("the file is empty", file=path, cure="give a file with data in it")
    for mark, name in (
        (b"PAR1", "parquet"),
        (b"ARROW1", "feather"),
        (b"PK\x03\x04", "npz"),
        (b"\x93NUMPY", "npy"),
        (b"MATLAB", "mat"),
        (b"\x89HDF", "hdf5"),
        (b"%%MatrixMarket", "mtx"),
    ):
        if first.startswith(mark):
            return _kind_of_group(path, options) if name == "hdf5" else name
    lines = first.decode("utf-8", errors="replace").removeprefix("\ufeff").splitlines()
    content = [line for line in lines if line.strip() and not line.lstrip().startswith(("%", "#"))]
    if not content:
        return None
    if content[0].lstrip().lower().startswith("@relation"):
        return "arff"
    words = content[0].split()
    if len(words) == 3 and all(word.isdecimal() for word in words):
        return "xmlc"
    if len(words) == 2 and all(word.isdecimal() for word in words) and _is_pairs(content[1:2]):
        return "xmlc"
    if any(":" in word for word in words) and all(_is_svmlight_word(word) for word in words):
        return "svmlight"
    if "\t" in content[0]:
        return "tsv"
    has_blanks = len(words) > 1 and [len(line.split()) for line in content[1:2]] == [len(words)]
    return "csv" if has_blanks or any(mark in content[0] for mark in ",;|") else None


def _is_pairs(lines: list[str]) -> bool:
    """Whether a line holds nothing but index:value."""
    return all(":" in word and _is_svmlight_word(word) for line in lines for word in line.split())


def _is_svmlight_word(word: str) -> bool:
    """Whether a word is labels (1,4), a class (-1, 3.0) or index:value; a comment may follow."""
    index, colon, value = word.partition(":")
    if not colon:
        return all(_is_number(part) for part in index.strip(",").split(",")) or index.startswith("#")
    return _is_number(value) and (index.isdecimal() or index == "qid")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_zarr_folder(path: str) -> bool:
    folder = Path(path)
    return any((folder / name).is_file() for name in ZARR_ROOTS)


def is_tenx_folder(path: str) -> bool:
    """Whether it is a folder as Cell Ranger writes it."""
    # False where the folder may not be read.
    return any(os.path.isfile(f"{path}/barcodes.tsv{packed}") for packed in ("", ".gz"))  # noqa: PTH113


def _kind_of_group(path: str, options: FileSpec) -> str:
    """The format of a Zarr folder or an HDF5 file, by what is in it."""
    from mlfs_dask.storage.readers.anndata import is_anndata
    from mlfs_dask.storage.readers.encoded import is_array, open_root

    with open_root(path, options) as root:
        zarr = not hasattr(root, "filename")
        if not is_array(root) and is_anndata(root):
            return "anndata" if zarr else "h5ad"
        if not zarr and any(not is_array(node) and "barcodes" in node for node in root.values()):
            return "10x"
    return "zarr" if zarr else "hdf5"


def _expanded(source: str, options: FileSpec) -> list[str]:
    """The files that a source stands for: itself, a pattern's, or a folder's Parquet files."""
    url = "://" in source or "::" in source
    if "*" in source and (url or not Path(source).exists()):
        found = expand(source, options.storage_options)
        if not found:
            raise DataError("no file matches", file=source, cure="check the pattern")
        return found
    folder = Path(source)
    if url or not folder.is_dir() or _is_zarr_folder(source) or is_tenx_folder(source):
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
