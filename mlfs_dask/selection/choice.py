"""Choice of features from scores: kept ones first, excluded ones never.

Optionally, one representative of each cluster of correlated features (`mlfs_dask.selection.redundancy`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import number_of, parameter
from mlfs_dask.selection.groups import GROUPS, Groups
from mlfs_dask.selection.pairs import Pairs, select_by_pairs
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
    """Chosen features, with scores and further values for all features.

    Attributes
    ----------
    scores : float64 array, shape (d,)
        Larger is better; constant features never exceed varying ones. NaN: excluded.
    ranking : int64 array, shape (d,)
        Features, best first.
    k : int
        Number of chosen features, the first of the ranking.
    q_values : float64 array, shape (d,), or None
        See `Scores`.
    stability : RankStability or None
        Stability over resampled rows.
    shared : float64 array, shape (d,), or None
        See `Scores`.
    clusters : array of `redundancy.ROW`, or None
        Chosen features and the features correlated with them, for `prune` and `redundancy`.
    group_scores : float64 array, shape (d,), or None
        Score of the group of each feature.
    chosen_groups : list of str, or None
        Names of the chosen groups, best first.
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

    def among_all_features(self, features: NDArray[np.int64] | None, d: int) -> Choice:
        """Return the choice among all d features; features that were not read rank last, by index."""
        if features is None:
            return self

        def expand(values: NDArray[Any] | None, default: Any) -> Any:
            return None if values is None else of_all_features(values, features, d, default)

        stability, clusters = self.stability, self.clusters
        if stability is not None:
            intervals, frequency = expand(stability.intervals, d), expand(stability.frequency, 0)
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
            q_values=expand(self.q_values, np.nan),
            stability=stability,
            shared=expand(self.shared, 0.0),
            clusters=clusters,
            group_scores=expand(self.group_scores, lowest),
        )


def choose(
    question: Question, readings: Readings, outcome: Scores, pairs: Pairs | None = None
) -> tuple[Choice, list[Warning]]:
    """Return the choice among the features that were read, and its warnings.

    Parameters
    ----------
    question : Question
    readings : Readings
        Passes of the fit.
    outcome : Scores
    pairs : Pairs, optional
        Tests of label-feature pairs.

    Raises
    ------
    DataError, DoesNotFitError, ClusterLostError
    """
    varies, kept, k = readings.varies, readings.kept, readings.asked.k
    if pairs is not None and question.is_auto and question.control is not None:
        significant, q = pairs.discovered(question.fdr)
        outcome = replace(outcome, discovered=significant, q_values=q)
    discovered = None if outcome.discovered is None else outcome.discovered & varies
    chosen = discovered if pairs is None else select_by_pairs(question, pairs, discovered)
    if chosen is not None:
        chosen[kept] = True
        n_chosen = int(np.count_nonzero(chosen))
        k = n_chosen if question.n_features_to_select in (None, AUTO) else min(k, n_chosen)
    outcome = replace(outcome, scores=question.method.ranked_by(outcome.scores), discovered=discovered)
    ranking = outcome.order(varies)
    if pairs is not None and question.per_label is not None:
        rank_of_best = np.minimum(pairs.best_rank, question.per_label)[ranking]
        order = np.where(rank_of_best < question.per_label, pairs.best_order[ranking], 0)
        ranking = ranking[np.lexsort((order, rank_of_best))]
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
        choice = _choose_unique(question, readings, chosen, choice)
        if choice.k < k and chosen is None:
            text = (
                f"{choice.k:,} of {number_of(len(choice.ranking), 'feature')} are kept, and not {k:,}: the others do "
                f"not vary, or their correlation with one of these is {question.prune:g} or more ({parameter('prune')})"
            )
            warnings = [UserWarning(text)]
    if outcome.resampled_scores is not None:
        resampled = question.method.ranked_by(outcome.resampled_scores)
        choice = replace(choice, stability=rank_stability(resampled, choice.k, varies))
    return choice, warnings


def _choose_unique(question: Question, readings: Readings, chosen: NDArray[np.bool_] | None, choice: Choice) -> Choice:
    """Find clusters of correlated features; with `prune`, move their representatives to the front of the ranking."""
    ranking, k, prunes = choice.ranking, choice.k, question.prune is not None
    bound = question.prune if question.prune is not None else question.redundancy
    assert bound is not None
    eligible = readings.varies.copy() if chosen is None else chosen
    eligible[readings.kept] = True
    clusters = find_clusters(readings, ranking[eligible[ranking]], bound, k, fills_up=prunes, names=readings.names)
    if prunes:
        representatives = clusters["feature"][clusters["feature"] == clusters["representative"]]
        ranking, k = kept_first(ranking, representatives), len(representatives)
    of_chosen = np.isin(clusters["representative"], ranking[:k])
    return replace(choice, ranking=ranking, k=k, clusters=clusters[of_chosen])


def _choose_groups(question: Question, readings: Readings, outcome: Scores, groups: Groups, choice: Choice) -> Choice:
    """Return the choice of the k best groups; the features of a group follow one another in their ranking."""
    varies, d, ranking = readings.varies, len(choice.ranking), choice.ranking
    if question.group_by == "joint":
        sums, grams = readings.run(GROUPS, *joint_statistics(readings.source, groups))
        scores = groups.joint_scores(grams, sums)
    else:
        feature_scores = outcome.scores
        if outcome.ranking is not None:  # chosen one after another: the rank serves as the score
            feature_scores = np.empty(d)
            feature_scores[outcome.order(varies)] = 1 - np.arange(d) / d
        scores = groups.scores(feature_scores, varies, question.group_by)
    finite = np.isfinite(scores)
    scores[finite] = round_scores(scores[finite])
    scores[~finite] = min(0.0, scores[finite].min(initial=0.0))
    first = np.full(len(scores), d)
    np.minimum.at(first, groups.group_of, np.arange(d))
    order = np.lexsort((first, -scores, ~finite))
    order = kept_first(order, np.array(list(dict.fromkeys(groups.group_of[readings.kept].tolist())), np.int64))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    chosen = order[: choice.k]
    return replace(
        choice,
        ranking=ranking[np.argsort(rank[groups.group_of[ranking]], kind="stable")],
        k=int(np.isin(groups.group_of, chosen).sum()),
        group_scores=scores[groups.group_of],
        chosen_groups=[groups.names[g] for g in chosen.tolist()],
    )


def of_all_features(values: NDArray[Any], features: NDArray[np.int64] | None, d: int, excluded: Any) -> NDArray[Any]:
    """Expand values of the features that were read to all d features, with `excluded` for the others; shape (d, ...).

    >>> of_all_features(np.array([0.5, 2.0]), np.array([0, 2]), 3, -1)
    array([ 0.5, -1. ,  2. ])
    """
    if features is None:
        return values
    whole = np.full((d, *values.shape[1:]), excluded, values.dtype)
    whole[features] = values
    return whole
