"""Numbers of features as users write them: a count (20), or a share of all features (10%, 0.1, 1/6)."""

from __future__ import annotations

from fractions import Fraction


def parse_feature_count(text: str) -> int | Fraction:
    """Parse `text` to a count, as int, or to a share, as a fraction in (0, 1].

    Raises
    ------
    ValueError
        With the problem, for a message that begins with the text.

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
    """Parse `text` as `parse_feature_count` does; a share becomes a float.

    Raises
    ------
    ValueError
        See `parse_feature_count`.
    """
    count = parse_feature_count(text)
    return count if isinstance(count, int) else float(count)
