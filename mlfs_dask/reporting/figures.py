"""Figures of runs and comparisons, drawn with matplotlib: as SVG that takes a page's colours, and as SVG files.

Colours are those of Okabe and Ito, a little darker where white paper needs it. A method has the same colour on all
pages unless another run has it there; markers and dashes tell runs apart without colour.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlfs_dask.errors import require_extra
from mlfs_dask.evaluation.results import ALL
from mlfs_dask.selectors import METHODS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], None]

TEXT, LINE, QUIET = "#1d2430", "#d3d7dd", "#5a6472"
SERIES = ("#0072b2", "#c44e00", "#00805e", "#b0508a", "#a87400", "#3a97d3", "#6b4fa0", "#7a5c3e")
"""On paper; a page has its own of the same hues for the dark."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
RANDOM = "random"
ORDER = tuple(dict.fromkeys(("elc", "label-entropy", "mfsir", "smfs", "access-mfs", "enm", "gmm", *METHODS)))
"""The method of each colour; those that are most often seen together have the colours that differ most."""

THEMED = {TEXT: "var(--text)", LINE: "var(--line)", QUIET: "var(--quiet)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(SERIES)
}

MAX_NAMES = 20


@dataclass(frozen=True)
class Figure:
    """A figure, not drawn yet.

    Attributes
    ----------
    name : str
        For files and anchors; unique on a page.
    title, caption : str
    alt : str
        What it shows, for those who do not see it.
    data : DataFrame
        What is drawn.
    draw : callable (Axes) -> None
    size : (float, float)
        Inches.
    """

    name: str
    title: str
    caption: str
    alt: str
    data: pd.DataFrame
    draw: Draw
    size: tuple[float, float] = (4.4, 3.0)


@dataclass(frozen=True)
class Style:
    """Line style of a run."""

    colour: str
    marker: str
    dash: str


EVERYTHING, CHANCE = Style(QUIET, "", "--"), Style(QUIET, "", ":")
"""All features and random ones, whatever else there is."""


@dataclass
class Styles:
    """One style a run, on all figures: that of its method, or the next one with another colour and marker.

    Of more than eight runs no two have both in common.
    """

    known: dict[str, Style] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)

    def of(self, run: str, method: str | None = None) -> Style:
        """Style of a run."""
        if run not in self.known:
            self.known[run] = self._new(method)
        return self.known[run]

    def of_all(self, data: pd.DataFrame) -> dict[str, Style]:
        """Styles of the runs of a table, in its order."""
        methods = data.drop_duplicates("run").set_index("run")["method"]
        return {str(run): self.of(str(run), method) for run, method in methods.items()}

    def _new(self, method: str | None) -> Style:
        if method in (ALL, RANDOM):
            return EVERYTHING if method == ALL else CHANCE
        first = ORDER.index(method) if method in ORDER else 0
        numbers = range(len(SERIES) * len(MARKERS))

        def alike(number: int) -> int:
            style = self._style(number)
            others = map(self._style, self.taken)
            return sum((each.colour == style.colour) + (each.marker == style.marker) for each in others)

        number = min((*numbers[first:], *numbers[:first]), key=lambda number: (number in self.taken, alike(number)))
        self.taken.add(number)
        return self._style(number)

    @staticmethod
    def _style(number: int) -> Style:
        turn, colour = divmod(number, len(SERIES))
        return Style(SERIES[colour], MARKERS[(colour + turn) % len(MARKERS)], DASHES[turn % len(DASHES)])


@contextmanager
def look(*, text_as_paths: bool) -> Iterator[None]:
    """Settings of matplotlib, ours and no user's; names are text and never formulas."""
    require_extra("matplotlib", "a figure")
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # A name in a script that the font has not: squares in a file, right in the page.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.size": 9,
                "axes.titlesize": 9,
                "text.parse_math": False,
                "text.color": TEXT,
                "axes.labelcolor": TEXT,
                "axes.edgecolor": QUIET,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.grid": True,
                "axes.axisbelow": True,
                "grid.color": LINE,
                "grid.linewidth": 0.6,
                "xtick.color": QUIET,
                "ytick.color": QUIET,
                "xtick.labelcolor": TEXT,
                "ytick.labelcolor": TEXT,
                "legend.frameon": False,
                "legend.fontsize": 8.5,
                "lines.linewidth": 1.6,
                "lines.markersize": 4,
                "svg.fonttype": "path" if text_as_paths else "none",
                "svg.hashsalt": "mlfs",
                "savefig.transparent": not text_as_paths,
                "figure.dpi": 100,
            }
        )
        yield


def _drawn(figures: Sequence[Figure], columns: int) -> Any:
    from matplotlib.figure import Figure as Canvas

    rows = math.ceil(len(figures) / columns)
    width, height = figures[0].size
    canvas = Canvas(figsize=(width * columns, height * rows), layout="constrained")
    for place, figure in enumerate(figures, start=1):
        axes = canvas.add_subplot(rows, columns, place)
        figure.draw(axes)
        if len(figures) > 1:
            axes.set_title(figure.title)
    if len(figures) > 1:
        _one_legend(canvas, width * columns)
    layout: Any = canvas.get_layout_engine()
    for _ in range(2):  # axes that have become smaller may have other ticks, with longer labels
        layout.execute(canvas)
    canvas.set_layout_engine("none")  # with one, saving a figure would draw it twice
    return canvas


def _one_legend(canvas: Any, width: float) -> None:
    """The legends of all panels as one beneath them; `width` in inches."""
    shown: dict[str, Any] = {}
    for axes in canvas.axes:
        if axes.get_legend() is not None:
            axes.get_legend().remove()
            handles, labels = axes.get_legend_handles_labels()
            shown = dict(zip(labels, handles, strict=True)) | shown
    if shown:
        columns = max(1, min(len(shown), int(width * 12) // (max(map(len, shown)) + 8)))
        canvas.legend(shown.values(), shown.keys(), loc="outside lower center", ncol=columns)


def inline_svg(figure: Figure) -> str:
    """A figure as an SVG element for a page: text stays text, colours are the page's, identifiers its own."""
    with look(text_as_paths=False):
        stream = io.StringIO()
        _drawn([figure], 1).savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for colour, variable in THEMED.items():
        text = text.replace(colour, variable)
    prefix = f"{figure.name}-"
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', text)
    text = text.replace("url(#", f"url(#{prefix}")
    # The font is the page's; matplotlib writes it in one property or, newer, in two.
    text = re.sub(r"font: (?:[a-z0-9]+ )*?([0-9.]+px) [^;\"]*", r"font-size: \1", text)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    # Attributes of presentation, which style rules can override, and no size in points: the page decides.
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    width = figure.size[0] / 4.4
    return text.replace(
        "<svg", f'<svg role="img" aria-labelledby="{prefix}title" style="max-width:{27 * width:.4g}rem"', 1
    )


def write_figure(figures: Figure | Sequence[Figure], file: Path) -> None:
    """Write a figure, or several as panels of one, three in a row, as SVG."""
    panels = [figures] if isinstance(figures, Figure) else list(figures)
    with look(text_as_paths=True):
        _drawn(panels, min(3, len(panels))).savefig(file, metadata={"Date": None}, facecolor="white")


# What is drawn: each function returns how to draw, and the size of it


def lines_plot(
    data: pd.DataFrame,
    x: str,
    y: str,
    styles: Mapping[str, Style],
    *,
    by: str = "",
    spread: str = "",
    end: float | None = None,
    logarithmic: str = "",
    xlabel: str,
    ylabel: str,
) -> tuple[Draw, tuple[float, float]]:
    """Lines of one column of a table against another.

    Parameters
    ----------
    data : DataFrame
    x, y : str
        Columns.
    styles : mapping of str -> Style
        The line of each value of the column `by`; of a table without one, the one line.
    spread : str, optional
        Column of the standard deviations, which are shaded.
    end : float, optional
        Where a dashed line says that the choice of k ends.
    logarithmic : str
        Axes that are: "x", "y" or both.
    """
    lines = {name: data[data[by] == name] if by else data for name in styles}

    def draw(axes: Axes) -> None:
        for name, of in lines.items():
            style, of = styles[name], of.sort_values(x)
            look: dict[str, Any] = {"color": style.colour, "linestyle": style.dash, "label": name}
            if style == EVERYTHING:  # of all features there is one number alone
                axes.axhline(of[y].iloc[-1], **look)
                continue
            axes.plot(of[x], of[y], marker=style.marker if len(of) < 60 else "", **look)
            if spread:
                low, high = (of[y] + side * of[spread].fillna(0) for side in (-1, 1))
                axes.fill_between(of[x], low, high, color=style.colour, alpha=0.12, lw=0)
        if end is not None:
            axes.axvline(end, color=QUIET, linestyle="--", lw=1)
            right = end < 0.7 * data[x].max()
            places: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            places |= {"va": "top", "ha": "left" if right else "right"}
            axes.annotate(f"k = {end}", (end, 1), (4 if right else -4, -2), **places)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        _finish(axes, data[x], logarithmic)

    return draw, (4.4, 3.3 if len(lines) > 1 else 3.0)


@dataclass(frozen=True)
class Marks:
    """Markers of one style in the rows of a figure.

    Attributes
    ----------
    places, rows : sequence of float
        Where they are, NaN for none; numbers of their rows.
    style : Style
    label : str
        In the legend; none.
    bars : (sequence of float or float, sequence of float), optional
        From where to where a bar goes through each marker.
    look : mapping
        What else `Axes.plot` takes.
    """

    places: ArrayLike
    rows: ArrayLike
    style: Style
    label: str = ""
    bars: tuple[ArrayLike, ArrayLike] | None = None
    look: Mapping[str, Any] = field(default_factory=dict)


def rows_plot(
    names: Sequence[str],
    marks: Sequence[Marks],
    *,
    xlabel: str,
    beside: Sequence[str] = (),
    end: float | None = None,
    logarithmic: str = "",
) -> tuple[Draw, tuple[float, float]]:
    """Rows with names, the first above, and markers in them.

    Parameters
    ----------
    names : sequence of str
    marks : sequence of Marks
    beside : sequence of str
        A text at the right of each row.
    end : float, optional
        Where a dashed line ends the choice of k.
    logarithmic : str
        "x" if the axis is.
    """

    def draw(axes: Axes) -> None:
        for each in marks:
            if each.bars is not None:
                axes.hlines(each.rows, *each.bars, color=each.style.colour, lw=2.5, alpha=0.6)
            look: dict[str, Any] = {
                "color": each.style.colour,
                "markersize": 5,
                "lw": 0,
                "label": each.label,
                **each.look,
            }
            axes.plot(each.places, each.rows, each.style.marker or "o", **look)
        for row, text in enumerate(beside):
            where = ("axes fraction", "data")
            axes.annotate(text, (1, row), (5, 0), xycoords=where, textcoords="offset points", va="center")
        if end is not None:
            axes.axvline(end, color=QUIET, linestyle="--", lw=1)
        axes.set_yticks(range(len(names)), [shortened(name, 26) for name in names])
        axes.set(xlabel=xlabel, ylim=(len(names) - 0.5, -0.5))
        _finish(axes, np.concatenate([each.places for each in marks]), logarithmic)

    legend = 0.5 if any(each.label for each in marks) else 0.0
    return draw, (4.4, 0.7 + legend + 0.19 * max(len(names), 6))


def _finish(axes: Axes, values: Any, logarithmic: str) -> None:
    """Ticks, in whole numbers where all `values` are, and a legend beneath the axes of several lines or marks."""
    from matplotlib.ticker import MaxNLocator

    for which in logarithmic:
        _logarithmic(axes, "x" if which == "x" else "y")
    if "x" not in logarithmic and not np.nansum(np.mod(values, 1)):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) > 1:
        columns = max(1, min(4, 64 // (max(map(len, labels)) + 7)))
        look: dict[str, Any] = {"columnspacing": 1.2, "handlelength": 1.8}
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncol=columns, **look)


def _logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis with plain numbers: matplotlib's own labels are formulas, which `look` keeps as text."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_data_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def shortened(text: str, length: int = 22) -> str:
    """A name that fits beside a figure; the middle goes.

    >>> shortened("abcdefghij", 5)
    'ab…ij'
    """
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    half = (length - 1) // 2
    return f"{text[: length - 1 - half]}…{text[-half:]}"


def curve(frame: pd.DataFrame, *, title: str, ylabel: str, styles: Styles, name: str) -> Figure:
    """A metric against the number of features, a line a run.

    Parameters
    ----------
    frame : DataFrame
        `run, method, k, mean, std` of one data set, metric and classifier.
    """
    data = frame[["run", "method", "k", "mean", "std", "n_folds"]].reset_index(drop=True)
    ends = data.sort_values("k").groupby("run", sort=False)["mean"].agg(["first", "last"])
    described = "; ".join(f"{run} from {row['first']:.3f} to {row['last']:.3f}" for run, row in ends.iterrows())
    return Figure(
        name,
        title,
        f"{ylabel} on {title}: mean over the folds, shaded ± one standard deviation.",
        f"{ylabel} from the smallest to the largest number of features: {described}.",
        data,
        *lines_plot(
            data, "k", "mean", styles.of_all(data), by="run", spread="std", xlabel="number of features", ylabel=ylabel
        ),
    )


def signed_map(
    name: str,
    title: str,
    caption: str,
    features: Sequence[str],
    labels: Sequence[str],
    values: NDArray[np.float64],
    *,
    what: str,
    roots: bool = False,
) -> Figure:
    """A heat map of values of both signs, of features with labels.

    Parameters
    ----------
    what : str
        What the values are.
    values : float64 array, shape (labels, features)
        NaN where there is none.
    roots : bool
        Coloured by their square roots.
    """
    import pandas as pd
    from matplotlib.colors import FuncNorm, Normalize

    label, feature = divmod(int(np.nanargmax(np.abs(values))), values.shape[1])
    strongest = values[label, feature]

    def draw(axes: Axes) -> None:
        limit = np.abs(values[np.isfinite(values)]).max(initial=1e-12)
        norm = Normalize(-limit, limit)
        if roots:
            norm = FuncNorm((lambda v: np.sign(v) * np.sqrt(np.abs(v)), lambda v: np.sign(v) * v**2), -limit, limit)
        shown = np.ma.masked_invalid(np.clip(values.T, -limit, limit))  # infinite ones have the last colour
        mesh = axes.pcolormesh(shown, cmap="RdBu_r", norm=norm, edgecolors="face", linewidth=0.2)
        axes.invert_yaxis()
        axes.set_yticks(np.arange(len(features)) + 0.5, [shortened(text) for text in features])
        axes.set_xticks(np.arange(len(labels)) + 0.5, [shortened(text, 18) for text in labels], rotation=90)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        bar = axes.figure.colorbar(mesh, ax=axes, shrink=0.7, pad=0.02)
        bar.outline.set_visible(False)
        if bar.solids is not None:
            bar.solids.set_edgecolor("face")

    frame = pd.DataFrame(values.T, columns=list(labels))
    frame.insert(0, "feature", list(features))
    alt = f"Heat map. The strongest {what}, {strongest:.2f}, is of {features[feature]} with {labels[label]}."
    size = (max(4.4, 2.6 + 0.19 * len(labels)), 1.6 + 0.19 * len(features))
    return Figure(name, title, caption, alt, frame, draw, size)


def image_map(
    run: str,
    ranking: NDArray[np.int64],
    scores: NDArray[np.float64],
    k: int,
    shape: tuple[int, int],
    *,
    name: str,
) -> Figure:
    """Draw the selected features as pixels of an image; the features are its pixels, row by row."""
    import pandas as pd

    height, width = shape
    ranks = np.empty(len(ranking), np.int64)
    ranks[ranking] = np.arange(1, len(ranking) + 1)
    picture = ranks.reshape(shape)
    chosen = np.ma.masked_array(picture, picture > k)

    def draw(axes: Axes) -> None:
        shade = np.ma.masked_array(1 - (picture - k) / max(len(ranking) - k, 1), picture <= k)
        axes.pcolormesh(shade, cmap="Greys", vmin=-0.05, vmax=2.2, edgecolors="face", linewidth=0.2)
        axes.pcolormesh(chosen, cmap="viridis", vmin=1, vmax=max(k, 2), edgecolors="face", linewidth=0.2)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.axis("off")
        if height * width <= 256:
            for row, column in zip(*np.nonzero(picture <= k), strict=True):
                rank = int(picture[row, column])
                dark = rank <= 0.6 * k
                axes.text(
                    column + 0.5, row + 0.5, str(rank), ha="center", va="center", color="#ffffff" if dark else "#000000"
                )

    rows, columns = np.divmod(ranking, width)
    data = pd.DataFrame({"row": rows + 1, "column": columns + 1, "rank": np.sort(ranks), "score": scores})
    best = zip(data["row"][: min(k, 10)], data["column"], strict=False)
    return Figure(
        name,
        f"{run}: where",
        f"{run}: the {k} chosen of {height} × {width} pixels, by rank; the others greyer the better they rank.",
        f"Best pixels as (row, column) from 1: {', '.join(f'({row}, {column})' for row, column in best)}.",
        data,
        draw,
        size=(3.4, 0.1 + 3.3 * height / width),
    )


def critical_differences(
    test: Mapping[str, Any], ranks: Mapping[str, float], *, title: str, styles: Styles, control: bool, name: str
) -> Figure:
    """Average ranks on an axis, with what does not differ: by Nemenyi joined by bars, by Bonferroni–Dunn within a bar.

    Parameters
    ----------
    test : mapping
        An element of `Comparison.tests` that has a Friedman test.
    ranks : mapping
        Run -> average rank.
    control : bool
        Bonferroni–Dunn around the control instead of Nemenyi.
    """
    import pandas as pd

    runs = list(test["runs"])
    ordered = sorted(runs, key=lambda run: ranks[run])
    difference = test["bonferroni_dunn_difference" if control else "nemenyi_difference"]
    centre = test["control"]

    def draw(axes: Axes) -> None:
        bars = [] if control else _not_differing([ranks[run] for run in ordered], difference)
        for level, (best, worst) in enumerate(bars):
            axes.plot([best, worst], [-0.4 * (level + 1)] * 2, color=TEXT, linewidth=3, solid_capstyle="butt")
        half, end = (len(ordered) + 1) // 2, float(len(ordered)) if control else max(len(ordered), 1 + difference)
        lowest = -0.4 * len(bars) - 0.2 - half
        for side, names in ((-1, ordered[:half]), (1, ordered[half:][::-1])):
            edge = 1.0 if side < 0 else end
            for place, run in enumerate(names):
                y = -0.4 * len(bars) - 0.6 - place
                colour = styles.of(run, run if run == RANDOM else None).colour
                axes.plot([ranks[run], ranks[run], edge], [0, y, y], color=colour, linewidth=1)
                text = f"{run} ({ranks[run]:.2f})" if side < 0 else f"({ranks[run]:.2f}) {run}"
                axes.annotate(
                    text,
                    (edge, y),
                    (4 * side, 0),
                    textcoords="offset points",
                    ha="right" if side < 0 else "left",
                    va="center",
                    fontsize=9,
                    color=colour,
                    annotation_clip=False,
                )
        axes.set(xlim=(1, end), ylim=(lowest, 0), yticks=[], xlabel="average rank")
        axes.grid(visible=False)
        axes.xaxis.tick_top()
        axes.spines[:].set_visible(False)
        axes.spines["top"].set_visible(True)
        if control:
            left, right = max(1, ranks[centre] - difference), min(len(runs), ranks[centre] + difference)
            axes.fill_between([left, right], -0.3, 0, color=QUIET, alpha=0.35, lw=0)
        else:
            # A ruler beneath, as long as the difference.
            low = lowest - 0.7
            axes.plot([1, 1 + difference], [low, low], color=TEXT, lw=1.2, marker="|", markersize=7, clip_on=False)
            axes.set_ylim(low - 0.9, 0)
            axes.annotate(
                f"critical difference {difference:.2f}",
                (1 + difference / 2, low),
                (0, -4),
                textcoords="offset points",
                ha="center",
                va="top",
                annotation_clip=False,
            )
        step = 1 if len(runs) <= 15 else 5  # the numbers of more would run into one another
        axes.set_xticks(sorted({1, *range(step, len(runs) + 1, step)}))
        axes.xaxis.set_label_position("top")

    which = f"Bonferroni–Dunn with the control {centre}" if control else "Nemenyi"
    how = (
        "runs within the grey bar do not differ from the control" if control else "runs that share a bar do not differ"
    )
    return Figure(
        name,
        title,
        f"{title}: {which}, critical difference {difference:.3f} at α = {test['alpha']:g}; 1 is the best rank, {how}.",
        "Average ranks: " + ", ".join(f"{run} {ranks[run]:.2f}" for run in ordered) + ".",
        pd.DataFrame(
            {"run": ordered, "average_rank": [ranks[run] for run in ordered], "critical_difference": difference}
        ),
        draw,
        size=(6.0, 1.3 + 0.24 * len(runs)),
    )


def _not_differing(ranks: Sequence[float], difference: float) -> list[tuple[float, float]]:
    """Largest groups of rising ranks that differ by less than `difference`: the least and the greatest of each.

    >>> _not_differing([1.2, 2.0, 2.8], 1.0)
    [(1.2, 2.0), (2.0, 2.8)]
    """
    groups: list[tuple[float, float]] = []
    for best in ranks:
        worst = max(rank for rank in ranks if rank - best < difference)
        if worst > best and (not groups or worst > groups[-1][1]):
            groups.append((best, worst))
    return groups
