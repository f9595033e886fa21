"""The `mlfs` command line: each command parses, calls one library function, prints.

The console script enters here, before anything else is imported, so that Ctrl-C is answered from the first moment that
is ours. Before it Python itself starts, for some 10 ms, or 30 ms where the package is installed in editable mode:
Ctrl-C then ends in a traceback of Python's.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # `typing`, which has it, takes 6 ms to import: longer than all the rest here
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def start() -> None:
    """Entry point of the console script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave_at_once)
    open_closed_streams()

    from mlfs_dask_cli.main import main as run

    run()


def leave_at_once(signum: int, frame: FrameType | None) -> NoReturn:
    """Answer Ctrl-C while modules are imported, when there is nothing to clean up.

    An exception would end in a traceback, or be lost in the initialisation of an extension module.
    """
    os.write(2, b"mlfs: interrupted. Nothing was begun; run the same command again.\n")
    os._exit(130)


def open_closed_streams() -> None:
    """Open the null device in the place of a standard stream that is closed.

    Without this the next file that is opened has its number, and what is printed there goes into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # has the lowest free number, which is this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
