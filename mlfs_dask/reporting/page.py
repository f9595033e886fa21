"""One page about runs and evaluations: a single HTML file that needs no network, no other file and no script.

Everything comes from the folders named, but what features have to do with labels (correlations, redundancy R,
residual C): that is one pass over each store, where it can still be reached and has not changed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlfs_dask._version import __version__
from mlfs_dask.errors import UsageError, number_of, require_extra
from mlfs_dask.evaluation.comparison import Comparison
from mlfs_dask.evaluation.results import Evaluation, csv_text, splits_in_words
from mlfs_dask.files.object_store import is_url, local_path, require_writable
from mlfs_dask.files.publish import appearing, check_permission
from mlfs_dask.redaction import redact
from mlfs_dask.reporting.comparison_folder import anchor, figures_of
from mlfs_dask.reporting.contents import Contents, LabelledRun, changed_params, read_contents
from mlfs_dask.reporting.features import MAX_OPEN, MAX_ROWS, labels_section, pairs_section, rankings_section
from mlfs_dask.reporting.figures import Figure, Styles, inline_svg, lines_plot, write_figure
from mlfs_dask.reporting.summary import leading_case, summary
from mlfs_dask.reporting.tables import (
    Block,
    Case,
    Section,
    Table,
    cases,
    comparison_table,
    metrics_table,
    read_cell,
)
from mlfs_dask.selection.runs import loop_state

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

MAX_CURVES = 48
"""More curves are not drawn unless their metrics are named: nobody scrolls through them, and the page grows."""
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
        Metrics to show; all by default.
    image_shape : (int, int), optional
        Rows and columns of an image whose pixels, row by row, are the features; the page then has maps.
    figures : path, optional
        Folder for all figures as SVG: new, empty or, with `force`, with earlier figures.
    data : bool
        Make one pass over each store, for correlations of features with labels.
    force : bool
        Replace an earlier page.

    Returns
    -------
    dict
        page, bytes, runs, evaluations, datasets, figures, notes.

    Raises
    ------
    UsageError
        The output exists, or a metric or image shape is invalid.
    DataError
        A folder has another kind, or is damaged.
    """
    require_extra("matplotlib", "a report")
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
    """Return the place of a page; one that is taken is refused, before any work is done for it.

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
    """Return the sections of the page, and notes on what could not be shown.

    Returns
    -------
    list of Section, list of str
    """
    _require_shape(contents, image_shape)
    compared, notes = contents.compared()
    if metrics and not compared:
        raise UsageError(f"there is no evaluation with the metric {metrics[0]!r}.")
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
        sections.append(rankings_section(drawn, styles, image_shape, shown))
        if data:
            sections.append(labels_section(contents.runs, drawn, notes))
    details.blocks.extend(_details(contents, drawn, styles))
    sections.append(details)
    return [section for section in sections if section.blocks], notes


def _require_shape(contents: Contents, shape: tuple[int, int] | None) -> None:
    if shape is None:
        return
    if not contents.runs:
        raise UsageError("an image shape needs a RUN folder with the pixels as features.")
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
    kinds = {word: getattr(contents, f"{word}s") for word in ("run", "evaluation", "comparison")}
    parts = [number_of(len(each), word) for word, each in kinds.items() if each]
    return f"{' and '.join(parts)} on {', '.join(_datasets(contents))}."


def _parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sorted(params.items()) if name != "n_features_to_select")


def _details(contents: Contents, drawn: Sequence[LabelledRun], styles: Styles) -> list[Block]:
    """Return the details of evaluations and runs, the convergence of loops, and last all parameters."""
    blocks = []
    rows: list[Sequence[Any]]
    if contents.evaluations:
        rows = [_evaluation_row(group) for group in _by_settings(contents.evaluations)]
        columns = {
            "data set": "", **_SIZES, "runs": "", "classifiers": "", "splits": "", "numbers of features": "",
            "protocol": "",
        }  # fmt: skip
        warnings = [warning for evaluation in contents.evaluations for warning in evaluation.record.get("warnings", ())]
        notes = list(dict.fromkeys(map(str, warnings)))
        blocks.append(Block(tables=[Table("Evaluations", columns, rows)], notes=notes))
    for comparison in contents.comparisons:
        rows = [[each["dataset"], *map(each.get, "ndq")] for each in comparison.record["datasets"]]
        blocks.append(Block(tables=[Table("Data sets compared", {"data set": "", **_SIZES}, rows)]))
    if not contents.runs:
        return blocks
    ran, planned = [], []
    for labelled in contents.runs:
        record, plan = labelled.run.record, labelled.run.record["plan"]
        changed = _parameters(changed_params(str(record["method"]), record["params"]))
        sizes = [*(record[size] for size in "ndqk"), record.get("seed")]
        ran.append([labelled.label, labelled.folder, labelled.dataset, *sizes, changed])
        row = [labelled.label, plan.get("passes"), record["passes"], plan.get("bytes_read")]
        row.append(read_cell(record["bytes_read"], record["passes"]))
        for peak in _PEAKS:
            row += [plan.get(peak), record[peak]]
        planned.append(row)
    columns = {"run": "", "folder": "", "data set": "", **_SIZES, "kept": ",", "seed": ",", "parameters changed": ""}
    measured = {
        "run": "", "passes, at most": ",", "passes": ",", "read, at most": "bytes", "read": "bytes",
        "worker's peak, planned": "bytes", "worker's peak": "bytes", "driver's peak, planned": "bytes",
        "driver's peak": "bytes",
    }  # fmt: skip
    blocks.append(Block(tables=[Table("Runs", columns, ran), Table("Planned and measured", measured, planned)]))
    blocks += [_judged_by_auto(labelled) for labelled in drawn if "judged" in labelled.run.record.get("extra", {})]
    convergence = [figure for labelled in drawn if (figure := _convergence(labelled, styles)) is not None]
    if convergence:
        texts = ["The objectives of different methods are not comparable."]
        blocks.append(Block("Convergence", texts=texts, figures=convergence))
    # All parameters stand once for all runs that have them.
    records = [labelled.run.record for labelled in contents.runs]
    distinct = dict.fromkeys((str(record["method"]), _parameters(record["params"])) for record in records)
    blocks.append(Block(tables=[Table("Parameters", {"method": "", "parameters": ""}, list(distinct))]))
    return blocks


_PEAKS = ("peak_worker_bytes", "peak_driver_bytes")
_SIZES = {"rows": ",", "features": ",", "labels": ","}


def _convergence(labelled: LabelledRun, styles: Styles) -> Figure | None:
    """Return the objective of a method's loop after every iteration."""
    import pandas as pd

    values = [float(value) for value in labelled.run.record["objective"] if value is not None]
    if len(values) < 2:
        return None
    data = pd.DataFrame({"iteration": range(1, len(values) + 1), "objective": values})
    steep = 0 < 100 * min(values) < max(values)
    style = {"": replace(styles.of(labelled.name), dash="-")}
    return Figure(
        anchor("convergence", labelled.label),
        labelled.label,
        f"{labelled.label}: objective after each of {len(values)} iterations.",
        f"Line falling or rising from {values[0]:.4g} to {values[-1]:.4g} in {len(values)} iterations.",
        data,
        *lines_plot(
            data,
            "iteration",
            "objective",
            style,
            logarithmic="y" if steep else "",
            xlabel="iteration",
            ylabel="objective",
        ),
    )


def _judged_by_auto(labelled: LabelledRun) -> Block:
    """Tabulate the methods that `auto` compared, with the standard errors."""
    extra = labelled.run.record["extra"]
    tied = extra.get("tied") or [extra["chosen"]]  # of version 0.1.0 there is the best alone
    taken = f"the ranking of {tied[0]}: no other is within one standard error of it"
    if len(tied) > 1:
        taken = f"the mean rank of {', '.join(tied)}, which are within one standard error of the best"
    names = ("method", "learnt_rows", "judged_rows", "average_precision", "below_best", "standard_error")
    rows = [
        [*map(each.get, names), "taken" if each["method"] in tied else None]
        for each in sorted(extra["judged"], key=lambda each: (-each.get("judged_rows", 0), float(each["below_best"])))
    ]
    columns = {
        "method": "", "rows learnt from": ",", "rows judged": ",", "average precision": ".4f",
        "below the best": ".4f", "± standard error of that": ".4f", "": "",
    }  # fmt: skip
    table = Table(f"What {labelled.label} compared", columns, rows)
    return Block(texts=[f"{labelled.label} takes {taken}."], tables=[table])


def _by_settings(evaluations: Sequence[Evaluation]) -> list[list[Evaluation]]:
    """Return evaluations that differ in their runs alone."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        record = evaluation.record
        what = [list(map(str, evaluation.results["dataset"].unique())), record["store"].get("digest")]
        what += [record.get(name) for name in ("settings", "protocol", "splits", "simulation", "k_grid", "classifiers")]
        groups.setdefault(json.dumps(what, sort_keys=True), []).append(evaluation)
    return list(groups.values())


def _evaluation_row(group: Sequence[Evaluation]) -> list[Any]:
    evaluation = group[0]
    record = evaluation.record
    ks = [int(point["k"]) for point in record["k_grid"]]
    splits = record["splits"]
    protocol = str(record.get("protocol") or "none")
    if simulation := record.get("simulation"):
        told = (f"{name} {value}" for name, value in simulation.items() if value is not None)
        protocol += f", labels simulated: {', '.join(told)}"
    return [
        ", ".join(map(str, evaluation.results["dataset"].unique())),
        *map(record["store"].get, "ndq"),
        ", ".join(run["run"] for each in group for run in each.record["runs"]),
        ", ".join(record["classifiers"]),
        f"{splits_in_words(splits)}, seed {splits['seed']}",
        ", ".join(map(str, ks)) if len(ks) <= 6 else f"{len(ks)} from {min(ks)} to {max(ks)}",
        protocol,
    ]


def _cost(runs: Sequence[LabelledRun], compared: Sequence[Comparison]) -> Section:
    section = Section("cost", "Cost")
    peaks = {"worker's peak": "bytes", "driver's peak": "bytes"}
    for comparison in compared:
        if not len(comparison.times):
            continue
        rows = [
            [
                row.dataset, row.run, row.fits, row.seconds_mean, row.seconds_std, row.passes_mean,
                read_cell(row.bytes_read_mean, row.passes_mean), row.peak_worker_bytes, row.peak_driver_bytes,
            ]
            for row in comparison.times.itertuples()
        ]  # fmt: skip
        columns = {
            "data set": "", "run": "", "rankings": ",", "seconds": "seconds", "± std": "seconds", "passes": ".4g",
            "read": "bytes", **peaks,
        }  # fmt: skip
        texts = ["Of learning one ranking on a training part: means, and the largest peaks."]
        section.blocks.append(Block(texts=texts, tables=[Table("Rankings of the evaluation", columns, rows)]))
    rows = []
    for labelled in runs:
        record = labelled.run.record
        state = loop_state(record)
        loop = "none" if state is None else f"{state} after {record['iterations']:,} iterations"
        read, held = read_cell(record["bytes_read"], record["passes"]), map(record.get, _PEAKS)
        rows.append([labelled.label, record["wall_seconds"], record["passes"], read, *held, loop])
    if runs:
        columns = {"run": "", "seconds": "seconds", "passes": ",", "read": "bytes", **peaks, "loop": ""}
        texts = ["Of the finished runs, on all rows; what was planned stands in the details."]
        section.blocks.append(Block(texts=texts, tables=[Table("Finished runs", columns, rows)]))
    return section


def _judged(
    comparison: Comparison, styles: Styles, metrics: Sequence[str], suffix: str, notes: list[str]
) -> list[Section]:
    """Return sections on how good the chosen features are: tables with tests, curves, stability."""
    lead = leading_case(comparison, metrics)
    # What the page goes by is first and open.
    shown = [lead, *(case for case in cases(comparison) if case != lead and (not metrics or case.metric in metrics))]
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
        f"Mean ± standard deviation over the folds, {k}. Bold is the best selection of a row; a bullet marks a "
        f"run that a paired t-test does not distinguish from it (α = {record['alpha']:g})."
    )
    tables = Section(f"quality{suffix}", f"Quality{of}", [Block(texts=[text], notes=comparison.notes)])
    if one:
        tables.blocks.append(Block(tables=[metrics_table(comparison, shown)]))
    for number, case in enumerate(() if one else shown):
        figures = [figure for kind in ("nemenyi", "bonferroni-dunn") for figure in drawn.get(f"{kind}.{case.stem}", [])]
        texts, table = _test_texts(case.test), comparison_table(case)
        tables.blocks.append(Block(case.title, texts, tables=[table], figures=figures, folded=number > 0))
    curves = Section(f"curves{suffix}", f"Quality by number of features{of}")
    panels = {case: drawn.get(f"curves.{case.stem}", []) for case in shown}
    kept = _cases_within(panels, MAX_CURVES if not metrics else math.inf)
    if one:
        figures = [figure for case in kept for figure in panels[case]]
        if figures:
            curves.blocks.append(Block(figures=figures[:MAX_OPEN]))
        if len(figures) > MAX_OPEN:
            curves.blocks.append(Block("Other metrics", figures=figures[MAX_OPEN:], folded=True))
    else:
        curves.blocks.extend(
            Block(case.title, figures=panels[case], folded=number > 0) for number, case in enumerate(kept)
        )
    left = [case.title for case in shown if panels[case] and case not in kept]
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


def _cases_within(panels: Mapping[Case, Sequence[Figure]], maximum: float) -> list[Case]:
    """Return the first cases whose panels are at most `maximum` together, and one at least."""
    total = 0
    cases: list[Case] = []
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
    """Return means over the numbers of features; the figures' CSV has each."""
    groups = comparison.stability.dropna(subset="kuncheva").groupby(["dataset", "run"], sort=False)
    means = groups.agg(sets=("n_sets", "max"), kuncheva=("kuncheva", "mean"), jaccard=("jaccard", "mean"))
    columns = {"data set": "", "run": "", "sets": ",", "Kuncheva": ".3f", "Jaccard": ".3f"}
    rows = list(means.reset_index().itertuples(index=False, name=None))
    return Table("Stability, mean over the numbers of features", columns, rows)


# How it is written


def render(sections: Sequence[Section], *, title: str, lead: str) -> str:
    """Return the page as text.

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
    """Return the address of a data frame as CSV, within the page."""
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(csv_text(frame).encode()).decode("ascii")


def _described_svg(figure: Figure) -> Markup:
    """Return a figure as an SVG element, with its description for those who do not see it."""
    from markupsafe import Markup

    tag, rest = inline_svg(figure).split(">", 1)
    described = Markup('<title id="{0}-title">{1}. {2}</title>').format(figure.name, figure.title, figure.alt)
    return Markup(tag + ">") + described + Markup(rest)
