"""Tests over data sets against published examples, and stability against hand cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from mlfs_dask.evaluation.statistics import (
    bonferroni_dunn_difference,
    friedman_test,
    nemenyi_difference,
    paired_t_test,
    rank_methods,
    stability,
)

# Demšar (2006), Table 6: AUC of C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets. Where three digits tie two
# values of which the article gives different ranks (voting), the last digit is told apart here.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9752, 0.9751],
        [0.957, 0.978, 0.946, 0.970],
    ]
)


def test_the_table_of_c45_variants() -> None:
    ranks = rank_methods(DEMSAR, higher_is_better=True)
    assert np.round(ranks.mean(axis=0), 3).tolist() == [3.143, 2.0, 2.893, 1.964]
    test = friedman_test(ranks)
    assert (test["n_datasets"], test["n_methods"]) == (14, 4)
    assert round(test["chi2"], 2) == 9.28
    assert round(test["f"], 2) == 3.69
    assert test["chi2_p_value"] == pytest.approx(stats.chi2.sf(test["chi2"], 3))
    assert stats.f.isf(0.05, 3, 39) == pytest.approx(2.85, abs=0.005)  # the article's critical value
    assert test["f_p_value"] == pytest.approx(stats.f.sf(test["f"], 3, 39))
    assert test["f_p_value"] < 0.05
    assert round(nemenyi_difference(4, 14), 2) == 1.25
    # The article prints 1.16, cut off.
    assert bonferroni_dunn_difference(4, 14) == pytest.approx(2.394 * math.sqrt(4 * 5 / (6 * 14)), abs=1e-4)
    assert round(nemenyi_difference(4, 14, alpha=0.1), 2) == 1.12


@pytest.mark.parametrize(
    ("k", "nemenyi", "bonferroni_dunn"),
    [(2, 1.960, 1.960), (3, 2.343, 2.241), (5, 2.728, 2.498), (10, 3.164, 2.773)],
)
def test_critical_values_of_demsars_table_5(k: int, nemenyi: float, bonferroni_dunn: float) -> None:
    scale = math.sqrt(k * (k + 1) / 6)
    assert nemenyi_difference(k, 1) / scale == pytest.approx(nemenyi, abs=1e-3)
    assert bonferroni_dunn_difference(k, 1) / scale == pytest.approx(bonferroni_dunn, abs=1e-3)


@pytest.mark.parametrize(
    ("ranks", "chi2", "f", "p"),
    [(np.tile([1.0, 2.0, 3.0], (4, 1)), 8.0, math.inf, 0.0), (np.full((3, 4), 2.5), 0.0, 0.0, 1.0)],
    ids=["all agree", "all equal"],
)
def test_friedman_at_its_limits(ranks: np.ndarray, chi2: float, f: float, p: float) -> None:
    test = friedman_test(ranks)
    assert (test["chi2"], test["f"], test["f_p_value"]) == (pytest.approx(chi2), f, p)


@pytest.mark.parametrize("shape", [(1, 4), (4, 1)])
def test_friedman_needs_two_of_each(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="needs two data sets and two methods"):
        friedman_test(np.ones(shape))


def test_paired_t_test_is_scipys_over_the_defined_pairs() -> None:
    random = np.random.default_rng(1)
    a, b = random.random(6), random.random(6)
    b[2] = np.nan
    keep = ~np.isnan(b)
    found = paired_t_test(a, b)
    assert found.n_pairs == 5
    assert found.p_value == pytest.approx(stats.ttest_rel(a[keep], b[keep]).pvalue)
    assert found.difference == pytest.approx((a[keep] - b[keep]).mean())


@pytest.mark.parametrize(
    ("a", "b", "p_value", "decides"),
    [
        ([0.5, 0.6], [0.5, 0.6], 1.0, False),
        ([0.5, 0.6, 0.8], [0.4, 0.5, 0.7], 0.0, True),
        ([0.5], [0.1], math.nan, False),
        ([math.nan, 0.5], [0.1, math.nan], math.nan, False),
    ],
    ids=["equal", "shifted", "one fold", "no pair"],
)
def test_paired_t_test_at_its_limits(a: list[float], b: list[float], p_value: float, decides: bool) -> None:
    test = paired_t_test(a, b)
    assert test.p_value == pytest.approx(p_value, nan_ok=True)
    assert test.decides(0.05) is decides


def test_kuncheva_by_hand() -> None:
    # d = 10, k = 4, r = 3: (30 − 16) / 24
    assert stability([[0, 1, 2, 3], [1, 2, 3, 4]], 10).kuncheva == pytest.approx(14 / 24)
    assert stability([[0, 1], [0, 1]], 10).kuncheva == 1.0
    assert stability([[0, 1], [2, 3]], 4).kuncheva == -1.0
    assert math.isnan(stability([[0, 1], [0, 1]], 2).kuncheva)
    assert math.isnan(stability([[], []], 10).jaccard)
    assert math.isnan(stability([{1, 2}], 5).jaccard)
    with pytest.raises(ValueError, match="equal size, got 2 and 1"):
        stability([[0, 1], [0]], 4)


def test_stability_is_the_mean_over_pairs() -> None:
    random = np.random.default_rng(3)
    sets = [random.choice(20, 6, replace=False).tolist() for _ in range(5)]
    found = stability(sets, 20)
    common = [len({*a} & {*b}) for a, b in itertools.combinations(sets, 2)]
    assert found.kuncheva == pytest.approx(np.mean([(r * 20 - 36) / (6 * 14) for r in common]))
    assert found.jaccard == pytest.approx(np.mean([r / (12 - r) for r in common]))
