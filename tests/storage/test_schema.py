"""The schema is data that validates itself."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest

from mlfs_dask.errors import DataError
from mlfs_dask.storage.schema import FORMAT_VERSION, Partitions, StoreSchema

SCHEMA = StoreSchema(
    n=5,
    d=3,
    q=2,
    nonzeros=7,
    label_nonzeros=4,
    storage="sparse",
    labels_storage="dense",
    dtype="float32",
    compressor="none",
    partitions=Partitions(rows=(0, 2, 5), nonzeros=(0, 3, 7), label_nonzeros=(0, 4, 10)),
    unknown=(0, 1),
    positive=(2, 1),
    constant_features=1,
    kinds={"numeric": 3},
    version="0.1",
    created="2024-06-07T00:00:00+00:00",
    command="mlfs convert a b",
    sources=({"path": "a", "bytes": 1, "sha256": "00"},),
    digest="d",
    digests={"X/zarr.json": "ab"},
    sizes={"X/zarr.json": 12},
)


def document() -> dict[str, Any]:
    return json.loads(json.dumps(SCHEMA.to_json()))


def test_json_and_back() -> None:
    assert StoreSchema.from_json(document()) == SCHEMA
    assert SCHEMA.partitions.count == 2


def test_keys_that_others_read() -> None:
    shown = document()
    assert shown["format_version"] == FORMAT_VERSION == 1
    assert shown["partitions"]["rows"] == [0, 2, 5]
    assert shown["label_counts"] == {"unknown": [0, 1], "positive": [2, 1]}
    assert shown["features"]["minimum"] == "var/min"


@pytest.mark.parametrize("key", sorted(SCHEMA.to_json()))
def test_every_missing_key_is_named(key: str) -> None:
    damaged = document()
    del damaged[key]
    with pytest.raises(DataError, match=key) as raised:
        StoreSchema.from_json(damaged, path="some.zarr")
    assert "some.zarr" in str(raised.value)
    assert "cure:" in str(raised.value)


def test_newer_format_is_refused() -> None:
    newer = {**document(), "format_version": FORMAT_VERSION + 1}
    with pytest.raises(DataError, match=r"format_version 2 is newer than 1.*\n.*upgrade mlfs-dask"):
        StoreSchema.from_json(newer, path="some.zarr")


@pytest.mark.parametrize("version", [None, "1", 0, True, 1.0])
def test_odd_format_version(version: object) -> None:
    with pytest.raises(DataError, match="format_version must be a whole number"):
        StoreSchema.from_json({**document(), "format_version": version})


@pytest.mark.parametrize("other", [None, 3, "x", []])
def test_not_a_store(other: object) -> None:
    with pytest.raises(DataError, match="not an mlfs store"):
        StoreSchema.from_json(other)


def _set(path: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(document())
    place = changed
    *folders, last = path.split(".")
    for folder in folders:
        place = place[folder]
    place[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("n", 0, "n must be positive"),
        ("n", -1, "'n' has the wrong form"),
        ("n", "5", "'n' has the wrong form"),
        ("dtype", "complex64", "unknown dtype 'complex64'"),
        ("storage", "rows", "unknown storage 'rows'"),
        ("labels_storage", "", "unknown labels_storage ''"),
        ("compressor", "gzip", "unknown compressor 'gzip'"),
        ("partitions.rows", [0, 2, 6], "partitions.rows must run from 0 to 5, not 0 to 6"),
        ("partitions.rows", [], "partitions.rows must run from 0 to 5"),
        ("partitions.rows", [0, 5], "partitions.nonzeros has 3 offsets, partitions.rows 2"),
        ("partitions.nonzeros", [0, 8, 7], "partitions.nonzeros must not fall"),
        ("partitions.nonzeros", [0, 3, 8], "partitions.nonzeros must run from 0 to 7"),
        ("partitions.label_nonzeros", [0, 3, 4], "partitions.label_nonzeros must run from 0 to 10"),
        ("partitions.nonzeros", [0, None, 7], "'partitions.nonzeros' has the wrong form"),
        ("label_counts.unknown", [0], "label_counts.unknown has 1 entries for 2 labels"),
        ("label_counts", [], "'label_counts' has the wrong form"),
        ("digests", {"a": 1}, "'digests' has the wrong form"),
        ("sources", {}, "'sources' has the wrong form"),
    ],
)
def test_values_that_cannot_be(path: str, value: object, problem: str) -> None:
    with pytest.raises(DataError) as raised:
        StoreSchema.from_json(_set(path, value), path="some.zarr")
    assert problem in str(raised.value)


def test_what_appended_rows_need_may_be_absent() -> None:
    assert {"checksums", "earlier"}.isdisjoint(document())
    grown = dataclasses.replace(SCHEMA, checksums={"X/c/0": [8, 1, 2]}, earlier=({"digest": "ab", "partitions": 1},))
    assert StoreSchema.from_json(json.loads(json.dumps(grown.to_json()))) == grown
    for key, value in (("checksums", {"X/c/0": ["a"]}), ("earlier", [{"digest": "ab"}]), ("earlier", {})):
        with pytest.raises(DataError, match=f"key '{key}' has the wrong form"):
            StoreSchema.from_json({**document(), key: value})
