"""Stores by path, AnnData, and data frames of Dask: the same scores as of arrays, and the names that they bring."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask import ELC, RFS, LabelEntropy
from mlfs_dask.errors import DataError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.storage.file_dataset import open_scan

N, D, Q = 60, 8, 3
NAMES = [f"feature {f}" for f in range(D)]
LABELS = ["sky", "sea", "sun"]


def problem():
    rng = np.random.default_rng(0)
    Y = (rng.random((N, Q)) < 0.4).astype(np.int8)
    X = np.where(rng.random((N, D)) < 0.6, rng.normal(size=(N, D)), 0.0)
    X[:, 2:5] += 2 * Y
    return X, Y


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of `problem`."""
    X, Y = problem()
    folder = tmp_path_factory.mktemp("store")
    lines = [",".join([*NAMES, *LABELS])]
    lines += [",".join(map(repr, [*x, *map(int, y)])) for x, y in zip(X.tolist(), Y.tolist(), strict=True)]
    (folder / "data.csv").write_text("\n".join(lines))
    mlfs_dask.convert(folder / "data.csv", folder / "data.zarr", labels=LabelSpec(count=Q))
    return folder / "data.zarr"


def check(found, X, expected_names=NAMES, *, names_of_transformed=True):
    """The selector has learnt what it learns from the arrays, and `transform` gives their columns and names."""
    expected = ELC(3).fit(*problem())
    assert found.scores_ == pytest.approx(expected.scores_, rel=1e-9, abs=1e-10)
    assert found.feature_names_in_.tolist() == expected_names
    assert found.get_feature_names_out().tolist() == [expected_names[f] for f in np.flatnonzero(expected.support_)]
    if not names_of_transformed:  # an array of the same rows has none
        assert found.support_.tolist() == expected.support_.tolist()
        return
    columns = found.transform(X)
    columns = columns.compute() if isinstance(columns, da.Array) else columns
    columns = columns.toarray() if sp.issparse(columns) else columns
    assert columns == pytest.approx(problem()[0][:, expected.support_])


@pytest.mark.parametrize("kind", [str, lambda path: path, mlfs_dask.open_dataset])
def test_a_store_brings_labels_names_and_place(store, kind):
    found = ELC(3).fit(kind(store))
    check(found, kind(store))
    assert found.report_.store == {"path": str(store), "digest": mlfs_dask.open_dataset(store).digest}
    assert found.report_.bytes_read > 0


def test_arrays_of_a_store_keep_its_names(store):
    dataset = mlfs_dask.open_dataset(store)
    found = ELC(3).fit(dataset.X, dataset.Y)
    check(found, dataset.X)
    assert found.report_.store["digest"] == dataset.digest
    assert not hasattr(found.fit(*problem()), "feature_names_in_")
    check(ELC(3).fit(dataset.X, problem()[1]), dataset)
    check(ELC(3).fit(dataset, problem()[1]), dataset)
    assert not hasattr(ELC(3).fit(dataset.X[:, ::-1], dataset.Y), "feature_names_in_")
    unknown = da.where(dataset.Y == 1, -1, dataset.Y)
    with pytest.raises(DataError, match=r"row \d+ of Y has an unknown label \(-1\) in column \d"):
        RFS(3, unknown="refuse").fit(dataset.X, unknown)


def test_no_store_at_the_path(tmp_path):
    with pytest.raises(DataError, match=r"absent\.zarr"):
        ELC(3).fit(tmp_path / "absent.zarr")


# anndata 0.13 sets an option of pandas for every view, such as adata[:, ::-1], that pandas 3.1 deprecates.
@pytest.mark.filterwarnings("ignore:The 'mode.chained_assignment' option is deprecated")
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_anndata_brings_labels_and_names(container):
    ad, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    X, Y = problem()
    obs = pd.DataFrame({"kind": pd.Categorical(np.array(["a", "b", "c"])[np.arange(N) % 3]), "sea": Y[:, 1] == 1})
    obs.index = obs.index.astype(str)
    adata = ad.AnnData(container(X), obs=obs, var=pd.DataFrame(index=NAMES))
    with pytest.raises(DataError, match=r"no labels in obsm\['labels'\]\n  cure: fit\(adata, 'COLUMN'\)"):
        ELC(3).fit(adata)
    with pytest.raises(DataError, match=r"no column 'kin'\n  cure: name one of 'kind', 'sea'"):
        ELC(3).fit(adata, "kin")
    assert ELC(3).fit(adata, "kind").report_.q == 3
    assert ELC(3).fit(adata, adata.obs[["sea", "kind"]]).report_.q == 4
    for labels in (Y, sp.csr_matrix(Y), pd.DataFrame(Y, columns=LABELS, index=adata.obs_names)):
        adata.obsm["labels"] = labels
        check(ELC(3).fit(adata), adata)
    check(ELC(3).fit(adata, Y), adata)
    assert ELC(3).fit(adata, "sea").scores_ == pytest.approx(ELC(3).fit(X, Y[:, 1]).scores_)
    with pytest.raises(DataError, match="feature names should match"):
        ELC(3).fit(adata).transform(adata[:, ::-1])


@pytest.mark.filterwarnings("ignore:Transforming to str index")  # names of rows are numbers in a store
def test_a_store_opened_by_anndata(store):
    ad = pytest.importorskip("anndata")
    adata = ad.read_zarr(store)
    selector = ELC(3).fit(adata)
    check(selector, adata)
    assert selector._fitted.names.labels.tolist() == LABELS


@pytest.mark.parametrize("sparse", [False, True])
def test_anndata_with_x_in_a_file(tmp_path, sparse):
    ad, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    X, Y = problem()
    whole = ad.AnnData(sp.csr_matrix(X) if sparse else X, var=pd.DataFrame(index=NAMES))
    whole.obsm["labels"] = pd.DataFrame(Y, columns=LABELS, index=whole.obs_names)
    whole.write_h5ad(tmp_path / "data.h5ad")
    adata = ad.read_h5ad(tmp_path / "data.h5ad", backed="r")
    found = ELC(3).fit(adata)
    check(found, X, names_of_transformed=False)
    assert found.report_.passes == 1
    assert list(found._fitted.names.labels) == LABELS
    adata.obsm["labels"] = 1 - Y  # those in memory count, and they are others than those in the file
    assert ELC(3).fit(adata).report_.store["digest"] != found.report_.store["digest"]
    with pytest.raises(DataError, match=r"holds X in a file\n  cure: fit\(adata.to_memory\(\)\)"):
        found.transform(adata)
    assert ELC(3).fit(adata[:30]).report_.n == 30  # a part of it is brought into memory
    adata.file.close()


def test_data_frames_of_dask():
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    X, Y = problem()
    frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=3)
    labels = pd.DataFrame(Y, columns=LABELS)
    for y in (Y, labels, dd.from_pandas(labels, npartitions=2), dd.from_pandas(labels.astype(str), npartitions=2)):
        check(ELC(3).fit(frame, y), frame)
    classes = np.array(["a", "b", "c"])[np.arange(N) % 3]
    found = LabelEntropy(3).fit(frame, dd.from_pandas(pd.Series(classes), npartitions=2))
    assert found.scores_.tolist() == LabelEntropy(3).fit(X, classes).scores_.tolist()
    unknown = labels.assign(sea=-labels.sea)
    with pytest.raises(DataError, match=r"row \d+ of Y has an unknown label \(-1\) in column 1"):
        RFS(3, unknown="refuse").fit(frame, dd.from_pandas(unknown, npartitions=2))
    with pytest.raises(DataError, match="feature names should match"):
        ELC(3).fit(frame, Y).transform(frame[NAMES[::-1]])


def test_labels_of_classes_are_named_after_column_and_class():
    """The one column has become three labels."""
    pd = pytest.importorskip("pandas")
    X, _ = problem()
    table = pd.DataFrame({"kind": np.r_[np.arange(N - 1) % 3 + 1, -1]})
    with pytest.raises(DataError, match=r"3 unknown entries \(-1\) in 3 of its labels, first in label 'kind=1'"):
        ELC(3, unknown="refuse").fit(X, table)
    kinds = np.array(["mouse", "rat"])[np.arange(N) % 2]
    for y in (pd.Series(kinds, name="kind"), pd.DataFrame({"kind": kinds})):
        assert ELC(3).fit(X, y)._fitted.names.labels == ["kind=rat"]  # which the sign of an effect is of
    assert ELC(3).fit(X, kinds)._fitted.names.labels == ["rat"]
    two = pd.DataFrame({"kind": np.array(["a", "b", "c"])[np.arange(N) % 3], "sex": kinds})
    assert ELC(3).fit(X, two)._fitted.names.labels == ["kind=a", "kind=b", "kind=c", "sex=rat"]
    frame = pd.DataFrame(X, columns=NAMES).assign(u=np.arange(N) % 2, v=np.arange(N) % 3 > 0)
    found = ELC(3).fit(frame, ["u", "v"])
    assert found._fitted.names.labels == ["u", "v"]
    assert found.feature_names_in_.tolist() == NAMES
    assert ELC(3).fit(frame.drop(columns="v"), "u")._fitted.names.labels == ["u"]
    with pytest.raises(DataError, match=r"value 'w': X has no column of this name\n  cure: "):
        ELC(3).fit(frame, ["u", "w"])
    objects, numbers = frame.astype(object), frame.copy()
    objects.iloc[3, 0], numbers.iloc[3, 0] = pd.NA, np.nan
    scores = [ELC(3, missing="mean").fit(each, ["u", "v"]).scores_ for each in (objects, numbers)]
    np.testing.assert_array_equal(*scores)


def test_columns_of_obs_are_labels_covariates_and_strata_of_anndata_in_memory_and_in_a_file(tmp_path):
    ad, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    X, Y = problem()
    obs = pd.DataFrame({"u": Y[:, 0], "v": Y[:, 1], "batch": np.array(["p", "q"])[np.arange(N) % 2]})
    obs.index = obs.index.astype(str)
    whole = ad.AnnData(X, obs=obs, var=pd.DataFrame(index=NAMES))
    whole.write_h5ad(tmp_path / "data.h5ad")
    expected = mlfs_dask.BRCC(3).fit(X, Y[:, :2], strata=obs["batch"]).scores_
    for adata in (whole, ad.read_h5ad(tmp_path / "data.h5ad", backed="r")):
        found = mlfs_dask.BRCC(3, strata="batch").fit(adata, ["u", "v"])
        np.testing.assert_allclose(found.scores_, expected)
        assert list(found._fitted.names.labels) == ["u", "v"]
    with pytest.raises(DataError, match="obs of this AnnData object has no column 'w'"):
        mlfs_dask.BRCC(3).fit(whole, ["u", "w"])


# ---------------------------------------------------------------- tables


def table(**columns):
    """A data frame of `problem`, with other columns put in the place of some."""
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(problem()[0], columns=NAMES).assign(**{f"feature {f[1:]}": v for f, v in columns.items()})


def arrow(frame):
    return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)


def arrow_dataset(frame):
    return pytest.importorskip("pyarrow.dataset").dataset(arrow(frame))


class ArrowStream:
    """A table of a library that nobody knows, which gives its rows as all do."""

    def __init__(self, frame):
        self.table = arrow(frame)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def xarray(values, names, dims=("row", "column")):
    return pytest.importorskip("xarray").DataArray(values, dims=dims, coords={"column": names})


@pytest.mark.parametrize(
    "container",
    [
        arrow,
        lambda frame: arrow(frame).combine_chunks().to_batches()[0],
        lambda frame: pytest.importorskip("polars").DataFrame(dict(frame.items())),
        ArrowStream,
        lambda frame: xarray(frame.to_numpy(), list(frame.columns)),
        lambda frame: xarray(frame.to_numpy(), list(frame.columns)).chunk({"row": 20}),
        lambda frame: frame.astype({NAMES[0]: "category"}),
        lambda frame: frame.astype(object),
    ],
    ids=["arrow", "arrow batch", "polars", "stream of arrow", "xarray", "xarray of dask", "category", "object"],
)
def test_tables_bring_names(container):
    check(ELC(3).fit(container(table()), problem()[1]), container(table()))


@pytest.mark.parametrize(
    "container",
    [arrow, ArrowStream, lambda frame: xarray(frame.to_numpy(), LABELS)],
    ids=["arrow", "stream of arrow", "xarray"],
)
def test_names_of_labels(container):
    pd = pytest.importorskip("pandas")
    X, Y = problem()
    Y = Y.astype(float)
    Y[3, 1] = np.nan
    with pytest.raises(DataError, match=r"unknown entries .* first in label 'sea', column 1 of Y"):
        LabelEntropy(3, unknown="refuse").fit(X, container(pd.DataFrame(Y, columns=LABELS)))


def lazy_frame(frame):
    return pytest.importorskip("polars").LazyFrame(dict(frame.items()))


@pytest.mark.parametrize("scan", [lazy_frame, arrow_dataset], ids=["polars", "arrow"])
def test_tables_that_are_read_by_batches(scan, monkeypatch):
    pd = pytest.importorskip("pandas")
    monkeypatch.setattr("mlfs_dask.storage.file_rows.BLOCK_BYTES", 700)
    X, Y = problem()
    texts = {"kind": np.array(["b", "a", "c"])[np.arange(N) % 3]}
    whole = table().join(pd.DataFrame(Y, columns=LABELS))
    for found in (ELC(3).fit(scan(whole), LABELS), ELC(3).fit(scan(table()), pd.DataFrame(Y, columns=LABELS))):
        check(found, X, names_of_transformed=False)
        assert found.report_.passes == 1
        assert found.report_.store is None
        assert list(found._fitted.names.labels) == LABELS
    frame = whole.assign(**texts)
    coded = np.column_stack([X, np.array([1, 0, 2])[np.arange(N) % 3]])
    assert ELC(3).fit(scan(frame), LABELS).scores_ == pytest.approx(ELC(3).fit(coded, Y).scores_, rel=1e-9, abs=1e-10)
    with pytest.raises(DataError, match="see"):
        ELC(3).fit(scan(whole), ["sky", "see"])
    with pytest.raises(DataError, match=r"requires y .*\n  cure: .*the names of the columns that are labels"):
        ELC(3).fit(scan(whole))
    with pytest.raises(DataError, match=r"a LazyFrame of polars|a dataset of Arrow"):
        found.transform(scan(table()))


@pytest.mark.parametrize("library", ["polars", "arrow"])
def test_parquet_is_read_by_pieces(library, tmp_path, monkeypatch):
    """Row groups, or rows that polars takes out of the middle; what is filtered comes as a whole."""
    pl, arrow_of, pd = (pytest.importorskip(name) for name in ("polars", "pyarrow.dataset", "pandas"))
    monkeypatch.setattr("mlfs_dask.storage.file_rows.PARTITION_BYTES", 1500)
    monkeypatch.setattr("mlfs_dask.readers.batches._PIECE_ROWS", 7)
    X, Y = problem()
    whole = table().join(pd.DataFrame(Y, columns=LABELS))
    for year, some in enumerate((whole[: N // 2], whole[N // 2 :])):
        (tmp_path / f"year={year}").mkdir()
        some.to_parquet(tmp_path / f"year={year}" / "t.parquet", row_group_size=7)
    if library == "arrow":
        scanned = arrow_of.dataset(tmp_path, partitioning="hive")
        filtered = scanned.filter(arrow_of.field(NAMES[0]) > -1e9)
    else:
        scanned = pl.scan_parquet(tmp_path / "**/*.parquet", hive_partitioning=True)
        filtered = scanned.filter(pl.col(NAMES[0]) > -1e9)
    coded = np.column_stack([X, np.arange(N) >= N // 2])
    expected = ELC(3).fit(coded, Y).scores_
    for given, pieces in ((scanned, True), (filtered, False)):
        assert (open_scan(given, LABELS, what="it").profile.partitions > 1) == pieces
        found = ELC(3).fit(given, LABELS)
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-10)
        assert found.report_.passes == 1


def test_a_table_by_batches_that_changes():
    pl = pytest.importorskip("polars")
    frames = [table(), table()[:50]]

    def source(with_columns, predicate, n_rows, batch_size):
        frame = pl.DataFrame(dict(frames.pop(0).items() if len(frames) > 1 else frames[0].items()))
        yield frame if with_columns is None else frame.select(with_columns)

    schema = pl.Schema(dict.fromkeys(NAMES, pl.Float64))
    lazy = pl.io.plugins.register_io_source(source, schema=schema)
    with pytest.raises(DataError, match=r"the LazyFrame: it gave 50 rows, and 60 before"):
        ELC(3).fit(lazy, problem()[1])


def twice(frame):
    return frame.set_axis(["a", "a", *NAMES[2:]], axis=1)


DATES = np.arange(N).astype("datetime64[D]")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: twice(table()), r"column 'a': 2 columns of X have this name\n  cure: name the columns apart"),
        (lambda: arrow(table()).rename_columns(["a", "a", *NAMES[2:]]), "column 'a': 2 columns of X have this name"),
        (lambda: table(f1=["x"] * N), r"column 'feature 1', value 'x': features must be numbers, .* text\n  cure: "),
        (lambda: arrow(table(f1=["x"] * N)), "column 'feature 1', value 'x': features must be numbers"),
        (lambda: table(f2=["1,5"] * N), "column 'feature 2', value '1,5': .* text"),
        (lambda: table(f3=DATES), "column 'feature 3', value '1970-01-01.*': features must be numbers, .* dates"),
        (lambda: table(f3=DATES - DATES[0]), "column 'feature 3', value .* spans of time"),
        (lambda: table(f4=[1j] * N), "column 'feature 4': Complex data not supported"),
        (lambda: np.where(np.eye(N, D), "x", problem()[0].astype(object)), r"column 0 \(counted from 0\), value"),
        (lambda: arrow(table()).to_reader(), r"reader of Arrow.*cure: X\.read_all\(\)"),
        (lambda: arrow_dataset(table()).scanner(), r"dataset of Arrow.*cure: X\.to_table\(\)"),
        (lambda: xarray(problem()[0], NAMES).to_dataset("column"), r"Dataset of xarray.*cure: X\.to_dataarray"),
        (lambda: table()[NAMES[0]], r"a Series, one column.*cure: X\.to_frame\(\)"),
        (lambda: table().to_records(index=False), r"structured array.*cure: pandas\.DataFrame\(X\)"),
        (lambda: dict(table().items()), r"X is a dict.*cure: pandas\.DataFrame\(X\)"),
        (lambda: iter(problem()[0]), r"X is an iterator.*cure: list\(X\)"),
        (lambda: None, "X is None"),
    ],
)
def test_tables_that_hold_something_else(make, message):
    with pytest.raises(DataError, match=f"(?s){message}"):
        ELC(3).fit(make(), problem()[1])


def test_masked_values_are_missing():
    X, Y = problem()
    masked = np.ma.masked_array(X, mask=np.arange(N * D).reshape(N, D) % 97 == 0)
    assert LabelEntropy(3, missing="mean").fit(masked, Y).scores_ == pytest.approx(
        LabelEntropy(3, missing="mean").fit(masked.filled(np.nan), Y).scores_
    )
    unknown = np.ma.masked_array(Y, mask=Y == 1)
    with pytest.raises(DataError, match=f"Y holds {Y.sum()} unknown entries"):
        LabelEntropy(3, unknown="refuse").fit(X, unknown)


def test_rows_of_tables_in_another_order():
    pd = pytest.importorskip("pandas")
    X, Y = table(), pd.DataFrame(problem()[1], columns=LABELS)
    with pytest.raises(DataError, match=r"row 0 \(counted from 0\) is 0 in X and 59 in Y\n  cure: Y\.loc\[X\.index\]"):
        ELC(3).fit(X, Y[::-1])
    for labels in (Y, Y.set_index(Y.index + 1000), Y.set_index(Y.index + 1), Y.to_numpy()):
        check(ELC(3).fit(X, labels), X)
