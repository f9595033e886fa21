"""A damaged store ends every command with exit code 3, the array, the partition and a cure; never with a ranking."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.storage.damage import FAULTS, flip, overwrite, remove_checksums
from tests.storage.stores import make_store, sample

COMMANDS = {
    "select": ("select", "enm", "{store}", "-k", "3", "-o", "{out}"),
    "transform to a file": ("transform", "{store}", "{run}", "{out}.npz"),
    "transform to a store": ("transform", "{store}", "{run}", "{out}.zarr"),
    "evaluate": ("evaluate", "{store}", "random", "--folds", "2", "-o", "{out}"),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The same rows with and without checksums of the chunks."""
    folder = tmp_path_factory.mktemp("damage")
    X, Y = sample(sparse=True)
    return {
        True: make_store(folder / "new.zarr", X, abs(Y), partition_bytes=900),
        False: remove_checksums(make_store(folder / "old.zarr", X, abs(Y), partition_bytes=900)),
    }


@pytest.fixture(scope="module")
def chosen(stores: dict[bool, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the store."""
    from mlfs_dask.selection.runs import write_run
    from mlfs_dask.storage.opening import open_dataset

    run = tmp_path_factory.mktemp("damage") / "run"
    dataset = open_dataset(stores[True])
    record = {"d": 12, "k": 3, "store": {"path": "new.zarr", "digest": dataset.digest}}
    write_run(
        str(run), ranking=np.arange(12), scores=np.ones(12), feature_names=list(dataset.feature_names), record=record
    )
    return run


def words(command: str, store: Path, chosen: Path, out: Path) -> list[str]:
    return [word.format(store=store, run=chosen, out=out) for word in COMMANDS[command]]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("checksums", [True, False])
def test_a_whole_store(
    stores: dict[bool, Path], chosen: Path, tmp_path: Path, run: Run, command: str, checksums: bool
) -> None:
    """What fails below does not fail for another reason."""
    result = run(*words(command, stores[checksums], chosen, tmp_path / "out"))
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("fault", "checksums"),
    [("X/data flipped", True), ("index too large", True), ("label offset falls", False)],
)
def test_no_ranking_of_a_damaged_store(
    stores: dict[bool, Path], chosen: Path, tmp_path: Path, run: Run, command: str, fault: str, checksums: bool
) -> None:
    store = tmp_path / "damaged.zarr"
    shutil.copytree(stores[checksums], store)
    key = fault.split()[0]
    if fault in FAULTS:
        key, entry, value = FAULTS[fault]
        overwrite(store, key, entry, value)
    else:
        flip(store, key)
    result = run(*words(command, store, chosen, tmp_path / "out"))
    assert result.exit_code == 3, result.stderr
    assert str(store) in result.stderr
    assert "cure: " in result.stderr
    assert f"{key}: the store is damaged: " in result.stderr
    assert " in partition " in result.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == ["damaged.zarr"]
