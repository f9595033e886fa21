"""`mlfs evaluate`: what classifiers make of chosen features, learnt inside each training part."""

from __future__ import annotations

import functools
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlfs_dask.errors import size
from mlfs_dask_cli.options import (
    PATH,
    Command,
    Computing,
    command_line,
    computing_options,
    force_option,
    open_subset,
    option,
    output_options,
    resume_option,
    subset_options,
    with_facts,
)
from mlfs_dask_cli.output import Output, beside, table
from mlfs_dask_cli.progress import show_progress

if TYPE_CHECKING:
    from mlfs_dask.selectors.parameters import Parameter


def _names(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return names from repeated options or comma-separated lists; None without names."""
    return tuple(name.strip() for text in value for name in text.split(",") if name.strip()) or None


class _SettingsCommand(Command):
    """A command whose options are also the settings of an evaluation, which are imported when it is asked for them."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from mlfs_dask.evaluation.protocols import SETTINGS

        params = super().get_params(ctx)
        first = next(i for i, param in enumerate(params) if param.name == "choose_k")
        return [*params[:first], *map(_setting_option, SETTINGS.values()), *params[first:]]


@functools.cache
def _setting_option(setting: Parameter) -> click.Option:
    """Return the option of a setting of an evaluation; where it is not given, a protocol's or the default holds."""
    default, truth = setting.default, setting.types == (bool,)
    shown = None if default is None else f"default: {', '.join(default) if setting.many else default}"
    return click.Option(
        [*_FLAGS.get(setting.name, (setting.flag,)), setting.name],
        type=None if setting.many or truth else setting.types[0],
        is_flag=truth,
        default=None,
        multiple=setting.many,
        callback=_names if setting.many else None,
        metavar=None if truth else setting.metavar,
        help=setting.help if truth else with_facts(setting.help, shown, setting.range),
    )


def _store_first(store: str | None, candidates: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Store and candidates, where the store came last, as `mlfs select` has it, or first."""
    from mlfs_dask.selectors import METHODS, method_name

    first = method_name((store or "").partition(":")[0])
    if first in (*METHODS, "random", "all") and candidates and not Path(str(store)).exists():
        return candidates[-1], (str(store), *candidates[:-1])
    return store, candidates


#: Spellings of options that are not those of their settings.
_FLAGS = {"classifiers": ("--classifier", "--classifiers"), "C": ("-C",)}

#: Address space that scikit-learn and pandas take, with what they load (measured 575 MiB on two cores).
LIBRARY_BYTES = 640 << 20


@click.command(cls=_SettingsCommand, short_help="Evaluate rankings by classifiers on held-out rows.")
@click.argument("store", metavar="STORE", type=PATH, required=False)
@click.argument("candidates", metavar="CANDIDATE...", type=PATH, nargs=-1)
@option("-o EVAL", "Folder or URL to write; it appears when complete.", "place", type=PATH)
@option("--name", "Name of the data set in the tables (default: that of the store).")
@option(
    "--protocol",
    "Options of a published experiment: elc-2020, lee-kim-2016, mfsir, smfs-2020 or access-mfs-2024; options that you "
    "give override it.",
)
@option("--print-protocol", "Print all options of the evaluation and exit.", is_flag=True)
@option("--dry-run", "Check everything, print what would be done, and exit.", is_flag=True)
@option(
    "--choose-k",
    "Report the smallest number of features whose average precision (or first of --metrics) is within one standard "
    "error of the best.",
    is_flag=True,
)
@option(
    "--clusters COLUMN|FILE",
    "Column of the rows with their clusters, or a text file with a line for every row; folds keep clusters together.",
)
@option("--split-file FILE", "File with the split: a line for every row, train, test or the number of its test fold.")
@option("--test-store STORE", "Store of the test rows; all rows of STORE are training rows.")
@subset_options
@resume_option
@force_option
@computing_options(cache=True, report=True)
@output_options(progress=True)
def evaluate(
    *,
    store: str | None,
    subset: dict[str, Any],
    candidates: tuple[str, ...],
    place: str | None,
    name: str | None,
    protocol: str | None,
    print_protocol: bool,
    dry_run: bool,
    choose_k: bool,
    clusters: str | None,
    split_file: str | None,
    test_store: str | None,
    resume: bool,
    force: bool,
    computing: Computing,
    output: Output,
    **options: Any,
) -> None:
    """Evaluate each CANDIDATE by classifiers on its best features of STORE, and write the folder EVAL.

    A CANDIDATE is a method, with its parameters after a colon (elc:lambda=0.1,variant=published), learnt inside each
    training part; random or all, for comparison; the folder of a finished run; or an evaluation's, whose rankings are
    judged again, as its options say where others are not given.
    """
    from mlfs_dask import runtime

    runtime.require_address_space(LIBRARY_BYTES)

    from mlfs_dask.evaluation.experiment import Experiment
    from mlfs_dask.evaluation.job import EvaluateJob
    from mlfs_dask.evaluation.protocols import make_settings
    from mlfs_dask.evaluation.results import check_standard_error
    from mlfs_dask.evaluation.splits import read_split
    from mlfs_dask.files.publish import check_place
    from mlfs_dask.files.result_folders import EVALUATION

    if print_protocol:
        settings = make_settings(protocol, options)
        output.result(settings.to_dict(), _settings_text(protocol, settings))
        return
    store, candidates = _store_first(store, candidates)
    if store is None or not candidates:
        raise click.UsageError(
            "give a STORE and one or more CANDIDATEs: methods, folders of runs or evaluations, random, all."
        )
    if place is None and not dry_run:
        raise click.UsageError("missing option '-o'; it names the folder to write.")
    if place is not None and not resume:
        check_place(place, EVALUATION, force=force)
    with show_progress(output), ExitStack() as stack:
        dataset = open_subset(store, **subset)  # what is wrong with it is told before there is a cluster
        stack.enter_context(computing.connected())
        experiment = Experiment(
            dataset,
            candidates,
            protocol=protocol,
            test=None if test_store is None else open_subset(test_store, **{**subset, "rows": None}),
            name=name,
            clusters=clusters,
            fold_of=None if split_file is None else read_split(split_file, dataset.shape[0]),
            **options,
        )
        job = EvaluateJob(experiment, place or "")
        plan = job.plan()
        if choose_k:
            check_standard_error(plan["splits"])
        if dry_run:
            output.result(plan, _plan_text(plan))
            return
        evaluation = job.finished() if resume else None
        if evaluation is not None:
            output.note(f"mlfs: {place} is complete already; nothing was run.")
        else:
            check_place(job.place, EVALUATION, force=force)
            evaluation = job.run({"command": command_line()}, choose_k=choose_k, resume=resume, force=force)
    _print(job.place, evaluation, output)


def _print(place: str, evaluation: Any, output: Output) -> None:
    from mlfs_dask.evaluation.results import splits_in_words

    means = evaluation.means()
    # Over the grid, and then a column a metric: what is compared first.
    wide = means.pivot_table(index=["run", "classifier"], columns="metric", values="mean", sort=False)
    shown = [m["name"] for m in evaluation.record["metrics"] if m["name"] in wide.columns][:5]
    rows = [(*index, *(f"{wide.loc[index, metric]:.4f}" for metric in shown)) for index in wide.index]
    text = table(rows, header=("run", "classifier", *shown))
    ks = [point["k"] for point in evaluation.record["k_grid"]]
    grid = f"k = {ks[0]}" if len(ks) == 1 else f"means over k = {', '.join(map(str, ks))}"
    if any(run["method"] == "all" for run in evaluation.record["runs"]):
        grid += f" (all: {evaluation.record['store']['d']})"
    for choice in evaluation.record.get("chosen_k", ()):
        text += (
            f"\n{choice['run']}, {choice['classifier']}: k = {choice['k']}, the fewest features within one standard "
            f"error ({choice['standard_error']:.4f}) of the best {choice['metric']} ({choice['best_mean']:.4f} with "
            f"{choice['best_k']})"
        )
    output.result(
        {"eval": place, **evaluation.record, "means": json.loads(means.to_json(orient="records", double_precision=15))},
        f"{text}\n{grid}; {splits_in_words(evaluation.record['splits'])}; written {place}",
        following=["mlfs", "report", place, "-o", beside(place, ".html")],
    )


def _settings_text(protocol: str | None, settings: Any) -> str:
    from mlfs_dask.evaluation.protocols import get_protocol

    rows = [
        (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in settings.to_dict().items()
    ]
    text = table(rows)
    if protocol is None:
        return text
    found = get_protocol(protocol)
    return f"{found.name}: {found.paper}\n{text}\n{found.notes}"


def _plan_text(plan: dict[str, Any]) -> str:
    return table(
        [
            ("candidates", ", ".join(run["run"] for run in plan["runs"])),
            ("splits", f"{plan['splits']}, of {plan['train_rows']:,} rows to learn from, {plan['test_rows']:,} judged"),
            ("rankings to learn", str(plan["fits"])),
            ("features", ", ".join(map(str, plan["k"]))),
            ("held to judge", size(plan["judging_bytes"])),
        ]
    )
