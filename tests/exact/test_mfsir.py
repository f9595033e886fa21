"""Exact mFSIR: against its plain twin by X'X and by products, descent, limit cases, the printed form, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.exact import mfsir
from tests.exact.fits import fit_mfsir
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


def test_the_seed_matters_to_the_printed_form_alone():
    X, Y = problem()
    assert fit_mfsir(X, Y, random_state=1).scores.tolist() == fit_mfsir(X, Y, random_state=2).scores.tolist()
    one, again, other = (fit_mfsir(X, Y, step="fixed", max_iter=5, random_state=s).scores for s in (1, 1, 2))
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()


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


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_a_column_far_from_zero_gets_its_score(gram_cap):
    X, Y = problem(1)
    X[:, :4] = np.round(X[:, :4] * 2**10) / 2**10  # exact after the shift
    near = fit_mfsir(X, Y, gram_cap=gram_cap).scores
    X[:, :4] += 1e8
    assert fit_mfsir(X, Y, gram_cap=gram_cap).scores == pytest.approx(near, rel=1e-7, abs=1e-12)


# ---------------------------------------------------------------- what is recorded


def test_above_the_cap_nothing_has_d_times_d_numbers():
    workspace = mfsir.workspace(sparse=True, gram=False, graph=True)
    assert "d d" not in workspace
    assert "n d" not in workspace
    assert "d d" in mfsir.workspace(sparse=True, gram=True, graph=True)
