"""Non-negative factorisation of labels without random draws: the parts of one sign of the singular vectors.

C. Boutsidis, E. Gallopoulos, "SVD based initialization: a head start for nonnegative matrix factorization", Pattern
Recognition 41 (2008) 1350-1362, doi:10.1016/j.patcog.2007.09.010. The pairs come from the eigenvectors of Y'Y, so that
nothing but Y itself has n rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.rounding import SAME
from mlfs_dask.typing import Array

#: Share of the largest singular value below which a singular value counts as rounding.
_SMALLEST = 1e-6


def nonnegative_factors(Y: sp.csr_array, most: int) -> tuple[Array, Array]:
    """Return T and B, with Y ≈ V B for V = max(Y T, 0); V and B are non-negative.

    Parameters
    ----------
    Y : csr_array, shape (n, q)
        0/1.
    most : int
        Largest number of columns of T; fewer if the rank of Y is lower, but at least one.

    Returns
    -------
    T : float64 array, shape (q, l)
    B : float64 array, shape (l, q)
        Rows of norm 1.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]]))
    >>> T, B = nonnegative_factors(Y, 2)
    >>> np.maximum(Y @ T, 0.0).round(3)
    array([[1.414, 0.   ],
           [1.414, 0.   ],
           [0.   , 1.   ]])
    >>> B.round(3)
    array([[0.707, 0.707, 0.   ],
           [0.   , 0.   , 1.   ]])
    """
    wide = Y.astype(np.float64)

    def part_sizes(T: Array) -> Array:
        U = np.asarray(wide @ T)
        return np.stack([np.square(np.maximum(sign * U, 0.0)).sum(axis=0) for sign in (1, -1)])

    return factors_from_pairs((wide.T @ wide).toarray(), part_sizes, most)


def factors_from_pairs(pairs: Array, part_sizes: Callable[[Array], Array], most: int) -> tuple[Array, Array]:
    """Compute `nonnegative_factors` from Y'Y and the result of one more pass over Y.

    Parameters
    ----------
    pairs : float64 array, shape (q, q)
        Y'Y.
    part_sizes : callable
        ``part_sizes(T)`` returns, for T of shape (q, l), the sums of squares of the positive and of the negative part
        of every column of Y T, shape (2, l). Called once, or never if no label occurs.
    most : int

    Examples
    --------
    >>> Y = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> def part_sizes(T):
    ...     return np.stack([(np.maximum(sign * (Y @ T), 0.0) ** 2).sum(axis=0) for sign in (1, -1)])
    >>> factors_from_pairs(Y.T @ Y, part_sizes, 2)[1].round(3)
    array([[0.707, 0.707, 0.   ],
           [0.   , 0.   , 1.   ]])
    """
    q = len(pairs)
    values, vectors = np.linalg.eigh(pairs)
    size = np.sqrt(np.maximum(values[::-1], 0.0))
    rank = int((size > _SMALLEST * size[0]).sum())
    if rank == 0:  # no label occurs
        return np.zeros((q, 1)), np.eye(1, q)
    chosen = vectors[:, ::-1][:, : min(most, rank)]
    of_rows = np.sqrt(part_sizes(chosen))
    T, B = np.empty(chosen.shape), np.empty(chosen.shape[::-1])
    for j, t in enumerate(chosen.T):
        up, down = (of_rows[i, j] * np.linalg.norm(np.maximum(sign * t, 0.0)) for i, sign in enumerate((1.0, -1.0)))
        if abs(up - down) <= SAME * max(up, down):
            # The sign of an eigenvector is arbitrary: choose the part with the first of its largest entries.
            large = np.abs(t) >= (1 - 1e-6) * np.abs(t).max()
            sign = 1.0 if t[large.argmax()] > 0 else -1.0
        else:
            sign = 1.0 if up > down else -1.0
        B[j] = np.maximum(sign * t, 0.0)
        norm = float(np.linalg.norm(B[j]))
        B[j] /= norm
        T[:, j] = norm * sign * t  # Y t is the left singular vector times the singular value
    return T, B
