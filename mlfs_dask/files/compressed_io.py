"""Open a local file or a URL as plain bytes, whatever it is compressed with.

`open_source(path)` looks at the first bytes and answers with a small picklable `SourceFile`: its size, its
compression (gzip, xz, bzip2, Zstandard), whether it can be entered in the middle, and `open(offset)`, a buffered
binary stream of the uncompressed bytes. A missing, unreadable, truncated or damaged file is a `DataError` naming
the file, raised where it is noticed: by `open_source`, or by a later `read` of the stream. Nothing is ever
decompressed as a whole.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from mlfs_dask.errors import DataError, MlfsError, StoreNotAllowedError
from mlfs_dask.files.object_store import RemoteObjects, is_url, local_path, open_binary

#: What libraries raise over damaged content, in which anything can stand in the place of anything else.
DAMAGE = (
    OSError,
    ValueError,
    RuntimeError,
    ArithmeticError,
    LookupError,
    TypeError,
    AttributeError,
    SyntaxError,
    SystemError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
)

# First bytes of each format. "BZh" alone could open a CSV header: bzip2's block mark is asked for too.
_MAGIC = {
    "gzip": (b"\x1f\x8b",),
    "xz": (b"\xfd7zXZ\x00",),
    "zstd": (b"\x28\xb5\x2f\xfd", *(bytes([kind, 0x2A, 0x4D, 0x18]) for kind in range(0x50, 0x60))),
}
_BZIP2_BLOCK, _BZIP2_EMPTY = b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"
_GIT_LFS = b"version https://git-lfs.github.com/spec"
_SUFFIXES = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}

#: Bytes of a file that are read, scanned or skipped at a time; they stay in a core's cache between the two.
PIECE_BYTES = 1 << 20
#: Bytes of a line at most: a row of some millions of numbers. A packed file of a few MB can hold one of many GB.
LONGEST_LINE = 1 << 27
#: Bytes that are asked for where few are needed: packed ones, a line of a header, the rest of a line.
SMALL_PIECE_BYTES = 1 << 16
# One Zstandard block of 4 bytes can stand for 128 KiB, so the compressed input is fed in small pieces.
_ZSTD_PIECE_BYTES = 1 << 12


@dataclass(frozen=True)
class SourceFile:
    """A file that exists and can be opened; holds no open handle, so it travels to other processes.

    Attributes
    ----------
    path : str
        As the user wrote it.
    size : int
        Stored (compressed) bytes.
    compression : {None, "gzip", "xz", "bzip2", "zstd"}
        By the file's first bytes, not by its name.
    storage_options : dict
        For URLs, of obstore or fsspec.
    """

    path: str
    size: int
    compression: str | None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def enterable(self) -> bool:
        """Return True if reading can start at any byte without reading the bytes before it."""
        return self.compression is None

    def open(self, offset: int = 0) -> BinaryIO:
        """Stream of the uncompressed bytes from `offset` on; use it in a `with` statement.

        A compressed file is decompressed up to `offset`, so entering it late costs time (no memory).
        Holds about 1 MiB. Its reads raise DataError when the file is truncated or damaged.
        """
        with _explain(self.path):
            raw = open_binary(self.path, self.storage_options)
        with ExitStack() as on_failure:
            on_failure.callback(raw.close)
            stream = cast(BinaryIO, _Lines(self.path, _Bytes(self, raw)))
            on_failure.callback(stream.close)
            if self.compression is None:
                raw.seek(offset)
            else:
                _skip(stream, offset)
            on_failure.pop_all()
        return stream

    def read_range(self, start: int, stop: int) -> bytes:
        """Return uncompressed bytes [start, stop), fewer where the file ends."""
        with self.open(start) as stream:
            return stream.read(max(stop - start, 0))


def open_source(path: str, storage_options: Mapping[str, Any] | None = None) -> SourceFile:
    """Find out what `path` is without reading more than its first bytes.

    Parameters
    ----------
    path : str
        Local path or URL (`s3://`, `gs://`, `memory://`, ...).
    storage_options : mapping, optional
        Of obstore or fsspec; ignored for local paths.

    Raises
    ------
    DataError
        The file is missing, a directory, a pointer of Git LFS, or its name ends in .gz, .xz, .bz2 or .zst and its
        bytes are something else.
    """
    path, options = str(path), dict(storage_options or {})
    with _explain(path), open_binary(path, options) as raw:
        first = raw.read(len(_GIT_LFS))
        size = raw.seek(0, io.SEEK_END)
    if first == _GIT_LFS:
        raise DataError("it is a pointer of Git LFS, the data were not fetched", file=path, cure="run git lfs pull")
    compression = _compression_of(first)
    suffix = PurePosixPath(path).suffix.lower()
    named = _SUFFIXES.get(suffix)
    if named is not None and named != compression:
        came = f"{compression} data" if compression else "not compressed" if first else "empty"
        raise DataError(
            f"the name ends in {suffix}, which stands for {named} data, but the file is {came}",
            file=path,
            cure="rename the file, or fetch it again if it is damaged",
        )
    return SourceFile(path, size, compression, options)


def read_small(path: str, storage_options: Mapping[str, Any] | None, most: int, *, what: str, cure: str) -> bytes:
    """Return the uncompressed content of a file; DataError, which calls it `what`, if it has more than `most` bytes."""
    with open_source(path, storage_options).open() as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise DataError(f"{what} has at most {most >> 20} MiB", file=path, cure=cure)
    return content


def exists(path: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return True if there is a file at `path`; False also if access is refused."""
    if not is_url(path):
        return local_path(path).is_file()
    try:
        return RemoteObjects(path, storage_options).head() is not None
    except StoreNotAllowedError:  # who may not list an object store is refused what is absent, too
        return False


def format_suffix(path: str) -> str:
    """Return the suffix that tells the format, in lower case and without a compression suffix.

    Examples
    --------
    >>> format_suffix("data/Yeast.ARFF.gz"), format_suffix("s3://bucket/x.csv"), format_suffix("x.gz")
    ('.arff', '.csv', '')
    """
    name = PurePosixPath(path)
    if name.suffix.lower() in _SUFFIXES:
        name = name.with_suffix("")
    return name.suffix.lower()


def _compression_of(first: bytes) -> str | None:
    if first[:3] == b"BZh" and first[3:4].isdigit() and first[4:10] in (_BZIP2_BLOCK, _BZIP2_EMPTY):
        return "bzip2"
    return next((name for name, marks in _MAGIC.items() if first.startswith(marks)), None)


@contextmanager
def _explain(path: str) -> Iterator[None]:
    """Turn what goes wrong while opening `path` into a DataError or, without permission, StoreNotAllowedError."""
    try:
        yield
    except MlfsError:
        raise
    except FileNotFoundError as error:
        raise DataError("there is no such file", file=path, cure="check the path") from error
    except IsADirectoryError as error:
        raise DataError("a file was expected, this is a directory", file=path, cure="name the file in it") from error
    except PermissionError as error:
        raise StoreNotAllowedError(path, "no permission to read it", "check owner and mode of the file") from error
    except OSError as error:
        raise DataError(f"it cannot be opened: {error}", file=path, cure="check the path") from error


def _skip(stream: BinaryIO, count: int) -> None:
    while count > 0:
        piece = stream.read(min(count, PIECE_BYTES))
        if not piece:
            return
        count -= len(piece)


def line_too_long(path: str, line: int | None = None) -> DataError:
    """Return the error for a line that cannot be a row."""
    return DataError(
        f"a line is longer than {LONGEST_LINE >> 20} MiB",
        file=path,
        line=line,
        cure="check that it is text with a row per line; a wide sparse matrix can be given as .npz, .mtx or svmlight",
    )


class _Lines(io.BufferedReader):
    """A buffered stream whose lines are not longer than `LONGEST_LINE`."""

    def __init__(self, path: str, raw: io.RawIOBase) -> None:
        super().__init__(raw, PIECE_BYTES)
        self._path = path

    def readline(self, size: int | None = -1, /) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(LONGEST_LINE)
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise line_too_long(self._path)
        return line


class _Bytes(io.RawIOBase):
    """Uncompressed bytes of an open file; whatever a decompressor complains of becomes a DataError."""

    def __init__(self, source: SourceFile, raw: BinaryIO) -> None:
        self._path = source.path
        self._raw = raw
        self._compression = source.compression
        self._inner = _decompressed(source, raw)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            if self._compression is None:
                return int(self._raw.readinto(buffer))  # type: ignore[attr-defined]  # one copy, not three
            piece = self._inner.read(len(buffer))
        except DataError:
            raise
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if self._compression is None:
                raise DataError(f"reading failed: {error}", file=self._path) from error
            truncated = isinstance(error, EOFError)
            raise DataError(
                f"the {self._compression} data is {'cut off' if truncated else 'damaged'}: {error}",
                file=self._path,
                cure="fetch or compress the file again",
            ) from error
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
            self._raw.close()
        super().close()


def _decompressed(source: SourceFile, raw: BinaryIO) -> BinaryIO | gzip.GzipFile | _Streams:
    if source.compression == "gzip":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if source.compression == "xz":
        return _Streams(raw, functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), padding=b"\0")
    if source.compression == "bzip2":
        return _Streams(raw, bz2.BZ2Decompressor)
    if source.compression == "zstd":
        return _Streams(raw, _ZstdFrame, piece_bytes=_ZSTD_PIECE_BYTES)
    return raw


class _Streams:
    """Decompress stream after stream of xz, bzip2 or Zstandard; xz may have zeros between and behind them.

    LZMAFile and BZ2File take the end of a stream for that of the file where no whole header follows, and a damaged one
    with all that is behind it for nothing; the reader of Zstandard's package takes a file that is cut off for a whole
    one.
    """

    def __init__(
        self,
        raw: BinaryIO,
        start: Callable[[], Any],  # a decompressor of one stream, as of bz2
        *,
        padding: bytes = b"",
        piece_bytes: int = SMALL_PIECE_BYTES,
    ) -> None:
        self._raw = raw
        self._start = start
        self._padding = padding
        self._piece_bytes = piece_bytes
        self._stream = start()

    def read(self, size: int, /) -> bytes:
        while True:
            compressed = b""
            if self._stream.eof:
                compressed = self._after_stream()
                if not compressed:
                    return b""
                self._stream = self._start()
            elif self._stream.needs_input:
                compressed = self._raw.read(self._piece_bytes)
                if not compressed:
                    raise EOFError("the last stream is not complete")
            piece: bytes = self._stream.decompress(compressed, size)
            if piece:
                return piece

    def _after_stream(self) -> bytes:
        """Return the first bytes of the next stream, or none."""
        following = self._stream.unused_data or self._raw.read(self._piece_bytes)
        while following:
            if behind_padding := following.lstrip(self._padding):
                return behind_padding
            following = self._raw.read(self._piece_bytes)
        return b""

    def close(self) -> None:
        pass


class _ZstdFrame:
    """A frame of Zstandard, decompressed as `bz2` does: no more than was asked for is given at a time."""

    def __init__(self) -> None:
        import zstandard

        # 2 GiB windows (`zstd --long=31`) are legal; memory is taken only as a frame asks for it.
        self._frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        self._damage = zstandard.ZstdError
        self._ready = memoryview(b"")

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof) and self.needs_input

    @property
    def needs_input(self) -> bool:
        return not self._ready

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if data:
            try:
                self._ready = memoryview(self._frame.decompress(data))
            except self._damage as error:
                raise OSError(str(error)) from error
        piece, self._ready = bytes(self._ready[:max_length]), self._ready[max_length:]
        return piece
