"""The logistic loss of a linear model of several labels, and a quadratic that touches it from above, in one pass."""

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
    """Sums over all rows, T holding a/4 less the predicted probability p of every label plus the label; a = x_iW + b.

    The loss is at most that of the least squares Σ (a − 4t)²/8 and a number, and has the same slope at W and b.

    Attributes
    ----------
    XT : float64 array, shape (d, q)
        X'T.
    T : float64 array, shape (q,)
        1'T.
    loss : float64 array, shape (1,)
        Σ log(1 + e^a) − y a over rows and labels.
    curvature : float64 array, shape (q,)
        Σ p(1 − p) over rows.
    """

    XT: Array
    T: Array
    loss: Array
    curvature: Array


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

    Sums = LogisticSums
    scaled = ("XT",)
    weighs_anchors = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.W.shape, self.b.shape, (1,), self.b.shape

    def scratch_bytes(self, profile: Profile) -> int:
        return int(group_scratch_bytes(profile, 6 * self.W.shape[1]) + 2 * self.W.nbytes)

    def add_rows(self, sums: LogisticSums, X: Matrix, Y: sp.csr_array) -> None:
        positive, activation = Y.toarray() > 0, self.predict(X)
        sums.loss[...] += np.logaddexp(0.0, activation).sum() - activation[positive].sum()
        p = 0.5 * (1.0 + np.tanh(0.5 * activation))
        sums.curvature[...] += (p * (1.0 - p)).sum(axis=0)
        activation *= 0.25
        activation -= p
        activation += positive
        self.backward(X, activation, sums.XT)
        sums.T[...] += activation.sum(axis=0)
