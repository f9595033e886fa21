"""Exceptions that users see, with the exit codes of the command line, and helpers that word messages.

A message says what is wrong, where, and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Literal

from mlfs_dask.context import assigned
from mlfs_dask.redaction import redact

#: Error numbers of the system for too many open files, and the cure.
TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
TOO_MANY_FILES_CURE = "raise the limit of open files (`ulimit -n 1024`)"

#: Error numbers of the system for a full disk or an exhausted quota.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

#: Extra of this package that installs a library, by the name of its module.
EXTRAS = {
    "pyarrow": "tables",
    "h5py": "hdf5",
    "matplotlib": "report",
    "pandas": "report",
    "cryptography": "workers",
    "rich": "progress",
    "bokeh": "dashboard",
    "boto3": "cloud",
    "obstore": "cloud",
}


def require_extra(module: str, what: str) -> None:
    """Refuse work whose library is not installed, before the work begins.

    Parameters
    ----------
    module : str
        Module of `EXTRAS`.
    what : str
        Subject of the message.

    Raises
    ------
    UsageError
        If the library is missing; it names the extra that installs it.
    """
    if not is_installed(module):
        raise UsageError(f"{what} needs {missing_extra(module)}")


def is_installed(module: str) -> bool:
    """Return True if a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@functools.cache
def _version(package: str) -> str | None:
    from importlib import metadata  # takes milliseconds, which most commands need not wait for

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def installed_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of Python and of packages; None for one that is not installed."""
    import platform  # as above

    return {"python": platform.python_version(), **{package: _version(package) for package in packages}}


def missing_extra(module: str) -> str:
    """Return the end of a message about a library of `EXTRAS` that is not installed.

    >>> missing_extra("h5py")
    'h5py, which is not installed\\n  cure: pip install "mlfs-dask[hdf5]"'
    """
    return f'{module}, which is not installed\n  cure: pip install "mlfs-dask[{EXTRAS[module]}]"'


def is_load_failure(error: BaseException) -> bool:
    """Return True if `error` means that a library failed to load: an ImportError, or any error during an import."""
    if isinstance(error, MlfsError | MemoryError):
        return False
    if isinstance(error, ImportError):
        return True
    if type(error) is OSError and any(words in str(error) for words in ("shared object", "undefined symbol")):
        return True  # ctypes raises it inside a function, not at the top of a module
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_name != "<module>":
        trace = trace.tb_next
    return trace is not None


def number_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with the noun that it counts, singular or plural.

    Examples
    --------
    >>> number_of(1, "feature"), number_of(2000, "feature"), number_of(2, "category", "categories")
    ('1 feature', '2,000 features', '2 categories')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(count: float) -> str:
    """Format a number of bytes with a binary unit.

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


#: Largest number of names that a message lists.
MOST_NAMES = 32


def closest(name: str, valid_names: Iterable[str]) -> str:
    """Suggest the valid names most similar to `name`; without a similar one, list the first `MOST_NAMES`.

    Examples
    --------
    >>> closest("elk", ["elc", "enm"]), closest("xyz", ["elc", "enm"])
    ('Did you mean elc?', 'Known: elc, enm.')
    """
    import difflib

    names = list(valid_names)
    matches = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if matches:
        return f"Did you mean {' or '.join(matches)}?"
    more = "" if len(names) <= MOST_NAMES else f" and {len(names) - MOST_NAMES:,} more"
    return f"Known: {', '.join(names[:MOST_NAMES])}{more}."


#: Python parameters whose option and plan key have another name.
_NAMES = {"n_features_to_select": "k", "fold_of": "split_file"}
#: Python parameters of which only the option has another name.
_OPTION_NAMES = {"random_state": "seed", "test": "test_store"}

_spelling: ContextVar[Literal["python", "option", "key"]] = ContextVar("spelling", default="python")


@contextlib.contextmanager
def spell_parameters_as(spelling: Literal["option", "key"]) -> Iterator[None]:
    """Spell parameters in messages as command-line options, or as keys of a plan, inside the with-block."""
    with assigned(_spelling, spelling):
        yield


def parameter(name: str, value: object = None) -> str:
    """Spell a parameter, and its value if given, as the reader of the message writes it: Python, option or
    plan key.

    Parameters
    ----------
    name : str
        Name in Python.
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
    """Base class of the package's exceptions. `exit_code` is the exit status of `mlfs`; URLs lose their secrets."""

    exit_code = 1

    def __init__(self, text: str = "") -> None:
        super().__init__(redact(text))

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries by pickle, which by default calls the class with the complete message alone.
        return Exception.__new__, (type(self), *self.args), self.__dict__


class UsageError(MlfsError, ValueError):
    """Invalid value of an option or argument (exit 2)."""

    exit_code = 2


class DataError(MlfsError, ValueError):
    """Invalid data (exit 3).

    Parameters
    ----------
    problem : str
        Expected and actual content.
    file, line, column, value : optional
        Location of the problem. Lines and columns of a file count from 1, as in editors; `column` without a file is
        a column's name, or its index from 0, as in ``X[:, column]``, and the message says so.
    cure : str, optional
        Action for the user.
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
        location = []
        if self.file is not None:
            location.append(self.file)
        if line is not None:
            location.append(f"line {line}")
        if column is not None:
            base = "" if file is not None else " (counted from 0)"
            location.append(f"column {column}{base}" if isinstance(column, int) else f"column {column!r}")
        if value is not None:
            location.append(f"value {self.value!r}")
        text = (", ".join(location) + ": " if location else "") + self.problem
        if self.cure:
            text += f"\n  cure: {self.cure}"
        super().__init__(text)

    def with_column_name(self, names: Sequence[str] | None) -> DataError:
        """Return a copy of this error that gives the column's name instead of its index."""
        column = self.column
        if names is not None and isinstance(column, int):
            column = str(names[column])
        return DataError(self.problem, file=self.file, line=self.line, column=column, value=self.value, cure=self.cure)


class DoesNotFitError(MlfsError, MemoryError):
    """Job whose projected memory or disk use exceeds the limit (exit 4).

    Parameters
    ----------
    what : str
        Object that needs the memory or disk space.
    projected : int or None
        Bytes; None if the system refused an allocation of unknown size.
    available : int
        Bytes.
    cure : str
        Action for the user.
    """

    exit_code = 4

    def __init__(self, what: str, *, projected: int | None, available: int, cure: str) -> None:
        self.what = redact(what)
        self.projected = None if projected is None else int(projected)
        self.available = int(available)
        self.cure = redact(cure)
        needed = "more than there is" if self.projected is None else f"projected {_mebibytes(self.projected)}"
        super().__init__(f"{what}: {needed}, available {_mebibytes(self.available)}\n  cure: {cure}")


def _mebibytes(count: int) -> str:
    tenths = (10 * count + 2**19) // 2**20  # integers: damaged files declare sizes beyond the range of floats
    return f"{tenths // 10:,}.{tenths % 10} MiB ({count:,} bytes)"


class StoreAccessError(MlfsError):
    """Refused or failed access to a store by the system or a server; not for damaged data (exit 1).

    Parameters
    ----------
    store : str
        Path or URL.
    problem : str
        Refused operation.
    cure : str
        Action for the user.
    """

    def __init__(self, store: str, problem: str, cure: str) -> None:
        self.store = redact(store)
        self.problem = redact(problem)
        self.cure = redact(cure)
        super().__init__(f"{store}: {problem}\n  cure: {cure}")

    def with_detail(self, detail: str) -> StoreAccessError:
        """Return a copy of this error with a detail appended to `problem`."""
        return type(self)(self.store, f"{self.problem}, {detail}", self.cure)


class StoreNotAllowedError(StoreAccessError):
    """Access denied by file permissions or by a server's credentials (exit 1)."""


class StoreUnavailableError(StoreAccessError):
    """Server of the store unreachable, throttled or too slow, after all retries (exit 1)."""


class ClusterLostError(MlfsError):
    """Scheduler or all workers lost or unreachable (exit 5)."""

    exit_code = 5
