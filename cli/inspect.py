"""`mlfs inspect`: what a store holds, and whether it is intact."""

from __future__ import annotations

import click

from mlfs_dask_cli.options import output_options, store_argument
from mlfs_dask_cli.output import Output, size
from mlfs_dask_cli.summary import store_summary, summary_text


@click.command(short_help="What a store holds, and whether it is intact.")
@store_argument
@click.option("--verify", is_flag=True, help="Read everything and compare it with what was written; exit 3 if not.")
@output_options(progress=False)
def inspect(store: str, verify: bool, output: Output) -> None:
    """Show n, d, q, nonzeros, density, labels, constant features, missing values, partitions and bytes of STORE."""
    from mlfs_dask.errors import DataError
    from mlfs_dask.storage import verify as library
    from mlfs_dask.storage.dataset import open_metadata

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
    summary = store_summary(store, open_metadata(store))
    text = summary_text(summary)
    if verify:
        summary["verified"] = {"objects": verification.objects, "bytes": verification.bytes}
        text += f"\nintact: {verification.objects:,} objects, {size(verification.bytes)} read and compared"
    output.result(summary, text)
