"""MLMLFS: a robust regression that fits unknown labels within [−1, 1], with predictions smooth over near rows.

P. Zhu, Q. Xu, Q. Hu, C. Zhang, H. Zhao, "Multi-label feature selection with missing labels", Pattern Recognition 74
(2018) 488-502, doi:10.1016/j.patcog.2017.09.036.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.linear import laplacian_gram_bytes
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.exact import mlmlfs as exact_form
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.anchored_regression import MeanDegree, add_smoothness
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings
from mlfs_dask.selectors.in_memory import InMemory
from mlfs_dask.selectors.loop import Shares
from mlfs_dask.selectors.parameters import AnchorCount, AnchorNeighbors, GramCap, Param, seed_of
from mlfs_dask.selectors.reweighted_regression import START, At, ReweightedRegression
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.anchor_sums import AnchorSums
from mlfs_dask.statistics.gram import GRAM_CAP, Gram, require_gram, scale_gram
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Seed, numbers


@dataclass
class Fixed(Shares):
    """What no iteration changes."""

    smooth: Annotated[Array, "d d", "αX'LX"]


@method(
    "mlmlfs",
    "Feature selection with missing labels (MLMLFS)",
    paper="Zhu, Xu, Hu, Zhang & Zhao 2018, Pattern Recognition 74, 488-502",
    doi="10.1016/j.patcog.2017.09.036",
)
class MLMLFS(InMemory, ReweightedRegression[Fixed]):
    """Multi-label feature selection with missing labels (MLMLFS; Zhu, Xu, Hu, Zhang & Zhao 2018).

    Minimises Σ_i ‖x_iW + b − f_i‖ + α tr P'LP + λ Σ_f ‖w_f‖^p, P holding the predictions x_iW + b, over W, b and the
    labels f_i of the rows: known entries are −1 or 1, and unknown ones any number between. The loss is a norm and not
    its square, so that rows far off count less; predictions are similar in near rows. A feature's score is the norm of
    its row of W.

    Notes
    -----
    Features are standardised over all rows, by algebra where X is sparse. Readings of X: one for moments with a
    sample, among which anchors are placed, one for X'LX and the sums at W = 0, and one an iteration, in which the
    labels and the weight of each row are made, added to sums and discarded. Of more than `gram_cap` features it is
    refused. Any entries may be unknown (-1); rows of which nothing is known have a part in the graph alone. For p =
    1 the problem is convex; for less the loop begins with the W of p = 1.

    What differs from the authors' program: it subtracts the number 1 where the identity is meant, so that it solves
    for labels that are αX'LF larger, and its weights of rows are those of the iteration before. Here λ counts relative
    to the least at which W = 0 (for p = 1), a norm ‖r‖ of a row is √(‖r‖² + 0.05²), and the graph of the rows is one
    of anchors. The published form is the program: graph of nearest rows, sample standard deviation, λ as it is, random
    start. It holds all rows in memory. The program's own settings are tol=0, max_iter=20, alpha=0.0001 and lambda_=1;
    on emotions they are equal to 10 digits.

    References
    ----------
    P. Zhu, Q. Xu, Q. Hu, C. Zhang, H. Zhao, "Multi-label feature selection with missing labels", Pattern Recognition 74
    (2018) 488-502, doi:10.1016/j.patcog.2017.09.036.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[rng.random(Y.shape) < 0.3] = -1
    >>> sorted(mlfs.MLMLFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    variant: Annotated[
        Literal["corrected", "published"],
        Param(
            'Variant of the method. "corrected": the minimum of the objective. "published": the authors\' '
            "program, with all rows in memory."
        ),
    ] = "corrected"
    alpha: Annotated[float, Param('Weight of the graph of the rows; in "published" 0.0001 is usual.')] = 0.01
    lambda_: Annotated[
        float,
        Param(
            'Weight of the penalty, relative to the least weight at which W = 0; in "published" absolute, '
            "where 1 is usual.",
            above=0,
        ),
    ] = 0.1
    p: Annotated[float, Param("Power of the norms of rows of W in the penalty.", above=0, most=1)] = 1.0
    n_neighbors: MeanDegree = 5
    n_anchors: AnchorCount = 300
    anchor_neighbors: AnchorNeighbors = 3
    gram_cap: GramCap = GRAM_CAP
    random_state: Annotated[Seed, seed_of("the sample and of k-means, and of the start of the published form")] = None

    name = "MLMLFS"
    init_shapes: ClassVar[Mapping[str, str]] = {"W": "d q", "b": "q"}
    penalty = "lambda_"
    records = Fixed, At
    box = (-1.0, 1.0)
    supervision = "semi-supervised: labels may be unknown"
    unknown_entry = "is fitted or recovered inside the method"
    typical_iterations = 5, 22
    passes = "2 + 1 an iteration; in the published form 1"
    memory = (
        "worker: 8 bytes * (d² + 2 d q + m d) for m anchors; driver: 8 bytes * (5 d² + 8 d q); in the published form "
        "the driver holds X, 4 d² and n * (8 q + 32 k) bytes"
    )

    setup_workspace = "sample + 6 m d"  # k-means

    @property
    def power(self) -> float:
        return float(self.p)

    def first(self, profile: Profile) -> dict[str, Statistic]:
        return super().first(profile) | {"sample": AnchorGraph.of(self, profile).sample}

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        require_gram(profile_of(source).d, self.gram_cap, self.name)
        return super().cost(source, resources, asked)

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        graph = AnchorGraph.of(self, profile)
        return Cost(
            steps=[Reading(START, tuple(self._second(fixed, graph.placeholder, at)), workspace="2 m d")],
            sizes={"m": graph.count, "sample": graph.sample_numbers},
            loads_sklearn=True,
            notes=[graph.note],
        )

    def _second(self, fixed: Shares, anchors: Anchors, at: At) -> list[Statistic]:
        """Statistics of the second reading, in which W = 0."""
        d = len(fixed.centre)
        return [Gram(d), AnchorSums(anchors, fixed.centre), *self.reading(fixed, at)]

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        moments, labels = results["moments"], results["labels"]
        profile, scaling = job.source.profile, standard_scaling(moments)
        shares = Shares(scaling.centre, scaling.factor, labels.shares(profile.n))
        anchors = AnchorGraph.of(self, profile).place(results.pop("sample").X, scaling)
        gram, graph, results["sums"] = job.run(START, *self._second(shares, anchors, self.zero(shares)))
        graph.ZX[...] *= scaling.factor
        smooth = np.zeros_like(gram)
        add_smoothness(self.alpha * self.n_neighbors, smooth, scale_gram(gram, scaling.factor), graph)
        return Fixed(shares.centre, shares.factor, shares.share, smooth)

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        return self.first_step(fixed, self.zero(fixed), results["sums"], trace)

    def reading(self, fixed: Any, at: At) -> Sequence[Statistic]:
        return [OfLabelled(statistic, partly=True) for statistic in super().reading(fixed, at)]

    def quadratic(self, fixed: Fixed) -> Array:
        return fixed.smooth

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        strips = laplacian_gram_bytes(profile.n, profile.d, profile.nonzeros if profile.sparse else None)
        sizes = {"k": min(self.n_neighbors, profile.n - 1), "strips": numbers(strips)}
        return exact_form.workspace(sparse=profile.sparse), sizes

    _fit_exactly = exact_form.fit
