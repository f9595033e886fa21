"""Showing the events of `mlfs_dask.runtime` on standard error: one line on a terminal, plain lines, or JSON lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TextIO

from mlfs_dask.files.redaction import redact
from mlfs_dask_cli.output import Output, between, json_text

#: Seconds between two plain lines: a tenth of the time that has passed, within these bounds. The second one is also
#: that after which a line comes where nothing happens (`waiting`): nobody is to wait for more than half a minute.
SHORTEST_PAUSE, LONGEST_PAUSE = 5.0, 25.0

#: Seconds between two looks whether that time is over.
TICK_SECONDS = 1.0

READING = "reading"
STAGES = {"read": "reading the files", "write": "writing the store"}


@contextmanager
def show_progress(output: Output) -> Iterator[None]:
    """Show progress inside the with-block in the form that `output` asks for."""
    form = output.progress
    if form == "auto":
        form = "bar" if sys.stderr.isatty() else "plain"
    if form == "none":
        yield
        return
    from mlfs_dask import runtime

    if form == "bar":
        with _bar() as sink, runtime.progress_to(sink):
            yield
        return
    sink = JsonLines(sys.stderr) if form == "json" else PlainLines(sys.stderr)
    with runtime.progress_to(sink), waiting(sink):
        yield


@contextmanager
def waiting(sink: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Give a sink the event "waiting" again and again inside the with-block, whatever is waited for in it."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(TICK_SECONDS):
            with suppress(ValueError):  # of a stream that is closed
                sink({"kind": "waiting"})

    thread = threading.Thread(target=tick, name="mlfs-waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass
class Counter:
    """Work that is counted: jobs, rankings, iterations, readings, or the parts of what is done at the moment.

    Attributes
    ----------
    text : str
        What it is.
    done, total : float
        Parts; a total of 0 is unknown.
    first : float
        Parts that were done before this command began.
    started : float
        When the first of the others began.
    """

    text: str
    done: float
    total: float
    first: float
    started: float


class Status:
    """What a command does, how far it is and what is left, from the events so far.

    Parameters
    ----------
    clock : callable
        Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._method = ""
        # Outermost first; each is a part of the one before it.
        self._job: Counter | None = None
        self._ranking: Counter | None = None
        self._readings: Counter | None = None
        self._iterations: Counter | None = None
        self._work: Counter | None = None
        self._max_iterations = 0
        self._typical: tuple[int, int] | None = None
        self._last_step = self._started
        self._compiling = False

    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event in."""
        kind = event["kind"]
        if kind == "job":
            self._job = self._numbered("job", event, self._job)
            self._ranking = None
            self._begin_fit({})
        elif kind == "ranking":
            self._ranking = self._numbered("ranking", event, self._ranking)
            self._begin_fit({})
        elif kind == "fit":
            self._begin_fit(event)
        elif kind == "step":
            self._step(event["number"])
        elif kind in ("pass", "stage"):
            parts = event["partitions" if kind == "pass" else "parts"]
            self._work = self._counter(READING if kind == "pass" else event["label"], 0, parts or 0)
            self._compiling = event.get("compiling", False)
        elif kind in ("partitions", "parts") and self._work is not None:
            self._work.done += event["done"]
        elif kind in ("pass-done", "stage-done"):
            self._work = None
            if kind == "pass-done" and self._readings is not None:
                self._readings.done += 1
        elif kind == "convert" and "parts_done" in event:
            text = STAGES[event["stage"]]
            if self._work is None or self._work.text != text:
                self._work = self._counter(text, 0, event["parts"])
            self._work.done = event["parts_done"]

    def _counter(self, text: str, done: float, total: float) -> Counter:
        return Counter(text, done, total, done, self._clock())

    def _numbered(self, text: str, event: dict[str, Any], before: Counter | None) -> Counter:
        """The counter of jobs or rankings, of which one begins."""
        counter = before or self._counter(text, event["number"] - 1, event["total"])
        counter.done = event["number"] - 1
        return counter

    def _begin_fit(self, event: dict[str, Any]) -> None:
        self._method = event.get("method", "")
        self._readings = self._iterations = self._work = None
        self._max_iterations = event.get("max_iterations") or 0
        typical = event.get("typical_iterations")
        # As many as a fit takes at most say nothing where they are fewer.
        self._typical = typical if typical and typical[0] < self._max_iterations else None
        if event.get("readings") and not self._max_iterations:
            self._readings = self._counter("", 0, event["readings"])

    def _step(self, number: int) -> None:
        if self._iterations is None:
            # What came before the first iteration says nothing of how long the others take.
            self._iterations = self._counter("iteration", number, 0)
        self._iterations.done = number
        typical = min(self._typical[1], self._max_iterations) if self._typical else 0
        self._iterations.total = typical if number < typical else self._max_iterations
        self._last_step = self._clock()

    @property
    def fraction(self) -> float | None:
        """Of all that is to be done as far as it is known, in [0, 1]; None where nothing is known."""
        fraction: float | None = None
        # Of a method with a loop a reading says nothing: it is the first of many, or a part of an iteration.
        innermost = self._iterations if self._max_iterations else self._work
        for counter in (innermost, self._readings_left, self._ranking, self._job):
            if counter is not None and counter.total:
                fraction = min(1.0, (counter.done + (fraction or 0.0)) / counter.total)
        return fraction

    @property
    def _readings_left(self) -> Counter | None:
        """The readings, while there are some to come: what is done after the last one is counted by itself."""
        readings = self._readings
        return readings if readings is not None and (readings.done < readings.total or self._work is None) else None

    def _remaining(self) -> str:
        """What is left, in words; empty where it is not known."""
        now = self._clock()
        outer = self._job or self._ranking
        if outer is None and self._max_iterations:
            steps = self._iterations
            if steps is None or steps.done == steps.first:
                return ""
            seconds = (self._last_step - steps.started) / (steps.done - steps.first)
            left = (steps.total - steps.done) * seconds - (now - self._last_step)
            return f"up to {clock_text(max(0.0, left))} left"
        outer, fraction = outer or self._readings_left or self._work, self.fraction
        if outer is None or not outer.total or fraction is None:
            return ""
        done, seconds = fraction * outer.total - outer.first, now - outer.started
        if done <= 0 or seconds < 1:
            return ""
        return f"about {clock_text((1 - fraction) * outer.total * seconds / done)} left"

    def line(self, width: int | None = None) -> str:
        """All of it in one line; what matters less is left out where that is longer than `width`."""
        counts = [f"{c.text} {c.done + 1:.0f} of {c.total:.0f}" for c in (self._job, self._ranking) if c is not None]
        iteration, typical = "", ""
        if self._iterations is not None:
            iteration = f"iteration {self._iterations.done:,.0f}"
            if self._max_iterations:
                iteration += f" of at most {self._max_iterations:,}"
            if self._typical is not None:
                typical = f" (typically {between(self._typical, '{:,}'.format)})"
        work = ""
        if self._work is not None:
            work = self._work.text
            if self._work.text == READING and self._readings is not None and self._readings.total > 1:
                work += f" {self._readings.done + 1:.0f} of {self._readings.total:.0f},"
            if self._work.total > 1:
                work += f" {min(1.0, self._work.done / self._work.total):.0%}"
            work = work.removesuffix(",")
            if self._compiling and not self._work.done:
                work = f"compiling kernels, once; {work}"
        elapsed, remaining = clock_text(self._clock() - self._started), self._remaining()

        def join(counts: list[str], method: str, doing: list[str], word: str) -> str:
            what = ": ".join(filter(None, [", ".join(filter(None, [*counts, method])), ", ".join(filter(None, doing))]))
            return f"{what or 'working'}; " + ", ".join(filter(None, [elapsed + word, remaining]))

        forms = [join(counts, self._method, [iteration + typical, work], " elapsed")]
        if iteration:
            forms += [
                join(counts, self._method, [iteration + typical], " elapsed"),
                join(counts, self._method, [iteration + typical], ""),
                join(counts, "", [iteration + typical], ""),
                join(counts, "", [iteration], ""),
            ]
        forms += [join(counts, self._method, [work], ""), join(counts, "", [work], "")]
        return next((form for form in forms if width is None or len(form) <= width), forms[-1])


def clock_text(seconds: float) -> str:
    """A duration as clocks show it.

    >>> clock_text(6.6), clock_text(80), clock_text(3680)
    ('0:07', '1:20', '1:01:20')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Lines:
    """Lines about events on a stream, at least one in `LONGEST_PAUSE` seconds."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._started = self._printed = clock()
        self._lock = threading.Lock()  # "waiting" comes from a thread of its own

    def __call__(self, event: dict[str, Any]) -> None:
        with self._lock:
            now = self._clock()
            if event["kind"] == "waiting" and now - self._printed < LONGEST_PAUSE:
                return
            line = self._line(event, now)
            if line:
                self._printed = now
                with suppress(OSError):  # of a terminal that was closed; what is done goes on
                    self._stream.write(line + "\n")
                    self._stream.flush()

    def _line(self, event: dict[str, Any], now: float) -> str:
        raise NotImplementedError


class JsonLines(_Lines):
    """Every event as one JSON object a line, with the seconds since the start."""

    def _line(self, event: dict[str, Any], now: float) -> str:
        return redact(json_text({"seconds": round(now - self._started, 3), **event}))


class PlainLines(_Lines):
    """For logs: the line of a terminal from time to time. Work that ends within the first seconds prints nothing."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, clock=clock)
        self._status = Status(clock)

    def _line(self, event: dict[str, Any], now: float) -> str:
        self._status(event)
        pause = min(max(SHORTEST_PAUSE, (now - self._started) / 10), LONGEST_PAUSE)
        return f"mlfs: {self._status.line()}" if now - self._printed >= pause else ""


@contextmanager
def _bar() -> Iterator[Callable[[dict[str, Any]], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    console = Console(stderr=True)
    shortest_bar = 5  # with the blank before it
    status = Status()

    class StatusColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(status.line(console.width - shortest_bar))

    columns = (StatusColumn(Column(no_wrap=True)), BarColumn(bar_width=None, table_column=Column(ratio=1)))
    # Standard output, which may be a file, is not redirected; lines on standard error go above the bar.
    with Progress(*columns, console=console, transient=True, expand=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=None)

        def sink(event: dict[str, Any]) -> None:
            status(event)
            fraction = status.fraction
            bar.update(task, total=None if fraction is None else 1.0, completed=fraction or 0.0)

        yield sink
