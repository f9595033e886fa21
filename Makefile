# Each target sets up what it needs in $(VENV) by itself; only Python (3.11 or newer) and make are needed.
PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo
# Real data sets; the tests that need them are skipped where they are not.
MLFS_DATA ?= $(CURDIR)/../shared/data
export MLFS_DATA

BIN = $(VENV)/bin
# The tests of a file in one process, so that what they share is made once; files as tests/conftest.py orders them.
SIDE_BY_SIDE = -n 2 --dist loadfile --no-loadscope-reorder
# A test that is skipped for a reason that is not expected fails; `make test SKIPS=` takes any reason.
SKIPS ?= --known-skips
PIP = $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: help demo test test-floors golden nightly lint audit docs dist constraints clean

help:
	@echo "make demo         install, and run the whole way on the digits images into $(DEMO)/"
	@echo "make test         install, and run the tests"
	@echo "make test-floors  the tests with the oldest versions that pyproject.toml allows, in $(VENV)-floors"
	@echo "make golden       renew the golden rankings of tests/blackbox, and print what has changed"
	@echo "make nightly      1000 drawn lives of a store, each command with every error at each of its calls, recipes and the tutorial, hosts that fail, fuzzed inputs"
	@echo "make lint         ruff and mypy"
	@echo "make audit        compare the installed packages with known vulnerabilities; needs the network"
	@echo "make docs         the documentation site, in docs/_build/html"
	@echo "make dist         wheel and source distribution, in dist/, each installed anew and run through the demo"
	@echo "make constraints  the versions of the container image, in deploy/constraints.txt; PYTHON is the image's"
	@echo "make clean        remove $(VENV), $(VENV)-floors, $(VENV)-image, $(DEMO) and what 'make docs' makes"

# --group came with pip 25.1, which is newer than what many systems bring.
$(VENV)/.pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"mlfs-dask needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.demo: $(VENV)/.pip pyproject.toml
	$(PIP) install --editable ".[complete]"
	@touch $@

$(VENV)/.test: $(VENV)/.pip pyproject.toml
	$(PIP) install --editable ".[complete]" --group test
	@touch $@

$(VENV)/.lint: $(VENV)/.test pyproject.toml
	$(PIP) install --group lint
	@touch $@

$(VENV)/.docs: $(VENV)/.demo pyproject.toml
	$(PIP) install --group docs
	@touch $@

$(VENV)/.dist: $(VENV)/.pip pyproject.toml
	$(PIP) install --group dist
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/mlfs demo $(DEMO) --force

test: $(VENV)/.test $(VENV)/.docs
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(SKIPS) $(ARGS)

golden: $(VENV)/.test
	$(BIN)/python -m tests.blackbox.golden_rankings $(ARGS)

nightly: $(VENV)/.test
	MLFS_NIGHTLY=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "nightly or longer" \
	    --record benchmarks/results/nightly.json $(SKIPS) $(ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

audit: $(VENV)/.lint
	.ci/audit $(BIN)/pip-audit

# Warnings are errors: a link, a heading or a name that leads nowhere is one. -E reads all pages and docstrings anew.
docs: $(VENV)/.docs
	rm -rf docs/_build docs/reference/generated  # pages that are gone
	$(BIN)/sphinx-build -W --keep-going -E -q docs docs/_build/html
	$(BIN)/python docs/links.py docs/_build/html
	@echo "Open docs/_build/html/index.html"

# uvx installs each in an environment of its own, and runs it in a folder that has nothing else, not even this one.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/uv build --quiet
	@set -e; for file in $(CURDIR)/dist/*.whl $(CURDIR)/dist/*.tar.gz; do \
	  echo "mlfs demo, from $$file"; folder=$$(mktemp -d); \
	  (cd $$folder && $(abspath $(BIN))/uvx --quiet --isolated --python $(abspath $(BIN))/python --from "mlfs-dask[complete] @ file://$$file" mlfs demo digits && test -s digits/index.html); \
	  rm -rf $$folder; \
	done

constraints:
	$(PYTHON) -m venv --clear $(VENV)-image
	$(VENV)-image/bin/python -m pip -qq install ".[cloud,complete]"
	{ echo '# What deploy/Dockerfile installs, so that an image built later is the same: make constraints PYTHON=python3.13'; \
	  $(VENV)-image/bin/python -m pip freeze --exclude mlfs-dask; } > deploy/constraints.txt

# pip has no "lowest versions" switch: the floors become a constraints file.
$(VENV)-floors/.test: pyproject.toml
	$(PYTHON) -m venv $(VENV)-floors
	$(VENV)-floors/bin/python -m pip -qq install --upgrade "pip>=25.1"
	$(VENV)-floors/bin/python -c 'import re, tomllib; p = tomllib.load(open("pyproject.toml", "rb")); lists = [p["project"]["dependencies"], *p["project"]["optional-dependencies"].values(), p["dependency-groups"]["test"]]; print("\n".join(re.sub(r"(\[.*\])?>=([0-9.]+).*", r"==\2", r) for x in lists for r in x if ">=" in r))' > $(VENV)-floors/floors.txt
	$(VENV)-floors/bin/python -m pip -qq install --editable ".[complete]" --group test --constraint $(VENV)-floors/floors.txt
	@touch $@

test-floors: $(VENV)-floors/.test
	$(VENV)-floors/bin/python -m pytest $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-floors $(VENV)-image $(DEMO) docs/_build docs/reference/generated
