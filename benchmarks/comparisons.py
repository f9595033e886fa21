"""The comparisons of the five papers, made again from one batch file each, beside the figures that they print.

    python benchmarks/comparisons.py lee-kim-2016 [--sets yeast,enron] [--folder DIR] [--write]

Runs `docs/comparisons/NAME.yaml` on the sets that are named, or on all of the file, and goes on where it was
interrupted. Prints a table for every metric of the paper: our mean over splits and k, and its printed figure in
brackets; with --write those that docs/comparisons.md shows are renewed. `mlfs compare` of the batch folder, which is
named at the end, has the tests over data sets. Data sets are read from $MLFS_DATA.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from real_sets import make_store, markdown, replace_table

import mlfs_dask as mlfs

DOCS = Path(__file__).parents[1] / "docs"


def read_plan(name: str, sets: list[str] | None, folder: Path) -> dict[str, Any]:
    """The plan of a comparison on stores in the folder."""
    plan: dict[str, Any] = yaml.safe_load((DOCS / "comparisons" / f"{name}.yaml").read_text())
    names = [Path(store).stem for store in plan["stores"]]
    plan["stores"] = [make_store(each, folder) for each in names if sets is None or each in sets]
    return plan


def tables(name: str, results: pd.DataFrame) -> dict[str, str]:
    """Tables in Markdown, by evaluation and metric: a row a data set, a column a method."""
    printed = pd.read_csv(DOCS / "comparisons" / "printed.csv")
    keys = ["dataset", "method", "metric"]
    found = {}
    for evaluation, part in results.groupby("evaluation"):
        title = name if results["evaluation"].nunique() == 1 else f"{name} {evaluation}"
        paper = printed[printed["comparison"] == title].set_index(keys)["value"]
        ours = part.groupby(["metric", "dataset", "run"])["value"].mean()
        runs = list(dict.fromkeys(part["run"]))
        for metric in dict.fromkeys(printed["metric"]):
            if metric not in paper.index.get_level_values("metric") or metric not in ours.index.get_level_values(0):
                continue
            rows = []
            for dataset in dict.fromkeys(part["dataset"]):
                cells = [dataset]
                for run in runs:
                    value = ours.get((metric, dataset, run))
                    given = paper.get((dataset, run, metric))
                    own = "–" if value is None else f"{value:.3f}"
                    cells.append(own if given is None else f"{own} ({given:.3f})")
                rows.append(cells)
            found[f"{title} {metric}"] = markdown([metric, *runs], rows)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(path.stem for path in (DOCS / "comparisons").glob("*.yaml")))
    parser.add_argument("--sets", help="names, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-comparisons"))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    plan = read_plan(arguments.name, arguments.sets and arguments.sets.split(","), arguments.folder)
    batch = arguments.folder / arguments.name
    results = mlfs.run_batch(plan, batch, resume=batch.exists()).results
    page = DOCS / "comparisons.md"
    for name, table in tables(arguments.name, results).items():
        print(f"\n{name}\n\n{table}")
        if arguments.write and f"<!-- table {name} -->" in page.read_text():
            replace_table(page, name, table)
    print(f"\n{batch}")


if __name__ == "__main__":
    main()
