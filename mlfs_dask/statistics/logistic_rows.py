"""The logistic loss of a linear model of several labels, and its slope, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.linear import group_scratch_bytes
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.row_loop import RowLoop
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Matrix


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
class LogisticRows(RowLoop):
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

    compiled = False
    Sums = LogisticSums
    scaled = ("XR",)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.W.shape, self.b.shape, (1,)

    def scratch_bytes(self, profile: Profile) -> int:
        return int(group_scratch_bytes(profile, 6 * self.W.shape[1]) + 2 * self.W.nbytes)

    def add_rows(self, sums: LogisticSums, X: Matrix, Y: sp.csr_array) -> None:
        positive, activation = Y.toarray() > 0, self.predict(X)
        sums.loss[...] += np.logaddexp(0.0, activation).sum() - activation[positive].sum()
        residual = 0.5 * (1.0 + np.tanh(0.5 * activation))
        residual -= positive
        self.backward(X, residual, sums.XR)
        sums.R[...] += residual.sum(axis=0)
