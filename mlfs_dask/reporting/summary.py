"""Summary at the top of a page: the best method, its lead, its cost and its selected features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlfs_dask.errors import number_of
from mlfs_dask.evaluation.comparison import Comparison
from mlfs_dask.evaluation.results import ALL
from mlfs_dask.reporting.comparison_folder import anchor
from mlfs_dask.reporting.contents import LabelledRun
from mlfs_dask.reporting.features import chosen_features, rank_intervals
from mlfs_dask.reporting.figures import RANDOM, Figure, Marks, Styles, rows_plot
from mlfs_dask.reporting.tables import MAX_NAMED, Block, Case, cases, cell, first_of, listed, methods_of, read_cell
from mlfs_dask.selectors.scores import OFTEN

if TYPE_CHECKING:
    import pandas as pd

LEADING_METRIC = "average_precision"
"""The metric that a page goes by where none is asked for: most of the papers report it."""
MAX_RUNS = 8
"""Runs whose features are named, on a page without evaluations."""


def leading_case(comparison: Comparison, metrics: Sequence[str]) -> Case:
    """Return metric and classifier that stand for all: the first metric asked for, else `LEADING_METRIC`, else the
    first.
    """
    known = cases(comparison)
    for metric in (*metrics[:1], LEADING_METRIC):
        for case in known:
            if case.metric == metric:
                return case
    return known[0]


def summary(
    runs: Sequence[LabelledRun], compared: Sequence[Comparison], metrics: Sequence[str], styles: Styles
) -> list[Block]:
    """Return the blocks that a page begins with: one a comparison, or one of the runs where nothing was evaluated."""
    if compared:
        return [
            _verdict(leading_case(comparison, metrics), runs, styles, f"-{number}")
            for number, comparison in enumerate(compared, start=1)
        ]
    return [_runs_alone(runs, styles)] if runs else []


def _runs_alone(runs: Sequence[LabelledRun], styles: Styles) -> Block:
    lines = [f"{_features(labelled)} {_cost_of(labelled)}" for labelled in runs[:MAX_RUNS]]
    if len(runs) > MAX_RUNS:
        lines.append(f"The features of {len(runs) - MAX_RUNS} more runs are below.")
    unknown = "How good these features are is not known here; the command mlfs evaluate tells."
    if len({labelled.dataset for labelled in runs}) > 1:
        return Block(texts=[unknown], notes=lines)
    figures = [chosen_features(runs, styles)]
    if len(runs) == 1:
        return Block(texts=[*lines, unknown], figures=[*rank_intervals(runs[0], styles), *figures])
    shared = set.intersection(*(set(labelled.run.feature_names[: labelled.run.k]) for labelled in runs))
    names = [name for name in runs[0].run.feature_names if name in shared]
    agreed = f"{len(runs)} runs on {runs[0].dataset} agree on these features: {first_of(names) or 'none'}."
    return Block(texts=[agreed, unknown], notes=lines, figures=figures)


def _verdict(case: Case, runs: Sequence[LabelledRun], styles: Styles, suffix: str) -> Block:
    comparison = case.comparison
    means = case.rows("means").dropna(subset="mean")
    datasets = list(dict.fromkeys(means["dataset"]))
    methods = methods_of(comparison)
    order = _order(case)
    selected = [run for run in order if methods[run] not in (ALL, RANDOM) and run in set(means["run"])]
    if not selected:
        return Block(texts=["No method was evaluated here that selects features."])
    best = selected[0]
    texts = [_standing(case, order, selected), _elsewhere(case, selected)]
    texts.append(_seconds(comparison, selected))
    finished = [labelled for labelled in runs if labelled.name == best and labelled.dataset in datasets]
    if finished and len(datasets) == 1:
        texts.append(_cost_of(finished[0]))
    figures = [_quality(case, order, styles, anchor("quality", case.metric, case.classifier) + suffix)]
    if len(comparison.times) > 1:
        figures.append(_times(comparison, order, styles, f"seconds{suffix}"))
    if finished and len(datasets) == 1:
        others = [labelled for labelled in runs if labelled.name != best and labelled.dataset == datasets[0]]
        figures += [*rank_intervals(finished[0], styles), chosen_features([finished[0], *others], styles)]
    notes = [_features(labelled) for labelled in finished]
    if not notes:
        texts.append(f"Which features it chooses: run mlfs select {methods[best]}, and name its folder here too.")
    return Block(texts=[text for text in texts if text], notes=notes, figures=figures)


def _order(case: Case) -> list[str]:
    """Return runs by average rank, of the same rank by their means; then those without a rank."""
    ranks = case.rows("ranks").set_index("run")["average_rank"]
    means = case.rows("means").groupby("run")["mean"].mean()
    sign = case.sign
    ranked = sorted(ranks.index, key=lambda run: (ranks[run], -sign * means[run]))
    return [*ranked, *(run for run in methods_of(case.comparison) if run not in ranked)]


def _standing(case: Case, order: Sequence[str], selected: Sequence[str]) -> str:
    """Name the best method and its lead."""
    means = case.rows("means")
    left_out: list[str] = []
    if means["rank"].notna().any():  # the order is that of the data sets that have all methods
        has_ranks = means.groupby("dataset", sort=False)["rank"].any()
        left_out = list(has_ranks.index[~has_ranks])
        means = means[~means["dataset"].isin(left_out)]
    table = means.pivot(index="dataset", columns="run", values="mean")
    datasets = list(table.index)
    best, title = selected[0], case.title
    sign = case.sign
    methods = methods_of(case.comparison)
    values = sign * table.mean()
    best_selected = values[values.index.isin(selected)].max()
    text = ""
    if any(round(values[run] - best_selected, 3) > 0 for run in table if methods[run] == RANDOM):
        text = "Random features are better than every method here. "
    text += f"{best} is the best of {len(selected)} methods" if len(selected) > 1 else f"{best} is the one method"
    if len(datasets) == 1:
        row = means[means["run"] == best].iloc[0]
        spread = "" if np.isnan(row["std"]) else f" ± {row['std']:.3f}"
        text += f" on {datasets[0]}: {title} {row['mean']:.3f}{spread}, mean over {_averaged(case, row)}."
    else:
        text += f" on {len(datasets)} data sets ({listed(datasets)}) by {title}{_friedman(case)}."
        ranks = case.rows("ranks").set_index("run")["average_rank"]
        if len(ranks):
            text += f" Average ranks: {listed([f'{run} {ranks[run]:.2f}' for run in order if run in ranks])}."
    rivals = [*selected[1:2], *(run for run in order if methods[run] in (RANDOM, ALL))]
    compared = []
    tested = False
    for run in rivals:
        if run not in table:
            continue
        name = {RANDOM: "random features", ALL: "all features"}.get(methods[run], run)
        margin = sign * (table[best] - table[run]).mean()
        words = f"{abs(margin):.3f} {'better' if margin > 0 else 'worse'} than {name}"
        if words.startswith("0.000"):
            words = f"as good as {name}"
        elif len(datasets) == 1:
            pair = means.set_index("run").loc[[best, run]]
            if pair["best"].any() and pair["tied"].any():
                words += " (not significant)"
                tested = True
        compared.append(words)
    if compared:
        text += f" It is {'on average ' if len(datasets) > 1 else ''}{listed(compared)}."
    if left_out:
        text += f" Not every method was evaluated on {listed(left_out)}, left out here."
    if tested:
        text += f" Significance is that of paired t-tests over the folds, α = {case.comparison.record['alpha']:g}."
    return text


def _friedman(case: Case) -> str:
    """Return the verdict of Friedman's test on the ranks, as the end of a sentence."""
    test = case.test
    if test["friedman"] is None:
        return ""
    p_value = test["friedman"]["f_p_value"]
    if p_value < test["alpha"]:
        return f", and the methods do differ (Friedman's test, p = {p_value:.3g})"
    return f", but that may be chance (Friedman's test, p = {p_value:.3g})"


def _averaged(case: Case, row: pd.Series) -> str:
    """Return a description of the values that a mean is taken over."""
    curves = case.rows("curves")
    ks = sorted(set(curves.loc[(curves["run"] == row["run"]) & (curves["dataset"] == row["dataset"]), "k"]))
    of_k = f"k = {listed(list(map(str, ks)))}"
    if len(ks) > 6:
        of_k = f"{len(ks)} numbers of features from {ks[0]} to {ks[-1]}"
    return f"{row['n_folds']} folds and {of_k}"


def _elsewhere(case: Case, selected: Sequence[str]) -> str:
    """Return a sentence on the other metrics in which the best method is also the best."""
    others = [other for other in cases(case.comparison) if other != case]
    if not others or len(selected) < 2:
        return ""
    firsts = sum(next(run for run in _order(other) if run in selected) == selected[0] for other in others)
    if not firsts:
        return ""
    metrics = "metrics" if len(case.comparison.record["classifiers"]) == 1 else "pairs of metric and classifier"
    return f"It is also the best method by {firsts} of the {len(others)} other {metrics}."


def _seconds(comparison: Comparison, selected: Sequence[str]) -> str:
    """Compare seconds over the data sets on which every method was timed."""
    seconds = comparison.times.pivot(index="dataset", columns="run", values="seconds_mean").dropna().mean().dropna()
    timed = [run for run in selected if run in seconds]
    if not timed:
        return ""
    words = [f"{cell(seconds[run], 'seconds').text} s with {run}" for run in timed[:MAX_NAMED]]
    others = seconds[timed[MAX_NAMED:]]
    rest = ""
    if len(others):
        bounds = dict.fromkeys(cell(value, "seconds").text for value in (others.min(), others.max()))
        rest = f"; with {number_of(len(others), 'other')} it took {' to '.join(bounds)} s"
    return f"Learning one ranking took {listed(words)}{rest}."


def _cost_of(labelled: LabelledRun) -> str:
    record = labelled.run.record
    text = f"Its run on all {record['n']:,} rows took {cell(record['wall_seconds'], 'seconds').text} s"
    if not record["passes"]:
        return f"{text} and read no row: what it needs of them was in the cache."
    readings = number_of(record["passes"], "pass", "passes")
    process, held = "a worker", record["peak_worker_bytes"]
    if not held:
        process, held = "no worker had a part, and the driver", record["peak_driver_bytes"]
    read = read_cell(record["bytes_read"], record["passes"]).text
    return f"{text} and {readings} ({read}); {process} held {cell(held, 'bytes').text}."


def _features(labelled: LabelledRun) -> str:
    run = labelled.run
    text = f"{labelled.label} keeps {run.k:,} of {len(run.ranking):,} features: {first_of(run.feature_names[: run.k])}."
    params, replicates = run.record["params"], run.replicates
    if "q_value" in replicates:
        found = "beat shuffled labels" if params.get("control") is None else "are found for any label"
        text += f" As many {found} at a false discovery rate of {params['fdr']:g}."
    if "selection_frequency" in replicates:
        often = int(np.count_nonzero(replicates["selection_frequency"][: run.k] >= OFTEN))
        share = f"{OFTEN:.0%} of {params['resamples']} resamples of the rows"
        text += f" {often:,} of them are among the best {run.k:,} in at least {share}."
        found = run.record["extra"].get("stability", {})
        if "falsely_chosen" in found:
            text += f" By chance these would be {found['falsely_chosen']:.2g} at most, on average."
        if "agreement" in found:
            low, high = (found["agreement"] + side * 1.96 * found["standard_error"] for side in (-1, 1))
            text += f" The choice has a stability of {found['agreement']:.2f} ({low:.2f} to {min(high, 1.0):.2f}), "
            text += "where 1 is the same choice in every half of the rows, and 0 is chance."
    return text


def _quality(case: Case, order: Sequence[str], styles: Styles, name: str) -> Figure:
    """Return the metric of each run; of several data sets, how far each run lies behind the best."""
    means = case.rows("means").dropna(subset="mean")
    title = label = case.title
    data, what = means.assign(value=means["mean"]), f"{title} on {means['dataset'].iloc[0]}, best first"
    if means["dataset"].nunique() > 1:
        best = means[means["best"]].groupby("dataset")["mean"].first()
        data["value"] = case.sign * (data["dataset"].map(best) - data["mean"])
        label = f"{title}: behind the best (0)"
        what = f"{title}, how far each run lies behind the best selection of a data set, in the order of average ranks"
    return _values_by_run(data, order, title, label, what, "the folds", styles, name=name)


def _times(comparison: Comparison, order: Sequence[str], styles: Styles, name: str) -> Figure:
    data = comparison.times.rename(columns={"seconds_mean": "value", "seconds_std": "std"})
    label = "seconds for one ranking"
    what = "Seconds to learn one ranking from a training part"
    return _values_by_run(
        data, order, label.capitalize(), label, what, "the training parts", styles, form=".3g", name=name
    )


def _values_by_run(
    data: pd.DataFrame,
    order: Sequence[str],
    title: str,
    label: str,
    what: str,
    over: str,
    styles: Styles,
    *,
    form: str = ".3f",
    name: str,
) -> Figure:
    """Return a mean of every run: of one data set with ± std, of several with a small dot for each."""
    data = data[["run", "dataset", "value", "std"]]
    runs = [run for run in order if run in set(data["run"])]
    one = data["dataset"].nunique() == 1
    marks, means = [], {}
    for row, run in enumerate(runs):
        of, style = data[data["run"] == run], styles.of(run)
        means[run] = float(of["value"].mean())
        spread = of["std"].fillna(0).iloc[0]
        bars = ([means[run] - spread], [means[run] + spread]) if one else None
        if not one:
            faint = {"alpha": 0.45, "markersize": 4}
            marks.append(Marks(of["value"].to_numpy(), [row] * len(of), replace(style, marker="o"), look=faint))
        marks.append(Marks([means[run]], [row], style, bars=bars, look={"markersize": 7}))
    low, high = data["value"].min(), data["value"].max()
    beside = [format(mean, form) for mean in means.values()]
    drawn = (
        f"mean ± standard deviation over {over}" if one else "a small dot for each data set, a large one for the mean"
    )
    return Figure(
        name,
        title,
        f"{what}: {drawn}.",
        f"{label}: {', '.join(map(' '.join, zip(runs, beside, strict=True)))}.",
        data.set_index("run").loc[runs].reset_index(),
        *rows_plot(runs, marks, xlabel=label, beside=beside, logarithmic="x" if 0 < 20 * low < high else ""),
    )
