"""Compiled decimal conversion against Python's own, bit for bit."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlfs_dask.storage.readers.parse_float import number_from_text, read_number


def bits(value: float) -> bytes:
    return struct.pack("d", value)


def convert(text: str) -> tuple[bool, float, int]:
    return read_number(np.frombuffer(text.encode() + b",", dtype=np.uint8).copy(), 0)  # type: ignore[no-any-return]


def check(text: str, *, may_decline: bool) -> None:
    exact, value, end = convert(text)
    assert exact or may_decline, text
    if exact:
        assert bits(value) == bits(float(text)), text
        assert end == len(text)


@settings(max_examples=400)
@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
@example(0.1)
@example(1.7976931348623157e308)
@example(-0.0)
@example(2.2250738585072014e-308)
def test_shortest_form_of_any_float(value: float) -> None:
    # What other programs write: 17 digits and less. The extremes of the range are left to Python.
    check(repr(value), may_decline=not 1e-300 < abs(value) < 1e300 and value != 0)
    check(f"{value:.17g}", may_decline=True)
    check(f"{value:.6f}", may_decline=True)


@settings(max_examples=400)
@given(
    sign=st.sampled_from(["", "-", "+"]),
    whole=st.text("0123456789", max_size=20),
    fraction=st.text("0123456789", max_size=20),
    exponent=st.one_of(st.none(), st.integers(-400, 400)),
)
def test_any_decimal(sign: str, whole: str, fraction: str, exponent: int | None) -> None:
    text = f"{sign}{whole or '0'}.{fraction}" + ("" if exponent is None else f"e{exponent:+}")
    check(text, may_decline=True)


@settings(max_examples=300)
@given(st.integers(2**52, 2**53 - 1), st.integers(-60, 10))
def test_halves_between_two_floats_round_to_even(mantissa: int, power: int) -> None:
    # The decimal lies exactly half-way, where a truncated product cannot decide.
    from fractions import Fraction

    value = Fraction(2 * mantissa + 1) * Fraction(2) ** power
    text = str(value.numerator) if value.denominator == 1 else None
    if text is None:
        digits = value.numerator * 5 ** (value.denominator.bit_length() - 1)
        text = f"{digits}e-{value.denominator.bit_length() - 1}"
    check(text, may_decline=True)


def test_few_numbers_are_left_to_python() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(20_000) * 10.0 ** rng.integers(-200, 200, 20_000)
    assert all(convert(repr(float(value)))[0] for value in values)


@pytest.mark.parametrize("text", ["", "-", "+", ".", "e5", "1e", "1e+", "-.e1", "nan", "inf", "x1"])
def test_no_number(text: str) -> None:
    assert not convert(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "1.",
        ".5",
        "-.5e-3",
        "+7",
        "007",
        "1E5",
        "0e999",
        "0" * 30 + "1",
        "0." + "0" * 25 + "17",
        "0." + "0" * 25,
        "-" + "0" * 25,
    ],
)
def test_unusual_numbers(text: str) -> None:
    check(text, may_decline=False)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400", "5e-324", "1" * 25, "1." + "0" * 30 + "1"])
def test_left_to_python(text: str) -> None:
    assert not convert(text)[0]
    assert number_from_text(text) == float(text)


def test_number_from_text() -> None:
    assert number_from_text("1_0") is None
    assert number_from_text("١") is None
    assert number_from_text("0x1") is None
    assert math.isnan(number_from_text("nAn") or 0.0)
