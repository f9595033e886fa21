"""Errors that users meet, each with the exit code the command line gives for it.

Every message says what was expected, what came, and what to do about it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Literal

from mlfs_dask.context import assigned
from mlfs_dask.files.redaction import redact

#: What the system says where no further file can be opened, and what to do.
TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
TOO_MANY_FILES_CURE = "raise the limit of open files (`ulimit -n 1024`)"

#: What the system says where a disk, or a share of it, is full.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_load_failure(error: BaseException) -> bool:
    """Whether a library could not be loaded: an ImportError, or whatever a module raised while it was imported."""
    if isinstance(error, MlfsError | MemoryError):
        return False
    if isinstance(error, ImportError):
        return True
    if type(error) is OSError and any(words in str(error) for words in ("shared object", "undefined symbol")):
        return True  # of ctypes, in a function
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_name != "<module>":
        trace = trace.tb_next
    return trace is not None


def number_of(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts, in the grammatical number.

    Examples
    --------
    >>> number_of(1, "feature"), number_of(2000, "feature"), number_of(2, "category", "categories")
    ('1 feature', '2,000 features', '2 categories')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(count: float) -> str:
    """Bytes for people.

    Examples
    --------
    >>> size(512), size(345126), size(8_000_000_000)
    ('512 B', '337 KiB', '7.451 GiB')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


#: Names that a message lists.
MOST_NAMES = 32


def closest(name: str, known: Iterable[str]) -> str:
    """The known names that come closest to one that is not, as a question; where none is close, all or the first.

    Examples
    --------
    >>> closest("elk", ["elc", "enm"]), closest("xyz", ["elc", "enm"])
    ('Did you mean elc?', 'Known: elc, enm.')
    """
    import difflib

    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    more = "" if len(names) <= MOST_NAMES else f" and {len(names) - MOST_NAMES:,} more"
    return f"Known: {', '.join(names[:MOST_NAMES])}{more}."


#: Parameters of Python that an option, or a key of a plan, has another name for.
_NAMES = {"n_features_to_select": "k", "fold_of": "split_file"}
#: Those that an option alone has another name for.
_OPTION_NAMES = {"random_state": "seed", "test": "test_store"}

_spelling: ContextVar[Literal["python", "option", "key"]] = ContextVar("spelling", default="python")


@contextlib.contextmanager
def spell_parameters_as(spelling: Literal["option", "key"]) -> Iterator[None]:
    """Spell parameters in messages as options of the command line, or as keys of a plan, inside the with-block."""
    with assigned(_spelling, spelling):
        yield


def parameter(name: str, value: object = None) -> str:
    """A parameter, with a value where one is given, as whoever reads the message would write it.

    Parameters
    ----------
    name : str
        In Python.
    value : optional

    Examples
    --------
    >>> parameter("lambda_"), parameter("graph", "exact")
    ('lambda_', "graph='exact'")
    >>> with spell_parameters_as("option"):
    ...     parameter("lambda_"), parameter("graph", "exact"), parameter("C"), parameter("random_state")
    ('--lambda', '--graph exact', '-C', '--seed')
    >>> with spell_parameters_as("key"):
    ...     parameter("lambda_"), parameter("graph", "exact"), parameter("n_features_to_select")
    ('lambda', 'graph: exact', 'k')
    """
    spelling = _spelling.get()
    if spelling == "python":
        return name if value is None else f"{name}={value!r}"
    name = _NAMES.get(name, name.strip("_"))
    if spelling == "key":
        return name if value is None else f"{name}: {value}"
    name = _OPTION_NAMES.get(name, name)
    flag = f"-{name}" if len(name) == 1 else "--" + name.replace("_", "-")
    return flag if value is None else f"{flag} {value}"


class MlfsError(Exception):
    """Root of the errors raised on purpose; `exit_code` is what `mlfs` exits with. Secrets in URLs are left out."""

    exit_code = 1

    def __init__(self, text: str = "") -> None:
        super().__init__(redact(text))


class UsageError(MlfsError, ValueError):
    """An option or argument has a value it cannot have (exit 2)."""

    exit_code = 2


class DataError(MlfsError, ValueError):
    """The data is invalid (exit 3).

    Parameters
    ----------
    problem : str
        What was expected and what came.
    file, line, column, value : optional
        Where it was found. Lines and columns of a file count from 1, as editors do; `column` without a file is a
        column's name, or its index from 0, as in ``X[:, column]``, and the message says so.
    cure : str, optional
        What the user can do.
    """

    exit_code = 3

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: str | int | None = None,
        value: object = None,
        cure: str | None = None,
    ) -> None:
        self.problem = redact(problem)
        self.file = None if file is None else redact(str(file))
        self.line = line
        self.column = column
        self.value = redact(value) if isinstance(value, str) else value
        self.cure = None if cure is None else redact(cure)
        place = []
        if self.file is not None:
            place.append(self.file)
        if line is not None:
            place.append(f"line {line}")
        if column is not None:
            counted = "" if file is not None else " (counted from 0)"
            place.append(f"column {column}{counted}" if isinstance(column, int) else f"column {column!r}")
        if value is not None:
            place.append(f"value {self.value!r}")
        text = (", ".join(place) + ": " if place else "") + self.problem
        if self.cure:
            text += f"\n  cure: {self.cure}"
        super().__init__(text)

    def with_column_name(self, names: Sequence[str] | None) -> DataError:
        """This error, its column called by its name instead of its index."""
        column = self.column
        if names is not None and isinstance(column, int):
            column = str(names[column])
        return DataError(self.problem, file=self.file, line=self.line, column=column, value=self.value, cure=self.cure)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process boundaries by pickle, which would pass the finished message as `problem`.
        return (_rebuild, (self.problem, self.file, self.line, self.column, self.value, self.cure))


def _rebuild(
    problem: str,
    file: str | None,
    line: int | None,
    column: str | int | None,
    value: object,
    cure: str | None,
) -> DataError:
    return DataError(problem, file=file, line=line, column=column, value=value, cure=cure)


class DoesNotFitError(MlfsError, MemoryError):
    """The job is projected not to fit (exit 4).

    Parameters
    ----------
    what : str
        What would need the memory (or disk).
    projected : int or None
        Bytes; None where nothing says it, and the system refused them.
    available : int
        Bytes.
    cure : str
        What the user can do.
    """

    exit_code = 4

    def __init__(self, what: str, *, projected: int | None, available: int, cure: str) -> None:
        self.what = redact(what)
        self.projected = None if projected is None else int(projected)
        self.available = int(available)
        self.cure = redact(cure)
        needed = "more than there is" if self.projected is None else f"projected {_mebibytes(self.projected)}"
        super().__init__(f"{what}: {needed}, available {_mebibytes(self.available)}\n  cure: {cure}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_fit, (self.what, self.projected, self.available, self.cure))


def _rebuild_fit(what: str, projected: int | None, available: int, cure: str) -> DoesNotFitError:
    return DoesNotFitError(what, projected=projected, available=available, cure=cure)


def _mebibytes(count: int) -> str:
    tenths = (10 * count + 2**19) // 2**20  # damaged files declare numbers beyond those of floats
    return f"{tenths // 10:,}.{tenths % 10} MiB ({count:,} bytes)"


class StoreAccessError(MlfsError):
    """The system or a server keeps a store from being read or written; nothing says that it is damaged (exit 1).

    Parameters
    ----------
    store : str
        Path or URL.
    problem : str
        What was refused.
    cure : str
        What the user can do.
    """

    def __init__(self, store: str, problem: str, cure: str) -> None:
        self.store = redact(store)
        self.problem = redact(problem)
        self.cure = redact(cure)
        super().__init__(f"{store}: {problem}\n  cure: {cure}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.store, self.problem, self.cure))

    def with_detail(self, detail: str) -> StoreAccessError:
        """The same error, which says more: where, how often."""
        return type(self)(self.store, f"{self.problem}, {detail}", self.cure)


class StoreNotAllowedError(StoreAccessError):
    """The store may not be read or written: permissions of files, or credentials for a server (exit 1)."""


class StoreUnavailableError(StoreAccessError):
    """The store's server is throttled, unreachable or too slow, also when it was asked again (exit 1)."""


class ClusterLostError(MlfsError):
    """The scheduler or every worker went away, or could not be reached (exit 5)."""

    exit_code = 5
