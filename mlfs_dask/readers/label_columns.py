"""Choice of label columns: the rules that all table and matrix readers share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Hashable, Iterable, Sequence

from mlfs_dask.errors import DataError, UsageError, number_of
from mlfs_dask.readers.base import LabelSpec

LABEL_OPTIONS = (
    "say which columns are labels: --label-columns NAMES, --n-labels K (with --labels-first when they come first), or "
    "--label-file FILE"
)


def split_columns(
    names: Sequence[str],
    labels: LabelSpec,
    *,
    drop: Sequence[str] = (),
    ignored: Collection[int] = (),
    beside: Collection[int] = (),
    file: str,
) -> tuple[list[int], list[int]]:
    """Return the column indices of the features and of the labels, both in the order of the file.

    Parameters
    ----------
    names : sequence of str
        All columns of the file, in order.
    labels : LabelSpec
        `columns` holds names, or numbers counted from 1 where no column has that name.
    drop : sequence of str
        Columns that are neither, named as labels are.
    ignored : collection of int
        Columns that hold no data of the table, such as row numbers, which are read only if `labels` names them.
    beside : collection of int
        Columns that do not stand in the table, but in names of folders: features, unless `labels` names them.
    file : str
        For messages.

    Returns
    -------
    features, labels : list of int

    Raises
    ------
    UsageError
        The labels were not specified.
    DataError
        A column that is wanted does not exist, is named twice or has no name, a label is left out, or nothing is left
        on one side.

    Notes
    -----
    A count of labels counts neither columns that are left out nor those beside the table.

    Examples
    --------
    >>> split_columns(["a", "sky", "sea", "id"], LabelSpec(count=2), drop=["id"], file="t.csv")
    ([0], [1, 2])
    """
    width = len(names)
    dropped = set(find_columns(names, drop, "column to leave out,", file=file))
    named = labels.columns if labels.key is None else (labels.key,)
    if named is not None:
        chosen = set(find_label_columns(names, named, file=file))
        check_kept(chosen, dropped, names, file=file)
    elif labels.count is not None:
        counted = [index for index in range(width) if index not in dropped.union(ignored, beside)]
        # Where columns are left out, or there are others, what is wrong is that no feature is left.
        if not 0 < labels.count <= len(counted) - (not dropped and not beside):
            raise DataError(
                f"{number_of(labels.count, 'label')} asked for; the file has {number_of(len(counted), 'column')} to "
                "count, and at least one must be a label and one a feature",
                file=file,
                cure=LABEL_OPTIONS if len(counted) > 1 else "check the delimiter: it is read as one column",
            )
        chosen = set(counted[: labels.count] if labels.first else counted[-labels.count :])
    else:
        raise UsageError(f"{file}: no option says which columns are labels\n  cure: {LABEL_OPTIONS}")
    features = [index for index in range(width) if index not in chosen | dropped and index not in ignored]
    if not (chosen or named == ()) or not features:
        raise DataError(
            f"{number_of(len(features), 'feature')} and {number_of(len(chosen), 'label')} are left; at least one of "
            "each is needed",
            file=file,
            cure="leave fewer out with --drop" if drop else LABEL_OPTIONS,
        )
    for index in (*features, *chosen):
        if not names[index]:
            raise DataError(
                "the column has no name",
                file=file,
                column=index + 1,
                cure=f"name it, or leave it out: --drop {index + 1}",
            )
    return features, sorted(chosen)


def check_distinct(columns: Sequence[int], names: Sequence[str], *, file: str) -> None:
    """Raise DataError if a list of labels names a column twice: another one may have been meant."""
    if twice := repeated(columns):
        raise DataError(
            "the label is named twice",
            file=file,
            value=names[twice[1]],
            cure="name every label once: perhaps another name was meant",
        )


def check_kept(labels: Collection[int], dropped: Collection[int], names: Sequence[str], *, file: str) -> None:
    """Raise DataError if a column that is a label is left out."""
    if both := sorted(set(labels).intersection(dropped)):
        raise DataError(
            "it is both a label and a column to leave out",
            file=file,
            column=names[both[0]],
            cure="leave out other columns, or name other labels",
        )


_PLACEHOLDER = re.compile(r"(Unnamed: \d+(_level_\d+)?|__index_level_\d+__)?")


def is_nameless(name: str) -> bool:
    """Return True for a column without a name, or with a placeholder of pandas.

    Examples
    --------
    >>> is_nameless(""), is_nameless("Unnamed: 0"), is_nameless("unnamed")
    (True, True, False)
    """
    return _PLACEHOLDER.fullmatch(name) is not None


def matching(pattern: str, names: Iterable[str]) -> list[int]:
    """Return the places of the names that a pattern means, in which * stands for any characters, and ? for one.

    >>> matching("gene_*", ["gene_1", "age", "gene_2"]), matching("gene", ["gene_1"])
    ([0, 2], [])
    """
    if not set(pattern) & set("*?"):
        return []
    meant = re.compile("".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in pattern), re.DOTALL)
    return [place for place, name in enumerate(names) if meant.fullmatch(name)]


def find_columns(names: Sequence[str], columns: Iterable[str], what: str, *, file: str) -> list[int]:
    """Return the indices of columns given by name, by number from 1, or by a pattern of names as `gene_*`.

    >>> find_columns(["gene_1", "gene_2", "y"], ["y", "gene_*"], "label", file="t.csv")
    [2, 0, 1]
    """
    place_of = {name: place for place, name in enumerate(names)}
    found: list[int] = []
    for column in columns:
        if column in place_of:
            found.append(place_of[column])
        else:
            found += matching(column, names) or [find_column(names, column, what, file=file)]
    return found


def find_label_columns(names: Sequence[str], columns: Sequence[str], *, file: str) -> list[int]:
    """`find_columns` of labels, each of which is to be named once."""
    found = find_columns(names, columns, "label", file=file)
    check_distinct(found, columns if len(columns) == len(found) else [names[place] for place in found], file=file)
    return found


def find_column(names: Sequence[str], column: str, what: str, *, file: str) -> int:
    """Return the index of a column given by name or by its number from 1; `what` says what it was to be."""
    if column in names:
        return list(names).index(column)
    if column.isdecimal() and len(column) < 10 and 1 <= int(column) <= len(names):
        return int(column) - 1
    closest = difflib.get_close_matches(column, names, n=3, cutoff=0.5)
    them = f"not the only column, {names[0]!r}" if len(names) == 1 else f"none of the {len(names):,} columns"
    raise DataError(
        f"the {what} {column!r} is {them}",
        file=file,
        value=column,
        cure="did you mean " + ", ".join(map(repr, closest))
        if closest
        else "give names of columns, or their numbers counted from 1",
    )


def unique_names(names: Sequence[str], *, file: str, line: int | None = None) -> None:
    """Raise DataError naming the first name that occurs twice; columns without a name are no concern of it."""
    if twice := repeated([name or number for number, name in enumerate(names)]):
        raise DataError(
            f"columns {twice[0] + 1} and {twice[1] + 1} have the same name",
            file=file,
            line=line,
            column=names[twice[1]],
            cure="give every column a different name",
        )


def repeated(values: Sequence[Hashable]) -> tuple[int, int] | None:
    """Return the places of the first value that stands twice.

    Examples
    --------
    >>> repeated(["a", "b", "a", "b"]), repeated("ab")
    ((0, 2), None)
    """
    if len(set(values)) == len(values):
        return None
    first: dict[Hashable, int] = {}
    return next((first[value], place) for place, value in enumerate(values) if first.setdefault(value, place) != place)


def repeated_name(names: Sequence[str]) -> str | None:
    """Return the first name that stands twice."""
    twice = repeated(names)
    return names[twice[1]] if twice else None


def numbered_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Return distinct names: repeated ones get -1, -2 and so on, as `var_names_make_unique` of
    AnnData has it.

    Examples
    --------
    >>> numbered_apart(["a", "b", "a", "a", "a-1"])
    ('a', 'b', 'a-2', 'a-3', 'a-1')
    """
    taken, seen = set(names), set()
    counts: dict[str, int] = {}
    apart = []
    for name in names:
        new = name
        while new in seen or (new != name and new in taken):
            counts[name] = counts.get(name, 0) + 1
            new = f"{name}-{counts[name]}"
        seen.add(new)
        apart.append(new)
    return tuple(apart)
