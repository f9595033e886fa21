"""Search for a subset of features by a memetic algorithm: crossover, mutation, and refinement of the best.

J. Lee, D.-W. Kim, "Memetic feature selection algorithm for multi-label classification", Information Sciences 293 (2015)
80-96, doi:10.1016/j.ins.2014.09.020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.typing import Array

Subset = NDArray[np.intp]

#: Refinements of the best subset in a generation.
REFINEMENTS = 3

#: Probability with which mutation fills a free place.
FILLED = 0.1


class Population(NamedTuple):
    """Subsets, best first, their losses, and the least loss after every subset that was judged.

    Attributes
    ----------
    subsets : list of int array
        Rising features.
    losses : list of float
    history : list of float
    """

    subsets: list[Subset]
    losses: list[float]
    history: list[float]


def search_subsets(
    judge: Callable[[Subset], float],
    relevance: Array,
    redundancy: Callable[[int], Array],
    *,
    k: int,
    n_population: int,
    n_judged: int,
    random: np.random.Generator,
) -> Population:
    """Return subsets of at most k features, of small loss.

    The population begins with random subsets. In a generation the best is refined a few times: of s features it gets a
    and gives b, both drawn from 0 to s times the share of subsets that are still to be judged, those of largest J from
    outside and of smallest J from inside, and takes the place of the best where its loss is less. Two random
    subsets are crossed at one point, and of a random one every feature is exchanged for another, its free places being
    filled with a small probability. The best survive, each once.

    Parameters
    ----------
    judge : callable
        Rising features -> their loss.
    relevance : float64 array, shape (d,)
    redundancy : callable
        A feature -> what it shares with each, shape (d,). J_f is the relevance of f less its redundancy with the other
        features of the subset.
    k : int
        At most d.
    n_population, n_judged : int
        A generation is not cut short: a few more subsets than these may be judged.
    random : numpy.random.Generator

    Returns
    -------
    Population
    """
    d = len(relevance)
    population: dict[bytes, tuple[Subset, float]] = {}
    history: list[float] = []

    def judged(features: Subset) -> tuple[Subset, float]:
        subset = np.sort(features)
        loss = judge(subset)
        history.append(min([loss, *history[-1:]]))
        report_progress()
        return subset, loss

    def take_in(individual: tuple[Subset, float]) -> None:
        population.setdefault(individual[0].tobytes(), individual)

    with runtime.stage("judging subsets", n_judged, unit="subsets") as report_progress:
        for _ in range(n_population):
            take_in(judged(random.permutation(d)[: random.integers(1, k + 1)]))
        while len(history) < n_judged:
            for _ in range(REFINEMENTS):
                best, least = min(population.values(), key=lambda individual: individual[1])
                left = max(0.0, 1.0 - len(history) / n_judged)
                added, dropped = (round(random.random() * len(best) * left) for _ in range(2))
                refined = judged(_refined(best, relevance, redundancy, added, dropped, k))
                if refined[1] < least:
                    del population[best.tobytes()]
                    take_in(refined)
            subsets = [subset for subset, _ in population.values()]
            for child in (*_crossed(subsets, d, k, random), _mutated(subsets, d, k, random)):
                take_in(judged(child))
            survivors = sorted(population.values(), key=lambda individual: individual[1])[:n_population]
            population = {subset.tobytes(): (subset, loss) for subset, loss in survivors}
    found = sorted(population.values(), key=lambda individual: individual[1])
    return Population([subset for subset, _ in found], [loss for _, loss in found], history)


def criterion(subset: Subset, relevance: Array, redundancy: Callable[[int], Array]) -> Array:
    """Return J of every feature: its relevance less what it shares with the features of a subset, but for itself."""
    shared = np.zeros(len(relevance))
    for f in subset.tolist():
        with_f = redundancy(f).copy()
        with_f[f] = 0.0
        shared += with_f
    return relevance - shared


def _refined(
    subset: Subset, relevance: Array, redundancy: Callable[[int], Array], added: int, dropped: int, k: int
) -> Subset:
    """Return the subset with features of largest J from outside, and without those of smallest J from inside."""
    J = criterion(subset, relevance, redundancy)
    inside = np.zeros(len(J), bool)
    inside[subset] = True
    rest = np.argsort(np.where(inside, np.inf, -J), kind="stable")[: min(added, len(J) - len(subset))]
    stays = subset[np.argsort(J[subset], kind="stable")][dropped:]
    together = np.concatenate([stays, rest])
    if not len(together):
        return subset
    return together[np.argsort(-J[together], kind="stable")[:k]]


def _crossed(subsets: list[Subset], d: int, k: int, random: np.random.Generator) -> list[Subset]:
    """Return two children of two random subsets, which change sides at a random feature; of too many features some
    stay.
    """
    parents = random.permutation(len(subsets))
    first, second = subsets[parents[0]], subsets[parents[1 % len(parents)]]
    point = random.integers(1, d) if d > 1 else 1
    children = []
    for low, high in ((first, second), (second, first)):
        child = np.concatenate([low[low < point], high[high >= point]])
        if not len(child):
            child = random.permutation(d)[:1]
        children.append(random.permutation(child)[:k])
    return children


def _mutated(subsets: list[Subset], d: int, k: int, random: np.random.Generator) -> Subset:
    """Return a random subset with other features in the place of all, where there are as many, and some free places
    filled.
    """
    subset = subsets[random.integers(len(subsets))]
    filled = int(np.count_nonzero(random.random(k - len(subset)) < FILLED))
    others = random.permutation(np.setdiff1d(np.arange(d), subset))[: len(subset) + filled]
    return others if len(others) else subset
