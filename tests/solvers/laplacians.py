"""A Laplacian as a dense matrix, in the form in which solvers take one."""

from __future__ import annotations

import numpy as np


class DenseLaplacian:
    """L by products."""

    def __init__(self, L):
        self.L = L
        self.degrees = np.diag(L)

    def product(self, V):
        return self.L @ V
