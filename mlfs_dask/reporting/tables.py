"""Parts of a page before they are written as HTML: tables, and the blocks and sections that they stand in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlfs_dask.errors import size

if TYPE_CHECKING:
    import pandas as pd

    from mlfs_dask.evaluation.comparison import Comparison
    from mlfs_dask.reporting.figures import Figure


MAX_NAMED = 5
"""Names that a sentence lists."""


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
        """True if the cell sorts as a number."""
        return not isinstance(self.value, str)

    @property
    def classes(self) -> str:
        """Classes of the page's style sheet."""
        length = "long" if len(self.text) > 60 else "short" if len(self.text) < 24 else ""
        return " ".join(filter(None, ("number" if self.is_number else length, "best" if self.best else "")))


_NO_NUMBER = Cell("", math.nan)


@dataclass(frozen=True)
class Table:
    """A table to be read.

    Attributes
    ----------
    title : str
    columns : mapping of str -> str
        How the values of each column are written, as `cell` takes it.
    rows, footer : sequences of rows of values or Cells
        The first of a row names it. The footer stays where it is when the rows are sorted.
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]
    footer: Sequence[Sequence[Any]] = ()

    def cells(self, rows: Sequence[Sequence[Any]] | None = None) -> list[list[Cell]]:
        """Return its rows, or the footer's, as they are written."""
        forms = self.columns.values()
        return [list(map(cell, row, forms)) for row in (self.rows if rows is None else rows)]

    @property
    def numeric(self) -> list[bool]:
        """True for each column of numbers alone."""
        return [all(cell.is_number for cell in column) for column in zip(*self.cells(), strict=True)]

    @property
    def frame(self) -> pd.DataFrame:
        """The values that its cells sort by."""
        import pandas as pd

        return pd.DataFrame([[cell.value for cell in row] for row in self.cells()], columns=list(self.columns))


def cell(value: Any, form: str = "") -> Cell:
    """Return a formatted value: words, or a number by a format, in "seconds" or in "bytes".

    >>> [cell(value, "bytes").text for value in (345126, 60817408, 0, None)]
    ['337 KiB', '58 MiB', 'none', '']
    >>> cell(0.0335, "seconds").text, cell(61.24, "seconds").text, cell(1234, ",").text, cell(math.nan, ".3f").text
    ('0.034', '61.2', '1,234', 'undefined')
    """
    if isinstance(value, Cell):
        return value
    if not form or value is None:
        text = "" if value is None else str(value)
        return Cell(text, math.nan if form else text)
    units = form in ("seconds", "bytes")
    if math.isnan(value):
        return Cell("" if units else "undefined", math.nan)
    if form == "bytes":
        return Cell(size(value) if value else "none", float(value))
    return Cell(format(value, (".3f" if value < 10 else ",.1f") if units else form), value)


def read_cell(value: float | None, passes: float) -> Cell:
    """Return the cell of the bytes that passes read from a store.

    >>> read_cell(0, 1).text, read_cell(0, 0).text, read_cell(345126, 1).text
    ('rows in memory', 'none', '337 KiB')
    """
    return Cell("rows in memory", 0.0) if value == 0 and passes else cell(value, "bytes")


@dataclass(frozen=True)
class Block:
    """A part of a section.

    Attributes
    ----------
    title : str
    texts, notes : sequences of str
        Paragraphs; points in a list.
    tables : sequence of Table
    figures : sequence of Figure
    folded : bool or None
        Whether it begins folded; None: it cannot be folded.
    """

    title: str = ""
    texts: Sequence[str] = ()
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    folded: bool | None = None


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    anchor: str
    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """A metric by a classifier, in a comparison."""

    metric: str
    classifier: str
    comparison: Comparison = field(compare=False, repr=False)

    @property
    def stem(self) -> str:
        """Name for files."""
        return f"{self.metric}.{self.classifier}"

    @property
    def sign(self) -> int:
        """1 where more is better, else -1."""
        return 1 if self.comparison.metrics[self.metric]["better"] == "higher" else -1

    @property
    def title(self) -> str:
        """Name for people, with the arrow of the papers: ↓ the smaller the better."""
        several = len(self.comparison.record["classifiers"]) > 1
        arrow = "↑" if self.sign == 1 else "↓"
        return f"{self.comparison.metrics[self.metric]['title']} {arrow}" + (f", {self.classifier}" if several else "")

    @property
    def test(self) -> dict[str, Any]:
        """Friedman's test and the critical differences."""
        tests = self.comparison.tests
        return next(each for each in tests if (each["metric"], each["classifier"]) == (self.metric, self.classifier))

    def rows(self, table: str) -> pd.DataFrame:
        """Return its rows of a table of the comparison."""
        frame: pd.DataFrame = getattr(self.comparison, table)
        return frame[(frame["metric"] == self.metric) & (frame["classifier"] == self.classifier)]


def cases(comparison: Comparison) -> list[Case]:
    """Return the pairs of metric and classifier, in the order in which they were evaluated."""
    frame = comparison.means[["metric", "classifier"]].drop_duplicates()
    return [Case(metric, classifier, comparison) for metric, classifier in frame.itertuples(index=False, name=None)]


def methods_of(comparison: Comparison) -> dict[str, str]:
    """Return the method of each run, by its label, in the order asked for."""
    return {str(run["run"]): run["method"] for run in comparison.record["runs"]}


def comparison_table(case: Case) -> Table:
    """Return the mean ± standard deviation of every run on every data set, average ranks and win/tie/loss beneath.

    Win/tie/loss is that of the control against each other run where a control was named, otherwise that of each
    run against all others together.
    """
    here, runs = case.rows("means"), list(methods_of(case.comparison))
    rows_of = {(row.dataset, row.run): row for row in here.itertuples()}
    rows = [
        [dataset, *(_mean_cell(rows_of.get((dataset, run))) for run in runs)]
        for dataset in dict.fromkeys(here["dataset"])
    ]
    footer: list[list[Any]] = []
    ranks = case.rows("ranks")
    if len(ranks):
        by_run = dict(zip(ranks["run"], ranks["average_rank"], strict=True))
        lowest = min(by_run.values())
        cells = {run: Cell(f"{rank:.2f}", rank, best=rank == lowest) for run, rank in by_run.items()}
        footer.append(["average rank", *(cells.get(run, _NO_NUMBER) for run in runs)])
    wins, control = case.rows("wins"), case.comparison.record["control"]
    if len(wins):
        counts = wins.groupby("run", sort=False) if control is None else wins[wins["run"] == control].groupby("other")
        totals = counts[["win", "tie", "loss"]].sum()
        cells = {run: Cell("/".join(map(str, row)), int(row[0])) for run, *row in totals.itertuples()}
        name = "win/tie/loss" + ("" if control is None else f" of {control}")
        footer.append([name, *(cells.get(run, _NO_NUMBER) for run in runs)])
    return Table(case.title, dict.fromkeys(["data set", *runs], ""), rows, footer)


def metrics_table(comparison: Comparison, shown: Sequence[Case]) -> Table:
    """Return the mean ± standard deviation of every run by every metric, on the one data set that was compared.

    Parameters
    ----------
    comparison : Comparison
        Of one data set.
    shown : sequence of Case
    """
    runs = list(methods_of(comparison))
    rows_of = {(row.metric, row.classifier, row.run): row for row in comparison.means.itertuples()}
    rows = [
        [case.title, *(_mean_cell(rows_of.get((case.metric, case.classifier, run))) for run in runs)] for case in shown
    ]
    (dataset,) = comparison.means["dataset"].unique()
    return Table(f"Metrics on {dataset}", dict.fromkeys(["metric", *runs], ""), rows)


def _mean_cell(row: object) -> Cell:
    if row is None:
        return Cell("not run", math.nan)
    mean, std = row.mean, row.std  # type: ignore[attr-defined]
    if math.isnan(mean):
        return Cell("undefined", math.nan)
    text = f"{mean:.3f}" + ("" if math.isnan(std) else f" ± {std:.3f}")
    return Cell(text, mean, best=bool(row.best), tied=bool(row.tied))  # type: ignore[attr-defined]


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1] if words else ""


def first_of(names: Sequence[str]) -> str:
    """Return the first of some names, in a sentence.

    >>> first_of(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = [f"{len(names) - MAX_NAMED:,} more"] if len(names) > MAX_NAMED else []
    return listed([*names[:MAX_NAMED], *more])
