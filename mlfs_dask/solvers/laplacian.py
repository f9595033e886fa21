"""The Laplacian of a sparse graph on rows, by products with arrays of n rows, block by block."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.heat_kernel import degrees
from mlfs_dask.row_arrays import graph_product, graph_rows, row_blocks

Array = NDArray[np.float64]


class Smoother(Protocol):
    """A Laplacian on rows, by products."""

    @property
    def degrees(self) -> Array:
        """Its diagonal, shape (n,)."""

    def product(self, V: Array, out: Array) -> Array:
        """L V into `out`, which is not V."""


class Laplacian:
    """L = Z − S, Z holding the sums of the rows of S.

    Parameters
    ----------
    graph : csr_array, shape (n, n)
        S, symmetric.

    Examples
    --------
    >>> L = Laplacian(sp.csr_array(np.array([[0.0, 2.0], [2.0, 0.0]])))
    >>> L.product(np.array([[1.0], [4.0]]), np.empty((2, 1))).ravel()
    array([-6.,  6.])
    """

    def __init__(self, graph: sp.csr_array) -> None:
        self.graph = graph
        self.degrees = np.empty(graph.shape[0])
        for part in row_blocks(graph.shape[0], max(1, 2 * graph.nnz // max(graph.shape[0], 1))):
            self.degrees[part] = degrees(graph_rows(graph, part))

    def product(self, V: Array, out: Array) -> Array:
        """L V into `out`, which is not V; both of shape (n, c)."""
        graph_product(self.graph, V, out)
        for part in row_blocks(*V.shape):
            np.subtract(self.degrees[part, np.newaxis] * V[part], out[part], out=out[part])
        return out
