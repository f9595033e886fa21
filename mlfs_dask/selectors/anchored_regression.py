"""Regressions whose labels or predictions are smooth over the rows: a graph of anchors in a second pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.contract import family
from mlfs_dask.selectors.costs import Asked, Cost, Readings
from mlfs_dask.selectors.one_reading import Passes
from mlfs_dask.selectors.parameters import AnchorCount, AnchorNeighbors, Param, seed_of
from mlfs_dask.selectors.regression import Regression
from mlfs_dask.statistics.anchor_sums import AnchorSums, AnchorTotals
from mlfs_dask.statistics.column_keys import ColumnKeys
from mlfs_dask.statistics.gram import Gram
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.statistics.products import LabelMoments, label_products
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Seed

#: Name of the second pass.
SUMS = "sums"

MeanDegree: TypeAlias = Annotated[
    int, Param("Mean number c of neighbours of a row in the graph that anchors stand for.")
]

Propagation: TypeAlias = Annotated[
    float, Param("Weight of the neighbours' labels in those of a row that has unknown labels.", below=1)
]


@family
class AnchoredRegression(Regression):
    """Base class of regressions with a graph of the rows, Z holding their weights of anchors.

    Their graph is ZΛ⁻¹Z', Λ = diag(Z'1).
    """

    takes_covariates = False
    takes_weights = False
    always_draws = True
    passes = "2"
    memory = "worker: 8 bytes * (d² + q d + m d + m²) for m anchors; driver: 8 bytes * (4 d² + 12 q d + 3 m d)"
    workspace = f"p + 6 m d + {Regression.workspace}"  # the sample's points and k-means, scaled sums of anchors
    reading = "moments"
    #: Whether it learns from labelled rows, and sees the others in the graph alone.
    learns_from_labelled: ClassVar[bool] = False

    n_anchors: AnchorCount = 300
    anchor_neighbors: AnchorNeighbors = 3
    random_state: Annotated[Seed, seed_of("the sample and of k-means")] = None

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        profile = profile_of(source)
        return {
            "moments": Moments(profile.d),
            "keys": ColumnKeys(profile.d),
            "sample": AnchorGraph.of(self, profile).sample,
        }

    def second(self, source: Profile | RowSource, anchors: Anchors, found: Mapping[str, Any]) -> dict[str, Statistic]:
        """Return statistics of the second pass, by name; `found` as in `later`."""
        profile = profile_of(source)
        labels, gram = source if self.known_entries else profile, Gram(profile.d)
        sums: dict[str, Statistic] = {"sums": label_products(labels)}
        if self.learns_from_labelled:
            of_labelled = {name: OfLabelled(each) for name, each in {**sums, "labelled": gram}.items()}
            return {**of_labelled, "gram": gram, "graph": AnchorSums(anchors)}
        return sums | {"gram": gram, "graph": AnchorSums(anchors, profile.q, unknown_labels(labels))}

    def later(self, source: Profile | RowSource, found: Mapping[str, Any]) -> Passes:
        yield SUMS, self.second(source, self.anchors(source, found), found)

    def anchors(self, source: Profile | RowSource, found: Mapping[str, Any]) -> Anchors:
        """Return the anchors; in a plan, placeholders that take no memory."""
        return found.get("anchors") or AnchorGraph.of(self, profile_of(source)).placeholder

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        graph = AnchorGraph.of(self, profile_of(source))
        return {"m": graph.count, "p": graph.point_numbers}

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        return replace(super().cost(source, resources, asked), loads_sklearn=True)

    def notes(self, profile: Profile) -> list[str]:
        return [AnchorGraph.of(self, profile).note]

    def prepare(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        moments = results.pop("moments")
        self.examine_moments(job, moments.mean, moments.m2)
        graph, scaling = AnchorGraph.of(self, job.source.profile), standard_scaling(moments)
        return results | {"anchors": graph.place(results.pop("sample").X, scaling)}

    def complete(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        self.examine_labels(job, results["sums"])
        factor = results.pop("anchors").factor
        results["graph"].ZX[...] *= factor
        return results | {"factor": factor}


def add_smoothness(weight: float, G: Array, gram: Array, graph: AnchorTotals) -> None:
    """Add X'(I − ZΛ⁻¹Z')X = X'X − (Z'X)'Λ⁻¹Z'X to G, times the weight.

    With the mean degree c of the graph that anchors stand for, c (I − ZΛ⁻¹Z') is its Laplacian.

    Parameters
    ----------
    weight : float
    G : float64 array, shape (d, d)
    gram : float64 array, shape (d, d)
        X'X of all rows, scaled; it is used up.
    graph : AnchorTotals
        Z'X scaled.
    """
    gram += (graph.ZX * -graph.inverse_masses[:, np.newaxis]).T @ graph.ZX
    gram *= weight
    G += gram


def centred_labels(sums: LabelMoments, graph: AnchorTotals) -> tuple[Array, AnchorTotals]:
    """Return Y'Y and Z'Y of Y less its means; exactly 0 for a label that all known rows have, or none."""
    mean = sums.positives / sums.n
    YY, ZY = sums.pairs - np.outer(sums.positives, mean), graph.ZY - np.outer(graph.masses, mean)
    constant = sums.label_m2 == 0
    YY[constant], YY[:, constant], ZY[:, constant] = 0.0, 0.0, 0.0
    return YY, graph._replace(ZY=ZY)
