"""Heat-kernel graphs: symmetric, "or", exact weights, stored zeros, the width's limits."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.heat_kernel import degrees, heat_kernel_graph


def directed(entries, n):
    """A graph with the entries (i, j, d²), zeros stored."""
    i, j, values = zip(*entries, strict=True)
    return sp.csr_array((np.array(values, dtype=float), (i, j)), shape=(n, n))


def test_an_edge_is_there_if_either_is_a_neighbour_of_the_other():
    graph = heat_kernel_graph(directed([(0, 1, 2.0), (1, 2, 1.0), (2, 1, 1.0), (3, 0, 0.0)], 4), 2.0)
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = np.exp(-1)
    expected[1, 2] = expected[2, 1] = np.exp(-0.5)
    expected[3, 0] = expected[0, 3] = 1.0  # equal rows, whose distance is stored though it is 0
    assert graph.toarray() == pytest.approx(expected, rel=1e-15)
    assert degrees(graph) == pytest.approx(expected.sum(axis=1))
    assert degrees(graph).shape == (4,)


def test_rows_far_apart_have_no_weight_and_no_warning():
    graph = heat_kernel_graph(directed([(0, 1, 1e6), (1, 0, 1e6)], 2), 1.0)
    assert degrees(graph).tolist() == [0, 0]


def test_memory_is_as_documented():
    n, k = 20_000, 10
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, n, (n, k)), axis=1).astype(np.int32).ravel()
    distances = sp.csr_array((rng.random(n * k), columns, np.arange(0, n * k + 1, k, dtype=np.int32)), shape=(n, n))
    heat_kernel_graph(distances, 1.0)
    tracemalloc.start()
    graph = heat_kernel_graph(distances, 1.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 60 * n * k
    assert graph.nnz <= 2 * n * k
