"""Data, containers and cuts for tests of the selectors with anchors."""

from __future__ import annotations

import warnings
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import sparse
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.selectors import METHODS, get_method

#: Methods that have a form without X'X; others are refused above the cap.
WITHOUT_GRAM = [
    name
    for name in METHODS
    if any(each.name == "gram_cap" and "refused" not in each.help for each in get_method(name).parameters)
]

#: As the dense twins, to 9 digits.
NEAR = {"rel": 1e-9, "abs": 1e-10}


def problem(seed=0, n=80, d=9, q=4):
    """Features 0..q-1 carry a label each, two fifths of the values are 0; feature d-1 is constant."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.2, 0.6, q)).astype(np.int8)
    Y[0, 0] = 1
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X[:, :q] += 1.5 * Y
    X[:, -1] = 4.0
    return X, Y


def hide(Y, by, seed=1):
    """Y of which nothing, whole rows, entries, or both are unknown."""
    rng = np.random.default_rng(seed)
    rows, entries = rng.random((len(Y), 1)) < 0.5, rng.random(Y.shape) < 0.3
    hidden = {"nothing": False, "rows": rows, "entries": entries, "rows and entries": rows | entries}[by]
    return np.where(hidden, np.int8(-1), Y)


def quiet(selector, X, Y=None):
    """Fitted, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return selector.fit(X, Y)


def check(found, wanted, near=NEAR):
    """Scores and objective are those of a twin, which gives them first and next to last."""
    scores, *_, objective, _ = wanted
    assert found.report_.objective == pytest.approx(objective, rel=near["rel"], abs=near["abs"] * objective[0])
    assert found.scores_ == pytest.approx(scores, rel=near["rel"], abs=near["abs"] * scores.max(initial=1e-300))


def cuts(draw, total):
    """Lengths of ragged chunks, of which some may be empty."""
    places = sorted(draw(st.lists(st.integers(0, total), max_size=4)))
    return tuple(b - a for a, b in zip([0, *places], [*places, total], strict=True))


def dense_rows(X, Y, draw):
    return ArrayRows(as_matrix(X), as_labels(Y), block_bytes=draw(st.sampled_from([1, 500, 3000]))), None


def csr_rows(X, Y, draw):
    return ArrayRows(as_matrix(sp.csr_array(X)), as_labels(Y), block_bytes=draw(st.sampled_from([1, 500, 3000]))), None


def dask_of_dense(X, Y, draw):
    n, d = X.shape
    return da.from_array(X, chunks=(cuts(draw, n), cuts(draw, d))), da.from_array(Y, chunks=(cuts(draw, n), -1))


def dask_of_gcxs(X, Y, draw):
    lazy = da.from_array(X, chunks=(cuts(draw, len(X)), -1))
    return lazy.map_blocks(lambda block: sparse.GCXS.from_numpy(block, compressed_axes=(0,))), Y


CONTAINERS = {
    "numpy": lambda X, Y, draw: (X, Y),
    "csr": lambda X, Y, draw: (sp.csr_array(X), sp.csr_array(Y)),
    "rows": dense_rows,
    "csr rows": csr_rows,
    "dask": dask_of_dense,
    "dask of gcxs": dask_of_gcxs,
}


def larger(profile, n):
    """A profile of so many rows in partitions as large as those of `profile`."""
    times = n / profile.n
    return replace(
        profile,
        n=n,
        nonzeros=round(profile.nonzeros * times),
        label_nonzeros=round(profile.label_nonzeros * times),
        partitions=max(1, round(profile.partitions * times)),
        read_bytes=round(profile.read_bytes * times),
    )
