"""ARFF, dense and sparse, with labels named by a Mulan XML file, Meka's `-C`, names or a count.

Decisions where the format leaves room:

- Labels keep the order of the attributes in the file; an XML file only tells which they are. So all forms of
  one data set agree, whatever order its XML has.
- A nominal attribute whose two values mean false and true in any spelling and order (`{0,1}`, `{YES, NO}`)
  is read as 0 and 1. Other nominals are codes 0..K-1 in the order declared.
- In a sparse row an attribute that is absent is 0 or, if nominal, the first value declared.
- Dates are seconds since 1970-01-01T00:00Z; without a zone they are taken as UTC.
- Instance weights are passed over, with a line in the log.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.files.compressed_io import SourceFile, exists, open_source
from mlfs_dask.readers.arff_header import ArffHeader, AttributeNames, read_arff_header, readable
from mlfs_dask.readers.base import FileSpec, Format, LabelSpec
from mlfs_dask.readers.label_columns import check_kept
from mlfs_dask.readers.mulan_xml import read_mulan_labels
from mlfs_dask.redaction import redact

if TYPE_CHECKING:
    from mlfs_dask.readers.arff_rows import ArffReader

logger = logging.getLogger(__name__)


def choose_labels(
    header: ArffHeader,
    names: AttributeNames,
    spec: LabelSpec,
    source: SourceFile,
    dropped: Collection[int] = (),
) -> list[int]:
    """Return attributes that are labels, in the order of the file.

    What the user says goes before the header, whose `-C` can lie: filters that reorder attributes leave it standing.
    `--n-labels` counts no attribute that is left out, `-C` counts all.

    Raises
    ------
    DataError, UsageError
    """
    if spec.xml is not None:
        listed = read_mulan_labels(spec.xml, source.storage_options)
        return names.find_labels(listed, spec.xml)
    if spec.columns is not None:
        return names.find_labels(spec.columns, source.path)
    if spec.count is not None:
        counted = [i for i in range(len(header.attributes)) if i not in dropped]
        return _labels_at_an_end(spec.count if spec.first else -spec.count, counted, source.path, "--n-labels")
    declared = header.counted_labels
    if declared is None:
        raise UsageError(
            f"{source.path}: no option says which attributes are labels\n"
            "  cure: give --label-file FILE.xml, --label-columns NAMES or --n-labels K"
        )
    return _labels_at_an_end(declared, range(len(header.attributes)), source.path, "-C in @relation")


def _labels_at_an_end(count: int, attributes: Sequence[int], path: str, said: str) -> list[int]:
    """Return Meka's convention: the first `count` attributes, or the last `-count`."""
    if not 0 < abs(count) < len(attributes):
        raise DataError(
            f"{said} asks for {abs(count)} labels; the file has {len(attributes)} attributes to count, and at least "
            "one must be a label and one a feature",
            file=path,
            cure="give --label-file FILE.xml, --label-columns NAMES or another --n-labels",
        )
    return list(attributes[:count] if count > 0 else attributes[count:])


def open_arff(path: str, spec: FileSpec) -> ArffReader:
    """Read the header and settle which attributes are labels.

    Raises
    ------
    DataError
        The header is malformed, a name is not there, or an attribute can be neither feature nor label.
    UsageError
        Nothing tells which attributes are labels.
    """
    if not spec.labels.names_columns and (xml := _xml_beside(path, spec)) is not None:
        logger.info("%s: the labels are those named in %s", redact(path), redact(xml))
        spec = replace(spec, labels=replace(spec.labels, xml=xml))
    return open_with(path, spec, read_arff_header(open_source(path, spec.storage_options)))


def open_with(path: str, spec: FileSpec, header: ArffHeader, *, missing: tuple[str, ...] = ()) -> ArffReader:
    """Return the reader of a file whose header is read; `missing` as of `make_reader`, errors as of `open_arff`."""
    from mlfs_dask.readers.arff_rows import make_reader  # loads Numba

    if spec.keys:
        raise UsageError(f"{path}: ARFF files have no key {min(spec.keys)!r}")
    source = open_source(path, spec.storage_options)
    names = AttributeNames(header.attributes, path)
    dropped = set(names.find(spec.drop, "column to leave out,", path))
    labels = choose_labels(header, names, spec.labels, source, dropped)
    check_kept(labels, dropped, [readable(attribute.name) for attribute in header.attributes], file=path)
    if not math.isnan(spec.labels.values.of_text("NA") or 0):
        raise UsageError(
            f"{path}: the label ? of ARFF means unknown\n  cure: leave NA out, or write another value instead of ?"
        )
    return make_reader(source, header, labels, dropped, spec.labels, missing=missing)


def _xml_beside(path: str, spec: FileSpec) -> str | None:
    """Return the XML file of the same stem, if there is one."""
    folder = path[: len(path) - len(PurePosixPath(path).name)]
    stem = PurePosixPath(path).name
    while PurePosixPath(stem).suffix.lower() in (".gz", ".xz", ".bz2", ".zst", ".arff"):
        stem = PurePosixPath(stem).stem
    xml = f"{folder}{stem}.xml"
    return xml if exists(xml, spec.storage_options) else None


FORMATS = (
    Format(
        name="arff",
        title="Mulan or Meka ARFF, dense or sparse",
        open=open_arff,
        suffixes=(".arff",),
        keys=None,
        head=lambda content, lines: bool(lines) and lines[0].lstrip().lower().startswith("@relation"),
        in_place=lambda path: False,
    ),
)
