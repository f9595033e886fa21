"""SMFS: features that explain labels which follow the density of the data (Xu & Zhao 2020).

Labels may be missing or unknown. Rows are neighbours when few rows lie with them in the nodes of an isolation forest;
unknown labels follow those of the neighbours (W) and a row-sparse regression on the features (P), in turns. X is read
for moments, forest, leaves and X'SX, and then twice an iteration, or not at all where nothing new can come of it.
T. Xu, L. Zhao, "A structure-induced framework for multi-label feature selection with highly incomplete labels", IEEE
Access 8 (2020) 71219-71230, doi:10.1109/ACCESS.2020.2987922.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import checkpoints
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.checkpoints import Checkpoint, State
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.primitives import linear
from mlfs_dask.primitives.gram import GRAM_CAP, Gram
from mlfs_dask.primitives.isolation import isolation_graph, plan_isolation, with_libraries
from mlfs_dask.primitives.labels import WithLabels
from mlfs_dask.primitives.linear import Scaling, standard_scaling
from mlfs_dask.primitives.moments import FeatureMoments, Moments
from mlfs_dask.primitives.neighbours import GraphKind, Neighbours, recall_warnings
from mlfs_dask.primitives.passes import PassRecord
from mlfs_dask.primitives.plan import Phase, Plan
from mlfs_dask.primitives.row_passes import plan_rows
from mlfs_dask.row_arrays import (
    IN_MEMORY,
    RowSpace,
    add,
    fill,
    graph_bytes,
    graph_rows,
    product_compiles,
    row_blocks,
    take_columns,
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
from mlfs_dask.solvers import label_recovery, row_sparse
from mlfs_dask.solvers.label_recovery import Reconstruction, group_columns, recover_labels
from mlfs_dask.solvers.row_sparse import Step
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.solvers.working_set import WorkingSet
from mlfs_dask.typing import Profile, RowSource

Array = NDArray[np.float64]

#: β relative to the least one at which P is 0, chosen by `benchmarks/quality.py smfs`.
BETA_SHARE = 0.1

#: Most reweightings of one P-step where they cost no reading of X, and the relative change of P at which they end.
INNER_ITERATIONS = 10
INNER_TOL = 0.01

#: Relative residual of the conjugate gradients of a Y-step, and most of their steps.
LABEL_TOL = 1e-9
LABEL_STEPS = 1000

#: Relative residual of those of a P-step without X'SX, each of which reads X, and most of their steps. Loose ones are
#: enough, since every step lowers the objective; the residual is asked to be smaller as the objective settles.
FEATURE_TOL = 1e-2
FEATURE_STEPS = 5

#: Most features above the Gram cap that a P-step solves for at a time: 32 MiB of X'SX. With twice as many a step takes
#: four times as long, and few steps less are enough.
SET_FEATURES = 2048

#: Arrays of shape (n, q) that the loop holds, beside two of bits in bytes: Y, and X P.
ROW_MATRICES = 2

#: Iterations that 28 fits of seven real sets took, least and most, where they read X (`benchmarks/gram.py`). With X'SX
#: they do not where all labelled rows are known in all labels.
TYPICAL_ITERATIONS = (3, 14)

#: Row norms up to so many ε count as zero.
VANISHED = 1e3


class SMFS(IterativeSelector):
    """Structure-induced feature selection with incomplete labels (Xu & Zhao 2020).

    Minimises Σ s_ii ‖xⁱP − yⁱ‖² + α ‖(I − W)Y‖² + β ‖P‖_{2,1} (Eq. 6) over P and the unknown entries of Y. A feature's
    score is the norm of its row of P.

    Parameters
    ----------
    n_features_to_select : int or float, optional
        Number of features to keep, or a fraction of them; half by default.
    alpha : float, optional
        Weight of the density structure of labels. By default the mean weight s_ii of a labelled row, so that it means
        the same for any number of rows.
    beta : float, optional
        Weight of the row-sparse penalty on P. By default 0.1 of the least value at which P is 0.
    n_neighbors : int
        Neighbours of a row in the density structure (k in the paper).
    graph : {"exact", "approximate", "auto"}
        Whether these are found exactly. "auto": exactly up to 2.5 · 10¹¹ look-ups of masses (50 000 rows with 100
        trees), beyond that approximately; the share of true neighbours is measured, kept in the record, and warned of
        below 90 %.
    n_trees : int
        Trees of the isolation forest.
    max_samples : int
        Rows on which a tree is grown.
    missing : {"auto", "coded", "zeros"}
        What is unknown. "coded": entries -1. "zeros": every entry that is not 1, the paper's setting; a row is then
        labelled if it has a positive label. "auto": "coded" where Y holds a -1, else "zeros".
    consistency : {"observed", "none"}
        "observed" keeps known entries as they are. "none" is the published form, in which nothing ties Y to the given
        labels: its minimum is P = 0 and Y = 0, and it goes there within some 15 iterations.
    standardise : bool
        Whether features have zero mean and unit variance in the regression. The forest does not depend on it.
    inner_iterations : int, optional
        Reweightings of a P-step; the published form has one. By default as many as change P by 1 %, 10 at most, where
        they read no X, and 1 above the Gram cap.
    gram_cap : int
        Most features for which X'SX is formed. Above it, it is formed for the features that matter, 2048 at most at a
        time; 0 leaves conjugate gradients that read X.
    tol : float
        Relative change of the objective at which the loop stops.
    max_iter : int
        Most iterations.
    random_state : int, optional
        Seed of the forest; 0 by default.

    Attributes
    ----------
    scores_ : float64 array, shape (d,)
        A constant feature has 0.
    labels_ : float64 array, shape (n, q)
        Y: recovered labels from −1 to 1, positive where the label applies; known ones are 1 or −1.

    Notes
    -----
    Readings of X: one for moments, one for the sample of the forest, one for leaves, one for X'SX, then two an
    iteration: X P, and X'SY. Where all labelled rows are known in all labels, Y has no part in P, and there are none.
    Above `gram_cap` features there are three an iteration: X P with X'SX P, X'SY, and X'SX of some features. The
    others, whose gradient is within β/2, follow from it. With gram_cap=0 every step of the conjugate gradients is
    another reading, 5 an iteration at most. The exact pair search takes about n² trees / 5·10⁹ seconds on a core.

    The driver holds about n (18 q + 36 k) bytes, some 2 kB a row in an approximate search, and 24 d² where X'SX is
    formed. Missing features are refused.

    What is corrected or settled: known entries stay (`consistency`); negative known ones are −1 in Y, unknown ones of
    labelled rows start from Eq. 4; D starts at 1/(2√q), which the published random start is on average; ε of
    `solvers.row_sparse` keeps D finite.

    References
    ----------
    T. Xu, L. Zhao, "A structure-induced framework for multi-label feature selection with highly incomplete labels",
    IEEE Access 8 (2020) 71219-71230, doi:10.1109/ACCESS.2020.2987922.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 1], [-1, -1], [1, 0], [-1, -1]])
    >>> selector = SMFS(n_features_to_select=1, n_neighbors=2).fit(X, Y)
    >>> selector.ranking_[2], selector.scores_[2], selector.labels_.shape
    (np.int64(2), np.float64(0.0), (4, 2))
    """

    method = "smfs"
    title = "Structure-induced selection with incomplete labels"
    paper = "Xu & Zhao 2020, IEEE Access 8, 71219-71230"
    doi = "10.1109/ACCESS.2020.2987922"
    supervision = "semi-supervised: labels may be unknown or missing"
    passes = "4 + at most 2 an iteration (above the Gram cap 3, and some 6 at first)"
    memory = (
        "worker: 8 bytes * d² (or d * q above the Gram cap); driver: n * max(18 q + 36 k, 9 q + 2 trees + 40 k) "
        "+ 24 d² bytes, at least n * (9 q + trees + 1,600) in an approximate search"
    )
    accepts_unknown_labels = True
    label_threshold = 0.0

    labels_: Array

    def __init__(
        self,
        n_features_to_select: int | float | None = None,
        *,
        alpha: float | None = None,
        beta: float | None = None,
        n_neighbors: int = 15,
        graph: GraphKind = "auto",
        n_trees: int = 100,
        max_samples: int = 256,
        missing: Literal["auto", "coded", "zeros"] = "auto",
        consistency: Literal["observed", "none"] = "observed",
        standardise: bool = True,
        inner_iterations: int | None = None,
        gram_cap: int = GRAM_CAP,
        tol: float = 1e-4,
        max_iter: int = 45,
        random_state: int | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.alpha = alpha
        self.beta = beta
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.n_trees = n_trees
        self.max_samples = max_samples
        self.missing = missing
        self.consistency = consistency
        self.standardise = standardise
        self.inner_iterations = inner_iterations
        self.gram_cap = gram_cap
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_parameters(self, least={"gram_cap": 0, "random_state": 0})
        if self.max_samples > 2**16:
            raise UsageError(f"max_samples must be at most {2**16}; got {self.max_samples}")

    # ------------------------------------------------------------------ what it costs

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """The most readings that `max_iter` iterations may take, and what the loop holds on the driver.

        Raises
        ------
        DoesNotFitError
        """
        profile = source if isinstance(source, Profile) else source.profile
        n, d, q = profile.n, profile.d, profile.q
        k = min(self.n_neighbors, max(n - 1, 0))
        has_gram = d <= self.gram_cap
        moments = plan_rows(source, WithLabels(Moments(d), q), resources)
        graph = plan_isolation(
            source, k, resources, n_trees=self.n_trees, max_samples=self.max_samples, kind=self.graph
        )
        once = [moments, graph.sample, graph.leaves]
        lookups = n * n * self.n_trees if graph.kind == "exact" else 0
        resources = with_libraries(resources, lookups)  # what a process has loaded stays
        if has_gram:
            once.append(plan_rows(source, Gram(d, q, weighted=True), resources, input_bytes=8 * (q + 1)))
        forward = linear.plan_linear(source, q, resources, forward=True)
        backward = linear.plan_linear(source, q, resources, backward=True)
        again, some = [forward, backward], 0 if has_gram else self._most_at_a_time()
        if not has_gram:
            both = linear.plan_linear(source, q, resources, forward=True, backward=True)
            if some:
                once += [backward] + [both] * FEATURE_STEPS
                again = [both, backward, plan_rows(source, Gram(some, weighted=True), resources, input_bytes=8)]
            else:
                again += [both] * self._steps()
        few, many = TYPICAL_ITERATIONS
        made, _, _ = graph_bytes(n, k)
        labels, structure = 9 * n * q, 3 * (12 * n * k + 20 * n)  # Y and what is known; W, I − W and its transpose
        solver = label_recovery.GROUP_MATRICES * 8 * n * min(q, group_columns(n))
        features = 8 * d * q * row_sparse.FEATURE_MATRICES
        features += 8 * (d if has_gram else some) ** 2 * (1 + row_sparse.SQUARE_MATRICES)
        return plan_loop(
            resources,
            once=once,
            again=again,
            times=self.max_iter,
            typical=(0 if has_gram else few, many),
            held=16 * n + 13 * profile.label_nonzeros,
            phases=(
                *(phase._replace(row_bytes=labels + phase.row_bytes) for phase in graph.phases),
                Phase(0, labels + 36 * n * k),  # neighbours, their weights, and W
                Phase(made, labels + structure),
                Phase(solver + features, n * q * (8 * ROW_MATRICES + 2) + structure),
            ),
            message_shape=(n, d, q),
            compiled=graph.compiled or product_compiles(n, k, min(q, group_columns(n))),
            worker_bytes=0 if resources.client is None else graph.search_bytes,
            notes=(
                f"real data took {few} to {many} iterations of {len(again)} readings"
                + (", and no readings in them where labelled rows are known in all labels" if has_gram else "")
                + f"; at most {self.max_iter}",
                f"X'SX is {d:,} x {d:,}"
                if has_gram
                else f"X'SX of at most {some:,} of {d:,} features at a time"
                if some
                else f"X'SX is not formed ({d:,} features > {self.gram_cap:,})",
                f"{graph.kind} neighbour graph"
                + (f", {lookups:.1e} look-ups, about {lookups / 5e9 / resources.slots:,.0f} s" if lookups else ""),
            ),
        )

    def _most_at_a_time(self) -> int:
        """Most features above the Gram cap that are solved for at a time."""
        return min(self.gram_cap, SET_FEATURES) if self.beta != 0 else 0

    def _steps(self) -> int:
        """Most readings of one P-step without X'SX."""
        return FEATURE_STEPS * (self.inner_iterations or 1)

    # ------------------------------------------------------------------ the method

    def _score(self, source: RowSource, resources: Resources, k: int) -> Scores:
        labels, moments, records = self._labels_and_moments(source, resources)
        scaling = standard_scaling(moments) if self.standardise else None
        squares = _squares(moments, scaling)
        space = row_space(self.plan(source, resources))
        Y, known, s = self._known(labels, space)

        checkpoint = checkpoints.current()
        W, forest_rows, graph = self._density_graph(source, resources, records, space)
        reconstruction = Reconstruction(W, space)
        start_labels(Y, known, W)

        free = space.empty(len(known), known.shape[1], np.bool_)
        for part in row_blocks(*known.shape):
            free[part] = True if self.consistency == "none" else ~known[part]
        readings = Readings(source, resources, scaling, records)
        problem = _Problem(self, readings, squares, Y, free, s, reconstruction, checkpoint, space)
        trace = problem.run()
        self.labels_ = Y
        scores = row_norms(problem.P)
        unknown = recovered = 0
        for part in row_blocks(*Y.shape):
            unknown += int((~known[part]).sum())
            recovered += int(((Y[part] > 0) & ~known[part]).sum())
        extra: dict[str, Any] = {
            "alpha": problem.alpha,
            "beta": problem.beta,
            "gram": problem.G is not None,
            "graph": graph,
            "forest_rows": forest_rows,
            "labelled_rows": int((s > 0).sum()),
            "unknown_entries": unknown,
            "recovered_positives": recovered,
            "constant_features": int((squares == 0).sum()),
        }
        told = [*recall_warnings(graph), *self._warnings(labels, trace, scores, problem.epsilon)]
        return self._result(scores, trace, records, extra, told)

    def _density_graph(
        self, source: RowSource, resources: Resources, records: list[PassRecord], space: RowSpace
    ) -> tuple[sp.csr_array, int, dict[str, Any]]:
        """W of Eq. 3, the rows on which the forest was grown, and what is known of the graph."""

        graph = isolation_graph(
            source,
            self.n_neighbors,
            resources,
            n_trees=self.n_trees,
            max_samples=self.max_samples,
            seed=int(self.random_state or 0),
            kind=self.graph,
            space=RowSpace(space.folder),  # whose files go when it is done
        )
        records.extend(graph.records)
        return density_structure(graph.neighbours, space), graph.sample_rows, graph.facts

    def _known(self, labels: sp.csr_array, space: RowSpace) -> tuple[Array, NDArray[np.bool_], Array]:
        """Y as 1 and −1 (n, q), which entries are known (n, q), and the diagonal of S (n,).

        Raises
        ------
        DataError
            Nothing is known.
        """
        n, q = labels.shape
        coded = self.missing == "coded" or (self.missing == "auto" and bool((labels.data < 0).any()))
        times = np.maximum(np.bincount(labels.indices[labels.data > 0], minlength=q), 1)
        Y, known, s = space.empty(n, q), space.empty(n, q, np.bool_), np.empty(n)
        found = False
        for part in row_blocks(n, q):
            entries = graph_rows(labels, part).toarray()
            positive = entries > 0
            known[part] = entries >= 0 if coded else positive
            found |= bool(known[part].any())
            # Eq. 7: a row weighs by how rare its positive labels are.
            s[part] = (positive / times).sum(axis=1)
            Y[part] = np.where(positive, 1.0, -1.0)
        if not found:
            raise DataError(
                "no label of any row is known" if coded else "no row of Y has a positive label",
                cure="give labels 1 and 0 for some rows; -1 stands for an unknown one",
            )
        return Y, known, s

    def _alpha(self, s: Array) -> float:
        if self.alpha is not None:
            return float(self.alpha)
        weighed = s[s > 0]
        return float(weighed.mean()) if len(weighed) else 1.0

    def _warnings(self, labels: sp.csr_array, trace: _Trace, scores: Array, epsilon: float) -> list[Warning]:
        if not scores.any():
            return [
                UserWarning(
                    "SMFS can tell no feature from another: no row has a known positive label, or every feature is "
                    "constant. All features get the same score."
                )
            ]
        told = never_positive_warnings(
            self,
            "SMFS",
            labels,
            "Nothing can be learnt of such a label: what is recovered of it (labels_) means nothing, and its part of P "
            "adds noise to the scores. Leave it out of Y, or give rows that have it.",
        )
        if scores.max() <= VANISHED * epsilon:
            told.append(
                UserWarning(
                    "SMFS went to P = 0: beta is too large, or, with consistency='none', iterations were too many. "
                    "Scores are what is left of P."
                )
            )
        elif not trace.converged:
            told.append(
                ConvergenceWarning(
                    f"SMFS did not converge in {self.max_iter} iterations (the last one changed the objective by "
                    f"{trace.step[-1]:.1e} of it). Increase max_iter, or tol."
                )
            )
        return told


def density_structure(neighbours: Neighbours, space: RowSpace = IN_MEMORY) -> sp.csr_array:
    """W of Eq. 3: row-softmax of −ξ over the neighbours, shape (n, n), k entries a row.

    Parameters
    ----------
    neighbours : Neighbours
        `distances` is ξ.
    space : RowSpace
        Where W is kept.
    """
    weights = RowSpace(space.folder).empty(*neighbours.distances.shape)
    for part in row_blocks(*weights.shape):
        weights[part] = np.exp(-neighbours.distances[part])
        if weights.shape[1]:
            weights[part] /= weights[part].sum(axis=1, keepdims=True)
    return neighbours.to_csr(weights, space=space)


def start_labels(Y: Array, known: NDArray[np.bool_], W: sp.csr_array) -> None:
    """Eq. 4, in place: unknown entries of labelled rows become what their neighbours have (old Y on the right).

    Rows of which nothing is known keep −1, as in the paper.

    Parameters
    ----------
    Y : float64 array, shape (n, q)
        1 and −1; unknown entries are −1.
    known : bool array, shape (n, q)
    W : csr_array, shape (n, n)
    """
    if not W.nnz:
        return
    n, q = Y.shape
    width = group_columns(n)
    for low in range(0, q, width):
        columns = slice(low, min(low + width, q))
        before = take_columns(Y, columns)
        for part in row_blocks(n, q):
            given: NDArray[np.bool_] = known[part]
            partly = np.asarray(given.any(axis=1) & ~given.all(axis=1))
            missing = partly[:, np.newaxis] & ~given[:, columns]
            Y[part, columns] = np.where(missing, graph_rows(W, part) @ before, Y[part, columns])


@dataclass
class _Trace(LoopTrace):
    """What every iteration tells; the objective is Eq. 6.

    Attributes
    ----------
    step : list of float
        Relative change of the objective.
    recovery_steps : list of int
    recovery_residual : list of float
    regression_steps : list of int
    """

    step: list[float] = field(default_factory=list)
    recovery_steps: list[int] = field(default_factory=list)
    recovery_residual: list[float] = field(default_factory=list)
    regression_steps: list[int] = field(default_factory=list)


class _Problem:
    """The loop of Algorithm 1 and its state, in the paper's letters, X being products.

    Attributes
    ----------
    Y : float64 array, shape (n, q)
    P : float64 array, shape (d, q)
    t : float64 array, shape (d,)
        1 over the diagonal of D.
    G : float64 array, shape (d, d), or None
        X'SX.
    B : float64 array, shape (d, q)
        X'SY.
    """

    def __init__(
        self,
        selector: SMFS,
        readings: Readings,
        squares: Array,
        Y: Array,
        free: NDArray[np.bool_],
        s: Array,
        reconstruction: Reconstruction,
        checkpoint: Checkpoint,
        space: RowSpace = IN_MEMORY,
    ) -> None:
        self.selector = selector
        self.readings = readings
        self.Y = Y
        self.free = free  # entries that are solved for
        self.s = s  # diagonal of S
        self.reconstruction = reconstruction
        self.checkpoint = checkpoint
        self.space = space
        self._fitted: Array | None = None
        self.alpha = selector._alpha(s)
        # Labels of rows without weight have no part in P; where all others are known, P does not wait for Y.
        self.coupled = any(bool(free[part][s[part] > 0].any()) for part in row_blocks(*free.shape))
        self.trace = _Trace()
        d, q = len(squares), Y.shape[1]
        self.diagonal: Array = squares * s.sum()  # about that of X'SX

        state = load_state(checkpoint, readings.records, rows=("Y",))
        if state is not None:
            self._restore(state)
        else:
            self.epsilon, self.feature_tol = 0.0, FEATURE_TOL
            self.GP: Array | None = None  # above the Gram cap X'SX P of the P before
            self.P = np.zeros((d, q))
            self.t = np.full(d, 2.0 * np.sqrt(q))
            if not self.coupled and any(bool(free[part].any()) for part in row_blocks(*free.shape)):
                self._recover(None)
        self.structure = reconstruction.error(Y)

        self.G: Array | None = None
        if d <= selector.gram_cap:
            self.G, self.B = readings.gram(Y, s)
        elif state is None:
            self.B = readings.backward(Y, s)
        if state is not None:
            self.B, self.beta = state.arrays["B"], state.facts["beta"]
        else:
            largest = 2.0 * float(row_norms(self.B).max(initial=0.0))
            self.beta = BETA_SHARE * largest if selector.beta is None else float(selector.beta)
        self.weighted_labels = self._weighed(Y)
        self.working: WorkingSet | None = None
        most = selector._most_at_a_time()
        if self.G is None and self.beta > 0 and most:
            known = {} if state is None else {name: state.arrays[name] for name in ("rows", "following")}
            self.working = WorkingSet(lambda rows: readings.gram_of(rows, s), d, most, **known)

    def run(self) -> _Trace:
        """Algorithm 1."""
        trace, tol, max_iter = self.trace, self.selector.tol, self.selector.max_iter
        for iteration in range(trace.iterations + 1, max_iter + 1):
            self._update_P()
            fit = self._update_Y()
            penalty = row_sparse.penalty(self.P, self.epsilon)
            objective = fit + self.alpha * self.structure + self.beta * penalty  # Eq. 6

            change = abs(trace.objective[-1] - objective) / max(abs(objective), 1e-300) if trace.objective else 1.0
            trace.objective.append(objective)
            trace.step.append(change)
            trace.tell(step=change)
            # A loose P-step off by a residual r leaves the objective off by about r².
            if change <= tol and self._is_settled(tol * objective):
                trace.converged = True
                break
            self.feature_tol = min(self.feature_tol, 0.1 * float(np.sqrt(max(change, tol))))
            if self.coupled and iteration < max_iter:
                self.B = self.readings.backward(self.Y, self.s)
            if self.checkpoint.due():
                self._save()
        if self.working is not None and self.GP is not None:
            self.working.settle(self.P, self.GP, self.B, self.beta, self.epsilon)
        return trace

    def _is_settled(self, gain: float) -> bool:
        """Whether no more than `gain` is to be had from a P-step that is as exact as can be."""
        if self.working is not None:
            # Where not all that matter find room, turns go on for as long as they change something.
            return self.working.violation <= gain or len(self.working.rows) == self.working.largest
        return self.G is not None or self.feature_tol <= 0.1 * np.sqrt(self.selector.tol)

    def _update_P(self) -> None:
        """P by Eq. 10, D by Eq. 9, in turn."""
        asked = self.selector.inner_iterations
        steps = 0
        if self.working is not None and self.GP is not None:
            self.working.settle(self.P, self.GP, self.B, self.beta, self.epsilon)
            steps = self.working.step(
                self.P,
                self.GP,
                self.B,
                self.beta,
                self.epsilon,
                diagonal=self.diagonal,
                max_iter=asked or INNER_ITERATIONS,
                tol=INNER_TOL if asked is None else None,
            )
            self.trace.regression_steps.append(steps)
            return
        most = INNER_ITERATIONS if self.G is not None else 1
        for _ in range(1 if self.working is not None else asked or most):
            step = self._regress()  # Eq. 10
            moved = float(np.linalg.norm(step.P - self.P))
            self.P = step.P
            steps += step.steps
            self.epsilon = self.epsilon or row_sparse.smoothing(self.P)
            self.t = row_sparse.weights(self.P, self.epsilon)  # Eq. 9
            settled = asked is None and moved <= INNER_TOL * float(np.linalg.norm(self.P))
            if self.beta == 0 or settled:
                break
        self.trace.regression_steps.append(steps)

    def _regress(self) -> Step:
        if self.G is not None:
            return row_sparse.solve_gram(self.G, self.B, self.beta, self.t, start=self.P)
        return row_sparse.solve_products(
            lambda V: self.readings.normal(V, self.s),
            self.B,
            self.beta,
            self.t,
            start=self.P,
            diagonal=self.diagonal,
            tol=self.feature_tol,
            max_iter=FEATURE_STEPS,
        )

    def _update_Y(self) -> float:
        """Y by Eq. 13, where it waits for P. Gives Σ s_ii ‖xⁱP − yⁱ‖²."""
        if self.G is not None and not self.coupled:
            return self._fit(self.G @ self.P)
        if self.working is not None and not self.coupled:
            self.GP = self.readings.normal(self.P, self.s)
            return self._fit(self.GP)
        if self._fitted is None:
            self._fitted = self.space.empty(*self.Y.shape)
        if self.working is None:
            fitted = self.readings.forward(self.P, self._fitted)
        else:
            fitted, self.GP = self.readings.forward_normal(self.P, self._fitted, self.s)
        if self.coupled:
            self._recover(fitted)
            self.structure = self.reconstruction.error(self.Y)
        return self._weighed(add(fitted, self.Y, -1.0))

    def _fit(self, GP: Array) -> float:
        """Σ s_ii ‖xⁱP − yⁱ‖², by X'SX P."""
        return float(np.vdot(self.P, GP) - 2.0 * np.vdot(self.P, self.B)) + self.weighted_labels

    def _weighed(self, left: Array) -> float:
        """Σ s_ii ‖leftⁱ‖²."""
        return sum(
            float(self.s[part] @ np.einsum("ij,ij->i", left[part], left[part])) for part in row_blocks(*left.shape)
        )

    def _recover(self, fitted: Array | None) -> None:
        found = recover_labels(
            self.Y,
            self.free,
            self.s,
            fitted,
            self.alpha,
            self.reconstruction,
            tol=LABEL_TOL,
            max_iter=LABEL_STEPS,
        )
        self.trace.recovery_steps.append(found.steps)
        self.trace.recovery_residual.append(found.residual)

    def _save(self) -> None:
        facts: dict[str, Any] = {"beta": self.beta, "epsilon": self.epsilon, "feature_tol": self.feature_tol}
        arrays: dict[str, NDArray[Any]] = {"Y": self.Y, "P": self.P, "B": self.B}
        if self.working is not None:
            assert self.GP is not None
            arrays |= {"GP": self.GP, "rows": self.working.rows, "following": self.working.following}
        save_state(self.checkpoint, arrays, self.trace, self.readings.records, **facts)

    def _restore(self, state: State) -> None:
        self.trace = _Trace(**state.facts["trace"])
        self.epsilon, self.feature_tol = state.facts["epsilon"], state.facts["feature_tol"]
        fill(self.Y, state.arrays.pop("Y"))
        self.P = state.arrays["P"]
        self.GP = state.arrays.get("GP")
        self.t = row_sparse.weights(self.P, self.epsilon)


def _squares(moments: FeatureMoments, scaling: Scaling | None) -> Array:
    """Mean square of every feature as the regression sees it, shape (d,)."""
    if scaling is not None:
        return np.asarray((scaling.factor > 0).astype(np.float64))
    return np.asarray(moments.m2 / max(moments.n, 1) + moments.mean**2)
