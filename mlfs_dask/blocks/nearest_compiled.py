"""Insertion step of all compiled neighbour searches."""

from __future__ import annotations

from mlfs_dask.blocks.compiling import njit


@njit()
def insert_neighbour(indices, best, index, value):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Insert a candidate that is nearer than the k-th neighbour, after equally near ones, and drop the k-th.

    Parameters: indices, integers (k,); best, numbers (k,), ascending; index and value of the candidate.
    """
    place = len(best) - 1
    while place > 0 and best[place - 1] > value:
        best[place] = best[place - 1]
        indices[place] = indices[place - 1]
        place -= 1
    best[place] = value
    indices[place] = index
