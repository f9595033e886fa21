"""Shared first pass of several selections of a store: read once, into the cache."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from mlfs_dask.engine import cache as caching
from mlfs_dask.engine.readings import ReadingRecord, is_cached, plan_statistics, run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import ClusterLostError, DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.question import Question

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SharedReading:
    """A pass that several selections share.

    Attributes
    ----------
    kinds : list of str
        Kinds of its statistics, each once: those of one kind may have one state.
    record : ReadingRecord
    """

    kinds: list[str]
    record: ReadingRecord


def shared_statistics(rows: RowSource, questions: Iterable[Question], resources: Resources) -> list[Statistic]:
    """Return the statistics that several selectors share, each once; none for a single selector.

    Parameters
    ----------
    rows : RowSource
    questions : iterable of Question
    resources : Resources
    """
    if not caching.is_on(rows):
        return []
    missing: list[Statistic] = []
    readers = 0
    for question in questions:
        try:
            statistics = question.first_statistics(rows, resources)
        except (UsageError, DataError, DoesNotFitError):
            continue  # its own fit will tell
        statistics = [statistic for statistic in statistics if not is_cached(rows, statistic)]
        readers += bool(statistics)
        missing += statistics
    if readers < 2:
        return []
    shared = list({statistic.result_key: statistic for statistic in missing}.values())
    while shared:
        try:
            plan_statistics(rows, shared, resources)
            break
        except DoesNotFitError:
            # The selectors that need it read it by themselves.
            shared.remove(max(shared, key=lambda statistic: statistic.state_bytes))
    return shared


def read_shared(rows: RowSource, questions: Iterable[Question], resources: Resources) -> SharedReading | None:
    """Read what questions share in one pass, into the cache. None where nothing is shared, or that fails.

    Each selector then reads for itself.

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
    return SharedReading(list(dict.fromkeys(statistic.kind for statistic in statistics)), record)
