"""Columns of tables: labels, classes, tags, lists, what is left out; names from Mulan XML."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from pyarrow import parquet as pq

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.base import FileSpec, LabelSpec, Reader
from mlfs_dask.readers.classes import ClassColumn
from mlfs_dask.readers.mulan_xml import read_mulan_labels
from mlfs_dask.storage.append import append
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.opening import open_dataset
from tests.readers.reading import check_splits, read_all, write_arff

TABLE = pd.DataFrame(
    {
        "x": [0.5, 1.5, 2.5, 3.5, 4.5],
        "kind": ["cat", "dog", None, "none", "cat"],
        "grade": ["2", "10", "1", "2", "2"],
        "ok": ["yes", "no", "yes", None, "no"],
        "tags": ["fun;war", "war", None, " fun ; sad", "war;war"],
    }
)
NAMES = ("kind=cat", "kind=dog", "kind=none", "grade=1", "grade=2", "grade=10", "ok")
LABELS = [
    [1, 0, 0, 0, 1, 0, 1],
    [0, 1, 0, 0, 0, 1, 0],
    [-1, -1, -1, 1, 0, 0, 1],
    [0, 0, 1, 0, 1, 0, -1],
    [1, 0, 0, 0, 1, 0, 0],
]
TAGS = [[1, 0, 1], [0, 0, 1], [-1, -1, -1], [1, 1, 0], [0, 0, 1]]


def csv(folder: Path, table: pd.DataFrame) -> str:
    table.to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


def parquet(folder: Path, table: pd.DataFrame) -> str:
    table.astype({"grade": int}).to_parquet(folder / "t.parquet", row_group_size=2)
    return str(folder / "t.parquet")


def feather(folder: Path, table: pd.DataFrame) -> str:
    table.astype({"grade": float, "kind": "category"}).to_feather(folder / "t.feather")
    return str(folder / "t.feather")


def arff(folder: Path, table: pd.DataFrame) -> str:
    tags = ",".join(f"'{text}'" for text in table["tags"].dropna().unique())
    kinds = {"kind": "{cat,dog,none}", "grade": "{1,2,10}", "ok": "{no,yes}", "tags": f"{{{tags}}}"}
    return write_arff(folder / "t.arff", table, kinds)


def sparse_arff(folder: Path, table: pd.DataFrame) -> str:
    head, _, rows = Path(arff(folder, table)).read_text().partition("@data\n")
    first = ("", "'cat'", "'1'", "'no'", "'fun;war'")
    entries = [
        ", ".join(f"{i} {value}" for i, value in enumerate(row.split(",")) if value != first[i])
        for row in rows.splitlines()
    ]
    (folder / "t.arff").write_text(f"{head}@data\n" + "".join(f"{{{row}}}\n" for row in entries))
    return str(folder / "t.arff")


def h5ad(folder: Path, table: pd.DataFrame) -> str:
    obs = table.drop(columns="x").astype("category").set_axis([f"c{row}" for row in range(len(table))])
    obs["grade"] = obs["grade"].cat.set_categories(["1", "2", "10"])
    anndata.AnnData(table[["x"]].to_numpy(), obs=obs).write_h5ad(folder / "t.h5ad")
    return str(folder / "t.h5ad")


Write = Callable[[Path, pd.DataFrame], str]
ALL = [csv, parquet, feather, arff, sparse_arff, h5ad]


@pytest.mark.parametrize("write", ALL)
def test_each_class_is_a_label(tmp_path: Path, write: Write) -> None:
    labels = LabelSpec(columns=("kind", "grade", "ok"), classes=True)
    reader = open_source([write(tmp_path, TABLE)], FileSpec(labels=labels, drop=() if write is h5ad else ("tags",)))
    assert (reader.header.label_names, reader.header.n_labels) == (NAMES, 7)
    X, Y = read_all(reader)
    assert (X.ravel().tolist(), Y.tolist()) == (TABLE["x"].tolist(), LABELS)
    check_splits(reader, sizes=(1, 90))


@pytest.mark.parametrize("write", ALL)
def test_each_tag_is_a_label(tmp_path: Path, write: Write) -> None:
    options = FileSpec(
        labels=LabelSpec(columns=("tags",), classes=True, separator=";"),
        drop=() if write is h5ad else ("kind", "grade", "ok"),
    )
    reader = open_source([write(tmp_path, TABLE)], options)
    assert reader.header.label_names == ("tags=fun", "tags=sad", "tags=war")
    assert read_all(reader)[1].tolist() == TAGS


def test_numbers_of_obs_are_classes_where_this_is_said(tmp_path: Path) -> None:
    obs = pd.DataFrame({"grade": [2, 10, 1], "dose": [0.5, np.nan, 1.5], "ok": [1, 0, 1]}, index=list("abc"))
    anndata.AnnData(np.ones((3, 2)), obs=obs).write_h5ad(tmp_path / "t.h5ad")
    labels = LabelSpec(columns=("grade", "dose", "ok"), classes=True)
    reader = open_source([str(tmp_path / "t.h5ad")], FileSpec(labels=labels))
    assert reader.header.label_names == ("grade=1", "grade=2", "grade=10", "dose=0.5", "dose=1.5", "ok")
    assert read_all(reader)[1].tolist() == [[0, 1, 0, 1, 0, 1], [0, 0, 1, -1, -1, 0], [1, 0, 0, 0, 1, 1]]


def test_rows_without_tags_can_have_none(tmp_path: Path) -> None:
    labels = LabelSpec(columns=("tags",), classes=True, separator=";", negative=("NA",))
    reader = open_source([csv(tmp_path, TABLE)], FileSpec(labels=labels))
    assert read_all(reader)[1].tolist() == [[max(label, 0) for label in row] for row in TAGS]


@pytest.mark.parametrize(("write", "rest"), [(csv, {}), (parquet, {}), (arff, {})])
def test_a_column_of_classes_is_refused_with_what_to_say(tmp_path: Path, write: Write, rest: Any) -> None:
    options = FileSpec(labels=LabelSpec(columns=("kind",)), drop=("tags",))
    with pytest.raises(DataError, match=r"column 'kind'.*\n  cure: .*say --label-classes"):
        read_all(open_source([write(tmp_path, TABLE)], options))


@pytest.mark.parametrize("write", [csv, parquet])
def test_files_are_united_and_appended_rows_have_the_classes_of_the_store(tmp_path: Path, write: Write) -> None:
    labels, drop = LabelSpec(columns=("kind", "ok"), classes=True), ("grade", "tags")
    paths = []
    for name, rows in (("a", TABLE[:2]), ("b", TABLE[2:]), ("c", TABLE[4:])):
        (tmp_path / name).mkdir()
        paths.append(write(tmp_path / name, rows))
    store = tmp_path / "t.zarr"
    convert(paths[:2], store, labels=labels, drop=drop, workers=1)
    append(store, paths[2], labels=labels, drop=drop, workers=1)
    dataset = open_dataset(store)
    assert tuple(dataset.label_names) == (*NAMES[:3], "ok")
    Y = dataset.Y.compute()
    found = Y if isinstance(Y, np.ndarray) else Y.todense()
    assert found.tolist() == [[*LABELS[row][:3], LABELS[row][6]] for row in (0, 1, 2, 3, 4, 4)]
    new = TABLE[:1].assign(kind="cow")
    with pytest.raises(DataError, match="column 'kind', value 'cow': it has a class that is no label of the store"):
        append(store, write(tmp_path, new), labels=labels, drop=drop, workers=1)


def test_measurements_are_no_classes(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": np.arange(50.0), "y": np.linspace(0, 1, 50).round(3)})
    with pytest.raises(
        DataError, match=r"column 'y', value '0\.0': a column of classes was expected, and this one has 50"
    ):
        open_source([csv(tmp_path, table)], FileSpec(labels=LabelSpec(columns=("y",), classes=True)))


def test_many_classes_of_rows_without_one_take_bounded_memory(tmp_path: Path) -> None:
    """A row without a class has an unknown label for each: a few rows at a time."""
    texts = [f"c{row}" if row % 2 else "" for row in range(4000)]
    path = csv(tmp_path, pd.DataFrame({"x": range(4000), "y": texts}))
    reader = open_source([path], FileSpec(labels=LabelSpec(columns=("y",), classes=True)))
    assert reader.header.n_labels == 2000
    rows = [batch.Y.shape[0] for batch in reader.read(reader.parts(1 << 40)[0], batch_bytes=1 << 20)]
    assert sum(rows) == 4000
    assert max(rows) * 2000 * 24 < 4 << 20


def test_a_matrix_of_labels_has_no_columns_of_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2)), Y=np.ones((2, 2)))
    with pytest.raises(UsageError, match="labels are a matrix here, not columns of classes"):
        open_source([str(tmp_path / "t.npz")], FileSpec(labels=LabelSpec(classes=True)))


def test_a_column_without_classes(tmp_path: Path) -> None:
    column = ClassColumn.of("k", ["", "?"], None, LabelSpec().values, file="t")
    assert column.is_one_label
    assert column.labels(np.array([0, np.nan])).toarray().tolist() == [[-1], [-1]]


TAGGED = [["joy", 'a "b" \\c'], [], None, ["fear"], ["joy", "fear"]]


def in_json(tags: list[str] | None) -> str | None:
    return None if tags is None else json.dumps(tags)


@pytest.mark.parametrize("form", ["csv of JSON", "csv of Python", "parquet of JSON", "parquet", "parquet of numbers"])
@pytest.mark.parametrize("separator", [None, ","])
def test_lists_are_tags(tmp_path: Path, form: str, separator: str | None) -> None:
    names = sorted({tag for tags in TAGGED for tag in tags or ()})
    lists: list[Any] = TAGGED
    if form.endswith("numbers"):
        lists = [None if tags is None else [names.index(tag) for tag in tags] for tags in TAGGED]
        names = ["0", "1", "2"]
    column = pa.array(
        [None if tags is None else str(tags) for tags in lists]
        if form.endswith("Python")
        else list(map(in_json, lists))
        if form.endswith("JSON")
        else lists
    )
    table = pa.table({"x": [1.0, 2, 3, 4, 5], "tags": column})
    path = str(tmp_path / f"t.{form.split()[0]}")
    if path.endswith("csv"):
        table.to_pandas().to_csv(path, index=False)
    else:
        pq.write_table(table, path)
    typed = form in ("parquet", "parquet of numbers")
    labels = LabelSpec(columns=("tags",), classes=not typed or separator is not None, separator=separator)
    reader = open_source([path], FileSpec(labels=labels))
    assert reader.header.label_names == tuple(f"tags={name}" for name in names)
    a, fear, joy = [1, 0, 0], [0, 1, 0], [0, 0, 1]
    expected = [np.add(a, joy), [0, 0, 0], [-1, -1, -1], fear, np.add(fear, joy)]
    assert read_all(reader)[1].tolist() == np.array(expected).tolist()


@pytest.mark.parametrize(
    ("texts", "separator", "said"),
    [
        (["['a' 'b']", "['a']"], None, "it is no list of JSON or Python"),
        (["[a, b]", "[b]"], ",", "it is no list of JSON or Python"),
        (["['a', 'b']", "c"], ",", "split at ',', it leaves a bracket or quotes"),
        (["'a','b'", "c"], ",", "split at ',', it leaves a bracket or quotes"),
        (["[0, 1, 0]", "[1, 0, 0]"], None, "a list names a class twice"),
    ],
)
def test_lists_that_cannot_be_read(tmp_path: Path, texts: list[str], separator: str | None, said: str) -> None:
    path = csv(tmp_path, pd.DataFrame({"x": [1.0, 2.0], "k": texts}))
    with pytest.raises(DataError, match=f"column 'k', value .*{re.escape(said)}.*\n  cure: "):
        open_source([path], FileSpec(labels=LabelSpec(columns=("k",), classes=True, separator=separator)))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 3)])
def test_vectors_are_features(tmp_path: Path, kind: pa.DataType) -> None:
    vectors = [[1, 2, 3], None, [4, 5, 6]]
    hot = pa.array([[0, 1], [1, 0], [0, 0]], pa.list_(pa.int8(), 2))
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"v": pa.array(vectors, kind), "x": [7.0, 8, 9], "hot": hot}), path)
    reader = open_source([path], FileSpec(labels=LabelSpec(count=1)))
    assert (reader.header.feature_names, reader.header.label_names) == (("v_0", "v_1", "v_2", "x"), ("hot_0", "hot_1"))
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X, [[1, 2, 3, 7], [np.nan, np.nan, np.nan, 8], [4, 5, 6, 9]])
    assert Y.tolist() == [[0, 1], [1, 0], [0, 0]]


def test_vectors_of_different_lengths_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"v": [[1.0, 2], [3]], "y": [0, 1]}), path)
    with pytest.raises(DataError, match="column 'v', value 'a list of 1': a list of 2 numbers was expected"):
        read_all(open_source([path], FileSpec(labels=LabelSpec(count=1))))


@pytest.mark.parametrize("write", [csv, parquet, h5ad])
def test_classes_are_the_texts_that_stand_there(tmp_path: Path, write: Write) -> None:
    texts = ["0389", "389", "4E10", "250.0", "0389"]
    table = pd.DataFrame({"x": range(5), "k": texts})
    if write is h5ad:
        obs = table[["k"]].astype("category").set_axis(list("abcde"))
        anndata.AnnData(np.ones((5, 1)), obs=obs).write_h5ad(path := tmp_path / "t.h5ad")
    else:
        path = tmp_path / "t"
        (table.to_csv if write is csv else table.to_parquet)(path := path.with_suffix(f".{write.__name__}"))
    reader = open_source([str(path)], FileSpec(labels=LabelSpec(columns=("k",), classes=True)))
    assert set(reader.header.label_names or ()) == {f"k={text}" for text in texts}


@pytest.mark.parametrize("write", [csv, parquet, arff, h5ad])
@pytest.mark.parametrize("meaning", ["unknown", "negative"])
def test_values_that_are_no_classes(tmp_path: Path, write: Write, meaning: str) -> None:
    """`none` is a text of the column `kind` that was said to be unknown, or negative."""
    options = FileSpec(
        labels=LabelSpec(columns=("kind",), classes=True, **{meaning: ("none",)}),
        drop=() if write is h5ad else ("grade", "ok", "tags"),
    )
    reader = open_source([write(tmp_path, TABLE)], options)
    assert reader.header.label_names == ("kind=cat", "kind=dog")
    entry = -1 if meaning == "unknown" else 0
    kinds = {"cat": [1, 0], "dog": [0, 1], "none": [entry, entry], None: [-1, -1]}
    assert read_all(reader)[1].tolist() == [kinds[kind] for kind in TABLE["kind"].replace({np.nan: None})]


FORMATS = ("csv", "tsv", "parquet", "feather", "arff")


def save(tmp_path: Path, suffix: str, **columns: list[object]) -> str:
    """The same table in one of the formats."""
    path, table = tmp_path / f"t.{suffix}", pd.DataFrame(columns)
    if suffix == "arff":
        return write_arff(path, table, {"id": "string"})
    if suffix in ("parquet", "feather"):
        getattr(table, f"to_{suffix}")(path)
    else:
        table.to_csv(path, sep="\t" if suffix == "tsv" else ",", index=False)
    return str(path)


def opened(path: str, *, drop: tuple[str, ...] = (), obs: tuple[str, ...] = (), **labels: object) -> Reader:
    return open_source([path], FileSpec(LabelSpec(**labels), drop=drop, obs=obs))  # type: ignore[arg-type]


def names_of(reader: Reader) -> tuple[list[str], list[str]]:
    return list(reader.header.feature_names or ()), list(reader.header.label_names or ())


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("first", [True, False])
def test_a_count_of_labels_counts_what_is_not_left_out(tmp_path: Path, suffix: str, first: bool) -> None:
    columns: dict[str, list[object]] = {"id": ["a", "b", "c"], "y1": [1, 0, 1], "y2": [0, 1, 1], "x": [2, 3, 1]}
    columns = columns if first else dict(reversed(columns.items()))
    path = save(tmp_path, suffix, **columns)
    assert sorted(names_of(opened(path, drop=("id",), count=2, first=first))[1]) == ["y1", "y2"]
    if suffix != "arff":
        assert names_of(opened(path, obs=("id",), count=2, first=first))[0] == ["x"]
    with pytest.raises(DataError, match="column 'y1': it is both a label and a column to leave out"):
        opened(path, drop=("id", "y1"), columns=("y1", "y2"))


def test_a_count_of_labels_counts_no_folder(tmp_path: Path) -> None:
    (tmp_path / "g=1").mkdir()
    save(tmp_path / "g=1", "parquet", x=[2, 3], y1=[1, 0], y2=[0, 1])
    assert names_of(opened(str(tmp_path), count=2)) == (["x", "g"], ["y1", "y2"])
    assert names_of(opened(str(tmp_path), columns=("g",)))[1] == ["g"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('<?xml version="1.0"?>\r\n<labels xmlns="http://mulan.sourceforge.net/labels">'
         '<label name="b"></label>\r\n<label name="a b"/></labels>', ("b", "a b")),
        ('<labels><label name="01"><label name="01/01"><label name="01/01/03"/></label></label>'
         '<label name="02"/></labels>', ("01", "01/01", "01/01/03", "02")),
        (r'<labels><label name="TAG_m\'usica"/><label name="Swainson&apos;s"/><label name="ß"/></labels>',
         (r"TAG_m\'usica", "Swainson's", "ß")),
    ],
)  # fmt: skip
def test_names(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    path = tmp_path / "labels.xml"
    path.write_text(text)
    assert read_mulan_labels(str(path)) == names
    packed = tmp_path / "labels.xml.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_mulan_labels(str(packed)) == names


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("", "a Mulan XML file of labels was expected: no element found", 1),
        ("<labels>\n<label name='a'>\n</labels>", "a Mulan XML file of labels was expected: mismatched tag", 3),
        ("@relation r", "a Mulan XML file of labels was expected: not well-formed", 1),
        ("<labels></labels>", "no <label> element was found", None),
        ("<labels><label/></labels>", "a <label> element has no name", 1),
        (
            "<labels><label name='l1'/>\n<label name='l0'/>\n<label name='l1'/></labels>",
            "line 3, value 'l1': the label is named twice; the first time in line 1",
            3,
        ),
    ],
)
def test_refused(tmp_path: Path, text: str, problem: str, line: int | None) -> None:
    path = tmp_path / "labels.xml"
    path.write_text(text)
    with pytest.raises(DataError, match=problem) as caught:
        read_mulan_labels(str(path))
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert caught.value.cure
