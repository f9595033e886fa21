"""mFSIR: against its plain twin in every container and cut, both ways to X'X, limit cases, refusals, passes, time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask import runtime
from mlfs_dask.blocks.neighbours import SCRATCH_BYTES
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.primitives.rows import ArrayRows
from mlfs_dask.runtime import PROCESS_BYTES, Resources
from mlfs_dask.selectors.mfsir import MFSIR
from mlfs_dask.solvers import blockwise
from tests.reference import mfsir as twin


def problem(seed=0, n=80, d=9, q=4):
    """Features 0..q-1 carry a label each; feature d-1 is constant."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.15, 0.6, q)).astype(np.int8)
    Y[0, 0] = 1
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    X[:, :q] += 1.5 * Y
    X[:, -1] = 4.0
    return X, Y


def quiet(selector, X, Y):
    """Fitted, whether or not its few iterations were enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return selector.fit(X, Y)


@pytest.fixture(scope="module")
def emotions():
    """X (593, 72) and Y (593, 6) of the real set, as its file has them."""
    folder = Path(os.environ.get("MLFS_DATA") or Path(__file__).parents[3] / "shared/data") / "emotions"
    if not folder.is_dir():
        pytest.skip(f"real data not found: {folder} (set MLFS_DATA)")
    lines = (folder / "emotions.arff").read_text().splitlines()
    values = np.array([line.split(",") for line in lines if line[:1].isdigit() or line[:1] == "-"], float)
    return values[:, :72], values[:, 72:].astype(np.int8)


# ---------------------------------------------------------------- the plain twin

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
    for seed in range(3):
        X, Y = problem(seed)
        parameters = PARAMETERS[name]
        found = quiet(MFSIR(3, gram_cap=gram_cap, **{"weight_steps": 5, **parameters}), X, Y)
        scores, objective, _ = twin.mfsir(X, Y, **parameters)
        assert found.report_.iterations == len(objective)
        assert found.report_.objective == pytest.approx(objective, rel=1e-8, abs=1e-8 * objective[0])
        assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-9 * scores.max())
        assert found.report_.extra["gram"] is (gram_cap > 0)


@pytest.mark.parametrize("gram_cap", [4096, 0])
def test_equals_the_plain_twin_on_real_data(emotions, gram_cap):
    X, Y = emotions[0][:300], emotions[1][:300]
    scores, objective, _ = twin.mfsir(X, Y)
    found = MFSIR(20, gram_cap=gram_cap, weight_steps=5).fit(X, Y)
    assert found.report_.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores_ == pytest.approx(scores, rel=1e-6)
    assert found.ranking_.tolist() == np.argsort(-scores, kind="stable").tolist()


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_same_scores_for_any_chunking_and_container(data):
    X, Y = problem(data.draw(st.integers(0, 50)), n=60)
    gram_cap, beta = data.draw(st.sampled_from([0, 4096])), data.draw(st.sampled_from([0.0, 1.0]))
    # A Dask array costs a graph a pass: four iterations have to do.
    selector = MFSIR(3, gram_cap=gram_cap, beta=beta, max_iter=4)
    expected = quiet(selector, X, Y).scores_

    def chunks(total):
        cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=3)))
        return tuple(b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True))

    dense = da.from_array(X, chunks=(chunks(60), chunks(9)))
    lazy_Y = da.from_array(Y, chunks=(chunks(60), -1))
    for x, y in (
        (dense, lazy_Y),
        (dense.map_blocks(sp.csr_array), lazy_Y),
        (dense.map_blocks(lambda b: sparse.GCXS.from_numpy(b, compressed_axes=(0,))), Y),
        (sp.csr_array(X), Y),
        (sp.csc_matrix(X), sp.csr_array(Y)),
        (ArrayRows(X, as_labels(Y), block_bytes=500), None),
    ):
        found = quiet(clone(selector), x, y)
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-10 * expected.max())


@pytest.mark.parametrize("gram_cap", [4096, 0])
def test_workers_give_the_same_scores(gram_cap):
    distributed = pytest.importorskip("distributed")
    X, Y = problem(n=300)
    expected = MFSIR(3, gram_cap=gram_cap).fit(X, Y)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=2**31
        ) as cluster,
        distributed.Client(cluster),
    ):
        found = MFSIR(3, gram_cap=gram_cap).fit(da.from_array(X, chunks=(70, 5)), da.from_array(Y, chunks=(300, -1)))
    assert found.scores_ == pytest.approx(expected.scores_, rel=1e-9, abs=1e-12)
    assert found.report_.objective == pytest.approx(expected.report_.objective, rel=1e-10)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_objective_never_rises(data):
    X, Y = problem(data.draw(st.integers(0, 10**6)), n=data.draw(st.integers(2, 60)), q=data.draw(st.integers(1, 6)))
    X *= data.draw(st.sampled_from([1e-6, 1.0, 1e6]))
    parameters = {
        "alpha": data.draw(st.sampled_from([0, 1e-2, 1, 1e3])),
        "beta": data.draw(st.sampled_from([0, 1e-2, 1, 1e3])),
        "n_neighbors": data.draw(st.integers(1, 9)),
        "weight_steps": data.draw(st.integers(1, 4)),
        "label_steps": data.draw(st.integers(1, 4)),
        "gram_cap": data.draw(st.sampled_from([0, 4096])),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = MFSIR(1, tol=0.0, max_iter=25, **parameters).fit(X, Y)
    objective = np.array(found.report_.objective)
    assert len(objective) >= 2
    assert (np.diff(objective) <= 1e-12 * max(objective[0], Y.sum())).all()
    assert np.isfinite(found.scores_).all()


@pytest.mark.parametrize("parameters", [{}, {"gram_cap": 0}, {"alpha": 10.0, "beta": 0.1}])
def test_the_objective_falls_and_settles_on_real_data(emotions, parameters):
    found = MFSIR(10, **parameters).fit(*emotions)
    objective = np.array(found.report_.objective)
    assert (np.diff(objective) < 0).all()
    assert found.report_.converged
    change = -np.diff(objective) / objective[:-1]
    assert change[-1] <= 1e-3
    assert (change[:-1] > 1e-3).all()


def test_order_of_rows_does_not_matter():
    X, Y = problem(2)
    order = np.random.default_rng(0).permutation(len(X))
    assert MFSIR(4).fit(X[order], Y[order]).scores_ == pytest.approx(MFSIR(4).fit(X, Y).scores_, rel=1e-8)


def test_scale_and_place_of_features_do_not_matter():
    X, Y = problem(2)
    moved = X * np.geomspace(1e-3, 1e3, X.shape[1]) + np.geomspace(1, 1e4, X.shape[1])
    assert MFSIR(4).fit(moved, Y).scores_ == pytest.approx(MFSIR(4).fit(X, Y).scores_, rel=1e-7, abs=1e-12)


def test_the_seed_matters_to_the_printed_form_alone():
    X, Y = problem()
    assert MFSIR(3, random_state=1).fit(X, Y).scores_.tolist() == MFSIR(3, random_state=2).fit(X, Y).scores_.tolist()
    one, again, other = (MFSIR(3, step="fixed", max_iter=5, random_state=s).fit(X, Y).scores_ for s in (1, 1, 2))
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()


def test_planted_features_are_found():
    rng = np.random.default_rng(3)
    Y = (rng.random((500, 5)) < 0.3).astype(int)
    X = rng.normal(size=(500, 60))
    planted = [7, 19, 23, 42, 55]
    X[:, planted] += 2 * Y
    for parameters in ({}, {"gram_cap": 0}, {"beta": 0}, {"n_latent": 5}):
        assert sorted(MFSIR(5, **parameters).fit(X, Y).ranking_[:5].tolist()) == planted


def test_the_printed_form_does_not_move_on_real_data(emotions):
    X, Y = emotions
    found = MFSIR(10, step="fixed", max_iter=300, random_state=0).fit(X, Y)
    objective = found.report_.objective
    assert len(objective) == 300
    assert np.ptp(objective) < 1e-6 * objective[0]
    # Its ranking is the one it drew.
    G, H = (
        np.random.default_rng(seed).uniform(-1e-5, 1e-5, size=(72, 4))
        for seed in np.random.SeedSequence(0).spawn(4)[:2]
    )
    drawn = np.argsort(-np.linalg.norm(G * H, axis=1))
    assert found.ranking_[:20].tolist() == drawn[:20].tolist()


# ---------------------------------------------------------------- limit cases


def test_as_alpha_grows_latent_labels_are_labels_and_weights_regress_on_them():
    # Labels that exclude one another factorise exactly; α then holds V there, and G⊙H tends to least squares.
    rng = np.random.default_rng(0)
    Y = np.eye(3, dtype=np.int8)[rng.integers(0, 3, 90)]
    X = rng.normal(size=(90, 5)) + Y @ rng.normal(size=(3, 5))
    found = MFSIR(2, alpha=1e8, beta=0, n_latent=3, tol=0.0, max_iter=30, weight_steps=200)
    quiet(found, X, Y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    W = np.linalg.lstsq(Z, Y.astype(float))[0]
    assert found.scores_ == pytest.approx(np.linalg.norm(W, axis=1), rel=1e-5)


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_small_alpha_and_beta_tend_to_their_absence(gram_cap):
    X, Y = problem(1)
    fixed = {"tol": 0.0, "max_iter": 10, "gram_cap": gram_cap}
    for name in ("alpha", "beta"):
        without = quiet(MFSIR(3, **{name: 0.0}, **fixed), X, Y).scores_
        near = [quiet(MFSIR(3, **{name: value}, **fixed), X, Y).scores_ for value in (1e-3, 1e-6, 1e-9)]
        distances = [np.abs(scores - without).max() / without.max() for scores in near]
        assert distances[0] > distances[1] > distances[2]
        assert distances[2] < 1e-6


@pytest.mark.parametrize("q", [1, 2, 3])
def test_few_labels(q):
    X, Y = problem(q=q)
    found = MFSIR(1).fit(X, Y)
    scores, _, _ = twin.mfsir(X, Y)
    assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-12)
    assert found.ranking_[0] < q
    assert found.report_.extra["n_latent"] == q // 2 + 1


def test_duplicate_rows_and_duplicate_features():
    X, Y = problem(3, n=30)
    X[10:20] = X[0]
    X[:, 5] = X[:, 1]
    found = MFSIR(3, n_neighbors=3).fit(X, Y)
    scores, _, _ = twin.mfsir(X, Y, n_neighbors=3)
    assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-12)
    assert found.scores_[5] == pytest.approx(found.scores_[1], rel=1e-9)
    places = found.ranking_.tolist()
    assert places.index(5) - places.index(1) in (1, -1)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_constant_features_come_last(container):
    X, Y = problem()
    X[:, 2] = 0.1
    found = MFSIR(7).fit(container(X), Y)
    assert found.scores_[[2, 8]].tolist() == [0.0, 0.0]
    assert found.ranking_[-2:].tolist() == [2, 8]
    assert found.report_.extra["constant_features"] == 2
    without = MFSIR(7).fit(container(np.delete(X, [2, 8], axis=1)), Y)
    kept = np.delete(np.arange(9), [2, 8])
    # The start of the search for λ_max has other draws: steps differ by what its bound leaves.
    assert found.scores_[kept] == pytest.approx(without.scores_, rel=0.05)


@pytest.mark.parametrize("label", [0, 1])
def test_a_label_that_never_or_always_occurs(label):
    X, Y = problem()
    Y[:, 1] = label
    never = pytest.warns(UserWarning, match=r"1 of 4 labels has no positive row \(column 1 of Y")
    with never if label == 0 else contextlib.nullcontext():
        found = MFSIR(3).fit(X, Y)
    scores, _, _ = twin.mfsir(X, Y)
    assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-12)
    assert found.ranking_[0] in (0, 2, 3)


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_one_row_with_labels(gram_cap):
    X, Y = problem()
    Y[:] = 0
    Y[5] = [1, 0, 1, 0]
    with pytest.warns(UserWarning, match=r"2 of 4 labels have no positive row \(columns 1 and 3 of Y"):
        found = quiet(MFSIR(3, gram_cap=gram_cap, weight_steps=5), X, Y)
    scores, objective, _ = twin.mfsir(X, Y)
    assert found.report_.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-12)
    assert found.report_.extra["n_latent"] == 1  # labels that no row tells apart are one
    assert scores[:8].min() > 0


def test_nothing_to_tell_features_apart_by():
    X, Y = problem()
    message = "mFSIR can tell no feature from another: every feature is constant, or no label differs"
    for x, y in ((np.full_like(X, 0.1), Y), (X, np.zeros_like(Y)), (X[:1], Y[:1])):
        for gram_cap in (0, 4096):
            with pytest.warns(UserWarning, match=message):
                found = MFSIR(2, gram_cap=gram_cap).fit(x, y)
            assert found.scores_.tolist() == [0.0] * 9
            assert found.ranking_.tolist() == list(range(9))
            if gram_cap and len(x) > 1:  # X W of no weights needs no reading
                assert found.report_.passes == 3 + found.report_.iterations - 1
            json.dumps(found.report_.to_dict(), allow_nan=False)


def test_one_feature_and_few_rows():
    X, Y = problem()
    assert MFSIR(1).fit(X[:, :1], Y).ranking_.tolist() == [0]
    for n in (2, 3):
        scores, _, _ = twin.mfsir(X[:n], Y[:n])
        assert quiet(MFSIR(2), X[:n], Y[:n]).scores_ == pytest.approx(scores, rel=1e-6, abs=1e-9)


def test_a_column_far_from_zero_gets_its_score():
    X, Y = problem(1)
    far = X.copy()
    far[:, :4] = np.round(far[:, :4] * 2**10) / 2**10  # exact after the shift
    for gram_cap in (0, 4096):
        near = MFSIR(4, gram_cap=gram_cap).fit(far, Y).scores_
        moved = far.copy()
        moved[:, :4] += 1e8
        assert MFSIR(4, gram_cap=gram_cap).fit(moved, Y).scores_ == pytest.approx(near, rel=1e-7, abs=1e-12)


# ---------------------------------------------------------------- what it costs


class Counted(ArrayRows):
    """Rows that count how often all of them were read."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.streamed = 0

    def stream(self, first, last):
        self.streamed += last - first
        return super().stream(first, last)


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("weight_steps", [1, 3])
def test_passes_are_counted_and_planned(beta, weight_steps):
    X, Y = problem()
    graph = 1 if beta else 0
    short = {"beta": beta, "weight_steps": weight_steps, "tol": 0.0, "max_iter": 4}
    for gram_cap in (4096, 0):
        rows = Counted(X, as_labels(Y))
        found = quiet(MFSIR(3, gram_cap=gram_cap, **short), rows, None)
        report = found.report_
        if gram_cap:
            assert report.passes == 1 + graph + 1 + 2 * 4 - 1  # moments, graph, X'X, two readings an iteration
            assert report.plan["passes"] == report.passes
            # The neighbour search reads a group before it lets all rows pass by.
            assert rows.streamed == report.passes + graph
        else:
            spectral = report.passes - (1 + graph + 1 + 4 * (2 * weight_steps + 1) - 2)  # no G step, no X'V at first
            assert spectral == 1  # nine features: their whole space is one block
            assert report.plan["passes"] >= report.passes
        assert report.plan["peak_driver_bytes"] > PROCESS_BYTES


def test_the_printed_form_is_planned_too():
    X, Y = problem()
    for gram_cap in (4096, 0):
        report = MFSIR(3, step="fixed", gram_cap=gram_cap, max_iter=3, random_state=0).fit(X, Y).report_
        assert report.passes == (1 + 1 + 1 + 2 * 3 - 1 if gram_cap else 1 + 1 + 1 + 1 + 1 + 2 * 3 + 2)
        assert report.plan["passes"] >= report.passes


def test_above_the_cap_nothing_has_d_times_d_numbers(monkeypatch):
    rng = np.random.default_rng(0)
    d = 3000
    X = sp.random_array((60, d), density=0.01, rng=rng, format="csr")
    Y = (rng.random((60, 3)) < 0.4).astype(np.int8)
    import tracemalloc

    selector = MFSIR(5, gram_cap=2000, max_iter=3)
    quiet(selector, X, Y)  # whatever is imported late is imported now
    tracemalloc.start()
    quiet(selector, X, Y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * d * d / 4
    assert selector.report_.extra["gram"] is False


@pytest.mark.parametrize(
    ("n", "d", "q", "gram_cap", "beta"),
    [(6000, 40, 30, 4096, 0), (6000, 40, 30, 4096, 1), (300, 2500, 40, 0, 1), (300, 1500, 20, 4096, 1)],
)
def test_memory_of_the_driver_is_within_the_plan(n, d, q, gram_cap, beta):
    import tracemalloc

    rng = np.random.default_rng(0)
    Y = (rng.random((n, q)) < 0.2).astype(np.int8)
    X = rng.normal(size=(n, d)).astype(np.float32)
    rows = ArrayRows(X, as_labels(Y))
    selector = MFSIR(10, gram_cap=gram_cap, beta=beta, max_iter=3)
    quiet(selector, rows, None)
    tracemalloc.start()
    with runtime.process_limits(threads=1):
        quiet(selector, rows, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    here = Resources(1, 1, 2**40, 2**40)
    planned = selector.plan(rows, here).peak_driver_bytes - runtime.driver_bytes()
    # The search for neighbours has scratch of a fixed size that a small problem does not fill.
    scratch = SCRATCH_BYTES if beta else 0
    assert 0.3 * (planned - scratch) < peak <= planned


def test_the_driver_is_planned_and_refused():
    rows = ArrayRows(*problem()[:1], as_labels(problem()[1]))
    large = replace(rows.profile, n=10**7, q=40, block_rows=1000)
    cluster = Resources(4, 1, 2**33, 2**34, client=object())  # room for the arrays beside what other tests have loaded
    plan = MFSIR(10).plan(large, cluster)
    assert plan.peak_driver_bytes > 8 * 10**7 * 21 * blockwise.ROW_MATRICES
    assert "real data took 11 to 46 iterations of 2 readings; at most 100" in plan.notes[0]
    assert MFSIR(10, beta=0).plan(large, cluster).peak_driver_bytes < plan.peak_driver_bytes - 24 * 10**7 * 5
    square = replace(rows.profile, d=4000)
    assert MFSIR(10).plan(square, cluster).peak_driver_bytes > 8 * 4000**2 + PROCESS_BYTES
    wide = replace(rows.profile, d=10**5, sparse=True)
    notes = MFSIR(10).plan(wide, cluster).notes
    assert "X'X is not formed: 100,000 features are more than 4,096" in notes
    assert "of 3 readings" in notes[0]
    with pytest.raises(DoesNotFitError, match="one pass on a worker"):
        MFSIR(10, gram_cap=10**6).plan(wide, cluster)

    class Untouched(ArrayRows):
        def stream(self, first, last):
            raise AssertionError("read")

    untouched = Untouched(problem()[0], as_labels(problem()[1]))
    untouched.profile = replace(untouched.profile, n=10**8)
    with (
        runtime.process_limits(memory_limit=2**33, threads=1),
        pytest.raises(DoesNotFitError, match="cure:"),
    ):
        MFSIR(2).fit(untouched)


def test_every_iteration_is_in_the_record_and_in_the_progress():
    X, Y = problem()
    told = []
    with runtime.progress_to(told.append):
        report = MFSIR(3).fit(X, Y).report_
    steps = [event for event in told if event["kind"] == "step"]
    assert [event["objective"] for event in steps] == report.objective
    assert len(report.extra["residual"]) == len(report.extra["step"]) == report.iterations
    assert report.converged is True
    assert report.extra["rho"] >= 80  # trace and rank of nine standardised features
    json.dumps(report.to_dict(), allow_nan=False)


def test_small_data_is_chosen_without_compiling_or_a_scheduler(emotions, tmp_path):
    """First fit of a process: neither takes longer than the fit itself."""
    X, Y = emotions
    np.savez(tmp_path / "emotions.npz", X=X, Y=Y)
    code = (
        "import sys, numpy as np\n"
        "from mlfs_dask.selectors.mfsir import MFSIR\n"
        f"data = np.load({str(tmp_path / 'emotions.npz')!r})\n"
        "MFSIR(20).fit(data['X'], data['Y'])\n"
        "print(*sorted({'numba', 'distributed'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"


def test_small_data_takes_few_steps(emotions):
    report = MFSIR(20).fit(*emotions).report_
    assert report.passes <= 60  # 38 when this was written
    assert report.iterations <= 30  # 18


# ---------------------------------------------------------------- refusals


def test_unknown_labels_are_refused_wherever_they_are_found():
    X, Y = problem()
    Y[3, 1] = -1
    message = r"MFSIR has no support for missing labels, and Y holds 1 unknown .* column 1 of Y \(counted from 0\)"
    for x, y in ((X, Y), (X, sp.csr_array(Y)), (da.from_array(X, chunks=(20, -1)), da.from_array(Y, chunks=(20, -1)))):
        with pytest.raises(DataError, match=message):
            MFSIR(3).fit(x, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"step": "other"}, "step must be 'blockwise' or 'fixed'; got 'other'"),
        ({"alpha": -1}, "alpha must be a non-negative number; got -1"),
        ({"alpha": True}, "alpha must be a non-negative number; got True"),
        ({"beta": float("inf")}, "beta must be a non-negative number; got inf"),
        ({"lambda_": 0}, "lambda_ must be a positive number; got 0"),
        ({"eta": 0.0}, "eta must be a positive number; got 0.0"),
        ({"omega": None}, "omega must be a positive number; got None"),
        ({"tol": -1e-3}, "tol must be a non-negative number; got -0.001"),
        ({"n_latent": 0}, "n_latent must be a whole number of at least 1; got 0"),
        ({"n_latent": 5}, "n_latent is 5, but there are 4 labels; give at most 4"),
        ({"n_neighbors": 2.5}, "n_neighbors must be a whole number of at least 1; got 2.5"),
        ({"weight_steps": 0}, "weight_steps must be a whole number of at least 1; got 0"),
        ({"label_steps": None}, "label_steps must be a whole number of at least 1; got None"),
        ({"gram_cap": -1}, "gram_cap must be a whole number of at least 0; got -1"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0; got -1"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        MFSIR(3, **parameters).fit(*problem())


def test_a_loop_cut_short_warns():
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 2 iterations .* Increase max_iter, or tol"):
        found = MFSIR(3, max_iter=2).fit(*problem())
    assert found.report_.converged is False
    assert found.report_.iterations == 2
