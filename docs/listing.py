"""Writes what is made of commands and methods: lists of options, the table of README.md, the stub of the package.

python docs/listing.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

import mlfs_dask
from mlfs_dask.selection.estimator import Selector, get_estimator
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.parameters import Parameter
from mlfs_dask_cli.main import COMMANDS, mlfs

ROOT = Path(__file__).parent.parent

#: Where the table of methods stands.
TABLE = re.compile(r"(?<=\| --- \| --- \|\n)(\| `.*\n)+(?=\n\[Which method)")


#: Where options of a command stand, or those that several share.
OPTIONS = re.compile(r"(?<=<!-- options )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def files() -> dict[Path, str]:
    """Text of every file."""
    rows = (f"| `{name}` | {get_method(name).title} |\n" for name in METHODS)
    readme = ROOT / "README.md"
    table = TABLE.sub("".join(rows).replace("\\", r"\\"), readme.read_text(encoding="utf-8"), count=1)
    imports = [f"from {module} import {name} as {name}" for name, module in mlfs_dask._PLACES.items()]
    imports.append("from mlfs_dask._version import __version__ as __version__")
    imports.append("from mlfs_dask.selection.estimator import LabelRecoverer, Selector, WeightedSelector")
    imports.append("from typing import Any, Literal")
    stub = '"""Names of the package: python docs/listing.py."""\n\n' + "\n".join(sorted(imports, key=str.lower))
    stub += "\n\n_PLACES: dict[str, str]\n\ndef _places() -> dict[str, str]: ...\n\n"
    stub += "".join(_stub(get_estimator(name)) for name in METHODS)
    commands = ROOT / "docs" / "reference" / "commands.md"
    lists = _option_lists()
    listed = OPTIONS.sub(lambda found: f"{found[1]} -->\n\n{lists[found[1]]}\n\n", commands.read_text(encoding="utf-8"))
    return {readme: table, commands: listed, ROOT / "mlfs_dask" / "__init__.pyi": stub}


def _option_lists() -> dict[str, str]:
    """Options of every command by its name, and those of several in the same words: "shared"."""
    commands_of: dict[str, list[str]] = {}
    for name in COMMANDS:
        for line in _options(name):
            commands_of.setdefault(line, []).append(name)
    lists: dict[str, list[str]] = {}
    for line, names in commands_of.items():
        lists.setdefault("all commands" if len(names) == len(COMMANDS) else ", ".join(names), []).append(line)
    shared = [f"### Of {names}\n\n" + "\n".join(lists[names]) for names in lists if names not in COMMANDS]
    return {"shared": "\n\n".join(shared), **{name: "\n".join(lists.get(name, [])) for name in COMMANDS}}


def _options(name: str) -> Iterator[str]:
    """Options of a command as lines; of one that takes a method those that all methods have."""
    command = mlfs.get_command(click.Context(mlfs), name)
    assert command is not None
    variants = [command]
    if isinstance(command, click.Group):
        variants = [each for method in METHODS if (each := command.get_command(click.Context(command), method))]
    contexts = [click.Context(each, info_name=name) for each in variants]
    records = [
        {each.opts[0]: each.get_help_record(context) for each in context.command.get_params(context)}
        for context in contexts
    ]
    for flag in records[0]:
        record = records[0][flag]
        if record is None or flag in ("-h", "--help"):
            continue
        if flag.startswith("-") and all(flag in of for of in records):
            text = re.sub(r"  \[(.*)\]$", r" [\1]", record[1]).replace("<", "\\<").replace("*", "\\*")
            yield f"- `{record[0].replace(', ', '`, `')}`: {text}"


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
