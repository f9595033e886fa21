"""MLACO: ants that go to features which go with labels and not with the feature before (Paniri et al. 2020).

The correlations of features with labels and with one another, which one pass gives, are all that they need.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.rounding import ROUNDING
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.contract import LEFT_OUT, method
from mlfs_dask.selectors.one_reading import OneReading
from mlfs_dask.selectors.parameters import GramCap, Missing, Param, seed_of
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.ant_colony import lay_pheromone
from mlfs_dask.statistics.gram import GRAM_CAP, Gram, scale_gram
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array, Seed

#: What a correlation of two features of 0 counts as.
LEAST_CORRELATION = 1e-4


@method(
    "mlaco",
    "Ant colony optimisation (MLACO)",
    paper="Paniri, Dowlatshahi & Nezamabadi-pour 2020, Knowledge-Based Systems 192, 105285",
    doi="10.1016/j.knosys.2019.105285",
)
class MLACO(OneReading):
    """Ant colony optimisation (MLACO; Paniri, Dowlatshahi & Nezamabadi-pour 2020).

    Ants walk over features. From f the feature g attracts by pheromone times η_g / δ_fg, where η is the largest
    absolute correlation with a label and δ that of two features; an ant goes to the most attractive feature that it has
    not visited, the more often the longer it walks, or to one that is drawn in proportion. Pheromone begins with the
    largest absolute cosine with a label, scaled to [0, 1]; after each cycle it decays and grows by the share of the
    moves. It is the score.

    Notes
    -----
    A worker holds d² + q d + q² numbers of 8 bytes a running task, the driver 3 d² and 2 q d, and makes n_cycles *
    n_ants * tour_length * d² operations. More than `gram_cap` features are refused. Seeds share 97 % (emotions) and
    91 % (yeast) of the best fifth of the features.

    What differs from the authors' program, of which `variant="published"` is a copy: features are standardised, on
    which cosines depend; features that are linear functions of one another count as one and share its score; ants look
    at features from the most relevant to the least, so that the order of the columns has no part in what they draw;
    correlations of two features below 0.0001 count as 0.0001, where the program does so with 0 alone, and an ant
    prefers a correlation of 10⁻⁶ to none a hundredfold. In both forms constant features are left out (they have no
    correlation), an ant ends its walk where nothing attracts it, and there are no more ants than features. The paper's
    text was not available. The feature of least cosine begins without pheromone and comes last. On emotions the
    published form has the program's pheromone to 12 digits, with random_state=1.

    References
    ----------
    M. Paniri, M. B. Dowlatshahi, H. Nezamabadi-pour, "MLACO: a multi-label feature selection algorithm based on ant
    colony optimization", Knowledge-Based Systems 192 (2020) 105285, doi:10.1016/j.knosys.2019.105285.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    >>> mlfs.MLACO(n_features_to_select=1).fit(X, Y).ranking_
    array([0, 1, 2])
    """

    n_ants: Annotated[int, Param("Number of ants of a cycle.")] = 25
    n_cycles: Annotated[int, Param("Number of cycles, after each of which the pheromone changes.")] = 40
    tour_length: Annotated[float, Param("Fraction of the features that an ant visits.", above=0, most=1)] = 0.5
    decay: Annotated[float, Param("Fraction of the pheromone that is lost in a cycle.", below=1)] = 0.1
    variant: Annotated[
        Literal["corrected", "published"],
        Param(
            'Variant of the method. "corrected": standardises features, and does not depend on the order of '
            'columns. "published": the authors\' program.'
        ),
    ] = "corrected"
    gram_cap: GramCap = GRAM_CAP
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the ants, and of the sample of rows for medians")] = None

    known_entries = True
    unknown_entry = LEFT_OUT
    takes_covariates = takes_numbers = True
    resamples_rows = False
    always_draws = caps_features = True
    name = "MLACO"
    passes = "1"
    memory = "worker: 8 bytes * (d² + q d + q²); driver: 8 bytes * (3 d² + 2 q d)"
    workspace = "2 d d + 2 q d"

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        profile = profile_of(source)
        return super().reads(source) | {"gram": Gram(profile.d, weighted=profile.weight is not None)}

    def notes(self, profile: Profile) -> list[str]:
        moves = self._count_moves(profile.d)
        return [f"{self.n_cycles:,} cycles of {min(self.n_ants, profile.d):,} ants with {moves:,} moves each"]

    def _count_moves(self, d: int) -> int:
        return min(max(1, int(self.tour_length * d + 1e-9)), d - 1)

    def scores(self, *, k: int, sums: LabelMoments, gram: Array) -> Scores:
        scores, features = np.zeros(len(sums.mean)), np.flatnonzero(sums.m2 > 0)
        # Absolute correlations of labels and features, (q, d), 0 where one of the two is constant.
        correlations = _divided(sums.products, sums.terms.m2, sums.label_m2[:, np.newaxis])
        relevance = _rounded(correlations.max(axis=0, initial=0.0))
        if not relevance.any():
            return Scores(scores)
        pheromone = _rounded(self._cosines(sums).max(axis=0, initial=0.0))
        correlation = _rounded(np.abs(scale_gram(gram, sums.factor / np.sqrt(sums.n)), out=gram))
        if self.variant == "published":
            chosen, copy_of = features, np.arange(len(features))
            delta = correlation[np.ix_(chosen, chosen)]
            delta[delta == 0.0] = LEAST_CORRELATION
        else:
            chosen, copy_of = _distinct(correlation, features, relevance, pheromone)
            delta = np.maximum(correlation[np.ix_(chosen, chosen)], LEAST_CORRELATION)
        start, d = pheromone[chosen], len(chosen)
        low, high = start.min(), start.max()
        found = lay_pheromone(
            np.divide(relevance[chosen], delta, out=delta),
            (start - low) / (high - low) if high > low else np.ones(d),
            n_ants=min(self.n_ants, d),
            n_moves=self._count_moves(d),
            n_cycles=self.n_cycles,
            decay=self.decay,
            seed=self.seed,
        )
        scores[features] = found[copy_of]
        return Scores(scores)

    def _cosines(self, sums: LabelMoments) -> Array:
        """Return absolute cosines of labels and features, shape (q, d), 0 where one of the two is 0 in every row."""
        if self.variant == "published":
            products = sums.products + np.outer(sums.positives, sums.mean)
            return _divided(products, sums.m2 + sums.n * sums.mean**2, np.diag(sums.pairs)[:, np.newaxis])
        terms = sums.terms
        squares = terms.positives if terms.residual_m2 is None else np.diag(sums.pairs)[:, np.newaxis]
        return _divided(terms.products, terms.m2, squares)


def _distinct(
    correlation: Array, features: NDArray[np.intp], relevance: Array, pheromone: Array
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the features of which none is a linear function of another, best first, and the place of each feature
    among them.

    Parameters
    ----------
    correlation : float64 array, shape (d, d)
        Absolute and rounded, as the others.
    features : int array, shape (m,)
        Those that vary.
    relevance, pheromone : float64 array, shape (d,)

    Returns
    -------
    chosen : int array, shape (r,)
    copy_of : int array, shape (m,)
    """
    chosen, copy_of = np.unique((correlation >= 1.0).argmax(axis=1)[features], return_inverse=True)
    # Sums of rounded correlations are the same in any order.
    redundancy = correlation[np.ix_(chosen, chosen)].sum(axis=0)
    order = np.lexsort([-redundancy, -pheromone[chosen], -relevance[chosen]])
    return chosen[order], np.argsort(order)[copy_of]


def _divided(products: Array, of_features: Array, of_labels: Array) -> Array:
    """Return the absolute products of labels and features divided by the lengths of both, of which the squares are
    given.
    """
    lengths = np.sqrt(of_labels * of_features)
    return np.divide(np.abs(products), lengths, out=np.zeros_like(products), where=lengths > 0)


def _rounded(values: Array) -> Array:
    """Return multiples of `ROUNDING`, in the place of the values."""
    np.divide(values, ROUNDING, out=values)
    np.rint(values, out=values)
    return np.multiply(values, ROUNDING, out=values)
