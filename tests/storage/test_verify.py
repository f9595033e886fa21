"""Whatever is changed, cut, removed or added in a store is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlfs_dask.errors import DataError
from mlfs_dask.storage.verify import verify
from tests.storage.damage import forge, overwrite, remove_checksums
from tests.storage.stores import make_store, sample


@pytest.fixture(params=["dense", "sparse"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    X, Y = sample(sparse=request.param == "sparse")
    return make_store(tmp_path / "out.zarr", X, Y, partition_bytes=2000)


def files(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file())


def test_an_intact_store(store: Path) -> None:
    found = verify(store)
    assert found.intact
    assert found.objects == len(files(store))
    assert found.bytes == sum(path.stat().st_size for path in files(store))


@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_a_flipped_byte_in_any_file(store: Path, place: float) -> None:
    for path in files(store):
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 4
        original = path.read_bytes()
        path.write_bytes(content)
        key = path.relative_to(store).as_posix()
        try:
            json.loads(content)
        except ValueError:
            readable = key != "zarr.json"  # of the root, whose own digest is inside it
        else:
            readable = True
        if readable:
            assert verify(store).damaged == (key,)
        else:
            with pytest.raises(DataError, match=r"zarr.json is damaged"):
                verify(store)
        path.write_bytes(original)
    assert verify(store).intact


def test_a_cut_file(store: Path) -> None:
    path = next(path for path in files(store) if path.parent.name == "c" or "/c/" in path.as_posix())
    path.write_bytes(path.read_bytes()[:-1])
    assert verify(store).damaged == (path.relative_to(store).as_posix(),)


def test_missing_and_extra_files(store: Path) -> None:
    (store / "var" / "min" / "c" / "0").unlink()
    (store / "notes.txt").write_text("mine")
    found = verify(store)
    assert found.missing == ("var/min/c/0",)
    assert found.extra == ("notes.txt",)
    assert not found.intact


def test_a_moved_store_is_the_same(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "copy.zarr")
    shutil.rmtree(store)
    assert verify(tmp_path / "copy.zarr").intact


def _shift(numbers: list[int]) -> None:
    numbers[1] -= 1


IMPOSSIBLE: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "shape of an array": lambda ours, arrays: arrays["X/data"].update(shape=[99]),
    "no such array": lambda ours, arrays: arrays.pop("obsm/labels/indptr"),
    "length of the names": lambda ours, arrays: arrays["var/_index"].update(shape=[3]),
    "type of the label names": lambda ours, arrays: arrays["uns/mlfs/label_names"].update(data_type="int8"),
    "number of features": lambda ours, arrays: ours.update(d=17),
    "offsets of the partitions": lambda ours, arrays: _shift(ours["partitions"]["nonzeros"]),
    "rows of the partitions": lambda ours, arrays: _shift(ours["partitions"]["rows"]),
    "more labels than rows": lambda ours, arrays: ours["label_counts"].update(positive=[61] * 20),
    "more constant features than features": lambda ours, arrays: ours.update(constant_features=13),
}


@pytest.mark.parametrize("edit", IMPOSSIBLE)
def test_metadata_that_cannot_be(tmp_path: Path, edit: str) -> None:
    """Every byte is as it was written, and no selection could read it."""
    store = make_store(tmp_path / "out.zarr", *sample(sparse=True), partition_bytes=2000)
    forge(store, IMPOSSIBLE[edit])
    with pytest.raises(DataError, match="cure: "):
        verify(store)


def test_a_value_that_cannot_be(tmp_path: Path) -> None:
    store = remove_checksums(make_store(tmp_path / "out.zarr", *sample(sparse=True)))
    overwrite(store, "X/indices", 40, 12)
    forge(store, lambda ours, arrays: None)
    with pytest.raises(DataError, match="has the column index 12, of 12 columns"):
        verify(store)
