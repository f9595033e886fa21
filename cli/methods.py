"""`mlfs methods`: what can be selected with."""

from __future__ import annotations

from typing import Any

import click

from mlfs_dask_cli.options import output_options
from mlfs_dask_cli.output import Output


@click.command(short_help="List the selectors, their costs and options.")
@output_options(progress=False)
def methods(output: Output) -> None:
    """List every selector: name, paper, supervision, passes, memory, options."""
    from mlfs_dask.selectors import METHODS, get_method

    listed = [_describe(name, get_method(name)) for name in sorted(METHODS)]
    output.result({"methods": listed}, "\n\n".join(map(_text, listed)))


def _describe(name: str, selector: Any) -> dict[str, Any]:
    from mlfs_dask.selectors.options import selector_options

    return {
        "name": name,
        "title": selector.title,
        "paper": selector.paper,
        "doi": selector.doi,
        "supervision": selector.supervision,
        "unknown_labels": selector.accepts_unknown_labels,
        "passes": selector.passes,
        "memory": selector.memory,
        "options": [
            {
                "option": option.flag,
                "type": option.type_text,
                "default": option.default,
                "help": option.help,
            }
            for option in selector_options(selector)
        ],
    }


def _text(method: dict[str, Any]) -> str:
    lines = [f"{method['name']}  {method['title']}"]
    lines += [
        f"  {label:<12} {method[key]}"
        for label, key in (
            ("paper", "paper"),
            ("doi", "doi"),
            ("supervision", "supervision"),
            ("passes", "passes"),
            ("memory", "memory"),
        )
    ]
    options = " ".join(f"{o['option']} {_shown(o['default'])}" for o in method["options"])
    lines.append(f"  {'options':<12} {options}")
    return "\n".join(lines)


def _shown(default: object) -> str:
    return "none" if default is None else str(default)
