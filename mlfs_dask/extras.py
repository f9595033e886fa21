"""Packages that one command alone needs, and that an extra of the distribution installs."""

from __future__ import annotations

import importlib
from typing import Any

from mlfs_dask.errors import UsageError


def import_extra(module: str, extra: str, what: str) -> Any:
    """A module of a package that an extra installs.

    Parameters
    ----------
    module : str
    extra : str
        Of `mlfs-dask`.
    what : str
        What needs it.

    Raises
    ------
    UsageError
        It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        cure = f'pip install "mlfs-dask[{extra}]"'
        raise UsageError(f"{what} needs {package}, which is not installed\n  cure: {cure}") from error
