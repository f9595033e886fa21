"""Access-MFS: features that predict labels which few rows have, graphs learnt on the way (Huang et al. 2024).

A regression with uncorrelated projections, predicted labels for all rows, and two adaptive graphs, one of rows and one
of labels, are updated in turn until the objective converges. With an anchor graph of rows an iteration is one reading.

Y. Huang, L. Yang, D. Wang, K. Li, X. Yi, F. Lv, T. Li, "Adaptive Collaborative Correlation Learning-based
Semi-Supervised Multi-Label Feature Selection", arXiv:2406.12193 (2024), doi:10.48550/arXiv.2406.12193.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.adaptive_graph import column_graph
from mlfs_dask.blocks.anchors import anchor_values, join_coincident, place_anchors
from mlfs_dask.blocks.column_keys import key_places, mean_of_copies
from mlfs_dask.blocks.duplicate_labels import DuplicateLabels
from mlfs_dask.blocks.linear import forward_block, laplacian_gram_bytes
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, parameter
from mlfs_dask.exact import access_mfs as exact_form
from mlfs_dask.exact.access_mfs import EPSILON, SETTLED
from mlfs_dask.exact.fit import ExactFit
from mlfs_dask.selectors.base import Scores, never_positive_warnings
from mlfs_dask.selectors.contract import MaxIter, Missing, Param, method, seed_of
from mlfs_dask.selectors.costs import Cost, PassRunner, Reading
from mlfs_dask.selectors.estimator import ConvergenceWarning
from mlfs_dask.selectors.iterative import (
    GraphKind,
    IterativeSelector,
    iterations_left,
    load_state,
    placeholder,
    save_state,
)
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.solvers.uncorrelated import RESIDUAL_TOL, GramRegression, NystromSketch, Smoothing, SubspaceRegression
from mlfs_dask.statistics.column_keys import ColumnKeys
from mlfs_dask.statistics.gram import Gram, NormalProduct, scale_gram
from mlfs_dask.statistics.label_statistics import LabelKnowledge, Labels
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.predicted_rows import PredictedRows, PredictedSums, RowPrediction, settle_anchors
from mlfs_dask.statistics.products import LabelMoments, LabelProducts, wants_compiled
from mlfs_dask.statistics.sample import RowSample, SampledRows
from mlfs_dask.statistics.scaling import Scaling, standard_scaling
from mlfs_dask.typing import HeldArray, Matrix, Profile, Seed

Array = NDArray[np.float64]

#: Anchors that a row belongs to by default (`benchmarks/anchors.py`).
ANCHOR_NEIGHBORS = 5

#: Cost of a step of conjugate gradients besides its product, for each feature and label, in multiplications of a dense
#: matrix product.
STEP_FLOPS = 570

#: Random directions of the sketch of X'X above the Gram cap.
SKETCH = 64

#: Arrays of `RowPrediction` that change from one iteration to the next.
_PREDICTION = ("W", "mean", "U", "T", "coupling")

#: Iterations that six of seven fits of real and planted rows took (`benchmarks/gram.py readings`).
TYPICAL_ITERATIONS = (13, 80)


@dataclass
class Trace(LoopTrace):
    """Values of every iteration; the objective is Eq. 8 without its two terms of the weights of graphs.

    Attributes
    ----------
    step, residual : list of float
        ‖ΔW‖/‖W‖, and above the Gram cap ‖M − RW‖/‖M‖ of what the solve for W left.
    rank : list of int
        Of the labels.
    """

    step: list[float] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)

    @property
    def weight_residual(self) -> float:
        """‖M − RW‖/‖M‖ of the last solve for W."""
        return self.residual[-1] if self.residual else 0.0


@method(
    "access-mfs",
    "Adaptive collaborative correlation learning",
    paper="Huang et al. 2024, arXiv:2406.12193",
    doi="10.48550/arXiv.2406.12193",
)
class AccessMFS(IterativeSelector):
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
    distance that Eq. 18 has between rows, and Eq. 8 has θ Σ_i Σ_a z_ia (‖f_i − u_a‖² + ‖x_iW − t_a‖²), where u_a and
    t_a are variables too. A row's f_i and z_i are computed from W and the anchors in three alternations. Readings of X:
    one for moments, labels, X'X and the sample, and one an iteration, of which 13 to 80 are usual; above `gram_cap`
    features one more. With m anchors a worker holds 8 (2 d q + d m) bytes, and 8 d² more in the first reading where X'X
    is formed; the driver the same and 24 d², or above the cap some 120 d q.

    The exact form reads X once and holds X, n (73 q + 24 k_s) bytes and 24 d².

    The objective of the record is Eq. 8 without its two terms α‖S‖² and β‖P‖²: α and β are chosen anew with every
    graph, for exactly k_s and k_p neighbours, so that the terms compare with no others. They are in the record's
    `extra`.

    What is corrected: a minus in Eqs. 21 and 25, so that weights sum to one; (S + S')/2 and (P + P')/2 in the
    Laplacians; W from a q × q root instead of a d × d one, which is the same matrix. A label without a
    known positive makes M rank-deficient: W then uses the pseudo-inverse root, and with mu > 0 later iterations give
    such a label a direction of noise; it is warned of, and the record tells the rank.
    Labels of which the same is known, such as those without a known positive, get the same prediction: they are one
    column, since otherwise what rounding makes of their difference becomes a direction of W within some 30 iterations.
    A label that has more than k_p nearest labels, all equally near, shares its weight among all of them.

    The authors' program differs from their paper. μ is not in the equation of F; D is updated once an iteration;
    distances of rows weigh ‖f_i − f_j‖² by half; 0.01 is added to the sum of a row's weights; rows without a positive
    label are unlabelled; the objective, a logarithm, halves λ‖W‖ and θ tr(F'LF); the loop ends when it rises or changes
    by less than 0.01. It takes features scaled to [0, 1] (scale them and give standardise=False). Of `unknown_labels`,
    `inner_iterations` and `tol` nothing is used. It has the exact graph.

    References
    ----------
    Y. Huang, L. Yang, D. Wang, K. Li, X. Yi, F. Lv, T. Li, "Adaptive Collaborative Correlation Learning-based
    Semi-Supervised Multi-Label Feature Selection", arXiv:2406.12193 (2024), doi:10.48550/arXiv.2406.12193.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 1], [-1, -1], [1, 1], [-1, -1]])
    >>> selector = AccessMFS(n_features_to_select=1, k_s=1).fit(X, Y)
    >>> selector.ranking_[2], selector.scores_[2], selector.labels_.shape
    (np.int64(2), np.float64(0.0), (4, 2))
    """

    variant: Annotated[
        Literal["corrected", "published_code"],
        Param(
            '"corrected" is the paper\'s method with the errors of its equations corrected. "published_code" does '
            "what the authors' program does, which stops after two or three iterations: see the notes."
        ),
    ] = "corrected"
    lambda_: Annotated[float, Param("Weight of the row-sparse penalty.")] = 1.0
    theta: Annotated[float, Param("Weight of smoothness over near rows; 0 spares their graph.")] = 1.0
    mu: Annotated[float, Param("Weight of smoothness over similar labels; 0 spares their graph.")] = 1.0
    k_s: Annotated[int, Param("Neighbours of a row in the exact graph.")] = 5
    graph: Annotated[
        GraphKind,
        Param(
            '"anchors": rows are near that belong to the same anchors; nothing grows with the number of rows. '
            '"exact": the paper\'s graph, with X and F in the memory of this process. "auto": exact up to 20 000 '
            "rows."
        ),
    ] = "auto"
    n_anchors: Annotated[
        int, Param("Anchors, at most a quarter of the rows, and fewer where 32 MiB do not hold Z'X of as many.")
    ] = 300
    anchor_neighbors: Annotated[int, Param("Nearest anchors that a row belongs to.")] = 5
    k_p: Annotated[
        int, Param("Neighbours of a label in its graph; at most the number of labels less two are used.")
    ] = 5
    unknown_labels: Annotated[
        Literal["coded", "zeros"],
        Param(
            'Which labels are unknown. "coded": the entries -1. "zeros": those, and all labels of rows without a '
            "positive one, as in the paper's experiments."
        ),
    ] = "coded"
    standardise: Annotated[bool, Param("Divide every feature by its standard deviation.")] = True
    inner_iterations: Annotated[
        int,
        Param(
            "Maximum number of alternations between W (Eq. 14) and D (Eq. 9) before F is updated. Fewer are made if "
            "W changes by less than 1e-6 of its norm. The paper alternates until convergence; one alternation "
            "reaches nearly the same objective with far fewer readings. With anchors above gram_cap it is always 1."
        ),
    ] = 1
    solver_tol: Annotated[
        float | None,
        Param(
            "Error that solves of the exact form may leave; 1e-7 by default, which gives the objective of dense "
            "algebra to 8 digits and its scores to 6.",
            least=1e-12,
            most=0.1,
        ),
    ] = None
    gram_cap: Annotated[
        int,
        Param(
            "Most features for which X'X is formed, and W is solved for by a factor. Above it the solve goes on from "
            "one iteration to the next.",
            least=0,
        ),
    ] = 4096
    tol: Annotated[float, Param("Relative change of the objective at which the loop stops.")] = 1e-06
    max_iter: MaxIter = 100
    missing: Missing = "error"
    random_state: Annotated[
        Seed,
        seed_of(
            "the sample of rows and of its k-means, from which the first anchors come; of the exact form that of the "
            "W with which the first graph is made; 0 by default"
        ),
    ] = None

    published = "variant", "published_code"
    typical_iterations = TYPICAL_ITERATIONS
    supervision = "semi-supervised: labels may be unknown"
    passes = "1 + 1 an iteration (above the Gram cap one more); with the exact graph 1"
    memory = (
        "worker: 8 bytes * (2 d q + d m) (8 d² more below the Gram cap); driver: the same and 24 d² bytes (above the "
        "cap 120 d q); with the exact graph the driver holds X, n * (73 q + 24 k_s) and 24 d² bytes"
    )
    accepts_unknown_labels = True
    label_threshold = 0.5

    # ------------------------------------------------------------------ what it costs

    def _first_statistics(self, profile: Profile) -> list[Any]:
        d, q = profile.d, profile.q
        statistics: list[Any] = [
            LabelProducts(d, q, compiled=wants_compiled(profile)),
            Labels(q, unlabelled_without_positive=self.unknown_labels == "zeros"),
        ]
        if self.theta > 0:
            statistics.append(RowSample(self._sampled(profile, self._n_anchors(profile, d)), profile))
        statistics.append(Gram(d) if d <= self.gram_cap else ColumnKeys(d))
        return statistics

    def _cost_with_anchors(self, profile: Profile) -> Cost:
        d, q = profile.d, profile.q
        m = self._n_anchors(profile, d) if self.theta > 0 else 0
        has_gram = d <= self.gram_cap
        scaling = Scaling(placeholder(d), placeholder(d))
        prediction = RowPrediction(
            placeholder(d, q),
            placeholder(q),
            placeholder(m, q),
            placeholder(m, q),
            placeholder(q, q),
            1.0,
            self.anchor_neighbors,
            DuplicateLabels(np.arange(q)),
        )
        each: list[Statistic] = [PredictedRows(scaling, prediction)]
        first = Reading("moments and sample", tuple(self._first_statistics(profile)))
        sketch = Reading("sketch of X'X", (NormalProduct(scaling, placeholder(d, q + min(SKETCH, d))),))
        if not has_gram:
            each.append(NormalProduct(scaling, placeholder(d, q)))
        loop = Reading("rows", tuple(each), times=self.max_iter, typical=TYPICAL_ITERATIONS)
        sample = RowSample(self._sampled(profile, m) if m else np.empty(0, np.int64), profile)
        arrays = [HeldArray("M and W", "4 d q", first="anchors"), HeldArray("Z'X", "2 m d", first="anchors")]
        if has_gram:
            arrays += [
                HeldArray("X'X", "d d", first="anchors"),
                HeldArray("R and its factor", "2 d d", first="anchors"),
            ]
        else:
            arrays += [
                HeldArray("space of W, and X'X times it", "14 d q", first="anchors"),
                HeldArray("sketch of X'X", "4 d r", first=sketch.name),
            ]
        arrays.append(HeldArray("anchors' points", "4 p q", first="anchors", last="anchors"))
        if m:
            arrays.append(
                HeldArray("sample", "sample", "V1", first="anchors" if has_gram else sketch.name, last="anchors")
            )
        low, high = TYPICAL_ITERATIONS
        return Cost(
            steps=(first, *([] if has_gram else [sketch]), "anchors", loop),
            sizes={
                "d": d,
                "q": q,
                "m": m,
                "r": min(SKETCH, d),
                "p": len(sample.chosen),
                "sample": sample.result_bytes,
            },
            arrays=arrays
            if has_gram
            else [a._replace(first=sketch.name) if a.first == "anchors" and not a.last else a for a in arrays],
            compiled=m > 0,  # labels of the sample are predicted here
            loads_sklearn=m > 0,
            notes=(
                f"{m} anchors; fits took {low} to {high} iterations of one reading; at most {self.max_iter}",
                f"X'X is {d:,} x {d:,}" if has_gram else f"X'X is not formed ({d:,} features > {self.gram_cap:,})",
            ),
        )

    def _exact_arrays(self, profile: Profile) -> tuple[dict[str, int], list[HeldArray]]:
        strips = laplacian_gram_bytes(profile.n, profile.d, profile.nonzeros if profile.sparse else None)
        sizes = {"k": min(self.k_s, profile.n - 1) + 1, "strips": strips}
        has_gram = profile.d <= self.gram_cap
        return sizes, exact_form.held_arrays(sparse=profile.sparse, gram=has_gram, graph=self.theta > 0)

    # ------------------------------------------------------------------ the method

    def _fit_with_anchors(self, passes: PassRunner) -> Scores:
        """Algorithm 2, the graph of rows going through anchors."""
        profile, checkpoint, max_iter = passes.source.profile, checkpoints.current(), int(self.max_iter)
        lambda_, theta = float(self.lambda_), float(self.theta)
        products, labels, *others = passes.run("moments and sample", *self._first_statistics(profile))
        sample, m = others.pop(0) if theta > 0 else None, self._n_anchors(profile, profile.d)
        moments = FeatureMoments(products.n, products.mean, products.m2)
        self._examine(passes, moments, products.unknown)
        self._require_known(labels, profile.n)
        duplicates = DuplicateLabels(labels.groups)
        scaling = standard_scaling(moments, standardise=self.standardise)
        M = duplicates.collapse(scaling.scale_rows(products.products.T))  # X'F of F = Y
        last = others.pop()
        gram, keys = (scale_gram(last, scaling.factor), None) if profile.d <= self.gram_cap else (None, last)

        places = np.arange(profile.d) if sample is None else key_places(sample.X, scaling.factor > 0)
        regression, image = self._regression(passes, gram, scaling, products, M, places)
        state = load_state(checkpoint, passes.records)
        if state is None:
            trace, none = Trace(), Smoothing(0.0, np.zeros((0, profile.d)), np.zeros(0))
            solution = regression.solve(M, np.full(profile.d, lambda_), none, image)  # D = I, and no graph of rows yet
            prediction = self._first_prediction(solution.W, products, sample, m, scaling, duplicates)
        else:
            trace = Trace(**state.facts["trace"])
            prediction = self._first_prediction(state.arrays["W"], products, None, m, scaling, duplicates)
            W, mean, U, T, coupling = (state.arrays[name] for name in _PREDICTION)
            prediction = replace(prediction, W=W, mean=mean, U=U, T=T, coupling=coupling)
            regression.restore(state.arrays)
        del sample
        W = prediction.W
        for t in iterations_left(trace, max_iter):
            W = prediction.W
            needed = [] if regression.direction is None else [NormalProduct(scaling, regression.direction)]
            sums, *images = passes.run("rows", PredictedRows(scaling, prediction), *needed)  # F, S by Eqs. 17 and 21
            image = images[0] if images else None
            masses = sums.masses.sum(axis=0)
            U, T = anchor_values(sums.ZF, masses, prediction.U), anchor_values(sums.ZX @ W, masses, prediction.T)
            L_p = self._label_laplacian(sums.FF, duplicates)  # Eq. 25
            trace.objective.append(self._objective(sums, W, U, T, L_p, profile.n))
            trace.report_progress(**({"residual": trace.residual[-1]} if trace.residual else {}))
            if t > 1 and trace.change <= self.tol and (not trace.residual or trace.residual[-1] <= RESIDUAL_TOL):
                trace.converged = True
            if not W.any():
                trace.converged = True
            if trace.converged or t == max_iter:
                if checkpoint.keeps_end:
                    self._save(checkpoint, prediction, regression, trace, passes)
                break
            smoothing = Smoothing(theta, sums.ZX, masses)
            for _ in range(self.inner_iterations if gram is not None else 1):  # Algorithm 1
                before = prediction.W
                D = 0.5 / np.sqrt(row_norms(before) ** 2 + EPSILON)  # Eq. 9
                solution = regression.solve(sums.XF, lambda_ * D, smoothing, image)  # Eq. 14
                prediction = replace(prediction, W=solution.W)
                if np.linalg.norm(solution.W - before) <= SETTLED * np.linalg.norm(solution.W):
                    break
            T = anchor_values(sums.ZX @ solution.W, masses, T)
            mean, U = settle_anchors(prediction, sums)
            U, T = np.split(join_coincident(np.concatenate([U, T], axis=1)), 2, axis=1)
            prediction = replace(prediction, mean=mean, U=U, T=T, coupling=float(self.mu) * L_p)
            trace.rank.append(solution.rank)
            trace.step.append(float(np.linalg.norm(solution.W - W)) / max(float(np.linalg.norm(solution.W)), 1e-300))
            if gram is None:
                trace.residual.append(solution.residual)
            if checkpoint.due():
                self._save(checkpoint, prediction, regression, trace, passes)
        scores = row_norms(W)
        if keys is not None:
            scores = mean_of_copies(scores, keys)
        extra: dict[str, Any] = {
            "gram": gram is not None,
            "labelled_rows": int(profile.n - labels.rows[1] if self.unknown_labels == "coded" else labels.rows[0]),
            "distinct_labels": duplicates.count,
            "graph": None,
        }
        if theta > 0:
            extra["graph"] = {"kind": "anchors", "anchors": len(prediction.U), "anchor_neighbors": prediction.neighbors}
        self._row_labels = PredictedRows(scaling, prediction)
        return self._result(scores, trace, extra, products.positives)

    def _save(
        self,
        checkpoint: checkpoints.Checkpoint,
        prediction: RowPrediction,
        regression: GramRegression | SubspaceRegression,
        trace: Trace,
        passes: PassRunner,
    ) -> None:
        arrays = {name: getattr(prediction, name) for name in _PREDICTION}
        save_state(checkpoint, {**arrays, **regression.state()}, trace, passes.records)

    def _require_known(self, labels: LabelKnowledge, n: int) -> None:
        """Refuse labels of which none is known.

        Raises
        ------
        DataError
        """
        unlabelled = n - labels.rows[0] if self.unknown_labels == "zeros" else labels.rows[1]
        if unlabelled == n:
            everything = labels.rows[1] == n
            raise DataError(
                "no row of Y has a known label" + ("" if everything else " that is positive"),
                cure="give labels 1 and 0 for some rows; -1 stands for an unknown one",
            )

    def _regression(
        self,
        passes: PassRunner,
        gram: Array | None,
        scaling: Scaling,
        products: LabelMoments,
        M: Array,
        places: NDArray[np.intp],
    ) -> tuple[GramRegression | SubspaceRegression, Array | None]:
        """The solver for W and, where X'X is not formed, X'X times the directions of its first solve."""
        if gram is not None:
            return GramRegression(gram), None
        varying = scaling.factor > 0
        distinct = len(np.unique(places[varying]))
        # More directions than distinct features that vary would be linearly dependent.
        draws = np.random.default_rng(self._seed).standard_normal((len(places), min(SKETCH, distinct)))
        Omega = np.where(varying[:, np.newaxis], draws[places], 0.0)
        directions = np.concatenate([Omega, M], axis=1)
        (image,) = passes.run("sketch of X'X", NormalProduct(scaling, directions))
        split = Omega.shape[1]
        trace = float((products.m2 * scaling.factor**2).sum())
        regression = SubspaceRegression(NystromSketch(Omega, image[:, :split], trace))
        regression.direction = M
        return regression, image[:, split:]

    def _first_prediction(
        self,
        W: Array,
        products: LabelMoments,
        sample: SampledRows | None,
        m: int,
        scaling: Scaling,
        duplicates: DuplicateLabels,
    ) -> RowPrediction:
        """The first prediction of labels, without a graph of rows; its anchors are placed on the sample's [F, X W]."""
        q = duplicates.count
        none = np.zeros((0, q))
        L_p = self._label_laplacian(duplicates.collapse_both(products.pairs.astype(np.float64)), duplicates)
        prediction = RowPrediction(
            W,
            duplicates.collapse(products.positives[np.newaxis] / products.n)[0],
            none,
            none,
            float(self.mu) * L_p,
            float(self.theta),
            self.anchor_neighbors,
            duplicates,
            self.unknown_labels == "zeros",
        )
        if sample is None:
            return prediction
        XW = np.empty((sample.X.shape[0], W.shape[1]))
        forward_block(sample.X, scaling.scale_rows(W), scaling.centre, XW)
        F, _ = prediction.predict(XW, *prediction.labels(sample.Y))
        with runtime.stage("placing anchors"):
            points = place_anchors(np.concatenate([F, XW], axis=1), min(m, len(F)), self._seed)
        return replace(prediction, U=points[:, :q].copy(), T=points[:, q:].copy())

    def _label_laplacian(self, FF: Array, duplicates: DuplicateLabels) -> Array:
        """L_p of the adaptive graph of the columns of F (Eq. 25), from F'F."""
        if self.mu == 0 or len(duplicates.group) < 2:
            return np.zeros((duplicates.count, duplicates.count))
        P, _, _ = column_graph(duplicates.expand_both(FF), self.k_p)
        return duplicates.collapse_both(np.diag(P.sum(axis=1)) - P)

    def _objective(self, sums: PredictedSums, W: Array, U: Array, T: Array, L_p: Array, n: int) -> float:
        """Eq. 8 without α‖S‖² and β‖P‖², for the anchors that are best for F and X W."""
        difference, missed, projected = sums.terms
        mean = sums.total / n  # X is centred
        value = difference - n * float(mean @ mean) + missed
        value += float(self.lambda_) * float(np.sqrt(row_norms(W) ** 2 + EPSILON).sum())
        if len(U):
            masses = sums.masses.sum(axis=0)
            of_anchors = [float(masses @ np.einsum("ij,ij->i", V, V)) for V in (U, T)]
            value += float(self.theta) * (float(np.trace(sums.FF)) + projected - sum(of_anchors))
        return float(value + float(self.mu) * np.vdot(L_p, sums.FF))

    def _fit_exactly(self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
        return exact_form.fit(
            X,
            Y,
            moments=moments,
            variant=self.variant,
            lambda_=float(self.lambda_),
            theta=float(self.theta),
            mu=float(self.mu),
            k_s=self.k_s,
            k_p=self.k_p,
            unknown_labels=self.unknown_labels,
            standardise=self.standardise,
            inner_iterations=self.inner_iterations,
            solver_tol=self.solver_tol,
            gram_cap=self.gram_cap,
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=self._seed,
        )

    def _never_positive(self, positives: NDArray[np.int64]) -> list[Warning]:
        consequence = "Nothing can be learnt of such a label: what is recovered of it means nothing, and "
        if self.mu > 0 or self.variant == "published_code":
            consequence += "through the graph of labels it adds noise to the scores. Leave it out of Y, or give rows "
            consequence += "that have it."
        else:
            consequence += "it has no part in the scores."
        return never_positive_warnings(self, "Access-MFS", positives, consequence)

    def _warnings(self, trace: Any, scores: Array) -> list[Warning]:
        warnings: list[Warning] = []
        if not scores.any():
            warnings.append(
                UserWarning(
                    "Access-MFS cannot rank the features: every feature is constant, or no known label differs "
                    "between rows. All features get the same score."
                )
            )
        elif not trace.converged:
            warnings.append(self._not_converged("Access-MFS", trace))
        if trace.weight_residual > RESIDUAL_TOL:
            warnings.append(
                ConvergenceWarning(
                    f"Access-MFS left a relative residual of {trace.weight_residual:.1e} in the equation of W. "
                    f"Give {parameter('gram_cap')} at least the number of features, or increase {parameter('lambda_')}."
                )
            )
        return warnings
