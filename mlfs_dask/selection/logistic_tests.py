"""Score tests of label-feature pairs by logistic regressions with covariates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.costs import Reading, Readings
from mlfs_dask.statistics.covariates import Projection
from mlfs_dask.statistics.logistic_scores import ModelScores, NullModels, ScoreCumulants
from mlfs_dask.typing import Array

#: Names of the passes.
MODELS, SCORES, CUMULANTS = "logistic models", "logistic scores", "cumulants of logistic scores"

#: Most Newton steps, and how many are typical.
MAX_STEPS, TYPICAL_STEPS = 25, (4, 9)

#: Newton decrement below which a model has converged.
_CONVERGED = 1e-10

#: Normal score from which the cumulants of a score are summed, as in SAIGE and regenie.
_IN_TAIL = 2.0


class LogisticScores(NamedTuple):
    """Scores of pairs, each of shape (q, d): score, its variance, skewness and excess kurtosis."""

    score: Array
    variance: Array
    skewness: Array
    kurtosis: Array


def logistic_steps(view: RowSource | Profile) -> list[Reading]:
    """Return the passes of score tests with covariates, for a plan."""
    profile = profile_of(view)
    sizes = profile.d, profile.q, 1 + profile.covariates
    models = Reading(MODELS, (NullModels(*sizes),), times=MAX_STEPS, typical=TYPICAL_STEPS, source=_model_rows(view))
    held = "2 q d + q C d"
    return [
        models,
        Reading(SCORES, (ModelScores(*sizes),), workspace=held),
        Reading(CUMULANTS, (ScoreCumulants(*sizes),), workspace=held),
    ]


def _model_rows(view: RowSource | Profile) -> Any:
    """Return labels and covariates without features, if covariates are no features."""
    return None if isinstance(view, Profile) else view.labels_and_covariates()


def logistic_scores(job: Readings, projection: Projection, shares: Array, mean: Array) -> LogisticScores:
    """Fit the null models and return the scores of all pairs.

    Parameters
    ----------
    job : Readings
    projection : Projection
        Basis of the covariates.
    shares : float64 array, shape (q,)
        Share of the known rows that have each label.
    mean : float64 array, shape (d,)
        Means of the features.

    Returns
    -------
    LogisticScores
        The variance of a label whose model does not converge is 0. Skewness and kurtosis of scores below two standard
        deviations are 0.
    """
    source, (q, c) = job.source, (len(shares), 1 + projection.Z.shape[1])
    sizes, rows = (source.profile.d, q, c), _model_rows(source)
    varies = (shares > 0) & (shares < 1)
    gamma, converged = np.zeros((q, c)), ~varies
    gamma[varies, 0] = special.logit(shares[varies])
    before, best = gamma.copy(), np.full(q, -np.inf)
    for _ in range(MAX_STEPS):
        ((likelihood, gradient, hessian),) = job.run(MODELS, NullModels(*sizes, projection, gamma), source=rows)
        worse = (likelihood < best - 1e-9 * np.abs(best)) & ~converged
        step = _solve(hessian, gradient)
        converged |= ~worse & (np.sum(step * gradient, axis=1) < _CONVERGED)
        best = np.where(worse, best, likelihood)
        halved, before = (before + gamma) / 2, np.where(worse[:, np.newaxis], before, gamma)
        gamma = np.where(worse[:, np.newaxis], halved, gamma + np.where(converged[:, np.newaxis], 0.0, step))
        if converged.all():
            break
    ((score, squares, crossed, gradient, hessian),) = job.run(SCORES, ModelScores(*sizes, projection, gamma, mean))
    b = np.stack([_solve(hessian, crossed[:, :, f]) for f in range(crossed.shape[2])], axis=2)
    score = score - np.einsum("qcd,qc->qd", b, gradient)
    variance = squares - np.einsum("qcd,qcd->qd", b, crossed)
    variance[(variance <= 1e-9 * squares) | ~(converged & varies)[:, np.newaxis]] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(variance > 0, score / np.sqrt(variance), 0.0)
    chosen, skewness, kurtosis = np.abs(z) >= _IN_TAIL, np.zeros(z.shape), np.zeros(z.shape)
    if chosen.any():
        ((third, fourth),) = job.run(CUMULANTS, ScoreCumulants(*sizes, projection, gamma, mean, b, chosen))
        skewness[chosen] = third[chosen] / variance[chosen] ** 1.5
        kurtosis[chosen] = fourth[chosen] / variance[chosen] ** 2
    return LogisticScores(score, variance, skewness, kurtosis)


def _solve(H: Array, g: Array) -> Array:
    """Return H⁻¹g of every label, shape (q, c); least squares where H is singular."""
    values, vectors = np.linalg.eigh(H)
    kept = values > 1e-12 * np.maximum(values[:, -1:], np.finfo(float).tiny)
    inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
    result: Array = np.einsum("qab,qb,qcb,qc->qa", vectors, inverse, vectors, g)
    return result
