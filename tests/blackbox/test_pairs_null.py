"""Pairs of data in which no feature goes with any label, many times; and plink2's test of the same pairs."""

import csv
import shutil
import subprocess
import warnings

import numpy as np
import pytest
from scipy import stats

import mlfs_dask as mlfs

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


@pytest.mark.nightly
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


def unequal_strata(rng):
    """In one of four strata 0/1 features and labels are at 30 %, elsewhere at 1 %; within each they are independent."""
    batch = np.arange(2000) % 4
    share = np.where(batch == 0, 0.3, 0.01)[:, np.newaxis]
    return (rng.random((2000, 60)) < share).astype(float), (rng.random((2000, 5)) < share).astype(np.int8), batch


def spikes(rng):
    """Symmetric, but rare: −1 and +1 in 2 % of the rows; labels of 5 %."""
    X = (rng.random((500, 60)) < 0.02) * rng.choice([-1.0, 1.0], (500, 60))
    return X, (rng.random((500, 5)) < 0.05).astype(np.int8), None


def signed_hashing(rng):
    """Words hashed with signs, a few of them frequent; labels of 1 to 5 %."""
    counts = rng.poisson(8 / np.arange(1, 501) ** 1.1, (1000, 500))
    bucket = np.zeros((500, 60))
    bucket[np.arange(500), rng.integers(0, 60, 500)] = rng.choice([-1.0, 1.0], 500)
    return counts @ bucket, (rng.random((1000, 5)) < np.arange(1, 6) / 100).astype(np.int8), None


@pytest.mark.parametrize("law", [unequal_strata, spikes, signed_hashing])
@pytest.mark.parametrize("asked", [{"control": "bh"}, {"control": "holm"}, {"control": "partial"}, {}])
def test_levels_of_laws_that_no_t_test_knows(law, asked):
    """A short form of benchmarks/null_sets.py; with no control the number of features follows from shuffles."""
    sets, kept, p = 30, 0, []
    for seed in range(sets):
        X, Y, batch = law(np.random.default_rng([seed, 11]))
        X = X[:, X.any(axis=0)]
        with warnings.catch_warnings(action="ignore"):  # labels of too few rows are left out
            try:
                mlfs.BRCC("auto", random_state=seed, **asked).fit(X, Y, strata=batch)
                kept += 1
            except ValueError as error:
                if "no feature" not in str(error):
                    raise
            if asked:
                tested = mlfs.BRCC(1, pairs="all", **asked).fit(X, Y, strata=batch)
                p.append(tested.pairs_["p_value"].to_numpy())
    assert kept <= stats.binom.ppf(0.999, sets, 0.1)
    if asked:
        assert np.nanmean(np.concatenate(p, axis=None) < 0.05) < 0.06


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
    table = mlfs.BRCC(n_features_to_select=5, pairs="all").fit(X, Y).pairs_
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
