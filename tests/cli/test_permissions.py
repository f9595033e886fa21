"""What may not be read or written, as a user whom permissions bind (a superuser gives the privilege up first)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]

_OVERRIDES = "-dac_override,-dac_read_search"
_GIVE_UP = ("setpriv", f"--bounding-set={_OVERRIDES}", f"--inh-caps={_OVERRIDES}")


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `mlfs` in a process that permissions bind."""
    monkeypatch.setenv("MLFS_CACHE", "none")
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None or subprocess.run([*_GIVE_UP, "true"], check=False).returncode:
            pytest.skip("privileges cannot be given up here")
        prefix = _GIVE_UP

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [*prefix, sys.executable, "-m", "mlfs_dask", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)

    return run


@pytest.fixture
def forbidden() -> Iterator[Callable[[Path, int], Path]]:
    """Take permissions of a path away until the test ends."""
    before: list[tuple[Path, int]] = []

    def change(path: Path, mode: int) -> Path:
        before.append((path, path.stat().st_mode))
        path.chmod(mode)
        return path

    yield change
    for path, mode in before:
        path.chmod(mode)


def test_a_source_that_may_not_be_read(
    bound: Command, forbidden: Callable[[Path, int], Path], tiny_csv: Path, tmp_path: Path
) -> None:
    source = forbidden(Path(shutil.copy(tiny_csv, tmp_path)), 0)
    done = bound("convert", source, tmp_path / "t.zarr", "--label-columns", "a,b")
    assert done.returncode == 1, "as for a store: nothing says that the data is wrong"
    assert f"{source}: no permission to read it\n  cure: check owner and mode of the file" in done.stderr
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("command", ["convert", "select", "transform"])
def test_a_folder_that_may_not_be_written(
    command: str,
    bound: Command,
    forbidden: Callable[[Path, int], Path],
    tiny_csv: Path,
    tiny_store: Path,
    tmp_path: Path,
) -> None:
    folder, run = tmp_path / "locked", tmp_path / "run"
    folder.mkdir()
    words: dict[str, tuple[object, ...]] = {
        "convert": (tiny_csv, folder / "t.zarr", "--label-columns", "a,b"),
        "select": ("elc", tiny_store, "-k", "2", "-o", folder / "run"),
        "transform": (tiny_store, run, folder / "chosen.npz"),
    }
    if command == "transform":
        assert bound("select", "elc", tiny_store, "-k", "2", "-o", run).returncode == 0
    forbidden(folder, 0o555)
    done = bound(command, *words[command])
    assert done.returncode == 1, done.stderr
    assert str(folder) in done.stderr
    assert "permission" in done.stderr.lower()
    assert "cure:" in done.stderr
    assert "Traceback" not in done.stderr
    assert "fault of mlfs" not in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("key", ["", "zarr.json", "X/c/0/0", "var/_index/c/0", "obsm/labels"])
def test_a_store_that_may_not_be_read(
    key: str, bound: Command, forbidden: Callable[[Path, int], Path], tiny_store: Path, tmp_path: Path
) -> None:
    store = tmp_path / "t.zarr"
    shutil.copytree(tiny_store, store)
    forbidden(store / key, 0)
    done = bound("select", "label-entropy", store, "-k", "2", "-o", tmp_path / "run")
    assert done.returncode == 1, done.stderr
    assert "no permission to read" in done.stderr
    assert key in done.stderr
    assert "cure: check owner and mode" in done.stderr
    assert not (tmp_path / "run").exists()
