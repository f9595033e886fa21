"""Tables of a page, and as CSV to go on with."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlfs_dask.evaluation.results import ALL

if TYPE_CHECKING:
    import pandas as pd

    from mlfs_dask.evaluation.comparison import Comparison


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text : str
    value : float or str
        What the cell sorts by.
    best, tied : bool
        The best of its row; not different from the best.
    """

    text: str
    value: float | str
    best: bool = False
    tied: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it sorts as a number."""
        return not isinstance(self.value, str)

    @property
    def classes(self) -> str:
        """Classes of the page's style sheet."""
        length = "long" if len(self.text) > 60 else "short" if len(self.text) < 24 else ""
        return " ".join(filter(None, ("number" if self.is_number else length, "best" if self.best else "")))


@dataclass(frozen=True)
class Table:
    """A table to be read.

    Attributes
    ----------
    title : str
    columns : sequence of str
    rows, footer : sequences of rows of Cells
        The first cell of a row names it. The footer stays where it is when the rows are sorted.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    footer: Sequence[Sequence[Cell]] = ()

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers alone."""
        return [all(cell.is_number for cell in column) for column in zip(*self.rows, strict=True)]

    @property
    def frame(self) -> pd.DataFrame:
        """The values that its cells sort by."""
        import pandas as pd

        return pd.DataFrame([[cell.value for cell in row] for row in self.rows], columns=list(self.columns))


def text_cell(value: object) -> Cell:
    """Words; nothing for None."""
    text = "" if value is None else str(value)
    return Cell(text, text)


def count_cell(value: float | None) -> Cell:
    """A whole number."""
    return Cell("", math.nan) if value is None else Cell(f"{value:,}", value)


def number_cell(value: float, form: str = ".4g") -> Cell:
    """A number that may be undefined."""
    return Cell("undefined" if math.isnan(value) else format(value, form), value)


def seconds_cell(value: float | None) -> Cell:
    """A time.

    >>> seconds_cell(0.0335).text, seconds_cell(61.24).text
    ('0.034', '61.2')
    """
    if value is None or math.isnan(value):
        return Cell("", math.nan)
    return Cell(f"{value:.3f}" if value < 10 else f"{value:,.1f}", value)


def bytes_cell(value: float | None) -> Cell:
    """A size.

    >>> bytes_cell(345126).text, bytes_cell(60817408).text, bytes_cell(0).text
    ('337 KiB', '58 MiB', 'none')
    """
    if value is None or math.isnan(value):
        return Cell("", math.nan)
    if value == 0:
        return Cell("none", 0.0)
    shown, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if shown < 1024 or unit == "TiB":
            break
        shown /= 1024
    return Cell(
        f"{shown:,.0f} B" if unit == "B" else f"{shown:.3g} {unit}" if shown < 100 else f"{shown:.0f} {unit}",
        float(value),
    )


def read_cell(value: float | None, passes: float) -> Cell:
    """What passes read from a store.

    >>> read_cell(0, 1).text, read_cell(0, 0).text, read_cell(345126, 1).text
    ('rows in memory', 'none', '337 KiB')
    """
    return Cell("rows in memory", 0.0) if value == 0 and passes else bytes_cell(value)


def cases(comparison: Comparison) -> list[tuple[str, str]]:
    """Pairs of metric and classifier, in the order in which they were evaluated."""
    frame = comparison.means[["metric", "classifier"]].drop_duplicates()
    return list(frame.itertuples(index=False, name=None))


def runs_of(comparison: Comparison) -> list[str]:
    """Labels of the runs, in the order asked for."""
    return [str(run["run"]) for run in comparison.record["runs"]]


def has_all(comparison: Comparison) -> bool:
    """Whether all features are among the runs, which are shown and not ranked."""
    return any(run["method"] == ALL for run in comparison.record["runs"])


def title_of(comparison: Comparison, metric: str, classifier: str) -> str:
    """Name of a case for people, with an arrow for what is better.

    The arrow is that of the papers: ↓ the smaller the better.
    """
    known = comparison.metrics[metric]
    arrow = "↑" if known["better"] == "higher" else "↓"
    several = len(comparison.record["classifiers"]) > 1
    return f"{known['title']} {arrow}" + (f", {classifier}" if several else "")


def comparison_table(comparison: Comparison, metric: str, classifier: str) -> Table:
    """Mean ± standard deviation of every run on every data set, average ranks and win/tie/loss beneath.

    Win/tie/loss is that of the control against each other run where a control was named, otherwise that of each
    run against all others together.
    """
    here = of_case(comparison.means, metric, classifier)
    runs = runs_of(comparison)
    rows_of = {(row.dataset, row.run): row for row in here.itertuples()}
    rows = [
        [text_cell(dataset), *(_mean_cell(rows_of.get((dataset, run))) for run in runs)]
        for dataset in dict.fromkeys(here["dataset"])
    ]
    footer: list[list[Cell]] = []
    ranks = of_case(comparison.ranks, metric, classifier)
    if len(ranks):
        by_run = dict(zip(ranks["run"], ranks["average_rank"], strict=True))
        lowest = min(by_run.values())
        footer.append(
            [
                text_cell("average rank"),
                *(
                    Cell(f"{by_run[run]:.2f}", by_run[run], best=by_run[run] == lowest)
                    if run in by_run
                    else Cell("", math.nan)
                    for run in runs
                ),
            ]
        )
    footer.extend(_win_rows(comparison, metric, classifier, runs))
    return Table(title_of(comparison, metric, classifier), ["data set", *runs], rows, footer)


def metrics_table(comparison: Comparison, shown: Sequence[tuple[str, str]]) -> Table:
    """Mean ± standard deviation of every run by every metric, on the one data set that was compared.

    Parameters
    ----------
    comparison : Comparison
        Of one data set.
    shown : sequence of (metric, classifier)
    """
    runs = runs_of(comparison)
    rows_of = {(row.metric, row.classifier, row.run): row for row in comparison.means.itertuples()}
    rows = [
        [text_cell(title_of(comparison, *case)), *(_mean_cell(rows_of.get((*case, run))) for run in runs)]
        for case in shown
    ]
    (dataset,) = comparison.means["dataset"].unique()
    return Table(f"Metrics on {dataset}", ["metric", *runs], rows)


def of_case(frame: pd.DataFrame, metric: str, classifier: str) -> pd.DataFrame:
    """The rows of one metric and classifier."""
    return frame[(frame["metric"] == metric) & (frame["classifier"] == classifier)]


def _mean_cell(row: object) -> Cell:
    if row is None:
        return Cell("not run", math.nan)
    mean, std = row.mean, row.std  # type: ignore[attr-defined]
    if math.isnan(mean):
        return Cell("undefined", math.nan)
    text = f"{mean:.3f}" + ("" if math.isnan(std) else f" ± {std:.3f}")
    return Cell(text, mean, best=bool(row.best), tied=bool(row.tied))  # type: ignore[attr-defined]


def _win_rows(comparison: Comparison, metric: str, classifier: str, runs: Sequence[str]) -> list[list[Cell]]:
    wins = of_case(comparison.wins, metric, classifier)
    if not len(wins):
        return []
    control = comparison.record["control"]
    if control is not None:
        counts = wins[wins["run"] == control].set_index("other")
        name = f"win/tie/loss of {control}"
    else:
        counts = wins.groupby("run", sort=False)[["win", "tie", "loss"]].sum()
        name = "win/tie/loss"
    cells = [
        Cell("/".join(str(counts.loc[run, what]) for what in ("win", "tie", "loss")), int(counts.loc[run, "win"]))
        if run in counts.index
        else Cell("", math.nan)
        for run in runs
    ]
    return [[text_cell(name), *cells]]


def csv_text(frame: pd.DataFrame) -> str:
    """A data frame as CSV; numbers read back to the same bits, undefined values are empty."""
    stream = io.StringIO()
    frame.to_csv(stream, index=False, lineterminator="\n")
    return stream.getvalue()
