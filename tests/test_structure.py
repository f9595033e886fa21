"""Imports of the package go down only."""

from __future__ import annotations

import ast
from pathlib import Path

import mlfs_dask

ROOT = Path(mlfs_dask.__file__).parent


def imported(tree: ast.Module) -> set[str]:
    """Modules of the package that a module imports when it runs, also within functions."""
    for_types = {
        node for branch in ast.walk(tree) if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for node in ast.walk(branch)
    }  # fmt: skip
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node not in for_types:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith("mlfs_dask.")}


def part_of(module: str) -> str:
    """The folder of a module, or the module itself where it lies in no folder."""
    return module.split(".")[1]


def test_no_two_folders_import_each_other() -> None:
    modules = {
        "mlfs_dask." + ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in ROOT.rglob("*.py")
        if path.parent != ROOT or path.stem not in ("__init__", "__main__")
    }
    parts = {part_of(module) for module in modules}
    edges = {
        (part_of(module), part_of(name))
        for module, path in modules.items()
        for name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if part_of(name) in parts - {part_of(module)}
    }
    assert len(edges) > 50
    assert sorted((one, other) for one, other in edges if one < other and (other, one) in edges) == []
