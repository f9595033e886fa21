"""A network with one hidden layer beside a linear part, in which a feature without a linear weight has none at all.

Predictions are x W + relu(x A + a) B + b, with |A_fi| ≤ M ‖w_f‖ for every feature f. As the weight λ of Σ‖w_f‖ rises
features leave the network. I. Lemhadri, F. Ruan, L. Abraham, R. Tibshirani, "LassoNet: a neural network with feature
sparsity", Journal of Machine Learning Research 22 (2021) no. 127.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.proximal import hierarchical_prox, row_norms
from mlfs_dask.typing import Array, Matrix

#: Length of a step; share of the step before that a step along the path goes on with.
RATE, MOMENTUM = 1e-3, 0.9

#: Training ends where the objective on held-out rows was at least this share of the least so far in as many epochs as
#: a tenth of the most that there may be.
PROGRESS, PATIENCE = 0.99, 0.1

#: Share of the rows that is held out.
HELD_OUT = 0.1

#: Copies of the parameters that training holds: themselves, gradients, two of the optimiser, four of the projection.
PARAMETER_COPIES = 8


class Path(NamedTuple):
    """Result of training a network along a path of penalties.

    Attributes
    ----------
    leaves_at : float64 array, shape (d,)
        λ at which each feature leaves.
    strengths : list of float
        Values of λ, 0 first.
    losses : list of float
        Mean squared error on held-out rows at the end of each.
    steps : int
        Steps of gradients.
    """

    leaves_at: Array
    strengths: list[float]
    losses: list[float]
    steps: int


@dataclass
class Rows:
    """Standardised columns of a matrix, some rows of which are made dense at a time.

    Attributes
    ----------
    X : ndarray or csr_array, shape (n, d)
    mean, factor : float64 array, shape (d,)
        What is subtracted from a column, and what brings it to unit variance.
    """

    X: Matrix
    mean: Array
    factor: Array

    def take(self, rows: NDArray[np.intp]) -> Array:
        """Return some rows, shape (m, d)."""
        X = self.X[rows]
        dense: Array = (X.toarray() if sp.issparse(X) else X).astype(np.float64)
        dense -= self.mean
        dense *= self.factor
        return dense

    def columns(self, kept: NDArray[np.bool_]) -> Rows:
        """Return the rows with some columns alone."""
        return Rows(self.X[:, np.flatnonzero(kept)], self.mean[kept], self.factor[kept])


class Network:
    """The parameters of a network, and their gradients.

    Parameters
    ----------
    d, q, h : int
        Features, labels, and units of the hidden layer.
    random : numpy.random.Generator
        Draws the parameters, uniform below one over the root of the number of inputs of a unit.
    """

    def __init__(self, d: int, q: int, h: int, random: np.random.Generator) -> None:
        bounds = [1.0 / np.sqrt(size) for size in (d, d, h, h)]
        shapes = (d, q + h), (h,), (h, q), (q,)
        drawn = [random.uniform(-bound, bound, shape) for bound, shape in zip(bounds, shapes, strict=True)]
        #: W and A side by side, (d, q + h); a, (h,); B, (h, q); b, (q,).
        self.parameters: list[Array] = drawn
        self.q = q
        self._products = self._slopes = np.empty((0, 0))

    @property
    def linear(self) -> Array:
        """W, shape (d, q)."""
        return self.parameters[0][:, : self.q]

    def _forward(self, X: Array) -> tuple[Array, Array]:
        """Return predictions, (m, q), and a buffer, (m, q + h), that has the hidden layer in its last columns."""
        WA, a, B, b = self.parameters
        if len(self._products) != len(X):
            self._products, self._slopes = np.empty((len(X), WA.shape[1])), np.empty((len(X), len(a)))
        products = np.matmul(X, WA, out=self._products)
        hidden = products[:, self.q :]
        hidden += a
        np.maximum(hidden, 0.0, out=hidden)
        return products[:, : self.q] + hidden @ B + b, products

    def loss(self, X: Array, Y: Array) -> float:
        """Return the mean squared error over the entries of Y that are no NaN."""
        residual, known = _residual(self._forward(X)[0], Y)
        return float(np.sum(residual**2) / known)

    def gradients(self, X: Array, Y: Array) -> list[Array]:
        """Return the gradients of the mean squared error by the parameters."""
        predicted, products = self._forward(X)
        residual, known = _residual(predicted, Y)
        hidden, slope = products[:, self.q :], residual * (2.0 / known)
        of_output = hidden.T @ slope
        of_hidden = np.matmul(slope, self.parameters[2].T, out=self._slopes)
        of_hidden *= hidden > 0.0
        products[:, : self.q], products[:, self.q :] = slope, of_hidden
        return [X.T @ products, of_hidden.sum(axis=0), of_output, slope.sum(axis=0)]

    def project(self, threshold: float, M: float) -> None:
        """Shrink the linear weights, and bound those of the hidden layer by them."""
        WA = self.parameters[0]
        WA[:, : self.q], WA[:, self.q :] = hierarchical_prox(self.linear, WA[:, self.q :], threshold, M)


def _residual(predicted: Array, Y: Array) -> tuple[Array, int]:
    """Return predictions less Y, 0 where Y is NaN, and the entries that are known, 1 at least."""
    residual: Array = predicted - Y
    unknown = np.isnan(residual)
    residual[unknown] = 0.0
    return residual, max(1, Y.size - int(np.count_nonzero(unknown)))


class Adam:
    """Steps of gradients that are scaled by their recent sizes (Kingma & Ba 2015)."""

    def __init__(self, parameters: Sequence[Array]) -> None:
        self.first, self.second = ([np.zeros_like(each) for each in parameters] for _ in range(2))
        self.steps = 0

    def step(self, parameters: Sequence[Array], gradients: Sequence[Array]) -> None:
        """Move the parameters, in place."""
        self.steps += 1
        rate, root = RATE / (1.0 - 0.9**self.steps), np.sqrt(1.0 - 0.999**self.steps)
        for value, gradient, first, second in zip(parameters, gradients, self.first, self.second, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            value -= rate * first / (np.sqrt(second) / root + 1e-8)


class Momentum:
    """Steps of gradients that go on with a share of the step before."""

    def __init__(self, parameters: Sequence[Array]) -> None:
        self.velocity = [np.zeros_like(each) for each in parameters]

    def step(self, parameters: Sequence[Array], gradients: Sequence[Array]) -> None:
        """Move the parameters, in place."""
        for value, gradient, velocity in zip(parameters, gradients, self.velocity, strict=True):
            velocity *= MOMENTUM
            velocity += gradient
            value -= RATE * velocity


def train_path(
    rows: Rows,
    Y: Array,
    *,
    n_hidden: int,
    M: float,
    lambda_start: float,
    multiplier: float,
    batch_size: int,
    max_epochs: int,
    path_epochs: int,
    seed: int,
) -> Path:
    """Train a network with all features, then with a penalty that rises until none is left.

    Parameters
    ----------
    rows : Rows
        Of n rows and d columns that vary.
    Y : float64 array, shape (n, q)
        NaN: unknown, and no part of the loss.
    n_hidden : int
    M : float
        Bound of weights of the hidden layer, as a multiple of the norm of the linear ones.
    lambda_start, multiplier : float
        The first λ, and that of which it is a multiple of the one before.
    batch_size : int
        Rows of a step, about.
    max_epochs, path_epochs : int
        Most passes of these rows in memory without a penalty, and for each λ.
    seed : int
        Of the parameters at the start, of the rows that are held out, and of the order of the others.

    Returns
    -------
    Path
    """
    random = np.random.default_rng(seed)
    n, d = rows.X.shape
    order = random.permutation(n)
    n_held_out = min(max(1, round(HELD_OUT * n)), n - 1)
    held_out, train = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
    network = Network(d, Y.shape[1], n_hidden, random)
    trainer = _Trainer(rows, Y, train, held_out, max(1, round(len(train) / batch_size)), M, random)
    active, leaves_at = np.arange(d), np.zeros(d)
    with runtime.stage("training a network", max_epochs, unit="epochs") as report_progress:
        losses = [trainer.train(network, Adam(network.parameters), 0.0, max_epochs, report_progress)]
    strengths, momentum = [0.0], Momentum(network.parameters)
    with runtime.stage("removing features", d, unit="features") as report_progress:
        for power in itertools.count():
            strengths.append(lambda_start * multiplier**power)
            losses.append(trainer.train(network, momentum, strengths[-1], path_epochs))
            kept = row_norms(network.linear) > 0
            leaves_at[active[~kept]] = strengths[-1]
            for _ in range(int(np.count_nonzero(~kept))):
                report_progress()
            if not kept.any():
                return Path(leaves_at, strengths, losses, trainer.steps)
            if not kept.all():
                active, trainer.rows = active[kept], trainer.rows.columns(kept)
                for of_inputs in (network.parameters, momentum.velocity):
                    of_inputs[0] = of_inputs[0][kept]
    raise AssertionError  # the loop has no other end


class _Trainer:
    """Training of a network on some of the rows until the objective on others no longer falls."""

    def __init__(
        self,
        rows: Rows,
        Y: Array,
        train: NDArray[np.intp],
        held_out: NDArray[np.intp],
        n_batches: int,
        M: float,
        random: np.random.Generator,
    ) -> None:
        self.rows, self.Y, self.M = rows, Y, M
        self._train, self._held_out, self._n_batches, self._random = train, held_out, n_batches, random
        self.steps = 0

    def train(
        self,
        network: Network,
        optimiser: Adam | Momentum,
        strength: float,
        epochs: int,
        report_progress: Callable[[], None] = runtime.check_stopped,
    ) -> float:
        """Return the loss on the held-out rows after up to so many epochs."""
        X, Y = self.rows.take(self._held_out), self.Y[self._held_out]
        whole = None
        if self._n_batches == 1:
            whole = self.rows.take(self._train), self.Y[self._train]
        loss, least, since = network.loss(X, Y), np.inf, 0
        for _ in range(epochs):
            for batch in self._batches():
                rows, labels = whole or (self.rows.take(batch), self.Y[batch])
                optimiser.step(network.parameters, network.gradients(rows, labels))
                network.project(strength * RATE, self.M)
                self.steps += 1
            report_progress()
            loss = network.loss(X, Y)
            objective = loss + strength * float(row_norms(network.linear).sum())
            since += 1
            if objective < PROGRESS * least:
                least, since = objective, 0
            if since >= PATIENCE * epochs:
                break
        return loss

    def _batches(self) -> list[NDArray[np.intp]]:
        if self._n_batches == 1:
            return [self._train]
        return np.array_split(self._random.permutation(self._train), self._n_batches)
