"""How many features to keep, as people write it: a count (20), or a share of all features (10%, 0.1, 1/6)."""

from __future__ import annotations

from fractions import Fraction


def parse_feature_count(text: str) -> int | Fraction:
    """The count that `text` is, as int, or the share, as a fraction in (0, 1].

    Raises
    ------
    ValueError
        With what is wrong, for a message that begins with the text.

    Examples
    --------
    >>> [parse_feature_count(text) for text in ("20", "10%", "0.1", "1/6")]
    [20, Fraction(1, 10), Fraction(1, 10), Fraction(1, 6)]
    """
    text = text.strip()
    try:
        if text.lstrip("+-").isdigit():
            return int(text)
        share = Fraction(text.removesuffix("%").rstrip()) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError("is neither a count (20) nor a share of the features (10%, 0.1, 1/6)") from None
    if not 0 < share <= 1:
        raise ValueError("is no share of the features: it lies between 0 and 100%, and a count has no decimal point")
    return share


def parse_n_features_to_select(text: str) -> int | float:
    """The same as selectors take it: a share as float.

    Raises
    ------
    ValueError
        As `parse_feature_count`.
    """
    found = parse_feature_count(text)
    return found if isinstance(found, int) else float(found)
