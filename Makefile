# carrycast: `make run` shows what it does, `make test` checks it. Both make their own environment in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A time stamp. The environment is up to date if it is newer than pyproject.toml and requirements.lock.
INSTALLED := $(VENV)/installed
NATIVE := $(VENV)/native
PIP := -m pip --disable-pip-version-check --no-input
# Further arguments, as in `make test ARGS="-k filter"`.
ARGS ?=
# Tests run in as many processes as there are cores, at most four. A process that is done takes tests from the others.
WORKERS ?= -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test quick test-all fuzz lint bench docs lock clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  make %-10s %s\n", $$1, $$2 }'

setup: $(INSTALLED) $(NATIVE) ## Make the environment in .venv (immediate when it is up to date)

$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	  "carrycast needs Python 3.11 or newer, and $(PYTHON) is %d.%d: try make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "Making the environment in $(VENV); the first time takes a minute or two."
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python $(PIP) install -qq --constraint requirements.lock --editable '.[all]'
	@touch $@

# A time stamp. Without a C++ compiler the simulator is pure Python.
$(NATIVE): $(INSTALLED) $(wildcard src/carrycast/sim/engine/native/cpp/*) hatch_build.py
	@$(BIN)/python hatch_build.py || true
	@touch $@

run: setup ## Show the main result of each paper in minutes, and write a report
	$(BIN)/carrycast tour

test: setup ## Run the tests
	$(BIN)/python -m pytest $(WORKERS) $(ARGS)

quick: setup ## Run the tests that need no sockets, no Spark and little time: under two minutes
	$(BIN)/python -m pytest $(WORKERS) -m 'not slow and not live and not spark' tests/unit tests/scenario tests/player src/carrycast $(ARGS)

test-all: setup ## Run all tests, including the long ones
	$(BIN)/python -m pytest -m '' $(WORKERS) $(ARGS)

fuzz: setup ## Run 10,000 random scenarios, each twice; continues where it stopped (build/fuzz.jsonl)
	$(BIN)/python -m carrycast.sim.testing.fuzz --count 10000 --workers 2 $(ARGS)

lint: setup ## Check rules, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## Measure speed against the baselines; writes benchmarks/results.json
	$(BIN)/python -m benchmarks $(ARGS)

docs: setup ## Check the documentation and build it as a site with search, in build/site/VERSION
	$(BIN)/python docs/check.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

lock: ## Pin the newest versions that pyproject.toml allows in requirements.lock
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python $(PIP) install -qq --editable '.[all]'
	{ sed -n '/^#/p' requirements.lock; build/lock/bin/python $(PIP) freeze --exclude-editable; } > build/requirements.lock
	mv build/requirements.lock requirements.lock
	rm -rf build/lock

clean: ## Remove the environment and all caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
