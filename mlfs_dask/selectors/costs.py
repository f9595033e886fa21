"""Cost of a selection as data: its passes and the memory of the driver, and the one function that adds them up.

A method declares a `Cost`: its steps in order, passes over the data and work of the driver alone, and what the driver
holds in each, in size letters. `project` makes the `Plan` of it: what `mlfs plan` prints, what is refused where it does
not fit, and what the fit runs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.blocks.unknown import no_labels
from mlfs_dask.engine.plan import ReadingPlan
from mlfs_dask.engine.readings import ReadingRecord, keeps_state, plan_statistics, returned_bytes, run_reading
from mlfs_dask.engine.statistic import Statistic, loads_kernels
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.rows.view import UnknownLabels
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Array, workspace_bytes

if TYPE_CHECKING:
    from mlfs_dask.selectors.pairs import PairQuestion
    from mlfs_dask.statistics.write_rows import RowSink

#: Copies of a message that the driver holds while it is sent or arrives: pickled, in frames, and in the scheduler,
#: which under a local cluster is this process too.
MESSAGE_COPIES = 4

#: Copies of the arrays of the rows (`Profile.arrays`), which are sent without pickling: those in the scheduler of this
#: pass and of the one before. Measured was one.
ROW_ARRAY_COPIES = 2


@dataclass(frozen=True)
class Reading:
    """One pass over the data, or one that is made in every iteration of a loop.

    Attributes
    ----------
    name : str
        What the fit and the progress line call it.
    statistics : tuple of Statistic
        What it feeds. For the plan only their sizes matter.
    times : int
        How often it is made at most.
    typical : (int, int) or None
        How often at least and at most it was made on real data; None: `times`.
    labels_only : bool
        Whether the labels alone are read.
    source : RowSource or None
        What it reads where that is not the source of the job.
    workspace : str
        What the driver holds meanwhile, as in `Cost.steps`.
    """

    name: str
    statistics: tuple[Statistic, ...]
    times: int = 1
    typical: tuple[int, int] | None = None
    labels_only: bool = False
    source: RowSource | None = None
    workspace: str = ""


@dataclass(frozen=True)
class Cost:
    """Passes and memory of a selection.

    Attributes
    ----------
    steps : sequence of Reading or str
        In their order; a str is work of the driver: numbers of 8 bytes that it holds, in size letters,
        "2 d d + 4 q d".
    sizes : mapping of str to int
        The size letters.
    compiled, loads_sklearn : bool
        Whether the driver itself loads compiled kernels, or scikit-learn.
    notes : sequence of str
        What a user should know beside the numbers.
    """

    steps: Sequence[Reading | str]
    sizes: Mapping[str, int] = field(default_factory=dict)
    compiled: bool = False
    loads_sklearn: bool = False
    notes: Sequence[str] = ()

    @property
    def most_held(self) -> dict[str, int]:
        """Bytes of the terms of the largest workspace."""
        workspaces = (step if isinstance(step, str) else step.workspace for step in self.steps)
        return max((workspace_bytes(each, self.sizes) for each in workspaces), key=_total, default={})


@dataclass(frozen=True)
class Plan:
    """Cost of a whole job, before anything runs.

    Attributes
    ----------
    passes, tasks, bytes_read : int
        Totals over the job. Iterative methods state the most they may take.
    typical_passes, typical_bytes_read : (int, int) or None
        Of an iterative method, the least and the most of what it has taken on real data.
    peak_worker_bytes, peak_driver_bytes : int
        Projected peak of one worker process and of the driver process; in process the two are the same process.
    arrays : mapping of str to int
        Bytes of the arrays of the rows by name, and of the driver's largest workspace by its terms in size letters.
    notes : tuple of str
    seconds : float or None
        Estimate of the whole job (`timing.estimate_seconds`); None where nothing was measured.
    typical_seconds : (float, float) or None
        Of a method with a loop, from the least and the most iterations on real data.
    readings : mapping of str to ReadingPlan
        What `Readings` runs, by the name of the pass.
    """

    passes: int
    tasks: int
    bytes_read: int
    peak_worker_bytes: int
    peak_driver_bytes: int
    arrays: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    typical_passes: tuple[int, int] | None = None
    typical_bytes_read: tuple[int, int] | None = None
    seconds: float | None = None
    typical_seconds: tuple[float, float] | None = None
    readings: Mapping[str, ReadingPlan] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for `run.json` and `--json`."""
        values = dict(vars(self))
        del values["readings"]
        return {**values, "arrays": dict(self.arrays), "notes": list(self.notes)}


def project(cost: Cost, source: RowSource | Profile, resources: Resources) -> Plan:
    """Add up a cost.

    Parameters
    ----------
    cost : Cost
    source : RowSource or Profile
        With a row source, statistics that are in the cache cost nothing.
    resources : Resources

    Returns
    -------
    Plan

    Raises
    ------
    DoesNotFitError
        A pass fits the workers in no way.
    """
    profile = profile_of(source)
    driver, kernels_loaded = runtime.driver_bytes() + _library_bytes(cost, resources), cost.compiled
    compiled_bytes = runtime.driver_compiled_bytes()
    readings: dict[str, ReadingPlan] = {}
    refused: list[DoesNotFitError] = []
    peak_driver, peak_worker = driver, resources.process_bytes
    totals = np.zeros((3, 3), dtype=np.int64)  # passes, tasks, bytes: at most, typically at least and at most
    for step in cost.steps:
        total = _total(workspace_bytes(step if isinstance(step, str) else step.workspace, cost.sizes))
        loading = 0  # bytes of kernels that stay with this process after a pass in it
        if isinstance(step, Reading):
            rows = source.labels_only() if step.labels_only else step.source or source
            try:
                planned = plan_statistics(rows, step.statistics, resources)
            except DoesNotFitError as error:  # the cure is to be enough for all passes
                refused.append(error)
                continue
            if resources.client is None:
                kernels = resources.compiled_bytes * bool(planned.tasks and loads_kernels(step.statistics, profile.n))
                total -= resources.process_bytes + kernels * kernels_loaded
                loading = kernels * (not kernels_loaded)
                room = resources.driver_limit - driver - total
                planned = _with_threads_that_fit(planned, rows, step.statistics, resources, room)
                total += planned.peak_worker_bytes
            else:
                messages = sum(s.parameter_bytes + returned_bytes(source, s) for s in step.statistics)
                total += MESSAGE_COPIES * messages + ROW_ARRAY_COPIES * profile.array_bytes
                # Results of states that the cache keeps are made here.
                finished = [s for s in step.statistics if keeps_state(source, s)]
                loading = compiled_bytes * (not kernels_loaded and loads_kernels(finished, profile.n))
                total += loading + max((s.finishing_bytes(profile) for s in finished), default=0)
            readings[step.name] = planned
            peak_worker = max(peak_worker, planned.peak_worker_bytes)
            if planned.tasks:
                times = np.array([step.times, *np.minimum(step.typical or (step.times, step.times), step.times)])
                totals += np.outer([1, planned.tasks, planned.bytes_read], times)
        peak_driver = max(peak_driver, driver + total)
        driver += loading
        kernels_loaded = kernels_loaded or loading > 0
    if refused:
        raise max(refused, key=lambda error: error.projected or 0)
    if resources.client is None:
        peak_worker = peak_driver  # the same process
    # Arrays of the rows have been made before: the bytes of this process hold them.
    arrays = {array.name: array.nbytes for array in profile.arrays} | cost.most_held
    iterates = any(isinstance(step, Reading) and step.typical for step in cost.steps)
    notes = list(cost.notes)
    most = resources.threads_per_worker
    threads = min((planned.threads for planned in readings.values() if planned.tasks), default=most)
    if resources.client is None and threads < most:
        notes.append(f"memory is short: {threads} of {most} threads read")
    (passes, low, high), (tasks, _, _), (read, low_read, high_read) = totals.tolist()
    return Plan(
        passes=passes,
        tasks=tasks,
        bytes_read=read,
        peak_worker_bytes=peak_worker,
        peak_driver_bytes=peak_driver,
        arrays=arrays,
        notes=tuple(notes),
        typical_passes=(low, high) if iterates else None,
        typical_bytes_read=(low_read, high_read) if iterates else None,
        readings=readings,
    )


def _with_threads_that_fit(
    planned: ReadingPlan, source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources, room: int
) -> ReadingPlan:
    """Return a pass in process, with fewer threads where it would not fit beside the arrays that are held."""
    for threads in range(planned.threads - 1, 0, -1):
        if planned.peak_worker_bytes <= room:
            break
        planned = plan_statistics(source, statistics, replace(resources, threads_per_worker=threads))
    return planned


def _total(terms: Mapping[str, int]) -> int:
    return sum(terms.values())


def _library_bytes(cost: Cost, resources: Resources) -> int:
    """Return the bytes of libraries that the driver loads. In process, a pass counts the libraries of its kernels."""
    compiled = runtime.driver_compiled_bytes() if resources.client is not None else resources.compiled_bytes
    return compiled * cost.compiled + resources.sklearn_bytes * cost.loads_sklearn


def require_driver(plan: Plan, resources: Resources, what: str, *, cure: str | None = None) -> Plan:
    """`plan`, unless the driver side does not fit its process.

    Raises
    ------
    DoesNotFitError
    """
    if plan.peak_driver_bytes > resources.driver_limit:
        largest = sorted(plan.arrays.items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in largest if size >= 2**20)
        raise DoesNotFitError(
            what + (f" (largest arrays: {shown})" if shown else ""),
            projected=plan.peak_driver_bytes,
            available=resources.driver_limit,
            cure=cure
            or ("give a larger --memory-limit, " if resources.client is None else "")
            + "run the command on a machine with more memory, or select on fewer labels or features",
        )
    return plan


@dataclass(frozen=True)
class Names:
    """Names of the columns of X and Y, where they have any; for messages.

    Attributes
    ----------
    features : sequence of str, length d, or None
    labels : sequence of str, length q, or None
    column : callable, or None
        Gives a column of features by its name, an entry for each: as of `var` of AnnData.
    """

    features: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    column: Callable[[str], Sequence[Any]] | None = None

    def first_feature(self, flagged: NDArray[np.bool_]) -> str | int:
        """Return the name of the first flagged feature, or its index where features have no names."""
        f = int(np.flatnonzero(flagged)[0])
        return f if self.features is None else str(self.features[f])


@dataclass(frozen=True)
class Asked:
    """Request to a method for some rows.

    Attributes
    ----------
    k : int
        Features to choose, or groups of them; all features where the data has to tell how many.
    level : float or None
        False discovery rate at which scores of shuffled labels tell how many features to choose.
    pairs : PairQuestion or None
        Tests of labels and features.
    pairs_first : bool
        Whether pairs are tested before features are scored: how many to choose follows from the tests.
    unknown : {"use", "refuse", "negative"}
        Meaning of labels -1.
    labels_sink : RowSink or None
        Where recovered labels go after the fit; of a plan its sizes alone matter.
    names_unknown : bool
        Whether labels with unknown entries have to be known before the rows are read, whatever the method.
    """

    k: int
    level: float | None = None
    pairs: PairQuestion | None = None
    pairs_first: bool = False
    unknown: UnknownLabels = "use"
    labels_sink: RowSink | None = None
    names_unknown: bool = False

    @property
    def shuffles(self) -> int:
        """Shuffles of the labels: the fewest by which a single feature can be discovered.

        Its p-value is at least 1/(1 + B d), and Benjamini and Hochberg ask for level/d.
        """
        return 0 if self.level is None else math.ceil(1 / self.level)

    @property
    def tests_codes(self) -> bool:
        """True if pairs are tested from the counts that a method reads anyway."""
        pairs = self.pairs
        if pairs is None or self.pairs_first:
            return False
        return not (pairs.given_others or pairs.clusters) and pairs.test == "t"


@dataclass(frozen=True)
class EarlierChoice:
    """State of an earlier choice, one feature after another.

    Attributes
    ----------
    chosen : int64 array, shape (m,)
        Features, in the order of the choice.
    scores : float64 array, shape (m,)
        What each was chosen by.
    shared : float64 array, shape (d,)
        What every feature shares with the chosen ones but the last.
    """

    chosen: NDArray[np.int64]
    scores: Array
    shared: Array


@dataclass(eq=False)
class Readings:
    """The passes of one fit, as they were planned, and their records.

    Attributes
    ----------
    source : RowSource
    resources : Resources
    plan : Plan
    asked : Asked
    names : Names
    results : mapping or None
        Results of the rows that have been read, by the `result_key` of their statistics.
    kept : int64 array
        Features that are chosen in any case, in their order.
    begun : EarlierChoice or None
        The choice that is gone on with; its features come first among `kept`.
    init : mapping or None
        Arrays to start from, in place of those that are drawn.
    records : list of ReadingRecord
    varies : bool array, shape (d,)
        Features that vary over the rows; set by the fit as soon as it knows.
    never_known : int64 array
        Labels that are known in no row.
    attached : sequence of Statistic
        Statistics that the next pass of features feeds too; `attached_results` are their results.
    pair_tests : object
        Tests of pairs that a method has made of its own statistics (`mlfs_dask.selectors.pairs`).
    """

    source: RowSource
    resources: Resources
    plan: Plan
    asked: Asked
    names: Names = field(default_factory=Names)
    results: Mapping[str, Any] | None = None
    kept: NDArray[np.int64] = field(default_factory=no_labels)
    begun: EarlierChoice | None = None
    init: Mapping[str, Any] | None = None
    records: list[ReadingRecord] = field(default_factory=list)
    varies: NDArray[np.bool_] = field(init=False)
    never_known: NDArray[np.intp] = field(default_factory=no_labels)
    attached: Sequence[Statistic] = ()
    attached_results: list[Any] | None = None
    pair_tests: Any = None

    def run(
        self, name: str, *statistics: Statistic, labels_only: bool = False, source: RowSource | None = None
    ) -> list[Any]:
        """Make the pass that the plan calls `name`, and give the results of `statistics` in their order.

        With `labels_only` X is not read (`RowSource.labels_only`). `source` is what is read in place of the rows.

        Raises
        ------
        DoesNotFitError, ClusterLostError
        """
        if self.results is not None and source is None and not self.attached:
            read = [statistic.result_among(self.results) for statistic in statistics]
            if all(result is not None for result in read):
                return copy.deepcopy(read)  # a fit may change them
        attached: Sequence[Statistic] = ()
        if not labels_only and source is None:
            attached, self.attached = self.attached, ()
        source = source or (self.source.labels_only() if labels_only else self.source)
        plan = self.plan.readings.get(name)
        results, record = run_reading(source, [*statistics, *attached], self.resources, label=name, plan=plan)
        self.records.append(record)
        if attached:
            self.attached_results = results[len(statistics) :]
        return results[: len(statistics)]
