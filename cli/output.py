"""Output of commands: the result on standard output, everything else on standard error."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar

import click

from mlfs_dask.files.json_text import as_json
from mlfs_dask.redaction import redact

Number = TypeVar("Number", int, float)

#: Characters that control a terminal or turn the direction of a line, but for ends of lines, which are our own.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """Return a text as people are shown it: without secrets in URLs, and with what data and servers bring in escaped.

    Examples
    --------
    >>> print(shown("no feature 'a\\x1b[31m'\\n  cure: s3://u:pass@bucket"))
    no feature 'a\\x1b[31m'
      cure: s3://***@bucket
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), redact(text))


def print_line(text: str) -> None:
    """Print a line on standard error as it is now: while a bar is shown, that is above the bar."""
    # Not `err=True`, for which Click writes to the stream that a bar has put its own in front of.
    click.echo(shown(text), file=sys.stderr)


def is_terminal() -> bool:
    """Return True if standard error is read as it is written, as in a terminal."""
    return sys.stderr.isatty()


def beside(place: str, suffix: str) -> str:
    """Return a name in the working folder for the output of a next command.

    Examples
    --------
    >>> beside("s3://bucket/big.zarr", ".elc"), beside("runs/big.elc/", ".html")
    ('big.elc', 'big.elc.html')
    """
    name = PurePosixPath(place).name
    return (name if suffix == ".html" else name.partition(".")[0]) + suffix


@dataclass(frozen=True)
class Output:
    """Destination and form of a command's output.

    Attributes
    ----------
    as_json : bool
        The result is one JSON object on standard output, and nothing else is there.
    quiet : bool
        Nothing but the result and errors.
    progress : str
        `auto`, `bar`, `plain`, `json` or `none`.
    """

    as_json: bool = False
    quiet: bool = False
    progress: str = "auto"

    def result(self, value: Mapping[str, Any], text: str, *, following: Sequence[str] = ()) -> None:
        """Print a command's result, as JSON or as text for people.

        Parameters
        ----------
        value : mapping
        text : str
        following : sequence of str
            Words of the command that comes next, which is named to people at a terminal.
        """
        click.echo(shown(json_text(value, indent=2) if self.as_json else text))
        if following and not self.as_json:
            self.next(following)

    def next(self, words: Sequence[str]) -> None:
        """Name the command that comes next to people at a terminal."""
        if not self.quiet and is_terminal():
            print_line(f"next: {shlex.join(words)}")

    def note(self, text: str) -> None:
        """Print a line for people on standard error."""
        if not self.quiet:
            print_line(text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return strict JSON, in which NaN and infinities are null.

    Examples
    --------
    >>> json_text({"C": float("inf"), "labels": {"b", "a"}})
    '{"C": null, "labels": ["a", "b"]}'
    """
    return json.dumps(as_json(value), indent=indent, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return a path or a set as a value of JSON."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def table(rows: Iterable[Sequence[object]], *, header: Sequence[str] | None = None) -> str:
    """Return rows as aligned columns; numbers to the right.

    Examples
    --------
    >>> print(table([("rows", "593"), ("labels", "6")]))
    rows    593
    labels    6
    """
    cells = [[shown(str(cell)).replace("\n", "\\n") for cell in row] for row in rows]
    numeric = [all(_is_number(row[column]) for row in cells) for column in range(len(cells[0]) if cells else 0)]
    if header is not None:
        cells.insert(0, list(header))
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) if cells else 0)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    )


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).replace("%", "").lstrip("-").isdigit()


def between(typical: tuple[Number, Number], form: Callable[[Number], str]) -> str:
    """Return a range for people.

    Examples
    --------
    >>> between((81, 1283), "{:,}".format), between((2, 2), str)
    ('81 to 1,283', '2')
    """
    low, high = map(form, typical)
    return low if low == high else f"{low} to {high}"


def two_digits(value: float) -> str:
    """Return an estimate for people.

    Examples
    --------
    >>> two_digits(0.0234), two_digits(3.14), two_digits(126.5), two_digits(98765.4)
    ('0.023', '3.1', '130', '99,000')
    """
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"
