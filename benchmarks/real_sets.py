"""What benchmarks on real sets share: the sets as stores, and tables in Markdown files.

Data sets are read from $MLFS_DATA (default: ../shared/data beside the repository) and converted to stores first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mlfs_dask import convert
from mlfs_dask.readers.base import LabelSpec

DATA = Path(os.environ.get("MLFS_DATA") or Path(__file__).parents[2] / "shared" / "data")

#: Files of each set, and features that only number the rows.
SETS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "emotions": (["emotions.arff"], ()),
    "birds": (["birds-train.arff", "birds-test.arff"], ()),
    "yeast": (["yeast.arff.gz"], ()),
    "scene": (["scene.arff.gz"], ()),
    "medical": (["medical.arff"], ()),
    "genbase": (["genbase.arff.gz"], ("protein",)),
    "enron": (["enron.arff"], ()),
    "delicious": (["delicious.arff.gz"], ()),
    "tmc2007-500": (["tmc2007-500.arff.gz"], ()),
    "Corel5k": (["Corel5k-sparse.arff"], ()),
    "bibtex": (["bibtex.arff.gz"], ()),
    "yahoo-arts": (["yahoo-arts.arff.gz"], ()),
    "yahoo-business": (["yahoo-business.arff.gz"], ()),
    "yahoo-education": (["yahoo-education.arff.gz"], ()),
    "yahoo-computers-5000": (["Computers.mat"], ()),
}

#: Those of which every fit of every method takes seconds.
QUICK = ("emotions", "birds", "yeast", "scene", "medical", "genbase", "enron")


def make_store(name: str, folder: Path) -> str:
    """The store of a set in `folder`, converted from its files where it is not there."""
    files, dropped = SETS[name]
    store = folder / f"{name}.zarr"
    if not store.exists():
        names = DATA / name / f"{name}.xml"
        labels = LabelSpec(xml=str(names)) if names.exists() else None  # a .mat file says itself what its labels are
        convert([DATA / name / file for file in files], store, labels=labels, drop=dropped)
    return str(store)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def replace_table(path: Path, name: str, text: str) -> None:
    """Put `text` between the markers of a table in a Markdown file."""
    start, end = f"<!-- table {name} -->\n", "<!-- end -->"
    before, found, rest = path.read_text().partition(start)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"{path} has no {start.strip()} with its {end}")
    path.write_text(f"{before}{start}{text}\n{end}{after}")
