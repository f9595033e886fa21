"""What is read to test pairs of labels and features, and the tests as they follow from it, tile by tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.pair_scores import Sums
from mlfs_dask.blocks.pair_tests import (
    INFORMATION,
    TREND,
    FeatureLaw,
    PairTests,
    correlation_tests,
    skewness_of_share,
)
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.statistics.moments import FeatureShapes
from mlfs_dask.statistics.products import label_products
from mlfs_dask.typing import join_terms

#: What a reading for pairs alone is called.
PAIR_TESTS = "tests of pairs"

#: Relative difference of sums of x and of x² that is rounding.
SAME_SUMS = 1e-9


#: P-values up to which all are held and sorted. Of more they are counted in bins of 0.2 % of their value, whose upper
#: ends stand for them: q-values are then up to as much too large.
SORTED_PAIRS = 2**24

#: Arrays of the size of a tile that a test holds.
TILE_ARRAYS = 30

#: Pairs of a tile, and fewest features: shorter rows of the sums are read with their neighbours anyway.
TILE_PAIRS = 2**17
TILE_FEATURES = 16

Control = Literal["bh", "by", "holm"]


@dataclass(frozen=True)
class PairQuestion:
    """What is asked of pairs.

    Attributes
    ----------
    rows : str or None
        Which make the table: "best", "significant", "all"; None: no table.
    best : int
        Pairs of each label that are found, from the surest on.
    control : {"bh", "by", "holm"}
    level : float
        At which a pair is significant.
    """

    rows: str | None
    best: int
    control: Control
    level: float


def pairs_workspace(question: PairQuestion, q: int, d: int) -> tuple[str, dict[str, int]]:
    """What tests of pairs hold beside the sums, numbers of 8 bytes in size letters, and these."""
    tile = TILE_ARRAYS * q * tile_features(q, d)
    sizes = {"sorted": min(q * d, SORTED_PAIRS), "tested": tile, "best": q * min(question.best, d)}
    return join_terms("2 sorted", "tested", "4 best", "8 d"), sizes


def tile_features(q: int, d: int) -> int:
    """Features of a tile."""
    return max(1, min(d, max(TILE_FEATURES, TILE_PAIRS // max(q, 1))))


class AllTests(Protocol):
    """Tests of all pairs, made as they are asked for."""

    @property
    def shape(self) -> tuple[int, int]:
        """(q, d)."""

    def tile(self, features: slice) -> PairTests:
        """The tests of all labels with some features, arrays that broadcast to (q, w)."""

    def at(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> PairTests:
        """The tests of chosen pairs, arrays of shape (m,)."""


def pair_statistics(source: Profile | RowSource) -> tuple[Statistic, ...]:
    """Statistics of the reading: products, and shapes of features where these are not known to be 0/1."""
    profile = profile_of(source)
    products = label_products(profile)
    kinds = None if isinstance(source, Profile) else source.features.n_categories
    return (products,) if kinds is not None and (kinds == 2).all() else (products, FeatureShapes(profile.d))


class SumTests:
    """Tests from sums: `correlation_tests`.

    Parameters
    ----------
    source : RowSource
    results : sequence
        Of `pair_statistics`.
    """

    def __init__(self, source: RowSource, results: Any) -> None:
        moments, *shapes = results
        self.shape: tuple[int, int] = moments.products.shape
        n = np.asarray(moments.n).reshape(-1, 1)
        m2, mean = (np.atleast_2d(array) for array in (moments.m2, moments.mean))
        self._sums = Sums(moments.products, m2, moments.positives[:, np.newaxis], n)
        skewness = skewness_of_share(mean[:1])
        if shapes:
            zero_one = shapes[0].zero_one[np.newaxis]
            skewness = np.where(zero_one, skewness, shapes[0].skewness)
        else:
            # A 0/1 feature in which missing values are filled with a share: x² is less than x there.
            ones = n[:1] * mean[:1]
            zero_one = np.abs(m2[:1] + ones * mean[:1] - ones) <= SAME_SUMS * ones
        self._law = FeatureLaw(mean, skewness, zero_one)

    def tile(self, features: slice) -> PairTests:
        sums, law = self._sums, self._law
        return correlation_tests(
            Sums(*(_columns(array, features) for array in sums)),
            FeatureLaw(*(_columns(array, features) for array in law)),
        )

    def at(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> PairTests:
        return correlation_tests(
            Sums(*(self._chosen(array, labels, features) for array in self._sums)),
            FeatureLaw(*(self._chosen(array, labels, features) for array in self._law)),
        )

    def _chosen(self, array: NDArray[Any], labels: NDArray[np.intp], features: NDArray[np.intp]) -> NDArray[Any]:
        return np.broadcast_to(array, self.shape)[labels, features]


def _columns(array: NDArray[Any], features: slice) -> NDArray[Any]:
    return array if array.shape[1] == 1 else array[:, features]


class CountTests:
    """Tests from counts of codes: `code_tests`.

    Parameters
    ----------
    results : float64 array, shape (3, q, d)
    ordered : bool array, shape (d,)
        Features whose codes have an order.
    n : int or float
    positives : array, shape (q,)
    """

    def __init__(self, results: Any, ordered: NDArray[np.bool_], n: Any, positives: NDArray[Any]) -> None:
        self.shape: tuple[int, int] = results.shape[1:]
        self._results, self._ordered = results, ordered
        self._n, self._positives = np.asarray(n).reshape(-1, 1), positives[:, np.newaxis]

    def tile(self, features: slice) -> PairTests:
        return self._tests(self._results[..., features], self._ordered[features], self._n, self._positives)

    def at(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> PairTests:
        n = np.broadcast_to(self._n, (self.shape[0], 1))
        results = self._results[:, labels, features]
        return self._tests(results, self._ordered[features], n[labels, 0], self._positives[labels, 0])

    def _tests(self, results: Any, ordered: NDArray[np.bool_], n: Any, positives: Any) -> PairTests:
        information, p, direction = results
        sign = np.where(ordered & (direction < 0), -1.0, 1.0)
        kind = np.where(ordered, TREND, INFORMATION)
        corrected = np.abs(direction) > 1
        return PairTests(n, positives, sign * information, 2 * n * sign * information, p, corrected, kind)
