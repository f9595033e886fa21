"""Sizes, tables, results and progress, as they are printed."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from mlfs_dask import runtime
from mlfs_dask_cli.convert import read_names
from mlfs_dask_cli.options import Bytes, KeepCount
from mlfs_dask_cli.output import Output, size, table
from mlfs_dask_cli.progress import JsonLines, PlainLines, show_progress


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1024", 1024),
        ("500MB", 500_000_000),
        ("1.5GiB", 3 * 2**29),
        ("2 g", 2_000_000_000),
        ("3ki", 3072),
        ("1TiB", 2**40),
        ("7b", 7),
    ],
)
def test_sizes_are_read(text: str, count: int) -> None:
    assert Bytes().convert(text, None, None) == count


@pytest.mark.parametrize("text", ["", "GB", "1XB", "1e400", "0", "1 2", "-5"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no size"):
        Bytes().convert(text, None, None)


@pytest.mark.parametrize(("text", "value"), [("20", 20), ("0.1", 0.1), ("1.0", 1.0), ("1", 1), ("1e-1", 0.1)])
def test_counts_and_fractions(text: str, value: float) -> None:
    found = KeepCount().convert(text, None, None)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (2**30, "1 GiB"), (5 * 2**40, "5 TiB")]
)
def test_sizes_are_written(count: int, text: str) -> None:
    assert size(count) == text


def test_tables_are_aligned() -> None:
    rows = [("alpha", "1,000"), ("b", "7")]
    assert table(rows) == "alpha  1,000\nb          7"
    assert table(rows, header=("name", "count")) == "name   count\nalpha  1,000\nb          7"
    assert table([("a", "text"), ("bb", "t")]) == "a   text\nbb  t"
    assert table([]) == ""


def test_results_hold_plain_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).result({"n": np.int64(3), "a": np.arange(2), "p": Path("x"), "s": {2, 1}}, "text")
    assert json.loads(capsys.readouterr().out) == {"n": 3, "a": [0, 1], "p": "x", "s": [1, 2]}
    Output(as_json=False).result({}, "text")
    assert capsys.readouterr().out == "text\n"


def test_notes_go_to_standard_error_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    Output().note("hello")
    Output(quiet=True).note("nothing")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")


def test_names_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("with, comma\n\nünïcode\n", encoding="utf-8")
    assert read_names(('a,"b,c"', f"@{file}", "d")) == ("a", "b,c", "with, comma", "ünïcode", "d")
    assert read_names(()) == ()


# Progress

EVENTS = [
    {"kind": "pass", "label": "counts", "partitions": 4},
    {"kind": "partitions", "done": 1},
    {"kind": "partitions", "done": 2},
    {"kind": "pass-done", "label": "counts", "seconds": 2.0},
    {"kind": "step", "number": 3, "objective": 0.1234567},
    {"kind": "convert", "stage": "read", "rows": 100},
    {"kind": "convert", "stage": "write", "parts_done": 2, "parts": 5},
]


def test_json_lines() -> None:
    stream = io.StringIO()
    sink = JsonLines(stream)
    for event in EVENTS:
        sink(event)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [{name: value for name, value in line.items() if name != "seconds"} for line in lines] == [
        {name: value for name, value in event.items() if name != "seconds"} for event in EVENTS
    ]
    assert lines[3]["seconds"] == 2.0


def test_plain_lines_come_at_most_every_few_seconds() -> None:
    stream, now = io.StringIO(), [0.0]
    sink = PlainLines(stream, interval=5.0, clock=lambda: now[0])
    times = [0.0, 4.0, 6.0, 8.0, 12.0, 20.0, 30.0]
    for event, moment in zip(EVENTS, times, strict=True):
        now[0] = moment
        sink(event)
    assert stream.getvalue().splitlines() == [
        "counts: 3 of 4 partitions (6 s)",
        "iteration 3, objective 0.123457 (12 s)",
        "writing: 2 of 5 parts (30 s)",
    ]


def test_lines_of_passes_tell_what_the_last_iteration_told() -> None:
    """Steps are few and passes many: a line that waits for a step would hardly ever come."""
    stream, now = io.StringIO(), [0.0]
    sink = PlainLines(stream, interval=5.0, clock=lambda: now[0])
    sink({"kind": "step", "number": 4, "objective": 2.5, "residual": 0.25, "step": 0.001})
    sink({"kind": "pass", "label": "X W", "partitions": 4})
    now[0] = 6.0
    sink({"kind": "partitions", "done": 1})
    now[0] = 12.0
    sink({"kind": "pass-done", "label": "X W", "seconds": 2.0})
    assert stream.getvalue().splitlines() == [
        "X W: 1 of 4 partitions; iteration 4, objective 2.5, residual 0.25, step 0.001 (6 s)",
        "X W: done in 2.0 s; iteration 4, objective 2.5, residual 0.25, step 0.001 (12 s)",
    ]
    sink({"kind": "fit", "method": "smfs"})
    now[0] = 18.0
    sink({"kind": "pass-done", "label": "X W", "seconds": 1.0})
    assert stream.getvalue().splitlines()[-1] == "X W: done in 1.0 s (18 s)"


def test_lines_of_stages_name_their_parts() -> None:
    stream, now = io.StringIO(), [0.0]
    sink = PlainLines(stream, interval=5.0, clock=lambda: now[0])
    events = [
        {"kind": "pass", "label": "components", "partitions": 26},
        {"kind": "stage", "label": "near points: lists", "parts": 8, "unit": "parts"},
        {"kind": "parts", "done": 1},
        {"kind": "parts", "done": 1},
        {"kind": "stage-done", "label": "near points: lists", "seconds": 12.25},
        {"kind": "stage", "label": "predicted labels", "parts": None, "unit": "steps"},
        {"kind": "parts", "done": 1},
    ]
    for event, moment in zip(events, [0.0, 6.0, 8.0, 12.0, 18.25, 20.0, 26.0], strict=True):
        now[0] = moment
        sink(event)
    assert stream.getvalue().splitlines() == [
        "near points: lists: begun (0 s)",
        "near points: lists: 2 of 8 parts (6 s)",
        "near points: lists: done in 12.2 s (12 s)",
        "predicted labels: 1 steps (6 s)",
    ]


@pytest.mark.parametrize(("progress", "lines"), [("json", 1), ("none", 0), ("plain", 0), ("auto", 0)])
def test_forms_of_progress(
    progress: str, lines: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with show_progress(Output(progress=progress)):
        runtime.emit("pass", label="counts", partitions=2)
    runtime.emit("pass", label="outside", partitions=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == lines


def test_a_terminal_gets_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress(Output(progress="auto")):
        runtime.emit("pass", label="counts", partitions=2)
    assert "counts" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_the_bar_shows_every_kind_of_event(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    # As on a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    shown = []
    for events in (EVENTS[:3], EVENTS[:5], EVENTS, [*EVENTS[:5], {"kind": "pass", "label": "X W", "partitions": 7}]):
        with show_progress(Output(progress="bar")):
            for event in events:
                runtime.emit(**event)  # type: ignore[arg-type]
        shown.append(stream.getvalue())
        stream.truncate(0)
    assert "counts" in shown[0]
    assert "3/4" in shown[0]
    assert "iteration 3, objective 0.123457" in shown[1]
    assert "writing" in shown[2]
    assert "2/5" in shown[2]
    assert "X W" in shown[3]
    assert "iteration 3, objective 0.123457" in shown[3]


def test_the_bar_shows_stages_with_parts_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "100", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    shown = []
    for parts in (7, None):
        with show_progress(Output(progress="bar")):
            runtime.emit("pass", label="counts", partitions=4)
            with runtime.stage("masses: ranking", parts) as done:
                done()
                done()
        shown.append(stream.getvalue())
        stream.truncate(0)
    assert "masses: ranking" in shown[0]
    assert "2/7" in shown[0]
    assert "2/?" in shown[1]
