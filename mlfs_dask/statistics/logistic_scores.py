"""Score tests of logistic regressions with covariates: null models, scores and their cumulants, in passes over blocks.

For every label the null model log p/(1 − p) = Pγ, P = [1, covariates], is fitted by Newton steps, each a pass over
labels and covariates. The score of a feature is x'(y − p), with the variance x̃'Wx̃, W = p(1 − p) and x̃ = x − P b,
b = (P'WP)⁻¹P'Wx (Rao 1948). Labels are independent draws, so the third and fourth cumulants of the score are
Σ x̃³ W (1 − 2p) and Σ x̃⁴ W (1 − 6W), for a tail that holds for rare labels (Dey et al. 2017, "A fast and accurate
algorithm to test for binary phenotypes and its application to PheWAS", American Journal of Human Genetics 101, 37-49,
doi:10.1016/j.ajhg.2017.05.014).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from scipy import special

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.products import positives_block
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.covariates import Projection
from mlfs_dask.typing import Array


@dataclass(frozen=True)
class NullModels(Statistic):
    """Statistic: loglikelihood (q,), gradient (q, c) and P'WP (q, c, c) of the null models at `gamma`.

    Parameters
    ----------
    n_features, n_labels : int
    n_columns : int
        Columns of P.
    projection : Projection or None
        Basis of the covariates; None for a plan.
    gamma : float64 array, shape (q, c)
    """

    n_features: int
    n_labels: int
    n_columns: int
    projection: Projection | None = None
    gamma: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        q, c = self.n_labels, self.n_columns
        return (q,), (q, c), (q, c, c)

    def scratch_bytes(self, profile: Profile) -> int:
        return 8 * profile.block_rows * (8 * self.n_labels + self.n_columns * (2 + self.n_columns))

    def finishing_bytes(self, profile: Profile) -> int:
        return 0

    def of_rows(self, block: Block) -> tuple[Array, Array, Array, Array]:
        """Return P, weights of known entries, probabilities and residuals times weights, each with a row for a row."""
        assert self.projection is not None
        assert block.covariates is not None
        Q = self.projection.basis(block.covariates)
        P = np.column_stack([np.ones(len(Q)), Q])
        weights = (block.Y.toarray() >= 0).astype(np.float64)
        if block.weights is not None:
            weights *= block.weights[:, np.newaxis]
        p = special.expit(P @ self.gamma.T)
        return P, weights, p, weights * (positives_block(block.Y).toarray() - p)

    def add(self, state: State, block: Block) -> None:
        P, weights, p, residuals = self.of_rows(block)
        y = positives_block(block.Y).toarray()
        likelihood, *derivatives = state
        likelihood += np.sum(weights * (special.xlogy(y, p) + special.xlog1py(1 - y, -p)), axis=0)
        _add_derivatives(derivatives, P, weights * p * (1 - p), residuals)

    def finalize(self, state: State) -> Any:
        return tuple(state)


@dataclass(frozen=True)
class ModelScores(NullModels):
    """Statistic: score (q, d), Σ x²W (q, d), P'WX (q, c, d), gradient and P'WP of the null models.

    Parameters
    ----------
    mean : float64 array, shape (d,), optional
        Means of features, by which dense X is shifted.
    """

    mean: Array | None = None

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        q, c, d = self.n_labels, self.n_columns, self.n_features
        return (q, d), (q, d), (q, c, d), (q, c), (q, c, c)

    def scratch_bytes(self, profile: Profile) -> int:
        dense = 2 * profile.block_bytes if profile.sparse else 16 * profile.block_rows * profile.d
        return super().scratch_bytes(profile) + dense + 16 * self.n_labels * self.n_features

    def add(self, state: State, block: Block) -> None:
        P, weights, p, residuals = self.of_rows(block)
        score, squares, crossed, *derivatives = state
        W, X = weights * p * (1 - p), block.X
        if self.mean is not None and not sp.issparse(X):
            X = X - self.mean
        score += _products(X, residuals)
        squares += _products(X.power(2) if sp.issparse(X) else X * X, W)
        for column in range(P.shape[1]):
            crossed[:, column] += _products(X, W * P[:, [column]])
        _add_derivatives(derivatives, P, W, residuals)


@dataclass(frozen=True)
class ScoreCumulants(NullModels):
    """Statistic: third and fourth cumulants of the scores of chosen pairs, each of shape (q, d).

    Parameters
    ----------
    mean : float64 array, shape (d,), optional
    b : float64 array, shape (q, c, d)
    chosen : bool array, shape (q, d)
    """

    mean: Array | None = None
    b: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))
    chosen: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), bool))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.n_labels, self.n_features),) * 2

    def scratch_bytes(self, profile: Profile) -> int:
        tile = 40 * max(gates.TILE_VALUES, profile.block_rows)
        return super().scratch_bytes(profile) + tile + 2 * profile.block_bytes

    def add(self, state: State, block: Block) -> None:
        P, weights, p, _ = self.of_rows(block)
        third, fourth = state
        X = block.X.tocsc() if sp.issparse(block.X) else block.X
        step = max(1, gates.TILE_VALUES // max(len(P), 1))
        for label in np.flatnonzero(self.chosen.any(axis=1)):
            W = p[:, label] * (1 - p[:, label])
            of_third = weights[:, label] * W * (1 - 2 * p[:, label])
            of_fourth = weights[:, label] * W * (1 - 6 * W)
            features = np.flatnonzero(self.chosen[label])
            for start in range(0, len(features), step):
                tile = features[start : start + step]
                x = X[:, tile].toarray() if sp.issparse(X) else X[:, tile]
                x = x - P @ self.b[label][:, tile]
                if self.mean is not None and not sp.issparse(X):
                    x -= self.mean[tile]
                powers = x * x * x
                third[label, tile] += of_third @ powers
                powers *= x
                fourth[label, tile] += of_fourth @ powers


def _add_derivatives(derivatives: State, P: Array, W: Array, residuals: Array) -> None:
    """Add to the gradient, (q, c), and P'WP, (q, c, c), of the null models."""
    gradient, hessian = derivatives
    gradient += residuals.T @ P
    products = (P[:, :, np.newaxis] * P[:, np.newaxis]).reshape(len(P), -1)
    hessian += (W.T @ products).reshape(hessian.shape)


def _products(X: Any, R: Array) -> Array:
    """Return R'X, shape (p, d), for dense R."""
    return np.asarray((X.T @ R).T if sp.issparse(X) else R.T @ X)
