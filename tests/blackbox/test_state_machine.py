"""A store's life, drawn at random, beside a plain dictionary of rows.

Rows are converted, appended, replaced and damaged, commands are killed and resumed; after each step a ranking is that
of the same rows as arrays, and a refusal has its exit code. `make nightly` draws more sequences.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import mlfs_dask as mlfs

ESTIMATORS = {
    "chi2": mlfs.Chi2(binning="equal-width"),
    "anova-f": mlfs.AnovaF(),
    "enm": mlfs.ENM(binning="equal-width"),
    "jmi": mlfs.JMI(binning="equal-width"),
}
D, Q = 4, 2
SEQUENCES = 1000 if os.environ.get("MLFS_NIGHTLY") else 30

seeds = st.integers(0, 2**16)
methods = st.sampled_from(sorted(ESTIMATORS))
storages = st.sampled_from(["dense", "sparse"])
sizes = st.sampled_from(["64B", "128B", "1MiB"])
calls = st.integers(1, 400)


def draw_rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A few rows of counts; each label has a positive and a negative one among the first two."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 10))
    X = rng.integers(0, 4, (n, D)).astype(np.float32)
    Y = rng.integers(0, 2, (n, Q)).astype(np.int8)
    Y[:2] = [[0, 1], [1, 0]]
    X[:2] = [[0, 1, 2, 3], [3, 2, 1, 0]]
    return X, Y


class Store(RuleBasedStateMachine):
    """A store, and the rows that have to be in it."""

    run: object = None
    start: object = None
    library: Path | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mlfs-machine-"))
        self.store = self.folder / "s.zarr"
        self.rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.damaged = False
        self.killed = 0
        self.n_files = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def mlfs(self, *words: object, code: int | None = 0):
        return type(self).run(*words, code=code)

    def arrays(self, rows=None) -> tuple[np.ndarray, np.ndarray]:
        X, Y = zip(*(self.rows if rows is None else rows).values(), strict=True)
        return np.concatenate(X), np.concatenate(Y)

    def source(self, seed: int) -> Path:
        X, Y = draw_rows(seed)
        self.n_files += 1
        path = self.folder / f"rows-{self.n_files}.npz"
        np.savez(path, X=X, Y=Y)
        return path

    def place(self, name: str) -> Path:
        self.n_files += 1
        return self.folder / f"{name}-{self.n_files}"

    def check_ranking(self, run: Path, method: str, X: np.ndarray, Y: np.ndarray) -> None:
        expected = ESTIMATORS[method].fit(X, Y)
        with (run / "ranking.csv").open(newline="") as file:
            table = list(csv.DictReader(file))
        ranking = [int(row["feature_index"]) for row in table]
        scores = np.array([float(row["score"]) for row in table])
        assert ranking == expected.ranking_.tolist()
        np.testing.assert_allclose(scores, expected.scores_[expected.ranking_], rtol=1e-9)

    def select(self, method: str, store: Path, *options: object, code: int | None = 0, k: int = 2):
        run = self.place("run")
        binning = ["--binning", "equal-width"] if "binning" in ESTIMATORS[method].get_params() else []
        result = self.mlfs("select", method, store, "-k", k, "-o", run, "--json", *binning, *options, code=code)
        return run, result

    @initialize(seed=seeds, storage=storages, size=sizes)
    def convert(self, seed, storage, size) -> None:
        self.mlfs("convert", self.source(seed), self.store, "--storage", storage, "--partition-size", size)
        self.rows = {0: draw_rows(seed)}

    @rule(seed=seeds)
    def convert_without_force(self, seed) -> None:
        result = self.mlfs("convert", self.source(seed), self.store, code=2)
        assert "--force" in result.stderr

    @rule(seed=seeds, storage=storages, size=sizes)
    def replace(self, seed, storage, size) -> None:
        source = self.source(seed)
        self.mlfs("convert", source, self.store, "--force", "--storage", storage, "--partition-size", size)
        self.rows, self.damaged = {0: draw_rows(seed)}, False

    @precondition(lambda self: not self.damaged)
    @rule(seed=seeds)
    def append(self, seed) -> None:
        self.mlfs("append", self.store, self.source(seed))
        self.rows[len(self.rows)] = draw_rows(seed)

    @rule(method=methods)
    def rank(self, method) -> None:
        """With a damaged store the ranking is right, or there is none: what is damaged need not be read."""
        run, result = self.select(method, self.store, code=None)
        if result.exit_code == 0:
            self.check_ranking(run, method, *self.arrays())
        else:
            assert self.damaged
            assert result.exit_code == 3
            assert not run.exists()

    @precondition(lambda self: not self.damaged)
    @rule()
    def select_where_a_run_is(self) -> None:
        run, _ = self.select("chi2", self.store)
        before = (run / "run.json").read_bytes()
        result = self.mlfs("select", "chi2", self.store, "-k", 1, "-o", run, code=2)
        assert "--force" in result.stderr
        assert (run / "run.json").read_bytes() == before

    @precondition(lambda self: not self.damaged)
    @rule(method=methods)
    def rank_twice_with_a_cache(self, method) -> None:
        cache = self.folder / "cache"
        for _ in range(2):
            run, result = self.select(method, self.store, "--cache", cache)
            self.check_ranking(run, method, *self.arrays())
        assert json.loads(result.stdout)["passes"] == 0

    @precondition(lambda self: not self.damaged)
    @rule(method=methods)
    def transform(self, method) -> None:
        run, _ = self.select(method, self.store)
        X, Y = self.arrays()
        chosen = np.sort(ESTIMATORS[method].fit(X, Y).ranking_[:2])
        file = self.place("chosen").with_suffix(".csv")
        self.mlfs("transform", self.store, run, file)
        np.testing.assert_array_equal(np.loadtxt(file, delimiter=",", skiprows=1)[:, :2], X[:, chosen])
        made = self.place("chosen")
        self.mlfs("transform", self.store, run, made)
        self.mlfs("inspect", made, "--verify")
        other, _ = self.select("chi2", made, k=1)
        self.check_ranking(other, "chi2", X[:, chosen], Y)

    @rule()
    def inspect(self) -> None:
        self.mlfs("inspect", self.store, "--verify", code=3 if self.damaged else 0)

    @precondition(lambda self: not self.damaged)
    @rule(number=seeds, cut=st.booleans())
    def damage(self, number, cut) -> None:
        files = sorted(path for path in self.store.rglob("*") if path.is_file() and path.stat().st_size)
        file = files[number % len(files)]
        content = bytearray(file.read_bytes())
        place = number % len(content)
        if cut:
            del content[place:]
        else:
            content[place] ^= 1 << number % 8
        file.write_bytes(content)
        self.damaged = True
        self.inspect()

    @precondition(lambda self: not self.damaged and self.killed < 1)
    @rule(seed=seeds, call=calls, appends=st.booleans())
    def kill_and_resume(self, seed, call, appends) -> None:
        source = self.source(seed)
        words = ["append", self.store, source] if appends else ["convert", source, self.store, "--force"]
        new = {**self.rows, len(self.rows): draw_rows(seed)} if appends else {0: draw_rows(seed)}
        self.killed += 1
        preload = {"LD_PRELOAD": str(self.library), "KILL_IN": str(self.folder), "KILL_AT": str(call)}
        process = type(self).start(*words, env=preload)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode in (0, -signal.SIGKILL), stderr
        n = json.loads(self.mlfs("inspect", self.store, "--verify", "--json").stdout)["n"]
        assert n in {len(self.arrays(rows)[0]) for rows in (self.rows, new)}
        self.mlfs(*words, "--resume")
        self.rows = new
        assert not [path.name for path in self.folder.iterdir() if path.name.startswith(".")]

    @precondition(lambda self: not self.damaged)
    @invariant()
    def the_ranking_is_that_of_the_rows(self) -> None:
        if self.rows:
            run, _ = self.select("chi2", self.store, "--cache", self.folder / "cache")
            self.check_ranking(run, "chi2", *self.arrays())


@pytest.mark.longer
@pytest.mark.timeout(7200)
def test_a_store_has_the_rows_of_its_model(run, start, failing_library):
    Store.run, Store.start, Store.library = staticmethod(run), staticmethod(start), failing_library
    # A failing sequence of eight steps is read as it is: to shrink it takes minutes.
    run_state_machine_as_test(
        Store,
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=8,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
