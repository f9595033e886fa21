"""`mlfs doctor`: is this machine, and a cluster, fit for work?"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from dataclasses import asdict
from itertools import chain

import click

from mlfs_dask_cli.options import (
    ARGUMENTS,
    PATH,
    Command,
    Computing,
    computing_options,
    option,
    output_options,
    read_settings,
    shared_options,
)
from mlfs_dask_cli.output import Output, shown

EXIT_CODES = {"store": 3, "cluster": 5}
"""Of a check that failed; the first that is found."""

#: Columns before the text of a check.
INDENT = 6

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def _lines(text: str) -> str:
    """Return a text in lines as wide as the terminal, below one another; as it is where standard output is none."""
    text = shown(text)
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns - INDENT
    return f"\n{' ' * INDENT}".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))


@click.command(cls=Command, short_help="Check this machine and a cluster.")
@click.argument("store", metavar="[STORE]", type=PATH, required=False)
@option(
    "--directory DIR",
    "Folder for the files of the tiny job, which all workers see (default: the temporary folder).",
    type=click.Path(exists=True, file_okay=False),
)
@computing_options(cache=False, report=False)
@output_options(progress=False)
def doctor(store: str | None, directory: str | None, computing: Computing, output: Output) -> None:
    """Check versions, memory, threads, open files and scratch space, here and on workers, and run a tiny job.

    With STORE, this process and every worker also read a partition of it.

    Exit code 0 if nothing failed, 3 if this process could not read the store, 5 if the cluster could not be used,
    1 for other failures.
    """
    from mlfs_dask.doctor import Check, examine

    (path, values), known = read_settings(), {option.envvar for option in shared_options().values()}
    variables = ", ".join(name for name in sorted(os.environ) if name in known) or "none"
    settings = f"file {path or 'none'} ({', '.join(values) or 'no option'}); variables of the environment: {variables}"
    checks = []
    for check in chain([Check("settings", "ok", settings)], examine(store, directory=directory, **computing.cluster)):
        checks.append(check)
        if not output.as_json:
            state = click.style(f"{check.status:<4}", fg=COLOURS[check.status])
            click.echo(f"{state}  {_lines(f'{check.name}: {check.detail}')}")
            if check.cure:
                click.echo(f"      {_lines(f'cure: {check.cure}')}")
    failed = [check.name for check in checks if check.status == "fail"]
    if output.as_json:
        output.result({"ok": not failed, "checks": [asdict(check) for check in checks]}, "")
    elif not failed:
        words = click.get_current_context().meta[ARGUMENTS][1:] if directory is None else [store or ""]
        output.next(["mlfs", "demo", "digits"] if store is None else ["mlfs", "plan", "elc", *words])
    if failed:
        raise click.exceptions.Exit(next((code for name, code in EXIT_CODES.items() if name in failed), 1))
