"""Outputs that appear whole or not at all: files, folders of results, stores, entries of a cache, checkpoints.

An output is made in a hidden working folder beside its place, `.NAME.xxxxxxxx.part`, which its process holds by a lock,
and is renamed to its place when it is whole. A working folder that nobody holds was left by a process that was killed;
the next one that writes to the same place removes it. At a URL, where nothing can be renamed, the record of a folder
is written last.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from mlfs_dask.errors import DISK_FULL, DataError, MlfsError, UsageError
from mlfs_dask.files.json_text import parse_json, require_known_format
from mlfs_dask.files.limits import full_disk
from mlfs_dask.files.object_store import RemoteObjects, at_once, is_url, local_path, open_objects, require_writable
from mlfs_dask.files.result_folders import ResultFolder

_CURE = "check the folder, its permissions and its free space, or give another place"
_HEX = "[0-9a-f]" * 8

_Content = TypeVar("_Content")


class _Head(TypedDict):
    format_version: int
    kind: str


@contextlib.contextmanager
def appearing(place: Path, *, durable: bool = True, projected: Callable[[], int] = lambda: 0) -> Iterator[Path]:
    """A hidden path for a new file or folder, which moves to its place when the with-block ends, or nowhere.

    What is in its place is replaced; folders above it are made.

    Parameters
    ----------
    place : Path
        Of a symbolic link, what it points to is replaced.
    durable : bool
        The output is on the disk when the with-block ends, also if the machine stops.
    projected : callable
        As in `explained`.

    Raises
    ------
    MlfsError
        It cannot be written, for want of room or permission; nothing is left behind, no new folder either.
    """
    place = behind_links(place)
    with explained(place, projected, working_folder(place)) as folder:
        yield folder / place.name
        put(folder / place.name, place, durable=durable)


@contextlib.contextmanager
def explained(
    place: str | Path,
    projected: Callable[[], int] = lambda: 0,
    working: contextlib.AbstractContextManager[Any] = contextlib.nullcontext(),  # noqa: B008 - holds nothing
) -> Iterator[Any]:
    """Have what the system refuses in the with-block told as an error of writing to a place.

    Parameters
    ----------
    place : str or Path
    projected : callable
        Bytes of the whole output, asked where the disk is full; 0 where nothing tells.
    working : context manager
        Of the folder that is written to, which the with-block gets, and whose end makes room again.

    Raises
    ------
    MlfsError
    """
    needed = 0
    try:
        with working as folder:
            try:
                yield folder
            except OSError:
                needed = projected()
                raise
    except OSError as error:
        raise not_written(place, error, needed) from error


def write_file(place: Path, content: bytes) -> None:
    """Write a file, whole or not at all. Raises MlfsError as `appearing`."""
    with appearing(place) as aside:
        aside.write_bytes(content)


def write_folder(
    path: str,
    texts: Mapping[str, str],
    *,
    kind: ResultFolder,
    fill: Callable[[str], None] | None = None,
    remove: Sequence[str] = (),
    force: bool = False,
) -> None:
    """Write a folder of texts, whole or not at all.

    Parameters
    ----------
    path : str
        Local path or URL.
    texts : mapping of str to str
        File name -> content; the record among them.
    kind, force
        As in `check_place`.
    fill : callable, optional
        ``fill(folder)`` writes what else the folder holds; at a URL while no record is there.
    remove : sequence of str
        Names of folders and files in it that an earlier output at a URL may have.

    Raises
    ------
    UsageError
        The place is taken.
    MlfsError
        It cannot be written, for want of room or permission; nothing is left behind.
    """
    check_place(path, kind, force=force)
    if is_url(path):
        objects, record = RemoteObjects(path), kind.record
        earlier = [key for key in objects.sizes() if key.partition("/")[0] in (record, *remove)]
        objects.remove(*(key for key in earlier if key == record))
        objects.remove(*(key for key in earlier if key != record))
        if fill is not None:
            fill(path.rstrip("/"))
        at_once(lambda name: objects.write(name, texts[name].encode()), [name for name in texts if name != record])
        objects.write(record, texts[record].encode())
        return
    with appearing(local_path(path)) as folder:
        folder.mkdir()
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        if fill is not None:
            fill(str(folder.absolute()))  # workers have other working folders


def read_text(path: str, name: str, kind: ResultFolder) -> str:
    """Return the text of a file in a folder of results.

    Raises
    ------
    DataError
        There is none, or it is no text.
    """
    try:
        return open_objects(path).read(name).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            f"no {name} here, so this is not a finished {kind.what.split()[1]}.", file=path, cure=kind.cure
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text ({error}).", file=f"{path}/{name}", cure=kind.cure) from error


def read_parsed(path: str, name: str, kind: ResultFolder, parse: Callable[[str], _Content]) -> _Content:
    """Return the content of a file in a folder of results.

    Raises
    ------
    DataError
        There is none, or `parse` refuses it by ValueError or TypeError.
    """
    text = read_text(path, name, kind)
    try:
        return parse(text)
    except (ValueError, TypeError) as error:
        raise DataError(f"damaged: {error}", file=f"{path}/{name}", cure=kind.cure) from error


def read_record(path: str, kind: ResultFolder, form: Any) -> Any:
    """Return the record of a folder of results, if it has the kind, a known version and the form.

    Raises
    ------
    DataError
    """
    text, file = read_text(path, kind.record, kind), f"{path}/{kind.record}"
    try:
        head = parse_json(text, _Head)
        if head["kind"] != kind.head["kind"]:
            raise ValueError(f"kind is {head['kind']!r}")
        require_known_format(head["format_version"], kind.version, file=file)
        return parse_json(text, form)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"this is not the record of {kind.what}: {error}.", file=file, cure=kind.cure) from error


def check_place(path: str, kind: ResultFolder, *, force: bool, resume: bool | None = None) -> None:
    """Refuse a folder of results that exists, or is in a store or a folder of results, before any work is done for it.

    With `force` an earlier folder of the same kind, or an empty one, may be replaced; anything else never.

    Parameters
    ----------
    path : str
    kind : ResultFolder
    force : bool
    resume : bool, optional
        Go on with an earlier one. None where its kind does not resume in its place.

    Raises
    ------
    UsageError
        The place is taken.
    MlfsError
        Nothing may be written there.
    """
    taken = f"{path} holds {kind.what} already; " + ("" if resume is None else "--resume runs what is missing in it, ")
    if is_url(path):
        require_writable(path)
        if not force and RemoteObjects(path).exists(kind.record):
            raise UsageError(f"{taken}--force replaces it.")
        return
    place = local_path(path)
    check_permission(place)
    if not os.path.lexists(place) or (place.is_dir() and not any(place.iterdir())):
        return
    if not (place / kind.record).is_file():
        raise UsageError(
            f"{path} exists and is not {kind.what} (no {kind.record} in it); it is not replaced, even with --force."
            "\n  cure: give another place with -o."
        )
    if not force and not resume:
        raise UsageError(f"{taken}--force replaces it.")


def check_permission(place: Path) -> None:
    """Refuse a place where nothing can be written, or nothing may: after hours of work it would be too late."""
    require_writable(str(place))
    folder = next(parent for parent in place.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise not_written(place, f"{folder} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise not_written(place, f"no permission to write in {folder}")


def not_written(place: str | Path, why: str | OSError, projected: int = 0) -> MlfsError:
    """Return the error of a place that cannot be written; of a full disk with the bytes that it has no room for."""
    words = os.strerror(why.errno) if isinstance(why, OSError) and why.errno else str(why)
    text = f"{place}: it cannot be written: {words}"
    if isinstance(why, OSError) and why.errno in DISK_FULL:
        folder = next(parent for parent in Path(place).absolute().parents if parent.exists())
        return full_disk(text, folder, projected, cure=_CURE)
    return MlfsError(f"{text}\n  cure: {_CURE}")


@contextlib.contextmanager
def locked(path: Path, taken: str) -> Iterator[None]:
    """Keep a folder, or a file that is made, to this process until the with-block ends, or the process does.

    File systems without locks keep nothing.

    Raises
    ------
    UsageError
        With the text `taken`: another process keeps it.
    """
    how = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, how | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(taken) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def working_folder(place: Path) -> Iterator[Path]:
    """A hidden folder beside a place, locked, and removed with all that is in it when the with-block ends.

    What killed processes have left of earlier ones is removed first. Folders above the place are made, and removed
    again where nothing came to the place.
    """
    new_folders = [folder for folder in place.parents if not folder.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(place)
    while True:
        folder = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.part")
        folder.mkdir()
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # removed as a leftover before it was locked
            continue
        except OSError:
            folder.rmdir()
            raise
        with contextlib.suppress(OSError):  # of file systems without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            break
        os.close(descriptor)
    try:
        yield folder
    finally:
        try:
            folder.rmdir()
        except OSError:  # it still holds what was replaced, or what was not finished
            shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
        if not place.exists():
            for folder in new_folders:
                with contextlib.suppress(OSError):  # somebody else has put something there
                    folder.rmdir()


def remove_leftovers(place: Path, name: str | None = None) -> None:
    """Remove working folders of processes that were killed; what one of them had moved from its place goes back.

    Where the file system has no locks nothing is removed.

    Parameters
    ----------
    place : Path
    name : str, optional
        Pattern of names beside `place`; its own by default.
    """
    for folder in place.parent.glob(f".{name or glob.escape(place.name)}.{_HEX}.part"):
        with contextlib.suppress(OSError):  # it is no folder, is held, or somebody else has removed it
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                put_back(folder / place.name, place)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a folder; renamed first, so that half of it is never met under its name."""
    remove_leftovers(path)
    if not path.exists():
        return
    try:
        with working_folder(path) as aside:
            path.rename(aside / path.name)
    except OSError:  # a full disk may have no room for another name
        shutil.rmtree(path, ignore_errors=True)


def put(new: Path, place: Path, *, durable: bool = True) -> None:
    """Move a finished file or folder to its place in one step; a folder that is there moves to the place of the new.

    Parameters
    ----------
    new : Path
        On the file system of `place`.
    place : Path
    durable : bool
        Both the content and the name are on the disk afterwards.
    """
    if durable:
        for path in (new, *new.rglob("*")):
            if path.is_file() and not path.is_symlink():
                sync(path)
    while True:
        try:
            new.replace(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not _exchange(new, place):
                try:
                    place.rename(_moved_away(new))
                except FileNotFoundError:  # another process has taken it away meanwhile
                    continue
                try:
                    new.rename(place)
                finally:  # of Ctrl-C, too
                    put_back(new, place)
        break
    if durable:
        sync(place.parent)


def put_back(new: Path, place: Path) -> None:
    """Undo the first of the two renames by which `put` replaces a folder, where the second was not made."""
    if _moved_away(new).exists() and not place.exists():
        _moved_away(new).rename(place)


def _moved_away(new: Path) -> Path:
    return new.with_name(f"{new.name}.old")


def _exchange(new: Path, place: Path) -> bool:
    """Exchange two folders in one step, so that there is one at every moment; False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    return bool(renameat2(here, os.fsencode(new), here, os.fsencode(place), exchange) == 0)


def behind_links(place: Path) -> Path:
    """Return the place that a symbolic link points to: the link stays."""
    return place.resolve() if place.is_symlink() else place


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of file systems that do so for no folder
            raise
    finally:
        os.close(descriptor)
