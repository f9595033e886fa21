"""Figures: what they show, and that they fit a page."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlfs_dask.reporting import figures
from mlfs_dask.reporting.figures import QUIET, SERIES, Styles, inline_svg, write_figure
from mlfs_dask.selectors import METHODS


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
    with figures._look(text_as_paths=False):
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


def test_scores_of_many_features_are_thinned() -> None:
    scores = np.linspace(1, 0, 100_000)
    figure = figures.score_curve("elc", scores, 500, Styles().of("elc"), name="s")
    assert len(figure.data) <= 2000
    assert figure.data["rank"].iloc[[0, 999, -1]].tolist() == [1, 1000, 100_000]
    assert "at rank 500" in figure.alt
    assert len(inline_svg(figure)) < 100_000


@pytest.mark.parametrize(
    "figure",
    [
        figures.score_curve("elc", np.linspace(1, 0, 2000), 5, Styles().of("elc"), name="s"),
        figures.convergence("elc", np.geomspace(1e6, 0.02, 30).tolist(), Styles().of("elc"), name="c"),
        figures.values_by_run(
            pd.DataFrame({"run": ["a", "b"], "dataset": "x", "value": [0.003, 2.5], "std": [0.001, np.nan]}),
            title="t",
            xlabel="seconds",
            caption="",
            styles=Styles(),
            logarithmic=True,
            name="v",
        ),
    ],
    ids=lambda figure: figure.name,
)
def test_ticks_are_plain_numbers(figure: figures.Figure) -> None:
    ticks = re.findall(r"<text[^>]*>([^<]*)</text>", inline_svg(figure))
    assert not [text for text in ticks if "$" in text or "\\" in text]
    assert {"s": "1,000", "c": "10,000", "v": "0.1"}[figure.name] in ticks


def test_scores_on_two_scales_are_two_lines() -> None:
    """A line across the step would tell of a difference in quality that is not there."""
    scales = [{"features": 2, "scale": "in the loop"}, {"features": 3, "scale": "alone"}]
    scores = np.array([2.0, 1.0, 0.5, 0.2, 0.0])
    figure = figures.score_curve("elc", scores, 2, Styles().of("elc"), scales=scales, name="s")
    axes = figures._drawn([figure], 1).axes[0]
    lines = {line.get_label(): line.get_xdata().tolist() for line in axes.get_lines()[:2]}
    assert lines == {"in the loop": [1, 2], "alone": [3, 4, 5]}
    assert "of 2 features in the loop; of 3 features alone. The step from one scale to the next says nothing" in (
        figure.caption
    )
    plain = figures.score_curve("enm", scores, 2, Styles().of("enm"), name="s")
    assert "scale" not in plain.caption
    assert figures._drawn([plain], 1).axes[0].get_lines()[0].get_xdata().tolist() == [1, 2, 3, 4, 5]


def test_values_by_run_have_a_dot_for_each_data_set() -> None:
    frame = pd.DataFrame(
        {"run": ["a", "a", "b", "b"], "dataset": ["x", "y"] * 2, "value": [1.0, 3.0, 5.0, 6.0], "std": 0.0}
    )
    figure = figures.values_by_run(frame, title="t", xlabel="gap", caption="", styles=Styles(), form=".1f", name="v")
    assert figure.alt == "gap: a 2.0, b 5.5."
    axes = figures._drawn([figure], 1).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [line.get_xdata().tolist() for line in axes.get_lines()] == [[1, 3], [2], [5, 6], [5.5]]


def test_rank_intervals_have_a_bar_a_marker_and_a_share() -> None:
    low, high, share = np.array([1.0, 2.0, 2.0]), np.array([1.0, 3.0, 40.0]), np.array([1.0, 0.75, 0.04])
    style = Styles().of("elc", "elc")
    figure = figures.rank_intervals("elc", ["a", "b", "c"], low, high, share, 2, style, name="n")
    axes = figures._drawn([figure], 1).axes[0]
    assert [bar[:, 0].tolist() for bar in axes.collections[0].get_segments()] == [[1, 1], [2, 3], [2, 40]]
    assert axes.lines[0].get_xdata().tolist() == [1, 2, 3]
    assert [text.get_text() for text in axes.texts] == ["100%", "75%", "4%"]
    assert "b rank 2, 2 to 3, 75%" in figure.alt


CORRELATIONS = np.array([[0.1, -0.9], [0.2, 0.3]])
RANKS = {"elc": np.array([1.0, 2.0]), "mfsir": np.array([np.nan, 7.0])}
RANKING = np.array([5, 0, 3, 1, 2, 4])


@pytest.mark.parametrize(
    ("figure", "alt", "row", "values"),
    [
        (
            figures.features_by_rank(["f", "g"], RANKS, title="set", styles=Styles(), name="r"),
            "Best first: f, g. 1 of them were chosen by all.",
            {"feature": "g"},
            {"elc": 2.0, "mfsir": 7.0},
        ),
        (
            figures.image_map("elc", RANKING, np.arange(6.0)[::-1], 2, (2, 3), name="m"),
            "(2, 3), (1, 1)",
            {"row": 2, "column": 3},
            {"rank": 1, "score": 5.0},
        ),
        (
            figures.label_map("elc", ["f", "g"], ["sky", "sea"], CORRELATIONS, name="l"),
            "-0.90, is of g with sky",
            {"feature": "g"},
            {"sky": -0.9},
        ),
    ],
    ids=["features by rank", "image map", "label map"],
)
def test_figures_of_features(figure: figures.Figure, alt: str, row: dict[str, Any], values: dict[str, Any]) -> None:
    assert alt in figure.alt
    shown = figure.data[(figure.data[list(row)] == pd.Series(row)).all(axis=1)]
    assert shown[list(values)].to_dict("records") == [values]
    inline_svg(figure)


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
