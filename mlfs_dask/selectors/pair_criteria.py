"""Criteria of greedy selection by pairs of features, alone and with labels: PMU, D2F, MDMR, SCLS, AMI, mRMR, JMI.

All are sums over the labels l of what is known of single labels: of I(f; l), and over the chosen features s of I(f; s)
and of the interaction information I(f; s; l) = I(f; l) - I(f; l | s). `mlfs_dask.selectors.greedy` has the loop.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.greedy import GreedySelector
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.statistics.counts import PairCountScores
from mlfs_dask.typing import Array

#: Of criteria from counts of two features and a label.
TRIPLES_MEMORY = (
    "worker: 4 bytes * c * (q + 1) * (codes - 1)^2 * d for c candidates (64 to k; fewer where memory is short)"
)


@method(
    "d2f",
    "Second-degree interaction information (D2F)",
    paper="Lee & Kim 2015, Expert Systems with Applications 42, 2013",
    doi="10.1016/j.eswa.2014.09.063",
)
class D2F(GreedySelector):
    """Selection by pairs of dependent features and labels (D2F; Lee & Kim 2015).

    J(f) = sum over l of I(f; l) - sum over s and l of I(f; s; l), for chosen features s: the information of features
    about labels, approximated by terms of second degree.

    Notes
    -----
    The authors' program (github.com/CAU-AIR-Lab/D2F) subtracts the terms of all chosen features from a score that holds
    those of the earlier ones already, so that from the third step on the first is counted twice, and so on. The paper's
    criterion is followed here.

    References
    ----------
    J. Lee, D.-W. Kim, "Mutual information-based multi-label feature selection using interaction information", Expert
    Systems with Applications 42 (2015) 2013-2025, doi:10.1016/j.eswa.2014.09.063.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the second feature is the first again
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> selector = mlfs.D2F(n_features_to_select=2).fit(X, Y)
    >>> selector.ranking_.tolist(), selector.scores_.round(3).tolist()
    ([0, 2, 1], [0.693, 0.0, 0.693])
    """

    memory = TRIPLES_MEMORY
    with_labels = True


@method(
    "pmu",
    "Multivariate mutual information (PMU)",
    paper="Lee & Kim 2013, Pattern Recognition Letters 34, 349",
    doi="10.1016/j.patrec.2012.10.005",
)
class PMU(GreedySelector):
    """Selection by multivariate mutual information (pairwise multi-label utility, PMU; Lee & Kim 2013).

    J(f) = sum over l of I(f; l) - sum over pairs of labels l < m of I(f; l; m) - sum over s and l of I(f; s; l), for
    chosen features s.

    Notes
    -----
    The first pass is that of `FIMF` with pairs of all labels: it counts q (q + 1)/2 labels and pairs, in tiles of
    features where the counts do not fit. The authors' program (github.com/CAU-AIR-Lab/PMU) gives the same ranking.

    References
    ----------
    J. Lee, D.-W. Kim, "Feature selection for multi-label classification using multivariate mutual information", Pattern
    Recognition Letters 34 (2013) 349-357, doi:10.1016/j.patrec.2012.10.005.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])
    >>> Y = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the first two labels are the same
    >>> mlfs.PMU(n_features_to_select=2).fit(X, Y).scores_.round(3)
    array([ 0.693, -0.693,  0.693])
    """

    memory = TRIPLES_MEMORY + ", and 4 bytes * d * (codes - 1) * q²/2"
    with_labels = True

    def _statistic(self, **fields: Any) -> PairCountScores:
        return PairCountScores.of(range(len(fields["slot_of_label"]) - len(fields["unknown"])), **fields)


@method(
    "mdmr",
    "Max-dependency, min-redundancy (MDMR)",
    paper="Lin, Hu, Liu & Duan 2015, Neurocomputing 168, 92",
    doi="10.1016/j.neucom.2015.06.010",
)
class MDMR(GreedySelector):
    """Max-dependency and min-redundancy (MDMR; Lin et al. 2015).

    J(f) = sum over l of I(f; l) - mean over s of (I(f; s) - sum over l of I(f; l | s)), for chosen features s.

    Notes
    -----
    No program of the authors was found. A public one of this name subtracts the sum over s and l of I(f; s; l), as
    D2F does; the paper is followed here.

    References
    ----------
    Y. Lin, Q. Hu, J. Liu, J. Duan, "Multi-label feature selection based on max-dependency and min-redundancy",
    Neurocomputing 168 (2015) 92-103, doi:10.1016/j.neucom.2015.06.010.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the second feature is the first again
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> mlfs.MDMR(n_features_to_select=2).fit(X, Y).scores_.round(3)
    array([0.693, 0.   , 1.386])
    """

    memory = TRIPLES_MEMORY
    with_labels = True

    def _of_pairs(self, terms: Array) -> Array:
        # The sum over l of I(f; l | s) is the relevance of f less that of I(f; s; l).
        pairs: Array = terms[0] + terms[1]
        return pairs

    def _criterion(self, relevance: Array, entropy: Array, shared: Array, chosen: list[int]) -> Array:
        return relevance - (shared / len(chosen) - relevance)


@method(
    "scls",
    "Scalable criterion for large label sets (SCLS)",
    paper="Lee & Kim 2017, Pattern Recognition 66, 342",
    doi="10.1016/j.patcog.2017.01.014",
)
class SCLS(GreedySelector):
    """Scalable criterion for large label sets (SCLS; Lee & Kim 2017).

    J(f) = (1 - sum over s of I(f; s) / H(f)) * sum over l of I(f; l), for chosen features s: of two features that share
    as much with the chosen ones, the one of which that is the smaller part loses less. Constant features have 0.

    Notes
    -----
    No program of the authors was found.

    References
    ----------
    J. Lee, D.-W. Kim, "SCLS: Multi-label feature selection based on scalable criterion for large label set", Pattern
    Recognition 66 (2017) 342-352, doi:10.1016/j.patcog.2017.01.014.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the second feature is the first again
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> mlfs.SCLS(n_features_to_select=2).fit(X, Y).ranking_.tolist()
    [0, 2, 1]
    """

    def _criterion(self, relevance: Array, entropy: Array, shared: Array, chosen: list[int]) -> Array:
        part = np.divide(shared, entropy, out=np.zeros(len(shared)), where=entropy > 0)
        return relevance - part * relevance


@method(
    "ami",
    "Approximated mutual information (AMI)",
    paper="Lee, Lim & Kim 2012, Electronics Letters 48, 929",
    doi="10.1049/el.2012.1600",
)
class AMI(GreedySelector):
    """Approximated mutual information (AMI; Lee, Lim & Kim 2012).

    J(f) = sum over l of I(f; l) - sum over s of I(f; s), for chosen features s.

    Notes
    -----
    The authors' program (github.com/CAU-AIR-Lab/MLFS2012) subtracts what all features share with the chosen ones from
    the score of one arbitrary feature a step, so that it ranks by relevance almost; the paper is followed here.

    References
    ----------
    J. Lee, H. Lim, D.-W. Kim, "Approximating mutual information for multi-label feature selection", Electronics Letters
    48 (2012) 929-930, doi:10.1049/el.2012.1600.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the second feature is the first again
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> mlfs.AMI(n_features_to_select=2).fit(X, Y).ranking_.tolist()
    [0, 2, 1]
    """


@method(
    "mrmr",
    "Minimal redundancy, maximal relevance (mRMR)",
    paper="Peng, Long & Ding 2005, IEEE Trans. PAMI 27, 1226",
    doi="10.1109/TPAMI.2005.159",
)
class MRMR(GreedySelector):
    """Minimal redundancy, maximal relevance (mRMR; Peng, Long & Ding 2005), its relevance summed over the labels.

    The relevance of f is the sum over l of I(f; l), its redundancy the mean over chosen features s of I(f; s).

    Notes
    -----
    The paper has one label; for several, relevances are summed, and with one label it is as published. The authors'
    program looks at the 500 features of largest relevance alone; all are looked at here. The quotient of a feature that
    is independent of all chosen ones would be infinite: redundancies are taken as 2e-16 at least. Redundancies near 0
    make quotients of 1e7 and more, which say little of relevance.

    References
    ----------
    H. Peng, F. Long, C. Ding, "Feature selection based on mutual information: criteria of max-dependency,
    max-relevance, and min-redundancy", IEEE Transactions on Pattern Analysis and Machine Intelligence 27 (2005)
    1226-1238, doi:10.1109/TPAMI.2005.159. C. Ding, H. Peng, "Minimum redundancy feature selection from microarray gene
    expression data", Journal of Bioinformatics and Computational Biology 3 (2005) 185-205,
    doi:10.1142/S0219720005001004.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the second feature is the first again
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> mlfs.MRMR(n_features_to_select=2).fit(X, Y).ranking_.tolist()
    [0, 2, 1]
    """

    criterion: Annotated[
        Literal["mid", "miq"],
        Param(
            'Criterion by Ding & Peng 2005. "mid": relevance less redundancy. "miq": relevance divided by redundancy.'
        ),
    ] = "mid"

    def _criterion(self, relevance: Array, entropy: Array, shared: Array, chosen: list[int]) -> Array:
        redundancy: Array = shared / len(chosen)
        if self.criterion == "mid":
            return relevance - redundancy
        return relevance / np.maximum(redundancy, np.finfo(np.float64).eps)


@method(
    "jmi",
    "Joint mutual information (JMI)",
    paper="Yang & Moody 1999, NIPS 12, 687; Brown et al. 2012, JMLR 13, 27",
    doi="",
)
class JMI(GreedySelector):
    """Joint mutual information (JMI; Yang & Moody 1999), summed over the labels.

    J(f) = sum over s and l of I((f, s); l), for chosen features s; the first is the feature of largest relevance, the
    sum over l of I(f; l).

    Notes
    -----
    The paper has one label, with which it is as published; for several, the sums over labels are taken. Terms of s
    alone are the same for all features of a step and are part of the score, which therefore grows from step to step.

    References
    ----------
    H. Yang, J. Moody, "Data visualization and feature selection: new algorithms for nongaussian data", Advances in
    Neural Information Processing Systems 12 (1999) 687-693. G. Brown, A. Pocock, M.-J. Zhao, M. Luján, "Conditional
    likelihood maximisation: a unifying framework for information theoretic feature selection", Journal of Machine
    Learning Research 13 (2012) 27-66.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> mlfs.JMI(n_features_to_select=2).fit(X, Y).scores_.round(3)
    array([0.693, 0.693, 1.386])
    """

    memory = TRIPLES_MEMORY
    with_labels = True

    def _criterion(self, relevance: Array, entropy: Array, shared: Array, chosen: list[int]) -> Array:
        # I((f, s); l) = I(s; l) + I(f; l) - I(f; s; l).
        scores: Array = relevance[chosen].sum() + len(chosen) * relevance - shared
        return scores
