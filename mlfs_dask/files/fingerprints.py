"""Digests of the source, of parameters and of arrays, by which results of an earlier job are reused."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


@functools.cache
def code_digest() -> str:
    """Return the digest of the package's whole source: a list of the modules that compute would miss one some day."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parents[1]
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def digest_of(identity: Mapping[str, Any]) -> str:
    """Return the digest of named plain values and arrays; an array counts with its dtype, shape and values.

    Parameters
    ----------
    identity : mapping
        Values that JSON can hold, with arrays anywhere among them.

    Examples
    --------
    >>> digest_of({"a": 1, "b": np.zeros(2)}) == digest_of({"b": np.zeros(2), "a": 1})
    True
    >>> digest_of({"b": np.zeros(2)}) == digest_of({"b": np.zeros((2, 1))})
    False
    """
    text = json.dumps(identity, sort_keys=True, default=_array_mark)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _array_mark(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    array = np.ascontiguousarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"no digest can be taken of {type(value).__name__}")
    content = hashlib.blake2b(array.view(np.uint8).data if array.size else b"", digest_size=16)
    return [array.dtype.str, list(np.shape(value)), content.hexdigest()]
