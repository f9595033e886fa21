"""Codes, tiles and passes that methods from contingency tables share, and the base of filters of counts.

All follow from the counts N(feature, code, label): one pass over X once the codes' edges are known, which a store has
kept since its conversion; other data costs one more pass for the ranges. Counts that do not fit the workers are
tiled over features.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.codes import (
    CROWDED_SHARE,
    TABLE_SHARES,
    code_book,
    edge_rows,
    is_cut,
    known_crowded,
    widest_book,
)
from mlfs_dask.blocks.counts import MAX_CODES, CodeBook
from mlfs_dask.blocks.entropy import entropy_of_counts, information
from mlfs_dask.blocks.pair_scores import SUM, Aggregation, Counts, StratifiedCounts, score_pairs
from mlfs_dask.blocks.pair_tests import CMH, PEARSON, G
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, UsageError, parameter
from mlfs_dask.rows.contract import FeatureInfo, Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import LEFT_OUT, family
from mlfs_dask.selectors.costs import Asked, Cost, Names, Reading, Readings
from mlfs_dask.selectors.one_reading import OneReading, of_replicates, replicate_notes, replicate_sizes
from mlfs_dask.selectors.pairs import CountTests
from mlfs_dask.selectors.parameters import ON_AUTO, Binning, Bins, MissingOrCode, Resamples, seed_of
from mlfs_dask.selectors.scores import Scores, rank, uninformative_warning
from mlfs_dask.statistics.counts import (
    CodeTests,
    ContingencyCounts,
    CountScores,
    code_statistics,
    count_in_tiles,
)
from mlfs_dask.statistics.resampling import Resampled, Resampling
from mlfs_dask.statistics.sample import RowSample
from mlfs_dask.typing import Array, Matrix, Seed, join_terms, numbers

#: What the passes that count are called, and those that come before.
COUNTS = "counts"
CODE_READINGS = RANGES, QUANTILES = "ranges", "quantiles"

#: Entropy of a feature of two codes, one of which has 99 % of the rows. With more codes, one has more then.
CROWDED_ENTROPY = float(entropy_of_counts(np.array([[99], [1]]), 100)[0])


class CountResults(NamedTuple):
    """Results of the counts of all rows.

    Attributes
    ----------
    scores, entropy : float64 array, shape (d,)
        What the formula gives, and the entropies of features.
    label_entropies : float64 array, shape (q,)
    counted : int64 array, shape (p,)
        Labels that were counted.
    tiles : int
        Passes.
    features : FeatureInfo
    book : CodeBook
        How values became codes.
    """

    scores: Array
    entropy: Array
    label_entropies: Array
    counted: NDArray[np.int64]
    tiles: int
    features: FeatureInfo
    book: CodeBook


class CountingSelector(OneReading):
    """Base class of methods from contingency counts: codes, tiles, passes.

    A subclass says which labels are counted and what follows from the counts (`_statistic`). Codes and counted labels
    are those of the unchanged rows in every replicate.
    """

    scores_from_counts = True
    of_zeros = ""

    passes = (
        "1 (1 more where ranges or quantiles are not recorded, 1 more over the labels alone for -k auto, "
        "and 1 for each further tile)"
    )

    #: Whether pairs are tested by Pearson's statistic and not by G.
    tests_pearson: ClassVar[bool] = False
    #: Whether quantiles cut 0/1 features as numbers, too.
    quantiles_cut_binary: ClassVar[bool] = False

    bins: int
    binning: Binning
    missing: Literal["error", "code", "mean", "median"]

    # ------------------------------------------------------------------ what is counted

    def _n_counted(self, q: int) -> int:
        """Return the number of labels that are counted."""
        return q

    def _counted_labels(self, entropies: Array) -> NDArray[np.int64]:
        """Return labels in order of falling entropy, ties by index, as many as are counted."""
        return rank(entropies)[: self._n_counted(len(entropies))]

    def _statistic(self, **fields: Any) -> CountScores:
        """Return the statistic that counts all features at once, from the fields of `ContingencyCounts`; of
        information.
        """
        return CountScores(**fields, formula=_total_information, formula_key="information")

    # ------------------------------------------------------------------ plan

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        profile = profile_of(source)
        label_counts = self._label_counts(source)
        book, known = self.planned_book(source)
        counts = self._counts(source, book, label_counts)
        resampling = self.resampling(asked)
        tiles = count_in_tiles(counts, source, resources, resampling=resampling)

        before, of_codes, sizes = self._code_readings(source, counts.book)
        sizes |= {"replicates": len(resampling), **replicate_sizes(resampling, profile)}
        labels = "2 labels" if resampling.shuffles else ""
        held = join_terms(of_codes, "2 replicates d", labels)
        steps: list[Reading | str] = [*self.label_readings(profile, asked), *before]
        # Until edges and labels are known, the tiles are an estimate.
        name = COUNTS if known and label_counts is not None else "estimated counts"
        readings = [
            Reading(
                _tile_name(i, len(tiles), name),
                (_replicated(tile, resampling, profile), *self._code_tests(tile, source, asked)),
                workspace=held,
            )
            for i, tile in enumerate(tiles)
        ]
        n_labels, n_unknown = len(counts.marks), len(counts.unknown)
        note = f"counts of {n_labels:,} of {profile.q:,} labels"
        if n_unknown:
            note += f", {n_unknown:,} of which may be unknown"
        if counts.p > n_labels + n_unknown:
            note += f" and of {counts.p - n_labels - n_unknown:,} pairs of labels"
        note = ", ".join([note, *replicate_notes(resampling)])
        if len(tiles) > 1:
            note += f", tiled over {len(tiles):,} groups of at most {-(-profile.d // len(tiles)):,} features"
        notes = [note, *self._crowding_notes(source, counts.book)]
        scoring = join_terms(of_codes, "2 replicates d", "8 d", of_replicates(resampling))
        return Cost([*steps, *readings, scoring], sizes, notes=notes)

    def _crowding_notes(self, source: Profile | RowSource, book: CodeBook) -> list[str]:
        """Return notes about crowded codes of equal width before rows are counted."""
        if self.binning != "equal-width" or isinstance(source, Profile) or source.features.minimum is None:
            return []
        features = source.features
        crowded = is_cut(features) & known_crowded(features, book, source.quantiles)
        return _told_of_crowding(int(np.count_nonzero(crowded)), book.d)

    def _code_readings(
        self, source: Profile | RowSource, book: CodeBook
    ) -> tuple[list[Reading | str], str, dict[str, int]]:
        """Return steps until codes are known, what the driver holds from then on, and the size letters."""
        profile = profile_of(source)
        reading = self._code_reading(source)
        statistics = () if reading is None else reading.statistics
        sampled = sum(sample.result_bytes for sample in statistics if isinstance(sample, RowSample))
        sizes = {"d": profile.d, "edges": len(book.edges), "sample": numbers(sampled)}
        # Ranges, quantiles, and where the edges of a feature begin; while edges are found, terms of them and rows, too.
        held = f"{6 + len(TABLE_SHARES)} d + edges"
        finding = join_terms(held, "6 edges + 4 sample")
        return [finding] if reading is None else [replace(reading, workspace=held), finding], held, sizes

    def _code_reading(self, source: Profile | RowSource) -> Reading | None:
        """Return the pass from which edges of codes follow; None where what the source knows is enough."""
        profile = profile_of(source)
        ranges, sample = code_statistics(profile)
        if isinstance(source, Profile) or self._label_counts(source) is None or not self._has_ranges(source.features):
            return Reading(RANGES, (ranges,) if self.binning == "equal-width" else (ranges, sample))
        return Reading(QUANTILES, (sample,)) if self._known_book(source) is None else None

    def _has_ranges(self, features: FeatureInfo) -> bool:
        return features.minimum is not None and (self.binning != "auto" or features.zero_share is not None)

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        book = self._book_before_reading(source)
        if book is None or len(self.resampling(asked)) > 1:
            return ()
        tiles = count_in_tiles(self._counts(source, book, self._label_counts(source)), source, resources)
        return [*tiles, *self._code_tests(tiles[0], source, asked)] if len(tiles) == 1 else ()

    def _book_before_reading(self, source: RowSource) -> CodeBook | None:
        """Return the codes, where they follow without a pass."""
        return None if self._label_counts(source) is None else self._known_book(source)

    def _known_book(self, source: Profile | RowSource) -> CodeBook | None:
        """Return the codes, where they follow from what is known of the features."""
        if isinstance(source, Profile) or not self._has_ranges(source.features):
            return None
        # Where codes follow from ranges alone, no table of quantiles is read.
        return self._book(source.features) or self._book(source.features, table=source.quantiles)

    def _book(
        self,
        features: FeatureInfo,
        *,
        table: Array | None = None,
        sample: Matrix | None = None,
        weights: Array | None = None,
    ) -> CodeBook | None:
        return code_book(
            features,
            self.bins,
            self.binning,
            table=table,
            sample=sample,
            weights=weights,
            code_missing=self.missing == "code",
            cut_binary=self.quantiles_cut_binary,
        )

    def planned_book(self, source: Profile | RowSource) -> tuple[CodeBook, bool]:
        """Return the codes, and whether they are known; if not, no feature has fewer than it will have."""
        known, features = self._known_book(source), FeatureInfo()
        if known is not None:
            return known, True
        if not isinstance(source, Profile):
            features = source.features
        if features.minimum is None:
            # Numeric features count as having all `bins`.
            d = profile_of(source).d
            features = replace(features, minimum=np.zeros(d), maximum=np.ones(d))
        return widest_book(features, self.bins, self.binning, code_missing=self.missing == "code"), False

    def _label_counts(self, source: Profile | RowSource) -> NDArray[Any] | None:
        """Return (3, q) label counts, if known; 0 of labels within strata, all of which are counted in their order."""
        if isinstance(source, Profile):
            return None
        if source.strata is None:
            return source.label_counts
        return None if source.unknown_labels is None else np.zeros((3, source.profile.q), np.int64)

    def _counts(self, source: Profile | RowSource, book: CodeBook, label_counts: NDArray[Any] | None) -> CountScores:
        """Return the statistic that counts all features at once; label counts that are not known are all 0."""
        profile = profile_of(source)
        if label_counts is None:
            counted = np.arange(self._n_counted(profile.q))
        else:
            counted = self._counted_labels(label_entropies(label_counts, profile.total))
        strata = None if isinstance(source, Profile) else source.strata
        if strata is not None and len(counted) < profile.q:
            raise UsageError(
                f"in strata all labels are counted, and {self.method} counts some\n  cure: choose "
                f"{parameter('n_promising_labels', 1.0)}, or {parameter('strata_by', 'rank')}"
            )
        slots = np.full(profile.q, -1, dtype=np.int64)
        slots[counted] = np.arange(len(counted))
        unknown = unknown_labels(source if self.known_entries else profile)
        unknown = unknown[slots[unknown] >= 0]
        counts = self._statistic(
            unknown=unknown,
            book=book,
            first=0,
            last=profile.d,
            sparse=profile.sparse,
            slot_of_label=np.concatenate([slots, len(counted) + np.arange(len(unknown))]),
            n=profile.total,
            compiled=profile.nonzeros >= gates.COMPILED_VALUES and profile.weight is None,
            weighted=profile.weight is not None,
        )
        if strata is None or strata.categories is None:
            return counts
        n_strata = len(strata.categories)
        formula = partial(self.score_strata, n_strata=n_strata)
        return replace(counts, formula=formula, formula_key=[counts.formula_key, "strata", n_strata])

    def score_strata(self, counts: Counts, n_strata: int) -> Array:
        """Return (w,) scores from counts of every stratum, and of every label within each."""
        raise NotImplementedError

    def _code_tests(self, tile: ContingencyCounts, source: Profile | RowSource, asked: Asked) -> tuple[CodeTests, ...]:
        """Return the tests of pairs for a pass of counts, if they are requested and do not come from sums."""
        if not asked.tests_codes:
            return ()
        n_strata = len(source.strata.categories or ()) if isinstance(source, RowSource) and source.strata else 0
        of = profile_of(source).q, unknown_labels(source)
        return (CodeTests.of(tile, *of, n_strata=n_strata, pearson=self.tests_pearson),)

    # ------------------------------------------------------------------ run

    def replicates(self, job: Readings, resampling: Resampling) -> Iterator[dict[str, Any]]:
        for counts in self.read_counts(job, resampling):
            yield {"counts": counts}

    def prepare(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        return results  # codes were made of what has been examined

    def _read_codes(self, readings: Readings) -> tuple[CodeBook, FeatureInfo, NDArray[Any]]:
        """Return the code book of the features, facts about the features, and the (3, q) label counts.

        Unknown labels are refused by methods that take none.
        """
        source, profile = readings.source, readings.source.profile
        features, label_counts = source.features, self._label_counts(source)
        reading = self._code_reading(source)
        found = [] if reading is None else readings.run(reading.name, *reading.statistics)
        if reading is not None and reading.name == RANGES:
            ranges, found_counts = found.pop(0)
            label_counts = found_counts if label_counts is None else label_counts
            features = replace(ranges, n_categories=features.n_categories)
        assert label_counts is not None
        self.examine_unknown(readings, label_counts[0])
        if source.strata is not None:
            label_counts = np.zeros_like(label_counts)
        self._check_features(features, readings.names)
        readings.varies = self._varying(features)
        if found:
            weights = None if source.weights is None else source.weights[edge_rows(profile)]
            book = self._book(features, sample=found[0].X, weights=weights)
        else:
            book = self._known_book(source) or self._book(features)
        assert book is not None
        return book, features, label_counts

    def _varying(self, features: FeatureInfo) -> NDArray[np.bool_]:
        """Return features that vary, shape (d,); one that lacks values does, where these have a code of their own."""
        assert features.minimum is not None
        assert features.maximum is not None
        varies = features.minimum < features.maximum
        if self.missing == "code" and features.n_missing is not None:
            varies |= features.n_missing > 0
        return varies

    def read_counts(self, job: Readings, resampling: Resampling) -> list[CountResults]:
        """Make all passes, and return the results of the counts for the rows and for every replicate."""
        if job.asked.tests_codes:
            job.attached = ()  # counts are there for the tests
        book, features, label_counts = self._read_codes(job)
        source, profile = job.source, job.source.profile
        planned = sum(name.startswith(COUNTS) for name in job.plan.readings)
        counts = self._counts(source, book, label_counts)
        tiles = count_in_tiles(counts, source, job.resources, n_tiles=planned or None, resampling=resampling)
        results, found = np.empty((len(resampling), 2, profile.d)), []
        for i, tile in enumerate(tiles):
            replicated, asked = _replicated(tile, resampling, profile), self._code_tests(tile, source, job.asked)
            result, *tests = job.run(_tile_name(i, len(tiles)), replicated, *asked)
            found += [result for result, _ in tests]
            for of_rows, (of_tile,) in zip(results, result if len(resampling) > 1 else [[result]], strict=True):
                of_rows[:, tile.first : tile.last] = of_tile
        if found:
            categories = features.n_categories
            ordered = np.ones(profile.d, bool) if categories is None else categories <= 2
            job.pair_tests = CountTests(
                np.concatenate(found, axis=-1),
                ordered,
                CMH if source.strata is not None else PEARSON if self.tests_pearson else G,
                profile.total - label_counts[0],
                label_counts[2],
            )
        entropies = label_entropies(label_counts, profile.total)
        if source.strata is not None:
            entropies = np.ones_like(entropies)  # not known, and only looked at for warnings
        of_all = entropies, counts.counted_labels, len(tiles), features, book
        return [CountResults(scores, entropy, *of_all) for scores, entropy in results]

    def _warnings(self, features: FeatureInfo, feature_entropy: Array, label_entropies: Array) -> list[Warning]:
        """Return the warnings of features, or labels, that are all the same in every row, and of crowded codes of
        equal width.
        """
        d, q = len(feature_entropy), len(label_entropies)
        constant, constant_labels = (
            int(np.count_nonzero(entropy == 0)) for entropy in (feature_entropy, label_entropies)
        )
        if constant < d and constant_labels < q:
            if self.binning != "equal-width":
                return []
            crowded = is_cut(features) & (feature_entropy <= CROWDED_ENTROPY * (1 + 1e-9))
            return [UserWarning(told) for told in _told_of_crowding(int(np.count_nonzero(crowded)), d)]
        weighs = self.weighs_features
        return [
            uninformative_warning(
                self.method, constant=constant, d=d, constant_labels=constant_labels, q=q, weighs_features=weighs
            )
        ]

    @property
    def _missing_choices(self) -> str:
        return f"{parameter('missing', 'code')} to give them a code of their own, {super()._missing_choices}"

    def _check_features(self, features: FeatureInfo, names: Names) -> None:
        """Refuse infinite values, missing values where they are an error, and too many codes."""
        assert features.minimum is not None
        assert features.maximum is not None
        infinite = ~(np.isfinite(features.minimum) & np.isfinite(features.maximum))
        if infinite.any():
            raise DataError(
                "X contains infinity",
                column=names.first_feature(infinite),
                cure="replace infinite values, or leave the feature out",
            )
        missing = features.n_missing
        self.refuse_missing(missing, names)
        if features.n_categories is not None:
            n_codes = features.n_categories + (0 if missing is None else (missing > 0))
            wide = n_codes > MAX_CODES
            if wide.any():
                f = int(np.flatnonzero(wide)[0])
                raise DataError(
                    f"a categorical feature has {int(features.n_categories[f])} values; at most {MAX_CODES} can be "
                    "counted. It may be a row number",
                    column=names.first_feature(wide),
                    cure="leave it out when converting (`mlfs convert --drop NAME`), or join rare values",
                )


def _replicated(tile: ContingencyCounts, resampling: Resampling, profile: Profile) -> Statistic:
    """Return the tile for every replicate of the rows; as it is where there is none."""
    return tile if len(resampling) == 1 else Resampled([tile], resampling, profile)


def _told_of_crowding(crowded: int, d: int) -> list[str]:
    """Return the warning of crowded codes; none where there are none."""
    if not crowded:
        return []
    return [
        f"codes of equal width: one has {int(100 * CROWDED_SHARE)} % of the rows or more in {crowded:,} of {d:,} "
        f"features, and tells next to nothing there; {parameter('binning', 'auto')} cuts them where their values are"
    ]


def _tile_name(i: int, n_tiles: int, name: str = COUNTS) -> str:
    """Return the name of the pass over one tile.

    >>> _tile_name(0, 1), _tile_name(0, 3)
    ('counts', 'counts 1/3')
    """
    return name if n_tiles == 1 else f"{name} {i + 1}/{n_tiles}"


def label_entropies(label_counts: NDArray[Any], n: int | float) -> Array:
    """Return the entropy of every label over the rows where it is known, from the (3, q) label counts of n rows."""
    positives, unknown = label_counts[2], label_counts[0]
    known = np.maximum(n - unknown, 1) if unknown.any() else n
    return entropy_of_counts(np.stack([positives, known - positives]), known)


def _total_information(counts: Counts) -> Array:
    """Sum over labels of the information of each feature with them."""
    return score_pairs(information, counts)


@family
class CountFilter(CountingSelector):
    """Base class of filters of counts.

    A subclass has a statistic of a label and a feature (`pair`), of which the scores are the sum over labels or what
    `over` says. The result is what "auto" tests: what `finish` adds does not depend on which rows have the labels.
    """

    known_entries = True
    unknown_entry = LEFT_OUT
    on_features = ON_AUTO
    over: ClassVar[Aggregation] = SUM
    takes_strata = True

    memory = "worker: 4 bytes * d * (codes - 1) * (q + 1)"

    bins: Bins = 2
    binning: Binning = "auto"
    missing: MissingOrCode = "error"
    resamples: Resamples = 0
    random_state: Annotated[Seed, seed_of("shuffles and of resamples, and of the rows that medians come from")] = None

    def pair(self, counts: Counts) -> Array:
        """Return (p, w) statistics of labels and features, by default their mutual information."""
        return information(counts)

    def score_counts(self, counts: Counts) -> Array:
        """(w,) scores, where the last merge of counts ran. They may depend on the method's own parameters alone."""
        return score_pairs(self.pair, counts, self.over)

    def pair_of_strata(self, counts: StratifiedCounts) -> Array:
        """Return (p, w) statistics of labels and features within strata: by default the mean over rows."""
        return counts.pooled(self.pair)

    def score_strata(self, counts: Counts, n_strata: int) -> Array:
        return score_pairs(self.pair_of_strata, StratifiedCounts.of(counts, n_strata), self.over)

    def finish(self, counts: CountResults) -> Array:
        """Return the scores, with what follows from the entropies of features and of all labels."""
        return counts.scores

    def _statistic(self, **fields: Any) -> CountScores:
        return CountScores(**fields, formula=self.score_counts, formula_key=self._formula_key)

    @property
    def _formula_key(self) -> list[Any]:
        own = inspect.get_annotations(type(self))
        return [
            self.method,
            [[each.name, str(getattr(self, each.name))] for each in self.parameters if each.name in own],
        ]

    def association(self, *, counts: CountResults) -> Array:
        return counts.scores

    def scores(self, *, k: int, counts: CountResults) -> Scores:
        return Scores(self.finish(counts), extra={"counted_labels": len(counts.counted), "tiles": counts.tiles})

    def warnings(self, job: Readings, outcome: Scores, results: Mapping[str, Any]) -> list[Warning]:
        counts: CountResults = results["counts"]
        warnings = self._warnings(counts.features, counts.entropy, counts.label_entropies)
        if warnings or not self.of_zeros or outcome.scores.any():
            return warnings
        d, q = len(counts.entropy), len(counts.label_entropies)
        return [uninformative_warning(self.method, constant=0, d=d, constant_labels=0, q=q, otherwise=self.of_zeros)]
