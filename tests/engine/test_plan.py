"""Plans from sizes alone."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from mlfs_dask.engine.plan import MAX_FAN_IN, SPLIT_FROM_BYTES, SPREAD_BYTES, ReadingSizes, plan_reading, reading_fits
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.contract import Profile
from mlfs_dask.runtime import COMPILED_BYTES, PROCESS_BYTES, Resources

MIB = 2**20

PROFILE = Profile(
    n=1_000_000,
    d=1000,
    q=100,
    sparse=False,
    dtype=np.dtype(np.float32),
    nonzeros=10**9,
    label_nonzeros=3 * 10**6,
    partitions=100,
    block_rows=4096,
    block_bytes=16 * MIB,
    buffer_bytes=32 * MIB,
    read_bytes=4 * 10**9,
)


def cluster(workers=2, limit=1024 * MIB, threads=1):
    return Resources(workers, threads, limit, 4096 * MIB, client=object())


def here(threads, limit=2**32):
    return Resources(1, threads, limit, 2**32)


def limit_of(peak):
    """Least limit with which so many bytes beside the process are planned."""
    return int((PROCESS_BYTES + peak) / 0.8) + 2


def far(gigabytes):
    return replace(PROFILE, partitions=1000, read_bytes=int(gigabytes * 10**9), remote=True)


LARGE = ReadingSizes(100 * MIB, 0)
SMALL = ReadingSizes(MIB, 0)

#: Rows, resources and sizes -> numbers of the plan; `peak` is beside the process, in MiB.
PLANS = {
    # 100 runs, merged 8 at a time, then 13, then 2, then the result.
    "tasks": (PROFILE, cluster(), SMALL, {"fan_in": MAX_FAN_IN, "runs": 100, "tasks": 100 + 13 + 2 + 1 + 1}),
    "one worker has as many tasks": (PROFILE, cluster(1), SMALL, {"runs": 100}),
    "five, too": (PROFILE, cluster(5), SMALL, {"runs": 100}),
    "of little data no task is made for 16 MiB": (
        *(replace(PROFILE, read_bytes=64 * MIB), cluster(1), SMALL),
        {"runs": 16},
    ),
    "large states": (PROFILE, cluster(1, 2**32), ReadingSizes(20 * MIB, 0), {"runs": 4 * 10**9 // (320 * MIB)}),
    "huge data": (replace(PROFILE, partitions=10**6, read_bytes=64 * 10**12), cluster(), SMALL, {"runs": 4096}),
    # At the start of what a server sends, and at its end, an answer is waited for.
    **{f"far, {size} GB": (far(size), cluster(), SMALL, {"runs": n}) for size, n in ((0.1, 2), (4, 14), (64, 238))},
    **{f"far, {size} GB here": (far(size), here(2), SMALL, {"runs": n}) for size, n in ((1, 2), (4, 14), (64, 32))},
    # 100 runs make 13 partials, these 2, these 1: before the last of a group, 7, 7 and 1 wait; and one is read for.
    "states that wait": (PROFILE, cluster(1), SMALL, {"peak": 32 + 1 + 7 + 7 + 1 + 1}),
    "states of many workers": (PROFILE, cluster(50), SMALL, {"peak": 32 + 1 + 2}),
    # Cutting a state copies it, and six others wait.
    "states in pieces": (
        *(PROFILE, cluster(2, 2**34), ReadingSizes(SPLIT_FROM_BYTES, 10 * SPLIT_FROM_BYTES, can_split=True)),
        {"peak": 32 + (10 + 2 + 6) * SPLIT_FROM_BYTES / MIB},
    ),
    "long runs and narrow merges": (PROFILE, cluster(), ReadingSizes(150 * MIB, 0), {"runs": 2, "fan_in": 2}),
    # Two threads read, and one finished state is merged into another.
    "buffers, temporaries and states": (
        *(PROFILE, here(2, 2**31), ReadingSizes(MIB, 5 * MIB)),
        {"peak": 2 * (32 + 5 + 1) + 2},
    ),
    "parameters, once a process": (
        *(PROFILE, here(2, 2**31), ReadingSizes(MIB, 5 * MIB, parameter_bytes=7 * MIB)),
        {"peak": 2 * (32 + 5 + 1) + 2 + 7},
    ),
    # A large state is not filled twice by a thread; of small ones another is merged while all threads read.
    "one run a thread": (PROFILE, here(3), LARGE, {"runs": 3, "peak": 3 * (32 + 100)}),
    "room for merges": (PROFILE, here(3), ReadingSizes(10 * MIB, 0), {"peak": 3 * (32 + 10) + 20}),
    "merges at the end": (PROFILE, here(3, limit_of(3 * 132 * MIB)), LARGE, {"runs": 3, "peak": 3 * (32 + 100)}),
    **{
        f"{n} threads fit": (PROFILE, here(3, limit_of(n * 132 * MIB)), LARGE, {"threads": n, "peak": n * 132})
        for n in (1, 2)
    },
    "workers keep their threads": (PROFILE, cluster(threads=2, limit=2**31), LARGE, {"threads": 2}),
    "a small result": (PROFILE, cluster(1), ReadingSizes(MIB, 0, result_bytes=3 * MIB), {"peak": 49}),
    "a large result, when buffers are gone": (
        *(PROFILE, cluster(), ReadingSizes(MIB, 2 * MIB, result_bytes=300 * MIB, finishing_bytes=4 * MIB)),
        {"peak": 1 + 4 + 300},
    ),
    "a large result here": (
        *(PROFILE, here(2, 2**31), ReadingSizes(MIB, 2 * MIB, result_bytes=300 * MIB, finishing_bytes=4 * MIB)),
        {"peak": 1 + 4 + 300},
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_by_hand(name):
    profile, resources, sizes, expected = PLANS[name]
    plan = plan_reading(profile, resources, sizes)
    found = {"runs": len(plan.runs), "peak": (plan.peak_worker_bytes - PROCESS_BYTES) / MIB}
    found |= {"fan_in": plan.fan_in, "threads": plan.threads, "tasks": plan.tasks}
    assert {key: found[key] for key in expected} == expected
    assert [run[0] for run in plan.runs[1:]] == [run[1] for run in plan.runs[:-1]]
    assert (plan.runs[0][0], plan.runs[-1][1]) == (0, profile.partitions)


def test_rows_of_dask_arrays_are_read_chunk_by_chunk():
    plan = plan_reading(PROFILE, here(3), ReadingSizes(100 * MIB, 0, one_run_per_partition=True))
    assert plan.runs == tuple((i, i + 1) for i in range(100))


@pytest.mark.parametrize(
    ("resources", "options"),
    [
        (here(2, 128 * MIB), {"--memory-limit"}),
        (here(3, limit_of(132 * MIB) - 4), {"--memory-limit"}),
        (cluster(limit=128 * MIB), {"--memory-limit"}),
        (cluster(limit=700 * MIB, threads=2), {"--memory-limit", "--threads-per-worker", "--nthreads"}),
    ],
)
def test_the_cure_names_options_that_can_be_given(resources, options):
    """`--threads-per-worker` is refused in process, and of no use with one thread."""
    assert not reading_fits(PROFILE, resources, LARGE)
    with pytest.raises(DoesNotFitError) as caught:
        plan_reading(PROFILE, resources, LARGE)
    assert set(re.findall(r"--[a-z-]+", str(caught.value))) == options


def test_compiled_kernels_and_what_a_worker_holds_already_count():
    held = replace(cluster(), process_bytes=200 * MIB)
    plain = plan_reading(PROFILE, cluster(), SMALL)
    compiled = plan_reading(PROFILE, held, replace(SMALL, compiled=True))
    assert compiled.peak_worker_bytes - plain.peak_worker_bytes == 200 * MIB - PROCESS_BYTES + COMPILED_BYTES
    loaded = plan_reading(PROFILE, replace(held, compiled_bytes=0), replace(SMALL, compiled=True))
    assert compiled.peak_worker_bytes - loaded.peak_worker_bytes == COMPILED_BYTES


@pytest.mark.parametrize("resources", [cluster(), here(2, 512 * MIB)], ids=["workers", "in process"])
def test_the_cure_works_and_memory_that_no_machine_has_is_none(resources):
    with pytest.raises(DoesNotFitError) as caught:
        plan_reading(PROFILE, resources, ReadingSizes(600 * MIB, 0))
    assert caught.value.exit_code == 4
    assert caught.value.projected > caught.value.available
    assert caught.value.projected >= (1 if resources.client is None else 3) * 600 * MIB
    needed = int(str(caught.value).split("--memory-limit ")[1].split("MiB")[0])
    # The next start of a process holds a little more or less.
    again = replace(resources, memory_limit=needed * MIB, process_bytes=resources.process_bytes + SPREAD_BYTES - MIB)
    plan_reading(PROFILE, again, ReadingSizes(600 * MIB, 0))
    with pytest.raises(DoesNotFitError, match="cure: no machine has as much: select on fewer labels or") as caught:
        plan_reading(PROFILE, resources, ReadingSizes(4_000_002**2 * 8, 0))
    assert "--memory-limit" not in str(caught.value)


@pytest.mark.parametrize("resources", [cluster(), cluster(8, threads=2), here(3, 1024 * MIB)])
@pytest.mark.parametrize("can_split", [False, True])
def test_what_fits_is_what_is_planned(resources, can_split):
    answers = []
    for state in range(1 * MIB, 1000 * MIB, 13 * MIB):
        sizes = ReadingSizes(state, 5 * MIB, result_bytes=MIB, can_split=can_split)
        answers.append(reading_fits(PROFILE, resources, sizes))
        if answers[-1]:
            plan = plan_reading(PROFILE, resources, sizes)
            assert plan.peak_worker_bytes <= 0.8 * resources.memory_limit
        else:
            with pytest.raises(DoesNotFitError):
                plan_reading(PROFILE, resources, sizes)
    assert len(set(answers)) == 2
