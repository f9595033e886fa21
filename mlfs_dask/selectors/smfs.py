"""SMFS: features that explain labels which follow the density of the data (Xu & Zhao 2020).

Labels may be missing or unknown. Two rows are near if the smallest nodes of an isolation forest that hold both hold few
rows. Unknown labels are estimated from near rows and from a row-sparse regression on the features (P), in turn. With
anchors, which are landmark rows here, an iteration is one pass.

T. Xu, L. Zhao, "A structure-induced framework for multi-label feature selection with highly incomplete labels", IEEE
Access 8 (2020) 71219-71230, doi:10.1109/ACCESS.2020.2987922.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import FEWEST_ANCHORS, Anchors
from mlfs_dask.blocks.forest import Forest, forest_seeds, grow_forest, sample_size
from mlfs_dask.blocks.isolation import TreeShape
from mlfs_dask.blocks.mass_anchors import MassAnchors, landmark_dtype, landmark_tables
from mlfs_dask.blocks.neighbours import Neighbours
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import parameter
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, save_if_due
from mlfs_dask.exact.graphs import combinations, least_mass_rows, nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.in_memory import GraphKind, InMemory
from mlfs_dask.selectors.loop import Loop, Scaled, placeholder, placeholders, ranking_settled
from mlfs_dask.selectors.parameters import MaxIter, Missing, Param, StepsPerPass, seed_of
from mlfs_dask.solvers import conjugate_gradients, label_recovery, row_sparse
from mlfs_dask.solvers.label_recovery import Reconstruction, recover_labels
from mlfs_dask.solvers.row_sparse_regression import FEATURE_STEPS, SET_FEATURES, RowSparseRegression
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.column_keys import ColumnKeys
from mlfs_dask.statistics.gram import NormalProduct, WeightedGram
from mlfs_dask.statistics.label_statistics import LabelKnowledge
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.recovered_rows import (
    LeafCounts,
    RecoveredRows,
    RecoveredSums,
    RowRecovery,
    settle_anchor_values,
)
from mlfs_dask.statistics.sample import RowSample, SampledRows, draw_rows
from mlfs_dask.statistics.scaling import Scaling, standard_scaling
from mlfs_dask.typing import Array, Matrix, Seed, join_terms, numbers

#: Relative residual of the conjugate gradients of a Y-step.
LABEL_TOL = 1e-9

#: Default α with anchors, relative to that of the exact form. With anchors the smoothness of Y is tr Y'(I − S)Y and
#: not ‖(I − W)Y‖². The second divided by the first is 0.8 to 1.1 for the given labels of five real sets, and 0.1 to 0.3
#: for recovered ones; 1/3 lies between.
ANCHORED_ALPHA = 1 / 3

#: Iterations that fits of seven real sets took, least and most: labels of 30 % of the rows or entries known, or 20 % of
#: the positive ones missing.
TYPICAL_ITERATIONS = (2, 23)

#: Those above the Gram cap: the same sets, the cap being half their features, took 4 to 23, made-up ones of 10 000 to
#: 50 000 features 14 to 45, which is `max_iter` (`benchmarks/iterative.py wide`).
TYPICAL_WIDE_ITERATIONS = (4, 45)


#: Names of the passes for the forest's masses, of the first labels, and above the Gram cap of X'SX times a matrix and
#: of X'SX of some features.
MASSES, START, PRODUCT, SOME = "masses", "start", "X'SX P", "X'SX of some"


@dataclass
class Fixed(Scaled):
    """Constants of the iterations; g is d where X'SX is formed and 0 above the cap.

    Attributes
    ----------
    recovery : RowRecovery
        Landmarks, α and the weights of labels; P and U are those of iterations.
    sums : RecoveredSums
        Of the first labels.
    coupled : bool
        Whether recovered labels have a part in P. Where every row with a weight is known in all labels they have none,
        and neither P nor U changes them.
    facts : dict
        Numbers for the record.
    """

    diagonal: Annotated[Array, "d"]
    gram: Annotated[Array, "g g"]
    recovery: RowRecovery
    sums: Any
    coupled: bool
    facts: dict[str, int]


@dataclass
class At:
    """The small variables: values of the landmarks, X'SY, and the solver for P, which has made a step for them."""

    U: Annotated[Array, "m q"]
    B: Annotated[Array, "d q"]
    regression: Any


@method(
    "smfs",
    "Structure-induced selection with incomplete labels",
    paper="Xu & Zhao 2020, IEEE Access 8, 71219-71230",
    doi="10.1109/ACCESS.2020.2987922",
)
class SMFS(InMemory, Loop[Fixed, At]):
    """Structure-induced feature selection with incomplete labels (Xu & Zhao 2020).

    Minimises Σ s_ii ‖xⁱP − yⁱ‖² + α ‖(I − W)Y‖² + β ‖P‖_{2,1} (Eq. 6) over P and the unknown entries of Y. A feature's
    score is the norm of its row of P.

    Attributes
    ----------
    scores_ : float64 array, shape (d,)
        A constant feature has 0.
    labels_ : float64 array, shape (n, q)
        Y: recovered labels from −1 to 1, positive where the label applies; known ones are 1 or −1. Of the exact form;
        with anchors `recover_labels` gives them.

    Notes
    -----
    With anchors ‖(I − W) Y‖² is Σ_i Σ_a z_ia ‖y_i − u_a‖², whose least value over u is tr Y'(I − ZΛ⁻¹Z')Y: both
    call the same labels smooth. Passes over X: one for moments and the sample of the forest, one for the masses of
    its nodes and X'SX, one for the start, and then one an iteration, or none where all labelled rows are known in
    all labels, since Y then has no part in P. Above `gram_cap` features an iteration takes another one for X'SX of
    some features; the others, whose gradient is within β/2, follow from it.

    The exact form reads X once and holds X, n (18 q + 36 k) bytes and 24 d²; its search for neighbours takes about
    n² trees / 5·10⁹ seconds on a core.

    What is corrected or settled: known entries stay (`consistency`); negative known ones are −1 in Y, unknown ones of
    labelled rows start from Eq. 4; D starts at 1/(2√q), which the published random start is on average; ε of
    `solvers.row_sparse` keeps D finite. Where positive labels alone are given, most unknown entries become positive:
    give known negative ones as 0 beside -1. On seven sets the defaults were 3.7 to 4.3 points of average precision
    better than random features, on birds and scene no better.

    References
    ----------
    T. Xu, L. Zhao, "A structure-induced framework for multi-label feature selection with highly incomplete labels",
    IEEE Access 8 (2020) 71219-71230, doi:10.1109/ACCESS.2020.2987922.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 1], [-1, -1], [1, 0], [-1, -1]])
    >>> selector = mlfs.SMFS(n_features_to_select=1, n_neighbors=2).fit(X, Y)
    >>> selector.ranking_[2], selector.scores_[2], selector.labels_.shape
    (np.int64(2), np.float64(0.0), (4, 2))
    """

    alpha: Annotated[
        float | None,
        Param(
            "Weight of the density structure of labels. By default the mean weight s_ii of a labelled row, "
            "and with anchors a third of it; it then means the same for any number of rows."
        ),
    ] = None
    beta: Annotated[
        float | None, Param("Weight of the row-sparse penalty on P. By default 0.1 of the least weight at which P = 0.")
    ] = None
    n_neighbors: Annotated[
        int,
        Param("Number of neighbours of a row in the exact density structure (k in the paper), at most n − 1."),
    ] = 15
    graph: Annotated[
        GraphKind,
        Param(
            'Graph of near rows. "anchors": rows are near that belong to the same landmark rows by isolation '
            'mass; memory does not grow with the number of rows. "exact": the paper\'s structure, with X and Y '
            'in the memory of this process. "auto": "exact" up to 20 000 rows.'
        ),
    ] = "auto"
    structure: Annotated[
        Literal["density", "distance", "reconstruction"],
        Param(
            'Which rows are near, and how near. "density": by isolation mass. The paper\'s comparisons: "distance" '
            '(LGS-D), the Euclidean one, with weights that fall with it; "reconstruction" (LGS-L), the same neighbours '
            "with the weights, not negative and of sum 1, that give the row again best."
        ),
    ] = "density"
    n_anchors: Annotated[
        int,
        Param(
            "Number of landmark rows, or of k-means anchors for Euclidean structures; at most a quarter of the rows."
        ),
    ] = 300
    anchor_neighbors: Annotated[int, Param("Number of landmarks to which a row belongs.")] = 5
    n_trees: Annotated[int, Param("Number of trees of the isolation forest.")] = 100
    max_samples: Annotated[int, Param("Number of rows on which a tree is grown.", most=2**16)] = 256
    unknown_labels: Annotated[
        Literal["auto", "coded", "zeros"],
        Param(
            'Labels that count as unknown. "coded": entries of -1. "zeros": every entry that is not 1, as in '
            'the paper; a row is then labelled if it has a positive label. "auto": "coded" where Y holds a '
            '-1, else "zeros".'
        ),
    ] = "auto"
    consistency: Annotated[
        Literal["observed", "none"],
        Param(
            'Relation of Y to the given labels. "observed": known entries stay as they are. "none": nothing, as '
            "published; the minimum is then P = 0 and Y = 0, which is reached within some 15 iterations."
        ),
    ] = "observed"
    standardise: Annotated[
        bool,
        Param(
            "Standardise features to zero mean and unit variance in the regression. The forest does not depend on it."
        ),
    ] = True
    inner_iterations: Annotated[
        int | None,
        Param(
            "Number of reweightings of a P-step; as published 1. By default until P changes by 1 %, at most 10, "
            "and 1 if each takes a pass over X (`gram_cap=0`)."
        ),
    ] = None
    gram_cap: Annotated[
        int,
        Param(
            "Largest number of features for which X'SX is formed. With more features it is formed for the "
            "relevant ones, at most 2048 at a time; 0: never, and conjugate gradients make passes over X.",
            least=0,
        ),
    ] = 4096
    tol: Annotated[
        float,
        Param(
            "Change of the objective at which the loop stops, relative to the objective, or, where labelled rows are "
            "known in all labels and Y has no part in P, to Σ s_ii ‖yⁱ‖²."
        ),
    ] = 0.0001
    max_iter: MaxIter = 45
    steps_per_pass: StepsPerPass = 10
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the forest; 0 by default")] = None

    name = "SMFS"
    records = Fixed, At
    predicts = RecoveredSums
    uninformative = "no row has a known positive label, or every feature is constant"
    published = "consistency", "none"
    exact_loads_sklearn = True
    typical_iterations = TYPICAL_ITERATIONS
    supervision = "semi-supervised: labels may be unknown or missing"
    unknown_entry = "is recovered, and can be written"
    passes = "3 + at most 1 an iteration (above the Gram cap 2, and some 6 at first); with the exact graph 1"
    memory = (
        "worker: 8 bytes * (2 d q + 2 m²) + 1024 * trees * m (8 d² more below the Gram cap); driver: the same and "
        "24 d² bytes; with the exact graph the driver holds X, n * (18 q + 36 k) and 24 d² bytes"
    )
    label_threshold = 0.0

    # ------------------------------------------------------------------ what it costs

    def _sample(self, profile: Profile) -> RowSample:
        """Return the rows among which anchors are placed, or on which the forest is grown, landmarks being among
        them.
        """
        if self.structure != "density":
            return self._graph(profile).sample
        row_bytes = 8 * -(-profile.nonzeros // max(profile.n, 1)) + 8 if profile.sparse else 4 * profile.d
        size = sample_size(profile.n, row_bytes, n_trees=self.n_trees, max_samples=self.max_samples)
        return RowSample(draw_rows(profile, size, self.seed), profile)

    def sizes(self, profile: Profile) -> dict[str, int]:
        d = profile.d
        return {"d": d, "q": profile.q, "m": self._landmarks(profile), "g": d if d <= self.gram_cap else 0}

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        statistics = super().reads(profile) | {"sample": self._sample(profile)}
        return statistics if profile.d <= self.gram_cap else {**statistics, "keys": ColumnKeys(profile.d)}

    def _landmarks(self, profile: Profile) -> int:
        if self.structure != "density":
            return self._graph(profile).count
        return min(profile.n, max(FEWEST_ANCHORS, min(self.n_anchors, profile.n // 4)))

    def iterations_on(self, profile: Profile) -> tuple[int, int]:
        return TYPICAL_ITERATIONS if profile.d <= self.gram_cap else TYPICAL_WIDE_ITERATIONS

    def _max_features(self) -> int:
        """Return the most features above the Gram cap that are solved for at a time."""
        return min(self.gram_cap, SET_FEATURES) if self.beta != 0 else 0

    def _typical_readings(self, profile: Profile) -> tuple[int, int]:
        # Below the cap iterations read nothing where labelled rows are known in all labels.
        low, high = self.iterations_on(profile)
        return (0, high) if profile.d <= self.gram_cap else (low, high)

    def placeholders(self, profile: Profile) -> tuple[Fixed, At]:
        d, q, sizes = profile.d, profile.q, self.sizes(profile)
        anchors = self._placeholder_anchors(profile, sizes["m"])
        recovery = RowRecovery(anchors, None, placeholder(sizes["m"], q), 1.0, placeholder(q), True)
        fixed = Fixed(
            **placeholders(Fixed, sizes),
            recovery=recovery,
            sums=None,
            coupled=True,
            facts={},
        )
        regression = SimpleNamespace(P=placeholder(d, q), needs_product=not sizes["g"])
        return fixed, At(**placeholders(At, sizes), regression=regression)

    setup_workspace = "4 sample"  # the forest's: scaled, in the order of its columns, and what growing takes
    # Masses of leaves with landmarks, P and what follows it, factors of X'SX, or X'SX of some features.
    workspace = (
        f"masses + moments + {row_sparse.FEATURE_MATRICES} d q + {row_sparse.SQUARE_MATRICES} g g + "
        f"{1 + row_sparse.SQUARE_MATRICES} f f"
    )

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        d, has_gram, some, recovery = profile.d, len(fixed.gram) > 0, self._max_features(), fixed.recovery
        low, high = self.iterations_on(profile)
        weights, scaling = recovery.label_weights, fixed.scaling
        grams = [WeightedGram(scaling, weights)] if has_gram else []
        anchors = recovery.anchors
        masses = (LeafCounts(anchors.forest),) if isinstance(anchors, MassAnchors) else ()
        steps: list[Reading | str] = [Reading(MASSES, (*masses, *grams), workspace="sample")] if masses or grams else []
        start = RecoveredRows(scaling, recovery, moments=has_gram)
        steps.append(Reading(START, (start,)))
        if not has_gram:
            # Without a working set every P-step is one of conjugate gradients, whose residual is a product, too.
            times, typical, step = FEATURE_STEPS, (FEATURE_STEPS, FEATURE_STEPS), FEATURE_STEPS + 1
            if not some:
                times, typical = step * self.max_iter, (step * low, step * high)
            product = NormalProduct(scaling, at.regression.P, label_weights=weights)
            steps.append(Reading(PRODUCT, (product,), times=times, typical=typical))
            if some:
                gram = WeightedGram(scaling, weights, columns=np.arange(some))
                steps.append(Reading(SOME, (gram,), times=self.max_iter, typical=(low, high)))
        note = f"{len(at.U)} landmarks"
        if has_gram:
            note += "; no passes in iterations where labelled rows are known in all labels"
        return Cost(
            steps=steps,
            sizes={
                "f": 0 if has_gram else some,
                "masses": numbers(anchors.nbytes),
                "moments": numbers(start.result_bytes),
                "sample": numbers(self._sample(profile).state_bytes),
            },
            compiled=self._combines or gates.compiles_rows(profile.n),  # the driver weighs the rows of the sample
            loads_sklearn=True,
            notes=[
                note,
                f"X'SX is {d:,} x {d:,}" if has_gram else f"X'SX of at most {some:,} of {d:,} features at a time",
            ],
        )

    def _placeholder_anchors(self, profile: Profile, m: int) -> Anchors | MassAnchors:
        """Return the landmarks of the size that those of the fit have: the same balanced tree over and over, and no
        masses.
        """
        if self.structure != "density":
            return self._graph(profile).placeholder
        leaves = min(self.max_samples, len(self._sample(profile).chosen))
        trees, nodes = self.n_trees, np.arange(2 * leaves - 1)
        inner = nodes < leaves - 1

        def in_all(row: Any, dtype: Any) -> NDArray[Any]:
            return np.broadcast_to(np.asarray(row, dtype), (trees, len(nodes)))

        spans = np.broadcast_to(np.int64(0), (leaves - 1, 3))
        forest = Forest(
            (TreeShape(spans[:, 0], spans),) * trees,
            in_all(nodes % profile.d, np.int32),
            in_all(np.where(inner, 0.0, np.inf), np.float64),
            in_all(np.where(inner, 2 * nodes + 1, nodes), np.int32),
            in_all(np.where(inner, 0, nodes - leaves + 1), np.uint8 if leaves <= 256 else np.uint16),
            np.full(trees, leaves.bit_length()),
            placeholder(profile.d),
            placeholder(profile.d),
        )
        tables = np.broadcast_to(np.zeros((), landmark_dtype(trees, profile.n)), (trees, leaves, m))
        return MassAnchors(forest, tables, self.anchor_neighbors)

    def _graph(self, profile: Profile) -> AnchorGraph:
        return AnchorGraph.of(self, profile, combined=self._combines)

    @property
    def _combines(self) -> bool:
        return self.structure == "reconstruction"

    def _compiles_exact_search(self, profile: Profile) -> bool:
        if self.structure != "density":
            return self._combines or graphs.compiles_nearest_rows(profile.n, sparse=profile.sparse)
        return graphs.compiles_least_mass_rows(profile.n, self.n_trees)

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        leaves = min(self.max_samples, profile.n)
        sizes = {"k": min(self.n_neighbors, profile.n - 1), "t": self.n_trees, "s": leaves, "m": self._max_features()}
        sizes["c"] = conjugate_gradients.columns_at_once(profile.q)
        of_pairs = f"0.5 n t + 0.5 t s s + {4 * gates.VALUES_AT_ONCE}"  # leaf numbers, tables of masses, pairs
        workspace = join_terms(
            matrix.workspace(sparse=profile.sparse),
            of_pairs if self.structure == "density" else graphs.workspace(),
            "7 n k",  # masses, neighbours, W, I − W and its transpose
            f"4.25 n q + {label_recovery.GROUP_MATRICES} n c",  # Y, X P, what is known and free, what is recovered
            f"{row_sparse.FEATURE_MATRICES} d q",
            f"{1 + row_sparse.SQUARE_MATRICES} {'d d' if profile.d <= self.gram_cap else 'm m'}",
        )
        return workspace, sizes

    # ------------------------------------------------------------------ the method

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        moments, labels, sample, profile = (
            results["moments"],
            results["labels"],
            results.pop("sample"),
            job.source.profile,
        )
        coded = not self.zeros_are_unknown(labels.unknown)
        scaling = standard_scaling(moments)
        if not self.standardise:  # nor centred; but a constant feature would be an intercept, and come first
            scaling = Scaling(np.zeros(profile.d), (scaling.factor > 0).astype(np.float64))
        weights = 1.0 / np.maximum(labels.positive, 1)  # Eq. 7: a row weighs by how rare its positive labels are
        anchors, gram = self._place_landmarks(job, sample, scaling, weights)
        recovery = RowRecovery(anchors, None, None, self._alpha(labels), weights, coded)
        first = replace(recovery, U=_values_of_sample(recovery, sample))
        del sample
        coupled = bool(labels.rows[2]) if coded else True
        (sums,) = job.run(START, RecoveredRows(scaling, first, moments=coupled and gram is not None))
        squares = moments.m2 / max(moments.n, 1) + (moments.mean - scaling.centre) ** 2
        facts = {
            "forest_rows" if self.structure == "density" else "sampled_rows": len(self._sample(profile).chosen),
            "labelled_rows": int(profile.n - labels.rows[1] if coded else labels.rows[0]),
            "unknown_entries": int(labels.unknown.sum() if coded else profile.n * profile.q - labels.positive.sum()),
        }
        return Fixed(
            scaling.centre,
            scaling.factor,
            squares * scaling.factor**2 * float((labels.positive > 0).sum()),
            np.empty((0, 0)) if gram is None else gram,
            recovery,
            sums,
            coupled=coupled,
            facts=facts,
        )

    def zeros_are_unknown(self, unknown: NDArray[np.integer[Any]]) -> bool:
        return self.unknown_labels == "zeros" or (self.unknown_labels == "auto" and not unknown.any())

    def _alpha(self, labels: LabelKnowledge) -> float:
        if self.alpha is not None:
            return float(self.alpha)
        # The weights of all rows sum to the number of labels that have positives.
        labelled = int(labels.rows[0])
        return ANCHORED_ALPHA * (float((labels.positive > 0).sum()) / labelled if labelled else 1.0)

    def _place_landmarks(
        self, readings: Readings, sample: SampledRows, scaling: Scaling, weights: Array
    ) -> tuple[Anchors | MassAnchors, Array | None]:
        """Return landmarks among the sampled rows, with the masses of all leaves, and X'SX below the Gram cap."""
        profile = readings.source.profile
        grams = [WeightedGram(scaling, weights)] if profile.d <= self.gram_cap else []
        if self.structure != "density":
            near = self._graph(profile).place(sample.X, scaling)
            return near, readings.run(MASSES, *grams)[0] if grams else None
        rng, grow = forest_seeds(self.seed)
        with runtime.stage("growing a forest"):
            forest = grow_forest(sample.X, n_trees=self.n_trees, max_samples=self.max_samples, seed=grow)
        counts, *gram = readings.run(MASSES, LeafCounts(forest), *grams)
        m = self._landmarks(profile)
        chosen = np.sort(rng.choice(sample.X.shape[0], size=min(m, sample.X.shape[0]), replace=False))
        landmarks = forest.leaf_numbers(sample.X[chosen])
        tables = landmark_tables(forest.shapes, counts, landmarks, profile.n)
        return MassAnchors(forest, tables, self.anchor_neighbors), gram[0] if gram else None

    def _regression(self, job: Readings, fixed: Fixed, state: Arrays | None = None) -> RowSparseRegression:
        scaling, weights = fixed.scaling, fixed.recovery.label_weights
        return RowSparseRegression(
            fixed.sums.XSY,
            beta=self.beta,
            inner_iterations=self.inner_iterations,
            gram=fixed.gram if len(fixed.gram) else None,
            diagonal=fixed.diagonal,
            normal=lambda V: job.run(PRODUCT, NormalProduct(scaling, V, label_weights=weights))[0],
            gram_of=lambda columns: job.run(SOME, WeightedGram(scaling, weights, columns=columns))[0],
            max_features=self._max_features(),
            state=state,
        )

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        at = At(settle_anchor_values(fixed.sums), fixed.sums.XSY, self._regression(job, fixed))
        trace.record(regression_steps=at.regression.update(at.B))  # Eqs. 9 and 10
        return at

    def reading(self, fixed: Fixed, at: At) -> Sequence[Statistic]:
        P, weights = at.regression.P, fixed.recovery.label_weights
        product = NormalProduct(fixed.scaling, P, label_weights=weights)
        if not fixed.coupled:
            return [] if len(fixed.gram) else [product]
        return [self.rows(fixed, at), *([product] if at.regression.needs_product else [])]  # Y by Eq. 13

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        """Return Eq. 6, and its change."""
        regression, rows = at.regression, sums[0] if fixed.coupled else fixed.sums
        if products := sums[int(fixed.coupled) :]:
            regression.GP = products[0]
        if fixed.coupled:
            fit = float(rows.terms[0])
        else:
            fit = float(np.vdot(regression.P, regression.GP - 2.0 * at.B) + rows.terms[1])
        value = fit + fixed.recovery.alpha * _structure(rows, at.U) + regression.penalty
        change = abs(trace.objective[-1] - value) / self._scale(fixed, value) if trace.objective else 1.0
        return {"objective": value, "step": change}

    def _scale(self, fixed: Fixed, objective: float) -> float:
        """Return the scale to which a change of the objective is compared.

        Where P does not depend on recovered labels the structure is constant: a change is not compared with it.
        """
        return max(abs(objective) if fixed.coupled else float(fixed.sums.terms[1]), 1e-300)

    def has_converged(self, fixed: Fixed, at: At, trace: LoopTrace) -> bool:
        scale = self._scale(fixed, trace.objective[-1])
        settled = trace.values["step"][-1] <= self.tol or ranking_settled(trace)
        return settled and bool(at.regression.has_settled(self.tol, scale))

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        regression, U, B = copy.copy(at.regression), at.U, at.B
        regression.tighten(trace.values["step"][-1], self.tol)
        if fixed.coupled:
            U, B = settle_anchor_values(sums[0]), sums[0].XSY
        trace.record(regression_steps=regression.update(B))  # Eqs. 9 and 10
        return At(U, B, regression)

    def predict(self, fixed: Fixed, at: At, sums: RecoveredSums, after: At) -> dict[str, Array] | None:
        """Return the change of X'SY and Z'Y by unknown entries as functions of P and U, as if they were not clipped.

        Entries count as unknown alike in all rows. Σ s²/(s + α) xx' is taken to be a multiple of X'SX.
        """
        moments: RecoveredSums = fixed.sums
        if not moments.free.size:
            return None
        dP, dU = after.regression.P - at.regression.P, after.U - at.U
        GdP = after.regression.GP - at.regression.GP
        (weight, *_), (fitted, *w), (smoothed, *v) = moments.free
        w, v = (np.array(part) / max(whole, 1e-300) for part, whole in ((w, fitted), (v, smoothed)))
        return {
            "XSY": w * (fitted / max(weight, 1e-300) * GdP + fixed.recovery.alpha * (moments.ZX.T @ dU)),
            "ZY": w * (moments.ZX @ dP) + v * (moments.near @ dU),
        }

    def state(self, at: At) -> Arrays:
        return {**at.regression.state(), "U": at.U, "B": at.B}

    def restored(self, job: Readings, fixed: Fixed, arrays: Arrays) -> At:
        return At(arrays["U"], arrays["B"], self._regression(job, fixed, arrays))

    def loop_scores(self, fixed: Fixed, at: At) -> Array:
        at.regression.finish(at.B)
        return row_norms(at.regression.P)

    def rows(self, fixed: Fixed, at: At) -> RecoveredRows:
        return RecoveredRows(fixed.scaling, replace(fixed.recovery, P=at.regression.P, U=at.U))

    def facts(self, fixed: Fixed, at: At) -> dict[str, Any]:
        anchors = fixed.recovery.anchors
        return {
            "alpha": fixed.recovery.alpha,
            "beta": at.regression.beta,
            "critical_beta": at.regression.critical,
            "epsilon": at.regression.epsilon,
            "gram": len(fixed.gram) > 0,
            "graph": {"kind": "anchors", "anchors": anchors.count, "anchor_neighbors": anchors.neighbors},
            **fixed.facts,
        }

    def _fit_exactly(self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
        """Fit SMFS."""
        labels, known, s = known_labels(Y, zeros_are_unknown=self.zeros_are_unknown(Y.data[Y.data < 0]))
        features = ScaledMatrix(X, moments, centre=self.standardise, standardise=self.standardise)
        sampled, k = {}, self.n_neighbors
        if self.structure == "density":
            forest = least_mass_rows(X, k, n_trees=self.n_trees, max_samples=self.max_samples, seed=self.seed)
            W, sampled = density_structure(forest.neighbours), {"forest_rows": forest.sample_rows}
        else:
            near, combined = nearest_rows(features.rows, k), self.structure == "reconstruction"
            W = near.to_csr(combinations(features.rows, near)) if combined else distance_structure(near)
        labels = start_labels(labels, known, W)
        free = np.ones_like(known) if self.consistency == "none" else ~known
        alpha = self.alpha
        if alpha is None:
            alpha = float(s[s > 0].mean()) if (s > 0).any() else 1.0
        loop = _Loop(self, features, labels, free, s, Reconstruction(W), alpha)
        trace = loop.run()
        scores = row_norms(loop.regression.P)
        extra: dict[str, Any] = {
            "alpha": alpha,
            "beta": loop.regression.beta,
            "critical_beta": loop.regression.critical,
            "epsilon": loop.regression.epsilon,
            "gram": loop.G is not None,
            "graph": {"kind": "exact"},
            **sampled,
            "labelled_rows": int(known.any(axis=1).sum()),
            "unknown_entries": int((~known).sum()),
            "recovered_positives": int(((loop.Y > 0) & ~known).sum()),
        }
        return ExactFit(scores, trace, extra, loop.Y)

    @property
    def without_positives(self) -> str:
        return (
            "Nothing can be learnt of such a label: what is recovered of it means nothing, and its part of P adds "
            "noise to the scores. Leave it out of Y, or give rows that have it."
        )

    def _warnings(self, trace: LoopTrace, scores: Array, facts: Mapping[str, Any]) -> list[Warning]:
        """Without known entries that are kept the objective falls until P = 0."""
        beta, critical, none = facts["beta"], facts["critical_beta"], parameter("consistency", "none")
        if self.consistency != "none" or not beta >= critical > 0:
            return super()._warnings(trace, scores, facts)
        text = (
            f"SMFS with {none} has gone to P = 0: {parameter('beta')} has the weight {beta:.4g}, and P = 0 from "
            f"{critical:.4g} on, which falls with every iteration. Scores are what iterations left of P. Leave out "
            f"{none}, or give a smaller {parameter('max_iter')}."
        )
        return [UserWarning(text)]


def _values_of_sample(recovery: RowRecovery, sample: SampledRows) -> Array:
    """Return the values of anchors for Eq. 4: Λ⁻¹Z'Y of the sampled rows, with −1 for unknown entries and for anchors
    without rows.
    """
    Y, _, _ = recovery.labels(sample.Y)
    Z = recovery.anchors.weigh(sample.X)
    masses = np.asarray(Z.sum(axis=0)).ravel()[:, np.newaxis]
    U: Array = np.full((Z.shape[1], Y.shape[1]), -1.0)
    np.divide(Z.T @ Y, masses, out=U, where=masses > 0)
    return U


def _structure(sums: RecoveredSums, U: Array) -> float:
    """Return Σ_i Σ_a z_ia ‖y_i − u_a‖², the labels of rows of which nothing is known being U'z_i."""
    of_anchors = float(sums.masses @ np.einsum("ij,ij->i", U, U)) - float(np.vdot(U, sums.ZZ @ U))
    return float(sums.terms[2]) - 2.0 * float(np.vdot(U, sums.ZY)) + of_anchors


# ---------------------------------------------------------------------- with all rows in memory


def known_labels(Y: sp.csr_array, *, zeros_are_unknown: bool) -> tuple[Array, NDArray[np.bool_], Array]:
    """Return Y as 1 and −1 (n, q), which entries are known (n, q), and the diagonal of S of Eq. 7 (n,).

    Parameters
    ----------
    Y : csr_array, shape (n, q)
        1 for positive labels, −1 for unknown ones.
    zeros_are_unknown : bool
        Whether entries that are not 1 are unknown, and not those that are -1.

    Examples
    --------
    >>> known_labels(sp.csr_array(np.array([[1, 0], [-1, 1]])), zeros_are_unknown=False)[1]
    array([[ True,  True],
           [False,  True]])
    """
    entries = Y.toarray()
    positive = entries > 0
    known = positive if zeros_are_unknown else entries >= 0
    # Eq. 7: a row weighs by how rare its positive labels are.
    s = (positive / np.maximum(positive.sum(axis=0), 1)).sum(axis=1)
    return np.where(positive, 1.0, -1.0), known, s


def distance_structure(neighbours: Neighbours) -> sp.csr_array:
    """Return W of Eq. 3 with Euclidean distances in the place of ξ."""
    distances = np.sqrt(np.maximum(neighbours.distances, 0.0))
    # Less the least of the row, which changes nothing: exponentials of far rows would all be 0.
    return density_structure(neighbours._replace(distances=distances - distances[:, :1]))


def density_structure(neighbours: Neighbours) -> sp.csr_array:
    """Return W of Eq. 3: row-softmax of −ξ over the neighbours, shape (n, n), k entries a row.

    Parameters
    ----------
    neighbours : Neighbours
        `distances` is ξ.
    """
    weights = np.exp(-neighbours.distances)
    if weights.shape[1]:
        weights /= weights.sum(axis=1, keepdims=True)
    return neighbours.to_csr(weights)


def start_labels(Y: Array, known: NDArray[np.bool_], W: sp.csr_array) -> Array:
    """Apply Eq. 4: unknown entries of labelled rows become what their neighbours have (old Y on the right).

    Rows of which nothing is known keep −1, as in the paper.

    Parameters
    ----------
    Y : float64 array, shape (n, q)
        1 and −1; unknown entries are −1.
    known : bool array, shape (n, q)
    W : csr_array, shape (n, n)
    """
    if not W.nnz:
        return Y
    return np.where(known.any(axis=1, keepdims=True) & ~known, W @ Y, Y)


class _Loop:
    """The loop of Algorithm 1 and its state, in the paper's letters.

    Attributes
    ----------
    Y : float64 array, shape (n, q)
    B : float64 array, shape (d, q)
        X'SY.
    regression : RowSparseRegression
        P, and X'SX or products with it.
    """

    def __init__(
        self,
        method: SMFS,
        X: ScaledMatrix,
        Y: Array,
        free: NDArray[np.bool_],
        s: Array,
        reconstruction: Reconstruction,
        alpha: float,
    ) -> None:
        self.X, self.Y, self.free, self.s = X, Y, free, s
        self.reconstruction = reconstruction
        self.alpha = alpha
        self.tol, self.max_iter = method.tol, method.max_iter
        # P depends on the labels of rows with a weight alone: where these are known, not on recovered ones.
        self.coupled = bool(free[s > 0].any())
        self.trace = LoopTrace()
        self.checkpoint = checkpoints.current()
        state = self.checkpoint.load()
        if state is not None:
            self.trace, self.Y = LoopTrace(**state.facts["trace"]), state.arrays["Y"]
        elif not self.coupled and free.any():
            self._recover(None)
        self.structure = reconstruction.error(self.Y)
        d = X.shape[1]
        self.G = X.gram(s) if d <= method.gram_cap else None
        self.B: Array = self._backward() if state is None else state.arrays["B"]
        self.regression = RowSparseRegression(
            self.B,
            beta=method.beta,
            inner_iterations=method.inner_iterations,
            gram=self.G,
            diagonal=X.squares * s.sum(),
            normal=self._normal,
            gram_of=lambda columns: X.gram(s, columns),
            max_features=min(method.gram_cap, SET_FEATURES),
            reaches_zero=method.consistency != "none",
            state=None if state is None else state.arrays,
        )
        self.weighted_labels = self._weighted(self.Y)

    def run(self) -> LoopTrace:
        """Run Algorithm 1."""
        trace, regression = self.trace, self.regression
        for iteration in range(trace.iterations + 1, self.max_iter + 1):
            trace.record(regression_steps=regression.update(self.B))  # Eqs. 9 and 10
            fit = self._update_Y()  # Eq. 13
            objective = fit + self.alpha * self.structure + regression.penalty  # Eq. 6

            # Where P does not depend on recovered labels the structure is constant: a change is not compared with it.
            scale = abs(objective) if self.coupled else self.weighted_labels
            change = abs(trace.objective[-1] - objective) / max(scale, 1e-300) if trace.objective else 1.0
            trace.add(objective, step=change)
            if change <= self.tol and regression.has_settled(self.tol, scale):
                trace.converged = True
                break
            regression.tighten(change, self.tol)
            if self.coupled and iteration < self.max_iter:
                self.B = self._backward()
            save_if_due(self.checkpoint, {"Y": self.Y, "B": self.B, **regression.state()}, trace)
        regression.finish(self.B)
        return trace

    def _update_Y(self) -> float:
        """Compute Y by Eq. 13, where P has a part in it. Gives Σ s_ii ‖xⁱP − yⁱ‖²."""
        P, B = self.regression.P, self.B
        if self.G is not None and not self.coupled:
            return float(np.vdot(P, self.G @ P) - 2.0 * np.vdot(P, B)) + self.weighted_labels
        fitted = self.X.forward(P)
        if self.regression.needs_product:
            self.regression.GP = self.X.backward(self.s[:, np.newaxis] * fitted)
        if self.coupled:
            self._recover(fitted)
            self.structure = self.reconstruction.error(self.Y)
        return self._weighted(fitted - self.Y)

    def _recover(self, fitted: Array | None) -> None:
        solution = recover_labels(
            self.Y,
            self.free,
            self.s,
            fitted,
            self.alpha,
            self.reconstruction,
            tol=LABEL_TOL,
            max_iter=1000,
        )
        self.Y = solution.Y
        self.trace.record(recovery_steps=solution.steps, recovery_residual=solution.residual)

    def _backward(self) -> Array:
        """Return X'SY."""
        return self.X.backward(self.s[:, np.newaxis] * self.Y)

    def _normal(self, V: Array) -> Array:
        """Return X'SX V."""
        return self.X.backward(self.s[:, np.newaxis] * self.X.forward(V))

    def _weighted(self, rows: Array) -> float:
        """Return Σ s_ii ‖rowⁱ‖²."""
        return float(self.s @ np.einsum("ij,ij->i", rows, rows))
