"""Output of an error: a message on standard error and an exit code; with --json one object."""

from __future__ import annotations

import errno
import logging
import math
import shlex
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from mlfs_dask.errors import (
    DISK_FULL,
    EXTRAS,
    TOO_MANY_FILES,
    TOO_MANY_FILES_CURE,
    DataError,
    DoesNotFitError,
    MlfsError,
    StoreAccessError,
    StoreNotAllowedError,
    StoreUnavailableError,
    is_load_failure,
    missing_extra,
)
from mlfs_dask_cli.output import json_text, shown

logger = logging.getLogger(__name__)

INTERRUPTED = 130


@dataclass(frozen=True)
class Failure:
    """An error, ready to be printed.

    Attributes
    ----------
    kind : str
        Class of the error, for programs: usage, data, does_not_fit, cluster_lost, interrupted, not_allowed,
        unavailable, system, unexpected.
    exit_code : int
    message : str
    details : dict
        What the error carries in parts (file, line, projected bytes...).
    """

    kind: str
    exit_code: int
    message: str
    details: dict[str, Any] = field(default_factory=dict)


MEMORY_CURE = "\n  cure: raise the limit (`ulimit -v unlimited`, or that of the job), or free memory"

STORE_KINDS = {StoreNotAllowedError: "not_allowed", StoreUnavailableError: "unavailable"}

#: Parts of errors, which programs are told by themselves.
DETAILS = ("file", "line", "column", "value", "projected", "available", "store", "cure")

KINDS = {2: "usage", 3: "data", 4: "does_not_fit", 5: "cluster_lost"}


def describe_failure(error: BaseException, arguments: Sequence[str]) -> Failure | None:
    """Turn an exception into a Failure; None for what is not ours to catch (SystemExit and the like).

    `arguments` are the command's own, for the line that tells how to go on.
    """
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted", INTERRUPTED, "interrupted." + _how_to_resume(arguments))
    if isinstance(error, click.UsageError):
        return Failure("usage", error.exit_code, _with_usage(error))
    if isinstance(error, click.ClickException):
        return Failure("usage", error.exit_code, error.format_message())
    if (refusal := _refusal_of_memory(error)) is not None:
        words = str(refusal) or "no message"
        return Failure("does_not_fit", 4, f"the system gave no more memory: {words}{MEMORY_CURE}")
    if isinstance(error, DataError | DoesNotFitError):
        return Failure(KINDS[error.exit_code], error.exit_code, str(error), _details(error))
    if _is_disk_full(error):
        cure = "" if "cure:" in str(error) else "\n  cure: make room, or give another place"
        return Failure("does_not_fit", 4, f"{_system_words(error)}{cure}")
    if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
        return Failure("system", 1, f"{_system_words(error)}\n  cure: {TOO_MANY_FILES_CURE}", {"errno": error.errno})
    if isinstance(error, MlfsError):
        other = "system" if isinstance(error, StoreAccessError) else KINDS.get(error.exit_code, "error")
        kind = STORE_KINDS.get(type(error), other)
        message = str(error) + (_how_to_resume(arguments) if kind in ("unavailable", "cluster_lost") else "")
        return Failure(kind, error.exit_code, message, _details(error))
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, BrokenPipeError):
        # No permission, no such file, a disk that does not answer: the system's words say it, and mostly name the file.
        return Failure("system", 1, f"{_system_words(error)}\n  cure: {_system_cure(error)}", {"errno": error.errno})
    if isinstance(error, ModuleNotFoundError) and (module := str(error.name).partition(".")[0]) in EXTRAS:
        return Failure("usage", 2, f"this needs {missing_extra(module)}")
    if isinstance(error, Exception) and is_load_failure(error):
        logger.info("%s", "".join(traceback.format_exception(error)).rstrip())
        text = f"a library does not load: {type(error).__name__}: {str(error).strip() or 'no message'}"
        return Failure("system", 1, f"{text}\n  cure: install mlfs-dask again, in an environment of its own")
    if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):
        logger.info("%s", "".join(traceback.format_exception(error)).rstrip())
        text = str(error).strip() or "no message"
        return Failure(
            "unexpected",
            1,
            f"unexpected {type(error).__name__}: {text}\n  This is a fault of mlfs. -v shows where it happened.",
            {"type": type(error).__name__},
        )
    return None


def _refusal_of_memory(error: BaseException) -> BaseException | None:
    """Return the marks of refused memory: for an array, the stack of a thread, or a library to load.

    Behind an error of ours it may be an array that damaged data asked for; threads and libraries are asked for by none.
    """
    ours = isinstance(error, MlfsError)
    seen: set[int] = set()  # an error that was raised again may stand behind itself
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        text = str(cause)
        if not isinstance(cause, MlfsError) and ("can't start new thread" in text or "failed to map segment" in text):
            return cause if ours else error
        if not ours and (
            isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        ):
            return error
        cause = cause.__cause__ or cause.__context__
    return None


def _is_disk_full(error: BaseException | None) -> bool:
    """Return True if a full disk is the error, or the cause of an error of this package."""
    while isinstance(error, MlfsError | OSError):
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            return True
        error = error.__cause__
    return False


def _system_words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.strerror}: {error.filename}" if error.filename is not None else error.strerror
    return str(error)


def _system_cure(error: OSError) -> str:
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "give another place, or change owner, mode or mount of this one"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP):
        return "check the path, or give another one"
    return "check the disk or the network that it lies on, or give another place"


def report_failure(failure: Failure, *, as_json: bool, result: Mapping[str, Any] | None = None) -> None:
    """Print the message on standard error and, on request, one JSON object on standard output.

    `result` is what a command that fails in part has to print all the same; the object then holds both.
    """
    click.echo(shown(f"mlfs: {failure.message}"), err=True)
    if as_json:
        error = {name: getattr(failure, name) for name in ("kind", "exit_code", "message")} | failure.details
        click.echo(shown(json_text({**(result or {}), "error": error})))


def _details(error: MlfsError) -> dict[str, Any]:
    values = {name: getattr(error, name, None) for name in DETAILS}
    # A number that JSON does not have is told as text: it is what was wrong.
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
        if value is not None
    }


#: What stands in place of options that people try: command, option.
_ELSEWHERE = {
    ("select", "--dry-run"): "mlfs plan METHOD STORE prints what a selection would read and hold.",
    ("evaluate", "-k"): "--k-grid has the numbers of features.",
}


def _with_usage(error: click.UsageError) -> str:
    text = error.format_message()
    if error.ctx is None:
        return text
    if isinstance(error, click.NoSuchOption):
        command = error.ctx.command_path.split()[1:2]
        elsewhere = _ELSEWHERE.get((*command, error.option_name))  # type: ignore[arg-type]
        text = f"No such option {error.option_name!r}. {elsewhere}" if elsewhere else text
    return f"{text}\n  {error.ctx.command_path} --help explains its use."


def _how_to_resume(arguments: Sequence[str]) -> str:
    if not arguments or arguments[0] not in RESUMABLE:
        return " Nothing was left behind; run the same command again."
    again = [*arguments] if "--resume" in arguments else [*arguments, "--resume"]
    return f"\n  To go on where it stopped: mlfs {shlex.join(again)}"


RESUMABLE = frozenset({"append", "batch", "convert", "evaluate", "select", "transform"})
