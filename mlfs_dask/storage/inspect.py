"""Facts of a store, or of a file that was not converted, for people and programs; no feature is read for them."""

from __future__ import annotations

from typing import Any

from mlfs_dask.files.sources import examine
from mlfs_dask.storage.dataset import Dataset, Store


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """Return the facts that `mlfs inspect` shows: sizes, density, labels, partitions, bytes.

    Of a store also constant features, kinds, missing values and origin; of a file, how many features are categorical.
    """
    return _facts_of_store(dataset) if isinstance(dataset, Store) else _facts_of_file(dataset)


def _facts_of_store(dataset: Store) -> dict[str, Any]:
    schema, n_missing = dataset.schema, dataset.n_missing
    targets = {"targets": list(schema.targets), "unknown_targets": dataset.label_counts[0, schema.q :].tolist()}
    return {
        **(targets if schema.targets else {}),
        **_sizes(schema.n, schema.d, schema.q, schema.nonzeros, list(schema.positive), list(schema.unknown)),
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


def _facts_of_file(dataset: Dataset) -> dict[str, Any]:
    profile, (unknown, _, positive) = dataset.rows.profile, dataset.label_counts.tolist()
    return {
        **_sizes(profile.n, profile.d, profile.q, profile.nonzeros, positive, unknown),
        "categorical_features": len(dataset.categories),
        "storage": "sparse" if profile.sparse else "dense",
        "dtype": profile.dtype.name,
        "partitions": profile.partitions,
        "bytes": sum(source.bytes for source in examine([dataset.path])),
        "digest": dataset.digest,
    }


def _sizes(n: int, d: int, q: int, nonzeros: int, positive: list[int], unknown: list[int]) -> dict[str, Any]:
    return {
        "n": n,
        "d": d,
        "q": q,
        "nonzeros": nonzeros,
        "density": nonzeros / (n * d),
        "label_cardinality": sum(positive) / n,
        "positive_labels": sum(positive),
        "unknown_labels": sum(unknown),
        "labels_never_positive": sum(count == 0 for count in positive),
    }
