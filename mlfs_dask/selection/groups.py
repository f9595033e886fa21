"""Groups of features, such as the columns of a category, sets of genes or sensors, and their scores."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError, number_of, parameter
from mlfs_dask.selectors.costs import Names
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.storage.object_store import read_text_file
from mlfs_dask.storage.subset_spec import list_columns
from mlfs_dask.typing import Array

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

    @property
    def together(self) -> list[NDArray[np.int64]]:
        """The features of every group of two or more, of which X'X is needed."""
        return [members for members in self.members() if len(members) > 1]

    def joint_scores(self, grams: Array, sums: LabelMoments) -> Array:
        """Scores of the groups: adjusted R² of every label on the group's features, summed over the labels.

        Parameters
        ----------
        grams : float64 array
            X'X within groups (`together`) of all rows, or also of those where each label of `sums.known` is known.
        sums : LabelMoments
        """
        terms, found = sums.terms, np.full(len(self.names), -np.inf)
        q, d = terms.products.shape
        m2, n = np.broadcast_to(terms.m2, (q, d)), np.broadcast_to(terms.n, (q, 1))
        members, varies = self.members(), sums.m2 > 0
        for number, own in enumerate(members):
            if varies[own].any():
                found[number] = 0.0
        unknown = np.empty(0, np.int64) if sums.known is None else sums.known.labels
        of_labels = [np.setdiff1d(np.arange(q), unknown), *unknown[:, np.newaxis]]
        for labels, gram in zip(of_labels, grams.reshape(len(of_labels), -1), strict=True):
            use = labels[terms.varying[labels]]
            if not len(use):
                continue
            rows, factor = float(n[use[0], 0]), _inverse_root(m2[use[0]])
            along = terms.products[use] * factor / np.sqrt(terms.label_m2[use])  # correlations (labels, d)
            start = 0
            for number, whole in enumerate(members):
                stop = start + (len(whole) ** 2 if len(whole) > 1 else 0)
                vary = np.flatnonzero(factor[whole])
                if len(vary):
                    G = gram[start:stop].reshape(len(whole), -1) if stop > start else np.ones((1, 1))
                    found[number] += _adjusted(along[:, whole[vary]], G[np.ix_(vary, vary)], factor[whole[vary]], rows)
                start = stop
        return found


def read_groups(given: Any, names: Names, d: int) -> Groups:
    """The groups that a file, a sequence or a mapping tells.

    Parameters
    ----------
    given : str, sequence of length d, or mapping
        A file, CSV or TSV, with a feature and its group a line, and a heading or none; a group for every feature, None
        or an empty text for none; or groups by the names or numbers of features.
    names : Names
    d : int

    Raises
    ------
    UsageError, DataError
    """
    of_feature: dict[int, str] = {}
    if isinstance(given, str) and given.startswith("var:"):
        if names.column is None:
            raise UsageError(f"{parameter('groups', given)} needs AnnData: write feature,group a line into a file.")
        given = names.column(given.removeprefix("var:"))
    if isinstance(given, str):
        of_feature = _groups_in(given, names, d)
    elif isinstance(given, Mapping):
        features = list_columns([*given], names.features, d, "feature").tolist()
        of_feature = dict(zip(features, map(str, given.values()), strict=True))
    else:
        values = list(given)
        if len(values) != d:
            raise UsageError(f"{parameter('groups')} has {len(values):,} entries for {number_of(d, 'feature')}.")
        of_feature = {f: str(group) for f, group in enumerate(values) if not _is_none(group)}
    numbers: dict[tuple[str, str], int] = {}
    of = np.empty(d, np.int64)
    labels: list[str] = []
    for f in range(d):
        own = str(f) if names.features is None else str(names.features[f])
        key = ("group", of_feature[f]) if f in of_feature else ("feature", str(f))
        if key not in numbers:
            numbers[key] = len(labels)
            labels.append(of_feature.get(f, own))
        of[f] = numbers[key]
    return Groups(of, labels)


def _is_none(group: Any) -> bool:
    return group is None or group == "" or group != group  # NaN, as pandas has it


def _groups_in(path: str, names: Names, d: int) -> dict[int, str]:
    """Groups by the numbers of features, from a file."""
    try:
        text = read_text_file(path)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataError(
            f"the file of groups cannot be read: {error}", file=path, cure="give a file with feature,group a line"
        ) from error
    known = {} if names.features is None else {str(name): f for f, name in enumerate(names.features)}
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    found: dict[int, str] = {}
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    for number, row in enumerate(rows):
        if not any(field.strip() for field in row):
            continue
        if len(row) != 2:
            raise DataError(
                f"expected a feature and its group, came {number_of(len(row), 'field')}", file=path, line=rows.line_num
            )
        name, group = row[0] if row[0] in known else row[0].strip(), row[1].strip()
        try:
            feature = known[name] if name in known else int(list_columns([name], names.features, d, "feature")[0])
        except UsageError as error:
            if number == 0:  # a heading
                continue
            raise DataError(
                str(error), file=path, line=rows.line_num, value=name, cure="name a feature of the data in every line"
            ) from None
        if feature in found:
            raise DataError(
                "this feature has a group already", file=path, line=rows.line_num, value=name, cure="name it once"
            )
        if group:
            found[feature] = group
    return found


def _inverse_root(squares: Array) -> Array:
    result: Array = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    return result


def _adjusted(along: Array, G: Array, factor: Array, n: float) -> float:
    """Sum over labels of adjusted R² from correlations with a group's features, (labels, w), and X'X of these."""
    explained, rank = (along**2).sum(axis=1), 1
    if len(G) > 1:
        values, vectors = np.linalg.eigh(G * np.outer(factor, factor))
        kept = values > SINGULAR * len(G)
        explained = ((along @ vectors[:, kept]) ** 2 / values[kept]).sum(axis=1)
        rank = int(np.count_nonzero(kept))
    left = max(n - 1 - rank, 1)
    return float((1 - (1 - np.clip(explained, 0, 1)) * (n - 1) / left).sum())
