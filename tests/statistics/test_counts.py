"""Counts of all rows: cut states give the same bits as whole ones; pairs of features and of labels; what they take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.codes import equal_width_book
from mlfs_dask.blocks.entropy import information
from mlfs_dask.blocks.pair_scores import score_pairs
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.graph import build_reading
from mlfs_dask.engine.plan import SPLIT_FROM_BYTES, ReadingSizes, plan_reading
from mlfs_dask.engine.readings import plan_statistics, run_reading
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.contract import Block, FeatureInfo
from mlfs_dask.rows.sources import ArrayRows, measure_features
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.counts import CountScores, Ranges
from mlfs_dask.statistics.pairs import pair_information, partners_that_fit

HERE = Resources(1, 1, 2**32, 2**32)


def total_information(counts):
    return score_pairs(information, counts)


def problem(sparse, n=300, d=17, q=4):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, d))
    X[:, 3] = rng.integers(0, 40, n)  # counted by position even when dense
    X[:, 11] = rng.integers(0, 25, n)
    X[:, 5] = 1.0
    if sparse:
        X[rng.random((n, d)) < 0.6] = 0
    Y = as_labels((rng.random((n, q)) < 0.3).astype(int))
    source = ArrayRows(sp.csr_array(X) if sparse else X, Y, block_bytes=2000)
    categories = np.zeros(d, dtype=np.int64)
    categories[[3, 11]] = 40, 25
    info = source.features
    book = equal_width_book(FeatureInfo(info.minimum, info.maximum, categories, info.n_missing), 3)
    statistic = CountScores(book, 0, d, sparse, np.arange(q), n, formula=total_information, formula_key="information")
    return source, statistic


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("pieces", [2, 17])
def test_states_merged_in_pieces_give_the_same_bits(sparse, pieces):
    source, statistic = problem(sparse)
    (whole,), _ = run_reading(source, [statistic], HERE)
    runs = ((0, 1), (1, 4), (4, source.profile.partitions))
    plan = replace(plan_statistics(source, [statistic], HERE), pieces=pieces, runs=runs, fan_in=2)
    (found,), _ = build_reading(source, [statistic], plan).compute(scheduler="sync")
    for a, b in zip(found, whole, strict=True):
        assert a.tobytes() == b.tobytes()


def association(counts):
    """Rows with label and code 1 beyond those expected by chance, (p, w)."""
    return counts.joint[1] - counts.marginal[1] * counts.positives / counts.n


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_each_label_is_counted_where_it_is_known(sparse, compiled):
    """Some labels are known of all rows, and labels have slots in another order."""
    source, statistic = problem(sparse)
    Y = np.concatenate([block.Y.toarray() for block in source.stream(0, source.profile.partitions)])
    unknown, order = np.array([1, 3]), np.array([2, 0, 3, 1])
    Y[:, unknown] = np.where(np.random.default_rng(1).random((len(Y), 2)) < [0.3, 0.6], -1, Y[:, unknown])
    slots = np.concatenate([order, [4, 5]])
    given = {"formula": association, "formula_key": "association", "labelwise": True}
    statistic = replace(statistic, **given, slot_of_label=slots, unknown=unknown, compiled=compiled)
    rows, state = ArrayRows(source.matrix, as_labels(Y), block_bytes=2000), statistic.zero()
    for block in rows.stream(0, rows.profile.partitions):
        statistic.add(state, block)
    by_label = replace(statistic, slot_of_label=np.arange(6))  # which has the same state in the cache
    in_order = by_label.state_of(statistic.state_arrays(state))
    kept = statistic.state_of(by_label.state_arrays(in_order))
    assert all(np.array_equal(*arrays) for arrays in zip(kept, state, strict=True))
    (of_labels, _), (of_slots, _) = by_label.finalize(in_order), statistic.finalize(state)
    X = source.matrix.toarray() if sparse else source.matrix
    for label, slot in enumerate(order):
        known = Y[:, label] >= 0
        has, ones = Y[known, label] == 1, np.array([statistic.book.codes_of(row) == 1 for row in X[known]])
        expected = (ones & has[:, np.newaxis]).sum(axis=0) - ones.sum(axis=0) * has.mean()
        assert of_slots[slot] == pytest.approx(expected, abs=1e-9)
        assert of_labels[label].tolist() == of_slots[slot].tolist()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_ranges_leave_out_missing_values(form):
    """Also those of a feature that some blocks, or all of them, have no value of."""
    X = np.random.default_rng(0).integers(1, 4, (30, 4)).astype(float)
    X[::3] = 0.0
    X[:, 3], X[:10, 1], X[5:25, 2] = np.nan, np.nan, np.nan
    X[10:, 1] += 5
    statistic, total = Ranges(4, 1), Ranges(4, 1).zero()
    for part in (slice(0, 10), slice(10, 17), slice(17, 30)):
        state = statistic.zero()
        statistic.add(state, Block(part.start, form(X[part]), as_labels(np.ones((len(X[part]), 1)))))
        statistic.merge(total, state)
    found, whole = statistic.finalize(total)[0], measure_features(X)
    assert found.minimum.tolist() == whole.minimum.tolist() == [0, 5, 0, 0]
    for name in ("maximum", "n_missing", "zero_share"):
        assert getattr(found, name).tolist() == getattr(whole, name).tolist()


def test_large_states_are_merged_in_as_many_pieces_as_there_are_slots():
    source, _ = problem(False)
    profile = replace(source.profile, partitions=40)
    cluster = Resources(3, 2, 2**32, 2**32, client=object())
    large = ReadingSizes(SPLIT_FROM_BYTES, 0, can_split=True)
    plan = plan_reading(profile, cluster, large)
    assert plan.pieces == 6
    # 12 runs merged 4 at a time: 3 + 1 merges a piece, its end, its share of every run; and one join.
    assert len(plan.runs) == 12
    assert plan.tasks == 12 + 6 * (4 + 1) + 12 * 6 + 1
    graph = build_reading(
        ArrayRows(np.zeros((40, 1)), as_labels(np.zeros((40, 1))), block_bytes=8), [problem(False)[1]], plan
    )
    shared = 2  # the statistic and the source
    assert len(dict(graph.__dask_graph__())) == plan.tasks + shared
    assert plan_reading(profile, cluster, replace(large, state_bytes=SPLIT_FROM_BYTES - 1)).pieces == 1
    assert plan_reading(profile, HERE, large).pieces == 1


# ---------------------------------------------------------------- pairs of features


PARTNERS = np.array([4, 0, 5])


def table(seed=0, n=60, q=4):
    """Numbers, 0/1, a constant, one with missing values, and 20 categories (too many to be counted in lanes)."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < 0.4).astype(np.int8)
    X = rng.normal(size=(n, 6))
    X[:, 1] = Y[:, 0] ^ (rng.random(n) < 0.2)
    X[:, 2] = 1.0
    X[rng.random(n) < 0.6, 3] = 0
    X[:, 4] = rng.integers(0, 20, n)
    X[rng.random(n) < 0.2, 5] = np.nan
    return X, Y


def book_of(source, bins=3):
    info = source.features
    return equal_width_book(
        FeatureInfo(info.minimum, info.maximum, np.array([0, 2, 0, 0, 20, 0]), info.n_missing), bins
    )


def terms_of(source, partners=PARTNERS, *, compiled=None, resources=HERE, **parameters):
    statistic = pair_information(source.profile, book_of(source), partners, **{"with_labels": True, **parameters})
    if compiled is not None:
        statistic = replace(statistic, compiled=compiled)
    (result,), _ = run_reading(source, [statistic], resources)
    return result


def test_without_a_table_of_logarithms_the_bits_are_the_same(monkeypatch):
    X, Y = table()
    source = ArrayRows(X, as_labels(Y))
    expected, _ = terms_of(source, compiled=True)
    monkeypatch.setattr(gates, "LOG_ROWS", len(X) - 1)
    for kernel in ("set_information", "add_interactions"):
        monkeypatch.setattr(f"mlfs_dask.blocks.pairs_compiled.{kernel}", None)
    found, _ = terms_of(source, compiled=True)
    assert found.tobytes() == expected.tobytes()


def test_as_many_partners_as_fit_are_counted_in_one_reading():
    X, Y = table()
    source = ArrayRows(X, as_labels(Y))
    book = book_of(source)

    def peak(count):
        widest = np.argsort(-book.n_codes, kind="stable")[:count]
        statistic = pair_information(source.profile, book, widest, with_labels=True)
        return plan_statistics(source, [statistic], HERE).peak_worker_bytes

    for count in (1, 3, 6):
        tight = replace(HERE, memory_limit=int(peak(count) / 0.8) + 1)
        assert partners_that_fit(source, tight, book, 6, with_labels=True) == count
    with pytest.raises(DoesNotFitError, match="one pass in this process"):
        partners_that_fit(source, replace(HERE, memory_limit=int(peak(1) / 0.8) - 8), book, 6, with_labels=True)
