"""MLACO of Paniri, Dowlatshahi & Nezamabadi-pour (2020), ant after ant, on the rows themselves."""

from __future__ import annotations

import numpy as np


def mlaco(X, Y, *, n_ants=25, n_cycles=40, tour_length=0.5, decay=0.1, variant="corrected", seed=0):
    """Pheromone at the end; of features that vary and are no copies of one another."""
    Y = np.asarray(Y, dtype=float)
    d = X.shape[1]
    correlations = np.abs(np.corrcoef(X, Y, rowvar=False))
    relevance, redundancy = correlations[:d, d:].max(axis=1), correlations[:d, :d]
    Z = X if variant == "published" else X - X.mean(axis=0)
    lengths = np.outer(np.linalg.norm(Z, axis=0), np.linalg.norm(Y, axis=0))
    pheromone = (np.abs(Z.T @ Y) / lengths).max(axis=1)
    pheromone = (pheromone - pheromone.min()) / (pheromone.max() - pheromone.min())
    order = np.arange(d)
    if variant == "corrected":
        order = np.argsort(-relevance)
        redundancy = np.maximum(redundancy, 1e-4)
    relevance, pheromone, redundancy = relevance[order], pheromone[order], redundancy[np.ix_(order, order)]
    numbers = iter(np.random.RandomState([seed]).random_sample(10**6))
    moves = int(tour_length * d)
    for _ in range(n_cycles):
        starts = list(range(d))
        for ant, number in enumerate([next(numbers) for _ in range(min(n_ants, d))]):
            other = ant + int(number * (d - ant))
            starts[ant], starts[other] = starts[other], starts[ant]
        visits = np.zeros(d)
        for start in starts[: min(n_ants, d)]:
            path = [start]
            for move in range(1, moves + 1):
                weights = pheromone * relevance / redundancy[path[-1]]
                weights[path] = 0.0
                if next(numbers) > (1.0 - move / moves) ** 0.7:
                    path.append(int(np.argmax(weights)))
                else:
                    path.append(int(np.searchsorted(np.cumsum(weights), next(numbers) * weights.sum())))
            np.add.at(visits, path[1:], 1.0)
        pheromone = (1.0 - decay) * pheromone + visits / visits.sum()
    scores = np.empty(d)
    scores[order] = pheromone
    return scores
