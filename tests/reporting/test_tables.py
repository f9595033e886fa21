"""Tables to read."""

from __future__ import annotations

import math

import pandas as pd

from mlfs_dask.evaluation.comparison import compare
from mlfs_dask.evaluation.results import parse_frame
from mlfs_dask.reporting.page import render
from mlfs_dask.reporting.sections import Block, Section
from mlfs_dask.reporting.tables import Cell, Table, cases, comparison_table, csv_text, metrics_table
from tests.reporting.conftest import Folders


def test_best_and_ties_are_marked() -> None:
    table = Table(
        "F1", ["set", "one", "two"], [[Cell("x", "x"), Cell("0.5", 0.5, best=True), Cell("0.4", 0.4, tied=True)]]
    )
    text = render([Section("f1", "F1", [Block(tables=[table])])], title="", lead="")
    assert '<td class="number best" data-value="0.5"><b>0.5</b></td>' in text
    assert '<td class="number" data-value="0.4">0.4 <span title="not different from the best">•</span></td>' in text


def test_a_comparison_as_a_table(folders: Folders) -> None:
    comparison = compare(folders.evaluations, control="elc")
    assert cases(comparison) == [("hamming_loss", "mlknn"), ("macro_f1", "mlknn")]
    table = comparison_table(comparison, "macro_f1", "mlknn")
    assert table.title == "macro F1 ↑"
    assert list(table.columns) == ["data set", "elc", "label-entropy", "random", "all"]
    assert [row[0].text for row in table.rows] == ["other", "third", "tiny"]
    means = comparison.means
    of = means[(means["metric"] == "macro_f1") & (means["dataset"] == "tiny") & (means["run"] == "random")].iloc[0]
    cell = table.rows[2][3]
    assert cell.text == f"{of['mean']:.3f} ± {of['std']:.3f}"
    assert cell.value == of["mean"]
    assert [row[0].text for row in table.footer] == ["average rank", "win/tie/loss of elc"]
    assert [cell.text for cell in table.footer[1][3:]] == ["3/0/0", ""]
    assert table.footer[0][3].text == "3.00"
    assert math.isnan(float(table.footer[0][4].value))


def test_without_a_control_each_run_is_counted_against_all(folders: Folders) -> None:
    table = comparison_table(compare(folders.evaluations), "macro_f1", "mlknn")
    name, elc, entropy, random, _ = (cell.text for cell in table.footer[1])
    assert name == "win/tie/loss"
    assert random == "0/0/6"
    assert int(elc.split("/")[0]) >= 3
    assert sum(map(int, entropy.split("/"))) == 6


def test_one_data_set_is_a_table_of_metrics(folders: Folders) -> None:
    """A row a metric: as many columns as there are runs fit a page, as many as there are metrics do not."""
    comparison = compare(folders.evaluations[:1])
    table = metrics_table(comparison, cases(comparison))
    assert table.title == "Metrics on tiny"
    assert list(table.columns) == ["metric", "elc", "label-entropy", "random", "all"]
    assert [row[0].text for row in table.rows] == ["Hamming loss ↓", "macro F1 ↑"]
    assert table.rows[1][4].value > table.rows[1][1].value


def test_csv_reads_back_to_the_same_bits() -> None:
    frame = pd.DataFrame({"x": [1 / 6, math.nan], "name": ['a,"b"', ""]})  # pandas 2 itself reads 1/6 one bit lower
    back = parse_frame(csv_text(frame), {"x": "float64", "name": "str"})
    assert back["x"][0] == frame["x"][0]
    assert math.isnan(back["x"][1])
    assert back["name"].tolist() == ['a,"b"', ""]
