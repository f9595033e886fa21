"""What the experiments on quality share: real sets, their folds, ML-kNN, and average precision on chosen features.

Data sets are read from $MLFS_DATA (default: ../shared/data beside the repository) and converted to stores first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlfs_dask import MLkNN, convert, open_dataset
from mlfs_dask.evaluation.metrics import Judged, compute_metrics
from mlfs_dask.storage.readers.base import LabelSpec

REPOSITORY = Path(__file__).parents[1]
DATA = Path(os.environ.get("MLFS_DATA") or REPOSITORY.parent / "shared" / "data")

#: Files of each set, and features that only number the rows.
SETS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "emotions": (["emotions.arff"], ()),
    "birds": (["birds-train.arff", "birds-test.arff"], ()),
    "yeast": (["yeast.arff.gz"], ()),
    "scene": (["scene.arff.gz"], ()),
    "medical": (["medical.arff"], ()),
    "genbase": (["genbase.arff.gz"], ("protein",)),
    "enron": (["enron.arff"], ()),
}

RANDOM_DRAWS = 5
FOLDS = 5


@dataclass(frozen=True)
class Job:
    """One fold of one set."""

    name: str
    store: str
    fold: int


@dataclass(frozen=True)
class Fold:
    """Training and test rows of one fold, as they are."""

    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray


def make_store(name: str, folder: Path) -> str:
    """The store of a set, converted from its files."""
    files, dropped = SETS[name]
    store = folder / f"{name}.zarr"
    labels = LabelSpec(xml=str(DATA / name / f"{name}.xml"))
    convert([DATA / name / file for file in files], store, labels=labels, drop=dropped)
    return str(store)


def read_fold(job: Job) -> Fold:
    """The rows of a fold; which fold a row is in is drawn, and the same for every method."""
    dataset = open_dataset(job.store)
    X, Y = (np.asarray(a.todense() if hasattr(a, "todense") else a) for a in (dataset.X.compute(), dataset.Y.compute()))
    X, Y = X.astype(np.float64), Y.astype(np.int64)
    fold = np.random.default_rng(0).permutation(len(X)) % FOLDS
    train, test = fold != job.fold, fold == job.fold
    return Fold(X[train], Y[train], X[test], Y[test])


class Judge:
    """Average precision of ML-kNN on chosen features, standardised with the moments of the training rows."""

    def __init__(self, fold: Fold) -> None:
        mean, std = fold.X.mean(axis=0), fold.X.std(axis=0)
        std = np.where(std > 1e-9 * np.abs(mean), std, 1)
        self._fold = fold
        self._Z, self._Z_test = (fold.X - mean) / std, (fold.X_test - mean) / std
        self._known: dict[bytes, float] = {}

    def precision(self, chosen: np.ndarray) -> float:
        """Average precision with these features; asked again, it is not computed again."""
        chosen = np.sort(chosen)
        key = chosen.tobytes()
        if key not in self._known:
            scores = MLkNN().fit(self._Z[:, chosen], self._fold.Y).predict_proba(self._Z_test[:, chosen])
            judged = Judged(self._fold.Y_test, scores, (scores >= 0.5).astype(np.int8))
            self._known[key] = compute_metrics(judged, ["average_precision"])["average_precision"]
        return self._known[key]

    def mean_precision(self, ranking: np.ndarray) -> float:
        """Mean over the best 10 %, 20 %, ..., 90 % of a ranking."""
        return float(np.mean([self.precision(ranking[:k]) for k in kept_counts(len(ranking))]))


def kept_counts(d: int) -> list[int]:
    """10 %, 20 %, ..., 90 % of d, one at least."""
    return [max(1, round(d * tenth / 10)) for tenth in range(1, 10)]


def random_ranking(d: int, fold: int, draw: int) -> np.ndarray:
    return np.random.default_rng([fold, draw]).permutation(d)


def replace_table(path: Path, text: str) -> None:
    """Put `text` between the markers of a Markdown file."""
    before, _, rest = path.read_text().partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- end -->")
    path.write_text(f"{before}<!-- table -->\n{text}\n<!-- end -->{after}")


def table_of(path: Path) -> list[str]:
    """The lines between the markers of a Markdown file."""
    _, _, rest = path.read_text().partition("<!-- table -->\n")
    return rest.partition("<!-- end -->")[0].splitlines()
