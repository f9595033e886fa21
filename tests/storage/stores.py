"""Small stores for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlfs_dask.storage import chunking
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask.storage.opening import open_dataset
from tests.storage.memory_reader import make_reader


def sample(*, n: int = 60, d: int = 12, q: int = 20, sparse: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """X with missing values in its first column when dense; Y with -1, sparse where X is."""
    generator = np.random.default_rng(7)
    X = generator.normal(size=(n, d))
    Y = np.zeros((n, q), np.int8)
    if sparse:
        X[generator.random((n, d)) < 0.9] = 0
        X[n // 2 : n // 2 + 5] = 0
        Y[np.arange(n), generator.integers(0, q, n)] = generator.choice([1, -1], n)
    else:
        X[::7, 0] = np.nan
        Y[:] = generator.choice([0, 1, -1], (n, q))
    return X, Y


def small_chunks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Several chunks a shard, and several shards of labels, in stores of a few kilobytes."""
    for name in ("CHUNK_BYTES", "SMALL_CHUNK_BYTES", "PARTITION_BYTES"):
        monkeypatch.setattr(chunking, name, size)
    monkeypatch.setattr(chunking, "CHUNK_NONZEROS", max(size // 20, 1))


def rows_of(store: Path | str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Dense X and Y as passes read them."""
    rows, X, Y = open_dataset(store).rows, [], []
    for block in rows.stream(0, rows.profile.partitions):
        X.append(block.X.copy() if isinstance(block.X, np.ndarray) else block.X.toarray())
        Y.append(block.Y.toarray())
    return np.concatenate(X), np.concatenate(Y)


def make_store(path: Path, X: Any, Y: Any, *, names: bool = True, **options: Any) -> Path:
    """Write a store; feature names hold blanks, accents and a quote."""
    feature_names = [f"é {i}'" for i in range(X.shape[1])] if names else None
    label_names = [f"label {i}" for i in range(Y.shape[1])] if names else None
    reader = make_reader(X, Y, feature_names=feature_names, label_names=label_names)
    convert_reader(lambda: reader, path, workers=1, options=Options(**options))
    return path
