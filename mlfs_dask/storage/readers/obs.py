"""Columns of rows of files: covariates and strata, which a conversion keeps beside features and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.storage.obs import ObsColumns, joined
from mlfs_dask.storage.readers.base import BATCH_BYTES, FileSpec
from mlfs_dask.storage.readers.detect import open_source, resolve_sources

Array = NDArray[np.float64]


def obs_names(path: str, options: FileSpec) -> tuple[str, ...]:
    """Names of the columns of rows of a file: those of `obs`, or of a table the columns that are left out."""
    _, known = resolve_sources([path], options)
    return options.drop if known.obs is None else known.obs[0](path, options)


def read_obs(paths: Sequence[str], options: FileSpec) -> ObsColumns:
    """The columns `options.obs` of the rows of files; they are read when blocks are asked for.

    Parameters
    ----------
    paths : sequence of str
    options : FileSpec

    Raises
    ------
    DataError
        A column is not there.
    UsageError
        The format has no columns of rows.
    """
    files, known = resolve_sources(paths, options)
    names = options.obs
    if known.obs is not None:
        return joined([known.obs[1](file, names, options) for file in files], paths=files)
    reader = open_source(list(paths), options=replace(options, only_obs=True))
    order = [list(reader.header.feature_names or ()).index(name) for name in names]
    codes = reader.header.categories

    def blocks() -> Iterator[Array]:
        for part in reader.parts(1 << 62):
            for batch in reader.read(part, batch_bytes=BATCH_BYTES):
                yield np.asarray(batch.X, dtype=np.float64)[:, order]

    categories = {name: codes[column] for name, column in zip(names, order, strict=True) if column in codes}
    return ObsColumns(names, categories, blocks)
