"""Write rows of chosen columns to a file of a common format: .npz, .h5ad, .svm, .csv, .parquet, .arff with its .xml.

Blocks are written as they come; memory is one block and some 64 MiB. The file is written beside its place
(a URL's in TMPDIR) and moved there when it is whole: on any failure nothing is left behind. Reading the file
again gives equal X and Y; numbers are written with all digits that it takes.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, TextIO, cast
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError, require_extra
from mlfs_dask.files.object_store import RemoteObjects, is_url, local_path, require_writable
from mlfs_dask.files.publish import behind_links, explained, put, working_folder
from mlfs_dask.readers.label_columns import repeated_name
from mlfs_dask.readers.label_values import is_missing
from mlfs_dask.typing import Matrix

Blocks = Iterable[tuple[Matrix, csr_array]]

# Values turned into text at a time: Python's texts take some 70 bytes each.
_TEXT_VALUES = 1 << 18
_GROUP_BYTES = 64 << 20
_PLAIN_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+/=:")
_ESCAPED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class _Table(NamedTuple):
    """Table to write; `blocks` yields C-ordered arrays or canonical CSR, and int8 CSR labels."""

    blocks: _CountedBlocks
    feature_names: Sequence[str]
    label_names: Sequence[str]
    kinds: Sequence[str]
    categories: Mapping[int, Sequence[str]]
    n: int
    relation: str
    packed: bool


def export_rows(
    blocks: Blocks,
    path: str | Path,
    *,
    feature_names: Sequence[str],
    label_names: Sequence[str],
    kinds: Sequence[str] | None = None,
    categories: Mapping[int, Sequence[str]] | None = None,
    n: int,
    force: bool = False,
) -> int:
    """Write row blocks to one file; the suffix says the format.

    Parameters
    ----------
    blocks : iterable of (X, Y)
        X: ndarray or csr_array, shape (rows, d), NaN = missing, all of one dtype and kind. Y: csr_array of int8,
        shape (rows, q), 1 and -1 (unknown).
    path : str or Path
        Local path or URL ending in .npz, .h5ad, .svm, .svmlight, .libsvm, .csv, .parquet, .pq or .arff; text
        also followed by .gz. Beside an .arff the labels go to an .xml of the same stem. A sparse .npz is X for
        `scipy.sparse.load_npz`, with Y in further arrays. svmlight has no names and no unknown labels, CSV does not
        say which columns are labels.
    feature_names, label_names : sequence of str, lengths d and q
    kinds : sequence of str, length d, optional
        numeric, integer, binary or categorical; by default all numeric.
    categories : mapping of int to sequence of str, optional
        Feature -> what its codes 0..K-1 stand for.
    n : int
        Rows in all blocks together.
    force : bool
        Replace an existing file.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    UsageError
        An unknown suffix, an existing file without `force`, pyarrow missing.
    DataError
        What the format cannot hold (an unknown label in svmlight, a name given twice, a category `NA` in CSV).
    MlfsError
        If the place cannot be written; nothing is left behind.
    """
    suffix, packed = export_format(path)
    bare = str(path)[: -len(".gz")] if packed else str(path)
    counted = _CountedBlocks(blocks, n, len(feature_names), len(label_names))
    table = _Table(
        counted,
        feature_names,
        label_names,
        kinds if kinds is not None else ["numeric"] * len(feature_names),
        categories or {},
        n,
        PurePosixPath(bare).stem,
        packed,
    )
    targets = [str(path)]
    if suffix == ".arff":
        targets.insert(0, bare[: -len(".arff")] + ".xml")
    with _staged(targets, counted, force=force) as files:
        if suffix == ".arff":
            _write_labels_xml(files[0], label_names)
        _WRITERS[suffix](table, files[-1])
        return sum(file.stat().st_size for file in files)


def known_suffixes() -> str:
    """Return the suffixes `export_rows` knows, for help and messages."""
    return ", ".join(_WRITERS)


def export_format(path: str | Path) -> tuple[str, bool]:
    """Return the suffix that tells the format, in lower case, and whether .gz stands behind it.

    Raises
    ------
    UsageError
        If nothing can be written under such a name.
    """
    name = PurePosixPath(str(path))
    packed = name.suffix.lower() == ".gz"
    suffix = (PurePosixPath(name.stem) if packed else name).suffix.lower()
    if suffix not in _WRITERS or (packed and suffix not in _TEXTS):
        raise UsageError(
            f"{path}: cannot write {suffix}{'.gz' if packed else ''}; a store ends in .zarr, a file in one of "
            f"{known_suffixes()}; {', '.join(_TEXTS)} also followed by .gz"
        )
    return suffix, packed


class _CountedBlocks:
    """The blocks, held to the shape that was announced; `fraction` of the rows were asked for so far."""

    def __init__(self, blocks: Blocks, n: int, d: int, q: int) -> None:
        self._blocks = iter(blocks)
        self._n, self._d, self._q = n, d, q
        self._rows = 0

    @property
    def fraction(self) -> float:
        return self._rows / self._n

    @cached_property
    def first(self) -> Matrix:
        """X of the first block, asked for before the blocks are."""
        block = next(self._blocks, None)
        if block is None:
            raise ValueError("there are no rows to write")
        self._blocks = itertools.chain([block], self._blocks)
        return block[0]

    def __iter__(self) -> Iterator[tuple[Matrix, csr_array]]:
        for X, Y in self._blocks:
            if X.shape != (Y.shape[0], self._d) or Y.shape[1] != self._q:
                raise ValueError(
                    f"a block of X {X.shape} and Y {Y.shape}, expected {self._d} features and {self._q} labels"
                )
            self._rows += X.shape[0]
            yield X, Y
        if self._rows != self._n:
            raise ValueError(f"the blocks hold {self._rows} rows, {self._n} were announced")


@contextlib.contextmanager
def _staged(targets: Sequence[str], blocks: _CountedBlocks, *, force: bool) -> Iterator[list[Path]]:
    """Temporary local files, moved to the targets, in this order, if the block ends well."""
    require_writable(targets[-1])
    remote = is_url(targets[-1])
    for target in targets:
        exists = RemoteObjects(target).exists() if remote else local_path(target).exists()
        if exists and not force:
            raise UsageError(f"{target} exists already\n  cure: choose another name, or --force to replace it")
        if not remote and local_path(target).is_dir():
            raise UsageError(f"{target} is a folder\n  cure: give the name of a file")

    files: list[Path] = []

    def projected() -> int:
        written = sum(file.stat().st_size for file in files if file.exists())
        return round(written / blocks.fraction) if blocks.fraction else 0  # of the rows that were left, as many

    if not remote:
        places = [behind_links(local_path(target)) for target in targets]
        with explained(targets[-1], projected, working_folder(places[-1])) as folder:
            files += [folder / place.name for place in places]
            yield files
            for file, place in zip(files, places, strict=True):
                put(file, place)
        return
    # Others may look into the folder of temporary files, so what goes to a URL has one of its own there.
    working = tempfile.TemporaryDirectory(prefix="mlfs-")
    with explained(targets[-1], projected, working) as folder:
        files += [Path(folder) / PurePosixPath(target).name for target in targets]
        yield files
        for file, target in zip(files, targets, strict=True):
            _upload(RemoteObjects(target), file)


def _upload(objects: RemoteObjects, file: Path) -> None:
    try:
        objects.write("", file)
    except BaseException:
        with contextlib.suppress(Exception):
            objects.remove("")  # what a file system that is no object store has of it
        raise


def _slices(table: _Table) -> Iterator[tuple[Matrix, csr_array]]:
    """Yield the blocks cut so that none holds many more than `_TEXT_VALUES` values of X and Y."""
    for X, Y in table.blocks:
        start = 0
        while start < X.shape[0]:
            if isinstance(X, np.ndarray):
                stop = start + max(1, _TEXT_VALUES // (X.shape[1] + Y.shape[1]))
            else:
                stop = int(np.searchsorted(X.indptr, X.indptr[start] + _TEXT_VALUES, side="right")) - 1
                stop = max(start + 1, min(stop, start + _TEXT_VALUES))
            yield X[start:stop], Y[start:stop]
            start = stop


# ---- .npz


def _write_npz(table: _Table, file: Path) -> None:
    names: dict[str, NDArray[Any]] = {
        "feature_names": np.array(list(table.feature_names), dtype=np.str_),
        "label_names": np.array(list(table.label_names), dtype=np.str_),
        "unknown_label": np.array(-1, dtype=np.int8),
    }
    if table.categories:
        names["categories"] = np.array(_categories_json(table))
    with contextlib.ExitStack() as stack, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:

        def spool() -> BinaryIO:
            return cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile(dir=file.parent)))

        if isinstance(table.blocks.first, np.ndarray):
            labels = spool()
            with _member(archive, "X", table.blocks.first.dtype, (table.n, table.blocks.first.shape[1])) as member:
                for X, Y in table.blocks:
                    member.write(np.ascontiguousarray(X, dtype=table.blocks.first.dtype).tobytes())
                    labels.write(Y.toarray().astype(np.int8).tobytes())
            _copy(archive, "Y", np.dtype(np.int8), (table.n, len(table.label_names)), labels)
        else:
            X_spool, Y_spool = _SparseSpool(table.blocks.first.dtype, spool), _SparseSpool(np.dtype(np.int8), spool)
            for X, Y in table.blocks:
                X_spool.add(cast(csr_array, X))
                Y_spool.add(Y)
            X_spool.write(archive, "", len(table.feature_names))
            Y_spool.write(archive, "Y_", len(table.label_names))
        for name, array in names.items():
            _small(archive, name, array)


def _categories_json(table: _Table) -> str:
    return json.dumps({str(feature): list(values) for feature, values in table.categories.items()})


class _SparseSpool:
    """CSR arrays of unknown length, in temporary files until they are complete."""

    def __init__(self, dtype: np.dtype[Any], spool: Callable[[], BinaryIO]) -> None:
        self._dtype = dtype
        self._data, self._indices = spool(), spool()
        self._counts: list[NDArray[np.int64]] = []

    def add(self, matrix: csr_array) -> None:
        self._data.write(np.ascontiguousarray(matrix.data, dtype=self._dtype).tobytes())
        self._indices.write(np.ascontiguousarray(matrix.indices, dtype=np.int32).tobytes())
        self._counts.append(np.diff(matrix.indptr).astype(np.int64))

    def write(self, archive: zipfile.ZipFile, prefix: str, width: int) -> None:
        indptr = np.concatenate([[0], *self._counts]).cumsum()
        stored = (int(indptr[-1]),)
        _copy(archive, f"{prefix}data", self._dtype, stored, self._data)
        _copy(archive, f"{prefix}indices", np.dtype(np.int32), stored, self._indices)
        _small(archive, f"{prefix}indptr", indptr)
        _small(archive, f"{prefix}format", np.array(b"csr"))
        _small(archive, f"{prefix}shape", np.array([len(indptr) - 1, width]))


@contextlib.contextmanager
def _member(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Iterator[Any]:
    """A member to write values to; a fixed date makes the same content the same bytes."""
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(member, header)
        yield member


def _copy(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], spool: BinaryIO) -> None:
    spool.seek(0)
    with _member(archive, name, dtype, shape) as member:
        shutil.copyfileobj(spool, member, 1 << 20)


def _small(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with _member(archive, name, array.dtype, array.shape) as member:
        member.write(array.tobytes())


# ---- .h5ad


def _write_h5ad(table: _Table, file: Path) -> None:
    from mlfs_dask.storage import h5ad

    dense = isinstance(table.blocks.first, np.ndarray)
    with h5ad.written_hdf5(file, "w") as (root, written):
        h5ad.add_root(root)
        h5ad.add_dataframe(root, "obs", range(table.n))
        h5ad.add_dataframe(root, "var", table.feature_names)
        h5ad.add_strings(root, "uns/mlfs/label_names", table.label_names)
        if table.categories:
            h5ad.add_strings(root, "uns/mlfs/categories", [_categories_json(table)])
        X_writer = h5ad.MatrixWriter(root, "X", table.blocks.first, (table.n, len(table.feature_names)))
        kind: Matrix = np.empty(0, np.int8) if dense else csr_array((0, 0), dtype=np.int8)
        Y_writer = h5ad.MatrixWriter(root, "obsm/labels", kind, (table.n, len(table.label_names)))
        for X, Y in table.blocks:
            X_writer.write(X)
            Y_writer.write(Y.toarray() if dense else Y)
            written.require_written()
        X_writer.finish()
        Y_writer.finish()


# ---- text


@contextlib.contextmanager
def _binary(table: _Table, file: Path) -> Iterator[BinaryIO]:
    """The file to write to, through gzip if it is to be packed; the same content gives the same bytes."""
    with file.open("wb") as raw:
        if not table.packed:
            yield raw
            return
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
            yield cast(BinaryIO, packed)


@contextlib.contextmanager
def _text(table: _Table, file: Path) -> Iterator[TextIO]:
    with _binary(table, file) as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as out:
        yield out


# ---- svmlight


def _write_svmlight(table: _Table, file: Path) -> None:
    d, row = len(table.feature_names), 0
    with _text(table, file) as out:
        for X, Y in _slices(table):
            unknown = np.flatnonzero(Y.data == -1)
            if unknown.size:
                raise DataError(
                    f"row {row + int(np.searchsorted(Y.indptr, unknown[0], side='right'))}: svmlight has no "
                    "unknown labels",
                    column=table.label_names[int(Y.indices[unknown[0]])],
                    cure="write .npz, .parquet or .arff instead",
                )
            sparse = X if not isinstance(X, np.ndarray) else csr_array(X)
            values = _texts(sparse.data, missing="nan")
            for local, (start, stop) in enumerate(
                zip(sparse.indptr[:-1].tolist(), sparse.indptr[1:].tolist(), strict=True)
            ):
                labels = Y.indices[Y.indptr[local] : Y.indptr[local + 1]].tolist()
                indices = sparse.indices[start:stop].tolist()
                pairs = [f"{i + 1}:{v}" for i, v in zip(indices, values[start:stop], strict=True)]
                # The format has no width, so the first row mentions the last feature; and a row with nothing
                # in it would be an empty line, which is no row.
                if row == 0 and (not indices or indices[-1] != d - 1):
                    pairs.append(f"{d}:0")
                elif not pairs and not labels:
                    pairs.append("1:0")
                out.write(",".join(map(str, labels)) + " " + " ".join(pairs) + "\n")
                row += 1


def _texts(values: NDArray[Any], *, missing: str) -> list[str]:
    """Return the shortest texts that read back as the same float64; whole numbers without a point."""
    if values.dtype.kind in "biu":
        return list(map(str, values.astype(np.int64).tolist()))
    numbers = values.astype(np.float64) + 0.0  # -0 becomes 0
    with np.errstate(invalid="ignore"):
        # From 1e16 on, repr has an exponent.
        whole = bool((np.abs(numbers) < 1e15).all()) and bool((numbers == np.rint(numbers)).all())
    if whole:
        return list(map(str, numbers.astype(np.int64).tolist()))
    texts = [repr(number).removesuffix(".0") for number in numbers.tolist()]
    for place in np.flatnonzero(np.isnan(numbers)).tolist():
        texts[place] = missing
    return texts


# ---- ARFF and Mulan's XML


def _write_arff(table: _Table, file: Path) -> None:
    _distinct_names(table, "ARFF")
    d = len(table.feature_names)
    values = [_declared(table, feature) for feature in range(d)]
    with _text(table, file) as out:
        out.write(f"@relation {_quoted(table.relation)}\n\n")
        for name, declared in zip(table.feature_names, values, strict=True):
            kind = "numeric" if declared is None else "{" + ",".join(map(_quoted, declared)) + "}"
            out.write(f"@attribute {_quoted(name)} {kind}\n")
        for name in table.label_names:
            out.write(f"@attribute {_quoted(name)} {{0,1}}\n")
        out.write("\n@data\n")
        quoted = [None if declared is None else list(map(_quoted, declared)) for declared in values]
        rows = _dense_arff_rows if isinstance(table.blocks.first, np.ndarray) else _sparse_arff_rows
        for X, Y in _slices(table):
            out.writelines(rows(X, Y, quoted))


def _declared(table: _Table, feature: int) -> Sequence[str] | None:
    if feature in table.categories:
        return table.categories[feature]
    return ("0", "1") if table.kinds[feature] == "binary" else None


def _dense_arff_rows(X: Any, Y: csr_array, values: Sequence[Sequence[str] | None]) -> Iterator[str]:
    columns = [_column_texts(X[:, feature], declared) for feature, declared in enumerate(values)]
    labels = np.array(["0", "1", "?"])[Y.toarray()]
    columns.extend(labels.T.tolist())
    return (",".join(row) + "\n" for row in zip(*columns, strict=True))


def _column_texts(column: NDArray[Any], declared: Sequence[str] | None) -> list[str]:
    if declared is None:
        return _texts(column, missing="?")
    missing = np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), dtype=bool)
    codes = np.where(missing, len(declared), column).astype(np.int64)
    texts = [*declared, "?"]
    return [texts[code] for code in codes.tolist()]


def _sparse_arff_rows(X: Any, Y: csr_array, values: Sequence[Sequence[str] | None]) -> Iterator[str]:
    d = X.shape[1]
    texts = _texts(X.data, missing="?")
    is_nominal = np.array([declared is not None for declared in values], dtype=bool)
    for place in np.flatnonzero(is_nominal[X.indices]).tolist():
        declared = values[int(X.indices[place])]
        if texts[place] != "?" and declared is not None:
            texts[place] = declared[int(X.data[place])]
    for row in range(X.shape[0]):
        start, stop = int(X.indptr[row]), int(X.indptr[row + 1])
        pairs = [f"{i} {t}" for i, t in zip(X.indices[start:stop].tolist(), texts[start:stop], strict=True)]
        first, last = int(Y.indptr[row]), int(Y.indptr[row + 1])
        pairs += [
            f"{d + label} {1 if value == 1 else '?'}"
            for label, value in zip(Y.indices[first:last].tolist(), Y.data[first:last].tolist(), strict=True)
        ]
        yield "{" + ",".join(pairs) + "}\n"


def _quoted(text: str) -> str:
    """Return a name or nominal value in ARFF, quoted if it has special characters."""
    if text and set(text) <= _PLAIN_NAME:
        return text
    return "'" + "".join(_ESCAPED.get(letter, letter) for letter in text) + "'"


def _write_labels_xml(file: Path, label_names: Sequence[str]) -> None:
    lines = [f"<label name={quoteattr(name)}></label>\n" for name in label_names]
    file.write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n'
        + "".join(lines)
        + "</labels>\n",
        encoding="utf-8",
    )


def _distinct_names(table: _Table, what: str) -> None:
    if twice := repeated_name([*table.feature_names, *table.label_names]):
        raise DataError(
            f"two columns have the same name, which {what} cannot hold",
            column=twice,
            cure="write .npz instead, or rename one in the source files",
        )


# ---- CSV and Parquet


def _write_csv(table: _Table, file: Path) -> None:
    require_extra("pyarrow", f"{file}: CSV")
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    _distinct_names(table, "CSV")
    for feature, texts in table.categories.items():
        missing = [text for text in texts if is_missing(text)]
        if missing:
            raise DataError(
                "this category would be a missing value in CSV",
                column=table.feature_names[feature],
                value=missing[0],
                cure="write .npz, .parquet or .arff instead",
            )
    # A float32 is written with the digits of the float64 that it is read as.
    dtype = table.blocks.first.dtype if table.blocks.first.dtype.kind in "iu" else np.dtype(np.float64)
    schema = _arrow_schema(table, dtype, pa.string())
    step = max(1, _GROUP_BYTES // (8 * len(schema)))
    with _binary(table, file) as out, arrow_csv.CSVWriter(out, schema) as writer:
        for X, Y in table.blocks:
            for start in range(0, X.shape[0], step):
                rows = slice(start, start + step)
                writer.write_batch(_record_batch(X[rows].astype(dtype), Y[rows], table, schema))


def _arrow_schema(table: _Table, dtype: np.dtype[Any], categorical: Any, **options: Any) -> Any:
    import pyarrow as pa

    numeric = pa.from_numpy_dtype(dtype)
    fields = [
        pa.field(name, categorical if feature in table.categories else numeric)
        for feature, name in enumerate(table.feature_names)
    ]
    return pa.schema([*fields, *(pa.field(name, pa.int8()) for name in table.label_names)], **options)


def _write_parquet(table: _Table, file: Path) -> None:
    require_extra("pyarrow", f"{file}: Parquet")
    import pyarrow as pa
    from pyarrow import parquet

    _distinct_names(table, "Parquet")
    stored = {
        "labels": list(table.label_names),
        "categories": {table.feature_names[f]: list(v) for f, v in table.categories.items()},
    }
    dictionary = pa.dictionary(pa.int32(), pa.string())
    schema = _arrow_schema(table, table.blocks.first.dtype, dictionary, metadata={"mlfs": json.dumps(stored)})
    width = len(schema)
    group_rows = max(1, _GROUP_BYTES // (width * max(table.blocks.first.dtype.itemsize, 4)))
    with parquet.ParquetWriter(file, schema) as writer:
        waiting: list[Any] = []
        rows = 0
        for X, Y in table.blocks:
            start = 0
            while start < X.shape[0]:
                stop = min(X.shape[0], start + group_rows - rows)
                waiting.append(_record_batch(X[start:stop], Y[start:stop], table, schema))
                rows += stop - start
                start = stop
                if rows == group_rows:
                    writer.write_table(pa.Table.from_batches(waiting, schema), row_group_size=rows)
                    waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema), row_group_size=rows)


def _record_batch(X: Matrix, Y: csr_array, table: _Table, schema: Any) -> Any:
    import pyarrow as pa

    dense = X if isinstance(X, np.ndarray) else X.toarray()
    labels = Y.toarray()
    arrays = []
    for feature in range(dense.shape[1]):
        column = dense[:, feature]
        missing = np.isnan(column) if column.dtype.kind == "f" else None
        if feature in table.categories:
            codes = np.where(missing, 0, column) if missing is not None else column
            texts = pa.DictionaryArray.from_arrays(
                pa.array(codes.astype(np.int32), mask=missing),
                pa.array(list(table.categories[feature]), pa.string()),
            )
            arrays.append(texts.cast(schema.field(feature).type))
        else:
            arrays.append(pa.array(column, mask=missing))
    arrays += [pa.array(labels[:, label], mask=labels[:, label] == -1) for label in range(labels.shape[1])]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_WRITERS: dict[str, Callable[[_Table, Path], None]] = {
    ".npz": _write_npz,
    ".h5ad": _write_h5ad,
    ".csv": _write_csv,
    ".svm": _write_svmlight,
    ".svmlight": _write_svmlight,
    ".libsvm": _write_svmlight,
    ".parquet": _write_parquet,
    ".pq": _write_parquet,
    ".arff": _write_arff,
}
_TEXTS = (".csv", ".svm", ".svmlight", ".libsvm", ".arff")
