"""Rows that belong together, from the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet

import mlfs_dask as mlfs
from tests.cli.conftest import Run, RunJson


def test_clusters_are_a_column_or_a_file(tmp_path: Path, run: Run, run_json: RunJson) -> None:
    rng = np.random.default_rng(0)
    donor = rng.integers(0, 12, 240)
    X, Y = rng.normal(size=(240, 5)), rng.integers(0, 2, (240, 3))
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(5)]).assign(sky=Y[:, 0], sea=Y[:, 2])
    frame["donor"] = [f"d{number}" for number in donor]
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "donors.txt").write_text("\n".join(frame["donor"]))
    store = str(tmp_path / "t.zarr")
    assert not run("convert", tmp_path / "t.csv", store, "--label-columns", "sky,sea", "--obs", "donor").exit_code
    tables = []
    for number, clusters in enumerate(["donor", str(tmp_path / "donors.txt")]):
        for method in ("br-cc", "chi2"):  # one that counts tests by sums, too
            place = tmp_path / f"run-{method}-{number}"
            asked = (method, store, "-k", 2, "--pairs", "all", "--clusters", clusters)
            record = run_json("select", *asked, "-o", place)
            assert run_json("plan", *asked)["passes"] == record["passes"] == 2
            assert record["params"]["clusters"] == clusters
            tables.append(pyarrow.parquet.read_table(place / "pairs.parquet"))
    assert all(table == tables[0] for table in tables)
    fitted = mlfs.BRCC(n_features_to_select=2, pairs="all").fit(X, Y[:, [0, 2]], clusters=donor)
    np.testing.assert_allclose(tables[0].column("p_value"), fitted.pairs_["p_value"])
    place = tmp_path / "eval"
    asked = ("evaluate", store, "br-cc", "-o", place, "--clusters", "donor", "--k-grid", 2)
    assert run_json(*asked, "--folds", 4)["splits"]["folds"] == 4
    refused = run(*asked, "--folds", 13, "--force")
    assert refused.exit_code == 2
    assert "12 rows or clusters" in refused.stderr
