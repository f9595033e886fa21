"""`mlfs annotate`: the outcome of a selection as columns of `var` of AnnData."""

from __future__ import annotations

from dataclasses import asdict

import click

from mlfs_dask_cli.options import PATH, Command, KeepCount, force_option, option, output_options
from mlfs_dask_cli.output import Output, beside


@click.command(cls=Command, short_help="Write mask, score and rank into var of an .h5ad.")
@click.argument("path", metavar="FILE.h5ad", type=PATH)
@click.argument("run", metavar="RUN", type=PATH)
@option("--name", "The columns are NAME_mask, NAME_score and NAME_rank (default: the method of RUN).")
@option(
    "-k",
    "The best K of the ranking are in the mask, a count or a fraction (default: as many as the run chose).",
    "k",
    type=KeepCount(),
)
@force_option
@output_options(progress=False)
def annotate(path: str, run: str, name: str | None, k: int | float | None, force: bool, output: Output) -> None:
    """Write into `var` of FILE.h5ad which features RUN chose, and the score and the rank of each.

    Everything else in the file stays as it is; the file is replaced when the new one is complete. A .zarr folder of
    AnnData is annotated, too.

    \b
      mlfs convert cells.h5ad cells.zarr
      mlfs select elc cells.zarr -k 500 -o cells.elc
      mlfs annotate cells.h5ad cells.elc
    """
    from mlfs_dask.selection import annotate as library

    written = library.annotate(path, run, name=name, k=k, force=force)
    text = f"{written.path}: {', '.join(written.columns)} in var, {written.k:,} of {written.d:,} features chosen"
    if written.not_ranked:
        text += f"; {written.not_ranked:,} others are not in the ranking"
    output.result(asdict(written), text, following=["mlfs", "report", run, "-o", beside(run, ".html")])
