"""Type aliases of signatures, and the notation for array sizes.

`n` rows, `d` features, `q` labels, `k` selected features. X is (n, d), Y is (n, q) with 1 = positive,
0 = negative, -1 = unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
"""Float array of any shape."""

Matrix: TypeAlias = Any
"""An ndarray or a csr_array; SciPy has no types that distinguish the two."""
#: Largest seed that scikit-learn accepts.
MAX_SEED = 2**32 - 1

Seed: TypeAlias = int | np.random.Generator | np.random.RandomState | None
"""Type of `random_state`; None stands for seed 0."""


class RowArray(NamedTuple):
    """Array that every process of a pass holds, such as a row mask or row weights."""

    name: str
    nbytes: int


def join_terms(*terms: str) -> str:
    """Join terms of a workspace, skipping empty ones.

    >>> join_terms("q d", "", "2 d d")
    'q d + 2 d d'
    """
    return " + ".join(filter(None, terms))


def workspace_bytes(workspace: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of each term of a workspace, in 8-byte numbers; like terms are merged, zero terms dropped.

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
    """Return how many 8-byte numbers `nbytes` holds, rounded up."""
    return -(-nbytes // 8)
