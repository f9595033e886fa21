"""Splits: every row judged once, groups together, labels even, seeds that count; and labels that are hidden."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.simulation import as_unknown, simulate
from mlfs_dask.evaluation.splits import make_splits, read_split, stratified_folds


def labels(n: int, q: int = 6, seed: int = 0) -> sp.csr_array:
    return sp.csr_array((np.random.default_rng(seed).random((n, q)) < 0.2).astype(np.int8))


@pytest.mark.parametrize("kind", ["kfold", "stratified"])
def test_every_row_is_judged_once_a_repeat(kind: str) -> None:
    splits = list(make_splits(kind, labels(53), folds=4, repeats=2, seed=3))
    assert [(s.repeat, s.fold) for s in splits] == [(r, f) for r in range(2) for f in range(4)]
    for repeat in range(2):
        tests = [s.test for s in splits if s.repeat == repeat]
        assert sorted(np.concatenate(tests)) == list(range(53))
        assert {len(t) for t in tests} == {13, 14}
    for s in splits:
        assert sorted([*s.train, *s.test]) == list(range(53))
        assert (np.diff(s.train) > 0).all()
        assert (np.diff(s.test) > 0).all()
    assert not np.array_equal(splits[0].test, splits[4].test)


def test_seeds_decide() -> None:
    def tests(kind: str, seed: int) -> list[list[int]]:
        return [s.test.tolist() for s in make_splits(kind, labels(40), seed=seed, repeats=2)]

    for kind in ("kfold", "holdout", "stratified"):
        assert tests(kind, 1) == tests(kind, 1)
        assert tests(kind, 1) != tests(kind, 2)
    (split,) = make_splits("holdout", labels(50), test_size=0.3)
    assert (len(split.train), len(split.test)) == (35, 15)
    # Repeat r of seed s is repeat 0 of seed s + r.
    assert tests("holdout", 1)[1] == tests("holdout", 2)[0]


@pytest.mark.parametrize("kind", ["kfold", "holdout"])
def test_clusters_are_not_parted(kind: str) -> None:
    clusters = np.arange(60) % 12
    for split in make_splits(kind, labels(60), folds=3, clusters=clusters, seed=5):
        assert not set(clusters[split.train]) & set(clusters[split.test])
        assert len(split.test) > 0


def test_given_folds() -> None:
    given = np.array([-1, 2, 7, 2, -1])
    splits = list(make_splits("given", labels(5), given=given))
    assert [s.test.tolist() for s in splits] == [[1, 3], [2]]
    assert [s.train.tolist() for s in splits] == [[0, 2, 4], [0, 1, 3, 4]]


def test_stratified_folds_have_even_labels() -> None:
    Y = labels(600)
    coded = Y.toarray()
    coded[coded == 0] = -1  # unknown, and taken for absent
    fold_of = stratified_folds(Y, 5, np.random.default_rng(0))
    again = stratified_folds(sp.csr_array(coded), 5, np.random.default_rng(0))
    assert np.array_equal(again, fold_of)
    counts = np.array([Y.toarray()[fold_of == f].sum(axis=0) for f in range(5)])
    assert np.bincount(fold_of).tolist() == [120] * 5
    assert (counts.max(axis=0) - counts.min(axis=0)).max() <= 2
    by_chance = np.array([Y.toarray()[f::5].sum(axis=0) for f in range(5)])
    assert (by_chance.max(axis=0) - by_chance.min(axis=0)).max() > 5  # chance is not as even


def test_ties_go_to_the_fold_that_lacks_most_rows_so_that_folds_have_as_many_rows() -> None:
    # Every row has a label, and none is left at the end to even the folds out with.
    Y = sp.csr_array(np.eye(40, dtype=np.int8)[np.arange(60) % 40])
    for seed in range(5):
        assert np.bincount(stratified_folds(Y, 5, np.random.default_rng(seed))).tolist() == [12] * 5


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("kfold", {"folds": 11}, "folds must be from 2 to the 10 rows or clusters there are; got 11"),
        ("kfold", {"folds": 3, "clusters": np.zeros(10, int)}, "to the 1 rows or clusters"),
        ("holdout", {"test_size": 0.999}, "test_size 0.999 of 10 rows is impossible"),
        ("stratified", {"clusters": np.arange(10)}, "not with stratified"),
        ("given", {}, "give fold_of"),
        ("given", {"given": np.zeros(10, int)}, "has only test rows and no training rows"),
        ("odd", {}, "no split 'odd'"),
    ],
)
def test_what_cannot_be(kind: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(make_splits(kind, labels(10), **options))  # type: ignore[arg-type]


def test_a_split_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "split.txt"
    file.write_text("train\nTest\n-1\n3\n")
    assert read_split(str(file), 4).tolist() == [-1, 0, -1, 3]
    with pytest.raises(DataError, match=r"split\.txt: 4 lines for 5 rows"):
        read_split(str(file), 5)
    file.write_text("train\nmaybe\n")
    with pytest.raises(DataError, match="line 2, value 'maybe': expected train, test"):
        read_split(str(file), 2)
    file.write_text("2023\n2024\n")
    assert read_split(str(file), 2).tolist() == [2023, 2024]
    file.write_text("train\n99999999999999999999999\n")
    with pytest.raises(
        DataError, match=r"line 2, value '9+': expected train, test or the number of a fold, of at most 18"
    ):
        read_split(str(file), 2)
    file.write_text("train\ntrain\n")
    with pytest.raises(DataError, match="there are no test rows"):
        read_split(str(file), 2)
    with pytest.raises(DataError, match="cannot be read"):
        read_split(str(tmp_path / "none"), 2)


LABELS = sp.csr_array((np.random.default_rng(1).random((200, 5)) < 0.4).astype(np.int8))


def test_a_share_of_the_positives_of_labelled_rows_becomes_zero() -> None:
    dense = LABELS.toarray()
    dense[:, 0] = -1
    Y, labelled = simulate(sp.csr_array(dense), missing_labels=0.25, labelled_rows=0.3, random=np.random.default_rng(0))
    assert labelled.sum() == 60
    before, after = dense[labelled], Y.toarray()[labelled]
    dropped = before != after
    assert dropped.sum() == round(0.25 * (before == 1).sum())
    assert (before[dropped] == 1).all()
    assert (after[dropped] == 0).all()
    assert not Y.toarray()[~labelled].any()
    unknown = as_unknown(Y, labelled).toarray()
    assert (unknown[~labelled] == -1).all()
    assert np.array_equal(unknown[labelled], after)


def test_nothing_is_changed_without_a_reason_and_one_row_keeps_its_labels_at_least() -> None:
    assert simulate(LABELS, random=np.random.default_rng(0))[0] is LABELS
    assert as_unknown(LABELS, np.ones(200, bool)) is LABELS
    assert simulate(LABELS, labelled_rows=1e-6, random=np.random.default_rng(0))[1].sum() == 1
