"""MATLAB files: version 5 (up to -v7) and 7.3 (HDF5).

Variables are found by the names in use: data/target, dataset/class, X/Y, train_data/train_target with
test_data/test_target, data_train/label_train..., in any capitals; train rows come before test rows. X may be
(n, d) or (d, n) and Y (n, q) or (q, n): whichever makes n agree, X as (n, d) if both do.

A variable of version 5 is held in memory (it has at most 4 GiB by the format), one of version 7.3 is sliced where it
lies. `scipy.io.loadmat` does not read the former, because it crashes over an element whose type is no number's.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError
from mlfs_dask.files.limits import require_memory
from mlfs_dask.readers.base import ARRAY_KEYS, DEFAULT_SPEC, FileSpec, Format, begins_with, damaged
from mlfs_dask.readers.matrix import (
    CsrRows,
    InMemoryCsrRows,
    MatrixReader,
    Pair,
    Rows,
    array_rows,
    check_dataset,
    checked_csc,
    damage_in,
    exactly,
    fortran_rows,
    hdf5_in,
    matrix_reader,
    names_in,
    open_random,
    require_held,
    rows_of_columns,
    whole,
)
from mlfs_dask.redaction import redact

logger = logging.getLogger(__name__)

X_NAMES = ("x", "data", "dataset", "features", "fea", "feature", "data_all", "inputs")
Y_NAMES = ("y", "target", "class", "labels", "label", "targets", "gnd", "outputs")
_TRAIN_TEST = (
    ("train_data", "train_target"),
    ("data_train", "label_train"),
    ("data_train", "labels_train"),
    ("data_train", "target_train"),
    ("train_data", "train_label"),
    ("train_data", "train_labels"),
    ("traindata", "traintarget"),
    ("x_train", "y_train"),
    ("xtrain", "ytrain"),
    ("train_x", "train_y"),
    ("trainx", "trainy"),
)
_ORIENTATIONS = ("rows", "columns")

# MAT-file level 5: data types by their number, and what the flags of a variable say.
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_CLASSES = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 16: "function", 17: "opaque"}
_NUMERIC_CLASSES = range(6, 16)
_CELLS, _STRUCTURE, _CHARACTERS, _SPARSE_CLASS = 1, 2, 4, 5
_COMPLEX_FLAG = 0x0800
#: Of flags, dimensions and name, which stand before the values: 8, 8 and at most 63 bytes in a file of MATLAB's.
_MAX_HEADER_BYTES = 1024
#: Of a text as an object of Python, and of what it is read from.
_CELL_BYTES = 128
_NUMERIC_7 = {"double", "single", "logical"} | {f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)}


def open_mat(path: str, spec: FileSpec = DEFAULT_SPEC) -> MatrixReader:
    """Open a MATLAB file of version 5 or 7.3.

    Parameters
    ----------
    path : str
    spec : FileSpec
        `keys` may hold ``x`` and ``y``: names of variables, or of fields of structures (``data/X``), several of them
        (stacked) separated by commas;
        ``orientation``: ``rows`` if each row of Y is an instance, ``columns`` if each column is (that is needed only
        where Y is square and nothing else tells); and ``names`` and ``label_names``: cell arrays of texts or ``@FILE``,
        by default `feature_names` and `label_names`.

    Raises
    ------
    DataError
        No such variables, shapes that do not match, cells or structures, a square Y.
    UsageError
        Version 7.3 without h5py.
    """
    orientation = spec.keys.get("orientation")
    if orientation not in (None, *_ORIENTATIONS):
        raise DataError("orientation is rows or columns", file=path, value=orientation, cure="--key orientation=rows")
    with _open_variables(path, spec) as variables:
        names = _choose(variables, spec, path)
        transposed = _orient(variables, names, orientation, path)
        texts = names_in(spec, file=path, texts=lambda name: variables[name].texts() if name in variables else None)
    opener = functools.partial(_open_pairs, path, spec, tuple(names), transposed)
    return matrix_reader(path, opener, spec, **texts)


@dataclass(frozen=True)
class _Variable:
    """A variable: its shape in MATLAB's sense, how its rows or its columns are had as `Rows`, and its texts if any.

    `fields` gives those of a structure.
    """

    shape: tuple[int, ...]
    problem: str | None
    rows: Callable[[bool], Rows]
    texts: Callable[[], list[str] | None] = lambda: None
    fields: Callable[[], Mapping[str, _Variable]] = dict


@contextlib.contextmanager
def _open_variables(path: str, spec: FileSpec) -> Iterator[Mapping[str, _Variable]]:
    with open_random(path, spec.storage_options) as file:
        start = file.read(128)
        file.seek(0)
        if start[124:128] in (b"\x00\x01IM", b"\x01\x00MI"):
            with damage_in(path, "the file"):
                yield _with_fields(_version_5(file, path, ">" if start[126:128] == b"MI" else "<"), spec)
        elif b"\x89HDF\r\n\x1a\n" in (start[:8], _at(file, 512, 8)):
            with hdf5_in(file, path, "the file is damaged or cut off") as hdf5:
                yield _with_fields(_version_7(hdf5, hdf5, path), spec)
        else:
            raise DataError(
                "it is no MATLAB file of version 5 or 7.3",
                file=path,
                cure="save it in MATLAB with -v7.3 (or -v6, -v7)",
            )


def _with_fields(variables: dict[str, _Variable], spec: FileSpec) -> Mapping[str, _Variable]:
    """Return the variables, and the fields of structures that a key names, as `data/X`."""
    for name in (name for value in spec.keys.values() for name in value.split(",") if not value.startswith("@")):
        *outer, field = name.split("/")
        here: Mapping[str, _Variable] = variables
        for part in outer:
            here = here[part].fields() if part in here else {}
        if outer and field in here:
            variables[name] = here[field]
    return variables


def _at(file: BinaryIO, position: int, count: int) -> bytes:
    file.seek(position)
    piece = file.read(count)
    file.seek(0)
    return piece


@contextlib.contextmanager
def _open_pairs(
    path: str,
    spec: FileSpec,
    names: tuple[tuple[str, str], ...],
    transposed: tuple[bool, bool],
) -> Iterator[list[Pair]]:
    with _open_variables(path, spec) as variables:
        yield [(variables[x].rows(transposed[0]), variables[y].rows(transposed[1])) for x, y in names]


def _choose(variables: Mapping[str, _Variable], spec: FileSpec, path: str) -> list[tuple[str, str]]:
    """Return the names of X and Y, and of those that follow them."""
    x, y = (spec.keys.get(key, "") for key in ("x", "y"))
    keys: list[tuple[str, str]] = []
    lower = {name.lower(): name for name in variables}
    if x or y:
        xs, ys = x.split(",") if x else [], y.split(",") if y else []
        if not xs:
            xs = [lower[name] for name in X_NAMES if name in lower][:1]
        if not ys:
            ys = [lower[name] for name in Y_NAMES if name in lower][:1]
        missing = [name for name in (*xs, *ys) if name not in variables]
        if missing or len(xs) != len(ys) or not xs:
            raise _no_variables(path, variables, f"no variable {missing[0]!r}" if missing else "unequal keys")
        return list(zip(xs, ys, strict=True))
    for pair in itertools.chain(_TRAIN_TEST, itertools.product(X_NAMES, Y_NAMES)):
        if all(name in lower for name in pair):
            keys.append((lower[pair[0]], lower[pair[1]]))
            tested = tuple(name.replace("train", "test") for name in pair)
            if tested != pair and all(name in lower for name in tested):
                keys.append((lower[tested[0]], lower[tested[1]]))
                first, then = (f"{x} ({'x'.join(map(str, variables[x].shape))})" for x, _ in keys)
                logger.warning("%s: the rows of %s come first, behind them those of %s", redact(path), first, then)
            break
    if not keys:
        raise _no_variables(path, variables, "no variables with the names of data and labels")
    return keys


def _no_variables(path: str, variables: Mapping[str, _Variable], problem: str) -> DataError:
    every = {name: variable.fields() or {"": variable} for name, variable in variables.items()}
    there = ", ".join(
        f"{name}{'/' * bool(field)}{field} {'x'.join(map(str, variable.shape))}"
        for name, fields in every.items()
        for field, variable in fields.items()
    )
    return DataError(
        f"{problem}; there are {there or 'none'}",
        file=path,
        cure="name them: --key x=NAME --key y=NAME (several, separated by commas, are stacked)",
    )


def _orient(
    variables: Mapping[str, _Variable],
    names: Sequence[tuple[str, str]],
    orientation: str | None,
    path: str,
) -> tuple[bool, bool]:
    """Return True if X and Y hold instances as columns, so that n agrees in all pairs."""
    for name in itertools.chain.from_iterable(names):
        variable = variables[name]
        if variable.problem is None and len(variable.shape) != 2:
            problem = f"its shape is {'x'.join(map(str, variable.shape))}, rows and columns were expected"
        else:
            problem = variable.problem or ""
        if problem:
            raise DataError(
                f"variable {name}: {problem}",
                file=path,
                cure="save X and Y as numeric matrices, or name others with --key x=NAME --key y=NAME, fields of a "
                "structure as --key x=STRUCTURE/FIELD",
            )
    choices = [
        (x_turned, y_turned)
        for x_turned in (False, True)
        for y_turned in (False, True)
        if orientation is None or y_turned == (orientation == "columns")
        if all(variables[x].shape[x_turned] == variables[y].shape[y_turned] for x, y in names)
    ]
    x, y = names[0]
    if not choices:
        raise DataError(
            f"{x} is {'x'.join(map(str, variables[x].shape))} and {y} "
            f"{'x'.join(map(str, variables[y].shape))}: no number of rows agrees"
            + (f" with --key orientation={orientation}" if orientation else ""),
            file=path,
            cure="check that they belong together, or name others with --key x=NAME --key y=NAME",
        )
    # (n, d) is what everybody writes; (d, n) is taken only where nothing else fits.
    upright = [choice for choice in choices if not choice[0]]
    orientations = upright or choices
    if len(orientations) > 1:
        raise DataError(
            f"variable {y} is square ({variables[y].shape[0]}x{variables[y].shape[1]}): its rows or its "
            "columns may be the instances",
            file=path,
            cure="--key orientation=rows if each row is an instance, --key orientation=columns otherwise",
        )
    return orientations[0]


# ---- version 7.3: HDF5, where MATLAB's (n, d) is a data set of shape (d, n)


def _version_7(hdf5: Any, group: Any, path: str) -> dict[str, _Variable]:
    variables = {}
    for name, item in group.items():
        if name.startswith("#"):
            continue
        if "MATLAB_sparse" in item.attrs:
            variables[name] = _sparse_7(item, path)
        elif (kind := _class_7(item)) in _NUMERIC_7:
            variables[name] = _Variable(tuple(item.shape[::-1]), None, functools.partial(_dense_7, item, path))
        else:
            shape = tuple(getattr(item, "shape", ()))
            texts = functools.partial(_texts_7, hdf5, item, path) if kind == "cell" else lambda: None
            is_group = not hasattr(item, "shape")
            fields = functools.partial(_version_7, hdf5, item, path) if is_group else dict
            variables[name] = _Variable(shape, f"it is a {kind}, not a numeric matrix", _no_rows, texts, fields)
    return variables


def _class_7(item: Any) -> str:
    """Return MATLAB's class of a variable; files that MATLAB did not write have none, and their type says it."""
    if "MATLAB_empty" in item.attrs:
        return "variable without values"
    kind = item.attrs.get("MATLAB_class")
    if kind is not None:
        return kind.decode() if isinstance(kind, bytes) else str(kind)
    numeric = hasattr(item, "dtype") and item.dtype.kind in "buif"
    return "double" if numeric else "structure"


def _dense_7(item: Any, path: str, turned: bool) -> Rows:
    check_dataset(item, file=path)
    # Instances are rows of MATLAB's matrix, that is, columns of the data set.
    return array_rows(item, turned=not turned, chunks=item.chunks)


def _texts_7(hdf5: Any, cells: Any, path: str) -> list[str]:
    """Return the texts of a cell array: references to arrays of 16-bit characters."""
    require_memory(f"{path}: the cells of {cells.name}", _CELL_BYTES * math.prod(cells.shape))
    arrays = [hdf5[reference] for reference in check_dataset(cells, file=path)[()].T.ravel()]
    return [
        "" if "MATLAB_empty" in array.attrs else whole(array, file=path).astype("<u2").tobytes().decode("utf-16-le")
        for array in arrays
    ]


def _sparse_7(item: Any, path: str) -> _Variable:
    n_rows = int(item.attrs["MATLAB_sparse"])
    indptr = whole(item["jc"], file=path).astype(np.int64)
    shape = (n_rows, len(indptr) - 1)
    empty: NDArray[np.float64] = np.empty(0)
    data = check_dataset(item["data"], file=path) if "data" in item else empty
    indices = check_dataset(item["ir"], file=path) if "ir" in item else empty.astype(np.int64)
    return _Variable(shape, None, functools.partial(_sparse_rows, data, indices, indptr, shape, path))


def _sparse_rows(
    data: Any, indices: Any, indptr: NDArray[Any], shape: tuple[int, ...], path: str, turned: bool
) -> Rows:
    n, width = shape
    if turned:
        return CsrRows(data, indices, indptr, (width, n), file=path)
    return rows_of_columns(data, indices, indptr, (n, width), file=path)


def _no_rows(turned: bool) -> Rows:
    raise AssertionError("a variable with a problem is never read")


# ---- version 5: a sequence of elements, each (type, bytes, data); a compressed one is a zlib stream of one


def _version_5(file: BinaryIO, path: str, order: str) -> dict[str, _Variable]:
    variables: dict[str, _Variable] = {}
    end = file.seek(0, 2)
    position = 128
    while position + 8 <= end:
        file.seek(position)
        kind, size = struct.unpack(order + "II", file.read(8))
        if position + 8 + size > end:
            raise damaged(f"the file is cut off: {position + 8 + size - end} bytes are missing", path)
        if kind in (_MATRIX, _COMPRESSED):
            content = functools.partial(_content, file, path, order, position)
            name, variable = _variable_5(*content(_MAX_HEADER_BYTES), content, order, path)
            if name:
                variables[name] = variable
        position += 8 + size
    return variables


def _content(
    file: BinaryIO, path: str, order: str, position: int, most: int | None = None
) -> tuple[int, bytes | bytearray]:
    """Return the bytes of a variable behind its tag: how many, and the first ones or all of them.

    Raises
    ------
    DataError
        They are damaged, or more are packed than it says.
    DoesNotFitError
        They take more memory than there is.
    """
    file.seek(position)
    kind, size = struct.unpack(order + "II", file.read(8))
    read: Callable[[int], bytes] = file.read
    if kind == _COMPRESSED:
        read = _inflated(file.read, path)
        size = struct.unpack(order + "II", exactly(read, 8, file=path))[1]
    if most is None:
        require_held(path, size)
    content = exactly(read, size if most is None else min(size, most), file=path)
    if most is None and kind == _COMPRESSED and read(1):
        raise damaged("a variable unpacks to more than it says", path)
    return size, content


def _inflated(read: Callable[[int], bytes], path: str) -> Callable[[int], bytes]:
    stream = zlib.decompressobj()

    def inflate(count: int) -> bytes:
        while not stream.eof:
            source = stream.unconsumed_tail or read(1 << 16)
            try:
                piece = stream.decompress(source, count)
            except zlib.error as error:
                raise damaged(f"a compressed variable is damaged: {error}", path) from error
            if piece or not source:
                return piece
        return b""

    return inflate


def _elements(content: bytes | bytearray | memoryview, order: str, path: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and data of the elements in a content; a small one is 8 bytes with its data, others are padded to
    8.
    """
    at, view = 0, memoryview(content)
    while at + 8 <= len(view):
        kind, size = struct.unpack_from(order + "II", view, at)
        start, at = at + 8, at + 8 + size + -size % 8
        if kind >> 16:
            kind, size, start, at = kind & 0xFFFF, kind >> 16, start - 4, start
        if start + size > len(view):
            raise damaged(f"an element of {size:,} bytes is longer than its variable or its header", path)
        yield kind, view[start : start + size]


def _variable_5(
    size: int, head: Any, content: Callable[[], tuple[int, Any]], order: str, path: str
) -> tuple[str, _Variable]:
    """Return name and variable of so many bytes, of which `head` are the first."""
    (_, flags), (_, sizes), (_, text) = itertools.islice(_elements(head, order, path), 3)
    word = struct.unpack_from(order + "I", flags)[0]
    kind = word & 0xFF
    shape = tuple(np.frombuffer(sizes, order + "i4").tolist())
    name = bytes(text).decode("latin-1")
    is_numeric = kind in _NUMERIC_CLASSES
    if min(shape, default=0) < 0 or (is_numeric and math.prod(shape) > size):
        raise damaged(f"variable {name}: its shape cannot be", path, value=shape)

    def values() -> Iterator[tuple[int, memoryview]]:
        return itertools.islice(_elements(content()[1], order, path), 3, None)

    if not is_numeric and kind != _SPARSE_CLASS:
        problem = f"it is a {_CLASSES.get(kind, 'variable')}, not a numeric matrix"
        texts = functools.partial(_texts_5, values, shape, order, path) if kind == _CELLS else lambda: None
        one = kind == _STRUCTURE and math.prod(shape) == 1
        fields = functools.partial(_fields_5, values, order, path) if one else dict
        return name, _Variable(shape, problem, _no_rows, texts, fields)
    if word & _COMPLEX_FLAG:
        return name, _Variable(shape, "it holds complex numbers", _no_rows)
    if is_numeric:
        return name, _Variable(shape, None, functools.partial(_dense_5, values, shape, size, order, path))
    count = struct.unpack_from(order + "I", flags, 4)[0]
    return name, _Variable(shape, None, functools.partial(_sparse_5, values, shape, count, order, path))


def _array(element: tuple[int, memoryview], order: str) -> NDArray[Any]:
    return np.frombuffer(element[1], order + _TYPES[element[0]])


def _fields_5(values: Callable[[], Iterator[Any]], order: str, path: str) -> dict[str, _Variable]:
    """Return the fields of a structure, which are variables without names behind one another."""
    elements = values()
    (_, width), (_, text) = itertools.islice(elements, 2)
    require_memory(f"{path}: the names of the fields of a structure", _CELL_BYTES * len(text))
    step = struct.unpack_from(order + "I", width)[0]
    names = [bytes(text[at : at + step]).split(b"\0")[0].decode("latin-1") for at in range(0, len(text), step)]
    return {
        name: _variable_5(len(content), content, functools.partial(_whole, content), order, path)[1]
        for name, (_, content) in zip(names, elements, strict=False)
        if content
    }


def _whole(content: memoryview) -> tuple[int, memoryview]:
    return len(content), content


def _texts_5(values: Callable[[], Iterator[Any]], shape: tuple[int, ...], order: str, path: str) -> list[str]:
    """Return the texts of a cell array, each of which is a variable without a name."""
    require_memory(f"{path}: the cells of a variable", _CELL_BYTES * math.prod(shape))
    wide = "utf-16-" + ("be" if order == ">" else "le")
    texts = []
    for _, content in itertools.islice(values(), math.prod(shape)):
        kind, text = _CHARACTERS, (0, content)
        if content:
            (_, flags), _, _, text = itertools.islice(_elements(content, order, path), 4)
            kind = struct.unpack_from(order + "I", flags)[0] & 0xFF
        if kind != _CHARACTERS:
            raise DataError(
                f"a cell holds a {_CLASSES.get(kind, 'number')}, texts were expected",
                file=path,
                cure="name a cell array of texts",
            )
        texts.append(bytes(text[1]).decode({4: wide, 17: wide, 16: "utf-8"}.get(text[0], "latin-1")))
    return texts


def _dense_5(
    values: Callable[[], Iterator[Any]], shape: tuple[int, int], size: int, order: str, path: str, turned: bool
) -> Rows:
    def make() -> NDArray[Any]:
        flat = _array(next(values()), order)
        if len(flat) != math.prod(shape):
            raise damaged(f"a variable of {shape[0]:,} x {shape[1]:,} values holds {len(flat):,}", path)
        return flat

    return fortran_rows(make, shape, np.dtype(np.float64), turned=turned, opened_bytes=size)


def _sparse_5(
    values: Callable[[], Iterator[Any]], shape: tuple[int, int], count: int, order: str, path: str, turned: bool
) -> Rows:
    def make() -> csr_array:
        indices, starts, data = (_array(element, order) for element in itertools.islice(values(), 3))
        stored = int(starts[-1]) if len(starts) else 0
        # MATLAB reserves room (nzmax) that it need not use.
        columns = checked_csc(data[:stored], indices[:stored], starts.astype(np.int64), shape, file=path)
        return columns.T if turned else columns.tocsr()

    return InMemoryCsrRows(make, shape[::-1] if turned else shape, count, np.dtype(np.float64), file=path)


FORMATS = (
    Format(
        name="mat",
        title="MATLAB .mat, version 5 or 7.3",
        open=open_mat,
        suffixes=(".mat",),
        keys=(*ARRAY_KEYS, "orientation"),
        head=begins_with(b"MATLAB"),
        has_label_array=True,
    ),
)
