"""X and Y as Zarr arrays, version 2 or 3: two arrays given by path, or two in one group.

Either may also be a sparse group in AnnData's encoding. Parts begin where chunks (or shards) do.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from mlfs_dask.errors import DataError
from mlfs_dask.storage.object_store import X_KEYS
from mlfs_dask.storage.readers.base import ReadOptions
from mlfs_dask.storage.readers.encoded import encoding_of, is_array, rows_of, texts_of
from mlfs_dask.storage.readers.matrix import MatrixReader, Pair, damage_in, matrix_reader
from mlfs_dask.storage.readers.zarr_nodes import open_node

Y_KEYS = ("Y", "y", "labels", "target", "targets")
_DEFAULTS = ReadOptions()


def open_zarr_pair(paths: str | Sequence[str], options: ReadOptions = _DEFAULTS) -> MatrixReader:
    """Open a group with X and Y, or the pair X, Y.

    Parameters
    ----------
    paths : str, or two of them
        Folders or URLs.
    options : ReadOptions
        `keys` may hold ``x`` and ``y``, the arrays of a group; by default X, x, data, features and Y, y, labels,
        target, targets. Arrays `feature_names` and `label_names` of a group are used when present.

    Raises
    ------
    DataError
        No such array, shapes that disagree, an encoding that is not known.
    """
    paths = (paths,) if isinstance(paths, str) else tuple(paths)
    names: dict[str, Any] = {}
    if len(paths) == 1:
        root = open_node(paths[0], options)
        with damage_in(paths[0], "a name"):
            for key in ("feature_names", "label_names"):
                if not is_array(root) and key in root:
                    names[key] = texts_of(root[key], file=paths[0])
    opener = functools.partial(_open_pair, paths, options)
    return matrix_reader(" ".join(paths), opener, options, **names)


def is_matrix(node: Any) -> bool:
    """Whether a node is one matrix: an array or an encoded sparse one."""
    return is_array(node) or encoding_of(node) in ("csr_matrix", "csc_matrix")


@contextlib.contextmanager
def _open_pair(paths: tuple[str, ...], options: ReadOptions) -> Iterator[list[Pair]]:
    nodes = [open_node(path, options) for path in paths]
    with damage_in(paths[0], "the store"):
        X = _matrix(nodes[0], options.keys.get("x"), X_KEYS, "X", paths[0])
        Y = _matrix(nodes[-1], options.keys.get("y"), Y_KEYS, "Y", paths[-1])
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
        cure=f"say which it is: --key {what.lower()}=NAME",
    )
