"""What a store is, in numbers: the result of `convert` and of `inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlfs_dask.errors import number_of
from mlfs_dask_cli.output import size, table

if TYPE_CHECKING:
    from mlfs_dask.storage.dataset import Dataset, Store


def store_summary(store: str, dataset: Store) -> dict[str, Any]:
    """Facts of a store, from its metadata alone."""
    from mlfs_dask.storage.inspect import store_facts

    return {"store": store, **store_facts(dataset)}


def file_summary(path: str, dataset: Dataset) -> dict[str, Any]:
    """Facts of a file that was not converted."""
    from mlfs_dask.storage.inspect import file_facts

    return {"file": path, **file_facts(dataset)}


def file_text(facts: dict[str, Any]) -> str:
    """The same for people."""
    f = facts
    negative = f["n"] * f["q"] - f["positive_labels"] - f["unknown_labels"]
    categorical = f" ({f['categorical_features']:,} categorical)" if f["categorical_features"] else ""
    rows = [
        ("file", f["file"]),
        ("rows (n)", f"{f['n']:,}"),
        ("features (d)", f"{f['d']:,}{categorical}"),
        ("labels (q)", f"{f['q']:,} ({f['labels_never_positive']:,} never positive)"),
        ("nonzeros", f"{f['nonzeros']:,} (density {f['density']:.4g})" if f["storage"] == "sparse" else "not counted"),
        ("label cardinality", f"{f['label_cardinality']:.4g}"),
        ("label entries", f"{f['positive_labels']:,} positive, {negative:,} negative, {f['unknown_labels']:,} unknown"),
        ("storage", f"{f['storage']} {f['dtype']}, {number_of(f['partitions'], 'partition')}, {size(f['bytes'])}"),
    ]
    return table(rows)


def summary_text(summary: dict[str, Any]) -> str:
    """The same for people."""
    s = summary
    compressed = "" if s["compressor"] == "none" else f", {s['compressor']}"
    partitions = number_of(s["partitions"], "partition")
    missing = f"{s['missing_values']:,}"
    if s["missing_values"]:
        missing += f" in {number_of(s['features_with_missing_values'], 'feature')}"
    negative = s["n"] * s["q"] - s["positive_labels"] - s["unknown_labels"]
    rows = [
        ("store", s["store"]),
        ("rows (n)", f"{s['n']:,}"),
        ("features (d)", f"{s['d']:,} ({s['constant_features']:,} constant)"),
        ("kinds", ", ".join(f"{count:,} {kind}" for kind, count in s["kinds"].items() if count)),
        ("labels (q)", f"{s['q']:,} ({s['labels_never_positive']:,} never positive)"),
        ("nonzeros", f"{s['nonzeros']:,} (density {s['density']:.4g})"),
        ("missing values", missing),
        ("label cardinality", f"{s['label_cardinality']:.4g}"),
        ("label entries", f"{s['positive_labels']:,} positive, {negative:,} negative, {s['unknown_labels']:,} unknown"),
        ("storage", f"{s['storage']} {s['dtype']}{compressed}, {partitions}, {size(s['bytes'])}"),
        ("made by", f"{s['command'] or 'unknown'} ({s['created']}, mlfs-dask {s['version']})"),
        ("digest", s["digest"]),
    ]
    return table(rows)
