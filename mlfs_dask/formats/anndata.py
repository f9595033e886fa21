"""AnnData on disk, .h5ad and .zarr: X dense, CSR or CSC, labels from `obsm/labels` or columns of `obs`.

Read with h5py or zarr, rows at a time; the anndata library is not needed. Our own stores are AnnData too, and are read
as stores.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError, closest
from mlfs_dask.files.json_text import parse_categories
from mlfs_dask.readers.base import ARRAY_KEYS, DEFAULT_SPEC, FileSpec, Format, LabelSpec, Reader
from mlfs_dask.readers.encoded import (
    column_of,
    column_rows,
    columns_of,
    encoding_of,
    index_of,
    is_array,
    is_dataframe,
    open_root,
    rows_of,
    texts_of,
)
from mlfs_dask.readers.label_columns import find_column, find_label_columns, numbered_apart, repeated_name
from mlfs_dask.readers.label_values import DEFAULT_VALUES, MinusOne
from mlfs_dask.readers.matrix import (
    MatrixReader,
    Pair,
    Rows,
    array_rows,
    check_dataset,
    damage_in,
    matrix_reader,
    whole,
)
from mlfs_dask.readers.obs import ObsColumns

_LABELS = "obsm/labels"

#: Rows of the columns of `obs` that are read at a time.
_OBS_ROWS = 1 << 17


def open_anndata(
    path: str, spec: FileSpec = DEFAULT_SPEC, *, open_store: Callable[[str, FileSpec], Reader] | None = None
) -> Reader:
    """Open an .h5ad file or a .zarr folder that holds AnnData.

    Parameters
    ----------
    path : str
    spec : FileSpec
        `labels.columns` are columns of `obs`, of true and false or categorical (see `column_rows`). `keys` may hold
        ``x`` (default X; ``layers/NAME``, ``raw/X``, ``mod/NAME/X`` of MuData, whose rows `obs` of that modality
        describes), ``y`` (default obsm/labels; a matrix or a data frame), ``label_names`` (an array of texts; default
        the data frame's columns, uns/mlfs/label_names, or uns/label_names) and ``names`` (names of the features: an
        array of texts, a column of the `var` that describes X, or ``unique`` to number apart those of its index that
        stand twice).
    open_store : callable, optional
        Opens a store of this package, where it is to be read as one.

    Raises
    ------
    DataError
        Not AnnData, an element is missing or encoded in an unknown way.
    UsageError
        Labels named in a way that AnnData does not know; .h5ad without h5py.
    """
    labels = spec.labels
    if labels.xml is not None or labels.count is not None:
        raise UsageError(
            f"{path}: AnnData keeps labels apart from features, so --label-file and --n-labels have no meaning\n"
            "  cure: --key y=obsm/NAME, or --label-columns with columns of obs"
        )
    with _open_root(path, spec) as root, damage_in(path, "a name or a category"):
        if open_store is not None and "format_version" in root.attrs.get("mlfs", ()):
            return open_store(path, spec)
        _element(root, spec.keys.get("x", "X"), path)
        names = feature_names(root, spec, path)
        label_names = _label_names(root, spec, path)
        # Columns of a table are texts, too, and tell themselves what their values mean.
        meaning = DEFAULT_VALUES if _label_columns(root, spec, path) else None
        categories = _categories(root, path)
        # Stores and files of ours have unknown labels alone as -1.
        minus_one: MinusOne | None = "unknown" if "uns/mlfs" in root else None
    opener = functools.partial(_open_pair, path, spec)
    return matrix_reader(
        path,
        opener,
        spec,
        feature_names=names,
        label_names=label_names,
        categories=categories,
        minus_one=minus_one,
        meaning=meaning,
        without_labels=bool(spec.targets),
    )


@contextlib.contextmanager
def _open_root(path: str, spec: FileSpec) -> Iterator[Any]:
    with open_root(path, spec) as root:
        if is_array(root):
            raise DataError("it is one Zarr array, a group was expected", file=path, cure="check the path and --format")
        for frame in ("obs", "var"):
            if frame in root and is_array(root[frame]):
                raise DataError(
                    f"{frame} is one table, as anndata before 0.7 wrote it",
                    file=path,
                    cure="write the file again: anndata.read_h5ad(OLD).write_h5ad(NEW)",
                )
        yield root


def _frames(spec: FileSpec) -> tuple[str, str]:
    """Return the prefix of X's elements (``mod/NAME/`` in MuData), and the data frame of its columns.

    The latter is "" where there is none: columns of `obsm` have no names in `var`.
    """
    key = spec.keys.get("x", "X")
    group = "/".join(key.split("/", 2)[:2]) + "/" if key.startswith("mod/") else ""
    kind, _, _ = key.removeprefix(group).partition("/")
    return group, {"X": f"{group}var", "layers": f"{group}var", "raw": f"{group}raw/var"}.get(kind, "")


def _element(root: Any, key: str, path: str) -> Any:
    inside = not {".", ".."} & set(key.split("/"))
    if inside and key in root:
        return root[key]
    above, _, _ = key.rpartition("/")
    where = root[above] if inside and above and above in root else root
    there = ", ".join(f"{above}/{name}" if where is not root else name for name in where) or f"nothing in {above}"
    if "mod" in root and not key.startswith("mod/"):
        cure = f"name a matrix of one modality: --key x=mod/NAME/X (there are {', '.join(root['mod'])})"
    elif key == "X" or key.startswith("layers"):
        cure = "name the matrix with --key x=NAME"
    else:
        columns = ", ".join(columns_of(root["obs"])[:8]) if "obs" in root else ""
        cure = "name the labels with --key y=obsm/NAME, or columns of obs with --label-columns" + (
            f" (there are {columns})" if columns else ""
        )
    raise DataError(f"there is no {key}; there is {there}", file=path, cure=cure)


def feature_names(root: Any, spec: FileSpec, path: str) -> tuple[str, ...] | None:
    """Return the names of the features: the index of the frame that describes X, or what `names` of the keys says.

    Raises
    ------
    DataError
        If a name occurs twice, or the column of names does not exist.
    """
    _, frame = _frames(spec)
    key, columns = spec.keys.get("names"), tuple[str, ...]()
    if key is not None and "/" in key and key in root:
        names = texts_of(root[key], file=path)
    elif key is None and (not frame or frame not in root):
        return None
    elif not frame:
        raise DataError(
            "no data frame describes the columns of X, of which names=NAME would be a column",
            file=path,
            value=key,
            cure="leave names out, or name an array of the file: --key names=uns/NAME",
        )
    else:
        var = _element(root, frame, path)
        columns = columns_of(var)
        if key is not None and (key in columns or key != "unique"):
            found = find_column(columns, key, "column of names,", file=path)
            names = texts_of(column_of(var, columns[found]), file=path)
        else:
            names = index_of(var, file=path) or ()
            if key == "unique":
                return numbered_apart(names) or None
    twice = repeated_name(names)
    if twice is not None:
        others = [name for name in columns if name != key]
        raise DataError(
            "two features have the same name",
            file=path,
            column=twice,
            cure=(
                f"use another column of var as names: --key names=NAME ({', '.join(others[:8])}), or " if others else ""
            )
            + "number repeated names: --key names=unique",
        )
    return names or None


def _label_columns(root: Any, spec: FileSpec, path: str) -> tuple[Any, tuple[str, ...]] | None:
    """Return the data frame with the labels, and their columns, if there is one."""
    if spec.labels.columns is not None:
        frame = _element(root, _frames(spec)[0] + "obs", path)
        known = columns_of(frame)
        chosen = find_label_columns(known, spec.labels.columns, file=path)
        return frame, tuple(known[index] for index in sorted(chosen))
    node = _element(root, _labels_key(spec), path)
    if is_array(node) or not is_dataframe(node):
        return None
    return node, columns_of(node)


def _label_names(root: Any, spec: FileSpec, path: str) -> tuple[str, ...] | None:
    frame = _label_columns(root, spec, path)
    if frame is not None:
        return column_rows(*frame, spec.labels, file=path)[1]
    key = spec.keys.get("label_names")
    if key is not None:
        return texts_of(_element(root, key, path), file=path)
    for known in ("uns/mlfs/label_names", "uns/label_names"):
        known = _frames(spec)[0] + known
        if known in root:
            return texts_of(root[known], file=path)
    return None


def _labels_key(spec: FileSpec) -> str:
    return spec.keys.get("y", _frames(spec)[0] + _LABELS)


def _categories(root: Any, path: str) -> dict[int, tuple[str, ...]]:
    """Return the categories of features, if it is a store of ours."""
    key = "uns/mlfs/categories"
    if key not in root:
        return {}
    return parse_categories(texts_of(root[key], file=path)[0])


@contextlib.contextmanager
def _open_pair(path: str, spec: FileSpec) -> Iterator[list[Pair]]:
    with _open_root(path, spec) as root:
        x, y = spec.keys.get("x", "X"), _labels_key(spec)
        frame, X = _label_columns(root, spec, path), rows_of(_element(root, x, path), file=path, what=x)
        if frame is None:
            Y: Rows = rows_of(_element(root, y, path), file=path, what=y)
        elif frame[1]:
            Y = column_rows(*frame, spec.labels, file=path)[0]
        else:  # of rows without labels, or with targets
            Y = array_rows(np.empty((X.shape[0], 0)))
        yield [(X, Y)]


def var_column(path: str, name: str, spec: FileSpec) -> tuple[str, ...]:
    """Return the texts of a column of `var`, empty where missing.

    Raises
    ------
    UsageError
        It is not there.
    DataError
        It is damaged, or encoded in an unknown way.
    """
    with _open_root(path, spec) as root, damage_in(path, "var"):
        var = _frames(spec)[1]
        frame = _element(root, var, path) if var else {}
        known = columns_of(frame) if var else ()
        if name not in known:
            raise UsageError(f"{var or 'var'} of {path} has no column {name!r}. {closest(name, known)}")
        return texts_of(column_of(frame, name), file=path)


def open_anndata_matrix(path: str, names: tuple[str, ...]) -> MatrixReader:
    """Return X of an .h5ad file or a .zarr folder, without labels, and with these names of features.

    Raises
    ------
    DataError
    """
    opener = functools.partial(_open_pair, path, FileSpec(labels=LabelSpec(columns=())))
    return matrix_reader(path, opener, DEFAULT_SPEC, feature_names=names, without_labels=True)


def obs_columns(path: str, spec: FileSpec) -> tuple[str, ...]:
    """Return the names of the columns of `obs`."""
    with _open_root(path, spec) as root, damage_in(path, "obs"):
        return columns_of(_element(root, _frames(spec)[0] + "obs", path))


def obs_of(path: str, names: Sequence[str], spec: FileSpec) -> ObsColumns:
    """Return the columns of `obs`: numbers, and texts, truth values and categoricals as categories.

    Rows are read some at a time, whenever blocks are asked for; those of texts once before, for their values.

    Raises
    ------
    DataError
        One is not there, or encoded in an unknown way.
    """
    with _obs_columns(path, names, spec) as columns:
        categories = {name: values for name, column in columns.items() if (values := column.categories()) is not None}

    def blocks() -> Iterator[NDArray[np.float64]]:
        with _obs_columns(path, names, spec) as columns:
            for start in range(0, max(column.length for column in columns.values()), _OBS_ROWS):
                some = [column.take(start, categories.get(name, ())) for name, column in columns.items()]
                yield np.column_stack(some)

    return ObsColumns(tuple(names), categories, blocks)


@contextlib.contextmanager
def _obs_columns(path: str, names: Sequence[str], spec: FileSpec) -> Iterator[dict[str, _ObsColumn]]:
    with _open_root(path, spec) as root, damage_in(path, "obs"):
        frame = _element(root, _frames(spec)[0] + "obs", path)
        known, columns = columns_of(frame), {}
        for name in names:
            matrix = None if name in known else _obsm_column(root, name, spec, path)
            node = (
                column_of(frame, known[find_column(known, name, "column of rows,", file=path)])
                if matrix is None
                else matrix
            )
            columns[name] = _ObsColumn(node, path)
        yield columns


def _obsm_column(root: Any, name: str, spec: FileSpec, path: str) -> Any:
    """Return a column KEY:COLUMN of a dense matrix or data frame in `obsm`; None for names of another form.

    Raises
    ------
    DataError
        The matrix has no such column.
    """
    key, _, column = name.partition(":")
    place = f"{_frames(spec)[0]}obsm/{key}"
    if not column or "/" in key or key in (".", "..") or place not in root:
        return None
    node = root[place]
    if not is_array(node):
        known = columns_of(node)
        return column_of(node, known[find_column(known, column, f"column of obsm/{key},", file=path)])
    if len(node.shape) != 2 or not column.isdecimal() or int(column) >= node.shape[1]:
        raise DataError(
            f"obsm/{key} of shape {tuple(node.shape)} has no column {column}",
            file=path,
            cure=f"give the number of a column from 0, as in {key}:0",
        )
    return _MatrixColumn(check_dataset(node, file=path), int(column))


class _MatrixColumn:
    """One column of a dense matrix on disk, with the interface of an array of its rows."""

    def __init__(self, matrix: Any, column: int) -> None:
        self._matrix, self._column = matrix, column
        self.dtype, self.shape = matrix.dtype, matrix.shape[:1]

    def __getitem__(self, rows: slice) -> Any:
        return self._matrix[rows, self._column]


class _ObsColumn:
    """One column: codes of a categorical; or numbers, texts or truth values, with a mask where they may be missing."""

    def __init__(self, node: Any, path: str) -> None:
        self._file = path
        self._declared: tuple[str, ...] | None = None
        self._mask: Any = None
        if isinstance(node, _MatrixColumn):
            pass
        elif not is_array(node) and "codes" in node:
            self._declared = texts_of(node["categories"], file=path)
            node = node["codes"]
        elif not is_array(node):
            self._mask, node = check_dataset(node["mask"], file=path), node["values"]
        self._values = node if isinstance(node, _MatrixColumn) else check_dataset(node, file=path)
        self.length = int(node.shape[0])
        self._is_number = node.dtype.kind in "iuf"

    def categories(self) -> tuple[str, ...] | None:
        """Return the values in the order of their codes; None for numbers."""
        if self._declared is not None or self._is_number:
            return self._declared
        texts: set[str] = set()
        for start in range(0, self.length, _OBS_ROWS):
            texts.update(self._texts(start))
        return tuple(sorted(texts))

    def take(self, start: int, categories: Sequence[str]) -> NDArray[np.float64]:
        """Return numbers or codes of some rows, NaN where missing."""
        if self._is_number:
            numbers = np.asarray(self._values[start : start + _OBS_ROWS]).astype(np.float64)
        else:
            codes = {text: float(code) for code, text in enumerate(categories)}
            numbers = np.array([codes[text] for text in self._texts(start)])
        if self._declared is not None:
            numbers[numbers < 0] = np.nan
        if self._mask is not None:
            numbers[np.asarray(self._mask[start : start + _OBS_ROWS], dtype=bool)] = np.nan
        return numbers

    def _texts(self, start: int) -> list[str]:
        values = whole(self._values, file=self._file, rows=slice(start, start + _OBS_ROWS))
        return [each.decode() if isinstance(each, bytes) else str(each) for each in values.tolist()]


def is_anndata(root: Any) -> bool:
    """Return True if a Zarr group is AnnData."""
    return encoding_of(root) in ("anndata", "MuData") or ("X" in root and "obs" in root and "var" in root)


def _is_group(root: Any, *, in_file: bool) -> bool:
    return hasattr(root, "filename") == in_file and not is_array(root) and is_anndata(root)


FORMATS = tuple(
    Format(
        name=name,
        title=title,
        open=open_anndata,
        suffixes=suffixes,
        keys=ARRAY_KEYS,
        group=functools.partial(_is_group, in_file=in_file),
        order=-1,
        obs=(obs_columns, obs_of),
        var_column=var_column,
    )
    for name, title, suffixes, in_file in (
        ("h5ad", "AnnData .h5ad, MuData .h5mu", (".h5ad", ".h5mu"), True),
        ("anndata", "AnnData .zarr", (), False),
    )
)
