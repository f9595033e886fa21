"""10x Genomics files of Cell Ranger 2 and 3, with labels from a table."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy import sparse as sp
from scipy.io import mmwrite

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.base import FileSpec, LabelSpec
from tests.readers.reading import check_splits, read_all

RNG = np.random.default_rng(2)
COUNTS = sp.csr_array(RNG.poisson(0.5, (23, 5)))
BARCODES = [f"CELL{i:02d}-1" for i in range(23)]
LABELS = RNG.integers(0, 2, (23, 2))


def save(folder: Path, *, version: int = 3, names: tuple[str, ...] = ("A", "B", "C", "D", "E")) -> str:
    ids = [f"ENSG{i}" for i in range(5)]
    with h5py.File(folder / "t.h5", "w") as file:
        group = file.create_group("matrix" if version == 3 else "GRCh38")
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(COUNTS, name)
        group["shape"] = np.array(COUNTS.shape[::-1], np.int32)
        group["barcodes"] = np.array(BARCODES, "S")
        group["features/name" if version == 3 else "gene_names"] = np.array(names, "S")
        group["features/id" if version == 3 else "genes"] = np.array(ids, "S")
    return str(folder / "t.h5")


def table(folder: Path, rows: list[int], mark: str = ",") -> FileSpec:
    path = folder / ("labels.csv" if mark == "," else "labels.tsv")
    lines = [
        mark.join(["barcode", "T", "B"]),
        *(f"{BARCODES[i]}{mark}{LABELS[i, 0]}{mark}{LABELS[i, 1]}" for i in rows),
    ]
    path.write_text("\n".join(lines) + "\n")
    return FileSpec(keys={"labels": str(path)})


def save_folder(folder: Path, *, version: int = 3) -> str:
    """As Cell Ranger writes it: version 3 packs its files and tells types."""
    folder = folder / "filtered"
    folder.mkdir()
    pack = gzip.open if version == 3 else open
    packed = ".gz" if version == 3 else ""
    with pack(folder / f"matrix.mtx{packed}", "wb") as file:
        mmwrite(file, sp.coo_array(COUNTS.T), field="integer", symmetry="general")
    kind = "\tGene Expression" if version == 3 else ""
    lines = {
        "features.tsv" if version == 3 else "genes.tsv": [f"ENSG{i}\t{name}{kind}" for i, name in enumerate("ABCDE")],
        "barcodes.tsv": BARCODES,
    }
    for name, texts in lines.items():
        with pack(folder / f"{name}{packed}", "wb") as file:
            file.write("".join(f"{text}\n" for text in texts).encode())
    return str(folder)


@pytest.mark.parametrize("save", [save, save_folder])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("mark", [",", "\t"])
def test_cells_are_rows_and_labels_follow_barcodes(tmp_path: Path, version: int, mark: str, save) -> None:
    options = table(tmp_path, RNG.permutation(23).tolist(), mark)
    reader = open_source([save(tmp_path, version=version)], options)
    assert (reader.header.feature_names, reader.header.label_names) == (("A", "B", "C", "D", "E"), ("T", "B"))
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X, COUNTS.toarray())
    np.testing.assert_array_equal(Y, LABELS)
    check_splits(reader, sizes=(1, 150))


def test_ids_where_a_name_stands_twice(tmp_path: Path) -> None:
    path = save(tmp_path, names=("A", "B", "C", "A", "E"))
    assert open_source([path], table(tmp_path, [*range(23)])).header.feature_names[:2] == ("ENSG0", "ENSG1")


def test_barcodes_that_are_in_one_file_alone_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, options = save(tmp_path), table(tmp_path, [*range(20)])
    labels = options.keys["labels"]
    with Path(labels).open("a") as file:
        file.write("GONE-1,1,0\nGONE-2,0,0\n")
    Y = read_all(open_source([path], options))[1]
    assert sorted(caplog.messages) == sorted(
        [
            f"{path}: 3 of 23 barcodes are not in {labels}: their labels are unknown",
            f"{labels}: 2 of 22 barcodes are not in {path}, 'GONE-1' for one: left out",
        ]
    )
    np.testing.assert_array_equal(Y, np.vstack([LABELS[:20], np.full((3, 2), -1)]))


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (None, [0, 1, 3]),
        ("all", [0, 1, 2, 3, 4]),
        ("Antibody Capture", [2, 4]),
        ("gene expression, antibody capture", [0, 1, 2, 3, 4]),
    ],
)
def test_antibodies_beside_genes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, asked: str | None, kept: list[int]
) -> None:
    path, options = save(tmp_path, names=("A", "B", "A", "D", "E")), table(tmp_path, [*range(23)])
    with h5py.File(path, "a") as file:
        types = ["Antibody Capture" if i in (2, 4) else "Gene Expression" for i in range(5)]
        file["matrix/features/feature_type"] = np.array(types, "S")
    if asked:
        options.keys["feature_types"] = asked
    reader = open_source([path], options)
    # An antibody has the name of the gene of its protein: of the genes alone no name stands twice.
    ids = tuple(f"ENSG{i}" for i in kept)
    assert reader.header.feature_names == (ids if len(kept) == 5 else tuple(np.array([*"ABADE"])[kept].tolist()))
    np.testing.assert_array_equal(read_all(reader)[0], COUNTS.toarray()[:, kept])
    said = "2 features of type 'Antibody Capture' are left out (--key feature_types=all keeps them)"
    assert any(said in message for message in caplog.messages) == (asked is None)


def test_a_type_of_features_that_is_not_there(tmp_path: Path) -> None:
    path, options = save(tmp_path), table(tmp_path, [*range(23)])
    options.keys["feature_types"] = "Guides"
    with pytest.raises(DataError, match="the file does not say the types of its features"):
        open_source([path], options)
    with h5py.File(path, "a") as file:
        file["matrix/features/feature_type"] = np.array(["Gene Expression"] * 5, "S")
    with pytest.raises(
        DataError, match=r"value 'guides': no feature has this type\n  cure: the types are Gene Expression"
    ):
        open_source([path], options)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("barcode,T\nX,1\n", "no barcode of"),
        ("barcode,T\nCELL00-1,1\nCELL00-1,0\n", "value 'CELL00-1': the barcode stands twice"),
        ("barcode,T\nCELL00-1,maybe\n", "column 'T', value 'maybe': a label must be 0 or 1"),
        ("barcode,T\nCELL00-1,7\n", "column 'T', value '7': a label must be 0 or 1"),
        ("", "it is not a table"),
        ("cell,sky\nc0,1,0\nc1,1,0,0\n", "it is not a table"),
        ("cell\nc0,1,0\nc1,0,1\n", "rows have more cells than the header has names"),
        ("barcode,T,T\nCELL00-1,1,0\n", "labels.csv, line 1, column 'T': columns 2 and 3 have the same name"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(DataError, match=problem):
        read_all(open_source([save(tmp_path)], FileSpec(keys={"labels": str(tmp_path / "labels.csv")})))


def test_labels_in_any_spelling(tmp_path: Path) -> None:
    rows = ["?,True", "1,", "0,False", "-1,TRUE", ",false", "1.0,?"]
    lines = ["barcode,T,B", *(f"{barcode},{row}" for barcode, row in zip(BARCODES, rows, strict=False))]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    Y = read_all(open_source([save(tmp_path)], FileSpec(keys={"labels": str(tmp_path / "labels.csv")})))[1]
    np.testing.assert_array_equal(Y[:6], [[-1, 1], [1, -1], [0, 0], [-1, 1], [-1, 0], [1, -1]])


def test_no_labels_and_other_files(tmp_path: Path) -> None:
    path = save(tmp_path)
    with pytest.raises(UsageError, match=r"a 10x file has no labels\n  cure: --key labels=FILE\.csv"):
        open_source([path])
    with pytest.raises(UsageError, match="and of other options of labels --label-columns alone"):
        open_source([path], FileSpec(labels=LabelSpec(count=1), keys={"labels": "x.csv"}))
    with h5py.File(path, "w") as file:
        file["X"] = np.ones((2, 2))
    with pytest.raises(DataError, match="a 10x file has one matrix with barcodes, this one has 0"):
        open_source([path], replace(table(tmp_path, [0]), format="10x"))
    with pytest.raises(DataError, match="the group has no array 'Y' for Y; it has X"):
        open_source([path])
