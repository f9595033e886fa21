"""The contract of a statistic: a reduction over rows whose state the cache keeps, and the state that several share."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks import gates
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.rows.view import RowView

State: TypeAlias = Any
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


class Statistic(ABC):
    """Reduction over rows in four functions: zero, add, merge, finalize.

    Plain and picklable: it holds parameters, never data. Statistics of equal `key` have one state, made once in
    a pass and kept by the cache; each makes its own result of it. From the `shapes` of its state follow zero, the
    sum of two states, and the bytes of one.
    """

    #: Name in the cache; empty where nothing is kept.
    kind: ClassVar[str] = ""
    #: Names of the arrays of a state that is a tuple of arrays, in their order.
    state_names: ClassVar[Sequence[str]] = ()
    #: Names of the arrays of a result that is kept in place of a large state.
    result_names: ClassVar[Sequence[str]] = ()
    #: Whether a kernel is compiled, so that every process loads the compiler's runtime; None: where rows are many.
    compiled: bool | None = False
    #: View of the rows of a pass, whose state it is; None: of all rows.
    view: RowView | None = None
    #: Whether states can be cut into pieces that are merged and finished apart.
    can_split: bool = False

    # What it takes

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Shapes of the arrays of a state, whose numbers have 8 bytes."""
        raise NotImplementedError

    @property
    def state_bytes(self) -> int:
        """Bytes of one state."""
        return 8 * sum(map(math.prod, self.shapes))

    @property
    def result_bytes(self) -> int:
        """Bytes of what `finalize` returns: by default as many as a state has."""
        return self.state_bytes

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the arrays among the parameters, which every process holds during a pass."""
        return sum(
            array_bytes(value)
            for name, value in vars(self).items()
            if not isinstance(getattr(type(self), name, None), cached_property)  # made of parameters, when asked for
        )

    @abstractmethod
    def scratch_bytes(self, profile: Profile) -> int:
        """Return bytes that `add` allocates besides the state on the largest block."""

    def finishing_bytes(self, profile: Profile) -> int:
        """Return the temporaries of `finalize`: by default as many as the kernels have."""
        return self.scratch_bytes(profile)

    # The reduction

    def zero(self) -> State:
        """Return the state of no rows: by default sums of float64."""
        return tuple(map(np.zeros, self.shapes))

    @abstractmethod
    def add(self, state: State, block: Block) -> None:
        """Add one block to `state`, in place."""

    def merge(self, into: State, other: State) -> None:
        """Add `other` to `into`, in place; `other` stays as it is. By default states are tuples of arrays to sum."""
        for mine, theirs in zip(into, other, strict=True):
            np.add(mine, theirs, out=mine)

    @abstractmethod
    def finalize(self, state: State) -> Any:
        """Return the result of all rows; made where the last merge ran. `state` stays as it is."""

    # Large states, merged and finished in pieces on a cluster

    def split(self, state: State, pieces: int) -> list[State]:
        """Return the pieces of a state, copied."""
        raise NotImplementedError

    def finalize_piece(self, state: State, piece: int, pieces: int) -> Any:
        """`finalize` of one piece."""
        raise NotImplementedError

    def join(self, results: list[Any]) -> Any:
        """Return the result of all pieces from the results of the pieces, in order."""
        raise NotImplementedError

    # The cache

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Plain values and arrays that the state depends on, beside the data."""
        return {}

    @property
    def result_parameters(self) -> Mapping[str, Any]:
        """Plain values and arrays that the result depends on, beside the state."""
        return {}

    @property
    def keeps(self) -> Literal["state", "result", ""]:
        """Form in which the cache keeps it."""
        return "state" if self.kind else ""

    @property
    def key(self) -> str:
        """Name that statistics with the same state share; of a statistic without a kind, one of its own."""
        return f"{self.kind}-{digest_of(self.parameters)}" if self.kind else f"{id(self)}"

    @property
    def result_key(self) -> str:
        """Name that statistics with the same result share."""
        return f"{self.key}-{digest_of(self.kept_parameters('result'))}" if self.kind else self.key

    def result_among(self, results: Mapping[str, Any]) -> Any:
        """Return the result as it follows from those that are there by their `result_key`; None if it does not."""
        return results.get(self.result_key)

    def kept_parameters(self, form: str) -> Mapping[str, Any]:
        """Return everything that a cached state or result depends on besides the data."""
        if form == "state":
            return self.parameters
        return {"state": self.parameters, "result": [type(self).__name__, self.result_parameters]}

    def state_arrays(self, state: State) -> Arrays:
        """Return the state as named arrays."""
        return dict(zip(self.state_names, state, strict=True))

    def state_of(self, arrays: Arrays) -> State:
        """Return the state that `state_arrays` was given."""
        return tuple(arrays[name] for name in self.state_names)

    @property
    def copied_bytes(self) -> int:
        """Bytes that `state_arrays` allocates."""
        return 0

    def result_arrays(self, result: Any) -> Arrays:
        """Return the result as named arrays."""
        return dict(zip(self.result_names, result, strict=True))

    def result_of(self, arrays: Arrays) -> Any:
        """Return the result that `result_arrays` was given."""
        return tuple(arrays[name] for name in self.result_names)

    def extend_state(self, kept: State, added: State) -> State:
        """Return the kept state with that of further rows added; `added` stays as it is."""
        # Counts of many rows may have a wider type than those of the first.
        state = tuple(old.astype(new.dtype, copy=False) for old, new in zip(kept, added, strict=True))
        self.merge(state, added)
        return state


def loads_kernels(statistics: Iterable[Statistic], n: int) -> bool:
    """Return True if a pass over n rows in all, of some statistics, loads compiled kernels."""
    return any(gates.compiles_rows(n) if s.compiled is None else s.compiled for s in statistics)


def array_bytes(value: Any) -> int:
    """Return the bytes of the arrays that a parameter is or holds.

    >>> array_bytes((np.zeros(2), "name", 3))
    16
    """
    if value is None or isinstance(value, (int, float, str)):  # most of them, and a plan asks often
        return 0
    if isinstance(value, (tuple, list)):
        return sum(map(array_bytes, value))
    nbytes = getattr(value, "nbytes", None)
    if nbytes is None:
        nbytes = getattr(value, "parameter_bytes", None)
    if nbytes is None and dataclasses.is_dataclass(value):
        return sum(array_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    return int(nbytes or 0)


class PartStatistic(Statistic):
    """Base class of another statistic of a part of every block: of some features, or of some rows.

    Attributes
    ----------
    statistic : Statistic
    """

    statistic: Statistic

    @abstractmethod
    def part_of(self, block: Block) -> Block:
        """Return the part of a block."""

    @property
    def compiled(self) -> bool | None:  # type: ignore[override]
        return self.statistic.compiled

    @property
    def state_bytes(self) -> int:
        return self.statistic.state_bytes

    @property
    def result_bytes(self) -> int:
        return self.statistic.result_bytes

    def finishing_bytes(self, profile: Profile) -> int:
        return self.statistic.finishing_bytes(profile)

    def zero(self) -> State:
        return self.statistic.zero()

    def add(self, state: State, block: Block) -> None:
        self.statistic.add(state, self.part_of(block))

    def merge(self, into: State, other: State) -> None:
        self.statistic.merge(into, other)

    def finalize(self, state: State) -> Any:
        return self.statistic.finalize(state)


class SharedState(PartStatistic):
    """State of statistics with one key in one pass: it is made once, and gives a list of results, or itself.

    Parameters
    ----------
    statistics : sequence of Statistic
    keeps_state : bool
        Whether the pass returns the state, from which the process that keeps it makes the results.
    held_bytes : int
        What that process holds beside the state that was read.
    files : RowFiles, optional
        For arrays of rows that statistics keep.

    Attributes
    ----------
    view_bytes : int
        Bytes of the arrays of the view; 0 for others of the same view.
    """

    view_bytes = 0

    def __init__(
        self, statistics: Sequence[Statistic], *, keeps_state: bool = False, held_bytes: int = 0, files: Any = None
    ) -> None:
        self.statistics = tuple(statistics)
        self.keeps_state = keeps_state
        self.can_split = not keeps_state and len(statistics) == 1 and statistics[0].can_split
        self._held_bytes = held_bytes
        self._files = files

    @property
    def statistic(self) -> Statistic:  # type: ignore[override]
        """The first of them, which makes the state."""
        return self.statistics[0]

    def part_of(self, block: Block) -> Block:
        return block._replace(files=self._files)

    @property
    def result_bytes(self) -> int:
        if self.keeps_state:
            return self._held_bytes
        return sum(statistic.result_bytes for statistic in self.statistics)

    @property
    def parameter_bytes(self) -> int:
        return super().parameter_bytes + self.view_bytes

    def _reordered_bytes(self) -> int:
        # A statistic may have the same numbers in an order of its own.
        return self.state_bytes * (len(self.statistics) > 1)

    def scratch_bytes(self, profile: Profile) -> int:
        copied = 0
        if self.view is not None:
            copied, profile = self.view.profile.buffer_bytes - profile.buffer_bytes, self.view.profile
        return copied + max(each.scratch_bytes(profile) for each in self.statistics) + self._reordered_bytes()

    def finishing_bytes(self, profile: Profile) -> int:
        profile = profile if self.view is None else self.view.profile
        return max(statistic.finishing_bytes(profile) for statistic in self.statistics) + self._reordered_bytes()

    def finalize(self, state: State) -> Any:
        return state if self.keeps_state else self.results(state)

    def results(self, state: State) -> list[Any]:
        """Return the results of the statistics, in their order."""
        first, *others = self.statistics
        if not others:
            return [first.finalize(state)]
        arrays = first.state_arrays(state)
        return [first.finalize(state), *(each.finalize(each.state_of(arrays)) for each in others)]

    def split(self, state: State, pieces: int) -> list[State]:
        return self.statistics[0].split(state, pieces)

    def finalize_piece(self, state: State, piece: int, pieces: int) -> Any:
        return self.statistics[0].finalize_piece(state, piece, pieces)

    def join(self, results: list[Any]) -> list[Any]:
        return [self.statistics[0].join(results)]
