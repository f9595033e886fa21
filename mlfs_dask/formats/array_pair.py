"""X and Y as arrays of Zarr (version 2 or 3) or HDF5 (netCDF 4): two in one group, or of Zarr two given by path.

Either may also be a sparse group in AnnData's encoding. Parts begin where chunks (or shards) do.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from mlfs_dask.errors import DataError
from mlfs_dask.files.object_store import X_KEYS, Y_KEYS
from mlfs_dask.readers.base import ARRAY_KEYS, DEFAULT_SPEC, FileSpec, Format, begins_with
from mlfs_dask.readers.encoded import coordinate_of, encoding_of, is_array, open_root, rows_of, texts_of
from mlfs_dask.readers.label_columns import repeated_name
from mlfs_dask.readers.matrix import MatrixReader, Pair, damage_in, matrix_reader, names_in


def open_array_pair(paths: str | Sequence[str], spec: FileSpec = DEFAULT_SPEC) -> MatrixReader:
    """Open a group with X and Y, or the pair X, Y.

    Parameters
    ----------
    paths : str, or two of them
        Folders or URLs of Zarr, or one HDF5 file.
    spec : FileSpec
        `keys` may hold ``x`` and ``y``, the arrays of a group; by default X, x, data, features and Y, y, labels,
        target, targets; and ``names`` and ``label_names``, arrays of texts or ``@FILE``; by default
        `feature_names` and `label_names`, or the coordinates of the columns, as xarray and netCDF name them.

    Raises
    ------
    DataError
        No such array, shapes that disagree, an encoding that is not known.
    """
    paths = (paths,) if isinstance(paths, str) else tuple(paths)
    with open_root(paths[0], spec) as root, damage_in(paths[0], "a name"):
        names = names_in(spec, file=paths[0], texts=functools.partial(_texts_in, root, paths[0]))
        if len(paths) == 1:
            for key, known, what in (("feature_names", X_KEYS, "X"), ("label_names", Y_KEYS, "Y")):
                node = _matrix(root, spec.keys.get(what.lower()), known, what, paths[0])
                coordinate = coordinate_of(root, node, file=paths[0])
                if key not in names and coordinate and repeated_name(coordinate) is None:
                    names[key] = coordinate
    opener = functools.partial(_open_pair, paths, spec)
    return matrix_reader(" ".join(paths), opener, spec, **names)


def is_matrix(node: Any) -> bool:
    """Return True if a node is one matrix: an array or an encoded sparse matrix."""
    return is_array(node) or encoding_of(node) in ("csr_matrix", "csc_matrix")


def _texts_in(root: Any, path: str, name: str) -> tuple[str, ...] | None:
    return texts_of(root[name], file=path) if not is_array(root) and name in root else None


@contextlib.contextmanager
def _open_pair(paths: tuple[str, ...], spec: FileSpec) -> Iterator[list[Pair]]:
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(open_root(path, spec)) for path in paths]
        X = _matrix(nodes[0], spec.keys.get("x"), X_KEYS, "X", paths[0])
        Y = _matrix(nodes[-1], spec.keys.get("y"), Y_KEYS, "Y", paths[-1])
        yield [(rows_of(X, file=paths[0], what="X"), rows_of(Y, file=paths[-1], what="Y"))]


def _matrix(node: Any, key: str | None, known: Sequence[str], what: str, path: str) -> Any:
    if is_matrix(node):
        return node
    if key is None:
        key = next((name for name in known if name in node), known[0])
    if key in node:
        return node[key]
    raise DataError(
        f"the group has no array {key!r} for {what}; it has {', '.join(node) or 'nothing'}",
        file=path,
        cure=f"name it: --key {what.lower()}=NAME",
    )


def _is_matrix(path: str, spec: FileSpec) -> bool:
    from mlfs_dask.readers.zarr_nodes import open_node  # loads Zarr

    return is_matrix(open_node(path, spec))


FORMATS = (
    Format(
        name="hdf5",
        title="HDF5 or netCDF 4 X and Y",
        open=open_array_pair,
        suffixes=(".h5", ".hdf5", ".hdf", ".nc", ".nc4"),
        keys=ARRAY_KEYS,
        head=begins_with(b"\x89HDF"),
        group=lambda root: hasattr(root, "filename"),
        order=1,
        has_label_array=True,
        is_container=True,
    ),
    Format(
        name="zarr",
        title="Zarr X and Y, in a group or a pair",
        open=open_array_pair,
        suffixes=(".zarr",),
        keys=ARRAY_KEYS,
        group=lambda root: True,
        order=2,
        has_label_array=True,
        is_container=True,
        is_matrix=_is_matrix,
    ),
)
