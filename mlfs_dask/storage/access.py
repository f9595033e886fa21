"""What keeps a file or an object from being read or written: it is absent, not allowed, or unavailable for a while.

Every file system has errors of its own; here they are sorted. What a server refuses for a while (it is throttled, it is
restarted, a connection was cut) is asked again with exponential backoff and full jitter.

References
----------
Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog (2015).
"""

from __future__ import annotations

import contextlib
import errno
import io
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from mlfs_dask import runtime
from mlfs_dask.errors import (
    TOO_MANY_FILES,
    TOO_MANY_FILES_CURE,
    DataError,
    StoreAccessError,
    StoreNotAllowedError,
    StoreUnavailableError,
)
from mlfs_dask.files.redaction import redact

_T = TypeVar("_T")

Fault = Literal["absent", "not allowed", "unavailable", "shorter"]

#: Seconds for which a server that refuses is asked again.
RETRY_SECONDS = 60.0

#: Longest pause before the second request, and before any other one.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0

NO_RANGES = "this web server has no range requests, and parts of the files have to be read"
NO_RANGES_CURE = (
    "use a server that has them (nginx, Apache, an object store), or copy to disk what is there; a source can come "
    "from standard input, too (curl URL | mlfs convert - STORE)"
)

#: Seconds in which a web server has to accept a connection, and to send the next bytes.
CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0

_FAULT_OF_STATUS: dict[int, Fault] = {
    **dict.fromkeys((401, 403, 407), "not allowed"),
    **dict.fromkeys((404, 410), "absent"),
    416: "shorter",  # than what was asked for
    **dict.fromkeys((408, 425, 429, 500, 502, 503, 504), "unavailable"),
}

_UNAVAILABLE = frozenset(
    {
        errno.EBUSY,  # s3fs, of SlowDown
        errno.EREMOTEIO,  # s3fs, of InternalError
        errno.EAGAIN,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)

#: Classes of client libraries that are not loaded here, by name: connections that were refused, cut or too slow.
_UNAVAILABLE_CLASSES = frozenset(
    {
        "ClientConnectionError",  # aiohttp
        "ClientPayloadError",
        "HTTPClientError",  # botocore
        "IncompleteReadError",
        "EndpointConnectionError",
        "gaierror",  # a name that cannot be resolved
    }
)

_NOT_ALLOWED_CLASSES = frozenset({"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"})


def fault_of(error: BaseException) -> Fault | None:
    """What an error of a file system says; None where it says something else, such as damage.

    The cause counts before the error that was raised from it: fsspec calls a web server that refuses "not found".
    """
    refused = False
    for each in _causes(error):
        classes = {kind.__name__ for kind in type(each).__mro__}
        status = _http_status(each) or 0
        fault = _FAULT_OF_STATUS.get(status)
        if fault is not None:
            return fault
        refused = refused or status >= 400
        if isinstance(each, PermissionError) or classes & _NOT_ALLOWED_CLASSES:
            return "not allowed"
        if isinstance(each, FileNotFoundError | NotADirectoryError) and not refused:
            return "absent"
        if isinstance(each, TimeoutError | ConnectionError) or classes & _UNAVAILABLE_CLASSES:
            return "unavailable"
        if isinstance(each, OSError) and each.errno in _UNAVAILABLE:
            return "unavailable"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from, the first cause first."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:  # an error that was raised again may stand behind itself
        chain.append(cause)
        cause = cause.__cause__
    return reversed(chain)


def _http_status(error: BaseException) -> int | None:
    """Status of the answer of a server, as aiohttp, gcsfs, Azure's client and botocore have it."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    for name in ("status", "status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int | str) and str(value).isdigit():
            return int(value)
    return None


def error_words(error: BaseException) -> str:
    """What the first cause of an error says, in one line."""
    first = next(_causes(error))
    text = " ".join(str(getattr(first, "strerror", None) or first).split()) or type(first).__name__
    status = _http_status(first)
    return text if status is None or str(status) in text else f"{status} {text}"


def access_error(store: str, error: BaseException, *, verb: Literal["read", "write"] = "read") -> StoreAccessError:
    """What is said where the system or a server, and no damage, keeps a store from being read or written."""
    fault = fault_of(error)
    if fault == "not allowed":
        return StoreNotAllowedError(
            store,
            f"no permission to {verb} {getattr(error, 'filename', None) or f'it ({error_words(error)})'}",
            "check owner and mode of its files and folders, or your credentials for the URL, on every host that "
            f"{verb}s it",
        )
    if fault == "unavailable":
        return StoreUnavailableError(
            store,
            f"it does not answer: {error_words(error)}",
            "check the network, the server, and how many requests it allows (fewer workers make fewer)",
        )
    if "range requests" in error_words(error):  # fsspec
        return StoreAccessError(store, NO_RANGES, NO_RANGES_CURE)
    cure = "check the URL, the network and the server" if "://" in store else "check the disk"
    if getattr(error, "errno", None) in TOO_MANY_FILES:
        cure = TOO_MANY_FILES_CURE
    cannot = "cannot be read" if verb == "read" else "cannot be written"
    return StoreAccessError(store, f"{getattr(error, 'filename', None) or 'it'} {cannot}: {error_words(error)}", cure)


def retried(action: Callable[[], _T], store: str) -> _T:
    """The result of a request, which is repeated as long as the server is unavailable, for `RETRY_SECONDS`.

    Parameters
    ----------
    action : callable
    store : str
        What messages call it.

    Raises
    ------
    StoreUnavailableError
        The time is over. Any other error of `action` is raised as it is.
    """
    started, pause = time.monotonic(), FIRST_PAUSE
    while True:
        try:
            return action()
        except StoreAccessError:
            raise
        except Exception as error:
            if fault_of(error) != "unavailable":
                raise
            seconds = time.monotonic() - started
            if seconds >= RETRY_SECONDS:
                raise access_error(store, error).with_detail(f"asked again for {seconds:.0f} s") from error
            # A process of a conversion has no handler of ours, which would redact it.
            said = f"{redact(store)}: {redact(error_words(error))}"
            runtime.warn_from_task(f"{said}; asked again for up to {RETRY_SECONDS:g} s")
        runtime.pause(random.uniform(0, pause))
        pause = min(2 * pause, LONGEST_PAUSE)


def answer(request: Callable[[], _T], place: str, *, verb: Literal["read", "write"] = "read") -> _T:
    """The answer to a request, which is repeated while the server is unavailable (`retried`).

    Parameters
    ----------
    request : callable
    place : str
        What messages call it.
    verb : {"read", "write"}

    Raises
    ------
    FileNotFoundError, IsADirectoryError
    DataError
        The object is shorter than it was.
    StoreAccessError
        The server does not answer, does not allow it, or has another error.
    """
    try:
        return retried(request, place)
    except (StoreAccessError, IsADirectoryError, runtime.StoppedError):
        raise
    except Exception as error:  # every file system has errors of its own
        fault = fault_of(error)
        if fault == "absent":
            raise FileNotFoundError(errno.ENOENT, "no such object", place) from error
        if fault == "shorter":
            raise DataError(
                f"an object is shorter than it has to be, or was changed while it was read: {error_words(error)}",
                file=place,
                cure="restore a copy, or run the command again once nothing writes there",
            ) from error
        raise access_error(place, error, verb=verb) from error


def open_remote(url: str, options: Mapping[str, Any] | None = None) -> RemoteFile:
    """A file at a URL, for reading.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
    StoreAccessError
    """
    filesystem, path = file_system(url, options)
    return RemoteFile(answer(lambda: filesystem.open(path, "rb"), url), url)


class RemoteFile(io.RawIOBase):
    """A file that is read in any order. Each of its reads is repeated while the server is unavailable (`answer`).

    Parameters
    ----------
    file : file of fsspec
        It moves on when it has what was asked for: after an error the same bytes are asked for again.
    url : str
    """

    def __init__(self, file: Any, url: str) -> None:
        self._file = file
        self._url = url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, size: int = -1, /) -> bytes:
        return bytes(answer(lambda: self._file.read(size), self._url))

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        return int(answer(lambda: self._file.readinto(buffer), self._url))

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def file_system_options(url: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of the file system of a URL: those given, and where they say nothing, ours for time-outs.

    botocore asks again for half a minute without a word, and a web server may take five minutes for every answer.
    """
    given = dict(options or {})
    protocol = url.partition("://")[0]
    if protocol in ("s3", "s3a"):
        given["config_kwargs"] = {"retries": {"total_max_attempts": 1}, **given.get("config_kwargs", {})}
    elif protocol in ("http", "https"):
        with contextlib.suppress(ImportError):  # fsspec says it with its cure
            import aiohttp

            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
            given["client_kwargs"] = {"timeout": timeout, **given.get("client_kwargs", {})}
    return given


def file_system(url: str, options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    import fsspec.core  # a local store never needs it

    filesystem, path = fsspec.core.url_to_fs(url, **file_system_options(url, options))
    return filesystem, path.rstrip("/")
