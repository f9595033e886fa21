"""Levels and power of tests of pairs: data in which no feature goes with any label, and the same with ten that do.

    python benchmarks/null_sets.py                          # half an hour on one core
    python benchmarks/null_sets.py --laws spikes strata --runs 40 --controls bh shuffles
    python benchmarks/null_sets.py --planted --runs 100

Of every set of data (laws below) what is counted is whether `-k auto` keeps anything at a rate of 0.1, by each control,
and the share of p-values below 0.05. A control keeps its level where anything is kept in at most 10 % of the sets;
29 of 200 is the .98 limit of that. With `--planted` each of ten features goes with one label; what is counted is the
share of the ten that is kept, and the mean share of false ones among the features that are kept, which is to be at
most 0.1. Written to benchmarks/results/null_sets.json.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from measuring import RESULTS
from numpy.typing import NDArray
from real_sets import markdown

from mlfs_dask.errors import DataError
from mlfs_dask.selection.estimator import get_estimator

Drawn = tuple[NDArray[np.float64], NDArray[np.int8], dict[str, NDArray[np.int64]]]

#: How pairs are tested; "shuffles": the number that is kept follows from shuffled labels; "aggregate": pseudobulk.
CONTROLS = ("bh", "by", "holm", "partial", "knockoffs", "shuffles", "chi2", "aggregate")


def labels(rng: np.random.Generator, n: int, *shares: float) -> NDArray[np.int8]:
    return (rng.random((n, len(shares))) < shares).astype(np.int8)


def strata(rng: np.random.Generator) -> Drawn:
    """In one of four strata 0/1 features and labels are at 30 %, elsewhere at 1 %."""
    batch = np.arange(2000) % 4
    share = np.where(batch == 0, 0.3, 0.01)[:, np.newaxis]
    X = (rng.random((2000, 60)) < share).astype(float)
    return X, (rng.random((2000, 5)) < share).astype(np.int8), {"strata": batch}


def spread(rng: np.random.Generator) -> Drawn:
    """In one of four strata features have ten times the spread, and labels are at 50 %, elsewhere at 5 %."""
    batch = np.arange(2000) % 4
    X = rng.standard_normal((2000, 60)) * np.where(batch == 0, 10.0, 1.0)[:, np.newaxis] + batch[:, np.newaxis]
    share = np.where(batch == 0, 0.5, 0.05)[:, np.newaxis]
    return X, (rng.random((2000, 5)) < share).astype(np.int8), {"strata": batch}


def spikes(rng: np.random.Generator, n: int = 500, share: float = 0.05) -> Drawn:
    """Features -1, 0, +1 of which 2 % are not 0; labels of 5 % of 500 rows."""
    X = (rng.random((n, 60)) < 0.02) * rng.choice([-1.0, 1.0], (n, 60))
    return X, labels(rng, n, *[share] * 5), {}


def rare_spikes(rng: np.random.Generator) -> Drawn:
    """The same of 5 000 rows, and labels of 1 %."""
    return spikes(rng, 5000, 0.01)


def hashing(rng: np.random.Generator) -> Drawn:
    """Words hashed with a sign to 60 features, their frequencies falling as 1/rank; labels of 1 to 5 %."""
    n, vocabulary = 1000, 2000
    counts = rng.poisson(8 / np.arange(1, vocabulary + 1) ** 1.1, (n, vocabulary))
    X = np.zeros((n, 60))
    bucket, sign = rng.integers(0, 60, vocabulary), rng.choice([-1.0, 1.0], vocabulary)
    for b in range(60):
        X[:, b] = counts[:, bucket == b] @ sign[bucket == b]
    return X, labels(rng, n, 0.01, 0.02, 0.03, 0.04, 0.05), {}


def log_normal(rng: np.random.Generator) -> Drawn:
    """Log-normal features of 500 rows; labels of 2 to 50 %."""
    return rng.lognormal(sigma=1.5, size=(500, 60)), labels(rng, 500, 0.02, 0.05, 0.1, 0.3, 0.5), {}


def donors(rng: np.random.Generator) -> Drawn:
    """20 donors of 100 rows, features with an intraclass correlation of .1, labels of donors."""
    donor = np.repeat(np.arange(20), 100)
    X = np.sqrt(0.1) * rng.standard_normal((20, 60))[donor] + np.sqrt(0.9) * rng.standard_normal((2000, 60))
    return X, labels(rng, 20, *[0.4] * 5)[donor], {"clusters": donor}


def donors_unnamed(rng: np.random.Generator) -> Drawn:
    """The same, with rows taken for independent."""
    return *donors(rng)[:2], {}


def visits(rng: np.random.Generator) -> Drawn:
    """200 patients of 1 to 19 rows, log-normal features with an intraclass correlation of .3, labels that change."""
    patient = np.repeat(np.arange(200), rng.integers(1, 20, 200))
    n = len(patient)
    X = np.exp(np.sqrt(0.3) * rng.standard_normal((200, 60))[patient] + np.sqrt(0.7) * rng.standard_normal((n, 60)))
    share = rng.beta(0.5, 2, (200, 5))[patient]
    return X, (rng.random((n, 5)) < share).astype(np.int8), {"clusters": patient}


LAWS = {
    law.__name__: law
    for law in (strata, spread, spikes, rare_spikes, hashing, log_normal, donors, donors_unnamed, visits)
}

#: Share of the rows in which a planted feature follows its label: about half of the planted ones are found.
PLANTED = {"strata": 0.15, "spread": 0.18, "spikes": 0.5, "rare_spikes": 0.12, "hashing": 0.25, "log_normal": 0.35}

N_PLANTED = 10


def plant(
    rng: np.random.Generator,
    X: NDArray[np.float64],
    Y: NDArray[np.int8],
    batch: NDArray[np.int64] | None,
    share: float,
) -> None:
    """Let the first features follow a label each, in a random share of the rows of each stratum.

    There the greatest values go to the rows with the label. Each feature keeps its values, and so its law.
    """
    strata = np.zeros(len(X), int) if batch is None else batch
    for feature in range(N_PLANTED):
        label = Y[:, feature % Y.shape[1]]
        for stratum in np.unique(strata):
            rows = np.flatnonzero((strata == stratum) & (rng.random(len(X)) < share))
            by_label = rows[np.argsort(label[rows] + 0.5 * rng.random(len(rows)))]
            X[by_label, feature] = np.sort(X[rows, feature])


def kept(law: str, control: str, seed: int, planted: bool) -> tuple[float, float]:
    """The number of features that `-k auto` keeps at 0.1, and the share of p-values below 0.05.

    With planted features: the share of these that it keeps, and the share of others among what it keeps.
    """
    rng = np.random.default_rng([seed, 11])
    X, Y, columns = LAWS[law](rng)
    if planted:
        plant(rng, X, Y, columns.get("strata"), PLANTED[law])
    asked: dict[str, Any] = {} if control == "shuffles" else {"control": control}
    if control in ("chi2", "aggregate"):
        asked = {"control": "bh"}
    if control == "aggregate":
        asked["aggregate"] = "mean"
    selector = get_estimator("chi2" if control == "chi2" else "br-cc")("auto", random_state=seed, **asked)
    with warnings.catch_warnings(action="ignore"):  # labels of too few rows are left out
        try:
            support = selector.fit(X, Y, **columns).support_
        except DataError as error:
            if "no feature" not in str(error):
                raise
            support = np.zeros(X.shape[1], bool)
        number = int(support.sum())
        if planted:
            return float(support[:N_PLANTED].mean()), float(support[N_PLANTED:].sum() / max(number, 1))
        if control in ("shuffles", "knockoffs"):
            return number, np.nan
        tested = get_estimator("chi2" if control == "chi2" else "br-cc")(1, pairs="all", **asked)
        table = tested.fit(X, Y, **columns).pairs_
    p = table["p_value"].to_numpy()
    return number, float(np.mean(p[~np.isnan(p)] < 0.05))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--laws", nargs="+", choices=list(LAWS), default=list(LAWS))
    parser.add_argument("--controls", nargs="+", choices=CONTROLS, default=list(CONTROLS))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--planted", action="store_true", help="measure power: ten features go with a label each")
    parser.add_argument("--results", type=Path, default=RESULTS / "null_sets.json")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.results.read_text()) if options.results.exists() else {}
    rows = results.setdefault("planted" if options.planted else "null", {})
    for law in PLANTED if options.planted and options.laws == list(LAWS) else options.laws:
        clustered = "clusters" in LAWS[law](np.random.default_rng(0))[2]
        for control in options.controls:
            if (control == "aggregate" and law != "donors") or (clustered and control in ("partial", "knockoffs")):
                continue  # labels vary within clusters, or there are none; tests that take none
            told = np.array([kept(law, control, seed, options.planted) for seed in range(options.runs)])
            first, second = told.mean(axis=0).tolist()
            if options.planted:
                row = {"sets": options.runs, "found": first, "false": second}
            else:
                row = {"sets": options.runs, "any": int((told[:, 0] > 0).sum()), "kept": first}
                if not np.isnan(second):
                    row["p < 0.05"] = second
            rows.setdefault(law, {})[control] = row
            print(law, control, row, flush=True)
            options.results.write_text(json.dumps(results, indent=1) + "\n")
    form = "{found:.2f} ({false:.2f})" if options.planted else "{any} of {sets}"
    cells = [[law, *(form.format(**row[c]) if c in row else "" for c in CONTROLS)] for law, row in rows.items()]
    print(markdown(["found (false)" if options.planted else "anything kept", *CONTROLS], cells))


if __name__ == "__main__":
    main()
