"""`mlfs convert`: multi-label files to a store."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlfs_dask_cli.options import (
    FILES,
    PATH,
    Bytes,
    Command,
    Option,
    command_line,
    force_option,
    option,
    output_options,
    read_by,
    read_names,
    resume_option,
)
from mlfs_dask_cli.output import Output
from mlfs_dask_cli.progress import show_progress
from mlfs_dask_cli.summary import summary_of, summary_text

if TYPE_CHECKING:
    from mlfs_dask.storage.convert import Conversion

_STANDARD_INPUT = "-"
_COPIED_BYTES = 1 << 20


source_option_list = [
    option("--labels FILE", "As --label-file.", "labels_xml"),
    option(
        "--transpose",
        "Rows of the table are features and columns samples; --label-file FILE.csv has the labels of the samples.",
        is_flag=True,
    ),
]

work_option_list = [
    option("--partition-size", "Bytes of X and Y that one task reads (default: 64 MiB to 128 MiB).", type=Bytes()),
    option("--workers N", "Threads or processes (default: one per core).", type=click.IntRange(min=1)),
    option(
        "--memory-limit",
        "Memory of all processes together (default: 512 MiB a worker, at most half of the free memory).",
        type=Bytes(),
    ),
]


@contextlib.contextmanager
def _read_source(
    *,
    labels_xml: str | None,
    transpose: bool,
    partition_size: int | None,
    workers: int | None,
    memory_limit: int | None,
    file: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    from mlfs_dask import runtime
    from mlfs_dask.readers.base import LabelSpec
    from mlfs_dask.storage.convert import default_memory_limit

    spec = file.get("labels", LabelSpec())
    if labels_xml and spec.xml:
        raise click.UsageError("--labels and --label-file are the same; give one.")
    source = {"format": None, "keys": {}, "drop": (), **file, "transpose": transpose}
    source["labels"] = replace(spec, xml=labels_xml or spec.xml)
    source |= {"workers": workers, "memory_limit": memory_limit}
    if partition_size is not None:
        source["partition_bytes"] = partition_size
    limit = memory_limit or default_memory_limit(workers or runtime.available_cores())
    with runtime.bounded_memory(limit), runtime.process_limits(memory_limit=limit):
        yield {"source": source}


#: Options that say how files are read; the command receives `source`, keyword arguments of `convert`.
source_options = read_by(_read_source, (source_option_list, FILES), (work_option_list, None), with_file=True)


def dtype_option(help: str) -> Option:
    """`--dtype`."""
    return option("--dtype", help, type=click.Choice(["uint8", "int16", "int32", "float32", "float64"]))


def print_conversion(output: Output, store: str, conversion: Conversion) -> None:
    """Print what a conversion made."""
    from mlfs_dask.storage.dataset import open_metadata

    summary = summary_of(store, open_metadata(store))
    summary |= {"seconds": round(conversion.seconds, 3), "warnings": list(conversion.warnings)}
    output.result(summary, summary_text(summary), following=["mlfs", "plan", "elc", store])


def _require_both(ctx: click.Context, store: click.Parameter, value: str | None) -> str | None:
    """Refuse a single path; click would report SOURCE missing, since it takes the last path as STORE."""
    if not ctx.params["sources"] and not ctx.resilient_parsing:
        missing = store if value else next(each for each in ctx.command.params if each.name == "sources")
        raise click.MissingParameter(ctx=ctx, param=missing)
    return value


@click.command(cls=Command, short_help="Convert files to a store.")
@click.argument("sources", metavar="SOURCE...", type=PATH, nargs=-1, is_eager=True)
@click.argument("store", metavar="STORE", type=PATH, required=False, callback=_require_both)
@source_options
@dtype_option("Type of X (default: the narrowest that loses no digit).")
@option(
    "--obs NAMES",
    "Columns of CSV, Parquet or obs of AnnData to keep with the rows, not as features, for covariates, strata and "
    "clusters: a,b,c, or @FILE.",
    multiple=True,
)
@option(
    "--storage",
    "Storage of X; auto decides by the density.",
    type=click.Choice(["auto", "dense", "sparse"]),
    default="auto",
)
@option(
    "--compressor",
    "none is fastest to read, zstd smallest.",
    type=click.Choice(["none", "zstd", "lz4"]),
    default="none",
)
@resume_option
@force_option
@output_options(progress=True)
def convert(
    sources: tuple[str, ...],
    store: str,
    source: dict[str, Any],
    obs: tuple[str, ...],
    resume: bool,
    output: Output,
    **options: Any,
) -> None:
    """Convert SOURCE files (several are concatenated) to the store STORE.

    Reads Mulan and Meka ARFF, svmlight, XMLC text, CSV, TSV, Parquet, Feather, .npz, MatrixMarket, .mat, HDF5,
    netCDF 4, .h5ad and .zarr, text also packed (.gz, .xz, .bz2, .zst), from paths, URLs, or standard input (-).

    \b
      mlfs convert emotions.arff emotions.zarr --labels emotions.xml
      mlfs convert day1.svm.gz day2.svm.gz all.zarr
      mlfs convert table.parquet table.zarr --label-columns red,green,blue
    """
    if resume and _STANDARD_INPUT in sources:
        raise click.UsageError("standard input cannot be read again: --resume needs files.")

    from mlfs_dask.storage import convert as library

    with show_progress(output), contextlib.ExitStack() as stack:
        files = [stack.enter_context(_standard_input()) if each == _STANDARD_INPUT else each for each in sources]
        told = {"obs": read_names(obs), "resume": resume, "command": command_line()}
        conversion = library.convert(files, store, **told, **source, **options)
    print_conversion(output, store, conversion)


@contextlib.contextmanager
def _standard_input() -> Iterator[str]:
    """A temporary file of what comes from standard input: readers look at a file more than once."""
    from mlfs_dask.errors import DISK_FULL
    from mlfs_dask.files.limits import full_temporary_folder
    from mlfs_dask.redaction import call_file

    with tempfile.TemporaryDirectory(prefix="mlfs-") as folder:
        path = Path(folder) / "standard-input"
        try:
            with path.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file, _COPIED_BYTES)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            read = path.stat().st_size + _COPIED_BYTES
            path.unlink()
            raise full_temporary_folder(read) from error
        call_file(str(path), "standard input")
        yield str(path)
