"""The tests of this folder know nothing of the inside."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mlfs_dask


def inner_imports(source: str) -> list[str]:
    """Modules inside the package, its commands and other folders of the tests that a program names."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.append(node.value)
    public = {f"mlfs_dask.{name}" for name in mlfs_dask.__all__} | {"mlfs_dask_cli.main.mlfs"}
    inner = ("mlfs_dask.", "mlfs_dask_cli.", "cli.", "tests.")
    inside = [name for name in names if name.startswith(inner) and name not in public]
    return [name for name in inside if not name.startswith("tests.blackbox.")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import mlfs_dask as mlfs\nfrom mlfs_dask import ELC", []),
        ("from mlfs_dask_cli.main import mlfs\nfrom tests.blackbox.stores import write", []),
        ("from mlfs_dask_cli.options import k", ["mlfs_dask_cli.options.k"]),
        ("from mlfs_dask.storage import convert", ["mlfs_dask.storage.convert"]),
        ("from mlfs_dask import blocks", ["mlfs_dask.blocks"]),
        ("import mlfs_dask.caching", ["mlfs_dask.caching"]),
        ("def f():\n    from tests.reference import elc", ["tests.reference.elc"]),
        ("monkeypatch.setattr('mlfs_dask.runtime.peak', 1)", ["mlfs_dask.runtime.peak"]),
        ("importlib.import_module('mlfs_dask.blocks.counts')", ["mlfs_dask.blocks.counts"]),
    ],
)
def test_what_reaches_inside_is_found(source, expected):
    assert inner_imports(source) == expected


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("**/*.py")), ids=lambda path: path.name)
def test_nothing_below_the_package_is_imported(path):
    assert inner_imports(path.read_text()) == [] or path == Path(__file__)
