"""Which features are chosen, after they were scored: those that are kept in any case first, none that is excluded."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import UsageError, number_of, parameter
from mlfs_dask.selectors.contract import Method
from mlfs_dask.selectors.costs import Names
from mlfs_dask.storage.subset_spec import list_columns


def with_numbers(method: Method, names: Names, d: int) -> Method:
    """The method with the numbers of the features that `keep` and `exclude` name.

    Parameters
    ----------
    method : Method
    names : Names
        Of the data.
    d : int
        Features of the data.

    Raises
    ------
    UsageError
        A feature is not there, is named twice, or is both kept and excluded.
    DataError
        A file of features cannot be read.
    """
    numbered: Any = copy.copy(method)
    for option in ("keep", "exclude"):
        given = getattr(method, option)
        if given is not None:
            try:
                setattr(numbered, option, tuple(list_columns(given, names.features, d, "feature").tolist()))
            except UsageError as error:
                raise UsageError(f"{parameter(option)}: {error}") from None
    both = sorted(set(numbered.keep or ()) & set(numbered.exclude or ()))
    if both:
        name = both[0] if names.features is None else repr(str(names.features[both[0]]))
        raise UsageError(
            f"{parameter('keep')} and {parameter('exclude')} both name feature {name}; leave it out of one of them."
        )
    chosen: Method = numbered
    return chosen


def kept_features(method: Method, d: int, k: int) -> NDArray[np.int64]:
    """Numbers, among the features that the method reads, of those that are kept, in their order.

    Parameters
    ----------
    method : Method
        `with_numbers`.
    d : int
        Features of the data.
    k : int
        Features to choose.

    Raises
    ------
    UsageError
        They are more than k.
    """
    kept = np.asarray(method.keep or (), np.int64)
    if len(kept) > k:
        raise UsageError(
            f"{parameter('keep')} names {number_of(len(kept), 'feature')}, and {k:,} are to be chosen in all: give a "
            f"larger {parameter('n_features_to_select')}, which counts them, or keep fewer."
        )
    features = method.features(d)
    return kept if features is None else np.searchsorted(features, kept)


def of_all_features(values: NDArray[Any], features: NDArray[np.int64] | None, d: int, excluded: Any) -> NDArray[Any]:
    """Values of the features that were read, and `excluded` for the others; shape (d, ...).

    >>> of_all_features(np.array([0.5, 2.0]), np.array([0, 2]), 3, -1)
    array([ 0.5, -1. ,  2. ])
    """
    if features is None:
        return values
    whole = np.full((d, *values.shape[1:]), excluded, values.dtype)
    whole[features] = values
    return whole


def ranking_of_all(ranking: NDArray[np.int64], features: NDArray[np.int64] | None, d: int) -> NDArray[np.int64]:
    """A ranking of the features that were read, as one of all: the others come last, by index."""
    if features is None:
        return ranking
    return np.concatenate([features[ranking], np.delete(np.arange(d), features)])


def facts(method: Method, names: Names) -> Mapping[str, Any]:
    """What the record says of the features that were kept and excluded.

    Parameters
    ----------
    method : Method
        `with_numbers`.
    names : Names
        Of the data.
    """

    def named(numbers: Any) -> list[Any]:
        return [number if names.features is None else str(names.features[number]) for number in numbers or ()]

    noted = {"kept_features": named(method.keep), "excluded_features": named(method.exclude)}
    return {name: value for name, value in noted.items() if value}
