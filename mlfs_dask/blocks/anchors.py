"""Anchor graph: every row is linked to the nearest of m anchors, with weights that sum to one.

Z, shape (n, m), has s weights a row. S = ZΛ⁻¹Z' with Λ = diag(Z'1) is a graph on the rows whose Laplacian is
I − ZΛ⁻¹Z', and tr V'(I − ZΛ⁻¹Z')V = min over U of Σ_i Σ_a z_ia ‖v_i − u_a‖², at u_a = Σ_i z_ia v_i / λ_a: given U, the
smoothness is a sum over the rows. W. Liu, J. He, S.-F. Chang, "Large graph construction for scalable
semi-supervised learning", ICML 2010, 679-686. The weights are those of adaptive graphs (Access-MFS, Eq. 21): they fall
linearly with the squared distance and reach zero at the (s+1)-th anchor.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.linear import dense_tiles, row_groups, tile_bytes, tile_rows
from mlfs_dask.blocks.rounding import NEGLIGIBLE, ROUNDING
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import Block, Profile

#: Least number of anchors, and sample rows for each anchor.
FEWEST_ANCHORS = 8
ROWS_PER_ANCHOR = 20

#: Most bytes of m anchors of d features.
ANCHOR_BYTES = 32 * 2**20

#: Anchors whose values differ by less than this fraction of the largest value are merged: their squared distance is
#: pure rounding error.
COINCIDENT = 2.0**-26


def count_anchors(n_anchors: int, n: int, width: int) -> int:
    """Return the number of anchors for n rows of `width` features: at most n/4, within `ANCHOR_BYTES`.

    >>> count_anchors(300, 2_000_000, 200), count_anchors(300, 100, 200), count_anchors(300, 2_000_000, 100_000)
    (300, 25, 41)
    """
    return min(n, max(FEWEST_ANCHORS, min(n_anchors, n // 4, ANCHOR_BYTES // (8 * max(width, 1)))))


def place_anchors(points: Matrix, m: int, seed: int) -> Array:
    """Return anchors, the centres of k-means on a sample, shape (m, width).

    Parameters
    ----------
    points : float64 array or csr_array, shape (rows, width)
        At least m points.
    m : int
        Number of anchors; fewer are returned if fewer points are distinct.
    seed : int
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # The last digits of the points depend on the partitions. They would decide which of two nearly equal points becomes
    # a centre, and to which of two equally distant centres a point belongs. Single precision drops these digits.
    rounded = points.astype(np.float32)
    # One thread: the split of sums between threads would change their last digits.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than m
        means = KMeans(m, n_init=1, max_iter=25, random_state=seed % 2**32)
        labels = means.fit(rounded).labels_
    rows = len(labels)
    member = sp.csr_array((np.ones(rows), (labels, np.arange(rows))), shape=(m, rows))
    sizes = np.bincount(labels, minlength=m)
    sums = member[sizes > 0] @ points
    centres: Array = (sums.toarray() if sp.issparse(sums) else sums) / sizes[sizes > 0, np.newaxis]
    _, first = np.unique(centres, axis=0, return_index=True)
    return np.ascontiguousarray(centres[np.sort(first)])


def anchor_values(ZV: Array, masses: Array, before: Array | None = None) -> Array:
    """Return U = Λ⁻¹Z'V, shape (m, c); an anchor without rows keeps its value in `before`, or 0.

    >>> anchor_values(np.array([[4.0], [0.0]]), np.array([2.0, 0.0]))
    array([[2.],
           [0.]])
    """
    U = np.zeros_like(ZV) if before is None else before.copy()
    np.divide(ZV, masses[:, np.newaxis], out=U, where=masses[:, np.newaxis] > 0)
    return U


def propagate_to_anchors(masses: Array, ZZ: Array, ZY: Array, *, unreached: float) -> Array:
    """Solve (Λ − Z'AZ) U = Z'Y for U, shape (m, q), where rows take part of their values from anchors.

    Parameters
    ----------
    masses : float64 array, shape (m,)
        The diagonal of Λ.
    ZZ : float64 array, shape (m, m)
        Z'AZ, with the share of a row's values that comes from its anchors, from 0 to 1, in the diagonal matrix A.
    ZY : float64 array, shape (m, q)
        Z'Y of the rows' own shares.
    unreached : float
        Value of anchors that no row with an own value is connected to, directly or through other anchors.

    Examples
    --------
    >>> masses, ZZ, ZY = np.array([2.0, 1.0, 0.0]), np.diag([1.0, 0.0, 0.0]), np.array([[3.0], [1.0], [0.0]])
    >>> propagate_to_anchors(masses, ZZ, ZY, unreached=-1.0).tolist()
    [[3.0], [1.0], [-1.0]]
    """
    reached: NDArray[np.bool_] = masses - ZZ.sum(axis=1) > 1e-9 * np.maximum(masses, 1e-300)
    while True:
        more: NDArray[np.bool_] = reached | ((ZZ > 0) & reached).any(axis=1)
        if (more == reached).all():
            break
        reached = more
    U: Array = np.full(ZY.shape, unreached)
    if reached.any():
        U[reached] = np.linalg.solve((np.diag(masses) - ZZ)[np.ix_(reached, reached)], ZY[reached])
    return U


def join_coincident(points: Array) -> Array:
    """Merge anchors, shape (m, c), that are equal up to rounding: all get the values of the first.

    Anchors that move with their rows may coincide, and then stay together, since rows belong equally to both. A
    rounding difference between them would double with every iteration: sums in another order, from other partitions,
    would change the scores after forty iterations.

    >>> join_coincident(np.array([[1.0], [1.0 + 1e-15], [2.0]]))
    array([[1.],
           [1.],
           [2.]])
    """
    from scipy.spatial import KDTree

    tolerance = COINCIDENT * float(np.abs(points).max(initial=0.0))
    representative = np.arange(len(points))
    for first, second in sorted(KDTree(points).query_pairs(tolerance)):
        if representative[second] == second:
            representative[second] = representative[first]
    return points[representative]


class Anchors:
    """Anchors of standardised rows, prepared for weighing rows.

    Parameters
    ----------
    centres : float64 array, shape (m, d)
        Centres of the rows (x − centre) · factor.
    centre : float64 array, shape (d,), or None
        None stands for 0.
    factor : float64 array, shape (d,)
    neighbors : int
        s; at most m − 1 are used.
    combined : bool
        True: weights are those of the non-negative combination of anchors, with sum 1, that best reconstructs the row
        (local anchor embedding, Liu, He & Chang 2010). False: weights by distance.
    """

    def __init__(
        self, centres: Array, centre: Array | None, factor: Array, neighbors: int, *, combined: bool = False
    ) -> None:
        self.centres = centres
        self.centre = centre
        self.factor = factor
        self.neighbors = min(neighbors, max(len(centres) - 1, 1))
        self.combined = combined
        self._dense: tuple[Array, NDArray[np.float32], NDArray[np.float32], Array, Array | None] | None = None
        self._sparse: tuple[Array, Array, Array | None] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Anchors, combined=self.combined), (self.centres, self.centre, self.factor, self.neighbors)

    @property
    def count(self) -> int:
        """Number of anchors, m."""
        return len(self.centres)

    @cached_property
    def digest(self) -> str:
        """Digest of what weights depend on beside the rows."""
        values = (self.centres, self.centre, self.factor, self.neighbors, self.combined)
        return digest_of({"anchors": [value for value in values if value is not None]})

    @property
    def nbytes(self) -> int:
        """Bytes of the anchors in a process, including the copies for the kernels."""
        d: int = self.centres.shape[1]
        return 16 * (self.count + 1) * d + 8 * self.combined * self.count**2

    def scratch_bytes(self, profile: Profile) -> int:
        """Return the bytes that `weigh` allocates for a group of rows."""
        return weigh_scratch_bytes(profile, self.centres.shape[1], self.count, self.neighbors)

    def weigh(self, X: Matrix) -> sp.csr_array:
        """Return Z of a group of rows, shape (rows, m), with s entries per row.

        Parameters
        ----------
        X : ndarray or csr_array, shape (rows, d)
            Neither centred nor scaled.
        """
        rows, m, s = X.shape[0], self.count, self.neighbors
        indices, weights = np.zeros((rows, s), np.int32), np.ones((rows, s))
        if m == 1:
            pass
        elif not (self.combined or gates.compiles_rows(rows)):
            for part in row_groups(rows, tile_rows(m if sp.issparse(X) else max(m, X.shape[1]))):
                self._weigh_few(X[part], indices[part], weights[part])
        elif isinstance(X, np.ndarray):
            from mlfs_dask.blocks import anchors_compiled as kernels

            if self._dense is None:
                # Powers of 2 near the factors bring rows of any scale into the range of single precision without
                # rounding.
                powers = np.where(self.factor > 0, np.ldexp(1.0, np.frexp(self.factor)[1]), 0.0)
                rest = np.divide(self.factor, powers, out=np.zeros_like(powers), where=powers > 0)
                columns = np.ascontiguousarray((rest * self.centres).T * -2.0, np.float32)
                squares = squares_of(self.centres)
                rounding = _single_rounding(len(powers), float(squares.max()))
                products = self._products(self.centres)
                self._dense = powers, columns, squares.astype(np.float32), rounding, products
            powers, columns, single_squares, rounding, products = self._dense
            for part, tile in dense_tiles(X, self.centre, m):
                # Single precision selects the candidates for the nearest anchors; double precision computes their
                # distances.
                with np.errstate(over="ignore", invalid="ignore"):  # rows may be extreme or not finite
                    single = np.multiply(tile, powers, out=np.empty(tile.shape, np.float32), casting="same_kind")
                    scores = single @ columns
                    scores += single_squares
                kernels.weigh_dense(
                    tile, self.factor, self.centres, scores, rounding, products, indices[part], weights[part]
                )
        else:
            from mlfs_dask.blocks import anchors_compiled as kernels

            if self._sparse is None:
                moved = self._moved()
                self._sparse = np.ascontiguousarray(moved.T), squares_of(moved), self._products(moved)
            rowptr = X.indptr.astype(np.int64, copy=False)
            kernels.weigh_sparse(X.data, X.indices, rowptr, self.factor, *self._sparse, indices, weights)
        return weights_to_csr(indices, weights, m)

    def _moved(self) -> Array:
        """Return the anchors of scaled rows that are not centred."""
        return self.centres if self.centre is None else self.centres + self.centre * self.factor

    def _weigh_few(self, X: Matrix, indices: NDArray[np.int32], weights: Array) -> None:
        """Write what the kernels do, for few rows, by NumPy."""
        with np.errstate(over="ignore", invalid="ignore"):  # rows may be extreme or not finite
            if sp.issparse(X):
                centres, values = self._moved(), X.data * self.factor[X.indices]
                scaled = sp.csr_array((values, X.indices, X.indptr), X.shape)
                sizes = scaled.power(2).sum(axis=1)
            else:
                centres, scaled = self.centres, (X if self.centre is None else X - self.centre) * self.factor
                sizes = squares_of(scaled)
            squares = squares_of(centres)
            scores = scaled @ (-2.0 * centres.T)
            scores += squares
            if sp.issparse(X):
                sizes += squares[scores.argmin(axis=1)]
            else:  # products select the candidates, of which the distances are computed
                bound = np.partition(scores, self.neighbors, axis=1)[:, self.neighbors]
                bound += ROUNDING * (sizes + squares.max())
                row, anchor = np.nonzero(~(scores > bound[:, np.newaxis]))
                scores[...] = np.inf
                for part in row_groups(len(row), tile_rows(X.shape[1])):
                    scores[row[part], anchor[part]] = squares_of(scaled[row[part]] - centres[anchor[part]])
        nearest_weights(scores, sizes, indices, weights)

    def _products(self, centres: Array) -> Array | None:
        """None if weights are by distance: then the kernels leave `reconstruct` out, which takes 2 s to compile."""
        return centres @ centres.T if self.combined else None


def weigh_scores(scores: Array, indices: NDArray[np.int32], weights: Array) -> None:
    """Write the nearest anchors of rows and their weights, with m > s.

    Parameters
    ----------
    scores : float64 array, shape (rows, m)
        Squared distances up to a constant per row; may be overwritten.
    indices : int32 array, shape (rows, s)
    weights : float64 array, shape (rows, s)
    """
    if gates.compiles_rows(len(scores)):
        from mlfs_dask.blocks import anchors_compiled as kernels

        kernels.weigh_scores(scores, indices, weights)
    else:
        nearest_weights(scores, np.maximum(scores.max(axis=1), -scores.min(axis=1)), indices, weights)


def nearest_weights(scores: Array, sizes: Array | float, indices: NDArray[np.int32], weights: Array) -> None:
    """Write what `weigh_scores` does, for few rows, by NumPy; it overwrites `scores`.

    `sizes`, shape (rows,), is the scale of the distances: if they differ only by rounding relative to it, the weights
    are equal.
    """
    (rows, s), row = weights.shape, np.arange(len(scores))
    near = np.empty((rows, s + 1))
    for p in range(s + 1):
        nearest = scores.argmin(axis=1)  # the first of equal ones
        near[:, p], scores[row, nearest] = scores[row, nearest], np.inf
        if p < s:
            indices[:, p] = nearest
    last = near[:, s:]
    with np.errstate(invalid="ignore"):  # infinite distances
        weights[...] = last - near[:, :s]
        total = weights.sum(axis=1, keepdims=True)
        equal = total <= NEGLIGIBLE * s * (np.reshape(sizes, (-1, 1)) + np.abs(last))
        np.divide(weights, total, out=weights, where=~equal)
    np.copyto(weights, 1.0 / s, where=equal)


def _single_rounding(d: int, square: float) -> Array:
    """Return bounds of the error of ‖c‖² − 2x·c in single precision: one relative to ‖x‖, and a constant one.

    Errors of a sum of d products add up as √d but for a probability of 2d·exp(−32) (N. J. Higham, T. Mary, "A new
    approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019, doi:10.1137/18M1226312).

    Parameters
    ----------
    d : int
    square : float
        Largest ‖c‖².
    """
    unit, least = np.finfo(np.float32).eps / 2, np.finfo(np.float32).tiny
    return np.array([2 * unit * (min(d, 8 * np.sqrt(d)) + 4) * np.sqrt(square), 2 * unit * square + 2 * d * least])


def weights_to_csr(indices: NDArray[np.int32], weights: Array, m: int) -> sp.csr_array:
    """Return Z, shape (rows, m), from the s anchors and weights of every row."""
    rows, s = indices.shape
    # With 64-bit offsets, SciPy would copy the indices of the other factor of a product.
    ends = np.arange(0, rows * s + 1, s, dtype=np.int32)
    return sp.csr_array((weights.ravel(), indices.ravel(), ends), shape=(rows, m))


class WeighsRows(Protocol):
    """Anchors of rows: `Anchors`, or `MassAnchors`."""

    neighbors: int

    @property
    def count(self) -> int: ...

    @property
    def digest(self) -> str: ...

    def weigh(self, X: Matrix) -> sp.csr_array: ...


def weigh_block(anchors: WeighsRows, block: Block) -> Iterator[sp.csr_array]:
    """Yield Z of the groups of rows of a block; it is kept in the block's files, or loaded from there."""
    rows, m, s, files = block.X.shape[0], anchors.count, anchors.neighbors, block.files
    kept = None if files is None else files.load(anchors.digest, block.start, rows, kept_bytes(anchors))
    space = np.empty(rows * kept_bytes(anchors), np.uint8) if kept is None else kept
    weights = space[: 8 * rows * s].view(np.float64).reshape(rows, s)
    indices = space[8 * rows * s :].view(np.int32).reshape(rows, s)
    for part in row_groups(rows):
        if kept is None:
            Z = anchors.weigh(block.X[part])
            weights[part], indices[part] = Z.data.reshape(-1, s), Z.indices.reshape(-1, s)
        yield weights_to_csr(indices[part], weights[part], m)
    if kept is None and files is not None:
        files.save(anchors.digest, block.start, rows, space)


def kept_bytes(anchors: WeighsRows) -> int:
    """Return the bytes that `weigh_block` holds for a row of a block."""
    return 12 * anchors.neighbors


def weigh_scratch_bytes(profile: Profile, d: int, m: int, s: int) -> int:
    """Return the bytes that `Anchors.weigh` allocates for a group of rows of d features, sparse by `profile.sparse`."""
    few = 0 if gates.compiles_rows(profile.n) else 4 * tile_bytes()
    scores = few if profile.sparse else 2 * tile_bytes() + max(few, 4 * tile_rows(max(d, m)) * m)
    return scores + 36 * min(gates.GROUP_ROWS, profile.block_rows) * s


def squares_of(rows: Array) -> Array:
    """Return the squared norms of rows."""
    squares: Array = np.einsum("ij,ij->i", rows, rows)
    return squares
