"""Graphs of moving points: the neighbours of now among known candidates, and a new search when those have changed."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from mlfs_dask.primitives import moving_points, near_points
from mlfs_dask.primitives.graphs import point_graph
from mlfs_dask.primitives.moving_points import MovingPoints
from mlfs_dask.primitives.near_points import NearPoints
from mlfs_dask.row_arrays import RowSpace


def points(seed=0, n=2500, m=4):
    return np.random.default_rng(seed).normal(size=(n, m))


def assert_same(found, expected):
    assert found.neighbours.indices.tolist() == expected.neighbours.indices.tolist()
    assert found.neighbours.distances == pytest.approx(expected.neighbours.distances)


def test_exact_graphs_are_those_of_now():
    moving = MovingPoints(5, kind="exact")
    for seed in range(2):
        assert_same(moving.graph(points(seed)), point_graph(points(seed), 5, kind="exact"))
    assert moving.state() == ({}, {"least": 0.0, "compared": 0, "searches": 0})


def test_points_that_move_a_little_are_ranked_and_not_searched():
    moving = MovingPoints(5, kind="approximate")
    Z = points()
    assert_same(moving.graph(Z), point_graph(Z, 5, kind="exact"))
    for step in range(3):
        Z = Z + 0.01 * points(10 + step)
        found = moving.graph(Z)
        assert_same(found, point_graph(Z, 5, kind="exact"))  # all are among the 24 nearest of before
        assert found.facts["recall"] == 1.0
        assert found.facts["searches"] == 1


def test_points_that_have_moved_away_are_searched_again():
    moving = MovingPoints(5, kind="approximate")
    for searches, seed in enumerate(range(3), start=1):
        found = moving.graph(points(seed))
        exact = point_graph(points(seed), 5, kind="exact").neighbours
        assert (found.neighbours.indices == exact.indices).mean() > 0.93  # 95 % on a sample
        assert found.facts["searches"] == searches


def test_a_new_search_begins_with_those_that_were_near_before():
    moving = MovingPoints(5, kind="approximate")
    Z = points(n=6000)
    moving.graph(Z)
    Z = Z + 0.12 * points(1, n=6000)
    with mock.patch.object(near_points, "_compare", side_effect=AssertionError("lists are compared")):
        found = moving.graph(Z)
    # A search ends when 95 % of the five nearest of 200 points are found, give or take 0.7 % for all points.
    assert (found.neighbours.indices == point_graph(Z, 5, kind="exact").neighbours.indices).mean() > 0.93
    assert found.facts["searches"] == 2
    assert moving.state()[1]["compared"] == near_points.FIRST_COMPARED  # of the search that did compare lists


def test_what_was_near_before_is_kept_where_it_is_not_enough():
    """Lists are compared then, and what those before them have found is not found again."""
    n, rng = 6000, np.random.default_rng(0)
    Z = rng.normal(size=(n, 40))
    kept, fresh = MovingPoints(5, kind="approximate"), MovingPoints(5, kind="approximate")
    with mock.patch.object(near_points, "ROUNDS", 0), mock.patch.object(near_points, "DOUBLINGS", 0):
        kept.graph(Z)
        Z = Z + 0.4 * rng.normal(size=Z.shape)
        before = kept.state()[0]["candidates"].copy()
        now, without = kept.graph(Z), fresh.graph(Z)
    assert now.facts["searches"] == 2
    assert now.facts["recall"] > without.facts["recall"] + 0.03
    # A neighbour of now was met before, or in the lists.
    after = kept.state()[0]["candidates"]
    from_lists = fresh.state()[0]["candidates"]
    exact = point_graph(Z, 5, kind="exact").neighbours.indices
    for row in range(0, n, 97):
        met = set(before[row]) | set(from_lists[row])
        assert set(after[row]) <= met
        assert met & set(exact[row]) <= set(after[row])


def test_a_search_from_before_doubles_its_lists_as_a_new_one():
    """What the first lists add is little beside what was known, and says nothing of the next."""
    n, rng = 12_000, np.random.default_rng(0)
    P = rng.normal(size=(n, 40)).astype(np.float32)
    start = point_graph(P.astype(np.float64), 24, kind="exact").neighbours.indices.astype(np.int32)
    start[:, ::10] = (start[:, ::10] + n // 2) % n  # nine tenths are known
    with mock.patch.object(near_points, "ROUNDS", 0):
        found = near_points.near_points(P.copy(), 24, seed=0, start=start)
    assert found.compared == 2 * near_points.FIRST_COMPARED


def test_recall_is_the_share_of_true_neighbours_and_a_poor_one_is_no_reason_to_search_for_ever():
    Z = points()
    exact = point_graph(Z, 8, kind="exact").neighbours.indices
    # Of the four nearest two are proposed, and other points that are none of them.
    half = np.concatenate([exact[:, :2], exact[:, 4:8]], axis=1).astype(np.int32)
    with mock.patch.object(moving_points, "search_points", return_value=NearPoints(half, 99)) as search:
        moving = MovingPoints(4, kind="approximate")
        for _ in range(3):
            found = moving.graph(Z)
            assert found.facts["recall"] == pytest.approx(0.5)
            assert found.facts["compared"] == 99
    assert search.call_count == 1
    assert found.neighbours.indices.tolist() == half[:, :4].tolist()


@pytest.mark.parametrize("in_files", [False, True])
def test_a_state_goes_on_with_the_same_candidates(tmp_path, in_files):
    first = MovingPoints(5, kind="approximate", seed=3)
    first.graph(points())
    arrays, facts = first.state()
    assert arrays["candidates"].shape == (2500, moving_points.CANDIDATES)
    again = MovingPoints(5, kind="approximate", seed=3, space=RowSpace(tmp_path if in_files else None))
    again.restore(arrays, facts)
    Z = points() + 0.05 * points(1)
    with mock.patch.object(moving_points, "search_points", side_effect=AssertionError("searched")):
        assert_same(again.graph(Z), first.graph(Z))
    assert again.state()[1] == first.state()[1]


def test_threads_and_files_change_nothing(tmp_path):
    plain = MovingPoints(5, kind="approximate")
    other = MovingPoints(5, kind="approximate", threads=3, space=RowSpace(tmp_path))
    for step in range(2):
        Z = points(n=5000, m=8) + 0.1 * step
        found, expected = other.graph(Z).neighbours, plain.graph(Z).neighbours
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.distances.tolist() == expected.distances.tolist()


@pytest.mark.parametrize("n", [2, 3, 300])
def test_few_points_are_compared_all_with_all_every_time(n):
    moving = MovingPoints(5, kind="approximate")
    for seed in range(2):
        assert_same(moving.graph(points(seed, n)), point_graph(points(seed, n), 5, kind="exact"))
    assert moving.state()[0] == {}
