"""How many features to keep, and how far ranks can be trusted: what replicates of the rows tell one-pass selectors.

A selector whose scores follow from sums over rows has the sums of shuffled and resampled rows in the same reading
(`mlfs_dask.statistics.resampling`). Scores of shuffled rows are scores by chance: the number of features that beat them
at a false discovery rate is how many to keep. Ranks in resampled rows say how much of a ranking is chance.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, DoesNotFitError, parameter
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.base import AUTO
from mlfs_dask.selectors.contract import Method
from mlfs_dask.selectors.costs import PassRunner, Reading
from mlfs_dask.statistics.resampling import NOT_RESAMPLED, Resampling, draw_pool, label_sample
from mlfs_dask.typing import HeldArray, Profile, Seed

#: What the reading of the labels that shuffles draw from is called.
LABELS = "labels"


class ResamplingSelector(Method):
    """Base class of selectors whose scores follow from sums over the rows: with weights, of shuffles, of resamples.

    A subclass with `resamples_rows` False takes weights alone; it has neither `fdr` nor `resamples`.
    """

    takes_weights = True
    resamples_rows = True

    fdr: float
    resamples: int
    random_state: Seed

    @property
    def is_random(self) -> bool:
        return len(self._planned_resampling()) > 1 or self._missing == "median"

    @property
    def _shuffles(self) -> int:
        """Shuffles of the labels: the fewest by which a single feature can be discovered.

        Its p-value is at least 1/(1 + B d), and Benjamini and Hochberg ask for fdr/d.
        """
        return math.ceil(1 / self.fdr) if self.resamples_rows and self.n_features_to_select == AUTO else 0

    def _planned_resampling(self) -> Resampling:
        """The replicates of a fit, without the labels that shuffles draw from."""
        return Resampling(self._shuffles, self.resamples, self.seed) if self.resamples_rows else NOT_RESAMPLED

    def _require_scores(self, d: int, resources: Resources) -> None:
        """Refuse replicates whose scores this process cannot hold, before readings of them are planned.

        Raises
        ------
        DoesNotFitError
        """
        planned = self._planned_resampling()
        projected = 8 * d * (3 * planned.shuffles + 2 * planned.resamples)
        if projected > resources.driver_limit:
            raise DoesNotFitError(
                f"scores of {planned.shuffles:,} shuffles and {planned.resamples:,} resamples of {d:,} features",
                projected=projected,
                available=resources.driver_limit,
                cure=f"give a larger {parameter('fdr')}, or fewer {parameter('resamples')}",
            )

    def _label_readings(self, profile: Profile) -> list[Reading]:
        """The reading of the labels that shuffles draw from, if there are any."""
        if not self._shuffles:
            return []
        return [Reading(LABELS, (label_sample(profile.labels_only(), self.seed),), labels_only=True)]

    def _replicate_arrays(self, first: str) -> list[HeldArray]:
        """Arrays of the driver; `_replicate_sizes` has their letters."""
        return [
            HeldArray("labels to shuffle", "2 m", "u1"),
            HeldArray("scores of shuffles", "3 h d", first=first),
            HeldArray("scores of resamples", "2 b d", first=first),
        ]

    def _replicate_sizes(self, profile: Profile) -> dict[str, int]:
        resampling = self._planned_resampling()
        return {"m": resampling.pool_bytes(profile), "h": resampling.shuffles, "b": resampling.resamples}

    def _resampling(self, passes: PassRunner) -> Resampling:
        """The replicates of this fit; the labels that shuffles draw from are read."""
        planned = self._planned_resampling()
        if not planned.shuffles:
            return planned
        statistic = label_sample(passes.source.labels_only().profile, self.seed)
        (sample,) = passes.run(LABELS, statistic, labels_only=True)
        return Resampling(planned.shuffles, planned.resamples, planned.seed, draw_pool(sample, planned.seed))

    def _discover(
        self, statistic: NDArray[np.float64], null: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_] | None, NDArray[np.float64] | None]:
        """Which features are discovered at the false discovery rate `fdr`, and `q_values`.

        Both are None where a number of features was given.

        Raises
        ------
        DataError
            There is none.
        """
        if not self._shuffles:
            return None, None
        q = q_values(statistic, null)
        discovered = q <= self.fdr
        if not discovered.any():
            raise DataError(
                f"no feature goes with the labels more than by chance at a false discovery rate of {self.fdr:g} "
                f"(of the best feature it is {q.min():.2g})",
                cure=f"keep a given number of features ({parameter('n_features_to_select')}), "
                f"raise the rate ({parameter('fdr')}), or take data with more rows",
            )
        return discovered, q


def q_values(statistic: NDArray[np.float64], null: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least false discovery rate at which each feature is discovered.

    Parameters
    ----------
    statistic : float64 array, shape (d,)
        Larger the more a feature has to do with the labels.
    null : float64 array, shape (B, d)
        The same of shuffled labels.

    Returns
    -------
    float64 array, shape (d,)

    Notes
    -----
    The p-value of a feature is the share of the B d null statistics, of all features, that are as large as its own (one
    added above and below the line). Benjamini and Hochberg's procedure follows. Of a feature that is independent of the
    labels, statistic and null statistics have one distribution, whatever it is; so at every threshold the null
    statistics above it, divided by B, are in the mean at least as many as the false discoveries. The distributions of
    different features need not be the same.

    References
    ----------
    Y. Benjamini, Y. Hochberg, "Controlling the false discovery rate", Journal of the Royal Statistical Society B 57
    (1995) 289-300. J. Storey, R. Tibshirani, "Statistical significance for genomewide studies", PNAS 100 (2003)
    9440-9445, for p-values from the null statistics of all features.

    Examples
    --------
    >>> q_values(np.array([5.0, 0.1]), np.array([[0.3, 0.2], [0.1, 0.4]]))
    array([0.4, 1. ])
    """
    pooled = np.sort(null, axis=None)
    above = len(pooled) - np.searchsorted(pooled, statistic, side="left")
    p = (1 + above) / (1 + len(pooled))
    # scipy.stats.false_discovery_control does the same; its import takes 50 MiB and 0.7 s.
    order = np.argsort(p)
    adjusted = p[order] * len(p) / np.arange(1, len(p) + 1)
    result = np.empty(len(p))
    result[order] = np.minimum.accumulate(adjusted[::-1])[::-1].clip(max=1.0)
    return result
