"""X'X of centred X, X'SX with weights of rows, and products with them: for methods that regress on features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.linear import (
    backward_block,
    dense_tiles,
    forward_block,
    gram_block,
    gram_scratch_bytes,
    group_scratch_bytes,
    leaves_cache,
    row_groups,
    sparse_strips,
    symmetrise,
    tile_bytes,
)
from mlfs_dask.blocks.unknown import unknown_marks
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.errors import DoesNotFitError, parameter
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.moments import first_values
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array

#: Most features for which a method forms a d × d matrix, or weighs every pair, by default: 128 MiB of float64.
GRAM_CAP = 4096

#: Values that are not finite spoil their own feature's sums, by which they are found and refused (`Moments`).
_QUIET = np.errstate(over="ignore", invalid="ignore")


class Gram(Statistic):
    """Statistic: (X − mean)'(X − mean), shape (d, d), or within groups of features, flat, one after the other.

    Dense X is summed relative to the first row that a state meets, so that a feature far from zero keeps its digits,
    and the mean need not be known before. Sparse X is summed as it is: zero is its origin.

    Parameters
    ----------
    n_features : int
    groups : sequence of int64 array, optional
        Features of each group. By default all are one, and the result is square.
    unknown : int64 array, shape (u,), optional
        Labels that may have unknown entries, rising. The result then has an axis more, of 1 + u: after that of all rows
        X'X of those where each of these labels is known, about their own mean. It is the sum over all rows less that
        over the rows in which the label is unknown, which are summed once more for it.
    weighted : bool
        Whether rows have weights.
    """

    state_names = ("rows", "shift", "sums", "gram")

    def __init__(
        self,
        n_features: int,
        *,
        groups: Sequence[NDArray[np.int64]] | None = None,
        unknown: NDArray[np.int64] | None = None,
        weighted: bool = False,
    ) -> None:
        self.n_features = n_features
        self.groups = groups
        self.unknown = np.empty(0, np.int64) if unknown is None else unknown
        self.weighted = weighted
        self.size = n_features**2 if groups is None else sum(len(members) ** 2 for members in groups)

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "gram" if self.groups is None else ""

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"unknown": self.unknown} if len(self.unknown) else {}

    @property
    def _axis(self) -> tuple[int, ...]:
        """The axis of all rows and those where each label is known."""
        return (1 + len(self.unknown),) if len(self.unknown) else ()

    @property
    def _shape(self) -> tuple[int, ...]:
        return (*self._axis, *((self.n_features,) * 2 if self.groups is None else (self.size,)))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        d = self.n_features
        return (1 + len(self.unknown),), (d,), (*self._axis, d), self._shape

    @property
    def result_bytes(self) -> int:
        return 8 * (1 + len(self.unknown)) * self.size

    def scratch_bytes(self, profile: Profile) -> int:
        unknown = 0
        if len(self.unknown):  # rows of one label, copied out of the block
            unknown = profile.block_bytes + 60 * profile.labels_of_row * profile.block_rows
        if self.groups is None:
            return unknown + gram_scratch(profile, self.n_features)
        widest = max(map(len, self.groups), default=0)
        columns = 2 * profile.block_bytes if profile.sparse else 0  # of X by columns
        return unknown + columns + 16 * widest * profile.block_rows + 8 * widest**2

    def finishing_bytes(self, profile: Profile) -> int:
        known = 8 * self.size * (len(self.unknown) > 0)
        return known + 24 * gates.GRAM_ROWS * self.n_features

    def zero(self) -> State:
        rows, *sums = self.shapes
        return np.zeros(rows, np.float64 if self.weighted else np.int64), *map(np.zeros, sums)

    def _sums(self, state: State) -> tuple[NDArray[Any], Array, Array, Array]:
        """Return the state, with an axis of all rows and those in which each label is unknown."""
        rows, shift, sums, grams = state
        return rows, shift, sums.reshape(-1, self.n_features), grams.reshape(-1, self.size)

    def matrices(self, flat: Array) -> Iterator[tuple[Any, Array]]:
        """Return the groups of features, each with its matrix, of the numbers of all of them."""
        if self.groups is None:
            yield slice(None), flat.reshape(self.n_features, self.n_features)
            return
        start = 0
        for members in self.groups:
            stop = start + len(members) ** 2
            yield members, flat[start:stop].reshape(len(members), -1)
            start = stop

    @_QUIET
    def add(self, state: State, block: Block) -> None:
        rows, shift, sums, grams = self._sums(state)
        X, weights = block.X, block.weights if self.weighted else None
        if rows[0] == 0:
            shift[:] = first_values(X)
        self._add_rows(X, weights, shift, rows[:1], sums[0], grams[0])
        if not len(self.unknown):
            return
        marks = unknown_marks(block.Y, self.unknown).tocsc()
        for i in range(len(self.unknown)):
            inside = marks.indices[marks.indptr[i] : marks.indptr[i + 1]]
            if len(inside):
                own = None if weights is None else weights[inside]
                self._add_rows(X[inside], own, shift, rows[i + 1 : i + 2], sums[i + 1], grams[i + 1])

    def _add_rows(
        self, X: Any, weights: Array | None, shift: Array, rows: NDArray[Any], sums: Array, gram: Array
    ) -> None:
        rows += X.shape[0] if weights is None else weights.sum()
        if self.groups is not None:
            dense = isinstance(X, np.ndarray)
            columns: Any = X if dense else X.tocsc()
            for members, G in self.matrices(gram):
                part = columns[:, members].astype(np.float64)
                part = (part if dense else part.toarray()) - shift[members]
                weighted = part if weights is None else part * weights[:, np.newaxis]
                G += weighted.T @ part
                sums[members] += weighted.sum(axis=0)
            return
        ((_, G),) = self.matrices(gram)
        if weights is not None:
            sums += weights @ X - weights.sum() * shift
            gram_block(X, weights, shift if shift.any() else None, G)
            return
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
        rows, shift, sums, grams = self._sums(into)
        more, other_shift, other_sums, other_grams = self._sums(other)
        if not more[0]:
            return
        if rows[0] == 0:
            shift[:] = other_shift
        move = other_shift - shift
        rows += more
        grams += other_grams
        if move.any():
            # s m' + m s' + n m m' of the sums s, the move m and n rows, with one temporary.
            for own, n, gram in zip(other_sums, more, grams, strict=True):
                for members, G in self.matrices(gram):
                    across = np.outer(own[members] + 0.5 * n * move[members], move[members])
                    G += across
                    G += across.T
        sums += other_sums + more[:, np.newaxis] * move

    @_QUIET
    def finalize(self, state: State) -> Array:
        rows, _, sums, grams = self._sums(state)
        result = np.empty(grams.shape)
        for i, centred in enumerate(result):
            n, own = rows[0].item(), sums[0]
            if i:
                n, own = n - rows[i].item(), own - sums[i]
                np.subtract(grams[0], grams[i], out=centred)
            for (members, G), (_, out) in zip(self.matrices(grams[0]), self.matrices(centred), strict=True):
                if i:
                    out -= np.outer(own[members], own[members] / (n or 1))
                else:
                    np.outer(own[members], own[members] / (n or 1), out=out)
                    np.subtract(G, out, out=out)
                # BLAS computes one triangle and mirrors it; sums of sparse products may differ in the last digit.
                symmetrise(out)
        return result.reshape(self._shape)


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
    def shapes(self) -> tuple[tuple[int, int]]:
        return ((len(self.scaling.centre),) * 2,)

    def scratch_bytes(self, profile: Profile) -> int:
        m = len(self.scaling.centre)
        return gram_scratch(profile, m) + profile.block_bytes * (1 + (m < profile.d))

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
    def shapes(self) -> tuple[tuple[int, ...]]:
        return (self.P.shape,)

    @property
    def compiled(self) -> bool:  # type: ignore[override]
        return leaves_cache(self.P.size)

    def scratch_bytes(self, profile: Profile) -> int:
        own = group_scratch_bytes(profile, 2 * self.P.shape[1])
        return own + self.P.nbytes + profile.block_bytes * (self.label_weights is not None)

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
    for part in row_groups(X.shape[0]):
        rows = X[part]
        product = np.empty((rows.shape[0], P.shape[1]))
        forward_block(rows, P, centre, product)
        if weights is not None:
            product *= weights[part]
        backward_block(rows, product, centre, into)


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
    """Return diag(factor) G diag(factor), symmetric as G is, in the place of G, some rows at a time."""
    for low in range(0, len(G), gates.GRAM_ROWS):
        rows = slice(low, low + gates.GRAM_ROWS)
        # The product of both factors first, or rounding would part the two triangles.
        G[rows] *= np.outer(factor[rows], factor)
    return G


def row_weights(Y: sp.csr_array, label_weights: Array) -> Array:
    """Return the sum of the weights of a row's positive labels, shape (rows,).

    >>> row_weights(sp.csr_array(np.array([[1, 0, 1], [0, -1, 0]])), np.array([1.0, 2.0, 4.0]))
    array([5., 0.])
    """
    positive = sp.csr_array((Y.data > 0, Y.indices, Y.indptr), shape=Y.shape)
    weights: Array = positive.astype(np.float64) @ label_weights
    return weights


def gram_scratch(profile: Profile, m: int) -> int:
    if profile.sparse:
        return gram_scratch_bytes(m, profile.block_rows, min(profile.block_values, gates.VALUES_AT_ONCE))
    return 8 * m * m + 2 * tile_bytes()
