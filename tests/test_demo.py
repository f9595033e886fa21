"""The demonstration on digits."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from mlfs_dask.demo import LABELS, METHODS, arff_text, load_digits, page_text, run_demo
from mlfs_dask.errors import UsageError
from mlfs_dask.results import read_run
from mlfs_dask.storage.dataset import open_dataset


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("demo") / "demo"
    told: list[str] = []
    run_demo(folder, tell=told.append)
    return folder, told


def test_every_digit_has_a_label_and_every_label_some_digits() -> None:
    assert set().union(*LABELS.values()) == set(range(10))
    assert all(0 < len(digits) < 10 for digits in LABELS.values())


def test_the_file_holds_images_and_labels() -> None:
    images, digits = load_digits()
    text = arff_text(images, digits)
    first = text.split("@data\n")[1].splitlines()[0].split(",")
    assert list(map(int, first[:64])) == images[0].tolist()
    assert list(map(int, first[64:])) == [int(digits[0] in having) for having in LABELS.values()]


def test_the_whole_way(demo: tuple[Path, list[str]]) -> None:
    folder, told = demo
    dataset = open_dataset(folder / "digits.zarr")
    assert dataset.shape == (1797, 64)
    assert list(dataset.label_names) == list(LABELS)
    for method in METHODS:
        run = read_run(str(folder / method))
        assert run.record["method"] == method
        assert run.k == 16
        # The outermost columns of the images are empty.
        assert not {0, 32, 39} & set(run.ranking[:16].tolist())
    assert [line for line in told if line.startswith("mlfs select")] == [
        f"mlfs select {method} {folder / 'digits.zarr'} -k 16 -o {folder / method}" for method in METHODS
    ]


def test_the_page_shows_what_was_chosen(demo: tuple[Path, list[str]]) -> None:
    folder, _ = demo
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert len(page) < 150_000
    assert "<script" not in page
    assert not re.search(r"(?:src|href)\s*=", page), "the page must stand alone"
    assert "prefers-color-scheme: dark" in page
    assert "$" not in page, "a placeholder was left"
    for method in METHODS:
        figure = re.search(rf"chosen by {method}'>(.*?)</svg>", page, re.DOTALL)
        assert figure is not None
        svg = ET.fromstring(f"<svg>{figure[1]}</svg>")
        found = {int(text.text or 0): (float(text.get("x", 0)), float(text.get("y", 0))) for text in svg.iter("text")}
        ranking = read_run(str(folder / method)).ranking
        places = {
            place: (int(pixel) % 8 + 0.5, int(pixel) // 8 + 0.66) for place, pixel in enumerate(ranking[:16], start=1)
        }
        assert found == places


def test_an_earlier_demo_is_kept_without_force(demo: tuple[Path, list[str]]) -> None:
    folder, _ = demo
    before = (folder / "index.html").stat().st_mtime_ns
    with pytest.raises(UsageError, match="holds an earlier demo; --force does it again"):
        run_demo(folder)
    assert (folder / "index.html").stat().st_mtime_ns == before
    assert run_demo(folder, force=True, k=4)["methods"]["elc"]["selected"][3:] != []


def test_other_files_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for force in (False, True):
        with pytest.raises(UsageError, match="holds other files"):
            run_demo(tmp_path, force=force)
    with pytest.raises(UsageError, match="is a file"):
        run_demo(tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_agreement_is_counted() -> None:
    from mlfs_dask.demo import Choice

    images, digits = load_digits()
    record = {"passes": 1, "bytes_read": 1, "wall_seconds": 0.1, "converged": None, "versions": {}}
    ranking = np.arange(64)
    same = Choice("one", "One", "P", np.zeros(64), ranking, 3, record)
    other = Choice("two", "Two", "P", np.zeros(64), ranking[::-1], 3, record)
    assert "3 of 3 pixels were chosen by all 2 methods" in page_text(images, digits, [same, same])
    assert "No pixel was chosen by every method" in page_text(images, digits, [same, other])
