"""One iteration of Access-MFS in one pass: sums over the predicted labels of all rows, which are not kept.

Given W, b, L_p and anchors [u_a, t_a], the predicted labels f of a row and its weights z_i of anchors are computed
alternately: z_i from the distances ½(‖f − u_a‖² + ‖x_iW − t_a‖²), and f from
f ((1 + θ)I + K_i + μL_p) = x_iW + b + K_i y_i + θU'z_i, where K_i marks the known labels. The alternation starts from
the f of θ = 0, so that nothing of a row is kept from one iteration to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors, weigh_scratch_bytes
from mlfs_dask.blocks.duplicate_labels import DuplicateLabels
from mlfs_dask.blocks.linear import group_scratch_bytes, grouped_block
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.row_loop import RowLoop
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Matrix

#: Alternations of a row's weights and its predicted labels.
TURNS = 3


class PredictedSums(NamedTuple):
    """Sums over all rows, F holding their predicted labels and Z their weights of anchors.

    Attributes
    ----------
    XF : float64 array, shape (d, q)
    ZX : float64 array, shape (m, d)
    ZF : float64 array, shape (m, q)
    ZY : float64 array, shape (m, q)
        Of known positives.
    ZZ : float64 array, shape (2, m, m)
        Z'Z of the rows of which nothing or less than half is known, and of the others.
    masses : float64 array, shape (2, m)
        Z'1 of the same rows; their sum is the diagonal of Λ.
    rows : float64 array, shape (2,)
        How many these are.
    known : float64 array, shape (2,)
        Known entries of them.
    FF : float64 array, shape (q, q)
    total : float64 array, shape (q,)
        1'F.
    terms : float64 array, shape (3,)
        ‖X W − F‖², ‖K∘(F − Y)‖² and ‖X W‖².
    """

    XF: Array
    ZX: Array
    ZF: Array
    ZY: Array
    ZZ: Array
    masses: Array
    rows: Array
    known: Array
    FF: Array
    total: Array
    terms: Array


@dataclass(frozen=True)
class RowPrediction:
    """The small variables from which the labels of a row are predicted.

    Attributes
    ----------
    W : float64 array, shape (d, q)
        For standardised rows.
    mean : float64 array, shape (q,)
        b, the mean of F.
    U, T : float64 array, shape (m, q)
        Values of the anchors: of F, and of X W. m may be 0.
    coupling : float64 array, shape (q, q)
        μL_p.
    theta : float
    neighbors : int
        Nearest anchors that a row belongs to.
    duplicates : DuplicateLabels
        q counts its groups.
    unlabelled_without_positive : bool
        Whether nothing is known of rows without a positive label.
    """

    W: Array
    mean: Array
    U: Array
    T: Array
    coupling: Array
    theta: float
    neighbors: int
    duplicates: DuplicateLabels
    unlabelled_without_positive: bool = False

    def labels(self, Y: sp.csr_array) -> tuple[Array, NDArray[np.bool_]]:
        """Return the known positives with the lengths of their groups, and which labels are known, both of shape (rows,
        q).
        """
        dense = Y[:, self.duplicates.first].toarray() if not self.duplicates.distinct else Y.toarray()
        known = dense >= 0
        if self.unlabelled_without_positive:
            positive = np.zeros(Y.shape[0], dtype=bool)
            positive[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))[Y.data > 0]] = True
            known &= positive[:, np.newaxis]
        return np.maximum(dense, 0) * np.sqrt(self.duplicates.sizes), known

    def predict(self, XW: Array, Y: Array, known: NDArray[np.bool_]) -> tuple[Array, sp.csr_array | None]:
        """Return F of some rows, shape (rows, q), and Z, shape (rows, m), or None without anchors.

        Parameters
        ----------
        XW : float64 array, shape (rows, q)
        Y : float64 array, shape (rows, q)
        known : bool array, shape (rows, q)
        """
        target = XW + self.mean
        target += known * Y
        F = self._solve(target, known, 1.0)
        if not len(self.U):
            return F, None
        ones = np.ones(2 * F.shape[1])
        anchors = Anchors(np.concatenate([self.U, self.T], axis=1), None, ones, self.neighbors)
        Z = None
        for _ in range(TURNS):
            Z = anchors.weigh(np.concatenate([F, XW], axis=1))
            F = self._solve(target + Z @ (self.theta * self.U), known, 1.0 + self.theta)
        return F, Z

    def _solve(self, right: Array, known: NDArray[np.bool_], level: float) -> Array:
        """Return F of F(level·I + K + coupling) = right.

        By the inverse for rows of which nothing is known, or all, whichever is nearer: the system of a row differs from
        it in at most half of the diagonal.
        """
        q = len(self.coupling)
        mostly = 2 * known.sum(axis=1) > q
        F = np.empty_like(right)
        for rows, diagonal, differs, sign in ((~mostly, level, known, 1.0), (mostly, level + 1.0, ~known, -1.0)):
            if rows.any():
                inverse = np.linalg.inv(self.coupling + diagonal * np.eye(q))
                some = right[rows] @ inverse
                if differs[rows].any():
                    from mlfs_dask.blocks.predicted_rows_compiled import correct_rows

                    correct_rows(some, differs[rows], inverse, sign)
                F[rows] = some
        return F


@dataclass(frozen=True)
class PredictedRows(RowLoop):
    """Statistic: `PredictedSums`.

    Parameters
    ----------
    scaling : Scaling
    prediction : RowPrediction
    """

    scaling: Scaling
    prediction: RowPrediction

    compiled = True
    Sums = PredictedSums
    scaled = ("XF", "ZX")

    @property
    def W(self) -> Array:  # type: ignore[override]
        return self.prediction.W

    @property
    def _sizes(self) -> tuple[int, int, int]:
        d, q = self.prediction.W.shape
        return d, q, len(self.prediction.U)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        d, q, m = self._sizes
        return (d, q), (m, d), (m, q), (m, q), (2, m, m), (2, m), (2,), (2,), (q, q), (q,), (3,)

    def scratch_bytes(self, profile: Profile) -> int:
        d, q, m = self._sizes
        dense = replace(profile, sparse=False)
        points = weigh_scratch_bytes(dense, 2 * q, m, self.prediction.neighbors)
        # Scaled W, an inverse and the factor of a row; products with a block are matrices before they are added.
        own = 8 * (2 * d * q + 2 * m * m + 4 * q * q)
        return group_scratch_bytes(profile, 12 * q) + points + own

    def add_rows(self, sums: PredictedSums, X: Matrix, Y: sp.csr_array) -> None:
        labels, known, XW, F, Z = self._predict(X, Y)
        self.backward(X, F, sums.XF)
        mostly = 2 * known.sum(axis=1) >= known.shape[1]
        sums.rows[...] += [(~mostly).sum(), mostly.sum()]
        sums.known[...] += [known[~mostly].sum(), known[mostly].sum()]
        if Z is not None:
            grouped_block(X, Z, self.scaling.centre, sums.ZX)
            sums.ZF[...] += Z.T @ F
            sums.ZY[...] += Z.T @ (known * labels)
            for g, group in enumerate((~mostly, mostly)):
                some = Z[group]
                sums.ZZ[g] += some.T @ some
                sums.masses[g] += np.asarray(some.sum(axis=0)).ravel()
        sums.FF[...] += F.T @ F
        sums.total[...] += F.sum(axis=0)
        missed = known * (F - labels)
        sums.terms[...] += [np.square(XW - F).sum(), np.square(missed).sum(), np.square(XW).sum()]

    def _predict(
        self, X: Matrix, labels: sp.csr_array
    ) -> tuple[Array, NDArray[np.bool_], Array, Array, sp.csr_array | None]:
        """Return Y, which labels are known, X W, F and Z of some rows."""
        Y, known = self.prediction.labels(labels)
        XW = self.forward(X)
        F, Z = self.prediction.predict(XW, Y, known)
        return Y, known, XW, F, Z

    def labels_of(self, X: Matrix, Y: sp.csr_array) -> Array:
        return self.prediction.duplicates.expand(self._predict(X, Y)[3])


def predicted_sums(
    prediction: RowPrediction, sums: PredictedSums, gram: Array, XY: Array, YY: Array, positives: Array
) -> dict[str, Array]:
    """Return X'F, Z'F, F'F and 1'F of another prediction, Z being that of `sums`.

    F is linear: f_i = c_i A with c_i = x_iW + b + κy_i + θU'z_i and A = ((1 + θ + κ)I + μL_p)⁻¹, where κ is 1 for known
    rows and 0 for others. Both count as alike in X: their X'X and Z'X are shares of those of all rows. Exact where that
    is so, and rows are known whole.

    Parameters
    ----------
    prediction : RowPrediction
    sums : PredictedSums
    gram : float64 array, shape (d, d)
    XY : float64 array, shape (d, q)
        Of known positives, as are the others.
    YY : float64 array, shape (q, q)
    positives : float64 array, shape (q,)
    """
    W, b, U, theta = prediction.W, prediction.mean, prediction.U, prediction.theta
    q = len(b)
    GW, totals = gram @ W, {name: np.zeros_like(getattr(sums, name)) for name in ("XF", "ZF", "FF", "total")}
    ZXW, masses = sums.ZX @ W, sums.masses.sum(axis=0)
    for g in range(2):
        rows, share = float(sums.rows[g]), float(sums.rows[g] / sums.rows.sum())
        near = np.divide(sums.masses[g], masses, out=np.zeros_like(masses), where=masses > 0)[:, np.newaxis]
        A = np.linalg.inv(prediction.coupling + ((1.0 + theta if len(U) else 1.0) + g) * np.eye(q))
        XC = share * GW + g * XY + theta * (sums.ZX.T @ (near * U))
        ZC = near * ZXW + np.outer(sums.masses[g], b) + g * sums.ZY + theta * (sums.ZZ[g] @ U)
        total = rows * b + g * positives + theta * (sums.masses[g] @ U)
        CC = W.T @ XC + np.outer(b, total) + theta * (U.T @ ZC)
        if g:
            CC += XY.T @ W + np.outer(positives, b) + YY + theta * (sums.ZY.T @ U)
        for name, change in (("XF", XC @ A), ("ZF", ZC @ A), ("FF", A @ CC @ A), ("total", total @ A)):
            totals[name] += change
    return totals


def settle_anchors(prediction: RowPrediction, sums: PredictedSums) -> tuple[Array, Array]:
    """Return b and U that agree with the F which follows from them: b is its mean and U = Λ⁻¹Z'F, Z and W being fixed.

    F is linear in them: f_i = (c_i + b + θU'z_i) A with A = ((1 + θ + κ)I + μL_p)⁻¹, κ being 0 or 1. In the
    eigenvectors of L_p that makes a system of 1 + m equations for each of the q directions. Where rows are known in
    part κ is the known fraction of the entries of their group, and the solution is approximate.

    Parameters
    ----------
    prediction : RowPrediction
        By which the labels of `sums` were predicted.
    sums : PredictedSums

    Returns
    -------
    b : float64 array, shape (q,)
    U : float64 array, shape (m, q)
    """
    theta, U = prediction.theta, prediction.U
    m = len(U)
    sigma, E = np.linalg.eigh(prediction.coupling)
    level = 1.0 + theta if m else 1.0
    known = sums.known / np.maximum(sums.rows * len(sigma), 1.0)
    A = 1.0 / (level + known[:, np.newaxis] + np.maximum(sigma, 0.0))  # (2, q)
    masses = sums.masses.sum(axis=0)
    used = masses > 0
    before = np.concatenate([prediction.mean[np.newaxis], U]) @ E
    after = np.concatenate([sums.total[np.newaxis], sums.ZF]) @ E
    result = before.copy()
    rows = np.concatenate([[True], used])
    for j in range(len(sigma)):
        # The linear map from b and U to Σ f_i and Z'F.
        part = np.empty((m + 1, m + 1))
        part[0, 0] = A[:, j] @ sums.rows
        part[1:, 0] = A[:, j] @ sums.masses
        part[0, 1:] = theta * part[1:, 0]
        part[1:, 1:] = theta * np.tensordot(A[:, j], sums.ZZ, axes=1)
        constant = after[:, j] - part @ before[:, j]
        system = np.diag(np.concatenate([[sums.rows.sum()], masses])) - part
        result[rows, j] = np.linalg.solve(
            system[np.ix_(rows, rows)], (constant + part[:, ~rows] @ before[~rows, j])[rows]
        )
    result = result @ E.T
    return result[0], result[1:]
