"""What the methods share that weigh features against one another: their d × d terms are formed for candidates alone.

Up to `n_candidates` features all of them are candidates, and one reading gives everything. Of more features the first
reading tells which have most to do with the labels by themselves; a second one gives the terms of these with one
another. The others come after them in the ranking, in the order of the first reading.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DoesNotFitError, parameter
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.base import BaseSelector
from mlfs_dask.selectors.costs import Plan, require_driver
from mlfs_dask.typing import Profile, RowSource

Array = NDArray[np.float64]

#: Features that are weighed against one another by default: 128 MiB for a matrix of float64.
N_CANDIDATES = 4096


class CandidateSelector(BaseSelector):
    """Base class of methods that weigh candidates against one another."""

    n_candidates: int

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """As of `BaseSelector`; where something does not fit, fewer candidates are a cure."""
        m = min(self.n_candidates, (source if isinstance(source, Profile) else source.profile).d)
        cure = f"weigh fewer than {m:,} features against one another ({parameter('n_candidates')})"
        try:
            plan = super().plan(source, resources)
        except DoesNotFitError as error:
            raise DoesNotFitError(
                error.what, projected=error.projected, available=error.available, cure=f"{cure}, or {error.cure}"
            ) from None
        what = f"{self.method} in the driver process"
        return require_driver(plan, resources, what, cure=f"{cure}, or run the command on a machine with more memory")


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
