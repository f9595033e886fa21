"""A fit: a method planned, read and scored on rows, and what comes of it."""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import platform
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.blocks.rounding import SAME
from mlfs_dask.cluster.workers import refused_workers
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.cache import record_hits
from mlfs_dask.engine.readings import ReadingRecord, count_readings, run_reading
from mlfs_dask.errors import DataError, UsageError, parameter
from mlfs_dask.files.json_text import as_json
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.rows.covariates import find_strata, table_columns
from mlfs_dask.rows.view import RowView
from mlfs_dask.rows.weights import weighted_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.choice import Choice, choose, of_all_features
from mlfs_dask.selection.pairs import Pairs, run_tests
from mlfs_dask.selection.question import Question
from mlfs_dask.selection.runs import SHARED, read_run
from mlfs_dask.selectors.contract import Method, UnknownLabelsFound
from mlfs_dask.selectors.costs import Asked, Begun, Names, Plan, Readings
from mlfs_dask.selectors.pairs import PAIR_TESTS, pair_statistics
from mlfs_dask.selectors.parameters import GENERATORS, draw_seed
from mlfs_dask.selectors.scores import OFTEN, Scores, constant_warnings, falsely_chosen, no_part_in_scores, rank
from mlfs_dask.statistics.missing import FILL_READING, fill_values
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.statistics.write_rows import RowSink, WriteLabels
from mlfs_dask.typing import Array

#: Parameters on which no score depends.
_AFTER_SCORES = (
    *("n_features_to_select", "keep", "exclude", "pairs", "per_label", "min_labels", "control"),
    *("start_", "prune", "redundancy", "groups", "group_by"),
)

#: Recovered labels that are written at a time.
WRITTEN_LABELS = 2**22


@dataclass(frozen=True)
class Report:
    """What was run, on what, and what it took: the content of `run.json`.

    Attributes
    ----------
    method : str
    params : dict
        All parameters, defaults included.
    store : dict or None
        Path and digest of the store, if X and Y come from one.
    n, d, q, k : int
        Rows, features, labels, features kept.
    seed : int or None
        `random_state`, or the number drawn from it where it is a generator. None: not given, and 0 is used.
    passes, tasks, bytes_read : int
    wall_seconds : float
        Of the whole fit.
    plan : dict
        What had been projected.
    peak_worker_bytes, peak_driver_bytes : int
        As measured. In process the two are the same process; of a cluster whose workers had no part the first is 0.
    iterations : int
    converged : bool or None
        None without a loop, and where an early stop is a part of the method (`stopped_early` in `extra`).
    objective : list of float
    versions : dict of str
    extra : dict
        Facts that only this method has.
    warnings : list of str
        Warnings that `fit` gave.
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
        """As plain data that `json` can write."""
        return asdict(self)


@dataclass(frozen=True)
class Opened:
    """Rows to fit, as they were opened.

    Attributes
    ----------
    source : RowSource
    names : Names
    store : dict or None
        Path and digest of the store that they come from, and what was chosen of it.
    """

    source: RowSource
    names: Names = field(default_factory=Names)
    store: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Fit(Choice):
    """What a fit gives: a choice, and what it was made of.

    Attributes
    ----------
    question : Question
        With the numbers of features.
    names : Names
    outcome : Scores
        As the method gave them, of the features that it read.
    report : Report
    fill : float64 array or None
        Values in the places of missing features, of the features that were read.
    pairs : Pairs or None
        Tests of labels and features.
    """

    question: Question
    names: Names
    outcome: Scores
    report: Report
    fill: Array | None = None
    pairs: Pairs | None = None

    @property
    def support(self) -> NDArray[np.bool_]:
        """The features that are kept, shape (d,)."""
        support = np.zeros(len(self.ranking), dtype=bool)
        support[self.ranking[: self.k]] = True
        return support

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """What is known of each feature beside its score: further columns of `ranking.csv`, each of shape (d,)."""
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
            names = np.array(groups.names, object)[groups.of]
            columns |= {"group": names, "group_score": self.group_scores}
        return columns

    def filled(self, source: RowSource) -> RowSource:
        """Rows as the fit saw them: with its values in the places of missing ones."""
        source = self.question.view(source)
        return source if self.fill is None else RowView(source, fill=self.fill)

    def write_labels(self, source: RowSource, sink: RowSink, resources: Resources | None = None) -> None:
        """Write the recovered labels of rows, by the workers that have them, in one reading of X.

        Parameters
        ----------
        source : RowSource
            The rows that were fitted, in their order; where a rule was learnt, also other rows with the same features.
        sink : RowSink
        resources : Resources, optional

        Raises
        ------
        UsageError, DataError, DoesNotFitError, ClusterLostError
        """
        source, n = self.filled(source), source.profile.n
        resources = runtime.current_resources() if resources is None else resources
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


def opened(data: Any) -> Opened:
    """The rows of a Dataset, with its names and its digest; rows as they are."""
    if isinstance(data, Opened):
        return data
    if isinstance(data, RowSource):
        return Opened(data, store=_store_of(data))
    return Opened(
        data.rows,
        Names(data.feature_names, data.label_names, data.feature_column),
        _store_of(data.rows, data.subset_record, data.reading_record),
    )


def numbered(question: Question, data: Any) -> Question:
    """The question with the numbers of the features that it names (`Question.numbered`).

    Parameters
    ----------
    question : Question
    data : Dataset, RowSource or Opened
    """
    if question.keep is None and question.exclude is None and question.groups is None:
        return question
    rows = opened(data)
    return question.numbered(rows.names, rows.source.profile.d)


def accepted(question: Question, data: Any) -> Question:
    """`numbered`, of a store that is not known to hold what the method does not take (`Question.require_accepted`).

    Parameters
    ----------
    question : Question
    data : Dataset, RowSource or Opened

    Raises
    ------
    UsageError, DataError
    """
    rows = opened(data)
    question = numbered(question, rows)
    question.require_accepted(rows.source, rows.names)
    return question


def fit(
    question: Question,
    data: Any,
    sample_weight: Any = None,
    *,
    covariates: Any = None,
    strata: Any = None,
    init: Mapping[str, Any] | None = None,
) -> Fit:
    """Score all features and choose the best.

    Parameters
    ----------
    question : Question
    data : Dataset, RowSource or Opened
    sample_weight : array-like, shape (n,), optional
        How often each row counts.
    covariates : array-like or table, shape (n, c) or (n,), optional
        What scores are adjusted for.
    strata : array-like, shape (n,), optional
        Values of the rows, which are strata.
    init : mapping, optional
        Arrays that a published form starts from.

    Raises
    ------
    DataError
        X or Y is invalid.
    UsageError
        A parameter has a value it cannot have.
    DoesNotFitError
        The job is projected not to fit the memory; nothing has been read.
    ClusterLostError
    """
    started = time.perf_counter()
    rows = opened(data)
    question, rows = with_columns(question, rows, covariates, strata)
    question.check()
    _check_init(question, init)
    if question.ranks_strata:
        return _fit_within_strata(question, rows, sample_weight)
    job = _prepare(question, rows, weighted_rows(rows.source, sample_weight), init)
    runtime.reset_peak_rss()
    # NumPy and SciPy each bring a BLAS, whose idle threads keep the cores from the other's: one thread of each was
    # up to 15 times faster for loops that use both. Passes have threads of their own.
    with job.checkpoint, record_hits() as hits, runtime.one_blas_thread():
        answer = _read(job)
        choice, told = choose(job.question, answer.readings, answer.outcome, answer.pairs)
    emitted = [*answer.outcome.warnings, *_warnings_of(job, answer, choice), *told]
    for warning in emitted:
        warnings.warn(warning, stacklevel=_caller_level())
    report = _report(job, answer, choice, hits, emitted, started)
    d = rows.source.profile.d
    wide: Any = vars(choice.widened(job.question.features(d), d))
    return Fit(
        **wide,
        question=job.question,
        names=rows.names,
        outcome=answer.outcome,
        report=report,
        fill=answer.fill,
        pairs=answer.pairs,
    )


@dataclass
class _Job:
    """What a fit is about to read: a question with numbers of features, its view of the rows, and their plan."""

    question: Question
    rows: Opened
    #: All rows and features, with weights.
    whole: RowSource
    view: RowSource
    asked: Asked
    plan: Plan
    resources: Resources
    params: dict[str, Any]
    kept: NDArray[np.int64]
    begun: Begun | None
    init: Mapping[str, Any] | None
    checkpoint: AbstractContextManager[Any]


class _Answer(NamedTuple):
    """What the readings of a fit gave."""

    readings: Readings
    outcome: Scores
    pairs: Pairs | None
    fill: Array | None


def _prepare(question: Question, rows: Opened, whole: RowSource, init: Mapping[str, Any] | None) -> _Job:
    """Refuse what cannot be fitted, and plan what can."""
    params = {name: plain(value) for name, value in question.get_params().items()}
    d = rows.source.profile.d
    question = question.numbered(rows.names, d)
    view = question.require_accepted(whole, rows.names)
    asked = question.asked(view.profile.d)
    of_scores, begun = {name: value for name, value in params.items() if name not in _AFTER_SCORES}, None
    kept = question.kept(d, asked.k)
    if question.start_ is not None:
        begun = begin(question, of_scores, rows, asked.k)
        kept = np.concatenate([begun.chosen, kept[~np.isin(kept, begun.chosen)]])
    state = getattr(question.method, "random_state", None)
    if isinstance(state, GENERATORS):  # asked once; with its number the fit can be made again
        params["random_state"] = of_scores["random_state"] = draw_seed(state)
        drawn: Any = copy.copy(question.method)
        drawn.random_state = params["random_state"]
        question = replace(question, method=drawn)
    method, resources = question.method, runtime.current_resources()
    plan = question.plan_of_view(view, resources)
    # Of methods that keep checkpoints no score depends on how many features are kept.
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


def _read(job: _Job) -> _Answer:
    """Make the readings; again where they find unknown labels that nothing had told of."""
    question, records = job.question, list[ReadingRecord]()
    features, names = question.features(job.rows.source.profile.d), question.names(job.rows.names)
    while True:
        readings = Readings(job.view, job.resources, job.plan, job.asked, names, kept=job.kept)
        readings.begun, readings.init = job.begun, job.init
        try:
            scored = _scored(question.method, readings, features)
        except UnknownLabelsFound as unknown:  # planned and read again, with what the reading has told
            records += readings.records
            job.whole = RowView(job.whole, unknown_labels=unknown.labels)
            job.view = question.view(job.whole)
            job.plan = question.plan_of_view(job.view, job.resources)
        else:
            # What a choice reads is recorded, too.
            readings.records[:0] = records
            return _Answer(readings, *scored)


def _report(
    job: _Job, answer: _Answer, choice: Choice, hits: Any, emitted: Sequence[Warning], started: float
) -> Report:
    """What was run, and what it took."""
    question, outcome, records = job.question, answer.outcome, answer.readings.records
    client = job.resources.client
    peak_driver = peak_worker = runtime.peak_rss()
    if client is not None:
        peak_worker = max((record.peak_worker_bytes for record in records), default=0)
    extra = {
        **outcome.extra,
        "constant_features": int(np.count_nonzero(~answer.readings.varies)),
        **question.facts(job.rows.names),
        **_noted(chosen_groups=choice.chosen_groups),
        **({} if answer.pairs is None else {"pairs": answer.pairs.summary}),
        **_noted(from_cache=hits, refused_workers=refused_workers(client), stability=_agreement(choice, outcome)),
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
    """Refuse arrays to start from where nothing starts from a random draw, or each stratum would."""
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


def _warnings_of(job: _Job, answer: _Answer, choice: Choice) -> list[Warning]:
    """Warnings of labels that are known nowhere, of tests, and of chosen features that do not vary."""
    method, readings, counts = job.question.method, answer.readings, job.whole.label_counts
    never, d = readings.never_known, len(readings.varies)
    found: list[Warning] = []
    if counts is not None and job.asked.unknown == "use":
        never = method.refuse_unknown(counts[0], readings.source.profile.total, readings.names, "use")
    if len(never) and not method.without_positives:  # else the method has told what it makes of them
        found.append(UserWarning(no_part_in_scores(never, readings.names.labels)))
    found += [] if answer.pairs is None else answer.pairs.warnings
    if choice.chosen_groups is None:  # which are chosen whole
        n_constant = int(np.count_nonzero(~readings.varies))
        found += constant_warnings(choice.k, d, n_constant, informed=bool(answer.outcome.warnings))
    return found


def begin(question: Question, params: dict[str, Any], rows: Opened, k: int) -> Begun:
    """The choice of an earlier run, from which a method goes on.

    Parameters
    ----------
    question : Question
        `numbered`.
    params : dict
        Parameters on which scores depend.
    rows : Opened
    k : int
        Features to choose.

    Raises
    ------
    UsageError
        The run is of another method, of other parameters or another store, or has chosen more features.
    DataError
        It is no run, or damaged.
    """
    run, name = read_run(str(question.start_)), question.method.method
    record, given = run.record, parameter("start_", question.start_)
    cure = f"{parameter('keep', f'{question.start_}/selected.txt')} begins from its features all the same."
    if record.get("method") != name:
        raise UsageError(f"{given} is a run of {record.get('method')}, not of {name}; {cure}")
    if rows.store is None or rows.store.get("digest") != run.store.get("digest") or rows.source.weights is not None:
        raise UsageError(f"{given} was not made of these rows; {cure}")
    earlier, excluded = record.get("params") or {}, record["extra"].get("excluded_features", [])
    other = [name for name, value in params.items() if earlier.get(name) != as_json(value)]
    other += [name for name in ("prune", "groups", "per_label", "min_labels") if earlier.get(name) is not None]
    if not set(question.keep or ()) <= set(run.ranking[: record["extra"].get("chosen_in_turn", 0)].tolist()):
        raise UsageError(
            f"a run from the start begins from the features of {parameter('keep')}, and {given} has chosen others "
            "before them\n  cure: leave out one of the two"
        )
    if question.facts(rows.names).get("excluded_features", []) != excluded:
        other.append("exclude")
    if other:
        raise UsageError(f"{given} was made with another {parameter(other[0])}; {cure}")
    m = record["extra"].get("chosen_in_turn", 0)
    if run.shared is None or not m:
        raise UsageError(f"{given} does not tell what features share with those that it chose; {cure}")
    if m > k:
        raise UsageError(
            f"{given} has chosen {m:,} features, and {k:,} are to be chosen: give a larger "
            f"{parameter('n_features_to_select')}; its ranking has the first {k:,} already."
        )
    features = question.features(len(run.ranking))
    chosen, shared = run.ranking[:m], np.empty(len(run.ranking))
    shared[run.ranking] = run.shared
    if features is not None:
        chosen, shared = np.searchsorted(features, chosen), shared[features]
    return Begun(chosen, run.scores[:m], shared)


def _agreement(choice: Choice, outcome: Scores) -> dict[str, Any]:
    """What a record tells of the resamples: how far they agree, and how many features they choose again and again."""
    found = choice.stability
    if found is None or outcome.resampled_scores is None:
        return {}
    bound = falsely_chosen(choice.k, len(found.frequency), len(outcome.resampled_scores))
    often = int(np.count_nonzero(found.frequency >= OFTEN))
    told: dict[str, Any] = {"scheme": "complementary halves", "often": OFTEN, "chosen_often": often}
    if np.isfinite(found.agreement):
        told |= {"agreement": found.agreement, "standard_error": found.error}
    return told if bound is None else told | {"falsely_chosen": bound}


def with_columns(question: Question, rows: Opened, covariates: Any, strata: Any) -> tuple[Question, Opened]:
    """A question and rows where values of covariates and strata are given: rows have them as columns, which it names.

    Raises
    ------
    UsageError
        The question names some already.
    DataError
        Values are not those of the rows.
    """
    given = {"covariates": covariates, "strata": strata}
    given = {name: values for name, values in given.items() if values is not None}
    if not given:
        return question, rows
    named: dict[str, Any] = {}
    n, columns = rows.source.profile.n, dict(rows.source.columns)
    for name, values in given.items():
        if getattr(question, name) is not None:
            raise UsageError(f"{parameter(name)} names columns, and values were given, too\n  cure: give one of them")
        of_rows = table_columns(values, n, name)
        columns |= {column.name: column for column in of_rows}
        names = [column.name for column in of_rows]
        named[name] = names if name == "covariates" else names[0]
    return replace(question, **named), replace(rows, source=RowView(rows.source, columns=columns))


def _fit_within_strata(question: Question, rows: Opened, sample_weight: Any) -> Fit:
    """A fit within every stratum; features have the negative mean of their ranks in these as scores."""
    started, source = time.perf_counter(), rows.source
    asked = accepted(question, rows)
    plan = asked.plan(source, runtime.current_resources())
    assert question.strata is not None
    column = find_strata(source, question.strata)
    codes, d = source.read_column(column), source.profile.d
    fits, total, sizes = [], np.zeros(d), {}
    for code, name in enumerate(column.categories or ()):
        chosen = np.flatnonzero(codes == code)
        if not len(chosen):
            continue
        stratum = RowView(source, chosen)
        store = None if rows.store is None else {**rows.store, "digest": stratum.digest}
        weights = None if sample_weight is None else np.asarray(sample_weight)[chosen]
        fitted = fit(question.within_stratum, replace(rows, source=stratum, store=store), weights)
        places = np.empty(d)
        places[fitted.ranking] = np.arange(1, d + 1)
        total += places
        sizes[name] = len(chosen)
        fits.append(replace(fitted, outcome=Scores(fitted.scores)))
    scores = -total / len(fits)
    reports = [each.report for each in fits]
    report = replace(
        reports[0],
        params={name: plain(value) for name, value in question.get_params().items()},
        store=rows.store,
        n=source.profile.n,
        wall_seconds=time.perf_counter() - started,
        plan=plan.to_dict(),
        objective=[],
        converged=None if reports[0].converged is None else all(each.converged for each in reports),
        extra={"strata": sizes, **asked.facts(rows.names)},
        warnings=list(dict.fromkeys(text for each in reports for text in each.warnings)),
        passes=sum(each.passes for each in reports),
        tasks=sum(each.tasks for each in reports),
        bytes_read=sum(each.bytes_read for each in reports),
        iterations=sum(each.iterations for each in reports),
        peak_worker_bytes=max(each.peak_worker_bytes for each in reports),
        peak_driver_bytes=max(each.peak_driver_bytes for each in reports),
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


def _scored(
    method: Method, readings: Readings, features: NDArray[np.int64] | None
) -> tuple[Scores, Pairs | None, Array | None]:
    """Scores, the tests of pairs that are asked for, and what missing values are filled with.

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
            found = int(np.count_nonzero(pairs.discovered(asked.pairs.level)[0]))
            readings.asked = replace(asked, k=found or asked.k)
    outcome = method.score(readings)
    if asked.pairs is not None and pairs is None:
        pairs = run_tests(asked.pairs, readings, features)
    return outcome, pairs, fill


def _fill_missing(method: Method, readings: Readings) -> Array | None:
    """Read what missing features are filled with; the readings that follow find it in their places."""
    source = readings.source
    if not method.fills(source):
        return None
    statistics = method.fill_statistics(source)
    results = readings.run(FILL_READING, *statistics)
    fill = fill_values(statistics, results, source.weights)
    if fill is not None:
        known = source.features
        if known.n_categories is None:  # features that are 0/1 keep their two codes
            known = replace(known, n_categories=2 * results[0].zero_one.astype(np.int64))
        readings.source = RowView(source, fill=fill, known=known)
    return fill


def _caller_level() -> int:
    """The stack level of the line outside this package that led to `fit`, for its warnings."""
    level, frame = 0, sys._getframe(1)
    while frame.f_globals["__name__"].startswith("mlfs_dask.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level + 1


def _store_of(source: RowSource, subset: Any = None, reading: Any = None) -> dict[str, Any] | None:
    """Path and digest of what rows come from, if it has any, how a file was opened, and what was chosen of it."""
    if source.place is None:
        return None
    return {"path": source.place, "digest": source.digest, **_noted(reading=reading, subset=subset)}


def plain(value: Any) -> Any:
    """A parameter as JSON can write it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def _noted(**facts: Any) -> dict[str, Any]:
    """Those that are not empty."""
    return {name: value for name, value in facts.items() if value}


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    names = ("mlfs-dask", "numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "sparse", "numba")
    installed = [("python", platform.python_version())]
    for name in names:
        try:
            installed.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(installed)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result may depend on."""
    return dict(_versions())
