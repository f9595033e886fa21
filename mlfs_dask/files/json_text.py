"""JSON of others, read without surprises, and plain data for our own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from mlfs_dask.errors import DataError
from mlfs_dask.files.redaction import redact


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says.

    Raises
    ------
    ValueError
        It is no JSON, or is nested so deeply that Python's parser gives up, with a RecursionError of its own.

    Examples
    --------
    >>> parse_json('{"k": 2}')
    {'k': 2}
    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def as_json(value: Any) -> Any:
    """Plain data that strict JSON can hold: NumPy values as Python's, NaN and infinities as null.

    URLs are without their secrets.
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


def require_known_format(version: int, newest: int, *, file: str | None) -> None:
    """Raise DataError for a document of a newer format than this version reads."""
    if version > newest:
        raise DataError(
            f"format_version {version} is newer than {newest}, the newest this version reads",
            file=file,
            cure="upgrade mlfs-dask",
        )
