"""Exact neighbour graphs of rows in memory, by Euclidean distance and by isolation mass; ties go to the lower index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks import gates, isolation
from mlfs_dask.blocks.forest import draw_sample, forest_seeds, grow_forest, mass_tables, sample_size
from mlfs_dask.blocks.neighbours import NearestRows, Neighbours, compiles_search, scratch_bytes
from mlfs_dask.typing import Array, Matrix, numbers

Found = tuple[NDArray[np.int64], NDArray[Any]]


def nearest_rows(Z: Matrix, k: int) -> Neighbours:
    """Return the k nearest rows of every row by Euclidean distance.

    Parameters
    ----------
    Z : float64 ndarray or csr_array, shape (n, m)
        Distances of dense rows have most digits where the rows lie around zero.
    k : int
        At most n − 1 neighbours are found.

    Examples
    --------
    >>> nearest_rows(np.array([[0.0], [1.0], [3.0]]), 1).indices.ravel()
    array([1, 0, 1])
    """
    n = Z.shape[0]
    k = min(k, n - 1)

    def search(low: int, high: int) -> Found:
        nearest = NearestRows(Z[low:high], low, k, compiled=compiles_nearest_rows(n, sparse=sp.issparse(Z)))
        nearest.add(Z, 0)
        return nearest.indices, nearest.distances

    return Neighbours(*_search("searching neighbours", search, n, k))


def compiles_nearest_rows(n: int, *, sparse: bool) -> bool:
    """Return True if `nearest_rows` loads its compiled search for n rows."""
    return compiles_search(n * n, sparse=sparse)


def combinations(Z: Matrix, neighbours: Neighbours) -> Array:
    """Return weights with which the neighbours of each row give it again best, shape (n, k); not negative, of sum 1.

    Parameters
    ----------
    Z : float64 ndarray or csr_array, shape (n, m)
        Rows between which the neighbours were found.
    neighbours : Neighbours
    """
    from mlfs_dask.blocks.anchors_compiled import combine

    indices = neighbours.indices
    (n, k), d = indices.shape, Z.shape[1]
    weights = np.empty((n, k))
    step = max(1, gates.VALUES_AT_ONCE // max(k * d, 1))
    for low in range(0, n if k else 0, step):
        part = slice(low, min(low + step, n))
        near, own = Z[indices[part].ravel()], Z[part]
        if sp.issparse(Z):
            near, own = near.toarray(), own.toarray()
        apart = near.reshape(-1, k, d) - own[:, np.newaxis]
        combine(apart @ apart.transpose(0, 2, 1), weights[part])
    return weights


def workspace() -> str:
    """Return the memory of `nearest_rows` besides the rows: tiles of distances, and the result."""
    return f"2 n k + {numbers(scratch_bytes(1))}"


class PairDistances:
    """Squared distances between all rows of Z, a tile at a time."""

    def __init__(self, Z: Matrix) -> None:
        self.Z = Z
        sparse = sp.issparse(Z)
        self._transposed = sp.csr_array(Z.T) if sparse else Z.T
        self.squares: Array = np.asarray(Z.power(2).sum(axis=1)).ravel() if sparse else np.einsum("if,if->i", Z, Z)

    def tiles(self, label: str, chosen: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Array]]:
        """Return some of the chosen rows, and their squared distances from all rows, for all of them in turn."""
        height = max(1, gates.VALUES_AT_ONCE // max(self.Z.shape))
        starts = range(0, len(chosen), height)
        with runtime.stage(label, len(starts)) as report_progress:
            for low in starts:
                runtime.check_stopped()
                rows = chosen[low : low + height]
                product = self.Z[rows] @ self._transposed
                distances: Array = product.toarray() if sp.issparse(product) else product
                distances *= -2.0
                distances += self.squares
                distances += self.squares[rows, np.newaxis]
                yield rows, np.maximum(distances, 0.0, out=distances)
                report_progress()


def mean_distance(Z: Matrix) -> float:
    """Return the mean distance over all pairs of rows, those of a row with itself among them.

    >>> mean_distance(np.array([[0.0], [4.0]]))
    2.0
    """
    n: int = Z.shape[0]
    tiles = PairDistances(Z).tiles("measuring distances", np.arange(n))
    return float(sum(np.sqrt(distances, out=distances).sum() for _, distances in tiles)) / n**2


class MassNeighbours(NamedTuple):
    """Neighbours by isolation mass, and how many rows the forest was grown on."""

    neighbours: Neighbours
    sample_rows: int


def compiles_least_mass_rows(n: int, n_trees: int) -> bool:
    """Return True if `least_mass_rows` loads its compiled search for n rows."""
    return n * n * n_trees > gates.COMPILED_LOOKUPS or gates.compiles_rows(n)


def least_mass_rows(X: Matrix, k: int, *, n_trees: int, max_samples: int, seed: int) -> MassNeighbours:
    """Return the k rows of least isolation mass for every row.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
        As read: the forest does not depend on the scale of features.
    k : int
        At most n − 1 neighbours are found.
    n_trees, max_samples : int
        Trees of the forest, and rows that each is grown on.
    seed : int
        Settles which rows are drawn, and every split.

    Notes
    -----
    Makes n² · n_trees look-ups, and holds 2 · n_trees · n bytes of leaf numbers and 4 · n_trees · max_samples² of
    masses.
    """
    n, d = X.shape
    k = min(k, n - 1)
    rng, grow = forest_seeds(seed)
    row_bytes = 8 * -(-X.nnz // n) + 8 if sp.issparse(X) else 4 * d
    chosen = draw_sample(n, sample_size(n, row_bytes, n_trees=n_trees, max_samples=max_samples), rng)
    with runtime.stage("growing a forest"):
        forest = grow_forest(X[chosen], n_trees=n_trees, max_samples=max_samples, seed=grow)
    with runtime.stage("counting masses"):
        codes = np.ascontiguousarray(forest.leaf_numbers(X).T)
        tables = mass_tables(forest.shapes, codes)

    def search(low: int, high: int) -> Found:
        if not compiles_least_mass_rows(n, n_trees):
            return isolation.nearest_by_mass(codes, tables, low, high, k)
        from mlfs_dask.blocks import isolation_compiled

        indices, masses = np.empty((high - low, k), np.int64), np.empty((high - low, k), np.int64)
        isolation_compiled.nearest_by_mass(codes, tables, low, high, k, indices, masses)
        return indices, masses

    indices, masses = _search("comparing rows", search, n, k)
    return MassNeighbours(Neighbours(indices, masses / (n_trees * n)), len(chosen))


def _search(label: str, search: Callable[[int, int], Found], n: int, k: int) -> Found:
    """Run a search on groups of rows, one after another, and return the results."""
    if k < 1:
        return np.empty((n, 0), np.int64), np.empty((n, 0))
    starts = range(0, n, gates.GROUP_ROWS)  # between which the search can be interrupted
    found = []
    with runtime.stage(label, len(starts)) as report_progress:
        for low in starts:
            runtime.check_stopped()
            found.append(search(low, min(low + gates.GROUP_ROWS, n)))
            report_progress()
    indices, distances = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return indices, distances
