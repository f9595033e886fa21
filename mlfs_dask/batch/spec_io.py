"""Reading the YAML file of a batch: every value keeps its line, so that an error can name it."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mlfs_dask.errors import DataError
from mlfs_dask.files.object_store import read_text_file
from mlfs_dask.selectors.parameters import key_of

#: Values of a plan at most.
MAX_VALUES = 100_000


@dataclass(frozen=True)
class Item:
    """A value of a document.

    Attributes
    ----------
    value : None, bool, int, float, str, list of Item, or dict of str to Item
    file : str or None
        None where the document is Python's own.
    line : int or None
        From 1.
    """

    value: Any
    file: str | None = None
    line: int | None = None

    def error(self, problem: str, *, cure: str | None = None) -> DataError:
        """Return an error at this place."""
        return DataError(problem, file=self.file, line=self.line, cure=cure)

    def plain(self) -> Any:
        """Return the value without line numbers."""
        if isinstance(self.value, dict):
            return {name: item.plain() for name, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def mapping(self, what: str, known: Iterable[str]) -> dict[str, Item]:
        """Return the entries of a mapping whose keys are all known, however they are spelt
        (`selectors.parameters.key_of`).

        Raises
        ------
        DataError
            A key is not known, or is given in two spellings.
        """
        names = list(known)
        if not isinstance(self.value, dict):
            raise self.error(f"{what} must be a mapping with the keys {', '.join(names)}; got {self.plain()!r}")
        items: dict[str, Item] = {}
        spelt: dict[str, str] = {}
        for name, item in self.value.items():
            key = key_of(name)
            if key not in names:
                close = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
                cure = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
                raise item.error(f"{what} has no key {name!r}", cure=cure)
            if key in items:
                raise item.error(f"{what}: {spelt[key]!r} and {name!r} are the same key", cure="give one of them")
            items[key], spelt[key] = item, name
        return items

    def items(self) -> list[Item]:
        """Return the items of a list, or the value alone as a list of one."""
        return self.value if isinstance(self.value, list) else [self]

    def text(self, what: str) -> str:
        """Return a text that is not empty.

        Raises
        ------
        DataError
        """
        if not isinstance(self.value, str) or not self.value:
            raise self.error(f"{what} must be a text; got {self.plain()!r}")
        return self.value


def read_document(path: str | Path) -> Item:
    """Read a YAML file; nothing but plain data is made of it.

    Raises
    ------
    DataError
        It does not exist, is no YAML, holds a key twice, or holds what is no plain data.
    OSError
        The system does not let it be read.
    """
    file = str(path)
    try:
        text = read_text_file(path)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        raise DataError("there is no such file", file=file, cure="check the path") from None
    except IsADirectoryError:
        raise DataError("it is a folder, not a plan", file=file) from None
    except OSError as error:
        error.filename = error.filename or file  # of an error of reading, which the system does not name
        raise
    except UnicodeDecodeError as error:
        raise DataError("it is no text in UTF-8", file=file, cure="save it as UTF-8") from error
    except RecursionError as error:
        raise DataError("it is nested too deeply", file=file) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise DataError(f"not valid YAML: {problem}", file=file, line=mark and mark.line + 1) from error
    if node is None:
        raise DataError("the file is empty", file=file)
    return _item(node, file, yaml.constructor.SafeConstructor(), (), itertools.count())


def _item(node: Any, file: str, constructor: Any, within: tuple[Any, ...], number: Iterator[int]) -> Item:
    line = node.start_mark.line + 1
    if next(number) >= MAX_VALUES:
        # A few lines of aliases to aliases stand for any number of values.
        raise DataError(f"it holds more than {MAX_VALUES:,} values", file=file, line=line)
    if node in within:
        raise DataError("an alias refers to an entry that contains it", file=file, line=line)
    within = (*within, node)
    if isinstance(node, yaml.SequenceNode):
        return Item([_item(each, file, constructor, within, number) for each in node.value], file, line)
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, Item] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise DataError("a key must be a text", file=file, line=key.start_mark.line + 1)
            if key.value in entries:
                first = entries[key.value].line
                raise DataError(
                    f"the key {key.value!r} is given twice, first on line {first}",
                    file=file,
                    line=key.start_mark.line + 1,
                )
            # The line of the key: its value may begin on another.
            item = _item(value, file, constructor, within, number)
            entries[key.value] = Item(item.value, file, key.start_mark.line + 1)
        return Item(entries, file, line)
    try:
        value = constructor.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:  # the latter of a number of thousands of digits
        raise DataError(f"{node.value[:100]!r} is not a plain value: {error}", file=file, line=line) from error
    if not isinstance(value, bool | int | float | str | None):
        raise DataError(f"{node.value!r} is read as {type(value).__name__}; put it in quotes", file=file, line=line)
    return Item(value, file, line)


def as_document(value: Any) -> Item:
    """Return plain data as a document without line numbers."""
    if isinstance(value, Mapping):
        return Item({str(name): as_document(each) for name, each in value.items()})
    if isinstance(value, list | tuple):
        return Item([as_document(each) for each in value])
    return Item(str(value) if isinstance(value, Path) else value)
