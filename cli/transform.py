"""`mlfs transform`: the chosen columns as a store or a file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from mlfs_dask.errors import size
from mlfs_dask_cli.options import (
    PATH,
    Command,
    KeepCount,
    command_line,
    file_options,
    force_option,
    memory_option,
    option,
    output_options,
    resume_option,
    store_argument,
)
from mlfs_dask_cli.output import Output, beside
from mlfs_dask_cli.progress import show_progress


@click.command(cls=Command, short_help="Write the selected columns as a store or a file.")
@store_argument
@click.argument("run", metavar="RUN", type=PATH)
@click.argument("destination", metavar="DEST", type=PATH)
@option(
    "-k",
    "Keep the best K of the ranking, a count or a share (default: as many as the run selected).",
    "k",
    type=KeepCount(),
)
@file_options
@memory_option
@resume_option
@force_option
@output_options(progress=True)
def transform(store: str, run: str, destination: str, file: dict[str, Any], output: Output, **options: Any) -> None:
    """Write the columns of STORE that RUN selected, with all rows and labels, to DEST.

    DEST is a new store, or by its suffix .npz, .h5ad, .svm, .csv, .parquet, or .arff (with an .xml beside it); text
    also followed by .gz.
    """
    from mlfs_dask.selection import transform as library

    with show_progress(output):
        written = library.write_selected(store, run, destination, command=command_line(), **file, **options)
    shape = f"{written.n:,} rows, {written.k:,} features, {written.q:,} labels"
    text = f"{written.destination}: {shape}, {size(written.bytes)}"
    following = ["mlfs", "evaluate", store, run, "random", "all", "-o", beside(store, ".eval")]
    output.result(asdict(written), text, following=following)
