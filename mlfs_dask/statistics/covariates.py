"""Scores adjusted for covariates C: sums of X and Y less what C tells of them, from C'X, C'Y and C'C.

A label with unknown entries has covariates of its own, those of the rows where it is known: C'X and C'C over these are
the sums over all rows less those over the rows in which it is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.linear import dense_tiles, group_values, row_groups, tile_bytes
from mlfs_dask.blocks.pair_scores import Sums
from mlfs_dask.blocks.products import positives_block
from mlfs_dask.blocks.unknown import no_labels, spread_rows, unknown_marks
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.errors import DataError, parameter
from mlfs_dask.rows.contract import Block, Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.statistics.moments import CONSTANT, first_values
from mlfs_dask.statistics.products import AdjustedMoments, LabelMoments, drop_rounding
from mlfs_dask.typing import Array, Matrix

#: Share of the length of a covariate, or of a feature's or a label's sum of squares, up to which what the others leave
#: of it is rounding: sums have 16 digits, and a covariate that is nearly a combination of others costs as many as are
#: the same.
COLLINEAR = 2.0**-30

#: Share of rows in which labels are unknown from which products with these rows are dense: BLAS then outruns the
#: entries that are left out.
DENSE_FROM = 1 / 16


class _Sums(NamedTuple):
    """Names for the arrays of a state. P is [1, C − shift]."""

    c_shift: Array  # (c,)
    x_shift: Array  # (d,)
    PP: Array  # (1 + c, 1 + c)
    PX: Array  # (1 + c, d): of x − shift
    PY: Array  # (1 + c, q): of the rows that have the label
    # Over the rows in which each of u labels is unknown.
    unknown_PP: Array  # (u, 1 + c, 1 + c)
    unknown_PX: Array  # (u, 1 + c, d)


@dataclass(frozen=True)
class CovariateProducts(Statistic):
    """Statistic: `Adjustment` for the covariates of the rows.

    Covariates and dense X are summed relative to the first row that a state meets, as in `LabelProducts`.

    Parameters
    ----------
    n_covariates, n_features, n_labels : int
    identity : plain values
        Equal for equal covariates of the same rows.
    weighted : bool
        Whether rows have weights.
    unknown : int64 array, shape (u,), optional
        Labels that may have unknown entries, rising.

    Notes
    -----
    A state has c (c + d + q) numbers, and u c (c + d) more. A block costs c multiplications for each stored value of X,
    and in the rows in which labels are unknown as many more for each of these.
    """

    n_covariates: int
    n_features: int
    n_labels: int
    identity: Any
    weighted: bool
    unknown: NDArray[np.int64] = field(default_factory=no_labels)

    kind = "covariates"
    state_names = _Sums._fields

    @property
    def parameters(self) -> dict[str, Any]:
        unknown = {"unknown": self.unknown} if len(self.unknown) else {}
        return {"covariates": self.identity, "weighted": self.weighted, **unknown}

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        c, d, q, u = self.n_covariates, self.n_features, self.n_labels, len(self.unknown)
        return (c,), (d,), (1 + c, 1 + c), (1 + c, d), (1 + c, q), (u, 1 + c, 1 + c), (u, 1 + c, d)

    def scratch_bytes(self, profile: Profile) -> int:
        c, d, q = self.n_covariates, self.n_features, self.n_labels
        labels = min(profile.label_nonzeros, profile.block_rows * max(q, 1))
        rows = 16 * profile.block_rows * (1 + c) + 8 * labels
        products = rows + 16 * (1 + c) * (d + q) + (8 * profile.block_values if profile.sparse else tile_bytes())
        if not len(self.unknown):
            return products
        # Entries -1; once for each covariate those of a group of rows; a dense part of these; products, before they are
        # added, the sparse ones twice.
        group = min(labels, 2 * gates.GROUP_ROWS * profile.labels_of_row)
        spread = 30 * labels + 40 * group * (1 + c) + 8 * max(gates.TILE_VALUES, len(self.unknown) * (1 + c))
        of_unknown = 8 * len(self.unknown) * (1 + c) * (1 + c + self.n_features)
        return products + spread + group_values(profile) * 28 * profile.sparse + 3 * of_unknown

    def finishing_bytes(self, profile: Profile) -> int:
        return 2 * self.state_bytes

    def add(self, state: State, block: Block) -> None:
        s = _Sums(*state)
        X, C = block.X, block.covariates
        assert C is not None
        if X.shape[0] == 0:
            return
        if s.PP[0, 0] == 0:
            # Values of one byte keep their digits, and a shift would cost a fifth of the time.
            s.c_shift[:], s.x_shift[:] = C[0], first_values(X) * (X.dtype.itemsize > 1)
        P = np.empty((len(C), 1 + self.n_covariates))
        P[:, 0] = 1.0
        np.subtract(C, s.c_shift, out=P[:, 1:])
        weighted = P if block.weights is None or not self.weighted else P * block.weights[:, np.newaxis]
        np.add(s.PP, weighted.T @ P, out=s.PP)
        np.add(s.PY, (positives_block(block.Y).T @ weighted).T, out=s.PY)
        if len(self.unknown):
            self._add_unknown(s, block, P, weighted)
        with np.errstate(over="ignore", invalid="ignore"):  # such features are refused by their moments
            if isinstance(X, np.ndarray):
                for part, tile in dense_tiles(X, s.x_shift if s.x_shift.any() else None):
                    np.add(s.PX, weighted[part].T @ tile, out=s.PX)
                return
            np.add(s.PX, (X.T @ weighted).T, out=s.PX)
            if s.x_shift.any():  # Dask arrays may mix sparse blocks with dense ones
                np.subtract(s.PX, np.outer(weighted.sum(axis=0), s.x_shift), out=s.PX)

    def _add_unknown(self, s: _Sums, block: Block, P: Array, weighted: Array) -> None:
        """Add the sums over the rows in which labels are unknown."""
        X = block.X
        marks = unknown_marks(block.Y, self.unknown)
        if not marks.nnz:
            return
        u, c1, d = s.unknown_PX.shape
        PX, PP = s.unknown_PX.reshape(u * c1, d), np.zeros((u * c1, c1))
        dense = marks.nnz >= DENSE_FROM * marks.shape[0] * u
        for rows in row_groups(len(P)):
            S = spread_rows(marks[rows], weighted[rows])  # (rows, u (1 + c))
            PP += S.T @ P[rows]
            with np.errstate(over="ignore", invalid="ignore"):
                self._add_products(PX, S, X[rows], s.x_shift, dense=dense)
        with np.errstate(over="ignore", invalid="ignore"):
            if not isinstance(X, np.ndarray) and s.x_shift.any():
                PX -= np.outer(PP[:, 0], s.x_shift)
        s.unknown_PP[...] += PP.reshape(u, c1, c1)

    def _add_products(self, PX: Array, S: sp.csr_array, X: Matrix, shift: Array, *, dense: bool) -> None:
        """Add S'(X − shift) of some rows, of sparse X without the shift."""
        if isinstance(X, np.ndarray):
            for part, tile in dense_tiles(X, shift if shift.any() else None):
                rows = S[part].toarray() if dense else S[part]
                PX += rows.T @ tile
            return
        if not dense:
            PX += (S.T @ X).toarray()
            return
        step = max(1, gates.TILE_VALUES // S.shape[1])
        for low in range(0, X.shape[0], step):
            PX += (X[low : low + step].T @ S[low : low + step].toarray()).T

    def merge(self, into: State, other: State) -> None:
        a, b = _Sums(*into), _Sums(*other)
        if b.PP[0, 0] == 0:
            return
        if a.PP[0, 0] == 0:
            a.c_shift[:], a.x_shift[:] = b.c_shift, b.x_shift
        # [1, C − a] = [1, C − b] M
        M = np.eye(1 + self.n_covariates)
        M[0, 1:] = b.c_shift - a.c_shift
        PP = M.T @ b.PP @ M
        np.add(a.PP, PP, out=a.PP)
        np.add(a.PY, M.T @ b.PY, out=a.PY)
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(a.PX, M.T @ b.PX + np.outer(PP[:, 0], b.x_shift - a.x_shift), out=a.PX)
            for label in range(len(self.unknown)):
                PP = M.T @ b.unknown_PP[label] @ M
                np.add(a.unknown_PP[label], PP, out=a.unknown_PP[label])
                PX = M.T @ b.unknown_PX[label] + np.outer(PP[:, 0], b.x_shift - a.x_shift)
                np.add(a.unknown_PX[label], PX, out=a.unknown_PX[label])

    def finalize(self, state: State) -> Adjustment:
        s = _Sums(*state)
        squares = np.diag(s.PP)[1:]
        whole = _project(s.PP, s.PX, s.PY, squares, s.c_shift)
        if not len(self.unknown):
            return Adjustment(whole)
        known = []
        for label, unknown_PP, unknown_PX in zip(self.unknown, s.unknown_PP, s.unknown_PX, strict=True):
            PY = s.PY[:, label : label + 1]
            known.append(_project(s.PP - unknown_PP, s.PX - unknown_PX, PY, squares, s.c_shift))
        of_unknown = _project(s.PP, np.empty((len(s.PP), 0)), s.unknown_PP[:, :, 0].T, squares, s.c_shift).QY
        return Adjustment(whole, self.unknown, of_unknown, tuple(known))


class Projection(NamedTuple):
    """Products of X and Y with Q = (C − mean) Z, an orthonormal basis of the centred covariates of some rows.

    Attributes
    ----------
    QX : float64 array, shape (rank, d)
        Q'(X − mean).
    QY : float64 array, shape (rank, q)
    Z : float64 array, shape (c, rank)
    mean : float64 array, shape (c,)
        Of the covariates.
    """

    QX: Array
    QY: Array
    Z: Array
    mean: Array

    def basis(self, C: Array) -> Array:
        """Return Q for covariates of rows, shape (rows, rank)."""
        return (C - self.mean) @ self.Z


def _project(PP: Array, PX: Array, PY: Array, squares: Array, shift: Array) -> Projection:
    """Return the projection from sums; `squares`, (c,), are those of which C'C is what is left."""
    n, sums = PP[0, 0] or 1.0, PP[1:, :1]
    with np.errstate(over="ignore", invalid="ignore"):
        CX, CY = PX[1:] - sums * (PX[0] / n), PY[1:] - sums * (PY[0] / n)
    Z = orthonormal(PP[1:, 1:] - sums * (PP[0, 1:] / n), squares)
    return Projection(Z.T @ CX, Z.T @ CY, Z, shift + sums[:, 0] / n)


def orthonormal(CC: Array, squares: Array) -> Array:
    """Return Z such that centred C Z has orthonormal columns, shape (c, rank).

    Parameters
    ----------
    CC : float64 array, shape (c, c)
        C'C of centred C.
    squares : float64 array, shape (c,)
        Sums of squares of which those of CC are what centring leaves.

    Examples
    --------
    >>> orthonormal(np.array([[4.0, 8.0], [8.0, 16.0]]), np.array([4.0, 16.0])).shape
    (2, 1)
    """
    lengths = np.diag(CC)
    varies = lengths > CONSTANT * squares
    scale = np.divide(1.0, np.sqrt(np.abs(lengths)), out=np.zeros_like(lengths), where=varies)
    values, vectors = np.linalg.eigh(CC * np.outer(scale, scale))
    kept = values > COLLINEAR
    Z: Array = scale[:, np.newaxis] * vectors[:, kept] / np.sqrt(values[kept])
    return Z


@dataclass(frozen=True)
class Adjustment:
    """Correction of sums for covariates.

    Attributes
    ----------
    whole : Projection
        Over all rows.
    labels : int64 array, shape (u,)
        Labels that have unknown entries.
    unknown_QY : float64 array, shape (rank, u), or None
        Q' of the rows in which each of these is unknown.
    known : tuple of Projection
        Over the rows where each of these is known, with a basis of their own.
    """

    whole: Projection
    labels: NDArray[np.int64] = field(default_factory=no_labels)
    unknown_QY: Array | None = None
    known: tuple[Projection, ...] = ()

    @property
    def rank(self) -> int:
        """Degrees of freedom that are lost."""
        return len(self.whole.QX)

    def of_features(self, columns: NDArray[np.intp]) -> Adjustment:
        """Return the part of some features."""
        return Adjustment(self.whole._replace(QX=self.whole.QX[:, columns]))

    def of_known(self, place: int | None) -> Adjustment:
        """Return statistics over the rows where a label that may be unknown is known; None: over all rows."""
        return self if place is None else Adjustment(self.known[place])

    def gram(self, gram: Array, m2: Array | None = None) -> Array:
        """Return X'X of the residuals of X, in the place of centred X'X.

        Parameters
        ----------
        gram : float64 array, shape (d, d)
        m2 : float64 array, shape (d,), optional
            Sums of squares of the residuals, 0 of those that are rounding.
        """
        squares = np.diag(gram).copy()
        m2 = _left(squares, self.whole.QX) if m2 is None else m2
        gram -= self.whole.QX.T @ self.whole.QX
        gram[m2 == 0] = 0.0
        gram[:, m2 == 0] = 0.0
        np.fill_diagonal(gram, m2)
        return gram

    def moments(self, sums: LabelMoments) -> AdjustedMoments:
        """Return sums of the residuals of X and Y, to which their means are added.

        Raises
        ------
        DataError
            Some labels are unknown, and the sums are not those of their known rows.
        """
        if sums.unknown.any() and sums.known is None:
            raise DataError(
                "labels are unknown (-1), which this method does not take together with covariates",
                cure=f"drop those rows or labels, or choose {parameter('unknown', 'negative')} if -1 means negative",
            )
        if sums.n - 2 < self.rank:
            raise DataError(
                f"covariates and strata take {self.rank:,} degrees of freedom, and {sums.n:,.0f} rows leave none to "
                "test or rank by",
                cure=f"give fewer ({parameter('covariates')}, {parameter('strata')}), or more rows",
            )
        share, QY = sums.positives / (sums.n or 1), self._of_labels(sums)
        m2, label_m2 = _left(sums.m2, self.whole.QX), _left(sums.label_m2, QY)
        with np.errstate(over="ignore", invalid="ignore"):
            products = sums.products - QY.T @ self.whole.QX
            drop_rounding(products.T, np.sqrt(sums.label_squares * sums.m2[:, np.newaxis]))
        products[label_m2 == 0] = 0.0
        products[:, m2 == 0] = 0.0
        pairs = sums.pairs - QY.T @ QY
        np.fill_diagonal(pairs, label_m2 + sums.positives * share)
        of_residuals = sums.n, sums.mean, m2, products, sums.positives, sums.unknown, pairs
        known = self._known(sums) if self.known else None
        return AdjustedMoments(*of_residuals, residual_m2=label_m2, adjustment=self, known_terms=known)

    def _of_labels(self, sums: LabelMoments) -> Array:
        """Return Q'Y of the labels as the sums have them: unknown entries are at the mean of the label's known ones."""
        if self.unknown_QY is None:
            return self.whole.QY
        QY = self.whole.QY.copy()
        QY[:, self.labels] += self.unknown_QY * (sums.positives / (sums.n or 1))[self.labels]
        return QY

    def _known(self, sums: LabelMoments) -> Sums:
        """Return terms of each label over the rows where it is known."""
        terms = sums.terms
        q = len(terms.positives)
        m2 = np.empty((q, sums.products.shape[1]))
        m2[:] = _left(sums.m2, self.whole.QX)
        label_m2 = sums.label_m2
        residual = _left(label_m2, self.whole.QY)
        with np.errstate(over="ignore", invalid="ignore"):
            products = sums.products - self.whole.QY.T @ self.whole.QX
        rank = np.full((q, 1), self.rank)
        for label, (QX, Qy, _, _) in zip(self.labels, self.known, strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                products[label] = sums.products[label] - Qy[:, 0] @ QX
            m2[label] = _left(terms.m2[label], QX)
            residual[label] = _left(label_m2[label : label + 1], Qy)[0]
            rank[label] = len(QX)
        drop_rounding(products, np.sqrt(sums.label_squares[:, np.newaxis] * terms.m2))
        products[(residual[:, np.newaxis] == 0) | (m2 == 0)] = 0.0
        return Sums(products, m2, terms.positives, terms.n, residual[:, np.newaxis], rank)


def _left(squares: Array, Q: Array) -> Array:
    """Return sums of squares of residuals, 0 where that is rounding."""
    with np.errstate(over="ignore", invalid="ignore"):
        left = squares - np.einsum("cd,cd->d", Q, Q)
        return np.where(left <= COLLINEAR * squares, 0.0, left)


def covariate_products(source: Profile | RowSource, *, known_entries: bool = True) -> CovariateProducts | None:
    """Return the statistic for data whose rows have covariates; None for others.

    Parameters
    ----------
    source : Profile or RowSource
    known_entries : bool
        Whether labels with unknown entries have covariates of the rows where they are known.
    """
    profile = profile_of(source)
    if not profile.covariates:
        return None
    covariates = None if isinstance(source, Profile) else source.covariates
    identity = None if covariates is None else covariates.identity
    unknown = unknown_labels(source if known_entries else profile)
    return CovariateProducts(
        profile.covariates, profile.d, profile.q, identity, profile.weight is not None, unknown=unknown
    )


def adjusted(results: dict[str, Any], adjustment: Adjustment) -> dict[str, Any]:
    """Return results of `LabelProducts` and `Gram`, by their names, as those of the residuals of X and Y.

    Raises
    ------
    DataError
        Some labels are unknown, and the sums are not those of their known rows.
    """
    results = dict(results)
    sums = results["sums"] = adjustment.moments(results["sums"])
    if "gram" in results:
        results["gram"] = adjustment.gram(results["gram"], sums.m2)
    return results
