"""The recipe of the conda package and the citation say what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from mlfs_dask._version import __version__

REPOSITORY = Path(__file__).parent.parent

#: Names of packages that conda-forge splits.
SPLIT = {"dask": "dask-core", "matplotlib": "matplotlib-base"}


def test_the_citation_is_of_this_version() -> None:
    """Its form was checked by `cffconvert --validate`."""
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert (citation["cff-version"], citation["version"], citation["license"]) == (
        "1.2.0",
        __version__,
        project["license"],
    )
    assert citation["title"].startswith(project["name"])


def test_the_recipe_asks_for_what_the_package_asks_for() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    facts = project["project"]
    recipe = yaml.safe_load((REPOSITORY / "deploy/conda/recipe.yaml").read_text())
    context = recipe["context"]
    assert (context["name"], str(context["version"])) == (facts["name"], __version__)
    assert facts["requires-python"] == f">={context['python_min']}"
    assert (
        f"setuptools {project['build-system']['requires'][0].removeprefix('setuptools')}"
        in recipe["requirements"]["host"]
    )
    scripts = [f"{name} = {place}" for name, place in facts["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    assert recipe["about"]["summary"] == facts["description"]
    assert recipe["about"]["license"] == facts["license"]

    def asked(texts: list[str]) -> set[tuple[str, ...]]:
        found = {re.fullmatch(r"([\w-]+)\s*(>=[\d.]+)", text) for text in texts}
        assert None not in found, texts
        return {(SPLIT.get(each[1], each[1]), each[2]) for each in found if each}

    run = [text for text in recipe["requirements"]["run"] if text[:2] != "__" and not text.startswith("python ")]
    extras = facts["optional-dependencies"]
    # Packages of conda have no extras: the recipe's installs what `complete` does.
    (complete,), (everything,) = (re.findall(r"\[(.*)\]", *extras.pop(name)) for name in ("complete", "all"))
    with_complete = [text for name in complete.split(",") for text in extras.pop(name)]
    assert asked(run) == asked(facts["dependencies"] + with_complete)
    assert asked(recipe["requirements"]["run_constraints"]) == asked(
        [text for texts in extras.values() for text in texts]
    )
    assert set(everything.split(",")) == {"complete", *extras}
