"""The network of LassoNet: its projection, gradients, batches, and a path without features at its end."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import runtime
from mlfs_dask.blocks.proximal import hierarchical_prox, shrink_entries
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
