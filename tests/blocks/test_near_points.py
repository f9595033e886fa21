"""Neighbours of neighbours: who asks whom, that nothing is missed by not asking twice, order and places."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks.near_points_compiled import improve, join, reorder, reverse


def first_guess(points, k, seed=0):
    """Random neighbours of every point, nearest first."""
    rng = np.random.default_rng(seed)
    n = len(points)
    indices = np.stack([rng.choice(np.delete(np.arange(n), i), k, replace=False) for i in range(n)])
    squares = ((points[:, np.newaxis] - points[indices]) ** 2).sum(axis=2)
    order = np.argsort(squares, axis=1, kind="stable")
    found = np.take_along_axis(indices, order, 1).astype(np.int32), np.take_along_axis(squares, order, 1)
    return [found[0], found[1].astype(np.float32), np.ones((n, k), bool)]


def one_round(points, found, most, *, again=False):
    n, k = found[0].shape
    back, fresh_back = np.empty((n, most), np.int32), np.empty((n, most), bool)
    fresh = np.ones_like(found[2]) if again else found[2]
    reverse(found[0], fresh, back, fresh_back)
    into = [np.empty_like(array) for array in found]
    for low, high in ((0, n // 3), (n // 3, n)):
        improve(points, found[0], found[1], fresh, k, back, fresh_back, low, high, *(a[low:high] for a in into))
    return into, back


def asked(indices, back, i):
    """Whom point i asks, and all of whom it is told, as the paper has it."""
    known = {*indices[i].tolist(), *back[i][back[i] >= 0].tolist()}
    told = set(known)
    for j in known:
        told |= {*indices[j].tolist(), *back[j][back[j] >= 0].tolist()}
    return told - {i}


@pytest.mark.parametrize("most", [2, 40])
def test_a_round_finds_the_nearest_of_all_that_neighbours_know(most):
    points = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    found = first_guess(points, 4)
    into, back = one_round(points, found, most)
    for i in range(40):
        told = np.array(sorted(asked(found[0], back, i)))
        squares = ((points[i] - points[told]) ** 2).sum(axis=1)
        nearest = told[np.argsort(squares, kind="stable")[:4]]
        assert into[0][i].tolist() == nearest.tolist()
        assert into[1][i] == pytest.approx(np.sort(squares)[:4], rel=1e-5)
        assert into[2][i].tolist() == [j not in found[0][i] for j in nearest]


def test_who_was_told_of_before_needs_not_be_told_again():
    points = np.random.default_rng(2).normal(size=(120, 4)).astype(np.float32)
    found = first_guess(points, 5)
    rounds = 0
    while found[2].any():
        less, _ = one_round(points, found, 120)
        more, _ = one_round(points, found, 120, again=True)
        assert less[0].tolist() == more[0].tolist()
        found, rounds = less, rounds + 1
    assert rounds > 2


def test_those_to_whom_a_point_is_nearest_come_first():
    indices = np.array([[1, 2], [0, 2], [1, 0], [2, 1]], np.int32)
    fresh = np.array([[True, False], [True, True], [False, True], [True, True]])
    rows, new = np.empty((4, 2), np.int32), np.zeros((4, 2), bool)
    reverse(indices, fresh, rows, new)
    assert rows.tolist() == [[1, 2], [0, 2], [3, 0], [-1, -1]]
    assert new[:3].tolist() == [[True, True], [True, False], [True, False]]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 0, 1, 2, 3], [1, 0, 2, 4, 3], [2, 0, 1, 3, 4]])
def test_rows_are_put_in_an_order_in_place(order):
    points = np.arange(10, dtype=np.float32).reshape(5, 2)
    expected = points[order]
    reorder(points, np.array(order, np.int32))
    assert points.tolist() == expected.tolist()


def test_others_join_where_they_are_nearer():
    near = np.array([[4, 7, -1], [1, 2, 3]], np.int32)
    squares = np.array([[1.0, 4.0, np.inf], [1.0, 2.0, 3.0]], np.float32)
    fresh = np.zeros((2, 3), bool)
    others = np.array([[9, 7, 5, 6], [2, 8, 9, 7]], np.int32)
    other_squares = np.array([[0.5, 4.0, 4.0, 9.0], [2.0, 2.5, 2.5, 3.0]], np.float32)
    join(near, squares, fresh, others, other_squares)
    assert near.tolist() == [[9, 4, 7], [1, 2, 8]]  # of equals those that were there, or came first
    assert squares.tolist() == [[0.5, 1.0, 4.0], [1.0, 2.0, 2.5]]
    assert fresh.tolist() == [[True, False, False], [False, False, True]]
