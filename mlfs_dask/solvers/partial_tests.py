"""Tests of a feature and a label given the other features, from X'X and X'Y: partial t-tests, and knockoffs.

The hypothesis of both is that the feature has no part in the best linear predictor of the label from all features: the
label is independent of the feature given the others, whose regression of the feature is linear. Nothing is asked of the
label's own law. Both hold for values that are not rare beside the rows; the sums of rare ones are far from normal, and
what is tested is then their normal scores (`mlfs_dask.blocks.pair_laws`).

Y. Benjamini, Y. Hochberg, "Controlling the false discovery rate", Journal of the Royal Statistical Society B 57 (1995)
289-300. R. Barber, E. Candès, "Controlling the false discovery rate via knockoffs", Annals of Statistics 43 (2015)
2055-2085, doi:10.1214/15-AOS1337. A. Spector, L. Janson, "Powerful knockoffs via minimizing reconstructability",
Annals of Statistics 50 (2022) 252-276, doi:10.1214/21-AOS2104. Z. Chen, Z. He, B. Chu, J. Gu, T. Morrison, C. Sabatti,
E. Candès, "Controlled variable selection from summary statistics only?", arXiv:2402.12724.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from mlfs_dask.blocks.pair_tests import log_p_of_t
from mlfs_dask.typing import Array

#: Matrices of d × d numbers that a fit holds: partial tests beside X'X, and knockoffs.
TEST_MATRICES, KNOCKOFF_MATRICES = 2, 5

#: Matrices of d × q numbers that either holds.
LABEL_MATRICES = 16

#: Inverses in the search for the knockoffs' distances, at most: 7 to 13 were made where features had a structure.
MAX_INVERSES = 40

#: Relative growth of the objective, a number of features, at which that search ends.
SETTLED = 1e-6

#: Steps of the lasso, whose statistics are valid wherever it stops, and the relative change at which it does.
LASSO_STEPS, LASSO_TOL = 200, 1e-5

#: The lasso's penalty beside the one that keeps all noise out, √(2 ln 2d / n): .3 found more than .5 and .8.
LASSO_SHARE = 0.3


class Factored(NamedTuple):
    """A correlation matrix as a triangle, and what its inverse says.

    Attributes
    ----------
    triangle : float64 array, shape (d, d)
        L of R = LL'.
    inverse_diagonal : float64 array, shape (d,)
        1 / (1 − R²) of each feature given the others.
    least_eigenvalue : float
    """

    triangle: Array
    inverse_diagonal: Array
    least_eigenvalue: float

    def solve(self, right: Array) -> Array:
        """Return R⁻¹ of some columns."""
        solution: Array = linalg.cho_solve((self.triangle, True), right, check_finite=False)
        return solution


def factored(R: Array) -> Factored | None:
    """Return the triangle of a correlation matrix; None where it has none in floating point."""
    try:
        triangle = linalg.cholesky(R, lower=True, check_finite=False)
    except linalg.LinAlgError:
        return None
    inverse, info = linalg.lapack.dtrtri(triangle, lower=1)
    if info:
        return None
    diagonal = np.einsum("ij,ij->j", inverse, inverse)
    del inverse
    d = len(R)
    least = 1.0 / float(diagonal[0]) if d == 1 else _least_eigenvalue(triangle)
    return Factored(triangle, diagonal, least)


def _least_eigenvalue(triangle: Array) -> float:
    d = len(triangle)
    if d <= 64:
        return float(linalg.eigvalsh(triangle @ triangle.T)[0])
    inverse = LinearOperator((d, d), lambda x: linalg.cho_solve((triangle, True), x, check_finite=False), dtype=float)
    start = np.random.default_rng(0).standard_normal(d)
    largest = eigsh(inverse, k=1, v0=start, tol=1e-3, return_eigenvectors=False)
    return 1.0 / float(largest[0])


def partial_p_values(
    R: Factored,
    correlations: Array,
    scored: Array,
    n: float,
    freedom: float,
    heavy_scores: Callable[[Array], Array],
) -> tuple[Array, Array, Array]:
    """Return coefficients, partial t statistics, and p-values of the larger of two tests.

    The first is the least-squares t of a feature, whose normal score counts where values are rare or skewed. In the
    second the marginal statistics are normal scores before the others are taken out. Either alone is too sure: the
    first of labels with few rows, the second of features that others nearly determine.

    Parameters
    ----------
    R : Factored
        Correlations of the features.
    correlations : float64 array, shape (d, q)
        Of features with labels.
    scored : float64 array, shape (d, q)
        Normal scores of √n times these.
    n : float
        Rows.
    freedom : float
        Degrees of freedom that are left, above 0: n − d − 1 without covariates.
    heavy_scores : callable
        Normal scores of (d, q) statistics.

    Returns
    -------
    coefficients, t, log p : float64 array, shape (d, q)
        The first of standardised features and labels.
    """
    scale = R.inverse_diagonal[:, np.newaxis] / freedom

    def tested(moved: Array, least: Array) -> tuple[Array, Array, Array]:
        coefficients = R.solve(moved)
        residual = np.maximum(1.0 - np.einsum("ij,ij->j", moved, coefficients), least)
        return coefficients, coefficients / np.sqrt(scale * np.maximum(residual, np.finfo(float).tiny)), residual

    coefficients, t, residual = tested(correlations, np.zeros(1))
    _, of_scores, _ = tested(scored / np.sqrt(n), residual)
    least = np.minimum(np.abs(heavy_scores(t)), np.abs(of_scores))
    return coefficients, t, log_p_of_t(least, np.broadcast_to(freedom, least.shape))


# ---------------------------------------------------------------------------------------------------------
# Knockoffs


def maximum_entropy(R: Array) -> Array:
    """Return the distances s of features and their knockoffs that maximise log |2R − diag(s)| + Σ log s, 0 < s ≤ 1;
    shape (d,).

    By s ← min(1, √(s / diag (2R − diag(s))⁻¹)), whose fixed points are the stationary ones; the exponent is halved
    where the objective would fall.

    >>> maximum_entropy(np.array([[1.0, 0.5], [0.5, 1.0]])).round(3)
    array([0.634, 0.634])
    """
    R2 = 2.0 * R
    s = np.full(len(R), min(1.0, 1.8 * max(float(linalg.eigvalsh(R, subset_by_index=[0, 0])[0]), 1e-12)))
    exponent, found = 0.5, _entropy(R2, s)
    assert found is not None
    for _ in range(MAX_INVERSES):
        objective, inverse_diagonal = found
        trial = np.minimum(1.0, s * (1.0 / (s * inverse_diagonal)) ** exponent)
        found = _entropy(R2, trial)
        if found is None or found[0] < objective:
            exponent, found = 0.5 * exponent, (objective, inverse_diagonal)
            continue
        s = trial
        if found[0] - objective <= SETTLED * len(R):
            break
    return s


def _entropy(R2: Array, s: Array) -> tuple[float, Array] | None:
    """Return the objective of `maximum_entropy`, and the diagonal of the inverse; None where the matrix is not
    definite.
    """
    M = R2.copy()
    M[np.diag_indices_from(M)] -= s
    triangle, info = linalg.lapack.dpotrf(M, lower=1, overwrite_a=1)
    if info:
        return None
    objective = 2.0 * float(np.log(np.diag(triangle)).sum()) + float(np.log(s).sum())
    inverse, info = linalg.lapack.dtrtri(np.tril(triangle), lower=1)
    return None if info else (objective, np.einsum("ij,ij->j", inverse, inverse))


def knockoff_correlations(R: Factored, s: Array, correlations: Array, residual: Array, noise: Array, n: float) -> Array:
    """Return correlations of knockoffs with the labels, shape (d, q): fixed-X knockoffs, of which none is formed.

    Parameters
    ----------
    R : Factored
    s : float64 array, shape (d,)
        `maximum_entropy`.
    correlations : float64 array, shape (d, q)
        Of the features.
    residual : float64 array, shape (q, q)
        Covariance of what the features leave of the labels, by n − d − 1.
    noise : float64 array, shape (d, q)
        Standard normal.
    n : float
    """
    away = linalg.solve_triangular(R.triangle, np.diag(s), lower=True, check_finite=False)
    V = np.diag(2.0 * s) - away.T @ away
    root = _root(V)
    jitter = 1e-12 * np.trace(residual) / len(residual)
    of_labels = linalg.cholesky(residual + jitter * np.eye(len(residual)), lower=False)
    moved = correlations - s[:, np.newaxis] * R.solve(correlations)
    drawn: Array = moved + (root @ (noise @ of_labels)) / np.sqrt(n)
    return drawn


def _root(V: Array) -> Array:
    """Return a root of a matrix without negative eigenvalues but for rounding."""
    try:
        root: Array = linalg.cholesky(V + 1e-12 * np.eye(len(V)), lower=True, check_finite=False)
    except linalg.LinAlgError:
        values, vectors = linalg.eigh(V)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def lasso_statistics(R: Array, s: Array, correlations: Array, knockoffs: Array, n: float) -> Array:
    """Return the excess of a feature's coefficient over its knockoff's in a lasso of both on each label, shape (d, q).

    A change of the sign of a pair of columns changes the sign of the statistic alone, wherever the steps of the lasso
    stop.
    """
    d = len(R)
    penalty = LASSO_SHARE * np.sqrt(2.0 * np.log(2.0 * d) / n)
    slope = 2.0 * float(linalg.eigvalsh(R, subset_by_index=[d - 1, d - 1])[0])  # bounds [[R, R−D], [R−D, R]]
    b, k = np.zeros_like(correlations), np.zeros_like(correlations)
    ahead_b, ahead_k, momentum = b, k, 1.0
    for _ in range(LASSO_STEPS):
        both = R @ (ahead_b + ahead_k)
        new_b = _shrink(ahead_b - (both - s[:, np.newaxis] * ahead_k - correlations) / slope, penalty / slope)
        new_k = _shrink(ahead_k - (both - s[:, np.newaxis] * ahead_b - knockoffs) / slope, penalty / slope)
        change = max(np.abs(new_b - b).max(initial=0.0), np.abs(new_k - k).max(initial=0.0))
        next_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = (momentum - 1.0) / next_momentum
        ahead_b, ahead_k = new_b + ahead * (new_b - b), new_k + ahead * (new_k - k)
        b, k, momentum = new_b, new_k, next_momentum
        if change <= LASSO_TOL * max(np.abs(b).max(initial=0.0), np.abs(k).max(initial=0.0)):
            break
    return np.abs(b) - np.abs(k)


def _shrink(values: Array, by: float) -> Array:
    return np.sign(values) * np.maximum(np.abs(values) - by, 0.0)


def knockoff_q_values(statistics: Array) -> Array:
    """Return the least level that discovers each feature: of (1 + those below −t) / those above t, over thresholds t.

    Parameters
    ----------
    statistics : float64 array, shape (d,)

    Returns
    -------
    float64 array, shape (d,)
        1 of statistics that are not positive.

    Examples
    --------
    >>> knockoff_q_values(np.array([5.0, 4.0, 3.0, -1.0, 0.0])).round(2)
    array([0.33, 0.33, 0.33, 1.  , 1.  ])
    """
    rising = np.sort(statistics)
    thresholds = rising[rising > 0]
    above = len(rising) - np.searchsorted(rising, thresholds, side="left")
    below = np.searchsorted(rising, -thresholds, side="right")
    level = np.minimum.accumulate(np.append(1.0, np.minimum((1 + below) / above, 1.0)))
    return level[np.searchsorted(thresholds, statistics, side="right")]
