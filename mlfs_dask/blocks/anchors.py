"""Anchor graph: every row belongs to its few nearest of m anchors, with weights that sum to one.

Z, shape (n, m), has s weights a row. S = ZΛ⁻¹Z' with Λ = diag(Z'1) is a graph on the rows whose Laplacian is
I − ZΛ⁻¹Z', and tr V'(I − ZΛ⁻¹Z')V = min over U of Σ_i Σ_a z_ia ‖v_i − u_a‖², at u_a = Σ_i z_ia v_i / λ_a: given U, the
smoothness is a sum over the rows. W. Liu, J. He, S.-F. Chang, "Large graph construction for scalable
semi-supervised learning", ICML 2010, 679-686. The weights are those of adaptive graphs (Access-MFS, Eq. 21): they fall
linearly with the squared distance and reach zero at the (s+1)-th anchor.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.linear import dense_tiles, tile_bytes, tile_rows
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import Profile

#: Fewest anchors, and rows of the sample for each anchor.
FEWEST_ANCHORS = 8
ROWS_PER_ANCHOR = 20

#: Bytes that m anchors of d features may take.
ANCHOR_BYTES = 32 * 2**20

#: Anchors whose values differ by less than this fraction of the largest are merged: below it their squared distance is
#: rounding error.
COINCIDENT = 2.0**-26


def count_anchors(n_anchors: int, n: int, width: int) -> int:
    """Anchors of n rows of `width` features: as many as are wanted, but at most n/4 and what `ANCHOR_BYTES` hold.

    >>> count_anchors(300, 2_000_000, 200), count_anchors(300, 100, 200), count_anchors(300, 2_000_000, 100_000)
    (300, 25, 41)
    """
    return min(n, max(FEWEST_ANCHORS, min(n_anchors, n // 4, ANCHOR_BYTES // (8 * max(width, 1)))))


def place_anchors(points: Matrix, m: int, seed: int) -> Array:
    """Anchors as the centres of k-means on a sample, shape (m, width).

    Parameters
    ----------
    points : float64 array or csr_array, shape (rows, width)
        At least m.
    m : int
        Fewer are placed where fewer points are distinct.
    seed : int
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # The last digits of the points depend on how rows are cut into partitions. They would decide ties: which of two
    # nearly equal points becomes a centre, and to which of two equally near centres a point belongs. Single precision
    # drops these digits.
    rounded = points.astype(np.float32)
    # One thread: how sums are cut between threads would decide their last digits.
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
    """U = Λ⁻¹Z'V, shape (m, c); an anchor to which no row belongs keeps its value of before, or has 0.

    >>> anchor_values(np.array([[4.0], [0.0]]), np.array([2.0, 0.0]))
    array([[2.],
           [0.]])
    """
    U = np.zeros_like(ZV) if before is None else before.copy()
    np.divide(ZV, masses[:, np.newaxis], out=U, where=masses[:, np.newaxis] > 0)
    return U


def propagate_to_anchors(masses: Array, ZZ: Array, ZY: Array, *, unreached: float) -> Array:
    """U, shape (m, q), of (Λ − Z'AZ) U = Z'Y: values of anchors that rows have in part from their anchors.

    Parameters
    ----------
    masses : float64 array, shape (m,)
        The diagonal of Λ.
    ZZ : float64 array, shape (m, m)
        Z'AZ, the diagonal matrix A having what part of its values a row has from its anchors, from 0 to 1.
    ZY : float64 array, shape (m, q)
        Z'Y of what rows have of their own.
    unreached : float
        Value of anchors to which no row has anything to give, not even by way of others.

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
    """Anchors, shape (m, c), of which those that are the same but for rounding have the same values: the first one's.

    Anchors that follow their rows may meet, and then lie together for good, for rows belong to both alike. Apart by
    rounding, they might part again, the distance doubling with every iteration: sums in another order, of other
    partitions, would after forty iterations give other scores.

    >>> join_coincident(np.array([[1.0], [1.0 + 1e-15], [2.0]]))
    array([[1.],
           [1.],
           [2.]])
    """
    from scipy.spatial import KDTree

    reach = COINCIDENT * float(np.abs(points).max(initial=0.0))
    taken = np.arange(len(points))
    for first, second in sorted(KDTree(points).query_pairs(reach)):
        if taken[second] == second:
            taken[second] = taken[first]
    return points[taken]


class Anchors:
    """Anchors among standardised rows, ready to weigh rows.

    Parameters
    ----------
    centres : float64 array, shape (m, d)
        Of rows (x − centre) · factor.
    centre : float64 array, shape (d,), or None
        None for 0.
    factor : float64 array, shape (d,)
    neighbors : int
        s; at most m − 1 are used.
    combined : bool
        Whether a row is weighed by the combination of its anchors, with weights of sum 1 that are not negative, that
        gives it again best (local anchor embedding, Liu, He & Chang 2010); otherwise by distance.
    """

    def __init__(
        self, centres: Array, centre: Array | None, factor: Array, neighbors: int, *, combined: bool = False
    ) -> None:
        self.centres = centres
        self.centre = centre
        self.factor = factor
        self.neighbors = min(neighbors, max(len(centres) - 1, 1))
        self.combined = combined
        self._dense: tuple[Array, NDArray[np.float32], NDArray[np.float32], Array, Array] | None = None
        self._sparse: tuple[Array, Array, Array] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Anchors, combined=self.combined), (self.centres, self.centre, self.factor, self.neighbors)

    @property
    def count(self) -> int:
        """m."""
        return len(self.centres)

    @property
    def nbytes(self) -> int:
        """Bytes that a process holds, with the form that suits the kernels."""
        return anchor_bytes(*self.centres.shape) + 8 * self.combined * self.count**2

    def scratch_bytes(self, profile: Profile) -> int:
        """Bytes that `weigh` allocates for a group of rows."""
        return weigh_scratch_bytes(profile, self.centres.shape[1], self.count, self.neighbors)

    def weigh(self, X: Matrix) -> sp.csr_array:
        """Z of some rows, shape (rows, m), s entries a row.

        Parameters
        ----------
        X : ndarray or csr_array, shape (rows, d)
            Neither centred nor scaled.
        """
        from mlfs_dask.blocks import anchors_compiled as kernels

        rows, m, s = X.shape[0], self.count, self.neighbors
        indices, weights = np.zeros((rows, s), np.int32), np.ones((rows, s))
        if m == 1:
            pass
        elif isinstance(X, np.ndarray):
            if self._dense is None:
                # Powers of 2 near the factors bring rows of any scale into the range of single precision without
                # rounding them.
                powers = np.where(self.factor > 0, np.ldexp(1.0, np.frexp(self.factor)[1]), 0.0)
                rest = np.divide(self.factor, powers, out=np.zeros_like(powers), where=powers > 0)
                columns = np.ascontiguousarray((rest * self.centres).T * -2.0, np.float32)
                squares = _squares(self.centres)
                rounding = _single_rounding(len(powers), float(squares.max()))
                products = self._products(self.centres)
                self._dense = powers, columns, squares.astype(np.float32), rounding, products
            powers, columns, single_squares, rounding, products = self._dense
            for part, tile in dense_tiles(X, self.centre):
                # Single precision tells which anchors may be among the nearest, double precision their distances.
                with np.errstate(over="ignore", invalid="ignore"):  # rows that are far out, or not finite
                    single = np.multiply(tile, powers, out=np.empty(tile.shape, np.float32), casting="same_kind")
                    scores = single @ columns
                    scores += single_squares
                kernels.weigh_dense(
                    tile, self.factor, self.centres, scores, rounding, products, indices[part], weights[part]
                )
        else:
            if self._sparse is None:
                moved = self.centres if self.centre is None else self.centres + self.centre * self.factor
                self._sparse = np.ascontiguousarray(moved.T), _squares(moved), self._products(moved)
            rowptr = X.indptr.astype(np.int64, copy=False)
            kernels.weigh_sparse(X.data, X.indices, rowptr, self.factor, *self._sparse, indices, weights)
        return weights_to_csr(indices, weights, m)

    def _products(self, centres: Array) -> Array:
        products: Array = centres @ centres.T if self.combined else np.empty((0, 0))
        return products


def _single_rounding(d: int, square: float) -> Array:
    """Bounds of the error of ‖c‖² − 2x·c in single precision, a part per ‖x‖ and a constant one.

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


def anchor_bytes(m: int, d: int) -> int:
    """Bytes of m `Anchors` of d features."""
    return 16 * m * d + 16 * d


def weights_to_csr(indices: NDArray[np.int32], weights: Array, m: int) -> sp.csr_array:
    """Z, shape (rows, m), of s anchors and their weights a row."""
    rows, s = indices.shape
    # With 64-bit offsets SciPy would copy the indices of what Z is multiplied by.
    ends = np.arange(0, rows * s + 1, s, dtype=np.int32)
    return sp.csr_array((weights.ravel(), indices.ravel(), ends), shape=(rows, m))


def weigh_scratch_bytes(profile: Profile, d: int, m: int, s: int) -> int:
    """Bytes that `Anchors.weigh` allocates for a group of rows of d features; `profile.sparse` says whether sparse."""
    scores = 0 if profile.sparse else 2 * tile_bytes() + 4 * tile_rows(d) * m
    return scores + 36 * min(gates.GROUP_ROWS, profile.block_rows) * s


def _squares(rows: Array) -> Array:
    squares: Array = np.einsum("ij,ij->i", rows, rows)
    return squares
