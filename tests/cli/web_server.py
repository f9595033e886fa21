"""A web server of the loopback interface that serves a folder, and one that refuses now and then."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal


class WebFiles(http.server.SimpleHTTPRequestHandler):
    """Files of a folder; a part of one where it is asked for. With `tags` the content of a file has an ETag."""

    tags = False

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if asked is None or not path.is_file():
            super().do_GET()
            return
        content = path.read_bytes()
        first, last = asked.groups()
        start = int(first) if first else len(content) - int(last)
        stop = min(int(last) + 1, len(content)) if first and last else len(content)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        self.wfile.write(content[start:stop])

    def end_headers(self) -> None:
        with contextlib.suppress(OSError):
            if self.tags:
                self.send_header("ETag", f'"{hash(Path(self.translate_path(self.path)).read_bytes())}"')
        super().end_headers()

    def list_directory(self, path: Any) -> None:
        self.send_error(403, "no listing")


class EndlessList(WebFiles):
    """An S3 server without objects, whose lists go on for ever: page after page of `content`."""

    content = ""
    pages = 0

    def send_page(self) -> None:
        if "list-type" not in self.path:
            self.send_error(404)
            return
        type(self).pages += 1
        content = "".join(
            f"<Contents><Key>{key.format(self.pages)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            '<ETag>"e"</ETag><Size>1</Size></Contents>'
            for key in self.content.split()
        )
        page = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{self.pages}</NextContinuationToken>{content}"
        answer = f'<?xml version="1.0"?><ListBucketResult>{page}</ListBucketResult>'.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_HEAD = send_page


class Replaced(WebFiles):
    """Files of a folder, and after so many requests those of the folder `after` beside it."""

    left = 0
    tags = True

    def translate_path(self, path: str) -> str:
        found = Path(super().translate_path(path))
        return str(found if type(self).left > 0 else found.parent.parent / "after" / found.name)

    def parse_request(self) -> bool:
        type(self).left -= 1
        return super().parse_request()


class WholeFiles(WebFiles):
    """A server without range requests."""

    do_GET = http.server.SimpleHTTPRequestHandler.do_GET


Refusal = int | Literal["reset", "hang"]


class Refusals:
    """What a server answers instead of objects: for keys that end so, a status, a closed connection, or nothing.

    Attributes
    ----------
    planned : dict
        Ending of a key -> what its next requests get, in order; None: an answer.
    asked, given : int
        How many requests there were for such keys, and how many refusals.
    """

    def __init__(self, planned: dict[str, Iterable[Refusal | None]] | None = None) -> None:
        self.planned: dict[str, Iterator[Refusal | None]] = {
            ending: iter(refusals) for ending, refusals in (planned or {}).items()
        }
        self.asked = self.given = 0
        self.ended = threading.Event()

    def next(self, path: str) -> Refusal | None:
        """The refusal of a request."""
        for ending, refusals in self.planned.items():
            if path.endswith(ending):
                self.asked += 1
                refusal = next(refusals, None)
                self.given += refusal is not None
                return refusal
        return None

    def handler(self) -> type[WebFiles]:
        """A server that refuses so. What is asked of the headers alone (HEAD) is answered."""
        refusals = self

        class Refusing(WebFiles):
            def do_GET(self) -> None:
                refusal = refusals.next(self.path)
                if refusal is None:
                    super().do_GET()
                elif refusal == "hang":
                    refusals.ended.wait(20)
                elif refusal == "reset":
                    # Zero seconds of lingering: the connection is reset, not closed.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                else:
                    self.send_error(refusal)

        return Refusing


@contextlib.contextmanager
def serve(folder: Path, handler: type[WebFiles] = WebFiles) -> Iterator[str]:
    """Serve a folder inside the with-block; gives the address."""

    def handle(*args: Any) -> WebFiles:
        return handler(*args, directory=str(folder))

    with _running(handle) as address:
        yield address


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # of five, those that a client opens at the same time would wait for a second


@contextlib.contextmanager
def _running(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
