"""Access-MFS: features that predict labels which few rows have, graphs learnt on the way (Huang et al. 2024).

A regression with uncorrelated projections, predicted labels for all rows, and two adaptive graphs, one of rows and one
of labels, are updated in turn until the objective converges. With an anchor graph of rows an iteration is one pass.

Y. Huang, L. Yang, D. Wang, K. Li, X. Yi, F. Lv, T. Li, "Adaptive Collaborative Correlation Learning-based
Semi-Supervised Multi-Label Feature Selection", arXiv:2406.12193 (2024), doi:10.48550/arXiv.2406.12193.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks import gates
from mlfs_dask.blocks.adaptive_graph import column_graph, neighbours_used, simplex_weights
from mlfs_dask.blocks.anchors import anchor_values, join_coincident, place_anchors
from mlfs_dask.blocks.column_keys import key_places
from mlfs_dask.blocks.duplicate_labels import DuplicateLabels, duplicate_labels
from mlfs_dask.blocks.linear import forward_block, laplacian_gram_bytes
from mlfs_dask.blocks.neighbours import Neighbours
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.checkpoints import Arrays, State
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import parameter
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, save_if_due
from mlfs_dask.exact.graphs import nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.in_memory import GraphKind, InMemory
from mlfs_dask.selectors.loop import Loop, Scaled, placeholder, placeholders
from mlfs_dask.selectors.parameters import MaxIter, Missing, Param, StepsPerPass, Stop, seed_of
from mlfs_dask.selectors.scores import not_converged
from mlfs_dask.solvers import label_propagation, uncorrelated
from mlfs_dask.solvers.label_propagation import propagate_labels
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace, ratio
from mlfs_dask.solvers.uncorrelated import (
    RESIDUAL_TOL,
    GramRegression,
    NystromSketch,
    Projection,
    Smoothing,
    SubspaceRegression,
)
from mlfs_dask.statistics.column_keys import ColumnKeys
from mlfs_dask.statistics.gram import Gram, NormalProduct, scale_gram
from mlfs_dask.statistics.label_statistics import Labels, graph_laplacian
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.predicted_rows import (
    PredictedRows,
    PredictedSums,
    RowPrediction,
    predicted_sums,
    settle_anchors,
)
from mlfs_dask.statistics.products import LabelProducts, wants_compiled
from mlfs_dask.statistics.sample import RowSample, SampledRows
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Matrix, Seed, join_terms, numbers

#: ε of D (below Eq. 9).
EPSILON = 1e-8

#: ε of D, what is added to the sum of a row's weights, and the change of the (log) objective that ends the loop, in the
#: authors' code.
PUBLISHED_EPSILON = 2.2e-16
PUBLISHED_SLACK = 0.01
PUBLISHED_TOL = 1e-2

#: Relative change of W at which the inner iterations of W and D stop.
SETTLED = 1e-6

#: Relative error that solves may leave by default: objectives agree with dense algebra to 8 digits, scores to 6.
SOLVER_TOL = 1e-7

#: Relative residuals of the conjugate gradients for F and, above the Gram cap, for W, as fractions of this error.
LABEL_TOL = 0.1
WEIGHT_TOL = 1e-2

#: Most steps of conjugate gradients for W in one iteration. They start from the last W. R and M change with every
#: iteration, and a full solve can take thousands of steps where features are many and rare.
WEIGHT_STEPS = 100

#: Random directions of the sketch of X'X above the Gram cap.
SKETCH = 64

#: Name of the pass that sketches X'X above the Gram cap.
SKETCHED = "sketch of X'X"

#: Iterations that six of seven fits of real and planted rows took (`benchmarks/gram.py readings`), and of these the
#: passes with predicted sums (`benchmarks/gram.py predicted`).
TYPICAL_ITERATIONS, TYPICAL_PASSES = (3, 80), (3, 12)


@dataclass
class Fixed(Scaled):
    """Constants of the iterations; g is d where X'X is formed and 0 above the cap.

    Attributes
    ----------
    sketch : NystromSketch or None
        Of X'X, above the cap.
    labelled : int
        Rows of which any label is known.
    """

    gram: Annotated[Array, "g g"]
    XY: Annotated[Array, "d q"]
    YY: Annotated[Array, "q q"]
    positives: Annotated[Array, "q"]
    sketch: NystromSketch | None
    duplicates: DuplicateLabels
    labelled: int
    n: int


@dataclass
class At:
    """The small variables: those of `RowPrediction` that iterations change, and the solver for W."""

    W: Annotated[Array, "d q"]
    mean: Annotated[Array, "q"]
    U: Annotated[Array, "m q"]
    T: Annotated[Array, "m q"]
    coupling: Annotated[Array, "q q"]
    regression: GramRegression | SubspaceRegression


@method(
    "access-mfs",
    "Adaptive collaborative correlation learning",
    paper="Huang et al. 2024, arXiv:2406.12193",
    doi="10.48550/arXiv.2406.12193",
)
class AccessMFS(InMemory, Loop[Fixed, At]):
    """Adaptive collaborative correlation learning for semi-supervised selection (Huang et al. 2024).

    Regresses predicted labels F on the features with projections W that are uncorrelated and sparse in rows, while F
    keeps to the known labels and is smooth over a graph of rows and a graph of labels that are learnt with it (Eq. 8).
    A feature's score is the norm of its row of W.

    Attributes
    ----------
    labels_ : float64 array, shape (n, q)
        F: predicted labels, near 1 for positive and near 0 for negative ones; for known labels, too. Of the exact form;
        with anchors `recover_labels` gives them.
    scores_ : float64 array, shape (d,)
        A constant feature has exactly 0.

    Notes
    -----
    With anchors the graph of rows is S = ZΛ⁻¹Z': a row has weights z_i of its nearest anchors [u_a, t_a], by the
    distance that Eq. 18 has between rows, and Eq. 8 has θ Σ_i Σ_a z_ia (‖f_i − u_a‖² + ‖x_iW − t_a‖²), where u_a
    and t_a are variables too. A row's f_i and z_i are computed from W and the anchors in three alternations. Passes
    over X: one for moments, labels, X'X and the sample, and one per iteration, of which 3 to 11 are usual; above
    `gram_cap` features one more.

    The recorded objective is Eq. 8 without its two terms α‖S‖² and β‖P‖²: α and β are set anew for every graph, for
    exactly k_s and k_p neighbours, so these terms of two graphs are not comparable. They are in the record's
    `extra`.

    What is corrected: a minus in Eqs. 21 and 25, so that weights sum to one; (S + S')/2 and (P + P')/2 in the
    Laplacians; W from a q × q root instead of a d × d one, which is the same matrix. A label without a known
    positive makes M rank-deficient: W then uses the pseudo-inverse root, and with mu > 0 later iterations give such
    a label a direction of noise; a warning names it, and the record has the rank. Labels with the same known
    entries, such as labels without a known positive, get the same prediction. They are treated as one column, since
    otherwise their rounding errors grow into a direction of W within some 30 iterations. A label that has more than
    k_p nearest labels, all equally near, shares its weight among all of them.

    The authors' program differs from their paper. μ is not in the equation of F; D is updated once an iteration;
    distances of rows weigh ‖f_i − f_j‖² by half; 0.01 is added to the sum of a row's weights; rows without a
    positive label are unlabelled; the objective, a logarithm, halves λ‖W‖ and θ tr(F'LF); the loop ends when it
    rises or changes by less than 0.01. It takes features scaled to [0, 1] (scale them and give standardise=False).
    It ignores `unknown_labels`, `inner_iterations` and `tol`. It has the exact graph. The objective may rise a
    little late in the loop, and different starts end in different optima.

    References
    ----------
    Y. Huang, L. Yang, D. Wang, K. Li, X. Yi, F. Lv, T. Li, "Adaptive Collaborative Correlation Learning-based
    Semi-Supervised Multi-Label Feature Selection", arXiv:2406.12193 (2024), doi:10.48550/arXiv.2406.12193.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 1], [-1, -1], [1, 1], [-1, -1]])
    >>> selector = mlfs.AccessMFS(n_features_to_select=1, k_s=1).fit(X, Y)
    >>> selector.ranking_[2], selector.scores_[2], selector.labels_.shape
    (np.int64(2), np.float64(0.0), (4, 2))
    """

    variant: Annotated[
        Literal["corrected", "published_code"],
        Param(
            'Variant of the method. "corrected": the paper\'s, with the errors of its equations corrected. '
            '"published_code": the authors\' program, which stops after two or three iterations.'
        ),
    ] = "corrected"
    lambda_: Annotated[float, Param("Weight of the row-sparse penalty.")] = 1.0
    theta: Annotated[
        float, Param("Weight of the smoothness of predictions over near rows; with 0 no graph of rows is made.")
    ] = 1.0
    mu: Annotated[
        float, Param("Weight of the smoothness of predictions over similar labels; with 0 no graph of labels is made.")
    ] = 1.0
    k_s: Annotated[int, Param("Number of neighbours of a row in the exact graph.")] = 5
    graph: Annotated[
        GraphKind,
        Param(
            'Graph of near rows. "anchors": rows that belong to the same anchors are near; memory does not '
            'grow with the number of rows. "exact": the paper\'s graph, with X and the predictions in the '
            'memory of this process. "auto": "exact" up to 20 000 rows.'
        ),
    ] = "auto"
    n_anchors: Annotated[
        int,
        Param("Number of anchors; at most a quarter of the rows, and fewer if Z'X would exceed 32 MiB."),
    ] = 300
    anchor_neighbors: Annotated[int, Param("Number of nearest anchors to which a row belongs.")] = 5
    k_p: Annotated[int, Param("Number of neighbours of a label in the graph of labels; at most q − 2.")] = 5
    unknown_labels: Annotated[
        Literal["coded", "zeros"],
        Param(
            'Labels that count as unknown. "coded": entries of -1. "zeros": these, and all labels of rows '
            "without a positive one, as in the paper's experiments."
        ),
    ] = "coded"
    standardise: Annotated[bool, Param("Divide every feature by its standard deviation.")] = True
    inner_iterations: Annotated[
        int,
        Param(
            "Maximum number of alternations between W (Eq. 14) and D (Eq. 9) before F is updated; they end "
            "where W changes by less than 1e-6 of its norm. The paper alternates until convergence; one "
            "alternation reaches nearly the same objective with far fewer passes. Always 1 with anchors and "
            "more than `gram_cap` features."
        ),
    ] = 1
    solver_tol: Annotated[
        float | None,
        Param(
            "Relative error of the solves of the exact form. By default 1e-7, with which the objective agrees "
            "with that of dense algebra to 8 digits, and the scores to 6.",
            least=1e-12,
            most=0.1,
        ),
    ] = None
    gram_cap: Annotated[
        int,
        Param(
            "Largest number of features for which X'X is formed and factorised. With more features the solve for W "
            "continues over the iterations.",
            least=0,
        ),
    ] = 4096
    tol: Annotated[float, Param("Relative change of the objective at which the loop stops.")] = 1e-06
    max_iter: MaxIter = 200
    steps_per_pass: StepsPerPass = 5
    stop: Stop = "ranking"
    missing: Missing = "error"
    random_state: Annotated[
        Seed,
        seed_of(
            "the sample of rows and of its k-means, from which the first anchors come; of the exact form that of the "
            "W with which the first graph is made; 0 by default"
        ),
    ] = None

    name = "Access-MFS"
    records = Fixed, At
    predicts = PredictedSums
    factors = 1.0, 1.0
    descends = False
    uninformative = "every feature is constant, or no known label differs between rows"
    published = "variant", "published_code"
    typical_iterations = TYPICAL_ITERATIONS
    supervision = "semi-supervised: labels may be unknown"
    unknown_entry = "is recovered, and can be written"
    passes = "1 + 1 an iteration (above the Gram cap one more); with the exact graph 1"
    memory = (
        "worker: 8 bytes * (2 d q + d m) (8 d² more below the Gram cap); driver: the same and 24 d² bytes (above the "
        "cap 120 d q); with the exact graph the driver holds X, n * (73 q + 24 k_s) and 24 d² bytes"
    )
    label_threshold = 0.5

    # ------------------------------------------------------------------ what it costs

    def sizes(self, profile: Profile) -> dict[str, int]:
        d, m = profile.d, AnchorGraph.of(self, profile).count if self.theta > 0 else 0
        return {"d": d, "q": profile.q, "m": m, "g": d if d <= self.gram_cap else 0}

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        d, q = profile.d, profile.q
        statistics: dict[str, Statistic] = {
            "moments": LabelProducts(d, q, compiled=wants_compiled(profile)),
            "labels": Labels(q, unlabelled_without_positive=self.unknown_labels == "zeros"),
        }
        if self.theta > 0:
            statistics["sample"] = AnchorGraph.of(self, profile).sample
        return statistics | ({"gram": Gram(d)} if d <= self.gram_cap else {"keys": ColumnKeys(d)})

    def placeholders(self, profile: Profile) -> tuple[Fixed, At]:
        sizes = self.sizes(profile)
        regression = GramRegression(placeholder(0, 0))
        if not sizes["g"]:
            regression.direction = placeholder(profile.d, profile.q)
        fixed = Fixed(
            **placeholders(Fixed, sizes),
            sketch=None,
            duplicates=DuplicateLabels(np.arange(profile.q)),
            labelled=0,
            n=profile.n,
        )
        return fixed, At(**placeholders(At, sizes), regression=regression)

    # M and X'F, Z'X, R and its factor; while anchors are placed, the sample and the points of its rows.
    setup_workspace = "2 d q + 2 m d + 2 g g + sample + 4 p q"
    # Where X'X is not formed, the space of W with X'X times it, and the sketch of X'X.
    workspace = "2 d q + 2 m d + 2 g g + 14 u q + 4 u r"

    def iterations_on(self, profile: Profile) -> tuple[int, int]:
        predicts = profile.d <= self.gram_cap and not self._holds_rows(profile.n)
        return TYPICAL_PASSES if predicts else TYPICAL_ITERATIONS

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        d, q, m, has_gram = profile.d, profile.q, len(at.U), len(fixed.gram) > 0
        product = NormalProduct(fixed.scaling, placeholder(d, q + min(SKETCH, d)))
        sketch = Reading(SKETCHED, (product,), workspace="sample + 4 p q")
        sample = AnchorGraph.of(self, profile).sample if m else RowSample(np.empty(0, np.int64), profile)
        return Cost(
            steps=[] if has_gram else [sketch],
            sizes={
                "u": 0 if has_gram else d,
                "r": min(SKETCH, d),
                "p": len(sample.chosen),
                "sample": numbers(sample.result_bytes) if m else 0,
            },
            compiled=m > 0 and gates.compiles_rows(profile.n),  # labels of the sample are predicted here
            loads_sklearn=m > 0,
            notes=[
                f"{m} anchors",
                f"X'X is {d:,} x {d:,}" if has_gram else f"X'X is not formed ({d:,} features > {self.gram_cap:,})",
            ],
        )

    def _compiles_exact_search(self, profile: Profile) -> bool:
        return False  # nearest rows are searched by labels and predictions, which are dense

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        strips = laplacian_gram_bytes(profile.n, profile.d, profile.nonzeros if profile.sparse else None)
        sizes = {"k": min(self.k_s, profile.n - 1) + 1, "strips": numbers(strips)}
        has_gram, has_graph = profile.d <= self.gram_cap, self.theta > 0
        workspace = join_terms(
            matrix.workspace(sparse=profile.sparse),
            # Labels that are known and positive, F, X W, points, the solver of labels; W.
            f"{5.125 + label_propagation.ROW_MATRICES} n q + {uncorrelated.FEATURE_MATRICES + 2} d q",
            # X'X, R and its factor, or two X P.
            f"{2 + uncorrelated.SQUARE_MATRICES} d d" if has_gram else "2 n q",
            "strips + d d" if has_gram and has_graph else "",  # X'L_sX
            join_terms(graphs.workspace(), "5 n k") if has_graph else "",  # weights and S
        )
        return workspace, sizes

    # ------------------------------------------------------------------ the method

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        products, labels, gram = results["moments"], results["labels"], results.get("gram")
        n, d = job.source.profile.n, job.source.profile.d
        moments = FeatureMoments(products.n, products.mean, products.m2)
        scaling, duplicates = standard_scaling(moments, standardise=self.standardise), DuplicateLabels(labels.groups)
        G, sketch = np.empty((0, 0)), None
        results["M"] = M = duplicates.collapse(scaling.scale_rows(products.products.T))  # X'F of F = Y
        if gram is not None:
            G = scale_gram(gram, scaling.factor)
        else:
            varying, sample = scaling.factor > 0, results.get("sample")
            places = np.arange(d) if sample is None else key_places(sample.X, varying)
            # More directions than distinct features that vary would be linearly dependent.
            width = min(SKETCH, len(np.unique(places[varying])))
            draws = np.random.default_rng(self.seed).standard_normal((d, width))
            Omega = np.where(varying[:, np.newaxis], draws[places], 0.0)
            (image,) = job.run(SKETCHED, NormalProduct(scaling, np.concatenate([Omega, M], axis=1)))
            sketch = NystromSketch(Omega, image[:, :width], float((products.m2 * scaling.factor**2).sum()))
            results["X'X M"] = image[:, width:]
        labelled = n - labels.rows[1] if self.unknown_labels == "coded" else labels.rows[0]
        YY = duplicates.collapse_both(products.pairs.astype(np.float64))
        positives = duplicates.collapse(products.positives[np.newaxis].astype(np.float64))[0]
        return Fixed(scaling.centre, scaling.factor, G, M, YY, positives, sketch, duplicates, int(labelled), n)

    def zeros_are_unknown(self, unknown: NDArray[np.integer[Any]]) -> bool:
        return self._is_published or self.unknown_labels == "zeros"

    def _regression(self, fixed: Fixed) -> GramRegression | SubspaceRegression:
        return GramRegression(fixed.gram) if fixed.sketch is None else SubspaceRegression(fixed.sketch)

    def _prediction(self, fixed: Fixed, at: At) -> RowPrediction:
        small = at.W, at.mean, at.U, at.T, at.coupling
        zeros = self.unknown_labels == "zeros"
        return RowPrediction(*small, float(self.theta), self.anchor_neighbors, fixed.duplicates, zeros)

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        """Return W without a graph of rows; the first anchors are placed on the sample's [F, X W]."""
        products, duplicates, M, d = results["moments"], fixed.duplicates, results["M"], len(fixed.centre)
        q, regression = duplicates.count, self._regression(fixed)
        regression.direction = M if fixed.sketch is not None else None
        no_graph, ridge = Smoothing(0.0, np.zeros((0, d)), np.zeros(0)), np.full(d, float(self.lambda_))  # D = I
        W = regression.solve(M, ridge, no_graph, results.get("X'X M")).W
        mean = fixed.positives / products.n
        L_p = self._label_laplacian(fixed.YY, duplicates)
        none = np.zeros((0, q))
        at = At(W, mean, none, none, float(self.mu) * L_p, regression)
        sample: SampledRows | None = results.get("sample")
        if sample is None:
            return at
        prediction = self._prediction(fixed, at)
        XW = np.empty((sample.X.shape[0], q))
        forward_block(sample.X, fixed.scaling.scale_rows(W), fixed.centre, XW)
        F, _ = prediction.predict(XW, *prediction.labels(sample.Y))
        m = AnchorGraph.of(self, job.source.profile).count
        with runtime.stage("placing anchors"):
            points = place_anchors(np.concatenate([F, XW], axis=1), min(m, len(F)), self.seed)
        return replace(at, U=points[:, :q].copy(), T=points[:, q:].copy())

    def rows(self, fixed: Fixed, at: At) -> PredictedRows:
        return PredictedRows(fixed.scaling, self._prediction(fixed, at))  # F, S by Eqs. 17 and 21

    def reading(self, fixed: Fixed, at: At) -> Sequence[Statistic]:
        rows, direction = self.rows(fixed, at), at.regression.direction
        return [rows] if direction is None else [rows, NormalProduct(fixed.scaling, direction)]

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        """Return Eq. 8 without α‖S‖² and β‖P‖², for the anchors that are best for F and X W."""
        rows: PredictedSums = sums[0]
        difference, missed, projected = rows.terms
        mean = rows.total / fixed.n  # X is centred
        value = difference - fixed.n * float(mean @ mean) + missed
        value += float(self.lambda_) * float(np.sqrt(row_norms(at.W) ** 2 + EPSILON).sum())
        if len(at.U):
            masses = rows.masses.sum(axis=0)
            anchors = anchor_values(rows.ZF, masses, at.U), anchor_values(rows.ZX @ at.W, masses, at.T)
            of_anchors = [float(masses @ np.einsum("ij,ij->i", V, V)) for V in anchors]
            value += float(self.theta) * (float(np.trace(rows.FF)) + projected - sum(of_anchors))
        L_p = self._label_laplacian(rows.FF, fixed.duplicates)
        return {"objective": float(value + float(self.mu) * np.vdot(L_p, rows.FF))}

    def has_converged(self, fixed: Fixed, at: At, trace: LoopTrace) -> bool:
        return not at.W.any() or (super().has_converged(fixed, at, trace) and _residual(trace) <= RESIDUAL_TOL)

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        """Compute W and D in turn (Algorithm 1), anchors and L_p (Eq. 25)."""
        rows: PredictedSums = sums[0]
        image = sums[1] if len(sums) > 1 else None
        masses, W = rows.masses.sum(axis=0), at.W
        smoothing = Smoothing(float(self.theta), rows.ZX, masses)
        for _ in range(self.inner_iterations if fixed.sketch is None else 1):
            before = W
            D = 0.5 / np.sqrt(row_norms(before) ** 2 + EPSILON)  # Eq. 9
            solution = at.regression.solve(rows.XF, float(self.lambda_) * D, smoothing, image)  # Eq. 14
            W = solution.W
            if np.linalg.norm(W - before) <= SETTLED * np.linalg.norm(W):
                break
        T = anchor_values(rows.ZX @ W, masses, at.T)
        mean, U = settle_anchors(replace(self._prediction(fixed, at), W=W), rows)
        U, T = np.split(join_coincident(np.concatenate([U, T], axis=1)), 2, axis=1)
        trace.record(rank=solution.rank, step=float(np.linalg.norm(W - at.W)) / max(float(np.linalg.norm(W)), 1e-300))
        if fixed.sketch is not None:
            trace.record(residual=solution.residual)
        coupling = float(self.mu) * self._label_laplacian(rows.FF, fixed.duplicates)
        return At(W, mean, U, T, coupling, at.regression)

    def predict(self, fixed: Fixed, at: At, sums: PredictedSums, after: At) -> dict[str, Array] | None:
        """Return the change of the sums with Z as it is; there is no model of rows that are known in part."""
        unknown, known = sums.known / len(at.mean)
        if fixed.sketch is not None or unknown > 0 or known < sums.rows[1]:
            return None
        now, before = (
            predicted_sums(self._prediction(fixed, each), sums, fixed.gram, fixed.XY, fixed.YY, fixed.positives)
            for each in (after, at)
        )
        return {name: array - before[name] for name, array in now.items()}

    def state(self, at: At) -> Arrays:
        small = {name: value for name, value in vars(at).items() if name != "regression"}
        return {**small, **at.regression.state()}

    def restored(self, job: Readings, fixed: Fixed, arrays: Arrays) -> At:
        regression = self._regression(fixed)
        regression.restore(arrays)
        return At(**{name: arrays[name] for name in ("W", "mean", "U", "T", "coupling")}, regression=regression)

    def facts(self, fixed: Fixed, at: At) -> dict[str, Any]:
        graph = None
        if self.theta > 0:
            graph = {"kind": "anchors", "anchors": len(at.U), "anchor_neighbors": self.anchor_neighbors}
        has_gram, distinct = fixed.sketch is None, fixed.duplicates.count
        return {"gram": has_gram, "labelled_rows": fixed.labelled, "distinct_labels": distinct, "graph": graph}

    def _label_laplacian(self, FF: Array, duplicates: DuplicateLabels) -> Array:
        """Return L_p of the adaptive graph of the columns of F (Eq. 25), from F'F."""
        if self.mu == 0 or len(duplicates.group) < 2:
            return np.zeros((duplicates.count, duplicates.count))
        P, _, _ = column_graph(duplicates.expand_both(FF), self.k_p)
        return duplicates.collapse_both(graph_laplacian(P))

    def _fit_exactly(self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
        """Fit Access-MFS.

        Raises
        ------
        MlfsError
            A value of X is too large to be squared.
        """
        published = self.variant == "published_code"
        positive, known = known_labels(Y, zeros_are_unknown=self.zeros_are_unknown(Y.data[Y.data < 0]))
        # The authors' code has a column for every label.
        duplicates = DuplicateLabels(np.arange(Y.shape[1])) if published else duplicate_labels(positive, known)
        positive, known = duplicates.collapse_labels(positive, known)
        features = ScaledMatrix(X, moments, standardise=self.standardise)
        loop = _Loop(self, features, positive.toarray(), known, duplicates)
        trace = loop.run(self.max_iter)
        scores = row_norms(loop.W)
        extra: dict[str, Any] = {
            "gram": loop.gram is not None,
            "labelled_rows": int(known.any(axis=1).sum()),
            "distinct_labels": duplicates.count,
            "graph": None if loop.L_s is None else {"kind": "exact"},
        }
        return ExactFit(scores, trace, extra, duplicates.expand(loop.F))

    @property
    def without_positives(self) -> str:
        consequence = "Nothing can be learnt of such a label: what is recovered of it means nothing, and "
        if self.mu > 0 or self.variant == "published_code":
            consequence += "through the graph of labels it adds noise to the scores. Leave it out of Y, or give rows "
            consequence += "that have it."
        else:
            consequence += "it has no part in the scores."
        return consequence

    @property
    def stops_early(self) -> bool:
        return self._is_published

    def _warnings(self, trace: LoopTrace, scores: Array, facts: Mapping[str, Any]) -> list[Warning]:
        warnings = super()._warnings(trace, scores, facts)
        if (residual := _residual(trace)) > RESIDUAL_TOL:
            warnings.append(
                not_converged(
                    f"Access-MFS left a relative residual of {residual:.1e} in the equation of W. "
                    f"Give {parameter('gram_cap')} at least the number of features, or increase {parameter('lambda_')}."
                )
            )
        return warnings


def _residual(trace: LoopTrace) -> float:
    """Return ‖M − RW‖/‖M‖ of the last solve for W, of either form; 0 where R was factorised."""
    return next((trace.values[name][-1] for name in ("residual", "solver_residual") if name in trace.values), 0.0)


# ---------------------------------------------------------------------- with all rows in memory


def known_labels(Y: sp.csr_array, *, zeros_are_unknown: bool) -> tuple[sp.csr_array, NDArray[np.bool_]]:
    """Return known positives (n, q), and which entries are known: by rows, shape (n, 1), or by entries, shape (n, q).

    Parameters
    ----------
    Y : csr_array, shape (n, q)
        1 for positive labels, −1 for unknown ones.
    zeros_are_unknown : bool
        Whether a row without a positive label is unknown.
    """
    n, q = Y.shape
    row = np.repeat(np.arange(n), np.diff(Y.indptr))
    unknown = Y.data < 0
    missing = np.bincount(row[unknown], minlength=n)
    if zeros_are_unknown:
        missing[np.bincount(row[~unknown], minlength=n) == 0] = q
    positive = sp.csr_array(Y, dtype=np.float64, copy=True)
    positive.data[unknown] = 0.0
    positive.eliminate_zeros()
    if ((missing == 0) | (missing == q)).all():
        return positive, (missing == 0)[:, np.newaxis]
    return positive, (Y.toarray() >= 0) & (missing < q)[:, np.newaxis]


@dataclass
class _Loop:
    """The loop of Algorithm 2 and its state, in the paper's letters, rows being samples.

    q is the number of distinct labels: duplicate labels are one column, √m times what each of the m is.

    Attributes
    ----------
    W : float64 array, shape (d, q)
    XW : float64 array, shape (n, q)
        Of centred X.
    F : float64 array, shape (n, q)
    D : float64 array, shape (d,)
    L_s : Laplacian or None
    L_p : float64 array, shape (q, q), or None
    """

    method: AccessMFS
    X: ScaledMatrix
    Y: Array
    U: NDArray[np.bool_]
    duplicates: DuplicateLabels

    def __post_init__(self) -> None:
        method, d = self.method, self.X.shape[1]
        self.published = method.variant == "published_code"
        self.lambda_, self.theta, self.mu = float(method.lambda_), float(method.theta), float(method.mu)
        self.solver_tol = SOLVER_TOL if method.solver_tol is None else float(method.solver_tol)
        self.epsilon = PUBLISHED_EPSILON if self.published else EPSILON
        self.trace = LoopTrace()
        self.projection: Projection | None = None
        self.checkpoint = checkpoints.current()
        state = self.checkpoint.load()
        if state is not None:
            self._restore(state)
        else:
            self.F: Array = self.Y
            self.D: Array = np.ones(d)
            drawn = first_weights(d, len(self.duplicates.group), method.seed, published=self.published)
            self.W: Array = self.duplicates.collapse(drawn)
            self.XW: Array = self.X.forward(self.W) if self.theta > 0 else np.zeros_like(self.F)
        self.gram = self.X.gram() if d <= method.gram_cap else None
        self.L_s: Laplacian | None = None
        self.L_p: Array | None = None
        self.penalty = self._update_S() + self._update_P()

    def run(self, max_iter: int) -> LoopTrace:
        """Run Algorithm 2."""
        trace = self.trace
        for t in range(trace.iterations + 1, max_iter + 1):
            before = self.W
            self._update_W()
            self._update_F()
            self.penalty = self._update_S() + self._update_P()

            norm = float(np.linalg.norm(self.W))
            step = ratio(np.linalg.norm(self.W - before), norm)
            trace.add(self.objective(), graph_penalty=self.penalty, step=step)
            if norm == 0 or (t > 1 and self._has_settled()):
                trace.converged = True
                break
            self._save()
        return trace

    def _has_settled(self) -> bool:
        if self.published:
            return self.trace.objective[-1] - self.trace.objective[-2] > -PUBLISHED_TOL
        trace = self.trace
        return trace.change <= self.method.tol and trace.values["solver_residual"][-1] <= uncorrelated.RESIDUAL_TOL

    def _update_W(self) -> None:
        """Alternate W by Eq. 14 and D by Eq. 9, as in Algorithm 1."""
        M = self.X.backward(self.F - self.F.mean(axis=0))
        R = self._regression_gram()
        diagonal = 0.0 if R is None else np.diag(R).copy()
        steps = 0
        for _ in range(1 if self.published else self.method.inner_iterations):
            before, ridge = self.W, self.lambda_ * self.D
            if R is None:
                solution = self._solve_products(M, ridge)
            else:
                R[np.diag_indices_from(R)] = diagonal + ridge
                solution = uncorrelated.solve_gram(R, M)
            self.projection, self.W = solution, solution.W
            self.D = 0.5 / np.sqrt(row_norms(self.W) ** 2 + self.epsilon)
            steps += solution.steps
            if np.linalg.norm(self.W - before) <= SETTLED * np.linalg.norm(self.W):
                break
        self.XW = self.X.forward(self.W)
        self.trace.record(solver_steps=steps, solver_residual=solution.residual, rank=solution.rank)

    def _regression_gram(self) -> Array | None:
        """Return X'(I + θL_s)X, R without its ridge; None above the Gram cap."""
        if self.gram is None:
            return None
        if self.L_s is None:
            return self.gram.copy()
        R = self.X.gram_with(self.L_s, self.theta)
        R += self.gram
        return R

    def _solve_products(self, M: Array, ridge: Array) -> Projection:
        def operator(P: Array) -> Array:
            XP = self.X.forward(P)
            if self.L_s is not None:
                XP += self.theta * self.L_s.product(XP)
            return self.X.backward(XP) + ridge[:, np.newaxis] * P

        diagonal = (1.0 + self.theta) * len(self.F) * self.X.squares + ridge
        return uncorrelated.solve_products(
            operator,
            M,
            diagonal,
            tol=WEIGHT_TOL * self.solver_tol,
            max_iter=WEIGHT_STEPS,
            start=self.projection,
        )

    def _update_F(self) -> None:
        """Update F by Eq. 17."""
        self.F, steps = propagate_labels(
            self.F,
            self.XW + self.Y,  # C; X is centred
            self.U,
            laplacian=self.L_s,
            theta=self.theta,
            label_laplacian=self.L_p,
            mu=1.0 if self.published else self.mu,
            tol=LABEL_TOL * self.solver_tol,
        )
        self.trace.record(label_steps=steps)

    def _update_S(self) -> float:
        """Compute S by Eq. 21: nearest neighbours among [f_i, W'x_i]. Gives θΣα_i‖s_i‖²."""
        k = neighbours_used(self.method.k_s, len(self.F))
        if self.theta == 0 or k == 0:
            return 0.0
        # Around zero, where the search has most digits.
        Z = np.hstack([self.F - self.F.mean(axis=0), self.XW * (np.sqrt(2.0) if self.published else 1.0)])
        neighbours = nearest_rows(Z, k + 1)
        slack = PUBLISHED_SLACK if self.published else 0.0
        squares: Array = np.einsum("ij,ij->i", Z, Z)
        weights, alpha = simplex_weights(0.5 * neighbours.distances, k, squares, slack=slack)  # m of Eq. 18
        S = Neighbours(neighbours.indices[:, :k], neighbours.distances[:, :k]).to_csr(weights)
        self.L_s = Laplacian(sp.csr_array((S + S.T) * 0.5))
        if self.published:
            return float(self.theta * alpha.mean() * np.square(self.L_s.graph.data).sum())
        return self.theta * float(alpha @ np.einsum("ij,ij->i", weights, weights))

    def _update_P(self) -> float:
        """Compute P by Eq. 25: the adaptive graph of the columns of F. Gives μΣβ_i‖p_i‖²."""
        if (self.mu == 0 and not self.published) or len(self.duplicates.group) < 2:
            return 0.0
        P, beta, squares = column_graph(self.duplicates.expand_both(self.F.T @ self.F), self.method.k_p)
        self.L_p = self.duplicates.collapse_both(graph_laplacian(P))
        if self.published:  # from distances that are not halved
            return float(self.mu * 2.0 * beta.mean() * np.square(P).sum())
        return self.mu * float(beta @ squares)

    def objective(self) -> float:
        """Return Eq. 8 without α‖S‖² and β‖P‖²; of the authors' code, its logarithm of Eq. 8 with two halves."""
        F, half = self.F, 0.5 if self.published else 1.0
        value = float(np.square(self.XW - (F - F.mean(axis=0))).sum())
        value += float((self.U * np.square(F - self.Y)).sum())
        # ‖W‖_{2,1} as D has it, with ε.
        value += half * self.lambda_ * float(np.sqrt(row_norms(self.W) ** 2 + self.epsilon).sum())
        if self.L_s is not None:
            for factor, V in ((half, F), (1.0, self.XW)):
                value += factor * self.theta * float(np.vdot(V, self.L_s.product(V)))
        if self.L_p is not None:
            value += self.mu * float(np.vdot(self.L_p, F.T @ F))
        return float(np.log(value + self.penalty)) if self.published else value

    def _save(self) -> None:
        arrays = {"F": self.F, "W": self.W, "XW": self.XW, "D": self.D}
        if self.projection is not None:
            arrays |= {"values": self.projection.values, "vectors": self.projection.vectors}
        save_if_due(self.checkpoint, arrays, self.trace)

    def _restore(self, state: State) -> None:
        """Continue from a state; the graphs follow from F and X W."""
        self.F, self.W, self.XW, self.D = (state.arrays[name] for name in ("F", "W", "XW", "D"))
        self.projection = Projection(self.W, 0, 0, 0.0, state.arrays["values"], state.arrays["vectors"])
        self.trace = LoopTrace(**state.facts["trace"])


def first_weights(d: int, q: int, seed: int, *, published: bool) -> Array:
    """Return the W with which the first graph is made, shape (d, q)."""
    random = np.random.default_rng(seed)
    if published:
        return random.random((d, q))
    # Points of the first graph then have about the spread of standardised features.
    weights: Array = random.standard_normal((d, q)) / np.sqrt(d)
    return weights
