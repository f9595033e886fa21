"""`mlfs append`: further rows for a store."""

from __future__ import annotations

from typing import Any

import click

from mlfs_dask_cli.convert import dtype_option, print_conversion, source_options
from mlfs_dask_cli.options import PATH, Command, command_line, option, output_options, resume_option, store_argument
from mlfs_dask_cli.output import Output
from mlfs_dask_cli.progress import show_progress


@click.command(cls=Command, short_help="Append rows to a store.")
@store_argument
@click.argument("sources", metavar="SOURCE...", type=PATH, nargs=-1, required=True)
@source_options
@dtype_option("Type of STORE; values that it cannot hold exactly are rounded to it.")
@resume_option
@option("--force", "Discard an interrupted append.", is_flag=True)
@output_options(progress=True)
def append(*, store: str, sources: tuple[str, ...], source: dict[str, Any], output: Output, **options: Any) -> None:
    """Append the rows of SOURCE files to the store STORE.

    Features and labels must be those of STORE. STORE changes in one step, once all rows are written; rows that it had
    before are not read again for statistics that are in its cache.

    \b
      mlfs append emotions.zarr more.arff --labels emotions.xml
    """
    from mlfs_dask.storage import append as library

    with show_progress(output):
        if source.pop("targets", ()):
            raise click.UsageError("a store keeps the targets that it was made with: leave --targets out.")
        conversion = library.append(store, list(sources), command=command_line(), **source, **options)
    print_conversion(output, store, conversion)
