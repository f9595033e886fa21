"""Features centred and scaled, by algebra: sparse X stays sparse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.typing import Array, Matrix


@dataclass(frozen=True)
class Scaling:
    """Features as (x − centre) · factor.

    Attributes
    ----------
    centre, factor : float64 array, shape (d,)
        A feature of factor 0 is a column of zeros, whatever its values.
    """

    centre: Array
    factor: Array

    def apply(self, X: Matrix) -> Matrix:
        """(x − centre) · factor as new float64 rows; sparse rows as x · factor, which are as far from one another.

        Parameters
        ----------
        X : ndarray or csr_array, shape (rows, d)

        Examples
        --------
        >>> Scaling(np.array([1.0]), np.array([2.0])).apply(np.array([[3], [1]])).tolist()
        [[4.0], [0.0]]
        """
        if sp.issparse(X):
            # scikit-learn takes indices of 32 bits alone.
            indices, indptr = X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False)
            return sp.csr_array((X.data * self.factor[indices], indices, indptr), shape=X.shape)
        scaled = X.astype(np.float64)
        scaled -= self.centre
        scaled *= self.factor
        return scaled

    def scale_rows(self, W: Array) -> Array:
        """Return diag(factor) W of a (d, c) matrix: ((X − m) diag(f)) W = (X − m) (diag(f) W)."""
        return np.ascontiguousarray(self.factor[:, np.newaxis] * W)

    def of_columns(self, columns: NDArray[np.intp]) -> Scaling:
        """Return the scaling of some features."""
        return Scaling(self.centre[columns], self.factor[columns])


def standard_scaling(moments: FeatureMoments, *, standardise: bool = True) -> Scaling:
    """Zero mean and unit population standard deviation; a constant feature becomes zero.

    Parameters
    ----------
    moments : FeatureMoments
    standardise : bool
        False: zero mean alone.

    Examples
    --------
    >>> from mlfs_dask.statistics.moments import FeatureMoments
    >>> standard_scaling(FeatureMoments(2, np.array([1.0, 5.0]), np.array([8.0, 0.0])))
    Scaling(centre=array([1., 5.]), factor=array([0.5, 0. ]))
    """
    std = moments.std
    factor = np.zeros_like(std)
    np.divide(1.0, std, out=factor, where=std > 0)
    return Scaling(moments.mean, factor if standardise else (factor > 0).astype(np.float64))
