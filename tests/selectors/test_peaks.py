"""What workers and the driver of a real cluster hold at most, as the system counts it, beside what was planned."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from mlfs_dask.storage.convert import convert_reader
from tests.storage.memory_reader import make_reader

N, D, Q = 30_000, 300, 30

FIT = """
import json, sys

def load_libraries():
    # How many pages of LLVM are in memory, 70 to 130 MiB, is the kernel's choice: what is loaded is measured.
    import sklearn.ensemble, numpy as np
    from mlfs_dask.blocks import latent_rows_compiled
    latent_rows_compiled.sweep_nonnegative(np.zeros((1, 1)), np.zeros((1, 1)), np.eye(1), 1)

if __name__ == "__main__":  # workers import nothing of this
    import warnings
    from mlfs_dask import open_dataset
    from mlfs_dask.cluster.connect import connect
    from mlfs_dask.selection.estimator import get_estimator

    warnings.simplefilter("ignore")
    store, method, parameters = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    with connect(workers=2, memory_limit=2**30) as client:
        if get_estimator(method).plain.typical_iterations:  # methods with a loop use all of them
            load_libraries()
            client.run(load_libraries)
        report = get_estimator(method)(**{"n_features_to_select": 10} | parameters).fit(open_dataset(store)).report_
    print(json.dumps([report.peak_worker_bytes, report.peak_driver_bytes, report.plan]))
"""

PARAMETERS = {
    "mfsir": {"graph": "anchors", "max_iter": 3},
    "smfs": {"graph": "anchors", "max_iter": 2, "n_trees": 30},
    "access-mfs": {"graph": "anchors", "max_iter": 3},
    "laplacian": {"graph": "anchors"},
    "elc": {"n_features_to_select": "auto"},
    "mifs": {},
    "scfs": {"max_iter": 3},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Rows of 8 factors, 48 MB; all labels known, and those of three tenths of the rows."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(N, 8)).astype(np.float32)
    X = factors @ rng.normal(size=(8, D)).astype(np.float32) + 0.3 * rng.normal(size=(N, D)).astype(np.float32)
    Y = (factors @ rng.normal(size=(8, Q)) > 3).astype(np.int8)
    some = np.where(rng.random((N, 1)) < 0.3, Y, -1).astype(np.int8)
    folder = tmp_path_factory.mktemp("stores")
    for name, labels in (("all", Y), ("some", some)):
        convert_reader(lambda labels=labels: make_reader(X, labels), folder / f"{name}.zarr")
    return folder


@pytest.mark.cluster
@pytest.mark.parametrize("method", PARAMETERS)
def test_peaks_are_within_the_plan_and_a_quarter_of_it(method, stores, tmp_path):
    store = stores / ("all.zarr" if method in ("mfsir", "elc", "mifs") else "some.zarr")
    script = tmp_path / "fit.py"
    script.write_text(FIT)
    command = [sys.executable, str(script), str(store), method, json.dumps(PARAMETERS[method])]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    worker, driver, plan = json.loads(ran.stdout.splitlines()[-1])
    found = worker / plan["peak_worker_bytes"], driver / plan["peak_driver_bytes"]
    assert min(found) >= 0.75, found
    assert max(found) <= 1, found
