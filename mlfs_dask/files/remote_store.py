"""Stores of objects behind URLs, as obstore has them: S3, GCS, Azure and web servers, and other schemes through fsspec.

No request is repeated here: `access.retried` does that, because it says so and can be stopped, where a client in the
background does neither. Time-outs, pooled connections, uploads in parts and refreshed credentials are obstore's.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

from mlfs_dask.errors import UsageError, require_extra
from mlfs_dask.files.access import CREDENTIALS

WEB = ("http", "https")

#: Seconds in which a server has to accept a connection, and to send the next bytes.
CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0

#: Names of options and variables that say where a server is, which the address of a bucket does not.
_ENDPOINT = re.compile("^(?!.*use_).*(endpoint(_url(_s3)?)?|base_url)$", re.IGNORECASE)

#: Stores by their address, options and settings: their connections are shared by all who read from them.
_stores: dict[str, Any] = {}


def open_store(url: str, options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """Return the store of a URL with the methods of `obstore.store.ObjectStore`, and the path in it. Makes no request.

    Parameters
    ----------
    url : str
    options : mapping, optional
        Of obstore for object stores and web servers, of the file system of fsspec for other schemes.

    Raises
    ------
    UsageError
        obstore is not installed, or does not know an option.
    """
    given, parts = dict(options or {}), urlsplit(url)
    if parts.scheme not in (*WEB, *CREDENTIALS) or "::" in url:
        import fsspec.core  # a local store never needs it

        try:
            filesystem, path = fsspec.core.url_to_fs(url, **given)
        except (ImportError, ValueError) as error:
            cure = "give a local path or a URL such as s3://, gs:// or memory://, and install what fsspec needs for it"
            raise UsageError(f"{url}: {error}\n  cure: {cure}") from error
        return FsspecStore(filesystem), path.rstrip("/")
    if not parts.netloc:
        raise UsageError(f"{url}: the name is missing\n  cure: write it as {parts.scheme}://NAME/PATH")
    address = f"{parts.scheme}://{parts.netloc}"
    # The key of an object is written as it is, the path of a web address percent-encoded.
    path = url.removeprefix(address)
    if parts.scheme in WEB:
        address, path = f"{address}/?{parts.query}" if parts.query else address, unquote(parts.path)
    settings = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    key = repr((address, given, settings, CONNECT_SECONDS, READ_SECONDS))
    if key not in _stores:
        for name, value in {**settings, **given}.items():
            # obstore panics, which is no Exception.
            if _ENDPOINT.search(name) and "://" not in str(value):
                raise UsageError(f"{name} is {value!r}, a URL was expected\n  cure: begin it with https:// or http://")
        _stores[key] = _connect(address, given)
    return _stores[key], path.strip("/")


def _imported(module: str, what: str) -> Any:
    """Import a module that the extra `cloud` installs. Raises UsageError as `require_extra`."""
    require_extra(module.partition(".")[0], what)
    return importlib.import_module(module)


def _connect(address: str, given: dict[str, Any]) -> Any:
    stores = _imported("obstore.store", address)
    scheme, settings = address.partition("://")[0], {**os.environ, **given}
    endpoints = [value for name, value in settings.items() if _ENDPOINT.search(name)]
    emulated = any(name.lower().endswith("use_emulator") for name in settings)
    client = {
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=READ_SECONDS),
        "timeout": timedelta(days=1),  # of a whole request, which takes as long as it has to
        # Where the address or an endpoint says so: a server on https leads to nothing else.
        "allow_http": scheme == "http" or emulated or any("http://" in str(value) for value in endpoints),
        **given.pop("client_options", {}),
    }
    if scheme in ("s3", "s3a"):
        given = {**_profile(), **given}
    make = stores.HTTPStore.from_url if scheme in WEB else stores.from_url
    try:
        return make(address, client_options=client, retry_config={"max_retries": 0}, **given)
    except Exception as error:  # obstore has many of its own
        words = re.sub("^Generic .*? error: ", "", str(error).partition("\n")[0])
        cure = "check the URL and its storage options"
        if scheme in CREDENTIALS:
            cure = f"check the URL and its storage options, and set {CREDENTIALS[scheme]}"
        raise UsageError(f"{address}: {words}\n  cure: {cure}") from error


def _profile() -> dict[str, Any]:
    """Return credentials and region of a profile in ~/.aws, which boto3 reads and obstore does not; nothing without
    one.
    """
    profile = os.environ.get("AWS_PROFILE")
    if "AWS_ACCESS_KEY_ID" in os.environ or not (profile or Path("~/.aws").expanduser().is_dir()):
        return {}
    _imported("boto3", "a profile of ~/.aws")
    try:
        return {"credential_provider": _imported("obstore.auth.boto3", "").Boto3CredentialProvider()}
    except ValueError:  # it has none
        return {}
    except Exception as error:  # of botocore: there is no such profile, or its file is damaged
        cure = "set AWS_PROFILE to one of those that `aws configure list-profiles` names"
        raise UsageError(f"the profile of ~/.aws cannot be used: {error}\n  cure: {cure}") from error


class FsspecStore:
    """A file system of fsspec with those methods of obstore's stores that are used here.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
    """

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def head(self, path: str) -> dict[str, Any]:
        info = self._filesystem.info(path)
        if info["type"] == "directory":
            raise FileNotFoundError(path)
        return _head(path, info)

    def get(self, path: str, *, options: Mapping[str, Any] | None = None) -> Any:
        part = (options or {}).get("range", {"offset": None})
        if isinstance(part, tuple):
            start, end = part
        else:
            start, end = part["offset"] if "offset" in part else -part["suffix"], None
        return SimpleNamespace(meta={}, bytes=lambda: self._filesystem.cat_file(path, start=start, end=end))

    def get_range(self, path: str, *, start: int, end: int) -> bytes:
        return bytes(self._filesystem.cat_file(path, start=start, end=end))

    def list_with_delimiter(self, folder: str | None) -> dict[str, Any]:
        return {"objects": [], "common_prefixes": self._filesystem.ls(folder or "", detail=False)}

    def put(self, path: str, content: bytes | Path, **_: int) -> None:
        self._filesystem.makedirs(self._filesystem._parent(path), exist_ok=True)
        if isinstance(content, Path):
            self._filesystem.put_file(str(content), path)
        else:
            self._filesystem.pipe_file(path, content)

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self._filesystem.rm_file(path)

    async def list(self, folder: str | None) -> AsyncIterator[Any]:
        # What others have written since is not in fsspec's list of a folder that it has seen before.
        self._filesystem.invalidate_cache()
        yield [_head(path, info) for path, info in self._filesystem.find(folder or "", detail=True).items()]


def _head(path: str, info: Mapping[str, Any]) -> dict[str, Any]:
    marks = (info.get(name) for name in ("ETag", "etag", "mtime", "LastModified", "created"))
    return {"path": path, "size": info.get("size"), "e_tag": next((mark for mark in marks if mark), "")}
