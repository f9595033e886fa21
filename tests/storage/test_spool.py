"""Staged rows: batches come back as any run of rows or nonzeros, and their counts join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.base import Batch, Header
from mlfs_dask.storage.schema import LABELS_NAME, X_NAME
from mlfs_dask.storage.spool import (
    SpooledRows,
    data_path,
    journal_path,
    spool_part,
    statistics_path,
)
from mlfs_dask.storage.statistics import Statistics
from tests.storage.memory_reader import make_reader


def labels(rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rows).choice([0, 0, 0, 1, -1], (rows, 4)).astype(np.int8)


def stage(folder: Path, X: Any, Y: Any, **options: Any) -> SpooledRows:
    reader = make_reader(X, Y, **options)
    parts = reader.parts(0)
    for part in parts:
        spool_part(reader, part, folder, batch_bytes=1)
    return SpooledRows(folder, len(parts))


def mixed(generator: np.random.Generator, rows: int) -> np.ndarray[Any, Any]:
    """Rows of which some are empty, some 0/1 and sparse, some full of fractions: batches of every form."""
    X = np.zeros((rows, 12))
    X[rows // 3 : 2 * rows // 3] = generator.random((2 * rows // 3 - rows // 3, 12)) < 0.05
    X[2 * rows // 3 :] = generator.normal(size=(rows - 2 * rows // 3, 12))
    return X


@settings(max_examples=40)
@given(data=st.data())
def test_any_run_comes_back_from_any_batches(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 100)))
    n = data.draw(st.integers(1, 40))
    X, Y = mixed(generator, n), labels(n)
    given_as = data.draw(st.sampled_from([np.asarray, csr_array]))
    cuts = tuple(data.draw(st.sets(st.integers(1, n))))
    part_cuts = tuple(data.draw(st.sets(st.integers(1, n), max_size=3)))
    folder = tmp_path_factory.mktemp("stage")
    expected, expected_labels = csr_array(X), csr_array(Y)
    with stage(folder, given_as(X), Y, cuts=cuts, part_cuts=part_cuts) as rows:
        start = data.draw(st.integers(0, n))
        stop = data.draw(st.integers(start, n))
        dense = np.full((stop - start, 12), 9.0)
        rows.fill(X_NAME, start, dense)
        np.testing.assert_array_equal(dense, X[start:stop])
        dense_labels = np.full((stop - start, 4), 9, np.int8)
        rows.fill(LABELS_NAME, start, dense_labels)
        np.testing.assert_array_equal(dense_labels, Y[start:stop])
        offsets = np.empty(n + 1, np.int64)
        rows.fill("X/indptr", 0, offsets)
        np.testing.assert_array_equal(offsets, expected.indptr)
        tail = np.empty(n + 1 - start, np.int64)
        rows.fill("obsm/labels/indptr", start, tail)
        np.testing.assert_array_equal(tail, expected_labels.indptr[start:])
        first = data.draw(st.integers(0, expected.nnz))
        last = data.draw(st.integers(first, expected.nnz))
        values, indices = np.empty(last - first), np.empty(last - first, np.int32)
        rows.fill("X/data", first, values)
        rows.fill("X/indices", first, indices)
        np.testing.assert_array_equal(values, expected.data[first:last])
        np.testing.assert_array_equal(indices, expected.indices[first:last])
        values = np.empty(expected_labels.nnz, np.int8)
        rows.fill("obsm/labels/data", 0, values)
        np.testing.assert_array_equal(values, expected_labels.data)
        positions = sorted(data.draw(st.sets(st.integers(0, expected.nnz))))
        found = [int(np.searchsorted(expected.indptr, p)) for p in positions]
        assert rows.rows_of_nonzeros(positions) == [min(row, n) for row in found]
        assert rows.offsets_at([0, n], X_NAME) == [0, expected.nnz]


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinite_values_are_refused(tmp_path: Path, form: Any, value: float) -> None:
    X = np.ones((6, 40))
    X[4, 2] = value
    reader = make_reader(form(X), labels(6), feature_names=[f"f{i}" for i in range(40)], first_line=11, path="a.txt")
    with pytest.raises(DataError) as raised:
        spool_part(reader, reader.parts(0)[0], tmp_path, batch_bytes=1)
    assert str(raised.value) == (
        f"a.txt, line 15, column 'f2', value {value}: a feature must be a finite number or missing\n"
        "  cure: replace infinite values, or leave the field empty (missing)"
    )


class Interrupted(Exception):
    pass


def interrupt_after(batches: int) -> Any:
    left = [batches]

    def on_batch(rows: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Interrupted

    return on_batch


def test_reading_goes_on_after_the_last_whole_batch(tmp_path: Path) -> None:
    X, Y = mixed(np.random.default_rng(0), 30), labels(30)
    log = tmp_path / "log"
    reader = make_reader(X, Y, cuts=(5, 10, 15, 20, 25), log=str(log))
    (part,) = reader.parts(0)
    with pytest.raises(Interrupted):
        spool_part(reader, part, tmp_path, batch_bytes=1, on_batch=interrupt_after(3))
    with journal_path(tmp_path, 0).open("ab") as file:
        file.write(b'{"offset": 12, "ro')  # a line that was being written
    with data_path(tmp_path, 0).open("ab") as file:
        file.write(b"half a batch" * 1000)
    log.unlink()
    assert spool_part(reader, part, tmp_path, batch_bytes=1) == 30
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["15", "20", "25"]
    (tmp_path / "whole").mkdir()
    spool_part(reader, part, tmp_path / "whole", batch_bytes=1)
    assert data_path(tmp_path, 0).read_bytes() == data_path(tmp_path / "whole", 0).read_bytes()
    ours, whole = (Statistics.load(statistics_path(folder, 0)) for folder in (tmp_path, tmp_path / "whole"))
    assert ours.nonzeros == whole.nonzeros
    np.testing.assert_array_equal(ours.minimum, whole.minimum)
    np.testing.assert_array_equal(ours.positive, whole.positive)


@pytest.mark.parametrize("finished", [False, True])
def test_torn_data_is_read_again(tmp_path: Path, finished: bool) -> None:
    X, Y = np.random.default_rng(0).normal(size=(9, 3)), labels(9)
    reader = make_reader(X, Y, cuts=(3, 6))
    (part,) = reader.parts(0)
    if finished:
        spool_part(reader, part, tmp_path, batch_bytes=1)
    else:
        with pytest.raises(Interrupted):
            spool_part(reader, part, tmp_path, batch_bytes=1, on_batch=interrupt_after(2))
    content = bytearray(data_path(tmp_path, 0).read_bytes())
    content[5] ^= 1
    data_path(tmp_path, 0).write_bytes(content)
    spool_part(reader, part, tmp_path, batch_bytes=1)
    with SpooledRows(tmp_path, 1) as rows:
        out = np.empty((9, 3))
        rows.fill(X_NAME, 0, out)
    np.testing.assert_array_equal(out, X)


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_widths_that_grow(tmp_path: Path, form: Any) -> None:
    class Growing:
        header = Header(None, None)
        path = "growing"

        def parts(self, part_bytes: int) -> list[Any]:
            return make_reader(np.ones((1, 1)), labels(1)).parts(0)

        def read(self, part: Any, *, batch_bytes: int) -> Any:
            for width in (1, 3, 2):
                yield Batch(form(np.ones((1, width))), csr_array((1, width + 1), dtype=np.int8), width)

    reader = Growing()
    spool_part(reader, reader.parts(0)[0], tmp_path, batch_bytes=1)
    with SpooledRows(tmp_path, 1) as rows:
        out = np.full((3, 3), 7.0)
        rows.fill(X_NAME, 0, out)
    assert out.tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 0]]
    assert Statistics.load(statistics_path(tmp_path, 0)).n_labels == 4


NAN = float("nan")
VALUES = st.sampled_from([0.0, 0.0, 1.0, 2.0, -3.0, 0.5, 0.1, 2.0**25 + 1, 1e300, NAN])


def counted(X: Any, *, sparse: bool = False) -> Statistics:
    statistics = Statistics()
    if sparse:
        statistics.add_sparse(csr_array(np.asarray(X, float)))
    else:
        statistics.add_dense(np.asarray(X, float))
    return statistics


def facts(statistics: Statistics) -> dict[str, Any]:
    minimum, maximum = statistics.ranges()
    return {
        "rows": statistics.rows,
        "nonzeros": statistics.nonzeros,
        "longest_row": statistics.longest_row,
        "fits_float32": statistics.fits_float32,
        "minimum": [str(v + 0.0) for v in minimum],
        "maximum": [str(v + 0.0) for v in maximum],
        "stored": statistics.stored.tolist(),
        "missing": statistics.missing.tolist(),
        "integers": statistics.integers.tolist(),
    }


@given(X=arrays(float, st.tuples(st.integers(1, 40), st.integers(1, 5)), elements=VALUES), data=st.data())
def test_any_split_and_either_form_count_alike(X: np.ndarray[Any, Any], data: st.DataObject) -> None:
    whole = facts(counted(X))
    assert facts(counted(X, sparse=True)) == whole
    cuts = sorted(data.draw(st.sets(st.integers(1, len(X)))))
    merged = Statistics()
    for rows in np.split(X, cuts):
        merged.merge(counted(rows, sparse=data.draw(st.booleans())))
    assert facts(merged) == whole


def test_long_rows_and_many_tiles() -> None:
    generator = np.random.default_rng(0)
    for shape in ((700, 3), (50, 1000)):
        X = generator.integers(0, 3, shape).astype(float)
        X[generator.random(shape) < 0.1] = NAN
        X[:, 0] = 1  # more values than a byte counts
        statistics = counted(X)
        assert statistics.longest_row == max(np.count_nonzero(row) for row in X)
        np.testing.assert_array_equal(statistics.missing, np.isnan(X).sum(axis=0))
        np.testing.assert_array_equal(statistics.stored, ((X != 0) & ~np.isnan(X)).sum(axis=0))


def test_a_code_that_was_not_declared() -> None:
    with pytest.raises(DataError, match="a categorical feature with 3 declared values has code 3"):
        Statistics({0: 3}).add_dense(np.array([[3.0]]))
