"""ELC: against its plain twin in every container and cut, published code, limit cases, refusals, time."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask import ELC, runtime
from mlfs_dask.blocks.label_space import standardised_products
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DoesNotFitError, MlfsError
from mlfs_dask.reporting.diagnostics import describe
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import MESSAGE_COPIES
from mlfs_dask.selectors.elc import label_factor, screen_scores
from mlfs_dask.statistics import products
from tests.conftest import published
from tests.problems import labelled_problem as problem
from tests.problems import real_data
from tests.reference import elc as twin

PARAMETERS = {"published": {"lambda_": 1e-3, "beta": 1e8}, "corrected": {}, "screen": {}}


# Some cases keep all features, a constant one among them.
pytestmark = pytest.mark.filterwarnings("ignore:.* features? kept do")


@pytest.fixture(scope="module")
def emotions():
    return real_data("emotions")


@pytest.fixture(scope="module")
def oracle():
    return published("elc")


# ---------------------------------------------------------------- the plain twin


@pytest.mark.parametrize("variant", ["corrected", "published", "screen"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("k", [1, 8, 9])
def test_equals_the_plain_twin(variant, seed, k):
    X, Y = problem(seed)
    found = ELC(k, variant=variant).fit(X, Y)
    expected, loop = twin.elc(X, Y, k, variant=variant, **PARAMETERS[variant])
    assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-9)
    if loop is not None:
        assert found.support_[loop[0] == 1].all()
        assert loop[0].sum() == min(k, 8)  # the ninth is constant
        assert found.report_.iterations == len(loop[3])


@pytest.mark.parametrize("k", [3, 9])
def test_scales_of_the_scores_are_told(k):
    """Those of the chosen, of the others, and of the constant feature do not go together."""
    found = ELC(k).fit(*problem(0))
    scales = [(each["scale"], each["features"]) for each in found.report_.extra["score_scales"]]
    chosen, others, constant = ("the residual in the loop (Eq. 14)", "the fit of each alone (Eq. 1)", "being constant")
    assert scales == ([(chosen, 3), (others, 5), (constant, 1)] if k == 3 else [(chosen, 8), (constant, 1)])
    assert sorted(found.scores_, reverse=True)[scales[0][1] - 1] >= 1
    assert "score_scales" not in ELC(k, variant="screen").fit(*problem(0)).report_.extra


def test_parameters_reach_the_loop():
    X, Y = problem(5)
    for parameters in ({"lambda_": 0.3}, {"beta": 0.2}, {"mask_iter": 2}, {"tol": 1e-2}):
        expected, loop = twin.elc(X, Y, 4, **parameters)
        found = ELC(4, **parameters).fit(X, Y)
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert found.report_.objective == pytest.approx(loop[3], rel=1e-9)


def test_scale_and_place_of_features_do_not_matter():
    X, Y = problem(2)
    moved = X * np.geomspace(1e-3, 1e3, X.shape[1]) + np.geomspace(1, 1e4, X.shape[1])
    assert ELC(4).fit(moved, Y).scores_ == pytest.approx(ELC(4).fit(X, Y).scores_, abs=1e-8)


# ---------------------------------------------------------------- the papers and their code


def test_corrected_form_converges_on_emotions(emotions):
    for k in (7, 36, 65):
        report = ELC(k).fit(*emotions).report_
        assert report.converged
        assert report.extra["gap"][-1] <= 1e-3
        objective = np.array(report.objective)
        assert objective[-1] == objective.min()
        assert (np.diff(objective)[2:] < 0).mean() > 0.9
        settled = objective[250:]  # features were exchanged for the last time 50 iterations ago
        assert (np.diff(settled) <= 1e-6 * settled[:-1]).all()


def test_published_form_keeps_the_best_of_the_screen_on_emotions(emotions, oracle):
    X, Y = emotions
    for k in oracle["ks"]:
        published = ELC(int(k), variant="published").fit(X, Y)
        assert published.report_.iterations == 2  # as the authors' code
        assert published.support_.tolist() == ELC(int(k), variant="screen").fit(X, Y).support_.tolist()


def test_sums_of_emotions_are_those_of_the_data(emotions, oracle):
    X, Y = emotions
    Z = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    distance = np.linalg.norm(Y.T[:, np.newaxis].astype(float) - Y.T, axis=2)
    assert len(X) == oracle["n"]
    assert pytest.approx(oracle["label_products"], rel=1e-9, abs=1e-9) == Y.T @ Z
    assert distance == pytest.approx(oracle["label_distances"], rel=1e-12)


def test_the_exponential_similarity_chooses_the_features_of_the_authors_program(emotions, oracle):
    X, Y = emotions
    for k, mask in zip(oracle["ks"], oracle["selected_mask"], strict=True):
        for variant in ("screen", "published"):
            found = ELC(int(k), variant=variant, similarity="exponential").fit(X, Y)
            assert np.flatnonzero(found.support_).tolist() == np.flatnonzero(mask).tolist()
    paper = ELC(int(oracle["ks"][2]), variant="screen").fit(X, Y)
    assert np.flatnonzero(paper.support_).tolist() != np.flatnonzero(oracle["selected_mask"][2]).tolist()


def test_authors_similarity_in_our_screen_gives_the_authors_scores(oracle):
    # Their S is exp(−dist) / (2 · mean dist) with unsquared distances, none of it set to zero, and their
    # standard deviation has n − 1. The screen needs sums of the data alone.
    n, A, distance = int(oracle["n"]), oracle["label_products"], oracle["label_distances"]
    S = np.exp(-distance) / (2 * distance.mean())
    constant = (S**2).sum()  # tr(S'S), which is the same for every feature
    theirs = oracle["scores"]
    ours = screen_scores(A, S, n) + constant
    assert ours / ours[0] == pytest.approx(theirs / theirs[0], rel=1e-9)
    for k, mask in zip(oracle["ks"], oracle["selected_mask"], strict=True):
        assert sorted(np.argsort(ours, kind="stable")[:k]) == np.flatnonzero(mask).tolist()


def test_factor_reproduces_the_clipped_similarity(emotions):
    S = twin.similarity(emotions[1])
    values, vectors = np.linalg.eigh(S)
    assert values[0] == pytest.approx(-0.09, abs=0.005)  # so it is no square
    Gamma = label_factor(S, 593)
    clipped = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
    assert Gamma @ Gamma.T == pytest.approx(593**2 * clipped, abs=1e-6)
    assert Gamma == pytest.approx(twin.factor(S, 593), abs=1e-6)


def test_diagnostics_of_the_record_equal_the_twin():
    X, Y = problem(1)
    found = ELC(4).fit(X, Y)
    chosen = np.flatnonzero(found.support_).tolist()
    assert found.report_.extra["redundancy"] == pytest.approx(twin.redundancy(X, Y, chosen))
    assert found.report_.extra["residual_correlation"] == pytest.approx(twin.residual_correlation(X, Y, chosen))
    _, (same, other) = describe(X, Y, selections=[found.support_, [0, 1]])
    assert same[0] == pytest.approx(found.report_.extra["redundancy"])
    assert other[1] == pytest.approx(twin.residual_correlation(X, Y, [0, 1]))
    assert ELC(1).fit(X, Y).report_.extra["redundancy"] is None
    json.dumps(found.report_.to_dict())


# ---------------------------------------------------------------- limit cases


def test_a_penalty_too_large_for_any_feature_leaves_the_screen():
    X, Y = problem()
    found = ELC(3, lambda_=10.0, mask_iter=0).fit(X, Y)
    assert found.report_.extra["gap"][-1] <= 1e-3
    assert sorted(found.ranking_[:3]) == sorted(ELC(3, variant="screen").fit(X, Y).ranking_[:3])


def test_a_column_far_from_zero_gets_its_score():
    X, Y = problem(1)
    far = X.copy()
    far[:, :4] = np.round(far[:, :4] * 2**10) / 2**10  # exact after the shift
    near = ELC(4).fit(far, Y).scores_
    far[:, :4] += 1e8
    assert ELC(4).fit(far, Y).scores_ == pytest.approx(near, rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------- refusals


def test_the_driver_is_planned_and_refused():
    profile = ArrayRows(*problem()[:1], as_labels(problem()[1])).profile
    wide = profile.__class__(**{**vars(profile), "d": 10**6, "q": 1000, "sparse": True, "n": 10**6})
    resources = Resources(2, 1, 2**36, 2**37, client=object())
    plan = ELC(10).plan(wide, resources)
    assert plan.passes == 1
    assert plan.peak_driver_bytes > 8 * 8 * 10**9  # the loop's matrices
    screen = ELC(10, variant="screen").plan(wide, resources)
    assert sum(screen.arrays.values()) < sum(plan.arrays.values()) / 2
    # What the screen holds is less than the copies of the sums while they arrive.
    assert screen.peak_driver_bytes == pytest.approx(MESSAGE_COPIES * 8 * 10**9 + runtime.driver_bytes(), rel=0.01)
    with pytest.raises(DoesNotFitError, match="elc in the driver process"):
        ELC(10).plan(wide, replace(resources, driver_limit=2**33))
    with pytest.raises(DoesNotFitError, match="one pass on a worker"):
        ELC(10).plan(wide, Resources(2, 1, 2**32, 2**33, client=object()))


def test_memory_of_the_loop_is_within_the_plan():
    import tracemalloc

    rng = np.random.default_rng(0)
    d, q, n = 3000, 30, 300
    Y = (rng.random((n, q)) < 0.2).astype(np.int8)
    X = rng.normal(size=(n, d)).astype(np.float32)
    selector = ELC(300, max_iter=30, mask_iter=10)
    here = Resources(1, 1, 2**40, 2**40)
    source = ArrayRows(X, as_labels(Y))
    with pytest.warns(ConvergenceWarning):
        selector.fit(X, Y)  # whatever is imported late is imported now
    sums = products.LabelProducts(d, q)
    state = sums.zero()
    for block in source.stream(0, source.profile.partitions):
        sums.add(state, block)
    moments = sums.finalize(state)
    from mlfs_dask.selectors.elc import label_similarity, screen_scores

    tracemalloc.start()
    A = standardised_products(moments.products.copy(), moments.std)
    S = label_similarity(moments.pairs, moments.positives)
    selector.make_question().method._solve(A, label_factor(S, n), screen_scores(A, S, n), 300)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    from mlfs_dask.runtime import PROCESS_BYTES

    assert source.profile.d == d
    declared = 8 * (8 * q * d + 6 * q * q + 12 * d)
    assert selector.plan(source, here).peak_driver_bytes >= declared + PROCESS_BYTES
    assert 0.5 * declared < peak <= declared


def test_the_published_form_that_diverges_says_so():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 12))
    Y = (X[:, :4] + rng.normal(size=(200, 4)) > 0.6).astype(int)
    with pytest.raises(
        MlfsError, match=r"ELC as published diverged in iteration \d+: .* not finite\n  cure: take variant="
    ):
        ELC(4, variant="published").fit(X, Y)
