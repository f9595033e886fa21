"""Distributed counting: contingency tables of features with labels, and what must be known before them.

`ContingencyCounts` sums `blocks.counts` tables over all rows and turns them into numbers per feature where the last
merge ran, so that only arrays of length d travel to the driver: `LabelInformation` into mutual information,
`CountScores` into whatever a formula of one table says. `Ranges` finds minima, maxima and label counts of data that
carries no such record.
"""

from __future__ import annotations

import bisect
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.blocks import gates
from mlfs_dask.blocks.codes import edge_rows, quantile_table, zero_share
from mlfs_dask.blocks.contingency import pair_interaction, with_label_pairs
from mlfs_dask.blocks.counts import (
    STRIP_COUNT_BYTES,
    BlockCoder,
    CodeBook,
    CountLayout,
    code_planes,
    count_block,
    empty_table,
    layout_counts,
    part_of_table,
    table_items,
    tile_positions,
)
from mlfs_dask.blocks.entropy import entropy_of_counts
from mlfs_dask.blocks.missing import count_nonzero_block, missing_weights_block
from mlfs_dask.blocks.pair_scores import Counts, StratifiedCounts
from mlfs_dask.blocks.pair_tests import code_tests
from mlfs_dask.blocks.products import positives_block
from mlfs_dask.blocks.sparse import count_labels
from mlfs_dask.blocks.unknown import no_labels, with_unknown_columns
from mlfs_dask.engine.plan import ReadingSizes, plan_reading, reading_fits, split_evenly
from mlfs_dask.engine.readings import is_cached, reading_sizes
from mlfs_dask.engine.statistic import Arrays, State, Statistic
from mlfs_dask.rows.contract import Block, FeatureInfo, Profile, RowSource, profile_of
from mlfs_dask.rows.sources import measure_features
from mlfs_dask.rows.view import RowView
from mlfs_dask.rows.weights import exact_weights
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.resampling import NOT_RESAMPLED, Resampled, Resampling
from mlfs_dask.statistics.sample import RowSample, SampledRows
from mlfs_dask.typing import Array

#: Bytes that a thread takes beside these, where several turn counts into entropies.
FINISHING_BYTES = 2 * 2**20

Tiles = TypeVar("Tiles", bound="ContingencyCounts")


@dataclass(frozen=True)
class ContingencyCounts(Statistic):
    """Contingency tables of features first..last-1 with the counted labels; gives (scores, entropy) of the features.

    Parameters
    ----------
    book : CodeBook
        How values become codes, for all features.
    first, last : int
        The features counted in this pass.
    sparse : bool
        Whether blocks are sparse.
    slot_of_label : int64 array, shape (q,)
        Slot of each counted label, -1 for the others.
    unknown : int64 array, shape (u,), optional
        Labels that may have unknown entries, rising: the rows in which one is unknown are counted as those of a further
        label (`blocks.unknown`), the slots of which follow in `slot_of_label`.
    n : int or float
        Rows in all, or the sum of their weights. Counts are int32 while n < 2**30: no count can be larger than n, nor,
        of resampled rows, than 2 n. Those of weights are float64.
    compiled : bool
        Count with the compiled loops.
    weighted : bool
        Whether rows have weights.
    """

    book: CodeBook
    first: int
    last: int
    sparse: bool
    slot_of_label: NDArray[np.int64]
    n: int | float
    compiled: bool = False
    weighted: bool = False
    unknown: NDArray[np.int64] = field(default_factory=no_labels, kw_only=True)

    kind = "counts"
    state_names = ("lanes", "lane-marginal", "positions", "marginal", "positives", "rows")
    result_names = ("scores", "entropy")
    can_split = True

    def __getstate__(self) -> dict[str, Any]:
        """The parameters alone travel to workers, which derive `coder` and the like from them."""
        return {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}

    @cached_property
    def coder(self) -> BlockCoder:
        """Codes in the form the kernels want."""
        return BlockCoder(self.book, layout_counts(self.book, self.first, self.last, sparse=self.sparse))

    @cached_property
    def p(self) -> int:
        """Number of counted labels."""
        return int(np.count_nonzero(self.slot_of_label >= 0))

    @cached_property
    def marks(self) -> NDArray[np.int64]:
        """Slot of the rows in which a label is unknown, of each counted label; -1 where there are none."""
        q = len(self.slot_of_label) - len(self.unknown)
        slots = self.slot_of_label[:q]
        marks = np.full(int(np.count_nonzero(slots >= 0)), -1, np.int64)
        counted = slots[self.unknown] >= 0
        marks[slots[self.unknown[counted]]] = self.slot_of_label[q:][counted]
        return marks

    @cached_property
    def slot_of_unknown(self) -> NDArray[np.int64]:
        """Slot of the rows in which each label is unknown, shape (q,); -1 where these are not counted."""
        q = len(self.slot_of_label) - len(self.unknown)
        slots = np.full(q, -1)
        slots[self.unknown] = self.slot_of_label[q:]
        return slots

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a count."""
        return np.dtype(np.float64 if self.weighted else np.int32 if self.n < 2**30 else np.int64)

    @property
    def state_bytes(self) -> int:
        return self._state_bytes(table_items(self.coder.layout, self.p))

    def _state_bytes(self, items: int) -> int:
        return items * self.dtype.itemsize + 8 * (self.p + 1)

    @property
    def result_bytes(self) -> int:
        return self._result_bytes(self.last - self.first)

    def _result_bytes(self, width: int) -> int:
        return 16 * width

    @property
    def _coding(self) -> dict[str, Any]:
        """The part of the parameters that says which features are counted, and how their values become codes."""
        book = self.book.part(self.first, self.last)
        return {"edges": [book.edge_ptr, book.edges, book.has_missing], "features": [self.first, self.last]}

    @property
    def parameters(self) -> Mapping[str, Any]:
        unknown = {"unknown": self.unknown} if len(self.unknown) else {}
        return {**self._coding, "labels": np.sort(self.labels), **unknown}

    @property
    def result_parameters(self) -> Mapping[str, Any]:
        return {"slots": self.slot_of_label}

    def state_arrays(self, state: State) -> Arrays:
        # By the number of the label: slots follow entropies, which change with the rows.
        by_label = np.argsort(self.labels)
        lanes, lane_marginal, positions, marginal, positives, rows = state
        return super().state_arrays(
            (lanes[by_label], lane_marginal, positions[by_label], marginal, positives[by_label], rows)
        )

    def state_of(self, arrays: Arrays) -> State:
        slots = np.argsort(np.argsort(self.labels))
        lanes, lane_marginal, positions, marginal, positives, rows = super().state_of(arrays)
        return lanes[slots], lane_marginal, positions[slots], marginal, positives[slots], rows

    @property
    def keeps(self) -> Literal["state", "result", ""]:
        # On a cluster a state travels to the driver, which finishes it with temporaries of this size.
        return "state" if self.state_bytes <= gates.FINALIZE_BYTES else "result"

    @property
    def labels(self) -> NDArray[np.int64]:
        """(p,): the counted labels, in the order of their slots."""
        counted = np.flatnonzero(self.slot_of_label >= 0)
        return counted[np.argsort(self.slot_of_label[counted])]

    @property
    def counted_labels(self) -> NDArray[np.int64]:
        """`labels` without those of rows in which one is unknown."""
        return self.labels[: len(self.marks)]

    def scratch_bytes(self, profile: Profile) -> int:
        layout = self.coder.layout
        n_codes = int(self.book.part(self.first, self.last).n_codes.max())
        return self._scratch_bytes(profile, layout.width, len(layout.by_position), n_codes)

    def _scratch_bytes(self, profile: Profile, width: int, by_position: int, n_codes: int) -> int:
        # What `finalize` holds: the last block is gone then.
        return max(self._add_bytes(profile, width, by_position), self._finalize_chunk_bytes(width, n_codes))

    def _add_bytes(self, profile: Profile, width: int, by_position: int) -> int:
        labels = 40 * profile.labels_of_row * profile.block_rows
        if not self.compiled and by_position:
            positions = width * max(1, int(self.book.n_codes.max()) - 1)
            labels += STRIP_COUNT_BYTES * min(gates.VALUES_AT_ONCE, self.p * positions)
        if self.sparse:
            # One position (int32) per stored value; of frequent labels, its place in the order of runs, too, and marks
            # of rows. The products of the small path need more.
            frequent = 6 * profile.block_values * (profile.labels_of_row > 1)
            return labels + (4 * profile.block_values + frequent if self.compiled else 60 * profile.block_values)
        lanes = 0 if self.compiled else 3 * 8 * profile.block_rows * width
        return labels + lanes + 20 * profile.block_rows * by_position

    def tile_sizes(
        self, source: RowSource | Profile, resources: Resources, n_tiles: int, resampling: Resampling
    ) -> ReadingSizes:
        """Return the largest size of any of so many tiles of the features takes; the tiles themselves are not made."""
        profile = profile_of(source)
        replicates = len(resampling)
        base, extra = divmod(self.book.d, n_tiles)
        tiles = np.arange(n_tiles + 1)
        first = tiles * base + np.minimum(tiles, extra)  # as `split_evenly` cuts
        items, by_position = tile_positions(self.book, first, sparse=self.sparse)
        width = base + (extra > 0)
        scratch = self._scratch_bytes(profile, width, int(by_position.max()), int(self.book.n_codes.max()))
        return replace(
            reading_sizes(source, [Resampled([replace(self, first=0, last=1)], resampling, profile)], resources),
            state_bytes=replicates * self._state_bytes((self.p + 1) * int(items.max())),
            scratch_bytes=scratch + resampling.copied_bytes(profile),
            finishing_bytes=scratch + resampling.copied_bytes(profile),
            result_bytes=replicates * self._result_bytes(width),
        )

    def zero(self) -> State:
        table = empty_table(self.coder.layout, self.p, self.dtype)
        counted = np.float64 if self.dtype == np.float64 else np.int64
        return *table, np.zeros(self.p, counted), np.zeros(1, counted)

    def add(self, state: State, block: Block) -> None:
        *table, positives, rows = state
        slots = self.slot_of_label, self.slot_of_unknown
        positives += count_block(self.coder, block, *slots, tuple(table), compiled=self.compiled)
        rows += block.X.shape[0] if block.weights is None else block.weights.sum()

    def split(self, state: State, pieces: int) -> list[State]:
        """Return the tables of `pieces` runs of features, copied; each has all labels' positive rows."""
        *table, positives, rows = state
        layout = self.coder.layout
        return [
            (*part_of_table(layout, tuple(table), a, b), positives.copy(), rows.copy())
            for a, b in split_evenly(layout.width, pieces)
        ]

    def finalize_piece(self, state: State, piece: int, pieces: int) -> tuple[Array, Array]:
        """`finalize` of one run of features."""
        a, b = split_evenly(self.coder.layout.width, pieces)[piece]
        return self._finalize_part(self.coder.layout.part(a, b), state)

    def join(self, results: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        """Return the results of all runs of features, one after the other."""
        scores, entropy = zip(*results, strict=True)
        return np.concatenate(scores, axis=-1), np.concatenate(entropy)

    def finalize(self, state: State) -> tuple[Array, Array]:
        """Return (w,) scores, and (w,) entropy of the features."""
        return self._finalize_part(self.coder.layout, state)

    def _finalize_part(self, layout: CountLayout, state: State) -> tuple[Array, Array]:
        *table, positives, rows = state
        n = rows[0].item()
        n_codes = self.book.n_codes[layout.first : layout.last]

        def finish(chosen: slice) -> tuple[Array, Array]:
            most = int(n_codes[chosen].max())
            joint, marginal = code_planes(
                layout, tuple(table), chosen, most, positives, n, compiled=self.finishes_compiled
            )
            return self.features_from_counts(Counts(joint, marginal[:, np.newaxis], positives[:, np.newaxis], n))

        # Threads share what one may hold: the widest feature has to fit each.
        each = FINISHING_BYTES + self._finalize_bytes(int(n_codes.max(initial=1)))
        threads = max(1, min(runtime.finishing_threads(), gates.FINALIZE_BYTES // each))
        most_bytes = gates.FINALIZE_BYTES // threads - FINISHING_BYTES if threads > 1 else gates.FINALIZE_BYTES
        first, *others = self._finalize_chunks(n_codes, most_bytes)
        found = finish(first)
        # Results may be larger than the counts: parts that are joined at the end would hold them twice.
        scores, entropy = (np.empty((*part.shape[:-1], layout.width)) for part in found)
        scores[..., first], entropy[first] = found

        def keep(chosen: slice) -> None:
            scores[..., chosen], entropy[chosen] = finish(chosen)

        if threads == 1:
            for chosen in others:
                keep(chosen)
            return scores, entropy
        with runtime.TaskThreads(threads, "mlfs-finish") as pool:
            for _ in pool.map(keep, others):
                pass
        return scores, entropy

    @abstractmethod
    def features_from_counts(self, counts: Counts) -> tuple[Array, Array]:
        """Return scores and entropy of some features."""

    @property
    def finishes_compiled(self) -> bool:
        """True if `finalize` uses compiled loops: the same bits, and no process loads the loops for this alone."""
        return self.compiled and "mlfs_dask.blocks.counts_compiled" in sys.modules

    def _finalize_bytes(self, n_codes: int) -> int:
        """Return bytes that turning the counts of one feature into numbers takes."""
        return n_codes * (self.p + 1 + 3 * len(self.unknown)) * 8 + self.p * 48

    def _finalize_chunk_bytes(self, width: int, n_codes: int) -> int:
        """Return bytes that turning the counts of as many features into numbers takes as are done together."""
        one = self._finalize_bytes(n_codes)
        return max(one, min(gates.FINALIZE_BYTES, width * one))

    def _finalize_chunks(self, n_codes: NDArray[np.int64], most_bytes: int) -> list[slice]:
        """Return runs of features whose temporaries stay under a number of bytes."""
        bytes_of = np.array([self._finalize_bytes(codes) for codes in range(int(n_codes.max(initial=0)) + 1)])[n_codes]
        at_most, chunks, start = most_bytes // int(bytes_of.min()) + 1, list[slice](), 0
        while start < len(n_codes):
            widest = np.maximum.accumulate(bytes_of[start : start + at_most])
            stop = start + max(int((widest * np.arange(1, len(widest) + 1) <= most_bytes).sum()), 1)
            chunks.append(slice(start, stop))
            start = stop
        return chunks


@dataclass(frozen=True)
class CountScores(ContingencyCounts):
    """Scores of features by a formula of their counts with the labels.

    Parameters
    ----------
    formula : callable
        `Counts` of some features to their scores, shape (w,), or (p, w) where they are of each label. It is sent to
        workers.
    formula_key : plain data
        What tells the formula from others, for the cache.
    labelwise : bool
        Whether scores are of each label.
    """

    formula: Callable[[Counts], Array] = field(kw_only=True)
    formula_key: Any = field(kw_only=True)
    labelwise: bool = field(default=False, kw_only=True)

    def _result_bytes(self, width: int) -> int:
        return 8 * (1 + (self.p if self.labelwise else 1)) * width

    @property
    def result_parameters(self) -> Mapping[str, Any]:
        return {**super().result_parameters, "formula": self.formula_key}

    def features_from_counts(self, counts: Counts) -> tuple[Array, Array]:
        entropy = entropy_of_counts(counts.marginal[:, 0], counts.n)
        scores = self.formula(self.terms(counts))
        # The sums of a constant feature may leave a rounding error, which would part it from other constant ones.
        scores[..., entropy == 0] = 0.0
        return scores, entropy

    def terms(self, counts: Counts) -> Counts:
        """Return the terms of the formula: counts of each label over the rows where it is known."""
        return counts.known(self.marks) if len(self.unknown) else counts


@dataclass(frozen=True)
class CodeTests(ContingencyCounts):
    """Tests of every label with the codes of features, shape (4, q, w), of strata (6, q, w): `code_tests`.

    Parameters
    ----------
    n_strata : int
        Strata in which labels are counted; 0: none.
    pearson : bool
        Test by Pearson's statistic.
    """

    n_strata: int = field(default=0, kw_only=True)
    pearson: bool = field(default=False, kw_only=True)

    @classmethod
    def of(cls, counts: ContingencyCounts, q: int, unknown: NDArray[np.int64], *, n_strata: int, pearson: bool) -> Self:
        """Return the tests of all q labels with the features of other counts, of which they may have the state."""
        own = {each.name: getattr(counts, each.name) for each in fields(ContingencyCounts)}
        own |= {"slot_of_label": np.arange(q + len(unknown)), "unknown": unknown}
        return cls(**own, n_strata=n_strata, pearson=pearson)

    @property
    def result_parameters(self) -> Mapping[str, Any]:
        return {**super().result_parameters, "tests": [self.n_strata, self.pearson]}

    def _result_bytes(self, width: int) -> int:
        tests = 6 * (self.p // self.n_strata) if self.n_strata else 4 * self.p
        return 8 * (1 + tests) * width

    def _finalize_bytes(self, n_codes: int) -> int:
        return super()._finalize_bytes(n_codes) + 8 * (n_codes + 40) * self.p

    def features_from_counts(self, counts: Counts) -> tuple[Array, Array]:
        known = counts.known(self.marks) if len(self.unknown) else counts
        terms = StratifiedCounts.of(known, self.n_strata) if self.n_strata else known
        return code_tests(terms, pearson=self.pearson), entropy_of_counts(counts.marginal[:, 0], counts.n)


@dataclass(frozen=True)
class CodeCounts(ContingencyCounts):
    """The counts themselves, shape (codes, 1 + p, w): of each code alone, and with each label in the order of slots.

    A feature of fewer codes has zeros behind.
    """

    @property
    def _most_codes(self) -> int:
        return int(self.book.n_codes.max(initial=1))

    def _result_bytes(self, width: int) -> int:
        return 8 * (1 + self._most_codes * (1 + self.p)) * width

    def features_from_counts(self, counts: Counts) -> tuple[Array, Array]:
        codes, _, width = counts.joint.shape
        every = np.zeros((self._most_codes, 1 + self.p, width))
        every[:codes, :1], every[:codes, 1:] = counts.marginal, counts.joint
        return every, entropy_of_counts(counts.marginal[:, 0], counts.n)


@dataclass(frozen=True)
class AssignedCountScores(CountScores):
    """Scores from counts of rows each of which is shared out among its labels, 1/|L| to each of its |L| ones.

    Counts are float64 sums, `weighted` or not, of weights rounded so that these are exact: the same for any chunks.
    Rows without a label count in the entropies of features alone.
    """

    kind = "assigned-counts"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def _add_bytes(self, profile: Profile, width: int, by_position: int) -> int:
        return super()._add_bytes(profile, width, by_position) + 16 * profile.block_rows

    def add(self, state: State, block: Block) -> None:
        weights = 1.0 / np.maximum(np.diff(positives_block(block.Y).indptr), 1)
        if block.weights is not None:
            weights *= block.weights
        super().add(state, block._replace(weights=exact_weights(weights, 2.0 * self.n)))  # of resampled rows up to 2 n


@dataclass(frozen=True)
class PairCountScores(CountScores):
    """Scores from counts of features with labels and with pairs of chosen ones.

    `slot_of_label` has a slot for each of the q labels, for the rows in which one is unknown, and then for each pair of
    chosen ones, among which are the rows in which one of these is unknown.

    Parameters
    ----------
    n_labels : int
    chosen : tuple of int
        Rising.
    """

    n_labels: int = field(kw_only=True)
    chosen: tuple[int, ...] = field(kw_only=True)

    kind = "pair-counts"

    @classmethod
    def of(cls, chosen: Sequence[int], **fields: Any) -> Self:
        """Return the interaction information with all labels and pairs of chosen ones, from fields of
        `ContingencyCounts`.
        """
        unknown = fields.get("unknown", np.empty(0, np.int64))
        marked, q = len(fields["slot_of_label"]), len(fields["slot_of_label"]) - len(unknown)
        columns = [*chosen, *(q + np.flatnonzero(np.isin(unknown, chosen)))]
        pairs = len(columns) * (len(columns) - 1) // 2
        formula = partial(pair_interaction, n_labels=q, chosen=tuple(chosen), unknown=unknown)
        fields |= {"slot_of_label": np.arange(marked + pairs), "formula": formula, "formula_key": "interaction"}
        return cls(**fields, n_labels=q, chosen=tuple(chosen))

    @property
    def paired(self) -> tuple[int, ...]:
        """Columns of which pairs are counted."""
        return (*self.chosen, *(self.n_labels + np.flatnonzero(np.isin(self.unknown, self.chosen))).tolist())

    @cached_property
    def marks(self) -> NDArray[np.int64]:
        marks = np.full(self.n_labels, -1, np.int64)
        marks[self.unknown] = self.n_labels + np.arange(len(self.unknown))
        return marks

    def add(self, state: State, block: Block) -> None:
        Y = with_label_pairs(with_unknown_columns(block.Y, self.unknown), self.paired)
        super().add(state, block._replace(Y=Y))

    def terms(self, counts: Counts) -> Counts:
        return counts

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {**super().parameters, "chosen": list(self.chosen)}

    def _add_bytes(self, profile: Profile, width: int, by_position: int) -> int:
        # The pairs of labels that rows have, as labels.
        labels = profile.labels_of_row
        pairs = min(len(self.slot_of_label) - self.n_labels, labels**2)
        own = profile.block_rows * (100 * labels + 50 * pairs)
        return super()._add_bytes(profile, width, by_position) + own

    def _finalize_bytes(self, n_codes: int) -> int:
        return 8 * (n_codes + 3) * (self.p + 1) + 48 * self.n_labels

    def _finalize_chunk_bytes(self, width: int, n_codes: int) -> int:
        # Beside what features take: information of labels with one another, and temporaries of some pairs.
        between = 120 * (self.p - self.n_labels) + 8 * gates.SCORE_BYTES
        return super()._finalize_chunk_bytes(width, n_codes) + between * (1 + (len(self.unknown) > 0))


def count_in_tiles(
    counts: Tiles,
    source: RowSource | Profile,
    resources: Resources,
    *,
    n_tiles: int | None = None,
    resampling: Resampling = NOT_RESAMPLED,
) -> list[Tiles]:
    """Return statistics that count all features together: one, or the fewest tiles of features whose tables fit the
    workers.

    Parameters
    ----------
    counts : ContingencyCounts
        Of all features.
    source : RowSource or Profile
    resources : Resources
    n_tiles : int, optional
        As found before.
    resampling : Resampling
        The replicates of the rows that a tile is counted for in one pass.

    Raises
    ------
    DoesNotFitError
        The table of a single feature does not fit.
    """
    d = counts.book.d
    if n_tiles is None:
        n_tiles = 1
        if len(resampling) > 1 or not is_cached(source, counts):
            profile = profile_of(source)

            def fits(n_tiles: int) -> bool:
                return reading_fits(profile, resources, counts.tile_sizes(source, resources, n_tiles, resampling))

            if not fits(1):
                n_tiles = min(d, 1 + bisect.bisect_left(range(1, d + 1), True, key=fits))
                # Refuses what fits in no way.
                plan_reading(profile, resources, counts.tile_sizes(source, resources, n_tiles, resampling))
    return [replace(counts, first=first, last=last) for first, last in split_evenly(d, n_tiles)]


@dataclass(frozen=True)
class Ranges(Statistic):
    """Statistic: minimum, maximum, missing values and share of zeros of every feature, and the counts of every label.

    Parameters
    ----------
    d, q : int
    weighted : bool
        Whether rows have weights; the counts of labels are sums of these then, of float64.
    """

    d: int
    q: int
    weighted: bool = False

    kind = "ranges"
    state_names = ("minimum", "maximum", "missing", "zeros", "present", "labels")

    @property
    def state_bytes(self) -> int:
        return 8 * (6 * self.d + 3 * self.q)

    def scratch_bytes(self, profile: Profile) -> int:
        labels = profile.labels_of_row * profile.block_rows
        of_weights = 24 * profile.block_values if self.weighted else 0
        return 2 * profile.block_bytes + of_weights + 32 * self.d + 24 * labels

    def zero(self) -> State:
        counted = np.float64 if self.weighted else np.int64
        return (
            np.full(self.d, np.inf),
            np.full(self.d, -np.inf),
            np.zeros(self.d, dtype=np.int64),
            np.zeros(self.d, dtype=counted),
            np.zeros(self.d, dtype=counted),
            np.zeros((3, self.q), dtype=counted),
        )

    def add(self, state: State, block: Block) -> None:
        low, high, missing, zeros, present, labels = state
        info = measure_features(block.X)
        assert info.minimum is not None
        assert info.maximum is not None
        assert info.n_missing is not None
        some = info.n_missing < block.X.shape[0]
        np.minimum(low, info.minimum, out=low, where=some)
        np.maximum(high, info.maximum, out=high, where=some)
        missing += info.n_missing
        rows: float = block.X.shape[0] if block.weights is None else block.weights.sum()
        zeros += rows - count_nonzero_block(block.X, block.weights)
        present += rows
        if info.n_missing.any():
            present -= info.n_missing if block.weights is None else missing_weights_block(block.X, block.weights)
        labels += count_labels(block.Y, block.weights)

    def merge(self, into: State, other: State) -> None:
        np.minimum(into[0], other[0], out=into[0])
        np.maximum(into[1], other[1], out=into[1])
        super().merge(into[2:], other[2:])

    def finalize(self, state: State) -> tuple[FeatureInfo, NDArray[Any]]:
        """Return the features' record and the (3, q) label counts."""
        low, high, missing, zeros, present, labels = state
        empty = low > high
        low, high = np.where(empty, 0.0, low), np.where(empty, 0.0, high)
        return FeatureInfo(low, high, None, missing, zero_share(present, present - zeros)), labels


def code_statistics(profile: Profile) -> tuple[Ranges, RowSample]:
    """Return statistics from which the codes of features follow where nothing is known of these: ranges, and drawn
    rows.
    """
    ranges = Ranges(profile.d, profile.q, weighted=profile.weight is not None)
    return ranges, RowSample(edge_rows(profile), profile)


def measured_view(source: RowSource, ranges: tuple[FeatureInfo, NDArray[Any]], sample: SampledRows) -> RowView:
    """Return the rows, of which the results of `code_statistics` are known; kinds of features are those of the
    source.
    """
    features = replace(ranges[0], n_categories=source.features.n_categories)
    return RowView(source, known=features, label_counts=ranges[1], quantiles=quantile_table(sample.X, features))
