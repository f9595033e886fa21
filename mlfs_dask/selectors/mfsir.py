"""mFSIR: features whose weights grow under implicit regularisation (Mansouri, Benabdeslem & Benkabou).

Labels are seen through a few non-negative latent variables V, smooth over near rows, and features are regressed on V
with weights G⊙H. V, B and a sparse neighbour graph stay on the driver; X is read for the graph, for X'X (or for a few
products with it), and twice an iteration.

D. E. K. Mansouri, K. Benabdeslem, S.-E. Benkabou, "Implicit regularization for multi-label feature selection",
arXiv:2411.11436, doi:10.48550/arXiv.2411.11436.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import checkpoints
from mlfs_dask.blocks.factorisation import nonnegative_factors
from mlfs_dask.blocks.heat_kernel import heat_kernel_graph
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.checkpoints import Checkpoint, State
from mlfs_dask.errors import UsageError
from mlfs_dask.primitives import linear
from mlfs_dask.primitives.gram import GRAM_CAP, Gram
from mlfs_dask.primitives.graphs import plan_row_graph, row_graph
from mlfs_dask.primitives.labels import WithLabels
from mlfs_dask.primitives.linear import Scaling, standard_scaling
from mlfs_dask.primitives.moments import Moments
from mlfs_dask.primitives.neighbours import GraphKind, recall_warnings
from mlfs_dask.primitives.passes import PassRecord
from mlfs_dask.primitives.plan import Phase, Plan
from mlfs_dask.primitives.row_passes import plan_rows
from mlfs_dask.row_arrays import (
    RowSpace,
    fill,
    graph_bytes,
    graph_of,
    graph_rows,
    product_compiles,
    row_blocks,
    slab_bytes,
)
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.base import Scores, never_positive_warnings
from mlfs_dask.selectors.estimator import ConvergenceWarning
from mlfs_dask.selectors.iterative import (
    IterativeSelector,
    Readings,
    load_state,
    plan_loop,
    row_space,
    save_state,
)
from mlfs_dask.selectors.options import check_parameters
from mlfs_dask.solvers import blockwise, spectral
from mlfs_dask.solvers.blockwise import Factors, Problem, Snapshot, Trace
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.typing import Profile, RowSource

Array = NDArray[np.float64]

#: Steps of G and of H in one iteration: with X'X at hand they cost no reading, without it each takes one.
GRAM_STEPS = 5
READING_STEPS = 1

#: Steps of V and of B in one iteration; they read no data.
LABEL_STEPS = 5

#: Iterations that fourteen fits of seven real sets took, least and most (`benchmarks/gram.py`).
TYPICAL_ITERATIONS = (11, 46)

#: Most readings that finding λ_max(X'X) takes where there is no X'X.
_SPECTRAL_READINGS = spectral.MAX_PRODUCTS


class MFSIR(IterativeSelector):
    """Multi-label feature selection by implicit regularisation (Mansouri, Benabdeslem & Benkabou 2024).

    Regresses latent labels V, found with Y ≈ VB and smooth over near rows, on the features with weights G⊙H (Eq. 8).
    The product of two factors and the early stop take the place of a penalty. A feature's score is the norm of its
    row of G⊙H.

    Parameters
    ----------
    n_features_to_select : int or float, optional
        Number of features to keep, or a fraction of them; half by default.
    alpha : float
        Weight of the factorisation Y ≈ VB.
    beta : float
        Weight of the smoothness of V over near rows; 0 spares the neighbour search.
    n_latent : int, optional
        Latent labels, from 1 to the number of labels; half of the labels, and one more, by default.
    n_neighbors : int
        Nearest rows of a row in the graph.
    graph : {"exact", "approximate", "auto"}
        Whether the nearest rows are found exactly. "auto": exactly up to 4 · 10¹² multiplications (100 000 rows of 400
        features), beyond that approximately; the share of true neighbours is measured, kept in the record, and warned
        of below 90 %.
    lambda_ : float, optional
        Width λ of the heat kernel exp(−d²/λ²), on standardised features; by default its square is the mean squared
        distance over all pairs of rows.
    step : {"blockwise", "fixed"}
        "blockwise": G, H, V and B move by the Lipschitz constant of their own, so that the objective never rises.
        "fixed": Algorithm 1 as printed, one step for all and a random start near 0, for max_iter iterations; on real
        data it hardly moves.
    eta : float, optional
        The one step of the fixed form; by default the largest that is stable for factors of size 1.
    omega : float
        Bound of the random start of the fixed form.
    weight_steps : int, optional
        Steps of G and H in one blockwise iteration; 5 by default where X'X is formed, and 1 where it is not, since
        each then takes a reading of the data.
    label_steps : int
        Steps of V and B in one blockwise iteration.
    gram_cap : int
        Most features for which X'X is formed; above it every step reads the data.
    tol : float
        Relative change of the objective in one iteration at which the blockwise form stops.
    max_iter : int
        Most iterations.
    random_state : int, optional
        Seed of an approximate graph, and of the random start of the fixed form; the blockwise form draws nothing
        else.

    Notes
    -----
    Features are standardised with the population standard deviation, by algebra where X is sparse. Readings of X: one
    for moments, one for every group of rows of the neighbour search (two more if it is approximate), one for X'X, and
    two an iteration; above gram_cap instead of X'X some five to ten to find its largest eigenvalue, and three an
    iteration.

    With l latent labels and p neighbours the driver holds about 24 n l + 52 n p bytes and 13 a positive label, 0.7 to
    1.2 kB a row at least in an approximate search, and 16 d² where X'X is formed. Unknown labels (-1) and missing
    features are refused.

    What the blockwise form changes: steps by block, rows of V being blocks of their own; a balanced start G = 1,
    H = 0, by which all features begin alike and weights may have either sign; V and B from a factorisation of Y that
    draws nothing; rows of B of norm 1, without which (tW, tV, B/t) lowers the objective for ever; an absolute value
    in the rule to stop.

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

    method = "mfsir"
    title = "Implicit regularisation with latent labels"
    paper = "Mansouri, Benabdeslem & Benkabou 2024, arXiv:2411.11436"
    doi = "10.48550/arXiv.2411.11436"
    supervision = "supervised"
    passes = "1 + groups of the neighbour search + 1 + 2 an iteration (above the Gram cap 3, and some 10 at first)"
    memory = (
        "worker: 8 bytes * d² (or d * l above the Gram cap); driver: n * (24 l + 52 p) + 16 d² bytes, at least "
        "n * (4 min(d, 128) + 650) in an approximate search"
    )

    def __init__(
        self,
        n_features_to_select: int | float | None = None,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        n_latent: int | None = None,
        n_neighbors: int = 5,
        graph: GraphKind = "auto",
        lambda_: float | None = None,
        step: Literal["blockwise", "fixed"] = "blockwise",
        eta: float | None = None,
        omega: float = 1e-5,
        weight_steps: int | None = None,
        label_steps: int = LABEL_STEPS,
        gram_cap: int = GRAM_CAP,
        tol: float = 1e-3,
        max_iter: int = 100,
        random_state: int | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.alpha = alpha
        self.beta = beta
        self.n_latent = n_latent
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.lambda_ = lambda_
        self.step = step
        self.eta = eta
        self.omega = omega
        self.weight_steps = weight_steps
        self.label_steps = label_steps
        self.gram_cap = gram_cap
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        least = {"gram_cap": 0, "random_state": 0}
        check_parameters(self, positive=("lambda_", "eta", "omega"), least=least)

    def _latent(self, q: int) -> int:
        if self.n_latent is None:
            return q // 2 + 1  # the paper leaves it open but for l < q
        if self.n_latent > q:
            raise UsageError(f"n_latent is {self.n_latent}, but there are {q} labels; give at most {q}")
        return int(self.n_latent)

    def _steps(self, d: int) -> int:
        if self.step == "fixed":
            return 1
        if self.weight_steps is not None:
            return int(self.weight_steps)
        return GRAM_STEPS if d <= self.gram_cap else READING_STEPS

    # ------------------------------------------------------------------ what it costs

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """The readings of `max_iter` iterations, and what the loop holds on the driver.

        Raises
        ------
        DoesNotFitError
        """
        profile = source if isinstance(source, Profile) else source.profile
        n, d, q = profile.n, profile.d, profile.q
        most, k = self._latent(q), min(self.n_neighbors, profile.n - 1)
        once = [plan_rows(source, WithLabels(Moments(d), q), resources)]
        more_readings, graph_notes, compiled = 0, [], False
        features = 8 * d * most * blockwise.FEATURE_MATRICES
        features += 16 * d * d if d <= self.gram_cap else 16 * d * spectral.BLOCK * _SPECTRAL_READINGS
        loop = Phase(features, 8 * n * most * blockwise.ROW_MATRICES, slab_bytes(n, most))
        phases = [loop]
        if self._has_graph(n):
            graph = plan_row_graph(source, k, resources, kind=self.graph)
            once += graph.passes
            made, making, kept = graph_bytes(n, k)
            more_readings, graph_notes = graph.readings - len(graph.passes), [graph.note]
            compiled = graph.compiled or product_compiles(n, k, most)
            loop = loop._replace(row_bytes=loop.row_bytes + kept)
            phases = [*graph.phases, Phase(made, making), loop]
        forward = linear.plan_linear(source, most, resources, forward=True)
        backward = linear.plan_linear(source, most, resources, backward=True)
        if d <= self.gram_cap:
            once += [plan_rows(source, Gram(d, most), resources, input_bytes=8 * most), forward]
            again, times = [forward, backward], self.max_iter - 1
        else:
            both = linear.plan_linear(source, max(most, spectral.BLOCK), resources, forward=True, backward=True)
            once += [both] * (_SPECTRAL_READINGS + 1)
            again, times = [both] * (2 * self._steps(d)) + [backward], self.max_iter
        held = n * q // 4 + 13 * profile.label_nonzeros + 16 * n + 24 * q * q
        each = 2 if d <= self.gram_cap else 2 * self._steps(d) + 1
        few, many = TYPICAL_ITERATIONS
        notes = [
            f"real data took {few} to {many} iterations of {each} readings; at most {self.max_iter}",
            *graph_notes,
        ]
        if d > self.gram_cap:
            notes.append(f"X'X is not formed: {d:,} features are more than {self.gram_cap:,}")
        return plan_loop(
            resources,
            once=once,
            again=again,
            times=times,
            typical=TYPICAL_ITERATIONS,
            held=held,
            phases=phases,
            compiled=compiled,
            notes=notes,
            more_readings=more_readings,
            message_shape=(n, d, most),
        )

    def _has_graph(self, n: int) -> bool:
        return self.beta > 0 and n > 1

    # ------------------------------------------------------------------ the method

    def _score(self, source: RowSource, resources: Resources, k: int) -> Scores:
        d, checkpoint = source.profile.d, checkpoints.current()
        labels, moments, records = self._labels_and_moments(source, resources)
        scaling = standard_scaling(moments)
        Y = labels.astype(np.float64)
        space = row_space(self.plan(source, resources))
        L, graph = self._graph(source, resources, scaling, records, space)
        state = load_state(checkpoint, records, rows=("V",))

        V, B = self._labels_start(Y, space)
        products = _Products(Readings(source, resources, scaling, records), space)
        C = np.empty((0, 0))  # X'V, which a loop that goes on finds anew
        if d <= self.gram_cap:
            C = products.form_gram(V)
        elif state is None:
            C = products.backward(V)
        rho = products.largest_eigenvalue(d) if state is None else float(state.facts["first_rho"])

        problem = Problem(Y, L, products, float(self.alpha), float(self.beta), space)
        extra: dict[str, Any] = {"n_latent": V.shape[1], "rho": rho, "gram": d <= self.gram_cap}
        extra["graph"] = graph
        extra["constant_features"] = int((scaling.factor == 0).sum())
        loop: dict[str, Any] = {
            "tol": self.tol,
            "max_iter": self.max_iter,
            "resume": None if state is None else _snapshot(state, V),
            "keep": functools.partial(_save, checkpoint, records, rho),
        }
        told = recall_warnings(graph)
        if self.step == "fixed":
            told += self._never_positive(labels)
            eta = extra["eta"] = self._stable_step(problem, rho) if self.eta is None else float(self.eta)
            found, trace = blockwise.solve_fixed(problem, self._weights_start(d, V, B), C, eta=eta, **loop)
            return self._result(row_norms(found.W), trace, records, extra, told)
        found, trace = blockwise.solve_blockwise(
            problem,
            self._weights_start(d, V, B),
            C,
            rho=rho,
            weight_steps=self._steps(d),
            label_steps=self.label_steps,
            **loop,
        )
        told += self._warnings(labels, trace, found)
        return self._result(row_norms(found.W), trace, records, extra, told)

    def _graph(
        self,
        source: RowSource,
        resources: Resources,
        scaling: Scaling,
        records: list[PassRecord],
        space: RowSpace,
    ) -> tuple[Laplacian | None, dict[str, Any] | None]:
        """L of Eq. 5 for the graph of Eq. 6, and what is known of the graph."""
        n = source.profile.n
        if not self._has_graph(n):
            return None, None

        graph = row_graph(
            source,
            self.n_neighbors,
            resources,
            kind=self.graph,
            scaling=scaling,
            seed=int(self.random_state or 0),
            space=RowSpace(space.folder),  # whose files go when it is done
        )
        records.extend(graph.records)
        # The mean squared distance over all pairs is 2 Σ var_f, and a standardised feature has variance 1.
        mean = 2.0 * float((scaling.factor > 0).sum())
        width = mean if self.lambda_ is None else float(self.lambda_) ** 2
        distances = graph.neighbours.to_csr(space=RowSpace(space.folder))
        weigh = functools.partial(heat_kernel_graph, width=width)
        return Laplacian(graph_of(distances, lambda S, T, part: weigh(S, backward=T), space)), graph.facts

    def _labels_start(self, Y: sp.csr_array, space: RowSpace) -> tuple[Array, Array]:
        n, q = Y.shape
        most = self._latent(q)
        if self.step == "blockwise":
            T, B = nonnegative_factors(Y, most)
            V = space.empty(n, len(B))
            for part in row_blocks(*V.shape):
                np.maximum(graph_rows(Y, part) @ T, 0.0, out=V[part])
            return V, B
        _, _, rows, columns = self._seeds()
        return self._draw(rows, space.empty(n, most)), self._draw(columns, np.empty((most, q)))

    def _weights_start(self, d: int, V: Array, B: Array) -> Factors:
        most = V.shape[1]
        if self.step == "blockwise":
            # Balanced: signs are free and features begin alike; random draws would leave theirs in the ranking. The
            # size does not matter, since each factor moves by a constant that belongs to the size of the other.
            return Factors(np.ones((d, most)), np.zeros((d, most)), V, B)
        first, second, _, _ = self._seeds()
        return Factors(self._draw(first, np.empty((d, most))), self._draw(second, np.empty((d, most))), V, B)

    def _seeds(self) -> list[np.random.SeedSequence]:
        return np.random.SeedSequence(self.random_state).spawn(4)

    def _draw(self, seed: np.random.SeedSequence, out: Array) -> Array:
        """Unif(−ϖ, ϖ) into `out`, row after row: the draws of a row do not depend on how the data is cut."""
        random = np.random.default_rng(seed)
        for part in row_blocks(*out.shape):
            out[part] = random.uniform(-self.omega, self.omega, size=out[part].shape)
        return out

    def _stable_step(self, problem: Problem, rho: float) -> float:
        """1 over the largest Lipschitz constant of the four blocks, their factors being of size 1."""
        pairs = (problem.Y.T @ problem.Y).toarray()
        smooth = 1.0 + problem.alpha + 2.0 * problem.beta * problem.largest_degree
        return 0.5 / max(rho, smooth, problem.alpha * float(np.linalg.eigvalsh(pairs)[-1]))

    def _never_positive(self, labels: sp.csr_array) -> list[Warning]:
        counts = " and counts in n_latent, half of the labels and one more: leave it out of Y"
        consequence = f"Such a label tells nothing of any feature{counts if self.n_latent is None else ''}."
        return never_positive_warnings(self, "mFSIR", labels, consequence)

    def _warnings(self, labels: sp.csr_array, trace: Trace, found: Factors) -> list[Warning]:
        if not found.H.any():
            return [
                UserWarning(
                    "mFSIR can tell no feature from another: every feature is constant, or no label differs between "
                    "rows. All features get the same score."
                )
            ]
        told = self._never_positive(labels)
        if not trace.converged:
            told.append(
                ConvergenceWarning(
                    f"mFSIR did not converge in {self.max_iter} iterations (the last one lowered the objective by more "
                    f"than {self.tol:g} of it). Increase max_iter, or tol."
                )
            )
        return told


def _save(checkpoint: Checkpoint, records: list[PassRecord], first_rho: float, snapshot: Snapshot) -> None:
    if checkpoint.due():
        arrays = {**vars(snapshot.at), "W": snapshot.W, "XXW": snapshot.XXW}
        save_state(checkpoint, arrays, snapshot.trace, records, rho=snapshot.rho, first_rho=first_rho)


def _snapshot(state: State, V: Array) -> Snapshot:
    """The snapshot that `_save` kept, in the place of the V to start from."""
    fill(V, state.arrays["V"])
    factors = Factors(state.arrays["G"], state.arrays["H"], V, state.arrays["B"])
    trace = Trace(**state.facts["trace"])
    return Snapshot(factors, state.arrays["W"], state.arrays["XXW"], state.facts["rho"], trace)


class _Products:
    """Products with standardised X: through X'X where it is known, else by readings."""

    def __init__(self, readings: Readings, space: RowSpace) -> None:
        self._readings = readings
        self._space = space
        self._gram: Array | None = None
        self._XW: Array | None = None
        self._last: Array | None = None

    def form_gram(self, V: Array) -> Array:
        """Find X'X, to be used from then on; gives X'V."""
        self._gram, C = self._readings.gram(V)
        return C

    def largest_eigenvalue(self, d: int) -> float:
        """ρ of X'X."""
        return spectral.largest_eigenvalue(lambda Q: self.normal(Q, last=False), d)

    def normal(self, W: Array, *, last: bool) -> Array:
        if self._gram is not None:
            return np.asarray(self._gram @ W)
        if not last:
            return self._readings.normal(W)
        _, XXW = self._readings.forward_normal(W, self._rows(W))
        self._last = W
        return XXW

    def forward(self, W: Array) -> Array:
        XW = self._rows(W)
        if self._last is W:
            return XW
        return self._readings.forward(W, XW) if W.any() else fill(XW, 0.0)

    def _rows(self, W: Array) -> Array:
        """The array of X W."""
        if self._XW is None:
            self._XW = self._space.empty(self._readings.source.profile.n, W.shape[1])
        return self._XW

    def backward(self, V: Array) -> Array:
        return self._readings.backward(V)
