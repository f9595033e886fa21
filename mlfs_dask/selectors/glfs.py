"""GLFS: features of single labels and of groups of labels, by latent labels that keep to those of a group of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors, place_anchors
from mlfs_dask.blocks.proximal import row_norms, shrink_entries
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.exact import matrix
from mlfs_dask.exact.fit import ExactFit, run_program
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.rows.contract import Profile
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.in_memory import InMemory
from mlfs_dask.selectors.loop import Loop, Scaled, placeholder
from mlfs_dask.selectors.parameters import Absolute, GramCap, MaxIter, Missing, Param, seed_of
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.scores import SOLVED_BITS, round_scores
from mlfs_dask.solvers import proximal, row_sparse
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.gram import GRAM_CAP, Gram, require_gram, scale_gram
from mlfs_dask.statistics.grouped_rows import GroupedPairs, GroupedRows
from mlfs_dask.statistics.label_statistics import label_cosines
from mlfs_dask.statistics.labelled import AtShares
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Matrix, Seed, join_terms

EPSILON = np.finfo(np.float64).eps

#: Name of the pass over labels by groups of rows.
GROUPS = "groups"

#: Centres for which the sample would be drawn among which those of groups are placed.
SAMPLED_FOR = 300

#: Change of W and M, relative to them, at which the steps of an iteration end, and their maximum number.
STEP_TOL, STEPS = 1e-3, 200


@dataclass
class Fixed(Scaled):
    """Constants of the iterations; E_g and σ_g are the eigenvectors and eigenvalues of C_g."""

    gram: Annotated[Array, "d d", "X'X"]
    centres: Annotated[Array, "g d"]
    means: Annotated[Array, "g q", "m_g"]
    values: Annotated[Array, "g q", "σ_g"]
    vectors: Annotated[Array, "g q q", "E_g"]
    label_groups: Annotated[Array, "q"]
    share: Annotated[Array, "q", "shares of labels"]


@dataclass
class At:
    """The small variables: W and M, b, and β and γ as they are, 0 before the first pass."""

    W: Annotated[Array, "2 d q"]
    b: Annotated[Array, "q"]
    beta: Annotated[float, ""]
    gamma: Annotated[float, ""]


@method(
    "glfs",
    "Group-preserving label-specific features (GLFS)",
    paper="Zhang, Wu, Jiang, Liu, Li, Tang & Long 2023, Expert Systems with Applications 213, 118861",
    doi="",
)
class GLFS(InMemory, Loop[Fixed, At]):
    """Group-preserving label-specific feature selection (GLFS; Zhang et al. 2023, Expert Systems with Applications).

    Rows belong to groups g, labels to groups h, both of k-means. Minimises ‖X(W + M) + 1b' − Z‖² + Σ_i αa_i‖z_i −
    m_g‖² + ‖z_iC_g − y_i‖² + β‖W‖₁ + γ Σ_f Σ_h ‖m_fh‖: the latent labels Z of the rows are predicted from features of
    single labels (W) and of groups of labels (M), give the labels through C_g = (1 − λ)I + λR_g with the cosines R_g
    of labels in the group of the row, and lie near the mean labels m_g of this group, the nearer the more like them
    the row's labels are, a_i = cos(y_i, m_g). A feature's score is the norm of its row of W + M.

    Notes
    -----
    Passes over X: one for moments, X'X and a sample, among which centres of groups are placed, one for the labels
    of the groups, and one per iteration, in which the latent labels of each row are made, added to sums and
    discarded. W and M follow on the driver. No iteration raises the objective. More than `gram_cap` features are
    refused. Unknown labels (-1) are at the mean of the label's known ones.

    What differs from the paper: rows are centred by an intercept, β and γ count relative to the least at which the
    first W and M are 0, and W and M are solved for in every iteration, from 0. The published form is the authors'
    program: for each group a corner of the centring matrix of all rows, β and γ as they are, a random start, one step
    each of W and M an iteration, an end after some five, far from the minimum, by an objective that counts the weights
    that are not 0; it holds all rows in memory. Its score is the square of the norm, which ranks alike. The cosine of
    a label that no row of a group has is 0. From the program's start, with beta=1, gamma=10 and tol=0.001, it equals
    the program on emotions to 9 digits; four random starts share 9 to 11 of the best 14 features.

    References
    ----------
    J. Zhang, H. Wu, M. Jiang, J. Liu, S. Li, Y. Tang, J. Long, "Group-preserving label-specific feature selection for
    multi-label learning", Expert Systems with Applications 213 (2023) 118861.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> sorted(mlfs.GLFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    variant: Annotated[
        Literal["corrected", "published"],
        Param(
            'Variant of the method. "corrected": iterates to a minimum. "published": the authors\' program, '
            "with all rows in memory."
        ),
    ] = "corrected"
    alpha: Annotated[float, Param("Weight of the mean labels of the groups of rows.")] = 0.2
    beta: Annotated[
        float,
        Param(
            'Weight of ‖W‖₁, relative to the least weight at which the first W is 0; in "published" absolute, '
            "where 1 is usual.",
            above=0,
        ),
    ] = 0.1
    gamma: Annotated[
        float,
        Param(
            'Weight of the norms of M, relative to the least weight at which the first M is 0; in "published" '
            "absolute, where 10 is usual.",
            above=0,
        ),
    ] = 0.1
    absolute: Absolute = False
    lambda_: Annotated[float, Param("Share λ of the cosines of labels beside the identity.", most=1)] = 0.4
    n_groups: Annotated[int, Param("Number of groups of rows, at most n.", least=1)] = 8
    n_label_groups: Annotated[int, Param("Number of groups of labels, at most q.", least=1)] = 5
    gram_cap: GramCap = GRAM_CAP
    tol: Annotated[
        float,
        Param(
            'Relative change of the objective in one iteration at which the loop stops; in "published" 0.001 is usual.'
        ),
    ] = 0.0001
    max_iter: MaxIter = 38
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample, of k-means, and of the start of the published form")] = None

    name = "GLFS"
    init_shapes: ClassVar[Mapping[str, str]] = {"W": "d q", "M": "d q"}
    known_entries = caps_features = True
    records = Fixed, At
    typical_iterations = 5, 12
    passes = "2 + 1 an iteration; in the published form 1"
    memory = (
        "worker: 8 bytes * (2 q d + 2 g q²) for g groups of rows; driver: 8 bytes * (2 d² + 26 q d + 2 g q²); in the "
        "published form the driver holds X, 8 bytes * (3 d² + 9 n q + 12 q d)"
    )
    exact_loads_sklearn = True

    setup_workspace = "p + 2 g q q + 4 q q"  # the sample, points and k-means; pairs, and eigenvectors
    workspace = f"{proximal.FEATURE_MATRICES + proximal.SPLIT_MATRICES} d q"

    def _count_groups(self, profile: Profile) -> int:
        return min(self.n_groups, profile.n)

    def _graph(self, profile: Profile) -> AnchorGraph:
        return AnchorGraph(profile, SAMPLED_FOR, 1, self.seed)

    def sizes(self, profile: Profile) -> dict[str, int]:
        return super().sizes(profile) | {"g": self._count_groups(profile), "p": self._graph(profile).sample_numbers}

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        return super().reads(profile) | {"gram": Gram(profile.d), "sample": self._graph(profile).sample}

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        labels = Reading(GROUPS, (AtShares(GroupedPairs(self._anchors(fixed), profile.q), fixed.share),))
        return Cost(steps=[labels], loads_sklearn=True)

    def _anchors(self, fixed: Fixed) -> Anchors:
        return Anchors(fixed.centres, fixed.centre, fixed.factor, 1)

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        scaling, labels, profile = standard_scaling(results["moments"]), results["labels"], job.source.profile
        anchors = self._graph(profile).place(results.pop("sample").X, scaling, self._count_groups(profile))
        share = labels.shares(profile.n)
        rows, sums, pairs = job.run(GROUPS, AtShares(GroupedPairs(anchors, profile.q), share))[0]
        means = sums / np.maximum(rows, 1)[:, np.newaxis]
        cosines = np.stack([label_cosines(each) for each in pairs])
        values, vectors = np.linalg.eigh((1.0 - self.lambda_) * np.eye(profile.q) + self.lambda_ * cosines)
        return Fixed(
            scaling.centre,
            scaling.factor,
            scale_gram(results["gram"], scaling.factor),
            anchors.centres,
            means,
            values,
            vectors,
            self._group_labels(pairs.sum(axis=0)),
            share,
        )

    def _group_labels(self, pairs: Array) -> Array:
        """Group of every label, shape (q,), by k-means of the columns of Y, whose distances follow from Y'Y.

        The order of the labels has no part in what k-means draws: they are put in that of what they share with others.
        """
        order = np.lexsort([*np.sort(pairs, axis=1).T, np.diag(pairs)])
        values, vectors = np.linalg.eigh(pairs[np.ix_(order, order)])
        points = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        centres = place_anchors(points, min(self.n_label_groups, len(points)), self.seed)
        distances = [np.square(points - centre).sum(axis=1) for centre in centres]
        groups = np.empty(len(points))
        groups[order] = np.argmin(distances, axis=0)
        return groups

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        return At(np.zeros((2, len(fixed.centre), len(fixed.share))), fixed.share, 0.0, 0.0)

    def rows(self, fixed: Fixed, at: At) -> Statistic:
        V = placeholder(*at.W.shape[1:]) if at.W.strides[0] == 0 else at.W.sum(axis=0)
        rules = fixed.means, fixed.values, fixed.vectors
        return AtShares(GroupedRows(fixed.scaling, self._anchors(fixed), V, at.b, *rules, self.alpha), fixed.share)

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        W, M = at.W
        of_groups = sum(float(row_norms(M[:, columns]).sum()) for columns in proximal.parts(fixed.label_groups))
        penalty = at.beta * float(np.abs(W).sum()) + at.gamma * of_groups
        return {"objective": float(sums[0].loss[0]) + penalty}

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        XZ, total, _ = sums[0]
        if at.beta == 0.0:
            largest = max(float(row_norms(XZ[:, columns]).max()) for columns in proximal.parts(fixed.label_groups))
            beta = penalty_weight(self, "beta", 2.0 * float(np.abs(XZ).max(initial=0.0)), trace.penalties)
            gamma = penalty_weight(self, "gamma", 2.0 * largest, trace.penalties)
            at = replace(at, beta=beta or 1.0, gamma=gamma or 1.0)
        W = proximal.solve(
            fixed.gram,
            XZ,
            np.zeros((len(total),) * 2),
            entries=0.5 * at.beta,
            rows=0.5 * at.gamma,
            split=True,
            groups=fixed.label_groups,
            start=at.W,
            tol=STEP_TOL,
            max_iter=STEPS,
        ).W
        return replace(at, W=W, b=total / job.source.profile.n)

    def loop_scores(self, fixed: Fixed, at: At) -> Array:
        return round_scores(row_norms(at.W.sum(axis=0)), SOLVED_BITS)

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        """Return the program's memory: X'X and its factors, labels and latent labels, weights with their successors."""
        require_gram(profile.d, self.gram_cap, self.name)
        own = f"p + {1 + row_sparse.SQUARE_MATRICES} d d + 9 n q + 12 d q + g q q"
        return join_terms(matrix.workspace(sparse=profile.sparse), own), self.sizes(profile)

    def _compiles_exact_search(self, profile: Profile) -> bool:
        """Return the kernel that finds the nearest centre of a row."""
        return True

    def _fit_exactly(
        self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments, start: Arrays | None = None
    ) -> ExactFit:
        profile = ArrayRows(X, Y).profile
        graph = self._graph(profile)
        anchors = graph.place(X[graph.sample.chosen], standard_scaling(moments), self._count_groups(profile))
        label_groups = self._group_labels(np.asarray((Y.astype(np.float64).T @ Y).toarray()))
        return self._fit_program(X, Y, moments, anchors.weigh(X).indices, label_groups, start)

    def _fit_program(
        self,
        X: Matrix,
        Y: sp.csr_array,
        moments: FeatureMoments,
        groups: NDArray[np.integer],
        label_groups: Array,
        start: Arrays | None = None,
    ) -> ExactFit:
        """Return a step of W, one of M and latent labels in turn, until the objective changes little.

        As in the program main_function.m of GLFS, a group of n_g rows is centred by the first n_g rows and columns of
        the centring matrix of all rows, and the objective counts the weights that are not 0 in place of ‖W‖₁.

        Raises
        ------
        MlfsError
            The steps diverge.
        """
        features, labels = ScaledMatrix(X, moments, ddof=1), Y.toarray().astype(np.float64)
        (n, d), q, beta, gamma = X.shape, Y.shape[1], self.beta, self.gamma
        G = features.gram()
        L = float(np.sqrt(2.0) * np.linalg.eigvalsh(G)[-1]) or 1.0
        members, columns = [np.flatnonzero(groups == g) for g in np.unique(groups)], proximal.parts(label_groups)
        rules = []
        for rows in members:
            pairs = labels[rows].T @ labels[rows]
            C = (1.0 - self.lambda_) * np.eye(q) + self.lambda_ * label_cosines(pairs)
            mean = labels[rows].mean(axis=0)
            sizes = row_norms(labels[rows]) * float(np.linalg.norm(mean))
            cosines = np.divide(labels[rows] @ mean, sizes, out=np.zeros_like(sizes), where=sizes > 0)
            a = self.alpha * cosines[:, np.newaxis]
            rules.append((mean, a, *np.linalg.eigh(C)))

        def begin() -> Arrays:
            draw = np.random.default_rng(self.seed)
            drawn = {name: draw.random((d, q)) for name in ("W", "M")} if start is None else dict(start)
            return drawn | {"before": drawn["W"], "momentum": np.ones(2), "XZ": features.backward(labels)}

        def step(at: Arrays) -> tuple[Arrays, float]:
            W, before, M, (old, new), XZ = (at[name] for name in ("W", "before", "M", "momentum", "XZ"))
            V = W + (old - 1.0) / new * (W - before)
            V, before = shrink_entries(V - (G @ (V + M) - XZ) / L, beta / L), W
            right, M = XZ - G @ V, M.copy()
            for part in columns:
                t = 2.0 * row_norms(M[:, part]) + EPSILON
                M[:, part] = row_sparse.solve_gram(G, right[:, part], gamma, t).P
            predictions, Z, value = features.forward(V + M), np.empty((n, q)), 0.0
            for rows, (mean, a, values, E) in zip(members, rules, strict=True):
                Z[rows] = _latent(predictions[rows], labels[rows], mean, a, values, E, n)
                value += float((a * np.square(Z[rows] - mean)).sum())
                value += float(np.square(Z[rows] @ E * values - labels[rows] @ E).sum())
            value += float(np.square(predictions - (Z - Z.mean(axis=0))).sum())
            value += beta * int(np.count_nonzero(V)) + gamma * float(row_norms(M).sum())
            faster = np.array([new, (1.0 + np.sqrt(1.0 + 4.0 * new**2)) / 2.0])
            return {"W": V, "before": before, "M": M, "momentum": faster, "XZ": features.backward(Z)}, value

        at, trace = run_program(self, begin, step)
        return ExactFit(row_norms(at["W"] + at["M"]), trace, {})


# ---------------------------------------------------------------------- with all rows in memory


def _latent(P: Array, Y: Array, mean: Array, a: Array, values: Array, E: Array, n: int) -> Array:
    """Return the z of (I − 11'/n + diag a) Z + Z C² = (I − 11'/n) P + a m' + Y C for the rows of a group, by its
    eigenvectors.
    """
    right = (P - P.sum(axis=0) / n + a * mean) @ E + values * (Y @ E)
    diagonal = 1.0 + a + values**2
    solved, ones = right / diagonal, 1.0 / diagonal
    solved += ones * (solved.sum(axis=0) / (n - ones.sum(axis=0)))
    Z: Array = solved @ E.T
    return Z
