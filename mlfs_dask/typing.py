"""Aliases used in signatures, and arrays told in size letters.

`n` rows, `d` features, `q` labels, `k` features kept. X is (n, d), Y is (n, q) with 1 = positive,
0 = negative, -1 = unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Matrix: TypeAlias = Any
"""An ndarray or a csr_array; SciPy carries no types that would tell the two apart."""
#: Largest seed that scikit-learn takes.
MAX_SEED = 2**32 - 1

Seed: TypeAlias = int | np.random.Generator | np.random.RandomState | None
"""What `random_state` may be; None is the seed 0."""


class HeldArray(NamedTuple):
    """An array that the driver holds.

    Attributes
    ----------
    name : str
        As the method's paper calls it, or what it is.
    shape : str
        Size letters and numbers, separated by blanks: "d q", "2 d d".
    dtype : str
        NumPy's name.
    first, last : str
        Steps from which and to which it is held; empty: from the first, to the last.
    """

    name: str
    shape: str
    dtype: str = "f8"
    first: str = ""
    last: str = ""

    def nbytes(self, sizes: Mapping[str, int]) -> int:
        """Bytes of the array.

        >>> HeldArray("W", "2 d q").nbytes({"d": 10, "q": 3})
        480
        """
        factors = (int(word) if word.isdigit() else sizes[word] for word in self.shape.split())
        return math.prod(factors) * np.dtype(self.dtype).itemsize
