"""`mlfs annotate`: the outcome of a selection in `var`, `varm` and `uns` of AnnData."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from mlfs_dask_cli.options import PATH, Command, KeepCount, force_option, option, output_options, read_keys
from mlfs_dask_cli.output import Output, beside


@click.command(cls=Command, short_help="Write mask, score, rank and pairs into an .h5ad.")
@click.argument("path", metavar="FILE.h5ad", type=PATH)
@click.argument("run", metavar="RUN", type=PATH)
@option("--name", "The columns are NAME_mask, NAME_score, NAME_rank, ... (default: mlfs_METHOD, as in mlfs_br_cc).")
@option(
    "-k",
    "Number or share of features in the mask (default: as many as the run selected).",
    "k",
    type=KeepCount(),
)
@option(
    "--highly-variable", "Write the columns that scanpy looks for: highly_variable, highly_variable_rank.", is_flag=True
)
@option(
    "--key names=COLUMN",
    "Column of var with the names of the features, as for convert; unique: names numbered apart.",
    "keys",
    multiple=True,
)
@force_option
@output_options(progress=False)
def annotate(path: str, run: str, keys: tuple[str, ...], output: Output, **how: Any) -> None:
    """Write into FILE.h5ad which features RUN chose, and the score and the rank of each.

    With pairs, `var` also gets the number of significant labels and the best label of each feature, and `varm` the
    effects and q-values, a column for each label. `uns` gets the parameters. Everything else in the file stays as it
    is; the file is replaced when the new one is complete. A .zarr folder of AnnData is annotated, too.

    \b
      mlfs convert cells.h5ad cells.zarr
      mlfs select elc cells.zarr -k 500 -o cells.elc
      mlfs annotate cells.h5ad cells.elc
    """
    from mlfs_dask.selection import annotate as library

    written = library.annotate(path, run, keys=read_keys(keys), **how)
    tables = f", {', '.join(written.tables)} in varm" * bool(written.tables)
    text = (
        f"{written.path}: {', '.join(written.columns)} in var{tables}, {written.k:,} of {written.d:,} features chosen"
    )
    if written.not_ranked:
        text += f"; {written.not_ranked:,} others are not in the ranking"
    output.result(asdict(written), text, following=["mlfs", "report", run, "-o", beside(run, ".html")])
