"""Information of pairs and triples: against plain loops, for any chunking, container, kernel and block of partners."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.pairs import pair_terms
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.readings import plan_statistics, run_pass
from mlfs_dask.engine.workers import build_pass
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics import pairs as pairs_module
from mlfs_dask.statistics.codes import equal_width_book
from mlfs_dask.statistics.pairs import pair_information, partners_that_fit
from mlfs_dask.statistics.weights import weighted_rows
from mlfs_dask.typing import FeatureInfo
from tests.reference.greedy import Information

HERE = Resources(1, 1, 2**32, 2**32)
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
    (result,), _ = run_pass(source, [statistic], resources)
    return result


def expected_terms(X, Y, partners):
    """The twin's, of features whose values are codes already."""
    codes = np.where(np.isnan(X), 100, X)
    for f, cut in ((0, 3), (3, 3), (5, 3)):
        low, high = np.nanmin(X[:, f]), np.nanmax(X[:, f])
        edges = [(low * (cut - j) + high * j) / cut for j in range(1, cut)]
        codes[:, f] = np.where(np.isnan(X[:, f]), 100, sum((X[:, f] > edge).astype(int) for edge in edges))
    info = Information(X, Y)
    info.columns |= {("f", f): codes[:, f] for f in range(X.shape[1])}
    shared = np.array([[info.I(f, s) for f in info.features] for s in partners])
    of_labels = [[sum(info.interaction(f, s, l_) for l_ in info.labels) for f in info.features] for s in partners]
    return np.stack([shared, np.array(of_labels)]), [info.entropy(f) for f in info.features]


@pytest.mark.parametrize("sparse", [False, True])
def test_equals_plain_loops(sparse):
    X, Y = table()
    source = ArrayRows(sp.csr_array(X) if sparse else X, as_labels(Y), block_bytes=500)
    terms, entropy = terms_of(source, compiled=False)
    for part, other in zip((terms, entropy), terms_of(source, compiled=True), strict=True):
        assert part.tobytes() == other.tobytes()
    expected, expected_entropy = expected_terms(X, Y, [("f", int(s)) for s in PARTNERS])
    assert terms == pytest.approx(expected, abs=1e-12)
    assert entropy == pytest.approx(expected_entropy, abs=1e-12)
    assert terms[:, :, 2].tolist() == [[0.0] * 3] * 2  # a constant tells nothing, without a rounding error
    for compiled in (False, True):
        alone, _ = terms_of(source, with_labels=False, compiled=compiled)
        assert alone.tobytes() == terms[:1].tobytes()


@settings(max_examples=15)
@given(st.data())
def test_same_bits_for_any_chunking_container_and_block_of_partners(data):
    X, Y = table(data.draw(st.integers(0, 50)))
    partners = np.array(data.draw(st.permutations(range(6))))[: data.draw(st.integers(1, 6))]
    whole, _ = terms_of(ArrayRows(X, as_labels(Y), block_bytes=10**6), np.arange(6))
    block_bytes = data.draw(st.sampled_from([50, 300, 10**6]))
    container = sp.csr_array(X) if data.draw(st.booleans()) else X
    source = ArrayRows(container, as_labels(Y), block_bytes=block_bytes)
    resources = replace(HERE, threads_per_worker=data.draw(st.integers(1, 3)))
    found, _ = terms_of(source, partners, compiled=data.draw(st.booleans()), resources=resources)
    assert found.tobytes() == whole[:, partners].tobytes()


def test_runs_of_few_rows_give_the_same_bits(monkeypatch):
    X, Y = table()
    source = ArrayRows(X, as_labels(Y))
    whole, _ = terms_of(source)
    monkeypatch.setattr(pairs_module, "COLUMN_ENTRIES", 7)  # less than a single row has
    found, _ = terms_of(source)
    assert found.tobytes() == whole.tobytes()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("counts", [1, 200, 2**20])
def test_partners_one_by_one_and_together_give_the_same_bits(counts, compiled, monkeypatch):
    X, Y = table()
    source = ArrayRows(X, as_labels(Y))
    expected, entropy = terms_of(source)
    monkeypatch.setattr("mlfs_dask.blocks.pairs.COUNTS_TOGETHER", counts)
    terms, found_entropy = terms_of(source, compiled=compiled)
    assert terms.tobytes() == expected.tobytes()
    assert found_entropy.tobytes() == entropy.tobytes()


@pytest.mark.parametrize("compiled", [False, True])
def test_features_and_partners_one_by_one_give_the_same_bits(compiled, monkeypatch):
    X, Y = table(n=300, q=40)
    source = ArrayRows(X, as_labels(Y))
    expected, entropy = terms_of(source)
    monkeypatch.setattr("mlfs_dask.statistics.counts.FINALIZE_BYTES", 1)
    monkeypatch.setattr("mlfs_dask.blocks.pairs.COUNTS_TOGETHER", 1)
    terms, found_entropy = terms_of(source, compiled=compiled)
    assert terms.tobytes() == expected.tobytes()
    assert found_entropy.tobytes() == entropy.tobytes()


@pytest.mark.parametrize("block_bytes", [2000, 10**6])  # many blocks, and a single one
def test_threads_of_this_process_make_the_result_together(block_bytes, monkeypatch):
    X, Y = table(n=300)
    source = ArrayRows(X, as_labels(Y), block_bytes=block_bytes)
    expected, entropy = terms_of(source)
    statistic = pair_information(source.profile, book_of(source), PARTNERS, with_labels=True)
    monkeypatch.setattr("mlfs_dask.statistics.counts.FINISHING_BYTES", 0)
    monkeypatch.setattr("mlfs_dask.statistics.counts.FINALIZE_BYTES", 2 * statistic._finalize_bytes(21))
    names, widths = set(), []

    def recorded(pairs, *args):
        names.add(threading.current_thread().name.rsplit("_", 1)[0])
        widths.append(pairs.alone.shape[1])
        return pair_terms(pairs, *args)

    monkeypatch.setattr(pairs_module, "pair_terms", recorded)
    terms, found_entropy = terms_of(source, resources=replace(HERE, threads_per_worker=3))
    assert terms.tobytes() == expected.tobytes()
    assert found_entropy.tobytes() == entropy.tobytes()
    assert names == {"MainThread", "mlfs-finish"}
    assert sum(widths) == X.shape[1]
    # A worker's other threads have tasks of their own, and one that reads alone makes the result alone.
    names.clear()
    terms_of(source)
    assert names == {"MainThread"}


def test_without_a_table_of_logarithms_the_bits_are_the_same(monkeypatch):
    X, Y = table()
    source = ArrayRows(X, as_labels(Y))
    expected, _ = terms_of(source, compiled=True)
    monkeypatch.setattr(pairs_module, "MAX_LOG_ROWS", len(X) - 1)
    for kernel in ("set_information", "add_interactions"):
        monkeypatch.setattr(f"mlfs_dask.blocks.pairs_compiled.{kernel}", None)
    found, _ = terms_of(source, compiled=True)
    assert found.tobytes() == expected.tobytes()


def test_states_merged_in_pieces_give_the_same_bits():
    X, Y = table()
    source = ArrayRows(X, as_labels(Y), block_bytes=300)
    statistic = pair_information(source.profile, book_of(source), PARTNERS, with_labels=True)
    (whole,), _ = run_pass(source, [statistic], HERE)
    plan = plan_statistics(source, [statistic], HERE)
    plan = replace(plan, pieces=4, runs=((0, 2), (2, source.profile.partitions)), fan_in=2)
    (found,), _ = build_pass(source, [statistic], plan).compute(scheduler="sync")
    assert [part.tobytes() for part in found] == [part.tobytes() for part in whole]


def test_a_weight_of_two_is_the_row_twice():
    X, Y = table()
    weights = np.random.default_rng(1).integers(0, 3, len(X))
    twice = np.repeat(np.arange(len(X)), weights)
    full = ArrayRows(X, as_labels(Y))
    expected = pair_information(full.profile, book_of(full), PARTNERS, with_labels=True)
    rows = ArrayRows(X[twice], as_labels(Y[twice]))
    (expected,), _ = run_pass(rows, [replace(expected, n=len(twice))], HERE)
    weighted = weighted_rows(full, weights.astype(float))
    found = pair_information(weighted.profile, book_of(full), PARTNERS, with_labels=True)
    (found,), _ = run_pass(weighted, [found], HERE)
    assert found[0] == pytest.approx(expected[0], abs=1e-12)


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
