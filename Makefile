# Every target sets up what it needs: python 3.11, make and a package registry are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOWEST := .venv-lowest
LOWEST_TESTS := tests/estimator/test_mistakes.py tests/estimator/test_model_file.py tests/core/test_network.py tests/data/test_formats.py \
  tests/data/test_datasets.py tests/cli/test_cli.py tests/report/test_report_page.py tests/peers/wire tests/peers/process/test_config.py tests/privacy
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help venv demo test test-docs test-lowest lint format figures reference bench bench-quick clean

help:
	@echo "make demo    ten gossiping nodes learn digits; writes demo/report.html"
	@echo "make test    all tests, the examples in docstrings and docs, and the links of the docs"
	@echo "make test-docs     only the examples and the links"
	@echo "make test-lowest   some tests with the oldest versions of the libraries that are allowed"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make figures       the figure of the README, into docs/images"
	@echo "make reference     docs/reference/commands.md, from the commands' help"
	@echo "make bench   benchmarks, with machine and date, into benchmarks/results/"
	@echo "make bench-quick   the same on small sizes, in two minutes, into benchmarks/results/quick/"
	@echo "make venv    .venv with the package and its developer tools"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gadget-svm needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "this Python cannot make virtual environments: on Debian and Ubuntu run 'apt-get install python3-venv' (for a versioned python: python3.11-venv), then make again"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A stamp per set of extras: reinstalled when the project's metadata changes.
$(VENV)/.report: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[report]'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.report

venv: $(VENV)/.dev

demo: $(VENV)/.report
	$(BIN)/gadget demo --out demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto

test-docs: $(VENV)/.dev
	$(BIN)/python -m pytest tests/docs src/gadget_svm

# The oldest versions that pyproject.toml allows, in a virtual environment of their own.
$(LOWEST)/.done: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct -e '.[test]'
	@touch $@

test-lowest: $(LOWEST)/.done
	$(LOWEST)/bin/python -m pytest -n auto $(LOWEST_TESTS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

figures: $(VENV)/.dev
	$(BIN)/python examples/plot_run.py docs/images/run.svg

reference: $(VENV)/.dev
	$(BIN)/python -m typer gadget_svm.cli.app utils docs --name gadget --title Commands --output docs/reference/commands.md

# Solvers to compare with, where they install; the tables say which are absent.
$(VENV)/.bench: $(VENV)/.dev
	-$(PIP) -e '.[bench]'
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

bench-quick: $(VENV)/.bench
	$(BIN)/python -m benchmarks --quick

clean:
	rm -rf $(VENV) $(LOWEST) demo dist build
