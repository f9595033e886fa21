"""The contract of every selector: scikit-learn's outside, one `_score` inside.

A selector is configured with its paper's parameters, is given X and Y in any container, and comes back with a
score for every feature and a record of what it cost. A subclass declares what a job will need (`cost`) and
computes the scores (`_score`); validation, ranking, transform and the record are here.
"""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import numbers
import platform
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import columns_of_block
from mlfs_dask.cluster.admission import refused_workers
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.cache import record_hits
from mlfs_dask.engine.readings import count_passes, is_cached, run_pass
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, UsageError, number_of, parameter
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.containers import first_other_column, is_dask_array, is_dataset, open_container, open_matrix
from mlfs_dask.selectors.contract import GENERATORS, Method, draw_seed
from mlfs_dask.selectors.costs import Cost, PassRunner, Plan, Reading, project, require_driver
from mlfs_dask.selectors.estimator import Estimator
from mlfs_dask.selectors.labels import label_matrix
from mlfs_dask.statistics.missing import FILL_READING, FilledRows, fill_statistics, fill_values
from mlfs_dask.statistics.weights import weighted_rows
from mlfs_dask.typing import Profile, RowSource

#: Labels that a warning names.
SHOWN_LABELS = 5

#: `n_features_to_select` where the data has to tell.
AUTO = "auto"

#: Significant bits of scores: twelve digits.
SCORE_BITS = 40

#: A fraction 1 / RANK_TAIL of the resamples lies below the rank interval of a feature, and as many above: it is the
#: central 90 %.
RANK_TAIL = 20


@dataclass(frozen=True)
class Scores:
    """Result of `_score`.

    Attributes
    ----------
    scores : float64 array, shape (d,)
        Larger is better; never NaN.
    ranking : int64 array, shape (d,), or None
        Features, best first, if not by score with ties by lower index. Those that do not vary may stand anywhere.
    iterations : int
        Of the method's loop; 0 where there is none.
    converged : bool or None
        None where there is no loop.
    objective : sequence of float
        Value after every iteration.
    extra : mapping
        Further facts for the record, as plain data.
    warnings : sequence of Warning
        Warnings for the caller of `fit`.
    q_values : float64 array, shape (d,), or None
        Least false discovery rate at which each feature is discovered, with n_features_to_select="auto".
    discovered : bool array, shape (d,), or None
        The features to keep, with n_features_to_select="auto". They come first in the ranking, whatever their scores.
    resampled_scores : float64 array, shape (B, d), or None
        Scores of resampled rows.
    """

    scores: NDArray[np.float64]
    ranking: NDArray[np.int64] | None = None
    iterations: int = 0
    converged: bool | None = None
    objective: Sequence[float] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[Warning] = ()
    q_values: NDArray[np.float64] | None = None
    discovered: NDArray[np.bool_] | None = None
    resampled_scores: NDArray[np.float64] | None = None

    def order(self, varies: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Features, best first; those that do not vary come last, by index.

        Parameters
        ----------
        varies : bool array, shape (d,)
        """
        if self.ranking is None:
            return rank(self.scores, varies)
        return np.concatenate([self.ranking[varies[self.ranking]], np.flatnonzero(~varies)])


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
        `random_state`, or the number drawn from it where it is a generator. None: not given, and 0 is used.
    passes, tasks, bytes_read : int
    wall_seconds : float
        Of the whole fit.
    plan : dict
        What had been projected.
    peak_worker_bytes, peak_driver_bytes : int
        As measured. In process the two are the same process; of a cluster whose workers had no part the first is 0.
    iterations : int
    converged : bool or None
    objective : list of float
    versions : dict of str
    extra : dict
        Facts that only this method has.
    warnings : list of str
        Warnings that `fit` gave.
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


class BaseSelector(Method, Estimator):  # type: ignore[misc,valid-type]
    """Base class of all selectors.

    A subclass sets the class attributes, takes its parameters in `__init__` (`n_features_to_select` first,
    the others by keyword, annotated and documented: the command line's options are made from them), and
    implements `cost` and `_score`.

    Attributes
    ----------
    scores_ : float64 array, shape (d,)
        Larger is better.
    ranking_ : int64 array, shape (d,)
        Feature indices, best first: by score, ties by lower index; of methods that choose one feature after another,
        in the order of the choice; with n_features_to_select="auto", the discovered features before the others. (Not
        places, as in scikit-learn's RFE.)
    support_ : bool array, shape (d,)
        The k features that are kept.
    report_ : Report
    n_iter_ : int
        Iterations, of methods that have a loop.
    n_features_in_ : int
    feature_names_in_ : object array, shape (d,)
        Only if X has names that are strings: a table, AnnData, a Dataset or its X.
    q_values_ : float64 array, shape (d,)
        Least false discovery rate at which each feature is discovered. Only with n_features_to_select="auto".
    rank_intervals_ : int64 array, shape (d, 2)
        Ranks, from 1, between which nine of ten resamples rank each feature. Only with resamples.
    selection_frequency_ : float64 array, shape (d,)
        Share of the resamples in which each feature is among the k best. Only with resamples.
    """

    #: What labels it needs: "supervised", "semi-supervised", "unsupervised"; and whether they may be unknown.
    supervision: ClassVar[str] = "supervised"
    #: How many passes over X, in words.
    passes: ClassVar[str]
    #: How memory grows, in words, with the size letters.
    memory: ClassVar[str]
    #: Iterations of its loop on real data, the least and the most; None where no loop reports its steps.
    typical_iterations: ClassVar[tuple[int, int] | None] = None
    #: Whether labels may hold -1.
    accepts_unknown_labels: ClassVar[bool] = False
    #: Whether its loop leaves checkpoints (`mlfs_dask.engine.checkpoints`), from which a fit can go on.
    keeps_checkpoints: ClassVar[bool] = False
    #: Whether the best 10 features are not the first 10 of the best 20: a choice is learnt for one k.
    choice_depends_on_k: ClassVar[bool] = False
    #: Whether scores rest on counts, which are the same bits wherever a feature stands; others are rounded.
    scores_from_counts: ClassVar[bool] = False
    #: Whether it learns from shuffled and resampled rows too (`mlfs_dask.selectors.resampling`).
    resamples_rows: ClassVar[bool] = False
    #: Where a fit leaves `labels_`, (n, q): the value above which a label applies. None: labels are not recovered.
    label_threshold: ClassVar[float | None] = None

    missing: str = "error"

    #: What the last fit has filled missing features with; None where none was missing.
    _fill: NDArray[np.float64] | None = None
    _zero_one: NDArray[np.bool_] | None = None

    #: Names of the labels of the last fit, where the container has any; for messages.
    _label_names: Any = None

    #: Seed of the fit that runs.
    _fit_seed: int | None = None

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
        if not isinstance(source, RowSource) or not self._fills(source):
            return project(self.cost(source, resources), source, resources)
        statistics = tuple(self._fill_statistics(source))
        fill: NDArray[np.float64] | None = np.full(source.profile.d, np.nan)
        if all(is_cached(source, statistic) for statistic in statistics):
            fill = fill_values(statistics, run_pass(source, statistics, resources)[0], source.weights)
        filled = source if fill is None else FilledRows(source, fill)
        cost = self.cost(filled, resources)
        first = Reading(FILL_READING, statistics, source=source)
        return project(replace(cost, steps=[first, *cost.steps]), filled, resources)

    def first_statistics(self, source: RowSource, resources: Resources) -> Sequence[Statistic]:
        """What a fit reads first, so that jobs on one store can read it together; empty where it has to be asked.

        Raises
        ------
        DoesNotFitError
        """
        return self._fill_statistics(source) if self._fills(source) else self._first_reading(source, resources)

    def _first_reading(self, source: RowSource, resources: Resources) -> Sequence[Statistic]:
        """What a fit reads first of rows that lack nothing, or of rows whose missing values are filled in."""
        return ()

    def _typical_iterations(self, profile: Profile) -> tuple[int, int] | None:
        """`typical_iterations`, of data with these sizes where they matter."""
        return self.typical_iterations

    def _score(self, passes: PassRunner, k: int) -> Scores:
        """Run the method. With n_features_to_select="auto" `k` is d, and `Scores.discovered` is what is kept."""
        raise NotImplementedError

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn at random, with the parameters as they are."""
        return "random_state" in self._get_param_names()

    @property
    def _seed(self) -> int:
        """Where whatever is random begins. A generator is asked once a fit, and not at all for a plan."""
        if self._fit_seed is not None:
            return self._fit_seed
        return draw_seed(copy.deepcopy(getattr(self, "random_state", None)))

    # ------------------------------------------------------------------ missing features

    def _fills(self, source: RowSource) -> bool:
        """Whether missing features are to be filled in, and may be there."""
        if self.missing not in ("mean", "median"):
            return False
        n_missing = source.features.n_missing
        return n_missing is None or bool(n_missing.any())

    def _fill_statistics(self, source: RowSource) -> list[Statistic]:
        return fill_statistics(source.profile, self.missing, self._seed)

    def _fill_missing(self, passes: PassRunner) -> None:
        """Read what missing features are filled with; the readings that follow find it in their places."""
        self._fill = self._zero_one = None
        if self._fills(passes.source):
            statistics = self._fill_statistics(passes.source)
            results = passes.run(FILL_READING, *statistics)
            self._fill, self._zero_one = fill_values(statistics, results, passes.source.weights), results[0].zero_one
            passes.source = self._filled(passes.source)

    def _filled(self, source: RowSource) -> RowSource:
        """The rows with the values that the last fit has found in the places of missing ones."""
        return source if self._fill is None else FilledRows(source, self._fill, self._zero_one)

    # ------------------------------------------------------------------ scikit-learn's side

    def fit(self, X: Any, y: Any = None) -> Self:
        """Score all features and choose the best.

        Parameters
        ----------
        X : array-like, shape (n, d)
            NumPy, SciPy sparse, pandas, a Dask array (of NumPy, `sparse` or SciPy blocks), a data frame of Dask,
            AnnData, a Dataset, or the path or URL of a store. Sparse stays sparse. Dask arrays may be chunked along
            both axes; the result does not depend on it.
        y : array-like, shape (n, q) or (n,)
            Labels 1, 0, and -1 for unknown; where dense labels are 1 and -1 alone, -1 is negative. A single column may
            hold classes, among which -1 is unknown, too: two of them are one label, and of more each is a label. None
            with a Dataset, with AnnData whose labels are in `obsm["labels"]`, and for methods without supervision; of
            AnnData also the name of a column of `obs`.

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
        return self._fit_with_seed(X, y)

    def _fit_with_seed(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        self.check()
        self._fit_seed = draw_seed(getattr(self, "random_state", None))
        try:
            return self._fit(X, y, sample_weight)
        finally:
            del self._fit_seed

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        started = time.perf_counter()
        source, store = self._open(X, y)
        n = source.profile.n
        source = weighted_rows(source, sample_weight)
        profile = source.profile
        k = self.count_kept(profile.d)
        self._require_accepted(source)
        resources = runtime.current_resources()
        plan = require_driver(self.plan(source, resources), resources, f"{self.method} in the driver process")
        runtime.reset_peak_rss()
        params = {name: plain(value) for name, value in sorted(self.get_params(False).items())}
        if isinstance(getattr(self, "random_state", None), GENERATORS):
            params["random_state"] = self._seed  # with which the fit can be made again
        # Of methods that keep checkpoints no score depends on how many features are kept.
        loop = {name: value for name, value in params.items() if name != "n_features_to_select"}
        job = checkpoints.job(method=self.method, params=loop, digest=(store or {}).get("digest"))
        typical = self._typical_iterations(profile)
        runtime.emit(
            "fit",
            method=self.method,
            readings=plan.passes,
            max_iterations=None if typical is None else getattr(self, "max_iter", None),
            typical_iterations=typical,
        )
        # NumPy and SciPy each bring a BLAS, whose idle threads keep the cores from the other's: one thread of each was
        # up to 15 times faster for loops that use both. Passes have threads of their own.
        passes = PassRunner(source, resources, plan)
        with job, record_hits() as hits, runtime.one_blas_thread():
            self._fill_missing(passes)
            outcome = self._score(passes, k)
        records = passes.records
        if outcome.discovered is not None:
            discovered = outcome.discovered & passes.varies
            outcome, k = replace(outcome, discovered=discovered), int(np.count_nonzero(discovered))
        peak_driver = peak_worker = runtime.peak_rss()
        if resources.client is not None:
            peak_worker = max((record.peak_worker_bytes for record in records), default=0)
        varies = passes.varies
        n_constant = profile.d - int(np.count_nonzero(varies))
        emitted = [*outcome.warnings, *constant_warnings(k, profile.d, n_constant, informed=bool(outcome.warnings))]
        for warning in emitted:
            warnings.warn(warning, stacklevel=_caller_level())
        outcome = replace(outcome, scores=self._ranked_by(outcome.scores))
        self.scores_ = lower_constant(outcome.scores, varies)
        self.ranking_ = outcome.order(varies)
        if outcome.discovered is not None:
            self.ranking_ = self.ranking_[np.argsort(~outcome.discovered[self.ranking_], kind="stable")]
        self.support_ = np.zeros(profile.d, dtype=bool)
        self.support_[self.ranking_[:k]] = True
        for name in ("q_values_", "rank_intervals_", "selection_frequency_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        if outcome.q_values is not None:
            self.q_values_ = outcome.q_values
        if outcome.resampled_scores is not None:
            self.rank_intervals_, self.selection_frequency_ = rank_stability(
                self._ranked_by(outcome.resampled_scores), k, varies
            )
        if hasattr(self, "max_iter"):
            self.n_iter_ = max(1, outcome.iterations)  # scikit-learn expects at least one
        self.report_ = Report(
            method=self.method,
            params=params,
            store=store,
            n=n,
            d=profile.d,
            q=profile.q,
            k=k,
            seed=params.get("random_state"),
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
            extra={
                **outcome.extra,
                "constant_features": n_constant,
                **_noted(from_cache=hits, refused_workers=refused_workers(resources.client)),
            },
            warnings=[str(warning) for warning in emitted],
        )
        return self

    def _ranked_by(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The scores without digits that are rounding."""
        return scores if self.scores_from_counts else round_scores(scores)

    def transform(self, X: Any) -> Any:
        """The chosen columns, in the order of X.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Any container that `fit` takes. Dask arrays stay lazy and sparse blocks stay sparse. Of a Dataset, and of
            a data frame of Dask, the columns come back as a Dask array; of AnnData, as those of its X.

        Returns
        -------
        array of shape (n, k)
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        X, names = open_matrix(X)
        if names is not None:
            self._check_names(names)
        lazy = is_dask_array(X)
        if names is None and not lazy:
            return super().transform(X)
        config = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if lazy and config != "default":
            raise UsageError(
                f"set_output(transform={config!r}) needs all rows in memory, and X is a Dask array. "
                "Use set_output(transform='default'), or pass X.compute()."
            )
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {X.shape[1] if X.ndim == 2 else 'no'} features, but {type(self).__name__} is "
                f"expecting {self.n_features_in_} features as input"
            )
        columns = np.flatnonzero(self.support_)
        return take_columns(X, columns) if lazy else columns_of_block(X, columns)

    def ranking_columns(self) -> dict[str, NDArray[Any]]:
        """What is known of each feature beside its score: further columns of `ranking.csv`, each of shape (d,)."""
        columns: dict[str, NDArray[Any]] = {}
        if hasattr(self, "q_values_"):
            columns["q_value"] = self.q_values_
        if hasattr(self, "rank_intervals_"):
            low, high = self.rank_intervals_.T
            columns |= {"rank_low": low, "rank_high": high, "selection_frequency": self.selection_frequency_}
        return columns

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
        tags.input_tags.allow_nan = self.missing != "error"
        tags.target_tags.required = self.supervision != "unsupervised"
        tags.target_tags.multi_output = True
        return tags

    # ------------------------------------------------------------------ containers

    def _open(self, X: Any, y: Any) -> tuple[RowSource, dict[str, Any] | None]:
        """The rows of X and y; sets `n_features_in_` and `feature_names_in_`."""
        X, y, feature_names, label_names = open_container(X, y)
        if y is None and (is_dataset(X) or isinstance(X, RowSource)):
            source = as_rows(X)
            self._set_features(source.profile.d, feature_names)
            self._label_names = label_names
            return source, store_of(source, X.subset_record if is_dataset(X) else None)
        supervised = self.supervision != "unsupervised"
        if y is None and supervised:
            raise DataError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None",
                cure="fit(X, Y) with Y of shape (n, q); a Dataset brings its own labels",
            )
        if getattr(X, "ndim", 2) > 2:
            raise DataError(
                f"X must be two-dimensional, (rows, features); got shape {tuple(X.shape)}",
                cure="reshape it to (rows, features)",
            )
        if is_dask_array(X):
            if X.ndim != 2:
                raise DataError(f"Expected 2D array, got {X.ndim}D Dask array instead")
            self._set_features(int(X.shape[1]), feature_names)
        else:
            from sklearn.utils.validation import validate_data

            # NaN and infinity are found in the pass itself, not in a reading of their own.
            given = X
            try:
                X = validate_data(self, X, accept_sparse="csr", ensure_all_finite=False)
            except (TypeError, ValueError) as error:
                raise first_other_column(given) or error from None
            if X.dtype.kind not in "biuf" and (other := first_other_column(given)) is not None:
                raise other
            if feature_names is not None:
                self._set_features(int(X.shape[1]), feature_names)
        if y is None:
            y = _no_labels(X)
        elif not (is_dask_array(y) and y.ndim == 2):
            y = label_matrix(y)
        source = as_rows(X, y)
        if source.profile.n < 1 or source.profile.d < 1 or (source.profile.q < 1 and supervised):
            raise DataError(
                f"X has shape {(source.profile.n, source.profile.d)} and Y {source.profile.q} columns; "
                "at least one row, feature and label are needed"
            )
        # A column of classes may have become several labels.
        several = label_names is not None and len(label_names) == source.profile.q
        self._label_names = label_names if several else None
        return source, store_of(source)

    def _set_features(self, d: int, names: Any) -> None:
        self.n_features_in_ = d
        if names is not None:
            self.feature_names_in_ = np.asarray([str(name) for name in names], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @property
    def _feature_names(self) -> Any:
        """`feature_names_in_`; None where X has no names."""
        return getattr(self, "feature_names_in_", None)

    def _first_column(self, flagged: NDArray[np.bool_]) -> str | int:
        """Name of the first flagged feature, or its index where X has no names."""
        f = int(np.flatnonzero(flagged)[0])
        return f if self._feature_names is None else str(self._feature_names[f])

    def count_kept(self, d: int) -> int:
        """Number of features to keep out of `d`; d with "auto", where the data has to tell.

        Parameters
        ----------
        d : int

        Raises
        ------
        UsageError
        """
        if self.n_features_to_select != AUTO:
            return count_kept(self.n_features_to_select, d)
        if not self.resamples_rows:
            why = "does not look at labels"
            if self.supervision != "unsupervised":
                why = "would have to learn again from every shuffle of the labels"
            raise UsageError(
                f"{parameter('n_features_to_select')} cannot be 'auto' with {self.method}, which {why}. Give a "
                f"count, or let held-out rows choose it: mlfs evaluate STORE {self.method} --choose-k"
            )
        return d

    def _check_names(self, names: Any) -> None:
        """Refuse columns of other names than those that were fitted, as scikit-learn does for tables."""
        fitted = self._feature_names
        if fitted is None or np.array_equal(fitted, np.asarray([str(name) for name in names], dtype=object)):
            return
        raise DataError(
            "The feature names should match those that were passed during fit.",
            cure="give the same columns in the same order",
        )

    def require_accepted(self, dataset: Any) -> None:
        """Refuse a store that is known, without a reading, to hold what the method does not take.

        Raises
        ------
        DataError
            Some labels are unknown, or feature values missing.
        """
        source, _ = self._open(dataset, None)
        self._require_accepted(source)

    def _require_accepted(self, source: RowSource) -> None:
        counts = None if self.accepts_unknown_labels else source.label_counts
        if counts is not None and counts[0].any():
            raise unknown_labels_error(self, counts[0])
        self._refuse_missing(source.features.n_missing)

    def _refuse_missing(self, n_missing: NDArray[np.int64] | None) -> None:
        """Refuse missing values, counted by feature, where they are an error; None: not counted."""
        if n_missing is None or self.missing != "error" or not n_missing.any():
            return
        raise DataError(
            f"X contains NaN: {number_of(int(n_missing.sum()), 'missing value')} in "
            + number_of(int((n_missing > 0).sum()), "feature"),
            column=self._first_column(n_missing > 0),
            cure=f"choose {self._missing_choices} to fill them in, or leave the feature out",
        )

    @property
    def _missing_choices(self) -> str:
        return f"{parameter('missing', 'mean')} or {parameter('missing', 'median')}"

    def _examine_features(self, passes: PassRunner, mean: NDArray[np.float64], spread: NDArray[np.float64]) -> None:
        """Refuse features that hold NaN or infinity, and take down which of the others vary.

        Parameters
        ----------
        passes : PassRunner
        mean, spread : float64 array, shape (d,)
            Not finite where a value is not. The spread (sum of squared deviations, or range) of a constant is 0.
        """
        passes.varies = spread > 0
        broken = ~(np.isfinite(mean) & np.isfinite(spread))
        if not broken.any():
            return
        of_nan = (
            f"choose {self._missing_choices} for NaN, fill missing values in before (for example with "
            "sklearn.impute.SimpleImputer), or leave the feature out; "
            if self.missing == "error"
            else ""
        )
        raise DataError(
            f"X contains {'NaN or ' if of_nan else ''}infinity, or values too large for float64 sums, in "
            + number_of(int(broken.sum()), "feature"),
            column=self._first_column(broken),
            cure=of_nan + "infinite values have to be replaced, by a number or by NaN (missing), and those above 1e150 "
            "scaled" + ("" if of_nan else "; or leave the feature out"),
        )

    def _refuse_lost_digits(self, profile: Profile, mean: NDArray[np.float64], m2: NDArray[np.float64]) -> None:
        """Refuse features of sparse X whose variance has less than six digits beside the square of their mean.

        A sparse X is summed about zero, for X'X and Y'X as for distances of rows; a dense one is shifted first.
        """
        if not profile.sparse:
            return
        lost = (m2 > 0) & (np.finfo(np.float64).eps * profile.total * mean**2 > 1e-6 * m2)
        if lost.any():
            first = int(np.argmax(lost))
            deviations = abs(mean[first]) / np.sqrt(m2[first] / profile.total)
            raise DataError(
                f"a feature of sparse X with mean {mean[first]:.3g} lies {deviations:.2g} standard deviations from "
                "zero, too far for sums about zero to keep its digits",
                column=self._first_column(lost),
                cure="subtract a constant from the feature, convert with `--storage dense`, or leave it out",
            )


def _no_labels(X: Any) -> Any:
    """Labels of the rows of X, shape (n, 0)."""
    if is_dask_array(X):
        import dask.array as da

        return da.zeros((X.shape[0], 0), dtype=np.int8, chunks=(X.chunks[0], (0,)))
    return sp.csr_array((X.shape[0], 0), dtype=np.int8)


def _caller_level() -> int:
    """The stack level of the line outside this package that led to `fit`, for its warnings."""
    level, frame = 0, sys._getframe(1)
    while frame.f_globals["__name__"].startswith("mlfs_dask.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level + 1


def count_kept(n_features_to_select: int | float | str | None, d: int, *, name: str = "n_features_to_select") -> int:
    """Number of features to keep out of `d`.

    Parameters
    ----------
    n_features_to_select : int, float or None
        A count from 1 to d; a fraction in (0, 1], of which at least one feature comes; None for half.
    d : int
    name : str
        What Python calls it, for messages.

    Raises
    ------
    UsageError

    Examples
    --------
    >>> count_kept(None, 7), count_kept(3, 7), count_kept(0.1, 7), count_kept(1.0, 7)
    (3, 3, 1, 7)
    """
    value: Any = n_features_to_select
    if value is None:
        return max(1, d // 2)
    known = "a count or a fraction in (0, 1]"
    if parameter(name) == name:  # the command line has no None
        known = "a count, a fraction in (0, 1], or None for half of the features"
    name = parameter(name)
    number = None if isinstance(value, (bool, np.bool_, str)) else value
    if isinstance(number, numbers.Integral):
        if 1 <= value <= d:
            return int(value)
        raise UsageError(
            f"{name} must be between 1 and the number of features, {d}; got {value}. "
            "Give a smaller count, or a fraction such as 0.1."
            if value > d
            else f"{name} must be at least 1; got {value}. Give {known}."
        )
    if isinstance(number, numbers.Real) and 0 < value <= 1:
        # The fraction that was meant: 0.29 * 100 is less than 29 in floating point.
        return max(1, int(d * Fraction(float(value)).limit_denominator(10**9)))
    raise UsageError(f"{name} must be {known}; got {value!r}.")


def uninformative_warning(
    title: str,
    *,
    constant: int,
    d: int,
    constant_labels: int,
    q: int,
    otherwise: str = "no feature goes with any label",
    weighs_features: bool = False,
) -> UserWarning:
    """The warning of a method that cannot rank the features.

    Parameters
    ----------
    title : str
        Of the method.
    constant, d : int
        Features that are constant, and all.
    constant_labels, q : int
        Labels that are the same in every row, and all.
    otherwise : str
        The reason where neither all features nor all labels are.
    weighs_features : bool
        Whether the method weighs features against one another, which labels have no part in.
    """
    reasons = []
    if constant == d:
        reasons.append("the only feature is constant" if d == 1 else f"all {d:,} features are constant")
    if constant_labels == q:
        same = "the only label is" if q == 1 else f"all {q:,} labels are"
        reasons.append(f"{same} the same in every row")
    reason = " and ".join(reasons) or otherwise
    consequence = "All features get the same score, and the ranking is their order in the data."
    if weighs_features and constant < d:
        consequence = "The ranking is by what features share with one another alone."
    return UserWarning(f"{title} cannot rank the features: {reason}. {consequence}")


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


def round_scores(scores: NDArray[np.float64], bits: int = SCORE_BITS) -> NDArray[np.float64]:
    """Scores to `bits` significant bits. Those beyond differ by the order of summation, which depends on the chunks.

    Scores that are neighbours after rounding become equal: features that are copies of one another tie, also where
    their scores lie on two sides of a bound of rounding.

    Parameters
    ----------
    scores : float64 array, shape (..., d)

    Examples
    --------
    >>> round_scores(np.array([0.1 + 0.2, 0.3])).tolist()
    [0.3000000000001819, 0.3000000000001819]
    """
    mantissa, exponent = np.frexp(scores)
    rounded: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
    order = np.argsort(rounded, axis=-1)
    rising = np.take_along_axis(rounded, order, axis=-1)
    step = 1.5 * np.ldexp(1.0, np.frexp(rising)[1] - bits)
    # The largest of each run of neighbours: the next that is further from the one above it than a step.
    apart = np.diff(rising, axis=-1, append=np.inf) > step
    last = np.where(apart, rising, np.inf)
    joined = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
    np.put_along_axis(rounded, order, joined, axis=-1)
    return rounded


def rank(scores: NDArray[np.float64], varies: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Indices by falling score; ties by lower index. Features that do not vary come last, by index.

    >>> rank(np.array([0.5, 2.0, 0.5])), rank(np.array([0.5, 2.0, 0.5]), np.array([True, False, True]))
    (array([1, 0, 2]), array([0, 2, 1]))
    """
    if varies is not None:
        scores = np.where(varies, scores, -np.inf)
    return np.argsort(-scores, kind="stable").astype(np.int64, copy=False)


def lower_constant(scores: NDArray[np.float64], varies: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Scores in which no feature without variation exceeds one that varies.

    A filter gives a constant 0, which is more than the negative score of a redundant feature.

    >>> lower_constant(np.array([0.5, 0.0, -1.0]), np.array([True, False, True]))
    array([ 0.5, -1. , -1. ])
    """
    if not varies.any():
        return scores
    return np.where(varies, scores, np.minimum(scores, scores[varies].min()))


def constant_warnings(k: int, d: int, n_constant: int, *, informed: bool) -> list[Warning]:
    """The warning of features kept that do not vary, if there are any.

    Parameters
    ----------
    k, d, n_constant : int
        Features kept, all, and those that do not vary.
    informed : bool
        Whether the method itself has warned, which it does where no feature varies.
    """
    n_kept = k - (d - n_constant)
    if n_kept <= 0 or (informed and n_constant == d):
        return []
    return [
        UserWarning(
            f"{n_kept:,} of the {number_of(k, 'feature')} kept {'does' if n_kept == 1 else 'do'} not vary: only "
            f"{d - n_constant:,} of {d:,} do. Keep at most so many"
        )
    ]


def rank_stability(
    scores: NDArray[np.float64], k: int, varies: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """How much ranks vary between resamples.

    Parameters
    ----------
    scores : float64 array, shape (B, d)
        Of every resample.
    k : int
    varies : bool array, shape (d,), optional
        Features that vary in the rows themselves; the others come last.

    Returns
    -------
    intervals : int64 array, shape (d, 2)
        Ranks, from 1, of each feature, of which one in `RANK_TAIL` is left out at each end.
    frequency : float64 array, shape (d,)
        Share of the resamples in which each feature is among the k best.

    Examples
    --------
    >>> rank_stability(np.array([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]]), 2)
    (array([[1, 1],
           [2, 3],
           [2, 3]]), array([1. , 0.5, 0.5]))
    """
    n_resamples, d = scores.shape
    ranks = np.empty((n_resamples, d), dtype=np.int32)
    for own, of_resample in zip(ranks, scores, strict=True):
        own[rank(of_resample, varies)] = np.arange(1, d + 1)
    frequency = (ranks <= k).mean(axis=0)
    ranks.sort(axis=0)
    outside = n_resamples // RANK_TAIL
    return np.stack([ranks[outside], ranks[-1 - outside]], axis=1).astype(np.int64), frequency


def unknown_labels_error(selector: BaseSelector, unknown: NDArray[np.integer[Any]]) -> DataError:
    """The refusal of labels that hold -1, for methods that need every label known."""
    label = int(np.flatnonzero(unknown)[0])
    names = selector._label_names
    named = "" if names is None else f"label {str(names[label])!r}, "
    return DataError(
        f"{selector.method} has no support for missing labels, and Y holds {int(unknown.sum())} "
        f"unknown entries (-1) in {np.count_nonzero(unknown)} of its labels, first in {named}column {label} of Y "
        f"(counted from 0)",
        cure="drop those rows or labels, or use a method that takes missing labels (`mlfs methods` tells which do); "
        "where -1 is negative and 0 unknown say so (mlfs_dask.label_matrix(Y, negative=-1, unknown=0), `mlfs convert "
        "--labels-negative -1 --labels-unknown 0`); where -1, 0 and 1 are three classes pass them as text; where "
        "unknown entries count as negative set them to 0",
    )


def store_of(source: RowSource, subset: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Path and digest of the store that rows come from, if there is one, and what was chosen of it."""
    if source.place is None:
        return None
    return {"path": source.place, "digest": source.digest, **({"subset": subset} if subset else {})}


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


def _noted(**facts: Any) -> dict[str, Any]:
    """Those that are not empty."""
    return {name: value for name, value in facts.items() if value}


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    names = ("mlfs-dask", "numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "sparse", "numba")
    installed = [("python", platform.python_version())]
    for name in names:
        try:
            installed.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(installed)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result may depend on."""
    return dict(_versions())
