"""Write docs/benchmarks.md from the results that `passes.py` and `iterative.py` have left.

python benchmarks/table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ORDER = ("dense", "sparse", "workers", "peers", "growth", "wide", "small", "conversion")
GRAPHS = ("rows", "texts", "points", "masses")
ITERATIVE = ("small", "medium", "wide", "large", "growth", "cap", "readings")
COLUMNS = {
    "seconds": "seconds",
    "target_seconds": "aim",
    "search_seconds": "of which search",
    "ratio_to_read": "ratio to the read",
    "ratio": "ratio to the peer",
    "speedup": "speed-up",
    "MB_per_second": "MB/s",
    "log_log_slope": "log-log slope",
    "memory_slope": "slope of peak",
    "driver_memory_slope": "slope of driver peak",
    "worker_cpu_seconds": "CPU seconds",
    "cpu_seconds": "CPU seconds",
    "driver_cpu_seconds": "CPU seconds, driver",
    "added_MiB": "MiB beside the data",
    "planned_added_MiB": "planned MiB beside it",
    "peak_worker_MiB": "peak MiB",
    "planned_MiB": "planned MiB",
    "peak_driver_MiB": "driver peak MiB",
    "planned_driver_MiB": "driver planned MiB",
    "largest_array_worker_MiB": "largest array MiB, worker",
    "largest_array_driver_MiB": "largest array MiB, driver",
    "iterations": "iterations",
    "widenings": "widenings an iteration",
    "converged": "converged",
    "graph": "graph",
    "recall": "recall",
    "passes": "passes",
    "tasks": "tasks",
    "largest_difference": "largest difference of scores",
}

INTRODUCTION = """# Benchmarks

Seconds are medians of whole jobs on one machine with {cores} cores, measured by the command above each table; read them
as ratios to the rows beside them. Other work shared the cores, so the commands were given real-time priority
(`chrt -r 8`); memory and disk they still shared. `peak` is the largest worker process as the operating system counts
it, pages of a memory map among them, `planned` what `mlfs plan` had said. No worker spilled to disk.
Versions: {versions}.

"""


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Rows as Markdown, with the columns that any of them has."""
    columns = [key for key in COLUMNS if any(key in row for row in rows.values())]
    lines = ["| | " + " | ".join(COLUMNS[key] for key in columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for label, row in rows.items():
        cells = [_cell(key, row[key]) if row.get(key) is not None else "" for key in columns]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(key: str, value: Any) -> str:
    if key == "largest_difference":
        return f"{value:.1g}"
    if key.endswith("_MiB"):
        return f"{value:,.0f}"
    if isinstance(value, (bool, str)):
        return value if isinstance(value, str) else ("no", "yes")[value]
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{value:,}"


def main() -> None:
    documents = {name: json.loads((HERE / "results" / f"{name}.json").read_text()) for name in ORDER}
    first = documents["dense"]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    text = INTRODUCTION.format(cores=first["cores"], versions=f"Python {first['python']}, {versions}")
    for name in ITERATIVE:
        path = HERE / "results" / "iterative" / f"{name}.json"
        if path.exists():
            documents[f"iterative selectors: {name}"] = json.loads(path.read_text())
    for name in GRAPHS:
        path = HERE / "results" / "graphs" / f"{name}.json"
        if path.exists():
            documents[f"neighbour graphs: {name}"] = json.loads(path.read_text())
    for name, document in documents.items():
        text += f"## {name}\n\n{document['description']}\n\n    {document['command']}\n\n{table(document['rows'])}\n\n"
    text += where_time_goes()
    (HERE.parent / "docs" / "benchmarks.md").write_text(text.rstrip() + "\n")


def where_time_goes() -> str:
    """What the profile of the passes over the store of `dense` says."""
    jobs = json.loads((HERE / "results" / "where_time_goes.json").read_text())
    activities = list(dict.fromkeys(activity for job in jobs.values() for activity in job["activities"]))
    lines = ["| share of the time in which threads do something | " + " | ".join(jobs) + " |"]
    lines.append("| --- |" + " ---: |" * len(jobs))
    for activity in activities:
        cells = [f"{job['activities'][activity]:.0%}" if activity in job["activities"] else "" for job in jobs.values()]
        lines.append(f"| {activity} | " + " | ".join(cells) + " |")
    return (
        "## where the time goes\n\nStore of `dense`, warm, both workers under py-spy. Files are read into buffers that "
        "are used again, by a thread\nof their own; Zarr's copies and Dask's messages, three quarters of a plain read, "
        "fall away.\n\n    python benchmarks/where_time_goes.py\n\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
