"""Options shared by the commands, each spelt and explained once.

`@output_options(...)` gives a command one argument `output` (an `Output`), `@computing_options(...)` one argument
`computing` (a `Computing`).
"""

from __future__ import annotations

import contextlib
import csv
import functools
import logging
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mlfs_dask.selection.feature_counts import parse_n_features_to_select
from mlfs_dask_cli.output import Output, print_line
from mlfs_dask_cli.progress import Lines, waiting

Decorated = Callable[..., Any]
Option = Callable[[Decorated], Decorated]


def option(flags: str, help: str, *names: str, **details: Any) -> Option:
    """Return an option by its flags, with what stands for its value in the help, as "-o, --output FILE".

    `names` has the name of the argument where that is not the flag's; `details` are those of `click.option`. A default
    stands in the help.
    """
    *others, last = flags.split(", ")
    flag, _, metavar = last.partition(" ")
    details["show_default"] = "default" in details
    return click.option(*others, flag, *names, metavar=metavar or None, help=help, **details)


class _Place(click.Path):
    """A file or folder, which has a name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # as a path it is the working folder
            self.fail("it is empty, and names no place.", param, ctx)
        return super().convert(value, param, ctx)


#: A file or folder. Whether it may be read is told where it is read, with a cure.
PATH = _Place(readable=False)

UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    UNITS |= {_letter: 1000**_power, f"{_letter}b": 1000**_power}
    UNITS |= {f"{_letter}i": 1024**_power, f"{_letter}ib": 1024**_power}


class Bytes(click.ParamType):
    """A size: a count of bytes, or a number with a unit (500MB, 1.5GiB)."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().lower()
        digits = text.rstrip("bgikmt ")
        unit = text[len(digits) :].strip()
        try:
            size = int(float(digits) * UNITS[unit])
        except (KeyError, ValueError, OverflowError):
            self.fail(f"{value!r} is no size; write bytes or a unit, as in 500MB or 1.5GiB.")
        if size <= 0:
            self.fail(f"{value!r} is no size; it must be positive.")
        if not unit and param is not None and param.name == "memory_limit" and size < 2**20:
            self.fail(f"{value!r} are bytes, in which no process runs; give a unit, as in {digits}GiB.")
        return size


class KeepCount(click.ParamType):
    """Number of features to keep: a count (20), or a share of the features (10%, 0.1, 1/6).

    Parameters
    ----------
    auto : bool
        Whether the data may have to tell (auto).
    """

    name = "K"

    def __init__(self, *, auto: bool = False) -> None:
        self._auto = auto

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float | str:
        if isinstance(value, int | float):
            return value
        if self._auto and value == "auto":
            return "auto"
        try:
            return parse_n_features_to_select(str(value))
        except ValueError as error:
            self.fail(f"{value!r} {error}.")


# Sections of the help; what is in none of them is a command's own, and stands before them.
SUBSET, FILES = "Rows, labels and features to use", "Labels and columns of files"
COMPUTING, PRINTING = "Workers, memory and cache", "Output"


def add_options(command: Decorated, options: Sequence[Option], section: str | None = None) -> list[click.Option]:
    """Add options to a command, in their order, and to a section of its help; return them, the last one first."""
    others = len(getattr(command, "__click_params__", ()))
    for option in reversed(options):
        command = option(command)
    added: list[click.Option] = getattr(command, "__click_params__")[others:]  # noqa: B009 - where click keeps them
    if section is not None:
        put_into_section(added, section)
    return added


def read_by(
    read: Callable[..., contextlib.AbstractContextManager[dict[str, Any]]],
    *groups: tuple[Sequence[Option], str | None],
    with_file: bool = False,
) -> Option:
    """Return a decorator that adds options to a command, which receives what `read` makes of their values.

    Parameters
    ----------
    read : callable
        Takes the values by their names, and returns a context manager, in which the command runs, of its arguments.
    groups : (sequence of options, str or None)
        Options, and their section of the help.
    with_file : bool
        Add also `file_options`, and give `read` their argument `file`.
    """

    def decorate(command: Decorated) -> Decorated:
        @functools.wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with read(**{name: kwargs.pop(name) for name in names}) as arguments:
                return command(*args, **arguments, **kwargs)

        decorated = file_options(wrapped) if with_file else wrapped
        names = ["file"] * with_file
        for options, section in reversed(groups):
            names += [str(option.name) for option in add_options(decorated, options, section)]
        return decorated

    return decorate


def put_into_section(options: Sequence[click.Parameter], section: str) -> None:
    """Have the help show options under a heading of theirs."""
    for option in options:
        setattr(option, "section", section)  # noqa: B010 - no attribute of click's
        if section == COMPUTING:
            option.envvar = f"MLFS_{option.opts[-1].lstrip('-').replace('-', '_').upper()}"


def with_facts(text: str, *facts: str | None) -> str:
    """Return a help text with its default and its bounds, those that it has, behind it."""
    said = "; ".join(filter(None, facts))
    return f"{text}  [{said}]" if said else text


class Command(click.Command):
    """A command whose help has a section for the options that it shares with others, and whose defaults have a file."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments; the file of settings has the defaults of shared options."""
        completing = extra.get("resilient_parsing") or (parent is not None and parent.resilient_parsing)
        if not completing and not {"-h", "--help"} & set(args):
            extra["default_map"] = read_settings()[1]
        return super().make_context(info_name, args, parent, **extra)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, and then a section for each kind of shared options."""
        write_options(self, ctx, formatter)


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the options of a command in their sections."""
    sections: dict[str, list[tuple[str, str]]] = {"Options": []}
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
        if record is not None:
            sections.setdefault(getattr(option, "section", "Options"), []).append(record)
    for section, records in sections.items():
        with formatter.section(section):
            formatter.write_dl(records)


# What is printed

json_option = option(
    "--json", "Print the result on standard output as one JSON object and nothing else.", "as_json", is_flag=True
)
quiet_option = option("-q, --quiet", "Print only the result and errors.", is_flag=True)
verbose_option = option("-v", "Log each step to standard error; -vv logs all details.", "verbose", count=True)
progress_option = option(
    "--progress",
    "Progress on standard error: a bar (on a terminal), a line every few seconds (elsewhere), JSON lines, or none.",
    type=click.Choice(["auto", "bar", "plain", "json", "none"]),
    default="auto",
    envvar="MLFS_PROGRESS",
)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Have the system refuse much more memory than a command may take: libraries unpack whatever data asks for."""
    from mlfs_dask import runtime

    with runtime.bounded_memory(runtime.memory_limit()):
        yield


def output_options(*, progress: bool) -> Option:
    """Add the options of what is printed; the command receives `output`.

    Parameters
    ----------
    progress : bool
        Whether the command shows its progress (`show_progress`). Others say that they work where they take long.
    """

    @contextlib.contextmanager
    def read(*, as_json: bool, quiet: bool, verbose: int, **forms: str) -> Iterator[dict[str, Any]]:
        set_logging(verbose, quiet=quiet)
        form = "none" if quiet else forms.get("progress", "none")
        with _bounded(), contextlib.nullcontext() if progress or quiet else waiting(Lines(sys.stderr)):
            yield {"output": Output(as_json=as_json, quiet=quiet, progress=form)}

    options = [json_option, quiet_option, verbose_option, *[progress_option] * progress]
    return read_by(read, (options, PRINTING))


class _LineHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_line(self.format(record))


def set_logging(verbosity: int, *, quiet: bool) -> None:
    """Send the package's log to standard error: warnings; with -v steps; with -vv everything."""
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    level = logging.ERROR if quiet else levels[min(verbosity, 2)]
    handler = _LineHandler()
    handler.setFormatter(logging.Formatter("mlfs: %(message)s"))
    for name in ("mlfs_dask", "mlfs_dask_cli"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
    # Which cluster is used is worth a line without being asked.
    logging.getLogger("mlfs_dask.cluster.connect").setLevel(min(level, logging.ERROR if quiet else logging.INFO))


# Where to compute

cluster_option_list = [
    option("--scheduler ADDRESS", "Address of a running scheduler: tcp://host:8786 or tls://host:8786."),
    option("--scheduler-file FILE", "File with the address of a running scheduler.", type=PATH),
    option(
        "--workers N",
        "Start N local worker processes (default: none; one thread per core of this process does the work).",
        type=int,
    ),
    option("--threads-per-worker N", "Threads of each local worker (default 1).", type=int),
    option(
        "--memory-limit",
        "Memory of this process, or of each local worker (default: the free memory, in equal shares).",
        type=Bytes(),
    ),
    option("--tls-ca-file FILE", "Certificate authority of a TLS scheduler.", type=PATH),
    option("--tls-cert FILE", "This client's certificate.", type=PATH),
    option("--tls-key FILE", "This client's key.", type=PATH),
    option(
        "--min-workers N",
        "Wait until a running scheduler has N workers (default 1); workers that join later are used, too.",
        type=int,
    ),
    option(
        "--wait SECONDS",
        "Seconds to wait for a scheduler and its workers and, during a job, for a new worker when all are gone.",
        type=float,
        default=60.0,
    ),
    option(
        "--insecure",
        "Allow a scheduler without TLS beyond this machine; whoever reaches it can run code on its workers.",
        is_flag=True,
    ),
    option("--in-process", "Run one task after the other in one thread of this process, for debugging.", is_flag=True),
]


@contextlib.contextmanager
def _read_memory(*, memory_limit: int | None) -> Iterator[dict[str, Any]]:
    from mlfs_dask import runtime

    with runtime.process_limits(memory_limit=memory_limit or runtime.available_memory() // 2), _bounded():
        yield {}


_limit_option = option("--memory-limit", "Memory of this process (default: half of the free memory).", type=Bytes())
#: `--memory-limit` of a command that works in this process alone.
memory_option = read_by(_read_memory, ([_limit_option], COMPUTING))

report_option = option(
    "--performance-report FILE",
    "Write Dask's performance report as an HTML page; needs bokeh.",
    type=click.Path(dir_okay=False),
)

# What is kept between jobs

cache_option_list = [
    option(
        "--cache PLACE",
        "Local folder for statistics of stores, which spare further selections a pass. auto: STORE.cache, beside "
        "the store. none: no cache.",
        "cache_place",
        default="auto",
    ),
    option(
        "--cache-size",
        "Largest size of the cache; the least recently used entries are dropped.",
        type=Bytes(),
        default="4GiB",
    ),
]


#: Options that say where to compute; one that is given replaces what a weaker source says of any.
_PLACES = ("scheduler", "scheduler_file", "workers", "in_process")
#: Options of a cluster that hold wherever the work is done.
_ANYWHERE = ("memory_limit", "wait")
_SOURCES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)


def shared_options() -> dict[str, click.Option]:
    """Return the options that a file of settings may set, by their names without dashes."""

    def command() -> None: ...

    options = add_options(command, [*cluster_option_list, *cache_option_list], COMPUTING)
    options += add_options(command, [progress_option])
    return {option.opts[-1].lstrip("-"): option for option in options}


def read_settings() -> tuple[str, dict[str, Any]]:
    """Return the path of the file of settings, "" without one, and its values by the names of arguments.

    Raises
    ------
    UsageError
        If the file cannot be read, or has an unknown name or an invalid value.
    """
    named = os.environ.get("MLFS_CONFIG")
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    path = Path(os.path.expanduser(f"{folder}/mlfs/config.toml" if named is None else named))  # noqa: PTH111
    if named == "" or (named is None and not (path.is_absolute() and path.is_file())):
        return "", {}
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path}: {error}\n  cure: correct the file, or name another by MLFS_CONFIG") from error
    options, values = shared_options(), {}
    for name, value in found.items():
        option = options.get(name)
        if option is None or option.name is None:
            from mlfs_dask.errors import closest

            known = ", ".join(options)
            raise click.UsageError(
                f"{path}: there is no setting {name!r}. {closest(name, list(options))}\n  cure: take one of {known}"
            )
        try:
            if option.is_flag and not isinstance(value, bool):
                raise click.BadParameter(f"{value!r} is neither true nor false.")
            option.type.convert(value, option, None)
        except click.BadParameter as error:
            raise click.UsageError(f"{path}: {name}: {error.message}") from error
        values[option.name] = value
    return str(path), values


def _drop_weaker(cluster: dict[str, Any]) -> None:
    """Set what a weaker source says of a cluster to its default, if a stronger one says where to compute."""
    context = click.get_current_context()
    sources = {name: context.get_parameter_source(name) for name in cluster}
    order = {name: _SOURCES.index(source) for name, source in sources.items() if source in _SOURCES}
    first = min((order[name] for name in _PLACES if name in order), default=len(_SOURCES))
    for name, place in order.items():
        if name not in _ANYWHERE and place > first:
            cluster[name] = False if isinstance(cluster[name], bool) else None


@dataclass(frozen=True)
class Computing:
    """Cluster and cache of a command.

    Attributes
    ----------
    cluster : dict
        Keyword arguments of `mlfs_dask.cluster.connect.connect`.
    cache : dict
        Those of `mlfs_dask.engine.cache.cache`.
    report : str or None
        File of Dask's report.
    """

    cluster: dict[str, Any]
    cache: dict[str, Any]
    report: str | None

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Compute and cache in the with-block as the options say."""
        from mlfs_dask.cluster.connect import connect
        from mlfs_dask.cluster.dashboard import performance_report
        from mlfs_dask.engine.cache import cache

        with cache(**self.cache), connect(**self.cluster) as client, performance_report(client, self.report):
            yield

    @contextlib.contextmanager
    def planned(self) -> Iterator[Any]:
        """The resources that there would be, for plans in the with-block."""
        from mlfs_dask.cluster.connect import planned_resources
        from mlfs_dask.engine.cache import cache

        with cache(**self.cache):
            yield planned_resources(**self.cluster)


def computing_options(*, cache: bool, report: bool) -> Option:
    """Add the options of a cluster, and those of the cache and of Dask's report; the command receives `computing`."""

    @contextlib.contextmanager
    def read(
        *, cache_place: str = "none", cache_size: int = 1, performance_report: str | None = None, **cluster: Any
    ) -> Iterator[dict[str, Any]]:
        from mlfs_dask import runtime

        _drop_weaker(cluster)
        kept = {"place": None if cache_place == "none" else cache_place, "size": cache_size}
        # Files are opened by this process, before there is a place to compute: workers have limits of their own.
        limit = None if cluster["workers"] else cluster["memory_limit"]
        with runtime.process_limits(memory_limit=limit), _bounded():
            yield {"computing": Computing(cluster, kept, performance_report)}

    options = [*cache_option_list * cache, *cluster_option_list, *[report_option] * report]
    return read_by(read, (options, COMPUTING))


# How files are read


def read_names(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the column names from the command line: comma-separated (quoted where they hold commas), or @FILE, a
    name a line.
    """
    from mlfs_dask.files.object_store import read_text_file

    names: list[str] = []
    for value in values:
        if value.startswith("@"):
            try:
                names += read_text_file(value[1:]).splitlines()
            except FileNotFoundError as error:
                raise click.BadParameter(f"there is no file {value[1:]!r} with names in it.") from error
            except UnicodeDecodeError as error:
                raise click.BadParameter(f"{value[1:]!r} is no text in UTF-8: {error}.") from error
        else:
            try:
                names += next(csv.reader([value]))
            except csv.Error as error:
                raise click.BadParameter(
                    f"{value!r} is no list of names: {error}. Write a,b,c on one line, or @FILE with a name a line."
                ) from error
    return tuple(name for name in names if name)


file_option_list = [
    option("--label-file FILE", "File with the names of the labels (Mulan's XML), or a table of labels.", "label_xml"),
    option("--label-key NAME", "Column of the data whose values are in the first column of --label-file."),
    option("--n-labels N", "The last N columns are labels.", "label_count", type=click.IntRange(min=1)),
    option("--labels-first", "With --n-labels: the first N columns are labels.", "label_first", is_flag=True),
    option(
        "--label-columns NAMES",
        "Names of the labels: a,b,c, or @FILE with a name per line. May be repeated.",
        multiple=True,
    ),
    option("--label-classes", "Labels are classes: each class of a column becomes a label.", is_flag=True),
    option("--label-separator TEXT", "Labels are tags separated by TEXT: each tag becomes a label."),
    option(
        "--labels-positive VALUES",
        "Values of positive labels (default: 1, true, yes).",
        "label_positive",
        multiple=True,
    ),
    option(
        "--labels-negative VALUES",
        "Values of negative labels (default: 0, false, no, and -1 if no label is 0).",
        "label_negative",
        multiple=True,
    ),
    option(
        "--labels-unknown VALUES",
        "Values of unknown labels (default: missing values, written NA here, and -1 if labels are also 0).",
        "label_unknown",
        multiple=True,
    ),
    option("--format", "Format of the sources (default: by name and content)."),
    option(
        "--key NAME=VALUE",
        "Option of a format, as --key x=data --key y=target for a file of several arrays.",
        "keys",
        multiple=True,
    ),
    option("--drop NAMES", "Features to leave out: a,b,c, or @FILE.", multiple=True),
    option(
        "--targets NAMES",
        "Columns of CSV, Parquet or of the obs of AnnData that are numeric targets, empty where unknown: a,b,c, or "
        "@FILE.",
        multiple=True,
    ),
]


@contextlib.contextmanager
def _read_file(
    *, format: str | None, keys: tuple[str, ...], drop: tuple[str, ...], targets: tuple[str, ...], **label_options: Any
) -> Iterator[dict[str, Any]]:
    labels = {name.removeprefix("label_"): value for name, value in label_options.items()}
    if labels["separator"] == "":
        raise click.UsageError("--label-separator is the text between two tags, and cannot be empty.")
    if labels["first"] and labels["count"] is None:
        raise click.UsageError("--labels-first needs --n-labels.")
    if labels["key"] is not None and labels["xml"] is None:
        raise click.UsageError("--label-key needs --label-file.")

    from mlfs_dask.readers.base import LabelSpec

    labels |= {name: read_names(value) for name, value in labels.items() if isinstance(value, tuple)}
    labels["columns"] = labels["columns"] or None
    labels["classes"] |= labels["separator"] is not None
    said = {"format": format, "keys": read_keys(keys), "drop": read_names(drop), "targets": read_names(targets)}
    file = {name: value for name, value in said.items() if value}
    if (spec := LabelSpec(**labels)) != LabelSpec():
        file["labels"] = spec
    yield {"file": file}


#: Options that say what the columns of a file are, as `mlfs convert` has them. The command receives `file`, which holds
#: the arguments of `open_dataset` that were given. An option named `label_NAME` is the field NAME of `LabelSpec`.
file_options = read_by(_read_file, (file_option_list, FILES))


def read_keys(keys: tuple[str, ...]) -> dict[str, str]:
    """Return the values of --key by name."""
    pairs = {}
    for key in keys:
        name, equals, value = key.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{key!r} is not of the form NAME=VALUE.", param_hint="--key")
        pairs[name] = value
    return pairs


# Parts of a store

subset_option_list = [
    option(
        "--rows FILE|EXPR",
        "Rows to use: ranges and numbers from 0, such as 0:100000, ::10 or 0:50,70, or a file with a number per line.",
    ),
    option("--labels NAMES", "Labels to use: names, numbers or ranges, such as a,b or 0:10, or @FILE."),
    option("--features NAMES", "Features to use, given as --labels."),
]


#: Options that say how a file is read, and what part is taken; the command receives `subset`, for `open_subset`.
subset_options = read_by(
    lambda **subset: contextlib.nullcontext({"subset": subset}), (subset_option_list, SUBSET), with_file=True
)


def open_subset(store: str, *, rows: str | None, labels: str | None, features: str | None, file: dict[str, Any]) -> Any:
    """Return a store or a file, or the part of it that the options take."""
    from mlfs_dask.storage.opening import open_dataset

    dataset = open_dataset(store, **file)
    if rows is labels is features is None:
        return dataset
    return dataset.subset(rows=rows, labels=labels, features=features)


def labels_option(command: Decorated, selectors: Sequence[Any]) -> Decorated:
    """`--write-labels` as an argument `write_labels`, if one of the selectors recovers labels."""
    if all(selector.label_threshold is None for selector in selectors):
        return command
    text = "Also write the recovered labels of all rows, as RUN/labels.zarr."
    return option("--write-labels", text, is_flag=True)(command)


# Shared by several commands

ARGUMENTS = "mlfs.arguments"
"""Where `click.Context.meta` keeps the words after `mlfs`."""


def command_line() -> str:
    """Return the command line as typed, for records."""
    return "mlfs " + shlex.join(click.get_current_context().meta[ARGUMENTS])


store_argument = click.argument("store", metavar="STORE", type=PATH)
force_option = option("--force", "Replace an existing output, once the new one is complete.", is_flag=True)
seed_option = option("--seed N", "Seed of random numbers; recorded in the result.", type=int)
resume_option = option("--resume", "Continue an interrupted command.", is_flag=True)
keep_option = option(
    "-k",
    "Features to keep: a count (20), a share of them (10%, 0.1, 1/6), or, with methods of one pass or "
    "--control, auto: the features associated with the labels. Optional with --per-label and --min-labels, where "
    "it is an upper limit.",
    "k",
    type=KeepCount(auto=True),
)
