"""Ants that walk from feature to feature, and the pheromone that they leave: ant colony optimisation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.typing import Array


def lay_pheromone(
    attraction: Array, pheromone: Array, *, n_ants: int, n_moves: int, n_cycles: int, decay: float, seed: int
) -> Array:
    """Return the pheromone of features after some cycles, in which ants visit features one after another.

    An ant begins at a feature that is drawn. In move i of N it goes to the feature g, among those that it has not
    visited, of the largest pheromone times attraction with probability 1 − (1 − i/N)^0.7, and else to one that is drawn
    in proportion to these. Where no feature is left that attracts it the walk ends. After a cycle of all ants the
    pheromone decays, and every feature gets its share of the moves.

    Parameters
    ----------
    attraction : float64 array, shape (d, d)
        Of the feature in the column for an ant at the feature in the row.
    pheromone : float64 array, shape (d,)
        At the start.
    n_ants, n_moves, n_cycles : int
        No more ants than features, which begin at different ones.
    decay : float
        Share of the pheromone that a cycle takes.
    seed : int
        Of the Mersenne Twister, one draw of which each ant takes for its start, and one or two a move takes.

    Returns
    -------
    float64 array, shape (d,)

    Examples
    --------
    An ant that begins at either of two features goes to the other.

    >>> lay_pheromone(np.ones((2, 2)), np.ones(2), n_ants=2, n_moves=1, n_cycles=1, decay=0.5, seed=0)
    array([1., 1.])
    """
    # The stream of `rand('twister', seed)` of MATLAB and Octave, which is that of a list of one number in NumPy.
    draw: Callable[..., float] = np.random.RandomState([seed]).random_sample
    with runtime.stage("searching by ants", n_cycles, unit="cycles") as report_progress:
        for _ in range(n_cycles):
            visits = np.zeros(len(pheromone))
            for start in _draw_starts(len(pheromone), n_ants, draw):
                _walk(attraction, pheromone, start, n_moves, draw, visits)
            pheromone = (1.0 - decay) * pheromone + visits / max(visits.sum(), 1.0)
            report_progress()
    return pheromone


def _draw_starts(d: int, n_ants: int, draw: Callable[..., float]) -> NDArray[np.intp]:
    """Return different features, each as likely: the first of a shuffle (Fisher & Yates)."""
    order = np.arange(d)
    for ant, number in enumerate([draw() for _ in range(n_ants)]):
        other = ant + int(number * (d - ant))
        order[ant], order[other] = order[other], order[ant]
    return order[:n_ants]


def _walk(
    attraction: Array, pheromone: Array, at: int, n_moves: int, draw: Callable[..., float], visits: Array
) -> None:
    """Walk one ant from a feature; its visits are added in place."""
    left = pheromone.copy()
    left[at] = 0.0
    weights = np.empty_like(left)
    for move in range(1, n_moves + 1):
        np.multiply(attraction[at], left, out=weights)
        if draw() > (1.0 - move / n_moves) ** 0.7:
            at = int(weights.argmax())
        else:
            cumulated = weights.cumsum()
            at = int(cumulated.searchsorted(draw() * cumulated[-1]))
        if weights[at] <= 0.0:
            return
        left[at] = 0.0
        visits[at] += 1.0
