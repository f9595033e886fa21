"""AnnData, as the anndata library writes it: .h5ad and .zarr, v2 and v3."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from scipy import sparse as sp

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.formats.anndata import obs_of, open_anndata
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.storage.convert import convert
from tests.problems import write_zarr
from tests.readers.reading import batches_of, check_splits, read_all

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(6)
X = np.where(RNG.random((31, 4)) < 0.5, RNG.normal(size=(31, 4)), 0).astype(np.float32)
Y = RNG.integers(-1, 2, size=(31, 3)).astype(np.int8)
GENES = ("g1", "g é", "g3", "g4")
ROWS = [f"cell{i}" for i in range(31)]


def annotated(**parts: object) -> object:
    parts = {"X": X, "obsm": {"labels": Y}} | parts
    var = pd.DataFrame(index=list(GENES))
    obs = parts.pop("obs", pd.DataFrame(index=ROWS))
    return anndata.AnnData(var=var, obs=obs, **parts)


def write_h5ad(data: object, folder: Path) -> str:
    data.write_h5ad(folder / "t.h5ad", compression="gzip")
    return str(folder / "t.h5ad")


@pytest.fixture(params=["h5ad", "zarr 2", "zarr 3"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[object], str]:
    kind, _, version = request.param.partition(" ")

    def save(data: object) -> str:
        if kind == "h5ad":
            return write_h5ad(data, tmp_path)
        write_zarr(data, tmp_path / "t.zarr", int(version))
        return str(tmp_path / "t.zarr")

    return save


def test_names_that_stand_twice(tmp_path: Path) -> None:
    data = annotated()
    ids = [f"ENSG{i}" for i in range(len(GENES))]
    data.var = pd.DataFrame({"gene_ids": ids, "kind": "gene"}, index=["a", "b", "a", "a"])
    path = write_h5ad(data, tmp_path)

    def names(key: str) -> tuple[str, ...]:
        return open_anndata(path, FileSpec(keys={"names": key})).header.feature_names

    with pytest.raises(
        DataError, match=r"column 'a': two features have the same name\n  cure: .*names=NAME \(gene_ids, "
    ):
        open_anndata(path)
    assert names("gene_ids") == tuple(ids)
    assert names("unique") == ("a", "b", "a-1", "a-2")
    with pytest.raises(DataError, match=r"column 'gene': two features have the same name\n  cure: .*names=unique"):
        names("kind")
    with pytest.raises(DataError, match="the column of names, 'gene_id' is none"):
        names("gene_id")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("labels", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_matrices(write, form, labels) -> None:
    path = write(annotated(X=form(X), obsm={"labels": labels(Y)}))
    reader = open_anndata(path)
    assert reader.header.feature_names == GENES
    assert reader.header.label_names is None
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], Y)
    assert sp.issparse(batches_of(reader, batch_bytes=1 << 20, part_bytes=1 << 20)[0].X) == (form is not np.asarray)
    if labels is sp.csr_matrix:
        check_splits(reader, sizes=(1, 150))


def test_label_data_frame_and_layer(write) -> None:
    frame = pd.DataFrame(
        {
            "sky": Y[:, 0] == 1,
            "sea": Y[:, 1].astype(float),
            "sun": pd.array(np.where(Y[:, 2] < 0, None, Y[:, 2] == 1), dtype="boolean"),
            "fog": pd.Categorical(np.where(Y[:, 0] == 1, "1", "0")),
            "ice": pd.array(np.where(Y[:, 2] < 0, None, Y[:, 2]), dtype="Int64"),
        },
        index=ROWS,
    )
    path = write(annotated(obsm={"tags": frame}, layers={"double": 2 * X}))
    reader = open_anndata(path, FileSpec(keys={"x": "layers/double", "y": "obsm/tags"}))
    assert reader.header.label_names == ("sky", "sea", "sun", "fog", "ice")
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], 2 * X)
    positive = (Y == 1).astype(np.int8)
    np.testing.assert_array_equal(
        found[1], np.column_stack([positive[:, 0], Y[:, 1], Y[:, 2], positive[:, 0], Y[:, 2]])
    )
    check_splits(reader, sizes=(1, 150))


def test_categories_become_labels(write) -> None:
    kind = pd.Categorical.from_codes([*(Y[:-1, 1] + 1), -1], ["T cell", "B", "NK"])
    treated = pd.Categorical.from_codes([*(Y[:-1, 0] == 1), -1], ["no", "yes"])
    columns = {"batch": np.arange(31), "kind": kind, "treated": treated, "sick": Y[:, 2] == 1, "sky": Y[:, 0]}
    path = write(annotated(obs=pd.DataFrame(columns, index=ROWS)))
    reader = open_anndata(path, FileSpec(labels=LabelSpec(columns=("sky", "sick", "treated", "kind"))))
    assert reader.header.label_names == ("kind=T cell", "kind=B", "kind=NK", "treated", "sick", "sky")
    found = read_all(reader)[1]
    expected = np.column_stack([Y[:, [1]] == [-1, 0, 1], Y[:, 0] == 1, Y[:, 2] == 1, Y[:, 0]]).astype(int)
    expected[-1, :4] = -1
    np.testing.assert_array_equal(found, expected)
    check_splits(reader, sizes=(1, 150))


@pytest.mark.parametrize("group", ["", "mod/rna/"])
def test_names_are_those_of_the_matrix_that_is_read(write, tmp_path: Path, group: str) -> None:
    obs = pd.DataFrame({"sick": Y[:, 2] == 1}, index=ROWS)
    data = annotated(
        obs=obs, layers={"double": 2 * X}, obsm={"labels": Y, "pca": X}, uns={"axes": np.array(list("abcd"))}
    )
    data.raw = anndata.AnnData(X[:, ::-1].copy(), obs=obs, var=pd.DataFrame({"id": list("wxyz")}, index=list("rstu")))
    path = write(data)
    if group and path.endswith(".h5ad"):  # as MuData has it
        path, inner = str(tmp_path / "t.h5mu"), path
        with h5py.File(inner) as source, h5py.File(path, "w") as root:
            root.attrs["encoding-type"] = "MuData"
            source.copy(source["/"], root.create_group("mod"), "rna")
    elif group:
        root = zarr.open_group(tmp_path / "mu.zarr", zarr_format=zarr.open_group(path).metadata.zarr_format)
        root.attrs["encoding-type"] = "MuData"
        root.create_group("mod")
        path = str(Path(path).rename(tmp_path / "mu.zarr" / "mod" / "rna").parents[1])

    def read(**keys: str) -> tuple[tuple[str, ...] | None, np.ndarray]:
        keys = {name: value if value == "id" else group + value for name, value in keys.items()}
        reader = open_source([path], FileSpec(labels=LabelSpec(columns=("sick",)), keys=keys))
        found = read_all(reader)
        np.testing.assert_array_equal(found[1][:, 0], Y[:, 2] == 1)
        return reader.header.feature_names, found[0]

    for keys, names, values in [
        ({"x": "X"}, GENES, X),
        ({"x": "layers/double"}, GENES, 2 * X),
        ({"x": "raw/X"}, tuple("rstu"), X[:, ::-1]),
        ({"x": "raw/X", "names": "id"}, tuple("wxyz"), X[:, ::-1]),
        ({"x": "obsm/pca"}, None, X),
        ({"x": "obsm/pca", "names": "uns/axes"}, tuple("abcd"), X),
    ]:
        found = read(**keys)
        assert found[0] == names
        np.testing.assert_array_equal(found[1], values)
    with pytest.raises(DataError, match="no data frame describes the columns of X"):
        read(x="obsm/pca", names="id")
    if group:
        with pytest.raises(DataError, match=r"there is no X.*\n  cure: .* --key x=mod/NAME/X \(there are rna\)"):
            open_source([path], FileSpec(labels=LabelSpec(columns=("sick",))))


def test_categories_as_older_versions_wrote_them(tmp_path: Path) -> None:
    kinds = np.array(["T cell", "B", "NK"])
    path = write_h5ad(annotated(), tmp_path)
    with h5py.File(path, "r+") as root:
        obs = root["obs"]
        obs["kind"] = (Y[:, 1] + 1).astype(np.int8)
        obs["__categories/kind"] = kinds.astype(h5py.string_dtype())
        obs["kind"].attrs["categories"] = obs["__categories/kind"].ref
        obs.attrs["column-order"] = ["kind"]
    options = FileSpec(labels=LabelSpec(columns=("kind",)))
    reader = open_anndata(path, options)
    assert reader.header.label_names == tuple(f"kind={kind}" for kind in kinds)
    np.testing.assert_array_equal(read_all(reader)[1], Y[:, [1]] + 1 == np.arange(3))
    assert obs_of(path, ["kind"], FileSpec()).categories == {"kind": tuple(kinds)}
    with h5py.File(path, "r+") as root:
        del root["obs"]
        root["obs"] = np.zeros(31, [("index", "S4"), ("kind", np.int8)])
    with pytest.raises(DataError, match=r"anndata before 0\.7 wrote it\n  cure: .*read_h5ad"):
        open_anndata(path, options)


def test_label_names_from_uns(write) -> None:
    path = write(annotated(uns={"label_names": np.array(["p", "q", "r"]), "other": np.array(["s", "t", "u"])}))
    assert open_anndata(path).header.label_names == ("p", "q", "r")
    options = FileSpec(keys={"label_names": "uns/other"})
    assert open_anndata(path, options).header.label_names == ("s", "t", "u")


def test_features_left_out(write) -> None:
    reader = open_anndata(write(annotated(X=sp.csr_matrix(X))), FileSpec(drop=("g é",)))
    assert reader.header.feature_names == ("g1", "g3", "g4")
    np.testing.assert_array_equal(read_all(reader)[0], np.delete(X, 1, axis=1))


DONORS = pd.DataFrame({"donor": pd.Categorical([f"d{i}" for i in range(31)])}, index=ROWS)
TEXTS = pd.DataFrame({"kind": [f"text {i}" for i in range(31)]}, index=ROWS)
FRAME = {"labels": Y, "tags": pd.DataFrame({"a": np.arange(31)}, index=ROWS)}


@pytest.mark.parametrize(
    ("parts", "options", "problem"),
    [
        ({"obsm": {"tags": Y}}, FileSpec(),
         r"there is no obsm/labels; there is obsm/tags\n  cure: .*--key y=obsm/NAME, .*--label-columns"),
        ({"obsm": {}, "obs": DONORS}, FileSpec(),
         r"there is no obsm/labels; there is nothing in obsm\n  cure: .*--label-columns \(there are donor"),
        *(({}, FileSpec(keys={name: key}), r"there is no .*X; there is .*obsm.*\n.*--key ")
          for name in ("x", "y", "label_names") for key in ("../X", "layers/../X", "./X", "obsm/../../X")),
        ({}, FileSpec(keys={"x": "layers/raw"}), r"there is no layers/raw; there is .*\n.*--key x=NAME"),
        ({"obs": TEXTS}, FileSpec(LabelSpec(columns=("kind",))), "'kind': a column of texts cannot be a label"),
        ({"obs": DONORS}, FileSpec(LabelSpec(columns=("donor",))),
         "column 'donor': a column of as many values as rows cannot be a label"),
        ({}, FileSpec(LabelSpec(columns=("sky",))), "the label 'sky' is none of the 0 columns"),
        ({"obsm": FRAME}, FileSpec(keys={"x": "obsm/tags"}),
         "obsm/tags is encoded as dataframe; an array, csr_matrix or csc_matrix"),
        ({}, FileSpec(LabelSpec(count=3)), "AnnData keeps labels apart from features"),
        ({}, FileSpec(LabelSpec(xml="t.xml")), "AnnData keeps labels apart from features"),
    ],
)  # fmt: skip
def test_refused(write, parts: dict[str, object], options: FileSpec, problem: str) -> None:
    with pytest.raises((DataError, UsageError), match=problem):
        open_anndata(write(annotated(**parts)), options)


def test_other_names(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    write_zarr(annotated(), folder, 3)
    file = Path(write_h5ad(annotated(), tmp_path)).rename(tmp_path / "t.h5")
    for path in (folder, file):
        np.testing.assert_array_equal(read_all(open_anndata(str(path)))[0], X)
    np.testing.assert_array_equal(read_all(open_source([str(folder)]))[1], Y)
    with pytest.raises(DataError, match="there is no Zarr array or group"):
        open_anndata(str(tmp_path / "no.zarr"))


def test_a_store_of_ours(tmp_path: Path) -> None:
    """A store can be a source: names and categories stay."""
    source = tmp_path / "t.csv"
    rows = "".join(f"{i},{'b' if i % 3 else 'a'},{i % 2},?\n" for i in range(40))
    source.write_text("x,k,p,q\n" + rows)
    convert(str(source), tmp_path / "t.zarr", labels=LabelSpec(count=2), workers=1)
    reader = open_source([str(tmp_path / "t.zarr")])
    expected = open_source([str(source)], FileSpec(labels=LabelSpec(count=2)))
    for name in ("feature_names", "label_names", "categories", "n_features", "n_labels"):
        assert getattr(reader.header, name) == getattr(expected.header, name), name
    for found, wanted in zip(read_all(reader), read_all(expected), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_cut_off(tmp_path: Path) -> None:
    path = Path(write_h5ad(annotated(), tmp_path))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match="it is no HDF5 file, or damaged or cut off"):
        open_anndata(str(path))


def test_an_hdf5_file_that_is_not_anndata(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5ad", "w") as file:
        file["other"] = np.arange(3)
    with pytest.raises(DataError, match="there is no X; there is other"):
        open_anndata(str(tmp_path / "t.h5ad"))
