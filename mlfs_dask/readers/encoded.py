"""Elements of an HDF5 file or a Zarr group: matrices, texts, and columns of data frames in AnnData's encoding.

h5py and zarr name things alike, so one code serves both; the anndata library is not needed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.files.limits import require_memory
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.readers.classes import ClassColumn, text_of_number
from mlfs_dask.readers.label_values import bad_label, numbers_of
from mlfs_dask.readers.matrix import (
    CsrRows,
    DenseRows,
    Rows,
    Sliceable,
    array_rows,
    check_dataset,
    damage_in,
    flat_rows,
    no_matrix,
    open_hdf5,
    rows_of_columns,
    unpacked_array,
    whole,
)

_SPARSE = ("csr_matrix", "csc_matrix")


_SCAN_ROWS = 1 << 20


@contextlib.contextmanager
def open_root(path: str, spec: FileSpec) -> Iterator[Any]:
    """The root of a Zarr folder (an array or a group) or of an HDF5 file."""
    if path.rstrip("/").lower().endswith(".zarr") or Path(path).is_dir():
        from mlfs_dask.readers.zarr_nodes import open_node  # which HDF5 does not need

        root = open_node(path, spec)
        with damage_in(path, "the store"):
            yield root
        return
    with open_hdf5(path, spec.storage_options) as root:
        yield root


def encoding_of(node: Any) -> str:
    """`encoding-type` of a node, "" where it has none."""
    kind = node.attrs.get("encoding-type", "")
    return kind.decode() if isinstance(kind, bytes) else str(kind)


def is_array(node: Any) -> bool:
    """Return True if a node is an array (h5py Dataset, zarr Array), not a group."""
    return hasattr(node, "dtype")


def is_dataframe(node: Any) -> bool:
    return encoding_of(node) == "dataframe"


def rows_of(node: Any, *, file: str, what: str) -> Rows:
    """Return the rows of a matrix: a dense array, `csr_matrix`, or `csc_matrix` (held in memory).

    Raises
    ------
    DataError
        It is something else, or its parts do not belong together.
    """
    if is_array(node):
        return dense_rows(node, file=file, what=what)
    kind = encoding_of(node)
    if kind in _SPARSE:
        shape = tuple(int(size) for size in node.attrs["shape"])
        data, indices = (check_dataset(node[name], file=file) for name in ("data", "indices"))
        if kind == "csr_matrix":
            indptr = check_dataset(node["indptr"], file=file)
            # Of so many rows nothing could be said, although their offsets are read some at a time.
            require_memory(f"{file}: all of {indptr.name}", int(indptr.shape[0]) * int(indptr.dtype.itemsize))
            data, indices, indptr = (_direct(each, file=file) for each in (data, indices, indptr))
            return CsrRows(data, indices, indptr, (shape[0], shape[1]), file=file)
        return rows_of_columns(data, indices, whole(node["indptr"], file=file), (shape[0], shape[1]), file=file)
    raise DataError(
        f"{what} is encoded as {kind or 'a group without encoding-type'}; an array, csr_matrix or csc_matrix "
        "was expected",
        file=file,
        cure="name another element with --key x=NAME or --key y=NAME",
    )


def dense_rows(array: Any, *, file: str, what: str) -> Rows:
    """Return the rows of an h5py or zarr array; one dimension counts as one column."""
    chunks = check_dataset(array, file=file).chunks
    whole = getattr(array, "shards", None) or chunks
    decode = _decoder(array)
    if len(array.shape) == 1:
        return flat_rows(decode(array), (int(array.shape[0]), 1), step=int(whole[0]) if whole else None)
    if len(array.shape) != 2:
        raise no_matrix(tuple(array.shape), what, file)
    direct = _direct(array, file=file)
    if len(direct.shape) == 1:
        return flat_rows(decode(direct), tuple(array.shape))
    return array_rows(decode(direct), chunks=chunks, step=int(whole[0]) if whole else None)


def _direct(array: Any, *, file: str) -> Any:
    """Return an array to be read without h5py or zarr-python, if it is local and of a plain form, or as it is."""
    if not hasattr(array, "metadata"):
        return unpacked_array(array, file=file)
    from mlfs_dask.readers.zarr_nodes import direct_chunks  # loads Zarr

    return direct_chunks(array)


class _Decoded:
    """An array whose values stand for others: some are missing, numbers are scaled and shifted."""

    def __init__(self, marks: Sequence[float], scale: float, offset: float, unsigned: bool, array: Sliceable) -> None:
        stored = np.dtype(array.dtype)
        self._array, self._scale, self._offset = array, scale, offset
        self._stored = np.dtype(f"{stored.byteorder}u{stored.itemsize}") if unsigned else stored
        self._marks = np.array(marks).astype(stored if stored.kind == "f" else None)
        self.shape = array.shape
        self.dtype = np.result_type(stored, np.float32) if (scale, offset) == (1, 0) else np.dtype(np.float64)

    def __getitem__(self, key: Any, /) -> NDArray[Any]:
        stored = np.asarray(self._array[key])
        values = stored.view(self._stored).astype(self.dtype) * self.dtype.type(self._scale)
        values += self.dtype.type(self._offset)
        values[np.isin(stored, self._marks)] = np.nan
        return values

    def close(self) -> None:
        getattr(self._array, "close", lambda: None)()


def _decoder(array: Any) -> Callable[[Any], Any]:
    """Return the decoding of stored values by the conventions of CF, as in xarray (NUG for `_Unsigned`)."""
    attributes = array.attrs
    marks = [attributes[name] for name in ("_FillValue", "missing_value") if name in attributes]
    # In version 2 of Zarr xarray has the missing value as the fill value of the array.
    if "_ARRAY_DIMENSIONS" in attributes and array.metadata.zarr_format == 2 and array.fill_value is not None:
        marks.append(array.fill_value)
    numbers = [number for mark in marks for number in np.ravel(_mark(mark)).tolist() if number == number]
    scale, offset = (
        float(np.ravel(attributes.get(name, n))[0]) for name, n in (("scale_factor", 1), ("add_offset", 0))
    )
    unsigned = array.dtype.kind == "i" and str(attributes.get("_Unsigned", "")).lower() == "true"
    if array.dtype.kind not in "iuf" or not (numbers or unsigned or (scale, offset) != (1, 0)):
        return lambda stored: stored
    return functools.partial(_Decoded, numbers, scale, offset, unsigned)


def _mark(mark: Any) -> Any:
    """Return a value for missing ones; xarray writes that of floats into Zarr 3 as the base64 of its bytes."""
    return struct.unpack("<d", base64.b64decode(mark)) if isinstance(mark, str) else mark


def coordinate_of(root: Any, array: Any, *, file: str) -> tuple[str, ...]:
    """Return the texts of the coordinate of the second dimension of an array, () where it has none."""
    if not is_array(array) or len(array.shape) != 2:
        return ()
    if hasattr(array, "dims"):  # of HDF5; netCDF has scales without values, too
        scales = [
            scale for scale in array.dims[1].values() if b"not a netCDF variable" not in scale.attrs.get("NAME", b"")
        ]
    else:
        names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ()
        scales = [root[name] for name in names[1:] if not is_array(root) and name in root]
    return texts_of(scales[0], file=file) if scales and scales[0].shape == array.shape[1:] else ()


def texts_of(node: Any, *, file: str) -> tuple[str, ...]:
    """Return the texts of a string array, of a categorical, or of a nullable one; numbers are written out."""
    if not is_array(node):
        if "codes" in node:
            categories = texts_of(node["categories"], file=file)
            return tuple(categories[code] if code >= 0 else "" for code in whole(node["codes"], file=file))
        node = node["values"]
    return tuple(str(value) for value in whole(node, file=file).ravel())


def columns_of(frame: Any) -> tuple[str, ...]:
    """Return the column names of a data frame, in order."""
    names = frame.attrs.get("column-order", ())
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)


class _Categorical(dict[str, Any]):
    """Codes and categories of a column, as a group of today's encoding has them."""

    attrs: ClassVar[dict[str, str]] = {"encoding-type": "categorical"}


def column_of(frame: Any, name: str) -> Any:
    """Return the node of a column of a data frame.

    The codes of a categorical of anndata 0.7 are an array, whose categories lie in `__categories` of the frame.
    """
    categories = f"__categories/{name}"
    if is_array(frame[name]) and categories in frame:
        return _Categorical(codes=frame[name], categories=frame[categories])
    return frame[name]


def index_of(frame: Any, *, file: str) -> tuple[str, ...] | None:
    """Return the texts of a data frame's index."""
    name = frame.attrs.get("_index", "_index")
    name = name.decode() if isinstance(name, bytes) else str(name)
    return texts_of(frame[name], file=file) if name in frame else None


def column_rows(frame: Any, names: Sequence[str], labels: LabelSpec, *, file: str) -> tuple[Rows, tuple[str, ...]]:
    """Return labels from some columns of a data frame, as float64 with NaN where missing, and their names.

    A column of numbers, of true and false, or of categories that say so is one label, and has the column's name. Any
    other categorical column is a label for each of its values, COLUMN=VALUE.

    Parameters
    ----------
    frame : group
        Of a data frame.
    names : sequence of str
        Its columns.
    labels : LabelSpec
        What their values mean.
    file : str
        For messages.
    """
    columns = [_Column(column_of(frame, name), name, labels, file=file) for name in names]
    label_names = tuple(label for column in columns for label in column.label_names)

    def read(start: int, stop: int) -> NDArray[np.float64]:
        return np.column_stack([column.take(start, stop) for column in columns])

    shape = (columns[0].length if columns else 0, len(label_names))
    return DenseRows(read, shape, np.dtype(np.float64)), label_names


class _Column:
    """One column: an array, a categorical, or values with a mask."""

    def __init__(self, node: Any, name: str, labels: LabelSpec, *, file: str) -> None:
        meaning = labels.values
        self._name, self._meaning, self._file = name, meaning, file
        self._mask: Any = None
        self._table: NDArray[np.float64] | None = None
        self.label_names: tuple[str, ...] = (name,)
        if not is_array(node):
            kind = encoding_of(node)
            if kind == "categorical":
                categories = texts_of(node["categories"], file=file)
                node = node["codes"]
                numbers = [meaning.of_text(text) for text in categories]
                if labels.separator is None and None not in numbers:
                    missing = meaning.of_text("NA")
                    self._table = np.array([*numbers, missing], np.float64)[:, None]
                elif not meaning.is_default and not labels.classes:
                    bad_label(categories[numbers.index(None)], 0, names=[name], file=file, meaning=meaning)
                elif labels.separator is None and len(categories) >= node.shape[0]:
                    raise _no_label(file, name, "as many values as rows")
                else:
                    found = ClassColumn.of(name, set(categories), labels.separator, meaning, file=file)
                    if labels.separator is None:  # in the order of the categories
                        rank = {
                            each: place for place, text in enumerate(categories) for each in found.tags.get(text, ())
                        }
                        found = replace(found, classes=tuple(sorted(found.classes, key=rank.__getitem__)))
                    width = len(found.classes)
                    require_memory(f"{file}: {width:,} labels of column {name}", 8 * width * (len(categories) + 1))
                    codes = np.array([*(found.codes[text] for text in categories), np.nan])
                    self.label_names = found.label_names
                    self._table = numbers_of(found.labels(codes).toarray())
            elif "values" in node and "mask" in node:
                self._mask = check_dataset(node["mask"], file=file)
                node = node["values"]
            else:
                raise _no_label(file, name, kind)
        if node.dtype.kind not in "buif":
            raise _no_label(file, name, "texts")
        self._values = check_dataset(node, file=file)
        self.length = int(node.shape[0])
        self._classes = self._found_classes(labels) if labels.classes and self._table is None else None
        if self._classes is not None:
            self.label_names = self._classes.label_names

    def _found_classes(self, labels: LabelSpec) -> ClassColumn | None:
        """Return the classes of a column of numbers, from one pass over it; None where it is one label."""
        found: set[float] = set()
        for start in range(0, self.length, _SCAN_ROWS):
            values = np.asarray(self._values[start : start + _SCAN_ROWS]).astype(np.float64)
            found.update(np.unique(values[~np.isnan(values)]).tolist())
        texts = map(text_of_number, sorted(found))
        column = ClassColumn.of(self._name, texts, None, labels.values, file=self._file)
        return None if column.is_one_label else column

    def take(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return shape (rows, labels)."""
        values = np.asarray(self._values[start:stop])
        if self._table is not None:
            coded: NDArray[np.float64] = self._table[values]  # the code of what is missing is -1
            return coded
        numbers = values.astype(np.float64)
        if self._mask is not None:
            numbers[np.asarray(self._mask[start:stop], dtype=bool)] = np.nan
        if self._classes is not None:
            return numbers_of(self._classes.labels(self._classes.codes_of_numbers(numbers)).toarray())

        def refuse(place: int) -> NoReturn:
            bad_label(
                numbers[place], 0, names=[self._name], file=self._file, row=start + place + 1, meaning=self._meaning
            )

        return self._meaning.of_numbers(numbers, refuse)[:, None]


def _no_label(file: str, name: str, kind: str) -> DataError:
    return DataError(
        f"a column of {kind} cannot be a label",
        file=file,
        column=name,
        cure="labels are columns of 0 and 1, of true and false, or categorical ones: obs[NAME].astype('category')",
    )
