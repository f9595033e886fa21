"""Signals that ask a process to end, held back where they could not be answered well."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker

#: Ctrl-C, the end of a job's time, and a terminal that is closed.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: With which a Python that is started with `-c`, as those of multiprocessing are, has no folder before its own ones.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}


def restore_environment(before: Mapping[str, str | None]) -> None:
    """Give variables of this process the values that they had; None: they were not set."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Hold `SIGNALS` back until the end of the with-block, and keep them for ever from processes started in it.

    An exception in the midst of an import can be lost, in a callback or in an extension module; a cluster that has been
    interrupted while it starts can be closed by nobody. Its workers are in the process group of the terminal and of the
    job, whose signals are not theirs: this process closes them.

    Nor do these look for Python's modules in the working folder, where data of a stranger may lie (`SAFE_PATH`).
    """
    held: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # no other has handlers
        heard = [each for each in SIGNALS if signal.getsignal(each) not in (signal.SIG_IGN, None)]
        handlers = {each: signal.signal(each, lambda number, frame: held.append(number)) for each in heard}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # what threads and processes inherit
    before = {name: os.environ.get(name) for name in SAFE_PATH}
    os.environ.update(SAFE_PATH)
    resource_tracker.ensure_running()  # whoever starts it no longer blocks two of them
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        restore_environment(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in held:
            signal.raise_signal(number)
