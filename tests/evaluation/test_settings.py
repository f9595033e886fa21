"""Candidates, grids of numbers of features, settings and protocols: as they are written, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlfs_dask.errors import UsageError
from mlfs_dask.evaluation.candidates import read_candidate, read_candidates
from mlfs_dask.evaluation.grids import read_grid
from mlfs_dask.evaluation.protocols import PROTOCOLS, make_settings
from mlfs_dask.selection.question import ask
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
    assert read_candidate("mfsir:max-iter=3").params == {"max_iter": 3}


def test_finished_runs(tmp_path: Path) -> None:
    run = {"run": "a.elc", "method": "elc", "params": {"lambda_": 0.1}}
    record = {**run, "learnt": "finished run", "path": str(tmp_path / "a.elc")}
    assert read_candidate(str(finished(tmp_path / "a.elc"))).to_record() == record
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match=r"two candidates have the name 'a\.elc'"):
        read_candidates([str(tmp_path / "a.elc"), str(finished(tmp_path / "x" / "a.elc"))])


@pytest.mark.parametrize(
    ("text", "d", "expected"),
    [
        ("10%:90%:10%", 72, [7, 14, 21, 28, 36, 43, 50, 57, 64]),
        ("1,5:50:5", 60, [1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50]),
        ("1/6:5/6:1/6", 6, [1, 2, 3, 4, 5]),
        ("29%", 100, [29]),  # 0.29 * 100 is 28.999... in floating point
        ("1%", 10, [1]),  # one feature at least
        ("5:12:5", 20, [5, 10]),  # the last value need not be met
        ("7,10%,7", 70, [7]),  # each number once
        (" 0.1 , 5 ", 10, [1, 5]),
    ],
)
def test_grids(text: str, d: int, expected: list[int]) -> None:
    assert [point.k for point in read_grid(text, d).points] == expected


def test_shares_are_kept_and_large_numbers_told() -> None:
    assert [point.share for point in read_grid("5,10%,100", 50).points] == [None]
    grid = read_grid("10%,5,100", 50)
    assert [(p.k, p.share) for p in grid.points] == [(5, 0.1)]
    assert (grid.too_large, grid.largest) == ((100,), 5)


def test_what_the_papers_print() -> None:
    elc, lee, smfs, access, mfsir = (
        make_settings(name) for name in ("elc-2020", "lee-kim-2016", "smfs-2020", "access-mfs-2024", "mfsir")
    )
    assert (elc.split, elc.folds, elc.n_neighbors, elc.scale) == ("kfold", 5, 10, "standard")
    assert (lee.classifiers, lee.split, lee.test_size, lee.repeats) == (("logistic",), "holdout", 0.2, 10)
    assert (smfs.missing_labels, smfs.labelled_rows, smfs.repeats, smfs.hidden_as) == (0.2, 0.3, 10, "zero")
    assert (access.repeats, access.unlabelled_test, access.split) == (5, True, "holdout")
    grids = [elc.k_grid, lee.k_grid, smfs.k_grid, access.k_grid, mfsir.k_grid]
    assert grids == ["10%:90%:10%", "1,5:50:5", "1/6:5/6:1/6", "100:200:10", "5%:30%:5%"]
    assert set(PROTOCOLS) == {"elc-2020", "lee-kim-2016", "smfs-2020", "access-mfs-2024", "mfsir"}
    changed = make_settings("elc-2020", {"folds": 3, "k_grid": None, "metrics": ["one_error"]})
    assert (changed.folds, changed.k_grid, changed.metrics) == (3, "10%:90%:10%", ("one_error",))


def grid_of_20(text: str) -> Any:
    return read_grid(text, 20)


def settings(**options: Any) -> Any:
    return make_settings(options.pop("protocol", None), options)


@pytest.mark.parametrize(
    ("read", "given", "message"),
    [
        (read_candidate, "elk", "Did you mean elc"),
        (read_candidate, "elc:lambada=1", "no parameter 'lambada'. Did you mean lambda\\?"),
        (read_candidate, "elc:variant=odd", "^variant must be one of"),
        (read_candidate, "elc:max-iter=3,max_iter=4", "elc:max-iter=3,max_iter=4 gives max_iter twice"),
        (read_candidate, "elc:lambda", "elc:lambda gives lambda no value; write lambda=VALUE"),
        (read_candidate, "random:seed=1", "takes no parameters"),
        (read_candidate, "/no/such/run", "neither the folder of a finished run"),
        (read_candidates, ["elc", "random", "elc"], "two candidates have the name 'elc'"),
        (read_candidates, [], "no candidate was given"),
        (grid_of_20, "", "'' is neither a count"),
        (grid_of_20, "0", "not between 1 and d"),
        (grid_of_20, "120%", "'120%' is no share of the features: it lies between 0 and 100%"),
        (grid_of_20, "1:5", "no range FIRST:LAST:STEP"),
        (grid_of_20, "1:50%:5", "no range FIRST:LAST:STEP"),
        (grid_of_20, "9:5:1", "empty"),
        (grid_of_20, "1:1000000000:1", "the range 1:1000000000:1 has 1,000,000,000 values; give a step that makes at"),
        (grid_of_20, "1:5:0", "not between"),
        (grid_of_20, "1/0", "is neither a count"),
        (grid_of_20, "50,60", "above the 20 features"),
        (settings, {"protocol": "elc2020"}, "Did you mean elc-2020"),
        (settings, {"fold": 3}, "no option 'fold'. Did you mean folds"),
        (settings, {"split": "odd"}, "split must be 'kfold', 'holdout', 'stratified' or 'given'; got 'odd'"),
        (settings, {"classifiers": ("svm",)}, "classifiers must be one or more of mlknn"),
        (settings, {"metrics": ("auc",)}, "no metric 'auc'"),
        (settings, {"metrics": ()}, "metrics must be one or more texts"),
        (settings, {"n_neighbors": 0}, "n_neighbors must be a whole number of at least 1; got 0"),
        (settings, {"max_train_rows": 0}, "max_train_rows must be a whole number of at least 1; got 0"),
        (settings, {"smoothing": 0.0}, "smoothing must be a positive number; got 0.0"),
        (settings, {"smoothing": float("inf")}, "smoothing must be a positive number; got inf"),
        (settings, {"smoothing": float("nan")}, "smoothing must be a positive number; got nan"),
        (settings, {"C": -1.0}, "^C must be a number above 0 and at most inf; got -1.0"),
        (settings, {"seed": -1}, "seed must be a whole number of at least 0; got -1"),
        (settings, {"seed": 2**32 - 1, "repeats": 2}, "seed must be at most 4294967295, that of the last repeat incl"),
        (settings, {"missing_labels": 1.0}, "missing_labels must be a non-negative number below 1; got 1.0"),
        (settings, {"labelled_rows": 0.0}, "labelled_rows must be a number above 0 and at most 1; got 0.0"),
        (settings, {"folds": 1}, "folds must be a whole number of at least 2; got 1"),
        (settings, {"repeats": 0}, "repeats must be a whole number of at least 1; got 0"),
        (settings, {"test_size": 1.0}, "test_size must be a positive number below 1; got 1.0"),
    ],
)
def test_what_is_refused(read: Callable[..., Any], given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(**given) if isinstance(given, dict) else read(given)


@pytest.mark.parametrize(("text", "seed"), [("smfs", 7), ("smfs:random_state=1", 1)])
def test_a_method_is_seeded_where_it_was_given_no_seed(text: str, seed: int) -> None:
    candidate = read_candidate(text)
    assert ask(candidate.method, 3, seed=7, **candidate.params).get_params().get("random_state") == seed
