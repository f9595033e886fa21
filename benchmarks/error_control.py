"""False discovery rate and power of tests of pairs, on simulated data whose relevant features are known.

    python benchmarks/error_control.py                      # some ten minutes on one core
    python benchmarks/error_control.py --families words counts --runs 20 --controls partial

5 000 rows of 200 features; eight labels, of 0.5 % to 50 % of the rows, each of which follows from 20 of them by a
logistic model whose effects are about five standard errors, or from none (--relevant 0). A pair is false where the
feature has no part in the label given the others: for marginal tests (bh) the neighbours of relevant features are
discoveries, and what is printed of them says how much the two hypotheses differ. Of each run there is one list over all
pairs; means over runs, with their standard errors, are printed and written to benchmarks/results/error_control.json.
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
from scipy.special import expit

from mlfs_dask.selection.estimator import get_estimator

Array = NDArray[np.float64]

SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
LEVELS = (0.1, 0.2)


def neighbours(rng: np.random.Generator, n: int, d: int, correlation: float = 0.5) -> Array:
    """Gaussian features each of which is correlated with the one before."""
    X = rng.standard_normal((n, d))
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    return X


def words(rng: np.random.Generator, n: int, d: int) -> Array:
    """Independent 0/1 features of 0.2 % to 20 % of the rows."""
    return (rng.random((n, d)) < np.exp(rng.uniform(np.log(0.002), np.log(0.2), d))).astype(float)


def topics(rng: np.random.Generator, n: int, d: int) -> Array:
    """0/1 features that come together in ten topics."""
    rates = rng.gamma(0.5, 1, (n, 10)) @ rng.gamma(0.3, 1, (10, d))
    rates *= np.exp(rng.uniform(np.log(0.002), np.log(0.2), d)) / rates.mean(axis=0)
    return (rng.random((n, d)) < np.minimum(rates, 0.9)).astype(float)


def counts(rng: np.random.Generator, n: int, d: int) -> Array:
    """Over-dispersed counts, correlated in blocks of ten."""
    blocks = np.repeat(rng.gamma(1.0, 1.0, (n, d // 10)), 10, axis=1)
    means = np.exp(rng.uniform(np.log(0.02), np.log(3), d))
    return rng.poisson(blocks * means * rng.gamma(2, 0.5, (n, d))).astype(float)


def categories(rng: np.random.Generator, n: int, d: int) -> Array:
    """Indicators of categories, one of each variable left out, and numbers with heavy tails."""
    columns: list[Array] = []
    while len(columns) < d:
        shares = rng.dirichlet(np.full(int(rng.integers(3, 12)), 0.5)) + 0.004
        drawn = rng.choice(len(shares), n, p=shares / shares.sum())
        columns += [(drawn == kind).astype(float) for kind in range(len(shares) - 1)]
    X = np.array(columns[:d]).T
    X[:, ::5] = rng.standard_t(5, (n, len(range(0, d, 5)))).round(1)
    return X


FAMILIES = {
    "neighbours .5": neighbours,
    "neighbours .8": lambda rng, n, d: neighbours(rng, n, d, 0.8),
    "log-normal": lambda rng, n, d: np.exp(neighbours(rng, n, d)),
    "words": words,
    "topics": topics,
    "counts": counts,
    "categories": categories,
}


def labels(rng: np.random.Generator, X: Array, relevant: int) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Labels, and the pairs that are relevant, shape (q, d)."""
    n, d = X.shape
    deviation = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    Y, true = np.zeros((n, len(SHARES)), np.int8), np.zeros((len(SHARES), d), bool)
    for label, share in enumerate(SHARES):
        chosen = rng.choice(d, relevant, replace=False)
        true[label, chosen] = True
        eta = np.clip(Z[:, chosen] @ rng.choice([-5.0, 5.0], relevant) / np.sqrt(n * share * (1 - share)), -8, 8)
        low, high = -20.0, 20.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if expit(eta + middle).mean() > share else (middle, high)
        Y[:, label] = rng.random(n) < expit(eta + low)
    return Y, true


def run(family: str, control: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Shares of false pairs, and of relevant ones that are found, at each level."""
    rng = np.random.default_rng([options.seed, seed])
    X = FAMILIES[family](rng, options.rows, options.features)
    Y, true = labels(rng, X, options.relevant)
    # A larger rate than 1 / d is asked of knockoffs alone; q-values serve every level.
    selector = get_estimator("br-cc")(1, pairs="all", control=control, fdr=LEVELS[0], random_state=seed)
    with warnings.catch_warnings(action="ignore"):  # labels of too few rows are left out
        selector.fit(X, Y)
    q = np.full(true.shape, np.nan)
    table = selector.pairs_
    q[table["label_index"].to_numpy(), table["feature_index"].to_numpy()] = table["q_value"].to_numpy()
    facts = {}
    for level in LEVELS:
        found = q <= level
        facts[f"false at {level:g}"] = (found & ~true).sum() / max(found.sum(), 1)
        facts[f"found at {level:g}"] = (found & true).sum() / max(true[~np.isnan(q).all(axis=1)].sum(), 1)
        facts[f"any at {level:g}"] = float(found.any())
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--controls", nargs="+", choices=["bh", "partial", "knockoffs"], default=["bh", "partial"])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--relevant", type=int, default=20)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--features", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20261126, help="another one gives other data")
    parser.add_argument("--results", type=Path, default=RESULTS / "error_control.json")
    options = parser.parse_args()
    rows: dict[str, Any] = json.loads(options.results.read_text()) if options.results.exists() else {}
    for family in options.families:
        for control in options.controls:
            told = [run(family, control, seed, options) for seed in range(options.runs)]
            means = {name: float(np.mean([each[name] for each in told])) for name in told[0]}
            errors = {name: float(np.std([each[name] for each in told]) / np.sqrt(options.runs)) for name in told[0]}
            case = f"{family}, {options.relevant} relevant, {control}"
            rows[case] = {"runs": options.runs, "means": means, "errors": errors}
            print(case, " ".join(f"{name} {means[name]:.3f} ± {errors[name]:.3f}" for name in means), flush=True)
    options.results.write_text(json.dumps(rows, indent=1) + "\n")
    names = list(next(iter(rows.values()))["means"])
    cells = [[case, f"{row['runs']}", *(f"{row['means'][name]:.2f}" for name in names)] for case, row in rows.items()]
    print(markdown(["", "runs", *names], cells))


if __name__ == "__main__":
    main()
