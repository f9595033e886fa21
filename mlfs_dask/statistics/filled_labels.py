"""X'Ỹ of labels that are filled in by their correlation, row by row: Ỹ is not linear in Y, and is not kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.linear import backward_block, group_scratch_bytes, leaves_cache
from mlfs_dask.engine.statistic import State
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.row_loop import RowGroups
from mlfs_dask.typing import Array, Matrix


def fill_labels(Y: Array, C: Array) -> Array:
    """Return labels of some rows, shape (rows, q): 1 where they are 1, and elsewhere what those of the row make likely.

    That is y C, divided by the sum of the row with its ones.

    >>> fill_labels(np.array([[1.0, 0.0]]), np.array([[0.9, 0.25], [0.2, 0.9]]))
    array([[1. , 0.2]])
    """
    likely = Y @ C
    filled = np.where(Y > 0, 1.0, likely)
    sums = filled.sum(axis=1, keepdims=True)
    return np.where(Y > 0, 1.0, np.divide(likely, sums, out=np.zeros_like(likely), where=sums > 0))


@dataclass(frozen=True)
class FilledProducts(RowGroups):
    """Statistic: X'Ỹ of centred X and Ỹ, shape (d, q).

    Parameters
    ----------
    centre : float64 array, shape (d,)
        About the mean of X.
    C : float64 array, shape (q, q)
        C_jl: how likely a row with label j has label l.
    """

    centre: Array
    C: Array

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (len(self.centre), len(self.C) + 1), (len(self.C) + 1,)

    @property
    def compiled(self) -> bool:  # type: ignore[override]
        return leaves_cache(len(self.centre) * (len(self.C) + 1))

    @property
    def result_bytes(self) -> int:
        return 8 * len(self.centre) * len(self.C)

    def scratch_bytes(self, profile: Profile) -> int:
        return group_scratch_bytes(profile, 6 * len(self.C) + 1) + 2 * self.state_bytes

    def add_rows(self, state: State, X: Matrix, Y: sp.csr_array) -> None:
        products, sums = state
        filled = fill_labels((Y.toarray() > 0).astype(np.float64), self.C)
        filled = np.column_stack([filled, np.ones(len(filled))])
        backward_block(X, filled, self.centre, products)
        sums += filled.sum(axis=0)

    def finalize(self, state: State) -> Array:
        products, sums = state
        result: Array = products[:, :-1] - np.outer(products[:, -1], sums[:-1] / (sums[-1] or 1.0))
        return result
