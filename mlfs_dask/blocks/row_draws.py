"""Random draws for rows, based on row numbers alone: the same for any chunks, partitions and workers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: Bytes of a sample; with many features, fewer rows are drawn.
SAMPLE_BYTES = 256 * 2**20

#: Rows of the sample for quantile edges and medians: the share of rows below an edge is then accurate to 0.4 % (one
#: standard error).
QUANTILE_ROWS = 16384

#: Least number of rows of a sample.
FEWEST_ROWS = 256


def row_bits(start: int, rows: int, key: int = 0) -> NDArray[np.uint64]:
    """Return 64 random bits for each of a range of rows (SplitMix64, Steele, Lea & Flood 2014).

    Parameters
    ----------
    start, rows : int
        Number of the first row, and number of rows.
    key : int
        Number of the random stream, below 2**64.

    Returns
    -------
    uint64 array, shape (rows,)

    Examples
    --------
    >>> bool((row_bits(0, 5, key=3)[2:] == row_bits(2, 3, key=3)).all())
    True
    """
    return bits_of_rows(np.arange(start, start + rows), key)


def bits_of_rows(numbers: NDArray[np.integer], key: int = 0) -> NDArray[np.uint64]:
    """Return the `row_bits` of rows of any numbers, shape (rows,)."""
    x = numbers.astype(np.uint64) + np.uint64(1)
    return mix_bits(x * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key))


def mix_bits(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits one-to-one, so that every output bit depends on all bits of x (last step of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def shuffled_places(start: int, rows: int, m: int, key: int) -> NDArray[np.int64]:
    """Return a position in a list of m for each of a range of rows: every m rows from row 0 on form a permutation.

    Row i gets position (a (i mod m) + c) mod m, with a multiplier a coprime to m and drawn for the key, and a shift c
    drawn for the key and i // m.

    Parameters
    ----------
    start, rows, key : int
        See `row_bits`.
    m : int

    Returns
    -------
    int64 array, shape (rows,)

    Examples
    --------
    >>> sorted(shuffled_places(10, 5, 5, key=1).tolist())
    [0, 1, 2, 3, 4]
    """
    random = np.random.default_rng(key)
    multiplier = m
    while math.gcd(multiplier, m) > 1:
        multiplier = int(random.integers(1, m + 1))
    block, place = np.divmod(np.arange(start, start + rows), m)
    # A call covers few blocks of m rows.
    first = start // m
    shifts = row_bits(first, (start + rows - 1) // m - first + 1, key) % np.uint64(m)
    result: NDArray[np.int64] = (multiplier * place + shifts.astype(np.int64)[block - first]) % m
    return result


def draw_row_numbers(
    n: int, n_rows: int, seed: int | None, *, row_bytes: int, max_bytes: int = SAMPLE_BYTES
) -> NDArray[np.int64]:
    """Return ascending numbers of up to `n_rows` of n rows, fewer if rows of `row_bytes` would exceed `max_bytes`.

    At least `FEWEST_ROWS` rows are drawn, or all n if n is smaller.

    >>> len(draw_row_numbers(10**6, 16384, 0, row_bytes=2**20)), draw_row_numbers(3, 2, 0, row_bytes=8).tolist()
    (256, [0, 1, 2])
    """
    m = max(FEWEST_ROWS, min(n_rows, max_bytes // max(row_bytes, 1)))
    if n <= m:
        return np.arange(n)
    chosen = np.random.default_rng(seed).choice(n, size=m, replace=False)
    return np.sort(chosen).astype(np.int64)
