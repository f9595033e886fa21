"""What selectors from contingency counts share, codes, tiles and passes; and the base of filters of one formula.

All follow from the counts N(feature, code, label): one pass over X once the codes' edges are known, which a store has
kept since its conversion; other data costs one more pass for the ranges. Counts that do not fit the workers are tiled
over features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.contingency import CountFormula
from mlfs_dask.blocks.counts import MAX_CODES, CodeBook
from mlfs_dask.blocks.entropy import entropy_of_counts
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, parameter
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.base import Scores, rank, uninformative_warning
from mlfs_dask.selectors.contract import (
    ON_AUTO,
    Binning,
    Bins,
    FalseDiscoveryRate,
    MissingOrCode,
    Resamples,
    family,
    seed_of,
)
from mlfs_dask.selectors.costs import Cost, Names, PassRunner, Reading
from mlfs_dask.selectors.resampling import ResamplingSelector
from mlfs_dask.statistics.codes import (
    CROWDED_SHARE,
    TABLE_SHARES,
    code_book,
    edge_rows,
    is_cut,
    known_crowded,
    widest_book,
)
from mlfs_dask.statistics.counts import (
    Aggregate,
    ContingencyCounts,
    CountScores,
    LabelInformation,
    code_statistics,
    count_in_tiles,
)
from mlfs_dask.statistics.resampling import Resampled, Resampling
from mlfs_dask.statistics.sample import RowSample
from mlfs_dask.typing import FeatureInfo, HeldArray, Matrix, Profile, RowSource, Seed, profile_of

#: Stored values from which the compiled loops pay for their loading.
COMPILE_FROM = 3_000_000

#: What the readings that count are called, and those that come before.
COUNTS = "counts"
CODE_READINGS = RANGES, QUANTILES = "ranges", "quantiles"

#: Entropy of a feature of two codes, one of which has 99 % of the rows. With more codes, one has more then.
CROWDED_ENTROPY = float(entropy_of_counts(np.array([[99], [1]]), 100)[0])


class CountingSelector(ResamplingSelector):
    """What the selectors from contingency counts share: codes, tiles, passes.

    A subclass says which labels are counted and what follows from the counts (`_statistic`). With
    n_features_to_select="auto" features are tested by that alone: what `_combine` adds does not depend on which rows
    have the labels. Codes and counted labels are those of the unchanged rows in every replicate.
    """

    scores_from_counts = True

    passes = (
        "1 (+1 for the ranges of data without them, or quantiles, +1 over the labels alone for -k auto; more when "
        "tiled)"
    )

    #: Whether quantiles cut 0/1 features as numbers, too.
    quantiles_cut_binary: ClassVar[bool] = False

    bins: int
    binning: Binning
    missing: Literal["error", "code", "mean", "median"]

    # ------------------------------------------------------------------ what is counted

    def _n_counted(self, q: int) -> int:
        """Number of labels that are counted."""
        return q

    def _counted_labels(self, entropies: NDArray[np.float64]) -> NDArray[np.int64]:
        """Labels in order of falling entropy, ties by index, as many as are counted."""
        return rank(entropies)[: self._n_counted(len(entropies))]

    def _statistic(self, source: Profile | RowSource, **fields: Any) -> ContingencyCounts:
        """The statistic that counts all features at once, from the fields of `ContingencyCounts`."""
        raise NotImplementedError

    # ------------------------------------------------------------------ plan

    def cost(self, source: Profile | RowSource, resources: Resources) -> Cost:
        profile = profile_of(source)
        features = FeatureInfo() if isinstance(source, Profile) else source.features
        label_counts = None if isinstance(source, Profile) else source.label_counts
        book = self._known_book(source)
        known = book is not None and label_counts is not None
        counts = self._counts(source, book or self._planned_book(profile, features), label_counts)
        resampling = self._planned_resampling()
        tiles = count_in_tiles(counts, source, resources, resampling=resampling)

        sizes = {"d": profile.d, "r": len(resampling)}
        sizes |= self._replicate_sizes(profile)
        before, arrays, code_sizes = self._code_readings(source, counts.book)
        steps: list[Reading | str] = [*self._label_readings(profile), *before]
        sizes |= code_sizes
        # Until edges and labels are known, the tiles are an estimate.
        name = COUNTS if known else "estimated counts"
        readings = [
            Reading(_tile_name(i, len(tiles), name), (_replicated(tile, resampling, profile),))
            for i, tile in enumerate(tiles)
        ]
        arrays += [
            HeldArray("information and entropy of features", "2 r d", first=readings[0].name),
            HeldArray("scores", "8 d", first="scores"),
        ]
        if len(resampling) > 1:
            arrays += self._replicate_arrays("scores")
        note = f"counts of {min(counts.p, profile.q):,} of {profile.q:,} labels"
        if counts.p > profile.q:
            note += f" and of {counts.p - profile.q:,} pairs of labels"
        if len(resampling) > 1:
            note += f", for {resampling.shuffles} shuffles and {resampling.resamples} resamples of the rows too"
        if len(tiles) > 1:
            note += f", tiled over {len(tiles):,} groups of at most {-(-profile.d // len(tiles)):,} features"
        notes = [note, *self._crowding_notes(source, counts.book)]
        return Cost([*steps, *readings, "scores"], sizes, arrays, notes=notes)

    def _crowding_notes(self, source: Profile | RowSource, book: CodeBook) -> list[str]:
        """What is known of crowded codes of equal width before rows are counted."""
        if self.binning != "equal-width" or isinstance(source, Profile) or source.features.minimum is None:
            return []
        features = source.features
        crowded = is_cut(features) & known_crowded(features, book, source.quantiles)
        return _told_of_crowding(int(np.count_nonzero(crowded)), book.d)

    def _code_readings(
        self, source: Profile | RowSource, book: CodeBook
    ) -> tuple[list[Reading | str], list[HeldArray], dict[str, int]]:
        """Steps until codes are known, what the driver holds of them, and its size letters."""
        profile = profile_of(source)
        reading = self._code_reading(source)
        steps: list[Reading | str] = []
        sizes = {"d": profile.d, "e": len(book.edges)}
        arrays = [
            HeldArray("ranges of features", "5 d"),
            HeldArray("quantiles of features", f"{len(TABLE_SHARES)} d"),
            HeldArray("terms of edges", "6 e", first="edges", last="edges"),
            HeldArray("edges of codes", "e", first="edges"),
            HeldArray("offsets of edges", "d", first="edges"),
        ]
        if reading is not None:
            steps.append(reading)
            for sample in reading.statistics:
                if isinstance(sample, RowSample):
                    sizes["s"] = sample.result_bytes
                    arrays.append(HeldArray("sampled rows", "4 s", "u1", reading.name, "edges"))
        return [*steps, "edges"], arrays, sizes

    def _code_reading(self, source: Profile | RowSource) -> Reading | None:
        """The reading from which edges of codes follow; None where what the source knows is enough."""
        profile = profile_of(source)
        ranges, sample = code_statistics(profile)
        if isinstance(source, Profile) or source.label_counts is None or not self._has_ranges(source.features):
            return Reading(RANGES, (ranges,) if self.binning == "equal-width" else (ranges, sample))
        return Reading(QUANTILES, (sample,)) if self._known_book(source) is None else None

    def _has_ranges(self, features: FeatureInfo) -> bool:
        return features.minimum is not None and (self.binning != "auto" or features.zero_share is not None)

    def first_reading(self, source: RowSource, resources: Resources) -> Sequence[Statistic]:
        book = self._book_before_reading(source)
        if book is None or len(self._planned_resampling()) > 1:
            return ()
        tiles = count_in_tiles(self._counts(source, book, source.label_counts), source, resources)
        return tiles if len(tiles) == 1 else ()

    def _book_before_reading(self, source: RowSource) -> CodeBook | None:
        """The codes, where they follow without a reading; None also of rows with unknown labels, which are refused."""
        label_counts = source.label_counts
        return None if label_counts is None or label_counts[0].any() else self._known_book(source)

    def _known_book(self, source: Profile | RowSource) -> CodeBook | None:
        """The codes, where they follow from what is known of the features."""
        if isinstance(source, Profile) or not self._has_ranges(source.features):
            return None
        # Where codes follow from ranges alone, no table of quantiles is read.
        return self._book(source.features) or self._book(source.features, table=source.quantiles)

    def _book(
        self,
        features: FeatureInfo,
        *,
        table: NDArray[np.float64] | None = None,
        sample: Matrix | None = None,
        weights: NDArray[np.float64] | None = None,
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

    def _planned_book(self, profile: Profile, features: FeatureInfo) -> CodeBook:
        """Codes of which no feature has fewer than it will have, as far as features are known."""
        if features.minimum is None:
            # Numeric features count as having all `bins`.
            features = replace(features, minimum=np.zeros(profile.d), maximum=np.ones(profile.d))
        return widest_book(features, self.bins, self.binning, code_missing=self.missing == "code")

    def _counts(
        self, source: Profile | RowSource, book: CodeBook, label_counts: NDArray[Any] | None
    ) -> ContingencyCounts:
        """The statistic that counts all features at once; label counts that are not known are all 0."""
        profile = profile_of(source)
        if label_counts is None:
            counted = np.arange(self._n_counted(profile.q))
        else:
            counted = self._counted_labels(label_entropies(label_counts, profile.total))
        slots = np.full(profile.q, -1, dtype=np.int64)
        slots[counted] = np.arange(len(counted))
        return self._statistic(
            source,
            book=book,
            first=0,
            last=profile.d,
            sparse=profile.sparse,
            slot_of_label=slots,
            n=profile.total,
            compiled=profile.nonzeros >= COMPILE_FROM and profile.weight is None,
            weighted=profile.weight is not None,
        )

    # ------------------------------------------------------------------ run

    def score(self, passes: PassRunner, k: int) -> Scores:
        resampling = self._resampling(passes)
        book, features, label_counts = self._read_codes(passes)
        tiles, information, feature_entropy = self._read_counts(passes, book, label_counts, resampling)

        entropies = label_entropies(label_counts, passes.source.profile.total)
        scores, *resampled = (
            self._combine(information[r], feature_entropy[r], entropies)
            for r in (0, *range(1 + resampling.shuffles, len(resampling)))
        )
        discovered, q_values = self._discover(information[0], information[1 : 1 + resampling.shuffles])
        return Scores(
            scores,
            extra={"counted_labels": tiles[0].p, "tiles": len(tiles)},
            warnings=self._warnings(features, feature_entropy[0], entropies),
            discovered=discovered,
            q_values=q_values,
            resampled_scores=np.stack(resampled) if resampled else None,
        )

    def _read_codes(self, passes: PassRunner) -> tuple[CodeBook, FeatureInfo, NDArray[Any]]:
        """How the values of features become codes, what is known of these, and the (3, q) label counts.

        Unknown labels are refused.
        """
        source, profile = passes.source, passes.source.profile
        features, label_counts = source.features, source.label_counts
        reading = self._code_reading(source)
        found = [] if reading is None else passes.run(reading.name, *reading.statistics)
        if reading is not None and reading.name == RANGES:
            ranges, label_counts = found.pop(0)
            features = replace(ranges, n_categories=features.n_categories)
        assert label_counts is not None
        self.refuse_unknown(label_counts[0], passes.names)
        self._check_features(features, passes.names)
        passes.varies = self._varying(features)
        if found:
            weights = None if source.weights is None else source.weights[edge_rows(profile)]
            book = self._book(features, sample=found[0].X, weights=weights)
        else:
            book = self._known_book(source) or self._book(features)
        assert book is not None
        return book, features, label_counts

    def _varying(self, features: FeatureInfo) -> NDArray[np.bool_]:
        """Features that vary, shape (d,); one that lacks values does, where these have a code of their own."""
        assert features.minimum is not None
        assert features.maximum is not None
        varies = features.minimum < features.maximum
        if self.missing == "code" and features.n_missing is not None:
            varies |= features.n_missing > 0
        return varies

    def _read_counts(
        self, passes: PassRunner, book: CodeBook, label_counts: NDArray[Any], resampling: Resampling
    ) -> tuple[list[ContingencyCounts], NDArray[np.float64], NDArray[np.float64]]:
        """The tiles that were counted, and what follows from the counts and the entropy of features, each (r, d)."""
        source, profile = passes.source, passes.source.profile
        counts = self._counts(source, book, label_counts)
        planned = sum(name.startswith(COUNTS) for name in passes.plan.readings)
        tiles = count_in_tiles(counts, source, passes.resources, n_tiles=planned or None, resampling=resampling)
        information, feature_entropy = np.empty((2, len(resampling), profile.d))
        for i, tile in enumerate(tiles):
            (result,) = passes.run(_tile_name(i, len(tiles)), _replicated(tile, resampling, profile))
            part = slice(tile.first, tile.last)
            for r, ((shared, own),) in enumerate(result if len(resampling) > 1 else [[result]]):
                information[r, part] = shared
                feature_entropy[r, part] = own
        return tiles, information, feature_entropy

    def _warnings(
        self, features: FeatureInfo, feature_entropy: NDArray[np.float64], label_entropies: NDArray[np.float64]
    ) -> list[Warning]:
        """Warnings of features, or labels, that are all the same in every row, and of crowded codes of equal width."""
        d, q = len(feature_entropy), len(label_entropies)
        constant, constant_labels = (
            int(np.count_nonzero(entropy == 0)) for entropy in (feature_entropy, label_entropies)
        )
        if constant < d and constant_labels < q:
            if self.binning != "equal-width":
                return []
            crowded = is_cut(features) & (feature_entropy <= CROWDED_ENTROPY * (1 + 1e-9))
            return [UserWarning(told) for told in _told_of_crowding(int(np.count_nonzero(crowded)), d)]
        weighs = not self.resamples_rows
        return [
            uninformative_warning(
                self.method, constant=constant, d=d, constant_labels=constant_labels, q=q, weighs_features=weighs
            )
        ]

    def _combine(
        self,
        information: NDArray[np.float64],
        feature_entropy: NDArray[np.float64],
        label_entropies: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """The score, from what follows from the counted labels, (d,), and the entropies of features and labels."""
        return information

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
                    "counted. It may only number the rows",
                    column=names.first_feature(wide),
                    cure="leave it out when converting (`mlfs convert --drop NAME`), or join rare values",
                )


def _replicated(tile: ContingencyCounts, resampling: Resampling, profile: Profile) -> Statistic:
    """The tile for every replicate of the rows; as it is where there is none."""
    return tile if len(resampling) == 1 else Resampled([tile], resampling, profile)


def _told_of_crowding(crowded: int, d: int) -> list[str]:
    """The warning of crowded codes; none where there are none."""
    if not crowded:
        return []
    return [
        f"codes of equal width: one has {int(100 * CROWDED_SHARE)} % of the rows or more in {crowded:,} of {d:,} "
        f"features, and tells next to nothing there; {parameter('binning', 'auto')} cuts them where their values are"
    ]


def _tile_name(i: int, n_tiles: int, name: str = COUNTS) -> str:
    """What the reading of one tile is called.

    >>> _tile_name(0, 1), _tile_name(0, 3)
    ('counts', 'counts 1/3')
    """
    return name if n_tiles == 1 else f"{name} {i + 1}/{n_tiles}"


def label_entropies(label_counts: NDArray[Any], n: int | float) -> NDArray[np.float64]:
    """Entropy of every label, from the (3, q) label counts."""
    positives = label_counts[2]
    return entropy_of_counts(np.stack([positives, n - positives]), n)


class InformationSelector(CountingSelector):
    """Base class of selectors from the information of features with labels."""

    aggregate: ClassVar[Aggregate]

    def _statistic(self, source: Profile | RowSource, **fields: Any) -> ContingencyCounts:
        return LabelInformation(**fields, aggregate=self.aggregate)


@family
class CountingFilter(CountingSelector):
    """Base class of filters of counts: a feature is scored by itself."""

    on_features = ON_AUTO

    memory = "worker: 4 bytes * d * (codes - 1) * (q + 1)"

    bins: Bins = 2
    binning: Binning = "auto"
    missing: MissingOrCode = "error"
    fdr: FalseDiscoveryRate = 0.1
    resamples: Resamples = 0
    random_state: Annotated[Seed, seed_of("shuffles and of resamples, and of the rows that medians come from")] = None


class CountFilter(CountingFilter):
    """Base class of filters whose scores are a formula of the counts of every feature with every label."""

    @property
    def _formula(self) -> CountFormula:
        """The formula, with its parameters."""
        raise NotImplementedError

    def _statistic(self, source: Profile | RowSource, **fields: Any) -> CountScores:
        return CountScores(**fields, formula=self._formula)
