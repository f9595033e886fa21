"""Groups of features, such as indicator columns of a category, gene sets or sensors, and their scores."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError, number_of, parameter
from mlfs_dask.files.object_store import read_text_file
from mlfs_dask.selection.containers import is_absent
from mlfs_dask.selectors.costs import Names
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.storage.subset_spec import list_features
from mlfs_dask.typing import Array

#: Name of the pass for joint statistics.
GROUPS = "groups"

#: Bound below which eigenvalues of correlations count as 0: indicator columns of a category add up to 1.
SINGULAR = 1e-9


@dataclass(frozen=True)
class Groups:
    """Partition of the features into groups.

    Attributes
    ----------
    group_of : int64 array, shape (d,)
        Group number of each feature.
    names : sequence of str
        Names of the groups; a feature without a group forms one of its own, under its own name.
    """

    group_of: NDArray[np.int64]
    names: Sequence[str]

    def of_features(self, features: NDArray[np.int64] | None) -> Groups:
        """Return the groups of the given features, without empty groups."""
        if features is None:
            return self
        numbers, group_of = np.unique(self.group_of[features], return_inverse=True)
        return Groups(group_of.astype(np.int64), [self.names[g] for g in numbers.tolist()])

    def members(self) -> list[NDArray[np.int64]]:
        """Return the features of every group, ascending."""
        order = np.argsort(self.group_of, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.group_of, minlength=len(self.names)))[:-1])

    def scores(self, scores: Array, varies: NDArray[np.bool_], by: str) -> Array:
        """Return the scores of the groups: sum, mean or maximum over varying features; -inf if all are constant.

        >>> groups = Groups(np.array([0, 1, 0]), ["a", "b"])
        >>> groups.scores(np.array([1.0, 2.5, 2.0]), np.ones(3, bool), "sum")
        array([3. , 2.5])
        """
        g, group_of, values = len(self.names), self.group_of[varies], scores[varies]
        count = np.bincount(group_of, minlength=g)
        if by == "max":
            largest = np.full(g, -np.inf)
            np.maximum.at(largest, group_of, values)
            return largest
        total = np.bincount(group_of, values, g)
        return np.where(count > 0, total / np.maximum(count, 1) if by == "mean" else total, -np.inf)

    def joint_scores(self, grams: Array, sums: LabelMoments) -> Array:
        """Return the scores of the groups: adjusted R² of each label on the group's features, summed over labels.

        Parameters
        ----------
        grams : float64 array
            X'X within every group of two or more over all rows; and over the rows with known values of each label in
            `sums.known`.
        sums : LabelMoments
        """
        terms, scores = sums.terms, np.full(len(self.names), -np.inf)
        q, d = terms.products.shape
        m2, n = np.broadcast_to(terms.m2, (q, d)), np.broadcast_to(terms.n, (q, 1))
        members, varies = self.members(), sums.m2 > 0
        for number, features in enumerate(members):
            if varies[features].any():
                scores[number] = 0.0
        unknown = np.empty(0, np.int64) if sums.known is None else sums.known.labels
        same_rows = [np.setdiff1d(np.arange(q), unknown), *unknown[:, np.newaxis]]
        for labels, gram in zip(same_rows, grams.reshape(len(same_rows), -1), strict=True):
            use = labels[terms.varying[labels]]
            if not len(use):
                continue
            rows, squares = float(n[use[0], 0]), m2[use[0]]
            factor: Array = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
            correlations = terms.products[use] * factor / np.sqrt(terms.label_m2[use])  # (labels, d)
            start = 0
            for number, features in enumerate(members):
                stop = start + (len(features) ** 2 if len(features) > 1 else 0)
                vary = np.flatnonzero(factor[features])
                if len(vary):
                    G = gram[start:stop].reshape(len(features), -1) if stop > start else np.ones((1, 1))
                    columns = features[vary]
                    G = G[np.ix_(vary, vary)]
                    scores[number] += _adjusted_r2(correlations[:, columns], G, factor[columns], rows)
                start = stop
        return scores


def read_groups(groups: Any, names: Names, d: int) -> Groups:
    """Return the groups given by a file, a sequence or a mapping.

    Parameters
    ----------
    groups : str, sequence of length d, or mapping
        Path of a CSV or TSV file with a feature and its group in each line, optionally with a heading; or a group for
        every feature, None or "" for no group; or a mapping from names or numbers of features to groups.
    names : Names
    d : int

    Raises
    ------
    UsageError, DataError
    """
    group_names: dict[int, str] = {}
    if isinstance(groups, str) and groups.startswith("var:"):
        if names.column is None:
            raise UsageError(f"{parameter('groups', groups)} needs AnnData: write feature,group a line into a file.")
        groups = names.column(groups.removeprefix("var:"))
    if isinstance(groups, str):
        group_names = _read_group_file(groups, names, d)
    elif isinstance(groups, Mapping):
        features = list_features([*groups], names.features, d).tolist()
        group_names = dict(zip(features, map(str, groups.values()), strict=True))
    else:
        values = list(groups)
        if len(values) != d:
            raise UsageError(f"{parameter('groups')} has {len(values):,} entries for {number_of(d, 'feature')}.")
        group_names = {f: str(group) for f, group in enumerate(values) if not (is_absent(group) or group == "")}
    numbers: dict[tuple[str, str], int] = {}
    group_of = np.empty(d, np.int64)
    labels: list[str] = []
    for f in range(d):
        feature_name = str(f) if names.features is None else str(names.features[f])
        key = ("group", group_names[f]) if f in group_names else ("feature", str(f))
        if key not in numbers:
            numbers[key] = len(labels)
            labels.append(group_names.get(f, feature_name))
        group_of[f] = numbers[key]
    return Groups(group_of, labels)


def _read_group_file(path: str, names: Names, d: int) -> dict[int, str]:
    """Return the groups of features, by feature number, from a file."""
    try:
        text = read_text_file(path)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataError(
            f"the file of groups cannot be read: {error}", file=path, cure="give a file with feature,group a line"
        ) from error
    indices = {} if names.features is None else {str(name): f for f, name in enumerate(names.features)}
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    groups: dict[int, str] = {}
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    for number, row in enumerate(rows):
        if not any(field.strip() for field in row):
            continue
        if len(row) != 2:
            raise DataError(
                f"expected a feature and its group, came {number_of(len(row), 'field')}", file=path, line=rows.line_num
            )
        name, group = row[0] if row[0] in indices else row[0].strip(), row[1].strip()
        try:
            feature = indices[name] if name in indices else int(list_features([name], names.features, d)[0])
        except UsageError as error:
            if number == 0:  # a heading
                continue
            raise DataError(
                str(error), file=path, line=rows.line_num, value=name, cure="name a feature of the data in every line"
            ) from None
        if feature in groups:
            raise DataError(
                "this feature has a group already", file=path, line=rows.line_num, value=name, cure="name it once"
            )
        if group:
            groups[feature] = group
    return groups


def _adjusted_r2(correlations: Array, G: Array, factor: Array, n: float) -> float:
    """Return the adjusted R² on a group, summed over labels, from correlations (labels, w) and X'X of its features."""
    explained, rank = (correlations**2).sum(axis=1), 1
    if len(G) > 1:
        values, vectors = np.linalg.eigh(G * np.outer(factor, factor))
        kept = values > SINGULAR * len(G)
        explained = ((correlations @ vectors[:, kept]) ** 2 / values[kept]).sum(axis=1)
        rank = int(np.count_nonzero(kept))
    residual_dof = max(n - 1 - rank, 1)
    return float((1 - (1 - np.clip(explained, 0, 1)) * (n - 1) / residual_dof).sum())
