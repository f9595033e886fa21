"""Filters from moments and cross-products: one pass, which every method that begins with them shares."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from mlfs_dask.blocks.pair_scores import SUM, Aggregation, Sums, score_pairs
from mlfs_dask.selectors.contract import LEFT_OUT, family
from mlfs_dask.selectors.one_reading import OneReading
from mlfs_dask.selectors.parameters import ON_AUTO, Missing, Resamples, seed_of
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array, Seed


@family
class ProductFilter(OneReading):
    """Base class of filters of moments and cross-products.

    A subclass has a statistic of a label and a feature (`pair`), of which the scores are the sum over labels or what
    `over` says; or it overrides `scores`.
    """

    known_entries = True
    unknown_entry = LEFT_OUT
    on_features = ON_AUTO
    takes_covariates = takes_numbers = True
    over: ClassVar[Aggregation] = SUM
    has_joint_scores = True

    missing: Missing = "error"
    resamples: Resamples = 0
    random_state: Annotated[Seed, seed_of("shuffles, of resamples, and of the sample of rows for medians")] = None

    def pair(self, sums: Sums) -> Array:
        """Return (p, w) statistics of labels and features."""
        raise NotImplementedError

    def scores(self, *_: Any, **results: Any) -> Array:
        sums: LabelMoments = results["sums"]
        return score_pairs(self.pair, sums.terms, self.over)
