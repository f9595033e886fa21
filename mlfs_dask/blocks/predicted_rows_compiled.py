"""Compiled row step of Access-MFS for rows of which some labels are known: a small system of its own for every row."""

from __future__ import annotations

from numba import njit

#: Most sweeps; a system is diagonally dominant, and some ten to thirty are usual.
MAX_SWEEPS = 200

#: Change of a row, relative to its largest entry, at which its sweeps end.
SETTLED = 1e-13


@njit(cache=True, nogil=True)
def solve_rows(F, right, known, coupling, level):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Solve f (level·I + diag(known_i) + coupling) = right_i for every row of F, in place, by Gauss-Seidel sweeps.

    Parameters: F, right float64 (rows, q), F where to start; known bool (rows, q); coupling float64 (q, q), symmetric
    and positive semidefinite; level > 0.
    """
    rows, q = F.shape
    for i in range(rows):
        f = F[i]
        for _ in range(MAX_SWEEPS):
            change, size = 0.0, 0.0
            for j in range(q):
                left = right[i, j]
                for t in range(q):
                    left -= coupling[j, t] * f[t]
                new = (left + coupling[j, j] * f[j]) / (level + known[i, j] + coupling[j, j])
                change = max(change, abs(new - f[j]))
                size = max(size, abs(new))
                f[j] = new
            if change <= SETTLED * size:
                break
