"""A method as data: its parameters, its name and its paper; checks, options and documentation are made of them.

A parameter is a field of a class under `method` or `family`, annotated with its type and a `Param`:

    @method("mddm", "Maximum dependence", paper="Zhang & Zhou 2010, ACM TKDD 4, 14", doi="10.1145/1839490.1839495")
    class MDDM(ProductFilter):
        mu: Annotated[float, Param("Weight of X'HX beside the identity.", below=1)] = 0.5

Constructor and signature are the dataclass's. From the same fields come the checks of values (`Method.check`), the
options of the command line, the Parameters section of the documentation and the JSON schema of batches.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.rounding import SAME
from mlfs_dask.engine.readings import is_cached, run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, UsageError, number_of, parameter
from mlfs_dask.rows.contract import Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.rows.covariates import find_covariates, find_strata, labels_of_strata
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import Cost, Names, Plan, Reading, Readings, project
from mlfs_dask.selectors.groups import GROUPS, Groups
from mlfs_dask.selectors.pairs import PAIR_TESTS, PairQuestion, pair_statistics, pairs_workspace
from mlfs_dask.selectors.parameters import (
    AskedPairs,
    BestOfLabel,
    Covariates,
    Exclude,
    FalseDiscoveryRate,
    GroupBy,
    GroupsOf,
    Keep,
    MinLabels,
    Parameter,
    Prune,
    PValueControl,
    Redundancy,
    Start,
    Strata,
    StrataBy,
    Unknown,
    bare_type,
    draw_seed,
    read_parameter,
)
from mlfs_dask.selectors.redundancy import part_size, planned_reading
from mlfs_dask.selectors.scores import AUTO, Scores, count_kept, known_in_no_row, round_scores, unknown_labels_error
from mlfs_dask.statistics.gram import GRAM_CAP, Gram
from mlfs_dask.statistics.missing import FILL_READING, fill_statistics, fill_values
from mlfs_dask.statistics.products import LabelProducts, label_products
from mlfs_dask.typing import Array, join_terms, numbers

_M = TypeVar("_M", bound="Method")


class UnknownLabelsFound(Exception):
    """Labels of which a reading has found unknown entries, where nothing had told so before: of a Dask array."""

    def __init__(self, labels: NDArray[np.int64]) -> None:
        super().__init__(f"labels {labels.tolist()} have unknown entries")
        self.labels = labels


@dataclass(eq=False, repr=False)
class Method:
    """Base class of published methods: parameters, what a fit reads and holds, and how it scores.

    A method implements `cost` and `score`. It keeps nothing of a fit: rows, readings and names of columns come with
    `readings`, and what a fit gives are `Scores`. `mlfs_dask.selection` fits methods, and makes scikit-learn's
    estimators of them.
    """

    #: Name on the command line.
    method: ClassVar[str]
    #: One line: what it is called.
    title: ClassVar[str]
    #: Authors, year, journal.
    paper: ClassVar[str]
    doi: ClassVar[str]
    #: All parameters but those of this class: its own before those of its family.
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    #: Parameters of this class, which every method has, but `n_features_to_select`.
    common_parameters: ClassVar[tuple[Parameter, ...]] = ()
    #: What the documentation says of `n_features_to_select` after its first sentence.
    on_features: ClassVar[str] = ""
    #: Notes that all methods of a family share.
    family_notes: ClassVar[str] = ""
    #: What labels it needs: "supervised", "semi-supervised", "unsupervised".
    supervision: ClassVar[str] = "supervised"
    #: How many readings of X, in words.
    passes: ClassVar[str]
    #: How memory grows, in words, with the size letters.
    memory: ClassVar[str]
    #: Iterations of its loop on real data, the least and the most; None where no loop reports its steps.
    typical_iterations: ClassVar[tuple[int, int] | None] = None
    #: Whether each label is taken over the rows where it is known (`RowSource.unknown_labels`).
    known_entries: ClassVar[bool] = False
    #: Whether its loop leaves checkpoints (`mlfs_dask.engine.checkpoints`), from which a fit can go on.
    keeps_checkpoints: ClassVar[bool] = False
    #: Whether the best 10 features are not the first 10 of the best 20: a choice is learnt for one k.
    choice_depends_on_k: ClassVar[bool] = False
    #: Whether scores rest on counts, which are the same bits wherever a feature stands; others are rounded.
    scores_from_counts: ClassVar[bool] = False
    #: Whether scores can be adjusted for covariates of the rows: they follow from `LabelMoments` and X'X alone.
    takes_covariates: ClassVar[bool] = False
    #: Whether scores can be pooled over strata of the rows, in one reading, where they cannot be adjusted.
    takes_strata: ClassVar[bool] = False
    #: Whether rows may have weights.
    takes_weights: ClassVar[bool] = False
    #: Whether it learns from shuffled and resampled rows too (`mlfs_dask.selectors.one_reading`).
    resamples_rows: ClassVar[bool] = False
    #: Whether it chooses one feature after another, so that a choice goes on from an earlier one.
    chooses_in_turn: ClassVar[bool] = False
    #: Whether the joint statistic of a group's features, from moments, is one of its kind.
    has_joint_scores: ClassVar[bool] = False
    #: Arrays that its published form can start from (`init` of `fit` in Python), and their shapes in size letters.
    init_shapes: ClassVar[Mapping[str, str]] = {}
    #: The value above which a recovered label applies; None where a fit recovers no labels.
    label_threshold: ClassVar[float | None] = None

    n_features_to_select: int | float | str | None = None
    _: KW_ONLY
    unknown: Unknown = "use"
    keep: Keep = None
    exclude: Exclude = None
    pairs: AskedPairs = None
    per_label: BestOfLabel = None
    min_labels: MinLabels = None
    control: PValueControl = None
    fdr: FalseDiscoveryRate = 0.1
    start_: Start = None  # loops have a function of the plain name
    prune: Prune = None
    redundancy: Redundancy = None
    groups: GroupsOf = None
    group_by: GroupBy = "sum"
    covariates: Covariates = None
    strata: Strata = None
    strata_by: StrataBy = "sum"

    def check(self) -> None:
        """Refuse values that parameters cannot have. A method adds rules between parameters.

        Raises
        ------
        UsageError
        """
        for each in self.all_parameters():
            each.check(getattr(self, each.name))
        if self.pairs is not None and not re.fullmatch("best:[1-9][0-9]*|significant|all", self.pairs):
            raise UsageError(f"{parameter('pairs')} must be 'best:N', 'significant' or 'all'; got {self.pairs!r}")
        if self.prune is not None and self.redundancy is not None:
            raise UsageError(f"{parameter('prune')} lists clusters, too; leave {parameter('redundancy')} out.")
        if self.groups is not None:
            self._check_groups()
        self._check_effects()
        if self.start_ is not None and not self.chooses_in_turn:
            raise UsageError(
                f"{self.method} has nothing to go on from: it scores all features alike; more of them cost no more. "
                f"Leave {parameter('start_')} out; {parameter('keep', 'RUN/selected.txt')} keeps the features of a run."
            )

    def _check_effects(self) -> None:
        """Refuse values of parameters that change nothing without another one."""
        asked = {
            "fdr": (self.n_features_to_select == AUTO or self.asks_pairs, ("n_features_to_select", AUTO), "pairs"),
            "group_by": (self.groups is not None, ("groups",), None),
        }
        for each in self.all_parameters():
            needed = asked.get(each.name)
            if needed is None or needed[0] or getattr(self, each.name) == each.default:
                continue
            others = [parameter(*needed[1]), *([parameter(needed[2])] if needed[2] else [])]
            raise UsageError(
                f"{parameter(each.name)} changes nothing without {' or '.join(others)}\n  cure: give that too, or "
                f"leave {parameter(each.name)} out"
            )

    def _check_groups(self) -> None:
        """Refuse what groups of features cannot be asked together with."""
        of_features = {"prune": self.prune, "redundancy": self.redundancy, "resamples": getattr(self, "resamples", 0)}
        of_features |= {"per_label": self.per_label, "min_labels": self.min_labels}
        other = next((name for name, value in of_features.items() if value), None)
        if other is not None:
            raise UsageError(f"{parameter(other)} is of single features: leave it out, or {parameter('groups')}.")
        if self.n_features_to_select == AUTO:
            name = parameter("n_features_to_select")
            raise UsageError(f"{name} cannot be 'auto' with {parameter('groups')}: give a count of groups.")
        if self.group_by == "joint" and not self.has_joint_scores:
            raise UsageError(
                f"{self.method} is no filter of moments, which {parameter('group_by', 'joint')} is of: choose sum, "
                "mean or max, or a method such as br-cc."
            )

    @classmethod
    def all_parameters(cls) -> tuple[Parameter, ...]:
        """All parameters but `n_features_to_select`: those of the method, and then those that every method has."""
        own = {each.name for each in cls.parameters}
        return cls.parameters + tuple(each for each in cls.common_parameters if each.name not in own)

    def get_params(self) -> dict[str, Any]:
        """Values of all parameters by name, in the order of names."""
        return {name: getattr(self, name) for name in sorted(field.name for field in dataclasses.fields(self))}

    @property
    def seed(self) -> int:
        """Where whatever is random begins."""
        return draw_seed(copy.deepcopy(getattr(self, "random_state", None)))

    @classmethod
    def takes_seed(cls) -> bool:
        """Whether a parameter is the seed of what is drawn at random."""
        return any(each.seeds for each in cls.parameters)

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn at random, with the parameters as they are."""
        return self.takes_seed()

    def count_kept(self, d: int) -> int:
        """Number of features to keep out of `d`; d with "auto", where the data has to tell.

        Raises
        ------
        UsageError
        """
        if self.n_features_to_select != AUTO:
            return count_kept(self.n_features_to_select, d)
        if not self.resamples_rows and self.control is None:
            why = "does not look at labels"
            if self.supervision != "unsupervised":
                why = "would have to learn again from every shuffle of the labels"
            raise UsageError(
                f"{parameter('n_features_to_select')} cannot be 'auto' with {self.method}, which {why}. Give a "
                f"count, or let held-out rows choose it: mlfs evaluate STORE {self.method} --choose-k; or test every "
                f"feature with the labels: {parameter('control', 'bh')}"
            )
        return d

    # ------------------------------------------------------------------ what a fit reads, and how it scores

    def cost(self, source: Profile | RowSource, resources: Resources) -> Cost:
        """What a fit reads and what the driver holds. No data is touched."""
        raise NotImplementedError

    def score(self, readings: Readings, k: int) -> Scores:
        """Scores of all features, from readings of the rows.

        Parameters
        ----------
        readings : Readings
        k : int
            Features to keep; d with n_features_to_select="auto", where `Scores.discovered` is what is kept.
        """
        raise NotImplementedError

    def first_reading(self, source: RowSource, resources: Resources) -> Sequence[Statistic]:
        """What a fit reads first of rows that lack nothing, so that fits of one store can read it together.

        Empty where it has to be asked.
        """
        return ()

    def iterations_on(self, profile: Profile) -> tuple[int, int] | None:
        """`typical_iterations`, of data with these sizes where they matter."""
        return self.typical_iterations

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """What a fit will cost. Integers only; no data is touched but what missing values are filled with, if cached.

        Raises
        ------
        DoesNotFitError
            When no plan fits the workers.
        """
        if self.ranks_strata:
            return self._plan_of_strata(source, resources)
        if isinstance(source, RowSource):
            source = self.rows(source)
        if not isinstance(source, RowSource) or not self.fills(source):
            return project(self._whole_cost(source, resources), source, resources)
        statistics = tuple(self.fill_statistics(source))
        fill: Array | None = np.full(source.profile.d, np.nan)
        if all(is_cached(source, statistic) for statistic in statistics):
            fill = fill_values(statistics, run_reading(source, statistics, resources)[0], source.weights)
        filled = source if fill is None else RowView(source, fill=fill)
        cost = self._whole_cost(filled, resources)
        first = Reading(FILL_READING, statistics, source=source)
        return project(replace(cost, steps=[first, *cost.steps]), filled, resources)

    def _whole_cost(self, source: Profile | RowSource, resources: Resources) -> Cost:
        """`cost`, with what tests of pairs read, and what is read after the features were scored."""
        cost, profile = self._with_pairs(self.cost(source, resources), source), profile_of(source)
        d, held = profile.d, join_terms("12 d", "pairs" if self.asks_pairs else "")
        groups: Any = self.groups
        if isinstance(groups, Groups) and self.group_by == "joint":
            groups = groups.of_features(self.features(len(groups.of)))
            joint = self.joint_statistics(source, groups)
            grams, reading = joint[1], Reading(GROUPS, joint, workspace=held)
            sizes = {**cost.sizes, "d": d, "q": profile.q, "grams": numbers(grams.result_bytes)}
            return replace(cost, steps=[*cost.steps, reading, join_terms(held, "2 q d + 2 grams")], sizes=sizes)
        if self.prune is None and self.redundancy is None:
            return cost
        # How many "auto" will keep is not known: so many that parts of the ranking are largest.
        k = min(d, GRAM_CAP // 2) if self.n_features_to_select == AUTO else self.count_kept(d)
        reading = planned_reading(source, k, fills_up=self.prune is not None)
        steps = [*cost.steps, replace(reading, workspace=held), join_terms(held, "3 part part")]
        return replace(cost, steps=steps, sizes={**cost.sizes, "d": d, "part": part_size(k, d)})

    def joint_statistics(self, source: Profile | RowSource, groups: Groups) -> tuple[LabelProducts, Gram]:
        """What joint scores of groups of features follow from."""
        profile = profile_of(source)
        unknown, weighted = unknown_labels(source), profile.weight is not None
        return label_products(source), Gram(profile.d, groups=groups.together, unknown=unknown, weighted=weighted)

    def _plan_of_strata(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """What a fit within every stratum costs: each reads the partitions that have some of its rows, at most all."""
        within = copy.copy(self)
        within.strata, within.strata_by = None, "sum"
        if isinstance(source, Profile) or self.strata is None:
            return within.plan(source, resources)
        # Of some rows it is not known what may be known of all.
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

    def first_statistics(self, source: RowSource, resources: Resources) -> Sequence[Statistic]:
        """What a fit reads first: what missing values are filled with, or `first_reading`.

        Raises
        ------
        DoesNotFitError
        """
        if self.exclude is not None or self.ranks_strata or self.rows(source) is not source:
            return ()  # of features, rows and labels that are not those of the store
        if self.fills(source):
            return self.fill_statistics(source)
        first = self.first_reading(source, resources)
        return [*first, *self._pair_statistics_with(first, source)] if first and self.asks_pairs else first

    # ------------------------------------------------------------------ pairs of labels and features

    def _pair_statistics_with(self, first: Sequence[Statistic], source: RowSource) -> Sequence[Statistic]:
        """What the tests of pairs follow from, beside the statistics of a first reading."""
        return pair_statistics(source, self.pair_question)

    @property
    def asks_pairs(self) -> bool:
        """Whether labels and features are tested pair by pair."""
        return any(each is not None for each in (self.pairs, self.per_label, self.min_labels, self.control))

    @property
    def pair_question(self) -> PairQuestion:
        """What is asked of pairs."""
        rows, _, best = (self.pairs or "").partition(":")
        best_of_label = max(int(best or 0), self.per_label or 0)
        return PairQuestion(
            rows or None, best_of_label, self.control or "bh", self.fdr, self.seed, self.min_labels or 0
        )

    @property
    def _tests_first(self) -> bool:
        """Whether pairs are tested before features are scored: how many to keep then follows from the tests."""
        return self.n_features_to_select == AUTO and self.control is not None and not self.resamples_rows

    def _with_pairs(self, cost: Cost, source: Profile | RowSource) -> Cost:
        """The cost with what tests of pairs read and hold."""
        if not self.asks_pairs:
            return cost
        profile = profile_of(source)
        cost, held = self._pair_reading(cost, source)
        first = next(i for i, step in enumerate(cost.steps) if isinstance(step, Reading))
        steps: list[Reading | str] = list(cost.steps[: first + 1])
        for step in cost.steps[first + 1 :]:
            if isinstance(step, str):
                steps.append(join_terms(step, "pairs"))
            else:
                steps.append(replace(step, workspace=join_terms(step.workspace, "pairs")))
        workspace, sizes = pairs_workspace(self.pair_question, profile.q, profile.d)
        return replace(
            cost,
            steps=[*steps, join_terms("pairs", workspace)],
            sizes={**cost.sizes, **sizes, "pairs": held},
        )

    def _pair_reading(self, cost: Cost, source: Profile | RowSource) -> tuple[Cost, int]:
        """The cost with the sums for tests, in the first reading of all rows or in one before it, and their numbers."""
        statistics, steps = pair_statistics(source, self.pair_question), list(cost.steps)
        held = numbers(sum(statistic.result_bytes for statistic in statistics))
        if len(unknown_labels(source)):
            profile = profile_of(source)
            held += 4 * profile.q * profile.d  # means, squares and shapes of features over the rows of each label
        place = next((i for i, step in enumerate(steps) if _reads_rows(step)), 0)
        first = steps[place] if steps else ""
        if isinstance(first, Reading) and _reads_rows(first) and first.times == 1 and not self._tests_first:
            steps[place] = replace(first, statistics=(*first.statistics, *statistics))
        else:
            steps.insert(0, Reading(PAIR_TESTS, statistics))
        return replace(cost, steps=steps), held

    # ------------------------------------------------------------------ what it takes

    def features(self, d: int) -> NDArray[np.int64] | None:
        """The features that it reads, of d: all but those that `exclude` names by numbers; None for all."""
        if self.exclude is None:
            return None
        features = np.delete(np.arange(d), np.asarray(self.exclude, np.int64))
        if not len(features):
            raise UsageError(f"{parameter('exclude')} leaves none of {number_of(d, 'feature')}.")
        return features

    def rows(self, source: RowSource) -> RowSource:
        """The rows as the method sees them: without features that are excluded, with labels -1 as `unknown` says, and
        with covariates and strata.

        Raises
        ------
        UsageError
            A covariate or the strata are not there.
        DataError
            There are too many strata.
        """
        features, unknown = self.features(source.profile.d), self.unknown
        if source.label_counts is not None and not source.label_counts[0].any():
            unknown = "use"
        if features is not None or unknown != "use":
            source = RowView(source, features=features, unknown=unknown)
        pooled = None if self.ranks_strata else self.strata
        if pooled is not None and self.takes_strata:
            return RowView(source, strata=find_strata(source, pooled))
        if pooled is not None or self.covariates is not None:
            return RowView(source, covariates=find_covariates(source, self.covariates or (), pooled))
        return source

    def names(self, names: Names) -> Names:
        """The names of the columns of `rows`."""
        if names.features is None or self.exclude is None:
            return names
        features = self.features(len(names.features))
        return replace(names, features=np.asarray(names.features, object)[features].tolist())

    @property
    def _missing(self) -> str:
        """What missing feature values are."""
        return getattr(self, "missing", "error")

    def fills(self, source: RowSource) -> bool:
        """Whether missing features are to be filled in, and may be there."""
        if self._missing not in ("mean", "median"):
            return False
        n_missing = source.features.n_missing
        return n_missing is None or bool(n_missing.any())

    def fill_statistics(self, source: RowSource) -> list[Statistic]:
        """What tells by what missing features are filled in."""
        return fill_statistics(source.profile, self._missing, self.seed)

    def require_accepted(self, source: RowSource, names: Names) -> None:
        """Refuse rows that are known, without a reading, to hold what the method does not take.

        Raises
        ------
        DataError
            Some labels are unknown, or feature values missing.
        UsageError
            It cannot be adjusted for covariates.
        """
        if self.strata_by != "sum" and self.strata is None:
            raise UsageError(
                f"{parameter('strata_by')} changes nothing without {parameter('strata')}\n  cure: give that too, or "
                f"leave {parameter('strata_by')} out"
            )
        counts = source.label_counts if self.unknown != "negative" else None
        source, names = self.rows(source), self.names(names)
        if self.min_labels is not None and source.strata is None and self.min_labels > source.profile.q:
            there = number_of(source.profile.q, "label")
            raise UsageError(
                f"{parameter('min_labels')} is {self.min_labels}, and there are {there}\n  cure: give a number up to "
                f"{source.profile.q}"
            )
        if self.asks_pairs and not source.profile.q:
            raise UsageError("there are no labels to test features with: leave out what asks for pairs of them")
        self._refuse_columns(source)
        if counts is not None:
            self.refuse_unknown(counts[0], source.profile.total, names)
        self.refuse_missing(source.features.n_missing, names)

    def _refuse_columns(self, source: RowSource) -> None:
        """Refuse covariates and strata where the method does not take them.

        Raises
        ------
        UsageError
        """
        if self.n_features_to_select == AUTO and self.ranks_strata:
            raise UsageError(
                f"{parameter('n_features_to_select')} cannot be 'auto' with ranks in strata, each of which would "
                f"have a number of its own\n  cure: give a count, or choose {parameter('strata_by', 'sum')}"
            )
        if self.asks_pairs and self.ranks_strata:
            raise UsageError(
                f"pairs are not tested within strata that are ranked apart\n  cure: leave out what asks for pairs, or "
                f"choose {parameter('strata_by', 'sum')}"
            )
        if self.min_labels is not None and self.control == "knockoffs":
            raise UsageError(
                f"knockoffs give no p-values, of which {parameter('min_labels')} is made\n  cure: choose "
                f"{parameter('control', 'partial')}"
            )
        if self.asks_pairs and source.strata is not None and self.pair_question.given_others:
            raise UsageError(
                f"{self.method} counts in strata, of which nothing is tested given the other features\n  cure: choose "
                f"{parameter('control', 'bh')}, or take a method of means and products, as br-cc"
            )
        asked = [name for name in ("prune", "redundancy", "groups") if getattr(self, name) is not None]
        if asked and (self.ranks_strata or (source.covariates is not None and self.group_by == "joint")):
            raise UsageError(
                f"{parameter(asked[0])} is of scores of all rows that are not adjusted\n  cure: leave it out, or the "
                "covariates and strata"
            )
        if source.covariates is None or self.takes_covariates:
            return
        if self.covariates is None:
            raise UsageError(
                f"{self.method} cannot pool its scores over strata\n  cure: choose {parameter('strata_by', 'rank')}, "
                "which fits it within each stratum, or a method that can (mlfs methods tells which), as br-cc or chi2"
            )
        cure = f"give categories as {parameter('strata')}, or " if self.takes_strata else ""
        raise UsageError(
            f"{self.method} cannot be adjusted for covariates: its scores do not follow from means and products alone"
            f"\n  cure: {cure}take a method whose scores do (mlfs methods tells which), as br-cc, anova-f or mddm"
        )

    @property
    def ranks_strata(self) -> bool:
        """Whether it is fitted within each stratum."""
        return self.strata is not None and self.strata_by == "rank"

    @property
    def without_positives(self) -> str:
        """What the method makes of a label that no row is known to have, and the cure; empty: nothing is said."""
        return ""

    def refuse_unknown(self, unknown: NDArray[np.integer[Any]], total: float, names: Names) -> NDArray[np.intp]:
        """Refuse unknown labels, counted by label, where `unknown` says so, or where no row has a known one.

        Returns
        -------
        int64 array
            Labels that are known in none of the `total` rows.

        Raises
        ------
        DataError
        """
        if unknown.any() and self.unknown == "refuse":
            raise unknown_labels_error(unknown, names.labels)
        if not total or self.supervision == "unsupervised":
            return np.zeros(0, np.intp)
        never = np.flatnonzero(unknown >= total * (1 - SAME))
        if len(never) == len(unknown) > 0:
            raise DataError(known_in_no_row(never, names.labels), cure="give labels 1 and 0 for some rows")
        return never

    def examine_unknown(self, readings: Readings, unknown: NDArray[np.integer[Any]]) -> None:
        """`refuse_unknown`, or go back to the beginning where a reading was not told of those that it found.

        Raises
        ------
        DataError
        UnknownLabelsFound
            The fit begins again with these.
        """
        if readings.source.strata is None:
            readings.never_known = self.refuse_unknown(unknown, readings.source.profile.total, readings.names)
        asked = self.known_entries or self.asks_pairs or (self.groups is not None and self.group_by == "joint")
        if unknown.any() and asked and readings.source.unknown_labels is None:
            found, strata = np.flatnonzero(unknown), readings.source.strata
            raise UnknownLabelsFound(found if strata is None else labels_of_strata(found, len(strata.categories or ())))

    def refuse_missing(self, n_missing: NDArray[np.int64] | None, names: Names) -> None:
        """Refuse missing values, counted by feature, where they are an error; None: not counted."""
        if n_missing is None or self._missing != "error" or not n_missing.any():
            return
        raise DataError(
            f"X contains NaN: {number_of(int(n_missing.sum()), 'missing value')} in "
            + number_of(int((n_missing > 0).sum()), "feature"),
            column=names.first_feature(n_missing > 0),
            cure=f"choose {self._missing_choices} to fill them in, or leave the feature out",
        )

    @property
    def _missing_choices(self) -> str:
        return f"{parameter('missing', 'mean')} or {parameter('missing', 'median')}"

    def examine_features(self, readings: Readings, mean: Array, spread: Array) -> None:
        """Refuse features that hold NaN or infinity, and take down which of the others vary.

        Parameters
        ----------
        readings : Readings
        mean, spread : float64 array, shape (d,)
            Not finite where a value is not. The spread (sum of squared deviations, or range) of a constant is 0.
        """
        readings.varies = spread > 0
        broken = ~(np.isfinite(mean) & np.isfinite(spread))
        if not broken.any():
            return
        of_nan = (
            f"choose {self._missing_choices} for NaN, fill missing values in before (for example with "
            "sklearn.impute.SimpleImputer), or leave the feature out; "
            if self._missing == "error"
            else ""
        )
        raise DataError(
            f"X contains {'NaN or ' if of_nan else ''}infinity, or values too large for float64 sums, in "
            + number_of(int(broken.sum()), "feature"),
            column=readings.names.first_feature(broken),
            cure=of_nan + "infinite values have to be replaced, by a number or by NaN (missing), and those above 1e150 "
            "scaled" + ("" if of_nan else "; or leave the feature out"),
        )

    def examine_moments(self, readings: Readings, mean: Array, m2: Array) -> None:
        """As `examine_features`, and refuse features whose variance has less than six digits beside their mean squared.

        A sparse X is summed about zero, for X'X and Y'X as for distances of rows; a dense one is shifted first.

        Parameters
        ----------
        readings : Readings
        mean, m2 : float64 array, shape (d,)
            Means, and sums of squared deviations.
        """
        self.examine_features(readings, mean, m2)
        profile = readings.source.profile
        if not profile.sparse:
            return
        lost = (m2 > 0) & (np.finfo(np.float64).eps * profile.total * mean**2 > 1e-6 * m2)
        if lost.any():
            first = int(np.argmax(lost))
            deviations = abs(mean[first]) / np.sqrt(m2[first] / profile.total)
            raise DataError(
                f"a feature of sparse X with mean {mean[first]:.3g} lies {deviations:.2g} standard deviations from "
                "zero, too far for sums about zero to keep its digits",
                column=readings.names.first_feature(lost),
                cure="subtract a constant from the feature, convert with `--storage dense`, or leave it out",
            )

    def ranked_by(self, scores: Array) -> Array:
        """The scores without digits that are rounding."""
        return scores if self.scores_from_counts else round_scores(scores)


def _reads_rows(step: Reading | str) -> bool:
    """Whether a step reads features of all rows of the job."""
    return isinstance(step, Reading) and bool(step.statistics) and not step.labels_only and step.source is None


_HINTS = typing.get_type_hints(Method, include_extras=True)
Method.common_parameters = tuple(
    read_parameter(field.name, _HINTS[field.name], field.default, "Method")
    for field in dataclasses.fields(Method)
    if field.kw_only
)


@dataclass_transform(kw_only_default=True)
def family(cls: type[_M]) -> type[_M]:
    """Class decorator: a base class of methods, with the parameters that they share."""
    return dataclass(kw_only=True, eq=False, repr=False)(cls)


@dataclass_transform(kw_only_default=True)
def method(name: str, title: str, *, paper: str, doi: str) -> Callable[[type[_M]], type[_M]]:
    """Class decorator: a published method.

    Parameters
    ----------
    name : str
        On the command line.
    title : str
        What it is called, on one line.
    paper : str
        Authors, year, journal, volume and page.
    doi : str
    """

    def make(cls: type[_M]) -> type[_M]:
        made = family(cls)
        made.method, made.title, made.paper, made.doi = name, title, paper, doi
        # Of the class: every name is looked up in the module of the base that declares it.
        hints = typing.get_type_hints(made, include_extras=True)
        made.parameters = _parameters(made, hints)
        # What `help` shows: types alone.
        shown = {field.name: bare_type(hints[field.name]) for field in dataclasses.fields(made)}
        made.__init__.__annotations__ = shown | {"return": None}
        made.__doc__ = _documentation(made)
        return made

    return make


def _parameters(cls: type[Method], hints: Mapping[str, Any]) -> tuple[Parameter, ...]:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    families = [each for each in reversed(cls.__mro__[: cls.__mro__.index(Method)]) if _is_family(each)]
    declared = dict.fromkeys(name for each in families for name in inspect.get_annotations(each) if name in fields)
    own = inspect.get_annotations(cls)
    names = sorted(declared, key=lambda name: name not in own)
    return tuple(read_parameter(name, hints[name], fields[name].default, cls.__name__) for name in names)


def _is_family(cls: type) -> bool:
    """Whether a class has fields of its own."""
    return "__dataclass_fields__" in vars(cls)


#: Headings of numpydoc within a docstring of a class.
_HEADING = re.compile(r"\n\n(?=    \w[\w ]*\n    -{3,}\n)")


def _documentation(cls: type[Method]) -> str:
    """The docstring of a class with its parameters as a section; costs and the notes of its family before its own."""
    prose, *sections = _HEADING.split((cls.__doc__ or "").rstrip())
    count = textwrap.fill(
        f"Number of features to keep, or a fraction of them; half by default. {cls.on_features}".rstrip(),
        112,
        initial_indent=" " * 8,
        subsequent_indent=" " * 8,
    )
    entries = [f"    n_features_to_select : int or float, optional\n{count}"]
    entries += [each.documentation for each in cls.all_parameters()]
    parts = [prose, "    Parameters\n    ----------\n" + "\n".join(entries)]
    heading = "    Notes\n    -----"
    costs = f"Readings of X: {cls.passes}. Memory: {cls.memory}." if hasattr(cls, "passes") else ""
    costs = textwrap.fill(costs, 116, initial_indent="    ", subsequent_indent="    ")
    own = [section.removeprefix(heading).strip("\n") for section in sections if section.startswith(heading)]
    notes = "\n\n".join(filter(None, [costs, cls.family_notes.rstrip().strip("\n"), *own]))
    parts += [f"{heading}\n{notes}"] if notes else []
    sections = [section for section in sections if not section.startswith(heading)]
    return "\n\n".join([*parts, *sections]) + "\n"
