"""Write what follows from commands and methods: lists of options, a page per method, the stub of the package.

python docs/listing.py
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

import mlfs_dask
from mlfs_dask.selection.estimator import Selector, get_estimator
from mlfs_dask.selection.question import COMMON, parameters_of
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.parameters import Parameter
from mlfs_dask_cli.main import COMMANDS, mlfs
from mlfs_dask_cli.method_group import SEED_PARAMETER

ROOT = Path(__file__).parent.parent

#: Where methods are listed in the page about them, by name.
FAMILY = re.compile(r"(?<=<!-- methods )([a-z0-9 -]+) -->\n.*?(?=<!-- end -->)", re.DOTALL)

#: Where a list of methods follows from what they are.
UNKNOWN = re.compile(r"(?<=<!-- methods by unknown entries -->\n).*?(?=<!-- end -->)", re.DOTALL)
NUMBERS = re.compile(r"(?<=<!-- methods that take numbers -->\n).*?(?=<!-- end -->)", re.DOTALL)
COVARIATES = re.compile(r"(?<=<!-- methods that take covariates -->\n).*?(?=<!-- end -->)", re.DOTALL)
ALL = re.compile(r"(?<=\nmethods: \[\n).*?(?=\n\]\n)", re.DOTALL)
COUNT = re.compile(r"(?<=any of )\d+(?= published methods)")

#: Where options of a command stand, or those that several share.
OPTIONS = re.compile(r"(?<=<!-- options )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def files() -> dict[Path, str]:
    """Text of every file."""
    imports = [f"from {module} import {name} as {name}" for name, module in mlfs_dask._PLACES.items()]
    imports.append("from mlfs_dask._version import __version__ as __version__")
    imports.append("from mlfs_dask.selection.estimator import LabelRecoverer, Selector, WeightedSelector")
    imports.append("from collections.abc import Mapping, Sequence")
    imports.append("from typing import Any, Literal")
    stub = '"""Names of the package: python docs/listing.py."""\n\n' + "\n".join(sorted(imports, key=str.lower))
    stub += "\n\n_PLACES: dict[str, str]\n\ndef _places() -> dict[str, str]: ...\n\n"
    stub += "".join(_stub(get_estimator(name)) for name in METHODS)
    commands = ROOT / "docs" / "reference" / "commands.md"
    lists = _option_lists()
    listed = OPTIONS.sub(lambda found: f"{found[1]} -->\n\n{lists[found[1]]}\n\n", commands.read_text(encoding="utf-8"))
    methods = ROOT / "docs" / "reference" / "methods.md"
    howto = ROOT / "docs" / "howto"
    made = {commands: listed, ROOT / "mlfs_dask" / "__init__.pyi": stub}
    made[methods] = _methods_page(methods.read_text(encoding="utf-8"))
    made |= {methods.with_suffix("") / f"{name}.md": _method_page(name) for name in METHODS}
    others = {
        howto / "unknown-labels.md": (UNKNOWN, f"\n{_unknown_entries()}\n\n"),
        howto / "covariates.md": (COVARIATES, f"\n{_takers('takes_covariates', 'covariates C')}\n\n"),
        howto / "targets.md": (NUMBERS, f"\n{_takers('takes_numbers', 'numeric targets')}\n\n"),
        ROOT / "docs" / "choosing.yaml": (ALL, _wrapped(", ".join(sorted(METHODS)) + ",", "  ")),
        ROOT / "README.md": (COUNT, str(len(METHODS))),
    }
    for path, (place, text) in others.items():
        made[path], found = place.subn(lambda _, text=text: text, path.read_text(encoding="utf-8"))  # type: ignore[misc]
        if not found:
            raise ValueError(f"{path}: the place of its list is gone")
    return made


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 116, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _unknown_entries() -> str:
    """What an unknown entry is to methods, as a table."""
    named: dict[str, list[str]] = {}
    for name in METHODS:
        named.setdefault(get_method(name).unknown_entry, []).append(name)
    rows = sorted(named.items(), key=lambda item: -len(item[1]))
    lines = [f"| {', '.join(f'`{name}`' for name in names)} | {text} |" for text, names in rows]
    table = "\n".join(["| methods | an unknown entry |", "| --- | --- |", *lines])
    return table.replace("can be written", "[can be written](#recover-labels)")


def _takers(fact: str, what: str) -> str:
    """A sentence with the methods of which a class fact holds."""
    *names, last = (f"`{name}`" for name in METHODS if getattr(get_method(name), fact))
    return _wrapped(f"{', '.join(names)} and {last} take {what}; other methods refuse them.")


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


def _methods_page(text: str) -> str:
    """The page of all methods with the tables of its families."""
    order = [name for names in FAMILY.findall(text) for name in names.split()]
    if sorted(order) != sorted(METHODS):
        raise ValueError(f"docs/reference/methods.md has to list every method once: {set(order) ^ set(METHODS)}")
    return FAMILY.sub(lambda found: f"{found[1]} -->\n\n{_family_table(found[1].split())}\n\n", text)


def _family_table(names: list[str]) -> str:
    passes = {name: re.sub(r" [(].*?[)]", "", get_method(name).passes) for name in names}
    rows = [f"| [`{name}`](methods/{name}.md) | {get_method(name).title} | {passes[name]} |" for name in names]
    return "\n".join(["| method | what it is | passes |", "| --- | --- | --- |", *rows])


def _method_page(name: str) -> str:
    """Page of a method: what its docstring says, its options, and its estimator."""
    method, estimator = get_method(name), get_estimator(name)
    prose, *sections = re.split(r"\n\n(?=\w[\w ]*\n-{3,}\n)", inspect.getdoc(estimator) or "")
    text_of = {section.partition("\n")[0]: section.split("\n", 2)[2] for section in sections}
    paper = f"{method.paper}, [doi:{method.doi}](https://doi.org/{method.doi})" if method.doi else method.paper
    title, *paragraphs = prose.split("\n\n")
    parts = [f"# {name}", f"{method.title}. *{paper}.*", *map(_set_formula_apart, paragraphs or [title])]
    parts.insert(2, f"On the command line `mlfs select {name}`, in Python `mlfs_dask.{estimator.__name__}`.")
    options = [
        f"- `{flag}`" + (f" (default {default})" if default else "") + f": {_plain(help)}"
        for flag, default, help in _options_of_some()[name]
    ]
    costs, *notes = text_of["Notes"].split("\n\n")
    costs = " ".join(costs.split()).replace(" Memory: ", "\n- Memory: ")
    parts += ["## Cost", f"- {costs}", *["## Options", "\n".join(options)] * bool(options)]
    parts.append("[Options that every method has](../commands.md) are those of `mlfs select`.")
    parts += [*["## Notes"] * bool(notes), *notes]
    signature = inspect.signature(estimator)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    shared = {definition.name for definition in COMMON}
    plain = [each for each in plain if each.name not in shared]
    plain.append(inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD))
    called = f"{estimator.__name__}{signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"
    parts += ["## In Python", f"```{{py:class}} mlfs_dask.{called}\n```"]
    parts.append(
        "Options are parameters with underscores; `**options` are those that every method has. [All "
        "selectors](../python.md#selectors) have one interface."
    )
    for found in re.finditer(r"^(\w+) : (.*)\n((?:    .*\n?)+)", text_of.get("Attributes", ""), re.MULTILINE):
        parts.append(f"- `{found[1]}`, {found[2]}: {' '.join(found[3].split())}")
    if "Examples" in text_of:
        parts.append(f"```pycon\n{text_of['Examples']}\n```")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


@functools.cache
def _options_of_some() -> dict[str, list[tuple[str, str, str]]]:
    """Of every method the options of `mlfs select` that not all methods have: flag, default and meaning."""
    group = mlfs.get_command(click.Context(mlfs), "select")
    assert isinstance(group, click.Group)
    options: dict[str, dict[str, tuple[str, str]]] = {}
    for name in METHODS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        options[name] = {
            each.opts[0]: (str(each.default), each.help or "")
            for each in command.params
            if isinstance(each, click.Option)
        }
        for each in get_method(name).parameters:  # their texts without the default that click adds to them
            choices = f"{', '.join(f'`{choice}`' for choice in each.choices)}. " if each.choices else ""
            options[name][each.flag] = ("" if each.default is None else str(each.default), choices + each.help)
        del options[name][f"--{SEED_PARAMETER.replace('_', '-')}"]
    common = set.intersection(*map(set, options.values()))
    return {name: [(flag, *texts) for flag, texts in of.items() if flag not in common] for name, of in options.items()}


def _set_formula_apart(paragraph: str) -> str:
    """A paragraph that begins with what is minimised, with the formula on lines of its own."""
    text = " ".join(paragraph.split())
    found = re.match(r"(.*?Minimises) (.*?)(?:(: )| (?=over (?!known|all|the n)|with [A-Z]|where|of X))(.*)", text)
    if found is None:
        return paragraph
    before, formula, colon, rest = found.groups()
    rest = rest[0].upper() + rest[1:] if colon else rest
    return f"{before}\n\n    {formula}\n\n{rest}"


def _plain(text: str) -> str:
    """Return a text for a list or a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def _stub(estimator: type[Selector]) -> str:
    """An estimator for type checkers: its bases and its constructor."""
    bases = ", ".join(base.__name__ for base in estimator.__bases__)
    options = [f"        {each.name}: {_hint(each)} = ...,\n" for each in parameters_of(estimator.plain)]
    options.append("        target_type: str = ...,\n")
    first = "        self,\n        n_features_to_select: int | float | str | None = ...,\n        *,\n"
    return f"class {estimator.__name__}({bases}):\n    def __init__(\n{first}{''.join(options)}    ) -> None: ...\n\n"


def _hint(each: Parameter) -> str:
    kinds = [f"Literal[{', '.join(map(repr, each.choices))}]"] if each.choices else [t.__name__ for t in each.types]
    kinds += [each.param.also] * bool(each.param.also)
    return " | ".join(["Any"] if each.seeds else kinds + ["None"] * each.optional).replace("'", '"')


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
