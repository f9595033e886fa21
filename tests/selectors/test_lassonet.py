"""LassoNet: samples, the plan, what cannot be ranked, and an interrupted fit."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import LassoNet, runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import current_resources

QUICK = {"n_hidden": 4, "max_iter": 20, "path_multiplier": 1.3}


def problem(n=600, d=6):
    rng = np.random.default_rng(0)
    Y = (rng.random((n, 2)) < 0.4).astype(np.int8)
    X = np.where(rng.random((n, d)) < 0.5, rng.normal(size=(n, d)), 0.0)
    X[:, :2] += 2 * Y
    return X, Y


def test_neither_chunks_nor_containers_matter():
    X, Y = problem()
    parameters = QUICK | {"n_sampled": 300, "batch_size": 64}
    expected = LassoNet(2, random_state=3, **parameters).fit(X, Y)
    assert expected.report_.extra["sampled_rows"] == 300
    lazy, lazy_Y = da.from_array(X, chunks=((340, 1, 259), (2, 4))), da.from_array(Y, chunks=((340, 1, 259), -1))
    for rows, labels in ((sp.csr_array(X), Y), (lazy, lazy_Y), (lazy.map_blocks(sp.csr_array), lazy_Y)):
        found = LassoNet(2, random_state=3, **parameters).fit(rows, labels)
        assert found.scores_.tobytes() == expected.scores_.tobytes()
        assert found.report_.objective == expected.report_.objective
    assert LassoNet(2, random_state=4, **parameters).fit(X, Y).report_.objective != expected.report_.objective


def test_the_plan_says_what_is_learnt_from_and_does_not_grow_with_the_rows():
    X, Y = problem()
    selector = LassoNet(2, n_sampled=300, batch_size=100)
    small, large = (selector.plan(ArrayRows(X[:n], as_labels(Y[:n])), current_resources()) for n in (300, 600))
    assert small.arrays == large.arrays
    (note,) = large.notes
    assert note.startswith("learns from 300 of 600 rows: up to 1,000 epochs, and 100 for each of some hundred λ, of 3 ")
    assert note.endswith("steps and 1e+06 operations")


def test_more_features_than_it_takes_are_refused():
    X, Y = problem()
    with pytest.raises(DoesNotFitError, match="a network of 6 features, which LassoNet trains for at most 5") as error:
        LassoNet(2, max_features=5).fit(X, Y)
    assert "choose some of the features with a filter before" in str(error.value)


def test_labels_that_are_constant_in_the_sample_rank_nothing():
    X, Y = problem()
    with pytest.warns(UserWarning, match="lassonet cannot rank the features: all 2 labels are the same in every row"):
        assert not LassoNet(2, **QUICK).fit(X, np.ones_like(Y)).scores_.any()


def test_training_can_be_interrupted():
    X, Y = problem()
    for label in ("training a network", "removing features"):
        stages = []

        def interrupt(event, label=label, stages=stages):
            if event["kind"] == "stage":
                stages.append(event["label"])
            if event["kind"] == "parts" and stages[-1] == label:
                raise KeyboardInterrupt

        with runtime.progress_to(interrupt), pytest.raises(KeyboardInterrupt):
            LassoNet(2, **QUICK).fit(X, Y)
        assert stages[-1] == label
