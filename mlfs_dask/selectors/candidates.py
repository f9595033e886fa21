"""What the methods share that weigh features against one another: their d × d terms are formed for candidates alone.

Up to `n_candidates` features all of them are candidates, and one reading gives everything. Of more features the first
reading tells which have most to do with the labels by themselves; a second one gives the terms of these with one
another. The others come after them in the ranking, in the order of the first reading.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Features that are weighed against one another by default: 128 MiB for a matrix of float64.
N_CANDIDATES = 4096


def best_candidates(relevance: Array, most: int) -> NDArray[np.intp]:
    """The `most` features of largest relevance, rising; ties by lower index.

    >>> best_candidates(np.array([0.5, 2.0, 0.5]), 2)
    array([0, 1])
    """
    return np.sort(np.argsort(-relevance, kind="stable")[:most])


def join_scores(scores: Array, candidates: NDArray[np.intp], relevance: Array) -> Array:
    """Scores of all features: of the candidates as they are, and below them the others in the order of their relevance.

    Parameters
    ----------
    scores : float64 array, shape (m,)
        Of the candidates.
    candidates : int array, shape (m,)
    relevance : float64 array, shape (d,)

    Examples
    --------
    >>> join_scores(np.array([3.0, 2.0]), np.array([1, 3]), np.array([0.0, 9.0, 0.5, 8.0]))
    array([0.5, 3. , 1. , 2. ])
    """
    joined = np.empty(len(relevance))
    joined[candidates] = scores
    others = np.ones(len(relevance), dtype=bool)
    others[candidates] = False
    if others.any():
        joined[others] = scores.min() - 1.0 - (relevance[others].max() - relevance[others])
    return joined


def candidate_facts(d: int, candidates: NDArray[np.intp]) -> dict[str, Any]:
    """For the record: how many features are scored by what."""
    scales = {"among the candidates": len(candidates), "alone": d - len(candidates)}
    return {"score_scales": [{"scale": scale, "features": count} for scale, count in scales.items() if count]}
