"""Shared options of a file and of the environment; what is given on the command line comes first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mlfs_dask_cli.options import Command, Computing, computing_options, output_options
from tests.cli.conftest import Run, RunJson


@click.command(cls=Command)
@computing_options(cache=True, report=False)
@output_options(progress=True)
def show(computing: Computing, output: Any) -> None:
    """Print what a command would compute with."""
    shown = {**computing.cluster, **computing.cache, "progress": output.progress}
    click.echo(json.dumps({name: value for name, value in shown.items() if value not in (None, False)}))


def told(*words: str, **variables: str | None) -> Any:
    done = CliRunner().invoke(show, words, env={"MLFS_CACHE": None, **variables})
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "mlfs" / "config.toml"
    file.parent.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return file


def test_the_command_line_before_the_environment_before_the_file(settings: Path) -> None:
    settings.write_text('memory-limit = "2GiB"\ncache = "none"\nwait = 5\nprogress = "none"\n')
    of_file = told()
    assert (of_file["memory_limit"], of_file["wait"], of_file["progress"]) == (2**31, 5.0, "none")
    assert "place" not in of_file
    of_environment = told(MLFS_MEMORY_LIMIT="3GiB", MLFS_CACHE="auto")
    assert (of_environment["memory_limit"], of_environment["place"], of_environment["wait"]) == (3 * 2**30, "auto", 5.0)
    assert told("--memory-limit", "4GiB", MLFS_MEMORY_LIMIT="3GiB")["memory_limit"] == 2**32


def test_a_place_that_is_given_replaces_the_cluster_of_a_weaker_source(settings: Path) -> None:
    settings.write_text('scheduler = "tls://host:8786"\ntls-cert = "cert.pem"\nmemory-limit = "2GiB"\n')
    assert told()["scheduler"] == "tls://host:8786"
    given = told("--in-process")
    assert given["in_process"]
    assert given["memory_limit"] == 2**31
    assert not {"scheduler", "tls_cert"} & set(given)
    given = told(MLFS_WORKERS="2")
    assert given["workers"] == 2
    assert "scheduler" not in given
    assert told("--tls-cert", "other.pem")["scheduler"] == "tls://host:8786"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("memory_limit = 1", "there is no setting 'memory_limit'. Did you mean memory-limit?"),
        ('memory-limit = "much"', "memory-limit: 'much' is no size"),
        ('in-process = "yes"', "in-process: 'yes' is neither true nor false."),
        ("wait 5", "config.toml: Expected '=' after a key"),
    ],
)
def test_what_the_file_may_not_say(text: str, problem: str, settings: Path, run: Run, tmp_path: Path) -> None:
    settings.write_text(text)
    refused = run("select", "chi2", tmp_path / "absent.zarr", "-k", 1, "-o", tmp_path / "run")
    assert refused.exit_code == 2
    assert str(settings) in refused.stderr
    assert problem in refused.stderr
    assert run("select", "chi2", "--help").exit_code == 0


def test_doctor_shows_the_settings(settings: Path, run_json: RunJson) -> None:
    settings.write_text("wait = 5")
    (check, *_) = run_json("doctor")["checks"]
    assert check["name"] == "settings"
    assert check["detail"] == f"file {settings} (wait); variables of the environment: MLFS_CACHE"
