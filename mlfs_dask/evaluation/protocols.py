"""Settings of an evaluation, and the settings of published experiments under a name.

A protocol is a set of options, nothing else: `mlfs evaluate --protocol NAME --print-protocol` prints it, and options
that are given besides take the place of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal, get_type_hints

from mlfs_dask.errors import UsageError, closest, parameter
from mlfs_dask.evaluation.grids import check_grid
from mlfs_dask.evaluation.metrics import DEFAULT_METRICS, TARGET_METRICS, get_metric
from mlfs_dask.evaluation.splits import repeat_seed
from mlfs_dask.selectors.parameters import Param, Parameter, read_parameter
from mlfs_dask.typing import MAX_SEED


@dataclass(frozen=True)
class Settings:
    """Settings of an evaluation; `SETTINGS` has the meaning and the values of each field."""

    classifiers: Annotated[
        tuple[Literal["mlknn", "logistic", "sgd", "ridge", "knn"], ...],
        Param(
            "One or more classifiers, separated by commas. mlknn: ML-kNN. logistic: binary relevance by logistic "
            "regressions, exact. sgd: the same, fitted block by block. For numeric targets, by default: ridge: "
            "ridge regression with penalty 1 on standardised features. knn: mean of the nearest rows."
        ),
    ] = ("mlknn",)
    n_neighbors: Annotated[int, Param("Number of nearest rows that vote in ML-kNN and knn.")] = 10
    smoothing: Annotated[float, Param("Number added to every count of ML-kNN.", above=0)] = 1.0
    C: Annotated[float, Param("Inverse weight of the penalty of logistic regressions.", above=0, most=math.inf)] = 1.0
    split: Annotated[
        Literal["kfold", "holdout", "stratified", "given"], Param("Split into training and test rows.")
    ] = "kfold"
    folds: Annotated[int, Param("Number of folds.", least=2)] = 5
    repeats: Annotated[int, Param("Number of random splits; repeat r uses seed + r.")] = 1
    test_size: Annotated[float, Param("Share of test rows in a hold-out.", above=0, below=1)] = 0.2
    seed: Annotated[int, Param("Seed of random numbers.", least=0)] = 0
    k_grid: Annotated[
        str | None,
        Param(
            "Numbers of features, separated by commas: 20, 10%, 1/6, 5:50:5, 10%:90%:10%. By default the k of "
            "finished runs, else 10% to 50% of the features."
        ),
    ] = None
    metrics: Annotated[
        tuple[str, ...],
        Param("Metrics, separated by commas; precision_at_N for any N; r2, spearman (numeric targets)."),
    ] = DEFAULT_METRICS
    scale: Annotated[
        Literal["standard", "none"],
        Param("Scale of features for the classifiers. standard: zero mean and unit variance over the training rows."),
    ] = "standard"
    missing: Annotated[
        Literal["error", "mean", "median"],
        Param(
            "Missing feature values are an error, or are filled with the mean or median of the training rows, for "
            "classifiers and for methods without a `missing` of their own."
        ),
    ] = "error"
    missing_labels: Annotated[
        float, Param("Share of positive labels of the training rows that become 0.", least=0, below=1)
    ] = 0.0
    labelled_rows: Annotated[float, Param("Share of the training rows that keep their labels.", above=0, most=1)] = 1.0
    hidden_as: Annotated[
        Literal["unknown", "zero"],
        Param("Form of rows without labels for semi-supervised methods; other methods do not see these rows."),
    ] = "unknown"
    unlabelled_test: Annotated[bool, Param("Give semi-supervised methods the test rows, without labels.")] = False
    classifier_labels: Annotated[
        Literal["simulated", "full"],
        Param(
            "Labels that classifiers learn from. simulated: those that the method had. full: all of the training rows."
        ),
    ] = "simulated"
    max_train_rows: Annotated[
        int | None,
        Param(
            "Largest number of training rows of a classifier, drawn at random. By default all; for ML-kNN as many "
            "as it can search in minutes."
        ),
    ] = None

    def __post_init__(self) -> None:
        for setting in SETTINGS.values():
            setting.check(getattr(self, setting.name))
        for metric in self.metrics:
            get_metric(metric)
        if repeat_seed(self.seed, self.repeats - 1) > MAX_SEED:
            raise UsageError(
                f"{parameter('seed')} must be at most {MAX_SEED}, that of the last repeat included; got {self.seed}."
            )
        if self.k_grid is not None:
            check_grid(self.k_grid)

    @property
    def simulates(self) -> bool:
        """True if training labels are changed or rows without labels are added."""
        return self.missing_labels > 0 or self.labelled_rows < 1 or self.unlabelled_test

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


#: What each field of `Settings` means, and its values; checks, messages and the JSON schema of plans come from it.
SETTINGS: dict[str, Parameter] = {
    field.name: read_parameter(field.name, hint, field.default, "Settings")
    for field, hint in zip(fields(Settings), get_type_hints(Settings, include_extras=True).values(), strict=True)
}


@dataclass(frozen=True)
class Protocol:
    """The settings of a published experiment.

    Attributes
    ----------
    name, paper : str
    options : mapping
        Of `Settings`; what is not named has its default.
    notes : str
        What the paper leaves open, or does besides.
    """

    name: str
    paper: str
    options: Mapping[str, Any]
    notes: str


_KNN = {"classifiers": ("mlknn",), "n_neighbors": 10, "smoothing": 1.0}

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "elc-2020",
            "Wang et al. 2020 (ELC)",
            _KNN
            | {
                "split": "kfold",
                "folds": 5,
                "k_grid": "10%:90%:10%",
                "scale": "standard",
                "metrics": ("average_precision", "macro_auc", "hamming_loss", "ranking_loss", "one_error"),
            },
            "The paper averages over k. It does not say which AUC; the mean over labels is taken. It standardises all "
            "rows together, here the training rows' moments are used.",
        ),
        Protocol(
            "lee-kim-2016",
            "Lee & Kim 2016 (entropy-based label selection)",
            {
                "classifiers": ("logistic",),
                "split": "holdout",
                "test_size": 0.2,
                "repeats": 10,
                "k_grid": "1,5:50:5",
                "metrics": ("hamming_loss", "ranking_loss"),
            },
            "The penalty of the paper's logistic regression is not known; C = 1. Features are discretised by the "
            "method's own option (2 bins of equal width are its default).",
        ),
        Protocol(
            "mfsir",
            "Mansouri, Benabdeslem & Benkabou 2024 (mFSIR)",
            _KNN
            | {
                "split": "kfold",
                "folds": 5,
                "k_grid": "5%:30%:5%",
                "metrics": ("hamming_loss", "ranking_loss", "average_precision", "macro_auc"),
            },
            "The steps between 5 % and 30 % are not printed; 5 % is taken.",
        ),
        Protocol(
            "smfs-2020",
            "Xu & Zhao 2020 (SMFS)",
            _KNN
            | {
                "split": "holdout",
                "test_size": 0.2,
                "repeats": 10,
                "k_grid": "1/6:5/6:1/6",
                "missing_labels": 0.2,
                "labelled_rows": 0.3,
                "hidden_as": "zero",
                "metrics": ("average_precision", "hamming_loss", "ranking_loss", "one_error"),
            },
            "The paper has four such experiments: 10 % and 30 % of the rows labelled, 20 % and 40 % of the positives "
            "missing; this is one of them, and --labelled-rows and --missing-labels give the others. It does not say "
            "which labels the classifier learns from; here those of the labelled rows, without what is missing.",
        ),
        Protocol(
            "access-mfs-2024",
            "Huang et al. 2024 (Access-MFS)",
            _KNN
            | {
                "split": "holdout",
                "test_size": 0.7,
                "repeats": 5,
                "k_grid": "100:200:10",
                "unlabelled_test": True,
                "metrics": ("average_precision", "macro_f1", "ranking_loss", "one_error"),
            },
            "The paper labels 10, 20, 30, 40 and 50 % of the rows and judges on the others, which methods see without "
            "labels; this is 30 %, and --test-size gives the others (0.9 for 10 %). For Parkinson it has "
            "--k-grid 5:55:5.",
        ),
    )
}


def get_protocol(name: str) -> Protocol:
    """Return the protocol of a name.

    Raises
    ------
    UsageError
        There is none; the message names the closest ones.
    """
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    raise UsageError(f"there is no protocol {name!r}. {closest(name, PROTOCOLS)}")


#: Settings of evaluations of numeric targets, by default.
OF_NUMBERS: Mapping[str, Any] = {"classifiers": ("ridge", "knn"), "metrics": tuple(TARGET_METRICS)}


def require_suitable(settings: Settings, *, numeric: bool) -> None:
    """Refuse settings of labels for numeric targets, and those of numeric targets for labels.

    Raises
    ------
    UsageError
    """
    kind = "numeric targets" if numeric else "labels"
    for name, known in OF_NUMBERS.items():
        for value in getattr(settings, name):
            if (value in known) != numeric:
                raise UsageError(
                    f"{parameter(name, value)} does not judge {kind}, which Y holds\n  cure: leave it out"
                    + (f", or choose among {', '.join(known)}" if numeric else "")
                )
    if numeric and (settings.simulates or settings.split == "stratified"):
        raise UsageError(
            "hidden labels and stratified folds are of labels, and Y holds numeric targets\n  cure: leave "
            f"{parameter('missing_labels')}, {parameter('labelled_rows')}, {parameter('unlabelled_test')} and "
            f"{parameter('split', 'stratified')} out"
        )


def make_settings(
    protocol: str | None = None,
    options: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
    *,
    numeric: bool = False,
) -> Settings:
    """Return the defaults, or those of an earlier evaluation, the protocol's options over them, and over those the
    options given (None: not given). `numeric` takes defaults of numeric targets.

    Raises
    ------
    UsageError
        A value that cannot be, or no such protocol.

    Examples
    --------
    >>> make_settings("mfsir", {"folds": 10}).folds, make_settings("mfsir").k_grid
    (10, '5%:30%:5%')
    """
    for name in options or {}:
        if name not in SETTINGS:
            raise UsageError(f"an evaluation has no option {name!r}. {closest(name, SETTINGS)}")
    chosen: dict[str, Any] = {
        **(OF_NUMBERS if numeric else {}),
        **(earlier or {}),
        **(get_protocol(protocol).options if protocol else {}),
    }
    chosen |= {name: value for name, value in (options or {}).items() if value is not None}
    chosen |= {name: tuple(value) for name, value in chosen.items() if isinstance(value, list)}
    return replace(Settings(), **chosen)
