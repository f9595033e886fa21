"""Checks of an installation and of a cluster: versions, memory, files, scratch space, a tiny job.

Each check ends as ok, warn or fail, with what to do about it; nothing outside a temporary folder is touched.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlfs_dask import runtime
from mlfs_dask.admission import CURE, admission, describe_mismatches, versions
from mlfs_dask.cluster import connect
from mlfs_dask.errors import ClusterLostError, MlfsError, UsageError, number_of

if TYPE_CHECKING:
    from distributed import Client

LITTLE_MEMORY = 2**30
"""Bytes for a worker below which little but small data fits."""

LITTLE_SPACE = 2**30
"""Bytes of scratch space below which a conversion may not find room for its staging files."""

FEW_FILES = 4096
"""Open files below which a scheduler with many workers, or a store with many shards, runs short."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    name : str
    status : {"ok", "warn", "fail"}
    detail : str
        What was found.
    cure : str
        What to do; empty when ok.
    """

    name: str
    status: str
    detail: str
    cure: str = ""

    def to_dict(self) -> dict[str, str]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Facts:
    """What one process, here or on a worker, can use.

    Attributes
    ----------
    host : str
    versions : dict of str
    memory_limit : int or None
        Bytes that Dask lets the worker have; None where it sets no limit.
    memory_available : int
        Bytes that the system would give: free memory and what control groups leave.
    memory_total : int
        Bytes of the machine or of the control group.
    open_files : int
        How many files may be open at once.
    scratch : str
        Folder for temporary files.
    scratch_free : int
        Bytes free there; -1 if it cannot be written.
    keeps_memory : bool
        Whether freed buffers stay with the process (thresholds of malloc).
    """

    host: str
    versions: dict[str, str]
    memory_limit: int | None
    memory_available: int
    memory_total: int
    open_files: int
    scratch: str
    scratch_free: int
    keeps_memory: bool


def examine(*, directory: str | None = None, **cluster: Any) -> Iterator[Check]:
    """Make all checks, one after the other.

    Parameters
    ----------
    directory : str, optional
        Where the tiny job keeps its files; all workers must see it. Default: the system's temporary folder.
    **cluster
        Options of `mlfs_dask.cluster.connect`.

    Yields
    ------
    Check

    Raises
    ------
    UsageError
        If the cluster options contradict one another.
    """
    yield from check_client(gather_facts())
    try:
        with connect(**cluster) as client:
            yield from _check_workers(client)
            yield check_job(directory, client)
    except UsageError:
        raise
    except ClusterLostError as error:
        yield _failed("cluster", error)


def gather_facts(memory_limit: int | None = None, scratch: str | None = None) -> Facts:
    """Look at this process and its machine."""
    import socket

    scratch = scratch or tempfile.gettempdir()
    trim = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    return Facts(
        host=socket.gethostname(),
        versions=versions(),
        memory_limit=memory_limit,
        memory_available=runtime.available_memory(),
        memory_total=total_memory(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        scratch=scratch,
        scratch_free=_free_space(scratch),
        keeps_memory=trim.isdigit() and int(trim) >= 2**24,
    )


def total_memory(root: str = "/") -> int:
    """Bytes of memory of the machine, or of the control group (version 1 or 2) if that has less.

    Parameters
    ----------
    root : str
        Where /proc and /sys are found.
    """
    amounts = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in runtime.control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                amounts.append(int((group / name).read_text()))
    return min(amounts)


def _free_space(folder: str) -> int:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free
    except OSError:
        return -1


# The checks


def check_client(facts: Facts) -> Iterator[Check]:
    """Checks of the process that runs the command."""
    yield Check("versions", "ok", ", ".join(f"{name} {version}" for name, version in facts.versions.items()))
    yield _check_memory("memory", facts)
    yield _check_files("open files", facts)
    yield _check_scratch("scratch space", facts)


def _check_workers(client: Client | None) -> Iterator[Check]:
    if client is None:
        threads = number_of(runtime.current_resources().threads_per_worker, "thread")
        yield Check("cluster", "ok", f"none: the work is done by {threads} of this process")
        return
    described = admission(client).workers()
    yield Check("cluster", "ok", f"{len(described)} workers at {client.scheduler_info()['address']}")
    yield from (Check("left out", "fail", str(refused), f"{CURE}.") for refused in admission(client).refused)
    facts = {
        address: client.run(
            gather_facts,
            workers=[address],
            memory_limit=int(worker["memory_limit"]) or None,
            scratch=worker["local_directory"],
        )[address]
        for address, worker in described.items()
    }
    yield from check_workers(facts)


def check_workers(facts: dict[str, Facts]) -> Iterator[Check]:
    """Checks of all workers: one line a check, for the worker that is worst off."""
    lines = describe_mismatches(versions(), {address: found.versions for address, found in facts.items()})
    yield Check(
        "worker versions",
        "warn" if lines else "ok",
        "; ".join(lines) or "the same as here",
        "install the same versions on every host" if lines else "",
    )
    for name, check in (
        ("worker memory", _check_memory),
        ("worker open files", _check_files),
        ("worker scratch space", _check_scratch),
        ("worker allocator", _check_allocator),
    ):
        yield _worst(name, check, facts)


def _worst(name: str, check: Callable[[str, Facts], Check], facts: dict[str, Facts]) -> Check:
    checks = [(address, check(name, found)) for address, found in sorted(facts.items())]
    troubled = [(address, found) for address, found in checks if found.status != "ok"]
    if not troubled:
        return checks[0][1]
    address, worst = max(troubled, key=lambda pair: pair[1].status == "fail")
    host = facts[address].host
    detail = f"{worst.detail} (on {len(troubled)} of {len(checks)} workers, the first on {host})"
    return Check(name, worst.status, detail, worst.cure)


def _check_memory(name: str, facts: Facts) -> Check:
    usable = min(facts.memory_limit or facts.memory_available, facts.memory_total)
    detail = f"{_gib(usable)} to use, {_gib(facts.memory_total)} in all"
    if facts.memory_limit is not None and facts.memory_limit > facts.memory_total:
        return Check(
            name,
            "fail",
            f"Dask lets the worker have {_gib(facts.memory_limit)}, its machine or control group "
            f"{_gib(facts.memory_total)}: it would be killed without a word",
            "start the workers with a --memory-limit below that, divided by the workers of the host.",
        )
    if usable < LITTLE_MEMORY:
        return Check(name, "warn", detail, "give 1 GiB or more, or ask `mlfs plan` before every selection.")
    return Check(name, "ok", detail)


def _check_files(name: str, facts: Facts) -> Check:
    unlimited = facts.open_files in (-1, resource.RLIM_INFINITY)
    detail = "no limit" if unlimited else f"{facts.open_files:,} at once"
    if not unlimited and facts.open_files < FEW_FILES:
        return Check(name, "warn", detail, f"raise the limit: ulimit -n {FEW_FILES}")
    return Check(name, "ok", detail)


def _check_scratch(name: str, facts: Facts) -> Check:
    if facts.scratch_free < 0:
        return Check(
            name,
            "fail",
            f"{facts.scratch} cannot be written",
            "point TMPDIR (or `dask worker --local-directory`) to a folder that can be.",
        )
    detail = f"{_gib(facts.scratch_free)} free in {facts.scratch}"
    if facts.scratch_free < LITTLE_SPACE:
        return Check(name, "warn", detail, "make room, or point TMPDIR (`dask worker --local-directory`) elsewhere.")
    return Check(name, "ok", detail)


def _check_allocator(name: str, facts: Facts) -> Check:
    if facts.keeps_memory:
        return Check(name, "ok", "freed buffers are kept for the next block")
    return Check(
        name,
        "warn",
        "freed buffers go back to the system after every block, which slows reading down",
        "start the workers with DASK_CONFIG=deploy/dask.yaml (see deploy/README.md).",
    )


def check_job(directory: str | None, client: Client | None) -> Check:
    """Convert a small file, select from it, and see that the feature that was planted comes first."""
    name = "a tiny job"
    try:
        with tempfile.TemporaryDirectory(prefix="mlfs-doctor-", dir=directory) as folder:
            best, seconds = run_tiny_job(Path(folder))
    except ClusterLostError as error:
        return _failed(name, error)
    except (MlfsError, OSError) as error:
        cure = ""
        if client is not None:
            cure = "give --directory, a folder on a file system that this host and all workers share."
        check = _failed(name, error)
        return Check(name, "fail", check.detail, check.cure or cure)
    if best != PLANTED:
        return Check(name, "fail", f"{best!r} came first, and {PLANTED!r} was planted", "report this.")
    return Check(name, "ok", f"converted and selected in {seconds:.1f} s, with the right result")


PLANTED = "planted"


def run_tiny_job(folder: Path) -> tuple[str, float]:
    """Name of the feature that came first, and the seconds it took."""
    import time

    from mlfs_dask.selectors.label_entropy import LabelEntropy
    from mlfs_dask.storage.convert import convert
    from mlfs_dask.storage.dataset import open_dataset
    from mlfs_dask.storage.readers.base import LabelSpec

    started = time.perf_counter()
    rows = ["noise,planted,label"]
    rows += [f"{row * 37 % 64},{row % 2},{row % 2}" for row in range(64)]
    source = folder / "tiny.csv"
    source.write_text("\n".join(rows) + "\n")
    store = folder / "tiny.zarr"
    convert(source, store, labels=LabelSpec(columns=("label",)))
    dataset = open_dataset(str(store))
    selector = LabelEntropy(n_features_to_select=1).fit(dataset)
    return str(dataset.feature_names[selector.ranking_[0]]), time.perf_counter() - started


def _failed(name: str, error: Exception) -> Check:
    detail, _, cure = str(error).partition("\n  cure: ")
    return Check(name, "fail", detail, cure)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
