"""What every task of a SLURM job runs: the first is the scheduler, the second the mlfs command, the others are workers.

mlfs.sbatch starts it. The environment variable MLFS_INTERFACE names the network interface to use, as in ib0.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

WORKER_FRACTION = 0.9
"""Of a task's memory; what is left is for the process that watches the worker."""

WORKER_WAIT = 300
"""Seconds for which workers and scheduler wait for one another."""


def task_bytes(environment: Mapping[str, str], available: int) -> int:
    """Memory of one task: --mem-per-cpu, or its share of --mem, or of what the node has available."""
    if per_cpu := int(environment.get("SLURM_MEM_PER_CPU", 0)):
        return per_cpu * 2**20 * int(environment.get("SLURM_CPUS_PER_TASK", 1))
    # Tasks of every node, as in 4(x2),3.
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", environment["SLURM_STEP_TASKS_PER_NODE"])
    tasks = [int(count) for count, times in counts for _ in range(int(times or 1))]
    # --mem=0 leaves the variable out.
    per_node = int(environment.get("SLURM_MEM_PER_NODE", 0)) * 2**20 or available
    return per_node // tasks[int(environment["SLURM_NODEID"])]


def main() -> None:
    from dask_jobqueue.slurm import SLURMRunner
    from distributed import Client, rpc
    from distributed.security import Security

    from mlfs_dask.runtime import available_memory

    # At the end of the job's time SIGTERM reaches all of its processes; the command alone heeds it. A process inherits
    # what is ignored, as workers do here, and not what is handled.
    is_command = os.environ["SLURM_PROCID"] == "1"
    signal.signal(signal.SIGTERM, (lambda signum, frame: None) if is_command else signal.SIG_IGN)
    folder = Path(os.environ["MLFS_JOB_FOLDER"])
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    security = Security(
        require_encryption=True,
        tls_ca_file=cert,
        **dict.fromkeys(("tls_scheduler_cert", "tls_worker_cert", "tls_client_cert"), cert),
        **dict.fromkeys(("tls_scheduler_key", "tls_worker_key", "tls_client_key"), key),
    )
    shared = {
        "interface": os.environ.get("MLFS_INTERFACE"),
        "protocol": "tls",
        "security": security,
        "dashboard_address": "127.0.0.1:0",
    }
    with SLURMRunner(
        scheduler_file=str(folder / "scheduler.json"),
        scheduler_options={**shared, "port": 0},
        worker_class="distributed.Nanny",
        worker_options={
            **shared,
            "death_timeout": WORKER_WAIT,
            "nthreads": int(os.environ.get("SLURM_CPUS_PER_TASK", 1)),
            "memory_limit": int(task_bytes(os.environ, available_memory()) * WORKER_FRACTION),
            "local_directory": os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir(),
        },
    ) as runner:
        # The command alone comes here. The runner would end the cluster by a connection without TLS.
        runner.scheduler_comm = rpc(runner.scheduler_address, connection_args=security.get_connection_args("client"))
        # A worker that started after a short command would look for a scheduler that has gone.
        with suppress(TimeoutError), Client(runner.scheduler_address, security=security) as client:
            client.wait_for_workers(runner.n_workers, timeout=WORKER_WAIT)
        cluster = ["--scheduler", runner.scheduler_address, "--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key]
        code = subprocess.run(["mlfs", *sys.argv[1:], *cluster, "--wait", str(WORKER_WAIT)], check=False).returncode
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
