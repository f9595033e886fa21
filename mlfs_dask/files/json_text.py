"""Strict parsing of JSON from others, and conversion of the package's own values to JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from mlfs_dask.errors import DataError
from mlfs_dask.redaction import redact


def parse_json(text: str | bytes, form: Any = Any) -> Any:
    """Parse a JSON text, and check its form.

    Parameters
    ----------
    text : str or bytes
    form : type, optional
        Expected type, as in `json_reader`.

    Raises
    ------
    ValueError
        The text is no JSON, has another form, or is nested too deeply for Python's parser.

    Examples
    --------
    >>> parse_json('{"k": 2}')
    {'k': 2}
    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    >>> parse_json('{"k": ["a", 3]}', dict[str, list[str]])
    Traceback (most recent call last):
    ValueError: k: 1: a text was expected, not 3
    """
    try:
        return json_reader(form)(json.loads(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def json_reader(form: Any) -> Callable[[Any], Any]:
    """Return a function that converts a JSON value to a type, or raises TypeError with location and value.

    Parameters
    ----------
    form : type
        str, bool, float, int (from 0, below 2**53, where all JSON parsers agree), list, tuple or dict of a supported
        type, a TypedDict (other keys pass unchecked), a supported type or None, or Any.
    """
    if is_typeddict(form):
        fields = {name: json_reader(field) for name, field in get_type_hints(form).items()}

        def document(value: Any) -> Any:
            mapping = _require_type(value, Mapping, "a mapping")
            if missing := form.__required_keys__ - mapping.keys():
                raise TypeError(f"{min(missing)} is missing")
            return {key: _read_item(fields[key], key, item) if key in fields else item for key, item in mapping.items()}

        return document
    kind, items = get_origin(form), [json_reader(argument) for argument in get_args(form) if argument is not ...]
    if kind is dict:
        return lambda value: {
            items[0](key): _read_item(items[1], key, item)
            for key, item in _require_type(value, Mapping, "a mapping").items()
        }
    if kind in (tuple, list):
        return lambda value: kind(
            _read_item(items[0], str(number), item) for number, item in enumerate(_require_type(value, list, "a list"))
        )
    if kind is UnionType:
        return lambda value: None if value is None else items[0](value)
    return _PLAIN.get(form, lambda value: value)


def _read_item(read: Callable[[Any], Any], location: str, value: Any) -> Any:
    try:
        return read(value)
    except TypeError as error:
        raise TypeError(f"{location}: {error}") from None


def _require_type(value: Any, kind: Any, what: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{what} was expected, not {value!r:.100}")
    return value


def _count(value: Any) -> int:
    if not 0 <= _require_type(value, int, "a whole number") < 2**53:
        raise TypeError(f"a whole number from 0 was expected, not {value!r:.100}")
    return int(value)


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    str: lambda value: _require_type(value, str, "a text"),
    bool: lambda value: _require_type(value, bool, "true or false"),
    float: lambda value: _require_type(value, int | float, "a number"),
    int: _count,
}


def parse_categories(text: str) -> dict[int, tuple[str, ...]]:
    """Parse a JSON text of feature index -> category values in the order of their codes.

    Raises
    ------
    ValueError
    """
    return {int(feature): values for feature, values in parse_json(text, dict[str, tuple[str, ...]]).items()}


def as_json(value: Any) -> Any:
    """Convert a value to plain data of strict JSON: NumPy values to Python's, NaN and infinities to null.

    URLs lose their secrets.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return redact(value) if isinstance(value, str) else value


def document_text(value: Any) -> str:
    """Return the text of a JSON file with a value (`as_json`), for people and programs."""
    return json.dumps(as_json(value), indent=2, allow_nan=False) + "\n"


def require_known_format(version: int, newest: int, *, file: str | None) -> None:
    """Raise DataError if a document's format is newer than this version reads."""
    if version > newest:
        raise DataError(
            f"format_version {version} is newer than {newest}, the newest this version reads",
            file=file,
            cure="upgrade mlfs-dask",
        )
