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
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selection.runs import read_run
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors import greedy as greedy_module
from mlfs_dask.selectors.greedy import GreedySelector
from mlfs_dask.storage.convert import convert
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
    assert np.isnan(found.scores_[[1, 5]]).all()
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
    assert np.isnan(found.q_values_[0])
    assert (found.selection_frequency_[0], *found.rank_intervals_[0]) == (0, 9, 9)


def test_kept_features_that_are_covariates_take_what_they_say_from_the_others():
    X, Y = copies()
    found = mlfs_dask.BRCC(2, keep=[1], covariates="feature:1").fit(X, Y)
    assert found.ranking_[0] == 1
    assert found.ranking_[1] not in (0, 1, 5)  # which say the same as feature 1
    assert mlfs_dask.BRCC(2, keep=[1]).fit(X, Y).ranking_[1] in (0, 5)


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


# ---------------------------------------------------------------- features that say the same


def copies(seed=0, n=120):
    """Three features that carry a label each, near copies of the first two, a copy of opposite sign, a constant one."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, 3)) < 0.4).astype(np.int8)
    base = 1.5 * Y + rng.normal(size=(n, 3)) * [0.6, 0.8, 1.0]
    noise = rng.normal(size=(n, 5))
    near, opposite = base[:, 0] + 0.05 * noise[:, 0], -2 * base[:, 1] + 0.1 * noise[:, 1]
    X = np.column_stack([near, base, opposite, base[:, 0], noise[:, 2:], np.ones(n)])
    return X.round(3), Y


def prune_by_hand(X, ranking, bound, k, kept=()):
    """Down the ranking, with NumPy: representatives, and of each feature that is passed over its own."""
    varying = [f for f in ranking if X[:, f].std() > 0]
    C = np.abs(np.corrcoef(X[:, varying], rowvar=False)).round(9)
    at = {f: i for i, f in enumerate(varying)}
    chosen, passed = [], {}
    for f in varying:
        if len(chosen) == k:
            break
        alike = [C[at[f], at[g]] for g in chosen]
        if f not in kept and alike and max(alike) >= bound:
            passed[f] = chosen[int(np.argmax(alike))]
        else:
            chosen.append(f)
    return chosen, passed


@pytest.mark.parametrize("name", ["chi2", "br-cc", "llsf", "mrmr", "laplacian"])
@pytest.mark.parametrize("given", [{}, {"keep": [5, 0]}])
def test_pruning_is_what_numpy_makes_of_correlations(name, given):
    X, Y = copies()
    options = {"bins": 4} if name in ("chi2", "mrmr") else {}
    whole = fit(get_estimator(name)(5, **options, **given), X, Y)
    found = fit(get_estimator(name)(5, prune=0.95, **options, **given), X, Y)
    chosen, passed = prune_by_hand(X, whole.ranking_, 0.95, 5, given.get("keep", ()))
    assert found.ranking_[:5].tolist() == chosen
    assert found.ranking_[5:].tolist() == [f for f in whole.ranking_ if f not in chosen]
    table = {int(row["feature"]): row for row in found.clusters_}
    assert {f: int(row["representative"]) for f, row in table.items() if f not in chosen} == passed
    assert set(table) == {*chosen, *passed}
    for f, row in table.items():
        alike = abs(np.corrcoef(X[:, f], X[:, row["representative"]])[0, 1])
        assert row["similarity"] == pytest.approx(alike, abs=1e-8)
    assert found.report_.passes == whole.report_.passes + 1 <= found.report_.plan["passes"]
    noted = fit(get_estimator(name)(5, redundancy=0.95, **options, **given), X, Y)
    np.testing.assert_array_equal(noted.ranking_, whole.ranking_)
    assert noted.report_.plan["passes"] == found.report_.plan["passes"]
    assert set(noted.ranking_[:5]) <= set(noted.clusters_["feature"])


def test_clusters_do_not_depend_on_the_container_weights_count_and_excluded_features_are_in_none():
    X, Y = copies()
    expected = mlfs_dask.Chi2(4, prune=0.9, exclude=[2]).fit(X, Y)
    assert 2 not in expected.clusters_["feature"]
    for rows in (sp.csr_array(X), da.from_array(X, chunks=(31, 5))):
        found = mlfs_dask.Chi2(4, prune=0.9, exclude=[2]).fit(rows, Y)
        np.testing.assert_array_equal(found.clusters_, expected.clusters_)
    twice = mlfs_dask.Chi2(4, prune=0.9).fit(X, Y, sample_weight=np.r_[np.full(60, 2), np.zeros(60)])
    half = mlfs_dask.Chi2(4, prune=0.9).fit(X[:60], Y[:60])
    np.testing.assert_array_equal(twice.clusters_, half.clusters_)


def test_the_next_part_of_the_ranking_is_read_where_the_first_has_too_few():
    X, Y = copies()
    many = np.column_stack([*[X[:, 1]] * 70, X])
    found = mlfs_dask.Chi2(3, prune=0.95).fit(many, Y)
    assert found.report_.passes == 1 + 2
    assert found.report_.plan["passes"] >= found.report_.passes
    chosen, _ = prune_by_hand(many, mlfs_dask.Chi2(3).fit(many, Y).ranking_, 0.95, 3)
    assert found.ranking_[:3].tolist() == chosen
    with pytest.warns(UserWarning, match="6 of 80 features are kept, and not 8: the others do not vary, or their"):
        fewer = mlfs_dask.Chi2(8, prune=0.9).fit(many, Y)
    assert fewer.report_.k == fewer.support_.sum() == 6
    auto = fit(mlfs_dask.BRCC("auto", prune=0.95, random_state=0), X, Y)
    every = fit(mlfs_dask.BRCC("auto", random_state=0), X, Y)
    assert auto.report_.k < every.report_.k
    assert (auto.support_ <= every.support_).all()


def test_correlations_that_do_not_fit_or_are_of_gaps_are_refused():
    X, Y = copies()
    with pytest.raises(UsageError, match="prune lists clusters, too"):
        mlfs_dask.Chi2(2, prune=0.9, redundancy=0.9).fit(X, Y)
    with pytest.raises(DoesNotFitError, match=r"correlations of 5,000 features, of which X'X has at most 4,096"):
        mlfs_dask.BRCC(5000, prune=0.9).fit(np.random.default_rng(0).random((5, 6000)), Y[:5])
    X[0, 1] = np.nan
    with pytest.raises(DataError, match=r"(?s)column 1.*has no correlation with others.*choose missing='mean'"):
        mlfs_dask.Chi2(3, prune=0.9, missing="code").fit(X, Y)
    fit(mlfs_dask.Chi2(3, prune=0.9, missing="mean"), X, Y)


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


def test_commands_write_clusters_of_features_that_say_the_same(tmp_path, mlfs):
    X, Y = copies()
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(10)]).assign(a=Y[:, 0], b=Y[:, 1], c=Y[:, 2])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    store, run = tmp_path / "rows.zarr", tmp_path / "run"
    convert([tmp_path / "rows.csv"], store, labels=LabelSpec(columns=("a", "b", "c")))
    mlfs("select", "br-cc", store, "-k", "3", "--prune", "0.95", "-o", run)
    found = mlfs_dask.BRCC(3, prune=0.95).fit(mlfs_dask.open_dataset(store))
    table = pd.read_csv(run / "redundancy.csv")
    assert list(table) == ["cluster", "feature_index", "feature", "representative", "similarity", "chosen", "rank"]
    assert table.loc[table["chosen"] == 1, "feature_index"].tolist() == found.ranking_[:3].tolist()
    assert (table["rank"] == [found.ranking_.tolist().index(f) + 1 for f in table["feature_index"]]).all()
    assert table["cluster"].is_monotonic_increasing
    assert {"f0", "f1", "f5"} <= set(table["feature"])
    assert (run / "selected.txt").read_text().split() == [f"f{f}" for f in found.ranking_[:3]]
    mlfs("report", run, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    passed = table.loc[table["feature"] != table["representative"], "feature"]
    assert "selected features, and features that correlate with them" in page
    assert all(name in page for name in passed)
    (run / "redundancy.csv").write_text("cluster\n")
    refused = mlfs("report", run, "-o", tmp_path / "other.html", fails=3)
    assert "redundancy.csv, line 1: expected the columns cluster, feature_index" in refused.stderr.replace("\n", " ")
    mlfs("select", "br-cc", store, "-k", "3", "-o", run, "--force")
    assert not (run / "redundancy.csv").exists()
    assert "--prune" in mlfs("select", "br-cc", store, "-k", "3", "--prune", "1.5", "-o", run, fails=2).stderr


@pytest.mark.parametrize("name", GREEDY[::3])
def test_a_larger_choice_goes_on_from_an_earlier_one_and_reads_for_the_difference(tmp_path, mlfs, monkeypatch, name):
    monkeypatch.setattr(greedy_module, "MIN_CANDIDATES", 2)
    monkeypatch.setattr(GreedySelector, "_worthwhile", lambda *_: 2)
    X, Y = labelled_problem(d=30)
    names = [f"f{i}" for i in range(30)]
    pd.DataFrame(X, columns=names).assign(a=Y[:, 0], b=Y[:, 1]).to_csv(tmp_path / "rows.csv", index=False)
    store = tmp_path / "rows.zarr"
    convert([tmp_path / "rows.csv"], store, labels=LabelSpec(columns=("a", "b")))
    options = ("--keep", "f7", "--exclude", "f1,f2")
    select = ("select", name, store, *options)
    mlfs(*select, "-k", "9", "-o", tmp_path / "few")
    mlfs(*select, "-k", "12", "-o", tmp_path / "many")
    mlfs(*select, "-k", "12", "--start", tmp_path / "few", "-o", tmp_path / "more")
    many, more = (read_run(str(tmp_path / run)) for run in ("many", "more"))
    assert (tmp_path / "more" / "ranking.csv").read_bytes() == (tmp_path / "many" / "ranking.csv").read_bytes()
    assert more.record["passes"] <= 1 + 3 < 1 + 5 <= many.record["passes"]  # relevances, and two candidates at a time
    mlfs(*select, "-k", "9", "--start", tmp_path / "few", "-o", tmp_path / "same")
    assert (tmp_path / "same" / "ranking.csv").read_bytes() == (tmp_path / "few" / "ranking.csv").read_bytes()


def test_what_a_choice_cannot_go_on_from_is_refused_with_the_cure(store, tmp_path, mlfs):
    run = tmp_path / "run"
    mlfs("select", "jmi", store, "-k", "3", "-o", run)
    for words, message in [
        (("chi2", store, "-k", "4"), "chi2 has nothing to go on from"),
        (("mrmr", store, "-k", "4"), "is a run of jmi, not of mrmr; --keep"),
        (("jmi", store, "-k", "2"), "has chosen 3 features, and 2 are to be chosen: give a larger -k"),
        (("jmi", store, "-k", "4", "--bins", "3"), "was made with another --bins; --keep"),
        (("jmi", store, "-k", "4", "--exclude", "a"), "was made with another --exclude; --keep"),
        (("jmi", store, "-k", "4", "--rows", "0:50"), "was not made of these rows; --keep"),
    ]:
        refused = mlfs("select", *words, "--start", run, "-o", tmp_path / "other", fails=2)
        assert message in refused.stderr
    mlfs("select", "jmi", store, "-k", "4", "--start", tmp_path, "-o", tmp_path / "other", fails=3)


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
    (tmp_path / "out").write_text("b\n")
    plan.write_text(
        f"stores: [{store}]\nk: [3]\nmethods:\n- {{method: chi2, params: {{exclude: {tmp_path / 'out'}}}}}\n- elc\n"
    )
    batch = ("batch", plan, "-o", tmp_path / "again", "--resume", "--json")
    mlfs(*batch)
    job = next(path for path in (tmp_path / "again" / "jobs").iterdir() if "chi2" in path.name)
    (tmp_path / "out").write_text("e\n")  # the same name of a file, and another feature
    mlfs(*batch)
    assert read_run(str(job)).ranking[-1] == 3
    refused = mlfs("evaluate", store, "chi2:exclude=nothing", "-o", tmp_path / "other", fails=2)
    assert "there is no feature 'nothing'" in refused.stderr


# ---------------------------------------------------------------- groups of features

GROUPS = ["x", "x", None, "y", "y", "y", "", "z", "z", "w"]


def members_of(groups=GROUPS):
    """Features of each group; those without one are groups of their own."""
    found = {}
    for f, group in enumerate(groups):
        found.setdefault(group or f, []).append(f)
    return list(found.values())


def order_by_hand(groups, scores):
    return [groups[i] for i in np.argsort(-np.asarray(scores), kind="stable")]


@pytest.mark.parametrize("by", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", ["chi2", "br-cc", "llsf", "laplacian"])
def test_groups_are_ranked_by_the_scores_of_their_features(name, by):
    X, Y = copies()
    whole = fit(get_estimator(name)(5), X, Y)
    found = fit(get_estimator(name)(2, groups=GROUPS, group_by=by), X, Y)
    varies = X.std(axis=0) > 0
    scores = [getattr(np, by)(whole.scores_[m][varies[m]]) if varies[m].any() else -np.inf for m in members_of()]
    expected = order_by_hand(members_of(), np.round(scores, 9))
    place = {f: i for i, f in enumerate(whole.ranking_.tolist())}
    assert found.ranking_.tolist() == [f for group in expected for f in sorted(group, key=place.get)]
    assert set(np.flatnonzero(found.support_)) == {*expected[0], *expected[1]}
    assert found.report_.k == found.support_.sum()
    np.testing.assert_array_equal(found.scores_, whole.scores_)
    assert found.report_.passes == whole.report_.passes


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array, lambda X: da.from_array(X, chunks=(23, 4))])
def test_joint_scores_are_the_adjusted_r_squared_of_least_squares(container):
    X, Y = copies()
    one_hot = (X[:, [7]] > [-0.5, 0.2]).astype(float)
    X = np.column_stack([X, one_hot, 1 - one_hot.sum(axis=1) + 100])  # these three add up to a constant
    groups = [*GROUPS, "v", "v", "v"]
    n = len(X)
    expected = []
    for members in members_of(groups):
        A = X[:, members] - X[:, members].mean(axis=0)
        rank = np.linalg.matrix_rank(A, tol=1e-6 * max(np.linalg.norm(A), 1))
        total = 0.0
        for y in (Y - Y.mean(axis=0)).T:
            left = y - A @ np.linalg.lstsq(A, y, rcond=1e-9)[0]
            total += 1 - (left @ left / (y @ y)) * (n - 1) / (n - 1 - rank)
        expected.append(total if rank else -np.inf)
    found = mlfs_dask.BRCC(3, groups=groups, group_by="joint").fit(container(X), Y)
    scores = found._fitted.group_scores
    for members, score in zip(members_of(groups), expected, strict=True):
        if np.isfinite(score):
            np.testing.assert_allclose(scores[members], score, rtol=1e-7)
    order = order_by_hand(members_of(groups), expected)
    assert set(np.flatnonzero(found.support_)) == {f for group in order[:3] for f in group}
    assert found.report_.passes == 2 == found.report_.plan["passes"]


@pytest.mark.parametrize("name", ["br-cc", "fisher"])
def test_joint_scores_of_labels_are_those_of_the_rows_where_each_is_known(name):
    X, Y = copies()
    Y = np.where(np.random.default_rng(5).random(Y.shape) < [0.3, *[0.0] * (Y.shape[1] - 1)], np.int8(-1), Y)
    few, nowhere = np.where(np.arange(len(Y)) < 20, Y[:, 1], np.int8(-1)), np.full(len(Y), np.int8(-1))
    Y = np.column_stack([Y, few, nowhere])
    joint = {"groups": GROUPS, "group_by": "joint"}
    total = 0.0
    for label in range(Y.shape[1] - 1):
        known = Y[:, label] >= 0
        alone = fit(get_estimator("br-cc")(3, **joint), X[known], Y[known, label])
        total = total + alone._fitted.group_scores
    for rows in ((X, Y), (sp.csr_array(X), sp.csr_array(Y)), (da.from_array(X), da.from_array(Y, chunks=(30, 1)))):
        found = fit(get_estimator(name)(3, **joint), *rows)
        np.testing.assert_allclose(found._fitted.group_scores[:9], total[:9], rtol=1e-6)  # the last does not vary
        assert found.report_.passes == 2 + isinstance(rows[1], da.Array)


def test_groups_go_with_kept_and_excluded_features_and_with_methods_that_choose_in_turn():
    X, Y = copies()
    found = mlfs_dask.Chi2(2, groups=GROUPS, keep=[7], exclude=[8, 9]).fit(X, Y)
    assert found.ranking_[0] == 7
    assert found.report_.extra["chosen_groups"][0] == "z"
    assert found.ranking_[-2:].tolist() == [8, 9]
    best = fit(mlfs_dask.MRMR(2), X, Y).ranking_[0]
    turn = fit(mlfs_dask.MRMR(2, groups=GROUPS, group_by="max"), X, Y)
    assert set(turn.ranking_[: len(members_of()[0])]) >= {best} or best in turn.ranking_[:3]
    anndata = pytest.importorskip("anndata")
    rows = anndata.AnnData(X, var=pd.DataFrame({"set": GROUPS}, index=[f"f{i}" for i in range(10)]))
    of_var = fit(mlfs_dask.Chi2(2, groups="var:set"), rows, Y)
    np.testing.assert_array_equal(of_var.ranking_, fit(mlfs_dask.Chi2(2, groups=GROUPS), X, Y).ranking_)
    with pytest.raises(UsageError, match=r"var has no column 'sets'\. Did you mean set"):
        mlfs_dask.Chi2(2, groups="var:sets").fit(rows, Y)
    mapping = fit(mlfs_dask.Chi2(2, groups={f: g for f, g in enumerate(GROUPS) if g}), X, Y)
    np.testing.assert_array_equal(mapping.ranking_, fit(mlfs_dask.Chi2(2, groups=GROUPS), X, Y).ranking_)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": GROUPS[:4]}, "groups has 4 entries for 10 features"),
        ({"groups": GROUPS, "n_features_to_select": 8}, "between 1 and the number of groups of features, 6; got 8"),
        ({"groups": GROUPS, "n_features_to_select": "auto"}, "cannot be 'auto' with groups: give a count of groups"),
        ({"groups": GROUPS, "prune": 0.9}, "prune is of single features: leave it out, or groups"),
        ({"groups": GROUPS, "resamples": 3}, "resamples is of single features"),
        ({"groups": GROUPS, "group_by": "joint"}, "chi2 is no filter of moments.*choose sum, mean or max, or a method"),
        ({"groups": GROUPS, "keep": [0, 3, 7]}, "keep names 3 groups, and 2 are to be chosen"),
        ({"groups": "var:set"}, "groups='var:set' needs AnnData: write feature,group a line"),
    ],
)
def test_groups_that_cannot_be_chosen_are_refused_with_the_cure(given, message):
    with pytest.raises(UsageError, match=message):
        mlfs_dask.Chi2(**{"n_features_to_select": 2} | given).fit(*copies())


def test_commands_take_groups_from_a_column_of_var(tmp_path, mlfs):
    anndata = pytest.importorskip("anndata")
    X, Y = copies()
    var = pd.DataFrame({"set": pd.Categorical(GROUPS)}, index=[f"f{i}" for i in range(10)])
    file, store, run = tmp_path / "a.h5ad", tmp_path / "a.zarr", tmp_path / "run"
    anndata.AnnData(X, obsm={"labels": Y}, var=var).write_h5ad(file)
    mlfs("select", "br-cc", file, "-k", "1", "--groups", "var:set", "--features", "1:", "-o", run)
    table = pd.read_csv(run / "ranking.csv", keep_default_na=False).sort_values("feature_index")["group"]
    assert table.tolist() == ["x", "f2", "y", "y", "y", "f6", "z", "z", "w"]
    refused = mlfs("select", "br-cc", file, "-k", "1", "--groups", "var:sets", "-o", run, "--force", fails=2)
    assert "has no column 'sets'. Did you mean set" in refused.stderr
    mlfs("convert", file, store)
    refused = mlfs("select", "br-cc", store, "-k", "1", "--groups", "var:set", "-o", tmp_path / "none", fails=2)
    assert "a.zarr has no columns of features, such as 'set'" in refused.stderr


@pytest.mark.parametrize(
    "text",
    ['feature,group\r\na,one\r\n"c, d",one\r\n\r\nk,two\r\n', 'a\tone\nc, d\tone\nk\ttwo\n"g ""h"""\t\n'],
    ids=["CSV", "TSV"],
)
def test_commands_choose_groups_that_a_file_tells(store, tmp_path, mlfs, text):
    (tmp_path / "groups").write_bytes(text.encode())
    mlfs("select", "br-cc", store, "-k", "1", "--groups", tmp_path / "groups", "--keep", "a", "-o", tmp_path / "run")
    table = pd.read_csv(tmp_path / "run" / "ranking.csv")
    assert table["group"][:2].tolist() == ["one", "one"]
    assert set((tmp_path / "run" / "selected.txt").read_text().splitlines()) == {"a", "c, d"}
    assert set(table["group"]) == {"one", "two", "b", "e", "f", 'g "h"', "i", "j"}
    assert (table.groupby("group")["group_score"].nunique() == 1).all()
    plan = json.loads(
        mlfs(
            *("plan", "br-cc", store, "-k", "1", "--json", "--groups", tmp_path / "groups", "--group-by", "joint"),
        ).stdout
    )
    assert plan["passes"] == 2
    (tmp_path / "groups").write_text("a,one\nbb,two\n")
    refused = mlfs("select", "chi2", store, "-k", "1", "--groups", tmp_path / "groups", "-o", tmp_path / "r", fails=3)
    assert "line 2, value 'bb': there is no feature 'bb'. Did you mean b" in refused.stderr
    (tmp_path / "groups").write_text("a,one\na,two\n")
    refused = mlfs("select", "chi2", store, "-k", "1", "--groups", tmp_path / "groups", "-o", tmp_path / "r", fails=3)
    assert "this feature has a group already" in refused.stderr
    refused = mlfs("evaluate", store, f"chi2:groups={tmp_path / 'groups'}", "-o", tmp_path / "e", fails=2)
    assert "an evaluation counts features, but --groups selects groups" in refused.stderr
