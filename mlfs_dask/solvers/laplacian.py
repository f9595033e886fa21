"""The Laplacian of a sparse graph on rows, by products."""

from __future__ import annotations

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.heat_kernel import degrees
from mlfs_dask.typing import Array


class Laplacian:
    """L = Z − S, Z holding the sums of the rows of S.

    Parameters
    ----------
    graph : csr_array, shape (n, n)
        S, symmetric.

    Attributes
    ----------
    degrees : float64 array, shape (n,)
        Diagonal of Z.

    Examples
    --------
    >>> L = Laplacian(sp.csr_array(np.array([[0.0, 2.0], [2.0, 0.0]])))
    >>> L.product(np.array([[1.0], [4.0]])).ravel()
    array([-6.,  6.])
    """

    def __init__(self, graph: sp.csr_array) -> None:
        self.graph = graph
        self.degrees = degrees(graph)

    def product(self, V: Array) -> Array:
        """Return L V, shape (n, c)."""
        return np.asarray(self.degrees[:, np.newaxis] * V - self.graph @ V)
