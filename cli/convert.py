"""`mlfs convert`: multi-label files to a store."""

from __future__ import annotations

import contextlib
import csv
import functools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlfs_dask_cli.options import (
    PATH,
    Bytes,
    Decorated,
    command_line,
    force_option,
    output_options,
    resume_option,
    stack_options,
)
from mlfs_dask_cli.output import Output
from mlfs_dask_cli.progress import show_progress
from mlfs_dask_cli.summary import store_summary, summary_text

if TYPE_CHECKING:
    from mlfs_dask.storage.convert import Conversion

_STANDARD_INPUT = "-"
_COPIED_BYTES = 1 << 20


def read_names(values: tuple[str, ...]) -> tuple[str, ...]:
    """Column names from the command line: comma-separated (quoted where they hold commas), or @FILE, a name a line."""
    names: list[str] = []
    for value in values:
        if value.startswith("@"):
            try:
                names += Path(value[1:]).read_text(encoding="utf-8-sig").splitlines()
            except FileNotFoundError as error:
                raise click.BadParameter(f"there is no file {value[1:]!r} with names in it.") from error
        else:
            try:
                names += next(csv.reader([value]))
            except csv.Error as error:
                raise click.BadParameter(
                    f"{value!r} is no list of names: {error}. Write a,b,c on one line, or @FILE with a name a line."
                ) from error
    return tuple(name for name in names if name)


source_option_list = [
    click.option(
        "--labels",
        "labels_xml",
        metavar="FILE",
        help="Mulan's XML file that names the labels; or the file that holds them, of XMLC text in two files and with "
        "--transpose.",
    ),
    click.option(
        "--label-columns",
        metavar="NAMES",
        multiple=True,
        help="The labels by name: a,b,c, or @FILE with a name a line. May be given again.",
    ),
    click.option("--n-labels", metavar="N", type=click.IntRange(min=1), help="The last N columns are labels."),
    click.option("--labels-first", is_flag=True, help="With --n-labels: the first N columns are."),
    click.option("--label-classes", is_flag=True, help="Labels are classes: each class of a column becomes a label."),
    click.option(
        "--label-separator", metavar="TEXT", help="Labels are tags with TEXT between them: each tag becomes a label."
    ),
    click.option(
        "--labels-positive", metavar="VALUES", multiple=True, help="Values of positive labels (default: 1, true, yes)."
    ),
    click.option(
        "--labels-negative",
        metavar="VALUES",
        multiple=True,
        help="Values of negative labels (default: 0, false, no, and -1 where no label is 0).",
    ),
    click.option(
        "--labels-unknown",
        metavar="VALUES",
        multiple=True,
        help="Values of unknown labels (default: missing ones, written NA here, and -1 where there are 0s, too).",
    ),
    click.option("--format", help="Format of the sources (default: by name and content)."),
    click.option(
        "--key",
        "keys",
        metavar="NAME=VALUE",
        multiple=True,
        help="What a format leaves open, as in --key x=data --key y=target for a file of several arrays.",
    ),
    click.option(
        "--transpose",
        is_flag=True,
        help="Rows of the table are features and columns samples; --labels FILE.csv has the labels of the samples.",
    ),
    click.option("--drop", metavar="NAMES", multiple=True, help="Features to leave out: a,b,c, or @FILE."),
    click.option(
        "--partition-size", type=Bytes(), help="Bytes of X and Y that one task reads (default: 64 MiB to 128 MiB)."
    ),
    click.option(
        "--workers", metavar="N", type=click.IntRange(min=1), help="Threads or processes (default: one a core)."
    ),
    click.option(
        "--memory-limit",
        type=Bytes(),
        help="Memory of all processes together (default: 512 MiB a worker, at most half of what is free).",
    ),
]


def source_options(command: Decorated) -> Decorated:
    """Add the options that say how files are read; the command receives `source`, keyword arguments of `convert`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        labels_xml: str | None,
        label_columns: tuple[str, ...],
        n_labels: int | None,
        labels_first: bool,
        label_classes: bool,
        label_separator: str | None,
        labels_positive: tuple[str, ...],
        labels_negative: tuple[str, ...],
        labels_unknown: tuple[str, ...],
        format: str | None,
        keys: tuple[str, ...],
        transpose: bool,
        drop: tuple[str, ...],
        partition_size: int | None,
        workers: int | None,
        memory_limit: int | None,
        **kwargs: Any,
    ) -> Any:
        ways = [bool(labels_xml) and not transpose, bool(label_columns), n_labels is not None]
        if sum(ways) > 1:
            raise click.UsageError("--labels, --label-columns and --n-labels exclude one another; give one.")
        if label_separator == "":
            raise click.UsageError("--label-separator is the text between two tags, and cannot be empty.")
        if labels_first and n_labels is None:
            raise click.UsageError("--labels-first goes with --n-labels.")

        from mlfs_dask import runtime
        from mlfs_dask.storage.convert import default_memory_limit
        from mlfs_dask.storage.readers.base import LabelSpec

        columns = read_names(label_columns) or None
        source: dict[str, Any] = {
            "labels": LabelSpec(
                xml=labels_xml,
                columns=columns,
                count=n_labels,
                first=labels_first,
                positive=read_names(labels_positive),
                negative=read_names(labels_negative),
                unknown=read_names(labels_unknown),
                classes=label_classes or label_separator is not None,
                separator=label_separator,
            ),
            "format": format,
            "keys": _read_keys(keys),
            "drop": read_names(drop),
            "transpose": transpose,
            "workers": workers,
            "memory_limit": memory_limit,
        }
        if partition_size is not None:
            source["partition_bytes"] = partition_size
        with runtime.bounded_memory(memory_limit or default_memory_limit(workers or runtime.available_cores())):
            return command(*args, source=source, **kwargs)

    return stack_options(wrapped, source_option_list)


def dtype_option(help: str) -> Callable[[Decorated], Decorated]:
    """`--dtype`."""
    return click.option("--dtype", type=click.Choice(["uint8", "int16", "int32", "float32", "float64"]), help=help)


def conversion_summary(store: str, conversion: Conversion) -> dict[str, Any]:
    """What a conversion made, as `--json` has it."""
    from mlfs_dask.storage.dataset import open_metadata

    return {
        **store_summary(store, open_metadata(store)),
        "seconds": round(conversion.seconds, 3),
        "warnings": list(conversion.warnings),
    }


def _require_both(ctx: click.Context, store: click.Parameter, value: str | None) -> str | None:
    """Of a single path click would say that SOURCE is missing, because it has the last one for STORE."""
    if not ctx.params["sources"] and not ctx.resilient_parsing:
        missing = store if value else next(each for each in ctx.command.params if each.name == "sources")
        raise click.MissingParameter(ctx=ctx, param=missing)
    return value


@click.command(short_help="Multi-label files to a store.")
@click.argument("sources", metavar="SOURCE...", type=PATH, nargs=-1, is_eager=True)
@click.argument("store", metavar="STORE", type=PATH, required=False, callback=_require_both)
@source_options
@dtype_option("Of X (default: the narrowest that loses no digit).")
@click.option(
    "--obs",
    metavar="NAMES",
    multiple=True,
    help="Columns of CSV, Parquet or of the obs of AnnData that stay with the rows and are no features, for "
    "covariates and strata: a,b,c, or @FILE.",
)
@click.option(
    "--storage",
    type=click.Choice(["auto", "dense", "sparse"]),
    default="auto",
    show_default=True,
    help="Of X; auto measures the density.",
)
@click.option(
    "--compressor",
    type=click.Choice(["none", "zstd", "lz4"]),
    default="none",
    show_default=True,
    help="none reads fastest, zstd takes least room.",
)
@resume_option
@force_option
@output_options(progress=True)
def convert(
    sources: tuple[str, ...],
    store: str,
    source: dict[str, Any],
    dtype: str | None,
    obs: tuple[str, ...],
    storage: str,
    compressor: str,
    resume: bool,
    force: bool,
    output: Output,
) -> None:
    """Convert SOURCE files (several are concatenated) to the store STORE.

    Reads Mulan and Meka ARFF, svmlight, XMLC text, CSV, TSV, Parquet, Feather, .npz, MatrixMarket, .mat, .h5ad and
    .zarr, text also packed (.gz, .xz, .bz2, .zst), from paths, URLs, or standard input (-).

    \b
      mlfs convert emotions.arff emotions.zarr --labels emotions.xml
      mlfs convert day1.svm.gz day2.svm.gz all.zarr
      mlfs convert table.parquet table.zarr --label-columns red,green,blue
    """
    if resume and _STANDARD_INPUT in sources:
        raise click.UsageError("standard input cannot be read again: --resume goes with files.")

    from mlfs_dask.storage import convert as library

    with show_progress(output), contextlib.ExitStack() as stack:
        conversion = library.convert(
            [stack.enter_context(_standard_input()) if source == _STANDARD_INPUT else source for source in sources],
            store,
            dtype=dtype,
            obs=read_names(obs),
            storage=storage,
            compressor=compressor,
            force=force,
            resume=resume,
            command=command_line(),
            **source,
        )
    summary = conversion_summary(store, conversion)
    output.result(summary, summary_text(summary))


@contextlib.contextmanager
def _standard_input() -> Iterator[str]:
    """A temporary file of what comes from standard input: readers look at a file more than once."""
    from mlfs_dask.errors import DISK_FULL
    from mlfs_dask.files.redaction import call_file
    from mlfs_dask.storage.limits import full_temporary_folder

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


def _read_keys(keys: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for key in keys:
        name, equals, value = key.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{key!r} is not of the form NAME=VALUE.", param_hint="--key")
        pairs[name] = value
    return pairs
