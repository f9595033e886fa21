"""Clusters of highly correlated features, each with one representative.

The ranking is processed from the best feature on: a feature whose correlation with an earlier representative reaches
the bound joins the cluster of the most similar representative; any other feature becomes a representative. The
correlations come from X'X of a part of the ranking, in one pass over its columns. If the part has too few
representatives, the next part is read, together with the representatives so far.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, DoesNotFitError, parameter
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.rows.view import RowView
from mlfs_dask.selectors.costs import Names, Reading, Readings
from mlfs_dask.statistics.gram import GRAM_CAP, Gram
from mlfs_dask.typing import Array

#: Name of the pass.
REDUNDANCY = "redundancy"

#: Features of a part in addition to twice the number to choose.
FURTHER_FEATURES = 64

#: Decimals of a correlation; further ones depend on the order of summation, and copies of a feature must have 1.
DECIMALS = 9

#: Row of a table of clusters.
ROW = np.dtype([("cluster", "i8"), ("feature", "i8"), ("representative", "i8"), ("similarity", "f8")])


def part_size(k: int, d: int) -> int:
    """Return the number of features of a part, for k features to choose of d.

    Raises
    ------
    DoesNotFitError
        If X'X of more than `GRAM_CAP` features would be needed.
    """
    if min(k, d - 1) >= GRAM_CAP:
        raise DoesNotFitError(
            f"correlations of {k:,} features, of which X'X has at most {GRAM_CAP:,}",
            projected=8 * k * k,
            available=8 * GRAM_CAP**2,
            cure=f"choose fewer features ({parameter('n_features_to_select')})",
        )
    return min(d, 2 * k + FURTHER_FEATURES, GRAM_CAP)


def planned_reading(source: Profile | RowSource, k: int, *, fills_up: bool) -> Reading:
    """Return the pass over correlations for a plan; it is repeated if too many features are dropped.

    Parameters
    ----------
    source : Profile or RowSource
    k : int
        Number of features to choose.
    fills_up : bool
        True if further features replace dropped ones.
    """
    profile = profile_of(source)
    size = part_size(k, profile.d)
    most = 1 if not fills_up or size == profile.d else 1 + math.ceil((profile.d - size) / max(size - k, 1))
    view = RowView(source, features=np.arange(size)) if isinstance(source, RowSource) else None
    statistic = Gram(size, weighted=profile.weight is not None)
    return Reading(REDUNDANCY, (statistic,), times=most, typical=(1, 1) if most > 1 else None, source=view)


def find_clusters(
    readings: Readings, ranking: NDArray[np.int64], bound: float, k: int, *, fills_up: bool, names: Names
) -> NDArray[np.void]:
    """Return the clusters of the first features of a ranking.

    Parameters
    ----------
    readings : Readings
        Passes of the fit; the features in `readings.kept` are always representatives.
    ranking : int64 array
        Eligible features, best first.
    bound : float
        Absolute correlation from which a feature joins a cluster.
    k : int
        Number of representatives to find.
    fills_up : bool
        True: read parts of the ranking until there are k representatives. False: read only the first part.
    names : Names
        Names of the features.

    Returns
    -------
    array of `ROW`
        Every processed feature, in the order of the ranking: its cluster, from 1, its representative, and the
        absolute correlation between the two; 1 for a representative.

    Raises
    ------
    DataError
        If a feature lacks values, which the method treats as a code of its own.
    DoesNotFitError, ClusterLostError
    """
    size = part_size(k, len(ranking)) if len(ranking) else 0
    representatives: list[int] = []
    members: list[tuple[int, int, int, float]] = []
    kept = set(readings.kept.tolist())
    start = 0
    while start < len(ranking):
        part = ranking[start : start + size - len(representatives)]
        start += len(part)
        columns = np.sort(np.concatenate([np.array(representatives, np.int64), part]))
        correlations = _correlations(readings, columns, names)
        index_of = dict(zip(columns.tolist(), range(len(columns)), strict=True))
        indices = [index_of[f] for f in representatives]
        for f in part.tolist():
            similarities = correlations[index_of[f], indices] if indices else np.empty(0)
            best = int(np.argmax(similarities)) if len(similarities) else -1
            if f in kept or best < 0 or similarities[best] < bound:
                representatives.append(f)
                indices.append(index_of[f])
                members.append((len(representatives), f, f, 1.0))
            else:
                members.append((best + 1, f, representatives[best], float(similarities[best])))
            if fills_up and len(representatives) == k:
                return np.array(members, ROW)
        if not fills_up:
            break
    return np.array(members, ROW)


def _correlations(readings: Readings, columns: NDArray[np.int64], names: Names) -> Array:
    """Return the absolute correlations of features, shape (c, c); 0 with a constant feature."""
    source = readings.source
    view = RowView(source, features=columns)
    (gram,) = readings.run(REDUNDANCY, Gram(len(columns), weighted=source.weights is not None), source=view)
    squares = np.diagonal(gram).copy()
    if not np.isfinite(squares).all():
        feature = int(columns[np.flatnonzero(~np.isfinite(squares))[0]])
        raise DataError(
            "it lacks values, or has infinite ones, and has no correlation with others",
            column=feature if names.features is None else str(names.features[feature]),
            cure=f"choose {parameter('missing', 'mean')}, or leave out {parameter('prune')}",
        )
    length = np.sqrt(squares)
    scale = np.divide(1.0, length, out=np.zeros(len(length)), where=length > 0)
    gram *= scale
    gram *= scale[:, np.newaxis]
    correlations: Array = np.round(np.abs(gram, out=gram), DECIMALS, out=gram)
    return correlations
