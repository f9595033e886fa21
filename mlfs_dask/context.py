"""Context variables, which keep settings of concurrent threads and tasks apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TypeVar

_T = TypeVar("_T")


@contextlib.contextmanager
def assigned(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Set a context variable inside the with-block, and restore its value afterwards.

    >>> size = ContextVar("size", default=1)
    >>> with assigned(size, 2):
    ...     size.get()
    2
    >>> size.get()
    1
    """
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
