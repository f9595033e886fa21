"""`mlfs methods`: what can be selected with."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import click
from click.shell_completion import CompletionItem

from mlfs_dask_cli.method_group import SEED_PARAMETER
from mlfs_dask_cli.options import Command, output_options
from mlfs_dask_cli.output import Output

#: Columns of the text about one method.
WIDTH = 80


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from mlfs_dask.selectors import METHODS

    return [CompletionItem(name) for name in sorted(METHODS) if name.startswith(incomplete.lower())]


@click.command(cls=Command, short_help="List the methods, their costs and options.")
@click.argument("method", metavar="[METHOD]", required=False, shell_complete=_complete)
@output_options(progress=False)
def methods(method: str | None, output: Output) -> None:
    """List the methods, a line each; with -v also paper, passes, memory and options. Or describe METHOD."""
    from mlfs_dask.selection.question import COMMON
    from mlfs_dask.selectors import METHODS, get_method

    if method is not None:
        described = _describe(get_method(method))
        output.result(described, _long_text(described), following=["mlfs", "plan", described["name"], "STORE"])
        return
    listed = [_describe(get_method(name)) for name in sorted(METHODS)]
    common = [_option(option) for option in COMMON]
    width = max(len(each["name"]) for each in listed)
    text = "\n".join(f"{each['name']:<{width}}  {each['title']}" for each in listed)
    if click.get_current_context().params["verbose"]:
        text = "\n\n".join([*map(_text, listed), f"options of every method: {_in_short(common)}"])
    told = {"methods": listed, "options_of_every_method": common}
    output.result(told, text, following=["mlfs", "methods", "elc"])


def _describe(selector: Any) -> dict[str, Any]:
    from mlfs_dask.selection.question import COMMON

    own = [each for each in selector.parameters if each.name != SEED_PARAMETER]
    rate = [each for each in COMMON if each.name == "fdr" and selector.resamples_rows]
    return {
        "name": selector.method,
        "title": selector.title,
        "description": re.split(r"\n\n\w+\n-+\n", inspect.getdoc(selector) or "")[0],  # up to the first section
        "paper": selector.paper,
        "doi": selector.doi,
        "supervision": selector.supervision,
        "unknown_labels": True,  # of every method, for programs that ask
        "unknown_entry": selector.unknown_entry,
        "adjusts": "covariates, strata" if selector.takes_covariates else "strata" if selector.takes_strata else "",
        "targets": "labels, numeric targets" if selector.takes_numbers else "labels",
        "passes": selector.passes,
        "memory": selector.memory,
        # --seed is there for all; the rate of -k auto is the method's where it has one
        "options": [_option(each) for each in (*own, *rate)],
    }


def _option(option: Any) -> dict[str, Any]:
    of = {"option": option.flag, "type": option.type_text, "range": option.range, "default": option.default}
    return {**of, "help": option.help}


def _text(method: dict[str, Any]) -> str:
    return "\n".join([_facts(method), *_row("options", _in_short(method["options"]))])


def _in_short(options: list[dict[str, Any]]) -> str:
    return " ".join(f"{o['option']} {_shown(o['default'])}" for o in options)


def _long_text(method: dict[str, Any]) -> str:
    """Return the description of a method: its computation, and every option with its help."""
    lines = [_facts(method), ""]
    for paragraph in method["description"].split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), WIDTH), ""]
    lines.append("options of `mlfs select`:")
    for option in method["options"]:
        known = "; ".join(filter(None, [f"default: {_shown(option['default'])}", option["range"]]))
        lines.append(f"  {option['option']} {option['type']} ({known})")
        lines += textwrap.wrap(option["help"], WIDTH, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def _facts(method: dict[str, Any]) -> str:
    lines = [f"{method['name']}  {method['title']}"]
    facts = {**method, "unknown": f"an entry −1 {method['unknown_entry']}"}
    for name in ("paper", "doi", "supervision", "unknown", "adjusts", "targets", "passes", "memory"):
        if facts[name]:  # not every paper has a DOI
            lines += _row(name, facts[name])
    return "\n".join(lines)


def _row(name: str, text: str) -> list[str]:
    """Return a fact with its lines below one another."""
    first, indent = f"  {name:<12} ", " " * 15
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def _shown(default: object) -> str:
    return "none" if default is None else str(default)
