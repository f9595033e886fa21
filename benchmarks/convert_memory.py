"""Peak memory of a conversion on a file ten times its limit, and its speed.

Writes a text file of the given size (one block of rows, repeated), converts it in a process of its own, and
samples the resident memory of the whole process tree.

    python benchmarks/convert_memory.py --format svmlight --megabytes 2700 --memory-limit 256MiB
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

SEED = 20240607


def make_file(path: Path, form: str, size: int) -> None:
    """Write at least `size` bytes: svmlight (60 nonzeros of 100 000 a row) or CSV (200 columns), 20 labels."""
    generator = np.random.default_rng(SEED)
    rows = 4000
    if form == "svmlight":
        lines = []
        for _ in range(rows):
            labels = np.sort(generator.choice(20, 3, replace=False))
            columns = np.sort(generator.choice(100_000, 60, replace=False)) + 1
            values = generator.random(60)
            pairs = " ".join(f"{column}:{value:.6f}" for column, value in zip(columns, values, strict=True))
            lines.append(",".join(map(str, labels)) + " " + pairs)
        header = ""
    else:
        values = generator.normal(size=(rows, 200))
        labels = generator.random((rows, 20)) < 0.15
        lines = [
            ",".join([*(f"{v:.6f}" for v in row), *("1" if flag else "0" for flag in flags)])
            for row, flags in zip(values, labels, strict=True)
        ]
        header = ",".join([*(f"f{i}" for i in range(200)), *(f"label{i}" for i in range(20))]) + "\n"
    block = ("\n".join(lines) + "\n").encode()
    with path.open("wb") as file:
        file.write(header.encode())
        for _ in range(-(-size // len(block))):
            file.write(block)


def tree_rss(process: psutil.Process) -> int:
    """Resident bytes of a process and its descendants (shared pages counted each time)."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def measure(source: Path, form: str, limit: int, workers: int) -> dict[str, object]:
    """Convert on the command line and return seconds and the peak bytes of the process tree."""
    folder = Path(tempfile.mkdtemp(dir=source.parent))
    command = [sys.executable, "-m", "mlfs_dask", "convert", str(source), str(folder / "out.zarr")]
    command += ["--format", form, "--memory-limit", str(limit), "--workers", str(workers), "--json", "--quiet"]
    if form == "csv":
        command += ["--n-labels", "20"]
    process = psutil.Popen(command, stdout=subprocess.PIPE)
    peak = 0
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            peak = max(peak, tree_rss(process))
        time.sleep(0.01)
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the conversion failed with exit code {process.returncode}")
    result = json.loads(output)
    shutil.rmtree(folder)
    size = source.stat().st_size
    return {
        "format": form,
        "source_mb": round(size / 1e6),
        "rows": result["n"],
        "memory_limit_mib": limit >> 20,
        "peak_mib": peak >> 20,
        "workers": workers,
        "seconds": result["seconds"],
        "mb_per_second": round(size / 1e6 / result["seconds"], 1),
        "within_limit": peak <= limit,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=["svmlight", "csv"], default="svmlight")
    parser.add_argument("--megabytes", type=int, default=2700)
    parser.add_argument("--memory-limit", default="256MiB")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    from dask.utils import parse_bytes

    limit = parse_bytes(arguments.memory_limit)
    source = arguments.folder / f"mlfs-memory-{arguments.megabytes}.{arguments.format}"
    if not source.exists():
        make_file(source, arguments.format, arguments.megabytes * 10**6)
    try:
        result = measure(source, arguments.format, limit, arguments.workers)
    finally:
        source.unlink()
    result["python"] = platform.python_version()
    result["numpy"] = np.__version__
    print(json.dumps(result, indent=2))
    if not result["within_limit"]:
        raise SystemExit("the process tree passed the memory limit")


if __name__ == "__main__":
    main()
