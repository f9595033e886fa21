"""Row-sparse regressions on labels that are alike in rows near each other: an iteration is one pass, by anchors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import Anchors, anchor_values, join_coincident
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.anchored_regression import MeanDegree
from mlfs_dask.selectors.contract import family
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.loop import A, F, Loop, Shares
from mlfs_dask.selectors.parameters import (
    Absolute,
    AnchorCount,
    AnchorNeighbors,
    GramCap,
    MaxIter,
    Missing,
    Param,
    seed_of,
)
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.gram import GRAM_CAP, Gram
from mlfs_dask.statistics.row_system import RowSystem, SystemSums, settle_rows
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Seed

#: Name of the pass in which W = 0, from which values of anchors follow.
START = "start"

#: e of distances √(‖f − u‖² + e²) relative to the deviation of the labels at the start.
SMOOTHING = 1e-3


@dataclass
class Fixed(Shares):
    """Constants of the iterations."""

    gram: Annotated[Array, "g g", "X'X"]


@dataclass
class At:
    """The small variables: centres C and values U of the anchors; γ as it is, and ε of the penalty.

    `unit` is what lengths of labels are measured by: their deviation from their means at the start, or, of anchors that
    follow their rows, η.
    """

    W: Annotated[Array, "d q"]
    b: Annotated[Array, "q"]
    C: Annotated[Array, "m d"]
    U: Annotated[Array, "m q"]
    gamma: Annotated[float, ""]
    epsilon: Annotated[float, ""]
    unit: Annotated[float, ""]


@family
class AnchoredLoop(Loop[F, A]):
    """Base class of row-sparse regressions with anchors, placed on a sample of the first pass."""

    caps_features = True
    passes = "2 + 1 an iteration"

    #: Whether the first pass sums X'X.
    forms_gram: ClassVar[bool] = True
    #: Whether the driver weighs rows of the sample, by compiled kernels.
    weighs_sample: ClassVar[bool] = False

    gamma: Annotated[float, Param("Weight of the penalty, relative to the least weight at which W = 0.", above=0)] = 0.1
    absolute: Absolute = False
    n_anchors: AnchorCount = 300
    anchor_neighbors: AnchorNeighbors = 3
    gram_cap: GramCap = GRAM_CAP
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 0.0001
    max_iter: MaxIter = 100
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample and of k-means")] = None

    setup_workspace = "p"

    def sizes(self, profile: Profile) -> dict[str, int]:
        graph, d = AnchorGraph.of(self, profile), profile.d
        return {"d": d, "q": profile.q, "m": graph.count, "p": graph.sample_numbers, "g": d if self.forms_gram else 0}

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        sample = AnchorGraph.of(self, profile).sample
        gram: dict[str, Statistic] = {"gram": Gram(profile.d)} if self.forms_gram else {}
        return super().reads(profile) | {"sample": sample} | gram

    def cost_of_start(self, profile: Profile, statistic: Statistic) -> Cost:
        """Return a pass over the start, with the sample still at hand."""
        return Cost(
            steps=[Reading(START, (statistic,), workspace="p")],
            compiled=self.weighs_sample and gates.compiles_rows(profile.n),
            loads_sklearn=True,
            notes=[AnchorGraph.of(self, profile).note],
        )

    def place(self, job: Readings, scaling: Scaling, results: Mapping[str, Any]) -> Anchors:
        """Return anchors among the rows of the sample."""
        return AnchorGraph.of(self, job.source.profile).place(results["sample"].X, scaling)

    def facts(self, fixed: Any, at: Any) -> dict[str, Any]:
        return {"anchors": len(at.U)}

    def _anchors(self, fixed: Any, at: Any) -> Anchors:
        return Anchors(at.C, fixed.centre, fixed.factor, self.anchor_neighbors)

    def penalty_weight(self, weight: float, B: Array, trace: LoopTrace) -> float:
        """Return γ as it is, which is 0 before the first step for W; B is its X'F."""
        return weight or penalty_weight(self, "gamma", row_sparse.critical_weight(B), trace.penalties)


@family
class GraphRegression(AnchoredLoop[Fixed, At]):
    """Base class of regressions with the labels F of the rows, which a graph of the rows makes alike.

    Minimises ‖XW + 1b' − F‖² + Σ κ (f_il − y_il)² over known labels + c Σ_ia z_ia ‖f_i − u_a‖² + γ Σ_f ‖w_f‖, and what
    a method adds. Labels, W and values of anchors are made better in turn, so that no iteration raises the objective
    where the rows' weights z of anchors stay.
    """

    records: ClassVar[tuple[type, type]] = Fixed, At
    supervision = "semi-supervised: labels may be unknown"
    unknown_entry = "is fitted or recovered inside the method"
    memory = "worker: 8 bytes * (2 m d + 2 d q + m²) for m anchors, and d² in the first pass; driver: 8 bytes * 5 d²"

    #: Whether distances of labels from anchors count and not their squares.
    counts_distances: ClassVar[bool] = False
    #: Whether anchors follow their rows, which are near one by their labels, too.
    adaptive: ClassVar[bool] = False

    alpha: Annotated[float, Param("Weight of the graph of the rows.")] = 1.0
    kappa: Annotated[float, Param("Weight of the known labels; the regression has weight 1.", above=0)] = 1000.0
    n_neighbors: MeanDegree = 5

    # ------------------------------------------------------------------ for methods

    def quadratic(self, fixed: Fixed, at: At, sums: SystemSums) -> Array:
        """Return the statistics of the step for W: X'X, and those that a method adds."""
        return fixed.gram

    def further_terms(self, fixed: Fixed, at: At, sums: SystemSums) -> float:
        """Return the values of the objective."""
        return 0.0

    @property
    def prediction_weight(self) -> float:
        """Weight of predictions in the distance of a row from an anchor that follows its rows, beside its labels."""
        return 0.0

    # ------------------------------------------------------------------ what it costs

    #: Factors of X'X and what a method adds to it, X'F and what follows it, systems of anchors.
    workspace = f"{1 + row_sparse.SQUARE_MATRICES} d d + 8 d q + 4 m d + 6 m m"

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        return self.cost_of_start(profile, self._system(fixed, at))

    # ------------------------------------------------------------------ the method

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        """Return the best labels where W = 0 and anchors begin with one value, so that rows are near one by the
        features.
        """
        C = self.place(job, fixed.scaling, results).centres
        W = np.zeros((len(fixed.centre), len(fixed.share)))
        unit = 1.0 / SMOOTHING if self.counts_distances else 1.0  # e = 1, which is of the size of the labels
        at = At(W, fixed.share, C, np.tile(fixed.share, (len(C), 1)), 0.0, 0.0, unit)
        sums: SystemSums = job.run(START, self._system(fixed, at))[0]
        b, U, _ = settle_rows(self._system(fixed, at), sums)
        return replace(at, b=b, C=self._centres(at, sums), U=U, unit=self._unit(fixed, at, sums))

    def _unit(self, fixed: Fixed, at: At, sums: SystemSums) -> float:
        """Return the unit of label lengths from the sums of the start, where XW + 1b' is 1b'."""
        about_mean, n = float(sums.terms[0]), float(sums.masses[0])
        if not self.adaptive:
            return float(np.sqrt(about_mean / n)) or 1.0
        masses, weight = sums.masses[1:], self._weight or 1.0
        labels = (
            about_mean - float(masses @ np.square(anchor_values(sums.HF[1:], masses, at.U) - at.b).sum(axis=1)) / weight
        )
        features = float(np.trace(fixed.gram))
        features -= float(masses @ np.square(anchor_values(sums.HX[1:], masses, at.C)).sum(axis=1)) / weight
        # η at which rows are as far from their anchors by the features as by the labels.
        return labels / features if min(labels, features) > 0 else 1.0

    def _centres(self, at: At, sums: SystemSums) -> Array:
        return anchor_values(sums.HX[1:], sums.masses[1:], at.C) if self.adaptive else at.C

    @property
    def _weight(self) -> float:
        """c."""
        return float(self.alpha * self.n_neighbors)

    def _system(self, fixed: Fixed, at: At) -> RowSystem:
        return RowSystem(
            self._anchors(fixed, at),
            at.W,
            at.b,
            at.U,
            float(self.kappa),
            self._weight,
            smoothing=SMOOTHING * at.unit if self.counts_distances else None,
            eta=at.unit if self.adaptive else None,
            theta=self.prediction_weight,
        )

    def rows(self, fixed: Fixed, at: At) -> Any:
        return self._system(fixed, at)

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        rows: SystemSums = sums[0]
        value = float(rows.terms.sum()) + at.gamma * row_sparse.penalty(at.W, at.epsilon)
        if self.adaptive:
            HX, masses = rows.HX[1:], rows.masses[1:]
            # Of features, and of predictions, which are those of the centres where the anchors are.
            value += at.unit * (self._weight * float(np.trace(fixed.gram)) + _about(masses, HX, at.C))
            if self.prediction_weight:
                size = float(np.vdot(at.W, fixed.gram @ at.W))
                value += self.prediction_weight * (self._weight * size + _about(masses, HX @ at.W, at.C @ at.W))
        return {"objective": value + self.further_terms(fixed, at, rows)}

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        rows: SystemSums = sums[0]
        b, U, XF = settle_rows(self._system(fixed, at), rows)
        XF[:, ~fixed.varies] = 0.0  # what rounding leaves of labels that are the same everywhere
        gamma = self.penalty_weight(at.gamma, XF, trace)
        W, epsilon = row_sparse.reweight(self.quadratic(fixed, at, rows), XF, gamma, at.W, at.epsilon)
        C = self._centres(at, rows)
        if self.adaptive:
            scale = np.sqrt(at.unit)
            C, U = np.split(join_coincident(np.concatenate([scale * C, U], axis=1)), [C.shape[1]], axis=1)
            C = C / scale
        return At(W, b, C, U, gamma, epsilon, at.unit)


def _about(masses: Array, sums: Array, points: Array) -> float:
    """Return Σ_ia g_ia (‖p_a‖² − 2 v_i·p_a), the sums being G'V and the points p_a."""
    return float(masses @ np.square(points).sum(axis=1)) - 2.0 * float(np.vdot(sums, points))
