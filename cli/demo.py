"""`mlfs demo`: the whole way on data that scikit-learn carries."""

from __future__ import annotations

import click

from mlfs_dask_cli.options import PATH, Command, force_option, output_options
from mlfs_dask_cli.output import Output


@click.command(cls=Command, short_help="Run all steps on images of digits.")
@click.argument("directory", metavar="DIR", type=PATH)
@force_option
@output_options(progress=False)
def demo(directory: str, force: bool, output: Output) -> None:
    """Run the whole way on images of digits, in the folder DIR.

    Writes the images with six labels as a Mulan file, converts it, plans, selects with three methods, evaluates
    the selections, and writes a report. Each step is shown as the command that does it.
    """
    from mlfs_dask import demo as library

    summary = library.run_demo(directory, force=force, log=output.note)
    output.result(
        summary,
        f"Open {summary['page']} (made in {summary['seconds']:.1f} s)",
        following=["mlfs", "convert", "YOUR_FILE", "STORE", "--label-columns", "NAMES"],
    )
