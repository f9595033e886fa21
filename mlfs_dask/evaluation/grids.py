"""Grids of numbers of features: by number, by percent, by range.

A grid is items between commas. An item is a number of features (20), a share of them (10%, 0.1, 1/6), or a range
FIRST:LAST:STEP of one of these, LAST included.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.selection.feature_counts import parse_feature_count

_FORMS = "numbers (20), shares (10%, 0.1, 1/6) and ranges FIRST:LAST:STEP of them (10%:90%:10%), between commas"

#: Most values of a range.
MAX_POINTS = 100_000


class GridPoint(NamedTuple):
    """One number of features.

    Attributes
    ----------
    k : int
    share : float or None
        The share of all features that was asked for; None where a number was.
    """

    k: int
    share: float | None


class Grid(NamedTuple):
    """The points of a grid for a number of features, and those that are too large for it."""

    points: tuple[GridPoint, ...]
    too_large: tuple[int, ...]

    @property
    def largest(self) -> int:
        return max(point.k for point in self.points)


def read_grid(text: str, d: int) -> Grid:
    """Return the points of the grid `text`, in its order, each number of features once.

    Parameters
    ----------
    text : str
    d : int
        Number of features. A share of them is rounded down, as by `-k`, and is one feature at least.

    Raises
    ------
    UsageError
        It is no grid, or none of its numbers is as small as d.

    Examples
    --------
    >>> [point.k for point in read_grid("10%:50%:20%", 72).points]
    [7, 21, 36]
    >>> read_grid("1,5:50:5", 12)
    Grid(points=(GridPoint(k=1, share=None), GridPoint(k=5, share=None), GridPoint(k=10, share=None)), \
too_large=(15, 20, 25, 30, 35, 40, 45, 50))
    """
    points: dict[int, GridPoint] = {}
    too_large: list[int] = []
    for item in text.split(","):
        for value, is_share in _values(item.strip(), text):
            if is_share:
                k = max(1, int(value * d))
                points.setdefault(k, GridPoint(k, float(value)))
            elif value <= d:
                points.setdefault(int(value), GridPoint(int(value), None))
            else:
                too_large.append(int(value))
    if not points:
        raise UsageError(
            f"{parameter('k_grid')} {text}: every number is above the {d} features there are; give smaller ones."
        )
    return Grid(tuple(points.values()), tuple(too_large))


def check_grid(text: str) -> None:
    """Refuse what is no grid for any number of features.

    Raises
    ------
    UsageError
    """
    for item in text.split(","):
        _values(item.strip(), text)


def _values(item: str, text: str) -> list[tuple[Fraction, bool]]:
    """Return the values of one item, each with whether it is a share."""
    ends = [_value(part.strip(), text) for part in item.split(":")]
    if len(ends) == 1:
        return ends
    if len(ends) != 3 or len({is_share for _, is_share in ends}) > 1:
        raise UsageError(
            f"{parameter('k_grid')} {text}: {item!r} is no range FIRST:LAST:STEP of numbers, or of shares."
        )
    (first, is_share), (last, _), (step, _) = ends
    if first > last:
        raise UsageError(f"{parameter('k_grid')} {text}: the range {item} is empty; its first value is above its last.")
    count = int((last - first) / step) + 1
    if count > MAX_POINTS:
        raise UsageError(
            f"{parameter('k_grid')} {text}: the range {item} has {count:,} values; give a step that makes at most "
            f"{MAX_POINTS:,}."
        )
    return [(first + i * step, is_share) for i in range(count)]


def _value(part: str, text: str) -> tuple[Fraction, bool]:
    try:
        value = parse_feature_count(part)
    except ValueError as error:
        raise UsageError(f"{parameter('k_grid')} {text}: {part!r} {error}; give {_FORMS}.") from None
    if value < 1 and isinstance(value, int):
        raise UsageError(f"{parameter('k_grid')} {text}: {part} is not between 1 and d.")
    return Fraction(value), not isinstance(value, int)
