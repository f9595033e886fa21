"""Tolerances for rounding errors, as fractions of the terms of sums and differences."""

from __future__ import annotations

#: Share of a sum's largest possible value up to which the sum counts as 0. Its last digits depend on the order of
#: summation, which would separate features that tie in exact arithmetic.
ROUNDING = 2.0**-40

#: Relative difference up to which two numbers from different containers, or in another order, are equal.
SAME = 1e-9

#: Share of squares, or of weights, up to which a variance or a difference counts as 0.
NEGLIGIBLE = 1e-12

#: Share of the largest eigenvalue of a Gram matrix up to which eigenvalues count as 0 in its rank.
RANK = 1e-10

#: Decimal places of information; further ones depend on the order of summation.
INFORMATION_DIGITS = 12
