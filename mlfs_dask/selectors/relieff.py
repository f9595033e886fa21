"""ReliefF for several labels through the pruned problem transformation: label sets are classes, rare ones are left out.

Rows and their neighbours are a uniform sample of the rows, which one pass brings to the driver.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.relief import label_set_classes, relief_scores, scratch_bytes
from mlfs_dask.rows.contract import FeatureInfo, Profile, RowSource, profile_of
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Asked, Cost
from mlfs_dask.selectors.parameters import Missing, Param, seed_of
from mlfs_dask.selectors.sampled import SampledMethod
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.statistics.labelled import labelled_rows
from mlfs_dask.statistics.sample import RowSample, SampledRows
from mlfs_dask.typing import Array, Matrix, Seed

#: What scores are multiples of: differences of 0 and less than 1, which cancel to some 1e-17 in place of 0.
ROUNDING = 2.0**-50


@method(
    "relieff",
    "ReliefF of label sets (PPT)",
    paper="Kononenko 1994, ECML, 171-182; Read 2008, NZCSRSC, 143-150",
    doi="10.1007/3-540-57868-4_57",
)
class ReliefF(SampledMethod):
    """ReliefF of label sets (Kononenko 1994; Read 2008).

    The pruned problem transformation makes a class of every set of labels that enough rows have, and leaves the other
    rows out. For every row, the differences of a feature from the nearest rows of its own class count against the
    feature, those from the nearest rows of each other class count for it, by the share of that class.

    Notes
    -----
    With m sampled rows and C classes the driver makes m² comparisons of rows and m C n_neighbors differences, and
    holds the sample (of dense rows as float64); memory does not depend on the number of rows. Differences are `|x − z|
    / (maximum − minimum)`, those of features of more than two categories 1 where these differ; neighbours are near by
    Manhattan distance, as in the paper. Up to `n_sampled` rows the scores are ReliefF's with every row drawn. A row
    without labels has the empty label set; one with an unknown label (-1), whose label set is not known, is left out.
    The record has the number of rows that were left out.

    References
    ----------
    I. Kononenko, "Estimating attributes: analysis and extensions of RELIEF", European Conference on Machine Learning
    (1994) 171-182, doi:10.1007/3-540-57868-4_57. J. Read, "A pruned problem transformation method for multi-label
    classification", New Zealand Computer Science Research Student Conference (2008) 143-150. N. Spolaôr, E. A. Cherman,
    M. C. Monard, H. D. Lee, "A comparison of multi-label feature selection methods using the problem transformation
    approach", Electronic Notes in Theoretical Computer Science 292 (2013) 135-151, for the two together.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 0.2], [0.1, 0.9], [1.0, 0.1], [0.9, 0.8]])
    >>> Y = np.array([[0, 1], [0, 1], [1, 1], [1, 1]])
    >>> mlfs.ReliefF(n_features_to_select=1, n_neighbors=1, min_rows=2).fit(X, Y).scores_.round(2)
    array([ 0.8 , -0.75])
    """

    n_neighbors: Annotated[int, Param("Number of nearest rows in each class.")] = 10
    n_sampled: Annotated[
        int,
        Param(
            "Number of rows of the sample, at least 256; all are drawn once, and neighbours are searched among them."
        ),
    ] = 2000
    min_rows: Annotated[int, Param("Least number of rows of the sample with the same label set that make a class.")] = 6
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the samples of rows; 0 by default")] = None

    memory = "driver: the sample of m rows, of dense rows 16 bytes * m * d, and 8 KiB * m"
    unknown_entry = "leaves its row out, whose label set is not known; a warning says where too few classes are left"

    def working_bytes(self, profile: Profile, sample: RowSample) -> int:
        """Return the sample again, its rows scaled with what the scaling allocates, distances and pairs."""
        m, stored = len(sample.chosen), -(-profile.nonzeros // max(profile.n, 1)) if profile.sparse else profile.d
        scaled = (24 if profile.sparse else 16) * m * stored
        return sample.result_bytes + scaled + scratch_bytes(m) + m * profile.q

    def notes(self, profile: Profile) -> list[str]:
        m = len(self.draw_sample(profile).chosen)
        return [f"{m:,} of {profile.n:,} rows and their neighbours among these"]

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        sparse = profile_of(source).sparse
        return replace(super().cost(source, resources, asked), loads_sklearn=sparse)  # its distances of sparse rows

    def scores(self, *, k: int, sample: SampledRows, features: FeatureInfo, spread: Array) -> Scores:
        X, Y = sample
        labelled, classes = np.flatnonzero(labelled_rows(Y)), np.full(Y.shape[0], -1)
        classes[labelled] = label_set_classes(Y[labelled], self.min_rows)
        kept = np.flatnonzero(classes >= 0)
        n_classes = int(classes.max(initial=-1)) + 1
        extra = {"sampled_rows": len(classes), "classes": n_classes, "pruned_rows": len(classes) - len(kept)}
        if n_classes < 2:
            return Scores(np.zeros(len(spread)), extra=extra, warnings=[self._one_class(n_classes)], informative=True)
        rows, feature_of = scale_rows(X[kept], features, spread)
        scores = np.zeros(len(spread))
        np.add.at(scores, feature_of, relief_scores(rows, classes[kept], self.n_neighbors))
        return Scores(np.rint(scores / ROUNDING) * ROUNDING, extra=extra, informative=True)

    def _one_class(self, n_classes: int) -> UserWarning:
        which = "no label set" if n_classes == 0 else "only one label set"
        return UserWarning(
            f"ReliefF cannot rank the features: {which} has {self.min_rows} rows of the sample "
            "(min_rows). All features get the same score, and the ranking is their order in the data."
        )


def scale_rows(X: Matrix, features: FeatureInfo, spread: Array) -> tuple[Matrix, NDArray[np.intp]]:
    """Return rows between which differences are ReliefF's, and the feature that each of their columns belongs to.

    A feature of more than two categories is a column of halves for each of these: two rows of different categories
    differ in two of the columns.

    Parameters
    ----------
    X : ndarray or csr_array, shape (m, d)
    features : FeatureInfo
        With minimum.
    spread : float64 array, shape (d,)

    Examples
    --------
    >>> features = FeatureInfo(np.zeros(2), np.array([2.0, 4.0]), np.array([3, 0]))
    >>> scale_rows(np.array([[0, 1], [2, 4]]), features, features.maximum)
    (array([[0.25, 0.5 , 0.  , 0.  ],
           [1.  , 0.  , 0.  , 0.5 ]]), array([1, 0, 0, 0]))
    """
    assert features.minimum is not None
    factor = np.zeros_like(spread)
    np.divide(1.0, spread, out=factor, where=spread > 0)
    categories = np.zeros(len(spread), np.int64) if features.n_categories is None else features.n_categories
    numeric, nominal = np.flatnonzero(categories <= 2), np.flatnonzero(categories > 2)
    feature_of = np.concatenate([numeric, np.repeat(nominal, categories[nominal])])
    values = X[:, numeric]
    if sp.issparse(values):
        indices, indptr = values.indices.astype(np.int32, copy=False), values.indptr.astype(np.int32, copy=False)
        values = sp.csr_array((values.data * factor[numeric][indices], indices, indptr), shape=values.shape)
    else:
        values = (values - features.minimum[numeric]) * factor[numeric]
    if not len(nominal):
        return values, feature_of
    codes = X[:, nominal].toarray() if sp.issparse(X) else X[:, nominal]
    halves: list[Any] = [
        np.where(codes[:, [i]] == np.arange(n_codes), 0.5, 0.0) for i, n_codes in enumerate(categories[nominal])
    ]
    if sp.issparse(values):
        return sp.csr_array(sp.hstack([values, *halves], format="csr")), feature_of
    return np.hstack([values, *halves]), feature_of
