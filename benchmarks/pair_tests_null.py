"""Levels of the tests of pairs that `--pair-test` names: skewed features and rare labels that are independent.

    python benchmarks/pair_tests_null.py            # half a minute on one core

Printed are shares of p-values below 0.05 and below 0.001, over 20 data sets of 500 rows and 200 features, for labels of
50, 10, 3 and 1 % of the rows. "rank, normal" is the rank test without the correction for ties and rare labels.
"""

from __future__ import annotations

import warnings
from collections import defaultdict

import numpy as np
from scipy import stats

from mlfs_dask.selection.estimator import get_estimator

ROWS, FEATURES, SETS, SHARES = 500, 200, 20, (0.5, 0.1, 0.03, 0.01)


def main() -> None:
    found = defaultdict(list)
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
                selector = get_estimator("br-cc")(2, pairs="all", pair_test=test)
                with warnings.catch_warnings(action="ignore"):  # labels of no row
                    table = selector.fit(X, Y).pairs_.dropna(subset=["p_value"])
                for label, part in table.groupby("label_index"):
                    found[law, test, label] += part["p_value"].tolist()
                    if test == "rank":
                        found[law, "rank, normal", label] += (2 * stats.norm.sf(part["statistic"].abs())).tolist()
    for law, test in dict.fromkeys(key[:2] for key in found):
        p = [np.array(found[law, test, label]) for label in range(len(SHARES))]
        levels = (f"{(each < 0.05).mean():.3f} {(each < 0.001).mean():.4f}" for each in p)
        print(f"{law:28}{test:14}", "   ".join(levels))


if __name__ == "__main__":
    main()
