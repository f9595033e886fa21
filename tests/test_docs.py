"""The documentation: recipes and the tutorial are run, the site is built, and its links lead somewhere."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import mlfs_dask

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def script_of(page: Path) -> str:
    """The blocks of a page as one shell script; a YAML block becomes the file that its first line names."""
    text = page.read_text(encoding="utf-8")
    lines = ["set -eux"]
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "sh":
            lines.append(body)
        elif language == "python":
            lines.append(f"python - <<'END'\n{body}END\n")
        elif language == "yaml":
            lines.append(f"cat > {body.split()[1]} <<'END'\n{body}END\n")
    return "\n".join(lines)


def run_page(page: Path, folder: Path, **variables: str) -> str:
    """Run a page in a folder; what it leaves running in the background is ended. Gives what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = folder / "printed"
    with (
        printed.open("wb") as stream,
        subprocess.Popen(
            ["bash", "-c", script_of(page)],
            cwd=folder,
            env={**os.environ, "PATH": path, **variables},
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing of the page runs any more
                os.killpg(process.pid, signal.SIGKILL)
    text = printed.read_text(encoding="utf-8", errors="replace")
    assert code == 0, text[-4000:]
    return text


@pytest.mark.cluster
def test_recipes(tmp_path: Path) -> None:
    pytest.importorskip("anndata")
    printed = run_page(DOCS / "recipes.md", tmp_path)
    promised = re.search(r"```text\n(.*?)```", (DOCS / "recipes.md").read_text(encoding="utf-8"), re.DOTALL)
    assert promised is not None
    assert (tmp_path / "cells.elc" / "selected.txt").read_text() == promised[1]
    assert "['gene 7' 'gene 3' 'gene 12']" in printed or "['gene 3' 'gene 7' 'gene 12']" in printed
    for page in ("cells.html", "grid.html"):
        assert "is the best of" in (tmp_path / page).read_text(encoding="utf-8")


@pytest.mark.timeout(1800)
def test_tutorial(data_set: Callable[[str], Path], tmp_path: Path) -> None:
    """The table of the page is what the page makes."""
    import pandas as pd

    (data,) = {data_set(name).parent for name in ("emotions", "yeast", "birds", "enron", "genbase")}
    shutil.copy(DOCS / "elc-2020.yaml", tmp_path)
    run_page(DOCS / "tutorial.md", tmp_path, MLFS_DATA=str(data))
    results = pd.read_parquet(tmp_path / "elc-2020" / "results.parquet")
    made = results.groupby(["metric", "run", "dataset"])["value"].mean()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (DOCS / "tutorial.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    datasets, titles = rows[0][2:], {"AUC": "macro_auc", "one-error": "one_error"}
    metric = ""
    compared = 0
    for title, run, *values in rows[2:]:
        if title:
            words = re.split(r"[,(]", title)[0].strip()
            metric = titles.get(words, words.lower().replace(" ", "_"))
        if run == "paper":
            continue
        for dataset, value in zip(datasets, values, strict=True):
            assert made[metric, run, dataset] == pytest.approx(float(value), abs=0.002), (metric, run, dataset)
            compared += 1
    assert compared == 5 * 3 * 5


def test_the_plans_of_the_page_on_machines_have_the_lines_of_a_plan(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from mlfs_dask_cli.main import mlfs

    (tmp_path / "s.csv").write_text("x,z,y\n" + "".join(f"{row % 2},{row % 3},{row % 2}\n" for row in range(12)))
    store = str(tmp_path / "s.zarr")
    run = CliRunner().invoke
    assert run(mlfs, ["convert", str(tmp_path / "s.csv"), store, "--label-columns", "y"]).exit_code == 0

    def names(table: str) -> set[str]:
        return set(re.findall(r"^(\w.*?)  ", table, re.MULTILINE))

    text = (DOCS / "machines.md").read_text(encoding="utf-8")
    plans = re.findall(r"^\$ mlfs (plan .*)\n((?:[^$`m].*\n)+)", text, re.MULTILINE)
    assert len(plans) == 3
    for words, shown in plans:
        made = run(mlfs, [store if word == "big.zarr" else word for word in words.split()])
        assert made.exit_code == 0, made.output
        assert names(shown) - {"note"} == names(made.output) - {"note"}


def test_the_reference_names_everything_public() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)$", text, re.MULTILINE))
    assert {name for name in mlfs_dask.__all__ if name != "__version__"} <= named


class _Page(HTMLParser):
    """Links of a page, and what they may lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.anchors |= {str(known["id"])} if known.get("id") else set()
        self.links += [str(known[name]) for name in ("href", "src") if known.get(name)]


def test_the_site_is_whole(tmp_path: Path) -> None:
    """Built without a warning, and every link in it leads to a file and an anchor."""
    pytest.importorskip("sphinx", reason="needs the group docs (make docs)")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees", DOCS, site]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages: dict[Path, _Page] = {}
    for path in site.rglob("*.html"):
        pages[path.resolve()] = page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    assert {f"{path.stem}.html" for path in DOCS.glob("*.md")} <= {path.name for path in pages}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (
                target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].anchors
            ):
                broken.append(f"{path.name}: {link}")
    assert broken == []
