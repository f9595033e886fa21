"""Data on which several modules test selectors, made up and real."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tests.conftest import data_folder


def labelled_problem(seed=0, n=80, d=9, q=4):
    """Features 0..q-1 carry a label each; feature d-1 is constant."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.15, 0.6, q)).astype(np.int8)
    Y[0, 0] = 1
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    X[:, :q] += 1.5 * Y
    X[:, -1] = 4.0
    return X, Y


def semi_supervised_problem(seed=0, n=70, d=9, q=4, unknown="rows"):
    """Features 0..q-1 carry a label each; feature d-1 is constant; 60 % of rows, or of entries, are unknown."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < 0.4).astype(np.int8)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.8)
    X[:, :q] += 1.5 * Y
    X[:, -1] = 4.0
    if unknown == "rows":
        Y[rng.random(n) < 0.6] = -1
    elif unknown == "entries":
        Y[rng.random((n, q)) < 0.6] = -1
    return X, Y


def problem_with_equal_rows(seed=0, n=70, d=8, q=3):
    """Feature j < q carries label j; feature d - 1 is constant, and rows 3 and 4 are equal."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.2, 0.6, q)).astype(np.int8)
    Y[0] = 1
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    X[:, :q] += 2 * Y
    X[:, -1] = 4.0
    X[4] = X[3]
    return X, Y


def real_data(name):
    """X and Y of a real set of numbers only, or a skip."""
    path = data_folder() / name / f"{name}.arff"
    packed = path.with_suffix(".arff.gz")
    if not (path.exists() or packed.exists()):
        pytest.skip(f"real data not found: {path} (set MLFS_DATA)")
    text = path.read_text() if path.exists() else gzip.decompress(packed.read_bytes()).decode()
    rows = [line.split(",") for line in text.splitlines() if line[:1].isdigit() or line[:1] == "-"]
    values = np.array(rows, float)
    q = {"emotions": 6, "yeast": 14}[name]
    return values[:, :-q], values[:, -q:].astype(np.int8)


def quiet(selector, X, Y):
    """Fitted, whether or not its few iterations were enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return selector.fit(X, Y)


def write_zarr(adata: Any, path: Path, version: int, **how: Any) -> None:
    """AnnData in a version of Zarr's format, as anndata writes it."""
    import anndata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of anndata, on what it will do later
        with anndata.settings.override(zarr_write_format=version):
            adata.write_zarr(path, **how)
