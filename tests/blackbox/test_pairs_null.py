"""Pairs of data in which no feature goes with any label, many times; and plink2's test of the same pairs."""

import csv
import os
import shutil
import subprocess

import numpy as np
import pytest
from scipy import stats

import mlfs_dask as mlfs

NIGHTLY = bool(os.environ.get("MLFS_NIGHTLY"))
N, D, Q, SETS = 500, 100, 8, 200


def features(family, rng):
    if family == "words":  # of a row that has many, many
        return (rng.random((N, D)) < np.geomspace(0.005, 0.3, D) * rng.gamma(2, 0.5, (N, 1))).astype(float)
    if family == "log-normal":
        return rng.lognormal(sigma=1.5, size=(N, D))
    X = rng.normal(size=(N, D))
    for j in range(1, D):
        X[:, j] = 0.6 * X[:, j - 1] + 0.8 * X[:, j]
    return X


@pytest.mark.skipif(not NIGHTLY, reason="minutes; make nightly")
@pytest.mark.filterwarnings("ignore:.*not tested given the other features")
@pytest.mark.parametrize("control", ["bh", "partial", "knockoffs"])
@pytest.mark.parametrize("family", ["words", "log-normal", "neighbours"])
def test_nothing_is_significant_where_nothing_goes_together(family, control):
    found = {0.1: 0, 0.2: 0}
    any_label = {0.1: 0, 0.2: 0}
    for seed in range(SETS):
        rng = np.random.default_rng([seed, 77])
        X = features(family, rng)
        if control != "bh" and family == "words":
            X = X[:, X.sum(axis=0) >= 8]  # two words of the same few rows cannot be told apart
        Y = (rng.random((N, Q)) < [0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01]).astype(np.int8)
        asked = {"control": control, "random_state": seed}
        selector = mlfs.BRCC(n_features_to_select=5, pairs="best:100", **asked).fit(X, Y)
        q = selector.pairs_["q_value"].to_numpy()
        for level in found:
            found[level] += bool(np.nanmin(q) <= level)
            try:
                mlfs.BRCC(n_features_to_select="auto", fdr=level, **asked).fit(X, Y)
            except ValueError:  # no feature is found
                continue
            any_label[level] += 1
    for level, count in found.items():
        assert count <= stats.binom.ppf(0.999, SETS, level), (family, control, level, found)
        assert any_label[level] <= stats.binom.ppf(0.999, SETS, level), (family, control, level, any_label)


@pytest.mark.skipif(shutil.which("plink2") is None, reason="plink2 is not installed (Debian: plink2)")
def test_statistics_are_those_of_plink2(tmp_path):
    rng = np.random.default_rng(4)
    n, d, q = 300, 12, 3
    Y = (rng.random((n, q)) < [0.5, 0.2, 0.05]).astype(np.int8)
    X = (rng.random((n, d)) < np.linspace(0.03, 0.9, d)).astype(int)
    X[:, 4] |= Y[:, 1]
    with (tmp_path / "x.vcf").open("w") as file:
        file.write("##fileformat=VCFv4.2\n##contig=<ID=1>\n")
        file.write("\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]))
        file.write("".join(f"\ti{row}" for row in range(n)) + "\n")
        for j in range(d):
            calls = "\t".join(("0/0", "0/1")[value] for value in X[:, j])
            file.write(f"1\t{j + 1}\tx{j}\tA\tC\t.\t.\t.\tGT\t{calls}\n")
    rows = [["#IID", *(f"y{i}" for i in range(q))], *([f"i{row}", *map(str, Y[row] + 3)] for row in range(n))]
    (tmp_path / "y.tsv").write_text("\n".join("\t".join(row) for row in rows) + "\n")
    command = "plink2 --vcf x.vcf --pheno y.tsv --glm omit-ref allow-no-covars --out glm --threads 1"
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    table = mlfs.BRCC(n_features_to_select=5, pairs="all").fit(X, Y).pairs_.to_pandas()
    ours = table.set_index(["feature_index", "label_index"])
    compared = 0
    for label in range(q):
        with (tmp_path / f"glm.y{label}.glm.linear").open() as file:
            for row in csv.DictReader(file, delimiter="\t"):
                pair = ours.loc[(int(row["ID"][1:]), label)]
                np.testing.assert_allclose(pair["statistic"], float(row["T_STAT"]), rtol=1e-4)
                if abs(stats.skew(X[:, int(row["ID"][1:])])) < 0.5:  # of the others the p-value is corrected
                    assert pair["p_value"] >= float(row["P"]) * (1 - 1e-4)
                compared += 1
    assert compared == d * q
