"""The specification of a batch: from a YAML document to jobs. What is wrong in it is found before anything runs.

`stores` × `methods` with their grids of `params`, × `k` × `seeds`, are selections; × `evaluation` are evaluations.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlfs_dask.batch.spec_io import Item, as_document, read_document
from mlfs_dask.errors import UsageError, spell_parameters_as
from mlfs_dask.evaluation.protocols import SETTINGS, make_settings
from mlfs_dask.evaluation.results import ALL, RANDOM
from mlfs_dask.evaluation.table import dataset_name
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.files.object_store import is_url
from mlfs_dask.selection.feature_counts import parse_n_features_to_select
from mlfs_dask.selection.question import Question, ask, parameters_of
from mlfs_dask.selectors import get_method
from mlfs_dask.selectors.parameters import Param, Parameter
from mlfs_dask.selectors.scores import AUTO
from mlfs_dask.typing import MAX_SEED

SPEC_KEYS = ("stores", "methods", "k", "seeds", "evaluation")
STORE_KEYS = ("path", "name")
METHOD_KEYS = ("method", "name", "params", "k", "seeds")
EVALUATION_KEYS = ("name", "protocol", "subjects", "seeds")

#: Settings that an evaluation may have; `seeds` takes the place of `seed`.
SETTING_KEYS = tuple(name for name in SETTINGS if name != "seed")

SEED = Parameter("seed", (int,), 0, param=Param("Seed of random numbers.", least=0, most=MAX_SEED))

_LONGEST_NAME = 120


@dataclass(frozen=True)
class StoreEntry:
    """A store, and what it is called in the tables."""

    name: str
    path: str


@dataclass(frozen=True)
class MethodPoint:
    """A method at one point of the grid of its parameters."""

    run: str
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class EvaluationEntry:
    """Settings of an evaluation."""

    name: str
    protocol: str | None
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One selection, or one evaluation of one method.

    Attributes
    ----------
    name : str
        Of its folder.
    store : StoreEntry
    point : MethodPoint
    k : int, float, "auto" or None
        Features to keep; None in an evaluation.
    seed : int or None
        None where nothing is drawn and no seed was given.
    evaluation : EvaluationEntry or None
        None in a selection.
    """

    name: str
    store: StoreEntry
    point: MethodPoint
    k: int | float | str | None
    seed: int | None
    evaluation: EvaluationEntry | None = None

    @property
    def kind(self) -> str:
        """Kind of job: `select` or `evaluate`."""
        return "select" if self.evaluation is None else "evaluate"

    @property
    def question(self) -> Question:
        """Question of a selection."""
        return ask(self.point.method, self.k, seed=self.seed, **self.point.params)

    def digest(self, store: str | None) -> str:
        """Return the digest of what its result depends on, given that of the store's content."""
        evaluation = self.evaluation and {
            "protocol": self.evaluation.protocol,
            "options": dict(self.evaluation.options),
        }
        return digest_of(
            {
                "store": [store, self.store.name],
                "point": [self.point.run, self.point.method, dict(self.point.params)],
                "k": self.k,
                "seed": self.seed,
                "evaluation": evaluation,
            }
        )


@dataclass(frozen=True)
class BatchSpec:
    """Validated specification of a batch.

    Attributes
    ----------
    stores : tuple of StoreEntry
    jobs : tuple of Job
        Store by store; selections first.
    document : dict
        What it was read from, as plain data.
    """

    stores: tuple[StoreEntry, ...]
    jobs: tuple[Job, ...]
    document: dict[str, Any] = field(default_factory=dict)


def read_spec(plan: str | Path | Mapping[str, Any]) -> BatchSpec:
    """Read and validate the specification of a batch.

    Parameters
    ----------
    plan : path or mapping
        A YAML file, or its content. Stores' relative paths count from the file's folder, else from the working folder.

    Raises
    ------
    DataError
        With the line of what is wrong, and the closest name where one is not known.
    """
    with spell_parameters_as("key"):
        if isinstance(plan, Mapping):
            return _spec(as_document(plan), Path())
        return _spec(read_document(plan), Path(plan).parent)


def _spec(document: Item, folder: Path) -> BatchSpec:
    entries = document.mapping("the plan", SPEC_KEYS)
    for name in ("stores", "methods"):
        if name not in entries:
            raise document.error(f"the plan has no {name!r}")
    stores = [_store(item, folder) for item in _nonempty_items(entries["stores"], "stores")]
    _refuse_duplicates(entries["stores"], [store.name for store in stores], "stores are called", "give name")
    ks = _ks(entries["k"]) if "k" in entries else []
    seeds = _seeds(entries["seeds"]) if "seeds" in entries else None
    methods = [_method(item, ks, seeds) for item in _nonempty_items(entries["methods"], "methods")]
    if "evaluation" not in entries and not any(own for _, own, _ in methods):
        raise document.error("the plan selects nothing and judges nothing", cure="give k, or evaluation")
    runs = [point.run for points, _, _ in methods for point in points]
    _refuse_duplicates(entries["methods"], runs, "methods are called", "give each a name of its own")
    evaluations = []
    if "evaluation" in entries:
        evaluations = [_evaluation(item, seeds) for item in _nonempty_items(entries["evaluation"], "evaluation")]
        names = [entry.name for entry, _, _ in evaluations]
        _refuse_duplicates(entries["evaluation"], names, "evaluations are called", "give each a name of its own")
    jobs = [job for store in stores for job in _jobs(store, methods, evaluations)]
    _refuse_duplicates(document, [job.name for job in jobs], "jobs are called", "give shorter, different names")
    return BatchSpec(tuple(stores), tuple(jobs), document.plain())


def _store(item: Item, folder: Path) -> StoreEntry:
    if isinstance(item.value, str):
        path, name = item.text("a store"), None
    else:
        entries = item.mapping("a store", STORE_KEYS)
        if "path" not in entries:
            raise item.error("a store has no 'path'")
        path = entries["path"].text("path")
        name = entries["name"].text("name") if "name" in entries else None
    if not is_url(path):
        path = str(folder / path)
    return StoreEntry(name or dataset_name(path), path)


def _method(
    item: Item, ks: list[int | float | str], seeds: list[int] | None
) -> tuple[list[MethodPoint], list[int | float | str], list[int] | None]:
    entries = item.mapping("a method", METHOD_KEYS) if isinstance(item.value, dict) else {"method": item}
    if "method" not in entries:
        raise item.error("an entry of methods has no 'method'")
    method = entries["method"].text("method")
    with _located(lambda text: entries["method"]):
        selector = get_method(method)
    method = selector.method
    options = {option.key: option for option in parameters_of(selector)}
    options.pop("random_state", None)
    given = entries["params"].mapping(f"params of {method}", options) if "params" in entries else {}
    grid = {key: [_parameter(each, options[key]) for each in value.items()] for key, value in given.items()}
    for key, values in grid.items():
        if not values:
            raise given[key].error(f"{key} has no value")
    if "name" in entries:
        label = entries["name"].text("name")
        shown = [key for key, choices in grid.items() if len(choices) > 1]
    else:
        label, shown = method, list(grid)
    points = []
    for chosen in itertools.product(*grid.values()):
        point = dict(zip(grid, chosen, strict=True))
        params = {options[key].name: value for key, value in point.items()}
        with _located(lambda text: _entry_named_in(text, given, entries.get("params", item))):
            ask(selector, 1, **params).check()
        text = ",".join(f"{key}={point[key]}" for key in shown)
        points.append(MethodPoint(f"{label}:{text}" if text else label, method, params))
    own_ks = _ks(entries["k"]) if "k" in entries else ks
    if AUTO in own_ks:
        with _located(lambda text: entries.get("k", item)):
            for each in points:
                ask(selector, AUTO, **each.params).asked(1)
    own = _seeds(entries["seeds"]) if "seeds" in entries else seeds
    seeded = any(ask(selector, k, **point.params).is_random for point in points for k in own_ks or [1])
    if "seeds" in entries and not seeded:
        raise entries["seeds"].error(f"{method} draws nothing at random", cure="leave seeds out")
    return points, own_ks, own if seeded else None


def _ks(item: Item) -> list[int | float | str]:
    numbers: list[int | float | str] = []
    for each in _nonempty_items(item, "k"):
        k = _count_or_share(each.value)
        whole = isinstance(k, int) and not isinstance(k, bool) and k >= 1
        if not whole and not (isinstance(k, float) and 0 < k <= 1) and k != AUTO:
            raise each.error(f"k must be a count from 1, a share of the features (10%, 0.1, 1/6), or auto; got {k!r}")
        numbers.append(k)
    _refuse_duplicates(item, numbers, "values of k are", "give each once")
    return numbers


def _seeds(item: Item) -> list[int]:
    seeds = []
    for each in _nonempty_items(item, "seeds"):
        if not SEED.accepts(each.value):
            raise each.error(f"a seed must be {SEED.values}; got {each.value!r}")
        seeds.append(each.value)
    _refuse_duplicates(item, seeds, "seeds are", "give each once")
    return seeds


def _evaluation(item: Item, seeds: list[int] | None) -> tuple[EvaluationEntry, list[MethodPoint], list[int]]:
    entries = item.mapping("an evaluation", (*EVALUATION_KEYS, *SETTING_KEYS))
    protocol = entries["protocol"].text("protocol") if "protocol" in entries else None
    options = {name: _setting(name, entries[name]) for name in SETTING_KEYS if name in entries}
    with _located(lambda text: _entry_named_in(text, entries, item)):
        make_settings(protocol, options)
    name = entries["name"].text("name") if "name" in entries else protocol or "evaluation"
    own = _seeds(entries["seeds"]) if "seeds" in entries else seeds or [0]
    points = []
    for subject in entries["subjects"].items() if "subjects" in entries else []:
        if subject.value not in (RANDOM, ALL):
            raise subject.error(
                f"a subject of an evaluation is {RANDOM!r} or {ALL!r}; got {subject.plain()!r}",
                cure="name methods under methods: each is evaluated",
            )
        points.append(MethodPoint(subject.value, subject.value, {}))
    return EvaluationEntry(name, protocol, options), points, own


def _jobs(store: StoreEntry, methods: Sequence[Any], evaluations: Sequence[Any]) -> Iterator[Job]:
    for points, ks, seeds in methods:
        for point, k, seed in itertools.product(points, ks, seeds or [None]):
            name = _name(store.name, point.run, f"k{k}", "" if seed is None else f"s{seed}")
            yield Job(name, store, point, k, seed)
    every = [point for points, _, _ in methods for point in points]
    for entry, others, seeds in evaluations:
        for seed, point in itertools.product(seeds, [*every, *others]):
            name = _name(store.name, entry.name, point.run, f"s{seed}" if len(seeds) > 1 else "")
            yield Job(name, store, point, None, seed, entry)


def _name(*parts: str) -> str:
    """Return a folder's name, with hyphens for characters that a shell or a URL would quote."""
    name = ".".join(re.sub(r"[^A-Za-z0-9_=,+.-]", "-", part) for part in parts if part)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}-{digest_of({'parts': list(parts)})[:8]}"


def _count_or_share(value: Any) -> Any:
    """Return a share that is written as text (10%, 1/6) as a number; all else as it is, to be checked."""
    if not isinstance(value, str):
        return value
    try:
        return parse_n_features_to_select(value)
    except ValueError:
        return value


def _nonempty_items(item: Item, what: str) -> list[Item]:
    items = item.items()
    if not items or item.value is None:
        raise item.error(f"{what} is empty")
    return items


def _refuse_duplicates(item: Item, names: Sequence[Any], what: str, cure: str) -> None:
    typed = [(type(name), name) for name in names]  # 1 is a count of features, and 1.0 a share
    twice = sorted({name for _, name in typed if typed.count((type(name), name)) > 1}, key=str)
    if twice:
        raise item.error(f"two {what} {twice[0]!r}", cure=cure)


def _parameter(item: Item, option: Parameter) -> Any:
    """Return a value that an option may have; numbers that YAML takes for text (1e-3) are read as numbers."""
    value: Any = item.value
    kinds: Any = (*option.types, *[int] * (float in option.types), *[type(None)] * option.optional)
    if isinstance(value, str):
        with contextlib.suppress(UsageError):
            value = option.parse(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds) or not option.accepts(value):
        raise item.error(f"{option.key} must be {option.values}; got {item.plain()!r}")
    return float(value) if option.types == (float,) and value is not None else value


def _setting(name: str, item: Item) -> Any:
    """Return a value of a setting of evaluations."""
    if name == "k_grid" and not isinstance(item.value, str):
        return ",".join(str(each.value) for each in item.items() if isinstance(each.value, int | float | str))
    setting = SETTINGS[name]
    return tuple(_parameter(each, setting.one) for each in item.items()) if setting.many else _parameter(item, setting)


@contextlib.contextmanager
def _located(place: Callable[[str], Item]) -> Iterator[None]:
    """Give a UsageError the place in the document that its text is about."""
    try:
        yield
    except UsageError as error:
        raise place(str(error)).error(str(error)) from None


def _entry_named_in(text: str, entries: Mapping[str, Item], otherwise: Item) -> Item:
    """Return the first entry that the text of an error names, else the whole document."""
    text = text.replace("-", "_")
    named = [(match.start(), name) for name in entries if (match := re.search(rf"\b{re.escape(name)}\b", text))]
    return entries[min(named)[1]] if named else otherwise
