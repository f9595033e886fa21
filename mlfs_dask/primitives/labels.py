"""All labels on the driver, taken along in a pass that also feeds a statistic: for methods that fit Y itself.

Labels travel as two bits an entry, since a task's rows have a fixed width and a dense byte an entry would be far more
than what the sparse labels hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import caching
from mlfs_dask.primitives.moments import Moments
from mlfs_dask.primitives.passes import NOT_READ, PassRecord, State, Statistic
from mlfs_dask.primitives.row_passes import Rows, run_row_pass
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Profile, RowSource

#: Entries of Y that are unpacked at a time.
_UNPACKED = 2**22


class WithLabels:
    """Row statistic: another statistic, and the bits of Y.

    Gives two arrays: which entries are not 0, and which are −1, eight to a byte.

    Parameters
    ----------
    statistic : Statistic
    n_labels : int
    """

    def __init__(self, statistic: Statistic, n_labels: int) -> None:
        self.statistic = statistic
        self.n_labels = n_labels

    @property
    def outputs(self) -> Sequence[tuple[int, Any]]:
        return [(-(-self.n_labels // 8), np.uint8)] * 2

    @property
    def state_bytes(self) -> int:
        return self.statistic.state_bytes

    @property
    def result_bytes(self) -> int:
        return self.statistic.result_bytes

    def scratch_bytes(self, profile: Profile) -> int:
        return self.statistic.scratch_bytes(profile) + 4 * profile.block_rows * self.n_labels

    def zero(self) -> State:
        return self.statistic.zero()

    def add_rows(self, state: State, block: Block, inputs: Rows, outputs: Rows) -> None:
        Y = block.Y.toarray()
        outputs[0][...] = np.packbits(Y != 0, axis=1)
        outputs[1][...] = np.packbits(Y < 0, axis=1)
        self.statistic.add(state, block)

    def merge(self, into: State, other: State) -> None:
        self.statistic.merge(into, other)

    def finalize(self, state: State) -> Any:
        return self.statistic.finalize(state)


class Labels(NamedTuple):
    """What `collect_labels` gives: Y (n, q) as a canonical csr_array of int8, the statistic's result, the record."""

    Y: sp.csr_array
    result: Any
    record: PassRecord


def collect_labels(source: RowSource, statistic: Moments, resources: Resources, *, label: str = "labels") -> Labels:
    """Y on the driver, and the result of `statistic`, in one pass.

    Parameters
    ----------
    source : RowSource
    statistic : Moments
    resources : Resources
    label : str
        What the progress line calls this pass.

    Raises
    ------
    DoesNotFitError, ClusterLostError

    Notes
    -----
    Holds n * q / 4 bytes, and 5 bytes for every entry of Y that is not 0.
    """
    q = source.profile.q
    kept = caching.slot(source, f"labels-{statistic.kind}", statistic.parameters)
    found = kept.load()
    if found is not None:
        parts = [found.pop(name) for name in ("Y_data", "Y_indices", "Y_indptr")]
        Y = sp.csr_array(tuple(parts), shape=(source.profile.n, q))
        Y.has_canonical_format = True
        return Labels(Y, statistic.from_arrays(found), NOT_READ)
    (present, negative), result, record = run_row_pass(source, WithLabels(statistic, q), resources, label=label)
    Y = _unpack(present, negative, q)
    kept.save({"Y_data": Y.data, "Y_indices": Y.indices, "Y_indptr": Y.indptr, **statistic.to_arrays(result)})
    return Labels(Y, result, record)


def _unpack(present: NDArray[np.uint8], negative: NDArray[np.uint8], q: int) -> sp.csr_array:
    n = len(present)
    step = max(1, _UNPACKED // max(q, 1))
    pieces = []
    for low in range(0, n, step):
        part = slice(low, low + step)
        Y = np.unpackbits(present[part], axis=1, count=q).view(np.int8)
        Y -= 2 * np.unpackbits(negative[part], axis=1, count=q).view(np.int8)
        pieces.append(sp.csr_array(Y))
    joined = pieces[0] if len(pieces) == 1 else sp.csr_array(sp.vstack(pieces, format="csr"))
    joined.has_canonical_format = True
    return joined
