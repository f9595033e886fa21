"""Numba for the kernels: machine code is cached in a private folder, and the working folder has no influence."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from mlfs_dask import runtime

_folder = runtime.machine_code_folder()
if _folder is None:
    try:
        _folder = Path(tempfile.mkdtemp(prefix="mlfs-kernels-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    except OSError:  # no folder is writable: every process compiles for itself
        pass
if _folder is not None and _folder != runtime.INSTALLED_KERNELS:
    os.environ["NUMBA_CACHE_DIR"] = str(_folder)  # inherited by processes started from now on

import numba  # noqa: E402 - reads the environment at import
from numba.core import config  # noqa: E402

# For each function that it compiles, Numba looks for a file of this name in the working folder, which may belong to a
# stranger, then unpickles and imports what the file names.
config._config_fname = os.devnull
config.reload_config()

njit = functools.partial(numba.njit, cache=_folder is not None, nogil=True)
"""`numba.njit` of a kernel, whose machine code is kept."""
