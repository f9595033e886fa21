"""Points near to each other, approximately: lists of points around centres, then neighbours of neighbours.

k-means (Faiss) sorts the points into lists. The points of a list are compared with those of the lists around it by
matrix products (Faiss), and what that missed is sought among the neighbours of neighbours (compiled). How many lists
are compared is doubled until a sample of points is served well. Everything is settled by the points, their order and a
seed: threads change nothing.

It is one index, in one process: in some tens of dimensions neighbours lie on all sides. Of 200 000 rows of ten factors
and noise, a group of 25 000 near rows and the 25 000 nearest around it hold 73 % of the group's neighbours, so that
groups cannot be searched apart. What is held for every point may be in files (`row_arrays.RowSpace`).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, give_back, row_blocks

logger = logging.getLogger(__name__)

Points = NDArray[np.float32]

#: Points of a list, on average, and most lists.
LIST_POINTS = 512
MAX_LISTS = 4096

#: Points a centre is made of, and rounds of k-means.
TRAINING_POINTS = 32
TRAINING_ROUNDS = 6

#: Points that those of a list are compared with at first, how often that may be doubled, and the gain in recall below
#: which it is not again: points that have no structure, as those of a first guess, are not worth all pairs.
FIRST_COMPARED = 2048
DOUBLINGS = 4
LEAST_DOUBLING_GAIN = 0.05

#: Neighbours held for every point, at least, and asked for theirs, at most; most rounds of that, and the gain in recall
#: below which it ends.
HELD = 24
ROUNDS = 16
LEAST_GAIN = 0.01

#: Recall of the points that were near before from which they are asked: lists that are compared give more than less.
WORTH_ASKING = 0.5

#: Points that have a point as a neighbour and are asked by it.
BACK = 16

#: Rounds go through the points in so many parts at least, each of which needs 4 bytes a point.
PARTS = 128

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


def near_points(
    P: Points,
    k: int,
    *,
    seed: int,
    threads: int = 1,
    space: RowSpace = IN_MEMORY,
    start: NDArray[np.int32] | None = None,
    wanted: int | None = None,
) -> NearPoints:
    """About the k nearest points of every point by Euclidean distance.

    Parameters
    ----------
    P : float32 array, shape (n, m)
        Around zero. Put in the order of the lists: it is another one afterwards.
    k : int
        Less than n.
    seed : int
        Settles the sample of which centres are made.
    threads : int
    space : RowSpace
        Where what is held for every point is kept.
    start : int32 array, shape (n, k), optional
        Different points that were near each point before it moved: they and their neighbours are asked first, and
        where that is enough no lists are compared. k is at least `HELD` then, or all other points.
    wanted : int, optional
        How many of the k nearest are to be found, `ENOUGH` of them; all by default. The others are then some that were
        met on the way.

    Notes
    -----
    Holds `near_points_bytes` beside P. Few points are compared all with all.

    Examples
    --------
    >>> near_points(np.array([[0.0], [1.0], [3.0]], dtype=np.float32), 1, seed=0).indices.ravel()
    array([1, 0, 1], dtype=int32)
    """
    n = len(P)
    wanted = k if wanted is None else wanted
    rng = np.random.default_rng(seed)
    with runtime.TaskThreads(threads, "mlfs-search") as pool:
        centres, lists = _lists(P, rng, pool)
        order = np.argsort(lists, kind="stable").astype(np.int32)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(lists, minlength=len(centres)))])
        del lists
        place = np.empty(n, np.int32)
        place[order] = np.arange(n, dtype=np.int32)
        _reorder(P, order)
        sample = np.sort(rng.choice(n, size=min(n, SAMPLE_POINTS), replace=False))
        truth = _nearest(P[sample], P, wanted + 1, pool)
        held = min(max(k, HELD), n - 1)
        now, after = (_Found(*(space.empty(n, held, kind) for kind in _KINDS)) for _ in range(2))
        _nothing(now)
        recall, before = 0.0, -np.inf
        if start is not None:
            _known(P, start, order, place, now, after.indices, pool)
            recall = _recall(now.indices[sample, :k], truth, sample)
            if recall >= WORTH_ASKING:
                now, after, recall = _asked(P, now, after, k, truth, sample, pool, space)
            logger.info("near points: from those of before, recall %.3f", recall)
        compared, most = max(FIRST_COMPARED, 4 * (held + 1)), 0
        for doubled in range(DOUBLINGS + 1):
            if recall >= ENOUGH or recall < before + LEAST_DOUBLING_GAIN:
                break
            most = compared = min(compared, n)
            before = recall if doubled else -np.inf
            _compare(P, centres, bounds, now, compared, pool)
            if compared == n:  # all with all, whoever of equal points it is
                break
            now, after, recall = _asked(P, now, after, k, truth, sample, pool, space)
            logger.info("near points: %d compared, recall %.3f", compared, recall)
            compared *= 2
    indices = now.indices
    space.release(*after, now.squares, now.fresh)
    del now, after  # which is what releases them in memory
    near = space.empty(n, k, np.int32)
    for part in row_blocks(n, held):
        near[part] = order[indices[place[part], :k]]
    space.release(indices)
    return NearPoints(near, most)


def near_points_bytes(n: int, m: int, k: int) -> int:
    """What `near_points` holds beside the points that it is given, in bytes: all of it in its space but for 24 n."""
    held = max(k, HELD)
    return 18 * n * held + 5 * n * BACK + 4 * n * k + 24 * n


class _Found(NamedTuple):
    """Points near each point, nearest first, their squared distances, and whether they are new; shape (n, held)."""

    indices: NDArray[np.int32]
    squares: NDArray[np.float32]
    fresh: NDArray[np.bool_]


_KINDS = (np.int32, np.float32, np.bool_)


def _asked(
    P: Points,
    now: _Found,
    after: _Found,
    k: int,
    truth: NDArray[np.int64],
    sample: NDArray[np.int64],
    pool: ThreadPoolExecutor,
    space: RowSpace,
) -> tuple[_Found, _Found, float]:
    """What rounds of asking neighbours make of `now`, the other array, and the recall of its first k."""
    recall = _recall(now.indices[sample, :k], truth, sample)
    for _ in range(ROUNDS):
        if recall >= ENOUGH:
            break
        before = recall
        _improve(P, now, after, pool, space, f"near points: asking neighbours, recall {recall:.2f} so far")
        now, after = after, now
        recall = _recall(now.indices[sample, :k], truth, sample)
        if recall < before + LEAST_GAIN:
            break
    return now, after, recall


def _nothing(found: _Found) -> None:
    for part in row_blocks(*found.indices.shape):
        found.indices[part], found.squares[part], found.fresh[part] = -1, np.inf, False


def _known(
    P: Points,
    start: NDArray[np.int32],
    order: NDArray[np.int32],
    place: NDArray[np.int32],
    into: _Found,
    aside: NDArray[np.int32],
    pool: ThreadPoolExecutor,
) -> None:
    """Points that were near before, nearest first; `start` is not in the order of the lists, P is."""
    from mlfs_dask.blocks import near_points_compiled

    n = len(P)
    parts = _runs(n, max(1, -(-n // PARTS)))

    def rank(part: tuple[int, int]) -> None:
        rows = slice(*part)
        aside[rows] = place[start[order[rows]]]
        near_points_compiled.rank_candidates(P, aside, *part, into.indices[rows], into.squares[rows])
        into.fresh[rows] = True
        give_back()
        done()

    with runtime.stage("near points: those of before", len(parts)) as done:
        list(pool.map(rank, parts))


def _reorder(P: Points, order: NDArray[np.int32]) -> None:
    """P[order], in place: each row moves to where it belongs, along the cycles of the permutation."""
    from mlfs_dask.blocks import near_points_compiled

    near_points_compiled.reorder(P, order)
    give_back()


def _alone() -> Any:
    """Faiss, kept to one thread in this thread: threads are ours."""
    import faiss

    faiss.omp_set_num_threads(1)
    return faiss


def _runs(total: int, step: int) -> list[tuple[int, int]]:
    return [(low, min(low + step, total)) for low in range(0, total, step)]


def _lists(P: Points, rng: np.random.Generator, pool: ThreadPoolExecutor) -> tuple[Points, NDArray[np.int32]]:
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

    with runtime.stage("near points: centres"):
        centres = pool.submit(train).result()

    def assign(run: tuple[int, int]) -> NDArray[np.int32]:
        _, found = _alone().knn(P[run[0] : run[1]], centres, 1)
        done()
        return np.asarray(found[:, 0], dtype=np.int32)

    runs = _runs(n, 16384)
    with runtime.stage("near points: lists", len(runs)) as done:
        return centres, np.concatenate(list(pool.map(assign, runs)))


def _compare(
    points: Points, centres: Points, bounds: NDArray[np.int64], into: _Found, compared: int, pool: ThreadPoolExecutor
) -> None:
    """The nearest of those found and of the points of the lists around each list; points are in the order of lists."""
    from mlfs_dask.blocks import near_points_compiled

    count, k = len(centres), into.indices.shape[1]
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
            indices, squares, fresh = (array[low:high] for array in into)
            near_points_compiled.join(indices, squares, fresh, near[keep].reshape(-1, k), found[keep].reshape(-1, k))
        give_back()
        done()

    runs = _runs(count, 16)
    with runtime.stage(f"near points: {compared:,} compared with each", len(runs)) as done:
        list(pool.map(search, runs))


def _improve(
    points: Points, found: _Found, into: _Found, pool: ThreadPoolExecutor, space: RowSpace, label: str
) -> None:
    """The nearest of those found and of those that they have found, or by whom they were."""
    from mlfs_dask.blocks import near_points_compiled

    n, k = found.indices.shape
    asked = min(HELD, k)
    back, fresh_back = space.empty(n, BACK, np.int32), space.empty(n, BACK, np.bool_)
    runs = _runs(n, max(1, -(-n // PARTS)))

    def run(part: tuple[int, int]) -> None:
        written = (array[slice(*part)] for array in into)
        near_points_compiled.improve(points, *found, asked, back, fresh_back, *part, *written)
        give_back()
        done()

    with runtime.stage(label, len(runs)) as done:
        near_points_compiled.reverse(found.indices, found.fresh, back, fresh_back)
        list(pool.map(run, runs))
    space.release(back, fresh_back)


def _nearest(queries: Points, points: Points, k: int, pool: ThreadPoolExecutor) -> NDArray[np.int64]:
    """The k nearest points of a few, exactly."""
    runs = _runs(len(points), max(65536, k))

    def search(run: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        squares, near = _alone().knn(queries, points[run[0] : run[1]], min(k, run[1] - run[0]))
        give_back()
        done()
        return squares, near + run[0]

    with runtime.stage(f"near points: true ones of {len(queries)}", len(runs)) as done:
        pieces = list(pool.map(search, runs))
    squares, near = (np.concatenate(parts, axis=1) for parts in zip(*pieces, strict=True))
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(near, order, axis=1)


def _recall(indices: NDArray[np.int32], truth: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    """Share of the true neighbours that were found; `truth` has one more than are wanted, for the row itself."""
    wanted = truth.shape[1] - 1
    shares = []
    for found, near, row in zip(indices, truth, rows, strict=True):
        shares.append(len(np.intersect1d(found, near[near != row][:wanted])) / wanted)
    return float(np.mean(shares))
