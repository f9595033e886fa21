"""Methods as data: constructors, checks, options and documentation made of annotated parameters."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from typing import Annotated, Literal

import numpy as np
import pytest

import mlfs_dask
from mlfs_dask.errors import UsageError, spell_parameters_as
from mlfs_dask.selection.estimator import estimator_of, get_estimator
from mlfs_dask.selection.question import COMMON, parameters_of
from mlfs_dask.selectors import METHODS
from mlfs_dask.selectors.contract import Method, family, method
from mlfs_dask.selectors.parameters import Param, Parameter, seed_of
from mlfs_dask.typing import Seed


def options(selector):
    return {o.name: o for o in selector.plain.parameters}


def test_every_parameter_of_every_method_is_an_option():
    for name in METHODS:
        selector = get_estimator(name)
        found = {option.name: option for option in parameters_of(selector.plain)}
        assert set(found) == set(selector().get_params()) - {"n_features_to_select", "target_type"}
        assert getattr(mlfs_dask, selector.__name__) is selector
        assert selector.__name__ in mlfs_dask.__all__
        for option in found.values():
            assert option.help
            assert "  " not in option.help
            assert option.default == selector().get_params()[option.name]


def test_options_of_elc():
    found = options(get_estimator("elc"))
    assert list(found) == [
        *("variant", "similarity", "lambda_", "beta", "mask_iter", "tol", "max_iter"),
        *("missing", "resamples", "random_state"),
    ]
    assert found["variant"].choices == ("corrected", "published", "screen")
    assert found["variant"].type_text == "corrected | published | screen"
    assert found["lambda_"].flag == "--lambda"
    assert found["lambda_"].optional
    assert found["lambda_"].type_text == "float | none"
    assert found["mask_iter"].flag == "--mask-iter"
    assert found["max_iter"].help == "Maximum number of iterations."


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
    found = Parameter("x", types, None, optional=optional).parse(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        (
            Parameter("max_iter", (int,), 1, optional=False),
            "2.5",
            "^max_iter must be a whole number of at least 1; got '2.5'",
        ),
        (Parameter("lambda_", (int, float), 1, optional=True), "a", "^lambda_ must be a number or none; got 'a'"),
        (Parameter("flag", (bool,), True, optional=False), "maybe", "^flag must be true or false; got 'maybe'"),
        (Parameter("step", (str,), "a", ("a", "b")), "c", "^step must be one of a, b; got 'c'"),
    ],
)
def test_other_texts_are_refused(option, text, message):
    with pytest.raises(UsageError, match=message):
        option.parse(text)


def test_messages_spell_a_parameter_as_their_reader_does():
    option = Parameter("lambda_", (float,), 1, optional=False)
    for spelling, message in (
        ("option", "^--lambda must be a non-negative number"),
        ("key", "^lambda must be a non-negative number"),
    ):
        with spell_parameters_as(spelling), pytest.raises(UsageError, match=message):
            option.parse("a")


def test_a_class_that_cannot_be_read_is_an_error_of_the_class():
    named = {"paper": "", "doi": ""}
    with pytest.raises(TypeError, match="Undocumented: parameter 'alpha' is not documented"):

        @method("undocumented", "", **named)
        class Undocumented(Method):
            alpha: float = 1.0

    with pytest.raises(TypeError, match=r"Strange.alpha: an option cannot be made of <class 'list'>"):

        @method("strange", "", **named)
        class Strange(Method):
            alpha: Annotated[list, Param("Something.")] = None


@family
class Family(Method):
    """Base class."""

    on_features = "More of them take longer."
    passes = "1"
    memory = "worker: 8 bytes * d"
    family_notes = """
    What all have.
    """
    size: Annotated[float, Param("How large.")] = 1.0


@method("checked", "A method", paper="Nobody 2000", doi="10.0/0")
class Checked(Family):
    """A method, in one line.

    And in more.

    Notes
    -----
    What this one has.

    Examples
    --------
    None.
    """

    form: Annotated[Literal["a", "b", "c"], Param("Which.")] = "a"
    exact: Annotated[bool, Param("Whether.")] = True
    width: Annotated[float | None, Param("How wide; as wide as it takes by default.", above=0)] = None
    most: Annotated[int, Param("How many.", least=2)] = 3
    rate: Annotated[float, Param("Part.", above=0, below=1)] = 0.5
    tolerance: Annotated[float, Param("Error.", least=0.1, most=0.5)] = 0.1
    share: Annotated[int | float, Param("A count, or a share.")] = 0.5
    random_state: Annotated[Seed, seed_of("the draw")] = None


def test_documentation_is_made_of_the_parameters():
    own, shared, rest = re.split(r"(?<=How large\.\n)|(?=\nNotes)", inspect.getdoc(estimator_of(Checked)))
    assert (
        own
        == """A method, in one line.

And in more.

Parameters
----------
n_features_to_select : int or float, optional
    Number of features to keep, or a fraction of them; half by default. More of them take longer.
form : {"a", "b", "c"}, default "a"
    Which.
exact : bool, default True
    Whether.
width : float, optional
    How wide; as wide as it takes by default.
most : int, default 3
    How many.
rate : float, default 0.5
    Part.
tolerance : float, default 0.1
    Error.
share : int or float, default 0.5
    A count, or a share.
random_state : int, Generator or RandomState, optional
    Seed of the draw.
size : float, default 1.0
    How large.
"""
    )
    assert re.findall(r"^(\w+) : ", shared, re.MULTILINE) == [*(each.name for each in COMMON), "target_type"]
    assert (
        rest
        == """
Notes
-----
Passes over X: 1. Memory: worker: 8 bytes * d.

What all have.

What this one has.

Examples
--------
None."""
    )


def test_the_constructor_takes_the_count_by_position_alone():
    made = estimator_of(Checked)(7, most=5)
    assert (made.n_features_to_select, made.most, made.size) == (7, 5, 1.0)
    with pytest.raises(TypeError, match="positional"):
        estimator_of(Checked)(7, "b")


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
        ({"rate": 1}, "rate must be a positive number below 1; got 1"),
        ({"tolerance": 0}, "tolerance must be a number from 0.1 to 0.5; got 0"),
        ({"tolerance": 0.6}, "tolerance must be a number from 0.1 to 0.5; got 0.6"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0; got -1"),
        ({"random_state": 2**32}, "random_state must be at most 4294967295; got 4294967296"),
    ],
)
def test_values_are_checked_against_annotations(values, message):
    with pytest.raises(UsageError) as refusal:
        Checked(**values).check()
    assert str(refusal.value).startswith(message)


def test_values_that_annotations_allow_pass():
    Checked(
        form="c", exact=np.False_, width=None, size=np.float32(0), most=np.int64(2), share="?", tolerance=0.5
    ).check()
    Checked(width=3, most=2, random_state=np.random.default_rng(0)).check()


def test_methods_need_no_scikit_learn():
    code = """
import json, sys
from mlfs_dask.selection.question import ask
from mlfs_dask.selectors import METHODS
found = {name: ask(name, 3).get_params() for name in METHODS}
assert "sklearn" not in sys.modules
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = {name: get_estimator(name)(3).get_params() for name in METHODS}
    for parameters in expected.values():
        del parameters["target_type"]  # of the arrays that an estimator is given
    assert json.loads(done.stdout) == expected
