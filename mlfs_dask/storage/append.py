"""Further rows for a store that is there: `mlfs append`.

The new rows go the way of a conversion (`mlfs_dask.storage.convert`), beside the store, which changes in one step when
everything is written: whoever opens it sees all of the new rows or none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlfs_dask.errors import UsageError
from mlfs_dask.files.object_store import is_url, local_path, require_writable
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.storage.chunking import PARTITION_BYTES
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import Conversion, convert_files, paths_of
from mlfs_dask.storage.dataset import open_store
from mlfs_dask.storage.destination import Destination
from mlfs_dask.storage.extension import StoreExtension


def append(
    store: str | Path,
    sources: str | Path | Sequence[str | Path],
    *,
    labels: LabelSpec | None = None,
    format: str | None = None,
    keys: Mapping[str, str] | None = None,
    workers: int | None = None,
    memory_limit: int | None = None,
    dtype: str | None = None,
    partition_bytes: int = PARTITION_BYTES,
    drop: Sequence[str] = (),
    transpose: bool = False,
    force: bool = False,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> Conversion:
    """Append the rows of files to a store.

    Parameters
    ----------
    store : path or URL
        Store to append to. It changes in one step, once all rows are written.
    sources : path, URL or sequence of them
        Files with the features and labels of the store, by name and in its order.
    labels, format, keys, drop, transpose
        As for `convert`. By default values of labels keep their meaning in the store, and -1 is unknown if the store
        has unknown labels.
    workers, memory_limit, partition_bytes, storage_options, command
        As for `convert`.
    dtype : str, optional
        Type of the store; values that it cannot hold exactly are rounded to it.
    force : bool
        Discard an interrupted `append`.
    resume : bool
        Continue an interrupted `append`.

    Returns
    -------
    Conversion
        Record of the conversion; `schema` is that of the whole store.

    Raises
    ------
    DataError
        The rows are invalid, or do not fit the store; the store stays as it was.
    UsageError
        `dtype` is not that of the store, the store was changed meanwhile, or an interrupted `append` exists
        (without `resume`).
    DoesNotFitError
        Memory or disk space is projected not to suffice.

    Notes
    -----
    Columns in the store's `obs` are read from the new files, too. Storage, type and old partitions stay. The digest of
    the store becomes that of a store converted from all files at once in the same form. The last shard of each array is
    written again if it is not full, or if it is the only one.
    """
    started = time.monotonic()
    if is_url(store):
        require_writable(str(store))
        place = str(store)
    else:
        place = str(local_path(store).resolve())  # the store itself is exchanged, not a link to it
    finished = Destination(place, storage_options).finish_append()
    extension = StoreExtension(open_store(place, storage_options=storage_options))
    if finished and resume:
        return Conversion(str(store), extension.schema, (), time.monotonic() - started, 0, 0, 0)
    if dtype not in (None, extension.schema.dtype):
        raise UsageError(
            f"the store holds {extension.schema.dtype}, so appended values cannot be {dtype}"
            "\n  cure: leave --dtype out, or convert all files together"
        )
    paths = paths_of(sources)
    labels = labels or LabelSpec()
    if labels.values.is_default:
        said: dict[str, Any] = {name: tuple(values) for name, values in extension.schema.label_values.items()}
        labels = replace(labels, **said)
    spec = FileSpec.of(
        labels=labels,
        format=format,
        keys=keys,
        drop=drop,
        transpose=transpose,
        obs=[name for name in extension.dataset.obs if name not in extension.schema.targets],
        targets=extension.schema.targets,
        storage_options=storage_options,
    )
    return convert_files(
        paths,
        place,
        options=Options(spec, dtype, extension.schema.storage, extension.schema.compressor, partition_bytes),
        workers=workers,
        memory_limit=memory_limit,
        force=force,
        resume=resume,
        command=command or f"append {store} {' '.join(paths)}",
        extension=extension,
    )
