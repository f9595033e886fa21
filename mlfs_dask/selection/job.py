"""One selection into a run folder: what it will cost, whether it is there already, and running it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlfs_dask.engine.checkpoints import EVERY_SECONDS, Folder, checkpoint_place, keep_checkpoints
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.fit import accepted, fit, opened
from mlfs_dask.selection.question import Question
from mlfs_dask.selection.runs import RecoveredLabels, Run, check_free, finished_run, has_labels, write_run
from mlfs_dask.selection.timing import estimate_seconds
from mlfs_dask.selectors.costs import Plan
from mlfs_dask.statistics.write_rows import UnwrittenRows
from mlfs_dask.storage.dataset import Dataset
from mlfs_dask.storage.labels_store import LabelsStore


class SelectJob:
    """A question that is put to a data set, and the folder that its answer goes into.

    Parameters
    ----------
    question : Question
    dataset : Dataset
    place : str
        Local path or URL of the run; empty where it is only planned.
    write_labels : bool
        Whether the recovered labels of all rows go with it.

    Attributes
    ----------
    question : Question
        With the numbers of features.

    Raises
    ------
    UsageError, DataError
        The data is known not to be what the question takes.
    """

    def __init__(self, question: Question, dataset: Dataset, place: str = "", *, write_labels: bool = False) -> None:
        question.check()
        self._asked, self._dataset, self.place, self._replaces = question, dataset, place, False
        self._writes_labels = write_labels and question.method.label_threshold is not None
        if self._writes_labels:
            profile = dataset.rows.profile
            sized = LabelsStore.sized("", profile.n, profile.q, **self._labels_sizes)
            self._asked = replace(question, labels_sink=UnwrittenRows(sized.shape, sized.chunk_rows))
        self.question = accepted(self._asked, dataset)

    @property
    def states(self) -> Folder:
        """Where the states of a loop are kept while it runs."""
        return Folder(checkpoint_place(self.place))

    @property
    def _labels_sizes(self) -> dict[str, Any]:
        profile, threshold = self._dataset.rows.profile, self._asked.method.label_threshold
        assert threshold is not None
        return {"threshold": float(threshold), "partition_rows": -(-profile.n // profile.partitions)}

    def plan(self, resources: Resources, *, measure: bool = False) -> Plan:
        """What it will cost; with `measure` a block is read, and seconds are estimated from that.

        Raises
        ------
        DoesNotFitError
        """
        question, rows = self.question, self._dataset.rows
        plan = question.plan(rows, resources)
        if not measure or question.ranks_strata:  # whose readings are of parts
            return plan
        return estimate_seconds(question.method_cost, question.view(rows), resources, plan)

    def finished(self) -> Run | None:
        """The run that is there already, of the same method, parameters and data; None where it is not complete."""
        run = finished_run(
            self.place,
            method=self.question.method.method,
            params=self._asked.get_params(),
            digest=self._dataset.digest,
            features=self.question.facts(opened(self._dataset).names),
        )
        self._replaces = run is not None  # where it lacks its labels
        return None if run is None or (self._writes_labels and not has_labels(self.place)) else run

    def check_free(self, *, force: bool) -> None:
        """Refuse a place that is taken, before any work is done. Raises as `publish.check_place`."""
        check_free(self.place, force=force or self._replaces)

    def run(
        self, told: Mapping[str, Any], *, every: float = EVERY_SECONDS, resume: bool = False, force: bool = False
    ) -> Run:
        """Fit the method and write the run folder.

        Parameters
        ----------
        told : mapping
            What the record has beside the report of the fit.
        every : float
            Seconds between two states of a loop.
        resume : bool
            Go on from the state that an interrupted run left.
        force : bool
            Replace an earlier run, at the very end.

        Raises
        ------
        UsageError, DataError, DoesNotFitError, ClusterLostError
        """
        checkpoints: Any = contextlib.nullcontext()
        if self.question.method.keeps_checkpoints:
            checkpoints = keep_checkpoints(self.states, every=every, resume=resume, keep_end=self._writes_labels)
        with checkpoints:
            fitted = fit(self._asked, self._dataset)
            record, names = {**fitted.report.to_dict(), **told}, self._dataset.feature_names
            labels = None
            if self._writes_labels:
                rows = self._dataset.rows
                labels = RecoveredLabels(
                    write=lambda store: fitted.write_labels(rows, store),
                    n=rows.profile.n,
                    names=self._dataset.label_names,
                    **self._labels_sizes,
                )
            write_run(
                self.place,
                ranking=fitted.ranking,
                scores=fitted.scores,
                feature_names=names,
                record=record,
                columns=fitted.columns,
                clusters=fitted.clusters,
                labels=labels,
                pairs=fitted.pairs,
                force=force or self._replaces,
            )
        if self.question.method.keeps_checkpoints:
            self.states.remove()
        ranking = fitted.ranking
        return Run(self.place, ranking, fitted.scores[ranking], [str(names[f]) for f in ranking], record)
