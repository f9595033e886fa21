"""Sums over the clusters of rows: of products of residuals, for variances that allow for clusters, and of the rows.

Rows of one donor, patient or site are alike, and their sum varies more than that of as many independent rows. The sum
over a cluster is one observation (Liang & Zeger 1986, "Longitudinal data analysis using generalized linear models",
Biometrika 73, 13-22, doi:10.1093/biomet/73.1.13).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.pair_tests import ClusterSums
from mlfs_dask.blocks.products import label_products_block, positives_block
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.rows.covariates import ClusterSizes
from mlfs_dask.statistics.covariates import Adjustment, Projection
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@dataclass(frozen=True)
class _Fitted:
    """Regression on the covariates, of the labels with the same known rows.

    Attributes
    ----------
    labels : slice or int64 array, shape (p,)
    unknown : bool
        True for one label that may be unknown in some rows.
    mean_x : float64 array, shape (d,)
    mean_y : float64 array, shape (p,)
    projection : Projection or None
        None without covariates.
    """

    labels: Any
    unknown: bool
    mean_x: Array
    mean_y: Array
    projection: Projection | None

    def residuals(self, Y: Any, covariates: Array | None) -> tuple[Array, Array]:
        """Return a basis of the covariates, shape (rows, rank), and residuals of labels, shape (rows, p)."""
        values = positives_block(Y)
        y = (values if isinstance(values, np.ndarray) else values.toarray()) - self.mean_y
        if self.projection is None:
            return np.empty((len(y), 0)), y
        assert covariates is not None
        Q = self.projection.basis(covariates)
        return Q, y - Q @ self.projection.QY


@dataclass(frozen=True)
class ClusterScores(Statistic):
    """Statistic: `ClusterSums` of all labels and features.

    Parameters
    ----------
    n_features, n_labels : int
    sizes : ClusterSizes
    numeric : bool
        True for numeric targets, whose slope on the feature has an error that takes the scatter of the feature.
    fitted : tuple of _Fitted
        Empty for a plan.

    Notes
    -----
    A state has Σ u² and Σ u R, each of shape (q, d), and u of the clusters of which some rows are still to come: at
    most two times `sizes.overlap`, hence two of rows that are sorted by cluster, and at most all clusters of rows in
    any order. A cluster costs q d operations beside those of its rows.
    """

    n_features: int
    n_labels: int
    sizes: ClusterSizes
    numeric: bool = False
    fitted: tuple[_Fitted, ...] = field(default=(), repr=False)

    @property
    def _width(self) -> int:
        """Columns of R."""
        return self.n_features if self.numeric else 1

    @property
    def state_bytes(self) -> int:
        waiting = min(2 * self.sizes.overlap, self.sizes.n_clusters)
        return 8 * self.n_labels * ((self.n_features + self._width) * (1 + waiting) + self.n_features + 1)

    @property
    def result_bytes(self) -> int:
        return 8 * self.n_labels * (2 * self.n_features + self._width + 1)

    def scratch_bytes(self, profile: Profile) -> int:
        q, d = self.n_labels, self.n_features
        rows = 2 * profile.block_bytes + profile.block_rows * (24 * q + 24 * profile.covariates + 40)
        dense = 0 if profile.sparse else 8 * profile.block_rows * d
        tile = 16 * min(profile.block_rows * d, max(gates.TILE_VALUES, profile.block_rows))
        return rows + dense + tile + 40 * q * d + 16 * d * (1 + profile.covariates)

    def finishing_bytes(self, profile: Profile) -> int:
        return 0

    def zero(self) -> State:
        shape = self.n_labels, self.n_features
        sums = np.zeros(shape), np.zeros(shape), np.zeros((shape[0], self._width)), np.zeros((shape[0], 1), np.int64)
        return {}, *sums

    def add(self, state: State, block: Block) -> None:
        codes = block.clusters
        assert codes is not None
        alone = self.sizes.rows[codes] == 1
        if alone.any():
            rows = np.flatnonzero(alone)
            self._add_single_rows(state, block.select_rows(rows) if len(rows) < len(codes) else block)
        order = np.argsort(codes, kind="stable")
        order = order[~alone[order]]
        for rows in np.split(order, 1 + np.flatnonzero(np.diff(codes[order]))) if len(order) else ():
            part = block if len(rows) == len(codes) else block.select_rows(np.sort(rows))
            self._add_cluster(state, int(codes[rows[0]]), len(rows), *self._scores(part))

    def _parts(self, block: Block) -> Any:
        """Yield, of labels known in the same rows, these rows: labels, X, weights, basis, residuals and regression."""
        for fitted in self.fitted:
            Y, X, weights, covariates = block.Y, block.X, block.weights, block.covariates
            if not isinstance(fitted.labels, slice):
                Y = Y[:, fitted.labels]
            if fitted.unknown:
                known = np.flatnonzero(~np.isnan(Y[:, 0]) if isinstance(Y, np.ndarray) else Y.toarray()[:, 0] >= 0)
                Y, X = Y[known], X[known]
                weights, covariates = (None if a is None else a[known] for a in (weights, covariates))
            Q, residuals = fitted.residuals(Y, covariates)
            yield fitted, X, weights, Q, residuals

    def _scores(self, block: Block) -> tuple[Array, Array]:
        """Return u, shape (q, d), and R, shape (q, 1), of the rows of one cluster; R of features has the shape of u."""
        u, R = np.empty((self.n_labels, self.n_features)), np.empty((self.n_labels, self._width))
        for fitted, X, weights, Q, y in self._parts(block):
            weighted = y if weights is None else y * weights[:, np.newaxis]
            scores = label_products_block(X, weighted, fitted.mean_x)
            if fitted.projection is not None:
                scores -= (weighted.T @ Q) @ fitted.projection.QX
            own = np.sum(weighted * y, axis=0)[:, np.newaxis]
            if self.numeric:
                x = np.asarray(X.toarray() if sp.issparse(X) else X) - fitted.mean_x
                if fitted.projection is not None:
                    x -= Q @ fitted.projection.QX
                own = (np.ones(len(x)) if weights is None else weights) @ x**2
            u[fitted.labels], R[fitted.labels] = scores, own
        return u, R

    def _add_single_rows(self, state: State, block: Block) -> None:
        """Add clusters of one row each, by products of squares."""
        _, squares, cross, scatter, clusters = state
        for fitted, X, weights, Q, y in self._parts(block):
            wy = y if weights is None else y * weights[:, np.newaxis]
            w = np.ones((len(y), 1)) if weights is None else weights[:, np.newaxis]
            if not self.numeric:
                scatter[fitted.labels] += np.sum((wy * y) ** 2, axis=0)[:, np.newaxis]
            clusters[fitted.labels] += len(y)
            step = max(1, gates.TILE_VALUES // max(len(y), 1))
            for start in range(0, self.n_features, step):
                tile = slice(start, min(start + step, self.n_features))
                x = np.asarray(X[:, tile].toarray() if sp.issparse(X) else X[:, tile]) - fitted.mean_x[tile]
                if fitted.projection is not None:
                    x -= Q @ fitted.projection.QX[:, tile]
                squares[fitted.labels, tile] += (wy**2).T @ x**2
                cross[fitted.labels, tile] += (wy * w).T @ x**3 if self.numeric else (wy**2 * y).T @ x
                if self.numeric:
                    scatter[fitted.labels, tile] += (w**2).T @ x**4

    def _add_cluster(self, state: State, code: int, rows: int, u: Array, R: Array) -> None:
        """Add rows of a cluster; sum its squares once all of its rows are there."""
        waiting, squares, cross, scatter, clusters = state
        if code in waiting:
            earlier, first_u, first_R = waiting.pop(code)
            rows, u, R = rows + earlier, u + first_u, R + first_R
        if rows < self.sizes.rows[code]:
            waiting[code] = rows, u, R
            return
        cross += u * R
        scatter += R * R
        clusters += (R > 0).any(axis=1, keepdims=True)
        squares += u * u

    def merge(self, into: State, other: State) -> None:
        for mine, theirs in zip(into[1:], other[1:], strict=True):
            np.add(mine, theirs, out=mine)
        for code, (rows, u, R) in other[0].items():
            self._add_cluster(into, code, rows, u, R)

    def finalize(self, state: State) -> ClusterSums:
        waiting, *sums = state
        assert not waiting, "rows of clusters are missing"
        return ClusterSums(*sums)


def cluster_scores(
    source: RowSource | Profile, moments: LabelMoments | None = None, adjustment: Adjustment | None = None
) -> ClusterScores:
    """Return the statistic for the means and covariates that an earlier pass found; without them for a plan.

    Parameters
    ----------
    source : RowSource or Profile
        A profile stands for rows in sorted clusters of two.
    moments : LabelMoments, optional
        Not adjusted for covariates.
    adjustment : Adjustment, optional
    """
    profile, unknown = profile_of(source), unknown_labels(source)
    sizes = None if isinstance(source, Profile) else source.cluster_sizes
    if sizes is None:
        sizes = ClusterSizes(np.full(profile.n // 2, 2), 1)
    if moments is None:
        return ClusterScores(profile.d, profile.q, sizes, profile.numeric)
    n = moments.n or 1
    shares, fitted = moments.positives / n, []
    if moments.known is not None:
        shares = moments.known.positives / np.maximum(moments.known.n, 1)
    complete: Any = np.setdiff1d(np.arange(profile.q), unknown)
    if len(complete):
        complete = slice(None) if len(complete) == profile.q else complete
        whole = None if adjustment is None else adjustment.whole
        if whole is not None:
            whole = whole._replace(QY=whole.QY[:, complete])
        fitted.append(_Fitted(complete, False, moments.mean, shares[complete], whole))
    for index, label in enumerate(unknown.tolist()):
        assert moments.known is not None
        own = None if adjustment is None else adjustment.known[index]
        fitted.append(_Fitted(np.array([label]), True, moments.known.mean[index], shares[[label]], own))
    return ClusterScores(profile.d, profile.q, sizes, profile.numeric, tuple(fitted))


class ClusterRows(NamedTuple):
    """Sums of the rows of each cluster.

    Attributes
    ----------
    weight : float64 array, shape (G,)
        Number of rows, or the sum of their weights.
    features : float64 array, shape (G, d)
    known, positives : float64 array, shape (G, q)
        Rows in which each label is known, and rows with it; of numeric targets their sum.
    """

    weight: Array
    features: Array
    known: Array
    positives: Array


@dataclass(frozen=True)
class ClusterTotals(Statistic):
    """Statistic: `ClusterRows`.

    Parameters
    ----------
    n_clusters, n_features, n_labels : int
    """

    n_clusters: int
    n_features: int
    n_labels: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        G = self.n_clusters
        return (G,), (G, self.n_features), (G, self.n_labels), (G, self.n_labels)

    def scratch_bytes(self, profile: Profile) -> int:
        own = min(profile.block_rows, self.n_clusters)
        rows = profile.block_bytes if profile.sparse else 8 * profile.block_rows * profile.d  # in float64
        labels = profile.block_rows * (40 + 24 * self.n_labels)
        return rows + labels + 2 * 8 * own * (self.n_features + 2 * self.n_labels)

    def finishing_bytes(self, profile: Profile) -> int:
        return 0

    def add(self, state: State, block: Block) -> None:
        assert block.clusters is not None
        codes, own = np.unique(block.clusters, return_inverse=True)
        weights = np.ones(len(own)) if block.weights is None else block.weights
        S = sp.csr_array((weights, (own, np.arange(len(own)))), shape=(len(codes), len(own)))
        values, Y = positives_block(block.Y), block.Y
        known = ~np.isnan(Y) if isinstance(Y, np.ndarray) else Y.toarray() >= 0
        for total, matrix in zip(state, (np.ones(len(own)), block.X, known, values), strict=True):
            sums = S @ matrix
            total[codes] += sums.toarray() if sp.issparse(sums) else sums

    def finalize(self, state: State) -> ClusterRows:
        return ClusterRows(*state)


def cluster_totals(source: RowSource | Profile) -> ClusterTotals:
    """Return the statistic of the clusters of a source; a profile stands for rows in clusters of two."""
    profile = profile_of(source)
    column = None if isinstance(source, Profile) else source.clusters
    G = -(-profile.n // 2) if column is None else len(column.categories or ())
    return ClusterTotals(G, profile.d, profile.q)
