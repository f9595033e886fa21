"""MAMFS: the subset of features with which naive Bayes errs least on rows held out (Lee & Kim 2015).

Counts of all rows and a sample come in one pass; the search is the driver's work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.counts import BlockCoder, CodeBook, code_indicators, layout_counts
from mlfs_dask.blocks.entropy import entropy_of_counts, information
from mlfs_dask.blocks.naive_bayes import bayes_terms, count_mistakes
from mlfs_dask.blocks.pair_scores import Counts
from mlfs_dask.blocks.rounding import INFORMATION_DIGITS
from mlfs_dask.blocks.row_draws import bits_of_rows, mix_bits
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import LEFT_OUT, method
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings
from mlfs_dask.selectors.counting import COUNTS, CountingSelector, label_entropies
from mlfs_dask.selectors.global_information import first_of_same
from mlfs_dask.selectors.parameters import Binning, Bins, MissingOrCode, Param, seed_of
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.memetic import Population, criterion, search_subsets
from mlfs_dask.statistics.counts import CodeCounts
from mlfs_dask.statistics.sample import RowSample, SampledRows, draw_rows
from mlfs_dask.typing import Array, Seed, join_terms, numbers

#: A part of the sample that is held out.
HELD_OUT = 5

#: Features of which what they share with all others is held, at least; and as a multiple of those that are kept.
HELD_PAIRS, HELD_PAIRS_OF_K = 256, 2


@method(
    "mamfs",
    "Memetic search for a subset (MAMFS)",
    paper="Lee & Kim 2015, Information Sciences 293, 80-96",
    doi="10.1016/j.ins.2014.09.020",
)
class MAMFS(CountingSelector):
    """Memetic feature selection (MAMFS; Lee & Kim 2015).

    Subsets of at most k features are evaluated by the Hamming loss of naive Bayes, with a classifier per label, on
    held-out rows. A population of subsets changes by crossover and mutation, and its best is refined: it gets
    features f of largest J_f = Σ_l I(f; l) − Σ_g I(f; g), the second sum being over the subset, and gives those of
    smallest J.

    Notes
    -----
    One pass over X of a store, which brings the counts of all rows and a sample; one more if ranges or quantiles
    are not recorded. A fifth of the sample is held out, by a hash of the row's number; naive Bayes learns from all
    other rows, that is from the counts less those of the rows held out, one row being added to each count. The
    redundancy of features comes from the sample. Scores are identical for any chunking and number of workers. A
    label counts over the rows where it is known.

    The features of the best subset come first, by their J, with scores from 2 to 3. Others have the share of the
    subsets at the end that have them, and less than one subset more by their information with the labels. The
    selection is largely random: with another seed few features of the best subset are the same.

    What differs from the authors' program (whose licence allows no copy: this is written from a description): values
    are codes for naive Bayes, too, where the program takes normal distributions, and features have 3 codes of equal
    width for the rest; the rows held out are always the same, so that a subset does not survive by luck with them;
    features whose codes part the rows alike are one to the search, and share its score. Two seeds share 18 % of the
    features on emotions and 51 % on yeast; of the best 20 features two of eight share 6 on emotions, 7 on yeast and 13
    on genbase (median of all pairs), and two mean rankings of four seeds each 5, 12 and 17. The loss in the record is
    that of the best of hundreds of subsets, and no estimate for other rows.

    References
    ----------
    J. Lee, D.-W. Kim, "Memetic feature selection algorithm for multi-label classification", Information Sciences 293
    (2015) 80-96, doi:10.1016/j.ins.2014.09.020.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.integers(0, 2, (60, 3)), Y])
    >>> sorted(mlfs.MAMFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [3, 4]
    """

    on_features = "No subset has more."
    n_population: Annotated[int, Param("Number of subsets that survive a generation.", least=2)] = 20
    n_judged: Annotated[
        int, Param("Number of subsets that are evaluated; the last generation of 6 is evaluated as a whole.")
    ] = 300
    n_sampled: Annotated[int, Param("Number of rows of the sample, at least 256; a fifth of them is held out.")] = 16384
    bins: Bins = 2
    binning: Binning = "auto"
    missing: MissingOrCode = "error"
    random_state: Annotated[
        Seed, seed_of("the sample, of the rows held out, of the search, and of the rows that medians come from")
    ] = None

    known_entries = True
    unknown_entry = LEFT_OUT
    choice_depends_on_k = True
    always_draws = True
    resamples_rows = False
    takes_weights = False
    passes = "1 (1 more where ranges or quantiles are not recorded)"
    memory = (
        "worker: 4 bytes * d * (codes - 1) * (q + 1); driver: 48 bytes * d * codes * (q + 1), the sample three times, "
        "and 16 bytes * k * d"
    )

    # ------------------------------------------------------------------ what is read

    def _statistic(self, **fields: Any) -> CodeCounts:  # type: ignore[override]  # no scores, but what they come from
        return CodeCounts(**fields)

    def _statistics(
        self, source: Profile | RowSource, book: CodeBook, label_counts: NDArray[Any] | None
    ) -> tuple[CodeCounts, RowSample]:
        profile = profile_of(source)
        counts: Any = self._counts(source, book, label_counts)
        return counts, RowSample(draw_rows(profile, self.n_sampled, self.seed), profile)

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        book = self._book_before_reading(source)
        return () if book is None else self._statistics(source, book, source.label_counts)

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        profile = profile_of(source)
        label_counts = None if isinstance(source, Profile) else source.label_counts
        book, _ = self.planned_book(source)
        counts, sample = self._statistics(source, book, label_counts)
        before, held, sizes = self._code_readings(source, book)
        m = len(sample.chosen)
        of_row = -(-profile.nonzeros // max(profile.n, 1))
        sizes |= {
            "counts": numbers(counts.result_bytes),
            "rows": numbers(sample.result_bytes + m * (40 * of_row + 24 * profile.q)),
            "held": self._held_pairs(asked.k),
            "codes": int(book.n_codes.max(initial=1)),
        }
        # Where labels may be unknown codes are counted for each of them.
        n_counts = 9 if len(counts.unknown) else 5
        work = join_terms(held, f"{n_counts} counts + 2 rows + held d + 12 codes codes d + 12 d")
        n_judged = max(1, round(m / HELD_OUT))
        notes = [
            f"judges {self.n_judged:,} subsets on {n_judged:,} rows out of a sample of {m:,}",
            *self._crowding_notes(source, book),
        ]
        return Cost([*before, Reading(COUNTS, (counts, sample), workspace=held), work], sizes, notes=notes)

    def _held_pairs(self, k: int) -> int:
        return max(HELD_PAIRS, HELD_PAIRS_OF_K * k)

    # ------------------------------------------------------------------ run

    def score(self, readings: Readings) -> Scores:
        profile, k = readings.source.profile, readings.asked.k
        book, features, label_counts = self._read_codes(readings)
        statistics = self._statistics(readings.source, book, label_counts)
        (counts, entropy), sample = readings.run(COUNTS, *statistics)
        warnings = self._warnings(features, entropy, label_entropies(label_counts, profile.total))
        unknown, marks = statistics[0].unknown, np.full(profile.q, -1)
        marks[unknown] = profile.q + np.arange(len(unknown))
        positives = np.concatenate([label_counts[2], label_counts[0, unknown]]).astype(np.float64)
        joint = np.empty_like(counts[:, 1:])
        joint[:, statistics[0].labels] = counts[:, 1:]
        every = Counts(joint, counts[:, :1], positives[:, np.newaxis], profile.n).known(marks)
        shared = information(every)
        relevance: Array = shared.sum(axis=0)
        scores, varying = np.zeros(profile.d), np.flatnonzero(entropy > 0)
        if not relevance.any():
            return Scores(scores, warnings=warnings, informative=True)
        rows = CodedRows.of_sample(sample, varying, book)
        told, keys = np.round(shared[:, varying], INFORMATION_DIGITS), rows.partition_keys()
        first, copy_of = np.unique(first_of_same(told.T, keys[:, np.newaxis]), return_inverse=True)
        # Features that tie in both are in the order of their keys, not in that of the columns.
        entropies = np.round(entropy[varying], INFORMATION_DIGITS)
        order = np.lexsort(
            [*told[:, first], keys[first], -entropies[first], -np.round(told.sum(axis=0), INFORMATION_DIGITS)[first]]
        )
        first, copy_of = first[order], np.argsort(order)[copy_of]
        rows, chosen = rows.choose(first), varying[first]
        judged = held_out(statistics[1].chosen, self.seed)
        occurring = np.count_nonzero(counts[:, 0, chosen], axis=0)  # a feature may be known to have no more, or not
        of_chosen = every._replace(joint=every.joint[..., chosen], marginal=every.marginal[..., chosen])
        judge = judge_by_naive_bayes(rows.take(judged), of_chosen, occurring)
        redundancy = lru_cache(self._held_pairs(k))(rows.redundancy)
        found = search_subsets(
            judge,
            relevance[chosen],
            redundancy,
            k=min(k, len(chosen)),
            n_population=self.n_population,
            n_judged=self.n_judged,
            random=np.random.default_rng(self.seed),
        )
        scores[varying] = score_population(found, relevance[chosen], redundancy)[copy_of]
        extra = {
            "hamming_loss": found.losses[0],
            "subset": sorted(chosen[found.subsets[0]].tolist()),
            "judged_subsets": len(found.history),
            "held_out_rows": len(judged),
            "sampled_rows": sample.Y.shape[0],
        }
        return Scores(scores, extra=extra, warnings=warnings, informative=True)


def score_population(found: Population, relevance: Array, redundancy: Callable[[int], Array]) -> Array:
    """Return the scores of features: from 2 to 3 by J in the best subset, below 2 by the share of subsets that have
    a feature.

    Examples
    --------
    >>> best, other = np.array([0, 1]), np.array([1, 2])
    >>> pairs = np.array([[0.7, 0.1, 0.0, 0.0], [0.1, 0.7, 0.0, 0.0]])
    >>> score_population(Population([best, other], [0.1, 0.2], []), np.array([0.5, 0.4, 0.3, 0.0]), pairs.__getitem__)
    array([3.  , 2.  , 0.65, 0.  ])
    """
    m = len(found.subsets)
    scores = np.bincount(np.concatenate(found.subsets), minlength=len(relevance)) / m
    scores += 0.5 / m * relevance / (relevance.max() or 1.0)
    best = found.subsets[0]
    J = criterion(best, relevance, redundancy)[best]
    scores[best] = 2.0 + (J - J.min()) / (np.ptp(J) or 1.0)
    return scores


@dataclass(frozen=True)
class CodedRows:
    """Rows as codes of features, of which all but one, the reference, have a column.

    Attributes
    ----------
    indicators : csc_array of float64, shape (n, columns)
    Y : int8 array, shape (n, q)
        1, 0, and -1 for unknown entries.
    n_codes : int64 array, shape (d,)
    offset : int64 array, shape (d + 1,)
        Where the columns of each feature begin.
    reference : int64 array, shape (d,)
        The code without a column.
    """

    indicators: sp.csc_array
    Y: NDArray[np.int8]
    n_codes: NDArray[np.int64]
    offset: NDArray[np.int64]
    reference: NDArray[np.int64]

    @classmethod
    def of_sample(cls, sample: SampledRows, features: NDArray[np.intp], book: CodeBook) -> CodedRows:
        """Return some features of sampled rows; the book is that of all."""
        own = book.select(features)
        layout = layout_counts(own, 0, own.d, sparse=True)
        indicators = sp.csc_array(code_indicators(BlockCoder(own, layout), sample.X[:, features]), dtype=np.float64)
        return cls(indicators, sample.Y.toarray(), own.n_codes, layout.offset, layout.reference)

    def take(self, rows: NDArray[np.intp]) -> CodedRows:
        """Return some of the rows."""
        return replace(self, indicators=sp.csc_array(sp.csr_array(self.indicators)[rows]), Y=self.Y[rows])

    def choose(self, features: NDArray[np.intp]) -> CodedRows:
        """Return some of the features, in their order."""
        offset = np.concatenate([[0], np.cumsum(np.diff(self.offset)[features])])
        indicators = self.indicators[:, self.columns(features)]
        return CodedRows(indicators, self.Y, self.n_codes[features], offset, self.reference[features])

    def partition_keys(self) -> NDArray[np.uint64]:
        """Return a key of each feature, equal where codes part the rows alike, as of a 0/1 feature and its
        complement.
        """
        n, d = self.indicators.shape[0], len(self.n_codes)
        hashes = bits_of_rows(np.arange(n))
        sums = np.concatenate([[np.uint64(0)], np.cumsum(hashes[self.indicators.indices], dtype=np.uint64)])
        of_codes = np.diff(sums[self.indicators.indptr])
        feature, keys, rest = self.places[0], np.zeros(d, np.uint64), np.full(d, hashes.sum(dtype=np.uint64))
        np.add.at(keys, feature, mix_bits(of_codes))
        np.subtract.at(rest, feature, of_codes)
        return keys + mix_bits(rest)

    @property
    def places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Feature and code of every column."""
        feature = np.repeat(np.arange(len(self.n_codes)), np.diff(self.offset))
        place = np.arange(len(feature)) - self.offset[feature]
        return feature, place + (place >= self.reference[feature])

    def columns(self, features: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the columns of some features."""
        return np.concatenate([np.arange(self.offset[f], self.offset[f + 1]) for f in features.tolist()])

    def count(self, columns: Array, totals: Array) -> Array:
        """Return rows of every code that have each column, shape (codes, c, d).

        Parameters
        ----------
        columns : float64 array, shape (n, c)
        totals : float64 array, shape (c,)
            Rows that have each column.
        """
        feature, code = self.places
        table = np.zeros((int(self.n_codes.max()), len(totals), len(self.n_codes)))
        table[code, :, feature] = self.indicators.T @ columns
        table[self.reference, :, np.arange(len(self.n_codes))] = totals - table.sum(axis=0).T
        return table

    def redundancy(self, g: int) -> Array:
        """Return the information of every feature with one, over the rows, shape (d,)."""
        n = self.indicators.shape[0]
        codes = np.hstack([np.ones((n, 1)), self.indicators[:, self.columns(np.array([g]))].toarray()])
        own = codes.sum(axis=0)
        joint = self.count(codes, own)
        marginal = joint[:, 0].copy()
        own[0] -= own[1:].sum()
        joint[:, 0] -= joint[:, 1:].sum(axis=1)  # of the code of g that has no column
        alone = entropy_of_counts(marginal, n) + entropy_of_counts(own[:, np.newaxis], n)
        return np.maximum(alone - entropy_of_counts(joint, n, axes=2), 0.0)


def judge_by_naive_bayes(
    rows: CodedRows, counts: Counts, n_codes: NDArray[np.int64]
) -> Callable[[NDArray[np.intp]], float]:
    """Return the Hamming loss, on known labels of some rows, of naive Bayes on some features, learnt from all
    other rows.

    Parameters
    ----------
    rows : CodedRows
        Held out.
    counts : Counts
        Of all rows, these included; of each label over those where it is known.
    n_codes : int64 array, shape (d,)
        Codes that rows have, of each feature.
    """
    known, Y = rows.Y >= 0, rows.Y > 0
    # Where all labels are known the rows of a code are the same for each.
    columns = known if counts.marginal.shape[1] > 1 else np.ones((len(Y), 1), bool)
    held, positives = columns.sum(axis=0, dtype=np.float64), Y.sum(axis=0, dtype=np.float64)
    terms = bayes_terms(
        counts.joint - rows.count(Y.astype(np.float64), positives),
        counts.marginal - rows.count(columns.astype(np.float64), held),
        counts.positives[:, 0] - positives,
        np.ravel(counts.n) - held,
        n_codes,
    )
    n_known = max(int(np.count_nonzero(known)), 1)
    feature, code = rows.places
    base = terms.codes[rows.reference, :, np.arange(len(rows.n_codes))]
    added = terms.codes[code, :, feature] - base[feature]

    def hamming_loss(features: NDArray[np.intp]) -> float:
        columns = rows.columns(features)
        start = terms.prior + base[features].sum(axis=0)
        return count_mistakes(rows.indicators[:, columns], rows.Y, start, added[columns]) / n_known

    return hamming_loss


def held_out(numbers: NDArray[np.int64], seed: int) -> NDArray[np.intp]:
    """Return places of a fifth of some rows, rising: those whose numbers have the least hash, with a key that is drawn.

    >>> held_out(np.arange(10), 0).tolist() == held_out(np.arange(10), 0).tolist(), len(held_out(np.arange(10), 0))
    (True, 2)
    """
    key = int(np.random.SeedSequence([seed, HELD_OUT]).generate_state(1, np.uint64)[0])
    count = max(1, round(len(numbers) / HELD_OUT))
    return np.sort(np.argsort(bits_of_rows(numbers, key), kind="stable")[:count])
