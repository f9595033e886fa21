"""Candidates to be scored: a method fitted to each training part, a finished run, random features, or all features.

A candidate is written `elc`, `elc:lambda=0.1,variant=published`, `random`, `all`, or as the folder of a run. The folder
of an evaluation stands for all its candidates, with the rankings that it has learnt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlfs_dask.errors import UsageError, closest, spell_parameters_as
from mlfs_dask.evaluation.results import ALL, RANDOM, Evaluation, read_eval
from mlfs_dask.files.object_store import is_url
from mlfs_dask.files.result_folders import EVALUATION, RUN
from mlfs_dask.selection.fit import plain_value
from mlfs_dask.selection.question import ask, parameters_of
from mlfs_dask.selection.runs import Run, read_run
from mlfs_dask.selectors import METHODS, get_method, method_name
from mlfs_dask.selectors.parameters import key_of


@dataclass(frozen=True)
class Candidate:
    """A method, a finished run, or features that no method selects, to be scored.

    Attributes
    ----------
    run : str
        Its label, the only one of that name in an evaluation.
    method : str
    params : mapping
        Parameters given to the method; of a finished run, all of them.
    finished : Run or None
        The run whose ranking is scored as it is; None for what is learnt inside each training part.
    earlier : Evaluation or None
        The evaluation that has learnt the rankings already.
    """

    run: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    finished: Run | None = None
    earlier: Evaluation | None = None

    @property
    def is_learnt(self) -> bool:
        """True if a method is fitted to each training part."""
        return self.finished is None and self.earlier is None and self.method not in (RANDOM, ALL)

    def to_record(self) -> dict[str, Any]:
        """Return the entry of `eval.json`."""
        params = {name: plain_value(value) for name, value in self.params.items()}
        record = {"run": self.run, "method": self.method, "params": params, "learnt": "training part"}
        if self.finished is not None:
            record |= {"learnt": "finished run", "path": self.finished.path}
        return record


def read_candidate(text: str | Candidate) -> Candidate:
    """Return the candidate that `text` names.

    Raises
    ------
    UsageError
        It is neither a method nor a run, or names a parameter or value that the method does not have.
    DataError
        A run folder is damaged.

    Examples
    --------
    >>> read_candidate("elc:lambda=0.1,variant=published").params
    {'lambda_': 0.1, 'variant': 'published'}
    """
    if isinstance(text, Candidate):
        return text
    if not isinstance(text, str | os.PathLike):
        raise UsageError(
            "a candidate is the name of a method, with its parameters as 'elc:lambda=0.1', or the folder of a run; "
            f"got {text!r}"
        )
    text = os.fspath(text)
    name, _, options = text.partition(":")
    if name in (RANDOM, ALL):
        if options:
            raise UsageError(f"the candidate {name!r} takes no parameters; got {text!r}.")
        return Candidate(name, name)
    method = method_name(name)
    if method in METHODS:
        with spell_parameters_as("key"):
            params = _read_params(method, options)
            ask(method, 1, **params).check()
        return Candidate(method + text[len(name) :], method, params)
    if is_url(text) or (Path(text) / RUN.record).is_file():
        run = read_run(text)
        name, params = Path(text.rstrip("/")).name, dict(run.record.get("params", {}))
        return Candidate(name, str(run.record["method"]), params, finished=run)
    known = closest(name, [*METHODS, RANDOM, ALL])
    raise UsageError(f"{text!r} is neither the folder of a finished run nor a method, random or all. {known}")


def candidates_of_evaluation(path: str) -> list[Candidate]:
    """Return the candidates of an evaluation, with the rankings that it has learnt."""
    evaluation = read_eval(path)
    return [
        read_candidate(run["path"])
        if "path" in run
        else Candidate(
            run["run"], run["method"], run["params"], earlier=None if run["method"] in (RANDOM, ALL) else evaluation
        )
        for run in evaluation.record["runs"]
    ]


def read_candidates(texts: Sequence[str | Candidate]) -> list[Candidate]:
    """Return all candidates, each with a label of its own.

    Raises
    ------
    UsageError
        There is none, or two have the same label.
    """
    candidates: list[Candidate] = []
    for text in texts:
        is_evaluation = isinstance(text, str) and (Path(text) / EVALUATION.record).is_file()
        candidates += candidates_of_evaluation(str(text)) if is_evaluation else [read_candidate(text)]
    if not candidates:
        raise UsageError("no candidate was given; name a run folder, a method, random or all.")
    labels = [candidate.run for candidate in candidates]
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise UsageError(f"two candidates have the name {sorted(twice)[0]!r}; give each candidate once.")
    return candidates


def _read_params(method: str, text: str) -> dict[str, Any]:
    options = {option.key: option for option in parameters_of(get_method(method))}
    params: dict[str, Any] = {}
    for part in re.split(r",(?=[^,=]+=)", text) if text else []:
        name, equals, value = part.partition("=")
        option = options.get(key_of(name.strip()))
        if option is None:
            raise UsageError(f"{method} has no parameter {name.strip()!r}. {closest(name.strip(), options)}")
        if not equals:
            raise UsageError(f"{method}:{text} gives {option.key} no value; write {option.key}=VALUE.")
        if option.name in params:
            raise UsageError(f"{method}:{text} gives {option.key} twice.")
        params[option.name] = option.parse(value.strip())
    return params
