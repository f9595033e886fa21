"""Information of pairs and triples: against plain loops, for any chunking, container, kernel and block of partners."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.readings import plan_statistics, run_reading
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.contract import FeatureInfo
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.codes import equal_width_book
from mlfs_dask.statistics.pairs import pair_information, partners_that_fit

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
    with pytest.raises(DoesNotFitError, match="one reading in this process"):
        partners_that_fit(source, replace(HERE, memory_limit=int(peak(1) / 0.8) - 8), book, 6, with_labels=True)
