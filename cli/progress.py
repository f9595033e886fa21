"""Showing the events of `mlfs_dask.runtime`: a bar, plain lines, or JSON lines, on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from mlfs_dask_cli.output import Output

SECONDS_BETWEEN_LINES = 5.0

STAGES = {"read": "reading", "write": "writing"}


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
    with runtime.progress_to(sink):
        yield


class JsonLines:
    """Every event as one JSON object a line, with the seconds since the start."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._start = time.monotonic()

    def __call__(self, event: dict[str, Any]) -> None:
        line = {"seconds": round(time.monotonic() - self._start, 3), **event}
        self._stream.write(json.dumps(line, default=str) + "\n")
        self._stream.flush()


class PlainLines:
    """For logs: a line when something has gone on for some seconds, never more often.

    Work that ends within the first interval prints nothing. A method with a loop makes many passes: the line of a pass
    ends with the values of the last iteration.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        interval: float = SECONDS_BETWEEN_LINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._interval = interval
        self._clock = clock
        self._printed = clock()
        self._label = ""
        self._of = ""
        self._done = 0
        self._step = ""
        self._started = self._printed

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "fit":
            self._step = ""
        elif kind == "pass":
            self._begin(event, f"of {event['partitions']} partitions")
        elif kind == "stage":
            self._begin(event, event["unit"] if event["parts"] is None else f"of {event['parts']} {event['unit']}")
            self._print(f"{self._label}: begun{self._step}")
        elif kind in ("partitions", "parts"):
            self._done += int(event["done"])
            self._print(f"{self._label}: {self._done} {self._of}{self._step}")
        elif kind in ("pass-done", "stage-done"):
            self._print(f"{self._label}: done in {float(event['seconds']):.1f} s{self._step}")
        elif kind == "convert" and "parts_done" in event:
            self._print(f"{STAGES[event['stage']]}: {event['parts_done']} of {event['parts']} parts")
        elif kind == "step":
            self._step = "; " + step_text(event)
            self._print(step_text(event))

    def _begin(self, event: dict[str, Any], of: str) -> None:
        self._label, self._of, self._done = str(event["label"]), of, 0
        self._started = self._clock()

    def _print(self, text: str) -> None:
        now = self._clock()
        if now - self._printed < self._interval:
            return
        self._printed = now
        self._stream.write(f"{text} ({now - self._started:.0f} s)\n")
        self._stream.flush()


def step_text(event: dict[str, Any]) -> str:
    """The values of an iteration as text: ``iteration 3, objective 1.25, step 0.01``."""
    values = [f"{name} {_short(v)}" for name, v in event.items() if name not in ("kind", "number")]
    # An evaluation counts its parts and has no iterations.
    return ", ".join([f"iteration {event['number']}", *values] if "number" in event else values)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@contextmanager
def _bar() -> Iterator[Callable[[dict[str, Any]], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[step]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, step="")

        def sink(event: dict[str, Any]) -> None:
            kind = event["kind"]
            if kind == "fit":
                bar.update(task, step="")
            elif kind in ("pass", "stage"):
                # The step stays: passes come and go many times between two of them.
                bar.reset(task, description=str(event["label"]))
                bar.tasks[0].total = event["partitions" if kind == "pass" else "parts"]  # None, too
            elif kind in ("partitions", "parts"):
                bar.advance(task, event["done"])
            elif kind == "convert" and "parts_done" in event:
                bar.update(
                    task,
                    description=STAGES[event["stage"]],
                    total=event["parts"],
                    completed=event["parts_done"],
                )
            elif kind == "step":
                bar.update(task, step=step_text(event))

        yield sink
