"""Access-MFS: features that predict labels which few rows have, graphs learnt on the way (Huang et al. 2024).

A regression with uncorrelated projections, predicted labels for all rows, and two adaptive graphs, one of rows and one
of labels, are updated in turn until the objective converges. With an anchor graph of rows an iteration is one reading.

Y. Huang, L. Yang, D. Wang, K. Li, X. Yi, F. Lv, T. Li, "Adaptive Collaborative Correlation Learning-based
Semi-Supervised Multi-Label Feature Selection", arXiv:2406.12193 (2024), doi:10.48550/arXiv.2406.12193.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.blocks.adaptive_graph import column_graph
from mlfs_dask.blocks.anchors import anchor_values, join_coincident, place_anchors
from mlfs_dask.blocks.column_keys import key_places
from mlfs_dask.blocks.duplicate_labels import DuplicateLabels
from mlfs_dask.blocks.linear import forward_block, laplacian_gram_bytes
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import parameter
from mlfs_dask.exact import access_mfs as exact_form
from mlfs_dask.exact.access_mfs import EPSILON, SETTLED
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.in_memory import GraphKind, InMemory
from mlfs_dask.selectors.loop import Loop, Scaled, placeholder, placeholders
from mlfs_dask.selectors.parameters import MaxIter, Missing, Param, seed_of
from mlfs_dask.selectors.scores import not_converged
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.solvers.uncorrelated import RESIDUAL_TOL, GramRegression, NystromSketch, Smoothing, SubspaceRegression
from mlfs_dask.statistics.column_keys import ColumnKeys
from mlfs_dask.statistics.gram import Gram, NormalProduct, scale_gram
from mlfs_dask.statistics.label_statistics import Labels, graph_laplacian
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.predicted_rows import PredictedRows, PredictedSums, RowPrediction, settle_anchors
from mlfs_dask.statistics.products import LabelProducts, wants_compiled
from mlfs_dask.statistics.sample import RowSample, SampledRows
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Seed, numbers

#: Random directions of the sketch of X'X above the Gram cap.
SKETCH = 64

#: Name of the reading that sketches X'X above the Gram cap.
SKETCHED = "sketch of X'X"

#: Iterations that six of seven fits of real and planted rows took (`benchmarks/gram.py readings`).
TYPICAL_ITERATIONS = (13, 80)


@dataclass
class Fixed(Scaled):
    """What no iteration changes; g is d where X'X is formed and 0 above the cap.

    Attributes
    ----------
    sketch : NystromSketch or None
        Of X'X, above the cap.
    labelled : int
        Rows of which any label is known.
    """

    gram: Annotated[Array, "g g"]
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
    and t_a are variables too. A row's f_i and z_i are computed from W and the anchors in three alternations.
    Readings of X: one for moments, labels, X'X and the sample, and one an iteration, of which 13 to 80 are usual;
    above `gram_cap` features one more.

    The objective of the record is Eq. 8 without its two terms α‖S‖² and β‖P‖²: α and β are chosen anew with every
    graph, for exactly k_s and k_p neighbours, so that the terms compare with no others. They are in the record's
    `extra`.

    What is corrected: a minus in Eqs. 21 and 25, so that weights sum to one; (S + S')/2 and (P + P')/2 in the
    Laplacians; W from a q × q root instead of a d × d one, which is the same matrix. A label without a known positive
    makes M rank-deficient: W then uses the pseudo-inverse root, and with mu > 0 later iterations give such a label a
    direction of noise; a warning names it, and the record has the rank. Labels of which the same is known, such as
    those without a known positive, get the same prediction: they are one column, since otherwise what rounding makes
    of their difference becomes a direction of W within some 30 iterations. A label that has more than k_p nearest
    labels, all equally near, shares its weight among all of them.

    The authors' program differs from their paper. μ is not in the equation of F; D is updated once an iteration;
    distances of rows weigh ‖f_i − f_j‖² by half; 0.01 is added to the sum of a row's weights; rows without a positive
    label are unlabelled; the objective, a logarithm, halves λ‖W‖ and θ tr(F'LF); the loop ends when it rises or
    changes by less than 0.01. It takes features scaled to [0, 1] (scale them and give standardise=False). Of
    `unknown_labels`, `inner_iterations` and `tol` nothing is used. It has the exact graph. The objective may rise a
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
            'Graph of near rows. "anchors": rows are near that belong to the same anchors; memory does not '
            'grow with the number of rows. "exact": the paper\'s graph, with X and the predictions in the '
            'memory of this process. "auto": "exact" up to 20 000 rows.'
        ),
    ] = "auto"
    n_anchors: Annotated[
        int,
        Param("Number of anchors; at most a quarter of the rows, and fewer where 32 MiB do not hold Z'X of as many."),
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
    standardise: Annotated[bool, Param("Whether every feature is divided by its standard deviation.")] = True
    inner_iterations: Annotated[
        int,
        Param(
            "Maximum number of alternations between W (Eq. 14) and D (Eq. 9) before F is updated; they end "
            "where W changes by less than 1e-6 of its norm. The paper alternates until convergence; one "
            "alternation reaches nearly the same objective with far fewer readings. Always 1 with anchors and "
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
            "Largest number of features for which X'X is formed and factorised. With more features the solve "
            "for W goes on from one iteration to the next.",
            least=0,
        ),
    ] = 4096
    tol: Annotated[float, Param("Relative change of the objective at which the loop stops.")] = 1e-06
    max_iter: MaxIter = 200
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

    def first(self, profile: Profile) -> dict[str, Statistic]:
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
            compiled=m > 0,  # labels of the sample are predicted here
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
        has_gram = profile.d <= self.gram_cap
        return exact_form.workspace(sparse=profile.sparse, gram=has_gram, graph=self.theta > 0), sizes

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
        return Fixed(scaling.centre, scaling.factor, G, sketch, duplicates, int(labelled), n)

    def zeros_are_unknown(self, unknown: NDArray[np.integer[Any]]) -> bool:
        return self._is_published or self.unknown_labels == "zeros"

    def _regression(self, fixed: Fixed) -> GramRegression | SubspaceRegression:
        return GramRegression(fixed.gram) if fixed.sketch is None else SubspaceRegression(fixed.sketch)

    def _prediction(self, fixed: Fixed, at: At) -> RowPrediction:
        small = at.W, at.mean, at.U, at.T, at.coupling
        zeros = self.unknown_labels == "zeros"
        return RowPrediction(*small, float(self.theta), self.anchor_neighbors, fixed.duplicates, zeros)

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        """W without a graph of rows; the first anchors are placed on the sample's [F, X W]."""
        products, duplicates, M, d = results["moments"], fixed.duplicates, results["M"], len(fixed.centre)
        q, regression = duplicates.count, self._regression(fixed)
        regression.direction = M if fixed.sketch is not None else None
        no_graph, ridge = Smoothing(0.0, np.zeros((0, d)), np.zeros(0)), np.full(d, float(self.lambda_))  # D = I
        W = regression.solve(M, ridge, no_graph, results.get("X'X M")).W
        mean = duplicates.collapse(products.positives[np.newaxis] / products.n)[0]
        L_p = self._label_laplacian(duplicates.collapse_both(products.pairs.astype(np.float64)), duplicates)
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

    def reading(self, fixed: Fixed, at: At) -> Sequence[Statistic]:
        rows = PredictedRows(fixed.scaling, self._prediction(fixed, at))  # F, S by Eqs. 17 and 21
        direction = at.regression.direction
        return [rows] if direction is None else [rows, NormalProduct(fixed.scaling, direction)]

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        """Eq. 8 without α‖S‖² and β‖P‖², for the anchors that are best for F and X W."""
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
        """W and D in turn (Algorithm 1), anchors and L_p (Eq. 25)."""
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

    def state(self, at: At) -> Arrays:
        small = {name: value for name, value in vars(at).items() if name != "regression"}
        return {**small, **at.regression.state()}

    def restored(self, job: Readings, fixed: Fixed, arrays: Arrays) -> At:
        regression = self._regression(fixed)
        regression.restore(arrays)
        return At(**{name: arrays[name] for name in ("W", "mean", "U", "T", "coupling")}, regression=regression)

    def loop_scores(self, fixed: Fixed, at: At) -> Array:
        return row_norms(at.W)

    def row_labels(self, fixed: Fixed, at: At) -> PredictedRows:
        return PredictedRows(fixed.scaling, self._prediction(fixed, at))

    def facts(self, fixed: Fixed, at: At) -> dict[str, Any]:
        graph = None
        if self.theta > 0:
            graph = {"kind": "anchors", "anchors": len(at.U), "anchor_neighbors": self.anchor_neighbors}
        has_gram, distinct = fixed.sketch is None, fixed.duplicates.count
        return {"gram": has_gram, "labelled_rows": fixed.labelled, "distinct_labels": distinct, "graph": graph}

    def _label_laplacian(self, FF: Array, duplicates: DuplicateLabels) -> Array:
        """L_p of the adaptive graph of the columns of F (Eq. 25), from F'F."""
        if self.mu == 0 or len(duplicates.group) < 2:
            return np.zeros((duplicates.count, duplicates.count))
        P, _, _ = column_graph(duplicates.expand_both(FF), self.k_p)
        return duplicates.collapse_both(graph_laplacian(P))

    _fit_exactly = exact_form.fit

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
    """‖M − RW‖/‖M‖ of the last solve for W, of either form; 0 where R was factorised."""
    return next((trace.values[name][-1] for name in ("residual", "solver_residual") if name in trace.values), 0.0)
