"""A secret in a URL is neither printed nor written by any command, whether it ends well or not."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from mlfs_dask.errors import DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.redaction import redact
from mlfs_dask.selection.runs import read_run
from mlfs_dask.storage.opening import open_dataset
from tests.cli.conftest import Run

SECRET = "wJalrXUtnFEMI"
PLACE = f"memory://AKIA:{SECRET}@bucket"
SIGNED = f"{PLACE}/in.csv?X-Amz-Signature={SECRET}"
LABELS = ("--label-columns", "a,b")


@pytest.fixture(scope="module", autouse=True)
def files() -> Iterator[Any]:
    """A table at a URL."""
    memory = fsspec.filesystem("memory")
    rows = [f"{i % 7},{i % 3},{i * i % 11},{int(i % 7 > 3)},{i % 2}" for i in range(60)]
    memory.pipe_file(SIGNED, "\n".join(["f1,f2,f3,a,b", *rows]).encode())
    yield memory
    memory.rm(PLACE, recursive=True)


def test_no_command_repeats_it(files: Any, run: Run, tmp_path: Path) -> None:
    store, chosen = f"{PLACE}/t.zarr", f"{PLACE}/run"
    batch = tmp_path / "batch.yaml"
    batch.write_text(f"stores: [{{path: '{store}'}}]\nmethods: [{{method: elc}}]\nk: [2]\n")
    wrong = f"{PLACE}/none.zarr?token={SECRET}"
    commands: list[tuple[int, tuple[Any, ...]]] = [
        (0, ("convert", SIGNED, store, "--format", "csv", *LABELS, "-v")),
        (2, ("convert", SIGNED, store, "--format", "csv", *LABELS)),
        (3, ("convert", SIGNED, f"{PLACE}/u.zarr", "--format", "csv", "--label-columns", "a,c")),
        (2, ("convert", SIGNED, f"{PLACE}/u.zarr", "--format", f"{PLACE}")),
        (0, ("append", store, SIGNED, "--format", "csv", *LABELS)),
        (0, ("inspect", store, "--json")),
        (3, ("inspect", wrong)),
        (0, ("plan", "elc", store, "--quick", "--json")),
        (3, ("plan", "elc", wrong, "--json")),
        (0, ("select", "elc", store, "-k", "2", "-o", chosen, "-v", "--progress", "json")),
        (0, ("select", "elc", store, "-k", "2", "-o", chosen, "--resume")),
        (2, ("select", "elc", store, "-k", "2", "-o", chosen)),
        (0, ("select", "elc", store, "-k", "2", "-o", tmp_path / "run")),
        (3, ("select", "elc", wrong, "-k", "2", "-o", chosen, "-vv")),
        (0, ("transform", store, chosen, tmp_path / "chosen.csv")),
        (0, ("transform", store, chosen, f"{PLACE}/small.zarr")),
        (3, ("transform", store, f"{PLACE}/none", tmp_path / "other.csv")),
        (0, ("evaluate", store, "random", "--folds", "2", "--json", "-o", tmp_path / "eval")),
        (3, ("evaluate", wrong, "random", "-o", tmp_path / "other")),
        (0, ("report", chosen, tmp_path / "run", tmp_path / "eval", "-o", tmp_path / "page.html")),
        (3, ("report", wrong, "-o", tmp_path / "other.html")),
        (0, ("batch", batch, "-o", tmp_path / "batch", "--progress", "plain")),
        (3, ("batch", tmp_path / "none.yaml", "-o", f"{PLACE}/batch")),
    ]
    for code, words in commands:
        done = run(*words)
        assert done.exit_code in (code, 2) if code == 3 else done.exit_code == code, (words, done.output)
        assert SECRET not in done.output, words
    batch.unlink()  # which the user wrote
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    written |= {path: files.cat_file(path) for path in files.find(PLACE)}
    assert {"run.json", "eval.json", "batch.json", "page.html", "zarr.json"} <= {Path(path).name for path in written}
    assert [path for path, content in written.items() if SECRET.encode() in content] == []
    assert "memory://***@bucket/t.zarr" in (tmp_path / "run/run.json").read_text()
    assert not list(tmp_path.rglob(f"*{SECRET}*"))
    assert read_run(chosen).k == 2


def test_in_python(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mlfs_dask")
    for error in (
        MlfsError(PLACE),
        UsageError(f"{SIGNED} is wrong"),
        DataError(SIGNED, file=PLACE, value=PLACE, cure=SIGNED),
        DoesNotFitError(PLACE, projected=1, available=0, cure=SIGNED),
    ):
        for each in (error, pickle.loads(pickle.dumps(error))):
            assert SECRET not in f"{each} {each!r} {vars(each)}"
    with pytest.raises(DataError) as raised:
        open_dataset(f"{PLACE}/nowhere.zarr", storage_options={"secret": SECRET})
    assert SECRET not in str(raised.value)
    assert SECRET not in caplog.text


@pytest.mark.timeout(20)
def test_a_long_text_without_blanks_is_redacted_in_time() -> None:
    """A page holds its tables as base64: looking for a scheme from every letter on would take hours."""
    letters = "a" * 2_000_000
    text = f"{letters}://tok@host/x?sig=5f2e {letters} 'https://tok@host/','a@b'"
    assert redact(text) == f"{letters}://tok@host/x?sig=*** {letters} 'https://***@host/','a@b'"
