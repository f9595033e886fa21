"""The one place that knows what a sparse chunk is and how it becomes SciPy CSR.

At the edge of the library blocks are NumPy arrays, `sparse.GCXS`, `sparse.COO` or SciPy matrices; kernels see
`ndarray` or canonical `csr_array`. GCXS compressed on rows becomes CSR without a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.typing import Matrix


def as_matrix(block: Any) -> Matrix:
    """`block` as a C-ordered ndarray or a canonical csr_array, without a copy where it is one already.

    Parameters
    ----------
    block : array-like, shape (rows, d)
        ndarray, SciPy sparse, `sparse.GCXS`, `sparse.COO`, DataFrame, or nested sequences. Booleans become
        uint8, float16 becomes float32, and every other type of number is kept.

    Raises
    ------
    DataError
        Not two-dimensional, or not numbers.
    """
    if sp.issparse(block):
        return _canonical(sp.csr_array(block))
    kind = type(block).__module__.partition(".")[0]
    if kind == "sparse":
        return _canonical(_from_pydata(block))
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
    """`block` as a canonical csr_array of int8 without explicit zeros.

    Parameters
    ----------
    block : array-like, shape (rows, q)
        Entries 1, 0 or -1.

    Raises
    ------
    DataError
        Another value is met; the first one is named with its row and column.
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


def columns_of_block(block: Any, columns: NDArray[np.integer[Any]]) -> Any:
    """Some columns of a block, as a block of the same kind.

    Parameters
    ----------
    block : ndarray, SciPy sparse, `sparse.GCXS` or `sparse.COO`, shape (rows, d)
    columns : int array, shape (k,)

    Returns
    -------
    block of the same type, shape (rows, k)
    """
    if type(block).__module__.partition(".")[0] != "sparse":
        return block.tocsr()[:, columns] if sp.issparse(block) else block[:, columns]
    # Indexing by `sparse` itself compiles for seconds, once a process.
    chosen = _from_pydata(block)[:, columns]
    kind = type(block)
    if kind.__name__ == "COO":
        return kind.from_scipy_sparse(chosen)
    return kind((chosen.data, chosen.indices, chosen.indptr), shape=chosen.shape, compressed_axes=(0,))


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


def _from_pydata(block: Any) -> sp.csr_array:
    if block.ndim != 2:
        raise DataError(
            f"expected a two-dimensional matrix, got shape {block.shape}",
            cure="reshape it to (rows, columns)",
        )
    if getattr(block, "compressed_axes", None) == (0,) and block.fill_value == 0:
        return sp.csr_array((block.data, block.indices, block.indptr), shape=block.shape)
    return sp.csr_array(block.to_scipy_sparse())


def _canonical(matrix: sp.csr_array) -> sp.csr_array:
    data = _plain(matrix.data)
    if data is not matrix.data:
        matrix = sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    if matrix.has_canonical_format:
        return matrix
    matrix = matrix.copy()  # the caller's matrix is not ours to sort
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
            # scikit-learn raises these two types for the same faults, and callers rely on that.
            if isinstance(error, TypeError):
                raise
            raise DataError(f"expected numbers: {error}", cure="encode text columns as numbers first") from None
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported", cure="give real numbers")
    raise DataError(f"expected numbers, got dtype {array.dtype}", cure="encode text columns as numbers first")
