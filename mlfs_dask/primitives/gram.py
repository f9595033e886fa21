"""X'SX and X'SR in one pass: for methods that may hold d × d numbers, the last time they read X for a while.

Where d is too large for that, X may stand for some of its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import caching
from mlfs_dask.blocks.linear import (
    GRAM_VALUES,
    TILE_BYTES,
    backward_block,
    gram_block,
    gram_scratch_bytes,
    sparse_strips,
)
from mlfs_dask.primitives.linear import Scaling, backward
from mlfs_dask.primitives.passes import NOT_READ, PassRecord, State
from mlfs_dask.primitives.row_passes import Rows, run_row_pass
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Profile, RowSource

#: Most features for which a method forms a d × d matrix unless told otherwise: 128 MiB of float64. Beyond some 1 000 it
#: spares readings, and time with access-mfs alone, unless X is slow to read (`benchmarks/gram.py cap`).
GRAM_CAP = 4096


class Gram:
    """Row statistic: (X − centre)'S(X − centre), and (X − centre)'SR.

    Inputs are R, shape (rows, c), if n_columns > 0, and then the diagonal of S, shape (rows,), if weighted.

    Parameters
    ----------
    n_features : int
    n_columns : int
        c; 0 for no R.
    centre : float64 array, shape (d,), optional
    weighted : bool
    columns : int array, shape (d,), optional
        Which features of a row are meant; all by default. With it there is no R.
    """

    outputs: Sequence[tuple[int, Any]] = ()

    def __init__(
        self,
        n_features: int,
        n_columns: int = 0,
        *,
        centre: NDArray[np.float64] | None = None,
        weighted: bool = False,
        columns: NDArray[np.intp] | None = None,
    ) -> None:
        self.n_features = n_features
        self.n_columns = n_columns
        self.centre = centre
        self.weighted = weighted
        self.columns = columns

    @property
    def state_bytes(self) -> int:
        return 8 * self.n_features * (self.n_features + self.n_columns)

    @property
    def result_bytes(self) -> int:
        return self.state_bytes

    def scratch_bytes(self, profile: Profile) -> int:
        d, c = self.n_features, self.n_columns
        right = 8 * (d + profile.block_rows) * (c + 1)
        if profile.sparse:
            stored = min(profile.block_values, GRAM_VALUES)
            return right + gram_scratch_bytes(d, profile.block_rows, stored)
        own = right + 8 * d * d + (profile.block_bytes if d < profile.d else 0)  # the rows with fewer features
        return own + 2 * TILE_BYTES + (profile.block_bytes if self.weighted else 0)

    def zero(self) -> State:
        d, c = self.n_features, self.n_columns
        return np.zeros((d, d)), np.zeros((d, c))

    def add_rows(self, state: State, block: Block, inputs: Rows, outputs: Rows) -> None:
        weights = inputs[-1] if self.weighted else None
        for part in sparse_strips(block.X) if sp.issparse(block.X) else (slice(0, block.X.shape[0]),):
            X = block.X[part] if self.columns is None else block.X[part][:, self.columns]
            gram_block(X, None if weights is None else weights[part], self.centre, state[0])
        if self.n_columns:
            R = inputs[0] if weights is None else weights[:, np.newaxis] * inputs[0]
            backward_block(block.X, R, self.centre, state[1])

    def merge(self, into: State, other: State) -> None:
        for mine, theirs in zip(into, other, strict=True):
            np.add(mine, theirs, out=mine)

    def finalize(self, state: State) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # BLAS computes one triangle and mirrors it; sums of sparse products may differ in the last digit.
        return (state[0] + state[0].T) * 0.5, state[1].copy()


class GramProducts(NamedTuple):
    """What `gram` gives: X'SX (d, d), X'SR (d, c), and the record of the pass."""

    gram: NDArray[np.float64]
    products: NDArray[np.float64]
    record: PassRecord


def gram(
    source: RowSource,
    resources: Resources,
    *,
    R: NDArray[np.float64] | None = None,
    weights: NDArray[np.float64] | None = None,
    scaling: Scaling | None = None,
) -> GramProducts:
    """X'SX and X'SR in one pass.

    Parameters
    ----------
    source : RowSource
        X of shape (n, d).
    resources : Resources
    R : float64 array, shape (n, c), optional
        Rows go to the tasks that read the same rows of X.
    weights : float64 array, shape (n,), optional
        Diagonal of S, not negative; 1 by default. Rows of weight 0 are not looked at.
    scaling : Scaling, optional
        X is taken centred and scaled.

    Returns
    -------
    GramProducts
        Without R, `products` has shape (d, 0). Where X'SX is in the cache, only X'SR is read for.

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    parameters = {"scaling": None if scaling is None else [scaling.centre, scaling.factor], "weights": weights}
    # Kept apart, since the first serves another R too.
    kept = caching.slot(source, "gram", parameters), caching.slot(source, "gram-products", {**parameters, "R": R})
    found = kept[0].load()
    if found is not None:
        G = found["gram"]
        if R is None:
            return GramProducts(G, np.zeros((len(G), 0)), NOT_READ)
        products = kept[1].load()
        if products is not None:
            return GramProducts(G, products["products"], NOT_READ)
        B, record = backward(source, R, resources, scaling=scaling, weights=weights)
        kept[1].save({"products": B})
        return GramProducts(G, B, record)
    centre = None if scaling is None else scaling.centre
    statistic = Gram(source.profile.d, 0 if R is None else R.shape[1], centre=centre, weighted=weights is not None)
    inputs = [a for a in (R, weights) if a is not None]
    _, (G, B), record = run_row_pass(source, statistic, resources, inputs=inputs, label="X'X")
    if scaling is not None:
        scale_gram(G, scaling.factor)
        B *= scaling.factor[:, np.newaxis]
    kept[0].save({"gram": G})
    if R is not None:
        kept[1].save({"products": B})
    return GramProducts(G, B, record)


def gram_of_columns(
    source: RowSource,
    columns: NDArray[np.intp],
    resources: Resources,
    *,
    weights: NDArray[np.float64] | None = None,
    scaling: Scaling | None = None,
) -> tuple[NDArray[np.float64], PassRecord]:
    """X'SX of some columns of X, in one pass.

    Parameters
    ----------
    source : RowSource
        X of shape (n, d).
    columns : int array, shape (m,)
    resources : Resources
    weights : float64 array, shape (n,), optional
        Diagonal of S, not negative; 1 by default.
    scaling : Scaling, optional
        X is taken centred and scaled.

    Returns
    -------
    float64 array, shape (m, m), and the record of the pass

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    centre = None if scaling is None else scaling.centre[columns]
    statistic = Gram(len(columns), centre=centre, weighted=weights is not None, columns=columns)
    inputs = [] if weights is None else [weights]
    _, (G, _), record = run_row_pass(source, statistic, resources, inputs=inputs, label="X'X of some")
    if scaling is not None:
        scale_gram(G, scaling.factor[columns])
    return G, record


def scale_gram(G: NDArray[np.float64], f: NDArray[np.float64]) -> None:
    """diag(f) G diag(f), in place."""
    for row, factor in zip(G, f, strict=True):
        row *= factor * f  # the product of both first, or G would lose its symmetry to rounding
