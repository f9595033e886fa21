"""The base installation converts, plans, selects and inspects; what needs an extra names it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from mlfs_dask.errors import EXTRAS

#: Run each command of standard input where no library of an extra can be imported.
WITHOUT_EXTRAS = """
import importlib.abc, json, sys
from click.testing import CliRunner

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in json.loads(sys.argv[1]):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from mlfs_dask_cli.main import mlfs
answers = []
for line in sys.stdin:
    done = CliRunner().invoke(mlfs, line.split())
    answers.append([done.exit_code, done.stderr])
import mlfs_dask
mlfs_dask.BRCC(2).fit([[0, 1, 2], [1, 0, 3]], [[0, 1], [1, 0]])
print(json.dumps(answers))
"""
DONE = """convert rows.npz rows.zarr
inspect rows.zarr
plan mfsir rows.zarr
select mfsir,br-cc,chi2 rows.zarr -k 3 -o runs --resamples 5
transform rows.zarr runs/chi2 chosen.npz
doctor"""
REFUSED = {
    "convert rows.csv other.zarr --n-labels 1": "rows.csv: CSV needs pyarrow",
    "select chi2 rows.parquet -k 3 -o run": "rows.parquet: Parquet needs pyarrow",
    "select br-cc rows.zarr -k 3 -o run --pairs all": "the table of --pairs needs pyarrow",
    "transform rows.zarr runs/chi2 chosen.csv": "chosen.csv: CSV needs pyarrow",
    "convert rows.h5ad other.zarr": "rows.h5ad: HDF5 needs h5py",
    "transform rows.zarr runs/chi2 chosen.h5ad": "chosen.h5ad: HDF5 needs h5py",
    "evaluate rows.zarr runs/chi2 -o eval": "an evaluation needs pandas",
    "report runs/chi2 -o page.html": "a report needs matplotlib",
    "select chi2 rows.zarr -k 3 -o run --workers 1": "--workers needs cryptography",
    "select chi2 rows.zarr -k 3 -o run --progress bar": "this needs rich",
}


def test_without_extras(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((40, 6))
    np.savez(tmp_path / "rows.npz", X=X, Y=(X[:, :2] > 0.5).astype(int))
    (tmp_path / "rows.csv").write_text("a,b\n1,1\n2,0\n")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    (tmp_path / "rows.h5ad").write_bytes(b"\x89HDF\r\n\x1a\n")
    commands = [*DONE.splitlines(), *REFUSED]
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, json.dumps([*EXTRAS])],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    answers = dict(zip(commands, json.loads(ran.stdout.splitlines()[-1]), strict=True))
    assert {command: answers[command][0] for command in DONE.splitlines()} == dict.fromkeys(DONE.splitlines(), 0)
    for command, problem in REFUSED.items():
        code, told = answers[command]
        extra = EXTRAS[problem.rpartition(" ")[2]]
        assert code == 2, (command, told)
        assert f'{problem}, which is not installed\n  cure: pip install "mlfs-dask[{extra}]"' in told, told
    made = {path.name for path in tmp_path.iterdir()}
    assert not made & {"other.zarr", "run", "chosen.csv", "chosen.h5ad", "eval", "page.html"}


@pytest.mark.parametrize("module", EXTRAS)
def test_each_library_is_of_the_extra_that_is_named(module: str) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert any(text.startswith(f"{module}>=") for text in project["optional-dependencies"][EXTRAS[module]])
    assert not any(text.startswith(f"{module}>=") for text in project["dependencies"])
