"""What sparse blocks weigh, for Dask."""

from __future__ import annotations

import sys
from typing import Any


def register_sizes() -> None:
    """Tell Dask what sparse blocks weigh; by itself it books 56 bytes for each.

    Dask asks a lazy registration only for a type that it has not met, so a type that is loaded already is registered
    at once: it may have been weighed before.
    """
    from dask.sizeof import sizeof
    from scipy.sparse import csr_array

    sizeof.register(csr_array, _row_block_bytes)
    if "sparse" in sys.modules:
        _register_gcxs()
    else:
        # Importing it takes seconds, and most processes never see one of its arrays.
        sizeof.register_lazy("sparse", _register_gcxs)


def _register_gcxs() -> None:
    from dask.sizeof import sizeof
    from sparse import GCXS

    sizeof.register(GCXS, _row_block_bytes)


def _row_block_bytes(block: Any) -> int:
    return int(block.data.nbytes + block.indices.nbytes + block.indptr.nbytes)
