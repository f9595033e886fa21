"""Decimal numbers from bytes, compiled, equal to Python's `float(text)` in every bit.

Three steps, each exact or declined: a product or quotient of two floats that are both exact (Clinger 1990);
else the 128-bit product of the digits with a truncated power of five (Lemire 2021); else, in about one
token in 10^9 of real data, the caller lets Python convert the text.

References
----------
W. D. Clinger, How to read floating point numbers accurately, PLDI 1990. doi:10.1145/93548.93557
D. Lemire, Number parsing at a gigabyte per second, Software: Practice and Experience 51(8), 2021.
doi:10.1002/spe.2984
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.compiling import njit

_LOWEST, _HIGHEST = -342, 308  # outside, 19 digits times 10^p are 0 or infinite


def _powers_of_five() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return high and low 64 bits of 5^p scaled to 128 significant bits, p = -342..308.

    Rounded down for p >= 0 and up for p < 0, as the error bound of the paper's section 7 supposes.
    """
    high, low = [], []
    for p in range(_LOWEST, _HIGHEST + 1):
        if p >= 0:
            scaled = 5**p
            excess = scaled.bit_length() - 128
            scaled = scaled >> excess if excess > 0 else scaled << -excess
        else:
            divisor = 5**-p
            scaled = (1 << (divisor.bit_length() + 127)) // divisor + 1
        high.append(scaled >> 64)
        low.append(scaled & (2**64 - 1))
    return np.array(high, dtype=np.uint64), np.array(low, dtype=np.uint64)


_FIVE_HIGH, _FIVE_LOW = _powers_of_five()
_TEN = np.array([float(10**p) for p in range(23)])
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_TOP_BIT = np.uint64(1 << 63)
_ONE, _ZERO = np.uint64(1), np.uint64(0)
_ALL_ONES = np.uint64(2**64 - 1)
_SPARE_BITS = np.uint64(0x1FF)  # product bits below the 54 that hold the mantissa and its rounding bit


@njit()
def _multiply(a, b):  # type: ignore[no-untyped-def]
    """(high, low) 64 bits of the product of two uint64."""
    a_high, a_low = a >> _HALF, a & _LOW_HALF
    b_high, b_low = b >> _HALF, b & _LOW_HALF
    low = a_low * b_low
    middle = a_high * b_low + (low >> _HALF)
    other = a_low * b_high + (middle & _LOW_HALF)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF), a * b


@njit()
def _scaled(digits, power):  # type: ignore[no-untyped-def]
    """(exact, digits * 10^power) for digits > 0; not exact where 128 bits do not decide the rounding."""
    if power < _LOWEST or power > _HIGHEST:
        return False, 0.0
    shift = 0
    while digits & _TOP_BIT == _ZERO:
        digits <<= _ONE
        shift += 1
    high, low = _multiply(digits, _FIVE_HIGH[power - _LOWEST])
    if high & _SPARE_BITS == _SPARE_BITS:
        # The bits left out of the power might carry into the mantissa: take the lower 64 of it in.
        more, _ = _multiply(digits, _FIVE_LOW[power - _LOWEST])
        low += more
        if low < more:
            high += _ONE
        if low == _ALL_ONES and high & _SPARE_BITS == _SPARE_BITS:
            return False, 0.0
    top = high >> np.uint64(63)
    mantissa = high >> (top + np.uint64(9))
    # floor(power * log2(10)) + 1 by the paper's integer approximation, exact in this range.
    exponent = ((217706 * power) >> 16) + 1024 + 63 - shift - (1 - np.int64(top))
    if exponent < 1 or exponent > 2045:
        return False, 0.0  # subnormal or infinite, or nearly
    if mantissa & np.uint64(3) == _ONE and low <= _ONE and high & _SPARE_BITS == _ZERO:
        return False, 0.0  # may lie half-way between two floats
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    # 2^53 after rounding up carries into the exponent field by itself.
    bits = (np.uint64(exponent - 1) << np.uint64(52)) + mantissa
    return True, np.uint64(bits).view(np.float64)


@njit()
def _leading_zeros(buffer, p):  # type: ignore[no-untyped-def]
    """Return zeros before the first digit that counts."""
    zeros = 0
    while buffer[p] == 48 or buffer[p] == 46:
        if buffer[p] == 48:
            zeros += 1
        p += 1
    return zeros


@njit()
def read_number(buffer, p):  # type: ignore[no-untyped-def]
    """Return the longest decimal number at `buffer[p]`, in the syntax [+-]digits[.digits][e[+-]digits].

    Parameters
    ----------
    buffer : uint8 array that holds a byte after the number which cannot belong to one
    p : int

    Returns
    -------
    exact : bool
        False where there is no number or Python must convert it.
    value : float
    end : int
        First byte after the number.
    """
    negative = buffer[p] == 45
    if negative or buffer[p] == 43:
        p += 1
    digits = _ZERO
    first = start = p
    c = np.uint8(buffer[p] - 48)
    while c <= 9:
        digits = digits * np.uint64(10) + np.uint64(c)
        p += 1
        c = np.uint8(buffer[p] - 48)
    count = p - start
    power = 0
    if buffer[p] == 46:
        p += 1
        start = p
        c = np.uint8(buffer[p] - 48)
        while c <= 9:
            digits = digits * np.uint64(10) + np.uint64(c)
            p += 1
            c = np.uint8(buffer[p] - 48)
        power = start - p
        count -= power
    if count > 19:
        count = max(count - _leading_zeros(buffer, first), 1)
    exact = 0 < count <= 19  # 19 digits fit 64 bits
    if buffer[p] | 32 == 101:
        p += 1
        below = buffer[p] == 45
        if below or buffer[p] == 43:
            p += 1
        exponent = np.int64(0)
        start = p
        c = np.uint8(buffer[p] - 48)
        while c <= 9:
            if exponent < 100_000:
                exponent = exponent * 10 + np.int64(c)
            p += 1
            c = np.uint8(buffer[p] - 48)
        exact = exact and p > start
        power += -exponent if below else exponent  # type: ignore[assignment]
    if not exact:
        return False, 0.0, p
    if digits <= np.uint64(1 << 53) and -22 <= power <= 22:
        value = np.float64(np.int64(digits))
        value = value * _TEN[power] if power >= 0 else value / _TEN[-power]
    elif digits == _ZERO:
        value = np.float64(0.0)
    else:
        exact, value = _scaled(digits, power)
    return exact, -value if negative else value, p
