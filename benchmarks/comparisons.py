"""The comparisons of the five papers, made again from one batch file each, beside the figures that they print.

    python benchmarks/comparisons.py lee-kim-2016 [--sets yeast,enron] [--folder DIR] [--write]

Runs `docs/comparisons/NAME.yaml` on the sets that are named, or on all of the file, and goes on where it was
interrupted. Prints a table for every metric of the paper: our mean over splits and k, and its printed figure in
brackets. --write puts our figures into docs/comparisons/ours.csv, and draws the picture of docs/explanation from it
and from the printed ones. The last table has, from these two files, the place of the paper's own method among those
compared with, the least and the largest figure of any, and Spearman's correlation of printed figures and ours over
methods. `mlfs compare` of the batch folder, which is named at the end, has the tests over data sets.
Data sets are read from $MLFS_DATA.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from real_sets import make_store, markdown

import mlfs_dask as mlfs

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "comparisons"
KEYS = ["comparison", "metric", "dataset", "method"]
#: One metric a paper, its own method, and whether large values are good.
PANELS = {
    "lee-kim-2016": ("Lee & Kim 2016", "ranking_loss", "label-entropy", False),
    "elc-2020": ("Wang et al. 2020", "average_precision", "elc", True),
    "smfs-2020 30-40": ("Xu & Zhao 2020", "average_precision", "smfs", True),
    "mfsir-2024": ("Mansouri et al. 2024", "macro_auc", "mfsir", True),
    "access-mfs-2024": ("Huang et al. 2024", "average_precision", "access-mfs", True),
}


def read_plan(name: str, sets: list[str] | None, without: list[str], folder: Path) -> dict[str, Any]:
    """The plan of a comparison on stores in the folder."""
    plan: dict[str, Any] = yaml.safe_load((DOCS / "comparisons" / f"{name}.yaml").read_text())
    names = [Path(store).stem for store in plan["stores"]]
    plan["methods"] = [method for method in plan["methods"] if method not in without]
    plan["stores"] = [make_store(each, folder) for each in names if sets is None or each in sets]
    return plan


def read_figures(name: str) -> pd.Series:
    """Printed figures, or ours, by comparison, metric, data set and method."""
    return pd.read_csv(FIGURES / f"{name}.csv").set_index(KEYS)["value"]


def our_figures(name: str, results: pd.DataFrame) -> pd.Series:
    """Means over splits and k of a batch, with the keys of the printed figures."""
    titles = name if results["evaluation"].nunique() == 1 else name + " " + results["evaluation"]
    return results.assign(comparison=titles, method=results["run"]).groupby(KEYS, sort=False)["value"].mean()


def tables(ours: pd.Series) -> dict[str, str]:
    """Tables in Markdown, by comparison and metric: a row a data set, a column a method."""
    printed = read_figures("printed").sort_index()
    found = {}
    for (title, metric), part in ours.groupby(level=[0, 1], sort=False):
        if (title, metric) not in printed.index:
            continue
        sets, methods = (list(dict.fromkeys(part.index.get_level_values(key))) for key in ("dataset", "method"))
        rows = []
        for each in sets:
            cells = [each]
            for method in methods:
                value, given = (of.get((title, metric, each, method)) for of in (part, printed))
                own = "–" if value is None else f"{value:.3f}"
                cells.append(own if given is None else f"{own} ({given:.3f})")
            rows.append(cells)
        found[f"{title} {metric}"] = markdown([metric, *methods], rows)
    return found


def ranks() -> str:
    """A table of where the paper's own method stands among the methods compared with, as printed and here."""
    both = pd.concat([read_figures("printed"), read_figures("ours")], axis=1, keys=["printed", "ours"]).dropna()
    rows = []
    for (comparison, metric, name), part in both.groupby(level=[0, 1, 2], sort=False):
        title = next((key for key in PANELS if key.partition(" ")[0] == comparison.partition(" ")[0]), "")
        if metric != PANELS[title][1]:
            continue
        own, rising = PANELS[title][2:]
        values = part.droplevel([0, 1, 2])
        values = values[~values.index.str.startswith(f"{own}-") & (values.index != "all")]
        places = values.rank(ascending=not rising, method="min").loc[own].astype(int)
        spans = [f"{values[of].min():.3f}–{values[of].max():.3f}" for of in ("printed", "ours")]
        order = values["printed"].corr(values["ours"], method="spearman") if values["ours"].nunique() > 1 else 0.0
        own_places = [f"{places[of]} of {len(values)}" for of in ("printed", "ours")]
        rows.append([comparison, metric, name, *own_places, *spans, f"{order:.2f}"])
    return markdown(["comparison", "metric", "set", "printed", "here", "span printed", "here", "order"], rows)


def draw(path: Path) -> None:
    """A panel a paper, a point a data set and method: the printed figure, and ours above or below it."""
    import matplotlib.pyplot as plt

    both = (
        pd.concat([read_figures("printed"), read_figures("ours")], axis=1, keys=["printed", "ours"])
        .dropna()
        .sort_index()
    )
    figure, axes = plt.subplots(3, 2, figsize=(5.6, 8.2), layout="constrained")
    *panels, last = axes.flat
    for axis, (comparison, (title, metric, own, rising)) in zip(panels, PANELS.items(), strict=True):
        part = both.loc[(comparison, metric)]
        mine = part.index.get_level_values("method") == own
        axis.axline((0.5, 0.5), slope=1, color="0.7", linewidth=1, zorder=0)
        axis.scatter(*part[~mine].to_numpy().T, s=22, color="0.55", label="methods compared with")
        axis.scatter(*part[mine].to_numpy().T, s=34, color="tab:red", marker="D", label="the paper's method")
        low, high = part.to_numpy().min(), part.to_numpy().max()
        edges = low - 0.06 * (high - low), high + 0.06 * (high - low)
        axis.set(xlim=edges, ylim=edges, xlabel="printed", ylabel="here", aspect="equal")
        axis.set_title(f"{title}\n{metric.replace('_', ' ')}, {'high' if rising else 'low'} is good", fontsize="medium")
    last.axis("off")
    last.legend(*panels[0].get_legend_handles_labels(), loc="center")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(path.stem for path in (DOCS / "comparisons").glob("*.yaml")))
    parser.add_argument("--sets", help="names, with commas between them")
    parser.add_argument("--without", default="", help="methods to leave out, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-comparisons"))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    plan = read_plan(
        arguments.name, arguments.sets and arguments.sets.split(","), arguments.without.split(","), arguments.folder
    )
    batch = arguments.folder / arguments.name
    ours = our_figures(arguments.name, mlfs.run_batch(plan, batch, resume=batch.exists()).results)
    for name, table in tables(ours).items():
        print(f"\n{name}\n\n{table}")
    if arguments.write:
        ours.round(4).combine_first(read_figures("ours")).to_csv(FIGURES / "ours.csv")
        draw(DOCS / "explanation" / "comparisons.png")
    print(f"\n{ranks()}\n\n{batch}")


if __name__ == "__main__":
    main()
