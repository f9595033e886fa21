"""The experiment: rankings learnt on training rows, classifiers on the chosen features, metrics on test rows.

A ranking is learnt inside each training part, from those rows alone; test rows are seen by no selector unless
the protocol lets semi-supervised methods see them without labels. The best k of a ranking are scored for every k of the
grid from one pass over its largest k columns.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.blocks.sparse import count_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine.readings import ReadingRecord, count_readings, read_views, returned_bytes
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError, number_of, parameter, require_extra
from mlfs_dask.evaluation.candidates import Candidate, read_candidates
from mlfs_dask.evaluation.grids import Grid, GridPoint, read_grid
from mlfs_dask.evaluation.inputs import SplitInputs, split_inputs
from mlfs_dask.evaluation.job import PartialResults
from mlfs_dask.evaluation.metrics import get_metric
from mlfs_dask.evaluation.protocols import make_settings, require_suitable
from mlfs_dask.evaluation.results import (
    ALL,
    FIT_COLUMNS,
    RANDOM,
    RANKING_COLUMNS,
    RESULT_COLUMNS,
    Evaluation,
    splits_in_words,
)
from mlfs_dask.evaluation.scoring import Scorer, plan_scoring, search_minutes
from mlfs_dask.evaluation.splits import Split, make_splits, repeat_seed
from mlfs_dask.evaluation.table import open_table
from mlfs_dask.files.json_text import as_json
from mlfs_dask.files.result_folders import EVALUATION
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.rows.covariates import find_clusters
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.fit import OpenedRows, fit, open_rows, resolve_names, versions
from mlfs_dask.selection.question import Question, ask
from mlfs_dask.selection.runs import Run
from mlfs_dask.selection.sharing import first_statistics
from mlfs_dask.selectors import get_method
from mlfs_dask.selectors.costs import Names
from mlfs_dask.selectors.scores import no_part_in_scores
from mlfs_dask.storage.subset_spec import origin_of

if TYPE_CHECKING:
    import pandas as pd

#: Settings of what methods see of the labels.
SIMULATION = ("missing_labels", "labelled_rows", "hidden_as", "unlabelled_test")

#: The grid where neither the caller nor a finished run names a number of features.
DEFAULT_GRID = "10%:50%:10%"


def evaluate(
    data: Any,
    candidates: Sequence[str | Candidate] | str | Candidate,
    *,
    labels: Any = None,
    test: Any = None,
    name: str | None = None,
    protocol: str | None = None,
    clusters: Any = None,
    fold_of: Any = None,
    partial_results: PartialResults | None = None,
    **options: Any,
) -> Evaluation:
    """Evaluate rankings of features by classifiers on held-out rows.

    Parameters
    ----------
    data : Dataset, path or URL of a store, or array-like, shape (n, d)
        NumPy, SciPy sparse, pandas, or a Dask array that fits in memory.
    candidates : str or sequence of str
        Methods (``"elc"``, ``"elc:lambda_=0.1,variant=published"``), learnt on each training part; ``"random"`` and
        ``"all"`` features; folders of finished runs, whose rankings are evaluated; folders of evaluations, whose
        rankings are evaluated again, with other classifiers or metrics, fewer features, or beside further candidates.
        Settings of the (first) evaluation are then the defaults of the options.
    labels : array-like, shape (n, q), optional
        Labels 1, 0, and −1 for unknown, if `data` is an array.
    test : like `data`, or (X, Y), optional
        Test rows; all rows of `data` are then training rows.
    name : str, optional
        Name of the data set in the tables (default: the store's name without its suffix, or ``"data"``).
    protocol : str, optional
        Settings of a published experiment (`mlfs_dask.evaluation.protocols`); options override them.
    clusters : array, shape (n,), or str, optional
        Clusters of the rows, or the name of a column of the rows: folds keep clusters together.
    fold_of : int array, shape (n,), optional
        The split: the fold in which each row is a test row, −1 for never.
    partial_results : PartialResults, optional
        Store of finished rankings and values, which are not computed again.
    **options
        Fields of `mlfs_dask.evaluation.protocols.Settings`.

    Returns
    -------
    Evaluation

    Raises
    ------
    UsageError
        An option is invalid.
    DataError
        No row has known labels, feature values are missing, a run or an evaluation is of another store, or an
        evaluation has other training rows or rankings of too few features.
    DoesNotFitError
        The projected memory does not fit; no data has been read.

    Notes
    -----
    This process holds the labels, the selected columns of all rows (once as stored, and as float64 for the rows of
    one split) and the scores of the test rows. Without a cluster a store that fits in memory is held as a whole;
    otherwise all training parts share one pass for the ranges of their rows, all rankings one for the first statistics
    of their methods, and one for the columns; fewer of them where memory is short. Later passes of methods are their
    own. One ranking serves all k, except for methods whose selection depends on k (ELC, auto).

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> Y = random.integers(0, 2, (60, 2))
    >>> X = np.hstack([random.normal(size=(60, 4)), Y + random.normal(0, 0.1, (60, 2))])
    >>> found = evaluate(X, ["elc", "random"], labels=Y, folds=3, k_grid="2", metrics=("subset_accuracy",))
    >>> found.means()[["run", "k", "count"]].values.tolist()
    [['elc', 2, 3], ['random', 2, 3]]
    >>> bool(found.means()["mean"][0] > 0.9 > found.means()["mean"][1])
    True
    """
    about: dict[str, Any] = {"labels": labels, "test": test, "name": name, "clusters": clusters, "fold_of": fold_of}
    return Experiment(data, candidates, protocol=protocol, **about, **options).run(partial_results)


@dataclass(eq=False)
class _Task:
    """A candidate in a split: a ranking to learn and to score."""

    split: Split
    candidate: Candidate
    #: Of all, from 1.
    number: int = 0
    #: What is known of it, as `PartialResults` keep it.
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.candidate.run} {self.split.repeat} {self.split.fold}"


def _check_given_split(source: str, options: Mapping[str, Any]) -> None:
    """Refuse options that would have no effect on a split that is given by `source`."""
    for name in ("split", "folds", "repeats", "test_size"):
        value = options.get(name)
        if value is not None and value != "given":
            raise UsageError(
                f"{parameter(source)} gives the split, so {parameter(name, value)} would have no effect; "
                "leave one of them out."
            )


class Experiment:
    """An evaluation, checked and planned but not begun; parameters and errors as of `evaluate`.

    Attributes
    ----------
    warnings : list of str
        What had to be said before it began.
    """

    def __init__(
        self,
        data: Any,
        candidates: Sequence[str | Candidate] | str | Candidate,
        *,
        labels: Any = None,
        test: Any = None,
        name: str | None = None,
        protocol: str | None = None,
        clusters: Any = None,
        fold_of: Any = None,
        **options: Any,
    ) -> None:
        require_extra("pandas", "an evaluation")
        if fold_of is not None or test is not None:
            _check_given_split("test" if fold_of is None else "fold_of", options)
            options["split"] = "given"
        self._candidates = read_candidates(
            [candidates] if isinstance(candidates, str | Candidate) else list(candidates)
        )
        earlier = next((c.earlier.record["settings"] for c in self._candidates if c.earlier is not None), None)
        self._table = table = open_table(data, labels, name=name, test=test)
        self._settings = settings = make_settings(protocol, options, earlier, numeric=table.numeric)
        require_suitable(settings, numeric=table.numeric)
        if settings.missing != "error":
            self._candidates = [
                replace(each, params={"missing": settings.missing, **each.params}) if each.is_learnt else each
                for each in self._candidates
            ]
        self._protocol = protocol
        self._partial_results: PartialResults | None = None
        self._started = time.perf_counter()
        self.warnings: list[str] = []
        self._given: set[str] = set()
        self._parts: dict[tuple[int, int], SplitInputs] = {}
        self._records: list[ReadingRecord] = []  # of passes that are no fit's yet
        self._shared_bytes = 0
        self._resources: Resources = current_resources()
        self._scorer = Scorer(settings, centred=not table.source.profile.sparse)
        self._grid = self._read_grid()
        fold_of = table.fold_of if fold_of is None else np.asarray(fold_of)
        if isinstance(clusters, str):
            clusters = table.source.read_column(find_clusters(table.source, clusters))
        for what, array in (("clusters", clusters), ("fold_of", fold_of)):
            if array is not None and len(array) != table.n:
                raise UsageError(f"{what} has {len(array)} entries for {table.n} rows.")
        self._splits = list(
            make_splits(
                settings.split,
                table.Y,
                folds=settings.folds,
                repeats=settings.repeats,
                test_size=settings.test_size,
                seed=settings.seed,
                clusters=None if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1],
                given=fold_of if settings.split == "given" else None,
            )
        )
        self._check()

    # ------------------------------------------------------------------ before anything runs

    def _read_grid(self) -> Grid:
        settings, d = self._settings, self._table.d
        text = settings.k_grid
        if text is None:
            ks = sorted({candidate.finished.k for candidate in self._candidates if candidate.finished is not None})
            text = ",".join(map(str, ks)) or DEFAULT_GRID
        grid = read_grid(text, d)
        if grid.too_large:
            self._warn(f"the grid's {', '.join(map(str, grid.too_large))} exceed the {d} features and are left out.")
        return grid

    def _check(self) -> None:
        table = self._table
        for candidate in self._candidates:
            if candidate.finished is not None:
                self._check_run(candidate, candidate.finished)
            if candidate.earlier is not None:
                self._check_earlier(candidate, candidate.earlier)
            if candidate.is_learnt and candidate.params.get("groups") is not None:
                raise UsageError(
                    f"{candidate.run}: an evaluation counts features, but {parameter('groups')} selects groups. "
                    f"Select with groups first, and give the run."
                )
            if candidate.is_learnt:
                for k in self._learnt_ks(candidate):
                    resolve_names(
                        ask(candidate.method, k, seed=0, **candidate.params), self._named(table.source)
                    ).require_features(table.d)
        tested = np.unique(np.concatenate([split.test for split in self._splits]))
        self._unknown_entries, entries = int(table.unknown_labels[tested].sum()), len(tested) * table.q
        self._judged_entries = entries - self._unknown_entries
        if self._unknown_entries:
            self._warn(
                f"{self._unknown_entries:,} of {entries:,} labels of test rows are unknown: metrics use the "
                f"{self._judged_entries:,} known ones."
            )
        if len(never := np.flatnonzero(count_labels(table.Y)[0] == table.n)):
            self._warn(no_part_in_scores(never, table.names["label"]))
        widest = table.d if any(s.method == ALL for s in self._candidates) else self._grid.largest
        longest = max((len(split.train) for split in self._splits), default=0)
        most = max((len(split.test) for split in self._splits), default=0)
        shortest = min((len(split.train) for split in self._splits), default=0)
        if {"mlknn", "knn"} & {*self._settings.classifiers} and self._settings.n_neighbors > shortest:
            raise UsageError(
                f"{parameter('n_neighbors')} is {self._settings.n_neighbors:,}, and the smallest training part has "
                f"{number_of(shortest, 'row')}; give fewer."
            )
        self._planned_bytes = runtime.driver_bytes()
        plan = self._scoring = plan_scoring(self._settings, table, widest, longest, most, self._resources)
        self._planned_bytes += plan.held_bytes
        if plan.folder is not None:
            self._warn(f"the selected columns do not fit in memory: they are kept in a file in {plan.folder}.")
        if not plan.exact_logistic:
            self._warn(
                "the training part of the logistic regressions does not fit in memory: they are fitted block by "
                "block with stochastic gradients, as with sgd."
            )
        if plan.knn_rows is not None:
            threads = runtime.own_resources(self._resources).threads_per_worker
            minutes = search_minutes(longest, most, widest, threads)
            self._warn(
                f"ML-kNN learns from {plan.knn_rows:,} of up to {longest:,} training rows, drawn at random: a search "
                f"of all would take some {minutes} min (give {parameter('max_train_rows', longest)} for it)."
            )

    def _check_run(self, candidate: Candidate, run: Run) -> None:
        table = self._table
        if table.digest is not None and run.origin != origin_of(table.digest, table.subset):
            raise DataError(
                "this run was made from another store than the one given",
                file=run.path,
                cure="give the store that the run was made from; to learn the ranking on each training part, "
                f"give the method ({candidate.method}) in place of the run",
            )
        names = table.names["feature"]
        same = len(run.ranking) == table.d and (
            names is None or np.array_equal(np.asarray(names)[run.ranking], run.feature_names)
        )
        if not same:
            chosen = (run.store.get("subset") or {}).get("features")
            cure = f"leave out {parameter('features')}"
            if chosen is not None:
                cure = f"choose the features that the run was made from ({parameter('features', chosen['expression'])})"
            raise DataError(
                f"this run ranks {len(run.ranking)} features, but the data has {table.d}",
                file=run.path,
                cure=cure if table.digest is not None else None,
            )
        if table.test is None and table.may_share_rows(run.store):
            which = "all rows, those it is scored on among them"
            if "rows" in (run.store.get("subset") or {}):
                which = "rows that it is scored on, or may have been"
            self._warn(
                f"{candidate.run} was learnt on {which}: its results are optimistic. Give the method "
                f"({candidate.method}) in place of the run to learn in each training part."
            )

    def _check_earlier(self, candidate: Candidate, earlier: Evaluation) -> None:
        """Refuse rankings that this evaluation would not learn: of other rows, or for fewer features."""
        record = earlier.record
        source = f"the rankings of {candidate.run} were learnt by an earlier evaluation"
        cure = f"give the method ({candidate.run}) in place of the folder, to learn them again"
        # Arrays have no digest by which to tell whether they are the same.
        paths = {key: value for key, value in record["store"].items() if key.endswith("path")}
        if self._table.digest is None or record["store"] != as_json({**self._store_record(), **paths}):
            raise DataError(f"{source}, not on this store or not on this part of it", cure=cure)
        mine, its = self._settings.to_dict(), record["settings"]
        other = [name for name in (*SIMULATION, "missing", "seed") if mine[name] != its[name]]
        if other or record["splits"].get("digest") != self._splits_digest():
            what = " and ".join(parameter(name, its[name]) for name in other) or splits_in_words(record["splits"])
            raise DataError(f"{source} on other training rows, with {what}", cure=cure)
        learnt = {int(k) for k in earlier.learnt(candidate.run, self._splits[0])["rankings"]}
        depends_on_k = get_method(candidate.method).choice_depends_on_k
        lacking = [
            point.k
            for point in self._grid.points
            if (point.k not in learnt if depends_on_k else point.k > max(learnt, default=0))
        ]
        if lacking:
            raise DataError(
                f"{source} for k = {', '.join(map(str, sorted(learnt)))}, and not for {', '.join(map(str, lacking))}",
                cure=f"give {parameter('k_grid')} that they have, or the method ({candidate.run}) in place of the "
                "folder",
            )

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self._given.add(text)
        warnings.warn(text, stacklevel=2)

    # ------------------------------------------------------------------ running

    def job(self) -> dict[str, Any]:
        """Return the inputs of the result, as plain data: data, candidates, settings and splits."""
        rankings = [
            *(s.finished.ranking.tolist() for s in self._candidates if s.finished is not None),
            *(s.earlier.learnt(s.run, split) for s in self._candidates if s.earlier for split in self._splits),
        ]
        return {
            "store": {key: value for key, value in self._store_record().items() if not key.endswith("path")},
            "candidates": [candidate.to_record() for candidate in self._candidates],
            "rankings": hashlib.blake2b(repr(rankings).encode(), digest_size=16).hexdigest(),
            "settings": self._settings.to_dict(),
            "splits": self._splits_digest(),
            "version": __version__,
            "format": EVALUATION.version,
        }

    def _splits_digest(self) -> str:
        splits = hashlib.blake2b(digest_size=16)
        for split in self._splits:
            splits.update(split.train.tobytes() + b"|" + split.test.tobytes())
        return splits.hexdigest()

    def plan(self) -> dict[str, Any]:
        """Return the plan of the evaluation, as plain data."""
        learnt = [candidate for candidate in self._candidates if candidate.is_learnt]
        return {
            "store": self._table.path,
            "runs": [candidate.to_record() for candidate in self._candidates],
            "splits": len(self._splits),
            "train_rows": max(len(split.train) for split in self._splits),
            "test_rows": max(len(split.test) for split in self._splits),
            "fits": sum(len(self._learnt_ks(each)) for each in learnt) * len(self._splits),
            "k": [point.k for point in self._grid.points],
            "judging_bytes": self._scoring.held_bytes,
            "mlknn_rows": self._scoring.knn_rows,
            "columns_in_file": self._scoring.folder is not None,
            "settings": self._settings.to_dict(),
            "warnings": self.warnings,
        }

    def run(self, partial_results: PartialResults | None = None) -> Evaluation:
        """Learn rankings and score them, but for those that `partial_results` has already."""
        self._started, self._partial_results = time.perf_counter(), partial_results
        if self._resources.client is None:
            is_held = self._table.hold_if_it_fits(self._resources, self._scoring.held_bytes)
            self._planned_bytes += 2 * self._table.held_bytes if is_held else 0
        tasks = [_Task(split, candidate) for split in self._splits for candidate in self._candidates]
        for number, task in enumerate(tasks, start=1):
            task.number = number
            task.facts = (partial_results.load(task.name) if partial_results else None) or {}
        waiting = [task for task in tasks if "values" not in task.facts]
        by_split = [list(group) for _, group in itertools.groupby(waiting, lambda task: id(task.split))]
        # Passes over rows in memory are no cost to share: a ranking is scored before the next one is learnt.
        for splits in [[tasks] for tasks in by_split] if self._table.held else [by_split]:
            self._run_splits(splits)
        return self._tables({(t.split.repeat, t.split.fold, t.candidate.run): t.facts for t in tasks})

    @property
    def _spare_bytes(self) -> int:
        """Bytes for what splits and candidates share; as many are left to fits."""
        return max(0, self._resources.driver_limit - runtime.driver_bytes() - self._scoring.held_bytes) // 2

    def _run_splits(self, by_split: Sequence[Sequence[_Task]]) -> None:
        """Learn and score the rankings of several splits together; of half of them at a time if memory is short."""
        try:
            if not self._table.held:
                self._read_first(by_split)
        except DoesNotFitError:
            if len(by_split) < 2:
                raise
            half = len(by_split) // 2
            for splits in (by_split[:half], by_split[half:]):
                self._run_splits(splits)
            return
        tasks = list(itertools.chain(*by_split))
        for together in [[task] for task in tasks] if self._table.held else [tasks]:
            for task in together:
                self._report(task)
                self._learn(task)
            self._score(together)
        self._parts.clear()

    def _read_first(self, by_split: Sequence[Sequence[_Task]]) -> None:
        """Read what the fits of some splits begin with, in one pass.

        Raises
        ------
        DoesNotFitError
            There is no room for several splits together.
        """
        spare, groups = self._spare_bytes, dict[tuple[int, bool], list[_Task]]()
        self._require_room(by_split, len(by_split) * self._table.part_bytes)
        for task in itertools.chain(*by_split):
            if self._missing_ks(task):
                groups.setdefault((id(task.split), self._labelled_only(task)), []).append(task)
        opened = self._open([group[0] for group in groups.values()])
        if not opened or self._table.numeric:  # statistics are of the form of targets that a fit makes
            return
        views: list[tuple[Any, list[Statistic]]] = []
        for rows, group in zip(opened, groups.values(), strict=True):
            questions = [self._question(task, k) for task in group for k in self._missing_ks(task)]
            most = spare if len(by_split) == 1 else math.inf
            views.append((rows.source, first_statistics(rows.source, questions, self._resources, most_bytes=most)))
        n_bytes = sum(returned_bytes(view, statistic) for view, of_view in views for statistic in of_view)
        self._require_room(by_split, n_bytes)
        results, records = read_views(views, self._resources, label="first statistics")
        self._records += records
        for rows, (_, statistics), found in zip(opened, views, results, strict=True):
            rows.results.update((statistic.result_key, each) for statistic, each in zip(statistics, found, strict=True))

    def _require_room(self, by_split: Sequence[Any], n_bytes: int) -> None:
        """Refuse several splits that take more than there is to spare."""
        if len(by_split) > 1 and n_bytes > self._spare_bytes:
            cure = "learn one split at a time"
            raise DoesNotFitError("several splits", projected=n_bytes, available=self._spare_bytes, cure=cure)
        self._shared_bytes = max(self._shared_bytes, n_bytes)

    def _open(self, tasks: Sequence[_Task]) -> list[OpenedRows]:
        """Return the rows that some tasks learn from; they are opened once a split."""
        at = [(self._part(task), self._labelled_only(task)) for task in tasks]
        new = [(part, labelled_only) for part, labelled_only in at if labelled_only not in part.opened]
        wanted = [part.learnt_from(labelled_only, self._settings.hidden_as) for part, labelled_only in new]
        if wanted:
            if self._table.held:  # one copy of the rows at a time
                new[0][0].opened.clear()
            sources, records = self._table.parts(wanted, self._resources)
            self._records += records
            for (part, labelled_only), source in zip(new, sources, strict=True):
                part.opened[labelled_only] = self._named(source)
        return [part.opened[labelled_only] for part, labelled_only in at]

    def _part(self, task: _Task) -> SplitInputs:
        split = task.split
        if (split.repeat, split.fold) not in self._parts:
            self._parts[split.repeat, split.fold] = split_inputs(self._settings, self._table, split)
        return self._parts[split.repeat, split.fold]

    def _labelled_only(self, task: _Task) -> bool:
        supervised = get_method(task.candidate.method).supervision == "supervised"
        return supervised and not self._part(task).labelled.all()

    def _question(self, task: _Task, k: int) -> Question:
        seed = repeat_seed(self._settings.seed, task.split.repeat)
        return ask(task.candidate.method, k, seed=seed, **task.candidate.params)

    def _report(self, task: _Task) -> None:
        at = {"number": task.number, "total": len(self._splits) * len(self._candidates)}
        split = task.split
        runtime.emit("ranking", **at, candidate=task.candidate.run, repeat=split.repeat, fold=split.fold)

    def _save(self, task: _Task) -> None:
        if self._partial_results:
            self._partial_results.save(task.name, task.facts)

    def _missing_ks(self, task: _Task) -> list[int]:
        """Return the numbers of features for which rankings are still to be learnt."""
        if not task.candidate.is_learnt:
            return []
        learnt = task.facts.get("rankings", {})
        return [k for k in self._learnt_ks(task.candidate) if str(k) not in learnt]

    def _learn(self, task: _Task) -> None:
        """Add the rankings of a task by the number of features that they are for, and what it took to learn each.

        The one for the largest k serves all others, but where the choice depends on k.
        """
        candidate, split, table = task.candidate, task.split, self._table
        largest = self._grid.largest
        if candidate.earlier is not None:
            task.facts = candidate.earlier.learnt(candidate.run, split)
            return
        facts = task.facts = {"rankings": {}, "fits": {}} | task.facts
        if candidate.finished is not None:
            facts["rankings"] = {str(largest): candidate.finished.ranking[:largest].tolist()}
        elif candidate.method == RANDOM:
            seed = repeat_seed(self._settings.seed, split.repeat)
            drawn = np.random.default_rng([seed, split.fold, 1]).permutation(table.d)
            facts["rankings"] = {str(largest): drawn[:largest].tolist()}
        for k in self._missing_ks(task):
            (rows,) = self._open([task])
            try:
                with self._each_warning_once():
                    fitted = fit(self._question(task, k), rows)
            except DataError as error:  # rows have no names of features
                raise error.with_column_name(table.names["feature"]) from error
            report, records = fitted.report, self._records
            facts["rankings"][str(k)] = fitted.ranking[:k].tolist()
            facts["fits"][str(k)] = {
                "seconds": report.wall_seconds + sum(record.seconds for record in records),
                "passes": report.passes + count_readings(records),
                "bytes_read": report.bytes_read + sum(record.bytes_read for record in records),
                "iterations": report.iterations,
                "converged": report.converged,
                "peak_driver_bytes": report.peak_driver_bytes,
                "peak_worker_bytes": report.peak_worker_bytes,
            }
            self._records = []  # the first fit has the costs of what it shares with others
            self._save(task)

    def _score(self, tasks: Sequence[_Task]) -> None:
        """Score the rankings of some tasks: columns are read for all of them, or for half of them and so on."""
        table = self._table
        if len(tasks) > 1 and self._scoring.folder is None:
            chosen = [columns for task in tasks for _, columns in self._chosen(task)]
            columns = np.unique(np.concatenate([*chosen, np.empty(0, np.int64)]))
            n_bytes = table.source.profile.float_dtype.itemsize * table.n * len(columns)
            if n_bytes > self._spare_bytes:
                self._score(tasks[: len(tasks) // 2])
                self._score(tasks[len(tasks) // 2 :])
                return
            for part in self._parts.values():
                part.opened.clear()  # no fit needs them again
            table.read_ahead(columns, self._resources, self._settings.missing)
            self._shared_bytes = max(self._shared_bytes, n_bytes)
        for task in tasks:
            self._report(task)
            n_warnings = len(self._scorer.warnings)
            with runtime.stage("scoring predictions"):
                task.facts["values"] = self._values(task)
            task.facts["warnings"] = self._scorer.warnings[n_warnings:]
            self._save(task)

    @contextmanager
    def _each_warning_once(self) -> Iterator[None]:
        """Give warnings of the block that no earlier fold has given."""
        with warnings.catch_warnings(record=True) as caught:
            yield
        for each in caught:
            if str(each.message) not in self._given:
                self._given.add(str(each.message))
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)

    def _named(self, source: RowSource) -> OpenedRows:
        """Return rows with the names of their features and labels, for options of methods and for messages."""
        return replace(open_rows(source), names=Names(self._table.names["feature"], self._table.names["label"]))

    def _learnt_ks(self, candidate: Candidate) -> list[int]:
        """Return the numbers of features for which rankings are learnt."""
        if not get_method(candidate.method).choice_depends_on_k:
            return [self._grid.largest]
        return [point.k for point in self._grid.points]

    def _chosen(self, task: _Task) -> list[tuple[list[int], NDArray[np.int64]]]:
        """Return numbers of features to score, with the columns of the largest of them."""
        learnt = {int(k): np.array(ranking, np.int64) for k, ranking in task.facts["rankings"].items()}
        if task.candidate.method == ALL:
            learnt = {self._table.d: np.arange(self._table.d)}
        points = (GridPoint(self._table.d, 1.0),) if task.candidate.method == ALL else self._grid.points
        chosen, low = [], 0
        for high, columns in sorted(learnt.items()):
            ks = [point.k for point in points if low < point.k <= high]
            low = high
            if ks:  # else an earlier evaluation had learnt for it
                chosen.append((ks, columns[: ks[-1]]))
        return chosen

    def _values(self, task: _Task) -> list[list[Any]]:
        """[classifier, k, metric, value], value None where undefined."""
        seed = repeat_seed(self._settings.seed, task.split.repeat)
        values: list[list[Any]] = []
        for ks, columns in self._chosen(task):
            X = self._table.columns(columns, self._resources, self._scoring.folder, self._settings.missing)
            part = self._part(task)
            values += self._scorer.values(X, part, ks, self._table.Y, seed, self._scoring, self._resources)
        return values

    # ------------------------------------------------------------------ afterwards

    def _tables(self, outcomes: Mapping[tuple[int, int, str], Mapping[str, Any]]) -> Evaluation:
        import pandas as pd

        dataset = self._table.name
        results: list[tuple[Any, ...]] = []
        rankings: list[tuple[Any, ...]] = []
        fits: list[tuple[Any, ...]] = []
        for candidate in self._candidates:
            for split in self._splits:
                repeat, fold = split.repeat, split.fold
                facts = outcomes[repeat, fold, candidate.run]
                results += [
                    (dataset, candidate.run, candidate.method, classifier, k, repeat, fold, metric, value)
                    for classifier, k, metric, value in facts["values"]
                ]
                if candidate.finished is not None:
                    # One ranking, however often it is scored.
                    if split is not self._splits[0]:
                        continue
                    repeat, fold = 0, 0
                    fits.append((dataset, candidate.run, 0, 0, *_fit_of_run(candidate.finished)))
                for k, costs in facts["fits"].items():
                    values = (costs[name] for name in list(FIT_COLUMNS)[5:])
                    fits.append((dataset, candidate.run, repeat, fold, int(k), *values))
                rankings += [
                    (dataset, candidate.run, repeat, fold, int(k), rank, index)
                    for k, ranking in facts["rankings"].items()
                    for rank, index in enumerate(ranking, start=1)
                ]

        def frame(rows: list[tuple[Any, ...]], columns: Mapping[str, str]) -> pd.DataFrame:
            types = {name: object if dtype == "str" else dtype for name, dtype in columns.items()}
            return pd.DataFrame(rows, columns=list(columns)).astype(types)

        return Evaluation(
            frame(results, RESULT_COLUMNS),
            frame(rankings, RANKING_COLUMNS),
            frame(fits, FIT_COLUMNS),
            self._record(list(outcomes.values())),
        )

    def _store_record(self) -> dict[str, Any]:
        table = self._table
        return {
            "path": table.path,
            "digest": table.digest,
            "n": table.n,
            "d": table.d,
            "q": table.q,
            **({"subset": dict(table.subset)} if table.subset else {}),
            **({"test_path": table.test.path, "test_digest": table.test.digest} if table.test else {}),
        }

    def _record(self, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:

        settings, table = self._settings, self._table
        every = settings.to_dict()
        return {
            **EVALUATION.head,
            "store": self._store_record(),
            "dataset": table.name,
            "runs": [candidate.to_record() for candidate in self._candidates],
            "protocol": self._protocol,
            "classifiers": list(settings.classifiers),
            "classifier_params": {
                name: every[name]
                for name in ("n_neighbors", "smoothing", "C", "scale", "classifier_labels", "max_train_rows")
            },
            "judging": {
                "judged_entries": self._judged_entries,
                "unknown_entries": self._unknown_entries,
                "mlknn_rows": self._scoring.knn_rows,
                "columns_in_file": self._scoring.folder is not None,
                "logistic_solver": "exact" if self._scoring.exact_logistic else "sgd",
                "planned_driver_bytes": self._planned_bytes + self._shared_bytes,
                "peak_driver_bytes": runtime.peak_rss(),
            },
            "splits": {
                "kind": settings.split,
                "folds": len({split.fold for split in self._splits}),
                "repeats": len({split.repeat for split in self._splits}),
                "test_size": settings.test_size if settings.split == "holdout" else None,
                "seed": settings.seed,
                "train_rows": [len(split.train) for split in self._splits],
                "test_rows": [len(split.test) for split in self._splits],
                "digest": self._splits_digest(),
            },
            "simulation": {name: every[name] for name in SIMULATION} if settings.simulates else None,
            "k_grid": [point._asdict() for point in self._grid.points],
            "metrics": [
                {"name": metric.name, "title": metric.title, "better": metric.better}
                for metric in map(get_metric, settings.metrics)
            ],
            "settings": every,
            "warnings": list(dict.fromkeys([*self.warnings, *(w for facts in outcomes for w in facts["warnings"])])),
            "versions": versions(),
            "wall_seconds": time.perf_counter() - self._started,
        }


def _fit_of_run(run: Run) -> list[Any]:
    names = ["wall_seconds", *list(FIT_COLUMNS)[6:]]
    return [run.k, *(run.record.get(name) for name in names)]
