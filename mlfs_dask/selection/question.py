"""The question of a fit: a method, the number of features, the rows and labels to use, and the tests.

A method has only its own parameters. It receives the request for its rows as `Asked`, and the rows themselves through
the question's view.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.engine.readings import is_cached, run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DoesNotFitError, UsageError, number_of, parameter, require_extra
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.rows.contract import Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.rows.covariates import ArrayColumn, find_clusters, find_covariates, find_strata, read_weights
from mlfs_dask.rows.sources import BLOCK_BYTES
from mlfs_dask.rows.targets import TargetForm
from mlfs_dask.rows.view import RowView, UnknownLabels
from mlfs_dask.rows.weights import weighted_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.groups import GROUPS, Groups, read_groups
from mlfs_dask.selection.logistic_tests import logistic_steps
from mlfs_dask.selection.redundancy import part_size, planned_reading
from mlfs_dask.selectors import get_method
from mlfs_dask.selectors.contract import Method
from mlfs_dask.selectors.costs import Asked, Cost, Names, Plan, Reading, project, require_driver
from mlfs_dask.selectors.pairs import (
    AGGREGATE,
    CLUSTERS,
    PAIR_TESTS,
    RANKS,
    PairQuestion,
    pair_statistics,
    pairs_workspace,
)
from mlfs_dask.selectors.parameters import Param, Parameter, is_number, read_parameter
from mlfs_dask.selectors.scores import AUTO, count_kept
from mlfs_dask.statistics.clusters import cluster_scores, cluster_totals
from mlfs_dask.statistics.counts import CodeTests
from mlfs_dask.statistics.gram import GRAM_CAP, Gram
from mlfs_dask.statistics.missing import FILL_READING, fill_values
from mlfs_dask.statistics.products import LabelProducts, label_products
from mlfs_dask.statistics.ranks import rank_passes, rank_sums_size, rank_workspace
from mlfs_dask.statistics.targets import TARGETS, TargetSums
from mlfs_dask.statistics.write_rows import RowSink
from mlfs_dask.storage.subset_spec import list_features
from mlfs_dask.typing import Array, join_terms, numbers


@dataclass(frozen=True, eq=False, repr=False)
class Question:
    """A method, and the parameters that all methods share.

    `resolve_names` replaces feature names in `keep`, `exclude` and `groups` by numbers once the data is known; `view`,
    `plan`, `asked` and all other methods that use features need the numbers.
    """

    method: Method
    n_features_to_select: int | float | str | None = None
    _: KW_ONLY
    unknown: Annotated[
        UnknownLabels,
        Param(
            'Meaning of labels -1. "use": unknown; each label is evaluated on its known rows, or unknown entries '
            'are set to its mean. "refuse": an error. "negative": the same as 0.'
        ),
    ] = "use"
    keep: Annotated[
        str | None,
        Param(
            "Features to choose in any case, first and in this order: names or numbers separated by commas, or a "
            "file with one per line; in Python also a sequence.",
            also="Sequence[Any]",
            metavar="NAMES",
        ),
    ] = None
    exclude: Annotated[
        str | None,
        Param(
            "Features to exclude: never read, never chosen, last in the ranking. Given as `keep`.",
            also="Sequence[Any]",
            metavar="NAMES",
        ),
    ] = None
    pairs: Annotated[
        str | None,
        Param(
            'Table of label-feature pairs with effect, p and q. "best:N": the N most significant of every label; '
            '"significant": the pairs significant at the rate `fdr`; "all".',
            metavar="best:N|significant|all",
        ),
    ] = None
    log_base: Annotated[
        str | float | None,
        Param(
            "Base of the logarithms log(1 + x) that the values of X are, for fold changes in the table of pairs: e for "
            "scanpy's log1p, or a number. Without it the values themselves are compared.",
            metavar="e|NUMBER",
        ),
    ] = None
    pseudocount: Annotated[float, Param("Number added to both means of a fold change in the table of pairs.")] = 1e-9
    per_label: Annotated[
        int | None, Param("Number of most significant features to keep for every label, by the tests of pairs.")
    ] = None
    pair_test: Annotated[
        Literal["t", "rank", "logistic"],
        Param(
            'Test of a pair. "t": of means, or of the counts of a method that counts. "rank": rank sums (Wilcoxon), '
            'for skewed features. "logistic": score test of a logistic regression of the label on the feature.'
        ),
    ] = "t"
    direction: Annotated[
        Literal["both", "up", "down"],
        Param(
            'Sign of the pairs that count as associated. "up": features that are larger where the label is, such as '
            'markers; "down": smaller. Pairs of the other sign are in no list, and have the p-value 1 when p-values '
            "are adjusted."
        ),
    ] = "both"
    min_labels: Annotated[
        int | None,
        Param("Least number of labels that a kept feature is associated with, at the rate `fdr` over features."),
    ] = None
    control: Annotated[
        Literal["bh", "by", "holm", "partial", "knockoffs"] | None,
        Param(
            'Test of pairs, and its correction for multiple testing. "bh" (default), "by", "holm": association of '
            'label and feature, by Benjamini-Hochberg, Benjamini-Yekutieli or Holm. "partial", "knockoffs": '
            'association given all other features, by partial t-tests or knockoffs. With "auto", keeps the features '
            "discovered for any label at the rate `fdr`, without shuffles."
        ),
    ] = None
    fdr: Annotated[
        float,
        Param(
            'False discovery rate: expected share of false features among those kept by "auto", and of false pairs '
            "among those that `pairs` calls significant.",
            above=0,
            below=1,
        ),
    ] = 0.1
    start_: Annotated[
        str | None,
        Param(
            "Folder of an earlier run with the same method, parameters and store, whose choice is continued. "
            "For methods that choose one feature after another.",
            metavar="RUN",
        ),
    ] = None
    prune: Annotated[
        float | None,
        Param(
            "Absolute correlation with a better feature from which a feature is dropped; the next in the ranking "
            "replaces it.",
            above=0,
            most=1,
        ),
    ] = None
    redundancy: Annotated[
        float | None,
        Param(
            "Absolute correlation from which redundancy.csv lists features as one cluster; no feature is dropped.",
            above=0,
            most=1,
        ),
    ] = None
    groups: Annotated[
        str | None,
        Param(
            "Groups of features, chosen as a whole and counted by the number to choose: a file with feature,group on "
            "each line, or var:COLUMN of AnnData; in Python also a group for every feature, or a mapping.",
            also="Sequence[Any] | Mapping[str, Any]",
            metavar="FILE|var:COLUMN",
        ),
    ] = None
    group_by: Annotated[
        Literal["sum", "mean", "max", "joint"],
        Param(
            'Score of a group: "sum", "mean" or "max" of the scores of its features; "joint": adjusted R² of the '
            "labels on all its features, for filters based on moments."
        ),
    ] = "sum"
    covariates: Annotated[
        str | None,
        Param(
            "Covariates for which scores are adjusted: columns of the rows (`convert --obs`, obs of AnnData), and "
            "features as feature:NAME, separated by commas; in Python also a sequence.",
            also="Sequence[str]",
            metavar="NAMES",
        ),
    ] = None
    strata: Annotated[
        str | None,
        Param(
            "Column of the rows with their strata; labels and features are compared within strata.",
            metavar="COLUMN",
        ),
    ] = None
    strata_by: Annotated[
        Literal["sum", "rank"],
        Param(
            'Combination of strata. "sum": statistics are pooled in one pass. "rank": features are ranked by a '
            "separate fit within each stratum, then by their mean rank."
        ),
    ] = "sum"

    target_bins: Annotated[
        int | None,
        Param(
            "Number of quantile bins that each numeric target is cut into: it becomes 0/1 labels, one for each cut "
            "between bins, positive above the cut. For methods that need labels.",
            least=2,
        ),
    ] = None
    clusters: Annotated[
        str | None,
        Param(
            "Column of the rows with their clusters, or a text file with a line for every row: donors, patients, "
            "sites. Rows of a cluster are alike; tests, shuffles and resamples take whole clusters.",
            metavar="COLUMN|FILE",
        ),
    ] = None
    aggregate: Annotated[
        Literal["mean", "sum"] | None,
        Param("Replace the rows of each cluster by their mean or sum (pseudobulk), and select on these in memory."),
    ] = None

    weights: Annotated[
        str | None,
        Param(
            "Column of the rows with their weights; rows of weight 0 are left out. For methods whose fit takes "
            "sample_weight.",
            metavar="COLUMN",
        ),
    ] = None
    weight_kind: Annotated[
        Literal["frequency", "survey"],
        Param(
            'Meaning of weights. "frequency": a row of weight 2 stands for two equal rows. "survey": inverse '
            "probabilities of drawing a row; scaled to a mean of 1, and pairs are tested with robust variances."
        ),
    ] = "frequency"

    #: Destination of the recovered labels after the fit, for plans; no parameter.
    labels_sink: RowSink | None = None

    # ------------------------------------------------------------------ values

    def get_params(self) -> dict[str, Any]:
        """Return the values of all parameters, including the method's, in the order of their names."""
        common = {name: getattr(self, name) for name in ("n_features_to_select", *(each.name for each in COMMON))}
        return dict(sorted((self.method.get_params() | common).items()))

    def check(self) -> None:
        """Refuse invalid values, and combinations of parameters that contradict one another.

        Raises
        ------
        UsageError
        """
        self.method.check()
        for definition in COMMON:
            definition.check(getattr(self, definition.name))
        if self.pairs is not None and not re.fullmatch("best:[1-9][0-9]*|significant|all", self.pairs):
            raise UsageError(f"{parameter('pairs')} must be 'best:N', 'significant' or 'all'; got {self.pairs!r}")
        if self.pairs is not None:
            require_extra("pyarrow", f"the table of {parameter('pairs')}")
        if self.prune is not None and self.redundancy is not None:
            raise UsageError(f"{parameter('prune')} lists clusters, too; leave {parameter('redundancy')} out.")
        if self.groups is not None:
            self._check_groups()
        tested = self.is_auto or self.pair_question is not None
        self._require_effect("fdr", tested, parameter("n_features_to_select", AUTO), parameter("pairs"))
        asked = (*map(parameter, ("pairs", "per_label", "min_labels", "control")),)
        for name in ("direction", "pair_test"):
            self._require_effect(name, self.pair_question is not None, *asked)
        for name in ("log_base", "pseudocount"):
            self._require_effect(name, self.pairs is not None, parameter("pairs"))
        if self.weights is not None and not self.method.takes_weights:
            raise UsageError(
                f"{self.method.method} takes no weights of rows\n  cure: leave out {parameter('weights')}, or take a "
                "method of means and products or of counts, as br-cc or chi2"
            )
        self._require_effect("group_by", self.groups is not None, parameter("groups"))
        if self.start_ is not None and not self.method.chooses_in_turn:
            raise UsageError(
                f"{self.method.method} has nothing to go on from: it scores all features alike; more of them cost no "
                f"more. Leave {parameter('start_')} out; {parameter('keep', 'RUN/selected.txt')} keeps the features of "
                "a run."
            )

    def _require_effect(self, name: str, has_effect: bool, *others: str) -> None:
        """Refuse a non-default value of a parameter that has no effect without certain others."""
        if not has_effect and getattr(self, name) != getattr(Question, name):
            raise UsageError(
                f"{parameter(name)} changes nothing without {' or '.join(others)}\n  cure: give that too, or leave "
                f"{parameter(name)} out"
            )

    def _check_groups(self) -> None:
        """Refuse parameters that cannot be combined with groups of features."""
        single = {"prune": self.prune, "redundancy": self.redundancy}
        single |= {"resamples": getattr(self.method, "resamples", 0)}
        single |= {"per_label": self.per_label, "min_labels": self.min_labels}
        conflict = next((name for name, value in single.items() if value), None)
        if conflict is not None:
            raise UsageError(f"{parameter(conflict)} is of single features: leave it out, or {parameter('groups')}.")
        if self.is_auto:
            name = parameter("n_features_to_select")
            raise UsageError(f"{name} cannot be 'auto' with {parameter('groups')}: give a count of groups.")
        if self.group_by == "joint" and not self.method.has_joint_scores:
            raise UsageError(
                f"{self.method.method} is no filter of moments, which {parameter('group_by', 'joint')} is of: choose "
                "sum, mean or max, or a method such as br-cc."
            )

    @property
    def is_auto(self) -> bool:
        """True if the number of features follows from the data."""
        return self.n_features_to_select == AUTO

    @property
    def is_random(self) -> bool:
        """True if the fit draws random numbers, with the present parameters."""
        return self.method.is_random or (self.method.takes_seed() and self._shuffles)

    @property
    def _shuffles(self) -> bool:
        """True if the number of features follows from shuffles of the labels."""
        return self.is_auto and self.control is None and self.method.resamples_rows

    @property
    def ranks_strata(self) -> bool:
        """True if a separate fit ranks the features within each stratum."""
        return self.strata is not None and self.strata_by == "rank"

    @property
    def pair_question(self) -> PairQuestion | None:
        """Question for the tests of label-feature pairs; None without such tests."""
        if all(value is None for value in (self.pairs, self.per_label, self.min_labels, self.control)):
            return None
        rows, _, best = (self.pairs or "").partition(":")
        best_of_label = max(int(best or 0), self.per_label or 0)
        control = self.control or "bh"
        return PairQuestion(
            rows or None,
            best_of_label,
            control,
            self.fdr,
            self.method.seed,
            self.min_labels or 0,
            log_base=self._log_base,
            pseudocount=self.pseudocount,
            clusters=self.clusters is not None or self.weight_kind == "survey",
            test=self.pair_test,
            direction=self.direction,
        )

    @property
    def _log_base(self) -> float | None:
        """Value of `log_base` as a number.

        Raises
        ------
        UsageError
            If it is neither "e" nor a number above 1.
        """
        base = math.e if self.log_base == "e" else self.log_base
        if base is not None and not (is_number(base) and float(base) > 1):
            raise UsageError(f"{parameter('log_base')} must be 'e' or a number above 1; got {self.log_base!r}")
        return None if base is None else float(base)

    # ------------------------------------------------------------------ features and rows

    def resolve_names(self, names: Names, d: int) -> Question:
        """Return the question with feature numbers in place of the names in `keep`, `exclude` and `groups`.

        Parameters
        ----------
        names : Names
            Names of the data.
        d : int
            Number of features of the data.

        Raises
        ------
        UsageError
            If a feature does not exist, is named twice, or is both kept and excluded.
        DataError
            If a file of features cannot be read.
        """
        numbers: dict[str, Any] = {}
        if self.groups is not None and not isinstance(self.groups, Groups):
            numbers["groups"] = read_groups(self.groups, names, d)
        for option in ("keep", "exclude"):
            value = getattr(self, option)
            if value is not None:
                try:
                    numbers[option] = tuple(list_features(value, names.features, d).tolist())
                except UsageError as error:
                    raise UsageError(f"{parameter(option)}: {error}") from None
        both = sorted(set(numbers.get("keep", ())) & set(numbers.get("exclude", ())))
        if both:
            name = both[0] if names.features is None else repr(str(names.features[both[0]]))
            raise UsageError(
                f"{parameter('keep')} and {parameter('exclude')} both name feature {name}; leave it out of one of them."
            )
        return replace(self, **numbers)

    def features(self, d: int) -> NDArray[np.int64] | None:
        """Return the features to read, of d: all but the excluded ones; None for all.

        Raises
        ------
        UsageError
            If all features are excluded.
        """
        if self.exclude is None:
            return None
        features = np.delete(np.arange(d), np.asarray(self.exclude, np.int64))
        if not len(features):
            raise UsageError(f"{parameter('exclude')} leaves none of {number_of(d, 'feature')}.")
        return features

    def names(self, names: Names) -> Names:
        """Return the names of the columns to read."""
        if names.features is None or self.exclude is None:
            return names
        features = self.features(len(names.features))
        return replace(names, features=np.asarray(names.features, object)[features].tolist())

    @property
    def groups_read(self) -> Groups | None:
        """Groups of the features to read."""
        groups: Any = self.groups
        return groups.of_features(self.features(len(groups.group_of))) if isinstance(groups, Groups) else None

    def kept_features(self, d: int, k: int) -> NDArray[np.int64]:
        """Return the numbers, among the features to read, of the features in `keep`, in the given order.

        Parameters
        ----------
        d : int
            Number of features of the data.
        k : int
            Number of features or groups to choose.

        Raises
        ------
        UsageError
            If `keep` has more than k features.
        """
        groups: Any = self.groups
        keep = np.asarray(self.keep or (), np.int64)
        count, what = len(keep), "feature"
        if isinstance(groups, Groups):
            count, what = len(np.unique(groups.group_of[keep])), "group"
        if count > k:
            raise UsageError(
                f"{parameter('keep')} names {number_of(count, what)}, and {k:,} are to be chosen in all: give a "
                f"larger {parameter('n_features_to_select')}, which counts them, or keep fewer."
            )
        features = self.features(d)
        return keep if features is None else np.searchsorted(features, keep)

    def facts(self, names: Names) -> Mapping[str, Any]:
        """Return the entries of run.json about kept and excluded features and groups, by the names of the data."""

        def named(numbers: Any) -> list[Any]:
            return [number if names.features is None else str(names.features[number]) for number in numbers or ()]

        entries: dict[str, Any] = {"kept_features": named(self.keep), "excluded_features": named(self.exclude)}
        groups: Any = self.groups
        if groups is not None:
            entries["groups_digest"] = digest_of({"of": groups.group_of, "names": list(groups.names)})
        return {name: value for name, value in entries.items() if value}

    def view(self, source: RowSource) -> RowSource:
        """Return the rows for the method: without excluded features, with -1 treated as `unknown` says, and with
        covariates and strata.

        Raises
        ------
        UsageError
            If a covariate or the column of strata does not exist.
        DataError
            If there are too many strata.
        """
        source = self.weigh(source)
        features, unknown = self.features(source.profile.d), self.unknown
        if source.label_counts is not None and not source.label_counts[0].any():
            unknown = "use"
        if features is not None or unknown != "use":
            source = RowView(source, features=features, unknown=unknown)
        if source.profile.numeric and source.targets is None:
            source = RowView(source, targets=TargetForm.placeholder(source.profile.q, self.target_bins))
        if self.clusters is not None:
            source = RowView(source, clusters=find_clusters(source, self.clusters))
        elif self.weight_kind == "survey" and self.pair_question is not None:  # each row is a cluster
            rows: Any = range(source.profile.n)
            source = RowView(source, clusters=ArrayColumn("rows", np.arange(len(rows), dtype=np.int32), rows))
        pooled = None if self.ranks_strata else self.strata
        if pooled is not None and self.method.takes_strata:
            return RowView(source, strata=find_strata(source, pooled))
        if pooled is not None or self.covariates is not None:
            return RowView(source, covariates=find_covariates(source, self.covariates or (), pooled))
        return source

    def weigh(self, source: RowSource, sample_weight: Any = None) -> RowSource:
        """Return the rows with weights: given ones, or the column `weights`; rows that have weights are unchanged.

        Raises
        ------
        UsageError, DataError
        """
        if source.weights is not None:
            return source
        if sample_weight is None and self.weights is not None:
            sample_weight = read_weights(source, self.weights)
        return weighted_rows(source, sample_weight, mean_one=self.weight_kind == "survey")

    def asked(self, d: int) -> Asked:
        """Return the request to the method for rows with d features to read.

        Raises
        ------
        UsageError
            If there are too few features, or the method cannot determine their number.
        """
        groups, pairs = self.groups_read, self.pair_question
        if groups is not None:
            k = count_kept(self.n_features_to_select, len(groups.names), of="groups of features")
        else:
            k = self._count_features(d)
        return Asked(
            k,
            level=self.fdr if self._shuffles else None,
            pairs=pairs,
            pairs_first=self.is_auto and self.control is not None and not self.method.resamples_rows,
            unknown=self.unknown,
            labels_sink=self.labels_sink,
            names_unknown=pairs is not None or (groups is not None and self.group_by == "joint"),
        )

    def _count_features(self, d: int) -> int:
        if not self.is_auto:
            return count_kept(self.n_features_to_select, d)
        if not self.method.resamples_rows and self.control is None:
            why = "does not look at labels"
            if self.method.supervision != "unsupervised":
                why = "would have to learn again from every shuffle of the labels"
            name = self.method.method
            raise UsageError(
                f"{parameter('n_features_to_select')} cannot be 'auto' with {name}, which {why}. Give a "
                f"count, or let held-out rows choose it: mlfs evaluate STORE {name} --choose-k; or test every "
                f"feature with the labels: {parameter('control', 'bh')}"
            )
        return d

    # ------------------------------------------------------------------ checks without a pass

    def require_features(self, d: int) -> None:
        """Refuse data with too few features, or a `keep` with more features than are to be chosen.

        Raises
        ------
        UsageError
        """
        features = self.features(d)
        self.kept_features(d, self.asked(d if features is None else len(features)).k)

    def require_accepted(self, source: RowSource, names: Names) -> RowSource:
        """Refuse rows whose contents, as far as known without a pass, the method or a parameter does not support.

        Returns
        -------
        RowSource
            The `view` of the rows.

        Raises
        ------
        DataError
            If labels are unknown, or feature values are missing, and the method does not support it.
        UsageError
            If there are too few features, or scores cannot be adjusted for covariates.
        """
        self.require_features(source.profile.d)
        # Here, since `fit` may attach columns.
        self._require_effect("strata_by", self.strata is not None, parameter("strata"))
        self._require_effect("aggregate", self.clusters is not None, parameter("clusters"))
        source = self.weigh(source)
        has_weights = self.weights is not None or source.weights is not None
        self._require_effect("weight_kind", has_weights, parameter("weights"))
        counts = source.label_counts if self.unknown != "negative" else None
        source, names = self.view(source), self.names(names)
        if self.min_labels is not None and source.strata is None and self.min_labels > source.profile.q:
            there = number_of(source.profile.q, "label")
            raise UsageError(
                f"{parameter('min_labels')} is {self.min_labels}, and there are {there}\n  cure: give a number up to "
                f"{source.profile.q}"
            )
        if self.pair_question is not None and not source.profile.q:
            raise UsageError("there are no labels to test features with: leave out what asks for pairs of them")
        self._refuse_columns(source)
        self._refuse_targets(source)
        if counts is not None:
            self.method.refuse_unknown(counts[0], source.profile.total, names, self.unknown)
        self.method.refuse_missing(source.features.n_missing, names)
        return source

    def _refuse_targets(self, source: RowSource) -> None:
        """Refuse numeric targets that the method does not support, and parameters that are of labels alone.

        Raises
        ------
        UsageError
        """
        if source.targets is None:
            if self.target_bins is not None:
                raise UsageError(f"{parameter('target_bins')} cuts numeric targets, and Y holds labels: leave it out")
            return
        unsupervised = self.method.supervision == "unsupervised"
        if source.profile.numeric and not (self.method.takes_numbers or unsupervised):
            raise UsageError(
                f"{self.method.method} needs 0/1 labels, and Y holds numeric targets\n  cure: cut them at quantiles "
                f"({parameter('target_bins', 4)}), or take a method of means and products, as br-cc or anova-f (`mlfs "
                "methods` tells which)"
            )
        if source.profile.numeric and self.pair_question is not None and self.pair_question.given_others:
            raise UsageError(
                f"pairs given the other features are of 0/1 labels, and Y holds numeric targets\n  cure: choose "
                f"{parameter('control', 'bh')}, or {parameter('target_bins', 4)}"
            )
        if self.unknown == "negative":
            raise UsageError(f"{parameter('unknown', 'negative')} is of labels, and Y holds numeric targets")

    def _refuse_columns(self, source: RowSource) -> None:
        """Refuse covariates and strata that the method does not support.

        Raises
        ------
        UsageError
        """
        method, pairs = self.method, self.pair_question
        if self.is_auto and self.ranks_strata:
            raise UsageError(
                f"{parameter('n_features_to_select')} cannot be 'auto' with ranks in strata, each of which would "
                f"have a number of its own\n  cure: give a count, or choose {parameter('strata_by', 'sum')}"
            )
        if pairs is not None and self.ranks_strata:
            raise UsageError(
                f"pairs are not tested within strata that are ranked apart\n  cure: leave out what asks for pairs, or "
                f"choose {parameter('strata_by', 'sum')}"
            )
        if self.direction != "both" and self.control == "knockoffs":
            raise UsageError(
                f"knockoffs find features for both directions\n  cure: leave out {parameter('direction')}, or choose "
                f"{parameter('control', 'partial')}"
            )
        if self.min_labels is not None and self.control == "knockoffs":
            raise UsageError(
                f"knockoffs give no p-values, of which {parameter('min_labels')} is made\n  cure: choose "
                f"{parameter('control', 'partial')}"
            )
        if pairs is not None and pairs.test != "t":
            self._refuse_for_test(source, pairs)
        if pairs is not None and source.strata is not None and pairs.given_others:
            raise UsageError(
                f"{method.method} counts in strata, of which nothing is tested given the other features\n  cure: "
                f"choose {parameter('control', 'bh')}, or take a method of means and products, as br-cc"
            )
        if pairs is not None and pairs.clusters and (pairs.given_others or source.strata is not None):
            what = (
                "given the other features"
                if pairs.given_others
                else f"within the strata in which {method.method} counts"
            )
            raise UsageError(
                f"clusters of rows and weights of surveys are not allowed for in tests {what}\n  cure: choose "
                f"{parameter('control', 'bh')} and a method of means and products, as br-cc"
            )
        if self.clusters is not None and self._shuffles and (source.strata is not None or self.strata is not None):
            raise UsageError(
                f"labels are shuffled within strata or between clusters, not both\n  cure: choose "
                f"{parameter('control', 'bh')}, which tests pairs without shuffles, or leave out one of them"
            )
        options = [name for name in ("prune", "redundancy", "groups") if getattr(self, name) is not None]
        if options and (self.ranks_strata or (source.covariates is not None and self.group_by == "joint")):
            raise UsageError(
                f"{parameter(options[0])} is of scores of all rows that are not adjusted\n  cure: leave it out, or the "
                "covariates and strata"
            )
        if source.covariates is None or method.takes_covariates:
            return
        if self.covariates is None:
            raise UsageError(
                f"{method.method} cannot pool its scores over strata\n  cure: choose {parameter('strata_by', 'rank')}, "
                "which fits it within each stratum, or a method that can (mlfs methods tells which), as br-cc or chi2"
            )
        cure = f"give categories as {parameter('strata')}, or " if method.takes_strata else ""
        raise UsageError(
            f"{method.method} cannot be adjusted for covariates: its scores do not follow from means and products "
            f"alone\n  cure: {cure}take a method whose scores do (mlfs methods tells which), as br-cc, anova-f or mddm"
        )

    def _refuse_for_test(self, source: RowSource, pairs: PairQuestion) -> None:
        """Refuse rows and tests that rank tests or logistic regression do not support.

        Raises
        ------
        UsageError
        """
        refused = {
            f"given the other features ({parameter('control', pairs.control)})": pairs.given_others,
            "within strata": source.strata is not None or (self.strata is not None and pairs.test == "rank"),
            "of clusters of rows, or of weights of a survey": pairs.clusters,
            "of numeric targets": source.profile.numeric,
            "of weighted rows": source.weights is not None and pairs.test == "rank",
            "adjusted for covariates": source.covariates is not None and pairs.test == "rank",
        }
        for what in (what for what, refuses in refused.items() if refuses):
            raise UsageError(
                f"{parameter('pair_test', pairs.test)} has no tests {what}\n  cure: choose "
                f"{parameter('pair_test', 't')}"
            )

    # ------------------------------------------------------------------ costs

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """Return the plan of a fit. Reads no data, except cached statistics for filling missing values.

        Raises
        ------
        DoesNotFitError
            If no plan fits the workers, or the driver's share does not fit its process.
        """
        if self.aggregate is not None:
            return self._plan_of_clusters(source, resources)
        if self.ranks_strata:
            return self._plan_of_strata(source, resources)
        return self.plan_of_view(self.view(source) if isinstance(source, RowSource) else source, resources)

    def plan_of_view(self, view: Profile | RowSource, resources: Resources) -> Plan:
        """Return the `plan` for a view of the rows, without separate fits for strata."""
        cure = self.method.cure(profile_of(view))
        try:
            plan = self._project(view, resources)
        except DoesNotFitError as error:
            if not cure:
                raise
            projected, available = error.projected, error.available
            cure = f"{cure}, or {error.cure}"
            raise DoesNotFitError(error.what, projected=projected, available=available, cure=cure) from None
        what = f"{self.method.method} in the driver process"
        cure = f"{cure}, or run the command on a machine with more memory" if cure else ""
        return require_driver(plan, resources, what, cure=cure or None)

    def _project(self, view: Profile | RowSource, resources: Resources) -> Plan:
        """Return the plan for a view of the rows, including the pass that computes the fill values."""
        steps = []
        if isinstance(view, RowView) and view.targets is not None:
            targets = view.as_read().labels_only()
            steps.append(Reading(TARGETS, (TargetSums(targets.profile.q),), source=targets))
        if not isinstance(view, RowSource) or not self.method.fills(view):
            cost = self.cost(view, resources)
            return project(replace(cost, steps=[*steps, *cost.steps]), view, resources)
        statistics = tuple(self.method.fill_statistics(view))
        fill: Array | None = np.full(view.profile.d, np.nan)
        if all(is_cached(view, statistic) for statistic in statistics):
            fill = fill_values(statistics, run_reading(view, statistics, resources)[0], view.weights)
        filled = view if fill is None else RowView(view, fill=fill)
        cost = self.cost(filled, resources)
        first = Reading(FILL_READING, statistics, source=view)
        return project(replace(cost, steps=[*steps, first, *cost.steps]), filled, resources)

    def _plan_of_strata(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """Return the plan of separate fits within all strata; each reads at most all partitions."""
        within = self.within_stratum
        if isinstance(source, Profile) or self.strata is None:
            return within.plan(source, resources)
        # As for any subset of rows, facts that hold for all rows are unknown.
        plan = within.plan(RowView(source, range(source.profile.n)), resources)
        n_strata = len(find_strata(source, self.strata).categories or ())
        typical = [
            None if pair is None else (n_strata * pair[0], n_strata * pair[1])
            for pair in (plan.typical_passes, plan.typical_bytes_read)
        ]
        return replace(
            plan,
            passes=n_strata * plan.passes,
            tasks=n_strata * plan.tasks,
            bytes_read=n_strata * plan.bytes_read,
            typical_passes=typical[0],
            typical_bytes_read=typical[1],
            notes=(*plan.notes, f"a fit within each of {n_strata:,} strata"),
        )

    def _plan_of_clusters(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """Return the plan of a pass that aggregates clusters, and of the fit to the aggregated rows in memory."""
        view, of_clusters = self.aggregated_view(source), self.of_clusters
        totals = cluster_totals(view)
        G, d, q = totals.n_clusters, totals.n_features, totals.n_labels
        steps = [Reading(AGGREGATE, (totals,), workspace="2 G d + 4 G q")]
        first = project(Cost(steps, {"G": G, "d": d, "q": q}), view, resources)
        row_bytes, profile = 8 * d, replace(profile_of(view), weight=None, arrays=(), remote=False, foreign=False)
        rows = min(G, max(1, BLOCK_BYTES // max(row_bytes, 1)))
        in_memory = replace(
            profile, n=G, sparse=False, dtype=np.dtype(np.float64), nonzeros=G * d, partitions=-(-G // rows),
            label_nonzeros=min(G * q, profile.label_nonzeros), block_rows=rows, block_bytes=rows * row_bytes,
            buffer_bytes=0, read_bytes=0,
        )  # fmt: skip
        then, held = of_clusters.plan_of_view(in_memory, resources), 8 * G * (d + 2 * q)
        return replace(
            then,
            passes=first.passes + then.passes,
            tasks=first.tasks + then.tasks,
            bytes_read=first.bytes_read,
            peak_worker_bytes=max(first.peak_worker_bytes, then.peak_worker_bytes + held * (resources.client is None)),
            peak_driver_bytes=max(first.peak_driver_bytes, then.peak_driver_bytes + held),
            arrays={**first.arrays, **then.arrays},
            notes=(*then.notes, f"after a pass that aggregates the rows of {G:,} clusters"),
            readings=first.readings,
        )

    @property
    def of_clusters(self) -> Question:
        """Question of the fit to the aggregated rows of clusters."""
        return replace(self, clusters=None, aggregate=None, weights=None, weight_kind="frequency")

    def aggregated_view(self, source: Profile | RowSource) -> Any:
        """Return the rows for the pass that aggregates clusters."""
        if isinstance(source, Profile) or self.clusters is None:
            return source
        return RowView(source, clusters=find_clusters(source, self.clusters), unknown=self.unknown)

    @property
    def within_stratum(self) -> Question:
        """Question of the fit within one stratum."""
        return replace(self, strata=None, strata_by="sum")

    def method_cost(self, view: Profile | RowSource, resources: Resources) -> Cost:
        """Return the cost of the method alone for a view of the rows."""
        return self.method.cost(view, resources, self.asked(profile_of(view).d))

    def cost(self, view: Profile | RowSource, resources: Resources) -> Cost:
        """Return the `method_cost`, with the tests of pairs and the passes that follow scoring."""
        profile, asked = profile_of(view), self.asked(profile_of(view).d)
        cost = self.method.cost(view, resources, asked)
        if asked.pairs is not None:
            cost = _with_pairs(cost, view, asked.pairs, first=asked.pairs_first)
        d, held = profile.d, join_terms("12 d", "pairs" if asked.pairs is not None else "")
        groups = self.groups_read
        if groups is not None and self.group_by == "joint":
            joint = joint_statistics(view, groups)
            grams, reading = joint[1], Reading(GROUPS, joint, workspace=held)
            sizes = {**cost.sizes, "d": d, "q": profile.q, "grams": numbers(grams.result_bytes)}
            return replace(cost, steps=[*cost.steps, reading, join_terms(held, "2 q d + 2 grams")], sizes=sizes)
        if self.prune is None and self.redundancy is None:
            return cost
        # "auto" may keep any number of features: plan for the number at which parts of the ranking are largest.
        k = min(d, GRAM_CAP // 2) if self.is_auto else asked.k
        reading = planned_reading(view, k, fills_up=self.prune is not None)
        steps = [*cost.steps, replace(reading, workspace=held), join_terms(held, "3 part part")]
        return replace(cost, steps=steps, sizes={**cost.sizes, "d": d, "part": part_size(k, d)})

    def first_statistics(self, source: RowSource, resources: Resources) -> Sequence[Statistic]:
        """Return the statistics of a fit's first pass: those for fill values, or `Method.first_reading`.

        Raises
        ------
        DoesNotFitError
        """
        if self.exclude is not None or self.ranks_strata or self.view(source) is not source:
            return ()  # the features, rows or labels differ from the store's
        if self.method.fills(source):
            return self.method.fill_statistics(source)
        asked = self.asked(source.profile.d)
        first = self.method.first_reading(source, resources, asked)
        if not first or asked.pairs is None or any(isinstance(statistic, CodeTests) for statistic in first):
            return first
        return [*first, *pair_statistics(source, asked.pairs)]


_HINTS = typing.get_type_hints(Question, include_extras=True)

#: Parameters of all methods, besides `n_features_to_select`.
COMMON: tuple[Parameter, ...] = tuple(
    read_parameter(field.name, _HINTS[field.name], field.default, "Question")
    for field in dataclasses.fields(Question)
    if typing.get_origin(_HINTS[field.name]) is Annotated
)


def parameters_of(method: type[Method]) -> tuple[Parameter, ...]:
    """Return all parameters but `n_features_to_select`: the method's, then those of all methods."""
    return (*method.parameters, *COMMON)


def ask(
    method: str | type[Method],
    n_features_to_select: int | float | str | None = None,
    *,
    seed: int | None = None,
    **params: Any,
) -> Question:
    """Return the question for a method's name and values of `parameters_of`.

    `seed` becomes the `random_state` of a method that draws random numbers, unless one is given.

    Raises
    ------
    UsageError
        If there is no such method.
    """
    cls = get_method(method) if isinstance(method, str) else method
    common = {definition.name: params.pop(definition.name) for definition in COMMON if definition.name in params}
    if seed is not None and cls.takes_seed():
        params.setdefault("random_state", seed)
    return Question(cls(**params), n_features_to_select, **common)


def joint_statistics(view: Profile | RowSource, groups: Groups) -> tuple[LabelProducts, Gram]:
    """Return the statistics from which joint scores of groups of features are computed."""
    profile = profile_of(view)
    unknown, weighted = unknown_labels(view), profile.weight is not None
    larger = [members for members in groups.members() if len(members) > 1]
    return label_products(view), Gram(profile.d, groups=larger, unknown=unknown, weighted=weighted)


def _with_pairs(cost: Cost, view: Profile | RowSource, pairs: PairQuestion, *, first: bool) -> Cost:
    """Add the cost of tests of pairs: in a pass before all others, or together with the first pass over all rows.

    A method that counts includes the tests of its counts in its own passes.
    """
    profile, steps = profile_of(view), list(cost.steps)
    planned = [statistic for step in steps if isinstance(step, Reading) for statistic in step.statistics]
    sums = numbers(sum(statistic.result_bytes for statistic in planned if isinstance(statistic, CodeTests)))
    if not sums:
        statistics = pair_statistics(view, pairs)
        sums = numbers(sum(statistic.result_bytes for statistic in statistics))
        if len(unknown_labels(view)):
            sums += 4 * profile.q * profile.d  # means, squares and shapes of features over the rows of each label
        sums += profile.q * profile.d * bool(profile.covariates)  # sums that are not adjusted
        index = next((i for i, step in enumerate(steps) if _reads_rows(step)), 0)
        step = steps[index] if steps else ""
        if isinstance(step, Reading) and _reads_rows(step) and step.times == 1 and not first:
            steps[index] = replace(step, statistics=(*step.statistics, *statistics))
        else:
            steps.insert(0, Reading(PAIR_TESTS, statistics))
            index = 0
        if pairs.clusters:
            steps.insert(index + 1, Reading(CLUSTERS, (cluster_scores(view),)))
        if pairs.test == "logistic" and profile.covariates:
            steps[index + 1 : index + 1] = logistic_steps(view)
            cost = replace(cost, sizes={**cost.sizes, "C": 1 + profile.covariates, "q": profile.q, "d": profile.d})
        if pairs.test == "rank":
            steps.insert(index + 1, Reading(RANKS, (), times=rank_passes(profile), workspace="ranks"))
            sums += rank_sums_size(profile, len(unknown_labels(view)))
            cost = replace(cost, sizes={**cost.sizes, "ranks": rank_workspace(profile)})
    after_first = 1 + next(i for i, step in enumerate(steps) if isinstance(step, Reading))
    for i, step in enumerate(steps[after_first:], start=after_first):
        workspace = step if isinstance(step, str) else step.workspace
        workspace = join_terms(workspace, "pairs")
        steps[i] = workspace if isinstance(step, str) else replace(step, workspace=workspace)
    workspace, sizes = pairs_workspace(pairs, profile.q, profile.d)
    return replace(cost, steps=[*steps, join_terms("pairs", workspace)], sizes={**cost.sizes, **sizes, "pairs": sums})


def _reads_rows(step: Reading | str) -> bool:
    """Return True if a step reads the features of all rows of the job."""
    return isinstance(step, Reading) and bool(step.statistics) and not step.labels_only and step.source is None
