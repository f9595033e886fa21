"""Entropy-based label selection, and two more scores from the same counts.

Lee & Kim (2016) sum the mutual information of a feature with the labels of largest entropy, the promising ones,
and bound it by min(H(f), H(l)) for the others. González-López, Ventura & Cano (2020) take the Euclidean norm or
the geometric mean of the information with all labels. All follow from the counts N(feature, code, label)
(`mlfs_dask.selectors.counting`).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.pair_scores import GEOMETRIC_MEAN, NORM
from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.counting import CountFilter, CountResults
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.typing import Array


@method(
    "label-entropy", "Entropy-based label selection", paper="Lee & Kim 2016, Entropy 18, 405", doi="10.3390/e18110405"
)
class LabelEntropy(CountFilter):
    """Entropy-based label selection (Lee & Kim 2016).

    The score of a feature f is the sum of M(f; l) over the promising labels, by default those of largest entropy, plus
    the sum of min(H(f), H(l)) over the other labels (Algorithm 1, line 9). Entropies are in natural logarithms.

    Notes
    -----
    One pass over X of a store; one more if ranges or quantiles are not recorded, one more for the means or medians
    that fill missing values, and one over the labels alone for "auto". Scores follow from integer counts and are
    identical for any chunking and number of workers. With unknown labels H(l) is that of the label's known rows, and
    H(f) of the bound that of all rows.

    References
    ----------
    J. Lee, D.-W. Kim, "Efficient multi-label feature selection using entropy-based label selection", Entropy 18
    (2016) 405, doi:10.3390/e18110405.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    >>> selector = mlfs.LabelEntropy(n_features_to_select=1, n_promising_labels=1.0).fit(X, Y)
    >>> selector.ranking_.tolist(), selector.scores_.round(3).tolist()
    ([0, 1, 2], [0.909, 0.216, 0.0])
    """

    on_features = (
        '"auto": those that have more information with the counted labels than by chance, at the false discovery '
        "rate `fdr`."
    )
    n_promising_labels: Annotated[
        int | float,
        Param(
            "Number of promising labels, or a fraction of the labels (rounded up). 1.0 gives the exact sum over all "
            "labels, 0 the bound."
        ),
    ] = 0.2
    order: Annotated[
        Literal["descending", "ascending"],
        Param(
            'Order of the labels by entropy, of which the first are promising. "ascending": those of smallest '
            "entropy, with which the paper compares."
        ),
    ] = "descending"

    memory = "worker: 4 bytes * d * (codes - 1) * (p + 1)"

    def check(self) -> None:
        super().check()
        value = self.n_promising_labels
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not (whole and value >= 0) and not (isinstance(value, (float, np.floating)) and 0 <= value <= 1):
            raise UsageError(
                f"{parameter('n_promising_labels')} must be a count from 0 or a fraction from 0.0 to 1.0; got {value!r}"
            )

    def _n_counted(self, q: int) -> int:
        value: Any = self.n_promising_labels
        if isinstance(value, (int, np.integer)):
            if value > q:
                raise UsageError(
                    f"{parameter('n_promising_labels')} is {value}, but there are {q} labels; give at most {q}, "
                    "or 1.0 for all"
                )
            return int(value)
        # A product such as 0.1 * 30 lies a rounding error above 3 and must not count as 4.
        return min(q, math.ceil(float(value) * q - 1e-9))

    def _counted_labels(self, entropies: Array) -> NDArray[np.int64]:
        return super()._counted_labels(-entropies if self.order == "ascending" else entropies)

    def finish(self, counts: CountResults) -> Array:
        other_label_entropies = np.delete(counts.label_entropies, counts.counted)
        if not len(other_label_entropies):
            return counts.scores
        # Sum of min(H(f), H(l)) over the other labels, without a (d, q) array: the labels below H(f) give their
        # own entropy, the others give H(f).
        rising = np.sort(other_label_entropies)
        sums = np.concatenate(([0.0], np.cumsum(rising)))
        below = np.searchsorted(rising, counts.entropy)
        return counts.scores + sums[below] + counts.entropy * (len(rising) - below)


_NORMS_PAPER = "González-López, Ventura & Cano 2020, Knowledge-Based Systems 188, 105052"
_NORMS_DOI = "10.1016/j.knosys.2019.105052"


@method("enm", "Euclidean norm of mutual information", paper=_NORMS_PAPER, doi=_NORMS_DOI)
class ENM(CountFilter):
    """Euclidean norm over labels of the mutual information M(f; l) (González-López et al. 2020).


    References
    ----------
    J. González-López, S. Ventura, A. Cano, "Distributed multi-label feature selection using individual mutual
    information measures", Knowledge-Based Systems 188 (2020) 105052, doi:10.1016/j.knosys.2019.105052.
    """

    over = NORM


@method("gmm", "Geometric mean of mutual information", paper=_NORMS_PAPER, doi=_NORMS_DOI)
class GMM(CountFilter):
    """Geometric mean over labels of the mutual information M(f; l) (González-López et al. 2020).

    Labels that are the same in every row are left out: they would make every product 0.


    References
    ----------
    J. González-López, S. Ventura, A. Cano, "Distributed multi-label feature selection using individual mutual
    information measures", Knowledge-Based Systems 188 (2020) 105052, doi:10.1016/j.knosys.2019.105052.
    """

    over = GEOMETRIC_MEAN
