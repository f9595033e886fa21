"""A reader of arrays that are already in memory, cut into batches as a test likes."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from mlfs_dask.readers.base import Batch, Header, Part, Reader


@dataclass
class MemoryReader(Reader):
    """Rows of X and Y; `cuts` are the batch boundaries, `part_cuts` those of the parts.

    `sleep` seconds pass before every batch, and one line is added to `log` for it, so that a test can
    interrupt the reading and see what was read again.
    """

    X: Any
    Y: Any
    header: Header
    path: str = "memory"
    cuts: tuple[int, ...] = ()
    part_cuts: tuple[int, ...] = ()
    sleep: float = 0.0
    log: str | None = None
    first_line: int | None = None
    in_threads: bool = False

    def parts(self, part_bytes: int) -> list[Part]:
        edges = sorted({0, *self.part_cuts, self.X.shape[0]})
        if len(edges) == 1:
            return [Part(0, 0, 0)]
        return [Part(i, a, b) for i, (a, b) in enumerate(itertools.pairwise(edges))]

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        first = part.start
        assert part.stop is not None
        inner = [cut for cut in sorted(self.cuts) if first < cut < part.stop]
        for a, b in itertools.pairwise([first, *inner, part.stop]):
            time.sleep(self.sleep)
            if self.log is not None:
                with Path(self.log).open("a") as file:
                    file.write(f"{a} {b} {os.getpid()} {threading.get_native_id()}\n")
            line = None if self.first_line is None else self.first_line + a
            yield Batch(self.X[a:b], csr_array(self.Y[a:b]).astype(np.int8), line)


def make_reader(
    X: Any,
    Y: Any,
    *,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    categories: dict[int, tuple[str, ...]] | None = None,
    **options: Any,
) -> MemoryReader:
    header = Header(
        feature_names=None if feature_names is None else tuple(feature_names),
        label_names=None if label_names is None else tuple(label_names),
        categories=categories or {},
        n_features=X.shape[1],
        n_labels=Y.shape[1],
    )
    return MemoryReader(X, Y, header, **options)
