"""Resources that a pass may use: those of the default client's cluster, or of this process."""

from __future__ import annotations

from mlfs_dask import runtime
from mlfs_dask.runtime import Resources


def current_resources(*, threads: int | None = None) -> Resources:
    """Return the resources of the default `distributed` client, or of this process if there is no client.

    Parameters
    ----------
    threads : int, optional
        Threads of this process (default: `available_cores`). Ignored with a client.
    """
    client = runtime.default_client()
    if client is None:
        return runtime.process_resources(threads)
    from mlfs_dask.cluster.workers import cluster_of  # loads the code digest, which a job of one process never needs

    cluster, driver_limit = cluster_of(client), runtime.available_memory()
    admitted = cluster.workers()
    # While all workers restart, a job is planned for the workers last seen.
    workers = list(admitted.values()) or cluster.last_seen
    if not workers:
        return Resources(1, 1, driver_limit, driver_limit, client)
    limits = [int(w["memory_limit"]) or driver_limit for w in workers]
    answers = [
        answer for answer in cluster.ask(runtime.measure_memory, workers=admitted).values() if isinstance(answer, tuple)
    ]
    resident = [size for size, _ in answers]
    complete = len(answers) == len(admitted) > 0  # libraries loaded on only part of the workers count as not loaded
    loaded = frozenset.intersection(*(names for _, names in answers)) if complete else frozenset()
    if not resident:  # all workers are shutting down
        resident = [int(w.get("metrics", {}).get("memory", 0)) for w in workers]
    return Resources(
        len(limits),
        min(int(w["nthreads"]) for w in workers),
        min(limits),
        driver_limit,
        client,
        max(runtime.PROCESS_BYTES, max(resident) + runtime.FIRST_JOB_BYTES),
        runtime.kernels_to_load(loaded),
        runtime.sklearn_bytes(),
    )
