"""SFS-BLL: a row-sparse regression on labels 0 and 1 of all rows, which a graph of the rows makes alike.

D. Shi, L. Zhu, J. Li, Z. Cheng, Z. Liu, "Binary label learning for semi-supervised feature selection", IEEE
Transactions on Knowledge and Data Engineering 35 (2023) 2299-2312, doi:10.1109/TKDE.2021.3109243.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import anchor_values
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import parameter
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, run_program
from mlfs_dask.exact.graphs import nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.selectors.graph_regression import At, Fixed, GraphRegression
from mlfs_dask.selectors.in_memory import InMemory
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.conjugate_gradients import MATRICES, conjugate_gradients
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.binary_rows import BinaryRows, BinarySums
from mlfs_dask.statistics.column_keys import ColumnKeys
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.row_system import TURNS
from mlfs_dask.typing import Array, Matrix, join_terms

EPSILON = np.finfo(np.float64).eps

#: Relative residual at which the system of the labels is solved.
SOLVED = 1e-14

#: e of a row's residual √(‖r‖² + e²) relative to the root mean square at W = 0.
ROW_SMOOTHING = 1e-3


@dataclass
class BinaryFixed(Fixed):
    """And rows of which thresholds are told."""

    sample: Any = None


@dataclass
class BinaryAt(At):
    """And thresholds τ of the turns of a row, and s, with which rows have weight 1 at the usual residual."""

    thresholds: Annotated[Array, "t q"]
    scale: Annotated[float, ""]


@method(
    "sfs-bll",
    "Binary label learning for semi-supervised selection",
    paper="Shi, Zhu, Li, Cheng & Liu 2023, IEEE TKDE 35, 2299-2312",
    doi="10.1109/TKDE.2021.3109243",
)
class SFSBLL(InMemory, GraphRegression):
    """Semi-supervised feature selection by binary label learning (SFS-BLL; Shi, Zhu, Li, Cheng & Liu 2023).

    Minimises s Σ_i ‖x_iW + b − f_i‖ + κ Σ (f_il − y_il)² over known labels + c Σ_ia z_ia ‖f_i − u_a‖² + γ Σ_f ‖w_f‖
    over W, b, values u of anchors, and the labels F of the rows, which are 0 or 1. Rows far off count less, for the
    loss is a norm and not its square; s makes it about the squared loss where residuals are as they usually are at
    W = 0. A feature's score is the norm of its row of W.

    Notes
    -----
    Passes over X: one for moments and a sample, among which anchors are placed, one at W = 0, and one per
    iteration, in which labels and weights of each row are made, in turn, added to sums and discarded. More than
    `gram_cap` features are refused. Any labels may be unknown (-1).

    What differs from the paper: with anchors labels of a row do not interact, so that they follow from thresholds,
    and nothing is alternated with multipliers. In the authors' program the threshold is 0, which is right for -1
    and 1; it fits W to codes and codes to predictions that are not the same, and with all its weights 1 every label
    becomes 0. That program is the published form, in memory. Even at the minimum few unknown labels are 1, for
    small targets are cheap: by default a label has such a share of its unknown entries as of its known ones, by
    thresholds of the rows among which anchors are placed. The objective may rise a little: thresholds move, and
    labels of a row, whose weights start at 1 in every pass, may end in another of its minima. Sums are not
    predicted between passes: X'SX and X'SF change with the weight 1/√(‖r‖² + e²) of every row, which is no function
    of sums, and labels jump. There is an
    intercept, and γ is relative to the least weight at which W = 0. The program's own settings are kappa=100,
    gamma=0.1, tol=0 and max_iter=20; with them the published form is equal to it on emotions to 12 digits.

    Average precision of ML-kNN with a tenth of the features, chosen on 40 % of the rows labelled (five folds; medical
    and enron are text; `benchmarks/quality.py sfs-bll`). `rfs` does not see rows without labels.

    | set | random | gamma=0.1 | 0.3 | 0.5 | 1 | `rfs` |
    | --- | --- | --- | --- | --- | --- | --- |
    | medical | .532 | .671 | .824 | .823 | .587 | .839 |
    | enron | .604 | .653 | .652 | .638 | .634 | .655 |
    | genbase | .549 | .979 | .979 | .979 | .979 | .977 |
    | emotions | .728 | .753 | .766 | .763 | .753 | .757 |
    | yeast | .723 | .739 | .741 | .740 | .732 | .742 |
    | scene | .800 | .819 | .819 | .799 | .738 | .828 |

    References
    ----------
    D. Shi, L. Zhu, J. Li, Z. Cheng, Z. Liu, "Binary label learning for semi-supervised feature selection", IEEE
    Transactions on Knowledge and Data Engineering 35 (2023) 2299-2312, doi:10.1109/TKDE.2021.3109243.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.SFSBLL(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    variant: Annotated[
        Literal["corrected", "published"],
        Param(
            'Variant of the method. "corrected": recovered labels are those above a threshold. "published": '
            "the authors' program, with all rows in memory."
        ),
    ] = "corrected"
    threshold: Annotated[
        Literal["prior", "half"],
        Param(
            'Threshold of recovered labels. "prior": a label is 1 for as large a share of its unknown entries '
            'as of its known ones. "half": ½, which gives the least objective.'
        ),
    ] = "prior"
    alpha: Annotated[float, Param("Weight of the graph of the rows.")] = 0.2
    kappa: Annotated[
        float,
        Param(
            'Weight of the known labels; the regression has weight 1. In "published" 100 is usual.',
            above=0,
        ),
    ] = 10.0
    gamma: Annotated[
        float,
        Param('Weight of the penalty, relative to the least weight at which W = 0; in "published" absolute.', above=0),
    ] = 0.3
    beta: Annotated[float, Param('Weight of the regression in "published".', above=0)] = 0.01
    rho: Annotated[float, Param('Weight of the multipliers in "published".', above=0)] = 1.0
    n_neighbors: Annotated[
        int,
        Param(
            "Mean number c of neighbours of a row in the graph that anchors stand for; number of neighbours "
            'in "published".'
        ),
    ] = 10

    name = "SFS-BLL"
    init_shapes: ClassVar[Mapping[str, str]] = {"B": "n q"}
    weighs_sample = True
    records = BinaryFixed, BinaryAt
    typical_iterations = 6, 16
    forms_gram = False

    memory = "worker: 8 bytes * (d² + 2 d q + 2 m d + m²) for m anchors; driver: 8 bytes * 5 d²"
    workspace = f"2 d d + p + {GraphRegression.workspace}"  # X'SX, centred, and the sample

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        """Return the memory of the program: the graph, variables with their successors, X'SX and its factors."""
        own = f"10 n k + {12 + MATRICES} n q + 6 n + 4 d q + {1 + row_sparse.SQUARE_MATRICES} d d"
        workspace = join_terms(matrix.workspace(sparse=profile.sparse), graphs.workspace(), own)
        return workspace, {"k": min(self.n_neighbors, profile.n - 1)}

    def _fit_exactly(
        self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments, start: Arrays | None = None
    ) -> ExactFit:
        """Return weights, multipliers, codes and labels in turn, from random codes, as in SFS.m of SFS-BLL.

        Raises
        ------
        MlfsError
            A residual becomes 0, and the weights of rows are not finite.
        """
        features, (n, d) = ScaledMatrix(X, moments, ddof=1), X.shape
        labelled = np.ones((n, 1))
        labelled[Y.tocoo().row[Y.data < 0]] = 0.0
        labels = labelled * (Y.toarray() > 0)
        alpha, beta, gamma, rho = (float(each) for each in (self.kappa, self.beta, self.gamma, self.rho))
        L = Laplacian(cosine_graph(features, self.n_neighbors))

        def begin() -> Arrays:
            draws = np.random.default_rng(self.seed).standard_normal(labels.shape) > 0 if start is None else start["B"]
            B = draws.astype(np.float64)
            return {"W": np.zeros((d, B.shape[1])), "B": B, "F": B, "G": np.zeros_like(B), "w": np.ones(n)}

        def step(at: Arrays) -> tuple[Arrays, float]:
            B, F, w = at["B"], at["F"], at["w"]
            t = 2.0 * np.sqrt(np.square(at["W"]).sum(axis=1) + EPSILON)
            W = row_sparse.solve_gram(features.gram(w), features.backward(w[:, np.newaxis] * B), gamma, t).P
            XW, G = features.forward(W), at["G"] + rho * (B - F)
            residuals = row_norms(XW - B)
            w = np.divide(residuals.sum(), residuals, out=np.full(n, np.nan), where=residuals > 0)
            B = np.where(labelled > 0, np.sign(alpha * labels + rho * F - G), np.sign(F - G / rho)) / 2.0 + 0.5
            weights = 2.0 * beta * w[:, np.newaxis]
            diagonal = rho + alpha * labelled + weights
            if not np.isfinite(w).all():
                return at, np.nan
            inverse = 1.0 / (diagonal + 2.0 * L.degrees[:, np.newaxis])
            F = conjugate_gradients(
                lambda P, _: 2.0 * L.product(P) + diagonal * P,
                rho * B + G + alpha * labels + weights * XW,
                x0=F,
                precondition=lambda R, _: inverse * R,
                tol=SOLVED,
            ).x
            value = float(np.vdot(F, L.product(F))) + 0.5 * alpha * float(np.square(labelled * (F - labels)).sum())
            value += beta * float((w[:, np.newaxis] * np.square(XW - F)).sum()) + gamma * float(row_norms(W).sum())
            return {"W": W, "B": B, "F": F, "G": G, "w": w}, value

        cure = f", or a larger {parameter('kappa')} and a smaller {parameter('beta')}"
        at, trace = run_program(self, begin, step, further_cure=cure)
        ones = float(at["B"][labelled[:, 0] == 0].mean()) if (labelled == 0).any() else None
        return ExactFit(row_norms(at["W"]), trace, {"ones_of_unlabelled": ones})

    def sizes(self, profile: Profile) -> dict[str, int]:
        return super().sizes(profile) | {"t": TURNS}

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        return super().reads(profile) | {"keys": ColumnKeys(profile.d)}

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        at = super().start(job, fixed, results, trace)
        none = np.zeros((TURNS, len(at.b)))
        return self._with_thresholds(fixed, BinaryAt(**vars(at), thresholds=none, scale=2.0 * at.unit))

    def _with_thresholds(self, fixed: Fixed, at: BinaryAt) -> BinaryAt:
        if self.threshold == "half":
            return at
        assert isinstance(fixed, BinaryFixed)
        return replace(at, thresholds=self.rows(fixed, at).thresholds_of(fixed.sample, fixed.share))

    def rows(self, fixed: Fixed, at: At) -> BinaryRows:
        assert isinstance(at, BinaryAt)
        return BinaryRows(
            fixed.scaling,
            at.W,
            at.b,
            ROW_SMOOTHING * at.unit,
            anchors=self._anchors(fixed, at),
            U=at.U,
            kappa=float(self.kappa),
            weight=self._weight,
            scale=at.scale,
            thresholds=at.thresholds,
        )

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        rows: BinarySums = sums[0]
        penalty = at.gamma * row_sparse.penalty(at.W, at.epsilon)
        return {"objective": float(rows.rows.loss[0]) + float(rows.terms.sum()) + penalty}

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        binary: BinarySums = sums[0]
        assert isinstance(at, BinaryAt)
        rows = binary.rows
        G, B = rows.centred()
        B[:, ~fixed.varies] = 0.0  # what rounding leaves of them
        gamma = self.penalty_weight(at.gamma, B, trace)
        W, epsilon = row_sparse.reweight(G, B, gamma, at.W, at.epsilon)
        b = (rows.Y - rows.X @ W) / rows.total
        U = anchor_values(binary.ZF, binary.masses, at.U)
        made = BinaryAt(W, b, at.C, U, gamma, epsilon, at.unit, at.thresholds, at.scale)
        return self._with_thresholds(fixed, made)


# ---------------------------------------------------------------------- with all rows in memory


def cosine_graph(features: ScaledMatrix, k: int) -> sp.csr_array:
    """Return the cosines of each row with its k nearest ones, shape (n, n); an edge that two rows have counts the
    larger.
    """
    rows, centre, n = features.rows, features.centre, features.shape[0]
    indices = nearest_rows(rows, k).indices
    along = np.zeros(n) if centre is None else np.asarray(rows @ centre)
    of_centre = 0.0 if centre is None else float(centre @ centre)

    def products(left: Matrix, right: Matrix) -> Array:
        if sp.issparse(left):
            return np.asarray(left.multiply(right).sum(axis=1)).ravel()
        return np.asarray(np.einsum("ij,ij->i", left, right))

    size = np.sqrt(np.maximum(products(rows, rows) - 2.0 * along + of_centre, 0.0))
    cosines = np.zeros(indices.shape)
    for low in range(0, n, gates.GROUP_ROWS):
        part = slice(low, min(low + gates.GROUP_ROWS, n))
        for j in range(indices.shape[1]):
            others = indices[part, j]
            dots = products(rows[part], rows[others]) - along[part] - along[others] + of_centre
            scale = size[part] * size[others]
            np.divide(dots, scale, out=cosines[part, j], where=scale > 0)
    k = indices.shape[1]
    graph = sp.csr_array((cosines.ravel(), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    return sp.csr_array(graph.maximum(graph.T))
