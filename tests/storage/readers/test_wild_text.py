"""The real text files: dimensions as published, and forms of one set that agree.

`datasets.json` counts a `?` in a nominal feature as a nonzero entry; here missing values are none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack

from mlfs_dask.storage.readers.arff import open_arff
from mlfs_dask.storage.readers.base import Header, LabelSpec, ReadOptions
from mlfs_dask.storage.readers.svmlight import open_svmlight
from mlfs_dask.storage.readers.xmlc import open_xmlc

ARFF_SETS = [
    "emotions", "yeast", "scene", "enron", "medical", "bibtex", "birds", "genbase", "Corel5k", "delicious",
    "tmc2007-500", "yahoo-arts", "yahoo-business", "yahoo-education", "quirk-hierarchical", "quirk-missing-labels",
]  # fmt: skip
Folder = Callable[[str], Path]


def read_reader(reader: Any, part_bytes: int = 300_000) -> tuple[csr_array, csr_array]:
    batches = [b for part in reader.parts(part_bytes) for b in reader.read(part, batch_bytes=1 << 20)]
    X, Y = [csr_array(b.X) for b in batches], [b.Y for b in batches]
    for matrices in (X, Y):
        width = max(m.shape[1] for m in matrices)
        for m in matrices:
            m.resize((m.shape[0], width))
    return csr_array(vstack(X)), csr_array(vstack(Y))


def read_arff(*paths: Path, xml: Path | None = None) -> tuple[Header, csr_array, csr_array]:
    spec = LabelSpec(xml=str(xml) if xml else None)
    readers = [open_arff(str(path), ReadOptions(labels=spec)) for path in paths]
    blocks = [read_reader(reader) for reader in readers]
    return (
        readers[0].header,
        csr_array(vstack([X for X, _ in blocks])),
        csr_array(vstack([Y for _, Y in blocks])),
    )


def sorted_rows(X: csr_array, Y: csr_array) -> NDArray[np.float64]:
    rows: NDArray[np.float64] = hstack([X, Y.astype(float)]).toarray()
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize("name", ARFF_SETS)
def test_dimensions(data_set: Folder, name: str) -> None:
    folder = data_set(name)
    known = next(
        entry
        for entry in json.loads((folder.parent / "datasets.json").read_text())["datasets"]
        if entry["name"] == name
    )
    xml = folder / known["label_spec"] if isinstance(known["label_spec"], str) else None
    header, X, Y = read_arff(*(folder / file for file in known["primary_files"]), xml=xml)
    assert (X.shape, Y.shape) == ((known["n"], known["d"]), (known["n"], known["L"]))
    numeric = np.array([len(header.categories.get(j, ())) <= 2 for j in range(known["d"])])
    missing_of = csr_array((np.isnan(X.data), X.indices, X.indptr), shape=X.shape)
    nonzeros = X[:, numeric].nnz - missing_of[:, numeric].sum()
    if name == "quirk-hierarchical":
        nominal = [j for j, values in header.categories.items() if values == ("no", "yes")]
        nonzeros += missing_of[:, nominal].sum()
    assert nonzeros == known["nnz_X"]
    assert (Y.data == 1).sum() == (known["nnz_Y"] or 0)
    assert np.isnan(X.data).sum() + (Y.data == -1).sum() == known["missing_values"]
    assert header.n_features == len(header.feature_names or ()) == known["d"]


@pytest.mark.parametrize("name", ["enron", "yeast", "scene"])
def test_meka_form_equals_mulan_form(data_set: Folder, name: str) -> None:
    folder = data_set(name)
    suffix = "" if name == "enron" else ".gz"
    header, X, Y = read_arff(folder / f"{name}.arff{suffix}", xml=folder / f"{name}.xml")
    meka_header, X_meka, Y_meka = read_arff(folder / f"{name}-meka.arff{suffix}")
    assert meka_header.feature_names == header.feature_names
    if name == "scene":  # the Meka file renames the labels, yeast's has its rows in another order
        assert (X_meka != X).nnz == (Y_meka != Y).nnz == 0
    else:
        assert meka_header.label_names == header.label_names
        np.testing.assert_array_equal(sorted_rows(X, Y), sorted_rows(X_meka, Y_meka))


def test_svmlight_yeast_holds_the_rows_of_the_arff(data_set: Folder) -> None:
    folder = data_set("yeast")
    _, X, Y = read_arff(folder / "yeast.arff.gz", xml=folder / "yeast.xml")
    parts = [read_reader(open_svmlight(str(folder / f"yeast_{part}.txt"), ReadOptions())) for part in ("train", "test")]
    assert [part[0].shape for part in parts] == [(1500, 103), (917, 103)]
    X_other, Y_other = csr_array(vstack([p[0] for p in parts])), csr_array(vstack([p[1] for p in parts]))
    np.testing.assert_array_equal(sorted_rows(X, Y), sorted_rows(X_other, Y_other))


def test_xmlc_delicious_equals_the_arff(data_set: Folder) -> None:
    folder = data_set("delicious")
    header, X, Y = read_arff(folder / "delicious.arff.gz", xml=folder / "delicious.xml")
    X_other, Y_other = read_reader(open_xmlc(str(folder / "delicious_data.txt.gz"), ReadOptions()))
    assert (X_other != X).nnz == (Y_other != Y).nnz == 0
    assert r"TAG_dise\~no" in (header.label_names or ())


def test_split_and_reordered_files_hold_the_same_rows(data_set: Folder) -> None:
    scene, birds = data_set("scene"), data_set("birds")
    whole = read_arff(scene / "scene.arff.gz", xml=scene / "scene.xml")
    split = read_arff(*(scene / f"scene-{part}.arff.gz" for part in ("train", "test")), xml=scene / "scene.xml")
    np.testing.assert_array_equal(sorted_rows(*whole[1:]), sorted_rows(*split[1:]))
    split = read_arff(*(birds / f"birds-{part}.arff" for part in ("train", "test")), xml=birds / "birds.xml")
    whole = read_arff(birds / "birds-mlda.arff", xml=birds / "birds-mlda.xml")
    np.testing.assert_array_equal(sorted_rows(*whole[1:]), sorted_rows(*split[1:]))
    assert "Swainson's Thrush" in (split[0].label_names or ())


def test_header_that_lies_about_its_labels(data_set: Folder) -> None:
    folder = data_set("medical")
    header, _, _ = read_arff(folder / "medical.arff", xml=folder / "medical.xml")
    assert (header.label_names or ("",))[-1] == "Class-44-786_07"
