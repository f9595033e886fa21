"""Metrics against cases done by hand and against their definitions, written as loops."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.errors import UsageError
from mlfs_dask.evaluation import metrics
from mlfs_dask.evaluation.metrics import DEFAULT_METRICS, Predictions, compute_metrics, get_metric


def predictions(truth: object, scores: object) -> Predictions:
    return Predictions(np.array(truth, np.int8), np.array(scores, float))


def by_definition(case: Predictions) -> dict[str, float]:
    """Every metric as a loop over rows, labels and pairs, of what is known."""
    truth, S = np.asarray(case.truth), case.scores
    known, Y, P = truth >= 0, (truth > 0).astype(np.int8), (S >= 0.5).astype(np.int8)
    m, q = Y.shape
    some = [i for i in range(m) if Y[i].any()]
    order = [i for i in some if (truth[i] == 0).any()]
    mean = lambda values: float(np.mean(values)) if len(values) else math.nan  # noqa: E731
    losses, errors, precisions = [], [], []
    for i in order:
        yes, no, judged = np.flatnonzero(Y[i]), np.flatnonzero(truth[i] == 0), np.flatnonzero(known[i])
        losses.append(np.mean([S[i, a] <= S[i, b] for a in yes for b in no]))
        best = min(judged, key=lambda label: (-S[i, label], label))
        errors.append(1 - Y[i, best])
        precisions.append(np.mean([sum(S[i, yes] >= S[i, a]) / sum(S[i, judged] >= S[i, a]) for a in yes]))
    entries = np.argwhere(known).tolist()
    found = {
        "hamming_loss": mean([Y[i, j] != P[i, j] for i, j in entries]),
        "subset_accuracy": mean([(Y[i] == P[i])[known[i]].all() for i in range(m) if known[i].any()]),
        "ranking_loss": mean(losses),
        "one_error": mean(errors),
        "average_precision": mean(precisions),
        "coverage": mean([max(sum(S[i, known[i]] >= S[i, a]) for a in np.flatnonzero(Y[i])) - 1 for i in some]),
    }

    def f1(truth: np.ndarray, predicted: np.ndarray) -> float:
        both = truth.sum() + predicted.sum()
        return 2 * (truth & predicted).sum() / both if both else 0.0

    def auc(truth: np.ndarray, scores: np.ndarray) -> float:
        yes, no = scores[truth == 1], scores[truth == 0]
        return mean([(a > b) + 0.5 * (a == b) for a in yes for b in no])

    columns = [j for j in range(q) if known[:, j].any()]
    found["macro_f1"] = mean([f1(Y[known[:, j], j], P[known[:, j], j]) for j in columns])
    found["micro_f1"] = f1(Y[known], P[known]) if entries else math.nan
    both = [j for j in columns if 0 < Y[:, j].sum() < known[:, j].sum()]
    found["macro_auc"] = mean([auc(Y[known[:, j], j], S[known[:, j], j]) for j in both])
    found["micro_auc"] = auc(Y[known], S[known])
    for k in (1, 3, 5):
        hits = []
        for i in some:
            falling = sorted(np.flatnonzero(known[i]), key=lambda label, i=i: (-S[i, label], label))
            if len(falling) >= k:
                hits.append(np.mean([Y[i, j] for j in falling[:k]]))
        found[f"precision_at_{k}"] = mean(hits)
    return found


@settings(max_examples=60)
@given(
    *(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1), st.sampled_from([2, 4, 1000])),
    *(st.integers(1, 20), st.sampled_from([0.0, 0.3, 0.9])),
)
def test_metrics_equal_their_definitions_for_any_blocks(
    m: int, q: int, seed: int, levels: int, entries: int, unknown: float
) -> None:
    random = np.random.default_rng(seed)  # few levels make ties
    truth = (random.random((m, q)) < random.random(q)).astype(np.int8)
    truth[random.random((m, q)) < unknown] = -1
    case = predictions(truth, random.integers(0, levels + 1, (m, q)) / levels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_BLOCK_ENTRIES", entries)
        found = compute_metrics(case)
        # Sparse, every entry stored.
        truth = sp.csr_array((case.truth.ravel(), np.tile(np.arange(q), m), np.arange(0, m * q + 1, q)), shape=(m, q))
        assert compute_metrics(Predictions(truth, case.scores)) == pytest.approx(dict(found), nan_ok=True)
    expected = by_definition(case)
    assert found.keys() == expected.keys() == set(DEFAULT_METRICS)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("levels", [10, 10**9])
@pytest.mark.parametrize("density", [0.1, 0.8])
def test_values_are_those_of_scikit_learn(levels: int, density: float) -> None:
    random = np.random.default_rng(levels)
    Y = (random.random((500, 12)) < density).astype(np.int8)
    S = random.integers(0, levels + 1, Y.shape) / levels
    P, found = (S >= 0.5).astype(np.int8), compute_metrics(predictions(Y, S))
    some = Y.any(axis=1)
    ordered = some & ~Y.all(axis=1)
    assert 0 < ordered.sum() < len(Y)
    expected = {
        "hamming_loss": sklearn.metrics.hamming_loss(Y, P),
        "subset_accuracy": sklearn.metrics.accuracy_score(Y, P),
        "macro_f1": sklearn.metrics.f1_score(Y, P, average="macro"),
        "micro_f1": sklearn.metrics.f1_score(Y, P, average="micro"),
        "macro_auc": sklearn.metrics.roc_auc_score(Y, S, average="macro"),
        "micro_auc": sklearn.metrics.roc_auc_score(Y, S, average="micro"),
        "coverage": sklearn.metrics.coverage_error(Y[some], S[some]) - 1,
        "ranking_loss": sklearn.metrics.label_ranking_loss(Y[ordered], S[ordered]),
        "average_precision": sklearn.metrics.label_ranking_average_precision_score(Y[ordered], S[ordered]),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name


@pytest.mark.parametrize("density", [0.03, 0.5, 0.97])
def test_what_is_held_beside_scores_is_as_planned(density: float, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = 2**14
    monkeypatch.setattr(metrics, "_BLOCK_ENTRIES", entries)
    random = np.random.default_rng(0)
    m, q = 20_000, 50
    truth = sp.csr_array((random.random((m, q)) < density).astype(np.int8))
    case = Predictions(truth, random.random((m, q)))
    tracemalloc.start()
    compute_metrics(case)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < metrics.metrics_bytes(case.scores.size, truth.nnz)


def test_precision_exists_for_every_number() -> None:
    assert get_metric("precision_at_2").title == "Precision at 2"
    case = predictions([[1, 0, 1]], [[0.9, 0.8, 0.1]])
    assert compute_metrics(case, ["precision_at_2"])["precision_at_2"] == 0.5


def test_unknown_names_are_refused_with_the_closest() -> None:
    with pytest.raises(UsageError, match="Did you mean hamming_loss"):
        get_metric("haming_loss")
    with pytest.raises(UsageError, match="no metric 'precision_at_0'"):
        get_metric("precision_at_0")
