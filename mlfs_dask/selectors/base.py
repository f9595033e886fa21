"""The contract of every selector: scikit-learn's outside, one `_score` inside.

A selector is configured with its paper's parameters, is given X and Y in any container, and comes back with a
score for every feature and a record of what it cost. A subclass declares what a job will need (`cost`) and
computes the scores (`_score`); validation, ranking, transform and the record are here.
"""

from __future__ import annotations

import functools
import importlib.metadata
import numbers
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import checkpoints, runtime
from mlfs_dask.blocks.sparse import columns_of_block
from mlfs_dask.caching import record_hits
from mlfs_dask.errors import DataError, UsageError, number_of
from mlfs_dask.primitives.passes import CacheableStatistic, count_passes
from mlfs_dask.primitives.row_sources import as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import Cost, PassRunner, Plan, project, require_driver
from mlfs_dask.selectors.estimator import Estimator
from mlfs_dask.selectors.labels import label_matrix
from mlfs_dask.typing import Profile, RowSource

#: Labels that a warning names.
SHOWN_LABELS = 5


@dataclass(frozen=True)
class Scores:
    """What a method's algorithm comes back with.

    Attributes
    ----------
    scores : float64 array, shape (d,)
        Larger is better; never NaN.
    iterations : int
        Of the method's loop; 0 where there is none.
    converged : bool or None
        None where there is no loop.
    objective : sequence of float
        Value after every iteration.
    extra : mapping
        Further facts for the record, as plain data.
    warnings : sequence of Warning
        What the caller of `fit` should be told.
    """

    scores: NDArray[np.float64]
    iterations: int = 0
    converged: bool | None = None
    objective: Sequence[float] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[Warning] = ()


@dataclass(frozen=True)
class Report:
    """What was run, on what, and what it took: the content of `run.json`.

    Attributes
    ----------
    method : str
    params : dict
        All parameters, defaults included.
    store : dict or None
        Path and digest of the store, if X and Y come from one.
    n, d, q, k : int
        Rows, features, labels, features kept.
    seed : int or None
        None for methods without randomness.
    passes, tasks, bytes_read : int
    wall_seconds : float
        Of the whole fit.
    plan : dict
        What had been projected.
    peak_worker_bytes, peak_driver_bytes : int
        As measured. In process the two are the same process.
    iterations : int
    converged : bool or None
    objective : list of float
    versions : dict of str
    extra : dict
        Facts that only this method has.
    warnings : list of str
        What the caller of `fit` was told.
    """

    method: str
    params: dict[str, Any]
    store: dict[str, Any] | None
    n: int
    d: int
    q: int
    k: int
    seed: int | None
    passes: int
    tasks: int
    bytes_read: int
    wall_seconds: float
    plan: dict[str, Any]
    peak_worker_bytes: int
    peak_driver_bytes: int
    iterations: int
    converged: bool | None
    objective: list[float]
    versions: dict[str, str]
    extra: dict[str, Any]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """As plain data that `json` can write."""
        return asdict(self)


class BaseSelector(Estimator):  # type: ignore[misc,valid-type]
    """Base class of all selectors.

    A subclass sets the class attributes, takes its parameters in `__init__` (`n_features_to_select` first,
    the others by keyword, annotated and documented: the command line's options are made from them), and
    implements `cost` and `_score`.

    Attributes
    ----------
    scores_ : float64 array, shape (d,)
        Larger is better.
    ranking_ : int64 array, shape (d,)
        Feature indices, best first: by score, ties by lower index. (Not places, as in scikit-learn's RFE.)
    support_ : bool array, shape (d,)
        The k features that are kept.
    report_ : Report
    n_iter_ : int
        Iterations, of methods that have a loop.
    n_features_in_ : int
    feature_names_in_ : object array, shape (d,)
        Only if X has names that are strings: a DataFrame or a Dataset.
    """

    #: Name on the command line.
    method: ClassVar[str]
    #: One line: what it is called.
    title: ClassVar[str]
    #: Authors, year, journal.
    paper: ClassVar[str]
    doi: ClassVar[str]
    #: What labels it needs: "supervised", "semi-supervised", "unsupervised"; and whether they may be unknown.
    supervision: ClassVar[str]
    #: How many passes over X, in words.
    passes: ClassVar[str]
    #: How memory grows, in words, with the size letters.
    memory: ClassVar[str]
    #: Whether labels may hold -1.
    accepts_unknown_labels: ClassVar[bool] = False
    #: Whether its loop leaves checkpoints (`mlfs_dask.checkpoints`), from which a fit can go on.
    keeps_checkpoints: ClassVar[bool] = False
    #: Whether the best 10 features are not the first 10 of the best 20: a choice is learnt for one k.
    choice_depends_on_k: ClassVar[bool] = False
    #: Where a fit leaves `labels_`, (n, q): the value above which a label applies. None: labels are not recovered.
    label_threshold: ClassVar[float | None] = None

    n_features_to_select: int | float | None

    #: Names of the labels of the last fit, where the container has any; for messages.
    _label_names: Any = None

    # ------------------------------------------------------------------ for subclasses

    def cost(self, source: Profile | RowSource, resources: Resources) -> Cost:
        """What a fit reads and what the driver holds. No data is touched."""
        raise NotImplementedError

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """What a fit will cost. Integers only; no data is touched.

        Raises
        ------
        DoesNotFitError
            When no plan fits the workers.
        """
        return project(self.cost(source, resources), source, resources)

    def first_statistics(self, source: RowSource, resources: Resources) -> Sequence[CacheableStatistic]:
        """What a fit reads first, so that jobs on one store can read it together; empty where it has to be asked.

        Raises
        ------
        DoesNotFitError
        """
        return ()

    def _score(self, passes: PassRunner, k: int) -> Scores:
        """Run the method."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        """Refuse values that parameters cannot have, with UsageError."""

    def _accepts_missing_features(self) -> bool:
        """Whether X may hold NaN, with the parameters as they are."""
        return False

    # ------------------------------------------------------------------ scikit-learn's side

    def fit(self, X: Any, y: Any = None) -> Self:
        """Score all features and choose the best.

        Parameters
        ----------
        X : array-like, shape (n, d)
            NumPy, SciPy sparse, pandas, a Dask array (of NumPy, `sparse` or SciPy blocks), or a Dataset.
            Sparse stays sparse. Dask arrays may be chunked along both axes; the result does not depend on it.
        y : array-like, shape (n, q) or (n,)
            Labels 1, 0, and -1 for unknown. One-dimensional y holds classes and counts as one 0/1 label per
            class (of which two are each other's complement when there are two). None with a Dataset.

        Returns
        -------
        self

        Raises
        ------
        DataError
            X or y is invalid.
        UsageError
            A parameter has a value it cannot have.
        DoesNotFitError
            The job is projected not to fit the memory; nothing has been read.
        """
        started = time.perf_counter()
        self._check_parameters()
        source, store = self._open(X, y)
        profile = source.profile
        k = count_kept(self.n_features_to_select, profile.d)
        self._refuse_unknown_labels(source)
        resources = runtime.current_resources()
        plan = require_driver(self.plan(source, resources), resources, f"{self.method} in the driver process")
        runtime.reset_peak_rss()
        params = {name: plain(value) for name, value in sorted(self.get_params(False).items())}
        # Of methods that keep checkpoints no score depends on how many features are kept.
        loop = {name: value for name, value in params.items() if name != "n_features_to_select"}
        job = checkpoints.job(method=self.method, params=loop, digest=(store or {}).get("digest"))
        runtime.emit("fit", method=self.method)
        # NumPy and SciPy each bring a BLAS, whose idle threads keep the cores from the other's: one thread of each was
        # up to 15 times faster for loops that use both. Passes have threads of their own.
        passes = PassRunner(source, resources, plan)
        with job, record_hits() as hits, runtime.one_blas_thread():
            outcome = self._score(passes, k)
        records = passes.records
        peak_driver = peak_worker = runtime.peak_rss()
        if resources.client is not None:
            peak_worker = max((record.peak_worker_bytes for record in records), default=0)
        for warning in outcome.warnings:
            warnings.warn(warning, stacklevel=2)
        self.scores_ = outcome.scores
        self.ranking_ = rank(outcome.scores)
        self.support_ = np.zeros(profile.d, dtype=bool)
        self.support_[self.ranking_[:k]] = True
        if hasattr(self, "max_iter"):
            self.n_iter_ = max(1, outcome.iterations)  # scikit-learn expects at least one
        self.report_ = Report(
            method=self.method,
            params=params,
            store=store,
            n=profile.n,
            d=profile.d,
            q=profile.q,
            k=k,
            seed=plain(getattr(self, "random_state", None)),
            passes=count_passes(records),
            tasks=sum(record.tasks for record in records),
            bytes_read=sum(record.bytes_read for record in records),
            wall_seconds=time.perf_counter() - started,
            plan=plan.to_dict(),
            peak_worker_bytes=peak_worker,
            peak_driver_bytes=peak_driver,
            iterations=outcome.iterations,
            converged=outcome.converged,
            objective=[float(value) for value in outcome.objective],
            versions=versions(),
            extra={**outcome.extra, **({"from_cache": hits} if hits else {})},
            warnings=[str(warning) for warning in outcome.warnings],
        )
        return self

    def transform(self, X: Any) -> Any:
        """The chosen columns, in the order of X.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Any container that `fit` takes. Dask arrays stay lazy and sparse blocks stay sparse; of a Dataset
            the columns of its X come back as a Dask array.

        Returns
        -------
        array of shape (n, k)
        """
        from sklearn.utils.validation import check_is_fitted

        if is_dataset(X):
            check_is_fitted(self)
            X = X.X
        if not is_dask_array(X):
            return super().transform(X)
        check_is_fitted(self)
        config = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if config != "default":
            raise UsageError(
                f"set_output(transform={config!r}) needs all rows in memory, and X is a Dask array. "
                "Use set_output(transform='default'), or pass X.compute()."
            )
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {X.shape[1] if X.ndim == 2 else 'no'} features, but {type(self).__name__} is "
                f"expecting {self.n_features_in_} features as input"
            )
        return take_columns(X, np.flatnonzero(self.support_))

    def _get_support_mask(self) -> NDArray[np.bool_]:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        return self.support_

    def __sklearn_is_fitted__(self) -> bool:
        # scikit-learn would take the parameter `lambda_` for something learnt.
        return hasattr(self, "support_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._accepts_missing_features()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    # ------------------------------------------------------------------ containers

    def _open(self, X: Any, y: Any) -> tuple[RowSource, dict[str, Any] | None]:
        """The rows of X and y; sets `n_features_in_` and `feature_names_in_`."""
        if y is None and (is_dataset(X) or isinstance(X, RowSource)):
            source = as_rows(X)
            names = getattr(X, "feature_names", None)
            self._set_features(source.profile.d, names)
            self._label_names = getattr(X, "label_names", None)
            return source, store_of(X)
        self._label_names = getattr(y, "columns", None)
        if y is None:
            raise DataError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None",
                cure="fit(X, Y) with Y of shape (n, q); a Dataset brings its own labels",
            )
        if is_dask_array(X):
            if X.ndim != 2:
                raise DataError(f"Expected 2D array, got {X.ndim}D Dask array instead")
            self._set_features(int(X.shape[1]), None)
        else:
            from sklearn.utils.validation import validate_data

            # NaN and infinity are found in the pass itself, not in a reading of their own.
            X = validate_data(self, X, accept_sparse="csr", ensure_all_finite=False)
        Y = y if is_dask_array(y) and y.ndim == 2 else label_matrix(y)
        source = as_rows(X, Y)
        if source.profile.n < 1 or source.profile.d < 1 or source.profile.q < 1:
            raise DataError(
                f"X has shape {(source.profile.n, source.profile.d)} and Y {source.profile.q} columns; "
                "at least one row, feature and label are needed"
            )
        return source, store_of(source)

    def _set_features(self, d: int, names: Any) -> None:
        self.n_features_in_ = d
        if names is not None:
            self.feature_names_in_ = np.asarray([str(name) for name in names], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _refuse_unknown_labels(self, source: RowSource) -> None:
        counts = None if self.accepts_unknown_labels else source.label_counts
        if counts is not None and counts[0].any():
            raise unknown_labels_error(self, counts[0])

    def _refuse_broken_features(self, mean: NDArray[np.float64], m2: NDArray[np.float64]) -> None:
        """Refuse features that hold NaN or infinity, which spoils their moments, each of shape (d,)."""
        broken = ~(np.isfinite(mean) & np.isfinite(m2))
        if not broken.any():
            return
        f = int(np.flatnonzero(broken)[0])
        names = getattr(self, "feature_names_in_", None)
        raise DataError(
            "X contains NaN or infinity, or values too large for float64 sums, in "
            + number_of(int(broken.sum()), "feature"),
            column=f if names is None else str(names[f]),
            cure="fill in missing values (for example with sklearn.impute.SimpleImputer), or leave the feature out",
        )


def count_kept(n_features_to_select: int | float | None, d: int, *, name: str = "n_features_to_select") -> int:
    """Number of features to keep out of `d`.

    Parameters
    ----------
    n_features_to_select : int, float or None
        A count from 1 to d; a fraction in (0, 1], of which at least one feature comes; None for half.
    d : int
    name : str
        What the user calls it, for messages.

    Raises
    ------
    UsageError

    Examples
    --------
    >>> count_kept(None, 7), count_kept(3, 7), count_kept(0.1, 7), count_kept(1.0, 7)
    (3, 3, 1, 7)
    """
    value = n_features_to_select
    if value is None:
        return max(1, d // 2)
    number: Any = None if isinstance(value, (bool, np.bool_)) else value
    if isinstance(number, numbers.Integral):
        if 1 <= value <= d:
            return int(value)
        raise UsageError(
            f"{name} must be between 1 and the number of features, {d}; got {value}. "
            "Give a smaller count, or a fraction such as 0.1."
            if value > d
            else f"{name} must be at least 1; got {value}. "
            "Give a count, a fraction in (0, 1], or None for half of the features."
        )
    if isinstance(number, numbers.Real) and 0 < value <= 1:
        return max(1, int(d * float(value)))
    raise UsageError(f"{name} must be a count, a fraction in (0, 1], or None for half of the features; got {value!r}.")


def nothing_to_tell(title: str, *, constant: int, d: int, alike: int, q: int) -> UserWarning:
    """The warning of a method to which all features are alike.

    Parameters
    ----------
    title : str
        Of the method.
    constant, d : int
        Features that are constant, and all.
    alike, q : int
        Labels that are the same in every row, and all.
    """
    reasons = []
    if constant == d:
        reasons.append("the only feature is constant" if d == 1 else f"all {d:,} features are constant")
    if alike == q:
        same = "the only label is" if q == 1 else f"all {q:,} labels are"
        reasons.append(f"{same} the same in every row")
    reason = " and ".join(reasons) or f"no feature goes with any of {number_of(q, 'label')}"
    return UserWarning(
        f"{title} can tell no feature from another: {reason}. All features get the same score, and the ranking is "
        "their order in the data."
    )


def never_positive_warnings(
    selector: BaseSelector, title: str, positives: NDArray[np.integer[Any]], consequence: str
) -> list[Warning]:
    """The warning of labels that no row is known to have, if there are any.

    Parameters
    ----------
    selector : BaseSelector
    title : str
        Of the method.
    positives : int array, shape (q,)
        Rows that are known to have each label.
    consequence : str
        What the method makes of such a label, and the cure.
    """
    q = len(positives)
    never = np.flatnonzero(positives == 0)
    if not len(never):
        return []
    names = selector._label_names
    shown = [str(label) if names is None else repr(str(names[label])) for label in never[:SHOWN_LABELS]]
    if len(never) > len(shown):
        shown.append(f"{len(never) - len(shown):,} more")
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    where = f"column{'s' if len(never) > 1 else ''} {listed} of Y, counted from 0" if names is None else listed
    known = "known " if selector.accepts_unknown_labels else ""
    return [
        UserWarning(
            f"{title}: {len(never):,} of {number_of(q, 'label')} {'has' if len(never) == 1 else 'have'} "
            f"no {known}positive row ({where}). {consequence}"
        )
    ]


def rank(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices by falling score; ties by lower index.

    >>> rank(np.array([0.5, 2.0, 0.5]))
    array([1, 0, 2])
    """
    return np.argsort(-scores, kind="stable").astype(np.int64, copy=False)


def unknown_labels_error(selector: BaseSelector, unknown: NDArray[np.integer[Any]]) -> DataError:
    """The refusal of labels that hold -1, for methods that need every label known."""
    label = int(np.flatnonzero(unknown)[0])
    names = selector._label_names
    named = "" if names is None else f"label {str(names[label])!r}, "
    return DataError(
        f"{type(selector).__name__} has no support for missing labels, and Y holds {int(unknown.sum())} "
        f"unknown entries (-1) in {np.count_nonzero(unknown)} of its labels, first in {named}column {label} of Y "
        f"(counted from 0)",
        cure="drop those rows or labels, set unknown entries to 0, or use a method that takes missing labels "
        "(`mlfs methods` tells which do)",
    )


def is_dask_array(array: Any) -> bool:
    """Whether `array` is a Dask array, without importing Dask."""
    return hasattr(array, "__dask_graph__") and hasattr(array, "to_delayed")


def is_dataset(X: Any) -> bool:
    """Whether X is an opened store, which carries its labels and names."""
    return hasattr(X, "rows") and hasattr(X, "feature_names")


def store_of(X: Any) -> dict[str, Any] | None:
    """Path and digest of the store behind a Dataset or a row source, if there is one."""
    path = getattr(X, "path", None)
    return None if path is None else {"path": str(path), "digest": getattr(X, "digest", None)}


def take_columns(X: Any, columns: NDArray[np.intp]) -> Any:
    """Columns of a Dask array, lazily, block by block.

    Parameters
    ----------
    X : dask Array, shape (n, d)
        With any blocks.
    columns : int array, shape (k,)
        Rising.
    """
    if X.numblocks[1] != 1:
        return X[:, columns]
    return X.map_blocks(
        columns_of_block,
        columns,
        dtype=X.dtype,
        chunks=(X.chunks[0], (len(columns),)),
        meta=columns_of_block(X._meta, columns[:0]) if X._meta.ndim == 2 else None,
    )


def plain(value: Any) -> Any:
    """A parameter as JSON can write it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    names = ("mlfs-dask", "numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "sparse", "numba")
    found = [("python", platform.python_version())]
    for name in names:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result may depend on."""
    return dict(_versions())
