"""ELC: features that keep the correlations of the labels (Wang et al. 2020).

Everything follows from A = Y'X of standardised features and from Y'Y: one pass over X. What remains is a loop
over d × q numbers in the driver. J. Wang, Y. Xu, H. Xu, Z. Sun, Z. Yang, J. Wei, "An effective multi-label feature
selection model towards eliminating noisy features", Applied Sciences 10 (2020) 8093, doi:10.3390/app10228093.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.label_space import (
    LabelKernel,
    label_correlations,
    label_similarity,
    redundancy,
    residual_correlation,
    standardised_products,
)
from mlfs_dask.errors import number_of, parameter
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.one_reading import OneReading
from mlfs_dask.selectors.parameters import MaxIter, Missing, Param, seed_of
from mlfs_dask.selectors.scores import Scores, not_converged, rank, round_scores
from mlfs_dask.solvers.padm import MATRICES, Solution, best_mask, largest_of_copies, solve_corrected, solve_published
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array, Seed

#: λ and β of the paper's own experiment (Appendix B; λ as in the authors' code), and its rule to stop.
PUBLISHED_LAMBDA = 1e-3
PUBLISHED_BETA = 1e8
PUBLISHED_TOL = 1e-4

#: λ and β relative to the data, chosen by `benchmarks/quality.py elc`.
CORRECTED_LAMBDA = 0.1
CORRECTED_BETA = 1.0

#: ‖W − U‖ / ‖W‖ that the corrected form has to reach.
GAP_TOL = 1e-3

#: Iterations of the loop that fits took, least and most.
TYPICAL_ITERATIONS = (15, 750)


@method(
    "elc",
    "Embedding label correlations",
    paper="Wang et al. 2020, Applied Sciences 10, 8093",
    doi="10.3390/app10228093",
)
class ELC(OneReading):
    """Feature selection by embedding label correlations (Wang et al. 2020).

    Chooses k features so that the correlations of the labels, seen through the chosen features, come close to the
    correlations of the labels themselves (Eq. 1).

    Attributes
    ----------
    scores_ : float64 array, shape (d,)
        Of the variant "screen", Eq. 1 with its sign turned. Of the others: in [1, 2] for the chosen features, by
        their residual r_f (Eq. 14), and in [0, 0.5] for the others, by the screen, since the loop gives a feature
        outside the mask no weight to be judged by: the step from 1 to 0.5 lies between two scales and says nothing
        about quality. A constant feature is always last. The record's `extra["score_scales"]` names the scales, with
        the number of features on each, best first.

    Notes
    -----
    One pass over X, one over the labels alone for "auto", and one over X for the means or medians that fill missing
    values. Features are standardised with the population standard deviation, by algebra on sums. The record's
    `extra` gives the paper's redundancy R (Eq. 16) and residual label correlation C (Eq. 17) of the chosen set.

    What the corrected variant changes: signs in Eqs. 7-9 that agree with Eq. 5; τ as the reciprocal of the spectral
    radius, and no update of it; λ and β on the scale of the data; S clipped to be positive semidefinite, which it is
    not; V starts from 0, so that no sign of an eigenvector matters; features exchanged in the first `mask_iter`
    iterations only, those first that Eq. 1 ranks first where residuals are equal. The authors' program
    (github.com/wangjuncs/ELC) chooses on emotions what the variant "screen" with the similarity "exponential" chooses.

    References
    ----------
    J. Wang et al., "An effective multi-label feature selection model towards eliminating noisy features", Applied
    Sciences 10 (2020) 8093, doi:10.3390/app10228093.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    >>> mlfs.ELC(n_features_to_select=1).fit(X, Y).ranking_
    array([0, 1, 2])
    """

    takes_covariates = takes_numbers = True
    on_features = (
        'The choice depends on it: the best 10 are not the first 10 of the best 20. "auto": as many as have a better '
        'score of the variant "screen" than by chance, at the false discovery rate `fdr`.'
    )
    variant: Annotated[
        Literal["corrected", "published", "screen"],
        Param(
            'Variant of the method. "corrected": minimises the objective of the paper. "published": Algorithm '
            '1 as printed, which on real data stops after two iterations with the features of "screen". '
            '"screen": scores every feature alone by Eq. 1.'
        ),
    ] = "corrected"
    similarity: Annotated[
        Literal["gaussian", "exponential"],
        Param(
            'Similarity of two labels whose columns are at Euclidean distance d. "gaussian": the paper\'s '
            "exp(−d²/2δ²) with the mean δ² of d², and 0 for labels that occur in no row together. "
            '"exponential": exp(−d)/2m of the authors\' program with the mean m of d, which is almost 0 for '
            "different labels, as columns are some √n apart."
        ),
    ] = "gaussian"
    lambda_: Annotated[
        float | None,
        Param(
            'Weight of the row-sparse penalty. In "corrected" relative to the largest useful weight, by '
            'default 0.1; in "published" absolute, by default 0.001.'
        ),
    ] = None
    beta: Annotated[
        float | None,
        Param(
            'Weight of the penalty on W − U. In "corrected" relative to the largest eigenvalue of AA\', by '
            'default 1; in "published" absolute, by default 1e8.',
            above=0,
        ),
    ] = None
    mask_iter: Annotated[
        int,
        Param(
            'Number of iterations of "corrected" in which features are still exchanged. Afterwards the loop '
            "converges with the features that it has; without this bound the exchange would not end.",
            least=0,
        ),
    ] = 200
    tol: Annotated[
        float,
        Param('Relative change of W at which "corrected" stops; "published" stops at ‖ΔW‖ <= 1e-4.', above=0),
    ] = 0.001
    max_iter: MaxIter = 5000
    missing: Missing = "error"
    resamples: Annotated[
        int,
        Param(
            "Number of random halves of the rows, which give each feature a rank interval and a selection "
            "frequency; the loop runs for each.",
            least=0,
        ),
    ] = 0
    random_state: Annotated[Seed, seed_of("shuffles, of resamples, and of the sample of rows for medians")] = None

    choice_depends_on_k = True
    known_entries = True
    typical_iterations = TYPICAL_ITERATIONS
    memory = "worker: 8 bytes * (q * d + q²); driver: 8 bytes * (8 * q * d + 6 * q²)"

    @property
    def workspace(self) -> str:
        """A beside its sums; W, U, V and their terms; S, Γ and their factors."""
        return f"{1 if self.variant == 'screen' else MATRICES - 2} q d + q d + 6 q q"

    def notes(self, profile: Profile) -> list[str]:
        return [f"A is {profile.q:,} labels by {profile.d:,} features; the loop reads no data"]

    def association(self, *, sums: LabelMoments) -> Array:
        return -_terms(sums, self.similarity).screen

    def scores(self, *, k: int, sums: LabelMoments) -> Scores:
        A, S, screen, constant = _terms(sums, self.similarity)
        d = len(screen)
        if not A.any():
            return Scores(np.zeros(d), converged=True)
        extra: dict[str, Any] = {}

        if self.variant == "screen":
            scores = -screen
            chosen = np.argsort(screen, kind="stable")[:k]
            extra |= _diagnostics(A, S, sums, chosen)
            return Scores(scores, extra=extra, informative=True)

        # A constant feature would enter the mask in place of one whose residual is above its own, which is 0.
        varying = np.flatnonzero(~constant)
        whole, Gamma = len(varying) == d, label_factor(S, sums.n)
        solution = self._solve(A if whole else A[:, varying], Gamma, screen[varying], min(k, len(varying)))
        scores = np.full(d, -1.0)
        combined = combined_scores(solution.mask, solution.residual, screen[varying])
        # k may part the copies of a feature.
        scores[varying] = largest_of_copies(combined, solution.first)
        extra |= _diagnostics(A, S, sums, rank(round_scores(scores))[:k])
        n_free = int(solution.mask.sum())
        scales = {
            "the residual in the loop (Eq. 14)": n_free,
            "the fit of each alone (Eq. 1)": len(varying) - n_free,
            "being constant": d - len(varying),
        }
        extra["score_scales"] = [{"scale": scale, "features": count} for scale, count in scales.items() if count]
        extra["gap"] = solution.gap
        extra["swaps"] = solution.swaps
        warnings = []
        if not solution.converged:
            text = f"ELC did not converge in {number_of(self.max_iter, 'iteration')} "
            text += f"(‖W − U‖/‖W‖ = {solution.gap[-1]:.1e}). "
            warnings.append(not_converged(text + f"Increase {parameter('max_iter')}, or {parameter('beta')}."))
        return Scores(
            scores,
            iterations=len(solution.objective),
            converged=solution.converged,
            objective=solution.objective,
            extra=extra,
            warnings=warnings,
            informative=True,
        )

    def _solve(self, A: Array, Gamma: Array, screen: Array, k: int) -> Solution:
        preference = screen_order(screen)
        p = best_mask(screen, k, preference)  # Algorithm 1, line 3
        if self.variant == "published":
            return solve_published(
                A,
                Gamma,
                p,
                preference,
                lambda_=PUBLISHED_LAMBDA if self.lambda_ is None else self.lambda_,
                beta=PUBLISHED_BETA if self.beta is None else self.beta,
                tol=PUBLISHED_TOL,
                max_iter=self.max_iter,
            )
        return solve_corrected(
            A,
            Gamma,
            p,
            preference,
            lambda_=CORRECTED_LAMBDA if self.lambda_ is None else self.lambda_,
            beta=CORRECTED_BETA if self.beta is None else self.beta,
            mask_iter=self.mask_iter,
            tol=self.tol,
            gap_tol=GAP_TOL,
            max_iter=self.max_iter,
        )


class _Terms(NamedTuple):
    """Terms computed from the sums of all rows.

    Attributes
    ----------
    A : float64 array, shape (q, d)
        Y'X of standardised features.
    S : float64 array, shape (q, q)
        Similarity of the labels.
    screen : float64 array, shape (d,)
        Eq. 1 for every single feature; lower is better.
    constant : bool array, shape (d,)
        Features that are constant; they come last in `screen`.
    """

    A: Array
    S: Array
    screen: Array
    constant: NDArray[np.bool_]


def _terms(sums: LabelMoments, kernel: LabelKernel) -> _Terms:
    A = standardised_products(sums.products.copy(), sums.std)
    A[sums.positives == sums.n] = 0.0  # a label that always occurs goes with no feature; its sums are rounding
    S = label_similarity(sums.pairs, np.diag(sums.pairs), kernel)
    screen, constant = screen_scores(A, S, sums.n), sums.m2 == 0
    screen[constant] = screen.max() + 1.0
    return _Terms(A, S, screen, constant)


def screen_scores(A: Array, S: Array, n: int | float) -> Array:
    """Return Eq. 1 for every single feature, without its constant: ‖a_f‖⁴/n⁴ − 2 a_f'S a_f/n². Lower is better.

    Parameters
    ----------
    A : float64 array, shape (q, d)
    S : float64 array, shape (q, q)
    n : int

    Returns
    -------
    float64 array, shape (d,)
    """
    squares = np.einsum("cf,cf->f", A, A) / n**2
    fit = np.einsum("cf,cf->f", A, S @ A) / n**2
    result: Array = squares**2 - 2.0 * fit
    return result


def screen_order(screen: Array) -> NDArray[np.int64]:
    """Return the place of every feature in the order of the screen, ties (up to rounding) by lower index.

    >>> screen_order(np.array([0.5, -1.0, 0.5]))
    array([1, 0, 2])
    """
    scale = np.abs(screen).max(initial=0.0) * 1e-12
    steps = np.rint(screen / scale) if scale > 0 else screen
    places = np.empty(len(screen), dtype=np.int64)
    places[np.argsort(steps, kind="stable")] = np.arange(len(screen))
    return places


def label_factor(S: Array, n: int | float) -> Array:
    """Return Γ = nΦΣ^{1/2} (after Eq. 2), with eigenvalues in falling order.

    S is not positive semidefinite (labels that never meet have similarity 0): negative eigenvalues count as 0. An
    eigenvector's sign is arbitrary; here the first of its largest entries is positive.

    Parameters
    ----------
    S : float64 array, shape (q, q)
    n : int

    Returns
    -------
    float64 array, shape (q, q)

    Examples
    --------
    >>> label_factor(np.array([[1.0, 0.5], [0.5, 1.0]]), 2).round(3)
    array([[ 1.732,  1.   ],
           [ 1.732, -1.   ]])
    """
    Sigma, Phi = np.linalg.eigh(S)
    Sigma, Phi = np.maximum(Sigma[::-1], 0.0), Phi[:, ::-1]
    size = np.abs(Phi)
    largest = (size >= size.max(axis=0) * (1 - 1e-6)).argmax(axis=0)  # the first, whatever rounding says
    signs = np.where(Phi[largest, np.arange(len(S))] < 0, -1.0, 1.0)
    Gamma: Array = n * Phi * signs * np.sqrt(Sigma)
    return Gamma


def combined_scores(
    mask: NDArray[np.bool_],
    residual: Array,
    screen: Array,
) -> Array:
    """Return one score for all features: the chosen ones in [1, 2], the others in [0, 0.5].

    Parameters
    ----------
    mask : bool array, shape (d,)
    residual, screen : float64 array, shape (d,)
        Lower is better.

    Examples
    --------
    >>> combined_scores(
    ...     np.array([True, True, False, False]), np.array([-3.0, -1.0, 0.0, 0.0]), np.array([-5.0, -9.0, -2.0, 1.0])
    ... )
    array([2. , 1. , 0.5, 0. ])
    """
    scores = np.empty(len(mask))
    scores[mask] = 1.0 + _unit(-residual[mask])
    scores[~mask] = 0.5 * _unit(-screen[~mask])
    return scores


def _unit(values: Array) -> Array:
    """Return values moved to [0, 1], in their order."""
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def _diagnostics(A: Array, S: Array, sums: LabelMoments, chosen: NDArray[Any]) -> dict[str, float | None]:
    facts = {
        "redundancy": redundancy(label_correlations(A, sums.label_m2, sums.n), chosen),
        "residual_correlation": residual_correlation(A, S, sums.n, chosen),
    }
    # A single feature has neither; NaN has no form in JSON.
    return {name: None if np.isnan(value) else value for name, value in facts.items()}
