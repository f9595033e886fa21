"""A fit: a method planned, read and scored on rows, and what comes of it."""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import platform
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.blocks.rounding import SAME
from mlfs_dask.cluster.workers import refused_workers
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.cache import record_hits
from mlfs_dask.engine.readings import count_readings, run_reading
from mlfs_dask.errors import DataError, UsageError, parameter
from mlfs_dask.files.json_text import as_json
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.rows.covariates import columns_of, find_strata
from mlfs_dask.rows.view import RowView
from mlfs_dask.rows.weights import weighted_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.choice import (
    choose,
    facts,
    kept_features,
    number_to_choose,
    of_all_features,
    ranking_of_all,
    with_numbers,
)
from mlfs_dask.selection.pairs import Pairs, run_tests
from mlfs_dask.selection.runs import SHARED, read_run
from mlfs_dask.selectors.contract import Method, UnknownLabelsFound
from mlfs_dask.selectors.costs import Begun, Names, Plan, Readings, require_driver
from mlfs_dask.selectors.pairs import PAIR_TESTS, pair_statistics
from mlfs_dask.selectors.parameters import GENERATORS, draw_seed
from mlfs_dask.selectors.scores import (
    AUTO,
    OFTEN,
    RankStability,
    Scores,
    constant_warnings,
    falsely_chosen,
    lower_constant,
    no_part_in_scores,
    rank,
    rank_stability,
)
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


@dataclass(frozen=True)
class Fit:
    """What a fit gives.

    Attributes
    ----------
    method : Method
    names : Names
    outcome : Scores
        As the method gave them, of the features that it read.
    scores : float64 array, shape (d,)
        Larger is better; no feature that does not vary exceeds one that does.
    ranking : int64 array, shape (d,)
        Features, best first.
    support : bool array, shape (d,)
        The features that are kept.
    report : Report
    q_values : float64 array, shape (d,), or None
        As of `Scores`.
    stability : RankStability or None
        Of resampled rows.
    fill : float64 array or None
        Values in the places of missing features, of the features that were read.
    pairs : Pairs or None
        Tests of labels and features.
    clusters : array of `redundancy.ROW`, or None
        Features that say the same (`choice.Choice`).
    group_scores : float64 array, shape (d,), or None
        Of the group of each feature.
    """

    method: Method
    names: Names
    outcome: Scores
    scores: Array
    ranking: NDArray[np.int64]
    support: NDArray[np.bool_]
    report: Report
    q_values: Array | None = None
    stability: RankStability | None = None
    fill: Array | None = None
    pairs: Pairs | None = None
    clusters: NDArray[np.void] | None = None
    group_scores: Array | None = None

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
        if self.outcome.shared is not None:
            features = self.method.features(len(self.ranking))
            columns[SHARED] = of_all_features(self.outcome.shared, features, len(self.ranking), 0.0)
        if self.group_scores is not None:
            groups: Any = self.method.groups
            names = np.array(groups.names, object)[groups.of]
            columns |= {"group": names, "group_score": self.group_scores}
        return columns

    def filled(self, source: RowSource) -> RowSource:
        """Rows as the fit saw them: with its values in the places of missing ones."""
        source = self.method.rows(source)
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
            raise UsageError(f"{self.method.method} recovers no labels")
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


def require_accepted(method: Method, data: Any) -> None:
    """Refuse a store that is known, without a reading, to hold what the method does not take.

    Parameters
    ----------
    method : Method
    data : Dataset, RowSource or Opened

    Raises
    ------
    UsageError
        It has fewer features than are to be kept.
    DataError
        Some labels are unknown, or feature values missing.
    """
    rows = opened(data)
    require_features(method, rows).require_accepted(rows.source, rows.names)


def require_features(method: Method, data: Any) -> Method:
    """Refuse rows without the features that are to be chosen; `numbered`.

    Parameters
    ----------
    method : Method
    data : Dataset, RowSource or Opened

    Raises
    ------
    UsageError
    """
    rows = opened(data)
    method, d = numbered(method, rows), rows.source.profile.d
    kept_features(method, d, number_to_choose(method, d))
    return method


def numbered(method: Method, data: Any) -> Method:
    """The method with the numbers of the features that its options name (`choice.with_numbers`).

    Parameters
    ----------
    method : Method
    data : Dataset, RowSource or Opened
    """
    if method.keep is None and method.exclude is None and method.groups is None:
        return method
    rows = opened(data)
    return with_numbers(method, rows.names, rows.source.profile.d)


def fit(
    method: Method,
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
    method : Method
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
    method, rows = with_columns(method, rows, covariates, strata)
    method.check()
    if init is not None and not (method.init_shapes and getattr(method, "variant", None) == "published"):
        cure = "give variant='published'" if method.init_shapes else "leave it out"
        raise UsageError(
            f"init is where published forms start that draw a start at random, which {method.method} as it is does not"
            f"\n  cure: {cure}"
        )
    if method.strata is not None and method.strata_by == "rank":
        return _fit_within_strata(method, rows, sample_weight)
    n, d = rows.source.profile.n, rows.source.profile.d
    params = {name: plain(value) for name, value in method.get_params().items()}
    method = numbered(method, rows)
    whole = weighted_rows(rows.source, sample_weight)
    source, features = method.rows(whole), method.features(d)
    profile = source.profile
    k = number_to_choose(method, d)
    kept = kept_features(method, d, k)
    begun = None
    if method.start_ is not None:
        begun = begin(method, {name: value for name, value in params.items() if name not in _AFTER_SCORES}, rows, k)
        kept = np.concatenate([begun.chosen, kept[~np.isin(kept, begun.chosen)]])
    method.require_accepted(whole, rows.names)
    state = getattr(method, "random_state", None)
    if isinstance(state, GENERATORS):  # asked once; with its number the fit can be made again
        method = copy.copy(method)
        method.random_state = params["random_state"] = draw_seed(state)  # type: ignore[attr-defined]
    resources = runtime.current_resources()
    plan = _plan(method, whole, resources)
    runtime.reset_peak_rss()
    # Of methods that keep checkpoints no score depends on how many features are kept.
    loop = {name: value for name, value in params.items() if name not in _AFTER_SCORES}
    digest = (rows.store or {}).get("digest") if features is None else source.digest
    job = checkpoints.job(method=method.method, params=loop, digest=digest)
    typical = method.iterations_on(profile)
    runtime.emit(
        "fit",
        method=method.method,
        readings=plan.passes,
        max_iterations=None if typical is None else getattr(method, "max_iter", None),
        typical_iterations=typical,
    )
    # NumPy and SciPy each bring a BLAS, whose idle threads keep the cores from the other's: one thread of each was
    # up to 15 times faster for loops that use both. Passes have threads of their own.
    readings = Readings(source, resources, plan, method.names(rows.names), kept=kept)
    readings.begun, readings.init = begun, init
    with job, record_hits() as hits, runtime.one_blas_thread():
        try:
            outcome, pairs, k, fill = _outcome(method, readings, k, d)
        except UnknownLabelsFound as unknown:  # planned and read again, with what the reading has told
            whole, records = RowView(whole, unknown_labels=unknown.labels), readings.records
            plan = _plan(method, whole, resources)
            readings = Readings(method.rows(whole), resources, plan, method.names(rows.names), kept=kept)
            readings.begun, readings.init = begun, init
            outcome, pairs, k, fill = _outcome(method, readings, k, d)
            readings.records[:0] = records
        choice = choose(method, readings, outcome, k, pairs)
    records, varies, outcome, k = readings.records, readings.varies, choice.outcome, choice.k
    peak_driver = peak_worker = runtime.peak_rss()
    if resources.client is not None:
        peak_worker = max((record.peak_worker_bytes for record in records), default=0)
    n_constant = profile.d - int(np.count_nonzero(varies))
    of_constant = constant_warnings(k, profile.d, n_constant, informed=bool(outcome.warnings))
    of_constant = [] if choice.chosen_groups else of_constant  # groups are chosen whole
    of_pairs = [] if pairs is None else pairs.warnings
    never, of_unknown = readings.never_known, []
    if whole.label_counts is not None and method.unknown == "use":
        never = method.refuse_unknown(whole.label_counts[0], profile.total, readings.names)
    if len(never) and not method.without_positives:  # else the method has told what it makes of them
        of_unknown = [UserWarning(no_part_in_scores(never, readings.names.labels))]
    emitted = [*outcome.warnings, *of_unknown, *of_pairs, *of_constant, *choice.warnings]
    for warning in emitted:
        warnings.warn(warning, stacklevel=_caller_level())
    ranking = ranking_of_all(choice.ranking, features, d)
    group_scores, clusters = choice.group_scores, choice.clusters
    if group_scores is not None:
        group_scores = of_all_features(group_scores, features, d, group_scores.min())
    if clusters is not None and features is not None:
        for column in ("feature", "representative"):
            clusters[column] = features[clusters[column]]
    support = np.zeros(d, dtype=bool)
    support[ranking[:k]] = True
    scores = lower_constant(outcome.scores, varies)
    scores = of_all_features(scores, features, d, np.nan)
    q_values = None if outcome.q_values is None else of_all_features(outcome.q_values, features, d, np.nan)
    stability, facts_of_resamples = None, {}
    if outcome.resampled_scores is not None:
        stability = rank_stability(method.ranked_by(outcome.resampled_scores), k, varies)
        facts_of_resamples = _facts_of(stability, k, len(outcome.resampled_scores))
        stability = stability._replace(
            intervals=of_all_features(stability.intervals, features, d, d),
            frequency=of_all_features(stability.frequency, features, d, 0),
        )
    report = Report(
        method=method.method,
        params=params,
        store=rows.store,
        n=n,
        d=d,
        q=profile.q,
        k=k,
        seed=params.get("random_state"),
        passes=count_readings(records),
        tasks=sum(record.tasks for record in records),
        bytes_read=sum(record.bytes_read for record in records),
        wall_seconds=time.perf_counter() - started,
        plan=plan.to_dict(),
        peak_worker_bytes=peak_worker,
        peak_driver_bytes=peak_driver,
        iterations=outcome.iterations,
        converged=outcome.converged,
        objective=[float(value) for value in outcome.objective],
        versions=versions(),
        extra={
            **outcome.extra,
            "constant_features": n_constant,
            **facts(method, rows.names),
            **_noted(chosen_groups=choice.chosen_groups),
            **({} if pairs is None else {"pairs": pairs.summary}),
            **_noted(
                from_cache=hits,
                refused_workers=refused_workers(resources.client),
                stability=facts_of_resamples,
            ),
        },
        warnings=[str(warning) for warning in emitted],
    )
    found: Any = (outcome, scores, ranking, support, report, q_values, stability, fill, pairs, clusters, group_scores)
    return Fit(method, rows.names, *found)


def begin(method: Method, params: dict[str, Any], rows: Opened, k: int) -> Begun:
    """The choice of an earlier run, from which a method goes on.

    Parameters
    ----------
    method : Method
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
    run = read_run(str(method.start_))
    record, given = run.record, parameter("start_", method.start_)
    cure = f"{parameter('keep', f'{method.start_}/selected.txt')} begins from its features all the same."
    if record.get("method") != method.method:
        raise UsageError(f"{given} is a run of {record.get('method')}, not of {method.method}; {cure}")
    if rows.store is None or rows.store.get("digest") != run.store.get("digest") or rows.source.weights is not None:
        raise UsageError(f"{given} was not made of these rows; {cure}")
    earlier, excluded = record.get("params") or {}, record["extra"].get("excluded_features", [])
    other = [name for name, value in params.items() if earlier.get(name) != as_json(value)]
    other += [name for name in ("prune", "groups", "per_label", "min_labels") if earlier.get(name) is not None]
    if not set(method.keep or ()) <= set(run.ranking[: record["extra"].get("chosen_in_turn", 0)].tolist()):
        raise UsageError(
            f"a run from the start begins from the features of {parameter('keep')}, and {given} has chosen others "
            "before them\n  cure: leave out one of the two"
        )
    if facts(method, rows.names).get("excluded_features", []) != excluded:
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
    features = method.features(len(run.ranking))
    chosen, shared = run.ranking[:m], np.empty(len(run.ranking))
    shared[run.ranking] = run.shared
    if features is not None:
        chosen, shared = np.searchsorted(features, chosen), shared[features]
    return Begun(chosen, run.scores[:m], shared)


def _facts_of(found: RankStability, k: int, n_resamples: int) -> dict[str, Any]:
    """What a record tells of the resamples: how far they agree, and how many features they choose again and again."""
    bound = falsely_chosen(k, len(found.frequency), n_resamples)
    often = int(np.count_nonzero(found.frequency >= OFTEN))
    told: dict[str, Any] = {"scheme": "complementary halves", "often": OFTEN, "chosen_often": often}
    if np.isfinite(found.agreement):
        told |= {"agreement": found.agreement, "standard_error": found.error}
    return told if bound is None else told | {"falsely_chosen": bound}


def with_columns(method: Method, rows: Opened, covariates: Any, strata: Any) -> tuple[Method, Opened]:
    """A method and rows where values of covariates and strata are given: rows have them as columns, which it names.

    Raises
    ------
    UsageError
        The method names some already.
    DataError
        Values are not those of the rows.
    """
    given = {"covariates": covariates, "strata": strata}
    given = {name: values for name, values in given.items() if values is not None}
    if not given:
        return method, rows
    method, n, columns = copy.copy(method), rows.source.profile.n, dict(rows.source.columns)
    for name, values in given.items():
        if getattr(method, name) is not None:
            raise UsageError(f"{parameter(name)} names columns, and values were given, too\n  cure: give one of them")
        of_rows = columns_of(values, n, name)
        columns |= {column.name: column for column in of_rows}
        names = [column.name for column in of_rows]
        setattr(method, name, names if name == "covariates" else names[0])
    return method, replace(rows, source=RowView(rows.source, columns=columns))


def _fit_within_strata(method: Method, rows: Opened, sample_weight: Any) -> Fit:
    """A fit within every stratum; features have the negative mean of their ranks in these as scores."""
    started, source = time.perf_counter(), rows.source
    require_accepted(method, rows)
    assert method.strata is not None
    column = find_strata(source, method.strata)
    codes, d = source.read_column(column), source.profile.d
    plan = numbered(method, rows).plan(source, runtime.current_resources())
    within = copy.copy(method)
    within.strata, within.strata_by = None, "sum"
    fits, total, sizes = [], np.zeros(d), {}
    for code, name in enumerate(column.categories or ()):
        chosen = np.flatnonzero(codes == code)
        if not len(chosen):
            continue
        stratum = RowView(source, chosen)
        store = None if rows.store is None else {**rows.store, "digest": stratum.digest}
        weights = None if sample_weight is None else np.asarray(sample_weight)[chosen]
        fitted = fit(within, replace(rows, source=stratum, store=store), weights)
        places = np.empty(d)
        places[fitted.ranking] = np.arange(1, d + 1)
        total += places
        sizes[name] = len(chosen)
        fits.append(replace(fitted, outcome=Scores(fitted.scores)))
    scores = -total / len(fits)
    ranking, k = rank(scores), fits[0].report.k
    support = np.zeros(d, dtype=bool)
    support[ranking[:k]] = True
    reports = [each.report for each in fits]
    report = replace(
        reports[0],
        params={name: plain(value) for name, value in method.get_params().items()},
        store=rows.store,
        n=source.profile.n,
        wall_seconds=time.perf_counter() - started,
        plan=plan.to_dict(),
        objective=[],
        converged=None if reports[0].converged is None else all(each.converged for each in reports),
        extra={"strata": sizes, **facts(numbered(method, rows), rows.names)},
        warnings=list(dict.fromkeys(text for each in reports for text in each.warnings)),
        passes=sum(each.passes for each in reports),
        tasks=sum(each.tasks for each in reports),
        bytes_read=sum(each.bytes_read for each in reports),
        iterations=sum(each.iterations for each in reports),
        peak_worker_bytes=max(each.peak_worker_bytes for each in reports),
        peak_driver_bytes=max(each.peak_driver_bytes for each in reports),
    )
    return Fit(method, rows.names, Scores(scores), scores, ranking, support, report)


def _outcome(method: Method, readings: Readings, k: int, d: int) -> tuple[Scores, Pairs | None, int, Array | None]:
    """Scores, the tests of pairs that are asked for, how many features to keep, and what missing ones are filled with.

    Raises
    ------
    UnknownLabelsFound
    """
    fill, pairs = _fill_missing(method, readings), None
    if method.asks_pairs:
        readings.attached = pair_statistics(readings.source, method.pair_question)
        if PAIR_TESTS in readings.plan.readings:
            pairs = run_tests(method, readings, d)
            if method.n_features_to_select == AUTO and method.control is not None:
                k = int(np.count_nonzero(pairs.discovered(method.fdr)[0])) or k
    outcome = method.score(readings, k)
    if method.asks_pairs and pairs is None:
        pairs = run_tests(method, readings, d)
    return outcome, pairs, k, fill


def _plan(method: Method, source: RowSource, resources: Resources) -> Plan:
    return require_driver(method.plan(source, resources), resources, f"{method.method} in the driver process")


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
