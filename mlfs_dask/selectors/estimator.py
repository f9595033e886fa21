"""What selectors inherit: scikit-learn's estimators, or parameters alone where a process has no use for estimators.

Importing scikit-learn takes about a second, more than `mlfs select` on a small store: it imports pandas, where that is
installed, and half of SciPy. What the command line does with selectors needs nothing of it.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from mlfs_dask import selectors


class Parameters:
    """Names and values of the parameters, as scikit-learn's BaseEstimator gives them."""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Values by name."""
        return {name: getattr(self, name) for name in self._get_param_names()}


def _plain() -> tuple[Any, type[UserWarning]]:
    class ConvergenceWarning(UserWarning):
        """A loop ended before it converged."""

    return Parameters, ConvergenceWarning


def _of_sklearn() -> tuple[Any, type[UserWarning]]:
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_selection import SelectorMixin

    class Estimator(SelectorMixin, BaseEstimator):  # type: ignore[misc]
        """A feature selector of scikit-learn."""

    return Estimator, ConvergenceWarning


_spared = not selectors.as_estimators and "sklearn" not in sys.modules

#: The class that selectors inherit, and the category of their warnings of loops that were too short.
Estimator, ConvergenceWarning = _plain() if _spared else _of_sklearn()
