"""Features centred and scaled, by algebra: sparse X stays sparse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.primitives.moments import FeatureMoments


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

    def scale_rows(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """diag(factor) W of a (d, c) matrix: ((X − m) diag(f)) W = (X − m) (diag(f) W)."""
        return np.ascontiguousarray(self.factor[:, np.newaxis] * W)

    def of_columns(self, columns: NDArray[np.intp]) -> Scaling:
        """The scaling of some features."""
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
    >>> from mlfs_dask.primitives.moments import FeatureMoments
    >>> standard_scaling(FeatureMoments(2, np.array([1.0, 5.0]), np.array([8.0, 0.0])))
    Scaling(centre=array([1., 5.]), factor=array([0.5, 0. ]))
    """
    std = moments.std
    factor = np.zeros_like(std)
    np.divide(1.0, std, out=factor, where=std > 0)
    return Scaling(moments.mean, factor if standardise else (factor > 0).astype(np.float64))
