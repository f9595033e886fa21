"""The manual names every command and every option, and nothing that does not exist."""

from __future__ import annotations

import functools
import re
from inspect import signature
from pathlib import Path

import click
import pytest

from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from mlfs_dask_cli.main import COMMANDS, mlfs

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def command(name: str) -> click.Command:
    found = mlfs.get_command(click.Context(mlfs), name)
    assert found is not None
    return found


def flags(of: click.Command) -> set[str]:
    return {
        flag
        for parameter in of.get_params(click.Context(of))
        if isinstance(parameter, click.Option)
        for flag in parameter.opts
    }


@functools.cache
def all_flags(name: str) -> set[str]:
    """Options of a command; of one that takes a method, those that all methods share."""
    found = command(name)
    if not isinstance(found, click.Group):
        return flags(found)
    methods = [found.get_command(click.Context(found), method) for method in METHODS]
    return set.intersection(*(flags(method) for method in methods if method is not None))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_in_the_manual(name: str) -> None:
    text = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    shared = text.split("## Shared options")[1].split("\n## ")[0]
    sections = re.findall(rf"^## mlfs {name}\b(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(sections) == 1, f"docs/reference/commands.md has no section 'mlfs {name}'"
    missing = {flag for flag in all_flags(name) if f"`{flag}" not in sections[0] + shared}
    assert not missing


@pytest.mark.parametrize("method", METHODS)
def test_every_method_and_its_options_are_in_the_manual(method: str) -> None:
    page = (DOCS / "reference" / "methods" / f"{method}.md").read_text(encoding="utf-8")
    group = command("select")
    assert isinstance(group, click.Group)
    found = group.get_command(click.Context(group), method)
    assert found is not None
    missing = {flag for flag in flags(found) - all_flags("select") if f"`{flag}`" not in page}
    assert not missing


def test_the_manual_names_the_methods_that_take_no_weights() -> None:
    text = (DOCS / "reference" / "methods.md").read_text(encoding="utf-8")
    named = re.search(r"\(all but (.*?) and those with a loop over the rows\)", text)
    assert named is not None
    loops = {name for name in METHODS if get_estimator(name).plain.keeps_checkpoints}
    assert {name for name in METHODS if "sample_weight" not in signature(get_estimator(name).fit).parameters} == (
        loops | set(re.findall("`(.*?)`", named[1]))
    )


def test_the_manual_names_no_option_that_does_not_exist() -> None:
    known = {"--help", "--version", "--group"}
    known |= {"--host", "--port", "--nthreads", "--no-nanny", "--no-dashboard", "--local-directory"}  # Dask's commands
    known |= {"--from", "--spec"}  # those of uvx and pipx
    known |= {"--ntasks", "--mem", "--mem-per-cpu"}  # sbatch's
    known |= {"--detach", "--rm", "--from-file", "--now"}  # those of docker compose, kubectl and systemctl
    for name in COMMANDS:
        known |= all_flags(name)
    group = command("select")
    assert isinstance(group, click.Group)
    for method in METHODS:
        found = group.get_command(click.Context(group), method)
        assert found is not None
        known |= flags(found)
    scripts = {
        flag
        for path in (ROOT / "benchmarks").glob("*.py")
        for flag in re.findall(r'add_argument\("(--[a-z-]+)"', path.read_text(encoding="utf-8"))
    }
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text(encoding="utf-8")))
        # Pages of measurements also name options of the scripts that make them.
        measured = ("benchmarks.md", "choosing.md", "comparisons.md", "error-control.md", "quality.md")
        own = scripts if page.name in measured else set()
        if page.name == "peers.md":  # names options of other programs, too; its commands are run by a test
            lines = re.findall(r"^mlfs .*$", page.read_text(encoding="utf-8"), re.MULTILINE)
            named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines)))
        assert named <= known | own, f"{page.name}: {sorted(named - known - own)}"


def test_no_command_is_hidden_from_the_group() -> None:
    files = {path.stem for path in (ROOT / "cli").glob("*.py")}
    helpers = {"__init__", "failure", "main", "method_group", "options", "output", "progress", "summary"}
    assert files - helpers == set(COMMANDS)
