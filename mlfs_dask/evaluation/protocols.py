"""Settings of an evaluation, and the settings of published experiments under a name.

A protocol is a set of options, nothing else: `mlfs evaluate --protocol NAME --print-protocol` prints it, and options
that are given besides take the place of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from mlfs_dask.errors import UsageError, closest, parameter
from mlfs_dask.evaluation.grids import check_grid
from mlfs_dask.evaluation.metrics import DEFAULT_METRICS, get_metric
from mlfs_dask.evaluation.simulation import check_simulation
from mlfs_dask.evaluation.splits import KINDS, check_counts, repeat_seed
from mlfs_dask.typing import MAX_SEED

CLASSIFIERS = ("mlknn", "logistic", "sgd")


@dataclass(frozen=True)
class Settings:
    """How an evaluation is done.

    Attributes
    ----------
    classifiers : tuple of str
        `mlknn`, `logistic` (binary relevance, exact), `sgd` (binary relevance, fitted block by block).
    n_neighbors, smoothing :
        Of ML-kNN.
    C : float
        Of the logistic regressions: inverse weight of the penalty.
    split : str
        `kfold`, `holdout`, `stratified` or `given`.
    folds, repeats, test_size, seed :
        Of the split. Repeat r draws everything with seed + r.
    k_grid : str or None
        See `mlfs_dask.evaluation.grids`. None: the k of the finished runs, else 10% to 50% of the features.
    metrics : tuple of str
    scale : {"standard", "none"}
        `standard`: zero mean and unit variance over the training rows, for the classifiers.
    missing : {"error", "mean", "median"}
        What becomes of missing features. Classifiers have the mean, or the median, of the training rows in their
        places, and so have methods that are learnt here, unless their own parameter says otherwise.
    missing_labels, labelled_rows : float
        Share of the training rows' positives that is dropped; share of the training rows that keep labels.
    hidden_as : {"unknown", "zero"}
        How rows without labels look to methods that take unknown labels. Other methods do not see those rows.
    unlabelled_test : bool
        Methods that take unknown labels see the test rows, without labels.
    classifier_labels : {"simulated", "full"}
        Whether classifiers learn from the labels that the selector had, or from all labels of the training rows.
    max_train_rows : int or None
        Most training rows that a classifier learns from, drawn at random. None: all; but ML-kNN learns from no more
        than it can search among in minutes (`evaluation.scoring.SEARCH_WORK`).
    """

    classifiers: tuple[str, ...] = ("mlknn",)
    n_neighbors: int = 10
    smoothing: float = 1.0
    C: float = 1.0
    split: str = "kfold"
    folds: int = 5
    repeats: int = 1
    test_size: float = 0.2
    seed: int = 0
    k_grid: str | None = None
    metrics: tuple[str, ...] = DEFAULT_METRICS
    scale: str = "standard"
    missing: str = "error"
    missing_labels: float = 0.0
    labelled_rows: float = 1.0
    hidden_as: str = "unknown"
    unlabelled_test: bool = False
    classifier_labels: str = "simulated"
    max_train_rows: int | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("split", KINDS),
            ("scale", ("standard", "none")),
            ("missing", ("error", "mean", "median")),
            ("hidden_as", ("unknown", "zero")),
            ("classifier_labels", ("simulated", "full")),
        ):
            if getattr(self, name) not in known:
                raise UsageError(f"{parameter(name)} must be one of {', '.join(known)}; got {getattr(self, name)!r}.")
        if not self.classifiers or set(self.classifiers) - set(CLASSIFIERS):
            raise UsageError(
                f"{parameter('classifiers')} must be one or more of {', '.join(CLASSIFIERS)}; "
                f"got {', '.join(self.classifiers)!r}."
            )
        for metric in self.metrics:
            get_metric(metric)
        for name in ("n_neighbors", "max_train_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{parameter(name)} must be at least 1; got {value}.")
        for name in ("smoothing", "C"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{parameter(name)} must be above 0; got {getattr(self, name)}.")
        if math.isinf(self.smoothing):
            raise UsageError(f"{parameter('smoothing')} must be finite; got {self.smoothing}.")
        if self.seed < 0:
            raise UsageError(f"{parameter('seed')} must not be negative; got {self.seed}.")
        check_counts(self.folds, self.repeats, self.test_size)
        if repeat_seed(self.seed, self.repeats - 1) > MAX_SEED:
            raise UsageError(
                f"{parameter('seed')} must be at most {MAX_SEED}, that of the last repeat included; got {self.seed}."
            )
        if self.k_grid is not None:
            check_grid(self.k_grid)
        check_simulation(self.missing_labels, self.labelled_rows)

    @property
    def simulates(self) -> bool:
        """Whether training labels are changed or rows added without labels."""
        return self.missing_labels > 0 or self.labelled_rows < 1 or self.unlabelled_test

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


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
    """The protocol of a name.

    Raises
    ------
    UsageError
        There is none; the message names the closest ones.
    """
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    raise UsageError(f"there is no protocol {name!r}. {closest(name, PROTOCOLS)}")


def make_settings(
    protocol: str | None = None,
    options: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> Settings:
    """The defaults, or those of an earlier evaluation, the protocol's options over them, and over those the options
    given (None: not given).

    Raises
    ------
    UsageError
        A value that cannot be, or no such protocol.

    Examples
    --------
    >>> make_settings("mfsir", {"folds": 10}).folds, make_settings("mfsir").k_grid
    (10, '5%:30%:5%')
    """
    known = [field.name for field in fields(Settings)]
    for name in options or {}:
        if name not in known:
            raise UsageError(f"an evaluation has no option {name!r}. {closest(name, known)}")
    chosen: dict[str, Any] = {**(earlier or {}), **(get_protocol(protocol).options if protocol else {})}
    chosen |= {name: value for name, value in (options or {}).items() if value is not None}
    chosen |= {name: tuple(value) for name, value in chosen.items() if isinstance(value, list)}
    return replace(Settings(), **chosen)
