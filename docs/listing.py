"""Writes what is made of the list of methods: the table of README.md, and the stub of the package for type checkers.

python docs/listing.py
"""

from __future__ import annotations

import re
from pathlib import Path

import mlfs_dask
from mlfs_dask.selection.estimator import Selector, get_estimator
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.parameters import Parameter

ROOT = Path(__file__).parent.parent

#: Where the table of methods stands.
TABLE = re.compile(r"(?<=\| --- \| --- \| --- \|\n)(\| `.*\n)+")


def files() -> dict[Path, str]:
    """Text of every file."""
    rows = (f"| `{name}` | {get_method(name).title} | {get_method(name).paper} |\n" for name in METHODS)
    readme = ROOT / "README.md"
    table = TABLE.sub("".join(rows).replace("\\", r"\\"), readme.read_text(encoding="utf-8"), count=1)
    imports = [f"from {module} import {name} as {name}" for name, module in mlfs_dask._PLACES.items()]
    imports.append("from mlfs_dask._version import __version__ as __version__")
    imports.append("from mlfs_dask.selection.estimator import LabelRecoverer, Selector, WeightedSelector")
    imports.append("from typing import Any, Literal")
    stub = '"""Names of the package: python docs/listing.py."""\n\n' + "\n".join(sorted(imports, key=str.lower))
    stub += "\n\n_PLACES: dict[str, str]\n\ndef _places() -> dict[str, str]: ...\n\n"
    stub += "".join(_stub(get_estimator(name)) for name in METHODS)
    return {readme: table, ROOT / "mlfs_dask" / "__init__.pyi": stub}


def _stub(estimator: type[Selector]) -> str:
    """An estimator for type checkers: its bases and its constructor."""
    bases = ", ".join(base.__name__ for base in estimator.__bases__)
    options = [f"        {each.name}: {_hint(each)} = ...,\n" for each in estimator.plain.all_parameters()]
    first = "        self,\n        n_features_to_select: int | float | str | None = ...,\n        *,\n"
    return f"class {estimator.__name__}({bases}):\n    def __init__(\n{first}{''.join(options)}    ) -> None: ...\n\n"


def _hint(each: Parameter) -> str:
    kinds = [f"Literal[{', '.join(map(repr, each.choices))}]"] if each.choices else [t.__name__ for t in each.types]
    return " | ".join(["Any"] if each.seeds else kinds + ["None"] * each.optional).replace("'", '"')


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
