"""Splits of rows into training rows and test rows.

k-fold, repeated hold-out, both of rows or of whole clusters of rows, folds by iterative stratification, and splits that
are given. Whatever is random follows from the seed and the number of the repeat alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.errors import DataError, UsageError, parameter
from mlfs_dask.files.limits import require_memory
from mlfs_dask.rows.covariates import row_lines

_Pair = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]

#: Of the number of a fold, which is kept as int64.
_FOLD_DIGITS = 18

#: Of a split beside its rows: two arrays and what holds them.
_SPLIT_BYTES = 400

KINDS = ("kfold", "holdout", "stratified", "given")


@dataclass(frozen=True)
class Split:
    """One division of the rows.

    Attributes
    ----------
    repeat, fold : int
        From 0.
    train, test : int64 array
        Rising row indices; none is in both.
    """

    repeat: int
    fold: int
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def repeat_seed(seed: int, repeat: int) -> int:
    """Return the seed of everything random in one repeat, learning included: the same for all methods.

    >>> repeat_seed(3, 1)
    4
    """
    return seed + repeat


def make_splits(
    kind: str,
    Y: sp.csr_array,
    *,
    folds: int = 5,
    repeats: int = 1,
    test_size: float = 0.2,
    seed: int = 0,
    clusters: NDArray[np.integer] | None = None,
    given: NDArray[np.integer] | None = None,
) -> Iterator[Split]:
    """Yield splits, one after another.

    Parameters
    ----------
    kind : {"kfold", "holdout", "stratified", "given"}
        `stratified` is k-fold by iterative stratification.
    Y : csr_array, shape (n, q)
        Only `stratified` looks into it; an unknown label counts as none.
    folds : int
        Of `kfold` and `stratified`; every row is a test row once in each repeat.
    repeats : int
        Times that all is done again with another seed.
    test_size : float
        Share of the rows that are the test rows of a hold-out (`holdout`).
    seed : int
    clusters : int array, shape (n,), optional
        Rows of one cluster stay together (`kfold`, `holdout`).
    given : int array, shape (n,), optional
        For `given`: the fold in which each row is a test row; −1 is only ever trained on.

    Raises
    ------
    UsageError
        More folds than rows or clusters, or options that do not go together.
    DoesNotFitError
        So many splits cannot be held together.
    """
    n = Y.shape[0]
    if kind not in KINDS:
        raise UsageError(f"there is no split {kind!r}; known: {', '.join(KINDS)}.")
    if clusters is not None and kind not in ("kfold", "holdout"):
        raise UsageError(f"clusters go with the splits kfold and holdout, not with {kind}.")
    if kind == "given":
        if given is None:
            raise UsageError(f"the split 'given' needs the test rows; give {parameter('fold_of')}.")
        yield from _given(given)
        return
    units = n if clusters is None else len(np.unique(clusters))
    if kind != "holdout" and folds > units:
        raise UsageError(f"{parameter('folds')} must be from 2 to the {units} rows or clusters there are; got {folds}.")
    count = repeats * (1 if kind == "holdout" else folds)
    require_memory(f"{count:,} splits of {n:,} rows", count * (8 * n + _SPLIT_BYTES))
    for repeat in range(repeats):
        random = repeat_seed(seed, repeat)
        if kind == "stratified":
            fold_of = stratified_folds(Y, folds, np.random.default_rng(random))
            pairs: list[_Pair] = [(np.flatnonzero(fold_of != f), np.flatnonzero(fold_of == f)) for f in range(folds)]
        else:
            pairs = _scikit_pairs(kind, n, folds, test_size, random, clusters)
        for fold, (train, test) in enumerate(pairs):
            yield Split(repeat, fold, np.sort(train).astype(np.int64), np.sort(test).astype(np.int64))


def _scikit_pairs(
    kind: str, n: int, folds: int, test_size: float, random: int, clusters: NDArray[np.integer] | None
) -> list[_Pair]:
    from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, ShuffleSplit

    if kind == "kfold":
        splitter = (KFold if clusters is None else GroupKFold)(folds, shuffle=True, random_state=random)
    else:
        splitter = (ShuffleSplit if clusters is None else GroupShuffleSplit)(
            1, test_size=test_size, random_state=random
        )
    try:
        return list(splitter.split(np.empty((n, 0)), None, clusters))
    except ValueError as error:  # a hold-out that leaves a part without rows
        raise UsageError(f"{parameter('test_size')} {test_size:g} of {n:,} rows is impossible: {error}") from error


def _given(fold_of: NDArray[np.integer]) -> Iterator[Split]:
    for fold, number in enumerate(np.unique(fold_of[fold_of >= 0])):
        test = fold_of == number
        if test.all():
            raise UsageError("the given split has only test rows and no training rows.")
        yield Split(0, fold, np.flatnonzero(~test), np.flatnonzero(test))


def stratified_folds(Y: sp.csr_array, folds: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the fold of every row by iterative stratification (Sechidis, Tsoumakas & Vlahavas 2011).

    The label with fewest rows left is dealt out first, each of its rows to the fold that lacks most of that label, ties
    to the fold that lacks most rows, and then at random.

    Parameters
    ----------
    Y : csr_array, shape (n, q)
        1 = positive; anything else counts as absent.
    folds : int
    random : numpy Generator

    Returns
    -------
    int64 array, shape (n,)

    Notes
    -----
    Time grows with the positive labels times the folds, and with q for every label dealt out.

    References
    ----------
    On the stratification of multi-label data, ECML PKDD 2011, doi:10.1007/978-3-642-23808-6_10
    """
    positive = sp.csr_array(Y == 1) if (Y.data < 0).any() else sp.csr_array(Y)
    n = positive.shape[0]
    columns = sp.csc_array(positive)
    fold_of = np.full(n, -1, np.int64)
    rows_left = np.ones(n, bool)
    wanted_rows = np.full(folds, n / folds)
    left = np.diff(columns.indptr).astype(np.int64)
    quota = np.repeat(left[:, np.newaxis] / folds, folds, axis=1)

    def deal(row: int, desire: NDArray[np.float64]) -> None:
        best = np.flatnonzero(desire == desire.max())
        if len(best) > 1:
            best = best[wanted_rows[best] == wanted_rows[best].max()]
        fold = int(best[0] if len(best) == 1 else random.choice(best))
        fold_of[row], rows_left[row] = fold, False
        labels = positive.indices[positive.indptr[row] : positive.indptr[row + 1]]
        quota[labels, fold] -= 1
        left[labels] -= 1
        wanted_rows[fold] -= 1

    while (left > 0).any():
        label = int(np.where(left > 0, left, n + 1).argmin())
        rows = columns.indices[columns.indptr[label] : columns.indptr[label + 1]]
        for row in random.permutation(rows[rows_left[rows]]):
            deal(int(row), quota[label])
    for row in random.permutation(np.flatnonzero(rows_left)):
        deal(int(row), wanted_rows)
    return fold_of


def read_split(path: str, n: int) -> NDArray[np.int64]:
    """Return the fold that judges every row from a text file: a fold's number, `test` (0) or `train` (−1), a line each.

    Raises
    ------
    DataError
        The file cannot be read, has another number of lines, or a line says something else.
    """
    words = {"train": -1, "test": 0, "-1": -1}
    fold_of = np.empty(n, np.int64)
    for number, line in enumerate(row_lines(path, n)):
        word = line.lower()
        if word not in words and not (word.isdecimal() and len(word) <= _FOLD_DIGITS):
            raise DataError(
                f"expected train, test or the number of a fold, of at most {_FOLD_DIGITS} digits",
                file=path,
                line=number + 1,
                value=line,
                cure="write one of them for every row",
            )
        fold_of[number] = words[word] if word in words else int(word)
    if (fold_of < 0).all():
        raise DataError("there are no test rows: every line says train", file=path, cure="write test for some rows")
    return fold_of
