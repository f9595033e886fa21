"""Writes what is made of the list of methods: the table of README.md, and the stub of the package for type checkers.

python docs/listing.py
"""

from __future__ import annotations

import re
from pathlib import Path

import mlfs_dask
from mlfs_dask.selectors import METHODS, get_method

ROOT = Path(__file__).parent.parent

#: Where the table of methods stands.
TABLE = re.compile(r"(?<=\| --- \| --- \| --- \|\n)(\| `.*\n)+")


def files() -> dict[Path, str]:
    """Text of every file."""
    rows = (f"| `{name}` | {get_method(name).title} | {get_method(name).paper} |\n" for name in METHODS)
    readme = ROOT / "README.md"
    table = TABLE.sub("".join(rows).replace("\\", r"\\"), readme.read_text(encoding="utf-8"), count=1)
    names = mlfs_dask._places().items()
    imports = [f"from {module} import {name} as {name}" for name, module in names]
    imports.append("from mlfs_dask._version import __version__ as __version__")
    stub = '"""Names of the package: python docs/listing.py."""\n\n' + "\n".join(sorted(imports, key=str.lower))
    stub += "\n\ndef _places() -> dict[str, str]: ...\n"
    return {readme: table, ROOT / "mlfs_dask" / "__init__.pyi": stub}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
