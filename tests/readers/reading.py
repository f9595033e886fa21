"""Read a whole source and hold the reader to its protocol on the way."""

from __future__ import annotations

import csv
import pickle
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.base import Batch, FileSpec, Reader
from mlfs_dask.readers.label_values import MINUS_ONE, UNKNOWN


def dense(matrix: Any) -> np.ndarray:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def batches_of(reader: Reader, *, batch_bytes: int, part_bytes: int) -> list[Batch]:
    """All batches, each part read by a pickled copy; shapes and dtypes are checked."""
    found = []
    parts = reader.parts(part_bytes)
    assert [part.index for part in parts] == list(range(len(parts)))
    for before, after in pairwise(parts):
        assert (before.file, before.start) < (after.file, after.start)
    for part in parts:
        copy = pickle.loads(pickle.dumps(reader))
        for batch in copy.read(part, batch_bytes=batch_bytes):
            assert batch.X.dtype == reader.dtype
            assert isinstance(batch.Y, csr_array)
            assert batch.Y.dtype == np.int8
            assert batch.Y.indptr.dtype == np.int64
            assert set(batch.Y.data.tolist()) <= {1, UNKNOWN, MINUS_ONE}
            assert batch.X.shape[0] == batch.Y.shape[0] > 0
            found.append(batch)
    return found


def read_all(reader: Reader, *, batch_bytes: int = 1 << 20, part_bytes: int = 1 << 40) -> tuple[np.ndarray, np.ndarray]:
    """X and Y as dense arrays; each -1 of the source is taken as unknown."""
    found = batches_of(reader, batch_bytes=batch_bytes, part_bytes=part_bytes)
    Y = np.vstack([b.Y.toarray() for b in found])
    return np.vstack([dense(b.X) for b in found]), np.where(Y == MINUS_ONE, UNKNOWN, Y)


def check_splits(reader: Reader, *, sizes: tuple[int, ...] = (1, 200, 1000)) -> None:
    """Any batch size and any part size give the same rows."""
    X, Y = read_all(reader)
    for batch_bytes in sizes:
        for part_bytes in (*sizes, 1 << 40):
            again = read_all(reader, batch_bytes=batch_bytes, part_bytes=part_bytes)
            np.testing.assert_array_equal(again[0], X)
            np.testing.assert_array_equal(again[1], Y)


def read_through(path: Path, options: FileSpec) -> None:
    """Read every batch of a file, and keep none."""
    reader = open_source([str(path)], options)
    for part in reader.parts(1 << 20):
        for _ in reader.read(part, batch_bytes=1 << 16):
            pass


def write_arff(path: Path, table: pd.DataFrame, kinds: Mapping[str, str]) -> str:
    """Rows as dense ARFF; a column without a kind is numeric, and texts are in quotes."""
    attributes = "".join(f"@attribute {name} {kinds.get(name, 'numeric')}\n" for name in table.columns)
    rows = table.to_csv(index=False, header=False, na_rep="?", quotechar="'", quoting=csv.QUOTE_NONNUMERIC)
    path.write_text(f"@relation r\n{attributes}@data\n" + rows.replace("'?'", "?"))
    return str(path)
