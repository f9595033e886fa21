"""Greedy selection by pairs: against plain twins, published programs and limit cases; readings, blocks, plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import AMI, D2F, JMI, MDMR, MRMR, PMU, SCLS, open_dataset
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine import cache as caching
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources, current_resources
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import greedy as greedy_module
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.storage.convert import convert_reader
from tests.conftest import published
from tests.problems import real_data
from tests.reference import greedy as twin
from tests.storage.memory_reader import make_reader

METHODS = {
    "pmu": (PMU(6), twin.pmu),
    "d2f": (D2F(6), twin.d2f),
    "mdmr": (MDMR(6), twin.mdmr),
    "scls": (SCLS(6), twin.scls),
    "ami": (AMI(6), twin.ami),
    "mrmr": (MRMR(6), twin.mid),
    "mrmr-miq": (MRMR(6, criterion="miq"), twin.miq),
    "jmi": (JMI(6), twin.jmi),
}


def selector(name, **parameters):
    return type(METHODS[name][0])(**{**METHODS[name][0].get_params(), **parameters})


def problem(seed=0, n=150, d=9, q=4):
    """Features that repeat one another with errors, and tell of one label or, two together, of another."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.2, 0.6, q)).astype(np.int8)
    X = rng.normal(size=(n, d))
    X[:, 0] += 2 * Y[:, 0]
    X[:, 1] = X[:, 0] + 0.2 * rng.normal(size=n)
    X[:, 2] = rng.random(n) < 0.4
    X[:, 3] = X[:, 2].astype(int) ^ Y[:, 1]
    X[:, 4] = 1.0
    X[:, 5] = rng.random(n) < 0.2 + 0.5 * Y[:, 2]
    return X, Y


@pytest.fixture(params=[1, 64])
def candidates(request, monkeypatch):
    """Candidates of a reading: the one that is needed, and all features."""
    monkeypatch.setattr(greedy_module, "MIN_CANDIDATES", request.param)
    if request.param == 1:
        monkeypatch.setattr(greedy_module.GreedySelector, "_n_candidates", lambda *_: 1)
    return request.param


@pytest.mark.parametrize("name", METHODS)
def test_equals_the_plain_twin(name, candidates):
    X, Y = problem()
    found = selector(name, bins=3).fit(X, Y)
    order, steps = twin.greedy(X, Y, 6, METHODS[name][1], bins=3)
    assert found.ranking_[:6].tolist() == order
    assert found.scores_[order] == pytest.approx([step[f] for step, f in zip(steps, order, strict=True)], abs=1e-9)
    rest = [f for f in range(9) if f not in order and f != 4]
    assert found.scores_[rest] == pytest.approx(steps[-1][rest], abs=1e-9)
    assert found.ranking_[6:].tolist() == [*sorted(rest, key=lambda f: (-found.scores_[f], f)), 4]  # which is constant
    assert found.report_.passes == 1 + (5 if candidates == 1 else 1)
    assert found.report_.passes <= found.report_.plan["passes"]


@pytest.mark.filterwarnings("ignore:codes of equal width")
def test_published_programs_on_emotions():
    X, Y = real_data("emotions")
    expected = published("greedy")
    assert PMU(20, binning="equal-width").fit(X, Y).ranking_[:20].tolist() == expected["pmu"].tolist()
    # The programs of the others depart from their papers, which their twins show: the criteria differ in that alone.
    assert twin.d2f_program(X, Y, 8) == expected["d2f"].tolist()
    assert twin.ami_program(X, Y, 20) == expected["ami"].tolist()
    for method, first in ((D2F, expected["d2f"][:2]), (AMI, expected["ami"][:1])):
        assert method(2, binning="equal-width").fit(X, Y).ranking_[: len(first)].tolist() == first.tolist()


def test_two_features_that_tell_of_a_label_together_are_found():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (400, 8))
    Y = np.stack([X[:, 2] ^ X[:, 5], X[:, 2] | (rng.random(400) < 0.3)], axis=1)
    for method in (PMU, D2F, MDMR, JMI):
        assert method(2).fit(X, Y).ranking_[:2].tolist() == [2, 5]


def test_fewer_features_are_the_first_of_more():
    X, Y = problem()
    for name in METHODS:
        more = selector(name).fit(X, Y)
        assert selector(name, n_features_to_select=3).fit(X, Y).ranking_[:3].tolist() == more.ranking_[:3].tolist()


def test_one_reading_of_candidates_serves_many_steps(monkeypatch):
    rng = np.random.default_rng(0)
    Y = (rng.random((3000, 12)) < 0.1).astype(np.int8)
    X = sp.csr_array((rng.random((3000, 400)) < 0.03 + 0.3 * Y[:, rng.integers(0, 12, 400)]).astype(np.uint8))
    found = D2F(60).fit(X, Y)
    assert found.report_.extra["candidates"] == 64
    assert found.report_.passes <= 60 // 5
    monkeypatch.setattr(greedy_module, "MIN_CANDIDATES", 400)
    whole = D2F(60).fit(X, Y)
    assert whole.report_.passes == 2
    assert whole.scores_.tobytes() == found.scores_.tobytes()


def test_the_cache_has_all_pairs_after_a_method_that_weighs_all_features(tmp_path, monkeypatch):
    monkeypatch.setattr(greedy_module, "MIN_CANDIDATES", 2)
    X, Y = problem()
    convert_reader(lambda: make_reader(X, Y), tmp_path / "set.zarr", workers=1)
    expected = AMI(3).fit(X, Y)
    with caching.cache():
        dataset = open_dataset(tmp_path / "set.zarr")
        get_estimator("qpmlfs")(3).fit(dataset)
        assert D2F(3).fit(dataset).report_.passes > 0  # needs pairs with labels
        found = AMI(3).fit(dataset)
    assert (found.report_.passes, found.report_.plan["passes"]) == (0, 0)
    assert expected.report_.passes > 1
    assert found.scores_.tobytes() == expected.scores_.tobytes()


@pytest.mark.parametrize(
    ("method", "nonzeros", "remote", "candidates"),
    [
        (D2F, 10**6, False, 64),  # what is looked at in vain would take longer than a reading
        (D2F, 10**7, False, 153),  # (3 · 10⁷ + 10⁶) / (2 000 · 101)
        (D2F, 10**9, False, 500),
        (D2F, 10**6, True, 500),
        (AMI, 10**6, False, 500),  # looks at no label
    ],
)
def test_candidates_are_as_many_as_take_the_time_of_a_reading(method, nonzeros, remote, candidates):
    profile = ArrayRows(np.zeros((10, 2)), as_labels(np.zeros((10, 2)))).profile
    texts = replace(profile, n=10**6, d=2000, q=100, sparse=True, nonzeros=nonzeros, remote=remote, partitions=50)
    plan = method(500).plan(texts, Resources(1, 2, 2**36, 2**36))
    assert f"{candidates} candidates are read at a time" in plan.notes


def test_fewer_candidates_are_planned_where_memory_is_short():
    profile = ArrayRows(np.zeros((10, 2)), as_labels(np.zeros((10, 2)))).profile
    wide = replace(
        profile, n=10**6, d=10_000, q=100, sparse=True, nonzeros=10**8, label_nonzeros=3 * 10**6, partitions=50
    )
    two = Resources(2, 1, 2**31, 2**34, client=object())
    plan = D2F(100).plan(wide, two)
    assert plan.peak_worker_bytes <= 0.8 * two.memory_limit
    assert "100 candidates are read at a time" in plan.notes
    assert plan.typical_passes == (3, 2 + 12)  # ranges, relevances, and pairs
    few = D2F(100).plan(wide, replace(two, memory_limit=2**29))
    assert few.peak_worker_bytes <= 0.8 * 2**29
    assert "100 candidates" not in few.notes[-1]
    count = int(few.notes[-1].split()[0])
    # Every chosen feature has been a candidate, and no fifth of k is exceeded.
    assert few.typical_passes == (2 + -(-99 // count), 2 + min(20, 3 * -(-99 // count) + 9))
    with pytest.raises(DoesNotFitError):
        D2F(100).plan(replace(wide, q=10_000), replace(two, memory_limit=2**28))


def test_as_many_readings_are_made_as_planned_at_most():
    X, Y = problem()
    source = ArrayRows(X, as_labels(Y), block_bytes=2000)
    here = Resources(1, 2, 2**32, 2**32)
    method = PMU(5)
    readings = Readings(source, here, method.plan(source, here))
    method.make_method().score(readings, 5)
    assert list(readings.plan.readings) == ["counts", "pairs"]
    assert len(readings.records) == readings.plan.passes == 2
    q = Y.shape[1]
    assert readings.plan.notes[0] == f"counts of {q} of {q} labels and of {q * (q - 1) // 2} pairs of labels"


def test_a_single_feature_needs_no_candidates() -> None:
    source = ArrayRows(np.eye(8), as_labels(np.eye(8, 2, dtype=int)))
    notes = AMI(1).plan(source, current_resources()).notes
    assert not any("candidates" in note for note in notes)
