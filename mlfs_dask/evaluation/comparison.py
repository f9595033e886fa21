"""Runs compared over data sets, as the papers do it: means with ties, ranks, tests of ranks, stability, run time.

Everything is computed from the tidy tables of evaluations; nothing is learnt or scored again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from mlfs_dask.errors import DataError, UsageError, closest, require_extra
from mlfs_dask.evaluation.results import (
    ALL,
    Evaluation,
    read_eval,
    read_jobs,
    typed_columns,
)
from mlfs_dask.evaluation.statistics import (
    bonferroni_dunn_difference,
    friedman_test,
    nemenyi_difference,
    nemenyi_p_values,
    paired_t_test,
    rank_methods,
    stability,
)
from mlfs_dask.files.object_store import is_url
from mlfs_dask.files.result_folders import BATCH, COMPARISON, EVALUATION

if TYPE_CHECKING:
    import pandas as pd

#: Tables of a comparison, the types of their columns.
FRAMES = {
    "means": typed_columns(
        "metric classifier dataset run method: str; mean std: float64; n_folds n_undefined: int64; rank: float64; "
        "best tied: bool; p_value: float64"
    ),
    "curves": typed_columns("metric classifier dataset run method: str; k: int64; mean std: float64; n_folds: int64"),
    "ranks": typed_columns("metric classifier run: str; average_rank: float64; n_datasets: int64"),
    "wins": typed_columns("metric classifier run other: str; win tie loss: int64"),
    "stability": typed_columns("dataset run method: str; k: int64; kuncheva jaccard: float64; n_sets: int64"),
    "times": typed_columns(
        "dataset run method: str; fits: int64; seconds_mean seconds_std passes_mean bytes_read_mean: float64; "
        "peak_driver_bytes peak_worker_bytes: int64"
    ),
}
_FOLD = ["repeat", "fold"]
_CASE = ["metric", "classifier"]


@dataclass(frozen=True)
class Comparison:
    """Runs compared over data sets.

    Attributes
    ----------
    means : DataFrame
        `metric, classifier, dataset, run, method, mean, std, n_folds, n_undefined, rank, best, tied, p_value`: over
        folds and repeats, each averaged over the numbers of features; `std` with n − 1. `p_value` is that of the
        paired t-test against the best run of the data set; `tied` is true if it is not significant.
    curves : DataFrame
        `metric, classifier, dataset, run, method, k, mean, std, n_folds`.
    ranks : DataFrame
        `metric, classifier, run, average_rank, n_datasets`.
    wins : DataFrame
        `metric, classifier, run, other, win, tie, loss`: number of data sets on which `run` is better than, not
        significantly different from, and worse than `other` by the paired t-test.
    tests : list of dict
        One for every metric and classifier: Friedman's test and the critical differences.
    stability : DataFrame
        `dataset, run, method, k, kuncheva, jaccard, n_sets`.
    times : DataFrame
        `dataset, run, method, fits, seconds_mean, seconds_std, passes_mean, bytes_read_mean, peak_driver_bytes,
        peak_worker_bytes`: cost of learning one ranking; peaks are maxima.
    record : dict
        Content of `compare.json`; `record["notes"]` names runs that could not be compared.
    """

    means: pd.DataFrame
    curves: pd.DataFrame
    ranks: pd.DataFrame
    wins: pd.DataFrame
    tests: list[dict[str, Any]]
    stability: pd.DataFrame
    times: pd.DataFrame
    record: dict[str, Any]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Name of a metric -> its `title` and what is `better`."""
        return {metric["name"]: metric for metric in self.record["metrics"]}

    @property
    def notes(self) -> list[str]:
        """Notes for the reader: gaps, undefined values, tests that were not possible."""
        return list(self.record["notes"])


def compare(
    evaluations: Sequence[str | Path | Evaluation],
    *,
    runs: Sequence[str] | None = None,
    control: str | None = None,
    k: int | None = None,
    alpha: float = 0.05,
) -> Comparison:
    """Compare runs over the data sets of evaluations.

    Parameters
    ----------
    evaluations : sequence of paths or Evaluations
        EVAL folders, and BATCH folders for all evaluations in them. Runs with the same label on different data sets
        are the same run.
    runs : sequence of str, optional
        Labels of the runs to compare, in this order; all by default.
    control : str, optional
        Run that all others are compared with by Bonferroni–Dunn. Choose it before you see results.
    k : int, optional
        Number of features to compare at; by default values are averaged over the numbers of features.
    alpha : float
        Level of all tests.

    Returns
    -------
    Comparison

    Raises
    ------
    UsageError
        There is nothing to compare, a run or k does not exist, or two evaluations of a data set have different splits.
    DataError
        A folder is not an evaluation.

    Notes
    -----
    A data set on which a run is missing or undefined is left out of the ranks of that metric, with a note.
    The run of all features (method `all`) is shown in the tables but not ranked.
    """
    require_extra("matplotlib", "a comparison")
    import pandas as pd

    if not 0 < alpha < 1:
        raise UsageError(f"alpha must lie between 0 and 1, got {alpha}")
    notes: list[str] = []
    loaded = [each for evaluation in evaluations for each in _load(evaluation, notes)]
    if not loaded:
        raise UsageError("there is nothing to compare: give at least one EVAL folder.")
    _require_compatible(loaded)
    results = pd.concat([evaluation.results for evaluation in loaded], ignore_index=True)
    fits = pd.concat([evaluation.fits for evaluation in loaded], ignore_index=True)
    present = list(dict.fromkeys(results["run"]))
    for run in [*(runs or ()), *([control] if control is not None else ())]:
        known = present if runs is None or run in runs else runs
        if run not in known:
            raise UsageError(f"no run {run!r} here. {closest(run, known)}")
    order = list(dict.fromkeys(runs)) if runs is not None else present
    results = results[results["run"].isin(order)]
    methods = dict(zip(results["run"], results["method"], strict=True))
    params = {run["run"]: run.get("params", {}) for each in loaded for run in each.record["runs"]}
    ranked = [run for run in order if methods[run] != ALL]
    if control is not None and control not in ranked:
        raise UsageError(f"{control!r} keeps all features and is not ranked; it cannot be the control.")

    results = _at_common_k(results, k, notes)
    metrics = list({metric["name"]: metric for each in loaded for metric in each.record["metrics"]}.values())
    higher = {metric["name"]: metric["better"] == "higher" for metric in metrics}
    folds = _per_fold(results, [*_CASE, "dataset", "run", "method", *_FOLD])

    means: list[pd.DataFrame] = []
    wins: list[dict[str, Any]] = []
    ranks: list[dict[str, Any]] = []
    tests: list[dict[str, Any]] = []
    for case, of_case in folds.groupby(_CASE, sort=False):
        metric, classifier = case
        there = set(zip(of_case["dataset"], of_case["run"], strict=True))
        table = of_case.set_index(["dataset", *_FOLD, "run"])["value"].unstack("run").reindex(columns=order)
        these = [
            _data_set_rows(
                dataset, of[[run for run in order if (dataset, run) in there]], higher[metric], ranked, alpha
            )
            for dataset, of in table.groupby(level=0)
        ]
        frame = pd.DataFrame([row for rows in these for row in rows])
        frame["method"] = frame["run"].map(methods)
        ranks_here, test = _test_ranks(frame, ranked, control, higher[metric], alpha)
        head = {"metric": metric, "classifier": classifier}
        of_run = ranks_here.unstack().to_dict()
        frame["rank"] = [of_run.get((row.run, row.dataset), np.nan) for row in frame.itertuples()]
        means.append(frame.assign(**head))
        ranks.extend(
            {**head, "run": run, "average_rank": average, "n_datasets": len(ranks_here)}
            for run, average in ranks_here.mean().dropna().items()
        )
        wins.extend({**head, **row} for row in _wins(table, ranked, higher[metric], alpha))
        tests.append({**head, **test})
    all_means = pd.concat(means, ignore_index=True)
    notes.extend(_gaps(all_means, order))
    notes.extend(_notes_of_tests(tests))
    curves = _curves(results)
    agreement = _stability(loaded, order, methods, notes)
    record = {
        **COMPARISON.head,
        "alpha": alpha,
        "control": control,
        "k": k,
        "runs": [{"run": run, "method": methods[run], "params": params[run]} for run in order],
        "datasets": [{"dataset": name, **_store_facts(each)} for each in loaded for name in _datasets(each)],
        "metrics": metrics,
        "classifiers": list(dict.fromkeys(results["classifier"])),
        "protocols": sorted({each.record["protocol"] for each in loaded if each.record.get("protocol")}),
        "notes": list(dict.fromkeys(notes)),
        "versions": loaded[0].record.get("versions", {}),
    }
    return Comparison(
        means=all_means[list(FRAMES["means"])],
        curves=curves,
        ranks=pd.DataFrame(ranks, columns=list(FRAMES["ranks"])),
        wins=pd.DataFrame(wins, columns=list(FRAMES["wins"])),
        tests=tests,
        stability=agreement,
        times=_times(fits, order, methods),
        record=record,
    )


def _load(evaluation: str | Path | Evaluation, notes: list[str]) -> list[Evaluation]:
    """Return one evaluation, or those of a batch; add a note on a batch that is not complete."""
    if not isinstance(evaluation, str | Path):
        return [evaluation]
    if is_url(str(evaluation)) or not (Path(evaluation) / BATCH.record).is_file():
        return [read_eval(str(evaluation))]
    finished, missing = read_jobs(evaluation)
    notes += missing
    evaluations = [read_eval(folder) for folder in finished if (folder / EVALUATION.record).is_file()]
    if not evaluations:
        raise DataError(
            "no evaluation of this batch is finished",
            file=str(evaluation),
            cure="run `mlfs batch --resume`, then compare",
        )
    return evaluations


def _datasets(evaluation: Evaluation) -> list[str]:
    return list(dict.fromkeys(evaluation.results["dataset"]))


def _store_facts(evaluation: Evaluation) -> dict[str, Any]:
    return {name: evaluation.record["store"].get(name) for name in ("digest", "n", "d", "q")}


def _require_compatible(loaded: Iterable[Evaluation]) -> None:
    """Refuse what cannot be paired fold by fold, and labels that would mean two things."""
    first: dict[str, Evaluation] = {}
    params: dict[tuple[str, str], Any] = {}
    judged: set[tuple[str, str, str]] = set()
    for evaluation in loaded:
        for dataset in _datasets(evaluation):
            earlier = first.setdefault(dataset, evaluation)
            for what in ("digest", "splits", "simulation"):
                if _identity(earlier, what) != _identity(evaluation, what):
                    raise UsageError(
                        f"two evaluations of {dataset!r} do not have the same {'store' if what == 'digest' else what}, "
                        "so their folds cannot be paired: "
                        f"{_identity(earlier, what)} and {_identity(evaluation, what)}."
                        "\n  cure: evaluate all runs of a data set with the same options."
                    )
            for run in evaluation.record["runs"]:
                if params.setdefault((dataset, run["run"]), run.get("params")) != run.get("params"):
                    raise UsageError(
                        f"the run {run['run']!r} has different parameters in two evaluations of {dataset!r}."
                    )
            # Another classifier may have judged the same run in an evaluation of its own.
            for run, classifier in evaluation.results[["run", "classifier"]].drop_duplicates().itertuples(index=False):
                if (dataset, run, classifier) in judged:
                    raise UsageError(
                        f"the run {run!r} on {dataset!r} is in two of the evaluations, with {classifier}; give "
                        f"one of them."
                    )
                judged.add((dataset, run, classifier))


def _identity(evaluation: Evaluation, what: str) -> Any:
    record = evaluation.record
    if what != "digest":
        return record.get(what)
    store = record["store"]
    return f"{store['digest']}, judged on {store['test_digest']}" if "test_digest" in store else store.get("digest")


def _at_common_k(results: pd.DataFrame, k: int | None, notes: list[str]) -> pd.DataFrame:
    """Return rows at the k asked for, or at those that all ranked runs of a data set share; `all` keeps its one k."""
    import pandas as pd

    tables = []
    for dataset, of in results.groupby("dataset", sort=False):
        ranked = of[of["method"] != ALL]
        grids = [set(run["k"]) for _, run in ranked.groupby("run", sort=False)]
        if k is not None:
            without = [run for run, rows in ranked.groupby("run", sort=False) if k not in set(rows["k"])]
            if without:
                known = ", ".join(map(str, sorted(set().union(*grids))))
                raise UsageError(
                    f"{', '.join(without)} on {dataset!r} was not evaluated at k = {k}; there are {known}."
                )
            common = {k}
        else:
            common = grids[0].intersection(*grids) if grids else set()
            if grids and not common:
                raise UsageError(
                    f"the runs on {dataset!r} share no number of features; evaluate them with the same grid."
                )
            if any(grid != common for grid in grids):
                notes.append(
                    f"{dataset}: the runs have different numbers of features; "
                    f"compared at the {len(common)} that all share."
                )
        tables.append(of[of["k"].isin(common) | (of["method"] == ALL)])
    return pd.concat(tables, ignore_index=True)


def _per_fold(results: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the mean over k in each fold; undefined where it is so at any k: all means are over the same numbers of
    features.
    """
    groups = results.groupby(keys, sort=False, observed=True)["value"]
    means = groups.mean().where(groups.count() == groups.size())
    return means.reset_index()


def _data_set_rows(
    dataset: str, table: pd.DataFrame, higher: bool, ranked: list[str], alpha: float
) -> list[dict[str, Any]]:
    """Return mean, deviation and the test against the best run, of every run that is present on a data set."""
    means = table.mean()
    judged = means[[run for run in ranked if run in means.index]].dropna()
    best = None if judged.empty else (judged.idxmax() if higher else judged.idxmin())
    rows = []
    for run in table.columns:
        values = table[run]
        p_value = np.nan
        if best is not None and run != best and run in judged.index:
            p_value = paired_t_test(table[best], values).p_value
        rows.append(
            {
                "dataset": dataset,
                "run": run,
                "mean": means[run],
                "std": values.std(ddof=1),
                "n_folds": int(values.count()),
                "n_undefined": int(values.isna().sum()),
                "best": run in judged.index and judged[run] == judged[best],
                "tied": run in judged.index and judged[run] != judged[best] and not p_value < alpha,
                "p_value": p_value,
            }
        )
    return rows


def _test_ranks(
    means: pd.DataFrame, ranked: list[str], control: str | None, higher: bool, alpha: float
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return ranks on the data sets where every run is defined, data sets by runs, and the tests of them."""
    import pandas as pd

    table = means.pivot(index="dataset", columns="run", values="mean").reindex(columns=ranked)
    complete = table.dropna()
    N, m = complete.shape
    test: dict[str, Any] = {
        "datasets": list(complete.index),
        "left_out": [dataset for dataset in table.index if dataset not in complete.index],
        "runs": ranked,
        "n_datasets": N,
        "n_runs": m,
        "alpha": alpha,
        "control": control,
        "friedman": None,
        "nemenyi_difference": None,
        "bonferroni_dunn_difference": None,
        "nemenyi_p_values": None,
        "wilcoxon_p_value": None,
        "note": None,
    }
    if N == 0 or m < 2:
        test["note"] = (
            "no ranks: there is one run only." if m < 2 else "no ranks: no data set has a defined value of every run."
        )
        return complete.iloc[:0], test
    values = rank_methods(complete.to_numpy(), higher_is_better=higher)
    ranks = pd.DataFrame(values, complete.index, complete.columns)
    if N < 2:
        test["note"] = "no test of ranks: Friedman's test compares over data sets, and there is one."
        return ranks, test
    test["friedman"] = friedman_test(values)
    if m == 2:
        test["wilcoxon_p_value"] = _wilcoxon(complete.to_numpy())
        test["note"] = "two runs: the Wilcoxon signed-rank test is the stronger one."
    else:
        test["nemenyi_p_values"] = nemenyi_p_values(values.mean(axis=0), N).tolist()
    test["nemenyi_difference"] = nemenyi_difference(m, N, alpha=alpha)
    test["bonferroni_dunn_difference"] = bonferroni_dunn_difference(m, N, alpha=alpha)
    return ranks, test


def _wilcoxon(values: Any) -> float:
    difference = values[:, 0] - values[:, 1]
    return 1.0 if not difference.any() else float(stats.wilcoxon(difference, zero_method="zsplit").pvalue)


def _wins(table: pd.DataFrame, ranked: list[str], higher: bool, alpha: float) -> list[dict[str, Any]]:
    """Return win/tie/loss of every pair over the data sets that have both."""
    counts = {(a, b): [0, 0, 0] for a in ranked for b in ranked if a != b}
    for _, of in table.groupby(level=0):
        for i, a in enumerate(ranked):
            for b in ranked[i + 1 :]:
                test = paired_t_test(of[a], of[b])
                if test.n_pairs == 0:
                    continue
                a_wins = test.decides(alpha) and (test.difference > 0) == higher
                b_wins = test.decides(alpha) and not a_wins
                outcome = 0 if a_wins else 2 if b_wins else 1
                counts[a, b][outcome] += 1
                counts[b, a][2 - outcome] += 1
    return [{"run": a, "other": b, "win": win, "tie": tie, "loss": loss} for (a, b), (win, tie, loss) in counts.items()]


def _curves(results: pd.DataFrame) -> pd.DataFrame:
    groups = results.groupby([*_CASE, "dataset", "run", "method", "k"], sort=False, observed=True)["value"]
    return groups.agg(mean="mean", std="std", n_folds="count").reset_index()


def _stability(
    loaded: Iterable[Evaluation], order: list[str], methods: dict[str, str], notes: list[str]
) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for evaluation in loaded:
        d = int(evaluation.record["store"]["d"])
        finished = {run["run"] for run in evaluation.record["runs"] if run.get("learnt") == "finished run"}
        grid = sorted({int(point["k"]) for point in evaluation.record["k_grid"]})
        rankings = evaluation.rankings
        for (dataset, run), of in rankings.groupby(["dataset", "run"], sort=False):
            if run not in order or methods[run] == ALL:
                continue
            if run in finished:
                notes.append(
                    f"{dataset}: {run} was finished beforehand, one ranking for all folds: no stability of it."
                )
                continue
            of = of.sort_values([*_FOLD, "k", "rank"])
            learnt = sorted(set(of["k"]))
            for k in grid:
                # The ranking for that many features, or one that goes further down.
                enough = next((each for each in learnt if each >= k), None)
                if enough is None:
                    continue
                lists = [part["feature_index"].to_numpy() for _, part in of[of["k"] == enough].groupby(_FOLD)]
                if k > min(map(len, lists)):
                    continue
                indices = stability([chosen[:k].tolist() for chosen in lists], d)
                rows.append({"dataset": dataset, "run": run, "method": methods[run], "k": k, **asdict(indices)})
    table = pd.DataFrame(rows, columns=list(FRAMES["stability"]))
    return table.drop_duplicates(["dataset", "run", "k"], ignore_index=True)  # one of each that two evaluations have


def _times(fits: pd.DataFrame, order: list[str], methods: dict[str, str]) -> pd.DataFrame:
    fits = fits[fits["run"].isin(order)]
    groups = fits.groupby(["dataset", "run"], sort=False, observed=True)
    times = groups.agg(
        fits=("seconds", "size"),
        seconds_mean=("seconds", "mean"),
        seconds_std=("seconds", "std"),
        passes_mean=("passes", "mean"),
        bytes_read_mean=("bytes_read", "mean"),
        peak_driver_bytes=("peak_driver_bytes", "max"),
        peak_worker_bytes=("peak_worker_bytes", "max"),
    ).reset_index()
    times.insert(2, "method", times["run"].map(methods))
    return times


def _gaps(means: pd.DataFrame, order: list[str]) -> list[str]:
    """Return notes on runs absent from a data set and on undefined values."""
    notes = []
    for dataset, of in means.groupby("dataset", sort=False):
        absent = [run for run in order if run not in set(of["run"])]
        if absent:
            notes.append(f"{dataset}: {', '.join(absent)} was not evaluated; the data set is left out of all ranks.")
    undefined = means[(means["n_undefined"] > 0)]
    for (metric, dataset), of in undefined.groupby(["metric", "dataset"], sort=False):
        worst = int(of["n_undefined"].max())
        total = int((of["n_undefined"] + of["n_folds"]).max())
        notes.append(
            f"{metric} on {dataset} is undefined in {worst} of {total} folds, which are left out of its means."
        )
    return notes


def _notes_of_tests(tests: Iterable[dict[str, Any]]) -> list[str]:
    """Return the notes of tests, each once, with the metrics that it is about where not all have it."""
    tests = list(tests)
    notes = []
    for note in dict.fromkeys(test["note"] for test in tests if test["note"]):
        about = [f"{test['metric']} ({test['classifier']})" for test in tests if test["note"] == note]
        notes.append(note if len(about) == len(tests) else f"{', '.join(about)}: {note}")
    return notes
