"""Aliases used in signatures, and arrays told in size letters.

`n` rows, `d` features, `q` labels, `k` features kept. X is (n, d), Y is (n, q) with 1 = positive,
0 = negative, -1 = unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
"""Numbers of any shape."""

Matrix: TypeAlias = Any
"""An ndarray or a csr_array; SciPy carries no types that would tell the two apart."""
#: Largest seed that scikit-learn takes.
MAX_SEED = 2**32 - 1

Seed: TypeAlias = int | np.random.Generator | np.random.RandomState | None
"""What `random_state` may be; None is the seed 0."""


class RowArray(NamedTuple):
    """An array that every process holds which reads the rows: which of them are meant, their weights."""

    name: str
    nbytes: int


def join_terms(*terms: str) -> str:
    """Terms of a workspace as one, without those that are empty.

    >>> join_terms("q d", "", "2 d d")
    'q d + 2 d d'
    """
    return " + ".join(filter(None, terms))


def workspace_bytes(workspace: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of the terms of a workspace, numbers of 8 bytes in size letters; like terms are one, and empty ones none.

    >>> workspace_bytes("2 q d + 0.5 d d + d q", {"d": 10, "q": 3})
    {'3 d q': 720, '0.5 d d': 400}
    """
    counts: dict[str, float] = {}
    for term in filter(None, workspace.split(" + ")):
        words = term.split()
        letters = " ".join(sorted(word for word in words if not word[0].isdigit()))
        count = math.prod(float(word) for word in words if word[0].isdigit())
        counts[letters] = counts.get(letters, 0.0) + count
    terms = {}
    for letters, count in counts.items():
        nbytes = math.ceil(8 * count * math.prod(sizes[letter] for letter in letters.split()))
        if nbytes:
            terms[f"{count:g} {letters}".removeprefix("1 ") if letters else "buffers"] = nbytes
    return terms


def numbers(nbytes: int) -> int:
    """Numbers of 8 bytes that hold as much."""
    return -(-nbytes // 8)
