"""Options made from signatures and documentation."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Literal

import numpy as np
import pytest

import mlfs_dask
from mlfs_dask.errors import UsageError, spell_parameters_as
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.options import Option, check_parameters, parameter_texts, selector_options


def options(selector):
    return {o.name: o for o in selector_options(selector)}


def test_every_parameter_of_every_method_is_an_option():
    for name in METHODS:
        selector = get_method(name)
        found = options(selector)
        assert set(found) == set(selector().get_params()) - {"n_features_to_select"}
        for option in found.values():
            assert option.help
            assert "  " not in option.help
            assert option.default == selector().get_params()[option.name]


def test_every_method_is_a_name_of_the_package():
    for name in METHODS:
        selector = get_method(name)
        assert getattr(mlfs_dask, selector.__name__) is selector
        assert selector.__name__ in mlfs_dask.__all__


def test_options_of_elc():
    found = options(get_method("elc"))
    assert list(found) == [
        *("variant", "similarity", "lambda_", "beta", "mask_iter", "tol", "max_iter"),
        *("missing", "fdr", "resamples", "random_state"),
    ]
    assert found["variant"].choices == ("corrected", "published", "screen")
    assert found["variant"].type_text == "corrected | published | screen"
    assert found["lambda_"].flag == "--lambda"
    assert found["lambda_"].optional
    assert found["lambda_"].type_text == "float | none"
    assert found["mask_iter"].flag == "--mask-iter"
    assert found["max_iter"].help == "Most iterations."


@pytest.mark.parametrize(
    ("types", "optional", "text", "value"),
    [
        ((int, float), False, "3", 3),
        ((int, float), False, "0.2", 0.2),
        ((int, float), False, "1.0", 1.0),
        ((float,), True, "none", None),
        ((float,), False, "1e8", 1e8),
        ((bool,), False, "yes", True),
        ((bool,), False, "off", False),
        ((str,), False, "abc", "abc"),
    ],
)
def test_texts_become_values(types, optional, text, value):
    found = Option("x", types, None, (), optional, "").parse(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        (Option("max_iter", (int,), 1, (), False, ""), "2.5", "^max_iter must be int; got '2.5'"),
        (Option("lambda_", (int, float), 1, (), True, ""), "a", "^lambda_ must be int . float . none; got 'a'"),
        (Option("flag", (bool,), True, (), False, ""), "maybe", "^flag must be bool; got 'maybe'"),
        (Option("step", (str,), "a", ("a", "b"), False, ""), "c", "^step must be one of a, b; got 'c'"),
    ],
)
def test_other_texts_are_refused(option, text, message):
    with pytest.raises(UsageError, match=message):
        option.parse(text)


def test_messages_spell_a_parameter_as_their_reader_does():
    option = Option("lambda_", (float,), 1, (), False, "")
    for spelling, message in (("option", "^--lambda must be float"), ("key", "^lambda must be float")):
        with spell_parameters_as(spelling), pytest.raises(UsageError, match=message):
            option.parse("a")


def test_a_class_that_cannot_be_read_is_an_error_of_the_class():
    class Undocumented:
        """Nothing."""

        def __init__(self, n_features_to_select: int = 1, *, alpha: float = 1.0) -> None: ...

    class Strange:
        """Strange.

        Parameters
        ----------
        alpha : list
            Something.
        """

        def __init__(self, *, alpha: list = ()) -> None: ...

    class Fine:
        """Fine.

        Parameters
        ----------
        alpha : float
            First line.

            Second paragraph: with a colon.
        mode : {"a", "b"}
            Which.

        Returns
        -------
        nothing : here
            Other.
        """

        def __init__(self, *, alpha: float | None = 1.0, mode: Literal["a", "b"] = "a") -> None: ...

    with pytest.raises(TypeError, match="Undocumented: parameter 'alpha' is not documented"):
        selector_options(Undocumented)
    with pytest.raises(TypeError, match=r"Strange.alpha: an option cannot be made of <class 'list'>"):
        selector_options(Strange)
    assert [o.help for o in selector_options(Fine)] == ["First line. Second paragraph: with a colon.", "Which."]


def test_text_without_parameters():
    assert parameter_texts("Only a title.") == {}


class Checked:
    """A selector.

    Parameters
    ----------
    n_features_to_select : int
    form, exact, width, size, most, share : object
        Whatever.
    """

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        form: Literal["a", "b", "c"] = "a",
        exact: bool = True,
        width: float | None = None,
        size: float = 1.0,
        most: int = 3,
        share: int | float = 0.5,
    ) -> None:
        self.form, self.exact, self.width, self.size, self.most, self.share = form, exact, width, size, most, share


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"form": "d"}, "form must be 'a', 'b' or 'c'; got 'd'"),
        ({"exact": 1}, "exact must be true or false; got 1"),
        ({"width": 0.0}, "width must be a positive number; got 0.0"),
        ({"width": np.nan}, "width must be a positive number; got nan"),
        ({"size": None}, "size must be a non-negative number; got None"),
        ({"size": True}, "size must be a non-negative number; got True"),
        ({"size": -1}, "size must be a non-negative number; got -1"),
        ({"most": 1}, "most must be a whole number of at least 2; got 1"),
        ({"most": 2.0}, "most must be a whole number of at least 2; got 2.0"),
        ({"most": True}, "most must be a whole number of at least 2; got True"),
    ],
)
def test_values_are_checked_against_annotations(values, message):
    with pytest.raises(UsageError) as refusal:
        check_parameters(Checked(**values), positive=["width"], minimums={"most": 2})
    assert str(refusal.value).startswith(message)


def test_values_that_annotations_allow_pass():
    check_parameters(
        Checked(form="c", exact=np.False_, width=None, size=np.float32(0), most=np.int64(2), share="?"),
        positive=["width"],
        minimums={"most": 2},
    )
    check_parameters(Checked(width=3, most=1))


def test_parameters_alone_are_those_of_the_estimators():
    """In a process that has no use for scikit-learn's estimators."""
    code = """
import json, sys
from mlfs_dask import selectors
selectors.as_estimators = False
found = {name: selectors.get_method(name) for name in selectors.METHODS}
assert "sklearn" not in sys.modules
print(json.dumps([{name: s._get_param_names() for name, s in found.items()},
                  {name: s(n_features_to_select=3).get_params() for name, s in found.items()}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, values = json.loads(done.stdout)
    found = {name: get_method(name) for name in METHODS}
    assert names == {name: selector._get_param_names() for name, selector in found.items()}
    assert values == {name: selector(n_features_to_select=3).get_params() for name, selector in found.items()}
