"""Plots of a run, or of a fitted selector, on axes of Matplotlib: the figures of `mlfs report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlfs_dask.errors import UsageError
from mlfs_dask.reporting.contents import LabelledRun
from mlfs_dask.reporting.features import best_features, pair_map, rank_intervals, shown_pairs
from mlfs_dask.reporting.figures import Figure, Styles, look
from mlfs_dask.selection.runs import as_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def ranking(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the scores of the best features, best first.

    Parameters
    ----------
    run : str or Selector
        Run folder, or a fitted selector.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; default: those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> ax = mlfs.plot.ranking(mlfs.BRCC(3).fit(X, y))
    >>> [text.get_text() for text in ax.get_yticklabels()[:2]]
    ['1. worst concave points', '2. worst perimeter']
    """
    labelled, styles = _labelled(run)
    return _draw(best_features(labelled, styles), ax)


def stability(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the ranks of the best features in resamples of the rows, and the share in which each is chosen.

    Parameters
    ----------
    run : str or Selector
        Run folder, or a fitted selector, with `resamples`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; default: those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    UsageError
        If the run has no resamples.
    """
    figures = rank_intervals(*_labelled(run))
    if not figures:
        raise UsageError("the run has no resamples\n  cure: fit with resamples=100, or select with --resamples 100")
    return _draw(figures[0], ax)


def pairs(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the significance and direction of pairs of features and labels as a heat map.

    Parameters
    ----------
    run : str or Selector
        Run folder, or a fitted selector, with `pairs`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; default: those of a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    UsageError
        If the run has no table of pairs, or no pair of its best features in the table.
    """
    labelled, _ = _labelled(run)
    table = shown_pairs(labelled.run)
    if table is None or not len(table):
        raise UsageError("the run has no table of pairs\n  cure: fit with pairs='all', or select with --pairs all")
    return _draw(pair_map(labelled, table), ax)


def _labelled(run: Any) -> tuple[LabelledRun, Styles]:
    """Return a run under the name of its method, and the styles of the figures."""
    read, styles = as_run(run), Styles()
    method = str(read.record["method"])
    styles.of(method, method)
    return LabelledRun(method, method, read.path, read), styles


def _draw(figure: Figure, ax: Axes | None) -> Axes:
    with look(text_as_paths=False):
        if ax is None:
            from matplotlib import pyplot as plt

            ax = plt.subplots(figsize=figure.size, layout="constrained")[1]
        figure.draw(ax)
        ax.set_title(figure.title)
    return ax
