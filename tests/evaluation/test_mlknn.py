"""ML-kNN: the published program's numbers, its definition as loops, and scikit-learn's checks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import mlfs_dask as mlfs
from mlfs_dask.blocks.sparse import as_matrix
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.metrics import Predictions, compute_metrics
from mlfs_dask.evaluation.mlknn import MLkNN
from mlfs_dask.readers.base import LabelSpec

PUBLISHED = Path(__file__).parent / "test_mlknn" / "emotions.npz"


def by_definition(X: np.ndarray, Y: np.ndarray, new: np.ndarray, k: int, s: float) -> np.ndarray:
    """Posteriors by loops over rows and labels; unknown labels as MLkNN documents."""
    n, q = Y.shape

    def count(x: np.ndarray, own: int | None) -> np.ndarray:
        order = sorted((i for i in range(n) if i != own), key=lambda i: (((X[i] - x) ** 2).sum(), i))
        return (Y[order[:k]] == 1).sum(axis=0)

    counts = np.array([count(X[i], i) for i in range(n)])
    result = np.empty((len(new), q))
    for j in range(q):
        known = [i for i in range(n) if Y[i, j] >= 0]
        prior = (s + sum(Y[i, j] for i in known)) / (2 * s + len(known))
        like = []
        for value in (0, 1):
            times = np.array([sum(counts[i, j] == c for i in known if Y[i, j] == value) for c in range(k + 1)])
            like.append((s + times) / (s * (k + 1) + times.sum()))
        for r, x in enumerate(new):
            c = count(x, None)[j]
            yes, no = prior * like[1][c], (1 - prior) * like[0][c]
            result[r, j] = yes / (yes + no)
    return result


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(3, 14), st.integers(1, 5), st.booleans(), st.booleans())
def test_posteriors_equal_their_definition(seed: int, n: int, k: int, sparse: bool, unknown: bool) -> None:
    random = np.random.default_rng(seed)
    X = random.integers(0, 3, (n, 4)).astype(float)  # few values: distances tie
    Y = random.integers(-1 if unknown else 0, 2, (n, 3))
    new = random.integers(0, 3, (5, 4)).astype(float)
    model = MLkNN(k, smoothing=0.5)
    k = min(k, n - 1)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error")
        patch.setattr("mlfs_dask.evaluation.mlknn.BLOCK_VALUES", 2 * 3)
        # in a dense array of 1 and -1 alone -1 would be negative; in a sparse one it is unknown whatever else there is
        model.fit(sp.csr_array(X) if sparse else X, sp.csr_array(Y))
        found = model.predict_proba(sp.csr_array(new) if sparse else new)
    if model.n_neighbors < n:
        np.testing.assert_allclose(found, by_definition(X, Y, new, k, 0.5), rtol=1e-12)
    assert np.array_equal(model.predict(new), found >= 0.5)


def test_the_published_program_gives_the_same_numbers(data_set: Callable[[str], Path], tmp_path: Path) -> None:
    folder = data_set("emotions")
    mlfs.convert([folder / "emotions.arff"], tmp_path / "e.zarr", labels=LabelSpec(xml=str(folder / "emotions.xml")))
    dataset = mlfs.open_dataset(tmp_path / "e.zarr")
    X, Y = np.asarray(dataset.X.compute()), np.asarray(as_matrix(dataset.Y.compute()))
    known = np.load(PUBLISHED)
    train, test = slice(0, 391), slice(391, 593)  # Mulan's split
    mean, std = X[train].mean(axis=0), X[train].std(axis=0, ddof=1)
    Z = (X - mean) / np.where(std > 0, std, 1)
    model = MLkNN().fit(Z[train], Y[train])
    np.testing.assert_allclose(model.prior_, known["Prior"], rtol=1e-14)
    np.testing.assert_allclose(model.likelihood_[1], known["Cond"], rtol=1e-14)
    np.testing.assert_allclose(model.likelihood_[0], known["CondN"], rtol=1e-14)
    scores = model.predict_proba(Z[test])
    np.testing.assert_allclose(scores.T, known["Outputs"], rtol=1e-13)
    predicted = model.predict(Z[test]).astype(np.int8)
    assert np.array_equal(predicted.T, known["Pre_Labels"] > 0)
    found = compute_metrics(Predictions(Y[test], scores))
    for name, theirs in {
        "hamming_loss": "HammingLoss",
        "ranking_loss": "RankingLoss",
        "one_error": "OneError",
        "coverage": "Coverage",
        "average_precision": "AveragePrecision",
        "macro_f1": "MacroF1",
        "micro_f1": "MicroF1",
        "subset_accuracy": "SubsetAccuracy",
    }.items():
        assert found[name] == pytest.approx(float(known[theirs]), rel=1e-12), name


@parametrize_with_checks(
    [MLkNN(2)],
    expected_failed_checks=lambda _: {
        "check_supervised_y_2d": "a column is one label, 0 or 1, and not classes",
    },
)
def test_scikit_learn_checks(estimator: MLkNN, check: Callable[[MLkNN], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_works_in_pipelines_cross_validation_and_searches() -> None:
    random = np.random.default_rng(0)
    Y = random.integers(0, 2, (90, 2))
    X = np.hstack([random.normal(size=(90, 5)), Y + random.normal(0, 0.1, (90, 2))])
    pipe = make_pipeline(mlfs.ELC(2), MLkNN(3))
    assert clone(pipe).get_params()["mlknn__n_neighbors"] == 3
    scores = cross_validate(pipe, X, Y, cv=3, scoring=["accuracy", "f1_macro"])
    assert scores["test_accuracy"].mean() > 0.9
    search = GridSearchCV(pipe, {"elc__n_features_to_select": [2, 7], "mlknn__n_neighbors": [3, 5]}, cv=3).fit(X, Y)
    assert search.best_params_["elc__n_features_to_select"] == 2
    assert search.best_estimator_[0].get_support().nonzero()[0].tolist() == [5, 6]


def test_classes_of_which_a_row_has_one() -> None:
    X = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    model = MLkNN(2).fit(X, list("aaabbb"))
    assert model.predict([[1.5], [11.5]]).tolist() == ["a", "b"]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_what_cannot_be() -> None:
    X = np.zeros((4, 2))
    with pytest.raises(UsageError, match="n_neighbors=0"):
        MLkNN(0).fit(X, np.ones((4, 1)))
    for smoothing in (0.0, np.inf, np.nan):
        with pytest.raises(UsageError, match=f"smoothing finite and above 0; .* smoothing={smoothing}"):
            MLkNN(2, smoothing=smoothing).fit(X, np.ones((4, 1)))
    with pytest.raises(DataError, match="requires y to be passed"):
        MLkNN().fit(X, None)
    with pytest.raises(DataError, match="X has 4 rows and y has 3"):
        MLkNN().fit(X, np.ones((3, 1)))
