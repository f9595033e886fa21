"""Which features are chosen: kept, excluded; by names, numbers and files; of every method, in every command."""

from __future__ import annotations

import json

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selection.runs import read_run
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.greedy import GreedySelector
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.readers.base import LabelSpec
from mlfs_dask_cli.main import mlfs as command
from tests.problems import labelled_problem
from tests.selectors.test_matrix import every_method, fit, make, problem

GREEDY = [name for name in METHODS if issubclass(get_method(name), GreedySelector)]


@every_method
def test_excluded_features_are_as_if_they_were_not_there_and_kept_ones_come_first(name):
    X, Y = problem()
    rest = np.array([0, 2, 3, 4, 6, 7, 8])
    expected = fit(make(name, 3), X[:, rest], Y)
    found = fit(make(name, 3, exclude=[5, 1]), X, Y)
    assert found.ranking_.tolist() == [*rest[expected.ranking_], 1, 5]
    np.testing.assert_allclose(found.scores_[rest], expected.scores_, rtol=1e-9, atol=1e-12)
    assert (found.scores_[[1, 5]] == found.scores_.min()).all()
    assert (found.report_.d, found.report_.k) == (9, 3)
    both = fit(make(name, 3, exclude=[5, 1], keep=[8, 3]), X, Y)
    assert both.ranking_[:2].tolist() == [8, 3]
    assert both.support_[[8, 3]].all()
    assert both.support_.sum() == 3
    assert sorted(both.ranking_) == list(range(9))
    if name not in (*GREEDY, "auto"):
        assert both.ranking_[2:].tolist() == [f for f in found.ranking_ if f not in (8, 3)]


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_methods_go_on_from_kept_features_as_if_they_had_chosen_them(name):
    X, Y = labelled_problem()
    whole = get_estimator(name)(7).fit(X, Y)
    found = get_estimator(name)(7, keep=whole.ranking_[:3].tolist()).fit(X, Y)
    np.testing.assert_array_equal(found.ranking_, whole.ranking_)
    np.testing.assert_array_equal(found.scores_, whole.scores_)
    assert found.report_.passes == whole.report_.passes


def test_containers_agree_and_names_are_those_of_columns():
    X, Y = labelled_problem()
    given = {"keep": [6, 2], "exclude": [1]}
    expected = mlfs_dask.JMI(4, **given).fit(X, Y)
    for rows in (sp.csr_array(X), da.from_array(X, chunks=(17, 4))):
        np.testing.assert_array_equal(mlfs_dask.JMI(4, **given).fit(rows, Y).ranking_, expected.ranking_)
    table = pd.DataFrame(X, columns=list("abcdefghi"))
    for keep in ("g,c", ["g", "c"], np.array(["g", "c"])):
        found = mlfs_dask.JMI(4, keep=keep, exclude="b").fit(table, Y)
        np.testing.assert_array_equal(found.ranking_, expected.ranking_)
        assert found.report_.extra["kept_features"] == ["g", "c"]
        json.dumps(found.report_.to_dict(), allow_nan=False)


def test_resamples_and_the_number_that_shuffles_give_count_kept_features():
    X, Y = labelled_problem(n=200)
    found = mlfs_dask.Chi2("auto", keep=[8], exclude=[0], resamples=8, random_state=0).fit(X, Y)
    assert found.ranking_[0] == 8
    assert found.support_[8]
    assert not found.support_[0]
    assert found.report_.k == found.support_.sum() == np.isin(found.ranking_[: found.report_.k], [8, 1, 2, 3]).sum()
    assert found.q_values_.shape == (9,)
    assert (found.q_values_[0], found.selection_frequency_[0], *found.rank_intervals_[0]) == (1, 0, 9, 9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep": [0, 1, 2]}, "keep names 3 features, and 2 are to be chosen in all: give a larger n_features"),
        ({"keep": ["b"]}, "keep: there is no feature 'b'. The features of this data have no names"),
        ({"exclude": [9]}, "exclude: there is no feature number 9; they are numbered from 0 to 8"),
        ({"exclude": [2, 2]}, "exclude: feature 2 is chosen twice"),
        ({"keep": [0], "exclude": [1, 0]}, "keep and exclude both name feature 0; leave it out of one"),
        ({"exclude": list(range(9))}, "exclude leaves none of 9 features"),
        ({"exclude": list(range(8))}, "must be between 1 and the number of features, 1; got 2"),
        ({"keep": "nowhere.txt"}, "keep: there is no feature 'nowhere.txt', and no file 'nowhere.txt'"),
    ],
)
def test_features_that_cannot_be_chosen_are_refused_with_the_cure(given, message):
    with pytest.raises(UsageError, match=message):
        mlfs_dask.Chi2(2, **given).fit(*labelled_problem())


@pytest.fixture
def mlfs(monkeypatch):
    """Run a command, which must succeed or fail as is said."""
    monkeypatch.setenv("MLFS_CACHE", "none")

    def invoke(*words, fails=0):
        result = CliRunner().invoke(command, [str(word) for word in words])
        assert result.exit_code == fails, result.stderr
        return result

    return invoke


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    X, Y = labelled_problem()
    folder = tmp_path_factory.mktemp("choice")
    frame = pd.DataFrame(X, columns=["a", "b", "c, d", "e", "f", 'g "h"', " i", "j", "k"]).assign(
        **{f"l{i}": Y[:, i] for i in range(Y.shape[1])}
    )
    frame.to_csv(folder / "rows.csv", index=False)
    convert([folder / "rows.csv"], folder / "rows.zarr", labels=LabelSpec(columns=("l0", "l1", "l2", "l3")))
    return folder / "rows.zarr"


@pytest.mark.parametrize(
    "text", ["k\r\n\r\nc, d\r\n", '\ufeffk\n"c, d"\n\n', "k  \n\n  c, d"], ids=["CRLF", "quoted", "blanks"]
)
def test_a_file_names_features_however_it_was_written(store, tmp_path, text):
    (tmp_path / "names.txt").write_bytes(text.encode())
    data = mlfs_dask.open_dataset(store)
    found = mlfs_dask.Chi2(3, keep=str(tmp_path / "names.txt"), exclude='a,"g ""h"""').fit(data)
    assert found.ranking_[:2].tolist() == [8, 2]
    assert sorted(found.ranking_[-2:]) == [0, 5]
    (tmp_path / "names.txt").write_text("k\ncd\n")
    with pytest.raises(DataError, match=r"line 2, value 'cd': there is no feature 'cd'. Did you mean c, d"):
        mlfs_dask.Chi2(3, keep=str(tmp_path / "names.txt")).fit(data)


def test_commands_take_features_to_keep_and_to_exclude(store, tmp_path, mlfs):
    run = tmp_path / "run"
    select = ("select", "mrmr", store, "-k", "4", "--keep", "k,j", "--exclude", tmp_path / "out", "-o", run)
    (tmp_path / "out").write_text("b\ne\n")
    mlfs(*select)
    ranking = read_run(str(run)).ranking
    assert (ranking[:2].tolist(), ranking[-2:].tolist()) == ([8, 7], [1, 3])
    record = json.loads((run / "run.json").read_text())
    assert record["extra"]["excluded_features"] == ["b", "e"]
    assert record["plan"]["passes"] >= record["passes"]
    assert "is complete already" in mlfs(*select, "--resume").stderr
    (tmp_path / "out").write_text("b\n")  # the same name of a file, and other features
    assert "holds a run already" in mlfs(*select, "--resume", fails=2).stderr
    mlfs(*select, "--force")
    assert read_run(str(run)).ranking[-1] == 1
    plan = json.loads(mlfs("plan", "llsf", store, "-k", "4", "--exclude", "b,e", "--json").stdout)
    whole = json.loads(mlfs("plan", "llsf", store, "-k", "4", "--json").stdout)
    assert plan["arrays"] != whole["arrays"]
    refused = mlfs("select", "chi2", store, "-k", "3", "--keep", "bb", "-o", tmp_path / "other", fails=2)
    assert "--keep: there is no feature 'bb', and no file 'bb'. Did you mean b" in refused.stderr


def test_evaluations_batches_and_auto_take_them(store, tmp_path, mlfs):
    mlfs("evaluate", store, "chi2:keep=k,j,exclude=b", "--folds", "2", "--k-grid", "3", "-o", tmp_path / "eval")
    rankings = json.loads((tmp_path / "eval" / "eval.json").read_text())
    learnt = json.dumps(rankings)
    assert '"k,j"' in learnt
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"stores: [{store}]\nk: [3]\nmethods:\n- method: chi2\n  params: {{keep: 'k,j', exclude: b}}\n"
        "- {method: auto, params: {candidates: 'chi2,ami', keep: k}}\n"
    )
    mlfs("batch", plan, "-o", tmp_path / "batch")
    first = {path.name: read_run(str(path)).ranking for path in (tmp_path / "batch" / "jobs").iterdir()}
    assert sorted(ranking[0] for ranking in first.values()) == [8, 8]
    assert {ranking[-1] for name, ranking in first.items() if ".chi2" in name} == {1}
    refused = mlfs("evaluate", store, "chi2:exclude=nothing", "-o", tmp_path / "other", fails=2)
    assert "there is no feature 'nothing'" in refused.stderr
