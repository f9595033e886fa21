"""The logistic loss of a linear model of several labels, and its slope, in one reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlfs_dask.blocks.linear import backward_block, forward_block, group_scratch_bytes, row_groups
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array


class LogisticSums(NamedTuple):
    """Sums over all rows, R holding the predicted probability of every label less the label.

    Attributes
    ----------
    XR : float64 array, shape (d, q)
        X'R.
    R : float64 array, shape (q,)
        1'R.
    loss : float64 array, shape (1,)
        Σ log(1 + e^a) − y a over rows and labels, with a = x_iW + b.
    """

    XR: Array
    R: Array
    loss: Array


@dataclass(frozen=True)
class LogisticRows(Statistic):
    """Statistic: `LogisticSums`.

    Parameters
    ----------
    scaling : Scaling
    W : float64 array, shape (d, q)
        Of scaled features.
    b : float64 array, shape (q,)
    """

    scaling: Scaling
    W: Array
    b: Array

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.W.shape, self.b.shape, (1,)

    def scratch_bytes(self, profile: Profile) -> int:
        return int(group_scratch_bytes(profile, 6 * self.W.shape[1]) + 2 * self.W.nbytes)

    def add(self, state: State, block: Block) -> None:
        sums, W, centre = LogisticSums(*state), self.scaling.scale_rows(self.W), self.scaling.centre
        for part in row_groups(block.X.shape[0]):
            X, positive = block.X[part], block.Y[part].toarray() > 0
            activation = np.empty(positive.shape)
            forward_block(X, W, centre, activation)
            activation += self.b
            sums.loss[...] += np.logaddexp(0.0, activation).sum() - activation[positive].sum()
            residual = 0.5 * (1.0 + np.tanh(0.5 * activation))
            residual -= positive
            backward_block(X, residual, centre, sums.XR)
            sums.R[...] += residual.sum(axis=0)

    def finalize(self, state: State) -> LogisticSums:
        sums = LogisticSums(*(array.copy() for array in state))
        return sums._replace(XR=self.scaling.scale_rows(sums.XR))
