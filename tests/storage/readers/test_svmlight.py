"""svmlight text with several labels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, vstack
from sklearn.datasets import load_svmlight_file

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.storage.append import append
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask.storage.readers.base import LabelSpec, ReadOptions
from mlfs_dask.storage.readers.indexed_text import IndexedTextReader
from mlfs_dask.storage.readers.svmlight import open_svmlight


def read_all(
    reader: IndexedTextReader, part_bytes: int = 1 << 40, batch_bytes: int = 1 << 22
) -> tuple[csr_array, csr_array]:
    X, Y = [], []
    for part in reader.parts(part_bytes):
        for batch in reader.read(part, batch_bytes=batch_bytes):
            assert batch.X.data.all()
            assert batch.X.has_canonical_format
            assert batch.Y.has_canonical_format
            X.append(batch.X)
            Y.append(batch.Y)
    for matrices in (X, Y):
        width = max((m.shape[1] for m in matrices), default=0)
        for m in matrices:
            m.resize((m.shape[0], width))
    return csr_array(vstack(X)), csr_array(vstack(Y))


def read(path: Path, text: str, **keys: str) -> tuple[list[list[float]], list[list[int]]]:
    path.write_text(text)
    X, Y = read_all(open_svmlight(str(path), ReadOptions(keys=keys)))
    return X.toarray().tolist(), Y.toarray().tolist()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.svm"


UNUSUAL = (
    "\ufeff# comment\r\n\r\n0 qid:7 1:1\t2:2 # note\r\n0  2:2   1:1\r\n0\t1:1 2:2#note\r\n  # comment\r\n"
    "0 1:1.0e0 2:+2.\r\n \r\nqid:3 1:1 2:2\r\n0 1:1 2:00000000000000000000002"
)


@pytest.mark.parametrize(
    ("text", "keys", "X", "Y"),
    [
        ("0,2 1:0.5 3:-2 \n1 2:1e1\n 3:4\n1:1 2:2\n2,0,2\n", {},
         [[0.5, 0, -2], [0, 10, 0], [0, 0, 4], [1, 2, 0], [0, 0, 0]],
         [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0], [1, 0, 1]]),
        ("3, 1,\t0 1:1\n2 2:2\n0 ,3 1:3\n", {}, [[1, 0], [0, 2], [3, 0]], [[1, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 1]]),
        (UNUSUAL, {}, [[1, 2]] * 4 + [[0, 0]] + [[1, 2]] * 2, [[1], [1], [1], [1], [0], [0], [1]]),
        ("0 1:nan 2:NaN 3:1\n", {}, [[np.nan, np.nan, 1]], [[1]]),
        ("0 1:1 3:0\n", {}, [[1, 0, 0]], [[1]]),  # a zero widens
        ("0 1:1 3:1\n1 0:5\n", {"feature_base": "0"}, [[0, 1, 0, 1], [5, 0, 0, 0]], [[1, 0], [0, 1]]),
        ("0 1:1 3:1\n1 0:5\n", {"feature_base": "auto"}, [[0, 1, 0, 1], [5, 0, 0, 0]], [[1, 0], [0, 1]]),
        ("0 1:1 3:1\n", {"feature_base": "auto"}, [[1, 0, 1]], [[1]]),
        ("0 1:1\n", {"n_labels": "2", "n_features": "3"}, [[1, 0, 0]], [[1, 0]]),
    ],
)  # fmt: skip
def test_rows(path: Path, text: str, keys: dict[str, str], X: list[list[float]], Y: list[list[int]]) -> None:
    found = read(path, text, **keys)
    np.testing.assert_array_equal(found[0], X)
    assert found[1] == Y


@pytest.mark.parametrize(
    ("words", "names", "labels"),
    [
        (["3.0", "1", "+1", "2", ""], ("class=1", "class=2", "class=3"), ["001", "100", "100", "010", None]),
        (["1", "0", "0"], ("class",), ["1", "0", "0"]),
        (["-1", "0", "1"], ("class=-1", "class=0", "class=1"), ["100", "010", "001"]),
        (["7", "7", "-2"], ("class=-2", "class=7"), ["01", "01", "10"]),
    ],
)
def test_classes(path: Path, words: list[str], names: tuple[str, ...], labels: list[str | None]) -> None:
    path.write_text("# a comment\n" + "".join(f"{word} 1:1\n" for word in words))
    reader = open_svmlight(str(path), ReadOptions(labels=LabelSpec(classes=True)))
    assert (reader.header.label_names, reader.header.n_labels) == (names, len(names))
    expected = [[-1] * len(names) if row is None else [int(label) for label in row] for row in labels]
    for part_bytes, batch_bytes in ((1 << 40, 1 << 22), (1, 1)):
        X, Y = read_all(reader, part_bytes, batch_bytes)
        assert X.toarray().tolist() == [[1]] * len(words)
        assert Y.toarray().tolist() == expected


def test_two_signs_as_classes_are_one_label(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("+1 1:1\n-1 2:1\n-1 1:2\n")
    made = convert(tmp_path / "t.svm", tmp_path / "t.zarr", labels=LabelSpec(classes=True))
    dataset = open_dataset(made.store)
    assert (dataset.label_names.tolist(), dataset.schema.positive, dataset.schema.unknown) == (["class"], (1,), (0,))


def test_classes_of_several_files_and_of_rows_that_are_appended(tmp_path: Path) -> None:
    for name, rows in {"a": "1 1:1\n2 1:1\n", "b": "3 1:1\n", "c": "2 1:1\n", "d": "4 1:1\n"}.items():
        (tmp_path / f"{name}.svm").write_text(rows)
    spec, store = LabelSpec(classes=True), tmp_path / "t.zarr"
    convert([tmp_path / "a.svm", tmp_path / "b.svm"], store, labels=spec)
    append(store, tmp_path / "c.svm", labels=spec)
    dataset = open_dataset(store)
    assert dataset.label_names.tolist() == ["class=1", "class=2", "class=3"]
    assert as_labels(dataset.Y.compute()).toarray().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]
    with pytest.raises(DataError, match="column 'class', value '4': it has a class that is no label of the store"):
        append(store, tmp_path / "d.svm", labels=spec)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("a 1:1\n", "line 1, value 'a': the class of the row, a number, was expected"),
        ("1,2 1:1\n", "line 1, value '1,2': the class of the row, a number, was expected"),
        ("".join(f"{i / 7:.4f} 1:1\n" for i in range(1, 40)), "and this one has 39 different numbers"),
    ],
)
def test_what_is_no_class(path: Path, rows: str, problem: str) -> None:
    path.write_text(rows)
    with pytest.raises(DataError, match=problem):
        open_svmlight(str(path), ReadOptions(labels=LabelSpec(classes=True)))


def test_a_label_beyond_memory_is_named_with_its_line(path: Path) -> None:
    with runtime.process_limits(memory_limit=1 << 30):
        assert read(path, "0 1:1\n1000 1000:1\n")[0][1][999] == 1
        with pytest.raises(DataError) as caught:
            read(path, "0 1:1\n# comment\n3,2000000000,4 1:1\n1 1:1\n")
    assert str(caught.value) == (
        f"{path}, line 3, value 2000000000: labels are numbers from 0, and so many would take 381,469 MiB of memory, "
        "of which there are 1,024\n"
        "  cure: correct the row, number the labels anew, or give more memory with memory_limit; or, if each row "
        "begins with its class (-1 and +1; 1.0, 2.0, 3.0), say --label-classes: each is a label"
    )


def test_a_feature_beyond_memory_is_named_with_its_line(path: Path) -> None:
    text = "0 1:1\n1 2:1 50000000:1 3:1\n1 1:1\n"
    with runtime.process_limits(memory_limit=1 << 30), pytest.raises(DoesNotFitError) as caught:
        read(path, text)
    assert str(caught.value).startswith(f"{path}, line 2: 50,000,000 features, for the index 50000000: projected")
    with runtime.process_limits(memory_limit=1 << 34):
        path.write_text(text)
        assert read_all(open_svmlight(str(path), ReadOptions()))[0].shape == (3, 50_000_000)


def test_a_count_of_labels_is_their_width(path: Path) -> None:
    path.write_text("0 1:1\n")
    assert read_all(open_svmlight(str(path), ReadOptions(labels=LabelSpec(count=3))))[1].shape == (1, 3)


@pytest.mark.parametrize(
    ("row", "problem", "value"),
    [
        ("+1 1:1", "label numbers from 0 were expected, and this is none", "+1"),
        ("-1 1:1", "label numbers from 0 were expected, and this is none", "-1"),
        ("3.0 1:1", "label numbers from 0 were expected, and this is none", "3.0"),
        ("1, 1:1", "label numbers from 0 with commas between them were expected, and none follows the comma", "1:1"),
        ("1,x 1:1", "label numbers from 0 with commas", "x"),
        ("99999999999 1:1", "label numbers from 0 below 2147483647 were expected", "99999999999"),
        ("2147483647 1:1", "label numbers from 0 below 2147483647 were expected", "2147483647"),
        ("1 x:1", "a pair index:value was expected", "x:1"),
        ("1 1", "a pair index:value was expected", "1"),
        ("1 2147483649:1", "a feature index below 2147483647 was expected", "2147483649:1"),
        ("1 1:x", "a number was expected", "x"),
        ("1 1:", "a number was expected", ""),
        ("1 1: 1: 1: 1: 1: 1: 1:", "a number was expected", ""),
        ("1 1:1_0", "a number was expected", "1_0"),
        ("1 1:inf", "a finite number was expected", "inf"),
        ("1 0:5", "feature 0 came, but features count from 1\n  cure: if its features count from 0, give --key", "0:5"),
        ("1 2:1 1:1 2:0", "a feature may stand only once in a row", None),
        ("1 2:0 2:0", "a feature may stand only once in a row", None),
    ],
)
def test_refused_row(path: Path, row: str, problem: str, value: str | None) -> None:
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read(path, f"0 1:1\n# comment\n{row}\n0 1:1\n")
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    assert caught.value.value == value
    assert caught.value.cure
    if value in ("+1", "-1", "3.0", "99999999999"):
        assert "say --label-classes" in caught.value.cure


def test_refused_beyond_the_widths_given(path: Path) -> None:
    with pytest.raises(DataError, match="a feature index from 1 to 3 was expected"):
        read(path, "0 4:1\n", n_features="3")
    with pytest.raises(DataError, match="label numbers from 0 to 1 with commas"):
        read(path, "2 1:1\n", n_labels="2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (ReadOptions(labels=LabelSpec(xml="x.xml")), "svmlight text has no names"),
        (ReadOptions(labels=LabelSpec(columns=("a",))), "svmlight text has no names"),
        (ReadOptions(drop=("a",)), "svmlight text has no names"),
        (ReadOptions(keys={"base": "1"}), "no key 'base'; known are feature_base, n_features, n_labels"),
        (ReadOptions(keys={"feature_base": "2"}), "feature_base must be 0, 1 or auto, not '2'"),
        (ReadOptions(keys={"n_features": "0"}), "n_features must be a positive whole number, not '0'"),
        (ReadOptions(keys={"n_labels": "x"}), "n_labels must be a positive whole number, not 'x'"),
    ],
)
def test_refused_options(path: Path, options: ReadOptions, problem: str) -> None:
    path.write_text("0 1:1\n")
    with pytest.raises(UsageError, match=re.escape(problem)):
        open_svmlight(str(path), options)


def test_empty_file(path: Path) -> None:
    path.write_text("")
    reader = open_svmlight(str(path), ReadOptions())
    assert [batch for part in reader.parts(100) for batch in reader.read(part, batch_bytes=100)] == []


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_equals_scikit_learn_in_any_cutting(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "any.svm"
    row = st.tuples(
        st.lists(st.integers(0, 6), max_size=4, unique=True),
        st.dictionaries(st.integers(1, 9), st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=30))
    path.write_text(
        "\n".join(
            ",".join(map(str, labels)) + " " + " ".join(f"{i}:{v!r}" for i, v in sorted(features.items()))
            for labels, features in rows
        )
    )
    reader = open_svmlight(str(path), ReadOptions(keys={"n_features": "9", "n_labels": "7"}))
    X, Y = read_all(reader, data.draw(st.integers(1, 300)), data.draw(st.integers(1, 300)))
    X_other, labels = load_svmlight_file(str(path), multilabel=True, n_features=9, zero_based=False)
    np.testing.assert_array_equal(X.toarray(), X_other.toarray())
    assert [sorted(map(int, row)) for row in labels] == [row.nonzero()[0].tolist() for row in Y.toarray()]
