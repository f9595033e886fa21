"""Parameters as data: text, types and bounds, from the annotation of a field; checks, options and schemas from these.

mu: Annotated[float, Param("Weight of X'HX beside the identity.", below=1)] = 0.5
"""

from __future__ import annotations

import math
import textwrap
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from mlfs_dask.blocks.counts import MAX_CODES
from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.typing import MAX_SEED, Seed

#: Values of `random_state` that have no form in text.
GENERATORS = (np.random.Generator, np.random.RandomState)


@dataclass(frozen=True)
class Param:
    """Text of a parameter, and the bounds of its values.

    Where there is neither `above` nor `least`, whole numbers are at least 1 and others at least 0.

    Attributes
    ----------
    text : str
        What it means, with defaults that follow from the data.
    above, below : float, optional
        Bounds that no value reaches.
    least, most : float, optional
        Bounds that a value may have; infinite is a value where `most` is.
    metavar : str
        What stands for a value in the help of the command line; by default its type.
    also : str
        Types of values that Python alone takes, as a type hint.
    """

    text: str
    above: float | None = None
    below: float | None = None
    least: float | None = None
    most: float | None = None
    metavar: str = ""
    also: str = ""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a method, read from its annotation.

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
    param : Param
    seeds : bool
        Whether generators of random numbers are values, too.
    many : bool
        Whether its value is a sequence of such values, of one at least.
    """

    name: str
    types: tuple[type, ...]
    default: Any
    choices: tuple[str, ...] = ()
    optional: bool = False
    param: Param = Param("")
    seeds: bool = False
    many: bool = False

    @property
    def one(self) -> Parameter:
        """Parameter of one element of a sequence; else the parameter itself."""
        return replace(self, many=False)

    @property
    def help(self) -> str:
        """Meaning of the parameter."""
        return self.param.text

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

    @property
    def metavar(self) -> str:
        """Placeholder of a value in the help of the command line: choices as they are typed, or the type.

        None is named where it is not the default, which needs no typing.
        """
        names = list(self.choices) or [_METAVARS[t] for t in self.types]
        if self.optional and self.default is not None:
            names.append("none")
        return self.param.metavar or "|".join(names)

    @property
    def range(self) -> str:
        """The bounds of a number as in the help of the command line: ``x>=1``, ``0<x<1``; empty without bounds."""
        if self.choices or self.types not in ((int,), (float,)):
            return ""
        lowest = f"{self.least:g}{'<=' if self.param.above is None else '<'}x"
        if self.param.below is not None:
            return f"{lowest}<{self.param.below:g}"
        if self.param.most not in (None, math.inf):
            return f"{lowest}<={self.param.most:.10g}"
        return f"x{'>=' if self.param.above is None else '>'}{self.least:g}"

    @property
    def least(self) -> float:
        """The least value of a number; no value has it where `Param.above` is given."""
        bounds = (self.param.above, self.param.least, 1 if self.types == (int,) else 0)
        return next(bound for bound in bounds if bound is not None)

    @property
    def values(self) -> str:
        """The values in words: "a positive number", "'a', 'b' or 'c'"."""
        if self.many:
            return f"one or more of {', '.join(self.choices)}" if self.choices else "one or more texts"
        if self.choices:
            *others, last = map(repr, self.choices)
            return f"{', '.join(others)} or {last}" if others else last
        if self.types == (bool,):
            return "true or false"
        if self.types not in ((int,), (float,)):
            return self.type_text if str in self.types else "a number"
        whole, param = self.types == (int,), self.param
        noun = "whole number" if whole else "number"
        if param.most is not None and param.above is not None:
            return f"a {noun} above {param.above:g} and at most {param.most:.10g}"
        if param.most is not None:
            return f"a {noun} from {self.least:g} to {param.most:.10g}"
        sign = "positive" if param.above == 0 else "non-negative"
        text = f"a {noun} of at least {self.least:g}" if whole else f"a {sign} {noun}"
        if param.above:
            text = f"a {noun} above {param.above:g}"
        return text if param.below is None else f"{text} below {param.below:g}"

    def accepts(self, value: Any) -> bool:
        """Return True if the parameter accepts a value. The method itself checks parameters of several number types."""
        if (value is None and self.optional) or (self.seeds and isinstance(value, GENERATORS)):
            return True
        if self.many:
            return isinstance(value, (list, tuple)) and len(value) > 0 and all(map(self.one.accepts, value))
        if self.choices:
            return isinstance(value, str) and value in self.choices
        if self.types == (bool,):
            return isinstance(value, (bool, np.bool_))
        if self.types not in ((int,), (float,)):
            return True
        whole, param = self.types == (int,), self.param
        return (
            (is_number(value) or (isinstance(value, float) and value == param.most))
            and (not whole or isinstance(value, (int, np.integer)))
            and (value > self.least or (value == self.least and param.above is None))
            and (param.below is None or value < param.below)
            and (param.most is None or value <= param.most)
        )

    @property
    def schema(self) -> dict[str, Any]:
        """The values as a JSON schema, with their bounds; a sequence of one may be its element alone."""
        if self.many:
            one = self.one.schema
            return {"anyOf": [one, {"type": "array", "minItems": 1, "items": one}]}
        if self.choices:
            kinds: list[dict[str, Any]] = [{"enum": list(self.choices)}]
        else:
            kinds = [{"type": _SCHEMA_TYPES[kind]} for kind in self.types]
        if self.types in ((int,), (float,)):
            lowest = "minimum" if self.param.above is None else "exclusiveMinimum"
            bounds = {lowest: self.least, "exclusiveMaximum": self.param.below, "maximum": self.param.most}
            kinds[0] |= {name: bound for name, bound in bounds.items() if bound not in (None, math.inf)}
        kinds += [{"type": "null"}] if self.optional else []
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}

    def check(self, value: Any) -> None:
        """Refuse a value that it cannot have.

        Raises
        ------
        UsageError
        """
        if not self.accepts(value):
            raise UsageError(f"{parameter(self.name)} must be {self.values}; got {value!r}")
        if self.seeds and isinstance(value, (int, np.integer)) and value > MAX_SEED:
            raise UsageError(f"{parameter(self.name)} must be at most {MAX_SEED}; got {value!r}")

    def parse(self, text: str) -> Any:
        """Return the value that `text` stands for.

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
        raise UsageError(f"{parameter(self.name)} must be {self.values}{' or none' * self.optional}; got {text!r}.")

    @property
    def documentation(self) -> str:
        """Its entry in a numpydoc section, four blanks within a docstring."""
        kinds = [kind.__name__ for kind in self.types] + ["Generator", "RandomState"] * self.seeds
        kinds += [kind.partition("[")[0].lower() for kind in filter(None, self.param.also.split(" | "))]
        kind = " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
        if self.choices:
            kind = f"{{{', '.join(map(repr, self.choices))}}}".replace("'", '"')
        shown = f'"{self.default}"' if isinstance(self.default, str) else self.default
        default = f"default {shown}" if self.default is not None else "optional"
        text = textwrap.fill(self.param.text, 112, initial_indent=" " * 8, subsequent_indent=" " * 8)
        return f"    {self.name} : {kind}, {default}\n{text}"


def key_of(spelling: str) -> str:
    """Return the key that a spelling stands for: the command line's, Python's, or the key itself.

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


_SCHEMA_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_METAVARS = {bool: "true|false", int: "INT", float: "FLOAT", str: "TEXT"}
_READ: dict[type, Callable[[str], Any]] = {bool: _truth, int: int, float: float, str: str}


def read_parameter(name: str, hint: Any, default: Any, owner: str) -> Parameter:
    """Return the parameter that an annotation describes.

    Raises
    ------
    TypeError
        It has no `Param`, or a type that no text stands for: the class has to be corrected.
    """
    kind = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    param = next((note for note in typing.get_args(hint) if isinstance(note, Param)), None)
    if param is None:
        raise TypeError(f"{owner}: parameter {name!r} is not documented")
    many = typing.get_origin(kind) is tuple  # tuple[kind, ...]
    if many:
        kind = typing.get_args(kind)[0]
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    members = typing.get_args(kind) if union else (kind,)
    kinds: list[type] = []
    choices: list[str] = []
    for member in members:
        if typing.get_origin(member) is Literal:
            choices += typing.get_args(member)
        elif member in _READ:
            kinds.append(member)
        elif member is not types.NoneType and member not in GENERATORS:
            raise TypeError(f"{owner}.{name}: an option cannot be made of {member}")
    seeds, optional = any(member in GENERATORS for member in members), types.NoneType in members
    return Parameter(name, tuple(kinds or (str,)), default, tuple(choices), optional, param, seeds, many)


def draw_seed(random_state: Seed) -> int:
    """Return the seed of a fit: a whole number as it is, 0 for None, and a number drawn from a generator.

    >>> draw_seed(None), draw_seed(7), draw_seed(np.random.RandomState(0)), draw_seed(np.random.default_rng(0))
    (0, 7, 209652396, 1826701615)
    """
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    return int(random_state or 0)


def is_number(value: Any) -> bool:
    """Return True if a value is a finite number and not a bool."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    try:
        return number and math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


# ------------------------------------------------------------------ parameters that several methods have

Bins: TypeAlias = Annotated[
    int,
    Param(
        "Number of codes of a numeric feature. 0/1 and categorical features keep their values as codes.",
        least=2,
        most=MAX_CODES,
    ),
]

Binning: TypeAlias = Annotated[
    Literal["auto", "quantile", "equal-width"],
    Param(
        'Cut points of numeric features. "quantile": equal numbers of rows in the codes. "equal-width": '
        'equal parts between minimum and maximum. "auto": as "quantile", and a feature that is mostly 0 '
        "has a code for 0."
    ),
]

_FILLED = (
    "filled with the feature's mean or its median, which is that of 16 384 rows drawn at random where there are more."
)

Missing: TypeAlias = Annotated[
    Literal["error", "mean", "median"], Param(f"Missing feature values are an error, or are {_FILLED}")
]

MissingOrCode: TypeAlias = Annotated[
    Literal["error", "code", "mean", "median"],
    Param(f"Missing feature values are an error, get a code of their own, or are {_FILLED}"),
]

Resamples: TypeAlias = Annotated[
    int,
    Param(
        "Number of random halves of the rows, which give each feature a rank interval and a selection frequency.",
        least=0,
    ),
]

Absolute: TypeAlias = Annotated[
    bool,
    Param("Take the weight of the penalty as absolute. By default it is relative to the least weight at which W = 0."),
]

GramCap: TypeAlias = Annotated[
    int, Param("Largest number of features for which X'X is formed; more features are refused.", least=0)
]

AnchorCount: TypeAlias = Annotated[
    int, Param("Number of anchors, placed by k-means on a sample of the rows; at most a quarter of the rows.")
]

AnchorNeighbors: TypeAlias = Annotated[int, Param("Number of nearest anchors to which a row belongs.")]

MaxIter: TypeAlias = Annotated[int, Param("Maximum number of iterations.")]

Stop: TypeAlias = Annotated[
    Literal["objective", "ranking"],
    Param(
        'Rule that ends the passes. "objective": its change falls to `tol`. "ranking": the same, or in two passes in a '
        "row the Spearman correlation with the scores of the pass before is at least 0.999 and 98 % of the selected "
        "features stay selected (the best fifth without a number of features). With all rows in memory always "
        '"objective".'
    ),
]

StepsPerPass: TypeAlias = Annotated[
    int,
    Param(
        "Maximum number of updates between two passes, of which all but the first are from predicted sums. 1: a pass "
        "for each."
    ),
]


def seed_of(text: str) -> Param:
    """Return the `Param` of a `random_state`."""
    return Param(f"Seed of {text}.", least=0)


#: What `n_features_to_select` may be of methods that shuffle labels.
ON_AUTO = '"auto": those that go with the labels more than by chance, at the false discovery rate `fdr`.'
