"""Signals that ask a process to end, held back where they could not be answered well."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

#: Ctrl-C, the end of a job's time, and a terminal that is closed.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Hold `SIGNALS` back until the end of the with-block, and keep them for ever from processes started in it.

    An exception in the midst of an import can be lost, in a callback or in an extension module; a cluster that has been
    interrupted while it starts can be closed by nobody. Its workers are in the process group of the terminal and of the
    job, whose signals are not theirs: this process closes them.
    """
    held: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # no other has handlers
        heard = [each for each in SIGNALS if signal.getsignal(each) not in (signal.SIG_IGN, None)]
        handlers = {each: signal.signal(each, lambda number, frame: held.append(number)) for each in heard}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # what threads and processes inherit
    resource_tracker.ensure_running()  # whoever starts it no longer blocks two of them
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in held:
            signal.raise_signal(number)
