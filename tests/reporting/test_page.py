"""The page and its tables: whole, safe, and honest about what it could not show."""

from __future__ import annotations

import base64
import csv
import io
import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlfs_dask.errors import UsageError
from mlfs_dask.evaluation.comparison import compare
from mlfs_dask.evaluation.results import csv_text, parse_frame
from mlfs_dask.reporting.contents import read_contents
from mlfs_dask.reporting.diagnostics import describe
from mlfs_dask.reporting.features import rankings_section
from mlfs_dask.reporting.figures import Styles
from mlfs_dask.reporting.page import render, report
from mlfs_dask.reporting.tables import Block, Cell, Section, Table, cases, comparison_table, metrics_table
from mlfs_dask.selection.runs import read_run
from mlfs_dask.storage.opening import open_dataset
from tests.evaluation.evaluations import METRICS, steady, write_evaluation
from tests.reporting.conftest import HOSTILE, MEANS, Folders, edited, select
from tests.storage.stores import make_store


class Reader(HTMLParser):
    """Elements that were opened and not closed, links, and what a browser would load."""

    VOID = frozenset({"meta", "link", "br", "path", "use", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[tuple[str | None, str]] = []
        self.loaded: list[str] = []
        self.identifiers: list[str] = []
        self.figures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.figures += tag == "figure"
        if tag == "a":
            self.links.append((known.get("download"), str(known.get("href"))))
        elif tag != "use":
            self.loaded += [str(known[name]) for name in ("src", "href", "xlink:href") if known.get(name)]
        if known.get("id"):
            self.identifiers.append(str(known["id"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if known.get("id"):
            self.identifiers.append(str(known["id"]))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_the_page_stands_alone(read: Reader, text: str) -> None:
    assert set(read.loaded) == {"data:,"}, "nothing but an empty icon"
    assert all(href.startswith(("#", "data:text/csv")) for _, href in read.links)
    assert "@import" not in text
    assert "url(http" not in text
    assert len(text) < 2_000_000


def test_identifiers_are_unique_and_links_lead_to_them(read: Reader) -> None:
    assert len(set(read.identifiers)) == len(read.identifiers)
    assert {href[1:] for _, href in read.links if href.startswith("#")} <= set(read.identifiers)


def test_names_cannot_break_out(text: str) -> None:
    assert HOSTILE not in text
    assert "&lt;b&gt;&amp;" in text
    assert text.count("</script>") == 1


def test_sections(text: str) -> None:
    """What is asked first comes first; parameters come last."""
    assert re.findall(r"<h2 [^>]*>([^<]*)", text) == [
        "In short",
        "Quality",
        "Quality by number of features",
        "Stability of the chosen sets",
        "Cost",
        "Features",
        "Features and labels",
        "Details",
    ]
    assert re.findall(r"<caption[^>]*>([^<]*)", text)[-1] == "Parameters"


def test_a_csv_lies_behind_every_figure_and_table(read: Reader, text: str) -> None:
    files = [(name, href) for name, href in read.links if name]
    assert len(files) == read.figures + text.count("<table")
    assert all(str(name).endswith(".csv") for name, _ in files)
    found = {str(name): href for name, href in files}
    data = base64.b64decode(found["ranking-elc-best.csv"].split("base64,")[1]).decode()
    rows = list(csv.DictReader(io.StringIO(data)))
    assert HOSTILE in {row["feature"] for row in rows}
    assert [row["rank"] for row in rows] == list("123456")
    data = base64.b64decode(found["ranking-elc-scores.csv"].split("base64,")[1]).decode()
    scales = [row["scale"] for row in csv.DictReader(io.StringIO(data))]
    assert scales == 3 * ["the residual in the loop (Eq. 14)"] + 2 * ["the fit of each alone (Eq. 1)"] + [
        "being constant"
    ]


def test_scores_of_many_features_are_thinned(folders: Folders) -> None:
    (labelled,) = read_contents(folders.runs[1:]).runs
    names, scores = [f"f{i}" for i in range(100_000)], np.linspace(1, 0, 100_000)
    run = replace(labelled.run, ranking=np.arange(100_000), scores=scores, feature_names=names)
    (block,) = rankings_section([replace(labelled, run=run)], Styles(), None, ()).blocks
    (data,) = (figure.data for figure in block.figures if figure.name.endswith("-scores"))
    assert len(data) <= 2000
    assert data["rank"].iloc[[0, 999, -1]].tolist() == [1, 1000, 100_000]


def test_figures_are_described(text: str, read: Reader) -> None:
    names = re.findall(r'<svg role="img" aria-labelledby="([^"]+-title)"', text)
    assert len(names) == read.figures > 0
    for name in names:
        described = re.search(rf'<title id="{name}">([^<]+)</title>', text)
        assert described is not None
        assert len(described[1]) > 30


def test_tables_that_scroll_are_reached_by_keyboard(text: str) -> None:
    regions = re.findall(r'<div class="wide"[^>]*>', text)
    assert len(regions) == text.count("<table") > 3
    for region in regions:
        assert 'role="region"' in region
        assert 'tabindex="0"' in region
        assert re.search(r'aria-label="[^"]+"', region)


def test_cost_is_planned_and_measured(text: str, folders: Folders) -> None:
    record = read_run(str(folders.runs[0])).record

    def first_row(table: str) -> list[str]:
        of = text[text.index(f">{table}</caption>") :]
        body = of.index("<tbody>")
        return re.findall(r'data-value="([^"]*)"', of[body : of.index("</tr>", body)])

    measured = first_row("Finished runs")
    assert measured[:4] == ["elc", str(record["wall_seconds"]), "1", str(float(record["bytes_read"]))]
    planned = first_row("Planned and measured")
    assert planned[:4] == ["elc", str(record["plan"]["passes"]), "1", str(float(record["plan"]["bytes_read"]))]


def test_rows_in_memory_are_not_0_bytes(folders: Folders, tmp_path: Path) -> None:
    """An evaluation learns from rows that it holds: it passes over them and reads no store."""
    evaluation = shutil.copytree(folders.evaluations[0], tmp_path / "eval")
    fits = (evaluation / "fits.csv").read_text()
    assert ",1,1000," in fits
    (evaluation / "fits.csv").write_text(fits.replace(",1,1000,", ",1,0,"))
    report([evaluation], tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert ">rows in memory<" in text
    assert ">0 B<" not in text


def test_redundancy_and_residual_are_those_of_describe(text: str, folders: Folders) -> None:
    assert "of 3 features the residual in the loop (Eq. 14); of 2 features the fit of each alone (Eq. 1); of 1 " in text
    run = read_run(str(folders.runs[0]))
    _, (found,) = describe(open_dataset(folders.store), selections=[run.ranking[: run.k]])
    section = text[text.index('id="labels"') :]
    cells = re.findall(r'data-value="([^"]*)"', section[: section.index("</tr>", section.index("<tbody>"))])
    assert cells == ["elc", "tiny", "3", *map(str, found)]


@pytest.mark.parametrize(
    ("store", "note"),
    [
        ({"path": "gone.zarr"}, "gone.zarr"),
        ({"digest": "another"}, "is no longer the store that the run was made on"),
    ],
)
def test_a_store_that_is_gone_or_has_changed_is_a_sentence(
    folders: Folders, tmp_path: Path, store: dict[str, str], note: str
) -> None:
    (told,) = report([edited(folders.runs[0], tmp_path / "run", store=store)], tmp_path / "p.html")["notes"]
    assert told.startswith("elc: ")
    assert note in told
    assert "What needs the rows is left out" in (tmp_path / "p.html").read_text()


def test_unknown_labels_have_no_correlations(tmp_path: Path) -> None:
    X, Y = np.random.default_rng(0).random((40, 3)), np.arange(80).reshape(40, 2) % 3 - 1
    run = select(make_store(tmp_path / "x.zarr", X, Y.astype(np.int8)), "smfs", tmp_path / "run", k=1)
    (told,) = report([run], tmp_path / "p.html")["notes"]
    assert "some labels are unknown" in told


def test_runs_on_parts_of_a_store_are_shown_with_these(folders: Folders, tmp_path: Path) -> None:
    """Features of one number are not the same feature in all parts."""
    chosen = tmp_path / "rows.txt"
    chosen.write_text("\n".join(map(str, range(5, 40))))
    parts = [{"rows": str(chosen), "labels": "a"}, {"features": "0:4"}, {"features": "2:6", "rows": "::2"}]
    runs = [select(folders.store, "elc", tmp_path / f"run{i}", part=part) for i, part in enumerate(parts)]
    summary = report(runs, tmp_path / "p.html")
    assert summary["notes"] == []
    text = (tmp_path / "p.html").read_text()
    section = text[text.index('id="labels"') :]
    for part, place in zip(parts, runs, strict=True):
        run = read_run(str(place))
        _, ((redundancy, _),) = describe(open_dataset(folders.store).subset(**part), selections=[run.ranking[: run.k]])
        assert f'data-value="{redundancy}"' in section
    shared = [name for name in read_run(str(runs[0])).feature_names[:3] if name in "near noise"]
    assert shared
    for place in runs[1:]:
        shared = [name for name in shared if name in read_run(str(place)).feature_names[:3]]
    assert f"3 runs on tiny agree on these features: {', '.join(shared)}." in text


@pytest.mark.parametrize("how", ["chosen in Python", "a file that has changed"])
def test_a_part_that_nothing_tells_is_a_sentence(folders: Folders, tmp_path: Path, how: str) -> None:
    chosen = tmp_path / "rows.txt"
    chosen.write_text("\n".join(map(str, range(30))))
    rows = range(30) if how == "chosen in Python" else str(chosen)
    run = select(folders.store, "elc", tmp_path / "run", part={"rows": rows})
    chosen.write_text("1\n2\n3")
    (note,) = report([run], tmp_path / "p.html")["notes"]
    assert note.startswith("elc: the part of the store that the run used is not known")


def test_evaluations_that_do_not_go_together_are_shown_one_by_one(folders: Folders, tmp_path: Path) -> None:
    splits = {"kind": "holdout", "folds": 1, "repeats": 1, "test_size": 0.2, "seed": 1}
    other = write_evaluation(tmp_path / "e", "tiny", steady(MEANS), runs=list(MEANS), record={"splits": splits})
    (note,) = report([folders.evaluations[0], other], tmp_path / "p.html")["notes"]
    assert note.startswith(
        "The evaluations are shown one by one: two evaluations of 'tiny' do not have the same splits"
    )
    text = (tmp_path / "p.html").read_text()
    assert "Quality (2: tiny)" in text
    assert "20% held out, seed 1" in text
    reader = Reader()
    reader.feed(text)
    assert len(set(reader.identifiers)) == len(reader.identifiers)


def test_many_curves_are_drawn_when_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlfs_dask.reporting import page

    monkeypatch.setattr(page, "MAX_CURVES", 1)
    folder = write_evaluation(tmp_path / "e", "e", steady(MEANS), runs=["elc", "random"])
    assert report([folder], tmp_path / "p.html")["notes"] == ["Not drawn here: macro F1 ↑; name metrics to see them."]
    named = report([folder], tmp_path / "q.html", metrics=[metric["name"] for metric in METRICS])
    assert named["notes"] == []
    assert named["figures"] == 5  # two curves, stability, and two in the summary


def test_long_tables_are_folded_and_broad_ones_dense(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report([*folders.runs, *folders.evaluations[:1]], tmp_path / "short.html", data=False)
    monkeypatch.setattr("mlfs_dask.reporting.page.MAX_ROWS", 1)
    monkeypatch.setattr("mlfs_dask.reporting.page.MANY_COLUMNS", 4)
    report([*folders.runs, *folders.evaluations[:1]], tmp_path / "long.html", data=False)
    short, long = ((tmp_path / name).read_text() for name in ("short.html", "long.html"))
    assert "<summary>Runs: 2 rows</summary>" in long
    assert "<summary>Runs" not in short
    assert long.count("sortable dense") > short.count("sortable dense") > 0  # what runs cost has many columns


def test_evaluations_that_differ_in_their_runs_alone_are_one_row(folders: Folders, tmp_path: Path) -> None:
    """As a batch leaves them: one folder for each method."""
    parts = [
        write_evaluation(tmp_path / run, "tiny", steady(MEANS, seed=0), runs=[run]) for run in ("elc", "label-entropy")
    ]
    report(parts, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    table = text[text.index(">Evaluations<") : text.index("</table>", text.index(">Evaluations<"))]
    assert table.count("<tr>") == 1 + 1
    assert "elc, label-entropy" in table


def test_parameters_that_were_changed_stand_beside_the_run(folders: Folders, tmp_path: Path) -> None:
    report(
        [folders.runs[0], edited(folders.runs[0], tmp_path / "r", params={"lambda_": 0.375})], tmp_path / "page.html"
    )
    text = (tmp_path / "page.html").read_text()
    assert text.count(">lambda_ = 0.375<") == 1
    assert len(re.findall(r">[^<]*lambda_ = 0.375", text)) == 2  # and once among all parameters
    assert len(re.findall(r">[^<]*lambda_ = None", text)) == 1


def test_figures_of_many_runs_are_left_out(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlfs_dask.reporting.page.MAX_RANKINGS", 1)
    told = report(folders.runs, tmp_path / "page.html")
    assert told["notes"] == ["Figures of 1 of 2 runs are not drawn; name their RUN folders to see them."]
    text = (tmp_path / "page.html").read_text()
    assert told["notes"][0] in text
    assert "labels-elc-title" in text
    assert "labels-label-entropy-title" not in text
    assert ">label-entropy<" in text[text.index(">Finished runs<") :]


def test_what_shuffles_and_resamples_tell_is_shown(folders: Folders, tmp_path: Path) -> None:
    run = select(folders.store, "enm", tmp_path / "enm", k="auto", fdr=0.3, resamples=20)
    report([run], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    found = read_run(str(run))
    often = int((found.replicates["selection_frequency"][: found.k] >= 0.9).sum())
    assert "beat shuffled labels at a false discovery rate of 0.3" in text
    assert f"{often} of them are among the best {found.k} in at least 90% of 20 resamples" in text
    table = text[text.index(">enm: the chosen features") :]
    table = table[: table.index("</table>")]
    for column in ("feature", "rank", "score", "q-value", "rank from", "rank to", "times chosen"):
        assert f">{column}<" in table
    assert table.count("<tr>") == 1 + found.k
    assert f">{found.replicates['rank_high'][0]:.0f}<" in table
    assert text.count('id="ranking-enm-intervals-title"') == 1
    report([run, *folders.runs], tmp_path / "page.html", force=True)
    assert (tmp_path / "page.html").read_text().count('id="ranking-enm-intervals-title"') == 1


def test_places_that_are_taken(folders: Folders, tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    page.write_text("mine")
    with pytest.raises(UsageError, match="exists; --force replaces it"):
        report(folders.runs, page)
    with pytest.raises(UsageError, match="is not a page of mlfs; it is not replaced, even with --force"):
        report(folders.runs, page, force=True)
    assert page.read_text() == "mine"
    with pytest.raises(UsageError, match="is a folder; name the HTML file"):
        report(folders.runs, tmp_path)
    with pytest.raises(UsageError, match="is written to a local file"):
        report(folders.runs, "memory://page.html")


def test_what_does_not_fit_the_contents(folders: Folders, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an image shape needs a RUN folder"):
        report(folders.evaluations, tmp_path / "p.html", image_shape=(4, 4))
    with pytest.raises(UsageError, match=r"no metric 'f1' here\. Known: hamming_loss, macro_f1"):
        report(folders.evaluations, tmp_path / "p.html", metrics=["f1"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tied", "words"),
    [
        (["elc"], "takes the ranking of elc: no other is within one standard error"),
        (["elc", "enm"], "takes the mean rank of elc, enm, which are within one standard error of the best"),
    ],
)
def test_auto_tells_how_sure_its_choice_is(folders: Folders, tmp_path: Path, tied: list[str], words: str) -> None:
    judged = [
        {"method": "enm", "average_precision": 0.79, "below_best": 0.02, "standard_error": 0.0123},
        {"method": "elc", "average_precision": 0.81, "below_best": 0.0, "standard_error": 0.0},
    ]
    run = edited(folders.runs[0], tmp_path / "auto", extra={"chosen": "elc", "tied": tied, "judged": judged})
    report([run], tmp_path / "auto.html", data=False)
    text = (tmp_path / "auto.html").read_text()
    assert words in text
    assert text.index("0.8100") < text.index("0.7900"), "best first"
    assert "0.0123" in text
    assert len(re.findall("taken</td>", text)) == len(tied)


def test_best_and_ties_are_marked() -> None:
    table = Table(
        "F1",
        dict.fromkeys(["set", "one", "two"], ""),
        [["x", Cell("0.5", 0.5, best=True), Cell("0.4", 0.4, tied=True)]],
    )
    text = render([Section("f1", "F1", [Block(tables=[table])])], title="", lead="")
    assert '<td class="number best" data-value="0.5"><b>0.5</b></td>' in text
    assert '<td class="number" data-value="0.4">0.4 <span title="not different from the best">•</span></td>' in text


def test_a_comparison_as_a_table(folders: Folders) -> None:
    comparison = compare(folders.evaluations, control="elc")
    assert [case.stem for case in cases(comparison)] == ["hamming_loss.mlknn", "macro_f1.mlknn"]
    table = comparison_table(cases(comparison)[1])
    assert table.title == "macro F1 ↑"
    assert list(table.columns) == ["data set", "elc", "label-entropy", "random", "all"]
    assert [row[0] for row in table.rows] == ["other", "third", "tiny"]
    means = comparison.means
    of = means[(means["metric"] == "macro_f1") & (means["dataset"] == "tiny") & (means["run"] == "random")].iloc[0]
    cell = table.rows[2][3]
    assert cell.text == f"{of['mean']:.3f} ± {of['std']:.3f}"
    assert cell.value == of["mean"]
    assert [row[0] for row in table.footer] == ["average rank", "win/tie/loss of elc"]
    assert [cell.text for cell in table.footer[1][3:]] == ["3/0/0", ""]
    assert table.footer[0][3].text == "3.00"
    assert math.isnan(float(table.footer[0][4].value))


def test_without_a_control_each_run_is_counted_against_all(folders: Folders) -> None:
    table = comparison_table(cases(compare(folders.evaluations))[1])
    name, elc, entropy, random, _ = (cell.text for cell in table.cells(table.footer)[1])
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
    assert [row[0] for row in table.rows] == ["Hamming loss ↓", "macro F1 ↑"]
    assert table.rows[1][4].value > table.rows[1][1].value


def test_csv_reads_back_to_the_same_bits() -> None:
    frame = pd.DataFrame({"x": [1 / 6, math.nan], "name": ['a,"b"', ""]})  # pandas 2 itself reads 1/6 one bit lower
    back = parse_frame(csv_text(frame), {"x": "float64", "name": "str"})
    assert back["x"][0] == frame["x"][0]
    assert math.isnan(back["x"][1])
    assert back["name"].tolist() == ['a,"b"', ""]
