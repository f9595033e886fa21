"""The neighbour graph of points that move from one iteration to the next, searched anew only when it has to be.

An approximate search proposes `CANDIDATES` points for each, of which the nearest k are its neighbours. While the points
move little those are still the candidates that matter: they are ranked by their distances of now, and the share of the
true neighbours among them is measured on a few points. When it has fallen they are searched for again. So a graph that
is learnt in a loop costs a search in its first iterations alone, and what the search misses does not change with every
iteration, by which the loop would never come to rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.primitives.graphs import (
    Graph,
    approximate_facts,
    point_graph,
    points_kind,
    rank_points,
    search_points,
)
from mlfs_dask.primitives.near_points import ENOUGH, FIRST_COMPARED, HELD
from mlfs_dask.primitives.neighbours import GraphKind
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, column_sums

Array = NDArray[np.float64]

#: Candidates of a point, at least: as many as the search holds anyway.
CANDIDATES = HELD

#: Points up to which all are compared with all, every time, whatever is asked for.
ALL_PAIRS = FIRST_COMPARED

#: Points on which recall is measured, in every iteration.
JUDGED = 200

#: Share of the true neighbours by which recall may fall below that of the last search, where that was low.
LOST = 0.02


def exact_points(asked: GraphKind, n: int, m: int) -> bool:
    """Whether the graphs of n points in m dimensions are exact: because it is asked for, or because points are few."""
    return n <= ALL_PAIRS or points_kind(asked, n, m) == "exact"


class MovingPoints:
    """A neighbour graph, again and again.

    Parameters
    ----------
    k : int
        Neighbours of a point.
    kind : {"exact", "approximate", "auto"}
        As of `point_graph`; exact graphs, and those of few points, are found anew every time.
    seed : int
    threads : int
        They change nothing in the result.
    space : RowSpace
        Where what is held for every point is kept.

    Attributes
    ----------
    searches : int
        Searches made.
    """

    def __init__(
        self, k: int, *, kind: GraphKind = "auto", seed: int = 0, threads: int = 1, space: RowSpace = IN_MEMORY
    ) -> None:
        self.k = k
        self.kind = kind
        self.seed = seed
        self.threads = threads
        self.space = space
        self.searches = 0
        self._candidates: NDArray[np.int32] | None = None
        self._compared = 0
        self._least = 0.0

    def graph(self, Z: Array) -> Graph:
        """The k nearest rows of every row of Z, shape (n, m)."""
        n, m = Z.shape
        k = min(self.k, n - 1)
        if exact_points(self.kind, n, m):
            return point_graph(Z, k, kind="exact", threads=self.threads)
        mean = column_sums(Z) / n
        if self._candidates is None:
            return self._searched(Z, mean, k)
        graph, share = self._ranked(Z, mean, k)
        if share >= self._least:
            return graph
        self.space.release(graph.neighbours.indices, graph.neighbours.distances)
        del graph
        return self._searched(Z, mean, k)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What has to be kept to go on with the same graphs: an array, where there is one, and facts."""
        arrays = {} if self._candidates is None else {"candidates": self._candidates}
        return arrays, {"least": self._least, "compared": self._compared, "searches": self.searches}

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        if "candidates" in arrays:
            self._candidates = self.space.copy(arrays["candidates"])
        self._least, self._compared, self.searches = facts["least"], facts["compared"], facts["searches"]

    def _searched(self, Z: Array, mean: Array, k: int) -> Graph:
        """The graph after a search, which begins with the candidates of before."""
        n, before = len(Z), self._candidates
        found = search_points(
            Z,
            mean,
            min(n - 1, max(k, CANDIDATES)),
            seed=self.seed,
            threads=self.threads,
            space=self.space,
            start=before,
            wanted=k,
        )
        if before is not None:
            self.space.release(before)
        self._candidates, self._compared = found.indices, found.compared or self._compared
        self.searches += 1
        graph, share = self._ranked(Z, mean, k)
        self._least = min(ENOUGH, share - LOST)
        return graph

    def _ranked(self, Z: Array, mean: Array, k: int) -> tuple[Graph, float]:
        """The nearest candidates of now, and the share of true neighbours among them."""
        assert self._candidates is not None
        n, m = Z.shape
        judged = np.sort(np.random.default_rng(self.seed).choice(n, size=min(n, JUDGED), replace=False))
        neighbours, share = rank_points(Z, mean, self._candidates, k, judged, threads=self.threads, space=self.space)
        facts = approximate_facts(share, len(judged), m, self._compared)
        return Graph(neighbours, [], {**facts, "searches": self.searches}), share
