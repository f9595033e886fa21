"""Sizes from which kernels work by groups and tiles, or compiled.

None changes a result by more than rounding. Kernels read them here at each call, so that tests set all of them
small at once (`tests/conftest.py`) and a few rows take every path that millions take.
"""

from __future__ import annotations

# ---------------------------------------------------------------- groups and tiles of rows and features

#: Rows for which a kernel computes row variables (V, F, Z) at a time.
GROUP_ROWS = 4096

#: Values of a dense tile: 1 MiB of float64, which leaves the second-level cache room for the products.
TILE_VALUES = 2**17

#: Values of a temporary array that kernels work on: 8 MiB of float64.
VALUES_AT_ONCE = 2**20

#: Rows of a Gram matrix that sparse blocks are added to at a time.
GRAM_ROWS = 256

#: Values of L X that are held at a time.
LAPLACIAN_VALUES = 2**22

#: Most rows of a tile of queries, and of one of candidates: their products stay in the second-level cache.
QUERY_ROWS = 256
CANDIDATE_ROWS = 1024

#: Candidates whose sums stay in that cache in a compiled search of sparse rows, and pairs that it may find at a time.
SPARSE_ROWS = 16384
SPARSE_PAIRS = 2**19

#: Rows whose masses with all landmarks are held at a time.
MASS_ROWS = 512

#: Bytes of one (p, w) array of a tile of pair scores, some of which stay in a processor's cache: with 4 MiB chi2 is
#: four times slower (100 labels by 5 000 features: 17 ms against 4 ms).
SCORE_BYTES = 2**18

#: Most features of a tile of pair scores: it has 32 labels or more, for which terms of the features alone are computed
#: once.
SCORE_FEATURES = 1024

#: Pairs of a tile of tests, and fewest features: shorter rows of the sums are read with their neighbours anyway.
TEST_PAIRS = 2**17
TEST_FEATURES = 16

#: Bytes of temporaries that turning counts into entropies may hold.
FINALIZE_BYTES = 32 * 2**20

#: Most rows for which c log c is looked up in a table of all counts c: 8 MiB, of which the processor's cache holds the
#: entries of small counts.
LOG_ROWS = 2**20

# ---------------------------------------------------------------- sizes from which compiled loops pay for their loading

#: Stored values of which codes are counted.
COMPILED_VALUES = 3_000_000

#: Multiplications and additions of products of features and labels.
COMPILED_PRODUCTS = 300_000_000

#: Additions for tables of pairs of features; counts in the tables of all blocks, since NumPy makes a new table for
#: every block; and counts in one table, from which on NumPy's products take too much memory.
COMPILED_ADDITIONS = 100_000_000
COMPILED_TABLES = 2**25
COMPILED_ITEMS = 2**22

#: Pairs of sparse rows whose distances are computed.
COMPILED_PAIRS = 2 * 10**6

#: Look-ups of masses.
COMPILED_LOOKUPS = 10**9
