"""Run folders: what a selection leaves behind, written whole or not at all.

`ranking.csv` holds every feature, best first, with what shuffled and resampled rows say of it where there were any;
`selected.txt` the names of the k best; `run.json` what was run, on what, and what it cost. A folder without `run.json`
is no run.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import glob
import io
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DISK_FULL, DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.files.json_text import as_json, parse_json

if TYPE_CHECKING:
    from mlfs_dask.storage.object_store import RemoteObjects

RANKING = "ranking.csv"
SELECTED = "selected.txt"
RECORD = "run.json"
LABELS = "labels.zarr"
COLUMNS = ("rank", "feature_index", "feature_name", "score")
#: Further columns, of runs that shuffled or resampled the rows.
REPLICATE_COLUMNS = ("q_value", "rank_low", "rank_high", "selection_frequency")

#: Seconds after which a half-written folder that no process holds counts as left; it is held just after it is made.
ABANDONED_SECONDS = 10.0


@dataclass(frozen=True)
class RecoveredLabels:
    """Labels that a method recovered, and how they are written.

    Attributes
    ----------
    write : callable
        ``write(store)`` writes the labels of all rows to a `storage.labels_store.LabelsStore`.
    n : int
        Rows.
    names : sequence of str, length q
    threshold : float
        A label applies where its value is greater.
    partition_rows : int
        Rows that a process has in one piece.
    """

    write: Callable[[Any], None]
    n: int
    names: Sequence[str]
    threshold: float
    partition_rows: int


@dataclass(frozen=True)
class Run:
    """A finished selection, as its folder tells it.

    Attributes
    ----------
    path : str
    ranking : int64 array, shape (d,)
        Feature indices, best first.
    scores : float64 array, shape (d,)
        Scores in the order of `ranking`.
    feature_names : list of str, length d
        Names in the order of `ranking`.
    record : dict
        Content of `run.json`.
    replicates : mapping of str to float64 array, shape (d,)
        Those of `REPLICATE_COLUMNS` that there are, in the order of `ranking`.
    """

    path: str
    ranking: NDArray[np.int64]
    scores: NDArray[np.float64]
    feature_names: list[str]
    record: dict[str, Any]
    replicates: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def k(self) -> int:
        """Number of features that were asked for."""
        return int(self.record["k"])

    @property
    def store(self) -> dict[str, Any]:
        """The store, or the part of one, that the run was made from: path, digest, and of a part what was chosen."""
        return self.record.get("store") or {}

    @property
    def origin(self) -> str | None:
        """Digest of the whole store that the run was made from, or from a part of which."""
        return origin_of(self.store.get("digest"), self.store.get("subset"))


def origin_of(digest: str | None, subset: Mapping[str, Any] | None) -> str | None:
    """Digest of the whole store.

    Parameters
    ----------
    digest : str or None
        Of the store, or of a part of it.
    subset : mapping or None
        What was chosen (`Dataset.subset_record`); it may be a part of a part.
    """
    while subset:
        digest = subset["of"]
        subset = digest if isinstance(digest, Mapping) else None
    return digest


def check_free(
    path: str,
    *,
    force: bool,
    record: str = RECORD,
    what: str = "a run",
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Refuse a destination that exists, or is in a store or a folder of results, before any work is done for it.

    With `force` an earlier folder of the same kind, or an empty one, may be replaced; anything else never.

    Parameters
    ----------
    path : str
    force : bool
    record : str
        The file that makes a folder one of its kind.
    what : str
        What such a folder is called.
    storage_options : mapping, optional
        For fsspec.

    Raises
    ------
    UsageError
        If the place is taken.
    MlfsError
        If nothing may be written there.
    """
    if is_url(path):
        from mlfs_dask.storage.object_store import require_writable  # as in `check_permission`

        require_writable(path, storage_options)
        if not force and _remote(path, storage_options).exists(record):
            raise UsageError(f"{path} holds {what} already; --force replaces it.")
        return
    place = Path(path)
    check_permission(place)
    if not place.exists() and not place.is_symlink():
        return
    if place.is_dir() and not any(place.iterdir()):
        return
    if not (place / record).is_file():
        raise UsageError(
            f"{path} exists and is not {what} (no {record} in it); it is not replaced, even with --force."
            "\n  cure: give another place with -o."
        )
    if not force:
        raise UsageError(f"{path} holds {what} already; --force replaces it.")


def check_permission(place: Path) -> None:
    """Refuse a place where nothing can be written, or nothing may: after hours of work it would be too late."""
    from mlfs_dask.storage.object_store import require_writable  # reading results needs no store

    require_writable(str(place))
    folder = next(parent for parent in place.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise not_written(place, f"{folder} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise not_written(place, f"no permission to write in {folder}")


def not_written(place: Path, why: str | OSError) -> MlfsError:
    """The error of a place that cannot be written."""
    words = why if isinstance(why, str) else why.strerror or str(why)
    error = MlfsError(
        f"{place}: it cannot be written: {words}"
        "\n  cure: check the folder, its permissions and its free space, or give another place with -o"
    )
    if isinstance(why, OSError) and why.errno in DISK_FULL:
        error.exit_code = DoesNotFitError.exit_code  # also of a job of a batch, which is told by its code and text
    return error


def write_run(
    path: str,
    *,
    ranking: NDArray[np.integer[Any]],
    scores: NDArray[np.floating[Any]],
    feature_names: Sequence[str] | NDArray[Any],
    record: Mapping[str, Any],
    columns: Mapping[str, NDArray[Any]] | None = None,
    labels: RecoveredLabels | None = None,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a run folder, whole or not at all (see `write_folder`).

    Parameters
    ----------
    path : str
        Local path or fsspec URL.
    ranking : int array, shape (d,)
        Feature indices, best first.
    scores : float array, shape (d,)
        Score of each feature, in the order of the features.
    feature_names : sequence of str, length d
        Name of each feature, in the order of the features.
    record : mapping
        What goes into `run.json`; `record["k"]` names are selected.
    columns : mapping of str to array, shape (d,), optional
        Further columns of `ranking.csv`, in the order of the features.
    labels : RecoveredLabels, optional
        What goes into `labels.zarr`.
    force : bool
        Replace an earlier run, at the very end.
    storage_options : mapping, optional
        For fsspec.

    Raises
    ------
    UsageError
        If the place is taken.
    MlfsError
        If it cannot be written, for want of room or permission; nothing is left behind.
    """
    texts = {
        RANKING: ranking_text(ranking, scores, feature_names, columns or {}),
        SELECTED: selected_text(feature_names[index] for index in ranking[: int(record["k"])]),
        RECORD: json.dumps(as_json(record), indent=2, allow_nan=False) + "\n",
    }
    write_folder(path, texts, record=RECORD, what="a run", labels=labels, force=force, storage_options=storage_options)


def write_folder(
    path: str,
    texts: Mapping[str, str],
    *,
    record: str,
    what: str,
    labels: RecoveredLabels | None = None,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a folder of texts, whole or not at all.

    A local folder is filled beside its place, under a hidden name, and then renamed; at a URL, where nothing
    can be renamed, the record comes last.

    Parameters
    ----------
    path : str
        Local path or fsspec URL.
    texts : mapping of str to str
        File name -> content; the record among them.
    record, what : str
        As in `check_free`.
    labels : RecoveredLabels, optional
        What goes into `labels.zarr`.
    force : bool
        Replace an earlier folder of the same kind, at the very end.
    storage_options : mapping, optional
        For fsspec.

    Raises
    ------
    UsageError
        If the place is taken.
    MlfsError
        If it cannot be written, for want of room or permission; nothing is left behind.
    """
    check_free(path, force=force, record=record, what=what, storage_options=storage_options)
    if is_url(path):
        objects = _remote(path, storage_options)
        objects.make()
        objects.remove(record)
        if objects.exists(LABELS):
            objects.remove(LABELS, recursive=True)
        if labels is not None:
            _write_labels(f"{path.rstrip('/')}/{LABELS}", labels, storage_options)
        for name in sorted(texts, key=lambda name: name == record):
            objects.write(name, texts[name].encode())
        return
    remove_abandoned(path, {*texts, LABELS})
    with contextlib.ExitStack() as held, appearing(Path(path)) as aside:
        held.enter_context(_held(aside))  # until it is in its place
        for name, text in texts.items():
            with (aside / name).open("w", encoding="utf-8", newline="") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
        if labels is not None:
            _write_labels(str((aside / LABELS).absolute()), labels, None)  # workers have other folders


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Make a folder that the system knows to be of this process, as long as it lives and the with-block lasts."""
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # of file systems without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def remove_abandoned(path: str, files: Collection[str] = (RANKING, SELECTED, RECORD, LABELS)) -> None:
    """Remove what processes that were killed while they wrote this folder have left beside it.

    That is: a folder of such a name, with nothing but `files` in it, that no process holds and that nobody has
    touched for `ABANDONED_SECONDS`. Where the file system has no locks nothing is removed.

    Parameters
    ----------
    path : str
        Local path or fsspec URL; at a URL nothing has another name before it is complete.
    files : collection of str
    """
    if is_url(path):
        return
    place = Path(path).resolve()
    for left in place.parent.glob(f".{glob.escape(place.name)}.{'[0-9a-f]' * 8}"):
        with contextlib.suppress(OSError):  # it is no folder, is held, or somebody else has removed it
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = {file.name for file in left.iterdir()} <= set(files)
                if is_ours and time.time() - os.fstat(descriptor).st_mtime > ABANDONED_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def appearing(place: Path) -> Iterator[Path]:
    """A hidden place beside another, for a file or folder that goes there when the with-block ends, or nowhere.

    Raises
    ------
    MlfsError
        Something cannot be written, for want of room or permission; nothing is left behind, no new folder either.
    """
    if place.is_symlink():
        place = place.resolve()  # the link stays, and what it points to is replaced
    aside = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")
    new_folders = [folder for folder in place.parents if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        _move_into_place(aside, place)
    except OSError as error:
        raise not_written(place, error) from error
    finally:
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
        if not place.exists():
            for folder in new_folders:
                with contextlib.suppress(OSError):  # somebody else has put something there
                    folder.rmdir()


def write_whole(place: Path, content: bytes) -> None:
    """Write a file that is whole or not there, also after the machine has stopped.

    Raises
    ------
    MlfsError
        It cannot be written, for want of room or permission.
    """
    with appearing(place) as aside, aside.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _write_labels(place: str, labels: RecoveredLabels, storage_options: Mapping[str, Any] | None) -> None:
    from mlfs_dask.storage.labels_store import LabelsStore

    labels.write(
        LabelsStore.create(
            place,
            labels.n,
            labels.names,
            threshold=labels.threshold,
            partition_rows=labels.partition_rows,
            storage_options=storage_options,
        )
    )


def has_labels(path: str, *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether a run folder holds recovered labels."""
    if is_url(path):
        return _remote(path, storage_options).exists(LABELS)
    return (Path(path) / LABELS).exists()


def _move_into_place(aside: Path, place: Path) -> None:
    """Rename what is finished to its place; a folder that stood there is deleted only afterwards."""
    if not place.is_dir():
        aside.replace(place)
        return
    old = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.old")
    try:
        place.rename(old)
        aside.rename(place)
        shutil.rmtree(old)
    finally:  # of Ctrl-C, too
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(place)


def ranking_text(
    ranking: NDArray[np.integer[Any]],
    scores: NDArray[np.floating[Any]],
    feature_names: Sequence[str] | NDArray[Any],
    columns: Mapping[str, NDArray[Any]],
) -> str:
    r"""Text of `ranking.csv`; scores are written so that they read back to the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> ranking_text(np.array([1, 0]), np.array([0.5, 2.0]), ["a", 'b "c", d'], {"q_value": np.array([1.0, 0.01])})
    'rank,feature_index,feature_name,score,q_value\n1,1,"b ""c"", d",2.0,0.01\n2,0,a,0.5,1.0\n'
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*COLUMNS, *columns])
    values = (array[ranking].tolist() for array in (scores, *columns.values()))
    writer.writerows(
        (rank, index, feature_names[index], *own)
        for rank, (index, *own) in enumerate(zip(ranking.tolist(), *values, strict=True), start=1)
    )
    return stream.getvalue()


def selected_text(names: Any) -> str:
    r"""Text of `selected.txt`: a name a line; a line break inside a name is written as ``\n``."""
    return "".join(str(name).replace("\r", "\\r").replace("\n", "\\n") + "\n" for name in names)


def read_run(path: str, *, storage_options: Mapping[str, Any] | None = None) -> Run:
    """Read a run folder.

    Raises
    ------
    DataError
        If it is no run, or a file in it is damaged.
    """
    record_text = read_text(path, RECORD, storage_options=storage_options)
    try:
        record = parse_json(record_text)
        k, n_features = int(record["k"]), int(record["d"])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise DataError(f"this is not the record of a run ({error}).", file=f"{path}/{RECORD}", cure=_CURE) from error
    file = f"{path}/{RANKING}"
    rows = csv.reader(io.StringIO(read_text(path, RANKING, storage_options=storage_options), newline=""))
    header = tuple(next(rows, ()))
    if header[: len(COLUMNS)] != COLUMNS:
        raise DataError(f"expected the columns {', '.join(COLUMNS)}.", file=file, line=1, cure=_CURE)
    indices: list[int] = []
    names: list[str] = []
    scores: list[float] = []
    replicates: dict[str, list[float]] = {name: [] for name in REPLICATE_COLUMNS if name in header}
    places = [header.index(name) for name in replicates]
    for expected, row in enumerate(rows, start=1):
        try:
            rank, index, name, score = row[: len(COLUMNS)]
            if int(rank) != expected:
                raise ValueError(f"rank {rank} where {expected} was expected")
            indices.append(int(index))
            names.append(name)
            scores.append(float(score))
            for values, place in zip(replicates.values(), places, strict=True):
                values.append(float(row[place]))
        except (ValueError, IndexError) as error:
            raise DataError(str(error), file=file, line=rows.line_num, cure=_CURE) from error
    if len(indices) != n_features or sorted(indices) != list(range(n_features)) or not 1 <= k <= n_features:
        raise DataError(
            f"expected each of {n_features} features once, came {len(indices)} rows.",
            file=file,
            cure=_CURE,
        )
    further = {name: np.array(values) for name, values in replicates.items()}
    return Run(path, np.array(indices, np.int64), np.array(scores), names, record, further)


def finished_run(
    path: str,
    *,
    method: str,
    params: Mapping[str, Any],
    digest: str,
) -> Run | None:
    """The run at `path` if it is complete and was made by the same method, parameters and store; else None.

    Parameters
    ----------
    path : str
    method : str
    params : mapping
        All parameters of the selector, defaults included.
    digest : str
        Content digest of the store.
    """
    try:
        run = read_run(path)
    except DataError:
        return None
    record = run.record
    same_store = (record.get("store") or {}).get("digest") == digest
    same = record.get("method") == method and record.get("params") == as_json(params)
    return run if same and same_store else None


_CURE = "give the folder that `mlfs select -o` wrote, or run the selection again."


def is_url(path: str) -> bool:
    """Whether a place is named by a URL and not by a local path."""
    return "://" in path


def _remote(path: str, storage_options: Mapping[str, Any] | None) -> RemoteObjects:
    from mlfs_dask.storage.object_store import RemoteObjects  # a local folder never needs it

    return RemoteObjects(path, storage_options)


def read_text(
    path: str,
    name: str,
    *,
    what: str = "run",
    cure: str = _CURE,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Text of a file of a folder that was written whole.

    Raises
    ------
    DataError
        There is none, or it is no text.
    """
    from mlfs_dask.storage.object_store import read_file  # as in `check_permission`

    try:
        if is_url(path):
            return _remote(path, storage_options).read(name).decode("utf-8")
        return read_file(Path(path) / name).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"no {name} here, so this is not a finished {what}.", file=path, cure=cure) from error
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text ({error}).", file=f"{path}/{name}", cure=cure) from error
