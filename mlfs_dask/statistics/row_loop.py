"""Sums over the rows of a block, a group of rows at a time: what is computed for a row is not kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import WeighsRows, kept_bytes, weigh_block
from mlfs_dask.blocks.linear import backward_block, forward_block, leaves_cache, row_groups
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Matrix


class RowGroups(Statistic):
    """Base class of statistics that are added a group of rows at a time."""

    @property
    def fixed_anchors(self) -> WeighsRows | None:
        """Anchors that stay in their places while a loop runs, so that weights of rows may be kept; None without."""
        return None

    def kept_bytes(self, profile: Profile) -> int:
        """Return the bytes of the weights of a block's rows."""
        return 0 if self.fixed_anchors is None else kept_bytes(self.fixed_anchors) * profile.block_rows

    def add(self, state: State, block: Block) -> None:
        sums, anchors, parts = self.sums_of(state), self.fixed_anchors, row_groups(block.X.shape[0])
        # Strict, so that weights are asked for until their end, where they are kept.
        for part, *Z in zip(parts, *(() if anchors is None else (weigh_block(anchors, block),)), strict=True):
            self.add_rows(sums, block.X[part], block.Y[part], *Z)

    def sums_of(self, state: State) -> Any:
        """Return the arrays of a state by name."""
        return state

    @abstractmethod
    def add_rows(self, *args: Any, **kwargs: Any) -> None:
        """Add some rows to the sums, in place; arguments are the sums, X, Y, and Z of fixed anchors."""

    def finalize(self, state: State) -> Any:
        return self.sums_of(state)


class RowLoop(RowGroups):
    """Base class of an iteration of a linear model: products of rows with W, a small problem for each row, sums.

    Attributes
    ----------
    scaling : Scaling
        Of the features. Rows are centred and not scaled: W is, and the sums at the end.
    W : float64 array, shape (d, c)
        Of scaled features.
    b : float64 array, shape (c,)
    """

    #: Named tuple of the arrays of a state.
    Sums: ClassVar[Callable[..., Any]]
    #: Products with features, which are scaled at the end: X'F is XF, with features along its first axis, Z'X is ZX.
    scaled: ClassVar[tuple[str, ...]]

    #: Whether rows are weighed by anchors, by compiled kernels where rows are many.
    weighs_anchors: ClassVar[bool] = True

    scaling: Scaling
    W: Array
    b: Array

    @property
    def compiled(self) -> bool | None:  # type: ignore[override]
        return leaves_cache(self.W.size) or (None if self.weighs_anchors else False)

    @cached_property
    def _scaled_W(self) -> Array:
        return self.scaling.scale_rows(self.W)

    def forward(self, X: Matrix) -> Array:
        """Return X W of some rows, shape (rows, c)."""
        product = np.empty((X.shape[0], self._scaled_W.shape[1]))
        forward_block(X, self._scaled_W, self.scaling.centre, product)
        return product

    def predict(self, X: Matrix) -> Array:
        """Return X W + b of some rows, shape (rows, c)."""
        predictions = self.forward(X)
        predictions += self.b
        return predictions

    def backward(self, X: Matrix, R: Array, into: Array) -> None:
        """Add X'R of some rows, not scaled, in place."""
        backward_block(X, R, self.scaling.centre, into)

    def labels(self, block: Block) -> Array:
        """Return labels of the rows of a block that the loop computes, shape (rows, q)."""
        return np.concatenate([self.labels_of(block.X[part], block.Y[part]) for part in row_groups(block.X.shape[0])])

    def labels_of(self, X: Matrix, Y: sp.csr_array) -> Array:
        """Return labels of some rows."""
        raise NotImplementedError

    def sums_of(self, state: State) -> Any:
        return self.Sums(*state)

    def finalize(self, state: State) -> Any:
        sums, factor = self.sums_of(state), self.scaling.factor
        arrays = {name: array for name in self.scaled if (array := getattr(sums, name)).size}
        return sums._replace(
            **{name: (factor * array.T).T if name.startswith("X") else array * factor for name, array in arrays.items()}
        )
