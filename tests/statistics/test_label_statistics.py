"""What is known of the labels: by hand, for any cut, and which labels are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.engine.readings import run_pass
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.label_statistics import Labels

HERE = Resources(1, 1, 2**33, 2**33)


def knowledge(Y, *, block_bytes=2**20, threads=1, **options):
    source = ArrayRows(as_matrix(np.zeros((len(Y), 1))), as_labels(Y), block_bytes=block_bytes)
    ((found,), _) = run_pass(source, [Labels(Y.shape[1], **options)], replace(HERE, threads_per_worker=threads))
    return found


def test_by_hand():
    Y = np.array([[1, 1, 0], [-1, -1, -1], [0, 0, 0], [1, -1, 0], [0, -1, -1], [1, 1, 1]], np.int8)
    found = knowledge(Y)
    assert found.positive.tolist() == [3, 2, 1]
    assert found.unknown.tolist() == [1, 3, 2]
    assert found.pairs.tolist() == [[3, 2, 1], [2, 2, 1], [1, 1, 1]]
    # Rows with a positive label, with nothing known, and known in part.
    assert found.rows.tolist() == [3, 1, 2]
    assert found.groups.tolist() == [0, 1, 2]


def test_labels_of_which_the_same_is_known_are_a_group():
    Y = np.array([[1, 0, 1, 1, 0, 0], [0, 0, 0, -1, 0, -1], [1, 1, 1, 1, 1, 1], [-1, 0, -1, -1, 0, -1]], np.int8)
    assert knowledge(Y).groups.tolist() == [0, 1, 0, 2, 1, 3]
    # Nothing is known of a row without a positive label: of label 3 the second row differed from label 0 alone.
    assert knowledge(Y, unlabelled_without_positive=True).groups.tolist() == [0, 1, 0, 0, 1, 1]


def test_labels_that_never_occur_are_a_group():
    Y = np.zeros((5, 4), np.int8)
    Y[2, 1] = 1
    assert knowledge(Y).groups.tolist() == [0, 1, 0, 0]


@settings(max_examples=40)
@given(st.data())
def test_any_cut_gives_what_the_whole_gives(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    n, q = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 8))
    Y = rng.choice(np.array([0, 0, 1, -1], np.int8), (n, q))[:, rng.integers(0, q, q)]
    zeros = data.draw(st.booleans())
    cut = {"block_bytes": data.draw(st.sampled_from([1, 40, 2**20])), "threads": data.draw(st.integers(1, 3))}
    found = knowledge(Y, **cut, unlabelled_without_positive=zeros)
    whole = knowledge(Y, unlabelled_without_positive=zeros)
    assert all((a == b).all() for a, b in zip(found, whole, strict=True))
    known = Y >= 0
    if zeros:
        known = known & (Y == 1).any(axis=1, keepdims=True)
    columns = [(*np.where(known[:, j], Y[:, j] == 1, 2), *(known[:, j] | zeros & ~known.any(axis=1))) for j in range(q)]
    for i in range(q):
        for j in range(q):
            same = (known[:, i] == known[:, j]).all() and ((Y[:, i] == 1) == (Y[:, j] == 1)).all()
            assert (found.groups[i] == found.groups[j]) == same, columns
    firsts = [found.groups.tolist().index(g) for g in range(found.groups.max() + 1)]
    assert firsts == sorted(firsts)
    assert found.pairs.tolist() == ((Y == 1).astype(int).T @ (Y == 1)).tolist()


def test_state_is_of_the_size_that_is_told():
    statistic = Labels(7)
    assert sum(array.nbytes for array in statistic.zero()) == pytest.approx(statistic.state_bytes, abs=8 * 7 + 32)
