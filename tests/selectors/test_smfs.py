"""SMFS: against its plain twin in every container and cut, both ways to regress, limit cases, refusals, time."""

from __future__ import annotations

import warnings
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask import runtime
from mlfs_dask.blocks.forest import grow_forest
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.primitives.isolation import isolation_graph
from mlfs_dask.primitives.plan import require_driver
from mlfs_dask.primitives.rows import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors import iterative, smfs
from mlfs_dask.selectors.smfs import SMFS, density_structure
from tests.reference import smfs as twin

HERE = Resources(1, 1, 2**33, 2**33)
SMALL = {"n_neighbors": 5, "n_trees": 12, "max_samples": 32}

pytestmark = pytest.mark.filterwarnings("ignore:SMFS did not converge")


def problem(seed=0, n=70, d=8, q=3):
    """Feature j < q carries label j; feature d - 1 is constant, and rows 3 and 4 are equal."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.2, 0.6, q)).astype(np.int8)
    Y[0] = 1
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    X[:, :q] += 2 * Y
    X[:, -1] = 4.0
    X[4] = X[3]
    return X, Y


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
    source = ArrayRows(X, as_labels(np.ones((len(X), 1), dtype=np.int8)))
    found = isolation_graph(source, n_neighbors, HERE, n_trees=n_trees, max_samples=max_samples, seed=seed)
    return density_structure(found.neighbours).toarray()


def check(found, expected, *, objective=1e-8, scores=1e-6):
    norms, _, F, values = expected
    values = values[: found.report_.iterations]  # the twin goes on where nothing moves any more
    assert found.report_.objective == pytest.approx(values, rel=objective)
    assert found.scores_ == pytest.approx(norms, rel=scores, abs=1e-9 * norms.max())
    assert found.labels_ == pytest.approx(F, abs=1e-6)


def test_the_density_structure_is_that_of_the_twin():
    X, _ = problem()
    source = ArrayRows(X, as_labels(np.ones((len(X), 1), dtype=np.int8)))
    found = isolation_graph(source, 5, HERE, n_trees=12, max_samples=32, seed=0)
    grow = np.random.SeedSequence(0).spawn(2)[1]
    forest = grow_forest(X, n_trees=12, max_samples=32, seed=int(grow.generate_state(1)[0]))
    xi = twin.isolation_masses(forest.trees, (X * forest.scale).astype(np.float32))
    W = density_structure(found.neighbours)
    assert W.toarray() == pytest.approx(twin.neighbour_weights(xi, 5), abs=1e-12)
    assert W.sum(axis=1) == pytest.approx(np.ones(len(X)))
    assert W.nnz == 5 * len(X)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 1.0, "beta": 1.0, "inner_iterations": 1},
        {"consistency": "none", "max_iter": 4},
        {"standardise": False},
    ],
)
def test_it_equals_the_plain_twin(state, options):
    X, Y = problem()
    Y = STATES[state](Y)
    found = SMFS(3, **{"tol": 0.0, "max_iter": 8} | SMALL | options).fit(X, Y)
    expected = twin.smfs(
        X,
        Y,
        graph(X),
        inner=options.get("inner_iterations"),
        iterations=options.get("max_iter", 8),
        **{name: value for name, value in options.items() if name not in ("inner_iterations", "max_iter")},
    )
    check(found, expected)
    assert found.ranking_.tolist() == np.argsort(-expected[0], kind="stable").tolist()


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_chunks_and_containers_do_not_matter(data):
    X, Y = problem(data.draw(st.integers(0, 50)), n=50)
    Y = STATES[data.draw(st.sampled_from([*STATES]))](Y)
    options = SMALL | {"max_iter": 6, "gram_cap": data.draw(st.sampled_from([0, 5, 100]))}
    expected = SMFS(3, **options).fit(X, Y)

    def chunks(total):
        cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=3)))
        return tuple(b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True))

    dense = da.from_array(X, chunks=(chunks(50), chunks(8)))
    lazy_Y = da.from_array(Y, chunks=(chunks(50), -1))
    for x, y in (
        (dense, lazy_Y),
        (dense.map_blocks(sp.csr_array), Y),
        (sp.csr_array(X), sp.csr_array(Y)),
        (ArrayRows(X, as_labels(Y), block_bytes=500), None),
    ):
        found = SMFS(3, **options).fit(x, y)
        assert found.scores_ == pytest.approx(expected.scores_, rel=1e-9, abs=1e-10)
        assert found.labels_ == pytest.approx(expected.labels_, abs=1e-8)
        assert found.report_.objective == pytest.approx(expected.report_.objective, rel=1e-9)


@pytest.mark.parametrize("state", STATES)
def test_above_the_gram_cap_it_comes_to_the_same_end(state, monkeypatch):
    X, Y = problem(n=60)
    Y = STATES[state](Y)
    options = SMALL | {"tol": 1e-13, "max_iter": 3000, "beta": 0.2}
    with_gram = SMFS(3, **options).fit(X, Y)
    without = SMFS(3, gram_cap=0, **options).fit(X, Y)
    assert with_gram.report_.extra["gram"]
    assert not without.report_.extra["gram"]
    assert without.report_.objective[-1] == pytest.approx(with_gram.report_.objective[-1], rel=1e-8)
    assert without.scores_ == pytest.approx(with_gram.scores_, abs=1e-4 * with_gram.scores_.max())
    # Solved as exactly, every step is the same.
    monkeypatch.setattr(smfs, "FEATURE_TOL", 1e-13)
    monkeypatch.setattr(smfs, "FEATURE_STEPS", 100)
    options |= {"max_iter": 8, "inner_iterations": 3}
    with_gram, without = SMFS(3, **options).fit(X, Y), SMFS(3, gram_cap=0, **options).fit(X, Y)
    assert without.report_.objective == pytest.approx(with_gram.report_.objective, rel=1e-9)
    assert without.scores_ == pytest.approx(with_gram.scores_, rel=1e-6)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("cap", [2, 5, 8, 11])
def test_solved_for_some_features_at_a_time_it_comes_to_the_same_end(state, cap):
    X, Y = problem(n=60, d=12)
    Y = STATES[state](Y)
    options = SMALL | {"tol": 1e-12, "max_iter": 3000}
    with_gram = SMFS(3, **options).fit(X, Y)
    found = SMFS(3, gram_cap=cap, **options).fit(X, Y)
    assert not found.report_.extra["gram"]
    # The set leaves another trail to ε, which is 10⁻⁶ of the first P.
    assert found.report_.objective[-1] == pytest.approx(with_gram.report_.objective[-1], rel=1e-6)
    assert found.scores_ == pytest.approx(with_gram.scores_, abs=1e-4 * with_gram.scores_.max())
    near = SMFS(3, gram_cap=cap, **SMALL).fit(X, Y)
    assert near.report_.converged
    assert near.report_.objective[-1] == pytest.approx(with_gram.report_.objective[-1], rel=5e-3)


def test_above_the_gram_cap_few_readings_are_enough():
    rng = np.random.default_rng(3)
    Y = (rng.random((300, 5)) < 0.3).astype(np.int8)
    X = rng.normal(size=(300, 400))
    X[:, :40] += 0.8 * Y[:, np.arange(40) % 5]
    for labels in (hidden(Y, entries=0.0), hidden(Y)):
        some = SMFS(10, gram_cap=300, **SMALL).fit(X, labels)
        none = SMFS(10, gram_cap=0, **SMALL).fit(X, labels)
        assert some.report_.converged
        assert some.report_.passes <= 40
        assert some.report_.passes < none.report_.passes
        assert some.report_.objective[-1] <= none.report_.objective[-1] * (1 + 1e-3)


def test_workers_give_the_same():
    distributed = pytest.importorskip("distributed")
    X, Y = problem(n=120)
    Y = hidden(Y)
    expected = SMFS(3, **SMALL).fit(X, Y)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=2**31
        ) as cluster,
        distributed.Client(cluster),
    ):
        found = SMFS(3, **SMALL).fit(da.from_array(X, chunks=(35, -1)), Y)
    assert found.scores_ == pytest.approx(expected.scores_, rel=1e-9)
    assert found.labels_ == pytest.approx(expected.labels_, abs=1e-8)


def test_planted_features_are_found_from_few_labels():
    rng = np.random.default_rng(5)
    Y = (rng.random((400, 4)) < 0.3).astype(np.int8)
    X = rng.normal(size=(400, 40))
    planted = [7, 19, 23, 38]
    X[:, planted] += 2 * Y
    for labels in (Y, hidden(Y, rows=0.7), hidden(Y, rows=0.7, entries=0.0)):
        found = SMFS(4).fit(X, labels)
        assert sorted(found.ranking_[:4].tolist()) == planted
        assert found.report_.converged
    unknown = labels == -1
    agree = ((found.labels_ > 0) == (Y == 1))[unknown].mean()
    assert agree > np.maximum(Y.mean(axis=0), 1 - Y.mean(axis=0)).mean() - 0.02


# ---------------------------------------------------------------- what is read, and when


def test_readings_are_counted_and_labels_that_are_known_need_none():
    X, Y = problem()
    options = SMALL | {"tol": 0.0, "max_iter": 6}
    assert SMFS(3, **options).fit(X, hidden(Y)).report_.passes == 4 + 2 * 6 - 1
    assert SMFS(3, **options).fit(X, hidden(Y, entries=0.0)).report_.passes == 4
    known = SMFS(3, missing="coded", **options).fit(X, Y)
    assert known.report_.passes == 4
    assert known.report_.extra["unknown_entries"] == 0
    assert known.labels_.tolist() == np.where(Y == 1, 1.0, -1.0).tolist()


def test_nothing_grows_with_rows_or_features_squared(monkeypatch):
    X, Y = problem(n=90, d=30)
    shapes = set()
    original = np.zeros

    def watched(shape, *args, **kwargs):
        shapes.add(shape)
        return original(shape, *args, **kwargs)

    monkeypatch.setattr(np, "zeros", watched)
    monkeypatch.setattr("mlfs_dask.blocks.isolation.HELD", 900)
    SMFS(3, gram_cap=0, max_iter=3, **SMALL).fit(X, hidden(Y))
    assert not {(90, 90), (30, 30)} & shapes
    SMFS(3, max_iter=3, **SMALL).fit(X, hidden(Y))
    assert (30, 30) in shapes


def test_the_plan_covers_what_is_read(monkeypatch):
    X, Y = problem()
    source = ArrayRows(X, as_labels(hidden(Y)))
    for cap in (0, 100):
        selector = SMFS(3, max_iter=5, gram_cap=cap, tol=0.0, **SMALL)
        plan = selector.plan(source, HERE)
        assert selector.fit(X, hidden(Y)).report_.passes <= plan.passes
        assert any("look-ups" in note for note in plan.notes)
        assert plan.to_dict()["peak_driver_bytes"] > 0
    huge = replace(source.profile, n=10**8, partitions=10)
    monkeypatch.setattr(iterative, "free_disk", lambda folder: 0)
    plan = SMFS(3).plan(huge, HERE)
    assert "arrays of n rows fit neither the driver's memory nor the scratch folder" in plan.notes[-1]
    with pytest.raises(DoesNotFitError, match="the loop"):
        require_driver(plan, HERE, "the loop")


def test_iterations_are_told_and_recorded(tmp_path):
    import json

    X, Y = problem()
    events = []
    with runtime.progress_to(events.append):
        report = SMFS(3, **SMALL).fit(X, hidden(Y)).report_
    steps = [event for event in events if event["kind"] == "step"]
    assert [s["objective"] for s in steps] == report.objective
    assert [s["number"] for s in steps] == list(range(1, report.iterations + 1))
    extra = json.loads(json.dumps(report.to_dict(), allow_nan=False))["extra"]
    assert extra["step"] == [s["step"] for s in steps]
    assert extra["step"][-1] <= 1e-4
    assert len(extra["recovery_steps"]) == report.iterations
    assert max(extra["recovery_residual"]) <= 1e-9
    assert extra["constant_features"] == 1
    assert extra["alpha"] == pytest.approx(np.mean([v for v in twin_weights(hidden(Y)) if v > 0]))


def twin_weights(Y):
    times = (Y == 1).sum(axis=0)
    return [sum(1 / times[j] for j in range(Y.shape[1]) if row[j] == 1) for row in Y]


# ---------------------------------------------------------------- limits


def test_without_penalty_it_is_weighted_least_squares():
    X, Y = problem()
    s = np.array(twin_weights(Y))
    Z = (X - X.mean(axis=0))[:, :-1] / X.std(axis=0)[:-1]
    F = np.where(Y == 1, 1.0, -1.0)
    P = np.linalg.solve(Z.T @ (s[:, None] * Z), Z.T @ (s[:, None] * F))
    for beta, near in ((0.0, 1e-9), (1e-9, 1e-6)):
        found = SMFS(3, beta=beta, missing="coded", **SMALL).fit(X, Y)
        assert found.scores_[:-1] == pytest.approx(np.linalg.norm(P, axis=1), rel=near)
        assert found.scores_[-1] == 0
    small = SMFS(3, beta=0.0, **SMALL).fit(X, hidden(Y))
    assert small.report_.objective[-1] <= SMFS(3, beta=0.5, **SMALL).fit(X, hidden(Y)).report_.objective[-1]


def test_without_structure_unknown_labels_take_the_fit():
    X, Y = problem()
    labels = hidden(Y)
    found = SMFS(3, alpha=0.0, tol=0.0, max_iter=20, **SMALL).fit(X, labels)
    check(found, twin.smfs(X, labels, graph(X), alpha=0.0, iterations=20))
    tiny = SMFS(3, alpha=1e-9, tol=0.0, max_iter=20, **SMALL).fit(X, labels)
    assert tiny.scores_ == pytest.approx(found.scores_, rel=1e-4)
    unlabelled = (labels == -1).all(axis=1)
    assert (found.labels_[unlabelled] == -1).all()  # nothing says what they are


def test_strong_structure_makes_labels_equal_their_neighbours():
    X, Y = problem()
    found = SMFS(3, alpha=1e6, **SMALL).fit(X, hidden(Y, entries=0.0))
    expected = graph(X) @ found.labels_
    free = (hidden(Y, entries=0.0) == -1).all(axis=1)
    loose = np.abs(found.labels_ - expected)[free].mean()
    assert loose < np.abs(np.where(Y == 1, 1.0, -1.0) - graph(X) @ np.where(Y == 1, 1.0, -1.0))[free].mean() / 2


def test_penalty_beyond_the_largest_useful_one_leaves_nothing():
    X, Y = problem()
    with pytest.warns(UserWarning, match=r"SMFS went to P = 0: beta is too large"):
        SMFS(3, beta=1e9, missing="coded", **SMALL).fit(X, Y)


def test_one_labelled_row():
    X, Y = problem()
    labels = np.full_like(Y, -1)
    labels[0] = [1, 0, 1]
    with pytest.warns(UserWarning, match="1 of 3 labels has no known positive row"):
        check(SMFS(3, tol=0.0, max_iter=6, **SMALL).fit(X, labels), twin.smfs(X, labels, graph(X), iterations=6))
    with pytest.warns(UserWarning, match="1 of 3 labels has no known positive row"):
        found = SMFS(3, **SMALL).fit(X, labels)
    assert found.report_.extra["labelled_rows"] == 1
    assert found.labels_[0].tolist() == [1, -1, 1]
    # Everybody follows the only one there is.
    assert (found.labels_[1:, 0] > 0.9).mean() > 0.9
    assert (found.labels_[1:, 1] < -0.9).mean() > 0.9


@pytest.mark.parametrize("gram_cap", [0, 100])
def test_all_rows_labelled(gram_cap):
    X, Y = problem()
    options = {"beta": 0.3, "tol": 1e-13, "max_iter": 2000}
    found = SMFS(3, missing="coded", gram_cap=gram_cap, **options, **SMALL).fit(X, Y)
    assert found.report_.extra["labelled_rows"] == (Y == 1).any(axis=1).sum()
    assert found.report_.extra["unknown_entries"] == found.report_.extra["recovered_positives"] == 0
    # Nothing is left but a regression with a row-sparse penalty, at whose optimum ∇‖XP − F‖²_S is −β pⁱ/‖pⁱ‖.
    s = np.array(twin_weights(Y))
    Z = (X - X.mean(axis=0))[:, :-1] / X.std(axis=0)[:-1]
    F = np.where(Y == 1, 1.0, -1.0)
    P = twin.smfs(X, Y, graph(X), missing="coded", beta=0.3, iterations=2000)[1]
    assert found.scores_ == pytest.approx(np.linalg.norm(P, axis=1), abs=1e-4 * found.scores_.max())
    P = P[:-1]
    slope = 2 * Z.T @ (s[:, np.newaxis] * (Z @ P - F))
    norms = np.linalg.norm(P, axis=1, keepdims=True)
    kept = norms[:, 0] > 1e-3
    assert kept.any()
    assert slope[kept] == pytest.approx((-0.3 * P / norms)[kept], abs=1e-4)
    assert np.linalg.norm(slope[~kept], axis=1).max(initial=0) <= 0.3


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_small_alpha_and_beta_tend_to_their_absence(name, state):
    X, Y = problem()
    labels = STATES[state](Y)
    fixed = SMALL | {"tol": 0.0, "max_iter": 8, "alpha": 0.1, "beta": 0.3}
    without, *near = (SMFS(3, **fixed | {name: value}).fit(X, labels).scores_ for value in (0.0, 1e-3, 1e-6, 1e-9))
    distances = [np.abs(scores - without).max() / without.max() for scores in near]
    if (name, state) == ("alpha", "rows"):  # labelled rows are known in all labels: the others have no part in P
        assert distances == [0.0] * 3
        return
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-4


def test_a_label_without_positives():
    X, Y = problem()
    for labels in (Y, hidden(Y)):
        labels = labels.copy()
        labels[:, 1] = np.where(labels[:, 1] == -1, -1, 0)
        with pytest.warns(UserWarning, match=r"1 of 3 labels has no known positive row \(column 1 of Y"):
            found = SMFS(3, tol=0.0, max_iter=6, **SMALL).fit(X, labels)
        check(found, twin.smfs(X, labels, graph(X), iterations=6))
        assert np.isfinite(found.scores_).all()


def test_no_positive_label_at_all_is_told():
    X, Y = problem()
    with pytest.warns(UserWarning, match="SMFS can tell no feature from another: no row has a known positive label"):
        found = SMFS(3, **SMALL).fit(X, np.where(Y == 1, -1, 0))
    assert not found.scores_.any()
    with pytest.raises(DataError, match=r"no row of Y has a positive label\n  cure: give labels 1 and 0"):
        SMFS(3, **SMALL).fit(X, np.zeros_like(Y))
    with pytest.raises(DataError, match="no label of any row is known"):
        SMFS(3, **SMALL).fit(X, np.full_like(Y, -1))


def test_equal_rows_and_constant_features():
    X, Y = problem(n=40)
    twice, labels = np.repeat(X, 2, axis=0), np.repeat(Y, 2, axis=0)
    found = SMFS(3, tol=0.0, max_iter=6, **SMALL).fit(twice, labels)
    check(found, twin.smfs(twice, labels, graph(twice), iterations=6))
    assert found.scores_[-1] == 0
    assert found.ranking_[-1] == 7
    with pytest.warns(UserWarning, match="every feature is constant"):
        SMFS(3, **SMALL).fit(np.ones_like(X), Y)


@pytest.mark.parametrize("q", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_few_labels_and_few_rows(q, n):
    X, Y = problem(n=max(n, 5), q=q)
    X, Y = X[:n], Y[:n]
    Y[1:, 0] = -1
    found = SMFS(1, tol=0.0, max_iter=5, **SMALL).fit(X, Y)
    check(found, twin.smfs(X, Y, graph(X), iterations=5))
    assert found.labels_.shape == (n, q)


def test_one_row_alone():
    with pytest.warns(UserWarning, match=r"1 of 2 labels has no known positive row \(column 1 of Y"):
        found = SMFS(1, standardise=False, **SMALL).fit(np.array([[1.0, 2.0]]), np.array([[1, 0]]))
    assert np.isfinite(found.scores_).all()


def test_the_published_form_forgets_its_labels(emotions):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = (
            SMFS(10, consistency="none", alpha=1.0, beta=1.0, inner_iterations=1, tol=0.0, max_iter=16)
            .fit(*emotions)
            .report_
        )
    assert report.objective[0] > 10
    assert report.objective[-1] < 0.1


@pytest.fixture(scope="module")
def emotions():
    """X (593, 72) and Y (593, 6) of the real set, as its file has them."""
    from tests.conftest import data_folder

    folder = data_folder() / "emotions"
    if not folder.is_dir():
        pytest.skip(f"real data not found: {folder} (set MLFS_DATA)")
    lines = (folder / "emotions.arff").read_text().splitlines()
    values = np.array([line.split(",") for line in lines if line[:1].isdigit() or line[:1] == "-"], float)
    return values[:, :72], values[:, 72:].astype(np.int8)


def test_observed_labels_keep_the_objective_up_and_it_converges(emotions):
    X, Y = emotions
    for labels in (Y, hidden(Y, rows=0.7), hidden(Y, rows=0.7, entries=0.0)):
        report = SMFS(10).fit(X, labels).report_
        assert report.converged
        assert report.objective[-1] > 0.05 * report.objective[0]
        assert report.objective[-1] == pytest.approx(min(report.objective), rel=1e-2)


def test_small_data_takes_few_steps(emotions):
    X, Y = emotions
    report = SMFS(10).fit(X, hidden(Y, rows=0.7)).report_
    assert report.iterations <= 8  # 5 when this was written
    assert report.passes <= 20  # 13
    assert sum(report.extra["recovery_steps"]) <= 250  # 161
    assert sum(report.extra["regression_steps"]) == 0  # solved directly


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, "alpha must be a non-negative number; got -1.0"),
        ({"beta": float("nan")}, "beta must be a non-negative number; got nan"),
        ({"tol": None}, "tol must be a non-negative number; got None"),
        ({"n_neighbors": 0}, "n_neighbors must be a whole number of at least 1; got 0"),
        ({"n_trees": 1.5}, "n_trees must be a whole number of at least 1; got 1.5"),
        ({"max_samples": 2**17}, "max_samples must be at most 65536; got 131072"),
        ({"missing": "some"}, "missing must be 'auto', 'coded' or 'zeros'; got 'some'"),
        ({"consistency": "yes"}, "consistency must be 'observed' or 'none'; got 'yes'"),
        ({"standardise": 2}, "standardise must be true or false; got 2"),
        ({"gram_cap": -1}, "gram_cap must be a whole number of at least 0; got -1"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"inner_iterations": 0}, "inner_iterations must be a whole number of at least 1; got 0"),
        ({"random_state": -3}, "random_state must be a whole number of at least 0; got -3"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(UsageError) as error:
        SMFS(3, **options).fit(*problem())
    assert message in str(error.value)


def test_a_loop_cut_short_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning, match="SMFS did not converge in 1 iterations"):
            SMFS(3, max_iter=1, **SMALL).fit(*problem())


def test_the_seed_settles_the_forest():
    X, Y = problem()
    one = SMFS(3, random_state=1, **SMALL).fit(X, Y)
    assert one.scores_.tolist() == SMFS(3, random_state=1, **SMALL).fit(X, Y).scores_.tolist()
    assert one.scores_.tolist() != SMFS(3, random_state=2, **SMALL).fit(X, Y).scores_.tolist()
    assert SMFS(3, **SMALL).fit(X, Y).scores_.tolist() == SMFS(3, random_state=0, **SMALL).fit(X, Y).scores_.tolist()
    assert one.report_.seed == 1
