"""After CMFS: latent labels are factors of the features and of the labels, and alike in rows with the same labels.

An iteration is one pass, in which the latent labels of each row are computed from small matrices, added to sums and
discarded. Nothing has d × d numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.anchors import anchor_values
from mlfs_dask.blocks.label_sets import LabelSets, frequent_label_sets
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.blocks.rounding import NEGLIGIBLE
from mlfs_dask.blocks.unknown import at_shares
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.loop import Loop, Scaled, placeholder
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Missing, Param, seed_of
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.solvers import proximal, row_sparse
from mlfs_dask.solvers.blockwise import unit_rows
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.labelled import AtShares
from mlfs_dask.statistics.latent_rows import LatentRows, LatentSums, first_factors
from mlfs_dask.statistics.sample import RowSample
from mlfs_dask.statistics.scaling import Scaling, standard_scaling
from mlfs_dask.typing import Array, Seed, numbers

#: Steps of A and of B in an iteration, and the relative change of A at which its steps end.
FEATURE_STEPS, LABEL_STEPS, SETTLED = 50, 5, 1e-3

#: Name of the pass for the first V.
START = "start"


@dataclass
class Fixed(Scaled):
    """Constants of the iterations: the label sets whose rows are joined, Y'Y, and the weight of Y."""

    keys: Annotated[NDArray[np.uint64], "m"]
    pairs: Annotated[Array, "q q", "pairs of labels"]
    share: Annotated[Array, "q", "shares of labels"]
    rows: Annotated[float, ""]
    squares: Annotated[float, ""]  # ‖X‖²
    alpha: Annotated[float, ""]


@dataclass
class At:
    """The small variables; the offset of the features, and γ as it is."""

    A: Annotated[Array, "d l"]
    offset: Annotated[Array, "d"]
    B: Annotated[Array, "l q"]
    U: Annotated[Array, "m l"]
    gamma: Annotated[float, ""]


@method(
    "cmfs",
    "Correlation information (after CMFS)",
    paper="after Braytee, Liu, Catchpoole & Kennedy 2017, CIKM, 1649-1656",
    doi="10.1145/3132847.3132858",
)
class CMFS(Loop[Fixed, At]):
    """Multi-label feature selection using correlation information, after Braytee, Liu, Catchpoole & Kennedy 2017.

    The paper's text was not available; the method computes the following. Minimises ‖X − 1m' − VA'‖² + α‖Y − VB‖² +
    β tr V'LV + γ Σ_f ‖a_f‖ with V ≥ 0, B ≥ 0 and rows of B of length 1: the latent labels V of the rows are factors
    of the features and of the labels, and similar in rows that have the same labels. A feature's score is the norm
    of its row of A.

    Notes
    -----
    Features are standardised, by algebra where X is sparse. Passes over X: one for moments, pairs of labels and a
    sample, one for the first V, and one per iteration, in which the latent labels of each row are made, added to
    sums and discarded. Unknown labels (-1) are at the mean of the label's known ones. In the graph L, whose degrees
    are 1, rows of one label set, unknown entries being the same, are joined alike; the label sets are the most
    frequent ones of a sample of the rows. α is relative to ‖X‖²/‖Y‖², γ to the least weight at which the first A is
    0.

    What differs from the factorisation that the paper's abstract describes, of X in [0, 1] with A ≥ 0: the offsets m,
    without which the score follows the size of a feature's values, and A of either sign, since a feature and its
    negative have the same information. On emotions the ranking is worse than random features with α = 1, and so it is
    on emotions and yeast without the offsets.

    References
    ----------
    A. Braytee, W. Liu, D. Catchpoole, P. Kennedy, "Multi-label feature selection using correlation information",
    Proceedings of the ACM Conference on Information and Knowledge Management (2017) 1649-1656,
    doi:10.1145/3132847.3132858.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> sorted(mlfs.CMFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    alpha: Annotated[float, Param("Weight of the labels, relative to ‖X‖²/‖Y‖².", above=0)] = 10.0
    beta: Annotated[float, Param("Weight of the graph of rows with the same labels.")] = 0.1
    gamma: Annotated[float, Param("Weight of the penalty, relative to the least weight at which A = 0.", above=0)] = 0.1
    absolute: Absolute = False
    n_latent: Annotated[int | None, Param("Number of latent labels, at most q; by default half of q, at least 1.")] = (
        None
    )
    n_label_sets: Annotated[int, Param("Largest number of label sets whose rows are connected in the graph.")] = 300
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 0.001
    max_iter: MaxIter = 60
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample of rows that label sets come from")] = None

    name = "CMFS"
    known_entries = fills_pairs = True
    records = Fixed, At
    typical_iterations = 6, 25
    passes = "2 + 1 an iteration"
    memory = "worker: 8 bytes * (2 d l + m l) for l latent labels and m label sets; driver: 8 bytes * 14 d l"

    setup_workspace = "sample"
    workspace = f"{proximal.FEATURE_MATRICES} d l + 2 d l"  # steps of A, and X'V

    def _latent(self, q: int) -> int:
        return min(q, max(1, q // 2) if self.n_latent is None else self.n_latent)

    def _sample(self, profile: Profile) -> RowSample:
        return AnchorGraph(profile, self.n_label_sets, 1, self.seed).sample

    def sizes(self, profile: Profile) -> dict[str, int]:
        groups = min(self.n_label_sets, len(self._sample(profile).chosen) // 2)
        return super().sizes(profile) | {"l": self._latent(profile.q), "m": groups}

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        return super().reads(profile) | {"sample": self._sample(profile)}

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        start = self.rows(fixed, at, placeholder(profile.q, 2 * self._latent(profile.q)))
        sample = self._sample(profile).result_bytes
        return Cost(steps=[Reading(START, (start,), workspace="2 d l")], sizes={"sample": numbers(sample)})

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        moments, labels, scaling = results["moments"], results["labels"], standard_scaling(results["moments"])
        n, pairs = job.source.profile.n, labels.pairs.astype(np.float64)
        share = labels.shares(n)
        keys = frequent_label_sets(at_shares(results.pop("sample").Y, share), self.n_label_sets)
        squares = float(scaling.factor**2 @ moments.m2)
        alpha = self.alpha * (squares or 1.0) / max(float(np.trace(pairs)), 1.0)
        return Fixed(scaling.centre, scaling.factor, keys, pairs, share, float(n), squares, alpha)

    def rows(self, fixed: Fixed, at: At, start: Array | None = None) -> Statistic:
        """Return the statistic of V, with features less their offsets."""
        shift = np.divide(at.offset, fixed.factor, out=np.zeros_like(at.offset), where=fixed.factor > 0)
        scaling = Scaling(fixed.centre + shift, fixed.factor)
        sets = LabelSets(fixed.keys) if len(fixed.keys) else None
        A, U = (at.A, at.U) if start is None else (at.A[:, :0], at.U[:, :0])
        B = at.B if start is None else at.B[:0]
        rows = LatentRows(scaling, sets, A, B, U, fixed.alpha, float(self.beta), start, factors=True)
        return AtShares(rows, fixed.share)

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        """Return the b of a non-negative factorisation of Y, and A for the V of this factorisation."""
        d, m, q = len(fixed.centre), len(fixed.keys), len(fixed.pairs)
        nothing = At(np.zeros((d, 0)), np.zeros(d), np.zeros((0, q)), np.zeros((m, 0)), 0.0)
        B, sums = first_factors(
            fixed.pairs, self._latent(q), lambda both: job.run(START, self.rows(fixed, nothing, both))[0]
        )
        at = replace(nothing, A=np.zeros((d, len(B))), B=B, U=np.zeros((m, len(B))))
        critical = row_sparse.critical_weight(sums.XV)
        return self._step(fixed, replace(at, gamma=penalty_weight(self, "gamma", critical, trace.penalties)), sums)

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        rows: LatentSums = sums[0]
        A, B = at.A, at.B
        # Σ x_i = 0, and X'V is about the offsets.
        fit = fixed.squares + fixed.rows * float(at.offset @ at.offset)
        fit += float(np.vdot(A.T @ A, rows.VV)) - 2.0 * float(np.vdot(A, rows.XV))
        labels = float(np.trace(fixed.pairs)) - 2.0 * float(np.vdot(B, rows.VY)) + float(np.vdot(B @ B.T, rows.VV))
        penalty = at.gamma * float(row_norms(A).sum())
        return {"objective": fit + fixed.alpha * labels + self.beta * float(rows.fit[0]) + penalty}

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        return self._step(fixed, at, sums[0])

    def _step(self, fixed: Fixed, at: At, sums: LatentSums) -> At:
        """Return the steps of B, of A with the offsets of the features, and U for the V of `sums`."""
        B, largest = at.B, float(np.linalg.eigvalsh(sums.VV)[-1])
        for _ in range(LABEL_STEPS if largest > 0 else 0):
            B = unit_rows(B - (sums.VV @ B - sums.VY) / largest)
        mean = sums.V / fixed.rows
        XV, VV = sums.XV + np.outer(at.offset, sums.V), sums.VV - np.outer(sums.V, mean)
        constant = np.diag(VV) <= NEGLIGIBLE * np.diag(sums.VV)  # what rounding leaves of it
        XV[:, constant], VV[constant], VV[:, constant] = 0.0, 0.0, 0.0
        A = proximal.solve(
            None,
            XV,
            VV,
            rows=0.5 * at.gamma,
            start=at.A,
            tol=SETTLED,
            max_iter=FEATURE_STEPS,
        ).W
        return At(A, -A @ mean, B, anchor_values(sums.ZV, sums.masses), at.gamma)

    def loop_scores(self, fixed: Fixed, at: At) -> Array:
        return row_norms(at.A)

    def facts(self, fixed: Fixed, at: At) -> dict[str, Any]:
        return {"n_latent": len(at.B), "label_sets": len(fixed.keys)}
