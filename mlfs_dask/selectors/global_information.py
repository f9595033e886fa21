"""Methods that weigh all features at once by what they tell of labels and of one another: GRRO, MICO, QPMLFS.

R holds the information of features with labels and Q that of features with one another, both from counts: one pass.
The weights follow on the driver. Where features are many a second pass gives the columns of Q of some of them, the
landmarks, and Q is of low rank plus a diagonal (`mlfs_dask.solvers.low_rank`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.counts import CodeBook
from mlfs_dask.blocks.entropy import information
from mlfs_dask.blocks.pair_scores import Counts
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import number_of, parameter
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import LEFT_OUT, family, method
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings
from mlfs_dask.selectors.counting import CountingSelector, label_entropies
from mlfs_dask.selectors.parameters import Binning, Bins, MissingOrCode, Param, seed_of
from mlfs_dask.selectors.scores import Scores, most_relevant, not_converged
from mlfs_dask.solvers import simplex, sylvester
from mlfs_dask.solvers.low_rank import LowRankPlusDiagonal, nystroem, solve_low_rank_sylvester
from mlfs_dask.statistics.counts import CountScores
from mlfs_dask.statistics.gram import GRAM_CAP
from mlfs_dask.statistics.label_statistics import LabelTables, graph_laplacian, label_pairs
from mlfs_dask.statistics.pairs import pair_information, partners_of_a_reading
from mlfs_dask.typing import Array, Seed, join_terms

#: Landmarks by default of more features than `GRAM_CAP`.
N_LANDMARKS = 1024

#: What the passes of landmarks with all features are called.
LANDMARKS = "landmarks"

#: Of a worker, and the beginning of what the driver holds.
SHARED_MEMORY = (
    "worker: 4 bytes * (r d * (codes - 1)² + q * d * (codes - 1)) and 8 * (r d + q * d) for r landmarks, d of up to "
    "4096 features; driver, without landmarks: 8 bytes * "
)


@dataclass(frozen=True)
class InformationTerms:
    """Information terms from the counts of all rows, in bits.

    Attributes
    ----------
    R : float64 array, shape (d, q)
        Information of each feature with each label.
    Q : float64 array, shape (d, d), or LowRankPlusDiagonal
        Information of features with one another, symmetric, and their entropies or 1 on its diagonal.
    entropy : float64 array, shape (d,)
        Of each feature; 0 where all rows have one code.
    labels : LabelTables or None
        Counts of pairs of labels, where the method needs them.
    """

    R: Array
    Q: Array | LowRankPlusDiagonal
    entropy: Array
    labels: LabelTables | None


@family
class GlobalSelector(CountingSelector):
    """Base class of methods that weigh all features at once.

    A subclass gives the weights (`_weigh`), and what it holds for them in its `workspace`: r landmarks are 0 where Q is
    formed, f features are 0 where it is not.
    """

    n_landmarks: Annotated[
        int | None,
        Param(
            "Number of landmarks: the features of most information with the labels, whose redundancy with "
            "every feature is counted. The redundancy of two other features is approximated. By default all "
            "features, or 1024 of more than 4096."
        ),
    ] = None
    bins: Bins = 2
    binning: Binning = "auto"
    missing: MissingOrCode = "error"
    random_state: Annotated[Seed, seed_of("the rows that medians come from")] = None

    known_entries = True
    unknown_entry = LEFT_OUT
    resamples_rows = False
    weighs_features = True
    family_notes = """
    One pass over X of a store, and one more with landmarks, or several if memory is short; one more if ranges or
    quantiles are not recorded. Scores follow from integer counts and are identical for any chunking and number of
    workers. Sparse data stays sparse.

    With landmarks Q is C P⁺ C' and a diagonal (Nyström), where C holds the redundancy of all features with landmarks
    and P that of landmarks: rows of landmarks and the diagonal are exact.
    """
    passes = "1 (2 or more with landmarks; 1 more where ranges or quantiles are not recorded)"
    #: Whether it takes pairs of labels.
    needs_label_pairs: ClassVar[bool] = True
    #: Whether the diagonal of Q is 1 in place of the entropies.
    unit_diagonal: ClassVar[bool] = False

    def _weigh(self, terms: InformationTerms) -> Scores:
        """Return scores of the features."""
        raise NotImplementedError

    def _count_landmarks(self, d: int) -> int:
        """Return the number of landmarks: d where Q is formed."""
        if self.n_landmarks is None:
            return d if d <= GRAM_CAP else N_LANDMARKS
        return min(self.n_landmarks, d)

    def cure(self, profile: Profile) -> str:
        return (
            f"take fewer than {self._count_landmarks(profile.d):,} features as landmarks ({parameter('n_landmarks')})"
        )

    # ------------------------------------------------------------------ what is read

    def _statistic(self, **fields: Any) -> CountScores:
        return CountScores(**fields, formula=information, formula_key="information of each label", labelwise=True)

    def _statistics(
        self, source: Profile | RowSource, book: CodeBook, label_counts: NDArray[Any] | None
    ) -> list[Statistic]:
        """Return the statistics of the first pass: R, pairs of labels, and Q where it is formed."""
        profile = profile_of(source)
        statistics: list[Statistic] = [self._counts(source, book, label_counts)]
        if self.needs_label_pairs:
            statistics.append(label_pairs(source))
        if self._count_landmarks(book.d) == book.d:
            statistics.append(pair_information(profile, book, np.arange(book.d), with_labels=False))
        return statistics

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        book = self._book_before_reading(source)
        return () if book is None else self._statistics(source, book, source.label_counts)

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        profile = profile_of(source)
        label_counts = None if isinstance(source, Profile) else source.label_counts
        book, _ = self.planned_book(source)
        before, held, sizes = self._code_readings(source, book)
        held = join_terms(held, "2 q d + 3 q q")  # R, and pairs of labels
        first = Reading("information", tuple(self._statistics(source, book, label_counts)), workspace=held)
        steps: list[Reading | str] = [*before, first]
        d, q, r = profile.d, profile.q, self._count_landmarks(profile.d)
        note = f"information of {r:,} x {d:,} features" + ("" if r == d else f": {r:,} are landmarks")
        if r < d:
            count = partners_of_a_reading(source, resources, book, r, with_labels=False)
            # Which features are landmarks is not known yet: those of most codes take most.
            pairs = pair_information(profile, book, book.widest(count), with_labels=False)
            steps.append(Reading(LANDMARKS, (pairs,), times=-(-r // count), workspace=join_terms(held, "r d")))
            # Columns of Q, those of landmarks and their eigenvectors; the low rank and the diagonal.
            steps.append(join_terms(held, "2 r d + 6 r r + 4 d"))
        steps.append(join_terms(held, "12 d + r d + 2 f f", self.workspace))
        sizes |= {"q": q, "r": r * (r < d), "f": d * (r == d)}
        notes = [note, *self._crowding_notes(source, book)]
        return Cost(steps, sizes, notes=notes)

    # ------------------------------------------------------------------ run

    def score(self, readings: Readings) -> Scores:
        source, profile = readings.source, readings.source.profile
        book, features, label_counts = self._read_codes(readings)
        statistics = self._statistics(source, book, label_counts)
        (information, entropy), *results = readings.run("information", *statistics)
        labels = results.pop(0) if self.needs_label_pairs else None
        R = np.empty((profile.d, profile.q))
        R[:, statistics[0].counted_labels] = information.T  # type: ignore[attr-defined]  # in the order of slots
        R /= np.log(2.0)
        entropy /= np.log(2.0)
        del information
        Q: Array | LowRankPlusDiagonal
        extra = {}
        if results:
            ((shared,), _) = results.pop()
            formed = (shared + shared.T) * (0.5 / np.log(2.0))  # the two roundings of a pair become one
            del shared
            first = first_of_same(R, formed)
            if self.unit_diagonal:
                np.fill_diagonal(formed, 1.0)
            Q = formed
        else:
            landmarks = most_relevant(R.sum(axis=1), self._count_landmarks(profile.d))
            C = self._read_landmarks(readings, book, landmarks)
            first = first_of_same(R, C)
            Q = nystroem(C, landmarks, np.ones(profile.d) if self.unit_diagonal else entropy)
            del C
            extra = {"landmarks": len(landmarks)}
        warnings = self._warnings(features, entropy * np.log(2.0), label_entropies(label_counts, profile.total))
        outcome = self._weigh(InformationTerms(R, Q, entropy, labels))
        return replace(
            outcome,
            scores=outcome.scores[first],
            extra={**outcome.extra, **extra},
            warnings=[*warnings, *outcome.warnings],
        )

    def _read_landmarks(self, readings: Readings, book: CodeBook, landmarks: NDArray[np.intp]) -> Array:
        """Return the information of all features with landmarks in bits, shape (d, r), from as many passes as memory
        needs.
        """
        profile, r = readings.source.profile, len(landmarks)
        count = partners_of_a_reading(readings.source, readings.resources, book, r, with_labels=False)
        C = np.empty((profile.d, r))
        for start in range(0, r, count):
            some = slice(start, start + count)
            pairs = pair_information(profile, book, landmarks[some], with_labels=False)
            (((shared,), _),) = readings.run(LANDMARKS, pairs)
            C[:, some] = shared.T
        C /= np.log(2.0)
        return C


def first_of_same(R: Array, Q: NDArray[Any]) -> NDArray[np.intp]:
    """Return the first feature that has the same rows of R and Q, for every feature.

    Such features, copies of one another mostly, have the same weights but for the rounding of a solver, which would
    decide their order in place of their indices.

    Examples
    --------
    >>> first_of_same(np.array([[0.5], [0.2], [0.5]]), np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.1]])).tolist()
    [0, 1, 0]
    """
    first: dict[bytes, int] = {}
    keys = (hashlib.sha256(r.tobytes() + q.tobytes()).digest() for r, q in zip(R, Q, strict=True))
    return np.array([first.setdefault(key, f) for f, key in enumerate(keys)], dtype=np.intp)


@method(
    "grro",
    "Global relevance and redundancy optimisation",
    paper="Zhang, Lin, Jiang, Li, Tang & Tan 2020, IJCAI, 2512-2518",
    doi="10.24963/ijcai.2020/348",
)
class GRRO(GlobalSelector):
    """Global relevance and redundancy optimisation (GRRO; Zhang et al. 2020).

    The weights W of features for labels minimise ½‖W − R‖² + α/2 tr(W'QW) + β/2 tr(W D W'): they are near the relevance
    R = I(f; l), small together for features that are redundant, Q = I(f; g), and for labels that are far from each
    other, D. They solve (I + αQ) W + β W D = R. The score of a feature is the sum of its weights.

    Notes
    -----
    Without landmarks the driver holds 8 (8 d² + 8 q d) bytes and takes some 9 d³ operations, with them
    8 (2 r d + 6 r² + 8 q d) and 2 q r² d operations.

    As in the authors' program (github.com/jiazhang-ml/GRRO, demo1.m): information is in bits, the diagonal of Q is 1
    in place of the entropies, and D is the cosine distance between the columns of Y (0 for a label that no row has),
    though the paper calls it label relevance; about half of the weights are negative, and a score is their sum, no
    norm. The program cuts features into two parts of equal frequency: `binning="quantile"`, which gives its scores.
    As in the program 0/1 features are cut, too: those that more than half of the rows have become constant, and have
    next to no weight. With "equal-width" they are used as they are.

    References
    ----------
    J. Zhang, Y. Lin, M. Jiang, S. Li, Y. Tang, K. C. Tan, "Multi-label feature selection via global relevance and
    redundancy optimization", IJCAI (2020) 2512-2518, doi:10.24963/ijcai.2020/348.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the second feature is the first again
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> mlfs.GRRO(n_features_to_select=1).fit(X, Y).ranking_.tolist()
    [2, 0, 1]
    """

    alpha: Annotated[float, Param("Weight of redundancy.")] = 100.0
    beta: Annotated[float, Param("Weight of label distance.")] = 0.1

    memory = SHARED_MEMORY + "(8 d² + 8 q d); with: 8 * (2 r d + 6 r² + 8 q d)"
    quantiles_cut_binary = True
    unit_diagonal = True

    # I + αQ and its eigenvectors, or its low rank and the system of a shift; W and its terms.
    workspace = f"{1 + sylvester.SQUARE_MATRICES} f f + r d + 4 r r + 6 q d"

    def _weigh(self, terms: InformationTerms) -> Scores:
        assert terms.labels is not None
        A, D = self.alpha * terms.Q, self.beta * terms.labels.cosine_distances()
        if isinstance(A, LowRankPlusDiagonal):
            W = solve_low_rank_sylvester(replace(A, e=A.e + 1.0), D, terms.R)
        else:
            A.flat[:: len(A) + 1] += 1.0
            W = sylvester.solve_symmetric_sylvester(A, D, terms.R)
        return Scores(W.sum(axis=1))


@family
class _SimplexSelector(GlobalSelector):
    """Methods whose weights lie on the simplex, found by a loop."""

    tol: Annotated[
        float,
        Param("Gap between the objective and its lower bound, relative to the objective, at which the loop stops."),
    ] = 1e-09
    max_iter: Annotated[int, Param("Maximum number of iterations, which read no data.")] = 5000

    @property
    def workspace(self) -> str:
        """Weights and their terms; Q of the working set of d/2; squares of the low rank, or weighted information."""
        return f"{simplex.MATRICES + 2} {'q d' if self.needs_label_pairs else 'd'} + 1.25 f f + 0.5 r d + 4 r r"

    def _weigh(self, terms: InformationTerms) -> Scores:
        """Return the weights of the features that have more than one code: another, which shares nothing, would
        attract weight.
        """
        informative = np.flatnonzero(terms.entropy)
        d = len(terms.entropy)
        if len(informative) in (0, d):
            return self._weigh_informative(terms)
        Q = simplex.principal_submatrix(terms.Q, informative)
        outcome = self._weigh_informative(
            replace(terms, R=terms.R[informative], Q=Q, entropy=terms.entropy[informative])
        )
        scores = np.full(d, outcome.scores.min() - 1.0)
        scores[informative] = outcome.scores
        return replace(outcome, scores=scores)

    def _weigh_informative(self, terms: InformationTerms) -> Scores:
        """Return scores of features that have more than one code each, or of which none has."""
        raise NotImplementedError

    def _solve(self, Q: Array | LowRankPlusDiagonal, R: Array, L: Array | None = None) -> Scores:
        """Return scores from the solution: a feature's weight over all columns, or less than 0 where it has none.

        Features without weight are ranked by how little it would cost to give them some.
        """
        solution = simplex.solve_on_simplex(Q, R, L, tol=self.tol, max_iter=self.max_iter)
        weights = solution.W.sum(axis=1)
        scores = np.where(weights > 0, weights, -solution.multipliers.min(axis=1))
        warnings = []
        if not solution.converged:
            text = (
                f"{self.method} did not converge in {number_of(self.max_iter, 'iteration')} (gap {solution.gap:.1e}). "
            )
            warnings.append(not_converged(text + f"Increase {parameter('max_iter')}, or {parameter('tol')}."))
        return Scores(
            scores,
            iterations=len(solution.objective) - 1,
            converged=solution.converged,
            objective=solution.objective,
            extra={"gap": solution.gap, "weighted_features": int(np.count_nonzero(weights))},
            warnings=warnings,
        )


#: Iterations that real sets took, least and most.
TYPICAL_ITERATIONS = (50, 500)


@method(
    "mico",
    "Mutual information by constrained convex optimisation",
    paper="Sun, Zhang, Dai, Li, Zhou, Xin & Li 2019, Neurocomputing 329, 447-456",
    doi="10.1016/j.neucom.2018.10.047",
)
class MICO(_SimplexSelector):
    """Mutual information by constrained convex optimisation (MICO; Sun et al. 2019).

    The weights W of features for labels, W >= 0 with columns that sum to 1, minimise
    −tr(W'R) + α/2 tr(W'QW) + β/2 Σ S_lm ‖w_l − w_m‖² (sum over unordered pairs of labels): they lie on features of much
    relevance R = I(f; l) and little redundancy Q = I(f; g), and are alike for labels that share information
    S = I(l; m). The score of a feature is the sum of its weights; features without weight are ranked below, by how
    little the objective would rise with some.

    Notes
    -----
    Without landmarks the driver holds 8 (3 d² + d²/4 + 12 q d) bytes, with them 8 (2 r d + 6 r² + 12 q d).

    There is no public program, and what is implemented is the problem as later papers describe it: information in bits,
    redundancy of two features summed over labels, columns of weights on the simplex. Where the original weighs its
    terms otherwise, α and β differ from its.

    References
    ----------
    Z. Sun, J. Zhang, L. Dai, C. Li, C. Zhou, J. Xin, S. Li, "Mutual information based multi-label feature selection via
    constrained convex optimization", Neurocomputing 329 (2019) 447-456, doi:10.1016/j.neucom.2018.10.047.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the second feature is the first again
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> mlfs.MICO(n_features_to_select=1).fit(X, Y).scores_.round(3)
    array([0.5, 0.5, 1. ])
    """

    alpha: Annotated[float, Param("Weight of redundancy.")] = 1.0
    beta: Annotated[float, Param("Weight of label correlation.")] = 1.0

    memory = SHARED_MEMORY + "(3 d² + d²/4 + 12 q d); with: 8 * (2 r d + 6 r² + 12 q d)"

    def _weigh_informative(self, terms: InformationTerms) -> Scores:
        assert terms.labels is not None
        S = label_information(terms.labels)
        np.fill_diagonal(S, 0.0)
        return self._solve(self.alpha * terms.Q, terms.R, self.beta * graph_laplacian(S))


def label_information(labels: LabelTables) -> Array:
    """Return the mutual information of labels in bits, shape (q, q), of each pair over the rows where both are known.

    >>> label_information(LabelTables(np.array([[2, 1], [1, 2]]), np.array([[2], [2]]), 4)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    both, positives, n = labels
    joint = np.stack([positives - both, both])
    marginal = np.stack([n - positives.T, positives.T])
    shared = information(Counts(joint, marginal, positives, n))
    shared /= np.log(2.0)
    return shared


@method(
    "qpmlfs",
    "Quadratic programming for multi-label feature selection",
    paper="Lim, Lee & Kim 2017, Pattern Recognition Letters 89, 25-30",
    doi="10.1016/j.patrec.2017.02.004",
)
class QPMLFS(_SimplexSelector):
    """Quadratic programming for multi-label feature selection (QPMLFS; Lim, Lee & Kim 2017).

    The weights x of the features, x >= 0 with sum 1, minimise (1 − α)/2 x'Qx − α r'x: they lie on features of much
    relevance r, the sum over the labels of I(f; l), and little redundancy Q = I(f; g). The score of a feature is its
    weight; features without weight are ranked below, by how little the objective would rise with some.

    Notes
    -----
    Without landmarks the driver holds 8 (3 d² + d²/4 + 2 q d) bytes, with them 8 (2 r d + 6 r² + 2 q d).

    There is no public program; α and its default are those of quadratic programming feature selection for a single
    label (Rodriguez-Lujan et al. 2010), of which this is the form for several labels, and so is the low rank of Q for
    many features. Their landmarks are random features; here they are the most relevant ones, and the diagonal of Q is
    kept.

    References
    ----------
    H. Lim, J. Lee, D.-W. Kim, "Optimization approach for feature selection in multi-label classification", Pattern
    Recognition Letters 89 (2017) 25-30, doi:10.1016/j.patrec.2017.02.004. I. Rodriguez-Lujan, R. Huerta, C. Elkan,
    C. Santa Cruz, "Quadratic programming feature selection", Journal of Machine Learning Research 11 (2010) 1491-1516.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # the second feature is the first again
    >>> Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> mlfs.QPMLFS(n_features_to_select=1).fit(X, Y).scores_.round(3)
    array([0.25, 0.25, 0.5 ])
    """

    alpha: Annotated[
        float | None,
        Param(
            "Weight of relevance beside redundancy. By default mean(Q) / (mean(Q) + mean(r)), which gives both "
            "terms equal weight.",
            most=1,
        ),
    ] = None

    memory = SHARED_MEMORY + "(3 d² + d²/4 + 2 q d); with: 8 * (2 r d + 6 r² + 2 q d)"
    needs_label_pairs = False

    def _weigh_informative(self, terms: InformationTerms) -> Scores:
        relevance = terms.R.sum(axis=1, keepdims=True)
        alpha = self.alpha
        if alpha is None:
            redundancy = float(terms.Q.mean())
            both = redundancy + float(relevance.mean())
            alpha = redundancy / both if both > 0 else 0.5
        outcome = self._solve((1.0 - alpha) * terms.Q, alpha * relevance)
        return replace(outcome, extra={**outcome.extra, "alpha": alpha})
