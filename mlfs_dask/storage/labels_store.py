"""Labels that a method recovered, as a small store beside its ranking: valid AnnData, a column for each label.

`X` holds the method's own values (float32), the layer `positive` says where the label applies (int8). A chunk is a
file, which ends with its CRC-32C, written whole by whichever process has its rows, so that several processes can write
at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.files.object_store import ROOT_KEY, open_objects
from mlfs_dask.storage.anndata_encoding import DENSE, DICT, dataframe, group, row_numbers, strings
from mlfs_dask.storage.array_layout import CRC32C, array_metadata, bytes_codecs, group_metadata
from mlfs_dask.storage.zarr_format import crc_bytes, encoder

#: Bytes of one chunk of values at most, and of a chunk that is not made smaller to have one for every partition.
_MAX_CHUNK_BYTES = 32 * 2**20
_MIN_CHUNK_BYTES = 2**20

_COMPRESSOR = "zstd"
_ARRAYS = (("X", "float32"), ("layers/positive", "int8"))


@dataclass(frozen=True)
class LabelsStore:
    """A store of labels that is being written. Picklable: it holds a place and sizes.

    Attributes
    ----------
    place : str
        Local path or URL.
    shape : (int, int)
        n and q.
    chunk_rows : int
        Rows of a chunk, which is written whole.
    threshold : float
        A label applies where its value is greater.
    """

    place: str
    shape: tuple[int, int]
    chunk_rows: int
    threshold: float

    @classmethod
    def sized(cls, place: str, n: int, q: int, *, threshold: float, partition_rows: int) -> LabelsStore:
        """Return a store of that size, of which nothing is written.

        Parameters
        ----------
        place : str
            Local path or URL.
        n, q : int
        threshold : float
        partition_rows : int
            Rows that a process mostly has in one piece: chunks are about as long, within bounds of their bytes.
        """
        row_bytes = 4 * max(q, 1)
        rows = min(max(partition_rows, _MIN_CHUNK_BYTES // row_bytes), max(_MAX_CHUNK_BYTES // row_bytes, 1), max(n, 1))
        return cls(place, (n, q), rows, threshold)

    def begin(self, label_names: Sequence[str]) -> LabelsStore:
        """Write everything but the values; return the store.

        Parameters
        ----------
        label_names : sequence of str, length q

        Raises
        ------
        FileExistsError
            Something is in the place.
        """
        objects, (n, q) = open_objects(self.place), self.shape
        if objects.exists():
            raise FileExistsError(f"{self.place} is there already")
        attributes = {"encoding-type": "anndata", "encoding-version": "0.1.0", "mlfs": {"threshold": self.threshold}}
        objects.write(ROOT_KEY, group_metadata(attributes))
        groups = [group(name, DICT) for name in ("layers", "obsm", "obsp", "varm", "varp", "uns")]
        for key, content in (*groups, *row_numbers(n), dataframe("var"), *strings("var/_index", label_names)):
            objects.write(key, content)
        for name, dtype in _ARRAYS:
            metadata = array_metadata(
                shape=(n, q),
                data_type=dtype,
                chunks=(self.chunk_rows, q),
                codecs=[*bytes_codecs(np.dtype(dtype).itemsize, _COMPRESSOR), CRC32C],
                fill_value=0,
                attributes=DENSE,
            )
            objects.write(f"{name}/zarr.json", metadata)
        return self

    def write(self, start: int, values: NDArray[np.floating[Any]]) -> None:
        """Write whole chunks.

        Parameters
        ----------
        start : int
            First row, at the beginning of a chunk.
        values : float array, shape (rows, q)
            Up to the end of a chunk, or to the last row of all.

        Raises
        ------
        FileNotFoundError
            The store was removed: after an interruption a worker may still be writing, and must not make it anew.
        """
        objects, encode = open_objects(self.place), encoder(_COMPRESSOR)
        for low in range(0, len(values), self.chunk_rows):
            part = values[low : low + self.chunk_rows]
            for (name, dtype), content in zip(_ARRAYS, (part, part > self.threshold), strict=True):
                chunk = np.zeros((self.chunk_rows, self.shape[1]), np.dtype(dtype).newbyteorder("<"))
                chunk[: len(part)] = content  # the last one is as long as the others
                if not objects.exists(ROOT_KEY):
                    raise FileNotFoundError(f"{self.place} was removed")
                stored = bytes(encode(chunk))
                objects.write(f"{name}/c/{(start + low) // self.chunk_rows}/0", stored + crc_bytes(stored))
