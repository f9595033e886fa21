"""The `mlfs` command: a group that imports a command when it is asked for, and turns errors into exit codes.

Exit codes: 0 done, 1 unexpected error, 2 usage, 3 invalid data, 4 would not fit, 5 cluster lost,
130 interrupted.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import click

from mlfs_dask._version import __version__
from mlfs_dask.errors import spell_parameters_as
from mlfs_dask_cli import SIGNALS, leave_at_once
from mlfs_dask_cli.failure import describe_failure, report_failure
from mlfs_dask_cli.options import ARGUMENTS
from mlfs_dask_cli.output import print_line

COMMANDS = (
    "convert",
    "append",
    "inspect",
    "methods",
    "plan",
    "select",
    "transform",
    "annotate",
    "evaluate",
    "compare",
    "report",
    "batch",
    "doctor",
    "demo",
)

GRACE_SECONDS = 10
"""Of an iteration that is under way at SIGTERM. Batch systems and Kubernetes send SIGKILL 30 s after it."""

ECHO_SECONDS = 3.0
"""After a signal, in which others count as the same: kernel and shell both tell of a closed terminal, systemd sends two
signals, and a command that is cleaning up is not to be kept from it."""


class Interrupted(KeyboardInterrupt):
    """A signal of `SIGNALS`, answered by exit code 130 wherever it arrives.

    A KeyboardInterrupt itself, where it leaves an `exec` of a string (dataclasses and named tuples are made by it, when
    a module is imported), has the interpreter of `python -m` end by SIGINT for good, caught or not; it compares types.
    """


class LazyGroup(click.Group):
    """A group whose command NAME is the object `NAME` of the module `mlfs_dask_cli.NAME`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"mlfs_dask_cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        refuse_unknown(ctx, args[0], COMMANDS, "command")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:  # as of git
            args = [*args[1:], "--help"]
        ctx.meta[ARGUMENTS] = list(args)
        if not args or ctx.resilient_parsing:  # which show the help, and complete what is typed
            return super().parse_args(ctx, args)
        with _failures_reported(list(args)):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        # Here and not in main(): `dask mlfs` enters by the group, not by our console script.
        arguments = ctx.meta[ARGUMENTS]
        with (
            _failures_reported(arguments),
            spell_parameters_as("option"),
            _ended_by_signals(),
            plain_warnings(quiet="--quiet" in arguments or "-q" in arguments),
        ):
            ctx.color = False if os.environ.get("NO_COLOR") else None
            return super().invoke(ctx)


@contextmanager
def _failures_reported(arguments: Sequence[str]) -> Iterator[None]:
    """Print an error as users see it, and leave with its exit code."""
    try:
        yield
    except (click.exceptions.Exit, click.Abort):
        raise
    except BaseException as error:
        failure = describe_failure(error, arguments)
        if failure is None:
            raise
        report_failure(failure, as_json="--json" in arguments)
        raise click.exceptions.Exit(failure.exit_code) from error


def refuse_unknown(ctx: click.Context, name: str, names: Sequence[str], what: str) -> None:
    """Refuse the name of a sub-command that there is not, and say which names come closest."""
    from mlfs_dask.errors import closest

    if name not in names and not ctx.resilient_parsing:  # which completes what is typed
        raise click.UsageError(f"no such {what}: {name!r}. {closest(name, names)}", ctx)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM (the end of a job's time) and SIGHUP (a closed terminal) end the command with exit code 130.

    At the latter two a loop that keeps checkpoints has `GRACE_SECONDS` to end its iteration and to save its state; a
    second signal ends the command at once. What the parent has this process ignore, as nohup does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    defaults = (leave_at_once, signal.default_int_handler, signal.SIG_DFL)
    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) in defaults}
    ending = _Ending()
    for number in before:
        signal.signal(number, ending)
    try:
        yield
    finally:
        ending.grace.cancel()
        for number, handler in before.items():
            # Of our console script the work is done: nothing is left that a signal could end.
            signal.signal(number, signal.SIG_IGN if handler is leave_at_once else handler)


class _Ending:
    """Handler of signals that ends the command."""

    def __init__(self) -> None:
        self._heard = -math.inf
        self._terminals = [number for number in range(3) if os.isatty(number)]
        self._thread = threading.get_ident()
        self.grace = threading.Timer(GRACE_SECONDS, self._end_grace)
        self.grace.daemon = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._leave_closed_terminal()
        now = time.monotonic()
        if now - self._heard < ECHO_SECONDS:
            return
        self._heard = now
        checkpoints = sys.modules.get("mlfs_dask.engine.checkpoints")
        may_save = number != signal.SIGINT and self.grace.ident is None
        if not (may_save and checkpoints is not None and checkpoints.current().stop()):
            raise Interrupted
        self.grace.start()
        with suppress(OSError):
            print_line(f"mlfs: ends with this iteration, or in {GRACE_SECONDS} s, and keeps its state")

    def _end_grace(self) -> None:
        self._heard = -math.inf
        # To the main thread: it may wait in a system call, from which a signal to another thread does not wake it.
        signal.pthread_kill(self._thread, signal.SIGTERM)

    def _leave_closed_terminal(self) -> None:
        """Write to nowhere what would go to a terminal that is closed, and fail there."""
        for number in self._terminals:
            if not os.isatty(number):
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, number)
                os.close(nowhere)


@contextmanager
def plain_warnings(*, quiet: bool) -> Iterator[None]:
    """Show what our selectors warn of as a line for people, without the place in the source; not at all if `quiet`.

    Warnings of other packages stay what they are: their place is what one needs to know.
    """
    with warnings.catch_warnings():
        # Also where Python was told to make errors of warnings: it is the data that is warned of, not the code.
        warnings.filterwarnings("always", category=UserWarning, module="mlfs_dask")
        show = warnings.showwarning

        def show_plainly(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, UserWarning) or not _is_ours(filename):
                show(message, category, filename, lineno, file, line)
            elif not quiet:
                print_line(f"mlfs: {message}")

        warnings.showwarning = show_plainly
        yield


def _is_ours(filename: str) -> bool:
    own = (Path(__file__).parent, Path(importlib.import_module("mlfs_dask").__file__ or "").parent)
    return any(Path(filename).is_relative_to(folder) for folder in own)


@click.group(
    cls=LazyGroup, name="mlfs", context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, "-V", "--version", message="mlfs %(version)s")
def mlfs() -> None:
    """Multi-label feature selection for data larger than memory.

    \b
    The first commands convert a file to a store, select 20 features,
    and show them on a page:
      mlfs convert emotions.arff emotions.zarr --labels emotions.xml
      mlfs select elc emotions.zarr -k 20 -o emotions.elc
      mlfs report emotions.elc -o emotions.html
    `mlfs demo digits` runs all steps on images of digits.
    """


def main() -> None:
    """Entry point of the console script."""
    try:
        sys.exit(mlfs(prog_name="mlfs", standalone_mode=True))
    finally:
        # Else the interpreter, as it ends, looks through everything that was ever loaded for cycles.
        gc.freeze()
