"""X W, X'R, and X W with X'(S(X W − R)) from one reading of X: what regression on rows is made of.

X may be centred and scaled on the way (`Scaling`); sparse X stays sparse, since for it both are algebra. W and sums
are small matrices on the driver, R and X W have n rows there, and tasks see the rows of their own partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.linear import TILE_BYTES, backward_block, dense_tiles, forward_block
from mlfs_dask.primitives.moments import FeatureMoments
from mlfs_dask.primitives.passes import PassRecord, State
from mlfs_dask.primitives.plan import PassPlan
from mlfs_dask.primitives.row_passes import Rows, plan_rows, run_row_pass
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Profile, RowSource


@dataclass(frozen=True)
class Scaling:
    """Features as (x − centre) · factor.

    Attributes
    ----------
    centre, factor : float64 array, shape (d,)
        A feature of factor 0 is a column of zeros, whatever its values.
    """

    centre: NDArray[np.float64]
    factor: NDArray[np.float64]


def standard_scaling(moments: FeatureMoments) -> Scaling:
    """Zero mean and unit population standard deviation; a constant feature becomes zero.

    >>> from mlfs_dask.primitives.moments import FeatureMoments
    >>> standard_scaling(FeatureMoments(2, np.array([1.0, 5.0]), np.array([8.0, 0.0])))
    Scaling(centre=array([1., 5.]), factor=array([0.5, 0. ]))
    """
    std = moments.std
    factor = np.zeros_like(std)
    np.divide(1.0, std, out=factor, where=std > 0)
    return Scaling(moments.mean, factor)


class _Linear:
    """Row statistic: (X − centre) W, and (X − centre)' of what is left of R, from the same tile of X.

    Parameters
    ----------
    n_features, n_columns : int
        d and c.
    W : float64 array, shape (d, c), or None
        None: only X'R is wanted.
    centre : float64 array, shape (d,), or None
    backward : bool
        Whether inputs hold R, shape (rows, c), and X'(...) is summed: X'(S(X W − R)) with W, X'R without.
    weighted : bool
        Whether inputs also hold the diagonal of S, shape (rows,).
    give : bool
        Whether the rows of X W are given.
    """

    def __init__(
        self,
        n_features: int,
        n_columns: int,
        *,
        W: NDArray[np.float64] | None,
        centre: NDArray[np.float64] | None,
        backward: bool,
        weighted: bool = False,
        give: bool = True,
    ) -> None:
        self.n_features = n_features
        self.n_columns = n_columns
        self.W = W
        self.centre = centre
        self.backward = backward
        self.weighted = weighted
        self.give = give and W is not None

    @property
    def outputs(self) -> Sequence[tuple[int, Any]]:
        return [(self.n_columns, np.float64)] if self.give else []

    @property
    def state_bytes(self) -> int:
        return 8 * self.n_features * self.n_columns * self.backward + 8

    @property
    def held_bytes(self) -> int:
        """Bytes of W, which a process holds once while the pass runs."""
        return 0 if self.W is None else 8 * self.n_features * self.n_columns

    @property
    def result_bytes(self) -> int:
        return 8 * self.n_features * self.n_columns if self.backward else 8

    def scratch_bytes(self, profile: Profile) -> int:
        d, c = self.n_features, self.n_columns
        rows = 8 * profile.block_rows * c * (2 + self.backward)
        product = 8 * d * c if self.backward else 0
        stored = 16 * profile.block_values if profile.sparse else TILE_BYTES
        return rows + product + stored

    def zero(self) -> State:
        shape = (self.n_features, self.n_columns) if self.backward else (0, 0)
        return (np.zeros(shape),)

    def add_rows(self, state: State, block: Block, inputs: Rows, outputs: Rows) -> None:
        X = block.X
        if not self.backward:
            assert self.W is not None
            forward_block(X, self.W, self.centre, outputs[0])
            return
        if self.W is None:
            R = inputs[0] if len(inputs) == 1 else inputs[1][:, np.newaxis] * inputs[0]
            backward_block(X, R, self.centre, state[0])
            return
        product = outputs[0] if self.give else np.empty((X.shape[0], self.n_columns))
        if isinstance(X, np.ndarray):
            for part, tile in dense_tiles(X, self.centre):
                np.matmul(tile, self.W, out=product[part])
                state[0][...] += tile.T @ self._left(product[part], [a[part] for a in inputs])
            return
        forward_block(X, self.W, self.centre, product)
        backward_block(X, self._left(product, inputs), self.centre, state[0])

    def _left(self, product: NDArray[np.float64], inputs: Rows) -> NDArray[np.float64]:
        """S (X W − R) of some rows."""
        left: NDArray[np.float64] = product - inputs[0]
        if self.weighted:
            left *= inputs[1][:, np.newaxis]
        return left

    def merge(self, into: State, other: State) -> None:
        np.add(into[0], other[0], out=into[0])

    def finalize(self, state: State) -> NDArray[np.float64]:
        return state[0]


class Products(NamedTuple):
    """What `forward_backward` gives: X W (n, c), X'(S(X W − R)) (d, c), and the record of its pass."""

    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    record: PassRecord


def forward(
    source: RowSource,
    W: NDArray[np.float64],
    resources: Resources,
    *,
    scaling: Scaling | None = None,
    out: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], PassRecord]:
    """X W in one pass.

    Parameters
    ----------
    source : RowSource
        X of shape (n, d).
    W : float64 array, shape (d, c)
    resources : Resources
    scaling : Scaling, optional
        X is taken centred and scaled.
    out : float64 array, shape (n, c), optional
        Where X W goes.

    Returns
    -------
    float64 array, shape (n, c), and the record of the pass

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    statistic = _Linear(*W.shape, W=_scaled(W, scaling), centre=_centre(scaling), backward=False)
    (product,), _, record = run_row_pass(source, statistic, resources, out=_given(out), label="X W")
    return product, record


def backward(
    source: RowSource,
    R: NDArray[np.float64],
    resources: Resources,
    *,
    scaling: Scaling | None = None,
    weights: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], PassRecord]:
    """X'R, or X'SR, in one pass.

    Parameters
    ----------
    source : RowSource
        X of shape (n, d).
    R : float64 array, shape (n, c)
        Rows go to the tasks that read the same rows of X.
    resources : Resources
    scaling : Scaling, optional
    weights : float64 array, shape (n,), optional
        Diagonal of S.

    Returns
    -------
    float64 array, shape (d, c), and the record of the pass

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    statistic = _Linear(
        source.profile.d, R.shape[1], W=None, centre=_centre(scaling), backward=True, weighted=weights is not None
    )
    inputs = [R] if weights is None else [R, weights]
    _, sums, record = run_row_pass(source, statistic, resources, inputs=inputs, label="X'R")
    return _scaled(sums, scaling), record


def forward_backward(
    source: RowSource,
    W: NDArray[np.float64],
    R: NDArray[np.float64],
    resources: Resources,
    *,
    scaling: Scaling | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Products:
    """X W and X'(S(X W − R)) from one reading of every block.

    Parameters
    ----------
    source : RowSource
        X of shape (n, d).
    W : float64 array, shape (d, c)
    R : float64 array, shape (n, c)
    resources : Resources
    scaling : Scaling, optional
    weights : float64 array, shape (n,), optional
        Diagonal of S; 1 by default.

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    statistic = _Linear(
        *W.shape, W=_scaled(W, scaling), centre=_centre(scaling), backward=True, weighted=weights is not None
    )
    inputs = [R] if weights is None else [R, weights]
    (product,), sums, record = run_row_pass(source, statistic, resources, inputs=inputs, label="X W and X'R")
    return Products(product, _scaled(sums, scaling), record)


def normal_product(
    source: RowSource,
    W: NDArray[np.float64],
    resources: Resources,
    *,
    scaling: Scaling | None = None,
    weights: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], PassRecord]:
    """X'S X W in one pass, of which nothing with n rows reaches the driver.

    Parameters and errors are those of `forward_backward`; returns float64 (d, c) and the record of the pass.
    """
    statistic = _Normal(*W.shape, W=_scaled(W, scaling), centre=_centre(scaling), weighted=weights is not None)
    inputs = [] if weights is None else [weights]
    _, sums, record = run_row_pass(source, statistic, resources, inputs=inputs, label="X'X W")
    return _scaled(sums, scaling), record


def forward_normal(
    source: RowSource,
    W: NDArray[np.float64],
    resources: Resources,
    *,
    scaling: Scaling | None = None,
    weights: NDArray[np.float64] | None = None,
    out: NDArray[np.float64] | None = None,
) -> Products:
    """X W and X'S X W from one reading of every block.

    Parameters and errors are those of `forward_backward` with R = 0, of which nothing has to be sent; X W goes to
    `out`, if that is given.
    """
    statistic = _Normal(
        *W.shape, W=_scaled(W, scaling), centre=_centre(scaling), weighted=weights is not None, give=True
    )
    inputs = [] if weights is None else [weights]
    (product,), sums, record = run_row_pass(
        source, statistic, resources, inputs=inputs, out=_given(out), label="X W and X'X W"
    )
    return Products(product, _scaled(sums, scaling), record)


def plan_linear(
    source: RowSource | Profile, n_columns: int, resources: Resources, *, forward: bool = False, backward: bool = False
) -> PassPlan:
    """The plan of one product with `n_columns` columns: of `forward`, of `backward`, or of both in one reading.

    In process X W is not counted: it is part of what a loop holds.

    Raises
    ------
    DoesNotFitError
    """
    d = (source if isinstance(source, Profile) else source.profile).d
    W = np.empty((0, 0)) if forward else None
    statistic = _Linear(d, n_columns, W=W, centre=None, backward=backward)
    return plan_rows(source, statistic, resources, input_bytes=8 * n_columns if backward else 0, out_given=True)


class _Normal(_Linear):
    """Row statistic: (X − centre)'S(X − centre) W."""

    def __init__(
        self,
        n_features: int,
        n_columns: int,
        *,
        W: NDArray[np.float64],
        centre: NDArray[np.float64] | None,
        weighted: bool,
        give: bool = False,
    ) -> None:
        super().__init__(n_features, n_columns, W=W, centre=centre, backward=True, weighted=weighted, give=give)

    def add_rows(self, state: State, block: Block, inputs: Rows, outputs: Rows) -> None:
        X, weights = block.X, inputs[0] if self.weighted else None
        if weights is not None and not self.give:
            kept = np.flatnonzero(weights)
            if len(kept) < len(weights):
                X, weights = X[kept], weights[kept]
        super().add_rows(state, block._replace(X=X), [] if weights is None else [weights], outputs)

    def _left(self, product: NDArray[np.float64], inputs: Rows) -> NDArray[np.float64]:
        return product * inputs[0][:, np.newaxis] if self.weighted else product


def _given(out: NDArray[np.float64] | None) -> list[NDArray[np.float64]] | None:
    return None if out is None else [out]


def _centre(scaling: Scaling | None) -> NDArray[np.float64] | None:
    return None if scaling is None else scaling.centre


def _scaled(W: NDArray[np.float64], scaling: Scaling | None) -> NDArray[np.float64]:
    """Rows of W times the factors: ((X − m) diag(f)) W = (X − m) (diag(f) W)."""
    W = np.ascontiguousarray(W, dtype=np.float64)
    return W if scaling is None else W * scaling.factor[:, np.newaxis]
