"""`mlfs batch` end to end, killed and interrupted among it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.cli.conftest import Run
from tests.storage.damage import flip

PLAN = """\
stores: tiny.zarr
methods:
  - enm
  - gmm
  - method: elc
    params: {lambda: [0.05, 0.1]}
k: [2, 3]
evaluation: {folds: 2, k_grid: "2,3", metrics: [hamming_loss], subjects: random}
"""


@pytest.fixture
def plan(tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLFS_CACHE", "auto")
    shutil.copytree(tiny_store, tmp_path / "tiny.zarr")
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path / "plan.yaml"


def test_a_dry_run_says_what_would_run_and_runs_nothing(run: Run, run_json: Any, plan: Path) -> None:
    found = run_json("batch", plan, "--dry-run", "--in-process")
    assert found["jobs"][0]["job"] == "tiny.shared"
    assert len(found["jobs"]) == 1 + 8 + 5
    assert sum(job["passes"] for job in found["jobs"][:9]) == 1
    assert found["passes"] == 1 + 2 * 2 + 2 * 2 * 2  # enm and gmm; ELC twice for either k
    shown = run("batch", plan, "--dry-run", "--in-process").stdout
    assert "tiny.shared" in shown
    assert "13 to run; at most 13 passes" in shown
    assert found["jobs"][0]["seconds"] > 0
    assert [job["seconds"] is None for job in found["jobs"]] == [False] * 9 + [True] * 5  # evaluations
    assert sorted(path.name for path in plan.parent.iterdir()) == ["plan.yaml", "tiny.zarr"]


def test_a_dry_run_goes_on_behind_a_damaged_store(run: Run, plan: Path) -> None:
    shutil.copytree(plan.parent / "tiny.zarr", plan.parent / "bad.zarr")
    flip(plan.parent / "bad.zarr", "X")
    plan.write_text(PLAN.replace("tiny.zarr", "[bad.zarr, tiny.zarr]"))
    shown = run("batch", plan, "--dry-run", "--in-process")
    assert shown.exit_code == 3
    assert re.search(r"bad\.shared .* will fail: .*bad\.zarr", shown.output)
    assert re.search(r"tiny\.shared +1  ", shown.output)


def test_a_dry_run_of_loops_says_what_is_typical(run: Run, run_json: Any, plan: Path) -> None:
    plan.write_text(
        "stores: tiny.zarr\nmethods: [enm, {method: mfsir, name: mfsir, params: {graph: anchors}}]\nk: 2\n"
        "evaluation: {folds: 3, k_grid: '2'}\n"
    )
    found = run_json("batch", plan, "--dry-run", "--in-process")
    jobs = {job["job"]: job for job in found["jobs"]}
    alone = run_json("plan", "mfsir", plan.parent / "tiny.zarr", "--in-process", "--graph", "anchors")
    for name in ("passes", "bytes_read"):
        few, many = alone[f"typical_{name}"]
        first = alone[name] // alone["passes"]  # its first reading is shared with enm
        assert jobs["tiny.shared"][name] == first
        assert jobs["tiny.mfsir.k2"][f"typical_{name}"] == [few - first, many - first]
        assert jobs["tiny.evaluation.mfsir"][f"typical_{name}"] == [3 * few, 3 * many]
        assert jobs["tiny.enm.k2"][f"typical_{name}"] is None
        others = sum(job[name] for job in jobs.values() if "enm" in job["job"])
        assert found[f"typical_{name}"] == [others + 4 * few, others + 4 * many]
        assert found[name] == others + 4 * alone[name]
    few, many = jobs["tiny.mfsir.k2"]["typical_passes"]
    shown = run("batch", plan, "--dry-run", "--in-process").stdout
    assert re.search(rf"tiny\.mfsir\.k2 +{few} to {many}  ", shown)
    few, many = found["typical_passes"]
    assert f"4 to run; typically {few} to {many} passes, " in shown
    assert f"; at most {found['passes']} passes, " in shown


def test_without_a_folder_it_is_named_after_the_plan(
    run_json: Any, run: Run, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan.write_text("stores: tiny.zarr\nmethods: enm\nk: 2\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run_json("batch", plan, "--in-process")["batch"] == "plan.batch"
    assert (tmp_path / "elsewhere/plan.batch/selections.csv").exists()
    assert run("batch", plan, "--in-process").exit_code == 2
    assert run("batch", plan, "--in-process", "--force").exit_code == 0
    assert "1 done already" in run("batch", plan, "--dry-run", "--in-process", "--resume").stdout


def test_a_batch_leaves_jobs_and_tables(run_json: Any, run: Run, plan: Path) -> None:
    out = plan.parent / "out"
    found = run_json("batch", plan, "-o", out, "--in-process")
    assert [job["state"] for job in found["jobs"]] == ["done"] * 14
    selections = [job for job in found["jobs"] if job["kind"] != "evaluate"]
    assert sum(job["passes"] for job in selections) == 1
    record = json.loads((out / "jobs/tiny.gmm.k3/run.json").read_text())
    assert (record["passes"], record["extra"]["from_cache"]) == (0, ["counts"])
    assert len(pd.read_parquet(out / "results.parquet")) == 5 * 2 * 2
    again = run("batch", plan, "-o", out, "--in-process")
    assert again.exit_code == 2
    assert "--resume runs what is missing in it" in again.stderr
    resumed = run("batch", plan, "-o", out, "--in-process", "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert resumed.stderr.count("done already") == 1 + 13
    assert "\nmlfs: job 13 of 13, " in resumed.stderr
    assert "0 to run, 13 done already" in resumed.stderr
    assert re.search(r"^jobs +13 done$", resumed.stdout, re.MULTILINE), "without the reading that they share"


def test_a_failed_job_has_its_exit_code(run: Run, plan: Path) -> None:
    plan.write_text("stores: tiny.zarr\nmethods: [enm, elc]\nk: [2, 9]\n")
    result = run("batch", plan, "-o", plan.parent / "out", "--in-process")
    assert result.exit_code == 2
    assert "2 of 4 jobs failed" in result.stderr
    assert "tiny.enm.k9: k must be between 1 and the number of features, 5; got 9" in result.stderr
    assert "2 failed" in result.stdout
    table = pd.read_csv(plan.parent / "out/jobs.csv").set_index("job")
    assert table["state"].to_dict() == {
        "tiny.shared": "done",
        "tiny.enm.k2": "done",
        "tiny.enm.k9": "failed",
        "tiny.elc.k2": "done",
        "tiny.elc.k9": "failed",
    }
    assert "must be between 1 and the number of features, 5; got 9" in table.loc["tiny.elc.k9", "error"]
    assert not (plan.parent / "out/jobs/tiny.enm.k9").exists()
    assert json.loads((plan.parent / "out/batch.json").read_text())["state"] == "failed"
    dry = run("batch", plan, "--dry-run", "--in-process")
    assert dry.exit_code == 2
    assert "will fail: k must be" in dry.stdout


def test_as_json_a_failed_job_is_told_in_one_object_with_the_result(run: Run, plan: Path) -> None:
    plan.write_text("stores: tiny.zarr\nmethods: enm\nk: [2, 9]\n")
    out = plan.parent / "out"
    for words in ([], ["--resume"]):
        result = run("batch", plan, "-o", out, "--in-process", "--json", *words)
        found = json.loads(result.stdout)
        assert result.exit_code == found["error"]["exit_code"] == 2
        assert found["batch"] == str(out)
        assert [job["state"] for job in found["jobs"] if job["kind"] == "select"] == ["done", "failed"]
        assert "1 of 2 jobs failed" in found["error"]["message"]
        assert "1 of 2 jobs failed" in result.stderr
    dry = run("batch", plan, "--dry-run", "--in-process", "--json")
    found = json.loads(dry.stdout)
    assert dry.exit_code == found["error"]["exit_code"] == 2
    assert "k must be" in found["jobs"][-1]["problem"]
    assert "1 of 2 jobs will fail" in found["error"]["message"]


def test_a_wrong_plan_is_told_with_its_line_and_nothing_runs(run: Run, plan: Path) -> None:
    plan.write_text(PLAN + "sedes: 1\n")
    result = run("batch", plan, "-o", plan.parent / "out", "--in-process")
    assert result.exit_code == 3
    assert "plan.yaml, line 9: the plan has no key 'sedes'\n  cure: did you mean 'seeds'?" in result.stderr
    assert not (plan.parent / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "2", "--in-process"), "--workers and --in-process name different places"),
        (("--workers", "2", "--in-process", "--dry-run"), "--workers and --in-process name different places"),
        (("--cache", "s3://bucket/c"), "must be a local folder"),
        (("--performance-report", "r.html"), "--performance-report"),
    ],
)
def test_where_it_runs_is_refused_before_anything_does(
    run: Run, plan: Path, words: tuple[str, ...], message: str
) -> None:
    result = run("batch", plan, "-o", plan.parent / "out", *words)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert not (plan.parent / "out").exists()


def test_places_that_are_none_for_a_batch(run: Run, plan: Path) -> None:
    (plan.parent / "mine").mkdir()
    (plan.parent / "mine/file").write_text("")
    for words in ((), ("--force",), ("--resume",)):
        refused = run("batch", plan, "-o", plan.parent / "mine", *words)
        assert (refused.exit_code, "exists and is not a batch" in refused.stderr) == (2, True)
    assert "must be local" in run("batch", plan, "-o", "s3://bucket/out").stderr


def test_the_schema_is_printed(run: Run) -> None:
    result = run("batch", "--schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["title"] == "Plan of mlfs batch"


def test_a_plan_that_is_not_given_or_not_there(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("batch").exit_code == 2
    missing = run("batch", "plan.yaml")
    assert missing.exit_code == 3
    assert "plan.yaml" in missing.stderr
    assert not list(tmp_path.iterdir())


SLOW = """\
stores: tiny.zarr
methods:
  - elc
  - method: mfsir
    params: {tol: 0, max_iter: 40, alpha: [1, 2, 3, 4, 5, 6, 7, 8]}
k: 2
"""


def start(plan: Path, out: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "mlfs_dask", "batch", str(plan), "-o", str(out), "--in-process", "--resume"]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "MLFS_CACHE": "auto"}
    )


def finished(out: Path) -> set[str]:
    return {path.parent.name for path in out.glob("jobs/[!.]*/run.json")}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_loses_no_job_that_was_done(run_json: Any, plan: Path, how: signal.Signals) -> None:
    plan.write_text(SLOW)
    whole, out = plan.parent / "whole", plan.parent / "out"
    run_json("batch", plan, "-o", whole, "--in-process", "--cache", "none")
    process = start(plan, out)
    until = time.monotonic() + 60
    while len(finished(out)) < 3 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(how)
    process.communicate()
    assert process.returncode == (-how if how == signal.SIGKILL else 130)
    done = finished(out)
    assert 3 <= len(done) < 9
    times = {name: (out / "jobs" / name / "run.json").stat().st_mtime_ns for name in done}
    for name in done:  # each of them whole
        assert (out / "jobs" / name / "ranking.csv").read_bytes() == (
            whole / "jobs" / name / "ranking.csv"
        ).read_bytes()
    if how != signal.SIGKILL:
        assert set(pd.read_csv(out / "selections.csv")["job"]) == done
    found = run_json("batch", plan, "-o", out, "--in-process", "--resume")
    assert {job["state"] for job in found["jobs"]} == {"done"}
    assert {name: (out / "jobs" / name / "run.json").stat().st_mtime_ns for name in done} == times
    assert (out / "selections.csv").read_bytes() == (whole / "selections.csv").read_bytes()
