"""Label names from a Mulan XML file: `<labels><label name="..."/>...</labels>`, possibly nested.

Nesting describes a hierarchy; every level is a label of its own. Holds the names alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.parsers import expat

from mlfs_dask.errors import DataError
from mlfs_dask.files.compressed_io import read_small

#: A million labels, described at length.
_MAX_BYTES = 1 << 26


def read_mulan_labels(path: str, storage_options: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the names of all labels in document order.

    Raises
    ------
    DataError
        The file is missing, is no XML, names no label, or names one twice.
    """
    lines: dict[str, int] = {}
    parser = expat.ParserCreate(namespace_separator=" ")

    def on_element(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition(" ")[2] != "label":
            return
        name, line = attributes.get("name"), parser.CurrentLineNumber
        if name is None:
            raise DataError(
                "a <label> element has no name",
                file=path,
                line=line,
                cure='write <label name="..."></label> for every label',
            )
        if name in lines:
            raise DataError(
                f"the label is named twice; the first time in line {lines[name]}",
                file=path,
                line=line,
                value=name,
                cure="name every label once: perhaps another name was meant here",
            )
        lines[name] = line

    parser.StartElementHandler = on_element
    cure = "give the .xml file that came with the data"
    content = read_small(path, storage_options, _MAX_BYTES, what="a file of labels", cure=cure)
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise DataError(
            f"a Mulan XML file of labels was expected: {expat.ErrorString(error.code)}",
            file=path,
            line=error.lineno,
            column=error.offset + 1,
            cure=cure,
        ) from error
    if not lines:
        raise DataError(
            "no <label> element was found",
            file=path,
            cure='write <labels xmlns="http://mulan.sourceforge.net/labels"><label name="..."/></labels>',
        )
    return tuple(lines)
