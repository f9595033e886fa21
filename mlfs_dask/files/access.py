"""Refused access to files and objects: absent, not allowed, or unavailable for a while.

Every client has errors of its own; here they are sorted. What a server refuses for a while (it is throttled, it is
restarted, a connection was cut) is asked again with exponential backoff and full jitter.

References
----------
Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog (2015).
"""

from __future__ import annotations

import errno
import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

from mlfs_dask import runtime
from mlfs_dask.errors import (
    TOO_MANY_FILES,
    TOO_MANY_FILES_CURE,
    DataError,
    MlfsError,
    StoreAccessError,
    StoreNotAllowedError,
    StoreUnavailableError,
)
from mlfs_dask.redaction import redact

_T = TypeVar("_T")

Fault = Literal["absent", "not allowed", "unavailable", "shorter", "setting"]

#: Seconds for which a server that refuses is asked again.
RETRY_SECONDS = 60.0

#: Longest pause before the second request, and before any other one.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0

NO_RANGES = "this web server has no range requests, and parts of the files have to be read"
NO_RANGES_CURE = (
    "use a server that has them (nginx, Apache, an object store), or copy to disk what is there; a source can come "
    "from standard input, too (curl URL | mlfs convert - STORE)"
)

_FAULT_OF_STATUS: dict[int, Fault] = {
    **dict.fromkeys((401, 403, 407), "not allowed"),
    **dict.fromkeys((404, 410), "absent"),
    416: "shorter",  # than what was asked for
    **dict.fromkeys((408, 425, 429, 500, 502, 503, 504), "unavailable"),
}

_UNAVAILABLE = frozenset(
    {
        errno.EBUSY,
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

#: What obstore's errors say behind their first line: the answer of the server, or why there was none.
_STATUS = re.compile(r"Server returned non-2xx status code: ((\d{3})[^:\n]*)")
_NO_ANSWER = re.compile(r'HttpError \{(?:.*(?:message|error): "([^"]+)"|.*kind: (Timeout))?', re.DOTALL)

_AMAZON = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for a public bucket AWS_SKIP_SIGNATURE=true"
_GOOGLE = (
    "GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`; "
    "for a public bucket set GOOGLE_SKIP_SIGNATURE=true"
)
_AZURE = (
    "AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN; "
    "for a public container AZURE_SKIP_SIGNATURE=true"
)
#: Schemes of object stores, and the variables that give access to them.
CREDENTIALS = {
    **dict.fromkeys(("s3", "s3a"), _AMAZON),
    "gs": _GOOGLE,
    **dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), _AZURE),
}

#: What servers and obstore say where a setting is missing or wrong; the fault, what is wrong, and what to do.
#: The machines of clouds give credentials at 169.254.169.254, which are asked for where no others are set.
_SETTINGS: tuple[tuple[str, Fault, str, str], ...] = (
    (r"//169\.254\.169\.254|//metadata\.google", "not allowed", "no credentials are set", "set {credentials}"),
    (
        r"<Code>(?:ExpiredToken|TokenRefreshRequired)|[Tt]oken has expired",
        "not allowed",
        "the credentials have expired",
        "renew them (`aws sso login`, a new AWS_SESSION_TOKEN), on every host that uses them",
    ),
    (r"<Code>RequestTimeTooSkewed", "not allowed", "the clock of this machine is wrong", "set the clock"),
    (
        r"region '[^']*' is wrong; expecting '([^']+)",
        "setting",
        "its bucket is in another region",
        "set AWS_REGION to {}",
    ),
    (
        r"redirect without LOCATION",
        "setting",
        "its bucket is in another region",
        "set AWS_REGION to the one that `curl -sI https://{bucket}.s3.amazonaws.com` shows as x-amz-bucket-region",
    ),
    (
        r"<Code>(?:NoSuchBucket|ContainerNotFound)|specified (?:bucket|container) does not exist",
        "setting",
        "there is no bucket, or container, of this name",
        "check the name, and the account and endpoint that are set",
    ),
    (r"InvalidContentType", "setting", "its server answers without TLS", "begin the address with http://"),
    (
        r"InvalidCertificate",
        "setting",
        "the certificate of its server is not trusted",
        "set SSL_CERT_FILE to a file of the certificates that signed it",
    ),
)


def _setting_of(error: BaseException, store: str = "") -> tuple[Fault, str, str] | None:
    """Return the fault, the problem and the cure of an error about a missing or wrong setting."""
    for pattern, fault, problem, cure in _SETTINGS:
        if found := re.search(pattern, _obstore_text(error)):
            scheme, _, path = store.partition("://")
            words = {"bucket": path.partition("/")[0], "credentials": CREDENTIALS.get(scheme, "")}
            return fault, problem, cure.format(*found.groups(), **words)
    return None


def fault_of(error: BaseException) -> Fault | None:
    """Return the kind of fault that a client's error means; None for other errors, such as damage.

    The cause counts before the error that was raised from it: fsspec calls a web server that refuses "not found".
    """
    refused = False
    for each in _causes(error):
        if setting := _setting_of(each):
            return setting[0]
        status = http_status(each) or 0
        fault = _FAULT_OF_STATUS.get(status)
        if fault is not None:
            return fault
        refused = refused or status >= 400
        if isinstance(each, PermissionError) or type(each).__name__ == "UnauthenticatedError":  # of obstore
            return "not allowed"
        if isinstance(each, FileNotFoundError | NotADirectoryError) and not refused:
            return "absent"
        if isinstance(each, TimeoutError | ConnectionError | socket.gaierror) or _NO_ANSWER.search(_obstore_text(each)):
            return "unavailable"
        if isinstance(each, OSError) and each.errno in _UNAVAILABLE:
            return "unavailable"
    return None


def _obstore_text(error: BaseException) -> str:
    """Return all that an error of obstore says; "" of any other."""
    return str(error) if type(error).__module__.startswith("obstore") or "Debug source" in str(error) else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, the first cause first."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:  # an error that was raised again may stand behind itself
        chain.append(cause)
        cause = cause.__cause__
    return reversed(chain)


def http_status(error: BaseException) -> int | None:
    """Return the status of the answer of a server, as obstore and clients of fsspec have it."""
    if found := _STATUS.search(_obstore_text(error)):
        return int(found[2])
    for name in ("status", "status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int | str) and str(value).isdigit():
            return int(value)
    return None


def error_words(error: BaseException) -> str:
    """Return the message of the first cause of an error, in one line."""
    first = next(_causes(error))
    if told := _obstore_text(first):
        if setting := _setting_of(first):
            return setting[1]
        if status := _STATUS.search(told):
            message = re.search(r"<Message>([^<\n]*)", told)  # of S3 and Azure
            return f"{status[1]}: {message[1]}" if message else status[1]
        if silence := _NO_ANSWER.search(told):
            return silence[1] or ("timed out" if silence[2] else "the connection was cut")
        return " ".join(told.partition("Debug source:")[0].split())
    text = " ".join(str(getattr(first, "strerror", None) or first).split()) or type(first).__name__
    status_code = http_status(first)
    return text if status_code is None or str(status_code) in text else f"{status_code} {text}"


def access_error(store: str, error: BaseException, *, verb: Literal["read", "write"] = "read") -> StoreAccessError:
    """Return the error for a refused or failed access (not for damaged data)."""
    fault, scheme = fault_of(error), store.partition("://")[0] if "://" in store else ""
    credentials = CREDENTIALS.get(scheme)
    settings = (_setting_of(each, store) for each in _causes(error))
    _, problem, cure = next(filter(None, settings), ("", "", ""))
    if fault == "setting":
        return StoreAccessError(store, problem, cure)
    if fault == "not allowed":
        if not cure:
            what = "what your credentials for the URL allow" if scheme else "owner and mode of its files and folders"
            cure = f"check {what}, on every host that {verb}s it" + (f"; or set {credentials}" if credentials else "")
        problem = f"no permission to {verb} {getattr(error, 'filename', None) or f'it ({error_words(error)})'}"
        return StoreNotAllowedError(store, problem, cure)
    if fault == "unavailable":
        return StoreUnavailableError(
            store,
            f"it does not answer: {error_words(error)}",
            "check the network, the server and its address, and how many requests it allows (fewer workers make fewer)",
        )
    cure = "check the URL, the network and the server" if scheme else "check the disk"
    if credentials and http_status(error) == 400:  # an answer to HEAD does not say what is wrong
        cure = f"check the URL, the region, the endpoint and the credentials: {credentials}"
    if getattr(error, "errno", None) in TOO_MANY_FILES:
        cure = TOO_MANY_FILES_CURE
    cannot = "cannot be read" if verb == "read" else "cannot be written"
    return StoreAccessError(store, f"{getattr(error, 'filename', None) or 'it'} {cannot}: {error_words(error)}", cure)


def retried(action: Callable[[], _T], store: str) -> _T:
    """Return the result of a request, which is repeated as long as the server is unavailable, for `RETRY_SECONDS`.

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
        except MlfsError:
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
    """Return the answer to a request, which is repeated while the server is unavailable (`retried`).

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
        The object is shorter than it was, or its server has no range requests.
    StoreAccessError
        The server does not answer, does not allow it, or has another error.
    """
    try:
        return retried(request, place)
    except (MlfsError, IsADirectoryError, runtime.StoppedError):
        raise
    except Exception as error:  # every file system has errors of its own
        fault = fault_of(error)
        if fault == "absent":
            raise FileNotFoundError(errno.ENOENT, "no such object", place) from error
        if fault == "shorter":
            raise DataError(
                f"an object is too short, or was changed while it was read: {error_words(error)}",
                file=place,
                cure="restore a copy, or run the command again once nothing writes there",
            ) from error
        if "Range request not supported" in error_words(error):  # obstore
            raise DataError(NO_RANGES, file=place, cure=NO_RANGES_CURE) from error
        raise access_error(place, error, verb=verb) from error
