"""Exports: what was written reads back equal; nothing half-written stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from sklearn.datasets import load_svmlight_file

from mlfs_dask.errors import DataError, MlfsError, UsageError
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.base import FileSpec, LabelSpec, Reader
from mlfs_dask.storage import export
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask.storage.export import export_rows, known_suffixes
from tests.readers.reading import read_all

RNG = np.random.default_rng(8)
N, D, Q = 53, 5, 3
FEATURES = ("plain", "Swainson's Thrush", 'é "x", {y}\\', "%a#b", "3")
LABELS = ("sky & <sea>", "it's\ta tab", "sun")
KINDS = ("numeric", "integer", "binary", "categorical", "categorical")
CATEGORIES = {3: ("no", "yes, or ?"), 4: ("10", "2", "ü 'q'")}
NAMES = {"feature_names": FEATURES, "label_names": LABELS, "kinds": KINDS, "categories": CATEGORIES}
SUFFIXES = [".npz", ".h5ad", ".svm", ".csv", ".parquet", ".arff", ".svm.gz", ".csv.gz", ".arff.gz"]


def table(dtype: str, *, missing: bool = False) -> np.ndarray:
    X = np.column_stack(
        [
            np.where(RNG.random(N) < 0.5, RNG.normal(size=N) * 10.0 ** RNG.integers(-20, 20, N), 0),
            RNG.integers(0, 100, N),
            RNG.integers(0, 2, N),
            RNG.integers(0, 2, N),
            RNG.integers(0, 3, N),
        ]
    )
    X[7] = 0
    X = X.astype(dtype) if dtype.startswith("float") else np.rint(np.clip(X, 0, 100)).astype(dtype)
    if missing:
        X[RNG.random(X.shape) < 0.2] = np.nan
        X[7] = 0
    return X


def labels(*, unknown: bool) -> np.ndarray:
    Y = RNG.choice([-1, 0, 0, 1] if unknown else [0, 0, 1], size=(N, Q)).astype(np.int8)
    Y[7] = 0  # a row with nothing in it at all
    return Y


def blocks(X: np.ndarray, Y: np.ndarray, *, sparse: bool, size: int = 17) -> Iterator[tuple]:
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        yield sp.csr_array(X[rows]) if sparse else X[rows], sp.csr_array(Y[rows])


def reader_of(path: object, names: tuple[str, ...] = LABELS) -> Reader:
    labels = LabelSpec(columns=names) if ".csv" in str(path) else LabelSpec()
    return open_source([str(path)], FileSpec(labels=labels))


def read(path: object, names: tuple[str, ...] = LABELS) -> tuple[np.ndarray, np.ndarray]:
    return read_all(reader_of(path, names))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("dtype", "missing"),
    [("float64", False), ("float64", True), ("float32", False), ("float32", True), ("int16", False), ("uint8", False)],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip(tmp_path: Path, suffix: str, dtype: str, sparse: bool, missing: bool) -> None:
    X, Y = table(dtype, missing=missing), labels(unknown=".svm" not in suffix)
    path = tmp_path / f"t{suffix}"
    size = export_rows(blocks(X, Y, sparse=sparse), path, **NAMES, n=N)
    assert size == sum(file.stat().st_size for file in tmp_path.iterdir())
    found = read(path)
    np.testing.assert_array_equal(found[0], X.astype(np.float64))
    np.testing.assert_array_equal(found[1], Y)
    header = reader_of(path).header
    if ".svm" not in suffix:
        assert (header.feature_names, header.label_names) == (FEATURES, LABELS)
        expected = CATEGORIES | ({2: ("0", "1")} if ".arff" in suffix else {})
        assert header.categories == expected
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [f"t{suffix}", "t.xml"] if ".arff" in suffix else [f"t{suffix}"]
    )


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.floats(allow_infinity=False), min_size=1, max_size=12),
    suffix=st.sampled_from(SUFFIXES),
    sparse=st.booleans(),
    size=st.integers(1, 12),
)
def test_every_float_survives(tmp_path: Path, values, suffix: str, sparse: bool, size: int) -> None:
    X = np.column_stack([values, values])
    Y = np.ones((len(values), 1), np.int8)
    path = tmp_path / f"t{suffix}"
    how = {"feature_names": ("a", "b"), "label_names": ("y",), "n": len(values), "force": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_TEXT_VALUES", 4)
        patch.setattr(export, "_GROUP_BYTES", 50)
        export_rows(blocks(X, Y, sparse=sparse, size=size), path, **how)
    found = read(path, ("y",))
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], Y)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if ".svm" not in suffix])
def test_unknown_labels_stay_so_without_a_label_0(tmp_path: Path, suffix: str, sparse: bool) -> None:
    X, Y = table("float64"), RNG.choice([-1, 1], size=(N, Q)).astype(np.int8)
    export_rows(blocks(X, Y, sparse=sparse), tmp_path / f"t{suffix}", **NAMES, n=N)
    reader = reader_of(tmp_path / f"t{suffix}")
    made = convert_reader(lambda: reader, tmp_path / "t.zarr", workers=1)
    assert made.schema.unknown == tuple((Y == -1).sum(axis=0))
    assert made.warnings == ()


def by_anndata(path: Path) -> tuple[Any, Any]:
    found = anndata.read_h5ad(path)
    assert (tuple(found.var_names), tuple(found.uns["mlfs"]["label_names"])) == (FEATURES, LABELS)
    assert found.obs_names.tolist() == [str(row) for row in range(N)]
    return found.X, found.obsm["labels"]


def by_numpy(path: Path) -> tuple[Any, Any]:
    with np.load(path) as file:
        assert tuple(file["label_names"]) == LABELS
        return file["X"], file["Y"]


def by_scikit_learn(path: Path) -> tuple[Any, Any]:
    X, rows = load_svmlight_file(str(path), multilabel=True)
    return X, np.array([[label in row for label in range(Q)] for row in rows], int)


def by_pandas(path: Path) -> tuple[Any, Any]:
    """Categories are texts, and unknown labels are missing."""
    # pandas before 3.1 rounds numbers
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype={FEATURES[0]: object})
    assert tuple(frame.columns) == FEATURES + LABELS
    for at, texts in CATEGORIES.items():
        names = frame[FEATURES[at]].astype(object)
        frame[FEATURES[at]] = names.map(lambda text, texts=texts: text if pd.isna(text) else texts.index(str(text)))
    return frame[[*FEATURES]].to_numpy(float), frame[[*LABELS]].astype(float).fillna(-1).to_numpy()


@pytest.mark.parametrize(
    ("suffix", "sparse", "opened"),
    [
        (".h5ad", False, by_anndata),
        (".h5ad", True, by_anndata),
        (".npz", False, by_numpy),
        (".npz", True, lambda path: (sp.load_npz(path), None)),
        (".svm", True, by_scikit_learn),
        (".csv.gz", False, by_pandas),
        (".parquet", False, by_pandas),
    ],
)
def test_others_open_it(tmp_path: Path, suffix: str, sparse: bool, opened: Callable[[Path], tuple[Any, Any]]) -> None:
    X, Y = table("float32", missing=opened is by_pandas), labels(unknown=suffix != ".svm")
    if suffix == ".svm":
        X[:, -1] = 0  # the last feature is empty, and is there all the same
    export_rows(blocks(X, Y, sparse=sparse), tmp_path / f"t{suffix}", **NAMES, n=N)
    for found, expected in zip(opened(tmp_path / f"t{suffix}"), (X, Y), strict=True):
        if found is not None:
            assert sp.issparse(found) == (sparse and expected is X) or suffix == ".h5ad"
            np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, expected)
    if suffix in (".h5ad", ".npz"):
        assert opened(tmp_path / f"t{suffix}")[0].dtype == np.float32


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if ".svm" not in suffix])
def test_unusual_names_come_back(tmp_path: Path, suffix: str) -> None:
    X, Y = RNG.normal(size=(4, 2)), labels(unknown=False)[:4, :1]
    for features, label in ((("3", "7"), "11"), ((" a", "b "), " ")):
        how = {"feature_names": features, "label_names": (label,), "n": 4, "force": True}
        export_rows(blocks(X, Y, sparse=False), tmp_path / f"t{suffix}", **how)
        header = reader_of(tmp_path / f"t{suffix}", (label,)).header
        assert (header.feature_names, header.label_names) == (features, (label,))


@pytest.mark.parametrize("text", ["", "NA", "?"])
def test_csv_has_no_text_for_a_category_that_means_missing(tmp_path: Path, text: str) -> None:
    how = {"feature_names": ("kind",), "label_names": ("y",), "categories": {0: ("a", "b", text)}, "n": 3}
    X, Y = np.array([[0.0], [1.0], [2.0]]), np.ones((3, 1), np.int8)
    with pytest.raises(DataError, match="this category would be a missing value in CSV") as caught:
        export_rows(blocks(X, Y, sparse=False), tmp_path / "t.csv", **how)
    assert (caught.value.column, caught.value.value) == ("kind", text)
    assert not list(tmp_path.iterdir())
    export_rows(blocks(X, Y, sparse=False), tmp_path / "t.arff", **how)
    np.testing.assert_array_equal(read(tmp_path / "t.arff")[0], X)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_rows_give_the_same_bytes(tmp_path: Path, sparse: bool) -> None:
    X, Y = table("float64"), labels(unknown=False)
    for suffix in SUFFIXES:
        for name, size in (("a", 17), ("b", 5)):
            path = tmp_path / suffix / name / f"t{suffix}"
            path.parent.mkdir(parents=True)
            export_rows(blocks(X, Y, sparse=sparse, size=size), path, **NAMES, n=N)
        # Parquet's pages follow the batches, the others are free of them.
        if suffix != ".parquet":
            assert (tmp_path / suffix / "a" / f"t{suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_url(suffix: str) -> None:
    import fsspec

    X, Y = table("float64"), labels(unknown=False)
    url = f"memory://export/t{suffix}"
    export_rows(blocks(X, Y, sparse=True), url, **NAMES, n=N, force=True)
    np.testing.assert_array_equal(read(url)[0], X)
    filesystem = fsspec.filesystem("memory")
    assert not [name for name in filesystem.find("/export") if name.endswith(".part")]
    with pytest.raises(UsageError, match="exists already"):
        export_rows(blocks(X, Y, sparse=True), url, **NAMES, n=N)


def test_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "t.arff"
    (tmp_path / "t.xml").write_text("mine")
    with pytest.raises(UsageError, match=r"t\.xml exists already\n  cure: choose another name, or --force"):
        export_rows(iter([]), path, **NAMES, n=N)
    assert (tmp_path / "t.xml").read_text() == "mine"
    assert not path.exists()
    path.mkdir()
    with pytest.raises(UsageError, match=r"t\.arff is a folder"):
        export_rows(iter([]), path, **NAMES, n=N, force=True)


def test_a_failed_upload_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    filesystem = fsspec.filesystem("memory")

    def broken(*args: object, **how: object) -> None:
        raise OSError("the network is gone")

    monkeypatch.setattr(type(filesystem), "put_file", broken)
    X, Y = table("float64"), labels(unknown=False)
    with pytest.raises(MlfsError, match="it cannot be written: the network is gone"):
        export_rows(blocks(X, Y, sparse=True), "memory://export2/t.npz", **NAMES, n=N)
    assert not filesystem.find("/export2")


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write \.xlsx; a store ends in \.zarr, a file in one of") as caught:
        export_rows(iter([]), tmp_path / "t.xlsx", **NAMES, n=N)
    assert known_suffixes() == ".npz, .h5ad, .csv, .svm, .svmlight, .libsvm, .parquet, .pq, .arff"
    assert known_suffixes() in str(caught.value)
    with pytest.raises(UsageError, match=r"cannot write \.npz\.gz; .*; \.csv, .* also followed by \.gz"):
        export_rows(iter([]), tmp_path / "t.npz.gz", **NAMES, n=N)


def test_svmlight_cannot_say_unknown(tmp_path: Path) -> None:
    X, Y = table("float64"), np.zeros((N, Q), np.int8)
    Y[20, 1] = -1
    with pytest.raises(DataError, match="row 21: svmlight has no unknown labels") as caught:
        export_rows(blocks(X, Y, sparse=False), tmp_path / "t.svm", **NAMES, n=N)
    assert caught.value.column == LABELS[1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("suffix", "what"), [(".arff", "ARFF"), (".parquet", "Parquet"), (".csv", "CSV")])
def test_names_given_twice(tmp_path: Path, suffix: str, what: str) -> None:
    X, Y = table("float64"), labels(unknown=False)
    names = NAMES | {"label_names": ("plain", "b", "c")}
    with pytest.raises(DataError, match=f"column 'plain': two columns have the same name, which {what}"):
        export_rows(blocks(X, Y, sparse=False), tmp_path / f"t{suffix}", **names, n=N)
