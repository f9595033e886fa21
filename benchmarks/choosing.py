"""Which method for which data: all methods on all sets, with ranks, tests, time and readings.

For docs/explanation/choosing.md:

    python benchmarks/choosing.py                                         # all methods and sets: hours
    python benchmarks/choosing.py emotions yeast --folds 3 --k-grid 10%:50%:20% --classifiers mlknn
    python benchmarks/choosing.py --write docs/explanation/choosing.md                # its table and pictures

Rankings are learnt on the training rows and judged on the others, as `mlfs evaluate` does it; everything that is not
said here is its default. Each set is a batch in a folder (--folder), which goes on where it was interrupted, also with
more methods. Sets that another command has put into another folder, with other classifiers for example, stand in the
same table (--join). Nothing is taken from the cache, so that seconds and readings are those of each method alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from real_sets import SETS, make_store, markdown, replace_table

import mlfs_dask as mlfs
from mlfs_dask.evaluation.comparison import Comparison
from mlfs_dask.reporting.comparison_folder import figures_of
from mlfs_dask.reporting.figures import Styles, write_figure
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS

METRIC = "average_precision"


def run(name: str, options: argparse.Namespace) -> Path:
    """The batch of one set, run as far as it is not done."""
    place = Path(options.folder) / f"{name}.batch"
    without = options.without.split(",")
    plan = {
        "stores": make_store(name, options.folder),
        "methods": [method for method in options.methods.split(",") if method not in without],
        "evaluation": {
            "folds": options.folds,
            "k_grid": options.k_grid,
            "classifiers": options.classifiers.split(","),
            "metrics": [METRIC],
            "subjects": [subject for subject in ("random",) if subject not in without],
        },
    }
    found = mlfs.run_batch(plan, place, resume=True, cache=None)
    if found.failed:
        sys.exit(f"failed: {', '.join(found.failed)}; see {place / 'jobs.csv'}")
    return place


def quality_table(comparison: Comparison, classifier: str) -> str:
    """Means of every set, their mean, and the average rank; best methods first."""
    of = comparison.means[comparison.means["classifier"] == classifier]
    means = of.pivot(index="run", columns="dataset", values="mean")
    means = means[list(dict.fromkeys(of["dataset"]))]
    ranks = comparison.ranks[comparison.ranks["classifier"] == classifier].set_index("run")["average_rank"]
    ranks = ranks.groupby(level=0).first()
    one_pass = [name for name in METHODS if get_estimator(name).plain.resamples_rows and name in means.index]
    times = comparison.times[comparison.times["dataset"].isin(means.columns)]
    times = times.groupby("run")[["seconds_mean", "passes_mean"]].mean()
    rows = []
    others = [name for name in means.index if name != "auto"]
    for title, names in (("best of one reading", one_pass), ("best of all others", others)):
        best = means.loc[names].max()
        rows.append([f"*{title}, by set*", *(f"{v:.4f}" for v in best), f"**{best.mean():.4f}**", "", "", ""])
    for name in means.mean(axis=1).sort_values(ascending=False).index:
        values = [f"{value:.4f}" for value in means.loc[name]]
        taken = ["", ""]
        if name in times.index:  # random features are not fitted
            taken = [f"{times.loc[name, 'seconds_mean']:.2f}", f"{times.loc[name, 'passes_mean']:.1f}"]
        rows.append([name, *values, f"**{means.loc[name].mean():.4f}**", f"{ranks[name]:.1f}", *taken])
    return markdown(["method", *means.columns, "mean", "mean rank", "seconds", "readings"], rows)


def tests_text(comparison: Comparison, classifier: str) -> str:
    """Friedman's and Nemenyi's test in a sentence."""
    (test,) = (each for each in comparison.tests if each["classifier"] == classifier)
    friedman, sets, runs = test["friedman"], test["n_datasets"], test["n_runs"]
    if friedman is None:
        return ""
    return (
        f"{runs} methods on {sets} sets: Friedman's χ² is {friedman['chi2']:.1f} (p = {friedman['chi2_p_value']:.2g}), "
        f"Iman and Davenport's F {friedman['f']:.2f} (p = {friedman['f_p_value']:.2g}); Nemenyi's critical difference "
        f"of mean ranks at 5 % is {test['nemenyi_difference']:.1f}."
    )


def command_of(places: Sequence[Path], ending: str) -> str:
    """The command that ran these batches, as far as it differs from its defaults."""
    plan = json.loads((places[0] / "batch.json").read_text())["plan"]
    evaluation = plan["evaluation"]
    words = ["python benchmarks/choosing.py", *(place.name.removesuffix(".batch") for place in places)]
    words += [f"--folds {evaluation['folds']}", f"--k-grid {evaluation['k_grid']}"]
    words.append(f"--classifiers {','.join(evaluation['classifiers'])}")
    run = [*plan["methods"], *(evaluation.get("subjects") or [])]
    if absent := [name for name in (*METHODS, "random") if name not in run]:
        words.append(f"--without {','.join(absent)}")
    return " ".join([*words, ending])


def page_text(
    comparison: Comparison, classifiers: Sequence[str], page: Path, table: str, commands: Sequence[str]
) -> str:
    """A generated part of the page; its pictures are written beside the page."""
    pictures = dict(figures_of(comparison, Styles()))
    parts = ["\n".join(f"    {command}" for command in commands)]
    for classifier in classifiers:
        parts += [f"### {classifier}", quality_table(comparison, classifier), tests_text(comparison, classifier)]
        stem = f"nemenyi.{METRIC}.{classifier}"
        if stem in pictures:
            target = page.with_name(f"{table}-nemenyi-{classifier}.svg")
            write_figure(pictures[stem], target)
            parts.append(f"![Mean ranks and critical difference, {classifier}]({target.name})")
    return "\n\n".join(part for part in parts if part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="default: all")
    parser.add_argument("--methods", default=",".join(METHODS), help="default: all")
    parser.add_argument("--without", default="", help="methods to leave out, or random features")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--k-grid", default="10%:90%:10%")
    parser.add_argument("--classifiers", default="mlknn,logistic")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks/choosing"))
    parser.add_argument("--join", type=Path, action="append", default=[], help="a folder with further batches")
    parser.add_argument("--write", type=Path, help="replace table and pictures in this Markdown file")
    parser.add_argument("--table", default="choosing", help="which table of that file")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    places = []
    joined = {folder: sorted(folder.glob("*.batch")) for folder in options.join}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loops that did not converge are judged as they are
        for name in options.sets or SETS:
            places.append(run(name, options))
            print(f"{name} done", file=sys.stderr, flush=True)
        comparison = mlfs.compare([*places, *(place for batches in joined.values() for place in batches)])
    classifiers = list(dict.fromkeys(comparison.means["classifier"]))
    for classifier in classifiers:
        print(quality_table(comparison, classifier))
    if options.write:
        ending = f"--write {options.write}" + (f" --table {options.table}" if options.table != "choosing" else "")
        commands = [command_of(batches, f"--folder {folder.name}") for folder, batches in joined.items()]
        joining = " ".join(f"--join {folder.name}" for folder in joined)
        commands.append(command_of(places, f"{joining} {ending}".strip()))
        text = page_text(comparison, classifiers, options.write, options.table, commands)
        replace_table(options.write, options.table, text)


if __name__ == "__main__":
    main()
