"""The files that start clusters, tried as far as one machine goes."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from mlfs_dask.results import read_run

DEPLOY = Path(__file__).parent.parent / "deploy"


@pytest.fixture
def slurm_job(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Run the batch script as SLURM would, on one node, with an `srun` that runs its command here."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "srun").write_text(
        '#!/bin/sh\nwhile case "$1" in --*) true;; *) false;; esac; do shift; done\nexec "$@"\n'
    )
    (programs / "hostname").write_text("#!/bin/sh\necho 127.0.0.1\n")
    (programs / "mlfs").write_text(f'#!/bin/sh\nexec {sys.executable} -m mlfs_dask "$@"\n')
    (programs / "dask").write_text(f'#!/bin/sh\nexec {sys.executable} -m dask "$@"\n')
    for program in programs.iterdir():
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def start(*words: object) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_NNODES": "1",
            "SLURM_CPUS_PER_TASK": "2",
            "SLURM_MEM_PER_NODE": "4096",
            "SLURM_SUBMIT_DIR": str(DEPLOY),
            "TMPDIR": str(tmp_path),
        }
        return subprocess.Popen(
            ["bash", DEPLOY / "slurm" / "mlfs.sbatch", *map(str, words)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


SlurmJob = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    from mlfs_dask.storage.convert import convert
    from mlfs_dask.storage.readers.base import LabelSpec

    source = tmp_path / "s.csv"
    source.write_text("x,z,y\n" + "".join(f"{row % 2},{row % 3},{row % 2}\n" for row in range(12)))
    convert(source, tmp_path / "s.zarr", labels=LabelSpec(columns=("y",)))
    return tmp_path / "s.zarr"


@pytest.mark.cluster
def test_a_slurm_job_runs_a_command_on_its_own_cluster(slurm_job: SlurmJob, store: Path, tmp_path: Path) -> None:
    job = slurm_job("select", "label-entropy", store, "-k", "1", "-o", tmp_path / "run")
    stdout, stderr = job.communicate(timeout=120)
    assert job.returncode == 0, stderr
    assert "kept" in stdout
    assert read_run(str(tmp_path / "run")).feature_names[0] == "x"
    assert not list(tmp_path.glob(".mlfs-*")), "the scheduler's file or the key was left behind"


@pytest.mark.cluster
def test_a_slurm_job_ends_with_the_code_of_its_command(slurm_job: SlurmJob, tmp_path: Path) -> None:
    job = slurm_job("select", "label-entropy", tmp_path / "absent.zarr", "-k", "1", "-o", tmp_path / "run")
    _, stderr = job.communicate(timeout=120)
    assert job.returncode == 3
    assert "there is no such store" in stderr


@pytest.mark.cluster
def test_a_slurm_job_at_the_end_of_its_time(
    slurm_job: SlurmJob, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM sends SIGTERM to the shell; the command says how to go on, and everything ends."""
    # No worker ever comes: the command waits.
    (tmp_path / "programs" / "srun").write_text("#!/bin/sh\nexec sleep 600\n")
    job = slurm_job("select", "label-entropy", store, "-k", "1", "-o", tmp_path / "run")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".mlfs-scheduler-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(3)
    job.send_signal(signal.SIGTERM)
    _, stderr = job.communicate(timeout=60)
    assert job.returncode == 130, stderr
    assert "To go on where it stopped: mlfs select label-entropy" in stderr
    assert not (tmp_path / "run").exists()


def test_a_slurm_job_without_a_command(slurm_job: SlurmJob) -> None:
    job = slurm_job()
    _, stderr = job.communicate(timeout=20)
    assert job.returncode == 2
    assert "usage: sbatch mlfs.sbatch" in stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_certificates_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    command = [DEPLOY / "hosts" / "make-certificates.sh", tmp_path / "c"]
    subprocess.run(command, check=True, capture_output=True)
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    for name in ("ca-key.pem", "key.pem"):
        assert stat.S_IMODE((tmp_path / "c" / name).stat().st_mode) == 0o600
    before = (tmp_path / "c" / "ca.pem").read_bytes()
    again = subprocess.run(command, check=False, capture_output=True, text=True)
    assert again.returncode == 1
    assert "holds certificates already" in again.stderr
    assert (tmp_path / "c" / "ca.pem").read_bytes() == before


def manifests() -> dict[tuple[str, str], dict[str, object]]:
    found = {}
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            found[document["kind"], document.get("metadata", {}).get("name", "")] = document
    return found


def test_manifests_agree_with_one_another() -> None:
    found = manifests()
    listed = found["Kustomization", ""]["resources"]
    files = {file.name for file in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert set(listed) == files - {"kustomization.yaml", "job.yaml"}  # type: ignore[call-overload]
    address = "tls://mlfs-scheduler:8786"
    assert ("Service", "mlfs-scheduler") in found
    assert address in str(found["Deployment", "mlfs-workers"])
    assert address in str(found["Job", "mlfs-select"])
    for document in found.values():
        template = document.get("spec", {}).get("template")  # type: ignore[attr-defined]
        if template is not None:
            assert template["metadata"]["labels"]["part-of"] == "mlfs", "the network policy would shut it out"


def test_the_job_of_kubernetes_is_a_command_that_parses() -> None:
    import click

    from mlfs_dask_cli.main import mlfs

    job = manifests()["Job", "mlfs-select"]
    program, *words = job["spec"]["template"]["spec"]["containers"][0]["command"]  # type: ignore[index]
    assert program == "mlfs"
    group = mlfs.get_command(click.Context(mlfs), words[0])
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), words[1])
    assert command is not None
    parsed = command.make_context(words[1], words[2:])
    assert parsed.params["scheduler"] == "tls://mlfs-scheduler:8786"
