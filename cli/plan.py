"""`mlfs plan`: what a selection will cost, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from mlfs_dask.errors import number_of, size
from mlfs_dask_cli.method_group import MethodGroup
from mlfs_dask_cli.options import (
    ARGUMENTS,
    Command,
    Computing,
    KeepCount,
    computing_options,
    labels_option,
    open_subset,
    option,
    output_options,
    store_argument,
    subset_options,
)
from mlfs_dask_cli.output import Number, Output, beside, between, table, two_digits


def _make_command(selectors: Sequence[Any]) -> click.Command:
    @click.command(
        "plan", cls=Command, help="Say what `mlfs select` with these options will cost; exit 4 if it cannot fit."
    )
    @store_argument
    @subset_options
    @option("-k", "As for `mlfs select`; with auto the plan includes shuffled labels.", "k", type=KeepCount(auto=True))
    @option("--quick", "Read no data: seconds are not estimated.", is_flag=True)
    @computing_options(cache=True, report=False)
    @output_options(progress=False)
    def command(**kwargs: Any) -> None:
        _plan(**kwargs)

    return labels_option(command, selectors)


plan = MethodGroup(
    name="plan",
    short_help="Show the cost of a selection before it runs.",
    make_command=_make_command,
    help="Show what a selection costs before it runs: passes over STORE, tasks, bytes read, seconds, peak bytes of a "
    "worker and of the driver.",
)


def _bounded(maximum: str, typical: tuple[Number, Number] | None, form: Callable[[Number], str]) -> str:
    """Return the cost of a method; for a method with a loop the typical range and the maximum."""
    return maximum if typical is None else f"typically {between(typical, form)}, at most {maximum}"


def _plan(
    *,
    methods: dict[str, dict[str, Any]],
    store: str,
    subset: dict[str, Any],
    k: int | float | str | None,
    quick: bool,
    computing: Computing,
    output: Output,
    write_labels: bool = False,
) -> None:
    from mlfs_dask.selection.job import SelectJob
    from mlfs_dask.selection.question import ask

    ((method, params),) = methods.items()
    dataset = open_subset(store, **subset)
    job = SelectJob(ask(method, k, **params), dataset, write_labels=write_labels)
    with computing.planned() as resources:
        projected = job.plan(resources, measure=not quick)
    threads, memory = number_of(resources.threads_per_worker, "thread"), size(resources.memory_limit)
    where = f"this process, {threads}, {memory}"
    if resources.client is not None:
        where = f"{number_of(resources.workers, 'worker')} of {memory}, {threads} each"
    at_most = "" if projected.typical_passes is None else "at most "
    read = f"{projected.bytes_read:,} ({size(projected.bytes_read)})"
    seconds = "not measured"
    if projected.seconds is not None:
        most = two_digits(projected.seconds)
        typical = projected.typical_seconds
        seconds = f"about {most}" if typical is None else _bounded(most, typical, two_digits)
    rows = [
        ("passes over X", _bounded(f"{projected.passes:,}", projected.typical_passes, "{:,}".format)),
        ("tasks", f"{at_most}{projected.tasks:,}"),
        ("bytes read", _bounded(read, projected.typical_bytes_read, size)),
        ("seconds", seconds),
        ("peak a worker", f"{projected.peak_worker_bytes:,} ({size(projected.peak_worker_bytes)})"),
        ("peak on the driver", f"{projected.peak_driver_bytes:,} ({size(projected.peak_driver_bytes)})"),
        *[(f"  {name}", size(nbytes)) for name, nbytes in projected.arrays.items()],
        ("computed by", where),
        *[("note", note) for note in projected.notes],
    ]
    result = {
        "method": method,
        "store": store,
        **projected.to_dict(),
        "resources": {
            "in_process": resources.client is None,
            "workers": resources.workers,
            "threads_per_worker": resources.threads_per_worker,
            "memory_limit": resources.memory_limit,
            "driver_limit": resources.driver_limit,
        },
    }
    words = [word for word in click.get_current_context().meta[ARGUMENTS][1:] if word != "--quick"]
    count = [] if k is not None else ["-k", "20"]
    output.result(result, table(rows), following=["mlfs", "select", *words, *count, "-o", beside(store, f".{method}")])
