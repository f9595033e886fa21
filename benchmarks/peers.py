"""The exact sum over labels of M(f; l), two codes at the midrange, as users would write it with other tools.

Each function returns its scores and the seconds that they took, imports and opening apart.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from measuring import drop_pages, shards_of


def from_counts(n: int, joint: np.ndarray, ones: np.ndarray, positives: np.ndarray) -> np.ndarray:
    """Sum of M(f; l) from N(f = 1, l = 1) (q, d), N(f = 1) (d,), N(l = 1) (q,)."""

    def xlogx(counts: np.ndarray) -> np.ndarray:
        return counts * np.log(np.maximum(counts, 1))

    feature = np.log(n) - (xlogx(ones) + xlogx(n - ones)) / n
    label = np.log(n) - (xlogx(positives) + xlogx(n - positives)) / n
    cells = (
        xlogx(joint)
        + xlogx(ones - joint)
        + xlogx(positives[:, None] - joint)
        + xlogx(n - ones - positives[:, None] + joint)
    )
    both = np.log(n) - cells / n
    return (feature + label[:, None] - both).sum(axis=0)


def blocked_numpy(folder: str) -> dict[str, Any]:
    """Blocks of a memory-mapped X.npy; thresholds from a first reading; one BLAS product a block."""
    X, Y = np.load(Path(folder) / "X.npy", mmap_mode="r"), np.load(Path(folder) / "Y.npy")
    started = time.perf_counter()
    n, d = X.shape
    step = 16384
    low, high = np.full(d, np.inf, np.float32), np.full(d, -np.inf, np.float32)
    for i in range(0, n, step):
        np.minimum(low, X[i : i + step].min(axis=0), out=low)
        np.maximum(high, X[i : i + step].max(axis=0), out=high)
    middle = (low.astype(np.float64) + high) / 2
    joint, ones = np.zeros((Y.shape[1], d)), np.zeros(d)
    for i in range(0, n, step):
        code = (X[i : i + step] > middle).astype(np.float32)
        joint += Y[i : i + step].T.astype(np.float32) @ code
        ones += code.sum(axis=0, dtype=np.float64)
    scores = from_counts(n, joint, ones, Y.sum(axis=0, dtype=np.float64))
    return {"seconds": time.perf_counter() - started, "scores": scores.tolist()}


def scipy_product(store: str) -> dict[str, Any]:
    """`Y.T @ X` of whole matrices in memory; loading them is not counted."""
    import anndata

    data = anndata.read_zarr(store)
    X, Y = data.X, data.obsm["labels"].tocsr()
    started = time.perf_counter()
    joint = (Y.T.astype(np.int64) @ X).toarray().astype(np.float64)
    ones = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
    positives = np.asarray(Y.sum(axis=0, dtype=np.int64)).ravel().astype(np.float64)
    scores = from_counts(X.shape[0], joint, ones, positives)
    return {"seconds": time.perf_counter() - started, "scores": scores.tolist()}


def ours(store: str) -> dict[str, Any]:
    """The same by label-entropy, out of core, in this process."""
    from mlfs_dask import LabelEntropy
    from mlfs_dask.storage.opening import open_dataset

    data = open_dataset(store)
    started = time.perf_counter()
    selector = LabelEntropy(10, n_promising_labels=1.0, binning="equal-width").fit(data)
    return {"seconds": time.perf_counter() - started, "scores": selector.scores_.tolist()}


def tensorstore_sum(store: str) -> dict[str, Any]:
    """Every number of X read once by tensorstore, two threads, and added up."""
    import tensorstore

    context = {"data_copy_concurrency": {"limit": 2}, "file_io_concurrency": {"limit": 2}}
    begun = time.perf_counter(), time.process_time()
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{store}/X"}, "context": context}
    X = tensorstore.open(spec, read=True).result()
    rows, total = X.chunk_layout.read_chunk.shape[0], 0.0
    bounds = [*range(0, X.shape[0], rows), X.shape[0]]
    ahead: deque[Any] = deque()
    for first, last in pairwise(bounds):
        ahead.append(X[first:last].read())
        if len(ahead) > 2:
            total += float(ahead.popleft().result().sum())
    total += sum(float(part.result().sum()) for part in ahead)
    return {**_since(begun), "total": total}


def select(store: str, method: str, parameters: dict[str, Any], *, cold: bool = False) -> dict[str, Any]:
    """A selection in this process, after one that loads all that it needs; if `cold`, without pages of the store."""
    from mlfs_dask.selection.estimator import get_estimator
    from mlfs_dask.storage.opening import open_dataset

    get_estimator(method)(10, **parameters).fit(open_dataset(store))
    if cold:
        drop_pages(Path(store))
    begun = time.perf_counter(), time.process_time()
    get_estimator(method)(10, **parameters).fit(open_dataset(store))
    return _since(begun)


def over_shards(store: str, work: str) -> dict[str, Any]:
    """The sum or the checksum of each shard of X as a whole, mapped: the least that a pass can take."""
    from mlfs_dask.storage.digest import crc32c

    begun = time.perf_counter(), time.process_time()
    for path in shards_of(Path(store)):
        shard = np.memmap(path, np.uint8, "r")
        if work == "sum":
            with np.errstate(all="ignore"):  # among the values lie checksums
                shard[: len(shard) // 4 * 4].view(np.float32).sum()
        else:
            crc32c(shard.data)
    return _since(begun)


def _since(begun: tuple[float, float]) -> dict[str, float]:
    return {"seconds": time.perf_counter() - begun[0], "cpu_seconds": time.process_time() - begun[1]}


def dask_array(store: Path) -> np.ndarray:
    """Thresholds by one `dask.array` reduction, counts by a second, inside the current cluster."""
    import dask
    import dask.array as da

    from mlfs_dask.storage.opening import open_dataset

    X = da.from_zarr(str(store), component="X")
    Y = open_dataset(store).Y.map_blocks(lambda b: b.todense(), dtype=np.int8, meta=np.zeros((0, 0), np.int8))
    Y = Y.rechunk((X.chunks[0], -1))
    low, high = dask.compute(X.min(axis=0), X.max(axis=0))
    middle = (low.astype(np.float64) + high) / 2
    code = (middle < X).astype(np.float32)
    joint, ones, positives = dask.compute(
        da.blockwise(
            lambda y, c: (y.T.astype(np.float32) @ c)[None].astype(np.float64),
            "ilj",
            Y,
            "il",
            code,
            "ij",
            dtype=np.float64,
            adjust_chunks={"i": 1},
            concatenate=True,
        ).sum(axis=0, split_every=8),
        code.sum(axis=0, dtype=np.float64),
        Y.sum(axis=0, dtype=np.float64),
    )
    return from_counts(X.shape[0], joint, ones, positives)
