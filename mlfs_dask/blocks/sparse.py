"""Conversion of sparse chunks to SciPy CSR, for all of the package.

Users pass NumPy arrays, `sparse.GCXS`, `sparse.COO` or SciPy matrices; kernels receive an `ndarray` or a canonical
`csr_array`. Row-compressed GCXS becomes CSR without a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.typing import Array, Matrix


def as_matrix(block: Any) -> Matrix:
    """Convert `block` to a C-ordered ndarray or a canonical csr_array, without a copy if it is one.

    Parameters
    ----------
    block : array-like, shape (rows, d)
        ndarray, SciPy sparse, `sparse.GCXS`, `sparse.COO`, DataFrame, or nested sequences. Booleans become uint8,
        float16 becomes float32, and other numeric dtypes stay.

    Raises
    ------
    DataError
        If the block is not two-dimensional, not numeric, or a sparse matrix with invalid offsets or indices.
    """
    if sp.issparse(block) or _is_pydata(block):
        return _canonical(_as_csr(block))
    array = np.asarray(block)
    if array.ndim != 2:
        raise DataError(
            f"expected a two-dimensional matrix, got shape {array.shape}",
            cure="reshape it to (rows, columns)",
        )
    if array.dtype.kind not in "fiub":
        array = _numbers(array)
    return np.ascontiguousarray(_plain(array))


def as_labels(block: Any) -> sp.csr_array:
    """Convert `block` to a canonical csr_array of int8 without explicit zeros.

    Parameters
    ----------
    block : array-like, shape (rows, q)
        Entries 1, 0 or -1.

    Raises
    ------
    DataError
        If another value occurs; the message names the first one with row and column.
    """
    Y = as_matrix(block)
    values = Y.data if sp.issparse(Y) else Y
    if values.size:
        bad = ~((values == 0) | (values == 1) | (values == -1))
        if bad.any():
            _refuse_label(Y, bad)
    if sp.issparse(Y):
        result = Y if Y.dtype == np.int8 else Y.astype(np.int8)
        if result.nnz and not result.data.all():
            result = result.copy() if result is Y else result
            result.eliminate_zeros()
        return result
    return sp.csr_array(Y.astype(np.int8, copy=False))


def as_targets(block: Any) -> Array:
    """Convert `block` to a dense float64 array of numeric targets, shape (rows, q), NaN for unknown.

    Raises
    ------
    DataError
        If an entry is infinite; the message names the first one with row and column.
    """
    matrix = as_matrix(block)
    Y: Array = (matrix.toarray() if sp.issparse(matrix) else matrix).astype(np.float64, copy=False)
    if (infinite := np.isinf(Y)).any():
        row, column = (int(i) for i in np.argwhere(infinite)[0])
        raise DataError(
            f"a numeric target is infinite (row {row}; counted from 0)", column=column, cure="write NaN for unknown"
        )
    return Y


def columns_of_block(block: Any, columns: NDArray[np.integer[Any]]) -> Any:
    """Return the given columns of a block, as a block of the same kind.

    Parameters
    ----------
    block : ndarray, SciPy sparse, `sparse.GCXS` or `sparse.COO`, shape (rows, d)
    columns : int array, shape (k,)

    Returns
    -------
    block of the same type, shape (rows, k)
    """
    if not _is_pydata(block):
        return block.tocsr()[:, columns] if sp.issparse(block) else block[:, columns]
    # Indexing by `sparse` itself compiles for seconds, once per process.
    chosen = _as_csr(block)[:, columns]
    kind = type(block)
    if kind.__name__ == "COO":
        return kind.from_scipy_sparse(chosen)
    return kind((chosen.data, chosen.indices, chosen.indptr), shape=chosen.shape, compressed_axes=(0,))


def offsets_fault(indptr: NDArray[np.integer[Any]], first: int, last: int, *, first_row: int = 0) -> str | None:
    """Describe why row offsets do not lead from `first` to `last`; None for valid offsets.

    Parameters
    ----------
    indptr : int array, shape (rows + 1,)
    first, last : int
        Bounds of the stored values of the rows.
    first_row : int
        Number of the first row in the whole matrix, for the message.

    Examples
    --------
    >>> offsets_fault(np.array([7, 9, 8, 12]), 7, 12, first_row=10)
    'the offsets of row 11 (counted from 0) fall from 9 to 8'
    """
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        row = int(falls.argmax())
        return f"the offsets of row {first_row + row} (counted from 0) fall from {indptr[row]} to {indptr[row + 1]}"
    if indptr[0] != first or indptr[-1] != last:
        return f"the row offsets run from {indptr[0]} to {indptr[-1]}, not from {first} to {last}"
    return None


def indices_fault(
    indptr: NDArray[np.integer[Any]], indices: NDArray[np.integer[Any]], columns: int, *, first_row: int = 0
) -> str | None:
    """Describe why column indices are out of range or not ascending within a row; None for valid indices.

    Compiled kernels read and write at the indices unchecked. SciPy's equivalent check takes five times as long.

    Parameters
    ----------
    indptr : int array, shape (rows + 1,)
        From 0 to the number of indices, non-decreasing.
    indices : int array
    columns : int
    first_row : int
        Number of the first row in the whole matrix, for the message.

    Examples
    --------
    >>> indices_fault(np.array([0, 2, 3]), np.array([0, 2, 1]), 3)
    >>> indices_fault(np.array([0, 2, 3]), np.array([0, 2, -1]), 3, first_row=10)
    'row 11 (counted from 0) has the column index -1, of 3 columns'
    >>> indices_fault(np.array([0, 2, 3]), np.array([2, 0, 1]), 3)
    'the column indices of row 0 (counted from 0) do not rise'
    """
    if not len(indices):
        return None
    # As an unsigned number, a negative index is large: one comparison finds both faults.
    unsigned = indices.view(f"u{indices.dtype.itemsize}")
    if unsigned.max() >= columns:
        at = int((unsigned >= columns).argmax())
        row = first_row + int(np.searchsorted(indptr, at, side="right")) - 1
        return f"row {row} (counted from 0) has the column index {indices[at]}, of {columns} columns"
    rises = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    rises[starts[(starts > 0) & (starts < len(indices))] - 1] = True  # from the last index of a row to the next row
    if not rises.all():
        row = first_row + int(np.searchsorted(indptr, int(rises.argmin()), side="right")) - 1
        return f"the column indices of row {row} (counted from 0) do not rise"
    return None


def _refuse_label(Y: Matrix, bad: NDArray[np.bool_]) -> None:
    if sp.issparse(Y):
        at = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(Y.indptr, at, side="right")) - 1
        column, value = int(Y.indices[at]), Y.data[at]
    else:
        row, column = (int(i) for i in np.argwhere(bad)[0])
        value = Y[row, column]
    raise DataError(
        f"Y must be 0/1 (or -1 for unknown); row {row}, column {column} holds {value} (counted from 0)",
        cure="binarise the labels first, for example with Y > threshold",
    )


def _is_pydata(block: Any) -> bool:
    return type(block).__module__.partition(".")[0] == "sparse"


def _as_csr(block: Any) -> sp.csr_array:
    """Convert a SciPy or pydata matrix to CSR, after checking its arrays, which conversions use unchecked."""
    if block.ndim != 2:
        raise DataError(
            f"expected a two-dimensional matrix, got shape {block.shape}",
            cure="reshape it to (rows, columns)",
        )
    try:
        if getattr(block, "compressed_axes", None) == (0,) and block.fill_value == 0:
            block = sp.csr_array((block.data, block.indices, block.indptr), shape=block.shape)
        elif _is_pydata(block):
            block = block.to_scipy_sparse()
        if block.format == "coo":
            block = type(block)((block.data, block.coords), shape=block.shape)
        elif block.format in ("csr", "csc", "bsr"):
            fault = offsets_fault(block.indptr, 0, int(block.indptr[-1]))
            if fault is not None:
                raise ValueError(fault)
            type(block)(block).check_format(full_check=True)  # on a copy, as the check may replace arrays
        return sp.csr_array(block)
    except ValueError as error:
        raise DataError(f"the sparse matrix is damaged: {error}", cure="make it again from its source") from None


def _canonical(matrix: sp.csr_array) -> sp.csr_array:
    data = _plain(matrix.data)
    if data is not matrix.data:
        matrix = sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    if matrix.has_canonical_format:
        return matrix
    matrix = matrix.copy()  # the caller's matrix must stay unchanged
    matrix.sum_duplicates()
    return matrix


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype == np.bool_:
        return array.view(np.uint8)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array


def _numbers(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            # scikit-learn raises these two types for the same faults, and callers rely on them.
            if isinstance(error, TypeError):
                raise
            raise DataError(f"expected numbers: {error}", cure="encode text columns as numbers first") from None
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported", cure="give real numbers")
    raise DataError(f"expected numbers, got dtype {array.dtype}", cure="encode text columns as numbers first")


def count_labels(Y: sp.csr_array, weights: Array | None = None) -> NDArray[Any]:
    """Count unknown, negative and positive entries of each label, shape (3, q); for weighted rows, sum the weights.

    Of numeric targets NaN is unknown, and a number up to 0 negative.

    >>> count_labels(sp.csr_array(np.array([[1, 0], [-1, 0]], dtype=np.int8)))
    array([[1, 0],
           [0, 2],
           [1, 0]])
    """
    n, q = Y.shape
    if isinstance(Y, np.ndarray):
        of_rows = np.ones(n, np.int64) if weights is None else weights
        return np.stack([of_rows @ which for which in (np.isnan(Y), Y <= 0, Y > 0)])
    if weights is not None:
        of_entries = np.repeat(weights, np.diff(Y.indptr))
        positive, unknown = (
            np.bincount(Y.indices[entries], weights=of_entries[entries], minlength=q)
            for entries in (Y.data > 0, Y.data < 0)
        )
        return np.stack([unknown, weights.sum() - positive - unknown, positive])
    positive = np.bincount(Y.indices[Y.data > 0], minlength=q)
    unknown = np.bincount(Y.indices[Y.data < 0], minlength=q)
    return np.stack([unknown, n - positive - unknown, positive]).astype(np.int64)
