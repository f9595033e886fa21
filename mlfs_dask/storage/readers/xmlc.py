"""XMLC text (Extreme Classification Repository): a first line `n d q`, then svmlight-like rows from 0.

Labels and features count from 0; a row without labels begins with a blank.
"""

from __future__ import annotations

import re

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.storage.readers.base import Header, ReadOptions
from mlfs_dask.storage.readers.compressed_io import open_source
from mlfs_dask.storage.readers.indexed_text import UTF8_MARK, IndexedTextReader, fills_unknown

_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*")  # 64-bit integers
_LONGEST_HEADER = 200


def open_xmlc(path: str, options: ReadOptions) -> IndexedTextReader:
    """Open XMLC text and read its header; `header.n_rows` is what the file declares.

    Raises
    ------
    DataError
        The first line is not `n d q`.
    UsageError
        Labels or columns are named, which this format cannot do.
    """
    labels = options.labels
    if labels.names_columns or options.drop or options.keys:
        raise UsageError(
            f"{path}: XMLC text says itself which labels it has, and has no names and no keys\n"
            "  cure: leave out the label options, --drop and keys"
        )
    source = open_source(path, options.storage_options)
    with source.open() as stream:
        line = stream.readline(_LONGEST_HEADER)
    match = _HEADER.fullmatch(line.removeprefix(UTF8_MARK))
    if not match or not line.endswith(b"\n"):
        raise DataError(
            "the first line of XMLC text was expected: rows, features and labels, as in 7395 1836 159",
            file=path,
            line=1,
            value=line[:40].decode("utf-8", "replace").strip(),
            cure="use --format svmlight if the file has no such line",
        )
    n_rows, n_features, n_labels = (int(group) for group in match.groups())
    return IndexedTextReader(
        header=Header(
            feature_names=None,
            label_names=None,
            n_features=n_features,
            n_labels=n_labels,
            n_rows=n_rows,
        ),
        path=path,
        source=source,
        feature_base=0,
        base_cure="XMLC features count from 0",
        data_start=len(line),
        data_line=2,
        fills_unknown=fills_unknown(labels, n_labels, path),
    )
