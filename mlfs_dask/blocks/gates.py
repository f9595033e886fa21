"""Sizes of groups and tiles, and thresholds for compiled kernels.

No size changes a result beyond rounding. Kernels read the values at each call, so that tests can set all of them small
at once (`tests/conftest.py`), and a few rows take every path that millions take.
"""

from __future__ import annotations

import contextvars

# ---------------------------------------------------------------- groups and tiles of rows and features

#: Rows of a group, for which a kernel computes row variables (V, F, Z) at once.
GROUP_ROWS = 4096

#: Values of a dense tile: 1 MiB of float64, which leaves the second-level cache room for the products.
TILE_VALUES = 2**17

#: Values of a kernel's temporary array: 8 MiB of float64.
VALUES_AT_ONCE = 2**20

#: Bytes of the values of features that are gathered for ranks in one pass.
RANK_BYTES = 2**29

#: Rows of a Gram matrix updated at once from sparse blocks.
GRAM_ROWS = 256

#: Values of L X in memory at once.
LAPLACIAN_VALUES = 2**22

#: Largest number of rows of a tile of queries, and of candidates: their products stay in the second-level cache.
QUERY_ROWS = 256
CANDIDATE_ROWS = 1024

#: For a compiled search of sparse rows: candidates whose sums stay in the second-level cache, and pairs per call.
SPARSE_ROWS = 16384
SPARSE_PAIRS = 2**19

#: Rows whose masses with all landmarks are computed at once: they stay in the first-level cache, or near it.
MASS_ROWS = 64

#: Bytes of one (p, w) array of a tile of pair scores; several arrays must fit a processor's cache: with 4 MiB, chi2 is
#: four times slower (100 labels by 5 000 features: 17 ms against 4 ms).
SCORE_BYTES = 2**18

#: Largest number of features of a tile of pair scores, leaving at least 32 labels, so that terms of the features alone
#: are computed once for many labels.
SCORE_FEATURES = 1024

#: Pairs of a tile of tests, and its least number of features: shorter rows of the sums waste cache lines.
TEST_PAIRS = 2**17
TEST_FEATURES = 16

#: Temporary bytes for converting counts to entropies.
FINALIZE_BYTES = 32 * 2**20

#: Largest number of rows for a table of c log c over all counts c: 8 MiB, of which the cache holds the entries of
#: small counts.
LOG_ROWS = 2**20

# ---------------------------------------------------------------- thresholds from which compiled loops pay for loading

#: Rows whose anchors, leaves, latent or predicted labels are computed.
COMPILED_ROWS = 5_000

#: Bytes of an ARFF file, of which Python reads 20 MB of plain rows a second.
COMPILED_TEXT = 2**24

#: Stored values to be counted by code.
COMPILED_VALUES = 3_000_000

#: Multiplications and additions of products of features and labels.
COMPILED_PRODUCTS = 300_000_000

#: Values of a matrix by which sparse rows are multiplied: 4 MiB, more than the second-level cache, from which on
#: SciPy's products wait for memory.
CACHED_VALUES = 2**19

#: Additions for tables of pairs of features; counts in the tables of all blocks, as NumPy makes a new table for every
#: block; and counts in one table, from which NumPy's products take too much memory.
COMPILED_ADDITIONS = 100_000_000
COMPILED_TABLES = 2**25
COMPILED_ITEMS = 2**22

#: Pairs of sparse rows whose distances are computed.
COMPILED_PAIRS = 2 * 10**6

#: Look-ups of masses in tables.
COMPILED_LOOKUPS = 10**9

rows_of_pass: contextvars.ContextVar[int] = contextvars.ContextVar("rows_of_pass", default=0)
"""Number of all rows of the pass to which the rows of a call belong: one decision for all its blocks."""


def compiles_rows(rows: int) -> bool:
    """Return True if kernels of rows are compiled: they, or the pass that they belong to, are many."""
    return max(rows, rows_of_pass.get()) > COMPILED_ROWS
