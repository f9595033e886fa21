"""Missing features, filled in while rows are read: with their mean, from an earlier pass, or with their median.

An exact median needs all values of a feature in order, which no bounded state holds. It is therefore that of a uniform
sample of rows, as quantile edges are, and exact where the sample has all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.missing import (
    column_medians,
    missing_weights_block,
    only_zero_and_one_block,
    present_sums_block,
)
from mlfs_dask.blocks.row_draws import QUANTILE_ROWS
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.rows.sources import measure_features
from mlfs_dask.statistics.sample import RowSample, draw_rows
from mlfs_dask.typing import Array

#: What the pass is called that finds what missing features are filled with.
FILL_READING = "means of features"


class PresentMeans(NamedTuple):
    """Means of the values that are not missing.

    Attributes
    ----------
    mean : float64 array, shape (d,)
        Exactly the value of a feature that has only one; 0 for a feature without values.
    n_missing : int64 array, shape (d,)
    zero_one : bool array, shape (d,)
        Whether the values of a feature are both 0 and 1, and no others.
    """

    mean: Array
    n_missing: NDArray[np.int64]
    zero_one: NDArray[np.bool_]


@dataclass(frozen=True)
class MeansOfPresent(Statistic):
    """Statistic: `PresentMeans` of X.

    Parameters
    ----------
    n_features : int
    """

    n_features: int

    kind = "means of present values"
    state_names = ("sums", "present", "missing", "minimum", "maximum", "others")

    @property
    def state_bytes(self) -> int:
        return 41 * self.n_features

    @property
    def result_bytes(self) -> int:
        return 17 * self.n_features

    def scratch_bytes(self, profile: Profile) -> int:
        return (5 if profile.sparse else 3) * profile.block_bytes + 24 * self.n_features

    def zero(self) -> State:
        d = self.n_features
        low, high = np.full(d, np.inf), np.full(d, -np.inf)
        return np.zeros(d), np.zeros(d), np.zeros(d, np.int64), low, high, np.zeros(d, bool)

    def add(self, state: State, block: Block) -> None:
        sums, present, missing, low, high, others = state
        info = measure_features(block.X)
        assert info.minimum is not None
        assert info.maximum is not None
        assert info.n_missing is not None
        some = info.n_missing < block.X.shape[0]
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values are refused by what reads them next
            sums += present_sums_block(block.X, block.weights)
        if block.weights is None:
            present += block.X.shape[0] - info.n_missing
        else:
            present += block.weights.sum() - missing_weights_block(block.X, block.weights)
        missing += info.n_missing
        np.minimum(low, info.minimum, out=low, where=some)
        np.maximum(high, info.maximum, out=high, where=some)
        others |= (low < 0) | (high > 1)
        if len(known := np.flatnonzero(~others)):
            others[known] = ~only_zero_and_one_block(block.X, known)

    def merge(self, into: State, other: State) -> None:
        with np.errstate(invalid="ignore"):
            super().merge(into[:3], other[:3])
        np.minimum(into[3], other[3], out=into[3])
        np.maximum(into[4], other[4], out=into[4])
        np.logical_or(into[5], other[5], out=into[5])

    def finalize(self, state: State) -> PresentMeans:
        sums, present, missing, low, high, others = state
        some = present > 0
        mean = np.zeros(self.n_features)
        np.divide(sums, present, out=mean, where=some)
        # A sum of equal values is rounded: the mean of a constant feature has to be its value.
        np.clip(mean, low, high, out=mean, where=some)
        return PresentMeans(mean, missing, (low == 0) & (high == 1) & ~others)


def fill_statistics(profile: Profile, missing: str, seed: int) -> list[Statistic]:
    """Return the statistics from which fill values of missing features follow; one pass computes all of them."""
    means: list[Statistic] = [MeansOfPresent(profile.d)]
    return means + ([RowSample(draw_rows(profile, QUANTILE_ROWS, seed), profile)] if missing == "median" else [])


def fill_values(statistics: Sequence[Any], results: Sequence[Any], weights: Array | None = None) -> Array | None:
    """Return the fill values of missing features, shape (d,); None if no feature value is missing.

    Parameters
    ----------
    statistics : sequence of Statistic
        `fill_statistics`.
    results : sequence
        Theirs, in their order.
    weights : float64 array, shape (n,), optional
        Of the rows.

    Notes
    -----
    A feature without a value in the sample of rows is filled with its mean.
    """
    means, *samples = results
    if not means.n_missing.any():
        return None
    fill: Array = means.mean
    for statistic, sample in zip(statistics[1:], samples, strict=True):
        chosen = None if weights is None else weights[statistic.chosen]
        fill = column_medians(sample.X, np.flatnonzero(means.n_missing), fill, chosen)
    return fill
