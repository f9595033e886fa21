"""What counts as rounding: fractions of the numbers that sums and differences are made of."""

from __future__ import annotations

#: Of the most that a sum could be, up to which it is the rounding of 0. Its last digits depend on the order of
#: summation; features that tie in exact arithmetic would be parted by them.
ROUNDING = 2.0**-40

#: Up to which two numbers are the same that other containers, or another order, give otherwise.
SAME = 1e-9

#: Of squares, or of weights, up to which a variance or a difference of them is rounding.
NEGLIGIBLE = 1e-12

#: Of the largest eigenvalue of a Gram matrix, up to which others are zero: what its rank is counted by.
RANK = 1e-10

#: Decimal places of information, of which the others differ by the order of summation.
INFORMATION_DIGITS = 12
