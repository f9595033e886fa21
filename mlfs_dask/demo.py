"""The demonstration on handwritten digits: from a file to an HTML page with the pixels chosen by each method.

scikit-learn carries 1 797 images of 8 × 8 pixels. Six labels follow from the digit, so an image has several labels.
The demo writes them as a Mulan ARFF file, then converts, plans, selects and evaluates it like any user's file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import UsageError
from mlfs_dask.files.publish import write_file
from mlfs_dask.selection.job import SelectJob
from mlfs_dask.selection.question import ask

SIDE = 8

LABELS: dict[str, frozenset[int]] = {
    "even": frozenset({0, 2, 4, 6, 8}),
    "prime": frozenset({2, 3, 5, 7}),
    "more than four": frozenset({5, 6, 7, 8, 9}),
    "has a loop": frozenset({0, 6, 8, 9}),
    "open curves only": frozenset({2, 3, 5}),
    "straight strokes only": frozenset({1, 4, 7}),
}
"""Label name -> digits with that label."""

METHODS = ("elc", "label-entropy", "mfsir")
N_KEPT = 16
FOLDS = 5
K_GRID = "16,20,24,32"
METRICS = ("hamming_loss", "ranking_loss", "average_precision", "macro_f1")

_MARK = "demo made by mlfs"


def run_demo(
    directory: str | Path,
    *,
    k: int = N_KEPT,
    force: bool = False,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the complete workflow on the digits, in a separate folder.

    Parameters
    ----------
    directory : path
        Receives `digits.arff`, `digits.xml`, `digits.zarr`, run folders, `digits.eval` and `index.html`.
    k : int
        Number of pixels to select.
    force : bool
        Replace an earlier demo.
    log : callable
        Receives a line for every step: the equivalent command.

    Returns
    -------
    dict
        page, store, evaluation, and for each method its selected pixels and seconds.

    Raises
    ------
    UsageError
        If the folder holds other files, or an earlier demo without `force`.
    """
    from mlfs_dask.evaluation.experiment import evaluate
    from mlfs_dask.evaluation.results import write_eval
    from mlfs_dask.readers.base import LabelSpec
    from mlfs_dask.reporting.page import report
    from mlfs_dask.storage.convert import convert
    from mlfs_dask.storage.opening import open_dataset

    started = time.perf_counter()
    folder = Path(directory)
    _check_folder(folder, force)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / ".demo", f"{_MARK}\n".encode())
    arff, xml, store = folder / "digits.arff", folder / "digits.xml", folder / "digits.zarr"
    write_digits(arff)

    command = f"mlfs convert {arff} {store} --labels {xml}"
    log(command)
    convert(arff, store, labels=LabelSpec(xml=str(xml)), force=force, command=command)
    dataset = open_dataset(str(store))
    profile = dataset.rows.profile
    log(f"mlfs inspect {store}")
    log(f"  {profile.n:,} images, {profile.d} pixels, {profile.q} labels")

    runs = {}
    for name in METHODS:
        job = SelectJob(ask(name, k), dataset, str(folder / name))
        plan = job.plan(current_resources())
        log(f"mlfs plan {name} {store}")
        log(f"  passes: {plan.passes}, bytes read: {plan.bytes_read:,}, peak: {plan.peak_worker_bytes / 2**20:.0f} MiB")
        log(f"mlfs select {name} {store} -k {k} -o {folder / name}")
        run = job.run({}, force=force)
        log(f"  {run.record['wall_seconds']:.3f} s")
        runs[name] = {
            "run": run.path,
            "selected": [pixel_name(pixel) for pixel in run.ranking[:k]],
            "seconds": round(run.record["wall_seconds"], 3),
        }

    evaluation_path = folder / "digits.eval"
    candidates = [*METHODS, "random", "all"]
    log(
        f"mlfs evaluate {store} {' '.join(candidates)} --folds {FOLDS} --k-grid {K_GRID} "
        f"--metrics {','.join(METRICS)} -o {evaluation_path}"
    )
    evaluation = evaluate(dataset, candidates, folds=FOLDS, k_grid=K_GRID, metrics=METRICS)
    write_eval(str(evaluation_path), evaluation, force=force)
    log(f"  {evaluation.record['wall_seconds']:.3f} s")

    page = folder / "index.html"
    report_paths = [*(str(folder / name) for name in METHODS), str(evaluation_path)]
    title = "Which pixels tell? Digits with several labels"
    log(f"mlfs report {' '.join(report_paths)} --image-shape {SIDE}x{SIDE} --title '{title}' -o {page}")
    page.unlink(missing_ok=True)  # the folder belongs to the demo, so any page in it may be replaced
    report(report_paths, page, title=title, image_shape=(SIDE, SIDE), force=force)
    return {
        "page": str(page),
        "store": str(store),
        "evaluation": str(evaluation_path),
        "seconds": round(time.perf_counter() - started, 3),
        "methods": runs,
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
        raise UsageError(f"{folder} holds an earlier demo; --force replaces it.")


# The data


def load_digits() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return images, shape (1797, 64), ink from 0 to 16, and their digits."""
    from sklearn.datasets import load_digits as load

    bunch = load()
    return bunch.data.astype(np.int64), bunch.target.astype(np.int64)


def pixel_name(pixel: int) -> str:
    """Return the name of a pixel: row and column, from 1.

    >>> pixel_name(0), pixel_name(63)
    ('row 1 column 1', 'row 8 column 8')
    """
    row, column = divmod(int(pixel), SIDE)
    return f"row {row + 1} column {column + 1}"


def write_digits(arff: Path) -> None:
    """Write the data as a Mulan file: an ARFF of numeric features, then labels, and an XML file of the labels."""
    from mlfs_dask.storage.export import export_rows

    images, digits = load_digits()
    labels = np.array([[int(digit in digits_of) for digits_of in LABELS.values()] for digit in range(10)])
    pixels = [pixel_name(pixel) for pixel in range(images.shape[1])]
    blocks = [(images, as_labels(labels[digits]))]
    export_rows(blocks, arff, feature_names=pixels, label_names=list(LABELS), n=len(images), force=True)
