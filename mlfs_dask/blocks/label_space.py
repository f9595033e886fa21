"""Label correlations, and their part retained by a set of features (Wang et al. 2020), from Y'X and Y'Y alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.typing import Array

LabelKernel: TypeAlias = Literal["gaussian", "exponential"]


def standardised_products(products: Array, std: Array) -> Array:
    """Convert Y'(X − mean) to Y'X of standardised X, in place: divide every column by its standard deviation.

    Parameters
    ----------
    products : float64 array, shape (q, d)
    std : float64 array, shape (d,)
        0 for a constant feature, whose column becomes zero.

    Examples
    --------
    >>> standardised_products(np.array([[2.0, 0.0]]), np.array([0.5, 0.0]))
    array([[4., 0.]])
    """
    factor = np.zeros_like(std)
    np.divide(1.0, std, out=factor, where=std > 0)
    products *= factor
    products[:, std == 0] = 0.0
    return products


def label_similarity(pairs: NDArray[Any], positives: NDArray[Any], kernel: LabelKernel = "gaussian") -> Array:
    """Return the similarity S of labels by their rows (Wang et al. 2020).

    "gaussian" follows the paper's Appendix B: S_ij = exp(−‖y_i − y_j‖² / (2δ²)) with δ² the mean of ‖y_i − y_j‖² over
    all i and j, and 0 if the two labels never occur together. "exponential" follows the authors' program:
    S_ij = exp(−‖y_i − y_j‖) / (2m), with m the mean of ‖y_i − y_j‖. Gaussian S need not be positive semidefinite.

    Parameters
    ----------
    pairs : int array, shape (q, q)
        Y'Y: number of rows with both labels.
    positives : int array, shape (q,)
        Number of rows with the label: the diagonal of `pairs`.
    kernel : {"gaussian", "exponential"}

    Returns
    -------
    float64 array, shape (q, q)

    Examples
    --------
    >>> label_similarity(np.array([[2, 1], [1, 2]]), np.array([2, 2])).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    """
    count = np.asarray(positives, dtype=np.float64)
    distance = count[:, np.newaxis] + count - 2.0 * pairs  # ‖y_i − y_j‖²
    distance[distance <= count.max(initial=0.0) * 2.0**-40] = 0.0  # rounding errors of adjusted labels
    # With one label, or equal labels, all distances are 0 and so is their mean.
    if not distance.any():
        similarity: Array = np.ones_like(distance)
    elif kernel == "exponential":
        distance = np.sqrt(distance)
        return np.asarray(np.exp(-distance) / (2.0 * distance.mean()))
    else:
        similarity = np.exp(-distance / (2.0 * distance.mean()))
    similarity[np.asarray(pairs) == 0] = 0.0
    return similarity


def redundancy(correlations: Array, selected: Sequence[int] | NDArray[Any]) -> float:
    """Return the label-specific redundancy R of a set of features (Eq. 16); lower is better.

    Parameters
    ----------
    correlations : float64 array, shape (q, d)
        Pearson correlation of every label with every feature; 0 if either is constant.
    selected : int or bool array
        Features of the set, k' in number.

    Returns
    -------
    float
        R = 1/(k'(k'−1)q) Σ_{i,j} Σ_c ρ²_{ic} ρ²_{jc}; NaN for fewer than two features.

    Examples
    --------
    >>> redundancy(np.array([[1.0, 1.0, 0.0]]), [0, 1])
    2.0
    """
    squares = correlations[:, selected] ** 2
    q, k = squares.shape
    if k < 2:
        return float("nan")
    # The double sum over pairs of features is the square of a sum over features.
    return float(np.sum(squares.sum(axis=1) ** 2) / (k * (k - 1) * q))


def residual_correlation(A: Array, S: Array, n: int | float, selected: Sequence[int] | NDArray[Any]) -> float:
    """Return the label correlation C that a set of features does not retain (Eq. 17); lower is better.

    Parameters
    ----------
    A : float64 array, shape (q, d)
        Y'X with standardised X.
    S : float64 array, shape (q, q)
        Label similarity.
    n : int or float
        Number of rows, or the sum of their weights.
    selected : int or bool array
        Features of the set, k' in number.

    Returns
    -------
    float
        C = 1/(k'(k'−1)) ‖A_F A_F' / n² − S‖²; NaN for fewer than two features.

    Examples
    --------
    >>> residual_correlation(np.array([[2.0, 0.0]]), np.array([[1.0]]), 2, [0, 1])
    0.0
    """
    chosen = A[:, selected]
    k = chosen.shape[1]
    if k < 2:
        return float("nan")
    return float(np.sum((chosen @ chosen.T / n**2 - S) ** 2) / (k * (k - 1)))


def label_correlations(A: Array, label_m2: Array, n: int | float) -> Array:
    """Return the Pearson correlation of every label with every feature, shape (q, d).

    Parameters
    ----------
    A : float64 array, shape (q, d)
        Y'X with standardised X (population standard deviation; constant features 0).
    label_m2 : float64 array, shape (q,)
        Sum of squared deviations of each label.
    n : int or float
        Number of rows, or the sum of their weights.

    Examples
    --------
    >>> label_correlations(np.array([[1.0]]), np.array([0.5]), 2)
    array([[1.]])
    """
    deviation = np.sqrt(n * label_m2)  # n times the population standard deviation of y
    factor = np.zeros_like(deviation)
    np.divide(1.0, deviation, out=factor, where=deviation > 0)
    return A * factor[:, np.newaxis]
