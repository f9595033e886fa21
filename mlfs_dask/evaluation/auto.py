"""`auto`: methods judged on held-out rows, and the best of them.

One pass brings the sums that any candidate begins with, and a sample of rows. The candidates learn from a part of
the sample, and a linear model and nearest neighbours judge the features that they choose on the rest. All candidates
learn from few rows, the better half of them from twice as many, and so on. The ranking of the best comes from the sums
of all rows, or from the sample where that has all rows: M. Stone, "Cross-validatory choice and assessment of
statistical predictions", Journal of the Royal Statistical Society B 36 (1974) 111-147,
doi:10.1111/j.2517-6161.1974.tb00994.x; K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and
hyperparameter optimization", AISTATS 2016, PMLR 51, 240-248, https://proceedings.mlr.press/v51/jamieson16.html.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.blocks.codes import TABLE_SHARES, code_book, edge_rows
from mlfs_dask.blocks.neighbours import compiles_search, scratch_bytes
from mlfs_dask.blocks.row_draws import shuffled_places
from mlfs_dask.engine.readings import plan_statistics, run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DoesNotFitError, UsageError, number_of, parameter
from mlfs_dask.evaluation.judges import compare, linear_scores, neighbour_scores, row_precision, tied_with_best
from mlfs_dask.evaluation.metrics import metrics_bytes
from mlfs_dask.evaluation.splits import make_splits
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.rows.covariates import clusters_of_rows
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors import METHODS, get_method, method_name
from mlfs_dask.selectors.contract import Method, method
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings, project, require_driver
from mlfs_dask.selectors.counting import CODE_READINGS, RANGES
from mlfs_dask.selectors.parameters import Missing, Param, seed_of
from mlfs_dask.selectors.scores import Scores, kept_first
from mlfs_dask.statistics.counts import code_statistics, measured_view
from mlfs_dask.statistics.gram import GRAM_CAP
from mlfs_dask.statistics.sample import RowSample, SampledRows, draw_rows
from mlfs_dask.typing import Array, Seed, numbers

#: Parts of the sample, each of which is held out once.
FOLDS = 5

#: Rows that are enough to judge on. Where the average precision of a row differs by 0.15 between two methods (one
#: standard deviation), half a point between their means is two standard errors.
JUDGED_ROWS = 4096

#: Fewest training rows of the regression for each feature. With half as many features as rows its errors are mostly
#: noise, to which features that hardly vary add least: on wide text these scored best by 6 points.
ROWS_PER_FEATURE = 4

#: Rows from which all candidates learn at first, unless four fifths of the sample are less than twice as many.
FIRST_ROWS = 512

#: Candidates that are judged to the end, or more where more tie.
FINALISTS = 4

#: Iterations of a judged fit. The first d/20 to d/2 features of `elc` and `llsf` on medical, bibtex and delicious are
#: then at least 0.92 of those of a loop that runs to its end, in a fifth of the time.
JUDGED_ITERATIONS = 30

#: Default candidates, by name so that a new method changes no ranking: filters, and others with short fits; the
#: cheapest first.
CANDIDATES = (
    *("mddm", "anova-f", "br-cc", "mfs-f", "fisher", "gmlc", "enm", "chi2", "label-entropy", "ela-chi", "gmm", "br-or"),
    *("fimf", "spfs", "scls", "ami", "elc", "llsf", "qpmlfs"),
)

#: Name of the pass.
STATISTICS = "statistics"


@dataclass(frozen=True)
class _Candidate:
    """A method that is judged.

    Attributes
    ----------
    selector : Method
    cost : Cost
        Of a fit to all rows.
    statistics : tuple of Statistic
        All statistics that such a fit needs. Empty where it takes several passes or holds all rows, which it may only
        where the sample has all rows: its last fit is then to the sample.
    last_fit_bytes : int
        What a fit to the sampled rows takes of this process.
    brief : Method
        The selector with `JUDGED_ITERATIONS` at most, which is judged.
    judged_cost : Cost
        Of a fit of it to the sampled rows.
    judged_fit_bytes : int
        What such a fit takes.
    """

    selector: Method
    cost: Cost
    statistics: tuple[Statistic, ...]
    last_fit_bytes: int
    brief: Method
    judged_cost: Cost
    judged_fit_bytes: int

    @property
    def method(self) -> str:
        return self.selector.method

    @property
    def array_bytes(self) -> int:
        """Bytes of the arrays that the driver holds of a fit to all rows."""
        if not self.statistics:
            return self.last_fit_bytes
        return sum(self.cost.most_held.values())


class _Trial(NamedTuple):
    """Rows of the sample to learn from and to judge on; `whole` if it is one of the parts of the sample."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    whole: bool


@method(
    "auto",
    "The method that held-out rows favour",
    paper="Stone 1974, Journal of the Royal Statistical Society B 36, 111",
    doi="10.1111/j.2517-6161.1974.tb00994.x",
)
class AutoSelector(Method):
    """The method that held-out rows favour, or the mean rank of those that they cannot tell apart.

    A candidate learns from some rows of a sample. A ridge regression of the labels on the k features that it chooses,
    and ten nearest neighbours by these features, are judged on other rows by average precision. All candidates learn
    from 512 rows, the better half of them from 1 024, and so on; the last four from four fifths of the sample, in turn
    for every fifth that is held out. The method of the highest mean ranks the features on all rows, together with those
    of the last that are no more than one standard error of the difference below it: they tie, and which of them is best
    is chance. Features are then ranked by the mean of their ranks. A method that ties is not dropped before.

    Notes
    -----
    One pass over X of a store; one more where ranges and quantiles of features are not recorded, and one more for what
    missing values are filled with. It brings the sums of all candidates and a sample of 20 480 rows (fewer where they
    take more than 256 MiB), in which candidates and judge work without a pass. The only sums of size d × d are those of
    candidates that weigh features against one another, for at most 4 096 features; of more these would need a second
    pass. Methods that make several passes over this data are judged where the sample has all rows, which are then in
    memory. Parts are held out until 4 096 rows are judged: one of a full sample, all five of 5 000 rows or fewer. Of
    fewer than 1 280 rows all candidates learn from the first four fifths, the better half also from the second, and so
    on. Loops of judged fits end after 30 iterations, those of the last fits where they end.

    Where judging takes longer than `budget` seconds, the best so far is the answer: of the candidates that have learnt
    from most rows, in the order of the names at first, and best first later. A warning says so, since the answer then
    depends on the speed of the machine; otherwise it follows from the data and `random_state` alone. A fit is not
    interrupted; the pass before and the last fits after do not count.

    Both judges take standardised features, and of both a row counts the mean of its two average precisions. The
    penalty of the regression is 1: a strong one hides what rare features do to classifiers without one. A label's
    score by neighbours is the share of them that have it. Where many features are chosen, only the best of them are
    judged: for the regression at most one for every four rows to learn from, for neighbours one for each of these
    rows, and 4 096 for either. Average precision is that of the labels of a row in the order of their scores; of a
    single label, that of all rows in the order of its score. Candidates that need a second pass, or rows in memory,
    of more rows than the sample has, or do not fit the memory beside the others, are left out. The record's `extra`
    has the best method (`chosen`), the standard error of its average precision (`standard_error`), the next one with
    how far it is below and the standard error of the difference (`runner_up`), those that rank the features (`tied`,
    best first), every candidate with the rows that it learnt from last (`judged`), the number of judged rows, whether
    the budget ended first (`budget_ended`), what was left out and why (`left_out`), and the `extra` of the best method
    (`extra_of_chosen`).

    Unknown labels (-1) are what they are to the candidates. To the regression they are the share of the known rows
    that have the label, and so they are of neighbours; a row is judged by the labels that it is known to have or to
    lack. The choice depends on k. On emotions five seeds share 70 % of the features by the best candidate alone, and
    90 % by the mean of ranks. With thousands of dense features and very many rows leave out `spfs` and `qpmlfs`, whose
    sums of pairs of features take n d² operations.

    References
    ----------
    M. Stone, "Cross-validatory choice and assessment of statistical predictions", Journal of the Royal Statistical
    Society B 36 (1974) 111-147, doi:10.1111/j.2517-6161.1974.tb00994.x.

    K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS
    2016, PMLR 51, 240-248, https://proceedings.mlr.press/v51/jamieson16.html.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (200, 2))
    >>> X = np.hstack([rng.normal(size=(200, 3)), Y + 0.1 * rng.normal(size=(200, 2))])
    >>> selector = mlfs.AutoSelector(n_features_to_select=2, candidates="elc,enm").fit(X, Y)
    >>> np.flatnonzero(selector.support_).tolist(), [row["method"] for row in selector.report_.extra["judged"]]
    ([3, 4], ['elc', 'enm'])
    """

    on_features = "Which method is best depends on it."
    candidates: Annotated[
        str | None,
        Param(
            "Names of the methods to judge, between commas, with their default parameters; by default the filters, "
            "`ami`, `llsf`, `qpmlfs`, `scls` and `spfs`. Judged in this order while the budget lasts."
        ),
    ] = None
    budget: Annotated[
        float,
        Param(
            "Seconds after which no other method is judged, and the best so far is taken; inf for no limit.",
            most=math.inf,
            metavar="SECONDS",
        ),
    ] = 30.0
    judge: Annotated[
        Literal["both", "linear", "neighbours"],
        Param(
            'Model that judges features on held-out rows: best the kind that the features are for. "linear": '
            'ridge regression. "neighbours": nearest neighbours. "both": the mean of the two.'
        ),
    ] = "both"
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample of rows, of its parts, and of the sample for medians")] = None

    choice_depends_on_k = True
    scores_from_counts = True  # rounded if those of the chosen method are
    passes = "1 (1 more where ranges or quantiles are not recorded)"
    unknown_entry = "is what it is to each candidate, which is judged by known labels"
    memory = "worker: the sums of all candidates; driver: these, 4 times the sampled rows, and a fit to them"

    def check(self) -> None:
        super().check()
        self._names()

    def _judges(self, sampled: Profile | RowSource, k: int) -> list[tuple[Callable[..., Array], int]]:
        """Functions that score labels by chosen features, each with the most features that it takes."""
        judges = {
            "linear": (linear_scores, _most_judged(sampled, k, ROWS_PER_FEATURE)),
            "neighbours": (neighbour_scores, _most_judged(sampled, k)),
        }
        return list(judges.values()) if self.judge == "both" else [judges[self.judge]]

    # ------------------------------------------------------------------ candidates

    def _names(self) -> list[str]:
        """Names of the methods to judge."""
        if self.candidates is None:
            return list(CANDIDATES)
        known = [name for name in METHODS if name != self.method]
        names = list(dict.fromkeys(method_name(name.strip()) for name in str(self.candidates).split(",")))
        for name in names:
            if name not in known:
                raise UsageError(
                    f"{parameter('candidates')} names {name!r}, which is no method that can be judged. "
                    f"There are: {', '.join(known)}."
                )
        return names

    def _candidates(
        self, source: Profile | RowSource, resources: Resources, asked: Asked
    ) -> tuple[list[_Candidate], dict[str, str]]:
        """Return the candidates that can be judged together, and the reason against each other candidate.

        Raises
        ------
        DoesNotFitError
            No candidate fits.
        """
        candidates, left_out = [], {}
        refusal: DoesNotFitError | None = None
        sample = self._sample(source)
        sampled = _sampled(source, sample.chosen)
        for name in self._names():
            try:
                found = self._candidate(name, source, sampled, resources, asked)
            except DoesNotFitError as error:
                refusal, left_out[name] = error, "it does not fit the memory"
                continue
            if isinstance(found, str):
                left_out[name] = found
            else:
                candidates.append(found)
        own = runtime.own_resources(resources)
        while candidates:
            try:
                plan_statistics(source, [sample, *_shared(each.statistics for each in candidates).values()], resources)
                plan_statistics(
                    sampled, list(_shared(_first_statistics(each.judged_cost) for each in candidates).values()), own
                )
                return candidates, left_out
            except DoesNotFitError as error:
                refusal = error
                largest = max(candidates, key=lambda each: sum(s.state_bytes for s in each.statistics))
                candidates.remove(largest)
                left_out[largest.method] = "its sums do not fit the memory beside those of the others"
        if refusal is not None:
            raise refusal
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise UsageError(f"no method can be judged ({reasons}). Name others with {parameter('candidates')}.")

    def _candidate(
        self, name: str, source: Profile | RowSource, sampled: Profile | RowSource, resources: Resources, asked: Asked
    ) -> _Candidate | str:
        """The candidate of a name; or why there is none."""
        method: Any = get_method(name)
        selector, asked = method(random_state=self.seed), Asked(asked.k)
        cost = selector.cost(source, resources, asked)
        readings = [step for step in cost.steps if isinstance(step, Reading) and step.name not in CODE_READINGS]
        read = [statistic for reading in readings for statistic in reading.statistics]
        statistics = tuple(statistic for statistic in read if statistic.kind)
        if len(readings) > 1 or not read or len(statistics) < len(read):
            m, n = (profile_of(each).n for each in (sampled, source))
            if m < n:
                if not read:
                    return "it holds all rows in memory"
                return f"it takes {number_of(len(readings), 'pass', 'passes')} over this data"
            statistics = ()
        most = getattr(selector, "max_iter", 0)
        brief = replace(selector, max_iter=min(most, JUDGED_ITERATIONS)) if most else selector
        own = runtime.own_resources(resources)
        costs = [selector.cost(sampled, own, asked), brief.cost(sampled, own, _judged(brief, sampled, asked.k))]
        plans = [require_driver(project(each, sampled, own), own, f"{name} on sampled rows") for each in costs]
        last, of_part = (plan.peak_driver_bytes - runtime.driver_bytes() for plan in plans)
        return _Candidate(selector, cost, statistics, last, brief, costs[1], of_part)

    # ------------------------------------------------------------------ plan

    def _sample(self, source: Profile | RowSource) -> RowSample:
        profile = profile_of(source)
        return RowSample(draw_rows(profile, FOLDS * JUDGED_ROWS, self.seed), profile)

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        profile = profile_of(source)
        candidates, left_out = self._candidates(source, resources, asked)
        sample, shared = self._sample(source), list(_shared(each.statistics for each in candidates).values())
        first_of_all = _shared(_first_statistics(each.judged_cost) for each in candidates)
        of_sample = list(first_of_all.values())
        own, sampled = runtime.own_resources(resources), _sampled(source, sample.chosen)
        first = plan_statistics(sampled, of_sample, own).peak_worker_bytes - own.process_bytes
        m = len(sample.chosen)
        columns, of_regression = _most_judged(sampled, asked.k), _most_judged(sampled, asked.k, ROWS_PER_FEATURE)
        known = isinstance(source, RowSource) and _is_measured(source)
        steps: list[Reading | str] = []
        of_features = f"{4 + len(TABLE_SHARES)} d"  # ranges and quantiles
        if not known:
            steps.append(Reading(RANGES, code_statistics(profile), workspace=f"{of_features} + 3 quantiles"))
        # Until ranges are known, the sums of some candidates are an estimate.
        name = STATISTICS if known else f"estimated {STATISTICS}"
        steps.append(Reading(name, (sample, *shared), workspace=of_features))
        held_out = math.ceil(m / FOLDS)
        judging = f"{of_features} + sums + 3 sample + partial"  # of the sample, and of its parts
        steps += [
            f"{judging} + fit",
            # Ridge regression and its products; standardised rows, distances, predictions, metrics.
            f"{judging} + 5 c c + 4 c q + rows + distances + 3 h q + metrics + candidates m",
            f"{of_features} + sums + sample + candidates m + last",
        ]
        row_bytes = 12 * -(-profile.nonzeros // max(profile.n, 1)) + 8 if profile.sparse else 8 * columns
        notes = [f"judges {', '.join(each.method for each in candidates)} on rows out of a sample of {m:,}"]
        notes += [f"{name} is left out: {reason}" for name, reason in left_out.items()]
        return Cost(
            steps=steps,
            sizes={
                "d": profile.d,
                "q": profile.q,
                "c": of_regression,
                "m": m,
                "h": held_out,
                "metrics": numbers(metrics_bytes(held_out * profile.q, 0)),
                "candidates": len(candidates),
                "rows": numbers(m * row_bytes),
                "distances": numbers(min(scratch_bytes(columns), 8 * held_out * m * (2 + 6 * columns))),
                "sample": numbers(sample.result_bytes),
                "quantiles": numbers(RowSample(edge_rows(profile), profile).result_bytes),
                "sums": numbers(sum(statistic.result_bytes for statistic in shared)),
                "partial": numbers(sum(statistic.result_bytes for statistic in of_sample)),
                "fit": numbers(max(first, *(candidate.judged_fit_bytes for candidate in candidates))),
                "last": numbers(max(candidate.array_bytes for candidate in candidates)),
            },
            compiled=any(each.cost.compiled for each in candidates)
            or compiles_search(held_out * m, sparse=profile.sparse),
            notes=notes,
        )

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        if not _is_measured(source):
            return ()
        candidates, _ = self._candidates(source, resources, asked)
        return [self._sample(source), *_shared(each.statistics for each in candidates).values()]

    # ------------------------------------------------------------------ run

    def score(self, readings: Readings) -> Scores:
        source = self._measured(readings)
        candidates, left_out = self._candidates(source, readings.resources, readings.asked)
        shared = _shared(each.statistics for each in candidates)
        rows, *read = readings.run(STATISTICS, self._sample(source), *shared.values())
        results = dict(zip(shared, read, strict=True))
        own = runtime.own_resources(readings.resources)
        judged, last, ended = self._judge(candidates, rows, source, own, readings)
        left_out |= {each.method: "the budget ended before it" for each in candidates if each.method not in judged}
        of_last = [judged[each.method] for each in last]
        taken = [last[i] for i in tied_with_best(of_last)]
        sampled = ArrayRows(rows.X, rows.Y, n_categories=source.features.n_categories)
        outcomes, ranks, asked = [], np.zeros(source.profile.d), Asked(readings.asked.k)
        for candidate in taken:
            if candidate.statistics:
                plan = project(candidate.cost, source, readings.resources)
                runner = Readings(source, readings.resources, plan, asked, readings.names, results, readings.kept)
            else:
                plan = project(candidate.selector.cost(sampled, own, asked), sampled, own)
                runner = Readings(sampled, own, plan, asked, readings.names, kept=readings.kept)
            outcome = candidate.selector.score(runner)
            outcomes.append(replace(outcome, scores=candidate.selector.ranked_by(outcome.scores)))
            ranks += ranks_of(outcomes[-1], readings.varies)
        best = outcomes[0]
        of_best = judged[taken[0].method]
        others = sorted((row for row in of_last if row is not of_best), key=lambda row: row["below_best"])
        extra = {
            "chosen": taken[0].method,
            "standard_error": of_best["standard_error_of_mean"],
            "runner_up": others[0] if others else None,
            "tied": [candidate.method for candidate in taken],
            "judged": list(judged.values()),
            "judged_rows": of_best["judged_rows"],
            "budget_ended": ended,
            "left_out": left_out,
            "extra_of_chosen": best.extra,
        }
        if len(taken) > 1:
            best = replace(best, scores=1.0 - (ranks / len(taken) - 1.0) / source.profile.d, ranking=None)
        if ended:
            text = f"the budget of {self.budget:g} s ended while methods were judged: {taken[0].method} is the best so "
            text += f"far, by {of_best['learnt_rows']:,} rows, and another machine may take another. "
            text += f"Give a larger {parameter('budget')}, or fewer {parameter('candidates')}."
            best = replace(best, warnings=[*best.warnings, UserWarning(text)])
        return replace(best, extra=extra)

    def _measured(self, readings: Readings) -> RowSource:
        """The rows, with their ranges and counts of labels; refuses features that are broken."""
        source = readings.source
        if not _is_measured(source):
            readings.source = source = measured_view(source, *readings.run(RANGES, *code_statistics(source.profile)))
        features, label_counts = source.features, source.label_counts
        assert features.minimum is not None
        assert features.maximum is not None
        assert label_counts is not None
        self.examine_unknown(readings, label_counts[0])
        missing = np.zeros(len(features.minimum)) if features.n_missing is None else features.n_missing
        largest = np.maximum(np.abs(features.minimum), np.abs(features.maximum))
        # The judges standardise: squares of larger values are infinite.
        size = np.where(missing > 0, np.nan, np.where(largest > 1e150, np.inf, largest))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what varies by less has no variance
            self.examine_features(readings, size, np.square(features.maximum - features.minimum))
        return source

    def _trials(self, Y: Any, clusters: NDArray[np.int64] | None) -> list[_Trial]:
        """Rows to learn from and to judge on, one trial after another: the few first."""
        m = Y.shape[0]
        units = np.arange(m) if clusters is None else np.unique(clusters, return_inverse=True)[1]
        n_units = int(units.max(initial=-1)) + 1
        fold_of = shuffled_places(0, n_units, min(FOLDS, max(n_units, 1)), self.seed)[units]
        folds = list(make_splits("given", Y, given=fold_of)) if n_units > 1 else []
        trials, rows = [], FIRST_ROWS
        random = np.random.default_rng(self.seed)
        train, test = (random.permutation(of) for of in (folds[0].train, folds[0].test)) if folds else ((), ())
        while 2 * rows <= len(train):
            trials.append(_Trial(np.sort(train[:rows]), np.sort(test[:rows]), whole=False))
            rows *= 2
        n_judged = 0
        for fold in folds:
            if n_judged < JUDGED_ROWS:
                trials.append(_Trial(fold.train, fold.test, whole=True))
                n_judged += len(fold.test)
        return trials

    def _judge(
        self, candidates: Sequence[_Candidate], sample: SampledRows, source: RowSource, own: Resources, job: Readings
    ) -> tuple[dict[str, dict[str, Any]], list[_Candidate], bool]:
        """Judge candidates while the budget lasts.

        Returns
        -------
        dict
            Of every judged candidate, its row of `compare` among those that learnt from the same rows.
        list of _Candidate
            Those of the last trial.
        bool
            Whether the budget ended first.
        """
        end = perf_counter() + self.budget
        last, ended, found = list(candidates), False, {each.method: list[Array]() for each in candidates}
        judged: dict[str, dict[str, Any]] = {}
        trials, n_judged = self._trials(sample.Y, clusters_of_rows(job.source, self._sample(job.source).chosen)), 0
        for number, (train, test, whole) in enumerate(trials):
            if len(last) <= FINALISTS and not whole:
                continue
            X, Y, X_test, truth = sample.X[train], sample.Y[train], sample.X[test], sample.Y[test]
            rows = ArrayRows(X, Y, n_categories=source.features.n_categories)
            judges = self._judges(rows, job.asked.k)
            of_trial: list[_Candidate] = []
            n_judged += len(test)
            label = f"judging {number_of(len(last), 'method')} by {number_of(len(train), 'row')}"
            with runtime.stage(label, len(last), unit="methods") as report_progress:
                asked = [_judged(each.brief, rows, job.asked.k) for each in last]
                costs = [each.brief.cost(rows, own, of_fit) for each, of_fit in zip(last, asked, strict=True)]
                shared = _shared(_first_statistics(cost) for cost in costs)
                with runtime.without_progress():
                    results = dict(zip(shared, run_reading(rows, list(shared.values()), own)[0], strict=True))
                for candidate, of_fit, cost in zip(last, asked, costs, strict=True):
                    if (judged or of_trial) and perf_counter() >= end:
                        ended = True
                        break
                    with runtime.without_progress():
                        plan = project(cost, rows, own)
                        readings = Readings(rows, own, plan, of_fit, job.names, results, job.kept)
                        outcome = candidate.brief.score(readings)
                        ranking = kept_first(outcome.order(readings.varies), job.kept)
                        by_judge, taken = [], 0
                        for scores_by, most in judges:
                            if most != taken:  # mostly both judge the same features, which are then taken once
                                # In the order of the data: the same set of features then gives the same numbers.
                                chosen, taken = np.sort(ranking[:most]), most
                                data = X[:, chosen], Y, X_test[:, chosen], own
                            by_judge.append(row_precision(truth, scores_by(*data)))
                    found[candidate.method].append(np.mean(by_judge, axis=0))
                    of_trial.append(candidate)
                    report_progress()
            if len(of_trial) > 1 or not judged:
                last = of_trial
                precision = np.array([np.concatenate(found[each.method]) for each in last])
                sizes = {"learnt_rows": len(train), "judged_rows": n_judged}
                for each, row in zip(last, compare(precision), strict=True):
                    judged[each.method] = {"method": each.method, **row, **sizes}
                if not ended and number + 1 < len(trials):
                    of_last = [judged[each.method] for each in last]
                    better = np.argsort([row["below_best"] for row in of_last], kind="stable")
                    kept = {*better[: max(FINALISTS, -(-len(last) // 2))], *tied_with_best(of_last)}
                    last = [last[i] for i in better if i in kept]
            if ended:
                break
            if not whole:
                n_judged, found = 0, {each.method: [] for each in last}
        if not trials:  # of a single row or cluster
            nothing = compare(np.empty((1, 0)))[0] | {"learnt_rows": 0, "judged_rows": 0}
            judged = {each.method: {"method": each.method, **nothing} for each in last}
        in_order = {each.method: judged[each.method] for each in candidates if each.method in judged}
        return in_order, last, ended


def _most_judged(sampled: Profile | RowSource, k: int, rows_per_feature: int = 1) -> int:
    """Features that are judged at most of a candidate that chooses k."""
    return min(k, max(1, profile_of(sampled).n // rows_per_feature), GRAM_CAP)


def _judged(selector: Method, rows: Profile | RowSource, k: int) -> Asked:
    """Ask a method for no more features of some rows than are judged, where its first ones do not depend on that."""
    return Asked(k if selector.choice_depends_on_k else _most_judged(rows, k))


def ranks_of(outcome: Scores, varies: NDArray[np.bool_]) -> Array:
    """Rank of every feature, from 1; the mean of their ranks for features of equal scores. Constant features come last.

    >>> ranks_of(Scores(np.array([0.5, 0.2, 0.5])), np.ones(3, bool)).tolist()
    [1.5, 3.0, 1.5]
    """
    if outcome.ranking is None:
        from scipy.stats import rankdata

        ranks: Array = rankdata(-np.where(varies, outcome.scores, -np.inf))
        return ranks
    ranks = np.empty(len(varies))
    ranks[outcome.order(varies)] = np.arange(1, len(ranks) + 1)
    return ranks


def _first_statistics(cost: Cost) -> tuple[Statistic, ...]:
    """Return the statistics of the first pass of a fit, given known ranges of the features."""
    first = next(step for step in cost.steps if isinstance(step, Reading) and step.name not in CODE_READINGS)
    return tuple(statistic for statistic in first.statistics if statistic.kind)


def _shared(of_candidates: Iterable[Sequence[Statistic]]) -> dict[str, Statistic]:
    """Statistics of any candidate, each once, by their `result_key`."""
    return {statistic.result_key: statistic for statistic in itertools.chain.from_iterable(of_candidates)}


def _sampled(source: Profile | RowSource, rows: NDArray[np.int64]) -> Profile | RowSource:
    """Restrict a source to some rows, for a plan."""
    if isinstance(source, RowSource):
        return RowView(source, rows, known=source.features, quantiles=source.quantiles)
    share = len(rows) / max(source.n, 1)
    stored, labels = math.ceil(source.nonzeros * share), math.ceil(source.label_nonzeros * share)
    return replace(source, n=len(rows), nonzeros=stored, label_nonzeros=labels)


def _is_measured(source: RowSource) -> bool:
    """Return True if label counts, feature ranges and the default codes are known without a pass."""
    features = source.features
    if source.label_counts is None or features.minimum is None or features.zero_share is None:
        return False
    return (code_book(features, 2) or code_book(features, 2, table=source.quantiles)) is not None
