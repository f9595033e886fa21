"""SMFS: features that explain labels which follow the density of the data (Xu & Zhao 2020).

Labels may be missing or unknown. Rows are neighbours when few rows lie with them in the nodes of an isolation forest;
unknown labels follow those of the neighbours (W) and a row-sparse regression on the features (P), in turns. X is read
for moments, forest, leaves and X'SX, and then twice an iteration, or not at all where nothing new can come of it.
T. Xu, L. Zhao, "A structure-induced framework for multi-label feature selection with highly incomplete labels", IEEE
Access 8 (2020) 71219-71230, doi:10.1109/ACCESS.2020.2987922.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask import checkpoints, runtime
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.checkpoints import Checkpoint, State
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.primitives import linear
from mlfs_dask.primitives.gram import GRAM_CAP, Gram, gram
from mlfs_dask.primitives.isolation import isolation_graph, plan_isolation, with_libraries
from mlfs_dask.primitives.labels import WithLabels, collect_labels
from mlfs_dask.primitives.linear import Scaling, standard_scaling
from mlfs_dask.primitives.moments import FeatureMoments, Moments
from mlfs_dask.primitives.neighbours import Neighbours
from mlfs_dask.primitives.passes import PassRecord, records_from_facts, records_to_facts
from mlfs_dask.primitives.plan import Plan, combine
from mlfs_dask.primitives.row_passes import plan_rows
from mlfs_dask.runtime import Resources, driver_bytes
from mlfs_dask.selectors.base import BaseSelector, Scores
from mlfs_dask.solvers import label_recovery, row_sparse
from mlfs_dask.solvers.label_recovery import Reconstruction, Recovery, recover_labels
from mlfs_dask.solvers.row_sparse import Step
from mlfs_dask.typing import Profile, RowSource

Array = NDArray[np.float64]

#: β relative to the least one at which P is 0, chosen by `benchmarks/smfs_defaults.py`.
BETA_SHARE = 0.1

#: Most reweightings of one P-step where they cost no reading of X, and the relative change of P at which they end.
INNER_ITERATIONS = 10
INNER_TOL = 0.01

#: Relative residual of the conjugate gradients of a Y-step, and most of their steps.
LABEL_TOL = 1e-9
LABEL_STEPS = 1000

#: Relative residual of those of a P-step above the Gram cap, each of which reads X, and most of their steps. Loose ones
#: are enough, since every step lowers the objective; the residual is asked to be smaller as the objective settles.
FEATURE_TOL = 1e-2
FEATURE_STEPS = 5

#: Row norms up to so many ε count as zero.
VANISHED = 1e3


class SMFS(BaseSelector):
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
        Most features for which X'SX is formed; above it, conjugate gradients read X.
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
    Above `gram_cap` features every step of the conjugate gradients is another, 5 an iteration at most. The pair search
    takes about n² trees / 5·10⁹ seconds on a core.

    The driver holds about n (8 · 4 q + 2 trees + 40 k) bytes, and 24 d² where X'SX is formed. Missing features are
    refused.

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
    passes = "4 + at most 2 an iteration (7 above the Gram cap)"
    memory = "worker: 8 bytes * d² (or d * q above the Gram cap); driver: n * (32 q + 2 trees + 40 k) + 24 d² bytes"
    accepts_unknown_labels = True
    keeps_checkpoints = True
    label_threshold = 0.0

    labels_: Array

    def __init__(
        self,
        n_features_to_select: int | float | None = None,
        *,
        alpha: float | None = None,
        beta: float | None = None,
        n_neighbors: int = 15,
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
        if self.missing not in ("auto", "coded", "zeros"):
            raise UsageError(f"missing must be 'auto', 'coded' or 'zeros'; got {self.missing!r}")
        if self.consistency not in ("observed", "none"):
            raise UsageError(f"consistency must be 'observed' or 'none'; got {self.consistency!r}")
        if not isinstance(self.standardise, (bool, np.bool_)):
            raise UsageError(f"standardise must be true or false; got {self.standardise!r}")
        for name, optional in (("alpha", True), ("beta", True), ("tol", False)):
            value = getattr(self, name)
            if value is None and optional:
                continue
            if not _is_number(value) or value < 0:
                raise UsageError(f"{name} must be a non-negative number; got {value!r}")
        for name, least, optional in (
            ("n_neighbors", 1, False),
            ("n_trees", 1, False),
            ("max_samples", 1, False),
            ("inner_iterations", 1, True),
            ("gram_cap", 0, False),
            ("max_iter", 1, False),
            ("random_state", 0, True),
        ):
            value = getattr(self, name)
            if value is None and optional:
                continue
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise UsageError(f"{name} must be a whole number of at least {least}; got {value!r}")
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
        graph = plan_isolation(source, k, resources, n_trees=self.n_trees, max_samples=self.max_samples)
        once = [moments, graph.sample, graph.leaves]
        lookups = n * n * self.n_trees
        resources = with_libraries(resources, lookups)  # what a process has loaded stays
        if has_gram:
            once.append(plan_rows(source, Gram(d, q, weighted=True), resources, input_bytes=8 * (q + 1)))
        forward = linear.plan_linear(source, q, resources, forward=True)
        backward = linear.plan_linear(source, q, resources, backward=True)
        again = [forward, backward]
        if not has_gram:
            again += [linear.plan_linear(source, q, resources, forward=True, backward=True)] * self._steps()
        tasks, bytes_read, peak_worker = combine([*once, *again])
        if resources.client is not None:
            peak_worker = max(peak_worker, graph.search_bytes)
        rest = self.max_iter - 1
        state = 8 * n * q * 2 + n * q + 16 * n + 24 * n * k + 13 * profile.label_nonzeros
        solver = label_recovery.GROUP_MATRICES * min(8 * n * q, max(label_recovery.GROUP_BYTES, 8 * n)) + 24 * n * k
        held = state + max(graph.driver_bytes, solver + 8 * n * q) + 8 * d * q * row_sparse.FEATURE_MATRICES
        held += 8 * d * d * (1 + row_sparse.SQUARE_MATRICES) if has_gram else 0
        in_process = peak_worker - resources.process_bytes if resources.client is None else 0
        return Plan(
            passes=len(once) + self.max_iter * len(again),
            tasks=tasks + rest * sum(p.tasks for p in again),
            bytes_read=bytes_read + rest * sum(p.bytes_read for p in again),
            peak_worker_bytes=peak_worker,
            peak_driver_bytes=driver_bytes() + held + in_process,
            notes=(
                f"at most {self.max_iter} iterations of {len(again)} readings; most data needs 5 to 20 iterations, and "
                "no readings in them where labelled rows are known in all labels",
                f"X'SX is {d:,} x {d:,}" if has_gram else f"X'SX is not formed ({d:,} features > {self.gram_cap:,})",
                f"{lookups:.1e} look-ups of masses, about {lookups / 5e9 / resources.slots:,.0f} s",
            ),
        )

    def _steps(self) -> int:
        """Most readings of one P-step above the Gram cap."""
        return FEATURE_STEPS * (self.inner_iterations or 1)

    # ------------------------------------------------------------------ the method

    def _score(self, source: RowSource, resources: Resources, k: int) -> Scores:
        labels = collect_labels(source, Moments(source.profile.d), resources, label="moments")
        records = [labels.record]
        self._check_moments(labels.result)
        scaling = standard_scaling(labels.result) if self.standardise else None
        Y, known, s = self._known(labels.Y)

        def find_neighbours() -> dict[str, NDArray[Any]]:
            found = isolation_graph(
                source,
                self.n_neighbors,
                resources,
                n_trees=self.n_trees,
                max_samples=self.max_samples,
                seed=int(self.random_state or 0),
            )
            records.extend(found.records)
            return {**found.neighbours._asdict(), "forest_rows": np.array(found.sample_rows)}

        checkpoint = checkpoints.current()
        graph = checkpoint.part("neighbours", find_neighbours)
        W = density_structure(Neighbours(graph["indices"], graph["distances"]))
        reconstruction = Reconstruction(W)
        start_labels(Y, known, W)

        problem = _Problem(
            source=source,
            resources=resources,
            scaling=scaling,
            squares=_squares(labels.result, scaling),
            Y=Y,
            free=np.ones_like(known) if self.consistency == "none" else ~known,
            s=s,
            reconstruction=reconstruction,
            alpha=self._alpha(s),
            beta=self.beta,
            inner_iterations=self.inner_iterations,
            gram_cap=self.gram_cap,
            records=records,
            checkpoint=checkpoint,
        )
        trace = problem.run(self.tol, self.max_iter)
        self.labels_ = Y
        scores = row_norms(problem.P)
        self._warn(trace, scores, problem.epsilon)
        extra: dict[str, Any] = {
            "alpha": problem.alpha,
            "beta": problem.beta,
            "gram": problem.G is not None,
            "step": trace.step,
            "recovery_steps": [r.steps for r in trace.recoveries],
            "recovery_residual": [r.residual for r in trace.recoveries],
            "regression_steps": trace.regression_steps,
            "forest_rows": int(graph["forest_rows"]),
            "labelled_rows": int((s > 0).sum()),
            "unknown_entries": int(Y.size - known.sum()),
            "recovered_positives": int(((Y > 0) & ~known).sum()),
            "constant_features": int((problem.squares == 0).sum()),
        }
        return Scores(
            scores,
            records,
            iterations=len(trace.objective),
            converged=trace.converged,
            objective=trace.objective,
            extra=extra,
        )

    def _known(self, labels: sp.csr_array) -> tuple[Array, NDArray[np.bool_], Array]:
        """Y as 1 and −1 (n, q), which entries are known (n, q), and the diagonal of S (n,).

        Raises
        ------
        DataError
            Nothing is known.
        """
        entries = labels.toarray()
        positive = entries > 0
        coded = self.missing == "coded" or (self.missing == "auto" and bool((labels.data < 0).any()))
        known = entries >= 0 if coded else positive
        if not known.any():
            raise DataError(
                "no label of any row is known" if coded else "no row of Y has a positive label",
                cure="give labels 1 and 0 for some rows; -1 stands for an unknown one",
            )
        times = positive.sum(axis=0)
        # Eq. 7: a row weighs by how rare its positive labels are.
        s = (positive / np.maximum(times, 1)).sum(axis=1)
        return np.where(positive, 1.0, -1.0), known, s

    def _alpha(self, s: Array) -> float:
        if self.alpha is not None:
            return float(self.alpha)
        weighed = s[s > 0]
        return float(weighed.mean()) if len(weighed) else 1.0

    def _check_moments(self, moments: FeatureMoments) -> None:
        broken = ~(np.isfinite(moments.mean) & np.isfinite(moments.m2))
        if broken.any():
            f = int(np.flatnonzero(broken)[0])
            names = getattr(self, "feature_names_in_", None)
            raise DataError(
                f"X contains NaN or infinity, or values too large for float64 sums, in {int(broken.sum())} features",
                column=f + 1 if names is None else str(names[f]),
                cure="fill in missing values (for example with sklearn.impute.SimpleImputer), or leave the feature out",
            )

    def _warn(self, trace: _Trace, scores: Array, epsilon: float) -> None:
        if not scores.any():
            warnings.warn(
                "SMFS can tell no feature from another: no row has a known positive label, or every feature is "
                "constant. All features get the same score.",
                UserWarning,
                stacklevel=4,
            )
        elif scores.max() <= VANISHED * epsilon:
            warnings.warn(
                "SMFS went to P = 0: beta is too large, or, with consistency='none', iterations were too many. Scores "
                "are what is left of P.",
                UserWarning,
                stacklevel=4,
            )
        elif not trace.converged:
            warnings.warn(
                f"SMFS did not converge in {self.max_iter} iterations (the last one changed the objective by "
                f"{trace.step[-1]:.1e} of it). Increase max_iter, or tol.",
                ConvergenceWarning,
                stacklevel=4,
            )


def density_structure(neighbours: Neighbours) -> sp.csr_array:
    """W of Eq. 3: row-softmax of −ξ over the neighbours, shape (n, n), k entries a row.

    Parameters
    ----------
    neighbours : Neighbours
        `distances` is ξ.
    """
    weights = np.exp(-neighbours.distances)
    if weights.shape[1]:
        weights /= weights.sum(axis=1, keepdims=True)
    return neighbours.to_csr(weights)


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
    rows = np.flatnonzero(known.any(axis=1) & ~known.all(axis=1))
    if len(rows) and W.nnz:
        expected = W[rows] @ Y
        Y[rows] = np.where(known[rows], Y[rows], expected)


@dataclass
class _Trace:
    """What every iteration tells."""

    objective: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    regression_steps: list[int] = field(default_factory=list)
    converged: bool = False


@dataclass
class _Problem:
    """Algorithm 1 of the paper, in its letters, on X as products.

    `free` marks the entries of Y that are solved for; Y and P are the state.
    """

    source: RowSource
    resources: Resources
    scaling: Scaling | None
    squares: Array
    Y: Array
    free: NDArray[np.bool_]
    s: Array
    reconstruction: Reconstruction
    alpha: float
    beta: Any
    inner_iterations: int | None
    gram_cap: int
    records: list[PassRecord]
    checkpoint: Checkpoint
    G: Array | None = None
    P: Array = field(init=False)
    epsilon: float = 0.0
    feature_tol: float = field(init=False)

    def run(self, tol: float, max_iter: int) -> _Trace:
        trace = _Trace()
        self.feature_tol = FEATURE_TOL
        d, q = self.source.profile.d, self.Y.shape[1]
        self.P = np.zeros((d, q))
        t = np.full(d, 2.0 * np.sqrt(q))  # 1/D
        # Labels of rows without weight have no part in P; where all others are known, P does not wait for Y.
        coupled = bool((self.free & (self.s > 0)[:, np.newaxis]).any())

        state = self.checkpoint.load()
        if state is not None:
            self._restore(state, trace)
            t = row_sparse.weights(self.P, self.epsilon)
        elif not coupled and self.free.any():
            trace.recoveries.append(self._recover(None))
        structure = self.reconstruction.error(self.Y)

        if d <= self.gram_cap:
            self.G, B, record = gram(self.source, self.resources, R=self.Y, weights=self.s, scaling=self.scaling)
            self.records.append(record)
        elif state is None:
            B = self._backward()
        if state is not None:
            B = state.arrays["B"]
        if self.beta is None:
            self.beta = BETA_SHARE * 2.0 * float(row_norms(B).max(initial=0.0))
        beta = self.beta = float(self.beta)
        weighted_labels = float(self.s @ np.einsum("ij,ij->i", self.Y, self.Y))

        for iteration in range(len(trace.objective) + 1, max_iter + 1):
            steps = 0
            for _ in range(self.inner_iterations or (INNER_ITERATIONS if self.G is not None else 1)):
                step = self._regress(B, beta, t)  # Eq. 10
                moved = float(np.linalg.norm(step.P - self.P))
                self.P = step.P
                steps += step.steps
                self.epsilon = self.epsilon or row_sparse.smoothing(self.P)
                t = row_sparse.weights(self.P, self.epsilon)  # Eq. 9
                settled = self.inner_iterations is None and moved <= INNER_TOL * float(np.linalg.norm(self.P))
                if beta == 0 or settled:
                    break
            trace.regression_steps.append(steps)

            if coupled or self.G is None:
                fitted = self._forward()
                if coupled:
                    trace.recoveries.append(self._recover(fitted))  # Eq. 13
                    structure = self.reconstruction.error(self.Y)
                left = fitted
                left -= self.Y
                fit = float(self.s @ np.einsum("ij,ij->i", left, left))
                del fitted, left
            else:
                fit = float(np.vdot(self.P, self.G @ self.P - 2.0 * B)) + weighted_labels
            objective = fit + self.alpha * structure + beta * row_sparse.penalty(self.P, self.epsilon)  # Eq. 6

            before = trace.objective[-1] if trace.objective else np.inf
            change = abs(before - objective) / max(abs(objective), 1e-300) if np.isfinite(before) else 1.0
            trace.objective.append(objective)
            trace.step.append(change)
            runtime.emit("step", number=iteration, objective=objective, step=change)
            # A loose P-step off by a residual r leaves the objective off by about r².
            if change <= tol and (self.G is not None or self.feature_tol <= 0.1 * np.sqrt(tol)):
                trace.converged = True
                break
            self.feature_tol = min(self.feature_tol, 0.1 * float(np.sqrt(max(change, tol))))
            if coupled and iteration < max_iter:
                B = self._backward()
            if self.checkpoint.due():
                self._save(trace, B)
        return trace

    def _save(self, trace: _Trace, B: Array) -> None:
        facts = {
            "objective": trace.objective,
            "step": trace.step,
            "recoveries": [list(recovery) for recovery in trace.recoveries],
            "regression_steps": trace.regression_steps,
            "beta": self.beta,
            "epsilon": self.epsilon,
            "feature_tol": self.feature_tol,
            "records": records_to_facts(self.records),
        }
        self.checkpoint.save({"Y": self.Y, "P": self.P, "B": B}, facts)

    def _restore(self, state: State, trace: _Trace) -> None:
        facts = state.facts
        trace.objective += facts["objective"]
        trace.step += facts["step"]
        trace.recoveries += [Recovery(*recovery) for recovery in facts["recoveries"]]
        trace.regression_steps += facts["regression_steps"]
        self.beta, self.epsilon, self.feature_tol = facts["beta"], facts["epsilon"], facts["feature_tol"]
        self.records += records_from_facts(facts["records"])
        self.Y[...] = state.arrays["Y"]
        self.P = state.arrays["P"]

    def _regress(self, B: Array, beta: float, t: Array) -> Step:
        if self.G is not None:
            return row_sparse.solve_gram(self.G, B, beta, t, start=self.P)
        return row_sparse.solve_products(
            self._normal,
            B,
            beta,
            t,
            start=self.P,
            diagonal=self._diagonal(),
            tol=self.feature_tol,
            max_iter=FEATURE_STEPS,
        )

    def _recover(self, fitted: Array | None) -> Recovery:
        return recover_labels(
            self.Y,
            self.free,
            self.s,
            fitted,
            self.alpha,
            self.reconstruction,
            tol=LABEL_TOL,
            max_iter=LABEL_STEPS,
        )

    def _diagonal(self) -> Array:
        """About the diagonal of X'SX: the mean square of a feature times Σ s."""
        return np.asarray(self.squares * self.s.sum())

    def _forward(self) -> Array:
        product, record = linear.forward(self.source, self.P, self.resources, scaling=self.scaling)
        self.records.append(record)
        return product

    def _backward(self) -> Array:
        product, record = linear.backward(self.source, self.Y, self.resources, scaling=self.scaling, weights=self.s)
        self.records.append(record)
        return product

    def _normal(self, V: Array) -> Array:
        product, record = linear.normal_product(self.source, V, self.resources, scaling=self.scaling, weights=self.s)
        self.records.append(record)
        return product


def _squares(moments: FeatureMoments, scaling: Scaling | None) -> Array:
    """Mean square of every feature as the regression sees it, shape (d,)."""
    if scaling is not None:
        return np.asarray((scaling.factor > 0).astype(np.float64))
    return np.asarray(moments.m2 / max(moments.n, 1) + moments.mean**2)


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float, np.integer, np.floating))
        and not isinstance(value, bool)
        and bool(np.isfinite(value))
    )
