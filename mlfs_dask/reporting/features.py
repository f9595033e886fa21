"""Figures and tables of the selected features of runs: alone, with labels, and in pairs with labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DataError, DoesNotFitError, MlfsError
from mlfs_dask.reporting.comparison_folder import anchor
from mlfs_dask.reporting.contents import LabelledRun
from mlfs_dask.reporting.figures import DASHES, Figure, Marks, Styles, image_map, lines_plot, rows_plot, signed_map
from mlfs_dask.reporting.tables import Block, Section, Table, first_of
from mlfs_dask.selection.runs import Run, read_redundancy

if TYPE_CHECKING:
    import pandas as pd

MAX_NAMES, MAX_DRAWN, MAX_LABELS = 20, 12, 24
"""Features in the figures of a run and of a data set; labels in those of correlations."""
MAX_OPEN = 3
"""Curves of one data set, and rankings, that are unfolded when the page opens."""
MAX_ROWS = 40
"""Rows of a table that is not folded when the page opens."""
MAX_PAIRED, MAX_PAIRED_LABELS, MAX_PAIRS_OF_LABEL, MAX_PAIRS = 30, 40, 3, 15
"""Features and labels of a picture of pairs, and rows of a table, of one label and in all."""


# Of the features alone


def rankings_section(
    runs: Sequence[LabelledRun], styles: Styles, image_shape: tuple[int, int] | None, shown: Collection[str]
) -> Section:
    """Show the features that each run selected; omit the figures `shown`, which the page has already."""
    section = Section("rankings", "Features")
    by_dataset: dict[str, list[LabelledRun]] = {}
    for labelled in runs:
        by_dataset.setdefault(labelled.dataset, []).append(labelled)
    if len(by_dataset) > 1:  # of one data set it stands in the summary
        figures = [chosen_features(group, styles) for group in by_dataset.values() if len(group) > 1]
        if figures:
            section.blocks.append(Block("Who chooses what", figures=figures))
    for number, labelled in enumerate(runs):
        run = labelled.run
        figures = [
            _scores(labelled, styles),
            *rank_intervals(labelled, styles),
            best_features(labelled, styles),
        ]
        if image_shape is not None:
            name = f"{anchor('ranking', labelled.label)}-map"
            figures.append(image_map(labelled.label, run.ranking, run.scores, run.k, image_shape, name=name))
        figures = [figure for figure in figures if figure.name not in shown]
        texts, tables = _replicates(labelled) if run.replicates else ([], [])
        tables += _clusters(labelled)
        block = Block(labelled.label, texts=texts, tables=tables, figures=figures, folded=number >= MAX_OPEN)
        section.blocks.append(block)
    return section


def chosen_features(runs: Sequence[LabelledRun], styles: Styles) -> Figure:
    """Return the best features of the first of some runs on one data set, with those that the others have chosen
    too.
    """
    import pandas as pd

    first = runs[0]
    if len(runs) == 1:
        return best_features(first, styles)
    best = first.run.feature_names[: min(first.run.k, MAX_DRAWN)]
    ranks: dict[str, NDArray[np.float64]] = {}
    for labelled in runs:
        # By their names: a run on some of the features has other numbers.
        places = {name: place for place, name in enumerate(labelled.run.feature_names[: labelled.run.k], start=1)}
        ranks.setdefault(labelled.name, np.array([places.get(name, np.nan) for name in best]))
    rows = np.arange(len(best))
    marks = [  # in their own heights: runs that agree would hide one another
        Marks(of, rows + 0.6 * ((number + 0.5) / len(ranks) - 0.5), styles.of(run), run)
        for number, (run, of) in enumerate(ranks.items())
    ]
    shared = int(np.isfinite(list(ranks.values())).all(axis=0).sum())
    return Figure(
        anchor("chosen", first.label),
        first.dataset,
        f"{first.dataset}: the best features of {first.name}, and the ranks of those that the others have chosen too.",
        f"Best first: {', '.join(best)}. {shared} of them were chosen by all.",
        pd.DataFrame({"feature": best, **ranks}),
        *rows_plot(best, marks, xlabel="rank"),
    )


def _scores(labelled: LabelledRun, styles: Styles) -> Figure:
    """Return scores in the order of the ranking, and where the choice ends."""
    import pandas as pd

    run, k = labelled.run, labelled.run.k
    scores = run.scores[~np.isnan(run.scores)]  # excluded features have none
    d = len(scores)
    # All of the first thousand, beyond them as many as a page can show.
    shown = np.unique(np.concatenate([np.arange(min(d, 1000)), np.linspace(0, d - 1, min(d, 1000)).astype(np.int64)]))
    data = pd.DataFrame({"rank": shown + 1, "score": scores[shown]})
    style = replace(styles.of(labelled.name), marker="", dash="-")
    lines, caption = {"": style}, f"{labelled.label}: score by rank; the dashed line is where the choice of {k} ends."
    scales = run.record.get("extra", {}).get("score_scales", ())
    if scales:  # a line ends where its scale does: a step from one to the next says nothing of the features
        ends = np.cumsum([int(scale["features"]) for scale in scales])
        data["scale"] = [str(scales[i]["scale"]) for i in np.searchsorted(ends[:-1], shown, side="right")]
        dashes = {scale: DASHES[number % len(DASHES)] for number, scale in enumerate(dict.fromkeys(data["scale"]))}
        lines = {scale: replace(style, dash=dash) for scale, dash in dashes.items()}
        listed = "; ".join(f"of {scale['features']} features {scale['scale']}" for scale in scales)
        caption += (
            f" Scores are on scales of their own: {listed}. "
            "The step from one scale to the next says nothing about quality."
        )
    plot = lines_plot(
        data, "rank", "score", lines, by="scale" if scales else "", end=k, logarithmic="x" if d > 500 else "",
        xlabel="rank", ylabel="score",
    )  # fmt: skip
    return Figure(
        f"{anchor('ranking', labelled.label)}-scores",
        f"{labelled.label}: scores",
        caption,
        f"Scores fall from {scores[0]:.4g} at rank 1 to {scores[k - 1]:.4g} at rank {k} "
        f"and {scores[-1]:.4g} at rank {d}.",
        data,
        *plot,
    )


def best_features(labelled: LabelledRun, styles: Styles) -> Figure:
    """Return a figure of the best features of a run, with their scores."""
    import pandas as pd

    scores = labelled.run.scores[~np.isnan(labelled.run.scores)][:MAX_NAMES]  # excluded features come last
    names = labelled.run.feature_names[: len(scores)]
    ranks = np.arange(1, len(scores) + 1)
    marks = [Marks(scores, ranks - 1, styles.of(labelled.name), bars=(0, scores))]
    return Figure(
        f"{anchor('ranking', labelled.label)}-best",
        f"{labelled.label}: best features",
        f"{labelled.label}: the {len(scores)} best features.",
        f"Best first: {', '.join(names)}.",
        pd.DataFrame({"rank": ranks, "feature": names, "score": scores}),
        *rows_plot(_numbered(ranks, names), marks, xlabel="score"),
    )


def _numbered(ranks: Sequence[int] | NDArray[np.int64], names: Sequence[str]) -> list[str]:
    return [f"{rank}. {name}" for rank, name in zip(ranks, names, strict=True)]


def rank_intervals(labelled: LabelledRun, styles: Styles) -> list[Figure]:
    """Show the variation in rank of a run's best features over resampled rows."""
    import pandas as pd

    run, k = labelled.run, labelled.run.k
    if "selection_frequency" not in run.replicates:
        return []
    columns = ("rank_low", "rank_high", "selection_frequency")
    data = pd.DataFrame({name: run.replicates[name][:MAX_NAMES] for name in columns})
    data.insert(0, "feature", run.feature_names[: len(data)])
    data.insert(0, "rank", np.arange(1, len(data) + 1))
    low, high = data["rank_low"], data["rank_high"]
    shares = [f"{share:.0%}" for share in data["selection_frequency"]]
    marks = [Marks(data["rank"].to_numpy(), data.index.to_numpy(), styles.of(labelled.name), bars=(low, high))]
    plot = rows_plot(
        _numbered(data["rank"].tolist(), data["feature"].tolist()), marks, xlabel="rank", beside=shares, end=k + 0.5,
        logarithmic="x" if high.max() > 20 * len(data) else "",
    )  # fmt: skip
    caption = (
        f"{labelled.label}: the rank of each of the {len(data)} best features (the marker), the ranks between which "
        "nine of ten resamples of the rows have it (the bar), and at the right the share of the resamples in which it "
        f"is among the best {k}, left of the dashed line."
    )
    described = (
        f"{name} rank {rank}, {first:.0f} to {last:.0f}, {share}"
        for name, rank, first, last, share in zip(data["feature"], data["rank"], low, high, shares, strict=True)
    )
    title = f"{labelled.label}: ranks in resamples of the rows"
    name = f"{anchor('ranking', labelled.label)}-intervals"
    return [Figure(name, title, caption, f"{'; '.join(described)}.", data, *plot)]


def _clusters(labelled: LabelledRun) -> list[Table]:
    """Return the features that are redundant with a selected one, if the run recorded them."""
    members: dict[str, list[tuple[float, str]]] = {}
    ranks: dict[str, int] = {}
    for row in read_redundancy(labelled.run.path) or ():
        ranks[row["feature"]] = int(row["rank"])
        if row["feature"] != row["representative"]:
            also = ", chosen" * (row["chosen"] == "1")
            words = f"{row['feature']} ({float(row['similarity']):.2f}{also})"
            members.setdefault(row["representative"], []).append((-float(row["similarity"]), words))
    if not members:
        return []
    params = labelled.run.record["params"]
    closest = max(max(of)[0] for of in members.values())
    bound = float(params.get("prune") or params.get("redundancy") or -closest)
    rows = [
        [name, ranks[name], len(of), first_of([words for _, words in sorted(of)])]
        for name, of in list(members.items())[:MAX_ROWS]
    ]
    more = len(members) - len(rows)
    columns = {"feature": "", "rank": ",", "features": ",", f"whose correlation with it is {bound:g} or more": ""}
    title = f"{labelled.label}: selected features, and features that correlate with them"
    return [Table(title + f"; {more:,} more are in redundancy.csv" * (more > 0), columns, rows)]


def _replicates(labelled: LabelledRun) -> tuple[list[str], list[Table]]:
    """Tabulate the results of shuffled and resampled rows for the selected features that a page shows."""
    run = labelled.run
    texts = []
    if "q_value" in run.replicates:
        fdr, tested = run.record["params"]["fdr"], run.record["params"].get("control") is not None
        what = "is associated with any label" if tested else "beats shuffled labels"
        texts.append(
            f"q-value: the least false discovery rate at which a feature {what}. As many features are "
            f"chosen as have at most {fdr:g}."
        )
    if "selection_frequency" in run.replicates:
        texts.append(
            "Rank from, to: nine of ten resamples of the rows rank the feature between them. Times chosen: the share "
            f"of the resamples in which it is among the best {run.k:,}."
        )
    known = {
        "q_value": ("q-value", ".2g"),
        "rank_low": ("rank from", ".0f"),
        "rank_high": ("rank to", ".0f"),
        "selection_frequency": ("times chosen", ".0%"),
    }
    columns = {"feature": "", "rank": ",", "score": ".4g", **dict(known[name] for name in run.replicates)}
    count = min(run.k, MAX_ROWS)
    values: tuple[Any, ...] = (run.feature_names, range(1, count + 1), run.scores, *run.replicates.values())
    title = f"{labelled.label}: the {'chosen' if count == run.k else f'first {count} chosen'} features"
    return texts, [Table(title, columns, list(zip(*(column[:count] for column in values), strict=True)))]


# With labels


def labels_section(runs: Sequence[LabelledRun], drawn: Sequence[LabelledRun], notes: list[str]) -> Section:
    """Show the association of features with labels; a sentence if the store is not available."""
    section = Section("labels", "Features and labels")
    rows, heat, missing = [], [], []
    groups: dict[str, list[LabelledRun]] = {}
    shown = {labelled.label for labelled in drawn}
    for labelled in runs:
        groups.setdefault(str(labelled.run.store.get("digest")), []).append(labelled)
    for group in groups.values():
        try:
            dataset = _reachable(group[0])
            correlations, diagnostics = _described(dataset, group)
        except MlfsError as error:
            reason = str(error).splitlines()[0]
            missing.append(f"{', '.join(each.label for each in group)}: {reason}")
            continue
        for labelled, of_set in zip(group, diagnostics, strict=True):
            label, run = labelled.label, labelled.run
            rows.append([label, labelled.dataset, run.k, *of_set])
            if label not in shown:
                continue
            best = run.ranking[:MAX_NAMES]
            strongest = np.abs(correlations[:, best]).max(axis=1)
            labels = np.sort(np.argsort(-strongest, kind="stable")[:MAX_LABELS])
            caption = f"{label}: Pearson correlation of its {len(best)} best features with the labels."
            names, values = [str(name) for name in dataset.label_names[labels]], correlations[np.ix_(labels, best)]
            title, features = f"{label}: features and labels", run.feature_names[: len(best)]
            heat.append(
                signed_map(anchor("labels", label), title, caption, features, names, values, what="correlation")
            )
    if rows:
        columns = {"run": "", "data set": "", "features": ",", "redundancy R": ".4g", "residual C": ".4g"}
        section.blocks.append(
            Block(
                texts=[
                    "Redundancy R of the chosen set and residual label correlation C, the label correlation that the "
                    "set does not explain (Wang et al. 2020, Eqs. 16 and 17); lower is better."
                ],
                tables=[Table("Redundancy and residual", columns, rows)],
            )
        )
        texts = ["Pearson correlation of the best features with labels, from one pass over the store."]
        if any(labelled.run.record["q"] > MAX_LABELS for labelled in runs):
            texts.append(f"Of many labels, the {MAX_LABELS} that correlate most are shown.")
        section.blocks.append(Block("Correlations", texts=texts, figures=heat))
    if missing:
        texts = ["What needs the rows is left out where they cannot be read:"]
        section.blocks.append(Block(texts=texts, notes=missing))
        notes.extend(missing)
    return section


def _reachable(labelled: LabelledRun) -> Any:
    """Return the store of a run, or its part, if it still exists unchanged."""
    from mlfs_dask.storage.opening import reopen

    if not labelled.run.store:
        raise DataError("X and Y came from memory, not from a store.")
    dataset = reopen(labelled.run.store)
    if dataset.rows.profile.numeric:
        raise DataError("Y holds numeric targets, and what is shown here is of labels.")
    if dataset.label_counts[0].any():
        raise DataError("some labels are unknown, and correlations with them are not defined.")
    n_missing = dataset.rows.features.n_missing
    if n_missing is None and dataset.rows.profile.foreign:
        raise DataError("it is a file that was not converted: missing values are not known without a pass over it.")
    if np.any(n_missing):
        raise DataError("some feature values are missing, and correlations with them are not defined.")
    return dataset


def _described(dataset: Any, group: Sequence[LabelledRun]) -> Any:
    from mlfs_dask.reporting.diagnostics import describe

    profile = dataset.rows.profile
    # Sums, standardised products, correlations and squares: four arrays of doubles.
    needed, free = 4 * 8 * profile.q * profile.d, current_resources().driver_limit
    if needed > free:
        what = "correlations of all features with all labels"
        raise DoesNotFitError(what, projected=needed, available=free, cure="report without data")
    return describe(dataset, selections=[labelled.run.ranking[: labelled.run.k] for labelled in group])


# In pairs with labels

_CONTROLS = {
    "bh": "Benjamini and Hochberg",
    "by": "Benjamini and Yekutieli",
    "holm": "Holm",
    "partial": "partial t-tests, Benjamini and Hochberg",
    "knockoffs": "knockoffs",
}


def pairs_section(runs: Sequence[LabelledRun]) -> Section:
    """Return a picture and a table of the pairs of each run that has a table of them."""
    section = Section("pairs", "Which features, for which labels")
    for labelled in runs:
        table = shown_pairs(labelled.run)
        if table is not None and len(table):
            section.blocks.append(_pairs_block(labelled, table))
    return section


def shown_pairs(run: Run) -> pd.DataFrame | None:
    """Return the tested pairs of the first features of a ranking; None without a table."""
    found = run.pairs(run.ranking[: max(MAX_PAIRED, min(run.k, 10 * MAX_PAIRED))].tolist())
    if found is None:
        return None
    table = found.to_pandas()
    if "log10_p" not in table:  # of an earlier version
        table["log10_p"] = np.log10(table["p_value"].where(table["p_value"] > 0))
    return table.dropna(subset=["q_value"])


def _pairs_block(labelled: LabelledRun, table: pd.DataFrame) -> Block:
    summary: Mapping[str, Any] = labelled.run.record["extra"]["pairs"]
    text = (
        f"{summary['significant']:,} of {summary['tested']:,} pairs are significant at {summary['fdr']:g} "
        f"({_CONTROLS[summary['control']]}): {summary['features']:,} features with {summary['labels']:,} labels. What "
        f"is tested: {summary['hypothesis']}."
    )
    # Knockoffs have no p-values.
    surest = table.assign(size=-table["statistic"].abs()).sort_values(["log10_p", "size"], kind="stable")
    surest = surest[surest.groupby("label_index").cumcount() < MAX_PAIRS_OF_LABEL].head(MAX_PAIRS)
    names = ["feature", "label", "effect", "effect_kind", "statistic", "p_value", "q_value"]
    columns = {
        "feature": "", "label": "", "effect": "+.3g", "its kind": "", "statistic": "+.3g", "p": ".2g", "q": ".2g",
    }  # fmt: skip
    title = f"{labelled.label}: surest pairs, up to {MAX_PAIRS_OF_LABEL} of a label"
    rows = list(surest[names].itertuples(index=False, name=None))
    return Block(
        labelled.label, texts=[text], tables=[Table(title, columns, rows)], figures=[pair_map(labelled, table)]
    )


def pair_map(labelled: LabelledRun, table: pd.DataFrame) -> Figure:
    """−log₁₀ p of features and labels, with the sign of the direction."""
    levels = np.log10(table["q_value"].clip(lower=np.finfo(np.float64).tiny))  # knockoffs have these alone
    strength = -table["log10_p"].fillna(levels)
    signs = np.sign(table["statistic"]).replace(0, 1)
    values = table.assign(strength=strength * signs).pivot(
        index="label_index", columns="feature_index", values="strength"
    )
    first = labelled.run.ranking[: 10 * MAX_PAIRED].tolist()
    places = [i for i, feature in enumerate(first) if feature in values][:MAX_PAIRED]
    values = values[[first[i] for i in places]].dropna(how="all")
    strongest = values.abs().max(axis=1).sort_values(ascending=False, kind="stable")
    values = values.loc[sorted(strongest.index[:MAX_PAIRED_LABELS])]
    labels = table.drop_duplicates("label_index").set_index("label_index")["label"]
    caption = (
        f"{labelled.label}: −log₁₀ p of features with labels, positive where the feature is larger with the label, "
        "coloured by its square root; empty where a pair is not in the table."
    )
    return signed_map(
        anchor("pairs", labelled.label), f"{labelled.label}: pairs", caption,
        [labelled.run.feature_names[i] for i in places], [str(labels[label]) for label in values.index],
        values.to_numpy(), what="−log₁₀ p", roots=True,
    )  # fmt: skip
