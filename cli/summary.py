"""Facts of a store or a file in numbers: the result of `convert` and of `inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlfs_dask.errors import number_of, size
from mlfs_dask_cli.output import table

if TYPE_CHECKING:
    from mlfs_dask.storage.dataset import Dataset


def summary_of(path: str, dataset: Dataset) -> dict[str, Any]:
    """Return the facts of a store, from its metadata alone, or of a file that was not converted."""
    from mlfs_dask.storage.dataset import Store
    from mlfs_dask.storage.inspect import facts_of

    return {"store" if isinstance(dataset, Store) else "file": path, **facts_of(dataset)}


def summary_text(summary: dict[str, Any]) -> str:
    """Return the summary as text."""
    s, is_store = summary, "store" in summary
    features, nonzeros, compressed = f"{s['d']:,}", f"{s['nonzeros']:,} (density {s['density']:.4g})", ""
    kinds, missing, origin = list[tuple[str, str]](), list[tuple[str, str]](), list[tuple[str, str]]()
    if is_store:
        features += f" ({s['constant_features']:,} constant)"
        compressed = "" if s["compressor"] == "none" else f", {s['compressor']}"
        kinds = [("kinds", ", ".join(f"{count:,} {kind}" for kind, count in s["kinds"].items() if count))]
        where = f" in {number_of(s['features_with_missing_values'], 'feature')}" if s["missing_values"] else ""
        missing = [("missing values", f"{s['missing_values']:,}{where}")]
        made_by = f"{s['command'] or 'unknown'} ({s['created']}, mlfs-dask {s['version']})"
        origin = [("made by", made_by), ("digest", s["digest"])]
    else:
        features += f" ({s['categorical_features']:,} categorical)" if s["categorical_features"] else ""
        nonzeros = nonzeros if s["storage"] == "sparse" else "not counted"
    negative = s["n"] * s["q"] - s["positive_labels"] - s["unknown_labels"]
    targets = [
        ("target", f"{name} ({unknown:,} unknown)")
        for name, unknown in zip(s.get("targets", ()), s.get("unknown_targets", ()), strict=True)
    ]
    entries = f"{s['positive_labels']:,} positive, {negative:,} negative, {s['unknown_labels']:,} unknown"
    labels = [
        ("labels (q)", f"{s['q']:,} ({s['labels_never_positive']:,} never positive)"),
        ("label cardinality", f"{s['label_cardinality']:.4g}"),
        ("label entries", entries),
    ][: 3 if s["q"] else 0]
    rows = [
        ("store", s["store"]) if is_store else ("file", s["file"]),
        ("rows (n)", f"{s['n']:,}"),
        ("features (d)", features),
        *kinds,
        *targets,
        *labels[:1],
        ("nonzeros", nonzeros),
        *missing,
        *labels[1:],
        (
            "storage",
            f"{s['storage']} {s['dtype']}{compressed}, {number_of(s['partitions'], 'partition')}, {size(s['bytes'])}",
        ),
        *origin,
    ]
    return table(rows)
