"""One iteration of SMFS in one pass: sums over the recovered labels of all rows, which are not kept.

Known entries of a row stay. The others minimise s_i ‖x_iP − y‖² + α Σ_a z_ia ‖y − u_a‖²:
y = (s_i x_iP + αU'z_i) / (s_i + α), within [−1, 1], with the weight s_i of the row (Eq. 7) and anchor values U.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.anchors import Anchors, propagate_to_anchors
from mlfs_dask.blocks.forest import Forest
from mlfs_dask.blocks.linear import group_scratch_bytes, grouped_block, leaves_cache
from mlfs_dask.blocks.mass_anchors import MassAnchors
from mlfs_dask.engine.statistic import State
from mlfs_dask.rows.contract import Profile
from mlfs_dask.statistics.gram import row_weights
from mlfs_dask.statistics.row_loop import RowGroups, RowLoop
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Array, Matrix


@dataclass(frozen=True)
class LeafCounts(RowGroups):
    """Statistic: rows in every leaf of every tree, int64 (trees, leaves).

    Parameters
    ----------
    forest : Forest
    """

    forest: Forest

    compiled = None

    @property
    def shapes(self) -> tuple[tuple[int, int]]:
        return ((len(self.forest.shapes), max(shape.n_leaves for shape in self.forest.shapes)),)

    def scratch_bytes(self, profile: Profile) -> int:
        return self.forest.leaf_scratch_bytes(profile)

    def zero(self) -> State:
        return (np.zeros(self.shapes[0], np.int64),)

    def add_rows(self, state: State, X: Matrix, Y: sp.csr_array) -> None:
        ((trees, leaves),) = self.shapes
        codes = self.forest.leaf_numbers(X)
        for t in range(trees):
            state[0][t] += np.bincount(codes[:, t], minlength=leaves)

    def finalize(self, state: State) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = state[0]
        return counts


class RecoveredSums(NamedTuple):
    """Sums over all rows, Y holding their labels, Z their weights of anchors, S their weights in the regression.

    Attributes
    ----------
    XSY : float64 array, shape (d, q)
    ZY : float64 array, shape (m, q)
        Of rows of which anything is known.
    ZZ : float64 array, shape (m, m)
        Z'Z of the rows of which nothing is known.
    masses : float64 array, shape (m,)
        λ = Z'1.
    terms : float64 array, shape (3,)
        Σ s_i ‖x_iP − y_i‖², Σ s_i ‖y_i‖², and Σ ‖y_i‖² of rows of which anything is known.
    ZX : float64 array, shape (m, d), or (0, 0)
        Z'S(S + α)⁻¹X, where moments are asked for, as are the others.
    near : float64 array, shape (m, m), or (0, 0)
        Z'α(S + α)⁻¹Z of rows of which anything is known.
    free : float64 array, shape (3, 1 + q), or (0, 0)
        Σ s_i, Σ s_i²/(s_i + α), and Σ α/(s_i + α) of rows of which anything is known: of all rows, and of those where
        each label is unknown.
    """

    XSY: Array
    ZY: Array
    ZZ: Array
    masses: Array
    terms: Array
    ZX: Array
    near: Array
    free: Array


@dataclass(frozen=True)
class RowRecovery:
    """The small variables from which the labels of a row are recovered.

    Attributes
    ----------
    anchors : Anchors or MassAnchors
    P : float64 array, shape (d, q), or None
        None for the first sums: unknown entries are then estimated from the anchors (Eq. 4), and are -1 where there
        are no anchor values either.
    U : float64 array, shape (m, q), or None
    alpha : float
    label_weights : float64 array, shape (q,)
        1 over the positive rows of each label: their sum over the positive labels of a row is s_i.
    coded : bool
        Whether entries -1 are the unknown ones; otherwise all that are not 1.
    """

    anchors: Anchors | MassAnchors
    P: Array | None
    U: Array | None
    alpha: float
    label_weights: Array
    coded: bool

    def labels(self, Y: sp.csr_array) -> tuple[Array, NDArray[np.bool_], Array]:
        """Return Y as 1 and −1, which entries are known, both of shape (rows, q), and the weights s, shape (rows,
        1).
        """
        entries = Y.toarray()
        known = entries >= 0 if self.coded else entries > 0
        return np.where(entries > 0, 1.0, -1.0), known, row_weights(Y, self.label_weights)[:, np.newaxis]

    def recover(self, Y: Array, known: NDArray[np.bool_], s: Array, XP: Array | None, Z: sp.csr_array) -> Array:
        """Return the labels of some rows, shape (rows, q)."""
        if self.U is None:
            return Y
        near = Z @ self.U
        if XP is None:
            # Eq. 4; rows of which nothing is known keep −1 in the paper. Here they follow their anchors from the start.
            return np.where(known, Y, near)
        weight = s + self.alpha
        estimate = np.divide(s * XP + self.alpha * near, weight, out=np.full_like(Y, -1.0), where=weight > 0)
        return np.where(known, Y, np.clip(estimate, -1.0, 1.0))


@dataclass(frozen=True)
class RecoveredRows(RowLoop):
    """Statistic: `RecoveredSums`.

    Parameters
    ----------
    scaling : Scaling
    recovery : RowRecovery
    moments : bool
        Whether the moments are summed from which changes of the other sums follow.
    """

    scaling: Scaling
    recovery: RowRecovery
    moments: bool = False

    Sums = RecoveredSums
    scaled = ("XSY", "ZX")

    @property
    def compiled(self) -> bool | None:  # type: ignore[override]
        wide = leaves_cache(len(self.scaling.centre) * len(self.recovery.label_weights))
        return wide or getattr(self.recovery.anchors, "combined", False) or None

    @property
    def W(self) -> Array:  # type: ignore[override]
        assert self.recovery.P is not None
        return self.recovery.P

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        d, q, m = len(self.scaling.centre), len(self.recovery.label_weights), self.recovery.anchors.count
        moments = ((m, d), (m, m), (3, 1 + q)) if self.moments else ((0, 0),) * 3
        return (d, q), (m, q), (m, m), (m,), (3,), *moments

    def scratch_bytes(self, profile: Profile) -> int:
        (d, q), (m, _), *_ = self.shapes
        weights = self.recovery.anchors.scratch_bytes(profile) + self.kept_bytes(profile)
        return int(group_scratch_bytes(profile, 9 * q) + weights + 8 * (d * q + 2 * m * m))

    @property
    def fixed_anchors(self) -> Anchors | MassAnchors:
        return self.recovery.anchors

    def add_rows(self, sums: RecoveredSums, X: Matrix, Y: sp.csr_array, Z: sp.csr_array) -> None:
        known, s, XP, labels = self._recover(X, Y, Z)
        weighted = np.flatnonzero(s[:, 0])
        self.backward(X[weighted], s[weighted] * labels[weighted], sums.XSY)
        some = np.asarray(known.any(axis=1))
        sums.ZY[...] += Z[some].T @ labels[some]
        nothing = Z[~some]
        sums.ZZ[...] += nothing.T @ nothing
        sums.masses[...] += np.asarray(Z.sum(axis=0)).ravel()
        fit = 0.0 if XP is None else float((s * np.square(XP - labels)).sum())
        sums.terms[...] += [fit, float((s * np.square(labels)).sum()), float(np.square(labels[some]).sum())]
        if self.moments:
            share = np.divide(s, s + self.recovery.alpha, out=np.zeros_like(s), where=s > 0)
            rest = np.where(some[:, np.newaxis], 1.0 - share, 0.0)
            grouped_block(X[weighted], (sp.diags_array(share[:, 0]) @ Z)[weighted], self.scaling.centre, sums.ZX)
            sums.near[...] += Z.T @ (sp.diags_array(rest[:, 0]) @ Z)
            for into, weight in zip(sums.free, (s, s * share, rest), strict=True):
                into += [float(weight.sum()), *np.where(known, 0.0, weight).sum(axis=0)]

    def _recover(
        self, X: Matrix, labels: sp.csr_array, Z: sp.csr_array
    ) -> tuple[NDArray[np.bool_], Array, Array | None, Array]:
        """Return which labels are known, s, X P, and Y of some rows."""
        recovery = self.recovery
        given, known, s = recovery.labels(labels)
        XP: Array | None = None
        if recovery.P is not None:
            # Only rows with a weight in the regression need X P.
            XP, weighted = np.zeros(given.shape), np.flatnonzero(s[:, 0])
            XP[weighted] = self.forward(X[weighted])
        return known, s, XP, recovery.recover(given, known, s, XP, Z)

    def labels_of(self, X: Matrix, Y: sp.csr_array) -> Array:
        return self._recover(X, Y, self.recovery.anchors.weigh(X))[-1]


def settle_anchor_values(sums: RecoveredSums) -> Array:
    """Return U that minimises Σ_i Σ_a z_ia ‖y_i − u_a‖² together with the y_i of the rows of which nothing is known.

    Σ_i z_ia (y_i − u_a) = 0 with y_i = U'z_i in the rows of which nothing is known is (Λ − ZZ) U = ZY.

    Parameters
    ----------
    sums : RecoveredSums

    Returns
    -------
    float64 array, shape (m, q)
        −1 for anchors that rows with known labels do not reach.
    """
    return np.clip(propagate_to_anchors(sums.masses, sums.ZZ, sums.ZY, unreached=-1.0), -1.0, 1.0)
