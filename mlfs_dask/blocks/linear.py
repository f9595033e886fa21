"""Products X W, X'R and X'SX of one block with centred X: dense rows are centred in tiles, sparse rows by algebra.

All sums are float64, whatever the dtype of X. Dense rows are converted to float64 in tiles, so that the temporary array
stays in the cache and both products of a tile read memory once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import Profile


def tile_rows(d: int) -> int:
    """Return the number of rows of a dense tile."""
    return max(16, gates.TILE_VALUES // max(d, 1))


def tile_bytes() -> int:
    """Return the bytes that the kernels allocate for one dense tile."""
    return 16 * gates.TILE_VALUES


def dense_tiles(X: NDArray[Any], centre: Array | None, width: int = 0) -> Iterator[tuple[slice, Array]]:
    """Yield tiles of X − `centre` in float64; a tile is valid until the next one. Products with it are `width` wide."""
    rows, d = X.shape
    step = tile_rows(max(d, width))
    if centre is None and X.dtype == np.float64:
        for low in range(0, rows, step):
            part = slice(low, min(low + step, rows))
            yield part, X[part]
        return
    space = np.empty((min(step, rows), d))
    for low in range(0, rows, step):
        part = slice(low, min(low + step, rows))
        tile = space[: part.stop - low]
        tile[...] = X[part]
        if centre is not None:
            tile -= centre
        yield part, tile


def row_groups(rows: int, size: int | None = None) -> Iterator[slice]:
    """Yield slices of `size` consecutive rows (default: `gates.GROUP_ROWS`), which bound the temporary arrays.

    >>> [part.stop for part in row_groups(10_000)]
    [4096, 8192, 10000]
    """
    step = size or gates.GROUP_ROWS
    for low in range(0, rows, step):
        yield slice(low, min(low + step, rows))


def group_scratch_bytes(profile: Profile, columns: int) -> int:
    """Return the bytes of `columns` columns for a group of rows, and of the temporaries of the group's products."""
    rows = min(gates.GROUP_ROWS, profile.block_rows)
    # Sparse rows are copied out of their block, and their products are float64.
    return 8 * rows * columns + (28 * group_values(profile) if profile.sparse else tile_bytes())


def group_values(profile: Profile) -> int:
    """Return the stored values of a group of sparse rows, allowing twice the density of the largest block."""
    rows = min(2 * gates.GROUP_ROWS, profile.block_rows)
    return -(-profile.block_values * rows // max(profile.block_rows, 1))


def leaves_cache(size: int) -> bool:
    """Return True if products of sparse rows with a matrix of `size` values are compiled: see `gates.CACHED_VALUES`."""
    return size >= gates.CACHED_VALUES


def _compressed(X: sp.csr_array | sp.csc_array) -> tuple[NDArray[np.int32], NDArray[np.int32], Array]:
    """Return the arrays of a sparse matrix for the compiled kernels."""
    indptr, indices = (each.astype(np.int32, copy=False) for each in (X.indptr, X.indices))
    return indptr, indices, X.data.astype(np.float64, copy=False)


def forward_block(X: Matrix, W: Array, centre: Array | None, out: NDArray[Any]) -> None:
    """Write (X − centre) W to `out`.

    Parameters
    ----------
    X : ndarray or csr_array, shape (rows, d)
    W : float64 array, shape (d, c)
    centre : float64 array, shape (d,), or None for 0
    out : float64 array, shape (rows, c)

    Examples
    --------
    >>> out = np.empty((2, 1))
    >>> forward_block(np.array([[1, 2], [3, 4]]), np.array([[1.0], [10.0]]), np.array([1.0, 0.0]), out)
    >>> out
    array([[20.],
           [42.]])
    """
    if isinstance(X, np.ndarray):
        for part, tile in dense_tiles(X, centre):
            np.matmul(tile, W, out=out[part])
        return
    if leaves_cache(W.size):
        from mlfs_dask.blocks import linear_compiled as kernels

        shift = np.zeros(len(W)) if centre is None else centre
        kernels.forward(*_compressed(X.tocsc()), np.ascontiguousarray(W), shift, out)
        return
    out[...] = X @ W
    if centre is not None:
        out -= centre @ W


def backward_block(X: Matrix, R: Array, centre: Array | None, into: Array) -> None:
    """Add (X − centre)'R to `into`, in place.

    Parameters
    ----------
    X : ndarray or csr_array, shape (rows, d)
    R : float64 array, shape (rows, c)
    centre : float64 array, shape (d,), or None for 0
    into : float64 array, shape (d, c)

    Examples
    --------
    >>> into = np.zeros((2, 1))
    >>> backward_block(np.array([[1, 2], [3, 4]]), np.array([[1.0], [10.0]]), np.array([1.0, 0.0]), into)
    >>> into
    array([[20.],
           [42.]])
    """
    if isinstance(X, np.ndarray):
        for part, tile in dense_tiles(X, centre):
            into += tile.T @ R[part]
        return
    if leaves_cache(into.size):
        from mlfs_dask.blocks import linear_compiled as kernels

        shift = np.zeros(len(into)) if centre is None else centre
        kernels.backward(*_compressed(X.tocsc()), np.ascontiguousarray(R), shift, R.sum(axis=0), into)
        return
    into += X.T @ R
    if centre is not None:
        into -= np.outer(centre, R.sum(axis=0))


def grouped_block(X: Matrix, Z: sp.csr_array, centre: Array | None, into: Array) -> None:
    """Add Z'(X − centre) to `into`, in place.

    Parameters
    ----------
    X : ndarray or csr_array, shape (rows, d)
    Z : csr_array, shape (rows, m)
        With few entries per row.
    centre : float64 array, shape (d,), or None for 0
    into : float64 array, shape (m, d)

    Examples
    --------
    >>> into = np.zeros((2, 2))
    >>> grouped_block(np.array([[1, 2], [3, 4]]), sp.csr_array(np.array([[1.0, 0], [0.5, 0]])), np.zeros(2), into)
    >>> into
    array([[2.5, 4. ],
           [0. , 0. ]])
    """
    if not gates.compiles_rows(X.shape[0]):
        _group_few(X, Z, centre, into)
        return
    from mlfs_dask.blocks import linear_compiled as kernels

    if isinstance(X, np.ndarray):
        ends, columns, weights = _compressed(Z)
        for part, tile in dense_tiles(X, centre):
            kernels.grouped_rows(tile, ends[part.start :], columns, weights, into)
        return
    shift, sums = np.zeros(X.shape[1]) if centre is None else centre, np.asarray(Z.sum(axis=0)).ravel()
    kernels.grouped(*_compressed(X.tocsc()), *_compressed(Z), shift, sums, into)


def _group_few(X: Matrix, Z: sp.csr_array, centre: Array | None, into: Array) -> None:
    """Add what `grouped_block` does, for few rows, by SciPy."""
    if isinstance(X, np.ndarray):
        for part, tile in dense_tiles(X, centre):
            for strip in row_groups(X.shape[1], tile_rows(len(into))):
                into[:, strip] += Z[part].T @ tile[:, strip]
        return
    for part in row_groups(X.shape[0], gates.GRAM_ROWS):
        product = (sp.csr_array(Z[part].T) @ X[part].astype(np.float64)).tocoo()  # Z'X with Z' as CSC would convert X
        into[product.row, product.col] += product.data  # SciPy's product has no duplicate entries
    if centre is not None:
        into -= np.outer(np.asarray(Z.sum(axis=0)).ravel(), centre)


def gram_block(X: Matrix, weights: Array | None, centre: Array | None, into: Array) -> None:
    """Add (X − centre)' diag(weights) (X − centre) to `into`, in place. Rows of weight 0 are skipped.

    Parameters
    ----------
    X : ndarray or csr_array, shape (rows, d)
    weights : float64 array, shape (rows,), or None for 1
        Non-negative.
    centre : float64 array, shape (d,), or None for 0
    into : float64 array, shape (d, d)

    Examples
    --------
    >>> into = np.zeros((2, 2))
    >>> gram_block(np.array([[1, 2], [3, 4]]), np.array([0.0, 2.0]), np.array([1.0, 0.0]), into)
    >>> into
    array([[ 8., 16.],
           [16., 32.]])
    """
    if weights is not None:
        weighted_rows = np.flatnonzero(weights)
        if len(weighted_rows) < len(weights):
            X, weights = X[weighted_rows], weights[weighted_rows]
    if X.shape[0] == 0:
        return
    if isinstance(X, np.ndarray):
        for part, tile in dense_tiles(X, centre):
            if weights is not None:
                tile = tile * np.sqrt(weights[part])[:, np.newaxis]
            into += tile.T @ tile  # both factors are one array, so BLAS computes a single triangle
        return
    wide = X.astype(np.float64)
    weighted = wide if weights is None else sp.csr_array(wide.multiply(weights[:, np.newaxis]))
    transposed = sp.csr_array(wide.T)
    sums, total = np.asarray(weighted.sum(axis=0)).ravel(), float(X.shape[0] if weights is None else weights.sum())
    d = X.shape[1]
    for low in range(0, d, gates.GRAM_ROWS):
        part = slice(low, min(low + gates.GRAM_ROWS, d))
        product = (transposed[part] @ weighted).tocoo()
        into[part][product.row, product.col] += product.data  # SciPy's product has no duplicate entries
        if centre is not None:
            into[part] -= np.outer(sums[part], centre)
            into[part] -= np.outer(centre[part], sums - total * centre)


def symmetrise(G: Array) -> None:
    """Replace G by the mean of itself and its transpose, in place, `gates.GRAM_ROWS` rows at a time.

    Examples
    --------
    >>> G = np.array([[1.0, 2.0], [4.0, 5.0]])
    >>> symmetrise(G)
    >>> G
    array([[1., 3.],
           [3., 5.]])
    """
    for low in range(0, len(G), gates.GRAM_ROWS):
        strip = slice(low, low + gates.GRAM_ROWS)
        mean = (G[strip, low:] + G[low:, strip].T) * 0.5
        G[strip, low:] = mean
        G[low:, strip] = mean.T


def laplacian_gram(X: Matrix, graph: sp.csr_array, degrees: Array) -> Array:
    """Return X'LX with L = diag(degrees) − graph, for rows in memory.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
        Need not be centred if L is a Laplacian, whose rows sum to zero; but columns far from zero lose digits.
    graph : csr_array, shape (n, n)
    degrees : float64 array, shape (n,)

    Notes
    -----
    Allocates two arrays of shape (d, d), including the result, and `laplacian_gram_bytes`.

    Examples
    --------
    >>> X, graph = np.array([[1, 5], [4, 5]]), sp.csr_array(np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> laplacian_gram(X, graph, np.array([2.0, 2.0]))
    array([[18.,  0.],
           [ 0.,  0.]])
    """
    n, d = X.shape
    into = np.zeros((d, d))
    if isinstance(X, np.ndarray):
        step = max(1, gates.LAPLACIAN_VALUES // max(n, 1))
        for low in range(0, d, step):
            part = slice(low, min(low + step, d))
            columns = X[:, part].astype(np.float64)  # a copy
            image = graph @ columns
            columns *= degrees[:, np.newaxis]
            np.subtract(columns, image, out=image)
            for rows, tile in dense_tiles(X, None):
                into[:, part] += tile.T @ image[rows]
        return into
    wide = X.astype(np.float64)
    step = max(1, gates.LAPLACIAN_VALUES // max(d, 1))
    for low in range(0, n, step):
        part = slice(low, min(low + step, n))
        rows = wide[part]
        image = rows.multiply(degrees[part, np.newaxis]) - graph[part] @ wide
        # A row of L X has many more entries than a row of X: added densely, column by column, it runs at memory speed.
        into += rows.T @ image.toarray()
    return into


def laplacian_gram_bytes(n: int, d: int, nonzeros: int | None) -> int:
    """Return the bytes that `laplacian_gram` allocates for temporaries; `nonzeros` is for sparse X.

    >>> laplacian_gram_bytes(10, 2, None)
    320
    """
    values = min(n * d, max(gates.LAPLACIAN_VALUES, d if nonzeros is not None else n))
    return 16 * values if nonzeros is None else 32 * values + 12 * nonzeros


def sparse_strips(X: sp.csr_array) -> Iterator[slice]:
    """Yield runs of rows with at most `gates.VALUES_AT_ONCE` stored values, at least one row, for `gram_block`.

    >>> list(sparse_strips(sp.csr_array(np.eye(3))))
    [slice(0, 3, None)]
    """
    low, rows = 0, X.shape[0]
    while low < rows:
        high = int(np.searchsorted(X.indptr, int(X.indptr[low]) + gates.VALUES_AT_ONCE, side="right")) - 1
        yield slice(low, high := min(max(high, low + 1), rows))
        low = high


def gram_scratch_bytes(d: int, rows: int, stored: int) -> int:
    """Return the bytes that `gram_block` allocates for a sparse block of `rows` rows and `stored` values."""
    product = 28 * min(gates.GRAM_ROWS, d) * d
    return 52 * stored + 8 * (rows + 2 * d) + product + 8 * min(gates.GRAM_ROWS, d) * d
