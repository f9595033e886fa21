"""What released versions have left on users' disks is read for ever.

A state of a loop and statistics in a cache count for the code that made them alone; of another version they are left
aside with a sentence, and the result is the same. `released/README.md` says how the folders were made.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mlfs_dask as mlfs

RELEASED = Path(__file__).parent / "released"
VERSIONS = sorted(path.name for path in RELEASED.iterdir() if path.is_dir())

# The same conversions, and the number of rows that each store has.
CONVERT = {
    "dense": (60, ["dense.csv", "--label-columns", "sky,sea,sun"]),
    "sparse": (80, ["sparse.txt", "--format", "xmlc", "--storage", "sparse"]),
    "partly": (50, ["partly.csv", "--n-labels", "3"]),
}
METHODS = {
    "dense": ["chi2,br-cc,mrmr,elc,mico,relieff,laplacian,mfsir"],
    "sparse": ["enm,fisher,jmi,elc,spfs,smfs"],
    "partly": ["smfs,access-mfs,laplacian", "--missing", "mean", "--max-iter", "5"],
}


@pytest.fixture(params=VERSIONS)
def release(request, tmp_path, monkeypatch) -> Path:
    """A copy of a version's folder, which is the working folder."""
    place = tmp_path / request.param
    shutil.copytree(RELEASED / request.param, place)
    monkeypatch.chdir(place)
    return place


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rankings(folder: Path) -> dict[str, list[list[str]]]:
    """Rows of each ranking.csv in a folder."""
    texts = {path.parent.name: path.read_text() for path in folder.glob("*/ranking.csv")}
    return {name: list(csv.reader(text.splitlines())) for name, text in texts.items()}


@pytest.mark.parametrize("name", CONVERT)
def test_a_store_is_intact_and_ranks_as_one_converted_now(release, run, name):
    n_rows, words = CONVERT[name]
    told = json.loads(run("inspect", f"{name}.zarr", "--verify", "--json").stdout)
    run("convert", *words, "new.zarr")
    new = json.loads(run("inspect", "new.zarr", "--json").stdout)
    content = ["n", "d", "q", "nonzeros", "label_cardinality", "unknown_labels", "constant_features", "digest"]
    assert told["n"] == n_rows
    assert {key: told[key] for key in content} == {key: new[key] for key in content}

    before = files(release / f"{name}.zarr")
    for store in (f"{name}.zarr", "new.zarr"):
        run("select", METHODS[name][0], store, "-k", "3", "-o", f"runs.{store}", *METHODS[name][1:])
    assert rankings(release / f"runs.{name}.zarr") == rankings(release / "runs.new.zarr") != {}
    assert files(release / f"{name}.zarr") == before


def test_python_opens_a_store(release):
    dense, partly = pd.read_csv("dense.csv"), pd.read_csv("partly.csv")
    ds = mlfs.open_dataset("dense.zarr")
    assert list(ds.feature_names) == [*dense.columns[:7]]
    assert list(ds.label_names) == ["sky", "sea", "sun"]
    codes = np.unique(dense["colour"], return_inverse=True)[1]
    np.testing.assert_array_equal(ds.X.compute(), dense.assign(colour=codes).to_numpy(float)[:, :7])
    np.testing.assert_array_equal(ds.Y.compute(), dense.to_numpy()[:, 7:].astype(int))
    np.testing.assert_array_equal(mlfs.open_dataset("partly.zarr").X.compute(), partly.to_numpy()[:, :6])
    np.testing.assert_array_equal(mlfs.open_dataset("partly.zarr").Y.compute(), partly.to_numpy()[:, 6:])


def test_rows_are_appended_to_a_store(release, run):
    run("append", "dense.zarr", "more.csv", "--label-columns", "sky,sea,sun")
    run("inspect", "dense.zarr", "--verify")
    run("convert", "dense.csv", "more.csv", "new.zarr", *CONVERT["dense"][1][1:])
    assert mlfs.open_dataset("dense.zarr").shape == (67, 7)
    assert mlfs.open_dataset("dense.zarr").digest == mlfs.open_dataset("new.zarr").digest
    # The cache beside the store is that of the rows before.
    run("select", METHODS["dense"][0], "dense.zarr", "-k", "3", "-o", "runs", "--cache", "auto")
    run("select", METHODS["dense"][0], "new.zarr", "-k", "3", "-o", "new.runs")
    now, new = rankings(release / "runs"), rankings(release / "new.runs")
    assert {name: [row[:3] for row in rows] for name, rows in now.items()} == {
        name: [row[:3] for row in rows] for name, rows in new.items()
    }


def test_chosen_columns_are_written(release, run):
    run("transform", "dense.zarr", "dense.runs/chi2", "chosen.csv", "-k", "2")
    chosen = (release / "dense.runs/chi2/selected.txt").read_text().split("\n")[:2]
    written = pd.read_csv("chosen.csv")
    pd.testing.assert_frame_equal(
        written, pd.read_csv("dense.csv")[[c for c in pd.read_csv("dense.csv") if c in {*chosen, "sky", "sea", "sun"}]]
    )
    run("transform", "partly.zarr", "partly.smfs", "partly.chosen.zarr")
    assert mlfs.open_dataset("partly.chosen.zarr").shape == (50, 2)


def test_the_scores_are_those_of_the_release(release, run):
    run("select", "chi2,br-cc", "dense.zarr", "-k", "4", "--binning", "equal-width", "-o", "runs")
    before = rankings(release / "dense.runs")
    assert rankings(release / "runs") == {name: before[name] for name in ("chi2", "br-cc")}


def test_a_cache_changes_no_result(release, run):
    words = ["chi2,elc,br-cc,mrmr", "dense.zarr", "-k", "4", "--binning", "equal-width"]
    auto = ["chi2", "dense.zarr", "-k", "auto", "--fdr", "0.25", "--binning", "equal-width"]
    for cache in ("none", "dense.zarr.cache"):
        run("select", *words, "-o", f"{cache}.runs", "--cache", cache)
        run("select", *auto, "-o", f"{cache}.runs/auto", "--cache", cache)
    assert rankings(release / "dense.zarr.cache.runs") == rankings(release / "none.runs")
    assert len(rankings(release / "none.runs")) == 5


@pytest.mark.parametrize(
    "words",
    [["dense", "--graph", "exact"], ["sparse", "--graph", "anchors", "--n-anchors", "8", "--max-iter", "30"]],
    ids=lambda words: words[2],
)
def test_a_loop_is_resumed_or_begun_anew_and_that_is_said(release, run, words):
    name, *options = words
    options = ["mfsir", f"{name}.zarr", *options, "-k", "5"]
    assert (release / f".{name}.mfsir.checkpoint").is_dir()
    result = run("select", *options, "-o", f"{name}.mfsir", "--resume", "-v")
    assert ("going on from a checkpoint" in result.stderr) != ("it is left aside" in result.stderr)
    assert not (release / f".{name}.mfsir.checkpoint").exists()
    run("select", *options, "-o", "fresh")
    assert files(release / f"{name}.mfsir")["ranking.csv"] == files(release / "fresh")["ranking.csv"]


def test_a_batch_is_resumed(release, run):
    done = len(list((release / "interrupted.batch/jobs").iterdir()))
    run("batch", "plan.yaml", "-o", "interrupted.batch", "--resume")
    jobs = pd.read_csv("interrupted.batch/jobs.csv")
    assert done < len(jobs) == 18
    assert set(jobs["state"]) == {"done"}
    for table in ("results.csv", "selections.csv"):
        now, before = (pd.read_csv(release / f"{batch}.batch" / table) for batch in ("interrupted", "finished"))
        pd.testing.assert_frame_equal(now, before, rtol=1e-9)


def test_evaluations_are_compared_and_reported(release, run):
    run("compare", "dense.eval", "sparse.eval", "-o", "both.cmp")
    means = pd.read_csv("both.cmp/means.csv")
    results = pd.concat([pd.read_csv(f"{name}.eval/results.csv") for name in ("dense", "sparse")])
    expected = results.groupby(["dataset", "run"])["value"].mean()
    assert len(means) == len(expected) == 8
    for row in means.itertuples():
        assert row.mean == pytest.approx(expected[row.dataset, row.run])

    run(
        "report",
        "dense.auto",
        "partly.smfs",
        "dense.eval",
        "finished.batch/jobs/sparse.elc-lambda=0.1.k3",
        "-o",
        "page.html",
    )
    page = (release / "page.html").read_text()
    assert all(word in page for word in ("colour", "br-cc", "sparse", "smfs", "lambda"))


def test_a_run_and_an_evaluation_are_judged_again(release, run):
    words = ["--folds", "3", "--k-grid", "2,4", "--metrics", "average_precision"]
    run("evaluate", "dense.zarr", "dense.eval", *words, "-o", "again.eval")
    before, now = pd.read_csv("dense.eval/results.csv"), pd.read_csv("again.eval/results.csv")
    keys = ["run", "k", "fold"]
    before, now = (table.set_index(keys)["value"].sort_index() for table in (before, now))
    pd.testing.assert_series_equal(now, before[now.index], rtol=1e-9)
    run("evaluate", "dense.zarr", "dense.runs/chi2", *words, "-o", "run.eval")
    assert set(pd.read_csv("run.eval/results.csv")["k"]) == {2, 4}
