"""KEEL's dialect of ARFF: ranges of numbers, `@inputs`, `@outputs`, and `<null>` for a missing value.

Labels are the attributes that `@outputs` names, unless the user names others.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mlfs_dask.files.compressed_io import open_source
from mlfs_dask.formats.arff import open_with
from mlfs_dask.readers.arff_header import read_arff_header, readable, unquote
from mlfs_dask.readers.base import FileSpec, Format

if TYPE_CHECKING:
    from mlfs_dask.readers.arff_rows import ArffReader

_OWN = re.compile(r"\s*@(inputs?|outputs?)\b|\s*@attribute\s.*\b(real|integer)\s*\[", re.IGNORECASE)


def open_keel(path: str, spec: FileSpec) -> ArffReader:
    """Open a KEEL file; errors as of `open_arff`."""
    outputs: list[str] = []

    def other(keyword: str, rest: str) -> bool:
        if keyword in ("@output", "@outputs"):
            outputs.extend(readable(unquote(name.strip()) or name) for name in rest.split(","))
        return keyword in ("@input", "@inputs", "@output", "@outputs")

    header = read_arff_header(open_source(path, spec.storage_options), other)
    if outputs and not spec.labels.names_columns and header.counted_labels is None:
        spec = replace(spec, labels=replace(spec.labels, columns=tuple(outputs)))
    return open_with(path, spec, header, missing=("<null>",))


def _head(content: bytes, lines: list[str]) -> bool:
    return bool(lines) and lines[0].lower().lstrip().startswith("@relation") and any(map(_OWN.match, lines))


FORMATS = (
    Format(
        name="keel",
        title="KEEL, ARFF with @inputs and @outputs",
        open=open_keel,
        suffixes=(".arff",),
        keys=None,
        head=_head,
        order=-1,
        in_place=lambda path: False,
    ),
)
