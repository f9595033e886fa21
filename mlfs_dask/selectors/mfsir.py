"""mFSIR: features whose weights grow under implicit regularisation (Mansouri, Benabdeslem & Benkabou).

Y is factorised as VB with a few non-negative latent labels V, smooth over near rows, and V is regressed on the features
with weights G⊙H. With an anchor graph an iteration is one reading.

D. E. K. Mansouri, K. Benabdeslem, S.-E. Benkabou, "Implicit regularization for multi-label feature selection",
arXiv:2411.11436, doi:10.48550/arXiv.2411.11436.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors, anchor_values
from mlfs_dask.blocks.column_keys import key_places
from mlfs_dask.blocks.factorisation import factors_from_pairs
from mlfs_dask.blocks.heat_kernel import mean_degree
from mlfs_dask.blocks.neighbours import compiles_search
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.exact import mfsir as exact_form
from mlfs_dask.exact.fit import ExactFit
from mlfs_dask.selectors.base import Scores, never_positive_warnings
from mlfs_dask.selectors.contract import MaxIter, Missing, Param, method, seed_of
from mlfs_dask.selectors.costs import Cost, PassRunner, Reading
from mlfs_dask.selectors.iterative import (
    GraphKind,
    IterativeSelector,
    anchors_of_points,
    load_state,
    placeholder,
    point_bytes,
    save_state,
    standardised_points,
)
from mlfs_dask.solvers import spectral
from mlfs_dask.solvers.blockwise import FEATURE_MATRICES, Factors, Trace, descend, unit_rows
from mlfs_dask.statistics.gram import Gram, NormalProduct, scale_gram
from mlfs_dask.statistics.label_statistics import LabelKnowledge, Labels
from mlfs_dask.statistics.latent_rows import LatentRows, LatentSums
from mlfs_dask.statistics.moments import FeatureMoments, Moments
from mlfs_dask.statistics.sample import RowSample, SampledRows
from mlfs_dask.statistics.scaling import Scaling, standard_scaling
from mlfs_dask.typing import HeldArray, Matrix, Profile, Seed

Array = NDArray[np.float64]

#: Steps of G and of H in one iteration: with X'X, and without it, where a step lowers an upper bound of the objective.
GRAM_STEPS = 5
BOUND_STEPS = 1

#: Steps of B in one iteration; they read no data.
LABEL_STEPS = 5

#: Iterations that fits of real sets took, least and most (`benchmarks/iterative.py`).
TYPICAL_ITERATIONS = (10, 46)

#: V of `Factors` in the form with anchors, which holds no rows.
_NO_ROWS = np.empty((0, 0))

#: Products with X'X that its largest eigenvalue takes above the Gram cap on real data, least and most.
TYPICAL_PRODUCTS = (3, 9)


@method(
    "mfsir",
    "Implicit regularisation with latent labels",
    paper="Mansouri, Benabdeslem & Benkabou 2024, arXiv:2411.11436",
    doi="10.48550/arXiv.2411.11436",
)
class MFSIR(IterativeSelector):
    """Multi-label feature selection by implicit regularisation (Mansouri, Benabdeslem & Benkabou 2024).

    Regresses latent labels V, found with Y ≈ VB and smooth over near rows, on the features with weights G⊙H (Eq. 8).
    The product of two factors and the early stop take the place of a penalty. A feature's score is the norm of its
    row of G⊙H.

    Notes
    -----
    Features are standardised with the population standard deviation, by algebra where X is sparse.

    With anchors the term tr(V'LV) is c Σ_i Σ_a z_ia ‖v_i − u_a‖², z_ia being the weights of a row's anchors, u_a values
    of the anchors that are variables too, and c the mean degree of the exact graph, measured on a sample, so that β
    means the same in both forms. Readings of X: one for moments, X'X and the sample, one for the start, and one an
    iteration; above gram_cap 3 to 9 more, at most 20, for the largest eigenvalue of X'X. With l latent labels and m
    anchors a worker holds 8 (2 d l + m (2 d + l)) bytes, and 8 d² more in the first reading where X'X is formed; the
    driver the same, and 80 d l.

    The exact form reads X once and holds X, 8 d² bytes where X'X is formed, and 8 n (6 l + 4 n_neighbors) bytes.
    Unknown labels (-1) are refused.

    The blockwise form differs from Algorithm 1 as printed. Every block has a step of its own, and every row of V is a
    block (with anchors it is solved for). The start G = 1, H = 0 treats all features alike and lets weights have either
    sign. V and B start from a deterministic factorisation of Y. Rows of B have norm 1: otherwise (tW, tV, B/t) would
    lower the objective as t falls, down to W = 0. The stopping rule takes the absolute change of the objective.

    References
    ----------
    D. E. K. Mansouri, K. Benabdeslem, S.-E. Benkabou, "Implicit regularization for multi-label feature selection",
    arXiv:2411.11436 (2024), doi:10.48550/arXiv.2411.11436.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    >>> selector = MFSIR(n_features_to_select=1, n_neighbors=1).fit(X, Y)
    >>> selector.ranking_.tolist(), selector.scores_[2]
    ([0, 1, 2], np.float64(0.0))
    """

    alpha: Annotated[float, Param("Weight of the factorisation Y ≈ VB.")] = 1.0
    beta: Annotated[float, Param("Weight of the smoothness of V over near rows; 0 spares their graph.")] = 1.0
    n_latent: Annotated[
        int | None,
        Param("Latent labels, from 1 to the number of labels; half of the labels, and one more, by default."),
    ] = None
    n_neighbors: Annotated[
        int,
        Param(
            "Nearest rows of a row in the exact graph, all others where there are fewer. With anchors it decides "
            "what β means: see the notes."
        ),
    ] = 5
    graph: Annotated[
        GraphKind,
        Param(
            '"anchors": rows are near that belong to the same anchors; nothing grows with the number of rows. '
            '"exact": the paper\'s graph, with X, Y and V in the memory of this process. "auto": exact up to 20 000 '
            "rows."
        ),
    ] = "auto"
    n_anchors: Annotated[
        int, Param("Anchors, at most a quarter of the rows, and fewer where 32 MiB do not hold as many.")
    ] = 300
    anchor_neighbors: Annotated[int, Param("Nearest anchors that a row belongs to.")] = 3
    lambda_: Annotated[
        float | None,
        Param(
            "Width λ of the heat kernel exp(−d²/λ²), on standardised features; by default its square is the mean "
            "squared distance over all pairs of rows.",
            above=0,
        ),
    ] = None
    step: Annotated[
        Literal["blockwise", "fixed"],
        Param(
            '"blockwise": G, H, V and B move by the Lipschitz constant of their own, so that the objective never '
            'rises. "fixed": Algorithm 1 as printed, one step for all and a random start near 0, for max_iter '
            "iterations; on real data it hardly moves."
        ),
    ] = "blockwise"
    eta: Annotated[
        float | None,
        Param("The one step of the fixed form; by default the largest that is stable for factors of size 1.", above=0),
    ] = None
    omega: Annotated[float, Param("Bound of the random start of the fixed form.", above=0)] = 1e-05
    weight_steps: Annotated[
        int | None,
        Param("Steps of G and H in one blockwise iteration; 5 by default where X'X is formed, and 1 where it is not."),
    ] = None
    label_steps: Annotated[int, Param("Steps of B in one blockwise iteration, and of V with the exact graph.")] = 5
    gram_cap: Annotated[int, Param("Most features for which X'X is formed.", least=0)] = 4096
    tol: Annotated[
        float, Param("Relative change of the objective in one iteration at which the blockwise form stops.")
    ] = 0.001
    max_iter: MaxIter = 100
    missing: Missing = "error"
    random_state: Annotated[
        Seed,
        seed_of(
            "the sample of rows and of its k-means, from which the anchors come, and of the random start of the "
            "fixed form; 0 by default"
        ),
    ] = None

    published = "step", "fixed"
    typical_iterations = TYPICAL_ITERATIONS
    passes = "2 + 1 an iteration (above the Gram cap 3 to 9 more); with the exact graph 1"
    memory = (
        "worker: 8 bytes * (2 d l + 2 d m) (8 d² more below the Gram cap); driver: the same and 80 d l bytes; with the "
        "exact graph the driver holds X, 8 d² and n * (48 l + 32 p) bytes"
    )

    def _latent(self, q: int) -> int:
        if self.n_latent is None:
            return q // 2 + 1  # the paper asks only for l < q
        if self.n_latent > q:
            raise UsageError(f"{parameter('n_latent')} is {self.n_latent}, but there are {q} labels; give at most {q}")
        return int(self.n_latent)

    def _steps(self, d: int) -> int:
        if self.weight_steps is not None:
            return int(self.weight_steps)
        return GRAM_STEPS if d <= self.gram_cap else BOUND_STEPS

    # ------------------------------------------------------------------ what it costs

    def _first_statistics(self, profile: Profile) -> list[Any]:
        d, q = profile.d, profile.q
        statistics: list[Any] = [Moments(d), Labels(q)]
        if self.beta > 0:
            statistics.append(RowSample(self._sampled(profile, self._n_anchors(profile, d)), profile))
        if d <= self.gram_cap:
            statistics.append(Gram(d))
        return statistics

    def _cost_with_anchors(self, profile: Profile) -> Cost:
        d, q, width = profile.d, profile.q, self._latent(profile.q)
        m = self._n_anchors(profile, d) if self.beta > 0 else 0
        has_gram = d <= self.gram_cap
        scaling = Scaling(placeholder(d), placeholder(d))
        anchors = Anchors(placeholder(m, d), placeholder(d), placeholder(d), self.anchor_neighbors) if m else None
        rows = LatentRows(
            scaling,
            anchors,
            placeholder(d, width),
            placeholder(width, q),
            placeholder(m, width),
            1.0,
            1.0,
            None,
            not has_gram,
        )
        first = Reading("moments and sample", tuple(self._first_statistics(profile)))
        start = Reading("start", (replace(rows, start=placeholder(q, 2 * width), with_normal=False),))
        loop = Reading("rows", (rows,), times=self.max_iter, typical=TYPICAL_ITERATIONS)
        block = min(spectral.BLOCK, d)
        products = Reading(
            "largest eigenvalue",
            (NormalProduct(scaling, placeholder(d, block)),),
            times=spectral.MAX_PRODUCTS,
            typical=TYPICAL_PRODUCTS,
        )
        arrays = [HeldArray("G, H, W, X'V, X'X W and their successors", f"{FEATURE_MATRICES} d l", first=start.name)]
        if has_gram:
            arrays.append(HeldArray("X'X", "d d", first="anchors"))
        else:
            arrays.append(HeldArray("Krylov space", "2 d products block", first=products.name, last=products.name))
        if m:
            arrays.append(HeldArray("anchors", "2 m d", first="anchors"))
            arrays.append(
                HeldArray("sample and standardised copies of it", "sample", "V1", first="anchors", last="anchors")
            )
            arrays.append(HeldArray("k-means", "4 m d", first="anchors", last="anchors"))
        sample = RowSample(self._sampled(profile, m) if m else np.empty(0, np.int64), profile)
        low, high = TYPICAL_ITERATIONS
        return Cost(
            steps=(first, "anchors", *([] if has_gram else [products]), start, loop),
            sizes={
                "n": profile.n,
                "d": d,
                "q": q,
                "l": width,
                "m": m,
                "block": block,
                "products": spectral.MAX_PRODUCTS,
                # Points, those without their last digits, and what the search for their neighbours takes.
                "sample": sample.result_bytes + 3 * len(sample.chosen) * point_bytes(profile),
            },
            arrays=arrays,
            # For the bandwidth of the heat kernel neighbours are searched among the sample.
            compiled=m > 0 and compiles_search(len(sample.chosen) ** 2, sparse=profile.sparse),
            loads_sklearn=m > 0,
            notes=(
                f"{m} anchors; fits took {low} to {high} iterations of one reading; at most {self.max_iter}",
                *([] if has_gram else [f"X'X is not formed: {d:,} features are more than {self.gram_cap:,}"]),
            ),
        )

    def _compiles_exact_search(self, profile: Profile) -> bool:
        return self.beta > 0 and compiles_search(profile.n**2, sparse=profile.sparse)

    def _exact_arrays(self, profile: Profile) -> tuple[dict[str, int], list[HeldArray]]:
        neighbors = min(self.n_neighbors, profile.n - 1) if self.beta > 0 else 0
        sizes = {"l": self._latent(profile.q), "k": neighbors}
        has_gram = profile.d <= self.gram_cap
        return sizes, exact_form.held_arrays(sparse=profile.sparse, gram=has_gram, graph=self.beta > 0)

    # ------------------------------------------------------------------ the method

    def _fit_with_anchors(self, passes: PassRunner) -> Scores:
        profile, checkpoint = passes.source.profile, checkpoints.current()
        d, alpha, max_iter = profile.d, float(self.alpha), int(self.max_iter)
        moments, labels, *others = passes.run("moments and sample", *self._first_statistics(profile))
        self._examine(passes, moments, labels.unknown)
        scaling = standard_scaling(moments)
        anchors, gamma, places = None, 0.0, np.arange(d)
        if self.beta > 0:
            sample = others.pop(0)
            places = key_places(sample.X, scaling.factor > 0)
            anchors, gamma = self._place_anchors(sample, self._n_anchors(profile, d), scaling)
            del sample
        gram = scale_gram(others.pop(), scaling.factor) if d <= self.gram_cap else None

        state = load_state(checkpoint, passes.records)
        if state is not None:
            at = Factors(state.arrays["G"], state.arrays["H"], _NO_ROWS, state.arrays["B"])
            U, rho, trace = state.arrays["U"], state.facts["rho"], Trace(**state.facts["trace"])
        else:
            B, sums = self._start(passes, scaling, anchors, labels)
            # All features begin alike and weights may take either sign; a random start would show in the ranking. The
            # size of G does not matter: the step of each factor is scaled by the size of the other.
            at, trace = Factors(np.ones((d, len(B))), np.zeros((d, len(B))), _NO_ROWS, B), Trace()
            rho = self._largest_eigenvalue(passes, scaling, gram, spectral.starting_block(places, scaling.factor > 0))
            U = anchor_values(sums.ZV, sums.masses)
            self._update(at, sums, gram, rho)
        for t in range(trace.iterations + 1, max_iter + 1):
            W = at.W
            rows = LatentRows(scaling, anchors, W, at.B, U, alpha, gamma, with_normal=gram is None)
            (sums,) = passes.run("rows", rows)  # V, row by row
            self._record(trace, sums, labels, at.B, U, gamma)
            trace.converged = trace.change <= self.tol
            if trace.converged or t == max_iter:
                break
            U = anchor_values(sums.ZV, sums.masses, U)
            self._update(at, sums, gram, rho)
            trace.step.append(relative_step(W, at.W))
            if checkpoint.due():
                arrays = {"G": at.G, "H": at.H, "B": at.B, "U": U}
                save_state(checkpoint, arrays, trace, passes.records, rho=rho)
        extra = {"n_latent": len(at.B), "rho": rho, "gram": gram is not None, "graph": None}
        if anchors is not None:
            facts = {"anchors": anchors.count, "anchor_neighbors": anchors.neighbors, "weight": gamma}
            extra["graph"] = {"kind": "anchors", **facts}
        return self._result(row_norms(W), trace, extra, labels.positive)

    def _place_anchors(self, sample: SampledRows, m: int, scaling: Scaling) -> tuple[Anchors, float]:
        """Anchors by k-means, and γ = βc with the mean degree c of the graph of Eq. 6 on the sample."""
        points = standardised_points(sample.X, scaling)
        anchors = anchors_of_points(points, m, scaling, self.anchor_neighbors, self._seed)
        # The mean squared distance over all pairs is 2 Σ var_f, and a standardised feature has variance 1.
        width = 2.0 * float((scaling.factor > 0).sum()) if self.lambda_ is None else float(self.lambda_) ** 2
        gamma = float(self.beta) * mean_degree(points, self.n_neighbors, width)
        return anchors, gamma

    def _start(
        self, passes: PassRunner, scaling: Scaling, anchors: Anchors | None, labels: LabelKnowledge
    ) -> tuple[Array, LatentSums]:
        """B of a non-negative factorisation of Y, and the sums of its V."""
        d, q = len(scaling.centre), len(labels.pairs)
        m = 0 if anchors is None else anchors.count
        read: list[tuple[LatentSums, Array]] = []

        def part_sizes(T: Array) -> Array:
            # The sign of each column of T follows from sums over the rows: this reading sums for both signs.
            both = np.concatenate([T, -T], axis=1)
            rows = LatentRows(scaling, anchors, np.zeros((d, 0)), np.zeros((0, q)), np.zeros((m, 0)), 0.0, 0.0, both)
            (sums,) = passes.run("start", rows)
            read.append((sums, T))
            return np.diag(sums.VV).reshape(2, T.shape[1])

        T, B = factors_from_pairs(labels.pairs.astype(np.float64), part_sizes, self._latent(q))
        if not read:  # no label occurs
            part_sizes(T)
        sums, directions = read[0]
        return B, _of_sign(sums, T, directions)

    def _largest_eigenvalue(self, passes: PassRunner, scaling: Scaling, gram: Array | None, start: Array) -> float:
        """ρ = λ_max(X'X)."""
        if gram is not None:
            return spectral.largest_eigenvalue(lambda Q: gram @ Q, start)
        name = "largest eigenvalue"
        return spectral.largest_eigenvalue(lambda Q: passes.run(name, NormalProduct(scaling, Q))[0], start)

    def _update(self, at: Factors, sums: LatentSums, gram: Array | None, rho: float) -> None:
        """Steps of B, G and H for the V of `sums`."""
        constant = float(np.linalg.eigvalsh(sums.VV)[-1])
        for _ in range(self.label_steps if self.alpha > 0 and constant > 0 else 0):
            at.B = unit_rows(at.B - (sums.VV @ at.B - sums.VY) / constant)
        normal, XXW = _normal_products(at.W, sums, gram, rho)
        descend(at, sums.XV, rho, self._steps(len(at.G)), normal, XXW)

    def _record(self, trace: Trace, sums: LatentSums, labels: LabelKnowledge, B: Array, U: Array, gamma: float) -> None:
        """Append the objective, Eq. 8 with the smoothness over anchors as its last term, and the residual."""
        fit, size = float(sums.fit[0]), float(np.trace(sums.VV))
        positives = float(labels.positive.sum())
        # ‖Y − VB‖² and Σ z_ia ‖v_i − u_a‖² from small matrices; Y has entries 1 alone.
        decomposition = max(0.0, positives - 2 * float(np.vdot(B, sums.VY)) + float(np.vdot(B @ B.T, sums.VV)))
        smoothness = 0.0
        if len(U):
            lengths = np.einsum("ij,ij->i", U, U)
            smoothness = max(0.0, size - 2 * float(np.vdot(U, sums.ZV)) + float(sums.masses @ lengths))
        trace.objective.append(fit + float(self.alpha) * decomposition + gamma * smoothness)
        trace.residual.append(float(np.sqrt(fit / size)) if size > 0 else 0.0)
        trace.report_progress(residual=trace.residual[-1])

    def _fit_exactly(self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
        return exact_form.fit(
            X,
            Y,
            moments=moments,
            alpha=float(self.alpha),
            beta=float(self.beta),
            n_latent=self._latent(Y.shape[1]),
            n_neighbors=self.n_neighbors,
            lambda_=self.lambda_,
            step=self.step,
            eta=self.eta,
            omega=self.omega,
            weight_steps=self._steps(X.shape[1]),
            label_steps=self.label_steps,
            gram_cap=self.gram_cap,
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=self._seed,
        )

    def _never_positive(self, positives: NDArray[np.int64]) -> list[Warning]:
        counts = f" and counts in {parameter('n_latent')}, half of the labels and one more: leave it out of Y"
        consequence = f"Such a label has no effect on the scores{counts if self.n_latent is None else ''}."
        return never_positive_warnings(self, "mFSIR", positives, consequence)

    def _warnings(self, trace: Any, scores: Array) -> list[Warning]:
        if not scores.any():
            return [
                UserWarning(
                    "mFSIR cannot rank the features: every feature is constant, or no label differs between "
                    "rows. All features get the same score."
                )
            ]
        if trace.converged or self.step == "fixed":  # which runs all iterations
            return []
        return [self._not_converged("mFSIR", trace)]


def _normal_products(
    W: Array, sums: LatentSums, gram: Array | None, rho: float
) -> tuple[Callable[[Array], Array], Array]:
    """A function that multiplies by X'X, and X'X W.

    Without X'X the function takes M to X'X W + ρ(M − W): gradients are then those of an upper bound of ‖X M − V‖² that
    touches it at M = W.
    """
    if gram is not None:
        return gram.__matmul__, gram @ W
    XXW = sums.XXW if sums.XXW.size else np.zeros_like(W)  # at the start W is 0
    offset = XXW - rho * W
    return lambda moved: offset + rho * moved, XXW


def _of_sign(sums: LatentSums, T: Array, directions: Array) -> LatentSums:
    """The sums for V = max(Y T, 0) from those for max(Y [E, −E], 0); a column of T is one of E times a number."""
    size = np.einsum("ij,ij->j", T, directions)
    chosen = np.where(size < 0, size.size, 0) + np.arange(size.size)
    size = np.abs(size)
    return sums._replace(
        XV=sums.XV[:, chosen] * size,
        VV=sums.VV[np.ix_(chosen, chosen)] * np.outer(size, size),
        VY=sums.VY[chosen] * size[:, np.newaxis],
        ZV=sums.ZV[:, chosen] * size,
    )


def relative_step(before: Array, now: Array) -> float:
    """‖ΔW‖ / ‖W‖."""
    size = float(np.linalg.norm(now))
    return float(np.linalg.norm(now - before)) / size if size > 0 else 0.0
