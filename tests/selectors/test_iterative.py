"""What the iterative selectors share."""

from __future__ import annotations

import itertools
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask.primitives.plan import PassPlan, Phase
from mlfs_dask.primitives.rows import as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors import get_method, iterative
from mlfs_dask.selectors.iterative import plan_loop

X = np.random.default_rng(0).normal(size=(30, 4))
Y = (X[:, :2] > 0).astype(int)


@pytest.mark.parametrize("method", ["mfsir", "smfs", "access-mfs", "elc"])
def test_warnings_point_at_the_line_that_fits(method):
    selector = get_method(method)(2, max_iter=1, **({"tol": 1e-15} if method != "elc" else {}))
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 iterations") as told:
        selector.fit(X, Y)
    assert told[0].filename == __file__


def with_unknown(Y, coding):
    """Y of which rows, or entries, are unknown."""
    hidden = np.random.default_rng(1).random(len(Y) if coding == "rows" else Y.shape) < 0.5
    return np.where(hidden[:, np.newaxis] if coding == "rows" else hidden, -1, Y)


def fit_and_told(method, Y, **params):
    """A fitted selector, and what it has told of labels without a positive row."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        selector = get_method(method)(2, max_iter=3, **params).fit(X, Y)
    texts = [str(warning.message) for warning in found]
    assert selector.report_.warnings == texts
    return selector, [text for text in texts if "positive row" in text]


CODINGS = [("mfsir", "known"), *itertools.product(["smfs", "access-mfs"], ["known", "rows", "entries"])]


@pytest.mark.parametrize(("method", "coding"), CODINGS)
def test_labels_without_a_positive_row_are_named(method, coding):
    some = np.column_stack([Y[:, 0], 0 * Y[:, 0], Y[:, 1], 0 * Y[:, 0]])
    some = some if coding == "known" else with_unknown(some, coding)
    title = {"mfsir": "mFSIR", "smfs": "SMFS", "access-mfs": "Access-MFS"}[method]
    no = "no" if method == "mfsir" else "no known"

    _, told = fit_and_told(method, some)
    assert len(told) == 1
    assert told[0].startswith(f"{title}: 2 of 4 labels have {no} positive row (columns 1 and 3 of Y, counted from 0). ")
    _, told = fit_and_told(method, pd.DataFrame(some[:, :3], columns=["sea", "sky", "sun"]))
    assert len(told) == 1
    assert told[0].startswith(f"{title}: 1 of 3 labels has {no} positive row ('sky'). ")
    assert "eave it out of Y" in told[0]
    assert fit_and_told(method, some[:, ::2])[1] == []  # nothing to tell of the others


def test_of_many_labels_without_a_positive_row_the_first_are_named():
    many = np.column_stack([Y, np.zeros((len(Y), 7), dtype=int)])
    _, (told,) = fit_and_told("smfs", many)
    assert "7 of 9 labels have no known positive row (columns 2, 3, 4, 5, 6 and 2 more of Y, counted from 0)" in told


@pytest.mark.parametrize("method", ["mfsir", "smfs", "access-mfs"])
def test_where_no_label_has_a_positive_row_one_warning_says_so(method):
    known = {} if method == "mfsir" else {"missing": "coded"}
    selector, told = fit_and_told(method, 0 * Y, **known)
    assert told == []
    assert ["tell no feature from another" in text for text in selector.report_.warnings] == [True]


def test_what_is_told_of_labels_without_a_positive_row_is_so():
    some = np.column_stack([Y[:, 0], 0 * Y[:, 0], Y[:, 1]])
    # mfsir: they are nothing but a number of labels.
    selector, (told,) = fit_and_told("mfsir", some, n_latent=2)
    assert told.endswith("(column 1 of Y, counted from 0). Such a label tells nothing of any feature.")
    np.testing.assert_allclose(selector.scores_, fit_and_told("mfsir", Y, n_latent=2)[0].scores_, rtol=1e-12)
    _, (told,) = fit_and_told("mfsir", some)
    assert "counts in n_latent" in told
    assert fit_and_told("mfsir", some, step="fixed")[1] == [told]
    # access-mfs: without the graph of labels they have no part in anything.
    for coding in ("rows", "entries"):
        selector, (told,) = fit_and_told("access-mfs", with_unknown(some, coding), mu=0.0)
        assert told.endswith("means nothing, and it has no part in the scores.")
        assert np.abs(selector.labels_[:, 1]).max() < 1e-12
        assert selector.report_.extra["rank"][-1] == 2
        selector, (told,) = fit_and_told("access-mfs", with_unknown(some, coding))
        assert "through the graph of labels it adds noise to the scores" in told
        assert selector.report_.extra["rank"][-1] == 3


@pytest.mark.parametrize("client", [None, object()])
@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_loop_is_planned(monkeypatch, client, times):
    monkeypatch.setattr(iterative, "driver_bytes", lambda: 1000)
    first, each = PassPlan(((0, 1),), 8, 1, 3, 50, 700), PassPlan(((0, 1),), 8, 1, 2, 10, 900)
    resources = Resources(1, 1, 10**6, 10**6, client, process_bytes=400)
    plan = plan_loop(
        resources,
        once=[first, first],
        again=[each, each],
        times=times,
        typical=(1, 3),
        held=20,
        phases=[Phase(5, 1, slab=100), Phase(0, 6), Phase(2, 3)],
        notes=["a"],
        more_readings=4,
        worker_bytes=910,
        message_shape=(4, 3, 2),
    )
    assert plan.passes == 2 + 4 + 2 * times
    assert plan.typical_passes == tuple(2 + 4 + 2 * min(times, each) for each in (1, 3))
    assert plan.typical_bytes_read == tuple(100 + 20 * min(times, each) for each in (1, 3))
    assert plan.tasks == 6 + 4 * times
    assert plan.bytes_read == 100 + 20 * times
    assert plan.peak_worker_bytes == 910
    # Half of the arrays of n rows stay for a while after they are freed.
    assert plan.peak_driver_bytes == 1026 + 3 + (64 * 3 * 2 + 16 * 4 * 2 if client else 910 - 400)
    assert plan.notes == ("a",)
    assert plan.shape == {}


def test_a_loop_in_files_is_planned_by_its_largest_phase(monkeypatch):
    monkeypatch.setattr(iterative, "driver_bytes", lambda: 1000)
    monkeypatch.setattr(iterative, "driver_compiled_bytes", lambda: 50)
    monkeypatch.setattr(iterative, "MAPPED_BYTES", 40)
    monkeypatch.setattr(iterative, "free_disk", lambda folder: 10**6)
    one = PassPlan(((0, 1),), 8, 1, 3, 50, 700)
    monkeypatch.setattr(iterative, "KEPT_BYTES", 9)
    known = {"once": [one], "again": [one], "times": 2, "typical": (1, 1), "held": 20, "notes": []}
    known["message_shape"] = (0, 0, 0)
    phases = [Phase(300, 100), Phase(0, 900, slab=7), Phase(310, 20)]
    for limit, peak in ((1 << 20, 900), (1900, 300 + 40)):
        plan = plan_loop(Resources(1, 1, 10**6, limit, object()), **known, phases=phases)
        assert plan.peak_driver_bytes == 1029 + peak
        assert plan.shape.get("scratch_bytes") == (900 if limit == 1900 else None)
        with_kernels = plan_loop(Resources(1, 1, 10**6, limit, object()), **known, phases=phases, compiled=True)
        assert with_kernels.peak_driver_bytes == plan.peak_driver_bytes + 50
    here = Resources(1, 1, 10**6, 1 << 20, process_bytes=400, compiled_bytes=60)
    assert plan_loop(here, **known, phases=phases, compiled=True).peak_driver_bytes == 1029 + 900 + 300 + 60


@pytest.mark.parametrize("method", ["mfsir", "smfs", "access-mfs"])
@pytest.mark.parametrize("graph", ["exact", "approximate"])
@pytest.mark.parametrize(("d", "q"), [(50, 4), (50, 20), (50, 80), (4000, 20)])
def test_what_the_memory_of_a_method_is_told_to_be_is_what_is_planned(method, graph, d, q, monkeypatch):
    monkeypatch.setattr(iterative, "driver_bytes", lambda: 0)
    monkeypatch.setattr(iterative, "driver_compiled_bytes", lambda: 0)
    selector, n = get_method(method)(2, graph=graph), 3 * 10**7
    told, _, least = selector.memory.partition("driver: ")[2].partition(" bytes, at least ")
    least = least.removesuffix(" in an approximate search")
    names = {"n": n, "d": d, "q": q, "l": q // 2 + 1, "p": 5, "k": 15, "trees": 100, "k_s": 5}
    expected = max(value_of(text, names) for text in ([told] if graph == "exact" else [told, least]))
    profile = replace(as_rows(X, Y).profile, n=n, d=d, q=q, nonzeros=n * d, label_nonzeros=n, partitions=100)
    resources = Resources(2, 1, 2**40, 2**50, object())
    planned = selector.plan(profile, resources).peak_driver_bytes
    assert 0.75 < expected / planned < 1.25, expected / planned


def value_of(text, names):
    """Of a formula for people: ``n * (2 q + 1,600) + d²``."""
    text = re.sub(r"(\d),(\d)", r"\1\2", text.replace("²", "**2"))
    return eval(re.sub(r"(\d) ([a-z])", r"\1 * \2", text), names)
