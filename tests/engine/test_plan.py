"""Plans from sizes alone."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from mlfs_dask.engine.plan import MAX_FAN_IN, SPREAD_BYTES, ReadingSizes, plan_reading, reading_fits
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.contract import Profile
from mlfs_dask.runtime import COMPILED_BYTES, PROCESS_BYTES, Resources

MIB = 2**20


def profile(partitions=100, buffer_bytes=32 * MIB):
    return Profile(
        n=1_000_000,
        d=1000,
        q=100,
        sparse=False,
        dtype=np.dtype(np.float32),
        nonzeros=10**9,
        label_nonzeros=3 * 10**6,
        partitions=partitions,
        block_rows=4096,
        block_bytes=16 * MIB,
        buffer_bytes=buffer_bytes,
        read_bytes=4 * 10**9,
    )


def cluster(workers=2, limit=1024 * MIB, threads=1):
    return Resources(workers, threads, limit, 4096 * MIB, client=object())


@pytest.mark.parametrize("of_dask", [False, True])
def test_tasks_count_runs_merges_and_the_end(of_dask):
    plan = plan_reading(profile(), cluster(), ReadingSizes(MIB, 0, one_run_per_partition=of_dask))
    assert plan.fan_in == MAX_FAN_IN
    assert plan.runs == tuple((i, i + 1) for i in range(100))
    assert plan.tasks == 100 + 13 + 2 + 1 + 1  # 100 runs, merged 8 at a time, then 13, then 2, then the result


def test_tasks_of_a_cluster_are_cut_by_what_they_read():
    """Workers that join later get some of them."""
    few, many = (plan_reading(profile(), cluster(workers=workers), ReadingSizes(MIB, 0)) for workers in (1, 5))
    assert few.runs == many.runs
    small = plan_reading(replace(profile(), read_bytes=64 * MIB), cluster(workers=1), ReadingSizes(MIB, 0))
    assert len(small.runs) == 16, "of little data no task is made for 16 MiB"
    large = plan_reading(profile(), cluster(workers=1, limit=4096 * MIB), ReadingSizes(20 * MIB, 0))
    assert len(large.runs) == 4 * 10**9 // (16 * 20 * MIB)
    huge = replace(profile(partitions=10**6), read_bytes=64 * 10**12)
    assert len(plan_reading(huge, cluster(), ReadingSizes(MIB, 0)).runs) == 4096


def test_of_what_a_server_sends_tasks_are_long():
    """At the start of each, and at its end, an answer is waited for."""
    for resources in (cluster(), Resources(1, 2, 2**32, 2**32)):
        for gigabytes, runs in ((0.1, 2), (1, 2), (4, 14), (64, 32 if resources.client is None else 238)):
            far = replace(profile(partitions=1000), read_bytes=int(gigabytes * 10**9), remote=True)
            assert len(plan_reading(far, resources, ReadingSizes(MIB, 0)).runs) == runs


def test_finished_states_wait_in_every_round_of_merges():
    plan = plan_reading(profile(), cluster(workers=1), ReadingSizes(MIB, 0))
    # 100 runs make 13 partials, these 2, these 1: before the last of a group, 7, 7 and 1 wait; and one is read for.
    assert plan.peak_worker_bytes == PROCESS_BYTES + (32 + 1 + 7 + 7 + 1 + 1) * MIB


def test_large_partials_mean_long_runs_and_narrow_merges():
    plan = plan_reading(profile(), cluster(), ReadingSizes(150 * MIB, 0))
    assert len(plan.runs) == 2
    assert plan.fan_in == 2


def test_peak_counts_process_buffers_scratch_and_states():
    plan = plan_reading(profile(), Resources(1, 2, 2048 * MIB, 2048 * MIB), ReadingSizes(MIB, 5 * MIB))
    # Two threads read, and one finished state is merged into another.
    assert plan.peak_worker_bytes == PROCESS_BYTES + 2 * (32 + 5 + 1) * MIB + 2 * MIB


def test_states_of_threads_are_merged_at_the_end_where_there_is_no_room():
    needed = PROCESS_BYTES + 3 * (32 + 100) * MIB
    roomy = plan_reading(profile(), Resources(1, 3, 2**32, 2**32), ReadingSizes(100 * MIB, 0))
    assert len(roomy.runs) == 6
    assert roomy.peak_worker_bytes == needed + 200 * MIB
    tight = plan_reading(profile(), Resources(1, 3, int(needed / 0.8) + 2, 2**32), ReadingSizes(100 * MIB, 0))
    assert len(tight.runs) == 3
    assert tight.peak_worker_bytes == needed


def test_in_process_as_many_threads_read_as_fit():
    for threads in (1, 2, 3):
        # What that many threads read into and add to, and not what one more would.
        needed = PROCESS_BYTES + threads * (32 + 100) * MIB
        tight = plan_reading(profile(), Resources(1, 3, int(needed / 0.8) + 2, 2**32), ReadingSizes(100 * MIB, 0))
        assert (tight.threads, tight.peak_worker_bytes) == (threads, needed)
    with pytest.raises(DoesNotFitError):
        plan_reading(
            profile(), Resources(1, 3, int((needed - 2 * 132 * MIB) / 0.8) - 2, 2**32), ReadingSizes(100 * MIB, 0)
        )


def test_workers_keep_the_threads_they_were_started_with():
    sizes = ReadingSizes(100 * MIB, 0)
    assert plan_reading(profile(), cluster(threads=2, limit=2048 * MIB), sizes).threads == 2
    assert not reading_fits(profile(), cluster(threads=2, limit=700 * MIB), sizes)
    plan_reading(profile(), cluster(threads=1, limit=700 * MIB), sizes)


@pytest.mark.parametrize(
    ("resources", "options"),
    [
        (Resources(1, 2, 128 * MIB, 2**32), {"--memory-limit"}),
        (cluster(limit=128 * MIB), {"--memory-limit"}),
        (cluster(limit=128 * MIB, threads=2), {"--memory-limit", "--threads-per-worker", "--nthreads"}),
    ],
    ids=["in process", "workers", "workers of threads"],
)
def test_the_cure_names_options_that_can_be_given(resources, options):
    """`--threads-per-worker` is refused in process, and of no use with one thread."""
    with pytest.raises(DoesNotFitError) as caught:
        plan_reading(profile(), resources, ReadingSizes(100 * MIB, 0))
    assert set(re.findall(r"--[a-z-]+", str(caught.value))) == options


def test_compiled_kernels_and_what_a_worker_holds_already_count():
    held = Resources(2, 1, 1024 * MIB, 4096 * MIB, client=object(), process_bytes=200 * MIB)
    plain = plan_reading(profile(), cluster(), ReadingSizes(MIB, 0))
    compiled = plan_reading(profile(), held, ReadingSizes(MIB, 0, compiled=True))
    assert compiled.peak_worker_bytes - plain.peak_worker_bytes == 200 * MIB - PROCESS_BYTES + COMPILED_BYTES
    loaded = plan_reading(profile(), replace(held, compiled_bytes=0), ReadingSizes(MIB, 0, compiled=True))
    assert compiled.peak_worker_bytes - loaded.peak_worker_bytes == COMPILED_BYTES


RESOURCES = pytest.mark.parametrize(
    "resources", [cluster(), Resources(1, 2, 512 * MIB, 2**32)], ids=["workers", "in process"]
)


@RESOURCES
def test_the_cure_works_and_memory_that_no_machine_has_is_none(resources):
    with pytest.raises(DoesNotFitError) as caught:
        plan_reading(profile(), resources, ReadingSizes(600 * MIB, 0))
    assert caught.value.exit_code == 4
    assert caught.value.projected > caught.value.available
    assert caught.value.projected >= (1 if resources.client is None else 3) * 600 * MIB
    needed = int(str(caught.value).split("--memory-limit ")[1].split("MiB")[0])
    # The next start of a process holds a little more or less.
    again = replace(resources, memory_limit=needed * MIB, process_bytes=resources.process_bytes + SPREAD_BYTES - MIB)
    plan_reading(profile(), again, ReadingSizes(600 * MIB, 0))
    with pytest.raises(DoesNotFitError, match="cure: no machine has as much: select on fewer labels or") as caught:
        plan_reading(profile(), resources, ReadingSizes(4_000_002**2 * 8, 0))
    assert "--memory-limit" not in str(caught.value)


@pytest.mark.parametrize("resources", [cluster(), cluster(8, threads=2), Resources(1, 3, 1024 * MIB, 2**32)])
@pytest.mark.parametrize("can_split", [False, True])
def test_what_fits_is_what_is_planned(resources, can_split):
    answers = []
    for state in range(1 * MIB, 1000 * MIB, 13 * MIB):
        sizes = ReadingSizes(state, 5 * MIB, result_bytes=MIB, can_split=can_split)
        answers.append(reading_fits(profile(), resources, sizes))
        if answers[-1]:
            plan = plan_reading(profile(), resources, sizes)
            assert plan.peak_worker_bytes <= 0.8 * resources.memory_limit
        else:
            with pytest.raises(DoesNotFitError):
                plan_reading(profile(), resources, sizes)
    assert len(set(answers)) == 2


def test_parameters_count_once_a_process():
    here = Resources(1, 2, 2048 * MIB, 2048 * MIB)
    plain = plan_reading(profile(), here, ReadingSizes(MIB, 0))
    more = plan_reading(profile(), here, ReadingSizes(MIB, 0, parameter_bytes=7 * MIB))
    assert more.peak_worker_bytes - plain.peak_worker_bytes == 7 * MIB


@pytest.mark.parametrize("resources", [cluster(), Resources(1, 2, 2048 * MIB, 2048 * MIB)], ids=["workers", "here"])
def test_the_result_is_made_when_buffers_are_gone(resources):
    plain = plan_reading(profile(), resources, ReadingSizes(MIB, 0))
    assert plan_reading(profile(), resources, ReadingSizes(MIB, 0, result_bytes=3 * MIB)) == plain
    sizes = ReadingSizes(MIB, 2 * MIB, result_bytes=300 * MIB, finishing_bytes=4 * MIB)
    large = plan_reading(profile(), resources, sizes)
    assert large.peak_worker_bytes == PROCESS_BYTES + (1 + 4 + 300) * MIB
