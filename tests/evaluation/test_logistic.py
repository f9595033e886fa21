"""Binary relevance by logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from mlfs_dask.errors import DataError
from mlfs_dask.evaluation.column_subset import ColumnSubset
from mlfs_dask.evaluation.logistic import BinaryRelevanceLogistic
from mlfs_dask.selection.labels import label_matrix


def planted(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Label j follows feature j; label 2 never applies, label 3 always, label 4 is nowhere known."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 3))
    Y = np.zeros((n, 5), int)
    Y[:, :2] = X[:, :2] + random.normal(0, 0.3, (n, 2)) > 0
    Y[:, 3], Y[:, 4] = 1, -1
    return X, Y


def test_every_label_has_scikit_learns_model() -> None:
    """Of the rows where the label is known."""
    X, Y = planted()
    Y[:100, 0] = -1
    model = BinaryRelevanceLogistic(C=0.5).fit(X, Y)
    assert model.not_converged_ == 0
    for label, first in ((0, 100), (1, 0)):
        one = LogisticRegression(C=0.5, max_iter=1000).fit(X[first:], Y[first:, label])
        np.testing.assert_allclose(model.predict_proba(X)[:, label], one.predict_proba(X)[:, 1], rtol=1e-12)


def test_labels_of_one_class_are_constant_and_unknown_ones_even() -> None:
    X, Y = planted()
    scores = BinaryRelevanceLogistic().fit(X, Y).predict_proba(X)
    assert (scores[:, 2] == 0).all()
    assert (scores[:, 3] == 1).all()
    assert (scores[:, 4] == 0.5).all()


def test_blocks_come_close_to_the_exact_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlfs_dask.evaluation.column_subset.BLOCK_VALUES", 1)
    monkeypatch.setattr("mlfs_dask.evaluation.column_subset.BLOCK_ROWS", 64)
    X, Y = planted(2000)
    exact = BinaryRelevanceLogistic().fit(X, Y[:, :2]).predict_proba(X)
    rows, labels = ColumnSubset(X), label_matrix(Y[:, :2])
    sgd = BinaryRelevanceLogistic(epochs=20, random_state=0).fit_rows(rows, labels, None)
    assert np.abs(sgd.predict_proba(X) - exact).mean() < 0.02
    again = BinaryRelevanceLogistic(epochs=20, random_state=0).fit_rows(rows, labels, None)
    assert np.array_equal(again.predict_proba(X), sgd.predict_proba(X))


def test_labels_are_fitted_with_one_thread_of_every_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy and SciPy bring a BLAS each, whose threads wait for one another: thirty times slower on two cores."""
    seen: list[int] = []

    def recorded(self: LogisticRegression, *data: Any) -> LogisticRegression:
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return fit(self, *data)

    fit = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", recorded)
    X, Y = planted()
    with threadpool_limits(2, user_api="blas"):
        BinaryRelevanceLogistic().fit(X, Y)
    assert set(seen) == {1}


@pytest.mark.parametrize("n_jobs", [2, 9])
def test_threads_change_nothing(n_jobs: int) -> None:
    X, Y = planted()
    Y[:100, 0] = -1
    model = BinaryRelevanceLogistic(max_iter=5, n_jobs=n_jobs).fit(X, Y)
    alone = BinaryRelevanceLogistic(max_iter=5).fit(X, Y)
    assert np.array_equal(model.predict_proba(X), alone.predict_proba(X))
    assert model.not_converged_ == alone.not_converged_ == 2


def test_rows_must_agree() -> None:
    X, Y = planted()
    with pytest.raises(DataError, match="X has 399 rows and y has 400"):
        BinaryRelevanceLogistic().fit(X[1:], Y)
