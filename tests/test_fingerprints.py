"""Digests of code, parameters and arrays: equal for equal content alone."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import fingerprints
from mlfs_dask.fingerprints import code_digest, digest_of


def test_the_code_that_computes_has_a_digest(monkeypatch, tmp_path):
    first = code_digest.__wrapped__()
    assert first == code_digest()
    assert first != code_digest(("blocks",))
    (tmp_path / "solvers").mkdir()
    (tmp_path / "solvers/a.py").write_text("x = 1")
    monkeypatch.setattr(fingerprints, "__file__", str(tmp_path / "fingerprints.py"))
    other = code_digest.__wrapped__()
    assert other != first
    (tmp_path / "solvers/a.py").write_text("x = 2")
    assert code_digest.__wrapped__() != other
    assert code_digest.__wrapped__(("blocks",)) == code_digest.__wrapped__(("primitives",))


DIFFERENT = [
    {"a": 1},
    {"a": 1.5},
    {"a": "1"},
    {"b": 1},
    {"a": None},
    {"a": True},
    {"a": [1, 2]},
    {"a": np.array([1, 2])},
    {"a": np.array([1, 3])},
    {"a": np.array([[1, 2]])},
    {"a": np.array([1, 2], np.int32)},
    {"a": np.array([1.0, 2.0])},
    {"a": np.array([], np.int64)},
    {"a": np.array([], np.float64)},
    {"a": np.array(7)},
    {"a": np.array([7])},
    {"a": {"b": np.array([7])}},
]


def test_values_and_arrays_that_differ_have_different_digests():
    assert len({digest_of(identity) for identity in DIFFERENT}) == len(DIFFERENT)


def test_the_same_content_has_the_same_digest():
    grid = np.arange(12.0).reshape(3, 4)
    assert digest_of({"x": grid[:, ::2]}) == digest_of({"x": grid[:, ::2].copy()})
    assert digest_of({"x": np.float64(0.5), "y": np.int64(2)}) == digest_of({"y": 2, "x": 0.5})


def test_what_has_no_content_is_refused():
    with pytest.raises(TypeError, match="no digest can be taken of set"):
        digest_of({"x": {1, 2}})
