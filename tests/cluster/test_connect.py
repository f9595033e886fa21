"""Connecting to clusters: real schedulers and workers in processes of their own."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

import dask
import distributed
import numpy as np
import psutil
import pytest
import yaml
from dask.sizeof import sizeof
from scipy import sparse as scipy_sparse

from mlfs_dask import runtime
from mlfs_dask.cluster.block_sizes import register_sizes
from mlfs_dask.cluster.connect import ClusterOptions, connect, local_settings, planned_resources
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.cluster.workers import describe_mismatches
from mlfs_dask.engine.plan import SPREAD_BYTES
from mlfs_dask.errors import ClusterLostError, DoesNotFitError, UsageError

DEPLOY = Path(__file__).parents[2] / "deploy"


TLS = ("tls_ca_file", "tls_cert", "tls_key")

# Where nothing has to run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheduler": "tcp://a:1", "workers": 2}, "scheduler and workers name different places"),
        ({"in_process": True, "scheduler_file": "x"}, "scheduler_file and in_process name different"),
        ({"scheduler": "tcp://a:1", "memory_limit": 10}, "memory_limit is for local workers"),
        ({"scheduler": "tcp://a:1", "threads_per_worker": 1}, "threads_per_worker is for local workers"),
        ({"in_process": True, "threads_per_worker": 1}, "threads_per_worker has no meaning"),
        ({"threads_per_worker": 2}, "threads_per_worker is for local workers, and none are asked for"),
        ({"workers": 0}, "workers must be at least 1; it is 0"),
        ({"workers": 1, "threads_per_worker": -1}, "threads_per_worker must be at least 1; it is -1"),
        ({"in_process": True, "wait": 0}, "wait must be a positive number of seconds; it is 0"),
        ({"scheduler": "tls://a:1", "tls_cert": "c"}, "missing: tls_ca_file, tls_key"),
        ({"tls_ca_file": "a", "tls_cert": "b", "tls_key": "c"}, "local workers need none"),
        ({"scheduler": "tls://a:1", "tls_ca_file": "a", "tls_cert": "b", "tls_key": "c"}, "no such file: a"),
        ({"scheduler": "tcp://a:1", **dict.fromkeys(TLS, __file__)}, "not of the form tls://"),
        ({"scheduler": "tls://a:1"}, "needs tls_ca_file, tls_cert and tls_key"),
        ({"scheduler": "nonsense://a:1"}, "is no scheduler address"),
        ({"scheduler": "tcp://a:port"}, "is no scheduler address"),
        ({"scheduler": "tcp://192.0.2.1:1"}, "is not encrypted, and whoever reaches such a scheduler"),
        ({"scheduler": "a:1"}, "give insecure"),
        ({"workers": 1, "insecure": True}, "insecure goes with scheduler"),
        ({"workers": 2, "min_workers": 2}, "min_workers goes with scheduler"),
        ({"scheduler": "tcp://127.0.0.1:1", "min_workers": 0}, "min_workers must be at least 1; it is 0"),
    ],
)
def test_contradicting_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message) as caught, connect(**options):
        pytest.fail("connected")
    assert "--" not in str(caught.value)  # Python's names, in Python


def test_without_a_scheduler_it_is_said_in_time(tmp_path, free_port):
    file, address = tmp_path / "scheduler.json", f"tcp://127.0.0.1:{free_port}"
    for content, problem in (
        (None, "there is no such file"),
        ("{", "does not hold a scheduler's address"),
        (json.dumps({"address": address}), rf"no scheduler answered at {address} within 0.5 s(.|\n)*dask scheduler"),
    ):
        if content is not None:
            file.write_text(content)
        with pytest.raises(ClusterLostError, match=problem), connect(scheduler_file=str(file), wait=0.5):
            pytest.fail("connected")


def test_threads_of_this_process_are_the_default(monkeypatch):
    monkeypatch.setattr(runtime, "available_cores", lambda: 7)
    monkeypatch.setattr(runtime, "available_memory", lambda: 5 * 2**30)
    with connect() as client:
        assert client is None
        assert dask.config.get("scheduler", None) is None
        resources = current_resources()
    for found in (resources, planned_resources()):
        assert (found.workers, found.threads_per_worker, found.memory_limit, found.client) == (1, 7, 5 * 2**30, None)
    with connect(memory_limit=2**30):
        resources = current_resources()
    assert (resources.threads_per_worker, resources.memory_limit, resources.driver_limit) == (7, 2**30, 2**30)


def test_a_local_worker_that_its_limit_would_end_is_not_started():
    with pytest.raises(DoesNotFitError, match="before it has any work") as caught, connect(workers=1, memory_limit=1):
        pytest.fail("started")
    assert (caught.value.available, caught.value.cure.count("memory_limit")) == (1, 1)


def test_in_process_is_synchronous_and_keeps_its_limit():
    with connect(in_process=True, memory_limit=123 * 2**20) as client:
        assert client is None
        assert dask.config.get("scheduler") == "synchronous"
        resources = current_resources()
        assert (resources.workers, resources.threads_per_worker) == (1, 1)
        assert resources.memory_limit == resources.driver_limit == 123 * 2**20
    assert current_resources().memory_limit != 123 * 2**20
    assert dask.config.get("scheduler", None) is None


def test_sparse_blocks_have_their_real_size(monkeypatch):
    import sparse

    block = scipy_sparse.random_array((500, 40), density=0.5, format="csr", rng=np.random.default_rng(0))
    gcxs = sparse.GCXS.from_scipy_sparse(block)
    monkeypatch.delitem(sizeof._lazy, "sparse", raising=False)  # an earlier test may have registered it
    for known in (block, gcxs):
        # As where Dask weighed such a block before anybody connected: it keeps its own answer for the type.
        monkeypatch.delitem(sizeof._lookup, type(known), raising=False)
        assert sizeof(known) < 1_000
    register_sizes()
    expected = block.data.nbytes + block.indices.nbytes + block.indptr.nbytes
    assert sizeof(block) == expected
    assert sizeof(gcxs) >= block.data.nbytes + block.indices.nbytes
    # An older SciPy matrix has a size that Dask registers when it meets the first one.
    matrix = scipy_sparse.csr_matrix(np.ones((1, 1_000)))
    monkeypatch.delitem(sizeof._lookup, type(matrix), raising=False)
    assert sizeof(matrix) > 12_000


def test_mismatches_name_package_versions_and_a_worker():
    here = {"python": "3.12.1", "zarr": "3.1"}
    there = {"a": {"python": "3.12.1", "zarr": "3.0"}, "b": {"python": "3.12.1", "zarr": "3.1"}}
    (line,) = describe_mismatches(here, there)
    assert line.startswith("zarr is 3.1 here, 3.0 on 1 of 2 workers (a)")
    assert describe_mismatches(here, {"b": there["b"]}) == []


def test_deployed_settings_are_those_of_local_workers():
    """`deploy/dask.yaml` says for other people's workers what local ones get."""
    deployed = yaml.safe_load((DEPLOY / "dask.yaml").read_text())
    for key, value in local_settings(2**30, 600).items():
        if key.endswith(("no-workers-timeout", "lost-worker-timeout")):  # of --wait, and of local clusters alone
            continue
        found = deployed
        for part in key.split("."):
            assert isinstance(found, dict)
            found = found[part]
        assert found == value, key


# With real processes


def listening():
    """Addresses at which this process and its children listen."""
    return {
        connection.laddr
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }


INTRUDER = """
import os, sys, warnings
from distributed import Client
from distributed.security import Security

warnings.simplefilter("ignore")
certificate = Security.temporary()
os.setuid(65534)
for address, security in ((sys.argv[1], certificate), (sys.argv[1].replace("tls", "tcp"), None)):
    try:
        with Client(address, security=security, timeout=2) as client:
            print("ran as", client.submit(os.getuid).result(timeout=5))
    except (OSError, TimeoutError, RuntimeError) as error:
        print("refused")
"""


@pytest.mark.cluster
def test_local_workers(caplog, monkeypatch):
    names = list(local_settings(2**30, 60)["distributed.nanny.pre-spawn-environ"])
    for name in names:
        monkeypatch.delenv(name, raising=False)
    caplog.set_level(logging.INFO, logger="mlfs_dask.cluster.connect")
    before = listening()  # a browser's driver, say, that another test has started
    with connect(workers=2, memory_limit=400 * 2**20) as client:
        resources = current_resources()
        assert (resources.workers, resources.threads_per_worker) == (2, 1)
        assert resources.memory_limit == 400 * 2**20
        assert all(address.startswith("tls://127.0.0.1:") for address in client.nthreads())
        found = client.run(_state_of_worker)
        ours = listening() - before
        assert len(ours) >= 3
        assert {address.ip for address in ours} == {"127.0.0.1"}
        assert 8787 not in {address.port for address in ours}, "another cluster may have it"
        assert _pages_refused(ours) == 3
        if os.geteuid() == 0:  # who alone can become another user
            words = [sys.executable, "-c", INTRUDER, client.scheduler_info()["address"]]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            assert done.stdout.split("\n")[:2] == ["refused", "refused"], done.stderr
        assert client.submit(abs, -2).result() == 2
        large = client.submit(lambda: SimpleNamespace(content=bytes(2**26 + 1)))  # pickled in more than one frame
        assert len(large.result().content) == 2**26 + 1
    assert not set(names) & set(os.environ), "the next cluster would inherit these settings"
    assert len({state["pid"] for state in found.values()} | {os.getpid()}) == 3
    for state in found.values():
        assert state["trim"] == str(100 * 2**20)
        assert state["mmap"] == str(2**30)
        assert state["concurrency"] == 2
        assert state["spill"] is False
        assert state["csr_bytes"] > 8_000
    assert "starting 2 local workers with 0.4 GiB and 1 thread each" in caplog.text


@pytest.mark.cluster
def test_local_workers_are_planned_as_they_are(tmp_path):
    """`mlfs plan` says yes or no to what `mlfs select` would."""
    program = tmp_path / "program.py"  # workers load it again
    program.write_text(
        "import sys\n"
        "from mlfs_dask import runtime\n"
        "from mlfs_dask.cluster import connect as cluster\n"
        "from mlfs_dask.cluster.resources import current_resources\n"
        "def figures(resources):\n"
        "    print(resources.workers, resources.threads_per_worker, resources.memory_limit, resources.compiled_bytes)\n"
        "    print(resources.process_bytes, runtime.driver_bytes())\n"
        "if __name__ == '__main__':\n"
        "    options = {'workers': 2, 'threads_per_worker': 3, 'memory_limit': 400 * 2**20}\n"
        "    if sys.argv[1] == 'plan':\n"
        "        figures(cluster.planned_resources(**options))\n"
        "    else:\n"
        "        with cluster.connect(**options):\n"
        "            figures(current_resources())\n"
    )
    planned, used = (
        subprocess.run([sys.executable, program, how], capture_output=True, text=True, check=True).stdout.splitlines()
        for how in ("plan", "use")
    )
    assert planned[0] == used[0]
    (worker, driver), (worker_used, driver_used) = ([int(n) for n in each[1].split()] for each in (planned, used))
    assert abs(worker - worker_used) < SPREAD_BYTES
    assert abs(driver - driver_used) < 3 * 2**20  # a second worker takes some of this process


@pytest.mark.cluster
def test_planned_workers_have_the_limits_that_are_asked_for(monkeypatch):
    monkeypatch.setattr(runtime, "available_memory", lambda: 5 * 2**30)
    assert ClusterOptions(workers=2).share_of_memory == 5 * 2**29
    resources = planned_resources(workers=2, memory_limit=1)
    assert (resources.workers, resources.threads_per_worker) == (2, 1)
    assert (resources.memory_limit, resources.driver_limit) == (1, 5 * 2**30)
    assert resources.client is not None


def _pages_refused(places):
    """Addresses that answer to HTTP, with nothing."""
    refused = 0
    for place in places:
        try:
            urlopen(f"http://127.0.0.1:{place.port}/json/identity.json", timeout=5)
            pytest.fail("told who it is")
        except HTTPError as error:
            refused += error.code == 404
        except OSError:
            pass  # speaks TLS
    return refused


def _state_of_worker():
    import zarr
    from scipy.sparse import csr_array

    return {
        "pid": os.getpid(),
        "trim": os.environ.get("MALLOC_TRIM_THRESHOLD_"),
        "mmap": os.environ.get("MALLOC_MMAP_THRESHOLD_"),
        "concurrency": zarr.config.get("async.concurrency"),
        "spill": dask.config.get("distributed.worker.memory.spill"),
        "csr_bytes": sizeof(csr_array(np.ones((1, 1000)))),
    }


@pytest.mark.cluster
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_answered_by_the_client_alone(tmp_path):
    """A terminal sends it to the workers too, and each would print a traceback."""
    program = tmp_path / "program.py"
    program.write_text(
        "import time\n"
        "from mlfs_dask.cluster.connect import connect\n"
        "if __name__ == '__main__':\n"
        "    with connect(workers=1) as client:\n"
        "        try:\n"
        "            print('ready', flush=True)\n"
        "            time.sleep(60)\n"
        "        except KeyboardInterrupt:\n"
        "            time.sleep(1)\n"
        "            print(client.submit(abs, -2).result())\n"
    )
    process = subprocess.Popen(
        [sys.executable, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (0, "2\n", "")


@pytest.mark.cluster
def test_scheduler_file_cluster_that_comes_late_and_goes_away(tmp_path, start_dask):
    file = tmp_path / "scheduler.json"
    scheduler = start_dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", file)
    start_dask("worker", "--scheduler-file", file, "--nthreads", 1, "--memory-limit", "1GiB")
    with connect(scheduler_file=str(file), wait=60) as client:
        assert current_resources().memory_limit == 2**30
        assert client.submit(abs, -2).result() == 2
        # What Dask logs of a lost connection, tracebacks included, is said in one message of our own.
        assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)
        assert not logging.getLogger("distributed.batched").isEnabledFor(logging.ERROR)
    assert logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)

    def lose_the_scheduler():
        with connect(scheduler_file=str(file)) as client:
            future = client.submit(time.sleep, 60)
            scheduler.kill()
            future.result()

    with pytest.raises(ClusterLostError, match=r"the connection to the scheduler at .* was lost"):
        lose_the_scheduler()


INTERRUPTED_WHILE_CONNECTING = """
import os, signal, sys
from distributed import Client

update = Client._update_scheduler_info

async def interrupted(self, *args, **kwargs):
    os.kill(os.getpid(), signal.SIGINT)
    return await update(self, *args, **kwargs)

Client._update_scheduler_info = interrupted
from mlfs_dask.cluster.connect import connect

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with connect(scheduler=sys.argv[1]):
        sys.exit("connected")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.cluster
def test_an_interruption_while_connecting_ends_at_once(start_dask, free_port):
    """Dask's half-made client would wait two minutes for itself."""
    start_dask("scheduler", "--host", "127.0.0.1", "--port", str(free_port), "--no-dashboard")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_CONNECTING, f"tcp://127.0.0.1:{free_port}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("interrupted\n", 0)
    assert "Traceback" not in done.stderr


@pytest.mark.cluster
def test_min_workers_are_waited_for(tmp_path, start_dask, free_port):
    file = tmp_path / "scheduler.json"
    start_dask("scheduler", "--host", "127.0.0.1", "--port", free_port, "--scheduler-file", file)
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    address = f"tcp://127.0.0.1:{free_port}"
    distributed.Client(address, timeout=60).close()  # by then it listens
    no_worker = pytest.raises(ClusterLostError, match="has no worker after 2 s")
    with no_worker, connect(scheduler=f"127.0.0.1:{free_port}", wait=2):
        pytest.fail("connected")
    start_dask("worker", address, "--nthreads", 1)
    with connect(scheduler=address):
        assert current_resources().workers == 1
    too_few = pytest.raises(ClusterLostError, match="has 1 worker after 2 s; min_workers asks for 2")
    with too_few, connect(scheduler=address, min_workers=2, wait=2):
        pytest.fail("connected")
    start_dask("worker", address, "--nthreads", 1)
    with connect(scheduler=address, min_workers=2):
        assert current_resources().workers == 2


@pytest.mark.cluster
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls(tmp_path, start_dask, free_port):
    """The certificates come from the script in `deploy/hosts`."""
    certificates = tmp_path / "certificates"
    subprocess.run([DEPLOY / "hosts" / "make-certificates.sh", certificates], check=True)
    files = {name: str(certificates / file) for name, file in zip(TLS, ("ca.pem", "cert.pem", "key.pem"), strict=True)}
    options = [word for name, file in files.items() for word in (f"--{name.replace('_', '-')}", file)]
    address = f"tls://127.0.0.1:{free_port}"
    start_dask("scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port", free_port, *options)
    start_dask("worker", address, "--nthreads", 1, "--memory-limit", "1GiB", *options)
    with connect(scheduler=address, **files) as client:
        assert client.submit(abs, -2).result() == 2
        assert all(worker.startswith("tls://") for worker in client.nthreads())
    with (
        pytest.raises(ClusterLostError, match="both sides use TLS or neither"),
        connect(scheduler=f"tcp://127.0.0.1:{free_port}", wait=2),
    ):
        pytest.fail("connected")
    assert runtime.default_client() is None, "a client that failed stayed the default one"
