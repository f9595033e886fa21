"""One selection into a run folder: its plan, an earlier complete run, and its execution."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlfs_dask.engine.checkpoints import EVERY_SECONDS, Folder, checkpoint_place, keep_checkpoints
from mlfs_dask.files.publish import check_place
from mlfs_dask.files.result_folders import RUN
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.fit import check_data, fit, open_rows
from mlfs_dask.selection.question import Question
from mlfs_dask.selection.runs import Run, finished_run, has_labels, write_run
from mlfs_dask.selection.timing import estimate_seconds
from mlfs_dask.selectors.costs import Plan
from mlfs_dask.statistics.write_rows import UnwrittenRows
from mlfs_dask.storage.dataset import Dataset
from mlfs_dask.storage.labels_store import LabelsStore


class SelectJob:
    """Selection on a data set, and the run folder for its result.

    Parameters
    ----------
    question : Question
    dataset : Dataset
    place : str
        Local path or URL of the run; empty for a plan alone.
    write_labels : bool
        True to write the recovered labels of all rows, too.

    Attributes
    ----------
    question : Question
        The question, with feature numbers.

    Raises
    ------
    UsageError, DataError
        If the data, as far as known without a pass, does not suit the question.
    """

    def __init__(self, question: Question, dataset: Dataset, place: str = "", *, write_labels: bool = False) -> None:
        question.check()
        self._question_with_names, self._dataset, self.place, self._replaces = question, dataset, place, False
        self._writes_labels = write_labels and question.method.label_threshold is not None
        if self._writes_labels:
            profile = dataset.rows.profile
            sized = LabelsStore.sized("", profile.n, profile.q, **self._labels_sizes)
            self._question_with_names = replace(question, labels_sink=UnwrittenRows(sized.shape, sized.chunk_rows))
        self.question = check_data(self._question_with_names, dataset)

    @property
    def states(self) -> Folder:
        """Folder of the checkpoints of a running loop."""
        return Folder(checkpoint_place(self.place))

    @property
    def _labels_sizes(self) -> dict[str, Any]:
        profile, threshold = self._dataset.rows.profile, self._question_with_names.method.label_threshold
        assert threshold is not None
        return {"threshold": float(threshold), "partition_rows": -(-profile.n // profile.partitions)}

    def plan(self, resources: Resources, *, measure: bool = False) -> Plan:
        """Return the plan; with `measure`, one block is read to estimate the seconds.

        Raises
        ------
        DoesNotFitError
        """
        question, rows = self.question, self._dataset.rows
        plan = question.plan(rows, resources)
        if (
            not measure or question.ranks_strata or question.aggregate
        ):  # passes over strata or clusters are not measured
            return plan
        return estimate_seconds(question.method_cost, question.view(rows), resources, plan)

    def finished(self) -> Run | None:
        """Return the complete run in the folder, if it has the same method, parameters and data; else None."""
        run = finished_run(
            self.place,
            method=self.question.method.method,
            params=self._question_with_names.get_params(),
            digest=self._dataset.digest,
            features=self.question.facts(open_rows(self._dataset).names),
        )
        self._replaces = run is not None  # a run without its labels is replaced
        return None if run is None or (self._writes_labels and not has_labels(self.place)) else run

    def check_free(self, *, force: bool) -> None:
        """Refuse an existing path before any work is done. Raises as `publish.check_place`."""
        check_place(self.place, RUN, force=force or self._replaces)

    def run(
        self,
        entries: Mapping[str, Any],
        *,
        every: float = EVERY_SECONDS,
        resume: bool = False,
        force: bool = False,
        pairs_format: str = "parquet",
    ) -> Run:
        """Fit the method and write the run folder.

        Parameters
        ----------
        entries : mapping
            Entries of run.json in addition to the report of the fit.
        every : float
            Seconds between two checkpoints of a loop.
        resume : bool
            Continue from the checkpoint of an interrupted run.
        force : bool
            Replace an earlier run, once the new one is complete.
        pairs_format : {"parquet", "csv"}

        Raises
        ------
        UsageError, DataError, DoesNotFitError, ClusterLostError
        """
        checkpoints: Any = contextlib.nullcontext()
        if self.question.method.keeps_checkpoints:
            checkpoints = keep_checkpoints(self.states, every=every, resume=resume, keep_end=self._writes_labels)
        with checkpoints:
            fitted = fit(self._question_with_names, self._dataset)
            record, names = {**fitted.report.to_dict(), **entries}, self._dataset.feature_names

            def write_labels(path: str) -> None:
                rows = self._dataset.rows
                store = LabelsStore.sized(path, rows.profile.n, rows.profile.q, **self._labels_sizes)
                fitted.write_labels(rows, store.begin(self._dataset.label_names))

            write_run(
                self.place,
                ranking=fitted.ranking,
                scores=fitted.scores,
                feature_names=names,
                record=record,
                columns=fitted.columns,
                clusters=fitted.clusters,
                write_labels=write_labels if self._writes_labels else None,
                pairs=fitted.pairs,
                pairs_format=pairs_format,
                force=force or self._replaces,
            )
        if self.question.method.keeps_checkpoints:
            self.states.remove()
        ranking = fitted.ranking
        return Run(self.place, ranking, fitted.scores[ranking], [str(names[f]) for f in ranking], record)
