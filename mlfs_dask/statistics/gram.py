"""X'X of centred X, X'SX with weights of rows, and products with them: for methods that regress on features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.linear import (
    GRAM_ROWS,
    GRAM_VALUES,
    TILE_BYTES,
    backward_block,
    dense_tiles,
    forward_block,
    gram_block,
    gram_scratch_bytes,
    sparse_strips,
    symmetrise,
)
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.errors import DoesNotFitError, parameter
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.moments import first_values
from mlfs_dask.statistics.scaling import Scaling

Array = NDArray[np.float64]

#: Most features for which a method forms a d × d matrix by default: 128 MiB of float64.
GRAM_CAP = 4096

#: Values that are not finite spoil their own feature's sums, by which they are found and refused (`Moments`).
_QUIET = np.errstate(over="ignore", invalid="ignore")


class Gram(Statistic):
    """Statistic: (X − mean)'(X − mean), shape (d, d).

    Dense X is summed relative to the first row that a state meets, so that a feature far from zero keeps its digits,
    and the mean need not be known before. Sparse X is summed as it is: zero is its origin.

    Parameters
    ----------
    n_features : int
    weighted : bool
        Whether rows have weights.
    """

    kind = "gram"
    state_names = ("rows", "shift", "sums", "gram")

    def __init__(self, n_features: int, *, weighted: bool = False) -> None:
        self.n_features = n_features
        self.weighted = weighted

    @property
    def state_bytes(self) -> int:
        return 8 * self.n_features * (self.n_features + 2)

    @property
    def result_bytes(self) -> int:
        return 8 * self.n_features**2

    def scratch_bytes(self, profile: Profile) -> int:
        return gram_scratch(profile, self.n_features)

    def finishing_bytes(self, profile: Profile) -> int:
        return 24 * GRAM_ROWS * self.n_features

    def zero(self) -> State:
        d = self.n_features
        rows = np.zeros(1, np.float64 if self.weighted else np.int64)
        return rows, np.zeros(d), np.zeros(d), np.zeros((d, d))

    @_QUIET
    def add(self, state: State, block: Block) -> None:
        rows, shift, sums, G = state
        X, weights = block.X, block.weights if self.weighted else None
        if rows[0] == 0:
            shift[:] = first_values(X)
        if weights is not None:
            rows[0] += weights.sum()
            sums += weights @ X - weights.sum() * shift
            gram_block(X, weights, shift if shift.any() else None, G)
            return
        rows[0] += X.shape[0]
        if isinstance(X, np.ndarray):
            for _, tile in dense_tiles(X, shift):
                sums += tile.sum(axis=0)
                G += tile.T @ tile  # the same array twice: BLAS computes one triangle of it
            return
        sums -= X.shape[0] * shift
        for part in sparse_strips(X):
            gram_block(X[part], None, shift if shift.any() else None, G)
        sums += np.ones(X.shape[0]) @ X  # `X.sum` of float32 has float32's digits

    @_QUIET
    def merge(self, into: State, other: State) -> None:
        if not other[0][0]:
            return
        rows, shift, sums, G = into
        more, other_shift, other_sums, other_G = other
        if rows[0] == 0:
            shift[:] = other_shift
        move = other_shift - shift
        rows += more
        G += other_G
        if move.any():
            # s m' + m s' + n m m' of the sums s, the move m and n rows, with one temporary.
            across = np.outer(other_sums + 0.5 * more[0] * move, move)
            G += across
            G += across.T
        sums += other_sums + more[0] * move

    @_QUIET
    def finalize(self, state: State) -> Array:
        rows, _, sums, G = state
        result: Array = np.outer(sums, sums / (rows[0].item() or 1))
        np.subtract(G, result, out=result)
        # BLAS computes one triangle and mirrors it; sums of sparse products may differ in the last digit.
        symmetrise(result)
        return result


class WeightedGram(Statistic):
    """Statistic: X'SX of centred and scaled X, S holding a weight for every row; shape (d, d), or (m, m) of m columns.

    Parameters
    ----------
    scaling : Scaling
    label_weights : float64 array, shape (q,)
        A row's weight is the sum of those of its positive labels. Rows of weight 0 are not looked at.
    columns : int array, shape (m,), optional
        Which features are meant; all by default.
    """

    def __init__(self, scaling: Scaling, label_weights: Array, *, columns: NDArray[np.intp] | None = None) -> None:
        self.scaling = scaling if columns is None else scaling.of_columns(columns)
        self.label_weights = label_weights
        self.columns = columns

    @property
    def state_bytes(self) -> int:
        return 8 * len(self.scaling.centre) ** 2

    def scratch_bytes(self, profile: Profile) -> int:
        m = len(self.scaling.centre)
        return gram_scratch(profile, m) + profile.block_bytes * (1 + (m < profile.d))

    def zero(self) -> State:
        m = len(self.scaling.centre)
        return (np.zeros((m, m)),)

    def add(self, state: State, block: Block) -> None:
        weights = row_weights(block.Y, self.label_weights)
        weighted_rows = np.flatnonzero(weights)
        X, weights = block.X[weighted_rows], weights[weighted_rows]
        for part in sparse_strips(X) if sp.issparse(X) else (slice(0, X.shape[0]),):
            rows = X[part] if self.columns is None else X[part][:, self.columns]
            gram_block(rows, weights[part], self.scaling.centre, state[0])

    def finalize(self, state: State) -> Array:
        (G,) = state
        return scale_gram((G + G.T) * 0.5, self.scaling.factor)


class NormalProduct(Statistic):
    """Statistic: X'SX P of centred and scaled X, shape (d, c), which forms no d × d matrix.

    Parameters
    ----------
    scaling : Scaling
    P : float64 array, shape (d, c)
    label_weights : float64 array, shape (q,), optional
        As in `WeightedGram`; all rows have weight 1 by default.
    """

    def __init__(self, scaling: Scaling, P: Array, *, label_weights: Array | None = None) -> None:
        self.scaling = scaling
        self.P = scaling.scale_rows(P)
        self.label_weights = label_weights

    @property
    def state_bytes(self) -> int:
        return self.P.nbytes

    @property
    def result_bytes(self) -> int:
        return self.P.nbytes

    @property
    def parameter_bytes(self) -> int:
        return int(self.P.nbytes)

    def scratch_bytes(self, profile: Profile) -> int:
        rows: int = 16 * profile.block_rows * self.P.shape[1]
        stored = 16 * profile.block_values if profile.sparse else TILE_BYTES
        return rows + self.P.nbytes + stored + profile.block_bytes * (self.label_weights is not None)

    def zero(self) -> State:
        return (np.zeros(self.P.shape),)

    def add(self, state: State, block: Block) -> None:
        X, centre, into = block.X, self.scaling.centre, state[0]
        weights = None
        if self.label_weights is not None:
            weights = row_weights(block.Y, self.label_weights)
            weighted_rows = np.flatnonzero(weights)
            X, weights = X[weighted_rows], weights[weighted_rows, np.newaxis]
        add_normal_product(X, centre, self.P, weights, into)

    def finalize(self, state: State) -> Array:
        return self.scaling.scale_rows(state[0])


def add_normal_product(X: Any, centre: Array, P: Array, weights: Array | None, into: Array) -> None:
    """Add (X − centre)'S(X − centre) P of some rows to `into`, (d, c), in place; `weights`, (rows, 1), is diag(S)."""
    if isinstance(X, np.ndarray):
        for part, tile in dense_tiles(X, centre):
            product = tile @ P
            if weights is not None:
                product *= weights[part]
            into += tile.T @ product
        return
    product = np.empty((X.shape[0], P.shape[1]))
    forward_block(X, P, centre, product)
    if weights is not None:
        product *= weights
    backward_block(X, product, centre, into)


def require_gram(d: int, cap: int, of: str = "", cure: str = "") -> None:
    """Refuse X'X of more features than may be.

    Parameters
    ----------
    d, cap : int
        Features, and the most of which X'X is formed.
    of : str
        What forms it, where that is an option.
    cure : str
        What to do in place of it.

    Raises
    ------
    DoesNotFitError
    """
    if d > cap:
        raise DoesNotFitError(
            f"X'X of {d:,} features, which {of or 'it'} forms for at most {cap:,} ({parameter('gram_cap')})",
            projected=8 * d * d,
            available=8 * int(cap) ** 2,
            cure=f"{cure}raise {parameter('gram_cap')}, or choose some of the features with a filter before",
        )


def scale_gram(G: Array, factor: Array) -> Array:
    """diag(factor) G diag(factor), symmetric as G is, in the place of G, some rows at a time."""
    for low in range(0, len(G), GRAM_ROWS):
        rows = slice(low, low + GRAM_ROWS)
        # The product of both factors first, or rounding would part the two triangles.
        G[rows] *= np.outer(factor[rows], factor)
    return G


def row_weights(Y: sp.csr_array, label_weights: Array) -> Array:
    """Sum of the weights of a row's positive labels, shape (rows,).

    >>> row_weights(sp.csr_array(np.array([[1, 0, 1], [0, -1, 0]])), np.array([1.0, 2.0, 4.0]))
    array([5., 0.])
    """
    positive = sp.csr_array((Y.data > 0, Y.indices, Y.indptr), shape=Y.shape)
    weights: Array = positive.astype(np.float64) @ label_weights
    return weights


def gram_scratch(profile: Profile, m: int) -> int:
    if profile.sparse:
        return gram_scratch_bytes(m, profile.block_rows, min(profile.block_values, GRAM_VALUES))
    return 8 * m * m + 2 * TILE_BYTES
