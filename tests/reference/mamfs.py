"""MAMFS of Lee & Kim (2015), dense and plain, all rows being in the sample and no feature a copy of another."""

from __future__ import annotations

import math

import numpy as np

from tests.reference.label_entropy import discretise, entropy

MASK = 2**64 - 1


def row_hash(i, key):
    """SplitMix64 of Steele, Lea & Flood (2014)."""
    x = ((i + 1) * 0x9E3779B97F4A7C15 + key) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def shared(a, b):
    return max(0.0, entropy(a) + entropy(b) - entropy(a * 1000 + b))


def mamfs(X, Y, n_features_to_select, *, n_population=20, n_judged=300, bins=2, binning="auto", seed=0):
    """Scores of features; an entry -1 of Y is unknown."""
    codes, Y = discretise(X, bins, binning), np.asarray(Y, dtype=int)
    n, d = codes.shape
    relevance = np.array([sum(shared(c[y >= 0], y[y >= 0]) for y in Y.T) for c in codes.T])
    order = sorted(range(d), key=lambda f: (-relevance[f], -entropy(codes[:, f])))
    codes, relevance = codes[:, order], relevance[order]
    pairs = np.array([[shared(a, b) for b in codes.T] for a in codes.T])
    n_codes = [len(np.unique(c)) for c in codes.T]
    key = int(np.random.SeedSequence([seed, 5]).generate_state(1, np.uint64)[0])
    held_out = sorted(sorted(range(n), key=lambda i: row_hash(i, key))[: max(1, round(n / 5))])
    learn = np.setdiff1d(np.arange(n), held_out)
    k = min(n_features_to_select, d)
    random = np.random.default_rng(seed)
    judged = []

    def log_odds(label, features, row):
        has, lacks = ((Y[learn, label] == v).sum() for v in (1, 0))
        total = round(math.log((has + 1) / (lacks + 1)) * 2**32)
        for f in features:
            same = codes[learn, f] == codes[row, f]
            ratios = [((same & (Y[learn, label] == v)).sum() + 1) for v in (1, 0)]
            total += round(
                (math.log(ratios[0] / (has + n_codes[f])) - math.log(ratios[1] / (lacks + n_codes[f]))) * 2**32
            )
        return total

    def judge(subset):
        subset = tuple(sorted(int(f) for f in subset))
        known = [(i, j) for i in held_out for j in range(Y.shape[1]) if Y[i, j] >= 0]
        wrong = sum((log_odds(j, subset, i) > 0) != Y[i, j] for i, j in known)
        judged.append(subset)
        return subset, wrong / len(known)

    def J(subset):
        return np.array([relevance[f] - sum(pairs[f, g] for g in subset if g != f) for f in range(d)])

    population = {}

    def take_in(subset, loss):
        population.setdefault(subset, loss)

    for _ in range(n_population):
        take_in(*judge(random.permutation(d)[: random.integers(1, k + 1)]))
    while len(judged) < n_judged:
        for _ in range(3):
            best = min(population, key=population.get)
            left = max(0.0, 1.0 - len(judged) / n_judged)
            added, dropped = (round(random.random() * len(best) * left) for _ in range(2))
            values = J(best)
            outside = sorted((f for f in range(d) if f not in best), key=lambda f: -values[f])[:added]
            inside = sorted(best, key=lambda f: values[f])[dropped:]
            refined = sorted([*inside, *outside], key=lambda f: -values[f])[:k] or best
            subset, loss = judge(refined)
            if loss < population[best]:
                del population[best]
                take_in(subset, loss)
        subsets = list(population)
        parents = random.permutation(len(subsets))
        first, second = subsets[parents[0]], subsets[parents[1 % len(subsets)]]
        point = random.integers(1, d) if d > 1 else 1
        children = []
        for low, high in ((first, second), (second, first)):
            child = np.array([f for f in low if f < point] + [f for f in high if f >= point], dtype=int)
            child = child if len(child) else random.permutation(d)[:1]
            children.append(random.permutation(child)[:k])
        parent = subsets[random.integers(len(subsets))]
        size = len(parent) + int((random.random(k - len(parent)) < 0.1).sum())
        others = random.permutation([f for f in range(d) if f not in parent])[:size]
        children.append(others if len(others) else parent)
        for child in children:
            take_in(*judge(child))
        population = dict(sorted(population.items(), key=lambda item: item[1])[:n_population])
    ranked = sorted(population, key=population.get)
    scores = np.array([sum(f in subset for subset in ranked) for f in range(d)]) / len(ranked)
    scores += 0.5 / len(ranked) * relevance / relevance.max()
    values = J(ranked[0])[list(ranked[0])]
    scores[list(ranked[0])] = 2 + (values - values.min()) / (np.ptp(values) or 1.0)
    result = np.empty(d)
    result[order] = scores
    return result
