"""Sums of the labels over the rows: pairs of labels, known entries, and equal labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.duplicate_labels import group_columns
from mlfs_dask.blocks.products import label_pairs_block, label_sums_block, positives_block, weighted_block
from mlfs_dask.blocks.row_draws import row_bits
from mlfs_dask.blocks.unknown import values_at_marks, with_unknown_columns
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.typing import Array


class LabelKnowledge(NamedTuple):
    """Sums over the rows of Y.

    Attributes
    ----------
    positive, unknown : int64 array, shape (q,)
        Entries 1 and −1 of each label.
    pairs : int64 array, shape (q, q)
        Rows that have both labels.
    rows : int64 array, shape (3,)
        Rows with a positive label, with no known entry, and with some entries known and some unknown.
    fingerprints : uint64 array, shape (2, q)
        Of every label a sum of one draw of 64 bits for each row that has it, and for each row in which it is unknown:
        equal for labels whose known entries are the same, and else once in 2⁶⁴ times.
    """

    positive: NDArray[np.int64]
    unknown: NDArray[np.int64]
    pairs: NDArray[np.int64]
    rows: NDArray[np.int64]
    fingerprints: NDArray[np.uint64]

    @property
    def groups(self) -> NDArray[np.intp]:
        """Group of every label, shape (q,): labels of which the same is known; numbered by their first labels."""
        return group_columns(self.fingerprints).group

    def shares(self, n: int) -> Array:
        """Return the shares of the rows that have each label, of those in which it is known, shape (q,); 0 where it
        is in none.

        Parameters
        ----------
        n : int
            All rows.
        """
        return self.positive / np.maximum(n - self.unknown, 1)


@dataclass(frozen=True)
class Labels(Statistic):
    """Statistic: `LabelKnowledge`.

    Parameters
    ----------
    n_labels : int
    unlabelled_without_positive : bool
        In the fingerprints a row without a positive label counts as unknown in all labels.
    """

    n_labels: int
    unlabelled_without_positive: bool = field(default=False, kw_only=True)

    kind = "labels"
    state_names = LabelKnowledge._fields

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"unlabelled_without_positive": self.unlabelled_without_positive}

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        q = self.n_labels
        return (q,), (q,), (q, q), (3,), (2, q)

    def scratch_bytes(self, profile: Profile) -> int:
        stored = 40 * profile.labels_of_row
        return (stored + 64) * profile.block_rows + 24 * self.n_labels**2

    def zero(self) -> State:
        *counts, draws = self.shapes
        return *(np.zeros(shape, np.int64) for shape in counts), np.zeros(draws, np.uint64)

    def add(self, state: State, block: Block) -> None:
        sums, Y = LabelKnowledge(*state), block.Y
        if isinstance(Y, np.ndarray):  # standardised targets, whose shares are 0
            np.add(sums.unknown, np.isnan(Y).sum(axis=0), out=sums.unknown)
            return
        P = positives_block(Y)
        positive = label_sums_block(P)
        np.add(sums.positive, positive, out=sums.positive)
        np.add(sums.unknown, label_sums_block(Y) - positive, out=sums.unknown)
        np.add(sums.pairs, label_pairs_block(P), out=sums.pairs)
        has = np.diff(P.indptr) > 0
        missing = np.diff(Y.indptr) - np.diff(P.indptr)
        partly = (missing > 0) & (missing < self.n_labels)
        sums.rows[...] += [has.sum(), (missing == self.n_labels).sum(), partly.sum()]
        draws = row_bits(block.start, Y.shape[0])
        of_entry = np.repeat(draws, np.diff(Y.indptr))
        unknown = Y.data < 0
        np.add.at(sums.fingerprints[0], Y.indices[~unknown], of_entry[~unknown])
        if self.unlabelled_without_positive:
            # Such a row says nothing of any label: nothing of it is added.
            unknown &= np.repeat(has, np.diff(Y.indptr))
        np.add.at(sums.fingerprints[1], Y.indices[unknown], of_entry[unknown])

    def finalize(self, state: State) -> LabelKnowledge:
        return LabelKnowledge(*state)


class LabelTables(NamedTuple):
    """Counts of all pairs of labels; where labels may be unknown, of each pair over the rows where both are known.

    Attributes
    ----------
    both : array, shape (q, q)
        Rows that have both labels; int64, of weighted rows sums of weights.
    positives : array, shape (q, 1) or (q, q)
        Rows that have the first label.
    n : int or float, or array of shape (q, q)
        Rows, at least 1.
    """

    both: NDArray[Any]
    positives: NDArray[Any]
    n: Any

    def cosine_distances(self) -> Array:
        """Return one minus the cosines of the columns of Y, shape (q, q); 0 for labels that no row has."""
        if np.ndim(self.n) == 0:
            return cosine_distances(self.both)
        norms = np.sqrt(self.positives * self.positives.T)
        distances = np.zeros(norms.shape)
        np.divide(norms - self.both, norms, out=distances, where=norms > 0)
        return distances


@dataclass(frozen=True)
class LabelPairs(Statistic):
    """Statistic: `LabelTables`.

    Parameters
    ----------
    n_labels : int
    n : int or float
        Rows, or the sum of their weights.
    unknown : int64 array, shape (u,)
        Labels that may have unknown entries.
    weighted : bool
        Whether rows have weights.

    Examples
    --------
    >>> from scipy import sparse as sp
    >>> Y = sp.csr_array(np.array([[1, 1], [0, 1], [-1, 1]], dtype=np.int8))
    >>> pairs = LabelPairs(2, 3, np.array([0]))
    >>> state = pairs.zero()
    >>> pairs.add(state, Block(0, np.zeros((3, 0)), Y))
    >>> [table.tolist() for table in pairs.finalize(state)]
    [[[1, 1], [1, 3]], [[1, 1], [2, 3]], [[2, 2], [2, 3]]]
    """

    n_labels: int
    n: int | float
    unknown: NDArray[np.int64]
    weighted: bool = field(default=False, kw_only=True)

    kind = "label-pairs"
    state_names = ("pairs",)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"unknown": self.unknown} if len(self.unknown) else {}

    @property
    def shapes(self) -> tuple[tuple[int, int]]:
        return ((self.n_labels + len(self.unknown),) * 2,)

    @property
    def result_bytes(self) -> int:
        return 8 * self.n_labels**2 * (3 if len(self.unknown) else 1)

    def scratch_bytes(self, profile: Profile) -> int:
        return 60 * profile.labels_of_row * profile.block_rows + 3 * self.state_bytes

    def zero(self) -> State:
        return (np.zeros(self.shapes[0], np.float64 if self.weighted else np.int64),)

    def add(self, state: State, block: Block) -> None:
        positive = with_unknown_columns(block.Y, self.unknown)
        weighted = None if block.weights is None else weighted_block(positive, block.weights)
        np.add(state[0], label_pairs_block(positive, weighted), out=state[0])

    def finalize(self, state: State) -> LabelTables:
        (pairs,), q = state, self.n_labels
        both, positives = pairs[:q, :q], np.diag(pairs)[:q, np.newaxis]
        if not len(self.unknown):
            return LabelTables(both, positives, self.n)
        marks = np.full(q, -1)
        marks[self.unknown] = q + np.arange(len(self.unknown))
        unknown = values_at_marks(
            pairs, marks
        )  # (q, q + u): rows where the first label is unknown that have the second
        neither = values_at_marks(unknown.T, marks)
        n_unknown = np.diag(neither)[:, np.newaxis]
        n = self.n - n_unknown - n_unknown.T + neither
        return LabelTables(both, positives - unknown[:, :q].T, np.maximum(n, 1))


class FilledPairs(LabelPairs):
    """Statistic: Y'Y, shape (q, q), of Y with shares in the places of unknown entries (`filled_pairs`)."""

    @property
    def kind(self) -> str:  # type: ignore[override]
        return ""

    @property
    def result_bytes(self) -> int:
        return 8 * self.n_labels**2

    def finalize(self, state: State) -> Array:  # type: ignore[override]
        return filled_pairs(state[0], self.unknown, self.n)


def filled_pairs(
    pairs: NDArray[Any], unknown: NDArray[np.int64], n: int | float, sums: NDArray[Any] | None = None
) -> Array:
    """Return Y'Y of Y with the share of the known rows that have the label in the places of its unknown entries.

    Parameters
    ----------
    pairs : array, shape (q + u, q + u)
        Rows that have both labels, of labels and of u further ones: the rows in which one is unknown.
    unknown : int64 array, shape (u,)
        These labels.
    n : int or float
        Rows.
    sums : array, shape (q,), optional
        Of the known entries of each label; by default the diagonal of `pairs`, as of 0/1 labels.

    Examples
    --------
    >>> pairs = np.array([[1, 1, 0], [1, 2, 1], [0, 1, 1]])  # of [[1, 1], [0, 0], [-1, 1]]
    >>> filled_pairs(pairs, np.array([0]), 3).tolist()
    [[1.25, 1.5], [1.5, 2.0]]
    """
    q = len(pairs) - len(unknown)
    known = np.maximum(n - np.diag(pairs)[q:], np.finfo(float).tiny)
    shares = ((np.diag(pairs) if sums is None else sums)[unknown] / known)[:, np.newaxis]
    filled = pairs[:q, :q].astype(np.float64)
    across = shares * pairs[q:, :q]
    filled[unknown] += across
    filled[:, unknown] += across.T
    filled[np.ix_(unknown, unknown)] += pairs[q:, q:] * (shares * shares.T)
    return filled


def label_pairs(source: Profile | RowSource) -> LabelPairs:
    """Return the statistic for rows, whose labels may be unknown."""
    profile = profile_of(source)
    return LabelPairs(profile.q, profile.total, unknown_labels(source), weighted=profile.weight is not None)


def label_cosines(pairs: NDArray[Any]) -> Array:
    """Return cosines of the columns of Y, shape (q, q); 0 for labels that no row has.

    Parameters
    ----------
    pairs : array, shape (q, q)
        Rows that have both labels of each pair.

    >>> label_cosines(np.array([[4, 1, 0], [1, 1, 0], [0, 0, 0]])).tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    times = np.diag(pairs).astype(np.float64)
    norms = np.sqrt(np.outer(times, times))
    cosines = np.zeros(norms.shape)
    np.divide(pairs, norms, out=cosines, where=norms > 0)
    return cosines


def graph_laplacian(S: Array) -> Array:
    """Return the Laplacian of a graph of labels with weights S, shape (q, q); the diagonal of S has no part in it.

    >>> graph_laplacian(np.array([[1.0, 0.5], [0.5, 1.0]])).tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    return np.diag(S.sum(axis=1)) - S


def cosine_distances(pairs: NDArray[Any]) -> Array:
    """Return one minus the cosines of the columns of Y, shape (q, q); 0 for labels that no row has.

    >>> cosine_distances(np.array([[4, 1, 0], [1, 1, 0], [0, 0, 0]])).tolist()
    [[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    some = np.diag(pairs) > 0
    return np.where(np.outer(some, some), 1.0 - label_cosines(pairs), 0.0)


def neighbour_laplacian(pairs: NDArray[Any], k: int) -> Array:
    """Return the Laplacian of the graph of each label's k nearest labels, shape (q, q), over the mean degree.

    Labels are as far apart as their columns of Y. An edge that one label has and the other has not counts half; those
    that are all as near as the k-th share what is left of it, so that the order of the labels does not matter.

    Parameters
    ----------
    pairs : array, shape (q, q)
        Rows that have both labels of each pair.
    k : int
        q − 1 where there are fewer others.

    >>> neighbour_laplacian(np.array([[4, 3, 0], [3, 4, 0], [0, 0, 1]]), 1).round(2).tolist()
    [[1.25, -1.0, -0.25], [-1.0, 1.25, -0.25], [-0.25, -0.25, 0.5]]
    """
    q = len(pairs)
    if (k := min(k, q - 1)) < 1:
        return np.zeros((q, q))
    times = np.diag(pairs)
    distances = times[:, np.newaxis] + times - 2.0 * pairs
    np.fill_diagonal(distances, np.inf)
    last = np.sort(distances, axis=1)[:, k - 1 : k]
    nearer, tied = distances < last, distances == last
    S = nearer + tied * (k - nearer.sum(axis=1, keepdims=True)) / tied.sum(axis=1, keepdims=True)
    S = (S + S.T) / (2.0 * k)
    return graph_laplacian(S)
