"""The `mlfs` command line: each command parses, calls one library function, prints.

The console script enters here, before anything else is imported, so that signals are answered from the first moment
that is ours. Before it Python itself starts, for some 10 ms, or 30 ms where the package is installed in editable mode:
Ctrl-C then ends in a traceback of Python's, and other signals without a word.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # `typing`, which has it, takes 6 ms to import: longer than all the rest here
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

#: Ctrl-C, the end of a job's time, and a terminal that is closed.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start() -> None:
    """Entry point of the console script."""
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):  # else the parent ignores it
            signal.signal(number, leave_at_once)
    open_closed_streams()

    from mlfs_dask_cli.main import main as run

    try:
        run()
    except SystemExit as end:
        if end.code and "h5py" in sys.modules:
            _end_before_hdf5(end.code)
        raise


def _end_before_hdf5(code: int) -> NoReturn:
    """End the process before HDF5's own end, which reads on in files of Python that are closed then, and crashes.

    What HDF5 has open after a failed reading, it closes only there.
    """
    import atexit

    atexit._run_exitfuncs()  # temporary files are removed there
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def leave_at_once(signum: int, frame: FrameType | None) -> NoReturn:
    """Answer a signal while modules are imported, when there is nothing to clean up.

    An exception would end in a traceback, or be lost in the initialisation of an extension module.
    """
    try:
        os.write(2, b"mlfs: interrupted. Nothing was begun; run the same command again.\n")
    finally:  # also where the terminal is gone
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
