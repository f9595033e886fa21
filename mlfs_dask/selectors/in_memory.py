"""Forms of methods that hold X, Y and a graph of all rows in this process: for data of some 50 000 rows.

They are the form of a paper's own graph, and the published forms of methods whose product form goes otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.column_keys import key_places, mean_of_copies
from mlfs_dask.blocks.sparse import count_labels
from mlfs_dask.blocks.unknown import at_shares
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import UsageError, parameter
from mlfs_dask.exact.fit import ExactFit
from mlfs_dask.exact.graphs import compiles_nearest_rows
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings
from mlfs_dask.selectors.loop import LoopMethod
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.statistics.moments import FeatureMoments, Moments
from mlfs_dask.statistics.rows_in_memory import read_rows
from mlfs_dask.typing import Matrix, join_terms, numbers

GraphKind: TypeAlias = Literal["anchors", "exact", "auto"]

#: Rows up to which "auto" takes the exact graph.
EXACT_ROWS = 20_000


class InMemory(LoopMethod):
    """Base class of methods that have a form on rows in memory, before the family of their other form.

    A method says what the form holds (`_exact_workspace`) and what it computes (`_fit_exactly`).
    """

    #: Parameter and value that select the published form, which always has the exact graph.
    published: ClassVar[tuple[str, str]] = "variant", "published"

    #: Whether the form loads scikit-learn.
    exact_loads_sklearn: ClassVar[bool] = False

    def check(self) -> None:
        super().check()
        if self._is_published and self._kind_of_graph == "anchors":
            raise UsageError(
                f"{parameter(*self.published)} is a published form, which has the exact graph: "
                f"give {parameter('graph', 'exact')}"
            )

    @abstractmethod
    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        """Return the memory of the form besides X and Y as read, and size letters."""

    def _compiles_exact_search(self, profile: Profile) -> bool:
        """Return True if the form loads compiled kernels, by default for a search of nearest rows."""
        return compiles_nearest_rows(profile.n, sparse=profile.sparse)

    @abstractmethod
    def _fit_exactly(self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
        """Fit the exact form on rows in memory."""

    @property
    def _kind_of_graph(self) -> GraphKind | None:
        """The parameter `graph` of methods whose other form goes through anchors."""
        return getattr(self, "graph", None)

    @property
    def _is_published(self) -> bool:
        name, value = self.published
        return bool(getattr(self, name, None) == value)

    def _holds_rows(self, n: int) -> bool:
        """Return True if n rows are held in memory."""
        anchors = self._kind_of_graph in (None, "anchors") or (self._kind_of_graph == "auto" and n > EXACT_ROWS)
        return self._is_published or not anchors

    @property
    def _anchors_do(self) -> bool:
        """True if, with the current parameters, a graph of anchors can replace the exact graph."""
        return self._kind_of_graph is not None and not self._is_published

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        return [] if self._holds_rows(source.profile.n) else super().first_reading(source, resources, asked)

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        """Return X, Y and what the form holds of them, or the cost of the other form."""
        profile = profile_of(source)
        if not self._holds_rows(profile.n):
            return super().cost(source, resources, asked)
        workspace, sizes = self._exact_workspace(profile)
        note = "exact graph: X, Y and the variables of all rows are in the memory of this process"
        if self._anchors_do:
            note += "; with --graph anchors none are, and passes take the place of searches for neighbours"
        return Cost(
            steps=(Reading("rows", (), workspace="rows"), join_terms("rows", workspace)),
            sizes={**sizes_in_memory(profile), **sizes},
            compiled=self._compiles_exact_search(profile),
            loads_sklearn=self.exact_loads_sklearn,
            notes=(note,),
        )

    def cure(self, profile: Profile) -> str:
        if not self._holds_rows(profile.n):
            return super().cure(profile)
        if self._anchors_do:
            return f"take {parameter('graph', 'anchors')}, which holds nothing that grows with the number of rows"
        return f"leave out {parameter(*self.published)}, which has the exact graph alone, or take fewer rows"

    def score(self, readings: Readings) -> Scores:
        if not self._holds_rows(readings.source.profile.n):
            return super().score(readings)
        X, Y, record = read_rows(readings.source, readings.resources)
        readings.records.append(record)
        (moments,), _ = run_reading(ArrayRows(X, Y), [Moments(X.shape[1])], readings.resources, label="moments")
        unknown, _, positives = count_labels(Y)
        self._examine(readings, moments, unknown, positives)
        if isinstance(Y, np.ndarray):  # standardised targets: unknown ones are at their mean
            Y = sp.csr_array(np.nan_to_num(Y))
        elif self.known_entries:
            Y = at_shares(Y, positives / np.maximum(Y.shape[0] - unknown, 1))
        fit_exactly: Any = self._fit_exactly  # those that take a start have one parameter more
        fit = fit_exactly(X, Y, moments, **self._start(readings))
        scores = mean_of_copies(fit.scores, key_places(X, readings.varies))
        result = self._result(readings, scores, fit.trace, {"graph": {"kind": "exact"}, **fit.extra}, positives)
        return replace(result, labels=fit.labels, mean=moments.mean)

    def _start(self, readings: Readings) -> dict[str, Any]:
        """Return the arrays to start from that were given, as the form takes them; empty: they are drawn.

        Raises
        ------
        UsageError
            They are not those of the form, or have other shapes.
        """
        if readings.init is None:
            return {}
        profile = readings.source.profile
        sizes = sizes_in_memory(profile) | self._exact_workspace(profile)[1]
        shapes = {name: tuple(sizes[letter] for letter in text.split()) for name, text in self.init_shapes.items()}
        given = {name: np.asarray(array, dtype=np.float64) for name, array in readings.init.items()}
        if {name: array.shape for name, array in given.items()} != shapes:
            wanted = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            got = ", ".join(f"{name} {array.shape}" for name, array in given.items())
            raise UsageError(f"init of {self.method} has the arrays {wanted}; got {got or 'none'}")
        if not all(np.isfinite(array).all() for array in given.values()):
            raise UsageError("init has values that are not finite; give numbers")
        return {"start": given}


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
