"""The iterative selectors on one worker process and on two: what their dense twins give."""

from __future__ import annotations

import dask.array as da
import pytest

from mlfs_dask.cluster import connect
from mlfs_dask.selectors import get_method
from tests.reference import access_mfs as access_twin
from tests.reference import mfsir as mfsir_twin
from tests.reference import smfs as smfs_twin
from tests.selectors import test_access_mfs as access_tests
from tests.selectors import test_mfsir as mfsir_tests
from tests.selectors import test_smfs as smfs_tests

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:.*did not converge", "ignore:.*left an error"),
]


@pytest.fixture(scope="module", params=[1, 2])
def workers(request):
    with connect(workers=request.param, memory_limit=900 * 2**20) as client:
        assert len(client.scheduler_info()["workers"]) == request.param
        yield request.param


def lazily(X, Y):
    """In pieces of rows and columns that fit no partition's end."""
    return da.from_array(X, chunks=(23, 5)), da.from_array(Y, chunks=(31, -1))


@pytest.mark.parametrize("gram_cap", [0, 4096])
def test_mfsir(workers, gram_cap):
    X, Y = mfsir_tests.problem(1)
    found = get_method("mfsir")(3, gram_cap=gram_cap, weight_steps=5).fit(*lazily(X, Y))
    scores, objective, _ = mfsir_twin.mfsir(X, Y)
    assert found.report_.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-9 * scores.max())


@pytest.mark.parametrize("state", ["rows", "entries"])
def test_smfs(workers, state):
    X, Y = smfs_tests.problem()
    Y = smfs_tests.STATES[state](Y)
    found = get_method("smfs")(3, tol=0.0, max_iter=8, **smfs_tests.SMALL).fit(*lazily(X, Y))
    smfs_tests.check(found, smfs_twin.smfs(X, Y, smfs_tests.graph(X), iterations=8))


@pytest.mark.parametrize("gram_cap", [0, 4096])
@pytest.mark.parametrize("unknown", ["rows", "entries"])
def test_access_mfs(workers, unknown, gram_cap):
    X, Y = access_tests.problem(1, unknown=unknown)
    found = get_method("access-mfs")(3, gram_cap=gram_cap, max_iter=8, solver_tol=1e-9).fit(*lazily(X, Y))
    scores, F, objective, _ = access_twin.access_mfs(X, Y, max_iter=8)
    assert found.report_.objective == pytest.approx(objective, rel=1e-8)
    assert found.scores_ == pytest.approx(scores, abs=1e-6 * scores.max())
    assert found.labels_ == pytest.approx(F, abs=1e-6)
