"""Isolation forests, as scikit-learn grows them; masses of common nodes by walking up, and as published; the search."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import forest as module
from mlfs_dask.blocks import gates, isolation_compiled
from mlfs_dask.blocks.forest import (
    draw_sample,
    forest_columns,
    forest_seeds,
    grow_forest,
    pack_trees,
    sample_size,
    to_float32,
)
from mlfs_dask.blocks.isolation import mass_table, nearest_by_mass, tree_shape
from tests.conftest import published
from tests.reference.smfs import grow_trees


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("trees", [1, 3, 4, 9])
def test_the_search_finds_the_least_and_ties_go_to_lower_indices(dtype, trees, monkeypatch):
    rng = np.random.default_rng(trees)
    n, leaves = 70, 5
    codes = rng.integers(0, leaves, size=(trees, n)).astype(dtype)
    tables = rng.integers(1, 4, size=(trees, leaves, leaves)).astype(np.uint32)
    tables = tables + tables.transpose(0, 2, 1)
    total = sum(table[np.ix_(code, code)].astype(int) for table, code in zip(tables, codes, strict=True))
    np.fill_diagonal(total, 10**6)
    order = np.argsort(total, axis=1, kind="stable")[:, :8]
    for held in (2**20, 200):
        monkeypatch.setattr("mlfs_dask.blocks.gates.VALUES_AT_ONCE", held)
        indices, masses = nearest_by_mass(codes, tables, 0, n, 8)
        assert indices.tolist() == order.tolist()
        assert masses.tolist() == np.take_along_axis(total, order, axis=1).tolist()
    part = nearest_by_mass(codes, tables, 20, 31, 8)
    assert part[0].tolist() == order[20:31].tolist()
    for search in (isolation_compiled.nearest_by_mass, isolation_compiled.nearest_by_mass.py_func):
        indices, masses = np.empty((n - 3, 8), np.int64), np.empty((n - 3, 8), np.int64)
        search(codes, tables, 3, n, 8, indices, masses)
        assert indices.tolist() == order[3:].tolist()
        assert masses.tolist() == np.take_along_axis(total, order, axis=1)[3:].tolist()


def test_sums_above_32_bits_are_kept():
    codes = np.zeros((4, 3), dtype=np.uint8)
    tables = np.full((4, 1, 1), 2**31, dtype=np.int64)
    assert nearest_by_mass(codes, tables, 0, 3, 1)[1].tolist() == [[2**33]] * 3
    indices, masses = np.empty((3, 1), np.int64), np.empty((3, 1), np.int64)
    isolation_compiled.nearest_by_mass(codes, tables, 0, 3, 1, indices, masses)
    assert masses.tolist() == [[2**33]] * 3


def test_the_authors_forest_gives_the_authors_masses():
    # Their nodes are numbered as in a heap, from 1; left is x < split. Their matrix is divided by its largest entry.
    # `mass_rows` is theirs of every 75th row, multiplied by that and by the number of trees: whole numbers.
    oracle = published("masses")
    n, trees = oracle["TreeNode"].shape
    heap = np.arange(511)
    is_leaves = np.unpackbits(oracle["is_leaf"], axis=1, count=511)
    total = np.zeros((n, n))
    codes, tables = [], np.zeros((trees, 256, 256), dtype=np.uint32)
    for t in range(trees):
        is_leaf = is_leaves[t] > 0
        left, right = np.where(is_leaf, -1, 2 * heap + 1), np.where(is_leaf, -1, 2 * heap + 2)
        shape = tree_shape(left, right)
        codes.append(shape.leaf[oracle["TreeNode"][:, t] - 1])
        counts = np.bincount(codes[-1], minlength=shape.n_leaves)
        assert counts[shape.leaf[is_leaf & (shape.leaf >= 0)]].tolist() == (
            oracle["TreeNodeMass"][t][is_leaf & (shape.leaf >= 0)].tolist()
        )
        mass_table(shape, counts, tables[t])
        total += tables[t][np.ix_(codes[-1], codes[-1])]
    assert total[::75].tolist() == oracle["mass_rows"].tolist()
    assert total.sum(axis=1).tolist() == oracle["mass_sums"].tolist()
    assert total.max() == 25 * 588.84
    indices, masses = nearest_by_mass(np.array(codes, dtype=np.uint8), tables, 0, n, 15)
    np.fill_diagonal(total, np.inf)
    order = np.argsort(total, axis=1, kind="stable")[:, :15]
    assert indices.tolist() == order.tolist()
    assert masses.tolist() == np.take_along_axis(total, order, axis=1).astype(int).tolist()


# ---------------------------------------------------------------- forests


def problem(seed=0, n=300, d=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X[:, 1] = 3.0
    return X


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("rows", [1, 7, 8, 300])
def test_rows_go_down_the_trees_of_scikit_learn(monkeypatch, container, compiled, rows):
    X = problem()
    X[5] = np.nextafter(X[4], np.inf, dtype=np.float32)  # beside a threshold, perhaps
    forest = grow_forest(X, n_trees=7, max_samples=64, seed=5)
    prepared = to_float32(X, forest.shift, forest.scale)
    prepared = prepared[:, forest_columns(prepared)]
    expected = np.empty((300, 7), int)
    for t, tree in enumerate(grow_trees(prepared, 7, 64, 5)):
        leaves = [node for node in depth_first(tree, 0) if tree.children_left[node] < 0]
        expected[:, t] = [leaves.index(node) for node in tree.apply(prepared)]
    monkeypatch.setattr(gates, "COMPILED_ROWS", 0 if compiled else 300)
    assert forest.leaf_numbers(container(X[:rows])).tolist() == expected[:rows].tolist()
    monkeypatch.setattr(module, "tile_rows", lambda d: 9)
    assert forest.leaf_numbers(container(X[:rows])).tolist() == expected[:rows].tolist()
    assert forest.code_type == np.uint8


def test_a_tree_of_one_leaf_and_trees_of_other_sizes(monkeypatch):
    """Of a constant sample no tree splits; a deeper tree beside it is walked all the same."""
    X = problem()
    one, other = (grow_trees(A.astype(np.float32), 1, 64, 0)[0] for A in (np.ones((10, 5)), X))
    forest = pack_trees([one, other], np.arange(5), np.zeros(5), np.ones(5))
    assert forest.feature.shape[1] == other.node_count
    alone = pack_trees([other], np.arange(5), np.zeros(5), np.ones(5))
    for gate in (0, 300):
        monkeypatch.setattr(gates, "COMPILED_ROWS", gate)
        found = forest.leaf_numbers(X)
        assert not found[:, 0].any()
        assert found[:, 1].tolist() == alone.leaf_numbers(X)[:, 0].tolist()


def depth_first(tree, node):
    if tree.children_left[node] < 0:
        return [node]
    return [node, *depth_first(tree, tree.children_left[node]), *depth_first(tree, tree.children_right[node])]


def test_more_leaves_than_a_byte_counts():
    X = np.random.default_rng(0).normal(size=(4000, 3))
    forest = grow_forest(X, n_trees=2, max_samples=4000, seed=0)
    assert forest.code_type == np.uint16
    assert forest.leaf_numbers(X).max() > 255


@pytest.mark.parametrize("factor", [2.0**200, 2.0**-300])
def test_large_and_tiny_values_fit_single_precision(factor):
    X = problem()
    near, far = (
        grow_forest(x, n_trees=3, max_samples=64, seed=0).leaf_numbers(x) for x in (X, sp.csr_array(X * factor))
    )
    assert near.tolist() == far.tolist()


def test_a_column_far_from_zero_keeps_its_digits():
    X = np.random.default_rng(0).normal(size=(300, 1)) + 1e9
    forest = grow_forest(X, n_trees=1, max_samples=64, seed=0)
    assert len(np.unique(to_float32(X, forest.shift, forest.scale))) == len(np.unique(X))


def test_samples_and_seeds_follow_from_the_seed_alone():
    rng, grow = forest_seeds(3)
    again, same = forest_seeds(3)
    drawn = draw_sample(100, 20, rng)
    assert drawn.tolist() == draw_sample(100, 20, again).tolist() == sorted(set(drawn.tolist()))
    assert grow == same != forest_seeds(4)[1]
    assert draw_sample(4, 4, rng).tolist() == [0, 1, 2, 3]


def test_the_sample_keeps_within_its_bytes(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_BYTES", 1000)
    assert sample_size(10**6, 10, n_trees=10, max_samples=50) == 100
    assert sample_size(10**6, 100, n_trees=10, max_samples=50) == 50  # those of one tree at least
    assert sample_size(10**6, 1, n_trees=10, max_samples=50) == 500
