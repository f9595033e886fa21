"""Methods that read the data in every iteration: what a method gives, and the one runner.

A method gives a first pass; what follows from it and no iteration changes (`Fixed`); its small variables (`At`),
which are the checkpoint too; and functions of the two: what an iteration reads, the objective, the update. An iteration
is one pass, in which the variables of each row are computed from the small ones, added to sums and discarded, so
that no process holds an array with n rows. Both records tell the shape of each array in size letters: the placeholders
of the plan, and most of what it counts, follow from these.

Fewer passes by predicted sums: a method may have a model of its sums, as functions of the small variables
(`Loop.predicts` and `Loop.predict`). The runner then makes several updates between two passes: the first from the sums
S of the last pass, each later one from S + κ ΔS, ΔS being the change that the model predicts for the variables reached.
κ is a factor for each column of each sum, the least-squares fit of the predicted to the true change of the last pass.
Where updates do not raise the objective and a pass finds that it rose, the runner goes back to the pass before. A fixed
point of this loop is one of the plain loop, whatever the model: the first update is from true sums.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.column_keys import mean_of_copies
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.engine.readings import records_from_facts, records_to_facts
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, number_of, parameter
from mlfs_dask.rows.contract import Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import Method, family
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings
from mlfs_dask.selectors.parameters import Stop
from mlfs_dask.selectors.scores import Scores, never_positive_warnings, not_converged, zero_weights_warning
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.gram import require_gram, scale_gram
from mlfs_dask.statistics.label_statistics import FilledPairs, Labels
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.statistics.scaling import Scaling, standard_scaling
from mlfs_dask.statistics.write_rows import WriteLabels
from mlfs_dask.typing import Array, join_terms, numbers

F = TypeVar("F")
A = TypeVar("A")

#: Names of the first pass, of that of pairs of labels some of which are unknown, and of that of an iteration.
FIRST, PAIRS, ROWS = "moments", "pairs of labels", "rows"

#: Relative change of the scores at which updates by predicted sums end.
SETTLED = 1e-4

#: Least Spearman correlation of two rankings, and share of selected features in common, with which they count as equal.
SAME_ORDER, SAME_FEATURES = 0.999, 0.98

#: Relative rise of the objective that rounding does not explain, and what factors κ are multiplied by after a rise.
RISE, BACK = 1e-9, 0.7


@dataclasses.dataclass
class Scaled:
    """Base class of records `Fixed` of loops over scaled features: the numbers of their `Scaling`."""

    centre: Annotated[Array, "d"]
    factor: Annotated[Array, "d"]

    @property
    def scaling(self) -> Scaling:
        """Scaling of the features."""
        return Scaling(self.centre, self.factor)


@dataclasses.dataclass
class Shares(Scaled):
    """And shares of the rows that have each label, among those where it is known."""

    share: Annotated[Array, "q"]

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Labels that differ between rows, shape (q,)."""
        return (self.share > 0) & (self.share < 1)


class LoopMethod(Method):
    """Base class of methods with a loop: what messages and the record say of its rows and of its end."""

    #: What messages call it.
    name: ClassVar[str]

    #: Why no feature is better than the others, where that is so.
    uninformative: ClassVar[str] = "every feature is constant, or no label differs between rows"

    #: Iterations that fits of real sets took, least and most.
    typical_iterations: ClassVar[tuple[int, int]]

    tol: float
    max_iter: int

    @property
    def stops_early(self) -> bool:
        """True if the stopping rule is a part of the method: the ranking still changes when the loop ends."""
        return False

    def _warnings(self, trace: LoopTrace, scores: Array, facts: Mapping[str, Any]) -> list[Warning]:
        """Return warnings about the scores and about how the loop ended; `facts` are those of the record."""
        if not scores.any():
            text = f"{self.name} cannot rank the features: {self.uninformative}. All features get the same score."
            return zero_weights_warning(self.name, facts) or [UserWarning(text)]
        return [] if trace.converged else [self._not_converged(trace)]

    def zeros_are_unknown(self, unknown: NDArray[np.integer[Any]]) -> bool:
        """Return True if labels are known only in rows with a positive one; `unknown` counts the -1 of each label."""
        return False

    def _examine(
        self, job: Readings, moments: Any, unknown: NDArray[np.integer[Any]], positives: NDArray[np.integer[Any]]
    ) -> None:
        """Refuse unknown labels, where the method takes none or all are, and features that are broken or lost digits.

        Raises
        ------
        DataError
        UnknownLabelsFound
        """
        self.examine_unknown(job, unknown)
        if self.zeros_are_unknown(unknown) and not positives.any():
            raise DataError(
                "no row of Y has a positive label",
                cure="give labels 1 and 0 for some rows; -1 stands for an unknown one",
            )
        self.examine_moments(job, moments.mean, moments.m2)

    def _result(
        self, job: Readings, scores: Array, trace: LoopTrace, extra: dict[str, Any], positives: NDArray[np.int64]
    ) -> Scores:
        """Return the scores, with the trace of the loop for the record; `positives` are the rows that have each
        label.
        """
        extra = {**trace.values, **trace.penalties, **extra}
        early = trace.converged and self.stops_early
        if early:
            extra["stopped_early"] = True
        warnings = self._warnings(trace, scores, extra)
        if scores.any() and (said := self.without_positives):
            warnings += never_positive_warnings(self.name, positives, job.names.labels, said)
        return Scores(
            scores,
            iterations=trace.iterations,
            converged=None if early else trace.converged,
            objective=trace.objective,
            extra=extra,
            warnings=warnings,
        )

    def _not_converged(self, trace: LoopTrace) -> Warning:
        """Return the warning of a loop that `max_iter` ended."""
        text = f"{self.name} did not converge in {number_of(trace.iterations, 'iteration')}"
        if trace.iterations == 1:
            return not_converged(f"{text}. Increase {parameter('max_iter')}.")
        return not_converged(
            f"{text} (relative change of the objective in the last one {trace.change:.1e}, {parameter('tol')} "
            f"{self.tol:g}). Increase {parameter('max_iter')}, or {parameter('tol')}."
        )


@family
class Loop(LoopMethod, Generic[F, A]):
    """Base class of methods that read the data in every iteration.

    `Fixed` and `At` are dataclasses, whose arrays are annotated with their shapes in size letters:
    ``G: Annotated[Array, "d l"]``. A number has the shape "".
    """

    stop: Stop = "objective"

    keeps_checkpoints: ClassVar[bool] = True

    #: Named tuple of the sums of an iteration, where `predict` has a model of them: its first statistic's.
    predicts: ClassVar[Callable[..., Any] | None] = None

    #: Least and largest factor κ of predicted changes.
    factors: ClassVar[tuple[float, float]] = (0.0, 1.2)

    #: Whether no update from true sums raises the objective: a rise is then a wrong prediction, and goes back.
    descends: ClassVar[bool] = True

    #: What no iteration changes, and the small variables: `Fixed` and `At`.
    records: ClassVar[tuple[type, type]]

    #: Whether it starts from Y'Y, in which unknown entries are at the mean of their label.
    fills_pairs: ClassVar[bool] = False

    #: Whether it forms a (d, d) matrix, of `gram_cap` features at most.
    caps_features: ClassVar[bool] = False
    if typing.TYPE_CHECKING:  # a parameter of methods that have it
        gram_cap: int

    #: What the driver holds beside the records: in `setup`, and from `start` on.
    setup_workspace: ClassVar[str] = ""
    workspace: ClassVar[str] = ""

    # ------------------------------------------------------------------ what a method gives

    def sizes(self, profile: Profile) -> dict[str, int]:
        """Size letters of the records."""
        return {"d": profile.d, "q": profile.q}

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        """Return statistics of the first pass, by name: "moments", "labels", and what the method adds.

        With "keys" of the features (`ColumnKeys`) features that are equal in every row get the mean of their scores.
        """
        return {"moments": Moments(profile.d), "labels": Labels(profile.q)}

    def setup(self, job: Readings, results: dict[str, Any]) -> F:
        """`Fixed`, from the results of the first pass by name. May make passes.

        By default its fields are results of these names, scaled X'X, or empty, and the scaling and shares of `Shares`.
        """
        scaling, share = standard_scaling(results["moments"]), results["labels"].shares(job.source.profile.n)
        gram = scale_gram(results["gram"], scaling.factor) if "gram" in results else np.empty((0, 0))
        made = {**results, **vars(scaling), "share": share, "gram": gram}
        fixed: F = self.records[0](**{field.name: made[field.name] for field in dataclasses.fields(self.records[0])})
        return fixed

    def start(self, job: Readings, fixed: F, results: Mapping[str, Any], trace: LoopTrace) -> A:
        """Return the first `At`. May make passes; is not called where a checkpoint has an `At`."""
        raise NotImplementedError

    def rows(self, fixed: F, at: A) -> Any:
        """Return the statistic in which an iteration computes the variables of each row.

        After the fit it computes labels of rows, of methods that recover these (`BlockLabels`).
        """
        raise NotImplementedError

    def reading(self, fixed: F, at: A) -> Sequence[Statistic]:
        """Return statistics of an iteration, by default `rows` alone; none where it reads nothing."""
        return [self.rows(fixed, at)]

    def objective(self, fixed: F, at: A, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        """`objective`, and other values of an iteration that are reported, from the results of its pass."""
        raise NotImplementedError

    def has_converged(self, fixed: F, at: A, trace: LoopTrace) -> bool:
        """Return True if the loop ends after the last iteration of `trace`."""
        return trace.change <= self.tol or ranking_settled(trace)

    def update(self, job: Readings, fixed: F, at: A, sums: list[Any], trace: LoopTrace) -> A:
        """Return the next `At`. May make passes, and record values in `trace`."""
        raise NotImplementedError

    def predict(self, fixed: F, at: A, sums: Any, after: A) -> dict[str, Array] | None:
        """Return the change of sums, by name, from `sums` at `at` to another `At`, by the model; None: no model here.

        Columns of an array are fitted each by itself. Parts of `fixed` that only this needs are summed in passes that
        `setup` makes anyway. `update` must not change its `at`, nor make passes.
        """
        return None

    def steps_to(self, trace: LoopTrace) -> int:
        """Return the most updates after the last pass of `trace`, where `predict` has a model."""
        return int(getattr(self, "steps_per_pass", 1))

    def loop_scores(self, fixed: F, at: Any) -> Array:
        """Return scores, shape (d,), for the `At` of the last pass: by default the norms of the rows of its W."""
        return row_norms(at.W)

    def facts(self, fixed: F, at: A) -> dict[str, Any]:
        """Return facts for the record of the run, as plain data."""
        return {}

    def state(self, at: A) -> Arrays:
        """Return arrays of a checkpoint."""
        return vars(at)

    def restored(self, job: Readings, fixed: F, arrays: Arrays) -> A:
        """Return the `At` whose `state` was saved. May make passes."""
        at: A = self.records[1](**{name: array if array.ndim else array.item() for name, array in arrays.items()})
        return at

    def placeholders(self, profile: Profile) -> tuple[F, A]:
        """Return records of the sizes that those of a fit have, whose arrays take no memory."""
        sizes = self.sizes(profile)
        fixed, at = (record(**placeholders(record, sizes)) for record in self.records)
        return fixed, at

    def cost_beside(self, profile: Profile, fixed: F, at: A) -> Cost:
        """Return the cost of a fit besides its records, workspace, first pass, and the passes of iterations.

        Its steps are the passes that `setup`, `start` and `update` make, with what the driver holds for them alone;
        its sizes are the further size letters.
        """
        return Cost(steps=())

    def _typical_readings(self, profile: Profile) -> tuple[int, int]:
        """Return passes of iterations on real data, least and most."""
        low, high = self.iterations_on(profile) or (self.max_iter, self.max_iter)
        return low, high

    # ------------------------------------------------------------------ the plan

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        return list(self.reads(source.profile).values())

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        """Return the passes of `max_iter` iterations."""
        profile = profile_of(source)
        if self.caps_features:
            require_gram(profile.d, self.gram_cap, self.name)
        fixed, at = self.placeholders(profile)
        beside = self.cost_beside(profile, fixed, at)
        typical = self._typical_readings(profile)
        of_fixed, of_at = (list(filter(None, shapes_of(record).values())) for record in self.records)
        loop = Reading(ROWS, tuple(self.reading(fixed, at)), times=self.max_iter, typical=typical)
        predicts = self.predicts is not None and len(loop.statistics) == 1
        # The next variables are made beside the last, and those of the last pass are kept with its sums; others are
        # predicted.
        copies = 3 if predicts else 2
        held = join_terms(*of_fixed, *(f"{copies} {shape}" for shape in of_at), self.workspace, "3 sums" * predicts)
        sums = numbers(loop.statistics[0].result_bytes) if predicts else 0
        steps: list[Reading | str] = [
            Reading(FIRST, tuple(self.reads(profile).values())),
            join_terms(*of_fixed, self.setup_workspace),
        ]
        if self.fills_pairs and len(unknown := unknown_labels(source)):
            steps.insert(1, Reading(PAIRS, (FilledPairs(profile.q, profile.n, unknown),), labels_only=True))
        for reading in (*beside.steps, loop):
            assert isinstance(reading, Reading)
            steps.append(dataclasses.replace(reading, workspace=join_terms(held, reading.workspace)))
        low, high = self.iterations_on(profile) or typical
        notes = [f"fits took {low} to {high} iterations of one pass; at most {self.max_iter}", *beside.notes]
        if asked.labels_sink is not None:
            steps.append(Reading("labels", (WriteLabels(self.rows(fixed, at), asked.labels_sink),)))
        return dataclasses.replace(
            beside, steps=steps, sizes={**self.sizes(profile), **beside.sizes, "sums": sums}, notes=notes
        )

    # ------------------------------------------------------------------ the runner

    def score(self, job: Readings) -> Scores:
        checkpoint, first = checkpoints.current(), self.reads(job.source.profile)
        results = dict(zip(first, job.run(FIRST, *first.values()), strict=True))
        positives: NDArray[np.int64] = results["labels"].positive
        self._examine(job, results["moments"], results["labels"].unknown, positives)
        if self.fills_pairs and results["labels"].unknown.any():
            filled = FilledPairs(job.source.profile.q, job.source.profile.n, unknown_labels(job.source))
            (pairs,) = job.run(PAIRS, filled, labels_only=True)
            results["labels"] = results["labels"]._replace(pairs=pairs)
        fixed: F = self.setup(job, results)
        saved = checkpoint.load()
        last: _Pass[A] | None = None
        ranked: Array | None = None  # the scores of the last pass
        if saved is None:
            trace = LoopTrace()
            at: A = self.start(job, fixed, results, trace)
        else:
            trace, groups = LoopTrace(**saved.facts["trace"]), _nested(saved.arrays)
            at, ranked = self.restored(job, fixed, groups[""]), groups.get("stop", {}).get("scores")
            if "last" in groups:
                assert self.predicts is not None
                before = self.restored(job, fixed, groups["last"])
                last = _Pass(before, self.predicts(**groups["sums"]), groups.get("factors", {}))
            job.records += records_from_facts(saved.facts["records"])
        keys = results.pop("keys", None)
        del results  # rows of a sample are not held by the loop
        while not trace.converged and trace.iterations < self.max_iter:
            statistics = self.reading(fixed, at)
            sums = job.run(ROWS, *statistics) if statistics else []
            values = self.objective(fixed, at, sums, trace)
            rose = last is not None and self.descends and trace.values["steps"][-1] > 1
            rose = rose and values["objective"] > trace.objective[-1] * (1.0 + RISE)
            if self.predicts is not None:
                factors = self._fit_factors(fixed, last, at, sums[0]) if last is not None and sums else {}
                trace.record(rose=float(rose))
            if rose:
                assert last is not None
                at, sums, values["objective"] = last.at, [last.sums], trace.objective[-1]
                factors = {name: BACK * factor for name, factor in factors.items()}
            trace.add(**values)
            if self.stop == "ranking" and not rose:
                earlier, ranked = ranked, self.loop_scores(fixed, at)
                if earlier is not None:
                    trace.record(**_agreement(earlier, ranked, job.asked.k))
            trace.converged = not rose and self.has_converged(fixed, at, trace)
            ends = trace.converged or trace.iterations == self.max_iter
            if not ends and self.predicts is None:
                at = self.update(job, fixed, at, sums, trace)
            elif not ends:
                # Above the Gram cap a pass may be of another statistic.
                last = _Pass(at, sums[0], factors) if sums and isinstance(sums[0], tuple) else None
                at = self._advance(job, fixed, at, sums, factors, trace)
            if checkpoint.keeps_end if ends else checkpoint.due():
                facts = {"trace": trace.facts(), "records": records_to_facts(job.records)}
                state: dict[str, Arrays] = {"": self.state(at)}
                if last is not None and not ends:
                    state |= {"last": self.state(last.at), "sums": last.sums._asdict(), "factors": last.factors}
                if ranked is not None:
                    state["stop"] = {"scores": ranked}
                checkpoint.save(_flat(state), facts)
        scores = self.loop_scores(fixed, at)
        if keys is not None:
            scores = mean_of_copies(scores, keys)
        result = self._result(job, scores, trace, self.facts(fixed, at), positives)
        return result if self.label_threshold is None else dataclasses.replace(result, row_labels=self.rows(fixed, at))

    def _advance(
        self, job: Readings, fixed: F, at: A, sums: list[Any], factors: Mapping[str, Array], trace: LoopTrace
    ) -> A:
        """Return the `At` of the next pass: the first update is from the sums of the last one, others from predicted
        ones.
        """
        rises = trace.values["rose"][-2:]
        most = 1 if len(rises) == 2 and all(rises) else self.steps_to(trace)
        start, predicted, before = at, sums, None
        for step in range(1, most + 1):
            at = self.update(job, fixed, at, predicted, trace)
            change = self.predict(fixed, start, sums[0], at) if sums and step < most else None
            if change is None:
                break
            scores = self.loop_scores(fixed, at)
            if before is not None and np.linalg.norm(scores - before) <= SETTLED * np.linalg.norm(scores):
                break
            before = scores
            moved = {name: getattr(sums[0], name) + factors.get(name, 1.0) * each for name, each in change.items()}
            predicted = [sums[0]._replace(**moved)]
        trace.record(steps=step)
        return at

    def _fit_factors(self, fixed: F, last: _Pass[A], at: A, sums: Any) -> dict[str, Array]:
        """Return κ of each column of each sum: least squares of its true change since the last pass."""
        factors = {}
        for name, change in (self.predict(fixed, last.at, last.sums, at) or {}).items():
            true = getattr(sums, name) - getattr(last.sums, name)
            size = np.square(change).reshape(-1, change.shape[-1]).sum(axis=0)
            fitted = np.array(np.broadcast_to(last.factors.get(name, 1.0), size.shape))
            np.divide((true * change).reshape(-1, len(size)).sum(axis=0), size, out=fitted, where=size > 0)
            factors[name] = np.clip(fitted, *self.factors)
        return factors


def ranking_settled(trace: LoopTrace) -> bool:
    """Return True if the ranking stayed nearly the same in the last two passes; never where it is not recorded."""
    orders, kept = (trace.values.get(name, [])[-2:] for name in ("order", "kept"))
    return len(orders) == 2 and min(orders) >= SAME_ORDER and min(kept) >= SAME_FEATURES


def _agreement(before: Array, scores: Array, k: int) -> dict[str, float]:
    """Return the Spearman correlation of two rankings, and the share of the best k, or the best fifth, in common.

    Scores that differ by rounding are equal: copies of a feature would otherwise be ranked by it.
    """
    from scipy.stats import rankdata  # half a second, for loops with this stop alone

    before, scores = (np.round(each / max(np.abs(each).max(), 1e-300), 9) for each in (before, scores))
    ranks = [rankdata(each) for each in (before, scores)]
    if k >= len(scores):
        k = -(-len(scores) // 5)
    best = [np.argsort(-each, kind="stable")[:k] for each in (before, scores)]
    varies = all(np.ptp(each) > 0 for each in ranks)
    order = float(np.corrcoef(*ranks)[0, 1]) if varies else 0.0
    return {"order": order, "kept": float(np.isin(best[0], best[1]).mean()) if k else 1.0}


@dataclasses.dataclass
class _Pass(Generic[A]):
    """The small variables of a pass, its sums, and κ by the names of sums."""

    at: A
    sums: Any
    factors: Mapping[str, Array]


def _flat(arrays: Mapping[str, Arrays]) -> dict[str, NDArray[Any]]:
    """Return arrays in groups as arrays by name, `group.name`; of the group without a name as they are."""
    return {
        f"{group}.{name}".lstrip("."): np.asarray(array)
        for group, each in arrays.items()
        for name, array in each.items()
    }


def _nested(arrays: Arrays) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the groups of `_flat`."""
    groups: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        group, _, own = name.rpartition(".")
        groups.setdefault(group, {})[own] = array
    return groups


# ---------------------------------------------------------------------- records


def shapes_of(record: type) -> dict[str, str]:
    """Return shape in size letters of every field of a record that tells it."""
    hints = typing.get_type_hints(record, include_extras=True)
    notes = {field.name: getattr(hints[field.name], "__metadata__", ()) for field in dataclasses.fields(record)}
    return {name: note[0] for name, note in notes.items() if note}


def placeholders(record: type, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return arrays that take no memory, and numbers, for the fields of a record that tell their shapes.

    >>> @dataclasses.dataclass
    ... class At:
    ...     W: Annotated[Array, "d q"]
    ...     rho: Annotated[float, ""]
    >>> given = placeholders(At, {"d": 10, "q": 3})
    >>> given["W"].shape, given["rho"]
    ((10, 3), 1.0)
    """
    return {
        name: placeholder(*(int(word) if word.isdigit() else sizes[word] for word in shape.split())) if shape else 1.0
        for name, shape in shapes_of(record).items()
    }


def placeholder(*shape: int) -> Array:
    """Return an array of that shape that takes no memory: for the plan of statistics whose parameters do not exist yet.

    Where such a statistic is fed a block all the same, `timing` gives it a copy with numbers.
    """
    array: Array = np.broadcast_to(0.0, shape)
    return array
