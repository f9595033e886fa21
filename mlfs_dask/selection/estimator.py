"""Scikit-learn estimators of the published methods."""

from __future__ import annotations

import copy
import functools
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import columns_of_block
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DataError, UsageError, number_of, require_extra
from mlfs_dask.rows.contract import Profile, RowSource
from mlfs_dask.rows.covariates import as_column
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.containers import (
    feature_column,
    is_anndata,
    is_dask_array,
    is_dataset,
    non_numeric_error,
    open_container,
    open_matrix,
)
from mlfs_dask.selection.fit import OpenedRows, Report, fit, open_rows, resolve_names
from mlfs_dask.selection.labels import labels_and_names, targets_and_names
from mlfs_dask.selection.question import Question, ask, parameters_of
from mlfs_dask.selection.runs import COLUMNS, LABEL_COLUMNS, REPLICATE_COLUMNS, SHARED, Run
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.contract import Method
from mlfs_dask.selectors.costs import Names, Plan
from mlfs_dask.statistics.write_rows import ArraySink, RowSink
from mlfs_dask.typing import Array

if TYPE_CHECKING:
    import pandas as pd

#: Values of `target_type`.
TARGET_TYPES = ("labels", "continuous")


class Selector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators, which are scikit-learn feature selectors.

    Its parameters, with their documentation, are those of the method and of a `Question`.

    Attributes
    ----------
    scores_ : float64 array, shape (d,)
        Larger is better.
    ranking_ : int64 array, shape (d,)
        Feature indices, best first: by score, ties by lower index; for methods that choose one feature after another,
        in the order of the choice; with n_features_to_select="auto", the discovered features before the others.
        ``ranking_[0]`` is the best feature. `ranking_` of scikit-learn's RFE is `ranks_` here.
    ranks_ : int64 array, shape (d,)
        Rank of each feature, from 1, in the order of the columns of X. (RFE gives rank 1 to all chosen features;
        `ranks_` gives each feature its own rank, and the chosen ones have ranks 1 to k.)
    support_ : bool array, shape (d,)
        Mask of the k chosen features.
    report_ : Report
    n_iter_ : int
        Number of iterations, for methods with a loop.
    n_features_in_ : int
    feature_names_in_ : object array, shape (d,)
        Only if X has names that are strings: a table, AnnData, a Dataset or its X.
    q_values_ : float64 array, shape (d,)
        Smallest false discovery rate at which each feature is discovered. Only with n_features_to_select="auto".
    rank_intervals_ : int64 array, shape (d, 2)
        Range of ranks, from 1, of each feature in nine of ten resamples. Only with resamples.
    selection_frequency_ : float64 array, shape (d,)
        Share of the resamples in which each feature is among the k best. Only with resamples.
    pairs_ : pandas.DataFrame
        Label-feature pairs, with the columns of `pairs.parquet`. Only with pairs.
    clusters_ : structured array
        Chosen features, and features whose correlation with one of them reaches `prune` or `redundancy`: number of the
        cluster, feature, its representative, correlation with it. Only with `prune` or `redundancy`.
    """

    target_type: str

    #: Method that the estimator fits.
    plain: ClassVar[type[Method]]

    scores_: Array
    ranking_: NDArray[np.int64]
    support_: NDArray[np.bool_]
    report_: Report

    def make_question(self) -> Question:
        """Return the question for the estimator's parameters, after checking them.

        Raises
        ------
        UsageError
        """
        params = self.get_params(deep=False)
        if params.pop("target_type") not in TARGET_TYPES:
            raise UsageError(f"target_type must be one of {', '.join(TARGET_TYPES)}; got {self.target_type!r}")
        question = ask(self.plain, **params)
        question.check()
        return question

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """Return the plan of a fit (`Question.plan`).

        Raises
        ------
        DoesNotFitError
        """
        return resolve_names(self.make_question(), source).plan(source, resources)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        covariates: Any = None,
        strata: Any = None,
        clusters: Any = None,
        init: Mapping[str, Any] | None = None,
    ) -> Self:
        """Score all features and choose the best.

        Parameters
        ----------
        X : array-like, shape (n, d)
            NumPy, SciPy sparse, pandas, a Dask array (of NumPy, `sparse` or SciPy blocks), a Dask data frame, AnnData
            (also with X in a file), a Dataset, a LazyFrame of polars, a dataset of Arrow, or the path or URL of a store
            or of a file that `open_dataset` reads. Sparse data stays sparse. Dask arrays may be chunked along both
            axes; the result does not depend on the chunks.
        y : array-like, shape (n, q) or (n,)
            Labels 1, 0, and -1 for unknown; in dense labels of only 1 and -1, -1 is negative. A single column may hold
            classes, with -1 for unknown: two classes become one label, with more each class becomes a label. None for a
            Dataset, for AnnData with labels in `obsm["labels"]`, and for unsupervised methods. For tables, files and
            AnnData (its `obs`) also the names of the label columns, as a list, or the name of one. Labels keep the
            names of columns; a class gets a name such as `condition=drug`.
        covariates : array-like or table, shape (n, c) or (n,), optional
            Covariates for which scores are adjusted: numbers, or texts or pandas categories, with an indicator for each
            category but the first. Only for methods based on means and products.
        strata : array-like, shape (n,), optional
            Stratum of each row, such as its batch; associations are measured within strata.
        clusters : array-like, shape (n,), optional
            Cluster of each row, such as its donor; rows of different clusters are independent.
        init : mapping, optional
            Initial arrays instead of random ones, to reproduce a published run with `variant="published"`: W (d, l), V
            (n, l) and B (l, q) of `MIFS`; W and M (d, q) of `GLFS`; W (d, q) and b (q,) of `MLMLFS`; B (n, q), the
            codes, of `SFSBLL`.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If X or y is invalid.
        UsageError
            If a parameter has an invalid value.
        DoesNotFitError
            If the projected memory exceeds the limit; no data has been read.
        """
        return self._fit(X, y, covariates=covariates, strata=strata, clusters=clusters, init=init)

    def _fit(self, X: Any, y: Any, sample_weight: Any = None, **of_rows: Any) -> Self:
        question = self.make_question()
        fitted = fit(question, self._open(X, y), sample_weight, **of_rows)
        for name in ("q_values_", "rank_intervals_", "selection_frequency_", "labels_", "clusters_"):
            self.__dict__.pop(name, None)  # from an earlier fit
        self._columns = fitted.columns
        self._pairs = fitted.pairs.table() if fitted.pairs is not None and question.pairs is not None else None
        self._fitted = replace(fitted, pairs=None)  # the sums of the pairs are large
        self.scores_, self.ranking_, self.support_ = fitted.scores, fitted.ranking, fitted.support
        self.report_ = fitted.report
        if fitted.q_values is not None:
            self.q_values_ = fitted.q_values
        if fitted.stability is not None:
            self.rank_intervals_, self.selection_frequency_, _, _ = fitted.stability
        if fitted.clusters is not None:
            self.clusters_ = fitted.clusters
        if fitted.outcome.labels is not None:
            self.labels_ = fitted.outcome.labels
        if hasattr(self.plain, "max_iter"):
            self.n_iter_ = max(1, fitted.outcome.iterations)  # scikit-learn expects at least one
        return self

    def transform(self, X: Any) -> Any:
        """Return the chosen columns, in the order of X.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Any container for `fit`. Dask arrays stay lazy and sparse blocks stay sparse. A Dataset or a Dask data frame
            gives a Dask array; AnnData gives columns of its X.

        Returns
        -------
        array of shape (n, k)
        """
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
        return _take_columns(X, columns) if lazy else columns_of_block(X, columns)

    @property
    def ranks_(self) -> NDArray[np.int64]:
        """Rank of each feature, from 1, in the order of the columns of X."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has no ranks_ before a fit")
        ranks = np.empty(len(self.ranking_), np.int64)
        ranks[self.ranking_] = np.arange(1, len(ranks) + 1)
        return ranks

    @property
    def pairs_(self) -> pd.DataFrame:
        """Label-feature pairs, with the columns of `pairs.parquet`. Only with pairs."""
        pairs: Any = getattr(self, "_pairs", None)
        if pairs is None:
            raise AttributeError(f"{type(self).__name__} has no pairs_ before a fit with pairs")
        require_extra("pandas", "pairs_")
        return pairs.to_pandas()

    def ranking_frame(self) -> pd.DataFrame:
        """Return all features, best first, with the columns of `ranking.csv`.

        Returns
        -------
        pandas.DataFrame
            rank (from 1), feature_index, feature_name, score, and, where the fit has them, significant_labels,
            best_label, q_value, rank_low, rank_high, selection_frequency, shared, group, group_score. Features
            without names are called x0, x1, ...
        """
        require_extra("pandas", "ranking_frame")
        import pandas as pd

        run = self.as_run()
        values = (np.arange(1, len(run.ranking) + 1), run.ranking, run.feature_names, run.scores)
        further = {name: column[self.ranking_] for name, column in self._columns.items()}
        return pd.DataFrame(dict(zip(COLUMNS, values, strict=True)) | further)

    def as_run(self) -> Run:
        """Return the fit as a run, as `read_run` returns it from a folder."""
        check_is_fitted(self)
        ranking, names = self.ranking_, self._fitted.names.features
        found: dict[str, Any] = {name: column[ranking] for name, column in self._columns.items()}
        return Run(
            "",
            ranking,
            self.scores_[ranking],
            [f"x{f}" if names is None else str(names[f]) for f in ranking.tolist()],
            self.report_.to_dict(),
            {name: found[name] for name in REPLICATE_COLUMNS if name in found},
            found.get(SHARED),
            {name: found[name] for name in LABEL_COLUMNS if name in found},
            self._pairs,
        )

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_is_fitted__(self) -> bool:
        # scikit-learn would take the parameter `lambda_` for a fitted attribute.
        return hasattr(self, "support_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = getattr(self, "missing", "error") != "error"
        tags.target_tags.required = self.plain.supervision != "unsupervised"
        tags.target_tags.multi_output = True
        return tags

    # ------------------------------------------------------------------ containers

    def _open(self, X: Any, y: Any) -> OpenedRows:
        """Open the rows of X and y; set `n_features_in_` and `feature_names_in_`."""
        container = X
        numeric = self.target_type == "continuous"
        X, y, feature_names, label_names = open_container(X, y, numeric=numeric)
        supervised = self.plain.supervision != "unsupervised"
        read = targets_and_names if numeric else labels_and_names
        if isinstance(X, RowSource) and y is not None:
            Y, named = read(y)
            label_names = label_names if named is None else named
            if Y.shape[0] != X.profile.n:
                raise DataError(
                    f"X has {X.profile.n} rows and Y has {Y.shape[0]}", cure="give labels for the same rows"
                )
            X, y = RowView(X, Y=Y), None
        if y is None and (is_dataset(X) or isinstance(X, RowSource)):
            rows = open_rows(X)
            if isinstance(X, RowSource):
                several = label_names is not None and len(label_names) == X.profile.q
                rows = replace(rows, names=Names(feature_names, label_names if several else None))
                rows = self._with_columns(rows, container)
            if rows.source.profile.q or not supervised:
                self._set_features(rows.source.profile.d, rows.names.features)
                return rows
        if y is None and supervised:
            raise DataError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None",
                cure="fit(X, Y) with Y of shape (n, q), or, of a LazyFrame or a dataset of Arrow, with the names of "
                "the columns that are labels; a Dataset brings its own labels",
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
            # The fit itself finds NaN and infinity; a check here would read the data once more.
            given = X
            try:
                X = validate_data(self, X, accept_sparse="csr", ensure_all_finite=False)
            except (TypeError, ValueError) as error:
                raise non_numeric_error(given) or error from None
            if X.dtype.kind not in "biuf" and (other := non_numeric_error(given)) is not None:
                raise other
            if feature_names is not None:
                self._set_features(int(X.shape[1]), feature_names)
        if y is None:
            y = _unknown_labels(X, 0)
        elif not (is_dask_array(y) and y.ndim == 2):
            y, named = read(y)
            label_names = label_names if named is None else named
        source = as_rows(X, y, numeric=numeric)
        if source.profile.n < 1 or source.profile.d < 1 or (source.profile.q < 1 and supervised):
            raise DataError(
                f"X has shape {(source.profile.n, source.profile.d)} and Y {source.profile.q} columns; "
                "at least one row, feature and label are needed"
            )
        several = label_names is not None and len(label_names) == source.profile.q
        names = Names(
            getattr(self, "feature_names_in_", None), label_names if several else None, feature_column(container)
        )
        return self._with_columns(replace(open_rows(source), names=names), container)

    def _with_columns(self, rows: OpenedRows, container: Any) -> OpenedRows:
        """Attach the columns of AnnData's `obs`, if covariates, strata or clusters name columns."""
        if (self.covariates is None and self.strata is None and self.clusters is None) or rows.source.columns:
            return rows
        source, obs = rows.source, container.obs if is_anndata(container) else {}
        columns = {str(name): as_column(str(name), obs[name], source.profile.n) for name in obs}
        return replace(rows, source=RowView(source, columns=columns, feature_names=rows.names.features))

    def _set_features(self, d: int, names: Any) -> None:
        self.n_features_in_ = d
        if names is not None:
            self.feature_names_in_ = np.asarray([str(name) for name in names], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_names(self, names: Any) -> None:
        """Refuse columns with names other than the fitted ones, as scikit-learn does for tables."""
        fitted = getattr(self, "feature_names_in_", None)
        if fitted is None or np.array_equal(fitted, np.asarray([str(name) for name in names], dtype=object)):
            return
        raise DataError(
            "The feature names should match those that were passed during fit.",
            cure="give the same columns in the same order",
        )


class WeightedSelector(Selector):
    """Base class of estimators that support row weights."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        covariates: Any = None,
        strata: Any = None,
        clusters: Any = None,
        init: Mapping[str, Any] | None = None,
    ) -> Self:
        """Score all features and choose the best.

        Parameters
        ----------
        X, y, covariates, strata, clusters, init
            See `Selector.fit`.
        sample_weight : array-like, shape (n,), optional
            Weight of each row, at least 0; default 1. A row of weight 2 counts twice. With weights, NumPy counts rows
            instead of the compiled loops, and `LabelEntropy`, `ENM` and `GMM` make one more pass.

        Returns
        -------
        self

        Raises
        ------
        DataError, UsageError, DoesNotFitError
        """
        return self._fit(X, y, sample_weight, covariates=covariates, strata=strata, clusters=clusters, init=init)


class LabelRecoverer(Selector):
    """Base class of estimators that recover the labels of rows.

    Attributes
    ----------
    labels_ : float64 array, shape (n, q)
        Recovered labels, after a fit with the exact graph.
    """

    labels_: Array

    def recover_labels(self, X: Any, y: Any = None) -> Array:
        """Return the recovered labels of all rows, in the memory of this process.

        Parameters
        ----------
        X, y
            The fitted data, with its rows in the same order; with the anchor graph also other rows with the same
            features. Without y all labels count as unknown.

        Returns
        -------
        float64 array, shape (n, q)
            Equal to `labels_` after a fit with the exact graph. Makes one pass over X.

        Raises
        ------
        DataError
            If features or labels differ from the fit, if the rows differ from a fit with the exact graph, or if X has
            NaN or infinite values that are not filled.
        """
        source = self._rows_like_fitted(X, y)
        sink = ArraySink(source.profile.n, source.profile.q)
        self._fitted.write_labels(source, sink, runtime.own_resources(current_resources()))
        return sink.values

    def write_labels(self, X: Any, sink: RowSink, y: Any = None) -> None:
        """Write the recovered labels of all rows, on the workers that compute them, in one pass over X.

        Parameters
        ----------
        X, y
            See `recover_labels`.
        sink : RowSink

        Raises
        ------
        DataError, DoesNotFitError, ClusterLostError
        """
        self._fitted.write_labels(self._rows_like_fitted(X, y), sink)

    def _rows_like_fitted(self, X: Any, y: Any) -> RowSource:
        """Open rows with the features and labels of the fit; without y their labels are unknown."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit before")
        d, q = self.report_.d, self.report_.q
        X, y, names, _ = open_container(X, y)
        if y is None and not isinstance(X, RowSource) and not is_dataset(X):
            y = _unknown_labels(X, q)
        other = copy.copy(self)  # `_open` sets attributes, which must keep their values from the fit
        source = other._open(X, y).source
        names = getattr(other, "feature_names_in_", None) if names is None else names
        if names is not None:
            self._check_names(names)
        if (source.profile.d, source.profile.q) != (d, q):
            raise DataError(
                f"X has {number_of(source.profile.d, 'feature')} and Y {number_of(source.profile.q, 'label')}; "
                f"{self.plain.method} was fitted with {d:,} and {q:,}",
                cure="give the same columns in the same order",
            )
        return source


@functools.cache
def estimator_of(method: type[Method]) -> type[Selector]:
    """Return the estimator class of a method, with its name, constructor and documentation."""
    bases: tuple[type[Selector], ...] = (WeightedSelector if method.takes_weights else Selector,)
    if method.label_threshold is not None:
        bases = (LabelRecoverer, *bases)
    # Pickles refer to the class under its public module.
    facts = {"plain": method, "__init__": _constructor(method), "__doc__": _documentation(method)}
    return type(method.__name__, bases, {**facts, "__module__": "mlfs_dask"})


def _constructor(method: type[Method]) -> Callable[..., None]:
    """Return an `__init__` that stores parameters unchanged, with the signature for scikit-learn and `help`."""
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    hints = typing.get_type_hints(Question) | typing.get_type_hints(method)
    name = "n_features_to_select"
    count = first.replace(name=name, default=None, annotation=hints[name])
    others = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in parameters_of(method)
    ]
    kind = inspect.Parameter(
        "target_type", inspect.Parameter.KEYWORD_ONLY, default="labels", annotation=Literal["labels", "continuous"]
    )
    signature = inspect.Signature([first, count, *others, kind], return_annotation=None)

    def __init__(*args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{method.__name__}() {error}") from None
        bound.apply_defaults()
        (_, self), *params = bound.arguments.items()
        vars(self).update(params)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


#: Section headings of numpydoc within a class docstring.
_HEADING = re.compile(r"\n\n(?=    \w[\w ]*\n    -{3,}\n)")


def _documentation(method: type[Method]) -> str:
    """Build an estimator's docstring: the method's, with a section of parameters, costs and notes of its family."""
    prose, *sections = _HEADING.split((method.__doc__ or "").rstrip())
    count = textwrap.fill(
        f"Number of features to keep, or a fraction of them; half by default. {method.on_features}".rstrip(),
        112,
        initial_indent=" " * 8,
        subsequent_indent=" " * 8,
    )
    entries = [f"    n_features_to_select : int or float, optional\n{count}"]
    entries += [each.documentation for each in parameters_of(method)]
    entries.append(
        '    target_type : {"labels", "continuous"}, default "labels"\n'
        "        Kind of an array y: labels 1, 0, -1 and classes; or numeric targets, NaN for unknown. A store tells\n"
        "        its own kind."
    )
    parts = [prose, "    Parameters\n    ----------\n" + "\n".join(entries)]
    heading = "    Notes\n    -----"
    costs = textwrap.fill(
        f"Passes over X: {method.passes}. Memory: {method.memory}.",
        116,
        initial_indent="    ",
        subsequent_indent="    ",
    )
    own = [section.removeprefix(heading).strip("\n") for section in sections if section.startswith(heading)]
    notes = "\n\n".join(filter(None, [costs, method.family_notes.rstrip().strip("\n"), *own]))
    parts += [f"{heading}\n{notes}"]
    sections = [section for section in sections if not section.startswith(heading)]
    return "\n\n".join([*parts, *sections]) + "\n"


def methods() -> dict[str, str]:
    """Return the titles of all methods by class name; `help(mlfs_dask.ELC)` describes one.

    Examples
    --------
    >>> methods()["FisherScore"]
    'Fisher score with labels as classes'
    """
    return {each.__name__: each.title for each in map(get_method, sorted(METHODS))}


def get_estimator(name: str) -> type[Selector]:
    """Return the estimator class for a method's name, in upper or lower case.

    Raises
    ------
    UsageError
        If there is no such method; the message suggests similar names.
    """
    return estimator_of(get_method(name))  # type: ignore[arg-type]


def _unknown_labels(X: Any, q: int) -> Any:
    """Return unknown labels for all rows of X, in blocks if X has blocks."""
    if is_dask_array(X):
        import dask.array as da

        return da.full((X.shape[0], q), -1, dtype=np.int8, chunks=(X.chunks[0], (q,)))
    return sp.csr_array(np.full((np.shape(X)[0], q), -1, np.int8))


def _take_columns(X: Any, columns: NDArray[np.intp]) -> Any:
    """Select columns of a Dask array lazily, block by block.

    Parameters
    ----------
    X : dask Array, shape (n, d)
        Blocks of any type.
    columns : int array, shape (k,)
        Ascending.
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
