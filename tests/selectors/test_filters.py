"""The one-pass filters: against their plain twins and published programs; any chunking and container; hand cases."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from tests.conftest import published
from tests.problems import real_data

COUNTING = [method for method in METHODS if method != "auto" and get_estimator(method).plain.scores_from_counts]


def problem(seed=0, n=120, d=9, q=5):
    """X with 0/1, sparse, distant and constant features; labels of which one never occurs, and rows without any."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.1, 0.6, q)).astype(np.int8)
    Y[:, -1] = 0
    Y[:5] = 0
    X = rng.normal(size=(n, d))
    X[:, 0] += 2 * Y[:, 0]
    X[:, 1] = rng.random(n) < 0.3
    X[:, 2] = np.where(rng.random(n) < 0.8, 0, X[:, 2])
    X[:, 3] += 1e2
    X[:, 4] = 7.0
    X[:, 5] = np.where(rng.random(n) < 0.9, Y[:, 1], 1 - Y[:, 1])
    return X, Y


def test_a_single_class_of_rows_with_labels_is_told():
    X, Y = problem()
    with pytest.warns(
        UserWarning,
        match="cannot rank the features: among rows that have a label, no feature goes with which one it is",
    ):
        found = get_estimator("ela-chi")(3).fit(X, Y[:, :1])
    assert not found.scores_.any()


@pytest.mark.filterwarnings("ignore:codes of equal width")
def test_ela_chi_equals_the_program_of_others():
    expected = published("ela_chi")["scores"]
    X, Y = real_data("emotions")
    assert get_estimator("ela-chi")(10, binning="equal-width").fit(X, Y).scores_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("chosen", [1, 6])
@pytest.mark.filterwarnings("ignore:codes of equal width")
def test_fimf_equals_the_authors_program_but_for_what_all_features_share(chosen):
    expected = published("fimf")[f"lc{chosen}_scores"] * np.log(2)  # their logarithms are to base 2
    X, Y = real_data("emotions")
    found = get_estimator("fimf")(10, n_interacting_labels=chosen, binning="equal-width").fit(X, Y).scores_
    assert found - found[0] == pytest.approx(expected - expected[0], rel=1e-9, abs=1e-12)


def test_mddm_equals_the_program_of_others():
    expected = published("mddm")
    X, Y = real_data("emotions")
    found = get_estimator("mddm")(10).fit(X, Y).scores_
    # They divide by n - 1 where features are standardised.
    assert found == pytest.approx(expected["scores"] * np.sqrt(593 / 592), rel=1e-9)
    for k in (1, 3):
        few = get_estimator("mddm")(10, n_components=k).fit(X, Y).scores_
        rows = np.linalg.norm(expected["U"][:, :k] * np.sqrt(expected["eigenvalues"][:k]), axis=1)
        assert few == pytest.approx(rows * np.sqrt(593 / 592), rel=1e-7)


def test_a_subspace_of_too_many_features_is_refused_with_a_cure():
    X, Y = problem()
    with pytest.raises(DoesNotFitError, match=r"X'X of 9 features.*at most 8 \(gram_cap\)") as caught:
        get_estimator("mddm")(3, constraint="subspace", gram_cap=8).fit(X, Y)
    assert "constraint='projection'" in str(caught.value)
    get_estimator("mddm")(3, gram_cap=8).fit(X, Y)
    with pytest.raises(UsageError, match="mu must be a non-negative number below 1"):
        get_estimator("mddm")(3, mu=1.0).fit(X, Y)


def test_in_a_subspace_features_that_repeat_one_another_share_their_score():
    X, Y = problem()
    X[:, 8] = X[:, 7] = X[:, 0]
    for constraint, share in (("projection", 1), ("subspace", 1 / 3)):
        alone, repeated = (
            get_estimator("mddm")(3, constraint=constraint).fit(each, Y).scores_[0] for each in (X[:, :7], X)
        )
        assert repeated == pytest.approx(share * alone, rel=1e-2)


def test_a_single_label_is_a_class_that_has_no_other_to_be_compared_with():
    X, Y = problem()
    assert get_estimator("fisher")(3).fit(X, Y[:, 0]).ranking_[0] == 0
    with pytest.warns(UserWarning, match="no feature goes with any label"):
        get_estimator("mfs-f")(3).fit(X, Y[:, 0])


def test_features_that_separate_a_label_exactly_have_a_finite_f_statistic():
    Y = np.array([0, 0, 0, 1, 1])
    X = np.stack([Y * 3.0, Y * 1e6 + 1e9, np.arange(5.0)], axis=1)
    found = get_estimator("anova-f")(1).fit(X, Y).scores_
    assert found[0] == pytest.approx(3e12)
    assert found[1] == pytest.approx(3e12)
    assert found[2] == pytest.approx(9.0)


@pytest.mark.parametrize("method", ["anova-f", "mfs-f"])
def test_features_that_separate_labels_exactly_are_ranked_by_index(method):
    rng = np.random.default_rng(0)
    Y = np.zeros((60, 2), dtype=np.int8)
    Y[:, 0] = rng.random(60) < 0.4
    Y[:, 1] = 1 - Y[:, 0]
    X = rng.normal(size=20) + Y[:, :1] * rng.normal(size=20)
    X = np.hstack([rng.normal(size=(60, 2)), X, np.ones((60, 1))])
    for given in (X, sp.csr_array(X)):
        found = get_estimator(method)(3).fit(given, Y)
        assert len(set(found.scores_[2:22].tolist())) == 1
        assert found.ranking_[:20].tolist() == list(range(2, 22))
        assert found.scores_[22] == 0.0


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("br-cc", {}),
        ("anova-f", {}),
        ("fisher", {}),
        ("mfs-f", {}),
        ("elc", {}),
        ("mddm", {}),
        ("mddm", {"constraint": "subspace"}),
        ("spfs", {}),
        ("laplacian", {"random_state": 0}),
    ],
)
def test_sparse_features_too_far_from_zero_are_refused(method, parameters):
    X, Y = problem()
    expected = get_estimator(method)(3, **parameters).fit(X, Y).scores_
    X[:, 3] += 2.0**20
    for given in (X, da.from_array(X, chunks=(20, -1))):
        assert get_estimator(method)(3, **parameters).fit(given, Y).scores_ == pytest.approx(expected, rel=1e-8)
    with pytest.raises(DataError, match=r"lies .* standard deviations from zero") as caught:
        get_estimator(method)(3, **parameters).fit(sp.csr_array(X), Y)
    assert caught.value.column == 3
    assert "--storage dense" in str(caught.value)


def test_odds_ratios_are_smoothed_by_a_positive_number():
    with pytest.raises(UsageError, match="smoothing must be a positive number; got 0"):
        get_estimator("br-or")(3, smoothing=0).fit(*problem())


@pytest.mark.parametrize("method", ["anova-f", "br-cc", "elc", "fisher", "mfs-f", "relieff"])
def test_a_copy_of_a_feature_comes_after_it_wherever_it_stands(method):
    """Vector instructions round a block's last columns otherwise."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 9))
        X[:, 8] = X[:, 0]
        Y = (X[:, :3] + rng.normal(size=(600, 3)) > 0.6).astype(int)
        expected = get_estimator(method)(9).fit(X, Y)
        assert expected.scores_[8] == expected.scores_[0]
        for rows in (sp.csr_array(X), da.from_array(X, chunks=(70, 9))):
            assert get_estimator(method)(9).fit(rows, Y).ranking_.tolist() == expected.ranking_.tolist()


@pytest.mark.parametrize("method", ["fisher", "mfs-f"])
def test_labels_that_all_rows_have_tell_nothing(method):
    X = np.random.default_rng(3).normal(size=(120, 9))
    for form in (np.asarray, sp.csr_array):
        with pytest.warns(UserWarning, match="all 4 labels are the same in every row. All features get the same"):
            found = get_estimator(method)(4).fit(form(X), np.ones((120, 4), int))
        assert found.ranking_.tolist() == list(range(9))


@pytest.mark.parametrize("method", ["ami", "mico", "mrmr", "spfs"])
def test_methods_that_weigh_features_say_that_this_is_all_they_rank_by(method):
    X = np.random.default_rng(3).normal(size=(120, 9))
    with pytest.warns(
        UserWarning, match="all 4 labels are the same in every row. The ranking is by what features share"
    ):
        get_estimator(method)(4).fit(X, np.ones((120, 4), int))


@pytest.mark.parametrize("method", COUNTING)
def test_a_feature_of_0_and_1_and_its_complement_stay_in_order(method):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        n = 300 + seed
        X = (rng.random((n, 6)) < rng.random(6)).astype(np.int8)
        Y = ((X[:, :3] + (rng.random((n, 3)) < 0.3)) > 0.5).astype(np.int8)
        order = rng.permutation(12)
        ranking = get_estimator(method)(12).fit(np.hstack([X, 1 - X])[:, order], Y).ranking_
        place = np.argsort(ranking)
        for feature in range(6):
            first, second = sorted(int(np.flatnonzero(order == f)[0]) for f in (feature, feature + 6))
            assert place[first] < place[second]


def test_labels_that_all_rows_have_tell_nothing_to_shares_of_rows():
    X = np.random.default_rng(0).random((1000, 4))
    with pytest.warns(UserWarning, match="labels are the same in every row"):
        assert not get_estimator("ela-chi")(2).fit(X, np.ones((1000, 3), int)).scores_.any()


@pytest.mark.parametrize("method", ["br-cc", "anova-f", "fisher", "mddm", "elc", "spfs"])
@pytest.mark.parametrize("balanced", [False, True])
def test_equal_scores_tie_in_every_container(method: str, balanced: bool) -> None:
    """0/1 features, many with the same counts; or features of which all but four say nothing of the label."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        if balanced:
            Z = rng.normal(size=(60, 12))
            X, Y = np.vstack([Z, Z]), np.repeat([[0], [1]], 60, axis=0)
            X[:, :4] += Y
            order = rng.permutation(120)
            X, Y = X[order], Y[order]
        else:
            X, Y = (rng.random((90, 60)) < 1 / 3).astype(float), (np.arange(90) < 30).astype(int)[:, np.newaxis]
        rankings = [
            get_estimator(method)(3).fit(container, Y).ranking_.tolist()
            for container in (X, sp.csr_array(X), da.from_array(X, chunks=(17, X.shape[1])))
        ]
        assert rankings[1:] == rankings[:1] * 2
        if balanced and method != "spfs":  # which weighs features against one another
            assert rankings[0][4:] == sorted(rankings[0][4:])


def test_copies_tie_after_a_solve_with_the_gram_matrix() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(300, 10))
        X, Y = np.hstack([Z, Z]), (Z[:, :4] + rng.normal(size=(300, 4)) > 1).astype(int)
        found = get_estimator("mddm")(5, constraint="subspace").fit(X, Y)
        assert found.scores_[:10].tolist() == found.scores_[10:].tolist()
        cut = get_estimator("mddm")(5, constraint="subspace").fit(da.from_array(X, chunks=(37, 20)), Y)
        assert cut.ranking_.tolist() == found.ranking_.tolist()
