"""Products with sparse graphs, compiled, imported only where there are many rows.

A row of the result is the sum of its neighbours' rows, added up where it is written; rows are independent, so that
threads take their own. SciPy's product has the same bits in one thread, and an array for every block of rows.
"""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def add_neighbours(indptr, indices, data, V, first, last, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Rows first..last-1 of S V into `out`, S being CSR, V and `out` of shape (n, c)."""
    columns = V.shape[1]
    for i in range(first, last):
        for j in range(columns):
            out[i, j] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            weight = data[p]
            near = indices[p]
            for j in range(columns):
                out[i, j] += weight * V[near, j]
