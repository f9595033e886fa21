"""The Euclidean neighbour graph of the rows of X, exact or approximate, and which of the two.

The approximate one reads X for a sample, on which principal components are found, and for what all rows are in these
components: that is searched on the driver (`primitives.near_points`). More candidates than neighbours come back, and X
passes once more by groups of rows that rank theirs by their true distances (`blocks.neighbours`). How many of the true
neighbours were found is measured on rows of the sample.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import caching, runtime
from mlfs_dask.blocks.neighbours import SCRATCH_BYTES, NearestRows, merge_nearest, recall
from mlfs_dask.primitives.linear import Scaling
from mlfs_dask.primitives.near_points import HELD, NearPoints, near_points, near_points_bytes
from mlfs_dask.primitives.neighbours import (
    GraphKind,
    Neighbours,
    Search,
    around_zero,
    facts_from_array,
    facts_to_array,
    graph_kind,
    is_compiled,
    knn_graph,
    knn_of_points,
    plan_knn,
    search_groups,
    search_threads,
)
from mlfs_dask.primitives.passes import PassRecord, State
from mlfs_dask.primitives.plan import PassPlan, Phase
from mlfs_dask.primitives.row_passes import IN_FLIGHT_BYTES, Rows, plan_rows, run_row_pass
from mlfs_dask.primitives.sample import plan_taking, take_rows
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, block_rows, column_sums, give_back, row_blocks
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Matrix, Profile, RowSource

logger = logging.getLogger(__name__)

#: Multiplications of dense rows up to which a graph that is made once is exact by default: one to two minutes on a
#: core. The choice hangs on the shape of the data alone, so that a result does not depend on the machine.
EXACT_WORK = 4 * 10**12

#: The same for sparse rows: components of texts, say, tell little of which are near, so that more is worth its time.
EXACT_SPARSE_WORK = 10 * EXACT_WORK

#: The same for a graph that is made in every iteration. Few dimensions cost no less than `FEWEST_DIMENSIONS`.
EXACT_WORK_AGAIN = 2 * 10**11
FEWEST_DIMENSIONS = 64

#: What a multiplication of sparse rows costs, in those of dense rows, and what a pair of sparse rows costs beside it.
SPARSE_WORK = 75
SPARSE_PAIR_WORK = 50

#: Features of sparse data are had by unequal numbers of rows: multiplications by so many times as if they were equal,
#: as in texts.
UNEQUAL = 12

#: Core seconds of a multiplication of dense rows, for people.
WORK_SECONDS = 2.5e-11

#: Principal components: enough for this share of the variance, but not more than this many.
EXPLAINED = 0.98
MOST_COMPONENTS = 128

#: Rows of the sample on which components are found, and their bytes as float64.
SAMPLE_ROWS = 8192
SAMPLE_BYTES = 64 * 2**20

#: Rows on which recall is measured, and those of points in memory.
RECALL_ROWS = 500
POINT_RECALL_ROWS = 100


class Graph(NamedTuple):
    """A neighbour graph.

    Attributes
    ----------
    neighbours : Neighbours
        Distances are true ones in approximate graphs, too.
    records : list of PassRecord
        Of the readings that it took.
    facts : dict
        `kind`; of an approximate one also its `recall` on `sample` rows, the `dimensions` of the search, and how many
        rows each was `compared` with at first.
    """

    neighbours: Neighbours
    records: list[PassRecord]
    facts: dict[str, Any]


class GraphPlan(NamedTuple):
    """What a graph will take while it is made.

    Attributes
    ----------
    kind : str
    passes : list of PassPlan
    readings : int
        In all.
    phases : tuple of Phase
        What the driver holds, the neighbours at last.
    compiled : bool
        Whether the driver loads compiled kernels.
    seconds : float
        Of an exact search, roughly.
    """

    kind: str
    passes: list[PassPlan]
    readings: int
    phases: tuple[Phase, ...]
    compiled: bool
    seconds: float = 0.0

    @property
    def note(self) -> str:
        """For people."""
        about = f", about {self.seconds:,.0f} s of search" if self.seconds >= 1 else ""
        return f"{self.kind} neighbour graph, {self.readings} readings{about}"


def exact_work(profile: Profile) -> float:
    """What an exact search among the rows of X takes, in multiplications of dense rows.

    Of dense rows those are n² d; of sparse ones Σ c_f², c_f being the rows that have feature f.
    """
    pairs = float(profile.n) ** 2
    if not profile.sparse:
        return pairs * max(profile.d, FEWEST_DIMENSIONS)
    values = float(profile.nonzeros)
    products = min(UNEQUAL * values**2 / max(profile.d, 1), profile.n * values)
    return pairs * SPARSE_PAIR_WORK + products * SPARSE_WORK


def rows_kind(asked: GraphKind, profile: Profile) -> str:
    """Which graph `row_graph` makes: `exact_work` is compared with `EXACT_WORK`, or `EXACT_SPARSE_WORK`."""
    return graph_kind(asked, exact_work(profile), EXACT_SPARSE_WORK if profile.sparse else EXACT_WORK)


def points_kind(asked: GraphKind, n: int, m: int) -> str:
    """Which graph `point_graph` makes: n² m, m being at least 64, is compared with `EXACT_WORK_AGAIN`."""
    return graph_kind(asked, n * n * max(m, FEWEST_DIMENSIONS), EXACT_WORK_AGAIN)


def row_graph(
    source: RowSource,
    k: int,
    resources: Resources,
    *,
    kind: GraphKind = "auto",
    scaling: Scaling | None = None,
    seed: int = 0,
    space: RowSpace = IN_MEMORY,
) -> Graph:
    """The k nearest rows of every row by Euclidean distance.

    Parameters
    ----------
    source : RowSource
        X of shape (n, d), finite.
    k : int
        At most n − 1 neighbours are found.
    resources : Resources
    kind : {"exact", "approximate", "auto"}
    scaling : Scaling, optional
        Distances are between centred and scaled rows.
    seed : int
        Of the sample and of what is drawn in the search; an exact graph draws nothing.
    space : RowSpace
        Where numbers of every row are kept, the neighbours among them.

    Raises
    ------
    DoesNotFitError, ClusterLostError

    Notes
    -----
    Readings of X: one for each group of rows (`plan_knn`); an approximate graph takes two more. Neither depends on
    how X is cut or on the number of workers, but for the last digits of an approximate graph's components.
    """
    n = source.profile.n
    if min(k, n - 1) < 1 or rows_kind(kind, source.profile) == "exact":
        neighbours, records = knn_graph(source, k, resources, scaling=scaling, space=space)
        return Graph(neighbours, records, {"kind": "exact"})
    k = min(k, n - 1)
    moved = None if scaling is None else [scaling.centre, scaling.factor]
    kept = caching.slot(source, "approximate-neighbours", {"k": k, "scaling": moved, "seed": seed})
    arrays = kept.load(rows=Neighbours._fields)
    if arrays is not None:
        return Graph(Neighbours(arrays["indices"], arrays["distances"]), [], facts_from_array(arrays["facts"]))

    search = Search(k, scaling or around_zero(source), is_compiled(source.profile))
    count = _candidates(n, k)
    plan = plan_knn(source, k + count, resources)
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(n, size=_sample_rows(source.profile), replace=False))
    judged = np.sort(rng.choice(len(chosen), size=min(RECALL_ROWS, len(chosen)), replace=False))
    taken, first = take_rows(source, chosen, resources, label="sample")
    sample = search.scaled(taken)
    with runtime.stage("principal components"):
        components, offset = principal_components(sample, rng)
    statistic = _Components(search, components, offset, sample[judged], k)
    points = space.empty(n, components.shape[1], np.float32)
    _, true, second = run_row_pass(source, statistic, resources, out=[points], label="components")
    seed, threads = int(rng.integers(2**31)), search_threads(resources)
    found = near_points(points, count, seed=seed, threads=threads, space=space)
    del points  # in another order now
    neighbours, records = search_groups(source, search, plan, resources, candidates=found.indices, space=space)
    exact = _without_itself(true[0], true[1], chosen[judged])
    share = recall(neighbours.distances[chosen[judged]], exact)
    facts = approximate_facts(share, len(judged), components.shape[1], found.compared)
    graph = Graph(neighbours, [first, second, *records], facts)
    kept.save({**neighbours._asdict(), "facts": facts_to_array(facts)})
    return graph


def approximate_facts(share: float, sample: int, dimensions: int, compared: int) -> dict[str, Any]:
    """What is told of an approximate graph: its recall on so many rows, and how it was searched."""
    facts = {
        "kind": "approximate",
        "recall": share,
        "sample": sample,
        "dimensions": dimensions,
        "compared": compared,
    }
    logger.info("approximate neighbours: %s", facts)
    return facts


def plan_row_graph(source: RowSource | Profile, k: int, resources: Resources, *, kind: GraphKind = "auto") -> GraphPlan:
    """What `row_graph` takes.

    Raises
    ------
    DoesNotFitError
    """
    profile = source if isinstance(source, Profile) else source.profile
    chosen = rows_kind(kind, profile)
    if chosen == "exact":
        plan = plan_knn(source, k, resources)
        seconds = exact_work(profile) * WORK_SECONDS / resources.slots
        found, compiled = 16 * profile.n * k, resources.client is None and is_compiled(profile)
        one = Phase(min(found, IN_FLIGHT_BYTES), found)
        return GraphPlan(chosen, [plan], len(plan.runs), (one,), compiled, seconds)
    n, d = profile.n, profile.d
    count = _candidates(n, k)
    m = min(d, MOST_COMPONENTS)
    rows = _sample_rows(profile)
    judged = min(RECALL_ROWS, rows)
    width = -(-profile.nonzeros // max(n, 1)) if profile.sparse else d
    empty = np.empty((judged, 0))
    search = Search(k, None, is_compiled(profile))
    statistic = _Components(search, np.empty((0, m)), np.empty(m), empty, k, d=d, held=12 * judged * width)
    passes = [
        plan_taking(source, rows, resources),
        plan_rows(source, statistic, resources, out_given=True),
        plan_knn(source, k + count, resources),
    ]
    travels = min(n * (4 * count + 16 * k), IN_FLIGHT_BYTES)
    # Products of all features, or directions in all of them: as they are found, turned, and on their way to workers.
    directions = 16 * d * d if not profile.sparse and d <= 2048 else 5 * 8 * d * (MOST_COMPONENTS + 10)
    # The sample as it arrives, scaled, and centred: sparse rows have column numbers, too.
    sample = rows * width * (60 if profile.sparse else 32)
    phases = (
        Phase(sample + directions, 0),
        Phase(24 * n, 4 * n * m + near_points_bytes(n, m, count) - 24 * n),
        Phase(travels, 4 * n * count + 16 * n * k),
    )
    return GraphPlan(chosen, passes, 2 + len(passes[-1].runs), phases, True)


def _candidates(n: int, k: int) -> int:
    """Candidates of each row: components tell the order of near rows roughly."""
    return min(n - 1, max(HELD, 2 * k))


def _sample_rows(profile: Profile) -> int:
    width = -(-profile.nonzeros // max(profile.n, 1)) if profile.sparse else profile.d
    return min(profile.n, max(256, min(SAMPLE_ROWS, SAMPLE_BYTES // (12 * max(width, 1)))))


def principal_components(sample: Matrix, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions in which rows differ most, shape (d, m), and what the mean row is in them, shape (m,).

    Parameters
    ----------
    sample : float64 ndarray or csr_array, shape (rows, d)
    rng : Generator
        Of the randomised decomposition of sparse or wide samples, whose mean row is then a direction, too.
    """
    d = sample.shape[1]
    with runtime.one_blas_thread():
        if not sp.issparse(sample) and d <= 2048:
            centred = sample - sample.mean(axis=0)
            values, vectors = np.linalg.eigh(centred.T @ centred)
            values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
            total = values.sum()
        else:
            from sklearn.utils.extmath import randomized_svd

            most = min(MOST_COMPONENTS, *sample.shape)
            _, singular, rows = randomized_svd(sample, most, n_iter=4, random_state=int(rng.integers(2**31)))
            values, vectors = singular**2, rows.T
            squares = sample.multiply(sample) if sp.issparse(sample) else sample * sample
            total = float(squares.sum())
    share = np.cumsum(values) / total if total > 0 else np.ones(len(values))
    enough = int(np.searchsorted(share, EXPLAINED)) + 1
    m = max(1, min(enough, MOST_COMPONENTS, len(values)))
    components = np.ascontiguousarray(vectors[:, :m])
    mean = np.asarray(sample.mean(axis=0)).ravel()
    return components, mean @ components


class _Components:
    """Row statistic: rows in their principal components, and on the way the true neighbours of a few rows."""

    def __init__(
        self,
        search: Search,
        components: NDArray[np.float64],
        offset: NDArray[np.float64],
        judged: Matrix,
        k: int,
        *,
        d: int | None = None,
        held: int = 0,
    ) -> None:
        self.search = search
        self.components = components
        self.offset = offset
        self.judged = judged
        self.k = k + 1  # the row itself is among them
        self.compiled = search.compiled
        self._d = len(components) if d is None else d
        self._held = held

    @property
    def outputs(self) -> Sequence[tuple[int, Any]]:
        return [(len(self.offset), np.float32)]

    @property
    def state_bytes(self) -> int:
        return 16 * self.k * int(self.judged.shape[0])

    result_bytes = 0

    def scratch_bytes(self, profile: Profile) -> int:
        wide = 12 * profile.block_bytes // profile.itemsize if profile.sparse else 8 * profile.block_rows * profile.d
        return (
            wide
            + SCRATCH_BYTES
            + 12 * profile.block_rows * len(self.offset)
            + 8 * self._d * len(self.offset)
            + self._held
        )

    def zero(self) -> State:
        rows = self.judged.shape[0]
        return np.full((rows, self.k), -1, dtype=np.int64), np.full((rows, self.k), np.inf)

    def add_rows(self, state: State, block: Block, inputs: Rows, outputs: Rows) -> None:
        X = self.search.scaled(block.X)
        outputs[0][...] = X @ self.components - self.offset
        nearest = NearestRows(self.judged, np.iinfo(np.int64).max // 2, self.k, compiled=self.compiled)
        nearest.add(X, block.start)
        self.merge(state, nearest.nearest())

    def merge(self, into: State, other: State) -> None:
        into[0][...], into[1][...] = merge_nearest(self.judged, [(into[0], into[1]), (other[0], other[1])], self.k)

    def finalize(self, state: State) -> State:
        return state


def _without_itself(
    indices: NDArray[np.int64], distances: NDArray[np.float64], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Distances of the k nearest, of k + 1 among which the row itself may be."""
    keep = indices != rows[:, np.newaxis]
    keep[keep.all(axis=1), -1] = False  # equal points have kept the row itself out
    without: NDArray[np.float64] = distances[keep].reshape(len(rows), -1)
    return without


def search_points(
    Z: NDArray[np.float64],
    mean: NDArray[np.float64],
    count: int,
    *,
    seed: int,
    threads: int,
    space: RowSpace,
    start: NDArray[np.int32] | None = None,
    wanted: int | None = None,
) -> NearPoints:
    """Candidates of every row of Z, shape (n, m), by an approximate search around the mean of the rows.

    They come in rising order of their numbers. `start` are those of before the rows moved; as many of the nearest as
    are `wanted` are sought.
    """
    n, m = Z.shape
    points = space.empty(n, m, np.float32)
    for part in row_blocks(n, m):
        points[part] = Z[part] - mean
    found = near_points(points, count, seed=seed, threads=threads, space=space, start=start, wanted=wanted)
    space.release(points)  # in another order now
    for part in row_blocks(n, count):
        found.indices[part].sort(axis=1)
    return found


def rank_points(
    Z: NDArray[np.float64],
    mean: NDArray[np.float64],
    candidates: NDArray[np.int32],
    k: int,
    judged: NDArray[np.int64],
    *,
    threads: int,
    space: RowSpace,
) -> tuple[Neighbours, float]:
    """The k nearest among the candidates of every row of Z, and the share of the true ones that some rows have.

    Parameters
    ----------
    Z : float64 array, shape (n, m)
    mean : float64 array, shape (m,)
        Of the rows.
    candidates : int32 array, shape (n, at least k)
        Different ones for a row, in rising order: equal distances keep it.
    k : int
    judged : int64 array
        Rows of which all true neighbours are found.
    threads : int
        They change nothing in the result.
    space : RowSpace
        Where the neighbours are kept.
    """
    from mlfs_dask.blocks import near_points_compiled

    n, m = Z.shape
    indices, distances = space.empty(n, k, np.int64), space.empty(n, k)
    queries = Z[judged] - mean
    step = block_rows(m)
    starts = range(0, n, step)

    def rank(low: int) -> NearestRows:
        part = slice(low, min(low + step, n))
        near_points_compiled.rank_candidates(Z, candidates, part.start, part.stop, indices[part], distances[part])
        exact = NearestRows(queries, np.iinfo(np.int64).max // 2, k + 1)
        exact.add(Z[part] - mean, part.start)
        give_back()
        done()
        return exact

    with (
        runtime.one_blas_thread(),
        runtime.stage("near points: ranking", len(starts), unit="blocks") as done,
        runtime.TaskThreads(threads, "mlfs-search") as pool,
    ):
        pieces = [exact.nearest() for exact in pool.map(rank, starts)]
    nearest, true = merge_nearest(queries, pieces, k + 1)
    share = recall(distances[judged], _without_itself(nearest, true, judged))
    return Neighbours(indices, distances), share


def point_graph(
    Z: NDArray[np.float64],
    k: int,
    *,
    kind: GraphKind = "auto",
    seed: int = 0,
    threads: int = 1,
    space: RowSpace = IN_MEMORY,
) -> Graph:
    """The k nearest rows of every row of an array in this process.

    Parameters
    ----------
    Z : float64 array, shape (n, m)
    k : int
        At most n − 1 neighbours are found.
    kind : {"exact", "approximate", "auto"}
    seed : int
    threads : int
        They change nothing in the result.
    space : RowSpace
        Where an approximate search keeps what it holds for every point, and the graph.

    Examples
    --------
    >>> point_graph(np.array([[0.0], [1.0], [3.0]]), 1).neighbours.indices.ravel()
    array([1, 0, 1])
    """
    n, m = Z.shape
    if min(k, n - 1) < 1 or points_kind(kind, n, m) == "exact":
        return Graph(knn_of_points(Z, k, threads=threads), [], {"kind": "exact"})
    k = min(k, n - 1)
    mean = column_sums(Z) / n
    rng = np.random.default_rng(seed)
    judged = np.sort(rng.choice(n, size=min(n, POINT_RECALL_ROWS), replace=False))
    found = search_points(Z, mean, k, seed=int(rng.integers(2**31)), threads=threads, space=space)
    neighbours, share = rank_points(Z, mean, found.indices, k, judged, threads=threads, space=space)
    space.release(found.indices)
    return Graph(neighbours, [], approximate_facts(share, len(judged), m, found.compared))


def point_graph_bytes(n: int, m: int, k: int, *, kind: GraphKind = "auto") -> tuple[int, int]:
    """What `point_graph` holds beside Z, in bytes: in memory, and for every point in its space."""
    if k < 1:
        return 0, 0
    if points_kind(kind, n, m) == "exact":
        return 8 * n * m, 16 * n * k
    per_row = max(4 * n * m + near_points_bytes(n, m, k) - 24 * n, 4 * n * k + 16 * n * k)
    return 24 * n + 2**26, per_row
