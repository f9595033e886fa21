"""Source files as facts: what was read, and whether it is still the same."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlfs_dask.errors import DataError, MlfsError
from mlfs_dask.storage.objects import is_url, local_path

_READ_BYTES = 4 << 20


@dataclass(frozen=True)
class Source:
    """One source file or folder.

    Attributes
    ----------
    path : str
        As the user gave it.
    bytes : int
    modified : str
        Time of change in nanoseconds, or what a remote file system offers instead.
    """

    path: str
    bytes: int
    modified: str


def examine(sources: Sequence[str | Path], storage_options: Mapping[str, Any] | None = None) -> list[Source]:
    """Look every source up, without reading it.

    Raises
    ------
    DataError
        If one does not exist.
    """
    return [
        _examine_remote(str(source), storage_options) if is_url(source) else _examine_local(str(source))
        for source in sources
    ]


def _examine_local(source: str) -> Source:
    path = local_path(source)
    try:
        files = _files(path)
        facts = [file.stat() for file in files]
    except FileNotFoundError:
        raise DataError("there is no such file", file=source, cure="check the path") from None
    except PermissionError as error:
        raise MlfsError(f"{source}: no permission to read it ({error})") from None
    size = sum(fact.st_size for fact in facts)
    modified = max((fact.st_mtime_ns for fact in facts), default=0)
    return Source(source, size, str(modified))


def _examine_remote(source: str, storage_options: Mapping[str, Any] | None) -> Source:
    import fsspec.core  # a local source never needs it

    filesystem, path = fsspec.core.url_to_fs(source, **(storage_options or {}))
    try:
        info = filesystem.info(path)
    except FileNotFoundError:
        raise DataError("there is no such object", file=source, cure="check the URL") from None
    if info["type"] == "directory":
        entries = filesystem.find(path, detail=True).values()
        size = sum(int(entry["size"]) for entry in entries)
        return Source(source, size, str(len(list(entries))))
    marks = (info.get(name) for name in ("ETag", "etag", "mtime", "LastModified", "created"))
    return Source(source, int(info["size"] or 0), str(next((mark for mark in marks if mark), "")))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return [path]


def sha256(source: Source, enough: threading.Event | None = None) -> str | None:
    """SHA-256 of a local file, or of a folder's files in the order of their names.

    None for a remote source, which would be fetched a second time, and once `enough` is set.
    """
    if is_url(source.path):
        return None
    digest = hashlib.sha256()
    buffer = bytearray(_READ_BYTES)
    for path in _files(local_path(source.path)):
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                if enough is not None and enough.is_set():
                    return None
                digest.update(memoryview(buffer)[:got])
    return digest.hexdigest()
