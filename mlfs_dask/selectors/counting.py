"""What selectors from contingency counts share, codes, tiles and passes; and the base of filters of one formula.

All follow from the counts N(feature, code, label): one pass over X once the codes' edges are known, which a store has
kept since its conversion; other data costs one more pass for the ranges. Counts that do not fit the workers are tiled
over features.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import caching
from mlfs_dask.blocks.contingency import CountFormula
from mlfs_dask.blocks.counts import MAX_CODES, CodeBook
from mlfs_dask.blocks.entropy import entropy_of_counts
from mlfs_dask.errors import DataError, UsageError, parameter
from mlfs_dask.primitives.counts import (
    Aggregate,
    ContingencyCounts,
    CountScores,
    LabelInformation,
    Ranges,
    count_in_tiles,
    equal_width_book,
    quantile_book,
)
from mlfs_dask.primitives.passes import CachedStatistic, Statistic
from mlfs_dask.primitives.resampling import ResampledScores, Resampling
from mlfs_dask.primitives.sample import QUANTILE_ROWS, RowSample, draw_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.base import Scores, rank, uninformative_warning, unknown_labels_error
from mlfs_dask.selectors.costs import Cost, PassRunner, Reading
from mlfs_dask.selectors.resampling import ResamplingSelector
from mlfs_dask.typing import FeatureInfo, HeldArray, Profile, RowSource, Seed, profile_of

#: Stored values from which the compiled loops pay for their loading.
COMPILE_FROM = 3_000_000

#: What the readings that count are called.
COUNTS = "counts"

#: Most bytes of the information of all features with all counted labels that the cache keeps, for other scores from it;
#: of more, it keeps only what one method aggregates over the labels.
MAX_INFORMATION_BYTES = 256 * 2**20


class CountingSelector(ResamplingSelector):
    """What the selectors from contingency counts share: codes, tiles, passes.

    A subclass says which labels are counted and what follows from the counts (`_statistic`). With
    n_features_to_select="auto" features are tested by that alone: what `_combine` adds does not depend on which rows
    have the labels. Codes and counted labels are those of the unchanged rows in every replicate.
    """

    scores_from_counts = True

    passes = (
        "1 (+1 for ranges of data without them, +1 for quantile edges, +1 over the labels alone for -k auto; more when "
        "tiled)"
    )

    #: Whether quantiles cut 0/1 features as numbers, too.
    quantiles_cut_binary: ClassVar[bool] = False

    bins: int
    binning: str
    missing: Literal["error", "code", "mean", "median"]

    def _check_parameters(self) -> None:
        self._check_counting()

    def _check_counting(self, *, positive: Collection[str] = (), minimums: Mapping[str, int] | None = None) -> None:
        """`_check_values`, and the number of codes."""
        if isinstance(self.bins, bool) or not isinstance(self.bins, (int, np.integer)):
            raise UsageError(f"{parameter('bins')} must be a whole number; got {self.bins!r}")
        if not 2 <= self.bins <= MAX_CODES:
            raise UsageError(f"{parameter('bins')} must be between 2 and {MAX_CODES}; got {self.bins}")
        self._check_values(positive=positive, minimums=minimums)

    @property
    def is_random(self) -> bool:
        return self.binning == "quantile" or super().is_random

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
        known = features.minimum is not None and label_counts is not None
        counts = self._counts(source, self._planned_book(profile, features), label_counts)
        resampling = self._planned_resampling()
        tiles = count_in_tiles(counts, source, resources, resampling=resampling)

        sizes = {"d": profile.d, "t": tiles[0].result_bytes, "r": len(resampling)}
        sizes |= self._replicate_sizes(profile)
        before, arrays, code_sizes = self._code_readings(profile, counts.book, known=known)
        steps: list[Reading | str] = [*self._label_readings(profile), *before]
        sizes |= code_sizes
        # Until edges and labels are known, the tiles are an estimate.
        name = COUNTS if known and self.binning == "equal-width" else "estimated counts"
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
        if len(tiles) == 1 and tiles[0].result_bytes > 16 * profile.d:
            # In process the readings themselves count what they return.
            arrays.append(HeldArray("information with every label", "t", "u1", first="scores"))
        note = f"counts of {min(counts.p, profile.q):,} of {profile.q:,} labels"
        if counts.p > profile.q:
            note += f" and of {counts.p - profile.q:,} pairs of labels"
        if len(resampling) > 1:
            note += f", for {resampling.shuffles} shuffles and {resampling.resamples} resamples of the rows too"
        if len(tiles) > 1:
            note += f", tiled over {len(tiles):,} groups of at most {-(-profile.d // len(tiles)):,} features"
        return Cost([*steps, *readings, "scores"], sizes, arrays, notes=[note])

    def _code_readings(
        self, profile: Profile, book: CodeBook, *, known: bool
    ) -> tuple[list[Reading | str], list[HeldArray], dict[str, int]]:
        """Steps until codes are known, what the driver holds of them, and its size letters."""
        steps: list[Reading | str] = []
        sizes = {"d": profile.d, "e": len(book.edges)}
        arrays = [
            HeldArray("ranges of features", "4 d"),
            HeldArray("terms of edges", "6 e", first="edges", last="edges"),
            HeldArray("edges of codes", "e", first="edges"),
            HeldArray("offsets of edges", "d", first="edges"),
        ]
        if not known:
            steps.append(Reading("ranges", (self._ranges(profile),)))
        if self.binning == "quantile":
            sample = self._row_sample(profile)
            steps.append(Reading("quantiles", (sample,)))
            sizes["s"] = sample.result_bytes
            arrays.append(HeldArray("sampled rows", "2 s", "u1", "quantiles", "edges"))
        return [*steps, "edges"], arrays, sizes

    def _first_reading(self, source: RowSource, resources: Resources) -> Sequence[CachedStatistic]:
        book = self._known_book(source)
        if book is None or len(self._planned_resampling()) > 1:
            return ()
        tiles = count_in_tiles(self._counts(source, book, source.label_counts), source, resources)
        return tiles if len(tiles) == 1 else ()

    def _known_book(self, source: RowSource) -> CodeBook | None:
        """The codes, where they follow without a reading; None also of rows with unknown labels, which are refused."""
        features, label_counts = source.features, source.label_counts
        if self.binning == "quantile" or features.minimum is None or label_counts is None or label_counts[0].any():
            return None
        return self._equal_width_book(features)

    def _planned_book(self, profile: Profile, features: FeatureInfo) -> CodeBook:
        """Codes as far as they are known; quantile edges are at most as many as equal-width ones."""
        if features.minimum is None:
            # Numeric features count as having all `bins`.
            features = replace(features, minimum=np.zeros(profile.d), maximum=np.ones(profile.d))
        return self._equal_width_book(features)

    def _equal_width_book(self, features: FeatureInfo) -> CodeBook:
        return equal_width_book(features, self.bins, code_missing=self.missing == "code")

    def _ranges(self, profile: Profile) -> Ranges:
        return Ranges(profile.d, profile.q, weighted=profile.weight is not None)

    def _row_sample(self, profile: Profile) -> RowSample:
        return RowSample(draw_rows(profile, QUANTILE_ROWS, self._seed), profile)

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

    def _score(self, passes: PassRunner, k: int) -> Scores:
        resampling = self._resampling(passes)
        book, label_counts = self._read_codes(passes)
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
            warnings=self._uninformative_warnings(feature_entropy[0], entropies),
            discovered=discovered,
            q_values=q_values,
            resampled_scores=np.stack(resampled) if resampled else None,
        )

    def _read_codes(self, passes: PassRunner) -> tuple[CodeBook, NDArray[Any]]:
        """How the values of features become codes, and the (3, q) label counts; unknown labels are refused."""
        source, profile = passes.source, passes.source.profile
        features, label_counts = source.features, source.label_counts
        if features.minimum is None or label_counts is None:
            ((ranges, label_counts),) = passes.run("ranges", self._ranges(profile))
            features = replace(ranges, n_categories=features.n_categories)
        assert label_counts is not None
        if label_counts[0].any():
            raise unknown_labels_error(self, label_counts[0])
        self._check_features(features)
        passes.varies = self._varying(features)
        if self.binning == "equal-width":
            return self._equal_width_book(features), label_counts
        statistic = self._row_sample(profile)
        ((sample, _),) = passes.run("quantiles", statistic)
        weights = None if source.weights is None else source.weights[statistic.chosen]
        book = quantile_book(
            sample,
            features,
            self.bins,
            code_missing=self.missing == "code",
            cut_binary=self.quantiles_cut_binary,
            weights=weights,
        )
        return book, label_counts

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
            for r, (shared, own) in enumerate(result if len(resampling) > 1 else [result]):
                information[r, part] = tile.reduce(shared)
                feature_entropy[r, part] = own
        return tiles, information, feature_entropy

    def _uninformative_warnings(
        self, feature_entropy: NDArray[np.float64], label_entropies: NDArray[np.float64]
    ) -> list[Warning]:
        """The warning of data in which every feature, or every label, is the same in every row."""
        d, q = len(feature_entropy), len(label_entropies)
        constant, constant_labels = (
            int(np.count_nonzero(entropy == 0)) for entropy in (feature_entropy, label_entropies)
        )
        if constant < d and constant_labels < q:
            return []
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

    def _check_features(self, features: FeatureInfo) -> None:
        """Refuse infinite values, missing values where they are an error, and too many codes."""
        assert features.minimum is not None
        assert features.maximum is not None
        infinite = ~(np.isfinite(features.minimum) & np.isfinite(features.maximum))
        if infinite.any():
            raise DataError(
                "X contains infinity",
                column=self._first_column(infinite),
                cure="replace infinite values, or leave the feature out",
            )
        missing = features.n_missing
        self._refuse_missing(missing)
        if features.n_categories is not None:
            n_codes = features.n_categories + (0 if missing is None else (missing > 0))
            wide = n_codes > MAX_CODES
            if wide.any():
                f = int(np.flatnonzero(wide)[0])
                raise DataError(
                    f"a categorical feature has {int(features.n_categories[f])} values; at most {MAX_CODES} can be "
                    "counted. It may only number the rows",
                    column=self._first_column(wide),
                    cure="leave it out when converting (`mlfs convert --drop NAME`), or join rare values",
                )


def _replicated(tile: ContingencyCounts, resampling: Resampling, profile: Profile) -> Statistic:
    """The tile for every replicate of the rows; as it is where there is none."""
    return tile if len(resampling) == 1 else ResampledScores(tile, resampling, profile)


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
        statistic = LabelInformation(**fields, aggregate=self.aggregate)
        # Other scores, and other numbers of promising labels, come from the same information with every label.
        alone = len(self._planned_resampling()) == 1
        per_label = alone and caching.is_on(source) and 8 * statistic.p * statistic.book.d <= MAX_INFORMATION_BYTES
        return replace(statistic, per_label=per_label)


#: Documentation of the parameters of what is counted.
CODE_PARAMETERS = """    bins : int
        Codes that a numeric feature gets. Features that are 0/1 or categorical are used as they are.
    binning : {"equal-width", "quantile"}
        How numeric features are cut: equal width between minimum and maximum, or equal shares of the rows.
    missing : {"error", "code", "mean", "median"}
        Missing feature values are an error, get a code of their own, or are filled with the feature's mean or its
        median, which is that of 16 384 rows drawn at random where there are more.
"""

#: Documentation of the parameters that `AllLabelsSelector` has.
COUNTING_PARAMETERS = (
    """
    Parameters
    ----------
    n_features_to_select : int, float or "auto", optional
        Number of features to keep, or a fraction of them; half by default. "auto": those that go with the labels more
        than by chance, at the false discovery rate `fdr`.
"""
    + CODE_PARAMETERS
    + """    fdr : float
        False discovery rate of "auto": the share of features independent of the labels among those that are kept.
    resamples : int
        Resamples of the rows (bootstrap) that give each feature's rank interval and selection frequency.
    random_state : int, Generator or RandomState, optional
        Seed of the sample of rows for quantile edges, of shuffles and of resamples.
"""
)


class AllLabelsSelector(CountingSelector):
    """Base class of the selectors that count every label and have no other parameters than those of counting."""

    memory = "worker: 4 bytes * d * (codes - 1) * (q + 1)"

    def __init__(
        self,
        n_features_to_select: int | float | Literal["auto"] | None = None,
        *,
        bins: int = 2,
        binning: Literal["equal-width", "quantile"] = "equal-width",
        missing: Literal["error", "code", "mean", "median"] = "error",
        fdr: float = 0.1,
        resamples: int = 0,
        random_state: Seed = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.bins = bins
        self.binning = binning
        self.missing = missing
        self.fdr = fdr
        self.resamples = resamples
        self.random_state = random_state


class CountFilter(AllLabelsSelector):
    """Base class of filters whose scores are a formula of the counts of every feature with every label."""

    @property
    def _formula(self) -> CountFormula:
        """The formula, with its parameters."""
        raise NotImplementedError

    def _statistic(self, source: Profile | RowSource, **fields: Any) -> CountScores:
        return CountScores(**fields, formula=self._formula)
