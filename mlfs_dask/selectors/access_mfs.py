"""Access-MFS: features that predict labels which few rows have, graphs learnt on the way (Huang et al. 2024).

A regression with uncorrelated projections, predicted labels for all rows, and two adaptive graphs, one of rows and one
of labels, take turns until the objective stands still. Predicted labels and a sparse graph stay on the driver; X is
read for its moments, for X'X where that is small enough, and twice for every widening of the space in which the
projections are sought.

Y. Huang, L. Yang, D. Wang, K. Li, X. Yi, F. Lv, T. Li, "Adaptive Collaborative Correlation Learning-based
Semi-Supervised Multi-Label Feature Selection", arXiv:2406.12193 (2024), doi:10.48550/arXiv.2406.12193.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import checkpoints
from mlfs_dask.blocks.adaptive_graph import column_graph, neighbours_used, simplex_weights
from mlfs_dask.blocks.linear import laplacian_gram_bytes
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.checkpoints import Checkpoint, State
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.primitives import linear
from mlfs_dask.primitives.gram import GRAM_CAP, Gram
from mlfs_dask.primitives.graphs import point_graph_bytes
from mlfs_dask.primitives.labels import WithLabels
from mlfs_dask.primitives.linear import Scaling, standard_scaling
from mlfs_dask.primitives.moments import FeatureMoments, Moments
from mlfs_dask.primitives.moving_points import CANDIDATES, MovingPoints, exact_points
from mlfs_dask.primitives.neighbours import GraphKind, recall_warnings
from mlfs_dask.primitives.plan import Phase, Plan
from mlfs_dask.primitives.row_passes import plan_rows
from mlfs_dask.primitives.rows import ArrayRows
from mlfs_dask.row_arrays import (
    IN_MEMORY,
    RowSpace,
    centre,
    column_dots,
    column_sums,
    fill,
    graph_bytes,
    graph_of,
    graph_rows,
    inner,
    narrowed,
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
from mlfs_dask.solvers import label_propagation, uncorrelated
from mlfs_dask.solvers.alike_labels import AlikeLabels, alike_labels
from mlfs_dask.solvers.label_propagation import propagate_labels
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.solvers.uncorrelated import Block, DiagonalPreconditioner, GramPreconditioner, Subspace
from mlfs_dask.typing import Profile, RowSource

Array = NDArray[np.float64]

#: ε of D (below Eq. 9).
EPSILON = 1e-8

#: ε of D, what is added to the sum of a row's weights, and the change of the (log) objective that ends the loop, in the
#: authors' code.
PUBLISHED_EPSILON = 2.2e-16
PUBLISHED_SLACK = 0.01
PUBLISHED_TOL = 1e-2

#: Times the space may be widened for one W. With X'X at hand some six are enough.
MAX_EXPANSIONS = 100

#: Iterations that 21 of 24 fits of seven real sets took, and mean widenings in each (`benchmarks/gram.py`): with X'X,
#: without it, with R of rows in memory, and where the graph of rows is approximate, as on made-up rows
#: (`benchmarks/iterative.py`), with X'X and without it.
TYPICAL_ITERATIONS = (13, 80)
TYPICAL_EXPANSIONS = {
    "gram": (3, 8),
    "diagonal": (5, 42),
    "memory": (2, 4),
    "loose gram": (1, 2),
    "loose diagonal": (3, 12),
}

#: Change of W, relative to W, at which D is not iterated further.
SETTLED = 1e-6

#: Error that W may have by default, with which results are those of dense algebra.
TIGHTEST = 1e-7

#: The same where the graph of rows is approximate, relative to what W moved by in the iteration before; and its bound.
#: What solves leave keeps the objective from settling: on 20 000 x 500 planted rows, W being sought from the last one
#: alone, 31 iterations and 128 readings with 0.03, 55 and 124 with 0.1, and with 0.25 none of 100 was the last. Without
#: X'X a digit takes many more readings: on 20 000 x 10 000 sparse rows 17 iterations and 374 readings with 0.03, 25 and
#: 326 with 0.1; 0.25 took 134, but on other rows it came to rest too early.
SOLVED_SHARE = {"gram": 0.03, "diagonal": 0.1}
LOOSEST = {"gram": 1e-3, "diagonal": 0.01}

#: The same up to which no reading is made for a W, and the step from which on: the best in the span of the last two is
#: then mostly a third of the step from the solution. In a trial on 200 000 x 500 planted rows that left out every
#: other solve from the ninth on, 59 iterations took 74 readings for 126, and ended at the same objective to 8 digits.
UNREAD_SHARE = 0.5
STEADY = 0.02

#: A factor of R serves for another R until widenings beyond those with a new one have come to what a new one costs; but
#: not where so large a share of features has a ridge that has changed by more than half, or W made a larger step.
STALE_SHARE = 0.05
STALE_STEP = 0.1

#: Standard deviations that a feature's mean may be away from zero where X is taken as it is: half of its digits.
FAR = 1e4

#: Residual of the label step relative to the error that W may have.
LABEL_TOL = 0.1


class AccessMFS(IterativeSelector):
    """Adaptive collaborative correlation learning for semi-supervised selection (Huang et al. 2024).

    Regresses predicted labels F on the features with projections W that are uncorrelated and sparse in rows, while F
    keeps to the known labels and is smooth over a graph of rows and a graph of labels that are learnt with it (Eq. 8).
    A feature's score is the norm of its row of W.

    Parameters
    ----------
    n_features_to_select : int or float, optional
        Number of features to keep, or a fraction of them; half by default.
    variant : {"corrected", "published_code"}
        "corrected" is the paper's method with the slips of its equations mended. "published_code" does what the
        authors' program does, which stops after two or three iterations: see the notes.
    lambda_ : float
        Weight of the row-sparse penalty.
    theta : float
        Weight of smoothness over near rows; 0 spares their graph.
    mu : float
        Weight of smoothness over similar labels; 0 spares their graph.
    k_s : int
        Neighbours of a row in its graph.
    graph : {"exact", "approximate", "auto"}
        Whether the nearest rows are found exactly. "auto": exactly up to 2 · 10¹¹ multiplications an iteration
        (56 000 rows), beyond that approximately; the share of true neighbours is measured, kept in the record, and
        warned of below 90 %.
    k_p : int
        Neighbours of a label in its graph; at most the number of labels less two are used.
    missing : {"coded", "zeros"}
        Which labels are unknown. "coded": the entries -1. "zeros": those, and all labels of rows without a positive
        one, as in the paper's experiments.
    standardise : bool
        Divide every feature by its standard deviation.
    inner_iterations : int
        Most times that W and the weights D of its rows are found in turn before the labels move on; fewer if W settles.
        Algorithm 1 asks for as many as it takes; one ends at much the same objective with far fewer readings. D goes
        on from the last W.
    solver_tol : float, optional
        Error of W that a solve may leave, in the norm of R and relative to W. Each digit takes about two readings of X
        an iteration. By default 1e-7, which gives the objective of dense algebra to 8 digits and its scores to 6; where
        the graph of rows is approximate, or would be with "auto", 3 % of what W moved by in the iteration before, 1e-3
        at most (above `gram_cap` features 10 % and 0.01), and where W moves little by little half of that movement in
        every other iteration, for which nothing is read.
    gram_cap : int
        Most features for which X'X is formed, which makes for few readings an iteration.
    tol : float
        Relative change of the objective at which the loop stops.
    max_iter : int
        Most iterations.
    random_state : int, optional
        Seed of the W with which the first graph is made, drawn feature by feature; 0 by default.

    Attributes
    ----------
    labels_ : float64 array, shape (n, q)
        F: predicted labels, near 1 for positive and near 0 for negative ones; for known labels, too.
    scores_ : float64 array, shape (d,)
        A constant feature has exactly 0.

    Notes
    -----
    Readings of X: one for moments, one for X'X, one for the first graph, and two for every widening of the space in
    which W is sought (one less the first time); some 4 to 8 widenings an iteration, 2 to 4 where X is in memory and
    X'L_sX can be formed with every new graph, with an approximate graph three at first and later one in two iterations,
    and 13 to 80 iterations are usual. Above `gram_cap` features a diagonal takes the place of X'X, and more widenings
    are needed.

    With q labels the driver holds about n (73 q + 24 k_s) bytes, at least n (49 q + 24 k_s + 800) where the graph is
    approximate, and 24 d² where X'X is formed. Missing features are refused.

    The objective of the record is Eq. 8 without its two terms α‖S‖² and β‖P‖²: α and β are chosen anew with every
    graph, for exactly k_s and k_p neighbours, so that the terms compare with no others. They are in the record's
    `extra`.

    What is corrected: a minus in Eqs. 21 and 25, so that weights sum to one; (S + S')/2 and (P + P')/2 in the
    Laplacians; W from a q × q root instead of a d × d one, which is the same matrix. A label of which no positive is
    known has no direction of its own in the first W, whose root is then that of the regular part, and later, but for
    mu = 0, one that is noise; it is warned of, and the record tells the rank.
    Labels of which the same is known, such as those without a known positive, get the same prediction: they are one
    column, since otherwise what rounding makes of their difference becomes a direction of W within some 30 iterations.
    A label that has more than k_p nearest labels, all equally near, shares its weight among all of them.

    The authors' program differs from their paper. μ is not in the equation of F; D is updated once an iteration;
    distances of rows weigh ‖f_i − f_j‖² by half; 0.01 is added to the sum of a row's weights; rows without a positive
    label are unlabelled; the objective, a logarithm, halves λ‖W‖ and θ tr(F'LF); the loop ends when it rises or changes
    by less than 0.01. It takes features scaled to [0, 1] (scale them and give standardise=False). Of `missing`,
    `inner_iterations` and `tol` nothing is used.

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

    method = "access-mfs"
    title = "Adaptive collaborative correlation learning"
    paper = "Huang et al. 2024, arXiv:2406.12193"
    doi = "10.48550/arXiv.2406.12193"
    supervision = "semi-supervised: labels may be unknown"
    passes = "3 + 2 for each widening of the space of W, some 2 to 8 an iteration (more above the Gram cap)"
    memory = (
        "worker: 8 bytes * d² (or d * q above the Gram cap); driver: n * (73 q + 24 k_s + 100) + 24 d² bytes, at least "
        "n * (49 q + 24 k_s + 800) in an approximate search"
    )
    accepts_unknown_labels = True
    label_threshold = 0.5

    labels_: Array

    def __init__(
        self,
        n_features_to_select: int | float | None = None,
        *,
        variant: Literal["corrected", "published_code"] = "corrected",
        lambda_: float = 1.0,
        theta: float = 1.0,
        mu: float = 1.0,
        k_s: int = 5,
        graph: GraphKind = "auto",
        k_p: int = 5,
        missing: Literal["coded", "zeros"] = "coded",
        standardise: bool = True,
        inner_iterations: int = 1,
        solver_tol: float | None = None,
        gram_cap: int = GRAM_CAP,
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: int | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.variant = variant
        self.lambda_ = lambda_
        self.theta = theta
        self.mu = mu
        self.k_s = k_s
        self.graph = graph
        self.k_p = k_p
        self.missing = missing
        self.standardise = standardise
        self.inner_iterations = inner_iterations
        self.solver_tol = solver_tol
        self.gram_cap = gram_cap
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_parameters(self, least={"gram_cap": 0, "random_state": 0})
        if self.solver_tol is not None and not 1e-12 <= self.solver_tol <= 0.1:
            raise UsageError(f"solver_tol must be a number from 1e-12 to 0.1; got {self.solver_tol!r}")

    # ------------------------------------------------------------------ what it costs

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """The most readings that `max_iter` iterations may take, and what the loop holds on the driver.

        Raises
        ------
        DoesNotFitError
        """
        profile = source if isinstance(source, Profile) else source.profile
        n, d, q = profile.n, profile.d, profile.q
        k = neighbours_used(self.k_s, n) if self.theta > 0 else 0
        has_gram = d <= self.gram_cap
        forward = linear.plan_linear(source, q, resources, forward=True)
        backward = linear.plan_linear(source, q, resources, backward=True)
        once = [plan_rows(source, WithLabels(Moments(d), q), resources)]
        if has_gram:
            once.append(plan_rows(source, Gram(d, q), resources, input_bytes=8 * q))
        once += [forward] * (self.theta > 0)
        loose = k > 0 and not exact_points(self.graph, n, 2 * q)
        one, slab, kept, search_rows, making = 8 * n * q, slab_bytes(n, q), n * q, 0, 0
        phases, compiled = [], loose
        if k:
            candidates = CANDIDATES if loose else 0
            searching, search_rows = point_graph_bytes(
                n, 2 * q, max(k + 1, candidates), kind="approximate" if loose else "exact"
            )
            made, making, graph_kept = graph_bytes(n, k)
            kept += graph_kept + 4 * n * candidates
            # F, both X W, and the points; then the neighbours found, and what becomes of them.
            phases = [Phase(searching, 5 * one + kept + search_rows), Phase(made, 3 * one + kept + making)]
            compiled |= product_compiles(n, k, q)
        phases += [
            Phase(0, one * uncorrelated.ROW_MATRICES + kept, slab),
            Phase(0, one * (label_propagation.ROW_MATRICES + 2) + kept, slab),
        ]
        in_memory = _graph_at_hand(self, source, loose=loose)
        held = (
            n * q // 4
            + 13 * profile.label_nonzeros
            + 40 * n
            + 8 * d * q * uncorrelated.FEATURE_MATRICES
            + (24 * d * d if has_gram else 0)
            + (laplacian_gram_bytes(n, d, profile.nonzeros if profile.sparse else None) if in_memory else 0)
            + 64 * q * q
        )
        kind = "gram" if has_gram else "diagonal"
        kind = f"loose {kind}" if _follows(self, n, q) else "memory" if in_memory else kind
        few, many = TYPICAL_EXPANSIONS[kind]
        least, most = TYPICAL_ITERATIONS
        notes = (
            f"most real data took {least} to {most} iterations of {few} to {many} times two readings"
            + ("" if has_gram else ", more where features are correlated")
            + f"; at most {self.max_iter} of {self.inner_iterations * MAX_EXPANSIONS} times two",
            f"X'X is {d:,} x {d:,}" if has_gram else f"X'X is not formed ({d:,} features > {self.gram_cap:,})",
            f"{'approximate' if loose else 'exact'} neighbour graph in every iteration, without reading"
            if k
            else "no graph",
        )
        widenings = self.max_iter * self.inner_iterations * MAX_EXPANSIONS
        return plan_loop(
            resources,
            once=once,
            again=[forward, backward],
            times=widenings,
            typical=(least * few, most * many),
            held=held,
            phases=phases,
            message_shape=(n, d, q),
            compiled=compiled,
            # Files are used again where they have the same size, and are not removed.
            scratch_bytes=one * (uncorrelated.ROW_MATRICES + 2) + kept + max(search_rows, making),
            notes=notes,
        )

    # ------------------------------------------------------------------ the method

    def _score(self, source: RowSource, resources: Resources, k: int) -> Scores:
        labels, moments, records = self._labels_and_moments(source, resources)
        space = row_space(self.plan(source, resources))
        Y, known = self._known(labels, space)
        alike = AlikeLabels(np.arange(Y.shape[1])) if self.variant == "published_code" else alike_labels(Y, known)
        Y, known = alike.fold_labels(Y, known, space)
        scaling = _scaling(moments, self.standardise)
        readings = Readings(source, resources, scaling, records)

        squares = moments.m2 * scaling.factor**2
        problem = _Problem(self, readings, squares, Y, known, alike, checkpoints.current(), space)
        trace = problem.run()
        self.labels_ = alike.unfold(problem.F, space)
        scores = row_norms(problem.W)
        extra: dict[str, Any] = {
            "gram": problem.gram is not None,
            "labelled_rows": sum(int(known[part].any(axis=1).sum()) for part in row_blocks(*known.shape)),
            "constant_features": int((scaling.factor == 0).sum()),
            "distinct_labels": alike.count,
            "graph": problem.graph_facts,
        }
        told = [*recall_warnings(problem.graph_facts), *self._warnings(labels, trace, scores)]
        return self._result(scores, trace, records, extra, told)

    def _known(self, Y: sp.csr_array, space: RowSpace) -> tuple[sp.csr_array, NDArray[np.bool_]]:
        """Known positives (n, q), and which entries are known: by rows, shape (n, 1), or by entries, shape (n, q)."""
        n, q = Y.shape
        row = np.repeat(np.arange(n), np.diff(Y.indptr))
        unknown = Y.data < 0
        missing = np.bincount(row[unknown], minlength=n)
        if self.missing == "zeros" or self.variant == "published_code":
            missing[np.bincount(row[~unknown], minlength=n) == 0] = q
        if (missing == q).all():
            raise DataError(
                "no row of Y has a known label" + ("" if unknown.sum() == n * q else " that is positive"),
                cure="give labels 1 and 0 for some rows; -1 stands for an unknown one",
            )
        positive = sp.csr_array(Y, dtype=np.float64, copy=True)
        positive.data[unknown] = 0.0
        positive.eliminate_zeros()
        if ((missing == 0) | (missing == q)).all():
            return positive, (missing == 0)[:, np.newaxis]
        known = space.empty(n, q, np.bool_)
        for part in row_blocks(n, q):
            known[part] = (graph_rows(Y, part).toarray() >= 0) & (missing[part] < q)[:, np.newaxis]
        return positive, known

    def _warnings(self, labels: sp.csr_array, trace: _Trace, scores: Array) -> list[Warning]:
        consequence = "Nothing can be learnt of such a label: what is recovered of it (labels_) means nothing, and "
        if self.mu > 0 or self.variant == "published_code":
            consequence += "through the graph of labels it adds noise to the scores. Leave it out of Y, or give rows "
            consequence += "that have it."
        else:
            consequence += "it has no part in the scores."
        found = never_positive_warnings(self, "Access-MFS", labels, consequence) if scores.any() else []
        if not scores.any():
            found.append(
                UserWarning(
                    "Access-MFS can tell no feature from another: every feature is constant, or no known label differs "
                    "between rows. All features get the same score."
                )
            )
        elif not trace.converged:
            found.append(
                ConvergenceWarning(
                    f"Access-MFS did not converge in {self.max_iter} iterations (the last one changed the objective by "
                    f"{trace.change:.1e} of it, and tol is {self.tol:g}). Increase max_iter, or tol."
                )
            )
        if not trace.solved:
            worst = int(np.argmax(np.divide(trace.solver_error, trace.solver_tol)))
            found.append(
                ConvergenceWarning(
                    f"Access-MFS left an error of {trace.solver_error[worst]:.1e} in W, where solver_tol is "
                    f"{trace.solver_tol[worst]:.1e}. Use a "
                    "gram_cap of at least the number of features, a larger lambda_, or a larger solver_tol."
                )
            )
        return found


@dataclass
class _Trace(LoopTrace):
    """What happened, iteration by iteration; the objective is Eq. 8 without the two terms of `graph_penalty`.

    Attributes
    ----------
    graph_penalty, step, solver_tol, solver_error : list of float
        The two terms; ‖ΔW‖/‖W‖; error that the solver was to leave in W, and that it left.
    expansions, label_steps, rank : list of int
    solved : bool
        Whether every solve reached its tolerance.
    """

    graph_penalty: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    solver_tol: list[float] = field(default_factory=list)
    solver_error: list[float] = field(default_factory=list)
    expansions: list[int] = field(default_factory=list)
    label_steps: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    solved: bool = True

    @property
    def change(self) -> float:
        """Relative change of the objective in the last iteration."""
        if len(self.objective) < 2:
            return np.inf
        before, now = self.objective[-2:]
        return abs(now - before) / abs(before) if before else abs(now)


class _Problem:
    """The loop of Algorithm 2 and its state, in the paper's letters, rows being samples.

    q is the number of distinct labels: labels known alike are one column, √m times what each of the m is.

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

    def __init__(
        self,
        selector: AccessMFS,
        readings: Readings,
        squares: Array,
        Y: sp.csr_array,
        known: NDArray[np.bool_],
        alike: AlikeLabels,
        checkpoint: Checkpoint,
        space: RowSpace = IN_MEMORY,
    ) -> None:
        self.selector = selector
        self.graph_facts: dict[str, Any] | None = None
        self.published = selector.variant == "published_code"
        self.epsilon = PUBLISHED_EPSILON if self.published else EPSILON
        self.readings = readings
        self.squares = squares
        self.Y = Y
        self.U = known
        self.alike = alike
        resources = readings.resources
        self.threads = len(os.sched_getaffinity(0)) if resources.client else resources.threads_per_worker
        n, q = Y.shape
        d = len(squares)
        self.loose = selector.theta > 0 and not exact_points(selector.graph, n, 2 * q)
        self.follows = _follows(selector, n, q)
        self.knows_graph = _graph_at_hand(selector, readings.source, loose=self.loose) and _near_zero(readings.scaling)
        self.space = space
        self.F: Array = space.empty(n, q)
        for part in row_blocks(n, q):
            self.F[part] = graph_rows(Y, part).toarray()
        self.gram: Array | None = None
        first: Array | None = None
        if d <= selector.gram_cap:
            centred = centre(space.copy(self.F))
            self.gram, first = readings.gram(centred)
            space.release(centred)
        self._first = first
        self.subspace = Subspace(space=space)
        self._factor: _Factor | None = None
        self.trace = _Trace()
        self.checkpoint = checkpoint
        self.points = MovingPoints(
            neighbours_used(selector.k_s, n) + 1,
            kind=selector.graph,
            seed=int(selector.random_state or 0),
            threads=self.threads,
            space=RowSpace(space.folder),
        )
        state = load_state(checkpoint, readings.records, rows=("F", "XW", "Xbefore"))
        if state is not None:
            self._restore(state)
        else:
            self.D = np.ones(d)
            drawn = _first_weights(d, len(alike.group), int(selector.random_state or 0), published=self.published)
            self.W = alike.fold(drawn)
            self.XW = space.empty(n, q)
            if selector.theta > 0:
                readings.forward(self.W, self.XW)
            else:
                fill(self.XW, 0.0)
        self.L_s: Laplacian | None = None
        self.L_p: Array | None = None
        self.penalty = self._update_S() + self._update_P()

    def run(self) -> _Trace:
        """Algorithm 2."""
        selector, trace = self.selector, self.trace
        for t in range(trace.iterations + 1, selector.max_iter + 1):
            before = self.W
            self._update_W(trace)
            self._update_F(trace)
            self.penalty = self._update_S() + self._update_P()

            trace.objective.append(self.objective())
            trace.graph_penalty.append(self.penalty)
            norm = float(np.linalg.norm(self.W))
            trace.step.append(float(np.linalg.norm(self.W - before)) / norm if norm > 0 else 0.0)
            trace.tell(step=trace.step[-1], error=trace.solver_error[-1])
            if norm == 0 or (t > 1 and self._settled(trace)):
                trace.converged = True
                break
            if self.checkpoint.due():
                self._save()
        return trace

    def _save(self) -> None:
        # Of the space W and what was before are left after a solve; the graphs follow from F, X W and the candidates.
        arrays = {"F": self.F, "W": self.W, "XW": self.XW, "D": self.D}
        if self._factor is not None:
            arrays["factored"] = self._factor.ridge
        for block in self.subspace.blocks[1:]:
            arrays |= {"before": block.P, "Xbefore": block.XP}
        candidates, points = self.points.state()
        space = {"rate": self.subspace.rate, "missed": self.subspace.missed}
        served = None if self._factor is None else [self._factor.iterations, self._factor.least, self._factor.owed]
        facts = {"space": space, "points": points, "graph": self.graph_facts, "factor": served}
        save_state(self.checkpoint, {**arrays, **candidates}, self.trace, self.readings.records, **facts)

    def _restore(self, state: State) -> None:
        self.W, self.D = state.arrays["W"], state.arrays["D"]
        fill(self.F, state.arrays["F"])
        self.XW = self.space.copy(state.arrays["XW"])
        blocks = [Block(self.W, self.XW, self.XW)]
        if "before" in state.arrays:
            P = state.arrays["before"]
            held = self.space.empty(*self.F.shape)
            blocks.append(Block(P, fill(narrowed(held, P.shape[1]), state.arrays["Xbefore"]), held))
        self.subspace = Subspace(blocks, **state.facts["space"], space=self.space)
        self.trace = _Trace(**state.facts["trace"])
        self.points.restore(state.arrays, state.facts["points"])
        self.graph_facts = state.facts["graph"]
        if state.facts["factor"] is not None:  # of a store: its graph is not in it
            iterations, least, owed = state.facts["factor"]
            ridge = state.arrays["factored"]
            self._factor = _Factor(self._factorised(ridge), ridge, iterations, False, least, owed)
        self._first = None

    def _settled(self, trace: _Trace) -> bool:
        if self.published:
            return trace.objective[-1] - trace.objective[-2] > -PUBLISHED_TOL
        return trace.change <= self.selector.tol

    def _solver_tol(self, trace: _Trace) -> float:
        """Error that the next W may have."""
        if self.selector.solver_tol is not None:
            return float(self.selector.solver_tol)
        if not self.follows:
            return TIGHTEST
        moved = trace.step[-1] if trace.step else 1.0
        kind = "gram" if self.gram is not None else "diagonal"
        return min(LOOSEST[kind], max(SOLVED_SHARE[kind] * moved, TIGHTEST))

    def _update_W(self, trace: _Trace) -> None:
        """Algorithm 1: W by Eq. 14, D by Eq. 9, in turn."""
        selector = self.selector
        tol = self._solver_tol(trace)
        # Where solves follow the steps of W, they do so without a reading as soon as W moves little by little.
        enough = UNREAD_SHARE * trace.step[-1] if trace.step and self.follows and trace.step[-1] <= STEADY else 0.0
        expansions = 0
        if not self.subspace.blocks:  # that of the first graph is not taken up
            self.space.release(self.XW)
        for _ in range(1 if self.published else selector.inner_iterations):
            before = self.W
            ridge = selector.lambda_ * self.D
            found = self.subspace.solve(
                self.F,
                self.readings,
                laplacian=self.L_s,
                theta=float(selector.theta),
                ridge=ridge,
                precondition=self._preconditioner(ridge),
                tol=tol,
                max_expansions=MAX_EXPANSIONS,
                first=self._first,
                enough=enough,
            )
            self._first = None
            if self._factor is not None:
                self._factor.served(found.expansions)
            self.W, self.XW = found.W, found.XW
            self.D = 0.5 / np.sqrt(row_norms(self.W) ** 2 + self.epsilon)
            expansions += found.expansions
            trace.solved &= found.converged
            if np.linalg.norm(self.W - before) <= SETTLED * np.linalg.norm(self.W):
                break
        trace.expansions.append(expansions)
        trace.solver_tol.append(tol if found.expansions else max(tol, enough))
        trace.solver_error.append(found.error)
        trace.rank.append(found.rank)

    def _preconditioner(self, ridge: Array) -> GramPreconditioner | DiagonalPreconditioner:
        if self.gram is None:
            return DiagonalPreconditioner(self.squares, float(self.selector.theta), ridge)
        factor, iterations = self._factor, self.trace.iterations
        old = factor is not None and not factor.stale(ridge, self.trace.step, self._factor_cost())
        if factor is None or not old:
            factor = self._factor = None  # before there are two
            factor = self._factor = _Factor(self._factorised(ridge), ridge, iterations, self.knows_graph)
        if old or self.knows_graph:  # which in single precision or old may take one widening, or many
            self.subspace.rate = 0.5  # how fast the last solve was says nothing about this one
        return factor.preconditioner

    def _factor_cost(self) -> float:
        """Multiplications for a factor of R over those of a widening."""
        profile, q = self.readings.source.profile, self.F.shape[1]
        d, values = profile.d, profile.nonzeros
        factor, widening = d**3 / 3, 4.0 * values * q
        if self.knows_graph:
            factor, widening = factor + values * d, widening + 2.0 * d * d * q
        return float(factor / max(widening, 1.0))

    def _factorised(self, ridge: Array) -> GramPreconditioner:
        assert self.gram is not None
        theta = float(self.selector.theta)
        if self.knows_graph and self.L_s is not None:
            A = self.readings.laplacian_gram(self.L_s)
            A *= theta
            A += self.gram
        else:
            A = (1.0 + theta) * self.gram
        return GramPreconditioner(A, ridge, single=theta > 0)

    def _update_F(self, trace: _Trace) -> None:
        """F by Eq. 17."""
        selector = self.selector
        target = self.space.empty(*self.F.shape)
        for part in row_blocks(*target.shape):
            target[part] = self.XW[part] + graph_rows(self.Y, part)  # C; X is centred
        steps = propagate_labels(
            self.F,
            target,
            self.U,
            laplacian=self.L_s,
            theta=float(selector.theta),
            label_laplacian=self.L_p,
            mu=1.0 if self.published else float(selector.mu),
            tol=LABEL_TOL * self._solver_tol(trace),
            space=self.space,
        )
        self.space.release(target)
        trace.label_steps.append(steps)

    def _update_S(self) -> float:
        """S by Eq. 21: nearest neighbours among [f_i, W'x_i]. Gives θΣα_i‖s_i‖²."""
        n = len(self.F)
        k = neighbours_used(self.selector.k_s, n)
        if self.selector.theta == 0 or k == 0:
            return 0.0
        Z, squares = self._points(), np.empty(n)
        for part in row_blocks(*Z.shape):
            squares[part] = np.einsum("ij,ij->i", Z[part], Z[part])
        found = self.points.graph(Z)
        self.space.release(Z)
        neighbours, facts = found.neighbours, found.facts
        # Of the graphs of all iterations the record tells the one that missed most, and the searches of all.
        if self.graph_facts is None or facts.get("recall", 1.0) < self.graph_facts.get("recall", 1.0):
            self.graph_facts = dict(facts)
        if "searches" in facts:
            self.graph_facts["searches"] = facts["searches"]
        slack = PUBLISHED_SLACK if self.published else 0.0
        aside = RowSpace(self.space.folder)
        weights, alpha, norms = aside.empty(n, k), np.empty(n), np.empty(n)
        for part in row_blocks(n, 3 * (k + 1)):
            distances = 0.5 * neighbours.distances[part]  # m of Eq. 18
            weights[part], alpha[part] = simplex_weights(distances, k, squares[part], slack=slack)
            norms[part] = np.einsum("ij,ij->i", weights[part], weights[part])
        S = type(neighbours)(neighbours.indices[:, :k], weights).to_csr(space=aside)
        self.L_s = None  # the graph of before goes first
        self.L_s = Laplacian(graph_of(S, lambda S, T, part: (S + T) * 0.5, RowSpace(self.space.folder)))
        if self.published:
            return float(self.selector.theta * alpha.mean() * np.square(self.L_s.graph.data).sum())
        return float(self.selector.theta) * float(alpha @ norms)

    def _points(self) -> Array:
        """[f_i, W'x_i] around zero, shape (n, 2q)."""
        n, q = self.F.shape
        Z, mean = self.space.empty(n, 2 * q), column_sums(self.F) / n
        for part in row_blocks(*Z.shape):
            np.subtract(self.F[part], mean, out=Z[part, :q])
            np.multiply(self.XW[part], np.sqrt(2.0) if self.published else 1.0, out=Z[part, q:])
        return Z

    def _update_P(self) -> float:
        """P by Eq. 25: the adaptive graph of the columns of F. Gives μΣβ_i‖p_i‖²."""
        if (self.selector.mu == 0 and not self.published) or len(self.alike.group) < 2:
            return 0.0
        P, beta, squares = column_graph(self.alike.unfold_both(inner(self.F, self.F)), self.selector.k_p)
        self.L_p = self.alike.fold_both(np.diag(P.sum(axis=1)) - P)
        if self.published:  # from distances that are not halved
            return float(self.selector.mu * 2.0 * beta.mean() * np.square(P).sum())
        return float(self.selector.mu) * float(beta @ squares)

    def objective(self) -> float:
        """Eq. 8 without α‖S‖² and β‖P‖²; of the authors' code, its logarithm of Eq. 8 with two halves."""
        selector, F = self.selector, self.F
        half = 0.5 if self.published else 1.0
        mean = column_sums(F) / len(F)
        value = 0.0
        for part in row_blocks(*F.shape):
            value += float(np.square(self.XW[part] - (F[part] - mean)).sum())
            value += float((self.U[part] * np.square(F[part] - graph_rows(self.Y, part))).sum())
        # ‖W‖_{2,1} as D has it, with ε.
        value += half * selector.lambda_ * float(np.sqrt(row_norms(self.W) ** 2 + self.epsilon).sum())
        if self.L_s is not None:
            image = self.space.empty(*F.shape)
            for share, V in ((half, F), (1.0, self.XW)):
                value += share * selector.theta * float(column_dots(V, self.L_s.product(V, image)).sum())
            self.space.release(image)
        if self.L_p is not None:
            value += selector.mu * float(np.vdot(self.L_p, inner(F, F)))
        return float(np.log(value + self.penalty)) if self.published else value


@dataclass
class _Factor:
    """A factor of R as it was, and how well it has served since.

    Attributes
    ----------
    ridge : float64 array, shape (d,)
    iterations : int
        That there had been.
    knows_graph : bool
        Whether it is one of R with the graph of then.
    least, owed : int
        Fewest widenings that a solve took, and those that others took beyond them.
    """

    preconditioner: GramPreconditioner
    ridge: Array
    iterations: int
    knows_graph: bool
    least: int = 0
    owed: int = 0

    def served(self, expansions: int) -> None:
        """A solve took so many widenings; one that took none has not used the factor."""
        if expansions == 0:
            return
        least = min(self.least, expansions) if self.least else expansions
        self.least, self.owed = least, self.owed + expansions - least

    def stale(self, ridge: Array, steps: Sequence[float], cost: float) -> bool:
        """Whether a new factor, which costs as much as some widenings, is better than this one.

        `steps` are those of W in the iterations up to now.
        """
        new_graph = self.knows_graph and len(steps) > self.iterations
        if self.owed + 1 > cost or (new_graph and steps[-1] > STALE_STEP):
            return True
        return _changed(self.ridge, ridge) > STALE_SHARE


def _changed(before: Array, now: Array) -> float:
    """Share of values that have changed by more than half.

    >>> _changed(np.array([1.0, 1.0, 0.0, 4.0]), np.array([1.6, 1.4, 0.0, 1.0]))
    0.5
    """
    return float((np.maximum(before, now) > 1.5 * np.minimum(before, now)).mean())


def _follows(selector: AccessMFS, n: int, q: int) -> bool:
    """Whether solves are as close as the steps of W ask for: rows are many, or their graph is approximate anyway."""
    if selector.theta == 0 or selector.solver_tol is not None:
        return False
    return not (exact_points(selector.graph, n, 2 * q) and exact_points("auto", n, 2 * q))


def _graph_at_hand(selector: AccessMFS, source: Profile | RowSource, *, loose: bool) -> bool:
    """Whether R can be factorised with the graph: X is an array of this process, and X'L_sX no reading."""
    if not isinstance(source, ArrayRows) or source.profile.d > selector.gram_cap:
        return False
    return selector.theta > 0 and not loose


def _near_zero(scaling: Scaling | None) -> bool:
    """Whether X, which is not centred for X'LX, is near enough to zero that its digits are those of its deviations.

    >>> _near_zero(Scaling(np.array([5.0, 1.0]), np.array([0.1, 1e3])))
    True
    >>> _near_zero(Scaling(np.array([5.0, 1.0]), np.array([0.1, 1e5])))
    False
    """
    if scaling is None:
        return True
    centre = np.abs(scaling.centre)
    return bool((centre * scaling.factor).max(initial=0.0) <= FAR and centre.max(initial=0.0) <= 1e100)


def _first_weights(d: int, q: int, seed: int, *, published: bool) -> Array:
    """The W with which the first graph is made."""
    random = np.random.default_rng(seed)
    if published:
        return random.random((d, q))
    # Points of the first graph then have about the spread of standardised features.
    weights: Array = random.standard_normal((d, q)) / np.sqrt(d)
    return weights


def _scaling(moments: FeatureMoments, standardise: bool) -> Scaling:
    scaling = standard_scaling(moments)
    if standardise:
        return scaling
    return Scaling(scaling.centre, (scaling.factor > 0).astype(np.float64))
