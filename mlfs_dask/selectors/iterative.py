"""What selectors with a loop over the data share: the two forms of their graph of rows, and checkpoints.

With anchors a loop keeps only variables whose size does not depend on n. An iteration is one reading: the variables of
each row are computed from them, added to sums and discarded, so that no process holds an array with n rows. The exact
form holds X, Y and the graph of the paper in this process (`mlfs_dask.exact`), and is for data of some 50 000 rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.anchors import ROWS_PER_ANCHOR, Anchors, count_anchors, place_anchors
from mlfs_dask.blocks.column_keys import key_places, mean_of_copies
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.exact.fit import ExactFit
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import Cost, Plan, Reading, Readings, require_driver
from mlfs_dask.selectors.loop import A, F, Loop
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.statistics.moments import FeatureMoments, Moments
from mlfs_dask.statistics.rows_in_memory import read_rows
from mlfs_dask.statistics.sample import RowSample, draw_rows
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.statistics.write_rows import RowSink, UnwrittenRows
from mlfs_dask.typing import Matrix, join_terms, numbers

Array = NDArray[np.float64]

GraphKind: TypeAlias = Literal["anchors", "exact", "auto"]

#: Rows up to which "auto" takes the exact graph.
EXACT_ROWS = 20_000

#: Bytes of the sample of rows among which anchors are placed.
SAMPLE_BYTES = 64 * 2**20


class IterativeSelector(Loop[F, A]):
    """Base class of loops whose graph of rows goes through anchors, or is the paper's, with all rows in memory."""

    #: Parameter and value that select the published form, which always has the exact graph.
    published: ClassVar[tuple[str, str]]

    #: Whether the exact form loads scikit-learn.
    exact_loads_sklearn: ClassVar[bool] = False

    graph: GraphKind
    n_anchors: int
    anchor_neighbors: int
    gram_cap: int
    random_state: Any

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        """What the exact form holds beside X and Y as they are read, and size letters."""

    def _compiles_exact_search(self, profile: Profile) -> bool:
        """Whether the exact form loads compiled kernels."""
        return False

    @abstractmethod
    def _fit_exactly(self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
        """The exact form, on rows in memory."""

    # ------------------------------------------------------------------ the two forms

    def check(self) -> None:
        super().check()
        if self._is_published and self.graph == "anchors":
            raise UsageError(
                f"{parameter(*self.published)} is a published form, which has the exact graph: "
                f"give {parameter('graph', 'exact')}"
            )

    @property
    def _is_published(self) -> bool:
        name, value = self.published
        return bool(getattr(self, name) == value)

    def _uses_anchors(self, n: int) -> bool:
        return not self._is_published and uses_anchors(self.graph, n)

    def first_reading(self, source: RowSource, resources: Resources) -> Sequence[Statistic]:
        return super().first_reading(source, resources) if self._uses_anchors(source.profile.n) else []

    def cost(self, source: Profile | RowSource, resources: Resources) -> Cost:
        """The readings of `max_iter` iterations, or X, Y and what the exact form holds of them."""
        profile = profile_of(source)
        if self._uses_anchors(profile.n):
            return super().cost(source, resources)
        workspace, sizes = self._exact_workspace(profile)
        note = "exact graph: X, Y and the variables of all rows are in the memory of this process"
        if not self._is_published:
            note += "; with --graph anchors none are, and readings take the place of searches for neighbours"
        return Cost(
            steps=(Reading("rows", (), workspace="rows"), join_terms("rows", workspace)),
            sizes={**sizes_in_memory(profile), **sizes},
            compiled=self._compiles_exact_search(profile),
            loads_sklearn=self.exact_loads_sklearn,
            notes=(note,),
        )

    def plan(self, source: Profile | RowSource, resources: Resources) -> Plan:
        """What a fit will cost. Integers only; no data is touched.

        Raises
        ------
        DoesNotFitError
            When no plan fits the workers, or the exact form does not fit this process.
        """
        plan = super().plan(source, resources)
        n = profile_of(source).n
        if not self._uses_anchors(n):
            cure = None
            if self._is_published:
                cure = f"leave out {parameter(*self.published)}, which has the exact graph alone, or take fewer rows"
            require_exact_graph(plan, resources, self.method, cure=cure)
        return plan

    def score(self, readings: Readings, k: int) -> Scores:
        if self._uses_anchors(readings.source.profile.n):
            return super().score(readings, k)
        X, Y, record = read_rows(readings.source, readings.resources)
        readings.records.append(record)
        (moments,), _ = run_reading(ArrayRows(X, Y), [Moments(X.shape[1])], readings.resources, label="moments")
        unknown = np.bincount(Y.indices[Y.data < 0], minlength=Y.shape[1])
        self._examine(readings, moments, unknown)
        fit = self._fit_exactly(X, Y, moments)
        positives = np.bincount(Y.indices[Y.data > 0], minlength=Y.shape[1])
        scores = mean_of_copies(fit.scores, key_places(X, readings.varies))
        result = self._result(readings, scores, fit.trace, {"graph": {"kind": "exact"}, **fit.extra}, positives)
        return replace(result, labels=fit.labels, mean=moments.mean)

    # ------------------------------------------------------------------ labels of rows

    def plan_to_write_labels(self, sink: RowSink) -> None:
        """Count in plans that `Fit.write_labels` follows the fit; of `sink` the sizes alone matter."""
        self._labels_sink = UnwrittenRows(sink.shape, sink.chunk_rows)

    # ------------------------------------------------------------------ what the forms with anchors share

    def _n_anchors(self, profile: Profile, width: int) -> int:
        """m, the number of anchors for points of `width` features."""
        return count_anchors(self.n_anchors, profile.n, width)


def uses_anchors(graph: GraphKind, n: int) -> bool:
    """Whether n rows have a graph of anchors."""
    return graph == "anchors" or (graph == "auto" and n > EXACT_ROWS)


def sizes_in_memory(profile: Profile) -> dict[str, int]:
    """Size letters of an exact form, among them the rows of X and Y as it reads them."""
    values = (1 + profile.sparse) * (profile.itemsize + 4 * profile.sparse) * profile.nonzeros
    return {
        "n": profile.n,
        "d": profile.d,
        "q": profile.q,
        "v": profile.nonzeros,
        "y": profile.label_nonzeros,
        "rows": numbers(values + 10 * profile.label_nonzeros),
    }


def require_exact_graph(plan: Plan, resources: Resources, method: str, *, cure: str | None = None) -> Plan:
    """`plan`, unless this process does not hold the rows and their exact graph.

    Raises
    ------
    DoesNotFitError
    """
    if cure is None:
        cure = f"take {parameter('graph', 'anchors')}, which holds nothing that grows with the number of rows"
    return require_driver(plan, resources, f"the exact graph of {method} in this process", cure=cure)


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
