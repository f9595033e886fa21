"""A store's objects by key, on a local disk or behind fsspec, and its root metadata.

Everything here is bytes; nothing needs Zarr. Opening a store reads the one root object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from mlfs_dask.errors import DataError, MlfsError
from mlfs_dask.storage.digest import ROOT_KEY
from mlfs_dask.storage.schema import StoreSchema

_BLOCK_BYTES = 4 << 20
_NOT_A_STORE = "make a store with `mlfs convert SOURCE... STORE`"


class Objects(Protocol):
    """Read-only access to the objects below one root."""

    path: str

    def exists(self) -> bool: ...

    def read(self, key: str) -> bytes:
        """Raises FileNotFoundError."""

    def blocks(self, key: str) -> Iterator[bytes]: ...

    def sizes(self) -> dict[str, int]:
        """Key -> bytes of every object."""

    def keys(self) -> list[str]: ...


class LocalObjects:
    """Files below a directory."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._root = Path(path)

    def exists(self) -> bool:
        return self._root.is_dir()

    def read(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def blocks(self, key: str) -> Iterator[bytes]:
        with (self._root / key).open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                yield block

    def sizes(self) -> dict[str, int]:
        found = {}
        for folder, _, names in os.walk(self._root):
            for name in names:
                file = Path(folder) / name
                found[file.relative_to(self._root).as_posix()] = file.stat().st_size
        return found

    def keys(self) -> list[str]:
        return list(self.sizes())


class RemoteObjects:
    """Objects below a URL, through fsspec."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        import fsspec.core  # a local store never needs it

        self.path = url
        self.filesystem, root = fsspec.core.url_to_fs(url, **(storage_options or {}))
        self.root = root.rstrip("/")

    def exists(self) -> bool:
        return bool(self.filesystem.exists(self.root))

    def read(self, key: str) -> bytes:
        return bytes(self.filesystem.cat_file(f"{self.root}/{key}"))

    def blocks(self, key: str) -> Iterator[bytes]:
        with self.filesystem.open(f"{self.root}/{key}", "rb", block_size=_BLOCK_BYTES) as file:
            while block := file.read(_BLOCK_BYTES):
                yield block

    def sizes(self) -> dict[str, int]:
        found = self.filesystem.find(self.root, detail=True)
        prefix = len(self.root) + 1
        return {path[prefix:]: int(info["size"]) for path, info in found.items()}

    def keys(self) -> list[str]:
        return list(self.sizes())


def is_url(path: str | Path) -> bool:
    """Whether fsspec must open it; `file://` is a local path."""
    return "://" in str(path) and not str(path).startswith("file://")


def local_path(path: str | Path) -> Path:
    """A local path, also from a `file://` URL."""
    return Path(str(path).removeprefix("file://"))


def open_objects(store: str | Path, storage_options: Mapping[str, Any] | None = None) -> LocalObjects | RemoteObjects:
    """Access to a store's objects; reads nothing yet."""
    if is_url(store):
        return RemoteObjects(str(store), storage_options)
    return LocalObjects(local_path(store))


def read_schema(objects: Objects) -> tuple[StoreSchema, bytes]:
    """Read and check the root metadata.

    Returns
    -------
    schema : StoreSchema
    root : bytes
        The root's `zarr.json` as it lies there.

    Raises
    ------
    DataError
        If there is no store, or its metadata cannot be read.
    """
    try:
        root = objects.read(ROOT_KEY)
    except FileNotFoundError:
        if not objects.exists():
            raise DataError("there is no such store", file=objects.path, cure=_NOT_A_STORE) from None
        raise DataError(f"not an mlfs store: it has no {ROOT_KEY}", file=objects.path, cure=_NOT_A_STORE) from None
    except NotADirectoryError:
        raise DataError("a store is a directory, this is a file", file=objects.path, cure=_NOT_A_STORE) from None
    except PermissionError as error:
        raise MlfsError(f"{objects.path}: no permission to read {ROOT_KEY} ({error})") from None
    try:
        document = json.loads(root)
    except ValueError as error:
        raise DataError(
            f"{ROOT_KEY} is damaged: {error}",
            file=objects.path,
            cure="restore a copy, or convert the source files again",
        ) from None
    attributes = document.get("attributes") if isinstance(document, dict) else None
    attribute = attributes.get("mlfs") if isinstance(attributes, dict) else None
    return StoreSchema.from_json(attribute, path=objects.path), root
