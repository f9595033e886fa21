"""Names of the package for type checkers: `python -m mlfs_dask.selectors.stub` writes `mlfs_dask/__init__.pyi`."""

from __future__ import annotations

from pathlib import Path

import mlfs_dask


def stub() -> str:
    """Text of the stub."""
    places = mlfs_dask._places()
    lines = [f"from {module} import {name} as {name}" for name, module in places.items()]
    lines += ["from mlfs_dask._version import __version__ as __version__"]
    header = '"""Made by `python -m mlfs_dask.selectors.stub`."""\n\n'
    return header + "\n".join(sorted(lines, key=str.lower)) + "\n\ndef _places() -> dict[str, str]: ...\n"


if __name__ == "__main__":
    Path(mlfs_dask.__file__).with_suffix(".pyi").write_text(stub(), encoding="utf-8")
