"""Fixtures that every part of the suite may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


def data_folder() -> Path:
    """Folder of the real data sets: $MLFS_DATA, by default beside the repository."""
    return Path(os.environ.get("MLFS_DATA") or REPOSITORY.parent / "shared" / "data")


@pytest.fixture(scope="session")
def data_set() -> Callable[[str], Path]:
    """Folder of a real data set by name; the test is skipped where the data is absent."""

    def folder(name: str) -> Path:
        path = data_folder() / name
        if not path.is_dir():
            pytest.skip(f"real data not found: {path} (set MLFS_DATA)")
        return path

    return folder
