"""Stores of stated size for the benchmarks, made from seeds through the same writer that `mlfs convert` uses.

Dense X is uniform in [0, 1) but for its first 20 features, which move with the first labels; sparse X is 0/1 with
the stated nonzeros a row at uniformly drawn columns. Every row has `cardinality` labels, drawn uniformly.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from mlfs_dask.storage.convert import Options, convert_reader
from mlfs_dask.storage.readers.base import Batch, Header, Part

BATCH_ROWS = 10_000


@dataclass
class SyntheticReader:
    """A `Reader` of made-up rows; row r is the same for any parts and batches.

    Parameters
    ----------
    n, d, q : int
    cardinality : int
        Labels a row.
    nonzeros : int
        Nonzeros a row of sparse X; 0 for dense float32.
    seed : int
    """

    n: int
    d: int
    q: int
    cardinality: int = 3
    nonzeros: int = 0
    seed: int = 0
    path: str = "synthetic"
    header: Header = field(init=False)

    def __post_init__(self) -> None:
        self.header = Header(
            tuple(f"x{i}" for i in range(self.d)),
            tuple(f"y{i}" for i in range(self.q)),
            n_features=self.d,
            n_labels=self.q,
            n_rows=self.n,
        )

    def parts(self, part_bytes: int) -> list[Part]:
        step = 10 * BATCH_ROWS
        return [Part(i, a, min(a + step, self.n)) for i, a in enumerate(range(0, self.n, step))]

    def read(self, part: Part, *, batch_bytes: int, start: int | None = None) -> Iterator[Batch]:
        first = part.start if start is None else start
        assert part.stop is not None
        for a in range(first, part.stop, BATCH_ROWS):
            b = min(a + BATCH_ROWS, part.stop)
            yield self.batch(a, b)

    def batch(self, a: int, b: int) -> Batch:
        """Rows a..b-1; a must be a multiple of BATCH_ROWS."""
        rng = np.random.default_rng([self.seed, a])
        rows = b - a
        labels = np.sort(rng.integers(0, self.q, (rows, self.cardinality), dtype=np.int32), axis=1)
        fresh = np.ones(labels.shape, dtype=bool)
        fresh[:, 1:] = labels[:, 1:] != labels[:, :-1]
        Y = csr_array(
            (np.ones(int(fresh.sum()), np.int8), labels[fresh], np.concatenate(([0], fresh.sum(axis=1).cumsum()))),
            shape=(rows, self.q),
        )
        if not self.nonzeros:
            X = rng.random((rows, self.d), dtype=np.float32)
            planted = min(20, self.d, self.q)
            X[:, :planted] = 0.8 * X[:, :planted] + 0.1999 * Y[:, :planted].toarray()
            return Batch(X, Y, b)
        columns = np.sort(rng.integers(0, self.d, (rows, self.nonzeros), dtype=np.int32), axis=1)
        fresh = np.ones(columns.shape, dtype=bool)
        fresh[:, 1:] = columns[:, 1:] != columns[:, :-1]
        return Batch(
            csr_array(
                (np.ones(int(fresh.sum())), columns[fresh], np.concatenate(([0], fresh.sum(axis=1).cumsum()))),
                shape=(rows, self.d),
            ),
            Y,
            b,
        )


def make_store(
    path: Path, n: int, d: int, q: int, *, cardinality: int = 3, nonzeros: int = 0, compressor: str = "none"
) -> Path:
    """The store at `path`, made unless it is there."""
    if not path.exists():
        reader = SyntheticReader(n, d, q, cardinality, nonzeros)
        convert_reader(lambda: reader, path, options=Options(compressor=compressor), resume=False, force=True)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    for name in ("n", "d", "q"):
        parser.add_argument(name, type=int)
    parser.add_argument("--cardinality", type=int, default=3)
    parser.add_argument("--nonzeros", type=int, default=0)
    arguments = parser.parse_args()
    make_store(
        arguments.path,
        arguments.n,
        arguments.d,
        arguments.q,
        cardinality=arguments.cardinality,
        nonzeros=arguments.nonzeros,
    )
