"""Running a batch: job after job. A finished job has a folder of its own, so that no interruption loses it.

What several selections of a store read first is read once, into the cache (`mlfs_dask.engine.cache`), from
which each job takes it. Where a job fails, its error is recorded and the others run. The tables are made from the
folders at the end.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.batch.spec import BatchSpec, Job, StoreEntry, read_spec
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine import cache as caching
from mlfs_dask.engine.checkpoints import Folder, checkpoint_place
from mlfs_dask.engine.readings import cache_entry
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import ClusterLostError, MlfsError, UsageError, require_extra, spell_parameters_as
from mlfs_dask.evaluation import results as evaluations
from mlfs_dask.evaluation.candidates import Candidate
from mlfs_dask.evaluation.experiment import Experiment
from mlfs_dask.evaluation.job import EvaluateJob, remove_partial_results
from mlfs_dask.evaluation.results import ALL, RANDOM
from mlfs_dask.files.fingerprints import code_digest, digest_of
from mlfs_dask.files.json_text import document_text, parse_json
from mlfs_dask.files.object_store import is_url, local_path
from mlfs_dask.files.publish import behind_links, check_place, locked, write_file
from mlfs_dask.files.result_folders import BATCH, EVALUATION, RUN
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.fit import open_rows, resolve_names
from mlfs_dask.selection.job import SelectJob
from mlfs_dask.selection.question import Question, ask
from mlfs_dask.selection.runs import read_run, write_run
from mlfs_dask.selection.sharing import read_shared, shared_statistics
from mlfs_dask.selection.timing import estimate_seconds
from mlfs_dask.selectors.costs import Cost, Plan, Reading, project
from mlfs_dask.selectors.scores import count_kept
from mlfs_dask.storage.dataset import Dataset
from mlfs_dask.storage.opening import open_dataset

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


#: Failures shown at the end; all of them are in the table.
_SHOWN = 5

JOB_COLUMNS = evaluations.typed_columns(
    "job kind dataset run method k: string; seed: Int64; evaluation state: string; seconds: float64; "
    "passes bytes_read: Int64; from_cache: string; iterations: Int64; converged: boolean; "
    "peak_worker_bytes peak_driver_bytes: Int64; error: string"
)


#: Columns of the further tables, by their names.
TABLES = {
    "results": ["job", "evaluation", "seed", *evaluations.RESULT_COLUMNS],
    "selections": ["job", "dataset", "run", "method", "k", "seed", "rank", "feature_index", "feature_name", "score"],
}


class BatchFailedError(MlfsError):
    """Error of a batch with failed jobs; the others are done.

    Its exit code is that of the failures where they all have the same.
    """

    def __init__(self, failures: Sequence[tuple[str, str, int]], total: int, verb: str) -> None:
        codes = {code for _, _, code in failures}
        self.exit_code = codes.pop() if len(codes) == 1 else 1
        shown = "".join(f"\n  {job}: {text}" for job, text, _ in failures[:_SHOWN])
        more = f"\n  and {len(failures) - _SHOWN} more (jobs.csv)" if len(failures) > _SHOWN else ""
        super().__init__(
            f"{len(failures)} of {total} jobs {verb}:{shown}{more}"
            "\n  cure: read the error of each job; --resume runs only the failed jobs"
        )


@dataclass(frozen=True)
class BatchResult:
    """Results of a batch, as tidy tables.

    Attributes
    ----------
    jobs : DataFrame
        A row for every job, and one for every pass that jobs shared (kind "shared"): state ("done", "failed",
        "missing"), seconds, passes, error.
    results : DataFrame
        The results of all evaluations: job, evaluation and seed, and the columns of `mlfs_dask.evaluation.results`.
    selections : DataFrame
        The chosen features of all selections: job, dataset, run, method, k, seed, rank, feature_index, feature_name,
        score.
    """

    jobs: pd.DataFrame
    results: pd.DataFrame
    selections: pd.DataFrame

    @property
    def failed(self) -> list[str]:
        """Names of the failed jobs."""
        return list(self.jobs["job"][self.jobs["state"] == "failed"])


@dataclass(frozen=True)
class JobProjection:
    """Projected cost of one job (`selectors.costs.Plan`), or its error. Evaluations have no seconds.

    With `shared` it is no job of the plan, but the pass that several of them share.
    """

    job: str
    shared: bool = False
    passes: int = 0
    bytes_read: int = 0
    peak_worker_bytes: int = 0
    peak_driver_bytes: int = 0
    typical_passes: tuple[int, int] | None = None
    typical_bytes_read: tuple[int, int] | None = None
    seconds: float | None = None
    typical_seconds: tuple[float, float] | None = None
    problem: str | None = None
    exit_code: int = 0


@dataclass
class BatchProjection:
    """Projected cost of a batch; an upper bound if methods iterate.

    Attributes
    ----------
    jobs : list of JobProjection
        Those that are not done; what jobs share stands before them, as `STORE.shared`.
    done : int
        Jobs that are done already.
    """

    jobs: list[JobProjection] = field(default_factory=list)
    done: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with totals."""
        each = self.jobs
        return {
            "jobs": [asdict(job) for job in each],
            "done": self.done,
            "passes": sum(job.passes for job in each),
            "bytes_read": sum(job.bytes_read for job in each),
            "typical_passes": _typical([(job.typical_passes, job.passes) for job in each]),
            "typical_bytes_read": _typical([(job.typical_bytes_read, job.bytes_read) for job in each]),
            "peak_worker_bytes": max((job.peak_worker_bytes for job in each), default=0),
            "peak_driver_bytes": max((job.peak_driver_bytes for job in each), default=0),
        }

    def require_success(self) -> None:
        """Raise if a job is known to fail.

        Raises
        ------
        BatchFailedError
        """
        # Where a shared pass fails each job reads for itself, and tells what is wrong.
        jobs = [job for job in self.jobs if not job.shared]
        problems = [(job.job, job.problem, job.exit_code) for job in jobs if job.problem is not None]
        if problems:
            raise BatchFailedError(problems, len(jobs), "will fail")


def run_batch(
    plan: str | Path | Mapping[str, Any],
    place: str | Path | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    cache: str | Path | None = caching.BESIDE,
    cache_size: int = caching.SIZE,
) -> BatchResult:
    """Run the jobs of a specification.

    Parameters
    ----------
    plan : path or mapping
        YAML file of the batch, or its content.
    place : path, optional
        Folder for the jobs and the tables. By default only the returned tables are kept.
    resume : bool
        Run only the jobs that are missing in the folder.
    force : bool
        Replace an earlier batch.
    cache : path, "auto" or None
        Folder of the cache (`mlfs_dask.cache`). None: jobs share no pass.
    cache_size : int
        Largest size of the cache in bytes.

    Returns
    -------
    BatchResult
        Tables of the batch; `jobs` lists failed jobs, which raise no error.

    Raises
    ------
    DataError
        The specification or a store is invalid; nothing was run.
    UsageError
        The folder exists.
    ClusterLostError
        The cluster was lost; finished jobs are kept: continue with `resume`.
    """
    import tempfile

    spec = read_spec(plan)
    with contextlib.ExitStack() as stack:
        if place is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mlfs-batch-"))) / "batch"
        batch = Batch(spec, place, resume=resume, force=force)
        stack.enter_context(caching.cache(cache, size=cache_size))
        batch.run()
        return batch.result()


class Batch:
    """A specification and its folder.

    Parameters
    ----------
    spec : BatchSpec
    place : path
    resume, force : bool

    Raises
    ------
    UsageError
        The place is taken, or is a URL.
    DataError
        A store is missing or damaged.
    """

    def __init__(self, spec: BatchSpec, place: str | Path, *, resume: bool = False, force: bool = False) -> None:
        require_extra("pandas", "a batch")
        self.spec = spec
        self._place = _check_place(place, resume=resume, force=force)
        self._resume, self._force = resume, force
        # A store that cannot be opened is found before anything runs.
        self._datasets: dict[str, Dataset] = {store.name: open_dataset(store.path) for store in spec.stores}
        self._rows: dict[str, dict[str, Any]] = {}
        self._jobs_by_ranking: dict[tuple[str, str, int | None], list[Job]] = {}
        for job in spec.jobs:
            if job.evaluation is None:
                self._jobs_by_ranking.setdefault(_ranking_of(job), []).append(job)

    # ------------------------------------------------------------------ what it will cost

    def project(self, resources: Resources, *, measure: bool = False) -> BatchProjection:
        """Return passes, bytes and memory of all jobs that are not done; of selections also seconds, where they are
        measured.

        Parameters
        ----------
        resources : Resources
        measure : bool
            Read a block of the store for every selection, and estimate seconds from that.
        """
        projection = BatchProjection()
        for store in self.spec.stores:
            jobs: list[Job | None] = [job for job in self._jobs_of(store) if self._done_record(job) is None]
            projection.done += len(self._jobs_of(store)) - len(jobs)
            rows = self._datasets[store.name].rows
            prepared: dict[Any, dict[str, Any]] = {}
            with caching.assume_cached(), spell_parameters_as("key"):
                shared = shared_statistics(rows, _questions(jobs), resources)
                for job in [None, *jobs] if shared else jobs:
                    name = f"{store.name}.shared" if job is None else job.name
                    try:
                        if job is None:
                            found = self._project_shared(name, rows, shared, resources, measure)
                        elif job.evaluation is None:
                            found = self._project_selection(job, resources, measure)
                        else:
                            found = self._project_evaluation(job, prepared, resources)
                    except MlfsError as error:
                        found = JobProjection(name, problem=str(error), exit_code=error.exit_code)
                    projection.jobs.append(replace(found, shared=job is None))
        return projection

    @staticmethod
    def _project_shared(
        name: str, rows: RowSource, shared: Sequence[Statistic], resources: Resources, measure: bool
    ) -> JobProjection:
        cost = Cost([Reading("shared", tuple(shared))])
        plan = project(cost, rows, resources)
        if measure:
            plan = estimate_seconds(lambda source, resources: cost, rows, resources, plan)
        for statistic in shared:
            cache_entry(rows, statistic).assume_filled()
        return _job_projection(name, plan)

    def _project_selection(self, job: Job, resources: Resources, measure: bool) -> JobProjection:
        dataset = self._datasets[job.store.name]
        selection = SelectJob(job.question, dataset)
        question = selection.question
        if question.method.keeps_checkpoints and self._comes_after_its_ranking(job):
            return JobProjection(job.name, peak_driver_bytes=runtime.driver_bytes())
        projection = _job_projection(job.name, selection.plan(resources, measure=measure))
        for statistic in question.first_statistics(dataset.rows, resources):
            cache_entry(dataset.rows, statistic).assume_filled()
        return projection

    def _comes_after_its_ranking(self, job: Job) -> bool:
        """Return True if the same ranking is, or was, selected earlier with another k."""
        others = self._jobs_by_ranking[_ranking_of(job)]
        return others[0] is not job or any(self._done_record(other) for other in others[1:])

    def _project_evaluation(self, job: Job, prepared: dict[Any, dict[str, Any]], resources: Resources) -> JobProjection:
        """Project an evaluation; jobs that differ in the method alone share a pass over the labels in `prepared`."""
        assert job.evaluation is not None
        learns_nothing = job.point.method in (ALL, RANDOM)
        key = (job.evaluation.name, job.seed, job.point.method if learns_nothing else None)
        if key not in prepared:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said when it runs
                prepared[key] = self._experiment(job).plan()
        plan = prepared[key]
        driver = runtime.driver_bytes() + int(plan["judging_bytes"])
        if learns_nothing:
            return JobProjection(job.name, peak_driver_bytes=driver)
        # Training rows are fewer than all rows, whose profile this is.
        question = ask(job.point.method, max(plan["k"]), seed=0, **job.point.params)
        dataset = self._datasets[job.store.name]
        question, rows = resolve_names(question, dataset), dataset.rows
        with caching.cache(None):
            each = question.plan(rows, resources)
        fits = int(plan["splits"]) * (len(plan["k"]) if question.method.choice_depends_on_k else 1)
        return _job_projection(job.name, each, fits=fits, driver_bytes=driver)

    # ------------------------------------------------------------------ running

    def run(self, report_state: Callable[[str, str], None] = lambda job, state: None) -> None:
        """Run what is missing, and write the tables; an earlier batch goes, unless it is gone on with.

        Parameters
        ----------
        report_state : function
            Called with the name of every job and its state, once it has one.

        Raises
        ------
        UsageError
            Another process runs a batch in the folder, or has finished one since this one was made.
        ClusterLostError
        """
        self._place.mkdir(parents=True, exist_ok=True)
        taken = f"{self._place}: another process runs a batch in this folder.\n  cure: wait for it, or give another -o"
        with locked(behind_links(self._place), taken), spell_parameters_as("key"):
            _check_place(self._place, resume=self._resume, force=self._force)
            if not self._resume:
                _empty_batch(self._place)
            self._write_record("unfinished")
            self._run_all(report_state)
            self._write_record("failed" if self.failures else "done")

    def _run_all(self, report_state: Callable[[str, str], None]) -> None:
        try:
            for store in self.spec.stores:
                self._run_store(store, report_state)
        finally:
            # Also what was done before an interruption can be looked at, the job that it met at its end included.
            for job in self.spec.jobs:
                if job.name not in self._rows and (record := self._record_of(job)) is not None:
                    self._rows[job.name] = _row(job, "done") | _facts(record)
            self._write_jobs()
            self._write_tables()

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Rows of the jobs that failed."""
        return [row for row in self._rows.values() if row["state"] == "failed"]

    def require_success(self) -> None:
        """Raise if a job failed.

        Raises
        ------
        BatchFailedError
        """
        failures = [(row["job"], row["error"], row["exit_code"]) for row in self.failures]
        if failures:
            raise BatchFailedError(failures, len(self.spec.jobs), "failed")

    def result(self) -> BatchResult:
        """Return the tables."""
        return BatchResult(self._jobs_table(), **self._tables())

    def _run_store(self, store: StoreEntry, report_state: Callable[[str, str], None]) -> None:
        jobs = self._jobs_of(store)
        missing = []
        for job in jobs:
            record = self._done_record(job)
            if record is None:
                missing.append(job)
            else:
                self._finish(job, record)
                report_state(job.name, "done already")
        self._read_shared(store, missing)
        for job in missing:
            started = time.perf_counter()
            runtime.emit("job", number=self.spec.jobs.index(job) + 1, total=len(self.spec.jobs), name=job.name)
            try:
                self._finish(job, self._run_job(job))
            except ClusterLostError:
                raise  # the others would fail as well, and --resume makes up for all of them
            except Exception as error:
                logger.debug("%s failed", job.name, exc_info=True)
                text = str(error) if isinstance(error, MlfsError) else f"{type(error).__name__}: {error}"
                self._rows[job.name] = _row(job, "failed") | {
                    "seconds": time.perf_counter() - started,
                    "error": text,
                    "exit_code": getattr(error, "exit_code", 1),
                }
            self._write_jobs()
            report_state(job.name, self._rows[job.name]["state"])

    def _finish(self, job: Job, record: Mapping[str, Any]) -> None:
        """Note a job as done, and remove what it would have been resumed from."""
        place = str(self._folder(job))
        Folder(checkpoint_place(place)).remove()
        remove_partial_results(place)
        self._rows[job.name] = _row(job, "done") | _facts(record)

    def _read_shared(self, store: StoreEntry, jobs: Sequence[Job]) -> None:
        """Read in one pass what two selections or more begin with."""
        shared = read_shared(self._datasets[store.name].rows, _questions(jobs), current_resources())
        if shared is None:
            return
        kinds, record = shared
        name = f"{store.name}.shared"
        self._rows[name] = dict.fromkeys(JOB_COLUMNS) | {
            "job": name,
            "kind": "shared",
            "dataset": store.name,
            "run": ", ".join(kinds),
            "state": "done",
            "seconds": record.seconds,
            "passes": int(record.tasks > 0),
            "bytes_read": record.bytes_read,
            "peak_worker_bytes": record.peak_worker_bytes,
        }
        self._write_jobs()

    def _run_job(self, job: Job) -> dict[str, Any]:
        told, place = {"job": self._digest(job)}, str(self._folder(job))
        if job.evaluation is not None:
            return _evaluation_facts(EvaluateJob(self._experiment(job), place).run(told, resume=True, force=True))
        selection = SelectJob(job.question, self._datasets[job.store.name], place)
        known = self._known_ranking(job, selection.question)
        return known or selection.run(told, resume=True, force=True).record

    def _known_ranking(self, job: Job, question: Question) -> dict[str, Any] | None:
        """Return the record of a run with the ranking that another number of features came from, where they have the
        same.

        Of methods that keep checkpoints no score depends on how many features are kept.
        """
        if not question.method.keeps_checkpoints or question.pair_question is not None:
            return None
        if any((question.prune, question.redundancy, question.groups)):
            return None  # other features are passed over for another number
        started = time.perf_counter()
        for other in self._jobs_by_ranking[_ranking_of(job)]:  # which differ in the number of features alone
            if self._rows.get(other.name, {}).get("state") != "done":
                continue
            run = read_run(str(self._folder(other)))
            d = len(run.ranking)
            scores, names = np.empty(d), np.empty(d, object)
            scores[run.ranking], names[run.ranking] = run.scores, run.feature_names
            extra, params = run.record["extra"], run.record["params"]
            record = run.record | dict.fromkeys(("passes", "tasks", "bytes_read"), 0)
            record |= {
                "params": {**params, "n_features_to_select": job.k},
                "k": count_kept(job.k, d - len(extra.get("excluded_features", ()))),
                "extra": {**extra, "from_cache": [f"ranking of {other.name}"]},
                "job": self._digest(job),
                "wall_seconds": time.perf_counter() - started,
            }
            place = str(self._folder(job))
            write_run(place, ranking=run.ranking, scores=scores, feature_names=names, record=record, force=True)
            return record
        return None

    def _experiment(self, job: Job) -> Any:
        entry = job.evaluation
        assert entry is not None
        candidate = Candidate(job.point.run, job.point.method, dict(job.point.params))
        about: dict[str, Any] = {"name": job.store.name, "protocol": entry.protocol, "seed": job.seed}
        return Experiment(self._datasets[job.store.name], candidate, **about, **entry.options)

    # ------------------------------------------------------------------ the folder

    def _jobs_of(self, store: StoreEntry) -> list[Job]:
        return [job for job in self.spec.jobs if job.store == store]

    def _folder(self, job: Job) -> Path:
        return self._place / "jobs" / job.name

    def _digest(self, job: Job) -> str:
        dataset = self._datasets[job.store.name]
        identity: dict[str, Any] = {"job": job.digest(dataset.digest), "version": __version__}
        asked = {name: job.point.params[name] for name in ("keep", "exclude", "groups") if name in job.point.params}
        if asked:  # a file that names features may have changed
            with contextlib.suppress(MlfsError):  # the job itself tells what is wrong
                question = resolve_names(ask(job.point.method, 1, **asked), dataset)
                identity["features"] = question.facts(open_rows(dataset).names)
        return digest_of(identity)

    def _done_record(self, job: Job) -> dict[str, Any] | None:
        """Return the record of a job that an earlier batch has done, if this one goes on with it."""
        return self._record_of(job) if self._resume else None

    def _record_of(self, job: Job) -> dict[str, Any] | None:
        """Return the record of a job that is done: of the same store, parameters and version."""
        file = self._folder(job) / (RUN if job.evaluation is None else EVALUATION).record
        try:
            if parse_json(file.read_bytes()).get("job") != self._digest(job):
                return None
            if job.evaluation is None:
                return read_run(str(file.parent)).record
            return _evaluation_facts(evaluations.read_eval(file.parent))
        except (OSError, ValueError, AttributeError):  # DataError among them
            return None

    def _write_record(self, state: str) -> None:
        record = {
            **BATCH.head,
            "state": state,
            "plan": self.spec.document,
            "digest": digest_of(self.spec.document),
            "stores": [
                {**asdict(store), "path": self._datasets[store.name].path, "digest": self._datasets[store.name].digest}
                for store in self.spec.stores
            ],
            "jobs": [job.name for job in self.spec.jobs],
            "versions": {"mlfs-dask": __version__, "code": code_digest()},
        }
        write_file(self._place / BATCH.record, document_text(record).encode())

    def _write_jobs(self) -> None:
        self._write_csv(BATCH.table, self._jobs_table())

    def _write_csv(self, name: str, frame: pd.DataFrame) -> None:
        write_file(self._place / name, evaluations.csv_text(frame, float_format=evaluations.DIGITS).encode())

    def _jobs_table(self) -> pd.DataFrame:
        import pandas as pd

        rows = [self._rows.get(name) for store in self.spec.stores for name in [f"{store.name}.shared"]]
        rows += [self._rows.get(job.name, _row(job, "missing")) for job in self.spec.jobs]
        present = [{name: row[name] for name in JOB_COLUMNS} for row in rows if row is not None]
        return pd.DataFrame(present, columns=list(JOB_COLUMNS)).astype(JOB_COLUMNS)

    def _write_tables(self) -> None:
        for name, frame in self._tables().items():
            self._write_csv(f"{name}.csv", frame)
            write_file(self._place / f"{name}.parquet", frame.to_parquet(index=False))

    def _tables(self) -> dict[str, pd.DataFrame]:
        import pandas as pd

        frames: dict[str, list[pd.DataFrame]] = {name: [] for name in TABLES}
        for job in self.spec.jobs:
            if self._rows.get(job.name, {}).get("state") != "done":
                continue
            if job.evaluation is not None:
                found = evaluations.read_eval(self._folder(job)).results
                frames["results"].append(found.assign(job=job.name, evaluation=job.evaluation.name, seed=job.seed))
                continue
            run = read_run(str(self._folder(job)))
            chosen = {
                "job": job.name,
                "dataset": job.store.name,
                "run": job.point.run,
                "method": job.point.method,
                "k": run.k,
                "seed": pd.array([job.seed] * run.k, dtype="Int64"),
                "rank": range(1, run.k + 1),
                "feature_index": run.ranking[: run.k],
                "feature_name": pd.array(run.feature_names[: run.k], dtype="str"),
                "score": run.scores[: run.k],
            }
            frames["selections"].append(pd.DataFrame(chosen))
        return {
            name: pd.concat(frames[name], ignore_index=True)[columns] if frames[name] else pd.DataFrame(columns=columns)
            for name, columns in TABLES.items()
        }


def _questions(jobs: Iterable[Job | None]) -> Iterator[Question]:
    """Return the questions of the selections among jobs."""
    return (job.question for job in jobs if job is not None and job.evaluation is None)


def _empty_batch(folder: Path) -> None:
    """Remove all but the record: a folder that is emptied in part is still known as that of a batch."""
    for path in folder.iterdir():
        if path.name == BATCH.record:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_place(place: str | Path, *, resume: bool, force: bool) -> Path:
    """Return the folder of a batch. Raises UsageError for a URL, and for a place that is taken."""
    if is_url(str(place)):
        raise UsageError(f"the folder of a batch must be local; got {place}. Copy it afterwards.")
    check_place(str(place), BATCH, force=force, resume=resume)
    return local_path(place)


def _job_projection(name: str, plan: Plan, *, fits: int = 1, driver_bytes: int = 0) -> JobProjection:
    """Return the projected cost of a number of fits of a plan."""
    same = {name: getattr(plan, name) for name in ("peak_worker_bytes", "seconds", "typical_seconds")}
    passes, nbytes = plan.typical_passes, plan.typical_bytes_read
    return JobProjection(
        name,
        passes=fits * plan.passes,
        bytes_read=fits * plan.bytes_read,
        peak_driver_bytes=max(driver_bytes, plan.peak_driver_bytes),
        typical_passes=passes and (fits * passes[0], fits * passes[1]),
        typical_bytes_read=nbytes and (fits * nbytes[0], fits * nbytes[1]),
        **same,
    )


def _typical(jobs: Sequence[tuple[tuple[int, int] | None, int]]) -> tuple[int, int] | None:
    """Return the typical least and most of jobs together; None if no job has a loop.

    >>> _typical([(None, 1), ((3, 9), 100)]), _typical([(None, 1)])
    ((4, 10), None)
    """
    if all(typical is None for typical, _ in jobs):
        return None
    ranges = [typical or (whole, whole) for typical, whole in jobs]
    return sum(low for low, _ in ranges), sum(high for _, high in ranges)


def _ranking_of(job: Job) -> tuple[str, str, int | None]:
    """Return the key of a selection's ranking in a plan, if the ranking does not depend on k."""
    return job.store.name, job.point.run, job.seed


def _row(job: Job, state: str) -> dict[str, Any]:
    return dict.fromkeys(JOB_COLUMNS) | {
        "job": job.name,
        "kind": job.kind,
        "dataset": job.store.name,
        "run": job.point.run,
        "method": job.point.method,
        "k": None if job.k is None else str(job.k),
        "seed": job.seed,
        "evaluation": job.evaluation and job.evaluation.name,
        "state": state,
    }


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of a job, from its record."""
    taken = record.get("extra", {}).get("from_cache")
    names = ("passes", "bytes_read", "iterations", "converged", "peak_worker_bytes", "peak_driver_bytes")
    return {name: record.get(name) for name in names} | {
        "seconds": record.get("wall_seconds"),
        "from_cache": ", ".join(taken) if taken else None,
    }


def _evaluation_facts(evaluation: Any) -> dict[str, Any]:
    """Return the cost of an evaluation, under the names of a run's record."""
    fits = evaluation.fits
    record: dict[str, Any] = {"wall_seconds": evaluation.record.get("wall_seconds")}
    if len(fits):
        record |= {name: int(fits[name].sum()) for name in ("passes", "bytes_read", "iterations")}
        record |= {name: int(fits[name].max()) for name in ("peak_worker_bytes", "peak_driver_bytes")}
        known = fits["converged"].dropna()
        record["converged"] = bool(known.all()) if len(known) else None
    return record
