"""Numba, as kernels take it: it keeps machine code where nobody else writes, and heeds no working folder."""

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
    except OSError:  # nothing can be written anywhere: every process compiles for itself
        pass
if _folder is not None and _folder != runtime.INSTALLED_KERNELS:
    os.environ["NUMBA_CACHE_DIR"] = str(_folder)  # also for processes that are started from now on

import numba  # noqa: E402 - reads the environment as it is loaded
from numba.core import config  # noqa: E402

# Numba looks for this file in the working folder, which may be a stranger's, at each function that it compiles. What
# it names, Numba unpickles and imports.
config._config_fname = os.devnull
config.reload_config()

njit = functools.partial(numba.njit, cache=_folder is not None, nogil=True)
"""`numba.njit` of a kernel, whose machine code is kept."""
