"""Trees, masses of common nodes, and the search: by hand, by walking up the tree, and the published matrix."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks import isolation_compiled
from mlfs_dask.blocks.isolation import mass_table, nearest_by_mass, tree_shape
from tests.conftest import published


def random_tree(rng, leaves):
    """Children of a random binary tree, root first, nodes in random order of creation."""
    left, right = [-1], [-1]
    while sum(child < 0 for child in left) < leaves:
        node = int(rng.choice([i for i, child in enumerate(left) if child < 0]))
        left[node], right[node] = len(left), len(left) + 1
        left += [-1, -1]
        right += [-1, -1]
    return np.array(left), np.array(right)


def common_masses(left, right, nodes):
    """Rows in the smallest common node, for all pairs of rows, by walking up from both."""
    parent = {int(child): node for node in range(len(left)) for child in (left[node], right[node]) if child >= 0}

    def path(node):
        steps = [int(node)]
        while steps[-1] in parent:
            steps.append(parent[steps[-1]])
        return steps

    mass = np.zeros(len(left), dtype=int)
    for node in nodes:
        mass[path(node)] += 1
    paths = [path(node) for node in nodes]
    return np.array([[mass[next(a for a in one if a in other)] for other in paths] for one in paths])


def test_masses_of_common_nodes_equal_walking_up_the_tree():
    rng = np.random.default_rng(0)
    for leaves in (1, 2, 3, 9, 30):
        left, right = random_tree(rng, leaves)
        shape = tree_shape(left, right)
        assert shape.n_leaves == leaves
        assert sorted(shape.leaf[left < 0]) == list(range(leaves))
        nodes = rng.choice(np.flatnonzero(left < 0), size=40)
        codes = shape.leaf[nodes]
        table = np.zeros((leaves, leaves), dtype=np.uint32)
        mass_table(shape, np.bincount(codes, minlength=leaves), table)
        assert table[np.ix_(codes, codes)].tolist() == common_masses(left, right, nodes).tolist()


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
