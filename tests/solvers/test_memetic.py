"""The memetic search: sizes, survivors, what refinement does, and the best subset where it can be known."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import runtime
from mlfs_dask.solvers.memetic import _crossed, _mutated, _refined, criterion, search_subsets


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


def test_the_best_survive_each_once():
    found = search(lambda subset: float(subset.sum()))
    assert found.losses == sorted(found.losses)
    assert len({subset.tobytes() for subset in found.subsets}) == len(found.subsets) == 6


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
    assert _refined(*given, 0, 2, 3).tolist() == [0, 3]  # a subset is never empty


def test_children_have_features_of_both_sides_and_mutants_others():
    rng = np.random.default_rng(1)
    parents = [np.array([0, 1, 2]), np.array([5, 6, 7])]
    for _ in range(50):
        for child in _crossed(parents, 8, 4, rng):
            assert 1 <= len(child) <= 4
            assert len(set(child)) == len(child)
        mutant = _mutated(parents[:1], 8, 5, rng)
        assert not {*mutant} & {0, 1, 2}
        assert 3 <= len(mutant) <= 5
    children = {frozenset(child.tolist()) for _ in range(200) for child in _crossed(parents, 8, 8, rng)}
    assert children >= {frozenset({0, 5, 6, 7}), frozenset({1, 2}), frozenset({0, 1, 2, 7}), frozenset({5, 6})}
    expected = {frozenset(child) for point in range(1, 8) for child in _sides(point)} - {frozenset()}
    single = {frozenset({f}) for f in range(8)}  # in the place of no features
    assert children - single == expected - single


def _sides(point):
    first, second = [0, 1, 2], [5, 6, 7]
    for low, high in ((first, second), (second, first)):
        yield [f for f in low if f < point] + [f for f in high if f >= point]
