"""Searches by chance: ants that can be followed by hand and draw in proportion; the memetic search."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import runtime
from mlfs_dask.solvers.ant_colony import lay_pheromone
from mlfs_dask.solvers.memetic import _refined, criterion, search_subsets

# ---------------------------------------------------------------- ants


def test_draws_are_in_proportion():
    """Of two moves the first is to the best with probability 1 − ½^0.7, else drawn; the second is to the best left."""
    weights, greedy, seeds = np.array([1.0, 2.0, 3.0, 4.0]), 1.0 - 0.5**0.7, 800
    expected, found = np.zeros(4), np.zeros(4)
    for start in range(4):
        left = np.where(np.arange(4) == start, 0.0, weights)
        first = (1.0 - greedy) * left / left.sum() + greedy * (np.arange(4) == left.argmax())
        for g in range(4):
            second = np.where(np.arange(4) == g, 0.0, left).argmax()
            expected += first[g] / 4 * (np.eye(4)[g] + np.eye(4)[second]) / 2
    for seed in range(seeds):
        found += lay_pheromone(
            np.tile(weights, (4, 1)), np.ones(4), n_ants=1, n_moves=2, n_cycles=1, decay=0.0, seed=seed
        )
    assert found / seeds - 1.0 == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(seeds))


# ---------------------------------------------------------------- the memetic search


def search(judge, d=8, k=3, **parameters):
    given = {"n_population": 6, "n_judged": 60} | parameters
    return search_subsets(
        judge,
        np.linspace(1.0, 0.0, d),
        lambda _: np.zeros(d),
        k=k,
        random=np.random.default_rng(0),
        **given,
    )


def test_the_search_finds_the_best_of_few_subsets():
    judged = []

    def judge(subset):
        judged.append(subset)
        return float(len({*subset.tolist()} ^ {1, 4, 6}))

    events = []
    with runtime.progress_to(events.append):
        found = search(judge, n_judged=300)
    assert found.subsets[0].tolist() == [1, 4, 6]
    assert found.losses[0] == 0.0
    assert len(judged) == len(found.history) == 6 + 6 * 49
    assert all(1 <= len(subset) <= 3 and (np.diff(subset) > 0).all() for subset in judged)
    assert found.history == list(np.minimum.accumulate([judge(subset) for subset in judged[:300]]))
    assert sum(event["kind"] == "parts" for event in events) == 300


def test_refinement_takes_in_what_is_relevant_and_new_and_gives_what_is_redundant():
    relevance = np.array([0.9, 0.8, 0.5, 0.4, 0.1])
    pairs = np.zeros((5, 5))
    pairs[0, 1] = pairs[1, 0] = 0.7
    pairs[2, 3] = pairs[3, 2] = 0.1
    subset = np.array([0, 3])
    assert criterion(subset, relevance, pairs.__getitem__) == pytest.approx([0.9, 0.1, 0.4, 0.4, 0.1])
    given = subset, relevance, pairs.__getitem__
    assert sorted(_refined(*given, 1, 0, 3)) == [0, 2, 3]  # 2 has J 0.4, and 1, which is more relevant, 0.1
    assert sorted(_refined(*given, 1, 1, 3)) == [0, 2]  # without 3, of the smallest J
    assert sorted(_refined(*given, 2, 0, 2)) == [0, 3]  # no more than two; what it has where J is the same
    assert sorted(_refined(np.array([3, 4]), *given[1:], 1, 0, 2)) == [0, 3]  # of too many those of the largest J
    assert _refined(*given, 0, 2, 3).tolist() == [0, 3]  # a subset is never empty


def test_the_last_move_goes_where_attraction_is_largest():
    """Of one move the first is the last: from feature 1 to 2, from 0 and 2 to 1, however little pheromone counts."""
    attraction = np.array([[0.0, 5.0, 1.0], [2.0, 0.0, 3.0], [1.0, 4.0, 0.0]])
    for seed in range(8):
        found = lay_pheromone(attraction, np.ones(3), n_ants=3, n_moves=1, n_cycles=1, decay=0.25, seed=seed)
        assert found.tolist() == pytest.approx([0.75, 0.75 + 2 / 3, 0.75 + 1 / 3])


def test_no_feature_is_visited_twice_and_none_without_attraction():
    """Every ant visits all features but its start and the last, which has no pheromone."""
    pheromone = np.array([1.0, 1.0, 1.0, 0.0])
    found = lay_pheromone(np.ones((4, 4)), pheromone, n_ants=4, n_moves=3, n_cycles=1, decay=0.0, seed=1)
    # Three ants make 2 moves and one 3, each of the first features being the start of one.
    assert (found - pheromone).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])
