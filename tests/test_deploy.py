"""The files that start clusters, tried as far as one machine goes."""

from __future__ import annotations

import contextlib
import functools
import getpass
import importlib.util
import json
import os
import re
import runpy
import shutil
import socket
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mlfs_dask.selection.runs import read_run
from mlfs_dask_cli.failure import KINDS

REPOSITORY = Path(__file__).parent.parent

PATIENCE = 240
"""Seconds after which a process hangs; on a busy machine what takes one may take a minute."""

DEPLOY = REPOSITORY / "deploy"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mlfs_dask.readers.base import LabelSpec
    from mlfs_dask.storage.convert import convert

    folder = tmp_path_factory.mktemp("store")
    (folder / "s.csv").write_text("x,z,y\n" + "".join(f"{row % 2},{row % 3},{row % 2}\n" for row in range(12)))
    convert(folder / "s.csv", folder / "s.zarr", labels=LabelSpec(columns=("y",)))
    return folder / "s.zarr"


# SLURM

SBATCH = DEPLOY / "slurm" / "mlfs.sbatch"
PROGRAMS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

WITH_DAEMONS = f"{PROGRAMS}:/usr/sbin"
MISSING_OF_SLURM = [
    name for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun") if not shutil.which(name, path=WITH_DAEMONS)
]

SRUN = """#!/bin/sh
# Three tasks on one node, as srun would start them.
while case "$1" in --*) true;; *) false;; esac; do shift; done
for task in 0 1 2; do SLURM_PROCID=$task SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=3 "$@" & done
trap 'pkill -TERM -P $$' TERM
wait
"""


def call(
    *words: object, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.fixture
def without_slurm(tmp_path: Path) -> dict[str, str]:
    """Environment of a batch script on one node, with an `srun` that runs its tasks here."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", f"#!/bin/sh\necho '   Command={SBATCH} select elc s.zarr'\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    slurm = {"JOB_ID": "7", "NTASKS": "3", "CPUS_PER_TASK": "1", "MEM_PER_NODE": "3000"}
    return {
        **os.environ,
        **{f"SLURM_{name}": value for name, value in slurm.items()},
        "PATH": f"{programs}:{PROGRAMS}",
        "MLFS_INTERFACE": "lo",
        "TMPDIR": str(tmp_path),
    }


@pytest.mark.cluster
@pytest.mark.skipif(not MISSING_OF_SLURM, reason="SLURM itself runs it, below")
def test_the_batch_script_runs_a_command_on_its_own_cluster(
    without_slurm: dict[str, str], store: Path, tmp_path: Path
) -> None:
    words = ["select", "label-entropy", store, "-k", "1", "-o", tmp_path / "run", "--json"]
    job = call("bash", SBATCH, *words, folder=tmp_path, environment=without_slurm)
    record = json.loads(job.stdout)
    assert record["selected"] == ["x"], job.stderr
    assert not list(tmp_path.glob(".mlfs-*")), "the key was left behind"


@pytest.mark.parametrize(
    ("words", "changed", "message"),
    [
        ([], {}, "usage: sbatch --ntasks=N mlfs.sbatch"),
        (["doctor"], {"SLURM_NTASKS": "2"}, "without a worker. cure: sbatch --ntasks=3"),
        (["doctor"], {"MLFS_DEPLOY": "/nowhere"}, "/nowhere/slurm/run_task.py is missing. cure: MLFS_DEPLOY="),
    ],
)
def test_what_the_batch_script_refuses(
    without_slurm: dict[str, str], tmp_path: Path, words: list[str], changed: dict[str, str], message: str
) -> None:
    job = call("bash", SBATCH, *words, folder=tmp_path, environment={**without_slurm, **changed})
    assert job.returncode == 2
    assert message in job.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_MEM_PER_CPU": "900"}, 900 * 2**20),
        ({"SLURM_MEM_PER_CPU": "900", "SLURM_CPUS_PER_TASK": "2"}, 1800 * 2**20),
        ({"SLURM_MEM_PER_NODE": "900"}, 300 * 2**20),
        ({"SLURM_MEM_PER_NODE": "900", "SLURM_NODEID": "2"}, 450 * 2**20),
        ({}, 400 * 2**20),  # --mem=0
    ],
)
def test_the_memory_of_a_task(environment: dict[str, str], expected: int) -> None:
    task_bytes = runpy.run_path(str(DEPLOY / "slurm" / "run_task.py"))["task_bytes"]
    placed = {"SLURM_STEP_TASKS_PER_NODE": "3(x2),2", "SLURM_NODEID": "1", **environment}
    assert task_bytes(placed, available=1200 * 2**20) == expected


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in sockets]


SLURM_CONF = """
ClusterName=mlfs
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
NodeName=a NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=3000
NodeName=b NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=3000
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@pytest.fixture(scope="module")
def sbatch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """`sbatch` of a SLURM of two nodes, both here; skipped where its programs are not installed."""
    if MISSING_OF_SLURM:
        pytest.skip(
            f"SLURM is not installed (slurmctld, slurmd, slurm-client, munge): no {', '.join(MISSING_OF_SLURM)}"
        )
    folder = tmp_path_factory.mktemp("slurm")
    folder.chmod(0o755)  # munged insists
    for name in ("state", "spool-a", "spool-b"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    conf = folder / "slurm.conf"
    conf.write_text(
        SLURM_CONF.format(
            folder=folder, user=getpass.getuser(), host=socket.gethostname().partition(".")[0], ports=free_ports(3)
        )
    )
    environment = {
        **os.environ,
        "SLURM_CONF": str(conf),
        "PATH": WITH_DAEMONS,
        "MLFS_INTERFACE": "lo",
        "TMPDIR": str(folder),
    }
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    daemons = [
        ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge],
        ["slurmctld", "-D", "-f", conf],
        *(["slurmd", "-D", "-N", node, "-f", conf] for node in "ab"),
    ]

    slurm = functools.partial(call, folder=folder, environment=environment)
    with started_processes(folder, environment) as start:
        for number, daemon in enumerate(daemons):
            start(*daemon)
            if number == 0:
                wait_until((folder / "munge.socket").exists)
        wait_until(lambda: slurm("sinfo", "--noheader", "--states=idle", "--format=%D").stdout.strip() == "2")
        yield slurm
        # Of a test that failed.
        slurm("scancel", "--full", "--signal=KILL", f"--user={getpass.getuser()}")


@contextlib.contextmanager
def started_processes(folder: Path, environment: Mapping[str, str]) -> Iterator[Start]:
    """Start commands with a log each, and end them afterwards, the last one first."""

    def end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    with ExitStack() as stack:

        def start(*words: object) -> subprocess.Popen[bytes]:
            log = stack.enter_context((folder / f"process-{len(list(folder.glob('process-*')))}.log").open("wb"))
            command = [str(word) for word in words]
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
            stack.callback(end, process)
            return process

        yield start


Sbatch = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[bytes]"]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


@pytest.mark.cluster
def test_a_job_of_slurm_runs_a_command_on_two_nodes(sbatch: Sbatch, store: Path, tmp_path: Path) -> None:
    words = ["select", "label-entropy", store, "-k", "1", "-o", tmp_path / "run"]
    memory = ["--nodes=2", "--ntasks=4", "--mem-per-cpu=900"]
    job = sbatch("sbatch", "--wait", f"--output={tmp_path}/log", *memory, SBATCH, *words)
    log = (tmp_path / "log").read_text()
    assert job.returncode == 0, log
    assert "of 2 features: x" in log
    assert read_run(str(tmp_path / "run")).feature_names[0] == "x"
    assert not list(Path(store.parent).glob(".mlfs-*")), "the key was left behind"


@pytest.mark.cluster
def test_a_job_of_slurm_goes_on_where_its_time_ran_out(sbatch: Sbatch, store: Path, tmp_path: Path) -> None:
    """Every process of the job gets SIGTERM; the command leaves a checkpoint, and everything ends."""
    method = ["mfsir", store, "-k", "1", "--step", "fixed", "--max-iter", "100000000", "--checkpoint-every", "0"]
    words = ["select", *method, "-o", tmp_path / "run", "--resume"]
    job = sbatch("sbatch", "--parsable", f"--output={tmp_path}/log", "--ntasks=3", "--mem=0", SBATCH, *words)
    number = job.stdout.strip()
    wait_until((tmp_path / ".run.checkpoint" / "state.npz").exists)
    sbatch("scancel", "--signal=TERM", number)
    wait_until(lambda: number not in sbatch("squeue", "--noheader", "--format=%i").stdout)
    log = (tmp_path / "log").read_text()
    assert "To go on where it stopped: mlfs select mfsir" in log
    assert "ExitCode=130:0" in sbatch("scontrol", "show", "job", number).stdout, log
    assert not (tmp_path / "run").exists()


# Hosts

HOSTS = DEPLOY / "hosts"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls") / "certificates"
    assert call(HOSTS / "make-certificates.sh", f"{folder}/").returncode == 0
    return folder


def test_the_key_of_the_authority_stays(certificates: Path) -> None:
    authority = certificates.with_name("certificates-authority")
    assert sorted(file.name for file in certificates.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    assert (authority / "ca-key.pem").is_file()
    for path in (certificates, authority):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (certificates / "key.pem", authority / "ca-key.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = call(HOSTS / "make-certificates.sh", certificates)
    assert again.returncode == 1
    assert "is there already. cure: name another folder" in again.stderr


def test_a_new_certificate_is_of_the_same_authority(certificates: Path, tmp_path: Path) -> None:
    authority = shutil.copytree(certificates.with_name("certificates-authority"), tmp_path / "c-authority")
    assert call(HOSTS / "make-certificates.sh", tmp_path / "c").returncode == 0
    assert (tmp_path / "c" / "ca.pem").read_bytes() == (authority / "ca.pem").read_bytes()
    assert (tmp_path / "c" / "cert.pem").read_bytes() != (certificates / "cert.pem").read_bytes()
    assert call("openssl", "verify", "-CAfile", certificates / "ca.pem", tmp_path / "c/cert.pem").returncode == 0


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PATH": PROGRAMS, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    with started_processes(tmp_path, environment) as start:
        yield start


def tls_options(folder: Path) -> list[str]:
    return [f"--tls-ca-file={folder}/ca.pem", f"--tls-cert={folder}/cert.pem", f"--tls-key={folder}/key.pem"]


@pytest.mark.cluster
def test_workers_of_hosts_end_when_their_scheduler_has_gone(
    certificates: Path, store: Path, start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """So that systemd starts them again."""
    port, *others = free_ports(4)
    settings = {
        "CERTIFICATES": certificates,
        "SCHEDULER": "127.0.0.1",
        "PORT": port,
        "INTERFACE": "lo",
        "WORKERS": 1,
        "MEMORY": "500MiB",
        "WORKER_PORTS": f"{min(others)}:{max(others)}",
        "NANNY_PORTS": f"{min(others)}:{max(others)}",
        "PATH": PROGRAMS,
    }
    named = re.findall("^([A-Z_]+)=", (HOSTS / "cluster.conf").read_text(), re.MULTILINE)
    assert named == list(settings)
    conf = tmp_path / "cluster.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    cluster = [f"--scheduler=tls://127.0.0.1:{port}", *tls_options(certificates)]
    scheduler = start(HOSTS / "scheduler.sh", conf.name)
    workers = start(HOSTS / "worker.sh", conf.name)
    words = ["select", "label-entropy", store, "-k", "1", "-o", tmp_path / "run", "--cache=none", *cluster, "--json"]
    selected = call("mlfs", *words, folder=tmp_path, environment=environment)
    assert selected.returncode == 0, selected.stderr
    assert json.loads(selected.stdout)["selected"] == ["x"]
    scheduler.kill()
    workers.wait(PATIENCE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_units_of_systemd_are_sound(role: str, tmp_path: Path) -> None:
    text = (HOSTS / f"mlfs-{role}.service").read_text()
    assert f"ExecStart=/opt/mlfs/deploy/hosts/{role}.sh /etc/mlfs/cluster.conf" in text
    unit = tmp_path / f"mlfs-{role}.service"
    unit.write_text(text.replace("/opt/mlfs/deploy", str(DEPLOY)))
    checked = call("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    "file", ["hosts/make-certificates.sh", "hosts/scheduler.sh", "hosts/worker.sh", "slurm/mlfs.sbatch"]
)
def test_scripts_pass_shellcheck(file: str) -> None:
    checked = call(Path(sys.executable).with_name("shellcheck"), "-x", "-P", "SCRIPTDIR", DEPLOY / file)
    assert checked.returncode == 0, checked.stdout
    assert os.access(DEPLOY / file, os.X_OK) or file.startswith("slurm/")


# Containers


def test_the_image_is_built_well() -> None:
    checked = call(Path(sys.executable).with_name("hadolint"), DEPLOY / "Dockerfile")
    assert checked.returncode == 0, checked.stdout


def test_the_image_holds_what_it_copies_and_the_package_needs() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = {word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for word in line.split()}
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == copied
    assert all((REPOSITORY / name).exists() for name in copied)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"}
    needed |= set(project["tool"]["setuptools"]["package-dir"].values())
    assert needed <= copied


def test_the_image_has_one_version_of_everything() -> None:
    """Each package that is asked for is pinned, at a version that pyproject.toml allows."""
    lines = [line for line in (DEPLOY / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = {"cloud", *Requirement(*extras["complete"]).extras}
    texts = [*project["dependencies"], *(text for name in names for text in extras[name])]
    asked = [Requirement(text) for text in texts]
    assert {each.name: pinned[canonicalize_name(each.name)] in each.specifier for each in asked} == {
        each.name: True for each in asked
    }
    text = (DEPLOY / "Dockerfile").read_text()
    assert "COPY deploy/constraints.txt /src/" in text
    assert "--constraint /src/constraints.txt" in text
    # The image and `make constraints` ask for the same extras, which there are.
    assert re.findall(r'install .*"/src\[(.*)\]"', text) == ["cloud,complete"]
    assert 'install ".[cloud,complete]"' in (REPOSITORY / "Makefile").read_text()


Manifest = dict[str, Any]


def load_all(*files: str) -> list[Manifest]:
    documents = []
    for file in files:
        documents += list(yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text()))
    return documents


PLAIN = ("plain/scheduler.yaml", "plain/workers.yaml", "plain/job.yaml", "common/network-policy.yaml")


def made_by_operator(job: Manifest) -> list[Manifest]:
    """What the Dask operator makes of a DaskJob (dask-kubernetes 2026.3, operator/controller/controller.py)."""
    name, labels = job["metadata"]["name"], job["metadata"]["labels"]
    cluster = job["spec"]["cluster"]["spec"]

    def metadata(component: str) -> Manifest:
        own = {"dask.org/cluster-name": name, "dask.org/component": component}
        return {"name": f"{name}-{component}", "labels": {**labels, **own}}

    def deployment(component: str) -> Manifest:
        about = metadata(component)
        template = {"metadata": about, "spec": cluster[component]["spec"]}
        spec = {
            "replicas": cluster[component].get("replicas", 1),
            "selector": {"matchLabels": about["labels"]},
            "template": template,
        }
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec}

    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata("scheduler")}
    runner = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata("job-runner"), "spec": job["spec"]["job"]["spec"]}
    return [
        {**service, "spec": cluster["scheduler"]["service"]},
        deployment("scheduler"),
        deployment("worker"),
        runner,
    ]


def pods_of(documents: list[Manifest]) -> dict[str, Manifest]:
    """Specifications of pods by the name of their container, labels included."""
    found = {}
    for document in documents:
        pod = document if document["kind"] == "Pod" else document["spec"].get("template")
        if pod is not None:
            (container,) = pod["spec"]["containers"]
            found[container["name"]] = pod
    return found


@pytest.fixture(params=["plain", "operator"])
def documents(request: pytest.FixtureRequest) -> list[Manifest]:
    if request.param == "plain":
        return load_all(*PLAIN)
    (job,) = load_all("operator/daskjob.yaml")
    return [*made_by_operator(job), *load_all("common/network-policy.yaml")]


def test_manifests_have_the_schema_of_kubernetes(documents: list[Manifest]) -> None:
    import kubernetes_validate

    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_job_of_the_operator_has_its_schema() -> None:
    import jsonschema

    spec = importlib.util.find_spec("dask_kubernetes")
    if spec is None or spec.origin is None:
        pytest.skip("dask-kubernetes is not installed")
    crds = Path(spec.origin).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    definition = yaml.safe_load((crds / "daskjob.yaml").read_text())
    (job,) = load_all("operator/daskjob.yaml")
    jsonschema.validate(job, definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def test_pods_keep_to_the_restricted_standard(documents: list[Manifest]) -> None:
    """Kubernetes' Pod Security Standards, profile "restricted", and a root file system that is not written to."""
    pods = pods_of(documents)
    assert sorted(pods) == ["mlfs", "scheduler", "worker"]
    for pod in pods.values():
        of_pod = pod["spec"]["securityContext"]
        assert of_pod["runAsNonRoot"] is True
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["spec"]["containers"]
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["readOnlyRootFilesystem"] is True
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert "sizeLimit" in volumes["scratch"]["emptyDir"]
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
        assert pod["metadata"]["labels"]["part-of"] == "mlfs", "the network policy would shut it out"


def test_the_service_leads_to_the_scheduler(documents: list[Manifest]) -> None:
    (service,) = [document for document in documents if document["kind"] == "Service"]
    pods = pods_of(documents)
    assert service["spec"]["selector"].items() <= pods["scheduler"]["metadata"]["labels"].items()
    address = f"tls://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert address in arguments(pods["worker"])
    assert f"--scheduler={address}" in arguments(pods["mlfs"])


def test_the_image_is_named_in_one_place() -> None:
    for folder in ("plain", "operator"):
        (kustomization,) = load_all(f"{folder}/kustomization.yaml")
        files = {file.name for file in (DEPLOY / "kubernetes" / folder).glob("*.yaml")}
        assert {*kustomization["resources"], "kustomization.yaml"} == files
        assert kustomization["components"] == ["../common"]
    for file in (*PLAIN, "operator/daskjob.yaml"):
        images = re.findall(r"image: (.*)", (DEPLOY / "kubernetes" / file).read_text())
        assert set(images) <= {"mlfs"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", ["plain", "operator"])
def test_kustomize_sets_the_image_of_every_container(folder: str) -> None:
    built = call("kubectl", "kustomize", DEPLOY / "kubernetes" / folder)
    assert re.findall(r"image: (.*)", built.stdout) == ["REGISTRY/mlfs:0.1.0"] * 3


def test_a_retry_goes_on_and_a_drained_node_is_no_failure() -> None:
    (job,) = load_all("plain/job.yaml")
    spec = job["spec"]
    assert spec["backoffLimit"] > 0
    disruption, verdict = spec["podFailurePolicy"]["rules"]
    assert disruption == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert verdict["onExitCodes"]["values"] == sorted(set(KINDS) - {5}), "a lost cluster is worth another try"
    assert "--resume" in arguments(spec["template"])
    # The default of 30 seconds is short for a checkpoint on its way to an object store.
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= 60


def arguments(pod: Manifest) -> list[str]:
    (container,) = pod["spec"]["containers"]
    return list(container["args"])


def compose() -> Manifest:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def test_all_containers_run_the_same_commands() -> None:
    plain, (job,) = pods_of(load_all(*PLAIN)), load_all("operator/daskjob.yaml")
    of_operator = pods_of(made_by_operator(job))
    services = compose()["services"]
    for name, pod in plain.items():
        expected = arguments(pod)
        named = [word.replace("mlfs-select-scheduler", "mlfs-scheduler") for word in arguments(of_operator[name])]
        assert [word for word in named if word != "--name=$(DASK_WORKER_NAME)"] == expected
        if name != "mlfs":
            assert [word.replace("//scheduler", "//mlfs-scheduler") for word in services[name]["command"]] == expected


def test_containers_of_compose_are_locked_up() -> None:
    for service in compose()["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "/scratch" in service["volumes"]


@pytest.mark.cluster
def test_the_commands_of_the_pods(
    certificates: Path, store: Path, start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """As in a cluster, with files and addresses of this machine: a job that is killed goes on in the next try."""
    (port,) = free_ports(1)
    here = {
        "/etc/mlfs-tls": str(certificates),
        "--port=8786": f"--port={port}",
        "mlfs-scheduler:8786": f"127.0.0.1:{port}",
        "s3://bucket/big.zarr": str(store),
        "s3://bucket/big.elc": str(tmp_path / "run"),
    }

    def local(pod: Manifest) -> list[str]:
        words = arguments(pod)
        for there, replacement in here.items():
            words = [word.replace(there, replacement) for word in words]
        return words

    pods = pods_of(load_all(*PLAIN))
    start(*local(pods["scheduler"]))
    start(*local(pods["worker"]))
    job = local(pods["mlfs"])
    job[job.index("200")] = "1"
    method = job.index("elc")
    job[method : method + 1] = ["mfsir", "--step=fixed", "--max-iter=2000", "-v"]
    killed = start(*job, "--checkpoint-every=0")
    wait_until((tmp_path / ".run.checkpoint" / "state.npz").exists)
    killed.kill()
    tried = call(*job, folder=tmp_path, environment=environment)
    assert tried.returncode == 0, tried.stderr
    assert "continuing from a checkpoint" in tried.stderr
    assert read_run(str(tmp_path / "run")).feature_names[0] == "x"
