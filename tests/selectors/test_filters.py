"""The one-pass filters: against their plain twins and published programs; any chunking and container; hand cases."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp

from mlfs_dask import LaplacianScore
from mlfs_dask.blocks.anchors import place_anchors
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from tests.conftest import published
from tests.problems import real_data
from tests.reference import filters as twins

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
        match="cannot rank the features: among rows that have a label, no feature depends on which one it is",
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
    with pytest.warns(UserWarning, match="no feature is associated with any label"):
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


@pytest.mark.parametrize("method", ["ela-chi", "fisher", "mfs-f"])
def test_labels_that_all_rows_have_tell_nothing(method):
    X = np.random.default_rng(3).normal(size=(120, 9))
    for form in (np.asarray, sp.csr_array):
        with pytest.warns(UserWarning, match="all 4 labels are the same in every row"):
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


@pytest.mark.parametrize("method", ["br-cc", "anova-f", "fisher", "mddm", "elc", "spfs"])
@pytest.mark.parametrize("balanced", [False, True])
def test_equal_scores_tie_in_every_container(method: str, balanced: bool) -> None:
    """0/1 features, many with the same counts; or features of which all but four say nothing of the label."""
    for seed in range(2):
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


# ---------------------------------------------------------------- Laplacian score: labels have no part in it


def grouped_problem(n=200, d=7):
    """Rows in four groups; features 0 and 1 tell the groups, 2 in part, 6 is constant."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 4, n)
    X = rng.normal(size=(n, d))
    X[:, 0] = 5 * (groups % 2) + 0.1 * X[:, 0] + 40
    X[:, 1] = 5 * (groups // 2) + 0.1 * X[:, 1]
    X[:, 2] += groups
    X[rng.random(n) < 0.5, 3] = 0
    X[:, 6] = 3.0
    return X, np.full((n, 2), -1)


@pytest.mark.parametrize("parameters", [{}, {"n_anchors": 12, "anchor_neighbors": 2, "random_state": 3}])
def test_equals_the_plain_twin_in_any_container_and_chunking(parameters):
    X, Y = grouped_problem()
    m, s, seed = ({"n_anchors": 50, "anchor_neighbors": 3, "random_state": 0} | parameters).values()
    std = np.where(X.std(axis=0) > 0, X.std(axis=0), np.inf)
    dense = place_anchors((X - X.mean(axis=0)) / std, m, seed)
    # Rows of sparse data are not centred, and k-means sees fewer of their digits.
    sparse = place_anchors(sp.csr_array(X / std), m, seed) - X.mean(axis=0) / std
    lazy = da.from_array(X, chunks=((80, 1, 119), (4, 3)))
    for rows, centres in (
        ((X, Y), dense),
        ((lazy, Y), dense),
        ((ArrayRows(X, as_labels(Y), block_bytes=1000), None), dense),
        ((sp.csr_array(X), Y), sparse),
        ((lazy.map_blocks(sp.csr_array), Y), sparse),
    ):
        found = LaplacianScore(3, graph="anchors", **parameters).fit(*rows)
        expected = twins.laplacian(X, twins.anchor_graph(X, centres, s))
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert found.scores_[6] == 0
        assert set(found.ranking_[:2].tolist()) == {0, 1}
        assert found.report_.passes == found.report_.plan["passes"] == 2
        assert found.report_.extra["graph"]["anchors"] == len(centres)


def text(n=300, d=40, seed=3):
    """Counts of words, in documents some of which are empty and others equal: many rows tie."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.08, (n, d)).astype(float)
    X[:40] = 0
    X[40:60] = X[60]
    return X


@pytest.mark.parametrize("parameters", [{"n_neighbors": 3, "lambda_": 6.0}, {"n_neighbors": 500}])
@pytest.mark.parametrize("data", [lambda: grouped_problem(120)[0], lambda: text(120)], ids=["numbers", "text"])
def test_the_exact_graph_equals_the_plain_twin_in_any_container(data, parameters):
    X = data()
    k, width = parameters.get("n_neighbors", 5), parameters.get("lambda_", None)
    S = twins.nearest_graph(X, k, None if width is None else width**2)
    expected = twins.laplacian(X, S)
    lazy = da.from_array(X, chunks=((80, 1, 39), (4, X.shape[1] - 4)))
    unknown = np.full((len(X), 2), -1)
    for rows in (
        (X,),
        (sp.csr_array(X), unknown),
        (lazy, unknown),
        (ArrayRows(X, as_labels(unknown), block_bytes=1000), None),
    ):
        found = LaplacianScore(3, **parameters).fit(*rows)
        assert found.scores_ == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert found.report_.extra["graph"] == {"kind": "exact"}
        assert found.report_.passes == found.report_.plan["passes"] == 1


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    "data", [text, lambda: grouped_problem(300)[0], lambda: np.eye(80)], ids=["text", "numbers", "one-hot"]
)
def test_neither_seed_nor_order_of_rows_or_features_matters_to_the_exact_graph(data, container):
    X = data()
    expected = LaplacianScore(3, random_state=0).fit(container(X)).scores_
    rng = np.random.default_rng(5)
    for seed in range(3):
        rows, columns = rng.permutation(len(X)), rng.permutation(X.shape[1])
        found = LaplacianScore(3, random_state=seed).fit(container(X[rows][:, columns]))
        assert found.scores_ == pytest.approx(expected[columns], rel=1e-9, abs=1e-11)
    assert LaplacianScore(3, random_state=9).fit(container(X)).scores_.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "container", [np.asarray, sp.csr_array, pd.DataFrame, lambda X: da.from_array(X, chunks=(20, 3)), np.ndarray.tolist]
)
def test_labels_need_not_be_given(container):
    X, Y = grouped_problem()
    found = LaplacianScore(3, random_state=0).fit(container(X))
    assert found.scores_ == pytest.approx(LaplacianScore(3, random_state=0).fit(X, Y).scores_, rel=1e-9)
    assert found.report_.q == 0


def test_scores_are_at_most_1_and_do_not_depend_on_units():
    X, Y = grouped_problem()
    for graph in ("anchors", "exact"):
        scores = LaplacianScore(3, graph=graph).fit(X, Y).scores_
        assert scores.min() >= (0 if graph == "anchors" else -1)
        assert scores.max() <= 1
        moved = LaplacianScore(3, graph=graph).fit(X * np.logspace(-3, 3, 7) + 1, Y).scores_
        assert moved == pytest.approx(scores, rel=1e-6)
