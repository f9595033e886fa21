"""The address of Dask's dashboard, and its performance report."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from mlfs_dask.cluster.dashboard import dashboard_link, performance_report
from mlfs_dask.errors import UsageError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.storage.convert import convert

CLIENT = SimpleNamespace()


class Pages(http.server.BaseHTTPRequestHandler):
    """Servers of schedulers.

    One with a dashboard, below /no-bokeh one that only says what it needs, and below /closed what `--no-dashboard`
    leaves of one that has bokeh.
    """

    pages = ("/status", "/individual-plots.json", "/no-bokeh/status", "/closed/individual-plots.json")

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200 if self.path in self.pages else 404)
        self.end_headers()


@pytest.fixture
def server():
    with http.server.HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_dashboard_is_named_where_it_answers(server, free_port):
    def link_of(address):
        client = SimpleNamespace(dashboard_link=address)
        return dashboard_link(client)

    assert link_of(f"{server}/status") == f"{server}/status"
    assert link_of(f"{server}/no-bokeh/status") is None
    assert link_of(f"{server}/closed/status") is None
    assert link_of(f"{server}/none/status") is None, "the HTTP server of a scheduler without a dashboard"
    assert link_of(f"http://127.0.0.1:{free_port}/status") is None
    assert link_of("inproc://1/status") is None


def test_a_report_needs_a_cluster_bokeh_and_a_folder(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"is about a cluster, and there is none\n  cure: give .*workers"):
        performance_report(None, "report.html").__enter__()
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: object())
        with pytest.raises(UsageError, match="there is no such folder"):
            performance_report(CLIENT, str(tmp_path / "none" / "report.html")).__enter__()
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(UsageError, match=re.escape('needs bokeh\n  cure: pip install "mlfs-dask[dashboard]"')):
            performance_report(CLIENT, "report.html").__enter__()
    with performance_report(None, None):
        pass


@pytest.mark.cluster
def test_a_report_of_a_selection(tmp_path):
    pytest.importorskip("bokeh", reason="bokeh is not installed (extra `dashboard`)")
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *(f"{i},{i % 5},{i % 2}" for i in range(64))]) + "\n")
    convert(tmp_path / "t.csv", tmp_path / "t.zarr", labels=LabelSpec(columns=("y",)))
    words = ["select", "label-entropy", "t.zarr", "-k", "1", "-o", "run", "--workers", "1", "--memory-limit", "1GiB"]
    done = subprocess.run(
        [sys.executable, "-m", "mlfs_dask", *words, "--performance-report", "report.html"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "Dask Performance Report" in page
    assert re.search(r"number of tasks: [1-9]", page)
    assert "select label-entropy t.zarr -k 1 -o run" in page
    assert not re.search(r"<script[^>]+src=", page), "it needs no network"
