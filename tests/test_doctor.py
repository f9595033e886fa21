"""What the doctor finds, from facts made up for it and from this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlfs_dask import doctor
from mlfs_dask.admission import versions
from mlfs_dask.doctor import Check, Facts, check_client, check_job, check_workers, examine, gather_facts, total_memory
from mlfs_dask.errors import DataError, UsageError

FACTS = Facts(
    host="h1",
    versions=versions(),
    memory_limit=4 * 2**30,
    memory_available=8 * 2**30,
    memory_total=16 * 2**30,
    open_files=65536,
    scratch="/scratch",
    scratch_free=2**40,
    keeps_memory=True,
)


def states(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.status for check in checks}


def test_all_is_well() -> None:
    assert set(states(list(check_workers({"tcp://a": FACTS}))).values()) == {"ok"}
    assert set(states(list(check_client(FACTS))).values()) == {"ok"}


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
        ({"versions": {**versions(), "zarr": "2.0"}}, "worker versions", "warn", "2.0 on 1 of 2", "same versions"),
    ],
)
def test_the_worker_that_is_worst_off_is_told(
    change: dict[str, object], name: str, status: str, detail: str, cure: str
) -> None:
    facts = {"tcp://a": FACTS, "tcp://b": replace(FACTS, host="h2", **change)}  # type: ignore[arg-type]
    found = {check.name: check for check in check_workers(facts)}
    assert [check.name for check in found.values() if check.status != "ok"] == [name]
    assert found[name].status == status
    assert detail in found[name].detail
    assert cure in found[name].cure
    if name != "worker versions":
        assert "on 1 of 2 workers, the first on h2" in found[name].detail


def test_no_limit_on_files_is_no_limit() -> None:
    assert states(list(check_client(replace(FACTS, open_files=-1))))["open files"] == "ok"


def test_facts_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    facts = gather_facts(memory_limit=7, scratch=str(tmp_path))
    assert facts.memory_limit == 7
    assert 0 < facts.memory_available <= facts.memory_total
    assert facts.scratch_free > 0
    assert facts.keeps_memory is False
    assert gather_facts(scratch=str(tmp_path / "absent")).scratch_free == -1
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
def test_control_groups_of_both_versions(
    tmp_path: Path, groups: str, files: dict[str, str], expected: int | None
) -> None:
    for name, text in {**files, "proc/self/cgroup": groups}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    machine = total_memory(str(tmp_path / "nothing"))
    assert total_memory(str(tmp_path)) == (expected if expected is not None else machine)


def test_a_wrong_result_of_the_tiny_job_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "run_tiny_job", lambda folder: ("noise", 0.1))
    check = check_job(None, None)
    assert (check.status, check.detail) == ("fail", "'noise' came first, and 'planted' was planted")


def test_an_error_in_the_tiny_job_is_told_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> None:
        raise DataError("no such store", cure="look")

    monkeypatch.setattr(doctor, "run_tiny_job", fails)
    check = check_job(None, None)
    assert (check.status, check.detail, check.cure) == ("fail", "no such store", "look")


def test_a_cluster_that_is_not_there_ends_the_checks(free_port: int) -> None:
    checks = list(examine(scheduler=f"127.0.0.1:{free_port}", wait=0.5))
    assert checks[-1].name == "cluster"
    assert checks[-1].status == "fail"
    assert "no scheduler answered" in checks[-1].detail
    assert "dask scheduler" in checks[-1].cure


def test_wrong_options_are_no_finding() -> None:
    with pytest.raises(UsageError, match="name different places"):
        list(examine(workers=1, in_process=True))


def test_in_process_end_to_end() -> None:
    found = states(list(examine(in_process=True)))
    assert found["a tiny job"] == "ok"
    assert "fail" not in found.values()


@pytest.mark.cluster
def test_local_workers_end_to_end(tmp_path: Path) -> None:
    found = {check.name: check for check in examine(workers=1, memory_limit=2**30, directory=str(tmp_path))}
    assert found["a tiny job"].status == "ok"
    assert found["worker allocator"].status == "ok"
    assert found["worker memory"].detail.startswith("1.0 GiB to use")
    assert list(tmp_path.iterdir()) == []
