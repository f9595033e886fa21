"""`mlfs batch`: stores × methods × parameters × k × seeds × evaluations, from one file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mlfs_dask.errors import MlfsError, size
from mlfs_dask_cli.failure import describe_failure, report_failure
from mlfs_dask_cli.options import (
    ARGUMENTS,
    PATH,
    Command,
    Computing,
    computing_options,
    force_option,
    option,
    output_options,
    resume_option,
)
from mlfs_dask_cli.output import Output, beside, between, table, two_digits
from mlfs_dask_cli.progress import show_progress


@click.command(cls=Command, short_help="Run all jobs of a plan file and collect their results.")
@click.argument("plan", metavar="PLAN.yaml", type=PATH, required=False)
@option("-o DIR", "Folder of the jobs and the tables (default: PLAN.batch, in the working folder).", "place", type=PATH)
@option("--dry-run", "Check the file, print jobs, passes, bytes and memory, and exit.", is_flag=True)
@option("--schema", "Print the JSON schema of PLAN.yaml and exit.", is_flag=True)
@resume_option
@force_option
@computing_options(cache=True, report=True)
@output_options(progress=True)
def batch(
    *,
    plan: str | None,
    place: str | None,
    dry_run: bool,
    schema: bool,
    resume: bool,
    force: bool,
    computing: Computing,
    output: Output,
) -> None:
    """Run every job of PLAN.yaml, each in its own folder under DIR, and collect their results.

    The file is checked before any job runs. If a job fails, the others still run, and the exit code is not 0.
    """
    if schema:
        from mlfs_dask.batch.schema import plan_schema

        click.echo(json.dumps(plan_schema()))
        return
    if plan is None:
        raise click.UsageError("missing argument 'PLAN.yaml'.")
    place = place or f"{Path(plan).stem}.batch"

    from mlfs_dask.batch.running import Batch
    from mlfs_dask.batch.spec import read_spec
    from mlfs_dask.cluster.resources import current_resources

    batch = Batch(read_spec(plan), place, resume=resume, force=force)
    if dry_run:
        with computing.planned() as resources:
            projected = batch.project(resources, measure=True)
        _print_result(projected.to_dict(), _projection_text(projected), output, projected.require_success)
        return
    with show_progress(output), computing.connected():
        output.note(_projection_text(batch.project(current_resources())))
        numbers = {job.name: number for number, job in enumerate(batch.spec.jobs, start=1)}
        batch.run(lambda job, state: output.note(f"mlfs: job {numbers[job]} of {len(numbers)}, {job}: {state}"))
    _print(place, batch, output)


def _projection_text(projected: Any) -> str:
    totals = projected.to_dict()
    rows = [
        (
            job.job,
            between(job.typical_passes or (job.passes, job.passes), "{:,}".format),
            between(job.typical_bytes_read or (job.bytes_read, job.bytes_read), size),
            size(job.peak_worker_bytes),
            size(job.peak_driver_bytes),
            "" if job.seconds is None else between(job.typical_seconds or (job.seconds, job.seconds), two_digits),
            "will fail: " + job.problem.splitlines()[0] if job.problem else "",
        )
        for job in projected.jobs
    ]
    header = ("job", "passes", "read", "a worker", "driver", "seconds", "")
    lines = [table(rows, header=header)] if rows else []
    jobs = sum(not job.shared for job in projected.jobs)
    done = f", {projected.done} done already" if projected.done else ""
    typical = ""
    if totals["typical_passes"] is not None:
        passes = between(totals["typical_passes"], "{:,}".format)
        typical = f" typically {passes} passes, {between(totals['typical_bytes_read'], size)};"
    lines.append(
        f"{jobs} to run{done};{typical} at most {totals['passes']:,} passes, {size(totals['bytes_read'])}; "
        f"at most {size(totals['peak_worker_bytes'])} a worker, {size(totals['peak_driver_bytes'])} on the driver"
    )
    return "\n".join(lines)


def _print(place: str, batch: Any, output: Output) -> None:
    jobs = batch.result().jobs
    # The pass that jobs share has a row of its own, and is none of the jobs that the plan asks for.
    states = jobs["state"][jobs["kind"] != "shared"].value_counts()
    rows = [
        ("jobs", ", ".join(f"{count} {state}" for state, count in states.items())),
        ("passes", str(int(jobs["passes"].sum()))),
        ("seconds", f"{jobs['seconds'].sum():.1f}"),
        ("written", f"{place}: jobs.csv, results.csv, selections.csv (and .parquet), jobs/"),
    ]
    result = {"batch": place, "jobs": json.loads(jobs.to_json(orient="records"))}
    following = ["mlfs", "report", place, "-o", beside(place, ".html")]
    _print_result(result, table(rows), output, batch.require_success, following)


def _print_result(
    result: Mapping[str, Any],
    text: str,
    output: Output,
    require_success: Callable[[], None],
    following: Sequence[str] = (),
) -> None:
    """Print the result, and then the error of jobs that failed; as JSON both are one object."""
    try:
        require_success()
    except MlfsError as error:
        if not output.as_json:
            output.result(result, text)
        failure = describe_failure(error, click.get_current_context().meta[ARGUMENTS])
        assert failure is not None
        report_failure(failure, as_json=output.as_json, result=result)
        raise click.exceptions.Exit(failure.exit_code) from None
    output.result(result, text, following=following)
