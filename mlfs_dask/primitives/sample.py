"""A uniform sample of rows, drawn by row index: the sketch from which quantile edges come.

Which rows are drawn is settled before the pass from the seed and n alone, so the sketch, and every edge made from
it, is the same for any chunking and any number of workers. Sketches of disjoint rows merge by addition.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.primitives.passes import KeptStatistic, PassRecord, State, compute_graphs
from mlfs_dask.primitives.plan import PassPlan, plan_pass
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Matrix, Profile, RowSource

#: Rows of a sample: the share of rows below an edge is then right within 0.4 % (one standard error).
SAMPLE_ROWS = 16384

#: Bytes of a sample; fewer rows are drawn when features are many.
SAMPLE_BYTES = 256 * 2**20

#: Never fewer rows than this.
FEWEST_ROWS = 256


def draw_rows(n: int, d: int, seed: int | None) -> NDArray[np.int64]:
    """Ascending indices of the sampled rows; all of them when n is small.

    >>> draw_rows(3, 1, 0)
    array([0, 1, 2])
    """
    m = max(FEWEST_ROWS, min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * max(d, 1))))
    if n <= m:
        return np.arange(n)
    chosen = np.random.default_rng(seed).choice(n, size=m, replace=False)
    return np.sort(chosen).astype(np.int64)


@dataclass(frozen=True)
class RowSample(KeptStatistic):
    """The values of chosen rows.

    Parameters
    ----------
    chosen : int64 array, shape (m,)
        Ascending row indices.
    d : int
    """

    chosen: NDArray[np.int64]
    d: int

    kind = "rows"

    @property
    def state_bytes(self) -> int:
        return 8 * len(self.chosen) * self.d

    @property
    def result_bytes(self) -> int:
        return self.state_bytes

    def scratch_bytes(self, profile: Profile) -> int:
        share = len(self.chosen) / max(profile.n, 1)
        return 8 * self.d * (1 + int(2 * share * profile.block_rows))

    def zero(self) -> State:
        return (np.zeros((len(self.chosen), self.d)),)

    def add(self, state: State, block: Block) -> None:
        low, high = np.searchsorted(self.chosen, (block.start, block.start + block.X.shape[0]))
        picked = block.X[self.chosen[low:high] - block.start]
        state[0][low:high] = picked.toarray() if sp.issparse(picked) else picked

    def merge(self, into: State, other: State) -> None:
        np.add(into[0], other[0], out=into[0])

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"chosen": self.chosen}

    def to_arrays(self, result: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        return {"values": result}

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        return arrays["values"]

    def finalize(self, state: State) -> NDArray[np.float64]:
        """(m, d) values of the chosen rows."""
        return state[0]


def take_rows(
    source: RowSource, chosen: NDArray[np.int64], resources: Resources, *, label: str = "sample"
) -> tuple[Matrix, PassRecord]:
    """Rows of X by their index, in the form X has: sparse rows stay sparse.

    Parameters
    ----------
    source : RowSource
    chosen : int64 array, shape (m,)
        Rising.
    resources : Resources
    label : str
        What the progress line calls this pass.

    Returns
    -------
    ndarray or csr_array, shape (m, d), and the record of the pass

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    plan = plan_taking(source, len(chosen), resources)
    started = time.perf_counter()
    runtime.emit("pass", label=label, partitions=plan.runs[-1][1])
    offsets = source.row_offsets
    parts = []
    for first, last in plan.runs:
        low, high = np.searchsorted(chosen, (offsets[first], offsets[last]))
        parts.append(chosen[low:high])
    blocks = getattr(source, "delayed_blocks", None)
    travels = resources.client is not None and not getattr(source, "in_memory", False)
    if travels or blocks is not None:
        from dask.delayed import delayed

        held = delayed(source, name=f"mlfs-source-{os.urandom(8).hex()}", traverse=False) if blocks is None else None
        task = delayed(_take, pure=False)
        graphs = [
            task(held if blocks is None else blocks(first), first, last, part)
            for (first, last), part in zip(plan.runs, parts, strict=True)
            if len(part)
        ]
        pieces = compute_graphs(graphs, plan, resources)
    else:
        pieces = [
            _take(source, first, last, part) for (first, last), part in zip(plan.runs, parts, strict=True) if len(part)
        ]
    rows = [row for found, _ in pieces for row in found]
    X = sp.csr_array(sp.vstack(rows, format="csr")) if any(sp.issparse(r) for r in rows) else np.concatenate(rows)
    peak = max(peak for _, peak in pieces)
    seconds = time.perf_counter() - started
    runtime.emit("pass-done", label=label, seconds=seconds)
    return X, PassRecord(plan.tasks, plan.bytes_read, seconds, peak)


def _take(source: Any, first: int, last: int, chosen: NDArray[np.int64]) -> tuple[list[Matrix], int]:
    """Chosen rows of partitions first..last-1, piece by piece, and the peak of this process."""
    blocks = source.stream(first, last) if hasattr(source, "stream") else source.blocks()
    pieces = []
    for block in blocks:
        low, high = np.searchsorted(chosen, (block.start, block.start + block.X.shape[0]))
        if high > low:
            pieces.append(block.X[chosen[low:high] - block.start])
    runtime.emit_from_task("partitions", done=last - first)
    return pieces, runtime.peak_rss()


def plan_taking(source: RowSource | Profile, rows: int, resources: Resources) -> PassPlan:
    """The plan of `take_rows`; the rows themselves arrive at the driver.

    Raises
    ------
    DoesNotFitError
    """
    profile = source if isinstance(source, Profile) else source.profile
    row_bytes = -(-profile.nonzeros // max(profile.n, 1)) * (profile.itemsize + (4 if profile.sparse else 0))
    return plan_pass(
        profile,
        resources,
        state_bytes=0,
        # A worker's share of the rows, which nothing merges, and the same once more as it leaves.
        scratch_bytes=profile.block_bytes + 2 * -(-rows * row_bytes // max(1, resources.slots)),
        one_run_per_partition=getattr(source, "holds_blocks", False),
    )
