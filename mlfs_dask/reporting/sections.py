"""Parts of a page, before they are written as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlfs_dask.reporting.figures import Figure
from mlfs_dask.reporting.tables import Table


@dataclass(frozen=True)
class Block:
    """A part of a section.

    Attributes
    ----------
    title : str
    texts, notes : sequences of str
        Paragraphs; points in a list.
    tables : sequence of Table
    figures : sequence of Figure
    folded : bool or None
        Whether it begins folded; None: it cannot be folded.
    """

    title: str = ""
    texts: Sequence[str] = ()
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    folded: bool | None = None


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    anchor: str
    title: str
    blocks: list[Block] = field(default_factory=list)
