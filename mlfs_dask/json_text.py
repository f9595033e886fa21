"""JSON of others: read without surprises."""

from __future__ import annotations

import json
from typing import Any


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
