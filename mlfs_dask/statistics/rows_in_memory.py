"""Rows of a source in the memory of this process: all of them, or chosen columns of them, by one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.engine.readings import ReadingRecord, run_reading
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.files.array_files import drop_pages
from mlfs_dask.rows.contract import Block, Profile, RowSource, stack_labels
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Matrix


class RowsInMemory(Statistic):
    """Statistic: all rows in the memory of the process that reads them; never sent.

    Its states are lists of pieces, in the order in which they were read.

    Parameters
    ----------
    profile : Profile
    columns : int array, shape (k,), or None
        Features to keep, in this order; None for all.
    out : float array, shape (n, k), or None
        Where dense rows go; it may be mapped from a file. None: sparse rows are kept as they are.
    """

    state_bytes = 0
    result_bytes = 0
    parameter_bytes = 0

    def __init__(self, profile: Profile, columns: NDArray[np.integer[Any]] | None, out: Matrix | None) -> None:
        self.profile = profile
        self.columns = columns
        self.out = out

    def scratch_bytes(self, profile: Profile) -> int:
        width = profile.d if self.columns is None else len(self.columns)
        return profile.block_bytes + 8 * profile.block_rows * width

    def zero(self) -> State:
        return []

    def add(self, state: State, block: Block) -> None:
        X = block.X if self.columns is None else block.X[:, self.columns]
        # Blocks are views of buffers that the next block overwrites.
        if self.out is None:
            state.append((block.start, sp.csr_array(X, copy=True), block.Y.copy()))
            return
        self.out[block.start : block.start + X.shape[0]] = X.toarray() if sp.issparse(X) else X
        state.append((block.start, None, block.Y.copy()))
        drop_pages()

    def merge(self, into: State, other: State) -> None:
        into.extend(other)

    def finalize(self, state: State) -> tuple[Matrix, sp.csr_array]:
        """Return X, shape (n, k), and Y, shape (n, q)."""
        pieces = sorted(state, key=lambda piece: int(piece[0]))
        labels, q = [Y for _, _, Y in pieces], self.profile.q
        Y = stack_labels(labels, q, numeric=True) if self.profile.numeric else _stacked(labels, q, np.int8)
        if self.out is not None:
            return self.out, Y
        return _stacked([X for _, X, _ in pieces], self.profile.d, np.float64), Y


def read_rows(
    source: RowSource,
    resources: Resources,
    *,
    columns: NDArray[np.integer[Any]] | None = None,
    out: Matrix | None = None,
    label: str = "rows",
) -> tuple[Matrix, sp.csr_array, ReadingRecord]:
    """Return all rows in the memory of this process, by one pass that this process makes itself.

    Parameters
    ----------
    source : RowSource
    resources : Resources
    columns : int array, shape (k,), optional
        Features to keep, in this order; X is dense then. All by default, dense or sparse as the source is.
    out : float array, shape (n, k), optional
        Where the dense rows go; a new array by default.
    label : str
        What the progress line calls this pass.

    Returns
    -------
    X : ndarray or csr_array, shape (n, d) or (n, k)
        Dense: of `Profile.float_dtype`.
    Y : csr_array of int8, shape (n, q)
    record : ReadingRecord

    Raises
    ------
    DoesNotFitError
    """
    profile = source.profile
    if out is None and not (profile.sparse and columns is None):
        width = profile.d if columns is None else len(columns)
        out = np.empty((profile.n, width), profile.float_dtype)
    statistic = RowsInMemory(profile, columns, out)
    ((X, Y),), record = run_reading(source, [statistic], runtime.own_resources(resources), label=label)
    return X, Y, record if resources.client is None else replace(record, peak_worker_bytes=0)


def _stacked(pieces: list[sp.csr_array], columns: int, dtype: Any) -> sp.csr_array:
    if not pieces:
        return sp.csr_array((0, columns), dtype=dtype)
    joined = pieces[0] if len(pieces) == 1 else sp.csr_array(sp.vstack(pieces, format="csr"))
    joined.has_canonical_format = True
    return joined
