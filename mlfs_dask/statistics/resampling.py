"""Statistics of shuffled and resampled rows, in the same pass as those of the rows as they are.

Shuffles give what a score is by chance alone (a permutation null): rows keep their features and get the labels of other
rows. Resamples give how much a score varies: each is a half of the rows, and every two of them are all rows. A
replicate is a block of rows like any other, so every statistic serves without a kernel of its own; the time of a
pass grows with the number of replicates, its bytes do not.

**Shuffles.** If features and labels are independent and rows exchangeable, the scores of the data have the same
distribution as those of rows that are paired with the labels of a random permutation of the rows. A permutation of n
rows asks for labels of far rows, which a task that streams its own does not have. Therefore a pass over the labels
alone takes those of m rows first, drawn without replacement (`draw_rows`), and puts them into a random order, the pool;
rows i = 0..m-1 then get the labels of the pool at the places of `shuffled_places`, rows m..2m-1 those of the same pool
at other places, and so on. A row's labels follow from its number, the seed and the number of the shuffle, so chunks,
partitions and workers change nothing. Since the pool's order is uniform, so is the permutation of every single shuffle;
the multipliers, which differ between shuffles, keep two of them from being alike where rows are ordered.

With n <= m (`POOL_ROWS`) the pool holds every row, and a shuffle is a permutation of all rows: tests from it are exact.
With more rows a label set is drawn from the pool's distribution in place of that of all rows. A label's share of the
rows is then off by 0.2 % of the rows (one standard error) at most, by which the distribution of a score under
independence moves little: of n M(f; l) for instance it does not depend on the share at all as n grows.

Where rows have strata, they get the labels of other rows of their stratum: under independence within strata the scores
have the same distribution. The pool of every stratum is shuffled by itself, at the places that follow
from a row's number in its stratum; of more than m rows this is not known, and places are drawn, with repetition. Rows
of a stratum without any row in the pool keep their labels, which makes a test no surer.

Where rows have clusters, the labels of whole clusters change places: every cluster gets those of another one, row by
row, again from the first row on if it has more rows. Features of a cluster and labels of another are independent, and
rows of a cluster stay as alike as they are. Of a pool without all rows, a cluster without any row there takes part as
others do: it gets the labels of one that has.

**Resamples.** In which half of a pair a row is follows from a random bit, of its number, the seed and the number of the
pair. A mean of half of the rows, drawn without replacement, varies as that of a bootstrap of all rows does: by (1/m −
1/n) σ² = σ²/n with m = n/2. Rows of a cluster are in one half. Complementary halves, unlike a bootstrap, bound how many
features are chosen by chance (Shah & Samworth 2013, "Variable selection with error control: another look at stability
selection").
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.row_draws import bits_of_rows, row_bits, shuffled_places
from mlfs_dask.engine.plan import split_evenly
from mlfs_dask.engine.readings import plan_statistics
from mlfs_dask.engine.statistic import Arrays, State, Statistic, loads_kernels
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.contract import Block, Profile, RowSource, profile_of, stack_labels
from mlfs_dask.rows.covariates import indicator_codes, strata_of, without_strata
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.sample import RowSample, SampledRows, draw_rows

#: Rows whose labels shuffles draw from: a label's share of them is off by 0.2 % of the rows (one standard error).
POOL_ROWS = 65536

#: Bytes up to which the states of replicates are kept, where they are larger than the results: they travel to the
#: driver.
KEPT_STATE_BYTES = 32 * 2**20


@dataclass(frozen=True)
class PooledStrata:
    """Strata or clusters of a pool of labels, which lie together.

    Attributes
    ----------
    first : int64 array, shape (S + 1,)
        Where each stratum begins.
    numbers : int64 array, shape (n,), or None
        Number of every row in its stratum, where the pool has all rows.
    columns : slice or None
        Covariates that tell the strata of rows; None: their labels do, which are counted in strata.
    clusters : bool
        True if rows get the labels of another cluster, not those of their own stratum.
    """

    first: NDArray[np.int64]
    numbers: NDArray[np.int64] | None
    columns: slice | None = None
    clusters: bool = False

    def of_rows(self, block: Block) -> NDArray[np.int64]:
        """Return strata or clusters of the rows of a block."""
        if self.clusters:
            assert block.clusters is not None
            return block.clusters.astype(np.int64)
        if self.columns is None:
            return strata_of(block.Y)
        assert block.covariates is not None
        return indicator_codes(block.covariates[:, self.columns])

    def places(self, strata: NDArray[np.int64], start: int, key: int) -> NDArray[np.int64]:
        """Return places in the pool of rows from number `start` on, in a shuffle; −1 of a stratum that has none
        there.
        """
        rows, sizes = len(strata), np.diff(self.first)
        if self.clusters:
            pooled = np.flatnonzero(sizes)
            strata = pooled[shuffled_places(0, len(sizes), len(pooled), key)][strata]
        if self.numbers is None:
            bits = row_bits(start, rows, key) % np.maximum(sizes, 1).astype(np.uint64)[strata]
            return np.where(sizes[strata] > 0, self.first[strata] + bits.astype(np.int64), -1)
        places = np.empty(rows, np.int64)
        for stratum in np.unique(strata).tolist():
            own, m = np.flatnonzero(strata == stratum), int(sizes[stratum])
            among = shuffled_places(0, m, m, key ^ stratum)
            places[own] = self.first[stratum] + among[self.numbers[start + own] % m]
        return places


@dataclass(frozen=True)
class Resampling:
    """Replicates of the rows: first the original rows, then shuffles, then resamples.

    Parameters
    ----------
    shuffles, resamples : int
    seed : int
    pool : csr_array of int8, shape (m, q), or None
        Labels that shuffled rows get (`draw_pool`). None: for a plan, or without shuffles.
    strata : PooledStrata or None
        Of the pool, where rows have strata or clusters.
    clusters : plain values
        Identity of the clusters of the rows; None without clusters.
    """

    shuffles: int = 0
    resamples: int = 0
    seed: int = 0
    pool: sp.csr_array | None = None
    strata: PooledStrata | None = None
    clusters: Any = None

    def __len__(self) -> int:
        return 1 + self.shuffles + self.resamples

    def pool_bytes(self, profile: Profile) -> int:
        """Return bytes of the pool, of data with that profile."""
        labels_of_row = profile.labels_of_row
        return min(profile.n, POOL_ROWS) * (16 + 5 * labels_of_row) * (self.shuffles > 0)

    def copied_bytes(self, profile: Profile) -> int:
        """Return bytes of the rows of one replicate of the largest block; a short one may lie in one half."""
        labels = profile.block_rows * (8 + 5 * profile.labels_of_row)
        rows = profile.block_bytes + 8 * profile.block_rows
        return max(labels * (self.shuffles > 0), rows * (self.resamples > 0))

    def replicate(self, block: Block, i: int) -> Block:
        """Return the replicate i of a block."""
        if i == 0:
            return block
        start, rows = block.start, block.X.shape[0]
        half = max(i - self.shuffles - 1, 0) % 2
        key = int(np.random.SeedSequence([self.seed, i - half]).generate_state(1, np.uint64)[0])
        if i <= self.shuffles:
            # A plan that is measured has no pool; the labels of the block take the same time.
            pool = block.Y if self.pool is None else self.pool
            if self.strata is None:
                return block._replace(Y=pool[shuffled_places(start, rows, pool.shape[0], key)])
            places = self.strata.places(self.strata.of_rows(block), start, key)
            if (places < 0).any():
                pool = stack_labels([pool, block.Y], block.Y.shape[1], numeric=isinstance(block.Y, np.ndarray))
                places = np.where(places < 0, pool.shape[0] - rows + np.arange(rows), places)
            return block._replace(Y=pool[places])
        bits = row_bits(start, rows, key) if block.clusters is None else bits_of_rows(block.clusters, key)
        drawn = np.flatnonzero(bits & np.uint64(1) == half)
        return block.select_rows(drawn)


#: The rows as they are, alone.
NOT_RESAMPLED = Resampling()


def label_sample(profile: Profile, seed: int) -> RowSample:
    """Return the statistic that `draw_pool` makes a pool of; for `RowSource.labels_only`.

    Parameters
    ----------
    profile : Profile
        Of the labels alone.
    seed : int
    """
    return RowSample(draw_rows(profile, POOL_ROWS, seed), profile)


def draw_pool(sample: SampledRows, seed: int) -> sp.csr_array:
    """Return the labels of a sample of rows in a random order, shape (m, q)."""
    order = np.random.default_rng([seed, 0]).permutation(sample.Y.shape[0])
    return sample.Y[order]


def pool_in_strata(
    sample: SampledRows, seed: int, n: int, n_strata: int, columns: slice | None, *, clusters: bool = False
) -> tuple[sp.csr_array, PooledStrata]:
    """Return the labels of a sample of n rows, stratum by stratum, each in a random order; or cluster by cluster.

    Parameters
    ----------
    sample : SampledRows
        With labels in strata.
    seed, n, n_strata : int
    columns : slice or None
        Covariates that tell the strata of rows, whose labels are then those of all strata.
    clusters : bool
        True if the strata are clusters, whose labels are exchanged.
    """
    pool, strata, numbers = draw_pool(sample, seed), strata_of(sample.Y), None
    first = np.concatenate([[0], np.cumsum(np.bincount(strata, minlength=n_strata))])
    if len(strata) == n:
        in_turn = np.argsort(strata, kind="stable")
        numbers = np.empty(n, np.int64)
        numbers[in_turn] = np.arange(n) - first[strata[in_turn]]
    pool = pool[np.argsort(strata_of(pool), kind="stable")]
    pool = pool if columns is None and not clusters else without_strata(pool, n_strata)
    return pool, PooledStrata(first, numbers, columns, clusters)


class Resampled(Statistic):
    """Statistic: the results of others for every replicate of the rows: a list of lists of results.

    Its state is kept for other jobs. After an append that of resamples is continued; shuffles draw from the labels of
    all rows, which are then others. Of one statistic whose results are far smaller than its states these are kept.

    Parameters
    ----------
    statistics : sequence of Statistic
    resampling : Resampling
    profile : Profile
        Of the rows.
    first, last : int
        Replicates first..last-1 alone; all by default.
    """

    kind = "resampled"

    def __init__(
        self,
        statistics: Sequence[Statistic],
        resampling: Resampling,
        profile: Profile,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        self.statistics = tuple(statistics)
        self.resampling = resampling
        self.replicates = range(first, len(resampling) if last is None else last)
        self.compiled = loads_kernels(statistics, profile.n)
        self.can_split = len(statistics) == 1 and statistics[0].can_split
        self._pool_bytes = resampling.pool_bytes(profile)
        self._n = profile.n

    @property
    def parameters(self) -> Mapping[str, Any]:
        own = self.resampling
        return {
            "of": [[statistic.kind, statistic.parameters] for statistic in self.statistics],
            "replicates": [own.shuffles, own.resamples, self.replicates.start, self.replicates.stop],
            "seed": own.seed,
            # What is drawn from n rows follows from the seed.
            "pool": self._n if own.shuffles else None,
            **({} if own.clusters is None else {"clusters": own.clusters}),
        }

    @property
    def result_parameters(self) -> Mapping[str, Any]:
        return {"of": [statistic.kept_parameters("result") for statistic in self.statistics]}

    @property
    def keeps(self) -> Literal["state", "result", ""]:
        bound = max(KEPT_STATE_BYTES, 2 * self.result_bytes)
        if self.state_bytes <= bound and all(statistic.keeps == "state" for statistic in self.statistics):
            return "state"
        return "result" if all(statistic.result_names for statistic in self.statistics) else ""

    @property
    def copied_bytes(self) -> int:
        return self.state_bytes

    def state_arrays(self, state: State) -> Arrays:
        return self._stacked("state_arrays", state)

    def state_of(self, arrays: Arrays) -> State:
        return self._unstacked("state_of", arrays)

    def result_arrays(self, result: list[Any]) -> Arrays:
        return self._stacked("result_arrays", result)

    def result_of(self, arrays: Arrays) -> list[Any]:
        return self._unstacked("result_of", arrays)

    def _stacked(self, method: str, replicates: Sequence[Sequence[Any]]) -> Arrays:
        """Return arrays of the same names and shapes of every replicate, as arrays with an axis more."""
        stacked: dict[str, NDArray[Any]] = {}
        for s, statistic in enumerate(self.statistics):
            named = [getattr(statistic, method)(replicate[s]) for replicate in replicates]
            stacked |= {f"{name}-{s}": np.stack([arrays[name] for arrays in named]) for name in named[0]}
        return stacked

    def _unstacked(self, method: str, arrays: Arrays) -> list[list[Any]]:
        """Undo `_stacked`."""
        names = [(name, *name.rsplit("-", 1)) for name in arrays]
        return [
            [
                getattr(statistic, method)({own: arrays[name][r] for name, own, at in names if at == str(s)})
                for s, statistic in enumerate(self.statistics)
            ]
            for r in range(len(self.replicates))
        ]

    @property
    def state_bytes(self) -> int:
        return len(self.replicates) * sum(statistic.state_bytes for statistic in self.statistics)

    @property
    def result_bytes(self) -> int:
        return len(self.replicates) * sum(statistic.result_bytes for statistic in self.statistics)

    @property
    def parameter_bytes(self) -> int:
        return sum(statistic.parameter_bytes for statistic in self.statistics) + self._pool_bytes

    def scratch_bytes(self, profile: Profile) -> int:
        scratch = max(statistic.scratch_bytes(profile) for statistic in self.statistics)
        return scratch + self.resampling.copied_bytes(profile)

    def zero(self) -> State:
        return [[statistic.zero() for statistic in self.statistics] for _ in self.replicates]

    def add(self, state: State, block: Block) -> None:
        for i, own in zip(self.replicates, state, strict=True):
            replicate = self.resampling.replicate(block, i)
            if replicate.X.shape[0]:
                for statistic, of_statistic in zip(self.statistics, own, strict=True):
                    statistic.add(of_statistic, replicate)
            del replicate  # before the next one is made

    def merge(self, into: State, other: State) -> None:
        for mine, theirs in zip(into, other, strict=True):
            for statistic, one, two in zip(self.statistics, mine, theirs, strict=True):
                statistic.merge(one, two)

    def extend_state(self, kept: State, added: State) -> State:
        return [
            [statistic.extend_state(old, new) for statistic, old, new in zip(self.statistics, *pair, strict=True)]
            for pair in zip(kept, added, strict=True)
        ]

    def finalize(self, state: State) -> list[list[Any]]:
        return [
            [statistic.finalize(own) for statistic, own in zip(self.statistics, replicate, strict=True)]
            for replicate in state
        ]

    def split(self, state: State, pieces: int) -> list[State]:
        """Return every replicate's state is cut as the statistic cuts it."""
        cut = [self.statistics[0].split(own, pieces) for (own,) in state]
        return [[[own] for own in piece] for piece in zip(*cut, strict=True)]

    def finalize_piece(self, state: State, piece: int, pieces: int) -> list[Any]:
        return [self.statistics[0].finalize_piece(own, piece, pieces) for (own,) in state]

    def join(self, results: list[Any]) -> list[list[Any]]:
        return [[self.statistics[0].join(list(pieces))] for pieces in zip(*results, strict=True)]


def replicate_groups(
    statistics: Sequence[Statistic], resampling: Resampling, source: RowSource | Profile, resources: Resources
) -> list[Resampled]:
    """`Resampled` statistics of all replicates: one, or the fewest runs of replicates that fit the workers.

    Parameters
    ----------
    statistics : sequence of Statistic
    resampling : Resampling
    source : RowSource or Profile
    resources : Resources
    """
    profile = profile_of(source)

    def fits(n: int) -> bool:
        longest = Resampled(statistics, resampling, profile, 0, -(-len(resampling) // n))
        try:
            plan_statistics(source, [longest], resources)
        except DoesNotFitError:
            return False
        return True

    # Where even one replicate does not fit, the plan of its pass says so.
    n = 1 + bisect.bisect_left(range(1, len(resampling)), True, key=fits)
    return [Resampled(statistics, resampling, profile, *run) for run in split_evenly(len(resampling), n)]
