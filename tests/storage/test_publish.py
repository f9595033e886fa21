"""Outputs that appear whole or not at all, whatever fails, and what is refused before any work is done for one."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlfs_dask.errors import DoesNotFitError, MlfsError, UsageError
from mlfs_dask.files import publish
from mlfs_dask.files.publish import appearing, check_place, remove_leftovers, write_file
from mlfs_dask.files.result_folders import RUN


def write(place: Path, text: str, kind: str) -> None:
    """A file, or a folder with one file."""
    with appearing(place) as aside:
        if kind == "folder":
            aside.mkdir()
        (aside / "text" if kind == "folder" else aside).write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read(place: Path) -> str:
    return (place / "text" if place.is_dir() else place).read_text()


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture(params=["exchange", "two renames"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that exchanges folders in one step, and one that cannot."""
    if request.param == "two renames":
        monkeypatch.setattr(publish, "_exchange", lambda new, place: False)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_behind_a_link_the_output_is_replaced_and_the_link_stays(tmp_path: Path, kind: str) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "first", "one", kind)
    (tmp_path / "link").symlink_to("data/first")
    write(tmp_path / "link", "two", kind)
    assert (tmp_path / "link").readlink() == Path("data/first")
    assert read(tmp_path / "data" / "first") == "two"
    assert names(tmp_path) == ["data", "link"]
    assert names(tmp_path / "data") == ["first"]


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("step", ["fsync", "replace", "rename"])
@pytest.mark.parametrize("fault", [no_space, interrupt])
def test_a_failure_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: str, fault: Callable[..., None]
) -> None:
    """Each step fails in turn: with nothing there before no folder is left, either."""
    for place in (tmp_path / "old", tmp_path / "deep" / "new"):
        if place.name == "old":
            write(place, "one", kind)
        with monkeypatch.context() as patch:
            # Of the renames by which a folder is replaced the second one fails.
            inner, calls = Path.rename, []

            def rename(path: Path, to: Path, inner=inner, calls=calls) -> Path:
                calls.append(to)
                return inner(path, to) if len(calls) != 2 else fault()

            where, name, call = {
                "fsync": (publish.os, "fsync", fault),
                "replace": (Path, "replace", fault),
                "rename": (Path, "rename", rename),
            }[step]
            patch.setattr(where, name, call)
            with contextlib.suppress(MlfsError, KeyboardInterrupt):
                write(place, "two", kind)
        failed = step != "rename" or len(calls) > 1
        if place.name == "old":
            assert read(place) == ("one" if failed else "two")
        assert place.exists() == (place.name == "old" or not failed)
        assert not list(tmp_path.rglob(".*"))
        assert (tmp_path / "deep").exists() == (place.name == "new" and not failed)


def test_of_a_full_disk_what_is_needed_and_what_is_free_are_told(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("200k")
    with (
        pytest.raises(DoesNotFitError, match="out: it cannot be written: No space left on device: projected") as caught,
        appearing(disk / "out", projected=lambda: 1 << 20) as aside,
    ):
        aside.write_bytes(bytes(1 << 20))
    assert caught.value.projected == 1 << 20
    assert "free space" in str(caught.value)
    assert caught.value.available > 100_000, "what was written is removed before"
    assert names(disk) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from mlfs_dask.files import publish

place, step = Path(sys.argv[1]), sys.argv[2]
def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if step == "between two renames":
    publish._exchange = lambda new, place: False
    rename = Path.rename
    Path.rename = lambda path, to: rename(path, to) if to != place else kill()
elif step == "at the end":
    publish.shutil.rmtree = kill
with publish.appearing(place) as aside:
    aside.mkdir()
    (aside / "text").write_text("two")
    if step == "while it writes":
        kill()
"""


@pytest.mark.parametrize("step", ["while it writes", "between two renames", "at the end"])
def test_what_a_killed_process_has_left_goes_with_the_next_one(tmp_path: Path, step: str) -> None:
    place = tmp_path / "out[1]"
    write(place, "one", "folder")
    mine = tmp_path / ".out[1].0badcafe"  # no name of ours
    mine.mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, place, step], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 3 - (step == "between two renames")
    remove_leftovers(place)
    assert read(place) == ("two" if step == "at the end" else "one")
    assert names(tmp_path) == sorted([mine.name, place.name])


def test_the_working_folder_of_a_living_process_stays(tmp_path: Path) -> None:
    with appearing(tmp_path / "out") as aside:
        aside.write_text("one")
        remove_leftovers(tmp_path / "out")
        write_file(tmp_path / "out", b"two")
        assert aside.exists()
    assert read(tmp_path / "out") == "one"
    assert names(tmp_path) == ["out"]


def test_places_that_are_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("data")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "data").write_text("data")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    for name in ("run.json", "ranking.csv"):
        (tmp_path / "run" / name).write_text("{}")

    def check(place: str, *, force: bool = False, resume: bool | None = None) -> None:
        check_place(str(tmp_path / place), RUN, force=force, resume=resume)

    for place in ("new", "deep/new", "empty"):
        check(place)
    check("run", force=True)
    check("run", resume=True)
    for place, force, message in (
        ("run", False, "run holds a run already; --force replaces it"),
        ("file", True, r"is not a run .* even with --force"),
        ("folder", True, r"is not a run .* even with --force"),
        ("run/deep/new", True, "run is a run itself"),
    ):
        with pytest.raises(UsageError, match=message):
            check(place, force=force)
    with pytest.raises(UsageError, match="already; --resume runs what is missing in it, --force replaces it"):
        check("run", resume=False)
    with pytest.raises(MlfsError, match="file is no folder"):
        check("file/new")
    monkeypatch.setattr(publish.os, "access", lambda path, mode: Path(path) != tmp_path)  # root may do anything
    for place in ("new", "deep/new"):
        with pytest.raises(MlfsError, match=f"new: it cannot be written: no permission to write in {tmp_path}"):
            check(place)


def test_a_folder_that_another_process_takes_away_meanwhile_is_no_obstacle(tmp_path, monkeypatch):
    new, place = tmp_path / "new", tmp_path / "place"
    for folder in (new, place):
        folder.mkdir()
        (folder / "file").write_text(folder.name)

    def taken(new, place):
        shutil.rmtree(place)
        return False

    monkeypatch.setattr(publish, "_exchange", taken)
    publish.put(new, place)
    assert [path.name for path in tmp_path.iterdir()] == ["place"]
    assert (place / "file").read_text() == "new"
