"""Facts of a store for people and programs, from its metadata."""

from __future__ import annotations

from typing import Any

from mlfs_dask.storage.dataset import Dataset


def store_facts(dataset: Dataset) -> dict[str, Any]:
    """What `mlfs inspect` shows: sizes, density, labels, kinds, missing values, partitions, bytes, origin."""
    schema, n_missing = dataset.schema, dataset.n_missing
    return {
        "n": schema.n,
        "d": schema.d,
        "q": schema.q,
        "nonzeros": schema.nonzeros,
        "density": schema.nonzeros / (schema.n * schema.d),
        "label_cardinality": sum(schema.positive) / schema.n,
        "positive_labels": sum(schema.positive),
        "unknown_labels": sum(schema.unknown),
        "labels_never_positive": sum(count == 0 for count in schema.positive),
        "constant_features": schema.constant_features,
        "missing_values": int(n_missing.sum()),
        "features_with_missing_values": int((n_missing > 0).sum()),
        "kinds": dict(schema.kinds),
        "storage": schema.storage,
        "labels_storage": schema.labels_storage,
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
