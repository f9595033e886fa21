"""Neighbours by isolation mass: two readings of X make a leaf number a tree for every row, and X is not needed again.

A forest of scikit-learn's isolation trees is grown on rows drawn by their index; one more pass sends every row down
all trees. Masses count all rows, from the leaf numbers. The search runs over those alone (`blocks.isolation`), in
integers, the same for any chunking. An exact one makes about 5 · 10⁹ look-ups a second and core: 50 000 rows take 50
core seconds. More rows are searched approximately, as points that are near where masses are small.
"""

from __future__ import annotations

import importlib.metadata
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import caching, runtime
from mlfs_dask.blocks import isolation as kernels
from mlfs_dask.blocks.isolation import TreeShape, mass_table, tree_shape
from mlfs_dask.blocks.linear import TILE_VALUES, tile_rows
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.primitives.near_points import ENOUGH, LEAST_GAIN, PARTS, NearPoints, near_points, near_points_bytes
from mlfs_dask.primitives.neighbours import (
    GraphKind,
    Neighbours,
    facts_from_array,
    facts_to_array,
    graph_kind,
    search_threads,
)
from mlfs_dask.primitives.passes import PassRecord, State, compute_graphs, send, send_again
from mlfs_dask.primitives.plan import USABLE_SHARE, PassPlan, Phase, split_evenly
from mlfs_dask.primitives.row_passes import Rows, plan_rows, run_row_pass
from mlfs_dask.primitives.sample import plan_taking, take_rows
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, give_back, row_blocks
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Matrix, Profile, RowSource

logger = logging.getLogger(__name__)

#: Bytes of the rows on which the forest is grown, as float32; fewer rows are drawn when features are many.
SAMPLE_BYTES = 64 * 2**20

#: Look-ups above which the compiled search is loaded: below it, NumPy has finished before.
COMPILED_WORK = 10**9

#: Look-ups up to which the search is exact by default: 50 000 rows with 100 trees.
EXACT_LOOKUPS = 2.5 * 10**11

#: Approximate search: rows whose masses settle the points, their dimensions, candidates of a row at least, and rows at
#: most and look-ups in all on which recall is measured.
LANDMARKS = 1024
DIMENSIONS = 64
CANDIDATES = 80
RECALL_ROWS = 200
RECALL_LOOKUPS = 2 * 10**10

#: Times that rows ask their neighbours for theirs, at most.
ASKING_ROUNDS = 8

#: Rows that are turned into points, or ranked, at a time.
_RANKED_ROWS = 16384

#: Tasks a slot gets in a search on a cluster.
TASKS_PER_SLOT = 4


@dataclass(frozen=True)
class Forest:
    """Isolation trees, ready to tell the leaf of any row.

    Attributes
    ----------
    trees : tuple of sklearn.tree._tree.Tree
    shapes : tuple of TreeShape
    shift, scale : float64 array, shape (d,)
        Rows go down the trees as float32 of (x − shift) · scale: a column far from zero would lose its digits.
    """

    trees: tuple[Any, ...]
    shapes: tuple[TreeShape, ...]
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]

    @property
    def code_type(self) -> type[np.unsignedinteger[Any]]:
        """Type of a leaf number: uint8 up to 256 leaves."""
        return np.uint8 if max(shape.n_leaves for shape in self.shapes) <= 256 else np.uint16


def grow_forest(sample: Matrix, *, n_trees: int, max_samples: int, seed: int) -> Forest:
    """scikit-learn's isolation forest on a sample of rows.

    Parameters
    ----------
    sample : ndarray or csr_array, shape (m, d)
        Finite.
    n_trees, max_samples : int
        Every tree is grown on min(max_samples, m) rows of the sample.
    seed : int
    """
    from sklearn.ensemble import IsolationForest

    shift, scale = _towards_float32(sample)
    forest = IsolationForest(
        n_estimators=n_trees, max_samples=min(max_samples, sample.shape[0]), random_state=seed % 2**32
    )
    forest.fit(_single(sample, shift, scale))
    trees = tuple(estimator.tree_ for estimator in forest.estimators_)
    shapes = tuple(tree_shape(tree.children_left, tree.children_right) for tree in trees)
    return Forest(trees, shapes, shift, scale)


def _towards_float32(sample: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shift and scale after which float32 tells the values of each column apart; the values of a sample decide."""
    if sp.issparse(sample):
        low, high = (np.asarray(m.toarray(), np.float64).ravel() for m in (sample.min(axis=0), sample.max(axis=0)))
    else:
        low, high = sample.min(axis=0).astype(np.float64), sample.max(axis=0).astype(np.float64)
    size = np.maximum(np.abs(low), np.abs(high))
    # Sparse rows keep their zeros, and dense rows of the same values should fall into the same leaves.
    far = (high - low < 1e-3 * size) & (not sp.issparse(sample))
    shift = np.where(far, low, 0.0)
    size = np.where(far, high - low, size)
    # Powers of two: scaling changes no digit.
    scale = np.ldexp(1.0, -np.frexp(np.where(size > 0, size, 1.0))[1])
    return shift, scale


def _single(X: Matrix, shift: NDArray[np.float64], scale: NDArray[np.float64]) -> Matrix:
    if sp.issparse(X):
        data = (X.data * scale[X.indices]).astype(np.float32)
        return sp.csr_matrix((data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
    return np.ascontiguousarray(((X - shift) * scale).astype(np.float32))


class LeafNumbers:
    """Row statistic without a state: the leaf of every row in every tree, shape (rows, trees)."""

    state_bytes = 0
    result_bytes = 0

    def __init__(self, forest: Forest) -> None:
        self.forest = forest

    @property
    def outputs(self) -> Sequence[tuple[int, Any]]:
        return [(len(self.forest.trees), self.forest.code_type)]

    def scratch_bytes(self, profile: Profile) -> int:
        nodes = 8 * profile.block_rows
        if profile.sparse:
            return nodes + 24 * profile.block_values + 16 * profile.d
        return nodes + 24 * TILE_VALUES

    def zero(self) -> State:
        return ()

    def add_rows(self, state: State, block: Block, inputs: Rows, outputs: Rows) -> None:
        forest, (codes,) = self.forest, outputs
        step = block.X.shape[0] if sp.issparse(block.X) else tile_rows(block.X.shape[1])
        for low in range(0, block.X.shape[0], max(step, 1)):
            part = slice(low, low + step)
            X = _single(block.X[part], forest.shift, forest.scale)
            for t, (tree, shape) in enumerate(zip(forest.trees, forest.shapes, strict=True)):
                codes[part, t] = shape.leaf[tree.apply(X)]

    def merge(self, into: State, other: State) -> None:
        pass

    def finalize(self, state: State) -> None:
        return None


class MassGraph(NamedTuple):
    """What `isolation_graph` gives: neighbours with their ξ, records of its readings, rows of the sample, facts.

    The facts are `kind`, and of an approximate graph its `recall` on `sample` rows and how many rows were `compared`.
    """

    neighbours: Neighbours
    records: list[PassRecord]
    sample_rows: int
    facts: dict[str, Any]


def isolation_graph(
    source: RowSource,
    k: int,
    resources: Resources,
    *,
    n_trees: int = 100,
    max_samples: int = 256,
    seed: int = 0,
    kind: GraphKind = "exact",
    space: RowSpace = IN_MEMORY,
) -> MassGraph:
    """The k rows of least isolation mass for every row.

    Parameters
    ----------
    source : RowSource
        X of shape (n, d), finite.
    k : int
        At most n − 1 neighbours are found.
    resources : Resources
    n_trees, max_samples : int
        Trees of the forest, and rows that each is grown on.
    seed : int
        Settles which rows are drawn, and every split.
    kind : {"exact", "approximate", "auto"}
        "auto" is exact up to `EXACT_LOOKUPS`.
    space : RowSpace
        Where numbers of every row are kept, the neighbours among them.

    Returns
    -------
    MassGraph
        `neighbours.distances` is ξ: the mean over trees of the share of rows in the smallest common node.

    Raises
    ------
    DoesNotFitError, ClusterLostError

    Notes
    -----
    Two readings of X. The driver holds tables of trees · 256² · 4 bytes, and in `space` 2 · trees · n of leaf numbers.
    """
    profile = source.profile
    n = profile.n
    k = min(k, n - 1)
    chosen_kind = mass_kind(kind, n, n_trees)
    approximate = chosen_kind == "approximate" and k > 0
    parameters = {"k": k, "n_trees": n_trees, "max_samples": max_samples, "seed": seed}
    name = "approximate-isolation" if approximate else "isolation"
    kept = caching.slot(source, name, {**parameters, "scikit-learn": sklearn_version()})
    arrays = kept.load(rows=Neighbours._fields)
    if arrays is not None:
        facts = facts_from_array(arrays["facts"]) if approximate else {"kind": chosen_kind}
        return MassGraph(Neighbours(arrays["indices"], arrays["distances"]), [], int(arrays["sample_rows"]), facts)
    resources = with_libraries(resources)
    draw, grow = np.random.SeedSequence(seed).spawn(2)
    chosen = _drawn_rows(profile, n_trees, max_samples, np.random.default_rng(draw))
    sample, first = take_rows(source, chosen, resources, label="forest")
    with runtime.stage("forest: growing"):
        forest = grow_forest(sample, n_trees=n_trees, max_samples=max_samples, seed=int(grow.generate_state(1)[0]))
    codes = space.empty(n, n_trees, forest.code_type)
    _, _, second = run_row_pass(source, LeafNumbers(forest), resources, out=[codes], label="leaves")
    by_tree = _transposed(codes, space)
    space.release(codes)
    del codes
    with runtime.stage("masses: counting"):
        tables = mass_tables(forest.shapes, by_tree)
    extra: dict[str, NDArray[Any]] = {}
    if approximate:
        near = approximately_by_mass(by_tree, tables, k, resources, seed=seed, space=space)
        indices, masses = near.indices, near.masses
        facts = {"kind": chosen_kind, "recall": near.recall, "sample": near.sample, "compared": near.compared}
        extra["facts"] = facts_to_array(facts)
    else:
        indices, masses = nearest_by_mass(by_tree, tables, k, resources)
        facts = {"kind": chosen_kind}
    space.release(by_tree)
    distances = space.empty(n, k)
    for part in row_blocks(n, k):
        distances[part] = masses[part] / (n_trees * n)
    neighbours = Neighbours(indices, distances)
    kept.save({**neighbours._asdict(), "sample_rows": np.array(len(chosen)), **extra})
    return MassGraph(neighbours, [first, second], len(chosen), facts)


def mass_kind(asked: GraphKind, n: int, n_trees: int) -> str:
    """Which search `isolation_graph` makes: n² trees look-ups are compared with `EXACT_LOOKUPS`."""
    return graph_kind(asked, n * n * n_trees, EXACT_LOOKUPS)


def sklearn_version() -> str:
    """Version of the library that grows the forest; others may grow other trees."""
    return importlib.metadata.version("scikit-learn")


def with_libraries(resources: Resources, lookups: int = 0) -> Resources:
    """The same resources, workers having loaded what a forest needs, and what that many look-ups do."""
    if resources.client is None:
        return resources
    compiled = lookups > COMPILED_WORK
    return replace(
        resources,
        process_bytes=resources.process_bytes + resources.trees_bytes + compiled * resources.compiled_bytes,
        trees_bytes=0,
        compiled_bytes=0 if compiled else resources.compiled_bytes,
    )


class IsolationPlan(NamedTuple):
    """What `isolation_graph` takes: the kind of graph, its readings, the peak of a worker that searches.

    `phases` are those of the driver, which holds the neighbours at last; `compiled` says whether it loads compiled
    kernels, too.
    """

    kind: str
    sample: PassPlan
    leaves: PassPlan
    search_bytes: int
    phases: tuple[Phase, ...]
    compiled: bool


def plan_isolation(
    source: RowSource | Profile,
    k: int,
    resources: Resources,
    *,
    n_trees: int = 100,
    max_samples: int = 256,
    kind: GraphKind = "exact",
) -> IsolationPlan:
    """What `isolation_graph` takes.

    Raises
    ------
    DoesNotFitError
    """
    profile = source if isinstance(source, Profile) else source.profile
    sampling, resources = resources, with_libraries(resources)  # the forest is grown on the driver
    leaves = min(max_samples, profile.n)
    shape = tree_shape(np.array([-1]), np.array([-1]))
    wide = TreeShape(shape.leaf, np.zeros((leaves - 1, 3), np.int64))
    statistic = LeafNumbers(Forest((None,) * n_trees, (wide,) * n_trees, np.empty(0), np.empty(0)))
    rows = _sample_size(profile, n_trees, max_samples)
    readings = (plan_taking(source, rows, sampling), plan_rows(source, statistic, resources, out_given=True))
    item = np.dtype(statistic.outputs[0][1]).itemsize
    n = profile.n
    codes = item * n_trees * n
    sample = 5 * rows * _row_bytes(profile)
    tables = (4 if n_trees * n < 2**32 else 8) * n_trees * leaves**2
    chosen = mass_kind(kind, n, n_trees)
    if chosen == "exact":
        search = resources.process_bytes  # this process finds the neighbours of few rows
        if n * n * n_trees > COMPILED_WORK:
            search = _require_search(n, n_trees, leaves, item, k, resources)
        phases = [Phase(tables, 2 * codes + 40 * k * n)]
        compiled = resources.client is None and n * n * n_trees > COMPILED_WORK
    else:
        search = resources.process_bytes
        count = min(n, max(CANDIDATES, 3 * k))
        near = 4 * n * DIMENSIONS + near_points_bytes(n, DIMENSIONS, count) - 24 * n
        landmarks = 4 * n_trees * leaves * DIMENSIONS + 40 * LANDMARKS**2
        compiled = True
        phases = [
            Phase(tables + landmarks, 2 * codes),
            Phase(tables + landmarks + 24 * n, codes + near),
            Phase(tables, 2 * codes + 4 * count * n + 32 * k * n),
        ]
    return IsolationPlan(chosen, *readings, search, (Phase(sample, 0), *phases), compiled)


def _row_bytes(profile: Profile) -> int:
    """Bytes of a sampled row as float32."""
    if profile.sparse:
        return 8 * -(-profile.nonzeros // max(profile.n, 1)) + 8
    return 4 * profile.d


def _sample_size(profile: Profile, n_trees: int, max_samples: int) -> int:
    room = SAMPLE_BYTES // max(_row_bytes(profile), 1)
    return min(profile.n, max(max_samples, min(n_trees * max_samples, room)))


def _drawn_rows(profile: Profile, n_trees: int, max_samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rising indices of the rows on which the forest is grown."""
    m = _sample_size(profile, n_trees, max_samples)
    if m == profile.n:
        return np.arange(profile.n)
    return np.sort(rng.choice(profile.n, size=m, replace=False)).astype(np.int64)


def mass_tables(shapes: Sequence[TreeShape], codes: NDArray[Any]) -> NDArray[Any]:
    """Masses of the smallest common nodes of all pairs of leaves, counted over all rows.

    Parameters
    ----------
    shapes : sequence of TreeShape
    codes : uint8 or uint16 array, shape (trees, n)

    Returns
    -------
    uint32 or int64 array, shape (trees, leaves, leaves)
        As many leaves as the largest tree has.
    """
    leaves = max(shape.n_leaves for shape in shapes)
    trees, n = codes.shape
    tables = np.zeros((trees, leaves, leaves), dtype=np.uint32 if trees * n < 2**32 else np.int64)
    for shape, code, table in zip(shapes, codes, tables, strict=True):
        mass_table(shape, np.bincount(code, minlength=shape.n_leaves), table)
    return tables


def _transposed(codes: NDArray[Any], space: RowSpace) -> NDArray[Any]:
    """An array with rows and columns exchanged."""
    across = space.empty(codes.shape[1], codes.shape[0], codes.dtype)
    for part in row_blocks(*codes.shape):
        across[:, part] = codes[part].T
    return across


def nearest_by_mass(
    codes: NDArray[Any], tables: NDArray[Any], k: int, resources: Resources
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The k rows of least summed mass for every row, exactly; ties by lower index.

    Parameters
    ----------
    codes : uint8 or uint16 array, shape (trees, n)
    tables : array, shape (trees, leaves, leaves)
    k : int
    resources : Resources
        With a client the search is split among its workers, who get the codes; else among threads of this process.

    Returns
    -------
    indices, masses : int64 array, shape (n, k)

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    trees, n = codes.shape
    if k < 1:
        return np.empty((n, 0), np.int64), np.empty((n, 0), np.int64)
    started = time.perf_counter()
    work = trees * n * n
    slots = resources.slots if work > COMPILED_WORK else 1
    runs = split_evenly(n, min(n, slots * TASKS_PER_SLOT if slots > 1 else 1))
    pieces: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]]
    with runtime.stage("masses: comparing all rows", len(runs)) as done:
        if work <= COMPILED_WORK:
            pieces = [kernels.nearest_by_mass(codes, tables, 0, n, k)]
            done()
        elif resources.client is None:
            with runtime.TaskThreads(slots, "mlfs-search") as pool:
                pieces = list(pool.map(lambda run: _search(codes, tables, run[0], run[1], k), runs))
        else:
            pieces = send_again(lambda: _search_there(codes, tables, k, runs, resources), resources)
    indices, masses = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    logger.info("masses: %d rows, %.3f s", n, time.perf_counter() - started)
    return indices, masses


class NearMasses(NamedTuple):
    """Neighbours of an approximate search, and its recall on so many rows, with so many rows compared."""

    indices: NDArray[np.int64]
    masses: NDArray[np.int64]
    recall: float
    sample: int
    compared: int


def approximately_by_mass(
    codes: NDArray[Any],
    tables: NDArray[Any],
    k: int,
    resources: Resources,
    *,
    seed: int,
    space: RowSpace = IN_MEMORY,
) -> NearMasses:
    """About the k rows of least summed mass for every row, in this process.

    Rows become points, between which common mass is distance (`blocks.isolation.mass_landmarks`). Of the rows near by
    the k of least mass are kept, and then the neighbours of these are looked at, too. The share of the true neighbours
    that this finds is measured on a sample of rows.

    Parameters
    ----------
    codes : uint8 or uint16 array, shape (trees, n)
    tables : array, shape (trees, leaves, leaves)
    k : int
        From 1 to n − 1.
    resources : Resources
    seed : int
    space : RowSpace
        Where numbers of every row are kept.
    """
    from mlfs_dask.blocks import isolation_compiled

    trees, n = codes.shape
    started = time.perf_counter()
    rng = np.random.default_rng([seed, 1])
    landmarks = np.sort(rng.choice(n, size=min(n, LANDMARKS), replace=False))
    threads = search_threads(resources)
    with runtime.one_blas_thread(), runtime.stage("masses: landmarks"):
        vectors, offset = kernels.mass_landmarks(codes[:, landmarks], tables, n, min(DIMENSIONS, len(landmarks)))
    runs = split_evenly(n, -(-n // _RANKED_ROWS))
    count = min(n - 1, max(CANDIDATES, 3 * k))

    with runtime.TaskThreads(threads, "mlfs-search") as pool:

        def near() -> NearPoints:
            points = space.empty(n, len(offset), np.float32)

            def place(run: tuple[int, int]) -> None:
                points[slice(*run)] = kernels.mass_points(codes[:, slice(*run)], vectors, offset)
                give_back()
                done()

            with runtime.stage("masses: points", len(runs)) as done:
                list(pool.map(place, runs))
            found = near_points(points, count, seed=int(rng.integers(2**31)), threads=threads, space=space)
            space.release(points)
            return found

        candidates_of, compared = near()
        by_row = _transposed(codes, space)
        indices, masses = space.empty(n, k, np.int64), space.empty(n, k, np.int64)

        def rank(run: tuple[int, int]) -> None:
            rows, candidates = slice(*run), np.sort(candidates_of[slice(*run)], axis=1)
            isolation_compiled.rank_candidates(by_row, tables, candidates, *run, k, indices[rows], masses[rows])
            give_back()
            done()

        with runtime.stage("masses: ranking", len(runs)) as done:
            list(pool.map(rank, runs))

        def ask(run: tuple[int, int]) -> None:
            rows = slice(*run)
            isolation_compiled.ask_neighbours(by_row, tables, before, least, *run, indices[rows], masses[rows])
            give_back()
            done()

        space.release(candidates_of)
        candidates_of = np.empty((0, 0), np.int32)

        def measure(row: int) -> NDArray[np.int64]:
            near, exact = np.empty((1, k), np.int64), np.empty((1, k), np.int64)
            isolation_compiled.nearest_by_mass(codes, tables, row, row + 1, k, near, exact)
            done()
            return exact

        most = max(1, min(RECALL_ROWS, RECALL_LOOKUPS // (n * trees)))
        judged = np.sort(rng.choice(n, size=min(n, most), replace=False))
        with runtime.stage("masses: true neighbours of a sample", len(judged), unit="rows") as done:
            exact = np.concatenate(list(pool.map(measure, judged.tolist())))
        share = float((masses[judged] <= exact[:, -1:]).mean())

        before, least = space.empty(n, k, np.int64), space.empty(n, k, np.int64)
        asking = split_evenly(n, min(n, PARTS))
        for _ in range(ASKING_ROUNDS):
            if share >= ENOUGH:
                break
            lower = share
            indices, masses, before, least = before, least, indices, masses
            with runtime.stage(f"masses: asking neighbours, recall {share:.2f} so far", len(asking)) as done:
                list(pool.map(ask, asking))
            share = float((masses[judged] <= exact[:, -1:]).mean())
            if share < lower + LEAST_GAIN:
                break
        space.release(before, least, by_row)
    logger.info("masses: %d rows, recall %.3f, %.3f s", n, share, time.perf_counter() - started)
    return NearMasses(indices, masses, share, len(judged), compared)


def _search(
    codes: NDArray[Any], tables: NDArray[Any], low: int, high: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    from mlfs_dask.blocks import isolation_compiled

    indices, masses = np.empty((high - low, k), np.int64), np.empty((high - low, k), np.int64)
    isolation_compiled.nearest_by_mass(codes, tables, low, high, k, indices, masses)
    runtime.emit_from_task("parts", done=1)
    return indices, masses


def _search_there(
    codes: NDArray[Any], tables: NDArray[Any], k: int, runs: Sequence[tuple[int, int]], resources: Resources
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    from dask.delayed import delayed

    trees, n = codes.shape
    peak = _require_search(n, trees, tables.shape[1], codes.dtype.itemsize, k, resources)
    held = [send(array, resources, broadcast=True) for array in (codes, tables)]
    task = delayed(_search, pure=False)
    graphs = [task(*held, low, high, k) for low, high in runs]
    return compute_graphs(graphs, PassPlan(tuple(runs), 1, 1, len(runs), 0, peak), resources)


def _require_search(n: int, trees: int, leaves: int, item: int, k: int, resources: Resources) -> int:
    """Projected peak of a process that searches.

    Raises
    ------
    DoesNotFitError
    """
    rows = -(-n // max(1, resources.workers))
    tables = (4 if trees * n < 2**32 else 8) * trees * leaves**2
    peak = resources.process_bytes + resources.compiled_bytes + item * trees * n + tables + 32 * k * rows
    usable = int(resources.memory_limit * USABLE_SHARE)
    if peak > usable:
        raise DoesNotFitError(
            "the search by isolation mass on a worker",
            projected=peak,
            available=usable,
            cure="take --graph approximate, more memory for each worker (--memory-limit) or fewer trees (--n-trees)",
        )
    return peak
