"""Faults of a cluster over TLS on hosts that are network namespaces: equal rankings, or the right exit code.

Every host has a name, an address and a cable to one switch. What is killed, frozen, unplugged or refused is real; the
commands are those that users type.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.storage.stores import make_store, sample

MAKE_CERTIFICATES = Path(__file__).parents[2] / "deploy" / "hosts" / "make-certificates.sh"

#: Limits of the tests' clusters, in place of minutes.
SETTINGS = {
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "3s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s",  # the least that Dask takes
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",  # what a worker waits for another one that is gone
}

PORT = 8786


def ip(*words):
    """Run `ip`."""
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def why_no_namespaces():
    """Why there can be no hosts here; empty where there can."""
    if shutil.which("ip") is None:
        return "`ip` is not installed"
    if shutil.which("openssl") is None:
        return "openssl is not installed"
    name = f"mlfs-{os.getpid()}"
    made = ip("netns", "add", name)
    if made.returncode:
        return f"no network namespaces can be made here: {made.stderr.strip()}"
    ip("netns", "del", name)
    return ""


def workers_of(nanny):
    """The worker that a nanny has started; none where it has ended."""
    workers = []
    if nanny.poll() is None:
        for child in psutil.Process(nanny.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # one that is ending
                workers += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return workers


def end(process):
    """Kill a process, which may be a nanny, and its worker."""
    workers = workers_of(process)
    process.kill()
    process.wait()
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()


pytestmark = [
    pytest.mark.netns,
    pytest.mark.cluster,
    pytest.mark.nightly,
]


@dataclass
class Network:
    """Hosts by number, with the addresses 10.77.0.1 and further, and the processes that were started on them.

    Parameters
    ----------
    folder : Path
        For logs and certificates.
    """

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def prefix(self):
        return f"mlfs-{os.getpid()}"

    def namespace(self, host):
        return f"{self.prefix}-{host}"

    def address(self, host):
        return f"10.77.0.{host}"

    def build(self, hosts):
        """Make the switch, which has a namespace of its own, and the hosts."""
        switch = self.namespace(0)
        done = [ip("netns", "add", switch), ip("-n", switch, "link", "add", "switch", "type", "bridge")]
        done.append(ip("-n", switch, "link", "set", "switch", "up"))
        for host in range(1, hosts + 1):
            name, cable = self.namespace(host), f"cable{host}"
            done += [
                ip("netns", "add", name),
                ip("-n", switch, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name),
                ip("-n", switch, "link", "set", cable, "master", "switch", "up"),
                ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0"),
                ip("-n", name, "link", "set", "eth0", "up"),
                ip("-n", name, "link", "set", "lo", "up"),
            ]
        problems = [each.stderr for each in done if each.returncode]
        if problems:
            pytest.skip(f"no network of namespaces can be made here: {problems[0].strip()}")

    def plug(self, host, state):
        """Set the cable of a host "up" or "down"."""
        assert ip("-n", self.namespace(0), "link", "set", f"cable{host}", state).returncode == 0

    def command(self, host, words):
        return ["ip", "netns", "exec", self.namespace(host), sys.executable, "-m", *map(str, words)]

    def tls(self, certificates="certificates"):
        files = self.folder / certificates
        return ["--tls-ca-file", files / "ca.pem", "--tls-cert", files / "cert.pem", "--tls-key", files / "key.pem"]

    @property
    def scheduler(self):
        return f"tls://{self.address(1)}:{PORT}"

    def start(self, host, *words):
        """Start `dask scheduler` or `dask worker` on a host."""
        with (self.folder / f"dask-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                self.command(host, ["dask", *words, *self.tls(), "--no-dashboard"]),
                stdout=log,
                stderr=log,
                env=os.environ | SETTINGS,
            )
        self.processes.append(process)
        return process

    def start_scheduler(self):
        return self.start(1, "scheduler", "--protocol", "tls", "--host", self.address(1), "--port", PORT)

    def start_worker(self, host):
        """Start a worker as `deploy/hosts/worker.sh` does: at a fixed port, and again where it dies."""
        ports = ("--worker-port", "9000:9009", "--nanny-port", "9200:9209")
        options = ("--nthreads", 1, "--memory-limit", "1GiB", "--local-directory", self.folder)
        return self.start(host, "worker", self.scheduler, *ports, *options)

    def mlfs(self, *words, certificates="certificates"):
        """Start `mlfs` on the first host, with progress as JSON lines on standard error."""
        options = ["--scheduler", self.scheduler, *self.tls(certificates), "--progress", "json"]
        return subprocess.Popen(
            self.command(1, ["mlfs_dask", *words, *options]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"MLFS_CACHE": "none"},
        )

    def stop(self):
        """Kill what was started."""
        for process in self.processes:
            end(process)
        self.processes.clear()

    def remove(self):
        for name in [line.split()[0] for line in ip("netns", "list").stdout.splitlines()]:
            if name.startswith(f"{self.prefix}-"):
                ip("netns", "del", name)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Four hosts with certificates of one authority, and in `other` of another one."""
    reason = why_no_namespaces()
    if reason:
        pytest.skip(reason)
    network = Network(tmp_path_factory.mktemp("hosts"))
    for name in ("certificates", "other"):
        subprocess.run([MAKE_CERTIFICATES, network.folder / name], check=True, capture_output=True)
    try:
        network.build(4)
        yield network
    finally:
        network.stop()
        network.remove()


@pytest.fixture
def network(hosts):
    yield hosts
    hosts.stop()
    for host in range(1, 5):
        hosts.plug(host, "up")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """120 partitions."""
    X, Y = sample(n=6000, d=40, q=6, sparse=False)
    return make_store(tmp_path_factory.mktemp("store") / "t.zarr", X[:, 1:], abs(Y), partition_bytes=16_000)


METHOD = ("mfsir", "-k", "5", "--graph", "anchors", "--n-anchors", "20", "--tol", "0.03", "--checkpoint-every", "0")


@pytest.fixture(scope="module")
def expected(store):
    """The ranking of an undisturbed run."""
    run = store.parent / "expected"
    words = ["-m", "mlfs_dask", "select", METHOD[0], store, *METHOD[1:], "-o", run]
    subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True, env=os.environ)
    return ranking(run)


def disturbed(process, disturb):
    """Call `disturb` as soon as a reading of the loop has read something; exit code and standard error."""
    lines, steps = [], 0
    for line in process.stderr:
        lines.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        steps += event.get("kind") == "step"
        if event.get("kind") == "partitions" and steps == 2:
            disturb()
            break
    else:
        pytest.fail("it ended before anything happened:\n" + "".join(lines))
    lines += process.stderr.readlines()
    process.communicate()
    return process.returncode, "".join(lines)


def ranking(run):
    """Features, best first."""
    return [line.split(",")[1] for line in (run / "ranking.csv").read_text().splitlines()[1:]]


def test_a_worker_is_killed_and_another_one_unplugged_for_a_moment(network, store, expected, tmp_path):
    network.start_scheduler()
    nanny, _ = network.start_worker(2), network.start_worker(3)

    def disturb():
        (killed,) = workers_of(nanny)
        killed.kill()
        network.plug(3, "down")
        time.sleep(1)
        network.plug(3, "up")

    process = network.mlfs("select", METHOD[0], store, *METHOD[1:], "-o", tmp_path / "run", "--min-workers", 2)
    code, messages = disturbed(process, disturb)
    assert code == 0, messages
    assert "repeated" not in messages
    assert ranking(tmp_path / "run") == expected


def test_a_host_is_frozen_and_another_one_cut_off(network, store, expected, tmp_path):
    network.start_scheduler()
    frozen, _, _ = (network.start_worker(host) for host in (2, 3, 4))

    def disturb():
        for pid in (frozen.pid, *(worker.pid for worker in workers_of(frozen))):
            os.kill(pid, signal.SIGSTOP)
        network.plug(3, "down")

    process = network.mlfs("select", METHOD[0], store, *METHOD[1:], "-o", tmp_path / "run", "--min-workers", 3)
    code, messages = disturbed(process, disturb)
    assert code == 0, messages
    assert ranking(tmp_path / "run") == expected


def test_a_certificate_of_another_authority_then_a_lost_scheduler_then_the_way_on(network, store, expected, tmp_path):
    scheduler, worker = network.start_scheduler(), network.start_worker(2)
    words = ("select", METHOD[0], store, *METHOD[1:], "-o", tmp_path / "run")

    stranger = network.mlfs(*words, "--wait", 5, certificates="other")
    messages = stranger.communicate()[1]
    assert stranger.returncode == 5, messages
    assert f"no scheduler answered at {network.scheduler} within 5 s" in messages

    code, messages = disturbed(network.mlfs(*words), scheduler.kill)
    assert code == 5, messages
    assert "To go on where it stopped: mlfs select" in messages
    assert not (tmp_path / "run").exists()

    for process in (scheduler, worker):
        end(process)
    network.start_scheduler()
    network.start_worker(3)
    again = network.mlfs(*words, "--resume")
    messages = again.communicate()[1]
    assert again.returncode == 0, messages
    steps = [json.loads(line) for line in messages.splitlines() if '"kind": "step"' in line]
    assert steps[0]["number"] > 1
    assert ranking(tmp_path / "run") == expected
