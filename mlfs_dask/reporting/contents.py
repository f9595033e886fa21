"""What a page is made of: the folders given, recognised by the record that each holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.comparison import Comparison, compare
from mlfs_dask.evaluation.results import BATCH, Evaluation, finished_jobs, read_eval
from mlfs_dask.reporting.comparison_folder import read_comparison
from mlfs_dask.results import Run, read_run, read_text

RUN, EVAL, COMPARE = "run.json", "eval.json", "compare.json"


@dataclass(frozen=True)
class LabelledRun:
    """A finished run under the name that the page gives it.

    Attributes
    ----------
    label : str
        Name of the folder.
    run : Run
    """

    label: str
    run: Run

    @property
    def store(self) -> dict[str, Any]:
        """Path and digest of its store; empty where X and Y came from memory."""
        return self.run.record.get("store") or {}

    @property
    def dataset(self) -> str:
        """Name of its store without the suffix."""
        path = str(self.store.get("path", ""))
        return PurePosixPath(path).name.removesuffix(".zarr") if path else "in memory"


@dataclass
class Contents:
    """Everything that was found, in the order in which it was named."""

    runs: list[LabelledRun] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    def compared(self) -> tuple[list[Comparison], list[str]]:
        """The comparisons; where there is none, one of all evaluations that were made with the same settings.

        Returns
        -------
        list of Comparison, list of str
            And notes.
        """
        if self.comparisons or not self.evaluations:
            return self.comparisons, []
        by_settings: dict[str, list[Evaluation]] = {}
        for each in self.evaluations:
            by_settings.setdefault(json.dumps(each.record.get("settings"), sort_keys=True), []).append(each)
        found: list[Comparison] = []
        notes: list[str] = []
        for group in by_settings.values():
            try:
                found.append(compare(group))
            except UsageError as error:
                notes.append(f"The evaluations are shown one by one: {str(error).splitlines()[0]}")
                found += [compare([each]) for each in group]
        return found, notes


def read_contents(paths: Sequence[str | Path]) -> Contents:
    """Read RUN, EVAL, CMP and BATCH folders.

    Raises
    ------
    UsageError
        No folder is named.
    DataError
        A folder is none of these, or damaged.
    """
    if not paths:
        raise UsageError("there is nothing to report: name a RUN, EVAL, CMP or BATCH folder.")
    contents = Contents()
    for path in map(str, paths):
        _add(contents, path)
    contents.runs = _told_apart(contents.runs)
    return contents


def _add(contents: Contents, path: str) -> None:
    kind = kind_of(path)
    if kind == RUN:
        contents.runs.append(LabelledRun(PurePosixPath(path.rstrip("/")).name, read_run(path)))
    elif kind == EVAL:
        contents.evaluations.append(read_eval(path))
    elif kind == COMPARE:
        contents.comparisons.append(read_comparison(path))
    else:
        finished = finished_jobs(path)
        if not finished:
            raise DataError(
                "no job of this batch is finished.", file=path, cure="run `mlfs batch --resume`, then report again"
            )
        for job in finished:
            _add(contents, str(job))


def kind_of(path: str) -> str:
    """Name of the record that a folder holds.

    Raises
    ------
    DataError
        If it holds none.
    """
    for record in (BATCH, COMPARE, EVAL, RUN):
        try:
            read_text(path, record)
        except DataError:
            continue
        return record
    raise DataError(
        f"none of {RUN}, {EVAL}, {COMPARE} and {BATCH} is here.",
        file=path,
        cure="give a folder that `mlfs select`, `evaluate`, `compare` or `batch` has written",
    )


def _told_apart(runs: list[LabelledRun]) -> list[LabelledRun]:
    """Runs of one name get the name of the folder above as well, or a number."""
    labels = [run.label for run in runs]
    result: list[LabelledRun] = []
    for run in runs:
        label = run.label
        if labels.count(label) > 1:
            label = f"{PurePosixPath(run.run.path.rstrip('/')).parent.name}/{label}"
        while any(other.label == label for other in result):
            label += "′"
        result.append(LabelledRun(label, run.run))
    return result
