"""The experiment: what it learns from, what it judges on, and that it comes out the same whatever holds the data."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp
from sklearn.preprocessing import StandardScaler

import mlfs_dask as mlfs
from mlfs_dask import runtime
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.evaluation import experiment
from mlfs_dask.evaluation.experiment import Experiment, evaluate
from mlfs_dask.evaluation.job import PartialResults
from mlfs_dask.evaluation.metrics import Predictions, compute_metrics
from mlfs_dask.evaluation.mlknn import MLkNN
from mlfs_dask.evaluation.results import Evaluation, read_eval, write_eval
from mlfs_dask.evaluation.scoring import Scorer, ScoringPlan
from mlfs_dask.evaluation.splits import make_splits
from mlfs_dask.evaluation.table import Table, open_table
from mlfs_dask.files.array_files import is_mapped
from mlfs_dask.runtime import driver_bytes, process_limits
from mlfs_dask.selection.fit import Fit, fit
from mlfs_dask.selection.labels import label_matrix
from mlfs_dask.selection.question import Question
from mlfs_dask.selection.runs import write_run
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import convert_reader
from tests.storage.memory_reader import make_reader
from tests.storage.stores import make_store

N, D, Q = 90, 8, 3


def planted(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features 0 to 2 follow the labels, the others are noise."""
    random = np.random.default_rng(seed)
    Y = (random.random((N, Q)) < 0.4).astype(np.int8)
    X = random.normal(size=(N, D))
    X[:, :Q] += 3 * Y
    return X, Y


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, Y = planted()
    return make_store(tmp_path_factory.mktemp("store") / "planted.zarr", X, Y, partition_bytes=2048)


def finish(place: Path, store: Path, k: int = 3) -> Path:
    """A run folder of ELC on a store."""
    dataset = mlfs.open_dataset(store)
    selector = mlfs.ELC(k).fit(dataset)
    write_run(
        str(place),
        ranking=selector.ranking_,
        scores=selector.scores_,
        feature_names=dataset.feature_names,
        record=selector.report_.to_dict(),
    )
    return place


class Seen:
    """Rows and labels that selectors were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[tuple[str, np.ndarray, np.ndarray]] = []

        def watched(question: Question, X: Any) -> Fit:
            blocks = [(b.X.copy(), b.Y.toarray()) for b in X.source.stream(0, len(X.source.row_offsets) - 1)]
            self.parts.append(
                (question.method.method, *(np.concatenate(pieces) for pieces in zip(*blocks, strict=True)))
            )
            return fit(question, X)

        monkeypatch.setattr(experiment, "fit", watched)


def test_values_are_those_of_the_steps_done_by_hand() -> None:
    X, Y = planted()
    found = evaluate(X, "elc", labels=Y, folds=3, k_grid="2,5", seed=4, n_neighbors=5)
    assert found.record["store"] == {"path": None, "digest": None, "n": N, "d": D, "q": Q}
    for split in make_splits("kfold", label_matrix(Y), folds=3, seed=4):
        for k in (2, 5):
            columns = mlfs.ELC(k).fit(X[split.train], Y[split.train]).ranking_[:k]
            kept = found.rankings.query("fold == @split.fold and k == @k")
            assert kept["feature_index"].tolist() == columns.tolist()
            assert kept["rank"].tolist() == list(range(1, k + 1))
            scaler = StandardScaler().fit(X[split.train][:, columns])
            train, test = (scaler.transform(X[rows][:, columns]) for rows in (split.train, split.test))
            scores = MLkNN(5).fit(train, Y[split.train]).predict_proba(test)
            expected = compute_metrics(Predictions(Y[split.test], scores))
            mine = found.results.query("k == @k and fold == @split.fold").set_index("metric")["value"]
            assert mine.to_dict() == pytest.approx(dict(expected), nan_ok=True, rel=1e-12)
    assert found.means().query("metric == 'average_precision' and k == 5")["mean"].item() > 0.9


def test_one_ranking_serves_all_k_but_where_the_choice_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = planted()
    asked: list[tuple[str, Any]] = []

    def watched(question: Question, X: Any) -> Fit:
        asked.append((question.method.method, question.n_features_to_select))
        return fit(question, X)

    monkeypatch.setattr(experiment, "fit", watched)
    options: dict[str, Any] = {"folds": 2, "k_grid": "1:3:1"}
    assert Experiment(X, ["elc", "enm", "random"], labels=Y, **options).plan()["fits"] == 2 * 3 + 2
    found = evaluate(X, ["elc", "enm", "random"], labels=Y, **options)
    assert asked == 2 * [("elc", 1), ("elc", 2), ("elc", 3), ("enm", 3)]
    assert found.fits.query("run == 'elc'")["k"].tolist() == 2 * [1, 2, 3]
    assert found.fits.query("run == 'enm'")["k"].tolist() == 2 * [3]
    assert found.rankings.query("run == 'elc' and fold == 0")["k"].tolist() == [1, 2, 2, 3, 3, 3]
    assert found.rankings.query("run == 'random' and fold == 0")["k"].tolist() == [3, 3, 3]


def test_a_test_row_changes_no_ranking(store: Path, tmp_path: Path) -> None:
    X, Y = planted()
    X[80:] = 1000 * X[80:] + 7  # the ranges of all rows would move every bin
    Y[80:] = 1 - Y[80:]
    other = make_store(tmp_path / "other.zarr", X, Y, partition_bytes=2048)
    fold_of = np.where(np.arange(N) >= 80, 0, -1)
    rankings = [
        evaluate(place, ["label-entropy", "elc"], fold_of=fold_of, k_grid="8").rankings["feature_index"].tolist()
        for place in (store, other)
    ]
    assert rankings[0] == rankings[1]


def test_a_store_out_of_memory_gives_what_arrays_give(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = planted()
    candidates = ["elc", "label-entropy", "random", "all"]
    options: dict[str, Any] = {"folds": 2, "k_grid": "2,4", "classifiers": ("mlknn", "logistic")}
    arrays = evaluate(X, candidates, labels=Y, name="planted", **options)
    held = evaluate(store, candidates, **options)
    monkeypatch.setattr("mlfs_dask.evaluation.table._HELD_FRACTION", 0.0)
    streamed = evaluate(store, candidates, **options)
    for other in (held, streamed):
        pd.testing.assert_frame_equal(other.results, arrays.results, check_exact=False, rtol=1e-9)
        pd.testing.assert_frame_equal(other.rankings, arrays.rankings)
    assert held.fits["bytes_read"].sum() == 0
    # Of the streamed one: the ranges of all training rows, and the sums of all fits.
    size = mlfs.open_dataset(store).rows.profile.read_bytes
    passes = [2, 0, 0, 0, 0, 0]
    assert streamed.fits["passes"].tolist() == passes
    assert streamed.fits["bytes_read"].tolist() == [number * size for number in passes]


METHODS = ["elc", "chi2", "label-entropy", "fisher", "mddm", "scls", "relieff", "mfsir:max_iter=3"]


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(
    ("options", "room"), [({}, None), ({"labelled_rows": 0.7}, None), ({"rows": 70}, None), ({}, 0)]
)
def test_folds_and_methods_share_passes(
    options: dict[str, Any], room: int | None, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges, first statistics and scored columns are read once; without room for two folds, once a fold or ranking."""
    data = mlfs.open_dataset(store)
    if "rows" in options:
        data, options = data.subset(rows=f"0:{options['rows']}"), {}
    options = {"folds": 3, "k_grid": "2,4", "seed": 3} | options
    held = evaluate(data, METHODS, **options)
    monkeypatch.setattr("mlfs_dask.evaluation.table._HELD_FRACTION", 0.0)
    if room is not None:
        monkeypatch.setattr(Experiment, "_spare_bytes", room)
    seen: list[str] = []
    with runtime.progress_to(lambda event: seen.append(event["label"]) if event["kind"] == "pass" else None):
        found = evaluate(data, METHODS, **options)
    pd.testing.assert_frame_equal(found.rankings, held.rankings)
    pd.testing.assert_frame_equal(found.results, held.results, check_exact=False, rtol=1e-9)
    shared = [label for label in seen if label in {"training rows", "first statistics", "chosen columns"}]
    if room is None:
        assert shared == ["training rows", "first statistics", "chosen columns"]
    else:
        assert (shared.count("training rows"), shared.count("first statistics")) == (3, 0)
        assert shared.count("chosen columns") > 3


@pytest.mark.parametrize("held", [False, True])
def test_categories_are_no_numbers(held: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The label follows from a category, and not from whether its number is high or low."""
    X, Y = planted()
    Y[:, 0] = (X[:, :3] > 1).any(axis=1)
    X[:, 5] = 2 * np.random.default_rng(1).integers(0, 2, N) + Y[:, 0]
    reader = make_reader(X, Y[:, :1], categories={5: ("a", "b", "c", "d")})
    convert_reader(lambda: reader, tmp_path / "kinds.zarr", workers=1, options=Options(partition_bytes=2048))
    if not held:
        monkeypatch.setattr("mlfs_dask.evaluation.table._HELD_FRACTION", 0.0)
    found = evaluate(tmp_path / "kinds.zarr", ["chi2", "label-entropy"], folds=2, k_grid="1")
    assert found.rankings["feature_index"].tolist() == [5] * 4


def test_what_folds_share_comes_from_the_cache(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlfs_dask.evaluation.table._HELD_FRACTION", 0.0)
    with mlfs.cache(tmp_path / "cache"):
        first, again = (evaluate(store, ["elc", "chi2"], folds=3, k_grid="4") for _ in range(2))
    pd.testing.assert_frame_equal(again.rankings, first.rankings)
    assert (first.fits["passes"].sum(), again.fits["passes"].sum()) == (2, 0)


@pytest.mark.cluster
def test_workers_read_what_folds_share(store: Path, two_workers: Path) -> None:
    from distributed import Client

    candidates, options = ["elc", "label-entropy", "chi2"], {"folds": 3, "k_grid": "4"}
    held = evaluate(store, candidates, **options)
    with Client(scheduler_file=str(two_workers)):
        found = evaluate(store, candidates, **options)
    pd.testing.assert_frame_equal(found.rankings, held.rankings)
    assert found.fits["passes"].sum() == 2


@pytest.mark.filterwarnings("ignore:.* features? kept do")
@pytest.mark.parametrize("density", [0.05, 0.3])
def test_sparse_data_are_judged_alike_however_they_are_held(
    density: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory as a sparse or, being denser, as a dense matrix; out of memory as a dense one."""
    random = np.random.default_rng(0)
    X = sp.csr_array(sp.random_array((120, 30), density=density, rng=random))
    Y = (X[:, :3].toarray() + random.normal(0, 0.2, (120, 3)) > 0.1).astype(np.int8)
    store = make_store(tmp_path / "sparse.zarr", X, Y, partition_bytes=2048)
    options: dict[str, Any] = {"folds": 2, "k_grid": "10,30", "classifiers": ("mlknn", "logistic")}
    scored: list[bool] = []
    scores = Scorer.values

    def watched(self: Scorer, X: Any, *arguments: Any) -> Any:
        scored.append(sp.issparse(X))
        return scores(self, X, *arguments)

    monkeypatch.setattr(Scorer, "values", watched)
    held = evaluate(store, "elc", **options)
    assert set(scored) == {density < 0.1}
    monkeypatch.setattr("mlfs_dask.evaluation.table._HELD_FRACTION", 0.0)
    streamed = evaluate(store, "elc", **options)
    assert not scored[-1]
    pd.testing.assert_frame_equal(streamed.results, held.results, check_exact=False, rtol=1e-9)


def test_chosen_columns_are_read_once_for_all_k_and_folds_of_a_run(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finish(tmp_path / "a.elc", store, k=4)
    monkeypatch.setattr("mlfs_dask.evaluation.table._HELD_FRACTION", 0.0)
    readings: list[list[int]] = []
    from mlfs_dask.evaluation import table

    read = table.read_rows

    def watched(*arguments: Any, columns: np.ndarray, **more: Any) -> Any:
        readings.append(columns.tolist())
        return read(*arguments, columns=columns, **more)

    monkeypatch.setattr(table, "read_rows", watched)
    with pytest.warns(UserWarning, match=r"a\.elc was learnt on all rows"):
        found = evaluate(store, str(run), folds=3, k_grid="1:4:1", metrics=("hamming_loss",))
    assert len(readings) == 1
    assert len(readings[0]) == 4
    assert len(found.results) == 3 * 4
    assert any("learnt on all rows" in text for text in found.record["warnings"])
    assert found.record["runs"][0]["learnt"] == "finished run"
    assert found.rankings[["repeat", "fold"]].drop_duplicates().values.tolist() == [[0, 0]]
    assert len(found.fits) == 1


@pytest.mark.parametrize("scale", ["standard", "none"])
def test_columns_in_a_file_give_the_same_bits(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: str
) -> None:
    options: dict[str, Any] = {"folds": 2, "k_grid": "2,4", "classifiers": ("mlknn", "logistic", "sgd"), "scale": scale}
    held = evaluate(store, ["elc", "random"], **options)
    monkeypatch.setattr("mlfs_dask.evaluation.table._HELD_FRACTION", 0.0)
    monkeypatch.setattr("mlfs_dask.evaluation.column_subset.BLOCK_VALUES", 1)
    monkeypatch.setattr("mlfs_dask.evaluation.column_subset.BLOCK_ROWS", 2**20)
    streamed = evaluate(store, ["elc", "random"], **options)
    monkeypatch.setattr("mlfs_dask.evaluation.experiment.plan_scoring", lambda *_: ScoringPlan(0, tmp_path, True, None))
    mapped: list[bool] = []
    take = Table.columns

    def watched(table: Table, *rest: Any) -> Any:
        found = take(table, *rest)
        mapped.append(is_mapped(found))
        return found

    monkeypatch.setattr(Table, "columns", watched)
    with pytest.warns(UserWarning, match=f"kept in a file in {tmp_path}"):
        filed = evaluate(store, ["elc", "random"], **options)
    assert mapped == [True] * 6  # ELC's for each k
    for other in (streamed, filed):
        pd.testing.assert_frame_equal(other.results, held.results, check_exact=True)
    assert list(tmp_path.glob("mlfs-columns-*")) == []


def test_a_training_part_that_does_not_fit_is_fitted_by_stochastic_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = planted()
    options: dict[str, Any] = {"labels": Y, "folds": 2, "k_grid": "3"}
    sgd = evaluate(X, "elc", classifiers=("sgd",), **options)
    monkeypatch.setattr("mlfs_dask.evaluation.experiment.plan_scoring", lambda *_: ScoringPlan(0, None, False, None))
    with pytest.warns(UserWarning, match="fitted block by block with stochastic gradients"):
        found = evaluate(X, "elc", classifiers=("logistic",), **options)
    assert found.results["classifier"].unique().tolist() == ["logistic"]
    assert found.results["value"].equals(sgd.results["value"])
    assert any("stochastic" in text for text in found.record["warnings"])


def test_ml_knn_learns_from_a_sample_of_too_many_rows(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    fit = MLkNN.fit_rows

    def watched(model: MLkNN, rows: Any, Y: Any, *rest: Any) -> MLkNN:
        assert len(rows) == Y.shape[0]
        given.append(len(rows))
        return fit(model, rows, Y, *rest)

    monkeypatch.setattr(MLkNN, "fit_rows", watched)
    monkeypatch.setattr("mlfs_dask.evaluation.scoring.SEARCH_WORK", 64 * 30 * (30 + 45))
    options: dict[str, Any] = {"folds": 2, "k_grid": "2"}
    with pytest.warns(
        UserWarning,
        match="learns from 30 of up to 45 training rows, drawn at random.*some 1 min .give max_train_rows=45 for it",
    ):
        found = evaluate(store, "elc", **options)
    assert given == [30, 30]
    assert found.record["judging"]["mlknn_rows"] == 30
    with pytest.warns(UserWarning, match="learns from 30"):
        again = evaluate(store, "elc", **options)
    pd.testing.assert_frame_equal(found.results, again.results)
    assert evaluate(store, "elc", max_train_rows=45, **options).record["judging"]["mlknn_rows"] is None
    assert given[-2:] == [45, 45]


def test_the_grid_is_the_runs_k_unless_told(store: Path, tmp_path: Path) -> None:
    run = finish(tmp_path / "a.elc", store, k=4)
    with pytest.warns(UserWarning, match="learnt on all rows"):
        assert Experiment(store, [str(run), "elc"]).plan()["k"] == [4]
    assert Experiment(store, ["elc"]).plan()["k"] == [1, 2, 3, 4]  # 10 % to 50 % of 8


def test_random_features_differ_between_folds_and_all_has_one_point() -> None:
    X, Y = planted()
    found = evaluate(X, ["random", "all"], labels=Y, folds=2, repeats=2, k_grid="5", metrics=("hamming_loss",))
    drawn = found.rankings.groupby(["repeat", "fold"])["feature_index"].agg(tuple)
    assert len(set(drawn)) == 4
    assert found.results.query("run == 'all'")["k"].unique().tolist() == [D]
    assert set(found.rankings["run"]) == {"random"}
    assert found.fits.empty
    again = evaluate(X, ["random", "all"], labels=Y, folds=2, repeats=2, k_grid="5", metrics=("hamming_loss",))
    pd.testing.assert_frame_equal(found.results, again.results)


def test_labels_are_hidden_from_methods_as_they_can_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    X, Y = planted()
    options: dict[str, Any] = {"labels": Y, "split": "holdout", "k_grid": "2", "metrics": ("hamming_loss",)}
    evaluate(X, ["elc", "smfs"], labelled_rows=0.5, missing_labels=0.25, **options)
    (_, rows, labels), (_, every, coded) = seen.parts
    assert (len(rows), len(every)) == (36, 72)
    hidden = (coded == -1).all(axis=1)
    assert hidden.sum() == 36
    assert np.array_equal(every[~hidden], rows)
    assert np.array_equal(coded[~hidden], labels)
    true = {tuple(x): y for x, y in zip(X, Y, strict=True)}
    positives = sum(int(true[tuple(x)].sum()) for x in rows)
    assert labels.sum() == positives - round(0.25 * positives)
    evaluate(X, ["smfs"], labelled_rows=0.5, hidden_as="zero", **options)
    assert (seen.parts[-1][2] >= 0).all()
    assert len(seen.parts[-1][1]) == 72


@pytest.mark.filterwarnings("ignore:Access-MFS did not converge")
def test_test_rows_are_seen_without_labels_where_the_protocol_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    X, Y = planted()
    found = evaluate(
        *(X, ["access-mfs:max_iter=2", "elc"]),
        labels=Y,
        protocol="access-mfs-2024",
        k_grid="3",
        repeats=1,
    )
    (_, every, coded), (_, rows, labels) = seen.parts
    assert np.array_equal(every, X)  # in their places
    assert (len(rows), int((coded == -1).all(axis=1).sum())) == (27, 63)
    assert (labels >= 0).all()
    assert found.record["simulation"]["unlabelled_test"] is True
    assert found.record["splits"]["test_rows"] == [63]


def test_classifiers_learn_from_the_labels_that_are_left_or_from_all(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    fit = MLkNN.fit_rows

    def watched(model: MLkNN, rows: Any, Y: Any, *rest: Any) -> MLkNN:
        given.append((len(rows), int(Y.sum())))
        return fit(model, rows, Y, *rest)

    monkeypatch.setattr(MLkNN, "fit_rows", watched)
    X, Y = planted()
    options: dict[str, Any] = {"labels": Y, "split": "holdout", "k_grid": "2", "labelled_rows": 0.5}
    evaluate(X, "random", **options)
    evaluate(X, "random", classifier_labels="full", **options)
    evaluate(X, "random", classifier_labels="full", max_train_rows=20, **options)
    (split,) = make_splits("holdout", label_matrix(Y))
    assert given[0][0] == 36
    assert given[1] == (72, int(Y[split.train].sum()))
    assert given[2][0] == 20


@pytest.mark.filterwarnings("ignore:.*labels? has no known positive row", "ignore:label .column 3 .* known in no row")
@pytest.mark.parametrize("method", ["random", "elc", "br-cc", "chi2", "mfsir", "rfs"])
def test_what_is_known_of_test_rows_is_judged(method: str) -> None:
    X, Y = planted()
    Y = np.column_stack([Y, np.full(N, -1, np.int8)])  # of one label nothing is known
    unknown = np.random.default_rng(0).random(Y.shape) < 0.5
    unknown[:5] = True
    unknown[:, 3] = True
    truth = np.where(unknown, -1, Y)
    fold_of = np.arange(N) % 3
    options: dict[str, Any] = {"fold_of": fold_of, "k_grid": "3", "classifiers": ("mlknn",), "n_neighbors": 5}
    with pytest.warns(
        UserWarning, match=rf"{unknown.sum()} of {4 * N} labels of test rows are unknown: metrics use the "
    ) as given:
        found = evaluate(X, method, labels=truth, metrics=("hamming_loss", "average_precision"), **options)
    (named,) = [str(each.message) for each in given if "known in no row" in str(each.message)]  # not in every fold
    assert named == "label (column 3 of Y, counted from 0) is known in no row, and has no part in the scores"
    assert found.record["judging"]["judged_entries"] == (~unknown).sum()
    ranking = found.rankings.query("fold == 1").sort_values("rank")["feature_index"].to_numpy()
    train, test = fold_of != 1, (fold_of == 1) & ~unknown.all(axis=1)
    scaler = StandardScaler().fit(X[train][:, ranking])
    model = MLkNN(5).fit(scaler.transform(X[train][:, ranking]), sp.csr_array(truth[train]))
    scores = model.predict_proba(scaler.transform(X[test][:, ranking]))
    expected = compute_metrics(Predictions(truth[test], scores), ("hamming_loss", "average_precision"))
    values = found.results.query("fold == 1").set_index("metric")["value"]
    assert values.to_dict() == pytest.approx(dict(expected), rel=1e-9)
    with (
        pytest.warns(UserWarning, match="labels of test rows are unknown: metrics use the"),
        pytest.raises(DataError, match="no label is known in any test row of fold 0"),
    ):
        evaluate(X, method, labels=np.where(fold_of[:, np.newaxis] == 0, -1, truth), **options)


def test_other_rows_to_test_on(store: Path, tmp_path: Path) -> None:
    X, Y = planted()
    X2, Y2 = planted(1)
    second = make_store(tmp_path / "second.zarr", X2[:40], Y2[:40], partition_bytes=2048)
    run = finish(tmp_path / "a.elc", store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the run has not seen the test rows
        found = evaluate(store, ["elc", str(run)], test=second, k_grid="3")
    expected = evaluate(
        *(np.concatenate([X, X2[:40]]), "elc"),
        labels=np.concatenate([Y, Y2[:40]]),
        fold_of=np.r_[np.full(N, -1), np.zeros(40, int)],
        k_grid="3",
    )
    mine = found.results.query("run == 'elc'")["value"].tolist()
    assert mine == pytest.approx(expected.results["value"].tolist(), rel=1e-9, nan_ok=True)
    assert found.results.query("run == 'a.elc'")["value"].tolist() == pytest.approx(mine, nan_ok=True)
    narrow = make_store(tmp_path / "narrow.zarr", X2[:, :5], Y2)
    with pytest.raises(DataError, match='feature "é 5\'" is in the rows to learn from alone'):
        evaluate(store, "elc", test=narrow)
    with pytest.raises(DataError, match="have 8 features and 3 labels, the test rows 5 and 3"):
        evaluate(X, "elc", labels=Y, test=(X2[:, :5], Y2))


def test_what_is_finished_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = planted()
    options: dict[str, Any] = {"labels": Y, "folds": 3, "k_grid": "2"}
    whole = evaluate(X, ["elc"], **options)
    keeper, save = PartialResults(tmp_path / "parts", {}, resume=False), PartialResults.save

    def save_two(partial_results: PartialResults, *part: Any) -> None:
        save(partial_results, *part)
        if len(list((tmp_path / "parts").iterdir())) > 1 + 2:  # beside the job
            raise KeyboardInterrupt

    monkeypatch.setattr(PartialResults, "save", save_two)
    with pytest.raises(KeyboardInterrupt):
        evaluate(X, ["elc"], partial_results=keeper, **options)
    monkeypatch.undo()
    seen = Seen(monkeypatch)
    again = evaluate(X, ["elc"], partial_results=keeper, **options)
    assert len(seen.parts) == 0  # the third ranking was saved before it was scored
    pd.testing.assert_frame_equal(again.results, whole.results)
    pd.testing.assert_frame_equal(again.rankings, whole.rankings)


def test_the_job_tells_different_evaluations_apart(store: Path) -> None:
    job = Experiment(store, ["elc"]).job()
    assert job == Experiment(store, ["elc"]).job()
    assert job != Experiment(store, ["elc"], seed=1).job()
    assert job != Experiment(store, ["elc", "random"]).job()
    assert job != Experiment(store, ["elc"], fold_of=np.arange(N) % 2).job()


def test_the_job_names_the_rows_that_are_judged(store: Path, tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("one.zarr", "two.zarr")]
    for seed, place in enumerate(others, 1):
        make_store(place, *planted(seed))
    one, two = (Experiment(store, ["elc"], test=place) for place in others)
    assert one.job() != two.job()
    moved = others[0].rename(tmp_path / "moved.zarr")
    assert Experiment(store, ["elc"], test=moved).job() == one.job()
    result = evaluate(store, ["elc"], test=moved, k_grid="2", classifiers=["mlknn"])
    assert result.record["store"]["test_path"] == str(moved)
    with pytest.raises(UsageError, match="do not have the same store"):
        mlfs.compare([result, evaluate(store, ["random"], test=others[1], k_grid="2", classifiers=["mlknn"])])


def test_what_does_not_fit_is_refused_before_anything_is_learnt(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    monkeypatch.setattr("mlfs_dask.evaluation.scoring._BLOCK_BYTES", 2**32)
    with (
        process_limits(memory_limit=driver_bytes() + 2**31),
        pytest.raises(DoesNotFitError, match="scoring 4 columns of 90 rows") as error,
    ):
        evaluate(store, "elc")
    assert "max_train_rows" in str(error.value)
    assert not seen.parts


def test_missing_feature_values_are_refused(tmp_path: Path) -> None:
    X, Y = planted()
    X[3, 2] = np.inf
    with pytest.raises(DataError, match="feature 2 has infinite values"):
        evaluate(X, "all", labels=Y, folds=2, k_grid="2", missing="mean")
    X, Y = planted()
    X[3::7, 1] = np.nan
    with pytest.raises(DataError, match="feature 1 has missing"):
        evaluate(X, "all", labels=Y, folds=2, k_grid="2")
    store = make_store(tmp_path / "holes.zarr", X, Y)
    name = re.escape(repr(str(mlfs.open_dataset(store).feature_names[1])))
    with pytest.raises(DataError, match=f"feature {name} has missing"):
        evaluate(store, "all", folds=2, k_grid="2")
    with pytest.raises(DataError, match=f"column {name}: X contains NaN"):
        evaluate(store, "elc", folds=2, k_grid="2")


@pytest.mark.parametrize("how", ["mean", "median"])
@pytest.mark.parametrize(("held", "where"), [(False, "all rows"), (True, "all rows"), (True, "judged rows")])
def test_missing_features_are_filled_from_the_training_rows(
    how: str, held: bool, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = planted()
    fold_of = np.where(np.arange(N) % 3 == 0, 0, -1)
    lacks = np.random.default_rng(1).random(X.shape) < 0.2
    X[lacks & (fold_of[:, np.newaxis] >= (0 if where == "judged rows" else -1))] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = (np.nanmean if how == "mean" else np.nanmedian)(X[fold_of < 0], axis=0)
    options: dict[str, Any] = {"fold_of": fold_of, "k_grid": "2,4", "classifiers": ("mlknn", "logistic")}
    candidates = ["elc", "label-entropy", "all"]
    filled = make_store(tmp_path / "filled.zarr", np.where(np.isnan(X), values, X), Y, partition_bytes=2048)
    holes = make_store(tmp_path / "holes.zarr", X, Y, partition_bytes=2048)
    if not held:
        monkeypatch.setattr("mlfs_dask.evaluation.table._HELD_FRACTION", 0.0)
    expected = evaluate(filled, candidates, **options)
    found = evaluate(holes, candidates, missing=how, **options)
    assert found.rankings["feature_index"].tolist() == expected.rankings["feature_index"].tolist()
    assert found.results["value"].tolist() == pytest.approx(expected.results["value"].tolist(), abs=1e-12, nan_ok=True)
    assert [run["params"] for run in found.record["runs"]] == [{"missing": how}] * 2 + [{}]
    own = evaluate(holes, "label-entropy:missing=code", missing=how, **options)
    assert own.record["runs"][0]["params"] == {"missing": "code"}


def test_what_cannot_be(store: Path, tmp_path: Path) -> None:
    X, Y = planted()
    run = finish(tmp_path / "a.elc", store)
    other = make_store(tmp_path / "other.zarr", X + 1, Y)
    with pytest.raises(DataError, match="made from another store"):
        evaluate(other, str(run))
    with pytest.raises(DataError, match="no labels were given"):
        evaluate(X, "elc")
    with pytest.raises(UsageError, match="no option 'fold'"):
        evaluate(X, "elc", labels=Y, fold=3)
    with pytest.raises(UsageError, match="clusters has 3 entries for 90 rows"):
        evaluate(X, "elc", labels=Y, clusters=[1, 2, 3])
    with pytest.warns(UserWarning, match="the grid's 20 exceed"):
        assert Experiment(X, "elc", labels=Y, k_grid="2,20").plan()["k"] == [2]


# ---------------------------------------------------------------------------------------------------------
# Rankings of an earlier evaluation


EARLIER = ["elc", "mfsir:beta=0.5", "random", "all"]  # ELC's choice depends on k


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory, store: Path) -> str:
    place = str(tmp_path_factory.mktemp("earlier") / "earlier")
    found = evaluate(store, EARLIER, folds=3, repeats=2, k_grid="2,4,6", seed=5, metrics=("micro_f1",))
    write_eval(place, found)
    return place


def test_rankings_of_an_evaluation_are_judged_again(store: Path, earlier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"classifiers": ("logistic",), "metrics": ("hamming_loss", "micro_f1"), "k_grid": "2,4"}
    anew = evaluate(store, EARLIER, folds=3, repeats=2, seed=5, **asked)
    for method in (mlfs.ELC, mlfs.MFSIR):
        monkeypatch.setattr(method, "fit", lambda *_: pytest.fail("learnt again"))
    again = evaluate(store, earlier, **asked)
    pd.testing.assert_frame_equal(again.results, anew.results)
    assert Experiment(store, [earlier]).plan()["fits"] == 0
    assert evaluate(store, [earlier, "gmm"]).results["run"].unique().tolist() == [*EARLIER, "gmm"]
    fits = read_eval(earlier).fits
    pd.testing.assert_frame_equal(again.fits, fits)
    assert [run["learnt"] for run in again.record["runs"]] == ["training part"] * 4


def test_an_evaluation_is_repeated_without_options(store: Path, earlier: str) -> None:
    first, again = read_eval(earlier), evaluate(store, earlier)
    for table in ("results", "rankings", "fits"):
        pd.testing.assert_frame_equal(getattr(again, table), getattr(first, table))
    assert again.record["settings"] == first.record["settings"]
    assert again.record["splits"] == first.record["splits"]


def test_other_rankings_would_be_learnt(tmp_path: Path, store: Path, earlier: str) -> None:
    X, Y = planted(1)
    other = make_store(tmp_path / "other.zarr", X, Y)
    with pytest.raises(DataError, match=r"(?s)rankings of elc were learnt .*, not on this store .* method \(elc\)"):
        evaluate(other, earlier)
    with pytest.raises(DataError, match="not on this part of it"):
        evaluate(mlfs.open_dataset(store).subset(features=range(6)), earlier)
    arrays = tmp_path / "arrays"
    write_eval(str(arrays), evaluate(X, "gmm", labels=Y, folds=3, k_grid="2"))
    with pytest.raises(DataError, match="not on this store"):
        evaluate(X, str(arrays), labels=Y)
    for options, message in (
        ({"folds": 4}, "on other training rows, with 3 folds, 2 times"),
        ({"seed": 6}, "on other training rows, with seed=5"),
        ({"labelled_rows": 0.5, "hidden_as": "zero"}, r"with labelled_rows=1\.0 and hidden_as='unknown'"),
        ({"k_grid": "2,3"}, r"(?s)for k = 2, 4, 6, and not for 3.*give k_grid that they have, or the method"),
    ):
        with pytest.raises(DataError, match=message):
            evaluate(store, earlier, **options)
    with pytest.raises(DataError, match=r"rankings of mfsir:beta=0\.5 .* for k = 6, and not for 7"):
        evaluate(store, [*split_off(tmp_path, earlier, "mfsir:beta=0.5")], k_grid="3,7")


def test_fewer_features_than_were_ranked(tmp_path: Path, store: Path, earlier: str) -> None:
    found = evaluate(store, split_off(tmp_path, earlier, "mfsir:beta=0.5"), k_grid="3")
    expected = evaluate(store, "mfsir:beta=0.5", folds=3, repeats=2, seed=5, k_grid="3", metrics=("micro_f1",))
    pd.testing.assert_frame_equal(found.results, expected.results)


def split_off(tmp_path: Path, earlier: str, run: str) -> list[str]:
    """The evaluation of one run alone."""
    found = read_eval(earlier)
    tables = (table[table["run"] == run] for table in (found.results, found.rankings, found.fits))
    record = {**found.record, "runs": [each for each in found.record["runs"] if each["run"] == run]}
    write_eval(str(tmp_path / "one"), Evaluation(*tables, record))
    return [str(tmp_path / "one")]


def test_columns_that_are_planned_into_a_file_are_not_made_dense_in_memory(tmp_path: Path) -> None:
    table = open_table(sp.random_array((200, 20), density=0.3, format="csr", rng=0), np.zeros((200, 2), int))
    assert sp.issparse(table.columns(np.arange(5), current_resources(), tmp_path))
