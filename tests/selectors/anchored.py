"""Rows of which some labels are unknown, fits, and profiles of more rows."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from mlfs_dask.selectors import METHODS, get_method

#: Methods that have a form without X'X; others are refused above the cap.
WITHOUT_GRAM = [
    name
    for name in METHODS
    if any(each.name == "gram_cap" and "refused" not in each.help for each in get_method(name).parameters)
]


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


def quiet(selector, X, Y=None, **given):
    """Fitted, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return selector.fit(X, Y, **given)


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
