"""Nearest neighbours of all rows, exactly, by pairs of blocks: a group of rows is held, and all rows stream past it.

One reading of X for every group, and groups as large as memory allows. What comes back is k indices and distances a
row, on the driver; nothing n × n is formed. The result does not depend on how X is cut (`blocks.neighbours`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import caching, runtime
from mlfs_dask.blocks.neighbours import SCRATCH_BYTES, NearestRows, RankedRows
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.primitives.linear import Scaling
from mlfs_dask.primitives.passes import PassRecord, compute_graphs, process_name, send, send_again, told
from mlfs_dask.primitives.plan import USABLE_SHARE, PassPlan, split_evenly
from mlfs_dask.primitives.row_passes import IN_FLIGHT_BYTES
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, give_back, neighbour_graph
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Matrix, Profile, RowSource

#: Bytes of a held group of rows, as float64, where memory allows more.
GROUP_BYTES = 256 * 2**20

GraphKind: TypeAlias = Literal["exact", "approximate", "auto"]

#: Recall below which is warned.
LEAST_RECALL = 0.9

#: Pairs of sparse rows above which the compiled search is loaded: SciPy's products take 0.4 microseconds a pair.
COMPILED_PAIRS = 2 * 10**6

#: Groups are not cut smaller than this for the sake of more tasks.
FEWEST_ROWS = 512


class Neighbours(NamedTuple):
    """The k nearest rows of every row.

    Attributes
    ----------
    indices : int64 array, shape (n, k)
        Nearest first, ties by lower index; never the row itself.
    distances : float64 array, shape (n, k)
        Squared Euclidean distances, or whatever the search is about.
    """

    indices: NDArray[np.int64]
    distances: NDArray[np.float64]

    def to_csr(self, values: NDArray[np.float64] | None = None, *, space: RowSpace = IN_MEMORY) -> sp.csr_array:
        """The graph with an entry for each neighbour, k a row, as a canonical (n, n) csr_array.

        Parameters
        ----------
        values : float64 array, shape (n, k), optional
            Entries in the order of `indices`; the distances by default. Zeros are stored.
        space : RowSpace
            Where the graph is kept.

        Examples
        --------
        >>> graph = Neighbours(np.array([[1], [0]]), np.array([[4.0], [4.0]])).to_csr()
        >>> graph.toarray()
        array([[0., 4.],
               [4., 0.]])
        """
        return neighbour_graph(self.indices, self.distances if values is None else values, space)


def graph_kind(asked: GraphKind, work: float, most: float) -> str:
    """ "exact" or "approximate": what is asked for, and by default the exact one if it takes little.

    >>> graph_kind("auto", 10, 100), graph_kind("auto", 1000, 100), graph_kind("exact", 1000, 100)
    ('exact', 'approximate', 'exact')
    """
    if asked == "auto":
        return "exact" if work <= most else "approximate"
    return asked


def facts_to_array(facts: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Plain facts about a graph as an array, which can be kept beside its other arrays.

    >>> facts_from_array(facts_to_array({"kind": "exact"}))
    {'kind': 'exact'}
    """
    return np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8).copy()


def facts_from_array(array: NDArray[np.uint8]) -> dict[str, Any]:
    """The facts of `facts_to_array`."""
    facts: dict[str, Any] = json.loads(array.tobytes())
    return facts


def recall_warnings(facts: Mapping[str, Any] | None) -> list[Warning]:
    """What is told of a graph that misses many neighbours: facts with a `recall` below `LEAST_RECALL`."""
    if facts is None or facts.get("recall", 1.0) >= LEAST_RECALL:
        return []
    return [
        UserWarning(
            f"The approximate neighbour graph holds {facts['recall']:.0%} of the true neighbours of {facts['sample']} "
            "sampled rows: these are hardly nearer than other rows. graph='exact' finds them all, and takes longer."
        )
    ]


def search_threads(resources: Resources) -> int:
    """Threads with which this process may search while the workers of a cluster wait."""
    return len(os.sched_getaffinity(0)) if resources.client is not None else resources.threads_per_worker


@dataclass(frozen=True)
class Search:
    """Plain parameters of a search, which travel to tasks."""

    k: int
    scaling: Scaling | None
    compiled: bool = False

    def scaled(self, X: Matrix) -> Matrix:
        """Rows as float64 in which distances are taken. Centring changes no distance: sparse rows go without it."""
        if sp.issparse(X):
            wide = sp.csr_array(X.astype(np.float64))
            if self.scaling is not None:
                wide.data *= self.scaling.factor[wide.indices]
            return wide
        wide = X.astype(np.float64)
        if self.scaling is not None:
            wide -= self.scaling.centre
            wide *= self.scaling.factor
        return wide

    def begin(
        self,
        blocks: Iterable[Block],
        low: int,
        high: int,
        candidates: NDArray[Any] | None = None,
        number: int | None = None,
    ) -> NearestRows | RankedRows:
        """Hold rows low..high-1 of the blocks, for a search among all rows or among their candidates.

        `number` is what the first of them is among all rows, where that is not `low`.
        """
        pieces = []
        for block in blocks:
            part = block.X[max(low - block.start, 0) : max(high - block.start, 0)]
            if part.shape[0]:
                pieces.append(self.scaled(part))
        if sp.issparse(pieces[0]):
            Q = sp.csr_array(sp.vstack(pieces, format="csr"))
        else:
            Q = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        if candidates is None:
            return NearestRows(Q, low if number is None else number, self.k, compiled=self.compiled)
        return RankedRows(Q, candidates, self.k, compiled=self.compiled)

    def pass_by(self, nearest: NearestRows | RankedRows, blocks: Iterable[Block]) -> None:
        """Let all rows of the blocks be considered."""
        for block in blocks:
            nearest.add(self.scaled(block.X), block.start)


def knn_graph(
    source: RowSource,
    k: int,
    resources: Resources,
    *,
    scaling: Scaling | None = None,
    space: RowSpace = IN_MEMORY,
) -> tuple[Neighbours, list[PassRecord]]:
    """The k nearest rows of every row by Euclidean distance, exactly.

    Parameters
    ----------
    source : RowSource
        X of shape (n, d), finite.
    k : int
        At most n − 1 neighbours are found.
    resources : Resources
    scaling : Scaling, optional
        Distances are between centred and scaled rows.
    space : RowSpace
        Where the graph is kept.

    Returns
    -------
    Neighbours
        With min(k, n − 1) columns.
    records : list of PassRecord
        One for every reading of X: as many as there are groups; none where the graph is in the cache.

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    profile = source.profile
    k = min(k, profile.n - 1)
    if k < 1:
        return Neighbours(np.empty((profile.n, 0), np.int64), np.empty((profile.n, 0))), []
    moved = None if scaling is None else [scaling.centre, scaling.factor]
    kept = caching.slot(source, "neighbours", {"k": k, "scaling": moved})
    arrays = kept.load(rows=Neighbours._fields)
    if arrays is not None:
        return Neighbours(**arrays), []
    search = Search(k, scaling or around_zero(source), is_compiled(profile))
    neighbours, records = search_groups(source, search, plan_knn(source, k, resources), resources, space=space)
    kept.save(neighbours._asdict())
    return neighbours, records


def search_groups(
    source: RowSource,
    search: Search,
    plan: PassPlan,
    resources: Resources,
    *,
    candidates: NDArray[Any] | None = None,
    space: RowSpace = IN_MEMORY,
) -> tuple[Neighbours, list[PassRecord]]:
    """Let all rows pass each group of rows of `plan_knn`; with candidates (n, c) only those are looked at.

    Some groups at a time, so that what travels stays within `IN_FLIGHT_BYTES`; all but what is in `space`.

    Raises
    ------
    ClusterLostError
    """
    profile, k = source.profile, search.k
    started = time.perf_counter()
    # Every group has all of X pass.
    each = len(plan.runs) if getattr(source, "holds_blocks", False) else profile.partitions
    runtime.emit("pass", label="neighbours", partitions=len(plan.runs) * each)
    indices, distances = space.empty(profile.n, k, np.int64), space.empty(profile.n, k)
    width = 16 * k + (0 if candidates is None else candidates.dtype.itemsize * candidates.shape[1])
    peak = 0
    for runs in _waves(plan.runs, width, resources.slots):
        parts: list[Any] = [None if candidates is None else candidates[low:high] for low, high in runs]
        pieces = _search_wave(source, search, runs, plan, resources, parts)
        for (low, high), (found, squares, held) in zip(runs, pieces, strict=True):
            indices[low:high], distances[low:high] = found, squares
            peak = max(peak, *held.values())
        give_back()
    seconds = time.perf_counter() - started
    runtime.emit("pass-done", label="neighbours", seconds=seconds)
    readings = len(plan.runs)
    record = PassRecord(plan.tasks // readings, profile.read_bytes, seconds / readings, peak)
    return Neighbours(indices, distances), [record] * readings


_Piece = tuple[NDArray[np.int64], NDArray[np.float64], dict[str, int]]


def _waves(runs: Sequence[tuple[int, int]], width: int, slots: int) -> Iterator[list[tuple[int, int]]]:
    """Groups of rows one after another, so many at a time as have `IN_FLIGHT_BYTES`, but one for every slot."""
    wave: list[tuple[int, int]] = []
    held = 0
    for low, high in runs:
        if len(wave) >= slots and held + (high - low) * width > IN_FLIGHT_BYTES:
            yield wave
            wave, held = [], 0
        wave.append((low, high))
        held += (high - low) * width
    yield wave


def _search_wave(
    source: RowSource,
    search: Search,
    runs: Sequence[tuple[int, int]],
    plan: PassPlan,
    resources: Resources,
    parts: Sequence[Any],
) -> list[_Piece]:
    if getattr(source, "holds_blocks", False):
        return _search_pairs(source, search, runs, plan, resources, parts)
    if resources.client is not None and not getattr(source, "in_memory", False):
        return send_again(lambda: _search_there(source, search, runs, plan, resources, parts), resources)
    return _search_here(source, search, runs, resources, parts)


def around_zero(source: RowSource) -> Scaling | None:
    """A scaling that only moves dense rows to around zero, where the search has most digits."""
    low, high = source.features.minimum, source.features.maximum
    if source.profile.sparse or low is None or high is None:
        return None
    return Scaling(low / 2 + high / 2, np.ones(len(low)))


def is_compiled(profile: Profile) -> bool:
    """Whether a search loads compiled loops: among many sparse rows."""
    return profile.sparse and profile.n**2 > COMPILED_PAIRS


def plan_knn(source: RowSource | Profile, k: int, resources: Resources) -> PassPlan:
    """Groups of rows to hold (`runs`, as rows), and what a process needs for one.

    Raises
    ------
    DoesNotFitError
        Even a small group does not fit beside two blocks.
    """
    profile = source if isinstance(source, Profile) else source.profile
    threads = resources.threads_per_worker
    usable = int(resources.memory_limit * USABLE_SHARE)
    if profile.sparse:
        row = 12 * -(-profile.nonzeros // max(profile.n, 1)) + 8
        block = 12 * profile.block_bytes // profile.itemsize
    else:
        row, block = 8 * profile.d, 8 * profile.block_rows * profile.d
    fixed = profile.buffer_bytes + block + SCRATCH_BYTES
    # The group exists twice while its pieces are put together, and its result once more when it leaves.
    row = 2 * row + 40 * k
    library = resources.compiled_bytes if is_compiled(profile) else 0
    base = resources.process_bytes + library
    room = min((usable - base) // threads - fixed, 2 * GROUP_BYTES)
    if getattr(source, "holds_blocks", False):
        runs = tuple(
            (int(a), int(b))
            for a, b in zip(source.row_offsets[:-1], source.row_offsets[1:], strict=True)  # type: ignore[union-attr]
            if b > a
        )
        height = max(b - a for a, b in runs)
        tasks = len(runs) * (len(runs) + 1)
    else:
        groups = max(1, -(-profile.n * row // max(room, 1)), min(resources.slots, profile.n // FEWEST_ROWS))
        runs = split_evenly(profile.n, min(groups, max(1, profile.n // 64)))
        height = -(-profile.n // len(runs))
        tasks = len(runs)
    peak = base + threads * (fixed + height * row)
    if peak > usable:
        raise DoesNotFitError(
            "the neighbour search on a worker",
            projected=peak,
            available=usable,
            cure="give each worker more memory (--memory-limit) or fewer threads (--threads-per-worker 1)",
        )
    return PassPlan(runs, 1, 1, tasks, profile.read_bytes * len(runs), peak)


def _search_group(
    search: Search,
    source: RowSource,
    low: int,
    high: int,
    candidates: NDArray[Any] | None,
    asking: RowSource | None = None,
) -> _Piece:
    """All of X past rows low..high-1, of X or of other rows that ask."""
    held = source if asking is None else asking
    first = int(np.searchsorted(held.row_offsets, low, side="right")) - 1
    last = int(np.searchsorted(held.row_offsets, high, side="left"))
    # Other rows are numbered after those of X: none of them is itself among the candidates.
    number = None if asking is None else source.profile.n + low
    nearest = search.begin(held.stream(first, last), low, high, candidates, number)
    offsets = source.row_offsets
    partitions = len(offsets) - 1
    search.pass_by(nearest, told(source.stream(0, partitions), offsets, 0, partitions))
    return *nearest.nearest(), {process_name(): runtime.peak_rss()}


def _search_task(search: Search, source: RowSource, low: int, high: int, candidates: NDArray[Any] | None) -> _Piece:
    runtime.reset_peak_rss()
    with runtime.one_blas_thread():
        return _search_group(search, source, low, high, candidates)


def _search_here(
    source: RowSource, search: Search, runs: Sequence[tuple[int, int]], resources: Resources, parts: Sequence[Any]
) -> list[_Piece]:
    def group(run: tuple[int, int], part: NDArray[Any] | None) -> _Piece:
        return _search_group(search, source, *run, part)

    return _in_threads(group, runs, parts, threads=resources.threads_per_worker)


_T = TypeVar("_T")


def _in_threads(
    function: Callable[..., _T], runs: Sequence[tuple[int, int]], *others: Sequence[Any], threads: int
) -> list[_T]:
    """What a function gives for every run of rows, some of them at the same time."""
    with runtime.one_blas_thread():
        if min(threads, len(runs)) <= 1:
            return list(map(function, runs, *others))
        with runtime.TaskThreads(min(threads, len(runs)), "mlfs-search") as pool:
            return list(pool.map(function, runs, *others))


def _search_there(
    source: RowSource,
    search: Search,
    runs: Sequence[tuple[int, int]],
    plan: PassPlan,
    resources: Resources,
    parts: Sequence[Any],
) -> list[_Piece]:
    from dask.delayed import delayed

    held = delayed(source, name=f"mlfs-source-{os.urandom(8).hex()}", traverse=False)
    parameters = delayed(search, name=f"mlfs-search-{os.urandom(8).hex()}", traverse=False)
    task = delayed(_search_task, pure=False)
    if resources.client is not None and parts[0] is not None:
        parts = send(list(parts), resources)
    graphs = [task(parameters, held, low, high, part) for (low, high), part in zip(runs, parts, strict=True)]
    return compute_graphs(graphs, plan, resources)


def _search_pairs(
    source: Any,
    search: Search,
    runs: Sequence[tuple[int, int]],
    plan: PassPlan,
    resources: Resources,
    parts: Sequence[Any],
) -> list[_Piece]:
    """The blocks of a Dask array: every chunk is held in turn while all chunks go past it, a task each."""
    from dask.delayed import delayed

    parameters = delayed(search, name=f"mlfs-search-{os.urandom(8).hex()}", traverse=False)
    offsets = source.row_offsets
    chunks = {
        (int(offsets[i]), int(offsets[i + 1])): source.delayed_blocks(i)
        for i in range(len(offsets) - 1)
        if offsets[i + 1] > offsets[i]
    }
    begin, step = delayed(_begin_pair, pure=False), delayed(_add_pair, pure=False)
    finish = delayed(_finish_pair, pure=False)
    graphs = []
    for (low, high), part in zip(runs, parts, strict=True):
        nearest = begin(parameters, chunks[low, high], low, high, part)
        for other in chunks.values():
            nearest = step(parameters, nearest, other)
        graphs.append(finish(nearest))
    return compute_graphs(graphs, plan, resources)


def _begin_pair(
    search: Search, held: Any, low: int, high: int, candidates: NDArray[Any] | None
) -> NearestRows | RankedRows:
    return search.begin(held.blocks(), low, high, candidates)


def _add_pair(search: Search, nearest: NearestRows | RankedRows, held: Any) -> NearestRows | RankedRows:
    # What a task was given belongs to Dask, and the task may run twice.
    copy = nearest.copy()
    with runtime.one_blas_thread():
        search.pass_by(copy, held.blocks())
    runtime.emit_from_task("partitions", done=1)
    return copy


def _finish_pair(nearest: NearestRows | RankedRows) -> _Piece:
    return *nearest.nearest(), {process_name(): runtime.peak_rss()}


def knn_of_points(Z: Matrix, k: int, *, threads: int = 1) -> Neighbours:
    """The k nearest rows of every row of a matrix in this process, exactly.

    Parameters
    ----------
    Z : float64 ndarray or csr_array, shape (n, m)
    k : int
        At most n − 1 neighbours are found: a row is not its own.
    threads : int
        Groups of rows that are searched at the same time.

    Returns
    -------
    Neighbours
        The same for any number of threads.

    Examples
    --------
    >>> knn_of_points(np.array([[0.0], [1.0], [3.0]]), 1).indices.ravel()
    array([1, 0, 1])
    """
    if sp.issparse(Z):
        Z = sp.csr_array(Z.astype(np.float64))
    else:
        # Around zero, where the search has most digits.
        centre = Z.mean(axis=0) if len(Z) else np.zeros(Z.shape[1])
        Z = np.ascontiguousarray(Z - centre, dtype=np.float64)
    n = Z.shape[0]
    k = min(k, n - 1)
    if k < 1:
        return Neighbours(np.empty((n, max(k, 0)), np.int64), np.empty((n, max(k, 0))))
    runs = split_evenly(n, max(1, min(threads, n // FEWEST_ROWS)))

    def search(run: tuple[int, int]) -> NearestRows:
        nearest = NearestRows(Z[run[0] : run[1]], run[0], k, compiled=n * n > COMPILED_PAIRS)
        nearest.add(Z, 0)
        return nearest

    found = _in_threads(search, runs, threads=threads)
    return Neighbours(np.concatenate([f.indices for f in found]), np.concatenate([f.distances for f in found]))


def nearest_rows(
    source: RowSource,
    k: int,
    scaling: Scaling,
    runs: Sequence[tuple[int, int]],
    *,
    asking: RowSource | None = None,
    threads: int = 1,
) -> Neighbours:
    """The k nearest of some rows, exactly: to each of themselves, or to each of other rows, in this process.

    Parameters
    ----------
    source : RowSource
        Rows in memory or in a file, without a digest.
    k : int
        No more than there are rows, or than there are others where the rows themselves ask.
    scaling : Scaling
        Distances are between centred and scaled rows.
    runs : sequence of (int, int)
        Groups of the rows that ask, first and last (exclusive), in their order. Each is held as float64 while all rows
        of the source pass by.
    asking : RowSource, optional
        Rows whose neighbours are looked for; by default those of the source.
    threads : int
        Groups that are searched at the same time.

    Returns
    -------
    Neighbours
        The same for any runs and threads.
    """
    rows = (source if asking is None else asking).profile.n
    search = Search(k, scaling, source.profile.sparse and source.profile.n * rows > COMPILED_PAIRS)
    indices, distances = np.empty((rows, k), np.int64), np.empty((rows, k))

    def group(run: tuple[int, int]) -> None:
        part = slice(*run)
        indices[part], distances[part], _ = _search_group(search, source, *run, None, asking)

    started = time.perf_counter()
    runtime.emit("pass", label="neighbours", partitions=len(runs) * source.profile.partitions)
    _in_threads(group, runs, threads=threads)
    runtime.emit("pass-done", label="neighbours", seconds=time.perf_counter() - started)
    return Neighbours(indices, distances)
