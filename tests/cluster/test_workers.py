"""Which workers take part, and what becomes of them: real schedulers and workers.

Some of the workers run other code, are frozen, die, come late, or do not see the data.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import mlfs_dask as mlfs
from mlfs_dask import runtime
from mlfs_dask.cluster import workers as cluster_workers
from mlfs_dask.cluster.connect import connect
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine import graph
from mlfs_dask.errors import ClusterLostError, DataError
from tests.storage.stores import make_store, sample

pytestmark = pytest.mark.cluster

PACKAGE = Path(mlfs.__file__).parent


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory):
    """File of a scheduler whose workers are those of one test at a time; it forgets none for being silent."""
    folder = tmp_path_factory.mktemp("scheduler")
    options = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(folder / "scheduler.json")]
    with (folder / "log").open("wb") as log:
        words = [sys.executable, "-m", "dask", "scheduler", *options, "--no-dashboard"]
        patient = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "None"}
        process = subprocess.Popen(words, stdout=log, stderr=log, env=patient)
    yield folder / "scheduler.json"
    process.kill()
    process.wait()


@pytest.fixture
def start_worker(scheduler_file, start_dask):
    """Start a worker; `preload` is a program that it runs first."""

    def start(preload=None, *options, **how):
        options = (*options, *([] if preload is None else ["--preload", preload]))
        return start_dask("worker", "--scheduler-file", scheduler_file, "--nthreads", 1, *options, **how)

    return start


@pytest.fixture
def other_code(tmp_path):
    """What makes a worker load a copy of the package with one more comment."""
    copy = tmp_path / "other"
    shutil.copytree(PACKAGE, copy / "mlfs_dask", ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "mlfs_dask" / "blocks" / "entropy.py").open("a") as file:
        file.write("# altered\n")
    preload = tmp_path / "preload.py"
    preload.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(copy)!r})\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] == 'mlfs_dask']:\n"
        "    del sys.modules[name]\n"
    )
    return preload


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    return X, (X[:, :2] > 0).astype(int)


def blocks():
    X, Y = data()
    return da.from_array(X, chunks=(25, 5)), da.from_array(Y, chunks=(25, 2))


def fit():
    return mlfs.ELC(n_features_to_select=2).fit(*blocks())


@pytest.fixture
def store(tmp_path):
    (tmp_path / "store").mkdir()
    X, Y = sample(n=1600, sparse=False)
    return make_store(tmp_path / "store" / "t.zarr", X[:, 1:], abs(Y), partition_bytes=2000)


def rank(store):
    with mlfs.cache(None):
        selector = mlfs.LabelEntropy(n_features_to_select=2).fit(mlfs.open_dataset(store))
    return selector, selector.ranking_.tolist()


WITHOUT_PACKAGE = "import sys\nsys.modules['mlfs_dask'] = sys.modules['mlfs_dask.cluster.workers'] = None\n"
WITHOUT_LIBRARY = """
import sys

class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name.partition(".")[0] in ("zarr", "numcodecs"):
            raise OSError("libblosc.so: cannot open shared object file")

sys.meta_path.insert(0, Finder)
"""


def test_workers_with_other_code_or_without_what_they_need_get_no_task(
    scheduler_file, start_worker, other_code, tmp_path, caplog
):
    preloads = [other_code]
    for name, text in (("package", WITHOUT_PACKAGE), ("library", WITHOUT_LIBRARY)):
        preloads.append(tmp_path / f"{name}.py")
        preloads[-1].write_text(text)
    works = start_worker()
    with connect(scheduler_file=str(scheduler_file)) as client:
        for preload in preloads:
            start_worker(preload)
        client.wait_for_workers(4, timeout=60)
        assert current_resources().workers == 1
        selector = fit()
    assert selector.scores_ == pytest.approx(mlfs.ELC(n_features_to_select=2).fit(*data()).scores_)
    refused = selector.report_.extra["refused_workers"]
    assert {worker["host"] for worker in refused} == {"127.0.0.1"}
    for cause in (
        "has code of mlfs-dask",
        "cannot load what it needs: ModuleNotFoundError",
        "cannot load what it needs: OSError('libblosc.so: cannot open",
    ):
        (worker,) = [worker for worker in refused if worker["cause"].startswith(cause)]
        assert f"worker {worker['worker']} on 127.0.0.1 {cause}" in caplog.text
    works.kill()
    works.wait()
    with pytest.raises(ClusterLostError) as caught, connect(scheduler_file=str(scheduler_file)):
        pytest.fail("connected")
    assert "no worker of the cluster can take part" in str(caught.value)
    assert "install the same mlfs-dask" in str(caught.value)
    assert caught.value.exit_code == 5


def test_a_frozen_worker_is_left_out(scheduler_file, start_worker, monkeypatch, caplog):
    works, freezes_late = start_worker(), start_worker()
    with connect(scheduler_file=str(scheduler_file), min_workers=2) as client:
        monkeypatch.setattr(cluster_workers, "ANSWER_SECONDS", 1.5)
        monkeypatch.setattr(cluster_workers, "GIVEN_UP_SECONDS", math.inf)  # it stays until it is asked a second time
        os.kill(freezes_late.pid, signal.SIGSTOP)  # it was admitted, and does not hold up what is asked of all
        resources = current_resources()
        assert resources.workers == 2
        assert resources.process_bytes >= runtime.PROCESS_BYTES
        freezes_late.kill()
        freezes_late.wait()
        while len(client.scheduler_info(n_workers=-1)["workers"]) > 1:
            time.sleep(0.05)
        frozen = start_worker()
        client.wait_for_workers(2, timeout=60)
        os.kill(frozen.pid, signal.SIGSTOP)
        assert fit().ranking_[:2].tolist() in ([0, 1], [1, 0])
    assert "did not answer within 1.5 s; it is left out" in caplog.text
    works.kill()
    works.wait()
    with pytest.raises(ClusterLostError) as caught, connect(scheduler_file=str(scheduler_file)):
        pytest.fail("connected")
    frozen.kill()
    assert "no worker of the cluster can take part" in str(caught.value)
    assert "cure: look whether its process and its host run" in str(caught.value)
    assert "install" not in str(caught.value)


def test_a_worker_that_is_started_again_at_its_address_is_another_process(
    start_worker, scheduler_file, other_code, tmp_path, free_port, caplog
):
    """As under the files in `deploy`, whose workers have fixed ports; in the end the package has been replaced."""
    preload, replaced = tmp_path / "replaced.py", tmp_path / "replaced"
    preload.write_text(
        "from pathlib import Path\n"
        f"if Path({str(replaced)!r}).exists():\n"
        f"    exec(Path({str(other_code)!r}).read_text())\n"
    )
    start_worker(preload, "--worker-port", free_port, nanny=True)

    def fit_while_killed(client):
        ((address, victim),) = client.run(os.getpid).items()
        assert address.endswith(f":{free_port}")

        def kill(event):
            nonlocal victim
            if event["kind"] == "pass" and victim:
                os.kill(victim, signal.SIGKILL)
                victim = 0

        with runtime.progress_to(kill):
            return fit()

    with connect(scheduler_file=str(scheduler_file)) as client:
        selector = fit_while_killed(client)
        assert selector.scores_ == pytest.approx(mlfs.ELC(n_features_to_select=2).fit(*data()).scores_)
        assert "refused_workers" not in selector.report_.extra
        assert "repeated" not in caplog.text
        replaced.touch()
        with pytest.raises(ClusterLostError, match=r"no worker of .* can take part: .* has code of mlfs-dask"):
            fit_while_killed(client)


def test_a_worker_whose_compiler_does_not_load(scheduler_file, start_worker, tmp_path, caplog):
    """It is asked for nothing that takes memory: that its kernels do not load is seen in the first task with them."""
    (tmp_path / "broken" / "numba").mkdir(parents=True)
    (tmp_path / "broken" / "numba" / "__init__.py").write_text("raise OSError('no libllvmlite.so')\n")

    start_worker(prefix=("env", f"PYTHONPATH={tmp_path / 'broken'}"))
    start_worker()
    with connect(scheduler_file=str(scheduler_file), min_workers=2):
        many = (da.from_array(np.tile(a, (10, 1)), chunks=(600, -1)) for a in data())  # few need no kernels
        selector = mlfs.MFSIR(n_features_to_select=2, graph="anchors", n_anchors=10, tol=1.0).fit(*many)
    (refused,) = selector.report_.extra["refused_workers"]
    assert refused["cause"] == "cannot load what tasks need: OSError('no libllvmlite.so')"
    assert refused["cure"].startswith("install the same mlfs-dask and the same libraries on every worker")
    assert "the pass is repeated without the excluded workers" in caplog.text


def test_a_pass_is_not_repeated_for_ever(scheduler_file, start_worker, monkeypatch, caplog):
    """Every time a process took part that nobody finds afterwards, as of a worker that dies and comes back."""
    start_worker()
    with connect(scheduler_file=str(scheduler_file)):
        monkeypatch.setattr(graph, "code_here", lambda: "another")
        with pytest.raises(
            ClusterLostError, match="a pass was begun 4 times, and each time a worker had to be left out"
        ) as caught:
            fit()
    assert caught.value.exit_code == 5


def test_a_worker_that_is_frozen_in_a_pass(store, scheduler_file, start_dask, monkeypatch, caplog):
    """Only heartbeats count then: it is named after four that were missed, and given up after ten."""
    monkeypatch.setattr(cluster_workers, "NAMED_SECONDS", 0.0)
    monkeypatch.setattr(cluster_workers, "GIVEN_UP_SECONDS", 0.0)
    monkeypatch.setattr(cluster_workers, "LOOK_SECONDS", 0.25)
    _, expected = rank(store)
    workers = [start_dask("worker", "--scheduler-file", scheduler_file, "--nthreads", 1) for _ in range(2)]
    frozen = []

    def freeze(event):
        if event["kind"] == "partitions" and not frozen:
            frozen.append(workers[1].pid)
            os.kill(workers[1].pid, signal.SIGSTOP)

    with connect(scheduler_file=str(scheduler_file)) as client, runtime.progress_to(freeze):
        client.wait_for_workers(2, timeout=60)
        found = rank(store)[1]
        os.kill(workers[1].pid, signal.SIGKILL)
    assert found == expected
    named, given_up = [r.getMessage() for r in caplog.records if r.name == cluster_workers.__name__]
    assert "on 127.0.0.1 has not answered for " in named
    assert re.search(r"its \d+ partitions go to others after 5 s", named)
    assert "is given up; other workers take over its work" in given_up


def test_a_worker_that_does_not_see_the_store(store, scheduler_file, start_dask, caplog):
    """Its mounts are its own, and an empty disk lies over the folder of the store."""
    mount = f'mount -t tmpfs tmpfs {store.parent} && exec "$@"'
    hidden = ("unshare", "--mount", "sh", "-c", mount, "sh")
    made = subprocess.run([*hidden, "true"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no process can have mounts of its own here: {made.stderr.decode().strip()}")
    _, expected = rank(store)
    options = ("--scheduler-file", scheduler_file, "--nthreads", 1)
    start_dask("worker", *options, prefix=hidden)
    with pytest.raises(DataError) as caught, connect(scheduler_file=str(scheduler_file)):
        rank(store)
    assert str(caught.value).startswith(f"{store}: there is no such store on the hosts of the workers (127.0.0.1)")
    assert "cure: workers read the store themselves: they need it at the same path or URL" in str(caught.value)
    start_dask("worker", *options)
    with connect(scheduler_file=str(scheduler_file)) as client:
        client.wait_for_workers(2, timeout=60)
        selector, found = rank(store)
    assert found == expected
    (refused,) = selector.report_.extra["refused_workers"]
    assert refused["cause"] == f"does not see the data: {store}: there is no such store"
    assert "it is left out" in caplog.text
    assert "the pass is repeated without the excluded workers" in caplog.text
