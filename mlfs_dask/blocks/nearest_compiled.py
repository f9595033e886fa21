"""One step of every compiled search: a candidate takes its place among the k nearest found so far."""

from __future__ import annotations

from mlfs_dask.blocks.compiling import njit


@njit()
def take_place(indices, best, index, value):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Put a candidate nearer than the last of the k in its place, behind those that are as near; the last one leaves.

    Parameters: indices, integers (k,); best, numbers (k,), rising; index and value of the candidate.
    """
    place = len(best) - 1
    while place > 0 and best[place - 1] > value:
        best[place] = best[place - 1]
        indices[place] = indices[place - 1]
        place -= 1
    best[place] = value
    indices[place] = index
