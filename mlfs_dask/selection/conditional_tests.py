"""Tests of label-feature pairs given the other features, from X'X and X'Y."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import ndtri

from mlfs_dask.blocks.pair_scores import quotient
from mlfs_dask.blocks.pair_tests import KNOCKOFFS, PARTIAL_SLOPE, PARTIAL_T, PEAKED, SKEWED, PairTests, heavy_scores
from mlfs_dask.errors import DataError, number_of, parameter
from mlfs_dask.selectors.costs import Names
from mlfs_dask.selectors.pairs import PairQuestion, SumTests, tile_features
from mlfs_dask.selectors.scores import SHOWN
from mlfs_dask.solvers.partial_tests import (
    Factored,
    factored,
    knockoff_correlations,
    knockoff_q_values,
    lasso_statistics,
    maximum_entropy,
    partial_p_values,
)
from mlfs_dask.statistics.gram import scale_gram
from mlfs_dask.typing import Array

#: Bounds of the least eigenvalue of the features' correlations. Below `SINGULAR`, tests given the others are refused.
#: Below `COLLINEAR`, labels with fewer rows than `WELL_COVERED` are not tested: with 25 to 125 positive rows, the error
#: rate at level 0.1 was up to 0.24 if features were collinear, and at most 0.005 otherwise.
SINGULAR, COLLINEAR = 1e-6, 0.01

#: Least number of rows with and without a label for a test, and the least number with collinear features.
COVERED, WELL_COVERED = 20, 250

_TOO_FEW = "a label takes {} rows that have it, and as many that have it not"
_CURE = "leave some of the features out ({}), or choose {}"


class ConditionalTests:
    """Tests of labels and features given the other features, by partial t-tests (`partial_p_values`) or knockoffs.

    Parameters
    ----------
    marginal : SumTests
    grams : float64 array, shape (d, d) or (1 + u, d, d)
        X'X of centred X; for u labels with unknown entries also over the rows with known values of each. Overwritten.
    question : PairQuestion
    names : Names

    Attributes
    ----------
    any_label : float64 array, shape (d,), or None
        For knockoffs, the least level at which each feature is discovered for any label.
    unknown : int64 array
        Labels that may have unknown entries.
    untested : int64 array
        Labels without tests: too few rows with or without the label, too few known rows for the number of features, or
        linearly dependent features in the known rows.

    Notes
    -----
    The statistic is partial t with n − d − 1 degrees of freedom. The effect is the least-squares coefficient: the
    change in the share of rows with the label per unit of the feature, with the other features fixed. For knockoffs,
    p-values are least levels of the list of each label.

    Raises
    ------
    DataError
        If there are too few rows for the number of features, if features are linearly dependent, or for knockoffs with
        partly unknown labels.
    """

    def __init__(self, marginal: SumTests, grams: Array, question: PairQuestion, names: Names) -> None:
        self.shape = q, d = marginal.shape
        self._marginal, self._question, self._sums = marginal, question, marginal.sums
        self._n, self._positives = self._sums.n, self._sums.positives
        self.any_label: Array | None = np.ones(d) if question.control == "knockoffs" else None
        self._results, self._corrected = np.full((4, q, d), np.nan), np.zeros((q, d), bool)
        self._results[3] = np.inf
        self._freedom = np.full((q, 1), np.nan)
        self.unknown = unknown = marginal.unknown
        if len(unknown) and question.control == "knockoffs":
            raise DataError(
                f"labels are unknown (-1) in some rows, and knockoffs are of the same rows for all labels; of "
                f"{number_of(len(unknown), 'label')} each has its own",
                cure=f"choose {parameter('control', 'partial')}, which tests each label over the rows where it is "
                f"known, or {parameter('unknown', 'negative')} if -1 means negative",
            )
        self.reason = _TOO_FEW.format(COVERED)
        tested = np.zeros(q, bool)
        complete = np.setdiff1d(np.arange(q), unknown)
        grams = grams.reshape(-1, d, d)
        if len(complete):
            tested[self._test(complete, grams[0], None, names)] = True
        refusal: DataError | None = None
        for index, label in enumerate(unknown):
            try:
                tested[self._test(np.array([label]), grams[1 + index], index, names)] = True
            except DataError as error:  # about the known rows of this label only
                refusal = refusal or error
        self.untested = np.flatnonzero(~tested)
        if refusal is not None and not tested.any():
            raise refusal
        if q and not tested.any():
            cure = _CURE.format(parameter("exclude"), parameter("control", "bh"))
            raise DataError(f"no label can be tested given the other features: {self.reason}", cure=cure)

    def _test(self, labels: NDArray[np.intp], G: Array, unknown_index: int | None, names: Names) -> NDArray[np.intp]:
        """Test labels that are known in the same rows, with X'X in G; return the tested labels.

        Parameters
        ----------
        labels : int64 array, shape (p,)
        G : float64 array, shape (d, d)
            Overwritten.
        unknown_index : int or None
            Index of the label among the labels with unknown entries.
        names : Names
        """
        marginal, question, (q, d) = self._marginal, self._question, self.shape
        sums = self._sums.tile(labels, slice(None))
        exact = None if unknown_index is None else sums.m2[0]  # free of the rounding error of a difference
        if marginal.adjustment is not None:
            G = marginal.adjustment.of_known(unknown_index).gram(G, marginal.moments.m2 if exact is None else exact)
        elif exact is not None:
            np.fill_diagonal(G, exact)
        n, rank = float(sums.n[0, 0]), int(np.ravel(sums.rank)[0])
        m2, spread = np.diag(G).copy(), sums.label_m2
        vary = np.flatnonzero(m2 > 0)
        rows = np.minimum(sums.positives, sums.n - sums.positives)[:, 0]
        if unknown_index is not None and rows[0] < COVERED:
            return labels[:0]
        self._require_rows(n, len(vary), question)
        G = scale_gram(G, quotient(np.ones(d), np.sqrt(m2)))
        R = G if len(vary) == d else G[np.ix_(vary, vary)]
        np.fill_diagonal(R, 1.0)
        triangle = self._factored(R, vary, names)
        collinear = triangle.least_eigenvalue < COLLINEAR
        covered = np.flatnonzero(rows >= (WELL_COVERED if collinear else COVERED))
        tested = labels[covered]
        if len(covered) < len(labels) and collinear:
            determined = _determined(R, COLLINEAR, vary, names)
            self.reason = f"{_TOO_FEW.format(WELL_COVERED)}, as others nearly determine features {determined}"
        if not len(covered):
            return tested
        correlations = (sums.products[np.ix_(covered, vary)] / np.sqrt(m2[vary] * spread[covered])).T
        scored = np.sqrt(n) * correlations
        for start in range(0, len(vary), tile_features(q, d)):
            features = vary[start : start + tile_features(q, d)]
            p = marginal.at(*np.meshgrid(tested, features)).p_value  # (features, labels)
            tile = scored[start : start + len(features)]
            tile[:] = np.sign(tile) * np.minimum(np.abs(tile), -ndtri(np.maximum(p, np.finfo(float).tiny) / 2))
        law = marginal.law(*np.meshgrid(tested, vary))
        skewness, kurtosis = (np.where(np.isfinite(a), a, 0.0) for a in (law.skewness, law.kurtosis))
        freedom = self._freedom[tested] = n - len(vary) - 1 - rank
        coefficients, t, log_p = partial_p_values(
            triangle, correlations, scored, n, freedom, lambda t: heavy_scores(t, skewness, kurtosis)
        )
        slopes = coefficients * np.sqrt(spread[covered].T / m2[vary, np.newaxis])
        levels, order = np.exp(log_p), log_p / np.log(10)
        if self.any_label is not None:
            share = sums.positives[covered] / n
            together = marginal.moments.pairs[np.ix_(tested, tested)] / n - share * share.T
            deviation = np.sqrt(spread[covered] / n)
            covariance = together / (deviation * deviation.T) - correlations.T @ triangle.solve(correlations)
            covariance *= n / freedom
            noise = np.random.default_rng(question.seed).standard_normal(correlations.shape)
            s, scored = maximum_entropy(R), scored / np.sqrt(n)
            knockoffs = knockoff_correlations(triangle, s, scored, covariance, noise, n)
            larger = lasso_statistics(R, s, scored, knockoffs, n)
            levels = np.stack([knockoff_q_values(of_label) for of_label in larger.T], axis=1)
            self.any_label[vary], order = knockoff_q_values(larger.sum(axis=1)), -larger
        for values, of_tested in zip(self._results, (slopes, t, levels, order), strict=True):
            values[np.ix_(tested, vary)] = of_tested.T
        self._corrected[np.ix_(tested, vary)] = ((np.abs(skewness) > SKEWED) | (kurtosis > PEAKED)).T
        return tested

    def _require_rows(self, n: float, d: int, question: PairQuestion) -> None:
        if n < 2 * d + 1:
            raise DataError(
                f"{n:,.0f} rows are too few to test each of {number_of(d, 'feature')} given the others: it takes "
                f"{2 * d + 1:,}",
                cure=f"choose {parameter('control', 'bh')}, or fewer features with a filter before",
            )
        if question.control == "knockoffs" and d * question.level < 1:
            raise DataError(
                f"no list of {number_of(d, 'feature')} can be certified by knockoffs at the rate {question.level:g}, "
                f"which takes {1 / question.level:,.0f} discoveries",
                cure=f"choose {parameter('control', 'partial')}, or raise the rate ({parameter('fdr')})",
            )

    def _factored(self, R: Array, vary: NDArray[np.intp], names: Names) -> Factored:
        triangle = factored(R)
        if triangle is not None and triangle.least_eigenvalue >= SINGULAR:
            return triangle
        least = "0" if triangle is None else f"{triangle.least_eigenvalue:.1g}"
        raise DataError(
            f"features are determined by others (the least eigenvalue of their correlations is {least}), which cannot "
            f"be tested given these; first of all {_determined(R, SINGULAR, vary, names)}",
            cure=_CURE.format(parameter("exclude"), parameter("control", "bh")),
        )

    def groups(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> Array:
        return self._marginal.groups(labels, features)

    def tile(self, features: slice) -> PairTests:
        return self._tests((slice(None), features), self._n, self._positives, self._freedom)

    def at(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> PairTests:
        n = np.broadcast_to(self._n, (self.shape[0], 1))
        return self._tests((labels, features), n[labels, 0], self._positives[labels, 0], self._freedom[labels, 0])

    def _tests(self, selection: Any, n: Any, positives: Any, freedom: Array) -> PairTests:
        effect, statistic, p, order = (values[selection] for values in self._results)
        test = PARTIAL_T if self.any_label is None else KNOCKOFFS
        kinds = np.full(p.shape, PARTIAL_SLOPE), np.full(p.shape, test)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.abs(effect / statistic)
        return PairTests(n, positives, effect, statistic, p, order, self._corrected[selection], *kinds, error, freedom)


def _determined(R: Array, below: float, vary: NDArray[np.intp], names: Names) -> str:
    """Name the features most involved in linear dependencies: directions along which the features hardly vary."""
    values, vectors = eigh(R)
    part = np.square(vectors[:, : max(1, int(np.searchsorted(values, below)))]).sum(axis=1)
    largest = np.argsort(-part, kind="stable")[:SHOWN]
    largest = np.sort(largest[part[largest] >= 0.1 * part[largest[0]]])
    shown = [f"{i}" if names.features is None else repr(str(names.features[i])) for i in vary[largest].tolist()]
    return ", ".join(shown)
