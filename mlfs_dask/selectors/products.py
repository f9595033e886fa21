"""What selectors from moments and cross-products share: their one reading, of the rows and of all replicates of them.

Y'(X − mean), Y'Y and the moments of X come from one pass over X, which every selector that begins with them shares. A
filter is a formula of these sums.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.base import Scores, uninformative_warning
from mlfs_dask.selectors.contract import ON_AUTO, FalseDiscoveryRate, Missing, Resamples, family, seed_of
from mlfs_dask.selectors.costs import Cost, PassRunner, Reading
from mlfs_dask.selectors.resampling import ResamplingSelector
from mlfs_dask.statistics.products import LabelMoments, LabelProducts, wants_compiled
from mlfs_dask.statistics.resampling import Resampling, replicate_groups
from mlfs_dask.typing import HeldArray, Profile, RowSource, Seed, profile_of


class ProductsSelector(ResamplingSelector):
    """Base class of selectors whose scores follow from `LabelMoments`, and from what `reads` has beside them."""

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        """Statistics of the one reading, by the names that their results have; "sums" are `LabelMoments`."""
        weighted = profile.weight is not None
        return {"sums": LabelProducts(profile.d, profile.q, compiled=wants_compiled(profile), weighted=weighted)}

    def first_reading(self, source: RowSource, resources: Resources) -> Sequence[Statistic]:
        return tuple(self.reads(source.profile).values()) if len(self._planned_resampling()) == 1 else ()

    def _readings(self, source: Profile | RowSource, resampling: Resampling, resources: Resources) -> list[Reading]:
        """The readings that sum all replicates of the rows, as many as fit in each."""
        statistics = list(self.reads(profile_of(source)).values())
        if len(resampling) == 1:
            return [Reading("products", tuple(statistics))]
        self._require_scores(profile_of(source).d, resources)
        groups = replicate_groups(statistics, resampling, source, resources)
        if len(groups) == 1:
            return [Reading("products", tuple(groups))]
        return [Reading(f"products {i}/{len(groups)}", (group,)) for i, group in enumerate(groups, start=1)]

    def _replicates_cost(
        self, readings: Sequence[Reading], resampling: Resampling, profile: Profile, first: str
    ) -> tuple[dict[str, int], list[HeldArray], list[str]]:
        """Sizes, arrays and notes of the replicates of the rows; scores of them are held from the step `first` on."""
        returned = sum(statistic.result_bytes for statistic in readings[0].statistics)
        sizes = {"s": returned, **self._replicate_sizes(profile)}
        if len(resampling) == 1:
            return sizes, [], []
        arrays = [HeldArray("sums of replicates", "s", "u1", first, first), *self._replicate_arrays(readings[0].name)]
        return (
            sizes,
            arrays,
            [f"for {resampling.shuffles} shuffles and {resampling.resamples} resamples of the rows too"],
        )

    def _results(self, passes: PassRunner, resampling: Resampling) -> Iterator[dict[str, Any]]:
        """The results of `reads` for every replicate of the rows, in their order."""
        names = list(self.reads(passes.source.profile))
        for reading in self._readings(passes.source, resampling, passes.resources):
            results = passes.run(reading.name, *reading.statistics)
            if len(resampling) == 1:
                yield dict(zip(names, results, strict=True))
            else:
                yield from (dict(zip(names, replicate, strict=True)) for replicate in results[0])

    def _check_sums(self, passes: PassRunner, sums: LabelMoments) -> None:
        self.refuse_unknown(sums.unknown, passes.names)
        self.examine_moments(passes, sums.mean, sums.m2)


@family
class ProductsFilter(ProductsSelector):
    """Base class of filters whose scores are a formula of moments and cross-products."""

    on_features = ON_AUTO

    passes = "1 (+1 over the labels alone for -k auto)"
    memory = "worker and driver: 8 bytes * (q * d + q²)"

    missing: Missing = "error"
    fdr: FalseDiscoveryRate = 0.1
    resamples: Resamples = 0
    random_state: Annotated[Seed, seed_of("shuffles, of resamples, and of the sample of rows for medians")] = None

    @property
    def workspace(self) -> str:
        """Numbers of 8 bytes that `scores` holds beside its arguments and the scores, in size letters."""
        return ""

    @abstractmethod
    def scores(self, sums: LabelMoments, **others: Any) -> NDArray[np.float64]:
        """(d,) scores from the results of `reads`, which may be changed; a constant feature has 0."""

    def cost(self, source: Profile | RowSource, resources: Resources) -> Cost:
        profile = profile_of(source)
        resampling = self._planned_resampling()
        readings = self._readings(source, resampling, resources)
        sizes, arrays, notes = self._replicates_cost(readings, resampling, profile, "scores")
        if len(resampling) == 1:
            arrays = [HeldArray("sums", "s", "u1", first="scores")]
        return Cost(
            steps=[*self._label_readings(profile), *readings, "scores"],
            sizes={"d": profile.d, "q": profile.q, **sizes},
            arrays=[
                *arrays,
                *(HeldArray("terms of scores", term, first="scores") for term in self.workspace.split(" + ") if term),
                HeldArray("moments and scores", "12 d", first="scores"),
            ],
            notes=notes,
        )

    def score(self, passes: PassRunner, k: int) -> Scores:
        resampling = self._resampling(passes)
        results = self._results(passes, resampling)
        observed = next(results)
        moments = observed["sums"]
        self._check_sums(passes, moments)
        scores = self.scores(**observed)
        warnings: list[Warning] = []
        if not scores.any():
            constant, d = int(np.count_nonzero(moments.m2 == 0)), len(scores)
            warnings = [
                uninformative_warning(
                    self.method,
                    constant=constant,
                    d=d,
                    constant_labels=moments.constant_labels,
                    q=len(moments.positives),
                )
            ]
        null = [self.scores(**next(results)) for _ in range(resampling.shuffles)]
        discovered, q_values = self._discover(scores, np.array(null))
        resampled = [self.scores(**replicate) for replicate in results]
        return Scores(
            scores,
            warnings=warnings,
            discovered=discovered,
            q_values=q_values,
            resampled_scores=np.stack(resampled) if resampled else None,
        )
