# Needs Python 3.11 or newer and make; everything else is installed into .venv from the hashed locks.
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCKS := requirements/runtime.txt requirements/dev.txt
PEERS := bench/.peers
BROWSER := bench/.browser
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3; do \
	"$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo "$$candidate"; break; }; done)

.PHONY: help setup run test model protocol chaos check lock bench bench-peers console-proof clean

help: ## Show what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP) ## Create .venv and install the locked dependencies and tocsin itself

$(STAMP): $(LOCKS) pyproject.toml
	@test -n "$(PYTHON)" || { echo 'Tocsin needs Python 3.11 or newer with its venv module;' \
		'none was found. Name one with: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo '$(PYTHON) is not Python 3.11 or newer; name another with PYTHON=/path/to/python3' >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(STAMP) ## Start the demo: the whole path, alive, in one minute
	$(BIN)/tocsin demo

test: $(STAMP) ## Run the test suite against a real PostgreSQL
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

model: $(STAMP) ## Hold the store against its model for longer: EXAMPLES=1000, others each time
	MODEL_EXAMPLES=$(or $(EXAMPLES),1000) $(BIN)/python -m pytest tests/model $(ARGS)

protocol: $(STAMP) ## Ask the API for longer what its document promises: EXAMPLES=100 requests of a kind, others each time
	PROTOCOL_EXAMPLES=$(or $(EXAMPLES),100) $(BIN)/python -m pytest tests/protocol $(ARGS)

chaos: $(STAMP) ## Kill everything while deliveries flow, and judge what is left (see docs/chaos.md): ARGS='--seed 1'
	$(BIN)/python -m tests.chaos $(ARGS)

check: $(STAMP) ## Formatting, lint, types, import contracts, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m service.settings_page --check
	$(BIN)/tocsin openapi --check

lock: ## Write the hashed locks anew from pyproject.toml (needs uv on the PATH)
	@command -v uv >/dev/null || { echo 'make lock needs uv on the PATH: pip install uv' >&2; exit 1; }
	uv pip compile $(LOCK_FLAGS) pyproject.toml -o requirements/runtime.txt
	uv pip compile $(LOCK_FLAGS) pyproject.toml --group dev -c requirements/runtime.txt -o requirements/dev.txt
	uv pip compile $(LOCK_FLAGS) --group build -c requirements/dev.txt -o requirements/build.txt
	uv pip compile $(LOCK_FLAGS) --group peers -o requirements/peers.txt
	uv pip compile $(LOCK_FLAGS) --group browser -o requirements/browser.txt
LOCK_FLAGS := --quiet --upgrade --generate-hashes --universal --python-version 3.11 --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links

bench: $(STAMP) ## Measure: floors, drains, claims, memory (see docs/benchmarks.md)
	$(BIN)/python -m bench $(ARGS)

bench-peers: $(STAMP) $(PEERS)/.installed ## Measure the same drain on other queues on PostgreSQL
	$(BIN)/python -m bench.peers $(ARGS)

$(PEERS)/.installed: requirements/peers.txt bench/peers/package-lock.json
	@test -x $(PEERS)/bin/python || "$(PYTHON)" -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/peers.txt
	cp bench/peers/package.json bench/peers/package-lock.json $(PEERS)/
	cd $(PEERS) && PATH="$$PWD/bin:$$PATH" npm ci --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

console-proof: $(STAMP) $(BROWSER)/.installed ## Drive the console with a real browser (see docs/console.md)
	$(BIN)/python -m bench.console --python $(BROWSER)/bin/python $(ARGS)

$(BROWSER)/.installed: requirements/browser.txt
	@test -x $(BROWSER)/bin/python || "$(PYTHON)" -m venv $(BROWSER)
	$(BROWSER)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/browser.txt
	@touch $@

clean: ## Remove .venv, bench/.peers, bench/.browser, caches and build output (not .tocsin, which holds data)
	rm -rf $(VENV) $(PEERS) $(BROWSER) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
