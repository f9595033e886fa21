"""What the doctor finds, from facts made up for it and from this machine."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from mlfs_dask import doctor
from mlfs_dask.cluster.workers import identify
from mlfs_dask.doctor import (
    Facts,
    StoreReading,
    check_client,
    check_connection,
    check_job,
    check_workers,
    examine,
    gather_facts,
    total_memory,
)
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.storage.convert import convert

FACTS = Facts(
    host="h1",
    versions=identify(),
    memory_limit=4 * 2**30,
    memory_available=8 * 2**30,
    memory_total=16 * 2**30,
    open_files=65536,
    scratch="/scratch",
    scratch_free=2**40,
    keeps_memory=True,
    threads=2,
    blas_threads=1,
    cores=2,
    reading=StoreReading("d" * 32, 10**8, 0.5),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """64 rows in several partitions."""
    folder = tmp_path_factory.mktemp("doctor")
    (folder / "t.csv").write_text("\n".join(["a,b,y", *(f"{i},{i % 5},{i % 2}" for i in range(64))]) + "\n")
    convert(folder / "t.csv", folder / "t.zarr", labels=LabelSpec(columns=("y",)), partition_bytes=64)
    return str(folder / "t.zarr")


def states(checks):
    return {check.name: check.status for check in checks}


def test_all_is_well():
    assert set(states(list(check_workers({"tcp://a": FACTS}, FACTS))).values()) == {"ok"}
    for open_files in (FACTS.open_files, -1):  # no limit is none
        assert set(states(list(check_client(replace(FACTS, open_files=open_files)))).values()) == {"ok"}


@pytest.mark.parametrize(
    ("change", "name", "status", "detail", "cure"),
    [
        ({"memory_limit": 32 * 2**30}, "worker memory", "fail", "would be killed without a word", "--memory-limit"),
        ({"memory_limit": 2**29}, "worker memory", "warn", "0.5 GiB to use", "1 GiB or more"),
        ({"memory_limit": None, "memory_available": 2**29}, "worker memory", "warn", "0.5 GiB", "1 GiB or more"),
        ({"open_files": 1024}, "worker open files", "warn", "1,024 at once", "ulimit -n 4096"),
        ({"scratch_free": -1}, "worker scratch space", "fail", "/scratch cannot be written", "--local-directory"),
        ({"scratch_free": 2**20}, "worker scratch space", "warn", "0.0 GiB free in /scratch", "make room"),
        ({"keeps_memory": False}, "worker allocator", "warn", "slows reading down", "deploy/dask.yaml"),
        ({"versions": {**FACTS.versions, "zarr": "2.0"}}, "worker versions", "warn", "2.0 on 1 of 2", "same versions"),
        ({"blas_threads": 8}, "worker threads", "warn", "2 tasks at a time with 8 threads of BLAS", "OMP_NUM_THREADS"),
        ({"threads": 3}, "worker threads", "warn", "2 cores", "--nthreads"),
        ({"reading": StoreReading(problem="gone")}, "worker store", "fail", "gone", "the same file system"),
        ({"reading": StoreReading(problem="gone", cure="look")}, "worker store", "fail", "gone", "look"),
        ({"reading": StoreReading("e" * 32, 1, 0.5)}, "worker store", "fail", "another store than here", "one copy"),
    ],
)
def test_the_worker_that_is_worst_off_is_told(change, name, status, detail, cure):
    facts = {"tcp://a": FACTS, "tcp://b": replace(FACTS, host="h2", **change)}
    found = {check.name: check for check in check_workers(facts, FACTS)}
    assert [check.name for check in found.values() if check.status != "ok"] == [name]
    assert found[name].status == status
    assert detail in found[name].detail
    assert cure in found[name].cure
    if name != "worker versions" and "another store" not in detail:
        assert "on 1 of 2 workers, the first on h2" in found[name].detail


def test_workers_that_share_a_host_share_its_memory():
    together = {f"tcp://{i}": replace(FACTS, memory_limit=6 * 2**30) for i in range(3)}
    (found,) = [check for check in check_workers(together, FACTS) if check.status != "ok"]
    assert (found.name, found.status) == ("host memory", "fail")
    assert "3 workers of h1 have 18.0 GiB, the machine or control group has 16.0 GiB" in found.detail
    assert "--memory-limit 5461MiB" in found.cure
    apart = {address: replace(facts, host=address) for address, facts in together.items()}
    assert set(states(list(check_workers(apart, FACTS))).values()) == {"ok"}


def test_a_worker_that_reads_slowly_is_named():
    facts = {f"tcp://{i}": FACTS for i in range(3)}
    facts["tcp://z"] = replace(FACTS, host="far", reading=replace(FACTS.reading, seconds=5.0))
    (found,) = [check for check in check_workers(facts, FACTS) if check.status != "ok"]
    assert (found.name, found.status) == ("worker store", "warn")
    assert "20 MB/s on the slowest of 4 workers (far), 200 MB/s on the middle one" in found.detail


@pytest.mark.parametrize(
    ("address", "status", "detail"),
    [
        ("tcp://10.0.0.1:8786", "warn", "tcp://10.0.0.1:8786 is not encrypted"),
        ("tcp://127.0.0.1:8786", "ok", "this machine alone"),
        ("tls://10.0.0.1:8786", "ok", "TLS"),
    ],
)
def test_the_connection(address, status, detail):
    found = check_connection(address)
    assert found.status == status
    assert detail in found.detail
    assert bool(found.cure) == (status != "ok")


def test_facts_of_this_process(tmp_path, monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    facts = gather_facts()
    assert facts.memory_limit is None
    assert 0 < facts.memory_available <= facts.memory_total
    assert facts.scratch_free > 0
    assert facts.keeps_memory is False
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    assert gather_facts().scratch_free == -1
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", str(2**28))
    assert gather_facts().keeps_memory is True


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, None),
        ("", {"sys/fs/cgroup/memory.max": "max\n"}, None),
        ("", {"sys/fs/cgroup/memory.max": "1000000\n"}, 1_000_000),
        (
            "0::/job/step\n",
            {"sys/fs/cgroup/job/memory.max": "2000000", "sys/fs/cgroup/job/step/memory.max": "max"},
            2_000_000,
        ),
        ("5:cpu,memory:/slurm\n", {"sys/fs/cgroup/memory/slurm/memory.limit_in_bytes": "3000000"}, 3_000_000),
        ("", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, None),
    ],
)
def test_control_groups_of_both_versions(tmp_path, groups, files, expected):
    for name, text in {**files, "proc/self/cgroup": groups}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    machine = total_memory(str(tmp_path / "nothing"))
    assert total_memory(str(tmp_path)) == (expected if expected is not None else machine)


def test_a_tiny_job_that_fails(monkeypatch):
    def fails(folder):
        raise DataError("no such store", cure="look")

    for job, told in (
        (lambda folder: ("noise", 0.1), ("fail", "'noise' came first, and 'planted' was planted")),
        (fails, ("fail", "no such store")),
    ):
        monkeypatch.setattr(doctor, "run_tiny_job", job)
        check = check_job(None, None)
        assert (check.status, check.detail) == told
    assert check.cure == "look"


def test_a_cluster_that_is_not_there_ends_the_checks(free_port):
    *_, last = examine(scheduler=f"127.0.0.1:{free_port}", wait=0.5)
    assert (last.name, last.status) == ("cluster", "fail")
    assert "no scheduler answered" in last.detail
    assert "dask scheduler" in last.cure
    with pytest.raises(UsageError, match="name different places"):
        list(examine(workers=1, in_process=True))


def test_a_store_that_cannot_be_read(store, tmp_path):
    absent = {check.name: check for check in examine(str(tmp_path / "no.zarr"), in_process=True)}["store"]
    assert (absent.status, "there is no such store" in absent.detail) == ("fail", True)
    assert "mlfs convert" in absent.cure
    damaged = tmp_path / "damaged.zarr"
    shutil.copytree(store, damaged)
    shard = damaged / "X/c/0/0"
    content = shard.read_bytes()
    shard.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    found = gather_facts(store=str(damaged)).reading
    assert found is not None
    assert "in partition 0" in found.problem
    other = doctor._read_partition(str(damaged), 1)
    assert (other.problem, other.bytes > 0) == ("", True)


def test_workers_with_another_working_folder_find_the_store(store, tmp_path, monkeypatch):
    places = []
    monkeypatch.setattr(doctor, "_check_cluster", lambda client, here, place: places.append(place) or [])
    monkeypatch.chdir(Path(store).parent)
    for place in (Path(store).name, "memory://t.zarr", None):
        list(examine(place, in_process=True))
    assert places == [store, "memory://t.zarr", None]


def test_a_store_that_workers_do_not_see_is_cured_on_their_hosts(store, tmp_path):
    found = states(list(examine(store, in_process=True)))
    assert found["a tiny job"] == found["store"] == "ok"
    assert "fail" not in found.values()
    here = replace(FACTS, reading=gather_facts(store=store).reading)
    blind = replace(FACTS, reading=gather_facts(store=str(tmp_path / "no.zarr")).reading)
    check = {check.name: check for check in check_workers({"tcp://a": blind}, here)}["worker store"]
    assert "there is no such store (on 1 of 1 workers, the first on h1)" in check.detail
    assert check.cure.startswith("workers read the store themselves: the same file system at the same path")


@pytest.mark.cluster
def test_local_workers_end_to_end(store, tmp_path):
    found = {check.name: check for check in examine(store, workers=2, memory_limit=2**30, directory=str(tmp_path))}
    assert found["a tiny job"].status == "ok"
    assert "MB/s on the slowest of 2 workers" in found["worker store"].detail
    assert found["connection"].detail == "TLS"
    assert {"worker versions", "host memory", "worker threads"} <= found.keys()
    assert found["worker allocator"].status == "ok"
    assert found["worker memory"].detail.startswith("1.0 GiB to use")
    assert list(tmp_path.iterdir()) == []
