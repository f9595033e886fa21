"""Stores of stated size for the benchmarks, made from seeds through the same writer that `mlfs convert` uses.

Dense X is uniform in [0, 1) but for its first 20 features, which move with the first labels; sparse X is 0/1 with
the stated nonzeros a row at uniformly drawn columns. Every row has `cardinality` labels, drawn uniformly.

`PlantedReader` makes data in which neighbours mean something: rows that are combinations of a few hidden factors, or
texts about a few topics, labels that follow from those, and labels of a share of the rows or entries alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.readers.base import Batch, Header, Part, Reader, parts_at
from mlfs_dask.readers.obs import ObsColumns
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import convert_reader

BATCH_ROWS = 10_000


@dataclass
class SyntheticReader(Reader):
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
    in_threads: bool = False
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
        return parts_at(range(0, self.n, step), self.n, rows=True)

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        assert part.stop is not None
        for a in range(part.start, part.stop, BATCH_ROWS):
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
            return Batch(X, Y)
        columns = np.sort(rng.integers(0, self.d, (rows, self.nonzeros), dtype=np.int32), axis=1)
        fresh = np.ones(columns.shape, dtype=bool)
        fresh[:, 1:] = columns[:, 1:] != columns[:, :-1]
        return Batch(
            csr_array(
                (np.ones(int(fresh.sum())), columns[fresh], np.concatenate(([0], fresh.sum(axis=1).cumsum()))),
                shape=(rows, self.d),
            ),
            Y,
        )


#: Hidden factors of planted dense rows, those that move one feature, and the noise of a feature beside them.
FACTORS = 10
FACTORS_OF_FEATURE = 3
NOISE = 0.3

#: Share of a planted text's words that are about its topics; the others are any words.
ON_TOPIC = 0.6


@dataclass
class PlantedReader(SyntheticReader):
    """Rows of a known structure; labels of all rows but a share are unknown (-1).

    Dense: a row has `FACTORS` standard normal factors. A feature is the sum of `FACTORS_OF_FEATURE` of them, weighted
    by draws, plus noise of standard deviation `NOISE` times its own, so that near rows have like factors. A label
    is positive where a combination of two factors is among its largest 15 %.

    Sparse: a row has 1 to 3 of q topics, which are its labels. `ON_TOPIC` of its words come from them and the others
    from all words; in both, the r-th commonest word has a frequency of 1/(r + 10). Values are 1 + log(count), and rows
    have norm 1, as in RCV1.

    Parameters
    ----------
    labelled : float
        Share of rows of which labels are known.
    labelled_entries : float
        Share of these rows' labels that are known.
    """

    labelled: float = 1.0
    labelled_entries: float = 1.0

    def batch(self, a: int, b: int) -> Batch:
        """Rows a..b-1; a must be a multiple of BATCH_ROWS."""
        rng = np.random.default_rng([self.seed, a])
        X, Y = self._texts(rng, b - a) if self.nonzeros else self._combinations(rng, b - a)
        Y[rng.random(b - a) >= self.labelled] = -1
        if self.labelled_entries < 1:
            Y[rng.random(Y.shape) >= self.labelled_entries] = -1
        return Batch(X, csr_array(Y))

    def _combinations(self, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        planted = np.random.default_rng([self.seed, 1])
        loadings = planted.standard_normal((FACTORS, self.d))
        loadings[np.argsort(planted.random((FACTORS, self.d)), axis=0) >= FACTORS_OF_FEATURE] = 0.0
        loadings /= np.linalg.norm(loadings, axis=0)
        pairs = np.argsort(planted.random((self.q, FACTORS)), axis=1)[:, :2]
        angles = planted.uniform(0, 2 * np.pi, self.q)
        factors = rng.standard_normal((rows, FACTORS))
        X = NOISE * rng.standard_normal((rows, self.d), dtype=np.float32)
        X += (factors @ loadings).astype(np.float32)
        strength = factors[:, pairs[:, 0]] * np.cos(angles) + factors[:, pairs[:, 1]] * np.sin(angles)
        return X, (strength > 1.0364).astype(np.int8)

    def _texts(self, rng: np.random.Generator, rows: int) -> tuple[csr_array, np.ndarray]:
        words = self.nonzeros + 2  # some are drawn twice
        topics = rng.integers(0, self.q, (rows, 3))
        topics = np.where(np.arange(3) < rng.integers(1, 4, rows)[:, np.newaxis], topics, topics[:, :1])
        Y = np.zeros((rows, self.q), np.int8)
        np.put_along_axis(Y, topics, 1, axis=1)
        cumulated = np.cumsum(1.0 / (np.arange(self.d) + 10.0))
        word = np.searchsorted(cumulated, rng.random((rows, words)) * cumulated[-1])
        about = np.take_along_axis(topics, rng.integers(0, 3, (rows, words)), axis=1)
        step = next(step for step in range(self.d // 3, self.d) if np.gcd(step, self.d) == 1)
        own = (word * step + about * (self.d // self.q)) % self.d  # every topic has an order of words of its own
        word = np.where(rng.random((rows, words)) < ON_TOPIC, own, word)
        X = csr_array(
            (np.ones(word.size, np.float32), (np.repeat(np.arange(rows), words), word.ravel())), shape=(rows, self.d)
        )
        X.sum_duplicates()
        X.data = 1 + np.log(X.data)
        norms = np.sqrt(np.asarray(X.power(2).sum(axis=1)).ravel())
        X.data /= np.repeat(norms, np.diff(X.indptr)).astype(np.float32)
        return X, Y


def make_store(
    path: Path,
    n: int,
    d: int,
    q: int,
    *,
    cardinality: int = 3,
    nonzeros: int = 0,
    labelled: float | None = None,
    labelled_entries: float = 1.0,
    compressor: str = "none",
    obs: int = 0,
) -> Path:
    """The store at `path`, made unless it is there; with `labelled` rows have the structure of `PlantedReader`.

    `obs` columns of the rows, c0, c1, ..., are normal numbers.
    """
    if not path.exists():
        reader = SyntheticReader(n, d, q, cardinality, nonzeros)
        if labelled is not None:
            reader = PlantedReader(n, d, q, cardinality, nonzeros, labelled=labelled, labelled_entries=labelled_entries)

        def blocks() -> Iterator[NDArray[np.float64]]:
            generator = np.random.default_rng(n)
            yield from (generator.normal(size=(min(BATCH_ROWS, n - a), obs)) for a in range(0, n, BATCH_ROWS))

        columns = ObsColumns(tuple(f"c{i}" for i in range(obs)), {}, blocks)
        options = Options(compressor=compressor)
        how: dict[str, Any] = {"open_obs": lambda: columns} if obs else {}
        convert_reader(lambda: reader, path, options=options, resume=False, force=True, **how)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    for name in ("n", "d", "q"):
        parser.add_argument(name, type=int)
    parser.add_argument("--cardinality", type=int, default=3)
    parser.add_argument("--nonzeros", type=int, default=0)
    parser.add_argument("--labelled", type=float, help="share of rows with labels, of planted structure")
    arguments = parser.parse_args()
    make_store(
        arguments.path,
        arguments.n,
        arguments.d,
        arguments.q,
        cardinality=arguments.cardinality,
        nonzeros=arguments.nonzeros,
        labelled=arguments.labelled,
    )
