"""One page about runs and evaluations: a single HTML file that needs no network, no other file and no script.

Everything comes from the folders named, but what features have to do with labels (correlations, redundancy R,
residual C): that is one reading of each store, where it can still be reached and has not changed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlfs_dask._version import __version__
from mlfs_dask.errors import DataError, MlfsError, UsageError
from mlfs_dask.evaluation.comparison import Comparison
from mlfs_dask.evaluation.results import Evaluation, splits_in_words
from mlfs_dask.files.redaction import redact
from mlfs_dask.reporting import figures as draw
from mlfs_dask.reporting.comparison_folder import anchor, figures_of
from mlfs_dask.reporting.contents import Contents, LabelledRun, changed_params, read_contents
from mlfs_dask.reporting.figures import Figure, Styles, inline_svg, write_figure
from mlfs_dask.reporting.pairs import pairs_section
from mlfs_dask.reporting.sections import Block, Section
from mlfs_dask.reporting.summary import best_features, chosen_features, clusters, leading_case, rank_intervals, summary
from mlfs_dask.reporting.tables import (
    Cell,
    Table,
    bytes_cell,
    cases,
    comparison_table,
    count_cell,
    csv_text,
    metrics_table,
    number_cell,
    read_cell,
    seconds_cell,
    text_cell,
    title_of,
)
from mlfs_dask.selection.runs import loop_state
from mlfs_dask.storage.object_store import is_url, local_path, require_writable
from mlfs_dask.storage.publish import appearing, check_permission

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

MAX_CURVES = 48
"""More curves are not drawn unless their metrics are named: nobody scrolls through them, and the page grows."""
MAX_OPEN = 3
"""Curves of one data set, and rankings, that are unfolded when the page opens."""
MAX_LABELS = 24
MAX_ROWS = 40
"""Rows of a table that is not folded when the page opens."""
MANY_COLUMNS = 8
MAX_RANKINGS = 24
"""Runs of which figures are drawn; further ones are in the tables alone."""
BROAD = 5.0
"""Width of a figure, in inches, from which it takes a row of its own."""


def report(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    title: str | None = None,
    metrics: Sequence[str] = (),
    image_shape: tuple[int, int] | None = None,
    figures: str | Path | None = None,
    data: bool = True,
    force: bool = False,
) -> dict[str, Any]:
    """Write one page about runs, evaluations, comparisons and batches.

    Parameters
    ----------
    paths : sequence of paths
        RUN, EVAL, CMP and BATCH folders.
    output : path
        The HTML file.
    title : str, optional
        Heading of the page.
    metrics : sequence of str
        Show these metrics; all.
    image_shape : (int, int), optional
        Rows and columns of the image whose pixels, row by row, are the features; maps are drawn then.
    figures : path, optional
        Folder for all figures as SVG; it must not be there yet or be empty, or with `force` hold figures.
    data : bool
        Whether stores are read (one reading of each) for what features have to do with labels.
    force : bool
        Replace an earlier page.

    Returns
    -------
    dict
        page, bytes, runs, evaluations, datasets, figures, notes.

    Raises
    ------
    UsageError
        The place is taken, or a metric or image shape does not fit.
    DataError
        A folder is none of those kinds, or damaged.
    """
    place = check_page(output, force=force)
    if figures is not None:
        require_writable(str(figures), takes_files=True)
    contents = read_contents(paths)
    sections, notes = build(contents, metrics=metrics, image_shape=image_shape, data=data)
    text = render(sections, title=title or _title(contents), lead=_lead(contents))
    drawn = [figure for section in sections for block in section.blocks for figure in block.figures]
    with appearing(place) as aside:
        if figures is not None:
            Path(figures).mkdir(parents=True, exist_ok=True)
            for figure in drawn:
                write_figure(figure, Path(figures) / f"{figure.name}.svg")
        aside.write_text(redact(text), encoding="utf-8")
    return {
        "page": str(place),
        "bytes": place.stat().st_size,
        "runs": [run.label for run in contents.runs],
        "evaluations": len(contents.evaluations),
        "comparisons": len(contents.comparisons),
        "figures": len(drawn),
        "notes": notes,
    }


def check_page(output: str | Path, *, force: bool) -> Path:
    """The place of a page; one that is taken is refused, before any work is done for it.

    Raises
    ------
    UsageError
        It is taken, or no local file.
    MlfsError
        Nothing may be written there.
    """
    if is_url(str(output)):
        raise UsageError(f"{output}: a page is written to a local file.")
    place = local_path(output)
    if place.is_dir():
        raise UsageError(f"{place} is a folder; name the HTML file to write.")
    if place.exists() and not force:
        raise UsageError(f"{place} exists; --force replaces it.")
    if place.exists() and b"mlfs-dask" not in place.read_bytes()[:1000]:
        raise UsageError(
            f"{place} is not a page of mlfs; it is not replaced, even with --force."
            "\n  cure: give another place with -o."
        )
    check_permission(place)
    return place


# What is on the page


def build(
    contents: Contents,
    *,
    metrics: Sequence[str] = (),
    image_shape: tuple[int, int] | None = None,
    data: bool = True,
) -> tuple[list[Section], list[str]]:
    """Sections of the page, and notes on what could not be shown.

    Returns
    -------
    list of Section, list of str
    """
    _require_shape(contents, image_shape)
    compared, notes = contents.compared()
    if metrics and not compared:
        raise UsageError(f"there is no evaluation here, of which the metric {metrics[0]!r} could be shown.")
    for metric in metrics:
        if not all(metric in comparison.metrics for comparison in compared):
            known = dict.fromkeys(name for comparison in compared for name in comparison.metrics)
            raise UsageError(f"no metric {metric!r} here. Known: {', '.join(known)}.")
    styles = Styles()
    for comparison in compared:
        for run in comparison.record["runs"]:
            styles.of(run["run"], run["method"])
    for labelled in contents.runs:
        styles.of(labelled.name, labelled.run.record["method"])
    drawn = contents.runs[:MAX_RANKINGS]
    details = Section("details", "Details")
    if left := len(contents.runs) - len(drawn):
        notes.append(
            f"Figures of {left} of {len(contents.runs)} runs are not drawn; name their RUN folders to see them."
        )
    if notes:
        details.blocks.append(Block(notes=list(notes)))
    missing = [Block(notes=contents.missing)] if contents.missing else []
    notes.extend(contents.missing)
    sections = [Section("summary", "In short", [*missing, *summary(drawn, compared, metrics, styles)])]
    sections.append(pairs_section(drawn))
    for number, comparison in enumerate(compared, start=1):
        suffix = f"-{number}" if len(compared) > 1 else ""
        sections.extend(_judged(comparison, styles, metrics, suffix, notes))
    sections.append(_cost(contents.runs, compared))
    if contents.runs:
        shown = {figure.name for block in sections[0].blocks for figure in block.figures}
        sections.append(_rankings(drawn, styles, image_shape, shown))
        if data:
            sections.append(_labels(contents.runs, drawn, notes))
    details.blocks.extend(_details(contents, drawn, styles))
    sections.append(details)
    return [section for section in sections if section.blocks], notes


def _require_shape(contents: Contents, shape: tuple[int, int] | None) -> None:
    if shape is None:
        return
    if not contents.runs:
        raise UsageError("an image shape needs a RUN folder, whose features are the pixels.")
    for labelled in contents.runs:
        d = len(labelled.run.ranking)
        if shape[0] * shape[1] != d:
            raise UsageError(
                f"an image of {shape[0]}x{shape[1]} has {shape[0] * shape[1]} pixels, "
                f"{labelled.label} has {d} features."
            )


def _title(contents: Contents) -> str:
    datasets = _datasets(contents)
    return "Feature selection on " + (", ".join(datasets) if len(datasets) <= 3 else f"{len(datasets)} data sets")


def _datasets(contents: Contents) -> list[str]:
    names = [labelled.dataset for labelled in contents.runs]
    for evaluation in contents.evaluations:
        names.extend(map(str, evaluation.results["dataset"].unique()))
    for comparison in contents.comparisons:
        names.extend(entry["dataset"] for entry in comparison.record["datasets"])
    return list(dict.fromkeys(names))


def _lead(contents: Contents) -> str:
    parts = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in (
            (len(contents.runs), "run"),
            (len(contents.evaluations), "evaluation"),
            (len(contents.comparisons), "comparison"),
        )
        if count
    ]
    return f"{' and '.join(parts)} on {', '.join(_datasets(contents))}."


def _parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sorted(params.items()) if name != "n_features_to_select")


def _details(contents: Contents, drawn: Sequence[LabelledRun], styles: Styles) -> list[Block]:
    """What was evaluated and run, how the loops went, and last all parameters."""
    blocks = []
    if contents.evaluations:
        rows = [_evaluation_row(group) for group in _by_settings(contents.evaluations)]
        columns = [
            "data set", "rows", "features", "labels", "runs", "classifiers", "splits", "numbers of features",
            "protocol",
        ]  # fmt: skip
        warnings = [warning for evaluation in contents.evaluations for warning in evaluation.record.get("warnings", ())]
        blocks.append(
            Block(tables=[Table("Evaluations", columns, rows)], notes=list(dict.fromkeys(map(str, warnings))))
        )
    for comparison in contents.comparisons:
        rows = [
            [text_cell(entry["dataset"]), *(count_cell(entry.get(size)) for size in ("n", "d", "q"))]
            for entry in comparison.record["datasets"]
        ]
        blocks.append(Block(tables=[Table("Data sets compared", ["data set", "rows", "features", "labels"], rows)]))
    if not contents.runs:
        return blocks
    rows = []
    for labelled in contents.runs:
        record = labelled.run.record
        changed = changed_params(str(record["method"]), record["params"])
        rows.append(
            [
                text_cell(labelled.label),
                text_cell(labelled.folder),
                text_cell(labelled.dataset),
                *(count_cell(record[size]) for size in ("n", "d", "q", "k")),
                count_cell(record.get("seed")),
                text_cell(_parameters(changed)),
            ]
        )
    columns = ["run", "folder", "data set", "rows", "features", "labels", "kept", "seed", "parameters changed"]
    blocks.append(Block(tables=[Table("Runs", columns, rows), _planned(contents.runs)]))
    blocks += [_judged_by_auto(labelled) for labelled in drawn if "judged" in labelled.run.record.get("extra", {})]
    convergence = []
    for labelled in drawn:
        objective = [value for value in labelled.run.record["objective"] if value is not None]
        if len(objective) > 1:
            name, style = anchor("convergence", labelled.label), styles.of(labelled.name)
            convergence.append(draw.convergence(labelled.label, objective, style, name=name))
    if convergence:
        texts = ["The objectives of different methods are not comparable."]
        blocks.append(Block("Convergence", texts=texts, figures=convergence))
    # All parameters stand once for all runs that have them.
    distinct = dict.fromkeys(
        (str(labelled.run.record["method"]), _parameters(labelled.run.record["params"])) for labelled in contents.runs
    )
    parameters = [[text_cell(method), text_cell(params)] for method, params in distinct]
    blocks.append(Block(tables=[Table("Parameters", ["method", "parameters"], parameters)]))
    return blocks


def _judged_by_auto(labelled: LabelledRun) -> Block:
    """What `auto` compared, with its errors: how sure its choice is."""
    extra = labelled.run.record["extra"]
    tied = extra.get("tied") or [extra["chosen"]]  # of version 0.1.0 there is the best alone
    taken = f"the ranking of {tied[0]}: no other is within one standard error of it"
    if len(tied) > 1:
        taken = f"the mean rank of {', '.join(tied)}, which are within one standard error of the best"
    rows = [
        [
            text_cell(each["method"]), number_cell(each["average_precision"], ".4f"),
            number_cell(each["below_best"], ".4f"), number_cell(each["standard_error"], ".4f"),
            text_cell("taken" if each["method"] in tied else None),
        ]
        for each in sorted(extra["judged"], key=lambda each: float(each["below_best"]))
    ]  # fmt: skip
    columns = ["method", "average precision", "below the best", "± standard error of that", ""]
    return Block(
        texts=[f"{labelled.label} takes {taken}."], tables=[Table(f"What {labelled.label} compared", columns, rows)]
    )


def _planned(runs: Sequence[LabelledRun]) -> Table:
    rows = []
    for labelled in runs:
        record = labelled.run.record
        plan = record["plan"]
        rows.append(
            [
                text_cell(labelled.label),
                count_cell(plan.get("passes")),
                count_cell(record["passes"]),
                bytes_cell(plan.get("bytes_read")),
                read_cell(record["bytes_read"], record["passes"]),
                bytes_cell(plan.get("peak_worker_bytes")),
                bytes_cell(record["peak_worker_bytes"]),
                bytes_cell(plan.get("peak_driver_bytes")),
                bytes_cell(record["peak_driver_bytes"]),
            ]
        )
    columns = [
        "run", "passes, at most", "measured", "read, at most", "measured", "worker's peak, planned", "measured",
        "driver's peak, planned", "measured",
    ]  # fmt: skip
    return Table("Planned and measured", columns, rows)


def _by_settings(evaluations: Sequence[Evaluation]) -> list[list[Evaluation]]:
    """Evaluations that differ in their runs alone."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        record = evaluation.record
        what = [list(map(str, evaluation.results["dataset"].unique())), record["store"].get("digest")]
        what += [record.get(name) for name in ("settings", "protocol", "splits", "simulation", "k_grid", "classifiers")]
        groups.setdefault(json.dumps(what, sort_keys=True), []).append(evaluation)
    return list(groups.values())


def _evaluation_row(group: Sequence[Evaluation]) -> list[Cell]:
    evaluation = group[0]
    record = evaluation.record
    ks = [int(point["k"]) for point in record["k_grid"]]
    splits = record["splits"]
    simulation = record.get("simulation")
    protocol = str(record.get("protocol") or "none")
    if simulation:
        protocol += ", labels simulated: " + ", ".join(
            f"{name} {value}" for name, value in simulation.items() if value is not None
        )
    return [
        text_cell(", ".join(map(str, evaluation.results["dataset"].unique()))),
        *(count_cell(record["store"].get(size)) for size in ("n", "d", "q")),
        text_cell(", ".join(run["run"] for each in group for run in each.record["runs"])),
        text_cell(", ".join(record["classifiers"])),
        text_cell(f"{splits_in_words(splits)}, seed {splits['seed']}"),
        text_cell(", ".join(map(str, ks)) if len(ks) <= 6 else f"{len(ks)} from {min(ks)} to {max(ks)}"),
        text_cell(protocol),
    ]


def _cost(runs: Sequence[LabelledRun], compared: Sequence[Comparison]) -> Section:
    section = Section("cost", "Cost")
    for comparison in compared:
        if not len(comparison.times):
            continue
        rows = [
            [
                text_cell(row.dataset), text_cell(row.run), count_cell(row.fits), seconds_cell(row.seconds_mean),
                seconds_cell(row.seconds_std), number_cell(row.passes_mean),
                read_cell(row.bytes_read_mean, row.passes_mean), bytes_cell(row.peak_worker_bytes),
                bytes_cell(row.peak_driver_bytes),
            ]
            for row in comparison.times.itertuples()
        ]  # fmt: skip
        columns = [
            "data set", "run", "rankings", "seconds", "± std", "passes", "read", "worker's peak", "driver's peak",
        ]  # fmt: skip
        section.blocks.append(
            Block(
                texts=["Of learning one ranking on a training part: means, and the largest peaks."],
                tables=[Table("Rankings of the evaluation", columns, rows)],
            )
        )
    if runs:
        rows = []
        for labelled in runs:
            record = labelled.run.record
            loop = "none"
            if (state := loop_state(record)) is not None:
                loop = f"{state} after {record['iterations']:,} iterations"
            rows.append(
                [
                    text_cell(labelled.label), seconds_cell(record["wall_seconds"]), count_cell(record["passes"]),
                    read_cell(record["bytes_read"], record["passes"]), bytes_cell(record["peak_worker_bytes"]),
                    bytes_cell(record["peak_driver_bytes"]), text_cell(loop),
                ]
            )  # fmt: skip
        columns = ["run", "seconds", "passes", "read", "worker's peak", "driver's peak", "loop"]
        section.blocks.append(
            Block(
                texts=["Of the finished runs, on all rows; what was planned stands in the details."],
                tables=[Table("Finished runs", columns, rows)],
            )
        )
    return section


def _judged(
    comparison: Comparison, styles: Styles, metrics: Sequence[str], suffix: str, notes: list[str]
) -> list[Section]:
    """Sections on how good the chosen features are: tables with tests, curves, stability."""
    lead = leading_case(comparison, metrics)
    # What the page goes by is first and open.
    shown = [lead, *(case for case in cases(comparison) if case != lead and (not metrics or case[0] in metrics))]
    # Several comparisons may have a metric of the same data set; names are unique on a page.
    drawn = {
        stem: [replace(figure, name=figure.name + suffix) for figure in panels]
        for stem, panels in figures_of(comparison, styles)
    }
    datasets = ", ".join(dict.fromkeys(entry["dataset"] for entry in comparison.record["datasets"]))
    of = f" ({suffix[1:]}: {datasets})" if suffix else ""
    one = comparison.means["dataset"].nunique() == 1
    record = comparison.record
    k = f"at {record['k']} features" if record["k"] is not None else "averaged over the numbers of features"
    text = (
        f"Mean ± standard deviation over the folds, {k}. Bold is the best selection of a row; a bullet marks what a "
        f"paired t-test does not tell from it (α = {record['alpha']:g})."
    )
    tables = Section(f"quality{suffix}", f"Quality{of}", [Block(texts=[text], notes=comparison.notes)])
    if one:
        tables.blocks.append(Block(tables=[metrics_table(comparison, shown)]))
    for number, (metric, classifier) in enumerate(() if one else shown):
        stem = f"{metric}.{classifier}"
        figures = [figure for kind in ("nemenyi", "bonferroni-dunn") for figure in drawn.get(f"{kind}.{stem}", [])]
        test = next(each for each in comparison.tests if (each["metric"], each["classifier"]) == (metric, classifier))
        tables.blocks.append(
            Block(
                title_of(comparison, metric, classifier),
                texts=_test_texts(test),
                tables=[comparison_table(comparison, metric, classifier)],
                figures=figures,
                folded=number > 0,
            )
        )
    curves = Section(f"curves{suffix}", f"Quality by number of features{of}")
    panels = {case: drawn.get(f"curves.{case[0]}.{case[1]}", []) for case in shown}
    kept = _cases_within(panels, MAX_CURVES if not metrics else math.inf)
    if one:
        figures = [figure for case in kept for figure in panels[case]]
        if figures:
            curves.blocks.append(Block(figures=figures[:MAX_OPEN]))
        if len(figures) > MAX_OPEN:
            curves.blocks.append(Block("Other metrics", figures=figures[MAX_OPEN:], folded=True))
    else:
        curves.blocks.extend(
            Block(title_of(comparison, *case), figures=panels[case], folded=number > 0)
            for number, case in enumerate(kept)
        )
    left = [title_of(comparison, *case) for case in shown if panels[case] and case not in kept]
    if left:
        note = f"Not drawn here: {', '.join(left)}; name metrics to see them."
        curves.blocks.append(Block(texts=[note]))
        notes.append(note)
    steady = Section(f"stability{suffix}", f"Stability of the chosen sets{of}")
    if "stability" in drawn:
        steady.blocks.append(
            Block(
                texts=[
                    "Agreement of the sets that were chosen in different folds, mean over all pairs. Kuncheva's index "
                    "is corrected for chance: 0 is what random sets have."
                ],
                figures=drawn["stability"],
                tables=[_stability_table(comparison)],
            )
        )
    return [tables, curves, steady]


def _cases_within(panels: Mapping[tuple[str, str], Sequence[Figure]], maximum: float) -> list[tuple[str, str]]:
    """The first cases whose panels are at most `maximum` together, and one at least."""
    total = 0
    cases: list[tuple[str, str]] = []
    for case, of in panels.items():
        total += len(of)
        if cases and total > maximum:
            break
        if of:
            cases.append(case)
    return cases


def _test_texts(test: Mapping[str, Any]) -> list[str]:
    friedman = test["friedman"]
    if friedman is None:
        return []
    F = "is infinite (all data sets rank the runs alike)" if math.isinf(friedman["f"]) else f"= {friedman['f']:.2f}"
    text = (
        f"Friedman over {friedman['n_datasets']} data sets and {friedman['n_methods']} runs: "
        f"χ² = {friedman['chi2']:.2f} (p = {friedman['chi2_p_value']:.3g}), "
        f"F {F} (p = {friedman['f_p_value']:.3g}). Critical difference of average ranks: "
        f"{test['nemenyi_difference']:.3f} by Nemenyi, {test['bonferroni_dunn_difference']:.3f} by Bonferroni–Dunn."
    )
    if test["wilcoxon_p_value"] is not None:
        text += f" Wilcoxon signed-rank: p = {test['wilcoxon_p_value']:.3g}."
    if test["left_out"]:
        text += f" Left out: {', '.join(test['left_out'])}."
    return [text]


def _stability_table(comparison: Comparison) -> Table:
    """Means over the numbers of features; the figures' CSV has each."""
    groups = comparison.stability.dropna(subset="kuncheva").groupby(["dataset", "run"], sort=False)
    rows = [
        [
            text_cell(row.dataset),
            text_cell(row.run),
            count_cell(row.sets),
            number_cell(row.kuncheva, ".3f"),
            number_cell(row.jaccard, ".3f"),
        ]
        for row in groups.agg(kuncheva=("kuncheva", "mean"), jaccard=("jaccard", "mean"), sets=("n_sets", "max"))
        .reset_index()
        .itertuples()
    ]
    title = "Stability, mean over the numbers of features"
    return Table(title, ["data set", "run", "sets", "Kuncheva", "Jaccard"], rows)


def _rankings(
    runs: Sequence[LabelledRun], styles: Styles, image_shape: tuple[int, int] | None, shown: Collection[str]
) -> Section:
    """What each run chose; without the figures of the names `shown`, which the page has already."""
    section = Section("rankings", "Features")
    by_dataset: dict[str, list[LabelledRun]] = {}
    for labelled in runs:
        by_dataset.setdefault(labelled.dataset, []).append(labelled)
    if len(by_dataset) > 1:  # of one data set it stands in the summary
        figures = [chosen_features(group, styles) for group in by_dataset.values() if len(group) > 1]
        if figures:
            section.blocks.append(Block("Who chooses what", figures=figures))
    for number, labelled in enumerate(runs):
        run, style = labelled.run, styles.of(labelled.name)
        name = anchor("ranking", labelled.label)
        scales = run.record.get("extra", {}).get("score_scales", ())
        figures = [
            draw.score_curve(labelled.label, run.scores, run.k, style, scales=scales, name=f"{name}-scores"),
            *rank_intervals(labelled, styles),
            best_features(labelled, styles),
            *clusters(labelled, styles),
        ]
        if image_shape is not None:
            figures.append(
                draw.image_map(labelled.label, run.ranking, run.scores, run.k, image_shape, name=f"{name}-map")
            )
        figures = [figure for figure in figures if figure.name not in shown]
        texts, tables = _replicates(labelled) if run.replicates else ([], [])
        block = Block(labelled.label, texts=texts, tables=tables, figures=figures, folded=number >= MAX_OPEN)
        section.blocks.append(block)
    return section


def _replicates(labelled: LabelledRun) -> tuple[list[str], list[Table]]:
    """What shuffled and resampled rows say of the chosen features, of as many as a page shows."""
    run = labelled.run
    known = {
        "q_value": ("q-value", ".2g"),
        "rank_low": ("rank from", ".0f"),
        "rank_high": ("rank to", ".0f"),
        "selection_frequency": ("times chosen", ".0%"),
    }
    texts = []
    if "q_value" in run.replicates:
        fdr, tested = run.record["params"]["fdr"], run.record["params"].get("control") is not None
        what = "goes with any label" if tested else "beats shuffled labels"
        texts.append(
            f"q-value: the least false discovery rate at which a feature {what}. As many features are "
            f"chosen as have at most {fdr:g}."
        )
    if "selection_frequency" in run.replicates:
        texts.append(
            "Rank from, to: nine of ten resamples of the rows rank the feature between them. Times chosen: the share "
            f"of the resamples in which it is among the best {run.k:,}."
        )
    shown = {name: known[name] for name in run.replicates}
    count = min(run.k, MAX_ROWS)
    rows = [
        [
            text_cell(run.feature_names[i]),
            count_cell(i + 1),
            number_cell(run.scores[i]),
            *(number_cell(run.replicates[name][i], form) for name, (_, form) in shown.items()),
        ]
        for i in range(count)
    ]
    title = f"{labelled.label}: the {'chosen' if count == run.k else f'first {count} chosen'} features"
    return texts, [Table(title, ["feature", "rank", "score", *(column for column, _ in shown.values())], rows)]


def _labels(runs: Sequence[LabelledRun], drawn: Sequence[LabelledRun], notes: list[str]) -> Section:
    """What features have to do with labels; a sentence where the store cannot tell."""
    section = Section("labels", "Features and labels")
    rows, heat, missing = [], [], []
    groups: dict[str, list[LabelledRun]] = {}
    shown = {labelled.label for labelled in drawn}
    for labelled in runs:
        groups.setdefault(str(labelled.store.get("digest")), []).append(labelled)
    for group in groups.values():
        try:
            dataset = _reachable(group[0])
            space = _described(dataset, group)
        except MlfsError as error:
            reason = str(error).splitlines()[0]
            missing.append(f"{', '.join(each.label for each in group)}: {reason}")
            continue
        for labelled, one_set in zip(group, space.sets, strict=True):
            rows.append(
                [
                    text_cell(labelled.label), text_cell(labelled.dataset), count_cell(labelled.run.k),
                    number_cell(one_set.redundancy), number_cell(one_set.residual_correlation),
                ]
            )  # fmt: skip
            if labelled.label not in shown:
                continue
            best = labelled.run.ranking[: draw.MAX_NAMES]
            strongest = np.abs(space.correlations[:, best]).max(axis=1)
            labels = np.sort(np.argsort(-strongest, kind="stable")[:MAX_LABELS])
            heat.append(
                draw.label_map(
                    labelled.label,
                    labelled.run.feature_names[: len(best)],
                    [str(name) for name in dataset.label_names[labels]],
                    space.correlations[np.ix_(labels, best)],
                    name=anchor("labels", labelled.label),
                )
            )
    if rows:
        columns = ["run", "data set", "features", "redundancy R", "residual C"]
        section.blocks.append(
            Block(
                texts=[
                    "Redundancy R of the chosen set and residual label correlation C, the label correlation that the "
                    "set does not hold (Wang et al. 2020, Eqs. 16 and 17); lower is better."
                ],
                tables=[Table("Redundancy and residual", columns, rows)],
            )
        )
        texts = ["Pearson correlation of the best features with labels, from one reading of the store."]
        if any(labelled.run.record["q"] > MAX_LABELS for labelled in runs):
            texts.append(f"Of many labels, the {MAX_LABELS} that correlate most are shown.")
        section.blocks.append(Block("Correlations", texts=texts, figures=heat))
    if missing:
        texts = ["What needs the rows is left out where they cannot be read:"]
        section.blocks.append(Block(texts=texts, notes=missing))
        notes.extend(missing)
    return section


def _reachable(labelled: LabelledRun) -> Any:
    """The store of a run, or the part of it, if it is where it was and what it was."""
    from mlfs_dask.storage.opening import reopen

    if not labelled.store:
        raise DataError("X and Y came from memory, not from a store.")
    dataset = reopen(labelled.store)
    if dataset.label_counts[0].any():
        raise DataError("some labels are unknown, and correlations with them are not defined.")
    n_missing = dataset.rows.features.n_missing
    if n_missing is None and dataset.rows.profile.foreign:
        raise DataError(
            "it is a file that was not converted: whether values are missing is not known without reading it."
        )
    if np.any(n_missing):
        raise DataError("some feature values are missing, and correlations with them are not defined.")
    return dataset


def _described(dataset: Any, group: Sequence[LabelledRun]) -> Any:
    from mlfs_dask import runtime
    from mlfs_dask.errors import DoesNotFitError
    from mlfs_dask.reporting.diagnostics import describe

    profile = dataset.rows.profile
    q, d = profile.q, profile.d
    # Sums, standardised products, correlations and squares: four arrays of doubles.
    needed, free = 4 * 8 * q * d, runtime.current_resources().driver_limit
    if needed > free:
        raise DoesNotFitError(
            "correlations of all features with all labels", projected=needed, available=free, cure="report without data"
        )
    return describe(dataset, selections=[labelled.run.ranking[: labelled.run.k] for labelled in group])


# How it is written


def render(sections: Sequence[Section], *, title: str, lead: str) -> str:
    """The page as text.

    Parameters
    ----------
    sections : sequence of Section
    title, lead : str
        Heading, and the sentence beneath it.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"anchor": anchor, "csv": _csv_link, "svg": _described_svg}
    return environment.from_string(_asset("page.html")).render(
        title=title,
        lead=lead,
        version=__version__,
        sections=sections,
        css=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        max_rows=MAX_ROWS,
        many_columns=MANY_COLUMNS,
        broad=BROAD,
    )


def _asset(name: str) -> str:
    return resources.files("mlfs_dask.reporting").joinpath(name).read_text(encoding="utf-8")


def _csv_link(frame: pd.DataFrame) -> str:
    """Address of a data frame as CSV, within the page."""
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(csv_text(frame).encode()).decode("ascii")


def _described_svg(figure: Figure) -> Markup:
    """A figure as an SVG element, with its description for those who do not see it."""
    from markupsafe import Markup

    tag, rest = inline_svg(figure).split(">", 1)
    described = Markup('<title id="{0}-title">{1}. {2}</title>').format(figure.name, figure.title, figure.alt)
    return Markup(tag + ">") + described + Markup(rest)
