"""An iteration of a reweighted regression in one pass: sums over rows, whose weights follow from their residuals.

Given W and b, a row has the residual r_i = x_iW + b − y_i. The loss Σ ‖r_i‖ is touched from above by Σ s_i ‖r‖² with
s_i = 1/(2√(‖r_i‖² + e²)), so that the next W and b follow from weighted sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.linear import gram_block, group_scratch_bytes, symmetrise
from mlfs_dask.engine.statistic import State
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.gram import gram_scratch, scale_gram
from mlfs_dask.statistics.row_loop import RowLoop
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Matrix


class WeightedSums(NamedTuple):
    """Sums over all rows, S holding their weights.

    Attributes
    ----------
    XX : float64 array, shape (d, d)
        X'SX; empty where it is not summed.
    XY : float64 array, shape (d, q)
        X'SY.
    X : float64 array, shape (d,)
        X'S1.
    Y : float64 array, shape (q,)
        Y'S1.
    total : float64 array, shape (1,)
        1'S1.
    loss : float64 array, shape (1,)
        Σ √(‖r_i‖² + e²), or Σ ‖r_i‖² where rows have weight 1.
    """

    XX: Array
    XY: Array
    X: Array
    Y: Array
    total: Array
    loss: Array

    def centred(self) -> tuple[Array, Array]:
        """Return X'SX and X'SY of X and Y less their weighted means: of a regression with an intercept."""
        return self.XX - np.outer(self.X, self.X) / self.total, self.centred_products()

    def centred_products(self) -> Array:
        """Return X'SY of X and Y less their weighted means."""
        return self.XY - np.outer(self.X, self.Y) / self.total

    def with_constant(self) -> tuple[Array, Array]:
        """Return X'SX and X'SY where the first feature is 1 in every row."""
        first = np.concatenate([self.total, self.X])
        return np.vstack([first, np.column_stack([self.X, self.XX])]), np.vstack([self.Y, self.XY])


@dataclass(frozen=True)
class ReweightedRows(RowLoop):
    """Statistic: `WeightedSums`.

    Parameters
    ----------
    scaling : Scaling
    W : float64 array, shape (d, q)
        Of scaled features.
    b : float64 array, shape (q,)
    smoothing : float or None
        e; None: the loss is squared, and rows have weight 1.
    box : (float, float)
        What a label is that a row does not have, and one that it has.
    unknown : float64 array, shape (q,), or None
        What an unknown label is. None: as predicted, no lower and no higher than the box: its part of the loss is 0
        within.
    gram : bool
        Whether X'SX is summed.
    """

    scaling: Scaling
    W: Array
    b: Array
    smoothing: float | None
    box: tuple[float, float] = (0.0, 1.0)
    unknown: Array | None = None
    gram: bool = True

    Sums = WeightedSums
    scaled = ("XY", "X")
    weighs_anchors = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        d, q = self.W.shape
        side = d if self.gram else 0
        return (side, side), (d, q), (d,), (q,), (1,), (1,)

    def scratch_bytes(self, profile: Profile) -> int:
        d, q = self.W.shape
        products = 24 * d * (q + 1)  # scaled W, and X'[SY, S1] before it is added
        own = int(group_scratch_bytes(profile, 6 * q + 3) + products + profile.block_bytes)
        return own + (gram_scratch(profile, d) if self.gram else 0)

    def add_rows(self, sums: Any, X: Matrix, Y: sp.csr_array) -> None:
        predictions = self.predict(X)
        targets = np.nan_to_num(Y) if isinstance(Y, np.ndarray) else self._targets(Y.toarray(), predictions)
        predictions -= targets
        self.add_weighted(sums, X, targets, *self._weigh(predictions))

    def add_weighted(self, sums: WeightedSums, X: Matrix, Y: Array, s: Array, loss: Array) -> None:
        """Add some rows with their targets, shape (rows, q), weights and losses."""
        weighted = np.column_stack([s[:, np.newaxis] * Y, s])
        product = np.zeros((X.shape[1], weighted.shape[1]))
        self.backward(X, weighted, product)
        if self.gram:
            gram_block(X, s, self.scaling.centre, sums.XX)
        sums.XY[...] += product[:, :-1]
        sums.X[...] += product[:, -1]
        sums.Y[...] += weighted[:, :-1].sum(axis=0)
        sums.total[...] += s.sum()
        sums.loss[...] += loss.sum()

    def _weigh(self, residual: Array) -> tuple[Array, Array]:
        """Return weights and losses of some rows."""
        squares: Array = np.einsum("ij,ij->i", residual, residual)
        if self.smoothing is None:
            return np.ones(len(squares)), squares
        loss = np.sqrt(squares + self.smoothing**2)
        return 0.5 / loss, loss

    def _targets(self, entries: NDArray[np.int8], predictions: Array) -> Array:
        """Return labels of some rows as ends of the box, shape (rows, q), and what unknown ones are."""
        low, high = self.box
        targets: Array = np.where(entries > 0, high, low)
        unknown = np.clip(predictions, low, high) if self.unknown is None else self.unknown
        np.copyto(targets, unknown, where=entries < 0)
        return targets

    def finalize(self, state: State) -> Any:
        sums: WeightedSums = super().finalize(state)
        if not self.gram:
            return sums
        XX = sums.XX.copy()
        symmetrise(XX)
        return sums._replace(XX=scale_gram(XX, self.scaling.factor))
