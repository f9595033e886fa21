"""Isolation forests: leaf numbers of any cut by scikit-learn's trees, single precision, samples, mass tables."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import forest as module
from mlfs_dask.blocks.forest import (
    draw_sample,
    forest_columns,
    forest_seeds,
    grow_forest,
    mass_tables,
    pack_trees,
    sample_size,
    to_float32,
)
from mlfs_dask.blocks.isolation import tree_shape
from tests.reference.smfs import grow_trees


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
    assert forest.leaf_numbers(container(X[:rows]), compiled=compiled).tolist() == expected[:rows].tolist()
    monkeypatch.setattr(module, "tile_rows", lambda d: 9)
    assert forest.leaf_numbers(container(X[:rows]), compiled=compiled).tolist() == expected[:rows].tolist()
    assert forest.code_type == np.uint8


def test_a_tree_of_one_leaf_and_trees_of_other_sizes():
    """Of a constant sample no tree splits; a deeper tree beside it is walked all the same."""
    X = problem()
    one, other = (grow_trees(A.astype(np.float32), 1, 64, 0)[0] for A in (np.ones((10, 5)), X))
    forest = pack_trees([one, other], np.arange(5), np.zeros(5), np.ones(5))
    assert forest.feature.shape[1] == other.node_count
    alone = pack_trees([other], np.arange(5), np.zeros(5), np.ones(5))
    for compiled in (False, True):
        found = forest.leaf_numbers(X, compiled=compiled)
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


def test_masses_are_counted_over_all_rows():
    shape = tree_shape(np.array([1, -1, -1]), np.array([2, -1, -1]))
    tables = mass_tables([shape, shape], np.array([[0, 0, 1], [1, 1, 1]], dtype=np.uint8))
    assert tables.tolist() == [[[2, 3], [3, 1]], [[0, 3], [3, 3]]]
    assert tables.dtype == np.uint32
