"""What selectors with a loop over the data share: the two forms of their graph of rows, and checkpoints.

With anchors a loop keeps only variables whose size does not depend on n. An iteration is one reading: the variables of
each row are computed from them, added to sums and discarded, so that no process holds an array with n rows. The exact
form holds X, Y and the graph of the paper in this process (`mlfs_dask.exact`), and is for data of some 50 000 rows.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.anchors import ROWS_PER_ANCHOR, Anchors, count_anchors, place_anchors
from mlfs_dask.blocks.forest import SAMPLE_BYTES
from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.in_memory import InMemory
from mlfs_dask.selectors.loop import A, F, Loop
from mlfs_dask.statistics.sample import RowSample, draw_rows
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Matrix

GraphKind: TypeAlias = Literal["anchors", "exact", "auto"]

#: Rows up to which "auto" takes the exact graph.
EXACT_ROWS = 20_000


class IterativeSelector(InMemory, Loop[F, A]):
    """Base class of loops whose graph of rows goes through anchors, or is the paper's, with all rows in memory."""

    graph: GraphKind
    n_anchors: int
    anchor_neighbors: int
    random_state: Any

    def check(self) -> None:
        super().check()
        if self._is_published and self.graph == "anchors":
            raise UsageError(
                f"{parameter(*self.published)} is a published form, which has the exact graph: "
                f"give {parameter('graph', 'exact')}"
            )

    def _holds_rows(self, n: int) -> bool:
        return self._is_published or not uses_anchors(self.graph, n)

    @property
    def _anchors_do(self) -> bool:
        return not self._is_published

    # ------------------------------------------------------------------ what the forms with anchors share

    def _n_anchors(self, profile: Profile, width: int) -> int:
        """m, the number of anchors for points of `width` features."""
        return count_anchors(self.n_anchors, profile.n, width)


def uses_anchors(graph: GraphKind, n: int) -> bool:
    """Whether n rows have a graph of anchors."""
    return graph == "anchors" or (graph == "auto" and n > EXACT_ROWS)


def standardised_points(X: Matrix, scaling: Scaling) -> Matrix:
    """Rows of a sample as `scaling` gives them: sparse where fewer than half of the values are not 0, else dense.

    Sparse rows are not centred. Anchors are placed in single precision, where centring changes the rounding and with it
    ties. Whether rows are sparse here depends on their values and not on how X is stored, so that dense and sparse X
    have the same anchors.
    """
    values = np.count_nonzero(X.data if sp.issparse(X) else X)
    if 2 * values < X.shape[0] * X.shape[1]:
        return scaling.apply(sp.csr_array(X))
    return scaling.apply(X.toarray() if sp.issparse(X) else X)


def point_bytes(profile: Profile) -> int:
    """Bytes of a row of `standardised_points`, on average."""
    if not profile.sparse:
        return 8 * profile.d
    values = -(-profile.nonzeros // max(profile.n, 1))
    # A sample may have some more values a row than all rows have.
    return max(12 * values, 8 * profile.d) if 5 * values >= 2 * profile.d else 12 * values


def anchor_sample(profile: Profile, m: int, seed: int) -> RowSample:
    """Statistic: the rows among which k-means places m anchors."""
    return RowSample(draw_rows(profile, ROWS_PER_ANCHOR * m, seed, max_bytes=SAMPLE_BYTES), profile)


def anchors_of_points(
    points: Matrix, m: int, scaling: Scaling, neighbors: int, seed: int, *, combined: bool = False
) -> Anchors:
    """At most m anchors by k-means among standardised rows of a sample.

    Parameters
    ----------
    points : float64 array or csr_array, shape (rows, d)
        Of `standardised_points`.
    m : int
    scaling : Scaling
    neighbors : int
        Nearest anchors that a row belongs to.
    seed : int
    combined : bool
        As of `Anchors`.
    """
    with runtime.stage("placing anchors"):
        centres = place_anchors(points, min(m, points.shape[0]), seed)
    if sp.issparse(points):
        centres -= scaling.centre * scaling.factor
    return Anchors(centres, scaling.centre, scaling.factor, neighbors, combined=combined)
