"""The second half of a conversion: staged rows become the shards, names and metadata of a store.

Every shard has one writer and ends in a done-marker, so that shards are written in parallel and a killed
conversion goes on with those that are missing. The root metadata comes last: before it, there is no store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.files.object_store import ROOT_KEY, LocalObjects
from mlfs_dask.storage.anndata_encoding import DENSE, DICT, Object, dataframe, group, row_numbers, strings, vector
from mlfs_dask.storage.array_layout import ArrayLayout
from mlfs_dask.storage.digest import Checksum, hash_file, new_hash, seal_root
from mlfs_dask.storage.schema import KINDS, LABELS_NAME, X_NAME, StoreSchema
from mlfs_dask.storage.spool import SpooledRows
from mlfs_dask.storage.zarr_format import write_shard

if TYPE_CHECKING:
    from mlfs_dask.storage.extension import ExtendedRows
    from mlfs_dask.storage.obs import ObsWriter

_PIECE_BYTES = 1 << 20

QUANTILES = "uns/mlfs/quantiles"


class ShardRecord(NamedTuple):
    """A shard that is written.

    Attributes
    ----------
    key : str
        Object key in the store.
    size : int
        Bytes.
    digest : str
        BLAKE2b-128 of the object.
    checksum : Checksum
        Of the plain bytes of its entries, without padding, index and compressor.
    """

    key: str
    size: int
    digest: str
    checksum: Checksum


def write_one_shard(rows: SpooledRows | ExtendedRows, layout: ArrayLayout, shard: int, wip: Path) -> ShardRecord:
    """Write one shard and its done-marker, unless both are there already.

    Parameters
    ----------
    rows : SpooledRows or ExtendedRows
    layout : ArrayLayout
    shard : int
    wip : Path
        Working directory; the shard goes to `wip/store`, the marker to `wip/done`.

    Raises
    ------
    DataError
        If a value other than 0 becomes 0 in the requested type; `column` is the number of its feature.
    """
    key = layout.shard_key(shard)
    marker = wip / "done" / (key.replace("/", ".") + ".json")
    target = wip / "store" / key
    if marker.exists():
        try:
            _, size, digest, checksums = json.loads(marker.read_bytes())
            record = ShardRecord(key, size, digest, Checksum(*checksums))
            if hash_file(target) == record.digest:
                return record
        except (OSError, ValueError, KeyError, TypeError):
            pass  # torn by a power cut: written again
    target.parent.mkdir(parents=True, exist_ok=True)
    marker.parent.mkdir(parents=True, exist_ok=True)
    checksum = Checksum()
    step = max(1, _PIECE_BYTES // layout.row_bytes)
    buffer = np.zeros((layout.chunk_rows, *layout.shape[1:]), layout.dtype)

    def chunks() -> Iterator[NDArray[Any]]:
        nonlocal checksum
        for start, count in layout.chunks(shard):
            entries = buffer[:count]
            for first in range(0, count, step):  # in pieces, so that no second chunk is held
                rows.fill(layout.key, start + first, entries[first : first + step])
            buffer[count:] = 0
            checksum = checksum.extended(entries.reshape(-1).view(np.uint8).data)
            yield buffer

    temporary = target.with_name(target.name + ".part")
    size, digest = write_shard(
        temporary, chunks(), slots=layout.shard_rows // layout.chunk_rows, compressor=layout.compressor
    )
    temporary.replace(target)
    record = ShardRecord(key, size, digest, checksum)
    write_atomically(marker, json.dumps([*record[:-1], checksum.to_json()]).encode())
    return record


def write_atomically(path: Path, content: bytes) -> None:
    """Write a small file that is whole or not there."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.replace(path)


@dataclass(frozen=True)
class Names:
    """Names and facts per feature that a store holds.

    Attributes
    ----------
    features, labels : sequence of str
    kinds : int8 array, shape (d,)
        Index into `schema.KINDS`.
    minimum, maximum : float64 array, shape (d,)
    n_categories, n_missing : int64 array, shape (d,)
    n_nonzero : int64 array, shape (d,), or None
        Values that are neither 0 nor missing; None where earlier rows were not counted.
    quantiles : float64 array, shape (d, s), or None
        `RowSource.quantiles`, where these are kept.
    categories : dict of int to sequence of str
        Values of the categorical features in the order of their codes.
    """

    features: Sequence[str]
    labels: Sequence[str]
    kinds: NDArray[np.int8]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    n_categories: NDArray[np.int64]
    n_missing: NDArray[np.int64]
    n_nonzero: NDArray[np.int64] | None
    quantiles: NDArray[np.float64] | None
    categories: Mapping[int, Sequence[str]]


def write_metadata(
    root: Path, layouts: Sequence[ArrayLayout], names: Names, *, n: int, d: int, q: int, obs: ObsWriter | None = None
) -> dict[str, tuple[int, str]]:
    """Write groups, array metadata, `obs`, `var` and `uns`: all but the shards and the root's own metadata.

    Returns
    -------
    dict of str to (int, str)
        Key -> size and digest of every object written.
    """
    written = {}
    objects = LocalObjects(root)
    for key, content in _small_objects(layouts, names, obs, n=n, d=d, q=q):
        objects.write(key, content)
        digest = new_hash()
        digest.update(content)
        written[key] = (len(content), str(digest.hexdigest()))
    return written


def _small_objects(
    layouts: Sequence[ArrayLayout], names: Names, obs: ObsWriter | None, *, n: int, d: int, q: int
) -> Iterator[Object]:
    for name in ("layers", "obsp", "varm", "varp", "uns", "uns/mlfs", "obsm"):
        yield group(name, DICT)
    for name, shape in {X_NAME: (n, d), LABELS_NAME: (n, q)}.items():
        if not any(layout.key == name for layout in layouts):
            yield group(name, {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(shape)})
    for layout in layouts:
        yield f"{layout.key}/{ROOT_KEY}", layout.metadata(DENSE)
    yield from row_numbers(n, *(() if obs is None else obs.columns.names))
    if obs is not None:
        yield from obs.objects()
    counted = [] if names.n_nonzero is None else ["n_nonzero"]
    yield dataframe("var", "min", "max", "kind", "n_categories", "n_missing", *counted)
    yield from strings("var/_index", names.features)
    yield from vector("var/min", names.minimum)
    yield from vector("var/max", names.maximum)
    yield group("var/kind", {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    yield from vector("var/kind/codes", names.kinds)
    yield from strings("var/kind/categories", KINDS)
    yield from vector("var/n_categories", names.n_categories)
    yield from vector("var/n_missing", names.n_missing)
    if names.n_nonzero is not None:
        yield from vector("var/n_nonzero", names.n_nonzero)
    if names.quantiles is not None:
        yield from vector(QUANTILES, names.quantiles.ravel())
    yield from strings("uns/mlfs/label_names", names.labels)
    categories = {str(feature): list(values) for feature, values in names.categories.items()}
    yield from strings("uns/mlfs/categories", [json.dumps(categories)])


def write_root(root: Path, schema: StoreSchema) -> bytes:
    """Write the root's metadata, consolidated and sealed; returns its bytes.

    With it the store is complete.
    """
    metadata = {}
    for path in sorted(root.rglob(ROOT_KEY)):
        if path.parent != root:
            metadata[path.parent.relative_to(root).as_posix()] = json.loads(path.read_bytes())
    content = seal_root(
        {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {
                "encoding-type": "anndata",
                "encoding-version": "0.1.0",
                "mlfs": schema.to_json(),
            },
            "consolidated_metadata": {
                "kind": "inline",
                "must_understand": False,
                "metadata": metadata,
            },
        }
    )
    write_atomically(root / ROOT_KEY, content)
    return content
