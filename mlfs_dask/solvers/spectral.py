"""The largest eigenvalue of a large matrix that is known by its products, each of which may read the data.

Rayleigh-Ritz in the block Krylov space of a drawn start. Y. Saad, "Numerical Methods for Large Eigenvalue Problems",
revised edition, SIAM 2011, chapter 6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import MlfsError
from mlfs_dask.typing import Array

#: Columns of the block: so few hardly add to the time of a pass over X.
BLOCK = 16

#: Most products; on real data three to nine are enough.
MAX_PRODUCTS = 20


def starting_block(places: NDArray[np.intp], varies: NDArray[np.bool_]) -> Array:
    """Return drawn directions from which a Krylov space is built, orthonormal.

    Parameters
    ----------
    places : int array, shape (size,)
        Numbers from 0 for which rows are drawn, such as `key_places`: then the space does not depend on the order of
        rows.
    varies : bool array, shape (size,)
        Rows that are not 0.

    Returns
    -------
    float64 array, shape (size, b)
        With 1 <= b <= `BLOCK` directions, as many as there are distinct places.

    Examples
    --------
    >>> Q = starting_block(np.array([1, 0, 1, 2]), np.array([True, True, True, False]))
    >>> Q.shape, np.allclose(Q[0], Q[2]), Q[3].tolist()
    ((4, 2), True, [0.0, 0.0])
    """
    size = len(places)
    if not varies.any():
        return np.full((size, 1), 1.0 / np.sqrt(size))
    draws = np.random.default_rng(0).normal(size=(int(places.max()) + 1, BLOCK))
    drawn = np.where(varies[:, np.newaxis], draws[places], 0.0)
    width = min(BLOCK, len(np.unique(places[varies])))
    return np.linalg.qr(drawn[:, :width])[0]


def largest_eigenvalue(
    operator: Callable[[Array], Array],
    start: Array,
    *,
    tol: float = 1e-2,
) -> float:
    """Return the largest eigenvalue of a symmetric matrix without negative ones, from above.

    Parameters
    ----------
    operator : callable
        ``operator(Q)`` gives A Q for Q of shape (size, c), c <= `BLOCK`.
    start : float64 array, shape (size, b)
        Orthonormal directions, b <= `BLOCK`.
    tol : float
        Stop when the residual of the Ritz pair is so small a share of its value.

    Returns
    -------
    float
        Ritz value plus the norm of its residual. An eigenvalue lies within the residual of the Ritz value; that it is
        the largest is as good as certain from a drawn start, but not proven.

    Raises
    ------
    MlfsError
        A product is not finite.

    Notes
    -----
    Holds 2 * `BLOCK` numbers a row and product.

    Examples
    --------
    >>> A = np.diag([1.0, 2.0, 5.0])
    >>> round(largest_eigenvalue(lambda Q: A @ Q, starting_block(np.arange(3), np.ones(3, bool))), 6)
    5.0
    """
    size, Q = len(start), start
    basis, images = np.empty((size, 0)), np.empty((size, 0))
    for product in range(1, MAX_PRODUCTS + 1):
        image = operator(Q)
        if not np.isfinite(image).all():
            raise MlfsError(
                "largest eigenvalue: a product of the operator is not finite\n  cure: look for values of X beyond "
                "1e150, and for NaN; scale the features"
            )
        basis, images = np.hstack([basis, Q]), np.hstack([images, image])
        ritz = basis.T @ images
        values, vectors = np.linalg.eigh((ritz + ritz.T) / 2)
        value, y = float(values[-1]), vectors[:, -1]
        residual = float(np.linalg.norm(images @ y - value * (basis @ y)))
        left = size - basis.shape[1]
        if residual <= tol * value or left == 0 or product == MAX_PRODUCTS:
            break
        Q = image[:, :left]
        new, sizes, _ = np.linalg.svd(Q - basis @ (basis.T @ Q), full_matrices=False)
        Q = new[:, sizes > 1e-10 * np.linalg.norm(image)]  # others are rounding errors: the space is invariant
        if not Q.shape[1]:
            break
        Q = np.linalg.qr(Q - basis @ (basis.T @ Q))[0]  # a second time, since the first leaves rounding errors
    return max(value, 0.0) + residual
