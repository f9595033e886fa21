"""Points near to each other, approximately: lists of points around centres, then neighbours of neighbours.

k-means (Faiss) sorts the points into lists. The points of a list are compared with those of the lists around it by
matrix products (Faiss), and what that missed is sought among the neighbours of neighbours (compiled). How many lists
are compared is doubled until a sample of points is served well. Everything is settled by the points, their order and a
seed: threads change nothing.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

Points = NDArray[np.float32]

#: Points of a list, on average, and most lists.
LIST_POINTS = 512
MAX_LISTS = 4096

#: Points a centre is made of, and rounds of k-means.
TRAINING_POINTS = 32
TRAINING_ROUNDS = 6

#: Points that those of a list are compared with at first, and how often that may be doubled.
FIRST_COMPARED = 2048
DOUBLINGS = 4

#: Neighbours held for every point, at least, and asked for theirs, at most; most rounds of that, and the gain in recall
#: below which it ends.
HELD = 24
ROUNDS = 8
LEAST_GAIN = 0.01

#: Points that have a point as a neighbour and are asked by it.
BACK = 16

#: Recall, on a sample of points, at which doubling ends.
ENOUGH = 0.95
SAMPLE_POINTS = 200


class NearPoints(NamedTuple):
    """What `near_points` gives.

    Attributes
    ----------
    indices : int32 array, shape (n, k)
        Points near each point, nearest first; never the point itself.
    compared : int
        Points that each was compared with.
    """

    indices: NDArray[np.int32]
    compared: int


def near_points(P: Points, k: int, *, seed: int, threads: int = 1) -> NearPoints:
    """About the k nearest points of every point by Euclidean distance.

    Parameters
    ----------
    P : float32 array, shape (n, m)
        Around zero.
    k : int
        Less than n.
    seed : int
        Settles the sample of which centres are made.
    threads : int

    Notes
    -----
    Holds P once more, in the order of the lists, and some 16 n max(k, 24) bytes (`near_points_bytes`). Few points are
    compared all with all.

    Examples
    --------
    >>> near_points(np.array([[0.0], [1.0], [3.0]], dtype=np.float32), 1, seed=0).indices.ravel()
    array([1, 0, 1], dtype=int32)
    """
    n = len(P)
    rng = np.random.default_rng(seed)
    with ThreadPoolExecutor(threads, thread_name_prefix="mlfs-search") as pool:
        centres, lists = _lists(P, rng, pool, threads)
        order = np.argsort(lists, kind="stable").astype(np.int32)
        points = P[order]
        bounds = np.concatenate([[0], np.cumsum(np.bincount(lists, minlength=len(centres)))])
        del lists
        sample = np.sort(rng.choice(n, size=min(n, SAMPLE_POINTS), replace=False))
        truth = _nearest(points[sample], points, k + 1, pool, threads)
        held = min(max(k, HELD), n - 1)
        compared = max(FIRST_COMPARED, 4 * (held + 1))
        for _ in range(DOUBLINGS + 1):
            compared = min(compared, n)
            indices, squares = _compare(points, centres, bounds, held, compared, pool)
            recall = _recall(indices[sample, :k], truth, sample)
            for _ in range(ROUNDS):
                if recall >= ENOUGH or compared == n:
                    break
                before = recall
                indices, squares = _improve(points, indices, squares, pool, threads)
                recall = _recall(indices[sample, :k], truth, sample)
                if recall < before + LEAST_GAIN:
                    break
            logger.info("near points: %d compared, recall %.3f", compared, recall)
            if recall >= ENOUGH or compared == n:
                break
            compared *= 2
    del squares, points
    near = np.empty((n, k), np.int32)
    near[order] = order[indices[:, :k]]
    return NearPoints(near, compared)


def near_points_bytes(n: int, m: int, k: int) -> int:
    """What `near_points` holds beside the points that it is given, in bytes."""
    held = max(k, HELD)
    return 4 * n * m + 16 * n * held + 4 * n * (BACK + k + 4)


def _alone() -> Any:
    """Faiss, kept to one thread in this thread: threads are ours."""
    import faiss

    faiss.omp_set_num_threads(1)
    return faiss


def _runs(total: int, step: int) -> list[tuple[int, int]]:
    return [(low, min(low + step, total)) for low in range(0, total, step)]


def _lists(
    P: Points, rng: np.random.Generator, pool: ThreadPoolExecutor, threads: int
) -> tuple[Points, NDArray[np.int32]]:
    """Centres, and the list of every point."""
    n, m = P.shape
    count = max(1, min(MAX_LISTS, n // LIST_POINTS))
    chosen = np.sort(rng.choice(n, size=min(n, TRAINING_POINTS * count), replace=False))

    def train() -> Points:
        kmeans = _alone().Kmeans(
            m, count, niter=TRAINING_ROUNDS, seed=int(rng.integers(2**31)), min_points_per_centroid=1
        )
        kmeans.train(P[chosen])
        return np.asarray(kmeans.centroids, dtype=np.float32)

    centres = pool.submit(train).result()

    def assign(run: tuple[int, int]) -> NDArray[np.int32]:
        _, found = _alone().knn(P[run[0] : run[1]], centres, 1)
        return np.asarray(found[:, 0], dtype=np.int32)

    return centres, np.concatenate(list(pool.map(assign, _runs(n, 16384))))


def _compare(
    points: Points, centres: Points, bounds: NDArray[np.int64], k: int, compared: int, pool: ThreadPoolExecutor
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The nearest among the points of the lists around each list; points are in the order of lists."""
    n, count = len(points), len(centres)
    indices, squares = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    sizes = np.diff(bounds)

    def search(run: tuple[int, int]) -> None:
        faiss = _alone()
        _, around = faiss.knn(centres[run[0] : run[1]], centres, min(count, max(16, 8 * compared // LIST_POINTS)))
        for own, others in zip(range(*run), around, strict=True):
            low, high = bounds[own], bounds[own + 1]
            if low == high:
                continue
            # Its own list, then the nearest others, until there are points enough.
            others = np.concatenate([[own], others[others != own]])
            enough = int(np.searchsorted(np.cumsum(sizes[others]), compared)) + 1
            others = np.sort(others[:enough])
            if sizes[others].sum() <= k:
                others = np.arange(count)
            candidates = np.concatenate([np.arange(bounds[c], bounds[c + 1], dtype=np.int32) for c in others])
            found, near = faiss.knn(points[low:high], points[candidates], k + 1)
            near = candidates[near]
            # Without the point itself, or without the last where equal points have kept it out.
            keep = near != np.arange(low, high, dtype=np.int32)[:, np.newaxis]
            keep[keep.all(axis=1), -1] = False
            indices[low:high] = near[keep].reshape(-1, k)
            squares[low:high] = found[keep].reshape(-1, k)

    list(pool.map(search, _runs(count, 16)))
    return indices, squares


def _improve(
    points: Points, indices: NDArray[np.int32], squares: NDArray[np.float32], pool: ThreadPoolExecutor, threads: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    from mlfs_dask.blocks import near_points_compiled

    n, asked = len(indices), min(HELD, indices.shape[1])
    near, found = np.empty_like(indices), np.empty_like(squares)

    back = near_points_compiled.reverse(indices, BACK)

    def run(part: tuple[int, int]) -> None:
        rows = slice(*part)
        near_points_compiled.improve(points, indices, squares, asked, back, *part, near[rows], found[rows])

    list(pool.map(run, _runs(n, -(-n // (4 * threads)))))
    return near, found


def _nearest(queries: Points, points: Points, k: int, pool: ThreadPoolExecutor, threads: int) -> NDArray[np.int64]:
    """The k nearest points of a few, exactly."""
    runs = _runs(len(points), max(65536, k))

    def search(run: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        squares, near = _alone().knn(queries, points[run[0] : run[1]], min(k, run[1] - run[0]))
        return squares, near + run[0]

    pieces = list(pool.map(search, runs))
    squares, near = (np.concatenate(parts, axis=1) for parts in zip(*pieces, strict=True))
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(near, order, axis=1)


def _recall(indices: NDArray[np.int32], truth: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    """Share of the true neighbours that were found."""
    k = indices.shape[1]
    shares = []
    for found, near, row in zip(indices, truth, rows, strict=True):
        shares.append(len(np.intersect1d(found, near[near != row][:k])) / k)
    return float(np.mean(shares))
