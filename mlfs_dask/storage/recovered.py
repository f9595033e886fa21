"""Labels that a method recovered, as a small store beside its ranking: valid AnnData, a column for each label.

`X` holds the method's own values (float32), the layer `positive` says where the label applies (int8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.storage.elements import DENSE, DICT, dataframe, group, row_numbers, strings
from mlfs_dask.storage.objects import open_objects

#: Bytes of one chunk of values, and chunks of a shard: few files, however many rows.
_CHUNK_BYTES = 4 * 2**20
_SHARD_CHUNKS = 16


def write_recovered_labels(
    place: str,
    values: NDArray[np.floating[Any]],
    label_names: Sequence[str],
    *,
    threshold: float,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write recovered labels.

    Parameters
    ----------
    place : str
        Local path or URL; nothing may be there.
    values : float array, shape (n, q)
    label_names : sequence of str, length q
    threshold : float
        A label applies where its value is greater.
    storage_options : mapping, optional
        For fsspec.

    Notes
    -----
    Holds one shard at a time, of at most 80 MiB.
    """
    import zarr

    n, q = values.shape
    top = zarr.open_group(
        place,
        mode="w-",
        zarr_format=3,
        storage_options=dict(storage_options or {}) if "://" in place else None,
        attributes={"encoding-type": "anndata", "encoding-version": "0.1.0", "mlfs": {"threshold": threshold}},
    )
    objects = open_objects(place, storage_options)
    groups = [group(name, DICT) for name in ("layers", "obsm", "obsp", "varm", "varp", "uns")]
    for key, content in (*groups, *row_numbers(n), dataframe("var"), *strings("var/_index", label_names)):
        objects.write(key, content)
    chunk = max(1, min(n, _CHUNK_BYTES // (4 * q)))
    shard = chunk * min(_SHARD_CHUNKS, -(-n // chunk))
    arrays = [
        top.create_array(
            name, shape=(n, q), chunks=(chunk, q), shards=(shard, q), dtype=dtype, fill_value=0, attributes=dict(DENSE)
        )
        for name, dtype in (("X", "float32"), ("layers/positive", "int8"))
    ]
    for low in range(0, n, shard):
        part = values[low : low + shard]
        arrays[0][low : low + shard] = part.astype(np.float32)
        arrays[1][low : low + shard] = (part > threshold).astype(np.int8)
