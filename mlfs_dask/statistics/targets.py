"""Moments and quantiles of numeric targets over their known rows, from one pass over the targets alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.rows.targets import TargetForm
from mlfs_dask.statistics.moments import central_sums, move_powers
from mlfs_dask.statistics.sample import SampledRows
from mlfs_dask.typing import Array

#: Name of the pass.
TARGETS = "targets"


@dataclass(frozen=True)
class TargetSums(Statistic):
    """Statistic: rows in which each target is known, (q,), its mean, (q,), and sums of central powers, (3, q).

    Parameters
    ----------
    n_targets : int
    """

    n_targets: int

    kind = "target moments"
    state_names = ("rows", "shift", "sums")

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.n_targets,), (self.n_targets,), (4, self.n_targets)

    def scratch_bytes(self, profile: Profile) -> int:
        return 32 * profile.block_rows * self.n_targets

    def add(self, state: State, block: Block) -> None:
        rows, shift, sums = state
        known = ~np.isnan(block.Y)
        weights = np.ones(len(known)) if block.weights is None else block.weights
        new = (rows == 0) & known.any(axis=0)
        shift[new] = block.Y[known.argmax(axis=0)[new], new]
        deviations = np.where(known, block.Y - shift, 0.0)
        rows += weights @ known
        power = deviations.copy()
        for total in sums:
            total += weights @ power
            power *= deviations

    def merge(self, into: State, other: State) -> None:
        into[1][:] = np.where(into[0] == 0, other[1], into[1])
        into[2][...] += move_powers(other[2], other[0], other[1] - into[1])
        np.add(into[0], other[0], out=into[0])

    def finalize(self, state: State) -> tuple[Array, Array, Array]:
        rows, shift, sums = state
        return rows, shift + sums[0] / np.maximum(rows, 1), central_sums(sums, rows)


def target_form(
    sums: tuple[Array, Array, Array], sample: SampledRows | None = None, n_bins: int | None = None
) -> TargetForm:
    """Return the form of targets: standardised, or cut at the quantiles of a sample of rows into `n_bins` bins.

    Parameters
    ----------
    sums : tuple
        Result of `TargetSums`.
    sample : SampledRows, optional
    n_bins : int, optional
    """
    n, mean, (x2, x3, x4) = sums
    scale, n = np.sqrt(x2 / np.maximum(n, 1)), np.maximum(n, 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a constant target
        skewness, kurtosis = x3 / n / scale**3, x4 / n / scale**4 - 3
    form = TargetForm(mean, np.where(scale > 0, scale, 1.0), skewness, kurtosis)
    if sample is None or n_bins is None:
        return form
    cuts = []
    for values in sample.Y.T:
        known = values[~np.isnan(values)]
        quantiles = np.unique(np.quantile(known, np.arange(1, n_bins) / n_bins)) if len(known) else known
        cuts.append(quantiles[quantiles < known.max(initial=-np.inf)])  # nothing lies above the maximum
    return form.cut(cuts)
