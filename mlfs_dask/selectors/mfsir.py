"""mFSIR: features whose weights grow under implicit regularisation (Mansouri, Benabdeslem & Benkabou).

Y is factorised as VB with a few non-negative latent labels V, smooth over near rows, and V is regressed on the features
with weights G⊙H. With an anchor graph an iteration is one pass.

D. E. K. Mansouri, K. Benabdeslem, S.-E. Benkabou, "Implicit regularization for multi-label feature selection",
arXiv:2411.11436, doi:10.48550/arXiv.2411.11436.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors, anchor_values
from mlfs_dask.blocks.column_keys import key_places
from mlfs_dask.blocks.factorisation import nonnegative_factors
from mlfs_dask.blocks.heat_kernel import heat_kernel_graph, mean_degree
from mlfs_dask.blocks.neighbours import compiles_search
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, save_if_due
from mlfs_dask.exact.graphs import nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.anchor_graph import AnchorGraph, point_bytes, standardised_points
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.in_memory import GraphKind, InMemory
from mlfs_dask.selectors.loop import Loop, Scaled, placeholder, ranking_settled
from mlfs_dask.selectors.parameters import MaxIter, Missing, Param, StepsPerPass, seed_of
from mlfs_dask.solvers import blockwise, spectral
from mlfs_dask.solvers.blockwise import Factors, Problem, descend, unit_rows
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace, ratio
from mlfs_dask.statistics.gram import Gram, NormalProduct, scale_gram
from mlfs_dask.statistics.labelled import AtShares
from mlfs_dask.statistics.latent_rows import LatentRows, LatentSums, first_factors, latent_system
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.sample import SampledRows
from mlfs_dask.statistics.scaling import Scaling, standard_scaling
from mlfs_dask.typing import Array, Matrix, Seed, join_terms, numbers

#: Iterations that fits of real sets took, least and most, and of these the passes with predicted sums
#: (`benchmarks/gram.py readings | predicted`).
TYPICAL_ITERATIONS, TYPICAL_PASSES = (6, 46), (6, 12)

#: Products with X'X that its largest eigenvalue takes above the Gram cap on real data, least and most.
TYPICAL_PRODUCTS = (3, 9)

#: Names of the passes for the largest eigenvalue of X'X above the Gram cap, and for the first V.
EIGENVALUE, START = "largest eigenvalue", "start"


@dataclass
class Fixed(Scaled):
    """Constants of the iterations; g is d where X'X is formed and 0 above the cap, m is 0 without anchors.

    XY, ZX, ZY and ZZ are moments of X, Y and Z, from which changes of sums are predicted.
    """

    places: Annotated[NDArray[np.intp], "d"]
    centres: Annotated[Array, "m d"]
    gram: Annotated[Array, "g g"]
    pairs: Annotated[Array, "q q", "pairs of labels"]
    share: Annotated[Array, "q", "shares of labels"]
    weight: Annotated[float, ""]  # βc
    n: Annotated[float, ""]
    XY: Annotated[Array, "d q"]
    ZX: Annotated[Array, "m d"]
    ZY: Annotated[Array, "m q"]
    ZZ: Annotated[Array, "m m"]


@dataclass
class At:
    """The small variables; ρ is λ_max(X'X).

    Above the cap, where u is d and else 0, W and X'X W of the pass before, too.
    """

    G: Annotated[Array, "d l"]
    H: Annotated[Array, "d l"]
    B: Annotated[Array, "l q"]
    U: Annotated[Array, "m l"]
    rho: Annotated[float, ""]
    before: Annotated[Array, "u l"]
    image: Annotated[Array, "u l"]

    @property
    def W(self) -> Array:
        """G ⊙ H."""
        return self.G * self.H


@method(
    "mfsir",
    "Implicit regularisation with latent labels",
    paper="Mansouri, Benabdeslem & Benkabou 2024, arXiv:2411.11436",
    doi="10.48550/arXiv.2411.11436",
)
class MFSIR(InMemory, Loop[Fixed, At]):
    """Multi-label feature selection by implicit regularisation (Mansouri, Benabdeslem & Benkabou 2024).

    Regresses latent labels V, found with Y ≈ VB and smooth over near rows, on the features with weights G⊙H (Eq. 8).
    The product of two factors and the early stop take the place of a penalty. A feature's score is the norm of its
    row of G⊙H.

    Notes
    -----
    Features are standardised with the population standard deviation, by algebra where X is sparse.

    With anchors the term tr(V'LV) is c Σ_i Σ_a z_ia ‖v_i − u_a‖², z_ia being the weights of a row's anchors, u_a
    values of the anchors that are variables too, and c the mean degree of the exact graph, measured on a sample, so
    that β means the same in both forms. Passes over X: one for moments, X'X and the sample, one for the start, and
    one per iteration; above gram_cap 3 to 9 more, at most 20, for the largest eigenvalue of X'X.

    Unknown labels (-1) are at the mean of the label's known ones.

    The blockwise form differs from Algorithm 1 as printed. Every block has a step of its own, and every row of V is a
    block (with anchors it is solved for). The start G = 1, H = 0 treats all features alike and lets weights have either
    sign. V and B start from a deterministic factorisation of Y. Rows of B have norm 1: otherwise (tW, tV, B/t) would
    lower the objective as t falls, down to W = 0. The stopping rule takes the absolute change of the objective.

    The order still changes where the loop stops, by design: run on to `tol` 1e-9, or 1 000 iterations, 2 of the best 7
    features are still among the best 7 of emotions, 6 of the best 10 of yeast, and all of the
    best 118 of genbase. The record has `stopped_early` then.

    References
    ----------
    D. E. K. Mansouri, K. Benabdeslem, S.-E. Benkabou, "Implicit regularization for multi-label feature selection",
    arXiv:2411.11436 (2024), doi:10.48550/arXiv.2411.11436.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    >>> selector = mlfs.MFSIR(n_features_to_select=1, n_neighbors=1).fit(X, Y)
    >>> selector.ranking_.tolist(), selector.scores_[2]
    ([0, 1, 2], np.float64(0.0))
    """

    alpha: Annotated[float, Param("Weight of the factorisation Y ≈ VB.")] = 1.0
    beta: Annotated[float, Param("Weight of the smoothness of V over near rows; with 0 no graph of rows is made.")] = (
        1.0
    )
    n_latent: Annotated[
        int | None,
        Param("Number of latent labels, at most q; by default half of q and one more."),
    ] = None
    n_neighbors: Annotated[
        int,
        Param(
            "Number of neighbours of a row in the exact graph, at most n − 1. With anchors it scales β: see the notes."
        ),
    ] = 5
    graph: Annotated[
        GraphKind,
        Param(
            'Graph of near rows. "anchors": rows that belong to the same anchors are near; memory does not '
            'grow with the number of rows. "exact": the paper\'s graph, with X, Y and V in the memory of this '
            'process. "auto": "exact" up to 20 000 rows.'
        ),
    ] = "auto"
    n_anchors: Annotated[
        int, Param("Number of anchors; at most a quarter of the rows, and fewer if they would exceed 32 MiB.")
    ] = 300
    anchor_neighbors: Annotated[int, Param("Number of nearest anchors to which a row belongs.")] = 3
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
            'Length of the gradient steps. "blockwise": G, H, V and B each have a Lipschitz constant of their '
            'own, and the objective never rises. "fixed": Algorithm 1 as printed, one length for all and a '
            "random start near 0, for `max_iter` iterations; on real data the factors hardly move."
        ),
    ] = "blockwise"
    eta: Annotated[
        float | None,
        Param('Length of the steps of "fixed"; by default the largest that is stable for factors of size 1.', above=0),
    ] = None
    omega: Annotated[float, Param('Bound of the entries of the random start of "fixed".', above=0)] = 1e-05
    weight_steps: Annotated[
        int | None,
        Param('Number of steps of G and H in one iteration of "blockwise"; by default 5 where X\'X is formed, else 1.'),
    ] = None
    label_steps: Annotated[
        int, Param('Number of steps of B, and with the exact graph of V, in one iteration of "blockwise".')
    ] = 5
    gram_cap: Annotated[int, Param("Largest number of features for which X'X is formed.", least=0)] = 4096
    tol: Annotated[float, Param('Relative change of the objective in one iteration at which "blockwise" stops.')] = (
        0.001
    )
    max_iter: MaxIter = 100
    steps_per_pass: StepsPerPass = 4
    missing: Missing = "error"
    random_state: Annotated[
        Seed,
        seed_of(
            "the sample of rows and of its k-means, from which the anchors come, and of the random start of the "
            "fixed form; 0 by default"
        ),
    ] = None

    name = "mFSIR"
    known_entries = fills_pairs = True
    records = Fixed, At
    predicts = LatentSums
    factors = 0.3, 1.5
    published = "step", "fixed"
    typical_iterations = TYPICAL_ITERATIONS
    passes = "2 + 1 an iteration (above the Gram cap 3 to 9 more); with the exact graph 1"
    memory = (
        "worker: 8 bytes * (2 d l + d q + 3 d m) (8 d² more below the Gram cap); driver: the same and 80 d l bytes; "
        "with the exact graph the driver holds X, 8 d² and n * (48 l + 32 p) bytes"
    )

    def latent(self, q: int) -> int:
        if self.n_latent is None:
            return q // 2 + 1  # the paper asks only for l < q
        if self.n_latent > q:
            raise UsageError(f"{parameter('n_latent')} is {self.n_latent}, but there are {q} labels; give at most {q}")
        return int(self.n_latent)

    def weight_steps_of(self, d: int) -> int:
        if self.weight_steps is not None:
            return int(self.weight_steps)
        return 5 if d <= self.gram_cap else 1  # without X'X a step lowers an upper bound of the objective

    # ------------------------------------------------------------------ what it costs

    setup_workspace = "sample + 4 m d"  # k-means
    workspace = "6 d l"  # W, X'V, X'X W and their successors

    def sizes(self, profile: Profile) -> dict[str, int]:
        d, q = profile.d, profile.q
        m = AnchorGraph.of(self, profile).count if self.beta > 0 else 0
        g = d if d <= self.gram_cap else 0
        return {"d": d, "q": q, "l": self.latent(q), "m": m, "g": g, "u": d - g}

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        statistics, sizes = super().reads(profile), self.sizes(profile)
        if sizes["m"]:
            statistics["sample"] = AnchorGraph.of(self, profile).sample
        if sizes["g"]:
            statistics["gram"] = Gram(profile.d)
        return statistics

    def iterations_on(self, profile: Profile) -> tuple[int, int]:
        predicts = self.steps_per_pass > 1 and not self._holds_rows(profile.n)
        return TYPICAL_PASSES if predicts else TYPICAL_ITERATIONS

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        d, m, has_gram = profile.d, len(fixed.centres), len(fixed.gram) > 0
        start = Reading(START, (self._start_rows(fixed, placeholder(len(fixed.pairs), 2 * len(at.B))),))
        block = min(spectral.BLOCK, d)
        product = NormalProduct(fixed.scaling, placeholder(d, block))
        products = Reading(
            EIGENVALUE, (product,), times=spectral.MAX_PRODUCTS, typical=TYPICAL_PRODUCTS, workspace="2 d krylov"
        )
        graph = AnchorGraph.of(self, profile)
        n_rows = len(graph.sample.chosen)
        return Cost(
            steps=[*([] if has_gram else [products]), start],
            sizes={
                "krylov": block * spectral.MAX_PRODUCTS,
                # Points, those without their last digits, and what the search for their neighbours takes.
                "sample": graph.sample_numbers + numbers(n_rows * point_bytes(profile)) if m else 0,
            },
            # For the bandwidth of the heat kernel neighbours are searched among the sample.
            compiled=m > 0 and compiles_search(n_rows**2, sparse=profile.sparse),
            loads_sklearn=m > 0,
            notes=[
                f"{m} anchors",
                *([] if has_gram else [f"X'X is not formed: {d:,} features are more than {self.gram_cap:,}"]),
            ],
        )

    def _compiles_exact_search(self, profile: Profile) -> bool:
        return self.beta > 0 and super()._compiles_exact_search(profile)

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        neighbors = min(self.n_neighbors, profile.n - 1) if self.beta > 0 else 0
        sizes = {"l": self.latent(profile.q), "k": neighbors}
        workspace = join_terms(
            matrix.workspace(sparse=profile.sparse),
            f"y + {blockwise.ROW_MATRICES} n l + {blockwise.FEATURE_MATRICES} d l",
            f"{2 * spectral.BLOCK * spectral.MAX_PRODUCTS} d",  # the search of λ_max
            "d d" if profile.d <= self.gram_cap else "",
            join_terms(graphs.workspace(), "4 n k") if self.beta > 0 else "",
        )
        return workspace, sizes

    # ------------------------------------------------------------------ the method

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        moments, sample, gram = results["moments"], results.pop("sample", None), results.get("gram")
        scaling, profile = standard_scaling(moments), job.source.profile
        d = profile.d
        centres, weight, places = np.empty((0, d)), 0.0, np.arange(d)
        if sample is not None:
            places = key_places(sample.X, scaling.factor > 0)
            anchors, weight = self._place_anchors(sample, AnchorGraph.of(self, profile), scaling)
            centres = anchors.centres
        G = np.empty((0, 0)) if gram is None else scale_gram(gram, scaling.factor)
        labels = results["labels"]
        pairs, share = labels.pairs.astype(np.float64), labels.shares(profile.n)
        none = np.empty((0, 0))
        fixed = Fixed(scaling.centre, scaling.factor, places, centres, G, pairs, share, weight, profile.n, *(none,) * 4)
        results["first"] = _, sums = first_factors(
            pairs, self.latent(len(pairs)), lambda both: job.run(START, self._start_rows(fixed, both))[0]
        )
        return replace(fixed, XY=sums.XY, ZX=sums.ZX, ZY=sums.ZY, ZZ=sums.ZZ)

    def _place_anchors(self, sample: SampledRows, graph: AnchorGraph, scaling: Scaling) -> tuple[Anchors, float]:
        """Return anchors by k-means, and γ = βc with the mean degree c of the graph of Eq. 6 on the sample."""
        anchors, points = graph.place(sample.X, scaling), standardised_points(sample.X, scaling)
        # The mean squared distance over all pairs is 2 Σ var_f, and a standardised feature has variance 1.
        width = 2.0 * float((scaling.factor > 0).sum()) if self.lambda_ is None else float(self.lambda_) ** 2
        gamma = float(self.beta) * mean_degree(points, self.n_neighbors, width)
        return anchors, gamma

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        """Return the b of a non-negative factorisation of Y, and steps from G = 1 and H = 0 for the V of this
        factorisation.

        All features begin alike and weights may take either sign; a random start would show in the ranking. The size of
        G does not matter: the step of each factor is scaled by the size of the other.
        """
        d = len(fixed.centre)
        B, sums = results["first"]

        def normal(Q: Array) -> Array:
            product: Array = (
                fixed.gram @ Q if len(fixed.gram) else job.run(EIGENVALUE, NormalProduct(fixed.scaling, Q))[0]
            )
            return product

        rho = spectral.largest_eigenvalue(normal, spectral.starting_block(fixed.places, fixed.factor > 0))
        none = np.zeros((d - len(fixed.gram), len(B)))
        at = At(np.ones((d, len(B))), np.zeros((d, len(B))), B, anchor_values(sums.ZV, sums.masses), rho, none, none)
        return self._step(fixed, at, sums)

    def _rows(self, fixed: Fixed, W: Array, B: Array, U: Array, start: Array | None = None) -> Statistic:
        anchors = None
        if len(fixed.centres):
            anchors = Anchors(fixed.centres, fixed.centre, fixed.factor, self.anchor_neighbors)
        alpha, with_normal = float(self.alpha), start is None and not len(fixed.gram)
        first = start is not None
        rows = LatentRows(fixed.scaling, anchors, W, B, U, alpha, fixed.weight, start, with_normal, moments=first)
        return AtShares(rows, fixed.share)

    def _start_rows(self, fixed: Fixed, both: Array) -> Statistic:
        """Return the statistic of the first V, max(Y both, 0)."""
        d, q, m = len(fixed.centre), len(fixed.pairs), len(fixed.centres)
        return self._rows(fixed, np.zeros((d, 0)), np.zeros((0, q)), np.zeros((m, 0)), both)

    def rows(self, fixed: Fixed, at: At) -> Statistic:
        return self._rows(fixed, at.W, at.B, at.U)  # V, row by row

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        """Return Eq. 8 with the smoothness over anchors as its last term, and the residual."""
        rows: LatentSums = sums[0]
        B, U, fit, size = at.B, at.U, float(rows.fit[0]), float(np.trace(rows.VV))
        squares = float(np.trace(fixed.pairs))
        # ‖Y − VB‖² and Σ z_ia ‖v_i − u_a‖² from small matrices.
        decomposition = max(0.0, squares - 2 * float(np.vdot(B, rows.VY)) + float(np.vdot(B @ B.T, rows.VV)))
        smoothness = 0.0
        if len(U):
            lengths = np.einsum("ij,ij->i", U, U)
            smoothness = max(0.0, size - 2 * float(np.vdot(U, rows.ZV)) + float(rows.masses @ lengths))
        value = fit + float(self.alpha) * decomposition + fixed.weight * smoothness
        return {"objective": value, "residual": float(np.sqrt(fit / size)) if size > 0 else 0.0}

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        rows: LatentSums = sums[0]
        U = anchor_values(rows.ZV, rows.masses, at.U)
        before, image, values = at.before, at.image, trace.values
        if rows.XXW.size and len(values.get("step", ())) == sum(values.get("steps", ())):  # sums of a pass
            before, image = at.W, rows.XXW
        after = self._step(fixed, replace(at, U=U, before=before, image=image), rows)
        W = after.W
        trace.record(step=ratio(np.linalg.norm(W - at.W), np.linalg.norm(W)))
        return after

    def predict(self, fixed: Fixed, at: At, sums: LatentSums, after: At) -> dict[str, Array] | None:
        """Return the change of the sums of latent labels v = M r, where M is the mean inverse of Q on the labels that
        are not 0.

        Above the Gram cap the change of W is taken for one along W and its change in the last pass, of which X'X times
        it is known: in fits of real sets half of the updates lie there to at least 0.97 of their squared norm.
        """
        alpha, gamma, identity = float(self.alpha), fixed.weight, np.eye(len(at.B))
        W = at.W
        dW, dB, dU = after.W - W, after.B - at.B, after.U - at.U
        Q = latent_system(identity, at.B, alpha, gamma)
        dQ = latent_system(identity, after.B, alpha, gamma) - Q
        M = np.linalg.inv(Q) * (sums.active / fixed.n)

        if len(fixed.gram):
            image, of_image = fixed.gram @ dW, {}
        else:
            S = np.concatenate([W, W - at.before], axis=1)
            along, back = np.split(np.linalg.pinv(S.T @ S, rcond=1e-12, hermitian=True) @ (S.T @ dW), 2)
            image = sums.XXW @ (along + back) - at.image @ back
            of_image = {"XXW": image}

        def change(XdW: Array, Y: Array, Z: Array, V: Array) -> Array:
            """Return the change of L'V from products of L with X dW, Y, Z and V."""
            return np.asarray(XdW @ M + Y @ (alpha * dB.T @ M) + Z @ (gamma * dU @ M) - V @ (dQ @ M))

        half = change(sums.XV.T @ dW, sums.VY, sums.ZV.T, sums.VV)
        return {
            **of_image,
            "XV": change(image, fixed.XY, fixed.ZX.T, sums.XV),
            "ZV": change(fixed.ZX @ dW, fixed.ZY, fixed.ZZ, sums.ZV),
            "VY": change(fixed.XY.T @ dW, fixed.pairs, fixed.ZY.T, sums.VY.T).T,
            "VV": half + half.T,
        }

    def steps_to(self, trace: LoopTrace) -> int:
        """Return no more than about those left, and few at first, where labels become 0 and predictions are worst."""
        left = min(max(2.0, round(self._steps_left(trace), 0)), 1.0 + trace.iterations)
        return int(min(self.steps_per_pass, left))

    def has_converged(self, fixed: Fixed, at: At, trace: LoopTrace) -> bool:
        if self.steps_per_pass > 1:
            return self._steps_left(trace) < 1.0 or ranking_settled(trace)
        return super().has_converged(fixed, at, trace)

    def _steps_left(self, trace: LoopTrace) -> float:
        """Return the steps until one changes the objective by `tol`; those of a pass change it in a geometric series.

        The number of steps is what regularises the weights: it has to be about that of the plain loop.
        """
        if trace.change <= self.tol * (steps := trace.values.get("steps", [1.0]))[-1]:
            return 0.0
        if len(steps) < 2 or self.tol == 0:
            return float(self.steps_per_pass)
        before, last = np.abs(np.diff(trace.objective[-3:])) / trace.objective[-3:-1] / steps[-2:]
        slope = np.log(before / last) / (sum(steps[-2:]) / 2) if before > last else 0.0
        return float(np.log(last / self.tol) / slope - steps[-1] / 2) if slope > 0 else float(self.steps_per_pass)

    def _step(self, fixed: Fixed, at: At, sums: LatentSums) -> At:
        """Return the steps of B, G and H for the V of `sums`."""
        B, gram = at.B, fixed.gram if len(fixed.gram) else None
        values, vectors = np.linalg.eigh((sums.VV + sums.VV.T) / 2)
        if values[0] < 0:  # of predicted sums
            sums = sums._replace(VV=(vectors * np.maximum(values, 0.0)) @ vectors.T)
        constant = float(values[-1])
        for _ in range(self.label_steps if self.alpha > 0 and constant > 0 else 0):
            B = unit_rows(B - (sums.VV @ B - sums.VY) / constant)
        factors = Factors(at.G, at.H, np.empty((0, 0)), B)
        normal = _normal_products(at.W, sums, gram, at.rho)
        descend(factors, sums.XV, at.rho, self.weight_steps_of(len(at.G)), normal)
        return replace(at, G=factors.G, H=factors.H, B=B)

    def facts(self, fixed: Fixed, at: At) -> dict[str, Any]:
        graph = None
        if m := len(fixed.centres):
            neighbors = min(self.anchor_neighbors, max(m - 1, 1))
            graph = {"kind": "anchors", "anchors": m, "anchor_neighbors": neighbors, "weight": fixed.weight}
        return {"n_latent": len(at.B), "rho": at.rho, "gram": len(fixed.gram) > 0, "graph": graph}

    def _fit_exactly(self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
        """Fit mFSIR.

        Raises
        ------
        MlfsError
            The fixed form diverges.
        """
        n, d = X.shape
        features = ScaledMatrix(X, moments)
        labels = sp.csr_array(Y, dtype=np.float64)
        laplacian = None
        if self.beta > 0 and n > 1:
            laplacian = _laplacian(features, self.n_neighbors, self.lambda_)
        gram = features.gram() if d <= self.gram_cap else None

        def normal(W: Array) -> Array:
            return features.backward(features.forward(W)) if gram is None else np.asarray(gram @ W)

        weights = float(self.alpha), float(self.beta)
        problem = Problem(labels, laplacian, features.forward, features.backward, normal, *weights)

        checkpoint = checkpoints.current()
        state = checkpoint.load()
        if state is None:
            at, trace = _start(self, labels, d), LoopTrace()
            rho = spectral.largest_eigenvalue(
                normal, spectral.starting_block(key_places(X, moments.m2 > 0), moments.m2 > 0)
            )
        else:
            at = Factors(**{name: state.arrays[name] for name in ("G", "H", "V", "B")})
            trace, rho = LoopTrace(**state.facts["trace"]), float(state.facts["rho"])

        def save(at: Factors, trace: LoopTrace) -> None:
            save_if_due(checkpoint, vars(at), trace, rho=rho)

        extra: dict[str, Any] = {
            "n_latent": at.V.shape[1],
            "rho": rho,
            "gram": d <= self.gram_cap,
            "graph": None if laplacian is None else {"kind": "exact"},
        }
        loop: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "save": save}
        if self.step == "fixed":
            extra["eta"] = _stable_step(problem, rho) if self.eta is None else float(self.eta)
            blockwise.solve_fixed(problem, at, trace, eta=extra["eta"], **loop)
            return ExactFit(row_norms(at.W), trace, extra)
        loop |= {"weight_steps": self.weight_steps_of(d), "label_steps": self.label_steps, "rho": rho}
        blockwise.solve_blockwise(problem, at, trace, **loop)
        return ExactFit(row_norms(at.W), trace, extra)

    @property
    def without_positives(self) -> str:
        counts = f" and counts in {parameter('n_latent')}, half of the labels and one more: leave it out of Y"
        return f"Such a label has no effect on the scores{counts if self.n_latent is None else ''}."

    @property
    def stops_early(self) -> bool:
        return self.step == "blockwise"

    def _warnings(self, trace: LoopTrace, scores: Array, facts: Mapping[str, Any]) -> list[Warning]:
        # The fixed form makes all iterations.
        return [] if self.step == "fixed" and scores.any() else super()._warnings(trace, scores, facts)


def _normal_products(W: Array, sums: LatentSums, gram: Array | None, rho: float) -> Callable[[Array], Array]:
    """Return a function that multiplies by X'X.

    Without X'X the function takes M to X'X W + ρ(M − W): gradients are then those of an upper bound of ‖X M − V‖² that
    touches it at M = W.
    """
    if gram is not None:
        return gram.__matmul__
    offset = (sums.XXW if sums.XXW.size else 0.0) - rho * W  # at the start W is 0
    return lambda moved: offset + rho * moved


# ---------------------------------------------------------------------- with all rows in memory


def _laplacian(features: ScaledMatrix, n_neighbors: int, lambda_: float | None) -> Laplacian:
    """Return L of Eq. 5 for the graph of Eq. 6."""
    distances = nearest_rows(features.rows, n_neighbors).to_csr()
    # The mean squared distance over all pairs is 2 Σ var_f, and a standardised feature has variance 1.
    mean = 2.0 * float((features.factor > 0).sum())
    return Laplacian(heat_kernel_graph(distances, mean if lambda_ is None else float(lambda_) ** 2))


def _start(method: MFSIR, Y: sp.csr_array, d: int) -> Factors:
    """Return G, H, V and B to start from."""
    n, q = Y.shape
    n_latent, omega = method.latent(q), method.omega
    if method.step == "fixed":
        shapes = (d, n_latent), (d, n_latent), (n, n_latent), (n_latent, q)
        seeds = np.random.SeedSequence(method.seed).spawn(4)
        draws = (np.random.default_rng(s).uniform(-omega, omega, shape) for s, shape in zip(seeds, shapes, strict=True))
        return Factors(*draws)
    T, B = nonnegative_factors(Y, n_latent)
    V = np.maximum(np.asarray(Y @ T), 0.0)
    # All features begin alike and weights may take either sign; a random start would show in the ranking. The size of G
    # does not matter: the step of each factor is scaled by the size of the other.
    return Factors(np.ones((d, len(B))), np.zeros((d, len(B))), V, B)


def _stable_step(problem: Problem, rho: float) -> float:
    """Return 1 over the largest Lipschitz constant of the four blocks, their factors being of size 1."""
    pairs = (problem.Y.T @ problem.Y).toarray()
    degree = 0.0 if problem.laplacian is None else float(problem.laplacian.degrees.max(initial=0.0))
    smooth = 1.0 + problem.alpha + 2.0 * problem.beta * degree
    return 0.5 / max(rho, smooth, problem.alpha * float(np.linalg.eigvalsh(pairs)[-1]))
