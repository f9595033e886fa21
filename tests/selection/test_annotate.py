"""A run's mask, scores and ranks in `var` of AnnData; the rest of the file as it was."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.files.publish import locked
from mlfs_dask.selection import annotate as module
from mlfs_dask.selection.annotate import annotate
from mlfs_dask.selection.runs import write_run
from mlfs_dask_cli.main import mlfs as mlfs_command
from tests.problems import write_zarr
from tests.storage.stores import make_store

NAMES = ["gene a", "b", "c", "d/e"]
RANKING = np.array([3, 1, 0, 2])
SCORES = np.array([0.25, 0.5, -1.0, 2.0])


def cells(**more):
    generator = np.random.default_rng(0)
    return anndata.AnnData(
        sp.random(7, 4, 0.5, format="csr", random_state=0),
        obs=pd.DataFrame({"kind": pd.Categorical(list("aabbaab"))}, index=[f"cell{i}" for i in range(7)]),
        var=pd.DataFrame({"length": [1.0, 2.0, 3.0, 4.0], **more}, index=NAMES),
        obsm={"labels": generator.integers(0, 2, (7, 2))},
        uns={"note": "kept"},
    )


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", NAMES, RANKING, SCORES)


def make_run(path, names, ranking, scores):
    record = {"method": "elc", "k": 2, "d": len(names), "store": {"path": "s.zarr", "digest": "x"}}
    write_run(str(path), ranking=ranking, scores=scores, feature_names=names, record=record)
    return str(path)


def save(folder, kind, data):
    suffix, _, version = kind.partition(" ")
    path = folder / f"cells.{suffix}"
    if suffix == "h5ad":
        data.write_h5ad(path)
    else:
        write_zarr(data, path, int(version))
    return path


def load(path):
    return anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)


def content(path):
    """Digest of each file of a folder, or of a file."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def refused(path, run, error, match, **given):
    """What is said of a file that stays as it was."""
    before = content(Path(path))
    with pytest.raises(error, match=match) as caught:
        annotate(str(path), run, **given)
    assert content(Path(path)) == before
    return str(caught.value)


KINDS = pytest.mark.parametrize("kind", ["h5ad", "zarr 2", "zarr 3"])


@KINDS
def test_mask_score_and_rank(tmp_path, run, kind):
    path = save(tmp_path, kind, cells())
    written = annotate(str(path), run)
    assert written == module.Annotation(str(path), ["mlfs_elc_mask", "mlfs_elc_score", "mlfs_elc_rank"], 2, 4, 0)
    after, before = load(path), cells()
    assert after.var["mlfs_elc_mask"].tolist() == [False, True, False, True]
    assert after.var["mlfs_elc_mask"].dtype == bool
    assert after.var["mlfs_elc_score"].tolist() == SCORES.tolist()
    assert after.var["mlfs_elc_rank"].tolist() == [3, 2, 4, 1]
    assert after.var["mlfs_elc_rank"].dtype == np.int64
    assert after.uns["mlfs_elc"] == {"method": "elc", "d": 4, "k": 2, "mlfs_dask": mlfs.__version__, "params": {}}
    assert after.var.mlfs_elc_rank.tolist() == [3, 2, 4, 1]
    del after.uns["mlfs_elc"], after.var["mlfs_elc_mask"], after.var["mlfs_elc_score"], after.var["mlfs_elc_rank"]
    pd.testing.assert_frame_equal(after.var, before.var)
    pd.testing.assert_frame_equal(after.obs, before.obs)
    np.testing.assert_array_equal(after.X.toarray(), before.X.toarray())
    np.testing.assert_array_equal(after.obsm["labels"], before.obsm["labels"])
    assert after.uns == before.uns
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    annotate(str(path), run, name="best", k=0.25)
    var = load(path).var
    assert list(var) == [
        "length",
        "mlfs_elc_mask",
        "mlfs_elc_score",
        "mlfs_elc_rank",
        "best_mask",
        "best_score",
        "best_rank",
    ]
    assert var["best_mask"].tolist() == [False, False, False, True]


@KINDS
def test_columns_are_replaced_with_force_alone(tmp_path, run, kind):
    path = save(tmp_path, kind, cells(mlfs_elc_score=[9.0, 9.0, 9.0, 9.0]))
    refused(path, run, UsageError, "var has an entry 'mlfs_elc_score' already\n  cure: --force replaces it")
    annotate(str(path), run, force=True)
    var = load(path).var
    assert list(var) == ["length", "mlfs_elc_mask", "mlfs_elc_score", "mlfs_elc_rank"]
    assert var["mlfs_elc_score"].tolist() == SCORES.tolist()


@KINDS
def test_features_that_were_left_out(tmp_path, kind):
    run = make_run(tmp_path / "run", ["d/e", "b"], np.array([1, 0]), np.array([0.5, 1.5]))
    path = save(tmp_path, kind, cells())
    assert annotate(str(path), run, k=1).not_ranked == 2
    var = load(path).var
    assert var["mlfs_elc_mask"].tolist() == [False, True, False, False]
    np.testing.assert_array_equal(var["mlfs_elc_rank"], [np.nan, 1, np.nan, 2])
    np.testing.assert_array_equal(var["mlfs_elc_score"], [np.nan, 1.5, np.nan, 0.5])


@KINDS
def test_another_file_is_refused(tmp_path, kind):
    run = make_run(tmp_path / "run", ["b", "y", "z"], np.array([1, 0, 2]), np.ones(3))
    path = save(tmp_path, kind, cells())
    told = refused(path, run, DataError, "value 'y': 2 of the 3 features that the run ranks are not in var")
    assert "annotate the file that the run's store was converted from" in told
    assert sorted(file.name for file in tmp_path.iterdir()) == [path.name, "run"]


def test_names_that_are_not_unique_and_an_index_that_would_be_replaced(tmp_path, run):
    data = cells()
    data.var.index.name = "mlfs_elc_mask"
    path = save(tmp_path, "h5ad", data)
    told = "the index of var, which names the features, is called 'mlfs_elc_mask'\n  cure: "
    refused(path, run, UsageError, told, force=True)
    annotate(str(path), run, name="best")
    with h5py.File(path, "r+") as file:
        index = file["var"].attrs["_index"]
        del file["var"][index]
        file["var"][index] = [*NAMES, "b"]
    refused(path, run, DataError, "column 'b': two features have the same name", name="other")


def test_a_full_disk_leaves_the_file_as_it_was(small_disk, tmp_path):
    """Wherever in the copy the room ends: HDF5 passes over what it cannot write when a data set is let go of."""
    names = [f"g{i}" for i in range(3000)]
    run = make_run(tmp_path / "run", names, np.arange(3000), np.linspace(1, 0, 3000))
    disk = small_disk("2m")
    path = disk / "cells.h5ad"
    anndata.AnnData(np.ones((2, 3000)), var=pd.DataFrame(index=names)).write_h5ad(path)
    before = content(path)
    needed = 3000 * (1 + 8 + 8)
    refused = 0
    for room in range(0, needed + 40_000, 8192):
        free = shutil.disk_usage(disk).free
        (disk / "other").write_bytes(bytes(free - path.stat().st_size - room))
        with contextlib.suppress(DoesNotFitError):
            annotate(str(path), run)
            assert load(path).var["mlfs_elc_rank"].tolist() == list(range(1, 3001))
            break
        refused += 1
        with pytest.raises(DoesNotFitError, match="it cannot be written: No space left on device") as caught:
            annotate(str(path), run)
        assert caught.value.projected > caught.value.available > 0
        assert content(path) == before
        (disk / "other").unlink()
        assert [file.name for file in disk.iterdir()] == ["cells.h5ad"]
    assert needed // 8192 <= refused <= (needed + 40_000) // 8192


def test_a_link_stays_a_link(tmp_path, run):
    (tmp_path / "data").mkdir()
    path = save(tmp_path / "data", "h5ad", cells())
    path.chmod(0o640)
    (tmp_path / "link.h5ad").symlink_to(path)
    annotate(str(tmp_path / "link.h5ad"), run)
    assert (tmp_path / "link.h5ad").is_symlink()
    assert "mlfs_elc_rank" in load(path).var
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("kind", ["h5ad", "zarr 2"])
def test_two_at_once(tmp_path, run, kind):
    """The second would read the file without the columns of the first, and put it in its place."""
    path = save(tmp_path, kind, cells())
    with locked(path if path.is_dir() else tmp_path, "taken"), pytest.raises(UsageError, match="another process annot"):
        annotate(str(path), run)
    annotate(str(path), run)


def test_what_is_no_anndata(tmp_path, run):
    (tmp_path / "text.h5ad").write_text("x")
    with h5py.File(tmp_path / "other.h5ad", "w") as file:
        file["X"] = [1]
    (tmp_path / "folder").mkdir()
    store = make_store(tmp_path / "t.zarr", np.ones((3, 2)), np.ones((3, 1)))
    for path, error, told in (
        (tmp_path / "absent.h5ad", DataError, "there is no such file"),
        (tmp_path / "text.h5ad", DataError, "it is no HDF5 file, or damaged"),
        (tmp_path / "other.h5ad", DataError, "it has no data frame var as AnnData writes it"),
        (tmp_path / "folder", DataError, "there is no Zarr group"),
        (store, UsageError, "is a store, which never changes"),
        ("s3://bucket/a.h5ad", UsageError, "only local files are annotated"),
    ):
        refused(path, run, error, told)


def run_cli(*arguments):
    """Run a command in this process."""
    outcome = CliRunner().invoke(mlfs_command, [str(each) for each in arguments])
    assert outcome.exit_code == 0, outcome.output


def fitted(data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there are few rows
        return mlfs.BRCC(2, pairs="all", **options).fit(data, "kind")


@KINDS
def test_pairs_best_labels_and_parameters(tmp_path, kind):
    """A file, and AnnData in memory, get the same entries, from a folder and from a fitted selector."""
    data = cells()
    data.obs["kind"] = pd.Categorical(["a/b", "c", "d", "a/b", "c", "d", "d"])
    path = save(tmp_path, kind, data)
    selector = fitted(data)
    run = str(tmp_path / "run")
    run_cli("select", "br-cc", path, "--label-columns", "kind", "-k", "2", "--pairs", "all", "-o", run, "--quiet")
    written = annotate(str(path), run, highly_variable=True)
    assert written.tables == ["mlfs_br_cc_effect", "mlfs_br_cc_q_value"]
    of_file, in_memory = load(path), data.copy()
    assert annotate(in_memory, selector, highly_variable=True).columns == written.columns
    with pytest.raises(UsageError, match="var has an entry 'mlfs_br_cc_mask' already"):
        annotate(in_memory, selector)
    annotate(in_memory, run, highly_variable=True, force=True)
    ranking = selector.ranking_frame().set_index("feature_name").loc[NAMES]
    pairs = selector.pairs_.pivot(index="feature", columns="label").loc[NAMES]
    for found in (of_file, in_memory):
        var = found.var.drop(columns="length").rename(columns=lambda name: name.removeprefix("mlfs_br_cc_"))
        for column in ("score", "rank", "significant_labels", "best_label"):
            assert var[column].tolist() == ranking[column].tolist(), column
        np.testing.assert_array_equal(var["mask"], selector.support_)
        np.testing.assert_array_equal(var["highly_variable"], selector.support_)
        np.testing.assert_array_equal(var["highly_variable_rank"], np.where(var["mask"], var["rank"] - 1.0, np.nan))
        for column in ("effect", "q_value"):
            table = found.varm[f"mlfs_br_cc_{column}"]
            assert list(table) == ["kind=a_b", "kind=c", "kind=d"]
            np.testing.assert_array_equal(table.to_numpy(), pairs[column].to_numpy())
        assert found.uns["mlfs_br_cc"]["params"]["pairs"] == "all"
        assert found.uns["mlfs_br_cc"]["k"] == 2
    # The file is data again.
    run_cli("select", "br-cc", path, "--label-columns", "kind", "-k", "2", "-o", str(tmp_path / "again"), "--quiet")


def test_scanpy_takes_the_choice(tmp_path):
    """Principal components are those of the chosen genes, as of any highly variable ones."""
    import scanpy  # takes seconds, which the other tests are spared

    data = cells()
    selector = fitted(data)
    annotate(data, selector, highly_variable=True)
    scanpy.pp.pca(data, n_comps=1)
    assert (data.varm["PCs"].any(axis=1) == selector.support_).all()


@KINDS
def test_names_of_another_column(tmp_path, kind):
    """What was read by `--key names=`, is annotated in the same way: a file by itself, a store's file when told."""
    path = str(save(tmp_path, kind, cells(symbol=["A", "B", "C", "D"])))
    symbols = ("--key", "names=symbol")
    run_cli("select", "br-cc", path, *symbols, "-k", "2", "-o", str(tmp_path / "of_file"), "--quiet")
    run_cli("convert", path, str(tmp_path / "s.zarr"), *symbols, "--quiet")
    run_cli("select", "br-cc", str(tmp_path / "s.zarr"), "-k", "2", "-o", str(tmp_path / "of_store"), "--quiet")
    run_cli("annotate", path, str(tmp_path / "of_file"), "--quiet")
    refused(path, str(tmp_path / "of_store"), DataError, "are not in var", name="again")
    run_cli("annotate", path, str(tmp_path / "of_store"), *symbols, "--name", "again", "--quiet")
    var = load(Path(path)).var
    assert var["mlfs_br_cc_rank"].tolist() == var["again_rank"].tolist()
    data = cells(symbol=["A", "B", "C", "D"])
    annotate(data, str(tmp_path / "of_file"))
    assert data.var["mlfs_br_cc_rank"].tolist() == var["again_rank"].tolist()


def test_a_selector_of_numbered_columns():
    data = cells()
    selector = mlfs.BRCC(2).fit(data.X, data.obsm["labels"])
    annotate(data, selector)
    np.testing.assert_array_equal(data.var["mlfs_br_cc_rank"], selector.ranks_)
    with pytest.raises(UsageError, match="must not contain a slash"):
        annotate(data, selector, name="a/b")
