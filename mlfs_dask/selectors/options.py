"""Options of a selector, read from its signature and its documentation: for the command line, and to check values."""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.typing import MAX_SEED, Seed

#: Values of `random_state` that have no form in text.
GENERATORS = (np.random.Generator, np.random.RandomState)


@dataclass(frozen=True)
class Option:
    """One parameter of a selector.

    Attributes
    ----------
    name : str
        As in Python.
    types : tuple of type
        What its value may be, among bool, int, float and str.
    default : object
    choices : tuple of str
        The only values it may have; empty if there is no such list.
    optional : bool
        Whether None is a value.
    help : str
        From the numpydoc Parameters section, on one line.
    """

    name: str
    types: tuple[type, ...]
    default: Any
    choices: tuple[str, ...]
    optional: bool
    help: str

    @property
    def key(self) -> str:
        """Spelling in plans and in tables: ``max_iter``, ``lambda``."""
        return key_of(self.name)

    @property
    def flag(self) -> str:
        """Spelling on the command line: ``--max-iter``."""
        return "--" + self.key.replace("_", "-")

    @property
    def type_text(self) -> str:
        """The types in words: ``int | float``."""
        names = [t.__name__ for t in self.types] + (["none"] if self.optional else [])
        return " | ".join(self.choices or names)

    def parse(self, text: str) -> Any:
        """The value that `text` stands for.

        Raises
        ------
        UsageError
            It is none of the types or choices.
        """
        if self.choices:
            if text in self.choices:
                return text
            raise UsageError(f"{parameter(self.name)} must be one of {', '.join(self.choices)}; got {text!r}.")
        if self.optional and text.lower() == "none":
            return None
        for kind in (bool, int, float, str):
            if kind in self.types:
                try:
                    return _READ[kind](text)
                except ValueError:
                    continue
        raise UsageError(f"{parameter(self.name)} must be {self.type_text}; got {text!r}.")


def key_of(spelling: str) -> str:
    """The key that a spelling stands for: the command line's, Python's, or the key itself.

    >>> key_of("--max-iter"), key_of("lambda_"), key_of("k_s")
    ('max_iter', 'lambda', 'k_s')
    """
    return spelling.strip("-_").replace("-", "_")


def _truth(text: str) -> bool:
    if text.lower() in ("true", "yes", "1", "on"):
        return True
    if text.lower() in ("false", "no", "0", "off"):
        return False
    raise ValueError(text)


_READ: dict[type, Callable[[str], Any]] = {bool: _truth, int: int, float: float, str: str}


def selector_options(selector: type) -> list[Option]:
    """Options of a selector class, in the order of its signature, without `n_features_to_select`.

    Parameters
    ----------
    selector : type
        Its `__init__` is annotated with bool, int, float, str, None, Literal of strings and the generators of random
        numbers, which only Python can give; its class docstring documents every parameter.

    Raises
    ------
    TypeError
        A parameter is annotated otherwise, or is not documented: the class has to be corrected.
    """
    constructor = selector.__init__  # type: ignore[misc]
    annotations = typing.get_type_hints(constructor)
    texts = parameter_texts(inspect.getdoc(selector) or "")
    options = []
    for name, declared in inspect.signature(constructor).parameters.items():
        if name in ("self", "n_features_to_select"):
            continue
        if name not in texts:
            raise TypeError(f"{selector.__name__}: parameter {name!r} is not documented")
        kinds, choices, optional = _read_annotation(annotations[name], f"{selector.__name__}.{name}")
        options.append(Option(name, kinds, declared.default, choices, optional, texts[name]))
    return options


def check_parameters(
    selector: Any, *, positive: Collection[str] = (), minimums: Mapping[str, int] | None = None
) -> None:
    """Refuse values that the annotations of a selector's parameters do not allow.

    Parameters of more than one type are left to the selector.

    Parameters
    ----------
    selector : BaseSelector
    positive : collection of str
        Numbers that must be above 0; others may be 0.
    minimums : mapping of str to int
        Least values of whole numbers; 1 where there is none.

    Raises
    ------
    UsageError
    """
    minimums = minimums or {}
    for option in _options_of(typing.cast(Hashable, type(selector))):
        name, value = option.name, getattr(selector, option.name)
        if (option.optional and value is None) or isinstance(value, GENERATORS):
            continue
        if option.choices:
            if value not in option.choices:
                raise UsageError(f"{parameter(name)} must be {_alternatives(option.choices)}; got {value!r}")
        elif option.types == (bool,):
            if not isinstance(value, (bool, np.bool_)):
                raise UsageError(f"{parameter(name)} must be true or false; got {value!r}")
        elif option.types == (int,):
            lowest = minimums.get(name, 1)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < lowest:
                raise UsageError(f"{parameter(name)} must be a whole number of at least {lowest}; got {value!r}")
            if name == "random_state" and value > MAX_SEED:
                raise UsageError(f"{parameter(name)} must be at most {MAX_SEED}; got {value!r}")
        elif option.types == (float,):
            sign = "positive" if name in positive else "non-negative"
            if not is_number(value) or value < 0 or (value == 0 and name in positive):
                raise UsageError(f"{parameter(name)} must be a {sign} number; got {value!r}")


@functools.cache
def _options_of(selector: type) -> list[Option]:
    return selector_options(selector)


def _alternatives(choices: tuple[str, ...]) -> str:
    """'a', 'b' or 'c'."""
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last


def draw_seed(random_state: Seed) -> int:
    """The seed of a fit: a whole number as it is, 0 for None, and a number drawn from a generator.

    >>> draw_seed(None), draw_seed(7), draw_seed(np.random.RandomState(0)), draw_seed(np.random.default_rng(0))
    (0, 7, 209652396, 1826701615)
    """
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    return int(random_state or 0)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, and no truth value."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _read_annotation(annotation: Any, place: str) -> tuple[tuple[type, ...], tuple[str, ...], bool]:
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = typing.get_args(annotation) if union else (annotation,)
    kinds: list[type] = []
    choices: list[str] = []
    for member in members:
        if typing.get_origin(member) is typing.Literal:
            choices += typing.get_args(member)
        elif member in _READ:
            kinds.append(member)
        elif member is not type(None) and member not in GENERATORS:
            raise TypeError(f"{place}: an option cannot be made of {member}")
    return tuple(kinds or (str,)), tuple(choices), type(None) in members


def parameter_texts(docstring: str) -> dict[str, str]:
    """Text of every parameter in a numpydoc docstring, each on one line.

    >>> parameter_texts('''Title.
    ...
    ... Parameters
    ... ----------
    ... a, b : int
    ...     The first.
    ...     And more.
    ...
    ... Attributes
    ... ----------
    ... c : int
    ...     Other.
    ... ''')
    {'a': 'The first. And more.', 'b': 'The first. And more.'}
    """
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", docstring, re.M | re.S)
    texts: dict[str, str] = {}
    if section is None:
        return texts
    for entry in re.finditer(r"^(\S[^\n:]*?)\s*(?::[^\n]*)?\n((?:[ \t]+[^\n]*\n?|\n)*)", section[1], re.M):
        text = " ".join(entry[2].split())
        for name in entry[1].split(","):
            texts[name.strip()] = text
    return texts
