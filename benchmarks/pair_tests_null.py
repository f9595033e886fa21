"""Levels of the tests of pairs of features and labels that are independent: shares of p-values below 0.05 and 0.001.

    python benchmarks/pair_tests_null.py labels      # skewed features, rare labels; half a minute on one core
    python benchmarks/pair_tests_null.py covariate   # spread of features and share of labels follow a covariate
    python benchmarks/pair_tests_null.py clusters    # rows of 20 donors, labels of 10, 5 and 2 of them

`labels`: 20 data sets of 500 rows and 200 features, labels of 50, 10, 3 and 1 % of the rows; "rank, normal" is the
rank test without the correction for ties and rare labels. `covariate`: 15 sets of 3 000 rows and 150 features, labels
of 1 to 30 % of the rows, with the covariate given. `clusters`: ten sets of 20 donors with 100 rows each and 400
features with an intraclass correlation of 0.1, with and without `--clusters`.
"""

from __future__ import annotations

import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from mlfs_dask.selection.estimator import get_estimator

ROWS, FEATURES, SETS, SHARES = 500, 200, 20, (0.5, 0.1, 0.03, 0.01)


def pair_table(X: NDArray[Any], Y: NDArray[Any], test: str = "t", **columns: Any) -> pd.DataFrame:
    """All tests of pairs of a set that have a p-value."""
    selector = get_estimator("br-cc")(2, pairs="all", pair_test=test)
    with warnings.catch_warnings(action="ignore"):  # labels of no row, labels of whole donors
        return selector.fit(X, Y, **columns).pairs_.dropna(subset=["p_value"])


def report(found: dict[tuple[str, ...], list[float]]) -> None:
    """Print the shares of p-values below 0.05 and below 0.001."""
    for name, values in found.items():
        p = np.array(values)
        print(f"{', '.join(name):60} {(p < 0.05).mean():.3f} {(p < 0.001).mean():.4f}")


def labels() -> None:
    """Skewed features and rare labels."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for seed in range(SETS):
        rng = np.random.default_rng(seed)
        Y = (rng.random((ROWS, len(SHARES))) < SHARES).astype(np.int8)
        shape = ROWS, FEATURES
        laws = {
            "log-normal": rng.lognormal(sigma=1.5, size=shape),
            "log-normal in 10 % of rows": rng.lognormal(size=shape) * (rng.random(shape) < 0.1),
            "0/1 in 3 % of rows": (rng.random(shape) < 0.03).astype(float),
        }
        for law, X in laws.items():
            for test in ("t", "rank", "logistic"):
                for label, part in pair_table(X, Y, test).groupby("label_index"):
                    share = f"{SHARES[label]:.0%} of the rows"
                    found[law, test, share] += part["p_value"].tolist()
                    if test == "rank":
                        normal = 2 * stats.norm.sf(part["statistic"].abs())
                        found[law, "rank, normal", share] += normal.tolist()
    report(found)


def covariate() -> None:
    """Mean and spread of the features, and share of the labels, follow a covariate that the tests are given."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for seed in range(15):
        rng = np.random.default_rng(seed)
        age = rng.normal(size=3000)
        shape, growth = (3000, 50), np.exp(0.5 * age)[:, np.newaxis]
        laws = {
            "log-normal": rng.lognormal(sigma=1.2, size=shape) * growth,
            "0/1 in some 3 % of rows": rng.random(shape) < 0.03 * growth,
            "normal": rng.normal(size=shape) + age[:, np.newaxis],
        }
        log_odds = np.log([0.01, 0.02, 0.05, 0.1, 0.3]) + age[:, np.newaxis]
        Y = (rng.random((3000, 5)) < 1 / (1 + np.exp(-log_odds))).astype(np.int8)
        for law, X in laws.items():
            for test in ("t", "logistic"):
                found[law, test] += pair_table(X.astype(float), Y, test, covariates=age)["p_value"].tolist()
    report(found)


def clusters() -> None:
    """Rows of donors, and labels that are the donor's."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    rng = np.random.default_rng(1)
    donor = np.repeat(np.arange(20), 100)
    for n_with in (10, 5, 2):
        for _ in range(10):
            X = np.sqrt(0.9) * rng.normal(size=(2000, 400)) + np.sqrt(0.1) * rng.normal(size=(20, 400))[donor]
            Y = (rng.permutation(20) < n_with)[donor, np.newaxis].astype(np.int8)
            for columns in (dict[str, Any](clusters=donor), {}):
                name = f"label of {n_with} donors", "clusters" if columns else "rows taken for independent"
                found[name] += pair_table(X, Y, **columns)["p_value"].tolist()
    report(found)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    kinds = {each.__name__: each for each in (labels, covariate, clusters)}
    parser.add_argument("kind", choices=kinds)
    kinds[parser.parse_args().kind]()


if __name__ == "__main__":
    main()
