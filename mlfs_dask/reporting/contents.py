"""Contents of a page: the given folders, recognised by the record in each."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.comparison import Comparison, compare
from mlfs_dask.evaluation.results import Evaluation, read_eval, read_jobs
from mlfs_dask.files.object_store import is_url, open_objects
from mlfs_dask.files.result_folders import BATCH, COMPARISON, EVALUATION, RUN, ResultFolder, kind_of
from mlfs_dask.redaction import redact
from mlfs_dask.reporting.comparison_folder import read_comparison
from mlfs_dask.selection.question import ask
from mlfs_dask.selection.runs import Run, RunRecord, read_run
from mlfs_dask.selectors import METHODS
from mlfs_dask.selectors.parameters import key_of


@dataclass(frozen=True)
class LabelledRun:
    """A finished run under the names that the page gives it.

    Attributes
    ----------
    label : str
        The only one of its kind on the page: `name`, with data set, k and folder where runs differ in them.
    name : str
        Of the method and its parameters, as in evaluations; runs of one name have one colour.
    folder : str
    run : Run
    """

    label: str
    name: str
    folder: str
    run: Run

    @property
    def dataset(self) -> str:
        """Name of its data set."""
        return dataset_of(self.run)


@dataclass
class Contents:
    """Runs, evaluations and comparisons to report, in the given order, and notes on missing parts."""

    runs: list[LabelledRun] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def compared(self) -> tuple[list[Comparison], list[str]]:
        """Return the comparisons; where there is none, one of all evaluations that were made with the same settings.

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
        comparisons: list[Comparison] = []
        notes: list[str] = []
        for group in by_settings.values():
            try:
                comparisons.append(compare(group))
            except UsageError as error:
                notes.append(f"The evaluations are shown one by one: {str(error).splitlines()[0]}")
                comparisons += [compare([each]) for each in group]
        return comparisons, notes


def read_contents(paths: Sequence[str | Path]) -> Contents:
    """Read RUN, EVAL, CMP and BATCH folders, and folders of runs, as `mlfs select` writes of several methods.

    Raises
    ------
    UsageError
        No folder is named.
    DataError
        A folder is none of these, or damaged.
    """
    if not paths:
        raise UsageError("there is nothing to report: give a RUN, EVAL, CMP or BATCH folder.")
    contents = Contents()
    runs: list[Run] = []
    for path in map(str, paths):
        _add(contents, runs, path)
    for run in runs:
        if missing := RunRecord.__annotations__.keys() - run.record.keys():
            raise DataError(
                f"{min(missing)} is missing", file=f"{run.path}/{RUN.record}", cure="select the features again"
            )
    records = [each.record for each in contents.evaluations] + [each.record for each in contents.comparisons]
    contents.runs = label_runs(runs, [run for record in records for run in record["runs"]])
    return contents


def _add(contents: Contents, runs: list[Run], path: str) -> None:
    try:
        kind = kind_at(path)
    except DataError:
        if is_url(path) or not (several := sorted(Path(path).glob(f"*/{RUN.record}"))):
            raise
        runs += [read_run(str(record.parent)) for record in several]
        return
    if kind == RUN:
        runs.append(read_run(path))
    elif kind == EVALUATION:
        contents.evaluations.append(read_eval(path))
    elif kind == COMPARISON:
        contents.comparisons.append(read_comparison(path))
    else:
        finished, missing = read_jobs(path)
        if not finished:
            raise DataError(
                "no job of this batch is finished.", file=path, cure="run `mlfs batch --resume`, then report again"
            )
        datasets = _datasets_of_jobs(Path(path))
        for job in finished:
            n_runs = len(runs)
            _add(contents, runs, str(job))
            for run in runs[n_runs:]:
                run.record["dataset"] = datasets.get(job.name)
        contents.missing += missing


def kind_at(path: str) -> ResultFolder:
    """Return the kind of a folder.

    Raises
    ------
    DataError
        If it has no record.
    """
    objects = open_objects(path)
    if (kind := kind_of(objects.exists)) is not None:
        return kind
    records = f"no {RUN.record}, {EVALUATION.record}, {COMPARISON.record} or {BATCH.record} in it"
    raise DataError(
        f"there is {records}." if objects.exists() else "there is no such folder.",
        file=path,
        cure="give a folder that `mlfs select`, `evaluate`, `compare` or `batch` has written",
    )


def _datasets_of_jobs(batch: Path) -> dict[str, str]:
    """Return the name that a batch gives to the data set of each job."""
    if not (batch / BATCH.table).exists():
        return {}
    with (batch / BATCH.table).open(newline="") as file:
        return {row["job"]: row["dataset"] for row in csv.DictReader(file)}


def dataset_of(run: Run) -> str:
    """Return the name that a batch gives to the data set of a run, or that of its store without the suffix."""
    if name := run.record.get("dataset"):
        return str(name)
    path = str(run.store.get("path", ""))
    return PurePosixPath(path).name.removesuffix(".zarr") if path else "in memory"


def label_runs(runs: Sequence[Run], evaluated: Iterable[Mapping[str, Any]]) -> list[LabelledRun]:
    """Return runs under names that are those of evaluations, and under labels that tell them apart.

    Parameters
    ----------
    runs : sequence of Run
    evaluated : iterable of mapping
        `run`, `method` and `params` of what was evaluated.
    """
    evaluated = list(evaluated)
    names = [run_name(str(run.record["method"]), run.record["params"], evaluated) for run in runs]
    labels = names
    if len({dataset_of(run) for run in runs}) > 1:
        labels = [f"{name} on {dataset_of(run)}" for name, run in zip(names, runs, strict=True)]
    colours: dict[str, set[int]] = {}
    for label, run in zip(labels, runs, strict=True):
        colours.setdefault(label, set()).add(run.k)
    labels = [
        f"{label}, k = {run.k}" if len(colours[label]) > 1 else label for label, run in zip(labels, runs, strict=True)
    ]
    folders = _folder_names(runs)
    labels = [
        f"{label} ({folder})" if labels.count(label) > 1 else label
        for label, folder in zip(labels, folders, strict=True)
    ]
    return [LabelledRun(*each) for each in zip(labels, names, folders, runs, strict=True)]


def run_name(method: str, params: Mapping[str, Any], evaluated: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of a method with its parameters: that of an evaluation of the same, else as `mlfs evaluate`
    spells it.

    Examples
    --------
    >>> run_name("elc", {"variant": "published", "n_features_to_select": 5}, [])
    'elc:variant=published'
    """
    changed = changed_params(method, params)
    for other in evaluated:
        if other["method"] == method and changed_params(method, other.get("params", {})) == changed:
            return str(other["run"])
    options = ",".join(f"{key_of(name)}={value}" for name, value in changed.items())
    return f"{method}:{options}" if options else method


def changed_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that are not the method's defaults; those of k, seed and resamples have their own place."""
    defaults = ask(method).get_params() if method in METHODS else {}
    return {
        name: value
        for name, value in sorted(params.items())
        if name not in ("n_features_to_select", "random_state", "fdr", "resamples", "pairs", "control")
        and (name not in defaults or value != defaults[name])
    }


def _folder_names(runs: Sequence[Run]) -> list[str]:
    """Return the names of the folders; where they are alike with the name of the folder above, or a mark."""
    paths = [PurePosixPath(redact(run.path).rstrip("/")) for run in runs]
    names = [path.name for path in paths]
    result: list[str] = []
    for path in paths:
        name = f"{path.parent.name}/{path.name}" if names.count(path.name) > 1 else path.name
        while name in result:
            name += "′"
        result.append(name)
    return result
