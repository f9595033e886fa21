"""Comparing a store, byte for byte, with what was written, and reading it as a selection does."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlfs_dask.files.access import access_error
from mlfs_dask.files.object_store import ROOT_KEY, at_once, is_url, open_binary, open_objects
from mlfs_dask.storage.dataset import Store, open_store
from mlfs_dask.storage.digest import new_hash, root_is_intact
from mlfs_dask.storage.schema import read_schema

#: Objects at a URL that are read at a time.
_REQUESTS = 8


@dataclass(frozen=True)
class Verification:
    """Differences of a store from its written content; all empty for an intact store.

    Attributes
    ----------
    objects, bytes : int
        Read and compared.
    damaged, missing, extra : tuple of str
        Keys of objects whose bytes differ, that are not there, and that do not belong there.
    """

    objects: int
    bytes: int
    damaged: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def intact(self) -> bool:
        return not (self.damaged or self.missing or self.extra)


def verify(store: str | Path) -> Verification:
    """Comparison of every object of a store with the digest recorded when it was written.

    A store whose bytes are those that were written is then read as a selection reads it: what wrote it, or changed its
    digests with it, may have written what cannot be.

    Parameters
    ----------
    store : path or URL

    Returns
    -------
    Verification

    Raises
    ------
    DataError
        If the root metadata is missing or cannot be read at all, or if what was written is no store: shapes, offsets or
        values that cannot be.
    """
    objects = open_objects(store)
    schema, root = read_schema(objects)
    damaged = [] if root_is_intact(root, schema.root_digest) else [ROOT_KEY]
    expected, read = set(schema.digests), len(root)

    def look(key: str) -> tuple[int, str]:
        file: Any
        with open_binary(f"{objects.path}/{key}") as file:
            digest = hashlib.file_digest(file, new_hash).hexdigest()
            return file.tell(), digest

    try:
        present = set(objects.sizes(expected))
        keys = sorted(expected & present)
        for key, (size, digest) in zip(keys, at_once(look, keys, _REQUESTS if is_url(store) else 1), strict=True):
            read += size
            if digest != schema.digests[key]:
                damaged.append(key)
    except PermissionError as error:
        raise access_error(objects.path, error) from None
    if not damaged and expected <= present:
        _read(open_store(store))
    return Verification(
        objects=len(expected & present) + 1,
        bytes=read,
        damaged=tuple(damaged),
        missing=tuple(sorted(expected - present)),
        extra=tuple(sorted(present - expected - {ROOT_KEY})),
    )


def _read(dataset: Store) -> None:
    """Read all that any command reads of a store."""
    for _ in (dataset.feature_names, dataset.label_names, dataset.kinds, dataset.categories, dataset.features):
        pass
    for _ in dataset.store_rows.stream(0, dataset.store_rows.profile.partitions):
        pass
