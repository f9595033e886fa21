"""Export of the chosen columns of a store, as a new store or as a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.selection.runs import Run, read_run
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.dataset import Dataset, Store
from mlfs_dask.storage.export import export_format, export_rows
from mlfs_dask.storage.opening import is_store, open_dataset, reading_of
from mlfs_dask.storage.subset_spec import choose_columns
from mlfs_dask.typing import Matrix


@dataclass(frozen=True)
class WrittenColumns:
    """Result of the export.

    Attributes
    ----------
    destination : str
    n, k, q : int
        Rows, features and labels.
    bytes : int
    features : list of str
        Names of the columns, in the order of the store.
    """

    destination: str
    n: int
    k: int
    q: int
    bytes: int
    features: list[str]


def write_selected(
    store: str,
    run: str,
    destination: str,
    *,
    k: int | float | None = None,
    force: bool = False,
    resume: bool = False,
    command: str | None = None,
    **reading: Any,
) -> WrittenColumns:
    """Write the features that a run chose, with all rows and labels.

    Makes one pass over the store, with one block of rows in memory.

    Parameters
    ----------
    store : str
        Store or file from which the run was made; path or URL.
    run : str
        Run folder.
    destination : str
        A name that ends in .zarr or has no suffix becomes a store; another suffix selects the file format.
    k : int or float, optional
        Number or fraction of the best features; default: the number that the run chose.
    force : bool
        Replace an existing destination.
    resume : bool
        Continue an interrupted store; a file starts again.
    command : str, optional
        Command to record in a new store.
    **reading
        For a file, how to read it: `labels`, `format`, `keys`, `drop` of `open_dataset`; default: as the run did.

    Returns
    -------
    WrittenColumns

    Raises
    ------
    DataError
        If `run` is no run, or was made from another store.
    UsageError
        If k or the suffix is invalid, or the destination exists without `force`.
    """
    to_store = PurePosixPath(destination).suffix.lower() in ("", ".zarr")
    if not to_store:
        export_format(destination)
    record = read_run(run)
    if not reading and record.store.get("reading") and not is_store(store):
        reading = reading_of(record.store)
    dataset = open_dataset(store, **reading)
    _check_origin(dataset, record, store)
    if dataset.rows.profile.numeric and not to_store:
        raise UsageError(
            f"{destination} would hold 0/1 labels, and {store} has numeric targets\n  cure: write a store "
            "(DEST.zarr), whose obs holds them"
        )
    columns = np.sort(record.ranking[: count_selected(record, k)])
    if "features" in record.store.get("subset", {}):  # the run numbers features within its subset: match by name
        names_of = dict(zip(record.ranking.tolist(), record.feature_names, strict=True))
        columns = choose_columns([names_of[i] for i in columns.tolist()], dataset.feature_names.tolist(), "feature")
    names = [str(name) for name in dataset.feature_names[columns]]
    if to_store:
        of_store: dict[str, Any] = {"format": "anndata"} if isinstance(dataset, Store) else {}
        unselected = np.delete(dataset.feature_names, columns)
        conversion = convert(
            store,
            destination,
            **{**of_store, **reading, "drop": [*reading.get("drop", ()), *map(str, unselected)]},
            force=force,
            resume=resume,
            command=command,
        )
        size = sum(conversion.schema.sizes.values())
    else:
        indices = {int(column): index for index, column in enumerate(columns)}
        size = export_rows(
            _blocks(dataset, columns),
            destination,
            feature_names=names,
            label_names=[str(name) for name in dataset.label_names],
            kinds=[str(kind) for kind in dataset.kinds[columns]],
            categories={indices[f]: values for f, values in dataset.categories.items() if f in indices},
            n=dataset.shape[0],
            force=force,
        )
    q = dataset.rows.profile.q
    return WrittenColumns(destination, dataset.shape[0], len(columns), q, size, names)


def count_selected(run: Run, k: int | float | None) -> int:
    """Return the number of best features: a count, a fraction, or the number that the run chose."""
    from mlfs_dask.selectors.scores import count_kept

    return run.k if k is None else count_kept(k, len(run.ranking), name="k")


def _check_origin(dataset: Dataset, run: Run, store: str) -> None:
    if dataset.digest == run.origin:
        return
    raise DataError(
        f"this run was made from another store: {run.store.get('path', 'unknown')} with digest"
        f" {run.origin or 'unknown'}; {store} has {dataset.digest}.",
        file=run.path,
        cure="give the store that the run was made from, or select again from this one.",
    )


def _blocks(dataset: Dataset, columns: NDArray[np.int64]) -> Iterator[tuple[Matrix, csr_array]]:
    rows = dataset.rows
    with runtime.stage("writing columns", rows.profile.partitions, unit="partitions") as report_progress:
        for partition in range(rows.profile.partitions):
            for block in rows.stream(partition, partition + 1):
                # Copies: the next block overwrites the arrays.
                X = block.X.take(columns, axis=1) if isinstance(block.X, np.ndarray) else block.X[:, columns]
                yield X, block.Y.copy()
            report_progress()
