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
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.rounding import SAME
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, number_of, parameter
from mlfs_dask.rows.contract import Profile, RowSource
from mlfs_dask.rows.covariates import labels_of_strata
from mlfs_dask.rows.view import UnknownLabels
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import Asked, Cost, Names, Readings
from mlfs_dask.selectors.parameters import Parameter, draw_seed, read_parameter
from mlfs_dask.selectors.scores import Scores, known_in_no_row, round_scores, unknown_labels_error
from mlfs_dask.statistics.missing import fill_statistics
from mlfs_dask.typing import Array

_M = TypeVar("_M", bound="Method")

#: `Method.unknown_entry` of methods that count each label over its known rows, and of those that fit all rows.
LEFT_OUT = (
    "is left out: a label counts over the rows where it is known, and adds to a score what it adds in a run on these "
    "rows alone"
)
AT_SHARE = "is the share of known rows that have the label: 0 after centring, no pull in any direction"


class UnknownLabelsFound(Exception):
    """Labels of which a pass has found unknown entries, where nothing had told so before: of a Dask array."""

    def __init__(self, labels: NDArray[np.int64]) -> None:
        super().__init__(f"labels {labels.tolist()} have unknown entries")
        self.labels = labels


@dataclass(eq=False, repr=False)
class Method:
    """Base class of published methods: parameters, what a fit reads and holds, and how it scores.

    A method implements `cost` and `score`. It keeps nothing of a fit: rows, passes and names of columns come with
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
    #: Its own before those of its family.
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    #: What the documentation says of `n_features_to_select` after its first sentence.
    on_features: ClassVar[str] = ""
    #: Notes that all methods of a family share.
    family_notes: ClassVar[str] = ""
    #: What labels it needs: "supervised", "semi-supervised", "unsupervised".
    supervision: ClassVar[str] = "supervised"
    #: What an unknown entry of Y is to it, in words.
    unknown_entry: ClassVar[str] = AT_SHARE
    #: How many passes over X, in words.
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
    #: Whether scores can be pooled over strata of the rows, in one pass, where they cannot be adjusted.
    takes_strata: ClassVar[bool] = False
    #: True if Y may hold numeric targets: no formula counts labels or needs 0 and 1.
    takes_numbers: ClassVar[bool] = False
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

    def check(self) -> None:
        """Refuse values that parameters cannot have. A method adds rules between parameters.

        Raises
        ------
        UsageError
        """
        for each in self.parameters:
            each.check(getattr(self, each.name))

    def get_params(self) -> dict[str, Any]:
        """Return values of all parameters by name, in the order of names."""
        return {name: getattr(self, name) for name in sorted(field.name for field in dataclasses.fields(self))}

    @property
    def seed(self) -> int:
        """Seed of the random draws."""
        return draw_seed(copy.deepcopy(getattr(self, "random_state", None)))

    @classmethod
    def takes_seed(cls) -> bool:
        """Return True if a parameter is the seed of random draws."""
        return any(each.seeds for each in cls.parameters)

    @property
    def is_random(self) -> bool:
        """True if the method draws at random with its current parameters."""
        return self.takes_seed()

    # ------------------------------------------------------------------ what a fit reads, and how it scores

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        """Return the passes of a fit and the memory of the driver. No data is read."""
        raise NotImplementedError

    def cure(self, profile: Profile) -> str:
        """Return a way to lower the memory of a method that does not fit; empty if there is none."""
        return ""

    def score(self, readings: Readings) -> Scores:
        """Return scores of all features, from passes over the rows, with `Readings.asked` of the method."""
        raise NotImplementedError

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        """Return the first statistics of a fit on rows without missing values; fits of one store can share their pass.

        Empty where it has to be asked.
        """
        return ()

    def iterations_on(self, profile: Profile) -> tuple[int, int] | None:
        """`typical_iterations`, of data with these sizes where they matter."""
        return self.typical_iterations

    # ------------------------------------------------------------------ what it takes

    @property
    def _missing(self) -> str:
        """Policy for missing feature values."""
        return getattr(self, "missing", "error")

    def fills(self, source: RowSource) -> bool:
        """Return True if missing features are to be filled in, and the data may have some."""
        if self._missing not in ("mean", "median"):
            return False
        n_missing = source.features.n_missing
        return n_missing is None or bool(n_missing.any())

    def fill_statistics(self, source: RowSource) -> list[Statistic]:
        """Return the statistics from which fill values of missing features follow."""
        return fill_statistics(source.profile, self._missing, self.seed)

    @property
    def without_positives(self) -> str:
        """Effect on the method of a label without a known positive row, and the cure; empty: no warning."""
        return ""

    def refuse_unknown(
        self, unknown: NDArray[np.integer[Any]], total: float, names: Names, meaning: UnknownLabels
    ) -> NDArray[np.intp]:
        """Refuse unknown labels, counted by label, where `meaning` is "refuse", or where no row has a known one.

        Returns
        -------
        int64 array
            Labels that are known in none of the `total` rows.

        Raises
        ------
        DataError
        """
        if unknown.any() and meaning == "refuse":
            raise unknown_labels_error(unknown, names.labels)
        if not total or self.supervision == "unsupervised":
            return np.zeros(0, np.intp)
        never = np.flatnonzero(unknown >= total * (1 - SAME))
        if len(never) == len(unknown) > 0:
            raise DataError(known_in_no_row(never, names.labels), cure="give labels 1 and 0 for some rows")
        return never

    def examine_unknown(self, readings: Readings, unknown: NDArray[np.integer[Any]]) -> None:
        """`refuse_unknown`, or go back to the beginning where a pass was not told of those that it found.

        Raises
        ------
        DataError
        UnknownLabelsFound
            The fit begins again with these.
        """
        asked = readings.asked
        if readings.source.strata is None:
            total = readings.source.profile.total
            readings.never_known = self.refuse_unknown(unknown, total, readings.names, asked.unknown)
        if unknown.any() and (self.known_entries or asked.names_unknown) and readings.source.unknown_labels is None:
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
        """Call `examine_features`, and refuse features whose variance would have fewer than six digits.

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
        """Return the scores without digits that are rounding."""
        return scores if self.scores_from_counts else round_scores(scores)


@dataclass_transform(kw_only_default=True)
def family(cls: type[_M]) -> type[_M]:
    """Return a class decorator for a base class of methods, with the parameters that they share."""
    return dataclass(kw_only=True, eq=False, repr=False)(cls)


@dataclass_transform(kw_only_default=True)
def method(name: str, title: str, *, paper: str, doi: str) -> Callable[[type[_M]], type[_M]]:
    """Return a class decorator for a published method.

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
        made.parameters = _parameters(made, typing.get_type_hints(made, include_extras=True))
        return made

    return make


def _parameters(cls: type[Method], hints: Mapping[str, Any]) -> tuple[Parameter, ...]:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    classes = reversed(cls.__mro__[: cls.__mro__.index(Method)])
    families = [each for each in classes if "__dataclass_fields__" in vars(each)]  # those that define fields
    declared = dict.fromkeys(name for each in families for name in inspect.get_annotations(each) if name in fields)
    own = inspect.get_annotations(cls)
    names = sorted(declared, key=lambda name: name not in own)
    return tuple(read_parameter(name, hints[name], fields[name].default, cls.__name__) for name in names)
