"""Byte sizes of sparse blocks for Dask's scheduler."""

from __future__ import annotations

import sys
from typing import Any


def register_sizes() -> None:
    """Register the byte sizes of sparse blocks with Dask, which otherwise assumes 56 bytes for each.

    Dask consults a lazy registration only for a type that it has not met yet. A loaded type may have been met, so it is
    registered at once.
    """
    from dask.sizeof import sizeof
    from scipy.sparse import csr_array

    sizeof.register(csr_array, _row_block_bytes)
    if "sparse" in sys.modules:
        _register_gcxs()
    else:
        # Importing `sparse` takes seconds, and most processes never see one of its arrays.
        sizeof.register_lazy("sparse", _register_gcxs)


def _register_gcxs() -> None:
    from dask.sizeof import sizeof
    from sparse import GCXS

    sizeof.register(GCXS, _row_block_bytes)


def _row_block_bytes(block: Any) -> int:
    return int(block.data.nbytes + block.indices.nbytes + block.indptr.nbytes)
