"""Every real data set converts to its dimensions; other forms of one set give the same content."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.storage.convert import Conversion, convert
from mlfs_dask.storage.opening import open_dataset
from tests.conftest import data_folder
from tests.storage.stores import rows_of

DESCRIPTION = data_folder() / "datasets.json"
SETS: list[dict[str, Any]] = json.loads(DESCRIPTION.read_text())["datasets"] if DESCRIPTION.exists() else []

DataSet = Callable[[str], Path]


def labels_of(folder: Path, spec: object) -> LabelSpec:
    if isinstance(spec, str):
        return LabelSpec(xml=str(folder / spec))
    if isinstance(spec, int):
        return LabelSpec(count=abs(spec), first=spec > 0)
    return LabelSpec()  # .mat names its arrays


def run(
    folder: Path, files: Sequence[str], store: Path, spec: object = None, *, drop: Sequence[str] = ()
) -> Conversion:
    sources = [folder / name for name in files]
    return convert(sources, store, labels=labels_of(folder, spec), drop=drop, workers=1)


def test_the_description_is_there() -> None:
    if not SETS:
        pytest.skip(f"real data not found: {DESCRIPTION} (set MLFS_DATA)")
    assert len(SETS) >= 17


@pytest.mark.parametrize("facts", SETS, ids=[facts["name"] for facts in SETS])
def test_dimensions(facts: dict[str, Any], data_set: DataSet, tmp_path: Path) -> None:
    made = run(data_set(facts["name"]), facts["primary_files"], tmp_path / "out.zarr", facts["label_spec"])
    schema = made.schema
    assert (schema.n, schema.d, schema.q) == (facts["n"], facts["d"], facts["L"])
    # The description counts neither missing values nor those of nominal features as nonzeros.
    dataset = open_dataset(made.store)
    if facts["declared_feature_types"]["nominal_multi"] == 0 and facts["missing_values"] == 0:
        assert schema.nonzeros == facts["nnz_X"]
        assert sum(schema.positive) == facts["nnz_Y"]
        assert schema.constant_features == facts["constant_features"]
        assert sum(count == 0 for count in schema.positive) == facts["labels_never_positive"]
    multi = facts["declared_feature_types"]["nominal_multi"]
    assert (dataset.kinds == "categorical").sum() == multi
    assert sum(schema.unknown) + int(dataset.features.n_missing.sum()) == facts["missing_values"]
    density = facts["nnz_X"] / (facts["n"] * facts["d"])
    if density < 0.05 or density > 0.6:
        assert schema.storage == ("sparse" if density < 0.05 else "dense")


@pytest.mark.parametrize(
    ("name", "main", "spec", "other"),
    [
        ("scene", ["scene.arff.gz"], "scene.xml", ["scene-meka.arff.gz"]),
        ("enron", ["enron.arff"], "enron.xml", ["enron-meka.arff"]),
        ("medical", ["medical.arff"], "medical.xml", ["medical.mat"]),
        ("bibtex", ["bibtex.arff.gz"], "bibtex.xml", ["bibtex.mat"]),
        ("delicious", ["delicious.arff.gz"], "delicious.xml", ["delicious_data.txt.gz"]),
        ("yeast", ["yeast-meka.arff.gz"], None, ["yeast_train.txt", "yeast_test.txt"]),
    ],
)
def test_other_forms_give_the_same_content(
    name: str, main: list[str], spec: str | None, other: list[str], data_set: DataSet, tmp_path: Path
) -> None:
    folder = data_set(name)
    first = run(folder, main, tmp_path / "a.zarr", spec).schema
    second = run(folder, other, tmp_path / "b.zarr").schema
    for key in ("X", "labels", "kinds"):  # names are spelt differently, or not there
        assert first.content[key] == second.content[key], key


def test_genbase_without_its_row_identifier(data_set: DataSet, tmp_path: Path) -> None:
    folder = data_set("genbase")
    made = run(folder, ["genbase.arff.gz"], tmp_path / "all.zarr", "genbase.xml")
    (warning,) = made.warnings
    assert "feature 'protein' has a different value in each of the 662 rows" in warning
    dropped = run(folder, ["genbase.arff.gz"], tmp_path / "dropped.zarr", "genbase.xml", drop=["protein"]).schema
    other = run(folder, ["genbase.mat"], tmp_path / "mat.zarr").schema
    assert dropped.d == 1185
    assert dropped.content["X"] == other.content["X"]
    assert dropped.content["labels"] == other.content["labels"]


@pytest.mark.parametrize(
    ("name", "main", "spec", "other", "other_spec"),
    [
        ("enron", ["enron.arff"], "enron.xml", ["Enron.mat"], None),
        ("yeast", ["yeast.arff.gz"], "yeast.xml", ["yeast-meka.arff.gz"], None),
        ("birds", ["birds-train.arff", "birds-test.arff"], "birds.xml", ["birds-mlda.arff"], "birds-mlda.xml"),
    ],
)
def test_the_same_rows_in_another_order(
    name: str,
    main: list[str],
    spec: str,
    other: list[str],
    other_spec: str | None,
    data_set: DataSet,
    tmp_path: Path,
) -> None:
    folder = data_set(name)
    first = rows_of(run(folder, main, tmp_path / "a.zarr", spec).store)
    second = rows_of(run(folder, other, tmp_path / "b.zarr", other_spec).store)
    np.testing.assert_array_equal(sorted_rows(*first), sorted_rows(*second))


def sorted_rows(X: np.ndarray[Any, Any], Y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rows = np.concatenate([X, Y], axis=1)
    return rows[np.lexsort(rows.T)]


def test_published_halves_make_the_whole(data_set: DataSet, tmp_path: Path) -> None:
    folder = data_set("scene")
    halves = run(folder, ["scene-train.arff.gz", "scene-test.arff.gz"], tmp_path / "a.zarr", "scene.xml")
    whole = run(folder, ["scene.arff.gz"], tmp_path / "b.zarr", "scene.xml")
    assert halves.schema.n == 2407
    np.testing.assert_array_equal(sorted_rows(*rows_of(halves.store)), sorted_rows(*rows_of(whole.store)))
