"""Traces of loops."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from mlfs_dask import runtime
from mlfs_dask.solvers.trace import LoopTrace


@dataclass
class Steps(LoopTrace):
    size: list[float] = field(default_factory=list)
    solved: bool = True


def test_a_trace_is_reported_recorded_and_kept():
    trace = Steps()
    events = []
    with runtime.progress_to(events.append):
        for value in (3.0, 2.5):
            trace.objective.append(value)
            trace.size.append(value / 4)
            trace.report_progress(size=trace.size[-1])
    assert trace.iterations == 2
    assert events == [
        {"kind": "step", "number": 1, "objective": 3.0, "size": 0.75},
        {"kind": "step", "number": 2, "objective": 2.5, "size": 0.625},
    ]
    assert trace.lists() == {"size": [0.75, 0.625]}
    assert Steps(**json.loads(json.dumps(trace.facts()))) == trace
