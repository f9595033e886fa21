"""Golden rankings: the small stores, the selections that are made of them, and the files that keep their scores.

`make golden` selects again, writes the files that have changed, and prints what has: no test does. A file a method, a
line a ranking, as text, so that a change is read where it is reviewed: store and options, the features from best to
worst, their scores and, with `-k auto`, their q-values. Scores have all their digits.

Loops stop after MAX_ITER iterations: a last digit that another BLAS kernel makes grows with each. So does the choice
among features that are equal but for it, which no loop is left to make here.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import inspect
import json
import math
import re
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import scipy.sparse
from click.testing import CliRunner
from numpy.typing import NDArray

import mlfs_dask
from mlfs_dask_cli.main import mlfs

FOLDER = Path(__file__).parent / "golden"
PARTITION_SIZE = "1KiB"
N_SELECTED = 5

#: Stores whose rows are weighted in Python, where they can be.
WEIGHTED = ("dense", "counts")
MAX_ITER = 8

#: Relative to the largest score of a ranking.
TOLERANCE = 1e-9

#: Methods that solve a quadratic program over what they have counted.
PROGRAMS = ("grro", "mico", "qpmlfs")

#: Names in Python of methods that have another name there.
CLASSES = {
    "auto": "AutoSelector",
    "ela-chi": "ELAChi2",
    "fisher": "FisherScore",
    "laplacian": "LaplacianScore",
    "mfs-f": "MultiLabelF",
}

#: Types of options that are no list of words; "none" of --consistency is one.
NO_WORDS = ("int", "float", "str", "bool")

#: Options with which a method is run besides the alternatives of each of its options that has a few.
FURTHER = {
    "access-mfs": ["--standardise false", "--gram-cap 4", "--graph anchors --n-anchors 9"],
    "auto": ["--candidates chi2,fisher,jmi"],
    "br-or": ["--smoothing 1"],
    "elc": ["--lambda 0.3", "--mask-iter 0"],
    "fimf": ["--n-interacting-labels 2"],
    "grro": ["--alpha 1 --beta 1", "--n-landmarks 6"],
    "label-entropy": ["--n-promising-labels 2", "--n-promising-labels 1.0"],
    "laplacian": ["--n-anchors 9 --anchor-neighbors 2"],
    "mddm": ["--standardise false", "--mu 0.2 --n-components 2", "--gram-cap 4"],
    "mfsir": ["--n-latent 2", "--gram-cap 4", "--graph anchors --n-anchors 9", "--lambda 2"],
    "mico": ["--alpha 0.5 --beta 2", "--n-landmarks 6"],
    "qpmlfs": ["--alpha 0.5", "--n-landmarks 6"],
    "relieff": ["--n-neighbors 3"],
    "smfs": ["--standardise false", "--gram-cap 0", "--graph anchors --n-anchors 9"],
    "spfs": ["--n-candidates 6"],
}


@dataclass(frozen=True)
class Ranking:
    """Features from best to worst, their scores, their q-values; or the exit code of a selection that is refused."""

    order: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    q_values: tuple[float, ...] = ()
    exit_code: int = 0

    @classmethod
    def of_run(cls, run: Path) -> Ranking:
        rows = list(csv.DictReader((run / "ranking.csv").read_text().splitlines()))
        columns = ([float(row[key]) for row in rows if key in row] for key in ("score", "q_value"))
        return cls(tuple(int(row["feature_index"]) for row in rows), *map(tuple, columns))

    @classmethod
    def of_line(cls, line: str) -> Ranking:
        if line.startswith("exit"):
            return cls(exit_code=int(line.split()[1]))
        order, *columns = (part.split() for part in line.split("|"))
        return cls(tuple(map(int, order)), *(tuple(map(float, column)) for column in columns))

    def __str__(self) -> str:
        if self.exit_code:
            return f"exit {self.exit_code}"
        columns = [self.order, self.scores, *([self.q_values] if self.q_values else [])]
        return " | ".join(" ".join(map(repr, column)) for column in columns)

    def difference(self, golden: Ranking, *, exact: bool) -> str:
        """What differs from the golden ranking, or nothing."""
        if exact or self.exit_code or golden.exit_code or len(self.order) != len(golden.order):
            return "" if self == golden else self._changes(golden)
        for mine, theirs in ((self.by_feature(), golden.by_feature()), (self.q_values, golden.q_values)):
            if len(mine) != len(theirs) or np.any(np.abs(np.subtract(mine, theirs)) > TOLERANCE * golden.size):
                return self._changes(golden)
        # Features in another order have to be as good as equal.
        swapped = np.abs(golden.by_feature()[list(self.order)] - np.array(golden.scores)) > 2 * TOLERANCE * golden.size
        return self._changes(golden) if np.any(swapped) else ""

    @property
    def size(self) -> float:
        return float(np.max(np.abs(self.scores)))

    def by_feature(self) -> NDArray[np.float64]:
        scores = np.empty(len(self.order))
        scores[list(self.order)] = self.scores
        return scores

    def _changes(self, golden: Ranking) -> str:
        if self.exit_code or golden.exit_code or len(self.order) != len(golden.order):
            before, now = (f"exit code {r.exit_code}, {len(r.order)} features" for r in (golden, self))
            return f"{before}; now {now}"
        change = np.abs(self.by_feature() - golden.by_feature())
        ranks = [rank for rank, pair in enumerate(zip(self.order, golden.order, strict=True), 1) if len(set(pair)) > 1]
        share = change.max() / (golden.size or 1)
        return (
            f"{np.count_nonzero(change)} of {len(change)} scores, by up to {share:.1e} of the largest; "
            + (f"the ranking from rank {ranks[0]} on" if ranks else "the same ranking")
            + ("" if self.q_values == golden.q_values else "; q-values")
        )


@dataclass(frozen=True)
class Selection:
    """Methods that are run with the same options on a store."""

    store: str
    methods: tuple[str, ...]
    options: str = ""

    @property
    def title(self) -> str:
        return f"{self.store} {self.options}".strip()


Rankings = dict[tuple[str, str], Ranking]


def invoke(*words: object) -> Any:
    return CliRunner().invoke(mlfs, [str(word) for word in words], env={"MLFS_CACHE": "none"})


def methods() -> dict[str, dict[str, Any]]:
    """Every method as `mlfs methods` describes it, with its options by name."""
    listed = json.loads(invoke("methods", "--json").stdout)["methods"]
    return {each["name"]: each | {"options": {o["option"]: o for o in each["options"]}} for each in listed}


def counts(method: dict[str, Any]) -> bool:
    """Whether scores follow from integer counts alone: the same bits whoever counts, and in whatever order."""
    return "--bins" in method["options"] and method["name"] not in PROGRAMS


def alternatives(described: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Methods by the options, other than their defaults, that they are run with where nothing is missing."""
    found = defaultdict(list)
    for name, method in described.items():
        for option, facts in method["options"].items():
            words = [word for word in facts["type"].split(" | ") if word not in NO_WORDS and option != "--missing"]
            for word in words:
                if word != (facts["default"] or "none"):
                    found[f"{option} {word}"].append(name)
                if option == "--binning":
                    found[f"--bins 3 --binning {word}"].append(name)
        for words in FURTHER.get(name, []):
            found[words].append(name)
    return dict(found)


def selections(described: dict[str, dict[str, Any]]) -> Iterator[Selection]:
    """All selections of which there are golden rankings.

    Every method with its defaults on every store, of which it may be refused; with its other options on the numbers,
    and where labels are unknown; with other codes on counts, too.
    """
    partial = [name for name, method in described.items() if method["unknown_labels"]]
    tested = [name for name, method in described.items() if "--fdr" in method["options"]]
    for store in ("dense", "counts", "binary", "digits"):
        yield Selection(store, tuple(described))
    yield Selection("partly", tuple(partial))
    yield from (Selection("partly", (name,)) for name in described if name not in partial)
    for options, names in alternatives(described).items():
        yield Selection("dense", tuple(names), options)
        if "--binning" in options:
            yield Selection("counts", tuple(names), options)
        elif set(names) & set(partial):
            yield Selection("partly", tuple(name for name in names if name in partial), options)
    for store in ("dense", "counts"):
        yield Selection(store, tuple(tested), "-k auto --fdr 0.25")
    for word in ("code", "mean", "median"):
        takes = [name for name, method in described.items() if word in method["options"]["--missing"]["type"]]
        yield Selection("gaps", tuple(takes if word != "median" else tested), f"--missing {word}")


def run_selection(selection: Selection, stores: Path, described: dict[str, dict[str, Any]], *words: object) -> Rankings:
    """Rankings of a selection, by method and title, with the words beside its options."""
    if not selection.methods:
        return {}
    options = [*(["-k", N_SELECTED] if "-k" not in selection.options else []), *selection.options.split(), *words]
    if any("--max-iter" in described[name]["options"] for name in selection.methods):
        options += ["--max-iter", MAX_ITER]
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        result = invoke(
            "select", ",".join(selection.methods), stores / f"{selection.store}.zarr", "-o", run, "--seed", 7, *options
        )
        if result.exit_code and len(selection.methods) > 1:
            # One that is refused ends the command.
            parts = [Selection(selection.store, (name,), selection.options) for name in selection.methods]
            return {k: v for part in parts for k, v in run_selection(part, stores, described, *words).items()}
        if result.exit_code not in (0, 3):
            raise RuntimeError(f"{selection}: {result.output}{result.exception!r}")
        runs = {name: run / name if len(selection.methods) > 1 else run for name in selection.methods}
        return {
            (name, selection.title): Ranking(exit_code=result.exit_code) if result.exit_code else Ranking.of_run(path)
            for name, path in runs.items()
        }


def fit_selection(selection: Selection, described: dict[str, dict[str, Any]], *, weighted: bool = False) -> Rankings:
    """Rankings of a selection on arrays: sparse ones where the store is, and dense rows without weights in blocks."""
    X, Y = DATA[selection.store]()
    data: Any = scipy.sparse.csr_array(X) if selection.store in ("counts", "binary") else X
    if selection.store == "dense" and not weighted:
        data = dask.array.from_array(X, chunks=(50, -1))
    weights = {"sample_weight": np.arange(len(Y)) % 4} if weighted else {}
    title = f"{selection.title} weights" if weighted else selection.title
    found: Rankings = {}
    for name in selection.methods:
        selector = estimator(name, selection.options, described[name])
        if weighted and "sample_weight" not in inspect.signature(selector.fit).parameters:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # loops that are stopped, labels that are never positive
                selector.fit(data, Y, **weights)
        except ValueError:
            found[name, title] = Ranking(exit_code=3)
        else:
            order = selector.ranking_.tolist()
            q_values = getattr(selector, "q_values_", None)
            columns = [selector.scores_[order], *([] if q_values is None else [q_values[order]])]
            found[name, title] = Ranking(tuple(order), *(tuple(column.tolist()) for column in columns))
    return found


def estimator(name: str, options: str, method: dict[str, Any]) -> Any:
    """Selector of a method with options as the command spells them."""
    words = {"--seed": "7", "-k": str(N_SELECTED), "--max-iter": str(MAX_ITER)}
    words |= dict(zip(options.split()[::2], options.split()[1::2], strict=True))
    parameters = {}
    for option, word in words.items():
        parameter = {"--seed": "random_state", "-k": "n_features_to_select", "--lambda": "lambda_"}.get(option)
        if parameter or option in method["options"]:
            value = word if re.search("[a-z]", word) else json.loads(word)
            value = {"true": True, "false": False}.get(word, value)
            parameters[parameter or option.removeprefix("--").replace("-", "_")] = value
    return selector_class(name)(**parameters)


def selector_class(name: str) -> Any:
    """Class of a method."""
    public = {other.lower(): getattr(mlfs_dask, other) for other in mlfs_dask.__all__}
    return public[CLASSES.get(name, name.replace("-", "")).lower()]


# Files


def logarithm() -> str:
    """Digest of the logarithms that this machine computes: NumPy has others for processors of other kinds."""
    return hashlib.sha256(np.log(np.arange(1, 5000) / 997).tobytes()).hexdigest()[:12]


def read(name: str) -> tuple[str, Rankings]:
    """Digest of the logarithms of the machine that wrote the file of a method, and its golden rankings."""
    path = FOLDER / f"{name}.txt"
    if not path.exists():
        return "", {}
    first, *lines = path.read_text().splitlines()
    pairs = (line.split(": ", 1) for line in lines)
    return first.split()[-1], {(name, title): Ranking.of_line(ranking) for title, ranking in pairs}


def renew(names: Sequence[str] = ()) -> None:
    """Select again, write the files that change, and print what does."""
    described = methods()
    with tempfile.TemporaryDirectory() as place:
        write_stores(Path(place), PARTITION_SIZE)
        new: Rankings = {}
        wanted = {name: described[name] for name in names or described}
        for selection in selections(wanted):
            new |= run_selection(selection, Path(place), wanted)
        for store in WEIGHTED:
            new |= fit_selection(Selection(store, tuple(wanted)), wanted, weighted=True)
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        if path.stem not in described:
            print(f"{path.stem}: there is no such method; its file is removed")
            path.unlink()
    for name in wanted:
        before = read(name)[1]
        now = {key: ranking for key, ranking in new.items() if key[0] == name}
        differences = {
            title: now[name, title].difference(before[name, title], exact=counts(described[name]))
            for _, title in now.keys() & before.keys()
        }
        changes = [f"{title}: {text}" for title, text in sorted(differences.items()) if text]
        changes += [f"{title}: new" for _, title in sorted(now.keys() - before.keys())]
        changes += [f"{title}: gone" for _, title in sorted(before.keys() - now.keys())]
        if changes:
            lines = [f"{title}: {ranking}" for (_, title), ranking in sorted(now.items())]
            (FOLDER / f"{name}.txt").write_text("\n".join([f"# logarithms {logarithm()}", *lines]) + "\n")
            print(f"{name}: {len(changes)} of {len(now)} rankings", *changes, sep="\n  ")
        else:
            print(f"{name}: as before")


# Data


def labels_of(rng: np.random.Generator, n: int, q: int) -> NDArray[np.int8]:
    """Labels of which the first two go together, and the last is never positive."""
    Y = (rng.random((n, q)) < np.linspace(0.5, 0.15, q)).astype(np.int8)
    Y[:, 1] |= Y[:, 0] & (rng.random(n) < 0.6)
    Y[:, -1] = 0
    return Y


def dense_data() -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Numbers: constants, copies of the best feature, and skewed, whole, tied and nearly constant ones."""
    rng = np.random.default_rng(1)
    n = 90
    Y = labels_of(rng, n, 5)
    noise = rng.normal(size=(n, 6))
    best = np.round(noise[:, 0] + 1.5 * Y[:, 0], 3)
    X = np.column_stack([
        np.full(n, 2.5), best, np.zeros(n), np.round(noise[:, 1] + Y[:, 1] - Y[:, 2], 3), best,
        np.round(np.exp(2 * noise[:, 2]) * (1 + Y[:, 2]), 3), rng.integers(0, 4, n),
        rng.integers(0, 3, n) + 2 * Y[:, 3],
        np.arange(n) == 17, noise[:, 3], np.round(noise[:, 4]), 1e6 + noise[:, 5] + Y[:, 0], -best, best > 0.5,
    ])  # fmt: skip
    return X, Y


def counts_data() -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Words of documents: one document has a word 60 times; a word in none, one everywhere, and a copy."""
    rng = np.random.default_rng(2)
    n, d = 80, 18
    Y = labels_of(rng, n, 5)
    X = rng.poisson(0.25, (n, d))
    for label in range(3):
        X[:, 3 * label] += rng.poisson(1.2 * Y[:, label])
    X[5, 3] = 60
    X[:, 7] = 0
    X[:, 11] = X[:, 0]
    X[:, 12] = 3
    return X, Y


def binary_data() -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Words that are there or not; one always, one never, one in one row, a copy, a complement."""
    rng = np.random.default_rng(3)
    n, d = 84, 16
    Y = labels_of(rng, n, 4)
    X = (rng.random((n, d)) < 0.2).astype(int)
    for label in range(3):
        X[:, 4 * label + 1] = Y[:, label] ^ (rng.random(n) < 0.15 + 0.1 * label)
    X[:, 2], X[:, 3], X[:, 6], X[:, 7], X[:, 10] = 1, 0, np.arange(n) == 3, X[:, 1], 1 - X[:, 5]
    return X, Y


def partly_data() -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """The numbers above, and labels of which three in ten are unknown, in some rows all."""
    X, Y = dense_data()
    rng = np.random.default_rng(4)
    unknown = rng.random(Y.shape) < 0.3
    unknown[::9] = True
    return X, np.where(unknown, -1, Y).astype(np.int8)


def gaps_data() -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """The numbers above, of which one in twelve is missing, of the eighth feature nearly all."""
    X, Y = dense_data()
    rng = np.random.default_rng(5)
    missing = rng.random(X.shape) < 1 / 12
    missing[2:, 8] = True
    return np.where(missing, np.nan, X), Y


def digits_data() -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Every third image of scikit-learn's digits; labels: even, at least 5, prime, has a closed loop."""
    from sklearn.datasets import load_digits

    images, digit = load_digits(return_X_y=True)
    images, digit = images[::3], digit[::3]
    Y = np.column_stack([digit % 2 == 0, digit >= 5, np.isin(digit, [2, 3, 5, 7]), np.isin(digit, [0, 6, 8, 9])])
    return images, Y.astype(np.int8)


DATA: dict[str, Callable[[], tuple[NDArray[Any], NDArray[np.int8]]]] = {
    "dense": dense_data,
    "counts": counts_data,
    "binary": binary_data,
    "partly": partly_data,
    "gaps": gaps_data,
    "digits": digits_data,
}


def write_stores(place: Path, partition_size: str) -> None:
    """Write the data as files of several formats, and convert them to stores of partitions of the size."""

    def text(value: float) -> str:
        return "" if math.isnan(value) else f"{value:.17g}"

    def convert(name: str, *words: object) -> None:
        size = partition_size if name != "digits" else f"{16 * int(partition_size.removesuffix('KiB'))}KiB"
        result = invoke("convert", *words, place / f"{name}.zarr", "--partition-size", size)
        if result.exit_code:
            raise RuntimeError(result.output)

    for name in ("dense", "gaps"):
        X, Y = DATA[name]()
        header = [f"f{j}" for j in range(X.shape[1])] + [f"y{j}" for j in range(Y.shape[1])]
        lines = [[*map(text, x), *map(str, y)] for x, y in zip(X, Y, strict=True)]
        (place / f"{name}.csv").write_text("\n".join(map(",".join, [header, *lines])) + "\n")
        convert(name, place / f"{name}.csv", "--n-labels", Y.shape[1])

    X, Y = counts_data()
    rows = (
        ",".join(map(str, np.flatnonzero(y))) + "".join(f" {j}:{x[j]}" for j in np.flatnonzero(x))
        for x, y in zip(X, Y, strict=True)
    )
    (place / "counts.txt").write_text("\n".join([f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}", *rows]) + "\n")
    convert("counts", place / "counts.txt", "--format", "xmlc", "--storage", "sparse")

    X, Y = binary_data()
    for letter, matrix in (("X", X), ("Y", Y)):
        entries = [f"{i + 1} {j + 1} {matrix[i, j]}" for i, j in zip(*np.nonzero(matrix), strict=True)]
        head = ["%%MatrixMarket matrix coordinate integer general", f"{len(matrix)} {matrix.shape[1]} {len(entries)}"]
        (place / f"{letter}.mtx").write_text("\n".join(head + entries) + "\n")
    convert("binary", place / "X.mtx", place / "Y.mtx", "--storage", "sparse")

    for name in ("partly", "digits"):
        X, Y = DATA[name]()
        np.savez(place / f"{name}.npz", X=X, Y=Y)
        convert(name, place / f"{name}.npz")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Renew the golden rankings, and print what has changed.")
    parser.add_argument("methods", nargs="*", help="methods to renew (default: all)")
    renew(parser.parse_args(sys.argv[1:]).methods)
