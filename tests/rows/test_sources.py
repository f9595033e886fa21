"""Rows of every container, streamed or held, are the rows of the matrix."""

from __future__ import annotations

import itertools

import dask
import dask.array as da
import numpy as np
import pytest
import sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import count_labels
from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import ArrayRows, DaskRows, as_rows, measure_features


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


def containers():
    yield "numpy", lambda X, Y: (X, Y)
    yield "csr", lambda X, Y: (sp.csr_array(X), sp.csr_array(Y))
    yield "csc", lambda X, Y: (sp.csc_matrix(X), sp.csc_array(Y))
    yield "gcxs", lambda X, Y: (sparse.GCXS.from_numpy(X), sparse.GCXS.from_numpy(Y))
    yield "dask", lambda X, Y: (da.from_array(X, chunks=(7, 2)), da.from_array(Y, chunks=(10, 2)))
    yield "dask and numpy", lambda X, Y: (da.from_array(X, chunks=(7, 2)), Y)
    yield "numpy and dask", lambda X, Y: (X, da.from_array(Y, chunks=(10, 2)))
    yield (
        "dask of gcxs",
        lambda X, Y: (
            da.from_array(X, chunks=(7, -1)).map_blocks(lambda b: sparse.GCXS.from_numpy(b, compressed_axes=[0])),
            da.from_array(Y, chunks=(7, -1)).map_blocks(sparse.COO.from_numpy),
        ),
    )
    yield (
        "dask of csr in columns",
        lambda X, Y: (
            da.from_array(X, chunks=(9, 2)).map_blocks(sp.csr_array),
            da.from_array(Y, chunks=(4, -1)).map_blocks(sp.csr_matrix),
        ),
    )


@pytest.mark.parametrize("make", [make for _, make in containers()], ids=[name for name, _ in containers()])
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


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_arrays_in_memory_are_cut_into_blocks(form):
    X, Y = matrices(100)
    source = ArrayRows(form(X), sp.csr_array(Y), block_bytes=200)
    assert source.profile.partitions >= 10
    found_X, found_Y = collect(source)
    assert np.array_equal(found_X, X)
    assert np.array_equal(found_Y, Y)


def test_blocks_of_arrays_are_views():
    X, Y = matrices()
    blocks = list(ArrayRows(X, sp.csr_array(Y)).stream(0, 1))
    assert np.shares_memory(blocks[0].X, X)


def test_building_dask_rows_computes_nothing():
    def refuse(block):
        raise AssertionError("computed")

    X, Y = matrices()
    lazy = da.from_array(X, chunks=(7, -1)).map_blocks(refuse, dtype=X.dtype, meta=X[:0, :0])
    source = as_rows(lazy, da.from_array(Y, chunks=(7, -1)))
    source.delayed_partition(0)
    assert source.profile.n == 23


def test_rows_must_agree():
    X, Y = matrices()
    with pytest.raises(DataError, match="X has 23 rows and Y has 22"):
        as_rows(X, Y[:-1])


def test_labels_are_needed():
    with pytest.raises(DataError, match="no labels were given"):
        as_rows(matrices()[0])


def test_unknown_chunks_are_refused_with_the_cure():
    X, Y = matrices()
    lazy = da.from_array(X, chunks=(7, -1))
    lazy = lazy[lazy[:, 0] > 0]
    lazy_y = da.from_array(Y, chunks=(7, -1))[da.from_array(X, chunks=(7, -1))[:, 0] > 0]
    with pytest.raises(DataError, match="compute_chunk_sizes"):
        as_rows(lazy, lazy_y)


def test_other_label_values_are_named():
    X, Y = matrices()
    wrong = Y.astype(float)
    wrong[4, 2] = 0.5
    with pytest.raises(DataError, match=r"row 4, column 2 holds 0\.5"):
        as_rows(X, wrong)


def test_measured_features_by_hand():
    X = np.array([[1.0, np.nan, 0.0], [3.0, np.nan, -2.0]])
    for form in (X, sp.csr_array(X)):
        info = measure_features(form)
        assert info.minimum.tolist() == [1, 0, -2]
        assert info.maximum.tolist() == [3, 0, 0]
        assert info.n_missing.tolist() == [0, 2, 0]


def test_implicit_zeros_take_part_in_the_range():
    info = measure_features(sp.csr_array(np.array([[5.0, 2.0], [0.0, 3.0]])))
    assert info.minimum.tolist() == [0, 2]
    assert info.maximum.tolist() == [5, 3]


def test_label_counts_by_hand():
    Y = sp.csr_array(np.array([[1, -1], [1, 0], [0, 0]], dtype=np.int8))
    assert count_labels(Y).tolist() == [[0, 1], [1, 2], [2, 0]]


def test_unknown_chunks_are_named_before_rows_are_compared() -> None:
    X = da.from_delayed(dask.delayed(np.zeros)((4, 2)), shape=(np.nan, 2), dtype=float)
    Y = np.zeros((4, 1), dtype=np.int8)
    for pair in [(X, Y), (np.zeros((4, 2)), X), (X, X)]:
        with pytest.raises(DataError, match=r"chunks of unknown size\n  cure: .*compute_chunk_sizes.*lengths=True"):
            as_rows(*pair)
