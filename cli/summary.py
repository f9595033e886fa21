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
    s, is_store, has_labels = summary, "store" in summary, bool(summary["q"])
    features, nonzeros, compressed = f"{s['d']:,}", f"{s['nonzeros']:,} (density {s['density']:.4g})", ""
    kinds = missing = made_by = digest = None
    if is_store:
        features += f" ({s['constant_features']:,} constant)"
        compressed = "" if s["compressor"] == "none" else f", {s['compressor']}"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in s["kinds"].items() if count)
        where = f" in {number_of(s['features_with_missing_values'], 'feature')}" if s["missing_values"] else ""
        missing = f"{s['missing_values']:,}{where}"
        made_by = f"{s['command'] or 'unknown'} ({s['created']}, mlfs-dask {s['version']})"
        digest = s["digest"]
    else:
        features += f" ({s['categorical_features']:,} categorical)" if s["categorical_features"] else ""
        nonzeros = nonzeros if s["storage"] == "sparse" else "not counted"
    negative = s["n"] * s["q"] - s["positive_labels"] - s["unknown_labels"]
    entries = f"{s['positive_labels']:,} positive, {negative:,} negative, {s['unknown_labels']:,} unknown"
    partitions = number_of(s["partitions"], "partition")
    rows = [
        ("store", s.get("store")),
        ("file", s.get("file")),
        ("rows (n)", f"{s['n']:,}"),
        ("features (d)", features),
        ("kinds", kinds),
        *[
            ("target", f"{name} ({unknown:,} unknown)")
            for name, unknown in zip(s.get("targets", ()), s.get("unknown_targets", ()), strict=True)
        ],
        ("labels (q)", f"{s['q']:,} ({s['labels_never_positive']:,} never positive)" if has_labels else None),
        ("nonzeros", nonzeros),
        ("missing values", missing),
        ("label cardinality", f"{s['label_cardinality']:.4g}" if has_labels else None),
        ("label entries", entries if has_labels else None),
        ("storage", f"{s['storage']} {s['dtype']}{compressed}, {partitions}, {size(s['bytes'])}"),
        ("made by", made_by),
        ("digest", digest),
    ]
    return table([row for row in rows if row[1] is not None])
