"""Columns of the rows of files: covariates and strata, which a conversion keeps beside features and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ObsColumns:
    """Columns of the rows of some files, or of a store.

    Attributes
    ----------
    names : tuple of str
    categories : dict of str to tuple of str
        Values of the columns that are categories, in the order of their codes.
    blocks : callable
        Gives an iterator of (rows, columns) blocks of float64: numbers and codes, NaN where missing.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]
    blocks: Callable[[], Iterator[Array]] = field(repr=False)

    def recoded(self, categories: Mapping[str, tuple[str, ...]]) -> Iterator[Array]:
        """Yield blocks with the codes that values have in `categories`, of which these are some."""
        codes = {}
        for name, values in self.categories.items():
            if categories[name][: len(values)] != values:
                place = {value: float(code) for code, value in enumerate(categories[name])}
                codes[self.names.index(name)] = np.array([place[value] for value in values])
        for block in self.blocks():
            for column, table in codes.items():
                known = ~np.isnan(block[:, column])
                block[known, column] = table[block[known, column].astype(np.int64)]
            yield block


def joined(pieces: Sequence[ObsColumns], *, paths: Sequence[str]) -> ObsColumns:
    """Return the columns of several files, or of a store and of files, one after the other.

    New values of a category come after the known ones. A column that is numbers here and categories there is refused.

    Raises
    ------
    DataError
    """
    first = pieces[0]
    categories = dict(first.categories)
    for piece, path in zip(pieces[1:], paths[1:], strict=True):
        for name in first.names:
            if (name in piece.categories) != (name in first.categories):
                words = ("numbers", "categories")
                raise DataError(
                    f"it is {words[name in piece.categories]}, and {words[name in first.categories]} in {paths[0]}",
                    file=path,
                    column=name,
                    cure="give these columns the same type in all files",
                )
            known = categories.get(name, ())
            new = sorted(set(piece.categories.get(name, ())) - set(known))
            if new:
                categories[name] = (*known, *new)

    def blocks() -> Iterator[Array]:
        for piece in pieces:
            yield from piece.recoded(categories)

    return ObsColumns(first.names, categories, blocks)
