"""Labels in every form, and the text of every refusal."""

from __future__ import annotations

import numpy as np
import pytest
import sparse
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask import Chi2
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.selection.labels import label_matrix

Y = np.array([[1, 0, -1], [0, 0, 1]])


@pytest.mark.parametrize(
    "wrap",
    [
        np.asarray,
        np.ndarray.tolist,
        sp.csr_matrix,
        sp.coo_array,
        lambda y: y.astype(np.float32),
        lambda y: y.astype(object),
        lambda y: sparse.GCXS.from_numpy(y),
        lambda y: pytest.importorskip("pandas").DataFrame(y, columns=list("abc")),
    ],
)
def test_all_forms_of_a_label_matrix(wrap):
    found = label_matrix(wrap(Y))
    assert isinstance(found, sp.csr_array)
    assert found.dtype == np.int8
    assert found.toarray().tolist() == Y.tolist()
    assert found.has_canonical_format
    assert found.data.all()


def test_booleans():
    assert label_matrix(Y == 1).toarray().tolist() == (Y == 1).astype(int).tolist()


@pytest.mark.parametrize(
    "classes",
    [
        ["a", "b", "a"],
        [3, 7, 3],
        [-1.0, 1.0, -1.0],
        [False, True, False],
        [0, 1, 0],
        ["0", "1", "0"],
        np.array([0, 1, 0], dtype=object),
    ],
)
def test_two_classes_are_one_label_in_either_shape(classes):
    for y in (classes, np.reshape(classes, (3, 1))):
        assert label_matrix(y).toarray().tolist() == [[0], [1], [0]]


def test_of_more_classes_each_is_a_label():
    expected = [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    for classes in (["b", "a", "c"], [5, 2, 7], [1.0, 0.0, 2.0], np.array([[5], [2], [7]])):
        assert label_matrix(classes).toarray().tolist() == expected
    pd = pytest.importorskip("pandas")
    assert label_matrix(pd.Series(["y", "x", "z"], dtype="category")).toarray().tolist() == expected
    assert label_matrix(["a", "a"]).toarray().tolist() == [[1], [1]]
    assert label_matrix([0, 0]).toarray().tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([[0], [1], [-1]], [[0], [1], [-1]]),
        ([2, -1, 5, 3], [[1, 0, 0], [-1, -1, -1], [0, 0, 1], [0, 1, 0]]),
        ([3, -1, 7], [[0], [-1], [1]]),
        (np.array(["no", None, "yes"], dtype=object), [[0], [-1], [1]]),
        (np.array(["a", np.nan, "b", "c"], dtype=object), [[1, 0, 0], [-1, -1, -1], [0, 1, 0], [0, 0, 1]]),
        ([-1, -1], [[-1], [-1]]),
    ],
)
def test_minus_one_is_unknown_among_classes(y, expected):
    """As in `sklearn.semi_supervised`."""
    assert label_matrix(y).toarray().tolist() == expected


def test_three_values_of_a_column_are_noted():
    with pytest.warns(UserWarning, match=r"-1 is taken as unknown. If these are three classes, .*unknown=0\)"):
        found = label_matrix([0, 1, -1])
    assert found.toarray().tolist() == [[0], [1], [-1]]
    with pytest.raises(DataError, match=r"where -1 is negative and 0 unknown .*three classes pass them as text"):
        Chi2(1, unknown="refuse").fit(np.eye(3), np.array([[0], [1], [-1]]))


def test_labels_of_any_three_values():
    signs = np.array([[1, 0, -1], [-1, 1, 0]])
    expected = [[1, -1, 0], [0, 1, -1]]
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(signs, columns=list("abc"), index=[5, 6])
    for Y in (signs, signs.tolist(), signs.astype(float), signs.astype(str), signs.astype(object), sp.csr_array(signs)):
        found = mlfs.label_matrix(Y, negative=-1, unknown=0)
        assert (found.dtype, found.tolist()) == (np.int8, expected)
    found = mlfs.label_matrix(table, negative=-1, unknown=0)
    assert (found.columns.tolist(), found.index.tolist(), found.to_numpy().tolist()) == (list("abc"), [5, 6], expected)
    found = mlfs.label_matrix(sp.csr_array(signs), positive=[1, -1])
    assert found.nnz == 4
    assert found.toarray().tolist() == abs(signs).tolist()
    assert mlfs.label_matrix([np.nan, 1.0, 0.0]).tolist() == [[-1], [1], [0]]
    assert mlfs.label_matrix([np.nan, 1.0], negative=np.nan).tolist() == [[0], [1]]
    assert mlfs.label_matrix(["P", None, "N"], positive="P", negative="N").tolist() == [[1], [-1], [0]]
    assert mlfs.label_matrix([True, False]).tolist() == [[1], [0]]
    assert mlfs.label_matrix([[1, -1]], negative=-1).tolist() == [[1, 0]]


def test_labels_that_have_no_meaning():
    with pytest.raises(DataError, match=r"a label must be 2 = positive; 1 = negative; column 1 of Y holds 0 \(row 0; "):
        mlfs.label_matrix([[1, 0], [2, 2]], positive=2, negative=1)
    with pytest.raises(DataError, match=r"a label must be 0 or 1 \(-1 = unknown\); column 0 of Y holds 3"):
        mlfs.label_matrix([[1, 0], [3, 2]])
    with pytest.raises(DataError, match=r"column 0 of Y holds maybe"):
        mlfs.label_matrix(["yes", "maybe"])
    with pytest.raises(DataError, match="implicit entries are 0, and 0 is not named"):
        mlfs.label_matrix(sp.csr_array([[1, 2]]), positive=1, negative=2)
    with pytest.raises(UsageError, match="the label '1' cannot be both positive and unknown"):
        mlfs.label_matrix([1, 0], positive=1, unknown=1)


def test_one_and_minus_one_alone_are_positive_and_negative():
    signs = np.array([[1, -1], [-1, 1], [1, 1]])
    for y in (signs, signs.tolist(), signs.astype(float), signs.astype(str)):
        with pytest.warns(UserWarning, match="never 0, so -1 is taken as negative; where it means unknown"):
            found = label_matrix(y)
        assert found.toarray().tolist() == [[1, 0], [0, 1], [1, 1]]
    assert label_matrix(signs[:, 0]).toarray().tolist() == [[1], [0], [1]]
    signs[0, 1] = 0
    assert label_matrix(signs).toarray().tolist() == signs.tolist()
    # A sparse matrix has zeros that are not stored.
    assert label_matrix(sp.csr_array([[1, -1], [-1, 1]])).toarray().tolist() == [[1, -1], [-1, 1]]


def test_tables_of_text():
    assert label_matrix(Y.astype(str)).toarray().tolist() == Y.tolist()
    assert label_matrix(Y.astype(str).astype(object)).toarray().tolist() == Y.tolist()
    weather = [["yes", "sun"], ["no", "rain"], ["yes", "snow"]]
    assert label_matrix(weather).toarray().tolist() == [[1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 1, 0]]
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"wet": ["no", None, "yes"], "cold": [0, 1, -1], "warm": pd.array([1, None, 0], dtype="Int8")})
    assert label_matrix(table).toarray().tolist() == [[0, 0, 1], [-1, 1, -1], [1, -1, 0]]
    with pytest.raises(DataError, match=r"column 'cold' must hold classes; .* for example 0.5"):
        label_matrix(pd.DataFrame({"wet": ["no", "yes"], "cold": [0.5, 1]}))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            np.array([[1, 0.5]]),
            r"Y must be 0/1; column 1 holds 0.5 \(row 0; counted from 0\)\n  cure: binarise it, for example",
        ),
        (np.array([[1, 0], [2, 0]]), r"Y must be 0/1; column 0 holds 2 \(row 1; counted from 0\)"),
        (np.array([[0], [0.5]]), "one-dimensional y must hold classes; Unknown label type: continuous, .* 0.5"),
        (np.array([[np.inf, 1.0]]), r"column 0 holds inf \(row 0; counted from 0\)\n  cure: binarise it"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)\n  cure: reshape it"),
        (np.array(3), r"got shape \(\)"),
        (np.array([0.5, 1.0]), "one-dimensional y must hold classes; Unknown label type: continuous, .* 0.5"),
        (np.array([1.0, np.inf]), "one-dimensional y must hold classes; .* inf"),
        (
            [["red", "fish"], ["car"]],
            r"collection of labels, .*'red', 'fish'.* \(row 0; .*\n  cure: .*MultiLabelBinarizer",
        ),
        ([{"red"}, {"car"}], r"collection of labels, \{'red'\} \(row 0; .*\n  cure: .*MultiLabelBinarizer"),
        (
            np.array([[2, 0], [1, 1], [0, 0]]),
            r"(?s)column 0 holds 2 \(row 0; .*if the columns hold classes, pass them as text",
        ),
        (np.array([[2, 0.5], [3, 2]]), r"column 0 holds 2.0 \(row 0"),
        (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), "it holds dates"),
        (np.array([(1, 0)], dtype=[("a", int), ("b", int)]), "structured array"),
        (np.array([1 + 2j, 0]), "Complex data not supported"),
        (np.array(["a", 1], dtype=object), "mixes types that cannot be put in order"),
        (sp.csr_array(np.array([[0, 3]])), "Y must be 0/1 .* row 0, column 1 holds 3"),
    ],
)
def test_refusals_name_the_place_and_the_cure(labels, message):
    with pytest.raises(DataError, match=message):
        label_matrix(labels)


def test_nan_is_unknown():
    nan = np.nan
    assert label_matrix(np.array([[nan, 1.0], [0, 0]])).toarray().tolist() == [[-1, 1], [0, 0]]
    assert label_matrix(np.array([[nan, 1.0], [1, nan]])).toarray().tolist() == [[-1, 1], [1, -1]]
    assert label_matrix(np.array([1.0, nan, 0])).toarray().ravel().tolist() == [1, -1, 0]
    assert label_matrix(np.array([2.0, nan, 3])).toarray().ravel().tolist() == [0, -1, 1]


def test_columns_of_whole_numbers_are_classes():
    """As columns of text are; where some hold 0 and 1 alone it might be an error in a table of labels."""
    table = np.array([[0, 5], [1, 6], [2, 5], [-1, 6]])
    expected = [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0], [-1, -1, -1, 1]]
    assert label_matrix(table).toarray().tolist() == expected
    table = np.where(table == -1, np.nan, table)
    assert label_matrix(table).toarray().tolist() == expected
    assert label_matrix([[1, 2], [2, 1]]).toarray().tolist() == [[0, 1], [1, 0]]


def test_columns_of_a_table_are_named():
    pd = pytest.importorskip("pandas")
    with pytest.raises(DataError, match=r"Y must be 0/1; column 'sky' holds 0.5"):
        label_matrix(pd.DataFrame({"sea": [1, 0], "sky": [0, 0.5]}))
