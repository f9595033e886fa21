"""Isolation mass of pairs of rows (Ting et al. 2016): the number of rows in their smallest common tree node.

Each row is represented by its leaf in each tree. The mass of two leaves' smallest common node is a table look-up; the
mass of a pair is the sum over trees, in integers. K. M. Ting, Y. Zhu, M. Carman, Y. Zhu, Z.-H. Zhou, "Overcoming key
weaknesses of distance-based neighbourhood methods using a data dependent dissimilarity measure", KDD 2016,
doi:10.1145/2939672.2939779.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks import gates


@dataclass(frozen=True)
class TreeShape:
    """Nodes of a binary tree, in the form for mass searches.

    Attributes
    ----------
    leaf : int64 array, shape (nodes,)
        Number of each leaf, from left to right; −1 for inner nodes.
    spans : int64 array, shape (nodes - leaves, 3)
        Leaves below each inner node: first, first of the right child, last + 1. Parents come first.
    """

    leaf: NDArray[np.int64]
    spans: NDArray[np.int64]

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.spans) + 1


def tree_shape(left: NDArray[Any], right: NDArray[Any]) -> TreeShape:
    """Number the leaves of a tree from left to right.

    Parameters
    ----------
    left, right : int array, shape (nodes,)
        Children of each node; the root is node 0. The left child of a leaf is negative.

    Examples
    --------
    >>> shape = tree_shape(np.array([1, -1, 3, -1, -1]), np.array([2, -1, 4, -1, -1]))
    >>> shape.leaf
    array([-1,  0, -1,  1,  2])
    >>> shape.spans
    array([[0, 1, 3],
           [1, 2, 3]])
    """
    leaf = np.full(len(left), -1, dtype=np.int64)
    first, middle, last = (np.zeros(len(left), dtype=np.int64) for _ in range(3))
    inner: list[int] = []
    count = 0
    stack = [(0, 0)]
    while stack:
        node, stage = stack.pop()
        if left[node] < 0:
            leaf[node] = count
            count += 1
        elif stage == 0:
            inner.append(node)
            first[node] = count
            stack += [(node, 1), (int(left[node]), 0)]
        elif stage == 1:
            middle[node] = count
            stack += [(node, 2), (int(right[node]), 0)]
        else:
            last[node] = count
    spans = np.stack([first[inner], middle[inner], last[inner]], axis=1)
    return TreeShape(leaf, spans)


def mass_table(shape: TreeShape, leaf_masses: NDArray[Any], out: NDArray[Any]) -> None:
    """Write the mass of the smallest common node for all pairs of leaves.

    Parameters
    ----------
    shape : TreeShape
    leaf_masses : int array, shape (leaves,)
        Number of rows in each leaf.
    out : int array, shape (at least leaves, at least leaves)
        Output table.

    Examples
    --------
    >>> shape = tree_shape(np.array([1, -1, 3, -1, -1]), np.array([2, -1, 4, -1, -1]))
    >>> out = np.zeros((3, 3), dtype=np.int64)
    >>> mass_table(shape, np.array([5, 2, 1]), out)
    >>> out
    array([[5, 8, 8],
           [8, 2, 3],
           [8, 3, 1]])
    """
    below = np.concatenate([[0], np.cumsum(leaf_masses)])
    for a, b, c in shape.spans.tolist():
        mass = below[c] - below[a]
        out[a:b, b:c] = mass
        out[b:c, a:b] = mass
    diagonal = np.arange(shape.n_leaves)
    out[diagonal, diagonal] = leaf_masses


def nearest_by_mass(
    codes: NDArray[Any], tables: NDArray[Any], low: int, high: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the k rows with the smallest mass for each of the rows low..high-1; ties by lower index.

    Parameters
    ----------
    codes : uint8 or uint16 array, shape (trees, n)
        Leaf of every row in every tree.
    tables : uint32 or int64 array, shape (trees, leaves, leaves)
    low, high : int
    k : int
        At most n − 1.

    Returns
    -------
    indices, masses : int64 array, shape (high - low, k)
        Ascending by mass. Masses are sums over trees.

    Examples
    --------
    >>> tables = np.array([[[2, 3], [3, 1]]], dtype=np.uint32)
    >>> nearest_by_mass(np.array([[0, 0, 1]], dtype=np.uint8), tables, 0, 3, 1)
    (array([[1],
           [0],
           [0]]), array([[2],
           [2],
           [3]]))
    """
    n = codes.shape[1]
    indices, masses = np.empty((high - low, k), np.int64), np.empty((high - low, k), np.int64)
    columns = np.arange(n)
    step = max(1, gates.VALUES_AT_ONCE // max(n, 1))
    for start in range(low, high, step):
        stop = min(start + step, high)
        total = np.zeros((stop - start, n), dtype=np.int64)
        for table, code in zip(tables, codes, strict=True):
            total += np.take(table[code[start:stop]], code, axis=1)
        # Keys of mass and row number: keys are distinct, and equal masses are sorted by row number.
        total *= n
        total += columns
        rows = np.arange(stop - start)
        total[rows, start + rows] = np.iinfo(np.int64).max
        best = np.sort(np.partition(total, k - 1, axis=1)[:, :k], axis=1)
        indices[start - low : stop - low] = best % n
        masses[start - low : stop - low] = best // n
    return indices, masses
