"""Stores and runs at URLs, against servers of this machine: an object store, and web servers that only read."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hmac
import itertools
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest

from mlfs_dask.engine import checkpoints
from mlfs_dask.files import access
from mlfs_dask.files.object_store import RemoteObjects
from tests.cli.conftest import Run, RunJson
from tests.cli.web_server import Refusals, Replaced, WebFiles, WholeFiles, serve

obstore = pytest.importorskip("obstore", reason="obstore is not installed (extra `cloud`)")


@contextlib.contextmanager
def started(*command: str) -> Iterator[int]:
    """The port of a server of the loopback interface, whose number is put behind its command."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, "the server did not start"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """URL of an empty bucket of an S3 server, which answers to clients of Google's XML interface as well."""
    pytest.importorskip("moto", reason="moto, the S3 server, is not installed")
    with (
        started(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p") as port,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        patch.setenv("GOOGLE_BASE_URL", f"http://127.0.0.1:{port}")
        patch.setenv("GOOGLE_BEARER_TOKEN", "testing")
        request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
        urllib.request.urlopen(request).close()
        yield "s3://bucket"


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of an empty container of azurite, the emulator of Azure's storage."""
    azurite = shutil.which("azurite-blob")
    if azurite is None:
        pytest.skip("azurite is not installed (npm install --global azurite)")
    name, key = (
        "devstoreaccount1",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    )
    command = (azurite, "--silent", "--skipApiVersionCheck", "--inMemoryPersistence", "--blobPort")
    with started(*command) as port:
        address = f"http://127.0.0.1:{port}/{name}"
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        signed = "\n".join(f"{name}:{value}" for name, value in headers.items())
        text = "PUT" + 12 * "\n" + f"{signed}\n/{name}/{name}/box\nrestype:container"
        digest = hmac.digest(base64.b64decode(key), text.encode(), "sha256")
        headers["Authorization"] = f"SharedKey {name}:{base64.b64encode(digest).decode()}"
        request = urllib.request.Request(f"{address}/box?restype=container", method="PUT", headers=headers)
        urllib.request.urlopen(request).close()
        for variable, value in (("ACCOUNT_NAME", name), ("ACCOUNT_KEY", key), ("ENDPOINT", address)):
            monkeypatch.setenv(f"AZURE_STORAGE_{variable}", value)
        yield "az://box"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 rows, three features, two labels; the label `a` follows f1."""
    rows = [f"{i % 7},{i % 3},{i * i % 11},{int(i % 7 > 3)},{i % 2}" for i in range(60)]
    file = tmp_path_factory.mktemp("remote") / "table.csv"
    file.write_text("\n".join(["f1,f2,f3,a,b", *rows]) + "\n")
    return file


@pytest.fixture(params=["s3", "gs", "az"])
def folder(request: pytest.FixtureRequest) -> str:
    """URL of a folder of an object store of each kind, in which there is nothing."""
    server = request.getfixturevalue("container" if request.param == "az" else "bucket")
    return f"{server.replace('s3:', f'{request.param}:')}/{request.node.name}"


def test_from_a_file_to_chosen_columns_in_an_object_store(
    folder: str, table: Path, run: Run, run_json: RunJson, tmp_path: Path
) -> None:
    bucket = folder
    store, local = f"{bucket}/way.zarr", tmp_path / "way.zarr"
    options = ("--label-columns", "a,b", "--partition-size", "256")
    for place in (store, local):
        run_json("convert", table, place, *options)
    facts, here = run_json("inspect", store), run_json("inspect", local)
    assert (facts["n"], facts["d"], facts["q"], facts["partitions"]) == (60, 3, 2, 2)
    assert facts["digest"] == here["digest"]
    assert run_json("inspect", store, "--verify")["verified"]["objects"] > 20
    taken = run("convert", table, store, *options)
    assert (taken.exit_code, "exists" in taken.stderr) == (2, True)

    chosen = run_json("select", "elc", store, "-k", "2", "-o", f"{bucket}/way.elc")
    assert chosen["selected"] == run_json("select", "elc", local, "-k", "2", "-o", tmp_path / "elc")["selected"]
    again = run("select", "elc", store, "-k", "2", "-o", f"{bucket}/way.elc", "--resume")
    assert (again.exit_code, "nothing was run" in again.stderr) == (0, True)

    for name in ("way.small.zarr", "way.small.svm"):
        run_json("transform", store, f"{bucket}/way.elc", f"{bucket}/{name}")
    small = run_json("inspect", f"{bucket}/way.small.zarr", "--verify")
    assert (small["d"], small["verified"]["objects"]) == (2, 36)
    back = run_json("convert", f"{bucket}/way.small.svm", tmp_path / "back.zarr")
    assert (back["n"], back["d"], back["q"], back["nonzeros"]) == (60, 2, 2, small["nonzeros"])

    run_json("append", store, table, "--label-columns", "a,b")
    assert run_json("inspect", store, "--verify")["n"] == 120
    absent = run("inspect", f"{folder.rpartition('/')[0]}x/way.zarr")
    assert (absent.exit_code, "there is no bucket, or container, of this name" in absent.stderr) == (1, True)


@pytest.mark.cluster
def test_workers_read_an_object_store_themselves(bucket: str, table: Path, run_json: RunJson, tmp_path: Path) -> None:
    store = f"{bucket}/workers.zarr"
    run_json("convert", table, store, "--label-columns", "a,b", "--partition-size", "256")
    words = ("select", "label-entropy", store, "-k", "2", "-o")
    here = run_json(*words, tmp_path / "here", "--in-process")
    there = run_json(*words, tmp_path / "there", "--workers", "1", "--memory-limit", "1GiB")
    assert there["selected"] == here["selected"]
    assert (tmp_path / "there" / "ranking.csv").read_bytes() == (tmp_path / "here" / "ranking.csv").read_bytes()


def test_damage_in_an_object_store_is_named(bucket: str, table: Path, run: Run, run_json: RunJson) -> None:
    store = f"{bucket}/damaged.zarr"
    run_json("convert", table, store, "--label-columns", "a,b", "--partition-size", "256")
    files, shard = RemoteObjects(store), "X/c/1/0"
    content = bytearray(files.read(shard))
    content[3] ^= 1
    files.write(shard, bytes(content))
    found = run("inspect", store, "--verify")
    assert (found.exit_code, "X/c/1/0" in found.stderr) == (3, True)
    files.write(shard, bytes(content[:-5]))
    cut = run("select", "elc", store, "-k", "1", "-o", f"{bucket}/no")
    assert cut.exit_code == 3
    assert "1 object not of the recorded size: X/c/1/0" in cut.stderr
    files.remove(shard)
    missing = run("select", "elc", store, "-k", "1", "-o", f"{bucket}/no")
    assert "1 object missing: X/c/1/0" in missing.stderr
    absent = run("inspect", f"{bucket}/absent.zarr")
    assert (absent.exit_code, "there is no such store" in absent.stderr) == (3, True)


def test_an_upload_that_fails_is_resumed(
    bucket: str, table: Path, run: Run, run_json: RunJson, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = f"{bucket}/resumed.zarr"
    words = ("convert", table, store, "--label-columns", "a,b")
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise RuntimeError("SlowDown: reduce your request rate")

        patch.setattr("mlfs_dask.storage.destination.Destination._upload", refuse)
        failed = run(*words)
    assert failed.exit_code == 1
    assert "it was not uploaded (RuntimeError: SlowDown: reduce your request rate)" in failed.stderr
    assert failed.stderr.count("--resume") == 1
    assert run("inspect", store).exit_code == 3, "without its root it is no store"
    (kept,) = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr("mlfs_dask.storage.convert._stage_task", None)  # no row is read again
        run_json(*words, "--resume")
    assert not kept.exists()
    assert run_json("inspect", store, "--verify")["verified"]["objects"] > 20


def test_checkpoints_in_an_object_store(folder: str, table: Path, run: Run, run_json: RunJson) -> None:
    """An iterative method is stopped after some iterations, and goes on from where it was."""
    bucket = folder
    store, place = f"{bucket}/loop.zarr", f"{bucket}/loop.mfsir"
    run_json("convert", table, store, "--label-columns", "a,b")
    words = ("select", "mfsir", store, "-k", "2", "--checkpoint-every", "0", "-o")
    whole = run_json(*words, f"{bucket}/whole.mfsir")
    kept = 0
    save = checkpoints.Checkpoint.save

    def save_twice(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal kept
        save(self, *args, **kwargs)
        kept += 1
        if kept == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints.Checkpoint, "save", save_twice)
        stopped = run(*words, place)
    assert stopped.exit_code == 130
    assert RemoteObjects(checkpoints.checkpoint_place(place)).exists()
    resumed = run_json(*words, place, "--resume")
    assert resumed["selected"] == whole["selected"]
    assert resumed["objective"] == whole["objective"]
    assert not RemoteObjects(checkpoints.checkpoint_place(place)).exists()


# A web server


def test_a_store_is_read_from_a_web_server(table: Path, run: Run, run_json: RunJson, tmp_path: Path) -> None:
    folder = tmp_path / "www"
    folder.mkdir()
    run_json("convert", table, folder / "t.zarr", "--label-columns", "a,b", "--partition-size", "256")
    with serve(folder) as address:
        url = f"{address}/t.zarr"
        assert run_json("inspect", url, "--verify")["verified"]["objects"] > 20
        words = ("select", "elc", "-k", "2")
        far = run_json(*words, url, "-o", tmp_path / "far")
        near = run_json(*words, folder / "t.zarr", "-o", tmp_path / "near")
        assert far["selected"] == near["selected"]
        run_json("transform", url, tmp_path / "far", tmp_path / "small.zarr")
        for command in (
            ("convert", table, f"{url}x", "--label-columns", "a,b"),
            (*words, folder / "t.zarr", "-o", f"{url}.run"),
            ("transform", url, tmp_path / "far", f"{url}.npz"),
        ):
            refused = run(*command)
            assert refused.exit_code == 2, refused.stderr
            assert "nothing can be written at a web address, only read" in refused.stderr
        (folder / "t.zarr" / "X" / "c" / "1" / "0").unlink()
        missing = run(*words, url, "-o", tmp_path / "none")
        assert (missing.exit_code, "1 object missing: X/c/1/0" in missing.stderr) == (3, True)
        verified = run("inspect", url, "--verify", "--json")
        assert json.loads(verified.stdout)["error"]["kind"] == "data"
        assert "1 missing: X/c/1/0" in verified.stderr
        absent = run("inspect", f"{address}/absent.zarr")
        assert (absent.exit_code, "there is no such store" in absent.stderr) == (3, True)
        absent = run("convert", f"{address}/absent.csv", tmp_path / "none.zarr", "--label-columns", "a,b")
        assert (absent.exit_code, "there is no such object" in absent.stderr) == (3, True)


def test_a_web_server_without_range_requests(table: Path, run: Run, run_json: RunJson, tmp_path: Path) -> None:
    run_json("convert", table, tmp_path / "t.zarr", "--label-columns", "a,b")
    with serve(tmp_path, WholeFiles) as address:
        refused = run("select", "elc", f"{address}/t.zarr", "-k", "2", "-o", tmp_path / "run")
        (tmp_path / "source.csv").write_bytes(table.read_bytes())
        source = run("convert", f"{address}/source.csv", tmp_path / "u.zarr", "--label-columns", "a,b")
    assert refused.exit_code == 3
    assert "this web server has no range requests" in refused.stderr
    assert "this web server has no range requests" in source.stderr
    assert "curl URL | mlfs convert - STORE" in source.stderr


def test_a_web_server_that_does_not_answer(
    run: Run, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "RETRY_SECONDS", 0.1)
    address = f"http://127.0.0.1:{free_port}"
    for words in (["inspect", f"{address}/t.zarr"], ["convert", f"{address}/t.csv", tmp_path / "t.zarr"]):
        silent = run(*words)
        assert silent.exit_code == 1
        assert f"127.0.0.1:{free_port}" in silent.stderr
        assert re.search("cure: check the (URL, the )?network", silent.stderr)
    assert not list(tmp_path.iterdir())


def test_parts_of_a_file_are_asked_for_once(run: Run, tmp_path: Path) -> None:
    """However many row groups and columns a table has, and whoever opens the file."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(40)] + ["y"]
    table = pd.DataFrame({name: rng.integers(0, 2, 600) if name == "y" else rng.random(600) for name in names})
    table.to_parquet(tmp_path / "t.parquet", row_group_size=100)
    words = ("--label-columns", "y", "-k", 3, "--force")
    near = run("select", "elc", tmp_path / "t.parquet", *words, "-o", tmp_path / "near")
    assert near.exit_code == 0, near.stderr
    for tags, most in ((True, 1), (False, 8)):  # the file is smaller than what is asked for at a time
        asked = Refusals({"t.parquet": itertools.repeat(None)})
        handler = asked.handler()
        handler.tags = tags
        with serve(tmp_path, handler) as address:
            far = run("select", "elc", f"{address}/t.parquet", *words, "-o", tmp_path / "far")
        assert far.exit_code == 0, far.stderr
        assert (tmp_path / "far" / "ranking.csv").read_bytes() == (tmp_path / "near" / "ranking.csv").read_bytes()
        assert 0 < asked.asked <= most


def test_a_url_whose_package_is_not_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlfs_dask.files.remote_store._stores", {})
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    for url in ("s3://bucket/t.zarr", "http://127.0.0.1/t.zarr"):
        absent = run("inspect", url)
        assert absent.exit_code == 2, absent.stderr
        assert 'pip install "mlfs-dask[cloud]"' in absent.stderr


def test_credentials_of_a_profile_and_patterns(
    bucket: str, table: Path, run_json: RunJson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3", reason="boto3 is not installed (extra `cloud`)")
    rows = table.read_text().splitlines(keepends=True)
    for name, part in (("a 1", rows[1:31]), ("b 2", rows[31:])):
        RemoteObjects(f"{bucket}/parts/{name}.csv").write("", "".join([rows[0], *part]).encode())
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = one\naws_secret_access_key = two\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    far = run_json("convert", f"{bucket}/parts/*.csv", tmp_path / "far.zarr", "--label-columns", "a,b")
    near = run_json("convert", table, tmp_path / "near.zarr", "--label-columns", "a,b")
    assert (far["n"], far["digest"]) == (60, near["digest"])


@pytest.mark.parametrize("refusal", [None, 403, 405])
def test_names_in_a_web_address_are_percent_encoded(
    refusal: int | None, table: Path, run_json: RunJson, tmp_path: Path
) -> None:
    """Also where it is a signed one, which allows GET alone."""

    class Signed(WebFiles):
        def do_HEAD(self) -> None:
            super().do_HEAD() if refusal is None else self.send_error(refusal)

    (tmp_path / "two words, 5%.csv").write_bytes(table.read_bytes())
    with serve(tmp_path, Signed) as address:
        url = f"{address}/two%20words,%205%25.csv?signature=5f2e"
        words = ("convert", url, tmp_path / "t.zarr", "--format", "csv", "--label-columns", "a,b")
        assert run_json(*words)["n"] == 60


@pytest.mark.parametrize("name", ["x.parquet", "x.h5ad"])
def test_a_file_that_is_replaced_at_its_url(tmp_path: Path, run: Run, name: str) -> None:
    """Before whichever request it is: what comes is all of one file, or an error that says so."""
    for folder, names, best in (("before", ["f", "g"], 0), ("after", ["g", "f"], 1)):
        rows = pd.DataFrame(np.arange(80.0).reshape(40, 2) % 7 * [1, 0.5], columns=names)
        labels = pd.DataFrame({"a": (rows.iloc[:, best] > 1.5).to_numpy()}, index=[str(row) for row in rows.index])
        (tmp_path / folder).mkdir()
        if name == "x.parquet":
            rows.assign(a=labels["a"].to_numpy()).to_parquet(tmp_path / folder / name)
        else:
            data = anndata.AnnData(rows.set_axis(labels.index), obsm={"labels": labels})
            data.write_h5ad(tmp_path / folder / name)
    seen = set()
    with serve(tmp_path / "before", Replaced) as address:
        for Replaced.left in range(1, 200):
            command = ["select", "elc", f"{address}/{name}", "-k", 1, "-o", tmp_path / "run", "--force", "--quiet"]
            result = run(*command, *(["--label-columns", "a"] if name == "x.parquet" else []))
            if result.exit_code == 0:
                seen.add(pd.read_csv(tmp_path / "run/ranking.csv")["feature_name"][0])
            else:
                assert result.exit_code == 3, result.stderr
                assert "was changed or replaced" in result.stderr
            if Replaced.left > 0:
                break
    assert Replaced.left > 0
    assert seen == {"f"}
