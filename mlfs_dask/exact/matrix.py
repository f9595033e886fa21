"""X in memory, centred and scaled: products with it, and Gram matrices. Sparse X is never made dense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.linear import gram_block, laplacian_gram
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.statistics.moments import FeatureMoments


class ScaledMatrix:
    """(X − centre) · factor of the features.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
        Dense X is copied as float64, of sparse X only its values.
    moments : FeatureMoments
    centre : bool
        Whether means become zero.
    standardise : bool
        Whether the standard deviations become one. A constant feature becomes zero in any case.
    ddof : int
        1: the sample standard deviations, of n − 1, which authors' programs take; by default those of the population.

    Attributes
    ----------
    shape : (int, int)
    factor : float64 array, shape (d,)
    squares : float64 array, shape (d,)
        Mean square of every feature as it is seen here.
    rows : float64 ndarray or csr_array, shape (n, d)
        Rows between which distances are those of the scaled ones: sparse ones are not centred.
    centre : float64 array, shape (d,), or None
        Centre still to be subtracted from `rows`; None if they are centred.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> moments = SimpleNamespace(n=2, mean=np.array([1.0, 5.0]), m2=np.array([8.0, 0.0]))
    >>> X = ScaledMatrix(np.array([[-1, 5], [3, 5]]), moments)
    >>> X.forward(np.eye(2))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    def __init__(
        self, X: Matrix, moments: FeatureMoments, *, centre: bool = True, standardise: bool = True, ddof: int = 0
    ) -> None:
        self.shape: tuple[int, int] = X.shape
        n, d = X.shape
        deviation = np.sqrt(moments.m2 / max(moments.n - ddof, 1))
        self.factor = (deviation > 0).astype(np.float64)
        if standardise:
            np.divide(1.0, deviation, out=self.factor, where=deviation > 0)
        self.squares: Array = (deviation * self.factor) ** 2
        if not centre:
            self.squares += (moments.mean * self.factor) ** 2
        if sp.issparse(X):
            data = X.data * self.factor[X.indices]  # float64
            self.rows: Matrix = sp.csr_array((data, X.indices, X.indptr), shape=(n, d))
            self.centre: Array | None = moments.mean * self.factor if centre else None
            self._transposed = self.rows.T
        else:
            rows = X.astype(np.float64)
            if centre:
                rows -= moments.mean
            rows *= self.factor
            self.rows, self.centre, self._transposed = rows, None, rows.T

    def forward(self, W: Array) -> Array:
        """Return X W, shape (n, c)."""
        product = np.asarray(self.rows @ W)
        if self.centre is not None:
            product -= self.centre @ W
        return product

    def backward(self, V: Array) -> Array:
        """Return X'V, shape (d, c)."""
        product = np.asarray(self._transposed @ V)
        if self.centre is not None:
            product -= np.outer(self.centre, V.sum(axis=0))
        return product

    def gram(self, weights: Array | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        """Return X'X, or X'SX with the diagonal of S, shape (d, d).

        Parameters
        ----------
        weights : float64 array, shape (n,), optional
            Diagonal of S; not negative.
        columns : int array, shape (m,), optional
            Of some features alone, shape (m, m).
        """
        X, centre = self.rows, self.centre
        if columns is not None:
            X = X[:, columns]
            centre = None if centre is None else centre[columns]
        G = np.zeros((X.shape[1], X.shape[1]))
        gram_block(X, weights, centre, G)
        return G

    def gram_with(self, laplacian: Laplacian, factor: float = 1.0) -> Array:
        """Return X'LX times a factor, shape (d, d). Rows of L sum to zero: what X is centred at does not matter."""
        return laplacian_gram(self.rows, laplacian.graph * factor, laplacian.degrees * factor)


def workspace(*, sparse: bool) -> str:
    """Return the memory of `ScaledMatrix` besides X, and of its products.

    Of sparse X its values; in a Gram matrix also its transpose and what weights make of it, and rows of the product.
    """
    return f"7 v + {4 * gates.GRAM_ROWS} d" if sparse else "n d"
