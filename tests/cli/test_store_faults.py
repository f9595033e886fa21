"""Servers of stores that refuse, for a while or for good: what is read is right, or the message says what is wrong."""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path

import numpy as np
import pytest
import zarr

from mlfs_dask import runtime
from mlfs_dask.files import access, remote_store
from mlfs_dask.storage.opening import open_dataset
from tests.cli.conftest import Run
from tests.cli.web_server import EndlessList, Refusal, Refusals, serve
from tests.storage.stores import make_store, sample

pytest.importorskip("obstore", reason="obstore is not installed (extra `cloud`)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a store of three partitions, and its ranking."""
    folder = tmp_path_factory.mktemp("www")
    X, Y = sample(sparse=False)
    make_store(folder / "t.zarr", X[:, 1:], abs(Y), partition_bytes=2000)
    return folder


SELECT = ("select", "label-entropy", "-k", "2")


@pytest.fixture(autouse=True)
def _hasty(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "FIRST_PAUSE", 0.02)
    if "hang" in request.node.name:  # else a busy machine would be taken for a silent server
        monkeypatch.setattr(remote_store, "READ_SECONDS", 1.0)
    monkeypatch.setattr(runtime, "WARNING_SECONDS", 0.0)


@pytest.mark.parametrize(
    "refusals", [[503, 429, 500], ["reset", "reset"], ["hang"], [503, "reset"]], ids=["busy", "reset", "hang", "both"]
)
def test_a_server_that_refuses_for_a_while(refusals: list[Refusal], folder: Path, run: Run, tmp_path: Path) -> None:
    assert run(*SELECT, folder / "t.zarr", "-o", tmp_path / "near").exit_code == 0
    planned = Refusals(dict.fromkeys(("t.zarr/zarr.json", "X/c/0/0", "X/c/2/0", "obsm/labels/c/0/0"), refusals))
    with serve(folder, planned.handler()) as address:
        done = run(*SELECT, f"{address}/t.zarr", "-o", tmp_path / "far")
        planned.ended.set()
    assert done.exit_code == 0, done.stderr
    assert planned.given == 4 * len(refusals)
    assert f"mlfs: {address}/t.zarr: " in done.stderr
    assert "asked again for up to 60 s" in done.stderr
    assert (tmp_path / "far" / "ranking.csv").read_bytes() == (tmp_path / "near" / "ranking.csv").read_bytes()


@pytest.mark.parametrize(
    ("page", "code", "problem"),
    [
        ("", 3, "the server's list of objects goes on without objects"),
        ("x/a.csv x/b.csv", 3, "the server's list of objects names an object twice"),
        (" ".join(f"x/{{0}}-{i}" for i in range(5000)), 4, "a list of "),
    ],
    ids=["empty", "repeated", "new"],
)
def test_a_list_that_hangs_without_an_end(
    page: str, code: int, problem: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = type("Handler", (EndlessList,), {"content": page})
    with serve(tmp_path, handler) as address:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ALLOW_HTTP", "AWS_REGION")
        for name, value in zip((*names, "AWS_ENDPOINT_URL"), ("a", "b", "true", "us-east-1", address), strict=True):
            monkeypatch.setenv(name, value)
        limit = f"{(runtime.current_rss() >> 20) + 64}MiB"
        done = run("convert", "s3://bucket/x/*.csv", tmp_path / "out.zarr", "--memory-limit", limit)
    assert done.exit_code == code, done.stderr
    assert f"mlfs: s3://bucket/x: {problem}" in done.stderr


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        (503, "unavailable", "it does not answer: 503"),
        ("reset", "unavailable", "it does not answer: "),
        ("hang", "unavailable", "it does not answer: "),
        (403, "not_allowed", "no permission to read it (403"),
    ],
)
@pytest.mark.parametrize("key", ["X/c/1/0", "zarr.json"])
def test_a_server_that_refuses_for_good(
    key: str,
    refusal: Refusal,
    kind: str,
    words: str,
    folder: Path,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "RETRY_SECONDS", 0.1)
    refusals = Refusals({f"t.zarr/{key}": itertools.repeat(refusal)})
    with serve(folder, refusals.handler()) as address:
        done = run(*SELECT, f"{address}/t.zarr", "-o", tmp_path / "run", "--json")
        refusals.ended.set()
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, 1), done.stderr
    assert "cure: " in done.stderr
    assert "fault of mlfs" not in done.stderr
    assert "damaged" not in done.stderr
    assert ("To go on where it stopped: mlfs select" in done.stderr) == (kind == "unavailable")
    assert words in done.stderr
    assert ("asked again" in done.stderr) == (kind == "unavailable")
    if key != "zarr.json":
        assert "in partition 1 (rows " in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("heads", [True, False], ids=["always", "of what it is asked to send"])
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("X/c/1/0", "an object is too short, or was changed while it was read: 416"),
        ("zarr.json", "416"),
    ],
)
def test_a_server_that_has_less_than_is_asked_for(
    key: str, words: str, heads: bool, folder: Path, run: Run, tmp_path: Path
) -> None:
    """By status 416, for which it is not asked again."""
    handler = Refusals({f"t.zarr/{key}": itertools.repeat(416)}).handler()
    if heads:
        handler.do_HEAD = handler.do_GET  # type: ignore[method-assign]
    elif key == "X/c/1/0":
        words = "the store is damaged: shard 1 ends before its index, in partition 1 (rows "
    with serve(folder, handler) as address:
        done = run(*SELECT, f"{address}/t.zarr", "-o", tmp_path / "run")
    assert done.exit_code == 3, done.stderr
    assert words in done.stderr
    assert "missing" not in done.stderr
    assert "asked again" not in done.stderr


@pytest.mark.parametrize("key", ["X/c/1/0", "var/_index/c/0"])
def test_a_job_that_is_stopped_asks_no_more(key: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at Ctrl-C. It would end with StoreUnavailableError otherwise, when the time is over."""
    monkeypatch.setattr(access, "RETRY_SECONDS", 5.0)
    monkeypatch.setattr(access, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(access, "LONGEST_PAUSE", 60.0)
    refusals = Refusals({key: itertools.repeat(503)})
    asked = threading.Event()
    monkeypatch.setattr(access.random, "uniform", lambda low, high: asked.set() or high)
    reading: list[Future[None]] = []

    def read(store: str) -> None:
        dataset = open_dataset(store)
        for _ in dataset.rows.stream(0, dataset.rows.profile.partitions):
            pass

    def stopped(store: str) -> None:
        with runtime.TaskThreads(1, "mlfs-test") as pool:
            reading.append(pool.submit(read, store))
            assert asked.wait(20)
            raise KeyboardInterrupt

    with serve(folder, refusals.handler()) as address, pytest.raises(KeyboardInterrupt):
        stopped(f"{address}/t.zarr")
    assert isinstance(reading[0].exception(), runtime.StoppedError | CancelledError)


@pytest.mark.cluster
def test_workers_say_what_a_server_refuses(folder: Path, run: Run, tmp_path: Path) -> None:
    refusals = Refusals({"X/c/2/0": itertools.chain([503], itertools.repeat(403))})
    with serve(folder, refusals.handler()) as address:
        done = run(*SELECT, f"{address}/t.zarr", "-o", tmp_path / "run", "--workers", "1")
    host = socket.gethostname()
    assert done.exit_code == 1, done.stderr
    assert f"mlfs: host {host}: {address}/t.zarr: 503" in done.stderr
    assert f"{address}/t.zarr: no permission to read it (403" in done.stderr
    assert "in partition 2 (rows " in done.stderr
    assert f"read on {host}" in done.stderr


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds rows as text, plain and packed, and as arrays of Zarr and AnnData."""
    folder = tmp_path_factory.mktemp("sources")
    rows = [f"{i % 7},{i % 3},{i % 2}" for i in range(50)]
    text = "\n".join(["f1,f2,a", *rows]).encode()
    (folder / "t.csv").write_bytes(text)
    (folder / "t.csv.gz").write_bytes(gzip.compress(text))
    X, Y = np.arange(100.0).reshape(50, 2) % 7, np.arange(50)[:, None] % 2
    for version in (2, 3):
        pair = zarr.open_group(folder / f"v{version}.zarr", mode="w", zarr_format=version)
        pair.create_array("X", data=X, chunks=(25, 2))
        pair.create_array("Y", data=Y, chunks=(25, 1))
    data = zarr.open_group(folder / "anndata.zarr", mode="w")
    data.create_array("X", data=X, chunks=(5, 2), shards=(25, 2))
    data.create_array("obsm/labels", data=Y, chunks=(25, 1))
    for frame in ("obs", "var"):
        data.create_group(frame)
    return folder


SOURCES = {
    "t.csv": ("t.csv",),
    "t.csv.gz": ("t.csv.gz",),
    "v2.zarr": ("v2.zarr/.zgroup", "X/.zarray", "X/1.0"),
    "v3.zarr": ("v3.zarr/zarr.json", "X/zarr.json", "X/c/1/0"),
    "anndata.zarr": ("anndata.zarr/zarr.json", "obsm/labels/zarr.json", "X/c/1/0"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_read_from_a_server_that_refuses_for_a_while(
    name: str, sources: Path, run: Run, tmp_path: Path
) -> None:
    refusals = Refusals({key: [503, "reset", 429] for key in SOURCES[name]})
    labels = ("--label-columns", "a") if "csv" in name else ()
    with serve(sources, refusals.handler()) as address:
        done = run("convert", f"{address}/{name}", tmp_path / "far.zarr", *labels)
    assert done.exit_code == 0, done.stderr
    assert refusals.given == 3 * len(SOURCES[name])
    assert f"mlfs: {address}/{name}: " in done.stderr
    assert "asked again for up to 60 s" in done.stderr
    assert run("convert", sources / name, tmp_path / "near.zarr", *labels).exit_code == 0
    digests = [open_dataset(tmp_path / f"{place}.zarr").digest for place in ("near", "far")]
    assert digests[0] == digests[1]


def test_a_source_on_a_server_that_refuses_for_good(
    sources: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "RETRY_SECONDS", 0.1)
    for (name, key), (refusal, kind, words) in itertools.product(
        (("t.csv", "t.csv"), ("v3.zarr", "X/c/1/0"), ("anndata.zarr", "X/zarr.json")),
        ((503, "unavailable", "it does not answer: 503"), (403, "not_allowed", "(403")),
    ):
        labels = ("--label-columns", "a") if name == "t.csv" else ()
        with serve(sources, Refusals({key: itertools.repeat(refusal)}).handler()) as address:
            done = run("convert", f"{address}/{name}", tmp_path / "t.zarr", *labels, "--json")
        assert json.loads(done.stdout)["error"]["kind"] == kind, done.stderr
        assert words in done.stderr
        assert ("To go on where it stopped: mlfs convert" in done.stderr) == (kind == "unavailable")
        assert not (tmp_path / "t.zarr").exists()


def test_a_conversion_goes_on_where_its_server_went_away(
    sources: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Refusals({"t.csv": itertools.repeat(None)})
    words = (tmp_path / "t.zarr", "--label-columns", "a")
    with serve(sources, asked.handler()) as address:
        assert run("convert", f"{address}/t.csv", tmp_path / "whole.zarr", "--label-columns", "a").exit_code == 0
        asked.planned = {"t.csv": itertools.chain([None] * (asked.asked - 1), itertools.repeat(503))}
        with monkeypatch.context() as patch:
            patch.setattr(access, "RETRY_SECONDS", 0.1)
            stopped = run("convert", f"{address}/t.csv", *words)
        assert "To go on where it stopped: mlfs convert" in stopped.stderr
        assert (tmp_path / ".t.zarr.wip").is_dir()
        asked.planned = {}
        resumed = run("convert", f"{address}/t.csv", *words, "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert open_dataset(tmp_path / "t.zarr").digest == open_dataset(tmp_path / "whole.zarr").digest
