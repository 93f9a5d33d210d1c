# Two commands matter: `make demo` and `make test`. Both build .venv first, from the lock.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ONLY   ?=
ARGS   ?=
# Test processes at once; one file's tests stay in one of them, so they may share a fixture. Files are
# begun in the order of tests/conftest.py.
JOBS   ?= 2
SHARED := -n $(JOBS) --dist loadfile --no-loadscope-reorder

# What tests talk to beside Python; the Debian package has the program's name.
PROGRAMS := serf chromium

# What is run a second time on the compiled wheel.
COMPILED := tests/test_compiled.py tests/wire tests/service tests/journal tests/node

export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test lint format bench docs reference build compiled dist nightly lock setup debian clean help
.DEFAULT_GOAL := help

help: ## what there is to make
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

# Not of pyproject.toml: what it asks for is in the lock, and the rest is read in place.
$(READY): requirements/dev.lock scripts/bootstrap.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/bootstrap.sh
	@touch $@

setup: $(READY) ## make .venv from the lock, nothing else

demo: $(READY) ## set up everything and run the main job
	@sh scripts/need_java.sh || true
	@$(BIN)/homing demo

test: $(READY) debian lint ## set up everything and pass the tests
	@sh scripts/need_java.sh
	$(BIN)/pytest $(SHARED) $(ARGS)

lint: $(READY) ## style, types and the one-way arrows between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo > $(VENV)/lint-imports.txt 2>&1 || { cat $(VENV)/lint-imports.txt; exit 1; }

format: $(READY) ## put the code into the house's form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## measure beside the peers (ONLY=wire|service|matching|push|pipeline)
	$(BIN)/python -m benchmarks $(ONLY)

docs: $(READY) reference ## build the documentation site, failing on any warning
	$(BIN)/mkdocs build --strict --quiet

reference: $(READY) ## write the reference pages from the code, and README's figures from the results
	@$(BIN)/python -m scripts.reference
	@$(BIN)/python -m scripts.figures

build: $(READY) ## a wheel of this checkout, its hot path compiled by mypyc
	@VENV="$(VENV)" sh scripts/build_wheel.sh

compiled: build ## the service plane's tests, on the compiled wheel
	rm -rf build/compiled && mkdir -p build/compiled
	$(BIN)/python -m zipfile -e "$$(ls -t dist/homing-*-linux_*.whl | head -n 1)" build/compiled
	PYTHONPATH=$(CURDIR)/build/compiled COMPILED_FORM=1 $(BIN)/pytest $(SHARED) $(COMPILED)

dist: $(READY) ## the source archive, a wheel made from it, and an archive for Spark's executors
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m scripts.spark_archive dist

nightly: $(READY) debian ## the long runs: more seeds, more events, longer fuzzing
	HOMING_TEST_PROFILE=nightly $(BIN)/pytest $(SHARED) --timeout 7200 $(ARGS)

lock: $(READY) ## resolve requirements/dev.lock anew from pyproject.toml
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --all-extras pyproject.toml -o requirements/dev.lock

debian:
	@sh scripts/debian.sh $(PROGRAMS)

clean: ## remove what the targets made
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
