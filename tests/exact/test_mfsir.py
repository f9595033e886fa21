"""Exact mFSIR: against its plain twin by X'X and by products, descent, limit cases, the printed form, checkpoints."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.exact import mfsir
from tests.exact.fits import fit_mfsir, interrupted_and_resumed
from tests.problems import labelled_problem as problem
from tests.problems import real_data
from tests.reference import mfsir as twin


@pytest.fixture(scope="module")
def emotions():
    return real_data("emotions")


PARAMETERS = {
    "defaults": {},
    "one step": {"weight_steps": 1, "label_steps": 1, "max_iter": 12},
    "no graph": {"beta": 0},
    "small beta": {"beta": 1e-3},
    "large beta": {"beta": 30.0},
    "no labels": {"alpha": 0, "max_iter": 15},
    "small alpha": {"alpha": 1e-3, "max_iter": 15},
    "large alpha": {"alpha": 100.0},
    "one latent label": {"n_latent": 1},
    "all latent labels": {"n_latent": 4},
    "near rows": {"n_neighbors": 1, "lambda_": 2.0},
    "far rows": {"n_neighbors": 79, "lambda_": 5.0, "max_iter": 10},
    "early stop": {"tol": 0.05},
    "printed": {"step": "fixed", "max_iter": 15, "random_state": 3},
    "printed, large start": {"step": "fixed", "max_iter": 25, "random_state": 3, "omega": 0.3},
    "printed, own step": {"step": "fixed", "max_iter": 15, "random_state": 1, "omega": 0.1, "eta": 1e-4},
}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("gram_cap", [4096, 0])
def test_equals_the_plain_twin(name, gram_cap):
    for seed, container in enumerate((np.asarray, sp.csr_array)):
        X, Y = problem(seed)
        parameters = PARAMETERS[name]
        found = fit_mfsir(container(X), Y, gram_cap=gram_cap, **parameters)
        scores, objective, _ = twin.mfsir(X, Y, **parameters)
        assert found.trace.objective == pytest.approx(objective, rel=1e-8, abs=1e-8 * objective[0])
        assert found.scores == pytest.approx(scores, rel=1e-6, abs=1e-9 * scores.max())
        assert found.extra["gram"] is (gram_cap > 0)
        assert found.labels is None


@pytest.mark.parametrize("gram_cap", [4096, 0])
def test_equals_the_plain_twin_on_real_data(emotions, gram_cap):
    X, Y = emotions[0][:300], emotions[1][:300]
    scores, objective, _ = twin.mfsir(X, Y)
    found = fit_mfsir(X, Y, gram_cap=gram_cap)
    assert found.trace.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores == pytest.approx(scores, rel=1e-6)
    assert np.argsort(-found.scores, kind="stable").tolist() == np.argsort(-scores, kind="stable").tolist()


@settings(max_examples=30)
@given(st.data())
def test_the_objective_never_rises(data):
    X, Y = problem(data.draw(st.integers(0, 10**6)), n=data.draw(st.integers(2, 60)), q=data.draw(st.integers(1, 6)))
    X *= data.draw(st.sampled_from([1e-6, 1.0, 1e6]))
    found = fit_mfsir(
        X,
        Y,
        alpha=data.draw(st.sampled_from([0, 1e-2, 1, 1e3])),
        beta=data.draw(st.sampled_from([0, 1e-2, 1, 1e3])),
        n_neighbors=data.draw(st.integers(1, 9)),
        weight_steps=data.draw(st.integers(1, 4)),
        label_steps=data.draw(st.integers(1, 4)),
        gram_cap=data.draw(st.sampled_from([0, 4096])),
        tol=0.0,
        max_iter=25,
    )
    objective = np.array(found.trace.objective)
    assert len(objective) >= 2
    assert (np.diff(objective) <= 1e-12 * max(objective[0], Y.sum())).all()
    assert np.isfinite(found.scores).all()


@pytest.mark.parametrize("parameters", [{}, {"gram_cap": 0}, {"alpha": 10.0, "beta": 0.1}])
def test_the_objective_falls_and_settles_on_real_data(emotions, parameters):
    trace = fit_mfsir(*emotions, **parameters).trace
    objective = np.array(trace.objective)
    assert (np.diff(objective) < 0).all()
    assert trace.converged
    change = -np.diff(objective) / objective[:-1]
    assert change[-1] <= 1e-3
    assert (change[:-1] > 1e-3).all()


def test_order_of_rows_and_scale_of_features_do_not_matter():
    X, Y = problem(2)
    expected = fit_mfsir(X, Y).scores
    order = np.random.default_rng(0).permutation(len(X))
    assert fit_mfsir(X[order], Y[order]).scores == pytest.approx(expected, rel=1e-8)
    moved = X * np.geomspace(1e-3, 1e3, X.shape[1]) + np.geomspace(1, 1e4, X.shape[1])
    assert fit_mfsir(moved, Y).scores == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_the_seed_matters_to_the_printed_form_alone():
    X, Y = problem()
    assert fit_mfsir(X, Y, random_state=1).scores.tolist() == fit_mfsir(X, Y, random_state=2).scores.tolist()
    one, again, other = (fit_mfsir(X, Y, step="fixed", max_iter=5, random_state=s).scores for s in (1, 1, 2))
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()


def test_planted_features_are_found():
    rng = np.random.default_rng(3)
    Y = (rng.random((500, 5)) < 0.3).astype(int)
    X = rng.normal(size=(500, 60))
    planted = [7, 19, 23, 42, 55]
    X[:, planted] += 2 * Y
    for parameters in ({}, {"gram_cap": 0}, {"beta": 0}, {"n_latent": 5}):
        assert sorted(np.argsort(-fit_mfsir(X, Y, **parameters).scores)[:5].tolist()) == planted


def test_the_printed_form_does_not_move_on_real_data(emotions):
    X, Y = emotions
    found = fit_mfsir(X, Y, step="fixed", max_iter=300, random_state=0)
    objective = found.trace.objective
    assert len(objective) == 300
    assert np.ptp(objective) < 1e-6 * objective[0]
    # Its ranking is the one it drew.
    G, H = (
        np.random.default_rng(seed).uniform(-1e-5, 1e-5, size=(72, 4))
        for seed in np.random.SeedSequence(0).spawn(4)[:2]
    )
    drawn = np.argsort(-np.linalg.norm(G * H, axis=1))
    assert np.argsort(-found.scores)[:20].tolist() == drawn[:20].tolist()


# ---------------------------------------------------------------- limit cases


def test_as_alpha_grows_latent_labels_are_labels_and_weights_regress_on_them():
    # Labels that exclude one another factorise exactly; α then holds V there, and G⊙H tends to least squares.
    rng = np.random.default_rng(0)
    Y = np.eye(3, dtype=np.int8)[rng.integers(0, 3, 90)]
    X = rng.normal(size=(90, 5)) + Y @ rng.normal(size=(3, 5))
    found = fit_mfsir(X, Y, alpha=1e8, beta=0, n_latent=3, tol=0.0, max_iter=30, weight_steps=200)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    W = np.linalg.lstsq(Z, Y.astype(float))[0]
    assert found.scores == pytest.approx(np.linalg.norm(W, axis=1), rel=1e-5)


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_small_alpha_and_beta_tend_to_their_absence(name, gram_cap):
    X, Y = problem(1)
    fixed = {"tol": 0.0, "max_iter": 10, "gram_cap": gram_cap}
    without = fit_mfsir(X, Y, **{name: 0.0}, **fixed).scores
    near = [fit_mfsir(X, Y, **{name: value}, **fixed).scores for value in (1e-3, 1e-6, 1e-9)]
    distances = [np.abs(scores - without).max() / without.max() for scores in near]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-6


@pytest.mark.parametrize("q", [1, 2, 3])
def test_few_labels(q):
    X, Y = problem(q=q)
    found = fit_mfsir(X, Y)
    assert found.scores == pytest.approx(twin.mfsir(X, Y)[0], rel=1e-6, abs=1e-12)
    assert found.scores.argmax() < q


def test_duplicate_rows_and_duplicate_features():
    X, Y = problem(3, n=30)
    X[10:20] = X[0]
    X[:, 5] = X[:, 1]
    found = fit_mfsir(X, Y, n_neighbors=3)
    assert found.scores == pytest.approx(twin.mfsir(X, Y, n_neighbors=3)[0], rel=1e-6, abs=1e-12)
    assert found.scores[5] == pytest.approx(found.scores[1], rel=1e-9)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_constant_features_have_no_score(container):
    X, Y = problem()
    X[:, 2] = 0.1
    found = fit_mfsir(container(X), Y)
    assert found.scores[[2, 8]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("label", [0, 1])
def test_a_label_that_never_or_always_occurs(label):
    X, Y = problem()
    Y[:, 1] = label
    found = fit_mfsir(X, Y)
    assert found.scores == pytest.approx(twin.mfsir(X, Y)[0], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_one_row_with_labels(gram_cap):
    X, Y = problem()
    Y[:] = 0
    Y[5] = [1, 0, 1, 0]
    found = fit_mfsir(X, Y, gram_cap=gram_cap)
    scores, objective, _ = twin.mfsir(X, Y)
    assert found.trace.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores == pytest.approx(scores, rel=1e-6, abs=1e-12)
    assert found.extra["n_latent"] == 1  # labels that no row tells apart are one


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_nothing_to_tell_features_apart_by(gram_cap):
    X, Y = problem()
    for x, y in ((np.full_like(X, 0.1), Y), (X, np.zeros_like(Y)), (X[:1], Y[:1])):
        found = fit_mfsir(x, y, gram_cap=gram_cap)
        assert found.scores.tolist() == [0.0] * 9


def test_few_rows():
    X, Y = problem()
    for n in (2, 3):
        assert fit_mfsir(X[:n], Y[:n]).scores == pytest.approx(twin.mfsir(X[:n], Y[:n])[0], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_a_column_far_from_zero_gets_its_score(gram_cap):
    X, Y = problem(1)
    X[:, :4] = np.round(X[:, :4] * 2**10) / 2**10  # exact after the shift
    near = fit_mfsir(X, Y, gram_cap=gram_cap).scores
    X[:, :4] += 1e8
    assert fit_mfsir(X, Y, gram_cap=gram_cap).scores == pytest.approx(near, rel=1e-7, abs=1e-12)


# ---------------------------------------------------------------- what is recorded


@pytest.mark.parametrize("parameters", [{}, {"step": "fixed", "random_state": 0}], ids=str)
def test_an_interrupted_loop_goes_on_to_the_same_bits(parameters, tmp_path):
    X, Y = problem()
    given = {"tol": 0.0, "max_iter": 9, **parameters}
    expected = fit_mfsir(X, Y, **given)
    found = interrupted_and_resumed(lambda: fit_mfsir(X, Y, **given), tmp_path, 4)
    assert found.scores.tolist() == expected.scores.tolist()
    assert found.trace == expected.trace
    assert found.extra == expected.extra


def test_every_iteration_is_in_the_trace_and_in_the_progress():
    events = []
    with runtime.progress_to(events.append):
        found = fit_mfsir(*problem())
    steps = [event for event in events if event["kind"] == "step"]
    assert [event["objective"] for event in steps] == found.trace.objective
    assert len(found.trace.values["residual"]) == len(found.trace.values["step"]) == found.trace.iterations
    assert found.extra["rho"] >= 80  # trace and rank of nine standardised features
    json.dumps([found.extra, found.trace.facts()], allow_nan=False)


def test_a_loop_cut_short_has_not_converged():
    assert fit_mfsir(*problem(), max_iter=2).trace.converged is False


def test_above_the_cap_nothing_has_d_times_d_numbers():
    shapes = [array.shape for array in mfsir.held_arrays(sparse=True, gram=False, graph=True)]
    assert "d d" not in shapes
    assert "n d" not in shapes
    assert "d d" in [array.shape for array in mfsir.held_arrays(sparse=True, gram=True, graph=True)]
