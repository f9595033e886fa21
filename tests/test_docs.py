"""The documentation: recipes and the tutorial are run, the site is built, and its links lead somewhere."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlfs_dask
from mlfs_dask.batch.spec import read_spec
from mlfs_dask.evaluation.protocols import make_settings
from mlfs_dask.selectors import METHODS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def script_of(pages: Sequence[Path]) -> str:
    """The blocks of pages as one shell script; a YAML block becomes the file that its first line names."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    lines = ["set -eux"]
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "sh":
            lines.append(body)
        elif language == "python":
            lines.append(f"python - <<'END'\n{body}END\n")
        elif language == "yaml":
            lines.append(f"cat > {body.split()[1]} <<'END'\n{body}END\n")
    return "\n".join(lines)


def run_page(pages: Sequence[Path], folder: Path, **variables: str) -> str:
    """Run pages in turn in a folder; what they leave running is ended. Gives what they printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = folder / "printed"
    with (
        printed.open("wb") as stream,
        subprocess.Popen(
            ["bash", "-c", script_of(pages)],
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
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_recipes(tmp_path: Path) -> None:
    pytest.importorskip("anndata")
    pages = [DOCS / "howto" / f"{name}.md" for name in ("own-files", "cluster", "batch")]
    printed = run_page(pages, tmp_path)
    promised = re.search(r"```text\n(.*?)```", pages[0].read_text(encoding="utf-8"), re.DOTALL)
    assert promised is not None
    assert (tmp_path / "cells.elc" / "selected.txt").read_text() == promised[1]
    assert "['gene 7' 'gene 3' 'gene 12']" in printed or "['gene 3' 'gene 7' 'gene 12']" in printed
    for page in ("cells.html", "grid.html"):
        assert "is the best of" in (tmp_path / page).read_text(encoding="utf-8")


def mlfs(*words: object) -> str:
    """What a command prints, which ends well."""
    from click.testing import CliRunner

    from mlfs_dask_cli.main import mlfs

    done = CliRunner().invoke(mlfs, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first steps, from the file of digits that `mlfs demo` writes."""
    from mlfs_dask.demo import write_digits

    monkeypatch.chdir(tmp_path)
    Path("digits").mkdir()
    write_digits(Path("digits/digits.arff"))
    text = (DOCS / "start.md").read_text(encoding="utf-8")
    printed = ""
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(body, {})
        for line in body.splitlines() if language == "sh" else ():
            program, *words = shlex.split(line)
            if program == "head":
                printed += Path(words[-1]).read_text()
            else:
                assert program == "mlfs"
                printed += mlfs(*words)
    for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL):
        assert block in printed
    assert Path("digits.elc/pairs.parquet").exists()
    assert Path("chosen.csv").read_text().count("\n") == 1797 + 1


def test_the_commands_beside_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the page runs on a file with the columns that the page names."""
    import anndata
    import pandas as pd

    rng = np.random.default_rng(0)
    donor = np.repeat(np.arange(20), 30)
    disease = (np.arange(20) % 2)[donor]
    X = np.log1p(rng.poisson(1 + disease[:, np.newaxis] * (np.arange(30) < 5), (600, 30))).astype(np.float32)
    columns: dict[str, Any] = {"disease": disease, "treated": (np.arange(20) // 2 % 2)[donor]}
    columns |= {
        "dose": X[:, 0] + rng.normal(size=600),
        "age": rng.uniform(20, 80, 600),
        "weight": rng.uniform(1, 3, 600),
    }
    columns |= {"donor": [f"d{i}" for i in donor], "batch": [f"b{i}" for i in rng.integers(0, 3, 600)]}
    names = [f"c{i}" for i in range(600)]
    monkeypatch.chdir(tmp_path)
    anndata.AnnData(X, obs=pd.DataFrame(columns, index=names)).write_h5ad("cells.h5ad")
    commands = re.findall(r"^mlfs .*$", (DOCS / "explanation" / "peers.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) > 10
    for command in commands:
        mlfs(*shlex.split(command)[1:])
    assert len(pd.read_csv("effects/pairs.csv")) == 60
    assert len(pd.read_parquet("pseudobulk/pairs.parquet")) == 60


@pytest.mark.parametrize("path", sorted((DOCS / "comparisons").glob("*.yaml")), ids=lambda path: path.stem)
def test_comparisons_have_what_the_papers_print(path: Path) -> None:
    """Every method and data set of a printed figure is in the batch file, and every metric in its protocol."""
    import pandas as pd

    jobs = read_spec(path).jobs
    printed = pd.read_csv(DOCS / "comparisons" / "printed.csv")
    printed = printed[printed["comparison"].str.split(" ").str[0] == path.stem]
    assert len(printed) > 50
    assert set(printed["method"]) <= {job.point.run for job in jobs}
    assert set(printed["dataset"]) - {"yahoo-arts", "yahoo-business", "yahoo-education"} == {
        job.store.name for job in jobs
    }
    for job in jobs:
        assert job.evaluation is not None
        settings = make_settings(job.evaluation.protocol, job.evaluation.options)
        assert set(printed["metric"]) <= set(settings.metrics)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_tutorial(data_set: Callable[[str], Path], tmp_path: Path) -> None:
    """The table of the page is what the page makes."""
    import pandas as pd

    (data,) = {data_set(name).parent for name in ("emotions", "yeast", "birds", "enron", "genbase")}
    page = DOCS / "howto" / "compare.md"
    text = page.read_text(encoding="utf-8")
    run_page([page], tmp_path, MLFS_DATA=str(data))
    results = pd.read_parquet(tmp_path / "elc-2020" / "results.parquet")
    made = results.groupby(["metric", "run", "dataset"])["value"].mean()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    metric, datasets, compared = "", [], 0
    for run, *values in rows:
        if values[0] in set(results["dataset"]):  # the head of a table
            metric, datasets = run.lower().replace(" ", "_").replace("-", "_"), values
            continue
        if run == "paper" or run.startswith("-"):
            continue
        for dataset, value in zip(datasets, values, strict=True):
            assert made[metric, run, dataset] == pytest.approx(float(value), abs=0.002), (metric, run, dataset)
            compared += 1
    assert compared == 5 * 3 * 5


def test_the_batch_of_all_methods_names_them_and_the_sets(tmp_path: Path) -> None:
    import yaml

    plan = yaml.safe_load((DOCS / "choosing.yaml").read_text(encoding="utf-8"))
    assert plan["methods"] == sorted(METHODS)
    sets = re.search(r"^SETS.*?^}", (ROOT / "benchmarks" / "real_sets.py").read_text(), re.DOTALL | re.MULTILINE)
    assert sets is not None
    assert plan["stores"] == [f"{name}.zarr" for name in re.findall(r'^    "(.*?)":', sets[0], re.MULTILINE)]

    # The jobs of one set.
    rows = np.random.default_rng(0).integers(0, 2, (60, 23))
    names = [*(f"x{f}" for f in range(20)), "a", "b", "c"]
    np.savetxt(tmp_path / "s.csv", rows, "%d", ",", header=",".join(names), comments="")
    (tmp_path / "choosing.yaml").write_text(yaml.safe_dump({**plan, "stores": ["s.zarr"]}))
    mlfs("convert", tmp_path / "s.csv", tmp_path / "s.zarr", "--label-columns", "a,b,c")
    jobs = json.loads(mlfs("batch", tmp_path / "choosing.yaml", "--dry-run", "--json"))["jobs"]
    assert sorted(job["job"] for job in jobs) == sorted(f"s.evaluation.{name}" for name in (*METHODS, "random"))


def test_the_plans_of_the_page_on_machines_have_the_lines_of_a_plan(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("x,z,y\n" + "".join(f"{row % 2},{row % 3},{row % 2}\n" for row in range(12)))
    store = str(tmp_path / "s.zarr")
    mlfs("convert", tmp_path / "s.csv", store, "--label-columns", "y")

    def names(table: str) -> set[str]:
        return set(re.findall(r"^(\w.*?)  ", table, re.MULTILINE))

    text = (DOCS / "explanation" / "readings.md").read_text(encoding="utf-8")
    plans = re.findall(r"^\$ mlfs (plan .*)\n((?:[^$`m].*\n)+)", text, re.MULTILINE)
    assert len(plans) == 3
    for words, shown in plans:
        made = mlfs(*(store if word == "big.zarr" else word for word in words.split()))
        assert names(shown) - {"note"} == names(made) - {"note"}


def test_the_reference_names_everything_public() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   ~mlfs_dask\.([A-Za-z_.]+)$", text, re.MULTILINE)
    named = {part for name in listed for part in name.split(".")}  # of plot.ranking, plot is public
    for method in METHODS:
        page = (DOCS / "reference" / "methods" / f"{method}.md").read_text(encoding="utf-8")
        named |= set(re.findall(r"^```{py:class} mlfs_dask\.(\w+)\(", page, re.MULTILINE))
    assert {name for name in mlfs_dask.__all__ if name != "__version__"} <= named


def test_what_is_made_of_the_methods_is_up_to_date() -> None:
    """`python docs/listing.py` writes it."""
    for path, text in runpy.run_path(str(DOCS / "listing.py"))["files"]().items():
        assert path.read_text(encoding="utf-8") == text


#: The page that answers a word of a search.
ANSWERS = {
    "covariates": "howto/covariates",
    "scanpy": "howto/own-files",
    "highly_variable": "howto/own-files",
    "LocalCluster": "howto/cluster-python",
    "Windows": "reference/install",
    "citation": "reference/install",
}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    pytest.importorskip("sphinx", reason="needs the group docs (make docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        folder / "trees",
        DOCS,
        folder / "html",
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder / "html"


def test_the_site_is_whole(site: Path, tmp_path: Path) -> None:
    """Every page is there, and every link in it, and between the files of the repository, leads somewhere."""
    assert {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")} <= {
        path.relative_to(site) for path in site.rglob("*.html")
    }
    checked = subprocess.run([sys.executable, DOCS / "links.py", site], capture_output=True, text=True, check=False)
    assert (checked.stdout, checked.returncode) == ("", 0)
    links = '<a href="none.html">x</a><a href="start.html#none">y</a><a href="start.html">z</a>'
    (tmp_path / "index.html").write_text(links)
    shutil.copy(site / "start.html", tmp_path)
    checked = subprocess.run([sys.executable, DOCS / "links.py", tmp_path], capture_output=True, text=True, check=False)
    of_index = [line.rpartition(": ")[2] for line in checked.stdout.splitlines() if "index.html: " in line]
    assert of_index == ["none.html", "start.html#none"]
    assert checked.returncode == 1


def test_the_site_in_a_browser(site: Path, browser: Any) -> None:
    """On a phone no page is too wide, every picture is there, and the search finds the pages that answer words."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.wait import WebDriverWait

    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        for page in site.rglob("*.html"):
            browser.get(page.as_uri())
            width, broken = browser.execute_script(
                "return [document.documentElement.scrollWidth, "
                "[...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)]"
            )
            assert (width, broken) == (390, []), page
        for word, page in ANSWERS.items():
            browser.get(f"{(site / 'search.html').as_uri()}?q={word}")
            WebDriverWait(browser, 10).until(
                lambda of, page=page: of.find_elements(By.CSS_SELECTOR, f"#search-results li a[href*='{page}.html']")
            )
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_pictures_are_drawn_from_what_the_repository_has(tmp_path: Path) -> None:
    """`python docs/pictures.py` draws them: those of measurements here, others take selections first."""
    from mlfs_dask.reporting.figures import write_figure

    pictures = runpy.run_path(str(DOCS / "pictures.py"))["PICTURES"]
    assert all((DOCS / f"{name}.png").exists() for name in pictures)
    for name in (
        "explanation/choosing-cost",
        "explanation/choosing-ranks",
        "explanation/choosing-small",
        "reference/growth",
        "reference/anchors",
    ):
        write_figure(pictures[name](), tmp_path / "picture.png")
        assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_links_of_the_repository_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "mlfs_dask").mkdir()
    shutil.copy(DOCS / "links.py", tmp_path / "docs")
    (tmp_path / "README.md").write_text("[a](docs/a.md#two-words) [b](docs/b.md) [c](docs/a.md#three) [d](#none)")
    (tmp_path / "docs" / "a.md").write_text("# A\n\n## Two `words`\n\n[up](../README.md), tests/none.py\n")
    (tmp_path / "mlfs_dask" / "x.py").write_text("# as docs/a.md and benchmarks/none.py say\n")
    command = [sys.executable, tmp_path / "docs" / "links.py"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [line.rpartition(": ")[2] for line in checked.stdout.splitlines()]
    assert found == ["docs/b.md", "docs/a.md#three", "#none", "tests/none.py", "benchmarks/none.py"]
    assert checked.returncode == 1
