"""What one-pass methods take of real workers on sparse stores, as the system counts it, beside what was planned."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask.storage.opening import open_dataset
from tests.storage.memory_reader import make_reader

pytestmark = pytest.mark.nightly

N, D, Q = 100_000, 30_000, 40

PARAMETERS = {"elc": {"variant": "screen"}, "qpmlfs": {"n_landmarks": 500}}

FIT = """
import json, sys

if __name__ == "__main__":  # workers import nothing of this
    import bisect, warnings
    from dataclasses import replace
    from mlfs_dask import open_dataset, runtime
    from mlfs_dask.cluster.connect import connect
    from mlfs_dask.errors import DoesNotFitError
    from mlfs_dask.selection.estimator import get_estimator

    warnings.simplefilter("ignore")
    workers, limit, asked = json.loads(sys.argv[1])
    made = []
    for method, parameters, store, weighted in asked:
        dataset = open_dataset(store)
        made.append((get_estimator(method)(min(1000, dataset.shape[1] // 2), **parameters), dataset, weighted))
    if limit == 0:  # ten MiB above the lowest limit that is not refused
        ((selector, dataset, _),) = made
        with connect(workers=workers, memory_limit=2**30):
            resources, rows = current_resources(), dataset.rows

        def fits(mib):
            try:
                return bool(selector.plan(rows, replace(resources, memory_limit=mib * 2**20)))
            except DoesNotFitError:
                return False

        limit = 10 + bisect.bisect_left(range(1025), True, key=fits)
    told = []
    with connect(workers=workers, memory_limit=limit * 2**20):
        for selector, dataset, weighted in made:
            given = {"sample_weight": [1.0, 0.5] * (dataset.shape[0] // 2)} if weighted else {}
            report = selector.fit(dataset, **given).report_
            told.append([report.passes, report.peak_worker_bytes, report.plan])
    print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """60 values a row: 0/1 in one store, and any in the other, whose blocks have fewer and longer values."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, D, (N, 60), dtype=np.int32), axis=1).ravel()
    rows = np.arange(0, 60 * N + 1, 60)
    Y = (rng.random((N, Q)) < 0.05).astype(np.int8)
    folder = tmp_path_factory.mktemp("stores")
    for name, values in (("binary", np.ones(60 * N)), ("values", rng.random(60 * N, dtype=np.float32))):
        X = sp.csr_array((values, columns, rows), shape=(N, D))
        X.sum_duplicates()
        X.data = np.minimum(X.data, 1)
        convert_reader(lambda X=X: make_reader(X, Y), folder / f"{name}.zarr")
    return folder


def fit(workers, limit, fits, folder):
    """Passes, the peak of a worker, and the plan, of fits one after the other on the same workers.

    Parameters
    ----------
    workers : int
    limit : int
        MiB of a worker; 0 for little more than the one fit needs.
    fits : list of (method, parameters, path of a store, whether rows have weights)
    folder : Path
    """
    script = folder / "fit.py"
    script.write_text(FIT)
    command = [sys.executable, str(script), json.dumps([workers, limit, fits], default=str)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


#: Workers, the limit of each, methods with their stores, and the readings that they make at least. Neighbours with the
#: same workers share them.
CASES = [
    (1, 1024, "label-entropy", "binary", 1),
    (1, 1024, "enm", "values", 1),
    (1, 1024, "elc", "values", 1),
    (1, 1024, "spfs", "values", 2),  # 4096 candidates with one another
    (1, 1024, "qpmlfs", "binary", 2),  # 500 landmarks with every feature
    (2, 1024, "label-entropy", "values", 1),
    (1, 0, "enm", "values", 2),  # tiled, near the lowest limit
    (2, 1024, "scls", "binary", 2),  # 1000 candidates with every feature: the results are larger than the counts
]


@pytest.fixture(scope="module")
def peaks(stores, tmp_path_factory):
    """What `fit` gives, by the case."""
    for method, store in (("label-entropy", "binary"), ("enm", "values"), ("elc", "values")):
        # The kernels are then in Numba's cache: pairs are counted by those of `enm`, products are those of `elc`.
        get_estimator(method)(10, **PARAMETERS.get(method, {})).fit(open_dataset(stores / f"{store}.zarr"))
    found = {}
    for (workers, limit), cases in itertools.groupby(CASES, key=lambda case: case[:2]):
        cases = list(cases)
        fits = [(case[2], PARAMETERS.get(case[2], {}), stores / f"{case[3]}.zarr", False) for case in cases]
        found |= zip(cases, fit(workers, limit, fits, tmp_path_factory.mktemp("fits")), strict=True)
    return found


@pytest.mark.timeout(1200)  # the first one waits for all fits
@pytest.mark.cluster
@pytest.mark.parametrize("case", CASES)
def test_peaks_are_within_a_fifth_of_the_plan(case, peaks):
    made, measured, plan = peaks[case]
    planned = plan["peak_worker_bytes"]
    assert made >= case[-1]
    # Pages of LLVM count with a process as the system keeps them: 70 to 140 MiB where 135 are planned.
    assert 0.8 <= measured / planned <= 1.06, (measured, planned)


@pytest.mark.cluster
def test_what_weights_of_rows_take_is_in_the_plan(tmp_path):
    n = 3_000_000
    rng = np.random.default_rng(0)
    X, Y = rng.random((n, 2), dtype=np.float32), (rng.random((n, 1)) < 0.3).astype(np.int8)
    convert_reader(lambda: make_reader(X, Y), tmp_path / "a.zarr")
    fits = [("elc", {}, tmp_path / "a.zarr", weighted) for weighted in (False, True)]
    (_, plain, plan), (_, weighted, larger) = fit(2, 1024, fits, tmp_path)
    assert larger["arrays"]["weights of rows"] == 8 * n
    assert 8 * n <= weighted - plain <= larger["peak_worker_bytes"] - plan["peak_worker_bytes"]
