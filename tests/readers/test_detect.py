"""From names to a reader: suffixes, contents, pairs, folders, patterns; several files as one."""

from __future__ import annotations

import gzip
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.formats.csv import open_csv
from mlfs_dask.formats.detect import known_formats, open_source
from mlfs_dask.formats.parquet import open_parquet
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.readers.concat import concatenate
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.opening import open_dataset
from tests.readers.reading import check_splits, read_all
from tests.readers.test_mat import SAVE

X = np.array([[1.0, 0, 2], [0, 3, 0]])
Y = np.array([[1, 0], [0, 1]])
ARFF = (
    "@relation t\n@attribute a numeric\n@attribute b numeric\n@attribute c numeric\n"
    "@attribute p {0,1}\n@attribute q {0,1}\n@data\n1,0,2,1,0\n0,3,0,0,1\n"
)
TABLE = "a,b,c,p,q\n1,0,2,1,0\n0,3,0,0,1\n"
SVM = "0 1:1 3:2 \n1 2:3 \n"
XML = '<labels><label name="q"/><label name="p"/></labels>'
LAST = FileSpec(labels=LabelSpec(count=2))


def npz(folder: Path) -> str:
    np.savez(folder / "t.npz", X=X, Y=Y)
    return str(folder / "t.npz")


def text(name: str, content: str | bytes):
    def write(folder: Path) -> str:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def parquet(name: str):
    def write(folder: Path) -> str:
        import pyarrow as pa
        from pyarrow import parquet

        columns = dict(zip("abcpq", np.hstack([X, Y]).T, strict=True))
        parquet.write_table(pa.table(columns), folder / name)
        return str(folder / name)

    return write


def mat(folder: Path) -> str:
    import scipy.io

    scipy.io.savemat(folder / "t.mat", {"X": X, "Y": Y.T})
    return str(folder / "t.mat")


def zarr_group(folder: Path) -> str:
    import zarr

    root = zarr.open_group(str(folder / "t.zarr"), mode="w")
    root.create_array("X", data=X)
    root.create_array("Y", data=Y)
    return str(folder / "t.zarr")


def unnamed_zarr_group(folder: Path) -> str:
    return str(Path(zarr_group(folder)).rename(folder / "plain"))


def hdf5(name: str, root: str = ""):
    """X and Y in an HDF5 file; in a group `root`, as AnnData has them."""

    def write(folder: Path) -> str:
        import h5py

        with h5py.File(folder / name, "w") as file:
            file["X"], file["obsm/labels" if root else "Y"] = X, Y
            file.attrs["encoding-type"] = root
        return str(folder / name)

    return write


CASES = {
    "hdf5": (hdf5("t.h5"), FileSpec()),
    "hdf5 without suffix": (hdf5("t"), FileSpec()),
    "anndata as h5": (hdf5("t.h5", "anndata"), FileSpec()),
    "arff.gz": (text("T.ARFF.gz", gzip.compress(ARFF.encode())), LAST),
    "arff as txt": (text("t.txt", "% comment\n\n" + ARFF), LAST),
    "csv.gz": (text("t.csv.gz", gzip.compress(TABLE.encode())), LAST),
    "csv as data": (text("t.data", TABLE), LAST),
    "tsv": (text("t.tsv", TABLE.replace(",", "\t")), LAST),
    "tsv as txt": (text("t.txt", TABLE.replace(",", "\t")), LAST),
    "blanks as txt": (text("t.txt", TABLE.replace(",", " ")), LAST),
    "svm": (text("t.svm", SVM), FileSpec()),
    "svm as txt": (text("t.txt", SVM), FileSpec()),
    "svm as txt, no label": (text("t.txt", "# made up\n" + SVM), FileSpec()),
    "xmlc": (text("t.txt", "2 3 2\n0 0:1 2:2\n1 1:3\n"), FileSpec()),
    "mat": (mat, FileSpec(keys={"orientation": "columns"})),
    "parquet as data": (parquet("t.data"), LAST),
    "zarr without suffix": (unnamed_zarr_group, FileSpec()),
}


@pytest.mark.parametrize("case", CASES)
def test_formats(tmp_path: Path, case: str) -> None:
    write, options = CASES[case]
    found = read_all(open_source([write(tmp_path)], options))
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], Y)


NAMES = {"genes": ["A", "B c", "é"], "tags": ["p", "q"]}


def npz_with_names(folder: Path) -> list[str]:
    np.savez(folder / "t.npz", X=X, Y=Y, **NAMES)
    return [str(folder / "t.npz")]


def mat_with_names(version: str):
    def write(folder: Path) -> list[str]:
        cells = {key: np.array(names, object) for key, names in NAMES.items()}
        return [SAVE[version](folder / "t.mat", {"X": X, "Y": Y, **cells})]

    return write


def hdf5_with_names(folder: Path) -> list[str]:
    import h5py

    with h5py.File(hdf5("t.h5")(folder), "r+") as file:
        for key, names in NAMES.items():
            file[key] = names
    return [str(folder / "t.h5")]


def zarr_with_names(folder: Path) -> list[str]:
    import zarr

    root = zarr.open_group(zarr_group(folder))
    for key, names in NAMES.items():
        root.create_array(key, shape=(len(names),), dtype=str)[:] = np.array(names)
    return [str(folder / "t.zarr")]


def pair_with_names(save):
    def write(folder: Path) -> list[str]:
        for key, names in NAMES.items():
            (folder / key).write_text("\n".join(names) + "\n")
        return [save(folder, "X", X), save(folder, "Y", Y)]

    return write


def save_npy(folder: Path, name: str, values: np.ndarray) -> str:
    np.save(folder / f"{name}.npy", values)
    return str(folder / f"{name}.npy")


def save_mtx(folder: Path, name: str, values: np.ndarray) -> str:
    import scipy.io

    scipy.io.mmwrite(folder / f"{name}.mtx", sp.coo_array(values), symmetry="general")
    return str(folder / f"{name}.mtx")


@pytest.mark.parametrize(
    "write",
    [
        npz_with_names,
        mat_with_names("5"),
        mat_with_names("7.3"),
        hdf5_with_names,
        zarr_with_names,
        pair_with_names(save_npy),
        pair_with_names(save_mtx),
    ],
)
def test_names_of_arrays(tmp_path: Path, write) -> None:
    paths = write(tmp_path)
    mark = f"@{tmp_path}/" if len(paths) == 2 else ""
    keys = {"names": f"{mark}genes", "label_names": f"{mark}tags"}
    keys |= {"orientation": "rows"} if paths[0].endswith(".mat") else {}
    reader = open_source(paths, FileSpec(keys=keys))
    assert [list(reader.header.feature_names), list(reader.header.label_names)] == [*NAMES.values()]
    np.testing.assert_array_equal(read_all(reader)[0], X)
    with pytest.raises(DataError, match=r"none.*\n  cure: |there is no array of texts 'none'"):
        open_source(paths, FileSpec(keys={**keys, "names": f"{mark}none"}))


def test_format_by_option(tmp_path: Path) -> None:
    path = text("t.odd", TABLE)(tmp_path)
    with pytest.raises(UsageError, match="the format is unclear from its name and its first line") as caught:
        open_source([path], LAST)
    for name, known in known_formats().items():
        assert f"{name} ({known.title})" in str(caught.value)
    np.testing.assert_array_equal(read_all(open_source([path], replace(LAST, format="csv")))[0], X)


ODD = "the format is unclear from its name and its first line"


@pytest.mark.parametrize(
    ("files", "options", "format", "problem"),
    [
        ({}, LAST, None, "no files were given"),
        ({"t.csv": TABLE}, LAST, "excel", "unknown format 'excel'\n  cure: --format is one of 10x, anndata, arff"),
        *(({"t.txt": content}, LAST, None, ODD)
          for content in ("words without any mark\n", "1\n2\n", "% a comment\n", "a:b c\n")),
        ({"t.csv": TABLE, "t.svm": SVM}, LAST, None, r"t\.csv is csv and .*t\.svm is svmlight; only files of one"),
        *((files, FileSpec(), None, rf"(?s){option}") for files in ({"t.arff": ARFF}, {"t.csv": TABLE})
          for option in ("--label-file", "--label-columns", "--n-labels")),
        ({"t.csv": TABLE}, FileSpec(LAST.labels, keys={"x": "A"}), None,
         "csv has no key 'x'\n  cure: its keys are categorical, header"),
        ({"t.parquet": TABLE}, FileSpec(LAST.labels, keys={"x": "A"}), None,
         "parquet has no key 'x'\n  cure: its keys are categorical"),
        ({"t.arff": ARFF}, FileSpec(LAST.labels, keys={"x": "A"}), None, "ARFF files have no key 'x'"),
        ({"t.npz": "any"}, LAST, None, "labels are an array of their own here.*\n  cure: .*--key y=NAME"),
        *(({name: "PK\x03\x04 and more"}, LAST, None,
           "is an archive, which may hold several files\n  cure: unpack it") for name in ("x.zip", "x.tar", "x.7z")),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, files: dict[str, str], options: FileSpec, format: str | None, problem: str) -> None:
    paths = [text(name, content)(tmp_path) for name, content in files.items()]
    with pytest.raises(UsageError, match=problem):
        open_source(paths, replace(options, format=format))


def test_a_file_with_both_and_one_of_a_pair(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", sp.csr_array(X))
    with pytest.raises(UsageError, match="holds one matrix, and 2 files came\n  cure: give the pair X Y"):
        open_source([npz(tmp_path), str(tmp_path / "X.npz")])


def test_files_with_both_are_concatenated(tmp_path: Path) -> None:
    first = npz(tmp_path)
    np.savez(tmp_path / "u.npz", X=2 * X, Y=Y)
    found = read_all(open_source([first, str(tmp_path / "u.npz")]))
    np.testing.assert_array_equal(found[0], np.vstack([X, 2 * X]))


def test_svmlight_files_of_different_width(tmp_path: Path) -> None:
    paths = [text("a.svm", SVM)(tmp_path), text("b.svm", "2 5:1\n")(tmp_path), text("c.svm", "0 1:1\n")(tmp_path)]
    assert open_source(paths).header.n_features is None
    dataset = open_dataset(convert(paths, tmp_path / "t.zarr", workers=1).store)
    np.testing.assert_array_equal(dataset.X.compute(), [[1, 0, 2, 0, 0], [0, 3, 0, 0, 0], [0] * 4 + [1], [1] + [0] * 4])
    np.testing.assert_array_equal(dataset.Y.compute(), [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])


def test_folder_of_parquet_files_and_patterns(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    (folder / "_temporary").mkdir(parents=True)
    parquet("b.parquet")(folder)
    parquet("a.parquet")(folder)
    parquet("c.parquet")(folder / "_temporary")
    found = read_all(open_source([str(folder)], LAST))
    np.testing.assert_array_equal(found[0], np.vstack([X, X]))
    np.testing.assert_array_equal(read_all(open_source([f"{folder}/*.parquet"], LAST))[0], found[0])
    with pytest.raises(DataError, match="no file matches"):
        open_source([f"{folder}/*.csv"], LAST)


def test_pattern_in_a_url() -> None:
    import fsspec

    for name in "ab":
        with fsspec.open(f"memory://detect/{name}.csv", "w") as file:
            file.write(TABLE)
    np.testing.assert_array_equal(read_all(open_source(["memory://detect/*.csv"], LAST))[0], np.vstack([X, X]))


def test_labels_from_the_xml_of_the_same_stem(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = text("t.arff.gz", gzip.compress(ARFF.encode()))(tmp_path)
    beside = text("t.xml", XML)(tmp_path)
    with caplog.at_level(logging.INFO, logger="mlfs_dask"):
        reader = open_source([path])
    assert f"{path}: the labels are those named in {beside}" in caplog.text
    assert reader.header.label_names == ("p", "q")
    assert open_source([path], FileSpec(labels=LabelSpec(count=1))).header.label_names == ("q",)


def test_xml_names_label_columns_of_a_table(tmp_path: Path) -> None:
    options = FileSpec(labels=LabelSpec(xml=text("t.xml", XML)(tmp_path)))
    reader = open_source([text("t.csv", TABLE)(tmp_path)], options)
    assert reader.header.label_names == ("p", "q")


def test_a_file_given_twice(tmp_path: Path) -> None:
    path = text("t.csv", TABLE)(tmp_path)
    with pytest.raises(UsageError, match=r"t\.csv is given twice"):
        open_source([path, path], LAST)


def options_for(suffix: str) -> FileSpec:
    return LAST if suffix in ("csv", "parquet", "arff") else FileSpec()


def test_keys_in_any_capitals(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", A=X, B=Y)
    found = read_all(open_source([str(tmp_path / "t.npz")], FileSpec(keys={"X": "A", "y": "B"})))
    np.testing.assert_array_equal(found[0], X)


@pytest.mark.parametrize("suffix", ["csv", "txt", "odd", "npz", "mat", "parquet", "h5ad", "arff", "zarr"])
def test_missing_file(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(DataError, match=r"there is no (such file|Zarr array or group)") as caught:
        open_source([str(tmp_path / f"t.{suffix}")], options_for(suffix))
    assert caught.value.exit_code == 3
    assert f"t.{suffix}" in str(caught.value)


@pytest.mark.parametrize("suffix", ["csv", "txt", "npz", "mat", "parquet", "h5ad", "arff"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [("", "the file is empty"), ("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "run git lfs pull")],
)
def test_files_without_data(tmp_path: Path, suffix: str, content: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        open_source([text(f"t.{suffix}", content)(tmp_path)], options_for(suffix))


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it is a folder, but neither Zarr nor one of Parquet files"):
        open_source([str(tmp_path)], LAST)


ONE_LABEL = FileSpec(labels=LabelSpec(count=1))


@pytest.fixture
def files(tmp_path: Path):
    def write(*texts: str):
        paths = [tmp_path / f"{i}.csv" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return concatenate([open_csv(str(path), ONE_LABEL) for path in paths])

    return write


def test_found_categories_are_united(files) -> None:
    reader = files("k,y\nc,0\na,1\n", "k,y\nb,0\nc,1\n", "k,y\n2,0\n10,1\n")
    assert reader.header.categories == {0: ("10", "2", "a", "b", "c")}
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X[:, 0], [4, 2, 3, 4, 1, 0])
    np.testing.assert_array_equal(Y[:, 0], [0, 1] * 3)


@pytest.fixture
def tables(tmp_path: Path):
    def write(*orders: list[str] | None):
        paths = [tmp_path / f"{i}.parquet" for i in range(len(orders))]
        for path, order in zip(paths, orders, strict=True):
            rows = order[::-1] if order else ["low", "high"]
            column = pd.Categorical(rows, categories=order, ordered=order is not None)
            pd.DataFrame({"k": column, "y": [0, *[1] * (len(rows) - 1)]}).to_parquet(path)
        return concatenate([open_parquet(str(path), ONE_LABEL) for path in paths])

    return write


def test_the_order_of_categories_that_files_give_is_kept(tables) -> None:
    reader = tables(["low", "high"], ["low", "mid", "high"], None)
    assert reader.header.categories == {0: ("low", "mid", "high")}
    np.testing.assert_array_equal(read_all(reader)[0][:, 0], [2, 0, 2, 1, 0, 0, 2])


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        (
            [["low", "high"], ["high", "low"]],
            r"1\.parquet, column 'k': its values are {high, low}; in .*0\.parquet they",
        ),
        (
            [None, ["low", "mid"]],
            r"0\.parquet, column 'k': its values are {high, low}; in .*1\.parquet they are {low, mid}",
        ),
        ([["low", "high"], [*"abcdefghijkl"]], "they are {a, b, c, d, e, f, g, h, i, j, ... 12 in all}"),
    ],
)
def test_orders_of_categories_that_differ(tables, orders: list[list[str] | None], said: str) -> None:
    with pytest.raises(DataError, match=said):
        tables(*orders)


def test_any_split(files) -> None:
    texts = ["x,y\n" + "".join(f"{100 * i + j},{j % 2}\n" for j in range(30)) for i in range(3)]
    reader = files(*texts)
    assert len(reader.parts(40)) > 6
    check_splits(reader, sizes=(1, 60))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("x,y\n1,0\n", "z,y\n1,0\n", r"1\.csv: feature 1 is 'z'; in .*0\.csv it is 'x'"),
        ("x,y\n1,0\n", "x,z,y\n1,1,0\n", r"1\.csv: feature 2 is 'z'; in .*0\.csv it is not there"),
        ("x,z,y\n1,1,0\n", "x,y\n1,0\n", r"1\.csv: feature 2 is not there; in .*0\.csv it is 'z'"),
        ("x,y\n1,0\n", "1.5,0\n2.5,1\n", r"1\.csv: it has no feature names, .*0\.csv has them"),
        ("x,y\n1,0\n", "x,z\n1,0\n", r"1\.csv: label 1 is 'z'; in .*0\.csv it is 'y'"),
        ("1.5,0\n2.5,1\n", "1.5,7,0\n2.5,3,1\n", r"1\.csv: it has 2 features, .*0\.csv has 1"),
    ],
)
def test_the_first_difference_between_files_is_named(files, first: str, second: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        files(first, second)
    assert caught.value.cure


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("most", [100_000, 25])
def test_a_column_with_a_text_of_its_own_in_every_row_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, form: str, files: int, most: int
) -> None:
    monkeypatch.setattr("mlfs_dask.readers.table.MAX_CATEGORIES", most)
    table = pd.DataFrame({"id": [f"s{row}" for row in range(80)], "x": np.arange(80) / 4, "y": np.arange(80) % 2})
    paths = [str(tmp_path / f"{number}.{form}") for number in range(files)]
    for path, rows in zip(paths, np.array_split(np.arange(80), files), strict=True):
        getattr(table.iloc[rows], f"to_{form}")(path, index=False)
    reader = open_source(paths, ONE_LABEL)
    assert reader.header.feature_names == ("x",)
    assert "column 'id' has a different text in every row: it is left out" in caplog.text
    np.testing.assert_array_equal(read_all(reader)[0][:, 0], table["x"])
    if most > 80:
        assert open_source(paths, replace(ONE_LABEL, keys={"categorical": "id"})).header.feature_names == ("id", "x")


@pytest.mark.parametrize("most", [100_000, 25])
def test_texts_that_stand_in_two_files_identify_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("mlfs_dask.readers.table.MAX_CATEGORIES", most)
    texts = [f"s{row}" for row in range(24 if most > 25 else 40)]
    pd.DataFrame({"id": texts, "y": 1}).to_csv(tmp_path / "0.csv", index=False)
    pd.DataFrame({"id": texts[:22] * 2, "y": 0}).to_csv(tmp_path / "1.csv", index=False)
    paths = [str(tmp_path / f"{number}.csv") for number in range(2)]
    if most > 25:
        assert open_source(paths, ONE_LABEL).header.feature_names == ("id",)
    else:
        with pytest.raises(DataError, match="column 'id': a categorical column may hold 25 different texts"):
            open_source(paths, ONE_LABEL)


@pytest.mark.parametrize("form", ["csv", "parquet", "feather"])
def test_files_without_rows_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str) -> None:
    table = pd.DataFrame({"x": [1.5, 2.5], "kind": ["a", "b"], "y": [0, 1]})
    paths = [str(tmp_path / f"{number}.{form}") for number in range(3)]
    for path, rows in zip(paths, (0, 2, 0), strict=True):
        getattr(table[:rows], f"to_{form}")(path, **({"index": False} if form == "csv" else {}))
    X, Y = read_all(open_source(paths, ONE_LABEL))
    assert (X.tolist(), Y.tolist()) == ([[1.5, 0], [2.5, 1]], [[0], [1]])
    assert [text.partition(": ")[2] for text in caplog.messages] == ["it has no rows and is left out"] * 2
    with pytest.raises(DataError, match="no data row" if form == "csv" else "no rows"):
        open_source(paths[::2], ONE_LABEL)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([[2023] * 2, [2024] * 2], None),
        ([["2023"] * 2, ["2024"] * 2], None),
        ([[2023] * 2, [2024, 2023]], "column 'year', value 2023: the folder says 2024"),
    ],
)
def test_a_column_of_folders_may_stand_in_the_files_too(
    tmp_path: Path, values: list[list[object]], problem: str | None
) -> None:
    for year, column in zip((2023, 2024), values, strict=True):
        (tmp_path / f"year={year}").mkdir()
        table = pd.DataFrame({"x": [0.5, 1.5], "y": [0, 1], "year": column})
        table.to_parquet(tmp_path / f"year={year}" / "0.parquet")
    if problem is not None:
        with pytest.raises(DataError, match=problem):
            open_source([str(tmp_path)], ONE_LABEL)
        return
    reader = open_source([str(tmp_path)], ONE_LABEL)
    assert (reader.header.feature_names, reader.header.label_names) == (("x", "year"), ("y",))
    codes = np.unique([value for column in values for value in column], return_inverse=True)[1]
    numbers = codes if isinstance(values[0][0], str) else np.concatenate(values)
    assert read_all(reader)[0][:, 1].tolist() == numbers.tolist()
