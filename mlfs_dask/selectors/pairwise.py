"""What the methods share that weigh features against one another, and hold numbers for their pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import Method
from mlfs_dask.selectors.costs import Plan, require_driver
from mlfs_dask.selectors.scores import rank
from mlfs_dask.typing import Array


class PairwiseSelector(Method):
    """Base class of methods that weigh features against one another."""

    def _fewer_pairs(self, d: int) -> str:
        """The cure where numbers of pairs do not fit."""
        raise NotImplementedError

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """As of `Method`; where something does not fit, fewer pairs are a cure."""
        cure = self._fewer_pairs(profile_of(source).d)
        try:
            plan = super().plan(source, resources)
        except DoesNotFitError as error:
            raise DoesNotFitError(
                error.what, projected=error.projected, available=error.available, cure=f"{cure}, or {error.cure}"
            ) from None
        what = f"{self.method} in the driver process"
        return require_driver(plan, resources, what, cure=f"{cure}, or run the command on a machine with more memory")


def most_relevant(relevance: Array, count: int) -> NDArray[np.intp]:
    """The `count` features of largest relevance, rising; ties by lower index.

    >>> most_relevant(np.array([0.5, 2.0, 0.5]), 2)
    array([0, 1])
    """
    return np.sort(rank(relevance)[:count])
