"""Anchors: how many, where, and the weights of rows by hand, against sorting all distances, at ties and in between."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import Anchors, count_anchors, place_anchors
from mlfs_dask.blocks.heat_kernel import mean_degree
from tests.reference.anchors import row_weights
from tests.reference.mfsir import affinity


def weigh(X, centres, s, centre=None, factor=None, **given):
    """Z of rows, which need not be standardised."""
    d = X.shape[1]
    centre = np.zeros(d) if centre is None else centre
    anchors = Anchors(np.array(centres, float), centre, np.ones(d) if factor is None else factor, s, **given)
    return anchors.weigh(X).toarray()


@pytest.fixture(scope="module", autouse=True, params=[0, gates.COMPILED_ROWS], ids=["compiled", "NumPy"])
def _rows_from_which_kernels_are_compiled(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "COMPILED_ROWS", request.param)
        yield


CONTAINERS = pytest.mark.parametrize("container", [np.array, sp.csr_array])


@CONTAINERS
@pytest.mark.parametrize(
    ("x", "s", "weights"),
    [
        # Squared distances 1, 9, 25, 49 from anchors 0, 4, -4, 8.
        (1.0, 1, [1, 0, 0, 0]),
        (1.0, 2, [24 / 40, 16 / 40, 0, 0]),
        (1.0, 3, [48 / 112, 40 / 112, 24 / 112, 0]),
        (1.0, 9, [48 / 112, 40 / 112, 24 / 112, 0]),  # at most m - 1
        # From 0: 0, 16, 16, 64. The second one is as far as the third: no weight.
        (0.0, 2, [1, 0, 0, 0]),
        (0.0, 3, [64 / 160, 48 / 160, 48 / 160, 0]),
        # From 6: 36, 4, 100, 4.
        (6.0, 2, [0, 0.5, 0, 0.5]),
    ],
)
def test_weights_by_hand(container, x, s, weights):
    found = weigh(container([[x]]), [[0.0], [4.0], [-4.0], [8.0]], s)
    assert found[0] == pytest.approx(weights, abs=1e-14)


@CONTAINERS
def test_all_anchors_as_near_share_equally_the_first_ones(container):
    corners = [[1.0, 0], [-1.0, 0], [0, 1.0], [0, -1.0]]
    for scale in (1.0, 1e-9, 1e9):
        found = weigh(container([[0.0, 0.0], [0.0, 0.0]]), scale * np.array(corners), 2)
        assert found.tolist() == [[0.5, 0.5, 0, 0]] * 2
    assert weigh(container([[3.0], [-7.0]]), [[1.0]], 3).tolist() == [[1.0], [1.0]]  # one has every row wholly


@settings(max_examples=80)
@given(st.data())
def test_as_sorting_all_distances(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    n, d, m = (data.draw(st.integers(1, most)) for most in (40, 12, 20))
    combined = data.draw(st.booleans())
    s = data.draw(st.integers(1, 5 if combined else 22))
    far = data.draw(st.sampled_from([0.0, 1e3, 1e8]))
    X = (rng.normal(size=(n, d)) + far).astype(data.draw(st.sampled_from([np.float32, np.float64])))
    centre, factor = X.mean(axis=0, dtype=np.float64), rng.uniform(0.1, 3, d) * (rng.random(d) < 0.9)
    points = (X - centre) * factor
    centres = points[rng.choice(n, size=m)] + 0.1 * rng.normal(size=(m, d))
    found, expected = weigh(X, centres, s, centre, factor, combined=combined), row_weights(points, centres, s, combined)
    assert found == pytest.approx(expected, abs=1e-8 if combined else 1e-9)
    if far == 0.0:
        sparse = sp.csr_array(X * (rng.random((n, d)) < 0.5))
        points = (sparse.toarray() - centre) * factor
        found = weigh(sparse, centres, s, centre, factor, combined=combined)
        assert found == pytest.approx(row_weights(points, centres, s, combined), abs=1e-8)


def test_anchors_that_single_precision_cannot_tell_apart_are_weighed_by_their_distances():
    rng = np.random.default_rng(2)
    for radius in (1e-4, 1e-6, 1e-8):
        points = rng.normal(size=(50, 6))
        centres = np.vstack([points[0] + radius * rng.normal(size=(40, 6)), rng.normal(size=(5, 6)) + 9.0])
        assert weigh(points, centres, 4) == pytest.approx(row_weights(points, centres, 4), abs=1e-14 / radius)


@CONTAINERS
def test_features_of_any_scale_weigh_alike(container):
    """Also where single precision would hold none of their values; a constant one has no part."""
    rng = np.random.default_rng(0)
    points, centres = rng.normal(size=(30, 6)), rng.normal(size=(9, 6))
    points[:, 5] = centres[:, 5] = 0.0
    expected = weigh(container(points), centres, 3)
    scale = 2.0 ** np.array([0, 130, 400, -150, -400, 300])
    factor = np.where(np.arange(6) == 5, 0.0, 1 / scale)
    X = points * scale
    if container is np.array:
        X[:, 5] = 2.0**300 * (1 + rng.integers(0, 2, 30) * 2.0**-52)  # what rounding leaves of a constant
    assert np.array_equal(weigh(container(X), centres, 3, np.zeros(6), factor), expected)


@CONTAINERS
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rows_that_are_not_finite_have_some_anchors(container, value):
    """What they are worth is decided elsewhere: here nothing is read that is not there."""
    X = np.vstack([np.zeros((2, 3)), np.full((2, 3), value)])
    anchors = Anchors(np.arange(15.0).reshape(5, 3), np.zeros(3), np.ones(3), 2)
    for _ in range(3):
        found = anchors.weigh(container(X))
        assert 0 <= found.indices.min() <= found.indices.max() < 5
        assert found.toarray()[:2] == pytest.approx(anchors.weigh(container(X[:2])).toarray())


@pytest.mark.parametrize(
    ("wanted", "n", "width", "m"),
    [
        (300, 10**6, 10, 300),
        (300, 40, 10, 10),
        (300, 9, 10, 8),
        (300, 5, 10, 5),
        (9, 1000, 10, 9),
        (300, 10**6, 2**20, 8),
    ],
)
def test_how_many_anchors(wanted, n, width, m):
    assert count_anchors(wanted, n, width) == m


def test_anchors_are_means_of_the_points_near_them():
    rng = np.random.default_rng(0)
    points = np.repeat(10.0 * np.eye(4), 25, axis=0) + 0.1 * rng.normal(size=(100, 4))
    means = np.array([points[25 * i : 25 * (i + 1)].mean(axis=0) for i in range(4)])
    for container in (np.asarray, sp.csr_array):
        found = place_anchors(container(points), 4, 0)
        assert found[np.argmax(found, axis=0)] == pytest.approx(means, rel=1e-12, abs=1e-13)


def test_points_that_are_the_same_have_one_anchor():
    assert place_anchors(np.full((50, 3), 0.1), 10, 0).tolist() == [pytest.approx([0.1] * 3)]
    some = place_anchors(np.repeat(np.eye(3), 20, axis=0), 10, 0)
    assert sorted(some.tolist()) == sorted(np.eye(3).tolist())


@pytest.mark.parametrize("kind", ["any", "pairs", "0/1"])
def test_rounding_of_points_moves_no_anchor(kind):
    """Points come from sums over partitions, whose last digits depend on the cut."""
    rng = np.random.default_rng(0)
    for seed in range(8):
        points = rng.normal(size=(80, 6))
        if kind == "pairs":
            points[40:] = points[:40] + 0.01 * rng.normal(size=(40, 6))
        if kind == "0/1":
            points = (points > 0.5).astype(float) * (1.0 + 1e-8)
        moved = points * (1 + 1e-15 * rng.normal(size=points.shape))
        for container in (np.asarray, sp.csr_array):
            expected = place_anchors(container(points), 20, seed)
            assert place_anchors(container(moved), 20, seed) == pytest.approx(expected, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("k", [1, 3, 29, 100])
def test_mean_degree_of_the_graph_of_eq_6(k):
    X = np.random.default_rng(0).normal(size=(30, 3))
    expected = affinity(X, min(k, 29), 1.5).sum(axis=1).mean()
    for points in (X, sp.csr_array(X)):
        assert mean_degree(points, k, 1.5**2) == pytest.approx(expected, rel=1e-12)
    assert mean_degree(X[:1], k, 1.0) == 0.0


def test_mean_degree_does_not_depend_on_rounding():
    """Rows that lie equally far are neighbours by their index, however the points are rounded."""
    rng = np.random.default_rng(5)
    X = (rng.random((200, 30)) < 0.1) * rng.integers(1, 3, 30) * 1.1
    expected = mean_degree(X, 5, 20.0)
    for _ in range(5):
        moved = X * (1 + 2e-14 * rng.normal(size=30))
        for points in (moved, sp.csr_array(moved)):
            assert mean_degree(points, 5, 20.0) == pytest.approx(expected, rel=1e-12)
