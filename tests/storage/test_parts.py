"""Parts of a store: which rows, features and labels are meant; the same as a store of the part."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlfs_dask as mlfs
from mlfs_dask.engine.cache import cache
from mlfs_dask.engine.plan import PARAMETER_COPIES
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.rows.row_mask import row_numbers
from mlfs_dask.runtime import Resources
from mlfs_dask.storage.subset_spec import choose_columns, choose_rows
from tests.storage.stores import make_store

PARTS: list[dict[str, Any]] = [
    {"rows": "0:60"},
    {"rows": "::3"},
    {"rows": [5, 6, 7, 90, 119, *range(20, 60)]},
    {"labels": ["label 0", "label 2"]},
    {"features": "1:6"},
    {"rows": "10:100", "labels": "0:2", "features": "0,2,4,5"},
]


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "sparse"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    rng = np.random.default_rng(5)
    Y = (rng.random((120, 4)) < 0.4).astype(np.int8)
    X = np.where(rng.random((120, 8)) < 0.5, np.round(rng.normal(size=(120, 8)), 2), 0)
    X[:, :4] += Y
    path = tmp_path_factory.mktemp("part") / "a.zarr"
    make_store(path, X, Y, storage="sparse" if request.param else "dense", partition_bytes=1500)
    return path, X, Y


def indices(dataset: Any, part: dict[str, Any]) -> tuple[Any, Any, Any]:
    subset = dataset.subset(**part)
    everything = (np.arange(120), np.arange(8), np.arange(4))
    chosen = (None if subset._rows is None else row_numbers(subset._rows), subset._features, subset._labels)
    return tuple(whole if each is None else each for each, whole in zip(chosen, everything, strict=True))


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_part_is_its_rows_features_and_labels(data, part):
    path, X, Y = data
    whole = mlfs.open_dataset(path)
    subset = whole.subset(**part)
    rows, features, labels = indices(whole, part)
    X, Y = X[np.ix_(rows, features)], Y[np.ix_(rows, labels)]
    assert subset.shape == X.shape
    assert subset.feature_names.tolist() == whole.feature_names[features].tolist()
    assert subset.label_names.tolist() == whole.label_names[labels].tolist()
    assert subset.kinds.tolist() == whole.kinds[features].tolist()
    np.testing.assert_array_equal(subset.label_counts[2], Y.sum(axis=0))
    np.testing.assert_array_equal(subset.rows.all_labels().toarray(), Y)
    for lazy, values in ((subset.X, X), (subset.Y, Y)):
        found = lazy.compute()
        np.testing.assert_array_equal(found if isinstance(found, np.ndarray) else found.todense(), values)
    source = pickle.loads(pickle.dumps(subset.rows))
    for block in source.stream(0, source.profile.partitions):
        stop = block.start + block.X.shape[0]
        np.testing.assert_array_equal(
            block.X if isinstance(block.X, np.ndarray) else block.X.toarray(), X[block.start : stop]
        )
        np.testing.assert_array_equal(block.Y.toarray(), Y[block.start : stop])
    assert stop == len(X)


def test_the_mask_of_the_rows_is_in_the_plan(data):
    """Of numbers of rows, which a range has none of, every process holds a bit a row."""
    whole = mlfs.open_dataset(data[0])
    nbytes = 15  # of 120 rows
    cluster = Resources(2, 1, 2**40, 2**40, client=object())
    plans = [mlfs.ELC(2).plan(whole.subset(rows=rows).rows, cluster) for rows in ("0:40", np.arange(40))]
    assert [plan.arrays.get("chosen rows") for plan in plans] == [None, nbytes]
    assert plans[1].peak_worker_bytes - plans[0].peak_worker_bytes == PARAMETER_COPIES * nbytes
    assert mlfs.ELC(2).fit(whole.subset(rows=np.arange(40))).report_.plan["arrays"]["chosen rows"] == nbytes


def test_parts_have_digests_and_statistics_of_their_own(data, tmp_path):
    whole = mlfs.open_dataset(data[0])
    parts = [whole, *(whole.subset(**part) for part in PARTS), whole.subset(rows="1:61")]
    assert len({part.digest for part in parts}) == len(parts)
    assert whole.subset(rows="0:60").digest == whole.subset(rows="0:60:1").digest
    with cache(tmp_path):
        passes = [mlfs.ELC(2).fit(part).report_.passes for part in (whole, parts[1], parts[4], parts[1], whole)]
    assert passes == [1, 1, 1, 0, 0]


def test_a_part_of_a_part(data):
    whole = mlfs.open_dataset(data[0])
    nested = whole.subset(rows="10:100", features="0:6").subset(rows="::2", features="2:")
    flat = whole.subset(rows="10:100:2", features="2:6")
    np.testing.assert_array_equal(nested.feature_names, flat.feature_names)
    a, b = (np.asarray(each.Y.compute() if hasattr(each.Y.compute(), "shape") else 0) for each in (nested, flat))
    assert a.shape == b.shape
    assert mlfs.ELC(2).fit(nested).scores_.tolist() == mlfs.ELC(2).fit(flat).scores_.tolist()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0:100000", range(20)),
        ("::10", range(0, 20, 10)),
        ("5", [5]),
        ("-1", [19]),
        ("-2:", [18, 19]),
        ("3, 0:2, 1", [0, 1, 3]),
        (slice(None, None, -7), [5, 12, 19]),
        (range(2, 5), [2, 3, 4]),
        ([4, 2], [2, 4]),
        (np.arange(20) % 9 == 0, [0, 9, 18]),
    ],
)
def test_rows_by_number(given, expected):
    assert np.asarray(choose_rows(given, 20)).tolist() == list(expected)


def test_a_range_takes_no_memory():
    assert choose_rows("0:999999999999:2", 10**12) == range(0, 999999999999, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("20", "there is no row number 20; they are numbered from 0 to 19"),
        ("-21", "there is no row number -21"),
        ("30:40", "no row is chosen; there are 20"),
        ("", "no row is chosen"),
        ("::0", "the step of '::0' must be positive"),
        ("a == 1", "there is no row 'a == 1', and no file 'a == 1'. Rows have no names: give numbers, ranges as 0:100"),
        ("0:3,train,txt", "there is no row 'train', and no file '0:3,train,txt'"),
        ("x" * 300, "there is no row 'x+', and no file"),
        (["a"], r"there is no row 'a'\. Rows"),
        ([3, 3], "row 3 is chosen twice"),
        ([True, False], "a mask of rows needs 20 entries"),
    ],
)
def test_rows_that_are_not_there(given, message):
    with pytest.raises(UsageError, match=message):
        choose_rows(given, 20)


def test_rows_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("7\n\n3\n")
    for given in ("train.txt", "@train.txt", str(tmp_path / "train.txt")):
        assert choose_rows(given, 20).tolist() == [3, 7]
    for text, message in (
        ("7\n3\n7\n", "line 3.*this row is in line 1, too"),
        ("7\n99\n", "line 2.*there is no row number 99"),
        ("7\nx\n", "line 2.*there is no row 'x'"),
    ):
        (tmp_path / "train.txt").write_text(text)
        with pytest.raises(DataError, match=message):
            choose_rows("train.txt", 20)
    with pytest.raises(DataError, match=r"the file of rows cannot be read: .*No such file") as refused:
        choose_rows("@none.txt", 20)
    assert str(refused.value).endswith("cure: give a text file with one row per line")


def test_a_file_of_rows_takes_a_few_bytes_a_row(tmp_path):
    n = 20_000
    (tmp_path / "train.txt").write_text("\n".join(map(str, range(n))))
    tracemalloc.start()
    try:
        assert len(choose_rows(f"@{tmp_path}/train.txt", n)) == n
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * n


def test_columns_by_name_number_range_and_file(tmp_path):
    names = ["a", "b,c", "0", "1:2", "sky"]
    assert choose_columns("sky,a", names, "label").tolist() == [0, 4]
    assert choose_columns('"b,c"', names, "label").tolist() == [1]
    assert choose_columns("0", names, "label").tolist() == [2]  # a name before a number
    assert choose_columns("1:2", names, "label").tolist() == [3]
    assert choose_columns("1,3:", names, "label").tolist() == [1, 3, 4]
    assert choose_columns(["sky", 0], names, "label").tolist() == [2, 4]
    (tmp_path / "names").write_text("b,c\nsky\n")
    assert choose_columns(f"@{tmp_path}/names", names, "label").tolist() == [1, 4]
    with pytest.raises(UsageError, match=r"there is no label 'skye', and no file 'skye'\. Did you mean sky\?"):
        choose_columns("skye", names, "label")
