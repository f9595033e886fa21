"""Pictures of the manual, drawn from the figures in benchmarks/results and from images of digits.

python docs/pictures.py [NAME ...]
"""

from __future__ import annotations

import functools
import json
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mlfs_dask.demo import run_demo
from mlfs_dask.evaluation.results import read_eval
from mlfs_dask.evaluation.statistics import friedman_test, nemenyi_difference, rank_methods
from mlfs_dask.reporting.figures import Figure, Style, Styles, critical_differences, curve, image_map, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"

#: Methods that read X once or twice and have no loop over it, by what they do on the driver.
KINDS = {
    "filters": [
        "label-entropy",
        "enm",
        "gmm",
        "chi2",
        "br-or",
        "br-cc",
        "anova-f",
        "fisher",
        "mfs-f",
        "mddm",
        "ela-chi",
        "fimf",
        "laplacian",
    ],
    "features weighed together": [
        "ami",
        "d2f",
        "elc",
        "grro",
        "jmi",
        "mdmr",
        "mico",
        "mrmr",
        "pmu",
        "qpmlfs",
        "scls",
        "spfs",
        "relieff",
    ],
    "loops with a graph of rows": ["mfsir", "smfs", "access-mfs"],
    "auto": ["auto"],
}
COLOURS = dict(zip(KINDS, ("#0072b2", "#00805e", "#c44e00", "#1d2430"), strict=True))
MARKERS = dict(zip(KINDS, ("o", "s", "^", "*"), strict=True))


def plain_numbers(axis: Axis) -> None:
    """Ticks of a logarithmic axis at powers of ten, as decimals."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_formatter(lambda value, _: "")


def precisions() -> pd.DataFrame:
    """Average precision of all methods on ten sets."""
    rows = pd.read_csv(RESULTS / "choosing.csv")
    return rows[rows["table"] == "sets"]


def choosing_cost() -> Figure:
    """Quality of a choice against the seconds of a fit."""
    rows = precisions()
    of_method = rows.groupby("method")
    classifiers = rows.groupby(["method", "classifier"])["average_precision"].mean().unstack()
    gain = 100 * (classifiers - classifiers.loc["random"]).mean(axis=1)
    frame = pd.DataFrame({"seconds": of_method["seconds"].mean(), "gain": gain}).dropna()

    lowest = 2.3  # what is worse than random features stands at the edge, or all others would run into one another
    places = frame["gain"].clip(lower=lowest + 0.08)

    def draw(axes: Axes) -> None:
        for kind, names in KINDS.items():
            axes.scatter(
                frame.loc[names, "seconds"],
                places[names],
                c=COLOURS[kind],
                marker=MARKERS[kind],
                s=34,
                label=kind,
                lw=0,
            )
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        axes.set_xlim(0.008, 60)
        axes.set_ylim(lowest, 5.5)
        axes.set_xlabel("seconds of a fit (mean over sets)")
        axes.set_ylabel("points of average precision over random features")
        placed: list[tuple[float, float]] = []
        for name in places.sort_values(ascending=False).index:  # a name goes below others that are in its way
            x, y, text = math.log10(frame.loc[name, "seconds"]), places[name], name
            if frame.loc[name, "gain"] < lowest:
                text = f"{name} ({frame.loc[name, 'gain']:.1f}: worse than random)"
            at = y
            while any(abs(at - other_y) < 0.075 and abs(x - other_x) < 0.37 for other_x, other_y in placed):
                at -= 0.01
            placed.append((x, at))
            moved = at < y - 0.06
            line = {"arrowstyle": "-", "lw": 0.6, "color": "#5a6472", "shrinkA": 0, "shrinkB": 3} if moved else None
            place = (10 ** (x + (0.07 if moved else 0.04)), at)
            axes.annotate(text, (10**x, y), place, fontsize=8.5, va="center", arrowprops=line)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.12), fontsize=8)

    return Figure("choosing-cost", "", "", "", frame, draw, size=(6.4, 6.2))


def choosing_ranks() -> Figure:
    """Critical differences of all methods by ML-kNN."""
    rows = precisions()
    values = rows[rows["classifier"] == "mlknn"].pivot(index="dataset", columns="method", values="average_precision")
    ranks = rank_methods(values.to_numpy(), higher_is_better=True)
    friedman = friedman_test(ranks)
    print(f"Friedman, {values.shape[1]} methods on {len(values)} sets: {friedman}")
    test = {
        "runs": list(values.columns),
        "nemenyi_difference": nemenyi_difference(values.shape[1], len(values)),
        "bonferroni_dunn_difference": None,
        "control": None,
        "alpha": 0.05,
    }
    average = dict(zip(values.columns, ranks.mean(axis=0), strict=True))
    styles = {name: Style(COLOURS[kind], "", "-") for kind, names in KINDS.items() for name in names}
    return critical_differences(test, average, title="", styles=Styles(styles), control=False, name="choosing-ranks")


def choosing_small() -> Figure:
    """Quality and cost of every method on small sets, the best first."""
    # On genbase every method gives the same.
    rows = pd.read_csv(RESULTS / "choosing.csv").query("table == 'small' and dataset != 'genbase'")
    values = rows.pivot(index="method", columns="dataset", values="average_precision")
    gains = 100 * (values - values.loc["random"])
    gains = gains.drop(index="random")
    gains = gains.loc[gains.mean(axis=1).sort_values().index]
    seconds = rows.groupby("method")["seconds"].mean()[gains.index]
    places = range(len(gains))

    def draw(axes: Axes) -> None:
        for mark, name in zip("ov^sDP", gains, strict=False):
            axes.scatter(gains[name], places, s=13, marker=mark, label=name, c="#9aa5b1", lw=0)
        axes.scatter(gains.mean(axis=1), places, s=26, c="#0072b2", label="mean")
        axes.axvline(0, color="#1d2430", lw=1)
        axes.set_xlim(-6, 14.5)
        axes.set_yticks(places, gains.index, fontsize=7.5)
        axes.set_ylim(-1, len(gains))
        axes.set_xlabel("points of average precision over random features")
        axes.grid(axis="y", lw=0.3)
        axes.legend(fontsize=7.5, loc="lower right")
        cost = axes.inset_axes((1.02, 0, 0.35, 1), sharey=axes)
        cost.barh(places, seconds, color="#00805e", height=0.6)
        cost.set_xscale("log")
        plain_numbers(cost.xaxis)
        cost.tick_params(labelleft=False)
        cost.set_xlabel("CPU seconds of a fit")
        cost.grid(axis="y", lw=0.3)

    return Figure("choosing-small", "", "", "", gains, draw, size=(7.5, 9.5))


def rows_of(name: str) -> dict[str, dict[str, Any]]:
    """Results of a benchmark by its row."""
    found: dict[str, dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    return found


def growth(column: str, ylabel: str, *, logarithmic: bool) -> Figure:
    """What grows with the number of rows, and what does not."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for label, row in rows_of("growth").items():
        lines.setdefault("label-entropy", []).append((number_of_rows(label), row["seconds" if logarithmic else column]))
    for label, row in rows_of("iterative/growth").items():
        if "n = " in label and "entries" not in label:
            name = label.partition(",")[0]
            lines.setdefault(name, []).append((number_of_rows(label), row[column]))

    def draw(axes: Axes) -> None:
        for number, (name, points) in enumerate(lines.items()):
            xs, ys = zip(*points, strict=True)
            colour = ("#0072b2", "#c44e00", "#00805e", "#b0508a", "#a87400")[number]
            axes.plot(xs, ys, marker="os^Dv"[number], ms=4, color=colour, label=name)
        axes.set_xscale("log")
        axes.set_xticks([10**5, 10**6, 10**7], ["0.1 M", "1 M", "10 M"])
        if logarithmic:
            axes.set_yscale("log")
            axes.set_ylim(0.1, 11)
            plain_numbers(axes.yaxis)
            axes.legend()
        else:
            axes.axhline(1024, color="#5a6472", lw=1, ls="--")
            axes.annotate("limit of a worker", (1.1e5, 950))
            axes.set_ylim(0, 1100)
        axes.set_xlabel("rows")
        axes.set_ylabel(ylabel)

    return Figure(f"growth-{column}", "", "", "", pd.DataFrame(), draw, size=(2.5, 3.0))


def number_of_rows(label: str) -> int:
    """The n of "elc, n = 100,000"."""
    return int(label.rpartition("n = ")[2].replace(",", ""))


def anchors() -> Figure:
    """Anchors beside exact graphs, by method and set."""
    rows = [(label, row) for label, row in rows_of("iterative/anchors-quality").items() if row.get("error")]
    rows = [(label, row) for label, row in rows if "mean" not in label]

    def draw(axes: Axes) -> None:
        cases = list(dict.fromkeys(label.rpartition(", ")[0] for label, _ in rows))
        for number, case in enumerate(cases):
            of = [row for label, row in rows if label.rpartition(", ")[0] == case]
            places = [number + 0.6 * (i - len(of) / 2) / len(of) for i in range(len(of))]
            axes.errorbar(
                [row["difference"] for row in of],
                places,
                xerr=[2 * row["error"] for row in of],
                fmt="o",
                ms=4,
                lw=1,
                color=("#0072b2", "#c44e00", "#c44e00", "#00805e", "#00805e")[number % 5],
            )
        axes.axvline(0, color="#5a6472", lw=1)
        axes.set_yticks(range(len(cases)), cases)
        axes.invert_yaxis()
        axes.set_xlabel("anchors minus exact graph (points)")

    return Figure("anchors", "", "", "", pd.DataFrame(), draw, size=(5.0, 4.0))


@functools.cache
def demo() -> Path:
    """The folder that `mlfs demo` makes."""
    folder = Path(tempfile.mkdtemp()) / "digits"
    run_demo(folder)
    return folder


def pixels() -> list[Figure]:
    """Pixels that each method of the demonstration chose."""
    found = []
    for method in ("elc", "label-entropy", "mfsir"):
        ranking = pd.read_csv(demo() / method / "ranking.csv")
        order, scores = ranking["feature_index"].to_numpy(), ranking["score"].to_numpy()
        panel = image_map(method, order, scores, 16, (8, 8), name=method)
        found.append(replace(panel, title=method, size=(1.7, 1.75)))
    return found


def precision() -> Figure:
    """Average precision of the demonstration against the number of pixels."""
    means = read_eval(demo() / "digits.eval").means()
    of = means[means["metric"] == "average_precision"].rename(columns={"count": "n_folds"})
    of = of.assign(method=of["run"])
    return curve(of, title="", ylabel="average precision", styles=Styles(), name="precision")


#: Where each picture lies, and the panels that it has.
PICTURES: dict[str, Callable[[], Figure | list[Figure]]] = {
    "explanation/choosing-cost": choosing_cost,
    "explanation/choosing-ranks": choosing_ranks,
    "explanation/choosing-small": choosing_small,
    "reference/growth": lambda: [
        growth("reading_seconds", "seconds of a pass", logarithmic=True),
        growth("peak_worker_MiB", "peak of a worker, MiB", logarithmic=False),
    ],
    "reference/anchors": anchors,
    "start-pixels": pixels,
    "start-precision": precision,
}


def main(names: list[str]) -> None:
    """Draw the pictures that are named, or all."""
    for name in names or PICTURES:
        write_figure(PICTURES[name](), DOCS / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
