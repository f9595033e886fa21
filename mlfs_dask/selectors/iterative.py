"""What selectors with a loop over the data share: readings of X, the plan, checkpoints, and what is told at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.linear import laplacian_gram
from mlfs_dask.checkpoints import Arrays, Checkpoint, State
from mlfs_dask.primitives import linear
from mlfs_dask.primitives.gram import GramProducts, gram, gram_of_columns, scale_gram
from mlfs_dask.primitives.labels import collect_labels
from mlfs_dask.primitives.linear import Scaling
from mlfs_dask.primitives.moments import FeatureMoments, Moments
from mlfs_dask.primitives.passes import PassRecord, records_from_facts, records_to_facts
from mlfs_dask.primitives.plan import PassPlan, Phase, Plan, combine
from mlfs_dask.primitives.row_passes import IN_FLIGHT_BYTES
from mlfs_dask.primitives.rows import ArrayRows
from mlfs_dask.row_arrays import BLOCK_BYTES, IN_MEMORY, RowSpace, free_disk, scratch_folder
from mlfs_dask.runtime import Resources, driver_bytes, driver_compiled_bytes
from mlfs_dask.selectors.base import BaseSelector, Scores, unknown_labels_error
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.typing import RowSource

Array = NDArray[np.float64]

#: Bytes of freed arrays that the C library keeps: those that are smaller than this, and of these about so many.
KEPT_BYTES = 32 * 2**20

#: Bytes of mapped files that a process holds at a time, at most: of every array the pages of one block, and a
#: partition's rows while it is read.
MAPPED_BYTES = 32 * BLOCK_BYTES


@dataclass
class Readings:
    """X as its products, centred and scaled: each of them is a reading of the data, whose record is kept.

    Attributes
    ----------
    source : RowSource
        X of shape (n, d).
    resources : Resources
    scaling : Scaling or None
    records : list of PassRecord
    """

    source: RowSource
    resources: Resources
    scaling: Scaling | None
    records: list[PassRecord]

    def forward(self, W: Array, out: Array | None = None) -> Array:
        """X W, shape (n, c), into `out` if it is given."""
        product, record = linear.forward(self.source, W, self.resources, scaling=self.scaling, out=out)
        self.records.append(record)
        return product

    def backward(self, V: Array, weights: Array | None = None) -> Array:
        """X'V, or X'SV with the diagonal of S, shape (d, c)."""
        sums, record = linear.backward(self.source, V, self.resources, scaling=self.scaling, weights=weights)
        self.records.append(record)
        return sums

    def normal(self, W: Array, weights: Array | None = None) -> Array:
        """X'X W, or X'SX W, shape (d, c)."""
        sums, record = linear.normal_product(self.source, W, self.resources, scaling=self.scaling, weights=weights)
        self.records.append(record)
        return sums

    def forward_normal(self, W: Array, out: Array | None = None, weights: Array | None = None) -> tuple[Array, Array]:
        """X W, into `out` if it is given, and X'X W, or X'SX W, from one reading."""
        found = linear.forward_normal(self.source, W, self.resources, scaling=self.scaling, weights=weights, out=out)
        self.records.append(found.record)
        return found.forward, found.backward

    def gram_of(self, columns: NDArray[np.intp], weights: Array | None = None) -> Array:
        """X'X, or X'SX, of some columns, shape (m, m)."""
        G, record = gram_of_columns(self.source, columns, self.resources, weights=weights, scaling=self.scaling)
        self.records.append(record)
        return G

    def gram(self, V: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """X'X and X'V, or X'SX and X'SV, shapes (d, d) and (d, c), from one reading."""
        found: GramProducts = gram(self.source, self.resources, R=V, weights=weights, scaling=self.scaling)
        self.records.append(found.record)
        return found.gram, found.products

    def laplacian_gram(self, laplacian: Laplacian) -> Array:
        """X'LX, shape (d, d), of X that is an array of this process: no reading. X is not centred for it."""
        assert isinstance(self.source, ArrayRows)
        G = laplacian_gram(self.source.matrix, laplacian.graph, laplacian.degrees)
        if self.scaling is not None:
            scale_gram(G, self.scaling.factor)
        return G


class IterativeSelector(BaseSelector):
    """Base class of selectors that read the data again and again."""

    keeps_checkpoints: ClassVar[bool] = True

    gram_cap: int
    tol: float
    max_iter: int

    def _labels_and_moments(
        self, source: RowSource, resources: Resources
    ) -> tuple[sp.csr_array, FeatureMoments, list[PassRecord]]:
        """Y (n, q) and the moments of the features from one reading, and its record.

        Raises
        ------
        DataError
            A feature holds NaN or infinity; a label is unknown, and the method takes none of these.
        """
        labels = collect_labels(source, Moments(source.profile.d), resources, label="moments")
        negative = labels.Y.data < 0
        if negative.any() and not self.accepts_unknown_labels:
            raise unknown_labels_error(self, np.bincount(labels.Y.indices[negative], minlength=labels.Y.shape[1]))
        moments: FeatureMoments = labels.result
        self._refuse_broken_features(moments.mean, moments.m2)
        return labels.Y, moments, [labels.record]

    def _result(
        self,
        scores: Array,
        trace: LoopTrace,
        records: Sequence[PassRecord],
        extra: Mapping[str, Any],
        warnings: Sequence[Warning] = (),
    ) -> Scores:
        """What the loop comes back with, its trace in the record."""
        return Scores(
            scores,
            records,
            iterations=trace.iterations,
            converged=trace.converged,
            objective=trace.objective,
            extra={**trace.lists(), **extra},
            warnings=warnings,
        )


def plan_loop(
    resources: Resources,
    *,
    once: Sequence[PassPlan],
    again: Sequence[PassPlan],
    times: int,
    typical: tuple[int, int],
    held: int,
    phases: Sequence[Phase],
    notes: Sequence[str],
    compiled: bool = False,
    scratch_bytes: int = 0,
    more_readings: int = 0,
    worker_bytes: int = 0,
    message_shape: tuple[int, int, int],
) -> Plan:
    """The plan of readings that are made once, and of others that are made in every iteration.

    Parameters
    ----------
    resources : Resources
    once, again : sequence of PassPlan
    times : int
        How often `again` happens at most.
    typical : (int, int)
        How often at least and at most it has happened on real data.
    held : int
        Bytes that the driver holds all the time.
    phases : sequence of Phase
        One after another. Where arrays of n rows do not fit the driver's memory they go to files.
    notes : sequence of str
    compiled : bool
        Whether the driver loads compiled kernels.
    scratch_bytes : int
        What files take of the disk, if that is more than the arrays of one phase.
    more_readings : int
        Readings of a plan in `once` beyond its first.
    worker_bytes : int
        Peak of a worker in steps that read nothing.
    message_shape : (int, int, int)
        n, d and c of a product X W with W of shape (d, c): on a cluster messages take memory of the driver. In process
        the pass itself is held instead.
    """
    tasks, bytes_read, peak_worker = combine([*once, *again])
    peak_worker = max(peak_worker, worker_bytes)
    few, many = (min(each, times) for each in typical)
    if resources.client is None:
        beside = peak_worker - resources.process_bytes
    else:
        # A W on its way to tasks and sums on their way back: pickled, in frames, and in the scheduler, which under a
        # local cluster is this process too; and the rows of a wave.
        n, d, c = message_shape
        beside = 8 * 8 * d * c + min(16 * n * c, 2 * IN_FLIGHT_BYTES)
    if compiled:
        beside += driver_compiled_bytes() if resources.client is not None else resources.compiled_bytes
    fixed = driver_bytes() + held + beside
    row_bytes = max(phase.row_bytes for phase in phases)
    fixed += min(KEPT_BYTES, row_bytes // 2)
    peak, folder = fixed + max(phase.held + phase.row_bytes for phase in phases), None
    if peak > resources.driver_limit:
        folder, row_bytes = scratch_folder(), max(row_bytes, scratch_bytes)
        if row_bytes <= (free := free_disk(folder)):
            peak = fixed + max(phase.held + phase.slab + min(phase.row_bytes, MAPPED_BYTES) for phase in phases)
            notes = [*notes, f"arrays of n rows are files: {row_bytes:,} bytes in the scratch folder {folder}"]
        else:
            notes = [
                *notes,
                f"arrays of n rows fit neither the driver's memory nor the scratch folder {folder}, in which "
                f"{free:,} of {row_bytes:,} bytes are free; point TMPDIR to a larger disk",
            ]
            folder = None

    def passes(times: int) -> int:
        return len(once) + more_readings + times * len(again)

    def read(times: int) -> int:
        return bytes_read + (times - 1) * sum(p.bytes_read for p in again)

    return Plan(
        passes=passes(times),
        tasks=tasks + (times - 1) * sum(p.tasks for p in again),
        bytes_read=read(times),
        peak_worker_bytes=peak_worker,
        peak_driver_bytes=peak,
        notes=tuple(notes),
        shape={} if folder is None else {"scratch_folder": str(folder), "scratch_bytes": row_bytes},
        typical_passes=(passes(few), passes(many)),
        typical_bytes_read=(read(few), read(many)),
    )


def row_space(plan: Plan) -> RowSpace:
    """Where arrays of n rows go, as a plan has it."""
    return RowSpace(plan.shape["scratch_folder"]) if "scratch_folder" in plan.shape else IN_MEMORY


def save_state(
    checkpoint: Checkpoint, arrays: Arrays, trace: LoopTrace, records: Sequence[PassRecord], **facts: Any
) -> None:
    """Leave the state of a loop: its arrays, what it has told, what it has read, and further facts."""
    checkpoint.save(arrays, {"trace": trace.facts(), "records": records_to_facts(records), **facts})


def load_state(checkpoint: Checkpoint, records: list[PassRecord], *, rows: Sequence[str]) -> State | None:
    """The state to go on from, if there is one. Records of what it had read join `records`; `rows` have n rows."""
    state = checkpoint.load(rows=rows)
    if state is not None:
        records += records_from_facts(state.facts["records"])
    return state
