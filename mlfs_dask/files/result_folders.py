"""Kinds of folders of results: the files that tell one, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ResultFolder:
    """A kind of folder of results.

    Attributes
    ----------
    record : str
        The file that makes a folder one of its kind; a folder without it is not finished.
    table : str
        Another file that each has.
    what : str
        What such a folder is called, with its article.
    cure : str
        What to do where one is damaged.
    version : int
        Newest format of the record that this version reads; it writes the same. 0 for records without one.
    """

    record: str
    table: str
    what: str
    cure: str
    version: int = 0

    @property
    def head(self) -> dict[str, Any]:
        """First entries of the record."""
        return {"format_version": self.version, "kind": self.record.removesuffix(".json")}


RUN = ResultFolder(
    "run.json", "ranking.csv", "a run", "give the folder that `mlfs select -o` wrote, or run the selection again."
)
EVALUATION = ResultFolder(
    "eval.json", "results.csv", "an evaluation", "give the folder that `mlfs evaluate -o` wrote, or evaluate again.", 2
)
COMPARISON = ResultFolder(
    "compare.json", "tests.json", "a comparison", "give the folder that `mlfs compare -o` wrote, or compare again.", 1
)
BATCH = ResultFolder("batch.json", "jobs.csv", "a batch", "run `mlfs batch --resume`, or name the folders in jobs/", 1)


def kind_of(has: Callable[[str], bool]) -> ResultFolder | None:
    """Return the kind of a folder that has files of some names; None where it is no folder of results."""
    return next((kind for kind in (BATCH, COMPARISON, EVALUATION, RUN) if has(kind.record)), None)
