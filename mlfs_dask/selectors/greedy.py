"""Greedy selection by information: features are chosen one after another, each by what it shares with those before.

In every step a criterion weighs the relevance of every feature, the sum over the labels of I(f; l), against what the
feature shares with the chosen ones: I(f; s), or the sum over the labels of I(f; s; l). Relevances are read once. What
pairs share is read for many candidates at once: the feature that was chosen last and the others of highest score, which
will mostly be chosen next. Every step scores all features exactly; the data is read again when a feature is chosen that
has not been among the candidates.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.counts import CodeBook
from mlfs_dask.engine.readings import is_cached
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import LEFT_OUT, family
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings
from mlfs_dask.selectors.counting import CountingSelector
from mlfs_dask.selectors.parameters import Binning, Bins, MissingOrCode, seed_of
from mlfs_dask.selectors.scores import Scores, rank
from mlfs_dask.statistics.pairs import PairInformation, pair_information, partners_of_a_reading
from mlfs_dask.statistics.resampling import NOT_RESAMPLED
from mlfs_dask.typing import Array, Seed, join_terms

#: What the passes are called that count candidates against all features.
PAIRS = "pairs"

#: Fewest candidates of a pass: with fewer it would hardly be faster.
MIN_CANDIDATES = 64

#: Pairs of a feature and a candidate (times 1 + q where the criterion takes labels) that are counted and turned into
#: information in the time in which one stored value is read and coded, and in that which any pass takes.
VALUE_TERMS, READING_TERMS = 3, 10**6

#: Most passes of pairs that noise took: so many for each block of candidates that k steps need at least, and so many
#: more (`benchmarks/greedy.py`, and 4 sets of 500 to 20 000 rows with k = 64 to 500 and 16 to 100 candidates).
READINGS_PER_BLOCK, FURTHER_READINGS = 3, 9


@family
class GreedySelector(CountingSelector):
    """Base class of selectors that choose one feature after another by what pairs of features share.

    A subclass may have another criterion (`_criterion`), and says what of a pair it needs (`_of_pairs`).
    """

    on_features = (
        "No more are chosen one after another: the others are ranked by their score in the step that chose the last."
    )
    family_notes = """
    `ranking_` begins with the selected features in the order of selection. `scores_` holds the value of the
    criterion in the step that selected a feature; for the other features, in the last step. One pass gives the
    relevances (as `LabelEntropy` with all labels). A second pass gives the redundancy of pairs for a block of
    candidates: the 64 features of highest score, or up to k if these are counted in the time of a pass. A further
    pass is made for the next block when a feature is selected that was not a candidate; a single block suffices for
    few features. Logarithms are natural. Scores follow from integer counts and are identical for any chunking,
    number of workers and memory.
    """
    known_entries = True
    unknown_entry = LEFT_OUT
    chooses_in_turn = True
    resamples_rows = False
    weighs_features = True
    passes = "2 to 1 + k/5 (1 more where ranges or quantiles are not recorded)"
    memory = "worker: 4 bytes * c * (codes - 1)^2 * d for c candidates (64 to k; fewer where memory is short)"

    #: Whether the criterion takes the interaction information with the labels.
    with_labels: ClassVar[bool] = False

    bins: Bins = 2
    binning: Binning = "auto"
    missing: MissingOrCode = "error"
    random_state: Annotated[Seed, seed_of("the rows that medians come from")] = None

    # ------------------------------------------------------------------ for subclasses

    def _criterion(self, relevance: Array, entropy: Array, shared: Array, chosen: list[int]) -> Array:
        """Return the score of every feature, by default its relevance less what it shares with the chosen ones.

        Parameters
        ----------
        relevance : float64 array, shape (d,)
            What the first feature is chosen by: the sum over the labels of I(f; l), unless the subclass counts more.
        entropy : float64 array, shape (d,)
        shared : float64 array, shape (d,)
            The sum of `_of_pairs` over the chosen features.
        chosen : list of int
            The features that have been chosen, at least one.
        """
        return relevance - shared

    def _of_pairs(self, terms: Array) -> Array:
        """Return the criterion's summands over chosen features, shape (c, d), from the terms of `PairInformation`."""
        pairs: Array = terms[-1]
        return pairs

    # ------------------------------------------------------------------ plan

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        cost = super().cost(source, resources, asked)
        profile = profile_of(source)
        book, _ = self.planned_book(source)
        k = asked.k
        *steps, last = cost.steps
        assert isinstance(last, str)
        held = join_terms(last, "4 d + 3 candidates d")  # what chosen features share, and candidates
        count = self._n_candidates(source, resources, book, k) if k > 1 else 0
        if count:
            statistic = self._candidates(source, book, book.widest(count))
            most = 1 if count == profile.d else k - 1
            least = math.ceil((k - 1) / count)
            typical = least, max(least, min(math.ceil(k / 5), READINGS_PER_BLOCK * least + FURTHER_READINGS))
            steps.append(Reading(PAIRS, (statistic,), times=most, typical=typical, workspace=held))
        notes = list(cost.notes)
        if 0 < count < profile.d:
            notes.append(f"{count:,} candidates are read at a time")
        return replace(cost, steps=[*steps, held], sizes={**cost.sizes, "candidates": count}, notes=notes)

    def _n_candidates(self, source: Profile | RowSource, resources: Resources, book: CodeBook, k: int) -> int:
        """Return candidates of a pass.

        Raises
        ------
        DoesNotFitError
            The counts of a single one do not fit.
        """
        most = min(book.d, max(MIN_CANDIDATES, min(k, self._worthwhile(source, book))))
        if is_cached(source, self._candidates(source, book, np.arange(book.d))):
            most = book.d  # methods that weigh all features have left the pairs
        return partners_of_a_reading(source, resources, book, most, with_labels=self.with_labels)

    def _worthwhile(self, source: Profile | RowSource, book: CodeBook) -> int:
        """Return candidates that take as long to be counted and looked at as the data takes to be read.

        Those that are not chosen before the next pass were in vain; of more than these another pass is cheaper.
        """
        profile = profile_of(source)
        if profile.remote:
            return book.d
        terms = book.d * (1 + self.with_labels * profile.q) * (float(book.n_codes.mean()) / 2) ** 2
        return int((VALUE_TERMS * profile.nonzeros + READING_TERMS) / max(terms, 1))

    def _candidates(self, source: Profile | RowSource, book: CodeBook, features: NDArray[np.int64]) -> PairInformation:
        return pair_information(source, book, features, with_labels=self.with_labels)

    # ------------------------------------------------------------------ run

    def score(self, readings: Readings) -> Scores:
        profile, k = readings.source.profile, readings.asked.k
        (counts,) = self.read_counts(readings, NOT_RESAMPLED)
        relevance, entropy, book = counts.scores, counts.entropy, counts.book
        count = self._n_candidates(readings.source, readings.resources, book, k) if k > 1 else 0

        scores = relevance
        shared = np.zeros(profile.d)
        of_candidate: dict[int, Array] = {}
        chosen: list[int] = []
        chosen_scores: list[float] = []
        is_open = readings.varies.copy()
        is_open[readings.kept] = True
        first = readings.kept.tolist()
        k = min(k, int(np.count_nonzero(is_open)))
        begun = readings.begun
        if begun is not None and len(begun.chosen) > 1:  # the last is chosen again, by what is known of the others
            chosen, chosen_scores = begun.chosen[:-1].tolist(), begun.scores[:-1].tolist()
            is_open[chosen] = False
            shared = begun.shared.copy()
            scores = self._criterion(relevance, entropy, shared, chosen)
        while len(chosen) < k:
            open_scores = np.where(is_open, scores, -np.inf)
            open_scores[first[len(chosen) :]] = np.inf  # they come next, whatever their score
            best = first[len(chosen)] if len(chosen) < len(first) else int(np.argmax(open_scores))
            is_open[best] = False
            chosen.append(best)
            chosen_scores.append(scores[best])
            if len(chosen) == k:
                break

            if best not in of_candidate:
                open_scores[best] = np.inf
                ranked = rank(open_scores)[: np.count_nonzero(is_open) + 1]
                # What earlier candidates share is held for as many as are read now: memory has a bound.
                of_candidate = {f: of_candidate[f] for f in ranked[:count].tolist() if f in of_candidate}
                candidates = np.sort([f for f in ranked.tolist() if f not in of_candidate][:count])
                if count == profile.d:  # as the plan has it: all, whose pairs the cache may have from other methods
                    candidates = np.arange(profile.d)
                ((terms, _),) = readings.run(PAIRS, self._candidates(readings.source, book, candidates))
                rows = self._of_pairs(terms)
                of_candidate |= {f: row.copy() for f, row in zip(candidates.tolist(), rows, strict=True)}
                del terms, rows  # which a copied row does not hold
            shared += of_candidate.pop(best)
            scores = self._criterion(relevance, entropy, shared, chosen)

        others = rank(scores)
        ranking = np.concatenate([chosen, others[~np.isin(others, chosen)]]).astype(np.int64)
        scores = scores.copy()
        scores[chosen] = chosen_scores
        return Scores(
            scores,
            ranking=ranking,
            extra={"candidates": count, "chosen_in_turn": len(chosen)},
            shared=shared,
            warnings=self._warnings(counts.features, entropy, counts.label_entropies),
        )
