"""Exact mFSIR, SMFS and Access-MFS: plain twins, ways to regress, the authors' programs, limit cases, what is held."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.forest import float32_scaling, forest_columns, forest_seeds
from mlfs_dask.errors import MlfsError
from mlfs_dask.exact.graphs import least_mass_rows
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.selectors import access_mfs, get_method
from mlfs_dask.selectors.smfs import density_structure
from mlfs_dask.solvers import row_sparse_regression
from tests.conftest import data_folder
from tests.exact.fits import fit_access, fit_mfsir, fit_smfs, labels_of
from tests.problems import labelled_problem, problem_with_equal_rows, real_data, semi_supervised_problem
from tests.reference import access_mfs as access_twin
from tests.reference import mfsir as mfsir_twin
from tests.reference import smfs as smfs_twin

GRAM = pytest.mark.parametrize("gram_cap", [4096, 0])


@pytest.fixture(scope="module")
def emotions():
    return real_data("emotions")


@pytest.mark.parametrize("name", ["mfsir", "smfs", "access-mfs"])
def test_above_the_cap_nothing_has_d_times_d_numbers(name):
    profile = as_rows(sp.csr_array((9, 4)), labels_of(np.eye(9, 3))).profile
    above, below = (get_method(name)(gram_cap=cap)._exact_workspace(profile)[0] for cap in (0, 4))
    assert "d d" not in above
    assert "n d" not in above
    assert "d d" in below


@GRAM
@pytest.mark.parametrize(("fit", "problem"), [(fit_mfsir, labelled_problem), (fit_access, semi_supervised_problem)])
def test_a_column_far_from_zero_gets_its_score(fit, problem, gram_cap):
    X, Y = problem(1)
    X = np.round(X * 2**10) / 2**10  # exact after the shift
    near = fit(X, Y, max_iter=5, gram_cap=gram_cap).scores
    X[:, :4] += 1e8
    assert fit(X, Y, max_iter=5, gram_cap=gram_cap).scores == pytest.approx(near, rel=1e-7, abs=1e-6)


# ---------------------------------------------------------------- mFSIR

OF_MFSIR = {
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


@GRAM
@pytest.mark.parametrize("name", OF_MFSIR)
def test_mfsir_equals_the_plain_twin(name, gram_cap):
    X, Y = labelled_problem()
    container = np.asarray if gram_cap else sp.csr_array
    found = fit_mfsir(container(X), Y, gram_cap=gram_cap, **OF_MFSIR[name])
    scores, objective, _ = mfsir_twin.mfsir(X, Y, **OF_MFSIR[name])
    assert found.trace.objective == pytest.approx(objective, rel=1e-8, abs=1e-8 * objective[0])
    assert found.scores == pytest.approx(scores, rel=1e-6, abs=1e-9 * scores.max())
    assert found.extra["gram"] is (gram_cap > 0)
    assert found.labels is None


@settings(max_examples=30)
@given(st.data())
def test_the_objective_of_mfsir_never_rises(data):
    X, Y = labelled_problem(
        data.draw(st.integers(0, 10**6)), n=data.draw(st.integers(2, 60)), q=data.draw(st.integers(1, 6))
    )
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
    X, Y = labelled_problem()
    assert fit_mfsir(X, Y, random_state=1).scores.tolist() == fit_mfsir(X, Y, random_state=2).scores.tolist()
    one, again, other = (fit_mfsir(X, Y, step="fixed", max_iter=5, random_state=s).scores for s in (1, 1, 2))
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()


def test_a_step_too_large_is_refused_in_words():
    X, Y = labelled_problem()
    with pytest.raises(
        MlfsError, match=r"mFSIR diverged in iteration \d+: .* is not finite\n  cure: choose a smaller eta"
    ):
        fit_mfsir(X, Y, step="fixed", eta=10.0, omega=1.0, random_state=0, max_iter=100)


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


# ---------------------------------------------------------------- SMFS

SMALL = {"n_neighbors": 5, "n_trees": 12, "max_samples": 32}


def hidden(Y, seed=0, *, rows=0.5, entries=0.3):
    """−1 for half of the rows, and for some entries of the others."""
    rng = np.random.default_rng([seed, 7])  # not the stream that Y was drawn from
    Y = np.where(rng.random(Y.shape) < entries, -1, Y)
    Y[rng.random(len(Y)) < rows] = -1
    Y[0] = 1
    return Y.astype(np.int8)


STATES = {
    "zeros": lambda Y: Y,
    "rows": lambda Y: hidden(Y, entries=0.0),
    "entries": hidden,
}


def graph(X, *, seed=0, n_neighbors=5, n_trees=12, max_samples=32):
    found = least_mass_rows(X, n_neighbors, n_trees=n_trees, max_samples=max_samples, seed=seed)
    return density_structure(found.neighbours).toarray()


def check_smfs(found, expected, *, objective=1e-8, scores=1e-6):
    norms, _, F, values = expected
    values = values[: found.trace.iterations]  # the twin goes on where nothing moves any more
    assert found.trace.objective == pytest.approx(values, rel=objective)
    assert found.scores == pytest.approx(norms, rel=scores, abs=1e-9 * norms.max())
    assert found.labels == pytest.approx(F, abs=1e-6)


def test_the_density_structure_is_that_of_the_twin():
    X, _ = problem_with_equal_rows()
    prepared = (X * float32_scaling(X)[1]).astype(np.float32)
    prepared = prepared[:, forest_columns(prepared)]
    xi = smfs_twin.isolation_masses(smfs_twin.grow_trees(prepared, 12, 32, forest_seeds(0)[1]), prepared)
    W = graph(X)
    assert pytest.approx(smfs_twin.neighbour_weights(xi, 5), abs=1e-12) == W
    assert W.sum(axis=1) == pytest.approx(np.ones(len(X)))


@pytest.mark.parametrize(
    ("state", "container"), [("zeros", sp.csr_array), ("rows", np.asarray), ("entries", sp.csr_array)]
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 1.0, "beta": 1.0, "inner_iterations": 1},
        {"consistency": "none", "max_iter": 4},
        {"standardise": False},
        {"unknown_labels": "coded"},
    ],
    ids=str,
)
def test_smfs_equals_the_plain_twin(state, options, container):
    X, Y = problem_with_equal_rows()
    Y = STATES[state](Y)
    found = fit_smfs(container(X), Y, **{"tol": 0.0, "max_iter": 8} | SMALL | options)
    expected = smfs_twin.smfs(
        X,
        Y,
        graph(X),
        inner=options.get("inner_iterations"),
        iterations=options.get("max_iter", 8),
        **{name: value for name, value in options.items() if name not in ("inner_iterations", "max_iter")},
    )
    check_smfs(found, expected)


@pytest.mark.parametrize("state", STATES)
def test_above_the_gram_cap_it_comes_to_the_same_end(state, monkeypatch):
    X, Y = problem_with_equal_rows(n=60)
    Y = STATES[state](Y)
    options = SMALL | {"tol": 1e-13, "max_iter": 3000, "beta": 0.2}
    with_gram = fit_smfs(X, Y, **options)
    without = fit_smfs(X, Y, gram_cap=0, **options)
    assert with_gram.extra["gram"]
    assert not without.extra["gram"]
    assert without.trace.objective[-1] == pytest.approx(with_gram.trace.objective[-1], rel=1e-8)
    assert without.scores == pytest.approx(with_gram.scores, abs=1e-4 * with_gram.scores.max())
    # Solved as exactly, every step is the same.
    monkeypatch.setattr(row_sparse_regression, "FEATURE_TOL", 1e-13)
    monkeypatch.setattr(row_sparse_regression, "FEATURE_STEPS", 100)
    options |= {"max_iter": 8, "inner_iterations": 3}
    with_gram, without = fit_smfs(X, Y, **options), fit_smfs(X, Y, gram_cap=0, **options)
    assert without.trace.objective == pytest.approx(with_gram.trace.objective, rel=1e-9)
    assert without.scores == pytest.approx(with_gram.scores, rel=1e-6)


@pytest.mark.parametrize(("cap", "state"), [(2, "rows"), (5, "zeros"), (8, "entries")])
def test_solved_for_some_features_at_a_time_it_comes_to_the_same_end(cap, state):
    X, Y = problem_with_equal_rows(n=60, d=12)
    Y = STATES[state](Y)
    options = SMALL | {"tol": 1e-10, "max_iter": 1000}
    with_gram = fit_smfs(X, Y, **options)
    found = fit_smfs(X, Y, gram_cap=cap, **options)
    assert not found.extra["gram"]
    # The set leaves another trail to ε, which is 10⁻⁶ of the first P.
    assert found.trace.objective[-1] == pytest.approx(with_gram.trace.objective[-1], rel=1e-6)
    assert found.scores == pytest.approx(with_gram.scores, abs=1e-4 * with_gram.scores.max())
    near = fit_smfs(X, Y, gram_cap=cap, **SMALL)
    assert near.trace.converged
    assert near.trace.objective[-1] == pytest.approx(with_gram.trace.objective[-1], rel=5e-3)


def test_known_labels_stay():
    X, Y = problem_with_equal_rows()
    known = fit_smfs(X, Y, unknown_labels="coded", tol=0.0, max_iter=6, **SMALL)
    assert known.extra["unknown_entries"] == 0
    assert known.labels.tolist() == np.where(Y == 1, 1.0, -1.0).tolist()
    labels = hidden(Y)
    found = fit_smfs(X, labels, **SMALL)
    assert found.labels[labels != -1].tolist() == np.where(Y == 1, 1.0, -1.0)[labels != -1].tolist()


def test_the_published_form_forgets_its_labels(emotions):
    published = {"consistency": "none", "alpha": 1.0, "beta": 1.0, "inner_iterations": 1}
    objective = fit_smfs(*emotions, tol=0.0, max_iter=16, **published).trace.objective
    assert objective[0] > 10
    assert objective[-1] < 0.1


def test_observed_labels_keep_the_objective_up_and_it_converges(emotions):
    X, Y = emotions
    for labels in (Y, hidden(Y, rows=0.7), hidden(Y, rows=0.7, entries=0.0)):
        trace = fit_smfs(X, labels).trace
        assert trace.converged
        assert trace.objective[-1] > 0.05 * trace.objective[0]
        assert trace.objective[-1] == pytest.approx(min(trace.objective), rel=1e-2)


# ---------------------------------------------------------------- Access-MFS


def assert_equals_twin(X, Y, *, gram_cap=4096, solver_tol=1e-7, max_iter=8, container=np.asarray, **parameters):
    """Objective after every iteration to 1e-8, scores and predicted labels to 1e-6."""
    parameters["max_iter"] = max_iter
    found = fit_access(container(X), Y, gram_cap=gram_cap, solver_tol=solver_tol, **parameters)
    expected, F, objective, penalty = access_twin.access_mfs(X, Y, **parameters)
    assert found.trace.objective == pytest.approx(objective, rel=1e-8)
    assert found.trace.values["graph_penalty"] == pytest.approx(penalty, rel=1e-5, abs=1e-9)
    assert found.scores == pytest.approx(expected, abs=1e-6 * expected.max())
    assert found.labels == pytest.approx(F, abs=1e-6)
    assert max(found.trace.values["solver_residual"]) <= access_mfs.WEIGHT_TOL * solver_tol
    return found


def thinned(X, Y):
    """30 % of rows labelled: those with rng(0).random(n) < 0.3."""
    Y = Y.copy()
    Y[np.random.default_rng(0).random(len(Y)) >= 0.3] = -1
    return X, Y


@GRAM
@pytest.mark.parametrize("unknown", ["rows", "entries", "none"])
def test_access_mfs_equals_the_plain_twin(unknown, gram_cap):
    container = np.asarray if gram_cap else sp.csr_array
    found = assert_equals_twin(*semi_supervised_problem(unknown=unknown), gram_cap=gram_cap, container=container)
    assert found.extra["gram"] is (gram_cap > 0)


@GRAM
@pytest.mark.parametrize(
    "parameters",
    [
        {"lambda_": 10.0, "theta": 0.1, "mu": 0.01},
        {"lambda_": 0.01, "theta": 3.0, "mu": 5.0},
        {"k_s": 2, "k_p": 1},
        {"k_s": 15, "k_p": 2},
        {"inner_iterations": 4},
        {"tol": 1e-3},
        {"tol": 1e-9, "solver_tol": 1e-10},
        {"theta": 0.0, "mu": 0.0},
    ],
    ids=str,
)
def test_parameters_reach_the_loop(parameters, gram_cap):
    X, Y = semi_supervised_problem(5)
    parameters |= {"max_iter": 8}
    expected = {name: value for name, value in parameters.items() if name != "solver_tol"}
    found = fit_access(X, Y, gram_cap=gram_cap, **parameters)
    scores, _, objective, _ = access_twin.access_mfs(X, Y, **expected)
    assert found.trace.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores == pytest.approx(scores, abs=1e-6 * scores.max())


def test_the_seed_draws_the_first_graph_only():
    X, Y = semi_supervised_problem(1)
    zero, one, none = (fit_access(X, Y, random_state=seed, max_iter=5) for seed in (0, 1, None))
    assert one.scores == pytest.approx(access_twin.access_mfs(X, Y, seed=1, max_iter=5)[0], abs=1e-7)
    assert one.trace.objective[0] != zero.trace.objective[0]
    assert none.scores.tolist() == zero.scores.tolist()


@pytest.mark.parametrize(("name", "value", "near"), [("emotions", 128.122690, 1e-6), ("yeast", 1147.09937, 1e-5)])
def test_the_known_objective_of_real_data(name, value, near):
    """Known to all these digits from dense algebra: λ = θ = μ = 1, k_s = k_p = 5, standardised, 30 % labelled."""
    trace = fit_access(*thinned(*real_data(name)), inner_iterations=7).trace
    assert trace.objective[-1] == pytest.approx(value, abs=near)
    assert name == "emotions" or trace.converged
    assert np.diff(trace.objective).max() < 1e-3 * trace.objective[-1]


@pytest.mark.parametrize("run", range(4))
@GRAM
def test_published_code_gives_what_the_authors_program_gives(monkeypatch, run, gram_cap):
    X, Y = real_data("emotions")
    path = data_folder().parent / "oracles/AccessMFS/emotions.npz"
    if not path.exists():
        pytest.skip(f"published results not found: {path}")
    oracle = np.load(path)
    given = json.loads(str(oracle["meta"]))["parameters"][run]
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    Y[oracle["index_u"]] = 0
    monkeypatch.setattr(access_mfs, "first_weights", lambda d, q, seed, *, published: oracle[f"run{run}_W0"])
    found = fit_access(
        X,
        Y,
        variant="published_code",
        standardise=False,
        lambda_=given["lambda"],
        theta=given["theta"],
        mu=given["mu"],
        k_s=int(given["k_s"]),
        k_p=int(given["k_f"]),
        gram_cap=gram_cap,
        solver_tol=1e-9,
    )
    assert found.trace.iterations == oracle[f"run{run}_it"]
    assert found.trace.objective == pytest.approx(oracle[f"run{run}_obj"], abs=1e-8)
    assert found.labels == pytest.approx(oracle[f"run{run}_F"], abs=1e-6)
    assert found.scores**2 == pytest.approx(oracle[f"run{run}_score"], abs=1e-8)
    assert np.argsort(-found.scores, kind="stable").tolist() == oracle[f"run{run}_ranking"].tolist()


@GRAM
@pytest.mark.parametrize("value", [0, 1, -1])
def test_a_label_known_to_be_nothing_else(value, gram_cap):
    X, Y = semi_supervised_problem(2)
    Y[Y[:, 1] >= 0, 1] = value
    found = assert_equals_twin(X, Y, gram_cap=gram_cap)
    # No positive: a column of zeros, without a direction of its own at first.
    assert found.trace.values["rank"][0] == (4 if value == 1 else 3)


@GRAM
def test_duplicate_labels_stay_equal(gram_cap):
    """Of labels 4..11, and of two thirds of the rows, no positive is known."""
    X, Y = semi_supervised_problem(n=90, d=30, q=4, unknown="none")
    Y = np.hstack([Y, np.zeros((len(Y), 8), np.int8)])
    Y[np.random.default_rng(0).random(len(Y)) < 0.66] = -1
    found = assert_equals_twin(X, Y, gram_cap=gram_cap)
    assert found.labels[:, 4:].tolist() == np.repeat(found.labels[:, 4:5], 8, axis=1).tolist()
    assert found.extra["distinct_labels"] == max(found.trace.values["rank"]) == 5
    order = np.random.default_rng(0).permutation(12)
    without = {"max_iter": 20, "gram_cap": gram_cap, "theta": 0.0}  # and without the first graph
    turned, plain = (fit_access(X, y, **without) for y in (Y[:, order], Y))
    assert turned.scores == pytest.approx(plain.scores, rel=1e-6, abs=1e-8)
    assert turned.labels == pytest.approx(plain.labels[:, order], abs=1e-7)


def test_above_the_cap_it_goes_on_while_the_equation_of_W_is_unsolved(monkeypatch):
    X, Y = semi_supervised_problem(3, n=120, d=60, q=3)
    assert fit_access(X, Y, tol=10.0).trace.iterations == 2
    monkeypatch.setattr(access_mfs, "WEIGHT_STEPS", 5)
    trace = fit_access(X, Y, gram_cap=0, tol=10.0, max_iter=100).trace
    assert trace.converged
    assert trace.iterations > 3
    assert min(trace.values["solver_residual"][1:-1]) > 1e-3 >= trace.values["solver_residual"][-1]
