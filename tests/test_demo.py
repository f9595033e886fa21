"""The demonstration on digits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlfs_dask.demo import LABELS, METHODS, load_digits, run_demo, write_digits
from mlfs_dask.errors import UsageError
from mlfs_dask.evaluation.results import read_eval
from mlfs_dask.selection.runs import read_run
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask_cli.main import mlfs


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder, and the lines of standard error."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    done = CliRunner().invoke(mlfs, ["demo", str(folder)])
    assert re.fullmatch(rf"Open {folder}/index.html \(made in [\d.]+ s\)\n", done.stdout), done.output
    return folder, done.stderr.splitlines()


def test_every_digit_has_a_label_and_every_label_some_digits() -> None:
    assert set().union(*LABELS.values()) == set(range(10))
    assert all(0 < len(digits) < 10 for digits in LABELS.values())


def test_the_file_holds_images_and_labels(tmp_path: Path) -> None:
    images, digits = load_digits()
    write_digits(tmp_path / "digits.arff")
    text = (tmp_path / "digits.arff").read_text()
    first = text.split("@data\n")[1].splitlines()[0].split(",")
    assert list(map(int, first[:64])) == images[0].tolist()
    assert list(map(int, first[64:])) == [int(digits[0] in having) for having in LABELS.values()]


def test_the_whole_way(demo: tuple[Path, list[str]]) -> None:
    folder, lines = demo
    dataset = open_dataset(folder / "digits.zarr")
    assert dataset.shape == (1797, 64)
    assert list(dataset.label_names) == list(LABELS)
    for method in METHODS:
        run = read_run(str(folder / method))
        assert run.record["method"] == method
        assert run.k == 16
        # The outermost columns of the images are empty.
        assert not {0, 32, 39} & set(run.ranking[:16].tolist())
    assert [line for line in lines if line.startswith("mlfs select")] == [
        f"mlfs select {method} {folder / 'digits.zarr'} -k 16 -o {folder / method}" for method in METHODS
    ]


def test_the_chosen_features_are_judged(demo: tuple[Path, list[str]]) -> None:
    folder, lines = demo
    evaluation = read_eval(folder / "digits.eval")
    of = evaluation.results[evaluation.results["metric"] == "macro_f1"].groupby("run")["value"].mean()
    assert set(of.index) == {*METHODS, "random", "all"}
    for method in METHODS:
        assert of["random"] < of[method]
    assert [line.split()[1] for line in lines if line.startswith("mlfs ")][-2:] == ["evaluate", "report"]


def test_the_page_shows_what_was_chosen(demo: tuple[Path, list[str]]) -> None:
    folder, _ = demo
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<h1>Which pixels tell? Digits with several labels</h1>" in page
    # Chosen pixels are better than random ones, and a half of them or fewer does what all of them do.
    assert re.search(r"better than random features and (as good as|0\.00\d (better|worse) than) all features", page)
    for method in METHODS:
        ranking = read_run(str(folder / method)).ranking
        row, column = divmod(int(ranking[0]), 8)
        found = re.search(rf"{method}: where. Best pixels as \(row, column\) from 1: \((\d), (\d)\)", page)
        assert found is not None
        assert (int(found[1]), int(found[2])) == (row + 1, column + 1)


def test_an_earlier_demo_is_kept_without_force(demo: tuple[Path, list[str]]) -> None:
    folder, _ = demo
    before = (folder / "index.html").stat().st_mtime_ns
    refused = CliRunner().invoke(mlfs, ["demo", str(folder)])
    assert (refused.exit_code, "holds an earlier demo; --force replaces it" in refused.stderr) == (2, True)
    assert (folder / "index.html").stat().st_mtime_ns == before
    assert CliRunner().invoke(mlfs, ["demo", str(folder), "--force"]).exit_code == 0
    assert (folder / "index.html").stat().st_mtime_ns > before


def test_other_files_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for force in (False, True):
        with pytest.raises(UsageError, match="holds other files"):
            run_demo(tmp_path, force=force)
    with pytest.raises(UsageError, match="is a file"):
        run_demo(tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
