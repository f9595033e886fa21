"""Commands with a module of a test in the place of one that they import."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path


def run_with_module(folder: Path, module: str, text: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, where the module is written to; it comes before the installed one."""
    (folder / f"{module}.py").write_text(text, encoding="utf-8")
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
