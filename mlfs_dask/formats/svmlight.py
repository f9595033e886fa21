"""svmlight text with several labels: `1,3,5 2:0.5 7:1 # comment`, labels from 0, features from 1.

The file declares nothing, so names are made up and widths known when the last row has been read, unless the
user gives them. `qid:...` is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlfs_dask.errors import UsageError
from mlfs_dask.files.compressed_io import open_source
from mlfs_dask.readers.base import BATCH_BYTES, FileSpec, Format, Header, Part

if TYPE_CHECKING:
    from mlfs_dask.readers.indexed_text import IndexedTextReader

_KEYS = ("feature_base", "n_features", "n_labels")


def open_svmlight(path: str, spec: FileSpec) -> IndexedTextReader:
    """Open svmlight text.

    Parameters
    ----------
    path : str
    spec : FileSpec
        `keys` may hold `feature_base`: "1" (default), "0", or "auto" (0 if any row has a feature 0; this reads
        the file once more), and `n_features`, `n_labels`: widths, where the last columns may be empty in
        this file. `labels.count` means the same as `n_labels`. With `labels.classes` rows begin with their class, any
        number, which one more pass over the file finds.

    Raises
    ------
    DataError, UsageError
    """
    from mlfs_dask.readers.indexed_text import IndexedTextReader, fills_unknown  # loads Numba

    labels = spec.labels
    if labels.separator is not None or (labels.classes and labels.count is not None):
        raise UsageError(
            f"{path}: svmlight text has its classes in its rows\n  cure: say --label-classes alone, without "
            "--label-separator and --n-labels"
        )
    if labels.xml is not None or labels.columns is not None or spec.drop:
        raise UsageError(
            f"{path}: svmlight text has no names, so labels and columns cannot be chosen by name\n"
            "  cure: leave out --label-file, --label-columns and --drop"
        )
    unknown = sorted(set(spec.keys) - set(_KEYS))
    if unknown:
        raise UsageError(f"{path}: svmlight text has no key {unknown[0]!r}; known are {', '.join(_KEYS)}")
    base = spec.keys.get("feature_base", "1")
    if base not in ("0", "1", "auto"):
        raise UsageError(f"feature_base must be 0, 1 or auto, not {base!r}")
    n_labels = labels.count if labels.count is not None else _width(spec, "n_labels")
    reader = IndexedTextReader(
        header=Header(
            feature_names=None,
            label_names=None,
            n_features=_width(spec, "n_features"),
            n_labels=n_labels,
        ),
        path=path,
        source=open_source(path, spec.storage_options),
        feature_base=1 if base != "0" else 0,
        base_cure="if its features count from 0, give --key feature_base=0",
        fills_unknown=not labels.classes and fills_unknown(labels, n_labels, path),
        may_have_classes=True,
    )
    if base == "auto":
        reader.feature_base = 0
        batches = reader.read(Part(0, 0, None), batch_bytes=BATCH_BYTES)
        if not any(batch.X.shape[1] and batch.X[:, [0]].nnz for batch in batches):
            reader.feature_base = 1
    return reader.found_classes(labels.values) if labels.classes else reader


def _width(spec: FileSpec, key: str) -> int | None:
    text = spec.keys.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"{key} must be a positive whole number, not {text!r}")
    return int(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_word(word: str) -> bool:
    """Return True for a word of labels (1,4), a class (-1, 3.0) or index:value; a comment may follow."""
    index, colon, value = word.partition(":")
    if not colon:
        return all(_is_number(part) for part in index.strip(",").split(",")) or index.startswith("#")
    return _is_number(value) and (index.isdecimal() or index == "qid")


def _head(content: bytes, lines: list[str]) -> bool:
    words = lines[0].split() if lines else []
    return any(":" in word for word in words) and all(map(is_word, words))


FORMATS = (
    Format(
        name="svmlight",
        title="svmlight (libsvm) text",
        open=open_svmlight,
        suffixes=(".svm", ".svmlight", ".libsvm"),
        keys=None,
        head=_head,
        in_place=lambda path: False,
    ),
)
