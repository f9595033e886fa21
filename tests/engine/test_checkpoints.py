"""States of loops on disk: whole or not at all, for the same job alone; every method goes on to the same bits."""

from __future__ import annotations

import csv
import json
import logging
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mlfs_dask
from mlfs_dask import runtime
from mlfs_dask.engine import cache as caching
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.checkpoints import Folder, checkpoint_place, keep_checkpoints
from mlfs_dask.errors import DoesNotFitError, StoreNotAllowedError
from mlfs_dask.files.publish import remove_leftovers
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask_cli.main import mlfs
from tests.storage.memory_reader import make_reader

JOB = {"method": "m", "params": {"a": 1}, "digest": "d"}

pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge")


def problem(n=80, d=9, q=3):
    rng = np.random.default_rng(0)
    Y = (rng.random((n, q)) < 0.4).astype(np.int8)
    X = rng.normal(size=(n, d))
    X[:, :q] += Y
    return X, Y


def hidden(Y):
    rng = np.random.default_rng(1)
    Y = np.where(rng.random(Y.shape) < 0.3, -1, Y)
    Y[rng.random(len(Y)) < 0.4] = -1
    return Y.astype(np.int8)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store with all labels known, and one with some unknown."""
    folder = tmp_path_factory.mktemp("stores")
    X, Y = problem()
    for name, labels in (("known", Y), ("unknown", hidden(Y))):
        reader = make_reader(X, labels)
        convert_reader(lambda reader=reader: reader, folder / f"{name}.zarr", workers=1)
    return folder


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize("place", ["{}/deep/states", "file://{}/states/", "memory://states/a"])
def test_a_state_comes_back(tmp_path, place):
    folder = Folder(place.format(tmp_path))
    assert folder.is_remote == place.startswith("memory")
    assert not folder.holds_state
    arrays = {"x": np.arange(6.0).reshape(2, 3), "file": np.array(3), "empty": np.empty((0, 2), np.int8)}
    facts = {"list": [1, 2.5], "third": 1 / 3, "scalar": np.float64(0.1), "yes": np.bool_(True), "none": None}
    assert folder.read("state.npz", "key") is None
    folder.write("state.npz", "key", {"x": np.zeros(3)}, {})
    folder.write("state.npz", "key", arrays, facts)
    assert folder.holds_state
    assert folder.is_remote or list(tmp_path.rglob("state.npz"))
    state = folder.read("state.npz", "key")
    assert state.facts == {"list": [1, 2.5], "third": 1 / 3, "scalar": 0.1, "yes": True, "none": None}
    assert {name: array.tolist() for name, array in state.arrays.items()} == {n: a.tolist() for n, a in arrays.items()}
    assert state.arrays["empty"].dtype == np.int8
    assert folder.read("state.npz", "other key") is None
    folder.remove()
    assert folder.read("state.npz", "key") is None
    folder.remove()


def test_no_pickle_is_written_or_read(tmp_path):
    folder = Folder(str(tmp_path))
    with pytest.raises(ValueError, match="allow_pickle"):
        folder.write("state.npz", "key", {"x": np.array([{}], dtype=object)}, {})
    np.savez(tmp_path / "state.npz", x=np.array([{}], dtype=object))
    assert folder.read("state.npz", "key") is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.npz"]


def test_no_flipped_bit_and_no_cut_gives_another_state(tmp_path, caplog):
    """Names, places and lengths in the archive's own directory are no part of any check sum of its members."""
    folder = Folder(str(tmp_path))
    folder.write("state.npz", "key", {"x": np.arange(5.0), "y": np.ones((3, 4), np.int8)}, {"a": [1, 2]})
    whole = (tmp_path / "state.npz").read_bytes()
    rng = np.random.default_rng(0)
    places = range(len(whole) - 330, len(whole))  # all of the directory, and some of the rest
    for place in [*places, *rng.integers(len(whole) - 330, size=60)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(8)
        (tmp_path / "state.npz").write_bytes(bytes(flipped))
        state = folder.read("state.npz", "key")
        if state is not None:
            assert sorted(state.arrays) == ["x", "y"]
            assert state.arrays["x"].tolist() == [0, 1, 2, 3, 4]
            assert state.arrays["y"].tolist() == [[1] * 4] * 3
            assert state.facts == {"a": [1, 2]}
    for length in [0, 10, *rng.integers(len(whole), size=40)]:
        caplog.clear()
        (tmp_path / "state.npz").write_bytes(whole[:length])
        assert folder.read("state.npz", "key") is None
        assert "is damaged and ignored" in caplog.text
    # A type that is none, and brackets that nothing closes.
    for header in (b"{'descr': ',f8', 'fortran_order': False, 'shape': (1,), }", b"(((("):
        with zipfile.ZipFile(tmp_path / "state.npz", "w") as archive:
            archive.writestr("facts.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8))
        assert folder.read("state.npz", "key") is None
    # Of a length that is wrong NumPy would read the first values, and verify no check sum.
    folder.write("state.npz", "key", {"x": np.arange(200_000.0)}, {})
    whole = (tmp_path / "state.npz").read_bytes()
    assert whole.count(b"(200000,), }") == 1
    (tmp_path / "state.npz").write_bytes(whole.replace(b"(200000,), }", b"(20000 ,), }"))
    assert folder.read("state.npz", "key") is None
    assert "is damaged and ignored: wrong check sum of array/x.npy" in caplog.text


def test_a_state_that_cannot_be_read_now_is_not_begun_over(tmp_path, monkeypatch):
    folder = Folder(str(tmp_path))
    folder.write("state.npz", "key", {"x": np.array(1)}, {})

    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patch:
        patch.setattr("mlfs_dask.files.object_store.open_file", refuse)
        with pytest.raises(StoreNotAllowedError, match=f"no permission to read {tmp_path}/state.npz") as refusal:
            folder.read("state.npz", "key")
    assert "without --resume" in str(refusal.value)
    assert folder.read("state.npz", "key").arrays["x"] == 1


@pytest.mark.parametrize("place", ["{}", "memory://states/torn"])
def test_a_write_that_breaks_off_leaves_the_state_before(tmp_path, monkeypatch, caplog, place):
    """An object that is closed is complete for its store, whatever had been written into it by then."""
    folder = Folder(place.format(tmp_path))
    folder.write("state.npz", "key", {"x": np.array(1)}, {})

    def fail(stream, array, allow_pickle):
        stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.np.lib.format, "write_array", fail)
        with pytest.raises((OSError, DoesNotFitError), match="No space"):
            folder.write("state.npz", "key", {"x": np.array(2)}, {})
    assert folder.read("state.npz", "key").arrays["x"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ([] if folder.is_remote else ["state.npz"])


class ClientError(Exception):
    """As clients of object stores raise, which know no OSError."""


@pytest.mark.parametrize(
    ("place", "writer", "error", "told"),
    [
        (
            "{}",
            "mlfs_dask.engine.checkpoints._write_npz",
            OSError(28, "No space left on device"),
            "it cannot be written: No space left",
        ),
        (
            "memory://states/full",
            "fsspec.implementations.memory.MemoryFileSystem.pipe_file",
            ClientError("SlowDown"),
            "it cannot be written: SlowDown",
        ),
    ],
)
def test_a_full_disk_does_not_end_the_job(tmp_path, monkeypatch, caplog, place, writer, error, told):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(writer, fail)
    with keep_checkpoints(Folder(place.format(tmp_path)), every=0), checkpoints.job(**JOB) as checkpoint:
        checkpoint.save({"x": np.array(2)}, {})
    assert f"no checkpoint could be written to {place.format(tmp_path)}" in caplog.text
    assert told in caplog.text


def test_saving_holds_little_beside_the_state(tmp_path):
    state = np.random.default_rng(0).random((2_000_000, 4))
    folder = Folder(str(tmp_path))
    folder.write("state.npz", "key", {"x": state[:10]}, {})
    tracemalloc.start()
    try:
        folder.write("state.npz", "key", {"x": state}, {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * 2**20 < state.nbytes


def test_removing_leaves_what_is_not_ours(tmp_path):
    place = tmp_path / "states"
    folder = Folder(str(place))
    folder.write("state.npz", "key", {}, {})
    (place / "notes.txt").write_text("mine")
    (place / ".state.npz.12345678.part").mkdir()
    folder.remove()
    assert [p.name for p in place.iterdir()] == ["notes.txt"]


# ---------------------------------------------------------------- jobs


def test_without_anybody_asking_nothing_is_kept(tmp_path):
    with checkpoints.job(**JOB) as checkpoint:
        assert checkpoint.folder is None
        assert checkpoints.current() is checkpoint
        checkpoint.save({}, {})
        assert checkpoint.load() is None
        assert not checkpoint.due()
    with keep_checkpoints(Folder(str(tmp_path))), checkpoints.job(**JOB | {"digest": None}) as checkpoint:
        assert checkpoint.folder is None
    assert checkpoints.current().folder is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "other", [{"method": "n"}, {"params": {"a": 2}}, {"params": {"a": 1, "b": None}}, {"digest": "e"}, {}]
)
def test_only_the_same_job_takes_a_state_up(tmp_path, other, caplog, monkeypatch):
    folder = Folder(str(tmp_path))
    with keep_checkpoints(folder, every=0, resume=True):
        with checkpoints.job(**JOB) as checkpoint:
            assert checkpoint.due()
            checkpoint.save({"x": np.array(7)}, {"step": 3})
        with checkpoints.job(**JOB | other) as checkpoint, caplog.at_level(logging.WARNING):
            state = checkpoint.load()
        if other:
            assert state is None
            assert "belongs to another method, data, parameters or version" in caplog.text
        else:
            assert state.facts == {"step": 3}
            monkeypatch.setattr(checkpoints, "code_digest", lambda: "changed")
            with checkpoints.job(**JOB) as checkpoint:
                assert checkpoint.load() is None
    with keep_checkpoints(folder, every=0, resume=False), checkpoints.job(**JOB) as checkpoint:
        assert checkpoint.load() is None


@pytest.mark.parametrize(("every", "rest"), [(60, 300), (600, 600), (0, 0)])
def test_states_are_left_as_time_passes_and_large_ones_less_often(tmp_path, monkeypatch, every, rest):
    """At most a tenth of the time goes into them, unless every iteration is asked for."""
    now = [100.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])

    def slow(*args, **kwargs):
        now[0] += 30

    monkeypatch.setattr(Folder, "write", slow)
    with keep_checkpoints(Folder(str(tmp_path)), every=every), checkpoints.job(**JOB) as checkpoint:
        assert checkpoint.due() == (every == 0)
        now[0] += every + 1
        assert checkpoint.due()
        checkpoint.save({}, {})
        now[0] += max(rest - 0.5, 0)
        assert checkpoint.due() == (rest == 0)
        now[0] += 1
        assert checkpoint.due()


# ---------------------------------------------------------------- the methods

FORMS = ["anchors", "exact"]

SMALL = {
    "smfs": {"n_neighbors": 5, "n_trees": 10, "max_samples": 32, "tol": 0.0, "max_iter": 7},
    "mfsir": {"n_neighbors": 4, "tol": 0.0, "max_iter": 7},
    "access-mfs": {"k_s": 3, "k_p": 1, "tol": 0.0, "max_iter": 7},
}
BOTH_FORMS = [
    ("smfs", "unknown", {}),
    ("smfs", "known", {"unknown_labels": "coded"}),
    ("smfs", "unknown", {"gram_cap": 0}),
    ("smfs", "known", {"gram_cap": 4, "unknown_labels": "coded"}),
    ("mfsir", "known", {}),
    ("mfsir", "known", {"gram_cap": 0}),
    ("access-mfs", "unknown", {}),
    ("access-mfs", "unknown", {"gram_cap": 0}),
    ("access-mfs", "known", {"theta": 0.0, "mu": 0.0}),
]
#: Readings at most that a loop with anchors makes again when it resumes: those of its start, among whose sums are the
#: moments that predict others, and the one it was in.
REPEATED = {"smfs": 3, "mfsir": 1, "access-mfs": 1}
VARIANTS = [
    *((method, store, options | {"graph": graph}) for method, store, options in BOTH_FORMS for graph in FORMS),
    ("mfsir", "known", {"graph": "exact", "step": "fixed", "random_state": 1}),
]


def test_every_method_with_a_loop_over_data_keeps_checkpoints():
    assert sorted(name for name in METHODS if get_estimator(name).plain.keeps_checkpoints) == sorted(
        [*SMALL, "cmfs", "csfs", "fscla", "glfs", "mlmlfs", "rfs", "scfs", "sfam", "sfs-bll", "smlfs", "uafs-bh"]
    )


def stop_at(number):
    def sink(event):
        if event["kind"] == "step" and event["number"] == number:
            raise KeyboardInterrupt

    return sink


@pytest.mark.parametrize(("method", "store", "options"), VARIANTS)
def test_an_interrupted_job_goes_on_to_the_same_bits(tmp_path, stores, method, store, options):
    stop = 7 if options.get("gram_cap") else 2
    dataset = mlfs_dask.open_dataset(stores / f"{store}.zarr")
    options = SMALL[method] | options
    with runtime.process_limits(threads=1):
        expected = get_estimator(method)(3, **options).fit(dataset)
    with runtime.process_limits(threads=1), caching.cache(tmp_path / "cache"):
        folder = Folder(str(tmp_path / "states"))
        with keep_checkpoints(folder, every=0), runtime.progress_to(stop_at(stop)), pytest.raises(KeyboardInterrupt):
            get_estimator(method)(3, **options).fit(dataset)
        with np.load(tmp_path / "states/state.npz") as state:
            shapes = [state[name].shape for name in state.files if name.startswith("array/")]
        assert (options["graph"] == "exact") == any(len(problem()[0]) in shape for shape in shapes)
        events = []
        with keep_checkpoints(folder, every=0, resume=True), runtime.progress_to(events.append):
            found = get_estimator(method)(3, **options).fit(dataset)
    steps = [event["number"] for event in events if event["kind"] == "step"]
    assert steps[0] == stop  # the one that was not finished when it was left
    assert found.scores_.tolist() == expected.scores_.tolist()
    assert found.report_.objective == expected.report_.objective
    assert found.report_.iterations == expected.report_.iterations
    assert found.report_.converged == expected.report_.converged
    if expected.plain.label_threshold is not None:
        assert found.recover_labels(dataset).tolist() == expected.recover_labels(dataset).tolist()
    extra = {k: v for k, v in found.report_.extra.items() if not isinstance(v, float)}
    cached = extra.pop("from_cache", [])
    if options["graph"] == "exact":
        assert (expected.report_.passes, found.report_.passes, cached) == (1, 1, [])
    else:
        assert {"moments", "products"} & set(cached)
        assert "moments" not in {event.get("label") for event in events}
        # The record is of the whole, both processes together.
        assert 0 <= found.report_.passes - expected.report_.passes <= REPEATED[method]
    assert extra == {k: v for k, v in expected.report_.extra.items() if not isinstance(v, float)}


@pytest.mark.parametrize("graph", FORMS)
def test_another_k_goes_on_and_other_parameters_begin_anew(tmp_path, stores, graph):
    """Scores do not depend on how many features are kept."""
    dataset = mlfs_dask.open_dataset(stores / "unknown.zarr")
    folder, options = Folder(str(tmp_path / "states")), SMALL["smfs"] | {"graph": graph}
    for k, changed, first in ((5, {}, 5), (3, {"alpha": 0.5}, 1)):
        with keep_checkpoints(folder, every=0), runtime.progress_to(stop_at(5)), pytest.raises(KeyboardInterrupt):
            get_estimator("smfs")(3, **options).fit(dataset)
        events = []
        with keep_checkpoints(folder, every=0, resume=True), runtime.progress_to(events.append):
            found = get_estimator("smfs")(k, **options | changed).fit(dataset)
        assert next(e["number"] for e in events if e["kind"] == "step") == first
        assert found.support_.sum() == k
        assert found.scores_.tolist() == get_estimator("smfs")(k, **options | changed).fit(dataset).scores_.tolist()


def test_threads_keep_checkpoints_of_their_own(tmp_path):
    meet = threading.Barrier(2, timeout=60)

    def work(number):
        folder = Folder(str(tmp_path / str(number)))
        with keep_checkpoints(folder, every=0, resume=True), checkpoints.job(**JOB) as mine:
            meet.wait()
            assert checkpoints.current() is mine
            mine.save({"x": np.full(2, number)}, {})
            meet.wait()
            found = mine.load()
        assert checkpoints.current().folder is None
        return None if found is None else found.arrays["x"].tolist()

    with keep_checkpoints(Folder(str(tmp_path / "outside")), every=0), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [[0, 0], [1, 1]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


# ---------------------------------------------------------------- kills, by the command line


def command(*words):
    return [sys.executable, "-m", "mlfs_dask", *map(str, words)]


def scores(run):
    """Scores of a run, by feature."""
    with (run / "ranking.csv").open(newline="") as stream:
        by_feature = {int(row["feature_index"]): float(row["score"]) for row in csv.DictReader(stream)}
    return [score for _, score in sorted(by_feature.items())]


def undisturbed(store, **options):
    """Scores of a loop that nobody interrupts."""
    with runtime.process_limits(threads=1), caching.cache(None):
        return (
            get_estimator("smfs")(3, tol=0.0, n_trees=10, **options).fit(mlfs_dask.open_dataset(store)).scores_.tolist()
        )


def resume(words):
    """Give a command again, with --resume, in this process; what it says."""
    done = CliRunner().invoke(mlfs, [*map(str, words), "--resume"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stderr


def test_a_killed_client_goes_on_to_the_same_ranking(tmp_path, stores):
    words = ["select", "smfs", stores / "unknown.zarr", "-k", "3", "--in-process", "--quiet", "--checkpoint-every", "0"]
    words += ["--graph", "anchors", "--tol", "0", "--max-iter", "45", "--n-trees", "10"]
    states = Path(checkpoint_place(str(tmp_path / "run"))) / "state.npz"
    process = subprocess.Popen(command(*words, "-o", tmp_path / "run"))
    deadline = time.monotonic() + 60
    while not states.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert states.exists()
    assert not (tmp_path / "run").exists()
    resume([*words, "-o", tmp_path / "run"])
    assert scores(tmp_path / "run") == undisturbed(stores / "unknown.zarr", graph="anchors", max_iter=45)
    assert not states.parent.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("method", "max_iter"), [("smfs", 2), ("access-mfs", 100)])
def test_a_loop_that_has_ended_is_not_made_again_for_its_labels(tmp_path, stores, method, max_iter):
    """Its state is saved before labels are written, which takes a reading of all rows."""
    dataset = mlfs_dask.open_dataset(stores / "unknown.zarr")
    options = SMALL[method] | {"graph": "anchors", "max_iter": max_iter, "tol": 1e-3}
    folder = Folder(str(tmp_path / "states"))
    with keep_checkpoints(folder, every=3600, keep_end=True):
        ended = get_estimator(method)(3, **options).fit(dataset)
    assert ended.report_.converged == (max_iter == 100)
    events = []
    with runtime.progress_to(events.append), keep_checkpoints(folder, resume=True, keep_end=True):
        again = get_estimator(method)(3, **options).fit(dataset)
    assert "step" not in {event["kind"] for event in events}
    assert again.scores_.tolist() == ended.scores_.tolist()
    assert again.recover_labels(dataset).tolist() == ended.recover_labels(dataset).tolist()
    for name in ("iterations", "converged", "objective", "extra"):
        assert getattr(again.report_, name) == getattr(ended.report_, name)


def test_states_that_outlived_their_run_are_removed_or_told(tmp_path, stores):
    """A kill may come between the last file of a run and the end; and a state is not overwritten without a word."""
    words = ["select", "smfs", stores / "unknown.zarr", "-k", "3", "--in-process", "--n-trees", "10"]
    place = Path(checkpoint_place(str(tmp_path / "run")))
    for option, message in (((), "--resume continues from it"), (("--resume",), "complete already")):
        Folder(str(place)).write("state.npz", "of another job", {}, {})
        told = CliRunner().invoke(mlfs, list(map(str, [*words, "-o", tmp_path / "run", *option])))
        assert message in told.stderr
        assert not place.exists()


def test_a_command_that_is_killed_while_it_writes_labels(tmp_path, stores):
    """Its half-written folder goes with the next command, and its loop is not made again."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys, time\n"
        "from mlfs_dask.storage.labels_store import LabelsStore\n"
        "LabelsStore.write = lambda *arguments: time.sleep(60)\n"
        "from mlfs_dask_cli.main import main\n"
        "main()\n"
    )
    words = ["select", "smfs", stores / "unknown.zarr", "-k", "3", "--graph", "anchors", "--write-labels"]
    words += ["--n-trees", "10", "--max-iter", "4", "--in-process", "--progress", "json", "-o", tmp_path / "run"]
    process = subprocess.Popen([sys.executable, slow, *map(str, words)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while (
        not list(tmp_path.glob(".run.*.part/run/labels.zarr"))
        and time.monotonic() < deadline
        and process.poll() is None
    ):
        time.sleep(0.01)
    (left,) = tmp_path.glob(".run.*.part")
    remove_leftovers(tmp_path / "run")
    assert left.exists(), "its process lives"
    process.kill()
    process.wait()
    other = tmp_path / ".run.0badcafe"  # somebody else's
    other.mkdir()
    (other / "mine.txt").touch()
    os.utime(other, (0, 0))
    assert '"step"' not in resume(words)
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "run", "slow.py"]
    assert (tmp_path / "run" / "labels.zarr").is_dir()


ON_ITS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("graph", "closes"), [("exact", False), ("anchors", True)], ids=["SIGTERM", "terminal"])
def test_a_command_that_is_terminated_saves_its_state(tmp_path, stores, graph, closes):
    """As batch systems do at the end of a job's time; or its terminal closes. No state was due before that."""
    words = ["select", "smfs", stores / "unknown.zarr", "-k", "3", "--in-process", "--checkpoint-every", "3600"]
    words += ["--graph", graph, "--tol", "0", "--n-trees", "10", "--progress", "json", "-o", tmp_path / "run"]
    words = command(*words, "--max-iter", "1000000")
    parent, child = pty.openpty() if closes else os.pipe()
    streams = {"stdin": child, "stdout": child, "start_new_session": True} if closes else {}
    process = subprocess.Popen(
        [sys.executable, "-c", ON_ITS_TERMINAL, *words] if closes else words, stderr=child, **streams
    )
    os.close(child)
    with os.fdopen(parent) as shown:
        for line in shown:
            if '"step"' in line and json.loads(line)["number"] == 3:
                break
        if not closes:
            process.send_signal(signal.SIGTERM)
            said = shown.read()
            assert "ends with this iteration" in said
            assert "To go on where it stopped: mlfs select smfs" in said
    assert process.wait(60) == 130
    assert not (tmp_path / "run").exists()
    with np.load(Path(checkpoint_place(str(tmp_path / "run"))) / "state.npz") as state:
        done = len(json.loads(state["facts"].tobytes())["facts"]["trace"]["objective"])
    assert done >= 3
