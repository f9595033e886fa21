"""One evaluation into a folder, with partial results beside it, from which an interrupted one goes on.

Every ranking and its values are one small file in a hidden folder beside the place of the evaluation. They are taken up
only by the same settings, candidates and data.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlfs_dask.errors import DataError
from mlfs_dask.evaluation.results import Evaluation, read_eval, write_eval
from mlfs_dask.files.json_text import as_json, parse_json
from mlfs_dask.files.object_store import is_url, local_path
from mlfs_dask.files.publish import remove_leftovers, write_file

if TYPE_CHECKING:
    from mlfs_dask.evaluation.experiment import Experiment

_JOB = "job.json"


class EvaluateJob:
    """An experiment and the folder that its results go into, as `mlfs_dask.selection.job.SelectJob` is of a selection.

    Parameters
    ----------
    experiment : Experiment
    place : str
        Local path or URL of the evaluation; empty where it is only planned.
    """

    def __init__(self, experiment: Experiment, place: str = "") -> None:
        self._experiment, self.place = experiment, place

    def finished(self) -> Evaluation | None:
        """Return the evaluation that is there already, of the same data, candidates, settings and splits; None
        without one.
        """
        try:
            evaluation = read_eval(self.place)
        except DataError:
            return None
        record, asked = evaluation.record, self._experiment.job()
        found = {
            "store": {name: value for name, value in record["store"].items() if not name.endswith("path")},
            "candidates": record["runs"],
            "settings": record["settings"],
            "splits": record["splits"].get("digest"),
        }
        if as_json(found) != as_json({name: asked[name] for name in found}):
            return None
        remove_partial_results(self.place)  # of one that was killed between its last file and its end
        return evaluation

    def plan(self) -> dict[str, Any]:
        """Return the plan of the evaluation, as plain data."""
        return self._experiment.plan()

    def run(
        self, told: Mapping[str, Any], *, choose_k: bool = False, resume: bool = False, force: bool = False
    ) -> Evaluation:
        """Learn and judge, and write the folder.

        Parameters
        ----------
        told : mapping
            What the record has beside what was found.
        choose_k : bool
            Name the smallest number of features that is as good as the best.
        resume : bool
            Go on from what an interrupted evaluation left.
        force : bool
            Replace an earlier evaluation, at the very end.
        """
        folder = partial_folder(self.place)
        partial_results = None if folder is None else PartialResults(folder, self._experiment.job(), resume=resume)
        evaluation = self._experiment.run(partial_results)
        evaluation.record.update(told)
        if choose_k:
            evaluation.record["chosen_k"] = evaluation.choose_k().to_dict("records")
        write_eval(self.place, evaluation, force=force)
        remove_partial_results(self.place)
        return evaluation


def partial_folder(path: str) -> Path | None:
    """Return the folder of the partial results of the evaluation at `path`; None for URLs.

    >>> str(partial_folder("out/enron.eval"))
    'out/.enron.eval.partial'
    """
    if is_url(path):
        return None
    place = local_path(path)
    return place.with_name(f".{place.name}.partial")


def remove_partial_results(path: str) -> None:
    """Delete what an evaluation at `path` that is finished has left of its way there."""
    folder = partial_folder(path)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        remove_leftovers(local_path(path))


class PartialResults:
    """Rankings and values that are finished, as files in a folder.

    Parameters
    ----------
    place : Path
    job : mapping
        What decides whether partial results belong to the same evaluation.
    resume : bool
        Use the partial results that are there; else they are deleted.
    """

    def __init__(self, place: Path, job: Mapping[str, Any], *, resume: bool) -> None:
        self._place = place
        self._job = json.dumps(as_json(job), sort_keys=True)
        if not (resume and self._is_same_job()):
            shutil.rmtree(place, ignore_errors=True)

    def _is_same_job(self) -> bool:
        try:
            return (self._place / _JOB).read_text() == self._job
        except OSError:
            return False

    def _file(self, name: str) -> Path:
        return self._place / f"{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}.json"

    def load(self, name: str) -> dict[str, Any] | None:
        """Return the data saved under a name; None if there is no complete file."""
        try:
            document = parse_json(self._file(name).read_text())
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) else None

    def save(self, name: str, facts: Mapping[str, Any]) -> None:
        """Save plain data under a name. The folder is made with the first: what is refused at once leaves none."""
        if not self._place.exists():
            write_file(self._place / _JOB, self._job.encode())
        write_file(self._file(name), json.dumps(as_json(facts)).encode())
