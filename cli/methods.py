"""`mlfs methods`: what can be selected with."""

from __future__ import annotations

import click

from mlfs_dask_cli.options import output_options
from mlfs_dask_cli.output import Output


@click.command()
@output_options
def methods(output: Output) -> None:
    """List every selector: name, paper, supervision, passes, memory, options."""
