"""Numeric targets through the commands, from tables and AnnData to evaluations, against scikit-learn and SciPy."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import mlfs_dask as mlfs
from tests.cli.conftest import Run, RunJson

pd = pytest.importorskip("pandas")

N, TARGETS = 120, "dose,score,tox"


@pytest.fixture(scope="module")
def frame() -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5)).round(3)
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(5)])
    frame["dose"] = np.where(rng.random(N) < 0.1, np.nan, 1000 + 50 * X[:, 0] + 30 * rng.normal(size=N))
    frame["score"] = X[:, 1] - X[:, 2] + rng.normal(size=N)
    frame["tox"] = (X[:, 3] > 0).astype(int)
    return frame


@pytest.fixture(scope="module")
def sources(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    anndata = pytest.importorskip("anndata")
    names = frame.columns[:5]
    adata = anndata.AnnData(frame[names].to_numpy(), obs=frame.drop(columns=names).set_index(frame.index.astype(str)))
    adata.var_names = names
    adata.write_h5ad(folder / "t.h5ad")
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    return {kind: folder / f"t.{kind}" for kind in ("csv", "parquet", "h5ad")}


@pytest.fixture(scope="module")
def store(sources: dict[str, Path]) -> Path:
    place = sources["csv"].with_name("t.zarr")
    mlfs.convert(sources["csv"], place, targets=TARGETS.split(","))
    return place


def expected_scores(frame: Any) -> list[float]:
    return [sum(abs(frame[f].corr(frame[t])) for t in TARGETS.split(",")) for f in frame.columns[:5]]


def scores_of(run: Path) -> list[float]:
    with (run / "ranking.csv").open() as file:
        return [float(row["score"]) for row in sorted(csv.DictReader(file), key=lambda row: int(row["feature_index"]))]


@pytest.mark.parametrize("kind", ["csv", "parquet", "h5ad"])
def test_a_store_of_targets_gives_the_correlations_of_pandas(
    kind: str, sources: dict[str, Path], frame: Any, tmp_path: Path, run_json: RunJson
) -> None:
    facts = run_json("convert", sources[kind], tmp_path / "s.zarr", "--targets", TARGETS)
    assert (facts["targets"], facts["q"]) == (TARGETS.split(","), 0)
    assert facts["unknown_targets"] == [int(frame["dose"].isna().sum()), 0, 0]
    run_json("select", "br-cc", tmp_path / "s.zarr", "-k", 2, "-o", tmp_path / "run")
    assert scores_of(tmp_path / "run") == pytest.approx(expected_scores(frame), rel=1e-9)
    if kind != "csv":
        run_json("select", "br-cc", sources[kind], "--targets", TARGETS, "-k", 2, "-o", tmp_path / "in place")
        assert scores_of(tmp_path / "in place") == scores_of(tmp_path / "run")


def test_anndata_opens_a_store_and_a_dataset_gives_its_targets(store: Path, frame: Any) -> None:
    opened = mlfs.open_dataset(store)
    np.testing.assert_array_equal(opened.Y.compute(), frame[TARGETS.split(",")])
    assert opened.label_names.tolist() == TARGETS.split(",")
    with pytest.warns(match="Transforming to str index"):
        adata = pytest.importorskip("anndata").read_zarr(store)
    np.testing.assert_array_equal(adata.obs["dose"], frame["dose"])


def test_rows_are_appended_and_chosen_columns_keep_the_targets(
    store: Path, sources: dict[str, Path], frame: Any, tmp_path: Path, run: Run, run_json: RunJson
) -> None:
    run_json("select", "br-cc", store, "-k", 2, "-o", tmp_path / "run")
    run_json("transform", store, tmp_path / "run", tmp_path / "small.zarr")
    assert run_json("inspect", tmp_path / "small.zarr")["targets"] == TARGETS.split(",")
    refused = run("transform", store, tmp_path / "run", tmp_path / "small.csv")
    assert refused.exit_code == 2
    assert "numeric targets" in refused.stderr
    doubled = tmp_path / "s.zarr"
    run_json("convert", sources["csv"], doubled, "--targets", TARGETS)
    run_json("append", doubled, sources["csv"])
    run_json("select", "br-cc", doubled, "--labels", "score,tox", "-k", 2, "-o", tmp_path / "two")
    pairs = [sum(abs(frame[f].corr(frame[t])) for t in ("score", "tox")) for f in frame.columns[:5]]
    assert scores_of(tmp_path / "two") == pytest.approx(pairs, rel=1e-9)


def test_plan_counts_quantile_codes_and_what_cannot_be_is_refused(store: Path, run: Run, run_json: RunJson) -> None:
    assert run_json("plan", "chi2", store, "--target-bins", 4)["passes"] >= 2
    for words, text in (
        (("plan", "chi2", store), "--target-bins 4"),
        (("plan", "br-cc", store, "--control", "partial"), "given the other features"),
        (("plan", "br-cc", store, "--unknown", "negative"), "numeric targets"),
        (("evaluate", store, "br-cc", "--classifier", "mlknn", "-o", "no"), "choose among ridge, knn"),
        (("evaluate", store, "br-cc", "--split", "stratified", "-o", "no"), "stratified"),
    ):
        result = run(*words)
        assert (result.exit_code, text in result.stderr) == (2, True), result.stderr


def test_texts_are_no_target(tmp_path: Path, run: Run) -> None:
    (tmp_path / "t.csv").write_text("a,b,dose\n1,2,high\n2,1,low\n3,3,high\n")
    result = run("convert", tmp_path / "t.csv", tmp_path / "s.zarr", "--targets", "dose")
    assert (result.exit_code, "this column holds texts" in result.stderr) == (3, True), result.stderr


def test_evaluate_judges_by_ridge_and_nearest_rows(store: Path, frame: Any) -> None:
    fold_of = np.arange(N) % 3
    with pytest.warns(match="labels of test rows are unknown"):
        evaluation = mlfs.evaluate(store, "all", fold_of=fold_of)
    found = evaluation.results.set_index(["classifier", "fold", "metric"])["value"]
    X, Y = frame.iloc[:, :5].to_numpy(), frame[TARGETS.split(",")].to_numpy()
    for fold in range(3):
        train, test = fold_of != fold, fold_of == fold
        scaler = StandardScaler().fit(X[train])
        y = Y[train]
        ridge = Ridge(alpha=1.0).fit(scaler.transform(X[train]), np.where(np.isnan(y), np.nanmean(y, axis=0), y))
        nearest = NearestNeighbors(n_neighbors=10).fit(scaler.transform(X[train]))
        near = nearest.kneighbors(scaler.transform(X[test]), return_distance=False)
        predictions = {"ridge": ridge.predict(scaler.transform(X[test])), "knn": np.nanmean(y[near], axis=1)}
        for name, predicted in predictions.items():
            pairs = zip(Y[test].T, predicted.T, strict=True)
            known = [(truth[~np.isnan(truth)], each[~np.isnan(truth)]) for truth, each in pairs]
            r2 = np.mean([r2_score(*pair) for pair in known])
            assert found[name, fold, "r2"] == pytest.approx(r2, rel=1e-8)
            rho = np.mean([stats.spearmanr(*pair).statistic for pair in known])
            assert found[name, fold, "spearman"] == pytest.approx(rho, rel=1e-8)


def test_targets_are_columns_of_obsm(frame: Any, tmp_path: Path, run: Run) -> None:
    """Columns of a matrix by number and of a data frame by name, from a store and from the file in place."""
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(frame[[f"f{i}" for i in range(5)]].to_numpy())
    adata.obsm["matrix"] = frame[["score", "dose"]].to_numpy()
    adata.obsm["table"] = frame[["tox"]].set_index(adata.obs_names)
    place = tmp_path / "t.h5ad"
    adata.write_h5ad(place)
    targets = "matrix:1,matrix:0,table:tox"
    mlfs.convert(place, tmp_path / "t.zarr", targets=targets.split(","))
    for data, options in ((tmp_path / "t.zarr", []), (place, ["--targets", targets])):
        done = run("select", "br-cc", data, "-k", 2, "-o", tmp_path / f"{data.suffix[1:]}.run", *options)
        assert done.exit_code == 0, done.stderr
        assert scores_of(tmp_path / f"{data.suffix[1:]}.run") == pytest.approx(expected_scores(frame))
    for wrong, text in (("matrix:2", "obsm/matrix of shape (120, 2) has no column 2"), ("table:dose", "'dose'")):
        refused = run("convert", place, tmp_path / "no.zarr", "--targets", wrong)
        assert refused.exit_code == 3
        assert text in refused.stderr
