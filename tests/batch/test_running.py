"""Batches: shared passes are counted, failures are left behind, and what is done is never done again."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import mlfs_dask as mlfs
from mlfs_dask import runtime
from mlfs_dask.batch.running import Batch, BatchFailedError
from mlfs_dask.batch.spec import read_spec
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine import cache as caching
from mlfs_dask.errors import ClusterLostError, DataError, UsageError
from mlfs_dask.evaluation.results import read_eval
from mlfs_dask.selection import sharing
from mlfs_dask.selection.runs import read_run
from mlfs_dask.storage.convert import convert_reader
from tests.storage.memory_reader import make_reader

pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    rng = np.random.default_rng(0)
    Y = (rng.random((80, 4)) < 0.4).astype(np.int8)
    X = rng.normal(size=(80, 8))
    X[:, :4] += Y
    folder = tmp_path_factory.mktemp("stores")
    reader = make_reader(X, Y)
    convert_reader(lambda: reader, folder / "a.zarr", workers=1)
    return folder / "a.zarr"


@pytest.fixture
def store(original, tmp_path):
    """A store of its own for every test: its cache is beside it."""
    return shutil.copytree(original, tmp_path / "a.zarr")


ONE_PASS = [
    "enm",
    "gmm",
    {"method": "label-entropy", "params": {"n_promising_labels": [0.25, 1.0]}},
    {"method": "elc", "params": {"lambda": [0.1, 0.3]}},
]


def test_one_reading_serves_all_counts_and_products(store, tmp_path):
    plan = {"stores": store, "methods": ONE_PASS, "k": [2, 3]}
    passes = []
    with runtime.progress_to(lambda event: passes.append(event) if event["kind"] == "pass" else None):
        found = mlfs.run_batch(plan, tmp_path / "out")
    assert [event["label"] for event in passes] == ["shared"]
    jobs = found.jobs
    assert (jobs["state"] == "done").all()
    assert jobs["passes"].tolist() == [1] + [0] * 12
    assert jobs["kind"].tolist() == ["shared"] + ["select"] * 12
    assert jobs["from_cache"].tolist()[1:] == ["counts"] * 8 + ["products"] * 4
    alone = mlfs.ELC(3, lambda_=0.3).fit(mlfs.open_dataset(store))
    kept = found.selections[found.selections["job"] == "a.elc-lambda=0.3.k3"]
    assert kept["feature_index"].tolist() == alone.ranking_[:3].tolist()
    assert kept["score"].tolist() == alone.scores_[alone.ranking_[:3]].tolist()


def test_alone_or_without_a_cache_every_job_reads(store, tmp_path):
    found = mlfs.run_batch({"stores": store, "methods": ["enm", "gmm"], "k": 2}, tmp_path / "out", cache=None)
    assert found.jobs["passes"].tolist() == [1, 1]
    assert not (tmp_path / "a.zarr.cache").exists()
    found = mlfs.run_batch({"stores": store, "methods": "enm", "k": 2}, tmp_path / "alone")
    assert (found.jobs["kind"].tolist(), found.jobs["passes"].tolist()) == (["select"], [1])


def test_methods_with_a_loop_share_their_first_reading(store):
    loop = {"max_iter": 3, "tol": 0, "graph": "anchors"}
    methods = [
        {"method": "mfsir", "params": {"alpha": [1, 2], **loop}},
        {"method": "smfs", "params": loop},
        {"method": "access-mfs", "params": loop},
    ]
    plan = {"stores": store, "methods": methods, "k": 2}
    found, alone = mlfs.run_batch(plan), mlfs.run_batch(plan, cache=None)
    assert found.jobs["kind"].tolist() == ["shared"] + ["select"] * 4
    assert found.jobs["from_cache"].tolist()[1:] == [
        *["moments, labels, rows, gram"] * 2,
        "moments, labels, rows",
        "products, labels, rows, gram",
    ]
    # mFSIR reads for its start and every iteration, SMFS twice before them.
    assert found.jobs["passes"].tolist() == [1, 4, 4, 5, 3]
    assert alone.jobs["passes"].tolist() == [5, 5, 6, 4]
    assert found.selections.to_csv() == alone.selections.to_csv()


def test_another_number_of_features_takes_the_ranking_of_a_loop(store, tmp_path):
    plan = {
        "stores": store,
        "methods": [{"method": "mfsir", "name": "mfsir", "params": {"max_iter": 3}}, "elc"],
        "k": [2, 3, 0.5],
    }
    projected = Batch(read_spec(plan), "out").project(current_resources())
    assert [job.passes > 0 for job in projected.jobs[:3]] == [True, False, False]
    found = mlfs.run_batch(plan, tmp_path / "out", cache=None)
    assert [p > 0 for p in found.jobs["passes"]] == [True, False, False, True, True, True]  # ELC's choice depends on k
    assert found.jobs["from_cache"][1:3].tolist() == ["ranking of a.mfsir.k2"] * 2
    runs = [read_run(str(tmp_path / "out/jobs" / name)) for name in ("a.mfsir.k2", "a.mfsir.k3", "a.mfsir.k0.5")]
    assert [(run.k, run.record["params"]["n_features_to_select"]) for run in runs] == [(2, 2), (3, 3), (4, 0.5)]
    alone = mlfs.MFSIR(3, max_iter=3).fit(mlfs.open_dataset(store))
    for run in runs:
        assert run.ranking.tolist() == alone.ranking_.tolist()
        assert run.scores.tolist() == alone.scores_[alone.ranking_].tolist()
        assert run.feature_names == runs[0].feature_names
    assert (tmp_path / "out/jobs/a.mfsir.k3/selected.txt").read_text().splitlines() == runs[0].feature_names[:3]
    again = Batch(read_spec(plan), tmp_path / "out", resume=True)
    assert again.project(current_resources()).done == 6
    shutil.rmtree(tmp_path / "out/jobs/a.mfsir.k2")
    (job,) = again.project(current_resources()).jobs
    assert (job.job, job.passes) == ("a.mfsir.k2", 0)
    assert mlfs.run_batch(plan, tmp_path / "out", cache=None, resume=True).jobs["passes"][0] == 0


def test_two_batches_in_one_folder_do_not_meet(store, tmp_path):
    plan = read_spec({"stores": store, "methods": "enm", "k": 2})

    def meet(job, state):
        for options in ({"resume": True}, {"force": True}):
            with pytest.raises(UsageError, match="another process runs a batch in this folder"):
                Batch(plan, tmp_path / "out", **options).run()

    Batch(plan, tmp_path / "out").run(meet)
    again = Batch(plan, tmp_path / "out", resume=True)
    again.run()
    assert again.result().jobs["state"].tolist() == ["done"]
    Batch(plan, tmp_path / "out", force=True).run()


def test_a_batch_that_was_finished_meanwhile_is_not_replaced_without_force(store, tmp_path):
    plan = read_spec({"stores": store, "methods": "enm", "k": 2})
    late = Batch(plan, tmp_path / "out")
    mlfs.run_batch({"stores": store, "methods": "gmm", "k": 3}, tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="out holds a batch already"):
        late.run()
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "out/jobs/a.gmm.k3/run.json").exists()
    mlfs.run_batch({"stores": store, "methods": "enm", "k": 2}, tmp_path / "out", force=True)
    assert [path.name for path in (tmp_path / "out/jobs").iterdir()] == ["a.enm.k2"]
    assert sorted(tmp_path.iterdir()) == [store, tmp_path / "a.zarr.cache", tmp_path / "out"]


def test_force_replaces_the_batch_behind_a_symbolic_link_and_the_link_stays(store, tmp_path):
    mlfs.run_batch({"stores": store, "methods": "gmm", "k": 3}, tmp_path / "first")
    (tmp_path / "latest").symlink_to("first")
    mlfs.run_batch({"stores": store, "methods": "enm", "k": 2}, tmp_path / "latest", force=True)
    assert (tmp_path / "latest").is_symlink()
    assert [path.name for path in (tmp_path / "first/jobs").iterdir()] == ["a.enm.k2"]


def test_the_plan_says_what_runs(store, tmp_path):
    evaluation = {"folds": 2, "k_grid": 2, "subjects": ["random", "all"], "metrics": "hamming_loss"}
    plan = read_spec({"stores": store, "methods": ONE_PASS, "k": [2, 3], "evaluation": evaluation})
    with caching.cache():
        batch = Batch(plan, tmp_path / "out")
        projected = batch.project(current_resources())
        jobs = {job.job: job for job in projected.jobs}
        assert jobs["a.shared"].passes == 1
        assert all(jobs[job.name].passes == 0 for job in plan.jobs if job.kind == "select")
        assert jobs["a.evaluation.enm"].passes == 2
        assert jobs["a.evaluation.random"].passes == 0
        assert all(job.peak_driver_bytes > 0 for job in projected.jobs)
        assert not (tmp_path / "out").exists()
        batch.run()
        table = batch.result().jobs.set_index("job")
        taken = table["passes"].fillna(0).astype(int)
        assert {name: job.passes for name, job in jobs.items()} == taken.to_dict()
        rest = Batch(plan, tmp_path / "out", resume=True).project(current_resources())
    assert (rest.jobs, rest.done) == ([], len(plan.jobs))


def test_tables_and_folders_hold_the_same(store, tmp_path):
    evaluation = {"folds": 2, "k_grid": "1,2", "seeds": [0, 1], "metrics": ["hamming_loss", "one_error"]}
    plan = {"stores": store, "methods": ["enm", "elc"], "k": 2, "evaluation": evaluation}
    found = mlfs.run_batch(plan, tmp_path / "out")
    out = tmp_path / "out"
    for name, frame in (("results", found.results), ("selections", found.selections)):
        read = pd.read_parquet(out / f"{name}.parquet")
        assert read.to_csv() == frame.to_csv()
        assert pd.read_csv(out / f"{name}.csv").shape == frame.shape
    assert len(found.results) == 2 * 2 * 2 * 2 * 2  # methods, seeds, folds, k, metrics
    assert found.results.groupby(["job", "evaluation", "seed"]).ngroups == 4
    one = read_eval(out / "jobs/a.evaluation.elc.s1")
    own = found.results[found.results["job"] == "a.evaluation.elc.s1"]
    assert own["value"].tolist() == one.results["value"].tolist()
    assert one.record["splits"]["seed"] == 1
    assert read_run(str(out / "jobs/a.enm.k2")).record["method"] == "enm"
    record = json.loads((out / "batch.json").read_text())
    assert (record["kind"], record["state"], len(record["jobs"])) == ("batch", "done", 6)
    assert sorted(path.name for path in out.iterdir()) == [
        "batch.json", "jobs", "jobs.csv", "results.csv", "results.parquet", "selections.csv", "selections.parquet"
    ]  # fmt: skip


def test_seeds_reach_the_methods_that_draw(store):
    methods = [{"method": "enm", "params": {"missing": "median"}}, "elc"]
    found = mlfs.run_batch({"stores": store, "methods": methods, "k": 2, "seeds": [1, 2]})
    selections = found.jobs[found.jobs["kind"] == "select"]
    assert selections["seed"].fillna(-1).tolist() == [1, 2, -1]


# ---------------------------------------------------------------- failures


def test_faults_of_different_kinds_have_the_code_of_none(store, tmp_path, monkeypatch):
    def fail(self, readings):
        raise DataError("bad") if self.method == "enm" else RuntimeError("a fault of ours")

    for selector in (mlfs.ENM, mlfs.ELC):
        monkeypatch.setattr(selector.plain, "score", fail)
    batch = Batch(read_spec({"stores": store, "methods": ["enm", "elc"], "k": 2}), tmp_path / "out")
    batch.run()
    assert batch.result().jobs["error"].tolist() == ["bad", "RuntimeError: a fault of ours"]
    with pytest.raises(BatchFailedError) as caught:
        batch.require_success()
    assert caught.value.exit_code == 1


def test_a_lost_cluster_ends_the_batch_and_what_was_done_is_there(store, tmp_path, monkeypatch):
    def lose(self, readings):
        raise ClusterLostError("gone")

    monkeypatch.setattr(mlfs.ELC.plain, "score", lose)
    plan = {"stores": store, "methods": ["enm", "elc", "gmm"], "k": 2}
    with pytest.raises(ClusterLostError):
        mlfs.run_batch(plan, tmp_path / "out")
    table = pd.read_csv(tmp_path / "out/jobs.csv").set_index("job")
    assert table["state"].to_dict() == {
        "a.shared": "done",
        "a.enm.k2": "done",
        "a.elc.k2": "missing",
        "a.gmm.k2": "missing",
    }
    assert len(pd.read_csv(tmp_path / "out/selections.csv")) == 2
    assert json.loads((tmp_path / "out/batch.json").read_text())["state"] == "unfinished"


def test_a_store_that_is_not_there_is_told_before_anything_runs(store, tmp_path):
    plan = {"stores": [store, tmp_path / "no.zarr"], "methods": "enm", "k": 2}
    with pytest.raises(DataError, match=r"no\.zarr"):
        mlfs.run_batch(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- going on


def test_resume_runs_what_is_missing_and_nothing_else(store, tmp_path, monkeypatch):
    plan = {"stores": store, "methods": ["enm", "elc"], "k": 2, "evaluation": {"folds": 2, "k_grid": 2}}
    expected = mlfs.run_batch(plan, tmp_path / "whole")
    mlfs.run_batch(plan, tmp_path / "out")
    shutil.rmtree(tmp_path / "out/jobs/a.elc.k2")
    shutil.rmtree(tmp_path / "out/jobs/a.evaluation.enm")
    (tmp_path / "out/jobs/a.enm.k2/ranking.csv").write_text("damaged")
    ran = []
    inner = Batch._run_job
    monkeypatch.setattr(Batch, "_run_job", lambda self, job: ran.append(job.name) or inner(self, job))
    found = mlfs.run_batch(plan, tmp_path / "out", resume=True)
    assert ran == ["a.enm.k2", "a.elc.k2", "a.evaluation.enm"]
    assert found.selections.to_csv() == expected.selections.to_csv()
    assert found.results.to_csv() == expected.results.to_csv()
    assert (found.jobs["state"] == "done").all()


def test_another_plan_or_store_is_not_taken_for_done(store, tmp_path):
    plan = {"stores": store, "methods": "enm", "k": 2}
    mlfs.run_batch(plan, tmp_path / "out")
    ran = []

    def go_on(plan):
        batch = Batch(read_spec(plan), tmp_path / "out", resume=True)
        batch.run(lambda job, state: ran.append((job, state)))

    go_on(plan)
    go_on(plan | {"k": [2, 3]})
    shutil.rmtree(store)
    reader = make_reader(np.random.default_rng(5).normal(size=(20, 8)), np.eye(20, 4, dtype=np.int8))
    convert_reader(lambda: reader, store, workers=1)
    go_on(plan)
    assert ran == [
        ("a.enm.k2", "done already"),
        ("a.enm.k2", "done already"),
        ("a.enm.k3", "done"),
        ("a.enm.k2", "done"),
    ]


def test_shared_readings_that_do_not_fit_together_are_fewer(store, tmp_path, monkeypatch):
    from mlfs_dask.errors import DoesNotFitError

    inner = sharing.plan_statistics

    def plan_one(source, statistics, resources):
        if len(statistics) > 1:
            raise DoesNotFitError("two", projected=2, available=1, cure="one")
        return inner(source, statistics, resources)

    monkeypatch.setattr(sharing, "plan_statistics", plan_one)
    found = mlfs.run_batch({"stores": store, "methods": ["enm", "gmm", "elc"], "k": 2}, tmp_path / "out")
    assert found.jobs["passes"].sum() == 2
    assert found.jobs["state"].eq("done").all()
