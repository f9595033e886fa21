"""How the command begins: Ctrl-C before anything is imported, closed standard streams, shell completion."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlfs_dask_cli.main import COMMANDS
from tests.cli.stand_ins import run_with_module

MLFS = [sys.executable, "-m", "mlfs_dask"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("module", "name"), [("click", "SIGINT"), ("typing", "SIGINT"), ("typing", "SIGTERM"), ("typing", "SIGHUP")]
)
def test_a_signal_while_modules_are_imported_is_one_line(tmp_path: Path, module: str, name: str) -> None:
    """A module that the command imports first stands in for a slow disk; `typing` is what others import first."""
    text = f"import os, signal, time\nos.kill(os.getpid(), signal.{name})\ntime.sleep(60)\n"
    command = [str(Path(sys.executable).with_name("mlfs")), "inspect", "absent.zarr"]
    done = run_with_module(tmp_path, module, text, command)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "mlfs: interrupted. Nothing was begun; run the same command again.\n"


def test_a_signal_that_the_parent_ignores_stays_ignored(tmp_path: Path) -> None:
    """As under nohup; the module is imported when the command runs."""
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nraise SystemExit(7)\n"
    (tmp_path / "zarr.py").write_text(text, encoding="utf-8")
    store = tmp_path / "store.zarr"
    (store / "X").mkdir(parents=True)
    (store / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}', encoding="utf-8")
    program = (
        "import signal, sys, subprocess\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    )
    command = [sys.executable, "-c", program, *MLFS, "convert", store, tmp_path / "out.zarr"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False)
    assert done.returncode == 7


def closed(number: int, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run `mlfs` with a standard stream closed."""
    program = f"import os, sys\nos.close({number})\nos.execv(sys.argv[1], sys.argv[1:])"
    return subprocess.run([sys.executable, "-c", program, *MLFS, *words], capture_output=True, text=True, check=False)


def test_standard_error_may_be_closed(tiny_store: Path, tmp_path: Path) -> None:
    for progress in ("auto", "json"):
        run = tmp_path / progress
        words = ["select", "elc", str(tiny_store), "-k", "2", "-o", str(run), "--progress", progress]
        done = closed(2, [*words, "--max-iter", "3", "-v"])
        assert done.returncode == 0, done.stderr
        assert "did not converge after 3 iterations" in done.stdout
        assert "mlfs:" not in done.stdout
        assert sorted(path.name for path in run.iterdir()) == ["ranking.csv", "run.json", "selected.txt"]
    assert closed(2, words).returncode == 2  # the place is taken


def test_standard_output_may_be_closed(tiny_store: Path) -> None:
    done = closed(1, ["inspect", str(tiny_store)])
    assert (done.returncode, done.stderr) == (0, "")


# Shell completion


def answers(**variables: str) -> str:
    """What `mlfs` answers to a shell."""
    program = "import sys; sys.argv = ['mlfs']; from mlfs_dask_cli import start; start()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mlfs ", list(COMMANDS)),
        ("mlfs se", ["select"]),
        ("mlfs select e", ["ela-chi", "elc", "enm"]),
        ("mlfs select elc,e", ["elc,ela-chi", "elc,enm"]),
        ("mlfs plan GM", ["gmlc", "gmm"]),
        ("mlfs methods smf", ["smfs"]),
        ("mlfs select elc x.zarr --mask", ["--mask-iter"]),
        ("mlfs select elc,mfsir x.zarr --n-late", ["--n-latent"]),
        ("mlfs select elc x.zarr --variant s", ["screen"]),
        ("mlfs select nonsense --", []),
        ("mlfs nonsense x", []),
        ("mlfs inspect t", ["file,t"]),  # the shell completes it
    ],
)
def test_words_are_completed(line: str, offered: list[str]) -> None:
    words = line.split(" ")
    found = answers(_MLFS_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert [answer.removeprefix("plain,") for answer in found.splitlines() if answer] == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_documented_shell_has_a_script(shell: str) -> None:
    assert f"_MLFS_COMPLETE={shell}_source mlfs" in line_of_the_manual(shell)
    assert "_MLFS_COMPLETE" in answers(_MLFS_COMPLETE=f"{shell}_source")


def test_completing_a_method_imports_none() -> None:
    program = (
        "import sys; from click.shell_completion import ShellComplete; from mlfs_dask_cli.main import mlfs\n"
        "print([i.value for i in ShellComplete(mlfs, {}, 'mlfs', '').get_completions(['select'], 'e')])\n"
        "sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "['ela-chi', 'elc', 'enm']\n")


def line_of_the_manual(shell: str) -> str:
    """What the manual puts into the start-up file of a shell."""
    manual = (Path(__file__).parent.parent.parent / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {shell}\b[^|]*\| `(.*)` \|$", manual, re.MULTILINE)
    assert found is not None
    return found[1].replace(r"\|", "|")


@pytest.fixture
def path_with_mlfs(tmp_path: Path) -> dict[str, str]:
    """Environment with `mlfs` on the path, and a folder of its own as home."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mlfs"
    program.write_text(f"#!{sys.executable}\nfrom mlfs_dask_cli import start\nstart()\n", encoding="utf-8")
    program.chmod(0o755)
    home = str(tmp_path)
    return {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": home,
        "ZDOTDIR": home,
        "TERM": "dumb",
    }


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_takes_the_line_of_the_manual(path_with_mlfs: dict[str, str]) -> None:
    script = (
        f"{line_of_the_manual('bash')}\n"
        "complete -p mlfs\n"
        "COMP_WORDS=(mlfs select smf); COMP_CWORD=2; _mlfs_completion mlfs\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=path_with_mlfs, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "smfs", done.stderr
    assert "_mlfs_completion mlfs" in done.stdout


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_the_line_of_the_manual(path_with_mlfs: dict[str, str], tmp_path: Path) -> None:
    """On a terminal, where alone it completes."""
    (tmp_path / ".zshrc").write_text(f"{line_of_the_manual('zsh')}\nPROMPT='ready '\n")
    ours, terminal = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-i"], env=path_with_mlfs, cwd=tmp_path, stdin=terminal, stdout=terminal, stderr=terminal
    ) as zsh:
        os.close(terminal)
        shown = b""

        def read_until(text: bytes) -> None:
            nonlocal shown
            deadline = time.monotonic() + 60
            while text not in shown:
                assert select.select([ours], [], [], max(deadline - time.monotonic(), 0))[0], shown
                shown += os.read(ours, 4096)

        try:
            read_until(b"ready ")
            os.write(ours, b"mlfs select smf\t")
            read_until(b"mlfs select smfs ")
        finally:
            zsh.kill()
            os.close(ours)
    assert b"not found" not in shown


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_takes_the_line_of_the_manual(path_with_mlfs: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "fish" / "completions" / "mlfs.fish"
    file.parent.mkdir(parents=True)
    file.write_text(line_of_the_manual("fish"))
    done = subprocess.run(
        ["fish", "-c", "complete -C 'mlfs select smf'; complete -C 'mlfs select elc --variant s'"],
        env={**path_with_mlfs, "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["smfs", "screen"], done.stderr
