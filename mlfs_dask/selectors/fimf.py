"""FIMF: information with all labels, and interaction with pairs of the labels of largest entropy (Lee & Kim 2015).

All terms follow from the counts N(feature, code, label) and N(feature, code, pair of labels): one pass over X.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.counting import CountFilter
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.statistics.counts import PairCountScores


@method(
    "fimf",
    "Information with labels and pairs of them (FIMF)",
    paper="Lee & Kim 2015, Pattern Recognition 48, 2761",
    doi="10.1016/j.patcog.2015.04.009",
)
class FIMF(CountFilter):
    """Fast multi-label feature selection by information-theoretic feature ranking (FIMF; Lee & Kim 2015).

    J(f) is the sum over all labels of the mutual information M(f; l), less the interaction information of f with
    every pair of the labels of largest entropy, M(l; l') - M(l; l' | f): information that two labels share with
    each other and with the feature counts once. In natural logarithms.

    Notes
    -----
    Scores follow from integer counts and are identical for any chunking.

    The authors' program leaves out the terms that are the same for all features, sums of H(l) and of M(l; l'), and
    takes logarithms to base 2; with a number of features below all it scores only those of largest entropy. Here a
    feature that is independent of the labels has 0, and all features are scored. On emotions the scores are the
    program's, up to these terms.

    References
    ----------
    J. Lee, D.-W. Kim, "Fast multi-label feature selection based on information-theoretic feature ranking", Pattern
    Recognition 48 (2015) 2761-2771, doi:10.1016/j.patcog.2015.04.009. The program: github.com/CAU-AIR-Lab/FIMF.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 0]])
    >>> mlfs.FIMF(n_features_to_select=1).fit(X, Y).scores_.round(3)
    array([0.693, 0.347, 0.   ])
    """

    n_interacting_labels: Annotated[
        int,
        Param(
            "Number of labels of largest entropy whose pairs are counted. 0 and 1 give the sum of informations alone.",
            least=0,
        ),
    ] = 10

    takes_strata = False
    memory = "worker: 4 bytes * d * (codes - 1) * (q + p²/2 + 1)"

    def _statistic(self, **fields: Any) -> PairCountScores:
        q = len(fields["slot_of_label"]) - len(fields["unknown"])
        slots: NDArray[np.int64] = fields["slot_of_label"][:q]  # 0 is the label of largest entropy
        return PairCountScores.of(np.flatnonzero(slots < self.n_interacting_labels).tolist(), **fields)
