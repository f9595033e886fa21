"""Which features are chosen, after they were scored: those that are kept in any case first, none that is excluded.

Of features that say the same one is chosen, where that is asked for (`mlfs_dask.selection.redundancy`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import number_of, parameter
from mlfs_dask.selection.groups import GROUPS, Groups
from mlfs_dask.selection.pairs import Pairs, chosen_by_pairs
from mlfs_dask.selection.question import Question, joint_statistics
from mlfs_dask.selection.redundancy import find_clusters
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.selectors.scores import (
    AUTO,
    RankStability,
    Scores,
    kept_first,
    lower_constant,
    rank_stability,
    round_scores,
)
from mlfs_dask.typing import Array


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which features are chosen, and what is known of each.

    Attributes
    ----------
    scores : float64 array, shape (d,)
        Larger is better; no feature that does not vary exceeds one that does. NaN: never read.
    ranking : int64 array, shape (d,)
        Features, best first.
    k : int
        How many are chosen: the first of the ranking.
    q_values : float64 array, shape (d,), or None
        As of `Scores`.
    stability : RankStability or None
        Of resampled rows.
    shared : float64 array, shape (d,), or None
        As of `Scores`.
    clusters : array of `redundancy.ROW`, or None
        Features that say the same as a chosen one, and these, where that was asked for.
    group_scores : float64 array, shape (d,), or None
        Of the group of each feature.
    chosen_groups : list of str, or None
        Names of the groups that are chosen, best first.
    """

    scores: Array
    ranking: NDArray[np.int64]
    k: int
    q_values: Array | None = None
    stability: RankStability | None = None
    shared: Array | None = None
    clusters: NDArray[np.void] | None = None
    group_scores: Array | None = None
    chosen_groups: list[str] | None = None

    def widened(self, features: NDArray[np.int64] | None, d: int) -> Choice:
        """The choice of some of the features as one of all d; those that were not read come last, by index."""
        if features is None:
            return self

        def wide(values: NDArray[Any] | None, of_others: Any) -> Any:
            return None if values is None else of_all_features(values, features, d, of_others)

        stability, clusters = self.stability, self.clusters
        if stability is not None:
            intervals, frequency = wide(stability.intervals, d), wide(stability.frequency, 0)
            stability = stability._replace(intervals=intervals, frequency=frequency)
        if clusters is not None:
            clusters = clusters.copy()
            for column in ("feature", "representative"):
                clusters[column] = features[clusters[column]]
        lowest = None if self.group_scores is None else self.group_scores.min()
        return replace(
            self,
            scores=of_all_features(self.scores, features, d, np.nan),
            ranking=np.concatenate([features[self.ranking], np.delete(np.arange(d), features)]),
            q_values=wide(self.q_values, np.nan),
            stability=stability,
            shared=wide(self.shared, 0.0),
            clusters=clusters,
            group_scores=wide(self.group_scores, lowest),
        )


def choose(
    question: Question, readings: Readings, outcome: Scores, pairs: Pairs | None = None
) -> tuple[Choice, list[Warning]]:
    """The choice that follows from scores, of the features that were read, and its warnings.

    Parameters
    ----------
    question : Question
    readings : Readings
        Of the fit.
    outcome : Scores
    pairs : Pairs, optional
        Tests of labels and features.

    Raises
    ------
    DataError, DoesNotFitError, ClusterLostError
    """
    varies, kept, k = readings.varies, readings.kept, readings.asked.k
    if pairs is not None and question.is_auto and question.control is not None:
        found, q = pairs.discovered(question.fdr)
        outcome = replace(outcome, discovered=found, q_values=q)
    discovered = None if outcome.discovered is None else outcome.discovered & varies
    chosen = discovered if pairs is None else chosen_by_pairs(question, pairs, discovered)
    if chosen is not None:
        chosen[kept] = True
        n_chosen = int(np.count_nonzero(chosen))
        k = n_chosen if question.n_features_to_select in (None, AUTO) else min(k, n_chosen)
    outcome = replace(outcome, scores=question.method.ranked_by(outcome.scores), discovered=discovered)
    ranking = outcome.order(varies)
    if pairs is not None and question.per_label is not None:
        place = np.minimum(pairs.place, question.per_label)[ranking]
        ranking = ranking[np.lexsort((np.where(place < question.per_label, pairs.surest[ranking], 0), place))]
    if chosen is not None:
        ranking = ranking[np.argsort(~chosen[ranking], kind="stable")]
    choice = Choice(
        scores=lower_constant(outcome.scores, varies),
        ranking=kept_first(ranking, kept),
        k=k,
        q_values=outcome.q_values,
        shared=outcome.shared,
    )
    warnings: list[Warning] = []
    groups = question.groups_read
    if groups is not None:
        choice = _choose_groups(question, readings, outcome, groups, choice)
    elif question.prune is not None or question.redundancy is not None:
        choice = _find_redundant(question, readings, chosen, choice)
        if choice.k < k and chosen is None:
            warnings = [_fewer(choice, k, question)]
    if outcome.resampled_scores is not None:
        resampled = question.method.ranked_by(outcome.resampled_scores)
        choice = replace(choice, stability=rank_stability(resampled, choice.k, varies))
    return choice, warnings


def _find_redundant(question: Question, readings: Readings, chosen: NDArray[np.bool_] | None, choice: Choice) -> Choice:
    """The choice with features that say the same as better ones, which are passed over where that is asked for."""
    ranking, k, prunes = choice.ranking, choice.k, question.prune is not None
    bound = question.prune if question.prune is not None else question.redundancy
    assert bound is not None
    may_be_chosen = readings.varies.copy() if chosen is None else chosen
    may_be_chosen[readings.kept] = True
    clusters = find_clusters(readings, ranking[may_be_chosen[ranking]], bound, k, fills_up=prunes, names=readings.names)
    if prunes:
        first = clusters["feature"][clusters["feature"] == clusters["representative"]]
        ranking, k = kept_first(ranking, first), len(first)
    of_chosen = np.isin(clusters["representative"], ranking[:k])
    return replace(choice, ranking=ranking, k=k, clusters=clusters[of_chosen])


def _fewer(choice: Choice, k: int, question: Question) -> Warning:
    """The warning of fewer features than were asked for, because others were passed over."""
    return UserWarning(
        f"{choice.k:,} of {number_of(len(choice.ranking), 'feature')} are kept, and not {k:,}: the others do not vary, "
        f"or their correlation with one of these is {question.prune:g} or more ({parameter('prune')})"
    )


def _choose_groups(question: Question, readings: Readings, outcome: Scores, groups: Groups, choice: Choice) -> Choice:
    """The choice of the k best groups, each with its features in the order of their ranking."""
    varies, d, ranking = readings.varies, len(choice.ranking), choice.ranking
    if question.group_by == "joint":
        sums, grams = readings.run(GROUPS, *joint_statistics(readings.source, groups))
        scores = groups.joint_scores(grams, sums)
    else:
        own = outcome.scores
        if outcome.ranking is not None:  # chosen one after another: the place stands for the score
            own = np.empty(d)
            own[outcome.order(varies)] = 1 - np.arange(d) / d
        scores = groups.scores(own, varies, question.group_by)
    finite = np.isfinite(scores)
    scores[finite] = round_scores(scores[finite])
    scores[~finite] = min(0.0, scores[finite].min(initial=0.0))
    first = np.full(len(scores), d)
    np.minimum.at(first, groups.of, np.arange(d))
    order = np.lexsort((first, -scores, ~finite))
    order = kept_first(order, np.array(list(dict.fromkeys(groups.of[readings.kept].tolist())), np.int64))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    chosen = order[: choice.k]
    return replace(
        choice,
        ranking=ranking[np.argsort(place[groups.of[ranking]], kind="stable")],
        k=int(np.isin(groups.of, chosen).sum()),
        group_scores=scores[groups.of],
        chosen_groups=[groups.names[g] for g in chosen.tolist()],
    )


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
