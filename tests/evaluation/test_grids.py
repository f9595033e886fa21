"""Grids of numbers of features."""

from __future__ import annotations

import pytest

from mlfs_dask.errors import UsageError
from mlfs_dask.evaluation.grids import read_grid


@pytest.mark.parametrize(
    ("text", "d", "expected"),
    [
        ("20", 100, [20]),
        ("10%:90%:10%", 72, [7, 14, 21, 28, 36, 43, 50, 57, 64]),
        ("1,5:50:5", 60, [1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50]),
        ("100:200:20", 200, [100, 120, 140, 160, 180, 200]),
        ("1/6:5/6:1/6", 6, [1, 2, 3, 4, 5]),
        ("29%", 100, [29]),  # 0.29 * 100 is 28.999... in floating point
        ("1%", 10, [1]),  # one feature at least
        ("5:12:5", 20, [5, 10]),  # the last value need not be met
        ("7,10%,7", 70, [7]),  # each number once
        ("0.1,0.2:0.4:0.1", 70, [7, 14, 21, 28]),
        (" 3 , 5 ", 5, [3, 5]),
    ],
)
def test_points(text: str, d: int, expected: list[int]) -> None:
    assert [point.k for point in read_grid(text, d).points] == expected


def test_shares_are_kept_and_large_numbers_told() -> None:
    grid = read_grid("5,10%,100", 50)
    assert [point.share for point in grid.points] == [None]
    grid = read_grid("10%,5,100", 50)
    assert [(p.k, p.share) for p in grid.points] == [(5, 0.1)]
    assert grid.too_large == (100,)
    assert grid.largest == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is neither a count"),
        ("x", "'x' is neither a count"),
        ("0", "not between 1 and d"),
        ("120%", "'120%' is no share of the features: it lies between 0 and 100%"),
        ("1:5", "no range FIRST:LAST:STEP"),
        ("1:50%:5", "no range FIRST:LAST:STEP"),
        ("9:5:1", "empty"),
        ("1:1000000000:1", "the range 1:1000000000:1 has 1,000,000,000 values; give a step that makes at most 100,000"),
        ("1:5:0", "not between"),
        ("1/0", "is neither a count"),
        ("50,60", "above the 20 features"),
    ],
)
def test_what_is_no_grid(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_grid(text, 20)
