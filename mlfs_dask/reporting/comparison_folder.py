"""Comparison folders: tables, tests and figures of a comparison, written whole or not at all.

`means.csv`, `curves.csv`, `ranks.csv`, `wins.csv`, `stability.csv` and `times.csv` are the tables of a `Comparison` as
they are, `tests.json` its tests; `tables/` has the means of every metric and classifier, `figures/` SVG. A folder
without `compare.json` is no comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.comparison import FRAMES, Comparison
from mlfs_dask.evaluation.results import Metric, RunEntry, csv_text, parse_frame
from mlfs_dask.evaluation.statistics import FriedmanTest
from mlfs_dask.files.json_text import document_text, parse_json
from mlfs_dask.files.object_store import is_url, local_path
from mlfs_dask.files.publish import appearing, check_place, read_parsed, read_record
from mlfs_dask.files.result_folders import COMPARISON
from mlfs_dask.reporting.figures import Figure, Styles, critical_differences, curve, lines_plot, write_figure
from mlfs_dask.reporting.tables import cases

if TYPE_CHECKING:
    import pandas as pd


class _Dataset(TypedDict):
    dataset: str


class CompareRecord(TypedDict):
    """Content of `compare.json`, as far as others read it."""

    alpha: float
    control: str | None
    k: int | None
    runs: list[RunEntry]
    datasets: list[_Dataset]
    metrics: list[Metric]
    classifiers: list[str]
    notes: list[str]


class RankTest(TypedDict):
    """A test, as `tests.json` has it."""

    metric: str
    classifier: str
    runs: list[str]
    left_out: list[str]
    alpha: float
    control: str | None
    friedman: FriedmanTest | None
    nemenyi_difference: float | None
    bonferroni_dunn_difference: float | None
    wilcoxon_p_value: float | None


def write_comparison(path: str | Path, comparison: Comparison, *, force: bool = False) -> list[str]:
    """Write a comparison folder.

    Parameters
    ----------
    path : path
        A local folder.
    comparison : Comparison
    force : bool
        Replace an earlier comparison, at the very end.

    Returns
    -------
    list of str
        The files, relative to the folder.

    Raises
    ------
    UsageError
        If the place is taken.
    MlfsError
        If it cannot be written; nothing is left behind.
    """
    if is_url(str(path)):
        raise UsageError(f"{path}: a comparison is written to a local folder.")
    place = local_path(path)
    check_place(str(place), COMPARISON, force=force)
    with appearing(place) as aside:
        (aside / "tables").mkdir(parents=True)
        (aside / "figures").mkdir()
        for name in FRAMES:
            _write(aside / f"{name}.csv", csv_text(getattr(comparison, name)))
        for case in cases(comparison):
            _write(aside / "tables" / f"{case.stem}.csv", csv_text(case.rows("means")))
        _write(aside / COMPARISON.table, document_text(comparison.tests))
        for stem, panels in figures_of(comparison, Styles()):
            write_figure(panels, aside / "figures" / f"{stem}.svg")
        _write(aside / COMPARISON.record, document_text(comparison.record))
        return sorted(str(file.relative_to(aside)) for file in aside.rglob("*") if file.is_file())


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")


def figures_of(comparison: Comparison, styles: Styles) -> Iterator[tuple[str, list[Figure]]]:
    """Yield the figures of a comparison by name, each as its panels.

    Yields
    ------
    str, list of Figure
    """
    for run in comparison.record["runs"]:
        styles.of(run["run"], run["method"])
    for case in cases(comparison):
        panels = [
            curve(
                of,
                title=str(dataset),
                ylabel=case.title,
                styles=styles,
                name=anchor("curve", case.metric, case.classifier, dataset),
            )
            for dataset, of in case.rows("curves").dropna(subset="mean").groupby("dataset", sort=False)
            if of["k"].nunique() > 1
        ]
        if panels:
            yield f"curves.{case.stem}", panels
        test = case.test
        if test["nemenyi_difference"] is None:
            continue
        ranks = case.rows("ranks").set_index("run")["average_rank"].to_dict()
        for control in (False, True) if test["control"] is not None else (False,):
            kind = "bonferroni-dunn" if control else "nemenyi"
            name = anchor(kind, case.metric, case.classifier)
            figure = critical_differences(test, ranks, title=case.title, styles=styles, control=control, name=name)
            yield f"{kind}.{case.stem}", [figure]
    of_stability = comparison.stability.dropna(subset="kuncheva")
    panels = [_stability(of, str(dataset), styles) for dataset, of in of_stability.groupby("dataset", sort=False)]
    if panels:
        yield "stability", panels


def _stability(data: pd.DataFrame, dataset: str, styles: Styles) -> Figure:
    """Return the agreement of the sets chosen in different folds, against the number of features."""
    average = data.groupby("run", sort=False)["kuncheva"].mean()
    return Figure(
        anchor("stability", dataset),
        dataset,
        f"{dataset}: agreement of the sets chosen in different folds; 1 the same sets, 0 chance.",
        "Mean of Kuncheva's index: " + ", ".join(f"{run} {value:.2f}" for run, value in average.items()) + ".",
        data[["run", "method", "k", "kuncheva", "jaccard", "n_sets"]],
        *lines_plot(
            data, "k", "kuncheva", styles.of_all(data), by="run", xlabel="number of features", ylabel="Kuncheva's index"
        ),
    )


def anchor(*parts: object) -> str:
    """Return a name for HTML and files from any words.

    >>> anchor("curve", "macro_f1", "my set")
    'curve-macro_f1-my-set'
    """
    return "-".join("".join(letter if letter.isalnum() or letter == "_" else "-" for letter in str(p)) for p in parts)


def read_comparison(path: str | Path) -> Comparison:
    """Read a comparison folder.

    Raises
    ------
    DataError
        If it is none, a file in it is damaged, or a newer version wrote it.
    """
    record = read_record(str(path), COMPARISON, CompareRecord)
    tests = read_parsed(str(path), COMPARISON.table, COMPARISON, lambda text: parse_json(text, list[RankTest]))
    for test in tests:
        if test["friedman"] is not None and test["friedman"]["f"] is None:
            test["friedman"]["f"] = math.inf  # which JSON has not
    frames = {}
    for name, columns in FRAMES.items():
        table = Path(path) / f"{name}.csv"
        try:
            frames[name] = parse_frame(table.read_text(encoding="utf-8"), columns)
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"missing or damaged: {error}", file=str(table), cure=COMPARISON.cure) from error
    return Comparison(**frames, tests=tests, record=record)
