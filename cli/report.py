"""`mlfs report`: one page about runs, evaluations, comparisons and batches."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from mlfs_dask.errors import size
from mlfs_dask_cli.options import PATH, Command, Computing, computing_options, force_option, option, output_options
from mlfs_dask_cli.output import Output


class ImageShape(click.ParamType):
    """Rows and columns of an image, as 8x8."""

    name = "ROWSxCOLUMNS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([1-9]\d*)[x×]([1-9]\d*)", str(value))
        if match is None:
            self.fail(f"{value!r} is no shape of an image; write rows x columns, as in 8x8.")
        return int(match[1]), int(match[2])


@click.command(cls=Command, short_help="Write one page about runs, evaluations, comparisons and batches.")
@click.argument("paths", metavar="PATH...", type=PATH, nargs=-1, required=True)
@option("-o FILE", "HTML file to write.", "page", type=PATH, required=True)
@option("--title TEXT", "Heading of the page.")
@option("--metric NAME", "Metric to show; may be repeated (default: all).", "metrics", multiple=True)
@option(
    "--image-shape",
    "The features are the pixels of an image, row by row: draw the selected ones.",
    type=ImageShape(),
)
@option("--figures DIR", "Also write every figure as SVG into DIR.", type=PATH)
@option("--no-data", "Read no store: no correlations, redundancy and residual.", is_flag=True)
@force_option
@computing_options(cache=False, report=False)
@output_options(progress=True)
def report(
    paths: tuple[str, ...], page: str, no_data: bool, computing: Computing, output: Output, **options: Any
) -> None:
    """Write one HTML page about the RUN, EVAL, CMP and BATCH folders PATH...

    The page needs no network and no other file, and it can be read without scripts.
    """
    from mlfs_dask.reporting.page import report as library
    from mlfs_dask_cli.progress import show_progress

    with show_progress(output), computing.connected():
        summary = library(paths, page, data=not no_data, **options)
    lines = [f"note: {note}" for note in summary["notes"]]
    lines.append(f"written  {summary['page']} ({size(summary['bytes'])}, {summary['figures']} figures)")
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    output.result(summary, "\n".join(lines), following=[opener, summary["page"]])
