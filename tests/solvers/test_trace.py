"""Traces of loops."""

from __future__ import annotations

import json

from mlfs_dask import runtime
from mlfs_dask.solvers.trace import LoopTrace


def test_a_trace_is_reported_recorded_and_kept():
    trace = LoopTrace()
    events = []
    with runtime.progress_to(events.append):
        for value in (3.0, 2.5):
            trace.record(steps=2)
            trace.add(value, size=value / 4)
    assert trace.iterations == 2
    assert events == [
        {"kind": "step", "number": 1, "objective": 3.0, "size": 0.75},
        {"kind": "step", "number": 2, "objective": 2.5, "size": 0.625},
    ]
    assert trace.values == {"steps": [2, 2], "size": [0.75, 0.625]}
    assert LoopTrace(**json.loads(json.dumps(trace.facts()))) == trace
