"""Evaluation folders: results, rankings and what learning took, written whole or not at all.

`results.csv` has a row for every data set, run, classifier, number of features, repeat, fold and metric; `rankings.csv`
the chosen features in order; `fits.csv` a row for every ranking that was learnt; `eval.json` how it was done. A folder
without `eval.json` is no evaluation.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from mlfs_dask.errors import UsageError
from mlfs_dask.files.json_text import document_text, parse_json
from mlfs_dask.files.publish import read_parsed, read_record, write_folder
from mlfs_dask.files.result_folders import BATCH, EVALUATION, RUN

if TYPE_CHECKING:
    import pandas as pd

    from mlfs_dask.evaluation.splits import Split

RANKINGS, FITS = "rankings.csv", "fits.csv"

#: Candidates that are no selectors: features drawn at random, and all features.
RANDOM, ALL = "random", "all"

#: Format of floats in tables of results; by default they have the fewest digits that tell them apart.
DIGITS = "%.17g"


class RunEntry(TypedDict):
    """A run, as records of evaluations and comparisons have it."""

    run: str
    method: str


class Metric(TypedDict):
    """A metric, as records of evaluations and comparisons have it."""

    name: str
    title: str
    better: str


class _Splits(TypedDict):
    kind: str
    folds: int
    repeats: int
    test_size: float | None
    seed: Any


class _GridPoint(TypedDict):
    k: int


class EvalRecord(TypedDict):
    """Content of `eval.json`, as far as others read it."""

    store: dict[str, Any]
    runs: list[RunEntry]
    classifiers: list[str]
    splits: _Splits
    k_grid: list[_GridPoint]
    metrics: list[Metric]
    settings: dict[str, Any]


class _BatchRecord(TypedDict):
    jobs: list[str]


def typed_columns(text: str) -> dict[str, str]:
    """Return columns with their types.

    >>> typed_columns("dataset run: str; k: int64")
    {'dataset': 'str', 'run': 'str', 'k': 'int64'}
    """
    parts = [part.split(":") for part in text.split(";")]
    return {name: dtype.strip() for names, dtype in parts for name in names.split()}


#: Column -> dtype of each table.
RESULT_COLUMNS = typed_columns("dataset run method classifier: str; k repeat fold: int64; metric: str; value: float64")
RANKING_COLUMNS = typed_columns("dataset run: str; repeat fold k rank feature_index: int64")
FIT_COLUMNS = typed_columns(
    "dataset run: str; repeat fold k: int64; seconds: float64; passes bytes_read iterations: int64; "
    "converged: boolean; peak_driver_bytes peak_worker_bytes: int64"
)

CHOICE_COLUMNS = typed_columns(
    "dataset run classifier metric: object; k: int64; mean: float64; best_k: int64; best_mean standard_error: float64"
)

#: What k is chosen by, where it was computed.
DEFAULT_METRIC = "average_precision"


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation.

    Attributes
    ----------
    results : DataFrame
        dataset, run, method, classifier, k, repeat, fold, metric, value; NaN for an undefined metric.
    rankings : DataFrame
        dataset, run, repeat, fold, k, rank (from 1), feature_index. k is the number of features that the ranking was
        learnt for: the largest k, which serves all k, or each k if the selection depends on it.
        A finished run has one ranking, with repeat 0 and fold 0; `all` features have none.
    fits : DataFrame
        dataset, run, repeat, fold, k, seconds, passes, bytes_read, iterations, converged (missing for methods
        without a loop), peak_driver_bytes, peak_worker_bytes: a row for every learnt ranking.
    record : dict
        Content of `eval.json`.
    """

    results: pd.DataFrame
    rankings: pd.DataFrame
    fits: pd.DataFrame
    record: dict[str, Any]

    def learnt(self, run: str, split: Split) -> dict[str, Any]:
        """Return the rankings of a run that were learnt in a split, by their k, and what it took to learn each."""
        facts = self._learnt.get((run, split.repeat, split.fold), {})
        return {"rankings": {}, "fits": {}, **facts}

    @cached_property
    def _learnt(self) -> dict[tuple[str, int, int], dict[str, Any]]:
        """Values of `learnt`, by run, repeat and fold."""
        learnt: dict[tuple[str, int, int], dict[str, Any]] = defaultdict(lambda: {"rankings": {}, "fits": {}})
        for (*place, k), part in self.rankings.groupby(["run", "repeat", "fold", "k"]):
            learnt[*place]["rankings"][str(k)] = part.sort_values("rank")["feature_index"].tolist()
        fits = self.fits.astype(object)
        for fit in fits.where(fits.notna(), None).to_dict("records"):
            learnt[fit["run"], fit["repeat"], fit["fold"]]["fits"][str(fit["k"])] = fit
        return learnt

    def means(self) -> pd.DataFrame:
        """Return the mean and standard deviation of every metric over repeats and folds, by dataset, run, classifier
        and k.
        """
        groups = self.results.groupby(["dataset", "run", "method", "classifier", "k", "metric"], sort=False)["value"]
        return groups.agg(["mean", "std", "count"]).reset_index()

    def choose_k(self, metric: str | None = None) -> pd.DataFrame:
        """Return the smallest sufficient number of features, by data set, run and classifier.

        The smallest k whose mean is within one standard error of the best mean (Breiman, Friedman, Olshen and Stone
        1984, "Classification and regression trees", section 3.4.3).

        Parameters
        ----------
        metric : str, optional
            "average_precision" by default, or the first metric where that was not computed.

        Returns
        -------
        DataFrame
            dataset, run, classifier, metric, k, mean, best_k, best_mean, standard_error (of the best mean).

        Raises
        ------
        UsageError
            The metric was not computed, or there is no standard error since there is one split only.
        """
        import pandas as pd

        computed = {m["name"]: m["better"] for m in self.record["metrics"]}
        if metric is None:
            metric = DEFAULT_METRIC if DEFAULT_METRIC in computed else next(iter(computed))
        if metric not in computed:
            raise UsageError(
                f"k cannot be chosen by {metric}, which was not computed; computed: {', '.join(computed)}."
            )
        sign = 1 if computed[metric] == "higher" else -1
        means = self.means()
        means = means[(means["metric"] == metric) & (means["method"] != ALL) & means["mean"].notna()]
        rows = []
        for (dataset, run, classifier), group in means.groupby(["dataset", "run", "classifier"], sort=False):
            best = group.loc[(sign * group["mean"]).idxmax()]
            check_standard_error(int(best["count"]))
            error = best["std"] / best["count"] ** 0.5
            close = group[sign * group["mean"] >= sign * best["mean"] - error]
            k = close.loc[close["k"].idxmin()]
            rows.append((dataset, run, classifier, metric, k["k"], k["mean"], best["k"], best["mean"], error))
        return pd.DataFrame(rows, columns=list(CHOICE_COLUMNS)).astype(CHOICE_COLUMNS)


def check_standard_error(n_splits: int) -> None:
    """Refuse to choose a number of features by fewer than two splits.

    Raises
    ------
    UsageError
    """
    if n_splits < 2:
        raise UsageError(
            "the choice of k needs the standard error over splits, but there is a single split; give "
            "--folds 5, or --repeats 5 with a hold-out."
        )


def write_eval(path: str, evaluation: Evaluation, *, force: bool = False) -> None:
    """Write an evaluation folder, whole or not at all.

    Parameters
    ----------
    path : str
        Local folder or URL.
    evaluation : Evaluation
    force : bool
        Replace an earlier evaluation, at the very end.

    Raises
    ------
    UsageError
        If the place is taken.
    MlfsError
        If it cannot be written.
    """
    texts = {
        name: csv_text(frame[list(columns)], float_format=DIGITS)
        for name, frame, columns in (
            (EVALUATION.table, evaluation.results, RESULT_COLUMNS),
            (RANKINGS, evaluation.rankings, RANKING_COLUMNS),
            (FITS, evaluation.fits, FIT_COLUMNS),
        )
    }
    texts[EVALUATION.record] = document_text(evaluation.record)
    write_folder(path, texts, kind=EVALUATION, force=force)


def csv_text(frame: pd.DataFrame, *, float_format: str | None = None) -> str:
    """Return a table as CSV; floats read back to the same bits, undefined values are empty."""
    text: str = frame.to_csv(index=False, lineterminator="\n", float_format=float_format)
    return text


def read_eval(path: str | Path) -> Evaluation:
    """Read an evaluation folder.

    Raises
    ------
    DataError
        If it is none, a file in it is damaged, or a newer version wrote it.
    """
    record = read_record(str(path), EVALUATION, EvalRecord)

    def frame(name: str, columns: Mapping[str, str]) -> pd.DataFrame:
        return read_parsed(str(path), name, EVALUATION, lambda text: parse_frame(text, columns))

    results = frame(EVALUATION.table, RESULT_COLUMNS)
    return Evaluation(results, frame(RANKINGS, RANKING_COLUMNS), frame(FITS, FIT_COLUMNS), record)


def splits_in_words(splits: Mapping[str, Any]) -> str:
    """Return the splits of a record for people.

    >>> splits_in_words({"kind": "holdout", "test_size": 0.2, "folds": 1, "repeats": 10})
    '20% held out, 10 times'
    """
    folds = splits["folds"]
    if splits["kind"] == "holdout":
        text = f"{splits['test_size']:.0%} held out"
    elif splits["kind"] == "given":
        text = "the given split" if folds == 1 else f"{folds} given folds"
    else:
        text = f"{folds} {'stratified ' if splits['kind'] == 'stratified' else ''}folds"
    return text if splits["repeats"] == 1 else f"{text}, {splits['repeats']} times"


def read_jobs(path: str | Path) -> tuple[list[Path], list[str]]:
    """Return the folders of the finished jobs of a batch, and a note on those that failed or did not run.

    Returns
    -------
    list of Path
        Runs (`run.json`) and evaluations, in the order of the plan.
    list of str
        A sentence; empty where all jobs are finished.

    Raises
    ------
    DataError
        The record of the batch is damaged.
    """
    record = read_parsed(str(path), BATCH.record, BATCH, lambda text: parse_json(text, _BatchRecord))
    folders = [Path(path) / "jobs" / name for name in record["jobs"]]
    finished = [folder for folder in folders if any((folder / of.record).is_file() for of in (RUN, EVALUATION))]
    missing = [folder.name for folder in folders if folder not in finished]
    if not missing:
        return finished, []
    named = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    note = (
        f"{Path(path).name} is not complete: {len(missing)} of its {len(folders)} jobs failed or did not run "
        f"({named}), and what they would show is missing; jobs.csv says why."
    )
    return finished, [note]


def parse_frame(text: str, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return the table of a CSV text with these columns of these types; floats have the bits that were written.

    Parameters
    ----------
    text : str
    columns : mapping of str to str
        Name -> `str` (a column of Python texts, in which nothing is missing), `int64`, `float64`, `bool` or `boolean`.

    Returns
    -------
    DataFrame

    Raises
    ------
    ValueError, TypeError
        It is no such table.
    """
    import pandas as pd

    # Names stay what they are: a data set may be called "NA".
    missing = {column: [""] for column, dtype in columns.items() if dtype in ("float64", "boolean")}
    # Floats are read as texts first: pandas before 3.1 rounds them, and later ones deprecate float_precision.
    floats = [column for column, dtype in columns.items() if dtype == "float64"]
    frame = pd.read_csv(
        io.StringIO(text),
        dtype={column: "object" if dtype in ("str", "float64") else dtype for column, dtype in columns.items()},
        na_values=missing,
        keep_default_na=False,
        true_values=["True"],
        false_values=["False"],
    )
    if list(frame.columns) != list(columns):
        raise ValueError(f"expected the columns {', '.join(columns)}")
    return frame.astype(dict.fromkeys(floats, "float64"))
