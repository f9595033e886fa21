"""A fit: planning a method, running its passes, scoring the features and choosing among them."""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.rounding import SAME
from mlfs_dask.blocks.row_draws import QUANTILE_ROWS
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.cluster.workers import refused_workers
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.cache import record_hits
from mlfs_dask.engine.readings import ReadingRecord, count_readings, run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, UsageError, installed_versions, parameter
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.files.json_text import as_json
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.rows.covariates import (
    FEATURE,
    ArrayColumn,
    covariate_names,
    find_column,
    find_determining_column,
    find_strata,
    table_columns,
)
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.choice import Choice, choose, of_all_features
from mlfs_dask.selection.pairs import Pairs, run_tests
from mlfs_dask.selection.question import Question
from mlfs_dask.selection.runs import SHARED, read_run
from mlfs_dask.selectors.contract import Method, UnknownLabelsFound
from mlfs_dask.selectors.costs import Asked, EarlierChoice, Names, Plan, Readings
from mlfs_dask.selectors.pairs import AGGREGATE, PAIR_TESTS, pair_statistics
from mlfs_dask.selectors.parameters import GENERATORS, draw_seed
from mlfs_dask.selectors.scores import OFTEN, SHOWN, Scores, constant_warnings, falsely_chosen, no_part_in_scores, rank
from mlfs_dask.statistics.clusters import cluster_totals
from mlfs_dask.statistics.missing import FILL_READING, fill_values
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.statistics.sample import RowSample, draw_rows
from mlfs_dask.statistics.targets import TARGETS, TargetSums, target_form
from mlfs_dask.statistics.write_rows import RowSink, WriteLabels
from mlfs_dask.typing import Array

#: Parameters that do not affect scores.
_AFTER_SCORES = (
    *("n_features_to_select", "keep", "exclude", "pairs", "per_label", "min_labels", "control"),
    *("log_base", "pseudocount", "direction", "pair_test"),
    *("start_", "prune", "redundancy", "groups", "group_by"),
)

#: Number of recovered labels written at a time.
WRITTEN_LABELS = 2**22


@dataclass(frozen=True)
class Report:
    """Record of a fit, with its costs: the content of `run.json`.

    Attributes
    ----------
    method : str
    params : dict
        All parameters, including defaults.
    store : dict or None
        Path and digest of the store of X and Y, if any.
    n, d, q, k : int
        Rows, features, labels, chosen features.
    seed : int or None
        `random_state`, or the number drawn from a generator given as `random_state`. None: not given (seed 0).
    passes, tasks, bytes_read : int
    wall_seconds : float
        Duration of the whole fit.
    plan : dict
        Projected costs.
    peak_worker_bytes, peak_driver_bytes : int
        Measured. Without a cluster both are the same process; on a cluster without work for its workers the first is 0.
    iterations : int
    converged : bool or None
        None without a loop, and if early stopping is a part of the method (`stopped_early` in `extra`).
    objective : list of float
    versions : dict of str
    extra : dict
        Entries specific to the method and its options.
    warnings : list of str
        Warnings issued by `fit`.
    """

    method: str
    params: dict[str, Any]
    store: dict[str, Any] | None
    n: int
    d: int
    q: int
    k: int
    seed: int | None
    passes: int
    tasks: int
    bytes_read: int
    wall_seconds: float
    plan: dict[str, Any]
    peak_worker_bytes: int
    peak_driver_bytes: int
    iterations: int
    converged: bool | None
    objective: list[float]
    versions: dict[str, str]
    extra: dict[str, Any]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class OpenedRows:
    """Rows for a fit, with names and origin.

    Attributes
    ----------
    source : RowSource
    names : Names
    store : dict or None
        Path and digest of the store, and its subset, if any.
    results : dict
        Results of first statistics (`Question.first_statistics`) that were read, by their `result_key`.
    """

    source: RowSource
    names: Names = field(default_factory=Names)
    store: dict[str, Any] | None = None
    results: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Fit(Choice):
    """Result of a fit: the choice, with the objects that led to it.

    Attributes
    ----------
    question : Question
        The question, with feature numbers.
    names : Names
    outcome : Scores
        Scores of the features that were read.
    report : Report
    fill : float64 array or None
        Fill values of missing features, for the features that were read.
    pairs : Pairs or None
        Tests of label-feature pairs.
    """

    question: Question
    names: Names
    outcome: Scores
    report: Report
    fill: Array | None = None
    pairs: Pairs | None = None

    @property
    def support(self) -> NDArray[np.bool_]:
        """Mask of the chosen features, shape (d,)."""
        support = np.zeros(len(self.ranking), dtype=bool)
        support[self.ranking[: self.k]] = True
        return support

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Further columns of `ranking.csv`, each of shape (d,)."""
        columns: dict[str, NDArray[Any]] = {}
        if self.pairs is not None:
            d, features = len(self.ranking), self.pairs.features
            count, best = self.pairs.columns
            columns["significant_labels"] = of_all_features(count, features, d, 0)
            columns["best_label"] = of_all_features(best, features, d, "")
        if self.q_values is not None:
            columns["q_value"] = self.q_values
        if self.stability is not None:
            low, high = self.stability.intervals.T
            columns |= {"rank_low": low, "rank_high": high, "selection_frequency": self.stability.frequency}
        if self.shared is not None:
            columns[SHARED] = self.shared
        if self.group_scores is not None:
            groups: Any = self.question.groups
            names = np.array(groups.names, object)[groups.group_of]
            columns |= {"group": names, "group_score": self.group_scores}
        return columns

    def filled_view(self, source: RowSource) -> RowSource:
        """Return the view of the rows that was fitted, with missing values filled."""
        source = self.question.view(source)
        return source if self.fill is None else RowView(source, fill=self.fill)

    def write_labels(self, source: RowSource, sink: RowSink, resources: Resources | None = None) -> None:
        """Write the recovered labels of all rows, on the workers that compute them, in one pass over X.

        Parameters
        ----------
        source : RowSource
            The fitted rows in their order; other rows with the same features if the method learnt a prediction rule.
        sink : RowSink
        resources : Resources, optional

        Raises
        ------
        UsageError, DataError, DoesNotFitError, ClusterLostError
        """
        source, n = self.filled_view(source), source.profile.n
        resources = current_resources() if resources is None else resources
        outcome = self.outcome
        if outcome.row_labels is not None:
            run_reading(source, [WriteLabels(outcome.row_labels, sink)], resources, label="labels")
            return
        if outcome.labels is None or outcome.mean is None:
            raise UsageError(f"{self.question.method.method} recovers no labels")
        labels, mean = outcome.labels, outcome.mean
        cure = f"fit with {parameter('graph', 'anchors')} for labels of other rows"
        if len(labels) != n:
            raise DataError(
                f"the exact graph has labels of the {len(labels):,} rows that were fitted, and X has {n:,}", cure=cure
            )
        (moments,), _ = run_reading(source, [Moments(source.profile.d)], resources, label="moments")
        if not (np.abs(moments.mean - mean) <= SAME * (np.abs(moments.mean) + moments.std)).all():
            raise DataError(
                f"the exact graph has labels of the {n:,} rows that were fitted, and these are others", cure=cure
            )
        rows = max(1, WRITTEN_LABELS // labels.shape[1]) // sink.chunk_rows * sink.chunk_rows or sink.chunk_rows
        for start in range(0, n, rows):
            sink.write(start, labels[start : start + rows])


def open_rows(data: Any) -> OpenedRows:
    """Return the rows of a Dataset with names and digest; rows without names for a RowSource."""
    if isinstance(data, OpenedRows):
        return data
    if isinstance(data, RowSource):
        return OpenedRows(data, store=_store_entry(data))
    return OpenedRows(
        data.rows,
        Names(data.feature_names, data.label_names, data.feature_column),
        _store_entry(data.rows, data.subset_record, data.reading_record),
    )


def resolve_names(question: Question, data: Any) -> Question:
    """Return the question with feature numbers in place of names (`Question.resolve_names`).

    Parameters
    ----------
    question : Question
    data : Dataset, RowSource or OpenedRows
    """
    if question.keep is None and question.exclude is None and question.groups is None:
        return question
    rows = open_rows(data)
    return question.resolve_names(rows.names, rows.source.profile.d)


def check_data(question: Question, data: Any) -> Question:
    """Return `resolve_names`, after refusing data that the method does not support (`Question.require_accepted`).

    Parameters
    ----------
    question : Question
    data : Dataset, RowSource or OpenedRows

    Raises
    ------
    UsageError, DataError
    """
    rows = open_rows(data)
    question = resolve_names(question, rows)
    question.require_accepted(rows.source, rows.names)
    return question


def fit(
    question: Question,
    data: Any,
    sample_weight: Any = None,
    *,
    covariates: Any = None,
    strata: Any = None,
    clusters: Any = None,
    init: Mapping[str, Any] | None = None,
) -> Fit:
    """Score all features and choose the best.

    Parameters
    ----------
    question : Question
    data : Dataset, RowSource or OpenedRows
    sample_weight : array-like, shape (n,), optional
        Weight of each row.
    covariates : array-like or table, shape (n, c) or (n,), optional
        Covariates for which scores are adjusted.
    strata : array-like, shape (n,), optional
        Stratum of each row.
    clusters : array-like, shape (n,), optional
        Cluster of each row.
    init : mapping, optional
        Arrays that a published variant starts from.

    Raises
    ------
    DataError
        If X or Y is invalid.
    UsageError
        If a parameter has an invalid value.
    DoesNotFitError
        If the projected memory exceeds the limit; no data has been read.
    ClusterLostError
    """
    started = time.perf_counter()
    rows = open_rows(data)
    question, rows = attach_columns(question, rows, covariates=covariates, strata=strata, clusters=clusters)
    question.check()
    _check_init(question, init)
    if question.aggregate is not None:
        return _fit_clusters(question, rows, sample_weight)
    if question.ranks_strata:
        return _fit_within_strata(question, rows, sample_weight)
    rows, whole, records = _form_targets(question, rows, question.weigh(rows.source, sample_weight))
    job = _prepare(question, rows, whole, init)
    runtime.reset_peak_rss()
    # NumPy and SciPy each bring a BLAS, and idle threads of one keep the cores from the other: with one thread for
    # each, loops that use both were up to 15 times faster. Passes have threads of their own.
    with job.checkpoint, record_hits() as hits, runtime.one_blas_thread():
        results = _run_passes(job, records)
        choice, choice_warnings = choose(job.question, results.readings, results.outcome, results.pairs)
    emitted = [*results.outcome.warnings, *_warnings_of(job, results, choice), *choice_warnings]
    for warning in emitted:
        warnings.warn(warning, stacklevel=_caller_level())
    report = _make_report(job, results, choice, hits, emitted, started)
    d = rows.source.profile.d
    all_features: Any = vars(choice.among_all_features(job.question.features(d), d))
    return Fit(
        **all_features,
        question=job.question,
        names=rows.names,
        outcome=results.outcome,
        report=report,
        fill=results.fill,
        pairs=results.pairs,
    )


@dataclass
class _Job:
    """Input of a fit's passes: the question with feature numbers, its view of the rows, and the plan."""

    question: Question
    rows: OpenedRows
    #: All rows and features, with weights.
    whole: RowSource
    view: RowSource
    asked: Asked
    plan: Plan
    resources: Resources
    params: dict[str, Any]
    kept: NDArray[np.int64]
    begun: EarlierChoice | None
    init: Mapping[str, Any] | None
    checkpoint: AbstractContextManager[Any]


class _PassResults(NamedTuple):
    """Results of a fit's passes."""

    readings: Readings
    outcome: Scores
    pairs: Pairs | None
    fill: Array | None


def _prepare(question: Question, rows: OpenedRows, whole: RowSource, init: Mapping[str, Any] | None) -> _Job:
    """Check the question against the data, and plan the fit."""
    params = {name: plain_value(value) for name, value in question.get_params().items()}
    d = rows.source.profile.d
    question = question.resolve_names(rows.names, d)
    view = question.require_accepted(whole, rows.names)
    asked = question.asked(view.profile.d)
    of_scores, begun = {name: value for name, value in params.items() if name not in _AFTER_SCORES}, None
    kept = question.kept_features(d, asked.k)
    if question.start_ is not None:
        begun = resume_choice(question, of_scores, rows, asked.k)
        kept = np.concatenate([begun.chosen, kept[~np.isin(kept, begun.chosen)]])
    state = getattr(question.method, "random_state", None)
    if isinstance(state, GENERATORS):  # drawn once: with the recorded number the fit can be repeated
        params["random_state"] = of_scores["random_state"] = draw_seed(state)
        seeded: Any = copy.copy(question.method)
        seeded.random_state = params["random_state"]
        question = replace(question, method=seeded)
    method, resources = question.method, current_resources()
    plan = question.plan_of_view(view, resources)
    # The scores of methods with checkpoints do not depend on the number of features to keep.
    digest = (rows.store or {}).get("digest") if question.exclude is None else view.digest
    checkpoint = checkpoints.job(method=method.method, params=of_scores, digest=digest)
    typical = method.iterations_on(view.profile)
    runtime.emit(
        "fit",
        method=method.method,
        readings=plan.passes,
        max_iterations=None if typical is None else getattr(method, "max_iter", None),
        typical_iterations=typical,
    )
    return _Job(question, rows, whole, view, asked, plan, resources, params, kept, begun, init, checkpoint)


def _form_targets(
    question: Question, rows: OpenedRows, whole: RowSource
) -> tuple[OpenedRows, RowSource, list[ReadingRecord]]:
    """Return the rows with numeric targets standardised or cut, by a pass over the targets alone; others unchanged."""
    if not whole.profile.numeric:
        return rows, whole, []
    question.require_accepted(whole, rows.names)
    targets, n_bins = whole.labels_only(), question.target_bins
    profile = targets.profile
    statistics: list[Statistic] = [TargetSums(profile.q)]
    if n_bins is not None:
        statistics.append(RowSample(draw_rows(profile, QUANTILE_ROWS, question.method.seed), profile))
    results, record = run_reading(targets, statistics, current_resources(), label=TARGETS)
    form, known = target_form(results[0], results[-1] if n_bins else None, n_bins), results[0][0]
    names = replace(rows.names, labels=form.names(rows.names.labels)) if n_bins else rows.names
    unknown = np.flatnonzero(known < profile.total * (1 - SAME))
    question.method.refuse_unknown(profile.total - known, profile.total, rows.names, question.unknown)
    return replace(rows, names=names), RowView(whole, targets=form, unknown_labels=unknown), [record]


def _run_passes(job: _Job, records: list[ReadingRecord]) -> _PassResults:
    """Run the passes; repeat them if they discover unknown labels that the plan did not include.

    `records` are those of earlier passes.
    """
    question = job.question
    features, names = question.features(job.rows.source.profile.d), question.names(job.rows.names)
    while True:
        # Those of other rows, features or labels are none of this fit.
        results = job.rows.results if job.view is job.rows.source else None
        of_job = job.view, job.resources, job.plan, job.asked
        readings = Readings(*of_job, names, results, job.kept, job.begun, job.init)
        try:
            scored = _score(question.method, readings, features)
        except UnknownLabelsFound as unknown:  # plan and run again, with the labels discovered so far
            records += readings.records
            job.whole = RowView(job.whole, unknown_labels=unknown.labels)
            job.view = question.view(job.whole)
            job.plan = question.plan_of_view(job.view, job.resources)
        else:
            # A copy would miss the records of passes that the choice makes later.
            readings.records[:0] = records
            return _PassResults(readings, *scored)


def _make_report(
    job: _Job, results: _PassResults, choice: Choice, hits: Any, emitted: Sequence[Warning], started: float
) -> Report:
    """Return the report of the fit."""
    question, outcome, records = job.question, results.outcome, results.readings.records
    client = job.resources.client
    peak_driver = peak_worker = runtime.peak_rss()
    if client is not None:
        peak_worker = max((record.peak_worker_bytes for record in records), default=0)
    extra = {
        **outcome.extra,
        "constant_features": int(np.count_nonzero(~results.readings.varies)),
        **question.facts(job.rows.names),
        **_nonempty(chosen_groups=choice.chosen_groups),
        **({} if results.pairs is None else {"pairs": results.pairs.summary}),
        **_nonempty(from_cache=hits, refused_workers=refused_workers(client), stability=_stability(choice, outcome)),
    }
    return Report(
        method=question.method.method,
        params=job.params,
        store=job.rows.store,
        n=job.rows.source.profile.n,
        d=job.rows.source.profile.d,
        q=job.view.profile.q,
        k=choice.k,
        seed=job.params.get("random_state"),
        passes=count_readings(records),
        tasks=sum(record.tasks for record in records),
        bytes_read=sum(record.bytes_read for record in records),
        wall_seconds=time.perf_counter() - started,
        plan=job.plan.to_dict(),
        peak_worker_bytes=peak_worker,
        peak_driver_bytes=peak_driver,
        iterations=outcome.iterations,
        converged=outcome.converged,
        objective=[float(value) for value in outcome.objective],
        versions=versions(),
        extra=extra,
        warnings=[str(warning) for warning in emitted],
    )


def _check_init(question: Question, init: Mapping[str, Any] | None) -> None:
    """Refuse `init` unless the method starts from a random draw; refuse it with a fit for each stratum."""
    method = question.method
    if init is None:
        return
    if question.ranks_strata:
        raise UsageError(
            "init is the start of one fit, and strata that are ranked apart have one each\n  cure: leave it out, or "
            "fit each stratum by itself"
        )
    if not (method.init_shapes and getattr(method, "variant", None) == "published"):
        cure = "give variant='published'" if method.init_shapes else "leave it out"
        raise UsageError(
            f"init is where published forms start that draw a start at random, which {method.method} as it is does not"
            f"\n  cure: {cure}"
        )


def _warnings_of(job: _Job, results: _PassResults, choice: Choice) -> list[Warning]:
    """Return warnings of labels without known entries, of tests, and of chosen constant features."""
    method, readings, counts = job.question.method, results.readings, job.whole.label_counts
    never, d = readings.never_known, len(readings.varies)
    emitted: list[Warning] = []
    if counts is not None and job.asked.unknown == "use":
        never = method.refuse_unknown(counts[0], readings.source.profile.total, readings.names, "use")
    if len(never) and not method.without_positives:  # such a method issues a warning of its own
        emitted.append(UserWarning(no_part_in_scores(never, readings.names.labels)))
    emitted += [] if results.pairs is None else results.pairs.warnings
    emitted += _cluster_warnings(job, tested=results.pairs is not None)
    if choice.chosen_groups is None:  # groups may include constant features
        n_constant = int(np.count_nonzero(~readings.varies))
        emitted += constant_warnings(choice.k, d, n_constant, informed=bool(results.outcome.warnings))
    return emitted


def _cluster_warnings(job: _Job, *, tested: bool) -> list[Warning]:
    """Return the warning of a column whose values look like clusters, if tests take rows for independent."""
    question, source = job.question, job.rows.source
    if not (tested or job.asked.shuffles) or question.clusters is not None or source.profile.numeric:
        return []
    found = find_determining_column(source, [*covariate_names(question.covariates), question.strata or ""])
    if found is None:
        return []
    (column, determined), names = found, job.rows.names.labels
    labels = [str(i) if names is None else repr(str(names[i])) for i in determined[:SHOWN].tolist()]
    more = f" and {len(determined) - SHOWN:,} more" if len(determined) > SHOWN else ""
    return [
        UserWarning(
            f"column {column!r} of the rows nearly determines label {', '.join(labels)}{more}; if rows with one of "
            f"its values belong together, p-values are too small without {parameter('clusters', column)}"
        )
    ]


def resume_choice(question: Question, params: dict[str, Any], rows: OpenedRows, k: int) -> EarlierChoice:
    """Return the choice of an earlier run, for a method to continue.

    Parameters
    ----------
    question : Question
        The question, with feature numbers.
    params : dict
        Parameters that affect scores.
    rows : OpenedRows
    k : int
        Number of features to choose.

    Raises
    ------
    UsageError
        If the run has another method, other parameters, another store, or more chosen features.
    DataError
        If the folder is no run, or damaged.
    """
    run, name = read_run(str(question.start_)), question.method.method
    record, start = run.record, parameter("start_", question.start_)
    cure = f"{parameter('keep', f'{question.start_}/selected.txt')} begins from its features all the same."
    if record.get("method") != name:
        raise UsageError(f"{start} is a run of {record.get('method')}, not of {name}; {cure}")
    if rows.store is None or rows.store.get("digest") != run.store.get("digest") or rows.source.weights is not None:
        raise UsageError(f"{start} was not made of these rows; {cure}")
    earlier, excluded = record.get("params") or {}, record["extra"].get("excluded_features", [])
    other = [name for name, value in params.items() if earlier.get(name) != as_json(value)]
    other += [name for name in ("prune", "groups", "per_label", "min_labels") if earlier.get(name) is not None]
    if not set(question.keep or ()) <= set(run.ranking[: record["extra"].get("chosen_in_turn", 0)].tolist()):
        raise UsageError(
            f"a run from the start begins from the features of {parameter('keep')}, and {start} has chosen others "
            "before them\n  cure: leave out one of the two"
        )
    if question.facts(rows.names).get("excluded_features", []) != excluded:
        other.append("exclude")
    if other:
        raise UsageError(f"{start} was made with another {parameter(other[0])}; {cure}")
    m = record["extra"].get("chosen_in_turn", 0)
    if run.shared is None or not m:
        raise UsageError(f"{start} does not tell what features share with those that it chose; {cure}")
    if m > k:
        raise UsageError(
            f"{start} has chosen {m:,} features, and {k:,} are to be chosen: give a larger "
            f"{parameter('n_features_to_select')}; its ranking has the first {k:,} already."
        )
    features = question.features(len(run.ranking))
    chosen, shared = run.ranking[:m], np.empty(len(run.ranking))
    shared[run.ranking] = run.shared
    if features is not None:
        chosen, shared = np.searchsorted(features, chosen), shared[features]
    return EarlierChoice(chosen, run.scores[:m], shared)


def _stability(choice: Choice, outcome: Scores) -> dict[str, Any]:
    """Return the entry of run.json about resamples: their agreement, and the number of features chosen often."""
    stability = choice.stability
    if stability is None or outcome.resampled_scores is None:
        return {}
    bound = falsely_chosen(choice.k, len(stability.frequency), len(outcome.resampled_scores))
    often = int(np.count_nonzero(stability.frequency >= OFTEN))
    entry: dict[str, Any] = {"scheme": "complementary halves", "often": OFTEN, "chosen_often": often}
    if np.isfinite(stability.agreement):
        entry |= {"agreement": stability.agreement, "standard_error": stability.error}
    return entry if bound is None else entry | {"falsely_chosen": bound}


def attach_columns(question: Question, rows: OpenedRows, **values_of: Any) -> tuple[Question, OpenedRows]:
    """Attach given covariates, strata and clusters to the rows as columns, and name the columns in the question.

    Raises
    ------
    UsageError
        If the question names columns already.
    DataError
        If the values do not match the rows.
    """
    values_of = {name: values for name, values in values_of.items() if values is not None}
    if not values_of:
        return question, rows
    column_names: dict[str, Any] = {}
    n, columns = rows.source.profile.n, dict(rows.source.columns)
    for name, values in values_of.items():
        if getattr(question, name) is not None:
            raise UsageError(f"{parameter(name)} names columns, and values were given, too\n  cure: give one of them")
        new = table_columns(values, n, name)
        columns |= {column.name: column for column in new}
        names = [column.name for column in new]
        column_names[name] = names if name == "covariates" else names[0]
    return replace(question, **column_names), replace(rows, source=RowView(rows.source, columns=columns))


def _fit_within_strata(question: Question, rows: OpenedRows, sample_weight: Any) -> Fit:
    """Fit within each stratum; the score of a feature is the negative mean of its ranks in the strata."""
    started, source = time.perf_counter(), rows.source
    question_on_data = check_data(question, rows)
    plan = question_on_data.plan(source, current_resources())
    assert question.strata is not None
    column = find_strata(source, question.strata)
    codes, d = source.read_column(column), source.profile.d
    fits, total, sizes = [], np.zeros(d), {}
    for code, name in enumerate(column.categories or ()):
        in_stratum = np.flatnonzero(codes == code)
        if not len(in_stratum):
            continue
        stratum = RowView(source, in_stratum)
        store = None if rows.store is None else {**rows.store, "digest": stratum.digest}
        weights = None if sample_weight is None else np.asarray(sample_weight)[in_stratum]
        fitted = fit(question.within_stratum, replace(rows, source=stratum, store=store), weights)
        ranks = np.empty(d)
        ranks[fitted.ranking] = np.arange(1, d + 1)
        total += ranks
        sizes[name] = len(in_stratum)
        fits.append(replace(fitted, outcome=Scores(fitted.scores)))
    scores = -total / len(fits)
    reports = [fitted.report for fitted in fits]
    report = replace(
        reports[0],
        params={name: plain_value(value) for name, value in question.get_params().items()},
        store=rows.store,
        n=source.profile.n,
        wall_seconds=time.perf_counter() - started,
        plan=plan.to_dict(),
        objective=[],
        converged=None if reports[0].converged is None else all(report.converged for report in reports),
        extra={"strata": sizes, **question_on_data.facts(rows.names)},
        warnings=list(dict.fromkeys(text for report in reports for text in report.warnings)),
        passes=sum(report.passes for report in reports),
        tasks=sum(report.tasks for report in reports),
        bytes_read=sum(report.bytes_read for report in reports),
        iterations=sum(report.iterations for report in reports),
        peak_worker_bytes=max(report.peak_worker_bytes for report in reports),
        peak_driver_bytes=max(report.peak_driver_bytes for report in reports),
    )
    return Fit(
        scores=scores,
        ranking=rank(scores),
        k=fits[0].k,
        question=question,
        names=rows.names,
        outcome=Scores(scores),
        report=report,
    )


def _fit_clusters(question: Question, rows: OpenedRows, sample_weight: Any) -> Fit:
    """Fit to the mean or the sum of the rows of each cluster."""
    started, source = time.perf_counter(), rows.source
    question_on_data = check_data(question, rows)
    plan = question_on_data.plan(source, current_resources())
    aggregated, record = _aggregate(question, rows, question.weigh(source, sample_weight))
    fitted = fit(question_on_data.of_clusters, aggregated)
    facts = {"clusters": aggregated.source.profile.n, "rows": source.profile.n, "by": question.aggregate}
    report = replace(
        fitted.report,
        params={name: plain_value(value) for name, value in question.get_params().items()},
        store=rows.store,
        n=source.profile.n,
        wall_seconds=time.perf_counter() - started,
        plan=plan.to_dict(),
        extra={**fitted.report.extra, "aggregated": facts},
        passes=fitted.report.passes + count_readings([record]),
        tasks=fitted.report.tasks + record.tasks,
        bytes_read=fitted.report.bytes_read + record.bytes_read,
        peak_worker_bytes=max(fitted.report.peak_worker_bytes, record.peak_worker_bytes),
    )
    return replace(fitted, question=question_on_data, report=report)


def _aggregate(question: Question, rows: OpenedRows, source: RowSource) -> tuple[OpenedRows, ReadingRecord]:
    """Return a row for each cluster, in memory, with the columns that the question names.

    Raises
    ------
    DataError
        If a label or a column varies within a cluster.
    """
    view = question.aggregated_view(source)
    (totals,), record = run_reading(view, [cluster_totals(view)], current_resources(), label=AGGREGATE)
    present = np.flatnonzero(totals.weight)
    known, positives, X = totals.known[present], totals.positives[present], totals.features[present]
    if question.aggregate == "mean":
        X /= totals.weight[present, np.newaxis]
    if view.profile.numeric:
        with np.errstate(invalid="ignore"):
            Y: Any = positives / known  # the mean of the known entries, NaN without any
    else:
        varies = np.argwhere((positives > 0) & (positives < known))
        if len(varies):
            cluster, label = varies[0].tolist()
            name = label if rows.names.labels is None else repr(str(rows.names.labels[label]))
            raise _varying(f"label {name}", f"cluster {view.clusters.categories[present[cluster]]!r}")
        Y = sp.csr_array(np.where(known == 0, -1, positives > 0).astype(np.int8))
    names = [*covariate_names(question.covariates), *([] if question.strata is None else [question.strata])]
    codes, columns = view.read_column(view.clusters), {}
    first = np.unique(codes, return_index=True)[1]
    for name in names:
        if name.startswith(FEATURE):
            continue
        column = find_column(source, name)
        values = column.read(source.all_rows)
        varying = np.flatnonzero(values != values[first][np.searchsorted(present, codes)])
        if len(varying):
            raise _varying(repr(name), f"cluster of row {varying[0]} (counted from 0)")
        columns[name] = ArrayColumn(name, values[first], column.categories)
    identity = {"source": view.digest, "clusters": view.clusters.identity, "by": question.aggregate}
    store = rows.store and {**rows.store, "digest": digest_of(identity)}
    clusters = RowView(ArrayRows(X, Y), columns=columns, feature_names=source.feature_names)
    return replace(rows, source=clusters, store=store), record


def _varying(what: str, where: str) -> DataError:
    return DataError(
        f"{what} varies within the {where}, of which one row is to be made",
        cure="give a column with finer clusters, such as donor and condition joined, or leave out "
        f"{parameter('aggregate')}",
    )


def _score(
    method: Method, readings: Readings, features: NDArray[np.int64] | None
) -> tuple[Scores, Pairs | None, Array | None]:
    """Return the scores, the tests of pairs, and the fill values of missing features.

    Raises
    ------
    UnknownLabelsFound
    """
    fill, pairs, asked = _fill_missing(method, readings), None, readings.asked
    if asked.pairs is not None:
        readings.attached = pair_statistics(readings.source, asked.pairs)
        if PAIR_TESTS in readings.plan.readings:
            pairs = run_tests(asked.pairs, readings, features)
        if pairs is not None and asked.pairs_first:
            significant = int(np.count_nonzero(pairs.discovered(asked.pairs.level)[0]))
            readings.asked = replace(asked, k=significant or asked.k)
    outcome = method.score(readings)
    if asked.pairs is not None and pairs is None:
        pairs = run_tests(asked.pairs, readings, features)
    return outcome, pairs, fill


def _fill_missing(method: Method, readings: Readings) -> Array | None:
    """Compute the fill values of missing features, and use the filled rows in all later passes."""
    source = readings.source
    if not method.fills(source):
        return None
    statistics = method.fill_statistics(source)
    results = readings.run(FILL_READING, *statistics)
    fill = fill_values(statistics, results, source.weights)
    if fill is not None:
        info = source.features
        if info.n_categories is None:  # filled 0/1 features keep their two codes
            info = replace(info, n_categories=2 * results[0].zero_one.astype(np.int64))
        readings.source, readings.results = RowView(source, fill=fill, known=info), None
    return fill


def _caller_level() -> int:
    """Return the stack level of the caller outside this package, for warnings of `fit`."""
    level, frame = 0, sys._getframe(1)
    while frame.f_globals["__name__"].startswith("mlfs_dask.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level + 1


def _store_entry(source: RowSource, subset: Any = None, reading: Any = None) -> dict[str, Any] | None:
    """Return the `store` entry of run.json: path and digest, options of opening a file, and the subset, if any."""
    if source.place is None:
        return None
    return {"path": source.place, "digest": source.digest, **_nonempty(reading=reading, subset=subset)}


def plain_value(value: Any) -> Any:
    """Convert a parameter's value for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def _nonempty(**entries: Any) -> dict[str, Any]:
    """Return the entries with non-empty values."""
    return {name: value for name, value in entries.items() if value}


def versions() -> dict[str, str]:
    """Return the versions of Python and of packages that a result may depend on."""
    names = ("mlfs-dask", "numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "sparse", "numba")
    return {name: version for name, version in installed_versions(names).items() if version is not None}
