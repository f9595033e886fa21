"""Rows of every container, streamed or held, are the rows of the matrix; weights of rows."""

from __future__ import annotations

import itertools

import dask.array as da
import numpy as np
import pytest
import sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels, count_labels
from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import ArrayRows, DaskRows, as_rows, measure_features
from mlfs_dask.rows.weights import weighted_rows


def matrices(n=23, d=5, q=3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < 0.5, rng.normal(size=(n, d)), 0)
    return X, rng.choice([0, 0, 1, -1], (n, q)).astype(np.int8)


def collect(source):
    """X and Y put together again from the blocks, which must follow one another."""
    xs, ys, at = [], [], 0
    for i in range(source.profile.partitions):
        for block in source.stream(i, i + 1):
            assert block.start == at
            at += block.X.shape[0]
            xs.append(block.X.toarray() if sp.issparse(block.X) else block.X.copy())
            ys.append(block.Y.toarray())
    return np.concatenate(xs), np.concatenate(ys)


CONTAINERS = {  # besides those of the matrix over methods
    "gcxs": lambda X, Y: (sparse.GCXS.from_numpy(X), sparse.GCXS.from_numpy(Y)),
    "numpy and dask": lambda X, Y: (X, da.from_array(Y, chunks=(10, 2))),
    "dask of gcxs": lambda X, Y: (
        da.from_array(X, chunks=(7, -1)).map_blocks(lambda b: sparse.GCXS.from_numpy(b, compressed_axes=[0])),
        da.from_array(Y, chunks=(7, -1)).map_blocks(sparse.COO.from_numpy),
    ),
    "dask of csr in columns": lambda X, Y: (
        da.from_array(X, chunks=(9, 2)).map_blocks(sp.csr_array),
        da.from_array(Y, chunks=(4, -1)).map_blocks(sp.csr_matrix),
    ),
}


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_every_container_gives_its_rows(make):
    X, Y = matrices()
    found_X, found_Y = collect(as_rows(*make(X, Y)))
    assert np.array_equal(found_X, X)
    assert np.array_equal(found_Y, Y)


@settings(max_examples=25)
@given(st.data())
def test_any_chunking_of_dask_arrays(data):
    n, d, q = 17, 4, 3
    X, Y = matrices(n, d, q)

    def chunks(total):
        cuts = data.draw(st.lists(st.integers(0, total), max_size=4))
        bounds = [0, *sorted(cuts), total]
        return tuple(b - a for a, b in itertools.pairwise(bounds))

    source = as_rows(da.from_array(X, chunks=(chunks(n), chunks(d))), da.from_array(Y, chunks=(chunks(n), chunks(q))))
    assert isinstance(source, DaskRows)
    found_X, found_Y = collect(source)
    assert np.array_equal(found_X, X)
    assert np.array_equal(found_Y, Y)


def test_building_dask_rows_computes_nothing():
    def refuse(block):
        raise AssertionError("computed")

    X, Y = matrices()
    lazy = da.from_array(X, chunks=(7, -1)).map_blocks(refuse, dtype=X.dtype, meta=X[:0, :0])
    source = as_rows(lazy, da.from_array(Y, chunks=(7, -1)))
    source.delayed_partition(0)
    assert source.profile.n == 23


def test_rows_that_cannot_be_are_refused_with_the_cure():
    X, Y = matrices()
    wrong = np.where(np.arange(23)[:, np.newaxis] == 4, [0, 0, 0.5], Y)
    of_some = da.from_array(X, chunks=(7, -1))[da.from_array(X[:, 0], chunks=7) > 0]
    unsized = r"chunks of unknown size\n  cure: .*compute_chunk_sizes.*lengths=True"
    for pair, message in [
        ((X, Y[:-1]), "X has 23 rows and Y has 22"),
        ((X,), "no labels were given"),
        ((X, wrong), r"row 4, column 2 holds 0\.5"),
        *(((a, b), unsized) for a, b in ((of_some, Y), (X, of_some), (of_some, of_some))),
    ]:
        with pytest.raises(DataError, match=message):
            as_rows(*pair)


def test_measured_features_and_counts_of_labels_by_hand():
    X = np.array([[1.0, np.nan, 0.0, 2.0], [3.0, np.nan, -2.0, 5.0]])
    for form in (X, sp.csr_array(X)):
        info = measure_features(form)
        assert info.minimum.tolist() == [1, 0, -2, 2]
        assert info.maximum.tolist() == [3, 0, 0, 5]
        assert info.n_missing.tolist() == [0, 2, 0, 0]
    assert measure_features(sp.csr_array(np.array([[5.0], [0.0]]))).minimum.tolist() == [0]  # though it is not stored
    Y = sp.csr_array(np.array([[1, -1], [1, 0], [0, 0]], dtype=np.int8))
    assert count_labels(Y).tolist() == [[0, 1], [1, 2], [2, 0]]


# ---------------------------------------------------------------- weights of rows


def test_sums_of_weights_are_exact():
    """Whatever the order, so that a label that always occurs has the sum of all weights."""
    rng = np.random.default_rng(0)
    for scale in (1e-200, 1e-3, 1.0, 1e100):
        weights = rng.random(10_000) * scale
        source = ArrayRows(np.zeros((10_000, 1)), as_labels(np.ones((10_000, 1))))
        found = weighted_rows(source, weights).weights
        assert found == pytest.approx(weights, rel=0, abs=1e-12 * scale)
        assert {found.sum(), found[::-1].sum(), found[rng.permutation(10_000)].cumsum()[-1]} == {found.sum()}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            np.ones(5),
            r"sample_weight must have shape \(60,\), a weight for every row; got \(5,\)\n  cure: give as many",
        ),
        (np.ones((60, 1)), r"got \(60, 1\)"),
        (
            np.where(np.arange(60) == 7, -1.0, 1.0),
            r"numbers from 0; row 7 has -1.0 \(counted from 0\)\n  cure: give weight 0",
        ),
        (np.where(np.arange(60) == 7, np.nan, 1.0), "row 7 has nan"),
        (np.where(np.arange(60) == 7, np.inf, 1.0), "row 7 has inf"),
        (np.zeros(60), "all sample weights are zero\n  cure: give some rows"),
    ],
)
def test_impossible_weights_are_refused(weights, message):
    with pytest.raises(DataError, match=message):
        weighted_rows(ArrayRows(np.zeros((60, 1)), as_labels(np.ones((60, 1)))), weights)
