"""One rule for labels of -1 in every format: unknown beside 0, negative where no label is 0, or what the user says."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import io as matlab
from scipy import sparse as sp

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.readers.label_values import UNKNOWN
from mlfs_dask.storage.append import append
from mlfs_dask.storage.convert import convert, convert_reader
from mlfs_dask.storage.opening import open_dataset
from tests.readers.reading import write_arff
from tests.storage.memory_reader import make_reader

X = np.arange(24.0).reshape(12, 2) * 1.5
SIGNS = np.where(np.random.default_rng(5).random((12, 3)) < 0.4, 1, -1)
WITH_ZERO = SIGNS.copy()
WITH_ZERO[7, 1] = 0
NAMES = [f"l{label}" for label in range(SIGNS.shape[1])]

Write = Callable[[Path, np.ndarray], list[str]]


def csv(folder: Path, Y: np.ndarray) -> list[str]:
    frame(Y).to_csv(folder / "t.csv", index=False)
    return ["t.csv"]


def two_csv(folder: Path, Y: np.ndarray) -> list[str]:
    frame(Y)[:6].to_csv(folder / "a.csv", index=False)
    frame(Y)[6:].to_csv(folder / "b.csv", index=False)
    return ["a.csv", "b.csv"]


def parquet(folder: Path, Y: np.ndarray) -> list[str]:
    frame(Y).to_parquet(folder / "t.parquet", row_group_size=5)
    return ["t.parquet"]


def text_parquet(folder: Path, Y: np.ndarray) -> list[str]:
    frame(Y).astype(dict.fromkeys(NAMES, str)).to_parquet(folder / "t.parquet")
    return ["t.parquet"]


def npz(folder: Path, Y: np.ndarray) -> list[str]:
    np.savez(folder / "t.npz", X=X, Y=Y)
    return ["t.npz"]


def npy(folder: Path, Y: np.ndarray) -> list[str]:
    np.save(folder / "X.npy", X)
    np.save(folder / "Y.npy", Y.astype(np.float32))
    return ["X.npy", "Y.npy"]


def sparse_npz(folder: Path, Y: np.ndarray) -> list[str]:
    sp.save_npz(folder / "X.npz", sp.csr_array(X))
    sp.save_npz(folder / "Y.npz", sp.csr_array(Y))
    return ["X.npz", "Y.npz"]


def mat(folder: Path, Y: np.ndarray) -> list[str]:
    matlab.savemat(folder / "t.mat", {"data": X, "target": Y.T.astype(float)})
    return ["t.mat"]


def sparse_mat(folder: Path, Y: np.ndarray) -> list[str]:
    matlab.savemat(folder / "t.mat", {"data": X, "target": sp.csc_array(Y.astype(float))})
    return ["t.mat"]


def mat73(folder: Path, Y: np.ndarray) -> list[str]:
    with h5py.File(folder / "t.mat", "w", userblock_size=512) as file:
        file["data"], file["target"] = X.T, Y.T
    return ["t.mat"]


def zarr_pair(folder: Path, Y: np.ndarray) -> list[str]:
    group = zarr.open_group(folder / "t.zarr", mode="w")
    group.create_array("X", data=X)
    group.create_array("Y", data=Y)
    return ["t.zarr"]


def h5ad(folder: Path, Y: np.ndarray) -> list[str]:
    anndata.AnnData(X, obsm={"labels": Y}).write_h5ad(folder / "t.h5ad")
    return ["t.h5ad"]


def obs_h5ad(folder: Path, Y: np.ndarray) -> list[str]:
    obs = frame(Y)[NAMES].set_axis([str(row) for row in range(len(Y))])
    anndata.AnnData(X, obs=obs).write_h5ad(folder / "t.h5ad")
    return ["t.h5ad"]


def arff(folder: Path, Y: np.ndarray, *, kind: str = "numeric") -> list[str]:
    return [write_arff(folder / "t.arff", frame(Y), dict.fromkeys(NAMES, kind))]


def nominal_arff(folder: Path, Y: np.ndarray) -> list[str]:
    return arff(folder, Y, kind="{-1,1}" if Y.all() else "{1,-1,0}")


def sparse_arff(folder: Path, Y: np.ndarray) -> list[str]:
    (path,) = arff(folder, Y, kind="{-1,1}" if Y.all() else "{0,1,-1}")
    head, _, _ = Path(path).read_text().partition("@data\n")
    first = [None] * X.shape[1] + [-1 if Y.all() else 0] * Y.shape[1]
    rows = [
        ",".join(f"{i} {value}" for i, value in enumerate([*x, *y]) if value != first[i])
        for x, y in zip(X.tolist(), Y.tolist(), strict=True)
    ]
    Path(path).write_text(f"{head}@data\n" + "".join(f"{{{row}}}\n" for row in rows))
    return [path]


BY_NAME = (csv, two_csv, parquet, text_parquet, obs_h5ad, arff, nominal_arff, sparse_arff)
FORMATS = (*BY_NAME, npz, npy, sparse_npz, mat, sparse_mat, mat73, zarr_pair, h5ad)


def frame(Y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(np.column_stack([X, Y]), columns=["x0", "x1", *NAMES]).astype(dict.fromkeys(NAMES, int))


def converted(folder: Path, write: Write, Y: np.ndarray, **said: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    labels = LabelSpec(columns=tuple(NAMES) if write in BY_NAME else None, **said)
    sources = [folder / name for name in write(folder, Y)]
    made = convert(sources, folder / "out.zarr", labels=labels, workers=1)
    dataset = open_dataset(made.store)
    np.testing.assert_array_equal(dataset.X.compute(), X)
    return dense(dataset.Y.compute()), made.warnings


def dense(Y: Any) -> np.ndarray:
    return Y if isinstance(Y, np.ndarray) else Y.todense()


THREE = np.random.default_rng(6).choice([1, 0, -1], (12, 3), p=[0.3, 0.4, 0.3])
Said = dict[str, tuple[str, ...]]
#: Labels, what was said of their values, what 1, 0 and -1 become, and what is told.
RULES: dict[str, tuple[np.ndarray, Said, dict[int, int], str | None]] = {
    "never 0": (SIGNS, {}, {1: 1, -1: 0}, "labels are -1 and 1 and never 0, so -1 is taken as negative; give "
                "--labels-unknown -1 if it means unknown"),
    "beside 0": (WITH_ZERO, {}, {1: 1, 0: 0, -1: -1}, "labels are -1 beside 0 and 1, so -1 is taken as unknown "
                 f"({(WITH_ZERO == -1).sum()} entries); if -1 means negative, say --labels-negative -1, and "
                 "--labels-unknown 0 if 0 means unknown"),
    "-1 unknown": (SIGNS, {"unknown": ("-1",)}, {1: 1, -1: -1}, None),
    "-1 negative": (WITH_ZERO, {"negative": ("-1",)}, {1: 1, 0: 0, -1: 0}, f"-1 ({(WITH_ZERO == -1).sum()} entries) "
                    "and 0 (1) are both taken as negative; give --labels-unknown 0 if 0 means unknown"),
    "-1 negative, 0 unknown": (THREE, {"negative": ("-1",), "unknown": ("0",)}, {1: 1, 0: -1, -1: 0}, None),
    "0 unknown": (THREE, {"unknown": ("0",)}, {1: 1, 0: -1, -1: 0}, None),
    "all said": (THREE, {"positive": ("1.0",), "negative": ("0",), "unknown": ("-1",)}, {1: 1, 0: 0, -1: -1}, None),
    "-1 positive": (THREE, {"positive": ("-1",), "negative": ("0",), "unknown": ("1",)}, {1: -1, 0: 0, -1: 1}, None),
    "two positive": (THREE, {"positive": ("1", "-1")}, {1: 1, 0: 0, -1: 1}, None),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("write", FORMATS)
def test_one_rule(tmp_path: Path, write: Write, rule: str) -> None:
    Y, said, meanings, told = RULES[rule]
    found, warnings = converted(tmp_path, write, Y, **said)
    np.testing.assert_array_equal(found, np.vectorize(meanings.get)(Y))
    assert warnings == (() if told is None else (told,))


@pytest.mark.parametrize("write", [csv, parquet, text_parquet, npz, npy, mat, mat73, zarr_pair, h5ad, obs_h5ad, arff])
def test_numbers_that_are_no_labels_otherwise(tmp_path: Path, write: Write) -> None:
    said = {"positive": ("2",), "negative": ("1",), "unknown": ("3",)}
    found, _ = converted(tmp_path, write, np.select([THREE == 1, THREE == 0], [2, 1], 3), **said)
    np.testing.assert_array_equal(found, THREE)


# 257 and -255 are 1 in the last byte.
@pytest.mark.parametrize("value", [2, -2, 257, -255])
@pytest.mark.parametrize("write", FORMATS)
def test_numbers_that_no_label_can_be(tmp_path: Path, write: Write, value: int) -> None:
    Y = WITH_ZERO.copy()
    Y[8, 1] = value
    with pytest.raises(
        DataError, match=r"label must be 0 or 1|label is 0 or 1|not among those declared|can be no"
    ) as caught:
        converted(tmp_path, write, Y)
    assert caught.value.column in ("l1", 2) or write in (nominal_arff, sparse_arff)


def test_every_value_is_said_or_refused(tmp_path: Path) -> None:
    said = {"positive": ("2",), "negative": ("1",)}
    with pytest.raises(DataError, match=r"line 9, column 'l1', value 0: a label must be 2 = positive; 1 = negative\n"):
        converted(tmp_path, csv, np.where(WITH_ZERO == 0, 0, np.where(WITH_ZERO == 1, 2, 1)), **said)
    with pytest.raises(DataError, match="the labels are sparse: implicit entries are 0, and 0 is not named"):
        converted(tmp_path, sparse_npz, np.abs(SIGNS), **said)
    with pytest.raises(UsageError, match=r"the label '1\.0' cannot be both negative and unknown"):
        converted(tmp_path, csv, SIGNS, negative=("1",), unknown=("0", "1.0"))


@pytest.mark.parametrize("kind", ["csv", "parquet", "arff", "obs"])
def test_texts_as_values(tmp_path: Path, kind: str) -> None:
    texts = pd.DataFrame(np.select([THREE == 1, THREE == 0], ["Pos", "neg"], "U"), columns=NAMES)
    table = pd.concat([pd.DataFrame(X, columns=["x0", "x1"]), texts], axis=1)
    path = tmp_path / "t.csv"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "parquet":
        path = path.with_suffix(".parquet")
        table.to_parquet(path)
    elif kind == "arff":
        path = Path(write_arff(tmp_path / "t.arff", table, dict.fromkeys(NAMES, "{Pos,U,neg}")))
    else:
        path = path.with_suffix(".h5ad")
        obs = texts.astype("category").set_axis([f"c{row}" for row in range(12)])
        anndata.AnnData(X, obs=obs).write_h5ad(path)
    labels = LabelSpec(columns=tuple(NAMES), positive=("pos",), negative=("neg",), unknown=("u",))
    made = convert(path, tmp_path / "out.zarr", labels=labels, workers=1)
    np.testing.assert_array_equal(dense(open_dataset(made.store).Y.compute()), THREE)


@pytest.mark.parametrize("missing", ["NA", "nan", "?", ""])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_texts_that_stand_for_no_value_are_unknown(tmp_path: Path, kind: str, missing: str) -> None:
    table = pd.DataFrame({"x": [1.0, 2, 3, 4], "a": ["1", missing, "0", "1"], "b": ["yes", "no", missing, None]})
    path = tmp_path / f"t.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    made = convert(path, tmp_path / "out.zarr", labels=LabelSpec(count=2), workers=1)
    assert dense(open_dataset(made.store).Y.compute()).tolist() == [[1, 1], [-1, 0], [0, -1], [1, -1]]


@pytest.mark.parametrize(
    ("rows", "said", "Y", "told"),
    [
        ("1,1,yes\n2,,NA\n3,0,no\n", {"negative": ("NA",)}, [[1, 1], [0, 0], [0, 0]], ()),
        ("1,-1,1\n2,,-1\n3,1,?\n", {}, [[0, 1], [-1, 0], [1, -1]], (RULES["never 0"][3],)),
        ("1,1,1\n2,,1\n3,1,1\n", {}, [[1, 1], [-1, 1], [1, 1]], ()),
        ("1,-1,-1\n2,-1,-1\n", {}, [[-1, -1], [-1, -1]],
         ("all labels are -1, so -1 is taken as unknown (4 entries); if -1 means negative, say --labels-negative -1, "
          "and --labels-unknown 0 if 0 means unknown",)),
        ("1,1,0\n2,0,1\n", {"unknown": ("missing",)}, [[1, 0], [0, 1]],
         ("no label is missing, which --labels-unknown names: check its spelling",)),
    ],
)  # fmt: skip
def test_missing_labels(tmp_path: Path, rows: str, said: Said, Y: list[list[int]], told: tuple[str, ...]) -> None:
    (tmp_path / "t.csv").write_text("x,a,b\n" + rows)
    made = convert(tmp_path / "t.csv", tmp_path / "out.zarr", labels=LabelSpec(count=2, **said), workers=1)
    assert dense(open_dataset(made.store).Y.compute()).tolist() == Y
    assert made.warnings == told


@pytest.mark.parametrize("name", ["t.svm", "t.xmlc"])
def test_labels_that_are_not_listed_are_unknown(tmp_path: Path, name: str) -> None:
    rows = [f"{','.join(map(str, np.flatnonzero(row)))} 1:1\n" for row in THREE == 1]
    (tmp_path / name).write_text(("12 2 3\n" if name == "t.xmlc" else "") + "".join(rows))
    labels = LabelSpec(count=3 if name == "t.svm" else None, unknown=("0",))
    made = convert(tmp_path / name, tmp_path / "out.zarr", labels=labels, workers=1)
    np.testing.assert_array_equal(dense(open_dataset(made.store).Y.compute()), np.where(THREE == 1, 1, -1))
    problem = "the number of unknown labels" if name == "t.svm" else "positive here"
    wrong = LabelSpec(unknown=("0",)) if name == "t.svm" else LabelSpec(negative=("1",))
    with pytest.raises(UsageError, match=problem):
        convert(tmp_path / name, tmp_path / "out2.zarr", labels=wrong, workers=1)


def test_unknown_labels_of_a_sparse_matrix_take_bounded_memory(tmp_path: Path) -> None:
    """A row of 40 000 labels is 1 MB while it is written out: 500 rows of them are never held together."""
    Y = sp.random_array((500, 40_000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    Y.data[:] = np.where(np.arange(Y.nnz) % 2, 1, -1)
    sp.save_npz(tmp_path / "X.npz", sp.csr_array(np.ones((500, 1))))
    sp.save_npz(tmp_path / "Y.npz", Y)
    sources = [str(tmp_path / name) for name in ("X.npz", "Y.npz")]
    reader = open_source(sources, FileSpec(labels=LabelSpec(unknown=("0",))))
    tracemalloc.start()
    try:
        rows = 0
        for batch in reader.read(reader.parts(1 << 40)[0], batch_bytes=8 << 20):
            expected = Y[rows : rows + batch.X.shape[0]].toarray().astype(np.int8)
            np.testing.assert_array_equal(batch.Y.toarray(), np.select([expected == 1, expected == -1], [1, 0], -1))
            rows += batch.X.shape[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 500
    assert peak < 32 << 20


def test_appended_rows_have_the_values_of_the_store(tmp_path: Path) -> None:
    labels = LabelSpec(columns=tuple(NAMES), negative=("-1",), unknown=("0",))
    frame(THREE).to_csv(tmp_path / "t.csv", index=False)
    store = tmp_path / "out.zarr"
    convert(tmp_path / "t.csv", store, labels=labels, workers=1)
    append(store, tmp_path / "t.csv", labels=LabelSpec(columns=tuple(NAMES)), workers=1)
    expected = np.select([THREE == 1, THREE == 0], [1, -1], 0)
    np.testing.assert_array_equal(dense(open_dataset(store).Y.compute()), np.vstack([expected, expected]))


def test_a_store_is_read_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its -1 are unknown, also where it holds no 0."""
    reader = make_reader(X, np.where(SIGNS == -1, UNKNOWN, SIGNS))
    convert_reader(lambda: reader, tmp_path / "first.zarr", workers=1)
    with caplog.at_level(logging.WARNING):
        made = convert(tmp_path / "first.zarr", tmp_path / "second.zarr", format="anndata", workers=1)
    np.testing.assert_array_equal(dense(open_dataset(made.store).Y.compute()), SIGNS)
    assert made.warnings == ()
    assert caplog.records == []
