"""Kept statistics: whole, verified, bounded, and the same bits as if they had been computed."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mlfs_dask as mlfs
from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.mass_anchors import MassAnchors
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine import cache as caching
from mlfs_dask.engine.cache import cache, cache_of, entry, is_on, record_hits
from mlfs_dask.engine.readings import count_readings, run_reading
from mlfs_dask.errors import UsageError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from mlfs_dask.statistics.gram import Gram, WeightedGram
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.statistics.resampling import Resampled
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask.storage.extension import StoreExtension
from mlfs_dask.storage.store_reader import StoreRows
from tests.storage.memory_reader import make_reader


class Rows(ArrayRows):
    """A row of a store."""

    digest = place = None

    def __init__(self, digest, place):
        super().__init__(np.zeros((1, 1)), as_labels(np.zeros((1, 1), np.int8)))
        self.digest, self.place = digest, place


HERE = Resources(1, 3, 2**32, 2**32)
SOURCE = Rows("abc", "data/a.zarr")
ARRAYS = {
    "small": np.arange(6.0).reshape(2, 3),
    "large": np.arange(2**18, dtype=np.float64),
    "number": np.array(3),
    "empty": np.empty((0, 2), np.int8),
}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def entries(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


# ---------------------------------------------------------------- entries


def test_arrays_come_back(tmp_path):
    with cache(tmp_path / "deep/cache"), record_hits() as taken, record_hits() as inside:
        assert entry(SOURCE, "sums", {"a": 1}).load() is None
        assert not entry(SOURCE, "sums", {"a": 1}).is_filled
        entry(SOURCE, "sums", {"a": 1}).save(ARRAYS)
        assert entry(SOURCE, "sums", {"a": 1}).is_filled
        assert taken == []
        found = entry(SOURCE, "sums", {"a": 1}).load()
        assert taken == inside == ["sums"]
    assert {name: (a.dtype, a.shape, a.tolist()) for name, a in found.items()} == {
        name: (a.dtype, a.shape, a.tolist()) for name, a in ARRAYS.items()
    }
    (folder,) = entries(tmp_path / "deep/cache")
    assert names(tmp_path / "deep/cache" / folder) == sorted(["entry.json", *(f"{n}.npy" for n in ARRAYS)])
    assert (tmp_path / "deep/cache/CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def test_threads_have_caches_of_their_own(tmp_path):
    meet = threading.Barrier(2, timeout=60)

    def work(number):
        with cache(tmp_path / str(number)), record_hits() as taken:
            meet.wait()
            entry(SOURCE, "sums", {}).save({"x": np.full(3, number)})
            found = entry(SOURCE, "sums", {}).load()["x"].tolist()
            meet.wait()
        assert not is_on(SOURCE)
        return found, taken

    with cache(tmp_path / "outside"), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [([0] * 3, ["sums"]), ([1] * 3, ["sums"])]
    assert not (tmp_path / "outside").exists()


def test_what_is_read_can_be_written_to_and_the_files_stay(tmp_path):
    with cache(tmp_path):
        entry(SOURCE, "sums", {}).save(ARRAYS)
    for _ in range(2):
        with cache(tmp_path):
            found = entry(SOURCE, "sums", {}).load()
        assert found["large"][5] == 5.0
        found["large"] *= 2.0
        found["small"][0] = -1.0


@pytest.mark.parametrize(
    ("kind", "digest", "parameters", "code"),
    [
        ("other", "abc", {"a": np.zeros(2)}, "now"),
        ("sums", "abd", {"a": np.zeros(2)}, "now"),
        ("sums", "abc", {"a": np.ones(2)}, "now"),
        ("sums", "abc", {"a": np.zeros(2)}, "later"),
    ],
)
def test_another_kind_store_parameter_or_code_is_another_entry(tmp_path, monkeypatch, kind, digest, parameters, code):
    monkeypatch.setattr(caching, "code_digest", lambda: "now")
    with cache(tmp_path):
        entry(SOURCE, "sums", {"a": np.zeros(2)}).save({"x": np.ones(1)})
        assert entry(Rows("abc", "moved"), "sums", {"a": np.zeros(2)}).load() is not None
        monkeypatch.setattr(caching, "code_digest", lambda: code)
        assert entry(Rows(digest, "b"), kind, parameters).load() is None


def replaced_by(make):
    def damage(file):
        file.unlink()
        make(file)

    return damage


def changed_to(change):
    return lambda file: file.write_bytes(change(file.read_bytes()))


DAMAGE = {
    "one bit": changed_to(lambda content: content[:-3] + bytes([content[-3] ^ 64]) + content[-2:]),
    "an end is missing": changed_to(lambda content: content[:-2]),
    "more": changed_to(lambda content: content + b"}"),
    "empty": changed_to(lambda content: b""),
    "a bracket": changed_to(lambda content: content.replace(b"}", b"{")),
    "brackets": changed_to(lambda content: content.replace(b"{'de", b"((((")),
    "a digit": changed_to(lambda content: content.replace(b'"format": 1', b'"format": 2')),
    "a pipe": replaced_by(os.mkfifo),
    "a link": replaced_by(lambda file: file.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *(("small.npy", damage) for damage in DAMAGE if damage != "a digit"),
        *(("entry.json", damage) for damage in ("one bit", "more", "empty", "a digit")),
        *((file, "one bit") for file in ("large.npy", "number.npy")),
    ],
)
def test_damage_is_found_told_and_healed(tmp_path, caplog, file, damage):
    """Also where only a plan asks whether the entry is there, unless that takes the digests of arrays."""
    with cache(tmp_path):
        entry(SOURCE, "sums", {}).save(ARRAYS)
        (path,) = tmp_path.glob(f"sums-*/{file}")
        DAMAGE[damage](path)
        assert entry(SOURCE, "sums", {}).is_filled == (damage == "one bit" and file != "entry.json")
        with caplog.at_level(logging.WARNING, "mlfs_dask"):
            assert entry(SOURCE, "sums", {}).load() is None
        assert "is damaged and is computed again" in caplog.text
        entry(SOURCE, "sums", {}).save(ARRAYS)
        (path,) = tmp_path.glob(f"sums-*/{file}")
        path.unlink()  # somebody else removes the entry
        caplog.clear()
        assert entry(SOURCE, "sums", {}).load() is None
        assert caplog.text == ""
        entry(SOURCE, "sums", {}).save(ARRAYS)
        assert entry(SOURCE, "sums", {}).load()["small"].tolist() == ARRAYS["small"].tolist()


def test_no_pickle_is_written_or_read(tmp_path):
    with cache(tmp_path), pytest.raises(ValueError, match="allow_pickle"):
        entry(SOURCE, "sums", {}).save({"x": np.array([{}], dtype=object)})
    assert entries(tmp_path) == []


# ---------------------------------------------------------------- bounds and neighbours


def test_what_was_not_used_for_longest_leaves_first(tmp_path):
    big = {"x": np.zeros(1000)}
    with cache(tmp_path, size=30_000):
        for a in range(3):
            entry(SOURCE, "sums", {"a": a}).save(big)
            for record in tmp_path.glob("*/entry.json"):
                if record.stat().st_mtime > 100:
                    os.utime(record, (a, a))  # used long ago, one after the other
        assert entry(SOURCE, "sums", {"a": 0}).load() is not None  # used now: the youngest
        entry(SOURCE, "sums", {"a": 3}).save(big)
        left = [a for a in range(4) if entry(SOURCE, "sums", {"a": a}).is_filled]
        assert left == [0, 2, 3]
        entry(SOURCE, "sums", {"a": 4}).save({"x": np.zeros(10_000)})  # larger than the cache
        assert not entry(SOURCE, "sums", {"a": 4}).is_filled
        assert len(entries(tmp_path)) == 3


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/data").write_bytes(b"x" * 50_000)
    with cache(tmp_path, size=10_000):
        entry(SOURCE, "sums", {"a": 0}).save({"x": np.zeros(1000)})
        entry(SOURCE, "sums", {"a": 1}).save({"x": np.zeros(1000)})
    assert (tmp_path / "mine/data").exists()
    assert len(entries(tmp_path)) == 2


WRITER = """
import sys, numpy as np
from types import SimpleNamespace
from mlfs_dask.engine.cache import cache, entry
source = SimpleNamespace(digest="abc", place="a")
with cache(sys.argv[1], size=200_000):
    print("ready", flush=True)
    while True:
        for a in range(6):
            place = entry(source, "sums", {"a": a})
            found = place.load()
            assert found is None or (found["x"] == a).all()
            place.save({"x": np.full(5000, a)})
"""


def test_writers_and_readers_at_the_same_time_are_harmless_and_a_kill_leaves_no_half_entry(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout.readline() == b"ready\n"
    with cache(tmp_path, size=200_000):
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            for a in range(6):
                found = entry(SOURCE, "sums", {"a": a}).load()
                assert found is None or (found["x"] == a).all()
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        _, told = writer.communicate()
        assert writer.returncode == -signal.SIGKILL, told.decode()
        assert told == b"", told.decode()
    for folder in entries(tmp_path):
        if not folder.startswith("."):
            json.loads((tmp_path / folder / "entry.json").read_bytes())


def test_a_place_that_cannot_be_written_costs_a_warning_alone(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with cache(tmp_path / "file/cache"):
        entry(SOURCE, "sums", {}).save({"x": np.ones(1)})
        assert entry(SOURCE, "sums", {}).load() is None
    assert "sums: not kept in" in caplog.text


def test_a_full_disk_is_called_one(small_disk, caplog):
    """NumPy tells how many numbers it has written, and not why no more."""
    place = small_disk("100k")
    with cache(place):
        entry(SOURCE, "sums", {}).save({"x": np.ones(50_000)})
    assert f"sums: not kept in {place}: the disk is full" in caplog.text
    assert [path.name for path in place.iterdir()] == ["CACHEDIR.TAG"]


# ---------------------------------------------------------------- places


def test_places(monkeypatch, tmp_path):
    assert str(cache_of("a/b.zarr/")) == "a/b.zarr.cache"
    assert str(cache_of("file:///a/b.zarr")) == "/a/b.zarr.cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_of("s3://bucket/b.zarr") == tmp_path / "mlfs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_of("s3://bucket/b.zarr") == Path.home() / ".cache/mlfs"


def test_nothing_is_kept_without_a_cache_a_digest_or_where_it_is_switched_off(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nameless = Rows(None, "a.zarr")
    placeless = Rows("abc", None)
    entry(SOURCE, "sums", {}).save({"x": np.ones(1)})
    with cache():
        for source in (nameless, placeless):
            entry(source, "sums", {}).save({"x": np.ones(1)})
        with cache(None):
            entry(SOURCE, "sums", {}).save({"x": np.ones(1)})
        assert names(tmp_path) == []
        entry(SOURCE, "sums", {}).save({"x": np.ones(1)})
    assert names(tmp_path / "data") == ["a.zarr.cache"]


def test_places_and_sizes_that_cannot_be_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for place, size, text in (
        ("s3://bucket/cache", 1, "must be a local folder"),
        (tmp_path / "file", 1, "is a file"),
        (None, 0, "must be positive; got 0"),
    ):
        with pytest.raises(UsageError, match=text), cache(place, size=size):
            pass


# ---------------------------------------------------------------- selections


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of one set of rows, dense and sparse, in several partitions, all labels known; and some unknown."""
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(0)
    Y = (rng.random((90, 4)) < 0.4).astype(np.int8)
    X = np.round(rng.normal(size=(90, 8)), 2)
    X[:, :4] += Y
    unknown = np.where(rng.random(Y.shape) < 0.2, -1, Y).astype(np.int8)
    for name, labels in (("known", Y), ("unknown", unknown)):
        reader = make_reader(X, labels)
        convert_reader(lambda reader=reader: reader, folder / f"{name}.zarr", workers=1)
    return folder


OTHERS = {
    "access-mfs": {"theta": 3.0},
    "auto": {},
    "anova-f": {},
    "br-cc": {},
    "br-or": {"smoothing": 1.0},
    "chi2": {},
    "ela-chi": {},
    "elc": {"lambda_": 0.5},
    "enm": {},
    "fimf": {},
    "fisher": {},
    "gmm": {},
    "grro": {"alpha": 2.0},
    "label-entropy": {"n_promising_labels": 0.5},
    "laplacian": {"graph": "anchors"},
    "mddm": {"n_components": 2},
    "mfs-f": {},
    "mfsir": {"alpha": 2.0},
    "mico": {"alpha": 2.0},
    "qpmlfs": {"alpha": 0.5},
    "lassonet": {"n_hidden": 5, "max_iter": 20, "hierarchy": 3.0},
    "relieff": {"n_neighbors": 3, "min_rows": 1},
    "smfs": {"beta": 3.0},
    "spfs": {},
}
FIRST = {
    "lassonet": {"n_hidden": 5, "max_iter": 20},
    "label-entropy": {"n_promising_labels": 0.5},
    "laplacian": {"graph": "anchors"},
    "relieff": {"min_rows": 1},
}

#: Methods that read relevances, and pairs of features, which are few.
GREEDY = ("ami", "d2f", "jmi", "mdmr", "mrmr", "pmu", "scls")


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("method", METHODS)
def test_a_second_selection_reads_less_and_gives_the_same_bits(method, stores, tmp_path):
    selector = get_estimator(method)
    common = {"max_iter": 4} if selector.plain.keeps_checkpoints else {}
    common |= {"graph": "anchors"} if common and hasattr(selector.plain, "graph") else {}
    dataset = mlfs.open_dataset(stores / "unknown.zarr")
    expected = selector(5, **OTHERS.get(method, {}), **common).fit(dataset)
    unplanned = selector(5, **OTHERS.get(method, {}), **common).plan(dataset.rows, current_resources())
    with cache(tmp_path):
        first = selector(2, **FIRST.get(method, {}), **common).fit(dataset)
        planned = selector(5, **OTHERS.get(method, {}), **common).plan(dataset.rows, current_resources())
        second = selector(5, **OTHERS.get(method, {}), **common).fit(dataset)
    assert "from_cache" not in first.report_.extra
    assert np.array_equal(second.scores_, expected.scores_)
    assert np.array_equal(second.support_, expected.support_)
    cached = 1 + (method in GREEDY)
    assert second.report_.passes == expected.report_.passes - cached
    assert planned.passes == unplanned.passes - cached
    if selector.plain.keeps_checkpoints:
        assert {"labels", "rows"} & {*second.report_.extra["from_cache"]} or method in ("csfs", "rfs", "smlfs")
        assert planned.passes >= second.report_.passes > 0
    else:
        assert second.report_.extra["from_cache"]
        # Readings after the first are of anchors.
        again = int(selector.plain.passes.split()[-1]) - 1 if hasattr(selector.plain, "n_anchors") else 0
        assert expected.report_.passes == cached + again
        assert (second.report_.passes, planned.passes) == (again, again)
        if not again:
            assert (second.report_.tasks, second.report_.bytes_read, planned.tasks, planned.bytes_read) == (0,) * 4


def test_scores_from_the_same_counts_share_them(stores, tmp_path):
    dataset = mlfs.open_dataset(stores / "known.zarr")

    def passes(selector):
        alone = type(selector)(**selector.get_params()).fit(dataset)
        with cache(tmp_path):
            planned = selector.plan(dataset.rows, current_resources()).passes
            found = selector.fit(dataset)
        assert np.array_equal(alone.scores_, found.scores_)
        assert planned == found.report_.passes
        return found.report_.passes

    assert passes(mlfs.LabelEntropy(3, n_promising_labels=1)) == 1
    assert passes(mlfs.LabelEntropy(3, n_promising_labels=3)) == 1  # more than is there
    assert passes(mlfs.LabelEntropy(3, n_promising_labels=2)) == 1
    assert passes(mlfs.ENM(3)) == 1
    assert passes(mlfs.GMM(3)) == 0
    assert passes(mlfs.LabelEntropy(3, n_promising_labels=1.0)) == 0
    assert passes(mlfs.LabelEntropy(3, n_promising_labels=0)) == 1
    assert passes(mlfs.GMM(3, bins=4)) == 1


def test_what_several_results_are_made_of_is_loaded_once(tmp_path, monkeypatch):
    loaded = []
    load = caching.CacheEntry.load
    monkeypatch.setattr(caching.CacheEntry, "load", lambda self: loaded.append(self) or load(self))
    with cache(tmp_path):
        first, _ = run_reading(SOURCE, [Moments(1), Moments(1)], HERE)
        loaded.clear()
        again, record = run_reading(SOURCE, [Moments(1), Moments(1)], HERE)
    assert record.tasks == 0
    assert len(loaded) == 1
    assert [moments.mean.tolist() for moments in again] == [moments.mean.tolist() for moments in first]


def test_of_counts_too_large_to_keep_the_scores_are_kept(stores, tmp_path, monkeypatch):

    monkeypatch.setattr(gates, "FINALIZE_BYTES", 0)
    dataset = mlfs.open_dataset(stores / "known.zarr")
    with cache(tmp_path):
        found = [mlfs.ENM(k).fit(dataset) for k in (2, 3)] + [mlfs.GMM(2).fit(dataset)]
    assert [selector.report_.passes for selector in found] == [1, 0, 1]
    assert np.array_equal(found[1].scores_, mlfs.ENM(2).fit(dataset).scores_)


def test_quantile_edges_cost_no_second_sample(stores, tmp_path):
    dataset = mlfs.open_dataset(stores / "known.zarr")
    with cache(tmp_path):
        # More codes than the quantiles tell that the store keeps.
        first = mlfs.ENM(2, binning="quantile", bins=9).fit(dataset)
        second = mlfs.GMM(2, binning="quantile", bins=9).fit(dataset)
        third = mlfs.GMM(2, binning="quantile", bins=10).fit(dataset)
    assert [s.report_.passes for s in (first, second, third)] == [2, 0, 1]


def test_a_gram_matrix_is_read_for_once(stores, tmp_path):
    rows = mlfs.open_dataset(stores / "known.zarr").rows
    d, q = rows.profile.d, rows.profile.q
    weighted = WeightedGram(Scaling(np.zeros(d), np.ones(d)), np.ones(q))
    with cache(tmp_path), record_hits() as taken:
        readings = [run_reading(rows, [each], current_resources()) for each in (Gram(d), Gram(d), weighted, weighted)]
    # Weights of rows change from iteration to iteration.
    assert [count_readings([record]) for _, record in readings] == [1, 0, 1, 1]
    assert taken == ["gram"]
    assert np.array_equal(readings[0][0], readings[1][0])


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(("method", "anchors"), [("mfsir", Anchors), ("smfs", MassAnchors)])
def test_weights_of_anchors_are_computed_once(method, anchors, stores, tmp_path, monkeypatch):
    dataset, computed, weigh = mlfs.open_dataset(stores / "unknown.zarr"), [], anchors.weigh
    if method == "mfsir":
        dataset = mlfs.open_dataset(stores / "known.zarr")
    monkeypatch.setattr(anchors, "weigh", lambda self, X: computed.append(X.shape[0]) or weigh(self, X))

    def fit(**parameters):
        computed.clear()
        scores = get_estimator(method)(2, graph="anchors", max_iter=3, **parameters).fit(dataset).scores_
        return scores, sum(computed) // dataset.X.shape[0]

    (expected, passes), (of_others, _) = fit(), fit(random_state=1)
    assert passes > 3
    with cache(tmp_path):
        weights, once = fit()
        assert np.array_equal(weights, expected)
        assert once <= passes - 3
        # smfs weighs its sample whenever it starts.
        again, none = fit(alpha=2.0)
        assert none <= once - 1
        files = [path for path in tmp_path.glob("row-weights-*/*") if path.suffix != ".json"]
        for file in files:
            content = bytearray(file.read_bytes())
            content[3] ^= 1
            file.write_bytes(content)
        healed, of_damaged = fit(alpha=2.0)
        assert np.array_equal(healed, again)
        assert of_damaged == once
        assert fit(alpha=2.0)[1] == none
        assert np.array_equal(fit(random_state=1)[0], of_others)  # of other anchors
    with cache(tmp_path / "small", size=2000):  # 36 or 60 bytes a row are more
        assert fit()[1] == passes
    assert not [*(tmp_path / "small").glob("row-weights-*")]


def test_chosen_rows_have_statistics_of_their_own(stores, tmp_path):
    rows = mlfs.open_dataset(stores / "known.zarr").rows
    Y = as_labels(np.concatenate([block.Y.toarray() for block in rows.stream(0, len(rows.row_offsets) - 1)]))

    def passes(chosen, labels):
        chosen = np.asarray(chosen)
        subset = RowView(rows, chosen, Y=labels[chosen])
        return mlfs.ELC(3).fit(subset).report_.passes

    with cache(tmp_path):
        assert mlfs.ELC(3).fit(rows).report_.passes == 1
        assert [passes(range(40), Y), passes(range(40), Y), passes(range(41), Y)] == [1, 0, 1]
        assert [passes(range(40), as_labels(1 - Y.toarray())), passes(range(40), Y)] == [1, 0]


# ---------------------------------------------------------------- data that grows


def grown_store(path, X, Y, cuts, *, sparse):
    """A store of the first rows to which the others are appended, in several partitions each."""
    options = Options(storage="sparse" if sparse else "dense", partition_bytes=700)
    for start, stop in itertools.pairwise((0, *cuts)):
        reader = make_reader(X[start:stop], Y[start:stop])
        extension = StoreExtension(mlfs.open_dataset(path)) if start else None
        open_reader = functools.partial(lambda reader: reader, reader)
        convert_reader(open_reader, path, workers=1, options=options, extension=extension)
    return path


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def growing(request, tmp_path):
    """(X, Y, store): 0/1 features, so that codes stay as rows are appended."""
    rng = np.random.default_rng(3)
    Y = (rng.random((120, 4)) < 0.4).astype(np.int8)
    X = (rng.random((120, 9)) < 0.3).astype(float)
    X[:, :4] = np.where(rng.random((120, 4)) < 0.8, Y, X[:, :4])
    X[:6], Y[:6] = np.arange(6)[:, None] % 2, np.arange(6)[:, None] % 2
    return X, Y, tmp_path, request.param


@pytest.mark.parametrize(
    "method", ["elc", "fisher", "enm", "gmm", "label-entropy", "ela-chi", "fimf", "mfsir", "access-mfs"]
)
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_after_an_append_only_what_is_new_is_read(method, growing, monkeypatch):
    X, Y, folder, sparse = growing
    starts, stream = [], StoreRows.stream

    def spied(self, first, last):
        for block in stream(self, first, last):
            starts.append(block.start)
            yield block

    monkeypatch.setattr(StoreRows, "stream", spied)
    selector = get_estimator(method)
    common = {"graph": "anchors", "max_iter": 2, "random_state": 0} if selector.plain.keeps_checkpoints else {}
    if selector.plain.keeps_checkpoints:  # equal distances of 0/1 rows would be told apart by last digits
        X = X * (1 + np.random.default_rng(1).random(X.shape))
    common |= {"n_promising_labels": 1.0} if method == "label-entropy" else {}  # which are promising would change
    with cache(folder / "cache"):
        for rows in (70, 100, 120):
            store = grown_store(
                folder / f"{rows}.zarr", X, Y, tuple(c for c in (70, 100, 120) if c <= rows), sparse=sparse
            )
            dataset = mlfs.open_dataset(store)
            planned = selector(3, **common).plan(dataset.rows, current_resources())
            starts.clear()
            grown = selector(3, **common).fit(dataset)
    read = min(starts)
    whole = mlfs.open_dataset(grown_store(folder / "whole.zarr", X, Y, (120,), sparse=sparse))
    expected = selector(3, **common).fit(whole)
    np.testing.assert_allclose(grown.scores_, expected.scores_, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(grown.support_, expected.support_)
    if method in ("enm", "gmm", "label-entropy", "fimf"):  # counts are whole numbers
        np.testing.assert_array_equal(grown.scores_, expected.scores_)
    if selector.plain.keeps_checkpoints:
        return  # the loop reads everything
    assert read == 100
    _, partitions = dataset.rows.earlier[-1]
    assert grown.report_.passes == planned.passes == 1
    assert grown.report_.bytes_read == planned.bytes_read == dataset.rows.tail(partitions).profile.read_bytes
    assert grown.report_.bytes_read < expected.report_.bytes_read / 4
    assert grown.report_.extra["from_cache"]


REPLICATES = ["elc", "mfs-f", "enm", "ela-chi"]


@pytest.mark.parametrize("growing", [False], indirect=True, ids=["dense"])
@pytest.mark.parametrize("method", REPLICATES)
def test_replicates_are_read_for_once(method, growing):
    X, Y, folder, sparse = growing
    dataset = mlfs.open_dataset(grown_store(folder / "a.zarr", X, Y, (70, 120), sparse=sparse))

    def fit(**parameters):
        selector = get_estimator(method)("auto", **{"fdr": 0.3, "resamples": 3, "random_state": 0, **parameters})
        planned = selector.plan(dataset.rows, current_resources()).passes
        fitted = selector.fit(dataset)
        assert fitted.report_.passes == planned
        return fitted

    with cache(folder / "cache"):
        first, again, *others = (fit(**each) for each in ({}, {}, {"resamples": 4}, {"random_state": 1}, {"fdr": 0.4}))
    assert (first.report_.passes, again.report_.passes) == (2, 0)
    assert all(other.report_.passes for other in others)
    for name in ("scores_", "q_values_", "rank_intervals_", "selection_frequency_", "support_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))


@pytest.mark.parametrize("method", REPLICATES)
def test_after_an_append_resamples_read_only_what_is_new(method, growing):
    X, Y, folder, sparse = growing
    selector = get_estimator(method)(3, resamples=4, random_state=0)
    store = grown_store(folder / "a.zarr", X, Y, (100,), sparse=sparse)
    with cache(folder / "cache"):
        selector.fit(mlfs.open_dataset(store))
        dataset = mlfs.open_dataset(_append(store, X[100:], Y[100:]))
        grown = selector.fit(dataset)
    assert grown.report_.bytes_read == dataset.rows.tail(dataset.rows.earlier[-1][1]).profile.read_bytes
    intervals, frequency, read = grown.rank_intervals_, grown.selection_frequency_, grown.report_.bytes_read
    whole = selector.fit(dataset)
    assert read < whole.report_.bytes_read / 4
    np.testing.assert_array_equal(intervals, whole.rank_intervals_)
    np.testing.assert_array_equal(frequency, whole.selection_frequency_)


@pytest.mark.parametrize("growing", [False], indirect=True, ids=["dense"])
def test_of_states_of_replicates_too_large_to_keep_the_results_are_kept(growing, monkeypatch):
    monkeypatch.setattr(Resampled, "keeps", "result")
    X, Y, folder, sparse = growing
    selector = mlfs.ENM(3, resamples=4)
    store = grown_store(folder / "a.zarr", X, Y, (100,), sparse=sparse)
    with cache(folder / "cache"):
        read = [selector.fit(mlfs.open_dataset(store)).report_.bytes_read for _ in range(2)]
        _append(store, X[100:], Y[100:])
        read.append(selector.fit(mlfs.open_dataset(store)).report_.bytes_read)
    assert read[1] == 0
    assert read[2] > read[0]


@pytest.mark.parametrize("growing", [False], indirect=True, ids=["dense"])
def test_a_damaged_state_has_everything_read(growing, caplog):
    X, Y, folder, sparse = growing
    store = grown_store(folder / "a.zarr", X, Y, (70,), sparse=sparse)
    with cache(folder / "cache"):
        mlfs.ELC(3).fit(mlfs.open_dataset(store))
        file = next((folder / "cache").glob("products-*/products.npy"))
        file.write_bytes(file.read_bytes()[:-1] + b"\x01")
        found = mlfs.ELC(3).fit(mlfs.open_dataset(_append(store, X[70:], Y[70:])))
    assert "products.npy does not have its digest" in caplog.text
    expected = mlfs.ELC(3).fit(mlfs.open_dataset(store))
    np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-12)
    assert found.report_.bytes_read == expected.report_.bytes_read


@pytest.mark.parametrize("growing", [False], indirect=True, ids=["dense"])
@pytest.mark.cluster
def test_on_a_cluster_states_are_continued_too(growing, two_workers, monkeypatch):
    from mlfs_dask.cluster.connect import connect

    X, Y, folder, sparse = growing
    with connect(scheduler_file=two_workers, min_workers=2):
        for kept in (True, False):
            if not kept:
                monkeypatch.setattr(gates, "FINALIZE_BYTES", 0)
            store = grown_store(folder / f"{kept}.zarr", X, Y, (70,), sparse=sparse)
            with cache(folder / f"{kept}.cache"):
                mlfs.ENM(3).fit(mlfs.open_dataset(store))
                dataset = mlfs.open_dataset(_append(store, X[70:], Y[70:]))
                found = mlfs.ENM(3).fit(dataset)
            with monkeypatch.context() as patch:
                patch.setattr("mlfs_dask.runtime.default_client", lambda: None)
                expected = mlfs.ENM(3).fit(dataset)
            np.testing.assert_array_equal(found.scores_, expected.scores_)
            assert (found.report_.bytes_read < expected.report_.bytes_read) == kept


def _append(store, X, Y):
    reader = make_reader(X, Y)
    extension = StoreExtension(mlfs.open_dataset(store))
    options = Options(partition_bytes=700)
    convert_reader(lambda: reader, store, workers=1, options=options, extension=extension)
    return store
