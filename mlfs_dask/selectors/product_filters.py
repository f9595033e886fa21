"""Filters from moments and cross-products: correlations with the labels, and variances between and within classes.

All are formulas of the sums that one pass gives.
"""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.pair_scores import Sums, quotient
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.products import ProductFilter
from mlfs_dask.statistics.moments import CardinalityMoments, FeatureMoments
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array

#: Least share of a feature's variance that counts as being within the classes: below it a difference of sums is
#: rounding, which would rank features that separate the classes exactly.
LEAST_WITHIN = 1e-12


def _scatter_ratio(between: Array, total: Array) -> Array:
    """Scatter between classes over that within them, at most 1 / `LEAST_WITHIN`; 0 where the total is 0.

    Features that separate the classes exactly are equal, and ranked by index.
    """
    within = total - between
    ratio: Array = np.broadcast_to(np.where(total > 0, 1.0 / LEAST_WITHIN, 0.0), within.shape).copy()
    np.divide(between, within, out=ratio, where=within > LEAST_WITHIN * total)
    return ratio


@method(
    "br-cc",
    "Sum of absolute correlations with the labels (BR+CC)",
    paper="Jungjit, Michaelis, Freitas & Cinatl 2013, IEEE SMC, 1519",
    doi="10.1109/SMC.2013.262",
)
class BRCC(ProductFilter):
    """Sum over labels of the absolute Pearson correlation of a feature with the label (BR+CC).

    Binary relevance with a correlation coefficient: the relevance term of multi-label correlation-based feature
    selection (Jungjit et al. 2013), which Lee & Kim (2016) compare with. A constant feature or label has
    correlation 0.


    References
    ----------
    S. Jungjit, M. Michaelis, A. Freitas, J. Cinatl, "Two extensions to multi-label correlation-based feature selection:
    a case study in bioinformatics", IEEE International Conference on Systems, Man, and Cybernetics (2013) 1519-1524,
    doi:10.1109/SMC.2013.262.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.0, 0.0, 5.0], [1.0, 1.0, 5.0], [1.0, 0.0, 5.0]])
    >>> Y = np.array([[0, 1], [0, 0], [1, 1], [1, 1]])
    >>> mlfs.BRCC(n_features_to_select=1).fit(X, Y).scores_.round(3)
    array([1.577, 0.577, 0.   ])
    """

    def pair(self, sums: Sums) -> Array:
        return quotient(np.abs(sums.products) / np.sqrt(sums.label_m2), np.sqrt(sums.m2))


@method(
    "anova-f",
    "Sum of one-way ANOVA F statistics",
    paper="Elssied, Ibrahim & Osman 2014, RJASET 7, 625",
    doi="10.19026/rjaset.7.299",
)
class AnovaF(ProductFilter):
    """Sum over labels of the F statistic of one-way analysis of variance.

    The two classes of a label are the rows with and without it (binary relevance). F is the variance between the
    classes over the variance within them, on 1 and n - 2 degrees of freedom; a constant feature has 0. If a feature
    separates the classes exactly, the variance within is set to 1e-12 of the total variance: F stays finite and is
    equal for all such features.


    References
    ----------
    N. Elssied, O. Ibrahim, A. Osman, "A novel feature selection based on one-way ANOVA F-test for e-mail spam
    classification", Research Journal of Applied Sciences, Engineering and Technology 7 (2014) 625-638,
    doi:10.19026/rjaset.7.299.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 5.0], [1.0, 5.0], [1.0, 5.0], [2.0, 5.0]])
    >>> mlfs.AnovaF(n_features_to_select=1).fit(X, np.array([0, 0, 1, 1])).scores_
    array([2., 0.])
    """

    def pair(self, sums: Sums) -> Array:
        ratio = _scatter_ratio(sums.products**2 / sums.label_m2, sums.m2)
        ratio *= sums.freedom
        return ratio


class _ClassFilter(ProductFilter):
    """Base class of ratios of scatters of the labels as classes, in each of which a row is that has the label.

    A row is in the classes of the labels that it is known to have.
    """

    known_entries = False
    unknown_entry = "is no membership: a row is in the classes that it is known to have"

    takes_covariates = takes_numbers = False

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        return super().reads(source) | {"classes": CardinalityMoments(profile_of(source).d)}


def _class_scatters(sums: LabelMoments, classes: FeatureMoments) -> tuple[Array, Array]:
    """Return the scatters of each feature, of shape (d,), over the rows of every label, each counted for each of its
    labels.

    Returns
    -------
    about_rows : float64 array, shape (d,)
        Σ n_l (μ_l − μ)², with the mean μ of the rows.
    between : float64 array, shape (d,)
        Σ n_l (μ_l − m)², with the mean m of the labels' rows.
    """
    about_rows, total = np.zeros((2, len(sums.m2)))
    for products, count in zip(sums.products, sums.positives.tolist(), strict=True):
        if 0 < count < sums.n:  # sums of a label that all rows have are rounding
            about_rows += products**2 / count
            total += products
    return about_rows, np.maximum(about_rows - total**2 / (classes.n or 1), 0.0)


@method(
    "fisher", "Fisher score with labels as classes", paper="Gu, Li & Han 2011, UAI, 266", doi="10.48550/arXiv.1202.3725"
)
class FisherScore(_ClassFilter):
    """Fisher score of a feature, with the labels as classes.

    The scatter of the labels' means about the mean of the rows over the scatter of rows about the means of their
    labels (Duda, Hart & Stork 2001; Gu, Li & Han 2011), where a row is in the class of each of its known labels.
    Rows without a label are in no class. A feature that is constant among the labels' rows has 0; if it is constant
    in every class, the scatter within is set to 1e-12 of the total.


    References
    ----------
    Q. Gu, Z. Li, J. Han, "Generalized Fisher score for feature selection", Uncertainty in Artificial Intelligence
    (2011) 266-273, doi:10.48550/arXiv.1202.3725.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 5.0], [2.0, 5.0], [3.0, 5.0], [5.0, 5.0]])
    >>> Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> mlfs.FisherScore(n_features_to_select=1).fit(X, Y).scores_
    array([2.25, 0.  ])
    """

    def scores(self, *, k: int, sums: LabelMoments, classes: FeatureMoments) -> Array:
        about_rows, between = _class_scatters(sums, classes)
        # The scatter about the mean of the labels' rows is the sum of those between and within the labels.
        within = np.maximum(classes.m2 - between, LEAST_WITHIN * classes.m2)
        return np.where(sums.m2 > 0, quotient(about_rows, within), 0.0)


@method(
    "mfs-f",
    "Multi-label F statistic (MFS)",
    paper="Kong, Ding, Huang & Zhao 2012, IEEE CVPR, 2352",
    doi="10.1109/CVPR.2012.6247947",
)
class MultiLabelF(_ClassFilter):
    """Multi-label F statistic (MFS; Kong et al. 2012).

    F = ((n - K) / (K - 1)) * S_b / S_w of the class-wise scatters of a feature: S_b is that of the labels' means
    about the mean of the labels' rows, in which a row counts for each label that it is known to have, S_w that of
    the rows about the means of their labels; K is the number of labels that occur, and n - K at least 1. A single
    label has no class to compare with, and gives 0. Of a feature that is constant in every class, S_w is taken as
    1e-12 of the whole scatter.


    References
    ----------
    D. Kong, C. Ding, H. Huang, H. Zhao, "Multi-label ReliefF and F-statistic feature selections for image annotation",
    IEEE Conference on Computer Vision and Pattern Recognition (2012) 2352-2359, doi:10.1109/CVPR.2012.6247947.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 5.0], [2.0, 5.0], [3.0, 5.0], [5.0, 5.0]])
    >>> Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> mlfs.MultiLabelF(n_features_to_select=1).fit(X, Y).scores_
    array([4.5, 0. ])
    """

    def scores(self, *, k: int, sums: LabelMoments, classes: FeatureMoments) -> Array:
        _, between = _class_scatters(sums, classes)
        occurring = int(np.count_nonzero(sums.positives))
        score = np.where(sums.m2 > 0, _scatter_ratio(between, classes.m2), 0.0)
        return score * (max(sums.n - occurring, 1) / max(occurring - 1, 1))
