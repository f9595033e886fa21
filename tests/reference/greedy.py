"""Greedy selection by information of pairs and triples, from plain loops over the published criteria.

Peng et al. (2005), Yang & Moody (1999), Lee, Lim & Kim (2012), Lee & Kim (2013, 2015, 2017), Lin et al. (2015). Every
entropy is that of a joint sequence of states; nothing is shared with the product.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tests.reference.label_entropy import discretise


class Information:
    """Entropies of features, of labels and of what is joined of them, by name: ("f", 3) or ("l", 0)."""

    def __init__(self, X, Y, bins=2, binning="auto"):
        self.columns = {
            ("f", f): column for f, column in enumerate(discretise(np.asarray(X, dtype=float), bins, binning).T)
        }
        self.columns |= {("l", label): column for label, column in enumerate(np.asarray(Y).T)}
        self.features = [name for name in self.columns if name[0] == "f"]
        self.labels = [name for name in self.columns if name[0] == "l"]
        self.H = functools.cache(self._H)

    def _H(self, names):
        _, counts = np.unique(np.stack([self.columns[name] for name in names]), axis=1, return_counts=True)
        shares = counts / counts.sum()
        return -sum(p * math.log(p) for p in shares)

    def entropy(self, *names):
        return self.H(tuple(sorted(set(names))))

    def I(self, a, b):  # noqa: E743
        """I(a; b)."""
        return self.entropy(a) + self.entropy(b) - self.entropy(a, b)

    def given(self, a, b, c):
        """I(a; b | c)."""
        return self.entropy(a, c) + self.entropy(b, c) - self.entropy(a, b, c) - self.entropy(c)

    def interaction(self, a, b, c):
        """I(a; b; c) = I(a; b) - I(a; b | c)."""
        return self.I(a, b) - self.given(a, b, c)

    def joint(self, a, b, c):
        """I((a, b); c)."""
        return self.entropy(a, b) + self.entropy(c) - self.entropy(a, b, c)

    def relevance(self, f):
        return sum(self.I(f, label) for label in self.labels)


def pmu(info, f, S):
    pairs = sum(info.interaction(f, a, b) for i, a in enumerate(info.labels) for b in info.labels[i + 1 :])
    return info.relevance(f) - pairs - sum(info.interaction(f, s, label) for s in S for label in info.labels)


def d2f(info, f, S):
    return info.relevance(f) - sum(info.interaction(f, s, label) for s in S for label in info.labels)


def mdmr(info, f, S):
    if not S:
        return info.relevance(f)
    dependent = sum(info.I(f, s) - sum(info.given(f, label, s) for label in info.labels) for s in S)
    return info.relevance(f) - dependent / len(S)


def scls(info, f, S):
    if info.entropy(f) == 0:
        return 0.0
    return info.relevance(f) - sum(info.I(f, s) / info.entropy(f) for s in S) * info.relevance(f)


def ami(info, f, S):
    return info.relevance(f) - sum(info.I(f, s) for s in S)


def mid(info, f, S):
    return info.relevance(f) - sum(info.I(f, s) for s in S) / max(len(S), 1)


def miq(info, f, S):
    redundancy = sum(info.I(f, s) for s in S) / len(S) if S else 1.0
    return info.relevance(f) / max(redundancy, 2**-52)


def jmi(info, f, S):
    if not S:
        return info.relevance(f)
    return sum(info.joint(f, s, label) for s in S for label in info.labels)


def greedy(X, Y, k, criterion, *, bins=2):
    """The k features chosen one after another of those that vary, ties by lower index; all scores in every step."""
    info = Information(X, Y, bins)
    chosen, steps = [], []
    varying = np.flatnonzero(np.asarray(X).min(axis=0) < np.asarray(X).max(axis=0))
    for _ in range(min(k, len(varying))):
        scores = np.array([criterion(info, f, chosen) for f in info.features])
        open_ = [f for f in varying.tolist() if ("f", f) not in chosen]
        best = max(open_, key=lambda f: (round(scores[f], 12), -f))
        steps.append(scores)
        chosen.append(("f", best))
    return [f for _, f in chosen], steps


def d2f_program(X, Y, k, *, bins=2):
    """What the authors' program of D2F computes: every step subtracts the terms of all chosen features once more."""
    info = Information(X, Y, bins, "equal-width")
    running = np.array([info.relevance(f) for f in info.features])
    chosen = [int(np.argmax(running))]
    while len(chosen) < k:
        for f in range(len(running)):
            running[f] -= sum(info.interaction(("f", f), ("f", s), label) for s in chosen for label in info.labels)
        open_ = [f for f in range(len(running)) if f not in chosen]
        chosen.append(max(open_, key=lambda f: running[f]))
    return chosen


def ami_program(X, Y, k, *, bins=2):
    """What the authors' program of AMI computes: the redundancies of all features are taken from that in row k."""
    info = Information(X, Y, bins, "equal-width")
    relevance = np.array([info.relevance(f) for f in info.features])
    chosen = [int(np.argmax(relevance))]
    while len(chosen) < k:
        scores = relevance.copy()
        scores[len(chosen)] -= sum(info.I(f, ("f", s)) for f in info.features for s in chosen)
        open_ = [f for f in range(len(scores)) if f not in chosen]
        chosen.append(max(open_, key=lambda f: scores[f]))
    return chosen
