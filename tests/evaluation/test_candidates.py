"""Candidates as they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlfs_dask.errors import UsageError
from mlfs_dask.evaluation.candidates import read_candidate, read_candidates
from mlfs_dask.selection.runs import write_run


def finished(place: Path) -> Path:
    write_run(
        str(place),
        ranking=np.array([2, 0, 1]),
        scores=np.array([0.5, 0.1, 0.9]),
        feature_names=["a", "b", "c"],
        record={"method": "elc", "k": 2, "d": 3, "params": {"lambda_": 0.1}},
    )
    return place


def test_methods_with_parameters() -> None:
    candidate = read_candidate("elc:lambda_=0.5,variant=published")
    assert (candidate.run, candidate.method) == ("elc:lambda_=0.5,variant=published", "elc")
    assert candidate.params == {"lambda_": 0.5, "variant": "published"}
    assert read_candidate("elc:lambda=0.5").params == {"lambda_": 0.5}  # as on the command line
    assert read_candidate("mfsir:max-iter=3").params == {"max_iter": 3}
    assert read_candidate("elc").params == {}


def test_seeds_go_where_they_are_used() -> None:
    assert read_candidate("smfs").make_selector(3, 7).get_params()["random_state"] == 7
    assert read_candidate("smfs:random_state=1").make_selector(3, 7).get_params()["random_state"] == 1
    assert read_candidate("elc:lambda=0.5").make_selector(3, 7).get_params()["n_features_to_select"] == 3


def test_finished_runs(tmp_path: Path) -> None:
    candidate = read_candidate(str(finished(tmp_path / "a.elc")))
    assert (candidate.run, candidate.method) == ("a.elc", "elc")
    assert candidate.finished is not None
    assert candidate.to_record() == {
        "run": "a.elc",
        "method": "elc",
        "params": {"lambda_": 0.1},
        "learnt": "finished run",
        "path": str(tmp_path / "a.elc"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("elk", "Did you mean elc"),
        ("elc:lambada=1", "no parameter 'lambada'. Did you mean lambda\\?"),
        ("elc:variant=odd", "^variant must be one of"),
        ("elc:max-iter=3,max_iter=4", "elc:max-iter=3,max_iter=4 gives max_iter twice"),
        ("elc:lambda", "elc:lambda gives lambda no value; write lambda=VALUE"),
        ("elc:lambada", "no parameter 'lambada'. Did you mean lambda\\?"),
        ("random:seed=1", "takes no parameters"),
        ("/no/such/run", "neither the folder of a finished run"),
    ],
)
def test_what_is_no_candidate(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_candidate(text)


def test_labels_are_distinct(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two candidates are called 'elc'"):
        read_candidates(["elc", "random", "elc"])
    with pytest.raises(UsageError, match="no candidate was given"):
        read_candidates([])
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match="two candidates are called 'a'"):
        read_candidates([str(finished(tmp_path / "a")), str(finished(tmp_path / "x" / "a"))])
