"""Regressions on all features at once whose sums one pass gives: X'X, X'Y, Y'Y."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DataError, number_of, parameter
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.contract import family
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.selectors.one_reading import OneReading
from mlfs_dask.selectors.parameters import GramCap, Missing, seed_of
from mlfs_dask.selectors.scores import SOLVED_BITS, Scores, not_converged, round_scores, zero_weights_warning
from mlfs_dask.solvers.proximal import Solution
from mlfs_dask.statistics.column_keys import ColumnKeys
from mlfs_dask.statistics.gram import GRAM_CAP, Gram, scale_gram
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array, Seed


@family
class Regression(OneReading):
    """Base class of regressions whose sums one pass gives."""

    takes_covariates = caps_features = True
    resamples_rows = False
    passes = "1"
    memory = "worker: 8 bytes * (d² + q d + q²); driver: 8 bytes * (d² + 12 q d)"
    workspace = "12 q d + 6 q q"  # the matrices of the solver, and those of the labels; X'X is scaled in its place

    gram_cap: GramCap = GRAM_CAP
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample of rows for medians")] = None

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        profile = profile_of(source)
        gram = Gram(profile.d, weighted=profile.weight is not None)
        return super().reads(source) | {"gram": gram, "keys": ColumnKeys(profile.d)}

    def examine_labels(self, job: Readings, sums: LabelMoments) -> None:
        """Refuse unknown labels, where the method takes none, and labels of which no row has all.

        Raises
        ------
        DataError
        """
        require_labelled(sums.n)
        self.examine_unknown(job, sums.unknown)

    def prepare(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        self.examine_labels(job, results["sums"])
        return super().prepare(job, results)

    def warnings(self, job: Readings, outcome: Scores, results: Mapping[str, Any]) -> list[Warning]:
        zero = [] if outcome.scores.any() else zero_weights_warning(self.method, outcome.extra)
        return zero or super().warnings(job, outcome, results)

    def system(self, sums: LabelMoments, gram: Array, factor: Array | None = None) -> tuple[Array, Array]:
        """Return X'X and X'(Y − mean) of features scaled by `factor`, in the place of their sums, shapes (d, d) and
        (d, q).

        By default features are standardised over the rows of the sums.
        """
        factor = sums.factor if factor is None else factor
        return scale_gram(gram, factor), np.ascontiguousarray(sums.scaled_products(factor).T)

    def solved(self, solution: Solution, extra: dict[str, Any], *, exact: bool = False) -> Scores:
        """Return scores by the norms of the rows of W; `exact` ones with all their digits."""
        warnings = []
        if not solution.converged:
            text = f"{self.name} did not converge in {number_of(len(solution.objective), 'iteration')}"
            warnings.append(not_converged(f"{text}. Increase {parameter('max_iter')}, or {parameter('tol')}."))
        return Scores(
            row_norms(solution.W) if exact else round_scores(row_norms(solution.W), SOLVED_BITS),
            iterations=len(solution.objective),
            converged=solution.converged,
            objective=solution.objective,
            extra=extra,
            warnings=warnings,
        )


def penalty_weight(method: Any, name: str, critical: float, facts: dict[str, Any]) -> float:
    """Return the weight of a penalty as it is, of which `name` is the parameter; `critical` is the least at which W
    = 0.

    The two become facts for the record.
    """
    weight = float(getattr(method, name)) * (1.0 if method.absolute else critical)
    facts |= {name: weight, f"critical_{name}": critical}
    return weight


def require_labelled(n: float) -> None:
    """Refuse labels of which no row has all; n rows have.

    Raises
    ------
    DataError
    """
    if not n:
        raise DataError("no row has all its labels known", cure="give labels 1 and 0 for some rows")
