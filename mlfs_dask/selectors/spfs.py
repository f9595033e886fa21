"""SPFS: features whose products come close to the similarity of the rows, one after another (Zhao et al. 2013).

Of the similarity of rows K only K's products with features are needed, which are sums over the rows of a label, and of
features their products with one another: one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.rounding import INFORMATION_DIGITS
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import parameter
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.selectors.one_reading import OneReading, Passes
from mlfs_dask.selectors.parameters import Missing, Param, seed_of
from mlfs_dask.selectors.scores import Scores, most_relevant
from mlfs_dask.statistics.columns import OfFeatures
from mlfs_dask.statistics.gram import Gram
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array, Seed


@method(
    "spfs",
    "Similarity preserving feature selection",
    paper="Zhao, Wang, Liu & Ye 2013, IEEE Transactions on Knowledge and Data Engineering 25, 619-632",
    doi="10.1109/TKDE.2011.222",
)
class SPFS(OneReading):
    """Similarity preserving feature selection, by forward selection (Zhao et al. 2013).

    Chooses features f one after another so that ‖K − Σ f f'‖² falls most, K holding the similarity of every two rows:
    the next one has the least (f'f)² − 2 f'Rf, R being what is left of K. Features are centred and of norm 1. K is
    Σ 1/n_l over the labels l that two rows share, n_l being the number of rows that have l, scaled so that it has, once
    centred, the trace of the similarity by all features; where every row has one label it is the paper's similarity of
    classes. A score is by how much ‖R‖² fell when the feature was chosen.

    Notes
    -----
    One pass over X; two above `n_candidates` features. Sparse data stays sparse. The order does not depend on how
    many features are kept. Above `n_candidates` the record's `extra["exact_places"]` is the number of first places
    that are the same with any number of candidates: what a feature preserves only falls as others are chosen.

    In the paper and in the public program K is an input, and so is the scale of the features; Gaussian similarities
    within classes, which take a number for every two rows, are not made. K as small as 1/n_l makes it would let
    redundancy decide alone after a few features, which was no better than chance on two of three real sets. Average
    precision on emotions was .765 in place of .783, on birds .515 in place of .530, both that of random features, and
    on medical .730 in place of .716.

    References
    ----------
    Z. Zhao, L. Wang, H. Liu, J. Ye, "On similarity preserving feature selection", IEEE Transactions on Knowledge and
    Data Engineering 25 (2013) 619-632, doi:10.1109/TKDE.2011.222.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 0.1], [0.2, 0.0, 0.0], [1.0, 0.9, 0.9], [0.9, 0.1, 1.0]])
    >>> Y = np.array([[0, 1], [0, 0], [1, 1], [1, 0]])
    >>> mlfs.SPFS(n_features_to_select=2).fit(X, Y).ranking_  # the first of X repeats the last, less exactly
    array([1, 2, 0])
    """

    n_candidates: Annotated[
        int,
        Param(
            "Largest number of candidates whose redundancy counts. Of more features the candidates are those "
            "with the best scores alone; the others follow in the order of these scores."
        ),
    ] = 4096
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample of rows for medians")] = None

    takes_covariates = True
    takes_weights = False
    known_entries = True
    resamples_rows = False
    weighs_features = True
    passes = "1 (2 above n_candidates features)"
    memory = "worker: 8 bytes * (q * d + q² + m²) for m candidates; driver: 8 bytes * (2 m² + 3 q d)"
    workspace = "2 q d + m m"  # squares of sums over labels, and the products of candidates

    def cure(self, profile: Profile) -> str:
        fewer = min(self.n_candidates, profile.d)
        return f"weigh fewer than {fewer:,} features against one another ({parameter('n_candidates')})"

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        d = profile_of(source).d
        return super().reads(source) | ({"gram": Gram(d)} if d <= self.n_candidates else {})

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        return {"m": min(profile_of(source).d, self.n_candidates)}

    def notes(self, profile: Profile) -> list[str]:
        m = min(profile.d, self.n_candidates)
        return [f"X'X is {m:,} x {m:,}" + (f": the best {m:,} of {profile.d:,} features" if m < profile.d else "")]

    def later(self, source: Profile | RowSource, found: Mapping[str, Any]) -> Passes:
        m = self.n_candidates
        if m < profile_of(source).d:
            yield "candidates", {"gram": OfFeatures(Gram(m), found.get("candidates", np.arange(m)))}

    def prepare(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        results = super().prepare(job, results)
        similarity = preserved(results["sums"])  # f'Kf
        return results | {"similarity": similarity, "candidates": most_relevant(similarity, self.n_candidates)}

    def complete(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        if len(results["candidates"]) < len(results["similarity"]):
            results["gram"] = results["sums"].adjusted_gram(results["gram"], results["candidates"])
        return results

    def scores(
        self, *, k: int, sums: LabelMoments, gram: Array, similarity: Array, candidates: NDArray[np.intp]
    ) -> Scores:
        d = len(similarity)
        alone = 2.0 * similarity - 1.0  # 2 f'Kf − (f'f)²
        scores = join_scores(forward_selection(alone[candidates], correlations(gram)), candidates, alone)
        extra: dict[str, Any] = {}
        if len(candidates) < d:
            others = np.delete(alone, candidates)
            extra["exact_places"] = int(np.count_nonzero(scores[candidates] > others.max()))
            counts = {"among the candidates": len(candidates), "alone": d - len(candidates)}
            extra["score_scales"] = [{"scale": scale, "features": count} for scale, count in counts.items() if count]
        return Scores(scores, extra=extra, informative=bool(similarity.any()))


def preserved(sums: LabelMoments) -> Array:
    """Return f'Kf of every feature, centred and of norm 1, shape (d,): Σ_l (sum of f over the rows of l)² / n_l,
    scaled.

    The trace of Σ ff' over the features that vary is their number, that of K centred is Σ_l (1 − n_l/n).
    """
    shares = np.einsum("ld,ld,l->d", sums.products, sums.products, 1.0 / np.maximum(sums.positives, 1))
    result: Array = np.zeros_like(shares)
    np.divide(shares, sums.m2, out=result, where=sums.m2 > 0)
    occurs = sums.positives > 0
    trace = float((sums.label_m2[occurs] / sums.positives[occurs]).sum())
    result *= np.count_nonzero(sums.m2) / trace if trace > 0 else 0.0
    np.round(result, INFORMATION_DIGITS, out=result)
    return result


def correlations(G: Array) -> Array:
    """Return squared products of features of norm 1, shape (m, m), in place of X'X; 0 for constant ones."""
    norms = np.sqrt(np.maximum(np.diag(G), 0.0))
    factor = np.zeros_like(norms)
    np.divide(1.0, norms, out=factor, where=norms > 0)
    G *= factor
    G *= factor[:, np.newaxis]
    np.square(G, out=G)
    np.round(G, INFORMATION_DIGITS, out=G)
    return G


def forward_selection(alone: Array, squares: Array) -> Array:
    """Return the decrease of ‖R‖² as each feature is selected, one after another.

    Parameters
    ----------
    alone : float64 array, shape (m,)
        By how much it would fall by each as the first.
    squares : float64 array, shape (m, m)
        (f'g)² of every two features.

    Returns
    -------
    float64 array, shape (m,)
        In this order features were chosen: what one preserves only falls as others are chosen.

    Examples
    --------
    >>> forward_selection(np.array([0.6, 0.5, 0.2]), np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    array([ 0.6, -1.3,  0.2])
    """
    left, scores = alone.copy(), np.empty(len(alone))
    for _ in range(len(alone)):
        f = int(left.argmax())
        scores[f] = left[f]
        left -= 2.0 * squares[f]
        left[f] = -np.inf
    return scores


def join_scores(scores: Array, candidates: NDArray[np.intp], alone: Array) -> Array:
    """Return scores of all features: of the candidates as they are, and below them the others in the order of `alone`.

    Parameters
    ----------
    scores : float64 array, shape (m,)
        Of the candidates.
    candidates : int array, shape (m,)
    alone : float64 array, shape (d,)

    Examples
    --------
    >>> join_scores(np.array([3.0, 2.0]), np.array([1, 3]), np.array([0.0, 9.0, 0.5, 8.0]))
    array([0.5, 3. , 1. , 2. ])
    """
    joined = np.empty(len(alone))
    joined[candidates] = scores
    others = np.ones(len(alone), dtype=bool)
    others[candidates] = False
    if others.any():
        joined[others] = scores.min() - 1.0 - (alone[others].max() - alone[others])
    return joined
