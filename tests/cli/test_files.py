"""Files that are read where they lie: the same answers as from the store that they would become, and its errors."""

from __future__ import annotations

import json
import pickle
import re
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp
from scipy.io import mmwrite

import mlfs_dask
from mlfs_dask import BRCC, ELC, Chi2, LabelEntropy
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.storage.opening import reopen
from tests.cli.web_server import serve
from tests.problems import write_zarr

anndata = pytest.importorskip("anndata")

N, D = 400, 12
LABELS = ["sky", "sea", "sun"]
NAMES = [f"feature {f}" for f in range(D)]
#: More than one partition, and blocks that end within chunks.
PARTITION_BYTES, BLOCK_BYTES = 3_000, 1_000


def problem() -> tuple[Any, Any]:
    """Values of float32, some labels unknown."""
    rng = np.random.default_rng(5)
    Y = (rng.random((N, len(LABELS))) < 0.4).astype(np.int8)
    X = np.where(rng.random((N, D)) < 0.5, rng.normal(size=(N, D)), 0).astype(np.float32)
    X[:, 2:5] += 2 * Y
    Y[::17, 1] = -1
    return X, Y


def as_anndata(X: Any, Y: Any) -> Any:
    adata = anndata.AnnData(X, var=pd.DataFrame(index=NAMES))
    adata.obsm["labels"] = pd.DataFrame(np.where(Y < 0, np.nan, Y), columns=LABELS, index=adata.obs_names)
    return adata


def h5ad(folder: Path, form: str, **how: Any) -> Path:
    X, Y = problem()
    as_anndata(sp.csr_matrix(X) if form == "csr" else X, Y).write_h5ad(folder / "a.h5ad", **how)
    return folder / "a.h5ad"


def zarr_of_others(folder: Path, form: str, version: int, **how: Any) -> Path:
    X, Y = problem()
    write_zarr(as_anndata(sp.csr_matrix(X) if form == "csr" else X, Y), folder / "a.zarr", version, **how)
    return folder / "a.zarr"


def sharded(folder: Path) -> Path:
    """X in shards of 100 rows with chunks of 10, sparse labels in shards, as anndata writes from 0.13 on."""
    import zarr

    X, Y = problem()
    path = zarr_of_others(folder, "dense", 3)
    root = zarr.open_group(path, mode="r+")
    attributes = dict(root["X"].attrs)
    del root["X"]
    root.create_array("X", data=X, chunks=(10, 5), shards=(100, 15)).attrs.update(attributes)
    del root["obsm/labels"]
    group = root.create_group("obsm/labels")
    Y = sp.csr_matrix(Y)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(Y.shape)})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(Y, name), chunks=(8,), shards=(64,))
    zarr.save_array(str(folder / "names"), np.zeros(1))
    root["uns"].create_array("label_names", shape=(3,), dtype=str)[:] = np.array(LABELS, dtype=object)
    zarr.consolidate_metadata(str(path))
    return path


def table(**more: Any) -> pd.DataFrame:
    X, Y = problem()
    labels = pd.DataFrame(np.where(Y < 0, np.nan, Y), columns=LABELS)
    return pd.concat([pd.DataFrame(X, columns=NAMES), labels, pd.DataFrame(more)], axis=1)


def parquet(folder: Path) -> Path:
    table().to_parquet(folder / "t.parquet", row_group_size=37)
    return folder / "t.parquet"


def parquet_folder(folder: Path) -> Path:
    place = folder / "parts"
    (place / "deep").mkdir(parents=True)
    whole = table()
    whole[:150].to_parquet(place / "a.parquet", row_group_size=40)
    whole[150:].to_parquet(place / "deep" / "b.parquet", row_group_size=1000)
    (place / "_SUCCESS").write_text("")
    return place


SOURCES: dict[str, Callable[[Path], Path]] = {
    "h5ad dense": lambda p: h5ad(p, "dense"),
    "h5ad csr": lambda p: h5ad(p, "csr"),
    "h5ad dense gzip": lambda p: h5ad(p, "dense", compression="gzip"),
    "h5ad csr lzf": lambda p: h5ad(p, "csr", compression="lzf"),
    "zarr 2 csr": lambda p: zarr_of_others(p, "csr", 2),
    "zarr 3 dense": lambda p: zarr_of_others(p, "dense", 3, chunks=(7, 5)),
    "zarr sharded": sharded,
    "parquet": parquet,
    "parquet folder": parquet_folder,
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Any]:
    """A file, and how its labels are said."""
    monkeypatch.setattr("mlfs_dask.storage.file_rows.PARTITION_BYTES", PARTITION_BYTES)
    monkeypatch.setattr("mlfs_dask.storage.file_rows.BLOCK_BYTES", BLOCK_BYTES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of anndata, pandas and zarr while they write
        path = SOURCES[request.param](tmp_path)
    return path, LabelSpec(columns=tuple(LABELS)) if "parquet" in request.param else LabelSpec()


def test_a_file_is_what_its_store_would_be(source: tuple[Path, Any], tmp_path: Path) -> None:
    path, labels = source
    store = tmp_path / "store.zarr"
    mlfs_dask.convert(path, store, labels=labels, dtype="float32")
    expected, found = mlfs_dask.open_dataset(store), mlfs_dask.open_dataset(path, labels=labels)
    X, Y = problem()
    profile = found.rows.profile
    assert (profile.n, profile.d, profile.q, profile.dtype) == (N, D, len(LABELS), np.float32)
    assert profile.partitions > 1
    assert found.label_counts.tolist() == expected.label_counts.tolist()
    assert found.feature_names.tolist() == NAMES
    assert found.label_names.tolist() == LABELS
    blocks = list(pickle.loads(pickle.dumps(found.rows)).stream(0, profile.partitions))
    assert len(blocks) > profile.partitions or path.suffix == ".zarr"  # whose chunks and shards may be larger
    assert max(block.X.shape[0] for block in blocks) <= profile.block_rows or profile.sparse
    rows = [block.X.toarray() if sp.issparse(block.X) else block.X for block in blocks]
    np.testing.assert_array_equal(np.concatenate(rows), X)
    np.testing.assert_array_equal(np.concatenate([block.Y.toarray() for block in blocks]), Y)
    np.testing.assert_array_equal(found.rows.all_labels().toarray(), Y)
    assert [block.start for block in blocks] == np.cumsum([0, *map(len, rows)]).tolist()[:-1]
    for method, passes in ((ELC(3, unknown="negative"), 1), (LabelEntropy(3, bins=4), 2)):
        scores = method.fit(expected).scores_
        method.fit(found)
        assert method.scores_ == pytest.approx(scores, rel=1e-9, abs=1e-12)
        assert method.report_.passes <= passes
    part = {"rows": "10:300", "labels": "0:2", "features": "1:9"}
    of_store, of_file = ELC(3, unknown="negative").fit(expected.subset(**part)), ELC(3, unknown="negative")
    assert of_file.fit(found.subset(**part)).scores_ == pytest.approx(of_store.scores_, rel=1e-9)
    lazy = ELC(3, unknown="negative").fit(found.X[:], found.Y[:])
    assert lazy.ranking_.tolist() == ELC(3, unknown="negative").fit(X, Y).ranking_.tolist()


def test_folders_that_name_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """year=2023/kind=a/0.parquet: numbers and categories, of which a label is made, too."""
    X, _ = problem()
    numbers, kinds = np.arange(N) * 4 // N + 2020, np.array(["a", "b c"])[np.arange(N) % 2]
    frame = table(year=numbers, kind=kinds)
    for (year, kind), rows in frame.groupby(["year", "kind"]):
        place = tmp_path / "hive" / f"year={year}" / f"kind={kind.replace(' ', '%20')}"
        place.mkdir(parents=True)
        rows.drop(columns=["year", "kind"]).to_parquet(place / "0.parquet")
    found = mlfs_dask.open_dataset(tmp_path / "hive", labels=LabelSpec(columns=tuple(LABELS)))
    assert found.feature_names.tolist() == [*NAMES, "year", "kind"]
    assert found.categories == {D + 1: ("a", "b c")}
    order = np.lexsort((np.arange(N), kinds, numbers))
    whole = np.concatenate([block.X for block in found.rows.stream(0, found.rows.profile.partitions)])
    np.testing.assert_array_equal(whole, np.column_stack([X, numbers, kinds == "b c"])[order])
    told = f"{tmp_path / 'hive'}: column '__index_level_0__' is the index of a pandas table: it is left out"
    assert caplog.messages.count(told) == 1
    mlfs_dask.convert(tmp_path / "hive", tmp_path / "store.zarr", labels=LabelSpec(columns=tuple(LABELS)))
    assert caplog.messages.count(told) == 1
    assert mlfs_dask.open_dataset(tmp_path / "store.zarr").feature_names.tolist() == found.feature_names.tolist()
    spec = LabelSpec(columns=("kind",), classes=True)
    assert mlfs_dask.open_dataset(tmp_path / "hive", labels=spec, drop=LABELS).label_counts[2].sum() > 0


@pytest.mark.parametrize("folders", [("00123", "007", "7"), ("1_0", "10"), ("1", str(10**16))])
def test_folders_that_are_no_numbers_stay_texts(tmp_path: Path, folders: tuple[str, ...]) -> None:
    for folder in folders:
        (tmp_path / f"id={folder}").mkdir()
        table().to_parquet(tmp_path / f"id={folder}" / "0.parquet")
    found = mlfs_dask.open_dataset(tmp_path, labels=LabelSpec(columns=tuple(LABELS)))
    assert found.categories == {D: tuple(sorted(folders))}
    classes = mlfs_dask.open_dataset(tmp_path, labels=LabelSpec(columns=("id",), classes=True), drop=LABELS)
    assert sorted(classes.label_names) == sorted(f"id={folder}" for folder in folders)


def test_what_has_no_row_blocks_is_to_be_converted(tmp_path: Path) -> None:
    X, Y = problem()
    as_anndata(sp.csc_matrix(X), Y).write_h5ad(tmp_path / "columns.h5ad")
    with pytest.raises(UsageError, match=r"its rows cannot be read independently.*\n  cure: `mlfs convert .*columns"):
        mlfs_dask.open_dataset(tmp_path / "columns.h5ad")
    table().to_csv(tmp_path / "t.csv", index=False)
    np.save(tmp_path / "X.npy", X)
    mmwrite(tmp_path / "X.mtx", sp.coo_matrix(X))
    (tmp_path / "10x").mkdir()
    (tmp_path / "10x" / "barcodes.tsv").write_text("a\n")
    for name in ("t.csv", "X.npy", "X.mtx", "10x"):
        cure = rf"its rows cannot be read independently(.|\n)*  cure: `mlfs convert .*{name} STORE`"
        with pytest.raises(UsageError, match=cure):
            mlfs_dask.open_dataset(tmp_path / name)


@pytest.mark.parametrize("form", ["h5ad", "parquet"])
def test_columns_of_rows_beside_features_adjust_scores(tmp_path: Path, form: str) -> None:
    X, Y = problem()
    rng = np.random.default_rng(3)
    batch, age = rng.choice(["one", "two", "three"], N), rng.normal(size=N)
    path, labels, drop = tmp_path / f"a.{form}", None, ()
    if form == "h5ad":
        adata = as_anndata(X, Y)
        adata.obs = pd.DataFrame({"batch": pd.Categorical(batch), "age": age}, index=adata.obs_names)
        adata.write_h5ad(path)
    else:
        table().assign(batch=batch, age=age).to_parquet(path)
        labels, drop = LabelSpec(columns=tuple(LABELS)), ("batch", "age")
    found = mlfs_dask.open_dataset(path, labels=labels, drop=drop)
    columns = {"covariates": age[:, np.newaxis], "strata": batch}
    expected = BRCC(3).fit(pd.DataFrame(X, columns=NAMES), Y, **columns)
    selector = BRCC(3, covariates="age", strata="batch").fit(found)
    assert selector.scores_ == pytest.approx(expected.scores_, rel=1e-9)
    part = BRCC(3, covariates="age", strata="batch").fit(found.subset(rows="10:300", features="2:"))
    expected = BRCC(3).fit(X[10:300, 2:], Y[10:300], **{name: values[10:300] for name, values in columns.items()})
    assert part.scores_ == pytest.approx(expected.scores_, rel=1e-9)
    with pytest.raises(UsageError, match="the covariate 'ages' is not there; there are batch, age"):
        BRCC(3, covariates="ages").fit(found)


@pytest.mark.parametrize("form", ["h5ad", "parquet"])
def test_a_column_of_rows_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    import h5py

    monkeypatch.setattr("mlfs_dask.formats.detect.BATCH_BYTES", 1 << 20)
    n, rng = 1_000_000, np.random.default_rng(0)
    age, sky, path = rng.normal(size=n), (rng.random(n) < 0.3).astype(np.int8), tmp_path / f"a.{form}"
    if form == "h5ad":
        with h5py.File(path, "w") as file:
            file["X"], file["obsm/labels"], file["obs/age"], file["obs/sick"] = sky[:, None], sky[:, None], age, sky > 0
            file["obs"].attrs.update({"encoding-type": "dataframe", "column-order": ["age", "sick"]})
        found = mlfs_dask.open_dataset(path)
    else:
        frame = pd.DataFrame({"f": sky, "sky": sky, "age": age, "sick": np.where(sky, "True", "False")})
        frame.to_parquet(path)
        found = mlfs_dask.open_dataset(path, labels=LabelSpec(columns=("sky",)), drop=("age", "sick"))
    tracemalloc.start()
    column = found.rows.columns["age"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(column.values, age)
    assert peak < 8 * n + 12 * 2**20
    coded = found.rows.columns["sick"]
    assert coded.categories == ("False", "True")
    np.testing.assert_array_equal(coded.values, sky)


def test_ranges_of_features_are_read_for_once(tmp_path: Path) -> None:
    found = mlfs_dask.open_dataset(h5ad(tmp_path, "dense"))
    with mlfs_dask.cache(tmp_path / "cache"):
        methods = [method(3, bins=4, unknown="negative") for method in (LabelEntropy, Chi2, LabelEntropy)]
        assert [method.fit(found).report_.passes for method in methods] == [2, 1, 0]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def wrong_label(path: Path) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        file["obsm/labels/sea"][5] = 7


def wrong_offsets(path: Path) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        file["X/indptr"][200] = 4_000_000


@pytest.mark.parametrize("harm", [cut, wrong_label, wrong_offsets])
def test_damage_is_told_as_by_a_conversion(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = h5ad(tmp_path, "csr")
    harm(path)
    with pytest.raises(DataError) as converted:
        mlfs_dask.convert(path, tmp_path / "store.zarr")
    with pytest.raises(DataError) as read:
        ELC(3).fit(str(path))
    assert str(read.value) == str(converted.value)


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = h5ad(tmp_path, "csr")
    opened = mlfs_dask.open_dataset(path)
    h5ad(tmp_path, "dense")
    with pytest.raises(DataError, match="it was changed or replaced since it was opened"):
        ELC(3, unknown="negative").fit(opened)
    assert mlfs_dask.open_dataset(path).digest != opened.digest


def test_a_run_knows_how_its_file_was_opened(tmp_path: Path, run_json: Any) -> None:
    path, run = parquet(tmp_path), tmp_path / "run"
    run_json("select", "elc", path, "--label-columns", ",".join(LABELS), "--features", "1:", "-k", "3", "-o", run)
    store = json.loads((run / "run.json").read_text())["store"]
    assert store["reading"] == {"labels": {"columns": LABELS}}
    again = reopen(store)
    assert again.label_names.tolist() == LABELS
    assert again.digest == store["digest"]


def test_files_by_commands(tmp_path: Path, run_json: Any, run: Any) -> None:
    path, out, labels = parquet(tmp_path), tmp_path / "run", ("--label-columns", ",".join(LABELS))
    assert run_json("inspect", path, *labels)["unknown_labels"] == len(range(0, N, 17))
    planned = run_json("plan", "elc", path, *labels, "-k", "3")
    assert (planned["passes"], planned["bytes_read"] > 4 * N * D) == (1, True)
    looped = run_json("plan", "rfs", path, *labels, "-k", "3")
    assert any(note.endswith("`mlfs convert` takes the time of a few passes") for note in looped["notes"])
    assert not any("convert" in note for note in planned["notes"])
    record = run_json("select", "elc", path, *labels, "-k", "3", "-o", out)
    assert record["store"]["path"] == str(path)
    assert sorted(record["selected"]) == NAMES[2:5]
    assert record["passes"] == 1
    for name, given in (("t.zarr", labels), ("t.csv", labels), ("as-the-run.zarr", ()), ("as-the-run.csv", ())):
        written = run_json("transform", path, out, tmp_path / name, *given)
        assert (written["n"], written["features"]) == (N, NAMES[2:5])
    assert mlfs_dask.open_dataset(tmp_path / "t.zarr").shape == (N, 3)
    assert (
        run_json("select", "elc", path, *labels, "-k", "3", "-o", out, "--resume")["wall_seconds"]
        == record["wall_seconds"]
    )
    judged = run_json("evaluate", path, out, "--labels", "sky,sun", *labels, "-o", tmp_path / "eval", "--k-grid", "2")
    assert json.loads(json.dumps(judged))["store"]["n"] == N
    other = run("transform", path, out, tmp_path / "u.csv", "--label-columns", "sky,sea")
    assert (other.exit_code, "made from another" in other.stderr) == (3, True)
    converted = run("transform", tmp_path / "t.zarr", out, tmp_path / "u.csv")
    assert (converted.exit_code, "made from another" in converted.stderr) == (3, True)
    looped = run("select", "rfs", path, *labels, "-k", "3", "-o", tmp_path / "rfs")
    assert re.search("passes decoded .*; `mlfs convert` takes the time of a few passes", looped.stderr)
    nothing = run("select", "elc", path, "-k", "3", "-o", tmp_path / "no")
    assert (nothing.exit_code, "--label-columns" in nothing.stderr) == (2, True)
    store = run("select", "elc", tmp_path / "t.zarr", *labels, "-k", "2", "-o", tmp_path / "no")
    assert (store.exit_code, "is a store, which defines its labels" in store.stderr) == (2, True)
    assert run("inspect", path, *labels, "--verify").exit_code == 2


@pytest.mark.cluster
def test_workers_open_files_themselves(
    tmp_path: Path, two_workers: Path, run_json: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlfs_dask.storage.file_rows.PARTITION_BYTES", PARTITION_BYTES)
    path = h5ad(tmp_path, "csr")
    alone = run_json("select", "elc", path, "-k", "3", "-o", tmp_path / "alone")
    words = ("--scheduler-file", two_workers, "--min-workers", "2")
    shared = run_json("select", "elc", path, "-k", "3", "-o", tmp_path / "shared", *words)
    assert shared["selected"] == alone["selected"]
    assert (shared["passes"], shared["peak_worker_bytes"] > 0) == (1, True)
    assert shared["peak_worker_bytes"] <= shared["plan"]["peak_worker_bytes"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of anndata and zarr while they write
def test_files_at_a_url(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    places = [h5ad(tmp_path, "csr"), zarr_of_others(tmp_path, "dense", 3), parquet(tmp_path)]
    with serve(tmp_path) as url:
        for place in places:
            labels = LabelSpec(columns=tuple(LABELS)) if place.suffix == ".parquet" else None
            here, there = (mlfs_dask.open_dataset(each, labels=labels) for each in (place, f"{url}/{place.name}"))
            assert there.rows.profile.remote
            found = ELC(3, unknown="negative").fit(there)
            assert found.scores_.tolist() == ELC(3, unknown="negative").fit(here).scores_.tolist()
            assert found.report_.store["path"] == f"{url}/{place.name}"


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("key", ["text", "number"])
def test_labels_in_a_table_of_their_own(run: Any, tmp_path: Path, form: str, key: str) -> None:
    rows = table()
    ids = [f"{row:04}" if key == "text" else str(7 * row) for row in range(len(rows))]
    data = rows.drop(columns=LABELS).assign(id=ids if key == "text" or form == "csv" else list(map(int, ids)))
    getattr(data, f"to_{form}")(tmp_path / f"x.{form}", index=False)
    known = rows[LABELS].set_axis(ids).sample(frac=0.9, random_state=0)
    known.to_csv(tmp_path / "labels.csv", index_label="name")
    said = ["--label-file", tmp_path / "labels.csv", "--label-key", "id"]
    done = run("convert", tmp_path / f"x.{form}", tmp_path / "t.zarr", *said)
    assert "40 of 400 rows are not in " in done.stderr
    assert "their labels are unknown" in done.stderr
    found = mlfs_dask.open_dataset(tmp_path / "t.zarr")
    assert (found.feature_names.tolist(), found.label_names.tolist()) == (NAMES, LABELS)
    Y = found.Y.compute()
    expected = known.reindex(ids).fillna(-1).to_numpy()
    np.testing.assert_array_equal(Y if isinstance(Y, np.ndarray) else Y.todense(), expected)
    run("convert", tmp_path / f"x.{form}", tmp_path / "one.zarr", *said, "--label-columns", LABELS[1])
    assert mlfs_dask.open_dataset(tmp_path / "one.zarr").label_names.tolist() == [LABELS[1]]
    if form == "csv":
        return
    run("select", "br-cc", tmp_path / f"x.{form}", "-k", 3, "-o", tmp_path / "run", *said, "--label-columns", LABELS[1])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["q"] == 1


def test_labels_in_a_table_row_by_row(run: Any, tmp_path: Path) -> None:
    rows = table()
    mmwrite(tmp_path / "x.mtx", sp.coo_array(rows[NAMES].to_numpy()))
    rows[LABELS].set_axis([f"row {row}" for row in range(len(rows))]).to_csv(tmp_path / "labels.csv")
    run("convert", tmp_path / "x.mtx", tmp_path / "t.zarr", "--label-file", tmp_path / "labels.csv")
    found = mlfs_dask.open_dataset(tmp_path / "t.zarr")
    assert found.label_names.tolist() == LABELS
    np.testing.assert_array_equal(found.label_counts[2], rows[LABELS].sum())


def test_keys_that_no_label_has_are_an_error(run: Any, tmp_path: Path) -> None:
    rows = table()
    rows.assign(id=range(len(rows))).drop(columns=LABELS).to_parquet(tmp_path / "x.parquet")
    (tmp_path / "labels.csv").write_text("id,y\na,1\nb,0\n")
    said = ["inspect", tmp_path / "x.parquet", "--label-file", tmp_path / "labels.csv"]
    failed = run(*said, "--label-key", "id")
    assert failed.exit_code == 3
    assert "column 'id', value '0': none of its keys is in the table of labels" in failed.stderr
    failed = run(*said)
    assert failed.exit_code == 2
    assert "--label-key NAME" in failed.stderr


def test_parts_of_a_file_whose_version_is_unknown_are_told_apart(tmp_path: Path) -> None:
    """As of a server that tells neither a tag nor a date."""
    whole = mlfs_dask.open_dataset(h5ad(tmp_path, "dense"))
    object.__setattr__(whole.rows, "digest", None)
    parts = [whole.subset(features=names) for names in (NAMES[:2], NAMES[2:4])]
    found = dask.compute(*(part.X for part in parts), scheduler="threads")
    X, _ = problem()
    np.testing.assert_array_equal(np.concatenate(found, axis=1), X[:, :4])
