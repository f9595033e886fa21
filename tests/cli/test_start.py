"""How the command begins: Ctrl-C before anything is imported, closed standard streams, shell completion."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlfs_dask_cli.main import COMMANDS

MLFS = [sys.executable, "-m", "mlfs_dask"]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path: Path) -> None:
    """A module that the command imports first stands in for a slow disk."""
    (tmp_path / "click.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n", encoding="utf-8"
    )
    done = subprocess.run(
        [*MLFS, "inspect", "absent.zarr"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "mlfs: interrupted. Nothing was begun; run the same command again.\n"


def test_an_interrupt_that_the_parent_ignores_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(7)\n", encoding="utf-8"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import signal, sys, subprocess\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "sys.exit(subprocess.run(sys.argv[1:]).returncode)",
            *MLFS,
            "inspect",
            "absent.zarr",
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 7


def closed(number: int, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run `mlfs` with a standard stream closed."""
    program = f"import os, sys\nos.close({number})\nos.execv(sys.argv[1], sys.argv[1:])"
    return subprocess.run([sys.executable, "-c", program, *MLFS, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("progress", ["auto", "plain", "json", "bar"])
def test_standard_error_may_be_closed(tiny_store: Path, tmp_path: Path, progress: str) -> None:
    words = ["select", "elc", str(tiny_store), "-k", "2", "-o", str(tmp_path / "run"), "--progress", progress]
    done = closed(2, [*words, "--max-iter", "3", "-v"])
    assert done.returncode == 0, done.stderr
    assert "did not converge after 3 iterations" in done.stdout
    assert "mlfs:" not in done.stdout
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["ranking.csv", "run.json", "selected.txt"]
    assert closed(2, words).returncode == 2  # the place is taken


def test_standard_output_may_be_closed(tiny_store: Path) -> None:
    done = closed(1, ["inspect", str(tiny_store)])
    assert (done.returncode, done.stderr) == (0, "")


# Shell completion


def complete(line: str) -> list[str]:
    """What the shell is offered for the last word of a line."""
    words = line.split(" ")
    variables = {"_MLFS_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    program = "import sys; sys.argv = ['mlfs']; from mlfs_dask_cli import start; start()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return [answer.partition(",")[2] for answer in done.stdout.splitlines() if answer]


def test_commands_are_completed() -> None:
    assert complete("mlfs ") == list(COMMANDS)
    assert complete("mlfs se") == ["select"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mlfs select e", ["elc", "enm"]),
        ("mlfs select elc,e", ["elc,enm"]),
        ("mlfs plan G", ["gmm"]),
        ("mlfs methods sm", ["smfs"]),
        ("mlfs select elc x.zarr --mask", ["--mask-iter"]),
        ("mlfs select elc,mfsir x.zarr --n-la", ["--n-latent"]),
        ("mlfs select elc x.zarr --variant s", ["screen"]),
        ("mlfs select nonsense --", []),
        ("mlfs nonsense x", []),
    ],
)
def test_methods_options_and_values_are_completed(line: str, offered: list[str]) -> None:
    assert complete(line) == offered


def test_paths_are_completed_by_the_shell() -> None:
    variables = {"_MLFS_COMPLETE": "bash_complete", "COMP_WORDS": "mlfs inspect t", "COMP_CWORD": "2"}
    program = "import sys; sys.argv = ['mlfs']; from mlfs_dask_cli import start; start()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "file,t\n"


def test_completing_a_method_imports_none() -> None:
    program = (
        "import sys; from click.shell_completion import ShellComplete; from mlfs_dask_cli.main import mlfs\n"
        "print([i.value for i in ShellComplete(mlfs, {}, 'mlfs', '').get_completions(['select'], 'e')])\n"
        "sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "['elc', 'enm']\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_line_of_the_manual(tmp_path: Path) -> None:
    """The documented line, in a real bash, with `mlfs` on the path."""
    (tmp_path / "mlfs").write_text(f"#!{sys.executable}\nfrom mlfs_dask_cli import start\nstart()\n", encoding="utf-8")
    (tmp_path / "mlfs").chmod(0o755)
    script = (
        'eval "$(_MLFS_COMPLETE=bash_source mlfs)"\n'
        "complete -p mlfs\n"
        "COMP_WORDS=(mlfs select sm); COMP_CWORD=2; _mlfs_completion mlfs\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "smfs", done.stderr
    assert "_mlfs_completion mlfs" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_documented_shell_has_a_script(shell: str) -> None:
    manual = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"_MLFS_COMPLETE={shell}_source mlfs" in manual
    program = "import sys; sys.argv = ['mlfs']; from mlfs_dask_cli import start; start()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "_MLFS_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_MLFS_COMPLETE" in done.stdout
