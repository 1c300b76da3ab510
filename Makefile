# Everything on a fresh machine with Python 3.11+ and make. `make demo` first, `make test` next; `make help` lists the rest.
# Each target installs what it needs into .venv, once, and nothing outside of it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.installed-package
STAMP := $(VENV)/.installed
SERVER := $(VENV)/.installed-server

.PHONY: help demo test test-integration fuzz fuzz-bytes lint format bench score notebooks docs clean

help:            ## this list, with what each target does
	@sed -nE 's/^([a-z-]+):.*## *(.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F '\t' '{ printf "%-18s %s\n", $$1, $$2 }'

$(BASE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	@echo "Installing the package and what it runs with into $(VENV) (once; one to five minutes) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --editable ".[langchain,cli]"
	@touch $(BASE)

$(STAMP): $(BASE)
	@echo "Installing the tools of tests and checks into $(VENV) (once; some minutes) ..."
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --editable ".[langchain,cli]" --group dev
	@touch $(STAMP)

$(SERVER): $(STAMP)
	@echo "Installing the LangGraph server into $(VENV) (once; a minute) ..."
	@$(BIN)/python -m pip install --group server
	@touch $(SERVER)

demo: $(BASE)    ## a real agent far beyond its window, without any key (seconds, and once the installation)
	$(BIN)/roundcompact demo

test: $(STAMP)   ## lint, types and all unit tests (some minutes)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist loadfile

test-integration: $(SERVER)  ## tests with services (PostgreSQL, a LangGraph server) and 200 kills; ROUNDCOMPACT_KILLS=20 is short
	$(BIN)/python -m pytest -n auto --dist loadfile tests/integration_tests

fuzz: $(STAMP)   ## the property tests with 100,000 examples in all
	ROUNDCOMPACT_FUZZ=1 $(BIN)/python -m pytest -n auto -m fuzz tests/unit_tests

FUZZ_SECONDS ?= 600
fuzz-bytes: $(STAMP) ## byte fuzzers of parser, escaper and redaction, FUZZ_SECONDS (600) each
	@echo "Installing the byte fuzzer into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --group fuzz
	for target in parser escaper redaction; do $(BIN)/python tests/fuzz/fuzz_$$target.py -max_total_time=$(FUZZ_SECONDS) || exit 1; done

lint: $(STAMP)   ## ruff and mypy only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## rewrite the layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## cost of a check and of a compaction, beside other packages
	$(BIN)/python tests/benchmarks/bench_check.py

score: $(STAMP)  ## facts that survive a compaction of real transcripts (needs ../shared)
	$(BIN)/python tests/benchmarks/score_retention.py

notebooks: $(STAMP) ## run every notebook and keep what it prints
	$(BIN)/python notebooks/run.py

docs: $(STAMP)   ## the pages of the documentation, into docs/_build
	@echo "Installing Sphinx into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "The pages: docs/_build/index.html"

clean:           ## remove .venv and the caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
