"""gMLC: the Hilbert-Schmidt criterion of each feature with the labels."""

from __future__ import annotations

import numpy as np

from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.products import ProductFilter
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@method(
    "gmlc",
    "Hilbert-Schmidt criterion with the labels (gMLC)",
    paper="Kong & Yu 2012, Knowledge and Information Systems 31, 281",
    doi="10.1007/s10115-011-0407-3",
)
class GMLC(ProductFilter):
    """Hilbert-Schmidt criterion of a feature with the labels (gHSIC; Kong & Yu 2012).

    The score of a feature f is f'HYY'Hf with the centring H = I - 11'/n: the sum over the labels of its squared
    covariance with them, times n². The paper mines subgraphs whose occurrence is f; here features are columns that are
    there.

    Notes
    -----
    Features are centred and not scaled, so that those of large values come first; `MDDM` scales them, and its
    scores with all directions and standardise=False are the square roots of these.

    References
    ----------
    X. Kong, P. Yu, "gMLC: a multi-label feature selection framework for graph classification", Knowledge and
    Information Systems 31 (2012) 281-305, doi:10.1007/s10115-011-0407-3.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.0, 0.0, 5.0], [1.0, 1.0, 5.0], [1.0, 0.0, 5.0]])
    >>> Y = np.array([[0, 1], [0, 0], [1, 1], [1, 1]])
    >>> mlfs.GMLC(n_features_to_select=1).fit(X, Y).scores_
    array([1.25, 0.25, 0.  ])
    """

    def scores(self, *, k: int, sums: LabelMoments) -> Array:
        A = sums.terms.products
        A[sums.positives == sums.n] = 0.0  # of a label that every row has the sums are rounding
        scores: Array = np.einsum("lf,lf->f", A, A)
        return scores
