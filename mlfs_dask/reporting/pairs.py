"""Which features go with which labels: a picture and a table of the pairs of a run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.reporting import figures as draw
from mlfs_dask.reporting.comparison_folder import anchor
from mlfs_dask.reporting.contents import LabelledRun
from mlfs_dask.reporting.figures import Figure
from mlfs_dask.reporting.sections import Block, Section
from mlfs_dask.reporting.tables import Table, number_cell, text_cell
from mlfs_dask.selection.runs import PAIRS
from mlfs_dask.storage.object_store import is_url, open_objects

if TYPE_CHECKING:
    import pandas as pd

#: Features and labels of a picture, and rows of a table, of one label and in all.
MAX_FEATURES, MAX_LABELS, MAX_ROWS_OF_LABEL, MAX_ROWS = 30, 40, 3, 15


def pairs_section(runs: Sequence[LabelledRun]) -> Section:
    """The pairs of the runs that have a table of them."""
    section = Section("pairs", "Which features, for which labels")
    for labelled in runs:
        table = _pairs_of(labelled)
        if table is not None and len(table):
            section.blocks.append(_block(labelled, table))
    return section


def _pairs_of(labelled: LabelledRun) -> pd.DataFrame | None:
    """Tested pairs of the first features of a ranking; None where a run has no table."""
    from pyarrow import parquet

    folder = labelled.run.path
    objects = open_objects(folder)
    if not objects.exists(PAIRS):
        return None
    file: Any = io.BytesIO(objects.read(PAIRS)) if is_url(folder) else f"{folder}/{PAIRS}"
    first = labelled.run.ranking[: max(MAX_FEATURES, min(labelled.run.k, 10 * MAX_FEATURES))].tolist()
    table = parquet.read_table(file, filters=[("feature_index", "in", first)]).to_pandas()
    if "log10_p" not in table:  # of an earlier version
        table["log10_p"] = np.log10(table["p_value"].where(table["p_value"] > 0))
    return table.dropna(subset=["q_value"])


def _block(labelled: LabelledRun, table: pd.DataFrame) -> Block:
    summary = labelled.run.record["extra"]["pairs"]
    texts = [
        f"{summary['significant']:,} of {summary['tested']:,} pairs are significant at {summary['fdr']:g} "
        f"({_CONTROLS[summary['control']]}): {summary['features']:,} features with {summary['labels']:,} labels. What "
        f"is tested: {summary['hypothesis']}."
    ]
    # Knockoffs have no p-values.
    surest = table.assign(size=-table["statistic"].abs()).sort_values(["log10_p", "size"], kind="stable")
    surest = surest[surest.groupby("label_index").cumcount() < MAX_ROWS_OF_LABEL]
    rows = [
        [
            text_cell(pair.feature), text_cell(pair.label), number_cell(pair.effect, "+.3g"),
            text_cell(pair.effect_kind), number_cell(pair.statistic, "+.3g"),
            number_cell(pair.p_value, ".2g"), number_cell(pair.q_value, ".2g"),
        ]
        for pair in surest[:MAX_ROWS].itertuples()
    ]  # fmt: skip
    columns = ["feature", "label", "effect", "its kind", "statistic", "p", "q"]
    return Block(
        labelled.label,
        texts=texts,
        tables=[Table(f"{labelled.label}: surest pairs, up to {MAX_ROWS_OF_LABEL} of a label", columns, rows)],
        figures=[_picture(labelled, table)],
    )


_CONTROLS = {
    "bh": "Benjamini and Hochberg",
    "by": "Benjamini and Yekutieli",
    "holm": "Holm",
    "partial": "partial t-tests, Benjamini and Hochberg",
    "knockoffs": "knockoffs",
}


def _picture(labelled: LabelledRun, table: pd.DataFrame) -> Figure:
    there = set(table["feature_index"])
    places = [i for i, f in enumerate(labelled.run.ranking.tolist()[: 10 * MAX_FEATURES]) if f in there][:MAX_FEATURES]
    features = labelled.run.ranking[places]
    table = table[table["feature_index"].isin(features)]
    levels = np.log10(table["q_value"].clip(lower=np.finfo(np.float64).tiny))  # knockoffs have these alone
    strength = -table["log10_p"].fillna(levels).to_numpy()
    strongest = table.assign(strength=strength).groupby("label_index")["strength"].max()
    labels = np.sort(strongest.sort_values(ascending=False, kind="stable").index[:MAX_LABELS].to_numpy())
    values: NDArray[np.float64] = np.full((len(labels), len(features)), np.nan)
    row, column = {label: i for i, label in enumerate(labels)}, {f: i for i, f in enumerate(features)}
    names = dict(zip(table["label_index"], table["label"], strict=True))
    for label, feature, size, sign in zip(
        table["label_index"], table["feature_index"], strength, np.sign(table["statistic"]), strict=True
    ):
        if label in row:
            values[row[label], column[feature]] = size * (sign or 1)
    return draw.pair_map(
        labelled.label,
        [labelled.run.feature_names[i] for i in places],
        [str(names[label]) for label in labels],
        values,
        name=anchor("pairs", labelled.label),
    )
