"""Isolation forest grown on a sample of rows, and the leaf numbers of rows in its trees.

scikit-learn grows the trees; this module sends rows down them. F. T. Liu, K. M. Ting, Z.-H. Zhou, "Isolation forest",
ICDM 2008, doi:10.1109/ICDM.2008.17. `blocks.isolation` uses the leaf numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.column_keys import column_keys, column_ranges
from mlfs_dask.blocks.isolation import TreeShape, mass_table, tree_shape
from mlfs_dask.blocks.linear import group_values, tile_rows
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import Profile

#: Bytes, as float32, of the sample rows for forests and anchors; with more features, fewer rows are drawn.
SAMPLE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Forest:
    """Isolation trees, and the scaling of their input.

    Trees are padded to the size of the largest. The right child of a node follows the left one; a leaf is its own
    child, with a threshold that no value exceeds, so that every row takes the same number of steps down a tree.

    Attributes
    ----------
    shapes : tuple of TreeShape
    feature : int32 array, shape (trees, nodes)
        Feature that a node tests.
    threshold : float64 array, shape (trees, nodes)
        Rows with a larger value go to the right child.
    child : int32 array, shape (trees, nodes)
        Left child.
    leaf : `code_type` array, shape (trees, nodes)
        Number of a leaf, from left to right; 0 for inner nodes.
    depth : int64 array, shape (trees,)
        Steps from the root to the deepest leaf.
    shift, scale : float64 array, shape (d,)
        Scaling of the input to float32, (x − shift) · scale: a column far from zero would lose its digits.
    """

    shapes: tuple[TreeShape, ...]
    feature: NDArray[np.int32]
    threshold: Array
    child: NDArray[np.int32]
    leaf: NDArray[Any]
    depth: NDArray[np.int64]
    shift: Array
    scale: Array

    @property
    def code_type(self) -> np.dtype[Any]:
        """Dtype of leaf numbers: uint8 for up to 256 leaves."""
        return self.leaf.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the nodes: arrays and shapes."""
        return self.feature.size * (4 + 8 + 4 + 2 + 8 + 12)

    def leaf_numbers(self, X: Matrix) -> NDArray[Any]:
        """Return the leaf of every row in every tree.

        Parameters
        ----------
        X : ndarray or csr_array, shape (rows, d)

        Returns
        -------
        array of `code_type`, shape (rows, trees)
        """
        rows, d = X.shape
        codes = np.empty((rows, len(self.shapes)), self.code_type)
        step = min(tile_rows(d), rows)
        # Reusing memory for the tiles of sparse rows: 4 000 rows of 50 000 features take 0.03 s, and with a new array
        # for each tile 0.57 s in a worker of `dask worker`, whose allocator returns the memory to the system.
        space = np.empty((step, d), np.float32) if sp.issparse(X) else None
        for low in range(0, rows, step):
            part = slice(low, min(low + step, rows))
            dense = to_float32(X[part], self.shift, self.scale)
            if space is not None:
                dense = dense.toarray(out=space[: part.stop - low])
            if gates.compiles_rows(rows):
                from mlfs_dask.blocks.forest_compiled import walk

                walk(dense, self.feature, self.threshold, self.child, self.leaf, self.depth, codes[part])
            else:
                codes[part] = self._walk(dense)
        return codes

    def leaf_scratch_bytes(self, profile: Profile) -> int:
        """Return the bytes that `leaf_numbers` allocates for a group of rows."""
        values = tile_rows(profile.d) * profile.d
        converted = 24 * group_values(profile) + 16 * profile.d + 4 * values if profile.sparse else 24 * values
        return min(profile.block_rows, gates.GROUP_ROWS) * (8 + 2 * len(self.shapes)) + converted

    def _walk(self, X: NDArray[np.float32]) -> NDArray[Any]:
        """Return the leaf numbers of prepared rows."""
        row, tree = np.arange(len(X))[:, np.newaxis], np.arange(len(self.shapes))
        node: NDArray[Any] = np.zeros((len(X), len(self.shapes)), np.int32)
        for _ in range(self.depth.max()):
            right = X[row, self.feature[tree, node]] > self.threshold[tree, node]
            node = self.child[tree, node] + right
        numbers: NDArray[Any] = self.leaf[tree, node]
        return numbers


def grow_forest(sample: Matrix, *, n_trees: int, max_samples: int, seed: int) -> Forest:
    """Grow scikit-learn's isolation forest on a sample of rows.

    Parameters
    ----------
    sample : ndarray or csr_array, shape (m, d)
        Finite values.
    n_trees, max_samples : int
        Every tree is grown on min(max_samples, m) rows of the sample.
    seed : int
    """
    from sklearn.ensemble import IsolationForest

    shift, scale = float32_scaling(sample)
    prepared = to_float32(sample, shift, scale)
    columns = forest_columns(prepared)
    forest = IsolationForest(
        n_estimators=n_trees, max_samples=min(max_samples, sample.shape[0]), random_state=seed % 2**32
    )
    prepared = prepared[:, columns]
    forest.fit(prepared)
    return pack_trees([estimator.tree_ for estimator in forest.estimators_], columns, shift, scale)


def forest_columns(prepared: Matrix) -> NDArray[np.intp]:
    """Return the features for scikit-learn's trees: those that vary in the prepared sample, in the order of their keys.

    scikit-learn draws features by number. In this order, trees depend neither on feature order nor on constant
    features.
    """
    low, high = column_ranges(prepared)
    varying = np.flatnonzero(low < high)
    columns = varying if len(varying) else np.arange(len(low))
    return columns[np.argsort(column_keys(prepared)[columns], kind="stable")]


def pack_trees(trees: Sequence[Any], columns: NDArray[np.intp], shift: Array, scale: Array) -> Forest:
    """Convert scikit-learn's trees to a forest, renumbered so that siblings are adjacent.

    Parameters
    ----------
    trees : sequence of sklearn.tree._tree.Tree
    columns : int array
        Feature number of each column of the trees.
    shift, scale : float64 array, shape (d,)
    """
    shapes = tuple(tree_shape(tree.children_left, tree.children_right) for tree in trees)
    size = len(trees), max(tree.node_count for tree in trees)
    feature, child = np.zeros(size, np.int32), np.zeros(size, np.int32)
    leaf = np.zeros(size, np.uint8 if max(shape.n_leaves for shape in shapes) <= 256 else np.uint16)
    threshold = np.full(size, np.inf)
    for t, (tree, shape) in enumerate(zip(trees, shapes, strict=True)):
        inner = tree.children_left >= 0
        order = np.empty(tree.node_count, np.intp)
        order[0] = 0
        # In scikit-learn's order, parents precede their children.
        order[1::2], order[2::2] = tree.children_left[inner], tree.children_right[inner]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        splits = inner[order]
        nodes = slice(0, tree.node_count)
        feature[t, nodes] = np.where(splits, columns[np.maximum(tree.feature[order], 0)], 0)
        threshold[t, nodes] = np.where(splits, tree.threshold[order], np.inf)
        child[t, nodes] = np.where(splits, place[tree.children_left[order]], place[order])
        leaf[t, nodes] = np.where(splits, 0, shape.leaf[order])
    depth = np.array([tree.max_depth for tree in trees], np.int64)
    return Forest(shapes, feature, threshold, child, leaf, depth, shift, scale)


def forest_seeds(seed: int) -> tuple[np.random.Generator, int]:
    """Return the generator for the forest's sample, and the seed of its splits, from a job's seed."""
    draw, grow = np.random.SeedSequence(seed).spawn(2)
    return np.random.default_rng(draw), int(grow.generate_state(1)[0])


def sample_size(n: int, row_bytes: int, *, n_trees: int, max_samples: int) -> int:
    """Return the number of sample rows for a forest: distinct rows for every tree, within `SAMPLE_BYTES`.

    Parameters
    ----------
    n : int
        Total number of rows.
    row_bytes : int
        Bytes of a row as float32.

    Examples
    --------
    >>> sample_size(1000, 400, n_trees=100, max_samples=256), sample_size(10**6, 400, n_trees=100, max_samples=256)
    (1000, 25600)
    """
    return min(n, max(max_samples, min(n_trees * max_samples, SAMPLE_BYTES // max(row_bytes, 1))))


def draw_sample(n: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return ascending indices of `size` of n rows."""
    if size == n:
        return np.arange(n)
    return np.sort(rng.choice(n, size=size, replace=False)).astype(np.int64)


def mass_tables(shapes: Sequence[TreeShape], codes: NDArray[Any]) -> NDArray[Any]:
    """Return the masses of the smallest common nodes of all pairs of leaves, counted over all rows.

    Parameters
    ----------
    shapes : sequence of TreeShape
    codes : uint8 or uint16 array, shape (trees, n)

    Returns
    -------
    uint32 or int64 array, shape (trees, leaves, leaves)
        Padded to the number of leaves of the largest tree.
    """
    leaves = max(shape.n_leaves for shape in shapes)
    trees, n = codes.shape
    tables = np.zeros((trees, leaves, leaves), dtype=np.uint32 if trees * n < 2**32 else np.int64)
    for shape, code, table in zip(shapes, codes, tables, strict=True):
        mass_table(shape, np.bincount(code, minlength=shape.n_leaves), table)
    return tables


def float32_scaling(sample: Matrix) -> tuple[Array, Array]:
    """Return shift and scale with which float32 distinguishes the values of each column, based on a sample."""
    low, high = column_ranges(sample)
    size = np.maximum(np.abs(low), np.abs(high))
    # Sparse rows keep their zeros; equal dense rows must fall into equal leaves.
    far = (high - low < 1e-3 * size) & (not sp.issparse(sample))
    shift = np.where(far, low, 0.0)
    size = np.where(far, high - low, size)
    # Powers of two: scaling changes no digit.
    scale = np.ldexp(1.0, -np.frexp(np.where(size > 0, size, 1.0))[1])
    return shift, scale


def to_float32(X: Matrix, shift: Array, scale: Array) -> Matrix:
    """Return (X − shift) · scale as input of the trees: C-ordered float32 array, or csr_matrix of float32 and int32."""
    if sp.issparse(X):
        data = (X.data * scale[X.indices]).astype(np.float32)
        return sp.csr_matrix((data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
    return np.ascontiguousarray(((X - shift) * scale).astype(np.float32))
