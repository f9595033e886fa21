"""What the benchmarks share: figures measured in fresh clusters and processes, and the files that keep them."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
GIB = 2**30


def drop_pages(store: Path) -> None:
    """Have the system forget the cached pages of a folder or file."""
    for path in [store] if store.is_file() else store.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def shards_of(store: Path) -> list[Path]:
    """The shards of a dense X."""
    return [path for path in sorted((store / "X").rglob("*")) if path.is_file() and path.name != "zarr.json"]


def warm_pages(store: Path) -> None:
    """Read every file of a folder once."""
    for path in [store] if store.is_file() else store.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(2**24):
                    pass


def in_cluster(
    function: Callable[[Any], dict[str, Any]],
    store: Path,
    *,
    workers: int = 2,
    memory: int = GIB,
    cold: bool = False,
    repeats: int = 3,
    loaded: bool = False,
) -> dict[str, Any]:
    """Median seconds and largest worker peak of `function(client)`, each time in a new cluster of worker processes.

    `function` returns facts of its own; the seconds are measured around it, after the workers are there. With
    `loaded` it is run once before, so that loading the compiled kernels (half a second a worker) is not counted.
    """
    from mlfs_dask import runtime
    from mlfs_dask.cluster.connect import connect

    seconds, cpu, peaks, facts = [], [], [], {}
    for _ in range(repeats):
        drop_pages(store) if cold else warm_pages(store)
        with connect(workers=workers, memory_limit=memory) as client:
            if loaded:
                function(client)
            client.run(runtime.reset_peak_rss)
            used = sum(client.run(time.process_time).values())
            started = time.perf_counter()
            facts = function(client)
            seconds.append(time.perf_counter() - started)
            cpu.append(sum(client.run(time.process_time).values()) - used)
            peaks.append(max(client.run(runtime.peak_rss).values()))
            spilled = client.run(spilled_bytes)
    return {
        "seconds": statistics.median(seconds),
        "all_seconds": [round(s, 3) for s in seconds],
        "worker_cpu_seconds": statistics.median(cpu),
        "peak_worker_MiB": max(peaks) / 2**20,
        "spilled_bytes": sum(spilled.values()),
        **facts,
    }


def bind_workers(client: Any) -> None:
    """Worker i of the cluster runs on core i alone."""
    cores = sorted(os.sched_getaffinity(0))
    for i, address in enumerate(sorted(client.scheduler_info(n_workers=-1)["workers"])):
        client.run(_bind, cores[i % len(cores)], workers=[address])


def _bind(core: int) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def spilled_bytes(dask_worker: Any) -> int:
    """Bytes that a worker has written to disk for want of memory; 0 where spilling is off."""
    disk = getattr(dask_worker.data, "disk", None)
    return 0 if disk is None else int(disk.total_weight)


def selection(
    name: str, store: Path, *, k: int = 10, keep_scores: bool = False, **parameters: Any
) -> Callable[[Any], dict[str, Any]]:
    """Fit a selector on a store inside the current cluster."""

    def fit(client: Any) -> dict[str, Any]:
        from mlfs_dask.selection.estimator import get_estimator
        from mlfs_dask.storage.opening import open_dataset

        selector = get_estimator(name)(n_features_to_select=k, **parameters).fit(open_dataset(store))
        report = selector.report_
        return {
            **({"scores": selector.scores_.tolist()} if keep_scores else {}),
            "planned_MiB": report.plan["peak_worker_bytes"] / 2**20,
            "passes": report.passes,
            "tasks": report.tasks,
            "bytes_read": report.bytes_read,
        }

    return fit


def plain_read(store: Path) -> Callable[[Any], dict[str, Any]]:
    """Read X with `da.from_zarr` and keep nothing of it."""

    def read(client: Any) -> dict[str, Any]:
        import dask
        import dask.array as da
        import zarr

        group = zarr.open_group(store, mode="r")
        keys = (
            ["X"]
            if "encoding-type" in group["X"].attrs and group["X"].attrs["encoding-type"] == "array"
            else [
                "X/data",
                "X/indices",
                "X/indptr",
            ]
        )
        parts, tasks = [], 0
        for key in keys:
            array = da.from_zarr(str(store), component=key)
            small = array.map_blocks(nothing, dtype=np.int8, chunks=tuple((1,) * len(c) for c in array.chunks))
            parts.append(small.sum())
            tasks += array.npartitions
        dask.compute(*parts)
        return {"tasks": tasks}

    return read


def nothing(block: np.ndarray) -> np.ndarray:
    return np.zeros((1,) * block.ndim, dtype=np.int8)


def in_process(code: str, *, repeats: int = 3, before: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Run Python code in new processes; it prints a JSON object whose "seconds" are reported as the median."""
    found: list[dict[str, Any]] = []
    for _ in range(repeats):
        before()
        done = subprocess.run(
            [sys.executable, "-c", code + PEAK],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    middle = sorted(found, key=lambda f: f["seconds"])[len(found) // 2]
    return {**middle, "all_seconds": [round(f["seconds"], 3) for f in found]}


# The resource usage of a process begins with that of the process it was forked from; VmHWM does not.
PEAK = """
import json
from mlfs_dask.runtime import peak_rss
facts.setdefault("peak_worker_MiB", peak_rss() / 2**20)
print(json.dumps(facts))
"""


def report(
    program: str, results: Path, name: str, description: str, rows: dict[str, dict[str, Any]], options: str = ""
) -> None:
    """Print rows and keep them in results/NAME.json, with versions, machine and the command `program name options`."""
    results.mkdir(exist_ok=True)
    document = {
        "description": description,
        "command": f"python benchmarks/{program}.py {name} {options}".rstrip(),
        **environment(),
        "rows": rows,
    }
    (results / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    print(description)
    for label, row in rows.items():
        print(f"  {label}: {brief(row)}")


def environment() -> dict[str, Any]:
    """Versions, cores and machine."""
    from mlfs_dask.runtime import available_cores

    packages = ("mlfs-dask", "numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "numba")
    return {
        "python": platform.python_version(),
        "versions": {package: importlib.metadata.version(package) for package in packages},
        "cores": available_cores(),
        "machine": machine(),
    }


def machine() -> str:
    """Processor and memory, as Linux tells them."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.processor() or platform.machine()
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{model}, {size / GIB:.0f} GiB"


def brief(facts: dict[str, Any]) -> str:
    """Facts on one line, without the longest of them."""
    return ", ".join(
        f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in facts.items()
        if name not in ("objective", "extra", "all_seconds")
    )


# ---------------------------------------------------------------------------------------------------------
# The largest array

_largest: tuple[int, str, tuple[int, ...]] = (0, "", ())


def watch_arrays() -> None:
    """From now on note the largest array, dense or part of a sparse one, of all names in functions of the package.

    Functions are looked into as they return, in this thread and in those that start later.
    """
    import threading

    threading.setprofile(_look)
    sys.setprofile(_look)


def largest_array() -> tuple[int, str, tuple[int, ...]]:
    """Bytes, place in the code and shape of what `watch_arrays` has seen."""
    return _largest


def sees_planted_array(size: int) -> bool:
    """Whether a watched process notices an array of so many bytes in the package, which it then forgets."""
    global _largest
    names: dict[str, Any] = {"np": np}
    code = f"def plant():\n    planted = np.empty({size}, np.uint8)\n    return 0\n"
    exec(compile(code, "mlfs_dask/planted.py", "exec"), names)
    before = _largest
    names["plant"]()
    seen = _largest == (size, "planted.py:plant", (size,))
    _largest = before
    return seen


def _look(frame: Any, event: str, argument: Any) -> None:
    global _largest
    if event != "return" or "mlfs_dask" not in frame.f_code.co_filename:
        return
    for value in (*frame.f_locals.values(), argument):
        parts = (value.data, value.indices) if hasattr(value, "indptr") else (value,)
        for part in parts:
            if isinstance(part, np.ndarray) and held_bytes(part) > _largest[0]:
                name = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
                _largest = (held_bytes(part), name, tuple(value.shape))


def held_bytes(array: np.ndarray) -> int:
    """Bytes of an array; of one that repeats its entries, as plans have them, those that there are.

    >>> held_bytes(np.zeros((2, 3))), held_bytes(np.broadcast_to(0.0, (2, 3)))
    (48, 8)
    """
    sizes = (size if stride else min(size, 1) for size, stride in zip(array.shape, array.strides, strict=True))
    return math.prod(sizes) * array.itemsize
