"""Showing the events of `mlfs_dask.runtime` on standard error: one line on a terminal, plain lines, or JSON lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from mlfs_dask.errors import is_installed
from mlfs_dask.redaction import redact
from mlfs_dask_cli.output import Output, between, json_text

#: Seconds between two plain lines: a tenth of the time that has passed, within these bounds. The second one is also
#: that after which a line comes where nothing happens (`waiting`): nobody is to wait for more than half a minute.
SHORTEST_PAUSE, LONGEST_PAUSE = 5.0, 25.0

#: Seconds between two looks whether that time is over.
TICK_SECONDS = 1.0

PASS = "pass"
STAGES = {"read": "reading the files", "write": "writing the store"}


@contextmanager
def show_progress(output: Output) -> Iterator[None]:
    """Show progress inside the with-block in the form that `output` asks for."""
    form = output.progress
    if form == "auto":
        form = "bar" if sys.stderr.isatty() and is_installed("rich") else "plain"
    if form == "none":
        yield
        return
    from mlfs_dask import runtime

    if form == "bar":
        with _bar() as sink, runtime.progress_to(sink):
            yield
        return
    sink = Lines(sys.stderr, as_json=form == "json")
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


class Status:
    """Current stage of a command, its progress and the time left, from the events so far.

    Parameters
    ----------
    clock : callable
        Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._method = self._work = ""
        #: Done and total of each level of the work, a total of 0 being unknown: each is a part of the one before it.
        self._counts: dict[str, tuple[float, float]] = {}
        self._max_iterations = 0
        self._typical: tuple[int, int] | None = None
        self._compiling = False
        #: Second and share of the work, when the share was first known, and when it last rose.
        self._first: tuple[float, float] | None = None
        self._last = (self._started, 0.0)

    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event in."""
        kind, counts = event["kind"], self._counts
        if kind in ("job", "ranking"):
            if kind == "job":
                counts.pop("ranking", None)
            counts[kind] = event["number"] - 1, event["total"]
            self._begin_fit({})
        elif kind == "fit":
            self._begin_fit(event)
        elif kind == "step":
            # As many as usual, and where it takes longer as many as there may be.
            typical = min(self._typical[1], self._max_iterations) if self._typical else 0
            counts["iteration"] = event["number"], typical if event["number"] < typical else self._max_iterations
        elif kind in ("pass", "stage"):
            self._work = PASS if kind == "pass" else event["label"]
            counts["part"] = 0, event["partitions" if kind == "pass" else "parts"] or 0
            self._compiling = event.get("compiling", False)
        elif kind in ("partitions", "parts") and self._work:
            done, total = counts["part"]
            counts["part"] = done + event["done"], total
        elif kind in ("pass-done", "stage-done"):
            counts.pop("part", None)
            self._work = ""
            if kind == "pass-done" and "pass" in counts:
                done, total = counts["pass"]
                counts["pass"] = done + 1, total
        elif kind == "convert" and "parts_done" in event:
            self._work = STAGES[event["stage"]]
            counts["part"] = event["parts_done"], event["parts"]
        self._note_share()

    def _begin_fit(self, event: dict[str, Any]) -> None:
        self._method, self._work = event.get("method", ""), ""
        for name in ("pass", "iteration", "part"):
            self._counts.pop(name, None)
        self._max_iterations = event.get("max_iterations") or 0
        typical = event.get("typical_iterations")
        # As many as a fit takes at most say nothing where they are fewer.
        self._typical = typical if typical and typical[0] < self._max_iterations else None
        if event.get("readings") and not self._max_iterations:
            self._counts["pass"] = 0, event["readings"]

    def _note_share(self) -> None:
        now, fraction = self._clock(), self.fraction
        if fraction is None:
            self._first = None
        elif self._first is None or (fraction < self._last[1] and fraction <= self._first[1]):  # other work has begun
            self._first = self._last = now, fraction
        elif fraction != self._last[1]:
            self._last = now, fraction

    @property
    def fraction(self) -> float | None:
        """Share of the known work that is done, in [0, 1]; None if no amount of work is known."""
        fraction: float | None = None
        counts = self._counts
        # Of a method with a loop a pass says nothing: it is the first of many, or a part of an iteration.
        names = ["iteration" if self._max_iterations else "part"]
        # What is done after the last pass is counted by itself.
        done, total = counts.get("pass", (0, 0))
        names += ["pass"] * (done < total or not self._work)
        for name in (*names, "ranking", "job"):
            done, total = counts.get(name, (0, 0))
            if total:
                fraction = min(1.0, (done + (fraction or 0.0)) / total)
        return fraction

    def _remaining(self) -> str:
        """Return the time left, in words; empty if it is unknown."""
        if self._first is None or self._last[1] <= self._first[1]:
            return ""
        (began, first), (risen, last), now = self._first, self._last, self._clock()
        if now - began < 1:
            return ""
        if self._max_iterations and not {"job", "ranking"} & self._counts.keys():
            left = (1 - last) * (risen - began) / (last - first) - (now - risen)
            return f"up to {clock_text(max(0.0, left))} left"
        return f"about {clock_text((1 - last) * (now - began) / (last - first))} left"

    def line(self, width: int | None = None) -> str:
        """Return the status in one line; less important parts are left out if the line is longer than `width`."""
        numbers = {name: f"{done + 1:.0f} of {total:.0f}" for name, (done, total) in self._counts.items()}
        before = [f"{name} {numbers[name]}" for name in ("job", "ranking") if name in numbers]
        iteration = typical = ""
        if "iteration" in self._counts:
            most = f" of at most {self._max_iterations:,}" if self._max_iterations else ""
            iteration = f"iteration {self._counts['iteration'][0]:,.0f}{most}"
            typical = f" (typically {between(self._typical, '{:,}'.format)})" if self._typical else ""
        work, (done, total) = self._work, self._counts.get("part", (0, 0))
        several = work == PASS and self._counts.get("pass", (0, 0))[1] > 1
        share = f"{min(1.0, done / total):.0%}" if total > 1 else ""
        work = ", ".join(filter(None, [f"{work} {numbers['pass']}", share])) if several else f"{work} {share}".strip()
        if self._compiling and self._work and not done:
            work = f"compiling kernels, once; {work}"
        elapsed, left = clock_text(self._clock() - self._started), self._remaining()
        gone = ("work", "elapsed", "method", "typical", "left") if iteration else ("elapsed", "method", "left")
        for dropped in range(len(gone) + 1):
            kept = {"work": work, "elapsed": " elapsed", "method": self._method, "typical": typical, "left": left}
            kept |= dict.fromkeys(gone[:dropped], "")
            doing = ", ".join(filter(None, [iteration + kept["typical"], kept["work"]]))
            what = ": ".join(filter(None, [", ".join(filter(None, [*before, kept["method"]])), doing])) or "working"
            line = f"{what}; {', '.join(filter(None, [elapsed + kept['elapsed'], kept['left']]))}"
            if width is None or len(line) <= width:
                break
        return line


def clock_text(seconds: float) -> str:
    """Return a duration as clocks show it.

    >>> clock_text(6.6), clock_text(80), clock_text(3680)
    ('0:07', '1:20', '1:01:20')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Lines:
    """Lines about events on a stream, at least one in `LONGEST_PAUSE` seconds.

    As JSON every event is one object a line, with the seconds since the start. Otherwise, for logs, it is the line of a
    terminal from time to time, and work that ends within the first seconds prints nothing.
    """

    def __init__(self, stream: TextIO, *, as_json: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._as_json = as_json
        self._clock = clock
        self._started = self._printed = clock()
        self._status = Status(clock)
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
        if self._as_json:
            return redact(json_text({"seconds": round(now - self._started, 3), **event}))
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
