"""Run folders with the results of selections, written whole or not at all.

`ranking.csv` holds every feature, best first, with q-values and stability if computed; `selected.txt` the names of the
k best; `run.json` the record of the run and its costs. A folder without `run.json` is no run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.files.json_text import as_json, document_text, parse_json
from mlfs_dask.files.object_store import ROOT_KEY, is_url, local_file, open_objects
from mlfs_dask.files.publish import read_text, write_folder
from mlfs_dask.files.result_folders import RUN
from mlfs_dask.storage.subset_spec import origin_of
from mlfs_dask.typing import Array

if TYPE_CHECKING:
    from mlfs_dask.selection.pairs import Pairs

SELECTED = "selected.txt"
LABELS = "labels.zarr"
#: Names of the table of pairs, by its format.
PAIRS = {"parquet": "pairs.parquet", "csv": "pairs.csv"}
REDUNDANCY = "redundancy.csv"
COLUMNS = ("rank", "feature_index", "feature_name", "score")
#: Columns of `redundancy.csv`.
CLUSTER_COLUMNS = ("cluster", "feature_index", "feature", "representative", "similarity", "chosen", "rank")
#: Further columns, if the run shuffled labels or resampled rows.
REPLICATE_COLUMNS = ("q_value", "rank_low", "rank_high", "selection_frequency")
#: Further columns, if pairs were tested.
LABEL_COLUMNS = ("significant_labels", "best_label")
#: Further column, if the method chose one feature after another: `Scores.shared`.
SHARED = "shared"


class _Required(TypedDict):
    k: int
    d: int


class RunRecord(_Required, total=False):
    """Content of `run.json` that other modules read."""

    method: str
    params: dict[str, Any]
    store: dict[str, Any] | None
    n: int
    q: int
    passes: int
    bytes_read: int
    peak_worker_bytes: int
    peak_driver_bytes: int
    wall_seconds: float
    plan: dict[str, Any]
    iterations: int
    converged: bool | None
    objective: list[float | None]
    extra: dict[str, Any]
    warnings: list[str]


@dataclass(frozen=True)
class Run:
    """Finished selection, as read from its folder.

    Attributes
    ----------
    path : str
    ranking : int64 array, shape (d,)
        Feature indices, best first.
    scores : float64 array, shape (d,)
        Scores in the order of `ranking`.
    feature_names : list of str, length d
        Names in the order of `ranking`.
    record : dict
        Content of `run.json`.
    replicates : mapping of str to float64 array, shape (d,)
        Available columns of `REPLICATE_COLUMNS`, in the order of `ranking`.
    shared : float64 array, shape (d,), or None
        Redundancy of each feature with the chosen ones (`Scores.shared`), in the order of `ranking`.
    of_labels : mapping of str to sequence, length d
        Available columns of `LABEL_COLUMNS`, in the order of `ranking`.
    pair_table : pyarrow.Table or None
        Content of `pairs.parquet` of a run in memory.
    """

    path: str
    ranking: NDArray[np.int64]
    scores: Array
    feature_names: list[str]
    record: dict[str, Any]
    replicates: Mapping[str, Array] = field(default_factory=dict)
    shared: Array | None = None
    of_labels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    pair_table: Any = None

    @property
    def k(self) -> int:
        """Number of chosen features."""
        return int(self.record["k"])

    @property
    def store(self) -> dict[str, Any]:
        """Origin of the run: path and digest of the store, and the subset, if any."""
        return self.record.get("store") or {}

    @property
    def origin(self) -> str | None:
        """Digest of the whole store, of which the run may have used a subset."""
        return origin_of(self.store.get("digest"), self.store.get("subset"))

    def pairs(self, features: Sequence[int] | None = None) -> Any:
        """Return the table of tested pairs as a `pyarrow.Table`, of some features or of all; None without a table."""
        import pyarrow as pa
        from pyarrow import compute, csv, parquet

        if self.pair_table is not None:
            if features is None:
                return self.pair_table
            return self.pair_table.filter(compute.field("feature_index").isin(features))
        objects = open_objects(self.path) if self.path else None
        name = next((name for name in PAIRS.values() if objects is not None and objects.exists(name)), None)
        if objects is None or name is None:
            return None
        file: Any = io.BytesIO(objects.read(name)) if is_url(self.path) else f"{self.path}/{name}"
        if name == PAIRS["parquet"]:
            return parquet.read_table(file, filters=None if features is None else [("feature_index", "in", features)])
        texts = csv.ConvertOptions(column_types={"feature": pa.string(), "label": pa.string()})
        table = csv.read_csv(file, convert_options=texts)
        return table if features is None else table.filter(compute.field("feature_index").isin(features))


def write_run(
    path: str,
    *,
    ranking: NDArray[np.integer[Any]],
    scores: NDArray[np.floating[Any]],
    feature_names: Sequence[str] | NDArray[Any],
    record: Mapping[str, Any],
    columns: Mapping[str, NDArray[Any]] | None = None,
    clusters: NDArray[np.void] | None = None,
    write_labels: Callable[[str], None] | None = None,
    pairs: Pairs | None = None,
    pairs_format: str = "parquet",
    force: bool = False,
) -> None:
    """Write a run folder, whole or not at all.

    Parameters
    ----------
    path : str
        Local path or URL.
    ranking : int array, shape (d,)
        Feature indices, best first.
    scores : float array, shape (d,)
        Score of each feature, in the order of the features.
    feature_names : sequence of str, length d
        Name of each feature, in the order of the features.
    record : mapping
        Content of `run.json`; `record["k"]` features are selected.
    columns : mapping of str to array, shape (d,), optional
        Further columns of `ranking.csv`, in the order of the features.
    clusters : array of `selection.redundancy.ROW`, optional
        Content of `redundancy.csv`.
    write_labels : callable, optional
        ``write_labels(path)`` writes `labels.zarr`.
    pairs : Pairs, optional
        Content of the table of pairs, if the question asks for it.
    pairs_format : {"parquet", "csv"}
    force : bool
        Replace an earlier run, once the new one is complete.

    Raises
    ------
    UsageError
        If the path exists without `force`.
    MlfsError
        If the folder cannot be written, for lack of space or permission; nothing is left behind.
    """
    texts = {
        RUN.table: ranking_text(ranking, scores, feature_names, columns or {}),
        SELECTED: selected_text(feature_names[index] for index in ranking[: int(record["k"])]),
        RUN.record: document_text(record),
    }
    if clusters is not None:
        texts[REDUNDANCY] = redundancy_text(clusters, ranking, int(record["k"]), feature_names)

    def fill(folder: str) -> None:
        if write_labels is not None:
            write_labels(f"{folder}/{LABELS}")
        if pairs is not None and pairs.question.rows is not None:
            with local_file(f"{folder}/{PAIRS[pairs_format]}") as file:
                pairs.write(file)

    write_folder(
        path,
        texts,
        kind=RUN,
        fill=fill,
        remove=(LABELS, *PAIRS.values(), REDUNDANCY),
        force=force,
    )


def has_labels(path: str) -> bool:
    """Return True if a run folder holds recovered labels."""
    return open_objects(path).exists(f"{LABELS}/{ROOT_KEY}")


def ranking_text(
    ranking: NDArray[np.integer[Any]],
    scores: NDArray[np.floating[Any]],
    feature_names: Sequence[str] | NDArray[Any],
    columns: Mapping[str, NDArray[Any]],
) -> str:
    r"""Return the text of `ranking.csv`; scores are written to read back with equal bits, NaN as an empty field.

    Examples
    --------
    >>> import numpy as np
    >>> ranking_text(np.array([1, 0]), np.array([0.5, 2.0]), ["a", 'b "c", d'], {"q_value": np.array([1.0, 0.01])})
    'rank,feature_index,feature_name,score,q_value\n1,1,"b ""c"", d",2.0,0.01\n2,0,a,0.5,1.0\n'
    >>> ranking_text(np.array([0]), np.array([0.5]), ["a\rb"], {}).splitlines(keepends=True)[1:]
    ['"1","0","a\r', 'b","0.5"\n']
    """
    values = (array[ranking].tolist() for array in (scores, *columns.values()))
    rows = (
        (rank, index, feature_names[index], *("" if value != value else value for value in further))
        for rank, (index, *further) in enumerate(zip(ranking.tolist(), *values, strict=True), start=1)
    )
    return _csv_text([*COLUMNS, *columns], rows)


def _csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return CSV text with line feeds; a carriage return in a name, which Python would not quote, is quoted."""
    stream = io.StringIO()
    writers = [csv.writer(stream, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)]
    writers[0].writerow(header)
    for row in rows:
        writers[any(isinstance(cell, str) and "\r" in cell for cell in row)].writerow(row)
    return stream.getvalue()


def redundancy_text(
    clusters: NDArray[np.void],
    ranking: NDArray[np.integer[Any]],
    k: int,
    feature_names: Sequence[str] | NDArray[Any],
) -> str:
    r"""Return the text of `redundancy.csv`: clusters in the order of their representatives, then by rank.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([(1, 2, 2, 1.0), (1, 0, 2, 0.97)], "i8,i8,i8,f8")
    >>> redundancy_text(rows, np.array([2, 0, 1]), 1, ["a", "b", "c"]).splitlines()[1:]
    ['1,2,c,c,1.0,1,1', '1,0,a,c,0.97,0,2']
    """
    ranks = np.empty(len(ranking), np.int64)
    ranks[ranking] = np.arange(1, len(ranking) + 1)
    rows = sorted((number, int(ranks[f]), f, by, similarity) for number, f, by, similarity in clusters.tolist())
    cells = (
        (number, f, feature_names[f], feature_names[by], similarity, int(rank <= k), rank)
        for number, rank, f, by, similarity in rows
    )
    return _csv_text(CLUSTER_COLUMNS, cells)


def read_redundancy(path: str) -> list[dict[str, str]] | None:
    """Return the rows of a run's `redundancy.csv`, as text by column name; None without the file.

    Raises
    ------
    DataError
        If the file is damaged.
    """
    if not open_objects(path).exists(REDUNDANCY):
        return None
    text = read_text(path, REDUNDANCY, RUN)
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if tuple(rows.fieldnames or ()) != CLUSTER_COLUMNS:
        raise DataError(
            f"expected the columns {', '.join(CLUSTER_COLUMNS)}.", file=f"{path}/{REDUNDANCY}", line=1, cure=RUN.cure
        )
    return list(rows)


def loop_state(record: Mapping[str, Any]) -> str | None:
    """Describe how the loop of a fit ended, from its record; None without a loop.

    >>> loop_state({"converged": None, "extra": {"stopped_early": True}})
    'stopped early, by design,'
    """
    if record.get("extra", {}).get("stopped_early"):
        return "stopped early, by design,"
    if record["converged"] is None:
        return None
    return "converged" if record["converged"] else "did not converge"


def selected_text(names: Any) -> str:
    r"""Return the text of `selected.txt`: one name per line; a line break inside a name is written as ``\n``."""
    return "".join(str(name).replace("\r", "\\r").replace("\n", "\\n") + "\n" for name in names)


def read_run(path: str) -> Run:
    """Read a run folder.

    Raises
    ------
    DataError
        If the folder is no run, or a file in it is damaged.
    """

    text, file = read_text(path, RUN.record, RUN), f"{path}/{RUN.record}"
    try:
        record = parse_json(text, RunRecord)
    except ValueError as error:
        raise DataError(f"this is not the record of a run ({error}).", file=file, cure=RUN.cure) from error
    k, n_features, file = record["k"], record["d"], f"{path}/{RUN.table}"
    rows = csv.reader(io.StringIO(read_text(path, RUN.table, RUN), newline=""))
    header = tuple(next(rows, ()))
    if header[: len(COLUMNS)] != COLUMNS:
        raise DataError(f"expected the columns {', '.join(COLUMNS)}.", file=file, line=1, cure=RUN.cure)
    indices: list[int] = []
    names: list[str] = []
    scores: list[float] = []
    replicates: dict[str, list[float]] = {name: [] for name in (*REPLICATE_COLUMNS, SHARED) if name in header}
    of_labels: dict[str, list[Any]] = {name: [] for name in LABEL_COLUMNS if name in header}
    columns = [header.index(name) for name in replicates]
    for expected, row in enumerate(rows, start=1):
        try:
            rank, index, name, score = row[: len(COLUMNS)]
            if int(rank) != expected:
                raise ValueError(f"rank {rank} where {expected} was expected")
            indices.append(int(index))
            names.append(name)
            scores.append(float(score or "nan"))  # an excluded feature has no score
            for values, column in zip(replicates.values(), columns, strict=True):
                values.append(float(row[column]))
            for name, texts in of_labels.items():
                text = row[header.index(name)]
                texts.append(text if name == "best_label" else int(text))
        except (ValueError, IndexError) as error:
            raise DataError(str(error), file=file, line=rows.line_num, cure=RUN.cure) from error
    if len(indices) != n_features or sorted(indices) != list(range(n_features)) or not 1 <= k <= n_features:
        raise DataError(
            f"expected each of {n_features} features once, came {len(indices)} rows.",
            file=file,
            cure=RUN.cure,
        )
    further = {name: np.array(values) for name, values in replicates.items()}
    shared = further.pop(SHARED, None)
    return Run(path, np.array(indices, np.int64), np.array(scores), names, record, further, shared, of_labels)


def as_run(run: Any) -> Run:
    """Return the run of a folder, or of a fitted selector.

    Parameters
    ----------
    run : str, path or Selector

    Raises
    ------
    DataError
        If the folder is no run.
    sklearn.exceptions.NotFittedError
    """
    return run.as_run() if hasattr(run, "as_run") else read_run(str(run))


def finished_run(
    path: str,
    *,
    method: str,
    params: Mapping[str, Any],
    digest: str | None,
    features: Mapping[str, Any] | None = None,
) -> Run | None:
    """Return the run at `path` if it is complete and has the same method, parameters and store; else None.

    Parameters
    ----------
    path : str
    method : str
    params : mapping
        All parameters of the selector, defaults included.
    digest : str
        Content digest of the store.
    features : mapping, optional
        Record entries about features named in files (`Question.facts`), which may have changed.
    """
    try:
        run = read_run(path)
    except DataError:
        return None
    record = run.record
    same_store = (record.get("store") or {}).get("digest") == digest
    same = record.get("method") == method and record.get("params") == as_json(params)
    extra = record.get("extra") or {}
    same = same and all(extra.get(name) == value for name, value in (features or {}).items())
    return run if same and same_store else None
