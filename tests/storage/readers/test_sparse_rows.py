"""CSR arrays made canonical."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.storage.readers.sparse_rows import RepeatedIndexError, sorted_rows, with_defaults, without_zeros


def rows(*entries: list[tuple[int, float]], in_order: bool = False):  # type: ignore[no-untyped-def]
    bounds = np.cumsum([0, *(len(row) for row in entries)])
    flat = [entry for row in entries for entry in row]
    return sorted_rows(
        bounds,
        np.array([column for column, _ in flat], dtype=np.int32),
        np.array([value for _, value in flat], dtype=float),
        4,
        in_order=in_order,
    )


def test_rows_are_sorted() -> None:
    matrix = rows([(3, 1.0), (0, 2.0)], [], [(0, 3.0), (1, 0.0)])
    assert matrix.toarray().tolist() == [[2, 0, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0]]
    assert matrix.indices.tolist() == [0, 3, 0, 1]
    assert without_zeros(matrix).indices.tolist() == [0, 3, 0]


def test_the_same_column_in_two_rows_is_no_repeat() -> None:
    assert rows([(2, 1.0), (1, 1.0)], [(2, 1.0)], [], [(2, 5.0), (0, 1.0)]).nnz == 5


@pytest.mark.parametrize(
    ("entries", "place"),
    [
        (([(1, 1.0), (1, 1.0)],), (0, 1)),
        (([], [(2, 1.0)], [(3, 0.0), (1, 1.0), (3, 0.0)]), (2, 3)),
        (([(0, 1.0)], [(0, 1.0), (2, 1.0), (0, 1.0)], [(0, 1.0), (0, 1.0)]), (1, 0)),
    ],
)
def test_repeats_are_found(entries: tuple[list[tuple[int, float]], ...], place: tuple[int, int]) -> None:
    with pytest.raises(RepeatedIndexError) as caught:
        rows(*entries)
    assert (caught.value.row, caught.value.column) == place


def test_defaults_fill_what_is_absent() -> None:
    matrix = rows([(1, 0.0), (2, 5.0)], [], [(0, 1.0), (3, 0.0)], in_order=True)
    filled = without_zeros(with_defaults(matrix, {1: 1, 3: -2}))
    assert filled.toarray().tolist() == [[0, 0, 5, -2], [0, 1, 0, -2], [1, 1, 0, 0]]
    assert filled.indices.tolist() == [2, 3, 1, 3, 0, 1]
    assert with_defaults(matrix, {}) is matrix
