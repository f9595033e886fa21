"""Runs on a tiny store whose names try to break out of a page, evaluations of three data sets, and a page of all."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.evaluations import steady, write_evaluation

HOSTILE = '<b>&"x"</b> $x^2$ </script>'
MEANS = {"elc": 0.8, "label-entropy": 0.79, "random": 0.5, "all": 0.9}


@dataclass(frozen=True)
class Folders:
    """Where everything lies.

    Attributes
    ----------
    store : Path
    runs, evaluations : list of Path
    comparison : Path
    """

    store: Path
    runs: list[Path]
    evaluations: list[Path]
    comparison: Path


def write_store(folder: Path) -> Path:
    """40 rows, 6 features (one with a hostile name), labels `a` and `b`."""
    from mlfs_dask.readers.base import LabelSpec
    from mlfs_dask.storage.convert import convert

    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    rows = [f"{quoted},same,near,noise,other,flat,a,b"]
    for row in range(40):
        a, b = row % 2, int(row % 5 == 0)
        rows.append(f"{row * 5 % 7},{a},{a if row % 10 else 1 - a},{row * 7 % 11},{row * 3 % 13},4,{a},{b}")
    source = folder / "tiny.csv"
    source.write_text("\n".join(rows) + "\n")
    store = folder / "tiny.zarr"
    convert(source, store, labels=LabelSpec(columns=("a", "b")))
    return store


def select(
    store: Path, method: str, run: Path, k: int | str = 3, *, part: dict[str, Any] | None = None, **parameters: Any
) -> Path:
    from mlfs_dask.selection.fit import fit
    from mlfs_dask.selection.question import ask
    from mlfs_dask.selection.runs import write_run
    from mlfs_dask.storage.opening import open_dataset

    dataset = open_dataset(store)
    if part is not None:
        dataset = dataset.subset(**part)
    fitted = fit(ask(method, k, **parameters), dataset)
    write_run(
        str(run),
        ranking=fitted.ranking,
        scores=fitted.scores,
        feature_names=dataset.feature_names,
        record=fitted.report.to_dict(),
        columns=fitted.columns,
    )
    return run


def edited(folder: Path, place: Path, **changes: Any) -> Path:
    """Copy a run or an evaluation with another record: of a mapping the entries that are given."""
    shutil.copytree(folder, place)
    (file,) = [*place.glob("run.json"), *place.glob("eval.json")]
    record = json.loads(file.read_text())
    for name, value in changes.items():
        record[name] = {**record.get(name, {}), **value} if isinstance(value, dict) else value
    file.write_text(json.dumps(record))
    return place


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    from mlfs_dask.evaluation.comparison import compare
    from mlfs_dask.reporting.comparison_folder import write_comparison

    place = tmp_path_factory.mktemp("reporting")
    store = write_store(place)
    runs = [select(store, method, place / method) for method in ("elc", "label-entropy")]
    evaluations = [
        write_evaluation(place / f"{name}.eval", name, steady(MEANS, seed=seed), runs=list(MEANS))
        for seed, name in enumerate(("tiny", "other", "third"))
    ]
    comparison = place / "cmp"
    write_comparison(comparison, compare(evaluations, control="elc"))
    return Folders(store, runs, evaluations, comparison)


@pytest.fixture(scope="session")
def page(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of the runs and the comparison."""
    from mlfs_dask.reporting.page import report

    place = tmp_path_factory.mktemp("page") / "page.html"
    report([*folders.runs, folders.comparison], place, image_shape=(2, 3))
    return place
