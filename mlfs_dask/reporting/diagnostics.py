"""Quality of feature sets by the two measures of the ELC paper (Wang et al. 2020, Section 5).

One pass over X serves any number of sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.label_space import (
    label_correlations,
    label_similarity,
    redundancy,
    residual_correlation,
    standardised_products,
)
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.statistics.products import LabelProducts, wants_compiled


def describe(
    X: Any, Y: Any = None, *, selections: Sequence[NDArray[Any]]
) -> tuple[NDArray[np.float64], list[tuple[float, float]]]:
    """Return R and C of every selection, and what they come from: the correlations of labels with features. One pass.

    Parameters
    ----------
    X : array-like, shape (n, d)
        NumPy, SciPy sparse, pandas, a Dask array, or a Dataset.
    Y : array-like, shape (n, q), optional
        Labels 1 and 0. None with a Dataset.
    selections : sequence of int or bool arrays
        Feature indices, or masks of shape (d,).

    Returns
    -------
    float64 array, shape (q, d)
        Pearson correlation of every label with every feature; 0 where one of them is constant. Held on the driver.
    list of (float, float)
        Label-specific redundancy R (Eq. 16) of every selection, and the label correlation C (Eq. 17) that it does not
        hold; lower is better, NaN for fewer than two features.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> _, [(R, C)] = describe(X, X[:, :1], selections=[np.array([0, 1])])
    >>> R
    0.5
    """
    source = as_rows(X, Y)
    profile = source.profile
    statistic = LabelProducts(profile.d, profile.q, compiled=wants_compiled(profile))
    (sums,), _ = run_reading(source, [statistic], current_resources(), label="diagnostics")
    A = standardised_products(sums.products, sums.std)
    S = label_similarity(sums.pairs, sums.positives)
    correlations = label_correlations(A, sums.label_m2, sums.n)
    return correlations, [
        (redundancy(correlations, chosen), residual_correlation(A, S, sums.n, chosen))
        for chosen in map(np.asarray, selections)
    ]
