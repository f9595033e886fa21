"""Deferral of termination signals while a process could not handle them well."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker

#: Ctrl-C, the end of a batch job's time, and a closed terminal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Keeps the working folder out of the module path of a Python started with `-c`, as multiprocessing starts it.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}


def restore_environment(before: Mapping[str, str | None]) -> None:
    """Restore environment variables to earlier values; None: the variable was not set."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer `SIGNALS` to the end of the with-block, and block them for good in processes started in it.

    An exception in the middle of an import can get lost, in a callback or in an extension module, and nothing can close
    a cluster whose start was interrupted. Workers are in the process group of the terminal or batch job, but must not
    react to its signals: this process closes them.

    Started processes do not search the working folder for modules, which may hold a stranger's files (`SAFE_PATH`).
    """
    deferred: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # other threads cannot set handlers
        handled = [kind for kind in SIGNALS if signal.getsignal(kind) not in (signal.SIG_IGN, None)]
        handlers = {kind: signal.signal(kind, lambda number, frame: deferred.append(number)) for kind in handled}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # threads and child processes inherit the mask
    before = {name: os.environ.get(name) for name in SAFE_PATH}
    os.environ.update(SAFE_PATH)
    resource_tracker.ensure_running()  # starting it unblocks two of the signals
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        restore_environment(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
        for number in deferred:
            signal.raise_signal(number)
