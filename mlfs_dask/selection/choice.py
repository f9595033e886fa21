"""Which features are chosen, after they were scored: those that are kept in any case first, none that is excluded.

Of features that say the same one is chosen, where that is asked for (`mlfs_dask.selectors.redundancy`).
"""

from __future__ import annotations

import copy
import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError, number_of, parameter
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.selection.pairs import Pairs, chosen_by_pairs
from mlfs_dask.selectors.contract import Method
from mlfs_dask.selectors.costs import Names, Readings
from mlfs_dask.selectors.groups import GROUPS, Groups
from mlfs_dask.selectors.redundancy import find_clusters
from mlfs_dask.selectors.scores import AUTO, Scores, count_kept, kept_first, round_scores
from mlfs_dask.storage.object_store import read_text_file
from mlfs_dask.storage.subset_spec import list_columns
from mlfs_dask.typing import Array


def with_numbers(method: Method, names: Names, d: int) -> Method:
    """The method with the numbers of the features that `keep` and `exclude` name.

    Parameters
    ----------
    method : Method
    names : Names
        Of the data.
    d : int
        Features of the data.

    Raises
    ------
    UsageError
        A feature is not there, is named twice, or is both kept and excluded.
    DataError
        A file of features cannot be read.
    """
    numbered: Any = copy.copy(method)
    if method.groups is not None and not isinstance(method.groups, Groups):
        numbered.groups = read_groups(method.groups, names, d)
    for option in ("keep", "exclude"):
        given = getattr(method, option)
        if given is not None:
            try:
                setattr(numbered, option, tuple(list_columns(given, names.features, d, "feature").tolist()))
            except UsageError as error:
                raise UsageError(f"{parameter(option)}: {error}") from None
    both = sorted(set(numbered.keep or ()) & set(numbered.exclude or ()))
    if both:
        name = both[0] if names.features is None else repr(str(names.features[both[0]]))
        raise UsageError(
            f"{parameter('keep')} and {parameter('exclude')} both name feature {name}; leave it out of one of them."
        )
    chosen: Method = numbered
    return chosen


def groups_of(method: Method, d: int) -> Groups | None:
    """The groups of the features that a method reads, of d; None where none were given."""
    groups: Any = method.groups
    return None if groups is None else groups.of_features(method.features(d))


def number_to_choose(method: Method, d: int) -> int:
    """How many features are to be chosen of d, or how many groups.

    Raises
    ------
    UsageError
    """
    groups, features = groups_of(method, d), method.features(d)
    if groups is None:
        return method.count_kept(d if features is None else len(features))
    return count_kept(method.n_features_to_select, len(groups.names), of="groups of features")


def kept_features(method: Method, d: int, k: int) -> NDArray[np.int64]:
    """Numbers, among the features that the method reads, of those that are kept, in their order.

    Parameters
    ----------
    method : Method
        `with_numbers`.
    d : int
        Features of the data.
    k : int
        Features to choose, or groups.

    Raises
    ------
    UsageError
        They are more than k.
    """
    groups: Any = method.groups
    kept = np.asarray(method.keep or (), np.int64)
    count, what = len(kept), "feature"
    if isinstance(groups, Groups):
        count, what = len(np.unique(groups.of[kept])), "group"
    if count > k:
        raise UsageError(
            f"{parameter('keep')} names {number_of(count, what)}, and {k:,} are to be chosen in all: give a "
            f"larger {parameter('n_features_to_select')}, which counts them, or keep fewer."
        )
    features = method.features(d)
    return kept if features is None else np.searchsorted(features, kept)


@dataclass(frozen=True)
class Choice:
    """Which features are chosen, of those that the method read.

    Attributes
    ----------
    outcome : Scores
        Scores without rounding, and what was discovered among features that vary.
    ranking : int64 array
        Best first.
    k : int
        How many are chosen: the first of the ranking.
    clusters : array of `redundancy.ROW`, or None
        Features that say the same as a chosen one, and these, where that was asked for.
    warnings : list of Warning
    group_scores : float64 array, or None
        Of the group of each feature.
    chosen_groups : list of str, or None
        Names of the groups that are chosen, best first.
    """

    outcome: Scores
    ranking: NDArray[np.int64]
    k: int
    clusters: NDArray[np.void] | None = None
    warnings: list[Warning] = field(default_factory=list)
    group_scores: Array | None = None
    chosen_groups: list[str] | None = None


def choose(method: Method, readings: Readings, outcome: Scores, k: int, pairs: Pairs | None = None) -> Choice:
    """The choice that follows from scores.

    Parameters
    ----------
    method : Method
    readings : Readings
        Of the fit.
    outcome : Scores
    k : int
        Features to choose, or groups; with n_features_to_select="auto" those that were discovered.
    pairs : Pairs, optional
        Tests of labels and features.

    Raises
    ------
    DataError, DoesNotFitError, ClusterLostError
    """
    varies, kept = readings.varies, readings.kept
    if pairs is not None and method.n_features_to_select == AUTO and method.control is not None:
        found, q = pairs.discovered(method.fdr)
        outcome = replace(outcome, discovered=found, q_values=q)
    discovered = None if outcome.discovered is None else outcome.discovered & varies
    chosen = discovered if pairs is None else chosen_by_pairs(method, pairs, discovered)
    if chosen is not None:
        chosen[kept] = True
        n_chosen = int(np.count_nonzero(chosen))
        k = n_chosen if method.n_features_to_select in (None, AUTO) else min(k, n_chosen)
    outcome = replace(outcome, scores=method.ranked_by(outcome.scores), discovered=discovered)
    ranking = outcome.order(varies)
    if pairs is not None and method.per_label is not None:
        place = np.minimum(pairs.place, method.per_label)[ranking]
        ranking = ranking[np.lexsort((np.where(place < method.per_label, pairs.surest[ranking], 0), place))]
    if chosen is not None:
        ranking = ranking[np.argsort(~chosen[ranking], kind="stable")]
    ranking = kept_first(ranking, kept)
    groups: Any = method.groups
    if groups is not None:
        return _choose_groups(method, readings, outcome, ranking, groups, k)
    bound = method.redundancy if method.prune is None else method.prune
    if bound is None:
        return Choice(outcome, ranking, k)
    prunes = method.prune is not None
    may_be_chosen = varies.copy() if chosen is None else chosen
    may_be_chosen[kept] = True
    clusters = find_clusters(readings, ranking[may_be_chosen[ranking]], bound, k, fills_up=prunes, names=readings.names)
    warnings: list[Warning] = []
    if prunes:
        first = clusters["feature"][clusters["feature"] == clusters["representative"]]
        ranking = kept_first(ranking, first)
        if len(first) < k and chosen is None:
            warnings.append(
                UserWarning(
                    f"{len(first):,} of {number_of(len(ranking), 'feature')} are kept, and not {k:,}: the others do "
                    f"not vary, or their correlation with one of these is {bound:g} or more ({parameter('prune')})"
                )
            )
        k = len(first)
    of_chosen = np.isin(clusters["representative"], ranking[:k])
    return Choice(outcome, ranking, k, clusters[of_chosen], warnings)


def _choose_groups(
    method: Method, readings: Readings, outcome: Scores, ranking: NDArray[np.int64], groups: Groups, k: int
) -> Choice:
    """The k best groups, each with its features in the order of their ranking."""
    groups = groups.of_features(method.features(len(groups.of)))
    varies, d = readings.varies, len(ranking)
    if method.group_by == "joint":
        sums, grams = readings.run(GROUPS, *method.joint_statistics(readings.source, groups))
        scores = groups.joint_scores(grams, sums)
    else:
        own = outcome.scores
        if outcome.ranking is not None:  # chosen one after another: the place stands for the score
            own = np.empty(d)
            own[outcome.order(varies)] = 1 - np.arange(d) / d
        scores = groups.scores(own, varies, method.group_by)
    finite = np.isfinite(scores)
    scores[finite] = round_scores(scores[finite])
    scores[~finite] = min(0.0, scores[finite].min(initial=0.0))
    first = np.full(len(scores), d)
    np.minimum.at(first, groups.of, np.arange(d))
    order = np.lexsort((first, -scores, ~finite))
    order = kept_first(order, np.array(list(dict.fromkeys(groups.of[readings.kept].tolist())), np.int64))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ranking = ranking[np.argsort(place[groups.of[ranking]], kind="stable")]
    chosen = order[:k]
    count = int(np.isin(groups.of, chosen).sum())
    names = [groups.names[g] for g in chosen.tolist()]
    return Choice(outcome, ranking, count, group_scores=scores[groups.of], chosen_groups=names)


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


def of_all_features(values: NDArray[Any], features: NDArray[np.int64] | None, d: int, excluded: Any) -> NDArray[Any]:
    """Values of the features that were read, and `excluded` for the others; shape (d, ...).

    >>> of_all_features(np.array([0.5, 2.0]), np.array([0, 2]), 3, -1)
    array([ 0.5, -1. ,  2. ])
    """
    if features is None:
        return values
    whole = np.full((d, *values.shape[1:]), excluded, values.dtype)
    whole[features] = values
    return whole


def ranking_of_all(ranking: NDArray[np.int64], features: NDArray[np.int64] | None, d: int) -> NDArray[np.int64]:
    """A ranking of the features that were read, as one of all: the others come last, by index."""
    if features is None:
        return ranking
    return np.concatenate([features[ranking], np.delete(np.arange(d), features)])


def facts(method: Method, names: Names) -> Mapping[str, Any]:
    """What the record says of the features that were kept and excluded.

    Parameters
    ----------
    method : Method
        `with_numbers`.
    names : Names
        Of the data.
    """

    def named(numbers: Any) -> list[Any]:
        return [number if names.features is None else str(names.features[number]) for number in numbers or ()]

    noted: dict[str, Any] = {"kept_features": named(method.keep), "excluded_features": named(method.exclude)}
    groups: Any = method.groups
    if groups is not None:
        noted["groups_digest"] = digest_of({"of": groups.of, "names": list(groups.names)})
    return {name: value for name, value in noted.items() if value}
