"""After SFAM: a row-sparse regression with a graph of the rows by features, labels and predictions, in turn with W.

The paper's text was not available; the method computes the following.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.graph_regression import At, Fixed, GraphRegression
from mlfs_dask.selectors.parameters import AnchorNeighbors, Param
from mlfs_dask.statistics.row_system import SystemSums
from mlfs_dask.typing import Array


@method(
    "sfam",
    "Adaptive structure learning and manifold learning (after SFAM)",
    paper="after Lv, Shi, Wang & Li 2021, Knowledge-Based Systems 214, 106757",
    doi="10.1016/j.knosys.2021.106757",
)
class SFAM(GraphRegression):
    """Semi-supervised multi-label selection with an adaptive graph of rows, after SFAM (Lv, Shi, Wang & Li 2021).

    The paper's text was not available; the method computes the following. The objective is that of `SCFS` with
    predictions in the graph: c Σ_ia z_ia (‖f_i − u_a‖² + η‖x_i − c_a‖² + θ‖(x_i − c_a)W‖²), so that the predictions
    keep the structure that the labels have. A feature's score is the norm of its row of W.

    Notes
    -----
    Passes, memory, unknown labels, η, c and γ are as of `SCFS`. The penalty and this term together make W, from
    X'X + cθ (X'X − (Z'X)'Λ⁻¹Z'X) of the last pass's weights Z, Λ = diag(Z'1).

    References
    ----------
    S. Lv, S. Shi, H. Wang, F. Li, "Semi-supervised multi-label feature selection with adaptive structure learning and
    manifold learning", Knowledge-Based Systems 214 (2021) 106757, doi:10.1016/j.knosys.2021.106757.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.SFAM(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    theta: Annotated[float, Param("Weight of predictions in the graph of the rows, beside that of labels.")] = 1.0
    anchor_neighbors: AnchorNeighbors = 5

    name = "SFAM"
    typical_iterations = 10, 40
    adaptive = True
    memory = "worker: 8 bytes * (3 m d + 2 d q + m²) for m anchors, and d² in the first pass; driver: 8 bytes * 5 d²"

    @property
    def prediction_weight(self) -> float:
        return float(self.theta)

    def quadratic(self, fixed: Fixed, at: At, sums: SystemSums) -> Array:
        HX, masses = sums.HX[1:], sums.masses[1:]
        root = np.divide(1.0, np.sqrt(masses), out=np.zeros_like(masses), where=masses > 0)[:, np.newaxis]
        G: Array = (HX * root).T @ (HX * -(self.theta * root))
        G += (1.0 + self.theta * self._weight) * fixed.gram
        return G
