"""Which workers take part: real schedulers and workers, some of which run other code, are frozen, or come late."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import mlfs_dask as mlfs
from mlfs_dask import runtime
from mlfs_dask.cluster import admission
from mlfs_dask.cluster.connect import connect
from mlfs_dask.engine import workers
from mlfs_dask.errors import ClusterLostError

StartDask = Callable[..., "subprocess.Popen[bytes]"]

pytestmark = pytest.mark.cluster

PACKAGE = Path(mlfs.__file__).parent


@pytest.fixture
def scheduler_file(tmp_path: Path, start_dask: StartDask) -> Path:
    file = tmp_path / "scheduler.json"
    start_dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", file)
    return file


@pytest.fixture
def start_worker(scheduler_file: Path, start_dask: StartDask) -> Callable[..., subprocess.Popen[bytes]]:
    """Start a worker; `preload` is a program that it runs first."""

    def start(preload: Path | None = None, *options: object, **how: Any) -> subprocess.Popen[bytes]:
        options = (*options, *([] if preload is None else ["--preload", preload]))
        return start_dask("worker", "--scheduler-file", scheduler_file, "--nthreads", 1, *options, **how)

    return start


@pytest.fixture
def other_code(tmp_path: Path) -> Path:
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


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    return X, (X[:, :2] > 0).astype(int)


def blocks() -> tuple[Any, Any]:
    X, Y = data()
    return da.from_array(X, chunks=(25, 5)), da.from_array(Y, chunks=(25, 2))


def fit() -> mlfs.ELC:
    return mlfs.ELC(n_features_to_select=2).fit(*blocks())


def test_a_worker_with_other_code_gets_no_task(
    scheduler_file: Path, start_worker: Callable[..., Any], other_code: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start_worker()
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        start_worker(other_code)
        client.wait_for_workers(2, timeout=60)
        assert runtime.current_resources().workers == 1
        selector = fit()
    assert selector.scores_ == pytest.approx(mlfs.ELC(n_features_to_select=2).fit(*data()).scores_)
    (refused,) = selector.report_.extra["refused_workers"]
    assert refused["host"] == "127.0.0.1"
    assert "has code of mlfs-dask" in refused["cause"]
    assert f"worker {refused['worker']} on 127.0.0.1 has code of mlfs-dask" in caplog.text


def test_no_worker_is_left(scheduler_file: Path, start_worker: Callable[..., Any], other_code: Path) -> None:
    start_worker(other_code)
    with pytest.raises(ClusterLostError) as caught, connect(scheduler_file=str(scheduler_file)):
        pytest.fail("connected")
    message = str(caught.value)
    assert "no worker of the cluster can take part" in message
    assert "install the same mlfs-dask" in message
    assert caught.value.exit_code == 5


WITHOUT_PACKAGE = "import sys\nsys.modules['mlfs_dask'] = sys.modules['mlfs_dask.cluster.admission'] = None\n"
WITHOUT_LIBRARY = """
import sys

class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name.partition(".")[0] in ("zarr", "numcodecs"):
            raise OSError("libblosc.so: cannot open shared object file")

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
    ("preload", "cause"),
    [(WITHOUT_PACKAGE, "ModuleNotFoundError"), (WITHOUT_LIBRARY, "OSError('libblosc.so: cannot open")],
    ids=["package", "library"],
)
def test_a_worker_without_what_it_needs(
    scheduler_file: Path,
    start_worker: Callable[..., Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    preload: str,
    cause: str,
) -> None:
    block = tmp_path / "block.py"
    block.write_text(preload)
    start_worker()
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        start_worker(block)
        client.wait_for_workers(2, timeout=60)
        assert fit().ranking_[:2].tolist() in ([0, 1], [1, 0])
    assert f"cannot load what it needs: {cause}" in caplog.text


def test_a_frozen_worker_is_left_out(
    scheduler_file: Path,
    start_worker: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(admission, "ANSWER_SECONDS", 1.5)
    other = start_worker()
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        frozen = start_worker()
        client.wait_for_workers(2, timeout=60)
        os.kill(frozen.pid, signal.SIGSTOP)
        assert fit().ranking_[:2].tolist() in ([0, 1], [1, 0])
    assert "did not answer within 1.5 s; it is left out" in caplog.text
    other.kill()
    other.wait()
    with pytest.raises(ClusterLostError) as caught, connect(scheduler_file=str(scheduler_file)):
        pytest.fail("connected")
    os.kill(frozen.pid, signal.SIGCONT)
    assert "no worker of the cluster can take part" in str(caught.value)
    assert "cure: look whether its process and its host run" in str(caught.value)
    assert "install" not in str(caught.value)


def test_a_worker_that_is_started_again_at_its_address_is_another_process(
    start_worker: Callable[..., Any],
    scheduler_file: Path,
    other_code: Path,
    tmp_path: Path,
    free_port: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As under the files in `deploy`, whose workers have fixed ports; in the end the package has been replaced."""
    preload, replaced = tmp_path / "replaced.py", tmp_path / "replaced"
    preload.write_text(
        "from pathlib import Path\n"
        f"if Path({str(replaced)!r}).exists():\n"
        f"    exec(Path({str(other_code)!r}).read_text())\n"
    )
    start_worker(preload, "--worker-port", free_port, nanny=True)

    def fit_while_killed(client: Any) -> mlfs.ELC:
        ((address, victim),) = client.run(os.getpid).items()
        assert address.endswith(f":{free_port}")

        def kill(event: dict[str, Any]) -> None:
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


def test_a_worker_whose_compiler_does_not_load(
    scheduler_file: Path, start_worker: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked for nothing that takes memory: that its kernels do not load is seen in the first task with them."""
    (tmp_path / "broken" / "numba").mkdir(parents=True)
    (tmp_path / "broken" / "numba" / "__init__.py").write_text("raise OSError('no libllvmlite.so')\n")

    start_worker(prefix=("env", f"PYTHONPATH={tmp_path / 'broken'}"))
    start_worker()
    with connect(scheduler_file=str(scheduler_file), min_workers=2):
        selector = mlfs.MFSIR(n_features_to_select=2, graph="anchors", n_anchors=10, tol=1.0).fit(*blocks())
    (refused,) = selector.report_.extra["refused_workers"]
    assert refused["cause"] == "cannot load what tasks need: OSError('no libllvmlite.so')"
    assert refused["cure"].startswith("install the same mlfs-dask and the same libraries on every worker")
    assert "the reading is repeated without the workers that are left out" in caplog.text


def test_a_pass_is_not_repeated_for_ever(
    scheduler_file: Path,
    start_worker: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every time a process took part that nobody finds afterwards, as of a worker that dies and comes back."""
    start_worker()
    with connect(scheduler_file=str(scheduler_file)):
        monkeypatch.setattr(workers, "code_here", lambda: "another")
        with pytest.raises(
            ClusterLostError, match="a reading was begun 4 times, and each time a worker took part"
        ) as caught:
            fit()
    assert caught.value.exit_code == 5
