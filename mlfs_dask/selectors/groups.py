"""Groups of features, such as the columns of a category, sets of genes or sensors, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.moments import first_values
from mlfs_dask.statistics.products import LabelMoments

Array = NDArray[np.float64]

#: What the reading of joint statistics is called.
GROUPS = "groups"

#: Eigenvalues of correlations below it are the rounding of 0: columns of a category add up to 1.
SINGULAR = 1e-9


@dataclass(frozen=True)
class Groups:
    """Which group each feature belongs to.

    Attributes
    ----------
    of : int64 array, shape (d,)
        Number of the group of each feature.
    names : sequence of str
        Of the groups; a feature without one is a group of its own, of its own name.
    """

    of: NDArray[np.int64]
    names: Sequence[str]

    def of_features(self, features: NDArray[np.int64] | None) -> Groups:
        """The groups of some of the features, those that have any of these."""
        if features is None:
            return self
        present, of = np.unique(self.of[features], return_inverse=True)
        return Groups(of.astype(np.int64), [self.names[g] for g in present.tolist()])

    def members(self) -> list[NDArray[np.int64]]:
        """The features of every group, rising."""
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.of, minlength=len(self.names)))[:-1])

    def scores(self, scores: Array, varies: NDArray[np.bool_], by: str) -> Array:
        """Scores of the groups: sum, mean or maximum over their features that vary; -inf where none does.

        >>> groups = Groups(np.array([0, 1, 0]), ["a", "b"])
        >>> groups.scores(np.array([1.0, 2.5, 2.0]), np.ones(3, bool), "sum")
        array([3. , 2.5])
        """
        g, of, values = len(self.names), self.of[varies], scores[varies]
        count = np.bincount(of, minlength=g)
        if by == "max":
            found = np.full(g, -np.inf)
            np.maximum.at(found, of, values)
            return found
        total = np.bincount(of, values, g)
        return np.where(count > 0, total / np.maximum(count, 1) if by == "mean" else total, -np.inf)


class GroupGrams(Statistic):
    """Statistic: (X − mean)'(X − mean) within every group of two features or more, one after the other, flat.

    Dense X is summed relative to the first row that a state meets, as by `Gram`.

    Parameters
    ----------
    groups : Groups
    weighted : bool
        Whether rows have weights.
    """

    kind = ""

    def __init__(self, groups: Groups, *, weighted: bool = False) -> None:
        self.groups = [members for members in groups.members() if len(members) > 1]
        self.n_features = len(groups.of)
        self.weighted = weighted
        self.size = sum(len(members) ** 2 for members in self.groups)

    @property
    def state_bytes(self) -> int:
        return 8 * (1 + 2 * self.n_features + self.size)

    @property
    def result_bytes(self) -> int:
        return 8 * self.size

    @property
    def parameter_bytes(self) -> int:
        return 8 * self.n_features

    def scratch_bytes(self, profile: Profile) -> int:
        widest = max(map(len, self.groups), default=0)
        columns = 2 * profile.block_bytes if profile.sparse else 0  # of X by columns
        return columns + 16 * widest * profile.block_rows + 8 * widest**2

    def finishing_bytes(self, profile: Profile) -> int:
        return 16 * max((len(members) ** 2 for members in self.groups), default=0)

    def zero(self) -> State:
        return np.zeros(1), np.zeros(self.n_features), np.zeros(self.n_features), np.zeros(self.size)

    def add(self, state: State, block: Block) -> None:
        rows, shift, sums, grams = state
        if rows[0] == 0:
            shift[:] = first_values(block.X)
        dense = isinstance(block.X, np.ndarray)
        X: Any = block.X if dense else block.X.tocsc()
        weights = block.weights if self.weighted else None
        for members, gram in self._parts(grams):
            part = X[:, members].astype(np.float64) if dense else X[:, members].astype(np.float64).toarray()
            part -= shift[members]
            weighted = part if weights is None else part * weights[:, np.newaxis]
            gram += weighted.T @ part
            sums[members] += weighted.sum(axis=0)
        rows[0] += X.shape[0] if weights is None else weights.sum()

    def merge(self, into: State, other: State) -> None:
        rows, shift, sums, grams = into
        more, other_shift, other_sums, other_grams = other
        if not more[0]:
            return
        if rows[0] == 0:
            shift[:] = other_shift
        move = other_shift - shift
        grams += other_grams
        if move.any():
            for members, gram in self._parts(grams):
                across = np.outer(other_sums[members] + 0.5 * more[0] * move[members], move[members])
                gram += across + across.T
        sums += other_sums + more[0] * move
        rows += more

    def finalize(self, state: State) -> Array:
        rows, _, sums, grams = state
        result: Array = grams.copy()
        for members, gram in self._parts(result):
            gram -= np.outer(sums[members], sums[members] / (rows[0].item() or 1))
        return result

    def _parts(self, grams: Array) -> Any:
        """The groups, each with its matrix."""
        start = 0
        for members in self.groups:
            stop = start + len(members) ** 2
            yield members, grams[start:stop].reshape(len(members), -1)
            start = stop

    def joint_scores(self, groups: Groups, grams: Array, sums: LabelMoments) -> Array:
        """Scores of the groups: adjusted R² of every label on the group's features, summed over the labels.

        Parameters
        ----------
        groups : Groups
        grams : float64 array
            The result.
        sums : LabelMoments
        """
        n, factor = sums.n, sums.factor / np.sqrt(sums.n or 1)
        positives = sums.positives.astype(np.float64)
        spread = positives * (1 - positives / (n or 1))
        use = spread > 0
        along = sums.products[use] * factor / np.sqrt(spread[use])[:, np.newaxis]  # correlations (q, d)
        found = np.full(len(groups.names), -np.inf)
        matrices = {int(groups.of[members[0]]): (members, gram) for members, gram in self._parts(grams)}
        for number, members in enumerate(groups.members()):
            members = members[factor[members] > 0]
            if not len(members):
                continue
            explained, rank = (along[:, members] ** 2).sum(axis=1), 1
            if number in matrices and len(members) > 1:
                whole, gram = matrices[number]
                own = np.isin(whole, members)
                R = gram[np.ix_(own, own)] * np.outer(factor[members], factor[members])
                values, vectors = np.linalg.eigh(R)
                kept = values > SINGULAR * len(members)
                explained = ((along[:, members] @ vectors[:, kept]) ** 2 / values[kept]).sum(axis=1)
                rank = int(np.count_nonzero(kept))
            left = max(n - 1 - rank, 1)
            found[number] = (1 - (1 - np.clip(explained, 0, 1)) * (n - 1) / left).sum()
        return found
