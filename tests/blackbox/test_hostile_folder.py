"""A folder that a stranger has filled: commands that are started in it run no code from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

MLFS = Path(sys.executable).with_name("mlfs")
#: Modules that a process imports on its way to a task, of Python, of libraries and of ours.
MODULES = ("multiprocessing", "signal", "threading", "encodings", "distributed", "numba", "numpy", "llvmlite", "yaml")
TOLD = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Data, modules that leave a mark, and settings that have Numba look for its cache there."""
    np.savez(tmp_path / "x.npz", X=np.arange(4_000_000.0).reshape(-1, 4) % 7, Y=np.arange(1_000_000) % 2)
    attributes = "@attribute f numeric\n@attribute a {0,1}\n@attribute b {0,1}\n"
    (tmp_path / "x.arff").write_text(f"@relation 'r: -C -2'\n{attributes}@data\n1.5,0,1\n2,1,0\n")
    for module in MODULES:
        (tmp_path / f"{module}.py").write_text(TOLD)
    (tmp_path / "locators.py").write_text(TOLD + "class Locator:\n    pass\n")
    settings = "cache_dir: cache\ncache_locator_classes: locators.Locator\ndump_bytecode: 1\n"
    (tmp_path / ".numba_config.yaml").write_text(settings)
    return tmp_path


def mlfs(folder: Path, *words: object, **environment: str) -> str:
    done = subprocess.run(
        [MLFS, *map(str, words)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_nothing_of_the_working_folder_is_run(hostile: Path) -> None:
    mlfs(hostile, "convert", "x.npz", "x.zarr", "--workers", 2)
    printed = mlfs(hostile, "convert", "x.arff", "arff.zarr", "-vv")
    mlfs(hostile, "select", "elc", "arff.zarr", "-k", 1, "-o", "run", "--workers", 1)
    assert not list(hostile.glob("*.ran"))
    assert not (hostile / "cache").exists()
    assert "bytecode" not in printed.lower()


#: `mlfs` of an installation that may not be written to, whoever runs it.
READ_ONLY = """
import os, numba.core.caching as caching
os.access = lambda *_: False
caching.InTreeCacheLocator.from_function = classmethod(lambda *_: None)
from mlfs_dask_cli import start
start()
"""


def test_kernels_of_an_installation_that_is_read_only(hostile: Path) -> None:
    """For a user without a home: what is called so lies in the working folder."""
    (hostile / "~/.cache/mlfs-dask").mkdir(parents=True)
    (hostile / "tmp").mkdir()
    environment = {**os.environ, "HOME": "~", "TMPDIR": str(hostile / "tmp"), "NUMBA_CACHE_DIR": ""}
    command = [sys.executable, "-P", "-c", READ_ONLY, "convert", "x.arff", "s.zarr"]
    done = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list((hostile / "~").rglob("*.nbi"))
    assert not list((hostile / "tmp").iterdir())
