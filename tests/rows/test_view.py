"""A view of any source is what NumPy makes of the arrays, however many views stand one upon another."""

from __future__ import annotations

import itertools
import pickle
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask.blocks.sparse import as_labels, count_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.errors import DataError
from mlfs_dask.rows.contract import FeatureInfo, RowSource
from mlfs_dask.rows.joined import JoinedRows
from mlfs_dask.rows.row_mask import RowMask, row_numbers
from mlfs_dask.rows.sources import ArrayRows, as_rows, measure_features
from mlfs_dask.rows.view import RowView
from mlfs_dask.rows.weights import weighted_rows
from mlfs_dask.statistics.counts import code_statistics
from mlfs_dask.statistics.rows_in_memory import read_rows
from tests.storage.stores import make_store

N, D, Q = 40, 6, 3


@pytest.fixture(scope="module")
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((N, D)) < 0.4, 0.0, rng.normal(3.0, size=(N, D)).round(2))
    X[rng.random((N, D)) < 0.1] = np.nan
    return X, rng.integers(-1, 2, (N, Q)).astype(np.int8)


@pytest.fixture(scope="module")
def sources(arrays: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dict[str, RowSource]:
    """The same rows, wherever they lie."""
    X, Y = arrays
    labels, folder = as_labels(Y), tmp_path_factory.mktemp("views")
    stores = {
        storage: mlfs.open_dataset(make_store(folder / f"{storage}.zarr", X, Y, storage=storage, partition_bytes=400))
        for storage in ("dense", "sparse")
    }
    return {
        "array": ArrayRows(X, labels, block_bytes=300),
        "csr": ArrayRows(sp.csr_array(X), labels, block_bytes=200),
        "dask": as_rows(da.from_array(X, chunks=(7, 2)), da.from_array(Y, chunks=(9, -1))),
        "dask of csr": as_rows(da.from_array(X, chunks=(7, -1)).map_blocks(sp.csr_array), Y),
        "joined": JoinedRows([ArrayRows(X[:11], labels[:11]), ArrayRows(X[11:], labels[11:], block_bytes=200)]),
        **{f"{storage} store": dataset.rows for storage, dataset in stores.items()},
    }


def dense(X: Any) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else np.array(X)


def streamed(source: RowSource) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """X, Y and weights of all rows, whose numbers must follow one another."""
    X, Y = [np.empty((0, source.profile.d))], [np.empty((0, source.profile.q), np.int8)]
    weights: list[Any] = []
    for partition in range(source.profile.partitions):
        row = source.row_offsets[partition]
        for block in source.stream(partition, partition + 1):
            assert block.start == row
            row += block.X.shape[0]
            X.append(dense(block.X))
            Y.append(dense(block.Y))
            weights.append(block.weights)
        assert row == source.row_offsets[partition + 1]
    return np.concatenate(X), np.concatenate(Y), None if weights[0] is None else np.concatenate(weights)


def some(rng: np.random.Generator, total: int) -> np.ndarray:
    chosen: np.ndarray = np.flatnonzero(rng.random(total) < 0.7)
    return chosen if len(chosen) else np.arange(total)


class Plain(NamedTuple):
    """Rows as NumPy has them."""

    X: np.ndarray
    Y: np.ndarray
    weights: np.ndarray | None


STEPS = ("rows", "range", "features", "labels", "all", "Y", "weights", "fill")


def changed(rng: np.random.Generator, step: str, source: RowSource, plain: Plain) -> tuple[RowSource, Plain]:
    """A view of a source, and the same of plain arrays."""
    X, Y, w = plain
    if step in ("rows", "Y"):
        rows = some(rng, len(X))
        labels = None if step == "rows" else np.where(Y[rows] == 1, 0, 1).astype(np.int8)
        view = RowView(source, rows, Y=None if labels is None else as_labels(labels))
        return view, Plain(X[rows], Y[rows] if labels is None else labels, None if w is None else w[rows])
    if step == "range":
        start = int(rng.integers(0, len(X)))
        rows = range(start, int(rng.integers(start, len(X))) + 1, int(rng.integers(1, 4)))
        return RowView(source, rows), Plain(X[rows], Y[rows], None if w is None else w[rows])
    if step == "weights":
        w = rng.choice([0.0, 0.5, 3.0], len(X))
        w[-1] = 2.0
        return weighted_rows(source, w), Plain(X[w > 0], Y[w > 0], w[w > 0])
    if step == "fill":
        fill = np.nan_to_num(np.fmin.reduce(X, axis=0))  # as means are, between the values that there are
        return RowView(source, fill=fill), Plain(np.where(np.isnan(X), fill, X), Y, w)
    features = some(rng, X.shape[1]) if step in ("features", "all") else None
    labels = some(rng, Y.shape[1]) if step in ("labels", "all") else None
    view = RowView(source, features=features, labels=labels)
    return view, Plain(X if features is None else X[:, features], Y if labels is None else Y[:, labels], w)


CASES = [("array", seed, steps) for seed, steps in enumerate(itertools.product(STEPS, STEPS))] + [
    (kind, seed, tuple(np.random.default_rng(seed).choice(STEPS, 1 + seed % 4).tolist()))
    for kind in ("csr", "dask", "dask of csr", "joined", "dense store", "sparse store")
    for seed in range(8)
]


@pytest.mark.parametrize(("kind", "seed", "steps"), CASES)
def test_views_upon_views_are_what_numpy_makes_of_the_arrays(sources, arrays, kind, seed, steps):
    rng = np.random.default_rng(seed)
    source, plain = sources[kind], Plain(*arrays, None)
    plain = plain._replace(X=plain.X.astype(source.profile.dtype))
    for step in steps:
        source, plain = changed(rng, step, source, plain)
    assert not isinstance(source, RowView) or not isinstance(source._source, RowView)
    X, Y, weights = plain
    profile = source.profile
    assert (profile.n, profile.d, profile.q) == (*X.shape, Y.shape[1])
    assert profile.weight == (None if weights is None else weights.sum())
    assert profile.total == (len(X) if weights is None else weights.sum())
    read, labels, _ = read_rows(source, current_resources(threads=1))
    np.testing.assert_array_equal(dense(read), X)
    np.testing.assert_array_equal(labels.toarray(), Y)
    np.testing.assert_array_equal(source.weights, weights)
    if source.residence == "graph":
        ((_, counts), _), _ = run_reading(source, code_statistics(profile), current_resources(threads=1))
        np.testing.assert_array_equal(counts, count_labels(as_labels(Y), weights))
        everywhere = [source]
    else:
        everywhere = [source, pickle.loads(pickle.dumps(source))]
        for each in everywhere:
            for found, expected in zip(streamed(each), plain, strict=True):
                np.testing.assert_array_equal(found, expected)
        alone = streamed(source.labels_only())
        assert alone[0].shape in ((len(X), 0), X.shape)
        np.testing.assert_array_equal(alone[1], Y)
        np.testing.assert_array_equal(alone[2], weights)
    np.testing.assert_array_equal(source.all_labels().toarray(), Y)
    # Whatever is known is true.
    for each in everywhere:
        if each.label_counts is not None:
            np.testing.assert_array_equal(each.label_counts, count_labels(as_labels(Y), weights))
        if each.unknown_labels is not None:
            assert set(each.unknown_labels) >= set(np.flatnonzero((Y < 0).any(axis=0)))
    measured = vars(measure_features(sp.csr_array(X) if profile.sparse else X))
    expected = {name: values for name, values in measured.items() if values is not None}
    for name, values in vars(source.features).items():
        if values is not None:
            np.testing.assert_array_equal(values, expected.get(name, values))


def test_facts_of_a_view_are_those_that_still_hold(sources):
    source = sources["dense store"]
    known, quantiles = source.features, source.quantiles
    assert known.zero_share is not None
    assert quantiles is not None
    d = np.arange(2)
    counts = np.zeros((3, Q), np.int64)
    for view, holds in [
        (RowView(source, labels=d), (True, True, True, True)),
        (RowView(source, features=d), (True, True, True, True)),
        (RowView(source, range(0, N, 2)), (False, False, False, False)),
        (weighted_rows(source, np.full(N, 2)), (True, False, False, False)),
        (weighted_rows(source, np.arange(N)), (False, False, False, False)),
        (RowView(source, fill=np.zeros(D)), (True, True, False, True)),  # of values that are no longer missing
        (RowView(RowView(source, range(9)), known=known, quantiles=quantiles, label_counts=counts), (True,) * 4),
        (RowView(RowView(RowView(source, range(9)), known=known, quantiles=quantiles), range(3)), (False,) * 4),
    ]:
        facts = (view.features.minimum, view.features.zero_share, view.quantiles, view.label_counts)
        assert tuple(fact is not None for fact in facts) == holds
        assert view.features.n_categories is not None


def test_a_view_of_a_store_travels_without_its_facts(sources):
    view = RowView(sources["dense store"], np.arange(0, N, 3), known=FeatureInfo(np.zeros(10**5), np.ones(10**5)))
    assert len(pickle.dumps(view)) < 10_000
    assert view.features.minimum is not None


def test_views_have_digests_of_what_they_change(sources):
    source = sources["dense store"]
    views = [
        RowView(source, range(20)),
        RowView(source, np.arange(20)),
        RowView(source, np.arange(21)),
        RowView(source, features=np.arange(2)),
        RowView(source, labels=np.arange(2)),
        RowView(source, range(20), Y=as_labels(np.ones((20, Q)))),
        RowView(source, weights=np.full(N, 2.0)),
        RowView(source, weights=np.full(N, 3.0)),
        RowView(source, fill=np.zeros(D)),
        RowView(source, fill=np.ones(D)),
    ]
    assert len({view.digest for view in [source, *views]}) == len(views) + 1
    assert RowView(source, known=FeatureInfo()).digest == source.digest
    assert RowView(RowView(source, range(0, 30, 2)), range(5)).digest == RowView(source, range(0, 10, 2)).digest
    assert RowView(sources["array"], range(20)).digest is None


def test_partitions_without_chosen_rows_are_not_read(sources, monkeypatch):
    rows = sources["dense store"]
    offsets = rows.row_offsets
    subset = RowView(rows, np.array([0, int(offsets[2]), int(offsets[2]) + 1]))
    asked = []
    stream = type(rows).stream
    monkeypatch.setattr(type(rows), "stream", lambda self, a, b: (asked.append((a, b)), stream(self, a, b))[1])
    assert sum(block.X.shape[0] for block in subset.stream(0, len(offsets) - 1)) == 3
    assert asked == [(0, 1), (2, 3)]
    assert 0 < subset.profile.read_bytes < rows.profile.read_bytes


def test_rows_that_are_not_visible_are_not_visible_in_a_view():
    class Unseen(ArrayRows):
        def require_visible(self):
            raise DataError("not visible here")

    with pytest.raises(DataError, match="not visible here"):
        RowView(Unseen(np.zeros((4, 3)), sp.csr_array((4, 2), dtype=np.int8)), range(2)).require_visible()


@pytest.mark.parametrize("rows", [[], [0], [8], [7, 8, 15, 16, 25], list(range(26))])
def test_a_mask_has_the_numbers_of_its_rows(rows):
    mask = RowMask(np.array(rows, np.int64), 26)
    assert len(mask) == len(rows)
    assert row_numbers(mask).tolist() == rows
    for first in range(27):
        for last in range(first, 27):
            assert mask.between(first, last).tolist() == [row for row in rows if first <= row < last]
