"""The order of features has no part in scores, and features that are copies of one another have the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse as sp
from scipy.linalg import hadamard

import mlfs_dask
from tests.blackbox.golden_rankings import methods, selector_class

METHODS = list(methods())

#: Forms besides the defaults: those with draws, and those whose sums are made by products of matrices.
FORMS = [
    *((method, {}) for method in METHODS),
    *((method, {"graph": "anchors", "n_anchors": 20}) for method in ("mfsir", "smfs", "access-mfs")),
    ("mfsir", {"graph": "anchors", "n_anchors": 20, "gram_cap": 0}),
    ("mfsir", {"gram_cap": 0}),
    ("smfs", {"graph": "anchors", "n_anchors": 20, "gram_cap": 0}),
    ("mddm", {"constraint": "subspace"}),
    ("rfs", {"variant": "published"}),
    ("llsf", {"variant": "published"}),
    ("mlmlfs", {"p": 0.5}),
]

#: Solved for some of the features at a time, which leaves copies as near as a tolerance before their mean is taken.
WIDE = [(method, {"graph": "anchors", "n_anchors": 20, "gram_cap": 12}) for method in ("smfs", "access-mfs")]

#: Methods in which a copy of a chosen feature adds nothing, and comes late.
CHOOSING = {"pmu", "d2f", "mdmr", "scls", "ami", "mrmr", "jmi", "spfs", "auto"}

pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge")


def problem(n, d, kind):
    rng = np.random.default_rng(2)
    Y = (rng.random((n, 4)) < 0.4).astype(np.int8)
    X = rng.normal(size=(n, d))
    X[:, :4] += 1.5 * Y
    if kind == "counts":
        X = np.where(rng.random((n, d)) < 0.3, np.rint(np.abs(X) * 3), 0)
    return X, Y


def selector(method, options, k=5):
    made = selector_class(method)(k, **options)
    return made.set_params(candidates="chi2,br-cc") if method == "auto" else made


@pytest.mark.parametrize("kind", ["numeric", "counts"])
@pytest.mark.parametrize(("method", "options"), [form for form in FORMS if form != ("access-mfs", {})])  # it draws W
def test_scores_do_not_depend_on_where_features_stand(method, options, kind):
    X, Y = problem(90, 12, kind)
    order = np.random.default_rng(5).permutation(X.shape[1])
    expected, found = selector(method, options).fit(X, Y), selector(method, options).fit(X[:, order], Y)
    largest = np.abs(expected.scores_).max()
    np.testing.assert_allclose(found.scores_, expected.scores_[order], rtol=1e-9, atol=1e-9 * largest)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("method", "options"), [*(form for form in FORMS if form[0] not in CHOOSING), *WIDE])
def test_copies_of_a_feature_tie(method, options, container):
    X, Y = problem(90, 12, "counts")
    copies = [1, 11, 20, 2, 7, 1, 6, 3, 0, 5]
    X = X[:, [*range(12), *(f % 12 for f in copies)]]
    found = selector(method, options, k=9).fit(container(X), Y)
    first = np.array([*range(12), *(f % 12 for f in copies)])
    assert found.scores_.tolist() == found.scores_[first].tolist()
    for f in range(12):
        places = np.flatnonzero(first[found.ranking_] == f)
        assert np.diff(found.ranking_[places]).min(initial=1) > 0


@pytest.mark.parametrize(("method", "options"), [("elc", {}), ("mddm", {"constraint": "subspace"}), ("br-cc", {})])
def test_copies_in_real_text(method, options, run, data_set: Callable[[str], Path], tmp_path: Path):
    """159 groups of words of medical are in the same documents each; at half of the features few are cut in two."""
    folder = data_set("medical")
    source, labels = next(folder.glob("*.arff*")), next(folder.glob("*.xml"))
    run("convert", source, tmp_path / "medical.zarr", "--labels", labels)
    dataset = mlfs_dask.open_dataset(tmp_path / "medical.zarr")
    X = sp.csc_array(sp.csr_array(dataset.X.compute().to_scipy_sparse()))
    contents: dict[bytes, list[int]] = {}
    for f in range(X.shape[1]):
        part = slice(X.indptr[f], X.indptr[f + 1])
        contents.setdefault(X.indices[part].tobytes() + X.data[part].tobytes(), []).append(f)
    groups = [group for content, group in contents.items() if content and len(group) > 1]
    assert len(groups) == 159
    found = selector(method, options, k=724).fit(dataset)
    assert [group for group in groups if len(set(found.scores_[group])) > 1] == []
    assert sum(0 < found.support_[group].sum() < len(group) for group in groups) <= 1


@pytest.mark.parametrize("options", [{}, {"gram_cap": 0}, {"graph": "anchors", "n_anchors": 20}], ids=str)
def test_the_largest_eigenvalue_of_mfsir_may_have_nothing_to_do_with_labels(options):
    H = hadamard(64)
    Y = (H[:, 1:4] > 0).astype(np.int8)
    X = np.concatenate([H[:, 1:6], np.repeat(H[:, 7:8], 20, axis=1)], axis=1).astype(float)
    found = selector_class("mfsir")(3, **options).fit(X, Y)
    assert 64 * 20 <= found.report_.extra["rho"] * (1 + 1e-9) <= 64 * 20 * 1.03


def tied_problem():
    """0/1 features, of which most are equally rare, rows that are equally near, and labels in more than five groups."""
    rng = np.random.default_rng(1)
    Y = (rng.random((300, 12)) < 0.3).astype(np.int8)
    X = np.array([rng.permutation(300) < 3 for _ in range(40)]).T.astype(float)
    X[:, :5] = np.maximum(X[:, :5], Y[:, :5] * (rng.random((300, 5)) < 0.5))
    return X, Y


@pytest.mark.parametrize(
    ("method", "shuffled"), [("mamfs", "features"), ("relieff", "rows"), ("glfs", "labels")], ids=str
)
def test_ties_do_not_depend_on_the_order(method, shuffled):
    X, Y = tied_problem()
    Y = Y if method == "glfs" else Y[:, :3]
    expected = selector(method, {}).fit(X, Y).scores_
    for seed in range(3):
        rows, features, labels = (
            np.random.default_rng(seed).permutation(size) if kind == shuffled else np.arange(size)
            for kind, size in (("rows", len(X)), ("features", X.shape[1]), ("labels", Y.shape[1]))
        )
        found = selector(method, {}).fit(X[rows][:, features], Y[rows][:, labels]).scores_
        np.testing.assert_allclose(found, expected[features], rtol=1e-9, atol=1e-9 * expected.max())
