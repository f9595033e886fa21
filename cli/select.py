"""`mlfs select`: rank the features of a store with a method or several, and write a run folder for each."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from typing import Any

import click

from mlfs_dask.errors import number_of, size
from mlfs_dask.redaction import redact
from mlfs_dask_cli.method_group import MethodGroup, options_without_effect
from mlfs_dask_cli.options import (
    PATH,
    Command,
    Computing,
    command_line,
    computing_options,
    force_option,
    keep_option,
    labels_option,
    open_subset,
    option,
    output_options,
    resume_option,
    seed_option,
    store_argument,
    subset_options,
)
from mlfs_dask_cli.output import Output, beside, table
from mlfs_dask_cli.progress import show_progress

checkpoint_option = option(
    "--checkpoint-every SECONDS",
    "Time between two states of the loop kept beside RUN, from which --resume goes on; 0 keeps one after "
    "every iteration.",
    type=click.FloatRange(min=0),
    default=60.0,
)


def _make_command(selectors: Sequence[Any]) -> click.Command:
    @click.command(
        "select",
        cls=Command,
        help="Rank the features of STORE and write the run folder RUN"
        + ("/METHOD for each method; options go to every method that has them." if len(selectors) > 1 else "."),
    )
    @store_argument
    @subset_options
    @keep_option
    @option(
        "-o RUN",
        "Folder or URL to write; it appears when complete. With several methods: RUN/METHOD for each.",
        "run",
        type=PATH,
        required=True,
    )
    @option(
        "--pairs-format",
        "Format of the table of `--pairs`: RUN/pairs.parquet or RUN/pairs.csv.",
        type=click.Choice(["parquet", "csv"]),
        default="parquet",
    )
    @seed_option
    @resume_option
    @force_option
    @computing_options(cache=True, report=True)
    @output_options(progress=True)
    def command(**kwargs: Any) -> None:
        _select(**kwargs)

    if any(selector.keeps_checkpoints for selector in selectors):
        command = checkpoint_option(command)
    return labels_option(command, selectors)


select = MethodGroup(
    name="select",
    short_help="Rank the features and write a run.",
    make_command=_make_command,
    several=True,
    help="Rank the features of STORE with METHOD and write a run folder. With several methods between commas what they "
    "all begin with is read once, and each has a run folder of its own, RUN/METHOD.",
)


def _select(
    *,
    methods: dict[str, dict[str, Any]],
    store: str,
    subset: dict[str, Any],
    k: int | float | str | None,
    run: str,
    seed: int | None,
    resume: bool,
    force: bool,
    computing: Computing,
    output: Output,
    pairs_format: str,
    write_labels: bool = False,
    checkpoint_every: float = 0.0,
) -> None:
    from mlfs_dask import runtime
    from mlfs_dask.selection.job import SelectJob
    from mlfs_dask.selection.question import ask
    from mlfs_dask.selection.timing import MANY_READINGS

    shared = None
    if k is None and any(not params.keys() & {"per_label", "min_labels"} for params in methods.values()):
        raise click.UsageError("Missing option '-k'; it says how many features to keep, as in -k 20 or -k 10%.")
    with show_progress(output):
        for sentence in options_without_effect(methods):
            output.note(f"mlfs: {sentence}.")
        dataset = open_subset(store, **subset)
        jobs: list[Any] = []
        done: dict[str, Any] = {}
        for method, params in methods.items():
            question = ask(method, k, seed=seed, **params)
            place = run if len(methods) == 1 else f"{run.rstrip('/')}/{method}"
            job = SelectJob(question, dataset, place, write_labels=write_labels)  # checks before anything else
            jobs.append(job)
            if seed is not None and not question.is_random:
                output.note(f"mlfs: {method} uses no random numbers; --seed has no effect.")
            finished = job.finished() if resume else None
            if finished is not None:
                job.states.remove()  # of a run that was killed between its last file and its end
                output.note(f"mlfs: {place} is complete already; nothing was run.")
                done[place] = finished
                continue
            job.check_free(force=force)
            if job.question.method.keeps_checkpoints and not resume and job.states.holds_state:
                output.note(f"mlfs: {job.states} has a checkpoint of an earlier run; --resume continues from it.")
        missing = [job for job in jobs if job.place not in done]
        if missing:
            with computing.connected():
                if len(missing) > 1:
                    shared = _read_shared(dataset, [job.question for job in missing])
                for job in missing:
                    if len(jobs) > 1:
                        name = job.question.method.method
                        runtime.emit("job", number=jobs.index(job) + 1, total=len(jobs), name=name)
                    started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
                    told = {"started": started, "command": redact(command_line())}
                    done[job.place] = job.run(
                        told, every=checkpoint_every, resume=resume, force=force, pairs_format=pairs_format
                    )
    results = [_result(done[job.place]) for job in jobs]
    passes = sum(result["passes"] for result in results)
    if dataset.rows.profile.foreign and passes >= MANY_READINGS:
        output.note(
            f"mlfs: {passes:,} passes decoded {store}; `mlfs convert` takes the time of a few passes, after which each "
            "is faster: see `mlfs plan`"
        )
    texts = [_text(result) for result in results]
    if len(results) == 1:
        output.result(results[0], texts[0], following=["mlfs", "report", run, "-o", beside(run, ".html")])
    else:
        if shared is not None:
            read = f"{size(shared['bytes_read'])} for {', '.join(shared['statistics'])}"
            texts.insert(0, table([("read together", read), ("seconds", f"{shared['seconds']:.3f}")]))
        output.result(
            {"shared": shared, "runs": results},
            "\n\n".join(texts),
            following=["mlfs", "report", *(job.place for job in jobs), "-o", beside(run, ".html")],
        )


def _read_shared(dataset: Any, questions: Sequence[Any]) -> dict[str, Any] | None:
    """Refuse what will not fit before anything is read, and then read what the methods begin with.

    Returns what was read and what it took; None where each method reads for itself.
    """
    from mlfs_dask.cluster.resources import current_resources
    from mlfs_dask.selection.sharing import read_shared

    resources = current_resources()
    for question in questions:
        question.plan(dataset.rows, resources)
    shared = read_shared(dataset.rows, questions, resources)
    if shared is None:
        return None
    kinds, record = shared
    return {"statistics": kinds, "bytes_read": record.bytes_read, "seconds": record.seconds}


def _result(run: Any) -> dict[str, Any]:
    """Return the summary of a run that `--json` prints."""
    return {"run": run.path, "selected": run.feature_names[: run.k], **run.record}


def _judgement(row: dict[str, Any]) -> str:
    """Return a method with its distance to the best on the same rows, and the standard error of the distance."""
    return f"{row['method']} {row['below_best']:.4f} ± {row['standard_error']:.4f} below"


def _of_pairs(pairs: dict[str, Any]) -> str:
    """Return the number of significant pairs of a label and a feature."""
    return (
        f"{pairs['significant']:,} of {pairs['tested']:,} significant at {pairs['fdr']:g} ({pairs['control']}), of "
        f"{number_of(pairs['features'], 'feature')} and {number_of(pairs['labels'], 'label')}; {pairs['hypothesis']}"
    )


def _first_names(names: Sequence[str]) -> str:
    """Return eight names, or as many as a line has room for."""
    lengths = list(itertools.accumulate(len(name) + 2 for name in names[:8]))
    shown = max(1, sum(length <= 80 for length in lengths))
    return ", ".join(names[:shown]) + (", ..." if len(names) > shown else "")


def _text(result: dict[str, Any]) -> str:
    shown = _first_names(result["selected"])
    worker, driver = size(result["peak_worker_bytes"]), size(result["peak_driver_bytes"])
    planned = size(result["plan"]["peak_worker_bytes"])
    # What the cache held was not computed: no worker did anything.
    passes, peak = "none: nothing was read", f"{driver} on the driver"
    if result["passes"]:
        passes = f"{result['passes']} ({size(result['bytes_read'])} read, {number_of(result['tasks'], 'task')})"
        if result["peak_worker_bytes"]:  # the exact graph of rows is made without workers
            peak = f"{worker} a worker (planned {planned}), {peak}"
    rows: list[tuple[str, str]] = [
        ("method", result["method"]),
        ("kept", f"{result['k']:,} of {number_of(result['d'], 'feature')}: {shown}"),
        ("passes", passes),
        ("seconds", f"{result['wall_seconds']:.3f}"),
        ("peak", peak),
    ]
    if "judged" in result.get("extra", {}):
        extra = result["extra"]
        best = next(each for each in extra["judged"] if each["method"] == extra["chosen"])
        text = f"{best['method']} {best['average_precision']:.4f} ± {extra['standard_error']:.4f}, average precision"
        rows.append(("best", f"{text} of {best['judged_rows']:,} held-out rows"))
        to_the_end = [
            each for each in extra["judged"] if each["judged_rows"] == best["judged_rows"] and each is not best
        ]
        if to_the_end:
            to_the_end.sort(key=lambda each: float(each["below_best"]))
            rows.append(("behind it", ", ".join(map(_judgement, to_the_end))))
        dropped = [each["method"] for each in extra["judged"] if each["judged_rows"] != best["judged_rows"]]
        if dropped:
            rows.append(("dropped early", ", ".join(dropped)))
        tied = extra["tied"]
        mean = f"the mean rank of {', '.join(tied)}, which are within one standard error of the best"
        rows.append(("taken", tied[0] if len(tied) == 1 else mean))
    if "from_cache" in result.get("extra", {}):
        rows.append(("from the cache", ", ".join(result["extra"]["from_cache"])))
    if "pairs" in result.get("extra", {}):
        rows.append(("pairs", _of_pairs(result["extra"]["pairs"])))
    from mlfs_dask.selection.runs import loop_state

    if (state := loop_state(result)) is not None:
        rows.append(("loop", f"{state} after {number_of(result['iterations'], 'iteration')}"))
    rows.append(("written", result["run"]))
    return table(rows)
