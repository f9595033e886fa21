"""Golden rankings of every method: in this process, from other partitions, with two workers, through Python.

`golden_rankings.py` says which selections there are and how the files are made.
"""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.blackbox import golden_rankings as golden
from tests.blackbox.golden_rankings import Selection

# Kernels of BLAS and processors for which Numba compiles; every processor with AVX2 has the instructions of both.
KERNELS = {"Nehalem": "nehalem", "Haswell": "haswell"}

# Options of the selections that are repeated elsewhere than in this process.
REPEATED = ("", "--graph anchors")

DESCRIBED = golden.methods()
SELECTIONS = list(golden.selections(DESCRIBED))

flags = Path("/proc/cpuinfo")
with_avx2 = pytest.mark.skipif(
    platform.machine() != "x86_64" or not flags.exists() or "avx2" not in flags.read_text(),
    reason="BLAS of another processor needs AVX2",
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("golden")
    golden.write_stores(place, golden.PARTITION_SIZE)
    return place


def check(rankings: golden.Rankings) -> None:
    """Compare rankings with the golden ones: to the bit where counts decide, else to 1e-9."""
    problems = []
    for (name, title), ranking in rankings.items():
        logarithm, expected = golden.read(name)
        if (name, title) not in expected:
            problems.append(f"{name}, {title}: there is no golden ranking; `make golden` makes it")
            continue
        exact = golden.counts(DESCRIBED[name]) and logarithm == golden.logarithm()
        if difference := ranking.difference(expected[name, title], exact=exact):
            problems.append(f"{name}, {title}: {difference}")
    assert not problems, "\n".join(problems)


def test_files_are_those_of_the_methods():
    assert {path.stem for path in golden.FOLDER.glob("*.txt")} == set(DESCRIBED)
    expected = {(name, each.title) for each in SELECTIONS for name in each.methods}
    for name in DESCRIBED:
        titles = {title for _, title in golden.read(name)[1] if not title.endswith(" weights")}
        assert titles == {title for other, title in expected if other == name}


@pytest.mark.parametrize("store", golden.DATA)
def test_in_this_process(stores, store):
    for selection in SELECTIONS:
        if selection.store == store:
            check(golden.run_selection(selection, stores, DESCRIBED))


@pytest.mark.parametrize("size", ["300", "64KiB"])
def test_from_other_partitions(tmp_path, size, request):
    if size == "300":
        request.getfixturevalue("small_gates")
    golden.write_stores(tmp_path, size)
    for selection in SELECTIONS:
        if selection.store in ("dense", "counts") and selection.options in (
            "",
            "--binning quantile",
            "--graph anchors",
        ):
            # What methods read together they read through a cache, which also serves the later ones.
            check(golden.run_selection(selection, tmp_path, DESCRIBED, "--cache", tmp_path / "cache"))


@pytest.mark.parametrize("store", golden.DATA)
def test_through_python(store):
    for selection in SELECTIONS:
        if selection.store == store:
            check(golden.fit_selection(selection, DESCRIBED))


@pytest.mark.parametrize("store", golden.WEIGHTED)
def test_weighted_rows(store):
    check(golden.fit_selection(Selection(store, tuple(DESCRIBED)), DESCRIBED, weighted=True))


@pytest.mark.cluster
@with_avx2
def test_two_workers_with_different_kernels(stores, start_dask, tmp_path):
    address = tmp_path / "scheduler.json"
    start_dask("scheduler", "--scheduler-file", address, "--port", 0, "--host", "127.0.0.1")
    for blas, processor in KERNELS.items():
        kernels = ["env", f"OPENBLAS_CORETYPE={blas}", f"NUMBA_CPU_NAME={processor}"]
        start_dask("worker", "--scheduler-file", address, "--nthreads", 1, "--host", "127.0.0.1", prefix=kernels)
    cluster = ["--scheduler-file", address, "--min-workers", 2, "--cache", tmp_path / "cache"]
    for selection in SELECTIONS:
        if selection.store == "dense" and not selection.options:
            check(golden.run_selection(selection, stores, DESCRIBED, *cluster))
