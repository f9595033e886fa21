"""Figures: what they show, and that they fit a page."""

from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlfs_dask.reporting import figures
from mlfs_dask.reporting.figures import (
    QUIET,
    SERIES,
    Marks,
    Style,
    Styles,
    inline_svg,
    lines_plot,
    rows_plot,
    write_figure,
)
from mlfs_dask.selectors import METHODS

AXES = {"xlabel": "x", "ylabel": "y"}


def drawn(draw: Any) -> Any:
    """The axes of a figure."""
    return figures._drawn([figures.Figure("f", "", "", "", pd.DataFrame(), draw)], 1).axes[0]


@pytest.fixture
def curve() -> figures.Figure:
    frame = pd.DataFrame(
        {
            "run": ["a $x$", "a $x$", "all"],
            "method": ["a", "a", "all"],
            "k": [2, 4, 9],
            "mean": [0.1, 0.2, 0.5],
            "std": [0.01, np.nan, 0.0],
            "n_folds": [3, 3, 3],
        }
    )
    return figures.curve(frame, title="<set>", ylabel="F1 ↑", styles=Styles(), name="curve-1")


def test_a_run_has_one_style_everywhere() -> None:
    styles, other = Styles(), Styles()
    first, second = styles.of("a"), styles.of("b")
    assert styles.of("a") is first
    assert (first.colour, second.colour) == SERIES[:2]
    assert styles.of("everything", "all").colour == QUIET
    assert styles.of("chance", "random").dash != styles.of("everything").dash
    many = [styles.of(str(number)) for number in range(20)]
    assert len({(style.colour, style.marker) for style in [first, second, *many]}) == 22
    assert set(figures.ORDER) == set(METHODS)
    for method in METHODS:  # each has its colour whatever others are there
        other.of(method, method)
    assert Styles().of("mfsir", "mfsir") == other.of("mfsir", "mfsir")
    styles = Styles()
    assert styles.of("elc", "elc").colour == SERIES[0]
    assert styles.of("elc:variant=published", "elc").colour not in (SERIES[0], styles.of("mfsir").colour)


@pytest.mark.parametrize("step", [1, 5, 8])
def test_eight_methods_differ_in_colour_and_in_marker(step: int) -> None:
    styles, methods = Styles(), [figures.ORDER[step * number % len(METHODS)] for number in range(8)]
    shown = [styles.of(method, method) for method in methods]
    assert len({style.colour for style in shown}) == len({style.marker for style in shown}) == len(set(methods))


def test_inline_figures_take_the_colours_of_the_page(curve: figures.Figure) -> None:
    svg = inline_svg(curve)
    assert inline_svg(curve) == svg
    ET.fromstring(svg)
    assert "var(--series-0)" in svg
    assert "var(--text)" in svg
    assert not {colour for colour in (*SERIES, figures.TEXT, figures.LINE, QUIET) if colour in svg}
    assert "a $x$" in svg, "names are text, not formulas"
    identifiers = re.findall(r'\bid="([^"]+)"', svg)
    assert identifiers
    assert all(identifier.startswith("curve-1-") for identifier in identifiers)
    for target in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg):
        assert "".join(target) in identifiers
    assert "DejaVu" not in svg
    assert "<metadata" not in svg


def test_files_stand_alone(curve: figures.Figure, tmp_path: Path) -> None:
    write_figure([curve, curve], tmp_path / "f.svg")
    svg = (tmp_path / "f.svg").read_text()
    assert SERIES[0] in svg
    assert "var(" not in svg


def test_labels_stay_inside_the_figure() -> None:
    """Ticks that are chosen anew for smaller axes may be longer than those that room was made for."""
    low, width = 0.49382624240422635, 0.14147072354468562
    methods = ("elc", "enm", "gmm", "mfsir", "smfs", "access-mfs", "label-entropy", "random")
    rows = [
        {"run": run, "method": run, "k": k, "mean": low + width * k / 3, "std": width / 5, "n_folds": 5}
        for run in [*methods, *(f"a-long-name-{number}" for number in range(1, 8))]
        for k in (1, 2, 3)
    ]
    made = figures.curve(pd.DataFrame(rows), title="t", ylabel="Ranking loss", styles=Styles(), name="c")
    with figures.look(text_as_paths=False):
        canvas = figures._drawn([made], 1)
        canvas.savefig(io.BytesIO(), format="svg", dpi=100)
    # A point of air around letters counts as theirs.
    assert canvas.axes[0].yaxis.label.get_window_extent().x0 >= -1


def test_panels_share_one_legend(curve: figures.Figure) -> None:
    alone, panels = figures._drawn([curve], 1), figures._drawn([curve, curve, curve], 3)
    assert alone.legends == []
    assert [axes.get_legend() for axes in panels.axes] == [None] * 3
    (legend,) = panels.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == [text.get_text() for text in alone.axes[0].get_legend().get_texts()]
    assert len(shown) > 1


LINE = {"": Style(SERIES[0], "", "-")}


@pytest.mark.parametrize(
    ("plot", "tick"),
    [
        (lines_plot(pd.DataFrame({"x": [1, 2000], "y": [1.0, 0]}), "x", "y", LINE, logarithmic="x", **AXES), "1,000"),
        (lines_plot(pd.DataFrame({"x": [1, 2], "y": [1e6, 0.02]}), "x", "y", LINE, logarithmic="y", **AXES), "10,000"),
        (rows_plot(["a", "b"], [Marks([0.003, 2.5], [0, 1], LINE[""])], xlabel="s", logarithmic="x"), "0.1"),
    ],
    ids=["x of lines", "y of lines", "x of rows"],
)
def test_ticks_are_plain_numbers(plot: Any, tick: str) -> None:
    figure = figures.Figure("f", "", "", "", pd.DataFrame(), *plot)
    ticks = re.findall(r"<text[^>]*>([^<]*)</text>", inline_svg(figure))
    assert not [text for text in ticks if "$" in text or "\\" in text]
    assert tick in ticks


def test_lines_of_a_table() -> None:
    """All features are a line across, others have their points, shaded where they have a spread."""
    frame = pd.DataFrame({"run": ["a", "a", "all"], "method": ["a", "a", "all"], "k": [4, 2, 9], "y": 0.5, "std": 0.1})
    draw, _ = lines_plot(frame, "k", "y", Styles().of_all(frame), by="run", spread="std", end=3, **AXES)
    axes = drawn(draw)
    assert [list(line.get_xdata()) for line in axes.get_lines()] == [[2, 4], [0, 1], [3, 3]]
    assert [text.get_text() for text in axes.texts] == ["k = 3"]
    assert len(axes.collections) == 1


def test_marks_in_rows() -> None:
    marks = Marks([1, 2, np.nan], [0, 1, 2], LINE[""], bars=([1, 2, 2], [1, 3, 40]))
    draw, size = rows_plot(["a", "b", "c"], [marks], xlabel="rank", beside=["100%", "75%", "4%"], end=2.5)
    axes = drawn(draw)
    assert [bar[:, 0].tolist() for bar in axes.collections[0].get_segments()] == [[1, 1], [2, 3], [2, 40]]
    assert axes.lines[0].get_xdata().tolist()[:2] == [1, 2]
    assert [text.get_text() for text in axes.texts] == ["100%", "75%", "4%"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    assert axes.get_legend() is None
    assert size < rows_plot(["a"] * 20, [marks], xlabel="rank")[1]


CORRELATIONS = np.array([[0.1, -0.9], [0.2, np.nan]])
RANKING = np.array([5, 0, 3, 1, 2, 4])


@pytest.mark.parametrize(
    ("figure", "alt", "row", "values"),
    [
        (
            figures.image_map("elc", RANKING, np.arange(6.0)[::-1], 2, (2, 3), name="m"),
            "(2, 3), (1, 1)",
            {"row": 2, "column": 3},
            {"rank": 1, "score": 5.0},
        ),
        (
            figures.signed_map(
                "l", "elc", "", ["f", "g"], ["sky", "sea"], CORRELATIONS, what="correlation", roots=True
            ),
            "The strongest correlation, -0.90, is of g with sky",
            {"feature": "g"},
            {"sky": -0.9},
        ),
    ],
    ids=["image map", "signed map"],
)
def test_maps(figure: figures.Figure, alt: str, row: dict[str, Any], values: dict[str, Any]) -> None:
    assert alt in figure.alt
    shown = figure.data[(figure.data[list(row)] == pd.Series(row)).all(axis=1)]
    assert shown[list(values)].to_dict("records") == [values]
    inline_svg(figure)


def test_a_pair_that_is_infinitely_sure_does_not_hide_the_others() -> None:
    values = np.array([[np.inf, 40.0], [-10.0, np.nan]])
    figure = figures.signed_map("l", "elc", "", ["f", "g"], ["sky", "sea"], values, what="−log₁₀ p", roots=True)
    assert "The strongest −log₁₀ p, inf, is of f with sky" in figure.alt
    (mesh, *_) = figures._drawn([figure], 1).axes[0].collections
    assert mesh.get_array().tolist() == [[40.0, -10.0], [40.0, None]]
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-40, 40)


def test_whole_numbers_beside_long_names_do_not_run_into_one_another() -> None:
    names = [f"MMMMMMMMMM_MMMMMMMMMMMM{i:02}" for i in range(12)]
    style = LINE[""]
    axes = drawn(rows_plot(names, [Marks(np.array([1.0, 19]), np.array([0.0, 1]), style)], xlabel="rank")[0])
    axes.figure.canvas.draw()
    shown = [text.get_window_extent() for text in axes.get_xticklabels() if text.get_text()]
    assert len(shown) > 2
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(shown))


@pytest.mark.parametrize("control", [False, True])
def test_critical_differences_join_what_does_not_differ(*, control: bool) -> None:
    test = {"runs": ["a", "b", "c"], "alpha": 0.05, "control": "a"}
    test |= {"nemenyi_difference": 1.0, "bonferroni_dunn_difference": 0.5}
    ranks = {"a": 1.2, "b": 2.0, "c": 2.8}
    figure = figures.critical_differences(test, ranks, title="t", styles=Styles(), control=control, name="n")
    axes = figures._drawn([figure], 1).axes[0]
    bars = [sorted(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 3]
    assert bars == ([] if control else [[1.2, 2.0], [2.0, 2.8]])
    assert figure.data["run"].tolist() == ["a", "b", "c"]
    assert ("Bonferroni–Dunn with the control a, critical difference 0.500" in figure.caption) == control


@pytest.mark.parametrize(("runs", "ticks"), [(3, [1, 2, 3]), (31, [1, 5, 10, 15, 20, 25, 30])])
def test_numbers_of_many_ranks_do_not_run_into_one_another(runs: int, ticks: list[int]) -> None:
    ranks = {f"m{i}": 1.0 + i for i in range(runs)}
    test = {"runs": list(ranks), "alpha": 0.05, "control": "m0", "nemenyi_difference": 9.0}
    figure = figures.critical_differences(test, ranks, title="t", styles=Styles(), control=False, name="n")
    assert figures._drawn([figure], 1).axes[0].get_xticks().tolist() == ticks
