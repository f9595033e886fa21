"""Inputs of a selector and a classifier in each split of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.errors import DataError, parameter
from mlfs_dask.evaluation.protocols import Settings
from mlfs_dask.evaluation.simulation import as_unknown, simulate
from mlfs_dask.evaluation.splits import Split, repeat_seed
from mlfs_dask.evaluation.table import Table
from mlfs_dask.selection.fit import OpenedRows


@dataclass(frozen=True)
class SplitInputs:
    """Inputs of a selector and a classifier in one split.

    Attributes
    ----------
    split : Split
    rows : int64 array
        Rows that a method which takes unknown labels learns from, rising.
    labelled : bool array
        Which of `rows` are labelled.
    Y : csr_array
        Labels of `rows`, empty where they are not labelled.
    classifier_rows : int64 array
    classifier_Y : csr_array
        What classifiers learn from.
    test : int64 array
        Test rows of the split in which a label is known.
    opened : dict
        Rows for selectors: those of `learnt_from`, by `labelled_only`.
    """

    split: Split
    rows: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    Y: sp.csr_array
    classifier_rows: NDArray[np.int64]
    classifier_Y: sp.csr_array
    test: NDArray[np.int64]
    opened: dict[bool, OpenedRows] = field(default_factory=dict)

    def learnt_from(self, labelled_only: bool, hidden_as: str) -> tuple[NDArray[np.int64], Any]:
        """Return the rows and labels that a method learns from."""
        if labelled_only:
            return self.rows[self.labelled], self.Y[self.labelled]
        hides = hidden_as == "unknown" and not self.labelled.all()
        return self.rows, as_unknown(self.Y, self.labelled) if hides else self.Y


def split_inputs(settings: Settings, table: Table, split: Split) -> SplitInputs:
    """Return the rows and labels of one split, after labels are hidden and rows drawn as the settings say.

    Raises
    ------
    DataError
        No label is known in any test row, or fewer than two rows are left to learn from.
    """
    random = np.random.default_rng([repeat_seed(settings.seed, split.repeat), split.fold])
    rows, labelled, Y = split.train, np.ones(len(split.train), bool), table.Y[split.train]
    if not table.numeric:
        Y, labelled = simulate(
            Y, missing_labels=settings.missing_labels, labelled_rows=settings.labelled_rows, random=random
        )
    classifier_rows, classifier_Y = rows[labelled], Y[labelled]
    if settings.classifier_labels == "full":
        classifier_rows, classifier_Y = rows, table.Y[rows]
    most = settings.max_train_rows
    if most is not None and len(classifier_rows) > most:
        drawn = np.sort(random.choice(len(classifier_rows), most, replace=False))
        classifier_rows, classifier_Y = classifier_rows[drawn], classifier_Y[drawn]
    test = split.test[table.unknown_labels[split.test] < table.q]
    if not len(test):
        raise DataError(
            f"no label is known in any test row of fold {split.fold}",
            cure=f"test on rows with known labels ({parameter('fold_of')})",
        )
    if len(classifier_rows) < 2:
        raise DataError(
            f"{len(classifier_rows)} labelled training row is left in fold {split.fold}",
            cure="hide fewer rows, or make fewer folds",
        )
    if settings.unlabelled_test:
        # The test rows, in their places between the others, without labels.
        both = np.concatenate([rows, split.test])
        order = np.argsort(both)
        Y = sp.csr_array(sp.vstack([Y, sp.csr_array((len(split.test), table.q), dtype=np.int8)], format="csr"))
        rows, Y = both[order], sp.csr_array(Y[order])
        labelled = np.concatenate([labelled, np.zeros(len(split.test), bool)])[order]
    return SplitInputs(split, rows, labelled, Y, classifier_rows, classifier_Y, test)
