"""Twins by the names of their methods."""

from __future__ import annotations

import inspect
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from tests.reference import access_mfs as access_module
from tests.reference import draws, filters, global_information, graph_regressions, greedy, regressions
from tests.reference import elc as elc_module
from tests.reference import mlmlfs as mlmlfs_module
from tests.reference import relieff as relieff_module
from tests.reference import smfs as smfs_module
from tests.reference import spfs as spfs_module
from tests.reference.anchors import means_of_clusters, place, row_weights


def twin(method):
    """Function of X, Y and the method's parameters that gives scores; NaN where the twin has none for a feature.

    It is the function of the method's name here, or in another file of this folder.
    """
    name = method.replace("-", "_")
    files = (file for file in sorted(Path(__file__).parent.glob("*.py")) if not file.stem.startswith("test_"))
    for module in (__name__, *(f"tests.reference.{file.stem}" for file in files if file.stem != "twins")):
        found = getattr(import_module(module), name, None)
        if found is not None and list(inspect.signature(found).parameters)[:2] == ["X", "Y"]:
            return found
    raise LookupError(f"tests/reference has no function {name}(X, Y, ...)")


def elc(X, Y, n_features_to_select, *, similarity="gaussian", variant="corrected", **parameters):
    """The published form has weights of its own."""
    given = {"lambda_": 1e-3, "beta": 1e8} if variant == "published" else parameters
    return elc_module.elc(X, Y, n_features_to_select, kernel=similarity, variant=variant, **given)[0]


def spfs(X, Y):
    """By how much each feature lowers the residual when it is chosen."""
    scores = np.full(X.shape[1], np.nan)
    varies = np.flatnonzero(np.ptp(X, axis=0) > 0)
    order, falls = spfs_module.spfs(X[:, varies], Y)
    scores[varies[order]] = falls
    return scores


def relieff(X, Y, *, n_neighbors=10, min_rows=6):
    return relieff_module.relieff(X, Y, n_neighbors=n_neighbors, min_rows=min_rows)


def laplacian(X, Y, *, n_neighbors=5, lambda_=None):
    """With the exact graph."""
    width = None if lambda_ is None else lambda_**2
    return filters.laplacian(X, filters.nearest_graph(X, n_neighbors, width))


def forward(criterion, X, Y, n_features_to_select, *, bins=2):
    """Score of a chosen feature in its step, and of the others in the last one."""
    order, steps = greedy.greedy(X, Y, n_features_to_select, criterion, bins=bins)
    scores = steps[-1].copy()
    for feature, step in zip(order, steps, strict=True):
        scores[feature] = step[feature]
    return np.where(np.ptp(X, axis=0) > 0, scores, np.nan)


pmu, d2f, mdmr, scls, ami, jmi = (
    partial(forward, each) for each in (greedy.pmu, greedy.d2f, greedy.mdmr, greedy.scls, greedy.ami, greedy.jmi)
)


def mrmr(X, Y, n_features_to_select, *, criterion="mid", bins=2):
    return forward(getattr(greedy, criterion), X, Y, n_features_to_select, bins=bins)


def mico(X, Y, *, alpha=1.0, beta=1.0):
    R, Q, S = global_information.tables(X, Y)
    weights = global_information.least(lambda W: global_information.mico_objective(W, R, Q, S, alpha, beta), R.shape)
    return weights.sum(axis=1)


def qpmlfs(X, Y, *, alpha=None):
    R, Q, _ = global_information.tables(X, Y)
    r = R.sum(axis=1)
    share = Q.mean() / (Q.mean() + r.mean()) if alpha is None else alpha
    shape = (len(r), 1)
    return global_information.least(lambda W: global_information.qpmlfs_objective(W[:, 0], r, Q, share), shape)[:, 0]


def smfs(X, Y, *, structure="density", n_neighbors=15, n_trees=100, max_samples=256, seed=0, **parameters):
    """With scikit-learn's forest, where one is grown: on features below 1, those that vary, in the order of keys."""
    if structure != "density":
        W = smfs_module.structure_of_distances(elc_module.standardise(X), n_neighbors, structure)
        return smfs_module.smfs(X, Y, W, **parameters)[0]
    varying = X[:, np.ptp(X, axis=0) > 0]
    scaled = (varying / 2.0 ** (np.floor(np.log2(np.abs(varying).max(axis=0))) + 1)).astype(np.float32)
    prepared = scaled[:, np.argsort(draws.column_keys(scaled))]
    splits = np.random.SeedSequence(seed).spawn(2)[1]
    trees = smfs_module.grow_trees(prepared, n_trees, max_samples, int(splits.generate_state(1)[0]))
    masses = smfs_module.isolation_masses(trees, prepared)
    W = smfs_module.neighbour_weights(masses, n_neighbors)
    return smfs_module.smfs(X, Y, W, **parameters)[0]


def access_mfs(X, Y, **parameters):
    return access_module.access_mfs(X, Y, **parameters)[0]


def placed(X):
    """Anchors as methods place them, mean and deviation of the features; of few rows all are in the sample."""
    return place(X, min(len(X), max(8, len(X) // 4)))


def centres_of(X):
    return placed(X)[0]


def anchor_weights(X):
    """Weights of the anchors, shape (n, m)."""
    centres, mean, deviation = placed(X)
    return row_weights((X - mean) / deviation, centres, 3)


def mdfs(X, Y, **parameters):
    return graph_regressions.mdfs(X, Y, anchor_weights(X), **parameters)


def sample_graph(X, k, width):
    """The graph of nearest rows, of features standardised with n − 1."""
    return filters.nearest_graph(X, k, width * len(X) / (len(X) - 1))


def mifs(X, Y, *, variant="corrected", **parameters):
    if variant == "published":
        return regressions.mifs_published(X, Y, sample_graph(X, 5, 2.0), **parameters)
    return regressions.mifs(X, Y, anchor_weights(X), **parameters)


def mlmlfs(X, Y, *, variant="corrected", **parameters):
    if variant == "published":
        Z = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
        width = 2.0 * np.mean([np.linalg.norm(Z - z, axis=1) for z in Z]) ** 2
        return mlmlfs_module.published(X, Y, sample_graph(X, 5, width), **parameters)
    return mlmlfs_module.corrected(X, Y, anchor_weights(X), **parameters)


def lffs(X, Y, **parameters):
    return regressions.lffs(X, Y, anchor_weights(X), **parameters)


def lsmr(X, Y, **parameters):
    return regressions.lsmr(X, Y, anchor_weights(X), **parameters)


def sfss(X, Y, **parameters):
    return regressions.sfss(X, Y, anchor_weights(X), **parameters)


def smile(X, Y, **parameters):
    return regressions.smile(X, Y, anchor_weights(X), **parameters)


def leda(X, Y, **parameters):
    return regressions.leda(X, Y, anchor_weights(X), **parameters)


def smdr_ic(X, Y, **parameters):
    return regressions.smdr_ic(X, Y, anchor_weights(X), **parameters)


def scfs(X, Y, **parameters):
    given = {"kind": "adaptive", "anchor_neighbors": 5} | parameters
    return graph_regressions.graph_regression(X, Y, centres_of(X), **given)[0]


def sfam(X, Y, **parameters):
    return scfs(X, Y, **{"theta": 1.0} | parameters)


def fscla(X, Y, **parameters):
    return graph_regressions.graph_regression(X, Y, centres_of(X), kind="distances", **parameters)[0]


def glfs(X, Y, *, n_groups=8, n_label_groups=5, variant="corrected", **parameters):
    """With the groups that the method places; all rows are in its sample."""
    groups = place(X, min(n_groups, len(X)))[0]
    values, vectors = np.linalg.eigh(Y.T.astype(float) @ Y)
    columns = vectors @ np.diag(np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    label_groups = means_of_clusters(columns, min(n_label_groups, Y.shape[1]))
    rows, labels = nearest(regressions.standardised(X), groups), nearest(columns, label_groups)
    if variant == "published":
        return regressions.published_glfs(X, Y, rows, labels, **parameters)[0]
    return regressions.glfs(X, Y, rows, labels, **parameters)


def nearest(points, centres):
    return ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)


def sfs_bll(X, Y, *, variant="corrected", **parameters):
    if variant == "published":
        given = {"kappa": 10.0, "beta": 0.01, "gamma": 0.3, "rho": 1.0, "n_neighbors": 10} | parameters
        return graph_regressions.sfs_bll_program(X, Y, **{key: given[key] for key in given if key != "tol"})[0]
    return graph_regressions.sfs_bll_steps(X, Y, centres_of(X), **parameters)[0]


def uafs_bh(X, Y, **parameters):
    return graph_regressions.uafs_bh_steps(X, centres_of(X), **parameters)[0]
