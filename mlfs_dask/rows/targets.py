"""Numeric targets in the form in which methods take them: standardised, or cut at quantiles into 0/1 labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.typing import Array


def labels_as_numbers(Y: Any) -> Array:
    """Return labels as numeric targets: 1, 0, and NaN for -1; numeric targets unchanged.

    >>> labels_as_numbers(sp.csr_array(np.array([[1, 0], [-1, 1]], np.int8))).tolist()
    [[1.0, 0.0], [nan, 1.0]]
    """
    if isinstance(Y, np.ndarray):
        return Y
    numbers: Array = Y.toarray().astype(np.float64)
    numbers[numbers < 0] = np.nan
    return numbers


@dataclass(frozen=True, eq=False)
class TargetForm:
    """Form of numeric targets, computed from their known entries.

    Attributes
    ----------
    mean, scale : float64 array, shape (q,)
        Mean and standard deviation; the scale of a constant target is 1.
    skewness, kurtosis : float64 array, shape (q,)
        Skewness and excess kurtosis; NaN for a constant target.
    cuts : float64 array, shape (m,), or None
        Quantiles: for each there is a label "above the cut". None: each target is standardised.
    target_of_cut : int64 array, shape (m,)
    """

    mean: Array
    scale: Array
    skewness: Array
    kurtosis: Array
    cuts: Array | None = None
    target_of_cut: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def placeholder(cls, q: int, n_bins: int | None) -> TargetForm:
        """Return the form of q targets for a plan; with `n_bins` that of quantile codes."""
        zeros, ones = np.zeros(q), np.ones(q)
        form = cls(zeros, ones, zeros, zeros)
        return form if n_bins is None else form.cut([np.zeros(n_bins - 1)] * q)

    def cut(self, cuts: Sequence[Array]) -> TargetForm:
        """Return the form of labels above the cuts of each target."""
        return replace(
            self, cuts=np.concatenate(cuts), target_of_cut=np.repeat(np.arange(len(cuts)), [*map(len, cuts)])
        )

    @property
    def columns(self) -> NDArray[np.int64]:
        """Target of each column."""
        return np.arange(len(self.mean)) if self.cuts is None else self.target_of_cut

    def apply(self, Y: Array) -> Any:
        """Return standardised targets, NaN for unknown, or the labels above the cuts, -1 for unknown.

        Examples
        --------
        >>> form = TargetForm.placeholder(1, None).cut([np.array([1.0, 3.0])])
        >>> form.apply(np.array([[2.0], [np.nan]])).toarray()
        array([[ 1,  0],
               [-1, -1]], dtype=int8)
        """
        if self.cuts is None:
            return (Y - self.mean) / self.scale
        values = Y[:, self.target_of_cut]
        return sp.csr_array(np.where(np.isnan(values), -1, values > self.cuts).astype(np.int8))

    def names(self, names: Any) -> list[str]:
        """Return the names of the columns: those of the targets, or "dose>2.5" for each cut."""
        of_targets = [f"y{i}" if names is None else str(names[i]) for i in self.columns.tolist()]
        if self.cuts is None:
            return of_targets
        return [f"{name}>{cut:.6g}" for name, cut in zip(of_targets, self.cuts, strict=True)]
