# Two commands matter: `make demo` and `make test`. Both build .venv first, from the lock.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ONLY   ?=

.PHONY: demo test lint types bench docs build dist nightly lock clean help
.DEFAULT_GOAL := help

help: ## what there is to make
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

$(READY): requirements/dev.lock pyproject.toml scripts/bootstrap.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/bootstrap.sh
	@touch $@

demo: $(READY) ## set up everything and run the main job
	@sh scripts/need_java.sh || true
	$(BIN)/homing demo

test: $(READY) lint ## set up everything and pass the tests
	@sh scripts/need_java.sh
	$(BIN)/pytest $(ARGS)

lint: $(READY) ## style, types and the one-way arrows between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY) ## measure beside the peers (ONLY=wire|service|matching|push|pipeline)
	$(BIN)/python -m benchmarks $(ONLY)

docs: $(READY) ## build the documentation site, failing on any warning
	$(BIN)/mkdocs build --strict --quiet

nightly: $(READY) ## the long runs: more seeds, more events, longer fuzzing
	HOMING_TEST_PROFILE=nightly $(BIN)/pytest $(ARGS)

lock: $(READY) ## resolve requirements/dev.lock anew from pyproject.toml
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --all-extras pyproject.toml -o requirements/dev.lock

clean: ## remove what the targets made
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
