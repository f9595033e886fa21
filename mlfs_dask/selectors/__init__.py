"""One file a published method, and the table by which the command line finds them."""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mlfs_dask.errors import UsageError, closest

if TYPE_CHECKING:
    from mlfs_dask.selectors.contract import Method
#: A class under `@method`, with the name of the method.
_DECLARED = re.compile(r'^@method\(\s*"([^"]+)".*?^class (\w+)', re.MULTILINE | re.DOTALL)


@functools.cache
def _declared() -> dict[str, str]:
    """Return name on the command line -> module and class. Files are read, and none is imported before it is asked
    for.
    """
    package = Path(__file__).parent.parent
    # `auto` judges the others: it is one of evaluation's experiments.
    files = [*package.glob("selectors/*.py"), package / "evaluation" / "auto.py"]
    found = {
        name: f"{package.name}.{file.parent.name}.{file.stem}:{cls}"
        for file in files
        for name, cls in _DECLARED.findall(file.read_text(encoding="utf-8"))
    }
    return dict(sorted(found.items()))


#: Every method, in the order of names. The files are read when it is first asked for.
METHODS: dict[str, str]


def __getattr__(name: str) -> dict[str, str]:
    if name != "METHODS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _declared()


def method_name(name: str) -> str:
    """Return a method's name as it stands in `METHODS`, however it is written.

    >>> method_name("ELC"), method_name("label_entropy")
    ('elc', 'label-entropy')
    """
    return name.lower().replace("_", "-")


def get_method(name: str) -> type[Method]:
    """Return the method of a name, in upper or lower case.

    Raises
    ------
    UsageError
        There is no such method; the message names the closest ones.
    """
    methods = _declared()
    try:
        module, _, attribute = methods[method_name(name)].partition(":")
    except KeyError:
        raise UsageError(f"there is no method {name!r}. {closest(name, methods)} `mlfs methods` lists all.") from None
    method: type[Method] = getattr(importlib.import_module(module), attribute)
    return method
