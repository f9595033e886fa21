"""Label names from a Mulan XML file: `<labels><label name="..."/>...</labels>`, possibly nested.

Nesting describes a hierarchy; every level is a label of its own. Holds the names alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.compressed_io import open_source


def read_mulan_labels(path: str, storage_options: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Names of all labels in document order, each once.

    Raises
    ------
    DataError
        The file is missing, is no XML, or names no label.
    """
    names: dict[str, None] = {}
    with open_source(path, storage_options).open() as stream:
        try:
            for _, element in ET.iterparse(stream, events=("start",)):
                if element.tag.rpartition("}")[2] == "label":
                    name = element.get("name")
                    if name is None:
                        raise DataError(
                            "a <label> element has no name",
                            file=path,
                            cure='write <label name="..."></label> for every label',
                        )
                    names[name] = None
        except ET.ParseError as error:
            line, column = error.position
            raise DataError(
                f"a Mulan XML file of labels was expected: {str(error).partition(': line')[0]}",
                file=path,
                line=line,
                column=column + 1,
                cure="give the .xml file that came with the data",
            ) from error
    if not names:
        raise DataError(
            "no <label> element was found",
            file=path,
            cure='write <labels xmlns="http://mulan.sourceforge.net/labels"><label name="..."/></labels>',
        )
    return tuple(names)
