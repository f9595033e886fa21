"""Tasks of a conversion, in threads or in processes that stop when they are asked to."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing.synchronize import Event
from typing import Any

from mlfs_dask import runtime
from mlfs_dask.files.interruption import SIGNALS, deferred_signals


class WorkerPool:
    """Runs independent tasks: in threads of this process, in spawned processes, or in the calling thread.

    Worker processes do not hear the interrupt key and end with the parent, even if that is killed. Workers of both
    kinds are asked to stop between batches.

    Parameters
    ----------
    workers : int
        1: the calling thread does everything.
    threads : bool
        Threads, for readers that spend their time without the interpreter's lock: nothing has to be started.
    """

    def __init__(self, workers: int, *, threads: bool) -> None:
        self.workers = workers
        self.threads = threads
        self._pool: ProcessPoolExecutor | runtime.ThreadPool | None = None
        self._stop: Event | threading.Event | None = None

    def __enter__(self) -> WorkerPool:
        if self.workers == 1:
            return self
        if self.threads:
            self._stop = threading.Event()
            self._pool = runtime.ThreadPool(self.workers, "convert", _hear, (self._stop,))
            return self
        with deferred_signals():
            context = multiprocessing.get_context("spawn")
            self._stop = context.Event()
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=context, initializer=_start_worker, initargs=(self._stop,)
            )
            for _ in range(self.workers):  # a process is started for each task that finds none idle
                self._pool.submit(int)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None and self._stop is not None:
            self._stop.set()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield results in the order in which they come."""
        if self._pool is None:
            for each in arguments:
                yield task(*each)
            return
        futures: list[Future[Any]] = [self._pool.submit(task, *each) for each in arguments]
        for future in as_completed(futures):
            yield future.result()


class _Stopped(Exception):
    """Whoever started this worker asked it to stop."""


_heard = threading.local()
"""`stop`: the event that the worker in this thread looks at between batches."""


def _hear(stop: Event | threading.Event) -> None:
    _heard.stop = stop


def _start_worker(stop: Event) -> None:
    _hear(stop)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # by SIGTERM the pool ends its workers where one has died
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # Siblings hold the pipes open, so a worker would wait for a killed parent's tasks for ever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def check_stop() -> None:
    """Raise, in a task of a `WorkerPool`, once the tasks are to stop: to be called between batches."""
    stop = getattr(_heard, "stop", None)
    if stop is not None and stop.is_set():
        raise _Stopped
