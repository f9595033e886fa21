"""The chosen columns of a store, as a new store or as a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask import runtime
from mlfs_dask.errors import DataError
from mlfs_dask.selection.runs import Run, read_run
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.dataset import Dataset, Store
from mlfs_dask.storage.export import export_format, export_rows
from mlfs_dask.storage.opening import is_store, open_dataset, reading_of
from mlfs_dask.storage.subset_spec import choose_columns
from mlfs_dask.typing import Matrix


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes
    ----------
    destination : str
    n, k, q : int
        Rows, features and labels.
    bytes : int
    features : list of str
        In the order of the columns, which is that of the store.
    """

    destination: str
    n: int
    k: int
    q: int
    bytes: int
    features: list[str]


def write_chosen(
    store: str,
    run: str,
    destination: str,
    *,
    k: int | float | None = None,
    force: bool = False,
    resume: bool = False,
    command: str | None = None,
    **reading: Any,
) -> Written:
    """Write the features that a run chose, with all rows and labels.

    One reading of the store; a block of rows at a time is held.

    Parameters
    ----------
    store : str
        The store or the file that the run was made from; path or URL.
    run : str
        Its run folder.
    destination : str
        A name ending in .zarr or in nothing becomes a store, any other what its suffix says.
    k : int or float, optional
        The best k of the ranking, a count or a fraction; by default as many as the run chose.
    force : bool
        Replace what is there.
    resume : bool
        Go on with an interrupted store; a file is begun again.
    command : str, optional
        What a new store records as its command.
    **reading
        Of a file, how it is read: `labels`, `format`, `keys`, `drop` of `open_dataset`; by default as the run read it.

    Returns
    -------
    Written

    Raises
    ------
    DataError
        If the run is none, or was made from another store.
    UsageError
        If k or the suffix is none that can be, or the destination exists and `force` is not given.
    """
    to_store = PurePosixPath(destination).suffix.lower() in ("", ".zarr")
    if not to_store:
        export_format(destination)
    record = read_run(run)
    if not reading and record.store.get("reading") and not is_store(store):
        reading = reading_of(record.store)
    dataset = open_dataset(store, **reading)
    _check_origin(dataset, record, store)
    columns = chosen_columns(record, k)
    if "features" in record.store.get(
        "subset", {}
    ):  # counted through the chosen features: in the store they have the same names
        names_of = dict(zip(record.ranking.tolist(), record.feature_names, strict=True))
        columns = choose_columns([names_of[i] for i in columns.tolist()], dataset.feature_names.tolist(), "feature")
    names = [str(name) for name in dataset.feature_names[columns]]
    if to_store:
        of_store: dict[str, Any] = {"format": "anndata"} if isinstance(dataset, Store) else {}
        left_out = np.delete(dataset.feature_names, columns)
        conversion = convert(
            store,
            destination,
            **{**of_store, **reading, "drop": [*reading.get("drop", ()), *map(str, left_out)]},
            force=force,
            resume=resume,
            command=command,
        )
        written = sum(conversion.schema.sizes.values())
    else:
        places = {int(column): place for place, column in enumerate(columns)}
        written = export_rows(
            _blocks(dataset, columns),
            destination,
            feature_names=names,
            label_names=[str(name) for name in dataset.label_names],
            kinds=[str(kind) for kind in dataset.kinds[columns]],
            categories={places[f]: values for f, values in dataset.categories.items() if f in places},
            n=dataset.shape[0],
            force=force,
        )
    q = dataset.rows.profile.q
    return Written(destination, dataset.shape[0], len(columns), q, written, names)


def chosen_columns(run: Run, k: int | float | None) -> NDArray[np.int64]:
    """Indices of the best k features, rising."""
    return np.sort(run.ranking[: count_chosen(run, k)])


def count_chosen(run: Run, k: int | float | None) -> int:
    """Number of features to take of a ranking: a count, a fraction, or as many as the run chose."""
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
                # Copies: the block's own arrays are overwritten by the next one.
                X = block.X.take(columns, axis=1) if isinstance(block.X, np.ndarray) else block.X[:, columns]
                yield X, block.Y.copy()
            report_progress()
