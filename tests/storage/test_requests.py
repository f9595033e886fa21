"""What a web server is asked for when a store is opened and read: how much at a time, how often, how many bytes."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mlfs_dask import runtime
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.storage.opening import open_dataset
from tests.cli.web_server import WebFiles, serve
from tests.storage.stores import make_store, sample

pytest.importorskip("obstore", reason="obstore is not installed (extra `cloud`)")

pytestmark = pytest.mark.filterwarnings("ignore:feature .* constant")

#: Seconds after which what should be asked for at the same time was not.
NEVER = 20


class Asked:
    """The requests of a server, as keys and ranges; the first one of each key that is held is answered with the others.

    `late` is set where one of them did not come in time.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.lock, self.late = threading.Lock(), False
        self.hold(set())

    def hold(self, keys: set[str]) -> None:
        self.awaited, self.together = set(keys), threading.Barrier(max(len(keys), 1))

    def arrive(self, key: str, part: str) -> None:
        with self.lock:
            self.requests.append((key, part))
            held = key in self.awaited
            self.awaited.discard(key)
        if held:
            try:
                self.together.wait(NEVER)
            except threading.BrokenBarrierError:
                self.late = True

    def of(self, key: str) -> list[str]:
        """The ranges that objects were asked for whose keys begin so."""
        return [part for asked, part in self.requests if asked.startswith(key)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense store of six partitions, a shard each."""
    folder = tmp_path_factory.mktemp("www")
    X, Y = sample(sparse=False)
    make_store(folder / "t.zarr", X, abs(Y), partition_bytes=1200)
    assert len(list((folder / "t.zarr" / "X" / "c").iterdir())) == 6
    return folder


@pytest.fixture
def web(folder: Path) -> Iterator[tuple[str, Asked]]:
    """URL of the store, and what is asked for."""
    asked = Asked()

    class Watched(WebFiles):
        protocol_version = "HTTP/1.1"  # connections are kept

        def do_GET(self) -> None:
            asked.arrive(self.path.removeprefix("/t.zarr/"), self.headers.get("Range", ""))
            super().do_GET()

        def do_HEAD(self) -> None:
            asked.arrive(self.path.removeprefix("/t.zarr/"), "")
            super().do_HEAD()

    with serve(folder, Watched) as address:
        yield f"{address}/t.zarr", asked


def test_all_that_opening_needs_is_asked_for_at_the_same_time(web: tuple[str, Asked], folder: Path) -> None:
    url, asked = web
    near = open_dataset(folder / "t.zarr")
    needed = {key for key in near.schema.sizes if not key.endswith("zarr.json")}
    asked.hold(needed)
    far = open_dataset(url)
    for name in ("minimum", "maximum", "n_categories", "n_missing"):
        np.testing.assert_array_equal(getattr(far.features, name), getattr(near.features, name))
    for name in ("feature_names", "label_names", "kinds"):
        assert getattr(far, name).tolist() == getattr(near, name).tolist()
    assert not asked.late
    # The root metadata, a part of them to see whether the server gives parts, and every object that is read.
    assert sorted(key for key, _ in asked.requests) == sorted(["zarr.json", "zarr.json", *needed])


def test_a_pass_asks_for_all_at_once_and_for_nothing_twice(web: tuple[str, Asked], folder: Path) -> None:
    url, asked = web
    resources = runtime.Resources(1, 2, 2**32, 2**32)
    (near,), _ = run_reading(open_dataset(folder / "t.zarr").rows, [Moments(12)], resources)
    far = open_dataset(url)
    shards = {f"X/c/{i}/0" for i in range(6)}
    asked.requests.clear()
    asked.hold(shards)
    (found,), record = run_reading(far.rows, [Moments(12)], resources)
    assert record.tasks == 4, "two, their merge and the result"
    np.testing.assert_allclose(found.mean, near.mean, rtol=1e-12)
    assert not asked.late, "both threads request what is theirs before they have worked on any of it"
    assert len(asked.of("zarr.json")) == 2, "each looks once whether the store is still the same"
    for key in shards:
        first, last = zip(*(re.fullmatch(r"bytes=(\d*)-(\d+)", part).groups() for part in asked.of(key)), strict=True)
        sizes = [int(b) + 1 - int(a) if a else int(b) for a, b in zip(first, last, strict=True)]
        assert len(sizes) == 2, "its chunks, and its index"
        assert sum(sizes) == far.schema.sizes[key]
