"""Loops that make several updates between two passes, by predicted sums, beside those that make one."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.stats import spearmanr

import mlfs_dask
from mlfs_dask import MFSIR, SMFS, SMLFS, UAFSBH, AccessMFS, runtime
from mlfs_dask.blocks.duplicate_labels import DuplicateLabels
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.checkpoints import Folder, keep_checkpoints
from mlfs_dask.rows.contract import Block
from mlfs_dask.selectors import get_method, smfs
from mlfs_dask.statistics.predicted_rows import PredictedRows, RowPrediction, predicted_sums
from mlfs_dask.statistics.scaling import Scaling
from tests.selectors.anchored import quiet
from tests.storage.stores import make_store

#: Quick forms of the methods.
FORMS = {
    "access-mfs": (AccessMFS, {"graph": "anchors", "n_anchors": 40}),
    "smfs": (SMFS, {"graph": "anchors", "n_trees": 20, "max_samples": 32, "n_anchors": 40}),
    "mfsir": (MFSIR, {"graph": "anchors"}),
    "mfsir without X'X": (MFSIR, {"graph": "anchors", "gram_cap": 0}),
    "smlfs": (SMLFS, {}),
    "uafs-bh": (UAFSBH, {"n_anchors": 40}),
}
forms = pytest.mark.parametrize("form", FORMS)


def fitted(form, X, Y, **parameters):
    selector, quick = FORMS[form]
    return quiet(selector(3, **quick | parameters), X, Y)


def planted(n=400, d=20, q=5, above=0.6):
    rng = np.random.default_rng(4)
    hidden = rng.normal(size=(n, 3))
    X = hidden @ rng.normal(size=(3, d)) * (np.arange(d) < 12) + rng.normal(size=(n, d))
    Y = hidden @ rng.normal(size=(3, q)) + rng.normal(size=(n, q))
    return X, (Y - above > 0).astype(np.int8)


def not_at_random(X, Y):
    """Entries that are unknown where a feature is high, and positive ones more often than others."""
    chance = np.random.default_rng(2).random(Y.shape)
    unknown = chance < np.where(X[:, :1] > 0, 0.9, 0.3) * np.where(Y == 1, 0.9, 0.6)
    return np.where(unknown, np.int8(-1), Y)


def at_random(X, Y):
    return X, np.where(np.random.default_rng(1).random(Y.shape) < 0.7, np.int8(-1), Y)


def sorted_rows(X, Y):
    order = np.lexsort((X[:, 0], Y[:, 0]))
    return tuple(rows[order] for rows in at_random(X, Y))


DATA = {
    "at random": at_random,
    "not at random": lambda X, Y: (X, not_at_random(X, Y)),
    "sorted": sorted_rows,
    "positives alone": lambda X, Y: (X, Y),
}


@pytest.mark.parametrize("data", DATA)
def test_smfs_reaches_the_objective_in_fewer_passes(data):
    X, Y = DATA[data](*planted())
    one, several = fitted("smfs", X, Y, steps_per_pass=1, tol=1e-5), fitted("smfs", X, Y, tol=1e-5)
    before, after = one.report_, several.report_
    assert after.iterations <= 0.75 * before.iterations
    assert after.objective[-1] <= before.objective[-1] * (1 + 1e-6)
    assert (np.diff(after.objective) <= 1e-9 * after.objective[0]).all()


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("data", DATA)
def test_mfsir_makes_about_the_same_steps_in_fewer_passes(data, gram_cap):
    X, Y = DATA[data](*planted())
    one, several = (fitted("mfsir", X, Y, gram_cap=gram_cap, steps_per_pass=most) for most in (1, 4))
    steps = 1 + sum(several.report_.extra["steps"])
    assert several.report_.iterations <= 0.5 * one.report_.iterations
    assert abs(steps - one.report_.iterations) <= 4
    assert spearmanr(one.scores_, several.scores_).statistic >= 0.97
    assert (np.diff(several.report_.objective) <= 0).all()


@pytest.mark.parametrize("data", DATA)
def test_access_mfs_ends_where_its_ranking_stays(data):
    X, Y = DATA[data](*planted())
    plain = fitted("access-mfs", X, Y, steps_per_pass=1, stop="objective")
    found = fitted("access-mfs", X, Y)
    assert found.report_.iterations <= 0.6 * plain.report_.iterations
    assert spearmanr(plain.scores_, found.scores_).statistic >= 0.95
    order, kept = (found.report_.extra[name][-2:] for name in ("order", "kept"))
    assert min(order) >= 0.999
    assert min(kept) >= 0.98
    assert found.report_.objective[-1] == pytest.approx(plain.report_.objective[-1], rel=5e-3)


def test_the_ranking_rule_takes_the_number_of_features_into_account():
    """A wider choice has to stay as it is."""
    X, Y = planted()
    X = np.hstack([X, np.random.default_rng(7).normal(size=(len(X), 60))])
    passes = {k: quiet(mlfs_dask.RFS(k, stop="ranking", tol=1e-9), X, Y).report_ for k in (1, 40)}
    for report in passes.values():
        assert report.converged
        assert report.iterations < quiet(mlfs_dask.RFS(1, tol=1e-9), X, Y).report_.iterations
    assert passes[1].iterations < passes[40].iterations


def test_the_model_of_access_mfs_gives_the_sums_of_known_rows():
    rng = np.random.default_rng(0)
    X, Y = planted()
    d, q, m = X.shape[1], Y.shape[1], 6
    scaling = Scaling(X.mean(axis=0), np.ones(d))
    coupling = np.cov(rng.normal(size=(q, 9)))
    small = rng.normal(size=(d, q)), rng.normal(size=q), rng.normal(size=(m, q)), rng.normal(size=(m, q)), coupling
    prediction = RowPrediction(*small, 0.7, 3, DuplicateLabels(np.arange(q)))
    rows = PredictedRows(scaling, prediction)
    state = rows.zero()
    rows.add(state, Block(0, X, as_labels(Y)))
    sums = rows.finalize(state)
    centred = X - X.mean(axis=0)
    labels = Y.astype(float)
    moments = centred.T @ centred, centred.T @ labels, labels.T @ labels, labels.sum(axis=0)
    for name, array in predicted_sums(prediction, sums, *moments).items():
        assert array == pytest.approx(getattr(sums, name), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("data", ["rows", "not at random", "sorted"])
@pytest.mark.parametrize("p", [1.0, 0.5])
def test_smlfs_reaches_the_objective_of_rare_labels_in_half_of_the_passes(data, p):
    X, Y = planted(n=800, above=3.2)
    known = {"rows": np.arange(800) % 3 > 0, "not at random": X[:, 0] < 1.5, "sorted": Y[:, 0] >= 0}[data]
    rows = np.lexsort((X[:, 0], Y[:, 0])) if data == "sorted" else slice(None)
    X, Y = X[rows], np.where(known[:, np.newaxis], Y, np.int8(-1))[rows]
    one, several = (fitted("smlfs", X, Y, p=p, tol=1e-5, **given).report_ for given in ({"steps_per_pass": 1}, {}))
    assert several.iterations <= 0.5 * one.iterations
    assert several.objective[-1] <= one.objective[-1] * (1 + 1e-6)
    assert (np.diff(several.objective) <= 1e-9 * several.objective[0]).all()


def test_uafs_bh_reaches_the_objective_in_half_of_the_passes():
    X, Y = planted(n=4000)
    one, several = (fitted("uafs-bh", X, Y, random_state=0, **given).report_ for given in ({"steps_per_pass": 1}, {}))
    assert several.iterations <= 0.6 * one.iterations
    assert several.objective[-1] <= one.objective[-1]


def test_a_wrong_prediction_goes_back(monkeypatch):
    X, Y = DATA["at random"](*planted())
    right = smfs.SMFS.predict

    def wrong(self, *given):
        return {name: 50.0 * np.roll(change, 1, axis=1) for name, change in right(self, *given).items()}

    monkeypatch.setattr(smfs.SMFS, "factors", (1.0, 1.0))
    monkeypatch.setattr(smfs.SMFS, "predict", wrong)
    one, several = fitted("smfs", X, Y, steps_per_pass=1).report_, fitted("smfs", X, Y).report_
    assert sum(several.extra["rose"]) >= 2
    assert 1 in several.extra["steps"]  # after two rises in a row
    assert (np.diff(several.objective) <= 1e-9 * several.objective[0]).all()
    assert several.objective[-1] == pytest.approx(one.objective[-1], rel=2e-3)


@forms
def test_updates_leave_the_variables_of_the_last_pass(form, monkeypatch):
    """From these changes are predicted, and a loop goes back to them."""
    method = get_method(form.split()[0])
    plain, made = method.update, []

    def watched(self, job, fixed, at, *more):
        before = copy.deepcopy(self.state(at))
        after = plain(self, job, fixed, at, *more)
        assert all(np.array_equal(array, before[name]) for name, array in self.state(at).items())
        made.append(after)
        return after

    monkeypatch.setattr(method, "update", watched)
    fitted(form, *DATA["at random"](*planted()), max_iter=4)
    assert len(made) >= 3


@forms
def test_a_fit_goes_on_to_the_same_bits(form, tmp_path):
    make_store(tmp_path / "data.zarr", *DATA["at random"](*planted()), names=False, storage="dense", dtype="float64")
    dataset, folder = mlfs_dask.open_dataset(tmp_path / "data.zarr"), Folder(str(tmp_path / "states"))
    whole = fitted(form, dataset, None)
    for last in range(1, whole.report_.iterations):

        def stop(event, last=last):
            if event["kind"] == "step" and event["number"] == last + 1:
                raise KeyboardInterrupt

        with keep_checkpoints(folder, every=0), runtime.progress_to(stop), pytest.raises(KeyboardInterrupt):
            fitted(form, dataset, None)
        with keep_checkpoints(folder, every=0, resume=True):
            resumed = fitted(form, dataset, None)
        assert resumed.report_.objective == whole.report_.objective
        assert resumed.scores_.tolist() == whole.scores_.tolist()
