"""What several selections of a store read first is read in one pass, into the cache, where each of them finds it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mlfs_dask.engine import cache as caching
from mlfs_dask.engine.passes import (
    CachedStatistic,
    MergeableStatistic,
    PassRecord,
    is_cached,
    plan_statistics,
    result_key,
    run_pass,
    state_key,
)
from mlfs_dask.errors import ClusterLostError, DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import RowSource

logger = logging.getLogger(__name__)


def shared_statistics(rows: RowSource, selectors: Iterable[Any], resources: Resources) -> list[CachedStatistic]:
    """What to read together: every statistic once, in its largest form; nothing where one selector alone would read.

    Parameters
    ----------
    rows : RowSource
    selectors : iterable of BaseSelector
    resources : Resources
    """
    if not caching.is_on(rows):
        return []
    missing: list[CachedStatistic] = []
    readers = 0
    for selector in selectors:
        try:
            statistics = selector.first_statistics(rows, resources)
        except (UsageError, DataError, DoesNotFitError):
            continue  # its own fit will tell
        statistics = [statistic for statistic in statistics if not is_cached(rows, statistic)]
        readers += bool(statistics)
        missing += statistics
    if readers < 2:
        return []
    # The information with more labels holds that with fewer. Of statistics with one state, such as scores from the same
    # counts, one is read: the others come from its state.
    shared = _largest_of_each(_largest_of_each(missing, result_key), _state_key)
    while shared:
        try:
            plan_statistics(rows, shared, resources)
            break
        except DoesNotFitError:
            # The selectors that need it read it by themselves.
            shared.remove(max(shared, key=lambda statistic: statistic.state_bytes))
    return shared


def _largest_of_each(
    statistics: Iterable[CachedStatistic], key_of: Callable[[CachedStatistic], str]
) -> list[CachedStatistic]:
    """Of statistics with equal keys the one with the largest result."""
    largest: dict[str, CachedStatistic] = {}
    for statistic in statistics:
        key = key_of(statistic)
        if key not in largest or statistic.result_bytes > largest[key].result_bytes:
            largest[key] = statistic
    return list(largest.values())


def _state_key(statistic: CachedStatistic) -> str:
    if not isinstance(statistic, MergeableStatistic) or not statistic.keeps_state:
        return result_key(statistic)
    return state_key(statistic)


def read_shared(rows: RowSource, statistics: Sequence[CachedStatistic], resources: Resources) -> PassRecord | None:
    """Read statistics in one pass, into the cache. None where that fails: each selector then reads for itself.

    Raises
    ------
    ClusterLostError
    """
    try:
        return run_pass(rows, statistics, resources, label="shared")[1]
    except ClusterLostError:
        raise
    except MlfsError as error:
        # Each fit will tell what is wrong.
        logger.info("nothing is shared: %s", error)
        return None
