"""Settings, and the settings of published experiments."""

from __future__ import annotations

import dataclasses

import pytest

from mlfs_dask.errors import UsageError
from mlfs_dask.evaluation.grids import read_grid
from mlfs_dask.evaluation.protocols import PROTOCOLS, Settings, make_settings


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_are_settings_that_can_be(name: str) -> None:
    settings = make_settings(name)
    assert settings.k_grid is not None
    assert read_grid(settings.k_grid, 1000).points
    assert set(PROTOCOLS[name].options) <= {field.name for field in dataclasses.fields(Settings)}


def test_what_the_papers_print() -> None:
    elc = make_settings("elc-2020")
    assert (elc.split, elc.folds, elc.n_neighbors, elc.scale) == ("kfold", 5, 10, "standard")
    lee = make_settings("lee-kim-2016")
    assert (lee.classifiers, lee.split, lee.test_size, lee.repeats) == (("logistic",), "holdout", 0.2, 10)
    assert [p.k for p in read_grid(lee.k_grid or "", 100).points] == [1, *range(5, 51, 5)]
    smfs = make_settings("smfs-2020")
    assert (smfs.missing_labels, smfs.labelled_rows, smfs.repeats, smfs.hidden_as) == (0.2, 0.3, 10, "zero")
    assert [p.k for p in read_grid(smfs.k_grid or "", 60).points] == [10, 20, 30, 40, 50]
    access = make_settings("access-mfs-2024")
    assert (access.repeats, access.unlabelled_test, access.split) == (5, True, "holdout")
    mfsir = make_settings("mfsir")
    assert [p.k for p in read_grid(mfsir.k_grid or "", 100).points] == [5, 10, 15, 20, 25, 30]


def test_options_take_the_place_of_the_protocols() -> None:
    settings = make_settings("elc-2020", {"folds": 3, "k_grid": None, "metrics": ["one_error"]})
    assert (settings.folds, settings.k_grid, settings.metrics) == (3, "10%:90%:10%", ("one_error",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fold": 3}, "no option 'fold'. Did you mean folds"),
        ({"split": "odd"}, "split must be 'kfold', 'holdout', 'stratified' or 'given'; got 'odd'"),
        ({"classifiers": ("svm",)}, "classifiers must be one or more of mlknn"),
        ({"classifiers": ()}, "classifiers"),
        ({"metrics": ("auc",)}, "no metric 'auc'"),
        ({"n_neighbors": 0}, "n_neighbors must be a whole number of at least 1; got 0"),
        ({"max_train_rows": 0}, "max_train_rows must be a whole number of at least 1; got 0"),
        ({"smoothing": 0.0}, "smoothing must be a positive number; got 0.0"),
        ({"smoothing": float("inf")}, "smoothing must be a positive number; got inf"),
        ({"smoothing": float("nan")}, "smoothing must be a positive number; got nan"),
        ({"C": -1.0}, "^C must be a number above 0 and at most inf; got -1.0"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
        ({"seed": 2**32}, "seed must be at most 4294967295"),
        ({"seed": 2**32 - 1, "repeats": 2}, "that of the last repeat included"),
        ({"missing_labels": 1.0}, "missing_labels must be a non-negative number below 1; got 1.0"),
        ({"labelled_rows": 0.0}, "labelled_rows must be a number above 0 and at most 1; got 0.0"),
        ({"folds": 1}, "folds must be a whole number of at least 2; got 1"),
        ({"repeats": 0}, "repeats must be a whole number of at least 1; got 0"),
        ({"test_size": 1.0}, "test_size must be a positive number below 1; got 1.0"),
        ({"metrics": ()}, "metrics must be one or more texts"),
    ],
)
def test_what_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_settings(None, options)


def test_unknown_protocols_are_refused_with_the_closest() -> None:
    with pytest.raises(UsageError, match="Did you mean elc-2020"):
        make_settings("elc2020")
