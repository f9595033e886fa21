"""What the columns of a table are, in every format alike: labels, features, identifiers, lists, marked numbers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.base import LabelSpec, Reader, ReadOptions
from mlfs_dask.storage.readers.detect import open_source

FORMATS = ("csv", "tsv", "parquet", "feather", "arff")


def save(tmp_path: Path, suffix: str, **columns: list[object]) -> str:
    """The same table in one of the formats."""
    path = tmp_path / f"t.{suffix}"
    rows = list(zip(*columns.values(), strict=True))
    if suffix == "parquet":
        parquet.write_table(pa.table(columns), path)
    elif suffix == "feather":
        feather.write_feather(pa.table(columns), path)
    elif suffix == "arff":
        kinds = ["string" if isinstance(values[0], str) else "numeric" for values in columns.values()]
        names = [f"@attribute {name} {kind}\n" for name, kind in zip(columns, kinds, strict=True)]
        path.write_text(
            f"@relation t\n{''.join(names)}@data\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
        )
    else:
        between = "\t" if suffix == "tsv" else ","
        lines = [columns, *rows]
        path.write_text("".join(between.join("" if v is None else str(v) for v in line) + "\n" for line in lines))
    return str(path)


def opened(path: str, *, drop: tuple[str, ...] = (), obs: tuple[str, ...] = (), **labels: object) -> Reader:
    return open_source([path], ReadOptions(LabelSpec(**labels), drop=drop, obs=obs))  # type: ignore[arg-type]


def names_of(reader: Reader) -> tuple[list[str], list[str]]:
    return list(reader.header.feature_names or ()), list(reader.header.label_names or ())


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("first", [True, False])
def test_a_count_of_labels_counts_what_is_not_left_out(tmp_path: Path, suffix: str, first: bool) -> None:
    columns: dict[str, list[object]] = {"id": ["a", "b", "c"], "y1": [1, 0, 1], "y2": [0, 1, 1], "x": [2, 3, 1]}
    columns = columns if first else dict(reversed(columns.items()))
    path = save(tmp_path, suffix, **columns)
    assert sorted(names_of(opened(path, drop=("id",), count=2, first=first))[1]) == ["y1", "y2"]
    if suffix != "arff":
        assert names_of(opened(path, obs=("id",), count=2, first=first))[0] == ["x"]
    with pytest.raises(DataError, match="column 'y1': it is a label, and is to be left out"):
        opened(path, drop=("id", "y1"), columns=("y1", "y2"))


def test_a_count_of_labels_counts_no_folder(tmp_path: Path) -> None:
    (tmp_path / "g=1").mkdir()
    save(tmp_path / "g=1", "parquet", x=[2, 3], y1=[1, 0], y2=[0, 1])
    assert names_of(opened(str(tmp_path), count=2)) == (["x", "g"], ["y1", "y2"])
    assert names_of(opened(str(tmp_path), columns=("g",)))[1] == ["g"]
