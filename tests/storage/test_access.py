"""Errors of file systems, sorted, and requests that are repeated."""

from __future__ import annotations

import errno
import os
import pickle
import random
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, StoreAccessError, StoreNotAllowedError, StoreUnavailableError, UsageError
from mlfs_dask.files import access, remote_store
from mlfs_dask.files.access import access_error, answer, error_words, fault_of, retried
from mlfs_dask.files.object_store import RemoteObjects
from mlfs_dask.files.remote_store import open_store
from tests.cli.web_server import WebFiles, serve


class WithStatus(Exception):
    """As those of web clients: a number in an attribute."""

    def __init__(self, name: str, status: Any) -> None:
        super().__init__("refused")
        setattr(self, name, status)


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (FileNotFoundError("x"), "absent"),
        (NotADirectoryError("x"), "absent"),
        (WithStatus("status", 404), "absent"),
        (PermissionError("x"), "not allowed"),
        (WithStatus("status", 403), "not allowed"),
        (WithStatus("code", "401"), "not allowed"),
        (WithStatus("status", 503), "unavailable"),
        (WithStatus("status_code", 429), "unavailable"),
        (TimeoutError(), "unavailable"),
        (ConnectionResetError("x"), "unavailable"),
        (socket.gaierror(socket.EAI_AGAIN, "no name server"), "unavailable"),
        (OSError(errno.EBUSY, "Please reduce your request rate"), "unavailable"),
        (OSError(errno.ESTALE, "Stale file handle"), "unavailable"),
        # What fsspec says of a web server that refuses to tell of an object.
        (caused(FileNotFoundError("http://x"), WithStatus("status", 503)), "unavailable"),
        (caused(FileNotFoundError("http://x"), WithStatus("status", 418)), None),
        (caused(FileNotFoundError("http://x"), ConnectionRefusedError("x")), "unavailable"),
        (OSError(errno.EIO, "Input/output error"), None),
        (OSError(errno.EMFILE, "Too many open files"), None),
        (ValueError("wrong checksum"), None),
        (WithStatus("status", 416), "shorter"),
    ],
)
def test_errors_are_sorted(error: BaseException, fault: str | None) -> None:
    assert fault_of(error) == fault


def of_obstore(name: str, *lines: str) -> BaseException:
    """As obstore 0.12 raises it: a line that is meant to be read, and all that it knows behind that."""
    exceptions = pytest.importorskip("obstore.exceptions", reason="obstore is not installed (extra `cloud`)")
    error: BaseException = getattr(exceptions, name)("\n".join(lines))
    return error


def test_errors_of_obstore_are_sorted() -> None:
    sent = "Generic HTTP error: Error performing GET http://h/t in 1ms - "
    refused = f"{sent}Server returned non-2xx status code: "
    debug = "\nDebug source:\nGeneric {\n  source: RetryError(\n    inner: Http(\n      HttpError {\n        "
    imds = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 2s - timed out"
    for error, fault, words in (
        (of_obstore("GenericError", f"{refused}503 Service Unavailable: <html>", "</html>"), "unavailable", "503 Serv"),
        (
            of_obstore("GenericError", f"{refused}503 Slow Down: <Code>S</Code><Message>Slower</Message>"),
            "unavailable",
            "503 Slow Down: Slower",
        ),
        (of_obstore("PermissionDeniedError", f"no privileges for t: {refused}403 Forbidden: "), "not allowed", "403 F"),
        (of_obstore("GenericError", f"{refused}416 Range Not Satisfiable: "), "shorter", "416 Range"),
        (of_obstore("GenericError", f"{refused}418 I'm a teapot: "), None, "418 I'm"),
        (
            of_obstore("GenericError", f"{sent}no", debug, 'kind: Connect, message: "Connection refused"'),
            "unavailable",
            "Conn",
        ),
        (of_obstore("GenericError", f"{sent}no", debug, "kind: Timeout,"), "unavailable", "timed out"),
        (of_obstore("GenericError", f"{sent}no", debug, "kind: Interrupted,"), "unavailable", "the connection was cut"),
        (of_obstore("GenericError", imds), "not allowed", "no credentials are set"),
        (of_obstore("InvalidPathError", 'Path "a//b"', "", "Debug source:", "x"), None, 'Path "a//b"'),
    ):
        assert fault_of(error) == fault, error
        assert error_words(error).startswith(words)


def test_what_is_said() -> None:
    refused = access_error("s3://b/t.zarr", caused(PermissionError(), WithStatus("status", 403)))
    assert type(refused) is StoreNotAllowedError
    assert str(refused).startswith(
        "s3://b/t.zarr: no permission to read it (403 refused)\n  cure: check what your credentials for the URL allow, "
        "on every host that reads it; or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
    assert str(access_error("my:t.zarr", PermissionError("Permission denied"))).endswith(
        "cure: check owner and mode of its files and folders, on every host that reads it"
    )
    busy = access_error("s3://b/t.zarr", OSError(errno.EBUSY, "Slow down")).with_detail("in partition 3")
    assert type(busy) is StoreUnavailableError
    assert str(busy).startswith(
        "s3://b/t.zarr: it does not answer: Slow down, in partition 3\n  cure: check the network"
    )
    full = access_error("t.zarr", OSError(errno.EMFILE, "Too many open files", "t.zarr/X/c/0"))
    assert type(full) is StoreAccessError
    assert str(full).startswith("t.zarr: t.zarr/X/c/0 cannot be read: Too many open files\n  cure: raise the limit")
    written = access_error("s3://b/run", PermissionError("Access Denied"), verb="write")
    assert "no permission to write it (Access Denied)" in str(written)
    invalid = access_error("s3://B/t.zarr", ValueError('Parameter validation failed:\nInvalid bucket name "B"'))
    assert str(invalid) == (
        's3://B/t.zarr: it cannot be read: Parameter validation failed: Invalid bucket name "B"'
        "\n  cure: check the URL, the network and the server"
    )
    for error in (refused, busy, full):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
        assert again.exit_code == 1


def test_what_a_newcomer_to_an_object_store_has_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server in the words of S3 and Azure; and settings that obstore or boto3 refuse before any request."""
    pytest.importorskip("obstore", reason="obstore is not installed (extra `cloud`)")
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")  # is not of object stores
    monkeypatch.setattr(remote_store, "_stores", {})
    answer: list[tuple[int, str]] = []

    class Answers(WebFiles):
        def do_GET(self) -> None:
            status, words = answer[0]
            code, _, message = words.partition(": ")
            body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    credentials = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    with serve(tmp_path, Answers) as address:
        for status, words, kind, said, cure in (
            (301, "PermanentRedirect: use", StoreAccessError, "another region", "curl -sI https://b.s3.amazonaws.com`"),
            (400, "A: the region 'x' is wrong; expecting 'eu-west-1'", StoreAccessError, "", "AWS_REGION to eu-west-1"),
            (400, "ExpiredToken: no", StoreNotAllowedError, "(the credentials have expired)", "aws sso login"),
            (
                400,
                "Odd: no",
                StoreAccessError,
                "400 Bad Request: no",
                "the region, the endpoint and the credentials: AWS",
            ),
            (403, "RequestTimeTooSkewed: no", StoreNotAllowedError, "the clock of this machine", "set the clock"),
            (403, "InvalidAccessKeyId: no key", StoreNotAllowedError, "(403 Forbidden: no key)", "AWS_SKIP_SIGNATURE"),
            (404, "NoSuchBucket: no", StoreAccessError, "there is no bucket", "check the name, and the account"),
            (404, "ContainerNotFound: no", StoreAccessError, "there is no bucket", "check the name, and the account"),
            (404, "NoSuchKey: no", FileNotFoundError, "no such object", ""),
        ):
            answer[:] = [(status, words)]
            with pytest.raises(kind) as caught:
                RemoteObjects("s3://b/t.zarr", {"endpoint": address, **credentials}).read("zarr.json")
            assert type(caught.value) is kind
            assert said in str(caught.value)
            assert cure in str(caught.value).partition("cure: ")[2]
        secure = {"endpoint": address.replace("http", "https"), **credentials}
        with pytest.raises(StoreAccessError, match="without TLS\n  cure: begin the address with http://"):
            RemoteObjects("s3://b/t.zarr", secure).read("zarr.json")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9000")
    with pytest.raises(UsageError, match=r"AWS_ENDPOINT_URL is '127.0.0.1:9000', a URL was expected\n  cure: begin it"):
        RemoteObjects("s3://b/t.zarr")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    for url, said in (
        ("s3://", "s3://: the name is missing\n  cure: write it as s3://NAME/PATH"),
        (
            "az://c/t.zarr",
            "az://c: Account must be specified\n  cure: check the URL and its storage options, and set AZURE",
        ),
        ("s4://b/t.zarr", "s4://b/t.zarr: Protocol not known: s4\n  cure: give a local path or a URL such as s3://"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            RemoteObjects(url)
    pytest.importorskip("boto3", reason="boto3 is not installed (extra `cloud`)")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(UsageError, match=r"profile \(nobody\) could not be found\n  cure: set AWS_PROFILE to one of"):
        RemoteObjects("s3://b/t.zarr")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The longest pauses that were drawn from; time passes by them alone."""
    drawn: list[float] = []
    now = 0.0

    def draw(low: float, high: float) -> float:
        assert low == 0
        drawn.append(high)
        return high

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(random, "uniform", draw)
    monkeypatch.setattr(access.time, "sleep", sleep)
    monkeypatch.setattr(access.time, "monotonic", lambda: now)
    return drawn


def failing(*errors: Exception) -> Any:
    left = iter(errors)

    def action() -> str:
        for error in left:
            raise error
        return "read"

    return action


def test_a_server_that_refuses_for_a_while(
    pauses: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_warned_at", -runtime.WARNING_SECONDS)
    busy = [WithStatus("status", 503)] * 6
    assert retried(failing(*busy), "s3://b/t.zarr") == "read"
    assert pauses == [0.5, 1, 2, 4, 8, 10], "the bound doubles, up to the longest pause"
    assert "s3://b/t.zarr: 503 refused; asked again for up to 60 s" in caplog.text
    assert len(caplog.records) == 2, "one in ten seconds"


def test_a_server_that_refuses_for_good(pauses: list[float]) -> None:
    with pytest.raises(StoreUnavailableError, match=r"it does not answer: 503 refused, asked again for 6[0-9] s"):
        retried(failing(*[WithStatus("status", 503)] * 99), "s3://b/t.zarr")
    assert 60 <= sum(pauses) <= 70


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("error", [FileNotFoundError("x"), PermissionError("x"), DataError("x"), ValueError("x")])
def test_what_is_not_repeated(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        retried(failing(error), "s3://b/t.zarr")
    assert caught.value is error


def test_what_is_absent_keeps_nothing_else_from_being_removed() -> None:
    objects = RemoteObjects("memory://removal")
    for key in ("a", "b/c"):
        objects.write(key, b"1")
    objects.remove("absent", *objects.sizes())
    assert objects.sizes() == {}


def test_what_is_asked_again_has_no_secret(
    pauses: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_warned_at", -runtime.WARNING_SECONDS)
    retried(failing(WithStatus("status", 503)), "https://host/t.csv?signature=5f2e")
    assert "https://host/t.csv?signature=***: 503 refused" in caplog.text


def test_answers_are_sorted(pauses: list[float]) -> None:
    for error, kind in (
        (caused(FileNotFoundError(), WithStatus("status", 404)), FileNotFoundError),
        (caused(FileNotFoundError(), WithStatus("status", 403)), StoreNotAllowedError),
        (IsADirectoryError(), IsADirectoryError),
        (ValueError("no ranges"), StoreAccessError),
    ):
        with pytest.raises(kind) as caught:
            answer(failing(error), "https://host/t.csv")
        assert type(caught.value) is kind


@pytest.mark.parametrize(("endpoint", "plain"), [(None, "false"), ("https://host", "false"), ("http://host", "true")])
def test_only_an_endpoint_without_tls_has_requests_without_it(
    endpoint: str | None, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redirect is such a request."""
    monkeypatch.setattr("os.environ", {} if endpoint is None else {"AWS_ENDPOINT_URL": endpoint})
    options = {"region": "us-east-1", "skip_signature": "true"}
    assert open_store("s3://bucket/x", options)[0].client_options["allow_http"] == plain
