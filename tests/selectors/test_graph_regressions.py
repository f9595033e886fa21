"""Regressions on labels that a graph of the rows makes alike: a program of authors, graphs of labels."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.statistics.label_statistics import neighbour_laplacian
from tests.conftest import published
from tests.problems import real_data
from tests.reference.graph_regressions import mdfs_steps, neighbour_graph


def test_the_plain_form_of_mdfs_has_the_weights_of_the_authors_on_emotions():
    """With their graphs of rows and labels; `test_matrix` compares with that form given a graph of anchors."""
    X, Y = real_data("emotions")
    oracle = published("mdfs")
    X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    L, L_0 = (np.diag(S.sum(axis=0)) - S for S in (neighbour_graph(X, 5), neighbour_graph(Y.T.astype(float), 5)))
    steps = {"alpha": 1.0, "beta": 1.0, "gamma": 100.0, "tol": 1e-3, "max_iter": 20}
    W, first, last, objective = mdfs_steps(X, Y, L, L_0, oracle["W0"], **steps)
    assert objective == pytest.approx(oracle["objective"], rel=1e-12)
    assert first[::20] == pytest.approx(oracle["F_first"], rel=1e-10)
    assert last[::20] == pytest.approx(oracle["F_last"], rel=1e-10)
    assert pytest.approx(oracle["W"], rel=1e-9, abs=1e-14) == W
    assert np.argsort(-np.linalg.norm(W, axis=1), kind="stable").tolist() == oracle["ranking"].tolist()


def test_labels_of_a_graph_that_are_equally_near_share_an_edge():
    """However the labels are ordered: here labels 1 and 2 have the same rows, as 3 and 4 have."""
    rng = np.random.default_rng(0)
    Y = (rng.random((40, 5)) < 0.4).astype(float)
    Y[:, 2], Y[:, 4] = Y[:, 1], Y[:, 3]
    for k in (1, 2, 3, 9):
        found, order = neighbour_laplacian(Y.T @ Y, k), [3, 0, 4, 2, 1]
        assert neighbour_laplacian(Y[:, order].T @ Y[:, order], k) == pytest.approx(found[np.ix_(order, order)])
        assert np.trace(found) == pytest.approx(5)
        assert found.sum(axis=1) == pytest.approx(0, abs=1e-12)
