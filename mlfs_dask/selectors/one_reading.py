"""Methods of one pass: what they read by name, what they hold, how they score; and replicates of the rows.

A method whose scores follow from sums over rows has the sums of shuffled and resampled rows in the same pass
(`mlfs_dask.statistics.resampling`). Scores of shuffled rows are scores by chance: the number of features that beat them
at a false discovery rate is how many to keep. Ranks in resampled rows say how much of a ranking is chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.column_keys import mean_of_copies
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, DoesNotFitError, parameter
from mlfs_dask.rows.contract import Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import Method
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings
from mlfs_dask.selectors.scores import Scores, uninformative_warning
from mlfs_dask.statistics.covariates import adjusted, covariate_products
from mlfs_dask.statistics.gram import require_gram
from mlfs_dask.statistics.products import label_products
from mlfs_dask.statistics.resampling import (
    NOT_RESAMPLED,
    Resampling,
    draw_pool,
    label_sample,
    pool_in_strata,
    replicate_groups,
)
from mlfs_dask.typing import Array, Seed, join_terms, numbers

#: Names of passes, and their statistics by the names that their results have.
Passes: TypeAlias = Iterator[tuple[str, dict[str, Statistic]]]

#: What the pass over the labels that shuffles draw from is called.
LABELS = "labels"


class OneReading(Method):
    """Base class of methods whose scores follow from one pass over the rows.

    A subclass says what it reads (`reads`, and `later`), what the driver holds beside the results (`workspace`), and
    how it scores (`scores`). With `resamples_rows` it has the parameters `fdr`, `resamples` and `random_state`.
    """

    takes_weights = True
    resamples_rows = True
    passes = "1 (1 more over the labels alone for -k auto)"
    memory = "worker and driver: 8 bytes * (q * d + q²)"

    #: What the pass is called.
    reading: ClassVar[str] = "products"
    #: What scores that are all 0 say; empty where they say nothing.
    of_zeros: ClassVar[str] = "no feature is associated with any label"
    #: Whether it weighs features against one another, in which labels have no part.
    weighs_features: ClassVar[bool] = False
    #: Whether it draws at random whatever its parameters are.
    always_draws: ClassVar[bool] = False
    #: Whether it forms a (d, d) matrix, of `gram_cap` features at most.
    caps_features: ClassVar[bool] = False
    #: What messages call it.
    name: ClassVar[str]

    resamples: int
    random_state: Seed
    gram_cap: int

    # ------------------------------------------------------------------ for subclasses

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        """Return statistics of the pass, by the names that their results have.

        With "keys" of the features (`ColumnKeys`) features that are equal in every row get the mean of their scores.
        """
        return {"sums": label_products(source if self.known_entries else profile_of(source))}

    @property
    def workspace(self) -> str:
        """Numbers of 8 bytes that `scores` holds beside the results and 12 d, in size letters: "q d + 2 d d"."""
        return ""

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        """Size letters of `workspace` beside d and q."""
        return {}

    def notes(self, profile: Profile) -> list[str]:
        """Return notes for the user besides the numbers of a plan."""
        return []

    def later(self, source: Profile | RowSource, found: Mapping[str, Any]) -> Passes:
        """Return passes that come later.

        `found` are the results until then; empty for a plan, in which sizes alone matter.
        """
        yield from ()

    def prepare(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        """Return results of the first pass, examined."""
        sums = results["sums"]
        self.examine_unknown(job, sums.unknown)
        self.examine_moments(job, sums.mean, sums.m2)
        return results

    def complete(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        """Return results of all passes as `scores` takes them."""
        return results

    def scores(self, *_: Any, **results: Any) -> Array | Scores:
        """Return the scores of all features from the results by name, which may be changed, and k. A constant
        feature has 0.
        """
        raise NotImplementedError

    def association(self, *_: Any, **results: Any) -> Array | None:
        """Return the association of features with the labels that "auto" tests; None: the scores."""
        return None

    def warnings(self, job: Readings, outcome: Scores, results: Mapping[str, Any]) -> list[Warning]:
        """Return the warning where nothing can rank the features."""
        informative = outcome.scores.any() if outcome.informative is None else outcome.informative
        if informative:
            return []
        sums = results["sums"]
        return [
            uninformative_warning(
                self.method,
                constant=int(np.count_nonzero(~job.varies)),
                d=len(job.varies),
                constant_labels=sums.constant_labels,
                q=len(sums.positives),
                otherwise=self.of_zeros,
                weighs_features=self.weighs_features,
            )
        ]

    # ------------------------------------------------------------------ plan

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        profile = profile_of(source)
        if self.caps_features:
            require_gram(profile.d, self.gram_cap, self.name)
        resampling = self.resampling(asked)
        readings = self._readings(source, resampling, resources)
        results = sum(statistic.result_bytes for statistic in readings[0].statistics)
        unknown = self.known_entries and len(unknown_labels(source)) > 0
        # Residuals; and of each label over the rows where it is known.
        residuals = f"{5 if unknown else 2} q d" + " + d d" * ("gram" in self.reads(source))
        adjusting = [f"results + {residuals}"] * (profile.covariates > 0)
        later, held = [], 0
        for name, statistics in self.later(source, {}):
            later.append(Reading(name, tuple(statistics.values()), workspace=join_terms("results", str(held or ""))))
            held += numbers(sum(statistic.result_bytes for statistic in later[-1].statistics))
        # Squares of features over the rows where each label is known.
        of_known = ("3 q d" if adjusting else "q d") if unknown else ""
        return Cost(
            steps=[
                *self.label_readings(profile, asked),
                *(replace(reading, workspace=of_replicates(resampling)) for reading in readings),
                *adjusting,
                *later,
                join_terms(
                    "results", "later" * (held > 0), self.workspace, "12 d", of_replicates(resampling), of_known
                ),
            ],
            sizes={
                "d": profile.d,
                "q": profile.q,
                "results": numbers(results),
                "later": held,
                **replicate_sizes(resampling, profile),
                **self.sizes(source),
            },
            notes=[*self.notes(profile), *replicate_notes(resampling)],
        )

    def _readings(self, source: Profile | RowSource, resampling: Resampling, resources: Resources) -> list[Reading]:
        """Return the passes that feed all replicates of the rows, as many as fit in each."""
        statistics = self._read_statistics(source)
        if len(resampling) == 1:
            return [Reading(self.reading, tuple(statistics))]
        _require_scores(resampling, profile_of(source).d, resources)
        groups = replicate_groups(statistics, resampling, source, resources)
        if len(groups) == 1:
            return [Reading(self.reading, tuple(groups))]
        return [Reading(f"{self.reading} {i}/{len(groups)}", (group,)) for i, group in enumerate(groups, start=1)]

    def _read_statistics(self, source: Profile | RowSource) -> list[Statistic]:
        """Return the statistics of `reads`, and the sums of covariates if rows have any."""
        of_covariates = self.covariate_sums(source)
        return [*self.reads(source).values(), *([of_covariates] if of_covariates else [])]

    def covariate_sums(self, source: Profile | RowSource) -> Statistic | None:
        """Return the sums of covariates over the rows of `reads`."""
        return covariate_products(source, known_entries=self.known_entries)

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        if len(self.resampling(asked)) > 1:
            return ()
        return [statistic for statistic in self._read_statistics(source) if statistic.kind]

    # ------------------------------------------------------------------ run

    def score(self, readings: Readings) -> Scores:
        k, resampling = readings.asked.k, self._draw_resampling(readings)
        replicates = self.replicates(readings, resampling)
        observed = self.prepare(readings, next(replicates))
        for name, statistics in self.later(readings.source, observed):
            observed |= zip(statistics, readings.run(name, *statistics.values()), strict=True)
        observed = self.complete(readings, observed)
        outcome, discovered, q = None, None, None
        if readings.asked.level is not None:
            tested = self.association(**observed)
            if tested is None:
                outcome = self._scored(observed, k)
                tested = outcome.scores
            null = [self._tested(next(replicates), k) for _ in range(resampling.shuffles)]
            discovered, q = _discover(tested, np.array(null), readings.asked.level)
            k = int(np.count_nonzero(discovered))
        outcome = outcome or self._scored(observed, k)
        resampled = [self._scored(replicate, k).scores for replicate in replicates]
        return replace(
            outcome,
            warnings=[*self.warnings(readings, outcome, observed), *outcome.warnings],
            discovered=discovered,
            q_values=q,
            resampled_scores=np.stack(resampled) if resampled else None,
        )

    def replicates(self, job: Readings, resampling: Resampling) -> Iterator[dict[str, Any]]:
        """Return the results of `reads` for the rows, and then for every replicate of them."""
        names = list(self.reads(job.source))
        for reading in self._readings(job.source, resampling, job.resources):
            results = job.run(reading.name, *reading.statistics)
            for replicate in [results] if len(resampling) == 1 else results[0]:
                named = dict(zip(names, replicate, strict=False))
                if job.source.covariates is not None:
                    self.examine_unknown(job, named["sums"].unknown)
                    named = adjusted(named, replicate[-1])
                yield named

    def _scored(self, results: Mapping[str, Any], k: int) -> Scores:
        results = dict(results)
        keys = results.pop("keys", None)
        scores = self.scores(k=k, **results)
        outcome = scores if isinstance(scores, Scores) else Scores(scores)
        return outcome if keys is None else replace(outcome, scores=mean_of_copies(outcome.scores, keys))

    def _tested(self, results: Mapping[str, Any], k: int) -> Array:
        association = self.association(**results)
        return self._scored(results, k).scores if association is None else association

    # ------------------------------------------------------------------ replicates of the rows

    @property
    def is_random(self) -> bool:
        resamples = self.resamples_rows and self.resamples > 0
        return super().is_random and (self.always_draws or resamples or self._missing == "median")

    def resampling(self, asked: Asked) -> Resampling:
        """Return the replicates of a fit, without the labels that shuffles draw from."""
        return Resampling(asked.shuffles, self.resamples, self.seed) if self.resamples_rows else NOT_RESAMPLED

    def label_readings(self, profile: Profile, asked: Asked) -> list[Reading]:
        """Return the pass over the labels that shuffles draw from, if there are any."""
        if not asked.shuffles:
            return []
        sample = label_sample(profile.labels_only(), self.seed)
        return [Reading(LABELS, (sample,), labels_only=True, workspace="2 labels")]

    def _draw_resampling(self, job: Readings) -> Resampling:
        """Return the replicates of this fit; the labels that shuffles draw from are read."""
        source, covariates = job.source, job.source.covariates
        clusters = source.clusters
        planned = replace(self.resampling(job.asked), clusters=None if clusters is None else clusters.identity)
        if not planned.shuffles:
            return planned
        column = source.strata
        if clusters is not None:
            column, source = clusters, RowView(source, strata=clusters)
        elif column is None and covariates is not None and covariates.in_strata:
            column = covariates.columns[-1]
            source = RowView(source, strata=column)
        labels = source.labels_only()
        (sample,) = job.run(LABELS, label_sample(labels.profile, self.seed), source=labels)
        if column is None:
            return replace(planned, pool=draw_pool(sample, planned.seed))
        n_strata = len(column.categories or ())
        columns = None if covariates is None else covariates.stratum_columns
        pool, strata = pool_in_strata(
            sample, planned.seed, source.profile.n, n_strata, columns, clusters=clusters is not None
        )
        return replace(planned, pool=pool, strata=strata)


def _require_scores(resampling: Resampling, d: int, resources: Resources) -> None:
    """Refuse replicates whose scores this process cannot hold, before passes of them are planned.

    Raises
    ------
    DoesNotFitError
    """
    projected = 8 * d * (3 * resampling.shuffles + 2 * resampling.resamples)
    if projected > resources.driver_limit:
        raise DoesNotFitError(
            f"scores of {resampling.shuffles:,} shuffles and {resampling.resamples:,} resamples of {d:,} features",
            projected=projected,
            available=resources.driver_limit,
            cure=f"give a larger {parameter('fdr')}, or fewer {parameter('resamples')}",
        )


def of_replicates(resampling: Resampling) -> str:
    """Return the memory of replicates in the driver: labels to shuffle, and scores."""
    return "" if len(resampling) == 1 else "2 labels + 3 shuffles d + 2 resamples d"


def replicate_sizes(resampling: Resampling, profile: Profile) -> dict[str, int]:
    """Size letters of `of_replicates`."""
    return {
        "labels": numbers(resampling.pool_bytes(profile)),
        "shuffles": resampling.shuffles,
        "resamples": resampling.resamples,
    }


def replicate_notes(resampling: Resampling) -> list[str]:
    """Return the notes about replicates in a plan."""
    if len(resampling) == 1:
        return []
    return [f"for {resampling.shuffles} shuffles and {resampling.resamples} resamples of the rows too"]


def _discover(statistic: Array, null: Array, level: float) -> tuple[NDArray[np.bool_], Array]:
    """Return the features discovered at a false discovery rate, and `q_values`.

    Raises
    ------
    DataError
        There is none.
    """
    q = q_values(statistic, null)
    discovered = q <= level
    if not discovered.any():
        raise DataError(
            f"no feature is associated with the labels more than by chance at a false discovery rate of {level:g} "
            f"(of the best feature it is {q.min():.2g})",
            cure=f"keep a given number of features ({parameter('n_features_to_select')}), "
            f"raise the rate ({parameter('fdr')}), or take data with more rows",
        )
    return discovered, q


def q_values(statistic: Array, null: Array) -> Array:
    """Return the least false discovery rate at which each feature is discovered.

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
