"""Plan of a pass from sizes alone: tasks, merges and memory, in integers.

The same functions serve `mlfs plan` and the pass itself, so what is printed is what runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.contract import Profile
from mlfs_dask.runtime import Resources

#: Share of a worker's limit that a job may fill. Above it `distributed` pauses the worker.
USABLE_SHARE = 0.8

#: By how much what a process holds before a job may differ from one start to the next: 0.3 MiB measured. A limit that a
#: message names has to be enough for the next start.
SPREAD_BYTES = 2 * 2**20

#: Bytes of memory that no machine has.
LARGEST_MACHINE = 2**46

#: Tasks a slot gets in one pass when partials are small. A pass ends with its last task: with fewer, a worker
#: waits long for the other (`benchmarks/iterative.py workers`).
RUNS_PER_SLOT = 16

#: On a cluster, where further workers may join, tasks are cut by what they read, as far as it is this many times their
#: partial results: to make, send and merge a partial takes some seconds a GB, to read and count takes one at least.
READ_PER_STATE = 16

#: Bytes that such a task reads at least, and how many tasks there are at most: a scheduler handles about a thousand a
#: second.
MIN_RUN_BYTES, MAX_RUNS = 16 * 2**20, 4096

#: Bytes that a task reads at least of rows that a server sends, but for those of one slot: at its start and at its end
#: it waits for an answer, in which time some tens of megabytes could have come.
REMOTE_RUN_BYTES = 256 * 2**20

#: At most so many partials go into one merge.
MAX_FAN_IN = 8

#: States from this size on are merged in pieces, where they can be cut.
SPLIT_FROM_BYTES = 16 * 2**20

#: At most so many pieces.
MAX_PIECES = 64

#: On a cluster parameters and arrays of the rows exist as they arrive, pickled, and as they are used; and those of the
#: pass before may.
PARAMETER_COPIES = 3


@dataclass(frozen=True)
class ReadingPlan:
    """Shape of one pass: tasks, merges and memory.

    Attributes
    ----------
    runs : tuple of (int, int)
        Partitions first..last-1 of every task.
    fan_in : int
        Partials that one merge takes.
    pieces : int
        Parts that states are cut into before they are merged; 1 for whole ones.
    tasks : int
        Tasks in all, merges and the final one included.
    bytes_read : int
        Bytes read from storage.
    peak_worker_bytes : int
        Projected peak of one worker process, interpreter, buffers, temporaries and merges included.
    threads : int
        Tasks that run at the same time in one process. On a cluster its workers decide that; in process there are
        fewer than it may use where the memory holds no more.
    """

    runs: tuple[tuple[int, int], ...]
    fan_in: int
    pieces: int
    tasks: int
    bytes_read: int
    peak_worker_bytes: int
    threads: int = 1


@dataclass(frozen=True)
class ReadingSizes:
    """Sizes of the statistics of one pass.

    Attributes
    ----------
    state_bytes : int
        One accumulator, all statistics of the pass together.
    scratch_bytes : int
        Temporaries of the kernels on one block.
    result_bytes : int
        What the last task returns.
    parameter_bytes : int
        What every process holds of the parameters of the statistics.
    compiled : bool
        Whether every process loads compiled kernels with their compiler's runtime.
    can_split : bool
        Whether states can be cut into pieces that are merged apart. Large ones are then cut into as many as there
        are slots: every worker merges and finishes its share, and no process holds two whole states to add them.
    one_run_per_partition : bool
        For Dask arrays, whose blocks are arguments of the task.
    finishing_bytes : int
        Temporaries of the last task, which makes the result of the last state.
    """

    state_bytes: int
    scratch_bytes: int
    result_bytes: int = 0
    parameter_bytes: int = 0
    compiled: bool = False
    can_split: bool = False
    one_run_per_partition: bool = False
    finishing_bytes: int = 0


def plan_reading(profile: Profile, resources: Resources, sizes: ReadingSizes) -> ReadingPlan:
    """Choose the runs of partitions, the merge fan-in, whether states are merged in pieces, and in process the threads.

    Raises
    ------
    DoesNotFitError
        When even one accumulator a slot and merges of two do not fit a worker, or one thread this process.
    """
    usable = _usable_bytes(resources)
    for plan in _plans(profile, resources, sizes):
        if plan.peak_worker_bytes <= usable:
            return plan
    raise DoesNotFitError(
        "one pass in this process" if resources.client is None else "one pass on a worker",
        projected=plan.peak_worker_bytes,
        available=usable,
        cure=memory_cure(resources, plan.peak_worker_bytes),
    )


def memory_cure(resources: Resources, needed: int = 0) -> str:
    """Return the cure for a pass that needs more memory than a process may use.

    Parameters
    ----------
    resources : Resources
    needed : int
        Bytes that would be enough; 0 where nobody knows.
    """
    if needed > LARGEST_MACHINE:
        return (
            "no machine has as much: select on fewer labels or features (--labels, --features), or by a method that "
            "holds less (`mlfs methods` tells how the memory of each grows)"
        )
    option = f"--memory-limit {_limit_for(needed)}" if needed else "--memory-limit"
    if resources.client is None:
        return f"let this process use more memory ({option}), or take a machine or workers that have it"
    cure = f"give each worker more memory ({option})"
    if resources.threads_per_worker > 1:
        cure += " or fewer threads (--threads-per-worker 1; of `dask worker`: --nthreads 1)"
    return cure


def reading_fits(profile: Profile, resources: Resources, sizes: ReadingSizes) -> bool:
    """Return True if `plan_reading` finds a plan."""
    usable = _usable_bytes(resources)
    return any(plan.peak_worker_bytes <= usable for plan in _plans(profile, resources, sizes))


def _usable_bytes(resources: Resources) -> int:
    return int(resources.memory_limit * USABLE_SHARE)


def _plans(profile: Profile, resources: Resources, sizes: ReadingSizes) -> Iterator[ReadingPlan]:
    """Yield the plans of a pass, from the fastest to the one that needs the least memory."""
    # What has been started with its threads keeps them; in process a pass takes those that fit.
    fewest = resources.threads_per_worker if resources.client is not None else 1
    for threads in range(resources.threads_per_worker, fewest - 1, -1):
        yield from _plans_of(profile, replace(resources, threads_per_worker=threads), sizes)


def _plans_of(profile: Profile, resources: Resources, sizes: ReadingSizes) -> Iterator[ReadingPlan]:
    """Yield the plans of a pass with a given number of threads."""
    partitions = profile.partitions
    slots = max(1, min(resources.slots, partitions))
    large = sizes.state_bytes >= SPLIT_FROM_BYTES
    pieces = min(slots, MAX_PIECES) if sizes.can_split and resources.client is not None and large else 1
    shared = sizes.parameter_bytes + resources.compiled_bytes * sizes.compiled
    if resources.client is not None:
        shared += PARAMETER_COPIES * profile.array_bytes  # in process they are there before the pass
    by_bytes = 0
    if resources.client is not None:
        run_bytes = max(MIN_RUN_BYTES, READ_PER_STATE * sizes.state_bytes)
        by_bytes = min(profile.read_bytes // run_bytes, MAX_RUNS // pieces)
    # Many large partials cost more to move, and to fill and add up, than uneven workers cost in waiting.
    runs_per_slot, widest = RUNS_PER_SLOT, MAX_FAN_IN
    if large:
        runs_per_slot, widest = 1 if resources.client is None else 2, 4
    most = max(runs_per_slot * slots, by_bytes)
    if profile.remote:
        most = min(most, max(1, profile.read_bytes // (slots * REMOTE_RUN_BYTES)) * slots)
    for runs, fan_in in ((most, widest), (2 * slots, 4), (slots, 2)):
        n_runs = partitions if sizes.one_run_per_partition else min(partitions, runs, most)
        peak = _peak(profile, resources, sizes, shared, n_runs, fan_in, pieces)
        # A piece is taken out of each run by a task of its own, and the finished pieces are joined by one.
        cut = n_runs * pieces + 1 if pieces > 1 else 0
        tasks = n_runs + pieces * (sum(_merge_rounds(n_runs, fan_in)) + 1) + cut
        cuts, read = split_evenly(profile.partitions, n_runs), profile.read_bytes
        yield ReadingPlan(cuts, fan_in, pieces, tasks, read, peak, resources.threads_per_worker)


def _peak(
    profile: Profile,
    resources: Resources,
    sizes: ReadingSizes,
    shared: int,
    n_runs: int,
    fan_in: int,
    pieces: int,
) -> int:
    """Return the projected peak of one process: what it is, what its threads share and read into, and the states it
    holds.
    """
    threads = min(resources.threads_per_worker, n_runs)
    base = resources.process_bytes + shared
    state, reading = sizes.state_bytes, profile.buffer_bytes + sizes.scratch_bytes
    # When all rows are read, the last state becomes the result.
    finishing = state + sizes.finishing_bytes + sizes.result_bytes
    if resources.client is None:
        # More runs than threads: while all threads read, one finished state is merged into another.
        merging = 2 * state if 1 < threads < n_runs else 0
        return base + max(threads * (reading + state) + merging, finishing)
    fan_in = min(fan_in, n_runs)
    if n_runs == 1:
        return base + max(reading + state, finishing)
    # Finished states wait until as many are there as go into one merge, in every round of merges.
    waiting = 1 + sum(min(fan_in, width) - 1 for width in (n_runs, *_merge_rounds(n_runs, fan_in)))
    finished = min(-(-n_runs // resources.workers), waiting)
    # Inputs from other workers exist twice while they arrive; the first input is copied, since it is Dask's.
    arriving = fan_in * (resources.workers - 1) / resources.workers
    merging = int((fan_in + 1 + arriving) * state / pieces)
    if pieces > 1:
        # Cutting a state copies it; finished pieces wait until their merge group is complete.
        running = threads * (reading + 2 * state) + (finished - threads) * state
        return base + max(running, finished * state + threads * merging, finishing)
    running = threads * (reading + state) + finished * state
    return base + max(running, (threads - 1) * (reading + state) + merging, finishing)


def _merge_rounds(n_runs: int, fan_in: int) -> list[int]:
    """Return the number of merges in each round; the last round has one.

    >>> _merge_rounds(32, 8)
    [4, 1]
    """
    rounds, width = [], n_runs
    while width > 1:
        width = -(-width // fan_in)
        rounds.append(width)
    return rounds


def split_evenly(total: int, pieces: int) -> tuple[tuple[int, int], ...]:
    """Cut range(total) into `pieces` runs whose lengths differ by at most one.

    >>> split_evenly(7, 3)
    ((0, 3), (3, 5), (5, 7))
    """
    base, extra = divmod(total, pieces)
    bounds = [0]
    for i in range(pieces):
        bounds.append(bounds[-1] + base + (i < extra))
    return tuple(itertools.pairwise(bounds))


def _limit_for(projected: int) -> str:
    return f"{-(-int((projected + SPREAD_BYTES) / USABLE_SHARE) // 2**20)}MiB"
