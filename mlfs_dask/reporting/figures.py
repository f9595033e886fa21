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
from numpy.typing import NDArray

from mlfs_dask.evaluation.results import ALL
from mlfs_dask.selectors import METHODS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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
    draw: Callable[[Axes], None]
    size: tuple[float, float] = (4.4, 3.0)


@dataclass(frozen=True)
class Style:
    """How the line of a run looks."""

    colour: str
    marker: str
    dash: str


@dataclass
class Styles:
    """One style a run, on all figures: that of its method, or the next one with another colour and marker.

    Of more than eight runs no two have both in common.
    """

    known: dict[str, Style] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)

    def of(self, run: str, method: str | None = None) -> Style:
        """Style of a run; all features and chance are grey, whatever else there is."""
        if run not in self.known:
            self.known[run] = self._new(method)
        return self.known[run]

    def _new(self, method: str | None) -> Style:
        if method in (ALL, RANDOM):
            return Style(QUIET, "", "--" if method == ALL else ":")
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
def _look(*, text_as_paths: bool) -> Iterator[None]:
    """Settings of matplotlib, ours and no user's; names are text and never formulas."""
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
    # Once more when it is saved: axes that have become smaller may have other ticks, with longer labels.
    canvas.draw_without_rendering()
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
    with _look(text_as_paths=False):
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
    with _look(text_as_paths=True):
        _drawn(panels, min(3, len(panels))).savefig(file, metadata={"Date": None}, facecolor="white")


# What is drawn


def convergence(run: str, objective: Sequence[float], style: Style, *, name: str) -> Figure:
    """The objective of a method's loop after every iteration."""
    import pandas as pd

    values = np.asarray(objective, np.float64)
    iterations = np.arange(1, len(values) + 1)
    positive = bool(len(values)) and bool((values > 0).all())
    logarithmic = positive and values.max() > 100 * values.min()

    def draw(axes: Axes) -> None:
        axes.plot(iterations, values, color=style.colour, marker=style.marker if len(values) < 60 else "")
        if logarithmic:
            _logarithmic(axes, "y")
        axes.set_xlabel("iteration")
        axes.set_ylabel("objective")
        _whole_numbers(axes)

    return Figure(
        name,
        run,
        f"{run}: objective after each of {len(values)} iterations.",
        f"Line falling or rising from {values[0]:.4g} to {values[-1]:.4g} in {len(values)} iterations.",
        pd.DataFrame({"iteration": iterations, "objective": values}),
        draw,
    )


def curve(frame: pd.DataFrame, *, title: str, ylabel: str, styles: Styles, name: str) -> Figure:
    """A metric against the number of features, a line a run.

    Parameters
    ----------
    frame : DataFrame
        `run, method, k, mean, std` of one data set, metric and classifier.
    """
    data = frame[["run", "method", "k", "mean", "std", "n_folds"]].reset_index(drop=True)

    def draw(axes: Axes) -> None:
        _lines_by_k(axes, data, "mean", styles)
        axes.set_ylabel(ylabel)

    ends = data.sort_values("k").groupby("run", sort=False)["mean"].agg(["first", "last"])
    described = "; ".join(f"{run} from {row['first']:.3f} to {row['last']:.3f}" for run, row in ends.iterrows())
    return Figure(
        name,
        title,
        f"{ylabel} on {title}: mean over the folds, shaded ± one standard deviation.",
        f"{ylabel} from the smallest to the largest number of features: {described}.",
        data,
        draw,
        size=(4.4, 3.3),
    )


def _lines_by_k(axes: Axes, data: pd.DataFrame, column: str, styles: Styles) -> None:
    """A line a run against the number of features, shaded by `std` where there is one; of all features across."""
    for run, of in data.groupby("run", sort=False):
        of = of.sort_values("k")
        method = of["method"].iloc[0]
        style = styles.of(str(run), method)
        look: dict[str, Any] = {"color": style.colour, "linestyle": style.dash, "label": str(run)}
        if method == ALL:
            axes.axhline(of[column].iloc[-1], **look)
            continue
        axes.plot(of["k"], of[column], marker=style.marker, **look)
        if "std" in of:
            low, high = (of[column] + side * of["std"].fillna(0) for side in (-1, 1))
            axes.fill_between(of["k"], low, high, color=style.colour, alpha=0.12, lw=0)
    axes.set_xlabel("number of features")
    _whole_numbers(axes)
    _legend_below(axes)


def _beside(axes: Axes, row: Any, text: str) -> None:
    """A text in a row, right of the axes."""
    where = ("axes fraction", "data")
    axes.annotate(text, (1, row), (5, 0), xycoords=where, textcoords="offset points", va="center")


def _logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis with plain numbers: matplotlib's own labels are formulas, which `_look` keeps as text."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_data_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _legend_below(axes: Axes) -> None:
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) > 1:
        longest = max(map(len, labels))
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.45, -0.2),
            ncol=max(1, min(4, 64 // (longest + 7))),
            columnspacing=1.2,
            handlelength=1.8,
        )


def score_curve(
    run: str,
    scores: NDArray[np.float64],
    k: int,
    style: Style,
    *,
    scales: Sequence[Mapping[str, Any]] = (),
    name: str,
) -> Figure:
    """Scores in the order of the ranking, and where the choice ends.

    Parameters
    ----------
    scales : sequence of mapping
        Where scores are not all on one scale: `scale` and number of `features` of each, best first. A line ends where
        its scale does, for a step from one to the next says nothing of the features.
    """
    import pandas as pd

    scores = scores[~np.isnan(scores)]  # excluded features have none
    d = len(scores)
    # All of the first thousand, beyond them as many as a page can show.
    shown = np.unique(np.concatenate([np.arange(min(d, 1000)), np.linspace(0, d - 1, min(d, 1000)).astype(np.int64)]))
    ends = np.cumsum([int(scale["features"]) for scale in scales]) if scales else np.array([d])
    names = [str(scale["scale"]) for scale in scales] or [""]

    def draw(axes: Axes) -> None:
        for number, (part, label) in enumerate(
            zip(np.split(shown, np.searchsorted(shown, ends[:-1])), names, strict=True)
        ):
            axes.plot(part + 1, scores[part], color=style.colour, linestyle=DASHES[number % len(DASHES)], label=label)
        axes.axvline(k, color=QUIET, linestyle="--", lw=1)
        axes.annotate(
            f"k = {k}",
            (k, 1),
            (4 if k < 0.7 * d else -4, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            ha="left" if k < 0.7 * d else "right",
        )
        if d > 500:
            _logarithmic(axes, "x")
        axes.set_xlabel("rank")
        axes.set_ylabel("score")
        _legend_below(axes)

    caption = f"{run}: score by rank; the dashed line is where the choice of {k} ends."
    if scales:
        caption += (
            " Scores are on scales of their own: "
            + "; ".join(f"of {scale['features']} features {scale['scale']}" for scale in scales)
            + ". The step from one scale to the next says nothing about quality."
        )
    return Figure(
        name,
        f"{run}: scores",
        caption,
        f"Scores fall from {scores[0]:.4g} at rank 1 to {scores[k - 1]:.4g} at rank {k} "
        f"and {scores[-1]:.4g} at rank {d}.",
        pd.DataFrame({"rank": shown + 1, "score": scores[shown]}),
        draw,
        size=(4.4, 3.3 if scales else 3.0),
    )


def best_features(run: str, names: Sequence[str], scores: NDArray[np.float64], style: Style, *, name: str) -> Figure:
    """The best features by name."""
    import pandas as pd

    count = min(MAX_NAMES, len(names))
    shown = [shortened(each) for each in names[:count]]
    values = scores[:count]

    def draw(axes: Axes) -> None:
        axes.barh(np.arange(count), values, color=style.colour, height=0.7)
        axes.set_yticks(np.arange(count), [f"{place}. {text}" for place, text in enumerate(shown, start=1)])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("score")

    return Figure(
        name,
        f"{run}: best features",
        f"{run}: the {count} best features.",
        f"Best first: {', '.join(names[:count])}.",
        pd.DataFrame({"rank": np.arange(1, count + 1), "feature": list(names[:count]), "score": values}),
        draw,
        size=(4.4, 0.7 + 0.19 * count),
    )


def rank_intervals(
    run: str,
    names: Sequence[str],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    frequency: NDArray[np.float64],
    k: int,
    style: Style,
    *,
    name: str,
) -> Figure:
    """How far the ranks of the best features vary between resamples of the rows.

    Parameters
    ----------
    names : sequence of str
        Of features, best first.
    low, high : float64 array, shape (d,)
        Ranks, from 1, between which nine of ten resamples rank each feature.
    frequency : float64 array, shape (d,)
        Share of the resamples in which each feature is among the best k.
    k : int
    """
    import pandas as pd

    count = min(MAX_NAMES, len(names))
    ranks = np.arange(1, count + 1)
    low, high, frequency = low[:count], high[:count], frequency[:count]

    def draw(axes: Axes) -> None:
        axes.hlines(ranks, low, high, color=style.colour, lw=2.5, alpha=0.6)
        axes.plot(ranks, ranks, style.marker or "o", color=style.colour, markersize=5, lw=0)
        axes.axvline(k + 0.5, color=QUIET, linestyle="--", lw=1)
        for rank, share in zip(ranks, frequency, strict=True):
            _beside(axes, rank, f"{share:.0%}")
        axes.set_yticks(ranks, [f"{rank}. {shortened(each)}" for rank, each in zip(ranks, names, strict=False)])
        axes.set_ylim(count + 0.5, 0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("rank")
        if high.max() > 20 * count:
            _logarithmic(axes, "x")
        else:
            _whole_numbers(axes)

    return Figure(
        name,
        f"{run}: ranks in resamples of the rows",
        f"{run}: the rank of each of the {count} best features (the marker), the ranks between which nine of ten "
        "resamples of the rows have it (the bar), and at the right the share of the resamples in which it is among the "
        f"best {k}, left of the dashed line.",
        "; ".join(
            f"{each} rank {rank}, {first:.0f} to {last:.0f}, {share:.0%}"
            for each, rank, first, last, share in zip(names, ranks, low, high, frequency, strict=False)
        )
        + ".",
        pd.DataFrame(
            {
                "rank": ranks,
                "feature": list(names[:count]),
                "rank_low": low,
                "rank_high": high,
                "selection_frequency": frequency,
            }
        ),
        draw,
        size=(4.4, 0.7 + 0.19 * count),
    )


def clusters(run: str, rows: Sequence[Mapping[str, str]], bound: float, style: Style, *, name: str) -> Figure | None:
    """Features that say the same as a chosen one; None where there is none.

    Parameters
    ----------
    rows : sequence of mapping
        Of `redundancy.csv`.
    bound : float
        Correlation from which features are in one cluster.
    """
    import pandas as pd

    members = pd.DataFrame(rows).astype({"cluster": int, "rank": int, "chosen": int, "similarity": float})
    others = members[members["feature"] != members["representative"]]
    if others.empty:
        return None
    numbers = list(dict.fromkeys(others["cluster"]))
    shown = numbers[:MAX_NAMES]
    of_cluster = members.set_index("cluster")
    names = [str(of_cluster.loc[[number], "representative"].iloc[0]) for number in shown]
    ranks = [int(of_cluster.loc[[number], "rank"].min()) for number in shown]
    data = others[others["cluster"].isin(shown)]
    places = data["cluster"].map({number: place for place, number in enumerate(shown)}).to_numpy()

    def draw(axes: Axes) -> None:
        passed = (data["chosen"] == 0).to_numpy()
        alike = data["similarity"].to_numpy()
        for which, fill in ((passed, "none"), (~passed, style.colour)):
            axes.scatter(alike[which], places[which], 26, facecolors=fill, edgecolors=style.colour)
        for place, number in enumerate(shown):
            _beside(axes, place, f"+{int((data['cluster'] == number).sum())}")
        ticks = zip(ranks, names, strict=True)
        axes.set_yticks(range(len(shown)), [f"{rank}. {shortened(each)}" for rank, each in ticks])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        margin = max(0.04 * (1 - bound), 1e-3)
        axes.set_xlim(bound - margin, 1 + margin)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("correlation, without its sign")

    more = "" if len(numbers) == len(shown) else f" {len(numbers) - len(shown):,} more clusters are in redundancy.csv."
    listed = "; ".join(
        f"{each}: {', '.join(data.loc[data['cluster'] == number, 'feature'])}"
        for each, number in zip(names, shown, strict=True)
    )
    return Figure(
        name,
        f"{run}: features that say the same",
        f"{run}: each row is a chosen feature, with its rank; the markers are features whose correlation with it is "
        f"{bound:g} or more, filled where they are chosen, too, and at the right is their number.{more}",
        f"{listed}.",
        data[["cluster", "feature", "representative", "similarity", "chosen", "rank"]],
        draw,
        size=(4.4, 1.1 + 0.19 * len(shown)),
    )


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


def values_by_run(
    frame: pd.DataFrame,
    *,
    title: str,
    xlabel: str,
    caption: str,
    styles: Styles,
    logarithmic: bool = False,
    form: str = ".3f",
    name: str,
) -> Figure:
    """A value of every run, a row a run: the mean as a dot, with what it is the mean of.

    Parameters
    ----------
    frame : DataFrame
        `run, dataset, value, std`, in the order of the rows. Of one data set a line is drawn of ± std; of several, a
        small dot for each.
    form : str
        How the mean is written at the end of its row.
    """
    data = frame[["run", "dataset", "value", "std"]].reset_index(drop=True)
    runs = list(dict.fromkeys(data["run"]))
    means = data.groupby("run", sort=False)["value"].mean()
    one = data["dataset"].nunique() == 1

    def draw(axes: Axes) -> None:
        for row, run in enumerate(runs):
            of, style = data[data["run"] == run], styles.of(run)
            if one:
                axes.errorbar(means[run], row, xerr=of["std"].fillna(0), color=style.colour, lw=1.4, capsize=3)
            else:
                axes.plot(of["value"], [row] * len(of), "o", color=style.colour, markersize=4, alpha=0.45, lw=0)
            axes.plot(means[run], row, style.marker or "o", color=style.colour, markersize=7)
            _beside(axes, row, format(means[run], form))
        axes.set_yticks(range(len(runs)), [shortened(run, 26) for run in runs])
        axes.set_ylim(len(runs) - 0.5, -0.5)
        if logarithmic:
            _logarithmic(axes, "x")
        axes.set_xlabel(xlabel)

    return Figure(
        name,
        title,
        caption,
        f"{xlabel}: " + ", ".join(f"{run} {format(means[run], form)}" for run in runs) + ".",
        data,
        draw,
        size=(4.4, 0.8 + 0.3 * len(runs)),
    )


def features_by_rank(
    features: Sequence[str], ranks: Mapping[str, NDArray[np.float64]], *, title: str, styles: Styles, name: str
) -> Figure:
    """Which of the first run's best features the others have chosen too, and at which rank.

    Parameters
    ----------
    features : sequence of str
        Names, best first.
    ranks : mapping of run -> float64 array, shape (features,)
        Ranks from 1; NaN where the run has not chosen the feature.
    """
    import pandas as pd

    runs = list(ranks)
    data = pd.DataFrame({"feature": list(features), **{run: ranks[run] for run in runs}})

    def draw(axes: Axes) -> None:
        for number, run in enumerate(runs):
            style = styles.of(run)
            # Runs that agree would hide one another.
            rows = np.arange(len(features)) + 0.6 * ((number + 0.5) / len(runs) - 0.5)
            axes.plot(ranks[run], rows, style.marker, color=style.colour, markersize=5, label=run)
        axes.set_yticks(range(len(features)), [shortened(feature) for feature in features])
        axes.set_ylim(len(features) - 0.5, -0.5)
        axes.set_xlabel("rank")
        _whole_numbers(axes)
        _legend_below(axes)

    shared = int(np.isfinite(list(ranks.values())).all(axis=0).sum())
    return Figure(
        name,
        title,
        f"{title}: the best features of {runs[0]}, and the ranks of those that the others have chosen too.",
        f"Best first: {', '.join(features)}. {shared} of them were chosen by all.",
        data,
        draw,
        size=(4.4, 1.3 + 0.2 * max(len(features), 8)),  # room for the legend beneath few features
    )


def label_map(
    run: str, features: Sequence[str], labels: Sequence[str], correlations: NDArray[np.float64], *, name: str
) -> Figure:
    """Correlation of the best features with labels.

    Parameters
    ----------
    correlations : float64 array, shape (labels, features)
    """
    label, feature = divmod(int(np.argmax(np.abs(correlations))), correlations.shape[1])
    return _signed_map(
        features,
        labels,
        correlations,
        name=name,
        title=f"{run}: features and labels",
        caption=f"{run}: Pearson correlation of its {len(features)} best features with the labels.",
        alt=f"Heat map. The strongest correlation, {correlations[label, feature]:.2f}, is of "
        f"{features[feature]} with {labels[label]}.",
    )


def pair_map(
    run: str, features: Sequence[str], labels: Sequence[str], strength: NDArray[np.float64], *, name: str
) -> Figure:
    """How surely features go with labels.

    Parameters
    ----------
    strength : float64 array, shape (labels, features)
        −log₁₀ p with the sign of the direction; NaN where a pair is not in the table.
    """
    label, feature = divmod(int(np.nanargmax(np.abs(strength))), strength.shape[1])
    surest = strength[label, feature]
    return _signed_map(
        features,
        labels,
        strength,
        roots=True,
        name=name,
        title=f"{run}: pairs",
        caption=f"{run}: −log₁₀ p of features with labels, positive where the label goes with more of the feature, "
        "coloured by its square root; empty where a pair is not in the table.",
        alt=f"Heat map. The surest pair is {features[feature]} with {labels[label]}, "
        f"{'more' if surest > 0 else 'less'} of the one with the other, p about 1e-{abs(surest):.0f}.",
    )


def _signed_map(
    features: Sequence[str],
    labels: Sequence[str],
    values: NDArray[np.float64],
    *,
    name: str,
    title: str,
    caption: str,
    alt: str,
    roots: bool = False,
) -> Figure:
    """A heat map of values of both signs, shape (labels, features); `roots`: coloured by their square roots."""
    import pandas as pd
    from matplotlib.colors import FuncNorm, Normalize

    def draw(axes: Axes) -> None:
        limit = max(float(np.nanmax(np.abs(values))), 1e-12)
        shown = np.ma.masked_invalid(values.T)
        norm = Normalize(-limit, limit)
        if roots:
            norm = FuncNorm((lambda v: np.sign(v) * np.sqrt(np.abs(v)), lambda v: np.sign(v) * v**2), -limit, limit)
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
    size = (max(4.4, 2.6 + 0.19 * len(labels)), 1.6 + 0.19 * len(features))
    return Figure(name, title, caption, alt, frame, draw, size=size)


def image_map(
    run: str,
    ranking: NDArray[np.int64],
    scores: NDArray[np.float64],
    k: int,
    shape: tuple[int, int],
    *,
    name: str,
) -> Figure:
    """Where the chosen features lie in an image whose pixels, row by row, are the features."""
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

    places = np.arange(len(ranking))
    return Figure(
        name,
        f"{run}: where",
        f"{run}: the {k} chosen of {height} × {width} pixels, by rank; the others greyer the better they rank.",
        "Best pixels as (row, column) from 1: "
        + ", ".join(f"({i // width + 1}, {i % width + 1})" for i in ranking[: min(k, 10)].tolist())
        + ".",
        pd.DataFrame(
            {
                "row": places // width + 1,
                "column": places % width + 1,
                "rank": ranks,
                "score": _by_feature(ranking, scores),
            }
        ),
        draw,
        size=(3.4, 0.1 + 3.3 * height / width),
    )


def _by_feature(ranking: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    values = np.empty(len(ranking))
    values[ranking] = scores
    return values


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
        axes.set_xlim(1, end)
        axes.set_ylim(lowest, 0)
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.xaxis.tick_top()
        for name in ("left", "right", "bottom"):
            axes.spines[name].set_visible(False)
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
        axes.set_xlabel("average rank")

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


def stability_curve(frame: pd.DataFrame, *, dataset: str, styles: Styles, name: str) -> Figure:
    """Agreement of the sets chosen in different folds, against the number of features.

    Parameters
    ----------
    frame : DataFrame
        `run, method, k, kuncheva, jaccard, n_sets` of one data set.
    """
    data = frame[["run", "method", "k", "kuncheva", "jaccard", "n_sets"]].reset_index(drop=True)

    def draw(axes: Axes) -> None:
        _lines_by_k(axes, data, "kuncheva", styles)
        axes.set_ylabel("Kuncheva's index")
        axes.set_ylim(top=1.03)

    average = data.groupby("run", sort=False)["kuncheva"].mean()
    return Figure(
        name,
        dataset,
        f"{dataset}: agreement of the sets chosen in different folds; 1 the same sets, 0 chance.",
        "Mean of Kuncheva's index: " + ", ".join(f"{run} {value:.2f}" for run, value in average.items()) + ".",
        data,
        draw,
        size=(4.4, 3.3),
    )
