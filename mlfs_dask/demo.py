"""The demonstration: handwritten digits, from a file to a page that shows which pixels each method chose.

scikit-learn carries 1 797 images of 8 × 8 pixels. Six labels follow from the digit, so that an image has
several labels at once; they are written as a Mulan ARFF file, converted, planned and selected from like any
user's own file.
"""

from __future__ import annotations

import html
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.errors import UsageError
from mlfs_dask.results import write_run

SIDE = 8

LABELS: dict[str, frozenset[int]] = {
    "even": frozenset({0, 2, 4, 6, 8}),
    "prime": frozenset({2, 3, 5, 7}),
    "more than four": frozenset({5, 6, 7, 8, 9}),
    "has a loop": frozenset({0, 6, 8, 9}),
    "open curves only": frozenset({2, 3, 5}),
    "straight strokes only": frozenset({1, 4, 7}),
}
"""Name of a label -> the digits that have it."""

METHODS = ("label-entropy", "elc", "enm", "gmm")
N_KEPT = 16

_MARK = "demo made by mlfs"


@dataclass(frozen=True)
class Choice:
    """What one method chose.

    Attributes
    ----------
    method, title, paper : str
    scores : float64 array, shape (64,)
    ranking : int64 array, shape (64,)
        Pixels, best first.
    k : int
    record : dict
        Content of `run.json`.
    """

    method: str
    title: str
    paper: str
    scores: NDArray[np.float64]
    ranking: NDArray[np.int64]
    k: int
    record: dict[str, Any]


def run_demo(
    directory: str | Path,
    *,
    k: int = N_KEPT,
    force: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the whole way on the digits, in a folder of its own.

    Parameters
    ----------
    directory : path
        Gets `digits.arff`, `digits.xml`, `digits.zarr`, one run folder a method, and `index.html`.
    k : int
        Pixels to keep.
    force : bool
        Do it again where an earlier demo lies.
    tell : callable
        Receives a line for every step: the command that would do the same.

    Returns
    -------
    dict
        page, store, and for every method the pixels it kept and the seconds it took.

    Raises
    ------
    UsageError
        If the folder holds anything but an earlier demo, or that and not `force`.
    """
    from mlfs_dask.selectors import get_method
    from mlfs_dask.storage.convert import convert
    from mlfs_dask.storage.dataset import open_dataset
    from mlfs_dask.storage.readers.base import LabelSpec

    started = time.perf_counter()
    folder = Path(directory)
    _check_folder(folder, force)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".demo").write_text(_MARK + "\n")
    arff, xml, store = folder / "digits.arff", folder / "digits.xml", folder / "digits.zarr"
    images, digits = load_digits()
    _write_whole(arff, arff_text(images, digits))
    _write_whole(xml, xml_text())

    tell(f"mlfs convert {arff} {store} --labels {xml}")
    command = f"mlfs convert {arff} {store} --labels {xml}"
    convert(arff, store, labels=LabelSpec(xml=str(xml)), force=force, command=command)
    dataset = open_dataset(str(store))
    profile = dataset.rows.profile
    tell(f"mlfs inspect {store}")
    tell(f"  {profile.n:,} images, {profile.d} pixels, {profile.q} labels")

    choices = []
    for name in METHODS:
        method = get_method(name)
        selector = method(n_features_to_select=k)
        plan = selector.plan(dataset.rows, runtime.current_resources())
        tell(f"mlfs plan {name} {store}")
        tell(
            f"  passes: {plan.passes}, bytes read: {plan.bytes_read:,}, peak: {plan.peak_worker_bytes / 2**20:.0f} MiB"
        )
        tell(f"mlfs select {name} {store} -k {k} -o {folder / name}")
        selector.fit(dataset)
        record = selector.report_.to_dict()
        write_run(
            str(folder / name),
            ranking=selector.ranking_,
            scores=selector.scores_,
            feature_names=dataset.feature_names,
            record=record,
            force=force,
        )
        tell(f"  {record['wall_seconds']:.3f} s")
        choices.append(Choice(name, method.title, method.paper, selector.scores_, selector.ranking_, k, record))

    page = folder / "index.html"
    _write_whole(page, page_text(images, digits, choices))
    return {
        "page": str(page),
        "store": str(store),
        "seconds": round(time.perf_counter() - started, 3),
        "methods": {
            choice.method: {
                "run": str(folder / choice.method),
                "selected": [pixel_name(p) for p in choice.ranking[:k]],
                "seconds": round(choice.record["wall_seconds"], 3),
            }
            for choice in choices
        },
    }


def _check_folder(folder: Path, force: bool) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; the demo needs a folder of its own.")
    if not any(folder.iterdir()):
        return
    mark = folder / ".demo"
    if not mark.is_file() or mark.read_text().strip() != _MARK:
        raise UsageError(f"{folder} holds other files; give the demo a folder of its own.")
    if not force:
        raise UsageError(f"{folder} holds an earlier demo; --force does it again.")


def _write_whole(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


# The data


def load_digits() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Images, shape (1797, 64), ink from 0 to 16, and the digits they show."""
    from sklearn.datasets import load_digits as load

    bunch = load()
    return bunch.data.astype(np.int64), bunch.target.astype(np.int64)


def pixel_name(pixel: int) -> str:
    """Name of a pixel by row and column, from 1.

    >>> pixel_name(0), pixel_name(63)
    ('row 1 column 1', 'row 8 column 8')
    """
    row, column = divmod(int(pixel), SIDE)
    return f"row {row + 1} column {column + 1}"


def arff_text(images: NDArray[np.int64], digits: NDArray[np.int64]) -> str:
    """The data as Mulan writes it: numeric features, labels {0,1} behind them."""
    lines = ["@relation digits", ""]
    lines += [f"@attribute '{pixel_name(pixel)}' numeric" for pixel in range(images.shape[1])]
    lines += [f"@attribute '{label}' {{0,1}}" for label in LABELS]
    lines += ["", "@data"]
    labels = np.array([[int(digit in having) for having in LABELS.values()] for digit in range(10)])
    lines += [",".join(map(str, [*row, *labels[digit]])) for row, digit in zip(images, digits, strict=True)]
    return "\n".join(lines) + "\n"


def xml_text() -> str:
    """Mulan's file of label names."""
    names = "\n".join(f'  <label name="{html.escape(label)}"></label>' for label in LABELS)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<labels xmlns="http://mulan.sourceforge.net/labels">\n{names}\n</labels>\n'
    )


# The page


def page_text(images: NDArray[np.int64], digits: NDArray[np.int64], choices: list[Choice]) -> str:
    """The finished page: everything in one file, no script, light or dark as the reader prefers."""
    means = np.array([images[digits == digit].mean(axis=0) for digit in range(10)])
    k = choices[0].k
    pictures = "\n".join(_digit_figure(digit, means[digit]) for digit in range(10))
    label_rows = "\n".join(
        f"<tr><th scope='row'>{html.escape(name)}</th><td>{_listed(having)}</td>"
        f"<td class='number'>{int(np.isin(digits, list(having)).sum()):,}</td></tr>"
        for name, having in LABELS.items()
    )
    figures = "\n".join(_choice_figure(choice, means) for choice in choices)
    cost_rows = "\n".join(_cost_row(choice) for choice in choices)
    common = set(choices[0].ranking[:k].tolist())
    for choice in choices[1:]:
        common &= set(choice.ranking[:k].tolist())
    agreement = (
        f"{len(common)} of {k} pixels were chosen by all {len(choices)} methods."
        if common
        else "No pixel was chosen by every method."
    )
    template = resources.files("mlfs_dask").joinpath("demo.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        n=f"{len(images):,}",
        q=len(LABELS),
        cardinality=f"{_cardinality(digits):.2f}",
        k=k,
        d=images.shape[1],
        pictures=pictures,
        label_rows=label_rows,
        figures=figures,
        cost_rows=cost_rows,
        agreement=agreement,
        version=html.escape(choices[0].record["versions"].get("mlfs-dask", "")),
    )


def _cardinality(digits: NDArray[np.int64]) -> float:
    per_digit = np.array([sum(digit in having for having in LABELS.values()) for digit in range(10)])
    return float(per_digit[digits].mean())


def _listed(digits: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(digits)))


def _digit_figure(digit: int, mean: NDArray[np.float64]) -> str:
    cells = "".join(
        f"<rect x='{pixel % SIDE}' y='{pixel // SIDE}' width='1.02' height='1.02' opacity='{ink / 16:.2f}'/>"
        for pixel, ink in enumerate(mean)
        if ink >= 0.08
    )
    has = ", ".join(name for name, having in LABELS.items() if digit in having) or "no label"
    return (
        f"<figure><svg viewBox='0 0 8 8' role='img' aria-label='mean image of the digit {digit}'>"
        f"<g class='ink'>{cells}</g></svg><figcaption><b>{digit}</b> {has}</figcaption></figure>"
    )


def _choice_figure(choice: Choice, means: NDArray[np.float64]) -> str:
    ink = means.mean(axis=0) / 16
    places = {int(pixel): place for place, pixel in enumerate(choice.ranking, start=1)}
    cells = []
    for pixel in range(SIDE * SIDE):
        row, column = divmod(pixel, SIDE)
        place = places[pixel]
        kept = place <= choice.k
        title = f"{pixel_name(pixel)}: rank {place}, score {choice.scores[pixel]:.4g}"
        cells.append(
            f"<g><title>{title}</title><rect class='ink' x='{column}' y='{row}' width='1' height='1' "
            f"opacity='{0.45 * ink[pixel]:.2f}'/>"
            + (
                f"<rect class='kept' x='{column + 0.06:.2f}' y='{row + 0.06:.2f}' width='.88' height='.88' "
                f"rx='.12'/><text x='{column + 0.5}' y='{row + 0.66}'>{place}</text>"
                if kept
                else ""
            )
            + "</g>"
        )
    return (
        f"<figure class='choice'><svg viewBox='-.1 -.1 8.2 8.2' role='img' "
        f"aria-label='the {choice.k} pixels chosen by {choice.method}'>{''.join(cells)}</svg>"
        f"<figcaption><b>{html.escape(choice.method)}</b> {html.escape(choice.title)}<br>"
        f"<small>{html.escape(choice.paper)}</small></figcaption></figure>"
    )


def _cost_row(choice: Choice) -> str:
    record: Mapping[str, Any] = choice.record
    loop = "none"
    if record["converged"] is not None:
        state = "converged" if record["converged"] else "did not converge"
        loop = f"{record['iterations']} iterations, {state}"
    return (
        f"<tr><th scope='row'>{html.escape(choice.method)}</th><td class='number'>{record['passes']}</td>"
        f"<td class='number'>{record['bytes_read']:,}</td><td class='number'>{record['wall_seconds']:.3f}</td>"
        f"<td>{loop}</td></tr>"
    )
