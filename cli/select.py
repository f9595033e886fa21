"""`mlfs select`: rank the features of a store with a method, and write a run folder."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

from mlfs_dask.errors import number_of
from mlfs_dask_cli.method_group import MethodGroup, make_selector
from mlfs_dask_cli.options import (
    cache_options,
    cluster_options,
    force_option,
    keep_option,
    output_options,
    resume_option,
    seed_option,
    store_argument,
)
from mlfs_dask_cli.output import Output, size, table
from mlfs_dask_cli.progress import show_progress

labels_option = click.option(
    "--write-labels",
    is_flag=True,
    help="Also write the recovered labels of all rows, as RUN/labels.zarr.",
)

checkpoint_option = click.option(
    "--checkpoint-every",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Time between two states of the loop kept beside RUN, from which --resume goes on; 0 keeps one after every "
    "iteration.",
)


def _make_command(name: str) -> click.Command:
    from mlfs_dask.selectors import get_method

    @click.command(name, help="Rank the features of STORE and write the run folder RUN.")
    @store_argument
    @keep_option
    @click.option("-o", "run", metavar="RUN", required=True, help="Folder or URL to write; it appears when complete.")
    @seed_option
    @resume_option
    @force_option
    @cache_options
    @cluster_options
    @output_options(progress=True)
    def command(**kwargs: Any) -> None:
        _select(**kwargs)

    selector = get_method(name)
    if selector.keeps_checkpoints:
        command = checkpoint_option(command)
    return labels_option(command) if selector.label_threshold is not None else command


select = MethodGroup(
    name="select",
    short_help="Rank the features of a store and write a run folder.",
    make_command=_make_command,
    help="Rank the features of STORE with METHOD and write a run folder.",
)


def _select(
    *,
    method: str,
    params: dict[str, Any],
    store: str,
    k: int | float | str,
    run: str,
    seed: int | None,
    resume: bool,
    force: bool,
    cache: dict[str, Any],
    cluster: dict[str, Any],
    output: Output,
    write_labels: bool = False,
    checkpoint_every: float | None = None,
) -> None:
    from mlfs_dask.caching import cache as keep_statistics
    from mlfs_dask.checkpoints import Folder, checkpoint_place, keep_checkpoints
    from mlfs_dask.cluster import connect
    from mlfs_dask.results import RecoveredLabels, check_free, finished_run, has_labels, write_run
    from mlfs_dask.storage.dataset import open_dataset

    dataset = open_dataset(store)
    selector, seeded = make_selector(method, params, k=k, seed=seed)
    selector.count_kept(dataset.shape[1], name="-k")  # said in the command's words, before anything else
    if seed is not None and not seeded:
        output.note(f"mlfs: {method} draws nothing at random; --seed has no effect.")
    done = (
        finished_run(run, method=method, params=selector.get_params(False), digest=dataset.digest) if resume else None
    )
    if done is not None and (has_labels(run) or not write_labels):
        Folder(checkpoint_place(run)).remove()  # of a run that was killed between its last file and its end
        output.note(f"mlfs: {run} is complete already; nothing was run.")
        _print(output, run, done.record, done.feature_names)
        return
    check_free(run, force=force or done is not None)
    states = Folder(checkpoint_place(run))
    if checkpoint_every is not None and not resume and states.holds_state:
        output.note(f"mlfs: {states} holds where an earlier run stopped; --resume would go on from there.")
    kept = (
        nullcontext() if checkpoint_every is None else keep_checkpoints(states, every=checkpoint_every, resume=resume)
    )
    with (
        connect(**cluster),
        show_progress(output),
        kept,
        keep_statistics(**cache),
    ):
        selector.fit(dataset)
        record = selector.report_.to_dict()
        labels = None
        if write_labels:
            profile = dataset.rows.profile
            labels = RecoveredLabels(
                write=lambda store: selector.write_labels(dataset, store),
                n=profile.n,
                names=dataset.label_names,
                threshold=float(selector.label_threshold),
                partition_rows=-(-profile.n // profile.partitions),
            )
        write_run(
            run,
            ranking=selector.ranking_,
            scores=selector.scores_,
            feature_names=dataset.feature_names,
            record=record,
            columns=selector.ranking_columns(),
            labels=labels,
            force=force or done is not None,
        )
    if checkpoint_every is not None:
        states.remove()
    chosen = [str(dataset.feature_names[index]) for index in selector.ranking_[: record["k"]]]
    _print(output, run, record, chosen)


def _print(output: Output, run: str, record: dict[str, Any], names: list[str]) -> None:
    chosen = names[: record["k"]]
    shown = ", ".join(chosen[:8]) + (", ..." if len(chosen) > 8 else "")
    worker, driver = size(record["peak_worker_bytes"]), size(record["peak_driver_bytes"])
    planned = size(record["plan"]["peak_worker_bytes"])
    # What the cache held was not computed: no worker did anything.
    passes, peak = "none: nothing was read", f"{driver} on the driver"
    if record["passes"]:
        passes = f"{record['passes']} ({size(record['bytes_read'])} read, {number_of(record['tasks'], 'task')})"
        peak = f"{worker} a worker (planned {planned}), {peak}"
    rows: list[tuple[str, str]] = [
        ("kept", f"{record['k']:,} of {number_of(record['d'], 'feature')}: {shown}"),
        ("passes", passes),
        ("seconds", f"{record['wall_seconds']:.3f}"),
        ("peak", peak),
    ]
    if "from_cache" in record.get("extra", {}):
        rows.append(("from the cache", ", ".join(record["extra"]["from_cache"])))
    if record["converged"] is not None:
        state = "converged" if record["converged"] else "did not converge"
        rows.append(("loop", f"{state} after {number_of(record['iterations'], 'iteration')}"))
    rows.append(("written", run))
    output.result({"run": run, "selected": chosen, **record}, table(rows))
