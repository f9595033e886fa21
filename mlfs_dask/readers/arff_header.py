"""The header of an ARFF file: its attributes, and their names in any spelling."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mlfs_dask.errors import DataError
from mlfs_dask.files.compressed_io import SourceFile
from mlfs_dask.readers.label_columns import check_distinct

NUMERIC_TYPES = ("numeric", "real", "integer")
_TYPES = (*NUMERIC_TYPES, "string", "date", "relational")
_DATE_DEFAULT = "yyyy-MM-dd'T'HH:mm:ss"
# Java's SimpleDateFormat letters, which ARFF uses, in the terms of strptime.
_DATE_LETTERS = {
    "y": "%Y", "yy": "%y", "yyyy": "%Y", "M": "%m", "MM": "%m", "MMM": "%b", "MMMM": "%B",
    "d": "%d", "dd": "%d", "DDD": "%j", "H": "%H", "HH": "%H", "h": "%I", "hh": "%I", "m": "%M", "mm": "%M",
    "s": "%S", "ss": "%S", "S": "%f", "SSS": "%f", "a": "%p", "EEE": "%a", "EEEE": "%A",
    "Z": "%z", "X": "%z", "XX": "%z", "XXX": "%z",
}  # fmt: skip

_QUOTED = re.compile(r"""(['"])((?:(?!\1)[^\\]|\\.)*)\1""")
_NOMINAL_VALUE = re.compile(r"""\s*(?:(['"])((?:(?!\1)[^\\]|\\.)*)\1|([^\s,}'"][^\s,}]*))\s*(,?)""", re.ASCII)
_NOMINAL_END = re.compile(r"\s*\}", re.ASCII)
# Unquoted, a name may hold blanks of other scripts, such as the no-break space.
_BLANKS = re.compile(r"\s+", re.ASCII)
_MEKA_LABELS = re.compile(r"(?:^|[\s:])-C\s+(-?\d{1,9})(?!\d)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


class Attribute(NamedTuple):
    """One `@attribute` line.

    Attributes
    ----------
    name : str
        Without quotes and escapes.
    verbatim : str
        As it stands in the file, without the quotes around it.
    kind : {"numeric", "nominal", "string", "date"}
    values : tuple of str
        Of a nominal: as declared, each once.
    date_format : str
        For strptime.
    line : int
        Its line in the file.
    """

    name: str
    verbatim: str
    kind: str
    values: tuple[str, ...]
    date_format: str
    line: int


class ArffHeader(NamedTuple):
    """Header of an ARFF file: everything before the rows.

    Attributes
    ----------
    relation : str
    attributes : list of Attribute
    data_start : int
        First (uncompressed) byte after the `@data` line.
    data_line : int
        Number of the line that begins there.
    sparse : bool
        Whether the first row is sparse.
    """

    relation: str
    attributes: list[Attribute]
    data_start: int
    data_line: int
    sparse: bool

    @property
    def counted_labels(self) -> int | None:
        """Meka's `-C` in the relation: the first attributes are labels, or, of a number below 0, the last."""
        counted = _MEKA_LABELS.search(self.relation)
        return None if counted is None else int(counted[1])


def unescape(text: str) -> str:
    r"""Return the contents of a quoted text: `Swainson\'s` becomes `Swainson's`."""
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


def unquote(text: str) -> str | None:
    """Return a value without its quotes and escapes; None if its quote is not closed."""
    if text[:1] not in ("'", '"'):
        return text
    match = _QUOTED.fullmatch(text)
    return unescape(match[2]) if match else None


def readable(text: str) -> str:
    """Return the text whose bytes were no UTF-8 as Latin-1."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    return text


def read_arff_header(source: SourceFile, other: Callable[[str, str], bool] = lambda keyword, rest: False) -> ArffHeader:
    """Read up to `@data`, and on to the first row. Holds the names; one pass over the header.

    A dialect is told of other header lines by ``other(keyword, rest)``, which returns whether it knows the keyword.
    Names and values keep bytes that are no UTF-8 as surrogates; `readable` makes them presentable.
    """
    relation: str | None = None
    attributes: list[Attribute] = []
    lines_of: dict[str, int] = {}
    position = number = 0
    with source.open() as stream:
        for line in stream:
            number += 1
            position += len(line)
            if number == 1:
                if line.startswith(_UTF16_MARKS):
                    raise DataError(
                        "UTF-8 text was expected, this is UTF-16",
                        file=source.path,
                        cure="save the file as UTF-8",
                    )
                line = line.removeprefix(_UTF8_MARK)
            text = line.decode("utf-8", "surrogateescape").strip()
            if not text or text.startswith("%"):
                continue
            keyword, rest = _split_word(text)
            match keyword.lower():
                case "@relation":
                    relation = _relation_name(rest)
                case "@attribute":
                    attribute = _parse_attribute(rest, source.path, number)
                    if attribute.name in lines_of:
                        raise DataError(
                            "attribute names must differ; this one was declared in line "
                            f"{lines_of[attribute.name]} already",
                            file=source.path,
                            line=number,
                            value=readable(attribute.name),
                            cure="rename one of the two",
                        )
                    lines_of[attribute.name] = number
                    attributes.append(attribute)
                case "@data":
                    break
                case _ if not other(keyword.lower(), rest):
                    raise DataError(
                        "a header line begins with @relation, @attribute, @data or %",
                        file=source.path,
                        line=number,
                        value=readable(text[:60]),
                        cure="check that this is an ARFF file (other formats: --format)",
                    )
        else:
            raise DataError(
                "the file is empty" if not position else "an ARFF file has a line @data",
                file=source.path,
                line=number or None,
                cure="fetch the file again: it may be cut off",
            )
        if not attributes:
            raise DataError("no @attribute was declared before @data", file=source.path, line=number)
        sparse = False
        for line in stream:
            row = line.lstrip()
            if row and not row.startswith(b"%"):
                sparse = row.startswith(b"{")
                break
    return ArffHeader(relation or "", attributes, position, number + 1, sparse)


def _split_word(text: str) -> tuple[str, str]:
    """Return the first word, and what follows it."""
    word, *rest = _BLANKS.split(text.lstrip(), maxsplit=1)
    return word, rest[0] if rest else ""


def _relation_name(text: str) -> str:
    match = _QUOTED.match(text)
    if match:
        return unescape(match[2])
    return re.split(r"\s%", text, maxsplit=1)[0].strip()


def _parse_attribute(text: str, path: str, line: int) -> Attribute:
    def refuse(problem: str, cure: str, value: str | None = None) -> DataError:
        return DataError(
            problem, file=path, line=line, value=readable(text[:60] if value is None else value), cure=cure
        )

    quoted = _QUOTED.match(text)
    if quoted:
        verbatim, name, rest = quoted[2], unescape(quoted[2]), text[quoted.end() :].strip()
    else:
        verbatim, rest = _split_word(text)
        first = _split_word(rest)[0].lower()
        if "{" in verbatim and not first.startswith("{") and first not in _TYPES:  # name{a, b}
            verbatim, _, tail = verbatim.partition("{")
            rest = f"{{{tail} {rest}"
        name = verbatim
    if not rest or not name:
        raise refuse("an attribute has a name and a type", "write: @attribute NAME numeric (or {value, value})")
    if rest.startswith("{"):
        values = _parse_nominal(rest)
        if values is None:
            raise refuse("the list of values {value, value} is malformed", "quote values that hold blanks", rest[:60])
        return Attribute(name, verbatim, "nominal", values, "", line)
    word, rest = _split_word(rest)
    kind = word.lower().partition("[")[0]  # a dialect may tell the range of a number: real [0, 1]
    if kind in NUMERIC_TYPES:
        return Attribute(name, verbatim, "numeric", (), "", line)
    if kind == "string":
        return Attribute(name, verbatim, "string", (), "", line)
    if kind == "date":
        pattern = _QUOTED.match(rest)
        java = unescape(pattern[2]) if pattern else rest.split("%")[0].strip() or _DATE_DEFAULT
        date_format = _date_format(java)
        if date_format is None:
            raise refuse(
                f"the date format has a part twice, or one that is not supported (known: {', '.join(_DATE_LETTERS)})",
                "write the dates as numbers, or leave the attribute out with --drop",
                java,
            )
        return Attribute(name, verbatim, "date", (), date_format, line)
    raise refuse(
        "an attribute is numeric, real, integer, {value, value}, string or date",
        "relational attributes: write their contents as attributes of their own",
        word,
    )


def _parse_nominal(text: str) -> tuple[str, ...] | None:
    values: dict[str, None] = {}
    p = 1
    while True:
        if _NOMINAL_END.match(text, p):
            return tuple(values) or None
        match = _NOMINAL_VALUE.match(text, p)
        if not match:
            return None
        values[unescape(match[2]) if match[1] else match[3]] = None
        p = match.end()


def _date_format(java: str) -> str | None:
    parts = []
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']", java):
        if match[0].startswith("'"):
            parts.append((match[1].replace("''", "'") or "'").replace("%", "%%"))
        elif match[2]:
            part = _DATE_LETTERS.get(match[0])
            if part is None or part in parts:
                return None
            parts.append(part)
        else:
            parts.append(match[0].replace("%", "%%"))
    return "".join(parts)


class AttributeNames:
    """Attributes by name, in any spelling the file gives them; wrong names get the closest ones."""

    def __init__(self, attributes: Iterable[Attribute], path: str) -> None:
        self._path = path
        self._names: list[str] = []
        self._index: dict[str, int] = {}
        spellings: dict[str, int] = {}
        for i, attribute in enumerate(attributes):
            name = readable(attribute.name)
            self._names.append(name)
            self._index[name] = i
            # A label file may repeat a backslash verbatim, or leave out one that the ARFF has.
            spellings.setdefault(readable(attribute.verbatim), i)
            spellings.setdefault(readable(unescape(attribute.verbatim)), i)
        for name, i in spellings.items():
            self._index.setdefault(name, i)

    def find(self, names: Iterable[str], what: str, file: str) -> list[int]:
        """Return the indices of `names`, a list that came from `file`; `what` says what they are."""
        numbers, missing = [], []
        for name in names:
            if name in self._index:
                numbers.append(self._index[name])
            else:
                missing.append(name)
        if missing:
            closest = difflib.get_close_matches(missing[0], self._names, n=3)
            others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            raise DataError(
                f"the {what} {missing[0]!r}{others} is no attribute of {self._path}",
                file=file,
                value=missing[0],
                cure="did you mean " + ", ".join(map(repr, closest))
                if closest
                else "check that the two files belong together",
            )
        return numbers

    def find_labels(self, names: Sequence[str], file: str) -> list[int]:
        """Return the indices of the labels that `file` names, in the order of the attributes."""
        numbers = self.find(names, "label", file)
        check_distinct(numbers, names, file=file)
        return sorted(numbers)
