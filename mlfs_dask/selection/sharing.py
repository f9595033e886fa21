"""Shared first pass of several selections of the same rows; of a store it is read into the cache."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

from mlfs_dask.engine import cache as caching
from mlfs_dask.engine.readings import ReadingRecord, is_cached, plan_statistics, returned_bytes, run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import ClusterLostError, DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.question import Question

logger = logging.getLogger(__name__)


def shared_statistics(rows: RowSource, questions: Iterable[Question], resources: Resources) -> list[Statistic]:
    """Return the statistics that several selectors share, each once; none for a single selector.

    Parameters
    ----------
    rows : RowSource
    questions : iterable of Question
    resources : Resources
    """
    return first_statistics(rows, questions, resources, fewest=2) if caching.is_on(rows) else []


def first_statistics(
    rows: RowSource,
    questions: Iterable[Question],
    resources: Resources,
    *,
    fewest: int = 1,
    most_bytes: float = math.inf,
) -> list[Statistic]:
    """Return the statistics of the first pass of several selectors, each once, without cached ones.

    Parameters
    ----------
    rows : RowSource
    questions : iterable of Question
    resources : Resources
    fewest : int
        Number of selectors that lack statistics, below which there are none.
    most_bytes : float
        Bytes that the results may take. The largest statistics are left out where memory is short.
    """
    missing: list[Statistic] = []
    readers = 0
    for question in questions:
        try:
            statistics = question.first_statistics(rows, resources)
        except (UsageError, DataError, DoesNotFitError):
            continue  # its own fit will tell
        statistics = [statistic for statistic in statistics if statistic.kind and not is_cached(rows, statistic)]
        readers += bool(statistics)
        missing += statistics
    if readers < fewest:
        return []
    shared = list({statistic.result_key: statistic for statistic in missing}.values())
    while shared:
        if sum(returned_bytes(rows, statistic) for statistic in shared) <= most_bytes:
            try:
                plan_statistics(rows, shared, resources)
                break
            except DoesNotFitError:
                pass
        # The selectors that need it read it by themselves.
        largest = max(shared, key=lambda statistic: statistic.state_bytes)
        shared = [statistic for statistic in shared if statistic is not largest]
    return shared


def read_shared(
    rows: RowSource, questions: Iterable[Question], resources: Resources
) -> tuple[list[str], ReadingRecord] | None:
    """Read what questions share in one pass, into the cache. None where nothing is shared, or that fails.

    Each selector then reads for itself.

    Returns
    -------
    list of str
        Kinds of the statistics, each once: those of one kind may have one state.
    ReadingRecord

    Raises
    ------
    ClusterLostError
    """
    statistics = shared_statistics(rows, questions, resources)
    if not statistics:
        return None
    try:
        record = run_reading(rows, statistics, resources, label="shared")[1]
    except ClusterLostError:
        raise
    except MlfsError as error:
        # Each fit will tell what is wrong.
        logger.info("nothing is shared: %s", error)
        return None
    return list(dict.fromkeys(statistic.kind for statistic in statistics)), record
