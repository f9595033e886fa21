"""Dropped positives and rows without labels."""

from __future__ import annotations

import numpy as np
from scipy import sparse as sp

from mlfs_dask.evaluation.simulation import as_unknown, simulate

LABELS = sp.csr_array((np.random.default_rng(1).random((200, 5)) < 0.4).astype(np.int8))


def test_a_share_of_the_positives_of_labelled_rows_becomes_zero() -> None:
    dense = LABELS.toarray()
    dense[:, 0] = -1
    found = simulate(sp.csr_array(dense), missing_labels=0.25, labelled_rows=0.3, random=np.random.default_rng(0))
    assert found.labelled.sum() == 60
    before, after = dense[found.labelled], found.Y.toarray()[found.labelled]
    dropped = before != after
    assert dropped.sum() == round(0.25 * (before == 1).sum())
    assert (before[dropped] == 1).all()
    assert (after[dropped] == 0).all()
    assert not found.Y.toarray()[~found.labelled].any()
    unknown = as_unknown(found.Y, found.labelled).toarray()
    assert (unknown[~found.labelled] == -1).all()
    assert np.array_equal(unknown[found.labelled], after)


def test_nothing_is_changed_without_a_reason_and_one_row_keeps_its_labels_at_least() -> None:
    assert simulate(LABELS, random=np.random.default_rng(0)).Y is LABELS
    assert as_unknown(LABELS, np.ones(200, bool)) is LABELS
    assert simulate(LABELS, labelled_rows=1e-6, random=np.random.default_rng(0)).labelled.sum() == 1
