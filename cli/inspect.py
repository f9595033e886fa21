"""`mlfs inspect`: what a store holds, and whether it is intact."""

from __future__ import annotations

from typing import Any

import click

from mlfs_dask_cli.options import (
    ARGUMENTS,
    Command,
    file_options,
    memory_option,
    option,
    output_options,
    store_argument,
)
from mlfs_dask_cli.output import Output
from mlfs_dask_cli.summary import summary_of, summary_text


@click.command(cls=Command, short_help="Show the contents of a store or a file, and check it.")
@store_argument
@option("--verify", "Read all data and compare its checksums; exit code 3 if they differ.", is_flag=True)
@file_options
@memory_option
@output_options(progress=False)
def inspect(store: str, verify: bool, file: dict[str, Any], output: Output) -> None:
    """Show n, d, q, nonzeros, density, labels, constant features, missing values, partitions and bytes of STORE.

    Of a file that was not converted, what is known without a pass over its features.
    """
    from mlfs_dask.errors import DataError, size
    from mlfs_dask.storage import verify as library
    from mlfs_dask.storage.dataset import open_metadata
    from mlfs_dask.storage.opening import is_store, open_dataset

    if "format" in file or not is_store(store):
        if verify:
            raise click.UsageError(
                f"{store} is not a store: a file has no checksums to compare with.\n  cure: leave --verify out, "
                f"or convert the file (mlfs convert {store} STORE) and verify the store"
            )
        facts = summary_of(store, open_dataset(store, **file))
        arguments = click.get_current_context().meta[ARGUMENTS]  # options of the file among them
        output.result(facts, summary_text(facts), following=["mlfs", "plan", "elc", *arguments[1:]])
        return
    if verify:
        verification = library.verify(store)
        if not verification.intact:
            problems = [
                f"{len(keys)} {word}: {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}"
                for word, keys in (
                    ("damaged", verification.damaged),
                    ("missing", verification.missing),
                    ("not part of the store", verification.extra),
                )
                if keys
            ]
            raise DataError(
                f"the store is not as it was written; {'; '.join(problems)}",
                file=store,
                cure="restore a copy, or convert the source files again",
            )
    summary = summary_of(store, open_metadata(store))
    text = summary_text(summary)
    if verify:
        summary["verified"] = {"objects": verification.objects, "bytes": verification.bytes}
        text += f"\nintact: {verification.objects:,} objects, {size(verification.bytes)} read and compared"
    output.result(summary, text, following=["mlfs", "plan", "elc", store])
