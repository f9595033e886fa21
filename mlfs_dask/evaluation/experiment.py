"""The experiment: rankings learnt on training rows, classifiers on the chosen features, metrics on the other rows.

A ranking is learnt inside each training part, from those rows alone; the rows that are judged are seen by no selector
unless the protocol lets semi-supervised methods see them without labels. The best k of a ranking are judged for every k
of the grid from one reading of its largest k columns.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.grids import Grid, GridPoint, read_grid
from mlfs_dask.evaluation.judge import Judge, own_resources, plan_judging, search_minutes
from mlfs_dask.evaluation.metrics import get_metric
from mlfs_dask.evaluation.protocols import make_settings
from mlfs_dask.evaluation.results import (
    FIT_COLUMNS,
    FORMAT_VERSION,
    RANKING_COLUMNS,
    RESULT_COLUMNS,
    Evaluation,
)
from mlfs_dask.evaluation.simulation import as_unknown, simulate
from mlfs_dask.evaluation.splits import Split, make_splits, repeat_seed
from mlfs_dask.evaluation.subjects import ALL, RANDOM, Subject, read_subjects
from mlfs_dask.evaluation.table import open_table
from mlfs_dask.results import Run
from mlfs_dask.runtime import Resources

#: The grid where neither the caller nor a finished run names a number of features.
DEFAULT_GRID = "10%:50%:10%"


class Keeper(Protocol):
    """Keeps what is finished of an evaluation, so that an interrupted one can go on."""

    def load(self, name: str) -> dict[str, Any] | None:
        """What was kept under a name."""

    def save(self, name: str, facts: Mapping[str, Any]) -> None:
        """Keep plain data under a name."""


@dataclass(frozen=True)
class Part:
    """What a selector and a classifier have of one split.

    Attributes
    ----------
    split : Split
    rows : int64 array
        Rows that a method which takes unknown labels learns from, rising; `labelled` of them are labelled.
    labelled : bool array
    Y : csr_array
        Labels of `rows`, empty where they are not labelled.
    classifier_rows : int64 array
    classifier_Y : csr_array
        What classifiers learn from.
    test : int64 array
        Rows that are judged: those of the split that have no unknown label.
    """

    split: Split
    rows: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    Y: sp.csr_array
    classifier_rows: NDArray[np.int64]
    classifier_Y: sp.csr_array
    test: NDArray[np.int64]


def evaluate(
    data: Any,
    subjects: Sequence[str | Subject] | str | Subject,
    *,
    labels: Any = None,
    test: Any = None,
    name: str | None = None,
    protocol: str | None = None,
    groups: Any = None,
    fold_of: Any = None,
    keep: Keeper | None = None,
    **options: Any,
) -> Evaluation:
    """Judge features by what classifiers make of them.

    Parameters
    ----------
    data : Dataset, path or URL of a store, or array-like, shape (n, d)
        NumPy, SciPy sparse, pandas, or a Dask array that fits in memory.
    subjects : str or sequence of str
        Methods (``"elc"``, ``"elc:lambda_=0.1,variant=published"``), learnt inside each training part; ``"random"`` and
        ``"all"`` features; folders of finished runs, which are judged as they are.
    labels : array-like, shape (n, q), optional
        1, 0, and −1 for unknown; with arrays.
    test : like `data`, or (X, Y), optional
        Rows that are judged; `data` is then learnt from, whole, and split no further.
    name : str, optional
        Of the data set in the tables (default: the store's name without its suffix, or ``"data"``).
    protocol : str, optional
        Settings of a published experiment (`mlfs_dask.evaluation.protocols`), over which options count.
    groups : array, shape (n,), optional
        Rows of one group are not parted.
    fold_of : int array, shape (n,), optional
        The split: the fold in which each row is judged, −1 for never.
    keep : Keeper, optional
        Keeps finished parts.
    **options
        Fields of `mlfs_dask.evaluation.protocols.Settings`; one that does not exist is refused.

    Returns
    -------
    Evaluation

    Raises
    ------
    UsageError
        An option that cannot be.
    DataError
        Rows without known labels only, missing feature values, or a run of another store.
    DoesNotFitError
        What must be held is projected not to fit; nothing was learnt.

    Notes
    -----
    Held in this process: the labels; the chosen columns of all rows, once as they are and as float64 for the rows of
    one split; scores of the rows that are judged. A store that fits in memory is held whole, unless there is a cluster;
    else each training part costs one reading for the ranges of its rows, and each ranking its method's passes and one
    reading for the columns. One ranking serves all k, but of a method whose choice depends on k (ELC).

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
    given = Given(data, labels=labels, test=test, name=name, groups=groups, fold_of=fold_of)
    return Experiment(given, subjects, protocol, **options).run(keep)


@dataclass(frozen=True)
class Given:
    """Data to judge on, as `evaluate` takes it."""

    data: Any
    labels: Any = None
    test: Any = None
    name: str | None = None
    groups: Any = None
    fold_of: Any = None


class Experiment:
    """An evaluation, checked and planned but not begun; parameters and errors as of `evaluate`.

    Attributes
    ----------
    warnings : list of str
        What had to be said before it began.
    """

    def __init__(
        self,
        given: Given,
        subjects: Sequence[str | Subject] | str | Subject,
        protocol: str | None = None,
        **options: Any,
    ) -> None:
        if given.fold_of is not None or given.test is not None:
            options["split"] = options.get("split") or "given"
        self._settings = settings = make_settings(protocol, options)
        self._subjects = read_subjects([subjects] if isinstance(subjects, str | Subject) else list(subjects))
        self._table = table = open_table(given.data, given.labels, name=given.name, test=given.test)
        self._protocol = protocol
        self._keep: Keeper | None = None
        self._started = time.perf_counter()
        self.warnings: list[str] = []
        self._resources: Resources = runtime.current_resources()
        self._judge = Judge(settings)
        self._grid = self._read_grid()
        groups, fold_of = given.groups, table.fold_of if given.fold_of is None else np.asarray(given.fold_of)
        for what, array in (("groups", groups), ("fold_of", fold_of)):
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
                groups=None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1],
                given=fold_of if settings.split == "given" else None,
            )
        )
        self._check()

    # ------------------------------------------------------------------ before anything runs

    def _read_grid(self) -> Grid:
        settings, d = self._settings, self._table.d
        text = settings.k_grid
        if text is None:
            kept = sorted({subject.finished.k for subject in self._subjects if subject.finished is not None})
            text = ",".join(map(str, kept)) or DEFAULT_GRID
        grid = read_grid(text, d)
        if grid.too_large:
            self._warn(f"the grid's {', '.join(map(str, grid.too_large))} are above the {d} features; left out.")
        return grid

    def _check(self) -> None:
        table = self._table
        for subject in self._subjects:
            if subject.finished is None:
                continue
            origin = (subject.finished.record.get("store") or {}).get("digest")
            if table.digest is not None and origin != table.digest:
                raise DataError(
                    "this run was made from another store than the one that is judged",
                    file=subject.finished.path,
                    cure="give the store that the run was made from; for a method learnt inside each training part, "
                    f"give its name ({subject.method}) in place of the run",
                )
            if len(subject.finished.ranking) != table.d:
                raise DataError(
                    f"this run ranks {len(subject.finished.ranking)} features, and the data has {table.d}",
                    file=subject.finished.path,
                )
            if table.test_rows is None:
                self._warn(
                    f"{subject.run} was learnt on all rows, those it is judged on among them: its results are too "
                    f"good. Give the method ({subject.method}) in place of the run to learn inside each training part."
                )
        unknown = table.rows_with_unknown
        if unknown.any():
            self._warn(f"{int(unknown.sum()):,} of {table.n:,} rows have an unknown label: learnt from, not judged.")
        widest = table.d if any(s.method == ALL for s in self._subjects) else self._grid.largest
        longest = max((len(split.train) for split in self._splits), default=0)
        most = max((len(split.test) for split in self._splits), default=0)
        self._planned_bytes = runtime.driver_bytes()
        plan = self._judging = plan_judging(self._settings, table, widest, longest, most, self._resources)
        self._planned_bytes += plan.held_bytes
        if plan.folder is not None:
            self._warn(f"the chosen columns do not fit in memory: they are kept in a file in {plan.folder}.")
        if not plan.exact_logistic:
            self._warn(
                "the training part of the logistic regressions does not fit in memory: they are fitted by stochastic "
                "gradients, block by block, as sgd is."
            )
        if plan.knn_rows is not None:
            threads = own_resources(self._resources).threads_per_worker
            minutes = search_minutes(longest, most, widest, threads)
            self._warn(
                f"ML-kNN learns from {plan.knn_rows:,} of up to {longest:,} training rows, drawn at random: among all "
                f"of them every search would take some {minutes} min (--max-train-rows {longest}: it does)."
            )

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        warnings.warn(text, stacklevel=2)

    # ------------------------------------------------------------------ running

    def job(self) -> dict[str, Any]:
        """What the result depends on, as plain data: data, subjects, settings and splits."""
        splits = hashlib.blake2b(digest_size=16)
        for split in self._splits:
            splits.update(split.train.tobytes() + b"|" + split.test.tobytes())
        rankings = [None if s.finished is None else s.finished.ranking.tolist() for s in self._subjects]
        return {
            "digest": self._table.digest,
            "subjects": [subject.to_record() for subject in self._subjects],
            "rankings": hashlib.blake2b(repr(rankings).encode(), digest_size=16).hexdigest(),
            "settings": self._settings.to_dict(),
            "splits": splits.hexdigest(),
            "version": __version__,
            "format": FORMAT_VERSION,
        }

    def plan(self) -> dict[str, Any]:
        """What would be done, as plain data."""
        learnt = [s for s in self._subjects if s.finished is None and s.method not in (ALL, RANDOM)]
        return {
            "store": self._table.path,
            "runs": [subject.to_record() for subject in self._subjects],
            "splits": len(self._splits),
            "train_rows": max(len(split.train) for split in self._splits),
            "test_rows": max(len(split.test) for split in self._splits),
            "fits": sum(len(self._learnt_ks(s.make_selector(1, 0))) for s in learnt) * len(self._splits),
            "k": [point.k for point in self._grid.points],
            "judging_bytes": self._judging.held_bytes,
            "mlknn_rows": self._judging.knn_rows,
            "columns_in_file": self._judging.folder is not None,
            "settings": self._settings.to_dict(),
            "warnings": self.warnings,
        }

    def run(self, keep: Keeper | None = None) -> Evaluation:
        """Learn and judge; what `keep` holds already is not done again."""
        self._started, self._keep = time.perf_counter(), keep
        if self._resources.client is None:
            held = self._table.hold_if_it_fits(self._resources, self._judging.held_bytes)
            self._planned_bytes += 2 * self._table.held_bytes if held else 0
        total = len(self._splits) * len(self._subjects)
        done = 0
        outcomes: dict[tuple[int, int, str], dict[str, Any]] = {}
        for split in self._splits:
            part: Part | None = None
            for subject in self._subjects:
                name = f"{subject.run} {split.repeat} {split.fold}"
                facts = (self._keep.load(name) if self._keep else None) or {}
                if "values" not in facts:
                    if part is None:
                        part = self._part(split)
                    began = time.perf_counter()
                    facts = self._learn(subject, part, facts, name)
                    learnt = time.perf_counter()
                    told = len(self._judge.warnings)
                    facts["values"] = self._values(subject, part, facts)
                    facts["warnings"] = self._judge.warnings[told:]
                    if self._keep:
                        self._keep.save(name, facts)
                    runtime.emit(
                        "step",
                        part=f"{done + 1} of {total}",
                        subject=subject.run,
                        repeat=split.repeat,
                        fold=split.fold,
                        learning_s=learnt - began,
                        judging_s=time.perf_counter() - learnt,
                    )
                done += 1
                outcomes[split.repeat, split.fold, subject.run] = facts
        return self._tables(outcomes)

    def _part(self, split: Split) -> Part:
        settings, table = self._settings, self._table
        random = np.random.default_rng([repeat_seed(settings.seed, split.repeat), split.fold])
        simulated = simulate(
            table.Y[split.train],
            missing_labels=settings.missing_labels,
            labelled_rows=settings.labelled_rows,
            random=random,
        )
        rows, labelled, Y = split.train, simulated.labelled, simulated.Y
        classifier_rows, classifier_Y = rows[labelled], Y[labelled]
        if settings.classifier_labels == "full":
            classifier_rows, classifier_Y = rows, table.Y[rows]
        most = settings.max_train_rows
        if most is not None and len(classifier_rows) > most:
            drawn = np.sort(random.choice(len(classifier_rows), most, replace=False))
            classifier_rows, classifier_Y = classifier_rows[drawn], classifier_Y[drawn]
        test = split.test[~table.rows_with_unknown[split.test]]
        if not len(test):
            raise DataError(
                f"every row that is judged in fold {split.fold} has an unknown label (-1)",
                cure="judge on rows whose labels are known (--split-file), or complete their labels",
            )
        if len(classifier_rows) < 2:
            raise DataError(
                f"{len(classifier_rows)} labelled row is left to learn from in fold {split.fold}",
                cure="hide fewer rows, or make fewer folds",
            )
        if settings.unlabelled_test:
            # The rows that are judged, in their places between the others, without labels.
            both = np.concatenate([rows, split.test])
            order = np.argsort(both)
            Y = sp.csr_array(sp.vstack([Y, sp.csr_array((len(split.test), table.q), dtype=np.int8)], format="csr"))
            rows, Y = both[order], sp.csr_array(Y[order])
            labelled = np.concatenate([labelled, np.zeros(len(split.test), bool)])[order]
        return Part(split, rows, labelled, Y, classifier_rows, classifier_Y, test)

    def _learn(self, subject: Subject, part: Part, facts: dict[str, Any], name: str) -> dict[str, Any]:
        """Rankings of a subject by the number of features that they are for, and what it took to learn each.

        The one for the largest k serves all others, but where the choice depends on k.
        """
        settings, table, split = self._settings, self._table, part.split
        largest = self._grid.largest
        if subject.method == ALL:
            return {"rankings": {}, "fits": {}}
        if subject.finished is not None:
            return {"rankings": {str(largest): subject.finished.ranking[:largest].tolist()}, "fits": {}}
        seed = repeat_seed(settings.seed, split.repeat)
        if subject.method == RANDOM:
            drawn = np.random.default_rng([seed, split.fold, 1]).permutation(table.d)
            return {"rankings": {str(largest): drawn[:largest].tolist()}, "fits": {}}
        facts = facts or {"rankings": {}, "fits": {}}
        selector = subject.make_selector(largest, seed)
        missing = [k for k in self._learnt_ks(selector) if str(k) not in facts["rankings"]]
        if not missing:
            return facts
        rows, Y = part.rows, part.Y
        if not part.labelled.all():
            if not selector.accepts_unknown_labels:
                rows, Y = rows[part.labelled], Y[part.labelled]
            elif settings.hidden_as == "unknown":
                Y = as_unknown(Y, part.labelled)
        source, records = table.part(rows, Y, self._resources)
        for k in missing:
            selector = subject.make_selector(k, seed).fit(source)
            report = selector.report_
            facts["rankings"][str(k)] = selector.ranking_[:k].tolist()
            facts["fits"][str(k)] = {
                "seconds": report.wall_seconds + sum(record.seconds for record in records),
                "passes": report.passes + len(records),
                "bytes_read": report.bytes_read + sum(record.bytes_read for record in records),
                "iterations": report.iterations,
                "converged": report.converged,
                "peak_driver_bytes": report.peak_driver_bytes,
                "peak_worker_bytes": report.peak_worker_bytes,
            }
            records = []  # the ranges of the rows are known
            if self._keep:
                self._keep.save(name, facts)
        return facts

    def _learnt_ks(self, selector: Any) -> list[int]:
        """Numbers of features for which rankings are learnt."""
        if not selector.choice_depends_on_k:
            return [self._grid.largest]
        return [point.k for point in self._grid.points]

    def _points(self, subject: Subject) -> tuple[GridPoint, ...]:
        return (GridPoint(self._table.d, 1.0),) if subject.method == ALL else self._grid.points

    def _values(self, subject: Subject, part: Part, facts: Mapping[str, Any]) -> list[list[Any]]:
        """[classifier, k, metric, value], value None where undefined."""
        seed = repeat_seed(self._settings.seed, part.split.repeat)
        learnt = {int(k): np.array(chosen, np.int64) for k, chosen in facts["rankings"].items()}
        if subject.method == ALL:
            learnt = {self._table.d: np.arange(self._table.d)}
        values: list[list[Any]] = []
        low = 0
        for high, columns in sorted(learnt.items()):
            ks = [point.k for point in self._points(subject) if low < point.k <= high]
            X = self._table.columns(columns, self._resources, self._judging.folder)
            values += self._judge.values(X, part, ks, self._table.Y, seed, self._judging, self._resources)
            low = high
        return values

    # ------------------------------------------------------------------ afterwards

    def _tables(self, outcomes: Mapping[tuple[int, int, str], Mapping[str, Any]]) -> Evaluation:
        import pandas as pd

        dataset = self._table.name
        results: list[tuple[Any, ...]] = []
        rankings: list[tuple[Any, ...]] = []
        fits: list[tuple[Any, ...]] = []
        methods = {subject.run: subject for subject in self._subjects}
        seen: set[str] = set()
        for subject in self._subjects:
            for split in self._splits:
                repeat, fold = split.repeat, split.fold
                facts = outcomes[repeat, fold, subject.run]
                results += [
                    (dataset, subject.run, methods[subject.run].method, classifier, k, repeat, fold, metric, value)
                    for classifier, k, metric, value in facts["values"]
                ]
                if subject.finished is not None:
                    # One ranking, however often it is judged.
                    if subject.run in seen:
                        continue
                    repeat, fold = 0, 0
                    fits.append((dataset, subject.run, 0, 0, *_fit_of_run(subject.finished)))
                for k, fit in facts["fits"].items():
                    found = (fit[name] for name in list(FIT_COLUMNS)[5:])
                    fits.append((dataset, subject.run, repeat, fold, int(k), *found))
                seen.add(subject.run)
                rankings += [
                    (dataset, subject.run, repeat, fold, int(k), rank, index)
                    for k, chosen in facts["rankings"].items()
                    for rank, index in enumerate(chosen, start=1)
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

    def _record(self, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        from mlfs_dask.selectors.base import versions

        settings, table = self._settings, self._table
        every = settings.to_dict()
        sizes = {"n": table.n, "d": table.d, "q": table.q}
        return {
            "format_version": FORMAT_VERSION,
            "kind": "eval",
            "store": {"path": table.path, "digest": table.digest, **sizes},
            "dataset": table.name,
            "runs": [subject.to_record() for subject in self._subjects],
            "protocol": self._protocol,
            "classifiers": list(settings.classifiers),
            "classifier_params": {
                name: every[name]
                for name in ("n_neighbors", "smoothing", "C", "scale", "classifier_labels", "max_train_rows")
            },
            "judging": {
                "mlknn_rows": self._judging.knn_rows,
                "columns_in_file": self._judging.folder is not None,
                "logistic_solver": "exact" if self._judging.exact_logistic else "sgd",
                "planned_driver_bytes": self._planned_bytes,
                "peak_driver_bytes": runtime.peak_rss(),
                "peak_worker_bytes": table.peak_worker_bytes,
            },
            "splits": {
                "kind": settings.split,
                "folds": len({split.fold for split in self._splits}),
                "repeats": len({split.repeat for split in self._splits}),
                "test_size": settings.test_size if settings.split == "holdout" else None,
                "seed": settings.seed,
                "train_rows": [len(split.train) for split in self._splits],
                "test_rows": [len(split.test) for split in self._splits],
            },
            "simulation": {
                name: every[name] for name in ("missing_labels", "labelled_rows", "hidden_as", "unlabelled_test")
            }
            if settings.simulates
            else None,
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
