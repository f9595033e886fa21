"""What a store is, in numbers: the result of `convert` and of `inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlfs_dask_cli.output import size, table

if TYPE_CHECKING:
    from mlfs_dask.storage.schema import StoreSchema


def store_summary(store: str, schema: StoreSchema) -> dict[str, Any]:
    """Facts of a store, from its metadata alone."""
    cells = schema.n * schema.d
    return {
        "store": store,
        "n": schema.n,
        "d": schema.d,
        "q": schema.q,
        "nonzeros": schema.nonzeros,
        "density": schema.nonzeros / cells if cells else 0.0,
        "label_cardinality": sum(schema.positive) / schema.n if schema.n else 0.0,
        "unknown_labels": sum(schema.unknown),
        "labels_never_positive": sum(count == 0 for count in schema.positive),
        "constant_features": schema.constant_features,
        "storage": schema.storage,
        "dtype": schema.dtype,
        "compressor": schema.compressor,
        "partitions": schema.partitions.count,
        "bytes": sum(schema.sizes.values()),
        "format_version": schema.format_version,
        "version": schema.version,
        "created": schema.created,
        "command": schema.command,
        "sources": [dict(source) for source in schema.sources],
        "digest": schema.digest,
    }


def summary_text(summary: dict[str, Any]) -> str:
    """The same for people."""
    s = summary
    compressed = "" if s["compressor"] == "none" else f", {s['compressor']}"
    rows = [
        ("store", s["store"]),
        ("rows (n)", f"{s['n']:,}"),
        ("features (d)", f"{s['d']:,} ({s['constant_features']:,} constant)"),
        ("labels (q)", f"{s['q']:,} ({s['labels_never_positive']:,} never positive)"),
        ("nonzeros", f"{s['nonzeros']:,} (density {s['density']:.4g})"),
        ("label cardinality", f"{s['label_cardinality']:.4g}"),
        ("unknown labels", f"{s['unknown_labels']:,}"),
        ("storage", f"{s['storage']} {s['dtype']}{compressed}, {s['partitions']:,} partitions, {size(s['bytes'])}"),
        ("made by", f"{s['command'] or 'unknown'} ({s['created']}, mlfs-dask {s['version']})"),
        ("digest", s["digest"]),
    ]
    rows += [("warning", warning) for warning in s.get("warnings", ())]
    return table(rows)
