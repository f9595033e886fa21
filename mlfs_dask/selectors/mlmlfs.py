"""MLMLFS: a robust regression that fits unknown labels within [−1, 1], with predictions smooth over near rows.

P. Zhu, Q. Xu, Q. Hu, C. Zhang, H. Zhao, "Multi-label feature selection with missing labels", Pattern Recognition 74
(2018) 488-502, doi:10.1016/j.patcog.2017.09.036.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from scipy import linalg
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.heat_kernel import heat_kernel_graph
from mlfs_dask.blocks.linear import laplacian_gram_bytes
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, run_program
from mlfs_dask.exact.graphs import mean_distance, nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.anchored_regression import MeanDegree, add_smoothness
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.in_memory import InMemory
from mlfs_dask.selectors.loop import Shares
from mlfs_dask.selectors.parameters import AnchorCount, AnchorNeighbors, GramCap, Param, seed_of
from mlfs_dask.selectors.reweighted_regression import START, At, ReweightedRegression
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.anchor_sums import AnchorSums
from mlfs_dask.statistics.gram import GRAM_CAP, Gram, require_gram, scale_gram
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Matrix, Seed, join_terms, numbers

EPSILON = np.finfo(np.float64).eps


@dataclass
class Fixed(Shares):
    """Constants of the iterations."""

    smooth: Annotated[Array, "d d", "αX'LX"]


@method(
    "mlmlfs",
    "Feature selection with missing labels (MLMLFS)",
    paper="Zhu, Xu, Hu, Zhang & Zhao 2018, Pattern Recognition 74, 488-502",
    doi="10.1016/j.patcog.2017.09.036",
)
class MLMLFS(InMemory, ReweightedRegression[Fixed]):
    """Multi-label feature selection with missing labels (MLMLFS; Zhu, Xu, Hu, Zhang & Zhao 2018).

    Minimises Σ_i ‖x_iW + b − f_i‖ + α tr P'LP + λ Σ_f ‖w_f‖^p, P holding the predictions x_iW + b, over W, b and the
    labels f_i of the rows: known entries are −1 or 1, and unknown ones any number between. The loss is a norm and not
    its square, so that rows far off count less; predictions are similar in near rows. A feature's score is the norm of
    its row of W.

    Notes
    -----
    Features are standardised over all rows, by algebra where X is sparse. Passes over X: one for moments with a
    sample, among which anchors are placed, one for X'LX and the sums at W = 0, and one per iteration, in which the
    labels and the weight of each row are made, added to sums and discarded. More than `gram_cap` features are
    refused. Any entries may be unknown (-1); rows of which nothing is known have a part in the graph alone. For p =
    1 the problem is convex; for less the loop begins with the W of p = 1.

    What differs from the authors' program: it subtracts the number 1 where the identity is meant, so that it solves
    for labels that are αX'LF larger, and its weights of rows are those of the iteration before. Here λ counts relative
    to the least at which W = 0 (for p = 1), a norm ‖r‖ of a row is √(‖r‖² + 0.05²), and the graph of the rows is one
    of anchors. The published form is the program: graph of nearest rows, sample standard deviation, λ as it is, random
    start. It holds all rows in memory. The program's own settings are tol=0, max_iter=20, alpha=0.0001 and lambda_=1;
    on emotions they are equal to 10 digits.

    References
    ----------
    P. Zhu, Q. Xu, Q. Hu, C. Zhang, H. Zhao, "Multi-label feature selection with missing labels", Pattern Recognition 74
    (2018) 488-502, doi:10.1016/j.patcog.2017.09.036.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[rng.random(Y.shape) < 0.3] = -1
    >>> sorted(mlfs.MLMLFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    variant: Annotated[
        Literal["corrected", "published"],
        Param(
            'Variant of the method. "corrected": the minimum of the objective. "published": the authors\' '
            "program, with all rows in memory."
        ),
    ] = "corrected"
    alpha: Annotated[float, Param('Weight of the graph of the rows; in "published" 0.0001 is usual.')] = 0.01
    lambda_: Annotated[
        float,
        Param(
            'Weight of the penalty, relative to the least weight at which W = 0; in "published" absolute, '
            "where 1 is usual.",
            above=0,
        ),
    ] = 0.1
    p: Annotated[float, Param("Power of the norms of rows of W in the penalty.", above=0, most=1)] = 1.0
    n_neighbors: MeanDegree = 5
    n_anchors: AnchorCount = 300
    anchor_neighbors: AnchorNeighbors = 3
    gram_cap: GramCap = GRAM_CAP
    random_state: Annotated[Seed, seed_of("the sample and of k-means, and of the start of the published form")] = None

    name = "MLMLFS"
    init_shapes: ClassVar[Mapping[str, str]] = {"W": "d q", "b": "q"}
    penalty = "lambda_"
    caps_features = True
    records = Fixed, At
    box = (-1.0, 1.0)
    supervision = "semi-supervised: labels may be unknown"
    unknown_entry = "is fitted or recovered inside the method"
    typical_iterations = 5, 22
    passes = "2 + 1 an iteration; in the published form 1"
    memory = (
        "worker: 8 bytes * (d² + 2 d q + m d) for m anchors; driver: 8 bytes * (5 d² + 8 d q); in the published form "
        "the driver holds X, 4 d² and n * (8 q + 32 k) bytes"
    )

    setup_workspace = "sample + 6 m d"  # k-means

    @property
    def power(self) -> float:
        return float(self.p)

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        return super().reads(profile) | {"sample": AnchorGraph.of(self, profile).sample}

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        graph = AnchorGraph.of(self, profile)
        return Cost(
            steps=[Reading(START, tuple(self._second(fixed, graph.placeholder, at)), workspace="2 m d")],
            sizes={"m": graph.count, "sample": graph.sample_numbers},
            loads_sklearn=True,
            notes=[graph.note],
        )

    def _second(self, fixed: Shares, anchors: Anchors, at: At) -> list[Statistic]:
        """Return statistics of the second pass, in which W = 0."""
        d = len(fixed.centre)
        return [Gram(d), AnchorSums(anchors), self.rows(fixed, at)]

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        moments, labels = results["moments"], results["labels"]
        profile, scaling = job.source.profile, standard_scaling(moments)
        shares = Shares(scaling.centre, scaling.factor, labels.shares(profile.n))
        anchors = AnchorGraph.of(self, profile).place(results.pop("sample").X, scaling)
        gram, graph, results["sums"] = job.run(START, *self._second(shares, anchors, self.zero(shares)))
        graph.ZX[...] *= scaling.factor
        smooth = np.zeros_like(gram)
        add_smoothness(self.alpha * self.n_neighbors, smooth, scale_gram(gram, scaling.factor), graph)
        return Fixed(shares.centre, shares.factor, shares.share, smooth)

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        return self.first_step(fixed, self.zero(fixed), results["sums"], trace)

    def rows(self, fixed: Any, at: At) -> Statistic:
        return OfLabelled(super().rows(fixed, at), partly=True)

    def quadratic(self, fixed: Fixed) -> Array:
        return fixed.smooth

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        """Return the memory of the program: the graph, X'LX, the system for W, labels, predictions and their rows."""
        require_gram(profile.d, self.gram_cap, self.name)
        strips = laplacian_gram_bytes(profile.n, profile.d, profile.nonzeros if profile.sparse else None)
        sizes = {"k": min(self.n_neighbors, profile.n - 1), "strips": numbers(strips)}
        own = f"8 n k + {4 * gates.VALUES_AT_ONCE} + 10 n q + 5 d d + 6 d q + strips"
        return join_terms(matrix.workspace(sparse=profile.sparse), graphs.workspace(), own), sizes

    def _fit_exactly(
        self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments, start: Arrays | None = None
    ) -> ExactFit:
        """Compute W, the weights of rows by the b and the labels of before, b and the labels in turn.

        As in MLMLFS.m of MLMLFS-PR2017, the system for W has αX'LF more on its right side than the objective has: the
        program subtracts 1 from every entry of a matrix where the identity is meant.

        Raises
        ------
        MlfsError
            The loop diverges.
        """
        features = ScaledMatrix(X, moments, ddof=1)
        entries = Y.toarray()
        labels, known = np.where(entries > 0, 1.0, -1.0), entries >= 0
        d, q = X.shape[1], Y.shape[1]
        alpha, lambda_, p = self.alpha, self.lambda_, self.p
        width = 2.0 * mean_distance(features.rows) ** 2
        L = Laplacian(heat_kernel_graph(nearest_rows(features.rows, self.n_neighbors).to_csr(), width))
        smooth = features.gram_with(L, alpha)

        def weigh(W: Array, b: Array, F: Array) -> Array:
            return np.asarray(0.5 / np.sqrt(row_norms(features.forward(W) + b - F) ** 2 + EPSILON))

        def begin() -> Arrays:
            draw = np.random.default_rng(self.seed)
            at = {"W": draw.random((d, q)), "b": draw.random(q)} if start is None else dict(start)
            F = np.where(known, labels, 0.0)
            return at | {"F": F, "s": weigh(at["W"], at["b"], F), "D": np.ones(d)}

        def turn(at: Arrays) -> tuple[Arrays, float]:
            F, s = at["F"], at["s"]
            total, X_s = s.sum(), features.backward(s[:, np.newaxis])[:, 0]
            G = features.gram(s) + smooth
            G -= np.outer(X_s, X_s / total)
            G[np.diag_indices(d)] += lambda_ * at["D"]
            right = features.backward(s[:, np.newaxis] * (F - s @ F / total)) + alpha * features.backward(L.product(F))
            W = np.asarray(linalg.solve(G, right, assume_a="pos", check_finite=False))
            norms = row_norms(W)
            s = weigh(W, at["b"], F)
            b = (s @ F - features.backward(s[:, np.newaxis])[:, 0] @ W) / s.sum()
            P = features.forward(W) + b
            F = np.where(known, labels, np.clip(P, -1.0, 1.0))
            value = float(row_norms(P - F).sum()) + alpha * float(np.vdot(P, L.product(P)))
            value += lambda_ * float((norms**p).sum())
            return {"W": W, "b": b, "F": F, "s": s, "D": 0.5 * p * (norms**2 + EPSILON) ** (0.5 * p - 1.0)}, value

        at, trace = run_program(self, begin, turn)
        return ExactFit(row_norms(at["W"]), trace, {})


# ---------------------------------------------------------------------- with all rows in memory
