"""Dask's dashboard: its address, and the performance report as a file."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mlfs_dask.errors import UsageError, parameter

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger(__name__)

#: Seconds within which a dashboard must answer.
ANSWER_SECONDS = 2.0


def dashboard_link(client: Client) -> str | None:
    """Return the address of the scheduler's dashboard; None without a dashboard, or if it is unreachable from here."""
    import urllib.parse
    import urllib.request  # its import takes a twentieth of a small selection, which has no scheduler

    link = client.dashboard_link
    if not str(link).startswith(("http://", "https://")):
        return None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the scheduler is reached without a proxy
    # The scheduler's HTTP server runs without a dashboard, too. Without bokeh, its page /status asks for bokeh and the
    # list of plots is missing; with bokeh and --no-dashboard, the list exists and /status is missing.
    for page in ("status", "individual-plots.json"):
        try:
            opener.open(urllib.parse.urljoin(link, page), timeout=ANSWER_SECONDS).close()
        except (OSError, ValueError):
            return None
    return str(link)


@contextlib.contextmanager
def performance_report(client: Client | None, path: str | None) -> Iterator[None]:
    """Write Dask's performance report of the with-block: tasks, transfers, memory and profiles of the workers.

    Parameters
    ----------
    client : distributed.Client or None
        The default client.
    path : str or None
        HTML file that displays without network access; None to write no report.

    Raises
    ------
    UsageError
        There is no cluster, no bokeh, or no such folder.
    """
    if path is None:
        yield
        return
    option = parameter("performance_report")
    if client is None:
        raise UsageError(
            f"{option} is about a cluster, and there is none\n  cure: give {parameter('workers')} or"
            f" {parameter('scheduler')}"
        )
    if importlib.util.find_spec("bokeh") is None:
        raise UsageError(
            f'{option} needs bokeh\n  cure: pip install "mlfs-dask[dashboard]", here and where the scheduler runs'
        )
    if not Path(path).absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no such folder\n  cure: make it, or give another place to {option}")
    import distributed

    report = distributed.performance_report(filename=path, mode="inline")
    report.__enter__()
    yield
    try:
        # Without `code` the report would show the source of this function.
        client.sync(report.__aexit__, None, None, None, code=shlex.join(sys.argv))
    except Exception as error:  # e.g. a scheduler without bokeh; the work itself is done
        logger.warning("no performance report could be written to %s: %s", path, error)
