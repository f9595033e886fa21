"""Dropped positives and rows without labels."""

from __future__ import annotations

import numpy as np
from scipy import sparse as sp

from mlfs_dask.evaluation.simulation import as_unknown, simulate


def labels() -> sp.csr_array:
    return sp.csr_array((np.random.default_rng(1).random((200, 5)) < 0.4).astype(np.int8))


def test_a_share_of_the_positives_becomes_zero() -> None:
    Y = labels()
    found = simulate(Y, missing_labels=0.25, random=np.random.default_rng(0))
    assert found.labelled.all()
    assert found.Y.sum() == Y.sum() - round(0.25 * Y.sum())
    assert ((Y - found.Y).toarray() >= 0).all()  # none was added


def test_unknown_entries_are_not_dropped() -> None:
    dense = labels().toarray()
    dense[:, 0] = -1
    found = simulate(sp.csr_array(dense), missing_labels=0.9, random=np.random.default_rng(0))
    assert (found.Y.toarray()[:, 0] == -1).all()


def test_rows_lose_all_their_labels() -> None:
    Y = labels()
    found = simulate(Y, labelled_rows=0.3, random=np.random.default_rng(0))
    assert found.labelled.sum() == 60
    assert np.array_equal(found.Y.toarray()[found.labelled], Y.toarray()[found.labelled])
    assert found.Y.toarray()[~found.labelled].sum() == 0
    unknown = as_unknown(found.Y, found.labelled).toarray()
    assert (unknown[~found.labelled] == -1).all()
    assert np.array_equal(unknown[found.labelled], Y.toarray()[found.labelled])


def test_the_share_is_of_what_is_left_of_labelled_rows() -> None:
    found = simulate(labels(), missing_labels=0.5, labelled_rows=0.5, random=np.random.default_rng(2))
    positives = labels().toarray()[found.labelled].sum()
    assert found.Y.sum() == positives - round(0.5 * positives)


def test_nothing_is_changed_without_a_reason() -> None:
    Y = labels()
    assert simulate(Y, random=np.random.default_rng(0)).Y is Y
    assert as_unknown(Y, np.ones(200, bool)) is Y


def test_one_row_keeps_its_labels_at_least() -> None:
    assert simulate(labels(), labelled_rows=1e-6, random=np.random.default_rng(0)).labelled.sum() == 1
