"""Digests of code, parameters and arrays: equal for equal content alone."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.files import fingerprints
from mlfs_dask.files.fingerprints import code_digest, digest_of


def test_all_code_of_the_package_has_a_part_in_its_digest(monkeypatch, tmp_path):
    digests = {code_digest.__wrapped__()}
    monkeypatch.setattr(fingerprints, "__file__", str(tmp_path / "fingerprints.py"))
    for file in ("exact/smfs.py", "solvers/padm.py", "typing.py", "storage/readers/csv.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        for text in ("x = 1", "x = 2"):
            (tmp_path / file).write_text(text)
            digests.add(code_digest.__wrapped__())
    assert len(digests) == 9


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
