"""The network of LassoNet: its projection, gradients, batches, and a path without features at its end."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.proximal import hierarchical_prox, row_norms, shrink_entries
from mlfs_dask.solvers.hierarchical_network import Network, Rows, train_path
from tests.conftest import published


def test_the_projection_is_that_of_the_authors():
    """Their bound of the sum of the hidden weights is a shrinkage before."""
    given = published("lassonet")
    at = dict.fromkeys(("linear", "hidden", "linear_after", "hidden_after"), 0)

    def cut(name, *shape):
        start, at[name] = at[name], at[name] + np.prod(shape)
        return given[name][start : at[name]].reshape(shape)

    for (d, q, h), (lambda_, lambda_bar, M) in zip(given["shapes"], given["parameters"], strict=True):
        V, U = cut("linear", d, q), shrink_entries(cut("hidden", d, h).copy(), lambda_bar)
        linear, hidden = hierarchical_prox(V, U, lambda_, M)
        assert linear == pytest.approx(cut("linear_after", d, q), abs=1e-10)
        assert hidden == pytest.approx(cut("hidden_after", d, h), abs=1e-10)
    assert len(given["shapes"]) == 12


def test_no_feasible_point_is_nearer_than_the_projection():
    rng = np.random.default_rng(0)
    for M in (0.1, 1.0, 10.0):
        V, U = rng.normal(size=(6, 2)), rng.normal(size=(6, 5))
        linear, hidden = hierarchical_prox(V, U, 0.7, M)
        assert (np.abs(hidden).max(axis=1) <= M * row_norms(linear) * (1 + 1e-12)).all()

        def objective(b, a, V=V, U=U):
            return 0.5 * ((b - V) ** 2).sum() + 0.5 * ((a - U) ** 2).sum() + 0.7 * row_norms(b).sum()

        least = objective(linear, hidden)
        for size in (1e-3, 0.1, 1.0):
            for _ in range(50):
                b, a = linear + size * rng.normal(size=V.shape), hidden + size * rng.normal(size=U.shape)
                a = np.clip(a, -M * row_norms(b)[:, np.newaxis], M * row_norms(b)[:, np.newaxis])
                assert objective(b, a) >= least


def test_gradients_are_slopes_of_the_loss():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(20, 4)), rng.random((20, 3))
    network = Network(4, 3, 6, rng)
    for gradient, values in zip(network.gradients(X, Y), network.parameters, strict=True):
        for place in np.ndindex(values.shape):
            was, slopes = values[place], []
            for step in (1e-6, -1e-6):
                values[place] = was + step
                slopes.append(network.loss(X, Y))
            values[place] = was
            assert gradient[place] == pytest.approx((slopes[0] - slopes[1]) / 2e-6, abs=1e-7)


def train(X, Y, rows=np.asarray, **parameters):
    given = {"n_hidden": 4, "M": 10.0, "lambda_start": 0.5, "multiplier": 1.3, "batch_size": 16, "seed": 0}
    return train_path(Rows(rows(X), X.mean(axis=0), 1.0 / X.std(axis=0)), Y, **given, **parameters)


def problem():
    rng = np.random.default_rng(2)
    Y = (rng.random((60, 2)) < 0.4).astype(float)
    return np.hstack([Y + 0.2 * rng.normal(size=(60, 2)), rng.normal(size=(60, 3))]).round(3), Y


def test_all_features_leave_the_path_and_those_of_labels_last():
    X, Y = problem()
    events = []
    with runtime.progress_to(events.append):
        path = train(X, Y, max_epochs=100, path_epochs=20)
    assert set(np.argsort(path.leaves_at)[-2:]) == {0, 1}
    assert path.strengths[:3] == pytest.approx([0.0, 0.5, 0.65])
    assert path.leaves_at.min() >= 0.5
    assert path.leaves_at.max() == path.strengths[-1]
    assert len(path.losses) == len(path.strengths)
    stages = [event["label"] for event in events if event["kind"] == "stage"]
    assert stages == ["training a network", "removing features"]
    parts = [event for event in events if event["kind"] == "parts"]
    assert 5 < len(parts) <= 105  # epochs of the first stage, and five features


def test_sparse_rows_give_the_same_bits():
    X, Y = problem()
    X[np.abs(X) < 0.3] = 0.0
    dense, sparse = (train(X, Y, rows, max_epochs=20, path_epochs=3) for rows in (np.asarray, sp.csr_array))
    assert dense.losses == sparse.losses
    assert dense.leaves_at.tolist() == sparse.leaves_at.tolist()
