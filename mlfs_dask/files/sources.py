"""Source files as facts: what was read, and whether it is still the same."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlfs_dask.errors import DataError, StoreNotAllowedError
from mlfs_dask.files.compressed_io import PIECE_BYTES
from mlfs_dask.files.object_store import (
    AGAIN,
    ZARR_ROOTS,
    RemoteObjects,
    expand,
    is_url,
    is_web,
    local_path,
    open_file,
)


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
    """Look every source up, without reading it; a `*` in a path that does not exist as it stands is expanded.

    Raises
    ------
    DataError
        If one does not exist.
    """
    found: list[Source] = []
    for source in map(str, sources):
        if is_url(source):
            found += _examine_remote(source, storage_options)
        elif "*" in source and not local_path(source).exists():
            found += [_examine_local(file) for file in expand(source)]
        else:
            found.append(_examine_local(source))
    return found


def require_unchanged(sources: Sequence[Source], storage_options: Mapping[str, Any] | None = None) -> None:
    """Raise DataError for a source that is no longer what `examine` saw, after it was read."""
    for source in sources:
        if examine([source.path], storage_options) != [source]:
            raise DataError(
                "it was changed or replaced while it was read",
                file=source.path,
                cure=AGAIN,
            )


def _examine_local(source: str) -> Source:
    path = local_path(source)
    try:
        files = _files(path)
        facts = [file.stat() for file in files]
    except FileNotFoundError:
        raise DataError("there is no such file", file=source, cure="check the path") from None
    except PermissionError as error:
        raise StoreNotAllowedError(
            source, "no permission to read it", f"check owner and mode of the file ({error})"
        ) from None
    size = sum(fact.st_size for fact in facts)
    modified = max((fact.st_mtime_ns for fact in facts), default=0)
    return Source(source, size, str(modified))


def _examine_remote(source: str, storage_options: Mapping[str, Any] | None) -> list[Source]:
    if "*" in source:
        return [each for url in expand(source, storage_options) for each in _examine_remote(url, storage_options)]
    objects = RemoteObjects(source, storage_options)
    refusal: StoreNotAllowedError | None = None
    # A web server knows files alone, and may not show a folder; a store is known by its root.
    for key in ("", *(ZARR_ROOTS if is_web(source) else ())):
        try:
            if (head := objects.head(key)) is not None:
                return [Source(source, head["size"] or 0, _mark(head))]
        except StoreNotAllowedError as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    if not (heads := objects.heads()):
        raise DataError("there is no such object", file=source, cure="check the URL")
    marks = sorted(f"{key} {_mark(head)}" for key, head in heads.items())
    digest = hashlib.sha256("\n".join(marks).encode()).hexdigest()
    return [Source(source, sum(head["size"] or 0 for head in heads.values()), digest)]


def _mark(head: Mapping[str, Any]) -> str:
    """Return the mark that changes with the content of an object; "" if the server has none."""
    return str(head["e_tag"] or head.get("last_modified", ""))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return [path]


def sha256(source: Source, enough: threading.Event | None = None) -> str | None:
    """Return SHA-256 of a local file, or of a folder's files in the order of their names.

    None for a remote source, which would be fetched a second time, and once `enough` is set.
    """
    if is_url(source.path):
        return None
    digest = hashlib.sha256()
    buffer = bytearray(PIECE_BYTES)
    for path in _files(local_path(source.path)):
        with os.fdopen(open_file(path), "rb", buffering=0) as file:
            while got := file.readinto(buffer):
                if enough is not None and enough.is_set():
                    return None
                digest.update(memoryview(buffer)[:got])
    return digest.hexdigest()
