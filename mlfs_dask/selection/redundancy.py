"""Features that say the same: clusters of those whose correlation is high, and a representative of each that is kept.

One goes down the ranking: a feature whose correlation with an earlier representative is at least the bound belongs to
the cluster of the one that it is most alike; any other is a representative itself. The correlations come from X'X of a
part of the ranking, in one reading of these columns alone. Where so many are passed over that the part has too few
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

#: What the reading is called.
REDUNDANCY = "redundancy"

#: Features of a part beside twice as many as are chosen.
FURTHER_FEATURES = 64

#: Decimals of a correlation: those beyond differ by the order of summation, and copies of a feature have 1.
DECIMALS = 9

#: A row of a table of clusters.
ROW = np.dtype([("cluster", "i8"), ("feature", "i8"), ("representative", "i8"), ("similarity", "f8")])


def part_size(k: int, d: int) -> int:
    """Features of a part, for k that are chosen of d.

    Raises
    ------
    DoesNotFitError
        X'X of more features would be needed than is formed.
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
    """The reading of correlations, for a plan; it is repeated where too many features are passed over.

    Parameters
    ----------
    source : Profile or RowSource
    k : int
        Features to choose.
    fills_up : bool
        Whether others take the places of those that are passed over.
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
    """Clusters of the first features of a ranking: features that say the same.

    Parameters
    ----------
    readings : Readings
        Of the fit; `readings.kept` are representatives in any case.
    ranking : int64 array
        Features that may be chosen, best first.
    bound : float
        Correlation, without its sign, from which features say the same.
    k : int
        Representatives to find.
    fills_up : bool
        Whether parts of the ranking are read until there are k; else the first part alone.
    names : Names
        Of the features.

    Returns
    -------
    array of `ROW`
        Every feature that was looked at, in the order of the ranking: number of its cluster from 1, its representative,
        and the correlation with it without its sign; of a representative 1.

    Raises
    ------
    DataError
        A feature lacks values, which the method counts as a code.
    DoesNotFitError, ClusterLostError
    """
    size = part_size(k, len(ranking)) if len(ranking) else 0
    found: list[int] = []
    members: list[tuple[int, int, int, float]] = []
    kept = set(readings.kept.tolist())
    start = 0
    while start < len(ranking):
        part = ranking[start : start + size - len(found)]
        start += len(part)
        columns = np.sort(np.concatenate([np.array(found, np.int64), part]))
        alike = _correlations(readings, columns, names)
        place = dict(zip(columns.tolist(), range(len(columns)), strict=True))
        places = [place[f] for f in found]
        for f in part.tolist():
            near = alike[place[f], places] if places else np.empty(0)
            best = int(np.argmax(near)) if len(near) else -1
            if f in kept or best < 0 or near[best] < bound:
                found.append(f)
                places.append(place[f])
                members.append((len(found), f, f, 1.0))
            else:
                members.append((best + 1, f, found[best], float(near[best])))
            if fills_up and len(found) == k:
                return np.array(members, ROW)
        if not fills_up:
            break
    return np.array(members, ROW)


def _correlations(readings: Readings, columns: NDArray[np.int64], names: Names) -> Array:
    """Correlations of features without their signs, shape (c, c); with a constant feature 0."""
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
    alike: Array = np.round(np.abs(gram, out=gram), DECIMALS, out=gram)
    return alike
