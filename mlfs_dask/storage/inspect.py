"""Facts of a store for people and programs, from its metadata."""

from __future__ import annotations

from typing import Any

from mlfs_dask.storage.dataset import Dataset, Store
from mlfs_dask.storage.sources import examine


def store_facts(dataset: Store) -> dict[str, Any]:
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


def file_facts(dataset: Dataset) -> dict[str, Any]:
    """What `mlfs inspect` shows of a file: what is known without a reading of its features."""
    profile, (unknown, _, positive) = dataset.rows.profile, dataset.label_counts
    return {
        "n": profile.n,
        "d": profile.d,
        "q": profile.q,
        "nonzeros": profile.nonzeros,
        "density": profile.nonzeros / (profile.n * profile.d),
        "label_cardinality": float(positive.sum() / profile.n),
        "positive_labels": int(positive.sum()),
        "unknown_labels": int(unknown.sum()),
        "labels_never_positive": int((positive == 0).sum()),
        "categorical_features": len(dataset.categories),
        "storage": "sparse" if profile.sparse else "dense",
        "dtype": profile.dtype.name,
        "partitions": profile.partitions,
        "bytes": sum(source.bytes for source in examine([dataset.path])),
        "digest": dataset.digest,
    }
