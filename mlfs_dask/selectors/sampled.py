"""Methods that learn from a uniform sample of the rows, which one pass brings to the driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import FeatureInfo, Profile, RowSource, profile_of
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.selectors.one_reading import OneReading
from mlfs_dask.statistics.counts import Ranges
from mlfs_dask.statistics.sample import RowSample, draw_rows
from mlfs_dask.typing import Array, numbers


class SampledMethod(OneReading):
    """Base class of methods that learn from a sample of the rows.

    A subclass has a parameter `n_sampled`, and says what it holds beside the sample (`working_bytes`). Its scores are
    made of the results `sample`, `features` and `spread`, the maximum less the minimum of each feature over all rows.
    """

    passes = "1"
    always_draws = True
    takes_weights = False
    resamples_rows = False
    reading = "sample"
    workspace = "w"

    n_sampled: int

    def working_bytes(self, profile: Profile, sample: RowSample) -> int:
        """Return bytes that `scores` holds beside the sample."""
        raise NotImplementedError

    def draw_sample(self, profile: Profile) -> RowSample:
        """Return the statistic of the rows that are drawn."""
        return RowSample(draw_rows(profile, self.n_sampled, self.seed), profile)

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        """Return the sample, and what is not known of ranges and labels."""
        profile = profile_of(source)
        sample = self.draw_sample(profile)
        known = isinstance(source, RowSource) and source.features.minimum is not None
        if known and source.label_counts is not None:  # type: ignore[union-attr]
            return {"sample": sample}
        return {"sample": sample, "ranges": Ranges(profile.d, profile.q)}

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        profile = profile_of(source)
        return {"w": numbers(self.working_bytes(profile, self.draw_sample(profile)))}

    def prepare(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        features, label_counts = job.source.features, job.source.label_counts
        if "ranges" in results:
            ranges, label_counts = results["ranges"]
            features = replace(ranges, n_categories=features.n_categories)
        assert label_counts is not None
        self.examine_unknown(job, label_counts[0])
        spread = _spread(features)
        self.examine_features(job, spread, spread)
        return {"sample": results["sample"], "features": features, "spread": spread}


def _spread(features: FeatureInfo) -> Array:
    """Return the maximum less the minimum, shape (d,), 0 of a subnormal number; not finite where a value is not, or is
    missing.
    """
    assert features.minimum is not None
    assert features.maximum is not None
    with np.errstate(invalid="ignore", over="ignore"):
        spread: Array = features.maximum - features.minimum
    spread[spread < np.finfo(np.float64).tiny] = 0.0  # has no finite inverse
    if features.n_missing is not None:
        spread[features.n_missing > 0] = np.nan
    return spread
