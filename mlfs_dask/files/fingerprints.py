"""What tells whether something kept from an earlier job may be used: digests of the code, of parameters, of arrays."""

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
    """Digest of the package's code, all of it: a list of what computes would be one to forget something in."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parents[1]
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def digest_of(identity: Mapping[str, Any]) -> str:
    """Digest of named plain values and arrays; of an array its type, shape and values count.

    Parameters
    ----------
    identity : mapping
        Values are what JSON can hold, and arrays in place of any of them.

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
