"""Write the tables of benchmarks, and those of anchors in quality.md, into benchmarks/results from what was left there.

    python benchmarks/table.py    [--results DIR]

A benchmark of the iterative selectors that has left none has its command there, and no table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import anchors
import gram
import iterative
from anchors import GRID_SETS
from real_sets import replace_table

HERE = Path(__file__).parent
ORDER = ("dense", "sparse", "workers", "peers", "growth", "wide", "small", "greedy", "answers", "conversion")
LOAD = ("object-store", "partitions", "length", "clients", "estimate")
USAGE = {"MiB": "MiB", "files": "open files", "threads": "threads", "disk_MiB": "disk MiB"}
WHEN = {"early": "early", "late": "at the end"}
COLUMNS = {
    "exact": "exact",
    "anchors": "anchors",
    **dict.fromkeys(GRID_SETS),
    "mean": "mean",
    "difference": "difference, points",
    "error": "±",
    "exact_iterations": "iterations, exact",
    "anchors_iterations": "iterations, anchors",
    "exact_seconds": "seconds, exact",
    "anchors_seconds": "seconds, anchors",
    "seconds": "seconds",
    "target_seconds": "aim",
    "iteration_seconds": "an iteration, s",
    "iteration_ratio": "ratio",
    "reading_seconds": "a reading, s",
    "reading_ratio": "ratio",
    "ratio_to_read": "ratio to the read",
    "ratio": "ratio to the peer",
    "speedup": "speed-up",
    "ratio_to_disk": "ratio to disk",
    "ratio_to_server": "ratio to the server",
    "requests": "requests",
    "seconds_a_selection": "seconds a selection",
    "same_ranking": "the same ranking",
    "ms_per_partition": "ms a partition",
    "partitions": "partitions",
    "hours": "hours",
    "reading_s": "a reading, s",
    "overhead_s": "of partitions, s",
    "tasks_a_reading": "tasks a reading",
    "scheduler_s": "of tasks, s",
    "opening_seconds": "opening, s",
    "client_growth_MiB": "client growth MiB",
    "metadata_MiB": "root metadata MiB",
    "source_MiB": "sent to a worker MiB",
    "selections": "selections",
    **{f"{what}_{when}": f"{name}, {word}" for what, name in USAGE.items() for when, word in WHEN.items()},
    "reading_speedup": "speed-up of a reading",
    "MB_per_second": "MB/s",
    "log_log_slope": "log-log slope",
    "reading_slope": "slope of a reading",
    "memory_slope": "slope of peak",
    "driver_memory_slope": "slope of driver peak",
    "worker_cpu_seconds": "CPU seconds",
    "cpu_seconds": "CPU seconds",
    "driver_cpu_seconds": "CPU seconds, driver",
    "share_outside": "CPU outside",
    "peak_worker_MiB": "peak MiB",
    "peak_MiB": "peak MiB",
    "of_without": "of without",
    "of_one label": "of one label",
    "of_plink2": "of plink2",
    "planned_MiB": "planned MiB",
    "peak_ratio": "ratio of peak",
    "peak_driver_MiB": "driver peak MiB",
    "planned_driver_MiB": "driver planned MiB",
    "driver_peak_ratio": "ratio of driver peak",
    "largest_array_worker_MiB": "largest array MiB, worker",
    "largest_array_driver_MiB": "largest array MiB, driver",
    "iterations": "iterations",
    "converged": "converged",
    "passes": "passes",
    "tasks": "tasks",
    "largest_difference": "largest difference of scores",
    "skipped": "not judged",
}
COLUMNS = {key: name or key for key, name in COLUMNS.items()}

#: Values of average precision, which are shown to four digits, and differences of them.
PRECISIONS = ("exact", "anchors", "mean", *GRID_SETS)

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
    if key in PRECISIONS:
        return f"{value:.4f}"
    if key == "share_outside":
        return f"{value:.0%}"
    if key in ("difference", "error"):
        return f"{value:+.1f}" if key == "difference" else f"{value:.1f}"
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=iterative.KEPT, help="of the iterative selectors")
    options = parser.parse_args()
    documents = {name: json.loads((HERE / "results" / f"{name}.json").read_text()) for name in ORDER}
    text = INTRODUCTION.format(cores=documents["dense"]["cores"], versions=versions(documents["dense"]))
    for name, document in documents.items():
        text += section(name, document) + f"\n{table(document['rows'])}\n\n"
    described = {name: ("iterative", iterative.describe(name)) for name in iterative.DESCRIPTIONS}
    described |= {name: ("gram", description) for name, description in gram.DESCRIPTIONS.items()}
    for name, (program, description) in described.items():
        title, path = f"iterative selectors: {name}", options.results / f"{name}.json"
        if path.exists():
            document = json.loads(path.read_text())
            text += section(title, document) + f"\n{table(document['rows'])}\n\n{measured_on(document)}\n\n"
        else:
            command = f"python benchmarks/{program}.py {name}"
            text += section(title, {"description": description, "command": command}) + "\n"
    text += where_time_goes()
    for name in LOAD:
        document = json.loads((HERE / "results" / f"{name}.json").read_text())
        text += f"\n\n{section(name, document)}\n{table(document['rows'])}\n\n{measured_on(document)}"
    page = HERE / "results" / "benchmarks.md"
    written = {part.partition("\n")[0] for part in text.split("\n## ")}
    for part in page.read_text().split("\n## ")[1:]:
        if part.partition("\n")[0] not in written:  # measured by a program that leaves no results here
            text = f"{text.rstrip()}\n\n## {part}"
    page.write_text(text.rstrip() + "\n")
    for name in anchors.DESCRIPTIONS:
        path = options.results / f"anchors-{name}.json"
        if path.exists():
            document = json.loads(path.read_text())
            rows = {label: {**row.pop("of_sets", {}), **row} for label, row in document["rows"].items()}
            text = f"{document['description']}.\n\n{table(rows)}\n\n{measured_on(document)}"
            replace_table(HERE / "results" / "quality.md", f"anchors-{name}", text)


def section(title: str, document: dict[str, Any]) -> str:
    """Heading, description and command."""
    return f"## {title}\n\n{document['description']}\n\n    {document['command']}\n"


def versions(document: dict[str, Any]) -> str:
    """Of Python and of packages."""
    told = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    return f"Python {document['python']}, {told}"


def measured_on(document: dict[str, Any]) -> str:
    """The machine and the versions of one table."""
    return f"{document['machine']}, {document['cores']} cores. {versions(document)}."


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
